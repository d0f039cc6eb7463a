/* core/brake.c: see brake.h for the rule, and for what is counted. */
#include "core/brake.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "core/definitions.h"
#include "core/evict.h"
#include "core/node.h"
#include "core/state.h"
#include "core/step.h"
#include <stdlib.h>
#include <string.h>

#define SWEEP_NODES 4096 /* looked at in one step */

bool brake_rule(const struct brake_counts *n, int32_t percent)
{
        uint64_t all = n->nodes, silent = n->silent, heard = all - silent;
        bool one_whole_zone = n->zones_hit == 1 && n->zones_whole == 1 && !n->unzoned_silent;
        if (silent * 100 > all * (uint64_t)percent &&
            !(one_whole_zone && heard * 3 >= all && !MUTANT(burnt_zone_held)))
                return true;
        /* In a single zone "each of them" says nothing. */
        return n->zones > 1 && n->zones_hit == n->zones && heard * 2 < all &&
               !MUTANT(spread_loss_moves);
}

static struct map_key zone_key(const void *ctx, uint32_t i)
{
        const struct core *c = ctx;
        return (struct map_key){ c->brake.zones.at[i].name, strlen(c->brake.zones.at[i].name) };
}

void brake_init(struct core *c)
{
        map_init(&c->brake.zone_by_name, zone_key, c);
        *array_push(&c->brake.zones) = (struct zone){ 0 };
        c->brake.sweep_at = INT64_MAX;
        c->brake.sweep_next = NONE;
        c->brake.wave = 1;
}

void brake_fini(struct core *c)
{
        for (size_t i = 0; i < c->brake.zones.len; i++)
                mem_free(c->brake.zones.at[i].name);
        array_fini(&c->brake.zones);
        array_fini(&c->brake.free_zones);
        map_fini(&c->brake.zone_by_name);
}

/* ---- counting ---- */

static uint32_t zone_of(struct core *c, const struct node *n)
{
        struct brake *b = &c->brake;
        const char *name = label_get(n->labels, n->n_labels, ZONE_LABEL);
        if (str_empty(name))
                return ZONE_NONE;
        uint32_t z = map_get(&b->zone_by_name, name, strlen(name));
        if (z != MAP_NONE)
                return z;
        if (b->free_zones.len)
                z = array_pop(&b->free_zones);
        else {
                array_push(&b->zones);
                z = (uint32_t)b->zones.len - 1;
        }
        b->zones.at[z] = (struct zone){ .name = mem_strdup(name) };
        map_put(&b->zone_by_name, z);
        return z;
}

static void zone_unref(struct core *c, uint32_t z)
{
        struct brake *b = &c->brake;
        struct zone *zone = &b->zones.at[z];
        must(zone->nodes > 0, "B1: a zone counts its nodes");
        if (--zone->nodes || z == ZONE_NONE)
                return;
        /* nobody is left there to be heard or silent */
        if (b->running && zone->wave == b->wave && zone->counted) {
                b->counts.zones--;
                zone->counted = 0;
        }
        map_remove(&b->zone_by_name, z);
        mem_free(zone->name);
        *zone = (struct zone){ 0 };
        *array_push(&b->free_zones) = z;
}

/* Its part of the wave under way. It is made when something changes there for the first time since
 * the wave began: until then it is what it was, so that a wave costs the zones that it reaches and
 * not all. */
static struct zone *zone_touch(struct core *c, uint32_t z)
{
        struct brake *b = &c->brake;
        struct zone *zone = &b->zones.at[z];
        if (zone->wave != b->wave) {
                zone->wave = b->wave;
                zone->counted = zone->ready;
                zone->silent = 0;
                zone->told = false;
        }
        return zone;
}

static bool is_whole_for(const struct zone *zone, uint64_t wave)
{
        return wave && zone->whole_from <= wave && wave <= zone->whole_to;
}

/* In the wave under way all are silent; then so are those that were before. */
static void note_whole(const struct brake *b, struct zone *zone)
{
        if (!zone->silent || zone->silent != zone->counted)
                return;
        zone->whole_to = b->wave;
        if (zone->whole_from > b->wave)
                zone->whole_from = b->wave;
}

/* by is 1 or -1. */
static void count_silent(struct core *c, uint32_t z, int by)
{
        struct brake_counts *n = &c->brake.counts;
        struct zone *zone = zone_touch(c, z);
        bool was_hit = zone->silent > 0, was_whole = was_hit && zone->silent == zone->counted;
        zone->silent += (uint32_t)by;
        n->silent += (uint32_t)by;
        if (z == ZONE_NONE) {
                n->unzoned_silent += (uint32_t)by;
                return;
        }
        bool hit = zone->silent > 0, whole = hit && zone->silent == zone->counted;
        note_whole(&c->brake, zone);
        n->zones_hit += (uint32_t)(hit - was_hit);
        n->zones_whole += (uint32_t)(whole - was_whole);
}

static void count_ready(struct core *c, uint32_t z, int by)
{
        struct brake *b = &c->brake;
        struct zone *zone = zone_touch(c, z);
        bool had = zone->ready > 0;
        zone->ready += (uint32_t)by;
        b->ready += (uint32_t)by;
        if (z != ZONE_NONE)
                b->zones_ready += (uint32_t)((zone->ready > 0) - had);
}

static bool suspects(const struct core *c)
{
        return c->brake.running && c->n_nodes >= BRAKE_NODES_MIN &&
               brake_rule(&c->brake.counts, c->opt.brake_percent) && !MUTANT(brake_ignored);
}

static int64_t wave_ms(const struct core *c)
{
        return c->opt.evict_grace_ms > c->opt.heartbeat_ms ? c->opt.evict_grace_ms
                                                           : c->opt.heartbeat_ms;
}

static void wave_begin(struct core *c, int64_t at)
{
        struct brake *b = &c->brake;
        b->wave++;
        b->running = true;
        b->since = at;
        b->counts = (struct brake_counts){ .nodes = b->ready, .zones = b->zones_ready };
}

void brake_end(struct core *c)
{
        struct brake *b = &c->brake;
        b->wave++; /* who was counted in it is not any more */
        b->running = b->holds = false;
        b->counts = (struct brake_counts){ 0 };
        b->sweep_at = INT64_MAX;
}

void brake_node_silent(struct core *c, struct node_ix ix, int64_t at)
{
        struct brake *b = &c->brake;
        struct node *n = node_at(c, ix);
        if (!n->counted)
                return;
        if (!b->running || (at > b->since + wave_ms(c) && !suspects(c)))
                wave_begin(c, at);
        zone_touch(c, n->zone);
        if (n->came_in != b->wave) {
                n->silent_in = b->wave;
                count_silent(c, n->zone, 1);
        }
        n->counted = false;
        count_ready(c, n->zone, -1);
}

void brake_node_heard(struct core *c, struct node_ix ix)
{
        struct brake *b = &c->brake;
        struct node *n = node_at(c, ix);
        if (n->counted)
                return;
        struct zone *zone = &b->zones.at[n->zone];
        if (n->silent_in == b->wave)
                count_silent(c, n->zone, -1);
        else
                n->came_in = b->wave;
        if (n->silent_in >= zone->whole_from)
                zone->whole_from = n->silent_in + 1;
        n->silent_in = 0;
        n->counted = true;
        count_ready(c, n->zone, 1);
}

/* As if it had never been there. */
static void uncount(struct core *c, struct node_ix ix)
{
        struct brake *b = &c->brake;
        struct node *n = node_at(c, ix);
        struct zone *zone = zone_touch(c, n->zone);
        bool silent = n->silent_in == b->wave,
             counted = b->running && (silent || (n->counted && n->came_in != b->wave));
        if (silent)
                count_silent(c, n->zone, -1);
        n->silent_in = 0;
        if (n->counted)
                count_ready(c, n->zone, -1);
        if (!counted)
                return;
        b->counts.nodes--;
        if (n->zone == ZONE_NONE)
                return;
        bool was_whole = zone->silent && zone->silent == zone->counted;
        zone->counted--;
        b->counts.zones -= zone->counted == 0;
        b->counts.zones_whole +=
            (uint32_t)((zone->silent && zone->silent == zone->counted) - was_whole);
        note_whole(b, zone);
}

void brake_node_zone(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        uint32_t z = zone_of(c, n);
        c->brake.zones.at[z].nodes++;
        if (!n->zoned) {
                n->zoned = true;
                n->zone = z;
                return;
        }
        uint32_t before = n->zone;
        if (before != z) {
                bool counted = n->counted;
                uncount(c, ix);
                n->counted = false;
                n->zone = z;
                if (counted)
                        brake_node_heard(c, ix);
        }
        zone_unref(c, before);
}

void brake_node_out(struct core *c, struct node_ix ix)
{
        uncount(c, ix);
        node_at(c, ix)->counted = false;
}

void brake_node_gone(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        if (!n->zoned)
                return;
        uncount(c, ix);
        zone_unref(c, n->zone);
}

/* ---- after loading ---- */

struct moment {
        int64_t at;
        uint8_t what; /* 0: was there, 1: an operator's word, 2: fell silent */
        uint32_t node;
};

static int by_time(const void *a, const void *b)
{
        const struct moment *x = a, *y = b;
        if (x->at != y->at)
                return x->at < y->at ? -1 : 1;
        if (x->what != y->what)
                return x->what < y->what ? -1 : 1;
        return x->node < y->node ? -1 : x->node > y->node;
}

/* What the records still tell is lived through again, in its order. That a node was away for a
 * while and is back they do not tell: it counts as having been there. */
void brake_rebuild(struct core *c)
{
        struct brake *b = &c->brake;
        if (!b->stale)
                return;
        b->stale = false;
        ARRAY(struct moment) moments = { 0 };
        for (uint32_t i = 0; i < c->nodes.len; i++) {
                const struct node *n = &c->nodes.at[i];
                if (n->id && !n->zoned) /* a record that says nothing of its attributes */
                        brake_node_zone(c, (struct node_ix){ i });
                bool lost = n->id && n->status == PB__NODE_STATUS__E__NotReady;
                if (!n->id || n->counted || n->expelled_at ||
                    (lost && str_eq(n->status_by, "register")))
                        continue; /* the last: taken over, and never heard */
                int64_t came =
                    lost && n->status_at < n->registered_at ? n->status_at : n->registered_at;
                *array_push(&moments) = (struct moment){ .at = came, .node = i };
                if (lost)
                        *array_push(&moments) =
                            (struct moment){ .at = n->status_at, .what = 2, .node = i };
        }
        if (c->evict_ordered_at)
                *array_push(&moments) = (struct moment){ .at = c->evict_ordered_at, .what = 1 };
        if (moments.len)
                qsort(moments.at, moments.len, sizeof(struct moment), by_time);
        for (size_t i = 0; i < moments.len; i++) {
                const struct moment *m = &moments.at[i];
                if (m->what == 0)
                        brake_node_heard(c, (struct node_ix){ m->node });
                else if (m->what == 1)
                        brake_end(c);
                else
                        brake_node_silent(c, (struct node_ix){ m->node }, m->at);
        }
        array_fini(&moments);
}

/* ---- deciding ---- */

void brake_fill(const struct core *c, uint32_t z, Pb__Brake *ret)
{
        const struct brake *b = &c->brake;
        const struct zone *zone = &b->zones.at[z < b->zones.len ? z : ZONE_NONE];
        bool touched = zone->wave == b->wave;
        pb__brake__init(ret);
        ret->zone = zone->name ? zone->name : "";
        ret->zone_nodes = !b->running ? 0 : touched ? zone->counted : zone->ready;
        ret->zone_silent = b->running && touched ? zone->silent : 0;
        ret->nodes = b->counts.nodes;
        ret->silent = b->counts.silent;
        ret->zones = b->counts.zones;
        ret->zones_hit = b->counts.zones_hit;
        ret->limit_percent = (uint32_t)c->opt.brake_percent;
        ret->units_per_second = (uint32_t)c->opt.evict_per_second;
        ret->since = b->running ? b->since : 0;
}

/* "7 of 12 nodes (the limit is 55 %), in 2 of 3 zones; zone a: 4 of 4" */
static char *counted_words(struct core *c, const Pb__Brake *k)
{
        char *text = arena_printf(&c->step, "%u of %u nodes are silent (the limit is %u %%)",
                                  k->silent, k->nodes, k->limit_percent);
        if (k->zones)
                text =
                    arena_printf(&c->step, "%s, in %u of %u zones", text, k->zones_hit, k->zones);
        return str_empty(k->zone) ? text
                                  : arena_printf(&c->step, "%s; of zone %s %u of %u", text, k->zone,
                                                 k->zone_silent, k->zone_nodes);
}

static void tell(struct core *c, Pb__EventType__E type, struct node_ix ix, const char *state,
                 const char *what)
{
        Pb__Brake counted;
        brake_fill(c, node_at(c, ix)->zone, &counted);
        counted.state = (char *)state;
        Pb__Event e = PB__EVENT__INIT;
        e.type = type;
        e.node_id = node_at(c, ix)->id;
        e.reason = PB__REASON__E__node_lost;
        e.message = arena_printf(&c->step, "%s: %s", counted_words(c, &counted), what);
        e.brake = &counted;
        emit(c, &e);
}

static void hold(struct core *c, struct node_ix ix)
{
        struct brake *b = &c->brake;
        struct node *n = node_at(c, ix);
        if (!n->held) {
                n->held = true;
                c->n_held++;
        }
        if (b->holds)
                return;
        b->holds = true;
        b->zone = n->zone;
        b->sweep_at = INT64_MAX;
        tell(c, PB__EVENT_TYPE__E__EvictionHeld, ix, "held",
             "this server may be the one that is cut off, so units stay where they are until some "
             "return (berth evict moves "
             "them all the same)");
}

void brake_unhold(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        c->n_held -= n->held;
        n->held = false;
}

/* Somebody to tell it of: an event about nodes names one. */
static struct node_ix any_node(const struct core *c)
{
        struct node_ix found = NODE_NONE;
        for (uint32_t i = 0; i < c->nodes.len; i++) {
                if (!c->nodes.at[i].id)
                        continue;
                found.v = i;
                if (c->nodes.at[i].held)
                        break;
        }
        return found;
}

void brake_review(struct core *c, struct node_ix about)
{
        struct brake *b = &c->brake;
        if (!b->holds || suspects(c))
                return;
        b->holds = false;
        b->released_at = c->now_ms;
        b->sweep_at = c->now_ms + c->opt.evict_grace_ms;
        about = node_ok(about) ? about : any_node(c);
        if (node_ok(about))
                tell(c, PB__EVENT_TYPE__E__EvictionResumed, about, "",
                     "units of those that stay lost are moved after one more grace");
}

enum brake_verdict brake_judge(struct core *c, struct node_ix ix)
{
        struct brake *b = &c->brake;
        struct node *n = node_at(c, ix);
        if (evict_is_ordered(c, n)) {
                brake_unhold(c, ix);
                return BRAKE_MOVES;
        }
        if (suspects(c)) {
                hold(c, ix);
                return BRAKE_HOLDS;
        }
        brake_review(c, ix);
        if (c->now_ms < evict_due_ms(c, n)) /* it let go just now */
                return BRAKE_HOLDS;
        brake_unhold(c, ix);
        const struct zone *zone = &b->zones.at[n->zone];
        bool whole = n->zone != ZONE_NONE && is_whole_for(zone, n->silent_in);
        return whole || !c->opt.evict_per_second || MUTANT(pace_ignored) ? BRAKE_MOVES
                                                                         : BRAKE_PACES;
}

void brake_tell_paced(struct core *c, struct node_ix ix)
{
        struct zone *zone = zone_touch(c, node_at(c, ix)->zone);
        if (zone->told)
                return;
        zone->told = true;
        c->brake.zone = node_at(c, ix)->zone;
        tell(c, PB__EVENT_TYPE__E__EvictionPaced, ix, "paced",
             arena_printf(&c->step,
                          "not a whole zone, so units move at most %d a second (berth evict moves "
                          "them at once)",
                          c->opt.evict_per_second));
}

/* Nodes that were cut off together come back one after the other. Those that are not the first get
 * the time to do so, one grace; else the end of a partition would move what the brake had kept in
 * its place. */
void brake_sweep(struct core *c)
{
        struct brake *b = &c->brake;
        if (c->now_ms >= b->sweep_at) {
                b->sweep_at = INT64_MAX;
                b->sweep_next = 0;
        }
        if (b->sweep_next == NONE)
                return;
        uint32_t end = b->sweep_next + SWEEP_NODES;
        for (; b->sweep_next < c->nodes.len && b->sweep_next < end; b->sweep_next++) {
                struct node_ix ix = { b->sweep_next };
                const struct node *n = node_get(c, ix);
                if (!n->id || n->status == PB__NODE_STATUS__E__Ready)
                        continue;
                if (n->given_up && n->paced && evict_is_ordered(c, n))
                        evict_begin(c, ix, false);
                else if (!n->given_up)
                        node_deadline_refresh(c, ix);
        }
        if (b->sweep_next >= c->nodes.len)
                b->sweep_next = NONE;
}

int64_t brake_next_ms(const struct core *c)
{
        return c->brake.sweep_next != NONE ? c->now_ms : c->brake.sweep_at;
}

bool brake_is_on(const struct core *c)
{
        /* who follows does not know whether it was told */
        return c->brake.holds || (!c->started && suspects(c));
}

int brake_check(const struct core *c, struct err *err)
{
        const struct brake *b = &c->brake;
        uint32_t ready = 0, zones_ready = 0, in_zones = 0, silent = 0, held = 0;
        struct brake_counts sum = { .nodes = b->counts.nodes, .zones = b->counts.zones };
        for (uint32_t i = 0; i < c->nodes.len; i++) {
                const struct node *n = &c->nodes.at[i];
                if (!n->id)
                        continue;
                in_zones += n->zoned;
                held += n->held;
                silent += b->running && n->silent_in == b->wave;
                if (!b->stale && n->zoned && n->counted != (n->status == PB__NODE_STATUS__E__Ready))
                        return err_set(err, ERR_INTERNAL, .msg = "B1: who is Ready is counted",
                                       .detail = n->id);
        }
        for (uint32_t i = 0; i < b->zones.len; i++) {
                const struct zone *z = &b->zones.at[i];
                in_zones -= z->nodes;
                ready += z->ready;
                zones_ready += i != ZONE_NONE && z->ready;
                if (!b->running || z->wave != b->wave)
                        continue;
                sum.silent += z->silent;
                if (i == ZONE_NONE)
                        sum.unzoned_silent = z->silent;
                else {
                        bool whole = z->silent && z->silent == z->counted;
                        sum.zones_hit += z->silent > 0;
                        sum.zones_whole += whole;
                        if (z->silent && whole != is_whole_for(z, b->wave))
                                return err_set(err, ERR_INTERNAL,
                                               .msg = "B4: a zone that is whole says so",
                                               .detail = z->name);
                }
                if (z->silent > z->counted)
                        return err_set(err, ERR_INTERNAL,
                                       .msg = "B2: no more are silent than were counted",
                                       .detail = z->name ? z->name : "");
        }
        if (ready != b->ready || zones_ready != b->zones_ready || in_zones)
                return err_set(err, ERR_INTERNAL, .msg = "B1: the zones' counts agree");
        if (memcmp(&sum, &b->counts, sizeof(sum)) != 0 || silent != sum.silent ||
            sum.silent > sum.nodes)
                return err_set(err, ERR_INTERNAL, .msg = "B2: the wave's counts agree");
        return held == c->n_held ? 0
                                 : err_set(err, ERR_INTERNAL, .msg = "X1: who is held is counted");
}
