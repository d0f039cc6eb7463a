/* agent/engine_testlib.c: see engine_testlib.h. */
#include "agent/engine_testlib.h"
#include "base/str.h"
#include <stdio.h>

static const Pb__WorkloadType__E types[] = { PB__WORKLOAD_TYPE__E__process, 0 };

static struct engine *engine_in_boot(const char *boot_id, uint32_t max_units, uint32_t max_starting)
{
        struct engine_label labels[] = { { "zone", "b" }, { "arch", "x" } };
        struct engine_options opt = { .node_id = "n1",
                                      .instance = "i",
                                      .boot_id = boot_id,
                                      .agent_version = "v",
                                      .cpu = 4000,
                                      .memory_mb = 1024,
                                      .disk_gb = 10,
                                      .types = types,
                                      .labels = labels,
                                      .n_labels = 2,
                                      .max_units = max_units,
                                      .max_starting = max_starting };

        return engine_create(&opt);
}

struct engine *new_engine(uint32_t max_units, uint32_t max_starting)
{
        return engine_in_boot("boot-0", max_units, max_starting);
}

struct copy *copy_of(struct rig *r, const char *id)
{
        for (size_t i = 0; i < r->copies.len; i++)
                if (str_eq(r->copies.at[i].id, id))
                        return &r->copies.at[i];
        return NULL;
}

bool copy_runs(struct rig *r, const char *id)
{
        struct copy *c = copy_of(r, id);

        return c && c->phase != COPY_EXITED;
}

struct file *file_of(struct rig *r, const char *id)
{
        for (size_t i = 0; i < r->files.len; i++)
                if (str_eq(r->files.at[i].id, id))
                        return &r->files.at[i];
        return NULL;
}

static void drop_copy(struct rig *r, const char *id)
{
        struct copy *c = copy_of(r, id);

        if (c)
                *c = r->copies.at[--r->copies.len];
}

static void do_persist(struct rig *r, const char *id, const void *data, size_t len)
{
        struct file *f = file_of(r, id);

        if (!f) {
                f = array_push(&r->files);
                snprintf(f->id, sizeof(f->id), "%s", id);
        }
        mem_free(f->data);
        f->data = mem_dup(data, len);
        f->len = len;
}

void do_forget(struct rig *r, const char *id)
{
        struct file *f = file_of(r, id);

        if (!f)
                return;
        mem_free(f->data);
        *f = r->files.at[--r->files.len];
}

/* What C34 asks for: a record with at least this token is on disk before a start. */
static void assert_durable(struct rig *r, const struct engine_order *o)
{
        struct file *f = file_of(r, o->workload_id);
        Pb__UnitRecord *rec;

        assert_non_null(f);
        rec = pb__unit_record__unpack(NULL, f->len, f->data);
        assert_non_null(rec);
        assert_true(
            unit_token_cmp((struct unit_token){ rec->plan->token->epoch, rec->plan->token->seq },
                           o->token) >= 0);
        assert_non_null(rec->launched_token);
        assert_int_equal(rec->launched_token->seq, o->token.seq);
        pb__unit_record__free_unpacked(rec, NULL);
}

static void do_start(struct rig *r, const struct engine_order *o)
{
        Pb__Workload *w = pb__workload__unpack(NULL, o->len, o->data);
        struct copy *c = copy_of(r, o->workload_id);

        assert_non_null(w);
        assert_false(copy_runs(r, o->workload_id)); /* never two copies */
        assert_durable(r, o);
        if (!c)
                c = array_push(&r->copies);
        snprintf(c->id, sizeof(c->id), "%s", o->workload_id);
        snprintf(c->revision, sizeof(c->revision), "%s", w->revision_id);
        c->token = o->token;
        c->phase = COPY_STARTING;
        pb__workload__free_unpacked(w, NULL);
}

static void do_order(struct rig *r, const struct engine_order *o)
{
        struct copy *c = o->workload_id ? copy_of(r, o->workload_id) : NULL;

        switch (o->kind) {
        case ORDER_PERSIST_UNIT:
        case ORDER_PERSIST_AGENT:
                if (r->disk_full)
                        engine_persist_failed(r->e, o->workload_id, "disk full", r->now);
                else
                        do_persist(r, o->workload_id ? o->workload_id : "", o->data, o->len);
                break;
        case ORDER_FORGET_UNIT:
                do_forget(r, o->workload_id);
                break;
        case ORDER_START:
                if (!r->disk_full)
                        do_start(r, o);
                break;
        case ORDER_STOP:
                if (c && c->phase != COPY_EXITED)
                        c->phase = COPY_STOPPING;
                else
                        engine_event(r->e,
                                     &(struct runtime_event){ .kind = RUNTIME_STOPPED,
                                                              .workload_id = o->workload_id,
                                                              .token = o->token,
                                                              .at_ms = r->now },
                                     r->now);
                break;
        case ORDER_LEASE:
                break;
        case ORDER_REMOVE:
                assert_false(copy_runs(r, o->workload_id));
                *array_push(&r->removing) = mem_strdup(o->workload_id);
                break;
        }
}

bool was_removing(struct rig *r, const char *id)
{
        for (size_t i = 0; i < r->removing.len; i++)
                if (str_eq(r->removing.at[i], id)) {
                        mem_free(r->removing.at[i]);
                        r->removing.at[i] = r->removing.at[--r->removing.len];
                        return true;
                }
        return false;
}

static void forget_removing(struct rig *r)
{
        while (r->removing.len)
                mem_free(array_pop(&r->removing));
}

void drain(struct rig *r)
{
        struct engine_output *out;
        struct err err = { 0 };

        while (!r->dead && (out = engine_take(r->e))) {
                bool runtime_orders = false;

                for (size_t i = 0; i < out->n_orders && !r->dead; i++) {
                        struct engine_order *kept;

                        runtime_orders = runtime_orders || out->orders[i].kind >= ORDER_START;
                        /* records first */
                        assert_true(!runtime_orders || out->orders[i].kind >= ORDER_START);
                        if (r->budget && --r->budget == 0)
                                r->dead = true;
                        else
                                do_order(r, &out->orders[i]);
                        kept = array_push(&r->log);
                        *kept = out->orders[i];
                        kept->workload_id = out->orders[i].workload_id
                                                ? mem_strdup(out->orders[i].workload_id)
                                                : NULL;
                        kept->data = NULL;
                }
                for (size_t i = 0; i < out->n_messages && !r->dead; i++) {
                        Pb__AgentMessage *m = pb__agent_message__unpack(NULL, out->messages[i].len,
                                                                        out->messages[i].data);

                        assert_non_null(m);
                        assert_int_equal(m->heartbeat != NULL || m->hello != NULL,
                                         out->messages[i].urgent);
                        *array_push(&r->sent) = m;
                }
                engine_output_free(out);
        }
        if (engine_check(r->e, &err) < 0)
                fail_msg("%s: %s", err.msg, err.detail);
}

void clear(struct rig *r)
{
        for (size_t i = 0; i < r->log.len; i++)
                mem_free((char *)(uintptr_t)r->log.at[i].workload_id);
        for (size_t i = 0; i < r->sent.len; i++)
                pb__agent_message__free_unpacked(r->sent.at[i], NULL);
        array_clear(&r->log);
        array_clear(&r->sent);
}

void rig_fini(struct rig *r)
{
        clear(r);
        for (size_t i = 0; i < r->files.len; i++)
                mem_free(r->files.at[i].data);
        array_fini(&r->files);
        array_fini(&r->copies);
        array_fini(&r->log);
        array_fini(&r->sent);
        forget_removing(r);
        array_fini(&r->removing);
        if (r->e)
                engine_destroy(r->e);
        r->e = NULL;
}

size_t ordered(const struct rig *r, enum engine_order_kind kind, const char *id)
{
        size_t n = 0;

        for (size_t i = 0; i < r->log.len; i++)
                n += r->log.at[i].kind == kind && (!id || str_eq(r->log.at[i].workload_id, id));
        return n;
}

Pb__UnitStatus *status_of(const struct rig *r, const char *id)
{
        Pb__UnitStatus *found = NULL;

        for (size_t i = 0; i < r->sent.len; i++) {
                Pb__AgentMessage *m = r->sent.at[i];
                Pb__UnitStatus **list = m->units   ? m->units->units
                                        : m->hello ? m->hello->units
                                                   : NULL;
                size_t n = m->units ? m->units->n_units : m->hello ? m->hello->n_units : 0;

                for (size_t k = 0; k < n; k++)
                        if (str_eq(list[k]->unit_id, id))
                                found = list[k];
        }
        return found;
}

void assert_status(const struct rig *r, const char *id, Pb__ActualState__E state,
                   Pb__Reason__E reason)
{
        Pb__UnitStatus *s = status_of(r, id);

        assert_non_null(s);
        assert_int_equal(s->state, state);
        assert_int_equal(s->reason, reason);
}

/* ---- what the server says ---- */

void say(struct rig *r, Pb__ServerMessage *m)
{
        engine_message(r->e, m, r->now);
        drain(r);
}

void welcome(struct rig *r, const char *cluster, bool accepted)
{
        Pb__ServerMessage m = PB__SERVER_MESSAGE__INIT;
        Pb__Welcome w = PB__WELCOME__INIT;

        w.accepted = accepted;
        w.cluster_id = (char *)(uintptr_t)cluster;
        w.epoch = 1;
        w.heartbeat_ms = 1000;
        w.reason = (char *)(uintptr_t) "because";
        m.welcome = &w;
        say(r, &m);
}

void plan_begin(struct plan *p, uint64_t epoch, uint64_t seq, bool complete, bool last)
{
        pb__server_message__init(&p->m);
        pb__plan__init(&p->plan);
        pb__cursor__init(&p->cursor);
        p->cursor.epoch = epoch;
        p->cursor.seq = seq;
        p->plan.cursor = &p->cursor;
        p->plan.complete = complete;
        p->plan.last = last;
        p->plan.units = p->list;
        p->plan.n_units = p->n = 0;
        p->m.plan = &p->plan;
}

void plan_add(struct plan *p, const char *id, uint64_t token, Pb__DesiredState__E desired,
              const char *revision)
{
        size_t i = p->n++;

        assert_true(i < MAX_PLAN);
        pb__plan_entry__init(&p->units[i]);
        pb__token__init(&p->tokens[i]);
        p->tokens[i].epoch = 1;
        p->tokens[i].seq = token;
        p->units[i].unit_id = (char *)(uintptr_t)id;
        p->units[i].token = &p->tokens[i];
        p->units[i].desired_state = desired;
        if (revision) {
                Pb__Workload w = PB__WORKLOAD__INIT;
                Pb__Spec spec = PB__SPEC__INIT;

                w.id = (char *)(uintptr_t)id;
                w.type = PB__WORKLOAD_TYPE__E__process;
                w.revision_id = (char *)(uintptr_t)revision;
                w.spec = &spec;
                w.stop_grace_seconds = 7;
                plan_define(p, i, &w);
        }
        p->list[i] = &p->units[i];
        p->plan.n_units = p->n;
}

void plan_define(struct plan *p, size_t i, const Pb__Workload *w)
{
        assert_true(pb__workload__get_packed_size(w) <= sizeof(p->packed[i]));
        p->units[i].workload =
            (ProtobufCBinaryData){ pb__workload__pack(w, p->packed[i]), p->packed[i] };
}

void change(struct rig *r, uint64_t seq, const char *id, uint64_t token,
            Pb__DesiredState__E desired, const char *revision)
{
        struct plan p;

        plan_begin(&p, 1, seq, false, false);
        plan_add(&p, id, token, desired, revision);
        say(r, &p.m);
}

/* ---- what the runtime says ---- */

void runtime_says(struct rig *r, enum runtime_event_kind kind, const char *id, uint64_t token,
                  int exit_code, int sig)
{
        struct runtime_event ev = { .kind = kind,
                                    .workload_id = id,
                                    .token = { 1, token },
                                    .at_ms = r->now,
                                    .has_exit_code = exit_code >= 0,
                                    .exit_code = exit_code < 0 ? 0 : exit_code,
                                    .has_signal = sig > 0,
                                    .signal = sig };
        struct copy *c = copy_of(r, id);

        if (c && kind == RUNTIME_STARTED)
                c->phase = COPY_UP;
        else if (kind == RUNTIME_REMOVED)
                drop_copy(r, id);
        else if (c)
                c->phase = COPY_EXITED;
        engine_event(r->e, &ev, r->now);
        drain(r);
}

void rig_boot(struct rig *r, uint32_t max_units, uint32_t max_starting)
{
        r->e = engine_in_boot(fmt("boot-%u", r->boots), max_units, max_starting);
        for (size_t i = 0; i < r->files.len; i++)
                if (r->files.at[i].id[0])
                        assert_int_equal(
                            engine_load_unit(r->e, r->files.at[i].data, r->files.at[i].len, NULL),
                            0);
                else
                        assert_int_equal(
                            engine_load_agent(r->e, r->files.at[i].data, r->files.at[i].len, NULL),
                            0);
        for (size_t i = 0; i < r->copies.len; i++) {
                struct copy *c = &r->copies.at[i];
                struct runtime_event ev = { .kind = c->phase == COPY_EXITED ? RUNTIME_FOUND_EXITED
                                                                            : RUNTIME_FOUND_RUNNING,
                                            .workload_id = c->id,
                                            .token = c->token,
                                            .revision_id = c->revision,
                                            .at_ms = r->now,
                                            .has_exit_code = c->phase == COPY_EXITED };

                if (c->phase != COPY_EXITED)
                        c->phase = COPY_UP;
                engine_event(r->e, &ev, r->now);
        }
        if (r->lease_until)
                engine_load_lease(r->e, r->lease_until, r->lease_kill);
        engine_booted(r->e, r->now);
        drain(r);
}

void rig_restart(struct rig *r)
{
        engine_destroy(r->e);
        r->dead = false;
        r->budget = 0;
        clear(r);
        forget_removing(r);
        rig_boot(r, 0, 0);
}

void rig_power_loss(struct rig *r)
{
        array_clear(&r->copies);
        r->boots++;
        rig_restart(r);
}

void rig_join(struct rig *r)
{
        engine_connected(r->e, r->now);
        drain(r);
        welcome(r, "c1", true);
}

void empty_plan(struct rig *r, uint64_t seq)
{
        struct plan p;

        plan_begin(&p, 1, seq, true, true);
        say(r, &p.m);
}

struct rig rig_new(void)
{
        struct rig r = { .now = 1000000 };

        rig_boot(&r, 0, 0);
        rig_join(&r);
        empty_plan(&r, 1);
        return r;
}

void bring_up(struct rig *r, uint64_t seq, const char *id, uint64_t token, const char *revision)
{
        change(r, seq, id, token, RUN, revision);
        runtime_says(r, RUNTIME_STARTED, id, token, -1, 0);
        assert_status(r, id, PB__ACTUAL_STATE__E__Running, PB__REASON__E__none);
        clear(r);
}
