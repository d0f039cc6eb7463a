/* cli/doctor_rules.h: what is wrong, and what to do about it: rules over facts that somebody else
 * has fetched. Pure. */
#ifndef BERTH_CLI_DOCTOR_RULES_H
#define BERTH_CLI_DOCTOR_RULES_H

#include "api.pb-c.h"
#include "base/arena.h"
#include "base/array.h"
#include "base/err.h"

struct doctor_facts {
        const char *address, *version; /* where the server should be; this program's version */
        const struct err *unreachable; /* NULL: it answered */
        /* this machine's clock when the answer came, and how long that took */
        int64_t now_ms, took_ms;
        const Pb__ClusterInfo *cluster;
        Pb__Node *const *nodes;
        size_t n_nodes;
        /* those that are Pending, Failed, RetryPending or Unknown */
        Pb__Workload *const *workloads;
        size_t n_workloads;
        struct { /* this machine */
                int64_t open_files_limit;
                bool has_podman, has_docker, has_cgroup2, has_qemu, has_kvm;
        } local;
};

enum finding_level {
        FINDING_OK,      /* looked at, and fine */
        FINDING_NOTE,    /* good to know */
        FINDING_PROBLEM, /* makes the exit status 1 */
};
struct finding {
        enum finding_level level;
        const char *check;  /* a word that stays the same: "node-lost" */
        const char *what;   /* one sentence */
        const char *advice; /* what to do next; NULL for FINDING_OK */
};
struct findings {
        struct finding *at;
        size_t len, cap;
};
/* Texts live in the arena. Problems first, then notes, then what is fine. */
void doctor_examine(const struct doctor_facts *facts, struct arena *arena, struct findings *ret);

#endif
