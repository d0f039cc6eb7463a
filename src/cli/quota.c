/* cli/quota.c: berth quota set|get|ls|rm: what a tenant may use in all. */
#include "cli/client.h"
#include "cli/listing.h"
#include "cli/output.h"
#include "cli/verbs.h"

#define UNSET (-1) /* not given: stays as it is */

struct quota_options {
        int64_t workloads, cpu, memory, disk, writes;
        struct output_options output;
};

static const struct quota_options defaults = {
        .workloads = UNSET, .cpu = UNSET, .memory = UNSET, .disk = UNSET, .writes = UNSET
};

static const struct opt rows[] = {
        OPT(struct quota_options, OPT_INT, workloads, .name = "workloads", .arg = "N",
            .help = "set: at most this many (0: no limit)"),
        OPT(struct quota_options, OPT_MILLI, cpu, .name = "cpu", .arg = "CORES",
            .help = "set: cpu in all, e.g. 4 or 500m"),
        OPT(struct quota_options, OPT_BYTES, memory, .name = "memory", .arg = "SIZE",
            .help = "set: memory in all, e.g. 8Gi"),
        OPT(struct quota_options, OPT_BYTES, disk, .name = "disk", .arg = "SIZE",
            .help = "set: disk in all, e.g. 100Gi"),
        OPT(struct quota_options, OPT_INT, writes, .name = "writes-per-minute", .arg = "N",
            .max = 100000000, .help = "set: how often it may create, change or delete"),
        OUTPUT_ROWS(struct quota_options, output),
};

static Pb__Quota *fetch(struct cli *cli, const char *tenant, struct err *err)
{
        Pb__TenantRef ref = PB__TENANT_REF__INIT;
        ref.tenant = (char *)tenant;
        return client_call(cli, &cli->arena, "GetQuota", &ref, &pb__quota__descriptor, err);
}

static int set(struct cli *cli, const struct quota_options *o, const char *tenant, struct err *err)
{
        Pb__SetQuotaRequest q = PB__SET_QUOTA_REQUEST__INIT;
        Pb__Quota quota = PB__QUOTA__INIT;
        Pb__Resources res = PB__RESOURCES__INIT;
        struct err absent = { 0 };
        if (o->workloads == UNSET && o->cpu == UNSET && o->memory == UNSET && o->disk == UNSET &&
            o->writes == UNSET)
                return usage_error(cli, err,
                                   "say what to limit: --workloads, --cpu, --memory, --disk or "
                                   "--writes-per-minute");
        const Pb__Quota *now = fetch(cli, tenant, &absent);
        if (!now && absent.code != ERR_NOT_FOUND) {
                *err = absent;
                return -(int)err->code;
        }
        /* what is not given stays; nobody else's change is lost */
        if (now && now->resource_version) {
                q.if_match = now->resource_version;
                quota.workloads = now->workloads;
                quota.writes_per_minute = now->writes_per_minute;
                if (now->resources) {
                        res.cpu = now->resources->cpu;
                        res.memory_mb = now->resources->memory_mb;
                        res.disk_gb = now->resources->disk_gb;
                }
        }
        quota.tenant = (char *)tenant;
        quota.workloads = o->workloads == UNSET ? quota.workloads : o->workloads;
        quota.writes_per_minute = o->writes == UNSET ? quota.writes_per_minute : (int32_t)o->writes;
        res.cpu = o->cpu == UNSET ? res.cpu : o->cpu;
        res.memory_mb = o->memory == UNSET ? res.memory_mb : (o->memory + (1 << 20) - 1) >> 20;
        res.disk_gb = o->disk == UNSET ? res.disk_gb : (o->disk + (1 << 30) - 1) >> 30;
        quota.resources = &res;
        q.quota = &quota;
        const Pb__Quota *set_to =
            client_call(cli, &cli->arena, "SetQuota", &q, &pb__quota__descriptor, err);
        if (!set_to)
                return -(int)err->code;
        cli_out(cli, "quota/%s set\n", set_to->tenant);
        return 0;
}

static int list(struct cli *cli, const struct quota_options *o, struct err *err)
{
        Pb__ListQuotasRequest q = PB__LIST_QUOTAS_REQUEST__INIT;
        struct listing all;
        int r = list_all(cli, &cli->arena, "ListQuotas", &q.base,
                         &pb__list_quotas_response__descriptor, 0, &all, err);
        return r < 0 ? r : output_all(cli, &kind_quota, &o->output, all.items, all.n);
}

static int quota_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        const struct quota_options *o = values;
        const char *verb = args->n ? args->at[0] : "";
        if ((str_eq(verb, "ls") || str_eq(verb, "list")) && args->n == 1)
                return list(cli, o, err);
        if (args->n != 2)
                return usage_error(cli, err, "berth quota set|get|rm TENANT, or berth quota ls");
        const char *tenant = args->at[1];
        if (str_eq(verb, "set"))
                return set(cli, o, tenant, err);
        if (str_eq(verb, "get")) {
                Pb__Quota *q = fetch(cli, tenant, err);
                ProtobufCMessage *items[] = { q ? &q->base : NULL };
                return q ? output_all(cli, &kind_quota, &o->output, items, 1) : -(int)err->code;
        }
        if (!str_eq(verb, "rm"))
                return usage_error(cli, err, "berth quota knows set, get, ls and rm, not '%s'",
                                   verb);
        Pb__TenantRef ref = PB__TENANT_REF__INIT;
        ref.tenant = (char *)tenant;
        if (!client_call(cli, &cli->arena, "RemoveQuota", &ref, &pb__quota__descriptor, err))
                return -(int)err->code;
        cli_out(cli, "quota/%s removed\n", tenant);
        return 0;
}

const struct verb verb_quota = {
        .name = "quota",
        .args = "set|get|ls|rm [TENANT]",
        .summary = "what a tenant may use in all",
        .text = "Workloads name their tenant; those without one are of the tenant \"default\". "
                "What would exceed a quota is refused; a "
                "quota that is lowered takes "
                "nothing away from what runs, and holds up what has no place yet.",
        .examples = "  berth quota set team-a --workloads 50 --cpu 16 --memory 64Gi\n"
                    "  berth quota ls\n"
                    "  berth quota rm team-a",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .defaults = &defaults,
        .values_size = sizeof(struct quota_options),
        .run = quota_run,
        .group = VERBS_CLUSTER,
        .words = "set|get|ls|rm",
};
