/* store/backup_read.c: a backup file as a store that is only read: "backup:FILE".
 *
 * Opening it reads it once from end to end: every frame in its place, no gap between events, counts
 * and checksum right. After that the sections are read by their offsets.
 */
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "records.pb-c.h"
#include "store/backup.h"
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct backup_store {
        struct store base;
        struct backup_facts facts;
        FILE *file;
        struct str frame;  /* the last one read */
        off_t sections[3]; /* where E, C and R begin */
        bool sparse;       /* form 2: events may have gaps below the floor */
        uint64_t floor;    /* the log's first event; 0: not seen yet, or there is none */
        uint64_t last;     /* the last event's sequence; 0: there is none */
        EVP_MD_CTX *sum;   /* while it is checked */
        off_t left;        /* bytes not read yet, without the checksum */
};

static struct backup_store *self(struct store *s)
{
        return (struct backup_store *)s;
}

static int damaged(struct err *err, const char *msg, const char *detail)
{
        return err_set(err, ERR_CORRUPT, .msg = msg, .detail = detail,
                       .hint = "copy the file again from where it was made, or use another backup");
}

static int cut_short(struct backup_store *s, struct err *err)
{
        return ferror(s->file) ? err_sys(err, errno, "cannot read the backup")
                               : damaged(err, "the backup is cut short",
                                         fmt("it ends at byte %lld", (long long)ftello(s->file)));
}

static int take_bytes(struct backup_store *s, void *data, size_t len, struct err *err)
{
        if ((off_t)len > s->left)
                return cut_short(s, err);
        if (fread(data, 1, len, s->file) != len)
                return cut_short(s, err);
        s->left -= (off_t)len;
        if (s->sum)
                EVP_DigestUpdate(s->sum, data, len);
        return 0;
}

/* The next frame into s->frame. */
static int take_frame(struct backup_store *s, char *ret_kind, struct err *err)
{
        unsigned char head[BACKUP_FRAME_BYTES];
        int r = take_bytes(s, head, sizeof(head), err);
        if (r < 0)
                return r;
        size_t len =
            (size_t)head[1] | (size_t)head[2] << 8 | (size_t)head[3] << 16 | (size_t)head[4] << 24;
        if (len > BACKUP_MAX_FRAME_BYTES)
                return damaged(
                    err, "the backup is damaged",
                    fmt("a frame of %zu bytes at byte %lld", len, (long long)ftello(s->file)));
        str_clear(&s->frame);
        str_reserve(&s->frame, len);
        r = take_bytes(s, s->frame.buf, len, err);
        if (r < 0)
                return r;
        s->frame.len = len;
        s->frame.buf[len] = '\0';
        *ret_kind = (char)head[0];
        return 0;
}

static bool frame_event(const struct backup_store *s, struct store_event *ret)
{
        if (s->frame.len < 8)
                return false;
        *ret = (struct store_event){ .data = s->frame.buf + 8, .len = s->frame.len - 8 };
        for (int i = 0; i < 8; i++)
                ret->seq |= (uint64_t)(unsigned char)s->frame.buf[i] << (8 * i);
        return true;
}

static bool frame_record(const struct backup_store *s, struct store_record *ret)
{
        size_t n = s->frame.len ? strnlen(s->frame.buf, s->frame.len) : 0;
        if (n == 0 || n == s->frame.len || n > STORE_MAX_KEY_BYTES)
                return false;
        *ret = (struct store_record){ s->frame.buf, s->frame.buf + n + 1, s->frame.len - n - 1 };
        return true;
}

/* ---- is it whole? ---- */

static int check_magic(struct backup_store *s, struct err *err)
{
        char magic[sizeof(BACKUP_MAGIC) - 1] = { 0 };
        size_t any = strlen(BACKUP_MAGIC_ANY);
        if (s->left < (off_t)sizeof(magic) || take_bytes(s, magic, sizeof(magic), NULL) < 0 ||
            memcmp(magic, BACKUP_MAGIC_ANY, any) != 0)
                return err_set(err, ERR_CORRUPT, .msg = "the file is no backup of berth",
                               .hint = "give a file that `berth backup` made; a store itself is "
                                       "opened with --store");
        s->sparse = memcmp(magic, BACKUP_MAGIC_SPARSE, sizeof(magic)) == 0;
        return s->sparse || memcmp(magic, BACKUP_MAGIC, sizeof(magic)) == 0
                   ? 0
                   : err_set(err, ERR_CONFLICT, .msg = "the backup was made by a newer berth",
                             .detail =
                                 fmt("its form is %.1s, this binary knows 1 and 2", magic + any),
                             .hint = "restore it with that version");
}

static int check_head(struct backup_store *s, struct err *err)
{
        char kind = 0;
        int r = take_frame(s, &kind, err);
        if (r < 0)
                return r;
        Pb__BackupHead *h =
            kind == 'H' ? pb__backup_head__unpack(NULL, s->frame.len, (const uint8_t *)s->frame.buf)
                        : NULL;
        if (!h || h->head > INT64_MAX || h->checkpoint > h->head || h->schema < 1 ||
            (s->sparse && (h->floor == 0 || h->floor > h->head)))
                r = damaged(err, "the backup is damaged", "its head makes no sense");
        else if (h->schema > STORE_SCHEMA)
                r = store_err_newer(err, h->schema);
        else {
                struct backup_facts *f = &s->facts;
                s->floor = s->sparse ? h->floor : 0;
                f->head = h->head;
                f->checkpoint = h->checkpoint;
                f->schema = h->schema;
                f->made_at = h->made_at;
                (void)snprintf(f->version, sizeof(f->version), "%s", h->berth_version);
                (void)snprintf(f->store, sizeof(f->store), "%s", h->store);
        }
        if (h)
                pb__backup_head__free_unpacked(h, NULL);
        return r;
}

static int check_end(struct backup_store *s, struct err *err)
{
        struct backup_facts *f = &s->facts;
        Pb__BackupEnd *e =
            pb__backup_end__unpack(NULL, s->frame.len, (const uint8_t *)s->frame.buf);
        int r = 0;
        if (!e || e->events != f->events || e->checkpoint_records != f->checkpoint_records ||
            e->records != f->records ||
            (f->head && (!s->floor || s->last != f->head || s->floor > f->checkpoint + 1)))
                r = damaged(err, "the backup is damaged",
                            "its parts are not as many as its end says");
        else {
                f->epoch = e->epoch;
                (void)snprintf(f->cluster_id, sizeof(f->cluster_id), "%s", e->cluster_id);
        }
        if (e)
                pb__backup_end__free_unpacked(e, NULL);
        if (r == 0 && s->left)
                r = damaged(err, "the backup is damaged",
                            fmt("%lld bytes stand behind its end", (long long)s->left));
        return r;
}

static int check_event(struct backup_store *s)
{
        struct store_event e;
        if (!frame_event(s, &e) || e.seq == 0)
                return -1;
        if (!s->floor)
                s->floor = e.seq; /* the log is all there is */
        /* the floor itself is there, and from it on each follows the one before */
        if (e.seq <= s->last || (e.seq > s->floor && e.seq != s->last + 1))
                return -1;
        s->last = e.seq;
        s->facts.events++;
        return 0;
}

/* All frames up to the last one, which is left to check_end(). */
static int check_frames(struct backup_store *s, struct err *err)
{
        static const char order[] = "ECRZ";
        struct store_record record;
        _cleanup_(str_finip) struct str last_key = STR_INIT;
        int section = 0;
        for (int i = 0; i < 3; i++)
                s->sections[i] = ftello(s->file);
        for (;;) {
                off_t at = ftello(s->file);
                char kind = 0;
                int r = take_frame(s, &kind, err);
                if (r < 0)
                        return r;
                const char *where = kind ? strchr(order, kind) : NULL;
                if (!where || where - order < section)
                        return damaged(err, "the backup is damaged",
                                       fmt("an unknown part at byte %lld", (long long)at));
                for (; section < where - order; section++) {
                        for (int i = section + 1; i < 3; i++)
                                s->sections[i] = at;
                        str_clear(&last_key);
                }
                if (kind == 'Z')
                        return 0;
                if (kind == 'E' && check_event(s) == 0)
                        continue;
                if (kind == 'E' || !frame_record(s, &record) ||
                    (last_key.len && strcmp(str_c(&last_key), record.key) >= 0))
                        return damaged(err, "the backup is damaged",
                                       fmt("%s out of order at byte %lld",
                                           kind == 'E' ? "an event" : "a record", (long long)at));
                str_clear(&last_key);
                str_adds(&last_key, record.key);
                (*(kind == 'C' ? &s->facts.checkpoint_records : &s->facts.records))++;
        }
}

static int check_sum(struct backup_store *s, struct err *err)
{
        unsigned char is[EVP_MAX_MD_SIZE], said[BACKUP_SUM_BYTES];
        EVP_DigestFinal_ex(s->sum, is, NULL);
        if (fread(said, 1, sizeof(said), s->file) != sizeof(said))
                return cut_short(s, err);
        return memcmp(is, said, sizeof(said)) == 0
                   ? 0
                   : damaged(err, "the backup was altered after it was made",
                             "its checksum (SHA-256) is not that of its content");
}

/* The checksum goes first in what is said: a changed byte makes frames look wrong in many ways. */
static int check_whole(struct backup_store *s, struct err *err)
{
        int r = check_magic(s, err);
        if (r == 0)
                r = check_head(s, err);
        if (r == 0)
                r = check_frames(s, err);
        if (r == 0)
                r = check_end(s, err);
        return r < 0 ? r : check_sum(s, err);
}

static void close_backup(struct store *base)
{
        struct backup_store *s = self(base);
        if (s->file)
                (void)fclose(s->file);
        EVP_MD_CTX_free(s->sum);
        str_fini(&s->frame);
        mem_free(s);
}

static int open_backup(const char *path, struct store **ret_store, struct err *err)
{
        struct backup_store *s = mem_must(sizeof(*s));
        struct stat st;
        s->base.ops = &backup_ops;
        int r = 0;
        if (!(s->file = fopen(path, "re")) || fstat(fileno(s->file), &st) < 0)
                r = errno == ENOENT ? err_set(err, ERR_NOT_FOUND, .msg = "there is no such backup",
                                              .detail = path, .hint = "check the path")
                                    : err_sys(err, errno, fmt("cannot open the backup %s", path));
        else if (!S_ISREG(st.st_mode))
                r = err_set(err, ERR_INVALID, .msg = "the backup is no file", .detail = path);
        else if (!(s->sum = EVP_MD_CTX_new()) || EVP_DigestInit_ex(s->sum, EVP_sha256(), NULL) != 1)
                r = err_set(err, ERR_INTERNAL, .msg = "OpenSSL has no SHA-256");
        if (r == 0) {
                s->left = st.st_size < BACKUP_SUM_BYTES ? 0 : st.st_size - BACKUP_SUM_BYTES;
                s->facts.bytes = (uint64_t)st.st_size;
                r = check_whole(s, err);
        }
        if (r < 0) {
                close_backup(&s->base);
                return r;
        }
        EVP_MD_CTX_free(s->sum);
        s->sum = NULL;
        s->base.head = s->facts.head;
        s->base.schema = s->facts.schema;
        *ret_store = &s->base;
        return 0;
}

static int open_store(const char *path, bool create, struct store **ret_store, struct err *err)
{
        if (create)
                return err_set(err, ERR_INVALID, .msg = "a backup is no store to write to",
                               .detail = path,
                               .hint = "berth restore FILE --store URL makes a store of it");
        return open_backup(path, ret_store, err);
}

const struct backup_facts *store_backup_facts(const struct store *s)
{
        return s->ops == &backup_ops ? &((const struct backup_store *)s)->facts : NULL;
}

/* ---- reading ---- */

static int seek_to(struct backup_store *s, int section, struct err *err)
{
        if (fseeko(s->file, s->sections[section], SEEK_SET) < 0)
                return err_sys(err, errno, "cannot read the backup");
        s->left = (off_t)s->facts.bytes - BACKUP_SUM_BYTES - s->sections[section];
        return 0;
}

static int each_record(struct backup_store *s, int section, uint64_t count, store_record_fn fn,
                       void *ctx, struct err *err)
{
        int r = seek_to(s, section, err);
        for (uint64_t i = 0; r >= 0 && i < count; i++) {
                struct store_record record;
                char kind;
                r = take_frame(s, &kind, err);
                if (r == 0 && !frame_record(s, &record))
                        r = damaged(err, "the backup has changed since it was opened", "");
                if (r == 0)
                        r = fn(ctx, &record, err);
        }
        return r < 0 ? r : 0;
}

static int load(struct store *base, store_record_fn fn, void *ctx, uint64_t *ret_head,
                struct err *err)
{
        if (ret_head)
                *ret_head = base->head;
        return each_record(self(base), 2, self(base)->facts.records, fn, ctx, err);
}

static int load_checkpoint(struct store *base, store_record_fn fn, void *ctx, uint64_t *ret_seq,
                           struct err *err)
{
        if (ret_seq)
                *ret_seq = self(base)->facts.checkpoint;
        return each_record(self(base), 1, self(base)->facts.checkpoint_records, fn, ctx, err);
}

struct backup_reader {
        struct store_reader base;
        struct backup_store *s;
};

static int reader_open(struct store *base, struct store_reader **ret_reader,
                       struct err *err _unused_)
{
        struct backup_reader *r = mem_must(sizeof(*r));
        r->base.ops = &backup_ops;
        r->s = self(base);
        *ret_reader = &r->base;
        return 0;
}

static void reader_close(struct store_reader *r)
{
        mem_free(r);
}

static int reader_events(struct store_reader *base, uint64_t since, bool backwards,
                         store_event_fn fn, void *ctx, struct err *err)
{
        struct backup_store *s = ((struct backup_reader *)base)->s;
        if (backwards)
                return err_set(err, ERR_UNSUPPORTED, .msg = "a backup is read forwards only",
                               .hint = "restore it and read the store");
        int r = seek_to(s, 0, err);
        for (uint64_t i = 0; r == 0 && i < s->facts.events; i++) {
                struct store_event e;
                char kind;
                r = take_frame(s, &kind, err);
                if (r == 0 && !frame_event(s, &e))
                        r = damaged(err, "the backup has changed since it was opened", "");
                if (r == 0 && e.seq > since)
                        r = fn(ctx, &e, err);
        }
        return r < 0 ? r : 0;
}

struct finding {
        uint64_t seq;
        store_event_fn fn;
        void *ctx;
        bool found;
};

static int find_event(void *ctx, const struct store_event *e, struct err *err)
{
        struct finding *f = ctx;
        if (e->seq != f->seq)
                return 1;
        f->found = true;
        int r = f->fn(f->ctx, e, err);
        return r < 0 ? r : 1;
}

static int reader_event(struct store_reader *base, uint64_t seq, store_event_fn fn, void *ctx,
                        struct err *err)
{
        struct finding f = { seq, fn, ctx, false };
        int r = reader_events(base, seq - 1, false, find_event, &f, err);
        return r < 0 ? r : f.found ? 0 : store_err_no_event(err, seq);
}

static int reader_records(struct store_reader *base, store_record_fn fn, void *ctx,
                          uint64_t *ret_head, struct err *err)
{
        return load(&((struct backup_reader *)base)->s->base, fn, ctx, ret_head, err);
}

static uint64_t reader_first(struct store_reader *base)
{
        return ((struct backup_reader *)base)->s->floor;
}

/* Proved when it was opened. */
static int integrity(struct store *s _unused_, struct err *err _unused_)
{
        return 0;
}

const struct store_ops backup_ops = {
        .scheme = "backup",
        .open = open_store,
        .open_moment = open_backup,
        .close = close_backup,
        .load = load,
        .load_checkpoint = load_checkpoint,
        .integrity = integrity,
        .reader_open = reader_open,
        .reader_close = reader_close,
        .reader_events = reader_events,
        .reader_event = reader_event,
        .reader_records = reader_records,
        .reader_first = reader_first,
};
