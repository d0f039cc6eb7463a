/* cli/logs.c: berth logs: what a workload wrote, as its node has kept it. */
#include "cli/names.h"
#include "cli/verbs.h"

struct logs_options {
        bool follow, raw;
        int64_t tail;
        const char *stream;
};

static const struct logs_options defaults = { .tail = 0 };

static const struct opt rows[] = {
        OPT(struct logs_options, OPT_FLAG, follow, .letter = 'f', .name = "follow",
            .help = "go on with what is written; Ctrl-C ends it"),
        OPT(struct logs_options, OPT_INT, tail, .letter = 'n', .name = "tail", .arg = "N",
            .help = "only the last N lines (all that is kept)"),
        OPT(struct logs_options, OPT_TEXT, stream, .name = "stream", .choices = "stdout|stderr",
            .arg = "STREAM", .help = "only stdout, or only stderr"),
        OPT(struct logs_options, OPT_FLAG, raw, .name = "raw",
            .help =
                "on a terminal too, as it was written: control characters can do anything there"),
};

struct reader {
        struct cli *cli;
        const char *stream, *id;
        bool raw;
        struct term_tail tails[2]; /* of stdout and stderr */
};

static int on_chunk(void *ctx, const ProtobufCMessage *m, struct err *err)
{
        struct reader *r = ctx;
        const Pb__LogChunk *c = (const Pb__LogChunk *)m;
        if (!c)
                return 0;
        bool wanted = !r->stream || str_case_eq(r->stream, c->is_stderr ? "stderr" : "stdout");
        if (c->data.len && wanted) {
                int k = r->raw ? term_write_raw(&r->cli->out, c->data.data, c->data.len, err)
                               : term_write_foreign(&r->cli->out, &r->tails[c->is_stderr],
                                                    c->data.data, c->data.len, err);
                if (k < 0)
                        return k;
        }
        if (!str_empty(c->error))
                return err_set(err, ERR_FAILED, .msg = fmt("the logs of %s ended", r->id),
                               .detail = c->error);
        return c->eof ? 1 : 0;
}

static int logs_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        const struct logs_options *o = values;
        Pb__LogsRequest q = PB__LOGS_REQUEST__INIT;
        struct text_list names;
        int r = names_of_kind(cli, &cli->arena, "workload", args, &names, err);
        if (r < 0)
                return r;
        if (names.n > 1)
                return usage_error(cli, err, "one workload at a time");
        Pb__Workload *w = workload_named(cli, &cli->arena, names.at[0], err);
        if (!w)
                return -(int)err->code;
        q.id = w->id;
        q.follow = o->follow;
        q.tail_lines = o->tail;
        struct reader reader = { .cli = cli, .stream = o->stream, .id = w->id, .raw = o->raw };
        r = client_stream(cli, "Logs", &q, &pb__log_chunk__descriptor, 0, on_chunk, &reader, err);
        return r > 0 ? 0 : r;
}

const struct verb verb_logs = {
        .name = "logs",
        .args = "NAME",
        .summary = "what a workload wrote",
        .text = "On a terminal, control characters in it are shown as ?; --raw writes them as they "
                "are.",
        .examples = "  berth logs hello\n"
                    "  berth logs -f --tail 20 hello",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .defaults = &defaults,
        .values_size = sizeof(struct logs_options),
        .run = logs_run,
        .group = VERBS_WORKLOADS,
        .completes = 'w',
};
