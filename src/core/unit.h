/* core/unit.h: units: what occupies capacity on a node, whatever kind of thing it is.
 *
 * A unit has a definition (shared by all that carry the same one), at most one node, a token for
 * its current launch, and amounts that it holds in its node's ledger. The mechanics are the same
 * for every kind: unit.c (add, free, assign, hold), wait.c (queues of what waits for a node),
 * orders.c (what each node is told), report.c (what nodes say), drift.c, tombstone.c. What differs
 * by kind is policy; the mechanics ask for it through struct unit_kind and nowhere else.
 */
#ifndef BERTH_CORE_UNIT_H
#define BERTH_CORE_UNIT_H

#include "agent.pb-c.h"
#include "core/core.h"
#include "records.pb-c.h"

struct unit;
struct unit_ix {
        uint32_t v;
};
struct place_result;

enum unit_kind_id { UNIT_WORKLOAD, UNIT_KINDS };

struct unit_kind {
        const char *name;                                /* for people */
        void (*save)(struct core *c, struct unit_ix ix); /* its record is to be written */

        /* Looks at what is wanted of it and what is, and does the next thing: it has changed, or
         * somebody must look whether it has. */
        void (*look)(struct core *c, struct unit_ix ix);
        /* The time has come that deadline() gave. HEAP_NEVER: there is none. */
        int64_t (*deadline)(const struct core *c, const struct unit *w);
        void (*due)(struct core *c, struct unit_ix ix);

        /* A node can take it. leaving, why: what it leaves its present node for, if it has one. */
        void (*placed)(struct core *c, struct unit_ix ix, const struct place_result *r,
                       Pb__Reason__E leaving, const char *why);
        /* No node can take it now; it waits in its queue. failover: its node is lost or drained,
         * and it is to leave. text: why, if it is known (unit_wait_text()). Asked often: says so
         * once. */
        void (*waits)(struct core *c, struct unit_ix ix, bool failover, char *text);
        /* Its node is lost, drained or tainted, and it is to go elsewhere, if there is an
         * elsewhere. */
        void (*evict)(struct core *c, struct unit_ix ix);
        /* It gives up its place there now, whether or not there is another; an old copy may be
         * left. */
        void (*leave)(struct core *c, struct unit_ix ix, Pb__Reason__E reason, const char *why);

        /* Its agent said this of its current launch. complete: in a list of all that there is. */
        void (*said)(struct core *c, struct unit_ix ix, const Pb__UnitStatus *u, bool complete);
        /* Its agent does not have it. u: what was said; NULL: nothing, in a list of all that there
         * is. */
        void (*missing)(struct core *c, struct unit_ix ix, const Pb__UnitStatus *u);
};

extern const struct unit_kind workload_kind; /* workload.c */
const struct unit_kind *unit_kind_of(const struct unit *w);

struct unit_ix unit_find(const struct core *c, const char *id); /* of any kind */
struct unit_ix unit_add(struct core *c, enum unit_kind_id kind, const char *id);
void unit_free(struct core *c, struct unit_ix w);
void unit_set_phase(struct core *c, struct unit *w, Pb__Phase__E phase);
/* look() comes later in this step, or in the next */
void unit_mark_dirty(struct core *c, struct unit_ix w);
void unit_deadline_refresh(struct core *c, struct unit_ix w);

void unit_save(struct core *c, struct unit_ix w);
void unit_look(struct core *c, struct unit_ix w);
void unit_due(struct core *c, struct unit_ix w);
int64_t unit_deadline(const struct core *c, const struct unit *w);
void unit_evict(struct core *c, struct unit_ix w);
void unit_leave(struct core *c, struct unit_ix w, Pb__Reason__E reason, const char *why);

#endif
