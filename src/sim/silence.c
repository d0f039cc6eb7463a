/* sim/silence.c: see silence.h.
 *
 *   held    a unit left a lost node although, at every moment since that node's grace was over, the
 *           rule said that the server is the suspect; and nobody said otherwise.
 *   paced   more units than two seconds' worth left, within a second, nodes that were never part of
 *           a zone that was silent as a whole.
 *   told    "held" is told only when the rule says so, "resumed" only when it does not.
 */
#include "sim/silence.h"
#include "base/mem.h"
#include "sim/shadow.h"
#include <stdlib.h>

#define PER_SECOND 20

struct silent_node {
        bool known, lost, ordered;
        bool counted; /* it was Ready when the wave began */
        bool free;    /* it may have been given up */
        bool hurried; /* with its whole zone, or by an operator */
        int64_t lost_at, registered_at;
};
struct silence {
        ARRAY(struct silent_node) nodes;
        bool wave;
        int64_t since, ordered_at, server_started;
        ARRAY(int64_t) left; /* when units left at a pace, of late */
};

struct silence *silence_create(void)
{
        return mem_must(sizeof(struct silence));
}

void silence_destroy(struct silence *q)
{
        array_fini(&q->nodes);
        array_fini(&q->left);
        mem_free(q);
}

static struct silent_node *node_of(struct silence *q, size_t n)
{
        while (q->nodes.len <= n)
                array_push(&q->nodes);
        return &q->nodes.at[n];
}

static int64_t grace_ms(const struct sim *s)
{
        return s->opt.evict_grace_ms ? s->opt.evict_grace_ms : 60000;
}

static int64_t window_ms(const struct sim *s)
{
        int64_t beat = s->opt.heartbeat_ms ? s->opt.heartbeat_ms : 10000;
        return grace_ms(s) > beat ? grace_ms(s) : beat;
}

struct tally {
        uint32_t all, silent, in_zone[256], silent_in[256], zones, hit, whole;
};

static void count(const struct silence *q, struct shadow *h, int64_t until, struct tally *t)
{
        *t = (struct tally){ 0 };
        for (size_t i = 0; i < q->nodes.len; i++) {
                const struct silent_node *n = &q->nodes.at[i];
                unsigned char zone = (unsigned char)shadow_node(h, i)->zone;
                if (!n->known || !n->counted)
                        continue;
                bool silent = n->lost && n->lost_at <= until;
                t->all++, t->in_zone[zone]++;
                t->silent += silent, t->silent_in[zone] += silent;
        }
        for (int z = 1; z < 256; z++) {
                t->zones += t->in_zone[z] > 0;
                t->hit += t->silent_in[z] > 0;
                t->whole += t->silent_in[z] && t->silent_in[z] == t->in_zone[z];
        }
}

/* The rule, in the requirement's words. */
static bool holds_until(const struct silence *q, struct shadow *h, int64_t until)
{
        struct tally t;
        uint32_t known = 0;
        for (size_t i = 0; i < q->nodes.len; i++)
                known += q->nodes.at[i].known;
        if (!q->wave || known < 3)
                return false;
        count(q, h, until, &t);
        uint32_t heard = t.all - t.silent;
        bool exactly_one_whole_zone = t.whole == 1 && t.hit == 1 && t.silent_in[0] == 0;
        bool too_many = 100 * t.silent > 55 * t.all;
        if (too_many && !(exactly_one_whole_zone && 3 * heard >= t.all))
                return true;
        return t.zones >= 2 && t.hit == t.zones && 2 * heard < t.all;
}

static bool holds(const struct silence *q, struct shadow *h)
{
        return holds_until(q, h, INT64_MAX);
}

static int by_number(const void *a, const void *b)
{
        const int64_t *x = a, *y = b;
        return *x < *y ? -1 : *x > *y;
}

/* A server that starts knows what the records say: since when each node is there, and since when it
 * is silent. */
static void server_restarted(struct silence *q, struct sim *s, struct shadow *h)
{
        ARRAY(int64_t) times = { 0 };
        for (size_t i = 0; i < q->nodes.len; i++)
                if (q->nodes.at[i].known && q->nodes.at[i].lost &&
                    q->nodes.at[i].lost_at >= q->ordered_at)
                        *array_push(&times) = q->nodes.at[i].lost_at;
        if (times.len)
                qsort(times.at, times.len, sizeof(int64_t), by_number);
        q->wave = false;
        for (size_t i = 0; i < times.len; i++) {
                int64_t at = times.at[i];
                if (q->wave && (at <= q->since + window_ms(s) || holds_until(q, h, at - 1)))
                        continue;
                q->wave = true;
                q->since = at;
                for (size_t k = 0; k < q->nodes.len; k++) {
                        struct silent_node *n = &q->nodes.at[k];
                        n->counted =
                            n->known && n->registered_at <= at && (!n->lost || n->lost_at >= at);
                }
        }
        array_fini(&times);
        array_clear(&q->left);
}

/* Nothing has changed since the last event: whoever was free to move its units meanwhile may have
 * begun to. */
static void see_who_is_free(struct silence *q, struct sim *s, struct shadow *h, int64_t now)
{
        bool held = holds(q, h);
        struct tally t;
        count(q, h, INT64_MAX, &t);
        for (size_t i = 0; i < q->nodes.len; i++) {
                struct silent_node *n = &q->nodes.at[i];
                unsigned char zone = (unsigned char)shadow_node(h, i)->zone;
                if (!n->known || !n->lost)
                        continue;
                /* Whoever was silent before the rest of its zone fell silent is of that whole zone
                 * as well. */
                n->free |= n->ordered || (!held && now - n->lost_at >= grace_ms(s));
                n->hurried |=
                    n->ordered || (zone && t.in_zone[zone] && t.silent_in[zone] == t.in_zone[zone]);
        }
}

static void fell_silent(struct silence *q, struct sim *s, struct shadow *h, size_t number,
                        int64_t at)
{
        if (!q->wave || (at > q->since + window_ms(s) && !holds(q, h))) {
                q->wave = true;
                q->since = at;
                for (size_t k = 0; k < q->nodes.len; k++)
                        q->nodes.at[k].counted = q->nodes.at[k].known && !q->nodes.at[k].lost;
        }
        struct silent_node *n = node_of(q, number);
        n->lost = true;
        n->free = n->hurried = n->ordered = false;
        n->lost_at = at;
}

static void ordered(struct silence *q, const Pb__Event *e)
{
        for (size_t i = 0; i < q->nodes.len; i++)
                if (str_empty(e->node_id) || number_of(e->node_id) == i)
                        q->nodes.at[i].ordered = q->nodes.at[i].lost;
        if (!str_empty(e->node_id))
                return;
        q->wave = false;
        q->ordered_at = e->timestamp;
}

const char *silence_event(struct silence *q, struct sim *s, struct shadow *h, const Pb__Event *e)
{
        if (q->server_started != s->server_started) {
                q->server_started = s->server_started;
                server_restarted(q, s, h);
        }
        see_who_is_free(q, s, h, e->timestamp);
        if (e->type == PB__EVENT_TYPE__E__EvictionOrdered)
                ordered(q, e);
        if (str_empty(e->node_id) || !str_empty(e->workload_id))
                return NULL;
        size_t number = number_of(e->node_id);
        struct silent_node *n = node_of(q, number);
        switch (e->type) {
        case PB__EVENT_TYPE__E__NodeRegistered:
                if (!n->known)
                        *n = (struct silent_node){ .known = true, .registered_at = e->timestamp };
                n->lost = n->ordered = false;
                return NULL;
        case PB__EVENT_TYPE__E__NodeReady:
                n->lost = n->ordered = false;
                return NULL;
        case PB__EVENT_TYPE__E__NodeLost:
                fell_silent(q, s, h, number, e->timestamp);
                return NULL;
        case PB__EVENT_TYPE__E__NodeFenced:
                n->ordered = n->lost;
                return NULL;
        case PB__EVENT_TYPE__E__NodeForgotten:
                *n = (struct silent_node){ 0 };
                return NULL;
        case PB__EVENT_TYPE__E__EvictionHeld:
                return holds(q, h) ? NULL : "C11: eviction is held without a reason";
        case PB__EVENT_TYPE__E__EvictionResumed:
                return holds(q, h)
                           ? "C11: eviction is resumed although there is still a reason to hold it"
                           : NULL;
        default:
                return NULL;
        }
}

const char *silence_leaves(struct silence *q, struct sim *s, struct shadow *h, const Pb__Event *e,
                           bool by_itself)
{
        struct silent_node *n = node_of(q, number_of(e->node_id));
        if (!n->free && holds(q, h))
                return "C11: units left a lost node although the server should have suspected "
                       "itself";
        if (n->hurried || !by_itself)
                return NULL;
        size_t recent = 0, rate = s->opt.evict_per_second ? s->opt.evict_per_second : PER_SECOND;
        for (size_t i = 0; i < q->left.len; i++)
                if (q->left.at[i] > e->timestamp - 1000)
                        q->left.at[recent++] = q->left.at[i];
        q->left.len = recent;
        *array_push(&q->left) = e->timestamp;
        return recent + 1 > 2 * rate ? "C11: units of a part of a zone moved faster than the pace"
                                     : NULL;
}
