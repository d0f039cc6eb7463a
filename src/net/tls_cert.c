/* net/tls_cert.c: what a certificate says, and whose it is. See tls.h. */
#include "base/mem.h"
#include "net/tls_internal.h"
#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <string.h>

static void x509_freep(X509 **x)
{
        X509_free(*x);
}

char *tls_asn1_text(const ASN1_STRING *s)
{
        int len = ASN1_STRING_length(s);
        const unsigned char *data = ASN1_STRING_get0_data(s);

        if (len <= 0 || memchr(data, 0, (size_t)len))
                return NULL;
        return mem_strndup((const char *)data, (size_t)len);
}

void tls_add_name(char ***list, size_t *n, char *name)
{
        if (!name)
                return;
        *list = mem_must_resize(*list, (*n + 2) * sizeof(**list));
        (*list)[(*n)++] = name;
        (*list)[*n] = NULL;
}

int64_t tls_time_ms(const ASN1_TIME *t)
{
        struct tm tm;
        return ASN1_TIME_to_tm(t, &tm) == 1 ? (int64_t)timegm(&tm) * 1000 : 0;
}

bool tls_key_hash(EVP_PKEY *key, char ret_hash[static 65])
{
        unsigned char *der = NULL, digest[EVP_MAX_MD_SIZE];
        unsigned digest_len = 0;
        int len = key ? i2d_PUBKEY(key, &der) : 0;
        bool ok = len > 0 &&
                  EVP_Digest(der, (size_t)len, digest, &digest_len, EVP_sha256(), NULL) == 1 &&
                  digest_len == 32;

        OPENSSL_free(der);
        for (unsigned i = 0; ok && i < 32; i++)
                snprintf(ret_hash + 2 * i, 3, "%02x", digest[i]);
        return ok;
}

static char *common_name(const X509_NAME *name)
{
        int at = X509_NAME_get_index_by_NID(name, NID_commonName, -1);
        return at >= 0 ? tls_asn1_text(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(name, at)))
                       : NULL;
}

static char *ip_text(const ASN1_OCTET_STRING *ip)
{
        char text[INET6_ADDRSTRLEN];
        int len = ASN1_STRING_length(ip), family = len == 4 ? AF_INET : len == 16 ? AF_INET6 : 0;

        return family && inet_ntop(family, ASN1_STRING_get0_data(ip), text, sizeof(text))
                   ? mem_strdup(text)
                   : NULL;
}

static void read_names(const X509 *x, struct tls_cert *c)
{
        GENERAL_NAMES *sans = X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL);
        int n = sans ? sk_GENERAL_NAME_num(sans) : 0;
        size_t n_dns = 0, n_ips = 0, n_uris = 0;

        for (int i = 0; i < n && i < TLS_SANS_MAX; i++) {
                const GENERAL_NAME *g = sk_GENERAL_NAME_value(sans, i);
                if (g->type == GEN_URI)
                        tls_add_name(&c->uris, &n_uris,
                                     tls_asn1_text(g->d.uniformResourceIdentifier));
                else if (g->type == GEN_DNS)
                        tls_add_name(&c->dns, &n_dns, tls_asn1_text(g->d.dNSName));
                else if (g->type == GEN_IPADD)
                        tls_add_name(&c->ips, &n_ips, ip_text(g->d.iPAddress));
        }
        GENERAL_NAMES_free(sans);
}

static void read_numbers(X509 *x, struct tls_cert *c)
{
        unsigned char digest[EVP_MAX_MD_SIZE];
        unsigned len = 0;
        const ASN1_INTEGER *serial = X509_get0_serialNumber(x);

        for (int i = 0; i < ASN1_STRING_length(serial) && (size_t)i * 2 + 2 < sizeof(c->serial);
             i++)
                snprintf(c->serial + i * 2, 3, "%02x", ASN1_STRING_get0_data(serial)[i]);
        if (X509_digest(x, EVP_sha256(), digest, &len) != 1)
                return;
        int at = snprintf(c->fingerprint, sizeof(c->fingerprint), "sha256:");
        for (unsigned i = 0; i < len && i < 32; i++, at += 2)
                snprintf(c->fingerprint + at, 3, "%02x", digest[i]);
}

static X509 *parse(const char *pem, size_t len)
{
        BIO *in = BIO_new_mem_buf(pem, (int)len);
        X509 *x = in ? PEM_read_bio_X509(in, NULL, NULL, NULL) : NULL;
        BIO_free(in);
        ERR_clear_error();
        return x;
}

int tls_cert_read(const char *pem, size_t len, struct tls_cert *ret_cert, struct err *err)
{
        _cleanup_(x509_freep) X509 *x = parse(pem, len);
        if (!x)
                return err_set(err, ERR_INVALID, .msg = "this is no certificate",
                               .hint = "it must begin with -----BEGIN CERTIFICATE-----");

        uint32_t usage = X509_get_extended_key_usage(x);
        struct tls_cert c = { .cn = common_name(X509_get_subject_name(x)),
                              .issuer = common_name(X509_get_issuer_name(x)),
                              .begins_at_ms = tls_time_ms(X509_get0_notBefore(x)),
                              .expires_at_ms = tls_time_ms(X509_get0_notAfter(x)),
                              .is_ca = X509_check_ca(x) == 1,
                              .is_client = usage & XKU_SSL_CLIENT,
                              .is_server = usage & XKU_SSL_SERVER };
        read_names(x, &c);
        read_numbers(x, &c);
        ERR_clear_error();
        *ret_cert = c;
        return 0;
}

static void free_list(char **list)
{
        for (char **p = list; p && *p; p++)
                mem_free(*p);
        mem_free(list);
}

void tls_cert_fini(struct tls_cert *c)
{
        mem_free(c->cn);
        mem_free(c->issuer);
        free_list(c->dns);
        free_list(c->ips);
        free_list(c->uris);
        *c = (struct tls_cert){ 0 };
}

int tls_each_cert(const char *pem, size_t len,
                  int (*fn)(void *ctx, const struct str *cert, const struct tls_cert *facts),
                  void *ctx)
{
        BIO *in = BIO_new_mem_buf(pem, (int)len);
        X509 *x;
        int r = 0;

        while (r >= 0 && in && (x = PEM_read_bio_X509(in, NULL, NULL, NULL))) {
                _cleanup_(str_finip) struct str one = STR_INIT;
                struct tls_cert facts = { 0 };
                BIO *out = BIO_new(BIO_s_mem());
                char *data;
                if (out && PEM_write_bio_X509(out, x) == 1) {
                        long n = BIO_get_mem_data(out, &data);
                        str_add(&one, data, (size_t)n);
                        if (tls_cert_read(str_c(&one), one.len, &facts, NULL) == 0)
                                r = fn(ctx, &one, &facts);
                }
                tls_cert_fini(&facts);
                BIO_free(out);
                X509_free(x);
        }
        BIO_free(in);
        ERR_clear_error();
        return r;
}

int tls_cert_check_signed(const struct str *cert, const struct str *ca, struct err *err)
{
        _cleanup_(x509_freep) X509 *x = parse(str_c(cert), cert->len);
        _cleanup_(x509_freep) X509 *issuer = parse(str_c(ca), ca->len);
        EVP_PKEY *key = issuer ? X509_get0_pubkey(issuer) : NULL;
        int ok = x && key && X509_check_issued(issuer, x) == X509_V_OK ? X509_verify(x, key) : 0;

        ERR_clear_error();
        return ok == 1
                   ? 0
                   : err_set(err, ERR_DENIED, .msg = "the certificate was not signed by this CA");
}

bool tls_is_address(const char *text)
{
        unsigned char buf[16];
        return inet_pton(AF_INET, text, buf) == 1 || inet_pton(AF_INET6, text, buf) == 1;
}

/* ---- whose it is ---- */

/* "n1" of "spiffe://berth/node/n1"; NULL: another kind of name. */
static const char *name_of(const char *uri, const char *kind)
{
        size_t prefix = strlen(TLS_URI_PREFIX), len = strlen(kind);

        if (strncmp(uri, TLS_URI_PREFIX, prefix) != 0 || strncmp(uri + prefix, kind, len) != 0 ||
            uri[prefix + len] != '/')
                return NULL;
        return uri + prefix + len + 1;
}

static bool is_ours(const struct tls_identity *who)
{
        for (size_t i = 0; i < who->n_uris; i++)
                if (strncmp(who->uris[i], TLS_URI_PREFIX, strlen(TLS_URI_PREFIX)) == 0)
                        return true;
        return false;
}

const char *tls_identity_name(const struct tls_identity *who, const char *kind)
{
        for (size_t i = 0; who && i < who->n_uris; i++)
                if (!str_empty(name_of(who->uris[i], kind)))
                        return name_of(who->uris[i], kind);
        return NULL;
}

bool tls_identity_is_server(const struct tls_identity *who)
{
        for (size_t i = 0; who && i < who->n_uris; i++)
                if (!str_empty(name_of(who->uris[i], "server")))
                        return true;
        return who && !is_ours(who);
}

bool tls_identity_is_node(const struct tls_identity *who, const char *id)
{
        if (!who || str_empty(id))
                return false;
        for (size_t i = 0; i < who->n_uris; i++)
                if (str_eq(name_of(who->uris[i], "node"), id))
                        return true;
        for (size_t i = 0; i < who->n_dns && !is_ours(who); i++)
                if (str_eq(who->dns[i], id))
                        return true;
        return false;
}

const char *tls_identity_words(const struct tls_identity *who)
{
        static const char *const kinds[] = { "node", "user", "server" };

        if (!who)
                return "nobody";
        for (size_t i = 0; i < who->n_uris; i++)
                for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
                        if (name_of(who->uris[i], kinds[k]))
                                return fmt("%s %.128s", kinds[k], name_of(who->uris[i], kinds[k]));
        return fmt("\"%.128s\"", who->cn ? who->cn : "");
}

const char *tls_identity_actor(const struct tls_identity *who)
{
        for (size_t i = 0; i < who->n_uris; i++) {
                const char *uri = who->uris[i];
                if (name_of(uri, "user"))
                        return fmt("%.64s", name_of(uri, "user"));
                if (name_of(uri, "node"))
                        return fmt("node:%.59s", name_of(uri, "node"));
                if (name_of(uri, "server"))
                        return fmt("server:%.57s", name_of(uri, "server"));
        }
        return fmt("%.64s", who->cn ? who->cn : "");
}
