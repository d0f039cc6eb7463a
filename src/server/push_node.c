/* server/push_node.c: what one node that is called shall run, and what is found there. See
 * push_node.h; the calls themselves are in push_calls.c. */
#include "server/push_node.h"

#include "base/log.h"
#include "base/mem.h"
#include "model/pb.h"
#include "model/validate.h"
#include "server/push_calls.h"
#include "server/push_spec.h"
#include "server/push_status.h"
#include "server/reach.h"
#include <event2/event.h>
#include <string.h>

#define LOOK_FIRST_MS 250
#define LOOK_MAX_MS 15000
/* what the agent has taken is given this long to show before it is sent again */
#define TASK_MS 10000
#define PENDING_MS 120000 /* and this long while it says that it is at work on it */
#define APPLY_TRIES 5
/* units in a report that the ring has not taken; beyond, nothing more is asked (C5) */
#define REPORT_MAX 8192

static struct map_key unit_key(const void *ctx, uint32_t i)
{
        const struct push_node *n = ctx;
        return (struct map_key){ n->units.at[i]->id, strlen(n->units.at[i]->id) };
}

struct push_node *push_node_create(struct io *io, const char *id)
{
        struct push_node *n = mem_must(sizeof(*n));
        n->io = io;
        n->id = mem_strdup(id);
        n->timer = evtimer_new(io->base, push_on_timer, n);
        map_init(&n->by_id, unit_key, n);
        return n;
}

static struct push_unit *find(const struct push_node *n, const char *id)
{
        uint32_t ix = map_get(&n->by_id, id, strlen(id));
        return ix == MAP_NONE ? NULL : n->units.at[ix];
}

static struct push_unit *unit_add(struct push_node *n, const char *id)
{
        struct push_unit *u = mem_must(sizeof(*u));
        if (n->free.len > 0) {
                u->ix = array_pop(&n->free);
        } else {
                u->ix = (uint32_t)n->units.len;
                *array_push(&n->units) = NULL;
        }
        u->id = mem_strdup(id);
        u->revision = mem_strdup("");
        n->units.at[u->ix] = u;
        map_put(&n->by_id, u->ix);
        return u;
}

static void unit_free(struct push_node *n, struct push_unit *u)
{
        if (u->call)
                push_call_detach(u->call);
        heap_unset(&n->due, u->ix);
        map_remove(&n->by_id, u->ix);
        n->units.at[u->ix] = NULL;
        *array_push(&n->free) = u->ix;
        mem_free(u->id);
        mem_free(u->revision);
        mem_free(u->request);
        mem_free(u);
}

void push_forget_gone(struct push_node *n)
{
        for (size_t i = 0; i < n->gone.len; i++)
                mem_free(n->gone.at[i]);
        array_clear(&n->gone);
}

static void drop_report(struct push_node *n)
{
        ring_msg_free(n->report);
        n->report = NULL;
        array_clear(&n->report_units);
}

void push_node_end(struct push_node *n)
{
        for (size_t i = 0; i < n->units.len; i++)
                if (n->units.at[i])
                        unit_free(n, n->units.at[i]);
        drop_report(n);
        push_forget_gone(n);
        evtimer_del(n->timer);
        n->session = 0;
        n->whole = n->syncing = n->list_due = n->listing = n->probing = n->down = n->heard =
            false; /* a list that is still under way knows by its session that it is late */
        n->told = REACH_UNTOLD;
        n->list_at_ms = n->probe_at_ms = n->probe_wait_ms = 0;
}

void push_node_destroy(struct push_node *n)
{
        n->closing = true;
        push_node_end(n);
        grpc_channel_destroy(n->channel); /* its calls end from inside */
        event_free(n->timer);
        array_fini(&n->units);
        array_fini(&n->free);
        array_fini(&n->gone);
        push_ghosts_free(n);
        array_fini(&n->report_units);
        map_fini(&n->by_id);
        heap_fini(&n->due);
        mem_free(n->id);
        mem_free(n->target);
        mem_free(n->asked_target);
        mem_free(n->asked_caller);
        mem_free(n->caller);
        mem_free(n->why);
        mem_free(n);
}

static bool may_dial(void *ctx, const struct sockaddr *sa)
{
        const struct push_node *n = ctx;
        return reach_may_dial(n->io->reach, n->caller, sa);
}

void push_node_begin(struct push_node *n, uint64_t session, const char *target, const char *caller)
{
        push_node_end(n);
        n->session = session;
        n->no_actions = false; /* it may be another version now */
        if (n->channel && str_eq(n->target, target) && str_eq(n->caller, caller))
                return;
        struct grpc_channel *old = n->channel;
        n->channel = NULL;
        n->closing = true;
        grpc_channel_destroy(old);
        n->closing = false;
        mem_free(n->target);
        n->target = mem_strdup(target);
        mem_free(n->caller);
        n->caller = mem_strdup(caller ? caller : "");
        struct err err = { 0 };
        struct grpc_channel_options o = { .tls = push_tls(n->io),
                                          .node_id = n->id,
                                          .may_dial = may_dial,
                                          .dial_ctx = n,
                                          .rng = &n->io->rng,
                                          .connect_timeout_ms = CONNECT_MS,
                                          .max_message_bytes = LIST_BYTES_MAX };
        if (grpc_channel_create(n->io->base, target, &o, &n->channel, &err) < 0)
                push_node_down(n, err_line(&err));
}

/* ---- what the core hears ---- */

static struct ring_msg *report_begin(struct push_node *n)
{
        if (!n->report) {
                n->report = ring_msg_new(INPUT_UNITS);
                push_wants_flush(n);
        }
        return n->report;
}

static void say(struct push_node *n, struct push_unit *u, Pb__UnitStatus *status)
{
        u->said = status->state;
        *array_push(&n->report_units) = status;
}

/* What the agent said of it. The same again is no news. */
static void say_status(struct push_node *n, struct push_unit *u, const Pa__WorkloadStatus *s)
{
        struct arena *memory = &report_begin(n)->memory;
        Pb__UnitStatus *status = push_unit_status(memory, s, u->job);
        bool ours =
            status->token && status->token->epoch == u->epoch && status->token->seq == u->seq;
        if (!ours || status->state != u->said)
                say(n, u, status);
}

/* Of the launch that is wished for, in our own words. */
static void say_own(struct push_node *n, struct push_unit *u, Pb__ActualState__E state,
                    Pb__Reason__E reason, const char *message)
{
        struct arena *memory = &report_begin(n)->memory;
        Pb__UnitStatus *status = (Pb__UnitStatus *)pb_new(memory, &pb__unit_status__descriptor);
        status->unit_id = arena_strdup(memory, u->id);
        status->token = (Pb__Token *)pb_new(memory, &pb__token__descriptor);
        status->token->epoch = u->epoch;
        status->token->seq = u->seq;
        status->state = state;
        status->reason = reason;
        status->message = arena_strdup(memory, message ? message : "");
        say(n, u, status);
}

/* (C4) */
uint64_t push_taken_seq(const struct push_node *n)
{
        uint64_t seq = n->seq;
        for (size_t i = 0; i < n->units.len; i++) {
                const struct push_unit *u = n->units.at[i];
                if (u && u->order_seq && u->order_seq <= seq)
                        seq = u->order_seq - 1;
        }
        return seq;
}

static void finish_report(struct ring_msg *msg, const struct push_node *n, Pb__UnitStatus **units,
                          size_t n_units, bool complete, uint64_t seq)
{
        Pb__UnitReport *r = (Pb__UnitReport *)pb_new(&msg->memory, &pb__unit_report__descriptor);
        r->complete = complete;
        r->applied = (Pb__Cursor *)pb_new(&msg->memory, &pb__cursor__descriptor);
        r->applied->epoch = n->epoch;
        r->applied->seq = seq;
        r->n_units = n_units;
        r->units = arena_dup(&msg->memory, units, n_units * sizeof(*units));
        msg->in.msg = &r->base;
        msg->in.session = n->session;
        msg->in.actor = arena_printf(&msg->memory, "node:%s", n->id);
}

static bool tell_reach(struct push_node *n)
{
        enum push_reach reach = n->down ? REACH_DOWN : n->heard ? REACH_UP : REACH_UNTOLD;
        if (n->told == reach)
                return true;
        struct ring_msg *msg = ring_msg_new(n->down ? INPUT_UNREACHABLE : INPUT_REACHABLE);
        msg->in.session = n->session;
        msg->in.text = arena_strdup(&msg->memory, n->down && n->why ? n->why : "");
        if (!io_to_ring(n->io, msg, true)) {
                ring_msg_free(msg);
                return false;
        }
        n->told = reach;
        return true;
}

bool push_node_flush(struct push_node *n)
{
        if (!n->session)
                return true;
        if (!n->down && !tell_reach(n)) /* a node is heard first, and then what it says */
                return false;
        if (n->report && n->report_units.len == 0)
                drop_report(n);
        if (n->report) {
                finish_report(n->report, n, n->report_units.at, n->report_units.len, false,
                              push_taken_seq(n));
                if (!io_to_ring(n->io, n->report, false))
                        return false;
                n->report = NULL;
                array_clear(&n->report_units);
                push_pump(n);
        }
        return tell_reach(n);
}

/* ---- towards the wish ---- */

void push_go(struct push_node *n, struct push_unit *u, enum push_step step, int64_t wait_ms)
{
        u->next = step;
        heap_set(&n->due, u->ix, mono_ms() + wait_ms);
}

/* Sooner at first, then less and less often. */
void push_look_later(struct push_node *n, struct push_unit *u)
{
        u->wait_ms = u->wait_ms == 0                ? LOOK_FIRST_MS
                     : u->wait_ms * 2 > LOOK_MAX_MS ? LOOK_MAX_MS
                                                    : u->wait_ms * 2;
        push_go(n, u, STEP_LOOK, u->wait_ms);
}

static void rest(struct push_node *n, struct push_unit *u)
{
        u->order_seq = 0;
        u->wait_ms = 0;
        mem_free(u->request);
        u->request = NULL;
        heap_unset(&n->due, u->ix);
}

void push_is_gone(struct push_node *n, struct push_unit *u)
{
        say_own(n, u, PB__ACTUAL_STATE__E__Missing, PB__REASON__E__deleted, "");
        if (n->listing)
                *array_push(&n->gone) = mem_strdup(u->id);
        log_info("unit removed", LOG_S("node", n->id), LOG_S("workload", u->id),
                 LOG_I("token", u->seq));
        unit_free(n, u);
}

static bool within(int64_t at_ms, int64_t ms)
{
        return at_ms != 0 && mono_ms() - at_ms < ms;
}

static bool recently(int64_t at_ms)
{
        return within(at_ms, TASK_MS);
}

/* It is not as it should be. An order that was not taken yet is sent; what was taken a moment ago
 * is on its way; what was taken long ago is the core's to judge. */
static void not_as_wished(struct push_node *n, struct push_unit *u)
{
        if (recently(u->applied_ms)) {
                u->order_seq = 0;
                push_look_later(n, u);
        } else if (u->order_seq && u->request)
                push_go(n, u, STEP_APPLY, 0);
        else
                push_look_later(n, u);
}

static void found_nothing(struct push_node *n, struct push_unit *u, bool quiet)
{
        if (u->desired == PB__DESIRED_STATE__E__Deleted) {
                push_is_gone(n, u);
                return;
        }
        if (u->desired == PB__DESIRED_STATE__E__Running &&
            (recently(u->applied_ms) || (u->order_seq && u->request))) {
                not_as_wished(n, u);
                return;
        }
        if (!quiet)
                say_own(n, u, PB__ACTUAL_STATE__E__Missing, PB__REASON__E__none, "");
        if (u->desired == PB__DESIRED_STATE__E__Stopped || !u->request)
                rest(n, u);
        else
                push_look_later(n, u);
}

/* What is there, compared with the wish. quiet: the core hears of it in another way. */
static void found(struct push_node *n, struct push_unit *u, const Pa__WorkloadStatus *s, bool quiet)
{
        bool ours = str_eq(s->revision_id, u->revision);
        if (push_is_missing(s)) {
                found_nothing(n, u, quiet);
                return;
        }
        if (quiet && ours)
                /* the list tells it; later news count as news */
                u->said = PB__ACTUAL_STATE__E__unset;
        if (u->desired == PB__DESIRED_STATE__E__Deleted) {
                push_deletion_found(n, u, s);
                return;
        }
        if (!ours && s->actual_state == PA__ACTUAL_STATE__ACTUAL_STATE_PENDING &&
            within(u->applied_ms, PENDING_MS)) {
                /* it shows the old revision until its task has ended */
                if (u->said != PB__ACTUAL_STATE__E__Pending)
                        say_own(n, u, PB__ACTUAL_STATE__E__Pending, PB__REASON__E__none,
                                s->message);
                u->order_seq = 0;
                push_look_later(n, u);
                return;
        }
        if (!quiet)
                say_status(n, u, s);
        if (!ours) {
                not_as_wished(n, u);
                return;
        }
        bool ended = s->actual_state == PA__ACTUAL_STATE__ACTUAL_STATE_STOPPED ||
                     s->actual_state == PA__ACTUAL_STATE__ACTUAL_STATE_FAILED;
        bool told_to_stop = s->desired_state == PA__DESIRED_STATE__DESIRED_STATE_STOPPED;
        if (u->desired == PB__DESIRED_STATE__E__Stopped) {
                if (ended)
                        rest(n, u);
                else
                        not_as_wished(n, u);
        } else if (told_to_stop)
                not_as_wished(n, u);
        else if (s->actual_state == PA__ACTUAL_STATE__ACTUAL_STATE_PENDING ||
                 s->actual_state == PA__ACTUAL_STATE__ACTUAL_STATE_UNSPECIFIED) {
                u->order_seq = 0;
                push_look_later(n, u);
        } else
                /* it runs, or how it ended is for the core to judge: the same revision is not
                 * started again behind its back */
                rest(n, u);
}

/* ---- wishes ---- */

/* Takes the definition. False: it cannot be said in the agent's words. */
static bool translate(struct push_node *n, struct push_unit *u, const Pb__PlanUnit *p,
                      struct arena *arena)
{
        Pa__ApplyWorkloadRequest *request = NULL;
        struct err err = { 0 };
        mem_free(u->request);
        u->request = NULL;
        bool deletion = u->desired == PB__DESIRED_STATE__E__Deleted;
        mem_free(u->revision);
        u->revision =
            mem_strdup(deletion ? ""
                                : push_revision(arena, p->workload ? p->workload->revision_id : "",
                                                u->epoch, u->seq));
        if (deletion)
                return true;
        u->job = p->workload && (p->workload->restart == PB__RESTART__E__never ||
                                 p->workload->restart == PB__RESTART__E__on_failure);
        if (!p->workload)
                err_set(&err, ERR_INVALID, .msg = "the plan carries no definition");
        else if (push_apply_request(arena, p->workload, u->epoch, u->seq,
                                    u->desired == PB__DESIRED_STATE__E__Running, &request,
                                    &err) >= 0) {
                struct str packed = STR_INIT;
                pb_pack(&packed, &request->base);
                u->request_len = packed.len;
                u->request = str_take(&packed);
                return true;
        }
        if (u->desired == PB__DESIRED_STATE__E__Running)
                say_own(n, u, PB__ACTUAL_STATE__E__Failed, PB__REASON__E__invalid_spec,
                        fmt("%s%s%s%s", err.path, err.path[0] ? ": " : "", err.msg,
                            err.hint[0] ? fmt(" (%s)", err.hint) : ""));
        /* what was never told to run there is not there: it is looked at only */
        return u->desired != PB__DESIRED_STATE__E__Running;
}

static void take_wish(struct push_node *n, const struct effect *e)
{
        struct arena arena = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        struct err err = { 0 };
        if (pb_unpack_own(&pb__plan_unit__descriptor, e->data, e->len, &arena, &m, &err) < 0) {
                log_error("a plan of the core cannot be read", LOG_S("node", n->id), LOG_E(&err));
                arena_fini(&arena);
                return;
        }
        const Pb__PlanUnit *p = (const Pb__PlanUnit *)m;
        struct push_unit *u = find(n, p->unit_id);
        if (!u)
                u = unit_add(n, p->unit_id);
        uint64_t epoch = p->token ? p->token->epoch : 0, seq = p->token ? p->token->seq : 0;
        bool same = u->epoch == epoch && u->seq == seq && u->desired == p->desired_state;
        u->epoch = epoch;
        u->seq = seq;
        u->desired = p->desired_state;
        u->unmentioned = false;
        u->order_seq = e->seq;
        u->said = PB__ACTUAL_STATE__E__unset;
        u->wait_ms = 0;
        if (!same)
                u->applied_ms = u->asked_ms = u->again_ms = u->failures = 0;
        bool launch = !same && !n->whole && p->desired_state == PB__DESIRED_STATE__E__Running;
        if (translate(n, u, p, &arena))
                push_go(n, u, launch ? STEP_APPLY : STEP_LOOK, 0);
        else
                rest(n, u);
        arena_fini(&arena);
}

static void plan_begins(struct push_node *n)
{
        n->whole = true;
        for (size_t i = 0; i < n->units.len; i++)
                if (n->units.at[i])
                        n->units.at[i]->unmentioned = true;
}

/* (C2) What it does not mention is no longer ours to bring about; on the agent it stays. */
static void plan_ends(struct push_node *n)
{
        n->whole = false;
        for (size_t i = 0; i < n->units.len; i++)
                if (n->units.at[i] && n->units.at[i]->unmentioned)
                        unit_free(n, n->units.at[i]);
        n->syncing = n->list_due = true;
}

void push_node_effect(struct push_node *n, const struct effect *e, uint64_t epoch)
{
        n->epoch = epoch;
        if (e->seq > n->seq)
                n->seq = e->seq;
        switch (e->kind) {
        case EFFECT_PLAN_BEGIN:
                plan_begins(n);
                return;
        case EFFECT_PLAN_UNIT:
                take_wish(n, e);
                break;
        case EFFECT_PLAN_END:
                plan_ends(n);
                break;
        case EFFECT_LIST:
                n->list_due = n->list_due || !n->syncing; /* one is on its way */
                break;
        default:
                return;
        }
        if (!n->whole)
                push_pump(n);
}

void push_node_hint(struct push_node *n, const char *workload_id, Pb__ActualState__E state)
{
        struct push_unit *u = str_empty(workload_id) ? NULL : find(n, workload_id);
        if (!u || u->call || u->order_seq || u->said == state ||
            heap_get(&n->due, u->ix) != HEAP_NEVER)
                return;
        push_go(n, u, STEP_LOOK, 0);
        push_pump(n);
}

/* ---- what the calls brought ---- */

void push_looked(struct push_node *n, struct push_unit *u, const Pa__WorkloadStatus *s)
{
        if (s)
                found(n, u, s, false);
        else
                found_nothing(n, u, false);
}

static void failed(struct push_node *n, struct push_unit *u, Pb__Reason__E reason,
                   const char *message)
{
        say_own(n, u, PB__ACTUAL_STATE__E__Failed, reason, message);
        log_warn("an agent did not take a workload", LOG_S("node", n->id), LOG_S("workload", u->id),
                 LOG_I("token", u->seq), LOG_S("message", message));
        rest(n, u);
}

void push_applied(struct push_node *n, struct push_unit *u, const Pa__ApplyWorkloadResponse *a)
{
        if (!a->applied && !a->skipped) {
                const char *code = a->status ? pb_map_get(a->status->metadata,
                                                          a->status->n_metadata, "failure_reason")
                                             : NULL;
                Pb__Reason__E reason = push_reason(code, a->message);
                failed(n, u,
                       reason == PB__REASON__E__crashed ? PB__REASON__E__start_failed : reason,
                       a->message);
                return;
        }
        log_debug("agent took a workload", LOG_S("node", n->id), LOG_S("workload", u->id),
                  LOG_I("token", u->seq), LOG_B("skipped", a->skipped));
        u->applied_ms = mono_ms();
        u->order_seq = 0;
        u->failures = 0;
        u->wait_ms = 0;
        if (a->skipped)
                push_go(n, u, STEP_LOOK, 0);
        else
                push_look_later(n, u);
}

void push_asked_to_delete(struct push_node *n, struct push_unit *u,
                          const Pa__DeleteWorkloadResponse *d)
{
        if (!d->success && d->message && strstr(d->message, "not found")) {
                push_is_gone(n, u);
                return;
        }
        if (!d->success) {
                push_failed(n, u, STEP_DELETE, PUSH_AGAIN, GRPC_OK, d->message);
                return;
        }
        push_deletion_taken(n, u);
}

void push_failed(struct push_node *n, struct push_unit *u, enum push_step step,
                 enum push_verdict verdict, enum grpc_status status, const char *message)
{
        if (verdict == PUSH_UNREACHABLE) { /* not its fault: it goes on when the node is back */
                push_go(n, u, step, 0);
                return;
        }
        if (verdict == PUSH_MISSING && step == STEP_DELETE) {
                push_is_gone(n, u);
                return;
        }
        log_info("a call to an agent failed", LOG_S("node", n->id), LOG_S("workload", u->id),
                 LOG_S("status", grpc_status_name(status)), LOG_S("message", message));
        if (step == STEP_APPLY && (verdict == PUSH_REFUSED || ++u->failures >= APPLY_TRIES)) {
                Pb__Reason__E reason = push_reason(NULL, message);
                if (reason == PB__REASON__E__crashed)
                        reason = status == GRPC_INVALID_ARGUMENT ? PB__REASON__E__invalid_spec
                                                                 : PB__REASON__E__start_failed;
                failed(n, u, reason, fmt("%s: %s", grpc_status_name(status), message));
                return;
        }
        push_look_later(n, u); /* whatever came of it shows there */
}

/* ---- lists ---- */

static bool is_gone_since(const struct push_node *n, const char *id)
{
        for (size_t i = 0; i < n->gone.len; i++)
                if (str_eq(n->gone.at[i], id))
                        return true;
        return false;
}

/* Those that wait for a look have had it. */
static void settle_by_list(struct push_node *n, const Pa__ListWorkloadsResponse *list)
{
        for (size_t i = 0; i < n->units.len; i++)
                if (n->units.at[i])
                        n->units.at[i]->unmentioned = true;
        for (size_t i = 0; i < list->n_workloads; i++) {
                struct push_unit *u =
                    str_empty(list->workloads[i]->id) ? NULL : find(n, list->workloads[i]->id);
                if (!u || !u->unmentioned)
                        continue;
                u->unmentioned = false;
                if (u->order_seq && !u->call && u->next == STEP_LOOK)
                        found(n, u, list->workloads[i], true);
        }
        for (size_t i = 0; i < n->units.len; i++) {
                struct push_unit *u = n->units.at[i];
                if (!u || !u->unmentioned)
                        continue;
                u->unmentioned = false;
                if (u->order_seq && !u->call && u->next == STEP_LOOK)
                        found_nothing(n, u, true);
        }
}

/* A list that the ring does not take now is asked for again a little later. */
static void report_list(struct push_node *n, const Pa__ListWorkloadsResponse *list, uint64_t seq)
{
        struct ring_msg *msg = ring_msg_new(INPUT_UNITS);
        ARRAY(Pb__UnitStatus *) units = { 0 };
        for (size_t i = 0; i < list->n_workloads; i++) {
                const Pa__WorkloadStatus *s = list->workloads[i];
                const struct push_unit *u = str_empty(s->id) ? NULL : find(n, s->id);
                if (!id_is_valid(s->id) || is_gone_since(n, s->id) || push_is_missing(s) ||
                    (!u && push_is_ghost(n, s)))
                        continue;
                *array_push(&units) = push_unit_status(&msg->memory, s, u && u->job);
        }
        push_ghosts_sweep(n);
        finish_report(msg, n, units.at, units.len, true, seq);
        array_fini(&units);
        if (io_to_ring(n->io, msg, false))
                return;
        ring_msg_free(msg);
        n->list_due = true;
        n->list_at_ms = mono_ms() + 1000;
}

void push_listed(struct push_node *n, const Pa__ListWorkloadsResponse *list, uint64_t taken_seq)
{
        n->syncing = false;
        push_node_up(n);
        report_list(n, list, taken_seq);
        settle_by_list(n, list);
}

bool push_may_ask(const struct push_node *n)
{
        return n->report_units.len < REPORT_MAX;
}
