/* agent/runtimes/process_usage.c: how much of the machine is in use. See process.c. */
#include "agent/runtimes/process_state.h"
#include <stdio.h>
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
        n = fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7]);
        fclose(f);
        if (n < 5)
                return;
        for (int i = 0; i < 8; i++)
                total += v[i];
        busy = total - v[3] - v[4];
        if (rt->cpu_total && total > rt->cpu_total && busy >= rt->cpu_busy)
                rt->cpu_used = (int64_t)((busy - rt->cpu_busy) * 1000 * (uint64_t)sysconf(_SC_NPROCESSORS_ONLN) / (total - rt->cpu_total));
        rt->cpu_busy = busy;
        rt->cpu_total = total;
}

void process_usage(struct runtime *rt, struct runtime_usage *ret)
{
        char line[128];
        long long total = 0, available = 0;
        struct statvfs fs;
        FILE *f = fopen("/proc/meminfo", "re");

        *ret = (struct runtime_usage){ 0 };
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
                ret->disk_used_gb = (int64_t)((uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize >> 30);
                ret->disk_free_gb = (int64_t)((uint64_t)fs.f_bavail * fs.f_frsize >> 30);
        }
        ret->of_machine = true;
        ret->cpu_free = sysconf(_SC_NPROCESSORS_ONLN) * 1000 - ret->cpu_used;
        ret->memory_free_mb = available / 1024;
}
