/* cli/verbs.h: the verbs, each defined in the file of its name (stop.c: stop, start; cordon.c: cordon, uncordon, disable; help.c: help, man). */
#ifndef BERTH_CLI_VERBS_H
#define BERTH_CLI_VERBS_H

#include "cli/cli.h"

extern const struct verb verb_adopt, verb_agent, verb_apply, verb_cluster, verb_complete, verb_completion, verb_config, verb_cordon,
    verb_delete, verb_describe, verb_dev, verb_disable, verb_taint, verb_drain, verb_events, verb_exec, verb_explain, verb_fsck, verb_get,
    verb_help, verb_logs, verb_man, verb_node, verb_retry, verb_quota, verb_run, verb_server, verb_sim, verb_start, verb_stop,
    verb_uncordon, verb_version;
extern const struct verb verb_plan;

#endif
