/* cli/agent.c: berth agent: one node (or many mock ones) as a program. */
#include "agent/agent.h"
#include "agent/runtimes/unit_user.h"
#include "base/log.h"
#include "cli/client.h"
#include "cli/verbs.h"
#include <string.h>

struct agent_flags {
        const char *data, *node_id, *endpoint, *listen, *runtime, *unit_users, *engine_socket,
            *podman_root, *podman_runroot, *log_level, *log_format, *tls_server_name, *cluster,
            *cluster_tls_ca, *cluster_tls_cert, *cluster_tls_key, *cluster_tls_server_name,
            *cluster_token_file, *join;
        struct text_list labels;
        int64_t cpu_milli, memory_bytes, disk_bytes, nodes, connections, seed, ready_fd;
        int64_t start_fail, crash, start_max_ms, job_max_ms;
        bool stop_on_exit, push, insecure;
};

static const struct agent_flags defaults = { .data = "./.berth/agent",
                                             .runtime = "auto",
                                             .unit_users = UNIT_USERS_DEFAULT,
                                             .nodes = 1,
                                             .start_max_ms = -1,
                                             .job_max_ms = -1 };

#define T struct agent_flags
static const struct opt rows[] = {
        OPT(T, OPT_TEXT, data, .name = "data", .arg = "DIR", .env = "BERTH_AGENT_DATA",
            .completes = 'f', .help = "data directory (./.berth/agent)"),
        OPT(T, OPT_TEXT, node_id, .name = "node-id", .arg = "ID", .env = "BERTH_NODE_ID",
            .help = "name of the node (the host's name and some letters); mock: prefix"),
        OPT(T, OPT_TEXT, join, .name = "join", .arg = "TOKEN|@FILE", .env = "BERTH_JOIN",
            .help = "get a certificate for this node by a join token (berth token create --join); "
                    "renewed by itself from then on"),
        OPT(T, OPT_LIST, labels, .letter = 'l', .name = "label", .arg = "K=V",
            .help = "label of the node; may be repeated"),
        OPT(T, OPT_MILLI, cpu_milli, .name = "cpu", .arg = "CORES", .env = "BERTH_CPU",
            .help = "cores to offer (all)"),
        OPT(T, OPT_BYTES, memory_bytes, .name = "memory", .arg = "SIZE", .env = "BERTH_MEMORY",
            .help = "memory to offer (all)"),
        OPT(T, OPT_BYTES, disk_bytes, .name = "disk", .arg = "SIZE", .env = "BERTH_DISK",
            .help = "disk to offer (all that is free)"),
        OPT(T, OPT_TEXT, endpoint, .name = "endpoint", .arg = "ADDR", .env = "BERTH_ENDPOINT",
            .help = "shown as the node's endpoint"),
        OPT(T, OPT_FLAG, push, .name = "push",
            .help = "be called by the server (persys.agent.v1) instead of keeping a stream to it"),
        OPT(T, OPT_TEXT, listen, .name = "listen", .arg = "ADDR", .env = "BERTH_AGENT_LISTEN",
            .help = "with --push: where to be called (0.0.0.0:50051 with --tls-ca and --tls-cert, "
                    "else 127.0.0.1:50051)"),
        OPT(T, OPT_FLAG, insecure, .name = "insecure",
            .help = "with --push: be called from everywhere by everybody, without certificates: "
                    "whoever reaches it runs commands here"),
        OPT(T, OPT_TEXT, runtime, .name = "runtime", .arg = "NAME", .env = "BERTH_RUNTIME",
            .choices = "auto|process|none|podman|docker|cluster|mock",
            .help = "auto (default): processes, and containers if podman or Docker works here; "
                    "process or none: no containers; podman, "
                    "docker: this one, or no start; cluster: another berth cluster as a whole; "
                    "mock: runs nothing"),
        OPT(T, OPT_TEXT, cluster, .name = "cluster", .arg = "ADDR", .env = "BERTH_CLUSTER",
            .help = "with --runtime cluster: the gRPC address of the cluster that this node stands "
                    "for"),
        OPT(T, OPT_TEXT, cluster_token_file, .name = "cluster-token-file", .arg = "FILE",
            .env = "BERTH_CLUSTER_TOKEN_FILE", .completes = 'f',
            .help = "a token of that cluster, of the role operator"),
        OPT(T, OPT_TEXT, cluster_tls_ca, .name = "cluster-tls-ca", .arg = "FILE",
            .env = "BERTH_CLUSTER_TLS_CA", .completes = 'f',
            .help = "TLS to that cluster: whose certificates count"),
        OPT(T, OPT_TEXT, cluster_tls_cert, .name = "cluster-tls-cert", .arg = "FILE",
            .env = "BERTH_CLUSTER_TLS_CERT", .completes = 'f',
            .help = "and the certificate to show"),
        OPT(T, OPT_TEXT, cluster_tls_key, .name = "cluster-tls-key", .arg = "FILE",
            .env = "BERTH_CLUSTER_TLS_KEY", .completes = 'f', .help = "and its key"),
        OPT(T, OPT_TEXT, cluster_tls_server_name, .name = "cluster-tls-server-name", .arg = "NAME",
            .env = "BERTH_CLUSTER_TLS_SERVER_NAME",
            .help = "name that the cluster's certificate must carry"),
        OPT(T, OPT_TEXT, unit_users, .name = "unit-users", .arg = "FIRST-LAST",
            .env = "BERTH_UNIT_USERS",
            .help = "of an agent that runs as root: numbers of users, one for each process unit "
                    "(" UNIT_USERS_DEFAULT
                    "); none: units run as root. Agents on one machine need ranges of their own"),
        OPT(T, OPT_TEXT, engine_socket, .name = "podman-socket", .arg = "PATH",
            .env = "BERTH_PODMAN_SOCKET", .completes = 'f',
            .help = "socket of podman (or Docker); without it the usual one, or a service of the "
                    "agent's own"),
        OPT(T, OPT_TEXT, podman_root, .name = "podman-root", .arg = "DIR",
            .env = "BERTH_PODMAN_ROOT", .completes = 'f',
            .help = "where a podman of the agent's own keeps images and containers (podman's usual "
                    "place)"),
        OPT(T, OPT_TEXT, podman_runroot, .name = "podman-runroot", .arg = "DIR",
            .env = "BERTH_PODMAN_RUNROOT", .completes = 'f', .help = "and its state of this boot"),
        OPT(T, OPT_FLAG, stop_on_exit, .name = "stop-on-exit",
            .help = "stop all units at the end instead of leaving them to the next agent"),
        OPT(T, OPT_INT, nodes, .name = "nodes", .arg = "N", .min = 1, .max = AGENT_MAX_NODES,
            .help = "mock: this many nodes in one process (1)"),
        OPT(T, OPT_INT, connections, .name = "connections", .arg = "N", .max = AGENT_MAX_NODES,
            .help = "mock: all nodes share so many connections to the server (each its own)"),
        OPT(T, OPT_INT, seed, .name = "seed", .arg = "N",
            .help = "mock: what goes wrong, and when"),
        OPT(T, OPT_INT, start_fail, .name = "start-fail", .arg = "PPM", .max = 1000000,
            .help = "mock: starts that fail, per million (0)"),
        OPT(T, OPT_INT, crash, .name = "crash", .arg = "PPM", .max = 1000000,
            .help = "mock: units that crash, per million (0)"),
        OPT(T, OPT_DURATION, start_max_ms, .name = "start-max", .arg = "DURATION",
            .help = "mock: the longest start (200ms)"),
        OPT(T, OPT_DURATION, job_max_ms, .name = "job-max", .arg = "DURATION",
            .help = "mock: the longest job (5s)"),
        OPT(T, OPT_TEXT, tls_server_name, .name = "tls-server-name", .arg = "NAME",
            .env = "BERTH_TLS_SERVER_NAME",
            .help = "name that the server's certificate must carry"),
        OPT(T, OPT_TEXT, log_level, .name = "log-level", .arg = "LEVEL", .env = "BERTH_LOG_LEVEL",
            .choices = "debug|info|warn|error", .help = "debug, info, warn or error"),
        OPT(T, OPT_TEXT, log_format, .name = "log-format", .arg = "FORMAT",
            .env = "BERTH_LOG_FORMAT", .choices = "text|json|logfmt",
            .help = "text (key=value) or json"),
        /* hidden: for whoever starts us */
        OPT(T, OPT_INT, ready_fd, .name = "ready-fd", .max = 1000000),
};
#undef T

static int fill_labels(const struct cli *cli, struct arena *arena, const struct text_list *list,
                       struct agent_options *o, struct err *err)
{
        struct engine_label *labels = arena_new_n(arena, struct engine_label, list->n + 1);
        for (size_t i = 0; i < list->n; i++) {
                const char *equals = strchr(list->at[i], '=');
                if (!equals || equals == list->at[i])
                        return usage_error(cli, err, "bad value '%s' for --label: expected K=V",
                                           list->at[i]);
                labels[i] =
                    (struct engine_label){ .key = arena_strndup(arena, list->at[i],
                                                                (size_t)(equals - list->at[i])),
                                           .value = equals + 1 };
        }
        o->labels = labels;
        o->n_labels = list->n;
        return 0;
}

static int agent_verb(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        const struct agent_flags *f = values;
        struct mock_options mock;
        struct agent_options o = { .data_dir = f->data,
                                   .node_id = f->node_id,
                                   .endpoint = f->endpoint,
                                   .runtime = f->runtime,
                                   .join = str_empty(f->join) ? NULL : f->join,
                                   .stop_on_exit = f->stop_on_exit,
                                   .engine_socket = f->engine_socket,
                                   .unit_users = f->unit_users,
                                   .cluster = f->cluster,
                                   .cluster_token_file = f->cluster_token_file,
                                   .cluster_tls_ca_file = f->cluster_tls_ca,
                                   .cluster_tls_cert_file = f->cluster_tls_cert,
                                   .cluster_tls_key_file = f->cluster_tls_key,
                                   .cluster_tls_server_name = f->cluster_tls_server_name,
                                   .podman_root = f->podman_root,
                                   .podman_runroot = f->podman_runroot };
        enum log_level level = LOG_INFO;

        if (args->n)
                return usage_error(cli, err, "unexpected argument '%s'", args->at[0]);
        bool is_mock = str_case_eq(f->runtime, "mock");
        if (f->nodes > 1 && !is_mock)
                return usage_error(cli, err,
                                   "--nodes is for --runtime mock; one process is one real node");
        bool is_cluster = str_case_eq(f->runtime, "cluster");
        if (is_cluster && !f->cluster)
                return usage_error(
                    cli, err, "--runtime cluster needs the cluster's address: --cluster host:port");
        if (f->cluster && !is_cluster)
                return usage_error(cli, err, "--cluster is for --runtime cluster");
        if (f->listen && !f->push)
                return usage_error(cli, err,
                                   "--listen is for --push; other agents dial the server");
        if (f->insecure && !f->push)
                return usage_error(cli, err,
                                   "--insecure is for --push; other agents do not listen");
        bool mutual = cli->common.tls_ca && cli->common.tls_cert;
        if (f->push)
                o.listen = f->listen               ? f->listen
                           : mutual || f->insecure ? "0.0.0.0:50051"
                                                   : "127.0.0.1:50051";
        o.insecure = f->insecure;
        int r = fill_labels(cli, &cli->arena, &f->labels, &o, err);
        if (r < 0)
                return r;
        o.server = client_address_of_agent(cli);
        o.cpu = f->cpu_milli;
        o.memory_mb = f->memory_bytes >> 20;
        o.disk_gb = f->disk_bytes >> 30;
        o.nodes = (uint32_t)f->nodes;
        o.connections = (uint32_t)f->connections;
        o.seed = (uint64_t)f->seed;
        o.ready_fd = (int)f->ready_fd;
        o.tls_ca_file = cli->common.tls_ca;
        o.tls_cert_file = cli->common.tls_cert;
        o.tls_key_file = cli->common.tls_key;
        o.tls_server_name = f->tls_server_name;
        if ((r = client_token(cli, &o.token, err)) < 0)
                return r;
        mock_options_default(&mock);
        mock.seed = o.seed;
        mock.start_fail_per_million = (uint32_t)f->start_fail;
        mock.crash_per_million = (uint32_t)f->crash;
        if (f->start_max_ms >= 0) {
                mock.start_max_ms = f->start_max_ms;
                mock.start_min_ms =
                    mock.start_min_ms < f->start_max_ms ? mock.start_min_ms : f->start_max_ms;
        }
        if (f->job_max_ms >= 0) {
                mock.job_max_ms = f->job_max_ms;
                mock.job_min_ms = mock.job_min_ms < f->job_max_ms ? mock.job_min_ms : f->job_max_ms;
        }
        o.mock = is_mock ? &mock : NULL;
        if (f->log_level)
                (void)log_level_parse(f->log_level, &level);
        log_setup(level, str_case_eq(f->log_format, "json") ? LOG_FORMAT_JSON : LOG_FORMAT_LOGFMT,
                  2);
        return agent_run(&o, err);
}

const struct verb verb_agent = {
        .name = "agent",
        .summary = "a node: runs what the server gives it",
        .text = "Dials the server and keeps trying. Units outlive the agent: the next one on the "
                "same data directory adopts them.\n"
                "With --push the agent registers and is called (persys.agent.v1); a container "
                "whose image is \"process\" is run as a plain "
                "process.",
        .examples =
            "  berth agent --server berth.example:8085 --data /var/lib/berth-agent --label zone=a\n"
            "  berth agent --server berth.example:8085 --data /var/lib/berth-agent --node-id n7 "
            "--join @n7.join\n"
            "  berth agent --runtime mock --nodes 1000\n"
            "  berth agent --push --listen 10.0.0.7:50051 --server berth.example:8085\n"
            "  berth agent --server berth.example:8085 --runtime cluster --cluster "
            "west.example:8085 --node-id west",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .defaults = &defaults,
        .values_size = sizeof(struct agent_flags),
        .run = agent_verb,
        .group = VERBS_PROGRAMS,
};
