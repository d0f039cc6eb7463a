/* model/openapi.c: see openapi.h. Limits are published where the table has a row: the defaults for
 * requests would be wrong for answers. */
#include "model/openapi.h"
#include "base/array.h"
#include "model/json.h"
#include "model/json_private.h"
#include "model/rules.h"
#include "model/shape.h"
#include <stdlib.h>
#include <string.h>

static void add_range(struct str *out, const struct shape_field *f)
{
        const struct rule *rule = f->rule;
        char cores[SCALAR_ROOM];

        if (rule->min == 0 && rule->max == 0) {
                if (f->kind == SHAPE_UINT32 || f->kind == SHAPE_UINT64)
                        str_adds(out, ",\"minimum\":0");
                return;
        }
        if (f->kind == SHAPE_CPU) {
                shape_cpu_text(rule->min, cores);
                str_addf(out, ",\"minimum\":%s", cores);
                shape_cpu_text(rule->max, cores);
                str_addf(out, ",\"maximum\":%s", cores);
                return;
        }
        str_addf(out, ",\"minimum\":%lld,\"maximum\":%lld", (long long)rule->min,
                 (long long)rule->max);
}

static void add_text(struct str *out, const struct rule *rule)
{
        const char *pattern = rule_text_pattern(rule->text);

        str_adds(out, "{\"type\":\"string\"");
        if (rule->max_len)
                str_addf(out, ",\"maxLength\":%u", rule->max_len);
        if (pattern) {
                str_adds(out, ",\"pattern\":");
                json_write_string(out, pattern, strlen(pattern));
        }
        str_addc(out, '}');
}

static void add_enum(struct str *out, const struct shape_enum *e)
{
        bool any = false;

        str_adds(out, "{\"type\":\"string\",\"enum\":[");
        for (unsigned i = 0; i < e->type->n_values; i++)
                if (e->names[i]) {
                        str_addf(out, "%s\"%s\"", any ? "," : "", e->names[i]);
                        any = true;
                }
        str_adds(out, "]}");
}

static void add_value(struct str *out, const struct shape_field *f)
{
        switch (f->kind) {
        case SHAPE_BOOL:
                str_adds(out, "{\"type\":\"boolean\"}");
                return;
        case SHAPE_INT32:
        case SHAPE_UINT32:
                str_adds(out, "{\"type\":\"integer\",\"format\":\"int32\"");
                break;
        case SHAPE_INT64:
        case SHAPE_UINT64:
        case SHAPE_INT_VALUE:
                str_adds(out, "{\"type\":\"integer\",\"format\":\"int64\"");
                break;
        case SHAPE_FLOAT:
        case SHAPE_DOUBLE:
                str_adds(out, "{\"type\":\"number\"");
                break;
        case SHAPE_CPU:
                str_adds(out,
                         "{\"type\":\"number\",\"multipleOf\":0.001,\"description\":\"cores\"");
                break;
        case SHAPE_TIME:
        case SHAPE_TIMESTAMP:
                str_adds(out, "{\"type\":\"string\",\"format\":\"date-time\"}");
                return;
        case SHAPE_BYTES:
                str_adds(out, "{\"type\":\"string\",\"contentEncoding\":\"base64\"}");
                return;
        case SHAPE_ENUM:
                add_enum(out, f->names);
                return;
        case SHAPE_STRING:
                add_text(out, f->rule);
                return;
        case SHAPE_MESSAGE:
                str_addf(out, "{\"$ref\":\"#/components/schemas/%s\"}", f->shape->type->short_name);
                return;
        case SHAPE_MAP:
                str_adds(out, "{\"type\":\"object\"");
                if (f->rule->max_items)
                        str_addf(out, ",\"maxProperties\":%u", f->rule->max_items);
                str_adds(out, ",\"additionalProperties\":");
                add_text(out, f->rule);
                str_addc(out, '}');
                return;
        }
        add_range(out, f);
        str_addc(out, '}');
}

static void add_field(struct str *out, const struct shape_field *f)
{
        size_t at;

        str_add(out, f->quoted, f->quoted_len);
        at = out->len;
        if (f->repeated) {
                str_adds(out, "{\"type\":\"array\"");
                if (f->rule->max_items)
                        str_addf(out, ",\"maxItems\":%u", f->rule->max_items);
                str_adds(out, ",\"items\":");
                add_value(out, f);
                str_addc(out, '}');
        } else
                add_value(out, f);
        if (f->rule->server && out->buf[out->len - 1] == '}' && out->len > at + 2) {
                out->buf[--out->len] = '\0';
                str_adds(out, ",\"readOnly\":true}");
        }
}

void openapi_schema(struct str *out, const ProtobufCMessageDescriptor *type)
{
        const struct shape *s = shape_of(type);
        bool any = false;

        str_adds(out, "{\"type\":\"object\",\"additionalProperties\":false,\"properties\":{");
        for (unsigned i = 0; i < s->n_fields; i++) {
                if (i > 0)
                        str_addc(out, ',');
                add_field(out, &s->fields[i]);
        }
        str_addc(out, '}');
        for (unsigned i = 0; i < s->n_fields; i++) {
                if (!s->fields[i].rule->required)
                        continue;
                str_addf(out, "%s\"%s\"", any ? "," : ",\"required\":[", s->fields[i].field->name);
                any = true;
        }
        str_adds(out, any ? "]}" : "}");
}

static int by_name(const void *a, const void *b)
{
        return strcmp((*(const struct shape *const *)a)->type->short_name,
                      (*(const struct shape *const *)b)->type->short_name);
}

void openapi_schemas(struct str *out, const ProtobufCMessageDescriptor *const *types,
                     size_t n_types)
{
        ARRAY(const struct shape *) all = { 0 };

        for (size_t i = 0; i < n_types; i++)
                *array_push(&all) = shape_of(types[i]);
        /* what a type refers to is added behind it, once; the array grows until nothing new turns
         * up */
        for (size_t i = 0; i < all.len; i++) {
                const struct shape *s = all.at[i];
                for (unsigned k = 0; k < s->n_fields; k++) {
                        bool known = s->fields[k].kind != SHAPE_MESSAGE;
                        for (size_t j = 0; j < all.len && !known; j++)
                                known = all.at[j] == s->fields[k].shape;
                        if (!known)
                                *array_push(&all) = s->fields[k].shape;
                }
        }
        if (all.len > 0)
                qsort(all.at, all.len, sizeof(all.at[0]), by_name);
        str_addc(out, '{');
        for (size_t i = 0, written = 0; i < all.len; i++) {
                if (i > 0 && all.at[i] == all.at[i - 1])
                        continue;
                str_addf(out, "%s\"%s\":", written++ ? "," : "", all.at[i]->type->short_name);
                openapi_schema(out, all.at[i]->type);
        }
        str_addc(out, '}');
        array_fini(&all);
}
