/* model/selector.h: label selectors: `k=v`, `k==v`, `k!=v`, `k`, `!k`, `k in (a,b)`, `k notin
 * (a,b)`, joined by commas, all of which must hold.
 *
 * As in Kubernetes, `k!=v` and `k notin (...)` also hold for what has no label k. The empty
 * selector matches everything. Pure.
 */
#ifndef BERTH_MODEL_SELECTOR_H
#define BERTH_MODEL_SELECTOR_H

#include "base/arena.h"
#include "base/err.h"

#define SELECTOR_MAX_BYTES 4096
#define SELECTOR_MAX_TERMS 64

enum selector_op { SELECTOR_IN, SELECTOR_NOT_IN, SELECTOR_EXISTS, SELECTOR_NOT_EXISTS };
struct selector_term {
        enum selector_op op;
        const char *key;
        const char **values;
        size_t n_values;
};
struct selector {
        struct selector_term *terms;
        size_t n_terms;
};

/* text NULL or "" gives the selector that matches everything. The terms live in the arena.
 * ERR_INVALID says at which character. */
int selector_parse(struct arena *arena, const char *text, struct selector *ret, struct err *err);

/* selector_match(&sel, w->labels, w->n_labels): entries as in model/pb.h. */
bool selector_match(const struct selector *s, const void *entries, size_t n_entries);

#endif
