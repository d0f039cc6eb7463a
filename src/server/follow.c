/* server/follow.c: one server of several on a shared store (C33). The store thread's.
 *
 *        follows  ---- nobody leads, and this one got the key ---->  leads
 *           ^                                                          |
 *           '------- a commit refused, the lease over (commits.c) -----'
 *
 * A follower's state is warm: loaded once, and then every event that the leader commits is folded
 * into it by the ring, as in `berth fsck`. So a new leader has nothing to load: it takes the key,
 * reads the head (what the one before had sent has now happened or can never happen), folds up to
 * it, and decides.
 *
 * Invariants:
 *   (F1) The ring decides only between COMMIT_LEAD and COMMIT_LOST, and COMMIT_LEAD is sent only
 *   with the key in our hands and its state at the head that was read after that. (F2) Between the
 *   two the store thread takes commits; nothing of an earlier term is in its queue, since the ring
 *   has said RING_DROPPED. (F3) What a follower shows is committed: it was read from the store.
 */
#include "base/array.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/feature.h"
#include "model/json.h"
#include "model/pb.h"
#include "server/key.h"
#include "server/shared.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FOLLOW_WAIT_MS 200 /* so often a follower looks whether the server stops */
#define CHUNK_EVENTS 512   /* per batch to the ring */
#define AGAIN_MIN_MS 50
#define AGAIN_MAX_MS 1000
#define ANSWER_LOOK_MS 200
/* Loading all records for each event that cannot be folded (a newer leader's, say) would be all
 * that a follower does: between two loads it waits so long, or RELOAD_TIMES what the last took. */
#define RELOAD_MIN_MS 5000
#define RELOAD_TIMES 10
#define KEY_LOOK_MS 5000 /* how often a follower looks whether it has the cluster's key */

/* ---- telling the ring ---- */

static bool is_over(struct server *s)
{
        return queue_is_closed(s->store_queue) || queue_is_closed(s->ring_queue);
}

/* Takes what `d` owns. Waits while the ring's queue is full. */
static void tell(struct server *s, struct commit_done what)
{
        struct commit_done *d = mem_must(sizeof(*d));
        *d = what;
        while (!queue_push(s->done_queue, d)) {
                if (is_over(s)) {
                        commit_done_free(d);
                        return;
                }
                usleep(1000);
        }
}

/* What the ring says to COMMIT_LOST or COMMIT_LEAD; batches of the term before are dropped. false:
 * the server stops. */
static bool answer_of_ring(struct server *s, enum ring_word *ret)
{
        for (;;) {
                void *item;
                size_t n = queue_pop_many(s->store_queue, &item, 1, ANSWER_LOOK_MS);
                if (n == 0 && queue_is_closed(s->store_queue))
                        return false;
                if (n == 0)
                        continue;
                struct commit_job *job = item;
                struct core_batch *batch = job->batch;
                *ret = job->word;
                mem_free(job);
                if (!batch)
                        return true;
                core_batch_free(batch);
        }
}

/* ---- who leads ---- */

static void copy_text(char *to, size_t size, const char *text)
{
        snprintf(to, size, "%.*s", (int)size - 1, text ? text : "");
}

static void note_leader(struct server *s, const struct store_news *news, bool is_self)
{
        struct arena a = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        struct leader l = { .known = news->led, .is_self = is_self, .since_ms = clock_wall_ms() };
        if (json_read(&pb__replica__descriptor, news->leader, strlen(news->leader),
                      sizeof(news->leader), JSON_IGNORE_UNKNOWN, &a, &m, NULL) == 0) {
                const Pb__Replica *r = (const Pb__Replica *)m;
                copy_text(l.name, sizeof(l.name), r->name);
                copy_text(l.http_address, sizeof(l.http_address), r->http_address);
                copy_text(l.grpc_address, sizeof(l.grpc_address), r->grpc_address);
        }
        arena_fini(&a);
        pthread_mutex_lock(&s->lock);
        s->leader = l;
        pthread_mutex_unlock(&s->lock);
        struct io_msg *msg = mem_must(sizeof(*msg));
        msg->kind = IO_LEADER;
        if (!server_io_push(s, msg, true))
                io_msg_free(msg);
}

/* ":8084", "0.0.0.0:8084" and "[::]:8084" are nowhere to be reached: then by the machine's name. */
static void reachable(const char *given, const char *listens, const char *host, char *ret,
                      size_t size)
{
        const char *at = str_empty(given) ? listens : given;
        const char *colon = strrchr(at, ':');
        bool any = str_starts(at, "0.0.0.0:") || str_starts(at, "[::]:") || colon == at;
        if (any && colon)
                snprintf(ret, size, "%s%s", host, colon);
        else
                copy_text(ret, size, at);
}

/* What this server says of itself in the leadership key. */
static void who_am_i(struct server *s, struct str *out)
{
        char host[256] = "", http[128], grpc[128];
        Pb__Replica r = PB__REPLICA__INIT;
        (void)gethostname(host, sizeof(host) - 1);
        reachable(s->opt.advertise_http, s->http_address, host, http, sizeof(http));
        reachable(s->opt.advertise_grpc, s->grpc_address, host, grpc, sizeof(grpc));
        r.name = grpc[0] ? grpc : host;
        pthread_mutex_lock(&s->lock);
        copy_text(s->own_name, sizeof(s->own_name), r.name);
        pthread_mutex_unlock(&s->lock);
        r.http_address = http;
        r.grpc_address = grpc;
        r.host = host;
        r.process = (char *)fmt("pid %d", (int)getpid());
        r.version = (char *)BERTH_VERSION;
        r.since_at = clock_wall_ms();
        char *features[FEATURES];
        r.n_features = features_list(FEATURES_ALL, features);
        r.features = features;
        char print[40], trouble[512];
        r.key_fingerprint = (char *)key_own_fingerprint(s, print, sizeof(print));
        r.key_trouble = (char *)key_trouble(s, trouble, sizeof(trouble));
        json_write(out, &r.base, JSON_COMPACT);
}

/* The process that led was on this machine, listened where this one listens now, and is no more:
 * this is its next start. */
static bool is_own_past(struct server *s, const struct store_news *news)
{
        struct arena a = ARENA_INIT;
        ProtobufCMessage *then = NULL, *now = NULL;
        _cleanup_(str_finip) struct str self = STR_INIT;
        int pid = 0;
        bool same = false;
        who_am_i(s, &self);
        if (json_read(&pb__replica__descriptor, news->leader, strlen(news->leader),
                      sizeof(news->leader), JSON_IGNORE_UNKNOWN, &a, &then, NULL) == 0 &&
            json_read(&pb__replica__descriptor, str_c(&self), self.len, self.len,
                      JSON_IGNORE_UNKNOWN, &a, &now, NULL) == 0) {
                const Pb__Replica *x = (const Pb__Replica *)then, *y = (const Pb__Replica *)now;
                same = str_eq(x->name, y->name) && str_eq(x->grpc_address, y->grpc_address) &&
                       !str_empty(x->host) && str_eq(x->host, y->host) &&
                       sscanf(x->process, "pid %d", &pid) == 1 && pid > 0 && kill(pid, 0) < 0 &&
                       errno == ESRCH;
        }
        arena_fini(&a);
        return same;
}

/* ---- following ---- */

struct following {
        struct server *s;
        struct store *store;
        struct store_reader *reader;
        struct store_news news;
        uint64_t told; /* the ring has been given everything up to here */
        int64_t again_ms;
        bool away;
        bool trusted;       /* the ring has a state to follow */
        int64_t load_at_ms; /* monotonic: not before then are the records loaded anew again */
        int64_t key_at_ms;  /* monotonic: when its key is looked at again */
};

struct chunk {
        struct core_batch *batch;
        ARRAY(struct store_event) events;
        uint64_t last, end;
        bool gap;
};

static int add_event(void *ctx, const struct store_event *e, struct err *err)
{
        struct chunk *c = ctx;
        (void)err;
        if (e->seq > c->end)
                return 1;
        if (e->seq != c->last + 1) {
                c->gap = true; /* removed by retention meanwhile */
                return 1;
        }
        if (!c->batch) {
                c->batch = mem_must(sizeof(*c->batch));
                c->batch->memory = mem_must(sizeof(*c->batch->memory));
        }
        *array_push(&c->events) = (struct store_event){
                .seq = e->seq, .data = arena_dup(c->batch->memory, e->data, e->len), .len = e->len
        };
        c->last = e->seq;
        return c->events.len >= CHUNK_EVENTS;
}

/* Tells the ring all events up to `head`. -ERR_NOT_FOUND: some are gone; load anew. */
static int catch_up(struct following *f, uint64_t head, struct err *err)
{
        int r = 0;
        while (r == 0 && f->told < head) {
                struct chunk c = { .last = f->told, .end = head };
                r = store_reader_events(f->reader, f->told, false, add_event, &c, err);
                r = r < 0 ? r : 0;
                if (c.batch) {
                        c.batch->commit = (struct store_batch){
                                .expected_head = f->told,
                                .new_head = c.last,
                                .events = arena_dup(c.batch->memory, c.events.at,
                                                    c.events.len * sizeof(*c.events.at)),
                                .n_events = c.events.len
                        };
                        tell(f->s, (struct commit_done){ .word = COMMIT_EVENTS, .batch = c.batch });
                } else if (r == 0)
                        c.gap = true; /* not one of them is there */
                array_fini(&c.events);
                f->told = c.last;
                if (r == 0 && c.gap && f->told < head)
                        r = err_set(
                            err, ERR_NOT_FOUND,
                            .msg = "events that this server has not seen are no longer kept",
                            .detail = fmt("after sequence %llu", (unsigned long long)f->told));
        }
        return r;
}

/* A state from the records instead of from the events. */
static int load_anew(struct following *f, bool from_memory, struct err *err)
{
        struct server *s = f->s;
        struct core *core = NULL;
        uint64_t head = 0;
        int64_t t0 = mono_ms();
        int r = load_core(s, f->store, from_memory, &core, &head, err);
        if (r < 0)
                return r;
        int64_t pause = (mono_ms() - t0) * RELOAD_TIMES;
        f->load_at_ms = mono_ms() + (pause > RELOAD_MIN_MS ? pause : RELOAD_MIN_MS);
        f->told = head;
        f->trusted = true;
        count(&s->metrics.follower_loads);
        store_remember_begin(f->store); /* it is not told what is folded from now on */
        tell(s, (struct commit_done){ .word = COMMIT_CORE, .core = core, .head = head });
        return 0;
}

static void set_away(struct following *f, const struct err *err)
{
        if (!f->away)
                log_warn("the store cannot be reached; reads are answered from what was committed",
                         LOG_E(err));
        f->away = true;
        server_set_degraded(f->s, true, err_line(err));
}

static void set_back(struct following *f)
{
        if (f->away) {
                log_info("the store is back", LOG_I("head", f->news.head));
                server_set_degraded(f->s, false, "");
        }
        f->away = false;
        f->again_ms = AGAIN_MIN_MS;
}

/* The key is ours: what is missing up to the head, and then the ring may decide (F1). */
static int begin_to_lead(struct following *f, struct err *err)
{
        struct server *s = f->s;
        uint64_t head = store_head(f->store);
        int64_t t0 = mono_ms();
        store_follow_end(f->store);
        int r = atomic_load(&s->reload_wanted) || !f->trusted ? load_anew(f, false, err)
                                                              : catch_up(f, head, err);
        if (r == -ERR_NOT_FOUND || r == -ERR_CORRUPT)
                r = load_anew(f, false, err);
        for (int tries = 0; r >= 0 && tries < 2; tries++) {
                enum ring_word word;
                tell(s, (struct commit_done){ .word = COMMIT_LEAD, .head = head });
                if (!answer_of_ring(s, &word))
                        return -ERR_CANCELLED;
                if (word == RING_NO_KEY)
                        return err_set(err, ERR_DENIED,
                                       .msg = "this server does not have the cluster's key");
                if (word == RING_LEADS) {
                        log_info("this server leads", LOG_S("store", s->opt.store_url),
                                 LOG_I("head", head), LOG_I("took_ms", mono_ms() - t0));
                        return 0;
                }
                r = load_anew(f, false, err);
        }
        return r < 0 ? r
                     : err_set(err, ERR_INTERNAL,
                               .msg = "the state could not be brought to the store's head");
}

/* 1: leads. 0: somebody else does, or nobody can be asked. */
static int try_to_lead(struct following *f, struct err *err)
{
        struct server *s = f->s;
        _cleanup_(str_finip) struct str who = STR_INIT;
        who_am_i(s, &who);
        int r = store_lead(f->store, str_c(&who), LEASE_SECONDS, 0, err);
        if (r == -ERR_CONFLICT)
                return 0; /* another one was faster */
        if (r == 0) {
                struct store_news self = { .led = true };
                copy_text(self.leader, sizeof(self.leader), str_c(&who));
                r = begin_to_lead(f, err);
                if (r == 0)
                        note_leader(s, &self, true);
        }
        if (r < 0)
                store_unlead(f->store);
        return r < 0 ? r : 1;
}

/* What this server has folded is not what the store holds any more: somebody put etcd back from a
 * snapshot under running servers. */
static bool went_back(struct following *f, const struct store_news *before)
{
        bool first = !before->term && !before->head;
        if (first ? f->news.head >= f->told : f->news.back == before->back)
                return false;
        log_error("the store is older than it was: was etcd put back from a snapshot? The records "
                  "are loaded anew",
                  LOG_I("had", f->told), LOG_I("head", f->news.head),
                  LOG_S("hint", "agents take no orders that are older than those they know; see "
                                "docs/backup.md on how to put a store back"));
        return true;
}

/* By what the others call it. */
static void announce(struct server *s, struct store *store)
{
        _cleanup_(str_finip) struct str who = STR_INIT;
        char name[192];
        who_am_i(s, &who);
        pthread_mutex_lock(&s->lock);
        copy_text(name, sizeof(name), s->own_name);
        pthread_mutex_unlock(&s->lock);
        store_announce(store, name, str_c(&who));
}

/* By the cluster's key (key.h). Whoever has got it meanwhile says so to the others. */
static bool may_lead(struct following *f)
{
        char print[40], trouble[512], print_now[40], trouble_now[512];
        key_own_fingerprint(f->s, print, sizeof(print));
        key_trouble(f->s, trouble, sizeof(trouble));
        bool may = key_lets_lead(f->s);
        if (!str_eq(print, key_own_fingerprint(f->s, print_now, sizeof(print_now))) ||
            !str_eq(trouble, key_trouble(f->s, trouble_now, sizeof(trouble_now))))
                announce(f->s, f->store);
        if (!may)
                atomic_store(&f->s->settled, true);
        return may;
}

/* One look at the store. 1: this server leads. */
static int follow_once(struct following *f, struct err *err)
{
        struct server *s = f->s;
        struct store_news before = f->news;
        int r = store_follow(f->store, f->news.term || f->news.head ? FOLLOW_WAIT_MS : 0, &f->news,
                             err);
        if (r < 0)
                return r;
        atomic_store(&s->store_head, f->news.head);
        if (f->news.led && f->news.term != before.term && is_own_past(s, &f->news))
                store_supersede(f->store, f->news.term);
        /* our own key of before, which is in our way */
        bool mine = f->news.led && store_led_term(f->store) == f->news.term;
        if (!mine && (f->news.led != before.led || f->news.term != before.term)) {
                note_leader(s, &f->news, false);
                struct leader l;
                server_leader(s, &l);
                log_info(f->news.led ? "this server follows" : "nobody leads now",
                         LOG_S("leader", l.name), LOG_I("head", f->news.head));
        }
        if (went_back(f, &before))
                f->trusted = false;
        bool stuck = atomic_load(&s->reload_wanted); /* until the ring has taken what was loaded */
        if (!f->trusted || (stuck && mono_ms() >= f->load_at_ms))
                r = load_anew(f, false, err);
        else if (!stuck && f->told < f->news.head)
                r = catch_up(f, f->news.head, err);
        if (r == -ERR_NOT_FOUND)
                r = load_anew(f, false, err);
        if (r < 0)
                return r;
        set_back(f);
        if (f->news.led && !mine && mono_ms() >= f->key_at_ms) {
                f->key_at_ms = mono_ms() + KEY_LOOK_MS;
                (void)may_lead(f); /* one that could not take over says so before it has to */
        }
        if (!atomic_load(&s->stopping) && (!f->news.led || mine) && may_lead(f)) {
                r = try_to_lead(f, err);
                return r == -ERR_DENIED ? 0 : r;
        }
        if (f->news.led)
                atomic_store(&s->settled, true);
        return 0;
}

bool follow_until_leading(struct server *s, struct store *store)
{
        struct following f = { .s = s,
                               .store = store,
                               .again_ms = AGAIN_MIN_MS,
                               .told = atomic_load(&s->committed),
                               .trusted = true,
                               .away = atomic_load(&s->degraded) };
        struct err err = { 0 };
        while (!atomic_load(&s->announced) && !queue_is_closed(s->store_queue))
                usleep(1000);   /* a moment: until this server listens, and can say where */
        (void)key_lets_lead(s); /* what is wrong with its key is said at the start */
        announce(s, store);
        int r = store_reader_open(store, &f.reader, &err);
        /* others read from the store until then */
        while (r <= 0 && !queue_is_closed(s->store_queue)) {
                err = (struct err){ 0 };
                r = follow_once(&f, &err);
                if (r >= 0)
                        continue;
                set_away(&f, &err);
                usleep((useconds_t)f.again_ms * 1000);
                f.again_ms = f.again_ms * 2 > AGAIN_MAX_MS ? AGAIN_MAX_MS : f.again_ms * 2;
        }
        if (f.reader)
                store_reader_close(f.reader);
        store_follow_end(store);
        if (r != 1)
                return false;
        count(&s->metrics.leadership_changes);
        atomic_store(&s->settled, true);
        return true;
}

void follow_step_down(struct server *s, struct store *store, const struct err *why)
{
        struct following f = { .s = s, .store = store };
        struct err err = { 0 };
        enum ring_word word;
        log_warn("this server leads no more, and follows",
                 LOG_I("head", atomic_load(&s->committed)), LOG_E(why));
        count(&s->metrics.leadership_changes);
        pthread_mutex_lock(&s->lock);
        s->leader.known = s->leader.is_self = false;
        s->leader.since_ms = clock_wall_ms();
        pthread_mutex_unlock(&s->lock);
        tell(s, (struct commit_done){ .word = COMMIT_LOST });
        if (!answer_of_ring(s, &word))
                return;
        if (load_anew(&f, true, &err) < 0) { /* it is loaded when the store can be reached */
                log_error("the committed records could not be loaded", LOG_E(&err));
                atomic_store(&s->reload_wanted, true);
        }
        atomic_store(&s->committed, f.told ? f.told : atomic_load(&s->committed));
}
