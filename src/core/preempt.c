/* core/preempt.c: higher priorities take the place of lower ones (C38).
 *
 *      a workload waits, and lower priorities hold what it needs
 *          --> on one node the fewest and lowest of them make room (Rescheduled, reason preempted),
 *              the node is kept for the one that waits
 *          --> their copies are proved gone --> it is placed like anybody who waits
 *
 * What is freed is free only when the agent has proved it; until then the room on the node, ports
 * included, is kept for the one who asked (hold.h), or others would take it piece by piece, and
 * more and more units would have to move for nothing. Holds are live: after a restart, the copies
 * that are about to go still show where room will be, and nobody moves twice.
 *
 * Which node: the one where the highest of those who must leave is lowest, then where fewest must,
 * then the best one. Who on a node: everybody lower leaves in thought, and comes back as long as
 * the newcomer still fits: the highest priority first, of equals the smallest. So nobody leaves
 * whose leaving does not help.
 *
 * Limits: preempt_per_minute units in all, as a pace (budget_allows()); one that had to move is
 * left alone, and may not take another's place, for preempt_grace_ms; a few looks per round, a
 * round at most every pass; what a round has no looks left for is first in the next. Only amounts
 * and host ports can be freed so; whoever is kept out by a taint or a neighbour waits.
 *
 * Invariant (P7): who makes room has a strictly lower priority than the one it makes room for.
 */
#include "core/preempt.h"
#include "base/mutant.h"
#include "core/feasible.h"
#include "core/fence.h"
#include "core/place.h"
#include "core/state.h"
#include "core/step.h"
#include "core/workload.h"
#include <stdlib.h>
#include <string.h>

#define BIT(r) (UINT64_C(1) << PB__REASON__E__##r)
#define LOOKS_PER_ROUND 8
#define VICTIMS_MAX 32
/* how long a node is kept for one who waits, and how long a copy may be about to go */
#define SOON_MS 120000

/* ---- priorities that hold a place ---- */

/* Rounds go on by themselves while anybody waits who has lower ones below it; this begins them. */
static void round_at(struct core *c, int64_t at_ms)
{
        c->preempt_at = at_ms < c->preempt_at ? at_ms : c->preempt_at;
}

void priority_count(struct core *c, int32_t priority, int by)
{
        size_t at = 0, end = c->priorities.len;
        while (at < end) {
                size_t middle = (at + end) / 2;
                if (c->priorities.at[middle].priority < priority)
                        at = middle + 1;
                else
                        end = middle;
        }
        if (at == c->priorities.len || c->priorities.at[at].priority != priority) {
                must(by > 0, "P7: what is uncounted was counted");
                array_push(&c->priorities);
                memmove(&c->priorities.at[at + 1], &c->priorities.at[at],
                        (c->priorities.len - 1 - at) * sizeof(*c->priorities.at));
                c->priorities.at[at] = (struct priority_units){ .priority = priority };
                if (at == 0 && c->started && c->waiting_first != NONE &&
                    c->classes.at[c->waiting_first].priority > priority)
                        /* those who wait have somebody below them now */
                        round_at(c, c->now_ms + c->opt.pass_ms);
        }
        c->priorities.at[at].units += (uint32_t)by;
        if (c->priorities.at[at].units)
                return;
        memmove(&c->priorities.at[at], &c->priorities.at[at + 1],
                (c->priorities.len - 1 - at) * sizeof(*c->priorities.at));
        c->priorities.len--;
}

static bool somebody_is_lower(const struct core *c, int32_t priority)
{
        return c->priorities.len && c->priorities.at[0].priority < priority;
}

static bool moved_lately(const struct core *c, const struct unit *w)
{
        return w->preempted_at && !MUTANT(preempt_without_grace) &&
               c->now_ms - w->preempted_at < c->opt.preempt_grace_ms;
}

void preempt_wanted(struct core *c, const struct unit *w)
{
        if (has_hold(w) || unit_is_pinned(c, w) || c->opt.preempt_per_minute <= 0 ||
            !somebody_is_lower(c, class_of(c, w)->priority))
                return;
        class_of(c, w)->preempt_sweep = 0;
        round_at(c, moved_lately(c, w) ? c->now_ms + c->opt.pass_ms : c->now_ms);
}

/* ---- room that is kept ---- */

/* Amounts that are about to be free: of copies that have been told to go, not long ago. */
static struct amounts soon_free(const struct core *c, const struct node *n)
{
        struct amounts sum = { 0 };
        for (uint32_t t = n->tombstones; t != NONE; t = c->tombstones.at[t].next)
                if (c->now_ms - c->tombstones.at[t].created_at < SOON_MS)
                        sum = amounts_add(sum, c->tombstones.at[t].held);
        return sum;
}

static bool is_useful(const struct core *c, const struct hold *h)
{
        const struct node *n = &c->nodes.at[h->node];
        return node_takes_units(c, n) && n->n_tombstones;
}

/* ---- who makes room ---- */

struct victim {
        struct unit_ix w;
        int32_t priority;
        uint32_t size; /* its share of the node */
        const char *id;
};

struct room {
        struct node_ix node;
        int32_t highest;
        uint64_t cost;
        size_t n;
        struct victim victims[VICTIMS_MAX];
};

static int highest_and_smallest_first(const void *a, const void *b)
{
        const struct victim *x = a, *y = b;
        if (x->priority != y->priority)
                return x->priority > y->priority ? -1 : 1;
        if (x->size != y->size)
                return x->size < y->size ? -1 : 1;
        return strcmp(x->id, y->id);
}

static struct victim *lower_ones(struct core *c, struct node_ix n, int32_t priority, size_t *ret_n)
{
        const struct node *node = node_at(c, n);
        struct victim *all = arena_new_n(&c->step, struct victim, node->n_units + 1);
        *ret_n = 0;
        for (struct unit_ix w = node->units; unit_ok(w); w = unit_at(c, w)->node_next) {
                const struct unit *u = unit_at(c, w);
                const struct class *k = class_of(c, u);
                if (!u->holds || u->desired == PB__DESIRED_STATE__E__Deleted ||
                    k->priority >= priority + MUTANT(preempt_equals) || moved_lately(c, u) ||
                    unit_is_pinned(c, u))
                        continue;
                struct ledger share = { .total = node->ledger.total, .reserved = k->need };
                all[(*ret_n)++] =
                    (struct victim){ w, k->priority, ledger_utilisation(&share), u->id };
        }
        if (*ret_n)
                qsort(all, *ret_n, sizeof(*all), highest_and_smallest_first);
        return all;
}

static bool has_port_of(const struct core *c, struct unit_ix w, const struct constraints *wanted)
{
        const struct constraints *m = class_of(c, unit_get(c, w))->more;
        for (uint32_t i = 0; m && wanted && i < m->n_ports; i++)
                for (uint32_t p = 0; p < wanted->n_ports; p++)
                        if (m->ports[i] == wanted->ports[p])
                                return true;
        return false;
}

/* Every port that it wants and that is taken is held by one of them, and none is kept for another
 * one. */
static bool ports_can_be_freed(const struct core *c, const struct node *n,
                               const struct constraints *wanted, const struct victim *all,
                               size_t count)
{
        if (wanted && ports_kept(n, wanted->ports, wanted->n_ports))
                return false;
        for (uint32_t p = 0; wanted && p < wanted->n_ports; p++) {
                bool free = !ports_taken(n, &wanted->ports[p], 1);
                struct constraints one = { .ports = &wanted->ports[p], .n_ports = 1 };
                for (size_t i = 0; i < count && !free; i++)
                        free = has_port_of(c, all[i].w, &one);
                if (!free)
                        return false;
        }
        return true;
}

/* Without them the newcomer's neighbours must still be as it wants them. */
static bool neighbours_stay_right(struct core *c, const struct room *r, const struct definition *d)
{
        if (!c->classes.at[d->class].more)
                return true;
        for (size_t i = 0; i < r->n; i++)
                counts_unit_quietly(c, unit_at(c, r->victims[i].w), -1);
        bool right = !constraints_against(c, r->node, d);
        for (size_t i = 0; i < r->n; i++)
                counts_unit_quietly(c, unit_at(c, r->victims[i].w), 1);
        return right;
}

/* Who must leave this node so that it fits; false: nobody's leaving would do, or too many would
 * have to. */
static bool make_room(struct core *c, struct node_ix n, const struct definition *d,
                      struct room *ret)
{
        const struct class *k = &c->classes.at[d->class];
        const struct node *node = node_at(c, n);
        size_t count;
        struct victim *all = lower_ones(c, n, k->priority, &count);
        struct amounts room = amounts_add(node_room(node), soon_free(c, node));
        for (size_t i = 0; i < count; i++)
                room = amounts_add(room, unit_at(c, all[i].w)->held);
        if (!amounts_fit(k->need, room) || !ports_can_be_freed(c, node, k->more, all, count))
                return false;
        ret->node = n;
        ret->n = 0;
        ret->highest = INT32_MIN;
        for (size_t i = 0; i < count; i++) {
                struct amounts without = amounts_sub(room, unit_at(c, all[i].w)->held);
                if (amounts_fit(k->need, without) && !has_port_of(c, all[i].w, k->more)) {
                        room = without; /* it may stay */
                        continue;
                }
                if (ret->n == VICTIMS_MAX)
                        return false;
                ret->highest = all[i].priority > ret->highest ? all[i].priority : ret->highest;
                ret->victims[ret->n++] = all[i];
        }
        ret->cost = place_cost(c, n, d);
        return neighbours_stay_right(c, ret, d);
}

static bool better_room(const struct core *c, const struct room *a, const struct room *b)
{
        if (a->highest != b->highest)
                return a->highest < b->highest;
        if (a->n != b->n)
                return a->n < b->n;
        if (a->cost != b->cost)
                return a->cost < b->cost;
        return node_get(c, a->node)->rank < node_get(c, b->node)->rank;
}

static bool find_room(struct core *c, struct unit_ix ix, struct room *best)
{
        const uint64_t can_be_freed = BIT(cpu_insufficient) | BIT(memory_insufficient) |
                                      BIT(disk_insufficient) | BIT(port_taken);
        const struct unit *w = unit_at(c, ix);
        const struct definition *d = definition_of(c, w);
        struct room *here = arena_new(&c->step, struct room);
        bool found = false;
        if (c->ranks_stale)
                ranks_refresh(c);
        if (w->holds)
                counts_unit_quietly(c, w, -1);
        for (uint32_t i = 0; i < c->nodes.len; i++) {
                struct node_ix n = { i };
                /* one that has finished there may well come back */
                bool leaves = w->holds && i == w->node.v;
                if (!c->nodes.at[i].id || leaves ||
                    !amounts_fit(class_of(c, w)->need, c->nodes.at[i].ledger.total) ||
                    feasible_all(c, n, d, w->id) & ~can_be_freed)
                        continue;
                if (make_room(c, n, d, here) && (!found || better_room(c, here, best))) {
                        *best = *here;
                        found = true;
                }
        }
        if (w->holds)
                counts_unit_quietly(c, w, 1);
        return found;
}

/* ---- rounds ---- */

static void move_away(struct core *c, struct unit_ix victim, const struct unit *for_whom,
                      int32_t priority)
{
        must(class_of(c, unit_at(c, victim))->priority < priority || MUTANT(preempt_equals),
             "P7: only lower priorities make room");
        waiting_remove(c, victim);
        c->stats.preemptions++;
        c->preempt_used++;
        unit_leave(c, victim, PB__REASON__E__preempted,
                   arena_printf(&c->step, "made room for %s (priority %d, its own is %d)",
                                for_whom->id, priority, class_of(c, unit_at(c, victim))->priority));
        unit_mark_dirty(c, victim);
}

static void take_room(struct core *c, struct unit_ix ix, const struct room *r)
{
        struct str who = STR_INIT;
        hold_for_unit(c, ix, r->node, c->now_ms + SOON_MS);
        for (size_t i = 0; i < r->n; i++) {
                str_addf(&who, "%s%s", i ? ", " : "", r->victims[i].id);
                move_away(c, r->victims[i].w, unit_at(c, ix),
                          class_of(c, unit_at(c, ix))->priority);
        }
        if (r->n) {
                struct unit *w = unit_at(c, ix);
                Pb__Event e = PB__EVENT__INIT;
                e.type = PB__EVENT_TYPE__E__WorkloadPending;
                e.workload_id = w->id;
                e.node_id = node_at(c, r->node)->id;
                e.reason = w->reason;
                e.message =
                    arena_printf(&c->step, "waits for %s, where lower priorities make room: %s",
                                 node_at(c, r->node)->id, str_c(&who));
                emit(c, &e);
        }
        str_fini(&who);
        decision_done(c);
}

/* It is a pace and no ban: who needs more victims than a minute has takes them at the beginning of
 * one, and the minutes after it as well. Otherwise it would wait for ever, and everybody behind
 * it. */
static bool budget_allows(struct core *c, size_t n)
{
        int64_t per_minute = c->opt.preempt_per_minute,
                minutes = (c->steady_ms - c->preempt_since) / 60000;
        if (minutes > 0) {
                c->preempt_since = c->steady_ms;
                c->preempt_used =
                    minutes < c->preempt_used && minutes * per_minute < c->preempt_used
                        ? (uint32_t)(c->preempt_used - minutes * per_minute)
                        : 0;
        }
        return c->preempt_used + (int64_t)n <= per_minute ||
               (c->preempt_used == 0 && (int64_t)n > per_minute);
}

/* Those who wait in one class; false: enough for this round. */
static bool preempt_for_class(struct core *c, uint32_t ki, unsigned *looks)
{
        struct room *r = arena_new(&c->step, struct room);
        for (uint32_t w = c->classes.at[ki].first; w != NONE; w = c->units.at[w].wait_next.v) {
                struct unit_ix ix = { w };
                if (has_hold(unit_at(c, ix)) || moved_lately(c, unit_at(c, ix)) ||
                    unit_is_pinned(c, unit_at(c, ix)))
                        continue;
                if ((*looks)++ == LOOKS_PER_ROUND || step_is_full(c))
                        return false;
                if (!find_room(c, ix, r))
                        return true; /* nobody of this class will do better */
                if (!budget_allows(c, r->n))
                        return false;
                take_room(c, ix, r);
        }
        return true;
}

void preempt_some(struct core *c)
{
        if (c->now_ms < c->preempt_at)
                return;
        unsigned looks = 0;
        uint32_t before = c->preempt_used;
        bool wanted = false, more = false;
        holds_review(c, is_useful);
        c->preempt_at = INT64_MAX;
        for (uint32_t k = c->waiting_first; k != NONE && !more; k = c->classes.at[k].next_waiting) {
                if (c->opt.preempt_per_minute <= 0 ||
                    !somebody_is_lower(c, c->classes.at[k].priority))
                        break; /* they are in order */
                wanted = true;
                if (c->classes.at[k].preempt_sweep == c->preempt_sweep + 1)
                        /* the others first: those who find nothing must not use up all looks */
                        continue;
                more = !preempt_for_class(c, k, &looks);
                if (!more)
                        c->classes.at[k].preempt_sweep = c->preempt_sweep + 1;
        }
        c->preempt_sweep += !more;
        if (more && c->preempt_used != before)
                c->preempt_at = c->now_ms + 1000;
        else if (wanted || more || c->holds.len > c->free_holds.len)
                c->preempt_at = c->now_ms + c->opt.pass_ms;
}
