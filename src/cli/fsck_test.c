/* cli/fsck_test.c: a store that the core wrote is found sound; one that was changed by hand is
 * not. */
#include "base/file.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "core/core.h"
#include "model/validate.h"
#include "store/store.h"
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct bench {
        char dir[256], url[300];
};

static char out_text[65536], err_text[4096];

static void take(FILE *f, char *text, size_t size)
{
        rewind(f);
        size_t n = fread(text, 1, size - 1, f);
        text[n] = '\0';
        fclose(f);
}

static int fsck(const char *dir)
{
        struct cli cli;
        FILE *out = tmpfile(), *errs = tmpfile();
        cli_init(&cli, "berth");
        cli.out = (struct term){ .fd = fileno(out) };
        cli.errs = (struct term){ .fd = fileno(errs) };
        int status = cli_main(&cli, (const char *const[]){ "fsck", "--data", dir }, 3);
        cli_fini(&cli);
        take(out, out_text, sizeof(out_text));
        take(errs, err_text, sizeof(err_text));
        return status;
}

static void commit(struct core *core, struct store *store)
{
        struct err err = { 0 };
        struct core_batch *b = core_cut(core);
        if (!b)
                return;
        if (b->commit.new_head != b->commit.expected_head)
                assert_int_equal(store_commit(store, &b->commit, &err), 0);
        core_batch_free(b);
}

static void apply(struct core *core, const char *id)
{
        struct arena arena = ARENA_INIT;
        struct err err = { 0 };
        Pb__ApplyWorkloadRequest q = PB__APPLY_WORKLOAD_REQUEST__INIT;
        Pb__Workload w = PB__WORKLOAD__INIT;
        Pb__Spec spec = PB__SPEC__INIT;
        char *command[] = { (char *)"sleep", (char *)"1000" };
        spec.command = command;
        spec.n_command = 2;
        w.id = (char *)id;
        w.spec = &spec;
        q.workload = &w;
        assert_int_equal(request_normalise(&arena, &q.base, &err), 0);
        core_step(core, &(struct input){ .kind = INPUT_APPLY,
                                         .now_ms = 2000,
                                         .random = { 3, 4 },
                                         .reply = 1,
                                         .msg = &q.base });
        arena_fini(&arena);
}

static int setup(void **state)
{
        struct bench *b = test_calloc(1, sizeof(*b));
        struct store *store = NULL;
        struct core_options options;
        struct err err = { 0 };
        const char *tmp = getenv("TMPDIR");
        (void)snprintf(b->dir, sizeof(b->dir), "%s/berth-fsck-XXXXXX", tmp ? tmp : "/tmp");
        assert_non_null(mkdtemp(b->dir));
        (void)snprintf(b->url, sizeof(b->url), "sqlite:%s/berth.db", b->dir);
        assert_int_equal(store_open(b->url, true, &store, &err), 0);
        core_options_default(&options);
        struct core *core = core_create(&options);
        core_step(core, &(struct input){ .kind = INPUT_START,
                                         .now_ms = 1000,
                                         .random = { 1, 2 },
                                         .head = store_head(store) });
        commit(core, store);
        apply(core, "one");
        commit(core, store);
        assert_int_equal(store_checkpoint(store, &err), 0); /* what follows is folded onto it */
        apply(core, "two");
        commit(core, store);
        core_destroy(core);
        store_close(store);
        *state = b;
        return 0;
}

static int teardown(void **state)
{
        struct bench *b = *state;
        dir_remove(b->dir, NULL);
        test_free(b);
        return 0;
}

static void tamper(const struct bench *b, const char *sql)
{
        sqlite3 *db = NULL;
        char path[300];
        (void)snprintf(path, sizeof(path), "%s/berth.db", b->dir);
        assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
        assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
        assert_true(sqlite3_changes(db) > 0);
        sqlite3_close(db);
}

/* R: A3 */
static void records_that_follow_from_the_events_are_sound(void **state)
{
        const struct bench *b = *state;
        assert_int_equal(fsck(b->dir), 0);
        assert_non_null(strstr(out_text, "records compared"));
        assert_non_null(strstr(out_text, "events folded since"));
        assert_non_null(strstr(out_text, "\nno problems\n"));
        assert_string_equal(err_text, "");
        assert_int_equal(fsck(b->dir), 0); /* and looking changed nothing */
}

/* R: A3 */
static void a_record_that_the_events_do_not_explain_is_found(void **state)
{
        const struct bench *b = *state;
        tamper(b, "DELETE FROM records WHERE key = '/workloads/two'");
        assert_int_equal(fsck(b->dir), 1);
        assert_non_null(strstr(out_text, "only by the events:"));
        assert_non_null(strstr(out_text, "two"));
        assert_non_null(strstr(out_text, "problem: "));
}

/* R: A3 */
static void a_lost_event_is_found(void **state)
{
        const struct bench *b = *state;
        tamper(b, "DELETE FROM events WHERE seq = (SELECT max(seq) FROM events)");
        assert_int_equal(fsck(b->dir), 1);
        assert_true(strstr(out_text, "problem: ") ||
                    /* the store itself may refuse already when it is opened */
                    strstr(err_text, "error: "));
}

/* R: C35 */
static void a_record_that_cannot_be_read_is_named(void **state)
{
        const struct bench *b = *state;
        tamper(b, "UPDATE records SET data = x'ffffff' WHERE key = '/workloads/one'");
        assert_int_equal(fsck(b->dir), 1);
        assert_non_null(strstr(out_text, "/workloads/one"));
}

/* R: A4 */
static void a_store_in_use_is_refused_with_the_pid(void **state)
{
        const struct bench *b = *state;
        struct store *store = NULL;
        struct err err = { 0 };
        assert_int_equal(store_open(b->url, false, &store, &err), 0);
        assert_int_equal(fsck(b->dir), 5);
        assert_non_null(strstr(err_text, "pid "));
        store_close(store);
        assert_int_equal(fsck("/nonexistent"), 4);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
        const struct CMUnitTest tests[] = {
                T(records_that_follow_from_the_events_are_sound),
                T(a_record_that_the_events_do_not_explain_is_found),
                T(a_lost_event_is_found),
                T(a_record_that_cannot_be_read_is_named),
                T(a_store_in_use_is_refused_with_the_pid),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
