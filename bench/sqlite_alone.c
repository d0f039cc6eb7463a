/* bench/sqlite_alone.c: how fast SQLite alone takes the rows that a server has written.
 *
 *      sqlite_alone STORE SINCE COMMITS RECORDS
 *
 * From a store's file it reads the events after sequence SINCE, the workloads that these events
 * created (two events each: applied, scheduled), and the records that were there before (nodes).
 * Into a fresh file beside it, with the store's settings and tables, it then writes the old records
 * in one go, and, measured: the events, the new records, and, up to RECORDS in all, old records
 * again (a node's record is written with each assignment), in COMMITS transactions of equal size,
 * one fdatasync each. No key is looked up, nothing is decided, nobody asks: what is left is the
 * price of SQLite and of the disk. With COMMITS 0 only a plain scan of all records is timed
 * (`restart` is held against it).
 *
 * Prints one line: rows= bytes= seconds= cpu_seconds= rows_per_s= commits= scan_records=
 * scan_seconds=
 */
#include "base/array.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

struct row {
        int64_t id;
        char *key; /* NULL: an event */
        void *data;
        int len;
};
static ARRAY(struct row) events, records, older, updates;

static sqlite3 *db;

static void die(const char *what)
{
        fprintf(stderr, "error: %s: %s\n", what, db ? sqlite3_errmsg(db) : "");
        exit(1);
}

static void check(int rc, const char *what)
{
        if (rc != SQLITE_OK && rc != SQLITE_DONE && rc != SQLITE_ROW)
                die(what);
}

static sqlite3_stmt *prepare(const char *sql)
{
        sqlite3_stmt *q;
        check(sqlite3_prepare_v2(db, sql, -1, &q, NULL), sql);
        return q;
}

static void read_rows(uint64_t since, uint64_t n_records, uint64_t n_written)
{
        sqlite3_stmt *q = prepare("SELECT seq, data FROM events WHERE seq > ?1 ORDER BY seq");
        sqlite3_bind_int64(q, 1, (int64_t)since);
        while (sqlite3_step(q) == SQLITE_ROW) {
                int len = sqlite3_column_bytes(q, 1);
                *array_push(&events) =
                    (struct row){ sqlite3_column_int64(q, 0), NULL,
                                  mem_dup(sqlite3_column_blob(q, 1), (size_t)len), len };
        }
        sqlite3_finalize(q);
        uint64_t n_new = events.len / 2;
        q = prepare("SELECT id, key, data FROM records ORDER BY id");
        for (uint64_t i = 0; sqlite3_step(q) == SQLITE_ROW; i++) {
                int len = sqlite3_column_bytes(q, 2);
                struct row row = { sqlite3_column_int64(q, 0),
                                   mem_strdup((const char *)sqlite3_column_text(q, 1)),
                                   mem_dup(sqlite3_column_blob(q, 2), (size_t)len), len };
                if (i + n_new < n_records)
                        *array_push(&older) = row;
                else
                        *array_push(&records) = row;
        }
        sqlite3_finalize(q);
        /* spread over all of them, as placement does */
        for (uint64_t i = 0; older.len > 0 && records.len + i < n_written; i++)
                *array_push(&updates) = older.at[i * 7919 % older.len];
}

static uint64_t scan(double *ret_seconds)
{
        uint64_t n = 0;
        volatile unsigned char sum = 0;
        int64_t t0 = clock_mono_ns();
        sqlite3_stmt *q = prepare("SELECT key, data FROM records");
        while (sqlite3_step(q) == SQLITE_ROW) {
                const unsigned char *p = sqlite3_column_blob(q, 1);
                sum = (unsigned char)(sum + *sqlite3_column_text(q, 0) + (p ? p[0] : 0));
                n++;
        }
        sqlite3_finalize(q);
        *ret_seconds = (double)(clock_mono_ns() - t0) / 1e9;
        return n;
}

/* A share of the rows, the same for each transaction: from part * n / parts up to the next. */
static void put(sqlite3_stmt *q, const struct row *rows, size_t n, uint64_t part, uint64_t parts,
                uint64_t *bytes)
{
        for (size_t i = n * part / parts; i < n * (part + 1) / parts; i++) {
                int column = 1;
                sqlite3_bind_int64(q, column++, rows[i].id);
                if (rows[i].key && sqlite3_bind_parameter_count(q) == 3)
                        sqlite3_bind_text(q, column++, rows[i].key, -1, SQLITE_STATIC);
                sqlite3_bind_blob(q, column, rows[i].data, rows[i].len, SQLITE_STATIC);
                check(sqlite3_step(q), "cannot write");
                sqlite3_reset(q);
                *bytes += (uint64_t)rows[i].len + (rows[i].key ? strlen(rows[i].key) : 0);
        }
}

static double cpu_seconds(void)
{
        struct rusage u;
        getrusage(RUSAGE_SELF, &u);
        return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
               (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static double write_rows(const char *path, uint64_t commits, uint64_t *bytes, double *ret_cpu)
{
        check(sqlite3_open_v2(path, &db,
                              SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                              NULL),
              path);
        check(sqlite3_exec(
                  db,
                  "PRAGMA page_size = 4096; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; "
                  "PRAGMA cache_size = -16384;"
                  "PRAGMA mmap_size = 0; PRAGMA secure_delete = OFF; PRAGMA wal_autocheckpoint = "
                  "2048; PRAGMA journal_size_limit = 16777216;"
                  "CREATE TABLE meta(key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
                  "CREATE TABLE events(seq INTEGER PRIMARY KEY, data BLOB NOT NULL);"
                  "CREATE TABLE records(id INTEGER PRIMARY KEY, key TEXT NOT NULL, data BLOB NOT "
                  "NULL);"
                  "INSERT INTO meta VALUES('head', 0);",
                  NULL, NULL, NULL),
              "cannot set up");
        sqlite3_stmt *start = prepare("BEGIN IMMEDIATE"), *finish = prepare("COMMIT"),
                     *head = prepare("UPDATE meta SET value = ?1 WHERE key = 'head'"),
                     *event = prepare("INSERT INTO events VALUES(?1, ?2)"),
                     *record = prepare("INSERT INTO records VALUES(?1, ?2, ?3)"),
                     *update = prepare("UPDATE records SET data = ?2 WHERE id = ?1");
        uint64_t before = 0;
        check(sqlite3_step(start), "BEGIN");
        sqlite3_reset(start);
        put(record, older.at, older.len, 0, 1, &before);
        check(sqlite3_step(finish), "COMMIT");
        sqlite3_reset(finish);
        double cpu = cpu_seconds();
        int64_t t0 = clock_mono_ns();
        for (uint64_t i = 0; i < commits; i++) {
                check(sqlite3_step(start), "BEGIN");
                sqlite3_reset(start);
                put(event, events.at, events.len, i, commits, bytes);
                put(record, records.at, records.len, i, commits, bytes);
                put(update, updates.at, updates.len, i, commits, bytes);
                sqlite3_bind_int64(head, 1, (int64_t)i);
                check(sqlite3_step(head), "head");
                sqlite3_reset(head);
                check(sqlite3_step(finish), "COMMIT");
                sqlite3_reset(finish);
        }
        double seconds = (double)(clock_mono_ns() - t0) / 1e9;
        *ret_cpu = cpu_seconds() - cpu;
        sqlite3_stmt *all[] = { start, finish, head, event, record, update };
        for (size_t i = 0; i < ARRAY_LEN(all); i++)
                sqlite3_finalize(all[i]);
        sqlite3_close(db);
        return seconds;
}

static void free_rows(struct row *rows, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                mem_free(rows[i].key);
                mem_free(rows[i].data);
        }
}

int main(int argc, char **argv)
{
        uint64_t since = 0, commits = 0, n_written = 0, bytes = 0;
        double scan_seconds = 0, seconds = 0, cpu = 0;
        if (argc != 5 || str_parse_u64(argv[2], &since) < 0 ||
            str_parse_u64(argv[3], &commits) < 0 || str_parse_u64(argv[4], &n_written) < 0) {
                fprintf(stderr, "usage: sqlite_alone STORE SINCE COMMITS RECORDS\n");
                return 2;
        }
        check(sqlite3_open_v2(argv[1], &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL),
              argv[1]);
        uint64_t scanned = scan(&scan_seconds);
        if (commits > 0)
                read_rows(since, scanned, n_written);
        sqlite3_close(db);
        db = NULL;
        if (commits > 0) {
                _cleanup_(str_finip) struct str path = STR_INIT;
                str_addf(&path, "%s.alone", argv[1]);
                unlink(str_c(&path));
                seconds = write_rows(str_c(&path), commits, &bytes, &cpu);
                unlink(str_c(&path));
        }
        /* the moved head is not counted as a row, here or there */
        size_t rows = events.len + records.len + updates.len;
        printf("rows=%zu bytes=%llu seconds=%.4f cpu_seconds=%.4f rows_per_s=%.0f commits=%llu "
               "scan_records=%llu scan_seconds=%.4f\n",
               rows, (unsigned long long)bytes, seconds, cpu,
               seconds > 0 ? (double)rows / seconds : 0, (unsigned long long)commits,
               (unsigned long long)scanned, scan_seconds);
        free_rows(events.at, events.len);
        free_rows(records.at, records.len);
        free_rows(older.at, older.len);
        array_fini(&events);
        array_fini(&records);
        array_fini(&older);
        array_fini(&updates);
        return 0;
}
