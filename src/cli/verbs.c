/* cli/verbs.c: all verbs, in the order of the help. */
#include "cli/verbs.h"

/* One line each, so that two verbs that come at once do not meet. */
/* clang-format off */
const struct verb *const verbs[] = {
        &verb_run,
        &verb_apply,
        &verb_plan,
        &verb_get,
        &verb_describe,
        &verb_explain,
        &verb_logs,
        &verb_exec,
        &verb_stop,
        &verb_start,
        &verb_delete,
        &verb_retry,
        &verb_release,
        &verb_cordon,
        &verb_uncordon,
        &verb_drain,
        &verb_disable,
        &verb_taint,
        &verb_adopt,
        &verb_fence,
        &verb_expel,
        &verb_label,
        &verb_capacity,
        &verb_evict,
        &verb_node,
        &verb_events,
        &verb_cluster,
        &verb_doctor,
        &verb_quota,
        &verb_token,
        &verb_login,
        &verb_context,
        &verb_ca,
        &verb_backup,
        &verb_restore,
        &verb_key,
        &verb_fsck,
        &verb_migrate_store,
        &verb_config,
        &verb_dev,
        &verb_server,
        &verb_agent,
        &verb_sim,
        &verb_version,
        &verb_completion,
        &verb_help,
        &verb_complete,
        &verb_man,
        NULL,
};
/* clang-format on */

const struct verb *verb_find(const char *name, struct err *err)
{
        const char *names[ARRAY_LEN(verbs)];
        size_t n = 0;
        for (size_t i = 0; verbs[i]; i++) {
                if (str_eq(verbs[i]->name, name))
                        return verbs[i];
                if (!verbs[i]->hidden)
                        names[n++] = verbs[i]->name;
        }
        names[n] = NULL;
        const char *near = str_suggest(name, names);
        err_set(err, ERR_INVALID, .msg = fmt("unknown command '%s'", name),
                .hint =
                    near ? fmt("did you mean berth %s?", near) : "berth help lists all commands");
        return NULL;
}
