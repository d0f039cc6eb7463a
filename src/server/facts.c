/* server/facts.c: see facts.h. Everything here is looked at when somebody asks, and takes microseconds. */
#include "server/facts.h"

#include "net/tls.h"
#include <dirent.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

static int64_t open_files(void)
{
        DIR *d = opendir("/proc/self/fd");
        int64_t n = 0;
        if (!d)
                return 0;
        while (readdir(d))
                n++;
        closedir(d);
        return n > 3 ? n - 3 : 0; /* ., .. and the directory itself */
}

static void disk(const char *dir, Pb__ServerFacts *f)
{
        struct statvfs v;
        if (!dir || statvfs(dir, &v) < 0)
                return;
        f->store_free_mb = (int64_t)((unsigned long long)v.f_bavail * v.f_frsize >> 20);
        f->store_total_mb = (int64_t)((unsigned long long)v.f_blocks * v.f_frsize >> 20);
}

static int64_t mean_us(const struct histogram *h)
{
        uint64_t n = 0;
        for (size_t i = 0; i < ARRAY_LEN(h->buckets); i++)
                n += counted(&h->buckets[i]);
        return n > 0 ? (int64_t)(counted(&h->sum_ns) / n / 1000) : 0;
}

Pb__ServerFacts *server_facts(struct io *io, struct arena *memory)
{
        struct server *s = io->s;
        struct rlimit files;
        Pb__ServerFacts *f = arena_new(memory, Pb__ServerFacts);
        pb__server_facts__init(f);
        f->now_at = clock_wall_ms();
        if (atomic_load(&s->degraded)) {
                pthread_mutex_lock(&s->lock);
                f->degraded_reason = arena_strdup(memory, s->degraded_reason);
                pthread_mutex_unlock(&s->lock);
        }
        disk(s->opt.data_dir, f);
        f->commit_mean_us = mean_us(&s->metrics.commit);
        f->commit_failures = (int64_t)counted(&s->metrics.commit_failures);
        f->ring_queue = (int32_t)queue_len(s->ring_queue);
        f->read_queue = (int32_t)queue_len(s->read_queue);
        f->io_queue = (int32_t)queue_len(s->io_queue);
        f->queue_limit = (int32_t)s->opt.max_inputs;
        f->open_files = open_files();
        if (getrlimit(RLIMIT_NOFILE, &files) == 0)
                f->open_files_limit = (int64_t)files.rlim_cur;
        f->tls_expires_at = io->tls ? tls_expires_at_ms(io->tls) : 0;
        f->bad_records = (int64_t)counted(&s->metrics.bad_records);
        f->keep_events = (int64_t)s->opt.keep_events;
        f->inputs_refused = (int64_t)counted(&s->metrics.inputs_refused);
        f->calls = (int32_t)calls_len(io->calls);
        f->calls_limit = (int32_t)s->opt.max_calls;
        return f;
}
