/* cli/manifests.c: see manifests.h. */
#include "cli/manifests.h"

#include "base/array.h"
#include "base/file.h"
#include "model/manifest.h"
#include "model/pb.h"
#include "model/validate.h"
#include <errno.h>
#include <unistd.h>

static int read_input(const char *file, struct str *text, struct err *err)
{
        if (!str_eq(file, "-")) {
                int r = file_read(file, MANIFEST_MAX_BYTES, text, err);
                if (r == -ERR_LIMIT) /* trying again cannot help */
                        return err_set(
                            err, ERR_INVALID, .msg = fmt("%s is too large", file),
                            .detail = fmt("a manifest has at most %d bytes", MANIFEST_MAX_BYTES),
                            .hint = "split it into several files: apply takes -f several times");
                if (r < 0 && !file_exists(file))
                        return err_set(err, ERR_INVALID, .msg = fmt("no file '%s'", file),
                                       .hint = "- reads standard input");
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

static int read_file(struct cli *cli, const char *file, struct manifests *items, struct err *err)
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
                *array_push(items) = (struct manifest_of){ .workload = manifest.items[i].workload,
                                                           .file = name,
                                                           .line = manifest.items[i].line };
        return 0;
}

static int check_all(const struct manifests *items, struct err *err)
{
        for (size_t i = 0; i < items->len; i++) {
                const struct manifest_of *it = &items->at[i];
                struct arena arena = ARENA_INIT;
                Pb__Workload *copy = (Pb__Workload *)pb_clone(&arena, &it->workload->base);
                int r = workload_normalise(&arena, copy, err);
                arena_fini(&arena);
                if (r < 0)
                        return err_prefix(err, fmt("%s:%u", it->file, it->line));
                for (size_t k = 0; k < i; k++)
                        if (str_eq(items->at[k].workload->id, it->workload->id))
                                return err_set(err, ERR_INVALID,
                                               .msg = fmt("%s:%u: workload '%s' is there twice",
                                                          it->file, it->line, it->workload->id),
                                               .detail = fmt("the other is at %s:%u",
                                                             items->at[k].file, items->at[k].line));
        }
        return 0;
}

int manifests_read(struct cli *cli, const struct text_list *files, const struct args *args,
                   size_t first, struct manifests *ret, struct err *err)
{
        int r = 0;
        if (files->n + args->n <= first)
                return usage_error(cli, err, "which file? -f FILE, or -f - for standard input");
        for (size_t i = 0; i < files->n && r == 0; i++)
                r = read_file(cli, files->at[i], ret, err);
        /* the shell expands -f *.yaml to -f a.yaml b.yaml */
        for (size_t i = first; i < args->n && r == 0; i++)
                r = read_file(cli, args->at[i], ret, err);
        if (r == 0 && ret->len == 0)
                r = err_set(err, ERR_INVALID, .msg = "there is no workload in what was given");
        return r == 0 ? check_all(ret, err) : r;
}

void manifests_fini(struct manifests *m)
{
        array_fini(m);
}
