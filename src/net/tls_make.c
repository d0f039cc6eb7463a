/* net/tls_make.c: a small certificate maker: P-256 keys, a CA of path length 0, leaves with DNS, IP
 * and URI names. See tls.h. */
#include "base/clock.h"
#include "base/mem.h"
#include "net/tls_internal.h"
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

#define DAY_MS (24 * 3600 * INT64_C(1000))
#define BACKDATE_S (5 * 60) /* clocks of nodes differ a little */

static void evp_freep(EVP_PKEY **k)
{
        EVP_PKEY_free(*k);
}
static void x509_freep(X509 **x)
{
        X509_free(*x);
}
static void bio_freep(BIO **b)
{
        BIO_free(*b);
}

static int fail(struct err *err, const char *msg)
{
        unsigned long e = ERR_get_error();
        const char *reason = e ? ERR_reason_error_string(e) : NULL;

        ERR_clear_error();
        return err_set(err, ERR_INTERNAL, .msg = msg, .detail = reason);
}

void tls_pair_fini(struct tls_pair *pair)
{
        if (pair->key.buf)
                OPENSSL_cleanse(pair->key.buf, pair->key.len);
        str_fini(&pair->cert);
        str_fini(&pair->key);
}

static int add_extension(X509 *x, X509 *issuer, int nid, const char *value)
{
        X509V3_CTX ctx;
        X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
        X509_EXTENSION *ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
        if (!ext)
                return -1;
        int ok = X509_add_ext(x, ext, -1);
        X509_EXTENSION_free(ext);
        return ok == 1 ? 0 : -1;
}

/* Names are put in as they are, not through OpenSSL's configuration syntax, in which a comma would
 * start another name. */
static int add_san(GENERAL_NAMES *names, int type, const char *text)
{
        GENERAL_NAME *g = GENERAL_NAME_new();
        if (!g)
                return -1;
        ASN1_STRING *s = type == GEN_IPADD ? a2i_IPADDRESS(text) : ASN1_IA5STRING_new();
        if (!s || (type != GEN_IPADD && ASN1_STRING_set(s, text, -1) != 1)) {
                ASN1_STRING_free(s);
                GENERAL_NAME_free(g);
                return -1;
        }
        GENERAL_NAME_set0_value(g, type, s);
        if (sk_GENERAL_NAME_push(names, g) <= 0) {
                GENERAL_NAME_free(g);
                return -1;
        }
        return 0;
}

static int add_sans(X509 *x, const struct tls_issue_options *o)
{
        struct {
                int type;
                const char *const *list;
        } kinds[] = { { GEN_DNS, o->dns }, { GEN_IPADD, o->ips }, { GEN_URI, o->uris } };
        GENERAL_NAMES *names = sk_GENERAL_NAME_new_null();
        int r = names ? 0 : -1;

        for (size_t k = 0; k < ARRAY_LEN(kinds) && r == 0; k++)
                for (const char *const *p = kinds[k].list; p && *p && r == 0; p++)
                        r = add_san(names, kinds[k].type, *p);
        if (r == 0 && sk_GENERAL_NAME_num(names) > 0)
                r = X509_add1_ext_i2d(x, NID_subject_alt_name, names, 0, X509V3_ADD_DEFAULT) == 1
                        ? 0
                        : -1;
        GENERAL_NAMES_free(names);
        return r;
}

/* Everything that CA and leaf have in common. */
static X509 *start_cert(EVP_PKEY *key, const struct tls_issue_options *o, int64_t valid_ms)
{
        _cleanup_(x509_freep) X509 *x = X509_new();
        unsigned char serial[16];
        if (!x)
                return NULL;
        random_bytes(serial, sizeof(serial));
        serial[0] = (serial[0] & 0x7f) | 0x40; /* positive, never short */
        BIGNUM *bn = BN_bin2bn(serial, sizeof(serial), NULL);
        bool ok = bn && BN_to_ASN1_INTEGER(bn, X509_get_serialNumber(x));
        BN_free(bn);
        X509_NAME *subject = X509_get_subject_name(x);
        ok = ok && X509_set_version(x, X509_VERSION_3) == 1 &&
             X509_gmtime_adj(X509_getm_notBefore(x), -BACKDATE_S) &&
             X509_time_adj_ex(X509_getm_notAfter(x), (int)(valid_ms / DAY_MS),
                              (long)(valid_ms % DAY_MS / 1000), NULL) &&
             X509_set_pubkey(x, key) == 1 &&
             X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                                        (const unsigned char *)(o->cn ? o->cn : "berth"), -1, -1,
                                        0) == 1;
        return ok ? TAKE_PTR(x) : NULL;
}

static int write_pair(X509 *x, EVP_PKEY *key, struct tls_pair *ret_pair)
{
        _cleanup_(bio_freep) BIO *cert = BIO_new(BIO_s_mem());
        _cleanup_(bio_freep) BIO *priv = BIO_new(BIO_s_mem());
        struct tls_pair pair = { 0 };
        char *data;

        if (!cert || !priv || PEM_write_bio_X509(cert, x) != 1 ||
            PEM_write_bio_PrivateKey(priv, key, NULL, NULL, 0, NULL, NULL) != 1)
                return -1;
        long len = BIO_get_mem_data(cert, &data);
        str_add(&pair.cert, data, (size_t)len);
        len = BIO_get_mem_data(priv, &data);
        str_add(&pair.key, data, (size_t)len);
        OPENSSL_cleanse(data, (size_t)len);
        *ret_pair = pair;
        return 0;
}

int tls_make_ca(const struct tls_issue_options *o, struct tls_pair *ret_pair, struct err *err)
{
        _cleanup_(evp_freep) EVP_PKEY *key = EVP_EC_gen("P-256");
        _cleanup_(x509_freep) X509 *x =
            key ? start_cert(key, o, o->valid_ms ? o->valid_ms : 3650 * DAY_MS) : NULL;

        if (!x || X509_set_issuer_name(x, X509_get_subject_name(x)) != 1 ||
            add_extension(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") < 0 ||
            add_extension(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") < 0 ||
            add_extension(x, x, NID_subject_key_identifier, "hash") < 0 ||
            X509_sign(x, key, EVP_sha256()) <= 0 || write_pair(x, key, ret_pair) < 0)
                return fail(err, "the CA certificate cannot be made");
        return 0;
}

static int no_passphrase(char *buf, int size, int rwflag, void *ctx)
{
        (void)buf, (void)size, (void)rwflag, (void)ctx;
        return -1; /* OpenSSL would ask on the terminal */
}

static EVP_PKEY *read_key(const struct str *pem)
{
        _cleanup_(bio_freep) BIO *in = BIO_new_mem_buf(str_c(pem), (int)pem->len);
        return in ? PEM_read_bio_PrivateKey(in, NULL, no_passphrase, NULL) : NULL;
}

/* A certificate for this key (its public part is enough); NULL: err says why. */
static X509 *issue_for(const struct tls_pair *ca, EVP_PKEY *key, const struct tls_issue_options *o,
                       struct err *err)
{
        _cleanup_(bio_freep) BIO *cert_in = BIO_new_mem_buf(str_c(&ca->cert), (int)ca->cert.len);
        _cleanup_(x509_freep) X509 *issuer =
            cert_in ? PEM_read_bio_X509(cert_in, NULL, NULL, NULL) : NULL;
        _cleanup_(evp_freep) EVP_PKEY *issuer_key = read_key(&ca->key);
        if (!issuer || !issuer_key || X509_check_private_key(issuer, issuer_key) != 1) {
                fail(err, "the CA's certificate and key cannot be used");
                return NULL;
        }
        _cleanup_(x509_freep) X509 *x = start_cert(key, o, o->valid_ms ? o->valid_ms : DAY_MS);
        const char *usage = o->is_client == o->is_server ? "serverAuth,clientAuth"
                            : o->is_client               ? "clientAuth"
                                                         : "serverAuth";
        if (!x || X509_set_issuer_name(x, X509_get_subject_name(issuer)) != 1 ||
            add_extension(x, issuer, NID_basic_constraints, "critical,CA:FALSE") < 0 ||
            add_extension(x, issuer, NID_key_usage, "critical,digitalSignature") < 0 ||
            add_extension(x, issuer, NID_ext_key_usage, usage) < 0 ||
            add_extension(x, issuer, NID_subject_key_identifier, "hash") < 0 ||
            add_extension(x, issuer, NID_authority_key_identifier, "keyid") < 0 ||
            add_sans(x, o) < 0 || X509_sign(x, issuer_key, EVP_sha256()) <= 0) {
                fail(err, "the certificate cannot be made");
                return NULL;
        }
        return TAKE_PTR(x);
}

int tls_issue(const struct tls_pair *ca, const struct tls_issue_options *o,
              struct tls_pair *ret_pair, struct err *err)
{
        _cleanup_(evp_freep) EVP_PKEY *key = o->key ? read_key(o->key) : EVP_EC_gen("P-256");
        if (!key)
                return fail(err, "the key of the certificate cannot be used");
        _cleanup_(x509_freep) X509 *x = issue_for(ca, key, o, err);
        if (!x)
                return err ? -(int)err->code : -ERR_INTERNAL;
        return write_pair(x, key, ret_pair) < 0 ? fail(err, "the certificate cannot be made") : 0;
}

/* ---- requests ---- */

static void req_freep(X509_REQ **r)
{
        X509_REQ_free(*r);
}

static void take_bio(struct str *to, BIO *bio)
{
        char *data;
        long len = BIO_get_mem_data(bio, &data);
        str_add(to, data, (size_t)len);
}

int tls_make_key(struct str *ret_key, struct err *err)
{
        _cleanup_(evp_freep) EVP_PKEY *key = EVP_EC_gen("P-256");
        _cleanup_(bio_freep) BIO *out = BIO_new(BIO_s_mem());
        if (!key || !out || PEM_write_bio_PrivateKey(out, key, NULL, NULL, 0, NULL, NULL) != 1)
                return fail(err, "no key can be made");
        take_bio(ret_key, out);
        return 0;
}

int tls_make_request(const struct str *key_pem, const char *cn, struct str *ret_request,
                     struct err *err)
{
        _cleanup_(evp_freep) EVP_PKEY *key = read_key(key_pem);
        _cleanup_(req_freep) X509_REQ *req = X509_REQ_new();
        _cleanup_(bio_freep) BIO *out = BIO_new(BIO_s_mem());
        if (!key)
                return fail(err, "the key cannot be read");
        if (!req || !out || X509_REQ_set_version(req, X509_REQ_VERSION_1) != 1 ||
            X509_REQ_set_pubkey(req, key) != 1 ||
            X509_NAME_add_entry_by_txt(X509_REQ_get_subject_name(req), "CN", MBSTRING_UTF8,
                                       (const unsigned char *)fmt("%.64s", cn), -1, -1, 0) != 1 ||
            X509_REQ_sign(req, key, EVP_sha256()) <= 0 || PEM_write_bio_X509_REQ(out, req) != 1)
                return fail(err, "the certificate cannot be asked for");
        take_bio(ret_request, out);
        return 0;
}

/* Anybody may send a request, and checking it costs what its key wants it to cost: an RSA exponent
 * as long as the modulus takes a hundred times as long as the usual one. So the kinds are few, and
 * told apart before anything is computed with the key. */
#define RSA_BITS 3072
#define RSA_EXPONENT 65537

static bool is_p256(const X509_REQ *req)
{
        X509_ALGOR *kind = NULL;
        const void *curve = NULL;
        int type = 0;
        if (X509_PUBKEY_get0_param(NULL, NULL, NULL, &kind,
                                   X509_REQ_get_X509_PUBKEY((X509_REQ *)req)) != 1)
                return false;
        X509_ALGOR_get0(NULL, &type, &curve, kind);
        /* by its name: no curve that somebody wrote down */
        return type == V_ASN1_OBJECT && OBJ_obj2nid(curve) == NID_X9_62_prime256v1;
}

static bool is_usual_rsa(const EVP_PKEY *key)
{
        BIGNUM *e = NULL;
        bool usual = EVP_PKEY_get_bits(key) == RSA_BITS &&
                     EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_E, &e) == 1 &&
                     BN_is_word(e, RSA_EXPONENT);
        BN_free(e);
        return usual;
}

static bool is_usual_key(const X509_REQ *req, EVP_PKEY *key)
{
        if (!key)
                return false;
        if (EVP_PKEY_is_a(key, "EC"))
                return is_p256(req);
        return EVP_PKEY_is_a(key, "ED25519") || (EVP_PKEY_is_a(key, "RSA") && is_usual_rsa(key));
}

static X509_REQ *read_request(const char *pem, struct err *err)
{
        _cleanup_(bio_freep) BIO *in = BIO_new_mem_buf(pem, -1);
        _cleanup_(req_freep) X509_REQ *req =
            in ? PEM_read_bio_X509_REQ(in, NULL, no_passphrase, NULL) : NULL;
        EVP_PKEY *key = req ? X509_REQ_get0_pubkey(req) : NULL;
        /* whoever asks must have the key */
        bool good = is_usual_key(req, key) && X509_REQ_verify(req, key) == 1;
        ERR_clear_error();
        if (good)
                return TAKE_PTR(req);
        err_set(err, ERR_INVALID,
                .msg = "this is no certificate request with a good key and its signature",
                .path = "request",
                .hint = "it must begin with -----BEGIN CERTIFICATE REQUEST-----; keys: P-256, "
                        "Ed25519, RSA of 3072 bits with exponent 65537");
        return NULL;
}

int tls_request_key(const char *pem, char ret_hash[static 65], struct err *err)
{
        _cleanup_(req_freep) X509_REQ *req = read_request(pem, err);
        if (!req)
                return -ERR_INVALID;
        return tls_key_hash(X509_REQ_get0_pubkey(req), ret_hash)
                   ? 0
                   : fail(err, "the key cannot be read");
}

int tls_sign_request(const struct tls_pair *ca, const char *pem, const struct tls_issue_options *o,
                     struct str *ret_cert, struct err *err)
{
        _cleanup_(req_freep) X509_REQ *req = read_request(pem, err);
        if (!req)
                return -ERR_INVALID;
        _cleanup_(x509_freep) X509 *x = issue_for(ca, X509_REQ_get0_pubkey(req), o, err);
        _cleanup_(bio_freep) BIO *out = BIO_new(BIO_s_mem());
        if (!x)
                return err ? -(int)err->code : -ERR_INTERNAL;
        if (!out || PEM_write_bio_X509(out, x) != 1)
                return fail(err, "the certificate cannot be made");
        take_bio(ret_cert, out);
        return 0;
}
