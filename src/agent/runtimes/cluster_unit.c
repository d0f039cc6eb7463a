/* agent/runtimes/cluster_unit.c: one unit, from its start to its removal, as a workload of the
 * child.
 *
 *      CREATE --taken--> FOLLOW --STOP ordered--> STOP --> ENDED --REMOVE ordered--> GONE -->
 *      forgotten
 *        |  ^              |'--ended by itself------------> ENDED
 *        v  |              '--no place for too long--> WHY --> GONE, and then the start has failed
 *       CLEAR (the name is taken: by an earlier copy, which goes, or by a stranger, which stays)
 *
 * Each round is one call, chosen by the phase alone (ask()); its answer moves the phase or asks for
 * another round, at once, when the child's events name the unit, or after a while. A phase can
 * therefore change while a call is under way: an answer to a question that is no longer asked is
 * dropped and the next round looks anew.
 *
 * Invariants:
 *   (1) At most one call per unit.
 *   (2) STOP, CLEAR and GONE look before they touch: only a workload with this node's label is
 *       changed.
 *   (3) A creation whose answer never came may land at any time, also when the unit has been
 *       forgotten: what the child has of this very parent and node, and no unit stands for, is a
 *       stray, and goes.
 *   (4) "Gone" is only ever the child's NOT_FOUND (or a stranger under that name), and not within
 *       UNSURE_MS of a creation whose fate is unknown.
 */
#include "agent/runtimes/cluster_state.h"
#include "base/clock.h"
#include "base/log.h"
#include "model/pb.h"
#include <string.h>

static void ask(struct cunit *u);

/* ---- units ---- */

static struct cunit *find_child(const struct runtime *rt, const char *child_id)
{
        uint32_t ix = map_get(&rt->by_child_id, child_id, strlen(child_id));

        return ix == MAP_NONE ? NULL : rt->units.at[ix];
}

struct cunit *cluster_unit_of_child(struct runtime *rt, const char *child_id)
{
        return find_child(rt, child_id);
}

struct cunit *cluster_unit(struct runtime *rt, const char *workload_id)
{
        struct arena memory = ARENA_INIT;
        struct cunit *u = find_child(rt, cluster_child_id(&memory, rt->node_id, workload_id));

        arena_fini(&memory);
        return u;
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
        (void)fd, (void)what;
        cluster_unit_due(arg);
}

struct cunit *cluster_unit_new(struct runtime *rt, const char *workload_id, struct unit_token token,
                               enum cphase phase)
{
        struct arena memory = ARENA_INIT;
        struct cunit *u = mem_must(sizeof(*u));

        u->rt = rt;
        u->id = mem_strdup(workload_id);
        u->child_id = mem_strdup(cluster_child_id(&memory, rt->node_id, workload_id));
        arena_fini(&memory);
        u->token = token;
        u->phase = phase;
        u->timer = evtimer_new(rt->base, on_timer, u);
        if (rt->free_ix.len)
                u->ix = array_pop(&rt->free_ix);
        else {
                u->ix = (uint32_t)rt->units.len;
                array_push(&rt->units);
        }
        rt->units.at[u->ix] = u;
        map_put(&rt->by_child_id, u->ix);
        return u;
}

void cluster_unit_free(struct cunit *u)
{
        struct runtime *rt = u->rt;

        map_remove(&rt->by_child_id, u->ix);
        rt->units.at[u->ix] = NULL;
        *array_push(&rt->free_ix) = u->ix;
        for (size_t i = rt->line_head; u->queued && i < rt->line.len; i++)
                if (rt->line.at[i] == u)
                        rt->line.at[i] = NULL;
        if (u->call) {
                grpc_call_set_data(u->call, NULL);
                grpc_call_cancel(u->call);
                rt->n_calls--;
        }
        event_free(u->timer);
        str_fini(&u->request);
        str_fini(&u->reply);
        mem_free(u->message);
        mem_free(u->child_id);
        mem_free(u->id);
        mem_free(u);
}

/* ---- rounds ---- */

static void pump(struct runtime *rt)
{
        while (rt->line_head < rt->line.len && rt->n_calls < CLUSTER_CALLS_MAX && !rt->closing) {
                struct cunit *u = rt->line.at[rt->line_head++];

                if (!u)
                        continue;
                u->queued = false;
                ask(u);
        }
        if (rt->line_head == rt->line.len) {
                array_clear(&rt->line);
                rt->line_head = 0;
        }
}

void cluster_unit_due(struct cunit *u)
{
        if (u->call) {
                u->again = true;
                return;
        }
        evtimer_del(u->timer);
        if (u->queued || u->phase == CPHASE_ENDED)
                return;
        u->queued = true;
        *array_push(&u->rt->line) = u;
        pump(u->rt);
}

static void look_later(struct cunit *u, int64_t ms)
{
        if (u->again) {
                cluster_unit_due(u);
                return;
        }
        cluster_in_ms(u->timer, ms);
}

/* The child did not answer. */
static void try_later(struct cunit *u)
{
        u->again_ms = u->again_ms ? u->again_ms * 2 : AGAIN_MS;
        if (u->again_ms > AGAIN_MAX_MS)
                u->again_ms = AGAIN_MAX_MS;
        u->again = false;
        cluster_in_ms(u->timer, u->again_ms);
}

static void enter(struct cunit *u, enum cphase phase)
{
        u->phase = phase;
        u->waits_since_ms = 0;
        u->again_ms = 0;
        evtimer_del(u->timer);
        cluster_unit_due(u);
}

static void emit(struct cunit *u, struct runtime_event *ev)
{
        ev->workload_id = u->id;
        ev->token = u->token;
        if (ev->at_ms <= 0)
                ev->at_ms = clock_wall_ms();
        cluster_emit(u->rt, ev);
}

/* Nothing of it runs any more, and the child keeps it. */
static void ended(struct cunit *u, struct runtime_event *ev)
{
        u->phase = CPHASE_ENDED;
        evtimer_del(u->timer);
        emit(u, ev);
}

/* It is to be gone from the child; then this is said. */
static void give_back(struct cunit *u, enum runtime_event_kind outcome, Pb__Reason__E reason,
                      const char *message)
{
        char *copy = message ? mem_strdup(message) : NULL;

        mem_free(u->message);
        u->message = copy;
        u->outcome = outcome;
        u->reason = reason;
        enter(u, CPHASE_GONE);
}

/* The child says that there is nothing. False: too early to believe it. */
static bool gone(struct cunit *u)
{
        struct runtime_event ev = { .kind = u->outcome, .reason = u->reason };
        struct runtime *rt = u->rt;
        char *id, *message;

        if (cluster_now_ms() < u->unsure_until_ms) {
                look_later(u, LOOK_MS);
                return false;
        }
        if (u->phase == CPHASE_CLEAR) {
                enter(u, CPHASE_CREATE);
                return true;
        }
        if (u->stray) { /* nobody waits for a word of it */
                cluster_unit_free(u);
                return true;
        }
        id = TAKE_PTR(u->id);
        message = TAKE_PTR(u->message);
        u->id = mem_strdup(id);
        ev.workload_id = id;
        ev.token = u->token;
        ev.message = message;
        ev.at_ms = clock_wall_ms();
        cluster_unit_free(u);
        cluster_emit(rt, &ev);
        mem_free(id);
        mem_free(message);
        return true;
}

/* ---- answers ---- */

static void say_started(struct cunit *u, int64_t at_ms)
{
        if (u->up)
                return;
        u->up = true;
        emit(u, &(struct runtime_event){ .kind = RUNTIME_STARTED, .at_ms = at_ms });
}

static void waits(struct cunit *u)
{
        int64_t now = cluster_now_ms(), limit = u->up ? MOVE_WAIT_MS : u->rt->place_wait_ms;

        if (!u->waits_since_ms)
                u->waits_since_ms = now;
        if (now - u->waits_since_ms >= limit) {
                enter(u, CPHASE_WHY);
                return;
        }
        if (!u->up)
                emit(u, &(struct runtime_event){ .kind = RUNTIME_PROGRESS,
                                                 .message = "waits for a place in the cluster" });
        look_later(u, limit - (now - u->waits_since_ms) < LOOK_MS
                          ? limit - (now - u->waits_since_ms) + 1
                          : LOOK_MS);
}

static void on_ended(struct cunit *u, const Pb__Workload *w, struct runtime_event *ev)
{
        bool ran = u->up || (w->status && w->status->started_at > 0) || ev->has_exit_code ||
                   ev->has_signal;

        if (ran)
                say_started(u, w->status ? w->status->started_at : 0);
        ev->kind = ran ? RUNTIME_EXITED : RUNTIME_START_FAILED;
        ended(u, ev);
}

static void follow(struct cunit *u, const Pb__Workload *w)
{
        struct runtime_event ev = { 0 };
        enum cluster_word word = cluster_read(w, &ev);

        if (word != WORD_WAITS)
                u->waits_since_ms = 0;
        switch (word) {
        case WORD_WAITS:
                waits(u);
                break;
        case WORD_COMES:
                ev.kind = RUNTIME_PROGRESS;
                if (ev.message && !u->up)
                        emit(u, &ev);
                look_later(u, LOOK_MS);
                break;
        case WORD_RUNS:
                say_started(u, ev.at_ms);
                if (u->again)
                        cluster_unit_due(u);
                break;
        case WORD_ENDED:
                on_ended(u, w, &ev);
                break;
        case WORD_STOPPED: /* not by us: that would be CPHASE_STOP */
                ev.reason = u->up ? PB__REASON__E__killed : PB__REASON__E__start_failed;
                ev.message = "it was stopped in the cluster that ran it";
                on_ended(u, w, &ev);
                break;
        case WORD_LEAVES:
                look_later(u, LOOK_MS);
                break;
        }
}

/* GetWorkload answered, with w or with NOT_FOUND (NULL). */
static void on_look(struct cunit *u, const Pb__Workload *w)
{
        bool ours = w && cluster_is_ours(w, u->rt->node_id);
        struct runtime_event ev = { .kind = RUNTIME_STOPPED };
        struct unit_token token = { 0 };
        enum cluster_word word;
        const char *id, *revision;

        u->version = w ? w->resource_version : 0;
        switch (u->phase) {
        case CPHASE_FOLLOW:
                if (ours)
                        follow(u, w);
                else
                        give_back(u, u->up ? RUNTIME_EXITED : RUNTIME_START_FAILED,
                                  u->up ? PB__REASON__E__killed : PB__REASON__E__start_failed,
                                  "the cluster that ran it does not know it any more");
                break;
        case CPHASE_CLEAR:
                if (w && !ours)
                        give_back(u, RUNTIME_START_FAILED, PB__REASON__E__start_failed,
                                  fmt("the name %s is taken in the cluster by a workload that does "
                                      "not come from here",
                                      u->child_id));
                else if (!w)
                        gone(u);
                else if (cluster_marks(w, &id, &token, &revision) &&
                         unit_token_cmp(token, u->token) == 0 &&
                         w->desired_state != PB__DESIRED_STATE__E__Deleted) {
                        /* this very start: somebody there has changed it since */
                        u->phase = CPHASE_FOLLOW;
                        follow(u, w);
                } else
                        look_later(u, LOOK_MS);
                break;
        case CPHASE_GONE:
                if (!ours)
                        gone(u);
                else
                        look_later(u, LOOK_MS);
                break;
        case CPHASE_STOP:
                if (!ours && cluster_now_ms() < u->unsure_until_ms) {
                        look_later(u, LOOK_MS);
                        break;
                }
                word = ours ? cluster_read(w, &ev) : WORD_STOPPED;
                ev.reason = PB__REASON__E__none;
                if (word == WORD_STOPPED || word == WORD_ENDED)
                        ended(u, &ev);
                else
                        look_later(u, LOOK_MS);
                break;
        default:
                cluster_unit_due(u);
                break;
        }
}

/* Does what was just looked at call for an order first? True: it was sent. */
static bool order_after_look(struct cunit *u, const Pb__Workload *w);

static void on_refused(struct cunit *u, enum grpc_status status, const char *problem)
{
        if (status == GRPC_ABORTED) /* the name is taken */
                enter(u, CPHASE_CLEAR);
        else
                give_back(u, RUNTIME_START_FAILED,
                          status == GRPC_INVALID_ARGUMENT ? PB__REASON__E__invalid_spec
                                                          : PB__REASON__E__start_failed,
                          fmt("the cluster refuses it: %s", problem));
}

static bool no_answer(enum grpc_status status)
{
        return status == GRPC_UNAVAILABLE || status == GRPC_DEADLINE_EXCEEDED ||
               status == GRPC_CANCELLED || status == GRPC_UNKNOWN || status == GRPC_INTERNAL;
}

static void on_workload(struct cunit *u, enum casked asked, const Pb__Workload *w)
{
        if (asked == ASKED_APPLY && u->phase == CPHASE_CREATE) {
                str_fini(&u->request);
                u->request = STR_INIT;
                u->unsure_until_ms = 0;
                u->phase = CPHASE_FOLLOW;
                u->version = w->resource_version;
                follow(u, w);
        } else if (asked == ASKED_GET) {
                if (!order_after_look(u, w))
                        on_look(u, w);
        } else
                cluster_unit_due(u); /* told to stop or to go: see how that goes */
}

static void on_why(struct cunit *u, const Pb__Explanation *e)
{
        const char *text = e && !str_empty(e->summary) ? e->summary : "no node of it can take it";

        give_back(u, u->up ? RUNTIME_EXITED : RUNTIME_START_FAILED,
                  u->up ? PB__REASON__E__killed : PB__REASON__E__start_failed,
                  fmt("the cluster has no place for it: %s%s%s", text,
                      e && e->n_would_fit_if ? "; it would fit if " : "",
                      e && e->n_would_fit_if ? e->would_fit_if[0] : ""));
}

static void on_answer(struct cunit *u, enum casked asked, enum grpc_status status,
                      const char *problem)
{
        const ProtobufCMessageDescriptor *type =
            asked == ASKED_WHY ? &pb__explanation__descriptor : &pb__workload__descriptor;
        struct arena memory = ARENA_INIT;
        ProtobufCMessage *m = NULL;

        if (status == GRPC_OK &&
            pb_unpack(type, str_c(&u->reply), u->reply.len, &memory, &m, NULL) < 0)
                status = GRPC_INTERNAL;
        str_clear(&u->reply);
        if (asked == ASKED_APPLY && no_answer(status))
                u->unsure_until_ms = cluster_now_ms() + UNSURE_MS;
        if (no_answer(status)) {
                if (u->phase == CPHASE_CREATE)
                        emit(u, &(struct runtime_event){
                                    .kind = RUNTIME_PROGRESS,
                                    .message = "the cluster does not answer; trying again" });
                try_later(u);
        } else if (asked == ASKED_WHY && u->phase == CPHASE_WHY)
                on_why(u, status == GRPC_OK ? (const Pb__Explanation *)m : NULL);
        else if (status == GRPC_OK && asked != ASKED_WHY)
                on_workload(u, asked, (const Pb__Workload *)m);
        else if (asked == ASKED_APPLY && u->phase == CPHASE_CREATE)
                on_refused(u, status, problem);
        else if (asked == ASKED_GET && status == GRPC_NOT_FOUND)
                on_look(u, NULL);
        else if (asked == ASKED_GET ||
                 (status != GRPC_NOT_FOUND && status != GRPC_ABORTED && asked != ASKED_WHY))
                try_later(u); /* refused: not allowed, too many; it must be done all the same */
        else
                cluster_unit_due(u);
        arena_fini(&memory);
}

/* ---- calls ---- */

static void on_message(struct grpc_call *call, const void *data, size_t len)
{
        struct cunit *u = grpc_call_data(call);

        if (!u)
                return;
        str_clear(&u->reply);
        str_add(&u->reply, data, len);
}

static void on_close(struct grpc_call *call, enum grpc_status status)
{
        struct cunit *u = grpc_call_data(call);
        struct runtime *rt;
        enum casked asked;

        if (!u)
                return;
        rt = u->rt;
        asked = u->asked;
        u->call = NULL;
        u->asked = ASKED_NOTHING;
        rt->n_calls--;
        if (rt->closing)
                return;
        if (!no_answer(status))
                u->again_ms = 0;
        on_answer(u, asked, status, cluster_problem(call, status));
        pump(rt);
}

static const struct grpc_callbacks callbacks = { .on_message = on_message, .on_close = on_close };

static void send_request(struct cunit *u, enum casked asked, const char *method,
                         const ProtobufCMessage *request)
{
        u->asked = asked;
        u->again = false;
        u->rt->n_calls++;
        u->call = cluster_call(u->rt, method, request, &callbacks, u);
}

static void send_apply(struct cunit *u)
{
        struct grpc_call_options opt = { .deadline_ms = CALL_MS,
                                         .max_message_bytes = REPLY_MAX_BYTES,
                                         .max_queued_bytes = REPLY_MAX_BYTES };

        u->asked = ASKED_APPLY;
        u->again = false;
        u->rt->n_calls++;
        u->call = grpc_channel_call(u->rt->channel, CONTROL "ApplyWorkload", &opt, &callbacks, u);
        grpc_call_send(u->call, str_c(&u->request), u->request.len);
        grpc_call_half_close(u->call);
}

static void send_ref(struct cunit *u, enum casked asked, const char *method)
{
        Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;

        ref.id = u->child_id;
        send_request(u, asked, method, &ref.base);
}

static const char *cluster_of(const struct runtime *rt)
{
        return rt->cluster_id ? rt->cluster_id(rt->ctx) : "";
}

static bool order_after_look(struct cunit *u, const Pb__Workload *w)
{
        Pb__SetDesiredRequest stop = PB__SET_DESIRED_REQUEST__INIT;
        struct unit_token token = { 0 };
        struct runtime_event ev = { 0 };
        const char *id, *revision;
        enum cluster_word word;

        if (!cluster_is_ours(w, u->rt->node_id) ||
            w->desired_state == PB__DESIRED_STATE__E__Deleted)
                return false;
        if (u->stray && !cluster_is_from(w, u->rt->node_id, cluster_of(u->rt))) {
                cluster_unit_free(u);
                return true;
        }
        switch (u->phase) {
        case CPHASE_CLEAR:
                if (cluster_marks(w, &id, &token, &revision) &&
                    unit_token_cmp(token, u->token) == 0)
                        return false;
                send_ref(u, ASKED_DELETE, "DeleteWorkload");
                return true;
        case CPHASE_GONE:
                if (u->stray)
                        log_warn("a workload of the cluster was created by a call that was given "
                                 "up; it is deleted",
                                 LOG_S("workload", u->child_id));
                send_ref(u, ASKED_DELETE, "DeleteWorkload");
                return true;
        case CPHASE_STOP:
                word = cluster_read(w, &ev);
                if (word == WORD_ENDED || word == WORD_STOPPED ||
                    w->desired_state == PB__DESIRED_STATE__E__Stopped)
                        return false;
                stop.id = u->child_id;
                stop.desired_state = PB__DESIRED_STATE__E__Stopped;
                send_request(u, ASKED_STOP, "SetDesired", &stop.base);
                return true;
        default:
                return false;
        }
}

static void ask(struct cunit *u)
{
        switch (u->phase) {
        case CPHASE_CREATE:
                send_apply(u);
                break;
        case CPHASE_CLEAR:
        case CPHASE_FOLLOW:
        case CPHASE_STOP:
        case CPHASE_GONE:
                send_ref(u, ASKED_GET, "GetWorkload");
                break;
        case CPHASE_WHY:
                send_ref(u, ASKED_WHY, "ExplainWorkload");
                break;
        case CPHASE_ENDED:
                break;
        }
}

/* ---- orders ---- */

void cluster_start(struct runtime *rt, const struct runtime_start *start)
{
        struct cunit *u = cluster_unit(rt, start->workload_id);
        Pb__ApplyWorkloadRequest request = PB__APPLY_WORKLOAD_REQUEST__INIT;
        struct arena memory = ARENA_INIT;

        if (u && u->phase != CPHASE_ENDED && !u->stray) {
                cluster_emit(rt,
                             &(struct runtime_event){
                                 .kind = RUNTIME_START_FAILED,
                                 .workload_id = start->workload_id,
                                 .token = start->token,
                                 .at_ms = clock_wall_ms(),
                                 .reason = PB__REASON__E__start_failed,
                                 .message = "an earlier copy of this unit is not proved gone" });
                return;
        }
        if (!u)
                u = cluster_unit_new(rt, start->workload_id, start->token, CPHASE_CREATE);
        u->token = start->token;
        u->up = u->stray = false;
        request.workload = cluster_child_workload(&memory, rt->node_id, start);
        request.create_only = true;
        str_clear(&u->request);
        pb_pack(&u->request, &request.base);
        arena_fini(&memory);
        enter(u, CPHASE_CREATE);
}

void cluster_stray(struct runtime *rt, const char *workload_id)
{
        struct cunit *u;

        if (cluster_unit(rt, workload_id))
                return;
        u = cluster_unit_new(rt, workload_id, (struct unit_token){ 0 }, CPHASE_GONE);
        u->stray = true;
        u->outcome = RUNTIME_REMOVED;
        cluster_unit_due(u);
}

void cluster_stop(struct runtime *rt, const char *workload_id, struct unit_token token,
                  int64_t grace_ms)
{
        struct cunit *u = cluster_unit(rt, workload_id);

        if (u)
                u->stray = false; /* somebody waits for its end */
        (void)grace_ms;           /* the child has it in the definition */
        if (!u || u->phase == CPHASE_ENDED) {
                cluster_emit(rt, &(struct runtime_event){ .kind = RUNTIME_STOPPED,
                                                          .workload_id = workload_id,
                                                          .token = token,
                                                          .at_ms = clock_wall_ms() });
                return;
        }
        if (u->phase == CPHASE_STOP)
                cluster_unit_due(u);
        else if (u->phase == CPHASE_GONE)
                u->outcome = RUNTIME_STOPPED; /* it is going already */
        else
                enter(u, CPHASE_STOP);
}

void cluster_remove(struct runtime *rt, const char *workload_id)
{
        struct cunit *u = cluster_unit(rt, workload_id);

        if (u)
                u->stray = false;
        /* Even of one that is unknown here something may be left there. */
        if (!u)
                u = cluster_unit_new(rt, workload_id, (struct unit_token){ 0 }, CPHASE_GONE);
        if (u->phase == CPHASE_GONE && u->outcome == RUNTIME_REMOVED) {
                cluster_unit_due(u);
                return;
        }
        give_back(u, RUNTIME_REMOVED, PB__REASON__E__none, NULL);
}
