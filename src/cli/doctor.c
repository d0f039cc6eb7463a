/* cli/doctor.c: berth doctor: looks at a running cluster and at this machine, and says what to do
 * next about each thing that is wrong. */
#include "base/clock.h"
#include "base/file.h"
#include "cli/doctor_rules.h"
#include "cli/listing.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "model/json.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define WORKLOADS_LOOKED_AT 1000 /* of each phase that is worth a look */

struct doctor_options {
        const char *output;
};

static const struct opt rows[] = {
        OPT(struct doctor_options, OPT_TEXT, output, .letter = 'o', .name = "output",
            .choices = "text|json", .arg = "FORMAT", .help = "text or json"),
};

static bool in_path(const char *program)
{
        const char *path = getenv("PATH");
        for (const char *p = path ? path : ""; *p;) {
                size_t n = strcspn(p, ":");
                if (n > 0 && access(fmt("%.*s/%s", (int)n, p, program), X_OK) == 0)
                        return true;
                p += n + (p[n] == ':');
        }
        return false;
}

static void look_at_this_machine(struct doctor_facts *f)
{
        struct rlimit files;
        if (getrlimit(RLIMIT_NOFILE, &files) == 0)
                f->local.open_files_limit = (int64_t)files.rlim_cur;
        f->local.has_podman = in_path("podman");
        f->local.has_docker = in_path("docker");
        f->local.has_qemu = in_path("qemu-system-x86_64") || in_path("qemu-system-aarch64");
        f->local.has_kvm = access("/dev/kvm", R_OK | W_OK) == 0;
        f->local.has_cgroup2 = file_exists("/sys/fs/cgroup/cgroup.controllers");
}

static int look_at_workloads(struct cli *cli, struct doctor_facts *f, struct err *err)
{
        static const char *const phases[] = { "Pending", "Failed", "RetryPending", "Unknown" };
        ARRAY(Pb__Workload *) all = { 0 };
        int r = 0;
        for (size_t i = 0; i < ARRAY_LEN(phases) && r >= 0; i++) {
                Pb__ListWorkloadsRequest q = PB__LIST_WORKLOADS_REQUEST__INIT;
                struct listing list = { 0 };
                q.status = (char *)phases[i];
                r = list_workloads_all(cli, &cli->arena, &q, WORKLOADS_LOOKED_AT, &list, err);
                for (size_t k = 0; r >= 0 && k < list.n; k++)
                        *array_push(&all) = (Pb__Workload *)list.items[k];
        }
        f->workloads = arena_dup(&cli->arena, all.at, all.len * sizeof(*all.at));
        f->n_workloads = all.len;
        array_fini(&all);
        return r;
}

static int look_at_cluster(struct cli *cli, struct doctor_facts *f, struct err *err)
{
        Pb__Empty empty = PB__EMPTY__INIT;
        Pb__ListNodesRequest q = PB__LIST_NODES_REQUEST__INIT;
        struct listing nodes = { 0 };
        int64_t t0 = clock_mono_ns();
        f->cluster =
            client_call(cli, &cli->arena, "GetCluster", &empty, &pb__cluster_info__descriptor, err);
        f->now_ms = clock_wall_ms();
        f->took_ms = (clock_mono_ns() - t0) / 1000000;
        if (!f->cluster)
                return -(int)err->code;
        int r = list_nodes_all(cli, &cli->arena, &q, 0, &nodes, err);
        if (r < 0)
                return r;
        f->nodes = (Pb__Node *const *)nodes.items;
        f->n_nodes = nodes.n;
        return look_at_workloads(cli, f, err);
}

static const char *const level_names[] = {
        [FINDING_OK] = "ok", [FINDING_NOTE] = "note", [FINDING_PROBLEM] = "problem"
};

static void print_text(struct cli *cli, const struct findings *found, size_t problems)
{
        static const enum tint tints[] = {
                [FINDING_OK] = TINT_GOOD, [FINDING_NOTE] = TINT_BUSY, [FINDING_PROBLEM] = TINT_BAD
        };
        _cleanup_(str_finip) struct str out = STR_INIT;
        for (size_t i = 0; i < found->len; i++) {
                const struct finding *f = &found->at[i];
                str_addf(&out, "%s%-8s%s", tint_on(&cli->out, tints[f->level]),
                         level_names[f->level], tint_off(&cli->out, tints[f->level]));
                text_clean(&out, f->what);
                str_addc(&out, '\n');
                if (f->advice) {
                        str_adds(&out, "        -> ");
                        text_clean(&out, f->advice);
                        str_addc(&out, '\n');
                }
        }
        str_addf(&out, "\n%zu %s\n", problems, problems == 1 ? "problem" : "problems");
        cli_out_str(cli, &out);
}

static void print_json(struct cli *cli, const struct findings *found, size_t problems)
{
        _cleanup_(str_finip) struct str out = STR_INIT;
        str_addf(&out, "{\"problems\":%zu,\"findings\":[", problems);
        for (size_t i = 0; i < found->len; i++) {
                const struct finding *f = &found->at[i];
                str_addf(&out, "%s{\"level\":\"%s\",\"check\":\"%s\",\"what\":", i ? "," : "",
                         level_names[f->level], f->check);
                json_write_string(&out, f->what, strlen(f->what));
                if (f->advice) {
                        str_adds(&out, ",\"advice\":");
                        json_write_string(&out, f->advice, strlen(f->advice));
                }
                str_addc(&out, '}');
        }
        str_adds(&out, "]}\n");
        cli_out_str(cli, &out);
}

static int doctor_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        const struct doctor_options *o = values;
        struct doctor_facts facts = { .version = BERTH_VERSION };
        struct findings found = { 0 };
        struct err failed = { 0 };
        size_t problems = 0;
        if (args->n)
                return usage_error(cli, err, "unexpected argument '%s'", args->at[0]);
        facts.address = client_address(cli, NULL);
        if (look_at_cluster(cli, &facts, &failed) < 0)
                facts.unreachable = &failed;
        look_at_this_machine(&facts);
        doctor_examine(&facts, &cli->arena, &found);
        for (size_t i = 0; i < found.len; i++)
                problems += found.at[i].level == FINDING_PROBLEM;
        if (str_eq(o->output, "json"))
                print_json(cli, &found, problems);
        else
                print_text(cli, &found, problems);
        array_fini(&found);
        return problems ? 1 : 0;
}

const struct verb verb_doctor = {
        .name = "doctor",
        .summary = "look for what is wrong, and say what to do about it",
        .text = "Looks at the server (reachable, version, store, disk, queues, clock, certificate, "
                "limits), the nodes (lost, foreign, "
                "strangers,\n"
                "overcommitted, disk, runtimes, drains), the workloads (pending, failed, failing "
                "again and again, with the reasons) and "
                "this machine.\n"
                "Exit status 1 if anything is wrong.",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .values_size = sizeof(struct doctor_options),
        .run = doctor_run,
        .group = VERBS_CLUSTER,
};
