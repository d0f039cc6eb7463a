/* cli/doctor_rules.c: see doctor_rules.h. One function per concern; each says what is wrong, or
 * that it is fine. */
#include "cli/doctor_rules.h"

#include "base/str.h"
#include "model/json.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SKEW_MS 2000
#define COMMIT_SLOW_US 200000
#define LAG_EVENTS 1000
#define DISK_FREE_PERCENT 10
#define DISK_FREE_MB 512
#define CERT_DAYS 14
#define FILES_FEW 4096
#define NAMES_SHOWN 5
#define HELD_MS 120000 /* reports of a node that changes too often are held again and again */
/* one that is turned away comes again within seconds; after a restart it does not */
#define TWIN_MS 60000
#define DAY_MS (INT64_C(86400) * 1000)

struct exam {
        const struct doctor_facts *f;
        struct arena *a;
        struct findings *out;
};

static void tell(struct exam *x, enum finding_level level, const char *check, char *what,
                 char *advice)
{
        *array_push(x->out) = (struct finding){ level, check, what, advice };
}
#define problem(x, check, what, advice) tell(x, FINDING_PROBLEM, check, what, advice)
#define text(x, ...) arena_printf((x)->a, __VA_ARGS__)

/* "a, b, c and 4 more" */
struct names {
        struct str s;
        size_t n;
};

static void name_add(struct names *l, const char *name)
{
        if (l->n++ < NAMES_SHOWN)
                str_addf(&l->s, "%s%s", l->s.len ? ", " : "", name);
}

static char *names_end(struct exam *x, struct names *l)
{
        char *all = l->n > NAMES_SHOWN
                        ? text(x, "%s and %zu more", str_c(&l->s), l->n - NAMES_SHOWN)
                        : text(x, "%s", str_c(&l->s));
        str_fini(&l->s);
        return all;
}

/* ---- the server ---- */

static void examine_versions(struct exam *x)
{
        const struct doctor_facts *f = x->f;
        struct names other = { 0 };
        if (!str_eq(f->cluster->version, f->version))
                problem(x, "version-skew",
                        text(x, "the server is berth %s, this program is %s", f->cluster->version,
                             f->version),
                        "use programs of one version; the server is upgraded first");
        for (size_t i = 0; i < f->n_nodes; i++)
                if (!str_empty(f->nodes[i]->agent_version) && !f->nodes[i]->push &&
                    !str_eq(f->nodes[i]->agent_version, f->cluster->version))
                        name_add(&other,
                                 fmt("%s (%s)", f->nodes[i]->id, f->nodes[i]->agent_version));
        if (other.n)
                tell(x, FINDING_NOTE, "agent-version",
                     text(x, "agents of another version than the server's %s: %s",
                          f->cluster->version, names_end(x, &other)),
                     "upgrade them one after the other; units go on running meanwhile");
        else
                str_fini(&other.s);
}

/* Several servers on one store. */
static void examine_replicas(struct exam *x, const Pb__ClusterInfo *c)
{
        if (!c->n_replicas && str_empty(c->leader) && str_empty(c->last_leader))
                return;
        if (str_empty(c->leader))
                problem(x, "no-leader",
                        text(x, "no server leads; the last one was %s",
                             str_empty(c->last_leader) ? "never heard of" : c->last_leader),
                        "nothing is decided until one does, which takes seconds; if it lasts, look "
                        "at etcd and at the servers' logs");
        else
                tell(x, FINDING_OK, "leader",
                     text(x, "%s leads, of %zu servers that are there", c->leader, c->n_replicas),
                     NULL);
        if (c->lag_events > LAG_EVENTS)
                problem(x, "follower-behind",
                        text(x, "the server that answers is %" PRId64 " events behind the leader",
                             c->lag_events),
                        "its machine or its way to etcd is slow; ask another server");
        for (size_t i = 0; i < c->n_replicas; i++)
                if (!str_empty(c->replicas[i]->key_trouble))
                        problem(x, "cluster-key",
                                text(x, "%s cannot lead: %s", c->replicas[i]->name,
                                     c->replicas[i]->key_trouble),
                                "copy cluster.key from the data directory of a server that has it "
                                "(`berth key show` compares), mode 0600; "
                                "it is taken up without a restart");
        for (size_t i = 0; i < c->n_replicas; i++)
                if (!str_eq(c->replicas[i]->version, c->version))
                        tell(x, FINDING_NOTE, "versions",
                             text(x, "%s is berth %s, the server that answers is %s",
                                  c->replicas[i]->name, c->replicas[i]->version, c->version),
                             "versions next to each other work together; finish the upgrade soon");
        if (c->n_replicas == 1)
                tell(x, FINDING_NOTE, "one-server", "only one server is there",
                     "start others on the same etcd, so that one can take over");
}

static char *advice_on_store(const char *reason)
{
        if (strstr(reason, "NOSPACE"))
                return "make room in etcd: `etcdctl compact REVISION` (of `etcdctl endpoint status "
                       "-w json`), `etcdctl defrag --cluster`, "
                       "or a larger "
                       "--quota-backend-bytes; then `etcdctl alarm disarm`. The server goes on by "
                       "itself; agents run on meanwhile";
        if (strstr(reason, "too large"))
                return "raise --max-request-bytes of every member of etcd; the server goes on by "
                       "itself";
        if (strstr(reason, "etcd"))
                return "ask etcd: `etcdctl endpoint health --cluster`; more than half of its "
                       "members must run and be reached from the "
                       "server. The server "
                       "goes on by itself; agents run on meanwhile";
        return "look at the disk of the server's data directory (space, rights, errors in the "
               "kernel's log); nothing can be changed until "
               "then, "
               "agents go on";
}

static void examine_store(struct exam *x, const Pb__ServerFacts *s)
{
        if (!str_eq(x->f->cluster->status, "ok"))
                problem(
                    x, "store-away",
                    text(x, "the store takes no commits: %s",
                         str_empty(s->degraded_reason) ? "no reason given" : s->degraded_reason),
                    advice_on_store(s->degraded_reason ? s->degraded_reason : ""));
        else if (s->commit_mean_us > COMMIT_SLOW_US)
                problem(
                    x, "store-slow",
                    text(x, "a commit takes %" PRId64 " ms on average", s->commit_mean_us / 1000),
                    "put the data directory on a faster disk; an fsync should take a few "
                    "milliseconds");
        else
                tell(x, FINDING_OK, "store",
                     text(x, "commits take %" PRId64 ".%" PRId64 " ms on average",
                          s->commit_mean_us / 1000, s->commit_mean_us / 100 % 10),
                     NULL);
        if (s->store_total_mb > 0 &&
            (s->store_free_mb < DISK_FREE_MB ||
             s->store_free_mb * 100 < s->store_total_mb * DISK_FREE_PERCENT))
                problem(x, "store-disk",
                        text(x, "the disk of the store has %" PRId64 " MiB left of %" PRId64,
                             s->store_free_mb, s->store_total_mb),
                        "free some space, or move the data directory; --keep-events bounds what "
                        "the store keeps");
        if (s->bad_records)
                problem(x, "bad-records",
                        text(x, "%" PRId64 " stored records could not be read and were left out",
                             s->bad_records),
                        "the server's log names them; stop it and run berth fsck");
        if (s->records_touched)
                tell(x, FINDING_NOTE, "records-touched",
                     text(x,
                          "%" PRId64
                          " records were changed in the store by hand since the server started",
                          s->records_touched),
                     "berth events --type RecordTouched says which, and what became of them; use "
                     "berth apply instead");
        if (s->keep_events == 0)
                tell(x, FINDING_NOTE, "retention", "all events are kept for ever",
                     "--keep-events bounds the store's size");
}

static void examine_load(struct exam *x, const Pb__ServerFacts *s)
{
        int32_t most = s->ring_queue > s->read_queue ? s->ring_queue : s->read_queue;
        if (s->queue_limit > 0 && most * 2 > s->queue_limit)
                problem(
                    x, "queues",
                    text(x, "%d inputs wait for the server, of at most %d", most, s->queue_limit),
                    "it has more to do than it can: fewer clients at once, fewer polls (use "
                    "--watch), a faster disk");
        else
                tell(x, FINDING_OK, "queues",
                     text(x, "%d inputs wait, %d calls are under way", most, s->calls), NULL);
        if (s->inputs_refused)
                tell(x, FINDING_NOTE, "refused",
                     text(x,
                          "%" PRId64 " calls were refused since the start because too many waited",
                          s->inputs_refused),
                     "clients should wait for Retry-After");
        if (s->open_files_limit > 0 && s->open_files * 10 > s->open_files_limit * 8)
                problem(
                    x, "open-files",
                    text(x, "the server has %" PRId64 " files open, its limit is %" PRId64,
                         s->open_files, s->open_files_limit),
                    "raise LimitNOFILE of its unit (ulimit -n): each agent and each stream is one");
        else if (s->open_files_limit > 0 && s->open_files_limit < FILES_FEW)
                tell(x, FINDING_NOTE, "open-files",
                     text(x, "the server may open %" PRId64 " files only", s->open_files_limit),
                     "raise LimitNOFILE of its unit before many agents come");
}

static void examine_clock(struct exam *x, const Pb__ServerFacts *s)
{
        int64_t skew = s->now_at - (x->f->now_ms - x->f->took_ms / 2);
        if (llabs(skew) > SKEW_MS + x->f->took_ms)
                problem(x, "clock-skew",
                        text(x, "the server's clock is %lld.%lld s %s this machine's",
                             llabs(skew) / 1000, llabs(skew) / 100 % 10,
                             skew > 0 ? "ahead of" : "behind"),
                        "let both machines keep time (chrony, systemd-timesyncd); certificates and "
                        "the times of events depend on it");
        else
                tell(x, FINDING_OK, "clock", "the server's clock agrees with this machine's", NULL);
}

static void examine_tls(struct exam *x, const Pb__ServerFacts *s)
{
        int64_t left = s->tls_expires_at - x->f->now_ms;
        if (s->tls_expires_at == 0)
                tell(x, FINDING_NOTE, "tls", "the server talks in the clear",
                     "--tls-cert, --tls-key and --tls-ca, where the network is not yours alone");
        else if (left < CERT_DAYS * DAY_MS)
                problem(
                    x, "tls-expiry",
                    left < 0 ? text(x, "the server's certificate has expired")
                             : text(x, "the server's certificate expires in %" PRId64 " days",
                                    left / DAY_MS),
                    "write new files over the old ones; the server takes them up within seconds");
        else
                tell(
                    x, FINDING_OK, "tls",
                    text(x, "the server's certificate is good for %" PRId64 " days", left / DAY_MS),
                    NULL);
        left = s->agent_certificate_expires_at - x->f->now_ms;
        if (s->agent_certificates_due)
                problem(
                    x, "agent-certificates",
                    text(x,
                         "the certificates of %d agents are near their end: that of %s has %" PRId64
                         " hours left",
                         s->agent_certificates_due, s->agent_certificate_node,
                         left > 0 ? left / 3600000 : 0),
                    "those that joined renew by themselves: their log and the server's say why not "
                    "(--ca, --cfssl); others need berth "
                    "ca renew");
        else if (s->agent_certificate_expires_at)
                tell(x, FINDING_OK, "agent-certificates",
                     text(x, "the first of the agents' certificates ends in %" PRId64 " hours (%s)",
                          left / 3600000, s->agent_certificate_node),
                     NULL);
        if (s->open)
                tell(x, FINDING_NOTE, "access",
                     "everybody who reaches the server may do everything",
                     "leave out --auth none (docs/access.md)");
}

/* ---- nodes ---- */

/* One finding for all nodes of which something is true. */
static size_t about_nodes(struct exam *x, bool (*is)(const struct exam *, const Pb__Node *),
                          enum finding_level level, const char *check, const char *what,
                          const char *advice)
{
        struct names l = { 0 };
        for (size_t i = 0; i < x->f->n_nodes; i++)
                if (is(x, x->f->nodes[i]))
                        name_add(&l, x->f->nodes[i]->id);
        size_t n = l.n;
        char *names = names_end(x, &l);
        if (n)
                tell(x, level, check,
                     text(x, "%zu %s %s: %s", n, n == 1 ? "node" : "nodes", what, names),
                     text(x, "%s", advice));
        return n;
}

static bool is_lost(const struct exam *x _unused_, const Pb__Node *n)
{
        return n->status == PB__NODE_STATUS__E__NotReady && !n->foreign;
}
static bool is_unheard(const struct exam *x _unused_, const Pb__Node *n)
{
        return n->status != PB__NODE_STATUS__E__NotReady && !n->connected && !n->push &&
               !n->foreign;
}
static bool is_foreign(const struct exam *x _unused_, const Pb__Node *n)
{
        return n->foreign;
}
static bool has_strangers(const struct exam *x _unused_, const Pb__Node *n)
{
        return n->n_strangers > 0;
}
static bool has_twin(const struct exam *x, const Pb__Node *n)
{
        return n->twin_refused_at && x->f->now_ms - n->twin_refused_at < TWIN_MS;
}
static bool is_held(const struct exam *x, const Pb__Node *n)
{
        return n->reports_held_at && x->f->now_ms - n->reports_held_at < HELD_MS;
}
static bool is_over(const struct exam *x _unused_, const Pb__Node *n)
{
        const Pb__NodeResources *r = n->resources;
        return r && (r->cpu_allocated > r->cpu_total || r->memory_allocated > r->memory_total ||
                     r->disk_allocated > r->disk_total);
}
static bool is_full(const struct exam *x _unused_, const Pb__Node *n)
{
        const Pb__NodeResources *r = n->resources;
        return r && r->disk_total > 0 &&
               r->disk_used * 100 > r->disk_total * (100 - DISK_FREE_PERCENT);
}
static bool is_kept_empty(const struct exam *x _unused_, const Pb__Node *n)
{
        return n->wish == PB__NODE_WISH__E__cordoned || n->wish == PB__NODE_WISH__E__disabled;
}
static bool is_blocked(const struct exam *x _unused_, const Pb__Node *n)
{
        return n->drain && !n->drain->finished_at && n->drain->n_blockers > 0;
}
static bool has_no_runtime(const struct exam *x _unused_, const Pb__Node *n)
{
        return n->n_unsupported > 0 || n->n_supported_workload_types == 0;
}

/* Agents that were turned away are no nodes yet. */
static void examine_foreign(struct exam *x)
{
        for (size_t i = 0; i < x->f->n_nodes; i++)
                if (is_foreign(x, x->f->nodes[i]))
                        return; /* told by name */
        if (x->f->cluster->nodes_foreign > 0)
                problem(x, "node-foreign",
                        text(x, "%d agents of another cluster came by and were turned away",
                             x->f->cluster->nodes_foreign),
                        "berth adopt NAME takes one over; or point its agent at its own server. "
                        "The server's log names them");
}

/* C11: what is held or paced, with what was counted. */
static void examine_brake(struct exam *x)
{
        const Pb__Brake *b = x->f->cluster->brake;
        const char *counted = "";
        if (b)
                counted = text(x, " (%u of %u nodes, beyond %u %% is held%s)", b->silent, b->nodes,
                               b->limit_percent,
                               str_empty(b->zone) ? ""
                                                  : text(x, "; of zone %s %u of %u", b->zone,
                                                         b->zone_silent, b->zone_nodes));
        if (str_eq(x->f->cluster->mode, "eviction held"))
                problem(
                    x, "eviction-held",
                    text(x,
                         "too many nodes fell silent at once, so nothing is moved away from them%s",
                         counted),
                    "bring some of them back: the server itself may be the one that is cut off. If "
                    "they are gone for good: berth evict "
                    "--now moves what is on them");
        else if (str_eq(x->f->cluster->mode, "eviction paced"))
                tell(x, FINDING_NOTE, "eviction-paced",
                     text(x,
                          "a part of a zone is silent, so its units move a few at a time: %u are "
                          "left%s",
                          b ? b->paced_units : 0, counted),
                     "nothing, or berth evict --now to move them at once; evict_per_second is the "
                     "rate");
}

static void examine_nodes(struct exam *x)
{
        examine_foreign(x);
        if (x->f->n_nodes == 0) {
                problem(x, "no-nodes", "the cluster has no nodes: nothing can run",
                        text(x, "on a machine: berth agent --server %s --data DIR", x->f->address));
                return;
        }
        size_t bad = 0;
        bad += about_nodes(x, is_lost, FINDING_PROBLEM, "node-lost",
                           "not heard for too long (NotReady)",
                           "is the machine up, does berth agent run there, does it reach the "
                           "server? berth describe node NAME says since "
                           "when; berth delete node NAME forgets one that is gone");
        bad += about_nodes(x, is_unheard, FINDING_PROBLEM, "node-unheard",
                           "not connected (and not yet declared lost)",
                           "wait a few heartbeats; then look at the agent's log there");
        bad += about_nodes(x, is_foreign, FINDING_PROBLEM, "node-foreign",
                           "belonging to another cluster",
                           "berth adopt NAME takes one over; or point its agent at its own server");
        bad += about_nodes(x, has_strangers, FINDING_PROBLEM, "node-strangers",
                           "running units that no record knows",
                           "berth describe node NAME lists them; berth adopt NAME takes them over, "
                           "or stop them on the machine");
        bad += about_nodes(x, has_twin, FINDING_PROBLEM, "node-twin",
                           "whose id another agent uses too (it is turned away)",
                           "give each machine a --node-id of its own; the server's log has the "
                           "other one's address");
        bad +=
            about_nodes(x, is_held, FINDING_PROBLEM, "node-noisy",
                        "that says something else all the time: its reports are taken less often",
                        "berth events --node NAME shows what changes; a unit that starts and stops "
                        "without end, or an agent gone wrong: "
                        "berth drain NAME, or berth node expel NAME if it is hostile");
        bad += about_nodes(
            x, is_over, FINDING_PROBLEM, "node-overcommitted", "with more promised than it has",
            "it registered with less than before: drain it, or give it back what it had");
        bad += about_nodes(x, is_full, FINDING_PROBLEM, "node-disk", "with a nearly full disk",
                           "free space there, or drain it");
        bad += about_nodes(
            x, is_blocked, FINDING_PROBLEM, "drain-blocked",
            "draining, with units that fit nowhere else",
            "berth describe node NAME shows the blockers; add capacity, or drain with --deadline");
        bad += about_nodes(
            x, has_no_runtime, FINDING_PROBLEM, "node-runtime", "where a runtime does not work",
            "berth describe node NAME says which; mend it there and start its agent anew");
        about_nodes(x, is_kept_empty, FINDING_NOTE, "node-cordoned",
                    "taking nothing new by an operator's wish", "berth uncordon NAME");
        if (!bad)
                tell(x, FINDING_OK, "nodes", text(x, "%zu nodes, all heard", x->f->n_nodes), NULL);
        examine_brake(x);
}

/* ---- workloads ---- */

struct tally {
        size_t n, by_reason[64];
        struct names names;
};

static void tally_add(struct tally *t, const Pb__Workload *w)
{
        unsigned reason = w->status ? w->status->reason : 0;
        t->n++;
        t->by_reason[reason < ARRAY_LEN(t->by_reason) ? reason : 0]++;
        name_add(&t->names, w->id);
}

/* " (3 cpu-insufficient, 1 label-mismatch)"; "" if none has a reason: that a node is silent needs
 * no other */
static char *reasons(struct exam *x, const struct tally *t)
{
        struct str s = STR_INIT;
        bool told[64] = { 0 };
        for (int k = 0; k < 3; k++) {
                size_t best = 0;
                for (size_t i = 1; i < ARRAY_LEN(told); i++)
                        if (!told[i] && t->by_reason[i] > (best ? t->by_reason[best] : 0))
                                best = i;
                if (best == 0)
                        break;
                told[best] = true;
                str_addf(&s, "%s%zu %s", s.len ? ", " : "", t->by_reason[best],
                         json_enum_name(&pb__reason__e__descriptor, (int)best));
        }
        char *all = text(x, "%s%s%s", s.len ? " (" : "", str_c(&s), s.len ? ")" : "");
        str_fini(&s);
        return all;
}

static void about_workloads(struct exam *x, struct tally *t, const char *check, const char *what,
                            const char *advice)
{
        char *names = names_end(x, &t->names);
        if (t->n)
                problem(x, check,
                        text(x, "%zu %s %s%s: %s", t->n, t->n == 1 ? "workload" : "workloads", what,
                             reasons(x, t), names),
                        text(x, "%s", advice));
}

static void examine_workloads(struct exam *x)
{
        struct tally pending = { 0 }, failed = { 0 }, looping = { 0 }, unknown = { 0 },
                     pinned = { 0 };
        for (size_t i = 0; i < x->f->n_workloads; i++) {
                const Pb__Workload *w = x->f->workloads[i];
                if (w->status && w->status->reason == PB__REASON__E__pinned_to_node) {
                        tally_add(&pinned, w);
                        continue;
                }
                switch (w->status ? w->status->phase : PB__PHASE__E__unset) {
                case PB__PHASE__E__Pending:
                        tally_add(&pending, w);
                        break;
                case PB__PHASE__E__Failed:
                        tally_add(&failed, w);
                        break;
                case PB__PHASE__E__RetryPending:
                        tally_add(&looping, w);
                        break;
                case PB__PHASE__E__Unknown:
                        tally_add(&unknown, w);
                        break;
                default:
                        break;
                }
        }
        if (!pending.n && !failed.n && !looping.n && !unknown.n && !pinned.n &&
            !x->f->cluster->exclusive_waiting)
                tell(x, FINDING_OK, "workloads",
                     text(x, "%" PRId64 " workloads, none of them waits or fails",
                          x->f->cluster->workloads),
                     NULL);
        about_workloads(x, &pending, "workloads-pending", "found no place",
                        "berth explain NAME says what would have to change; berth plan add-node "
                        "--like NODE shows what one more would take");
        if (x->f->cluster->exclusive_waiting)
                problem(
                    x, "exclusive-waits",
                    text(x,
                         "%" PRId64
                         " exclusive %s not started, because an earlier holder may still run",
                         x->f->cluster->exclusive_waiting,
                         x->f->cluster->exclusive_waiting == 1 ? "workload is" : "workloads are"),
                    "berth explain NAME says where, and until when; if that machine is surely off: "
                    "berth node fence NODE "
                    "--i-know-it-is-dead");
        about_workloads(x, &pinned, "exclusive-pinned",
                        "pinned to a node that is gone or wanted empty",
                        "bring the node back; berth release NAME --i-know-it-is-dead starts it "
                        "elsewhere, without what is on that node");
        about_workloads(
            x, &failed, "workloads-failed", "failed for good",
            "berth explain NAME and berth logs NAME say why; berth retry NAME tries again");
        about_workloads(x, &looping, "crash-loop", "failing again and again",
                        "berth logs NAME shows what it wrote last; it is tried again with longer "
                        "and longer pauses");
        about_workloads(x, &unknown, "workloads-unknown", "on nodes that are not heard",
                        "see the nodes above; they move when the grace is over");
}

/* ---- this machine, and all of it ---- */

/* The policy is asked when something is applied: what was applied before it goes on. */
static void examine_policy(struct exam *x)
{
        const Pb__ClusterInfo *c = x->f->cluster;
        struct names list = { 0 };
        if (!c->beyond_policy)
                return;
        for (size_t i = 0; i < c->n_beyond_policy_ids; i++)
                name_add(&list, c->beyond_policy_ids[i]);
        list.n = (size_t)c->beyond_policy;
        tell(x, FINDING_NOTE, "beyond-policy",
             text(x, "%" PRId64 " workload%s on record with more than the policy allows: %s",
                  c->beyond_policy, c->beyond_policy == 1 ? " is" : "s are", names_end(x, &list)),
             "they go on as they are, as the user that they had; change and apply them, or allow "
             "it: policy in the server's configuration");
}

static void examine_local(struct exam *x)
{
        const struct doctor_facts *f = x->f;
        struct str have = STR_INIT;
        str_addf(&have, "process%s%s%s", f->local.has_podman ? ", podman" : "",
                 f->local.has_docker ? ", docker" : "",
                 f->local.has_qemu ? (f->local.has_kvm ? ", qemu with kvm" : ", qemu") : "");
        tell(x, FINDING_OK, "local-runtimes",
             text(x, "an agent on this machine could run: %s%s", str_c(&have),
                  f->local.has_cgroup2 ? "; limits by cgroup v2" : ""),
             NULL);
        str_fini(&have);
        if (!f->local.has_podman && !f->local.has_docker)
                tell(x, FINDING_NOTE, "local-containers",
                     "this machine has neither podman nor docker",
                     "apt install podman, if its agent is to run containers");
        if (!f->local.has_cgroup2)
                tell(x, FINDING_NOTE, "local-cgroup",
                     "this machine has no cgroup v2 that can be seen",
                     "limits on cpu and memory need it: boot with "
                     "systemd.unified_cgroup_hierarchy=1");
        if (f->local.open_files_limit > 0 && f->local.open_files_limit < 1024)
                tell(x, FINDING_NOTE, "local-files",
                     text(x, "a process here may open %" PRId64 " files only",
                          f->local.open_files_limit),
                     "ulimit -n");
}

void doctor_examine(const struct doctor_facts *facts, struct arena *arena, struct findings *ret)
{
        struct exam x = { facts, arena, ret };
        if (facts->unreachable)
                problem(&x, "server-unreachable",
                        text(&x, "no server answers at %s: %s", facts->address,
                             err_line(facts->unreachable)),
                        text(&x, "%s",
                             facts->unreachable->hint[0]
                                 ? facts->unreachable->hint
                                 : "is it running? berth server, or berth dev; --server and "
                                   "BERTH_SERVER say where"));
        else {
                const Pb__ServerFacts *s = facts->cluster->server;
                tell(&x, FINDING_OK, "server",
                     text(&x, "berth %s answers at %s within %" PRId64 " ms",
                          facts->cluster->version, facts->address, facts->took_ms),
                     NULL);
                examine_versions(&x);
                examine_replicas(&x, facts->cluster);
                if (s) {
                        examine_store(&x, s);
                        examine_load(&x, s);
                        examine_clock(&x, s);
                        examine_tls(&x, s);
                }
                examine_nodes(&x);
                examine_workloads(&x);
                examine_policy(&x);
        }
        examine_local(&x);
        /* stable: insertion by level */
        struct findings sorted = { 0 };
        for (int level = FINDING_PROBLEM; level >= FINDING_OK; level--)
                for (size_t i = 0; i < ret->len; i++)
                        if ((int)ret->at[i].level == level)
                                *array_push(&sorted) = ret->at[i];
        array_fini(ret);
        *ret = sorted;
}
