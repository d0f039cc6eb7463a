/* model/path.h: where in a message we are, as users write it: "spec.command[0]", "labels.zone",
 * "labels["a b"]".
 *
 * A path is a chain of steps on the stack of whoever descends; it costs nothing until an error
 * makes it into text.
 */
#ifndef BERTH_MODEL_PATH_H
#define BERTH_MODEL_PATH_H

#include "base/macros.h"

#define PATH_TEXT_LEN 128 /* as err.path */

struct path_step {
        const struct path_step *up; /* NULL: the top */
        /* a field's name or a map's key, key_len bytes; NULL: index counts */
        const char *name;
        size_t name_len;
        size_t index;
};

/* The text of the path that ends with this step; "" for NULL. Longer ones are cut at the end. Never
 * more than printable ASCII and UTF-8. */
const char *path_text(const struct path_step *step, char buf[PATH_TEXT_LEN]);

#endif
