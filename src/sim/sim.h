/* sim/sim.h: a whole cluster in one process, from one seed.
 *
 * The real core, the store interface, and the real agents' engines run under a simulated clock,
 * network and disk. Nothing depends on anything but the options: the same seed gives the same
 * events, byte for byte, with every compiler. Faults come from the seed as well. After every step
 * that changed something the numbered invariants of what changed are checked, now and then those of
 * everything (docs/invariants.md); at the end the faults stop, and the cluster must converge.
 *
 * Every fault has a number, so that a failing run can be made smaller by leaving single ones out.
 * One run uses one thread; runs share nothing.
 */
#ifndef BERTH_SIM_SIM_H
#define BERTH_SIM_SIM_H

#include "base/err.h"
#include "base/macros.h"
#include "base/str.h"

enum sim_fault {
        SIM_CRASH = 1,     /* machines and agents die and come back; jobs and services fail */
        SIM_PARTITION = 2, /* nodes are cut off, politely or silently */
        SIM_DELAY = 4,     /* slow network, now and then a slow commit */
        SIM_DUP = 8,       /* messages and requests arrive twice */
        SIM_RESTART = 16,  /* the server is killed and started again */
        /* commits with an unknown outcome, a store that is away, agents that cannot write */
        SIM_DISK = 32,
        SIM_CLOCK = 64,   /* wall clocks jump: the server's and the agents' */
        SIM_ONEWAY = 128, /* one direction of a link fails; what was sent stalls or is lost */
        /* requests overtake each other and come again late; an old stream speaks after a new one */
        SIM_REORDER = 256,
        SIM_LIE = 512,       /* agents that lie about what they run */
        SIM_OPERATOR = 1024, /* cordon, drain, disable, taint, forget */
        SIM_TWIN = 2048,     /* a second agent with the same node id */
        /* slow disks: every commit takes long for a while, agents stand still */
        SIM_SLOW = 4096,
        /* a machine's runtime turns out not to work, until its agent is started anew */
        SIM_RUNTIME = 8192,
        /* units and their records vanish, and others appear, behind an agent's back */
        SIM_DRIFT = 16384,
        /* whole zones, and all nodes at once, fall silent and are heard again at one moment */
        SIM_MASS = 32768,
        SIM_PAUSE =
            /* of several servers one stands still before any of its steps, or all of it but what
             * keeps its leadership alive */
        65536,
        SIM_BLIND = 131072,   /* its ways to the store fail one by one, and its key is removed */
        SIM_RESTORE = 262144, /* the shared store is put back from an older copy */
        SIM_ALL = 524287,
};

#define SIM_ZONES 8
#define SIM_SERVERS 5

struct sim_options {
        uint64_t seed;
        uint32_t nodes, workloads;
        uint32_t servers;  /* on one shared store; 0 or 1: one, with a store of its own */
        int64_t hours_ms;  /* simulated time with faults; convergence comes after it */
        uint32_t faults;   /* enum sim_fault, or-ed */
        bool verbose;      /* every event to standard output */
        bool check_always; /* all invariants after every step, not only of what changed */
        bool quiet;        /* no last events on standard error after a failure */
        bool want_numbers; /* of the faults, in the result */
        /* the seed also draws what follows, and nodes, workloads, hours_ms and faults up to the
         * given ones */
        bool swarm;
        /* 0: as the requirements say (the core's), or drawn from the seed */
        uint32_t intensity; /* faults come this much more often */
        uint32_t hostility; /* single messages are mistreated this much more often */
        int64_t request_ms; /* users ask something this often, on average */
        int64_t cores_max;  /* of a machine: few make a crowded cluster */
        int64_t heartbeat_ms, silence_beats, evict_grace_ms, launch_grace_ms, pass_ms, healthy_ms,
            list_ms, batch_ops;
        bool index_records;
        uint32_t exclusive; /* so many of a hundred workloads must not run twice */
        uint32_t evict_per_second;
        /* what happens if zone b burns? Sizes of the zones a, b, ...; and how many nodes of each
         * are cut off together, after five minutes, for lose_ms */
        uint32_t zones[SIM_ZONES], lose[SIM_ZONES];
        int64_t lose_ms;
        /* faults left out, by number, ascending; the caller's */
        const uint32_t *masked;
        size_t n_masked;
};
void sim_options_default(struct sim_options *opt);
/* Replaces swarm by what the seed draws: the same run, with everything spelled out. */
void sim_options_draw(struct sim_options *opt);
/* --seed 7 --nodes 3 ...: what gives this run again; without the masked faults. */
void sim_options_print(const struct sim_options *opt, struct str *out);
/* One option by its name on the command line ("nodes", "heartbeat-ms"). 0, or -1: unknown, or not a
 * value for it. */
int sim_options_set(struct sim_options *opt, const char *name, const char *value);
/* "crash", "all"...; 0, or -1. */
int sim_faults_parse(const char *text, uint32_t *ret);

struct sim_result {
        uint64_t steps, events, hash, starts, restarts, faults, requests, commits;
        int64_t simulated_ms, real_ns;
        uint32_t violations;
        /* the most that one workload was launched within a minute without anybody asking */
        uint32_t launches_per_minute;
        uint64_t seen;    /* the situations that it came into: see sim_situation() */
        uint32_t planned; /* planned faults are numbered from 0 up to below this */
        /* if wanted: of the other faults that happened, ascending; the caller's, to be freed with
         * mem_free() */
        uint32_t *numbers;
        size_t n_numbers;
};

/* 0: ran, and result says what came of it; err has the first violation if there was one. */
int sim_run(const struct sim_options *opt, struct sim_result *ret, struct err *err);

/* What a run can come into, by number, from 0 up to below sim_situations(). */
uint32_t sim_situations(void);
const char *sim_situation(uint32_t i);

/* berth sim: argv after the verb. Returns the exit status. */
int sim_main(int argc, char **argv);

/* ---- many seeds (swarm.c) ---- */

/* One seed in a process of its own: a crash is a failure of that seed. */
struct sim_verdict {
        uint64_t seed;
        struct sim_result result;
        char what[1024]; /* empty: no violation */
};
void sim_run_apart(const struct sim_options *opt, struct sim_verdict *ret);

struct swarm_options {
        uint64_t seeds;
        uint32_t jobs;
        int64_t for_ms; /* stop after this much real time; 0: never */
        bool fixed;     /* every seed with the same configuration */
};
struct swarm_result {
        uint64_t seeds, failed, steps, events, commits;
        uint64_t seen; /* by any of them */
        int64_t simulated_ms, real_ns;
        uint64_t first_failed; /* seed */
        uint32_t launches_per_minute;
};
void swarm_run(const struct sim_options *opt, const struct swarm_options *swarm,
               struct swarm_result *ret);

/* ---- a smaller failing run (shrink.c) ---- */

/* Tries at most `tries` runs; writes the smallest failing one to path (NULL: not). Prints what it
 * does. 0: found; -1: the run does not fail at all. */
int shrink(const struct sim_options *opt, uint32_t tries, const char *path);
/* Reads a replay file. masked points into *ret_memory (mem_free). */
int replay_read(const char *path, struct sim_options *opt, uint32_t **ret_memory, struct err *err);

#endif
