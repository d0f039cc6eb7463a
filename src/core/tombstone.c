/* core/tombstone.c: copies that must be gone from a node and are not proved gone yet (C24, C27).
 *
 * A tombstone holds the capacity and the ports of its copy until its node has said that the copy is
 * gone.
 */
#include "core/tombstone.h"
#include "base/mem.h"
#include "core/drain.h"
#include "core/drift.h"
#include "core/node.h"
#include "core/place.h"
#include "core/state.h"
#include "core/workload.h"
#include "model/pb.h"
#include <string.h>

static char *key_of(struct core *c, const char *node_id, const char *workload_id)
{
        return arena_printf(&c->step, "%s/%s", node_id, workload_id);
}

void save_tombstone(struct core *c, uint32_t t)
{
        record_changed(c, RECORD_TOMBSTONE, t, 1, 0);
}

uint32_t tombstones_of(const struct core *c, const char *workload_id)
{
        return c->n_tombstones ? map_get(&c->tombstone_by_id, workload_id, strlen(workload_id))
                               : NONE;
}

uint32_t tombstone_find(const struct core *c, struct node_ix n, const char *workload_id)
{
        for (uint32_t t = tombstones_of(c, workload_id); t != NONE;
             t = c->tombstones.at[t].same_next)
                if (c->tombstones.at[t].node.v == n.v)
                        return t;
        return NONE;
}

uint16_t tombstone_count(const struct core *c, const char *workload_id)
{
        uint16_t count = 0;
        for (uint32_t t = tombstones_of(c, workload_id); t != NONE;
             t = c->tombstones.at[t].same_next)
                count++;
        return count;
}

static void index_add(struct core *c, uint32_t t)
{
        uint32_t first = tombstones_of(c, c->tombstones.at[t].workload_id);
        if (first == NONE) {
                map_put(&c->tombstone_by_id, t);
                return;
        }
        c->tombstones.at[t].same_next = c->tombstones.at[first].same_next;
        c->tombstones.at[first].same_next = t;
}

static void index_remove(struct core *c, uint32_t t)
{
        uint32_t first = tombstones_of(c, c->tombstones.at[t].workload_id),
                 next = c->tombstones.at[t].same_next;
        if (first == t) {
                map_remove(&c->tombstone_by_id, t);
                if (next != NONE)
                        map_put(&c->tombstone_by_id, next);
                return;
        }
        while (c->tombstones.at[first].same_next != t)
                first = c->tombstones.at[first].same_next;
        c->tombstones.at[first].same_next = next;
}

void tombstone_add(struct core *c, struct node_ix n, const char *workload_id, uint64_t epoch,
                   uint64_t seq, struct amounts held, Pb__Reason__E reason, int64_t at)
{
        must(tombstone_find(c, n, workload_id) == NONE, "N6: one tombstone per node and workload");
        uint32_t t;
        if (c->free_tombstones.len)
                t = array_pop(&c->free_tombstones);
        else {
                array_push(&c->tombstones);
                t = (uint32_t)c->tombstones.len - 1;
        }
        struct node *node = node_at(c, n);
        c->tombstones.at[t] = (struct tombstone){ .workload_id = mem_strdup(workload_id),
                                                  .node = n,
                                                  .token_epoch = epoch,
                                                  .token_seq = seq,
                                                  .held = held,
                                                  .reason = (uint8_t)reason,
                                                  .created_at = at,
                                                  .next = node->tombstones,
                                                  .prev = NONE,
                                                  .same_next = NONE };
        index_add(c, t);
        if (node->tombstones != NONE)
                c->tombstones.at[node->tombstones].prev = t;
        node->tombstones = t;
        node->n_tombstones++;
        node->n_lost += reason == PB__REASON__E__node_lost;
        ledger_reserve(&node->ledger, held);
        c->n_tombstones++;
        struct unit_ix w = workload_find(c, workload_id);
        if (unit_ok(w))
                unit_at(c, w)->tombs++;
        columns_update(c, n);
        save_tombstone(c, t);
        save_node(c, n);
}

void tombstone_remove(struct core *c, uint32_t ti)
{
        struct tombstone *t = &c->tombstones.at[ti];
        struct node *node = node_at(c, t->node);
        index_remove(c, ti);
        if (t->prev != NONE)
                c->tombstones.at[t->prev].next = t->next;
        else
                node->tombstones = t->next;
        if (t->next != NONE)
                c->tombstones.at[t->next].prev = t->prev;
        node->n_tombstones--;
        node->n_lost -= t->reason == PB__REASON__E__node_lost;
        ledger_release(&node->ledger, t->held);
        ports_hold(c, t->node, t->ports, t->n_ports, -1);
        c->n_tombstones--;
        drift_unsay(c, t->node, &t->said);
        struct unit_ix w = workload_find(c, t->workload_id);
        if (unit_ok(w))
                unit_at(c, w)->tombs--;
        c->capacity_change++; /* that workload may come back here */
        columns_update(c, t->node);
        drain_touch(c, t->node);
        record_removed(c, RECORD_TOMBSTONE, key_of(c, node->id, t->workload_id));
        save_node(c, t->node);
        mem_free(t->workload_id);
        mem_free(t->ports);
        *t = (struct tombstone){ 0 };
        *array_push(&c->free_tombstones) = ti;
}

void unit_to_tombstone(struct core *c, struct unit_ix ix, Pb__Reason__E reason, int64_t at)
{
        struct unit *w = unit_at(c, ix);
        const struct class *k = class_of(c, w);
        struct node_ix n = w->node;
        struct amounts held = w->held;
        bool holds = w->holds;
        uint64_t said = w->said;
        w->said = 0; /* what its agent says is of the old copy from now on */
        unit_unassign(c, ix);
        tombstone_add(c, n, w->id, w->token_epoch, w->token_seq, held, reason, at);
        struct tombstone *t = &c->tombstones.at[tombstone_find(c, n, w->id)];
        t->leased = k->exclusive == PB__EXCLUSIVE__E__movable && !w->unleased;
        t->said = said;
        if (holds && k->more)
                ports_of_tombstone(c, t, k->more->ports, k->more->n_ports);
}

/* ---- records ---- */

static const char *name(const struct core *c, uint32_t slot, struct arena *a)
{
        const struct tombstone *t = &c->tombstones.at[slot];
        return t->workload_id ? arena_printf(a, "%s/%s", node_get(c, t->node)->id, t->workload_id)
                              : NULL;
}

static uint32_t find(const struct core *c, const char *key)
{
        const char *slash = strchr(key, '/');
        struct node_ix n =
            slash
                ? node_find(c, arena_strndup((struct arena *)&c->step, key, (size_t)(slash - key)))
                : NODE_NONE;
        return node_ok(n) ? tombstone_find(c, n, slash + 1) : NONE;
}

static void *pack(struct core *c, uint32_t slot, struct arena *a, size_t *ret_len)
{
        const struct tombstone *t = &c->tombstones.at[slot];
        Pb__Tombstone r = PB__TOMBSTONE__INIT;
        Pb__Token token = PB__TOKEN__INIT;
        Pb__Resources held = amounts_to_resources(t->held);
        token.epoch = t->token_epoch;
        token.seq = t->token_seq;
        r.node_id = node_at(c, t->node)->id;
        r.workload_id = t->workload_id;
        r.token = &token;
        r.resources = &held;
        r.reason = t->reason;
        r.created_at = t->created_at;
        r.host_ports = t->ports;
        r.n_host_ports = t->n_ports;
        r.leased = t->leased;
        r.released = t->released;
        return pb_pack_arena(a, &r.base, ret_len);
}

static const char *load(struct core *c, const char *name, const ProtobufCMessage *m)
{
        const Pb__Tombstone *r = (const Pb__Tombstone *)m;
        if (str_empty(r->node_id) || !r->token || str_empty(r->workload_id) ||
            !str_eq(name, key_of(c, r->node_id, r->workload_id)))
                return "an old copy needs a token, and the node and workload of its key";
        struct unit_ix w = workload_find(c, r->workload_id);
        struct node_ix n = node_find(c, r->node_id);
        if (node_ok(n) && ((unit_ok(w) && unit_at(c, w)->node.v == n.v) ||
                           tombstone_find(c, n, r->workload_id) != NONE))
                return "the workload is on that node";
        if (!resources_are_sane(r->resources) ||
            (node_ok(n) &&
             !amounts_can_add(node_at(c, n)->ledger.reserved, amounts_of(r->resources))))
                return "its resources are out of range";
        if (!time_is_sane(r->created_at) || !reason_is_sane(r->reason))
                return "its time or its reason is out of range";
        for (size_t i = 1; i < r->n_host_ports; i++)
                if (r->host_ports[i] <= r->host_ports[i - 1])
                        return "its host ports are not in order";
        if (r->n_host_ports > PORTS_PER_CLASS_MAX ||
            (node_ok(n) && ports_taken(node_at(c, n), r->host_ports, (uint32_t)r->n_host_ports)))
                return "its host ports are taken on that node";
        tombstone_add(c, node_get_or_add(c, r->node_id), r->workload_id, r->token->epoch,
                      r->token->seq, amounts_of(r->resources), r->reason, r->created_at);
        n = node_find(c, r->node_id);
        c->tombstones.at[tombstone_find(c, n, r->workload_id)].leased = r->leased;
        c->tombstones.at[tombstone_find(c, n, r->workload_id)].released = r->released;
        ports_of_tombstone(c, &c->tombstones.at[tombstone_find(c, n, r->workload_id)],
                           r->host_ports, (uint32_t)r->n_host_ports);
        return NULL;
}

const struct record_kind tombstone_records = {
        RECORD_TABLE(tombstones, struct tombstone),
        .name = name,
        .find = find,
        .pack = pack,
        .load = load,
        .put_back = save_tombstone,
};
