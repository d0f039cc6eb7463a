/* agent/runtimes/cluster_spec.c: see cluster_spec.h. */
#include "agent/runtimes/cluster_spec.h"
#include "base/map.h"
#include "model/pb.h"
#include <stdio.h>
#include <string.h>

#define CHILD_ATTEMPTS 5
#define HASH_LEN 17 /* "-" and 16 digits */

const char *cluster_child_id(struct arena *arena, const char *node_id, const char *workload_id)
{
        size_t len = strlen(node_id) + 1 + strlen(workload_id);

        if (len <= CHILD_ID_MAX)
                return arena_printf(arena, "%s.%s", node_id, workload_id);
        return arena_printf(arena, "%.*s-%016llx", CHILD_ID_MAX - HASH_LEN,
                            arena_printf(arena, "%s.%s", node_id, workload_id),
                            (unsigned long long)hash64(workload_id, strlen(workload_id)));
}

Pb__Workload *cluster_child_workload(struct arena *arena, const char *node_id,
                                     const struct runtime_start *start)
{
        const Pb__Workload *from = start->workload;
        Pb__Workload *w = (Pb__Workload *)pb_new(arena, &pb__workload__descriptor);

        w->id = (char *)(uintptr_t)cluster_child_id(arena, node_id, start->workload_id);
        w->type = from->type;
        w->revision_id = from->revision_id;
        w->desired_state = PB__DESIRED_STATE__E__Running;
        w->spec = from->spec;
        w->resources = from->resources;
        w->restart = from->restart;
        /* The child gives up at some time, also on a service, so that this cluster can move the
         * unit elsewhere. */
        w->retry = (Pb__Retry *)pb_new(arena, &pb__retry__descriptor);
        w->retry->max_attempts = CHILD_ATTEMPTS;
        w->stop_grace_seconds = from->stop_grace_seconds;
        /* pinned: the child must not move it by the clock either; movable ones are not placed
         * here */
        w->exclusive = from->exclusive;
        pb_map_copy(arena, &w->base, "labels", from->labels, from->n_labels);
        pb_map_copy(arena, &w->base, "annotations", from->annotations, from->n_annotations);
        pb_map_set(arena, &w->base, "labels", PARENT_NODE, node_id);
        if (!str_empty(start->cluster_id))
                pb_map_set(arena, &w->base, "labels", PARENT_CLUSTER, start->cluster_id);
        pb_map_set(arena, &w->base, "annotations", PARENT_WORKLOAD, start->workload_id);
        pb_map_set(arena, &w->base, "annotations", PARENT_TOKEN,
                   arena_printf(arena, "%llu.%llu", (unsigned long long)start->token.epoch,
                                (unsigned long long)start->token.seq));
        pb_map_set(arena, &w->base, "annotations", PARENT_REVISION,
                   from->revision_id ? from->revision_id : "");
        return w;
}

bool cluster_is_ours(const Pb__Workload *w, const char *node_id)
{
        return str_eq(pb_map_get(w->labels, w->n_labels, PARENT_NODE), node_id);
}

bool cluster_is_from(const Pb__Workload *w, const char *node_id, const char *cluster_id)
{
        return cluster_is_ours(w, node_id) && !str_empty(cluster_id) &&
               str_eq(pb_map_get(w->labels, w->n_labels, PARENT_CLUSTER), cluster_id);
}

bool cluster_marks(const Pb__Workload *w, const char **ret_id, struct unit_token *ret_token,
                   const char **ret_revision)
{
        const char *id = pb_map_get(w->annotations, w->n_annotations, PARENT_WORKLOAD);
        const char *token = pb_map_get(w->annotations, w->n_annotations, PARENT_TOKEN);
        const char *revision = pb_map_get(w->annotations, w->n_annotations, PARENT_REVISION);
        const char *dot = token ? strchr(token, '.') : NULL;
        char epoch[32];

        if (str_empty(id) || !dot || (size_t)(dot - token) >= sizeof(epoch))
                return false;
        memcpy(epoch, token, (size_t)(dot - token));
        epoch[dot - token] = 0;
        if (str_parse_u64(epoch, &ret_token->epoch) < 0 ||
            str_parse_u64(dot + 1, &ret_token->seq) < 0)
                return false;
        *ret_id = id;
        *ret_revision = revision ? revision : "";
        return true;
}

/* Reasons that mean the same to the parent. Others are about the child's own nodes;
 * runtime_unavailable among them: it would make the parent think that no node of the child can run
 * this type. */
static Pb__Reason__E reason_for_parent(const Pb__WorkloadStatus *s)
{
        switch (s->reason) {
        case PB__REASON__E__crashed:
        case PB__REASON__E__killed:
        case PB__REASON__E__start_failed:
        case PB__REASON__E__unhealthy:
        case PB__REASON__E__image_unavailable:
        case PB__REASON__E__invalid_spec:
                return s->reason;
        default:
                return s->exit_code || s->signal ? PB__REASON__E__none
                                                 : PB__REASON__E__start_failed;
        }
}

static void read_end(const Pb__WorkloadStatus *s, struct runtime_event *ev)
{
        if (s->exit_code) {
                ev->has_exit_code = true;
                ev->exit_code = (int32_t)s->exit_code->value;
        }
        if (s->signal) {
                ev->has_signal = true;
                ev->signal = (int32_t)s->signal->value;
        }
        ev->at_ms = s->finished_at;
}

enum cluster_word cluster_read(const Pb__Workload *w, struct runtime_event *ev)
{
        const Pb__WorkloadStatus *s = w->status;

        if (w->desired_state == PB__DESIRED_STATE__E__Deleted)
                return WORD_LEAVES;
        switch (s ? s->phase : PB__PHASE__E__Pending) {
        case PB__PHASE__E__Running:
        /* its node is silent: until the child says otherwise it may well run */
        case PB__PHASE__E__Unknown:
                ev->at_ms = s->started_at;
                return WORD_RUNS;
        case PB__PHASE__E__Completed:
                read_end(s, ev);
                ev->has_exit_code = true; /* that is what completed means */
                return WORD_ENDED;
        case PB__PHASE__E__Failed:
                read_end(s, ev);
                ev->reason = reason_for_parent(s);
                ev->message = str_empty(s->failure_reason) ? NULL : s->failure_reason;
                return WORD_ENDED;
        case PB__PHASE__E__Stopped:
                read_end(s, ev);
                return WORD_STOPPED;
        case PB__PHASE__E__Deleting:
                return WORD_LEAVES;
        case PB__PHASE__E__Pending:
                return str_empty(w->assigned_node) ? WORD_WAITS : WORD_COMES;
        default:
                ev->message = !str_empty(s->progress)        ? s->progress
                              : str_empty(s->failure_reason) ? NULL
                                                             : s->failure_reason;
                return WORD_COMES;
        }
}

static bool is_in(const int32_t *list, size_t n, int32_t type)
{
        for (size_t i = 0; i < n; i++)
                if (list[i] == type)
                        return true;
        return false;
}

void cluster_add_node(struct cluster_sum *sum, const Pb__Node *n)
{
        const Pb__NodeResources *r = n->resources;
        size_t have = 0;

        if (n->status != PB__NODE_STATUS__E__Ready ||
            (n->wish != PB__NODE_WISH__E__unset && n->wish != PB__NODE_WISH__E__schedulable) || !r)
                return;
        sum->nodes++;
        sum->capacity.cpu += r->cpu_total;
        sum->capacity.memory_mb += r->memory_total;
        sum->capacity.disk_gb += r->disk_total;
        /* a child from before says nothing about that: then what it uses is known by being there */
        sum->usage.known =
            sum->usage.known || r->used_known || r->cpu_used || r->memory_used || r->disk_used;
        sum->usage.cpu_used += r->cpu_used;
        sum->usage.memory_used_mb += r->memory_used;
        sum->usage.disk_used_gb += r->disk_used;
        while (sum->capacity.types[have])
                have++;
        for (size_t i = 0;
             i < n->n_supported_workload_types && have + 1 < ARRAY_LEN(sum->capacity.types); i++) {
                Pb__WorkloadType__E t = n->supported_workload_types[i];

                if (t && !is_in((const int32_t *)sum->capacity.types, have, (int32_t)t) &&
                    !is_in((const int32_t *)n->unsupported, n->n_unsupported, (int32_t)t))
                        sum->capacity.types[have++] = t;
        }
}
