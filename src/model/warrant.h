/* model/warrant.h: proof that this cluster told a node to run a unit (A13).
 *
 * What the server gives an agent carries a warrant: a MAC with a key of the cluster over a version
 * word, the cluster, the unit, the node, the token and the definition, byte for byte as it was
 * sent. The agent cannot make one and keeps it unread. When it later says what it runs, and the
 * records do not know it (a restore, a forgotten node), the warrant tells what was ordered there
 * from what a compromised node made up.
 *
 * What a warrant does not prove: that the order still stands. An older one of the same unit stays
 * valid for ever, which is why of two the greater token wins (core/adopt.c).
 *
 * Pure: the key is given, and nothing is read or written. One thread per struct warrants.
 */
#ifndef BERTH_MODEL_WARRANT_H
#define BERTH_MODEL_WARRANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WARRANT_BYTES 32
#define WARRANT_KEY_BYTES 32
/* of what is kept and returned as a warrant: a later version may be longer */
#define WARRANT_MAX_BYTES 64

/* The keys of a cluster, derived from its file (model/cluster_key.h). All zero: there are none. */
struct warrant_keys {
        bool has, has_previous;
        uint8_t key[WARRANT_KEY_BYTES]; /* what is made is made with this one */
        /* and this one is accepted as well, after a rotation */
        uint8_t previous[WARRANT_KEY_BYTES];
};

struct warrant_facts {
        const char *cluster_id, *unit_id, *node_id;
        uint64_t epoch, seq;    /* the token */
        const void *definition; /* as sent: packed Pb__Workload */
        size_t definition_len;
};

struct warrants;

/* NULL: there are no keys, or OpenSSL has no memory. Then none is made, and none is valid. */
struct warrants *warrants_create(const struct warrant_keys *keys);
void warrants_destroy(struct warrants *w); /* NULL is fine */

/* false: none can be made (w is NULL, a text is too long, no memory); ret is not set then. */
bool warrant_make(struct warrants *w, const struct warrant_facts *facts,
                  uint8_t ret[WARRANT_BYTES]);
/* Made with one of the keys, over exactly these facts. In constant time. */
bool warrant_is_valid(struct warrants *w, const struct warrant_facts *facts, const void *warrant,
                      size_t len);

#endif
