/* base/commit.h: what a commit is made of. Plain types, so that the core can fill them without
 * knowing any store. */
#ifndef BERTH_BASE_COMMIT_H
#define BERTH_BASE_COMMIT_H

#include "base/macros.h"

/* The schema of a store says who may open it: a berth refuses one that is larger than it knows. A
 * new store has the first one; it grows with the first use of what older servers would misread
 * (model/feature.h). */
#define STORE_SCHEMA_FIRST 1
#define STORE_SCHEMA 2 /* the largest that this berth knows */

struct store_event {
        uint64_t seq;
        const void *data;
        size_t len;
};
struct store_record {
        const char *key;
        const void *data;
        size_t len;
}; /* data NULL: remove */
struct store_batch {
        uint64_t expected_head, new_head;
        const struct store_event *events;
        size_t n_events;
        const struct store_record *records; /* no key twice */
        size_t n_records;
        int schema; /* the store's grows to this; 0: it stays */
};

#endif
