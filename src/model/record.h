/* model/record.h: under which keys records stand in a store, and which message each is. Pure.
 *
 * The one table of kinds of records, for the core, which writes and loads them (core/record.h), and
 * for stores whose values people read (store/etcd_codec.h). A new kind is one row in record.c, and
 * its functions in the core.
 *
 * Rows below RECORD_KINDS are records, from which the state is loaded. Those from there to
 * RECORD_VIEWS are views of workloads, which are never read back. The rest are names that are kept
 * for berth: no value is written there.
 */
#ifndef BERTH_MODEL_RECORD_H
#define BERTH_MODEL_RECORD_H

#include "base/macros.h"
#include <protobuf-c/protobuf-c.h>

/* In a batch, records are written in this order. */
enum record {
        RECORD_CLUSTER,
        RECORD_WORKLOAD,
        RECORD_NODE,
        RECORD_TOMBSTONE,
        RECORD_QUOTA,
        RECORD_ALERT,
        RECORD_OUTGOING,
        RECORD_TOKEN,
        RECORD_ADMISSION,
        RECORD_KINDS,
        VIEW_ASSIGNMENT = RECORD_KINDS,
        VIEW_RETRY,
        VIEW_RECONCILIATION,
        RECORD_VIEWS
};

struct record_row {
        const char *prefix; /* of its keys: begins and ends with '/' */
        /* there is one record, of this name; what else has the prefix is the store's */
        const char *only;
        const ProtobufCMessageDescriptor *type; /* NULL: kept for berth */
};
extern const struct record_row record_rows[];
extern const size_t n_record_rows;

#endif
