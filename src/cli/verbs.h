/* cli/verbs.h: the verbs, each defined in the file of its name (stop.c: stop, start; cordon.c:
 * cordon, uncordon, disable; fence.c: fence, release; label.c: label, capacity; context.c: login,
 * context; help.c: help, man). */
#ifndef BERTH_CLI_VERBS_H
#define BERTH_CLI_VERBS_H

#include "cli/cli.h"

extern const struct verb verb_adopt;
extern const struct verb verb_agent;
extern const struct verb verb_apply;
extern const struct verb verb_backup;
extern const struct verb verb_ca;
extern const struct verb verb_capacity;
extern const struct verb verb_cluster;
extern const struct verb verb_complete;
extern const struct verb verb_completion;
extern const struct verb verb_config;
extern const struct verb verb_context;
extern const struct verb verb_cordon;
extern const struct verb verb_delete;
extern const struct verb verb_describe;
extern const struct verb verb_dev;
extern const struct verb verb_disable;
extern const struct verb verb_doctor;
extern const struct verb verb_drain;
extern const struct verb verb_events;
extern const struct verb verb_exec;
extern const struct verb verb_expel;
extern const struct verb verb_explain;
extern const struct verb verb_fence;
extern const struct verb verb_evict;
extern const struct verb verb_fsck;
extern const struct verb verb_get;
extern const struct verb verb_help;
extern const struct verb verb_key;
extern const struct verb verb_label;
extern const struct verb verb_login;
extern const struct verb verb_logs;
extern const struct verb verb_migrate_store;
extern const struct verb verb_man;
extern const struct verb verb_node;
extern const struct verb verb_plan;
extern const struct verb verb_quota;
extern const struct verb verb_token;
extern const struct verb verb_restore;
extern const struct verb verb_release;
extern const struct verb verb_retry;
extern const struct verb verb_run;
extern const struct verb verb_server;
extern const struct verb verb_sim;
extern const struct verb verb_start;
extern const struct verb verb_stop;
extern const struct verb verb_taint;
extern const struct verb verb_uncordon;
extern const struct verb verb_version;

#endif
