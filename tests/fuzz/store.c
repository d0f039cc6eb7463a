/* Whatever a store holds: records that are wrong are skipped, events that are wrong are refused,
 * and the core that starts on the rest is sound: its invariants hold, it runs on for minutes,
 * agents connect, users ask, and nothing aborts.
 *
 * Frames: 0 record (key, NUL, packed), 1 event as it is, 2 event whose sequence is made to follow,
 * 3 event that follows, with the type of a workload's event. */
#include "frames.h"
#include "fuzz.h"
#include "fuzz_core.h"

const uint8_t frame_kinds = 4;

const ProtobufCMessageDescriptor *frame_type(const struct frame *f, size_t *ret_offset)
{
        const uint8_t *nul = f->kind == 0 ? memchr(f->data, 0, f->len) : NULL;
        *ret_offset = nul ? (size_t)(nul - f->data) + 1 : 0;
        if (f->kind > 0)
                return &pb__event__descriptor;
        if (!nul)
                return NULL;
        const char *key = (const char *)f->data;
        return str_starts(key, "/nodes/")        ? &pb__node__descriptor
               : str_starts(key, "/workloads/")  ? &pb__workload__descriptor
               : str_starts(key, "/tombstones/") ? &pb__tombstone__descriptor
               : str_starts(key, "/quotas/")     ? &pb__quota__descriptor
               : str_starts(key, "/alerts/")     ? &pb__alert__descriptor
               : str_starts(key, "/outbox/")     ? &pb__outgoing__descriptor
               : str_starts(key, "/tokens/")     ? &pb__access_token__descriptor
                                                 : &pb__cluster__descriptor;
}

static void load_record(struct core *c, const struct frame *f, struct arena *a)
{
        size_t offset;
        struct err err = { 0 };
        if (frame_type(f, &offset) &&
            core_load_record(c, arena_strdup(a, (const char *)f->data), f->data + offset,
                             f->len - offset, &err) != 0)
                must_explain(&err);
}

static void fold_event(struct core *c, const struct frame *f, struct arena *a)
{
        struct err err = { 0 };
        ProtobufCMessage *m = NULL;
        const void *data = f->data;
        size_t len = f->len;
        if (f->kind > 1 && pb_unpack_own(&pb__event__descriptor, data, len, a, &m, &err) == 0) {
                ((Pb__Event *)m)->seq = core_head(c) + 1;
                data = pb_pack_arena(a, m, &len);
        }
        struct str before = STR_INIT, after = STR_INIT;
        core_dump(c, &before);
        if (core_fold(c, data, len, &err) < 0) {
                must_explain(&err);
                core_dump(c, &after);
                MUST(str_eq(str_c(&before), str_c(&after)), "a refused event changed the state: %s",
                     err_line(&err));
        }
        str_fini(&before);
        str_fini(&after);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct frame frames[FRAMES_MAX];
        size_t n = frames_read(data, size, frames);
        struct arena a = ARENA_INIT;
        struct core *c = fuzz_core_new();

        for (size_t i = 0; i < n; i++)
                if (frames[i].kind == 0)
                        load_record(c, &frames[i], &a);
        if (size & 1)
                core_loaded(c, 41); /* a checkpoint's */
        for (size_t i = 0; i < n; i++)
                if (frames[i].kind > 0)
                        fold_event(c, &frames[i], &a);
        fuzz_core_live(c, &a);
        core_destroy(c);
        arena_fini(&a);
        return 0;
}
