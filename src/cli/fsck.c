/* cli/fsck.c: berth fsck: are the records what the events say?
 *
 * Two cores are built from the store: one from the newest checkpoint and the events since, one from
 * the records. Both are started with the same input and dumped: records, ledgers, indexes and
 * deadlines, one fact per line. The two texts must be equal, and both states must keep the numbered
 * invariants. The store's own structure is checked first. Nothing is written.
 */
#include "cli/fsck.h"
#include "base/array.h"
#include "base/clock.h"
#include "cli/verbs.h"
#include "core/core.h"
#include "store/store.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct fsck_options {
        const char *data, *store;
};

static const struct fsck_options defaults = { .data = "./.berth" };

static const struct opt rows[] = {
        OPT(struct fsck_options, OPT_TEXT, data, .name = "data", .arg = "DIR", .env = "BERTH_DATA",
            .completes = 'f', .help = "data directory of the server (./.berth)"),
        OPT(struct fsck_options, OPT_TEXT, store, .name = "store", .arg = "URL",
            .env = "BERTH_STORE", .help = "the store (sqlite:DIR/berth.db)"),
};

#define DIFFERENCES_SHOWN 10

struct check {
        struct cli *cli;
        struct store *store;
        struct core *core; /* being filled */
        uint64_t records, events, bad, checkpoint, head, checkpoint_records;
        unsigned problems;
};

static void problem(struct check *c, const char *what)
{
        c->problems++;
        cli_out(c->cli, "problem: %s\n", what);
}

static int load_record(void *ctx, const struct store_record *r, struct err *err _unused_)
{
        struct check *c = ctx;
        struct err bad = { 0 };
        c->records++;
        int before = (int)c->bad, now = core_load_record(c->core, r->key, r->data, r->len, &bad);
        if (now > before || now < 0) {
                c->bad++;
                problem(c, fmt("record %s cannot be read: %s", r->key, err_line(&bad)));
        }
        return 0;
}

static int fold_event(void *ctx, const struct store_event *e, struct err *err)
{
        struct check *c = ctx;
        c->events++;
        if (core_fold(c->core, e->data, e->len, err) < 0)
                return err_prefix(err, fmt("event %" PRIu64 " cannot be folded", e->seq));
        return 0;
}

static struct core *new_core(void)
{
        struct core_options options;
        core_options_default(&options);
        return core_create(&options);
}

static void start(struct core *core, uint64_t head, int64_t now_ms)
{
        core_step(core,
                  &(struct input){
                      .kind = INPUT_START, .now_ms = now_ms, .random = { 1, 2 }, .head = head });
}

static int from_events(struct check *c, struct core *core, struct err *err)
{
        _cleanup_(store_reader_closep) struct store_reader *reader = NULL;
        c->core = core;
        c->records = c->bad = 0;
        int r = store_load_checkpoint(c->store, load_record, c, &c->checkpoint, err);
        c->checkpoint_records = c->records;
        if (r == 0) {
                core_loaded(core, c->checkpoint);
                r = store_reader_open(c->store, &reader, err);
        }
        return r < 0 ? r : store_reader_events(reader, c->checkpoint, false, fold_event, c, err);
}

static int from_records(struct check *c, struct core *core, struct err *err)
{
        c->core = core;
        c->records = c->bad = 0;
        return store_load(c->store, load_record, c, &c->head, err);
}

struct lines {
        const char **at;
        size_t len, cap;
};

static int by_text(const void *a, const void *b)
{
        return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Cuts text into lines, in place, and sorts them. */
static void split(struct str *text, struct lines *ret)
{
        for (char *p = text->buf; p && *p;) {
                char *end = p + strcspn(p, "\n");
                bool last = *end == '\0';
                *end = '\0';
                *array_push(ret) = p;
                p = end + !last;
        }
        if (ret->len)
                qsort(ret->at, ret->len, sizeof(*ret->at), by_text);
}

/* Prints the facts that only one of the two states has. */
static void compare(struct check *c, struct str *folded, struct str *stored)
{
        struct lines a = { 0 }, b = { 0 };
        uint64_t same = 0, differences = 0;
        split(folded, &a);
        split(stored, &b);
        for (size_t i = 0, k = 0; i < a.len || k < b.len;) {
                int order = i >= a.len ? 1 : k >= b.len ? -1 : strcmp(a.at[i], b.at[k]);
                if (order == 0)
                        same++;
                else if (++differences <= DIFFERENCES_SHOWN)
                        cli_out(c->cli, "  %s %s\n",
                                order < 0 ? "only by the events:  " : "only in the records:",
                                order < 0 ? a.at[i] : b.at[k]);
                i += order <= 0;
                k += order >= 0;
        }
        array_fini(&a);
        array_fini(&b);
        if (differences)
                problem(c, fmt("%" PRIu64 " facts differ between events and records, %" PRIu64
                               " are the same",
                               differences, same));
        else
                cli_out(c->cli,
                        "%" PRIu64 " facts (records, ledgers, indexes, deadlines) are the same\n",
                        same);
}

static void check_invariants(struct check *c, const struct core *core, const char *which)
{
        struct err err = { 0 };
        if (core_check(core, &err) < 0)
                problem(
                    c, fmt("the state from the %s breaks an invariant: %s", which, err_line(&err)));
}

static int check_store(struct check *c, struct err *err)
{
        _cleanup_(core_destroyp) struct core *folded = new_core(), *stored = new_core();
        _cleanup_(str_finip) struct str a = STR_INIT, b = STR_INIT;
        struct err bad = { 0 };
        int64_t now_ms = clock_wall_ms();

        if (store_integrity(c->store, &bad) < 0)
                problem(c, err_line(&bad));
        else
                cli_out(c->cli, "the store is sound in itself\n");
        int r = from_records(c, stored, err);
        uint64_t records = c->records;
        if (r < 0)
                return r;
        if (from_events(c, folded, &bad) < 0) {
                problem(c, err_line(&bad));
                return 0;
        }
        cli_out(c->cli,
                "checkpoint at %" PRIu64 " with %" PRIu64 " records, %" PRIu64
                " events folded since, head %" PRIu64 "\n%" PRIu64 " records compared\n",
                c->checkpoint, c->checkpoint_records, c->events, c->head, records);
        if (core_head(folded) != c->head)
                problem(c, fmt("the events end at %" PRIu64 ", the head is %" PRIu64,
                               core_head(folded), c->head));
        start(folded, c->head, now_ms);
        start(stored, c->head, now_ms);
        core_dump(folded, &a);
        core_dump(stored, &b);
        compare(c, &a, &b);
        check_invariants(c, folded, "events");
        check_invariants(c, stored, "records");
        return 0;
}

static int fsck_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        const struct fsck_options *o = values;
        _cleanup_(store_closep) struct store *store = NULL;
        if (args->n)
                return usage_error(cli, err, "unexpected argument '%s'", args->at[0]);
        const char *url =
            o->store ? o->store : arena_printf(&cli->arena, "sqlite:%s/berth.db", o->data);
        int r = store_open(url, false, &store, err);
        if (r < 0)
                return r;
        cli_out(cli, "%s\n", url);
        return fsck_store(cli, store, err);
}

int fsck_store(struct cli *cli, struct store *store, struct err *err)
{
        struct check c = { .cli = cli, .store = store };
        int r = check_store(&c, err);
        if (r < 0)
                return r;
        if (c.problems)
                cli_out(cli, "%u problem%s\n", c.problems, c.problems == 1 ? "" : "s");
        else
                cli_out(cli, "no problems\n");
        return c.problems ? 1 : 0;
}

const struct verb verb_fsck = {
        .name = "fsck",
        .summary = "check that the stored records are what the events say",
        .text = "Works on a store that no server uses, and on a backup (--store backup:FILE). "
                "Changes nothing. Exit status 1 if something "
                "is wrong.",
        .examples = "  berth fsck --data /var/lib/berth\n"
                    "  berth fsck --store backup:monday.backup",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .defaults = &defaults,
        .values_size = sizeof(struct fsck_options),
        .run = fsck_run,
        .group = VERBS_CLUSTER,
        .offline = true,
};
