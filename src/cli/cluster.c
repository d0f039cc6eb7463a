/* cli/cluster.c: berth cluster: the cluster in a few lines. */
#include "base/clock.h"
#include "cli/client.h"
#include "cli/facts.h"
#include "cli/kinds.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include <inttypes.h>

struct cluster_options {
        struct output_options output;
};

static const struct opt rows[] = { OUTPUT_ROWS(struct cluster_options, output) };

static const char *role_words(const Pb__ClusterInfo *c)
{
        if (str_eq(c->role, "leader"))
                return "leader";
        if (str_empty(c->leader))
                return fmt("follower; nobody leads, the last one was %s",
                           str_empty(c->last_leader) ? "never heard of" : c->last_leader);
        return fmt("follower of %s, %" PRId64 " events behind", c->leader, c->lag_events);
}

/* Of the server; and what is wrong with the cluster although its server is well. */
static const char *status_words(const Pb__ClusterInfo *c)
{
        int32_t lost = c->nodes - c->nodes_ready;
        return lost > 0 ? fmt("%s; %d of %d nodes are lost",
                              str_eq(c->status, "ok") ? "attention" : c->status, lost, c->nodes)
                        : c->status;
}

static void add_workloads(struct str *out, const Pb__ClusterInfo *c)
{
        _cleanup_(str_finip) struct str s = STR_INIT;
        str_addf(&s, "%" PRId64 ": %" PRId64 " running", c->workloads, c->workloads_running);
        if (c->workloads_unknown)
                str_addf(&s, ", %" PRId64 " unknown (their nodes are lost)", c->workloads_unknown);
        str_addf(&s, ", %" PRId64 " pending, %" PRId64 " failed", c->workloads_pending,
                 c->workloads_failed);
        fact(out, "Workloads", str_c(&s));
}

static void add_brake(struct str *out, const Pb__ClusterInfo *c)
{
        const Pb__Brake *b = c->brake;
        if (!b || str_empty(b->state))
                return;
        _cleanup_(str_finip) struct str s = STR_INIT;
        str_addf(&s, "%s: %u of %u nodes are silent (held beyond %u %%)", b->state, b->silent,
                 b->nodes, b->limit_percent);
        if (b->zones)
                str_addf(&s, ", in %u of %u zones", b->zones_hit, b->zones);
        if (!str_empty(b->zone))
                str_addf(&s, "; of zone %s %u of %u", b->zone, b->zone_silent, b->zone_nodes);
        if (str_eq(b->state, "held"))
                str_addf(&s, "; units of %u nodes stay until some return", b->held_nodes);
        else
                str_addf(&s, "; %u units are left, at most %u a second", b->paced_units,
                         b->units_per_second);
        str_adds(&s, " (berth evict --now moves them at once)");
        fact(out, "Eviction", str_c(&s));
}

static int cluster_run(struct cli *cli, const void *values, const struct args *args,
                       struct err *err)
{
        const struct cluster_options *o = values;
        _cleanup_(str_finip) struct str out = STR_INIT;
        Pb__Empty empty = PB__EMPTY__INIT;
        char age[32];

        if (args->n > 1 || (args->n == 1 && !str_eq(args->at[0], "info")))
                return usage_error(cli, err, "unexpected argument '%s'", args->at[0]);
        Pb__ClusterInfo *c =
            client_call(cli, &cli->arena, "GetCluster", &empty, &pb__cluster_info__descriptor, err);
        if (!c)
                return -(int)err->code;
        enum output_format format = output_format(&o->output);
        if (format >= OUTPUT_JSON) {
                output_object(cli, format, "cluster", c->cluster_id, &c->base);
                return 0;
        }
        fact(&out, "Cluster", c->cluster_id);
        fact(&out, "Status", status_words(c));
        fact(&out, "Server",
             fmt("berth %s at %s, up %s", c->version, client_address(cli, NULL),
                 age_words(age, sizeof(age), clock_wall_ms(), c->started_at)));
        fact(&out, "Mode", c->mode);
        if (c->n_replicas || !str_empty(c->leader) || !str_empty(c->last_leader))
                fact(&out, "Role", role_words(c));
        for (size_t i = 0; i < c->n_replicas; i++)
                fact(&out, i == 0 ? "Servers" : "",
                     fmt("%s%s, berth %s on %s", c->replicas[i]->name,
                         c->replicas[i]->leads ? " (leads)" : "", c->replicas[i]->version,
                         c->replicas[i]->host));
        if (!str_empty(c->key_fingerprint))
                fact(&out, "Key",
                     fmt("%s, of cluster.key on every server; no backup has it",
                         c->key_fingerprint));
        fact(&out, "HTTP", c->http_address);
        fact(&out, "gRPC", c->grpc_address);
        fact(&out, "Nodes", fmt("%d, %d ready", c->nodes, c->nodes_ready));
        if (c->nodes_foreign)
                fact(&out, "Foreign",
                     fmt("%d nodes belong to another cluster; berth get nodes shows them, berth "
                         "adopt takes them over",
                         c->nodes_foreign));
        if (c->strangers)
                fact(
                    &out, "Unknown",
                    fmt("%" PRId64
                        " units on nodes that the records do not know; berth adopt takes them over",
                        c->strangers));
        add_workloads(&out, c);
        add_brake(&out, c);
        if (c->fencing)
                fact(&out, "Leases",
                     fmt("%.1f s, then %.1f s to stop; an exclusive workload moves %.1f s after "
                         "its node was heard",
                         (double)c->fencing->lease_ms / 1000, (double)c->fencing->grace_ms / 1000,
                         (double)c->fencing->wait_ms / 1000));
        if (c->exclusive_waiting)
                fact(&out, "Waiting",
                     fmt("%" PRId64 " exclusive workloads, for holders that may still run; berth "
                         "explain NAME says until when",
                         c->exclusive_waiting));
        fact(&out, "Events", fmt("%" PRIu64 ", committed up to %" PRIu64, c->head, c->committed));
        fact(&out, "Store",
             fmt("epoch %" PRIu64 ", %" PRId64 " commits since the start", c->epoch, c->commits));
        if (format == OUTPUT_WIDE)
                fact(&out, "Counters",
                     fmt("%" PRId64 " heartbeats, %" PRId64 " passes", c->heartbeats, c->passes));
        cli_out_str(cli, &out);
        return 0;
}

const struct verb verb_cluster = {
        .name = "cluster",
        .args = "[info]",
        .summary = "the cluster in a few lines",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .values_size = sizeof(struct cluster_options),
        .run = cluster_run,
        .group = VERBS_CLUSTER,
};
