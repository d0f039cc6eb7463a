/* server/sessions.h: the streams of agents. The io thread's. Internal.
 *
 * A stream's first message is its Hello, within HELLO_MS. After that heartbeats and reports become
 * inputs of the core, and the core's effects become messages; logs and exec pass through to relays.
 *
 * Invariants:
 *   (N1) What an agent sent reaches the ring in the order in which it was sent, and nothing is
 *   lost: when the ring is full, or this agent sent more than its share,
 *        the stream is not read from until what was read has been taken.
 *   (N2) What waits for an agent is bounded; a stream that falls behind is closed, and its agent
 *   asks for the whole plan when it comes back. (N3) The core hears of the end of every stream
 *   whose Hello it has seen, exactly once, and of nothing of that stream afterwards.
 */
#ifndef BERTH_SERVER_SESSIONS_H
#define BERTH_SERVER_SESSIONS_H

#include "agent.pb-c.h"
#include "base/err.h"
#include "core/core.h"

#define HELLO_MS 10000
#define PLAN_MESSAGE_BYTES (1024 * 1024)

struct io;
struct sessions;
struct grpc_callbacks;

struct sessions *sessions_create(struct io *io);
void sessions_destroy(struct sessions *s);
size_t sessions_len(const struct sessions *s);
/* For the method /berth.v1.Agent/Connect; its ctx is the struct door. */
struct grpc_callbacks sessions_callbacks(void);

/* A batch's effects, in order. */
void sessions_effects(struct sessions *s, const struct core_batch *batch);
/* Ends all streams: the server stops. */
void sessions_stop(struct sessions *s);
/* All streams end with this reason; new ones may come. */
void sessions_end_all(struct sessions *s, const char *why);

/* The certificates of those who are connected, as they say themselves: how many are past three
 * quarters of their life, and which end soonest. */
struct agent_certificates {
        uint32_t due;
        size_t n;
        struct {
                const char *node; /* valid until the loop goes on */
                int64_t expires_at;
        } soonest[100];
};
void sessions_certificates(const struct sessions *s, int64_t now_ms,
                           struct agent_certificates *ret);

/* For relays: a message to the agent of this session. -ERR_NOT_FOUND: it is gone; -ERR_LIMIT: too
 * much waits for it. */
int sessions_send(struct sessions *s, uint64_t session, const Pb__ServerMessage *msg);
size_t sessions_queued_bytes(const struct sessions *s, uint64_t session);
bool sessions_has(const struct sessions *s, uint64_t session);
/* its agent knows StreamCredit */
bool sessions_gives_credit(const struct sessions *s, uint64_t session);

/* Appends a packed ServerMessage that holds a plan, made of packed PlanUnits, each as field 4 of
 * Plan (tag, length, bytes). Exposed for its test. */
struct str;
void plan_message(struct str *out, uint64_t epoch, uint64_t seq, bool complete, bool last,
                  const void *units, size_t len);
void plan_add_unit(struct str *units, const void *unit, size_t len);

#endif
