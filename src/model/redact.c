/* model/redact.c: see redact.h. */
#include "model/redact.h"

#include "base/arena.h"
#include "base/wire.h"
#include "model/json.h"
#include "model/pb.h"
#include "model/shape.h"
#include "records.pb-c.h"

static const char hidden_text[] = REDACTED_TEXT;

enum redact_level redact_level_of(int role)
{
        return role == PB__ROLE__E__admin      ? REDACT_NOTHING
               : role == PB__ROLE__E__operator ? REDACT_HASHES
                                               : REDACT_VALUES;
}

static bool is_hidden(enum redact_level level, const struct rule *rule)
{
        return rule->hidden == RULE_FOR_ADMINS      ? level >= REDACT_HASHES
               : rule->hidden == RULE_FOR_OPERATORS ? level >= REDACT_VALUES
                                                    : false;
}

bool redact_concerns(enum redact_level level, const ProtobufCMessageDescriptor *type)
{
        uint8_t hides = level == REDACT_NOTHING ? 0 : shape_of(type)->hides;
        return (hides & 1u << RULE_FOR_ADMINS) ||
               (level >= REDACT_VALUES && (hides & 1u << RULE_FOR_OPERATORS));
}

bool redact_finds(enum redact_level level, const ProtobufCMessageDescriptor *type, const void *data,
                  size_t len)
{
        if (!redact_concerns(level, type))
                return false;
        const struct shape *s = shape_of(type);
        for (const uint8_t *p = data, *end = p + len; p < end;) {
                uint64_t tag;
                struct wire_value value;
                if (!varint_take(&p, end, &tag) || !wire_take(&p, end, tag & 7, &value))
                        return true;
                unsigned i = 0;
                while (i < s->n_fields && s->fields[i].field->id != tag >> 3)
                        i++;
                if (i == s->n_fields || is_hidden(level, s->fields[i].rule) ||
                    (s->fields[i].kind == SHAPE_MESSAGE &&
                     redact_concerns(level, s->fields[i].field->descriptor)))
                        return true;
        }
        return false;
}

/* Of a map the keys stay: an environment's names are seen, its values are not. */
static void hide(const struct shape_field *f, ProtobufCMessage *m)
{
        bool repeated = f->field->label == PROTOBUF_C_LABEL_REPEATED;
        size_t n = shape_count(f, m);
        for (size_t i = 0; i < n; i++) {
                void *slot = repeated ? shape_at(f, m, i) : shape_slot(f, m);
                if (f->kind == SHAPE_MAP)
                        (*(struct pb_entry **)slot)->value = (char *)hidden_text;
                else if (f->kind == SHAPE_STRING)
                        *(char **)slot = (char *)hidden_text;
                else
                        must(false, "only texts and maps of texts can be hidden");
        }
}

void redact(enum redact_level level, ProtobufCMessage *m)
{
        if (!m || !redact_concerns(level, m->descriptor))
                return;
        const struct shape *s = shape_of(m->descriptor);
        m->n_unknown_fields = 0;
        for (unsigned i = 0; i < s->n_fields; i++) {
                const struct shape_field *f = &s->fields[i];
                if (shape_is_unset(&s->wire[i], m))
                        continue;
                if (is_hidden(level, f->rule))
                        hide(f, m);
                else if (f->kind == SHAPE_MESSAGE && f->repeated)
                        for (size_t j = 0, n = shape_count(f, m); j < n; j++)
                                redact(level, *(ProtobufCMessage **)shape_at(f, m, j));
                else if (f->kind == SHAPE_MESSAGE)
                        redact(level, *(ProtobufCMessage **)shape_slot(f, m));
        }
}

static ProtobufCMessage *unpack_for(enum redact_level level, const ProtobufCMessageDescriptor *type,
                                    const void *data, size_t len, struct arena *arena)
{
        ProtobufCMessage *m = NULL;
        if (pb_unpack_own(type, data, len, arena, &m, NULL) < 0)
                return NULL;
        redact(level, m);
        return m;
}

bool redact_packed(enum redact_level level, const ProtobufCMessageDescriptor *type,
                   const void *data, size_t len, struct str *out)
{
        if (!redact_finds(level, type, data, len)) {
                str_add(out, data, len);
                return true;
        }
        struct arena arena = ARENA_INIT;
        ProtobufCMessage *m = unpack_for(level, type, data, len, &arena);
        if (m)
                pb_pack(out, m);
        arena_fini(&arena);
        return m != NULL;
}

bool redact_json(enum redact_level level, const ProtobufCMessageDescriptor *type, const void *data,
                 size_t len, unsigned flags, struct str *out)
{
        if (!redact_finds(level, type, data, len) && json_write_packed(out, type, data, len, flags))
                return true;
        struct arena arena = ARENA_INIT;
        ProtobufCMessage *m = unpack_for(level, type, data, len, &arena);
        if (m)
                json_write(out, m, flags);
        arena_fini(&arena);
        return m != NULL;
}
