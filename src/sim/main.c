/* sim/main.c: berth sim. */
#include "base/mem.h"
#include "base/str.h"
#include "sim/replay.h"
#include "sim/sim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHRINK_TRIES 600

struct command {
        struct sim_options opt;
        struct swarm_options swarm;
        bool many, shrink;
        uint64_t leaders; /* 2: two servers over one store (leaders.h) */
        const char *out, *replay;
        uint32_t *masked;
        uint32_t tries;
};

static int usage(const char *what)
{
        if (what)
                fprintf(stderr, "error: %s\n", what);
        fprintf(
            what ? stderr : stdout,
            "usage: berth sim [--seed N] [--nodes N] [--workloads N] [--hours H | --seconds S] [--faults LIST] [--swarm] "
            "[--check-always] [--verbose]\n"
            "       berth sim --seeds N [--jobs N] [--for TIME] [--fixed] [--shrink [--out FILE]] [--seed FIRST] ...\n"
            "       berth sim --shrink [--tries N] [--out FILE] --seed N ...\n"
            "       berth sim --leaders 2 [--seed N] [--seeds N] [--hours H]\n"
            "       berth sim --replay FILE\n"
            "Simulates a whole cluster from one seed; the last line is seed=S steps=N events=N hash=H violations=N.\n"
            "  --faults    of crash,partition,delay,dup,restart,disk,clock,oneway,reorder,lie,operator,twin,slow,runtime,drift,mass, or "
            "all, or none\n"
            "  --swarm     the seed also draws sizes (up to the given ones), faults (of the given ones) and settings; with --seeds "
            "this is so unless --fixed\n"
            "  --shrink    looks for a smaller run that breaks the same rule; --out keeps it in a file for --replay\n"
            "  --leaders   two servers over one store, cut and paused at every step; exclusive units never have two holders\n"
            "  --mask      leaves out faults by number: 0-4,9\n"
            "settings: --intensity --hostility --request-ms --cores-max --heartbeat-ms --silence-beats --evict-grace-ms "
            "--launch-grace-ms --pass-ms\n"
            "          --healthy-ms --list-ms --batch-ops --index-records --evict-per-second\n"
            "          --zones 5,4,3 --lose 5,0,0 --lose-ms: nodes of each zone, and how many of each are cut off after five minutes\n");
        return what ? 2 : 0;
}

static int flag(struct command *c, const char *name)
{
        if (strcmp(name, "check-always") == 0)
                c->opt.check_always = true;
        else if (strcmp(name, "verbose") == 0)
                c->opt.verbose = true;
        else if (strcmp(name, "swarm") == 0)
                c->opt.swarm = true;
        else if (strcmp(name, "fixed") == 0)
                c->swarm.fixed = true;
        else if (strcmp(name, "shrink") == 0)
                c->shrink = true;
        else
                return -1;
        return 0;
}

static int option(struct command *c, const char *name, const char *v)
{
        uint64_t n = 0;
        bool number = str_parse_u64(v, &n) == 0;
        if (strcmp(name, "seeds") == 0) {
                c->many = true;
                c->swarm.seeds = n;
                return number ? 0 : -1;
        }
        if (strcmp(name, "leaders") == 0) {
                c->leaders = n;
                return number && (n == 1 || n == 2) ? 0 : -1;
        }
        if (strcmp(name, "jobs") == 0) {
                c->swarm.jobs = (uint32_t)n;
                return number && n >= 1 && n <= 256 ? 0 : -1;
        }
        if (strcmp(name, "tries") == 0) {
                c->tries = (uint32_t)n;
                return number && n <= 1000000 ? 0 : -1;
        }
        if (strcmp(name, "for") == 0)
                return str_parse_duration_ms(v, &c->swarm.for_ms);
        if (strcmp(name, "mask") == 0)
                return replay_mask_parse(v, &c->masked, &c->opt.n_masked);
        if (strcmp(name, "out") == 0) {
                c->out = v;
                return 0;
        }
        if (strcmp(name, "replay") == 0) {
                c->replay = v;
                return 0;
        }
        return sim_options_set(&c->opt, name, v);
}

static int parse(int argc, char **argv, struct command *c)
{
        for (int i = 0; i < argc; i++) {
                const char *a = argv[i], *v = strchr(a, '=');
                char name[32];
                if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0)
                        return usage(NULL), 1;
                if (strncmp(a, "--", 2) != 0)
                        return usage(fmt("%s is not understood", a)), -1;
                if (flag(c, a + 2) == 0)
                        continue;
                snprintf(name, sizeof(name), "%.*s", (int)(v ? v - a - 2 : (ptrdiff_t)strlen(a + 2)), a + 2);
                v = v ? v + 1 : i + 1 < argc ? argv[++i] : NULL;
                if (!v)
                        return usage(fmt("%s needs a value", a)), -1;
                if (option(c, name, v) < 0)
                        return usage(fmt("--%s %s is not understood", name, v)), -1;
        }
        c->opt.masked = c->masked;
        return 0;
}

static double hours(int64_t ms)
{
        return (double)ms / 3600000;
}

static int run_single(const struct sim_options *opt)
{
        struct sim_result r;
        struct err err = { 0 };
        struct sim_options drawn = *opt;
        sim_options_draw(&drawn);
        sim_run(&drawn, &r, &err);
        double seconds = (double)r.real_ns / 1e9;
        if (r.violations) {
                struct str line = STR_INIT;
                sim_options_print(&drawn, &line);
                fprintf(stderr, "error: %s\n  %s\nhint: again with berth sim %s%s\n", err.msg, err.detail, str_c(&line),
                        drawn.n_masked ? " and its --mask" : "");
                str_fini(&line);
        }
        printf("requests=%llu starts=%llu faults=%llu server_starts=%llu commits=%llu launches_per_minute=%u\n",
               (unsigned long long)r.requests, (unsigned long long)r.starts, (unsigned long long)r.faults,
               (unsigned long long)r.restarts + 1, (unsigned long long)r.commits, r.launches_per_minute);
        printf("cluster_hours=%.2f seconds=%.3f cluster_hours_per_second=%.1f\n", hours(r.simulated_ms), seconds,
               hours(r.simulated_ms) / (seconds > 0 ? seconds : 1e-9));
        printf("seed=%llu steps=%llu events=%llu hash=%016llx violations=%u\n", (unsigned long long)opt->seed, (unsigned long long)r.steps,
               (unsigned long long)r.events, (unsigned long long)r.hash, r.violations);
        return r.violations ? 1 : 0;
}

static void print_unseen(uint64_t seen)
{
        uint32_t n = 0;
        for (uint32_t i = 0; i < sim_situations(); i++)
                n += seen >> i & 1;
        printf("situations=%u/%u", n, sim_situations());
        for (uint32_t i = 0; i < sim_situations(); i++)
                if (!(seen >> i & 1))
                        printf(" not-seen=%s", sim_situation(i));
        printf("\n");
}

static int run_many(const struct command *c)
{
        struct swarm_result r;
        swarm_run(&c->opt, &c->swarm, &r);
        double seconds = (double)r.real_ns / 1e9;
        if (r.failed && c->shrink) {
                struct sim_options opt = c->opt;
                opt.seed = r.first_failed;
                opt.swarm = !c->swarm.fixed;
                shrink(&opt, c->tries, c->out);
        }
        print_unseen(r.seen);
        printf("seeds=%llu failed=%llu cluster_hours=%.1f cluster_hours_per_second=%.1f steps=%llu events=%llu commits=%llu "
               "launches_per_minute=%u seconds=%.1f\n",
               (unsigned long long)r.seeds, (unsigned long long)r.failed, hours(r.simulated_ms),
               hours(r.simulated_ms) / (seconds > 0 ? seconds : 1e-9), (unsigned long long)r.steps, (unsigned long long)r.events,
               (unsigned long long)r.commits, r.launches_per_minute, seconds);
        return r.failed ? 1 : 0;
}

static int run_leaders(const struct command *c)
{
        struct leaders_result sum = { 0 };
        uint64_t failed = 0, first = c->opt.seed, n = c->many ? c->swarm.seeds : 1;
        for (uint64_t seed = first; seed < first + n; seed++) {
                struct leaders_result r;
                struct err err = { 0 };
                leaders_run(seed, c->opt.hours_ms, c->opt.verbose, &r, &err);
                if (r.violations) {
                        failed++;
                        fprintf(stderr, "error: %s: %s\n  again: berth sim --leaders 2 --seed %llu --seconds %lld\n", err.msg, err.detail,
                                (unsigned long long)seed, (long long)(c->opt.hours_ms / 1000));
                }
                if (!c->many)
                        printf("seed=%llu steps=%llu events=%llu hash=%016llx violations=%u\n", (unsigned long long)seed,
                               (unsigned long long)r.steps, (unsigned long long)r.events, (unsigned long long)r.hash, r.violations);
                sum.steps += r.steps, sum.events += r.events, sum.starts += r.starts, sum.commits += r.commits, sum.faults += r.faults;
                sum.leaders += r.leaders, sum.moves += r.moves, sum.refused += r.refused, sum.not_renewed += r.not_renewed;
                sum.paused += r.paused, sum.restores += r.restores, sum.blind += r.blind, sum.simulated_ms += r.simulated_ms;
        }
        printf("seeds=%llu failed=%llu cluster_hours=%.1f steps=%llu commits=%llu faults=%llu leaders=%llu exclusive_moves=%llu "
               "refused_commits=%llu not_renewed=%llu paused_steps=%llu restores=%llu blind=%llu starts=%llu\n",
               (unsigned long long)n, (unsigned long long)failed, hours(sum.simulated_ms), (unsigned long long)sum.steps,
               (unsigned long long)sum.commits, (unsigned long long)sum.faults, (unsigned long long)sum.leaders,
               (unsigned long long)sum.moves, (unsigned long long)sum.refused, (unsigned long long)sum.not_renewed,
               (unsigned long long)sum.paused, (unsigned long long)sum.restores, (unsigned long long)sum.blind,
               (unsigned long long)sum.starts);
        return failed ? 1 : 0;
}

int sim_main(int argc, char **argv)
{
        struct command c = { .swarm.jobs = 1, .tries = SHRINK_TRIES };
        struct err err = { 0 };
        sim_options_default(&c.opt);
        int r = parse(argc, argv, &c);
        if (r)
                r = r > 0 ? 0 : 2;
        else if (c.replay) {
                struct sim_options opt;
                uint32_t *masked = NULL;
                if (replay_read(c.replay, &opt, &masked, &err) < 0) {
                        fprintf(stderr, "error: %s\n  %s\n", err.msg, err.detail);
                        r = 2;
                } else {
                        opt.verbose = c.opt.verbose;
                        opt.check_always = c.opt.check_always;
                        r = run_single(&opt);
                        mem_free(masked);
                }
        } else if (c.leaders == 2)
                r = run_leaders(&c);
        else if (c.many)
                r = run_many(&c);
        else if (c.shrink) {
                r = shrink(&c.opt, c.tries, c.out) < 0 ? 0 : 1;
                if (r == 0)
                        printf("seed %llu does not fail\n", (unsigned long long)c.opt.seed);
        } else
                r = run_single(&c.opt);
        mem_free(c.masked);
        return r;
}
