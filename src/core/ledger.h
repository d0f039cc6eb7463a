/* core/ledger.h: what a node has and what is promised to units (requirement A7, E1).
 *
 * Amounts are thousandths of a cpu, bytes of memory and bytes of disk. Reservations count, never
 * last minute's usage. Invariants:
 *   (L1) reserved is the exact sum over the units and tombstones that hold capacity on the node.
 *   (L2) reserved never becomes negative; arithmetic that would overflow ends the process rather
 *   than the truth. (L3) placement never makes reserved exceed total; only a node that registers
 *   anew with less can be over.
 */
#ifndef BERTH_CORE_LEDGER_H
#define BERTH_CORE_LEDGER_H

#include "base/macros.h"
#include "records.pb-c.h"

#define MIB (INT64_C(1) << 20)
#define GIB (INT64_C(1) << 30)

struct amounts {
        int64_t cpu_milli, mem_bytes, disk_bytes;
};

struct ledger {
        struct amounts total, reserved;
};

/* Within what validation lets through (see model/rules.c), so that no sum over a node can overflow.
 * For what comes from a store. */
bool resources_are_sane(const Pb__Resources *r);          /* NULL: nothing, which is sane */
bool node_resources_are_sane(const Pb__NodeResources *r); /* NULL is not */
struct amounts amounts_of(const Pb__Resources *r);        /* NULL: nothing */
Pb__Resources amounts_to_resources(struct amounts a);
struct amounts amounts_add(struct amounts a, struct amounts b); /* checked */
struct amounts amounts_sub(struct amounts a, struct amounts b); /* checked */
/* without overflow, now or when it is compared with what is free */
bool amounts_can_add(struct amounts a, struct amounts b);
bool amounts_fit(struct amounts need, struct amounts free);
bool amounts_equal(struct amounts a, struct amounts b);

void ledger_reserve(struct ledger *l, struct amounts a);
void ledger_release(struct ledger *l, struct amounts a);
struct amounts ledger_free(const struct ledger *l); /* may be negative after (L3) */

/* Utilisation as an integer: reserved/total of cpu plus of memory, each in 2^30ths, rounded down. 0
 * (empty) to 2^31 - 1 (clamped). A total of zero counts as full. */
#define UTIL_ONE (INT64_C(1) << 30)
uint32_t ledger_utilisation(const struct ledger *l);

#endif
