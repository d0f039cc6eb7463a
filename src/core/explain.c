/* core/explain.c: why it is there, why it is not, and what would have to change (A8, X2).
 *
 * For a workload without a node every node is asked; the counts per reason add up to the number of
 * nodes. The nearest miss is the node with the fewest reasons, then the smallest shortfall. What
 * would make it fit is exact, not guessed: a node with a single reason in its way would take the
 * unit if just that were different.
 */
#include "core/explain.h"
#include "base/clock.h"
#include "base/mem.h"
#include "core/definitions.h"
#include "core/feasible.h"
#include "core/notice.h"
#include "core/place.h"
#include "core/policy.h"
#include "core/quota.h"
#include "core/read.h"
#include "core/retry.h"
#include "core/state.h"
#include "core/step.h"
#include "core/workload.h"
#include <stdlib.h>
#include <string.h>

#define CANDIDATES_MAX 100
#define SHORTFALL_MAX (INT64_C(1) << 60)

static char *amount_text(struct arena *a, Pb__Reason__E reason, int64_t v)
{
        if (reason == PB__REASON__E__cpu_insufficient)
                return arena_printf(a, "%s%lld.%03lld cpu", v < 0 ? "-" : "",
                                    (long long)(llabs(v) / 1000), (long long)(llabs(v) % 1000));
        if (reason == PB__REASON__E__memory_insufficient)
                return arena_printf(a, "%lld MiB of memory", (long long)(v / MIB));
        return arena_printf(a, "%lld GiB of disk", (long long)(v / GIB));
}

static int64_t amount_of(struct amounts a, Pb__Reason__E reason)
{
        return reason == PB__REASON__E__cpu_insufficient      ? a.cpu_milli
               : reason == PB__REASON__E__memory_insufficient ? a.mem_bytes
                                                              : a.disk_bytes;
}

static char *selector_text(struct arena *a, const struct node *n, const struct class *k)
{
        for (uint32_t i = 0; i < k->n_selector; i++) {
                const char *have = label_get(n->labels, n->n_labels, k->selector[i].key);
                if (!str_eq(have, k->selector[i].value))
                        return arena_printf(a, "wants %s=%s, the node has %s%s", k->selector[i].key,
                                            k->selector[i].value, have ? "" : "no such label",
                                            have ? have : "");
        }
        return "";
}

char *feasible_detail(const struct core *c, struct node_ix ix, const struct definition *d,
                      Pb__Reason__E reason, struct arena *a)
{
        const struct node *n = node_get(c, ix);
        const struct class *k = &c->classes.at[d->class];
        struct amounts left = node_room(n);
        switch (reason) {
        case PB__REASON__E__cpu_insufficient:
        case PB__REASON__E__memory_insufficient:
        case PB__REASON__E__disk_insufficient:
                return arena_printf(a, "needs %s, %s free of %s",
                                    amount_text(a, reason, amount_of(k->need, reason)),
                                    amount_text(a, reason, amount_of(left, reason)),
                                    amount_text(a, reason, amount_of(n->ledger.total, reason)));
        case PB__REASON__E__label_mismatch:
                return selector_text(a, n, k);
        case PB__REASON__E__node_not_ready:
        case PB__REASON__E__node_unreachable:
                return arena_strdup(a, n->status_reason ? n->status_reason : "");
        case PB__REASON__E__heartbeat_stale:
                return arena_strdup(
                    a, n->heard_at ? "no heartbeat for too long"
                                   : "its agent has not connected since the server started");
        case PB__REASON__E__node_cordoned:
                return arena_strdup(a, "the operator wants nothing new there");
        case PB__REASON__E__node_returning:
                return arena_printf(a, "still stops %u old copies", n->n_lost);
        case PB__REASON__E__old_copy_present:
                return arena_strdup(a,
                                    "an old copy of it, or an unknown unit of its name, is there");
        case PB__REASON__E__type_unsupported:
                return arena_strdup(a, n->unsupported_bits & k->type_bit
                                           ? "its runtime for this type turned out not to work"
                                           : "runs no units of this type");
        case PB__REASON__E__agent_too_old:
                return arena_printf(
                    a, "its agent (berth %s) does not know something that the workload needs",
                    n->version ? n->version : "?");
        case PB__REASON__E__exclusive_unsupported:
                return arena_strdup(
                    a, n->push
                           ? "its agent is a foreign one: it knows no leases"
                           : "its agent cannot stop such a unit by itself when its lease runs out");
        default:
                return constraints_detail(c, ix, d, reason, a);
        }
}

/* What to do so that this one reason goes away on this node. */
static char *remedy(const struct core *c, struct node_ix ix, const struct definition *d,
                    Pb__Reason__E reason, struct arena *a)
{
        const struct node *n = node_get(c, ix);
        const struct class *k = &c->classes.at[d->class];
        struct amounts left = node_room(n);
        switch (reason) {
        case PB__REASON__E__cpu_insufficient:
        case PB__REASON__E__memory_insufficient:
        case PB__REASON__E__disk_insufficient: {
                int64_t need = amount_of(k->need, reason), have = amount_of(left, reason),
                        total = amount_of(n->ledger.total, reason);
                int64_t unit = reason == PB__REASON__E__cpu_insufficient      ? 1
                               : reason == PB__REASON__E__memory_insufficient ? MIB
                                                                              : GIB;
                int64_t missing = (need - have + unit - 1) / unit * unit;
                if (have < 0) /* the node has less than it had: even nothing would not fit */
                        return arena_printf(a, "free %s on %s", amount_text(a, reason, missing),
                                            n->id);
                if (need > total)
                        return arena_printf(
                            a, "ask for at most %s (%s has %s in all), or add a larger node",
                            amount_text(a, reason, have), n->id, amount_text(a, reason, total));
                return arena_printf(a, "free %s on %s, or ask for at most %s",
                                    amount_text(a, reason, missing), n->id,
                                    amount_text(a, reason, have));
        }
        case PB__REASON__E__label_mismatch:
                return arena_printf(
                    a, "give node %s the labels of its node_selector (%s), or change node_selector",
                    n->id, selector_text(a, n, k));
        case PB__REASON__E__node_cordoned:
                return arena_printf(a, "uncordon node %s", n->id);
        case PB__REASON__E__node_not_ready:
        case PB__REASON__E__heartbeat_stale:
                return arena_printf(a, "bring node %s back: its agent is not heard", n->id);
        case PB__REASON__E__node_unreachable:
                return arena_printf(a, "make the agent of node %s reachable from the server",
                                    n->id);
        case PB__REASON__E__node_returning:
        case PB__REASON__E__old_copy_present:
                return arena_printf(a, "wait until node %s has stopped its old copies", n->id);
        case PB__REASON__E__type_unsupported:
                return arena_printf(a,
                                    n->unsupported_bits & k->type_bit
                                        ? "mend the runtime on %s and restart its agent"
                                        : "let the agent on %s run units of this type",
                                    n->id);
        case PB__REASON__E__agent_too_old:
                return arena_printf(a, "upgrade the agent on %s", n->id);
        case PB__REASON__E__exclusive_unsupported:
                return arena_printf(
                    a, "run berth's own agent of this version on %s, or do not mark it exclusive",
                    n->id);
        default:
                return constraints_remedy(c, ix, d, reason, a);
        }
}

struct look {
        struct node_ix node;
        uint64_t reasons;
        Pb__Reason__E first;
        int64_t shortfall; /* in millionths of what it needs, summed */
        uint64_t cost;
        uint32_t rank;
};

static int64_t shortfall(const struct core *c, struct node_ix ix, const struct class *k)
{
        struct amounts left = node_room(node_get(c, ix));
        int64_t sum = 0;
        for (Pb__Reason__E r = PB__REASON__E__cpu_insufficient;
             r <= PB__REASON__E__disk_insufficient; r++) {
                int64_t need = amount_of(k->need, r), have = amount_of(left, r);
                if (need <= have)
                        continue;
                __int128 part = (__int128)(need - have) * 1000000 / (need > 0 ? need : 1);
                sum += part < SHORTFALL_MAX ? (int64_t)part : SHORTFALL_MAX;
        }
        return sum;
}

static int better_look(const void *a, const void *b)
{
        const struct look *x = a, *y = b;
        int bx = __builtin_popcountll(x->reasons), by = __builtin_popcountll(y->reasons);
        if (bx != by)
                return bx < by ? -1 : 1;
        if (x->shortfall != y->shortfall)
                return x->shortfall < y->shortfall ? -1 : 1;
        if (x->cost != y->cost)
                return x->cost < y->cost ? -1 : 1;
        return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static Pb__Candidate *candidate(struct core *c, const struct look *l, const struct definition *d,
                                struct node_ix chosen)
{
        Pb__Candidate *m = arena_new(&c->step, Pb__Candidate);
        pb__candidate__init(m);
        m->node_id = node_at(c, l->node)->id;
        m->feasible = l->reasons == 0;
        m->reason = l->first;
        m->score = cost_millionths(l->cost);
        m->chosen = l->node.v == chosen.v;
        m->detail = l->reasons ? feasible_detail(c, l->node, d, l->first, &c->step) : "";
        return m;
}

static void count_reasons(struct core *c, Pb__Explanation *x, const struct look *looks, size_t n)
{
        struct {
                uint32_t count;
                const char *example;
        } by[64] = { 0 };
        size_t kinds = 0;
        for (size_t i = 0; i < n; i++) {
                if (!looks[i].first) {
                        x->feasible++;
                        continue;
                }
                kinds += by[looks[i].first].count == 0;
                by[looks[i].first].count++;
                if (!by[looks[i].first].example)
                        by[looks[i].first].example = node_at(c, looks[i].node)->id;
        }
        x->reasons = arena_new_n(&c->step, Pb__ReasonCount *, kinds + 1);
        for (unsigned r = 1; r < ARRAY_LEN(by); r++) {
                if (!by[r].count)
                        continue;
                Pb__ReasonCount *m = arena_new(&c->step, Pb__ReasonCount);
                pb__reason_count__init(m);
                m->reason = (Pb__Reason__E)r;
                m->nodes = (int32_t)by[r].count;
                m->example = (char *)by[r].example;
                x->reasons[x->n_reasons++] = m;
        }
}

/* One way per kind of reason: the node for which it is nearest. looks are sorted best first. */
static void ways_to_fit(struct core *c, Pb__Explanation *x, const struct look *looks, size_t n,
                        const struct definition *d)
{
        uint64_t told = 0;
        x->would_fit_if = arena_new_n(&c->step, char *, 64);
        for (size_t i = 0; i < n; i++) {
                if (__builtin_popcountll(looks[i].reasons) != 1 || (told & looks[i].reasons))
                        continue;
                told |= looks[i].reasons;
                x->would_fit_if[x->n_would_fit_if++] =
                    remedy(c, looks[i].node, d, looks[i].first, &c->step);
        }
        if (!x->n_would_fit_if && n && looks[0].reasons) {
                struct str all = STR_INIT;
                for (unsigned r = 1; r < 64; r++)
                        if (looks[0].reasons & (UINT64_C(1) << r))
                                str_addf(&all, "%s%s", all.len ? "; and " : "",
                                         remedy(c, looks[0].node, d, (Pb__Reason__E)r, &c->step));
                x->would_fit_if[x->n_would_fit_if++] = arena_strdup(&c->step, str_c(&all));
                str_fini(&all);
        }
        if (!n)
                x->would_fit_if[x->n_would_fit_if++] = "add a node: start berth agent on a machine";
}

/* First of all, its tenant may place more. */
static void quota_remedy(struct core *c, const struct unit *w, Pb__Explanation *x)
{
        char **ways = arena_new_n(&c->step, char *, x->n_would_fit_if + 1);
        ways[0] = arena_printf(
            &c->step,
            "raise the quota of tenant %s (berth quota set), or stop something else of it",
            workload_tenant(c, w));
        for (size_t i = 0; i < x->n_would_fit_if; i++)
                ways[i + 1] = x->would_fit_if[i];
        x->would_fit_if = ways;
        x->n_would_fit_if++;
}

static void next_step(struct core *c, const struct unit *w, Pb__Explanation *x)
{
        x->next_at = unit_deadline(c, w);
        if (x->next_at == HEAP_NEVER)
                x->next_at = 0;
        bool lost = node_ok(w->node) && node_at(c, w->node)->status == PB__NODE_STATUS__E__NotReady;
        if (w->waiting && w->over_quota)
                x->next = "placed as soon as its tenant's quota has room";
        else if (w->waiting && has_hold(w))
                x->next = arena_printf(&c->step,
                                       "placed on %s as soon as the lower priorities that make "
                                       "room there have stopped",
                                       node_at(c, hold_node(c, w))->id);
        else if (w->waiting)
                x->next = "placed as soon as a node can take it";
        else if (lost && w->holds) {
                const struct node *n = node_at(c, w->node);
                x->next =
                    n->held && c->brake.holds ? "its node is silent, and so are too many others: "
                                                "nothing is moved until some return, or until an "
                                                "operator says so (berth evict)"
                    : n->pacing
                        ? "moved to another node when its turn comes: only a part of its zone is "
                          "silent, so a few move at a time"
                        : "moved to another node when the grace is over, unless its node returns";
                x->next_at = node_at(c, w->node)->status_at + c->opt.evict_grace_ms;
        } else
                switch (w->phase) {
                case PB__PHASE__E__RetryPending:
                        x->next =
                            arena_printf(&c->step,
                                         "tried again, %s; until then it keeps its place on %s and "
                                         "counts for its tenant's quota",
                                         retry_words(w->attempts + 1, workload_retry_limit(c, w)),
                                         node_at(c, w->node)->id);
                        break;
                case PB__PHASE__E__Scheduled:
                case PB__PHASE__E__Updating:
                        x->next = "its agent is starting it; told again at the time shown if it "
                                  "does not answer";
                        break;
                case PB__PHASE__E__Deleting:
                        x->next = "its record goes when the node says that nothing of it runs";
                        break;
                case PB__PHASE__E__Failed:
                        x->next = "nothing, until it is changed or retried (berth retry)";
                        break;
                case PB__PHASE__E__Running:
                        x->next =
                            w->attempts ? "earlier failures are forgotten at the time shown" : "";
                        break;
                default:
                        break;
                }
}

static const char *text_or(const char *s, const char *otherwise)
{
        return s ? s : otherwise;
}

/* By what the node was the best one. */
static const char *best_word(const struct core *c, const struct unit *w)
{
        const struct constraints *m = class_of(c, w)->more;
        bool prefers = false;
        for (uint32_t i = 0; m && i < m->n_near; i++)
                prefers |= m->near[i].preferred;
        for (uint32_t i = 0; m && i < m->n_spread; i++)
                prefers |= m->spread[i].preferred;
        if (prefers)
                return "best";
        return strategy_of(c, class_of(c, w)) == PB__STRATEGY__E__binpack ? "most utilised"
                                                                          : "least utilised";
}

/* Labels, taints and neighbours may change while it runs. It stays where it is, as that needs no
 * new start; but people should know. */
static const char *no_longer_fits(struct core *c, const struct unit *w, const struct look *looks,
                                  size_t n)
{
        const uint64_t ignored_while_it_runs = UINT64_C(1) << PB__REASON__E__label_mismatch |
                                               UINT64_C(1) << PB__REASON__E__taint_not_tolerated |
                                               UINT64_C(1) << PB__REASON__E__affinity_unmet |
                                               UINT64_C(1) << PB__REASON__E__anti_affinity |
                                               UINT64_C(1) << PB__REASON__E__spread_exceeded;
        for (size_t i = 0; w->holds && i < n; i++) {
                uint64_t why =
                    looks[i].node.v == w->node.v ? looks[i].reasons & ignored_while_it_runs : 0;
                if (why)
                        return arena_printf(
                            &c->step,
                            "; it stays there although it would not be placed there now: %s",
                            feasible_detail(c, w->node, definition_of(c, w), first_reason(why),
                                            &c->step));
        }
        return "";
}

static char *summary(struct core *c, const struct unit *w, const Pb__Explanation *x)
{
        struct arena *a = &c->step;
        const char *node = node_ok(w->node) ? node_at(c, w->node)->id : w->lost_node;
        switch (x->phase) {
        case PB__PHASE__E__Pending:
                if (w->over_quota)
                        return arena_printf(a,
                                            "waits for %s; that is not about capacity: %d of %d "
                                            "nodes could take it",
                                            quota_detail(c, w), x->feasible, x->nodes);
                if (w->preempted_at && w->preempted_at >= w->placed_at && !x->feasible)
                        return arena_printf(a,
                                            "made room for a higher priority on %s, and fits on "
                                            "none of %d nodes now",
                                            text_or(w->previous_node, "its node"), x->nodes);
                return x->feasible ? arena_printf(a, "waiting; %d of %d nodes could take it now",
                                                  x->feasible, x->nodes)
                                   : arena_printf(a, "fits on none of %d nodes", x->nodes);
        case PB__PHASE__E__Unknown:
                return arena_printf(a, "its node %s is silent: %s", node,
                                    text_or(node_at(c, w->node)->status_reason, "no heartbeat"));
        case PB__PHASE__E__Failed:
        case PB__PHASE__E__RetryPending:
                return arena_printf(a, "failed on %s: %s", text_or(node, "no node"),
                                    text_or(w->failure, "no reason given"));
        case PB__PHASE__E__Completed:
                return arena_printf(a, "ran to its end on %s",
                                    text_or(node, "a node that is gone"));
        case PB__PHASE__E__Stopped:
                return node ? arena_printf(a, "stopped as wished; its place on %s is kept", node)
                            : arena_printf(a, "stopped as wished");
        case PB__PHASE__E__Deleting:
                return node
                           ? arena_printf(
                                 a, "being deleted; %s has still to say that nothing of it is left",
                                 node)
                           : arena_printf(a, "being deleted");
        default:
                if (node && w->placed_reason == PB__REASON__E__adopted)
                        return arena_printf(a, "on %s, where it ran already: it was adopted", node);
                return node ? arena_printf(a, "on %s: the %s %s that could take it%s%s", node,
                                           best_word(c, w),
                                           w->candidates ? fmt("of %d", w->candidates) : "node",
                                           w->previous_node ? ", moved from " : "",
                                           w->previous_node ? w->previous_node : "")
                            : arena_printf(a, "on no node");
        }
}

static void last_failure(const struct unit *w, Pb__LastFailure *ret, Pb__IntValue *exit_code,
                         Pb__IntValue *signal)
{
        exit_code->value = w->exit_code;
        signal->value = w->signal;
        ret->message = w->failure;
        ret->exit_code = w->has_exit ? exit_code : NULL;
        ret->signal = w->has_signal ? signal : NULL;
        ret->failed_at = w->finished_at;
        ret->reason = w->reason;
}

void read_explain(struct core *c, const Pb__WorkloadRef *req)
{
        struct unit_ix ix;
        struct err err;
        if (workload_lookup(c, req->id, &ix, &err) < 0) {
                reply_error(c, &err);
                return;
        }
        if (c->ranks_stale)
                ranks_refresh(c);
        struct unit *w = unit_at(c, ix);
        const struct definition *d = definition_of(c, w);
        const struct class *k = class_of(c, w);
        bool holds = w->holds;
        if (holds) { /* compare the nodes as if it were not there */
                ledger_release(&node_at(c, w->node)->ledger, w->held);
                counts_unit_quietly(c, w, -1);
        }
        struct look *looks = arena_new_n(&c->step, struct look, c->n_nodes + 1);
        size_t n = 0;
        for (uint32_t i = 0; i < c->nodes.len; i++) {
                if (!c->nodes.at[i].id)
                        continue;
                struct look l = { .node = { i },
                                  .reasons = feasible_all(c, (struct node_ix){ i }, d, w->id),
                                  .shortfall = shortfall(c, (struct node_ix){ i }, k),
                                  .cost = place_cost(c, (struct node_ix){ i }, d),
                                  .rank = c->nodes.at[i].rank };
                l.first = l.reasons ? first_reason(l.reasons) : PB__REASON__E__none;
                looks[n++] = l;
        }
        if (n)
                qsort(looks, n, sizeof(*looks), better_look);
        Pb__Explanation x = PB__EXPLANATION__INIT;
        x.workload_id = w->id;
        x.phase = phase_shown(c, w);
        x.nodes = (int32_t)n;
        count_reasons(c, &x, looks, n);
        for (size_t i = 0; i < n && !x.nearest_miss; i++)
                if (looks[i].reasons)
                        x.nearest_miss = candidate(c, &looks[i], d, w->node);
        if (!x.feasible)
                ways_to_fit(c, &x, looks, n, d);
        if (w->over_quota)
                quota_remedy(c, w, &x);
        size_t shown = n < CANDIDATES_MAX ? n : CANDIDATES_MAX;
        x.candidates = arena_new_n(&c->step, Pb__Candidate *, shown + 1);
        for (size_t i = 0; i < shown; i++)
                x.candidates[x.n_candidates++] = candidate(c, &looks[i], d, w->node);
        Pb__Placement placement = PB__PLACEMENT__INIT;
        if (w->placed_at && node_ok(w->node)) {
                placement.node_id = node_at(c, w->node)->id;
                placement.reason = w->placed_reason;
                placement.score = w->score;
                placement.candidates = w->candidates;
                placement.placed_at = w->placed_at;
                placement.previous_node = w->previous_node;
                x.placement = &placement;
        }
        const char *misfit = no_longer_fits(c, w, looks, n);
        if (holds) {
                ledger_reserve(&node_at(c, w->node)->ledger, w->held);
                counts_unit_quietly(c, w, 1);
        }
        Pb__LastFailure failure = PB__LAST_FAILURE__INIT;
        Pb__IntValue exit_code = PB__INT_VALUE__INIT, signal = PB__INT_VALUE__INIT;
        last_failure(w, &failure, &exit_code, &signal);
        if (w->failure && !w->waiting &&
            /* not why it waits, or waited */
            (w->attempts || w->has_exit || w->has_signal || unit_is_finished(w)))
                x.last_failure = &failure;
        x.attempts = w->attempts;
        int32_t limit = workload_retry_limit(c, w);
        x.max_attempts = limit == RETRY_UNLIMITED ? 0 : limit;
        x.came_from = w->previous_node;
        x.resource_version = w->seq;
        x.summary = arena_printf(&c->step, "%s%s", summary(c, w, &x), misfit);
        x.next = "";
        next_step(c, w, &x);
        explain_exclusive(c, w, &x);
        reply_message(c, &x.base);
}
