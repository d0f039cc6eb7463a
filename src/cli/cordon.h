/* cli/cordon.h: setting what is wanted of nodes, for the verbs that do so. */
#ifndef BERTH_CLI_CORDON_H
#define BERTH_CLI_CORDON_H

#include "api.pb-c.h"
#include "cli/cli.h"

/* Says asked (but for the id) about every node that args name; prints "node/n1 DONE" for each. The
 * ids are the nodes' full ones. */
int set_wish(struct cli *cli, const struct args *args, const Pb__SetNodeWishRequest *asked,
             const char *done, struct text_list *ret_ids, struct err *err);

/* Cordons, without a word, those of them that take work: what leaves one of several must not go to
 * the next. *index: as check_index, 0 or what the plan said; moves on with our own changes. */
int cordon_first(struct cli *cli, const struct args *args, uint64_t *index, struct err *err);

#endif
