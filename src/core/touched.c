/* core/touched.c: a record that somebody changed in the store by hand (C1).
 *
 * Records follow from events; whoever writes to one by hand goes around that. It is never passed over in silence, and never overwritten without a word:
 *   - a workload whose new definition is valid is taken over, as if it had been applied; quotas and all other rules hold;
 *   - anything else is refused: the record is put back as it follows from the events (or removed, if it should not be there), and an event says so;
 *   - kinds of records that nobody edits with sense (alerts, the outbox, tokens, admissions) are reported, and left as they are until they are written next.
 */
#include "core/state.h"
#include <string.h>

enum outcome { LEFT, PUT_BACK, REMOVED, TAKEN_OVER };
static const char *const outcome_names[] = { "left", "put-back", "removed", "taken-over" };

/* "/workloads/web" and "/workloads/" -> "web"; NULL: not of this kind. */
static const char *id_behind(const char *key, const char *kind)
{
        return str_starts(key, kind) && key[strlen(kind)] ? key + strlen(kind) : NULL;
}

static const char *workload_of(const char *key)
{
        static const char *const kinds[] = { "/workloads/", "/assignments/", "/retries/", "/reconciliation/" };
        const char *id = NULL;
        for (size_t i = 0; i < ARRAY_LEN(kinds) && !id; i++)
                id = id_behind(key, kinds[i]);
        return id;
}

/* "/nodes/n1" and "/nodes/n1/status" */
static const char *node_of(struct core *c, const char *key)
{
        const char *id = id_behind(key, "/nodes/");
        return id && str_ends(id, "/status") ? arena_strndup(&c->step, id, strlen(id) - strlen("/status")) : id;
}

static uint32_t tombstone_of(struct core *c, const char *id)
{
        const char *slash = strchr(id, '/');
        struct node_ix n = slash ? node_find(c, arena_strndup(&c->step, id, (size_t)(slash - id))) : NODE_NONE;
        return node_ok(n) ? tombstone_find(c, n, slash + 1) : NONE;
}

/* Writes the record as it should be with this batch. Only the leader's core does: for everybody else the event says enough. */
static enum outcome restore(struct core *c, const char *key)
{
        const char *id;
        if ((id = workload_of(key))) {
                struct workload_ix w = workload_find(c, id);
                if (!workload_ok(w)) {
                        save_removed(c, "/workloads/", id);
                        return REMOVED;
                }
                workload_at(c, w)->shown = workload_at(c, w)->shown_retries = VIEW_UNKNOWN;
                save_workload(c, w);
                return PUT_BACK;
        }
        if ((id = node_of(c, key))) {
                struct node_ix n = node_find(c, id);
                if (!node_ok(n)) {
                        save_removed(c, "/nodes/", id);
                        return REMOVED;
                }
                node_at(c, n)->shown_status = VIEW_UNKNOWN;
                save_node(c, n);
                return PUT_BACK;
        }
        if ((id = id_behind(key, "/quotas/"))) {
                uint32_t t = tenant_find(c, id);
                if (t == MAP_NONE || !c->tenants.at[t].has_quota) {
                        save_removed(c, "/quotas/", id);
                        return REMOVED;
                }
                save_quota(c, t);
                return PUT_BACK;
        }
        if ((id = id_behind(key, "/tombstones/")) && strchr(id, '/')) {
                uint32_t t = tombstone_of(c, id);
                if (t == NONE) {
                        save_removed(c, "/tombstones/", id);
                        return REMOVED;
                }
                save_tombstone(c, t);
                return PUT_BACK;
        }
        if (str_eq(key, "/meta/cluster")) {
                c->out.cluster = true;
                c->out.ops++;
                return PUT_BACK;
        }
        return LEFT;
}

static enum outcome outcome_parse(const char *name)
{
        for (enum outcome o = LEFT; o <= TAKEN_OVER; o++)
                if (str_eq(outcome_names[o], name))
                        return o;
        return LEFT;
}

void apply_touched(struct core *c, const Pb__Event *e)
{
        if (outcome_parse(e->action) != LEFT)
                (void)restore(c, e->record);
}

/* What restore() is going to do. */
static enum outcome foresee(struct core *c, const char *key)
{
        const char *id;
        if ((id = workload_of(key)))
                return workload_ok(workload_find(c, id)) ? PUT_BACK : REMOVED;
        if ((id = node_of(c, key)))
                return node_ok(node_find(c, id)) ? PUT_BACK : REMOVED;
        if ((id = id_behind(key, "/quotas/"))) {
                uint32_t t = tenant_find(c, id);
                return t != MAP_NONE && c->tenants.at[t].has_quota ? PUT_BACK : REMOVED;
        }
        if ((id = id_behind(key, "/tombstones/")) && strchr(id, '/'))
                return tombstone_of(c, id) != NONE ? PUT_BACK : REMOVED;
        return str_eq(key, "/meta/cluster") ? PUT_BACK : LEFT;
}

void decide_touched(struct core *c, const Pb__TouchedRecord *t)
{
        uint64_t head = c->head;
        if (t->apply)
                decide_apply(c, t->apply); /* nobody waits for an answer; what it says is in the events, or it changed nothing */
        enum outcome o = c->head != head ? TAKEN_OVER : foresee(c, t->key);
        static const char *const words[] = { [LEFT] = "it is left as it is",
                                             [PUT_BACK] = "it is put back as it follows from the events",
                                             [REMOVED] = "it is removed: no event speaks of it",
                                             [TAKEN_OVER] = "its definition is valid and was applied" };
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__RecordTouched;
        e.record = t->key;
        e.action = (char *)outcome_names[o];
        e.actor = "store";
        e.message = arena_printf(&c->step, "%s was %s in the store by hand%s%s: %s", t->key, t->removed ? "removed" : "changed",
                                 str_empty(t->problem) ? "" : " and is not valid: ", t->problem ? t->problem : "", words[o]);
        emit(c, &e);
}
