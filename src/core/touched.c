/* core/touched.c: a record that somebody changed in the store by hand (C1).
 *
 * Records follow from events; whoever writes to one by hand goes around that. It is never passed
 * over in silence, and never overwritten without a word:
 *   - a workload whose new definition is valid is taken over, as if it had been applied; quotas and
 *     all other rules hold;
 *   - anything else is refused: the record is put back as it follows from the events (or removed,
 *     if it should not be there), and an event says so;
 *   - kinds of records that nobody edits with sense (alerts, the outbox, tokens, admissions) are
 *     reported, and left as they are until they are written next.
 */
#include "core/access.h"
#include "core/state.h"
#include "core/step.h"
#include "core/workload.h"

enum outcome { LEFT, PUT_BACK, REMOVED, TAKEN_OVER };
static const char *const outcome_names[] = { "left", "put-back", "removed", "taken-over" };

/* Writes the record as it should be with this batch. Only the leader's core does: for everybody
 * else the event says enough. */
static enum outcome restore(struct core *c, const char *key)
{
        const char *name;
        enum record k = record_of_key(c, key, &name);
        if (k == RECORD_KINDS || !record_kind(k)->put_back)
                return LEFT;
        uint32_t slot = record_kind(k)->find(c, name);
        if (slot == NONE) {
                record_removed(c, k, name);
                return REMOVED;
        }
        record_kind(k)->put_back(c, slot);
        return PUT_BACK;
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
        const char *name;
        enum record k = record_of_key(c, key, &name);
        if (k == RECORD_KINDS || !record_kind(k)->put_back)
                return LEFT;
        return record_kind(k)->find(c, name) != NONE ? PUT_BACK : REMOVED;
}

void decide_touched(struct core *c, const Pb__TouchedRecord *t)
{
        uint64_t head = c->head;
        if (t->apply)
                /* nobody waits for an answer; what it says is in the events, or it changed
                 * nothing */
                decide_apply(c, t->apply);
        enum outcome o = c->head != head ? TAKEN_OVER : foresee(c, t->key);
        static const char *const words[] = { [LEFT] = "it is left as it is",
                                             [PUT_BACK] =
                                                 "it is put back as it follows from the events",
                                             [REMOVED] = "it is removed: no event speaks of it",
                                             [TAKEN_OVER] =
                                                 "its definition is valid and was applied" };
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__RecordTouched;
        e.record = t->key;
        e.action = (char *)outcome_names[o];
        e.actor = "store";
        e.message = arena_printf(&c->step, "%s was %s in the store by hand%s%s: %s", t->key,
                                 t->removed ? "removed" : "changed",
                                 str_empty(t->problem) ? "" : " and is not valid: ",
                                 t->problem ? t->problem : "", words[o]);
        emit(c, &e);
}
