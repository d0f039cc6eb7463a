/* sim/leaders_agent.c: machines with a real agent's engine each, units that note when they truly lived, and, on some, a monitor for each unit. */
#include "base/mem.h"
#include "base/mutant.h"
#include "base/ulid.h"
#include "model/pb.h"
#include "sim/leaders.h"
#include <stdio.h>
#include <string.h>

static int64_t agent_now(struct leaders *s, struct node_machine *m)
{
        int64_t now = WALL_MS + s->now + m->clock.wall_ahead;
        if (m->engine)
                engine_set_steady(m->engine, now, steady_of(&m->clock, s->now));
        return now;
}

static uint32_t number_of_item(const char *id)
{
        return (uint32_t)(id[1] - '0');
}

/* ---- units ---- */

static void next_turn(struct leaders *s, uint32_t n, struct life *c, int64_t in_ms, enum runtime_event_kind next)
{
        c->turn = ++s->turns;
        c->next = next;
        leaders_at(s, s->now + in_ms, (struct what){ .kind = AT_COPY, .who = n, .number = c->turn });
}

static void tell(struct leaders *s, uint32_t n, const struct life *c, enum runtime_event_kind kind)
{
        struct node_machine *m = &s->machines[n];
        if (!m->engine)
                return;
        int64_t now = agent_now(s, m);
        struct runtime_event ev = { .kind = kind, .workload_id = c->id, .token = c->token, .revision_id = c->revision, .at_ms = now };
        if (kind == RUNTIME_EXITED || kind == RUNTIME_FOUND_EXITED || kind == RUNTIME_STOPPED) {
                ev.has_signal = true;
                ev.signal = c->signal ? c->signal : 15;
                ev.reason = c->lease_expired ? PB__REASON__E__lease_expired : PB__REASON__E__none;
        }
        engine_event(m->engine, &ev, now);
}

static void copy_ends(struct leaders *s, struct node_machine *m, struct life *c)
{
        if (!c->alive)
                return;
        c->alive = c->stopping = false;
        c->ended = s->now;
        if (s->verbose)
                printf("%8lld %s %s ends\n", (long long)s->now, m->id, c->id);
        s->last_end[number_of_item(c->id)] = s->now;
}

/* The checker: at one true instant an exclusive unit has one holder. */
static void check_holder(struct leaders *s, uint32_t n, const struct life *starts)
{
        uint32_t item = number_of_item(starts->id);
        s->result->starts++;
        if (starts->exclusive == PB__EXCLUSIVE__E__unset)
                return;
        s->result->moves += s->last_holder[item] && s->last_holder[item] != n + 1;
        s->last_holder[item] = n + 1;
        for (uint32_t i = 0; i < AGENTS; i++) {
                const struct life *c = &s->machines[i].copies[item];
                /* What was not exclusive in the state that a restore lost has no lease, and is in no record: docs/fencing.md says so. */
                bool forgotten = s->result->restores && c->exclusive == PB__EXCLUSIVE__E__unset;
                /* It was no longer exclusive when that one was launched: this one has not heard of it yet, and nothing is promised any more. */
                bool ceased = c->exclusive == PB__EXCLUSIVE__E__unset && unit_token_cmp(starts->token, c->token) < 0;
                if (i != n && c->used && c->alive && !forgotten && !ceased)
                        leaders_fail(s, "C34: an exclusive unit has two holders",
                                     fmt("at %lld ms: %s starts on %s with token %llu.%llu, and lives on %s since %lld with %llu.%llu",
                                         (long long)s->now, starts->id, s->machines[n].id, (unsigned long long)starts->token.epoch,
                                         (unsigned long long)starts->token.seq, s->machines[i].id, (long long)c->began,
                                         (unsigned long long)c->token.epoch, (unsigned long long)c->token.seq));
        }
}

static void order_start(struct leaders *s, uint32_t n, const struct engine_order *o)
{
        struct node_machine *m = &s->machines[n];
        struct life *c = &m->copies[number_of_item(o->workload_id)];
        Pb__Workload *w = pb__workload__unpack(NULL, o->len, o->data);
        if (c->used && c->alive) {
                leaders_fail(s, "W1: a second copy was started beside a running one", o->workload_id);
                pb__workload__free_unpacked(w, NULL);
                return;
        }
        *c = (struct life){ .used = true, .alive = true, .token = o->token, .exclusive = w->exclusive, .began = s->now };
        snprintf(c->id, sizeof(c->id), "%s", o->workload_id);
        snprintf(c->revision, sizeof(c->revision), "%s", w->revision_id);
        if (s->verbose)
                printf("%8lld %s %s begins with token %llu.%llu\n", (long long)s->now, m->id, c->id, (unsigned long long)o->token.epoch,
                       (unsigned long long)o->token.seq);
        check_holder(s, n, c);
        next_turn(s, n, c, between(s, 5, 300), RUNTIME_STARTED);
        pb__workload__free_unpacked(w, NULL);
}

static void order_stop(struct leaders *s, uint32_t n, const struct engine_order *o)
{
        struct node_machine *m = &s->machines[n];
        struct life *c = &m->copies[number_of_item(o->workload_id)];
        if (!c->used || !c->alive) {
                struct life none = { .token = o->token };
                snprintf(none.id, sizeof(none.id), "%s", o->workload_id);
                tell(s, n, &none, RUNTIME_STOPPED);
                return;
        }
        c->stopping = true;
        int64_t grace = true_wait(&m->clock, o->grace_ms);
        next_turn(s, n, c, chance(s, 400000) ? grace : between(s, 0, grace < 500 ? grace : 500), RUNTIME_STOPPED);
}

static void order_remove(struct leaders *s, uint32_t n, const struct engine_order *o)
{
        struct life *c = &s->machines[n].copies[number_of_item(o->workload_id)];
        struct life none = { .token = c->used ? c->token : o->token };
        if (c->used && c->alive)
                leaders_fail(s, "W1: a running copy was removed", o->workload_id);
        snprintf(none.id, sizeof(none.id), "%s", o->workload_id);
        *c = (struct life){ 0 };
        tell(s, n, &none, RUNTIME_REMOVED);
}

static void watch_lease(struct leaders *s, uint32_t n)
{
        struct node_machine *m = &s->machines[n];
        int64_t left = m->lease_until - steady_of(&m->clock, s->now);
        if (m->watched)
                leaders_at(s, s->now + (left > 0 ? true_wait(&m->clock, left) : 0),
                           (struct what){ .kind = AT_MONITOR, .who = n, .number = m->boots });
}

/* Monitors are processes of their own: they do not care how their agent is. */
static void monitor_looks(struct leaders *s, uint32_t n)
{
        struct node_machine *m = &s->machines[n];
        int64_t now = steady_of(&m->clock, s->now);
        if (m->down || MUTANT(monitor_ignores_lease))
                return;
        if (now < m->lease_until) {
                watch_lease(s, n);
                return;
        }
        for (uint32_t i = 0; i < ITEMS; i++) {
                struct life *c = &m->copies[i];
                if (!c->used || !c->alive || c->exclusive != PB__EXCLUSIVE__E__movable || c->lease_expired)
                        continue;
                int64_t left = m->lease_kill > now ? true_wait(&m->clock, m->lease_kill - now) : 0;
                c->lease_expired = true;
                if (!c->stopping)
                        next_turn(s, n, c, between(s, 0, left), RUNTIME_EXITED);
                else
                        next_turn(s, n, c, between(s, 0, left), RUNTIME_STOPPED);
        }
}

static struct life *copy_of_turn(struct node_machine *m, uint64_t turn)
{
        for (uint32_t i = 0; i < ITEMS; i++)
                if (m->copies[i].used && m->copies[i].turn == turn)
                        return &m->copies[i];
        return NULL;
}

/* ---- the agent ---- */

static void disk_put(struct node_machine *m, const char *id, const void *data, size_t len)
{
        struct kept_record *r = NULL;
        for (size_t i = 0; i < m->disk.len; i++)
                if (strcmp(m->disk.at[i].key, id) == 0)
                        r = &m->disk.at[i];
        if (!r) {
                r = array_push(&m->disk);
                r->key = mem_strdup(id);
        }
        mem_free(r->data);
        r->data = mem_dup(data, len + !len);
        r->len = len;
}

static void disk_forget(struct node_machine *m, const char *id)
{
        for (size_t i = 0; i < m->disk.len; i++)
                if (strcmp(m->disk.at[i].key, id) == 0) {
                        mem_free(m->disk.at[i].key);
                        mem_free(m->disk.at[i].data);
                        m->disk.at[i] = m->disk.at[--m->disk.len];
                        return;
                }
}

static void carry_out(struct leaders *s, uint32_t n, const struct engine_order *o)
{
        struct node_machine *m = &s->machines[n];
        switch (o->kind) {
        case ORDER_PERSIST_UNIT:
                disk_put(m, o->workload_id, o->data, o->len);
                break;
        case ORDER_PERSIST_AGENT:
                mem_free(m->record);
                m->record = mem_dup(o->data, o->len + !o->len);
                m->record_len = o->len;
                break;
        case ORDER_FORGET_UNIT:
                disk_forget(m, o->workload_id);
                break;
        case ORDER_LEASE:
                m->lease_until = o->until_ms;
                m->lease_kill = o->kill_ms;
                break;
        case ORDER_START:
                order_start(s, n, o);
                watch_lease(s, n);
                break;
        case ORDER_STOP:
                order_stop(s, n, o);
                break;
        case ORDER_REMOVE:
                order_remove(s, n, o);
                break;
        }
}

static void put_on_wire(struct leaders *s, uint32_t n, const struct engine_packet *p)
{
        struct node_machine *m = &s->machines[n];
        if (!m->conn)
                return;
        const struct stream_end *c = &s->conns.at[m->conn];
        int64_t at = s->now + (chance(s, 10000) ? between(s, 200, 5000) : between(s, 1, 20));
        if (at <= m->cut_until[c->server])
                at = m->cut_until[c->server] + 1;
        at = m->to_server = at > m->to_server ? at : m->to_server + 1;
        leaders_at(s, at,
                   (struct what){ .kind = AT_INPUT,
                                  .who = c->server,
                                  .life = c->life,
                                  .conn = m->conn,
                                  .data = mem_dup(p->data, p->len + !p->len),
                                  .len = p->len });
}

static void pump(struct leaders *s, uint32_t n)
{
        struct node_machine *m = &s->machines[n];
        struct engine_output *out;
        struct err err = { 0 };
        agent_now(s, m);
        while (m->engine && !leaders_failed(s) && (out = engine_take(m->engine))) {
                for (size_t i = 0; i < out->n_orders && !leaders_failed(s); i++)
                        carry_out(s, n, &out->orders[i]);
                for (size_t i = 0; i < out->n_messages; i++)
                        put_on_wire(s, n, &out->messages[i]);
                engine_output_free(out);
        }
        if (!m->engine || leaders_failed(s))
                return;
        if (engine_check(m->engine, &err) < 0)
                leaders_fail(s, err.msg, err.detail);
        const char *reason;
        int64_t retry;
        if (m->conn && engine_wants_close(m->engine, &reason, &retry))
                holder_hangs_up(s, n);
        int64_t next = engine_next_ms(m->engine), now = agent_now(s, m);
        if (next == INT64_MAX || !m->engine)
                return;
        m->tick++;
        leaders_at(s, s->now + (next > now ? next - now : 1), (struct what){ .kind = AT_AGENT_TICK, .who = n, .number = m->tick });
}

void holder_boot(struct leaders *s, uint32_t n)
{
        static const Pb__WorkloadType__E types[] = { PB__WORKLOAD_TYPE__E__process, 0 };
        struct node_machine *m = &s->machines[n];
        struct err err = { 0 };
        if (m->engine)
                return;
        m->down = false;
        m->hangs_until = 0;
        char instance[ULID_LEN + 1];
        ulid_make(instance, WALL_MS + s->now, n, m->boots);
        struct engine_options opt = { .node_id = m->id,
                                      .instance = instance,
                                      .agent_version = "sim",
                                      .cpu = 8000,
                                      .memory_mb = 8192,
                                      .disk_gb = 100,
                                      .types = types,
                                      .exclusive_types = types };
        m->engine = engine_create(&opt);
        if (m->lease_until)
                engine_load_lease(m->engine, m->lease_until, m->lease_kill);
        if (m->record && engine_load_agent(m->engine, m->record, m->record_len, &err) < 0)
                leaders_fail(s, "an agent's record does not load", err_line(&err));
        for (size_t i = 0; i < m->disk.len; i++)
                if (engine_load_unit(m->engine, m->disk.at[i].data, m->disk.at[i].len, &err) < 0)
                        leaders_fail(s, "a unit's record does not load", err_line(&err));
        for (uint32_t i = 0; i < ITEMS; i++)
                if (m->copies[i].used)
                        tell(s, n, &m->copies[i],
                             m->copies[i].alive  ? RUNTIME_FOUND_RUNNING
                             : m->copies[i].gone ? RUNTIME_FOUND_GONE
                                                 : RUNTIME_FOUND_EXITED);
        engine_booted(m->engine, agent_now(s, m));
        pump(s, n);
        leaders_at(s, s->now + between(s, 10, 500), (struct what){ .kind = AT_CONNECT, .who = n });
}

void holder_hangs_up(struct leaders *s, uint32_t n)
{
        struct node_machine *m = &s->machines[n];
        if (!m->conn)
                return;
        const struct stream_end *c = &s->conns.at[m->conn];
        leaders_at(s, s->now + between(s, 1, 2000), (struct what){ .kind = AT_CLOSED, .who = c->server, .life = c->life, .conn = m->conn });
        m->conn = 0;
        if (m->engine)
                engine_disconnected(m->engine, agent_now(s, m));
        leaders_at(s, s->now + between(s, 10, 1000), (struct what){ .kind = AT_CONNECT, .who = n });
}

void holder_dies(struct leaders *s, uint32_t n, bool machine)
{
        struct node_machine *m = &s->machines[n];
        if (m->engine)
                engine_destroy(m->engine);
        m->engine = NULL;
        holder_hangs_up(s, n);
        if (machine || !m->watched)
                for (uint32_t i = 0; i < ITEMS; i++)
                        if (m->copies[i].used && m->copies[i].alive) {
                                copy_ends(s, m, &m->copies[i]);
                                m->copies[i].gone = true;
                        }
        if (!machine)
                return;
        m->down = true;
        m->boots++;
        m->lease_until = m->lease_kill = 0; /* of another boot */
}

void holder_fini(struct node_machine *m)
{
        if (m->engine)
                engine_destroy(m->engine);
        for (size_t i = 0; i < m->disk.len; i++) {
                mem_free(m->disk.at[i].key);
                mem_free(m->disk.at[i].data);
        }
        array_fini(&m->disk);
        mem_free(m->record);
}

static void connect(struct leaders *s, uint32_t n)
{
        struct node_machine *m = &s->machines[n];
        if (!m->engine || m->conn)
                return;
        uint32_t r = (uint32_t)between(s, 0, REPLICAS - 1);
        const struct server *v = &s->servers[r];
        if (!v->core || v->down || s->now < m->cut_until[r]) { /* one that thinks that it leads will do: an old one does not know better */
                leaders_at(s, s->now + between(s, 100, 800), (struct what){ .kind = AT_CONNECT, .who = n });
                return;
        }
        m->conn = s->conns.len;
        *array_push(&s->conns) = (struct stream_end){ .agent = n, .server = r, .life = v->life };
        m->to_agent = m->to_server = m->answered = s->now;
        engine_connected(m->engine, agent_now(s, m));
        pump(s, n);
}

static void on_message(struct leaders *s, uint32_t n, const struct what *w)
{
        struct node_machine *m = &s->machines[n];
        if (m->conn != w->conn)
                return;
        Pb__ServerMessage *msg = pb__server_message__unpack(NULL, w->len, w->data);
        m->answered = s->now;
        engine_message(m->engine, msg, agent_now(s, m));
        pb__server_message__free_unpacked(msg, NULL);
        pump(s, n);
}

static void copy_turn(struct leaders *s, uint32_t n, const struct what *w)
{
        struct node_machine *m = &s->machines[n];
        struct life *c = copy_of_turn(m, w->number);
        if (!c || !c->alive)
                return;
        if (c->next != RUNTIME_STARTED)
                copy_ends(s, m, c);
        /* That is the truth; the agent hears of it when it can. */
        leaders_at(s, s->now > m->hangs_until ? s->now : m->hangs_until, (struct what){ .kind = AT_TELL, .who = n, .number = c->turn });
}

void holder_happens(struct leaders *s, struct what *w)
{
        struct node_machine *m = &s->machines[w->who];
        if (w->kind == AT_BOOT) {
                holder_boot(s, w->who);
                return;
        }
        if (w->kind == AT_COPY) {
                copy_turn(s, w->who, w);
                return;
        }
        if (w->kind == AT_MONITOR) {
                if (w->number == m->boots)
                        monitor_looks(s, w->who);
                return;
        }
        if (!m->engine)
                return;
        switch (w->kind) {
        case AT_TO_AGENT:
                on_message(s, w->who, w);
                break;
        case AT_AGENT_TICK:
                if (w->number != m->tick)
                        break;
                if (m->conn && s->now - m->answered > 3 * BEAT_MS)
                        holder_hangs_up(s, w->who); /* perhaps another server answers */
                engine_tick(m->engine, agent_now(s, m));
                pump(s, w->who);
                break;
        case AT_CONNECT:
                connect(s, w->who);
                break;
        case AT_HANGUP:
                if (m->conn == w->conn)
                        holder_hangs_up(s, w->who);
                pump(s, w->who);
                break;
        case AT_TELL: {
                struct life *c = copy_of_turn(m, w->number);
                if (c) {
                        tell(s, w->who, c, c->next);
                        pump(s, w->who);
                }
                break;
        }
        default:
                break;
        }
}
