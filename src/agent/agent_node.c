/* agent/agent_node.c: who this node is and what it has. */
#include "agent/agent_state.h"
#include "base/file.h"
#include "base/log.h"
#include "net/grpc.h"
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

void agent_detect(struct engine_options *eo, const struct agent_options *opt, bool mock)
{
        cpu_set_t set;
        struct statvfs fs;
        char line[128];
        long long kb = 0;
        FILE *f;

        eo->cpu = opt->cpu ? opt->cpu : mock ? 16000 : 0;
        eo->memory_mb = opt->memory_mb ? opt->memory_mb : mock ? 65536 : 0;
        eo->disk_gb = opt->disk_gb ? opt->disk_gb : mock ? 500 : 0;
        if (!eo->cpu)
                eo->cpu =
                    (sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set)
                                                                  : sysconf(_SC_NPROCESSORS_ONLN)) *
                    1000;
        f = eo->memory_mb ? NULL : fopen("/proc/meminfo", "re");
        while (f && fgets(line, sizeof(line), f) && sscanf(line, "MemTotal: %lld", &kb) != 1)
                ;
        if (f) {
                fclose(f);
                eo->memory_mb = kb / 1024;
        }
        if (!eo->disk_gb && statvfs(opt->data_dir, &fs) == 0)
                /* what is taken cannot be offered */
                eo->disk_gb = (int64_t)((uint64_t)fs.f_bavail * fs.f_frsize >> 30);
}

void agent_look_at_capacity(struct agent *a)
{
        const struct agent_options *opt = a->fleet->opt;
        struct runtime_capacity has;

        if (!a->ops->capacity)
                return;
        a->ops->capacity(a->runtime, &has);
        has.cpu = opt->cpu ? opt->cpu : has.cpu;
        has.memory_mb = opt->memory_mb ? opt->memory_mb : has.memory_mb;
        has.disk_gb = opt->disk_gb ? opt->disk_gb : has.disk_gb;
        if (!engine_set_capacity(a->engine, &has) || !a->call || !engine_is_welcome(a->engine))
                return;
        log_info("what this node has is another amount now; the server is told by a new stream",
                 LOG_S("node", a->node_id), LOG_I("cpu_milli", has.cpu),
                 LOG_I("memory_mb", has.memory_mb), LOG_I("disk_gb", has.disk_gb));
        grpc_call_cancel(a->call);
}

/* Of what lies on a disk nobody knows whose it is: what is not free any more of what the node
 * offers, and no more than what is used of the machine. */
static int64_t taken(int64_t offered, int64_t left, int64_t used)
{
        int64_t gone = left >= offered ? 0 : left > 0 ? offered - left : offered;

        return gone < used ? gone : used;
}

/* Nearly all counts as all: a machine says it has a little less after each update. */
static bool is_part(int64_t offered, int64_t used, int64_t left)
{
        return offered < (used + left) / 100 * 97;
}

void agent_usage_of(const struct node_room *offers, struct runtime_usage *usage)
{
        if (!usage->of_machine || !usage->known)
                return;
        if (usage->want_own && is_part(offers->cpu, usage->cpu_used, usage->cpu_free))
                usage->cpu_used = usage->cpu_own;
        if (usage->want_own &&
            is_part(offers->memory_mb, usage->memory_used_mb, usage->memory_free_mb))
                usage->memory_used_mb = usage->memory_own_mb;
        usage->disk_used_gb = taken(offers->disk_gb, usage->disk_free_gb, usage->disk_used_gb);
}

void agent_usage(struct agent *a, struct runtime_usage *ret)
{
        *ret = (struct runtime_usage){ .want_own = a->is_part };
        a->ops->usage(a->runtime, ret);
        if (ret->of_machine)
                a->is_part = is_part(a->offers.cpu, ret->cpu_used, ret->cpu_free) ||
                             is_part(a->offers.memory_mb, ret->memory_used_mb, ret->memory_free_mb);
        if (a->is_part && !ret->want_own)
                ret->known = false; /* the next look tells */
        agent_usage_of(&a->offers, ret);
}

void agent_make_ulid(struct agent *a, char ret[ULID_LEN + 1])
{
        ulid_make(ret, clock_wall_ms(), rng_next(&a->fleet->rng), rng_next(&a->fleet->rng));
}

static void lower(char *s)
{
        for (; *s; s++)
                if (*s >= 'A' && *s <= 'Z')
                        *s = (char)(*s - 'A' + 'a');
}

/* "host-7k3q": the name of the machine, and enough to tell two agents on it apart. */
char *agent_new_node_id(struct rng *rng)
{
        char ulid[ULID_LEN + 1], host[64] = "node";
        size_t n;

        if (gethostname(host, sizeof(host) - 1) < 0 || !host[0])
                snprintf(host, sizeof(host), "node");
        host[sizeof(host) - 1] = 0;
        n = strcspn(host, ".");
        host[n] = 0;
        for (char *p = host; *p; p++)
                if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-", *p))
                        *p = '-';
        if (host[0] == '-' || !host[0])
                snprintf(host, sizeof(host), "node");
        ulid_make(ulid, clock_wall_ms(), rng_next(rng), rng_next(rng));
        lower(ulid);
        return mem_strdup(fmt("%s-%s", host, ulid + ULID_LEN - 4));
}

/* The id given, or the one on record, or a new one (then it is written at once). */
int agent_settle_id(struct agent *a, const char *wanted, const struct str *record, struct err *err)
{
        Pb__AgentRecord *r = record->len ? pb__agent_record__unpack(NULL, record->len,
                                                                    (const uint8_t *)str_c(record))
                                         : NULL;
        Pb__AgentRecord fresh = PB__AGENT_RECORD__INIT;
        const char *known = r && !str_empty(r->node_id) ? r->node_id : NULL;
        uint8_t *data;
        size_t len;
        int ret = 0;

        if (wanted && known && !str_eq(wanted, known))
                ret =
                    err_set(err, ERR_CONFLICT, .msg = "this data directory belongs to another node",
                            .detail = fmt("%s holds node %s, not %s", a->data_dir, known, wanted),
                            .hint = "leave --node-id out, or use another data directory");
        else
                a->node_id = wanted  ? mem_strdup(wanted)
                             : known ? mem_strdup(known)
                                     : agent_new_node_id(&a->fleet->rng);
        if (r)
                pb__agent_record__free_unpacked(r, NULL);
        if (ret < 0 || record->len)
                return ret;
        fresh.node_id = a->node_id;
        len = pb__agent_record__get_packed_size(&fresh);
        data = mem_must(len + 1);
        pb__agent_record__pack(&fresh, data);
        ret = file_write_atomic(fmt("%s/agent.pb", a->data_dir), data, len, 0600, err);
        mem_free(data);
        return ret;
}
