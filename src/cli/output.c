/* cli/output.c: see output.h. */
#include "cli/output.h"
#include "base/clock.h"
#include "model/json.h"
#include "model/manifest.h"
#include "model/pb.h"

enum output_format output_format(const struct output_options *opt)
{
        static const char *const names[] = { "table", "wide", "json", "yaml", "name" };
        for (size_t i = 0; i < ARRAY_LEN(names) && opt->format; i++)
                if (str_case_eq(opt->format, names[i]))
                        return (enum output_format)i;
        return OUTPUT_TABLE;
}

void output_init(struct output *o, struct cli *cli, const struct kind *kind,
                 const struct output_options *opt)
{
        *o = (struct output){ .cli = cli,
                              .kind = kind,
                              .format = output_format(opt),
                              .no_headers = opt->no_headers };
}

void output_fini(struct output *o)
{
        if (o->table)
                table_destroy(o->table);
        o->table = NULL;
}

static void add_row(struct output *o, const ProtobufCMessage *m, int64_t now_ms)
{
        if (!o->table)
                o->table = table_create(o->kind->columns, o->kind->n_columns);
        o->kind->row(o->table, m, now_ms);
}

static void print_rows(struct output *o, struct str *out)
{
        struct table_style style = { .term = &o->cli->out,
                                     .wide = o->format == OUTPUT_WIDE,
                                     .no_headers = o->no_headers,
                                     .stream = o->stream };
        if (o->table)
                table_print(o->table, &style, out);
}

/* The list message with these items: they are borrowed for as long as it is printed. */
static ProtobufCMessage *make_list(struct arena *arena, const struct kind *kind,
                                   ProtobufCMessage *const *items, size_t n)
{
        ProtobufCMessage *list = pb_new(arena, kind->list_type);
        const ProtobufCFieldDescriptor *f =
            protobuf_c_message_descriptor_get_field_by_name(kind->list_type, "items");
        *(size_t *)((char *)list + f->quantifier_offset) = n;
        *(ProtobufCMessage *const **)((char *)list + f->offset) = items;
        return list;
}

void output_list(struct output *o, ProtobufCMessage *const *items, size_t n, int64_t now_ms)
{
        _cleanup_(str_finip) struct str out = STR_INIT;
        char buf[WORDS_LEN];
        struct arena arena = ARENA_INIT;

        if (o->stream && o->format > OUTPUT_WIDE) {
                for (size_t i = 0; i < n; i++)
                        output_item(o, items[i], now_ms);
                return;
        }
        switch (o->format) {
        case OUTPUT_TABLE:
        case OUTPUT_WIDE:
                if (!o->table)
                        o->table = table_create(o->kind->columns, o->kind->n_columns);
                for (size_t i = 0; i < n; i++)
                        add_row(o, items[i], now_ms);
                print_rows(o, &out);
                break;
        case OUTPUT_NAME:
                for (size_t i = 0; i < n; i++)
                        str_addf(&out, "%s/%s\n", o->kind->name, o->kind->id(items[i], buf));
                break;
        case OUTPUT_JSON:
                if (n)
                        json_write(&out, make_list(&arena, o->kind, items, n), JSON_PRETTY);
                else
                        /* a script wants a list to walk over, also an empty one */
                        str_adds(&out, "{\n  \"items\": []\n}");
                str_addc(&out, '\n');
                break;
        case OUTPUT_YAML:
                if (n)
                        yaml_write(&out, make_list(&arena, o->kind, items, n));
                else
                        str_adds(&out, "items: []\n");
                break;
        }
        cli_out_str(o->cli, &out);
        arena_fini(&arena);
}

void output_item(struct output *o, const ProtobufCMessage *item, int64_t now_ms)
{
        _cleanup_(str_finip) struct str out = STR_INIT;
        char buf[WORDS_LEN];
        switch (o->format) {
        case OUTPUT_TABLE:
        case OUTPUT_WIDE:
                add_row(o, item, now_ms);
                print_rows(o, &out);
                break;
        case OUTPUT_NAME:
                str_addf(&out, "%s/%s\n", o->kind->name, o->kind->id(item, buf));
                break;
        case OUTPUT_JSON:
                json_write(&out, item, JSON_COMPACT);
                str_addc(&out, '\n');
                break;
        case OUTPUT_YAML:
                if (o->documents++)
                        str_adds(&out, "---\n");
                yaml_write(&out, item);
                break;
        }
        cli_out_str(o->cli, &out);
}

int output_all(struct cli *cli, const struct kind *kind, const struct output_options *opt,
               ProtobufCMessage *const *items, size_t n)
{
        struct output output;
        output_init(&output, cli, kind, opt);
        if (n == 0 && output.format <= OUTPUT_WIDE)
                cli_say(cli, "no %ss\n", kind->name);
        else
                output_list(&output, items, n, clock_wall_ms());
        output_fini(&output);
        return 0;
}

void output_object(struct cli *cli, enum output_format format, const char *kind, const char *id,
                   const ProtobufCMessage *m)
{
        _cleanup_(str_finip) struct str out = STR_INIT;
        if (format == OUTPUT_YAML) {
                yaml_write(&out, m);
        } else if (format == OUTPUT_NAME) {
                str_addf(&out, "%s/%s\n", kind, id);
        } else {
                json_write(&out, m, JSON_PRETTY);
                str_addc(&out, '\n');
        }
        cli_out_str(cli, &out);
}
