/* cli/run.c: berth run NAME -- cmd...: a workload without a file. */
#include "base/clock.h"
#include "cli/client.h"
#include "cli/names.h"
#include "cli/verbs.h"
#include "cli/wait.h"
#include "model/json.h"
#include "model/pb.h"
#include "model/validate.h"
#include <string.h>

struct run_options {
        int64_t cpu_milli, memory_bytes, disk_bytes, ttl_ms, grace_ms, retries;
        struct text_list env, labels, selectors;
        const char *restart, *workdir, *image, *type, *user;
        bool job, replace, name_suffix;
        struct wait_options wait;
};

#define NOT_GIVEN (-1)
static const struct run_options defaults = { .cpu_milli = WORKLOAD_DEFAULT_CPU_MILLI,
                                             .memory_bytes =
                                                 WORKLOAD_DEFAULT_MEMORY_MB * INT64_C(1048576),
                                             .grace_ms = NOT_GIVEN,
                                             .retries = NOT_GIVEN };

static const struct opt rows[] = {
        OPT(struct run_options, OPT_MILLI, cpu_milli, .name = "cpu", .arg = "CORES",
            .help = "cores it may count on (0.1)"),
        OPT(struct run_options, OPT_BYTES, memory_bytes, .letter = 'm', .name = "memory",
            .arg = "SIZE", .help = "memory it may count on (128M)"),
        OPT(struct run_options, OPT_BYTES, disk_bytes, .name = "disk", .arg = "SIZE",
            .help = "disk it may count on (0)"),
        OPT(struct run_options, OPT_LIST, env, .letter = 'e', .name = "env", .arg = "K=V",
            .help = "environment variable; may be repeated"),
        OPT(struct run_options, OPT_LIST, labels, .letter = 'l', .name = "label", .arg = "K=V",
            .help = "label; may be repeated"),
        OPT(struct run_options, OPT_LIST, selectors, .name = "node-label", .arg = "K=V",
            .help = "only nodes with this label; may be repeated"),
        OPT(struct run_options, OPT_LIST, selectors, .name = "selector", .arg = "K=V",
            .help = "the same"),
        OPT(struct run_options, OPT_FLAG, job, .letter = 'j', .name = "job",
            .help = "runs to its end: restart on-failure"),
        OPT(struct run_options, OPT_TEXT, restart, .name = "restart", .arg = "POLICY",
            .choices = "always|on-failure|never", .help = "always, on-failure or never"),
        OPT(struct run_options, OPT_INT, retries, .name = "retries", .arg = "N", .max = 1000000,
            .help = "failures until it is given up; 0: never again. Default: 5 for jobs, no end "
                    "for services"),
        OPT(struct run_options, OPT_DURATION, ttl_ms, .name = "ttl", .arg = "DURATION",
            .help = "delete a finished job after this long"),
        OPT(struct run_options, OPT_DURATION, grace_ms, .name = "stop-grace", .arg = "DURATION",
            .help = "between the polite and the final signal (10s)"),
        OPT(struct run_options, OPT_TEXT, workdir, .name = "workdir", .arg = "DIR",
            .help = "directory on the node to run in"),
        OPT(struct run_options, OPT_TEXT, user, .name = "user", .arg = "USER",
            .help = "user on the node to run as"),
        OPT(struct run_options, OPT_TEXT, image, .name = "image", .arg = "IMAGE",
            .help = "container image"),
        OPT(struct run_options, OPT_TEXT, type, .name = "type", .arg = "TYPE",
            .choices = "process|container|compose|vm", .help = "process (default), container, ..."),
        OPT(struct run_options, OPT_FLAG, replace, .name = "replace",
            .help = "update it if the name is taken; a job that ended runs again"),
        OPT(struct run_options, OPT_FLAG, name_suffix, .name = "name-suffix",
            .help = "add a random suffix to the name: NAME-k3f9xq"),
        WAIT_ROWS(struct run_options, wait),
};

/* Adds the K=V of a list to a map of the workload. */
static int add_pairs(struct cli *cli, ProtobufCMessage *m, const char *field, const char *option,
                     const struct text_list *list, struct err *err)
{
        for (size_t i = 0; i < list->n; i++) {
                const char *equals = strchr(list->at[i], '=');
                if (!equals || equals == list->at[i])
                        return usage_error(cli, err, "bad value '%s' for %s: expected K=V",
                                           list->at[i], option);
                pb_map_set(&cli->arena, m, field,
                           arena_strndup(&cli->arena, list->at[i], (size_t)(equals - list->at[i])),
                           equals + 1);
        }
        return 0;
}

static int64_t units_of(int64_t bytes, int64_t unit)
{
        return bytes / unit + (bytes % unit != 0);
}

static int fill(struct cli *cli, const struct run_options *o, const struct args *args,
                Pb__Workload *w, struct err *err)
{
        int number = 0;
        w->id = (char *)args->at[0];
        w->spec = (Pb__Spec *)pb_new(&cli->arena, &pb__spec__descriptor);
        w->resources = (Pb__Resources *)pb_new(&cli->arena, &pb__resources__descriptor);
        w->spec->command = (char **)args->command;
        w->spec->n_command = args->n_command;
        w->spec->workdir = (char *)(o->workdir ? o->workdir : "");
        w->spec->user = (char *)(o->user ? o->user : "");
        w->spec->image = (char *)(o->image ? o->image : "");
        w->resources->cpu = o->cpu_milli;
        w->resources->memory_mb = units_of(o->memory_bytes, 1 << 20);
        w->resources->disk_gb = units_of(o->disk_bytes, 1 << 30);
        w->ttl_seconds = (int32_t)units_of(o->ttl_ms, 1000);
        if (o->grace_ms != NOT_GIVEN)
                w->stop_grace_seconds = (int32_t)units_of(o->grace_ms, 1000);
        if (o->retries != NOT_GIVEN) {
                w->retry = (Pb__Retry *)pb_new(&cli->arena, &pb__retry__descriptor);
                /* 0: never again, as in a manifest */
                w->retry->max_attempts = o->retries ? (int32_t)o->retries : 1;
        }
        if (o->job)
                w->restart = PB__RESTART__E__on_failure;
        if (o->restart &&
            json_enum_value(&pb__restart__e__descriptor, o->restart, true, &number) == 0)
                w->restart = (Pb__Restart__E)number;
        if (o->type &&
            json_enum_value(&pb__workload_type__e__descriptor, o->type, true, &number) == 0)
                w->type = (Pb__WorkloadType__E)number;
        else if (o->image)
                w->type = PB__WORKLOAD_TYPE__E__container;
        int r = add_pairs(cli, &w->spec->base, "env", "--env", &o->env, err);
        r = r < 0 ? r : add_pairs(cli, &w->base, "labels", "--label", &o->labels, err);
        return r < 0
                   ? r
                   : add_pairs(cli, &w->base, "node_selector", "--node-label", &o->selectors, err);
}

/* Room for one that is found by a person, and not met by chance: 30 bits. */
static char *with_suffix(struct cli *cli, const char *name)
{
        static const char letters[] = "0123456789abcdefghjkmnpqrstvwxyz";
        unsigned char bits[6];
        char suffix[sizeof(bits) + 1] = { 0 };
        random_bytes(bits, sizeof(bits));
        for (size_t i = 0; i < sizeof(bits); i++)
                suffix[i] = letters[bits[i] % (sizeof(letters) - 1)];
        return arena_printf(&cli->arena, "%s-%s", name, suffix);
}

static bool is_job(const Pb__Workload *w)
{
        return w->restart == PB__RESTART__E__never || w->restart == PB__RESTART__E__on_failure;
}

/* What has this name now; NULL with no error: nothing. */
static Pb__Workload *find_there(struct cli *cli, const char *id, struct err *err)
{
        Pb__Workload *there = workload_by_id(cli, &cli->arena, id, err);
        if (!there && err->code == ERR_NOT_FOUND)
                *err = (struct err){ 0 };
        return there;
}

static const char *phase_of(const Pb__Workload *w)
{
        const char *name =
            w->status ? json_enum_name(&pb__phase__e__descriptor, (int)w->status->phase) : NULL;
        return name ? name : "there";
}

/* What a user says of it: labels, placement and retries too, which a revision does not tell. */
static bool is_same(struct cli *cli, const Pb__Workload *a, const Pb__Workload *b)
{
        Pb__Workload *both[] = { (Pb__Workload *)pb_clone(&cli->arena, &a->base),
                                 (Pb__Workload *)pb_clone(&cli->arena, &b->base) };
        for (size_t i = 0; i < 2; i++) {
                struct err ignored;
                both[i]->resource_version = 0;
                /* leaves out what is the server's */
                workload_normalise(&cli->arena, both[i], &ignored);
        }
        return pb_equal(&both[0]->base, &both[1]->base);
}

static bool has_ended(const Pb__Workload *w)
{
        return w->status && (w->status->phase == PB__PHASE__E__Completed ||
                             w->status->phase == PB__PHASE__E__Failed);
}

/* The server took the same definition of the same name for the same request, and changed
 * nothing. */
static int say_same(struct cli *cli, const Pb__Workload *there, struct err *err)
{
        if (is_job(there))
                return err_set(
                    err, ERR_CONFLICT,
                    .msg = fmt("job %s is there already, with this definition: nothing was run",
                               there->id),
                    .detail = fmt("it is %s", phase_of(there)),
                    .hint = fmt("--replace runs it again, --name-suffix runs another one; berth "
                                "logs %s shows its output",
                                there->id));
        cli_out(cli, "workload/%s unchanged: it is there already, with this definition (%s)\n",
                there->id, phase_of(there));
        return 0;
}

/* A job of the same definition: only another revision is another run. */
static Pb__Workload *run_again(struct cli *cli, Pb__ApplyWorkloadRequest *request, struct err *err)
{
        request->workload->revision_id = with_suffix(cli, "run");
        return client_call(cli, &cli->arena, "ApplyWorkload", request, &pb__workload__descriptor,
                           err);
}

static int run_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        const struct run_options *o = values;
        Pb__ApplyWorkloadRequest request = PB__APPLY_WORKLOAD_REQUEST__INIT;
        Pb__Workload w = PB__WORKLOAD__INIT;
        struct wait_goal goal;

        struct args all = *args;
        /* berth run NAME cmd: fine as long as the command has no options of its own */
        if (!all.has_command && all.n > 1) {
                all.command = all.at + 1;
                all.n_command = all.n - 1;
                all.n = 1;
        }
        if (all.n != 1)
                return usage_error(cli, err,
                                   all.n ? "one name, please" : "which name shall it have?");
        if (all.n_command == 0 && !o->image)
                return usage_error(cli, err, "what shall it run? Put the command after --");
        int r = fill(cli, o, &all, &w, err);
        if (r < 0)
                return r;
        if (o->wait.state &&
            (r = wait_goal_parse(o->wait.state, wait_goal_started(&w), &goal, err)) < 0)
                return r;
        if (o->name_suffix)
                w.id = with_suffix(cli, w.id);
        request.workload = &w;
        Pb__Workload *there = find_there(cli, w.id, err);
        if (!there && err->code != ERR_OK)
                return -(int)err->code;
        request.create_only = !o->replace;
        Pb__Workload *made = client_call(cli, &cli->arena, "ApplyWorkload", &request,
                                         &pb__workload__descriptor, err);
        if (!made) {
                if (err->code == ERR_CONFLICT && !o->replace)
                        err_set(err, ERR_CONFLICT, .msg = fmt("%s", err->msg),
                                .detail = fmt("%s", err->detail),
                                .hint =
                                    fmt("another name, --replace, or berth delete %s first", w.id));
                return -(int)err->code;
        }
        bool same = there && is_same(cli, there, made);
        /* Labels start nothing anew; but who replaces a job that has ended wants it to run. */
        bool again = there && o->replace && is_job(&w) &&
                     str_eq(made->revision_id, there->revision_id) && (same || has_ended(there));
        if (again && !(made = run_again(cli, &request, err)))
                return -(int)err->code;
        if (same && !again) {
                if ((r = say_same(cli, made, err)) < 0)
                        return r;
        } else
                cli_out(cli, "workload/%s %s\n", made->id, there ? "updated" : "created");
        return o->wait.state ? wait_for(cli, (const char *const[]){ made->id }, 1, &goal,
                                        o->wait.timeout_ms, err)
                             : 0;
}

const struct verb verb_run = {
        .name = "run",
        .args = "NAME -- COMMAND...",
        .summary = "run a command somewhere in the cluster",
        .text = "Makes a workload that runs a command, and keeps it running; with --job it runs to "
                "its end.",
        .examples = "  berth run hello -- sh -c 'while :; do date; sleep 1; done'\n"
                    "  berth run once --job --wait -- true\n"
                    "  berth run web --cpu 0.5 --memory 64M --env PORT=8080 --label app=web -- "
                    "python3 -m http.server",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .defaults = &defaults,
        .values_size = sizeof(struct run_options),
        .run = run_run,
        .group = VERBS_WORKLOADS,
        .takes_command = true,
};
