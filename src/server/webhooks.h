/* server/webhooks.h: posts what the core's outbox holds, and tells it how that went. The io
 * thread's. Internal.
 *
 * One POST per delivery, JSON, with these headers:
 *      Berth-Delivery: the id; the same whenever it is sent again, so that a receiver can tell what
 *      it already has Berth-Event: AlertRaised or AlertCleared
 *      Berth-Signature: t=<unix seconds>,v1=<hex HMAC-SHA256 over "<t>.<body>" with the webhook's
 *      secret>; absent without a secret
 * A status of 200 to 299 is a delivery; anything else, and no answer within the timeout, is a
 * failure, which the core tries again later.
 *
 * Invariants:
 *   (1) Every EFFECT_WEBHOOK is answered by exactly one INPUT_WEBHOOK_DONE, unless the server stops
 *       first.
 *   (2) What is under way is bounded by the core (64), each by its timeout, and what is read of an
 *       answer by 64 KiB.
 */
#ifndef BERTH_SERVER_WEBHOOKS_H
#define BERTH_SERVER_WEBHOOKS_H

#include "config.pb-c.h"
#include "core/core.h"

struct io;
struct webhooks;

struct webhooks *webhooks_create(struct io *io);
void webhooks_destroy(struct webhooks *w);
/* Where to send, with which secret: from now on. Copied. A secret's file is read with each
 * delivery, so that it can be rotated. */
void webhooks_configure(struct webhooks *w, const Pb__ServerConfig *config);
/* A batch's effects. */
void webhooks_effects(struct webhooks *w, const struct core_batch *batch);
/* this server leads no more; what was not delivered is the next one's */
void webhooks_drop(struct webhooks *w);
void webhooks_stop(struct webhooks *w);

/* "t=...,v1=...". Exposed for its test. */
void webhook_sign(const char *secret, size_t secret_len, int64_t unix_seconds, const char *body,
                  struct str *out);

#endif
