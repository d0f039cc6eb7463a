/* model/shape.h: what the codecs need to know about a message type beyond its descriptor, worked
 * out once.
 *
 * A field's kind says how it looks in JSON and YAML: an int64 named created_at is a time, cpu is
 * cores, and so on (the conventions at the head of proto/records.proto). They hold for berth's own
 * messages; those of foreign packages look as protobuf's JSON mapping says. Private to model/.
 * Shapes live for ever; shape_of() is thread-safe and takes no lock after the first use.
 */
#ifndef BERTH_MODEL_SHAPE_H
#define BERTH_MODEL_SHAPE_H

#include "base/arena.h"
#include "base/str.h"
#include "model/rules.h"
#include <protobuf-c/protobuf-c.h>

enum shape_kind {
        SHAPE_BOOL,
        SHAPE_INT32,
        SHAPE_INT64,
        SHAPE_UINT32,
        SHAPE_UINT64,
        SHAPE_FLOAT,
        SHAPE_DOUBLE,
        SHAPE_TIME, /* int64, Unix milliseconds; RFC 3339 */
        SHAPE_CPU,  /* int64, thousandths; cores */
        SHAPE_ENUM,
        SHAPE_STRING,
        SHAPE_BYTES,
        SHAPE_MESSAGE,
        SHAPE_INT_VALUE, /* message IntValue; a bare number */
        SHAPE_MAP,       /* repeated entries of string to string; an object */
        SHAPE_TIMESTAMP, /* message google.protobuf.Timestamp; RFC 3339, to the millisecond */
};

struct shape_enum {
        const ProtobufCEnumDescriptor *type;
        /* by position in type->values, '-' for '_'; NULL at the value 0. Foreign ones: as they are,
         * all of them */
        const char **names;
        size_t *lens;     /* of the names */
        const char *list; /* "a, b, c" */
};

struct shape_field {
        const ProtobufCFieldDescriptor *field;
        const char *quoted; /* "name": with quotes and colon */
        uint32_t quoted_len, name_len;
        enum shape_kind kind;
        bool repeated;             /* an array; false for maps */
        bool presence;             /* that it is there says something, also when it is zero */
        uint8_t element;           /* the type of one value on the wire */
        uint32_t size;             /* of one value in memory */
        const struct shape *shape; /* of the message or of the map's entry */
        const struct shape_enum *names;
        const struct rule *rule; /* never NULL */
        /* of attempts: a written 0 is "never again" (one attempt), and unlimited is a word */
        bool is_limit;
        /* the text of its zero, if JSON_ZEROS shows that; NULL: it is left out */
        const char *zero;
};

/* How a field is packed: what pb_pack.c looks at, in one small row, for most fields of most
 * messages are not set. */
enum wire_kind {
        WIRE_NUMBER64, /* a varint of 64 bits */
        WIRE_INT32,    /* int32, enum: negative ones have ten bytes */
        WIRE_UINT32,
        WIRE_BOOL,
        WIRE_FIXED64,
        WIRE_TEXT,
        WIRE_BYTES,
        WIRE_MESSAGE,
        WIRE_OTHER, /* left to protobuf-c */
};
struct wire_field {
        uint16_t offset, n_offset; /* in the message: of the value, and of the number of values */
        uint8_t kind, size;
        bool repeated, packed;
        /* before a value (packed ones: before all of them); the last tag_len bytes count */
        uint8_t tag[2], tag_len;
        bool run; /* repeated, each with its tag */
        /* where to look whether it is set: the number of values, a pointer, a length, or the value
         * itself ... */
        uint16_t probe;
        /* ... which is 4 bytes then, and otherwise 8; zero: nothing to write */
        bool narrow;
        uint8_t wire; /* the type in its tag */
};

#define SCALAR_ROOM 48 /* bytes for a number or a time as text */
#define SHAPE_MAX_FIELDS 256
#define SHAPE_IDS 64
#define SHAPE_QUOTED_PAD 32 /* bytes of a quoted name that can be read, however short it is */
struct shape {
        const ProtobufCMessageDescriptor *type;
        struct shape_field *fields; /* in the descriptor's order */
        struct wire_field *wire;    /* the same */
        unsigned n_fields;
        bool foreign;                          /* not one of berth's own messages */
        uint64_t zeros[SHAPE_MAX_FIELDS / 64]; /* by position: fields with a text for zero */
        /* 1 << RULE_FOR_...: what it or a message in it has that others may not see */
        uint8_t hides;
        unsigned mask;            /* of slots */
        uint16_t *slots;          /* hash of name -> position + 1 */
        uint8_t by_id[SHAPE_IDS]; /* number -> position + 1; 0: look for it */
};

const struct shape *shape_of(const ProtobufCMessageDescriptor *type);
/* How one value is packed (enum wire_type in base/wire.h). */
unsigned shape_wire_type(ProtobufCType type);
/* The field of that name, or NULL. hint is the position to try first. */
const struct shape_field *shape_find(const struct shape *s, const char *name, size_t len,
                                     unsigned hint);
/* A field's name that the user may have meant, or NULL. */
const char *shape_suggest(const struct shape *s, const char *word, size_t len);
/* "a whole number from 0 to 4294967295": what a value of this field looks like. Rotating buffer of
 * fmt(). */
const char *shape_expected(const struct shape_field *f);
const struct shape_enum *shape_enum_of(const ProtobufCEnumDescriptor *type);

/* Most fields of most messages are not set, so asking this is what packing, writing and checking
 * mostly do. True: there is no value. False: look closer (an empty text, or a kind that is left to
 * protobuf-c). A text that was never set points to protobuf-c's empty one. */
static inline bool shape_is_unset(const struct wire_field *f, const ProtobufCMessage *m)
{
        const char *at = (const char *)m + f->probe;

        if (f->narrow)
                return *(const uint32_t *)(const void *)at == 0;
        uint64_t v = *(const uint64_t *)(const void *)at;
        return (v == 0 && f->kind != WIRE_OTHER) ||
               (f->kind == WIRE_TEXT && v == (uintptr_t)protobuf_c_empty_string);
}
/* How many values the field has: 0 or 1 for plain ones (0: zero or absent), the length of repeated
 * ones. */
size_t shape_count(const struct shape_field *f, const ProtobufCMessage *m);
/* Where a plain field's value is, and where element i of a repeated one is. */
static inline void *shape_slot(const struct shape_field *f, const ProtobufCMessage *m)
{
        return (char *)m + f->field->offset;
}
static inline void *shape_at(const struct shape_field *f, const ProtobufCMessage *m, size_t i)
{
        return *(char **)((char *)m + f->field->offset) + i * f->size;
}
/* After a plain field was set: its has_ or oneof mark. -1 if another one of the same oneof is set
 * already. */
int shape_mark(const struct shape_field *f, ProtobufCMessage *m);

/* Collects the elements of a repeated field; shape_list_end() hangs them into the message. */
struct shape_list {
        const struct shape_field *f;
        struct arena *arena;
        char *at;
        size_t len, cap;
};
void *shape_list_push(struct shape_list *l);
void shape_list_end(struct shape_list *l, ProtobufCMessage *m);

/* Scalars from bare text. 0, or -1: it is not what the field expects (see shape_expected). quoted:
 * the user put it in quotes, so it is text and no number. The string or bytes that result are in
 * the arena. */
int shape_parse(const struct shape_field *f, const char *text, size_t len, bool quoted, void *slot,
                struct arena *arena);
/* decimal, no leading zeros or plus */
int shape_parse_int(const char *text, size_t len, int64_t min, uint64_t max, void *ret64);
/* a JSON number, exact in thousandths */
int shape_parse_cpu(const char *text, size_t len, int64_t *ret_milli);
/* The number that is meant by a limit of attempts that was written; v: the number that stands
 * there. */
#define LIMIT_WORD "unlimited"
static inline int64_t shape_limit_of(int64_t v)
{
        return v == 0 ? 1 : v;
}
int shape_enum_find(const struct shape_enum *e, const char *name, size_t len, int *ret_value);
/* The name that the user may have meant, or NULL. */
const char *shape_enum_suggest(const struct shape_enum *e, const char *word, size_t len);
void shape_limits(const struct shape_field *f, int64_t *ret_min, uint64_t *ret_max);

int base64_decode(const char *text, size_t len, uint8_t *ret,
                  /* ret: at least len / 4 * 3 + 3 bytes; with or without padding */
                  size_t *ret_len);
void base64_write(struct str *out, const uint8_t *data, size_t len);
/* Cores as text: 250 gives 0.25. The length. */
size_t shape_cpu_text(int64_t milli, char buf[SCALAR_ROOM]);

/* Of eight bytes, as they lie in memory: the high bit of each that JSON cannot have as it is in a
 * string, or that begins a longer UTF-8 sequence: a quote, a backslash, below 0x20 or from 0x80. A
 * borrow only disturbs bytes behind a hit. */
static inline uint64_t not_plain(const unsigned char *p)
{
        const uint64_t ones = 0x0101010101010101u, high = 0x8080808080808080u;
        uint64_t w, quote, backslash;

        __builtin_memcpy(&w, p, 8);
        quote = w ^ (ones * '"');
        backslash = w ^ (ones * '\\');
        return (((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) |
                ((w - ones * 0x20) & ~w) | w) &
               high;
}

/* The first such byte in [p, end); end if there is none. Most bytes of most records are plain
 * text. */
static inline const unsigned char *plain_until(const unsigned char *p, const unsigned char *end)
{
        uint64_t hit;

        if (end - p >= 8) {
                for (; end - p > 8; p += 8)
                        if ((hit = not_plain(p)))
                                return p + (__builtin_ctzll(hit) >> 3);
                p = end - 8; /* the last ones, some of them once more */
                hit = not_plain(p);
                return hit ? p + (__builtin_ctzll(hit) >> 3) : end;
        }
        while (p < end && *p >= 0x20 && *p != '"' && *p != '\\' && *p < 0x80)
                p++;
        return p;
}

/* Length of the valid UTF-8 sequence at p (1..4), or 0. */
unsigned utf8_next(const unsigned char *p, const unsigned char *end);

#endif
