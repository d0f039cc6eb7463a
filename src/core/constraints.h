/* core/constraints.h: what a workload asks of its neighbours and of its node beyond labels and
 * amounts (C17, C38). For src/core only; state.h includes it.
 *
 * Definitions:
 *   pair       a tenant's label key=value that some definition carries; matches and definitions are
 *              found by it.
 *   match      a tenant's set of pairs that a constraint names. A definition that has all of them
 *              is matched.
 *   topology   a node label ("zone") whose values are the domains; the empty one has each node as a
 *              domain of its own.
 *   counter    of one match over one topology: how many matched units are in each domain, and how
 *              many units there refuse to be near matched ones (guards).
 *
 * Only units that hold capacity are counted; their counters change with every such unit that comes
 * or goes, so that nobody ever has to count (invariant P5). Tombstones are not counted (they are
 * about to go), but they do hold host ports: two processes cannot listen on one.
 */
#ifndef BERTH_CORE_CONSTRAINTS_H
#define BERTH_CORE_CONSTRAINTS_H

#include "base/array.h"
#include "base/map.h"
#include "base/str.h"
#include "core/tally.h"
#include "records.pb-c.h"

struct core;
struct class;
struct definition;
struct node;
struct unit;
struct unit_ix;
struct tombstone;
struct node_ix;

#define PORTS_PER_CLASS_MAX 256

/* ---- counting ---- */

struct pair {
        char *text; /* tenant \n key=value; NULL: free slot */
        uint32_t refs;
        ARRAY(uint32_t) definitions; /* that carry it */
        /* that are looked for by it: each match is at one of its pairs */
        ARRAY(uint32_t) matches;
};

struct match {
        uint32_t refs; /* counters; 0: free slot */
        uint32_t *pairs, n_pairs;
        uint32_t anchor;          /* the pair that it is listed at */
        ARRAY(uint32_t) counters; /* one per topology */
};

struct domain {
        char *value; /* NULL: free slot */
        ARRAY(uint32_t) nodes;
        int8_t bit; /* in the nodes' label masks; -1: none */
};

struct topology {
        char *key; /* "": each node; NULL: free slot */
        uint32_t refs;
        ARRAY(struct domain) domains; /* none if key is empty */
        ARRAY(uint32_t) of_node;      /* domain of each node; NONE: it has no such label */
        ARRAY(uint32_t) free_domains;
        struct map domain_by_value;
        uint32_t n_domains, n_labelled; /* nodes that have the label */
};

struct counter {
        uint32_t refs; /* constraints of classes; 0: free slot */
        uint32_t match, topology;
        struct tally units, guards;
        ARRAY(uint32_t) classes;        /* that look at it; woken when it changes */
        ARRAY(struct spread *) spreads; /* whose minimum follows it */
};

struct counts {
        ARRAY(struct pair) pairs;
        ARRAY(struct match) matches;
        /* their maps know where they are: they must not move */
        ARRAY(struct topology *) topologies;
        ARRAY(struct counter) counters;
        ARRAY(uint32_t) free_pairs, free_matches, free_topologies, free_counters;
        struct map pair_by_text;
        uint32_t n_counters;
        /* definitions are listed at their pairs; not before the first match exists */
        bool indexed;
        /* grows whenever a node may have become (or ceased to be) one that somebody could use */
        uint64_t eligibility;
        bool quiet;            /* see counts_unit_quietly() */
        uint32_t soft_tainted; /* nodes with a prefer_no_schedule taint */
};

void counts_init(struct core *c);
void counts_fini(struct core *c);
/* A workload begins (by 1) or ceases (by -1) to hold its place. */
void counts_unit(struct core *c, const struct unit *w, int by);
/* The same for a moment, so that nodes can be compared as if the unit were not there: nobody is
 * woken. */
void counts_unit_quietly(struct core *c, const struct unit *w, int by);
/* Around a change of a node's labels: its units are uncounted, then counted in their new
 * domains. */
void counts_node_before(struct core *c, struct node_ix n);
void counts_node_after(struct core *c, struct node_ix n);
void counts_node_gone(struct core *c, struct node_ix n);
/* A new definition, or one that nobody uses any more. */
void counts_definition(struct core *c, uint32_t d, const Pb__Workload *w);
void counts_definition_gone(struct core *c, uint32_t d);
/* Takes a reference. labels: n pairs, each once. */
uint32_t counter_intern(struct core *c, const char *tenant,
                        Pb__Workload__LabelsEntry *const *labels, size_t n, const char *over);
void counter_unref(struct core *c, uint32_t counter);
uint32_t domain_of(const struct core *c, const struct counter *k, uint32_t node);
/* "app=web", for people. */
void match_text(const struct core *c, uint32_t match, struct str *out);

/* ---- what a class asks for ---- */

struct near {
        uint32_t counter;
        uint32_t weight; /* percent of utilisation that it counts for, if preferred */
        bool anti, preferred;
        bool self; /* the workload itself is matched */
};

struct spread {
        uint32_t counter, max_skew;
        bool preferred, self;
        /* The smallest count among the domains that have a node which this class could use, and in
         * how many of them it is; anew when `version` is old. */
        uint64_t version;
        uint64_t *eligible; /* a bit per domain */
        uint32_t n_words, n_eligible, min, at_min;
        bool min_known;
};

struct toleration {
        char *key, *value;
        uint8_t effect;
};
#define taint toleration /* the same shape */

struct constraints {
        struct toleration *tolerations;
        struct near *near;
        struct spread *spread;
        uint32_t *ports; /* protocol << 16 | port, sorted */
        uint32_t n_tolerations, n_near, n_spread, n_ports;
};

/* What makes a class differ from a plain one, as text for its key; nothing for plain ones. */
void constraints_key(const Pb__Workload *w, struct str *key);
void constraints_init(struct core *c, uint32_t class, const Pb__Workload *w);
void constraints_fini(struct core *c, uint32_t class);

/* Every reason that they give against this node, as bits. */
uint64_t constraints_against(const struct core *c, struct node_ix n, const struct definition *d);
/* What preferences that are not met cost there, in the units of ledger_utilisation(); 2^31 is as
 * much as a full node. */
uint64_t constraints_cost(const struct core *c, struct node_ix n, const struct definition *d);
/* Others' anti-affinity may keep it away: it cannot stand for its whole class. */
bool is_guarded(const struct core *c, const struct definition *d);
/* Neither constraints of its own nor of others: the columns say everything about it. */
bool is_plain(const struct core *c, const struct definition *d);
/* Masks of label bits of which a node must have at least one each; at most max. For speed only:
 * constraints_against() has the last word. */
uint32_t constraints_masks(struct core *c, const struct definition *d, uint64_t *masks,
                           uint32_t max);
/* The only nodes that required affinity leaves, if they are few: how many, or UINT32_MAX. */
uint32_t constraints_few(const struct core *c, const struct definition *d, uint32_t *nodes,
                         uint32_t max);
bool near_is_met(const struct core *c, uint32_t node, const struct near *a);
/* By how many the domain would exceed the emptiest, with the workload there. */
uint32_t spread_skew(const struct core *c, const struct class *k, struct spread *s,
                     uint32_t domain);
uint32_t spread_min(const struct core *c, const struct class *k, struct spread *s);

/* taints.c */
bool tolerates(const struct constraints *k, const struct taint *t);
bool taints_keep_away(const struct node *n, const struct constraints *k);
/* The unit does not tolerate a no_execute taint of its node. */
bool taints_drive_out(const struct core *c, const struct unit *w);
void taints_set(struct core *c, struct node_ix n, Pb__Taint *const *taints, size_t count);
void taints_free(struct node *n);
/* what a store holds may be damaged */
bool taints_are_sane(const Pb__Node *n);
/* node_record.c: as a record has them; in the step's memory */
void taints_record(struct core *c, const struct node *n, Pb__Node *r);

/* ports.c */
uint32_t port_key(const Pb__Port *p); /* 0: no host port */
void ports_hold(struct core *c, struct node_ix n, const uint32_t *ports, uint32_t count, int by);
/* The first of them that somebody on the node holds; 0: none. */
uint32_t ports_taken(const struct node *n, const uint32_t *ports, uint32_t count);
/* The first of them that is kept for somebody who waits for this node (preempt.c); 0: none. */
uint32_t ports_kept(const struct node *n, const uint32_t *ports, uint32_t count);
void ports_keep(struct node *n, const uint32_t *ports, uint32_t count, bool keep);
const char *port_text(uint32_t port);
bool host_port_is_taken(const struct node *n, const Pb__Workload *w);
/* A new definition of a unit that holds its place asks for no port that another one has. */
bool ports_fit_in_place(const struct core *c, const struct unit *w, const Pb__Workload *asked);
void ports_of_tombstone(struct core *c, struct tombstone *t, const uint32_t *ports, uint32_t n);

#endif
