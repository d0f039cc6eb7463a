/* agent/engine_test.c: every rule of engine.h, and a long random run against a model that knows what must never happen. */
#include "agent/engine.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/unit_hash.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a driver in memory: a disk, a runtime, and what was sent ---- */

struct file {
        char id[32];
        void *data;
        size_t len;
};
struct copy { /* in the runtime */
        char id[32], revision[16];
        struct unit_token token;
        enum { COPY_STARTING, COPY_UP, COPY_STOPPING, COPY_EXITED } phase;
};
struct rig {
        struct engine *e;
        int64_t now;
        ARRAY(struct file) files; /* id "": the agent's */
        ARRAY(struct copy) copies;
        ARRAY(struct engine_order) log; /* what was ordered; workload_id is owned */
        ARRAY(Pb__AgentMessage *) sent;
        bool disk_full, dead;            /* dead: the process was killed in the middle */
        size_t budget;                   /* orders that are still carried out before it dies; 0: all */
        ARRAY(char *) removing;          /* REMOVE ordered, not answered */
        int64_t lease_until, lease_kill; /* written down; 0: not */
};

static const Pb__WorkloadType__E types[] = { PB__WORKLOAD_TYPE__E__process, 0 };

static struct engine *new_engine(uint32_t max_units, uint32_t max_starting)
{
        struct engine_label labels[] = { { "zone", "b" }, { "arch", "x" } };
        struct engine_options opt = { .node_id = "n1",
                                      .instance = "i",
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

static struct copy *copy_of(struct rig *r, const char *id)
{
        for (size_t i = 0; i < r->copies.len; i++)
                if (str_eq(r->copies.at[i].id, id))
                        return &r->copies.at[i];
        return NULL;
}

static bool copy_runs(struct rig *r, const char *id)
{
        struct copy *c = copy_of(r, id);

        return c && c->phase != COPY_EXITED;
}

static struct file *file_of(struct rig *r, const char *id)
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

static void do_forget(struct rig *r, const char *id)
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
        assert_true(unit_token_cmp((struct unit_token){ rec->plan->token->epoch, rec->plan->token->seq }, o->token) >= 0);
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
                                     &(struct runtime_event){
                                         .kind = RUNTIME_STOPPED, .workload_id = o->workload_id, .token = o->token, .at_ms = r->now },
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

/* Takes an unanswered REMOVE off the list. */
static bool was_removing(struct rig *r, const char *id)
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

static void drain(struct rig *r)
{
        struct engine_output *out;
        struct err err = { 0 };

        while (!r->dead && (out = engine_take(r->e))) {
                bool runtime_orders = false;

                for (size_t i = 0; i < out->n_orders && !r->dead; i++) {
                        struct engine_order *kept;

                        runtime_orders = runtime_orders || out->orders[i].kind >= ORDER_START;
                        assert_true(!runtime_orders || out->orders[i].kind >= ORDER_START); /* records first */
                        if (r->budget && --r->budget == 0)
                                r->dead = true;
                        else
                                do_order(r, &out->orders[i]);
                        kept = array_push(&r->log);
                        *kept = out->orders[i];
                        kept->workload_id = out->orders[i].workload_id ? mem_strdup(out->orders[i].workload_id) : NULL;
                        kept->data = NULL;
                }
                for (size_t i = 0; i < out->n_messages && !r->dead; i++) {
                        Pb__AgentMessage *m = pb__agent_message__unpack(NULL, out->messages[i].len, out->messages[i].data);

                        assert_non_null(m);
                        assert_int_equal(m->heartbeat != NULL || m->hello != NULL, out->messages[i].urgent);
                        *array_push(&r->sent) = m;
                }
                engine_output_free(out);
        }
        if (engine_check(r->e, &err) < 0)
                fail_msg("%s: %s", err.msg, err.detail);
}

static void clear(struct rig *r)
{
        for (size_t i = 0; i < r->log.len; i++)
                mem_free((char *)(uintptr_t)r->log.at[i].workload_id);
        for (size_t i = 0; i < r->sent.len; i++)
                pb__agent_message__free_unpacked(r->sent.at[i], NULL);
        array_clear(&r->log);
        array_clear(&r->sent);
}

static void rig_fini(struct rig *r)
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

static size_t ordered(const struct rig *r, enum engine_order_kind kind, const char *id)
{
        size_t n = 0;

        for (size_t i = 0; i < r->log.len; i++)
                n += r->log.at[i].kind == kind && (!id || str_eq(r->log.at[i].workload_id, id));
        return n;
}

/* The last status that was sent about a unit, in a report or a Hello. */
static Pb__UnitStatus *status_of(const struct rig *r, const char *id)
{
        Pb__UnitStatus *found = NULL;

        for (size_t i = 0; i < r->sent.len; i++) {
                Pb__AgentMessage *m = r->sent.at[i];
                Pb__UnitStatus **list = m->units ? m->units->units : m->hello ? m->hello->units : NULL;
                size_t n = m->units ? m->units->n_units : m->hello ? m->hello->n_units : 0;

                for (size_t k = 0; k < n; k++)
                        if (str_eq(list[k]->workload_id, id))
                                found = list[k];
        }
        return found;
}

static void assert_status(const struct rig *r, const char *id, Pb__ActualState__E state, Pb__Reason__E reason)
{
        Pb__UnitStatus *s = status_of(r, id);

        assert_non_null(s);
        assert_int_equal(s->state, state);
        assert_int_equal(s->reason, reason);
}

/* ---- what the server says ---- */

static void say(struct rig *r, Pb__ServerMessage *m)
{
        engine_message(r->e, m, r->now);
        drain(r);
}

static void welcome(struct rig *r, const char *cluster, bool accepted)
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

#define MAX_PLAN 64
struct plan {
        Pb__ServerMessage m;
        Pb__Plan plan;
        Pb__Cursor cursor;
        size_t n;
        Pb__PlanUnit units[MAX_PLAN], *list[MAX_PLAN];
        Pb__Token tokens[MAX_PLAN];
        Pb__Workload workloads[MAX_PLAN];
        Pb__Spec specs[MAX_PLAN];
};

static void plan_begin(struct plan *p, uint64_t epoch, uint64_t seq, bool complete, bool last)
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

static void plan_add(struct plan *p, const char *id, uint64_t token, Pb__DesiredState__E desired, const char *revision)
{
        size_t i = p->n++;

        assert_true(i < MAX_PLAN);
        pb__plan_unit__init(&p->units[i]);
        pb__token__init(&p->tokens[i]);
        pb__workload__init(&p->workloads[i]);
        pb__spec__init(&p->specs[i]);
        p->tokens[i].epoch = 1;
        p->tokens[i].seq = token;
        p->units[i].workload_id = (char *)(uintptr_t)id;
        p->units[i].token = &p->tokens[i];
        p->units[i].desired_state = desired;
        if (revision) {
                p->workloads[i].id = (char *)(uintptr_t)id;
                p->workloads[i].type = PB__WORKLOAD_TYPE__E__process;
                p->workloads[i].revision_id = (char *)(uintptr_t)revision;
                p->workloads[i].spec = &p->specs[i];
                p->workloads[i].stop_grace_seconds = 7;
                p->units[i].workload = &p->workloads[i];
        }
        p->list[i] = &p->units[i];
        p->plan.n_units = p->n;
}

static void change(struct rig *r, uint64_t seq, const char *id, uint64_t token, Pb__DesiredState__E desired, const char *revision)
{
        struct plan p;

        plan_begin(&p, 1, seq, false, false);
        plan_add(&p, id, token, desired, revision);
        say(r, &p.m);
}

#define RUN PB__DESIRED_STATE__E__Running
#define STOP PB__DESIRED_STATE__E__Stopped
#define DEL PB__DESIRED_STATE__E__Deleted

/* ---- what the runtime says ---- */

static void runtime_says(struct rig *r, enum runtime_event_kind kind, const char *id, uint64_t token, int exit_code, int sig)
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

static void rig_boot(struct rig *r, uint32_t max_units, uint32_t max_starting)
{
        r->e = new_engine(max_units, max_starting);
        for (size_t i = 0; i < r->files.len; i++)
                if (r->files.at[i].id[0])
                        assert_int_equal(engine_load_unit(r->e, r->files.at[i].data, r->files.at[i].len, NULL), 0);
                else
                        assert_int_equal(engine_load_agent(r->e, r->files.at[i].data, r->files.at[i].len, NULL), 0);
        for (size_t i = 0; i < r->copies.len; i++) {
                struct copy *c = &r->copies.at[i];
                struct runtime_event ev = { .kind = c->phase == COPY_EXITED ? RUNTIME_FOUND_EXITED : RUNTIME_FOUND_RUNNING,
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

static void rig_restart(struct rig *r)
{
        engine_destroy(r->e);
        r->dead = false;
        r->budget = 0;
        clear(r);
        forget_removing(r);
        rig_boot(r, 0, 0);
}

static void rig_join(struct rig *r)
{
        engine_connected(r->e, r->now);
        drain(r);
        welcome(r, "c1", true);
}

static void empty_plan(struct rig *r, uint64_t seq)
{
        struct plan p;

        plan_begin(&p, 1, seq, true, true);
        say(r, &p.m);
}

static struct rig rig_new(void)
{
        struct rig r = { .now = 1000000 };

        rig_boot(&r, 0, 0);
        rig_join(&r);
        empty_plan(&r, 1);
        return r;
}

/* A unit that runs. */
static void bring_up(struct rig *r, uint64_t seq, const char *id, uint64_t token, const char *revision)
{
        change(r, seq, id, token, RUN, revision);
        runtime_says(r, RUNTIME_STARTED, id, token, -1, 0);
        assert_status(r, id, PB__ACTUAL_STATE__E__Running, PB__REASON__E__none);
        clear(r);
}

/* ---- the rules ---- */

/* R: C40 */
static void hello_tells_everything_first(void **state)
{
        struct rig r = { .now = 5 };
        Pb__Hello *h;

        (void)state;
        rig_boot(&r, 0, 0);
        assert_int_equal(r.sent.len, 0);
        engine_connected(r.e, 5);
        drain(&r);
        assert_int_equal(r.sent.len, 1);
        h = r.sent.at[0]->hello;
        assert_non_null(h);
        assert_string_equal(h->node_id, "n1");
        assert_int_equal(h->cpu, 4000);
        assert_int_equal(h->n_labels, 2);
        assert_string_equal(h->labels[0]->key, "arch");
        assert_int_equal(h->protocol, 1);
        assert_int_equal(h->n_supported_workload_types, 1);
        assert_false(engine_is_welcome(r.e));
        welcome(&r, "c1", true);
        assert_true(engine_is_welcome(r.e));
        assert_string_equal(engine_cluster_id(r.e), "c1");
        assert_int_equal(ordered(&r, ORDER_PERSIST_AGENT, NULL), 1);
        rig_fini(&r);
}

/* R: C37 */
static void another_amount_is_in_the_next_hello(void **state)
{
        struct rig r = { .now = 5 };
        struct runtime_capacity has = { .cpu = 4000, .types = { PB__WORKLOAD_TYPE__E__process, PB__WORKLOAD_TYPE__E__vm } };

        (void)state;
        rig_boot(&r, 0, 0);
        engine_connected(r.e, 5);
        drain(&r);
        has.memory_mb = r.sent.at[0]->hello->memory_mb;
        has.disk_gb = r.sent.at[0]->hello->disk_gb;
        assert_true(engine_set_capacity(r.e, &has)); /* one more type */
        assert_false(engine_set_capacity(r.e, &has));
        has.types[0] = PB__WORKLOAD_TYPE__E__vm;
        has.types[1] = PB__WORKLOAD_TYPE__E__process;
        assert_false(engine_set_capacity(r.e, &has)); /* in another order */
        has.cpu = 9000;
        assert_true(engine_set_capacity(r.e, &has));
        engine_disconnected(r.e, 6);
        drain(&r);
        engine_connected(r.e, 7);
        drain(&r);
        assert_int_equal(r.sent.at[r.sent.len - 1]->hello->cpu, 9000);
        assert_int_equal(r.sent.at[r.sent.len - 1]->hello->n_supported_workload_types, 2);
        rig_fini(&r);
}

/* R: C6 */
static void what_is_unhealthy_is_stopped_and_then_told_as_failed(void **state)
{
        struct rig r = rig_new();
        Pb__UnitStatus *s;

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        engine_health(r.e, "a", (struct unit_token){ 1, 1 }, false, "of an older copy", r.now);
        drain(&r);
        assert_int_equal(r.sent.len, 0);
        engine_health(r.e, "a", (struct unit_token){ 1, 2 }, true, NULL, r.now);
        drain(&r);
        assert_string_equal(status_of(&r, "a")->health, "healthy");
        assert_int_equal(r.log.len, 0); /* nothing is written for it */
        clear(&r);
        engine_health(r.e, "a", (struct unit_token){ 1, 2 }, false, "3 health checks in a row failed", r.now);
        drain(&r);
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        assert_string_equal(status_of(&r, "a")->health, "unhealthy");
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Running, PB__REASON__E__none); /* until it is proved gone */
        runtime_says(&r, RUNTIME_STOPPED, "a", 2, 0, 0);
        s = status_of(&r, "a");
        assert_int_equal(s->state, PB__ACTUAL_STATE__E__Failed);
        assert_int_equal(s->reason, PB__REASON__E__unhealthy);
        assert_string_equal(s->message, "3 health checks in a row failed");
        assert_int_equal(ordered(&r, ORDER_START, "a"), 0); /* the server owns restarts */
        clear(&r);
        change(&r, 3, "a", 3, RUN, "r1");
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        runtime_says(&r, RUNTIME_STARTED, "a", 3, -1, 0);
        assert_string_equal(status_of(&r, "a")->health, "");
        rig_fini(&r);
}

/* R: C6 A6 */
static void progress_of_a_start_is_told_and_nothing_is_written(void **state)
{
        struct rig r = rig_new();
        struct runtime_event ev = { .kind = RUNTIME_PROGRESS, .workload_id = "a", .token = { 1, 2 }, .message = "pulling image: 40 %" };

        (void)state;
        change(&r, 2, "a", 2, RUN, "r1");
        clear(&r);
        engine_event(r.e, &ev, r.now);
        drain(&r);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Pending, PB__REASON__E__none);
        assert_string_equal(status_of(&r, "a")->message, "pulling image: 40 %");
        assert_int_equal(r.log.len, 0);
        clear(&r);
        engine_event(r.e, &ev, r.now);
        drain(&r);
        assert_int_equal(r.sent.len, 0); /* the same again is no news */
        runtime_says(&r, RUNTIME_STARTED, "a", 2, -1, 0);
        assert_string_equal(status_of(&r, "a")->message, "");
        rig_fini(&r);
}

/* What is only Pending waits for the next heartbeat: nothing is decided on it, and a start is mostly over before. */
static void beat(struct rig *r)
{
        engine_tick(r->e, r->now += 1000);
        drain(r);
}

/* R: C7 A6 */
static void a_pending_unit_is_told_with_the_next_heartbeat_or_report(void **state)
{
        struct rig r = rig_new();

        (void)state;
        clear(&r);
        change(&r, 2, "a", 2, RUN, "r1");
        assert_int_equal(r.sent.len, 0);
        beat(&r);
        assert_int_equal(r.sent.len, 2); /* this, and the heartbeat that sums it up */
        assert_non_null(r.sent.at[1]->heartbeat);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Pending, PB__REASON__E__none);
        clear(&r);
        beat(&r);
        assert_int_equal(r.sent.len, 1); /* once */
        change(&r, 3, "b", 3, RUN, "r1");
        clear(&r);
        runtime_says(&r, RUNTIME_STARTED, "a", 2, -1, 0);
        assert_int_equal(r.sent.len, 1);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Running, PB__REASON__E__none);
        assert_status(&r, "b", PB__ACTUAL_STATE__E__Pending, PB__REASON__E__none);
        rig_fini(&r);
}

/* R: C34 A5 */
static void start_comes_after_its_record_is_durable(void **state)
{
        struct rig r = rig_new();

        (void)state;
        clear(&r);
        change(&r, 2, "a", 2, RUN, "r1");
        /* do_start asserted that the record was there */
        assert_int_equal(ordered(&r, ORDER_PERSIST_UNIT, "a"), 1);
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        assert_int_equal(r.log.at[r.log.len - 1].kind, ORDER_START);
        beat(&r);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Pending, PB__REASON__E__none);
        runtime_says(&r, RUNTIME_STARTED, "a", 2, -1, 0);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Running, PB__REASON__E__none);
        rig_fini(&r);
}

/* R: C7 C26 */
static void same_token_and_revision_change_nothing(void **state)
{
        struct rig r = rig_new();
        struct plan p;

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        change(&r, 2, "a", 2, RUN, "r1");
        plan_begin(&p, 1, 2, true, true);
        plan_add(&p, "a", 2, RUN, "r1");
        say(&r, &p.m);
        assert_int_equal(r.log.len, 0);
        assert_int_equal(r.sent.len, 0);
        rig_fini(&r);
}

/* R: C7 C34 */
static void older_plans_are_ignored(void **state)
{
        struct rig r = rig_new();
        struct plan p;

        (void)state;
        bring_up(&r, 10, "a", 10, "r1");
        change(&r, 9, "a", 11, STOP, NULL);
        plan_begin(&p, 1, 8, true, true);
        plan_add(&p, "a", 12, DEL, NULL);
        say(&r, &p.m);
        plan_begin(&p, 0, 99, true, true); /* a smaller epoch is older, whatever its cursor */
        plan_add(&p, "a", 13, DEL, NULL);
        say(&r, &p.m);
        assert_int_equal(r.log.len, 0);
        assert_int_equal(engine_plans_ignored(r.e), 3);
        plan_begin(&p, 2, 1, true, true);
        plan_add(&p, "a", 13, DEL, NULL);
        say(&r, &p.m);
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        rig_fini(&r);
}

/* R: C34 */
static void smaller_token_is_refused_and_answered(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 5, "a", 5, "r1");
        change(&r, 6, "a", 4, DEL, NULL);
        change(&r, 7, "a", 4, STOP, "r1");
        change(&r, 8, "a", 4, RUN, "r2");
        assert_int_equal(ordered(&r, ORDER_STOP, NULL) + ordered(&r, ORDER_START, NULL) + ordered(&r, ORDER_REMOVE, NULL), 0);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Running, PB__REASON__E__none);
        assert_int_equal(status_of(&r, "a")->token->seq, 5);
        rig_fini(&r);
}

/* R: C7 C34 */
static void replacement_waits_until_the_old_copy_is_proved_gone(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        change(&r, 3, "a", 3, RUN, "r2");
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        assert_int_equal(ordered(&r, ORDER_START, "a"), 0);
        assert_int_equal(r.log.at[r.log.len - 1].grace_ms, 7000);
        beat(&r);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Pending, PB__REASON__E__none);
        assert_int_equal(status_of(&r, "a")->token->seq, 3);
        runtime_says(&r, RUNTIME_STOPPED, "a", 1, -1, SIGTERM); /* somebody else's token proves nothing */
        assert_int_equal(ordered(&r, ORDER_START, "a"), 0);
        runtime_says(&r, RUNTIME_STOPPED, "a", 2, -1, SIGTERM);
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        /* the same revision with a larger token, and another revision with the same token, are replacements too */
        runtime_says(&r, RUNTIME_STARTED, "a", 3, -1, 0);
        clear(&r);
        change(&r, 4, "a", 4, RUN, "r2");
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        runtime_says(&r, RUNTIME_EXITED, "a", 3, 0, 0);
        runtime_says(&r, RUNTIME_STARTED, "a", 4, -1, 0);
        clear(&r);
        change(&r, 5, "a", 4, RUN, "r3");
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        runtime_says(&r, RUNTIME_STOPPED, "a", 4, 0, 0);
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        rig_fini(&r);
}

/* R: C7 */
static void replacement_during_a_start_stops_the_start(void **state)
{
        struct rig r = rig_new();

        (void)state;
        change(&r, 2, "a", 2, RUN, "r1");
        change(&r, 3, "a", 3, RUN, "r2");
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        runtime_says(&r, RUNTIME_STARTED, "a", 2, -1, 0);
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        runtime_says(&r, RUNTIME_START_FAILED, "a", 2, -1, 0);
        assert_int_equal(ordered(&r, ORDER_START, "a"), 2);
        rig_fini(&r);
}

/* R: C21 C28 */
static void exits_are_judged_and_never_restarted_here(void **state)
{
        static const struct {
                int code, sig;
                Pb__ActualState__E state;
                Pb__Reason__E reason;
        } cases[] = {
                { 0, 0, PB__ACTUAL_STATE__E__Stopped, PB__REASON__E__exited },
                { 3, 0, PB__ACTUAL_STATE__E__Failed, PB__REASON__E__crashed },
                { -1, SIGSEGV, PB__ACTUAL_STATE__E__Failed, PB__REASON__E__crashed },
                { -1, SIGKILL, PB__ACTUAL_STATE__E__Failed, PB__REASON__E__killed },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                struct rig r = rig_new();

                bring_up(&r, 2, "a", 2, "r1");
                runtime_says(&r, RUNTIME_EXITED, "a", 2, cases[i].code, cases[i].sig);
                assert_status(&r, "a", cases[i].state, cases[i].reason);
                if (cases[i].code >= 0)
                        assert_int_equal(status_of(&r, "a")->exit_code->value, cases[i].code);
                else
                        assert_int_equal(status_of(&r, "a")->signal->value, cases[i].sig);
                clear(&r);
                change(&r, 3, "a", 2, RUN, "r1");
                engine_tick(r.e, r.now += 60000);
                drain(&r);
                assert_int_equal(ordered(&r, ORDER_START, "a"), 0);
                change(&r, 4, "a", 4, RUN, "r1");
                assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
                beat(&r);
                assert_status(&r, "a", PB__ACTUAL_STATE__E__Pending, PB__REASON__E__none);
                rig_fini(&r);
        }
}

/* R: C25 */
static void failed_starts_are_reported_with_their_reason(void **state)
{
        struct rig r = rig_new();
        struct runtime_event ev = { .kind = RUNTIME_START_FAILED,
                                    .workload_id = "a",
                                    .token = { 1, 2 },
                                    .reason = PB__REASON__E__runtime_unavailable,
                                    .message = "runtime not available" };

        (void)state;
        change(&r, 2, "a", 2, RUN, "r1");
        copy_of(&r, "a")->phase = COPY_EXITED;
        engine_event(r.e, &ev, r.now);
        drain(&r);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Failed, PB__REASON__E__runtime_unavailable);
        assert_string_equal(status_of(&r, "a")->message, "runtime not available");
        rig_fini(&r);
}

/* R: C21 C6 */
static void stopped_keeps_the_record(void **state)
{
        struct rig r = rig_new();
        struct engine_unit_view v;

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        change(&r, 3, "a", 2, STOP, "r1");
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        runtime_says(&r, RUNTIME_STOPPED, "a", 2, -1, SIGTERM);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Stopped, PB__REASON__E__stopped_by_user);
        assert_int_equal(ordered(&r, ORDER_REMOVE, NULL) + ordered(&r, ORDER_FORGET_UNIT, NULL), 0);
        assert_non_null(file_of(&r, "a"));
        /* the same token does not bring it back, a larger one does */
        change(&r, 4, "a", 2, RUN, "r1");
        assert_int_equal(ordered(&r, ORDER_START, "a"), 0);
        change(&r, 5, "a", 5, RUN, "r1");
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        assert_true(engine_unit(r.e, "a", &v) && v.in_runtime && v.running_token.seq == 5);
        /* one that is unknown here becomes a stopped unit */
        change(&r, 6, "b", 6, STOP, "r1");
        assert_status(&r, "b", PB__ACTUAL_STATE__E__Stopped, PB__REASON__E__stopped_by_user);
        assert_int_equal(ordered(&r, ORDER_START, "b"), 0);
        rig_fini(&r);
}

/* R: C21 C24 C27 */
static void deleted_is_stopped_removed_forgotten_then_missing(void **state)
{
        struct rig r = rig_new();
        struct engine_unit_view v;

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        change(&r, 3, "a", 2, DEL, NULL);
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        assert_int_equal(ordered(&r, ORDER_REMOVE, "a"), 0);
        runtime_says(&r, RUNTIME_STOPPED, "a", 2, -1, SIGKILL);
        assert_int_equal(ordered(&r, ORDER_REMOVE, "a"), 1);
        assert_true(!status_of(&r, "a") || status_of(&r, "a")->state != PB__ACTUAL_STATE__E__Missing);
        runtime_says(&r, RUNTIME_REMOVED, "a", 0, -1, 0);
        assert_int_equal(ordered(&r, ORDER_FORGET_UNIT, "a"), 1);
        assert_null(file_of(&r, "a"));
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Missing, PB__REASON__E__deleted);
        assert_int_equal(status_of(&r, "a")->token->seq, 2);
        assert_false(engine_unit(r.e, "a", &v));
        clear(&r);
        change(&r, 4, "nobody", 3, DEL, NULL);
        assert_status(&r, "nobody", PB__ACTUAL_STATE__E__Missing, PB__REASON__E__deleted);
        assert_int_equal(status_of(&r, "nobody")->token->seq, 3);
        rig_fini(&r);
}

/* R: C24 C34 */
static void a_wish_that_comes_during_removal_waits_for_it(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        runtime_says(&r, RUNTIME_EXITED, "a", 2, 0, 0);
        change(&r, 3, "a", 2, DEL, NULL);
        assert_int_equal(ordered(&r, ORDER_REMOVE, "a"), 1);
        clear(&r);
        change(&r, 4, "a", 2, RUN, "r1"); /* not with the token that was deleted */
        assert_int_equal(ordered(&r, ORDER_START, "a"), 0);
        change(&r, 5, "a", 5, RUN, "r2");
        assert_int_equal(ordered(&r, ORDER_START, "a") + ordered(&r, ORDER_PERSIST_UNIT, "a"), 0); /* its files are going */
        runtime_says(&r, RUNTIME_REMOVED, "a", 0, -1, 0);
        assert_int_equal(ordered(&r, ORDER_FORGET_UNIT, "a"), 0);
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        rig_fini(&r);
}

/* R: C24 C34 */
static void whole_plan_removes_before_it_starts(void **state)
{
        struct rig r = rig_new();
        struct plan p;

        (void)state;
        bring_up(&r, 2, "old", 2, "r1");
        plan_begin(&p, 1, 3, true, false);
        plan_add(&p, "new", 3, RUN, "r1");
        say(&r, &p.m);
        assert_int_equal(ordered(&r, ORDER_START, NULL) + ordered(&r, ORDER_PERSIST_UNIT, NULL), 0); /* not before its last message */
        plan_begin(&p, 1, 3, false, true);
        plan_add(&p, "old", 2, DEL, NULL);
        say(&r, &p.m);
        assert_int_equal(ordered(&r, ORDER_STOP, "old"), 1);
        assert_int_equal(ordered(&r, ORDER_START, NULL), 0);
        change(&r, 4, "newer", 4, RUN, "r1"); /* nothing new at all */
        assert_int_equal(ordered(&r, ORDER_START, NULL), 0);
        runtime_says(&r, RUNTIME_STOPPED, "old", 2, 0, 0);
        assert_int_equal(ordered(&r, ORDER_START, NULL), 0);
        runtime_says(&r, RUNTIME_REMOVED, "old", 0, -1, 0);
        assert_int_equal(ordered(&r, ORDER_START, "new"), 1);
        assert_int_equal(ordered(&r, ORDER_START, "newer"), 1);
        rig_fini(&r);
}

/* R: C24 */
static void a_new_wish_for_what_a_plan_removes_does_not_block_starts_for_ever(void **state)
{
        struct rig r = rig_new();
        struct plan p;

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        plan_begin(&p, 1, 3, true, true);
        plan_add(&p, "a", 2, DEL, NULL);
        plan_add(&p, "b", 3, RUN, "r1");
        say(&r, &p.m);
        change(&r, 4, "a", 4, RUN, "r2");
        runtime_says(&r, RUNTIME_STOPPED, "a", 2, 0, 0);
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        assert_int_equal(ordered(&r, ORDER_START, "b"), 1);
        rig_fini(&r);
}

/* R: C27 A5 */
static void what_a_plan_does_not_mention_is_left_alone(void **state)
{
        struct rig r = rig_new();
        Pb__ServerMessage list = PB__SERVER_MESSAGE__INIT;
        Pb__ListUnits ask = PB__LIST_UNITS__INIT;

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        empty_plan(&r, 3);
        assert_int_equal(ordered(&r, ORDER_STOP, NULL) + ordered(&r, ORDER_REMOVE, NULL), 0);
        clear(&r);
        list.list = &ask;
        say(&r, &list);
        assert_int_equal(r.sent.len, 1);
        assert_true(r.sent.at[0]->units->complete);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Running, PB__REASON__E__none);
        rig_fini(&r);
}

/* R: A5 C33 */
static void another_cluster_executes_nothing(void **state)
{
        struct rig r = rig_new();
        struct plan p;
        const char *reason;
        int64_t retry_ms;

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        engine_connected(r.e, r.now);
        drain(&r);
        welcome(&r, "c2", true);
        clear(&r);
        plan_begin(&p, 9, 9, true, true);
        plan_add(&p, "a", 99, DEL, NULL);
        plan_add(&p, "b", 99, RUN, "r1");
        say(&r, &p.m);
        assert_int_equal(r.log.len, 0);
        assert_true(engine_wants_close(r.e, &reason, &retry_ms));
        assert_non_null(strstr(reason, "c2"));
        assert_int_equal(retry_ms, ENGINE_SLOW_RETRY_MS);
        assert_string_equal(engine_cluster_id(r.e), "c1");
        engine_disconnected(r.e, r.now);
        assert_false(engine_wants_close(r.e, &reason, &retry_ms));
        rig_join(&r);
        empty_plan(&r, 3);
        assert_true(engine_is_welcome(r.e));
        engine_connected(r.e, r.now);
        drain(&r);
        welcome(&r, "c1", false);
        assert_true(engine_wants_close(r.e, &reason, &retry_ms));
        assert_non_null(strstr(reason, "because"));
        rig_fini(&r);
}

/* R: A5 C27 */
static void a_cluster_that_takes_it_over_finds_its_units_running(void **state)
{
        struct rig r = rig_new();
        struct plan p;
        Pb__ServerMessage m = PB__SERVER_MESSAGE__INIT;
        Pb__Welcome w = PB__WELCOME__INIT;
        Pb__DescribeUnits ask = PB__DESCRIBE_UNITS__INIT;
        char *ids[] = { "a", "nobody" };
        Pb__Workload *a = NULL, *nobody = NULL;

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        engine_connected(r.e, r.now);
        drain(&r);
        clear(&r);
        w.accepted = w.adopt = true;
        w.cluster_id = "c2";
        w.epoch = 9;
        m.welcome = &w;
        say(&r, &m);
        assert_string_equal(engine_cluster_id(r.e), "c2");
        assert_int_equal(ordered(&r, ORDER_PERSIST_AGENT, NULL), 1); /* durable before anything else happens */
        assert_int_equal(ordered(&r, ORDER_STOP, NULL), 0);
        assert_true(copy_runs(&r, "a"));
        /* It says what its units were started from; of what it does not have, the name alone. */
        pb__server_message__init(&m);
        ask.workload_ids = ids;
        ask.n_workload_ids = 2;
        m.describe = &ask;
        say(&r, &m);
        for (size_t i = 0; i < r.sent.len; i++)
                for (size_t k = 0; r.sent.at[i]->definitions && k < r.sent.at[i]->definitions->n_units; k++) {
                        Pb__Workload *x = r.sent.at[i]->definitions->units[k];
                        *(str_eq(x->id, "a") ? &a : &nobody) = x;
                }
        assert_non_null(a);
        assert_non_null(nobody);
        assert_string_equal(a->revision_id, "r1");
        assert_int_equal(a->token->seq, 2);
        assert_int_equal(a->desired_state, RUN);
        assert_true(a->type && !nobody->type);
        /* The new cluster's plan, however small its sequences, counts; the same token and revision change nothing. */
        clear(&r);
        plan_begin(&p, 9, 1, true, true);
        plan_add(&p, "a", 2, RUN, "r1");
        say(&r, &p.m);
        assert_int_equal(ordered(&r, ORDER_STOP, NULL) + ordered(&r, ORDER_START, NULL), 0);
        assert_int_equal(engine_cursor(r.e).epoch, 9);
        assert_true(copy_runs(&r, "a"));
        rig_fini(&r);
}

/* R: C35 C10 */
static void exits_while_the_server_is_away_are_in_the_next_hello(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        engine_disconnected(r.e, r.now);
        runtime_says(&r, RUNTIME_EXITED, "a", 2, 4, 0);
        assert_int_equal(r.sent.len, 0);
        engine_connected(r.e, r.now);
        drain(&r);
        assert_int_equal(r.sent.len, 1);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Failed, PB__REASON__E__crashed);
        assert_int_equal(r.sent.at[0]->hello->applied->seq, 2);
        /* what changes before the Welcome is not lost either */
        clear(&r);
        change(&r, 3, "a", 3, RUN, "r1"); /* no Welcome yet: ignored */
        assert_int_equal(r.log.len, 0);
        welcome(&r, "c1", true);
        rig_fini(&r);
}

/* R: C9 */
static void heartbeats_come_as_told(void **state)
{
        struct rig r = rig_new();
        Pb__ServerMessage ack = PB__SERVER_MESSAGE__INIT;
        Pb__HeartbeatAck next = PB__HEARTBEAT_ACK__INIT;
        struct runtime_usage usage = { .cpu_used = 250, .memory_used_mb = 64, .disk_used_gb = 3 };
        Pb__Heartbeat *h;

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        assert_int_equal(engine_next_ms(r.e), r.now + 1000);
        engine_tick(r.e, r.now + 999);
        drain(&r);
        assert_int_equal(r.sent.len, 0);
        engine_set_usage(r.e, &usage);
        engine_tick(r.e, r.now += 1000);
        drain(&r);
        assert_int_equal(r.sent.len, 1);
        h = r.sent.at[0]->heartbeat;
        assert_int_equal(h->usage->cpu_used, 250);
        assert_int_equal(h->units_count, 1);
        assert_int_equal(h->units_hash, units_hash_add(0, "a", 1, 2, PB__ACTUAL_STATE__E__Running));
        assert_int_equal(h->applied->seq, 2);
        assert_int_equal(engine_next_ms(r.e), r.now + 1000);
        next.next_ms = 5000;
        ack.heartbeat = &next;
        say(&r, &ack);
        assert_int_equal(engine_next_ms(r.e), r.now + 5000);
        engine_disconnected(r.e, r.now);
        clear(&r);
        engine_tick(r.e, r.now + 100000);
        drain(&r);
        assert_int_equal(r.sent.len, 0);
        rig_fini(&r);
}

/* R: A6 */
static void nothing_to_do_writes_nothing(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        for (int i = 0; i < 100; i++) {
                engine_tick(r.e, r.now += 1000);
                drain(&r);
        }
        assert_int_equal(r.log.len, 0);
        rig_fini(&r);
}

/* R: A9 */
static void units_are_bounded_and_bad_plans_refused(void **state)
{
        struct rig r = { .now = 1 };

        (void)state;
        rig_boot(&r, 2, 0);
        rig_join(&r);
        empty_plan(&r, 1);
        change(&r, 2, "a", 2, RUN, "r1");
        change(&r, 3, "b", 3, RUN, "r1");
        change(&r, 4, "c", 4, RUN, "r1");
        assert_status(&r, "c", PB__ACTUAL_STATE__E__Failed, PB__REASON__E__start_failed);
        assert_int_equal(engine_unit_count(r.e), 2);
        change(&r, 5, "../etc", 5, RUN, "r1");
        assert_status(&r, "../etc", PB__ACTUAL_STATE__E__Failed, PB__REASON__E__start_failed);
        change(&r, 6, "d", 6, RUN, NULL);
        assert_status(&r, "d", PB__ACTUAL_STATE__E__Failed, PB__REASON__E__start_failed);
        change(&r, 7, "a", 7, PB__DESIRED_STATE__E__unset, "r1");
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Failed, PB__REASON__E__start_failed);
        assert_int_equal(engine_unit_count(r.e), 2);
        assert_int_equal(ordered(&r, ORDER_STOP, NULL), 0);
        rig_fini(&r);
}

/* R: A11 */
static void starts_in_flight_are_bounded(void **state)
{
        struct rig r = { .now = 1 };
        char id[8];

        (void)state;
        rig_boot(&r, 0, 3);
        rig_join(&r);
        empty_plan(&r, 1);
        for (int i = 0; i < 10; i++) {
                snprintf(id, sizeof(id), "u%d", i);
                change(&r, (uint64_t)i + 2, id, (uint64_t)i + 2, RUN, "r1");
        }
        assert_int_equal(ordered(&r, ORDER_START, NULL), 3);
        runtime_says(&r, RUNTIME_STARTED, "u0", 2, -1, 0);
        assert_int_equal(ordered(&r, ORDER_START, "u3"), 1);
        runtime_says(&r, RUNTIME_START_FAILED, "u1", 3, -1, 0);
        assert_int_equal(ordered(&r, ORDER_START, NULL), 5);
        rig_fini(&r);
}

/* R: A5 */
static void restart_adopts_what_runs(void **state)
{
        struct rig r = rig_new();
        struct plan p;

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        bring_up(&r, 3, "b", 3, "r1");
        runtime_says(&r, RUNTIME_EXITED, "b", 3, 0, 0);
        rig_restart(&r);
        engine_connected(r.e, r.now);
        drain(&r);
        assert_int_equal(r.sent.at[0]->hello->n_units, 2);
        assert_string_equal(r.sent.at[0]->hello->cluster_id, "c1");
        assert_int_equal(r.sent.at[0]->hello->applied->seq, 3);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Running, PB__REASON__E__adopted);
        assert_status(&r, "b", PB__ACTUAL_STATE__E__Stopped, PB__REASON__E__exited);
        welcome(&r, "c1", true);
        clear(&r);
        plan_begin(&p, 1, 3, true, true);
        plan_add(&p, "a", 2, RUN, "r1");
        plan_add(&p, "b", 3, RUN, "r1");
        say(&r, &p.m);
        assert_int_equal(r.log.len, 0);
        rig_fini(&r);
}

/* R: A5 C34 */
static void a_start_that_left_no_trace_is_made_up_for_when_a_plan_confirms_it(void **state)
{
        struct rig r = rig_new();

        (void)state;
        r.budget = 3; /* PERSIST unit, PERSIST agent, and dead before START */
        change(&r, 2, "a", 2, RUN, "r1");
        assert_true(r.dead);
        assert_non_null(file_of(&r, "a"));
        assert_null(copy_of(&r, "a"));
        rig_restart(&r);
        rig_join(&r);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Pending, PB__REASON__E__none);
        assert_int_equal(ordered(&r, ORDER_START, NULL), 0); /* nothing before the plan's word */
        change(&r, 2, "a", 2, RUN, "r1");
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        /* once it did start, the same token never starts it again, over any number of restarts */
        runtime_says(&r, RUNTIME_STARTED, "a", 2, -1, 0);
        runtime_says(&r, RUNTIME_EXITED, "a", 2, 1, 0);
        rig_restart(&r);
        rig_join(&r);
        change(&r, 3, "a", 2, RUN, "r1");
        assert_int_equal(ordered(&r, ORDER_START, "a"), 0);
        rig_fini(&r);
}

/* R: A5 */
static void removals_and_stops_go_on_after_a_restart(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        bring_up(&r, 3, "b", 3, "r1");
        change(&r, 4, "a", 2, DEL, NULL);
        change(&r, 5, "b", 3, STOP, "r1");
        rig_restart(&r);
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        assert_int_equal(ordered(&r, ORDER_STOP, "b"), 1);
        runtime_says(&r, RUNTIME_STOPPED, "a", 2, 0, 0);
        runtime_says(&r, RUNTIME_REMOVED, "a", 0, -1, 0);
        assert_null(file_of(&r, "a"));
        rig_fini(&r);
}

/* R: A5 C34 */
static void a_replacement_half_done_at_a_restart_waits_for_the_plan(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        change(&r, 3, "a", 3, RUN, "r2");
        rig_restart(&r);
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 0); /* the old one runs on until somebody wants the new one */
        rig_join(&r);
        change(&r, 3, "a", 3, RUN, "r2");
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        runtime_says(&r, RUNTIME_STOPPED, "a", 2, 0, 0);
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        rig_fini(&r);
}

/* R: C27 */
static void a_copy_without_a_record_is_reported(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        do_forget(&r, "a");
        rig_restart(&r);
        rig_join(&r);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Running, PB__REASON__E__adopted);
        assert_int_equal(status_of(&r, "a")->token->seq, 2);
        empty_plan(&r, 3);
        assert_int_equal(ordered(&r, ORDER_STOP, NULL), 0);
        change(&r, 4, "a", 2, RUN, "r1"); /* the plan brings its definition back */
        assert_int_equal(ordered(&r, ORDER_STOP, NULL) + ordered(&r, ORDER_START, NULL), 0);
        assert_non_null(file_of(&r, "a"));
        rig_fini(&r);
}

/* It ended before any plan brought its definition back: how it ended is known after a restart all the same. Else it would be Pending for ever, since it was launched once.  R: C27 C26 */
static void a_copy_without_a_record_that_ended_is_not_pending_after_a_restart(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        do_forget(&r, "a");
        rig_restart(&r);
        runtime_says(&r, RUNTIME_EXITED, "a", 2, 1, 0);
        rig_restart(&r);
        rig_join(&r);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Failed, PB__REASON__E__crashed);
        change(&r, 3, "a", 2, RUN, "r1");
        assert_int_equal(ordered(&r, ORDER_START, NULL), 0);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Failed, PB__REASON__E__crashed);
        rig_fini(&r);
}

/* R: A5 */
static void a_machine_that_restarted_reports_its_units_stopped(void **state)
{
        struct rig r = rig_new();
        struct runtime_event gone = {
                .kind = RUNTIME_FOUND_GONE, .workload_id = "a", .token = { 1, 2 }, .revision_id = "r1", .message = "reboot"
        };

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        engine_destroy(r.e);
        r.e = new_engine(0, 0);
        for (size_t i = 0; i < r.files.len; i++)
                if (r.files.at[i].id[0])
                        engine_load_unit(r.e, r.files.at[i].data, r.files.at[i].len, NULL);
        engine_event(r.e, &gone, r.now);
        engine_booted(r.e, r.now);
        rig_join(&r);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Stopped, PB__REASON__E__killed);
        change(&r, 3, "a", 2, RUN, "r1");
        assert_int_equal(ordered(&r, ORDER_START, NULL), 0);
        rig_fini(&r);
}

/* R: A12 A5 */
static void suspended_units_come_back_with_the_same_token(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        bring_up(&r, 3, "b", 3, "r1");
        runtime_says(&r, RUNTIME_EXITED, "b", 3, 0, 0);
        clear(&r);
        engine_suspend(r.e, r.now);
        drain(&r);
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        assert_int_equal(ordered(&r, ORDER_STOP, "b"), 0);
        assert_int_equal(r.log.at[0].kind, ORDER_PERSIST_UNIT); /* remembered before it is stopped */
        assert_false(engine_is_idle(r.e));
        runtime_says(&r, RUNTIME_STOPPED, "a", 2, -1, SIGTERM);
        assert_true(engine_is_idle(r.e));
        assert_int_equal(r.sent.len, 0); /* not a failure, so nobody is told */
        rig_restart(&r);
        rig_join(&r);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Pending, PB__REASON__E__none);
        assert_int_equal(ordered(&r, ORDER_START, NULL), 0);
        change(&r, 3, "a", 2, RUN, "r1");
        change(&r, 3, "b", 3, RUN, "r1");
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        assert_int_equal(ordered(&r, ORDER_START, "b"), 0);
        rig_fini(&r);
}

/* R: C35 */
static void a_full_disk_fails_the_start_and_nothing_else(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        r.disk_full = true;
        change(&r, 3, "b", 3, RUN, "r1");
        assert_status(&r, "b", PB__ACTUAL_STATE__E__Failed, PB__REASON__E__start_failed);
        assert_null(copy_of(&r, "b"));
        change(&r, 4, "a", 2, STOP, "r1");
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 1);
        r.disk_full = false;
        engine_tick(r.e, r.now += 10000); /* what could not be written is written later */
        drain(&r);
        assert_non_null(file_of(&r, "b"));
        change(&r, 5, "b", 5, RUN, "r1");
        assert_true(copy_runs(&r, "b"));
        rig_fini(&r);
}

/* R: C34 */
static void waiting_starts_are_held_when_the_server_stays_away(void **state)
{
        struct rig r = rig_new();
        struct plan p;

        (void)state;
        bring_up(&r, 2, "old", 2, "r1");
        plan_begin(&p, 1, 3, true, true);
        plan_add(&p, "old", 2, DEL, NULL);
        plan_add(&p, "new", 3, RUN, "r1");
        say(&r, &p.m);
        engine_disconnected(r.e, r.now);
        assert_int_equal(engine_next_ms(r.e), r.now + ENGINE_AWAY_MS);
        engine_tick(r.e, r.now += ENGINE_AWAY_MS);
        drain(&r);
        runtime_says(&r, RUNTIME_STOPPED, "old", 2, 0, 0);
        runtime_says(&r, RUNTIME_REMOVED, "old", 0, -1, 0);
        assert_int_equal(ordered(&r, ORDER_START, NULL), 0);
        rig_join(&r);
        plan_begin(&p, 1, 3, true, true);
        plan_add(&p, "new", 3, RUN, "r1");
        say(&r, &p.m);
        assert_int_equal(ordered(&r, ORDER_START, "new"), 1);
        rig_fini(&r);
}

/* R: C34 C24 */
static void a_new_stream_asks_its_own_plan_before_it_starts_anything(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        change(&r, 3, "a", 3, RUN, "r2"); /* being replaced when the stream breaks */
        engine_disconnected(r.e, r.now);
        engine_tick(r.e, r.now += ENGINE_AWAY_MS);
        drain(&r);
        rig_join(&r);
        runtime_says(&r, RUNTIME_STOPPED, "a", 2, 0, 0);
        empty_plan(&r, 4); /* the server has moved it away meanwhile */
        assert_int_equal(ordered(&r, ORDER_START, NULL), 0);
        assert_status(&r, "a", PB__ACTUAL_STATE__E__Pending, PB__REASON__E__none);
        change(&r, 5, "a", 3, RUN, "r2");
        assert_int_equal(ordered(&r, ORDER_START, "a"), 1);
        rig_fini(&r);
}

/* R: C26 */
static void a_stop_without_an_answer_is_ordered_again(void **state)
{
        struct rig r = rig_new();

        (void)state;
        bring_up(&r, 2, "a", 2, "r1");
        change(&r, 3, "a", 2, STOP, "r1");
        engine_disconnected(r.e, r.now);
        assert_int_equal(engine_next_ms(r.e), r.now + 7000 + ENGINE_STOP_AGAIN_MS);
        engine_tick(r.e, r.now += 7000 + ENGINE_STOP_AGAIN_MS);
        drain(&r);
        assert_int_equal(ordered(&r, ORDER_STOP, "a"), 2);
        rig_fini(&r);
}

/* ---- the random run ---- */

/* ---- the lease (rule 12) ---- */

static void plan_exclusive(struct rig *r, uint64_t seq, const char *id, uint64_t token, Pb__DesiredState__E desired, Pb__Exclusive__E how)
{
        struct plan p;

        plan_begin(&p, 1, seq, false, false);
        plan_add(&p, id, token, desired, "r1");
        p.workloads[0].exclusive = how;
        say(r, &p.m);
}

/* The server's answer to a heartbeat of this age. */
static void renew(struct rig *r, int64_t clock_ms, int64_t lease_ms)
{
        Pb__ServerMessage m = PB__SERVER_MESSAGE__INIT;
        Pb__HeartbeatAck ack = PB__HEARTBEAT_ACK__INIT;

        ack.next_ms = 1000;
        ack.clock_ms = clock_ms;
        ack.lease_ms = lease_ms;
        ack.stop_ms = 2000;
        m.heartbeat = &ack;
        say(r, &m);
}

static void tick_at(struct rig *r, int64_t now)
{
        r->now = now;
        engine_tick(r->e, now);
        drain(r);
}

static int64_t last_beat_clock(const struct rig *r)
{
        for (size_t i = r->sent.len; i-- > 0;)
                if (r->sent.at[i]->heartbeat)
                        return r->sent.at[i]->heartbeat->clock_ms;
        return 0;
}

/* R: C34 */
static void an_exclusive_unit_starts_only_under_a_lease(void **state)
{
        struct rig r = rig_new();

        (void)state;
        clear(&r);
        plan_exclusive(&r, 2, "w", 2, RUN, PB__EXCLUSIVE__E__movable);
        assert_int_equal(ordered(&r, ORDER_START, "w"), 0);
        assert_int_equal(last_beat_clock(&r), r.now); /* it asks for one at once */
        renew(&r, r.now, 0);                          /* not by somebody who may not lead */
        renew(&r, r.now - 40000, 30000);              /* nor by an answer that comes too late */
        renew(&r, r.now + 1, 30000);                  /* nor to a heartbeat that was never sent */
        assert_int_equal(ordered(&r, ORDER_START, "w"), 0);
        renew(&r, r.now, 30000);
        assert_int_equal(ordered(&r, ORDER_LEASE, NULL), 1);
        assert_int_equal(ordered(&r, ORDER_START, "w"), 1);
        size_t lease = 0, start = 0;
        for (size_t i = 0; i < r.log.len; i++)
                *(r.log.at[i].kind == ORDER_LEASE ? &lease : r.log.at[i].kind == ORDER_START ? &start : &(size_t){ 0 }) = i;
        assert_true(lease < start); /* whoever watches over it finds the lease written down */
        rig_fini(&r);
}

/* R: C34 */
static void a_lease_counts_from_the_heartbeat_and_ends_by_itself(void **state)
{
        struct rig r = rig_new();
        int64_t sent = r.now;

        (void)state;
        renew(&r, sent, 30000);
        plan_exclusive(&r, 2, "w", 2, RUN, PB__EXCLUSIVE__E__movable);
        runtime_says(&r, RUNTIME_STARTED, "w", 2, -1, 0);
        plan_exclusive(&r, 3, "pinned", 3, RUN, PB__EXCLUSIVE__E__pinned);
        runtime_says(&r, RUNTIME_STARTED, "pinned", 3, -1, 0);
        change(&r, 4, "plain", 4, RUN, "r1");
        runtime_says(&r, RUNTIME_STARTED, "plain", 4, -1, 0);
        tick_at(&r, sent + 20000);
        renew(&r, sent + 10000, 30000); /* this answer took ten seconds */
        engine_disconnected(r.e, r.now);
        clear(&r);
        tick_at(&r, sent + 39999);
        assert_int_equal(ordered(&r, ORDER_STOP, NULL), 0);
        assert_int_equal(engine_next_ms(r.e), sent + 40000);
        tick_at(&r, sent + 40000);
        assert_int_equal(ordered(&r, ORDER_STOP, "w"), 1);
        assert_int_equal(ordered(&r, ORDER_STOP, NULL), 1); /* neither the pinned one nor the others */
        for (size_t i = 0; i < r.log.len; i++)
                if (r.log.at[i].kind == ORDER_STOP)
                        assert_int_equal(r.log.at[i].grace_ms, 2000); /* not the seven seconds that it asked for */
        runtime_says(&r, RUNTIME_STOPPED, "w", 2, -1, SIGTERM);
        clear(&r);
        rig_join(&r);
        assert_status(&r, "w", PB__ACTUAL_STATE__E__Stopped, PB__REASON__E__lease_expired);
        plan_exclusive(&r, 5, "w", 2, RUN, PB__EXCLUSIVE__E__movable);
        renew(&r, r.now, 30000);
        assert_int_equal(ordered(&r, ORDER_START, "w"), 0); /* the same token never starts twice */
        plan_exclusive(&r, 6, "w", 6, RUN, PB__EXCLUSIVE__E__movable);
        assert_int_equal(ordered(&r, ORDER_START, "w"), 1);
        rig_fini(&r);
}

/* R: C34 */
static void the_steady_clock_decides_and_no_other(void **state)
{
        struct rig r = rig_new();

        (void)state;
        engine_set_steady(r.e, r.now, 5000);
        renew(&r, 5000, 30000);
        plan_exclusive(&r, 2, "w", 2, RUN, PB__EXCLUSIVE__E__movable);
        runtime_says(&r, RUNTIME_STARTED, "w", 2, -1, 0);
        clear(&r);
        r.now += 60000; /* the other clock was put forward, or catches up */
        engine_set_steady(r.e, r.now, 6000);
        tick_at(&r, r.now);
        assert_int_equal(ordered(&r, ORDER_STOP, "w"), 0);
        r.now += 1; /* the machine was suspended: this one stood still */
        engine_set_steady(r.e, r.now, 35000);
        tick_at(&r, r.now);
        assert_int_equal(ordered(&r, ORDER_STOP, "w"), 1);
        runtime_says(&r, RUNTIME_STOPPED, "w", 2, -1, SIGTERM);
        rig_fini(&r);
}

/* An agent that is started again goes on within its lease, and stops what it finds beyond it. R: C34 A5 */
static void a_restarted_agent_has_the_lease_that_was_written_down(void **state)
{
        (void)state;
        for (int within = 0; within < 2; within++) {
                struct rig r = rig_new();

                renew(&r, r.now, 30000);
                plan_exclusive(&r, 2, "w", 2, RUN, PB__EXCLUSIVE__E__movable);
                runtime_says(&r, RUNTIME_STARTED, "w", 2, -1, 0);
                int64_t until = 0, kill = 0;
                for (size_t i = 0; i < r.log.len; i++)
                        if (r.log.at[i].kind == ORDER_LEASE)
                                until = r.log.at[i].until_ms, kill = r.log.at[i].kill_ms;
                assert_int_equal(until, r.now + 30000);
                assert_int_equal(kill, r.now + 32000);
                r.now += within ? 10000 : 40000;
                r.lease_until = until;
                r.lease_kill = kill;
                rig_restart(&r);
                assert_int_equal(ordered(&r, ORDER_STOP, "w"), !within);
                if (within)
                        tick_at(&r, until);
                assert_int_equal(ordered(&r, ORDER_STOP, "w"), 1);
                rig_fini(&r);
        }
}

/* R: C34 */
static void what_is_being_stopped_slowly_is_stopped_in_time(void **state)
{
        struct rig r = rig_new();

        (void)state;
        renew(&r, r.now, 30000);
        plan_exclusive(&r, 2, "w", 2, RUN, PB__EXCLUSIVE__E__movable);
        runtime_says(&r, RUNTIME_STARTED, "w", 2, -1, 0);
        tick_at(&r, r.now + 29000);
        plan_exclusive(&r, 3, "w", 2, STOP, PB__EXCLUSIVE__E__movable); /* with a grace of seven seconds */
        clear(&r);
        tick_at(&r, r.now + 1000);
        assert_int_equal(ordered(&r, ORDER_STOP, "w"), 1); /* again, and shorter */
        assert_int_equal(r.log.at[r.log.len - 1].grace_ms, 2000);
        rig_fini(&r);
}

#define IDS 6
struct oracle {
        uint64_t seq;
        uint64_t token[IDS]; /* what the server wants last; 0: nothing was ever said */
        int rev[IDS];
        Pb__DesiredState__E desired[IDS];
        uint64_t started[IDS]; /* the largest token ever started */
};
static const char *const ids[IDS] = { "u0", "u1", "u2", "u3", "u4", "u5" };
static const char *const revs[] = { "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9" };

/* Looks at the orders that were just carried out. */
static void check_starts(struct rig *r, struct oracle *o, bool gated)
{
        for (size_t i = 0; i < r->log.len; i++) {
                const struct engine_order *x = &r->log.at[i];
                size_t k;

                if (x->kind != ORDER_START)
                        continue;
                assert_false(gated);
                for (k = 0; !str_eq(ids[k], x->workload_id); k++)
                        ;
                assert_true(x->token.seq >= o->started[k]); /* tokens never go back */
                o->started[k] = x->token.seq;
        }
        clear(r);
}

static bool removal_unproved(struct rig *r, const bool *gates)
{
        for (size_t k = 0; k < IDS; k++)
                if (gates[k] && (copy_runs(r, ids[k])))
                        return true;
        return false;
}

static void whole_plan(struct rig *r, struct oracle *o, bool *gates)
{
        struct plan p;

        plan_begin(&p, 1, o->seq, true, true);
        for (size_t k = 0; k < IDS; k++)
                if (o->token[k]) {
                        plan_add(&p, ids[k], o->token[k], o->desired[k], o->desired[k] == DEL ? NULL : revs[o->rev[k]]);
                        if (gates && o->desired[k] == DEL && copy_runs(r, ids[k]))
                                gates[k] = true;
                }
        say(r, &p.m);
}

static void random_runtime_step(struct rig *r, struct rng *rng)
{
        size_t k = (size_t)rng_below(rng, IDS);
        struct copy *c = copy_of(r, ids[k]);

        if (c && c->phase == COPY_STARTING)
                runtime_says(r, rng_chance(rng, 200000) ? RUNTIME_START_FAILED : RUNTIME_STARTED, ids[k], c->token.seq, -1, 0);
        else if (c && c->phase == COPY_UP && rng_chance(rng, 200000))
                runtime_says(r, RUNTIME_EXITED, ids[k], c->token.seq, (int)rng_below(rng, 3), 0);
        else if (c && c->phase == COPY_STOPPING)
                runtime_says(r, RUNTIME_STOPPED, ids[k], c->token.seq, -1, SIGTERM);
        else if (was_removing(r, ids[k]))
                runtime_says(r, RUNTIME_REMOVED, ids[k], 0, -1, 0);
}

static void random_wish(struct rig *r, struct oracle *o, struct rng *rng)
{
        size_t k = (size_t)rng_below(rng, IDS);
        uint64_t dice = rng_below(rng, 10);

        o->seq++;
        if (!o->token[k] || dice < 4) {
                o->token[k] = o->seq;
                o->desired[k] = RUN;
                o->rev[k] = (int)rng_below(rng, 10);
        } else if (dice < 6 && o->desired[k] != DEL)
                o->desired[k] = STOP;
        else if (dice < 8)
                o->desired[k] = DEL;
        change(r, o->seq, ids[k], o->token[k], o->desired[k], o->desired[k] == DEL ? NULL : revs[o->rev[k]]);
        if (rng_chance(rng, 100000)) /* said twice */
                change(r, o->seq, ids[k], o->token[k], o->desired[k], o->desired[k] == DEL ? NULL : revs[o->rev[k]]);
        if (rng_chance(rng, 100000) && o->seq > 3) /* from the past */
                change(r, o->seq - 2, ids[k], o->token[k] + 100, DEL, NULL);
}

static void bring_to_rest(struct rig *r, struct oracle *o, struct rng *rng)
{
        struct engine_unit_view v;

        if (r->dead)
                rig_restart(r);
        r->budget = 0;
        rig_join(r);
        for (size_t k = 0; k < IDS; k++)
                if (o->token[k] && o->desired[k] == RUN)
                        o->token[k] = ++o->seq; /* the server restarts what ended, with new tokens */
        whole_plan(r, o, NULL);
        for (int i = 0; i < 2000; i++) {
                struct copy *c = copy_of(r, ids[i % IDS]);

                if (!c || c->phase != COPY_UP)
                        random_runtime_step(r, rng);
                else if (engine_unit(r->e, ids[i % IDS], &v) && v.token.seq != c->token.seq && c->phase == COPY_STOPPING)
                        runtime_says(r, RUNTIME_STOPPED, ids[i % IDS], c->token.seq, -1, SIGTERM);
        }
        for (size_t k = 0; k < IDS; k++) {
                bool known = engine_unit(r->e, ids[k], &v);

                if (!o->token[k] || o->desired[k] == DEL)
                        assert_false(known);
                else if (o->desired[k] == STOP)
                        assert_true(known && !v.in_runtime);
                else /* it was started with this token, and runs or has ended */
                        assert_true(known && v.token.seq == o->token[k] && v.state != PB__ACTUAL_STATE__E__Pending);
        }
}

/* R: A5 C7 C24 C34 */
static void random_life_never_breaks_a_rule(void **state)
{
        (void)state;
        for (uint64_t seed = 1; seed <= 300; seed++) {
                struct rig r = rig_new();
                struct oracle o = { .seq = 10 };
                struct rng rng;
                bool gates[IDS] = { 0 };

                rng_seed(&rng, seed);
                clear(&r);
                for (int step = 0; step < 200; step++) {
                        uint64_t dice = rng_below(&rng, 100);
                        bool gated;

                        r.now += (int64_t)rng_below(&rng, 3000);
                        if (rng_chance(&rng, 20000))
                                r.budget = 1 + (size_t)rng_below(&rng, 4); /* killed after a few more orders */
                        if (dice < 30)
                                random_wish(&r, &o, &rng);
                        else if (dice < 80)
                                random_runtime_step(&r, &rng);
                        else if (dice < 85) {
                                engine_disconnected(r.e, r.now);
                                drain(&r);
                        } else if (dice < 92) {
                                rig_join(&r);
                                whole_plan(&r, &o, gates);
                        } else if (dice < 98) {
                                engine_tick(r.e, r.now);
                                drain(&r);
                        } else
                                r.dead = true;
                        gated = !r.dead && removal_unproved(&r, gates);
                        check_starts(&r, &o, gated);
                        for (size_t k = 0; k < IDS; k++)
                                gates[k] = gates[k] && copy_runs(&r, ids[k]) && o.desired[k] == DEL;
                        if (r.dead) {
                                memset(gates, 0, sizeof(gates));
                                rig_restart(&r);
                                check_starts(&r, &o, false);
                        }
                }
                bring_to_rest(&r, &o, &rng);
                rig_fini(&r);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(hello_tells_everything_first),
                cmocka_unit_test(another_amount_is_in_the_next_hello),
                cmocka_unit_test(a_pending_unit_is_told_with_the_next_heartbeat_or_report),
                cmocka_unit_test(start_comes_after_its_record_is_durable),
                cmocka_unit_test(same_token_and_revision_change_nothing),
                cmocka_unit_test(older_plans_are_ignored),
                cmocka_unit_test(smaller_token_is_refused_and_answered),
                cmocka_unit_test(replacement_waits_until_the_old_copy_is_proved_gone),
                cmocka_unit_test(replacement_during_a_start_stops_the_start),
                cmocka_unit_test(exits_are_judged_and_never_restarted_here),
                cmocka_unit_test(failed_starts_are_reported_with_their_reason),
                cmocka_unit_test(stopped_keeps_the_record),
                cmocka_unit_test(deleted_is_stopped_removed_forgotten_then_missing),
                cmocka_unit_test(a_wish_that_comes_during_removal_waits_for_it),
                cmocka_unit_test(whole_plan_removes_before_it_starts),
                cmocka_unit_test(a_new_wish_for_what_a_plan_removes_does_not_block_starts_for_ever),
                cmocka_unit_test(what_a_plan_does_not_mention_is_left_alone),
                cmocka_unit_test(another_cluster_executes_nothing),
                cmocka_unit_test(a_cluster_that_takes_it_over_finds_its_units_running),
                cmocka_unit_test(exits_while_the_server_is_away_are_in_the_next_hello),
                cmocka_unit_test(heartbeats_come_as_told),
                cmocka_unit_test(nothing_to_do_writes_nothing),
                cmocka_unit_test(units_are_bounded_and_bad_plans_refused),
                cmocka_unit_test(starts_in_flight_are_bounded),
                cmocka_unit_test(restart_adopts_what_runs),
                cmocka_unit_test(a_start_that_left_no_trace_is_made_up_for_when_a_plan_confirms_it),
                cmocka_unit_test(removals_and_stops_go_on_after_a_restart),
                cmocka_unit_test(a_replacement_half_done_at_a_restart_waits_for_the_plan),
                cmocka_unit_test(a_copy_without_a_record_is_reported),
                cmocka_unit_test(a_copy_without_a_record_that_ended_is_not_pending_after_a_restart),
                cmocka_unit_test(a_machine_that_restarted_reports_its_units_stopped),
                cmocka_unit_test(suspended_units_come_back_with_the_same_token),
                cmocka_unit_test(a_full_disk_fails_the_start_and_nothing_else),
                cmocka_unit_test(waiting_starts_are_held_when_the_server_stays_away),
                cmocka_unit_test(a_new_stream_asks_its_own_plan_before_it_starts_anything),
                cmocka_unit_test(a_stop_without_an_answer_is_ordered_again),
                cmocka_unit_test(what_is_unhealthy_is_stopped_and_then_told_as_failed),
                cmocka_unit_test(progress_of_a_start_is_told_and_nothing_is_written),
                cmocka_unit_test(an_exclusive_unit_starts_only_under_a_lease),
                cmocka_unit_test(a_lease_counts_from_the_heartbeat_and_ends_by_itself),
                cmocka_unit_test(the_steady_clock_decides_and_no_other),
                cmocka_unit_test(a_restarted_agent_has_the_lease_that_was_written_down),
                cmocka_unit_test(what_is_being_stopped_slowly_is_stopped_in_time),
                cmocka_unit_test(random_life_never_breaks_a_rule),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
