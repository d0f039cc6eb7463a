/* tests/fuzz/mutate.c: how inputs made of frames are changed: see frames.h. */
#include "frames.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/str.h"
#include "model/pb.h"
#include "model/random_message.h"
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

/* Texts that name something in the seeds, or that code looks at. */
static const char *const words[] = { "a",    "b",     "c",        "n1",        "n2",
                                     "n3",   "web",   "rev-1",    "rev-2",     "zone",
                                     "eu",   "x86",   "",         "Apply",     "Delete",
                                     "..",   "a/b",   "/",        "*",         "01",
                                     "\x7f", "sleep", "\xc3\xa4", "Completed", "k=v,!x" };

/* ---- fields ---- */

static uint64_t some_number(struct rng *r, uint64_t old)
{
        static const uint64_t edges[] = { 0,
                                          1,
                                          2,
                                          7,
                                          127,
                                          1000,
                                          65535,
                                          INT32_MAX,
                                          UINT32_MAX,
                                          INT64_MAX,
                                          UINT64_MAX,
                                          (uint64_t)INT64_MIN,
                                          UINT64_C(1) << 40,
                                          UINT64_C(1767225600000),
                                          UINT64_C(1767225700000),
                                          UINT64_C(253402300799999) };
        switch (rng_below(r, 4)) {
        case 0:
                return old + rng_below(r, 5) - 2;
        case 1:
                return rng_next(r) >> rng_below(r, 64);
        default:
                return edges[rng_below(r, ARRAY_LEN(edges))];
        }
}

static void change_scalar(const ProtobufCFieldDescriptor *f, void *at, struct arena *a,
                          struct rng *r)
{
        ProtobufCBinaryData *bytes = at;
        const ProtobufCEnumDescriptor *e;
        switch (f->type) {
        case PROTOBUF_C_TYPE_STRING:
                *(char **)at = rng_below(r, 8)
                                   ? arena_strdup(a, words[rng_below(r, ARRAY_LEN(words))])
                                   : random_text(a, r);
                break;
        case PROTOBUF_C_TYPE_BYTES:
                bytes->len = rng_below(r, 40);
                bytes->data = arena_alloc(a, bytes->len + 1);
                break;
        case PROTOBUF_C_TYPE_ENUM:
                e = f->descriptor;
                *(int *)at = rng_below(r, 10) ? e->values[rng_below(r, e->n_values)].value
                                              : (int)some_number(r, 0);
                break;
        case PROTOBUF_C_TYPE_BOOL:
                *(protobuf_c_boolean *)at = !*(protobuf_c_boolean *)at;
                break;
        case PROTOBUF_C_TYPE_INT32:
        case PROTOBUF_C_TYPE_SINT32:
        case PROTOBUF_C_TYPE_SFIXED32:
        case PROTOBUF_C_TYPE_UINT32:
        case PROTOBUF_C_TYPE_FIXED32:
                *(uint32_t *)at = (uint32_t)some_number(r, *(uint32_t *)at);
                break;
        case PROTOBUF_C_TYPE_FLOAT:
        case PROTOBUF_C_TYPE_DOUBLE:
        case PROTOBUF_C_TYPE_MESSAGE:
                break;
        default:
                *(uint64_t *)at = some_number(r, *(uint64_t *)at);
        }
}

static size_t size_of(const ProtobufCFieldDescriptor *f)
{
        switch (f->type) {
        case PROTOBUF_C_TYPE_STRING:
        case PROTOBUF_C_TYPE_MESSAGE:
                return sizeof(void *);
        case PROTOBUF_C_TYPE_BYTES:
                return sizeof(ProtobufCBinaryData);
        case PROTOBUF_C_TYPE_BOOL:
                return sizeof(protobuf_c_boolean);
        case PROTOBUF_C_TYPE_ENUM:
        case PROTOBUF_C_TYPE_INT32:
        case PROTOBUF_C_TYPE_SINT32:
        case PROTOBUF_C_TYPE_SFIXED32:
        case PROTOBUF_C_TYPE_UINT32:
        case PROTOBUF_C_TYPE_FIXED32:
        case PROTOBUF_C_TYPE_FLOAT:
                return 4;
        default:
                return 8;
        }
}

static void change(ProtobufCMessage *m, struct arena *a, struct rng *r, unsigned depth);

static void change_message(const ProtobufCFieldDescriptor *f, ProtobufCMessage **at,
                           struct arena *a, struct rng *r, unsigned depth)
{
        if (*at && depth < 8 && rng_below(r, 8))
                change(*at, a, r, depth + 1);
        else if (*at && f->label != PROTOBUF_C_LABEL_REPEATED && rng_below(r, 2))
                *at = NULL;
        else
                *at = random_message(a, r, f->descriptor, 500000);
}

static void change_repeated(const ProtobufCFieldDescriptor *f, size_t *n, char **values,
                            struct arena *a, struct rng *r, unsigned depth)
{
        size_t size = size_of(f), i = *n ? rng_below(r, *n) : 0, choice = rng_below(r, 6);
        if (*n && choice == 0) {
                memmove(*values + i * size, *values + (i + 1) * size, (*n - i - 1) * size);
                --*n;
                return;
        }
        if (*n == 0 || choice <= 2) { /* one more, maybe the same again */
                char *more = arena_alloc(a, (*n + 1) * size);
                if (*n)
                        memcpy(more, *values, *n * size);
                *values = more;
                if (*n && choice == 1)
                        memcpy(more + *n * size, more + i * size, size);
                else if (f->type == PROTOBUF_C_TYPE_STRING)
                        *(const char **)(more + *n * size) = words[0];
                i = (*n)++;
                if (i && choice == 1) {
                        if (f->type == PROTOBUF_C_TYPE_MESSAGE)
                                *(ProtobufCMessage **)(more + i * size) =
                                    pb_clone(a, *(ProtobufCMessage **)(more + i * size));
                        return;
                }
        }
        if (f->type == PROTOBUF_C_TYPE_MESSAGE)
                change_message(f, (ProtobufCMessage **)(*values + i * size), a, r, depth);
        else
                change_scalar(f, *values + i * size, a, r);
}

/* One field of m, or of something in it. */
static void change(ProtobufCMessage *m, struct arena *a, struct rng *r, unsigned depth)
{
        const ProtobufCMessageDescriptor *type = m->descriptor;
        if (type->n_fields == 0)
                return;
        const ProtobufCFieldDescriptor *f = &type->fields[rng_below(r, type->n_fields)];
        /* what is there matters more than what could be */
        for (int tries = 0; tries < 3 && pb_count(m, f) == 0; tries++)
                f = &type->fields[rng_below(r, type->n_fields)];
        void *at = (char *)m + f->offset;
        if (f->label == PROTOBUF_C_LABEL_REPEATED)
                change_repeated(f, (size_t *)((char *)m + f->quantifier_offset), at, a, r, depth);
        else if (f->type == PROTOBUF_C_TYPE_MESSAGE)
                change_message(f, at, a, r, depth);
        else
                change_scalar(f, at, a, r);
}

/* ---- frames ---- */

/* The frame with one change, in the arena. */
static struct frame change_frame(struct frame f, struct arena *a, struct rng *r)
{
        size_t offset = 0;
        struct err err;
        ProtobufCMessage *m = NULL;
        if (rng_below(r, 40) == 0)
                f.kind = (uint8_t)rng_below(r, frame_kinds);
        const ProtobufCMessageDescriptor *type = frame_type(&f, &offset);
        if (!type || rng_below(r, 16) == 0 ||
            pb_unpack(type, f.data + offset, f.len - offset, a, &m, &err) < 0) {
                uint8_t *copy = arena_alloc(a, f.len + 64);
                memcpy(copy, f.data, f.len);
                f.len = LLVMFuzzerMutate(copy, f.len, f.len + 64);
                f.data = copy;
                return f;
        }
        for (uint64_t i = 1 + rng_below(r, 3); i > 0; i--)
                change(m, a, r, 0);
        struct str packed = STR_INIT;
        str_add(&packed, f.data, offset);
        pb_pack(&packed, m);
        f.data = arena_dup(a, str_c(&packed), packed.len + 1);
        f.len = packed.len;
        str_fini(&packed);
        return f;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
        struct frame frames[FRAMES_MAX + 1];
        struct rng r;
        rng_seed(&r, seed);
        size_t n = frames_read(data, size, frames);
        if (n == 0 || rng_below(&r, 64) == 0)
                return LLVMFuzzerMutate(data, size, max_size);
        struct arena a = ARENA_INIT;
        size_t i = rng_below(&r, n), j = rng_below(&r, n + 1);
        struct frame f = frames[i];
        switch (rng_below(&r, 10)) {
        case 0:
                memmove(frames + i, frames + i + 1, (n - i - 1) * sizeof(f));
                n--;
                break;
        case 1:
        case 2: /* the same again somewhere else, changed or not */
                if (n == FRAMES_MAX)
                        break;
                memmove(frames + j + 1, frames + j, (n - j) * sizeof(f));
                frames[j] = rng_below(&r, 3) ? change_frame(f, &a, &r) : f;
                n++;
                break;
        case 3:
                if (j < n) {
                        frames[i] = frames[j];
                        frames[j] = f;
                }
                break;
        default:
                frames[i] = change_frame(f, &a, &r);
        }
        uint8_t *out = arena_alloc(&a, max_size + 1);
        size_t len = 0;
        for (i = 0; i < n; i++)
                frames_add(out, &len, max_size, frames[i].kind, frames[i].data, frames[i].len);
        memcpy(data, out, len);
        arena_fini(&a);
        return len;
}
