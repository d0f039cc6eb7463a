/* net/tls.h: TLS contexts from PEM files, their rotation, who the peer is, and a small certificate maker.
 *
 * One `struct tls` is one role (server or client) with one set of files. The same object serves gRPC and HTTP: the protocol
 * (ALPN) is chosen per connection. TLS 1.2 and newer only.
 *
 * Rotation: write the new files (rename over the old ones), then tls_reload(). A new context is built and checked first; only when
 * everything in it fits is it swapped in, for connections made from then on. Connections that run are not touched. On
 * failure the old context stays and the error says why.
 *
 * Thread-safe: any thread may reload while loops take connections from it.
 */
#ifndef BERTH_NET_TLS_H
#define BERTH_NET_TLS_H

#include "base/err.h"
#include "base/str.h"

struct tls;
struct ssl_st;

enum tls_peer {
        TLS_PEER_NONE,     /* server: do not ask for a certificate */
        TLS_PEER_OPTIONAL, /* server: ask; verify when one is given (a bad one is refused) */
        TLS_PEER_REQUIRED, /* server: no connection without one that verifies. Clients always verify the server */
};

struct tls_options {
        const char *cert_file; /* PEM, leaf first, then intermediates; a client without one may leave it NULL */
        const char *key_file;  /* PEM; NULL: in cert_file */
        const char *ca_file;   /* PEM bundle that verifies the peer; client: NULL is the system's bundle */
        enum tls_peer peer;    /* server only */
};

int tls_server_create(const struct tls_options *options, struct tls **ret_tls, struct err *err);
int tls_client_create(const struct tls_options *options, struct tls **ret_tls, struct err *err);
struct tls *tls_ref(struct tls *tls); /* NULL gives NULL */
void tls_unref(struct tls *tls);      /* NULL is fine */
static inline void tls_unrefp(struct tls **tls)
{
        tls_unref(*tls);
}

/* Reads the files again; see above. */
int tls_reload(struct tls *tls, struct err *err);
uint64_t tls_generation(struct tls *tls);   /* 1 at first, one more with each successful reload */
int64_t tls_expires_at_ms(struct tls *tls); /* of our certificate, Unix milliseconds; 0 without one */

/* A connection's SSL object (free with SSL_free, or give it to a bufferevent). alpn: "h2" or "http/1.1"; both sides must agree on
 * it. server_name: client only: the name (or address) that the server's certificate must carry. NULL on failure. */
struct ssl_st *tls_new_ssl(struct tls *tls, const char *alpn, const char *server_name, struct err *err);
/* After the handshake: was this protocol agreed on? */
bool tls_alpn_is(struct ssl_st *ssl, const char *alpn);

/* Who the peer is, by its verified certificate. */
struct tls_identity {
        char *cn;
        char **uris; /* URI SANs, e.g. "spiffe://berth/node/n1" */
        size_t n_uris;
        char **dns; /* DNS SANs */
        size_t n_dns;
};
/* NULL when the peer gave no certificate. */
struct tls_identity *tls_peer_identity(struct ssl_st *ssl);
void tls_identity_free(struct tls_identity *id);

/* --- making certificates (P-256, SHA-256) --- */

struct tls_pair { /* PEM texts */
        struct str cert, key;
};
void tls_pair_fini(struct tls_pair *pair);

struct tls_issue_options {
        const char *cn;
        const char *const *dns; /* NULL-terminated lists; may be NULL */
        const char *const *ips;
        const char *const *uris;
        int64_t valid_ms;          /* 0: one day for a leaf, ten years for a CA. Valid from five minutes ago */
        bool is_client, is_server; /* extended key usage; neither: both */
};
/* A self-signed CA with path length 0. Uses cn and valid_ms. */
int tls_make_ca(const struct tls_issue_options *options, struct tls_pair *ret_pair, struct err *err);
/* A new key and a certificate for it, signed by the CA. */
int tls_issue(const struct tls_pair *ca, const struct tls_issue_options *options, struct tls_pair *ret_pair, struct err *err);

#endif
