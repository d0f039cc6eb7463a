/* cli/output.h: -o table|wide|json|yaml|name, the same for every listing. */
#ifndef BERTH_CLI_OUTPUT_H
#define BERTH_CLI_OUTPUT_H

#include "cli/cli.h"
#include "cli/kinds.h"

enum output_format { OUTPUT_TABLE, OUTPUT_WIDE, OUTPUT_JSON, OUTPUT_YAML, OUTPUT_NAME };

struct output_options {
        const char *format; /* NULL: table */
        bool no_headers;
};
#define OUTPUT_CHOICES "table|wide|json|yaml|name"
#define OUTPUT_ROWS(type, field)                                                                   \
        OPT(type, OPT_TEXT, field.format, .letter = 'o', .name = "output",                         \
            .choices = OUTPUT_CHOICES, .arg = "FORMAT",                                            \
            .help = "table, wide, json, yaml or name"),                                            \
            OPT(type, OPT_FLAG, field.no_headers, .name = "no-headers",                            \
                .help = "leave out the table's header")

/* An output that is written in one go (a list) or bit by bit (--watch: a row, a JSON line or a YAML
 * document per item). */
struct output {
        struct cli *cli;
        const struct kind *kind;
        enum output_format format;
        bool no_headers;
        bool stream; /* more will come after a list */
        struct table *table;
        size_t documents;
};
enum output_format output_format(const struct output_options *opt);
void output_init(struct output *o, struct cli *cli, const struct kind *kind,
                 const struct output_options *opt);
void output_fini(struct output *o);

void output_list(struct output *o, ProtobufCMessage *const *items, size_t n, int64_t now_ms);
/* All there is of a kind, now; "no KINDs" on stderr if a table would be empty. Returns 0. */
int output_all(struct cli *cli, const struct kind *kind, const struct output_options *opt,
               ProtobufCMessage *const *items, size_t n);
/* one of many, as they come */
void output_item(struct output *o, const ProtobufCMessage *item, int64_t now_ms);
/* One object alone, as JSON or YAML (name: KIND/NAME). */
void output_object(struct cli *cli, enum output_format format, const char *kind, const char *id,
                   const ProtobufCMessage *m);

#endif
