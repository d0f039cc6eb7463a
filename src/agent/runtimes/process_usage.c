/* agent/runtimes/process_usage.c: how much of the machine is in use, and by the node's own units.
 * See process.c.
 *
 * Both need two looks: what a processor did is known only since the last one.
 */
#include "agent/runtimes/process_usage.h"
#include "agent/runtimes/process_state.h"
#include "base/clock.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

static void read_cpu(struct runtime *rt)
{
        unsigned long long v[8] = { 0 };
        uint64_t total = 0, busy;
        FILE *f = fopen("/proc/stat", "re");
        int n;

        if (!f)
                return;
        n = fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3],
                   &v[4], &v[5], &v[6], &v[7]);
        fclose(f);
        if (n < 5)
                return;
        for (int i = 0; i < 8; i++)
                total += v[i];
        busy = total - v[3] - v[4];
        if (rt->cpu_total && total > rt->cpu_total && busy >= rt->cpu_busy)
                rt->cpu_used =
                    (int64_t)((busy - rt->cpu_busy) * 1000 *
                              (uint64_t)sysconf(_SC_NPROCESSORS_ONLN) / (total - rt->cpu_total));
        rt->cpu_busy = busy;
        rt->cpu_total = total;
}

static int by_pid(const void *a, const void *b)
{
        pid_t x = ((const struct proc_use *)a)->pid, y = ((const struct proc_use *)b)->pid;

        return x < y ? -1 : x > y;
}

/* What the units of this node use, beside containers. False: not known yet. */
static bool read_own(struct runtime *rt, const pid_list *containers, struct runtime_usage *ret)
{
        ARRAY(struct proc_use) now = { 0 };
        int64_t now_ns = clock_mono_ns(), span_ns = now_ns - rt->own_at_ns;
        uint64_t ticks = 0, rss = 0;
        bool known = rt->own_at_ns != 0 && span_ns > 0, whole;

        for (size_t i = 0; i < rt->units.len; i++)
                if (rt->units.at[i] && rt->units.at[i]->state.monitor > 0)
                        *array_push(&now) =
                            (struct proc_use){ .pid = (pid_t)rt->units.at[i]->state.monitor,
                                               .without_memory = true };
        for (size_t i = 0; containers && i < containers->len; i++)
                *array_push(&now) = (struct proc_use){ .pid = containers->at[i] };
        if (now.len > 1)
                qsort(now.at, now.len, sizeof(now.at[0]), by_pid);
        whole = proc_use(now.at, now.len);
        for (size_t i = 0; i < now.len; i++) {
                const struct proc_use *before =
                    rt->own.len
                        ? bsearch(&now.at[i], rt->own.at, rt->own.len, sizeof(now.at[0]), by_pid)
                        : NULL;

                rss += now.at[i].rss_bytes;
                /* a new one counts from its second look on */
                if (before && now.at[i].ticks > before->ticks)
                        ticks += now.at[i].ticks - before->ticks;
        }
        array_fini(&rt->own);
        rt->own.at = now.at;
        rt->own.len = now.len;
        rt->own.cap = now.cap;
        rt->own_at_ns = now_ns;
        ret->memory_own_mb = (int64_t)(rss >> 20);
        if (known)
                ret->cpu_own = (int64_t)((double)ticks / (double)sysconf(_SC_CLK_TCK) * 1000 /
                                         ((double)span_ns / 1e9));
        return known && whole;
}

void process_usage(struct runtime *rt, struct runtime_usage *ret)
{
        process_usage_beside(rt, NULL, ret);
}

void process_usage_beside(struct runtime *rt, const pid_list *containers, struct runtime_usage *ret)
{
        char line[128];
        long long total = 0, available = 0;
        struct statvfs fs;
        FILE *f = fopen("/proc/meminfo", "re");

        bool seen_before = rt->cpu_total != 0;

        *ret = (struct runtime_usage){ .want_own = ret->want_own };
        read_cpu(rt);
        ret->cpu_used = rt->cpu_used;
        while (f && fgets(line, sizeof(line), f)) {
                sscanf(line, "MemTotal: %lld", &total);
                sscanf(line, "MemAvailable: %lld", &available);
        }
        if (f)
                fclose(f);
        ret->memory_used_mb = total > available ? (total - available) / 1024 : 0;
        if (statvfs(rt->data_dir, &fs) == 0) {
                ret->disk_used_gb =
                    (int64_t)((uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize >> 30);
                ret->disk_free_gb = (int64_t)((uint64_t)fs.f_bavail * fs.f_frsize >> 30);
        }
        ret->of_machine = true;
        ret->cpu_free = sysconf(_SC_NPROCESSORS_ONLN) * 1000 - ret->cpu_used;
        ret->memory_free_mb = available / 1024;
        ret->known = seen_before && total > 0;
        if (ret->want_own && !read_own(rt, containers, ret))
                ret->known = false;
}
