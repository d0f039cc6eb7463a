/* sim/shrink.c: a failing run made smaller, and kept in a file.
 *
 * First what is large: kinds of faults, time, workloads, nodes, unusual settings. Then single
 * faults, by halves. A smaller run counts only if it breaks the same rule. Every try is a process
 * of its own, so that a crash can be made smaller as well.
 */
#include "base/array.h"
#include "base/mem.h"
#include "sim/replay.h"
#include "sim/sim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shrinking {
        struct sim_options best;
        ARRAY(uint32_t) masked;
        struct sim_verdict verdict; /* of the best */
        uint32_t tries, max_tries;
};

/* The rule that was broken, without the details. */
static size_t rule_len(const char *what)
{
        const char *rest = strchr(what, ':');
        rest = rest ? strchr(rest + 1, ':') : NULL;
        return rest ? (size_t)(rest - what) : strlen(what);
}

static bool same_rule(const char *a, const char *b)
{
        return rule_len(a) == rule_len(b) && strncmp(a, b, rule_len(a)) == 0;
}

static bool still_fails(struct shrinking *h, const struct sim_options *opt)
{
        struct sim_verdict v;
        if (h->tries >= h->max_tries)
                return false;
        h->tries++;
        sim_run_apart(opt, &v);
        if (!v.result.violations || !same_rule(v.what, h->verdict.what)) {
                mem_free(v.result.numbers);
                return false;
        }
        mem_free(h->verdict.result.numbers);
        h->verdict = v;
        h->best = *opt;
        return true;
}

#define TRY(h, ...)                                                                                \
        ({                                                                                         \
                struct sim_options o = (h)->best;                                                  \
                __VA_ARGS__;                                                                       \
                still_fails(h, &o);                                                                \
        })

static bool shrink_large(struct shrinking *h)
{
        bool better = false;
        for (uint32_t bit = 1; bit < SIM_ALL; bit <<= 1)
                if (h->best.faults & bit)
                        better |= TRY(h, o.faults &= ~bit);
        while (h->best.hours_ms > 20000 && TRY(h, o.hours_ms = o.hours_ms / 2000 * 1000))
                better = true;
        while (h->best.hours_ms > 20000 && TRY(h, o.hours_ms = o.hours_ms * 4 / 5000 * 1000))
                better = true;
        while (h->best.servers > 1 && TRY(h, o.servers--))
                better = true;
        while (h->best.workloads > 1 && TRY(h, o.workloads /= 2))
                better = true;
        while (h->best.workloads > 1 && TRY(h, o.workloads--))
                better = true;
        while (h->best.nodes > 1 && TRY(h, o.nodes = (o.nodes + 1) / 2))
                better = true;
        while (h->best.nodes > 1 && TRY(h, o.nodes--))
                better = true;
        return better;
}

/* What is as the requirements say needs no explanation. */
static void shrink_settings(struct shrinking *h)
{
        if (h->best.hostility > 1)
                TRY(h, o.hostility = 1);
        if (h->best.exclusive)
                TRY(h, o.exclusive = 0);
        if (h->best.index_records)
                TRY(h, o.index_records = false);
        if (h->best.batch_ops)
                TRY(h, o.batch_ops = 0);
        if (h->best.pass_ms)
                TRY(h, o.pass_ms = 0);
        if (h->best.list_ms)
                TRY(h, o.list_ms = 0);
        if (h->best.healthy_ms)
                TRY(h, o.healthy_ms = 0);
        if (h->best.launch_grace_ms)
                TRY(h, o.launch_grace_ms = 0);
        if (h->best.evict_grace_ms)
                TRY(h, o.evict_grace_ms = 0);
        if (h->best.silence_beats)
                TRY(h, o.silence_beats = 0);
        if (h->best.heartbeat_ms)
                TRY(h, o.heartbeat_ms = 0);
        if (h->best.cores_max)
                TRY(h, o.cores_max = 0);
        if (h->best.request_ms)
                TRY(h, o.request_ms = 0);
}

static int by_number(const void *a, const void *b)
{
        uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
        return x < y ? -1 : x > y;
}

/* Leaves out these faults as well, if it then still fails. */
static bool leave_out(struct shrinking *h, const uint32_t *numbers, size_t n)
{
        size_t before = h->masked.len;
        ARRAY(uint32_t) with = { 0 };
        array_reserve(&with, before + n);
        if (before)
                memcpy(with.at, h->masked.at, before * sizeof(uint32_t));
        memcpy(with.at + before, numbers, n * sizeof(uint32_t));
        with.len = before + n;
        qsort(with.at, with.len, sizeof(uint32_t), by_number);
        struct sim_options o = h->best;
        o.masked = with.at;
        o.n_masked = with.len;
        if (!still_fails(h, &o)) {
                array_fini(&with);
                return false;
        }
        array_fini(&h->masked);
        h->masked.at = with.at;
        h->masked.len = with.len;
        h->masked.cap = with.cap;
        h->best.masked = h->masked.at;
        return true;
}

static void shrink_faults(struct shrinking *h, uint32_t *numbers, size_t n)
{
        for (size_t chunk = n; chunk >= 1; chunk /= 2) {
                for (size_t i = 0; i < n;) {
                        size_t len = n - i < chunk ? n - i : chunk;
                        if (leave_out(h, numbers + i, len)) {
                                memmove(numbers + i, numbers + i + len,
                                        (n - i - len) * sizeof(*numbers));
                                n -= len;
                        } else
                                i += len;
                }
        }
}

static void shrink_planned(struct shrinking *h)
{
        uint32_t n = h->verdict.result.planned;
        uint32_t *numbers = mem_must((n + 1) * sizeof(*numbers));
        for (uint32_t i = 0; i < n; i++)
                numbers[i] = i;
        shrink_faults(h, numbers, n);
        mem_free(numbers);
}

static void shrink_small(struct shrinking *h)
{
        size_t n = h->verdict.result.n_numbers;
        uint32_t *numbers = mem_must((n + 1) * sizeof(*numbers));
        if (n)
                memcpy(numbers, h->verdict.result.numbers, n * sizeof(*numbers));
        shrink_faults(h, numbers, n);
        mem_free(numbers);
}

static void report(const struct shrinking *h, const char *path)
{
        struct str line = STR_INIT;
        sim_options_print(&h->best, &line);
        if (h->best.n_masked) {
                str_adds(&line, " --mask ");
                replay_mask_print(h->best.masked, h->best.n_masked, &line);
        }
        printf("after %u tries: %u nodes, %u workloads, %lld s, %zu faults left out\n%s\nberth sim "
               "%s\n",
               h->tries, h->best.nodes, h->best.workloads, (long long)(h->best.hours_ms / 1000),
               h->best.n_masked, h->verdict.what, str_c(&line));
        if (path && replay_write(path, &h->best, h->verdict.what) < 0)
                fprintf(stderr, "error: %s cannot be written\n", path);
        else if (path)
                printf("kept in %s: berth sim --replay %s\n", path, path);
        str_fini(&line);
}

int shrink(const struct sim_options *opt, uint32_t tries, const char *path)
{
        struct shrinking h = { .best = *opt, .max_tries = tries };
        /* spelled out, so that each part can be made smaller by itself */
        sim_options_draw(&h.best);
        h.best.quiet = h.best.want_numbers = true;
        sim_run_apart(&h.best, &h.verdict);
        if (!h.verdict.result.violations) {
                mem_free(h.verdict.result.numbers);
                return -1;
        }
        printf("seed %llu: %s\n", (unsigned long long)opt->seed, h.verdict.what);
        fflush(stdout);
        while (shrink_large(&h))
                ;
        shrink_settings(&h);
        shrink_planned(&h);
        shrink_small(&h);
        report(&h, path);
        mem_free(h.verdict.result.numbers);
        array_fini(&h.masked);
        return 0;
}
