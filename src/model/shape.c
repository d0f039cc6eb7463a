/* model/shape.c: side tables of message types, and where their fields lie in memory.
 *
 * Invariants:
 *   (1) A shape that shape_of() has given is complete with everything reachable from it, and never
 *       changes.
 *   (2) The table of shapes only grows; a slot goes from NULL to a shape once. Readers therefore
 *       need no lock, only acquire loads.
 */
#include "model/shape.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/wire.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* message types in one program; a power of two, never more than half full */
#define TABLE_SIZE 4096u

static _Atomic(const struct shape *) shapes[TABLE_SIZE];
static _Atomic(const struct shape_enum *) enums[TABLE_SIZE];
static pthread_mutex_t build_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned shapes_used, enums_used; /* under build_lock */

static unsigned pointer_hash(const void *p)
{
        uint64_t x = (uint64_t)(uintptr_t)p;
        x ^= x >> 31;
        x *= 0x9e3779b97f4a7c15u;
        return (unsigned)(x >> 40);
}

static const struct shape *table_get(const ProtobufCMessageDescriptor *type)
{
        for (unsigned i = pointer_hash(type);; i++) {
                const struct shape *s =
                    atomic_load_explicit(&shapes[i & (TABLE_SIZE - 1)], memory_order_acquire);
                if (!s || s->type == type)
                        return s;
        }
}

static const struct shape_enum *enum_table_get(const ProtobufCEnumDescriptor *type)
{
        for (unsigned i = pointer_hash(type);; i++) {
                const struct shape_enum *e =
                    atomic_load_explicit(&enums[i & (TABLE_SIZE - 1)], memory_order_acquire);
                if (!e || e->type == type)
                        return e;
        }
}

static unsigned name_hash(const char *name, size_t len)
{
        unsigned h = 2166136261u ^ (unsigned)len;
        for (size_t i = 0; i < len; i++)
                h = (h ^ (unsigned char)name[i]) * 16777619u;
        return h ^ (h >> 15);
}

/* ---- building ---- */

/* The conventions of proto/records.proto are those of this package; others have protobuf's own. */
static bool is_ours(const char *package)
{
        return str_eq(package, "berth.v1");
}

static const struct shape_enum *build_enum(const ProtobufCEnumDescriptor *type)
{
        const struct shape_enum *known = enum_table_get(type);
        struct shape_enum *e;
        struct str list = STR_INIT;

        if (known)
                return known;
        must(++enums_used < TABLE_SIZE / 2, "the table of enums has room");
        e = mem_must(sizeof(*e));
        e->type = type;
        e->names = mem_must(sizeof(*e->names) * (type->n_values + 1));
        e->lens = mem_must(sizeof(*e->lens) * (type->n_values + 1));
        for (unsigned i = 0; i < type->n_values; i++) {
                bool ours = is_ours(type->package_name);
                if (ours && type->values[i].value == 0)
                        continue;
                char *name = mem_strdup(type->values[i].name);
                for (char *c = name; ours && *c; c++)
                        if (*c == '_')
                                *c = '-';
                e->names[i] = name;
                e->lens[i] = strlen(name);
                if (list.len > 0)
                        str_adds(&list, ", ");
                str_adds(&list, name);
        }
        e->list = str_take(&list);
        unsigned at = pointer_hash(type);
        while (atomic_load_explicit(&enums[at & (TABLE_SIZE - 1)], memory_order_relaxed))
                at++;
        atomic_store_explicit(&enums[at & (TABLE_SIZE - 1)], e, memory_order_release);
        return e;
}

static bool is_time(const char *name)
{
        return str_ends(name, "_at") || str_eq(name, "last_updated") ||
               str_eq(name, "last_heartbeat") || str_eq(name, "timestamp");
}

static bool is_entry(const ProtobufCMessageDescriptor *type)
{
        return type->n_fields == 2 && str_ends(type->short_name, "Entry") &&
               str_eq(type->fields[0].name, "key") && str_eq(type->fields[1].name, "value") &&
               type->fields[0].type == PROTOBUF_C_TYPE_STRING &&
               type->fields[1].type == PROTOBUF_C_TYPE_STRING;
}

static enum shape_kind kind_of(const ProtobufCFieldDescriptor *f, bool ours)
{
        switch (f->type) {
        case PROTOBUF_C_TYPE_INT32:
        case PROTOBUF_C_TYPE_SINT32:
        case PROTOBUF_C_TYPE_SFIXED32:
                return SHAPE_INT32;
        case PROTOBUF_C_TYPE_INT64:
        case PROTOBUF_C_TYPE_SINT64:
        case PROTOBUF_C_TYPE_SFIXED64:
                if (ours && is_time(f->name))
                        return SHAPE_TIME;
                if (ours && (str_eq(f->name, "cpu") || str_starts(f->name, "cpu_")))
                        return SHAPE_CPU;
                return SHAPE_INT64;
        case PROTOBUF_C_TYPE_UINT32:
        case PROTOBUF_C_TYPE_FIXED32:
                return SHAPE_UINT32;
        case PROTOBUF_C_TYPE_UINT64:
        case PROTOBUF_C_TYPE_FIXED64:
                return SHAPE_UINT64;
        case PROTOBUF_C_TYPE_FLOAT:
                return SHAPE_FLOAT;
        case PROTOBUF_C_TYPE_DOUBLE:
                return SHAPE_DOUBLE;
        case PROTOBUF_C_TYPE_BOOL:
                return SHAPE_BOOL;
        case PROTOBUF_C_TYPE_ENUM:
                return SHAPE_ENUM;
        case PROTOBUF_C_TYPE_STRING:
                return SHAPE_STRING;
        case PROTOBUF_C_TYPE_BYTES:
                return SHAPE_BYTES;
        case PROTOBUF_C_TYPE_MESSAGE:
                break;
        }
        const ProtobufCMessageDescriptor *sub = f->descriptor;
        if (f->label == PROTOBUF_C_LABEL_REPEATED && is_entry(sub))
                return SHAPE_MAP;
        if (str_eq(sub->short_name, "IntValue") && sub->n_fields == 1 &&
            sub->fields[0].type == PROTOBUF_C_TYPE_INT64)
                return SHAPE_INT_VALUE;
        return str_eq(sub->name, "google.protobuf.Timestamp") ? SHAPE_TIMESTAMP : SHAPE_MESSAGE;
}

static uint32_t size_of_kind(enum shape_kind kind)
{
        switch (kind) {
        case SHAPE_BOOL:
                return sizeof(protobuf_c_boolean);
        case SHAPE_INT32:
        case SHAPE_UINT32:
        case SHAPE_ENUM:
        case SHAPE_FLOAT:
                return 4;
        case SHAPE_BYTES:
                return sizeof(ProtobufCBinaryData);
        case SHAPE_INT64:
        case SHAPE_UINT64:
        case SHAPE_TIME:
        case SHAPE_CPU:
        case SHAPE_DOUBLE:
        case SHAPE_STRING:
        case SHAPE_MESSAGE:
        case SHAPE_INT_VALUE:
        case SHAPE_TIMESTAMP:
        case SHAPE_MAP:
                break;
        }
        return 8;
}

/* Shapes under construction, so that a type that contains itself ends; they are published together,
 * complete (1). */
struct building {
        struct shape *done[TABLE_SIZE / 2];
        unsigned n;
};

static const struct shape *build(struct building *b, const ProtobufCMessageDescriptor *type);

/* What the canonical records of the central scheduler name (seed 001, 4.2 and 4.3) is always there,
 * also when it is zero: whoever reads them need not ask first. Times are not: no zero of theirs
 * means anything. */
static const char *zero_of(const char *message, const struct shape_field *f)
{
        static const struct {
                const char *message, *fields;
        } shown[] = {
                { "Workload", " assigned_node " },
                { "Resources", " cpu memory_mb disk_gb " },
                { "Retry", " attempts " },
                { "WorkloadStatus", " failure_reason " },
                { "Metadata", " last_error " },
                { "Node", " labels " },
                { "NodeResources", " cpu_total cpu_allocated memory_total memory_allocated "
                                   "disk_total disk_allocated " },
                { "Reconciliation", " success " },
        };
        bool is_list = str_starts(message, "List") && str_ends(message, "Response") &&
                       str_eq(f->field->name, "items"),
             found = is_list;
        for (size_t i = 0; i < ARRAY_LEN(shown) && !found; i++)
                found = str_eq(message, shown[i].message) &&
                        strstr(shown[i].fields, fmt(" %s ", f->field->name));
        if (!found)
                return NULL;
        return f->kind == SHAPE_MAP      ? "{}"
               : f->repeated             ? "[]"
               : f->kind == SHAPE_BOOL   ? "false"
               : f->kind == SHAPE_STRING ? "\"\""
                                         : "0";
}

static void build_field(struct building *b, const struct shape *s, struct shape_field *f,
                        const ProtobufCFieldDescriptor *field)
{
        struct str quoted = STR_INIT;

        f->field = field;
        f->kind = kind_of(field, !s->foreign);
        f->size = size_of_kind(f->kind);
        f->repeated = field->label == PROTOBUF_C_LABEL_REPEATED && f->kind != SHAPE_MAP;
        f->presence = field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF ||
                      (field->label == PROTOBUF_C_LABEL_OPTIONAL && field->quantifier_offset != 0);
        f->element = (uint8_t)shape_wire_type(field->type);
        must(field->type != PROTOBUF_C_TYPE_SINT32 && field->type != PROTOBUF_C_TYPE_SINT64,
             "no number is packed in zigzag");
        f->name_len = (uint32_t)strlen(field->name);
        str_addf(&quoted, "\"%s\":", field->name);
        f->quoted_len = (uint32_t)quoted.len;
        str_reserve(&quoted, SHAPE_QUOTED_PAD);
        f->quoted = str_take(&quoted);
        if (field->type == PROTOBUF_C_TYPE_MESSAGE)
                f->shape = build(b, field->descriptor);
        f->rule = rule_find(s->foreign ? "" : s->type->short_name, field->name);
        f->is_limit = !s->foreign && str_eq(s->type->short_name, "Retry") &&
                      str_eq(field->name, "max_attempts");
        f->zero = s->foreign ? NULL : zero_of(s->type->short_name, f);
        if (field->type == PROTOBUF_C_TYPE_ENUM)
                f->names = build_enum(field->descriptor);
}

unsigned shape_wire_type(ProtobufCType type)
{
        switch (type) {
        case PROTOBUF_C_TYPE_SFIXED32:
        case PROTOBUF_C_TYPE_FIXED32:
        case PROTOBUF_C_TYPE_FLOAT:
                return WIRE_TYPE_32BIT;
        case PROTOBUF_C_TYPE_SFIXED64:
        case PROTOBUF_C_TYPE_FIXED64:
        case PROTOBUF_C_TYPE_DOUBLE:
                return WIRE_TYPE_64BIT;
        case PROTOBUF_C_TYPE_STRING:
        case PROTOBUF_C_TYPE_BYTES:
        case PROTOBUF_C_TYPE_MESSAGE:
                return WIRE_TYPE_BYTES;
        default:
                return WIRE_TYPE_VARINT;
        }
}

static enum wire_kind wire_kind_of(const ProtobufCFieldDescriptor *f)
{
        bool plain =
            f->label == PROTOBUF_C_LABEL_REPEATED ||
            (f->label == PROTOBUF_C_LABEL_NONE && !(f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF));

        if (!plain || f->offset > UINT16_MAX || f->quantifier_offset > UINT16_MAX)
                return WIRE_OTHER;
        switch (f->type) {
        case PROTOBUF_C_TYPE_INT64:
        case PROTOBUF_C_TYPE_UINT64:
                return WIRE_NUMBER64;
        case PROTOBUF_C_TYPE_ENUM:
        case PROTOBUF_C_TYPE_INT32:
                return WIRE_INT32;
        case PROTOBUF_C_TYPE_UINT32:
                return WIRE_UINT32;
        case PROTOBUF_C_TYPE_BOOL:
                return WIRE_BOOL;
        case PROTOBUF_C_TYPE_FIXED64:
                return f->flags & PROTOBUF_C_FIELD_FLAG_PACKED ? WIRE_OTHER : WIRE_FIXED64;
        case PROTOBUF_C_TYPE_STRING:
                return WIRE_TEXT;
        case PROTOBUF_C_TYPE_BYTES:
                return WIRE_BYTES;
        case PROTOBUF_C_TYPE_MESSAGE:
                return WIRE_MESSAGE;
        default:
                return WIRE_OTHER;
        }
}

static struct wire_field wire_of(const struct shape_field *f)
{
        enum wire_kind kind = wire_kind_of(f->field);
        bool repeated = f->field->label == PROTOBUF_C_LABEL_REPEATED,
             packed = f->field->flags & PROTOBUF_C_FIELD_FLAG_PACKED;
        unsigned wire = packed ? WIRE_TYPE_BYTES : f->element;
        uint32_t tag = f->field->id << 3 | wire;

        if (tag >= 1u << 14)
                kind = WIRE_OTHER;
        return (struct wire_field){
                .offset = (uint16_t)f->field->offset,
                .n_offset = (uint16_t)f->field->quantifier_offset,
                .kind = (uint8_t)kind,
                .size = (uint8_t)f->size,
                .wire = (uint8_t)wire,
                .repeated = repeated,
                .packed = packed,
                .run = repeated && !packed,
                .tag = { (uint8_t)(tag | 0x80), (uint8_t)(tag < 0x80 ? tag : tag >> 7) },
                .tag_len = tag < 0x80 ? 1 : 2,
                /* the length of bytes is their first member */
                .probe = (uint16_t)(repeated ? f->field->quantifier_offset : f->field->offset),
                .narrow =
                    !repeated && (kind == WIRE_INT32 || kind == WIRE_UINT32 || kind == WIRE_BOOL)
        };
}

static const struct shape *build(struct building *b, const ProtobufCMessageDescriptor *type)
{
        const struct shape *known = table_get(type);
        struct shape *s;
        unsigned n_slots = 4;

        if (known)
                return known;
        for (unsigned i = 0; i < b->n; i++)
                if (b->done[i]->type == type)
                        return b->done[i];
        must(++shapes_used < TABLE_SIZE / 2, "the table of message types has room");
        must(type->n_fields <= SHAPE_MAX_FIELDS, "a message has at most 256 fields");
        s = b->done[b->n++] = mem_must(sizeof(*s));
        s->type = type;
        s->n_fields = type->n_fields;
        s->foreign = !is_ours(type->package_name);
        s->fields = mem_must(sizeof(*s->fields) * (type->n_fields + 1));
        s->wire = mem_must(sizeof(*s->wire) * (type->n_fields + 1));
        while (n_slots < type->n_fields * 2)
                n_slots *= 2;
        s->mask = n_slots - 1;
        s->slots = mem_must(sizeof(*s->slots) * n_slots);
        for (unsigned i = 0; i < type->n_fields; i++) {
                build_field(b, s, &s->fields[i], &type->fields[i]);
                s->wire[i] = wire_of(&s->fields[i]);
                s->zeros[i / 64] |= (uint64_t)(s->fields[i].zero != NULL) << i % 64;
                s->hides |= (uint8_t)(1u << s->fields[i].rule->hidden |
                                      (s->fields[i].shape ? s->fields[i].shape->hides : 0));
                if (type->fields[i].id < SHAPE_IDS && i < UINT8_MAX)
                        s->by_id[type->fields[i].id] = (uint8_t)(i + 1);
                unsigned at = name_hash(type->fields[i].name, s->fields[i].name_len);
                while (s->slots[at & s->mask])
                        at++;
                s->slots[at & s->mask] = (uint16_t)(i + 1);
        }
        return s;
}

const struct shape *shape_of(const ProtobufCMessageDescriptor *type)
{
        const struct shape *s = table_get(type);

        if (__builtin_expect(s != NULL, 1))
                return s;
        pthread_mutex_lock(&build_lock);
        struct building *b = mem_must(sizeof(*b));
        s = build(b, type);
        for (unsigned i = 0; i < b->n; i++) {
                unsigned at = pointer_hash(b->done[i]->type);
                while (atomic_load_explicit(&shapes[at & (TABLE_SIZE - 1)], memory_order_relaxed))
                        at++;
                atomic_store_explicit(&shapes[at & (TABLE_SIZE - 1)], b->done[i],
                                      memory_order_release);
        }
        mem_free(b);
        pthread_mutex_unlock(&build_lock);
        return s;
}

const struct shape_enum *shape_enum_of(const ProtobufCEnumDescriptor *type)
{
        const struct shape_enum *e = enum_table_get(type);

        if (__builtin_expect(e != NULL, 1))
                return e;
        pthread_mutex_lock(&build_lock);
        e = build_enum(type);
        pthread_mutex_unlock(&build_lock);
        return e;
}

/* ---- names ---- */

const struct shape_field *shape_find(const struct shape *s, const char *name, size_t len,
                                     unsigned hint)
{
        /* records are written in the descriptor's order, with what is unset left out: mostly it is
         * one of the next few */
        for (unsigned i = hint; i < s->n_fields && i < hint + 4; i++)
                if (s->fields[i].name_len == len && s->fields[i].quoted[1] == name[0] &&
                    memcmp(s->fields[i].quoted + 1, name, len) == 0)
                        return &s->fields[i];
        for (unsigned at = name_hash(name, len); s->slots[at & s->mask]; at++) {
                const struct shape_field *f = &s->fields[s->slots[at & s->mask] - 1];
                if (f->name_len == len && memcmp(f->field->name, name, len) == 0)
                        return f;
        }
        return NULL;
}

/* What people write who come from elsewhere. */
static const char *const habits[][2] = {
        { "name", "id" },
        { "cmd", "command" },
        { "args", "command" },
        { "entrypoint", "command" },
        { "environment", "env" },
        { "memory", "memory_mb" },
        { "mem", "memory_mb" },
        { "disk", "disk_gb" },
        { "restart_policy", "restart" },
        { "working_dir", "workdir" },
        { "cwd", "workdir" },
        { "state", "desired_state" },
        { "selector", "node_selector" },
        { "ttl", "ttl_seconds" },
        { "retries", "max_attempts" },
        { "node", "assigned_node" },
};

const char *shape_suggest(const struct shape *s, const char *word, size_t len)
{
        const char *list[SHAPE_MAX_FIELDS + 1] = { 0 };
        char snake[64];
        size_t n = 0;

        if (len == 0 || len >= 48)
                return NULL;
        for (size_t i = 0; i < len && n < sizeof(snake) - 2; i++) {
                char c = word[i];
                if (c >= 'A' && c <= 'Z') {
                        if (n > 0)
                                snake[n++] = '_';
                        c = (char)(c - 'A' + 'a');
                }
                snake[n++] = c == '-' ? '_' : c;
        }
        snake[n] = '\0';
        if (strlen(snake) != n)
                return NULL;
        for (size_t i = 0; i < ARRAY_LEN(habits); i++)
                if (str_eq(snake, habits[i][0]) &&
                    shape_find(s, habits[i][1], strlen(habits[i][1]), 0))
                        return habits[i][1];
        for (unsigned i = 0; i < s->n_fields; i++)
                list[i] = s->fields[i].field->name;
        for (unsigned i = 0; i < s->n_fields; i++)
                if (str_eq(list[i], snake))
                        return list[i];
        return str_suggest(snake, list);
}

int shape_enum_find(const struct shape_enum *e, const char *name, size_t len, int *ret_value)
{
        for (unsigned i = 0; i < e->type->n_values; i++)
                if (e->lens[i] == len && e->names[i] && memcmp(e->names[i], name, len) == 0) {
                        *ret_value = e->type->values[i].value;
                        return 0;
                }
        return -1;
}

const char *shape_enum_suggest(const struct shape_enum *e, const char *word, size_t len)
{
        const char *list[256] = { 0 };
        char text[64];

        if (len >= sizeof(text))
                return NULL;
        memcpy(text, word, len);
        text[len] = '\0';
        for (unsigned i = 0, n = 0; i < e->type->n_values && n < ARRAY_LEN(list) - 1; i++)
                if (e->names[i])
                        list[n++] = e->names[i];
        return str_suggest(text, list);
}

void shape_limits(const struct shape_field *f, int64_t *ret_min, uint64_t *ret_max)
{
        *ret_min = f->kind == SHAPE_INT32                               ? INT32_MIN
                   : f->kind == SHAPE_UINT32 || f->kind == SHAPE_UINT64 ? 0
                                                                        : INT64_MIN;
        *ret_max = f->kind == SHAPE_INT32    ? INT32_MAX
                   : f->kind == SHAPE_UINT32 ? UINT32_MAX
                   : f->kind == SHAPE_UINT64 ? UINT64_MAX
                                             : INT64_MAX;
}

const char *shape_expected(const struct shape_field *f)
{
        switch (f->kind) {
        case SHAPE_BOOL:
                return "true or false";
        case SHAPE_INT32:
        case SHAPE_INT64:
        case SHAPE_INT_VALUE:
        case SHAPE_UINT32:
        case SHAPE_UINT64: {
                int64_t min;
                uint64_t max;
                shape_limits(f, &min, &max);
                if (f->rule->max != 0) {
                        min = f->rule->min;
                        max = (uint64_t)f->rule->max;
                } else if (f->kind != SHAPE_INT32 && f->kind != SHAPE_UINT32)
                        return min == 0 ? "a whole number of at most 64 bits, not negative"
                                        : "a whole number of at most 64 bits";
                return fmt("a whole number from %lld to %llu", (long long)min,
                           (unsigned long long)max);
        }
        case SHAPE_FLOAT:
        case SHAPE_DOUBLE:
                return "a number";
        case SHAPE_TIME:
        case SHAPE_TIMESTAMP:
                return "a time such as \"2026-02-17T00:00:00Z\"";
        case SHAPE_CPU:
                return "a number of cores with at most 3 decimals, such as 0.25";
        case SHAPE_ENUM:
                return fmt("one of %s", f->names->list);
        case SHAPE_STRING:
                return "a string";
        case SHAPE_BYTES:
                return "a string of base64";
        case SHAPE_MESSAGE:
                return "an object";
        case SHAPE_MAP:
                return "an object with strings as values";
        }
        return "something else";
}

/* ---- values in memory ---- */

static bool is_set(const struct shape_field *f, const void *slot)
{
        switch (f->kind) {
        case SHAPE_BOOL:
        case SHAPE_INT32:
        case SHAPE_UINT32:
        case SHAPE_ENUM:
        case SHAPE_FLOAT:
                return *(const uint32_t *)slot != 0;
        case SHAPE_INT64:
        case SHAPE_UINT64:
        case SHAPE_TIME:
        case SHAPE_CPU:
        case SHAPE_DOUBLE:
                return *(const uint64_t *)slot != 0;
        case SHAPE_STRING: {
                const char *s = *(char *const *)slot;
                return s && s[0];
        }
        case SHAPE_BYTES:
                return ((const ProtobufCBinaryData *)slot)->len > 0;
        case SHAPE_MESSAGE:
        case SHAPE_INT_VALUE:
        case SHAPE_TIMESTAMP:
        case SHAPE_MAP:
                break;
        }
        return *(void *const *)slot != NULL;
}

size_t shape_count(const struct shape_field *f, const ProtobufCMessage *m)
{
        const ProtobufCFieldDescriptor *d = f->field;

        if (d->label == PROTOBUF_C_LABEL_NONE && !(d->flags & PROTOBUF_C_FIELD_FLAG_ONEOF))
                return is_set(f, shape_slot(f, m));
        if (d->label == PROTOBUF_C_LABEL_REPEATED)
                return *(const size_t *)((const char *)m + d->quantifier_offset);
        if (d->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
                if (*(const uint32_t *)((const char *)m + d->quantifier_offset) != d->id)
                        return 0;
                if (f->kind == SHAPE_MESSAGE || f->kind == SHAPE_INT_VALUE ||
                    f->kind == SHAPE_TIMESTAMP || f->kind == SHAPE_STRING)
                        return *(void *const *)shape_slot(f, m) != NULL;
                return 1;
        }
        if (d->label == PROTOBUF_C_LABEL_OPTIONAL && d->quantifier_offset != 0)
                return *(const protobuf_c_boolean *)((const char *)m + d->quantifier_offset) ? 1
                                                                                             : 0;
        return is_set(f, shape_slot(f, m)) ? 1 : 0;
}

int shape_mark(const struct shape_field *f, ProtobufCMessage *m)
{
        const ProtobufCFieldDescriptor *d = f->field;

        if (d->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
                uint32_t *which = (uint32_t *)((char *)m + d->quantifier_offset);
                if (*which != 0 && *which != d->id)
                        return -1;
                *which = d->id;
        } else if (d->label == PROTOBUF_C_LABEL_OPTIONAL && d->quantifier_offset != 0)
                *(protobuf_c_boolean *)((char *)m + d->quantifier_offset) = 1;
        return 0;
}

void *shape_list_push(struct shape_list *l)
{
        if (l->len == l->cap) {
                size_t cap = l->cap ? l->cap * 2 : 4;
                char *at = arena_alloc(l->arena, cap * l->f->size);
                if (l->len > 0)
                        memcpy(at, l->at, l->len * l->f->size);
                l->at = at;
                l->cap = cap;
        }
        return l->at + l->len++ * l->f->size;
}

void shape_list_end(struct shape_list *l, ProtobufCMessage *m)
{
        *(size_t *)((char *)m + l->f->field->quantifier_offset) = l->len;
        *(void **)((char *)m + l->f->field->offset) = l->len ? l->at : NULL;
}
