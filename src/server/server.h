/* server/server.h: the control plane as one object: core, store and network wired together. It
 * contains no decisions (those are in core/).
 *
 * Threads, by name:
 *   ring    owns the core: takes inputs, steps, cuts batches
 *   store   opens the store, loads it, commits batches one after the other, prunes when idle
 *   io      libevent: HTTP and gRPC, decoding and encoding, replies, agents' streams, live events
 *   reader  reads stored events for lists and for subscribers that are behind
 * They talk through bounded queues of owned messages; nothing is shared but counters.
 *
 *      struct server_options opt;
 *      server_options_default(&opt);
 *      opt.data_dir = ".berth";
 *      server_run(&opt, &err);                  the verb `berth server`: until SIGTERM or SIGINT
 *
 *      server_start(&opt, &server, &err);       in-process (tests, dev)
 *      printf("%s\n", server_http_address(server));
 *      server_stop(server);                     asks; returns at once
 *      server_wait(server, &err);               until all threads have ended
 *      server_free(server);
 */
#ifndef BERTH_SERVER_SERVER_H
#define BERTH_SERVER_SERVER_H

#include "base/arena.h"
#include "base/err.h"
#include "base/log.h"
#include "core/core.h"
#include "store/store.h"

struct server;

/* Strings are borrowed until server_start() returns. */
struct server_options {
        /* see store/store.h; NULL: "sqlite:<data_dir>/berth.db" */
        const char *store_url;
        /* made if missing; NULL: nothing is written there (then store_url must be set) */
        const char *data_dir;
        /* "127.0.0.1:8084"; port 0: the kernel chooses; NULL: no HTTP */
        const char *http_address;
        const char *grpc_address; /* "127.0.0.1:8085"; the same */
        /* where other servers and clients reach this one; NULL: where it listens */
        const char *advertise_http, *advertise_grpc;
        struct core_options core;
        /* Rules, webhooks, the default quota and what else the core takes from a configuration
         * (proto/config.proto), checked; NULL: none. Its timings are expected in `core` as well. */
        const Pb__ServerConfig *config;
        /* SIGHUP: the configuration anew, into the arena; < 0: it is wrong, and the old one stays.
         * NULL: there is no file. */
        int (*reload)(void *ctx, struct arena *arena, Pb__ServerConfig **ret, struct err *err);
        void *reload_ctx;

        /* PEM files; NULL: in the clear. Changed files are taken up within seconds. */
        const char *tls_cert, *tls_key;
        const char *tls_ca; /* PEM; clients must show a certificate of this CA */

        /* Who signs certificates of nodes (join.h): a directory with ca.pem and ca-key.pem, or
         * CFSSL's authenticated API; both NULL: nobody. */
        const char *ca_dir;
        const char *cfssl_url, *cfssl_key_file,
            /* "http://host:8888"; the hex key of its auth_keys, in a file; "": its default */
            *cfssl_profile;
        /* 30 days: how long the certificates of nodes are valid (CFSSL: its profile says) */
        int64_t cert_valid_ms;

        /* calls need a token or a certificate with the role for it (access.h); false: everybody may
         * do everything */
        bool auth;

        bool set_log; /* server_run() calls log_setup() with the next two */
        enum log_level log_level;
        enum log_format log_format;

        /* what leaves the log and what is kept apart, in the background: 1,000,000 and 100,000
         * events */
        struct store_keep retention[EVENT_CLASSES];
        /* 10,000: a call that the ring has not answered by then fails with a retryable error */
        int64_t request_timeout_ms;
        int64_t shutdown_ms; /* 10,000: how long calls under way may take after a stop */
        /* 2,048 changes (and as many reads) waiting for the ring; beyond: 429 with Retry-After */
        uint32_t max_inputs;
        uint32_t max_calls;            /* 20,000 calls under way */
        uint32_t max_agents;           /* 20,000 agent streams */
        uint32_t max_subscribers;      /* 2,000 event streams */
        uint32_t max_relays_per_agent; /* 16 logs and exec streams through one agent */
        /* 20 calls of one address at once are told why they are refused; beyond: 429, two more a
         * second */
        uint32_t max_refusals;
        uint32_t max_connections; /* 20,000 HTTP connections */
        size_t max_body_bytes;    /* 1 MiB */
        /* 16 MiB waiting for one agent; beyond: its stream is closed */
        size_t agent_queue_bytes;
        /* 4 MiB waiting for one reader of logs or exec; beyond: that relay is ended */
        size_t relay_queue_bytes;
};
void server_options_default(struct server_options *opt);
/* What a configuration says, over the defaults. */
void retention_from(const Pb__ServerConfig *config, struct store_keep ret[EVENT_CLASSES]);

/* Opens and loads the store, starts the threads, listens. 0 when it serves. On failure nothing is
 * left running. -ERR_CONFLICT: the store is in use by another process, or was written by a newer
 * berth; -ERR_UNAVAILABLE: an address is in use. */
int server_start(const struct server_options *opt, struct server **ret_server, struct err *err);
/* Asks for an orderly end: stops accepting, drains, commits what is decided, closes the store. Any
 * thread; may be called often. */
void server_stop(struct server *s);
/* Until everything has ended. 0: orderly; < 0: why it ended by itself (lost head, store gone at
 * shutdown). */
int server_wait(struct server *s, struct err *err);
void server_free(struct server *s); /* stops and waits if that has not been done */

/* Another configuration from now on, as far as that goes without a restart; what needs one is
 * logged. Any thread. */
void server_reconfigure(struct server *s, const Pb__ServerConfig *config);

/* Where it really listens ("127.0.0.1:43017"); "" if it does not. Valid while the server is. */
const char *server_http_address(const struct server *s);
const char *server_grpc_address(const struct server *s);

/* server_start, then wait for SIGTERM or SIGINT (a second one ends at once), then stop and wait.
 * For `berth server`. */
int server_run(const struct server_options *opt, struct err *err);

/* <data_dir>/server.address holds the lines http=... and grpc=... while the server runs. */
#define SERVER_ADDRESS_FILE "server.address"

#endif
