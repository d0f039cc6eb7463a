/* store/backup_test.c: a backup holds one moment of a store that goes on changing; what is altered
 * is refused; a restore is whole or leaves what was there. Both stores. */
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "records.pb-c.h"
#include "store/etcd_testkit.h"
#include "store/store.h"
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static struct etcd_process etcd;

struct fixture {
        char dir[PATH_MAX - 128], file[PATH_MAX], url[PATH_MAX], other[PATH_MAX];
        bool on_etcd;
        struct store *s;
        struct err err;
};

#define OK(f, call)                                                                                \
        do {                                                                                       \
                if ((call) < 0)                                                                    \
                        fail_msg("%s: %s", #call, err_line(&(f)->err));                            \
        } while (0)

static struct fixture *make(bool on_etcd)
{
        static int number;
        struct fixture *f = mem_must(sizeof(*f));
        const char *tmp = getenv("TMPDIR");
        snprintf(f->dir, sizeof(f->dir), "%s/backup-XXXXXX", tmp ? tmp : "/tmp");
        assert_non_null(mkdtemp(f->dir));
        f->on_etcd = on_etcd;
        if (on_etcd && !etcd.pid)
                etcd_process_start(&etcd);
        snprintf(f->file, sizeof(f->file), "%s/it.backup", f->dir);
        const char *name = on_etcd ? fmt("etcd://127.0.0.1:%d/t%d", etcd.port, ++number) : f->dir;
        snprintf(f->url, sizeof(f->url), on_etcd ? "%s" : "%s/berth.db", name);
        snprintf(f->other, sizeof(f->other), on_etcd ? "%s-other" : "%s/other/berth.db", name);
        return f;
}
static int setup_sqlite(void **state)
{
        *state = make(false);
        return 0;
}
static int setup_etcd(void **state)
{
        *state = make(true);
        return 0;
}

static int teardown(void **state)
{
        struct fixture *f = *state;
        if (f->s)
                store_close(f->s);
        assert_int_equal(dir_remove(f->dir, NULL), 0);
        mem_free(f);
        return 0;
}

static void open_led(struct fixture *f, const char *url)
{
        OK(f, store_open(url, true, &f->s, &f->err));
        OK(f, store_lead(f->s, "test", 5, 20000, &f->err));
}

/* One event, the record /workloads/<i> and the record that counts: whoever sees the event sees
 * both. */
static void commit_one(struct fixture *f, int i)
{
        uint64_t head = store_head(f->s);
        struct store_event e = { head + 1, "", 0 };
        struct store_record r[2];
        char key[64], text[32];
        snprintf(key, sizeof(key), "/workloads/w%06d", i % 50);
        snprintf(text, sizeof(text), "%d", i);
        char event[64];
        /* some are of a class of their own: their type stands at the front, and their time */
        e.len = (size_t)snprintf(event, sizeof(event), "%s%s",
                                 i % 20 == 3 ? "\x10\x4a\x18\x01" : "", text);
        e.data = event;
        r[0] = (struct store_record){ key, text, strlen(text) };
        r[1] = (struct store_record){ "/quotas/count", text, strlen(text) };
        OK(f, store_commit(f->s, &(struct store_batch){ head, head + 1, &e, 1, r, 2, 0 }, &f->err));
}

static void commit_cluster(struct fixture *f)
{
        Pb__Cluster c = PB__CLUSTER__INIT;
        uint8_t packed[128];
        uint64_t head = store_head(f->s);
        c.cluster_id = "abc";
        c.epoch = 7;
        struct store_record r = { "/meta/cluster", packed, pb__cluster__pack(&c, packed) };
        struct store_event e = { head + 1, "", 0 };
        OK(f,
           store_commit(f->s, &(struct store_batch){ head, head + 1, &e, 1, &r, 1, 0 }, &f->err));
}

static int add_event(void *ctx, const struct store_event *e, struct err *err _unused_)
{
        str_addf(ctx, "%llu=%.*s\n", (unsigned long long)e->seq, (int)e->len,
                 (const char *)e->data);
        return 0;
}
static int add_record(void *ctx, const struct store_record *r, struct err *err _unused_)
{
        str_addf(ctx, "%s=%.*s\n", r->key, (int)r->len, (const char *)r->data);
        return 0;
}

/* Everything that a store says, as text. */
static char *contents(struct fixture *f, struct store *s)
{
        struct str out = STR_INIT;
        struct store_reader *reader;
        uint64_t seq = 0;
        OK(f, store_load(s, add_record, &out, NULL, &f->err));
        OK(f, store_load_checkpoint(s, add_record, &out, &seq, &f->err));
        OK(f, store_reader_open(s, &reader, &f->err));
        OK(f, store_reader_events(reader, 0, false, add_event, &out, &f->err));
        store_reader_close(reader);
        str_addf(&out, "checkpoint %llu head %llu\n", (unsigned long long)seq,
                 (unsigned long long)store_head(s));
        return str_take(&out);
}

static bool begins_with(const char *file, const char *text)
{
        char front[64] = { 0 };
        FILE *h = fopen(file, "r");
        assert_non_null(h);
        assert_true(fread(front, 1, strlen(text), h) == strlen(text));
        fclose(h);
        return strcmp(front, text) == 0;
}

static void back_up(struct fixture *f)
{
        struct store *moment;
        struct backup_facts facts;
        OK(f, store_open_moment(f->url, &moment, &f->err));
        OK(f, store_backup(moment, f->file, "9.9", 1234, NULL, NULL, &facts, &f->err));
        store_close(moment);
}

static void fill(struct fixture *f)
{
        open_led(f, f->url);
        commit_cluster(f);
        for (int i = 1; i <= 60; i++)
                commit_one(f, i);
        OK(f, store_checkpoint(f->s, &f->err));
        while (store_prune(f->s, STORE_KEEP_LOG(30), 1000, NULL, &f->err) > 0) {
        }
        for (int i = 61; i <= 100; i++)
                commit_one(f, i);
}

/* R: A5 A4 */
static void a_backup_holds_everything_and_goes_into_either_store(void **state)
{
        struct fixture *f = *state;
        struct store *file, *to;
        fill(f);
        back_up(f);
        _cleanup_(mem_freep) char *was = contents(f, f->s);
        char url[PATH_MAX + 8];
        snprintf(url, sizeof(url), "backup:%s", f->file);
        OK(f, store_open_moment(url, &file, &f->err));
        const struct backup_facts *facts = store_backup_facts(file);
        assert_string_equal(facts->cluster_id, "abc");
        assert_int_equal(facts->epoch, 7);
        assert_int_equal(facts->head, 101);
        assert_string_equal(facts->version, "9.9");
        _cleanup_(mem_freep) char *in_file = contents(f, file);
        assert_string_equal(in_file, was);
        assert_int_equal(store_integrity(file, &f->err), 0);
        /* which a berth from before refuses with a sentence */
        assert_true(begins_with(f->file, "berth backup 2\n"));
        assert_non_null(strstr(was, "\n4=\x10\x4a\x18\x01"
                                    "3\n")); /* kept apart: R: A14 */
        assert_non_null(strstr(was, "\n24=\x10\x4a\x18\x01"
                                    "23\n32=31\n33=32\n"));
        assert_null(strstr(was, "\n5=4\n"));

        OK(f, store_restore_open(f->other, false, &to, &f->err));
        OK(f, store_copy(file, to, NULL, NULL, &f->err));
        OK(f, store_restore_done(to, NULL, &f->err));
        store_close(file);
        store_close(f->s);
        open_led(f, f->other);
        _cleanup_(mem_freep) char *restored = contents(f, f->s);
        assert_string_equal(restored, was);
        assert_int_equal(store_integrity(f->s, &f->err), 0);
        commit_one(f, 101); /* and goes on */
}

struct seen {
        int count, largest;
};
static int look(void *ctx, const struct store_record *r, struct err *err _unused_)
{
        struct seen *s = ctx;
        int n = atoi(fmt("%.*s", (int)r->len, (const char *)r->data));
        if (strcmp(r->key, "/quotas/count") == 0)
                s->count = n;
        else if (strncmp(r->key, "/workloads/", 11) == 0 && n > s->largest)
                s->largest = n;
        return 0;
}

/* R: A5 */
static void a_moment_does_not_move_while_the_store_does(void **state)
{
        struct fixture *f = *state;
        struct store *moment;
        fill(f);
        OK(f, store_open_moment(f->url, &moment, &f->err));
        _cleanup_(mem_freep) char *before = contents(f, moment);
        for (int i = 101; i <= 150; i++)
                commit_one(f, i);
        OK(f, store_checkpoint(f->s, &f->err));
        while (store_prune(f->s, STORE_KEEP_LOG(10), 1000, NULL, &f->err) > 0) {
        }
        _cleanup_(mem_freep) char *after = contents(f, moment);
        assert_string_equal(after, before);
        struct seen seen = { 0 };
        OK(f, store_load(moment, look, &seen, NULL, &f->err));
        assert_int_equal(seen.count, 100);
        assert_int_equal(seen.largest, 100);
        /* and cannot be written */
        uint64_t head = store_head(moment);
        struct store_event e = { head + 1, "x", 1 };
        assert_true(store_commit(moment, &(struct store_batch){ head, head + 1, &e, 1, NULL, 0, 0 },
                                 &f->err) < 0);
        store_close(moment);
}

static void damage(const char *file, long at, int by)
{
        FILE *h = fopen(file, "r+");
        assert_non_null(h);
        assert_int_equal(fseek(h, at, SEEK_SET), 0);
        int c = fgetc(h);
        assert_int_equal(fseek(h, at, SEEK_SET), 0);
        fputc(c ^ by, h);
        assert_int_equal(fclose(h), 0);
}

static int open_file(struct fixture *f, struct store **ret)
{
        char url[PATH_MAX + 8];
        snprintf(url, sizeof(url), "backup:%s", f->file);
        return store_open_moment(url, ret, &f->err);
}

/* R: A5 */
static void each_changed_byte_and_each_missing_end_is_found(void **state)
{
        struct fixture *f = *state;
        struct store *file;
        struct stat st;
        open_led(f, f->url);
        commit_cluster(f);
        commit_one(f, 1);
        OK(f, store_checkpoint(f->s, &f->err));
        commit_one(f, 2);
        back_up(f);
        assert_int_equal(stat(f->file, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        /* nothing is kept apart: any berth reads it */
        assert_true(begins_with(f->file, "berth backup 1\n"));
        for (long at = 0; at < st.st_size; at++) {
                damage(f->file, at, 1 << (at % 8));
                int r = open_file(f, &file);
                if (r != -ERR_CORRUPT && r != -ERR_CONFLICT)
                        fail_msg("byte %ld changed: %d", at, r);
                assert_true(f->err.hint[0]);
                damage(f->file, at, 1 << (at % 8));
        }
        OK(f, open_file(f, &file));
        store_close(file);
        for (long len = st.st_size - 1; len >= 0; len--) {
                assert_int_equal(truncate(f->file, len), 0);
                assert_int_equal(open_file(f, &file), -ERR_CORRUPT);
        }
        FILE *h = fopen(f->file, "w");
        fprintf(h, "berth backup 3\n%80s", "");
        fclose(h);
        assert_int_equal(open_file(f, &file), -ERR_CONFLICT); /* of a newer berth */
        (void)unlink(f->file);
        assert_int_equal(open_file(f, &file), -ERR_NOT_FOUND);
}

/* R: A5 A14 */
static void a_backup_with_events_that_are_kept_apart_is_checked_as_well(void **state)
{
        struct fixture *f = *state;
        struct store *file;
        struct stat st;
        fill(f);
        back_up(f);
        assert_int_equal(stat(f->file, &st), 0);
        for (long at = 0; at < st.st_size; at += at < 400 ? 1 : 13) {
                damage(f->file, at, 1 << (at % 8));
                int r = open_file(f, &file);
                if (r != -ERR_CORRUPT && r != -ERR_CONFLICT)
                        fail_msg("byte %ld changed: %d", at, r);
                damage(f->file, at, 1 << (at % 8));
        }
        OK(f, open_file(f, &file));
        store_close(file);
}

/* R: A5 */
static void a_restore_goes_only_where_nothing_is_or_keeps_it_aside(void **state)
{
        struct fixture *f = *state;
        struct store *file, *to;
        char *aside = NULL;
        fill(f);
        back_up(f);
        commit_one(f, 101);
        store_close(TAKE_PTR(f->s));
        OK(f, open_file(f, &file));
        assert_int_equal(store_restore_open(f->url, false, &to, &f->err), -ERR_CONFLICT);
        assert_non_null(strstr(f->err.hint, "--force"));

        /* One that fails half-way. */
        OK(f, store_restore_open(f->url, true, &to, &f->err));
        OK(f, store_seed(to, 70, &f->err));
        store_close(to);
        if (f->on_etcd) {
                assert_int_equal(store_open(f->url, true, &f->s, &f->err), -ERR_CONFLICT);
                assert_non_null(strstr(f->err.msg, "restored"));
                f->s = NULL;
                assert_int_equal(store_restore_open(f->url, false, &to, &f->err), -ERR_CONFLICT);
        } else {
                OK(f, store_open(f->url, false, &f->s, &f->err));
                /* as it was */
                assert_int_equal(store_head(f->s), 102);
                /* somebody has it open */
                assert_int_equal(store_restore_open(f->url, true, &to, &f->err), -ERR_CONFLICT);
                store_close(TAKE_PTR(f->s));
        }

        OK(f, store_restore_open(f->url, true, &to, &f->err));
        OK(f, store_copy(file, to, NULL, NULL, &f->err));
        OK(f, store_restore_done(to, &aside, &f->err));
        store_close(file);
        open_led(f, f->url);
        assert_int_equal(store_head(f->s), 101);
        if (!f->on_etcd) {
                struct store *old;
                assert_non_null(aside);
                OK(f, store_open(aside, false, &old, &f->err));
                assert_int_equal(store_head(old), 102);
                store_close(old);
                mem_free(aside);
        }
}

/* R: A5 */
static void a_folder_that_is_not_there_is_named_with_what_to_do(void **state)
{
        struct fixture *f = *state;
        struct store *moment;
        fill(f);
        OK(f, store_open_moment(f->url, &moment, &f->err));
        assert_int_equal(
            store_backup(moment, "/proc/none/it.backup", "9.9", 1234, NULL, NULL, NULL, &f->err),
            -ERR_IO);
        assert_non_null(strstr(f->err.detail, "/proc/none/it.backup: No such file"));
        assert_non_null(strstr(f->err.hint, "make the folder first"));
        store_close(moment);
}

#define BOTH(t)                                                                                    \
        cmocka_unit_test_setup_teardown(t, setup_sqlite, teardown),                                \
            cmocka_unit_test_setup_teardown(t, setup_etcd, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                BOTH(a_backup_holds_everything_and_goes_into_either_store),
                BOTH(a_moment_does_not_move_while_the_store_does),
                BOTH(each_changed_byte_and_each_missing_end_is_found),
                BOTH(a_backup_with_events_that_are_kept_apart_is_checked_as_well),
                BOTH(a_restore_goes_only_where_nothing_is_or_keeps_it_aside),
                cmocka_unit_test_setup_teardown(a_folder_that_is_not_there_is_named_with_what_to_do,
                                                setup_sqlite, teardown),
        };
        struct CMUnitTest here[ARRAY_LEN(tests)];
        size_t n = 0;
        for (size_t i = 0; i < ARRAY_LEN(tests); i++)
                if (tests[i].setup_func != setup_etcd || etcd_is_installed())
                        here[n++] = tests[i];
        int failed = _cmocka_run_group_tests("store_backup", here, n, NULL, NULL);
        if (etcd.pid)
                etcd_process_clean(&etcd);
        return failed;
}
