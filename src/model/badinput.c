/* model/badinput.c: see badinput.h.
 *
 * A variant is written from the valid example by one walk over the descriptors, with one place on
 * the way (a chain of fields) overridden. Faults of the form (wrong type, unknown field) are made
 * for every field of the type, set in the example or not; faults against rules only where a
 * caller's value counts.
 */
#include "model/badinput.h"
#include "agent.pb-c.h"
#include "api.pb-c.h"
#include "base/array.h"
#include "base/str.h"
#include "model/json.h"
#include "model/json_private.h"
#include "model/path.h"
#include "model/rules.h"
#include "model/shape.h"
#include <string.h>

#define MAX_CHAIN 16

/* ---- examples ---- */

#define WORKLOAD                                                                                   \
        "{\"id\":\"web-1\",\"type\":\"container\",\"desired_state\":\"Running\",\"spec\":{"        \
        "\"command\":[\"sh\",\"-c\",\"sleep 1000\"],"                                              \
        "\"env\":{\"PORT\":\"8080\"},\"workdir\":\"/"                                              \
        "srv\",\"user\":\"nobody\",\"image\":\"docker.io/library/busybox:1.36\","                  \
        "\"ports\":[{\"host_port\":8080,\"container_port\":80,\"protocol\":\"tcp\"}],"             \
        "\"volumes\":[{\"host_path\":\"/srv/data\",\"container_path\":\"/"                         \
        "data\",\"read_only\":true}],\"max_open_files\":1024,"                                     \
        "\"max_processes\":100,\"log_max_kb\":1024,\"health\":{\"port\":80,\"path\":\"/"           \
        "\"},\"managed_volumes\":[{\"name\":\"data\",\"driver\":\"local\",\"mount_path\":\"/"      \
        "v\"}]},\"priority\":5,\"annotations\":{\"note\":\"x\"},\"tolerations\":[{\"key\":"        \
        "\"gpu\",\"value\":\"yes\"}],\"spread\":[{"                                                \
        "\"over\":\"zone\",\"max_skew\":1,\"match\":{\"app\":\"web\"}}],\"affinity\":[{\"match\":" \
        "{\"app\":\"db\"},\"over\":\"zone\","                                                      \
        "\"weight\":5}],\"anti_affinity\":[{\"match\":{\"app\":\"web\"},\"over\":\"host\"}],"      \
        "\"resources\":{\"cpu\":0.25,\"memory_mb\":64,"                                            \
        "\"disk_gb\":1},"                                                                          \
        "\"retry\":{\"max_attempts\":3,\"base_seconds\":1,\"cap_seconds\":60},\"labels\":{"        \
        "\"app\":\"web\"},\"node_selector\":{\"zone\":"                                            \
        "\"a\"},"                                                                                  \
        "\"restart\":\"always\",\"ttl_seconds\":60,\"stop_grace_seconds\":5,\"tenant\":\"team-"    \
        "a\"}"

static const struct {
        const ProtobufCMessageDescriptor *type;
        const char *json;
} examples[] = {
        { &pb__workload__descriptor, WORKLOAD },
        { &pb__apply_workload_request__descriptor, "{\"workload\":" WORKLOAD "}" },
        { &pb__apply_workloads_request__descriptor, "{\"items\":[" WORKLOAD "]}" },
        { &pb__workload_ref__descriptor, "{\"id\":\"web-1\"}" },
        { &pb__node_ref__descriptor, "{\"id\":\"node-1\"}" },
        { &pb__set_desired_request__descriptor,
          "{\"id\":\"web-1\",\"desired_state\":\"Stopped\"}" },
        { &pb__set_node_wish_request__descriptor, "{\"id\":\"node-1\",\"wish\":\"cordoned\"}" },
        { &pb__set_node_labels_request__descriptor,
          "{\"id\":\"node-1\",\"labels\":{\"zone\":\"a\"}}" },
        { &pb__set_node_capacity_request__descriptor,
          "{\"id\":\"node-1\",\"capacity\":{\"cpu\":4,\"memory_mb\":1024,\"disk_gb\":10}}" },
        { &pb__list_workloads_request__descriptor,
          "{\"limit\":10,\"selector\":\"app=web\",\"status\":\"running\",\"node\":\"node-1\","
          "\"prefix\":\"we\"}" },
        { &pb__list_nodes_request__descriptor,
          "{\"limit\":10,\"selector\":\"zone in (a,b)\",\"status\":\"Ready\",\"prefix\":\"no\"}" },
        { &pb__list_events_request__descriptor,
          "{\"since\":1,\"limit\":10,\"type\":\"WorkloadFailed,NodeLost\",\"workload\":\"web-1\","
          "\"node\":\"node-1\"}" },
        { &pb__tenant_ref__descriptor, "{\"tenant\":\"team-a\"}" },
        { &pb__set_quota_request__descriptor,
          "{\"quota\":{\"tenant\":\"team-a\",\"workloads\":10,\"resources\":{\"cpu\":4,\"memory_"
          "mb\":4096,\"disk_gb\":10},"
          "\"writes_per_minute\":600}}" },
        { &pb__list_quotas_request__descriptor, "{\"limit\":10}" },
        { &pb__create_token_request__descriptor,
          "{\"name\":\"n7\",\"role\":\"join\",\"ttl_seconds\":3600,\"labels\":{\"zone\":\"a\"},"
          "\"taints\":[{\"key\":\"gpu\",\"value\":\"yes\",\"effect\":\"no-schedule\"}],"
          "\"capacity\":{\"cpu\":4,\"memory_mb\":1024,\"disk_gb\":10}}" },
        { &pb__join_request__descriptor,
          "{\"secret\":\"bjoin_x\",\"node_id\":\"n1\",\"request\":\"PEM\"}" },
        { &pb__renew_request__descriptor, "{\"node_id\":\"n1\",\"request\":\"PEM\"}" },
        { &pb__token_ref__descriptor, "{\"name\":\"ann\"}" },
        { &pb__list_tokens_request__descriptor, "{\"limit\":10}" },
        { &pb__logs_request__descriptor, "{\"id\":\"web-1\",\"follow\":true,\"tail_lines\":10}" },
        { &pb__exec_start__descriptor,
          "{\"id\":\"web-1\",\"command\":[\"ls\"],\"tty\":true,\"rows\":24,\"cols\":80}" },
        { &pb__hello__descriptor,
          "{\"node_id\":\"node-1\",\"cpu\":4,\"memory_mb\":4096,\"disk_gb\":10,\"supported_"
          "workload_types\":[\"process\"],"
          "\"labels\":{\"zone\":\"a\"},\"agent_version\":\"0.1.0\",\"instance\":"
          "\"01ARZ3NDEKTSV4RRFFQ69G5FAV\","
          "\"agent_endpoint\":\"127.0.0.1:50051\",\"applied\":{\"epoch\":1,\"seq\":7},"
          "\"units\":[{\"unit_id\":\"web-1\",\"revision_id\":\"rev-1\",\"token\":{\"epoch\":1,"
          "\"seq\":5},\"state\":\"Running\"}],"
          "\"protocol\":1}" },
};

const ProtobufCMessageDescriptor *badinput_type_at(size_t i)
{
        return i < ARRAY_LEN(examples) ? examples[i].type : NULL;
}

const ProtobufCMessageDescriptor *badinput_type(const char *short_name)
{
        for (size_t i = 0; i < ARRAY_LEN(examples); i++)
                if (str_eq(examples[i].type->short_name, short_name))
                        return examples[i].type;
        return NULL;
}

ProtobufCMessage *badinput_example(struct arena *arena, const ProtobufCMessageDescriptor *type)
{
        ProtobufCMessage *m;

        for (size_t i = 0; i < ARRAY_LEN(examples); i++)
                if (examples[i].type == type) {
                        must(json_read(type, examples[i].json, strlen(examples[i].json), SIZE_MAX,
                                       0, arena, &m, NULL) == 0,
                             "the example is valid");
                        return m;
                }
        return NULL;
}

/* ---- writing with one place overridden ---- */

struct maker {
        struct arena *arena;
        const ProtobufCMessage *example;
        const struct shape *shape;
        const struct shape_field *chain[MAX_CHAIN]; /* from the top to the field in question */
        unsigned depth;
        const char *raw;   /* its value's text; NULL: left out */
        const char *extra; /* instead: a member added to the message that the chain ends with */
        bool twice;
        ARRAY(struct badinput) made;
};

static void write_member(struct maker *k, struct str *out, const ProtobufCMessage *m,
                         const struct shape *s, unsigned level);

static void write_overridden(struct maker *k, struct str *out, const ProtobufCMessage *m,
                             const struct shape_field *f, unsigned level)
{
        const ProtobufCMessage *sub = NULL;

        if (level + 1 == k->depth && !k->extra) {
                str_adds(out, k->raw);
                return;
        }
        if (m && shape_count(f, m) > 0)
                sub = *(ProtobufCMessage *const *)(f->repeated ? shape_at(f, m, 0)
                                                               : shape_slot(f, m));
        str_adds(out, f->repeated ? "[" : "");
        write_member(k, out, sub, f->shape, level + 1);
        str_adds(out, f->repeated ? "]" : "");
}

static void write_member(struct maker *k, struct str *out, const ProtobufCMessage *m,
                         const struct shape *s, unsigned level)
{
        bool any = false;

        str_addc(out, '{');
        for (unsigned i = 0; i < s->n_fields; i++) {
                const struct shape_field *f = &s->fields[i];
                bool here = level < k->depth && k->chain[level] == f,
                     last = here && level + 1 == k->depth && !k->extra;
                for (int round = 0; round < (last && k->twice ? 2 : 1); round++) {
                        if (here ? last && !k->raw : !m || shape_count(f, m) == 0)
                                continue;
                        str_adds(out, any ? "," : "");
                        any = true;
                        str_adds(out, f->quoted);
                        if (here)
                                write_overridden(k, out, m, f, level);
                        else
                                json_write_field(out, f, m);
                }
        }
        if (k->extra && level == k->depth)
                str_addf(out, "%s%s", any ? "," : "", k->extra);
        str_addc(out, '}');
}

/* Adds a variant: the field that the chain ends with has this text. below: what comes behind its
 * path ("[0]", ".key"). */
static void make(struct maker *k, const char *raw, const char *below, const char *what, bool wire,
                 bool yaml)
{
        struct path_step steps[MAX_CHAIN * 2];
        const struct path_step *at = NULL;
        struct str text = STR_INIT;
        char path[PATH_TEXT_LEN];
        size_t n = 0;

        k->raw = raw;
        write_member(k, &text, k->example, k->shape, 0);
        for (unsigned i = 0; i < k->depth; i++) {
                steps[n] = (struct path_step){ .up = at,
                                               .name = k->chain[i]->field->name,
                                               .name_len = k->chain[i]->name_len };
                at = &steps[n++];
                if (k->chain[i]->repeated && (i + 1 < k->depth || k->extra)) {
                        steps[n] = (struct path_step){ .up = at };
                        at = &steps[n++];
                }
        }
        path_text(at, path);
        if (below[0] == '.' && path[0] == '\0')
                below++;
        *array_push(&k->made) = (struct badinput){
                .json = arena_strdup(k->arena, str_c(&text)),
                .path = arena_printf(k->arena, "%s%s", path, below),
                .what = what,
                .wire = wire,
                .yaml = yaml,
        };
        str_fini(&text);
}

/* ---- faults of the form ---- */

/* Texts that no value of this kind has, ended by NULL; text_only ones are good texts in YAML. */
static const char *const *wrong_values(enum shape_kind kind)
{
        static const char *const for_bool[] = { "\"yes\"", "7", "[]", "{}", NULL };
        static const char *const for_int[] = { "\"seven\"", "\"7\"", "true", "1.5",
                                               "[7]",       "{}",    NULL };
        static const char *const for_time[] = { "\"yesterday\"", "12345", "true", "{}", NULL };
        static const char *const for_cpu[] = { "\"much\"", "0.0001", "true", "[]", "{}", NULL };
        static const char *const for_enum[] = { "\"no-such-value\"", "7", "[]", "{}", NULL };
        static const char *const for_text[] = { "{\"a\":\"b\"}", "[\"a\"]", NULL };
        static const char *const for_bytes[] = { "\"***\"", "{}", NULL };
        static const char *const for_object[] = { "7", "\"text\"", "[]", "true", NULL };

        switch (kind) {
        case SHAPE_BOOL:
                return for_bool;
        case SHAPE_TIME:
                return for_time;
        case SHAPE_CPU:
                return for_cpu;
        case SHAPE_ENUM:
                return for_enum;
        case SHAPE_STRING:
                return for_text;
        case SHAPE_BYTES:
                return for_bytes;
        case SHAPE_MESSAGE:
        case SHAPE_MAP:
                return for_object;
        default:
                return for_int;
        }
}

static const char *const *too_large(enum shape_kind kind)
{
        static const char *const for_int32[] = { "2147483648", "-2147483649", "1e400", NULL };
        static const char *const for_int64[] = { "9223372036854775808", "-9223372036854775809",
                                                 NULL };
        static const char *const for_uint32[] = { "4294967296", "-1", NULL };
        static const char *const for_uint64[] = { "18446744073709551616", "-1", NULL };
        static const char *const for_cpu[] = { "1e30", NULL };
        static const char *const none[] = { NULL };

        switch (kind) {
        case SHAPE_INT32:
                return for_int32;
        case SHAPE_INT64:
        case SHAPE_INT_VALUE:
                return for_int64;
        case SHAPE_UINT32:
                return for_uint32;
        case SHAPE_UINT64:
                return for_uint64;
        case SHAPE_CPU:
                return for_cpu;
        default:
                return none;
        }
}

static void make_wrong_form(struct maker *k, const struct shape_field *f)
{
        if (f->repeated) {
                make(k, "7", "", "wrong type", false, true);
                make(k, "{}", "", "wrong type", false, true);
                make(k, "[null]", "[0]", "wrong type", false, true);
                for (const char *const *w = wrong_values(f->kind); *w; w++)
                        make(k, arena_printf(k->arena, "[%s]", *w), "[0]", "wrong type", false,
                             true);
                return;
        }
        for (const char *const *w = wrong_values(f->kind); *w; w++)
                make(k, *w, "", "wrong type", false, true);
        for (const char *const *w = too_large(f->kind); *w; w++)
                make(k, *w, "", "out of range", false, true);
        if (f->kind == SHAPE_STRING) {
                make(k, "7", "", "wrong type", false, false);
                make(k, "true", "", "wrong type", false, false);
        }
        if (f->kind == SHAPE_MAP) {
                make(k, "{\"k\":{}}", ".k", "wrong type", false, true);
                make(k, "{\"k\":null}", ".k", "wrong type", false, true);
                make(k, "{\"k\":7}", ".k", "wrong type", false, false);
                make(k, "{\"k\":\"a\",\"k\":\"b\"}", ".k", "twice", false, true);
        }
}

/* ---- faults against the rules ---- */

static const char *quoted(struct maker *k, const char *text, size_t len)
{
        struct str out = STR_INIT;
        const char *kept;

        json_write_string(&out, text, len);
        kept = arena_strdup(k->arena, str_c(&out));
        str_fini(&out);
        return kept;
}

/* A text of max + 1 letters, or that many bytes as base64. */
static const char *long_text(struct maker *k, const struct shape_field *f)
{
        size_t n = (f->rule->max_len ? f->rule->max_len : RULE_TEXT_MAX) + 1;
        char *text;

        if (f->kind == SHAPE_BYTES)
                n = (n + 2) / 3 * 4;
        text = arena_alloc(k->arena, n + 1);
        memset(text, f->kind == SHAPE_BYTES ? 'A' : 'a', n);
        if (f->rule->text == RULE_PATH)
                text[0] = '/';
        return quoted(k, text, n);
}

static void make_too_many(struct maker *k, const struct shape_field *f)
{
        size_t n = (f->rule->max_items ? f->rule->max_items : RULE_ITEMS_MAX) + 1;
        struct str out = STR_INIT;

        str_addc(&out, f->kind == SHAPE_MAP ? '{' : '[');
        for (size_t i = 0; i < n; i++) {
                str_adds(&out, i ? "," : "");
                if (f->kind == SHAPE_MAP)
                        str_addf(&out, "\"k%zu\":\"v\"", i);
                else if (f->kind == SHAPE_MESSAGE)
                        str_adds(&out, "{}");
                else if (f->kind == SHAPE_ENUM)
                        str_addf(&out, "\"%s\"", f->names->names[1]);
                else
                        str_adds(&out, "\"x\"");
        }
        str_addc(&out, f->kind == SHAPE_MAP ? '}' : ']');
        /* 100,000 units are more events than a manifest may have */
        make(k, arena_strdup(k->arena, str_c(&out)), "", "too many", true, n < 20000);
        str_fini(&out);
}

static void make_bad_number(struct maker *k, const struct shape_field *f)
{
        const struct rule *rule = f->rule;
        char low[SCALAR_ROOM], high[SCALAR_ROOM];

        if (rule->min == 0 && rule->max == 0)
                return;
        if (f->kind == SHAPE_CPU) {
                shape_cpu_text(rule->min - 1, low);
                shape_cpu_text(rule->max + 1, high);
        } else {
                strcpy(low, fmt("%lld", (long long)rule->min - 1));
                strcpy(high, fmt("%lld", (long long)rule->max + 1));
        }
        if (!(f->kind == SHAPE_INT32 && rule->max == INT32_MAX))
                make(k, arena_strdup(k->arena, high), "", "out of range", true, true);
        if (rule->min != 1) /* 0 is the same as nothing */
                make(k, arena_strdup(k->arena, low), "", "out of range", true, true);
        if (rule->min >= 0)
                make(k, "-5", "", "out of range", true, true);
}

static void make_against_rules(struct maker *k, const struct shape_field *f)
{
        const char *below = f->repeated ? "[0]" : "", *bad = rule_text_bad(f->rule->text),
                   *open = f->repeated ? "[" : "", *close = f->repeated ? "]" : "";

        if (f->rule->required)
                make(k, NULL, "", "missing", true, true);
        if (f->kind == SHAPE_STRING || f->kind == SHAPE_BYTES)
                make(k, arena_printf(k->arena, "%s%s%s", open, long_text(k, f), close), below,
                     "too long", true, true);
        if (f->kind == SHAPE_STRING && bad)
                make(k, arena_printf(k->arena, "%s%s%s", open, quoted(k, bad, strlen(bad)), close),
                     below, "bad text", true, true);
        if (f->repeated || f->kind == SHAPE_MAP)
                make_too_many(k, f);
        if (f->kind == SHAPE_MAP) {
                const char *key = rule_text_bad(f->rule->key);
                make(k, arena_printf(k->arena, "{\"k\":%s}", long_text(k, f)), ".k", "too long",
                     true, true);
                if (bad)
                        make(k, arena_printf(k->arena, "{\"k\":%s}", quoted(k, bad, strlen(bad))),
                             ".k", "bad text", true, true);
                if (key)
                        make(k, arena_printf(k->arena, "{\"%s\":\"v\"}", key),
                             arena_printf(k->arena, "[\"%s\"]", key), "bad text", true, true);
        }
        if (!f->repeated)
                make_bad_number(k, f);
}

/* ---- the walk ---- */

static void walk(struct maker *k, const struct shape *s, const ProtobufCMessage *m, bool server)
{
        k->extra = "\"no_such_field\":1";
        make(k, NULL, ".no_such_field", "unknown field", false, true);
        k->extra = NULL;
        if (k->depth == MAX_CHAIN)
                return;
        k->depth++;
        for (unsigned i = 0; i < s->n_fields; i++) {
                const struct shape_field *f = &s->fields[i];
                const ProtobufCMessage *sub = NULL;
                bool dropped = server || f->rule->server;

                k->chain[k->depth - 1] = f;
                make_wrong_form(k, f);
                if (!dropped)
                        make_against_rules(k, f);
                if (m && shape_count(f, m) > 0) {
                        struct str text = STR_INIT;
                        json_write_field(&text, f, m);
                        k->twice = true;
                        make(k, arena_strdup(k->arena, str_c(&text)), "", "twice", false, true);
                        k->twice = false;
                        str_fini(&text);
                }
                if (f->kind != SHAPE_MESSAGE)
                        continue;
                if (m && shape_count(f, m) > 0)
                        sub = *(ProtobufCMessage *const *)(f->repeated ? shape_at(f, m, 0)
                                                                       : shape_slot(f, m));
                walk(k, f->shape, sub, dropped);
        }
        k->depth--;
}

size_t badinput_make(struct arena *arena, const ProtobufCMessageDescriptor *type,
                     const ProtobufCMessage *example, struct badinput **ret)
{
        static const char *const no_object[] = { "",        "7",     "\"text\"", "{",   "{]",
                                                 "{\"a\"}", "{} {}", "{,}",      "nul", NULL };
        struct maker k = { .arena = arena,
                           .shape = shape_of(type),
                           .example = example ? example : badinput_example(arena, type) };
        size_t n;

        walk(&k, k.shape, k.example, false);
        for (const char *const *t = no_object; *t; t++)
                *array_push(&k.made) =
                    (struct badinput){ .json = *t, .path = "", .what = "no object" };
        n = k.made.len;
        *ret = n ? arena_dup(arena, k.made.at, n * sizeof(k.made.at[0])) : NULL;
        array_fini(&k.made);
        return n;
}
