/* sim/link.c: the network between agents and the server: streams that keep their order, and what
 * becomes of them.
 *
 * A message that is lost takes its stream with it, sooner or later, as with TCP. Streams do not
 * wait for each other: what was sent on an old one may arrive after what was sent on the one that
 * took its place (SIM_REORDER).
 */
#include "base/mem.h"
#include "sim/world.h"
#include <stdlib.h>

int64_t sim_link_delay(struct sim *s)
{
        if (sim_hit(s, SIM_DELAY, 2000))
                return sim_between(s, CHANCE_NET, 500, 15000);
        return sim_between(s, CHANCE_NET, 1, 20);
}

static struct sim_event to_server(struct sim *s, enum event_kind kind, uint32_t n)
{
        uint64_t conn = s->machines.at[n].conn;
        return (struct sim_event){
                .kind = kind, .node = n, .conn = conn, .server = s->conns.at[conn].server
        };
}

void sim_link_break(struct sim *s, uint32_t n, bool silent)
{
        struct machine *m = &s->machines.at[n];
        if (!m->conn)
                return;
        int64_t noticed = silent ? sim_between(s, CHANCE_NET, 5000, 40000) : sim_link_delay(s);
        sim_at(s, s->now + noticed,
               (struct sim_event){ .kind = EV_AGENT_GONE, .node = n, .conn = m->conn });
        noticed = silent ? sim_between(s, CHANCE_NET, 5000, 60000) : sim_link_delay(s);
        sim_at(s, s->now + noticed, to_server(s, EV_SERVER_GONE, n));
}

void sim_link_end(struct sim *s, uint32_t n)
{
        struct machine *m = &s->machines.at[n];
        if (m->conn)
                sim_at(s, s->now + sim_link_delay(s), to_server(s, EV_SERVER_GONE, n));
        m->conn = 0;
}

void sim_link_close(struct sim *s, uint64_t session)
{
        uint32_t n = s->conns.at[session].machine;
        s->conns.at[session].server_gone = true;
        sim_at(s, s->now + sim_link_delay(s),
               (struct sim_event){ .kind = EV_AGENT_GONE, .node = n, .conn = session });
}

void sim_agent_connect(struct sim *s, uint32_t n)
{
        struct machine *m = &s->machines.at[n];
        if (!m->engine || m->conn)
                return;
        bool one = s->opt.servers == 1;
        /* One that thinks that it leads will do: an old one does not know better. */
        struct server *v = &s->servers[one ? 0 : sim_between(s, CHANCE_NET, 0, s->opt.servers - 1)];
        if (!v->core || m->cut || m->up_lost || m->down_lost || m->stalled_until > s->now ||
            m->cut_until[v->number] > s->now) {
                int64_t wait = one ? sim_between(s, CHANCE_NET, 500, 5000)
                                   : sim_between(s, CHANCE_NET, 100, 800);
                sim_at(s, s->now + wait, (struct sim_event){ .kind = EV_CONNECT, .node = n });
                return;
        }
        m->conn = s->conns.len;
        *array_push(&s->conns) =
            (struct conn){ .machine = n, .server = v->number, .life = v->life };
        m->to_agent_at = m->to_server_at = m->heard = s->now;
        engine_connected(m->engine, sim_agent_now(s, m));
        sim_agent_pump(s, n);
}

void sim_agent_gone(struct sim *s, uint32_t n, uint64_t conn)
{
        struct machine *m = &s->machines.at[n];
        if (!m->engine || m->conn != conn)
                return;
        sim_link_end(s, n);
        engine_disconnected(m->engine, sim_agent_now(s, m));
        sim_at(s, s->now + sim_between(s, CHANCE_NET, 50, 3000),
               (struct sim_event){ .kind = EV_CONNECT, .node = n });
        sim_agent_pump(s, n);
}

/* When the next message of a stream arrives: equal times have no order, so there are none. */
static int64_t arrival(int64_t at, int64_t *last)
{
        *last = at > *last ? at : *last + 1;
        return *last;
}

void sim_link_to_server(struct sim *s, uint32_t n, const struct engine_packet *p)
{
        struct machine *m = &s->machines.at[n];
        if (!m->conn || m->cut || (m->up_lost && !m->stalls))
                return;
        const void *data = p->data;
        size_t len = p->len;
        if (s->now < m->lies_until)
                data = sim_lie(s, n, data, &len);
        int64_t at = s->now + sim_link_delay(s);
        if (m->up_lost && at <= m->heals_at)
                at = m->heals_at + 1;
        struct sim_event ev = to_server(s, EV_TO_SERVER, n);
        if (at <= m->cut_until[ev.server])
                at = m->cut_until[ev.server] + 1;
        ev.data = mem_dup(data, len + !len);
        ev.len = len;
        sim_at(s, arrival(at, &m->to_server_at), ev);
        if (sim_hit(s, SIM_DUP, 10000)) {
                ev.data = mem_dup(data, len + !len);
                sim_at(s, arrival(at, &m->to_server_at), ev);
        }
        arena_reset(&s->lies);
}

void sim_link_to_agent(struct sim *s, uint64_t session, struct sim_event ev)
{
        uint32_t n = session < s->conns.len ? s->conns.at[session].machine : 0;
        struct machine *m = &s->machines.at[n];
        if (!session || m->conn != session || m->cut || (m->down_lost && !m->stalls)) {
                sim_event_free(&ev);
                return;
        }
        int64_t at = s->now + sim_link_delay(s);
        if (m->down_lost && at <= m->heals_at)
                at = m->heals_at + 1;
        if (at < m->stalled_until)
                at = m->stalled_until;
        if (at <= m->cut_until[s->conns.at[session].server])
                at = m->cut_until[s->conns.at[session].server] + 1;
        ev.node = n;
        ev.conn = session;
        sim_at(s, arrival(at, &m->to_agent_at), ev);
        if (sim_hit(s, SIM_DUP, 10000)) {
                if (ev.data)
                        ((struct letter *)ev.data)->refs++;
                sim_at(s, arrival(at, &m->to_agent_at), ev);
        }
}

struct waiting {
        int64_t at;
        uint32_t slot;
};

static int by_time(const void *a, const void *b)
{
        const struct waiting *x = a, *y = b;
        return x->at < y->at ? -1 : x->at > y->at;
}

void sim_link_stall(struct sim *s, uint32_t n)
{
        struct machine *m = &s->machines.at[n];
        ARRAY(struct waiting) list = { 0 };
        for (uint32_t i = 0; i < s->events.len; i++) {
                const struct sim_event *ev = &s->events.at[i];
                if (ev->node == n && ev->conn == m->conn &&
                    (ev->kind == EV_TO_AGENT || ev->kind == EV_ACK || ev->kind == EV_LIST))
                        *array_push(&list) = (struct waiting){ heap_get(&s->heap, i), i };
        }
        if (list.len)
                qsort(list.at, list.len, sizeof(*list.at), by_time);
        int64_t last = m->stalled_until;
        for (size_t i = 0; i < list.len; i++)
                heap_set(&s->heap, list.at[i].slot, arrival(list.at[i].at, &last));
        if (list.len && last > m->to_agent_at)
                m->to_agent_at = last;
        array_fini(&list);
}

void sim_agent_message(struct sim *s, const struct sim_event *ev)
{
        struct machine *m = &s->machines.at[ev->node];
        if (!m->engine || m->conn != ev->conn || m->cut || (m->down_lost && !m->stalls))
                return;
        int64_t now = sim_agent_now(s, m);
        m->heard = s->now;
        if (ev->kind == EV_TO_AGENT)
                engine_message(m->engine, &((const struct letter *)ev->data)->msg, now);
        else {
                Pb__ServerMessage msg = PB__SERVER_MESSAGE__INIT;
                Pb__HeartbeatAck ack = PB__HEARTBEAT_ACK__INIT;
                Pb__ListUnits list = PB__LIST_UNITS__INIT;
                ack.next_ms = (int64_t)ev->value;
                ack.clock_ms = ev->clock_ms;
                ack.lease_ms = ev->lease_ms;
                ack.stop_ms = ev->stop_ms;
                if (ev->kind == EV_ACK)
                        msg.heartbeat = &ack;
                else
                        msg.list = &list;
                engine_message(m->engine, &msg, now);
        }
        sim_agent_pump(s, ev->node);
}
