/* model/random_message.c: see random_message.h. */
#include "model/random_message.h"
#include "base/str.h"
#include "google/protobuf/timestamp.pb-c.h"
#include "model/json_private.h"
#include "model/pb.h"
#include "model/shape.h"
#include <string.h>

char *random_text(struct arena *arena, struct rng *rng)
{
        static const char *const pieces[] = { "a",
                                              "Z",
                                              "0",
                                              "8080",
                                              "yes",
                                              "null",
                                              "~",
                                              " ",
                                              "  ",
                                              "\n",
                                              "\t",
                                              "\r",
                                              "\"",
                                              "'",
                                              "\\",
                                              "#",
                                              ": ",
                                              "- ",
                                              "{",
                                              "[",
                                              "&a",
                                              "*a",
                                              "!t",
                                              "|",
                                              ">",
                                              "%",
                                              "@",
                                              "---",
                                              "...",
                                              "\x01",
                                              "\x7f",
                                              "\xc2\x85",
                                              "\xc2\xa0",
                                              "\xc3\xa9",
                                              "\xe2\x80\xa8",
                                              "\xe2\x80\xa9",
                                              "\xef\xbb\xbf",
                                              "\xef\xbf\xbd",
                                              "\xf0\x9f\x98\x80",
                                              "=",
                                              ",",
                                              "1.5",
                                              "0x1F",
                                              "true",
                                              "2026-02-17",
                                              "?",
                                              "`",
                                              "/usr/bin/env",
                                              "\x1b[31m",
                                              "\\u0041",
                                              "<<" };
        static const char *const whole[] = { "",
                                             "yes",
                                             "No",
                                             "null",
                                             "~",
                                             "1e3",
                                             "0.5",
                                             "-",
                                             "---",
                                             "\n",
                                             "\n\n",
                                             " lead",
                                             "trail ",
                                             "a\nb",
                                             "a\nb\n",
                                             "a\n\nb\n\n",
                                             "a:\n  b: c\n    d: |\n      x\n",
                                             "a \n b",
                                             "true",
                                             ".inf",
                                             "0o7",
                                             "1:20" };
        struct str s = STR_INIT;
        char *text;

        if (rng_below(rng, 4) == 0)
                return arena_strdup(arena, whole[rng_below(rng, ARRAY_LEN(whole))]);
        for (uint64_t n = rng_below(rng, 12); n > 0; n--)
                str_adds(&s, pieces[rng_below(rng, ARRAY_LEN(pieces))]);
        text = arena_strdup(arena, str_c(&s));
        str_fini(&s);
        return text;
}

static int64_t random_i64(struct rng *rng)
{
        switch (rng_below(rng, 6)) {
        case 0:
                return INT64_MIN;
        case 1:
                return INT64_MAX;
        case 2:
                return (int64_t)rng_next(rng);
        case 3:
                return -(int64_t)rng_below(rng, 1000);
        default:
                return (int64_t)rng_below(rng, 100000);
        }
}

static void random_value(struct arena *arena, struct rng *rng, const struct shape_field *f,
                         void *slot, uint32_t chance)
{
        ProtobufCBinaryData *b;
        int64_t v = random_i64(rng);

        switch (f->kind) {
        case SHAPE_BOOL:
                *(protobuf_c_boolean *)slot = (int)rng_below(rng, 2);
                break;
        case SHAPE_TIME:
                *(int64_t *)slot = (int64_t)rng_below(rng, 253402300800000u);
                break;
        case SHAPE_ENUM:
                *(int *)slot =
                    f->names->type->values[1 + rng_below(rng, f->names->type->n_values - 1)].value;
                break;
        case SHAPE_CPU:
                if (v == INT64_MIN)
                        v++;
                *(int64_t *)slot = v;
                break;
        case SHAPE_STRING:
                *(char **)slot = random_text(arena, rng);
                break;
        case SHAPE_BYTES:
                b = slot;
                b->len = rng_below(rng, 20);
                b->data = arena_alloc(arena, b->len + 1);
                for (size_t i = 0; i < b->len; i++)
                        b->data[i] = (uint8_t)rng_next(rng);
                break;
        case SHAPE_TIMESTAMP: {
                Google__Protobuf__Timestamp *t =
                    (Google__Protobuf__Timestamp *)pb_new(arena, f->shape->type);
                uint64_t ms = rng_below(rng, 253402300800000u);
                t->seconds = (int64_t)(ms / 1000);
                t->nanos = (int32_t)(ms % 1000) * 1000000;
                *(Google__Protobuf__Timestamp **)slot = t;
                break;
        }
        case SHAPE_MESSAGE:
        case SHAPE_INT_VALUE:
                *(ProtobufCMessage **)slot = random_message(arena, rng, f->shape->type, chance);
                break;
        case SHAPE_FLOAT:
        case SHAPE_DOUBLE:
        case SHAPE_MAP:
                break;
        default:
                memcpy(slot, &v, f->size);
        }
}

ProtobufCMessage *random_message(struct arena *arena, struct rng *rng,
                                 const ProtobufCMessageDescriptor *type, uint32_t per_million)
{
        const struct shape *s = shape_of(type);
        ProtobufCMessage *m = pb_new(arena, type);

        for (unsigned i = 0; i < s->n_fields; i++) {
                const struct shape_field *f = &s->fields[i];
                struct shape_list list = { .f = f, .arena = arena };
                uint64_t n = rng_below(rng, 4);

                if (!rng_chance(rng, per_million))
                        continue;
                if (f->kind == SHAPE_MAP) {
                        for (; n > 0; n--)
                                pb_map_set(arena, m, f->field->name, random_text(arena, rng),
                                           random_text(arena, rng));
                } else if (f->repeated) {
                        for (; n > 0; n--)
                                random_value(arena, rng, f, shape_list_push(&list), per_million);
                        shape_list_end(&list, m);
                } else if (shape_mark(f, m) == 0)
                        random_value(arena, rng, f, shape_slot(f, m), per_million);
        }
        return m;
}
