/* net/tls.c: contexts, their rotation, and the peer's identity. See tls.h; certificates are made in
 * tls_make.c.
 *
 * Invariants:
 *   (1) tls->ctx is always a complete context whose key fits its certificate: a new one replaces it
 *       only after all checks.
 *   (2) ctx, generation and the times are read and written under the lock; a connection holds its
 *       own reference to the context (inside SSL), so a swap never takes it away from under a
 *       handshake.
 */
#include "net/tls.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "net/tls_internal.h"
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#define TOLD_PER_SECOND 10 /* lines about refused connections */

struct tls {
        pthread_mutex_t lock;
        unsigned refs;
        bool is_server;
        enum tls_peer peer;
        bool any_server;
        char *cert_file, *key_file, *ca_file;
        SSL_CTX *ctx;
        uint64_t generation;
        uint64_t stamp; /* of the files, as they were just before they were last read */
        int64_t begins_at_ms, expires_at_ms, trust_expires_at_ms;
        _Atomic uint64_t refused[_TLS_REFUSED_MAX];
        int64_t told_at_ms; /* refusals: the second that is being counted, and its lines */
        unsigned n_told;
};

/* Takes the oldest OpenSSL error (the cause; later ones are its echoes) and empties the queue,
 * which is per thread and would otherwise be read as the failure of somebody else's call. */
static const char *ssl_error_text(void)
{
        unsigned long e = ERR_get_error();
        const char *reason = e ? ERR_reason_error_string(e) : NULL;

        const char *text = fmt("%s", reason ? reason
                                     : e    ? "unknown OpenSSL error"
                                            : "no detail from OpenSSL");
        ERR_clear_error();
        return text;
}

/* ALPN names as length-prefixed strings: a static one per protocol that we speak. */
static const unsigned char *alpn_wire(const char *alpn, unsigned *ret_len)
{
        static const unsigned char h2[] = "\x02h2", http11[] = "\x08http/1.1";

        if (str_eq(alpn, "h2")) {
                *ret_len = sizeof(h2) - 1;
                return h2;
        }
        *ret_len = sizeof(http11) - 1;
        return http11;
}

/* The server's choice: exactly the protocol that this listener speaks, kept as the SSL object's app
 * data. */
static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                   const unsigned char *in, unsigned in_len, void *arg)
{
        (void)arg;
        unsigned want_len;
        const unsigned char *want = alpn_wire(SSL_get_app_data(ssl), &want_len);

        for (unsigned i = 0; i < in_len; i += 1u + in[i])
                if (in[i] == want[0] && i + 1u + in[i] <= in_len &&
                    memcmp(in + i + 1, want + 1, want[0]) == 0) {
                        *out = in + i + 1;
                        *out_len = in[i];
                        return SSL_TLSEXT_ERR_OK;
                }
        return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static int load_own(struct tls *t, SSL_CTX *ctx, struct err *err)
{
        if (!t->cert_file)
                return 0;
        if (SSL_CTX_use_certificate_chain_file(ctx, t->cert_file) != 1)
                return err_set(err, ERR_INVALID, .msg = "the TLS certificate cannot be read",
                               .detail = fmt("%s: %s", t->cert_file, ssl_error_text()),
                               .hint = "it must be a PEM file with the certificate first and its "
                                       "intermediates after it");
        if (SSL_CTX_use_PrivateKey_file(ctx, t->key_file, SSL_FILETYPE_PEM) != 1 ||
            SSL_CTX_check_private_key(ctx) != 1)
                return err_set(
                    err, ERR_INVALID, .msg = "the TLS key cannot be used",
                    .detail = fmt("%s with %s: %s", t->key_file, t->cert_file, ssl_error_text()),
                    .hint = "it must be the unencrypted PEM key that belongs to the certificate");
        return 0;
}

static int load_trust(struct tls *t, SSL_CTX *ctx, struct err *err)
{
        if (t->ca_file) {
                if (SSL_CTX_load_verify_locations(ctx, t->ca_file, NULL) != 1)
                        return err_set(err, ERR_INVALID, .msg = "the CA bundle cannot be read",
                                       .detail = fmt("%s: %s", t->ca_file, ssl_error_text()));
                if (t->is_server) {
                        STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(t->ca_file);
                        if (!names)
                                return err_set(
                                    err, ERR_INVALID, .msg = "the CA bundle cannot be read",
                                    .detail = fmt("%s: %s", t->ca_file, ssl_error_text()));
                        SSL_CTX_set_client_CA_list(ctx, names);
                }
        } else if (!t->is_server && SSL_CTX_set_default_verify_paths(ctx) != 1)
                return err_set(err, ERR_IO, .msg = "the system's CA bundle cannot be read",
                               .detail = ssl_error_text());

        int mode = SSL_VERIFY_PEER;
        if ((t->is_server && t->peer == TLS_PEER_NONE) || t->any_server)
                mode = SSL_VERIFY_NONE;
        else if (t->is_server && t->peer == TLS_PEER_REQUIRED)
                mode |= SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
        SSL_CTX_set_verify(ctx, mode, NULL);
        return 0;
}

/* Of the bundle that has been loaded into ctx. */
static int64_t first_expiry_ms(SSL_CTX *ctx)
{
        STACK_OF(X509_OBJECT) *all = X509_STORE_get0_objects(SSL_CTX_get_cert_store(ctx));
        int64_t first = 0;

        for (int i = 0; i < sk_X509_OBJECT_num(all); i++) {
                X509 *x = X509_OBJECT_get0_X509(sk_X509_OBJECT_value(all, i));
                int64_t at = x ? tls_time_ms(X509_get0_notAfter(x)) : 0;
                if (at && (!first || at < first))
                        first = at;
        }
        return first;
}

static int build(struct tls *t, SSL_CTX **ret_ctx, struct err *err)
{
        ERR_clear_error();
        SSL_CTX *ctx = SSL_CTX_new(t->is_server ? TLS_server_method() : TLS_client_method());
        if (!ctx)
                return err_set(err, ERR_NOMEM, .msg = "no TLS context", .detail = ssl_error_text());
        SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
        /* A peer that closes without close_notify is an end of file: HTTP/2 and HTTP/1.1 frame
         * their own messages. */
        SSL_CTX_set_options(ctx, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION |
                                     SSL_OP_IGNORE_UNEXPECTED_EOF |
                                     SSL_OP_CIPHER_SERVER_PREFERENCE);
        SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
        if (t->is_server) {
                static const unsigned char session_context[] = "berth";
                SSL_CTX_set_session_id_context(ctx, session_context, sizeof(session_context) - 1);
                /* resumption would outlive a rotation, and tickets cost memory per connection */
                SSL_CTX_set_num_tickets(ctx, 0);
                SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
                SSL_CTX_set_alpn_select_cb(ctx, on_alpn, NULL);
        }
        /* whose it is: a server's connections are gone before it lets go of t; a client's may not
         * be */
        if (t->is_server)
                SSL_CTX_set_app_data(ctx, t);
        int r = load_own(t, ctx, err);
        if (r >= 0)
                r = load_trust(t, ctx, err);
        if (r < 0) {
                SSL_CTX_free(ctx);
                return r;
        }
        *ret_ctx = ctx;
        return 0;
}

static int create(const struct tls_options *o, bool is_server, struct tls **ret_tls,
                  struct err *err)
{
        if (is_server && str_empty(o->cert_file))
                return err_set(err, ERR_INVALID, .msg = "a TLS server needs a certificate");
        if (is_server && o->peer != TLS_PEER_NONE && str_empty(o->ca_file))
                return err_set(err, ERR_INVALID,
                               .msg = "client certificates cannot be checked without a CA bundle");

        struct tls *t = mem_must(sizeof(*t));
        pthread_mutex_init(&t->lock, NULL);
        t->refs = 1;
        t->is_server = is_server;
        t->peer = o->peer;
        t->any_server = o->any_server && !is_server;
        t->cert_file = str_empty(o->cert_file) ? NULL : mem_strdup(o->cert_file);
        t->key_file = mem_strdup(str_empty(o->key_file) ? t->cert_file : o->key_file);
        t->ca_file = str_empty(o->ca_file) ? NULL : mem_strdup(o->ca_file);
        int r = tls_reload(t, err);
        if (r < 0) {
                tls_unref(t);
                return r;
        }
        *ret_tls = t;
        return 0;
}

int tls_server_create(const struct tls_options *options, struct tls **ret_tls, struct err *err)
{
        return create(options, true, ret_tls, err);
}

int tls_client_create(const struct tls_options *options, struct tls **ret_tls, struct err *err)
{
        return create(options, false, ret_tls, err);
}

struct tls *tls_ref(struct tls *t)
{
        if (t) {
                pthread_mutex_lock(&t->lock);
                t->refs++;
                pthread_mutex_unlock(&t->lock);
        }
        return t;
}

void tls_unref(struct tls *t)
{
        if (!t)
                return;
        pthread_mutex_lock(&t->lock);
        bool last = --t->refs == 0;
        pthread_mutex_unlock(&t->lock);
        if (!last)
                return;
        SSL_CTX_free(t->ctx);
        mem_free(t->cert_file);
        mem_free(t->key_file);
        mem_free(t->ca_file);
        pthread_mutex_destroy(&t->lock);
        mem_free(t);
}

static uint64_t stamp_add(uint64_t stamp, const char *path)
{
        struct stat st;

        if (path && stat(path, &st) == 0) {
                uint64_t parts[] = { (uint64_t)st.st_mtim.tv_sec, (uint64_t)st.st_mtim.tv_nsec,
                                     st.st_ino, (uint64_t)st.st_size };
                for (size_t i = 0; i < ARRAY_LEN(parts); i++)
                        stamp = (stamp ^ parts[i]) * UINT64_C(0x100000001b3);
        }
        return (stamp ^ 1) * UINT64_C(0x100000001b3);
}

static uint64_t files_stamp(const struct tls *t)
{
        return stamp_add(
            stamp_add(stamp_add(UINT64_C(0xcbf29ce484222325), t->cert_file), t->key_file),
            t->ca_file);
}

int tls_reload_if_changed(struct tls *t, struct err *err)
{
        pthread_mutex_lock(&t->lock);
        bool same = t->stamp == files_stamp(t);
        pthread_mutex_unlock(&t->lock);
        if (same)
                return 0;
        int r = tls_reload(t, err);
        return r < 0 ? r : 1;
}

int tls_reload(struct tls *t, struct err *err)
{
        SSL_CTX *fresh = NULL, *old;
        /* before they are read: what changes meanwhile is seen by the next look */
        uint64_t stamp = files_stamp(t);

        pthread_mutex_lock(&t->lock);
        t->stamp = stamp;
        pthread_mutex_unlock(&t->lock);
        int r = build(t, &fresh, err);
        if (r < 0)
                return r;
        const X509 *own = SSL_CTX_get0_certificate(fresh);
        int64_t trust = t->ca_file ? first_expiry_ms(fresh) : 0;

        pthread_mutex_lock(&t->lock);
        old = t->ctx;
        t->ctx = fresh;
        t->generation++;
        t->begins_at_ms = own ? tls_time_ms(X509_get0_notBefore(own)) : 0;
        t->expires_at_ms = own ? tls_time_ms(X509_get0_notAfter(own)) : 0;
        t->trust_expires_at_ms = trust;
        pthread_mutex_unlock(&t->lock);
        SSL_CTX_free(old);
        return 0;
}

uint64_t tls_generation(struct tls *t)
{
        pthread_mutex_lock(&t->lock);
        uint64_t g = t->generation;
        pthread_mutex_unlock(&t->lock);
        return g;
}

static int64_t read_locked(struct tls *t, const int64_t *field)
{
        pthread_mutex_lock(&t->lock);
        int64_t value = *field;
        pthread_mutex_unlock(&t->lock);
        return value;
}

int64_t tls_expires_at_ms(struct tls *t)
{
        return read_locked(t, &t->expires_at_ms);
}

int64_t tls_begins_at_ms(struct tls *t)
{
        return read_locked(t, &t->begins_at_ms);
}

int64_t tls_trust_expires_at_ms(struct tls *t)
{
        return read_locked(t, &t->trust_expires_at_ms);
}

bool tls_is_due(struct tls *t, int64_t now_ms)
{
        int64_t begins = tls_begins_at_ms(t), expires = tls_expires_at_ms(t);
        return expires && expires - now_ms < (expires - begins) / 3;
}

/* ---- refusals ---- */

const char *tls_refusal_name(enum tls_refusal reason)
{
        static const char *const names[] = {
                [TLS_REFUSED_NO_CERTIFICATE] = "no-certificate",
                [TLS_REFUSED_UNKNOWN_CA] = "unknown-ca",
                [TLS_REFUSED_EXPIRED] = "expired",
                [TLS_REFUSED_BAD] = "bad-certificate",
                [TLS_REFUSED_PROTOCOL] = "protocol",
                [TLS_REFUSED_WRONG_NODE] = "wrong-node",
        };
        return names[reason];
}

static enum tls_refusal reason_of(const SSL *ssl, int error)
{
        if (error == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
                return TLS_REFUSED_NO_CERTIFICATE;
        if (error != SSL_R_CERTIFICATE_VERIFY_FAILED)
                return TLS_REFUSED_PROTOCOL;
        switch (SSL_get_verify_result(ssl)) {
        case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
        case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
        case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
        case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
        case X509_V_ERR_CERT_SIGNATURE_FAILURE: /* another CA of the same name */
                return TLS_REFUSED_UNKNOWN_CA;
        case X509_V_ERR_CERT_HAS_EXPIRED:
        case X509_V_ERR_CERT_NOT_YET_VALID:
                return TLS_REFUSED_EXPIRED;
        default:
                return TLS_REFUSED_BAD;
        }
}

void tls_count_refused(struct tls *t, enum tls_refusal reason)
{
        atomic_fetch_add_explicit(&t->refused[reason], 1, memory_order_relaxed);
}

uint64_t tls_refused(struct tls *t, enum tls_refusal reason)
{
        return atomic_load_explicit(&t->refused[reason], memory_order_relaxed);
}

/* Whoever reaches the port can make refusals: they must not fill the disk with lines. */
static bool may_tell(struct tls *t)
{
        int64_t now_ms = clock_mono_ns() / 1000000;
        pthread_mutex_lock(&t->lock);
        if (now_ms - t->told_at_ms >= 1000) {
                t->told_at_ms = now_ms;
                t->n_told = 0;
        }
        bool may = t->n_told++ < TOLD_PER_SECOND;
        pthread_mutex_unlock(&t->lock);
        return may;
}

void tls_handshake_failed(SSL *ssl, unsigned long error, const char *peer)
{
        struct tls *t = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
        int code = ERR_GET_REASON(error);

        if (!t || !error || code >= SSL_AD_REASON_OFFSET)
                return;
        enum tls_refusal reason = reason_of(ssl, code);
        tls_count_refused(t, reason);
        if (!may_tell(t))
                return;
        const char *text = ERR_reason_error_string(error);
        long verify = SSL_get_verify_result(ssl);
        log_warn("a connection was refused", LOG_S("peer", peer),
                 LOG_S("reason", tls_refusal_name(reason)),
                 LOG_S("detail", verify != X509_V_OK ? X509_verify_cert_error_string(verify)
                                 : text              ? text
                                                     : ""));
}

SSL *tls_new_ssl(struct tls *t, const char *alpn, const char *server_name, struct err *err)
{
        ERR_clear_error();
        pthread_mutex_lock(&t->lock);
        SSL *ssl = SSL_new(t->ctx); /* takes its own reference: (2) */
        pthread_mutex_unlock(&t->lock);
        if (!ssl) {
                err_set(err, ERR_NOMEM, .msg = "no TLS connection", .detail = ssl_error_text());
                return NULL;
        }
        if (t->is_server) {
                SSL_set_app_data(ssl, (void *)(uintptr_t)(str_eq(alpn, "h2") ? "h2" : "http/1.1"));
                SSL_set_accept_state(ssl);
                return ssl;
        }
        unsigned len;
        const unsigned char *wire = alpn_wire(alpn, &len);
        SSL_set_alpn_protos(ssl, wire, len);
        SSL_set_connect_state(ssl);
        X509_VERIFY_PARAM *param = SSL_get0_param(ssl);
        X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
        /* An address is matched against IP SANs and is not sent as a server name (RFC 6066). */
        if (X509_VERIFY_PARAM_set1_ip_asc(param, server_name) != 1) {
                ERR_clear_error();
                if (SSL_set1_host(ssl, server_name) != 1 ||
                    SSL_set_tlsext_host_name(ssl, server_name) != 1) {
                        err_set(err, ERR_INVALID,
                                .msg = fmt("\"%.100s\" cannot be the name in a certificate",
                                           server_name),
                                .detail = ssl_error_text());
                        SSL_free(ssl);
                        return NULL;
                }
        }
        return ssl;
}

int tls_attach(SSL *ssl, int fd, struct err *err)
{
        BIO *bio = BIO_new_socket(fd, BIO_NOCLOSE);
        if (!bio)
                return err_set(err, ERR_NOMEM, .msg = "no TLS connection",
                               .detail = ssl_error_text());
        SSL_set_bio(ssl, bio, bio); /* one reference for both ways */
        return 0;
}

bool tls_alpn_is(SSL *ssl, const char *alpn)
{
        const unsigned char *p = NULL;
        unsigned len = 0;

        SSL_get0_alpn_selected(ssl, &p, &len);
        return p && len == strlen(alpn) && memcmp(p, alpn, len) == 0;
}

struct tls_identity *tls_peer_identity(SSL *ssl)
{
        X509 *x = SSL_get0_peer_certificate(ssl);
        if (!x || SSL_get_verify_result(ssl) != X509_V_OK)
                return NULL;

        struct tls_identity *id = mem_must(sizeof(*id));
        id->expires_at_ms = tls_time_ms(X509_get0_notAfter(x));
        (void)tls_key_hash(X509_get0_pubkey(x), id->key);
        const X509_NAME *subject = X509_get_subject_name(x);
        int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
        if (at >= 0)
                id->cn = tls_asn1_text(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));

        GENERAL_NAMES *sans = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
        int n = sans ? sk_GENERAL_NAME_num(sans) : 0;
        for (int i = 0; i < n && i < TLS_SANS_MAX; i++) {
                const GENERAL_NAME *g = sk_GENERAL_NAME_value(sans, i);
                if (g->type == GEN_URI)
                        tls_add_name(&id->uris, &id->n_uris,
                                     tls_asn1_text(g->d.uniformResourceIdentifier));
                else if (g->type == GEN_DNS)
                        tls_add_name(&id->dns, &id->n_dns, tls_asn1_text(g->d.dNSName));
        }
        GENERAL_NAMES_free(sans);
        ERR_clear_error();
        return id;
}

void tls_identity_free(struct tls_identity *id)
{
        if (!id)
                return;
        for (size_t i = 0; i < id->n_uris; i++)
                mem_free(id->uris[i]);
        for (size_t i = 0; i < id->n_dns; i++)
                mem_free(id->dns[i]);
        mem_free(id->uris);
        mem_free(id->dns);
        mem_free(id->cn);
        mem_free(id);
}
