/* model/json_oracle.c: see json_oracle.h. */
#include "model/json_oracle.h"
#include <jansson.h>
#include <stdlib.h>

bool oracle_read(const char *text, size_t len, struct str *out)
{
        json_error_t error;
        json_t *value = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
        char *dump;

        if (!value)
                return false;
        if (!out) {
                json_decref(value);
                return true;
        }
        dump = json_dumps(value, JSON_SORT_KEYS | JSON_COMPACT | JSON_REAL_PRECISION(15));
        str_adds(out, dump ? dump : "");
        free(dump);
        json_decref(value);
        return true;
}
