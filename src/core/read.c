/* core/read.c: what users look at. Reads are steps as well, so that they leave only after the
 * commit that they have seen.
 *
 * Lists are by id, and their cursor is the last id that was looked at: whoever exists throughout is
 * seen exactly once, also after a restart and on another replica. A read looks at a bounded number
 * of workloads: a page may be short, or even empty, and still have a next_cursor.
 */
#include "core/read.h"
#include "base/mem.h"
#include "base/wire.h"
#include "core/claims.h"
#include "core/evict.h"
#include "core/node.h"
#include "core/notice.h"
#include "core/place.h"
#include "core/policy.h"
#include "core/state.h"
#include "core/step.h"
#include "core/workload.h"
#include "model/selector.h"
#include "model/validate.h"
#include <string.h>

#define SCAN_MAX 20000
#define LOOKS_MAX 64 /* classes of waiting workloads whose reason is looked at anew for one page */
#define LIMIT_DEFAULT 500
#define LIMIT_MAX 5000
#define BYTES_MAX (3 << 20) /* of one answer: below what gRPC clients accept */

int workload_lookup(struct core *c, const char *id, struct unit_ix *ret, struct err *err)
{
        *ret = workload_find(c, id);
        if (unit_ok(*ret))
                return 0;
        return err_set(err, ERR_NOT_FOUND, .msg = fmt("there is no workload %s", id ? id : ""),
                       .hint = "berth get workloads lists them");
}

int node_lookup(struct core *c, const char *id, struct node_ix *ret, struct err *err)
{
        *ret = node_find(c, id);
        if (node_ok(*ret))
                return 0;
        return err_set(err, ERR_NOT_FOUND, .msg = fmt("there is no node %s", id ? id : ""),
                       .hint = "berth get nodes lists them");
}

static struct arena *memory(struct core *c)
{
        if (!c->out.memory)
                c->out.memory = mem_must(sizeof(struct arena));
        return c->out.memory;
}

void read_get_workload(struct core *c, const Pb__WorkloadRef *req)
{
        struct unit_ix w;
        struct err err;
        if (workload_lookup(c, req->id, &w, &err) < 0) {
                reply_error(c, &err);
                return;
        }
        size_t len;
        c->looks_left = 1;
        void *data = workload_record(c, unit_at(c, w), true, memory(c), &len);
        c->looks_left = 0;
        reply_bytes(c, &pb__workload__descriptor, data, len, false);
}

void read_get_node(struct core *c, const Pb__NodeRef *req)
{
        struct node_ix n;
        struct err err;
        size_t len;
        const struct foreign *f = foreign_get(c, req->id);
        if (f) {
                void *foreign = foreign_record(c, f, memory(c), &len);
                reply_bytes(c, &pb__node__descriptor, foreign, len, false);
                return;
        }
        if (node_lookup(c, req->id, &n, &err) < 0) {
                reply_error(c, &err);
                return;
        }
        void *data = node_record_whole(c, node_at(c, n), memory(c), &len);
        reply_bytes(c, &pb__node__descriptor, data, len, false);
}

/* The node whose agent has it, connected. */
static int locate(struct core *c, const char *id, struct node_ix *ret)
{
        struct unit_ix w;
        struct err err;
        if (workload_lookup(c, id, &w, &err) < 0)
                return reply_error(c, &err), -1;
        struct node_ix n = unit_at(c, w)->node;
        if (!node_ok(n))
                err_set(&err, ERR_CONFLICT, .msg = fmt("workload %s is on no node", id),
                        .hint = fmt("berth explain %s says why", id));
        else if (!node_at(c, n)->session)
                err_set(&err, ERR_UNAVAILABLE,
                        .msg = fmt("node %s is not connected", node_at(c, n)->id),
                        .hint = "try again when its agent is back", .retry_after_ms = 2000);
        else {
                *ret = n;
                return 0;
        }
        return reply_error(c, &err), -1;
}

static void reply_session(struct core *c, struct node_ix n)
{
        reply_bytes(c, NULL, NULL, 0, false);
        if (c->in->reply)
                c->out.replies.at[c->out.replies.len - 1].session = node_at(c, n)->session;
}

void read_locate(struct core *c, const Pb__WorkloadRef *req)
{
        struct node_ix n;
        if (locate(c, req->id, &n) == 0)
                reply_session(c, n);
}

/* The answer leaves with the batch that holds the event: nothing is run of which no event tells.
 * What is too much to be told one by one is therefore refused. */
void decide_exec(struct core *c, const Pb__ExecNote *note)
{
        struct node_ix n;
        const char *actor = c->in->actor ? c->in->actor : "";
        if (locate(c, note->workload_id, &n) < 0)
                return;
        int64_t wait_ms = notice_wait_ms(c, NOTICE_EXEC, actor);
        if (wait_ms > 0) {
                struct err err;
                err_set(&err, ERR_LIMIT,
                        .msg = "too many commands in too short a time: nothing was run",
                        .detail = fmt("each is an event, and %s runs more than can be told",
                                      *actor ? actor : "this caller"),
                        .hint = fmt(
                            "try again in %lld s, or run several commands in one: sh -c '...; ...'",
                            (long long)(wait_ms + 999) / 1000),
                        .retry_after_ms = wait_ms);
                reply_error(c, &err);
                return;
        }
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__WorkloadExec;
        e.workload_id = note->workload_id;
        e.node_id = node_at(c, n)->id;
        e.command = note->command;
        e.message = arena_printf(&c->step, "a command was run beside it on %s", e.node_id);
        notice(c, NOTICE_EXEC, actor, 0, &e);
        reply_session(c, n);
}

/* ---- lists ---- */

#define CURSOR_MAX 1024 /* longer than any key */

static int check_cursor(const char *text, struct err *err)
{
        bool fine = strlen(text) <= CURSOR_MAX;
        for (const char *p = text; fine && *p; p++)
                fine = *p > ' ' && *p < 127; /* as in names */
        return fine ? 0
                    : err_set(err, ERR_INVALID, .msg = "the cursor is not one of ours",
                              .detail = text, .path = "cursor",
                              .hint = "use next_cursor of the page before");
}

int list_begin(struct core *c, const struct order *o, const char *cursor, struct order_place *ret)
{
        struct err err;
        cursor = cursor ? cursor : "";
        if (check_cursor(cursor, &err) < 0)
                return reply_error(c, &err), -1;
        *ret = order_after(o, cursor, strlen(cursor));
        return 0;
}

char *list_cursor(struct core *c, const struct order *o, struct order_place at, uint32_t last)
{
        if (last == NONE || order_next(o, &at) == MAP_NONE)
                return "";
        struct map_key key = o->key_of(o->ctx, last);
        return arena_strndup(&c->step, key.data, key.len);
}

static int parse_enum(const ProtobufCEnumDescriptor *d, const char *text, unsigned *ret,
                      struct err *err)
{
        *ret = 0;
        if (str_empty(text))
                return 0;
        for (unsigned i = 0; i < d->n_values; i++)
                if (d->values[i].value && str_case_eq(d->values[i].name, text)) {
                        *ret = (unsigned)d->values[i].value;
                        return 0;
                }
        return err_set(err, ERR_INVALID, .msg = fmt("there is no status %s", text),
                       .path = "status");
}

static uint32_t page_limit(int32_t asked)
{
        return asked <= 0 ? LIMIT_DEFAULT : asked > LIMIT_MAX ? LIMIT_MAX : (uint32_t)asked;
}

static void finish_list(struct core *c, struct str *items, const ProtobufCMessage *tail,
                        const ProtobufCMessageDescriptor *type)
{
        size_t len = protobuf_c_message_get_packed_size(tail);
        unsigned char *data = arena_alloc(memory(c), items->len + len + 1);
        if (items->len)
                memcpy(data, items->buf, items->len);
        protobuf_c_message_pack(tail, data + items->len);
        reply_bytes(c, type, data, items->len + len, false);
        str_fini(items);
}

struct workload_filter {
        struct selector selector;
        bool has_selector;
        unsigned phase;
        struct node_ix node;
        bool has_node;
        const char *prefix;
};

static bool labels_match(struct core *c, const struct unit *w, const struct workload_filter *f)
{
        if (!f->has_selector)
                return true;
        const struct definition *d = definition_of(c, w);
        struct arena_allocator alloc = arena_allocator(&c->step);
        Pb__Workload *view = pb__workload__unpack((ProtobufCAllocator *)&alloc, d->len, d->data);
        return view && selector_match(&f->selector, view->labels, view->n_labels);
}

static bool workload_matches(struct core *c, const struct unit *w, const struct workload_filter *f)
{
        if (!w->id || (f->phase && phase_shown(c, w) != f->phase) ||
            (f->has_node && w->node.v != f->node.v))
                return false;
        return (str_empty(f->prefix) || str_starts(w->id, f->prefix)) && labels_match(c, w, f);
}

void read_list_workloads(struct core *c, const Pb__ListWorkloadsRequest *req)
{
        struct workload_filter f = { .prefix = req->prefix,
                                     .has_selector = !str_empty(req->selector),
                                     .has_node = !str_empty(req->node) };
        struct err err;
        struct order_place at;
        if (selector_parse(&c->step, req->selector, &f.selector, &err) < 0 ||
            parse_enum(&pb__phase__e__descriptor, req->status, &f.phase, &err) < 0 ||
            (f.has_node && node_lookup(c, req->node, &f.node, &err) < 0)) {
                reply_error(c, &err);
                return;
        }
        if (list_begin(c, &c->workloads_in_order, req->cursor, &at) < 0)
                return;
        uint32_t limit = page_limit(req->limit), n = 0, i = NONE, last = NONE;
        struct str items = STR_INIT;
        c->looks_left = LOOKS_MAX;
        for (unsigned scanned = 0; n < limit && scanned < SCAN_MAX && items.len < BYTES_MAX &&
                                   (i = order_next(&c->workloads_in_order, &at)) != MAP_NONE;
             scanned++) {
                const struct unit *w = &c->units.at[last = i];
                if (!workload_matches(c, w, &f))
                        continue;
                size_t len;
                void *data = workload_record(c, w, true, &c->step, &len);
                wire_add(&items, 1, data, len);
                n++;
        }
        c->looks_left = 0;
        Pb__ListWorkloadsResponse tail = PB__LIST_WORKLOADS_RESPONSE__INIT;
        tail.next_cursor = list_cursor(c, &c->workloads_in_order, at, last);
        tail.resource_version = c->head;
        tail.total = c->n_workloads;
        finish_list(c, &items, &tail.base, &pb__list_workloads_response__descriptor);
}

static bool node_matches(struct core *c, const struct node *n, const struct selector *s,
                         unsigned status, const char *prefix)
{
        if (!n->id || (status && node_status_shown(n) != status) ||
            (!str_empty(prefix) && !str_starts(n->id, prefix)))
                return false;
        if (!s->n_terms)
                return true;
        size_t len;
        void *data = node_record(c, n, false, &c->step, &len);
        struct arena_allocator alloc = arena_allocator(&c->step);
        Pb__Node *view = pb__node__unpack((ProtobufCAllocator *)&alloc, len, data);
        return view && selector_match(s, view->labels, view->n_labels);
}

static size_t first_after(const struct core *c, const char *id)
{
        size_t low = 0, high = str_empty(id) ? 0 : c->by_rank.len;
        while (low < high) {
                size_t middle = (low + high) / 2;
                if (strcmp(node_get(c, c->by_rank.at[middle])->id, id) <= 0)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

void read_list_nodes(struct core *c, const Pb__ListNodesRequest *req)
{
        struct selector selector = { 0 };
        struct err err;
        unsigned status;
        if (check_cursor(req->cursor ? req->cursor : "", &err) < 0 ||
            selector_parse(&c->step, req->selector, &selector, &err) < 0 ||
            parse_enum(&pb__node_status__e__descriptor, req->status, &status, &err) < 0) {
                reply_error(c, &err);
                return;
        }
        if (c->ranks_stale)
                ranks_refresh(c);
        size_t at = first_after(c, req->cursor);
        uint32_t limit = page_limit(req->limit), n = 0, scanned = 0;
        struct str items = STR_INIT;
        for (; at < c->by_rank.len && n < limit && scanned < SCAN_MAX && items.len < BYTES_MAX;
             at++, scanned++) {
                const struct node *node = node_get(c, c->by_rank.at[at]);
                if (!node_matches(c, node, &selector, status, req->prefix))
                        continue;
                size_t len;
                void *data = node_record(c, node, true, &c->step, &len);
                wire_add(&items, 1, data, len);
                n++;
        }
        bool all = at >= c->nodes.len && !selector.n_terms &&
                   (!status || status == PB__NODE_STATUS__E__NotReady);
        for (size_t i = 0; all && i < c->foreign.len && items.len < BYTES_MAX; i++) {
                if (!foreign_is_shown(c, &c->foreign.at[i]) ||
                    (!str_empty(req->prefix) && !str_starts(c->foreign.at[i].node_id, req->prefix)))
                        continue;
                size_t len;
                void *data = foreign_record(c, &c->foreign.at[i], &c->step, &len);
                wire_add(&items, 1, data, len);
        }
        Pb__ListNodesResponse tail = PB__LIST_NODES_RESPONSE__INIT;
        tail.next_cursor =
            at < c->by_rank.len && at > 0 ? node_at(c, c->by_rank.at[at - 1])->id : "";
        tail.resource_version = c->head;
        tail.total = c->n_nodes;
        finish_list(c, &items, &tail.base, &pb__list_nodes_response__descriptor);
}

void read_cluster(struct core *c)
{
        struct core_stats s;
        core_stats(c, &s);
        Pb__ClusterInfo i = PB__CLUSTER_INFO__INIT;
        i.cluster_id = c->cluster_id;
        i.key_fingerprint = (char *)core_key_fingerprint(c);
        i.epoch = c->epoch;
        i.version = c->version;
        i.head = c->head;
        i.committed = c->head; /* this answer leaves only when that is so */
        i.nodes = (int32_t)s.nodes;
        i.nodes_ready = (int32_t)s.nodes_ready;
        i.workloads = s.workloads;
        i.workloads_running = s.by_phase[PB__PHASE__E__Running];
        i.workloads_pending = s.by_phase[PB__PHASE__E__Pending];
        i.workloads_failed = s.by_phase[PB__PHASE__E__Failed];
        i.workloads_scheduled = s.by_phase[PB__PHASE__E__Scheduled];
        i.workloads_updating = s.by_phase[PB__PHASE__E__Updating];
        i.workloads_stopped = s.by_phase[PB__PHASE__E__Stopped];
        i.workloads_completed = s.by_phase[PB__PHASE__E__Completed];
        i.workloads_retrying = s.by_phase[PB__PHASE__E__RetryPending];
        i.workloads_deleting = s.by_phase[PB__PHASE__E__Deleting];
        i.workloads_unknown = s.by_phase[PB__PHASE__E__Unknown];
        i.started_at = c->started_ms;
        i.strangers = c->n_strangers;
        for (size_t k = 0; k < c->foreign.len; k++)
                i.nodes_foreign += foreign_is_shown(c, &c->foreign.at[k]);
        i.heartbeats = (int64_t)s.heartbeats;
        i.passes = (int64_t)s.passes;
        Pb__Fencing fencing;
        fencing_fill(c, &fencing);
        i.fencing = &fencing;
        i.exclusive_waiting = s.exclusive_waiting;
        i.mode = s.braking ? "eviction held" : s.pacing ? "eviction paced" : "normal";
        Pb__Brake brake;
        brake_fill(c, c->brake.zone, &brake);
        brake.state = s.braking ? "held" : s.pacing ? "paced" : "";
        brake.held_nodes = c->n_held;
        brake.paced_units = s.pacing ? evict_paced_units(c) : 0;
        if (c->brake.running && (brake.silent || s.pacing))
                i.brake = &brake;
        policy_fill(c, &i);
        reply_message(c, &i.base);
}
