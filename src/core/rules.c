/* core/rules.c: automation rules: when a condition over a node or a workload has held for long
 * enough, an alert is raised, once (C30).
 *
 *      not held --condition--> holding since t --for its duration--> raised --condition gone-->
 *      fading since t --for the cooldown--> cleared
 *          ^                        |                                   ^
 *                                   |
 *          '---- condition gone ----'                                   '------- condition
 *          --------'
 *
 * So an alert is raised and cleared at most once per duration and cooldown, however a figure
 * flutters from heartbeat to heartbeat. What was raised is durable
 * (/alerts/<rule>/<node|workload>/<id>): a restart does not raise it again. What only holds so far
 * is live and begins anew with a restart.
 *
 * Work is done for what has changed and for deadlines, never for all. Without rules nothing is done
 * at all.
 *
 * Invariants:
 *   (U1) At most one alert per rule and subject; between two AlertRaised of a pair there is an
 *   AlertCleared. (U2) An entry that is neither raised nor waits for a time does not exist; one
 *   that waits has a deadline.
 */
#include "core/rules.h"
#include "base/clock.h"
#include "base/mem.h"
#include "core/node.h"
#include "core/read.h"
#include "core/state.h"
#include "core/step.h"
#include "core/webhook.h"
#include "core/workload.h"
#include "model/config.h"
#include "model/json.h"
#include "model/pb.h"
#include <stdlib.h>
#include <string.h>

#define COOLDOWN_MS 60000
#define ALERTS_PER_PAGE 500

static struct map_key alert_key(const void *ctx, uint32_t i)
{
        const struct core *c = ctx;
        return (struct map_key){ c->alerts.at[i].key, strlen(c->alerts.at[i].key) };
}

void rules_init(struct core *c)
{
        map_init(&c->alert_by_key, alert_key, c);
        order_init(&c->alerts_in_order, alert_key, c);
}

static void alert_fini(struct alert *a)
{
        mem_free(a->key);
        mem_free(a->rule);
        mem_free(a->id);
        mem_free(a->message);
        *a = (struct alert){ 0 };
}

void rules_fini(struct core *c)
{
        for (size_t i = 0; i < c->alerts.len; i++)
                alert_fini(&c->alerts.at[i]);
        array_fini(&c->alerts);
        array_fini(&c->free_alerts);
        array_fini(&c->changed_nodes);
        array_fini(&c->changed_workloads);
        array_fini(&c->rules);
        map_fini(&c->alert_by_key);
        order_fini(&c->alerts_in_order);
        heap_fini(&c->alert_deadlines);
        arena_fini(&c->config_memory);
}

/* ---- the table of alerts ---- */

static const char *key_of(struct core *c, const char *rule, bool node, const char *id)
{
        return arena_printf(&c->step, "%s/%s/%s", rule, node ? "node" : "workload", id);
}

static uint32_t alert_find(struct core *c, const char *rule, bool node, const char *id)
{
        const char *key = key_of(c, rule, node, id);
        return map_get(&c->alert_by_key, key, strlen(key));
}

static uint32_t alert_add(struct core *c, const char *rule, bool node, const char *id)
{
        uint32_t i = alert_find(c, rule, node, id);
        if (i != MAP_NONE)
                return i;
        if (c->free_alerts.len)
                i = array_pop(&c->free_alerts);
        else {
                array_push(&c->alerts);
                i = (uint32_t)c->alerts.len - 1;
        }
        c->alerts.at[i] = (struct alert){ .key = mem_strdup(key_of(c, rule, node, id)),
                                          .rule = mem_strdup(rule),
                                          .id = mem_strdup(id),
                                          .is_node = node };
        map_put(&c->alert_by_key, i);
        order_add(&c->alerts_in_order, i);
        return i;
}

static void alert_drop_unused(struct core *c, uint32_t i)
{
        struct alert *a = &c->alerts.at[i];
        if (a->raised || a->since || a->unsaved || heap_get(&c->alert_deadlines, i) != HEAP_NEVER)
                return;
        map_remove(&c->alert_by_key, i);
        order_remove(&c->alerts_in_order, i);
        alert_fini(a);
        *array_push(&c->free_alerts) = i;
}

static uint32_t find_raised(const struct core *c, const char *key)
{
        uint32_t i = map_get(&c->alert_by_key, key, strlen(key));
        return i != MAP_NONE && c->alerts.at[i].raised ? i : NONE;
}

/* ---- figures ---- */

/* In thousandths of a percent; < 0: not known. */
static int64_t percent(int64_t part, int64_t total)
{
        return total > 0 ? (int64_t)((__int128)part * 100000 / total) : -1;
}

static int64_t node_figure(const struct core *c, const struct node *n, enum figure f)
{
        const struct ledger *l = &n->ledger;
        bool heard = n->usage_known, lost = n->status != PB__NODE_STATUS__E__Ready;
        switch (f) {
        case FIGURE_NODE_CPU:
                return !heard ? -1 : lost ? 0 : percent(n->cpu_used, l->total.cpu_milli);
        case FIGURE_NODE_MEMORY:
                return !heard ? -1
                       : lost ? 0
                              : percent(n->memory_used_mb, l->total.mem_bytes / MIB);
        case FIGURE_NODE_DISK:
                return !heard ? -1 : lost ? 0 : percent(n->disk_used_gb, l->total.disk_bytes / GIB);
        case FIGURE_NODE_CPU_RESERVED:
                return percent(l->reserved.cpu_milli, l->total.cpu_milli);
        case FIGURE_NODE_MEMORY_RESERVED:
                return percent(l->reserved.mem_bytes, l->total.mem_bytes);
        case FIGURE_NODE_DISK_RESERVED:
                return percent(l->reserved.disk_bytes, l->total.disk_bytes);
        case FIGURE_NODE_STATUS:
                return node_status_shown(n);
        case FIGURE_NODE_UNITS:
                return n->n_units;
        default:
                (void)c;
                return -1;
        }
}

struct look {
        int holds;        /* 1, 0; -1: not known */
        int64_t since;    /* it has held at least since then; 0: since now */
        int64_t again_at; /* time alone may make it hold then; 0: not */
        const struct condition_term *term;
        int64_t value; /* of the first term, for people */
};

static void look_at_pending(const struct core *c, const struct unit *w,
                            const struct condition_term *t, struct look *ret)
{
        int64_t from = w->last_updated + t->value + (t->op == COMPARE_GT);
        if (w->phase != PB__PHASE__E__Pending)
                ret->holds = 0;
        else if (c->now_ms < from) {
                ret->holds = 0;
                ret->again_at = from;
        } else if (from > ret->since)
                ret->since = from;
}

static void look_at_node(const struct core *c, const struct node *n, const struct condition *k,
                         struct look *ret)
{
        for (uint32_t i = 0; i < k->n_terms && ret->holds == 1; i++) {
                int64_t v = node_figure(c, n, k->terms[i].figure);
                if (i == 0)
                        ret->value = v;
                ret->holds = v < 0 ? -1 : condition_compare(k->terms[i].op, v, k->terms[i].value);
        }
}

static void look_at_workload(const struct core *c, const struct unit *w, const struct condition *k,
                             struct look *ret)
{
        for (uint32_t i = 0; i < k->n_terms && ret->holds == 1; i++) {
                const struct condition_term *t = &k->terms[i];
                if (t->figure == FIGURE_WORKLOAD_PENDING) {
                        look_at_pending(c, w, t, ret);
                        continue;
                }
                int64_t v = t->figure == FIGURE_WORKLOAD_FAILURES   ? w->attempts
                            : t->figure == FIGURE_WORKLOAD_RESTARTS ? w->restarts
                                                                    : (int64_t)phase_shown(c, w);
                if (i == 0)
                        ret->value = v;
                ret->holds = condition_compare(t->op, v, t->value);
        }
}

static bool selected(struct core *c, const struct rule *r, struct node_ix n, struct unit_ix w)
{
        if (!r->selector.n_terms)
                return true;
        struct arena_allocator alloc = arena_allocator(&c->step);
        if (unit_ok(w)) {
                const struct definition *d = definition_of(c, unit_at(c, w));
                Pb__Workload *view =
                    pb__workload__unpack((ProtobufCAllocator *)&alloc, d->len, d->data);
                return view && selector_match(&r->selector, view->labels, view->n_labels);
        }
        size_t len;
        void *data = node_record(c, node_at(c, n), false, &c->step, &len);
        Pb__Node *view = pb__node__unpack((ProtobufCAllocator *)&alloc, len, data);
        return view && selector_match(&r->selector, view->labels, view->n_labels);
}

/* The condition first: it is cheap, and mostly does not hold. */
static struct look look(struct core *c, const struct rule *r, struct node_ix n, struct unit_ix w)
{
        struct look l = { .holds = 1, .term = &r->condition.terms[0] };
        if (r->condition.about_nodes)
                look_at_node(c, node_at(c, n), &r->condition, &l);
        else
                look_at_workload(c, unit_at(c, w), &r->condition, &l);
        if ((l.holds == 1 || l.again_at) && !selected(c, r, n, w))
                l = (struct look){ .holds = 0 };
        return l;
}

/* ---- raised and cleared ---- */

static char *alert_words(struct core *c, const struct rule *r, const struct look *l)
{
        struct str text = STR_INIT;
        str_addf(&text, "%s%s%s", r->message, *r->message ? ": " : "", r->when);
        if (l && l->term->figure <= FIGURE_NODE_DISK_RESERVED)
                str_addf(&text, " (%s is %lld.%lld%%)", figure_name(l->term->figure),
                         (long long)(l->value / 1000), (long long)(l->value % 1000 / 100));
        else if (l && (l->term->figure == FIGURE_WORKLOAD_FAILURES ||
                       l->term->figure == FIGURE_WORKLOAD_RESTARTS ||
                       l->term->figure == FIGURE_NODE_UNITS))
                str_addf(&text, " (%s is %lld)", figure_name(l->term->figure), (long long)l->value);
        char *words = arena_strdup(&c->step, str_c(&text));
        str_fini(&text);
        return words;
}

static void emit_alert(struct core *c, uint32_t i, Pb__EventType__E type, const char *message,
                       const struct rule *r)
{
        const struct alert *a = &c->alerts.at[i];
        Pb__Event e = PB__EVENT__INIT;
        e.type = type;
        e.rule = arena_strdup(&c->step, a->rule);
        e.message = (char *)message;
        const char *id = arena_strdup(&c->step, a->id);
        if (a->is_node)
                e.node_id = (char *)id;
        else
                e.workload_id = (char *)id;
        emit(c, &e);
        if (type == PB__EVENT_TYPE__E__AlertRaised)
                c->stats.alerts_raised++;
        if (r && !str_empty(r->webhook))
                queue_webhook(c, r, &e);
}

/* What is due by now; false: nothing has been decided. */
static void advance(struct core *c, const struct rule *r, bool node, const char *id,
                    const struct look *l)
{
        uint32_t i = alert_find(c, r->name, node, id);
        if (l->holds < 0)
                return; /* not known: nothing changes */
        if (i == MAP_NONE && !l->holds && !l->again_at)
                return;
        if (i == MAP_NONE)
                i = alert_add(c, r->name, node, id);
        struct alert *a = &c->alerts.at[i];
        heap_unset(&c->alert_deadlines, i);
        bool changes = a->raised != (l->holds == 1);
        if (!changes)
                a->since = 0;
        else if (!a->since)
                a->since = l->since ? l->since : c->now_ms;
        if (changes) {
                int64_t due = a->since + (a->raised ? r->cooldown_ms : r->condition.for_ms);
                if (c->now_ms < due)
                        heap_set(&c->alert_deadlines, i, due);
                else if (a->raised)
                        emit_alert(c, i, PB__EVENT_TYPE__E__AlertCleared, alert_words(c, r, NULL),
                                   r);
                else
                        emit_alert(c, i, PB__EVENT_TYPE__E__AlertRaised, alert_words(c, r, l), r);
        } else if (l->again_at && !a->raised)
                heap_set(&c->alert_deadlines, i, l->again_at);
        alert_drop_unused(c, i);
}

static void look_at_all_rules(struct core *c, struct node_ix n, struct unit_ix w)
{
        bool node = node_ok(n);
        for (size_t k = 0; k < c->rules.len; k++) {
                const struct rule *r = &c->rules.at[k];
                if (r->condition.about_nodes != node ||
                    (node ? !node_at(c, n)->id : !unit_at(c, w)->id))
                        continue;
                struct look l = look(c, r, n, w);
                advance(c, r, node, node ? node_at(c, n)->id : unit_at(c, w)->id, &l);
        }
}

static const struct rule *rule_named(const struct core *c, const char *name)
{
        for (size_t k = 0; k < c->rules.len; k++)
                if (str_eq(c->rules.at[k].name, name))
                        return &c->rules.at[k];
        return NULL;
}

/* Its time has come, or its subject or its rule has gone. */
static void look_at_alert(struct core *c, uint32_t i)
{
        struct alert *a = &c->alerts.at[i];
        if (!a->key)
                return;
        const struct rule *r = rule_named(c, a->rule);
        struct node_ix n = a->is_node ? node_find(c, a->id) : NODE_NONE;
        struct unit_ix w = a->is_node ? UNIT_NONE : workload_find(c, a->id);
        const char *gone = !r || r->condition.about_nodes != a->is_node ? "its rule is gone"
                           : node_ok(n) || unit_ok(w)                   ? NULL
                           : a->is_node                                 ? "the node was forgotten"
                                        : "the workload was deleted";
        if (!gone) {
                struct look l = look(c, r, n, w);
                advance(c, r, a->is_node, a->id, &l);
                return;
        }
        a->since = 0;
        if (a->raised)
                emit_alert(c, i, PB__EVENT_TYPE__E__AlertCleared, gone, r);
        alert_drop_unused(c, i);
}

/* ---- what has changed ---- */

void rules_node_changed(struct core *c, struct node_ix ix)
{
        struct node *n = node_at(c, ix);
        if (!c->n_node_rules || n->rules_pending || !c->started)
                return;
        n->rules_pending = true;
        *array_push(&c->changed_nodes) = ix;
}

void rules_workload_changed(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        if (!c->n_workload_rules || w->rules_pending || !c->started)
                return;
        w->rules_pending = true;
        *array_push(&c->changed_workloads) = ix;
}

void rules_subject_gone(struct core *c, bool node, const char *id)
{
        if (!c->started || !(c->alerts.len - c->free_alerts.len))
                return;
        for (size_t k = 0; k < c->rules.len; k++) {
                uint32_t i = alert_find(c, c->rules.at[k].name, node, id);
                if (i != MAP_NONE)
                        heap_set(&c->alert_deadlines, i, c->now_ms);
        }
}

bool rules_have_work(const struct core *c)
{
        return c->changed_nodes.len || c->changed_workloads.len;
}

void run_rules(struct core *c)
{
        while (c->changed_nodes.len && !step_is_full(c)) {
                struct node_ix n = array_pop(&c->changed_nodes);
                if (!node_at(c, n)->rules_pending)
                        continue;
                node_at(c, n)->rules_pending = false;
                look_at_all_rules(c, n, UNIT_NONE);
                decision_done(c);
        }
        while (c->changed_workloads.len && !step_is_full(c)) {
                struct unit_ix w = array_pop(&c->changed_workloads);
                if (!unit_at(c, w)->rules_pending)
                        continue;
                unit_at(c, w)->rules_pending = false;
                look_at_all_rules(c, NODE_NONE, w);
                decision_done(c);
        }
        while (c->configured && heap_next_ms(&c->alert_deadlines) <= c->now_ms &&
               !step_is_full(c)) {
                look_at_alert(c, heap_pop(&c->alert_deadlines));
                decision_done(c);
        }
}

/* ---- configuration ---- */

static void rule_take(struct core *c, const Pb__AutomationRule *f)
{
        struct arena *a = &c->config_memory;
        struct rule r = { .name = arena_strdup(a, f->name),
                          .when = arena_strdup(a, f->when),
                          .webhook = arena_strdup(a, f->webhook),
                          .message = arena_strdup(a, f->message),
                          .cooldown_ms = config_duration_ms(f->cooldown, COOLDOWN_MS) };
        struct err ignored;
        if (condition_parse(f->when, &r.condition, &ignored) < 0 ||
            selector_parse(a, f->selector, &r.selector, &ignored) < 0)
                return; /* model/config.h has looked at it */
        c->n_node_rules += r.condition.about_nodes;
        c->n_workload_rules += !r.condition.about_nodes;
        *array_push(&c->rules) = r;
}

void rules_configure(struct core *c, const Pb__ServerConfig *f)
{
        arena_reset(&c->config_memory);
        array_clear(&c->rules);
        c->n_node_rules = c->n_workload_rules = 0;
        c->config = (const Pb__ServerConfig *)pb_clone(&c->config_memory, &f->base);
        for (size_t i = 0; i < f->n_rules; i++)
                rule_take(c, f->rules[i]);
        c->configured = true;
        for (uint32_t i = 0; i < c->alerts.len; i++)
                if (c->alerts.at[i].key)
                        heap_set(&c->alert_deadlines, i, c->now_ms);
        for (uint32_t i = 0; c->n_node_rules && i < c->nodes.len; i++)
                if (c->nodes.at[i].id)
                        rules_node_changed(c, (struct node_ix){ i });
        for (uint32_t i = 0; c->n_workload_rules && i < c->units.len; i++)
                if (c->units.at[i].id)
                        rules_workload_changed(c, (struct unit_ix){ i });
}

/* ---- state ---- */

const char *wrong_alert(struct core *c, const Pb__Event *e)
{
        bool node = str_empty(e->workload_id);
        const char *id = node ? e->node_id : e->workload_id;
        if (str_empty(e->rule) || strchr(e->rule, '/') || str_empty(id) || strchr(id, '/'))
                return "it names no rule, or nothing that it is about";
        bool known = node ? node_ok(node_find(c, id)) : unit_ok(workload_find(c, id));
        bool raised = find_raised(c, key_of(c, e->rule, node, id)) != NONE;
        if (e->type == PB__EVENT_TYPE__E__AlertRaised)
                return !known   ? "it is about nothing that is known"
                       : raised ? "the alert is raised already"
                                : NULL;
        return raised ? NULL : "no such alert is raised";
}

void apply_alert_event(struct core *c, const Pb__Event *e)
{
        bool node = str_empty(e->workload_id);
        const char *id = node ? e->node_id : e->workload_id;
        uint32_t i = alert_add(c, e->rule, node, id);
        struct alert *a = &c->alerts.at[i];
        a->raised = e->type == PB__EVENT_TYPE__E__AlertRaised;
        a->since = 0;
        a->raised_at = a->raised ? e->timestamp : 0;
        a->seq = a->raised ? e->seq : 0;
        text_set(&a->message, a->raised ? e->message : NULL);
        struct node_ix n = node ? node_find(c, id) : NODE_NONE;
        struct unit_ix w = node ? UNIT_NONE : workload_find(c, id);
        if (node_ok(n)) { /* it is part of the history of what it is about */
                node_at(c, n)->seq = e->seq;
                save_node(c, n);
        } else if (unit_ok(w)) {
                unit_at(c, w)->seq = e->seq;
                save_workload(c, w);
        }
        if (a->raised)
                record_changed(c, RECORD_ALERT, i, 1, text_bytes(a->message));
        else {
                record_removed(c, RECORD_ALERT, a->key);
                if (!c->started) /* else whoever decided it looks at the entry once more */
                        alert_drop_unused(c, i);
        }
}

static void alert_message(const struct alert *a, Pb__Alert *m)
{
        pb__alert__init(m);
        m->rule = a->rule;
        if (a->is_node)
                m->node_id = a->id;
        else
                m->workload_id = a->id;
        m->raised_at = a->raised_at;
        m->message = a->message;
        m->resource_version = a->seq;
}

static void *pack(struct core *c, uint32_t i, struct arena *mem, size_t *ret_len)
{
        Pb__Alert m;
        alert_message(&c->alerts.at[i], &m);
        *ret_len = pb__alert__get_packed_size(&m);
        void *data = arena_alloc(mem, *ret_len + 1);
        pb__alert__pack(&m, data);
        return data;
}

/* Whether its subject is there is looked at when the configuration comes: records are loaded in any
 * order. */
static const char *load(struct core *c, const char *key, const ProtobufCMessage *msg)
{
        const Pb__Alert *m = (const Pb__Alert *)msg;
        bool node = str_empty(m->workload_id);
        const char *id = node ? m->node_id : m->workload_id;
        if (str_empty(m->rule) || strchr(m->rule, '/') || str_empty(id) || strchr(id, '/') ||
            !time_is_sane(m->raised_at) || !str_eq(key, key_of(c, m->rule, node, id)) ||
            find_raised(c, key) != NONE)
                return "it is no alert of its key";
        uint32_t i = alert_add(c, m->rule, node, id);
        struct alert *a = &c->alerts.at[i];
        a->raised = true;
        a->raised_at = m->raised_at;
        a->seq = m->resource_version;
        text_set(&a->message, m->message);
        return NULL;
}

static const char *name(const struct core *c, uint32_t slot, struct arena *a)
{
        (void)a;
        return c->alerts.at[slot].raised ? c->alerts.at[slot].key : NULL;
}

const struct record_kind alert_records = {
        RECORD_TABLE(alerts, struct alert),
        .name = name,
        .find = find_raised,
        .pack = pack,
        .load = load,
        .saved = alert_drop_unused,
};

void read_list_alerts(struct core *c, const Pb__ListAlertsRequest *req)
{
        size_t limit = req->limit > 0 ? (size_t)req->limit : ALERTS_PER_PAGE;
        struct order_place at;
        if (list_begin(c, &c->alerts_in_order, req->cursor, &at) < 0)
                return;
        Pb__ListAlertsResponse r = PB__LIST_ALERTS_RESPONSE__INIT;
        r.items = arena_new_n(&c->step, Pb__Alert *, limit + 1);
        uint32_t i = NONE, last = NONE;
        while (r.n_items < limit && (i = order_next(&c->alerts_in_order, &at)) != MAP_NONE) {
                const struct alert *a = &c->alerts.at[last = i];
                if (!a->raised || (!str_empty(req->rule) && !str_eq(req->rule, a->rule)))
                        continue;
                r.items[r.n_items] = arena_new(&c->step, Pb__Alert);
                alert_message(a, r.items[r.n_items++]);
        }
        r.next_cursor = list_cursor(c, &c->alerts_in_order, at, last);
        r.resource_version = c->head;
        reply_message(c, &r.base);
}

static _Thread_local const struct core *sorting;

static int by_key(const void *a, const void *b)
{
        return strcmp(sorting->alerts.at[*(const uint32_t *)a].key,
                      sorting->alerts.at[*(const uint32_t *)b].key);
}

void alerts_dump(const struct core *c, struct str *out)
{
        ARRAY(uint32_t) list = { 0 };
        for (uint32_t i = 0; i < c->alerts.len; i++)
                if (c->alerts.at[i].raised)
                        *array_push(&list) = i;
        sorting = c;
        if (list.len)
                qsort(list.at, list.len, sizeof(uint32_t), by_key);
        for (size_t i = 0; i < list.len; i++) {
                const struct alert *a = &c->alerts.at[list.at[i]];
                str_addf(out, "alert %s at=%lld seq=%llu message=%s\n", a->key,
                         (long long)a->raised_at, (unsigned long long)a->seq,
                         a->message ? a->message : "-");
        }
        array_fini(&list);
}

#define BROKEN(err, which, what, who)                                                              \
        err_set(err, ERR_INTERNAL, .msg = "invariant " which " is broken: " what, .detail = (who))

int alerts_check(const struct core *c, struct err *err)
{
        uint32_t n = 0;
        for (uint32_t i = 0; i < c->alerts.len; i++) {
                const struct alert *a = &c->alerts.at[i];
                if (!a->key)
                        continue;
                n++;
                if (map_get(&c->alert_by_key, a->key, strlen(a->key)) != i)
                        return BROKEN(err, "U1", "an alert is found by its rule and subject",
                                      a->key);
                bool waits = heap_get(&c->alert_deadlines, i) != HEAP_NEVER;
                if (!a->raised && !a->unsaved && !waits)
                        return BROKEN(err, "U2",
                                      "what is not raised waits for a time, or is forgotten",
                                      a->key);
                if (a->since && !waits)
                        return BROKEN(err, "U2", "what waits for a time has a deadline", a->key);
        }
        return n == map_len(&c->alert_by_key) ? 0 : BROKEN(err, "U1", "alerts are counted", "");
}
