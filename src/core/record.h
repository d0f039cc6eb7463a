/* core/record.h: kinds of records: what the state is written down as, and read back from.
 *
 *   /meta/cluster  /nodes/<id>  /workloads/<id>  /tombstones/<node>/<workload>  /quotas/<tenant>
 *   /alerts/<rule>/<node|workload>/<id>  /outbox/<id>  /tokens/<name>  /admissions/<node>
 *
 * Each kind is a table of slots in the core's state; a record's key is its kind's prefix and a
 * name. A new kind is one row in model/record.c, one in record.c, and one file that defines its
 * struct record_kind.
 *
 * A record is written from the state when a batch is cut, once however often it changed. For stores
 * that people read by hand (core_options.index_records) some kinds have views beside them, which
 * are never read back: /nodes/<id>/status (a bare word), /assignments/<id>, /retries/<id>,
 * /reconciliation/<id>.
 */
#ifndef BERTH_CORE_RECORD_H
#define BERTH_CORE_RECORD_H

#include "base/arena.h"
#include "core/core.h"
#include "model/record.h"

struct record_kind {
        size_t table, size, unsaved; /* RECORD_TABLE(): where its slots are, and in each its mark */
        /* The name of what is in this slot; in a, or where it stands. NULL: no record is to be
         * there. */
        const char *(*name)(const struct core *c, uint32_t slot, struct arena *a);
        uint32_t (*find)(const struct core *c, const char *name); /* NONE: there is none */
        void *(*pack)(struct core *c, uint32_t slot, struct arena *a, size_t *ret_len);
        /* Records come in any order. Gives why this one makes no sense, and changes nothing then;
         * NULL: it was taken. */
        const char *(*load)(struct core *c, const char *name, const ProtobufCMessage *m);
        void (*saved)(struct core *c, uint32_t slot); /* it was written, or is gone; may be NULL */
        /* Somebody changed it in the store by hand: writes it again. NULL: it is left as it is. */
        void (*put_back)(struct core *c, uint32_t slot);
        /* Writes or removes what stands beside it; slot NONE: the record is gone. May be NULL. */
        void (*views)(struct core *c, const char *name, uint32_t slot, struct arena *a,
                      struct store_record **at);
        unsigned n_views;
};

/* An ARRAY(type) in struct core; type has a `bool unsaved`. */
#define RECORD_TABLE(array, type)                                                                  \
        .table = offsetof(struct core, array), .size = sizeof(type),                               \
        .unsaved = offsetof(type, unsaved)

/* At most so many records for one slot: itself, and its views. */
#define RECORDS_PER_SLOT 4

extern const struct record_kind cluster_records, workload_records, node_records, tombstone_records,
    quota_records, alert_records, outgoing_records, token_records, admission_records;

const struct record_kind *record_kind(enum record kind);

/* It has changed, and is written with this batch. ops, bytes: what that adds to the batch, as far
 * as it is known before the record is made; a store takes so much in one commit and no more. */
void record_changed(struct core *c, enum record kind, uint32_t slot, size_t ops, size_t bytes);
void record_removed(struct core *c, enum record kind, const char *name);
void cluster_changed(struct core *c); /* the one of RECORD_CLUSTER */
/* Of a record's or a view's key: its kind and its name. RECORD_KINDS: no kind has such a key. */
enum record record_of_key(struct core *c, const char *key, const char **ret_name);

struct core_out;
void records_collect(struct core *c, struct core_out *out, struct store_record **ret,
                     size_t *ret_n);

/* For views: adds a record to what is written; data NULL: removes it. */
void record_put(struct store_record **at, const char *key, void *data, size_t len);
char *record_key(struct arena *a, const char *prefix, const char *name);
size_t text_bytes(const char *text);

#endif
