/* cli/names.h: which workload or node the user means.
 *
 * A name is an id or the unique beginning of one; an exact id wins over longer ones.
 * `workload/hello`, `workload hello web` and `wl hello` are taken as kubectl users write them.
 */
#ifndef BERTH_CLI_NAMES_H
#define BERTH_CLI_NAMES_H

#include "cli/client.h"

#define NAME_AMBIGUOUS_SHOWN 5

/* Pure. ids begin with word (the server filtered them) or are all that there are; more: the list
 * was cut. On success *ret_id is one of ids. ERR_INVALID: several fit, the first five are in the
 * detail; ERR_NOT_FOUND: none does. */
int name_pick(const char *kind, const char *word, const char *const *ids, size_t n, bool more,
              const char **ret_id, struct err *err);

/* Splits arguments into names of the one kind ("workload" or "node") that the verb works on.
 * *ret_names is in the arena. */
int names_of_kind(const struct cli *cli, struct arena *arena, const char *kind,
                  const struct args *args, struct text_list *ret_names, struct err *err);
/* The same for verbs that take several kinds: the kind is that of the first argument, else
 * default_kind. */
int names_with_kind(const struct cli *cli, struct arena *arena, const char *default_kind,
                    const struct args *args, const char **ret_kind, struct text_list *ret_names,
                    struct err *err);

/* Ask the server: word to object. NULL and err on failure. */
Pb__Workload *workload_named(struct cli *cli, struct arena *arena, const char *word,
                             struct err *err);
Pb__Node *node_named(struct cli *cli, struct arena *arena, const char *word, struct err *err);
/* Calls method with each of these nodes, and prints "node/ID" and done for it. */
int node_calls(struct cli *cli, const struct text_list *names, const char *method, const char *done,
               struct err *err);
/* Exact id only; no suggestion. */
Pb__Workload *workload_by_id(struct cli *cli, struct arena *arena, const char *id, struct err *err);
Pb__Node *node_by_id(struct cli *cli, struct arena *arena, const char *id, struct err *err);

#endif
