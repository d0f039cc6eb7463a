/* What a machine that joins, and a server that it does not know yet, send: certificate requests and
 * CAs. Refused with a message, or signed with the names that we give and no others: none of the
 * request's, no other use than a client's.
 *
 * The first byte says which: 0 a request as text, 1 its DER, 2 certificates as text, 3 their DER, 4
 * parts of a request that is signed properly (the length of the name, the name, an extension). */
#include "fuzz.h"
#include "net/tls.h"
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

static struct tls_pair ca;
static EVP_PKEY *key;

static void start(void)
{
        struct err err = { 0 };
        MUST(tls_make_ca(&(struct tls_issue_options){ .cn = "CA" }, &ca, &err) == 0, "%s",
             err_line(&err));
        key = EVP_EC_gen("P-256");
        MUST(key, "a key");
}

static void request(const char *pem)
{
        static const char *const uris[] = { "spiffe://berth/node/n1", NULL };
        struct tls_issue_options o = {
                .cn = "n1", .uris = uris, .is_client = true, .valid_ms = 1000000
        };
        struct str cert = STR_INIT;
        struct tls_cert facts = { 0 };
        struct err err = { 0 };
        char hash[65] = "";
        if (tls_request_key(pem, hash, &err) < 0) {
                must_explain(&err);
                return;
        }
        MUST(strlen(hash) == 64, "%s", hash);
        MUST(tls_sign_request(&ca, pem, &o, &cert, &err) == 0, "%s", err_line(&err));
        MUST(tls_cert_read(str_c(&cert), cert.len, &facts, &err) == 0, "%s", err_line(&err));
        MUST(str_eq(facts.cn, "n1") && facts.uris && str_eq(facts.uris[0], uris[0]) &&
                 !facts.uris[1],
             "its own names");
        MUST(!(facts.dns && facts.dns[0]) && !(facts.ips && facts.ips[0]), "none of the request's");
        MUST(facts.is_client && !facts.is_server && !facts.is_ca, "for a client only");
        tls_cert_fini(&facts);
        str_fini(&cert);
}

static int one_cert(void *ctx, const struct str *cert, const struct tls_cert *facts)
{
        unsigned *n = ctx;
        (void)tls_cert_check_signed(cert, &ca.cert, NULL);
        return ++*n > 100 ? -1 : 0;
}

static void certificates(const char *pem, size_t len)
{
        struct tls_cert facts = { 0 };
        struct err err = { 0 };
        unsigned n = 0;
        if (tls_cert_read(pem, len, &facts, &err) < 0)
                must_explain(&err);
        tls_cert_fini(&facts);
        (void)tls_each_cert(pem, len, one_cert, &n);
}

static void to_pem(const char *name, const uint8_t *der, size_t len, struct str *out)
{
        BIO *bio = BIO_new(BIO_s_mem());
        char *text = NULL;
        PEM_write_bio(bio, name, "", der, (long)len);
        long n = BIO_get_mem_data(bio, &text);
        str_add(out, text, (size_t)n);
        BIO_free(bio);
}

/* A proper one, with a name and an extension that mean anything. */
static void compose(const uint8_t *data, size_t size, struct str *out)
{
        static const int kinds[] = { NID_subject_alt_name, NID_basic_constraints, NID_key_usage,
                                     NID_ext_key_usage };
        if (size < 2)
                return;
        size_t name_len = data[0] < size - 2 ? data[0] : size - 2;
        X509_REQ *req = X509_REQ_new();
        X509_NAME *name = X509_REQ_get_subject_name(req);
        X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, data + 2, (int)name_len, -1, 0);
        ASN1_OCTET_STRING *octets = ASN1_OCTET_STRING_new();
        ASN1_OCTET_STRING_set(octets, data + 2 + name_len, (int)(size - 2 - name_len));
        X509_EXTENSION *ext = X509_EXTENSION_create_by_NID(NULL, kinds[data[1] % ARRAY_LEN(kinds)],
                                                           data[1] & 0x80, octets);
        STACK_OF(X509_EXTENSION) *all = sk_X509_EXTENSION_new_null();
        sk_X509_EXTENSION_push(all, ext);
        X509_REQ_add_extensions(req, all);
        X509_REQ_set_pubkey(req, key);
        if (X509_REQ_sign(req, key, EVP_sha256()) > 0) {
                unsigned char *der = NULL;
                int len = i2d_X509_REQ(req, &der);
                if (len > 0)
                        to_pem("CERTIFICATE REQUEST", der, (size_t)len, out);
                OPENSSL_free(der);
        }
        sk_X509_EXTENSION_pop_free(all, X509_EXTENSION_free);
        ASN1_OCTET_STRING_free(octets);
        X509_REQ_free(req);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct str pem = STR_INIT;
        if (!key)
                start();
        if (size == 0)
                return 0;
        int kind = data[0] % 5;
        if (kind == 1 || kind == 3)
                to_pem(kind == 1 ? "CERTIFICATE REQUEST" : "CERTIFICATE", data + 1, size - 1, &pem);
        else if (kind == 4)
                compose(data + 1, size - 1, &pem);
        else
                str_add(&pem, data + 1, size - 1);
        if (kind == 2 || kind == 3)
                certificates(str_c(&pem), pem.len);
        else
                request(str_c(&pem));
        str_fini(&pem);
        return 0;
}
