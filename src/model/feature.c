/* model/feature.c: see feature.h. */
#include "model/feature.h"
#include "base/commit.h"
#include <string.h>

const char *const feature_names[FEATURES] = {
        [FEATURE_ADMISSIONS] = "admissions",
        [FEATURE_PROCESS_CAPABILITIES] = "process-capabilities",
};

uint32_t features_parse(char *const *names, size_t n)
{
        uint32_t bits = 0;
        for (size_t i = 0; i < n; i++)
                for (int f = 0; f < FEATURES; f++)
                        if (strcmp(names[i], feature_names[f]) == 0)
                                bits |= FEATURE_BIT(f);
        return bits;
}

size_t features_list(uint32_t bits, char *ret[FEATURES])
{
        size_t n = 0;
        for (int f = 0; f < FEATURES; f++)
                if (bits & FEATURE_BIT(f))
                        ret[n++] = (char *)feature_names[f];
        return n;
}

int feature_schema(enum feature f)
{
        return f == FEATURE_ADMISSIONS ? 2 : STORE_SCHEMA_FIRST;
}

uint32_t features_needed(const Pb__Workload *w)
{
        bool capabilities =
            w->type == PB__WORKLOAD_TYPE__E__process && w->spec && w->spec->n_capabilities;
        return capabilities ? FEATURE_BIT(FEATURE_PROCESS_CAPABILITIES) : 0;
}
