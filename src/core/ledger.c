/* core/ledger.c: see ledger.h. */
#include "core/ledger.h"
#include "base/mutant.h"

static int64_t add_checked(int64_t a, int64_t b)
{
        int64_t r;
        must(!__builtin_add_overflow(a, b, &r), "L2: a sum of amounts overflows");
        return r;
}

static int64_t mul_checked(int64_t a, int64_t b)
{
        int64_t r;
        must(!__builtin_mul_overflow(a, b, &r), "L2: an amount overflows");
        return r;
}

#define CPU_MAX INT64_C(1000000000)
#define MEMORY_MB_MAX (INT64_C(1) << 40)
#define DISK_GB_MAX (INT64_C(1) << 30)
/* twice the largest node: what is free, kept and asked for can still be added and compared */
#define SUM_MAX (INT64_C(1) << 61)

static bool within(int64_t v, int64_t max)
{
        return v >= 0 && v <= max;
}

bool resources_are_sane(const Pb__Resources *r)
{
        return !r || (within(r->cpu, CPU_MAX) && within(r->memory_mb, MEMORY_MB_MAX) &&
                      within(r->disk_gb, DISK_GB_MAX));
}

bool node_resources_are_sane(const Pb__NodeResources *r)
{
        return r && within(r->cpu_total, CPU_MAX) && within(r->memory_total, MEMORY_MB_MAX) &&
               within(r->disk_total, DISK_GB_MAX);
}

struct amounts amounts_of(const Pb__Resources *r)
{
        if (!r)
                return (struct amounts){ 0 };
        return (struct amounts){ r->cpu, mul_checked(r->memory_mb, MIB),
                                 mul_checked(r->disk_gb, GIB) };
}

Pb__Resources amounts_to_resources(struct amounts a)
{
        Pb__Resources r = PB__RESOURCES__INIT;
        r.cpu = a.cpu_milli;
        r.memory_mb = a.mem_bytes / MIB;
        r.disk_gb = a.disk_bytes / GIB;
        return r;
}

struct amounts amounts_add(struct amounts a, struct amounts b)
{
        return (struct amounts){ add_checked(a.cpu_milli, b.cpu_milli),
                                 add_checked(a.mem_bytes, b.mem_bytes),
                                 add_checked(a.disk_bytes, b.disk_bytes) };
}

static bool sum_is_sane(int64_t a, int64_t b)
{
        int64_t r;
        return !__builtin_add_overflow(a, b, &r) && r <= SUM_MAX;
}

bool amounts_can_add(struct amounts a, struct amounts b)
{
        return sum_is_sane(a.cpu_milli, b.cpu_milli) && sum_is_sane(a.mem_bytes, b.mem_bytes) &&
               sum_is_sane(a.disk_bytes, b.disk_bytes);
}

struct amounts amounts_sub(struct amounts a, struct amounts b)
{
        return amounts_add(a, (struct amounts){ -b.cpu_milli, -b.mem_bytes, -b.disk_bytes });
}

bool amounts_fit(struct amounts need, struct amounts free)
{
        return need.cpu_milli <= free.cpu_milli && need.mem_bytes <= free.mem_bytes &&
               need.disk_bytes <= free.disk_bytes;
}

bool amounts_equal(struct amounts a, struct amounts b)
{
        return a.cpu_milli == b.cpu_milli && a.mem_bytes == b.mem_bytes &&
               a.disk_bytes == b.disk_bytes;
}

void ledger_reserve(struct ledger *l, struct amounts a)
{
        l->reserved = amounts_add(l->reserved, a);
}

void ledger_release(struct ledger *l, struct amounts a)
{
        l->reserved = amounts_sub(l->reserved, a);
        must(l->reserved.cpu_milli >= 0 && l->reserved.mem_bytes >= 0 &&
                 l->reserved.disk_bytes >= 0,
             "L2: released more than was reserved");
}

struct amounts ledger_free(const struct ledger *l)
{
        return amounts_sub(l->total, l->reserved);
}

static int64_t ratio(int64_t part, int64_t whole)
{
        if (whole <= 0)
                return UTIL_ONE;
        __int128 r = (__int128)part * UTIL_ONE / whole;
        if (MUTANT(utilisation_overflow))
                r = (int64_t)((uint64_t)part * (uint64_t)UTIL_ONE) / whole;
        return r >= UTIL_ONE ? UTIL_ONE : (int64_t)r;
}

uint32_t ledger_utilisation(const struct ledger *l)
{
        int64_t u = ratio(l->reserved.cpu_milli, l->total.cpu_milli) +
                    ratio(l->reserved.mem_bytes, l->total.mem_bytes);
        return u > INT32_MAX ? (uint32_t)INT32_MAX : (uint32_t)u;
}
