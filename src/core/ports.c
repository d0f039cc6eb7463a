/* core/ports.c: host ports: on one node, one unit for each (C38). A tombstone holds its ports until
 * it is proved gone. */
#include "base/mem.h"
#include "core/state.h"
#include <string.h>

uint32_t port_key(const Pb__Port *p)
{
        if (p->host_port < 1 || p->host_port > 65535)
                return 0;
        uint32_t protocol = str_eq(p->protocol, "udp") ? 1 : str_eq(p->protocol, "sctp") ? 2 : 0;
        return protocol << 16 | (uint32_t)p->host_port;
}

const char *port_text(uint32_t port)
{
        static const char *const names[] = { "", "/udp", "/sctp", "" };
        return fmt("%u%s", port & 65535, names[port >> 16 & 3]);
}

/* Where the port is in the node's sorted list, or where it would go. */
static size_t port_at(const struct node *n, uint32_t port)
{
        size_t low = 0, high = n->ports.len;
        while (low < high) {
                size_t mid = (low + high) / 2;
                if (n->ports.at[mid].port < port)
                        low = mid + 1;
                else
                        high = mid;
        }
        return low;
}

void ports_hold(struct core *c, struct node_ix ix, const uint32_t *ports, uint32_t count, int by)
{
        struct node *n = node_at(c, ix);
        for (uint32_t i = 0; i < count; i++) {
                size_t at = port_at(n, ports[i]);
                if (at == n->ports.len || n->ports.at[at].port != ports[i]) {
                        must(by > 0, "P6: a port that is given back was held");
                        array_push(&n->ports);
                        memmove(&n->ports.at[at + 1], &n->ports.at[at],
                                (n->ports.len - 1 - at) * sizeof(*n->ports.at));
                        n->ports.at[at] = (struct held_port){ .port = ports[i] };
                }
                n->ports.at[at].holders += (uint32_t)by;
                if (n->ports.at[at].holders)
                        continue;
                memmove(&n->ports.at[at], &n->ports.at[at + 1],
                        (n->ports.len - 1 - at) * sizeof(*n->ports.at));
                n->ports.len--;
                c->capacity_change += !c->counts.quiet;
        }
}

void ports_keep(struct node *n, const uint32_t *ports, uint32_t count, bool keep)
{
        for (uint32_t i = 0; i < count; i++) {
                size_t at = 0;
                while (at < n->kept_ports.len && n->kept_ports.at[at] != ports[i])
                        at++;
                must((at == n->kept_ports.len) == keep,
                     "a port is kept for one who waits, and given back by it");
                if (keep)
                        *array_push(&n->kept_ports) = ports[i];
                else
                        n->kept_ports.at[at] = n->kept_ports.at[--n->kept_ports.len];
        }
}

uint32_t ports_kept(const struct node *n, const uint32_t *ports, uint32_t count)
{
        for (uint32_t i = 0; i < count; i++)
                for (size_t k = 0; k < n->kept_ports.len; k++)
                        if (n->kept_ports.at[k] == ports[i])
                                return ports[i];
        return 0;
}

uint32_t ports_taken(const struct node *n, const uint32_t *ports, uint32_t count)
{
        for (uint32_t i = 0; i < count && n->ports.len; i++) {
                size_t at = port_at(n, ports[i]);
                if (at < n->ports.len && n->ports.at[at].port == ports[i])
                        return ports[i];
        }
        return 0;
}

bool host_port_is_taken(const struct node *n, const Pb__Workload *w)
{
        for (size_t i = 0; w->spec && i < w->spec->n_ports; i++) {
                uint32_t port = port_key(w->spec->ports[i]);
                if (port && ports_taken(n, &port, 1))
                        return true;
        }
        return false;
}

bool ports_fit_in_place(const struct core *c, const struct unit *w, const Pb__Workload *asked)
{
        const struct constraints *mine = class_of(c, w)->more;
        for (size_t i = 0; asked->spec && i < asked->spec->n_ports; i++) {
                uint32_t port = port_key(asked->spec->ports[i]);
                bool kept = !port;
                for (uint32_t p = 0; mine && p < mine->n_ports; p++)
                        kept |= mine->ports[p] == port;
                if (!kept && ports_taken(node_get(c, w->node), &port, 1))
                        return false;
        }
        return true;
}

void ports_of_tombstone(struct core *c, struct tombstone *t, const uint32_t *ports, uint32_t n)
{
        if (!n)
                return;
        t->ports = mem_dup(ports, n * sizeof(*ports));
        t->n_ports = n;
        ports_hold(c, t->node, ports, n, 1);
}
