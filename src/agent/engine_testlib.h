/* agent/engine_testlib.h: an engine in a test, and a driver in memory: a disk, a runtime, and what
 * was sent.
 *
 * The driver carries out what the engine orders and checks on the way what must hold always:
 * records come before what they are for, a start has its record on disk (C34), no unit has two
 * copies, and the numbered invariants hold. Orders and messages are kept until clear(). A failed
 * check fails the cmocka test.
 */
#ifndef BERTH_AGENT_ENGINE_TESTLIB_H
#define BERTH_AGENT_ENGINE_TESTLIB_H

#include "agent/engine.h"
#include "base/array.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
        bool disk_full, dead; /* dead: the process was killed in the middle */
        /* orders that are still carried out before it dies; 0: all */
        size_t budget;
        ARRAY(char *) removing;          /* REMOVE ordered, not answered */
        int64_t lease_until, lease_kill; /* written down; 0: not */
        uint32_t boots;                  /* of the machine */
};

/* ---- its life ---- */
struct engine *new_engine(uint32_t max_units, uint32_t max_starting); /* 0: the defaults */
/* with what is on the disk and in the runtime */
void rig_boot(struct rig *r, uint32_t max_units, uint32_t max_starting);
/* welcome in cluster c1, with an empty plan */
struct rig rig_new(void);
void rig_restart(struct rig *r); /* after a kill, too */
/* what the runtime wrote down is lost, too */
void rig_power_loss(struct rig *r);
/* a new stream, and its Welcome */
void rig_join(struct rig *r);
void rig_fini(struct rig *r);
void drain(struct rig *r); /* takes and carries out all that the engine wants, as far as it lives */
void clear(struct rig *r); /* forgets what was ordered and sent */

/* ---- what the server says ---- */
#define RUN PB__DESIRED_STATE__E__Running
#define STOP PB__DESIRED_STATE__E__Stopped
#define DEL PB__DESIRED_STATE__E__Deleted

#define MAX_PLAN 64
struct plan {
        Pb__ServerMessage m;
        Pb__Plan plan;
        Pb__Cursor cursor;
        size_t n;
        Pb__PlanEntry units[MAX_PLAN], *list[MAX_PLAN];
        Pb__Token tokens[MAX_PLAN];
        uint8_t packed[MAX_PLAN][512];
};

void say(struct rig *r, Pb__ServerMessage *m);
void welcome(struct rig *r, const char *cluster, bool accepted);
void plan_begin(struct plan *p, uint64_t epoch, uint64_t seq, bool complete, bool last);
/* revision NULL: without a definition. */
void plan_add(struct plan *p, const char *id, uint64_t token, Pb__DesiredState__E desired,
              const char *revision);
/* Its definition, packed. */
void plan_define(struct plan *p, size_t i, const Pb__Workload *w);
void empty_plan(struct rig *r, uint64_t seq);
/* A plan of one unit. */
void change(struct rig *r, uint64_t seq, const char *id, uint64_t token,
            Pb__DesiredState__E desired, const char *revision);

/* ---- what the runtime says ---- */
/* exit_code < 0, sig 0: none. */
void runtime_says(struct rig *r, enum runtime_event_kind kind, const char *id, uint64_t token,
                  int exit_code, int sig);
/* A unit that runs. */
void bring_up(struct rig *r, uint64_t seq, const char *id, uint64_t token, const char *revision);

/* ---- what came of it ---- */
/* id NULL: of all units. */
size_t ordered(const struct rig *r, enum engine_order_kind kind, const char *id);
/* The last status that was sent about a unit, in a report or a Hello. */
Pb__UnitStatus *status_of(const struct rig *r, const char *id);
void assert_status(const struct rig *r, const char *id, Pb__ActualState__E state,
                   Pb__Reason__E reason);
struct copy *copy_of(struct rig *r, const char *id); /* NULL: none */
bool copy_runs(struct rig *r, const char *id);
struct file *file_of(struct rig *r, const char *id); /* NULL: none */
void do_forget(struct rig *r, const char *id);       /* a record is gone */
/* Takes an unanswered REMOVE off the list. */
bool was_removing(struct rig *r, const char *id);

#endif
