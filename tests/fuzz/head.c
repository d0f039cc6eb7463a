/* Any bytes as the head of an HTTP request: refused with a status and a sentence, or one whose
 * parts are clean. */
#include "base/str.h"
#include "net/http_parse.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must_be(bool holds, const char *what)
{
        if (!holds) {
                fprintf(stderr, "%s does not hold\n", what);
                abort();
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct http_head head = { 0 };
        const char *why = NULL;
        int status = http_head_parse(&head, (const char *)data, size, &why);

        if (status) {
                must_be(status >= 400 && status < 600, "a refusal has a status");
                must_be(why && why[0], "a refusal has a reason");
        } else if (size > 0 && head.path) {
                must_be(str_is_utf8(head.path, strlen(head.path)), "the path is text");
                for (size_t i = 0; i < head.n_segments; i++)
                        must_be(strcmp(head.segments[i], "..") != 0, "no segment goes up");
                must_be(!(head.is_chunked && head.content_length >= 0),
                        "one way to know the length");
        }
        http_head_fini(&head);
        return 0;
}
