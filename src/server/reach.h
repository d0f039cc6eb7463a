/* server/reach.h: whom this server calls because a caller said so, and under which names it
 * answers.
 *
 * Both are lists, made once at the start from the configuration: what is not on them is refused
 * with a sentence that names the key to change.
 *
 *      agents      RegisterNode makes the server call an address. It may be the caller's own, or
 *                  one of agent_networks; never link-local, multicast or unspecified, whatever is
 *                  configured: there are metadata services and neighbours. Names are looked at
 *                  again when they have been resolved.
 *      hosts       A page whose name was made to point here is of one origin with us, for the
 *                  browser. So only these names are answered: addresses, names without a dot, what
 *                  is below localhost, the machine's own name, those of advertise_http, http and
 *                  the certificate, and allowed_hosts ("*": every one).
 */
#ifndef BERTH_SERVER_REACH_H
#define BERTH_SERVER_REACH_H

#include "base/err.h"
#include <sys/socket.h>

struct reach;
struct server_options;

int reach_create(const struct server_options *opt, struct reach **ret, struct err *err);
void reach_destroy(struct reach *r); /* NULL is fine */

/* caller: the address that asked for it, without its port. */
bool reach_may_dial(const struct reach *r, const char *caller, const struct sockaddr *sa);
/* The same of "host:port", as far as it can be told before a name is resolved. ERR_DENIED. */
int reach_check_endpoint(const struct reach *r, const char *caller, const char *endpoint,
                         struct err *err);

/* A Host header; NULL (HTTP/1.0) is fine. */
bool reach_answers(const struct reach *r, const char *host);

#endif
