/* store/sqlite_space.c: pages that hold nothing any more go back to the file system.
 *
 * SQLite keeps the pages of what was removed for later. After a peak of events, or of workloads,
 * that is most of the file. Stores are made with auto_vacuum = INCREMENTAL: pages know who points
 * at them, so that the last ones can be moved to where there is room and the file cut, a few at a
 * time, in transactions of their own between commits.
 */
#include "base/clock.h"
#include "base/log.h"
#include "store/sqlite_store.h"

/* One call moves 256 pages: a few milliseconds. Below SHRINK_LEAST unused pages (4 MiB) it is not
 * worth it. A checkpoint of the state leaves the pages of the one before behind, which are less
 * than a third of the file: they are kept for the next one. */
#define SHRINK_LEAST 1024

/* How many pages the file has and how many of them hold nothing. `ret_can` says whether it was made
 * so that it can shrink. */
static int look(struct sqlite_store *s, bool *ret_can, int64_t *ret_pages, int64_t *ret_unused,
                struct err *err)
{
        int64_t mode = 0;
        int r = sqlite_number(s->db, "PRAGMA auto_vacuum", 0, &mode, err);
        if (r == 0)
                r = sqlite_number(s->db, "PRAGMA page_count", 0, ret_pages, err);
        if (r == 0)
                r = sqlite_number(s->db, "PRAGMA freelist_count", 0, ret_unused, err);
        *ret_can = mode != 0;
        return r;
}

/* A file that was made before stores could shrink is written anew once, when that is worth it. */
int sqlite_make_shrinkable(struct sqlite_store *s, struct err *err)
{
        int64_t pages = 0, unused = 0, start_ns = clock_mono_ns();
        bool can = false;
        int r = look(s, &can, &pages, &unused, err);
        if (r < 0 || can || unused < SHRINK_LEAST || unused * 3 < pages)
                return r;
        char *problem = NULL;
        if (sqlite3_exec(s->db, "PRAGMA auto_vacuum = INCREMENTAL; VACUUM", NULL, NULL, &problem) !=
            SQLITE_OK)
                log_warn("the store's file could not be made smaller; it goes on as it is",
                         LOG_S("path", s->path),
                         LOG_S("error", problem ? problem : "no reason given"));
        else
                log_info("the store's file was written anew without its unused pages",
                         LOG_S("path", s->path), LOG_I("pages_before", pages),
                         LOG_I("unused", unused),
                         LOG_I("took_ms", (clock_mono_ns() - start_ns) / 1000000));
        sqlite3_free(problem);
        return 0;
}

static int move_pages(struct sqlite_store *s, struct err *err)
{
        _cleanup_(sqlite_finalizep) sqlite3_stmt *q = NULL;
        int r = sqlite_prepare(s->db, "PRAGMA incremental_vacuum(256)", &q, err), rc = SQLITE_ROW;
        while (r == 0 && rc == SQLITE_ROW) /* a page each time */
                rc = sqlite3_step(q);
        return r == 0 && rc != SQLITE_DONE ? sqlite_err(s->db, rc, "giving unused pages back", err)
                                           : r;
}

int sqlite_shrink(struct store *base, struct err *err)
{
        struct sqlite_store *s = (struct sqlite_store *)base;
        int64_t pages = 0, unused = 0;
        bool can = false;
        if (s->copier_started && !s->copier_done)
                return 0; /* it needs room, and its view keeps the log from being folded */
        pthread_mutex_lock(&s->lock);
        int r = look(s, &can, &pages, &unused, err);
        bool began = s->shrinking;
        s->shrinking = r == 0 && can && unused >= SHRINK_LEAST &&
                       (unused * 3 >= pages || (began && unused * 8 >= pages));
        if (s->shrinking)
                r = move_pages(s, err);
        /* the file is as long as before until the log is folded into it */
        else if (began && r == 0)
                sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
        if (r < 0)
                s->shrinking = false;
        r = r < 0 ? r : s->shrinking;
        pthread_mutex_unlock(&s->lock);
        return r;
}
