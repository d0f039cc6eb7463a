/* server/cfssl.h: certificates from CFSSL's authenticated signing API, for clusters whose CA is not
 * berth's. The io thread's.
 *
 * One POST to URL/api/v1/cfssl/authsign per certificate: the request, and its HMAC-SHA256 with the
 * key that `cfssl serve` has in auth_keys. The names are given as hosts: CFSSL makes DNS names of
 * them, also of URIs, so a node is told by its DNS name there (tls.h).
 */
#ifndef BERTH_SERVER_CFSSL_H
#define BERTH_SERVER_CFSSL_H

#include "base/err.h"
#include "base/str.h"

struct event_base;
struct cfssl;

/* Checks the URL and that the key can be read (anew with each request: it may change). */
int cfssl_create(struct event_base *base, const char *url, const char *key_file,
                 const char *profile, struct cfssl **ret, struct err *err);
/* what is under way is dropped: nobody is told. NULL is fine */
void cfssl_destroy(struct cfssl *c);

/* done is called once, from the loop: with the certificate (PEM), or with NULL and why not. At most
 * 64 at a time; 10 s each. */
typedef void (*cfssl_done)(void *io, uint64_t ticket, const char *cert, const struct err *err);
int cfssl_sign(struct cfssl *c, const char *request, const char *const *hosts, size_t n_hosts,
               uint64_t ticket, cfssl_done done, void *io, struct err *err);

/* The body of the POST, for tests: key is hex. */
int cfssl_body(const char *key, const char *request, const char *const *hosts, size_t n_hosts,
               const char *profile, struct str *out, struct err *err);

#endif
