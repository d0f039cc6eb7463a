/* sim/watch.c: somebody who knows only the committed events and the rules, and says when an event
 * breaks one.
 *
 * The core's own invariants look at a state; these look at what happened: an eviction before its
 * grace is over leaves a perfectly sound state behind. The numbers here are those of the
 * requirements, not the core's options, so that a changed default is seen as well.
 */
#include "base/mem.h"
#include "events.pb-c.h"
#include "sim/shadow.h"
#include "sim/silence.h"
#include "sim/world.h"
#include <stdlib.h>
#include <string.h>

#define SILENCE_MS 30000
#define GRACE_MS 60000
#define BACKOFF_BASE_MS 5000
#define BACKOFF_CAP_MS 120000
#define LAUNCH_GRACE_MS 15000
#define DOUBT_MS 60000 /* for so long what a node said while it lied may be believed */
#define LAUNCHES_KEPT 64
/* of one workload within a minute, without anybody asking: a crash loop with its backoff needs 5 */
#define LAUNCHES_MAX 12

struct watched_node {
        bool known, lost;
        bool draining; /* then they leave anyway */
        bool ordered;  /* an operator said that they leave now */
        int64_t lost_at;
        uint64_t seq;
};
struct watched_workload {
        bool awaits;    /* it waits for a place away from its lost node */
        bool completed; /* and nobody has asked for another run since */
        bool finished;  /* nothing of it runs, for good: its old node has no say any more */
        bool launched;  /* the last thing that happened to it was a launch, or its success */
        bool cause;     /* something has happened since its last launch that asks for another */
        int32_t attempts;
        int64_t retry_at, launched_at;
        uint64_t token, seq;
        int64_t launches[LAUNCHES_KEPT]; /* when, since somebody asked for something; a ring */
        uint32_t n_launches;
};
struct watch {
        uint64_t seq;
        ARRAY(struct watched_node) nodes;
        ARRAY(struct watched_workload) workloads;
        struct shadow *shadow;
        struct tenants *tenants;
        struct moves *moves;
        struct silence *silence;
        struct arena memory;
};

struct watch *sim_watch_create(void)
{
        struct watch *w = mem_must(sizeof(struct watch));
        w->shadow = shadow_create();
        w->tenants = tenants_create();
        w->moves = moves_create();
        w->silence = silence_create();
        return w;
}

void sim_watch_destroy(struct watch *w)
{
        shadow_destroy(w->shadow);
        tenants_destroy(w->tenants);
        moves_destroy(w->moves);
        silence_destroy(w->silence);
        array_fini(&w->nodes);
        array_fini(&w->workloads);
        arena_fini(&w->memory);
        mem_free(w);
}

/* The requirements' numbers, unless this run was told others. */
static int64_t silence_ms(const struct sim *s)
{
        int64_t beat = s->opt.heartbeat_ms ? s->opt.heartbeat_ms : SILENCE_MS / 3;
        return beat * (s->opt.silence_beats ? s->opt.silence_beats : 3);
}

static int64_t grace_ms(const struct sim *s)
{
        return s->opt.evict_grace_ms ? s->opt.evict_grace_ms : GRACE_MS;
}

static int64_t launch_grace_ms(const struct sim *s)
{
        return s->opt.launch_grace_ms ? s->opt.launch_grace_ms : LAUNCH_GRACE_MS;
}

static struct watched_node *node_of(struct watch *w, const char *id)
{
        size_t n = number_of(id);
        while (w->nodes.len <= n)
                array_push(&w->nodes);
        return &w->nodes.at[n];
}

static struct watched_workload *workload_of(struct watch *w, const char *id)
{
        size_t n = number_of(id);
        while (w->workloads.len <= n)
                array_push(&w->workloads);
        return &w->workloads.at[n];
}

static bool is_tainted(const struct sim *s, const Pb__Event *e)
{
        size_t n = number_of(e->workload_id);
        return n < s->items.len && s->items.at[n].tainted;
}

void sim_taint_node(struct sim *s, uint32_t n, int64_t until)
{
        struct machine *m = &s->machines.at[n];
        m->lied = true;
        if (m->doubtful_until < until + DOUBT_MS)
                m->doubtful_until = until + DOUBT_MS;
        for (size_t i = 0; i < m->copies.len; i++)
                m->copies.at[i].doubtful = true;
        for (size_t i = 0; i < s->items.len; i++)
                if (shadow_is_on(s->watch->shadow, i, n) ||
                    sim_copy_find(&s->machines.at[n], s->items.at[i].id))
                        s->items.at[i].tainted = true;
}

static void broken(struct sim *s, const Pb__Event *e, const char *what)
{
        sim_fail(s, what,
                 fmt("event %llu, %s%s%s", (unsigned long long)e->seq, e->workload_id,
                     e->workload_id[0] && e->node_id[0] ? " on " : "", e->node_id));
}

/* By an operator's word nothing of what is on it counts any more. */
static void forget_node(struct sim *s, const Pb__Event *e)
{
        for (size_t i = 0; i < s->machines.len; i++) {
                struct machine *m = &s->machines.at[i];
                if (m->node != number_of(e->node_id))
                        continue;
                m->forgotten = true;
                for (size_t k = 0; k < m->copies.len; k++)
                        m->copies.at[k].doubtful = true;
        }
}

static int64_t backoff_ms(int32_t attempts)
{
        int64_t wait = BACKOFF_BASE_MS;
        for (int32_t i = 1; i < attempts && wait < BACKOFF_CAP_MS; i++)
                wait *= 2;
        return wait < BACKOFF_CAP_MS ? wait : BACKOFF_CAP_MS;
}

static void see_node(struct sim *s, const Pb__Event *e)
{
        struct watched_node *n = node_of(s->watch, e->node_id);
        if (e->prev != n->seq)
                broken(s, e, "A2: an event about a node does not name the one before it");
        if (e->type == PB__EVENT_TYPE__E__NoticesSummed)
                /* told, and that is all: it changes no record, and so no later event names it */
                return;
        n->seq = e->seq;
        switch (e->type) {
        case PB__EVENT_TYPE__E__NodeReady:
                if (n->known && !n->lost)
                        broken(s, e, "C10: a heartbeat that changes nothing became an event");
                n->lost = false;
                break;
        case PB__EVENT_TYPE__E__NodeRegistered:
                n->known = true;
                n->lost = false;
                break;
        case PB__EVENT_TYPE__E__NodeLost:
                if (e->timestamp - s->server_started < silence_ms(s))
                        broken(s, e,
                               "N1: a node was declared lost before the server had listened for a "
                               "full limit of silence");
                n->lost = true;
                n->ordered = false;
                n->lost_at = e->timestamp;
                break;
        case PB__EVENT_TYPE__E__NodeFenced:
                n->ordered = n->lost;
                break;
        case PB__EVENT_TYPE__E__NodeWishChanged:
                n->draining = e->wish == PB__NODE_WISH__E__draining;
                break;
        case PB__EVENT_TYPE__E__NodeForgotten:
                *n = (struct watched_node){ 0 };
                break;
        default:
                break;
        }
}

static void see_order(struct sim *s, const Pb__Event *e)
{
        for (size_t i = 0; i < s->watch->nodes.len; i++)
                if (str_empty(e->node_id) || i == number_of(e->node_id))
                        s->watch->nodes.at[i].ordered = s->watch->nodes.at[i].lost;
}

/* Units leave a lost node only when its grace is over, and not if it is the server that is cut
 * off. */
static void see_eviction(struct sim *s, struct watched_workload *w, const Pb__Event *e)
{
        struct watched_node *n = node_of(s->watch, e->node_id);
        bool tainted = shadow_is_driven_out(s->watch->shadow, number_of(e->node_id),
                                            number_of(e->workload_id));
        if (w->finished || n->draining || tainted)
                return;
        if (!n->lost || (e->timestamp - n->lost_at < grace_ms(s) && !n->ordered)) {
                broken(s, e, "C12: a unit left its lost node before the grace was over");
                return;
        }
        size_t number = number_of(e->workload_id);
        bool by_itself = str_empty(e->actor) && !w->awaits &&
                         e->type != PB__EVENT_TYPE__E__WorkloadDeleted &&
                         shadow_workload(s->watch->shadow, number)->wanted;
        const char *what = silence_leaves(s->watch->silence, s, s->watch->shadow, e, by_itself);
        if (what)
                broken(s, e, what);
        w->awaits = false;
}

/* C26: no hot loops. Without anybody's doing, at most one action per workload and grace; and a
 * limit even to those that have a cause. */
static void check_cause(struct sim *s, struct watched_workload *w, const Pb__Event *e)
{
        struct client_item *it = &s->items.at[number_of(e->workload_id)];
        bool excused = w->cause || is_tainted(s, e) || it->drifted ||
                       e->reason == PB__REASON__E__lease_expired;
        if (!excused && e->timestamp - w->launched_at < launch_grace_ms(s))
                broken(s, e, "C26: a workload was launched twice within its grace without a cause");
        if (!w->cause)
                it->drifted = 0;
        w->cause = false;
        w->launched_at = e->timestamp;
}

static void count_launch(struct sim *s, struct watched_workload *w, const Pb__Event *e)
{
        /* What is exclusive starts anew whenever answers take longer than its lease. */
        uint32_t recent = 0,
                 most = LAUNCHES_MAX +
                        (s->opt.exclusive ? (uint32_t)(60000 / s->core_opt.lease_ms) : 0);
        w->launches[w->n_launches++ % LAUNCHES_KEPT] = s->now;
        for (uint32_t i = 0; i < LAUNCHES_KEPT && i < w->n_launches; i++)
                recent += w->launches[i] > s->now - 60000;
        if (is_tainted(s, e))
                return;
        if (recent > s->result.launches_per_minute)
                s->result.launches_per_minute = recent;
        if (recent > most)
                broken(s, e, "C26: a workload is launched again and again");
}

static void see_launch(struct sim *s, struct watched_workload *w, const Pb__Event *e)
{
        if (!e->token || e->token->seq != e->seq || e->token->seq <= w->token)
                broken(s, e, "W3: a launch has a token that does not grow");
        if (w->completed)
                broken(s, e, "C25: a job that had completed was launched again");
        if (e->type == PB__EVENT_TYPE__E__WorkloadLaunched && w->launched &&
            e->reason == PB__REASON__E__none && !is_tainted(s, e))
                broken(s, e, "C22: a unit was launched again although nothing had happened to it");
        /* at the cap nothing else tells of it */
        if (str_starts(e->message, "attempt ") && e->timestamp < w->retry_at)
                broken(s, e, "R2: a failed unit was tried again before its time");
        check_cause(s, w, e);
        w->token = e->token ? e->token->seq : w->token;
        w->finished = false;
        if (s->machines.at[number_of(e->node_id)].lied)
                s->items.at[number_of(e->workload_id)].tainted = true;
        count_launch(s, w, e);
}

static void see_failure(struct sim *s, struct watched_workload *w, const Pb__Event *e)
{
        const Pb__WorkloadStatus *st = e->status;
        bool job = s->items.at[number_of(e->workload_id)].job;
        if (job && st && st->exit_code && st->exit_code->value == 0 && !st->signal &&
            e->reason != PB__REASON__E__start_failed && !is_tainted(s, e))
                broken(s, e, "C25: a job that exited 0 counts as failed");
        if (e->retry && e->retry->attempts != w->attempts + 1)
                broken(s, e, "R1: failures are counted one by one");
        w->finished = e->type == PB__EVENT_TYPE__E__WorkloadFailed;
        w->attempts = e->retry ? e->retry->attempts : 0;
        w->retry_at = e->retry ? e->retry->next_retry_at : 0;
        if (e->type == PB__EVENT_TYPE__E__RetryScheduled &&
            w->retry_at - e->timestamp != backoff_ms(w->attempts))
                broken(s, e, "C20: a failed unit waits another time than its schedule says");
}

/* A user's word, a failure and what follows from it, a move (whose cause moves.c looks at). */
static bool is_cause(Pb__EventType__E type)
{
        switch (type) {
        case PB__EVENT_TYPE__E__WorkloadApplied:
        case PB__EVENT_TYPE__E__WorkloadDesired:
        case PB__EVENT_TYPE__E__RetryTriggered:
        case PB__EVENT_TYPE__E__Rescheduled:
                return true;
        default:
                return false;
        }
}

static void see_workload(struct sim *s, const Pb__Event *e)
{
        struct watched_workload *w = workload_of(s->watch, e->workload_id);
        bool launched = false;
        if (e->prev != w->seq && e->type != PB__EVENT_TYPE__E__UnitRemoved)
                broken(s, e, "A2: an event does not name the one before it");
        w->seq = e->seq;
        w->cause = w->cause || is_cause(e->type);
        switch (e->type) {
        case PB__EVENT_TYPE__E__WorkloadApplied:
        case PB__EVENT_TYPE__E__WorkloadDesired:
                w->completed = false;
                w->n_launches = 0;
                if (e->type == PB__EVENT_TYPE__E__WorkloadApplied ||
                    e->desired_state == PB__DESIRED_STATE__E__Running)
                        w->attempts = 0;
                break;
        case PB__EVENT_TYPE__E__RetryTriggered:
                if (e->retry) {
                        w->completed = false;
                        w->n_launches = 0;
                        w->attempts = e->retry->attempts;
                        w->retry_at = 0;
                } else if (e->timestamp < w->retry_at)
                        broken(s, e, "R2: a failed unit was tried again before its time");
                break;
        case PB__EVENT_TYPE__E__RetryReset:
                w->attempts = 0;
                break;
        case PB__EVENT_TYPE__E__WorkloadScheduled:
        case PB__EVENT_TYPE__E__WorkloadLaunched:
                see_launch(s, w, e);
                launched = true;
                break;
        case PB__EVENT_TYPE__E__WorkloadStarted:
                launched = true;
                break;
        case PB__EVENT_TYPE__E__RetryScheduled:
        case PB__EVENT_TYPE__E__WorkloadFailed:
                see_failure(s, w, e);
                break;
        case PB__EVENT_TYPE__E__WorkloadCompleted:
                w->completed = w->finished = true;
                break;
        case PB__EVENT_TYPE__E__Rescheduled:
                if (e->reason == PB__REASON__E__node_lost)
                        see_eviction(s, w, e);
                break;
        case PB__EVENT_TYPE__E__WorkloadPending:
                if (strcmp(e->action, "AwaitFailover") == 0 && node_of(s->watch, e->node_id)->lost)
                        see_eviction(s, w, e);
                w->awaits |= strcmp(e->action, "AwaitFailover") == 0;
                break;
        case PB__EVENT_TYPE__E__WorkloadDeleted:
                if (e->tombstone)
                        see_eviction(s, w, e);
                *w = (struct watched_workload){ .token = w->token };
                return;
        default:
                break;
        }
        w->launched = launched;
}

void sim_watch_event(struct sim *s, const void *data, size_t len)
{
        struct arena_allocator alloc = arena_allocator(&s->watch->memory);
        Pb__Event *e = pb__event__unpack((ProtobufCAllocator *)&alloc, len, data);
        if (!e) {
                sim_fail(s, "A2: a committed event does not parse", "");
                return;
        }
        if (e->seq != s->watch->seq + 1)
                broken(s, e, "A2: events left the server out of order");
        s->watch->seq = e->seq;
        sim_see(s, e);
        /* then by an operator's word */
        if (e->workload && str_eq(e->workload->revision_id, "forged") && !(s->restored && s->calm))
                /* lies.c */
                broken(s, e, "A13: what a node made up became a record");
        if (e->type == PB__EVENT_TYPE__E__NodeForgotten)
                forget_node(s, e);
        if (s->restored) {
                arena_reset(&s->watch->memory);
                return;
        }
        const char *what = silence_event(s->watch->silence, s, s->watch->shadow, e);
        if (what)
                broken(s, e, what);
        if (e->type == PB__EVENT_TYPE__E__EvictionOrdered)
                see_order(s, e);
        what = moves_event(s->watch->moves, s->watch->shadow, e, s->server_started);
        if (what)
                broken(s, e, what);
        if ((what = shadow_event(s->watch->shadow, e)))
                broken(s, e, what);
        if ((what = tenants_event(s->watch->tenants, e)))
                broken(s, e, what);
        /* part of a workload's history only while there is one */
        if (e->type == PB__EVENT_TYPE__E__UnitRemoved) {
                struct watched_workload *w = workload_of(s->watch, e->workload_id);
                if (w->seq && e->prev != w->seq)
                        broken(s, e, "A2: an event does not name the one before it");
                if (w->seq)
                        w->seq = e->seq;
        } else if (!str_empty(e->workload_id))
                see_workload(s, e);
        else if (!str_empty(e->node_id))
                see_node(s, e);
        arena_reset(&s->watch->memory);
}

struct shadow *sim_watch_shadow(const struct watch *w)
{
        return w->shadow;
}

struct tenants *sim_watch_tenants(const struct watch *w)
{
        return w->tenants;
}

static int catch_up(void *ctx, const struct store_event *e, struct err *err)
{
        sim_remember(ctx, e->data, e->len);
        (void)err;
        return 0;
}

void sim_watch_restart(struct sim *s)
{
        s->watch->seq = store_head(s->store);
}

void sim_watch_catch_up(struct sim *s)
{
        struct store_reader *reader = NULL;
        struct err err = { 0 };
        if (store_reader_open(s->store, &reader, &err) < 0 ||
            store_reader_events(reader, s->watch->seq, false, catch_up, s, &err) < 0)
                sim_fail(s, "the stored events cannot be read", err_line(&err));
        if (reader)
                store_reader_close(reader);
}
