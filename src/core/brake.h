/* core/brake.h: does the server suspect itself (C11)? For src/core only; state.h includes it.
 *
 * When many nodes fall silent at once, it is more likely that the server is cut off than that they
 * are dead; moving their work would then start everything twice. When one zone burns, its work must
 * move. What tells the two apart is who is heard.
 *
 * Definitions:
 *   zone   the nodes whose label `zone` has one value. Nodes without that label are in no zone.
 *   wave   begins when a node falls silent and none is under way; it takes in what falls silent
 *          within one grace, and for as long as it holds. (A grace that is shorter than a heartbeat
 *          counts as one: nodes that were cut off at one moment are noticed within that.) A later
 *          silence begins another one.
 *   counted  the nodes that were Ready when the wave began. Whoever comes later is not evidence,
 *            either way.
 *   whole  a zone of which all that were counted are silent. For those who fell silent in that wave
 *          or before it stays so until one of theirs comes back: that a node elsewhere begins
 *          another wave makes the rest of a burnt zone no part of one.
 *
 * The rule (brake_rule(), written once):
 *   held   if more than brake_percent of the counted are silent, unless they are exactly one whole
 *          zone, every other counted node is heard, and that is at least a third of all;
 *   held   if each of several zones lost nodes, and fewer than half of all counted are heard.
 *   Never in a cluster of one or two nodes, where a share says nothing.
 *   Otherwise work moves: that of a whole zone at full speed, that of a part of a zone a few units
 *   a second (evict.c).
 *
 * All of it is counted as nodes change, from the events: a node that returns costs the same in a
 * cluster of three and of a hundred thousand, and a server that only follows has the same counts. A
 * start finds the wave again from the records.
 *
 * Invariants:
 *   (B1) zones[].ready and brake.ready are the numbers of nodes that are Ready.
 *   (B2) counts are the sums over the zones of this wave, and silent is never more than nodes.
 *   (B3) While the brake holds, no node is given up unless an operator said so.
 *   (B4) A zone that lost nodes in this wave is whole for them exactly if all that were counted are
 *   silent.
 */
#ifndef BERTH_CORE_BRAKE_H
#define BERTH_CORE_BRAKE_H

#include "base/array.h"
#include "base/err.h"
#include "base/map.h"
#include "records.pb-c.h"

struct core;
struct node_ix;

#define ZONE_LABEL "zone"
#define BRAKE_NODES_MIN 3 /* of fewer, a share says nothing: it never holds */
#define ZONE_NONE 0       /* slot of the nodes without one */

struct zone {
        char *name; /* NULL: free slot, or that of no zone */
        uint32_t nodes, ready;
        /* of the wave with this number; in a later one they are not yet made */
        uint64_t wave;
        uint32_t counted, silent;
        bool told; /* that its work is paced */
        /* It is whole for those who fell silent in these waves; see brake_judge(). */
        uint64_t whole_from, whole_to;
};

struct brake_counts {
        uint32_t nodes, silent;
        uint32_t zones, zones_hit, zones_whole; /* that had nodes; lost some; lost all */
        uint32_t unzoned_silent;
};

struct brake {
        ARRAY(struct zone) zones; /* the first is that of no zone */
        ARRAY(uint32_t) free_zones;
        struct map zone_by_name;
        uint32_t ready, zones_ready; /* Ready nodes; zones that have some */
        uint64_t wave;               /* number of the one under way, or of the next */
        bool running;                /* one is under way */
        int64_t since;               /* when it began */
        struct brake_counts counts;
        bool stale; /* records were loaded since it was made */
        /* live */
        bool holds;    /* as it was last told */
        uint32_t zone; /* of the node of which it was told */
        /* when it last let go: whoever was silent by then has one more grace; 0: never */
        int64_t released_at;
        int64_t sweep_at;    /* when to look at those that were held */
        uint32_t sweep_next; /* the look goes on here; NONE: it is not under way */
};

/* Whether so many are suspicious. */
bool brake_rule(const struct brake_counts *n, int32_t percent);

void brake_init(struct core *c);
void brake_fini(struct core *c);
/* As events are applied. */
void brake_node_silent(struct core *c, struct node_ix n, int64_t at);
void brake_node_heard(struct core *c, struct node_ix n);
void brake_node_zone(struct core *c, struct node_ix n); /* its labels have changed */
void brake_node_gone(struct core *c, struct node_ix n);
/* an operator says that it is out: that is not silence */
void brake_node_out(struct core *c, struct node_ix n);
/* an operator has said what to do: whatever falls silent next is another wave */
void brake_end(struct core *c);
/* Finds the wave again after records were loaded: they tell who was there since when, and who is
 * silent since when. */
void brake_rebuild(struct core *c);

/* As decisions are taken. */
enum brake_verdict { BRAKE_HOLDS, BRAKE_PACES, BRAKE_MOVES };
/* of a lost node whose grace is over */
enum brake_verdict brake_judge(struct core *c, struct node_ix n);
/* the pace makes its units wait: once per zone and wave */
void brake_tell_paced(struct core *c, struct node_ix n);
void brake_unhold(struct core *c, struct node_ix n);
/* After nodes were heard or forgotten: lets go, if there is no reason left. about: who changed;
 * NODE_NONE: nobody that is left. */
void brake_review(struct core *c, struct node_ix about);
/* those that were held are looked at again, as far as one step goes */
void brake_sweep(struct core *c);
int64_t brake_next_ms(const struct core *c);
bool brake_is_on(const struct core *c); /* to be shown */
void brake_fill(const struct core *c, uint32_t zone, Pb__Brake *ret);
int brake_check(const struct core *c, struct err *err);

#endif
