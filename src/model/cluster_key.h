/* model/cluster_key.h: the cluster's key, one file on every server of it (A13).
 *
 *      <data>/cluster.key, mode 0600:
 *              key HEX              32 bytes: the key
 *              previous HEX         the one before a rotation; what was made with it is still
 *                                   accepted
 *              replaces FINGERPRINT the one before was lost, and an operator said so
 *
 * Nothing is made with the key itself: keys for a purpose are derived from it (HKDF-SHA256), so
 * that none of them tells anything about the others. Its fingerprint is such a derivation too, and
 * may be shown to anybody: it is in /meta/cluster and tells a server whether it has the key of this
 * cluster. The key is in no store, no event and no backup.
 */
#ifndef BERTH_MODEL_CLUSTER_KEY_H
#define BERTH_MODEL_CLUSTER_KEY_H

#include "base/err.h"
#include "base/str.h"
#include "model/warrant.h"

#define CLUSTER_KEY_FILE "cluster.key"
#define CLUSTER_KEY_BYTES 32
#define CLUSTER_KEY_FINGERPRINT 32 /* hex digits */
#define CLUSTER_KEY_MAX_BYTES 4096 /* of the file */

struct cluster_key {
        uint8_t key[CLUSTER_KEY_BYTES], previous[CLUSTER_KEY_BYTES];
        bool has_previous;
        char fingerprint[CLUSTER_KEY_FINGERPRINT + 1];
        /* Of the key before this one, if it is here or was given up; else "". */
        char before[CLUSTER_KEY_FINGERPRINT + 1];
};

/* From the file's text, and back. ERR_INVALID says which line is wrong, and never what stands
 * there. */
int cluster_key_parse(const char *text, size_t len, struct cluster_key *ret, struct err *err);
void cluster_key_text(const struct cluster_key *k, struct str *out);
bool cluster_key_fingerprint_is_sane(const char *fingerprint);

/* Reads DIR/cluster.key. ERR_NOT_FOUND: there is none. ERR_DENIED: others than its owner may read
 * or change it. */
int cluster_key_load(const char *dir, struct cluster_key *ret, struct err *err);
int cluster_key_load_file(const char *path, struct cluster_key *ret, struct err *err);
/* Durable when it returns; replaces what is there. */
int cluster_key_save(const char *dir, const struct cluster_key *k, struct err *err);

/* A new one. before: the one that it takes the place of, or NULL. replaces: the fingerprint of one
 * that is lost, or NULL. */
int cluster_key_make(const struct cluster_key *before, const char *replaces,
                     struct cluster_key *ret, struct err *err);
/* Is it the key of a cluster with this fingerprint, or the one that follows it? "" fits every
 * key. */
bool cluster_key_fits(const struct cluster_key *k, const char *fingerprint);

/* The keys for warrants. */
int cluster_key_warrants(const struct cluster_key *k, struct warrant_keys *ret, struct err *err);
void cluster_key_wipe(struct cluster_key *k);

#endif
