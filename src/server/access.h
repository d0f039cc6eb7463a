/* server/access.h: who calls, and may they? One place for both doors (C32).
 *
 * Who somebody is comes from a token (Authorization: Bearer, or the dashboard's cookie), else from
 * the verified certificate of the connection. What an operation needs stands in its row (ops.h).
 * With authentication off everybody is an admin, by the name that they give.
 *
 *      token          its role; its name is the actor
 *      user/NAME      the role of its second URI, spiffe://berth/role/ROLE; without one: viewer
 *      node/ID        an agent's calls, for that node; a certificate without any name of berth's is
 *                     a node's by its DNS name
 *      server/NAME    what another replica passes on: its word (X-Berth-Actor, X-Berth-Role) says
 *                     for whom
 *
 * A node that was expelled is nobody: neither its certificates nor tokens from before count, until
 * a later join token let a new key in (core/admission.c).
 *
 * The table of tokens, and of those who were expelled, is a copy that the core's owner publishes
 * with every change (access_publish()); the io thread takes it up before it looks. A token that was
 * revoked is refused from the moment on at which the revocation is answered.
 *
 * Refusals are counted, logged without secrets and put into the events, each of them limited:
 * whoever reaches the port can make refusals.
 */
#ifndef BERTH_SERVER_ACCESS_H
#define BERTH_SERVER_ACCESS_H

#include "base/err.h"
#include "server/ops.h"

struct io;
struct server;
struct access;
struct access_table;
struct tls_identity;
struct http_request;
struct grpc_call;

#define PEER_HEADER "x-berth-peer" /* of a call that another server passes on: where it came from */

/* What a caller shows. Everything is borrowed; NULL: not there. */
struct credentials {
        const struct tls_identity *who;
        const char *authorization, *cookie; /* headers */
        const char *actor, *role;           /* X-Berth-Actor, X-Berth-Role */
        /* "10.0.0.1:4711"; of what a server passes on, that of its caller */
        const char *peer;
};
struct credentials access_of_http(const struct http_request *req);
struct credentials access_of_grpc(const struct grpc_call *call);

/* Where the token begins in the header Cookie, up to ';', ' ' or its end; NULL: it has none. */
const char *access_cookie(const char *cookie);

/* The token in them, in buf; "": none. */
const char *access_token_of(const struct credentials *c, char buf[static 256]);
#define TOKEN_COOKIE "berth_token=" /* where the dashboard's is */

struct caller {
        char actor[65];
        int role;         /* Pb__Role__E; unset: none (a server that speaks for nobody) */
        char node_id[65]; /* role node by a token: of this node only; "": of any */
        bool by_token;
};

/* The words of access_refusal_name() are the values of the metric's label. */
enum access_refusal {
        ACCESS_NO_CREDENTIALS, /* neither a token nor a certificate */
        ACCESS_UNKNOWN_TOKEN,
        ACCESS_REVOKED_TOKEN,
        ACCESS_EXPIRED_TOKEN,
        ACCESS_USED_TOKEN, /* a join token, the second time */
        ACCESS_WRONG_ROLE, /* known, and may not */
        ACCESS_WRONG_NODE, /* an agent that is not the node that it says */
        ACCESS_EXPELLED,   /* a node that an operator threw out */
        /* a certificate was asked for in a way that costs, and cannot be had */
        ACCESS_BAD_REQUEST,
        ACCESS_RATE_LIMITED, /* too many failures from one address; not told which */
        _ACCESS_REFUSAL_MAX
};
const char *access_refusal_name(enum access_refusal reason);
const char *access_role_name(int role); /* "operator"; "" for unset */

bool access_may(enum op_needs needs, int role);     /* Pb__Role__E, of somebody who is known */
const char *access_needs_name(enum op_needs needs); /* the least role that may: "operator" */

struct access *access_create(struct io *io);
void access_destroy(struct access *a); /* NULL is fine */

/* May this caller do this? ret_caller is set in any case. ERR_AUTH (who are you), ERR_DENIED (you
 * may not), ERR_LIMIT (too many failures), each with what to do next; counted and logged then. */
int access_check(struct access *a, const struct op *op, const struct credentials *c,
                 struct caller *ret_caller, struct err *err);
/* A call that goes on after it was let in (events, logs, exec, an agent's stream): it ends when its
 * token does, within a second of a revocation. */
void access_guard_http(struct access *a, const struct http_request *req,
                       const struct credentials *c);
void access_guard_grpc(struct access *a, const struct grpc_call *call, const struct credentials *c);
/* Who it is, for those who have passed. */
void access_caller(struct access *a, const struct credentials *c, struct caller *ret_caller);
/* Is it the agent of this node? The same errors; for Hello and whatever else names a node. */
int access_check_node(struct access *a, const struct credentials *c, const char *node_id,
                      struct err *err);
/* What it came with, in the server's words, for the core to judge: key and token. */
void access_fill_hello(struct access *a, const struct credentials *c, struct arena *memory,
                       Pb__Hello *hello);
/* The same by its certificate alone, whatever token it has: a token ends, and must not become a
 * certificate that goes on. key: what it wants a certificate for. */
int access_check_renewal(struct access *a, const struct credentials *c, const char *node_id,
                         const char *key, struct err *err);
/* Counts and tells a refusal that was found elsewhere. */
void access_refused(struct access *a, enum access_refusal reason, const char *actor,
                    const char *what, const char *peer);

/* What one caller may have of something that all share (streams, relays), so that nobody can take
 * all of it (A7). Where nobody is asked who they are there are no shares. */
size_t access_share(const struct server *s, size_t of);
/* ERR_LIMIT: this caller has all of its share. Returns negative. */
int access_share_used(const struct caller *who, const char *what, size_t share, struct err *err);

/* Too many of this address were refused just now: ERR_LIMIT, before anything is done for it. */
int access_check_address(struct access *a, const char *peer, struct err *err);
/* A join token was refused by the core: counts it by what the table says of it; err becomes
 * ERR_LIMIT when there were too many of that address. */
void access_join_refused(struct access *a, const char *hash, const char *node_id,
                         const struct credentials *c, struct err *err);

/* A certificate request was refused for what it is: charged to its address. err becomes ERR_LIMIT
 * when there were too many. */
void access_bad_request(struct access *a, const char *node_id, const struct credentials *c,
                        struct err *err);

/* ---- tokens ---- */

#define TOKEN_PREFIX "berth_"
#define JOIN_PREFIX "bjoin_"
#define TOKEN_TEXT_LEN 49 /* a prefix and 32 random bytes, in letters that go anywhere */

/* A new secret, and the hash that is kept of it. */
void token_make(const char *prefix, char ret_text[static TOKEN_TEXT_LEN + 1],
                char ret_hash[static 65]);
/* The hash of what somebody sent; a join token's CA hash (after the dot) is no part of it. */
void token_hash(const char *text, char ret_hash[static 65]);

/* The core's owner, after every change: the tokens as they are now. Any thread, one at a time. */
void access_publish(struct server *s, const struct core *core, uint64_t *version);
void access_table_free(struct access_table *t); /* NULL is fine */
/* Where the first admin's token lies: <data_dir>/ADMIN_TOKEN_FILE, mode 0600. */
#define ADMIN_TOKEN_FILE "admin.token"
/* No admin's token works: writes a new one there and gives its hash for INPUT_TOKEN_CREATE. */
int access_first_token(struct server *s, char ret_hash[static 65], struct err *err);

#endif
