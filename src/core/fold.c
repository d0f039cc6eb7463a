/* core/fold.c: events that come from a store instead of from a decision.
 *
 * An event that the core has just decided is right by construction. One that was read back may be
 * damaged, or of a newer berth: everything that apply_event() takes for granted is looked at first,
 * so that a bad event is an error with a sentence and leaves the state as it was.
 */
#include "core/fold.h"
#include "core/admission.h"
#include "core/drain.h"
#include "core/event.h"
#include "core/node.h"
#include "core/notice.h"
#include "core/restore.h"
#include "core/state.h"
#include "core/step.h"
#include "core/tombstone.h"
#include "core/workload.h"

/* Whatever the event is about. */
static const char *wrong_values(const Pb__Event *e)
{
        const Pb__WorkloadStatus *s = e->status;
        if (!time_is_sane(e->timestamp) ||
            (s && (!time_is_sane(s->started_at) || !time_is_sane(s->finished_at))) ||
            (e->retry && !time_is_sane(e->retry->next_retry_at)) ||
            (e->node && !time_is_sane(e->node->last_heartbeat)))
                return "a time is out of range";
        if (!reason_is_sane(e->reason) || (e->placement && !reason_is_sane(e->placement->reason)))
                return "the reason is out of range";
        return NULL;
}

static const char *wrong_definition(const Pb__Workload *w)
{
        if (!w || !w->type || w->type >= TYPES_MAX)
                return "the workload's definition is missing or of an unknown type";
        if (!resources_are_sane(w->resources) || w->desired_state > PB__DESIRED_STATE__E__Stopped ||
            w->exclusive > PB__EXCLUSIVE__E__pinned)
                return "the workload's definition is out of range";
        return NULL;
}

const char *wrong_node_event(struct core *c, const Pb__Event *e)
{
        struct node_ix n = node_find(c, e->node_id);
        if (e->type == PB__EVENT_TYPE__E__NodeRegistered)
                return str_empty(e->node_id) || !e->node ||
                               !node_resources_are_sane(e->node->resources)
                           ? "the node's attributes are missing or out of range"
                           : NULL;
        if (e->type == PB__EVENT_TYPE__E__NodeAdopted)
                return str_empty(e->node_id) || !e->node ||
                               !node_resources_are_sane(e->node->resources) || !e->cluster ||
                               e->cluster->epoch <= c->epoch || e->cluster->epoch > EPOCH_MAX ||
                               !time_is_sane(e->node->adopt_until) ||
                               (node_ok(n) &&
                                !str_eq(node_get(c, n)->adopted_from, e->node->adopted_from))
                           ? "the adopted node is known, or its attributes are missing or out of "
                             "range"
                           : NULL;
        if (!node_ok(n))
                return "it names an unknown node";
        if (e->type == PB__EVENT_TYPE__E__UnitRemoved &&
            (str_empty(e->workload_id) || tombstone_find(c, n, e->workload_id) == NONE))
                return "no old copy was known there";
        if (e->type == PB__EVENT_TYPE__E__NodeTypeUnsupported && !e->node)
                return "the types are missing";
        if (e->type == PB__EVENT_TYPE__E__NodeWishChanged &&
            (!e->wish || e->wish > PB__NODE_WISH__E__disabled))
                return "the wish is unknown";
        if ((e->type == PB__EVENT_TYPE__E__NodeFenced ||
             e->type == PB__EVENT_TYPE__E__EvictionOrdered) &&
            node_get(c, n)->status == PB__NODE_STATUS__E__Ready)
                return "the node is alive";
        if (e->drain && !drain_is_sane(e->drain))
                return "the drain is out of range";
        if (e->type == PB__EVENT_TYPE__E__NodeDrained &&
            (!node_drains(node_get(c, n)) || drain_left(node_get(c, n))))
                return "the node is not drained";
        if (e->type == PB__EVENT_TYPE__E__NodeTainted && (!e->node || !taints_are_sane(e->node)))
                return "the taints are missing or out of range";
        if (e->type == PB__EVENT_TYPE__E__NodeForgotten && e->admission &&
            (!admission_is_sane(e->admission) || !str_eq(e->admission->node_id, e->node_id)))
                return "what operators said of the node is out of range";
        if (e->type == PB__EVENT_TYPE__E__NodeForgotten)
                for (struct unit_ix w = node_get(c, n)->units; unit_ok(w);
                     w = unit_get(c, w)->node_next)
                        if (unit_get(c, w)->holds ||
                            unit_get(c, w)->desired == PB__DESIRED_STATE__E__Deleted)
                                return "the forgotten node had units";
        return NULL;
}

/* Leaves a tombstone on its node. */
static const char *wrong_farewell(const struct core *c, const struct unit *w)
{
        if (!node_ok(w->node))
                return "the workload is on no node";
        return tombstone_find(c, w->node, w->id) != NONE
                   ? "there is an old copy on that node already"
                   : NULL;
}

/* A new definition on the node where the old one holds its own amounts. */
static const char *wrong_application(const struct core *c, const Pb__Event *e, struct unit_ix ix)
{
        const char *why =
            str_empty(e->workload_id) ? "it names no workload" : wrong_definition(e->workload);
        if (why || !unit_ok(ix) || !unit_get(c, ix)->holds)
                return why;
        const struct unit *w = unit_get(c, ix);
        if (!ports_fit_in_place(c, w, e->workload))
                return "a host port is taken there";
        struct amounts others = amounts_sub(node_get(c, w->node)->ledger.reserved, w->held);
        return amounts_can_add(others, amounts_of(e->workload->resources))
                   ? NULL
                   : "the node's amounts would overflow";
}

static const char *wrong_placement(const struct core *c, const Pb__Event *e, const struct unit *w)
{
        struct node_ix n = node_find(c, e->node_id);
        if (!e->placement || !e->token || !node_ok(n))
                return "the placement is missing";
        if (node_ok(w->node) && w->node.v != n.v)
                return "the workload is on another node";
        if (tombstone_find(c, n, w->id) != NONE)
                return "an old copy is there";
        if (!w->holds && node_get(c, n)->drain_finished_at)
                return "the node is drained"; /* (D2) */
        const struct constraints *more = class_of(c, w)->more;
        if (!w->holds && more && ports_taken(node_get(c, n), more->ports, more->n_ports))
                return "a host port is taken there";
        return !w->holds && !amounts_can_add(node_get(c, n)->ledger.reserved, class_of(c, w)->need)
                   ? "the node's amounts would overflow"
                   : NULL;
}

/* A copy ended, or began: (R1), (R2) and (W2) must hold afterwards. */
static const char *wrong_outcome(const struct core *c, const Pb__Event *e, const struct unit *w)
{
        bool waits = e->type == PB__EVENT_TYPE__E__RetryScheduled;
        if (e->retry && (e->retry->attempts < 0 || e->retry->attempts > workload_retry_limit(c, w)))
                return "it counts more attempts than there may be";
        if (waits != (e->retry && e->retry->next_retry_at))
                return "the next attempt has a time exactly while it is waited for";
        return (waits || e->type == PB__EVENT_TYPE__E__WorkloadStarted) && !w->holds
                   ? "the workload holds nothing on a node"
                   : NULL;
}

/* One that is known, newer than its record (restore.c). */
static const char *wrong_catching_up(const struct core *c, const Pb__Event *e, const struct unit *w,
                                     struct node_ix n)
{
        Pb__UnitStatus u = PB__UNIT_STATUS__INIT;
        u.token = e->token;
        u.state = PB__ACTUAL_STATE__E__Running;
        if (!unit_is_ahead(c, w, &u) || (node_ok(w->node) && w->node.v != n.v))
                return "the adopted workload is known";
        bool in_place = node_ok(w->node) && w->holds;
        struct amounts others = node_get(c, n)->ledger.reserved;
        if (in_place)
                others = amounts_sub(others, w->held);
        if (in_place ? !ports_fit_in_place(c, w, e->workload)
                     : host_port_is_taken(node_get(c, n), e->workload))
                return "a host port is taken there";
        return amounts_can_add(others, amounts_of(e->workload->resources))
                   ? NULL
                   : "the node's amounts would overflow";
}

static const char *wrong_adoption(const struct core *c, const Pb__Event *e, struct unit_ix ix)
{
        struct node_ix n = node_find(c, e->node_id);
        const char *why =
            str_empty(e->workload_id) ? "it names no workload" : wrong_definition(e->workload);
        if (why)
                return why;
        if (!node_ok(n) || !e->token || tombstone_find(c, n, e->workload_id) != NONE ||
            !e->workload->desired_state)
                return "the adopted workload's node, token or wish is not known";
        if (unit_ok(ix))
                return wrong_catching_up(c, e, unit_get(c, ix), n);
        if (e->token->epoch > c->epoch || (e->token->epoch == c->epoch && e->token->seq >= e->seq))
                return "its token is of an event to come";
        if (host_port_is_taken(node_get(c, n), e->workload))
                return "a host port is taken there";
        return amounts_can_add(node_get(c, n)->ledger.reserved, amounts_of(e->workload->resources))
                   ? NULL
                   : "the node's amounts would overflow";
}

const char *wrong_workload_event(struct core *c, const Pb__Event *e)
{
        struct unit_ix ix = workload_find(c, e->workload_id);
        if (e->type == PB__EVENT_TYPE__E__WorkloadApplied)
                return wrong_application(c, e, ix);
        if (e->type == PB__EVENT_TYPE__E__WorkloadAdopted)
                return wrong_adoption(c, e, ix);
        if (!unit_ok(ix))
                return "it names an unknown workload";
        if (e->type == PB__EVENT_TYPE__E__WorkloadRelabelled)
                return wrong_application(c, e, ix);
        const struct unit *w = unit_get(c, ix);
        if (e->token && e->token->seq > e->seq)
                return "its token is of an event to come";
        if (e->type == PB__EVENT_TYPE__E__WorkloadDeleted)
                return e->tombstone ? wrong_farewell(c, w) : NULL;
        if (e->type == PB__EVENT_TYPE__E__WorkloadFenced)
                return !e->token || !node_ok(w->node) ? "the token or the node is missing" : NULL;
        if (w->desired == PB__DESIRED_STATE__E__Deleted &&
            e->type != PB__EVENT_TYPE__E__WorkloadDeleting)
                return "the workload is being deleted"; /* (W6) */
        switch (e->type) {
        case PB__EVENT_TYPE__E__WorkloadScheduled:
                return wrong_placement(c, e, w);
        case PB__EVENT_TYPE__E__WorkloadLaunched:
                return !e->token || !w->holds ? "the token or the place on a node is missing"
                                              : NULL;
        case PB__EVENT_TYPE__E__Rescheduled:
                return wrong_farewell(c, w);
        case PB__EVENT_TYPE__E__WorkloadStarted:
        case PB__EVENT_TYPE__E__WorkloadStopped:
        case PB__EVENT_TYPE__E__WorkloadCompleted:
        case PB__EVENT_TYPE__E__WorkloadFailed:
        case PB__EVENT_TYPE__E__RetryScheduled:
                return wrong_outcome(c, e, w);
        case PB__EVENT_TYPE__E__WorkloadReleased:
                return !node_ok(w->node) || w->holds ? "the workload holds something on its node"
                                                     : NULL;
        case PB__EVENT_TYPE__E__UnitReleased:
                return wrong_release(c, e);
        case PB__EVENT_TYPE__E__RetryTriggered:
                return e->retry && (e->retry->attempts < 0 ||
                                    e->retry->attempts > workload_retry_limit(c, w))
                           ? "it counts more attempts than there may be"
                           : NULL;
        case PB__EVENT_TYPE__E__WorkloadDesired:
                return e->desired_state != PB__DESIRED_STATE__E__Running &&
                               e->desired_state != PB__DESIRED_STATE__E__Stopped
                           ? "the wish is unknown"
                           : NULL;
        default:
                return NULL;
        }
}

static const char *wrong(struct core *c, const Pb__Event *e)
{
        const struct event_row *t = event_row(e->type);
        const char *why = wrong_values(e);
        return why || !t->wrong ? why : t->wrong(c, e);
}

void core_loaded(struct core *c, uint64_t seq)
{
        must(!c->started && c->head == 0,
             "the records' sequence is set once, before the events since");
        c->head = seq;
        brake_rebuild(c);
        out_reset(c);
}

int core_fold(struct core *c, const void *data, size_t len, struct err *err)
{
        must(!c->started, "events are folded before INPUT_START");
        struct arena_allocator alloc = arena_allocator(&c->step);
        Pb__Event *e = pb__event__unpack((ProtobufCAllocator *)&alloc, len, data);
        const char *why = NULL;
        int r = 0;
        if (!e)
                r = err_set(err, ERR_CORRUPT, .msg = "a stored event does not parse",
                            .detail = fmt("after sequence %llu", (unsigned long long)c->head),
                            .hint = "run berth fsck, or restore a backup");
        else if (e->seq != c->head + 1)
                r = err_set(err, ERR_CORRUPT,
                            .msg = "a stored event does not follow the one before it",
                            .detail = fmt("sequence %llu after %llu", (unsigned long long)e->seq,
                                          (unsigned long long)c->head),
                            .hint = "run berth fsck, or restore a backup");
        else if (!event_row(e->type))
                r = err_set(err, ERR_CONFLICT, .msg = "the store has an event of a newer berth",
                            .detail = fmt("sequence %llu, type %d", (unsigned long long)e->seq,
                                          (int)e->type),
                            .hint = "upgrade this berth");
        else if ((why = wrong(c, e)))
                r = err_set(err, ERR_CORRUPT, .msg = "a stored event makes no sense",
                            .detail = fmt("sequence %llu: %s", (unsigned long long)e->seq, why),
                            .hint = "run berth fsck, or restore a backup");
        else {
                c->now_ms = e->timestamp > c->now_ms ? e->timestamp : c->now_ms;
                apply_event(c, e);
                out_reset(c);
        }
        arena_reset(&c->step);
        return r;
}
