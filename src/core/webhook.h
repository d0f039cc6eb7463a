/* core/webhook.h: the outbox. See webhook.c. */
#ifndef BERTH_CORE_WEBHOOK_H
#define BERTH_CORE_WEBHOOK_H

#include "core/state.h"

void outbox_init(struct core *c);
void outbox_fini(struct core *c);
uint32_t outgoing_find(const struct core *c, const char *id); /* MAP_NONE: none */
void queue_webhook(struct core *c, const struct rule *r, const Pb__Event *alert);
void decide_webhook_done(struct core *c, const Pb__WebhookResult *m);
int64_t outbox_next_ms(const struct core *c);
void run_outbox(struct core *c);
const char *wrong_webhook(struct core *c, const Pb__Event *e);
void apply_webhook_event(struct core *c, const Pb__Event *e);
void outbox_dump(const struct core *c, struct str *out);
int outbox_check(const struct core *c, struct err *err);

#endif
