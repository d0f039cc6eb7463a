/* core/notice.c: events that tell something and change nothing, and how many of them there are (A6
 * of the issue, A13).
 *
 * Refusals, audits, drift and unknown units are for people. A node or a caller can cause as many of
 * them as it likes, and each is a write and pushes others out of what is kept. So each node and
 * each caller has a bucket: what comes beyond it is counted, and told of as one NoticesSummed a
 * minute. Events that change the state are never dropped or summed up: what causes those is taken
 * less often instead (report_is_held() in unit.c, decide_hello() in node.c).
 *
 * All of it is live: a restart begins with full buckets, and a sum that was not told yet is lost
 * with the process.
 *
 * Invariants:
 *   (N1) At most NOTICE_KEYS buckets, but for exec; those who find none share one. Strangers can
 *        cause as many as they like; who may exec has a token or a certificate.
 *   (N2) sum_at is set exactly while something is counted that was not told of.
 */
#include "core/notice.h"
#include "base/mem.h"
#include "core/state.h"
#include "core/step.h"
#include "core/workload.h"
#include "model/json.h"
#include <stdio.h>
#include <string.h>

#define NOTICE_KEYS 4096
#define SUM_MS 60000

/* So many at once, and one more in each period. Audits: an operator at work is no flood. */
static const struct {
        int64_t burst, period_ms;
} limits[] = {
        [NOTICE] = { 20, 6000 }, [NOTICE_AUDIT] = { 60, 2000 }, [NOTICE_EXEC] = { 60, 2000 }
};
static const char letters[] = { [NOTICE] = 'n', [NOTICE_AUDIT] = 'a', [NOTICE_EXEC] = 'e' };

static struct map_key bucket_key(const void *ctx, uint32_t i)
{
        const struct notices *n = ctx;
        return (struct map_key){ n->at.at[i].key, strlen(n->at.at[i].key) };
}

void notices_init(struct core *c)
{
        map_init(&c->notices.by_key, bucket_key, &c->notices);
        c->notices.sum_at = INT64_MAX;
}

static void drop(struct notices *n, uint32_t i)
{
        uint32_t last = (uint32_t)n->at.len - 1;
        map_remove(&n->by_key, i);
        mem_free(n->at.at[i].key);
        if (i != last) {
                map_remove(&n->by_key, last);
                n->at.at[i] = n->at.at[last];
        }
        n->at.len--;
        if (i != last)
                map_put(&n->by_key, i);
}

void notices_fini(struct core *c)
{
        for (size_t i = 0; i < c->notices.at.len; i++)
                mem_free(c->notices.at.at[i].key);
        array_fini(&c->notices.at);
        map_fini(&c->notices.by_key);
}

/* Who has been quiet long enough has a full bucket, which is the same as none. */
static void sweep(struct core *c)
{
        struct notices *n = &c->notices;
        for (uint32_t i = (uint32_t)n->at.len; i-- > 0;)
                if (n->at.at[i].held == 0 && n->at.at[i].full_at <= c->steady_ms)
                        drop(n, i);
}

static struct notice_bucket *bucket(struct core *c, enum notice_kind kind, const char *by)
{
        struct notices *n = &c->notices;
        char key[200];
        snprintf(key, sizeof(key), "%c%s", letters[kind], by);
        uint32_t i = map_get(&n->by_key, key, strlen(key));
        if (i == MAP_NONE && n->at.len >= NOTICE_KEYS && kind != NOTICE_EXEC) {
                sweep(c);
                if (n->at.len >= NOTICE_KEYS) { /* (N1) */
                        snprintf(key, sizeof(key), "%cothers", letters[kind]);
                        i = map_get(&n->by_key, key, strlen(key));
                }
        }
        if (i == MAP_NONE) {
                i = (uint32_t)n->at.len;
                *array_push(&n->at) = (struct notice_bucket){ .key = mem_strdup(key) };
                map_put(&n->by_key, i);
        }
        return &n->at.at[i];
}

static int64_t wait_ms(const struct core *c, enum notice_kind kind, const struct notice_bucket *b)
{
        int64_t wait =
            b->full_at - c->steady_ms - (limits[kind].burst - 1) * limits[kind].period_ms;
        return wait > 0 ? wait : 0;
}

int64_t notice_wait_ms(struct core *c, enum notice_kind kind, const char *by)
{
        return wait_ms(c, kind, bucket(c, kind, by));
}

bool notice(struct core *c, enum notice_kind kind, const char *by, uint64_t more, Pb__Event *e)
{
        struct notice_bucket *b = bucket(c, kind, by);
        int64_t from = b->full_at > c->steady_ms ? b->full_at : c->steady_ms;
        bool told = wait_ms(c, kind, b) == 0;
        uint64_t held = more + !told;
        if (told) {
                b->full_at = from + limits[kind].period_ms;
                emit(c, e);
        }
        if (held == 0)
                return true;
        b = bucket(c, kind, by); /* emit() may have looked for others */
        b->held += held;
        b->last_type = e->type;
        c->stats.notices_summed += held;
        if (c->notices.sum_at == INT64_MAX) /* (N2) */
                c->notices.sum_at = c->now_ms + SUM_MS;
        return told;
}

void notice_of_node(struct core *c, struct node_ix n, Pb__Event *e)
{
        notice(c, NOTICE, arena_printf(&c->step, "node:%s", node_at(c, n)->id), 0, e);
}

void apply_told(struct core *c, const Pb__Event *e)
{
        struct unit_ix w = workload_find(c, e->workload_id);
        if (!unit_ok(w) || e->version < TOLD_VERSION)
                return;
        unit_at(c, w)->told = e->seq;
        save_workload(c, w);
}

/* One event for each that had more to say than was told. */
void notices_sum(struct core *c)
{
        struct notices *n = &c->notices;
        if (c->now_ms < n->sum_at)
                return;
        n->sum_at = INT64_MAX;
        for (size_t i = 0; i < n->at.len; i++) {
                struct notice_bucket *b = &n->at.at[i];
                if (b->held == 0)
                        continue;
                if (step_is_full(c)) {
                        n->sum_at = c->now_ms;
                        return;
                }
                const char *name =
                               json_enum_name(&pb__event_type__e__descriptor, (int)b->last_type),
                           *by = b->key + 1;
                Pb__Event e = PB__EVENT__INIT;
                e.type = PB__EVENT_TYPE__E__NoticesSummed;
                if (str_starts(by, "node:"))
                        e.node_id = arena_strdup(&c->step, by + strlen("node:"));
                e.actor = arena_strdup(&c->step, by);
                e.count = b->held;
                e.message = arena_printf(
                    &c->step,
                    "%llu more notices because of %s were not told one by one; the last was %s",
                    (unsigned long long)b->held, by, name ? name : "unknown");
                b->held = 0;
                emit(c, &e);
        }
}

int64_t notices_next_ms(const struct core *c)
{
        return c->notices.sum_at;
}
