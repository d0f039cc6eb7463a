/* server/relays.h: logs and exec between a user's call and an agent's stream. The io thread's.
 * Internal.
 *
 * A relay first asks the core where the workload is, then opens a numbered stream on that agent's
 * connection. What the agent sends is passed on as fast as the user takes it; what does not fit
 * waits here up to a limit, beyond which the relay is ended with a sentence. What the user sends is
 * read only while the agent's queue is short. Either side going away ends the other.
 *
 * Agents that know credit (StreamCredit) send no more output than the user takes, so that limit is
 * never met; and the user's input is read only as the command reads it. Without it a command that
 * reads slowly was killed.
 *
 * A caller has a share of all relays, and at most half of those through one agent, so that others
 * get through too (A7). Over gRPC a relay is made when the first message is there (rpc.c), never by
 * headers alone.
 */
#ifndef BERTH_SERVER_RELAYS_H
#define BERTH_SERVER_RELAYS_H

#include "agent.pb-c.h"
#include "api.pb-c.h"
#include "base/err.h"

struct io;
struct relays;
struct http_request;
struct grpc_callbacks;
struct op;
struct caller;

struct relays *relays_create(struct io *io);
void relays_destroy(struct relays *r);
size_t relays_len(const struct relays *r);

/* GET /workloads/{id}/logs. The request is answered here, also when it fails. */
void relays_http_logs(struct relays *r, const struct op *op, struct http_request *req,
                      const struct caller *who, const Pb__LogsRequest *want);
/* For the methods Logs and Exec; their ctx is the struct door. */
struct grpc_callbacks relays_callbacks(bool exec);

/* From an agent. Unknown streams and streams of other sessions are answered with a cancellation. */
void relays_log(struct relays *r, uint64_t session, const Pb__LogChunk *chunk);
void relays_exec(struct relays *r, uint64_t session, const Pb__ExecOutput *out);
void relays_credit(struct relays *r, uint64_t session, const Pb__StreamCredit *credit);
void relays_session_gone(struct relays *r, uint64_t session);
void relays_stop(struct relays *r);

#endif
