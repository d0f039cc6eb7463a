/* tests/fuzz/fuzz.h: what the fuzz targets share. Each target is one function over bytes; besides the sanitizers' own findings it checks a property
 * with MUST(), whose failure is a crash with a message. */
#ifndef BERTH_TESTS_FUZZ_H
#define BERTH_TESTS_FUZZ_H

#include "api.pb-c.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "model/canon.h"
#include "model/json.h"
#include "model/manifest.h"
#include "model/pb.h"
#include "model/selector.h"
#include "model/validate.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(condition, ...)                                                                                                               \
        do {                                                                                                                               \
                if (!(condition)) {                                                                                                        \
                        fprintf(stderr, "%s:%d: %s does not hold: ", __FILE__, __LINE__, #condition);                                      \
                        fprintf(stderr, __VA_ARGS__);                                                                                      \
                        fputc('\n', stderr);                                                                                               \
                        abort();                                                                                                           \
                }                                                                                                                          \
        } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An error is never empty: a caller could not act on it. */
static inline void must_explain(const struct err *err)
{
        MUST(err->code != ERR_OK, "failed without a code");
        MUST(err->msg[0] != 0, "failed without a message");
}

#endif
