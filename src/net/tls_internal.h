/* net/tls_internal.h: what tls.c and tls_cert.c share: reading pieces of a certificate. */
#ifndef BERTH_NET_TLS_INTERNAL_H
#define BERTH_NET_TLS_INTERNAL_H

#include "net/tls.h"
#include <openssl/x509.h>

#define TLS_SANS_MAX 64 /* more names of one certificate are not looked at */

/* A copy, or NULL when it is empty or holds a NUL: that would make "a\0.evil" look like "a" to
 * whoever compares C strings. */
char *tls_asn1_text(const ASN1_STRING *s);
/* Takes over name (NULL: does nothing). The list always ends with NULL. */
void tls_add_name(char ***list, size_t *n, char *name);
/* The SHA-256 of a public key (DER), as hex. False: it cannot be had. */
bool tls_key_hash(EVP_PKEY *key, char ret_hash[static 65]);
int64_t tls_time_ms(const ASN1_TIME *t); /* 0: not a time */

#endif
