/* core/access.h: tokens. See access.c. */
#ifndef BERTH_CORE_ACCESS_H
#define BERTH_CORE_ACCESS_H

#include "core/state.h"

void tokens_init(struct core *c);
void tokens_fini(struct core *c);
void decide_token_create(struct core *c, const Pb__CreateTokenRequest *req);
void decide_token_revoke(struct core *c, const Pb__TokenRef *req);
void decide_token_use(struct core *c, const Pb__UseTokenRequest *req);
void decide_touched(struct core *c, const Pb__TouchedRecord *touched); /* touched.c */
void apply_touched(struct core *c, const Pb__Event *e);
void decide_access_note(struct core *c, const Pb__AccessNote *note);
void read_list_tokens(struct core *c, const Pb__ListTokensRequest *req);
const char *wrong_token(struct core *c, const Pb__Event *e);
void apply_token_event(struct core *c, const Pb__Event *e);
void tokens_dump(const struct core *c, struct str *out);
int tokens_check(const struct core *c, struct err *err);
/* What a join token says of the node that uses it; NULL: nothing. */
const Pb__AccessToken *token_grants(const struct core *c, uint32_t token);
/* Ends every token that is of this node alone. */
void tokens_revoke_of(struct core *c, const char *node_id);
/* The public keys that joined as this node, into an array that grows: in the step's memory. */
struct key_list {
        char **at;
        size_t n;
};
void tokens_keys_of(struct core *c, const char *node_id, struct key_list *ret);
/* A token of this node and of no other that works: then an operator wants it. name: this one; NULL:
 * any. */
bool token_lets_in(const struct core *c, const char *name, const char *node_id);

#endif
