/* core/core_testlib.c: see core_testlib.h. */
#include "core/core_testlib.h"
#include "base/mem.h"
#include "base/unit_hash.h"
#include "core/event.h"
#include "model/config.h"
#include "model/feature.h"
#include "model/pb.h"
#include "model/validate.h"

/* ---- what comes out ---- */

static const char *event_name(const Pb__Event *e)
{
        const ProtobufCEnumValue *v =
            protobuf_c_enum_descriptor_get_value(&pb__event_type__e__descriptor, (int)e->type);
        assert_non_null(v);
        return v->name;
}

static struct rig_chain *chain_of(struct rig *r, const char *kind, const char *id)
{
        char name[512];
        snprintf(name, sizeof(name), "%s %s", kind, id);
        for (size_t i = 0; i < r->chains.len; i++)
                if (strcmp(r->chains.at[i].name, name) == 0)
                        return &r->chains.at[i];
        struct rig_chain *c = array_push(&r->chains);
        c->name = arena_strdup(&r->memory, name);
        return c;
}

/* prev names the event before it about the same workload, or about the same node if it names no
 * workload. What was deleted and made again starts anew. */
static void check_chain(struct rig *r, const Pb__Event *e)
{
        bool about_workload = e->workload_id[0] != 0;
        if (!about_workload && !e->node_id[0]) {
                assert_int_equal(e->prev, 0);
                return;
        }
        struct rig_chain *c =
            about_workload ? chain_of(r, "w", e->workload_id) : chain_of(r, "n", e->node_id);
        if (e->prev != c->seq)
                fail_msg("event %llu %s has prev %llu, the one before it was %llu",
                         (unsigned long long)e->seq, event_name(e), (unsigned long long)e->prev,
                         (unsigned long long)c->seq);
        bool ends = e->type == PB__EVENT_TYPE__E__WorkloadDeleted ||
                    e->type == PB__EVENT_TYPE__E__NodeForgotten;
        bool of_nobody = (e->type == PB__EVENT_TYPE__E__UnitRemoved ||
                          e->type == PB__EVENT_TYPE__E__AlertCleared) &&
                         c->seq == 0; /* the workload is long gone */
        c->seq = ends || of_nobody ? 0 : e->seq;
}

static void keep_event(struct rig *r, const struct store_event *ev)
{
        struct rig_stored *s = array_push(&r->events);
        struct arena_allocator alloc = arena_allocator(&r->memory);
        s->data = arena_dup(&r->memory, ev->data, ev->len);
        s->len = ev->len;
        s->e = pb__event__unpack((ProtobufCAllocator *)&alloc, ev->len, ev->data);
        assert_non_null(s->e);
        assert_int_equal(ev->seq, ++r->head);
        assert_int_equal(s->e->seq, ev->seq);
        assert_int_equal(s->e->version,
                         event_row(s->e->type)->version ? event_row(s->e->type)->version : 1);
        assert_true(s->e->timestamp >= RIG_START_MS && s->e->timestamp <= r->latest);
        assert_true(s->e->type != PB__EVENT_TYPE__E__unset);
        if (r->events.len > 1)
                assert_true(s->e->timestamp >= r->events.at[r->events.len - 2].e->timestamp);
        check_chain(r, s->e);
}

static void keep_record(struct rig *r, const struct store_record *rec)
{
        size_t i = 0;
        while (i < r->records.len && strcmp(r->records.at[i].key, rec->key) != 0)
                i++;
        if (!rec->data) {
                if (i < r->records.len) {
                        mem_free(r->records.at[i].key);
                        mem_free(r->records.at[i].data);
                        r->records.at[i] = r->records.at[--r->records.len];
                }
                return;
        }
        struct rig_record *k = i < r->records.len ? &r->records.at[i] : array_push(&r->records);
        mem_free(k->data);
        if (!k->key)
                k->key = mem_strdup(rec->key);
        k->data = mem_dup(rec->data, rec->len + !rec->len);
        k->len = rec->len;
}

static int by_text(const void *a, const void *b)
{
        return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void check_keys_once(const struct store_batch *b)
{
        const char **keys = mem_must((b->n_records + 1) * sizeof(*keys));
        for (size_t i = 0; i < b->n_records; i++)
                keys[i] = b->records[i].key;
        qsort(keys, b->n_records, sizeof(*keys), by_text);
        for (size_t i = 1; i < b->n_records; i++)
                if (strcmp(keys[i], keys[i - 1]) == 0)
                        fail_msg("%s comes twice in one batch", keys[i]);
        mem_free(keys);
}

static void keep_effect(struct rig *r, const struct effect *e)
{
        struct arena_allocator alloc = arena_allocator(&r->memory);
        struct rig_effect *k = array_push(&r->effects);
        *k = (struct rig_effect){ .kind = e->kind,
                                  .session = e->session,
                                  .seq = e->seq,
                                  .value = e->value,
                                  .events = r->events.len };
        assert_true(e->seq <= r->head); /* nothing leaves before what caused it is committed */
        if (e->kind == EFFECT_WELCOME)
                assert_non_null(k->welcome = pb__welcome__unpack((ProtobufCAllocator *)&alloc,
                                                                 e->len, e->data));
        if (e->kind == EFFECT_DESCRIBE)
                assert_non_null(k->describe = pb__describe_units__unpack(
                                    (ProtobufCAllocator *)&alloc, e->len, e->data));
        if (e->kind == EFFECT_PLAN_UNIT)
                assert_non_null(
                    k->unit = pb__plan_unit__unpack((ProtobufCAllocator *)&alloc, e->len, e->data));
        if (e->kind == EFFECT_WEBHOOK)
                assert_non_null(k->outgoing = pb__outgoing__unpack((ProtobufCAllocator *)&alloc,
                                                                   e->len, e->data));
        if (e->kind == EFFECT_PLAN_UNIT || e->kind == EFFECT_PLAN_END)
                for (size_t i = 0; i < r->agents.len; i++)
                        if (r->agents.at[i].session == e->session) {
                                /* a cursor never goes back */
                                assert_true(e->seq >= r->agents.at[i].applied);
                                r->agents.at[i].applied = e->seq;
                        }
}

static void keep_reply(struct rig *r, const struct reply *reply)
{
        struct rig_reply *k = array_push(&r->replies);
        struct err err;
        *k = (struct rig_reply){ .ticket = reply->ticket,
                                 .session = reply->session,
                                 .created = reply->created };
        if (reply->err)
                k->err = *reply->err;
        else if (reply->type &&
                 pb_unpack_own(reply->type, reply->data, reply->len, &r->memory, &k->msg, &err) < 0)
                fail_msg("a reply does not parse: %s", err_line(&err));
}

static void keep_batch(struct rig *r, const struct core_batch *b)
{
        assert_int_equal(b->commit.expected_head, r->head);
        assert_int_equal(b->commit.new_head, r->head + b->commit.n_events);
        if (b->commit.n_events == 0)
                assert_int_equal(b->commit.n_records, 0);
        check_keys_once(&b->commit);
        r->epoch = b->epoch;
        if (b->commit.schema)
                r->schema = b->commit.schema;
        for (size_t i = 0; i < b->commit.n_events; i++)
                keep_event(r, &b->commit.events[i]);
        for (size_t i = 0; i < b->commit.n_records; i++)
                keep_record(r, &b->commit.records[i]);
        for (size_t i = 0; i < b->n_replies; i++)
                keep_reply(r, &b->replies[i]);
        for (size_t i = 0; i < b->n_effects; i++)
                keep_effect(r, &b->effects[i]);
        size_t ops = b->commit.n_events + b->commit.n_records;
        r->largest_batch_ops = ops > r->largest_batch_ops ? ops : r->largest_batch_ops;
        r->batches++;
}

void rig_take(struct rig *r)
{
        struct core_batch *b;
        while ((b = core_cut(r->core))) {
                keep_batch(r, b);
                core_batch_free(b);
        }
}

/* ---- steps ---- */

static void one_step(struct rig *r, struct input *in)
{
        struct err err = { 0 };
        in->now_ms = r->now;
        r->latest = r->now > r->latest ? r->now : r->latest;
        in->random[0] = 0x0123456789abcdef;
        in->features = r->lacking ? 0 : FEATURES_ALL;
        in->lacking = r->lacking;
        core_step(r->core, in);
        if (!r->no_check && core_check(r->core, &err) < 0)
                fail_msg("%s: %s", err.msg, err.detail);
        if (!r->by_hand)
                rig_take(r);
}

void rig_tick(struct rig *r)
{
        struct input in = { .kind = INPUT_TICK };
        one_step(r, &in);
}

static void step(struct rig *r, struct input *in)
{
        one_step(r, in);
        for (int i = 0; !r->by_hand && core_next_ms(r->core) <= r->now; i++) {
                rig_tick(r);
                if (i > 10000)
                        fail_msg("the core never comes to rest");
        }
}

void rig_advance(struct rig *r, int64_t ms)
{
        int64_t end = r->now + ms;
        struct input in = { .kind = INPUT_TICK };
        while (core_next_ms(r->core) <= end) {
                if (core_next_ms(r->core) > r->now)
                        r->now = core_next_ms(r->core);
                step(r, &in);
        }
        r->now = end;
        step(r, &in);
}

void rig_advance_alive(struct rig *r, int64_t ms)
{
        for (int64_t end = r->now + ms; r->now < end;) {
                rig_advance(r, end - r->now < 10000 ? end - r->now : 10000);
                for (size_t i = 0; i < r->agents.len; i++)
                        if (r->agents.at[i].session)
                                rig_beat(r, r->agents.at[i].id);
        }
}

/* ---- life ---- */

static void load(struct rig *r, struct core *c)
{
        struct err err = { 0 };
        for (size_t i = 0; i < r->records.len; i++)
                if (core_load_record(c, r->records.at[i].key, r->records.at[i].data,
                                     r->records.at[i].len, &err) < 0)
                        fail_msg("%s: %s", err.msg, err.detail);
}

void rig_init(struct rig *r, const struct core_options *opt)
{
        *r = (struct rig){ .now = RIG_START_MS };
        if (opt)
                r->opt = *opt;
        else
                core_options_default(&r->opt);
        r->opt.warrants = (struct warrant_keys){ .has = true, .key = { 1, 2, 3 } };
        r->core = core_create(&r->opt);
        struct input in = { .kind = INPUT_START };
        step(r, &in);
        rig_mark(r);
}

void rig_fini(struct rig *r)
{
        core_destroy(r->core);
        for (size_t i = 0; i < r->records.len; i++) {
                mem_free(r->records.at[i].key);
                mem_free(r->records.at[i].data);
        }
        array_fini(&r->events);
        array_fini(&r->records);
        array_fini(&r->replies);
        array_fini(&r->effects);
        for (size_t i = 0; i < r->agents.len; i++)
                array_fini(&r->agents.at[i].said);
        array_fini(&r->agents);
        array_fini(&r->chains);
        arena_fini(&r->memory);
}

void rig_restart(struct rig *r)
{
        core_destroy(r->core);
        r->core = core_create(&r->opt);
        load(r, r->core);
        for (size_t i = 0; i < r->agents.len; i++)
                r->agents.at[i].session = 0;
        struct input in = { .kind = INPUT_START, .head = r->head };
        step(r, &in);
}

void rig_restored(struct rig *r)
{
        bool by_hand = r->by_hand;
        core_destroy(r->core);
        r->core = core_create(&r->opt);
        load(r, r->core);
        struct input in = { .kind = INPUT_RESTORED, .head = r->head };
        r->by_hand = true;
        in.now_ms = r->now;
        core_step(r->core, &in); /* no deadline is armed in this one */
        rig_take(r);
        r->by_hand = by_hand;
        rig_restart(r);
}

static void same_dump(const struct str *a, const struct str *b, const char *what)
{
        if (a->len == b->len && memcmp(str_c(a), str_c(b), a->len) == 0)
                return;
        size_t i = 0, line = 0;
        for (; str_c(a)[i] && str_c(a)[i] == str_c(b)[i]; i++)
                if (str_c(a)[i] == '\n')
                        line = i + 1;
        fail_msg("%s:\n%.600s\n%.600s", what, str_c(a) + line, str_c(b) + line);
}

static int keep_pair(void *ctx, const struct store_record *record, struct err *err _unused_)
{
        struct str *out = ctx;
        str_addf(out, "%s ", record->key);
        str_add(out, record->data, record->len);
        return 0;
}

static int same_as_stored(void *ctx, const struct store_record *record, struct err *err _unused_)
{
        struct rig *r = ctx;
        const struct rig_record *stored = rig_record(r, record->key);
        if (!stored || stored->len != record->len ||
            memcmp(stored->data, record->data, record->len) != 0)
                fail_msg("%s is stored otherwise than the state says", record->key);
        return 1;
}

static bool is_view(const char *key)
{
        return str_starts(key, "/assignments/") || str_starts(key, "/retries/") ||
               str_starts(key, "/reconciliation/") ||
               (str_starts(key, "/nodes/") && strchr(key + strlen("/nodes/"), '/'));
}

static int count_one(void *ctx, const struct store_record *record _unused_,
                     struct err *err _unused_)
{
        ++*(size_t *)ctx;
        return 0;
}

/* What was written, batch by batch, is what would be written now: no record was forgotten, none is
 * left over. */
static void check_stored(struct rig *r)
{
        struct err err = { 0 };
        size_t want = 0, have = 0;
        core_records(r->core, same_as_stored, r, &err);
        core_records(r->core, count_one, &want, &err);
        for (size_t i = 0; i < r->records.len; i++)
                have += !is_view(r->records.at[i].key);
        assert_int_equal(have, want);
}

void rig_check_replay(struct rig *r)
{
        struct err err = { 0 };
        rig_take(r);
        struct core *folded = core_create(&r->opt), *loaded = core_create(&r->opt);
        for (size_t i = 0; i < r->events.len; i++)
                if (core_fold(folded, r->events.at[i].data, r->events.at[i].len, &err) < 0)
                        fail_msg("%s: %s", err.msg, err.detail);
        load(r, loaded);
        core_loaded(loaded, r->head);
        struct str live = STR_INIT, a = STR_INIT, b = STR_INIT;
        core_dump(r->core, &live);
        core_dump(folded, &a);
        core_dump(loaded, &b);
        same_dump(&live, &a, "the fold of the events is another state");
        same_dump(&live, &b, "the records are another state");
        if (core_check(folded, &err) < 0 || core_check(loaded, &err) < 0)
                fail_msg("%s: %s", err.msg, err.detail);
        str_clear(&a);
        str_clear(&b);
        core_records(folded, keep_pair, &a, &err);
        core_records(loaded, keep_pair, &b, &err);
        same_dump(&a, &b, "the records of both are not the same bytes");
        check_stored(r);
        str_fini(&live);
        str_fini(&a);
        str_fini(&b);
        core_destroy(folded);
        core_destroy(loaded);
}

/* ---- users ---- */

const struct rig_reply *rig_try(struct rig *r, enum input_kind kind, const void *msg)
{
        uint64_t ticket = ++r->tickets;
        struct input in = { .kind = kind,
                            .reply = ticket,
                            .msg = msg,
                            .actor = "tester",
                            .request_id =
                                arena_printf(&r->memory, "req-%llu", (unsigned long long)ticket) };
        step(r, &in);
        if (r->by_hand)
                return NULL;
        for (size_t i = r->replies.len; i-- > 0;)
                if (r->replies.at[i].ticket == ticket)
                        return arena_dup(&r->memory, &r->replies.at[i], sizeof(r->replies.at[i]));
        return NULL;
}

const struct rig_reply *rig_ask(struct rig *r, enum input_kind kind, const void *msg)
{
        const struct rig_reply *reply = rig_try(r, kind, msg);
        if (!reply && !r->by_hand)
                fail_msg("input %d was never answered", (int)kind);
        return reply;
}

Pb__Workload *rig_workload(struct rig *r, const char *id, int64_t cpu_milli, int64_t memory_mb)
{
        Pb__Workload *w = arena_new(&r->memory, Pb__Workload);
        pb__workload__init(w);
        w->id = arena_strdup(&r->memory, id);
        w->type = PB__WORKLOAD_TYPE__E__process;
        w->spec = arena_new(&r->memory, Pb__Spec);
        pb__spec__init(w->spec);
        w->spec->command = arena_new_n(&r->memory, char *, 2);
        w->spec->command[w->spec->n_command++] = "sleep";
        w->spec->command[w->spec->n_command++] = "1d";
        w->resources = arena_new(&r->memory, Pb__Resources);
        pb__resources__init(w->resources);
        w->resources->cpu = cpu_milli;
        w->resources->memory_mb = memory_mb;
        return w;
}

void rig_select(struct rig *r, Pb__Workload *w, const char *key, const char *value)
{
        pb_map_set(&r->memory, &w->base, "node_selector", key, value);
}

void rig_label(struct rig *r, Pb__Workload *w, const char *key, const char *value)
{
        pb_map_set(&r->memory, &w->base, "labels", key, value);
}

const struct rig_reply *rig_apply(struct rig *r, const Pb__Workload *w)
{
        struct err err = { 0 };
        Pb__ApplyWorkloadRequest req = PB__APPLY_WORKLOAD_REQUEST__INIT;
        req.workload = (Pb__Workload *)pb_clone(&r->memory, &w->base);
        if (workload_normalise(&r->memory, req.workload, &err) < 0)
                fail_msg("%s: %s", err.msg, err.detail);
        return rig_ask(r, INPUT_APPLY, &req);
}

static const struct rig_reply *ask_ref(struct rig *r, enum input_kind kind, const char *id)
{
        Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
        ref.id = (char *)id;
        return rig_ask(r, kind, &ref);
}

const struct rig_reply *rig_delete(struct rig *r, const char *id)
{
        return ask_ref(r, INPUT_DELETE, id);
}

const struct rig_reply *rig_retry(struct rig *r, const char *id)
{
        return ask_ref(r, INPUT_RETRY, id);
}

static const struct rig_reply *set_desired(struct rig *r, const char *id,
                                           Pb__DesiredState__E desired)
{
        Pb__SetDesiredRequest req = PB__SET_DESIRED_REQUEST__INIT;
        req.id = (char *)id;
        req.desired_state = desired;
        return rig_ask(r, INPUT_DESIRED, &req);
}

const struct rig_reply *rig_stop(struct rig *r, const char *id)
{
        return set_desired(r, id, PB__DESIRED_STATE__E__Stopped);
}

const struct rig_reply *rig_start(struct rig *r, const char *id)
{
        return set_desired(r, id, PB__DESIRED_STATE__E__Running);
}

const struct rig_reply *rig_wish(struct rig *r, const char *node, Pb__NodeWish__E wish)
{
        Pb__SetNodeWishRequest req = PB__SET_NODE_WISH_REQUEST__INIT;
        req.id = (char *)node;
        req.wish = wish;
        return rig_ask(r, INPUT_NODE_WISH, &req);
}

static const struct rig_reply *ask_node(struct rig *r, enum input_kind kind, const char *id)
{
        Pb__NodeRef ref = PB__NODE_REF__INIT;
        ref.id = (char *)id;
        return rig_ask(r, kind, &ref);
}

const struct rig_reply *rig_forget(struct rig *r, const char *node)
{
        return ask_node(r, INPUT_NODE_FORGET, node);
}

Pb__Workload *rig_get(struct rig *r, const char *id)
{
        return (Pb__Workload *)ask_ref(r, INPUT_GET_WORKLOAD, id)->msg;
}

Pb__Node *rig_node(struct rig *r, const char *id)
{
        return (Pb__Node *)ask_node(r, INPUT_GET_NODE, id)->msg;
}

Pb__Explanation *rig_explain(struct rig *r, const char *id)
{
        return (Pb__Explanation *)ask_ref(r, INPUT_EXPLAIN, id)->msg;
}

/* ---- agents ---- */

struct rig_agent *rig_agent(struct rig *r, const char *node)
{
        for (size_t i = 0; i < r->agents.len; i++)
                if (strcmp(r->agents.at[i].id, node) == 0)
                        return &r->agents.at[i];
        struct rig_agent *a = array_push(&r->agents);
        a->id = arena_strdup(&r->memory, node);
        return a;
}

Pb__Hello *rig_hello_message(struct rig *r, const char *node, int64_t cpu_milli, int64_t memory_mb,
                             int64_t disk_gb, const char *labels)
{
        Pb__Hello *h = arena_new(&r->memory, Pb__Hello);
        pb__hello__init(h);
        h->node_id = arena_strdup(&r->memory, node);
        h->cpu = cpu_milli;
        h->memory_mb = memory_mb;
        h->disk_gb = disk_gb;
        h->agent_version = "test";
        h->supported_workload_types = arena_new_n(&r->memory, Pb__WorkloadType__E, 4);
        h->supported_workload_types[h->n_supported_workload_types++] =
            PB__WORKLOAD_TYPE__E__process;
        h->supported_workload_types[h->n_supported_workload_types++] =
            PB__WORKLOAD_TYPE__E__container;
        char *copy = arena_strdup(&r->memory, labels ? labels : ""), *save = NULL;
        for (char *pair = strtok_r(copy, ",", &save); pair; pair = strtok_r(NULL, ",", &save)) {
                char *value = strchr(pair, '=');
                *value = 0;
                pb_map_set(&r->memory, &h->base, "labels", pair, value + 1);
        }
        if (r->feature) {
                h->features = arena_new_n(&r->memory, char *, 1);
                h->features[h->n_features++] = arena_strdup(&r->memory, r->feature);
        }
        return h;
}

static void said(struct rig *r, struct rig_agent *a, bool complete, size_t n,
                 Pb__UnitStatus *const *units)
{
        if (complete)
                array_clear(&a->said);
        for (size_t i = 0; i < n; i++) {
                const Pb__UnitStatus *u = units[i];
                size_t k = 0;
                while (k < a->said.len && strcmp(a->said.at[k].id, u->unit_id) != 0)
                        k++;
                if (u->state == PB__ACTUAL_STATE__E__Missing) {
                        if (k < a->said.len)
                                a->said.at[k] = array_pop(&a->said);
                        continue;
                }
                if (k == a->said.len)
                        array_push(&a->said)->id = arena_strdup(&r->memory, u->unit_id);
                a->said.at[k].hash = unit_hash(u->unit_id, u->token ? u->token->epoch : 0,
                                               u->token ? u->token->seq : 0, (int)u->state);
        }
}

uint64_t rig_say_hello(struct rig *r, Pb__Hello *h)
{
        struct err err = { 0 };
        if (validate_hello(h, &err) < 0)
                fail_msg("%s: %s", err.msg, err.detail);
        struct rig_agent *a = rig_agent(r, h->node_id);
        a->session = ++r->sessions;
        a->applied = 0;
        if (!h->push)
                said(r, a, true, h->n_units, h->units);
        struct input in = { .kind = INPUT_HELLO, .session = a->session, .msg = &h->base };
        step(r, &in);
        return r->sessions;
}

uint64_t rig_hello(struct rig *r, const char *node, int64_t cpu_milli, int64_t memory_mb,
                   int64_t disk_gb, const char *labels)
{
        return rig_say_hello(r, rig_hello_message(r, node, cpu_milli, memory_mb, disk_gb, labels));
}

void rig_hello_add(struct rig *r, Pb__Hello *h, Pb__UnitStatus *u)
{
        Pb__UnitStatus **units = arena_new_n(&r->memory, Pb__UnitStatus *, h->n_units + 1);
        if (h->n_units)
                memcpy(units, h->units, h->n_units * sizeof(*units));
        units[h->n_units++] = u;
        h->units = units;
}

void rig_gone(struct rig *r, const char *node)
{
        struct input in = { .kind = INPUT_GONE, .session = rig_agent(r, node)->session };
        rig_agent(r, node)->session = 0;
        step(r, &in);
}

void rig_beat(struct rig *r, const char *node)
{
        Pb__Heartbeat beat = PB__HEARTBEAT__INIT;
        const struct rig_agent *a = rig_agent(r, node);
        beat.units_count = (int32_t)a->said.len;
        for (size_t i = 0; i < a->said.len; i++)
                beat.units_hash += a->said.at[i].hash;
        struct input in = { .kind = INPUT_HEARTBEAT,
                            .session = rig_agent(r, node)->session,
                            .msg = &beat.base };
        step(r, &in);
}

void rig_beat_using(struct rig *r, const char *node, int64_t cpu_milli, int64_t memory_mb,
                    int64_t disk_gb)
{
        Pb__Heartbeat beat = PB__HEARTBEAT__INIT;
        Pb__NodeUsage usage = PB__NODE_USAGE__INIT;
        usage.cpu_used = cpu_milli;
        usage.memory_used_mb = memory_mb;
        usage.disk_used_gb = disk_gb;
        beat.usage = &usage;
        struct input in = { .kind = INPUT_HEARTBEAT,
                            .session = rig_agent(r, node)->session,
                            .msg = &beat.base };
        step(r, &in);
}

void rig_config(struct rig *r, const char *yaml)
{
        Pb__ServerConfig *config = NULL;
        struct err err = { 0 };
        if (config_read("test.yaml", yaml, strlen(yaml), &r->memory, &config, NULL, NULL, &err) < 0)
                fail_msg("%s", err.msg);
        struct input in = { .kind = INPUT_CONFIG, .msg = &config->base };
        step(r, &in);
}

void rig_say(struct rig *r, enum input_kind kind, uint64_t session, const void *msg,
             const char *text)
{
        struct input in = { .kind = kind, .session = session, .msg = msg, .text = text };
        step(r, &in);
}

Pb__UnitStatus *rig_unit(struct rig *r, const char *id, uint64_t epoch, uint64_t seq,
                         Pb__ActualState__E state)
{
        Pb__UnitStatus *u = arena_new(&r->memory, Pb__UnitStatus);
        pb__unit_status__init(u);
        u->unit_id = arena_strdup(&r->memory, id);
        u->token = arena_new(&r->memory, Pb__Token);
        pb__token__init(u->token);
        u->token->epoch = epoch;
        u->token->seq = seq;
        u->state = state;
        return u;
}

Pb__UnitStatus *rig_unit_now(struct rig *r, const char *id, Pb__ActualState__E state)
{
        Pb__Workload *w = rig_get(r, id);
        assert_non_null(w);
        Pb__UnitStatus *u =
            rig_unit(r, id, w->token ? w->token->epoch : 0, w->token ? w->token->seq : 0, state);
        u->revision_id = w->revision_id;
        return u;
}

void rig_report_all(struct rig *r, const char *node, bool complete, uint64_t applied, size_t n,
                    Pb__UnitStatus **units)
{
        Pb__UnitReport report = PB__UNIT_REPORT__INIT;
        Pb__Cursor cursor = PB__CURSOR__INIT;
        cursor.epoch = r->epoch;
        cursor.seq = applied;
        report.applied = &cursor;
        report.complete = complete;
        report.n_units = n;
        report.units = units;
        said(r, rig_agent(r, node), complete, n, units);
        struct input in = { .kind = INPUT_UNITS,
                            .session = rig_agent(r, node)->session,
                            .msg = &report.base };
        step(r, &in);
}

Pb__HeldUnit *rig_held(struct rig *r, const char *node, const Pb__Workload *w, bool warranted)
{
        Pb__HeldUnit *h = arena_new(&r->memory, Pb__HeldUnit);
        Pb__Workload plain = *w;
        pb__held_unit__init(h);
        h->unit_id = w->id;
        h->token = w->token;
        h->desired_state = w->desired_state;
        plain.token = NULL;
        plain.desired_state = 0;
        h->definition.data = pb_pack_arena(&r->memory, &plain.base, &h->definition.len);
        if (!warranted)
                return h;
        struct warrants *maker = warrants_create(&r->opt.warrants);
        Pb__ClusterInfo *cluster = (Pb__ClusterInfo *)rig_ask(r, INPUT_CLUSTER, NULL)->msg;
        struct warrant_facts facts = { cluster->cluster_id, w->id,         node,
                                       w->token->epoch,     w->token->seq, h->definition.data,
                                       h->definition.len };
        h->warrant.data = arena_alloc(&r->memory, WARRANT_BYTES);
        h->warrant.len = WARRANT_BYTES;
        assert_true(warrant_make(maker, &facts, h->warrant.data));
        warrants_destroy(maker);
        return h;
}

void rig_describe(struct rig *r, const char *node, size_t n, Pb__HeldUnit **held)
{
        Pb__UnitDefinitions d = PB__UNIT_DEFINITIONS__INIT;
        d.held = held;
        d.n_held = n;
        rig_say(r, INPUT_DEFINITIONS, rig_agent(r, node)->session, &d, NULL);
}

void rig_report(struct rig *r, const char *node, Pb__UnitStatus *u)
{
        rig_report_all(r, node, false, rig_agent(r, node)->applied, 1, &u);
}

void rig_runs(struct rig *r, const char *id)
{
        Pb__UnitStatus *u = rig_unit_now(r, id, PB__ACTUAL_STATE__E__Running);
        u->started_at = r->now;
        rig_report(r, rig_get(r, id)->assigned_node, u);
}

void rig_exits(struct rig *r, const char *id, int exit_code)
{
        Pb__UnitStatus *u = rig_unit_now(
            r, id, exit_code ? PB__ACTUAL_STATE__E__Failed : PB__ACTUAL_STATE__E__Stopped);
        u->exit_code = arena_new(&r->memory, Pb__IntValue);
        pb__int_value__init(u->exit_code);
        u->exit_code->value = exit_code;
        u->reason = exit_code ? PB__REASON__E__crashed : PB__REASON__E__exited;
        u->finished_at = r->now;
        rig_report(r, rig_get(r, id)->assigned_node, u);
}

void rig_is_gone(struct rig *r, const char *id, const char *node)
{
        rig_report(r, node, rig_unit(r, id, 1, 0, PB__ACTUAL_STATE__E__Missing));
}

/* ---- looking ---- */

void rig_mark(struct rig *r)
{
        r->mark = r->events.len;
        r->effect_mark = r->effects.len;
}

const char *rig_told(struct rig *r)
{
        struct str out = STR_INIT;
        for (size_t i = r->mark; i < r->events.len; i++)
                str_addf(&out, "%s%s", i > r->mark ? " " : "", event_name(r->events.at[i].e));
        char *text = arena_strdup(&r->memory, str_c(&out));
        str_fini(&out);
        return text;
}

Pb__Event *rig_last(struct rig *r, Pb__EventType__E type)
{
        for (size_t i = r->events.len; i-- > r->mark;)
                if (r->events.at[i].e->type == type)
                        return r->events.at[i].e;
        return NULL;
}

size_t rig_count(struct rig *r, Pb__EventType__E type)
{
        size_t n = 0;
        for (size_t i = r->mark; i < r->events.len; i++)
                n += r->events.at[i].e->type == type;
        return n;
}

struct rig_effect *rig_sent(struct rig *r, const char *node, const char *workload)
{
        for (size_t i = r->effects.len; i-- > r->effect_mark;) {
                struct rig_effect *e = &r->effects.at[i];
                if (e->kind == EFFECT_PLAN_UNIT && e->session == rig_agent(r, node)->session &&
                    strcmp(e->unit->unit_id, workload) == 0)
                        return e;
        }
        return NULL;
}

size_t rig_sent_count(struct rig *r, enum effect_kind kind)
{
        size_t n = 0;
        for (size_t i = r->effect_mark; i < r->effects.len; i++)
                n += r->effects.at[i].kind == kind;
        return n;
}

const struct rig_record *rig_record(struct rig *r, const char *key)
{
        for (size_t i = 0; i < r->records.len; i++)
                if (strcmp(r->records.at[i].key, key) == 0)
                        return &r->records.at[i];
        return NULL;
}
