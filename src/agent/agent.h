/* agent/agent.h: `berth agent`: one node, or thousands of mock ones, on one event loop.
 *
 * agent_run() dials the server, keeps the stream up (jittered reconnects), carries out what the
 * engine orders and keeps its records below data_dir:
 *
 *      <data_dir>/lock                      one agent per directory
 *      <data_dir>/agent.pb                  Pb__AgentRecord: node id, cluster id, cursor of the
 *                                           last plan
 *      <data_dir>/tls/                      the node's key and certificate, if it joined by a token
 *                                           (agent_join.c)
 *      <data_dir>/units/<workload_id>/      record.pb (Pb__UnitRecord) and the runtime's own files
 *
 * It returns when SIGTERM or SIGINT came: units run on and are adopted by the next agent, unless
 * stop_on_exit. While it runs the calling thread belongs to it. With nodes > 1 (mock only) nothing
 * is written to disk.
 */
#ifndef BERTH_AGENT_AGENT_H
#define BERTH_AGENT_AGENT_H

#include "agent/engine.h"
#include "agent/runtimes/mock.h"
#include "base/err.h"

struct agent_options {
        const char *server;   /* "host:port" of the server's gRPC door */
        const char *data_dir; /* not used by mock agents when NULL */
        /* NULL: the one on record, else the host's name and a few letters of a new ULID. With
         * nodes > 1: the prefix ("mock") */
        const char *node_id;
        const char *endpoint; /* shown as agent_endpoint; NULL: none */
        /* "host:port": be called instead of dialling (agent/push.h); NULL: keep a stream to the
         * server */
        const char *listen;
        /* listen: also where strangers reach it and no certificate is asked for; said in the log
         * every hour */
        bool insecure;
        const struct engine_label *labels;
        size_t n_labels;
        int64_t cpu, memory_mb, disk_gb; /* 0: detected (cpu in thousandths of a core) */
        /* "process" (default, also "none"), "podman" or "docker" (containers too, or it does
         * not start), "auto", "mock", "cluster" */
        const char *runtime;
        /* runtime "cluster": "host:port" of the gRPC door of the cluster that this node is
         * (runtimes/cluster.h) */
        const char *cluster;
        /* the token that the cluster knows us by; NULL: a certificate, or nothing */
        const char *cluster_token_file;
        /* TLS to it */
        const char *cluster_tls_ca_file, *cluster_tls_cert_file, *cluster_tls_key_file,
            *cluster_tls_server_name;
        /* users for units of an agent that is root, "first-last", or "none"; NULL: none */
        const char *unit_users;
        /* of the container engine; NULL: where it usually is */
        const char *engine_socket;
        /* when the agent starts podman's service; NULL: podman's own */
        const char *podman_root, *podman_runroot;
        /* mock: how many agents; 0 = 1; at most AGENT_MAX_NODES */
        uint32_t nodes;
        /* mock: how many connections all nodes share; 0: each has its own */
        uint32_t connections;
        const struct mock_options *mock; /* NULL: defaults with seed */
        uint64_t seed;                   /* mock */
        /* on SIGTERM stop all units within their grace; the next start brings them back */
        bool stop_on_exit;
        /* TLS to the server; all NULL: clear text */
        const char *tls_ca_file, *tls_cert_file, *tls_key_file;
        /* a join token, or @FILE with one: get a certificate first, unless there is a valid one;
         * NULL: no */
        const char *join;
        /* says who the agent is where it has no certificate; NULL: nothing does */
        const char *token;
        const char *tls_server_name; /* checked against the certificate; NULL: the host of server */
        const char *program;         /* for the process runtime; NULL: /proc/self/exe */
        /* >= 0: one byte is written when the first Welcome has come (berth dev, tests); 0 counts as
         * not set */
        int ready_fd;
};
#define AGENT_MAX_NODES 20000

/* 0 after an orderly end. Fails when it cannot begin: data_dir in use or not writable, unknown
 * runtime, bad TLS files. */
int agent_run(const struct agent_options *opt, struct err *err);

#endif
