/* Any bytes as a manifest: refused with a message, or read such that its YAML form reads back as
 * the same workload. */
#include "fuzz.h"
#include "model/powers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct arena arena = ARENA_INIT;
        struct err err = { 0 };
        struct manifest manifest = { 0 };

        if (manifest_read("fuzz", (const char *)data, size, &arena, &manifest, &err) < 0) {
                must_explain(&err);
        } else {
                for (size_t i = 0; i < manifest.n_items && i < 16; i++) {
                        struct str text = STR_INIT;
                        struct manifest again = { 0 };
                        struct powers powers;
                        powers_of(&arena, manifest.items[i].workload, &powers);
                        yaml_write(&text, &manifest.items[i].workload->base);
                        if (manifest_read("again", str_c(&text), text.len, &arena, &again, &err) <
                            0)
                                MUST(text.len > MANIFEST_MAX_BYTES / 2, "%s: %s", err_line(&err),
                                     str_c(&text));
                        else if (again.n_items == 1)
                                MUST(pb_equal(&manifest.items[i].workload->base,
                                              &again.items[0].workload->base),
                                     "%s", str_c(&text));
                        str_fini(&text);
                }
        }
        arena_fini(&arena);
        return 0;
}
