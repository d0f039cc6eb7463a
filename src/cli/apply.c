/* cli/apply.c: berth apply -f FILE: workloads from YAML or JSON.
 *
 * All files are read and checked before the first workload is sent: a mistake in the third document leaves the cluster as it was.
 */
#include "base/array.h"
#include "base/file.h"
#include "cli/client.h"
#include "cli/names.h"
#include "cli/verbs.h"
#include "cli/wait.h"
#include "model/manifest.h"
#include "model/pb.h"
#include "model/validate.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

struct apply_options {
        struct text_list files;
        struct wait_options wait;
        bool create_only, if_unchanged;
};

static const struct opt rows[] = {
        OPT(struct apply_options, OPT_LIST, files, .letter = 'f', .name = "file", .arg = "FILE", .completes = 'f',
            .help = "YAML or JSON, - for standard input; may be repeated"),
        OPT(struct apply_options, OPT_FLAG, create_only, .name = "create-only", .help = "refuse names that are taken"),
        OPT(struct apply_options, OPT_FLAG, if_unchanged, .name = "if-unchanged",
            .help = "every document must have the resource_version that it was read with"),
        WAIT_ROWS(struct apply_options, wait),
};

#define AT_ONCE_BYTES (1024 * 1024) /* packed, in one request */

struct item {
        Pb__Workload *workload;
        const char *file;
        unsigned line;
};

struct items {
        struct item *at;
        size_t len, cap;
};

static int read_input(const char *file, struct str *text, struct err *err)
{
        if (!str_eq(file, "-")) {
                int r = file_read(file, MANIFEST_MAX_BYTES, text, err);
                if (r == -ERR_LIMIT) /* trying again cannot help */
                        return err_set(err, ERR_INVALID, .msg = fmt("%s is too large", file),
                                       .detail = fmt("a manifest has at most %d bytes", MANIFEST_MAX_BYTES),
                                       .hint = "split it into several files: apply takes -f several times");
                if (r < 0 && !file_exists(file))
                        return err_set(err, ERR_INVALID, .msg = fmt("no file '%s'", file), .hint = "- reads standard input");
                return r;
        }
        for (;;) {
                char buf[65536];
                ssize_t n = read(0, buf, sizeof(buf));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return err_sys(err, errno, "cannot read standard input");
                if (n == 0)
                        return 0;
                if (text->len + (size_t)n > MANIFEST_MAX_BYTES)
                        return err_set(err, ERR_INVALID, .msg = "standard input is too long",
                                       .detail = fmt("at most %d bytes", MANIFEST_MAX_BYTES));
                str_add(text, buf, (size_t)n);
        }
}

static int read_file(struct cli *cli, const char *file, struct items *items, struct err *err)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        struct manifest manifest = { 0 };
        const char *name = str_eq(file, "-") ? "standard input" : file;
        int r = read_input(file, &text, err);
        if (r == 0)
                r = manifest_read(name, str_c(&text), text.len, &cli->arena, &manifest, err);
        if (r < 0)
                return r;
        for (size_t i = 0; i < manifest.n_items; i++)
                *array_push(items) = (struct item){ .workload = manifest.items[i].workload, .file = name, .line = manifest.items[i].line };
        return 0;
}

static int check_all(const struct apply_options *o, const struct items *items, struct err *err)
{
        for (size_t i = 0; i < items->len; i++) {
                const struct item *it = &items->at[i];
                struct arena arena = ARENA_INIT;
                Pb__Workload *copy = (Pb__Workload *)pb_clone(&arena, &it->workload->base);
                int r = workload_normalise(&arena, copy, err);
                arena_fini(&arena);
                if (r < 0)
                        return err_prefix(err, fmt("%s:%u", it->file, it->line));
                if (o->if_unchanged && it->workload->resource_version == 0)
                        return err_set(err, ERR_INVALID, .msg = fmt("%s:%u: there is no resource_version", it->file, it->line),
                                       .hint = "--if-unchanged needs the one that was read: berth get workload NAME -o yaml");
                for (size_t k = 0; k < i; k++)
                        if (str_eq(items->at[k].workload->id, it->workload->id))
                                return err_set(err, ERR_INVALID,
                                               .msg = fmt("%s:%u: workload '%s' is there twice", it->file, it->line, it->workload->id),
                                               .detail = fmt("the other is at %s:%u", items->at[k].file, items->at[k].line));
        }
        return 0;
}

/* One line for a workload that was applied, or its error; *status becomes the exit status of the first one that failed. */
static void tell(struct cli *cli, const struct item *it, const Pb__ApplyResult *r, int *status)
{
        if (!r->error) {
                cli_out(cli, "workload/%s %s\n", r->id, r->outcome);
                return;
        }
        struct err bad = { 0 };
        err_set(&bad, err_code_from_name(r->error->code), .msg = r->error->message, .detail = r->error->detail, .hint = r->error->hint,
                .retry_after_ms = r->error->retry_after_ms);
        err_prefix(&bad, fmt("%s:%u: workload %s", it->file, it->line, it->workload->id));
        cli_report(cli, &bad);
        if (*status == 0)
                *status = err_exit_status(bad.code);
}

/* How many of them go into one request. */
static size_t share_of(const struct item *items, size_t n)
{
        size_t bytes = 0, i = 0;
        while (i < n && i < APPLY_ITEMS_MAX) {
                bytes += pb__workload__get_packed_size(items[i].workload) + 8;
                if (i > 0 && bytes > AT_ONCE_BYTES)
                        break;
                i++;
        }
        return i;
}

/* One request with n of them. Fails only if the server could not be asked, or did not take the request as a whole. */
static int send_some(struct cli *cli, const struct apply_options *o, const struct item *items, size_t n, int *status, struct err *err)
{
        struct arena arena = ARENA_INIT;
        Pb__ApplyWorkloadsRequest req = PB__APPLY_WORKLOADS_REQUEST__INIT;
        req.items = arena_new_n(&arena, Pb__Workload *, n);
        req.create_only = o->create_only;
        for (size_t i = 0; i < n; i++)
                req.items[req.n_items++] = items[i].workload;
        Pb__ApplyWorkloadsResponse *answer =
            client_call(cli, &arena, "ApplyWorkloads", &req, &pb__apply_workloads_response__descriptor, err);
        int r = answer ? 0 : -(int)err->code;
        if (answer && answer->n_results != n)
                r = err_set(err, ERR_INTERNAL, .msg = "the server answered for another number of workloads",
                            .detail = fmt("%zu instead of %zu", answer->n_results, n));
        for (size_t i = 0; i < n && r == 0; i++)
                tell(cli, &items[i], answer->results[i], status);
        arena_fini(&arena);
        return r;
}

static int wait_all(struct cli *cli, const struct apply_options *o, const struct items *items, struct err *err)
{
        for (size_t i = 0; i < items->len; i++) {
                const Pb__Workload *w = items->at[i].workload;
                struct wait_goal goal, fallback = wait_goal_started(w);
                if (w->desired_state == PB__DESIRED_STATE__E__Stopped)
                        fallback.phase = PB__PHASE__E__Stopped;
                int r = wait_goal_parse(o->wait.state, fallback, &goal, err);
                if (r == 0)
                        r = wait_for(cli, (const char *const[]){ w->id }, 1, &goal, o->wait.timeout_ms, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int apply_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        const struct apply_options *o = values;
        struct items items = { 0 };
        int r = 0;
        if (o->files.n + args->n == 0)
                return usage_error(cli, err, "which file? -f FILE, or -f - for standard input");
        for (size_t i = 0; i < o->files.n && r == 0; i++)
                r = read_file(cli, o->files.at[i], &items, err);
        for (size_t i = 0; i < args->n && r == 0; i++) /* the shell expands -f *.yaml to -f a.yaml b.yaml */
                r = read_file(cli, args->at[i], &items, err);
        if (r == 0 && items.len == 0)
                r = err_set(err, ERR_INVALID, .msg = "there is no workload in what was given");
        if (r == 0)
                r = check_all(o, &items, err);
        int status = 0;
        for (size_t i = 0, n; i < items.len && r == 0; i += n) {
                n = share_of(&items.at[i], items.len - i);
                r = send_some(cli, o, &items.at[i], n, &status, err);
        }
        if (r == 0 && status == 0 && o->wait.state)
                r = wait_all(cli, o, &items, err);
        array_fini(&items);
        return r < 0 ? r : status;
}

const struct verb verb_apply = {
        .name = "apply",
        .args = "-f FILE",
        .summary = "make or change workloads from a file",
        .text = "A file may hold several documents, and -f may be given several times. Everything is checked before anything is sent.\n"
                "Says of each workload whether it was created, updated or unchanged.",
        .examples = "  berth apply -f web.yaml --wait\n"
                    "  berth get workload web -o yaml | sed 's/cpu: 0.5/cpu: 1/' | berth apply -f -",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .values_size = sizeof(struct apply_options),
        .run = apply_run,
        .group = VERBS_WORKLOADS,
        .completes = 'f',
};
