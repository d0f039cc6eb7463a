/* store/backup.c: a store into one file, with a checksum; either the whole file is there
 * afterwards, or what was there before. */
#include "store/backup.h"
#include "base/array.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "model/pb.h"
#include "records.pb-c.h"
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES (256u << 10)
#define TOLD_EVERY 50000

struct writing {
        int fd;
        EVP_MD_CTX *sum;
        struct str buffer;
        struct backup_facts facts;
        uint64_t done, told, *count; /* count: of the section being written */
        char kind;
        void (*progress)(void *ctx, uint64_t done);
        void *ctx;
};

static int write_out(struct writing *w, bool summed, struct err *err)
{
        const char *p = str_c(&w->buffer);
        size_t left = w->buffer.len;
        if (summed)
                EVP_DigestUpdate(w->sum, p, left);
        w->facts.bytes += left;
        while (left) {
                ssize_t n = write(w->fd, p, left);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return err_sys(err, errno, "cannot write the backup");
                p += n;
                left -= (size_t)n;
        }
        str_clear(&w->buffer);
        return 0;
}

static void add_frame(struct writing *w, char kind, size_t len)
{
        unsigned char head[BACKUP_FRAME_BYTES] = { (unsigned char)kind, (unsigned char)len,
                                                   (unsigned char)(len >> 8),
                                                   (unsigned char)(len >> 16),
                                                   (unsigned char)(len >> 24) };
        str_add(&w->buffer, head, sizeof(head));
}

static int frame_done(struct writing *w, struct err *err)
{
        int r = w->buffer.len >= BUFFER_BYTES ? write_out(w, true, err) : 0;
        if (w->count)
                (*w->count)++;
        w->done++;
        if (r == 0 && w->progress && w->done - w->told >= TOLD_EVERY)
                w->progress(w->ctx, w->told = w->done);
        return r;
}

static int add_message(struct writing *w, char kind, const ProtobufCMessage *m, struct err *err)
{
        struct arena a = ARENA_INIT;
        size_t len;
        void *data = pb_pack_arena(&a, m, &len);
        add_frame(w, kind, len);
        str_add(&w->buffer, data, len);
        arena_fini(&a);
        w->count = NULL;
        return frame_done(w, err);
}

static int too_large(const char *what, struct err *err)
{
        return err_set(err, ERR_LIMIT, .msg = "a part of the store is too large for a backup",
                       .detail = what, .hint = "please report this");
}

static int add_event(void *ctx, const struct store_event *e, struct err *err)
{
        struct writing *w = ctx;
        unsigned char seq[8];
        if (e->seq > w->facts.head)
                return 1;
        if (e->len > BACKUP_MAX_FRAME_BYTES - sizeof(seq))
                return too_large(fmt("event %llu", (unsigned long long)e->seq), err);
        for (int i = 0; i < 8; i++)
                seq[i] = (unsigned char)(e->seq >> (8 * i));
        add_frame(w, 'E', sizeof(seq) + e->len);
        str_add(&w->buffer, seq, sizeof(seq));
        str_add(&w->buffer, e->data, e->len);
        return frame_done(w, err);
}

/* The cluster's own record names it at the end of the file. */
static void note_cluster(struct writing *w, const struct store_record *r)
{
        if (w->kind != 'R' || strcmp(r->key, "/meta/cluster") != 0)
                return;
        Pb__Cluster *c = pb__cluster__unpack(NULL, r->len, r->data);
        if (!c)
                return;
        (void)snprintf(w->facts.cluster_id, sizeof(w->facts.cluster_id), "%s", c->cluster_id);
        w->facts.epoch = c->epoch;
        pb__cluster__free_unpacked(c, NULL);
}

static int add_record(void *ctx, const struct store_record *r, struct err *err)
{
        struct writing *w = ctx;
        size_t key_bytes = strlen(r->key) + 1;
        if (r->len > BACKUP_MAX_FRAME_BYTES - key_bytes)
                return too_large(r->key, err);
        note_cluster(w, r);
        add_frame(w, w->kind, key_bytes + r->len);
        str_add(&w->buffer, r->key, key_bytes);
        str_add(&w->buffer, r->data, r->len);
        return frame_done(w, err);
}

static int add_records(struct writing *w, struct store *from, char kind, uint64_t *count,
                       struct err *err)
{
        w->kind = kind;
        w->count = count;
        return kind == 'C' ? store_load_checkpoint(from, add_record, w, NULL, err)
                           : store_load(from, add_record, w, NULL, err);
}

static int take_seq(void *ctx, const struct store_event *e, struct err *err _unused_)
{
        *(uint64_t *)ctx = e->seq;
        return 1;
}

static int ignore_record(void *ctx _unused_, const struct store_record *r _unused_,
                         struct err *err _unused_)
{
        return 0;
}

static int write_all(struct writing *w, struct store *from, struct err *err)
{
        _cleanup_(store_reader_closep) struct store_reader *reader = NULL;
        Pb__BackupHead head = PB__BACKUP_HEAD__INIT;
        Pb__BackupEnd end = PB__BACKUP_END__INIT;
        uint64_t first = 0;
        int r = store_load_checkpoint(from, ignore_record, NULL, &w->facts.checkpoint, err);
        if (r == 0)
                r = store_reader_open(from, &reader, err);
        if (r == 0)
                r = store_reader_events(reader, 0, false, take_seq, &first, err);
        if (r < 0)
                return r;
        uint64_t floor = store_reader_first(reader);
        bool sparse = first && first < floor;
        head.floor = sparse ? floor : 0;
        head.schema = w->facts.schema;
        head.berth_version = w->facts.version;
        head.made_at = w->facts.made_at;
        head.head = w->facts.head;
        head.checkpoint = w->facts.checkpoint;
        head.store = w->facts.store;
        str_adds(&w->buffer, sparse ? BACKUP_MAGIC_SPARSE : BACKUP_MAGIC);
        r = add_message(w, 'H', &head.base, err);
        w->count = &w->facts.events;
        if (r == 0)
                r = store_reader_events(reader, 0, false, add_event, w, err);
        if (r >= 0)
                r = add_records(w, from, 'C', &w->facts.checkpoint_records, err);
        if (r == 0)
                r = add_records(w, from, 'R', &w->facts.records, err);
        end.events = w->facts.events;
        end.checkpoint_records = w->facts.checkpoint_records;
        end.records = w->facts.records;
        end.cluster_id = w->facts.cluster_id;
        end.epoch = w->facts.epoch;
        if (r == 0)
                r = add_message(w, 'Z', &end.base, err);
        if (r == 0)
                r = write_out(w, true, err);
        unsigned char sum[EVP_MAX_MD_SIZE];
        EVP_DigestFinal_ex(w->sum, sum, NULL);
        str_add(&w->buffer, sum, BACKUP_SUM_BYTES);
        return r < 0 ? r : write_out(w, false, err);
}

static int sync_folder_of(const char *path, struct err *err)
{
        const char *slash = strrchr(path, '/');
        _cleanup_(mem_freep) char *dir = !slash ? mem_strdup(".")
                                         : slash == path
                                             ? mem_strdup("/")
                                             : mem_strndup(path, (size_t)(slash - path));
        _cleanup_(fd_closep) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return fd < 0 || fsync(fd) < 0 ? err_sys(err, errno, fmt("cannot sync the folder %s", dir))
                                       : 0;
}

int store_backup(struct store *from, const char *path, const char *berth_version, int64_t now_ms,
                 void (*progress)(void *ctx, uint64_t done), void *ctx,
                 struct backup_facts *ret_facts, struct err *err)
{
        _cleanup_(str_finip) struct str temp = STR_INIT;
        struct writing w = { .fd = -1, .sum = EVP_MD_CTX_new(), .progress = progress, .ctx = ctx };
        str_addf(&temp, "%s.XXXXXX", path);
        w.facts.head = store_head(from);
        w.facts.schema = store_schema(from);
        w.facts.made_at = now_ms;
        (void)snprintf(w.facts.version, sizeof(w.facts.version), "%s", berth_version);
        (void)snprintf(w.facts.store, sizeof(w.facts.store), "%s", from->ops->scheme);
        int r = 0;
        if (!w.sum || EVP_DigestInit_ex(w.sum, EVP_sha256(), NULL) != 1)
                r = err_set(err, ERR_INTERNAL, .msg = "OpenSSL has no SHA-256");
        if (r == 0 && (w.fd = mkostemp(temp.buf, O_CLOEXEC)) < 0) {
                int why = errno;
                r = err_set(err, ERR_IO, .msg = "cannot create a file for the backup",
                            .detail = fmt("%s: %s", path, strerror(why)),
                            .hint =
                                why == ENOENT || why == ENOTDIR
                                    ? "make the folder first, or name a file in one that is there"
                                    : "it is written beside its last name first: name a file in a "
                                      "folder that you may write to");
        }
        bool made = w.fd >= 0;
        if (r == 0)
                r = write_all(&w, from, err);
        if (r == 0 && (fchmod(w.fd, 0600) < 0 || fsync(w.fd) < 0))
                r = err_sys(err, errno, "cannot sync the backup");
        if (made && close(w.fd) < 0 && r == 0)
                r = err_sys(err, errno, "cannot write the backup");
        if (r == 0 && rename(temp.buf, path) < 0)
                r = err_sys(err, errno, fmt("cannot name the backup %s", path));
        else if (r == 0)
                r = sync_folder_of(path, err);
        if (r < 0 && made)
                (void)unlink(temp.buf);
        EVP_MD_CTX_free(w.sum);
        str_fini(&w.buffer);
        if (r == 0 && ret_facts)
                *ret_facts = w.facts;
        return r;
}
