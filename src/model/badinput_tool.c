/* model/badinput_tool.c: berth-badinput: bad variants of a message for tests in other languages.
 *
 *      berth-badinput Workload            one JSON object per line: {"path":..., "what":...,
 *                                         "wire":bool, "yaml":bool, "body":"the bad text",
 *                                         "packed":"base64"}
 *      berth-badinput --example Workload  the valid example
 *      berth-badinput --list              the types it knows
 *
 * packed is there where wire is true: the same fault as a packed message.
 */
#include "agent.pb-c.h"
#include "api.pb-c.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "model/badinput.h"
#include "model/json.h"
#include "model/pb.h"
#include "model/shape.h"
#include <stdio.h>
#include <string.h>

static void print_variant(const ProtobufCMessageDescriptor *type, const struct badinput *b,
                          struct arena *arena)
{
        struct str line = STR_INIT, packed = STR_INIT;
        ProtobufCMessage *m;

        str_adds(&line, "{\"path\":");
        json_write_string(&line, b->path, strlen(b->path));
        str_addf(&line, ",\"what\":\"%s\",\"wire\":%s,\"yaml\":%s,\"body\":", b->what,
                 b->wire ? "true" : "false", b->yaml ? "true" : "false");
        json_write_string(&line, b->json, strlen(b->json));
        if (b->wire &&
            json_read(type, b->json, strlen(b->json), SIZE_MAX, 0, arena, &m, NULL) == 0) {
                pb_pack(&packed, m);
                str_adds(&line, ",\"packed\":\"");
                base64_write(&line, (const uint8_t *)str_c(&packed), packed.len);
                str_adds(&line, "\"");
        }
        str_adds(&line, "}");
        puts(str_c(&line));
        str_fini(&line);
        str_fini(&packed);
}

int main(int argc, char **argv)
{
        const char *name = argc > 1 ? argv[argc - 1] : "";
        const ProtobufCMessageDescriptor *type = badinput_type(name);
        struct arena arena = ARENA_INIT;
        struct badinput *all;
        struct str text = STR_INIT;

        if (argc == 2 && str_eq(name, "--list")) {
                for (size_t i = 0; (type = badinput_type_at(i)) != NULL; i++)
                        puts(type->short_name);
                return 0;
        }
        if (!type || argc > 3 || (argc == 3 && !str_eq(argv[1], "--example"))) {
                fprintf(stderr, "usage: berth-badinput [--list | [--example] TYPE]\n");
                return 2;
        }
        if (argc == 3) {
                json_write(&text, badinput_example(&arena, type), 0);
                puts(str_c(&text));
        } else {
                size_t n = badinput_make(&arena, type, NULL, &all);
                for (size_t i = 0; i < n; i++)
                        print_variant(type, &all[i], &arena);
        }
        str_fini(&text);
        arena_fini(&arena);
        return 0;
}
