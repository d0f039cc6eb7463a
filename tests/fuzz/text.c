/* Any text as what people type: a selector, a duration, a size, cores, a time, a query parameter.
 * Refused, or a value within its range. The first byte says which. */
#include "api.pb-c.h"
#include "base/clock.h"
#include "fuzz.h"

static void selector(struct arena *a, const char *text)
{
        struct selector s = { 0 };
        struct err err = { 0 };
        if (selector_parse(a, text, &s, &err) < 0)
                must_explain(&err);
        else
                (void)selector_match(&s, NULL, 0);
}

static void query(struct arena *a, const char *text)
{
        static const ProtobufCMessageDescriptor *const types[] = {
                &pb__list_workloads_request__descriptor, &pb__list_events_request__descriptor,
                &pb__logs_request__descriptor, &pb__workload__descriptor, &pb__resources__descriptor
        };
        char *name = arena_strdup(a, text), *value = strchr(name, '=');
        if (!value)
                return;
        *value++ = 0;
        for (size_t i = 0; i < ARRAY_LEN(types); i++) {
                struct err err = { 0 };
                ProtobufCMessage *m = pb_new(a, types[i]);
                if (json_set_text(m, name, value, a, &err) < 0)
                        must_explain(&err);
                else if (i < 3 && validate_request(m, &err) < 0)
                        must_explain(&err);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct arena a = ARENA_INIT;
        int64_t v = -1;
        char buf[TIME_TEXT_LEN];
        if (size == 0)
                return 0;
        const char *text = arena_strndup(&a, (const char *)data + 1, size - 1);
        switch (data[0] % 8) {
        case 0:
                selector(&a, text);
                break;
        case 1:
                MUST(str_parse_duration_ms(text, &v) < 0 || v >= 0, "a duration of %lld ms",
                     (long long)v);
                break;
        case 2:
                MUST(str_parse_bytes(text, &v) < 0 || v >= 0, "%lld bytes", (long long)v);
                break;
        case 3:
                (void)str_parse_milli(text, &v);
                break;
        case 4:
                if (time_parse((const char *)data + 1, size - 1, &v) == 0) {
                        int64_t again;
                        time_format(buf, v);
                        MUST(time_parse(buf, strlen(buf), &again) == 0 && again == v, "%s", buf);
                }
                break;
        case 5:
                query(&a, text);
                break;
        case 6:
                (void)id_is_valid(text);
                (void)str_parse_i64(text, &v);
                (void)str_parse_u64(text, (uint64_t *)&v);
                break;
        default: {
                static const char *const known[] = { "workloads", "nodes", "events", NULL };
                (void)str_suggest(text, known);
        }
        }
        arena_fini(&a);
        return 0;
}
