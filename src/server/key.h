/* server/key.h: the cluster's key on this server (A13): which it is, and whether this server may
 * lead with it.
 *
 * The key is DIR/cluster.key (model/cluster_key.h). The first leader of a cluster makes it; the
 * other servers are given the same file by hand, as with the CA's key. Its fingerprint is in
 * /meta/cluster. A server with another key, or with none, follows: what it sent as a leader would
 * have no warrant, or one that the others refuse. The file is looked at whenever this server could
 * lead, so a key that is copied there later needs no restart.
 */
#ifndef BERTH_SERVER_KEY_H
#define BERTH_SERVER_KEY_H

#include "base/err.h"
#include <stdbool.h>

struct server;

/* Before the core decides: takes the key of the cluster with this fingerprint into opt.core. "":
 * the cluster has none yet, and one is made if there is no file. The thread that is about to start
 * the core, while no other reads opt.core. */
int key_take(struct server *s, const char *fingerprint, struct err *err);
/* The store thread, before it commits: a key that was made when there was no room for its file is
 * written now. Negative: there is none yet, and nothing may be committed: the next start would not
 * have the key that the records name. */
int key_save(struct server *s, struct err *err);
void key_forget_unsaved(struct server *s);
/* The store thread of a server that follows: is there a key to lead with, as far as is known? What
 * is wrong is in the log, once, and in key_trouble(). */
bool key_lets_lead(struct server *s);
/* The ring: this is the cluster's fingerprint, as of what was folded. */
void key_publish(struct server *s, const char *fingerprint);

/* Any thread; into buf: why this server does not lead, "" if its key is not why; and the
 * fingerprint of its own key, or "". */
const char *key_trouble(struct server *s, char *buf, size_t size);
const char *key_own_fingerprint(struct server *s, char *buf, size_t size);

#endif
