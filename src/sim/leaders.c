/* sim/leaders.c: two servers over one shared store: the run, the store, what goes wrong, and the operator. See leaders.h. */
#include "sim/leaders.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "model/pb.h"
#include "model/validate.h"
#include <stdio.h>
#include <string.h>

#define CALM_MS 400000

/* ---- time ---- */

int64_t between(struct leaders *s, int64_t low, int64_t high)
{
        return low + (int64_t)rng_below(&s->rng, (uint64_t)(high - low + 1));
}

bool chance(struct leaders *s, uint32_t per_million)
{
        return rng_chance(&s->rng, per_million) && !s->calm;
}

int64_t steady_of(const struct machine_clock *c, int64_t now)
{
        return c->begins + now * c->ppm / 1000000;
}

/* Rounded down: a clock that is asked a moment too late is no fault. */
int64_t true_wait(const struct machine_clock *c, int64_t ms)
{
        return (ms * 1000000 + c->ppm - 1) / c->ppm;
}

/* Earlier times first, and what was planned first of equal ones; what has to wait for a server that stands still keeps its turn. */
static void enqueue(struct leaders *s, uint32_t slot, int64_t at)
{
        heap_set(&s->heap, slot, at << 24 | (int64_t)(s->events.at[slot].serial & 0xffffff));
}

uint32_t leaders_at(struct leaders *s, int64_t at, struct what w)
{
        uint32_t slot;
        if (s->free_events.len)
                slot = array_pop(&s->free_events);
        else {
                array_push(&s->events);
                slot = (uint32_t)s->events.len - 1;
        }
        w.serial = ++s->serial;
        s->events.at[slot] = w;
        enqueue(s, slot, at);
        return slot;
}

void leaders_fail(struct leaders *s, const char *what, const char *detail)
{
        if (s->result->violations++ == 0)
                err_set(s->err, ERR_FAILED, .msg = what, .detail = detail);
}

/* ---- the store ---- */

static void record_fini(struct kept_record *r)
{
        mem_free(r->key);
        mem_free(r->data);
}

void snapshot_fini(struct snapshot *p)
{
        for (size_t i = 0; i < p->records.len; i++)
                record_fini(&p->records.at[i]);
        for (size_t i = 0; i < p->events.len; i++)
                mem_free(p->events.at[i].data);
        array_fini(&p->records);
        array_fini(&p->events);
        *p = (struct snapshot){ 0 };
}

static void snapshot_copy(struct snapshot *to, const struct snapshot *from, bool events)
{
        for (size_t i = 0; i < from->records.len; i++)
                *array_push(&to->records) =
                    (struct kept_record){ mem_strdup(from->records.at[i].key),
                                          mem_dup(from->records.at[i].data, from->records.at[i].len + 1), from->records.at[i].len };
        for (size_t i = 0; events && i < from->events.len; i++)
                *array_push(&to->events) =
                    (struct kept_event){ mem_dup(from->events.at[i].data, from->events.at[i].len + 1), from->events.at[i].len };
        to->head = from->head;
}

static void put_record(struct snapshot *p, const struct store_record *r)
{
        size_t i = 0;
        while (i < p->records.len && strcmp(p->records.at[i].key, r->key) != 0)
                i++;
        bool known = i < p->records.len;
        if (!r->data) {
                if (!known)
                        return;
                record_fini(&p->records.at[i]);
                p->records.at[i] = p->records.at[--p->records.len];
                return;
        }
        struct kept_record *k = known ? &p->records.at[i] : array_push(&p->records);
        if (!known)
                k->key = mem_strdup(r->key);
        mem_free(k->data);
        k->data = mem_must(r->len + 1);
        memcpy(k->data, r->data, r->len);
        k->len = r->len;
}

static void store_apply(struct leaders *s, const struct store_batch *b)
{
        for (size_t i = 0; i < b->n_events; i++) {
                if (b->events[i].seq != s->store.events.len + 1)
                        leaders_fail(s, "C33: the history has an event twice, or not at all",
                                     fmt("sequence %llu after %zu", (unsigned long long)b->events[i].seq, s->store.events.len));
                struct kept_event *e = array_push(&s->store.events);
                e->data = mem_must(b->events[i].len + 1);
                memcpy(e->data, b->events[i].data, b->events[i].len);
                e->len = b->events[i].len;
        }
        for (size_t i = 0; i < b->n_events; i++)
                leaders_look_for_forged(s, b->events[i].data, b->events[i].len);
        for (size_t i = 0; s->verbose && i < b->n_events; i++) {
                printf("%8lld ", (long long)s->now);
                sim_print_event(stdout, b->events[i].data, b->events[i].len);
        }
        for (size_t i = 0; i < b->n_records; i++)
                put_record(&s->store, &b->records[i]);
        s->store.head = b->new_head;
        s->result->events += b->n_events;
        for (size_t i = 0; i < b->n_events; i++)
                s->result->hash = hash64_mix(s->result->hash, hash64(b->events[i].data, b->events[i].len));
}

/* As etcd: who leads, and the head, are compared; a batch that had gone through is taken for what it is. */
static bool store_commit_ask(struct leaders *s, const struct ask *a)
{
        const struct store_batch *b = &a->commit->batch;
        bool leads = s->leader && a->rev == s->leader;
        const struct store_event *last = &b->events[b->n_events - 1];
        const struct kept_event *mine = s->store.events.len ? &s->store.events.at[s->store.events.len - 1] : NULL;
        if (s->store.head == b->new_head && mine && mine->len == last->len && memcmp(mine->data, last->data, last->len) == 0 &&
            !MUTANT(head_not_compared))
                return true;
        if (!leads && !MUTANT(leadership_not_compared)) {
                s->result->refused++;
                return false;
        }
        if (s->store.head != b->expected_head && !MUTANT(head_not_compared))
                return false;
        if (!leads)
                leaders_fail(s, "C33: a server that does not lead has written", fmt("at %lld ms", (long long)s->now));
        store_apply(s, b);
        return true;
}

/* Whose key it is has changed: those who watch it hear so. One that is blind hears of it when it sees again. */
static void tell_watchers(struct leaders *s)
{
        for (uint32_t r = 0; r < REPLICAS; r++) {
                int64_t at = s->now + (chance(s, 20000) ? between(s, 100, 4000) : between(s, 1, 15)),
                        seen = s->servers[r].cut_until[BY_WATCH] + 1;
                leaders_at(s, at > seen ? at : seen,
                           (struct what){ .kind = AT_HEARD, .who = r, .life = s->servers[r].life, .number = s->leader, .conn = s->revs });
        }
}

static void remove_key(struct leaders *s)
{
        s->leader = 0;
        tell_watchers(s);
}

static void end_leases(struct leaders *s)
{
        for (uint32_t r = 0; r < REPLICAS; r++)
                if (s->leases[r].rev && s->now >= s->leases[r].until) {
                        if (s->leases[r].rev == s->leader)
                                remove_key(s);
                        s->leases[r].rev = 0;
                }
}

static void store_happens(struct leaders *s, struct what *w)
{
        struct ask *a = w->data;
        end_leases(s);
        int64_t until = s->now + true_wait(&s->store_clock, TTL_MS);
        switch (a->kind) {
        case ASK_LEAD:
                a->ok = s->leader == 0;
                if (a->ok) {
                        a->rev = s->leader = s->leases[w->who].rev = ++s->revs;
                        s->leases[w->who].until = until;
                        tell_watchers(s);
                }
                break;
        case ASK_KEEP:
                a->ok = a->rev && a->rev == s->leases[w->who].rev; /* the lease: of the key it says nothing */
                if (a->ok)
                        s->leases[w->who].until = until;
                break;
        case ASK_PROVE:
                a->ok = a->proof = s->leader && a->rev == s->leader;
                break;
        case ASK_LOAD:
                a->ok = s->leader && a->rev == s->leader;
                if (a->ok) {
                        a->loaded = mem_must(sizeof(*a->loaded));
                        snapshot_copy(a->loaded, &s->store, false);
                }
                break;
        case ASK_COMMIT:
                a->proof = s->leader && a->rev == s->leader;
                a->ok = store_commit_ask(s, a);
                a->proof &= a->ok;
                break;
        }
        if (leader_is_cut(s, w->who, a->kind))
                return; /* its answer is lost; whoever asked does not know what came of it */
        int64_t delay = chance(s, 20000) ? between(s, 100, 4000) : between(s, 1, 15);
        leaders_at(s, s->now + delay, (struct what){ .kind = AT_ANSWER, .who = w->who, .life = w->life, .data = a });
        w->data = NULL;
}

static void ask_free(struct ask *a)
{
        if (!a)
                return;
        batch_copy_unref(a->commit);
        if (a->loaded) {
                snapshot_fini(a->loaded);
                mem_free(a->loaded);
        }
        mem_free(a);
}

/* The store is lost, and a copy from before is put back. The servers are stopped for it, as docs/backup.md asks. */
static void restore(struct leaders *s)
{
        struct err err = { 0 };
        for (uint32_t r = 0; r < REPLICAS; r++)
                leader_stop(s, r);
        snapshot_fini(&s->store);
        snapshot_copy(&s->store, &s->backup, true);
        s->leader = 0;
        memset(s->leases, 0, sizeof(s->leases));
        s->revs++;
        struct core *c = core_create(&s->opt);
        for (size_t i = 0; i < s->store.records.len; i++)
                core_load_record(c, s->store.records.at[i].key, s->store.records.at[i].data, s->store.records.at[i].len, &err);
        struct input in = { .kind = INPUT_RESTORED, .now_ms = WALL_MS + s->now + INT64_C(86400000) * 30, .head = s->store.head };
        core_step(c, &in);
        struct core_batch *b;
        while ((b = core_cut(c))) {
                if (b->commit.n_events)
                        store_apply(s, &b->commit);
                core_batch_free(b);
        }
        core_destroy(c);
        s->result->restores++;
}

/* ---- what goes wrong ---- */

/* A member of the store that is alive and hears no other, a watch that is silent, a keep-alive, a commit or a read that nobody answers: any of the ways between the leader and the store
 * fails while others work, and its key is removed. What must be seen is a leader that is idle, with agents of its own that do not reach the next one; so some agents are cut from it, and
 * the others from the rest, well before: then it has nothing left to commit that the store could refuse. */
#define REST_MS (2 * (TTL_MS + LEASE_MS + GRACE_MS))

static void begin_blind(struct leaders *s, uint32_t r)
{
        if (!s->servers[r].core || s->servers[r].rev != s->leader)
                return;
        s->blind = r;
        s->blind_until = s->now + 4 * REST_MS;
        for (uint32_t n = 0; n < AGENTS; n++)
                for (uint32_t i = 0; i < REPLICAS; i++)
                        s->machines[n].cut_until[i] = (i == r) == (n < AGENTS / 2) ? s->blind_until : 0;
        leaders_at(s, s->now + REST_MS, (struct what){ .kind = AT_BLIND, .who = r });
}

static void go_blind(struct leaders *s, uint32_t r)
{
        uint32_t lost = (uint32_t)between(s, 1, (1 << CHANNELS) - 1);
        if (s->calm)
                return;
        for (uint32_t i = 0; i < CHANNELS; i++)
                if (lost & 1u << i)
                        s->servers[r].cut_until[i] = s->blind_until;
        if (between(s, 0, 3) > 0 && s->leader == s->servers[r].rev)
                remove_key(s);
        s->result->blind++;
}

static void fault(struct leaders *s)
{
        uint32_t r = (uint32_t)between(s, 0, REPLICAS - 1), n = (uint32_t)between(s, 0, AGENTS - 1);
        struct server *v = &s->servers[r];
        struct node_machine *m = &s->machines[n];
        int64_t wait = 2 * (TTL_MS + LEASE_MS + GRACE_MS);
        leaders_at(s, s->now + between(s, 200, 6000), (struct what){ .kind = AT_FAULT });
        if (s->calm)
                return;
        if (s->now < s->blind_until)
                return; /* that one needs rest around it */
        s->result->faults++;
        switch (between(s, 0, 12)) {
        case 0: /* killed */
                leader_stop(s, r);
                v->down = true;
                leaders_at(s, s->now + between(s, 100, wait), (struct what){ .kind = AT_WAKE, .who = r });
                break;
        case 1:
        case 2:
                wait = between(s, 500, wait);
                for (int i = 0; i < CHANNELS; i++)
                        v->cut_until[i] = s->now + wait;
                break;
        case 3: /* from some agents only, so that others still reach it */
        case 4:
                m->cut_until[r] = s->now + between(s, 500, wait);
                break;
        case 5: /* from all servers */
                for (uint32_t i = 0; i < REPLICAS; i++)
                        m->cut_until[i] = s->now + between(s, 2000, 2 * wait);
                break;
        case 6:
                holder_dies(s, n, false);
                leaders_at(s, s->now + between(s, 50, wait), (struct what){ .kind = AT_BOOT, .who = n });
                break;
        case 7:
                holder_dies(s, n, true);
                leaders_at(s, s->now + between(s, 500, wait), (struct what){ .kind = AT_BOOT, .who = n });
                break;
        case 8: /* the agent stands still, and its monitors do not */
                if (m->watched)
                        m->hangs_until = s->now + between(s, 500, wait);
                break;
        case 9: /* wall clocks jump */
                v->clock.wall_ahead += between(s, 0, 1) ? between(s, 0, 3600000) : 0;
                m->clock.wall_ahead += between(s, 0, 3600000);
                break;
        case 10:
                v->stalled_until = s->now + between(s, 100, wait);
                break;
        case 11:
                begin_blind(s, r);
                break;
        default:
                if (s->seed % 2 && s->now > s->end / 2 && s->backup.head && !s->result->restores && between(s, 0, 3) == 0)
                        restore(s);
                else if (s->now < s->end / 2 && !s->backup.head && s->store.head > 10)
                        snapshot_copy(&s->backup, &s->store, true);
        }
}

/* Before any step of a server: it may stand still for a while now, or stand still already. True: the step waits. */
static bool stands_still(struct leaders *s, uint32_t slot)
{
        const struct what *w = &s->events.at[slot];
        if (w->kind == AT_NONE || w->kind > AT_CLOSED)
                return false;
        struct server *v = &s->servers[w->who];
        if (chance(s, 150))
                v->paused_until = s->now + between(s, 10, 3 * (TTL_MS + LEASE_MS + GRACE_MS));
        bool of_lease = w->kind == AT_KEEP || w->kind == AT_ANSWER || w->kind == AT_HEARD;
        int64_t until = v->paused_until > v->stalled_until || of_lease ? v->paused_until : v->stalled_until;
        if (s->now >= until)
                return false;
        s->result->paused++;
        enqueue(s, slot, until);
        return true;
}

static bool agent_stands_still(struct leaders *s, uint32_t slot)
{
        const struct what *w = &s->events.at[slot];
        if (w->kind < AT_TO_AGENT || w->kind > AT_HANGUP || s->now >= s->machines[w->who].hangs_until)
                return false;
        enqueue(s, slot, s->machines[w->who].hangs_until);
        return true;
}

/* ---- the operator ---- */

static uint32_t somebody_who_leads(struct leaders *s)
{
        uint32_t first = (uint32_t)between(s, 0, REPLICAS - 1);
        for (uint32_t i = 0; i < REPLICAS; i++) {
                struct server *v = &s->servers[(first + i) % REPLICAS];
                bool avoided =
                    s->now < s->blind_until && (first + i) % REPLICAS == s->blind; /* nothing to commit, so nothing to be refused */
                if (v->core && !avoided && !v->down && s->now >= v->paused_until && s->now >= v->stalled_until)
                        return (first + i) % REPLICAS;
        }
        return REPLICAS;
}

static void apply_item(struct leaders *s, uint32_t r, uint32_t item)
{
        struct arena memory = ARENA_INIT;
        struct err err = { 0 };
        Pb__ApplyWorkloadRequest req = PB__APPLY_WORKLOAD_REQUEST__INIT;
        Pb__Workload w = PB__WORKLOAD__INIT;
        Pb__Spec spec = PB__SPEC__INIT;
        Pb__Resources res = PB__RESOURCES__INIT;
        char *command[] = { "run", arena_printf(&memory, "%u", s->revision[item]) };
        spec.command = command;
        spec.n_command = 2;
        res.cpu = 100;
        res.memory_mb = 10;
        w.id = arena_printf(&memory, "w%u", item);
        w.type = PB__WORKLOAD_TYPE__E__process;
        w.spec = &spec;
        w.resources = &res;
        w.stop_grace_seconds = 1 + (int32_t)item;
        w.exclusive = s->wanted[item];
        req.workload = &w;
        if (workload_normalise(&memory, &w, &err) < 0)
                leaders_fail(s, "a workload is not valid", err_line(&err));
        struct input in = { .kind = INPUT_APPLY, .msg = &req.base };
        leader_input(s, r, &in);
        arena_fini(&memory);
}

static void on_item(struct leaders *s, uint32_t r, uint32_t item, enum input_kind kind, Pb__DesiredState__E desired)
{
        char id[16];
        snprintf(id, sizeof(id), "w%u", item);
        Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
        Pb__SetDesiredRequest d = PB__SET_DESIRED_REQUEST__INIT;
        ref.id = d.id = id;
        d.desired_state = desired;
        struct input in = { .kind = kind, .msg = kind == INPUT_DESIRED ? &d.base : &ref.base };
        leader_input(s, r, &in);
}

static void on_node(struct leaders *s, uint32_t r, uint32_t n, enum input_kind kind, Pb__NodeWish__E wish)
{
        Pb__NodeRef ref = PB__NODE_REF__INIT;
        Pb__SetNodeWishRequest w = PB__SET_NODE_WISH_REQUEST__INIT;
        ref.id = w.id = s->machines[n].id;
        w.wish = wish;
        struct input in = { .kind = kind, .msg = kind == INPUT_NODE_WISH ? &w.base : &ref.base };
        leader_input(s, r, &in);
}

/* Whatever was asked for and lost is asked for again. */
static void insist(struct leaders *s, uint32_t r)
{
        for (uint32_t i = 0; i < ITEMS; i++) {
                s->wanted[i] = i < 4 ? PB__EXCLUSIVE__E__movable : s->wanted[i];
                apply_item(s, r, i);
                on_item(s, r, i, INPUT_DESIRED, PB__DESIRED_STATE__E__Running);
                if (s->now < s->end + CALM_MS - 60000)
                        on_item(s, r, i, INPUT_RETRY, 0);
        }
        for (uint32_t n = 0; n < AGENTS; n++) {
                Pb__AdoptRequest adopt = PB__ADOPT_REQUEST__INIT;
                struct input in = { .kind = INPUT_ADOPT, .msg = &adopt.base };
                adopt.id = s->machines[n].id;
                on_node(s, r, n, INPUT_NODE_WISH, PB__NODE_WISH__E__schedulable);
                if (s->servers[r].core)
                        leader_input(s, r, &in); /* what a restore forgot */
        }
}

static void operate(struct leaders *s)
{
        leaders_at(s, s->now + between(s, 500, 8000), (struct what){ .kind = AT_OPERATOR });
        uint32_t r = somebody_who_leads(s), item = (uint32_t)between(s, 0, ITEMS - 1), n = (uint32_t)between(s, 0, AGENTS - 1);
        if (r == REPLICAS)
                return;
        if (s->calm) {
                insist(s, r);
                return;
        }
        switch (between(s, 0, 9)) {
        case 0:
                s->revision[item]++;
                apply_item(s, r, item);
                break;
        case 1:
                on_item(s, r, item, INPUT_DESIRED, PB__DESIRED_STATE__E__Stopped);
                break;
        case 2:
        case 3:
                on_item(s, r, item, INPUT_DESIRED, PB__DESIRED_STATE__E__Running);
                break;
        case 4:
                on_item(s, r, item, INPUT_DELETE, 0);
                break;
        case 5:
                on_node(s, r, n, INPUT_NODE_WISH, between(s, 0, 2) ? PB__NODE_WISH__E__schedulable : PB__NODE_WISH__E__draining);
                break;
        case 6: /* the truth, and nothing but the truth */
                if (s->machines[n].down)
                        on_node(s, r, n, INPUT_NODE_FENCE, 0);
                break;
        case 7: /* becomes exclusive, or ceases to be */
                s->wanted[5] = s->wanted[5] ? PB__EXCLUSIVE__E__unset : PB__EXCLUSIVE__E__movable;
                s->revision[5]++;
                apply_item(s, r, 5);
                break;
        default:
                apply_item(s, r, item);
        }
}

/* ---- the run ---- */

static void happens(struct leaders *s, struct what *w)
{
        switch (w->kind) {
        case AT_STORE:
                store_happens(s, w);
                break;
        case AT_FAULT:
                fault(s);
                break;
        case AT_OPERATOR:
                operate(s);
                break;
        case AT_BLIND:
                go_blind(s, w->who);
                break;
        case AT_WAKE:
                s->servers[w->who].down = false;
                leaders_at(s, s->now, (struct what){ .kind = AT_KEEP, .who = w->who, .life = s->servers[w->who].life });
                break;
        default:
                if (w->kind <= AT_CLOSED)
                        leader_happens(s, w);
                else
                        holder_happens(s, w);
        }
        if (w->kind == AT_STORE || w->kind == AT_ANSWER)
                ask_free(w->data);
        else
                mem_free(w->data);
}

static struct machine_clock clock_drawn(struct leaders *s)
{
        int64_t most = DRIFT_PERCENT * 10000 / 21 * 10; /* either way: the fastest is then less than the drift faster than the slowest */
        return (struct machine_clock){ .ppm = 1000000 + between(s, -most, most),
                                       .begins = between(s, 1, 1000000000),
                                       .wall_ahead = between(s, 0, 7200000) };
}

static void set_up(struct leaders *s)
{
        core_options_default(&s->opt);
        s->opt.heartbeat_ms = BEAT_MS;
        s->opt.evict_grace_ms = 500; /* so that nothing but the lease is waited for */
        s->opt.launch_grace_ms = 3000;
        s->opt.brake_percent = 100;
        s->opt.list_ms = 5000;
        s->opt.lead_ms = TTL_MS;
        s->opt.lease_ms = LEASE_MS;
        s->opt.lease_grace_ms = GRACE_MS;
        s->opt.drift_percent = DRIFT_PERCENT;
        s->opt.warrants = (struct warrant_keys){ .has = true, .key = { 's', 'i', 'm' } };
        s->store_clock = clock_drawn(s);
        *array_push(&s->conns) = (struct stream_end){ .closed = true };
        for (uint32_t i = 0; i < ITEMS; i++)
                s->wanted[i] = i == 4 ? PB__EXCLUSIVE__E__pinned : PB__EXCLUSIVE__E__movable;
        for (uint32_t r = 0; r < REPLICAS; r++) {
                s->servers[r].clock = clock_drawn(s);
                s->servers[r].asked_ms = INT64_MIN;
                leaders_at(s, between(s, 0, 300), (struct what){ .kind = AT_KEEP, .who = r });
        }
        for (uint32_t n = 0; n < AGENTS; n++) {
                struct node_machine *m = &s->machines[n];
                snprintf(m->id, sizeof(m->id), "n%u", n);
                m->clock = clock_drawn(s);
                m->watched = n % 2;
                leaders_at(s, between(s, 100, 1000), (struct what){ .kind = AT_BOOT, .who = n });
        }
        leaders_at(s, 3000, (struct what){ .kind = AT_OPERATOR });
        leaders_at(s, 20000, (struct what){ .kind = AT_FAULT });
}

static void calm_down(struct leaders *s)
{
        s->calm = true;
        s->blind_until = 0;
        for (uint32_t r = 0; r < REPLICAS; r++) {
                s->servers[r].paused_until = s->servers[r].stalled_until = 0;
                memset(s->servers[r].cut_until, 0, sizeof(s->servers[r].cut_until));
        }
        for (uint32_t n = 0; n < AGENTS; n++) {
                s->machines[n].hangs_until = 0;
                for (uint32_t r = 0; r < REPLICAS; r++)
                        s->machines[n].cut_until[r] = 0;
        }
}

/* The promise is no excuse: when everything works again each of them runs, once. */
static void check_calm(struct leaders *s)
{
        for (uint32_t i = 0; i < ITEMS; i++) {
                uint32_t alive = 0;
                for (uint32_t n = 0; n < AGENTS; n++)
                        alive += s->machines[n].copies[i].used && s->machines[n].copies[i].alive;
                if (alive != 1)
                        leaders_fail(s, "C21: a workload does not run once when everything works again",
                                     fmt("w%u runs %u times", i, alive));
        }
}

/* Records are the fold of the events. */
static void check_fold(struct leaders *s)
{
        struct err err = { 0 };
        struct core *folded = core_create(&s->opt), *loaded = core_create(&s->opt);
        bool ok = true;
        for (size_t i = 0; ok && i < s->store.events.len; i++)
                ok = core_fold(folded, s->store.events.at[i].data, s->store.events.at[i].len, &err) >= 0;
        for (size_t i = 0; ok && i < s->store.records.len; i++)
                ok = core_load_record(loaded, s->store.records.at[i].key, s->store.records.at[i].data, s->store.records.at[i].len, &err) >=
                     0;
        if (!ok)
                leaders_fail(s, "A2: the stored events do not fold", err_line(&err));
        core_loaded(loaded, s->store.head);
        struct str a = STR_INIT, b = STR_INIT;
        core_dump(folded, &a);
        core_dump(loaded, &b);
        if (ok && strcmp(str_c(&a), str_c(&b)) != 0)
                leaders_fail(s, "A3: the records are not the fold of the events", "");
        str_fini(&a);
        str_fini(&b);
        core_destroy(folded);
        core_destroy(loaded);
}

static void tear_down(struct leaders *s)
{
        s->result->simulated_ms = s->now;
        for (uint32_t r = 0; r < REPLICAS; r++) {
                leader_stop(s, r);
                array_fini(&s->servers[r].queue);
                array_fini(&s->servers[r].out);
        }
        while (heap_next_ms(&s->heap) != HEAP_NEVER) {
                struct what *w = &s->events.at[heap_pop(&s->heap)];
                if (w->kind == AT_STORE || w->kind == AT_ANSWER)
                        ask_free(w->data);
                else
                        mem_free(w->data);
        }
        for (uint32_t n = 0; n < AGENTS; n++)
                holder_fini(&s->machines[n]);
        snapshot_fini(&s->store);
        snapshot_fini(&s->backup);
        heap_fini(&s->heap);
        array_fini(&s->events);
        array_fini(&s->free_events);
        array_fini(&s->conns);
}

void leaders_run(uint64_t seed, int64_t hours_ms, bool verbose, struct leaders_result *ret, struct err *err)
{
        struct leaders *s = mem_must(sizeof(*s));
        *ret = (struct leaders_result){ 0 };
        s->result = ret;
        s->err = err;
        s->seed = seed;
        s->verbose = verbose;
        s->end = hours_ms;
        rng_seed(&s->rng, hash64_mix(seed, 34));
        set_up(s);
        while (!leaders_failed(s) && heap_next_ms(&s->heap) != HEAP_NEVER && s->now < s->end + CALM_MS) {
                int64_t at = heap_next_ms(&s->heap) >> 24;
                s->now = at > s->now ? at : s->now;
                if (s->now >= s->end && !s->calm)
                        calm_down(s);
                uint32_t slot = heap_pop(&s->heap);
                if (stands_still(s, slot) || agent_stands_still(s, slot))
                        continue;
                struct what w = s->events.at[slot];
                s->events.at[slot] = (struct what){ 0 };
                *array_push(&s->free_events) = slot;
                happens(s, &w);
        }
        if (!leaders_failed(s) && !ret->restores) /* what a restore forgot may need an operator's word for ever */
                check_calm(s);
        if (!leaders_failed(s))
                check_fold(s);
        tear_down(s);
        mem_free(s);
}
