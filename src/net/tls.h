/* net/tls.h: TLS contexts from PEM files, their rotation, who the peer is, and a small certificate
 * maker.
 *
 * One `struct tls` is one role (server or client) with one set of files. The same object serves
 * gRPC and HTTP: the protocol (ALPN) is chosen per connection. TLS 1.2 and newer only.
 *
 * Rotation: write the new files (rename over the old ones), then tls_reload(). A new context is
 * built and checked first; only when everything in it fits is it swapped in, for connections made
 * from then on. Connections that run are not touched. On failure the old context stays and the
 * error says why.
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
        /* server: no connection without one that verifies. Clients always verify the server */
        TLS_PEER_REQUIRED,
};

struct tls_options {
        /* PEM, leaf first, then intermediates; a client without one may leave it NULL */
        const char *cert_file;
        const char *key_file; /* PEM; NULL: in cert_file */
        /* PEM bundle that verifies the peer; client: NULL is the system's bundle */
        const char *ca_file;
        enum tls_peer peer; /* server only */
        /* client: do not verify the server. Only to ask for what is then checked by other means */
        bool any_server;
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
/* The same if one of the files is another one than at the last try. 1: new ones are in use, 0:
 * nothing has changed. */
int tls_reload_if_changed(struct tls *tls, struct err *err);
uint64_t tls_generation(struct tls *tls); /* 1 at first, one more with each successful reload */
/* of our certificate, Unix milliseconds; 0 without one */
int64_t tls_expires_at_ms(struct tls *tls);
int64_t tls_begins_at_ms(struct tls *tls); /* the other end of its life */
/* When the first of the certificates in ca_file expires; 0 without a file. */
int64_t tls_trust_expires_at_ms(struct tls *tls);
/* Less than a third of our certificate's life is left: time to say so. */
bool tls_is_due(struct tls *tls, int64_t now_ms);

/* Why a peer was not let in. The words of tls_refusal_name() are the values of the metric's
 * label. */
enum tls_refusal {
        TLS_REFUSED_NO_CERTIFICATE, /* none was shown where one is required */
        TLS_REFUSED_UNKNOWN_CA,     /* not signed by a CA that we trust */
        TLS_REFUSED_EXPIRED,        /* or not valid yet */
        TLS_REFUSED_BAD,            /* does not verify for another reason */
        TLS_REFUSED_PROTOCOL,       /* no TLS, or no version, cipher or protocol in common */
        /* verifies, and is not that of the node that the peer says it is */
        TLS_REFUSED_WRONG_NODE,
        _TLS_REFUSED_MAX
};
const char *tls_refusal_name(enum tls_refusal reason);
/* A handshake on a server's connection failed: counts and logs it (at most ten lines a second;
 * subject and peer, never key material). error: the OpenSSL error. What the peer refused (an alert
 * of its own) or just left is not counted. */
void tls_handshake_failed(struct ssl_st *ssl, unsigned long error, const char *peer);
void tls_count_refused(struct tls *tls, enum tls_refusal reason);
uint64_t tls_refused(struct tls *tls, enum tls_refusal reason);

/* A connection's SSL object (free with SSL_free, or give it to a bufferevent). alpn: "h2" or
 * "http/1.1"; both sides must agree on it. server_name: client only: the name (or address) that the
 * server's certificate must carry. NULL on failure. */
struct ssl_st *tls_new_ssl(struct tls *tls, const char *alpn, const char *server_name,
                           struct err *err);
/* Gives it the socket, which stays the caller's. To be called before a bufferevent is made of it:
 * libevent would do it itself, but goes on without a socket when there is no memory, and the peer
 * would wait in vain. ERR_NOMEM. */
int tls_attach(struct ssl_st *ssl, int fd, struct err *err);
/* After the handshake: was this protocol agreed on? */
bool tls_alpn_is(struct ssl_st *ssl, const char *alpn);

/* Who the peer is, by its verified certificate. */
struct tls_identity {
        char *cn;
        char **uris; /* URI SANs, e.g. "spiffe://berth/node/n1" */
        size_t n_uris;
        char **dns; /* DNS SANs */
        size_t n_dns;
        int64_t expires_at_ms;
        char key[65]; /* SHA-256 of the public key, hex: the same as tls_request_key() gives */
};
/* NULL when the peer gave no certificate. */
struct tls_identity *tls_peer_identity(struct ssl_st *ssl);
void tls_identity_free(struct tls_identity *id);

/* ---- reading certificates (tls_cert.c) ---- */

/* What a certificate says. Lists end with NULL, so that they can be given to tls_issue() as they
 * are. */
struct tls_cert {
        char *cn, *issuer;
        char serial[48], fingerprint[72]; /* hex; "sha256:..." of the whole certificate (DER) */
        char **dns, **ips, **uris;
        int64_t begins_at_ms, expires_at_ms;
        bool is_ca, is_client, is_server;
};
/* The first certificate of a PEM text. ERR_INVALID when there is none. */
int tls_cert_read(const char *pem, size_t len, struct tls_cert *ret_cert, struct err *err);
void tls_cert_fini(struct tls_cert *cert);
/* Each certificate of a PEM text in turn, and nothing else that may be in it (keys): fn < 0 ends
 * it. 0, or what fn gave. */
int tls_each_cert(const char *pem, size_t len,
                  int (*fn)(void *ctx, const struct str *cert, const struct tls_cert *facts),
                  void *ctx);
/* Was `cert` signed by `ca` (both PEM)? Times are not looked at. ERR_DENIED: no. */
int tls_cert_check_signed(const struct str *cert, const struct str *ca, struct err *err);

bool tls_is_address(const char *text); /* IPv4 or IPv6, as it may stand in a certificate */

/* Berth's own names: "spiffe://berth/node/n1", "spiffe://berth/user/ann",
 * "spiffe://berth/server/s1". */
#define TLS_URI_PREFIX "spiffe://berth/"
/* Is this the certificate of node `id`? It is when a URI name says so. A certificate without any
 * name of berth's (one made by another tool) is the node's when a DNS name is equal to the id. */
bool tls_identity_is_node(const struct tls_identity *who, const char *id);
/* May the holder give orders to agents? It may when a URI name says that it is a server, and when
 * it has no name of berth's at all: other schedulers are told apart by their CA alone. */
bool tls_identity_is_server(const struct tls_identity *who);
/* NAME of a name "spiffe://berth/KIND/NAME"; NULL: it has none. */
const char *tls_identity_name(const struct tls_identity *who, const char *kind);
/* Who does what this connection asks for, as events name it: "ann", "node:n1", "server:s1", else
 * the common name; at most 64 bytes. Valid as fmt()'s result; who is not NULL. */
const char *tls_identity_actor(const struct tls_identity *who);
/* "node n1", "user ann", else the common name: for logs. Valid as fmt()'s result. */
const char *tls_identity_words(const struct tls_identity *who);

/* ---- making certificates (P-256, SHA-256) ---- */

struct tls_pair { /* PEM texts */
        struct str cert, key;
};
void tls_pair_fini(struct tls_pair *pair);

struct tls_issue_options {
        const char *cn;
        const char *const *dns; /* NULL-terminated lists; may be NULL */
        const char *const *ips;
        const char *const *uris;
        /* 0: one day for a leaf, ten years for a CA; negative: it has expired. Valid from five
         * minutes ago */
        int64_t valid_ms;
        bool is_client, is_server; /* extended key usage; neither: both */
        const struct str *key;     /* PEM: keep this key instead of making one */
};
/* A self-signed CA with path length 0. Uses cn and valid_ms. */
int tls_make_ca(const struct tls_issue_options *options, struct tls_pair *ret_pair,
                struct err *err);
/* ---- certificates for keys that stay where they are ---- */

int tls_make_key(struct str *ret_key, struct err *err); /* PEM */
/* A certificate request (PEM) for this key. Its name is for people: whoever signs decides on the
 * names. */
int tls_make_request(const struct str *key, const char *cn, struct str *ret_request,
                     struct err *err);
/* The SHA-256 of the public key, as hex. ERR_INVALID: it is no request, is not signed with its own
 * key, or the key is none of P-256, Ed25519 and RSA-3072 with exponent 65537. */
int tls_request_key(const char *request, char ret_hash[static 65], struct err *err);
/* Signs it with the names and the life of the options; what names the request has means nothing. */
int tls_sign_request(const struct tls_pair *ca, const char *request,
                     const struct tls_issue_options *options, struct str *ret_cert,
                     struct err *err);

/* A new key and a certificate for it, signed by the CA. */
int tls_issue(const struct tls_pair *ca, const struct tls_issue_options *options,
              struct tls_pair *ret_pair, struct err *err);

#endif
