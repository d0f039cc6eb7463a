/* cli/server.c: berth server: the control plane as a program. Options become struct server_options;
 * nothing is decided here. */
#include "server/server.h"
#include "base/clock.h"
#include "cli/verbs.h"
#include "model/config.h"
#include "model/powers.h"

#define UNSET (-1) /* neither given nor in the environment: the file or the profile decides */

struct server_flags {
        const char *config, *data, *http, *grpc, *store, *profile, *log_level, *log_format,
            *tls_cert, *tls_key, *tls_ca, *strangers, *auth, *ca, *cfssl, *cfssl_key,
            *cfssl_profile, *allow;
        int64_t cert_valid_ms;
        const char *advertise_http, *advertise_grpc;
        int64_t heartbeat_ms, silence_beats, grace_ms, launch_grace_ms, pass_ms, fresh_ms,
            healthy_ms, brake_percent, evict_per_second, lease_ms, lease_grace_ms, drift_percent;
        int64_t keep_events, max_nodes, max_workloads, request_timeout_ms, shutdown_ms;
        const char *strategy;
        int64_t preemptions;
        bool index_records, no_http;
};

static const struct server_flags defaults = {
        .heartbeat_ms = UNSET,
        .silence_beats = UNSET,
        .grace_ms = UNSET,
        .launch_grace_ms = UNSET,
        .pass_ms = UNSET,
        .fresh_ms = UNSET,
        .healthy_ms = UNSET,
        .brake_percent = UNSET,
        .evict_per_second = UNSET,
        .lease_ms = UNSET,
        .lease_grace_ms = UNSET,
        .drift_percent = UNSET,
        .preemptions = UNSET,
        .keep_events = UNSET,
        .max_nodes = UNSET,
        .max_workloads = UNSET,
        .request_timeout_ms = UNSET,
        .shutdown_ms = UNSET,
        .cert_valid_ms = UNSET,
};

#define T struct server_flags
static const struct opt rows[] = {
        OPT(T, OPT_TEXT, config, .name = "config", .arg = "FILE", .env = "BERTH_CONFIG",
            .completes = 'f',
            .help = "settings, rules and webhooks as YAML; flags and the environment go before it"),
        OPT(T, OPT_TEXT, data, .name = "data", .arg = "DIR", .env = "BERTH_DATA", .completes = 'f',
            .help = "data directory (./.berth)"),
        OPT(T, OPT_TEXT, http, .name = "http", .arg = "ADDR", .env = "BERTH_HTTP",
            .help = "HTTP address (127.0.0.1:8084)"),
        OPT(T, OPT_TEXT, grpc, .name = "grpc", .arg = "ADDR", .env = "BERTH_GRPC",
            .help = "gRPC address, for commands and agents (127.0.0.1:8085)"),
        OPT(T, OPT_TEXT, store, .name = "store", .arg = "URL", .env = "BERTH_STORE",
            .help = "sqlite:FILE, etcd://HOST:PORT,... or memory: (sqlite:DIR/berth.db)"),
        OPT(T, OPT_TEXT, advertise_http, .name = "advertise-http", .arg = "ADDR",
            .env = "BERTH_ADVERTISE_HTTP",
            .help = "where others reach its HTTP, if not where it listens"),
        OPT(T, OPT_TEXT, advertise_grpc, .name = "advertise-grpc", .arg = "ADDR",
            .env = "BERTH_ADVERTISE_GRPC",
            .help = "where others reach its gRPC, if not where it listens"),
        OPT(T, OPT_TEXT, profile, .name = "profile", .arg = "NAME", .env = "BERTH_PROFILE",
            .choices = "berth|persys", .help = "timing: berth (default), or persys: 60 s beats"),
        OPT(T, OPT_DURATION, heartbeat_ms, .name = "heartbeat", .arg = "DURATION",
            .env = "BERTH_HEARTBEAT", .help = "how often agents report (10s)"),
        OPT(T, OPT_INT, silence_beats, .name = "silence", .arg = "N", .env = "BERTH_SILENCE",
            .min = 1, .max = 1000, .help = "missed heartbeats that make a node NotReady (3)"),
        OPT(T, OPT_DURATION, grace_ms, .name = "grace", .arg = "DURATION", .env = "BERTH_GRACE",
            .help = "NotReady for this long moves its work elsewhere (60s)"),
        OPT(T, OPT_DURATION, launch_grace_ms, .name = "launch-grace", .arg = "DURATION",
            .env = "BERTH_LAUNCH_GRACE,SCHEDULER_MISSING_GRACE_PERIOD",
            .help = "how long a launched unit may be missing (15s)"),
        OPT(T, OPT_DURATION, pass_ms, .name = "pass", .arg = "DURATION",
            .env = "BERTH_PASS,SCHEDULER_RECONCILE_INTERVAL",
            .help = "interval of the periodic pass (5s)"),
        OPT(T, OPT_DURATION, fresh_ms, .name = "fresh", .arg = "DURATION", .env = "BERTH_FRESH",
            .help = "heartbeats older than this bar a node from new work (10m)"),
        OPT(T, OPT_DURATION, healthy_ms, .name = "healthy", .arg = "DURATION",
            .env = "BERTH_HEALTHY", .help = "running this long forgets earlier failures (5m)"),
        OPT(T, OPT_DURATION, lease_ms, .name = "lease", .arg = "DURATION", .env = "BERTH_LEASE",
            .help = "of agents, for exclusive workloads (default: heartbeat times silence)"),
        OPT(T, OPT_DURATION, lease_grace_ms, .name = "lease-grace", .arg = "DURATION",
            .env = "BERTH_LEASE_GRACE",
            .help =
                "in which an agent whose lease has run out stops what is exclusive (default 10s)"),
        OPT(T, OPT_INT, drift_percent, .name = "clock-drift", .arg = "PERCENT",
            .env = "BERTH_CLOCK_DRIFT", .min = 0, .max = 50,
            .help = "by which clocks may differ in speed (default 1)"),
        OPT(T, OPT_INT, brake_percent, .name = "brake", .arg = "PERCENT", .env = "BERTH_BRAKE",
            .min = 1, .max = 100, .help = "more silent nodes than this stop eviction (55)"),
        OPT(T, OPT_INT, evict_per_second, .name = "evict-rate", .arg = "N",
            .env = "BERTH_EVICT_RATE", .min = 0, .max = 1000000,
            .help = "units a second that leave lost nodes which are not a whole zone (20; 0: no "
                    "limit)"),
        OPT(T, OPT_TEXT, strangers, .name = "strangers", .arg = "RULE", .env = "BERTH_STRANGERS",
            .choices = "keep|adopt|remove",
            .help = "units that no record knows: keep (and offer), adopt or remove"),
        OPT(T, OPT_TEXT, strategy, .name = "strategy", .arg = "NAME", .env = "BERTH_STRATEGY",
            .choices = "spread|binpack",
            .help = "where workloads go that do not say: spread or binpack"),
        OPT(T, OPT_INT, preemptions, .name = "preemptions", .arg = "N", .env = "BERTH_PREEMPTIONS",
            .min = 0, .max = 1000000,
            .help = "units a minute that may make room for higher priorities (60)"),
        OPT(T, OPT_INT, keep_events, .name = "keep-events", .arg = "N", .env = "BERTH_KEEP_EVENTS",
            .help = "older events leave the log (1000000; 0: none); audit events are kept longer"),
        OPT(T, OPT_INT, max_nodes, .name = "max-nodes", .arg = "N", .env = "BERTH_MAX_NODES",
            .min = 1, .max = 1000000, .help = "limit (100000)"),
        OPT(T, OPT_INT, max_workloads, .name = "max-workloads", .arg = "N",
            .env = "BERTH_MAX_WORKLOADS", .min = 1, .max = 10000000, .help = "limit (2000000)"),
        OPT(T, OPT_DURATION, request_timeout_ms, .name = "request-timeout", .arg = "DURATION",
            .env = "BERTH_REQUEST_TIMEOUT",
            .help = "an unanswered call fails after this long (10s)"),
        OPT(T, OPT_DURATION, shutdown_ms, .name = "shutdown-timeout", .arg = "DURATION",
            .env = "BERTH_SHUTDOWN_TIMEOUT", .help = "how long calls may take after a stop (10s)"),
        OPT(T, OPT_FLAG, index_records, .name = "index-records", .env = "BERTH_INDEX_RECORDS",
            .help = "also write /assignments, /retries, ... for people"),
        OPT(T, OPT_FLAG, no_http, .name = "no-http", .help = "gRPC only"),
        OPT(T, OPT_TEXT, tls_cert, .name = "tls-cert", .arg = "FILE", .env = "BERTH_TLS_CERT",
            .completes = 'f', .help = "serve TLS with this certificate"),
        OPT(T, OPT_TEXT, tls_key, .name = "tls-key", .arg = "FILE", .env = "BERTH_TLS_KEY",
            .completes = 'f', .help = "and its key"),
        OPT(T, OPT_TEXT, tls_ca, .name = "tls-ca", .arg = "FILE", .env = "BERTH_TLS_CA",
            .completes = 'f', .help = "clients need a certificate of this CA"),
        OPT(T, OPT_TEXT, ca, .name = "ca", .arg = "DIR", .env = "BERTH_SERVER_CA", .completes = 'f',
            .help =
                "sign certificates of nodes (berth agent --join) with the CA in this directory"),
        OPT(T, OPT_TEXT, cfssl, .name = "cfssl", .arg = "URL", .env = "BERTH_CFSSL",
            .help = "have them signed by CFSSL's authenticated API instead, e.g. "
                    "http://ca.example:8888"),
        OPT(T, OPT_TEXT, cfssl_key, .name = "cfssl-key", .arg = "FILE", .env = "BERTH_CFSSL_KEY",
            .completes = 'f', .help = "the hex key of its auth_keys"),
        OPT(T, OPT_TEXT, cfssl_profile, .name = "cfssl-profile", .arg = "NAME",
            .env = "BERTH_CFSSL_PROFILE", .help = "its signing profile"),
        OPT(T, OPT_DURATION, cert_valid_ms, .name = "cert-valid", .arg = "DURATION",
            .env = "BERTH_CERT_VALID",
            .help = "how long certificates of nodes are valid (30d); agents renew them at half of "
                    "that"),
        OPT(T, OPT_TEXT, allow, .name = "allow", .arg = "WHAT", .env = "BERTH_ALLOW",
            .help = "what definitions may ask for (nothing): all, or words of privileged, "
                    "capabilities, host_network, host_paths, "
                    "root_processes; more exactly in the file: policy"),
        OPT(T, OPT_TEXT, auth, .name = "auth", .arg = "MODE", .env = "BERTH_AUTH",
            .choices = "token|none",
            .help = "token: calls need a token or a certificate (default); none: anybody may do "
                    "anything"),
        OPT(T, OPT_TEXT, log_level, .name = "log-level", .arg = "LEVEL", .env = "BERTH_LOG_LEVEL",
            .choices = "debug|info|warn|error", .help = "debug, info, warn or error"),
        OPT(T, OPT_TEXT, log_format, .name = "log-format", .arg = "FORMAT",
            .env = "BERTH_LOG_FORMAT", .choices = "text|json|logfmt",
            .help = "text (key=value) or json"),
};
#undef T

static void set_text(char **to, const char *value)
{
        if (value)
                *to = (char *)value;
}

static void set_ms(struct arena *arena, char **to, int64_t ms)
{
        if (ms != UNSET)
                *to = arena_printf(arena, "%lldms", (long long)ms);
}

static void set_i32(int32_t *to, int64_t value)
{
        if (value != UNSET)
                *to = (int32_t)value;
}

static int check(const struct cli *cli, struct arena *arena, const struct server_flags *f,
                 struct err *err)
{
        if (f->heartbeat_ms != UNSET && (f->heartbeat_ms < 100 || f->heartbeat_ms > 3600 * 1000))
                return usage_error(cli, err, "--heartbeat must be between 100ms and 1h");
        if (f->pass_ms != UNSET && f->pass_ms < 100)
                return usage_error(cli, err, "--pass must be at least 100ms");
        if (f->cert_valid_ms != UNSET &&
            (f->cert_valid_ms < 5000 || f->cert_valid_ms > 3650ll * 86400 * 1000))
                return usage_error(cli, err, "--cert-valid must be between 5s and 3650d");
        Pb__Policy *ignored;
        if (f->allow && policy_from_words(arena, f->allow, &ignored, err) < 0)
                return -ERR_INVALID;
        if (!f->tls_cert != !f->tls_key)
                return usage_error(cli, err, "TLS needs both --tls-cert and --tls-key");
        return 0;
}

/* What was given on the command line or in the environment goes before the file. */
static void overlay(const struct server_flags *f, struct arena *arena, Pb__ServerConfig *c)
{
        set_text(&c->data, f->data);
        set_text(&c->store, f->store);
        set_text(&c->http, f->no_http ? "none" : f->http);
        set_text(&c->grpc, f->grpc);
        set_text(&c->advertise_http, f->advertise_http);
        set_text(&c->advertise_grpc, f->advertise_grpc);
        set_text(&c->profile, f->profile);
        set_text(&c->log_level, f->log_level);
        set_text(&c->strangers, f->strangers);
        if (f->allow)
                (void)policy_from_words(arena, f->allow, &c->policy, NULL);
        if (f->strategy)
                c->placement = str_case_eq(f->strategy, "binpack") ? PB__STRATEGY__E__binpack
                                                                   : PB__STRATEGY__E__spread;
        if (f->preemptions != UNSET) {
                c->preemptions = arena_new(arena, Pb__IntValue);
                pb__int_value__init(c->preemptions);
                c->preemptions->value = f->preemptions;
        }
        if (f->evict_per_second != UNSET) {
                c->evict_per_second = arena_new(arena, Pb__IntValue);
                pb__int_value__init(c->evict_per_second);
                c->evict_per_second->value = f->evict_per_second;
        }
        set_text(&c->log_format, f->log_format);
        set_ms(arena, &c->heartbeat, f->heartbeat_ms);
        set_i32(&c->silence, f->silence_beats);
        set_ms(arena, &c->grace, f->grace_ms);
        set_ms(arena, &c->launch_grace, f->launch_grace_ms);
        set_ms(arena, &c->pass, f->pass_ms);
        set_ms(arena, &c->fresh, f->fresh_ms);
        set_ms(arena, &c->healthy, f->healthy_ms);
        set_i32(&c->brake_percent, f->brake_percent);
        set_ms(arena, &c->lease, f->lease_ms);
        set_ms(arena, &c->lease_grace, f->lease_grace_ms);
        if (f->drift_percent != UNSET) {
                c->clock_drift_percent = arena_new(arena, Pb__IntValue);
                pb__int_value__init(c->clock_drift_percent);
                c->clock_drift_percent->value = f->drift_percent;
        }
        set_i32(&c->max_nodes, f->max_nodes);
        set_i32(&c->max_workloads, f->max_workloads);
        set_ms(arena, &c->request_timeout, f->request_timeout_ms);
        set_ms(arena, &c->shutdown_timeout, f->shutdown_ms);
        c->index_records |= f->index_records;
        if (f->keep_events != UNSET) {
                c->keep_events = arena_new(arena, Pb__IntValue);
                pb__int_value__init(c->keep_events);
                c->keep_events->value = f->keep_events;
        }
        if (f->tls_cert || f->tls_key || f->tls_ca) {
                if (!c->tls) {
                        c->tls = arena_new(arena, Pb__Tls);
                        pb__tls__init(c->tls);
                }
                set_text(&c->tls->cert, f->tls_cert);
                set_text(&c->tls->key, f->tls_key);
                set_text(&c->tls->ca, f->tls_ca);
        }
        set_text(&c->auth, f->auth);
        if (f->ca || f->cfssl || f->cfssl_key || f->cfssl_profile || f->cert_valid_ms != UNSET) {
                if (!c->signing) {
                        c->signing = arena_new(arena, Pb__Signing);
                        pb__signing__init(c->signing);
                }
                set_text(&c->signing->ca, f->ca);
                set_text(&c->signing->cfssl, f->cfssl);
                set_text(&c->signing->cfssl_key, f->cfssl_key);
                set_text(&c->signing->cfssl_profile, f->cfssl_profile);
                set_ms(arena, &c->signing->valid, f->cert_valid_ms);
        }
        if (str_case_eq(c->profile, "persys")) { /* what neither says */
                c->heartbeat = str_empty(c->heartbeat) ? "60s" : c->heartbeat;
                c->silence = c->silence ? c->silence : 3;
                c->fresh = str_empty(c->fresh) ? "10m" : c->fresh;
        }
}

/* The file, if there is one, and the flags over it. Also what SIGHUP calls. */
static int read_config(void *ctx, struct arena *arena, Pb__ServerConfig **ret, struct err *err)
{
        const struct server_flags *f = ctx;
        Pb__ServerConfig *c = arena_new(arena, Pb__ServerConfig);
        pb__server_config__init(c);
        int r = f->config ? config_load(f->config, arena, &c, NULL, NULL, err) : 0;
        if (r < 0)
                return r;
        overlay(f, arena, c);
        *ret = c;
        return 0;
}

static const char *text_or(const char *text, const char *otherwise)
{
        return str_empty(text) ? otherwise : text;
}

static void fill(const Pb__ServerConfig *c, struct server_options *o)
{
        server_options_default(o);
        core_options_from(c, &o->core);
        o->config = c;
        o->data_dir = text_or(c->data, "./.berth");
        o->store_url = text_or(c->store, NULL);
        o->http_address = str_eq(c->http, "none") ? NULL : text_or(c->http, "127.0.0.1:8084");
        o->grpc_address = text_or(c->grpc, "127.0.0.1:8085");
        o->advertise_http = text_or(c->advertise_http, NULL);
        o->advertise_grpc = text_or(c->advertise_grpc, NULL);
        o->core.version = BERTH_VERSION;
        retention_from(c, o->retention);
        o->request_timeout_ms = config_duration_ms(c->request_timeout, o->request_timeout_ms);
        o->shutdown_ms = config_duration_ms(c->shutdown_timeout, o->shutdown_ms);
        o->tls_cert = c->tls ? text_or(c->tls->cert, NULL) : NULL;
        o->tls_key = c->tls ? text_or(c->tls->key, NULL) : NULL;
        o->tls_ca = c->tls ? text_or(c->tls->ca, NULL) : NULL;
        o->auth = !str_case_eq(c->auth, "none");
        if (c->signing) {
                o->ca_dir = text_or(c->signing->ca, NULL);
                o->cfssl_url = text_or(c->signing->cfssl, NULL);
                o->cfssl_key_file = text_or(c->signing->cfssl_key, NULL);
                o->cfssl_profile = text_or(c->signing->cfssl_profile, NULL);
                o->cert_valid_ms = config_duration_ms(c->signing->valid, o->cert_valid_ms);
        }
        o->set_log = true;
        o->log_level = LOG_INFO;
        if (!str_empty(c->log_level))
                (void)log_level_parse(c->log_level, &o->log_level);
        o->log_format = str_case_eq(c->log_format, "json") ? LOG_FORMAT_JSON : LOG_FORMAT_LOGFMT;
}

static int server_verb(struct cli *cli, const void *values, const struct args *args,
                       struct err *err)
{
        const struct server_flags *f = values;
        struct server_options options;
        if (args->n)
                return usage_error(cli, err, "unexpected argument '%s'", args->at[0]);
        int r = check(cli, &cli->arena, f, err);
        if (r < 0)
                return r;
        Pb__ServerConfig *config = NULL;
        if ((r = read_config((void *)f, &cli->arena, &config, err)) < 0)
                return r;
        fill(config, &options);
        options.reload = f->config ? read_config : NULL;
        options.reload_ctx = (void *)f;
        return server_run(&options, err);
}

const struct verb verb_server = {
        .name = "server",
        .summary = "the control plane",
        .text = "Serves HTTP and gRPC until SIGTERM or Ctrl-C. Where it listens is written to "
                "DIR/server.address. With --config, SIGHUP "
                "reads the file again; a file "
                "with mistakes changes nothing.",
        .examples = "  berth server --data /var/lib/berth --http 0.0.0.0:8084 --grpc 0.0.0.0:8085\n"
                    "  berth server --config /etc/berth/berth.yaml",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .defaults = &defaults,
        .values_size = sizeof(struct server_flags),
        .run = server_verb,
        .group = VERBS_PROGRAMS,
        .offline = true,
};
