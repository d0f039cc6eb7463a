/* store/etcd_client.h: calls to an etcd cluster, waited for, and one lease that is kept alive.
 *
 * A thread of its own runs the connections, so that the keep-alive never waits for work: whoever
 * calls etcd_call() waits, the lease does not. Unary calls, the lease and a watch have a connection
 * each (a large answer must not hold up the others). Endpoints are tried in turn: a member that
 * does not answer is left for the next one.
 *
 * Thread-safe but for create and destroy.
 */
#ifndef BERTH_STORE_ETCD_CLIENT_H
#define BERTH_STORE_ETCD_CLIENT_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "etcd.pb-c.h"

struct etcd_client;

struct etcd_client_options {
        const char *endpoints; /* "host:port,host:port" */
        /* any set: TLS; cert_file: ours, for client-cert-auth */
        const char *ca_file, *cert_file, *key_file;
        const char *user, *password; /* NULL: no authentication */
        /* called from the client's thread with each keep-alive; NULL: nobody */
        void (*on_beat)(void *ctx, int64_t every_ms);
        void *ctx;
        int64_t try_ms; /* one member may take this long before the next is asked: 2,000 */
};

int etcd_client_create(const struct etcd_client_options *options, struct etcd_client **ret_client,
                       struct err *err);
/* gives the lease back, if that is quick. NULL is fine */
void etcd_client_destroy(struct etcd_client *c);

/* One unary call, tried at each member in turn until the deadline. The answer lives in the arena. A
 * call whose outcome is unknown is sent again: only for calls that may be repeated.
 * -ERR_UNAVAILABLE: nobody answered (the outcome is unknown), or etcd has no space left (NOSPACE);
 * -ERR_LIMIT: the request is too large, or the answer (64 MiB). */
int etcd_call(struct etcd_client *c, const char *path, const ProtobufCMessage *request,
              const ProtobufCMessageDescriptor *answer, int64_t deadline_ms, struct arena *arena,
              ProtobufCMessage **ret_answer, struct err *err);

/* Those that are not sent at any time leave in the order in which they were given: a moment apart,
 * so that etcd most probably takes them up in that order; or the moment the one before has ended,
 * which is sooner than any other thread could hear of it. If that one fails or is given up, those
 * that wait for it fail. */
enum etcd_turn { ETCD_ANY_TIME, ETCD_IN_TURN, ETCD_AFTER };

/* The same without waiting. The packed message is taken over. on_end, if set, is called from the
 * client's own thread when it is done. */
struct etcd_request;
struct etcd_request *etcd_request_send(struct etcd_client *c, const char *path, struct str *packed,
                                       int64_t deadline_ms, enum etcd_turn turn,
                                       void (*on_end)(void *ctx), void *ctx);
/* whether it is done; -1: until it is */
bool etcd_request_wait(struct etcd_request *r, int64_t wait_ms);
/* one that is done, unchanged */
void etcd_request_again(struct etcd_request *r, int64_t deadline_ms);
/* Of one that is done; as etcd_call(). */
int etcd_request_answer(struct etcd_request *r, const ProtobufCMessageDescriptor *answer,
                        struct arena *arena, ProtobufCMessage **ret_answer, struct err *err);
/* of one that is done: when (clock_steady_ns) the try left that was answered */
int64_t etcd_request_sent_ns(const struct etcd_request *r);
/* also one under way: what etcd does with it is not waited for. NULL is fine */
void etcd_request_free(struct etcd_request *r);

/* Grants a lease and keeps it alive until etcd_lease_drop() or destroy. */
int etcd_lease_take(struct etcd_client *c, int64_t ttl_seconds, int64_t deadline_ms,
                    int64_t *ret_id, struct err *err);
void etcd_lease_drop(struct etcd_client *c, bool revoke);
/* Until when (clock_mono_ns) the lease is certainly alive at etcd: counted from the moment at which
 * the last confirmed keep-alive was SENT. 0: no lease, or it is lost. */
int64_t etcd_lease_valid_until_ns(struct etcd_client *c);

/* etcd's revision as of the last answer to a keep-alive: what anybody has written up to then. 0:
 * none came yet. Any thread. */
int64_t etcd_client_revision(struct etcd_client *c);

/* Calls on_event for every change of keys in [key, end) from a revision on, from the client's own
 * thread, until stopped. After a broken connection it goes on where it was. compacted: what lies
 * between was compacted away; list again, and the watch goes on after `revision`. */
struct etcd_watch_event {
        const Etcd__KeyValue *kv; /* value empty if deleted */
        bool deleted, compacted;
        int64_t revision;
};
typedef void (*etcd_watch_fn)(void *ctx, const struct etcd_watch_event *event);
enum etcd_watch_slot {                     /* each with a connection of its own */
                       ETCD_WATCH_META,    /* who leads, who is there: etcd_follow.c */
                       ETCD_WATCH_STRANGE, /* what was changed by hand: etcd_strange.c */
                       _ETCD_WATCH_MAX
};
void etcd_watch_start(struct etcd_client *c, enum etcd_watch_slot which, const char *key,
                      const char *end, int64_t from_revision, etcd_watch_fn fn, void *ctx);
/* no call of fn after it has returned */
void etcd_watch_stop(struct etcd_client *c, enum etcd_watch_slot which);

#endif
