/* model/yaml_tree.h: one YAML document as a small tree, for formats that are not ours (Compose,
 * Kubernetes). Private to model/.
 *
 * The caps of manifest.h; anchors, aliases, tags, merge keys and duplicate keys are refused.
 * Everything is in the arena.
 */
#ifndef BERTH_MODEL_YAML_TREE_H
#define BERTH_MODEL_YAML_TREE_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"

enum yaml_kind { YAML_TEXT, YAML_LIST, YAML_MAP };

struct yaml_node {
        enum yaml_kind kind;
        bool plain;       /* text without quotes: may be a number, true, null */
        unsigned line;    /* from 1 */
        const char *text; /* YAML_TEXT */
        const char *key;  /* of this member of a map; NULL in lists and at the root */
        struct yaml_node *up;
        size_t index;          /* in a list */
        struct yaml_node **at; /* YAML_LIST, YAML_MAP */
        size_t n;
};

/* name and first_line are for messages: the line of the text's first line in its file. An empty
 * document is an error. */
int yaml_tree_read(const char *name, unsigned first_line, const char *text, size_t len,
                   struct arena *arena, struct yaml_node **ret, struct err *err);

/* NULL: absent, or no map */
struct yaml_node *yaml_get(const struct yaml_node *map, const char *key);
bool yaml_is_null(const struct yaml_node *n); /* NULL counts */
/* "name:line: path: what"; the path also in err->path. Returns -ERR_INVALID. */
int yaml_fail(const char *name, const struct yaml_node *at, const char *what, const char *hint,
              struct err *err);
/* As JSON: plain numbers, true, false and null stay what they are, all other text becomes
 * strings. */
void yaml_write_json(const struct yaml_node *n, struct str *out);

#endif
