/* sim/options.c: what a run is made of: by name, as text, and drawn from the seed.
 *
 * In a swarm every seed has its own configuration: a fault that is always there hides what only
 * happens without it, and a default that is never changed hides what depends on it.
 */
#include "base/clock.h"
#include "base/map.h"
#include "sim/sim.h"
#include <stdlib.h>
#include <string.h>

#define HOUR_MS INT64_C(3600000)

static const struct {
        const char *name;
        uint32_t fault;
} fault_names[] = {
        { "crash", SIM_CRASH },
        { "partition", SIM_PARTITION },
        { "delay", SIM_DELAY },
        { "dup", SIM_DUP },
        { "restart", SIM_RESTART },
        { "disk", SIM_DISK },
        { "clock", SIM_CLOCK },
        { "oneway", SIM_ONEWAY },
        { "reorder", SIM_REORDER },
        { "lie", SIM_LIE },
        { "operator", SIM_OPERATOR },
        { "twin", SIM_TWIN },
        { "slow", SIM_SLOW },
        { "runtime", SIM_RUNTIME },
        { "drift", SIM_DRIFT },
        { "mass", SIM_MASS },
        { "pause", SIM_PAUSE },
        { "blind", SIM_BLIND },
        { "restore", SIM_RESTORE },
        { "all", SIM_ALL },
        { "none", 0 },
};

int sim_faults_parse(const char *text, uint32_t *ret)
{
        uint32_t faults = 0;
        char *copy = strdup(text), *save = NULL;
        int r = 0;
        for (char *word = strtok_r(copy, ",", &save); word && r == 0;
             word = strtok_r(NULL, ",", &save)) {
                size_t i = 0;
                while (i < ARRAY_LEN(fault_names) && strcmp(fault_names[i].name, word) != 0)
                        i++;
                if (i == ARRAY_LEN(fault_names))
                        r = -1;
                else
                        faults |= fault_names[i].fault;
        }
        free(copy);
        if (r == 0)
                *ret = faults;
        return r;
}

static void print_faults(uint32_t faults, struct str *out)
{
        if (faults == SIM_ALL || faults == 0) {
                str_adds(out, faults ? "all" : "none");
                return;
        }
        bool first = true;
        for (size_t i = 0; i < ARRAY_LEN(fault_names); i++)
                if (fault_names[i].fault != SIM_ALL && faults & fault_names[i].fault) {
                        str_addf(out, "%s%s", first ? "" : ",", fault_names[i].name);
                        first = false;
                }
}

void sim_options_default(struct sim_options *opt)
{
        *opt = (struct sim_options){
                .seed = 1, .nodes = 10, .workloads = 100, .hours_ms = HOUR_MS, .faults = SIM_ALL
        };
}

/* Whole numbers by name. The bounds keep a mistyped one from running for days. */
#define NUMBERS(X)                                                                                 \
        X("seed", seed, 0, UINT64_MAX)                                                             \
        X("nodes", nodes, 1, 10000)                                                                \
        X("workloads", workloads, 0, 1000000)                                                      \
        X("servers", servers, 0, SIM_SERVERS)                                                      \
        X("intensity", intensity, 0, 1000)                                                         \
        X("hostility", hostility, 0, 100)                                                          \
        X("request-ms", request_ms, 0, HOUR_MS)                                                    \
        X("cores-max", cores_max, 0, 1024)                                                         \
        X("heartbeat-ms", heartbeat_ms, 0, HOUR_MS)                                                \
        X("silence-beats", silence_beats, 0, 100)                                                  \
        X("evict-grace-ms", evict_grace_ms, 0, HOUR_MS)                                            \
        X("launch-grace-ms", launch_grace_ms, 0, HOUR_MS)                                          \
        X("pass-ms", pass_ms, 0, HOUR_MS)                                                          \
        X("healthy-ms", healthy_ms, 0, HOUR_MS)                                                    \
        X("list-ms", list_ms, 0, HOUR_MS)                                                          \
        X("batch-ops", batch_ops, 0, 100000)                                                       \
        X("index-records", index_records, 0, 1)                                                    \
        X("exclusive", exclusive, 0, 100)                                                          \
        X("evict-per-second", evict_per_second, 0, 1000000)                                        \
        X("lose-ms", lose_ms, 0, HOUR_MS)

/* "5,4,3" */
static int parse_zones(const char *text, uint32_t *ret)
{
        uint32_t sizes[SIM_ZONES] = { 0 };
        for (size_t i = 0; *text; i++) {
                char *end = NULL;
                unsigned long n = strtoul(text, &end, 10);
                if (i == SIM_ZONES || end == text || n > 10000 || (*end && *end != ','))
                        return -1;
                sizes[i] = (uint32_t)n;
                text = *end ? end + 1 : end;
        }
        memcpy(ret, sizes, sizeof(sizes));
        return 0;
}

static void print_zones(const char *name, const uint32_t *sizes, struct str *out)
{
        uint32_t any = 0;
        for (size_t i = 0; i < SIM_ZONES; i++)
                any |= sizes[i];
        for (size_t i = 0; any && i < SIM_ZONES; i++)
                str_addf(out, "%s%s%u", i ? "," : " --", i ? "" : fmt("%s ", name), sizes[i]);
}

int sim_options_set(struct sim_options *opt, const char *name, const char *value)
{
        uint64_t n = 0;
        int64_t milli;
        if (strcmp(name, "faults") == 0)
                return sim_faults_parse(value, &opt->faults);
        if (strcmp(name, "zones") == 0)
                return parse_zones(value, opt->zones);
        if (strcmp(name, "lose") == 0)
                return parse_zones(value, opt->lose);
        if (strcmp(name, "hours") == 0) {
                if (str_parse_milli(value, &milli) < 0 || milli <= 0 || milli > INT64_C(100000000))
                        return -1;
                opt->hours_ms = milli * (HOUR_MS / 1000);
                return 0;
        }
        if (str_parse_u64(value, &n) < 0)
                return -1;
        if (strcmp(name, "seconds") == 0 && n > 0 && n < UINT32_MAX) {
                opt->hours_ms = (int64_t)n * 1000;
                return 0;
        }
#define X(text, field, least, most)                                                                \
        if (strcmp(name, text) == 0) {                                                             \
                if (n - (least) > (uint64_t)(most) - (least)) /* below least it wraps around */    \
                        return -1;                                                                 \
                opt->field = (__typeof__(opt->field))n;                                            \
                return 0;                                                                          \
        }
        NUMBERS(X)
#undef X
        return -1;
}

void sim_options_print(const struct sim_options *opt, struct str *out)
{
        bool first = true;
#define X(text, field, least, most)                                                                \
        if ((uint64_t)opt->field != 0 || least > 0 || strcmp(text, "seed") == 0 ||                 \
            strcmp(text, "workloads") == 0) {                                                      \
                str_addf(out, "%s--" text " %llu", first ? "" : " ",                               \
                         (unsigned long long)opt->field);                                          \
                first = false;                                                                     \
        }
        NUMBERS(X)
#undef X
        print_zones("zones", opt->zones, out);
        print_zones("lose", opt->lose, out);
        str_addf(out, " --seconds %lld --faults ", (long long)(opt->hours_ms / 1000));
        print_faults(opt->faults, out);
        if (opt->swarm)
                str_adds(out, " --swarm");
}

/* ---- drawing ---- */

static int64_t one_of(struct rng *r, const int64_t *list, size_t n)
{
        return list[rng_below(r, n)];
}
#define ONE_OF(r, ...)                                                                             \
        one_of(r, (const int64_t[]){ __VA_ARGS__ }, ARRAY_LEN(((const int64_t[]){ __VA_ARGS__ })))

static int64_t between(struct rng *r, int64_t low, int64_t high)
{
        return high <= low ? high : low + (int64_t)rng_below(r, (uint64_t)(high - low + 1));
}

static uint32_t draw_faults(struct rng *r, uint32_t given)
{
        uint64_t how = rng_below(r, 100);
        uint32_t faults = 0;
        if (how < 10)
                return given;
        if (how < 13)
                return 0;
        for (uint32_t bit = 1; bit < SIM_MASS; bit <<= 1)
                if (rng_chance(r, how < 50 ? 250000 : 500000))
                        faults |= bit;
        return faults & given;
}

/* Mostly one, with a store of its own. Where there are several, leases are to be what is waited
 * for, so the other times are short. */
static void draw_servers(struct sim_options *opt, struct rng *r, uint32_t given)
{
        const uint32_t several = SIM_PAUSE | SIM_BLIND | SIM_RESTORE;
        opt->faults &= ~several;
        if (!opt->servers) {
                opt->servers = (uint32_t)ONE_OF(r, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3);
                opt->exclusive = opt->servers == 1 && rng_chance(r, 333333) ? 50 : opt->exclusive;
        }
        if (opt->servers < 2)
                return;
        opt->exclusive = opt->exclusive ? opt->exclusive : (uint32_t)ONE_OF(r, 30, 70, 100);
        opt->faults |=
            given & (uint32_t)ONE_OF(r, SIM_PAUSE, SIM_BLIND, SIM_PAUSE | SIM_BLIND, several);
        if (rng_chance(r, 200000))
                return;
        opt->intensity = (uint32_t)ONE_OF(r, 10, 30, 60, 120);
        opt->request_ms = ONE_OF(r, 2000, 4000, 10000);
        opt->heartbeat_ms = 1000;
        opt->silence_beats = 3;
        opt->evict_grace_ms = 500;
        opt->launch_grace_ms = 3000;
        opt->list_ms = 5000;
}

void sim_options_draw(struct sim_options *opt)
{
        struct rng r;
        if (!opt->swarm)
                return;
        rng_seed(&r, hash64_mix(opt->seed, 0x7377));
        opt->swarm = false;
        opt->nodes = (uint32_t)between(&r,
                                       rng_chance(&r, 100000) ? 1
                                       : opt->nodes < 3       ? opt->nodes
                                                              : 3,
                                       opt->nodes);
        opt->workloads = (uint32_t)between(&r, opt->workloads / 4, opt->workloads);
        opt->hours_ms = between(&r, opt->hours_ms / 3000, opt->hours_ms / 1000) * 1000;
        uint32_t given = opt->faults;
        opt->faults = draw_faults(&r, opt->faults);
        opt->intensity = (uint32_t)ONE_OF(&r, 1, 4, 10, 30, 60, 120);
        opt->hostility = (uint32_t)ONE_OF(&r, 1, 1, 5, 20);
        opt->request_ms = ONE_OF(&r, 2000, 10000, 30000, 60000);
        opt->cores_max = ONE_OF(&r, 2, 4, 16, 16);
        opt->heartbeat_ms = ONE_OF(&r, 5000, 10000, 10000, 20000);
        opt->silence_beats = ONE_OF(&r, 2, 3, 3, 5);
        opt->evict_grace_ms = ONE_OF(&r, 30000, 60000, 60000, 120000);
        opt->launch_grace_ms = ONE_OF(&r, 5000, 15000, 15000, 30000);
        opt->pass_ms = ONE_OF(&r, 1000, 5000, 5000, 60000);
        opt->healthy_ms = ONE_OF(&r, 20000, 60000, 300000);
        opt->list_ms = ONE_OF(&r, 15000, 60000);
        opt->batch_ops = ONE_OF(&r, 120, 256, 512, 2048);
        opt->index_records = rng_chance(&r, 250000);
        bool mass = rng_chance(&r, 400000); /* drawn last: what came before is as it always was */
        opt->faults = mass ? opt->faults | (given & SIM_MASS) : opt->faults & ~(uint32_t)SIM_MASS;
        opt->evict_per_second = (uint32_t)ONE_OF(&r, 1, 2, 20, 20);
        draw_servers(opt, &r, given);
}
