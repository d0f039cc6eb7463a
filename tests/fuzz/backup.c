/* A backup file of which any part is wrong: it is refused with a message when it is opened or
 * copied, or a restore of it gives a store whose core is sound.
 *
 * Frames: 0 head whose sequence is that of the last event (one that has a floor makes every other
 * event of the first half missing), 1 event that follows, 2 record of the checkpoint, 3 record, 4
 * end whose counts are right, 5 end as it is, 6 a frame of any kind. The checksum is right but for
 * one input in eight: what breaks it is found at once. */
#include "frames.h"
#include "fuzz.h"
#include "fuzz_core.h"
#include "store/store.h"
#include <openssl/evp.h>
#include <sys/mman.h>
#include <unistd.h>

const uint8_t frame_kinds = 7;

const ProtobufCMessageDescriptor *frame_type(const struct frame *f, size_t *ret_offset)
{
        *ret_offset = 0;
        if (f->kind == 0)
                return &pb__backup_head__descriptor;
        if (f->kind == 1)
                return &pb__event__descriptor;
        if (f->kind == 4 || f->kind == 5)
                return &pb__backup_end__descriptor;
        const uint8_t *nul = f->kind == 6 ? NULL : memchr(f->data, 0, f->len);
        if (!nul)
                return NULL;
        *ret_offset = (size_t)(nul - f->data) + 1;
        const char *key = (const char *)f->data;
        return str_starts(key, "/nodes/")       ? &pb__node__descriptor
               : str_starts(key, "/workloads/") ? &pb__workload__descriptor
               : str_starts(key, "/tokens/")    ? &pb__access_token__descriptor
                                                : &pb__cluster__descriptor;
}

static void add_frame(struct str *out, char kind, const void *prefix, size_t prefix_len,
                      const void *data, size_t len)
{
        size_t n = prefix_len + len;
        const char head[5] = { kind, (char)n, (char)(n >> 8), (char)(n >> 16), (char)(n >> 24) };
        str_add(out, head, sizeof(head));
        str_add(out, prefix, prefix_len);
        str_add(out, data, len);
}

static void add_message(struct str *out, char kind, const ProtobufCMessage *m, struct arena *a)
{
        size_t len;
        const void *data = pb_pack_arena(a, m, &len);
        add_frame(out, kind, "", 0, data, len);
}

/* Of the i-th of n events. Below the floor, which is 2 * (n / 2) + 1, every other one is there. */
static uint64_t sequence(uint64_t i, uint64_t n, bool sparse)
{
        return !sparse ? i + 1 : i < n / 2 ? 2 * i + 1 : n / 2 + i + 1;
}

static void add_head(struct str *out, const struct frame *f, uint64_t events, struct arena *a)
{
        ProtobufCMessage *m = NULL;
        if (pb_unpack_own(&pb__backup_head__descriptor, f->data, f->len, a, &m, NULL) < 0) {
                add_frame(out, 'H', "", 0, f->data, f->len);
                return;
        }
        Pb__BackupHead *h = (Pb__BackupHead *)m;
        bool sparse = h->floor;
        h->head = events ? sequence(events - 1, events, sparse) : 0;
        h->floor = sparse ? sequence(events / 2, events, true) : 0;
        add_message(out, 'H', m, a);
}

static bool is_sparse(const struct frame *frames, size_t n, struct arena *a)
{
        ProtobufCMessage *m = NULL;
        return n && frames[0].kind % frame_kinds == 0 &&
               pb_unpack_own(&pb__backup_head__descriptor, frames[0].data, frames[0].len, a, &m,
                             NULL) >= 0 &&
               ((Pb__BackupHead *)m)->floor;
}

static void add_end(struct str *out, const struct frame *f, const uint64_t counts[static 8],
                    struct arena *a)
{
        ProtobufCMessage *m = NULL;
        if (f->kind == 5 ||
            pb_unpack_own(&pb__backup_end__descriptor, f->data, f->len, a, &m, NULL) < 0) {
                add_frame(out, 'Z', "", 0, f->data, f->len);
                return;
        }
        Pb__BackupEnd *end = (Pb__BackupEnd *)m;
        end->events = counts[1];
        end->checkpoint_records = counts[2];
        end->records = counts[3];
        add_message(out, 'Z', m, a);
}

static void make_file(struct str *out, const struct frame *frames, size_t n, bool good_sum,
                      struct arena *a)
{
        uint64_t counts[8] = { 0 };
        uint8_t seq[8] = { 0 }, sum[EVP_MAX_MD_SIZE];
        uint64_t events = 0;
        bool sparse = is_sparse(frames, n, a);
        for (size_t i = 0; i < n; i++)
                counts[frames[i].kind % frame_kinds]++;
        str_adds(out, sparse ? "berth backup 2\n" : "berth backup 1\n");
        for (size_t i = 0; i < n; i++) {
                const struct frame *f = &frames[i];
                switch (f->kind % frame_kinds) {
                case 0:
                        add_head(out, f, counts[1], a);
                        break;
                case 1:
                        /* there are fewer than 128 */
                        seq[0] = (uint8_t)sequence(events++, counts[1], sparse);
                        add_frame(out, 'E', seq, sizeof(seq), f->data, f->len);
                        break;
                case 2:
                case 3:
                        add_frame(out, f->kind % frame_kinds == 2 ? 'C' : 'R', "", 0, f->data,
                                  f->len);
                        break;
                case 4:
                case 5:
                        add_end(out, f, counts, a);
                        break;
                default:
                        str_add(out, f->data, f->len);
                }
        }
        MUST(EVP_Digest(out->buf, out->len, sum, NULL, EVP_sha256(), NULL) == 1, "SHA-256");
        if (!good_sum)
                sum[3] ^= 1;
        str_add(out, sum, 32);
}

struct loading {
        struct core *core;
        bool has_cluster;
};

static int load_one(void *ctx, const struct store_record *r, struct err *err)
{
        struct loading *l = ctx;
        (void)err;
        /* a bad one stays as bad as it was */
        int bad = core_load_record(l->core, r->key, r->data, r->len, NULL);
        l->has_cluster |= !bad && str_eq(r->key, "/meta/cluster");
        return 0;
}

/* What the server finds that starts on it. */
static void load_again(struct store *store)
{
        struct err err = { 0 };
        struct arena a = ARENA_INIT;
        struct core *core = fuzz_core_new();
        struct loading loading = { core, false };
        uint64_t head = 0;
        MUST(store_load(store, load_one, &loading, &head, &err) == 0 && loading.has_cluster, "%s",
             err_line(&err));
        core_loaded(core, head);
        fuzz_core_live(core, &a);
        core_destroy(core);
        arena_fini(&a);
}

/* As berth restore does it (cli/restore.c). */
static void restore(struct store *from)
{
        struct err err = { 0 };
        struct store *to = NULL;
        uint64_t head = 0;
        MUST(store_open("memory:", false, &to, &err) == 0, "%s", err_line(&err));
        if (store_copy(from, to, NULL, NULL, &err) < 0) {
                must_explain(&err);
                store_close(to);
                return;
        }
        struct core *core = fuzz_core_new();
        struct loading loading = { core, false };
        MUST(store_load(to, load_one, &loading, &head, &err) == 0, "%s", err_line(&err));
        MUST(head == store_head(from), "all of it is there");
        MUST(store_integrity(to, &err) == 0, "%s", err_line(&err));
        if (loading.has_cluster) {
                core_step(core, &(struct input){ .kind = INPUT_RESTORED,
                                                 .now_ms = FUZZ_START_MS,
                                                 .head = head });
                struct core_batch *b = core_cut(core);
                MUST(b, "a restore decides something");
                MUST(store_commit(to, &b->commit, &err) == 0, "%s", err_line(&err));
                core_batch_free(b);
                load_again(to);
        }
        core_destroy(core);
        store_close(to);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct frame frames[FRAMES_MAX];
        size_t n = frames_read(data, size, frames);
        struct arena a = ARENA_INIT;
        struct str file = STR_INIT;
        struct store *from = NULL;
        struct err err = { 0 };

        make_file(&file, frames, n, size % 8 != 7, &a);
        int fd = memfd_create("backup", MFD_CLOEXEC);
        MUST(fd >= 0 && write(fd, file.buf, file.len) == (ssize_t)file.len, "a file");
        if (store_open_moment(fmt("backup:/proc/self/fd/%d", fd), &from, &err) < 0)
                must_explain(&err);
        else if (store_backup_facts(from)->cluster_id[0])
                restore(from);
        if (from)
                store_close(from);
        close(fd);
        str_fini(&file);
        arena_fini(&a);
        return 0;
}
