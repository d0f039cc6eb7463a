/* The file with the cluster's key (model/cluster_key.h), which people copy by hand; and a warrant's
 * bytes, which agents return. Refused with a message that never shows the key, or read back as it
 * was written. */
#include "fuzz.h"
#include "model/cluster_key.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct cluster_key k, again;
        struct warrant_keys keys;
        struct err err = { 0 };
        if (cluster_key_parse((const char *)data, size, &k, &err) < 0) {
                must_explain(&err);
                return 0;
        }
        struct str text = STR_INIT;
        cluster_key_text(&k, &text);
        MUST(cluster_key_parse(str_c(&text), text.len, &again, &err) == 0 &&
                 memcmp(&k, &again, sizeof(k)) == 0,
             "%s", str_c(&text));
        MUST(cluster_key_fits(&k, k.fingerprint) && cluster_key_fits(&k, "") &&
                 (!k.before[0] || cluster_key_fits(&k, k.before)),
             "it fits itself");
        str_fini(&text);
        MUST(cluster_key_warrants(&k, &keys, &err) == 0, "%s", err_line(&err));
        struct warrants *w = warrants_create(&keys);
        struct warrant_facts facts = { "c", "u", "n", 1, 2, data, size };
        uint8_t made[WARRANT_BYTES];
        MUST(warrant_make(w, &facts, made) && warrant_is_valid(w, &facts, made, sizeof(made)),
             "its own warrant is valid");
        MUST(!warrant_is_valid(w, &facts, data, size), "what was not made with the key is not");
        warrants_destroy(w);
        return 0;
}
