/* core/drift.c: what a node says that it holds, compared with what it is known to have said, and
 * with the records (C27, A5).
 *
 * For every node the core keeps one number over what its agent has said of its units
 * (base/unit_hash.h), kept up to date with every report. A heartbeat carries the agent's own: if
 * they differ, a report was lost or the agent lost something, and the whole list is asked for at
 * once. When nothing is wrong nothing is written, and a heartbeat costs the same however many units
 * there are.
 *
 * A unit that is in a node's list and neither placed there by the records nor a tombstone is a
 * stranger. Where it came from decides:
 *   - an old copy of a workload that this store has since put elsewhere is removed: its token says
 *     so;
 *   - anything else is told of once, left alone and offered for adoption (adopt.c), or handled as
 *     core_options.strangers says. Nothing is removed on an unsure store: only what this very
 *     store, at this epoch, has given its token to, and only from an agent that says it belongs to
 *     this cluster.
 */
#include "core/drift.h"
#include "base/mutant.h"
#include "base/unit_hash.h"
#include "core/adopt.h"
#include "core/notice.h"
#include "core/orders.h"
#include "core/restore.h"
#include "core/state.h"
#include "core/step.h"
#include "core/workload.h"
#include <stdlib.h>
#include <string.h>

#define STRANGERS_MAX 10000 /* per node: as many as an agent holds */

static void say(struct node *n, uint64_t *said, uint64_t now)
{
        n->said_hash += now - *said;
        n->said_count += (uint32_t)(now != 0) - (uint32_t)(*said != 0);
        *said = now;
}

/* ---- strangers ---- */

/* Where it is, or where it would be inserted. */
static size_t position(const struct node *n, const char *id, bool *ret_found)
{
        size_t low = 0, high = n->strangers.len;
        *ret_found = false;
        while (low < high) {
                size_t middle = (low + high) / 2;
                int order = strcmp(n->strangers.at[middle].id, id);
                if (order == 0) {
                        *ret_found = true;
                        return middle;
                }
                if (order < 0)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

struct stranger *stranger_find(const struct node *n, const char *id)
{
        bool found;
        size_t at = position(n, id, &found);
        return found ? &n->strangers.at[at] : NULL;
}

static void shadow(struct core *c, const char *id, int by)
{
        struct unit_ix w = workload_find(c, id);
        if (unit_ok(w))
                unit_at(c, w)->shadows = (uint16_t)(unit_at(c, w)->shadows + by);
}

uint16_t strangers_named(const struct core *c, const char *id)
{
        uint16_t count = 0;
        for (uint32_t i = 0; c->n_strangers && i < c->nodes.len; i++)
                count = (uint16_t)(count + (c->nodes.at[i].id && c->nodes.at[i].strangers.len &&
                                            stranger_find(&c->nodes.at[i], id)));
        return count;
}

static struct stranger *stranger_add(struct core *c, struct node *n, const char *id)
{
        bool found;
        size_t at = position(n, id, &found);
        if (found)
                return &n->strangers.at[at];
        if (n->strangers.len >= STRANGERS_MAX)
                return NULL;
        array_push(&n->strangers);
        memmove(&n->strangers.at[at + 1], &n->strangers.at[at],
                (n->strangers.len - 1 - at) * sizeof(struct stranger));
        n->strangers.at[at] = (struct stranger){ .id = mem_strdup(id) };
        c->n_strangers++;
        shadow(c, id, 1);
        return &n->strangers.at[at];
}

/* Its place in the list is the caller's to close. */
static void stranger_forget(struct core *c, struct stranger *s)
{
        shadow(c, s->id, -1);
        mem_free(s->id);
        c->n_strangers--;
        c->capacity_change++; /* a workload of that name may come here now */
}

/* said: what its agent said of it stays said, by whoever stands for it now. */
uint64_t stranger_drop(struct core *c, struct node *n, const char *id)
{
        bool found;
        size_t at = position(n, id, &found);
        if (!found)
                return 0;
        uint64_t said = n->strangers.at[at].said;
        stranger_forget(c, &n->strangers.at[at]);
        memmove(&n->strangers.at[at], &n->strangers.at[at + 1],
                (n->strangers.len - 1 - at) * sizeof(struct stranger));
        n->strangers.len--;
        return said;
}

void strangers_free(struct core *c, struct node *n)
{
        for (size_t i = 0; i < n->strangers.len; i++) {
                shadow(c, n->strangers.at[i].id, -1);
                mem_free(n->strangers.at[i].id);
        }
        c->n_strangers -= (uint32_t)n->strangers.len;
        array_fini(&n->strangers);
}

/* ---- what was said ---- */

void drift_note(struct core *c, struct node_ix ix, struct unit_ix w, uint32_t t,
                const Pb__UnitStatus *u)
{
        struct node *n = node_at(c, ix);
        bool gone = u->state == PB__ACTUAL_STATE__E__Missing;
        uint64_t epoch = u->token ? u->token->epoch : 0, seq = u->token ? u->token->seq : 0;
        uint64_t now = gone ? 0 : unit_hash(u->unit_id, epoch, seq, (int)u->state);
        if (unit_ok(w) && unit_at(c, w)->node.v == ix.v)
                say(n, &unit_at(c, w)->said, now);
        else if (t != NONE)
                say(n, &c->tombstones.at[t].said, now);
        else if (gone) {
                uint64_t said = stranger_drop(c, n, u->unit_id);
                say(n, &said, 0);
        } else {
                struct stranger *s = stranger_add(c, n, u->unit_id);
                if (!s)
                        return;
                say(n, &s->said, now);
                if (s->token_epoch != epoch || s->token_seq != seq)
                        s->verdict = VERDICT_UNKNOWN, s->refused = false; /* a claim of its own */
                s->token_epoch = epoch;
                s->token_seq = seq;
                s->state = (uint8_t)u->state;
                s->seen = c->report_number;
        }
}

void drift_unsay(struct core *c, struct node_ix n, uint64_t *said)
{
        say(node_at(c, n), said, 0);
}

/* A whole list has been taken: what it did not mention is not there. */
void drift_whole(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        for (struct unit_ix w = n->units; unit_ok(w); w = unit_at(c, w)->node_next)
                if (unit_at(c, w)->seen != c->report_number)
                        say(n, &unit_at(c, w)->said, 0);
        for (uint32_t t = n->tombstones; t != NONE; t = c->tombstones.at[t].next)
                if (c->tombstones.at[t].seen != c->report_number)
                        say(n, &c->tombstones.at[t].said, 0);
        size_t kept = 0, all = n->strangers.len;
        /* in one pass: a node may have thousands, and drop every other one */
        for (size_t i = 0; i < all; i++) {
                struct stranger *s = &n->strangers.at[i];
                if (s->seen == c->report_number)
                        n->strangers.at[kept++] = *s;
                else {
                        say(n, &s->said, 0);
                        stranger_forget(c, s);
                }
        }
        n->strangers.len = kept;
}

struct listed {
        ProtobufCMessage *unit;
        size_t at;
};

static int by_id(const void *a, const void *b)
{
        const struct listed *x = a, *y = b;
        int order = strcmp(((const Pb__UnitStatus *)x->unit)->unit_id,
                           ((const Pb__UnitStatus *)y->unit)->unit_id);
        /* of two words on one unit the last one stays the last */
        return order ? order : (x->at > y->at) - (x->at < y->at);
}

ProtobufCMessage *const *drift_in_order(struct core *c, ProtobufCMessage *const *units, size_t n)
{
        size_t i = 1;
        while (i < n && strcmp(((const Pb__UnitStatus *)units[i - 1])->unit_id,
                               ((const Pb__UnitStatus *)units[i])->unit_id) <= 0)
                i++;
        if (i >= n)
                return units;
        struct listed *list = arena_alloc(&c->step, n * sizeof(*list));
        ProtobufCMessage **sorted = arena_alloc(&c->step, n * sizeof(ProtobufCMessage *));
        for (i = 0; i < n; i++)
                list[i] = (struct listed){ units[i], i };
        qsort(list, n, sizeof(*list), by_id);
        for (i = 0; i < n; i++)
                sorted[i] = list[i].unit;
        return sorted;
}

bool drift_is_seen(const struct node *n, const Pb__Heartbeat *beat)
{
        return !n->push && !MUTANT(drift_not_seen) &&
               (beat->units_hash != n->said_hash || (uint32_t)beat->units_count != n->said_count);
}

/* ---- what is done about strangers ---- */

/* A copy that this store once launched, of a workload that is not on this node: whatever became of
 * its tombstone (the node was forgotten, and came back), it is an old one. A node that came from
 * another cluster has tokens of that one, which say nothing here unless their epoch is ours. */
static bool is_superseded(const struct core *c, const struct node *n, const Pb__UnitStatus *u)
{
        if (!u->token || !u->token->seq || token_is_lost(c, u->token->epoch, u->token->seq))
                return false;
        return (u->token->epoch < c->epoch && !n->adopted_from) ||
               (u->token->epoch == c->epoch && u->token->seq <= c->head);
}

/* This store gave it its token, and knows no workload of that name any more. */
static bool is_surely_gone(const struct core *c, const struct node *n, const Pb__UnitStatus *u)
{
        return n->sure && u->token && u->token->seq && u->token->epoch == c->epoch &&
               u->token->seq <= c->head;
}

static void remove_stranger(struct core *c, struct node_ix ix, struct stranger *s,
                            const Pb__UnitStatus *u, const char *why)
{
        if (!s->told) {
                s->told = true;
                Pb__Event e = PB__EVENT__INIT;
                e.type = PB__EVENT_TYPE__E__DriftDetected;
                e.node_id = node_at(c, ix)->id;
                e.action = "Delete";
                e.message = arena_printf(&c->step, "%s: %s", u->unit_id, why);
                notice_of_node(c, ix, &e);
        }
        s->leaves = true;
        unit_send_removal(c, ix, u->unit_id, u->token->epoch, u->token->seq);
}

void drift_stranger(struct core *c, struct node_ix ix, struct unit_ix w, const Pb__UnitStatus *u)
{
        struct node *n = node_at(c, ix);
        struct stranger *s = stranger_find(n, u->unit_id);
        if (!s)
                return;
        s->leaves = false;
        s->ahead = unit_ok(w) && unit_is_ahead(c, unit_at(c, w), u);
        if (unit_ok(w) && is_superseded(c, n, u))
                remove_stranger(c, ix, s, u, "an old copy of a workload that is elsewhere now");
        else if (!unit_ok(w) && c->opt.strangers == STRANGERS_REMOVE && is_surely_gone(c, n, u))
                remove_stranger(c, ix, s, u, "no workload of this name exists any more");
}

/* What a hello brought to light is acted on when the stream has its plan. */
void drift_removals(struct core *c, struct node_ix ix)
{
        const struct node *n = node_at(c, ix);
        for (size_t i = 0; i < n->strangers.len; i++)
                if (n->strangers.at[i].leaves)
                        unit_send_removal(c, ix, n->strangers.at[i].id,
                                          n->strangers.at[i].token_epoch,
                                          n->strangers.at[i].token_seq);
}

/* Told once of each; what stays as it is says nothing new (A6). */
void drift_tell(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        uint32_t count = 0;
        struct str names = STR_INIT;
        for (size_t i = 0; i < n->strangers.len; i++) {
                struct stranger *s = &n->strangers.at[i];
                if (s->told || s->leaves)
                        continue;
                s->told = true;
                count++;
                if (names.len < 200)
                        str_addf(&names, "%s%s", names.len ? ", " : "", s->id);
        }
        if (count) {
                Pb__Event e = PB__EVENT__INIT;
                e.type = PB__EVENT_TYPE__E__UnitUnknown;
                e.node_id = n->id;
                e.message = arena_printf(
                    &c->step,
                    "%u units that the records do not know run there and are left alone: %s%s",
                    count, str_c(&names), names.len < 200 ? "" : ", ...");
                notice_of_node(c, ix, &e);
                decision_done(c);
        }
        str_fini(&names);
        adopt_by_itself(c, ix);
}
