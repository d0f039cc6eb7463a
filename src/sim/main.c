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
        const char *out, *replay;
        uint32_t *masked;
        uint32_t tries;
};

static int usage(const char *what)
{
        if (what)
                fprintf(stderr, "error: %s\n", what);
        fprintf(what ? stderr : stdout,
                "usage: berth sim [--seed N] [--servers N] [--nodes N] [--workloads N] [--hours H "
                "| --seconds S] [--faults LIST] "
                "[--swarm] [--check-always] [--verbose]\n"
                "       berth sim --seeds N [--jobs N] [--for TIME] [--fixed] [--shrink [--out "
                "FILE]] [--seed FIRST] ...\n"
                "       berth sim --shrink [--tries N] [--out FILE] --seed N ...\n"
                "       berth sim --replay FILE\n"
                "Simulates a whole cluster from one seed; the last line is seed=S steps=N events=N "
                "hash=H violations=N.\n"
                "  --servers   so many on one shared store: leaders that are paused and cut off at "
                "every step; 1: a store of its own\n"
                "  --faults    of "
                "crash,partition,delay,dup,restart,disk,clock,oneway,reorder,lie,operator,twin,"
                "slow,runtime,drift,mass, or "
                "all, or none;\n"
                "              of several servers also pause,blind,restore\n"
                "  --swarm     the seed also draws sizes (up to the given ones), faults (of the "
                "given ones) and settings; with --seeds "
                "this is so unless --fixed\n"
                "  --shrink    looks for a smaller run that breaks the same rule; --out keeps it "
                "in a file for --replay\n"
                "  --mask      leaves out faults by number: 0-4,9\n"
                "settings: --intensity --hostility --request-ms --cores-max --heartbeat-ms "
                "--silence-beats --evict-grace-ms "
                "--launch-grace-ms --pass-ms\n"
                "          --healthy-ms --list-ms --batch-ops --index-records --evict-per-second\n"
                "          --exclusive: so many of a hundred workloads must not run twice\n"
                "          --zones 5,4,3 --lose 5,0,0 --lose-ms: nodes of each zone, and how many "
                "of each are cut off after five minutes\n");
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
                snprintf(name, sizeof(name), "%.*s",
                         (int)(v ? v - a - 2 : (ptrdiff_t)strlen(a + 2)), a + 2);
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
                fprintf(stderr, "error: %s\n  %s\nhint: again with berth sim %s%s\n", err.msg,
                        err.detail, str_c(&line), drawn.n_masked ? " and its --mask" : "");
                str_fini(&line);
        }
        printf("requests=%llu starts=%llu faults=%llu server_starts=%llu commits=%llu "
               "launches_per_minute=%u\n",
               (unsigned long long)r.requests, (unsigned long long)r.starts,
               (unsigned long long)r.faults, (unsigned long long)r.restarts + 1,
               (unsigned long long)r.commits, r.launches_per_minute);
        printf("cluster_hours=%.2f seconds=%.3f cluster_hours_per_second=%.1f\n",
               hours(r.simulated_ms), seconds,
               hours(r.simulated_ms) / (seconds > 0 ? seconds : 1e-9));
        printf("seed=%llu steps=%llu events=%llu hash=%016llx violations=%u\n",
               (unsigned long long)opt->seed, (unsigned long long)r.steps,
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
        printf("seeds=%llu failed=%llu cluster_hours=%.1f cluster_hours_per_second=%.1f steps=%llu "
               "events=%llu commits=%llu "
               "launches_per_minute=%u seconds=%.1f\n",
               (unsigned long long)r.seeds, (unsigned long long)r.failed, hours(r.simulated_ms),
               hours(r.simulated_ms) / (seconds > 0 ? seconds : 1e-9), (unsigned long long)r.steps,
               (unsigned long long)r.events, (unsigned long long)r.commits, r.launches_per_minute,
               seconds);
        return r.failed ? 1 : 0;
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
        } else if (c.many)
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
