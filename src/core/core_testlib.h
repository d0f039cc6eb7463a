/* core/core_testlib.h: a core in a test: inputs in, batches out, and a copy of everything that was
 * committed.
 *
 * The rig drives the public door (core.h) and nothing else. After every input it runs what is due
 * (ticks, bulk work), takes all batches, and checks on the way what must hold for every batch: the
 * events follow each other, carry type, time and the right prev, no key comes twice, the head moves
 * as told, and the numbered invariants hold. Events, records, replies and effects are kept until
 * rig_fini().
 *
 * Everything that is handed out lives until rig_fini(). A failed check fails the cmocka test.
 */
#ifndef BERTH_CORE_TESTLIB_H
#define BERTH_CORE_TESTLIB_H

#include "base/arena.h"
#include "base/array.h"
#include "base/clock.h"
#include "core/core.h"
#include "events.pb-c.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RIG_START_MS INT64_C(1767225600000)

struct rig_reply {
        uint64_t ticket, session;
        bool created;
        struct err err; /* code ERR_OK: it worked */
        ProtobufCMessage *msg;
};
struct rig_effect {
        enum effect_kind kind;
        uint64_t session, seq;
        int64_t value;
        Pb__Welcome *welcome;
        Pb__PlanUnit *unit;
        Pb__DescribeUnits *describe;
        Pb__Outgoing *outgoing; /* EFFECT_WEBHOOK */
        size_t events;          /* how many events were committed when it left */
};
struct rig_record {
        char *key;
        void *data;
        size_t len;
};
struct rig_stored {
        void *data;
        size_t len;
        Pb__Event *e;
};
struct rig_said {
        char *id;
        uint64_t hash;
};
struct rig_agent {
        char *id;
        uint64_t session;
        ARRAY(struct rig_said) said; /* of its units: what a heartbeat sums up */
        uint64_t applied;            /* cursor of the last plan effect on this stream */
};
struct rig_chain {
        char *name; /* "w <id>" or "n <id>" */
        uint64_t seq;
};

struct rig {
        struct core *core;
        struct core_options opt;
        struct arena memory;
        int64_t now, latest; /* latest: the largest now so far */
        uint64_t head, epoch, tickets, sessions;
        bool by_hand;        /* the test ticks and takes batches itself */
        const char *feature; /* of the agent that says hello next; NULL: none */
        int schema;          /* of the store */
        const char *lacking; /* servers that are too old for every feature; NULL: none */
        bool no_check;       /* skip core_check() (large clusters) */
        ARRAY(struct rig_stored) events;
        ARRAY(struct rig_record) records;
        ARRAY(struct rig_reply) replies;
        ARRAY(struct rig_effect) effects;
        ARRAY(struct rig_agent) agents;
        ARRAY(struct rig_chain) chains;
        size_t mark, effect_mark; /* rig_mark(): what comes after is new */
        size_t batches, largest_batch_ops;
};

/* opt NULL: the defaults. Starts the core. */
void rig_init(struct rig *r, const struct core_options *opt);
void rig_fini(struct rig *r);
/* The server dies and is started again from the committed records; every stream is gone. */
void rig_restart(struct rig *r);
/* What is stored becomes a restored backup: whatever agents claim to have seen since is lost to it.
 * Then a restart. */
void rig_restored(struct rig *r);
/* The fold of all events, a load of the records, and the live core are the same, byte for byte (A2,
 * A3). */
void rig_check_replay(struct rig *r);

/* ---- time ---- */
void rig_tick(struct rig *r);
void rig_take(struct rig *r); /* all batches that are there */
/* every deadline on the way is met at its time; no agent is heard meanwhile */
void rig_advance(struct rig *r, int64_t ms);
/* the same, while all connected agents send their heartbeats */
void rig_advance_alive(struct rig *r, int64_t ms);

/* ---- users ---- */
/* As somebody who waits for the reply, with request id "req-N" and actor "tester". */
/* The same; NULL: the answer comes later. */
const struct rig_reply *rig_try(struct rig *r, enum input_kind kind, const void *msg);
const struct rig_reply *rig_ask(struct rig *r, enum input_kind kind, const void *msg);
/* a process; the caller may change it */
Pb__Workload *rig_workload(struct rig *r, const char *id, int64_t cpu_milli, int64_t memory_mb);
/* node_selector */
void rig_select(struct rig *r, Pb__Workload *w, const char *key, const char *value);
void rig_label(struct rig *r, Pb__Workload *w, const char *key, const char *value);
const struct rig_reply *rig_apply(struct rig *r, const Pb__Workload *w); /* normalises a copy */
const struct rig_reply *rig_delete(struct rig *r, const char *id);
const struct rig_reply *rig_stop(struct rig *r, const char *id);
const struct rig_reply *rig_start(struct rig *r, const char *id);
const struct rig_reply *rig_retry(struct rig *r, const char *id);
const struct rig_reply *rig_wish(struct rig *r, const char *node, Pb__NodeWish__E wish);
const struct rig_reply *rig_forget(struct rig *r, const char *node);
Pb__Workload *rig_get(struct rig *r, const char *id); /* NULL: not known */
Pb__Node *rig_node(struct rig *r, const char *id);
Pb__Explanation *rig_explain(struct rig *r, const char *id);

void rig_config(struct rig *r, const char *yaml); /* INPUT_CONFIG; a restarted core has none */

/* ---- agents ---- */
/* labels: "zone=a,disk=ssd" or NULL. Process and container units. The session of the stream; units
 * may be added with rig_hello_units(). */
uint64_t rig_hello(struct rig *r, const char *node, int64_t cpu_milli, int64_t memory_mb,
                   int64_t disk_gb, const char *labels);
/* The same message, to be changed before it is sent. */
Pb__Hello *rig_hello_message(struct rig *r, const char *node, int64_t cpu_milli, int64_t memory_mb,
                             int64_t disk_gb, const char *labels);
uint64_t rig_say_hello(struct rig *r, Pb__Hello *h); /* on a new stream */
void rig_hello_add(struct rig *r, Pb__Hello *h, Pb__UnitStatus *u);
void rig_gone(struct rig *r, const char *node);
void rig_beat(struct rig *r, const char *node);
void rig_beat_using(struct rig *r, const char *node, int64_t cpu_milli, int64_t memory_mb,
                    int64_t disk_gb);
/* Any input of an agent, on any session. */
void rig_say(struct rig *r, enum input_kind kind, uint64_t session, const void *msg,
             const char *text);
Pb__UnitStatus *rig_unit(struct rig *r, const char *id, uint64_t epoch, uint64_t seq,
                         Pb__ActualState__E state);
/* With the workload's current token. */
Pb__UnitStatus *rig_unit_now(struct rig *r, const char *id, Pb__ActualState__E state);
/* A definition with its token as that node's agent keeps it; with a warrant of the rig's cluster,
 * or with none. */
Pb__HeldUnit *rig_held(struct rig *r, const char *node, const Pb__Workload *w, bool warranted);
/* the answer to EFFECT_DESCRIBE */
void rig_describe(struct rig *r, const char *node, size_t n, Pb__HeldUnit **held);
void rig_report(struct rig *r, const char *node, Pb__UnitStatus *u);
void rig_report_all(struct rig *r, const char *node, bool complete, uint64_t applied, size_t n,
                    Pb__UnitStatus **units);
/* Its agent says of the current copy that it ... */
void rig_runs(struct rig *r, const char *id);
void rig_exits(struct rig *r, const char *id, int exit_code);
void rig_is_gone(struct rig *r, const char *id, const char *node);
struct rig_agent *rig_agent(struct rig *r, const char *node);

/* ---- what came out ---- */
void rig_mark(struct rig *r);
/* names of the events since the mark, with blanks between; "" for none */
const char *rig_told(struct rig *r);
Pb__Event *rig_last(struct rig *r, Pb__EventType__E type); /* NULL: none since the mark */
size_t rig_count(struct rig *r, Pb__EventType__E type);    /* since the mark */
/* the last plan unit since the mark; NULL: none */
struct rig_effect *rig_sent(struct rig *r, const char *node, const char *workload);
/* since the mark */
size_t rig_sent_count(struct rig *r, enum effect_kind kind);
const struct rig_record *rig_record(struct rig *r, const char *key);

#define assert_told(r, names) assert_string_equal(rig_told(r), names)
#define assert_phase(r, id, p) assert_int_equal(rig_get(r, id)->status->phase, PB__PHASE__E__##p)
#define assert_refused(reply, c) assert_int_equal((reply)->err.code, c)

#endif
