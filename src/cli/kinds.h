/* cli/kinds.h: how workloads, nodes and events look in tables, and small words about them that
 * several verbs print. */
#ifndef BERTH_CLI_KINDS_H
#define BERTH_CLI_KINDS_H

#include "api.pb-c.h"
#include "cli/table.h"

#define WORDS_LEN 160

struct kind {
        const char *name;                                   /* "workload" */
        const ProtobufCMessageDescriptor *type, *list_type; /* list_type has a field "items" */
        const struct table_column *columns;
        size_t n_columns;
        void (*row)(struct table *t, const ProtobufCMessage *m, int64_t now_ms);
        const char *(*id)(const ProtobufCMessage *m, char buf[WORDS_LEN]);
};
extern const struct kind kind_workload, kind_node, kind_event, kind_quota, kind_token;

/* Names as users write them: "Running", "cpu-insufficient"; "-" when unset. */
const char *phase_name(Pb__Phase__E phase);
const char *reason_name(Pb__Reason__E reason);
const char *node_status_name(const Pb__Node *n); /* with ",cordoned" and the like */
enum tint phase_tint(Pb__Phase__E phase);
enum tint node_tint(Pb__NodeStatus__E status);

/* What is worth knowing beside the phase: "exit code 1; retry 2 of 5 in 12s". "" if nothing is.
 * now_ms 0: words that do not change by themselves ("retry 2 of 5"). */
/* "3 of 5"; without an end (a service that names no maximum): "3". */
const char *tries_words(char *buf, size_t size, int32_t attempts, int32_t max_attempts);
const char *workload_info(const Pb__Workload *w, int64_t now_ms, char buf[WORDS_LEN]);
/* "-" when at_ms is 0 */
const char *age_words(char *buf, size_t size, int64_t now_ms, int64_t at_ms);
const char *cores_words(char *buf, size_t size, int64_t milli); /* "0.25", "2" */
const char *mib_words(char *buf, size_t size, int64_t mib);     /* "64Mi", "1.5Gi" */
/* "a=b,c=d" of a map<string,string> */
void map_words(struct str *out, const void *entries, size_t n);
/* quoted as a shell would need it */
void command_words(struct str *out, char *const *command, size_t n);

#endif
