/* core/check.c: looking at the whole state: as text to compare, and against the numbered invariants
 * of docs/invariants.md.
 *
 * Slow on purpose (everything is derived anew): for fsck, the simulator and debug builds, never for
 * the ring.
 */
#include "core/check.h"
#include "base/mem.h"
#include "core/access.h"
#include "core/admission.h"
#include "core/definitions.h"
#include "core/drain.h"
#include "core/drift.h"
#include "core/place.h"
#include "core/policy.h"
#include "core/rules.h"
#include "core/state.h"
#include "core/tombstone.h"
#include "core/webhook.h"
#include "core/workload.h"
#include <stdlib.h>
#include <string.h>

static _Thread_local const struct core *sorting;

static int node_by_name(const void *a, const void *b)
{
        return strcmp(sorting->nodes.at[*(const uint32_t *)a].id,
                      sorting->nodes.at[*(const uint32_t *)b].id);
}

static int workload_by_name(const void *a, const void *b)
{
        return strcmp(sorting->units.at[*(const uint32_t *)a].id,
                      sorting->units.at[*(const uint32_t *)b].id);
}

static int tombstone_by_name(const void *a, const void *b)
{
        const struct tombstone *x = &sorting->tombstones.at[*(const uint32_t *)a],
                               *y = &sorting->tombstones.at[*(const uint32_t *)b];
        int r = strcmp(sorting->nodes.at[x->node.v].id, sorting->nodes.at[y->node.v].id);
        return r ? r : strcmp(x->workload_id, y->workload_id);
}

static const char *text(const char *s)
{
        return s ? s : "-";
}

static void dump_node(const struct core *c, const struct node *n, struct str *out)
{
        str_addf(out,
                 "node %s status=%d wish=%d reason=%s by=%s at=%lld registered=%lld heartbeat=%lld "
                 "seq=%llu types=%x endpoint=%s "
                 "version=%s ip=%s",
                 n->id, n->status, n->wish, text(n->status_reason), text(n->status_by),
                 (long long)n->status_at, (long long)n->registered_at,
                 (long long)n->stored_heartbeat, (unsigned long long)n->seq, n->type_bits,
                 text(n->endpoint), text(n->version), text(n->ip));
        str_addf(out,
                 " total=%lld/%lld/%lld reserved=%lld/%lld/%lld units=%u tombstones=%u lost=%u",
                 (long long)n->ledger.total.cpu_milli, (long long)n->ledger.total.mem_bytes,
                 (long long)n->ledger.total.disk_bytes, (long long)n->ledger.reserved.cpu_milli,
                 (long long)n->ledger.reserved.mem_bytes, (long long)n->ledger.reserved.disk_bytes,
                 n->n_units, n->n_tombstones, n->n_lost);
        for (uint32_t i = 0; i < n->n_labels; i++)
                str_addf(out, " %s=%s", n->labels[i].key, n->labels[i].value);
        str_addf(out,
                 " push=%d unreachable=%d unsupported=%x exclusive=%x fenced=%lld expelled=%lld "
                 "instance=%s adopted_from=%s",
                 n->push, n->unreachable, n->unsupported_bits, n->exclusive_bits,
                 (long long)n->fenced_at, (long long)n->expelled_at, text(n->instance),
                 text(n->adopted_from));
        if (n->adopt_until)
                str_addf(out, " adopt_until=%lld", (long long)n->adopt_until);
        if (n->evict_ordered_at)
                str_addf(out, " evict_ordered=%lld", (long long)n->evict_ordered_at);
        if (n->drain_started_at)
                str_addf(out, " drain=%lld/%lld/%lld/%u", (long long)n->drain_started_at,
                         (long long)n->drain_deadline_at, (long long)n->drain_finished_at,
                         n->drain_units);
        for (uint32_t i = 0; i < n->n_drivers; i++)
                str_addf(out, " driver=%s", n->drivers[i]);
        for (uint32_t i = 0; i < n->n_taints; i++)
                str_addf(out, " taint:%s=%s:%u", n->taints[i].key, n->taints[i].value,
                         n->taints[i].effect);
        for (size_t i = 0; i < n->ports.len; i++)
                str_addf(out, " port:%u", n->ports.at[i].port);
        str_addc(out, '\n');
        (void)c;
}

static void dump_workload(const struct core *c, const struct unit *w, struct str *out)
{
        const struct definition *d = definition_of(c, w);
        str_addf(out,
                 "workload %s rev=%s definition=%016llx/%u node=%s lost=%s prev=%s desired=%d "
                 "phase=%d actual=%d reason=%d placed=%d "
                 "action=%d holds=%d",
                 w->id, text(w->revision), (unsigned long long)hash64(d->data, d->len), d->len,
                 node_ok(w->node) ? node_get(c, w->node)->id : "-", text(w->lost_node),
                 text(w->previous_node), w->desired, w->phase, w->actual, w->reason,
                 w->placed_reason, w->action, w->holds);
        str_addf(out,
                 " token=%llu.%llu seq=%llu created=%lld updated=%lld last=%lld action_at=%lld "
                 "launch=%lld started=%lld finished=%lld "
                 "retry=%lld placed_at=%lld",
                 (unsigned long long)w->token_epoch, (unsigned long long)w->token_seq,
                 (unsigned long long)w->seq, (long long)w->created_at, (long long)w->updated_at,
                 (long long)w->last_updated, (long long)w->last_action_at,
                 (long long)w->last_launch_at, (long long)w->started_at, (long long)w->finished_at,
                 (long long)w->next_retry_at, (long long)w->placed_at);
        str_addf(
            out,
            " score=%lld preempted=%lld candidates=%d attempts=%d/%d base=%d cap=%d restarts=%d",
            (long long)w->score, (long long)w->preempted_at, w->candidates, w->attempts,
            w->max_attempts, w->base_seconds, w->cap_seconds, w->restarts);
        if (w->has_exit)
                str_addf(out, " exit=%d", w->exit_code);
        if (w->has_signal)
                str_addf(out, " signal=%d", w->signal);
        int64_t deadline = unit_deadline(c, w);
        if (deadline != HEAP_NEVER)
                str_addf(out, " deadline=%lld", (long long)deadline);
        if (w->told)
                str_addf(out, " told=%llu", (unsigned long long)w->told);
        if (w->unleased)
                str_adds(out, " unleased");
        if (w->origin_seq)
                str_addf(out, " origin=%llu.%llu", (unsigned long long)w->origin_epoch,
                         (unsigned long long)w->origin_seq);
        str_addf(out, " tombs=%u failure=%s error=%s observed=%s\n", w->tombs, text(w->failure),
                 text(w->last_error), text(w->observed));
}

void core_dump(const struct core *c, struct str *out)
{
        ARRAY(uint32_t) list = { 0 };
        sorting = c;
        str_addf(out,
                 "head %llu cluster %s epoch %llu created %lld restored=%d "
                 "fencing=%lld/%lld/%lld/%d/%lld key=%s\n",
                 (unsigned long long)c->head, text(c->cluster_id), (unsigned long long)c->epoch,
                 (long long)c->cluster_created_at, c->restored, (long long)c->fencing.leader_ms,
                 (long long)c->fencing.lease_ms, (long long)c->fencing.grace_ms,
                 c->fencing.drift_percent, (long long)c->fencing.wait_ms, text(c->key_fingerprint));
        if (c->evict_ordered_at)
                str_addf(out, "evict_ordered %lld\n", (long long)c->evict_ordered_at);
        for (size_t i = 0; i < c->lost.len; i++)
                str_addf(out, "lost %llu/%llu until %llu at %lld\n",
                         (unsigned long long)c->lost.at[i].epoch,
                         (unsigned long long)c->lost.at[i].seq,
                         (unsigned long long)c->lost.at[i].until_epoch,
                         (long long)c->lost.at[i].restored_at);
        for (uint32_t i = 0; i < c->nodes.len; i++)
                if (c->nodes.at[i].id)
                        *array_push(&list) = i;
        if (list.len)
                qsort(list.at, list.len, sizeof(uint32_t), node_by_name);
        for (size_t i = 0; i < list.len; i++)
                dump_node(c, &c->nodes.at[list.at[i]], out);
        array_clear(&list);
        for (uint32_t i = 0; i < c->units.len; i++)
                if (c->units.at[i].id)
                        *array_push(&list) = i;
        if (list.len)
                qsort(list.at, list.len, sizeof(uint32_t), workload_by_name);
        for (size_t i = 0; i < list.len; i++)
                dump_workload(c, &c->units.at[list.at[i]], out);
        array_clear(&list);
        for (uint32_t i = 0; i < c->tombstones.len; i++)
                if (c->tombstones.at[i].workload_id)
                        *array_push(&list) = i;
        if (list.len)
                qsort(list.at, list.len, sizeof(uint32_t), tombstone_by_name);
        for (size_t i = 0; i < list.len; i++) {
                const struct tombstone *t = &c->tombstones.at[list.at[i]];
                str_addf(out,
                         "tombstone %s %s token=%llu.%llu held=%lld/%lld/%lld reason=%d at=%lld "
                         "leased=%d released=%d\n",
                         node_get(c, t->node)->id, t->workload_id,
                         (unsigned long long)t->token_epoch, (unsigned long long)t->token_seq,
                         (long long)t->held.cpu_milli, (long long)t->held.mem_bytes,
                         (long long)t->held.disk_bytes, t->reason, (long long)t->created_at,
                         t->leased, t->released);
        }
        quotas_dump(c, out);
        dump_constraints(c, out);
        alerts_dump(c, out);
        tokens_dump(c, out);
        admissions_dump(c, out);
        outbox_dump(c, out);
        str_adds(out, "phases");
        for (size_t i = 0; i < ARRAY_LEN(c->by_phase); i++)
                str_addf(out, " %u", c->by_phase[i]);
        str_addc(out, '\n');
        array_fini(&list);
}

#define BROKEN(err, which, what, who)                                                              \
        err_set(err, ERR_INTERNAL, .msg = "invariant " which " is broken: " what, .detail = (who))

static int check_workload(const struct core *c, struct unit_ix ix, struct err *err)
{
        const struct unit *w = unit_get(c, ix);
        bool finished = w->phase == PB__PHASE__E__Completed || w->phase == PB__PHASE__E__Failed;
        if (workload_find(c, w->id).v != ix.v)
                return BROKEN(err, "W0", "a workload is found by its id", w->id);
        if (w->holds && (!node_ok(w->node) || finished))
                return BROKEN(err, "W2",
                              "it holds capacity exactly while assigned and not finished", w->id);
        if (node_ok(w->node) && !finished && !w->holds && w->phase != PB__PHASE__E__Deleting &&
            w->phase != PB__PHASE__E__Stopped && w->phase != PB__PHASE__E__Pending)
                return BROKEN(err, "W2",
                              "it holds capacity exactly while assigned and not finished", w->id);
        if ((w->phase == PB__PHASE__E__Running || w->phase == PB__PHASE__E__Scheduled ||
             w->phase == PB__PHASE__E__Updating) &&
            !node_ok(w->node))
                return BROKEN(err, "W1", "what runs has a node", w->id);
        if (w->attempts > workload_retry_limit(c, w))
                return BROKEN(err, "R1", "attempts never exceed their limit", w->id);
        if ((w->next_retry_at != 0) != (w->phase == PB__PHASE__E__RetryPending))
                return BROKEN(err, "R2", "next_retry_at is set exactly while RetryPending", w->id);
        if (w->token_seq > c->head && w->token_epoch >= c->epoch)
                return BROKEN(err, "W3",
                              "a token is the sequence of a past event, or of a past epoch", w->id);
        if ((w->desired == PB__DESIRED_STATE__E__Deleted) != (w->phase == PB__PHASE__E__Deleting))
                return BROKEN(err, "W6", "what is to be deleted is Deleting", w->id);
        if (w->tombs != tombstone_count(c, w->id))
                return BROKEN(err, "N7", "its tombstones are counted", w->id);
        if (w->shadows != strangers_named(c, w->id))
                return BROKEN(err, "N12", "strangers of its name are counted", w->id);
        if (node_ok(w->node) && w->tombs && tombstone_find(c, w->node, w->id) != NONE)
                return BROKEN(err, "N8", "a node never holds a workload and its tombstone at once",
                              w->id);
        /* A launch that was not answered is looked at again and again: later than its deadline,
         * never earlier, and at most one grace from now. */
        int64_t deadline = unit_deadline(c, w), armed = heap_get(&c->unit_deadlines, ix.v);
        bool launched = w->phase == PB__PHASE__E__Scheduled || w->phase == PB__PHASE__E__Updating;
        bool again = launched && (armed > deadline || class_of(c, w)->exclusive) &&
                     armed <= c->now_ms + c->opt.launch_grace_ms;
        if (c->started && armed != deadline && !again)
                return BROKEN(err, "T1", "its deadline is armed", w->id);
        if (w->waiting && !(w->desired == PB__DESIRED_STATE__E__Running &&
                            (w->holds || w->phase == PB__PHASE__E__Pending)))
                return BROKEN(err, "W4", "only what wants a node waits for one", w->id);
        bool wants =
            w->phase == PB__PHASE__E__Pending && w->desired == PB__DESIRED_STATE__E__Running;
        bool has_its_turn =
            node_ok(w->node) && (node_get(c, w->node)->pacing || node_get(c, w->node)->evicting);
        if (c->started && wants && !w->waiting && !w->dirty && c->dirty.len == 0 && !has_its_turn)
                return BROKEN(err, "W4", "what wants a node waits for one", w->id);
        return 0;
}

static int check_node(const struct core *c, struct node_ix ix, struct err *err)
{
        const struct node *n = node_get(c, ix);
        struct amounts sum = { 0 };
        uint32_t units = 0, tombstones = 0, lost = 0, holding = 0, on_node[3] = { 0 };
        struct unit_ix before = UNIT_NONE;
        for (struct unit_ix w = n->units; unit_ok(w); before = w, w = unit_get(c, w)->node_next) {
                const struct unit *u = unit_get(c, w);
                if (u->node.v != ix.v || u->node_prev.v != before.v || ++units > c->n_workloads)
                        return BROKEN(err, "W1", "a workload is in its node's list", n->id);
                holding += u->holds;
                for (int k = 0; k < 3; k++)
                        on_node[k] += u->phase == on_node_phases[k];
                if (u->holds)
                        sum = amounts_add(sum, u->held);
        }
        uint64_t said = 0;
        uint32_t said_count = 0;
        for (struct unit_ix w = n->units; unit_ok(w); w = unit_get(c, w)->node_next)
                said += unit_get(c, w)->said, said_count += unit_get(c, w)->said != 0;
        for (uint32_t t = n->tombstones; t != NONE; t = c->tombstones.at[t].next)
                said += c->tombstones.at[t].said, said_count += c->tombstones.at[t].said != 0;
        for (size_t i = 0; i < n->strangers.len; i++) {
                said += n->strangers.at[i].said, said_count += n->strangers.at[i].said != 0;
                if (i && strcmp(n->strangers.at[i - 1].id, n->strangers.at[i].id) >= 0)
                        return BROKEN(err, "N12", "strangers are in order, each once", n->id);
        }
        if (said != n->said_hash || said_count != n->said_count)
                return BROKEN(err, "N12",
                              "what a node has said is the sum of what it said of each unit",
                              n->id);
        for (uint32_t t = n->tombstones; t != NONE; t = c->tombstones.at[t].next) {
                sum = amounts_add(sum, c->tombstones.at[t].held);
                lost += c->tombstones.at[t].reason == PB__REASON__E__node_lost;
                if (++tombstones > c->n_tombstones)
                        return BROKEN(err, "N6", "tombstones form a list", n->id);
        }
        if (units != n->n_units || tombstones != n->n_tombstones || lost != n->n_lost ||
            holding != n->n_holding || memcmp(on_node, n->on_node, sizeof(on_node)) != 0)
                return BROKEN(err, "N7", "units and tombstones are counted", n->id);
        if (!amounts_equal(sum, n->ledger.reserved))
                return BROKEN(err, "L1", "reserved is the sum of what is held", n->id);
        if (ix.v < c->tree.level[0].cap && c->started) {
                struct amounts left = node_room(n);
                if (c->tree.level[0].cpu[ix.v] != left.cpu_milli ||
                    c->tree.level[0].mem[ix.v] != left.mem_bytes ||
                    c->tree.level[0].disk[ix.v] != left.disk_bytes)
                        return BROKEN(err, "P3", "the scanned columns agree with the ledger",
                                      n->id);
                /* A node that is Ready and not fresh any more may still have its types there:
                 * feasible() has the last word. Never the other way round. */
                uint64_t types = node_types_shown(c, n), shown = c->tree.level[0].types[ix.v];
                if ((shown & ~types && n->status != PB__NODE_STATUS__E__Ready) || types & ~shown ||
                    c->tree.level[0].labels[ix.v] != node_label_bits(c, n))
                        return BROKEN(err, "P3", "the scanned columns agree with the node's state",
                                      n->id);
                if (!c->ranks_stale &&
                    (c->tree.level[0].key[ix.v] !=
                         (int64_t)((uint64_t)ledger_utilisation(&n->ledger) << 32 | n->rank) ||
                     c->by_rank.at[n->rank].v != ix.v))
                        return BROKEN(err, "P3", "the scanned key is the utilisation and the rank",
                                      n->id);
        }
        if ((n->held || n->given_up) &&
            (n->status == PB__NODE_STATUS__E__Ready || (n->held && n->given_up)))
                return BROKEN(err, "N9", "only a lost node is held or given up, and not both",
                              n->id);
        if ((n->drain_started_at != 0) != node_drains(n))
                return BROKEN(err, "D1", "a node has a drain exactly while it is draining", n->id);
        /* a finished unit that is tried elsewhere leaves its remains there to be cleared away */
        if (n->drain_finished_at && n->n_holding)
                return BROKEN(err, "D2", "nothing holds capacity on a node that is drained", n->id);
        if (c->started && heap_get(&c->node_deadlines, ix.v) > drain_due_ms(n))
                return BROKEN(err, "D3", "a drain's deadline is armed", n->id);
        if (n->unreachable && n->status == PB__NODE_STATUS__E__Ready)
                return BROKEN(err, "N10", "a node that cannot be called is not Ready", n->id);
        if (n->type_bits & n->unsupported_bits)
                return BROKEN(err, "N11", "a type that turned out not to work there is not offered",
                              n->id);
        if (c->started && n->status == PB__NODE_STATUS__E__Ready &&
            heap_get(&c->node_deadlines, ix.v) == HEAP_NEVER)
                return BROKEN(err, "T1", "a live node has a deadline", n->id);
        return 0;
}

/* Each queue is a list of what waits in its class, and each class with somebody waiting is in the
 * list of those. */
static int check_queues(const struct core *c, struct err *err)
{
        uint32_t waiting = 0, listed = 0, classes = 0, before_class = NONE;
        for (uint32_t i = 0; i < c->units.len; i++)
                waiting += c->units.at[i].id && c->units.at[i].waiting;
        for (uint32_t k = c->waiting_first; k != NONE;
             before_class = k, k = c->classes.at[k].next_waiting) {
                const struct class *class = &c->classes.at[k];
                uint32_t before = NONE, n = 0;
                if (++classes > c->classes.len || class->prev_waiting != before_class ||
                    !class->n_waiting)
                        return BROKEN(err, "P1", "classes with somebody waiting form a list",
                                      str_c(&class->key));
                for (uint32_t w = class->first; w != NONE && n <= class->n_waiting;
                     before = w, w = c->units.at[w].wait_next.v, n++) {
                        const struct unit *m = &c->units.at[w];
                        if (!m->id || !m->waiting || m->wait_prev.v != before ||
                            definition_of(c, m)->class != k)
                                return BROKEN(err, "P1", "what waits in a class is in its queue",
                                              str_c(&class->key));
                }
                if (n != class->n_waiting || class->last != before)
                        return BROKEN(err, "P1", "what waits in a class is counted",
                                      str_c(&class->key));
                listed += n;
        }
        return listed + c->n_over_quota == waiting
                   ? 0
                   : BROKEN(err, "P1", "what waits is in a queue", "");
}

/* Definitions and classes are counted by those who use them. */
static int check_definitions(const struct core *c, struct err *err)
{
        uint64_t used = 0, refs = 0, classes = 0;
        for (uint32_t i = 0; i < c->units.len; i++)
                used += c->units.at[i].id != NULL;
        for (uint32_t i = 0; i < c->definitions.len; i++)
                refs += c->definitions.at[i].refs, classes += c->definitions.at[i].data != NULL;
        for (uint32_t i = 0; i < c->classes.len; i++)
                classes -= c->classes.at[i].refs;
        return refs == used && classes == 0
                   ? 0
                   : BROKEN(err, "X3", "definitions and classes are counted by those who use them",
                            "");
}

int core_check(const struct core *c, struct err *err)
{
        uint32_t nodes = 0, workloads = 0, tombstones = 0, assigned = 0, in_lists = 0, held = 0,
                 phases[ARRAY_LEN(c->by_phase)] = { 0 };
        for (uint32_t i = 0; i < c->nodes.len; i++) {
                if (!c->nodes.at[i].id)
                        continue;
                nodes++;
                held += c->nodes.at[i].held;
                in_lists += c->nodes.at[i].n_units;
                int r = check_node(c, (struct node_ix){ i }, err);
                if (r < 0)
                        return r;
        }
        for (uint32_t i = 0; i < c->units.len; i++) {
                if (!c->units.at[i].id)
                        continue;
                workloads++;
                phases[c->units.at[i].phase]++;
                assigned += node_ok(c->units.at[i].node);
                int r = check_workload(c, (struct unit_ix){ i }, err);
                if (r < 0)
                        return r;
        }
        for (uint32_t i = 0; i < c->tombstones.len; i++) {
                const struct tombstone *t = &c->tombstones.at[i];
                tombstones += t->workload_id != NULL;
                if (t->workload_id && tombstone_find(c, t->node, t->workload_id) != i)
                        return BROKEN(err, "N6", "a tombstone is found by its node and workload",
                                      t->workload_id);
        }
        if (nodes != c->n_nodes || workloads != c->n_workloads ||
            workloads != c->workloads_in_order.len || tombstones != c->n_tombstones ||
            assigned != in_lists || held != c->n_held || (c->brake.holds && !c->brake.running))
                return BROKEN(err, "X1", "the counts agree", "");
        if (memcmp(phases, c->by_phase, sizeof(phases)) != 0)
                return BROKEN(err, "X2", "the phases are counted", "");
        int r = holds_check(c, err);
        if (r >= 0)
                r = check_queues(c, err);
        if (r >= 0)
                r = brake_check(c, err);
        if (r >= 0)
                r = quotas_check(c, err);
        if (r >= 0)
                r = check_constraints(c, err);
        if (r >= 0)
                r = alerts_check(c, err);
        if (r >= 0)
                r = outbox_check(c, err);
        if (r >= 0)
                r = tokens_check(c, err);
        if (r >= 0)
                r = admissions_check(c, err);
        if (r >= 0)
                r = policy_check(c, err);
        return r < 0 ? r : check_definitions(c, err);
}

int core_check_changed(const struct core *c, struct err *err)
{
        int r = 0;
        for (size_t i = 0; i < c->out.changed[RECORD_NODE].len && r >= 0; i++)
                if (c->nodes.at[c->out.changed[RECORD_NODE].at[i]].id)
                        r = check_node(c, (struct node_ix){ c->out.changed[RECORD_NODE].at[i] },
                                       err);
        for (size_t i = 0; i < c->out.changed[RECORD_WORKLOAD].len && r >= 0; i++)
                if (c->units.at[c->out.changed[RECORD_WORKLOAD].at[i]].id)
                        r = check_workload(
                            c, (struct unit_ix){ c->out.changed[RECORD_WORKLOAD].at[i] }, err);
        return r;
}

static int64_t later(int64_t a, int64_t b)
{
        return a > b ? a : b;
}

int64_t core_newest_ms(const struct core *c)
{
        int64_t newest = later(c->cluster_created_at, c->evict_ordered_at);
        if (c->lost.len)
                newest = later(newest, c->lost.at[c->lost.len - 1].restored_at);
        for (size_t i = 0; i < c->nodes.len; i++)
                if (c->nodes.at[i].id)
                        newest = later(newest,
                                       later(c->nodes.at[i].status_at, c->nodes.at[i].fenced_at));
        for (size_t i = 0; i < c->units.len; i++)
                if (c->units.at[i].id)
                        newest = later(newest, c->units.at[i].last_updated);
        return newest;
}
