/* sim/client.c: users: they apply, change, stop and delete by chance, wait for each answer, and
 * remember what was acknowledged; and operators, who do the same to nodes. */
#include "base/mem.h"
#include "model/validate.h"
#include "sim/world.h"
#include <stdio.h>
#include <string.h>

static uint32_t pick_item(struct sim *s)
{
        if (s->items.len < s->opt.workloads &&
            (s->items.len < s->opt.workloads / 2 || !s->items.len ||
             sim_chance(s, CHANCE_CLIENT, 300000))) {
                struct client_item *it = array_push(&s->items);
                snprintf(it->id, sizeof(it->id), "w-%05zu", s->items.len - 1);
                it->job = sim_chance(s, CHANCE_CLIENT, 250000);
                return (uint32_t)s->items.len - 1;
        }
        return (uint32_t)rng_below(&s->chance[CHANCE_CLIENT], s->items.len);
}

static enum client_op pick_op(struct sim *s, const struct client_item *it)
{
        if (!it->exists)
                return OP_APPLY;
        uint64_t r = rng_below(&s->chance[CHANCE_CLIENT], 100);
        return r < 55   ? OP_APPLY
               : r < 70 ? OP_DELETE
               : r < 80 ? OP_STOP
               : r < 92 ? OP_START
                        : OP_RETRY;
}

static void send(struct sim *s)
{
        struct sim_event ev = { .kind = EV_REQUEST,
                                .value = s->requests.len - 1,
                                .server = s->opt.servers > 1 ? SIM_ANY_SERVER : 0 };
        int64_t late = sim_hit(s, SIM_REORDER, 50000) ? sim_between(s, CHANCE_NET, 1, 5000) : 0;
        sim_at(s, s->now + late + sim_link_delay(s), ev);
        if (sim_hit(s, SIM_DUP, 20000)) /* a client that tried again */
                sim_at(s, s->now + sim_link_delay(s), ev);
        if (sim_hit(s, SIM_REORDER, 20000)) /* and one that was long on its way */
                sim_at(s, s->now + sim_between(s, CHANCE_NET, 1000, 60000), ev);
}

static bool has_tenants(const struct sim *s);

/* An operator limits a tenant, or takes the limit away again. Half of the clusters have no quotas
 * at all. */
static void act_quota(struct sim *s)
{
        if (!has_tenants(s))
                return;
        uint32_t tenant = (uint32_t)rng_below(&s->chance[CHANCE_QUOTA], SIM_TENANTS);
        uint32_t size = (uint32_t)rng_below(&s->chance[CHANCE_QUOTA], 4);
        *array_push(&s->requests) =
            (struct request){ .op = OP_QUOTA, .item = tenant, .revision = size, .open = true };
        s->result.requests++;
        send(s);
}

void sim_client_act(struct sim *s)
{
        if (s->opt.workloads == 0 || s->calm)
                return;
        if (sim_chance(s, CHANCE_QUOTA, 30000))
                act_quota(s);
        uint32_t i = pick_item(s);
        struct client_item *it = &s->items.at[i];
        if (it->busy)
                return;
        it->busy = true;
        struct request *q = array_push(&s->requests);
        *q = (struct request){ .op = pick_op(s, it), .item = i, .open = true };
        if (q->op == OP_APPLY && (!it->exists || sim_chance(s, CHANCE_CLIENT, 700000)))
                it->revision++;
        q->revision = it->revision;
        if (it->exists && sim_chance(s, CHANCE_CLIENT, 200000))
                q->if_match = it->version;
        s->result.requests++;
        send(s);
}

void sim_client_node(struct sim *s, uint32_t n, enum client_op op, Pb__NodeWish__E wish,
                     uint64_t random)
{
        *array_push(&s->requests) =
            (struct request){ .op = op, .item = n, .wish = wish, .random = random, .open = true };
        s->result.requests++;
        send(s);
}

static bool is_about_node(const struct request *q)
{
        return q->op >= OP_WISH;
}

static const char *const apps[] = { "web", "db", "cache" };
static const char *const zones[] = { "a", "b", "c" };
static const char *const taint_keys[] = { "gpu", "maintenance" };
static const char *const taint_values[] = { "", "x" };

/* Half of the clusters have neighbours, ports, priorities and tolerations; and half have tenants,
 * with quotas. */
static bool has_constraints(const struct sim *s)
{
        return hash64_mix(s->opt.seed, 0x6e65) % 2;
}

static bool has_tenants(const struct sim *s)
{
        return hash64_mix(s->opt.seed, 0x7465) % 2;
}

static Pb__Affinity *draw_near(struct rng *r, struct arena *a)
{
        Pb__Affinity *near = arena_new(a, Pb__Affinity);
        Pb__Affinity__MatchEntry *e = arena_new(a, Pb__Affinity__MatchEntry);
        pb__affinity__init(near);
        pb__affinity__match_entry__init(e);
        e->key = "app";
        e->value = (char *)apps[rng_below(r, 3)];
        near->match = arena_dup(a, &e, sizeof(e));
        near->n_match = 1;
        near->over = rng_chance(r, 500000) ? "zone" : "";
        near->preferred = rng_chance(r, 400000);
        if (near->preferred && rng_chance(r, 500000))
                near->weight = 1 + (int32_t)rng_below(r, 100);
        return near;
}

static Pb__Spread *draw_spread(struct rng *r, struct arena *a)
{
        Pb__Spread *spread = arena_new(a, Pb__Spread);
        pb__spread__init(spread);
        spread->over = "zone";
        spread->max_skew = 1 + (int32_t)rng_below(r, 3);
        spread->preferred = rng_chance(r, 200000);
        return spread;
}

static void fill_tolerations(struct rng *r, struct arena *a, Pb__Workload *w)
{
        if (!rng_chance(r, 300000))
                return;
        Pb__Toleration *t = arena_new(a, Pb__Toleration);
        pb__toleration__init(t);
        t->key = rng_chance(r, 100000) ? "*" : (char *)taint_keys[rng_below(r, 2)];
        t->value = strcmp(t->key, "*") == 0 ? "" : (char *)taint_values[rng_below(r, 2)];
        t->effect = (Pb__TaintEffect__E)rng_below(r, 4);
        w->tolerations = arena_dup(a, &t, sizeof(t));
        w->n_tolerations = 1;
}

/* What needs no new start (C17, C38). */
static void fill_constraints(struct rng *r, struct arena *a, Pb__Workload *w)
{
        fill_tolerations(r, a, w);
        w->priority = rng_chance(r, 500000) ? (int32_t)rng_below(r, 4) : 0;
        if (!rng_chance(r, 700000))
                return;
        Pb__Workload__LabelsEntry *l = arena_new(a, Pb__Workload__LabelsEntry);
        pb__workload__labels_entry__init(l);
        l->key = "app";
        l->value = (char *)apps[rng_below(r, 3)];
        w->labels = arena_dup(a, &l, sizeof(l));
        w->n_labels = 1;
        Pb__Affinity *near = draw_near(r, a), *away = draw_near(r, a);
        Pb__Spread *spread = draw_spread(r, a);
        w->affinity = arena_dup(a, &near, sizeof(near));
        w->anti_affinity = arena_dup(a, &away, sizeof(away));
        w->spread = arena_dup(a, &spread, sizeof(spread));
        w->n_affinity = rng_chance(r, 150000);
        w->n_anti_affinity = rng_chance(r, 250000);
        w->n_spread = rng_chance(r, 500000);
        w->strategy = rng_chance(r, 200000) ? PB__STRATEGY__E__binpack : PB__STRATEGY__E__unset;
}

static void fill_ports(struct rng *r, struct arena *a, Pb__Workload *w)
{
        w->spec->ports = arena_new_n(a, Pb__Port *, 2);
        for (uint64_t n = rng_chance(r, 300000) ? 1 + rng_below(r, 2) : 0; n > 0; n--) {
                Pb__Port *port = arena_new(a, Pb__Port);
                pb__port__init(port);
                /* never one twice */
                port->host_port = 8000 + 10 * (int32_t)n + (int32_t)rng_below(r, 3);
                port->container_port = 80 + (int32_t)n;
                w->spec->ports[w->spec->n_ports++] = port;
        }
}

/* Some are pinned, some become exclusive and cease to be. */
static Pb__Exclusive__E exclusive_of(const struct sim *s, uint64_t id, uint32_t revision)
{
        uint64_t random = hash64_mix(s->opt.seed, hash64_mix(0x6578, id)), kind = random / 100 % 6;
        if (random % 100 >= s->opt.exclusive || (kind == 5 && revision % 2))
                return PB__EXCLUSIVE__E__unset;
        return kind == 3 || kind == 4 ? PB__EXCLUSIVE__E__pinned : PB__EXCLUSIVE__E__movable;
}

static void fill_workload(struct sim *s, const struct client_item *it, uint32_t revision,
                          struct arena *a, Pb__Workload *w)
{
        /* Everything follows from the id and the revision, so that a repeated request says the
         * same. Every other revision changes only what needs no new start. */
        struct rng r, placing;
        uint64_t id = hash64(it->id, strlen(it->id));
        rng_seed(&r, hash64_mix(s->opt.seed, hash64_mix(revision / 2, id)));
        rng_seed(&placing, hash64_mix(s->opt.seed, hash64_mix(0x706c + revision, id)));
        Pb__Spec *spec = arena_new(a, Pb__Spec);
        Pb__Resources *res = arena_new(a, Pb__Resources);
        pb__workload__init(w);
        pb__spec__init(spec);
        pb__resources__init(res);
        w->id = (char *)it->id;
        w->type = PB__WORKLOAD_TYPE__E__process;
        spec->command = arena_new_n(a, char *, 2);
        spec->command[spec->n_command++] = "run";
        spec->command[spec->n_command++] =
            arena_printf(a, "%u", has_constraints(s) ? revision / 2 : revision);
        res->cpu = (int64_t)(100 + rng_below(&r, 900));
        res->memory_mb = (int64_t)(64 + rng_below(&r, 1024));
        res->disk_gb = (int64_t)rng_below(&r, 5);
        if (rng_chance(&r, 20000))
                res->cpu = 64000; /* fits nowhere */
        w->spec = spec;
        w->resources = res;
        w->exclusive = exclusive_of(s, id, revision);
        w->restart = it->job ? PB__RESTART__E__on_failure : PB__RESTART__E__always;
        if (it->job && rng_chance(&r, 300000))
                w->ttl_seconds = 600;
        if (has_tenants(s)) {
                uint64_t tenant = id % SIM_TENANTS;
                w->tenant = (char *)(tenant ? sim_tenant_names[tenant] : "");
        }
        if (rng_chance(&r, 100000)) {
                Pb__Workload__NodeSelectorEntry *sel =
                    arena_new(a, Pb__Workload__NodeSelectorEntry);
                pb__workload__node_selector_entry__init(sel);
                sel->key = "zone";
                sel->value = (char *)zones[rng_below(&r, 3)];
                w->node_selector = arena_new_n(a, Pb__Workload__NodeSelectorEntry *, 1);
                w->node_selector[w->n_node_selector++] = sel;
        }
        if (has_constraints(s)) {
                fill_ports(&r, a, w);
                fill_constraints(&placing, a, w);
        }
}

/* revision: 0 no limit any more, else how much of what the tenant has on average. */
static void ask_quota(struct sim *s, struct server *v, const struct request *q, struct input *in)
{
        Pb__SetQuotaRequest set = PB__SET_QUOTA_REQUEST__INIT;
        Pb__TenantRef ref = PB__TENANT_REF__INIT;
        Pb__Quota quota = PB__QUOTA__INIT;
        Pb__Resources res = PB__RESOURCES__INIT;
        quota.tenant = ref.tenant = (char *)sim_tenant_names[q->item];
        quota.workloads = (int64_t)s->opt.workloads / SIM_TENANTS * q->revision / 2 + 1;
        res.cpu = quota.workloads * 300;
        quota.resources = &res;
        set.quota = &quota;
        in->kind = q->revision ? INPUT_QUOTA_SET : INPUT_QUOTA_REMOVE;
        in->msg = q->revision ? &set.base : &ref.base;
        sim_server_input(s, v, in);
}

static void ask_taints(struct sim *s, struct server *v, const struct request *q, struct input *in)
{
        Pb__SetTaintsRequest set = PB__SET_TAINTS_REQUEST__INIT;
        Pb__Taint taints[2], *list[2];
        struct rng r;
        rng_seed(&r, q->random);
        uint64_t n = rng_below(&r, 3); /* none: those that were there are removed */
        for (uint64_t i = 0; i < n; i++) {
                pb__taint__init(&taints[i]);
                taints[i].key = (char *)taint_keys[i];
                taints[i].value = (char *)taint_values[rng_below(&r, 2)];
                taints[i].effect = (Pb__TaintEffect__E)(1 + rng_below(&r, 3));
                list[i] = &taints[i];
        }
        set.id = s->machines.at[q->item].id;
        set.taints = list;
        set.n_taints = n;
        in->kind = INPUT_NODE_TAINTS;
        in->msg = &set.base;
        sim_server_input(s, v, in);
}

static void ask_node(struct sim *s, struct server *v, const struct request *q, struct input *in)
{
        Pb__SetNodeWishRequest wish = PB__SET_NODE_WISH_REQUEST__INIT;
        Pb__NodeRef ref = PB__NODE_REF__INIT;
        Pb__AdoptRequest adopt = PB__ADOPT_REQUEST__INIT;
        adopt.id = wish.id = ref.id = s->machines.at[q->item].id;
        wish.wish = q->wish;
        if (q->wish == PB__NODE_WISH__E__draining && q->random % 2)
                /* every other drain has a deadline */
                wish.deadline_seconds = 1 + (int64_t)(q->random / 2 % 300);
        in->kind = q->op == OP_WISH         ? INPUT_NODE_WISH
                   : q->op == OP_FORGET     ? INPUT_NODE_FORGET
                   : q->op == OP_EVICT_LOST ? INPUT_EVICT_LOST
                   : q->op == OP_FENCE      ? INPUT_NODE_FENCE
                   : q->op == OP_ADOPT      ? INPUT_ADOPT
                                            : INPUT_EVICT_NODE;
        in->msg = q->op == OP_WISH ? &wish.base : q->op == OP_ADOPT ? &adopt.base : &ref.base;
        sim_server_input(s, v, in);
}

static void ask_workload(struct sim *s, struct server *v, struct request *q, struct input *in)
{
        struct client_item *it = &s->items.at[q->item];
        q->knew = it->exists && !it->delete_asked && (q->knew || !q->arrived);
        if (!q->arrived) {
                q->arrived = true;
                q->deletes = it->deletes;
        }
        struct arena a = ARENA_INIT;
        struct err err = { 0 };
        Pb__ApplyWorkloadRequest apply = PB__APPLY_WORKLOAD_REQUEST__INIT;
        Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
        Pb__SetDesiredRequest desired = PB__SET_DESIRED_REQUEST__INIT;
        Pb__Workload w;
        ref.id = desired.id = it->id;
        apply.if_match = ref.if_match = desired.if_match = q->if_match;
        switch (q->op) {
        case OP_APPLY:
                fill_workload(s, it, q->revision, &a, &w);
                if (workload_normalise(&a, &w, &err) < 0)
                        sim_fail(s, "the simulator asked for nonsense", err_line(&err));
                apply.workload = &w;
                in->kind = INPUT_APPLY;
                in->msg = &apply.base;
                break;
        case OP_DELETE:
                it->delete_asked = true;
                it->deletes++;
                in->kind = INPUT_DELETE;
                in->msg = &ref.base;
                break;
        case OP_STOP:
        case OP_START:
                desired.desired_state = q->op == OP_STOP ? PB__DESIRED_STATE__E__Stopped
                                                         : PB__DESIRED_STATE__E__Running;
                in->kind = INPUT_DESIRED;
                in->msg = &desired.base;
                break;
        default:
                in->kind = INPUT_RETRY;
                in->msg = &ref.base;
                break;
        }
        if (!sim_failed(s))
                sim_server_input(s, v, in);
        arena_fini(&a);
}

static void give_up(struct sim *s, struct request *q)
{
        if (q->open && !is_about_node(q))
                s->items.at[q->item].busy = false;
        q->open = false;
}

/* An operator's last word: said until somebody has taken it. */
static bool insists(struct sim *s, uint32_t slot)
{
        if (!s->calm || slot < s->first_calm_request || s->opt.servers == 1)
                return false;
        sim_at(s, s->now + 1000,
               (struct sim_event){ .kind = EV_REQUEST, .value = slot, .server = SIM_ANY_SERVER });
        return true;
}

void sim_client_request(struct sim *s, struct server *v, uint32_t slot)
{
        struct request *q = &s->requests.at[slot]; /* none is added meanwhile */
        if (!v->core && insists(s, slot))
                return;
        if (!v->core || (is_about_node(q) && s->calm && slot < s->first_calm_request)) {
                give_up(s, q);
                return;
        }
        if (q->op == OP_FENCE && !s->machines.at[q->item].down)
                return; /* the truth, and nothing but the truth */
        q->server = v->number + 1;
        struct input in = { .reply = slot + 1, .request_id = "sim", .actor = "sim" };
        if (q->op == OP_QUOTA)
                ask_quota(s, v, q, &in);
        else if (q->op == OP_TAINT)
                ask_taints(s, v, q, &in);
        else if (is_about_node(q))
                ask_node(s, v, q, &in);
        else
                ask_workload(s, v, q, &in);
}

void sim_client_abandoned(struct sim *s, const struct server *v)
{
        for (; s->answered < s->requests.len && !s->requests.at[s->answered].open; s->answered++)
                ;
        for (size_t i = s->answered; i < s->requests.len; i++) {
                struct request *q = &s->requests.at[i];
                bool there = s->opt.servers == 1 || q->server == v->number + 1;
                if (there && !(q->open && insists(s, (uint32_t)i)))
                        give_up(s, q);
        }
}

void sim_client_forget(struct sim *s)
{
        for (size_t i = 0; i < s->items.len; i++) {
                s->items.at[i].exists = s->items.at[i].delete_asked = false;
                s->items.at[i].version = 0;
        }
}

/* A3: what is answered is durable. */
static void check_durable(struct sim *s, const struct server *v, uint64_t version)
{
        if (version > v->durable)
                sim_fail(s, "A3: a caller is answered before the store has it",
                         fmt("version %llu, the store has %llu", (unsigned long long)version,
                             (unsigned long long)v->durable));
}

static void reply_about_node(struct sim *s, const struct server *v, const struct request *q,
                             const struct reply *r)
{
        if (q->op == OP_ADOPT)
                return; /* as far as its agent is there */
        if (r->err) {
                if (r->err->code != ERR_CONFLICT && r->err->code != ERR_NOT_FOUND)
                        sim_fail(s, "C12: an operator is refused", r->err->msg);
                return;
        }
        if (q->op == OP_QUOTA || q->op == OP_EVICT_LOST)
                return;
        Pb__Node *n = pb__node__unpack(NULL, r->len, r->data);
        check_durable(s, v, n->resource_version);
        if (q->op == OP_WISH && n->wish != q->wish)
                sim_fail(s, "C12: an operator's wish was not taken", n->id);
        pb__node__free_unpacked(n, NULL);
}

void sim_client_reply(struct sim *s, const struct server *v, const struct reply *r)
{
        struct request *q = &s->requests.at[r->ticket - 1];
        bool first = q->open;
        q->open = false;
        if (is_about_node(q)) {
                reply_about_node(s, v, q, r);
                return;
        }
        struct client_item *it = &s->items.at[q->item];
        if (first)
                it->busy = false;
        if (r->err) {
                if (r->err->code == ERR_NOT_FOUND && it->delete_asked)
                        it->exists = it->delete_asked = false;
                else if (r->err->code == ERR_NOT_FOUND && !q->knew)
                        ; /* that was so, before the last answer was given */
                else if (r->err->code == ERR_NOT_FOUND && (it->job || !it->exists))
                        it->exists = false; /* its ttl was over */
                else if (r->err->code != ERR_CONFLICT && r->err->code != ERR_QUOTA)
                        sim_fail(s, "A5: an acknowledged workload is not known", r->err->msg);
                return;
        }
        struct arena_allocator alloc = arena_allocator(&s->reply);
        Pb__Workload *w = pb__workload__unpack((ProtobufCAllocator *)&alloc, r->len, r->data);
        check_durable(s, v, w->resource_version);
        /* it waited for a proof: the other came after it */
        bool late = s->opt.servers > 1 && w->resource_version <= it->version;
        if (q->if_match && q->op == OP_APPLY && first && it->version > q->if_match && !late)
                sim_fail(s, "A10: the loser of two writers won", it->id);
        if (q->op == OP_DELETE)
                it->exists = false;
        else if (q->op == OP_APPLY) {
                it->exists = true;
                if (q->deletes == it->deletes)
                        it->delete_asked = false; /* else a delete came after it */
        }
        if (w->resource_version > it->version)
                it->version = w->resource_version;
        arena_reset(&s->reply);
}

/* A5: whatever was acknowledged is there, at that version or a later one. */
void sim_client_check_kept(struct sim *s)
{
        struct server *v = sim_leader(s);
        if (!v || v->committing || v->queue.len || s->away || core_pending_ops(v->core) ||
            core_next_ms(v->core) <= sim_server_now(s, v))
                return;
        for (size_t i = 0; i < s->items.len && !sim_failed(s); i++) {
                struct client_item *it = &s->items.at[i];
                if (!it->exists || it->delete_asked || it->busy)
                        continue;
                Pb__Workload *w = sim_ask(s, it->id);
                if (!w && !it->job)
                        sim_fail(s, "A5: an acknowledged workload is gone", it->id);
                if (w && w->resource_version < it->version)
                        sim_fail(s, "A5: an acknowledged change is gone", it->id);
                if (w)
                        pb__workload__free_unpacked(w, NULL);
        }
}
