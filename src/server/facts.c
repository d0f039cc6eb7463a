/* server/facts.c: see facts.h. Everything here is looked at when somebody asks, and takes
 * microseconds. */
#include "server/facts.h"

#include "model/feature.h"
#include "model/json.h"
#include "net/tls.h"
#include "server/key.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#define REPLICAS_MAX 64

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
        char reason[256];
        if (server_is_degraded(s, reason))
                f->degraded_reason = arena_strdup(memory, reason);
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
        struct agent_certificates certs;
        sessions_certificates(io->sessions, f->now_at, &certs);
        f->agent_certificates_due = (int32_t)certs.due;
        if (certs.n) {
                f->agent_certificate_node = arena_strdup(memory, certs.soonest[0].node);
                f->agent_certificate_expires_at = certs.soonest[0].expires_at;
        }
        char trouble[512];
        f->key_trouble = arena_strdup(memory, key_trouble(s, trouble, sizeof(trouble)));
        f->open = !s->opt.auth;
        f->bad_records = (int64_t)counted(&s->metrics.bad_records);
        f->records_touched = (int64_t)counted(&s->metrics.records_touched);
        f->keep_events = (int64_t)atomic_load(&s->retention[EVENT_LIFECYCLE].events);
        f->inputs_refused = (int64_t)counted(&s->metrics.inputs_refused);
        f->calls = (int32_t)calls_len(io->calls);
        f->calls_limit = (int32_t)s->opt.max_calls;
        return f;
}

struct replicas {
        Pb__ClusterInfo *info;
        struct arena *memory;
        const char *leader;
        size_t cap;
};

static void add_replica(void *ctx, const char *name, const char *text)
{
        struct replicas *r = ctx;
        ProtobufCMessage *m = NULL;
        size_t len = strlen(text);
        (void)name;
        if (r->info->n_replicas == r->cap ||
            json_read(&pb__replica__descriptor, text, len, len, JSON_IGNORE_UNKNOWN, r->memory, &m,
                      NULL) < 0)
                return;
        Pb__Replica *replica = (Pb__Replica *)m;
        replica->leads = str_eq(replica->name, r->leader);
        r->info->replicas[r->info->n_replicas++] = replica;
}

static int by_name(const void *a, const void *b)
{
        Pb__Replica *const *x = a, *const *y = b;
        return strcmp((*x)->name, (*y)->name);
}

void server_replicas(struct io *io, Pb__ClusterInfo *info, struct arena *memory)
{
        struct server *s = io->s;
        struct leader l;
        server_leader(s, &l);
        info->role = (char *)(io->leads ? "leader" : "follower");
        if (!store_is_shared(s->store))
                return;
        char *name = arena_strdup(memory, l.name);
        info->leader = io->leads || l.known ? name : (char *)"";
        info->last_leader = io->leads || l.known ? (char *)"" : name;
        uint64_t head = atomic_load(&s->store_head), have = atomic_load(&s->committed);
        info->lag_events = !io->leads && head > have ? (int64_t)(head - have) : 0;
        struct replicas r = {
                .info = info, .memory = memory, .leader = info->leader, .cap = REPLICAS_MAX
        };
        info->replicas = arena_new_n(memory, Pb__Replica *, REPLICAS_MAX);
        store_each_server(s->store, add_replica, &r);
        if (info->n_replicas)
                qsort(info->replicas, info->n_replicas, sizeof(*info->replicas), by_name);
}

struct common {
        uint32_t features;
        struct str lacking;
        struct arena memory;
};

static void take_features(void *ctx, const char *name, const char *text)
{
        struct common *all = ctx;
        ProtobufCMessage *m = NULL;
        size_t len = strlen(text);
        if (json_read(&pb__replica__descriptor, text, len, len, JSON_IGNORE_UNKNOWN, &all->memory,
                      &m, NULL) < 0)
                return;
        const Pb__Replica *r = (const Pb__Replica *)m;
        uint32_t has = features_parse(r->features, r->n_features);
        all->features &= has;
        if (has != FEATURES_ALL)
                str_addf(&all->lacking, "%s%s (berth %s)", all->lacking.len ? ", " : "server ",
                         str_empty(r->name) ? name : r->name, r->version);
}

uint32_t server_features(struct server *s, struct arena *memory, const char **ret_lacking)
{
        struct common all = { .features = FEATURES_ALL };
        *ret_lacking = NULL;
        if (!store_is_shared(s->store))
                return all.features;
        store_each_server(s->store, take_features, &all);
        if (all.lacking.len)
                *ret_lacking = arena_strdup(memory, str_c(&all.lacking));
        str_fini(&all.lacking);
        arena_fini(&all.memory);
        return all.features;
}
