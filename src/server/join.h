/* server/join.h: how a machine becomes a node: a certificate for its own key, once by a join token,
 * and then by the certificate that it has (C32). The io thread's.
 *
 *      JoinNode           secret, node id, request  --> the core decides (once, also over restarts)
 *                         --> signed
 *      RenewCertificate   request, by TLS with the node's certificate --> the core knows the node
 *                         --> signed
 *      GetTrust           the CAs, for everybody: they are no secret
 *
 * Who signs: berth's own CA in a directory (read anew each time: a rotated CA needs no restart), or
 * CFSSL. The names in the certificate are decided here and never taken from the request.
 */
#ifndef BERTH_SERVER_JOIN_H
#define BERTH_SERVER_JOIN_H

#include "base/err.h"
#include "base/str.h"

struct io;
struct call;
struct join;
struct reply;
struct joining;

/* Checks what the options name. */
int join_create(struct io *io, struct join **ret, struct err *err);
void join_destroy(struct join *j); /* NULL is fine */

/* What a newcomer is told of the CA that vouches for this server: the hash of its certificate
 * (hex). ERR_FAILED: nobody could join, and why. */
int join_ca_hash(struct join *j, char ret_hash[static 65], struct err *err);
/* OP_TRUST: answers. */
void join_trust(struct join *j, struct call *call);
/* OP_JOIN, OP_RENEW: looks at the request and makes it the core's input. */
int join_begin(struct join *j, struct call *call, struct err *err);
/* The core's word: signs, and answers now or later. */
void join_reply(struct join *j, struct call *call, const struct reply *reply);
void joining_free(struct joining *g); /* what a call keeps meanwhile; NULL is fine */

#endif
