/* model/cluster_key.c: see cluster_key.h. */
#include "model/cluster_key.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char hex[] = "0123456789abcdef";

/* ---- derivation ---- */

/* HKDF-SHA256 with what it is for as the info: one purpose's key says nothing about another's. */
static int derive(const uint8_t key[CLUSTER_KEY_BYTES], const char *purpose, uint8_t *ret,
                  size_t len, struct err *err)
{
        char digest[] = "SHA256";
        OSSL_PARAM params[] = {
                OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
                OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)(uintptr_t)key,
                                                  CLUSTER_KEY_BYTES),
                OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)(uintptr_t)purpose,
                                                  strlen(purpose)),
                OSSL_PARAM_construct_end(),
        };
        EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
        EVP_KDF_CTX *c = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
        int ok = c && EVP_KDF_derive(c, ret, len, params) == 1;
        EVP_KDF_CTX_free(c);
        EVP_KDF_free(kdf);
        return ok ? 0 : err_set(err, ERR_INTERNAL, .msg = "OpenSSL could not derive a key (HKDF)");
}

static void put_hex(char *to, const uint8_t *from, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                *to++ = hex[from[i] >> 4];
                *to++ = hex[from[i] & 15];
        }
        *to = '\0';
}

static int fingerprint(const uint8_t key[CLUSTER_KEY_BYTES], char ret[CLUSTER_KEY_FINGERPRINT + 1],
                       struct err *err)
{
        uint8_t print[CLUSTER_KEY_FINGERPRINT / 2];
        int r = derive(key, "berth fingerprint 1", print, sizeof(print), err);
        if (r == 0)
                put_hex(ret, print, sizeof(print));
        return r;
}

int cluster_key_warrants(const struct cluster_key *k, struct warrant_keys *ret, struct err *err)
{
        struct warrant_keys keys = { .has = true, .has_previous = k->has_previous };
        int r = derive(k->key, "berth warrant 1", keys.key, sizeof(keys.key), err);
        if (r == 0 && k->has_previous)
                r = derive(k->previous, "berth warrant 1", keys.previous, sizeof(keys.previous),
                           err);
        if (r == 0)
                *ret = keys;
        OPENSSL_cleanse(&keys, sizeof(keys));
        return r;
}

static int fill_fingerprints(struct cluster_key *k, struct err *err)
{
        int r = fingerprint(k->key, k->fingerprint, err);
        if (r == 0 && k->has_previous)
                r = fingerprint(k->previous, k->before, err);
        return r;
}

/* ---- the text ---- */

static int digit(char c)
{
        const char *at = c ? strchr(hex, c) : NULL;
        return at ? (int)(at - hex) : -1;
}

static bool read_hex(const char *text, size_t len, uint8_t *ret, size_t n)
{
        if (len != 2 * n)
                return false;
        for (size_t i = 0; i < n; i++) {
                int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
                if (high < 0 || low < 0)
                        return false;
                ret[i] = (uint8_t)(high << 4 | low);
        }
        return true;
}

bool cluster_key_fingerprint_is_sane(const char *text)
{
        return text && strspn(text, hex) == CLUSTER_KEY_FINGERPRINT &&
               strlen(text) == CLUSTER_KEY_FINGERPRINT;
}

/* The value of a line that begins with this word, or NULL. */
static const char *value_of(const char *line, size_t len, const char *word, size_t *ret_len)
{
        size_t n = strlen(word);
        if (len <= n || memcmp(line, word, n) != 0 || line[n] != ' ')
                return NULL;
        *ret_len = len - n - 1;
        return line + n + 1;
}

static bool take_line(struct cluster_key *k, bool *has_key, const char *line, size_t len)
{
        size_t n;
        const char *v;
        if (len == 0 || line[0] == '#')
                return true;
        if ((v = value_of(line, len, "key", &n)))
                return !*has_key && (*has_key = read_hex(v, n, k->key, sizeof(k->key)));
        if ((v = value_of(line, len, "previous", &n)))
                return !k->before[0] && !k->has_previous &&
                       (k->has_previous = read_hex(v, n, k->previous, sizeof(k->previous)));
        if (!(v = value_of(line, len, "replaces", &n)) || k->has_previous || k->before[0] ||
            n != CLUSTER_KEY_FINGERPRINT)
                return false;
        memcpy(k->before, v, n);
        return cluster_key_fingerprint_is_sane(k->before);
}

static int bad_text(unsigned line, const char *what, struct err *err)
{
        return err_set(err, ERR_INVALID, .msg = "the cluster's key cannot be read",
                       .detail = line ? fmt("line %u: %s", line, what) : what,
                       .hint =
                           "copy " CLUSTER_KEY_FILE
                           " again from another server of the cluster, or from where it is kept");
}

int cluster_key_parse(const char *text, size_t len, struct cluster_key *ret, struct err *err)
{
        struct cluster_key k = { 0 };
        bool has_key = false;
        unsigned number = 1;
        int r = 0;
        if (len > CLUSTER_KEY_MAX_BYTES)
                return bad_text(0, "it is too long", err);
        for (size_t at = 0; at < len && r == 0; number++) {
                const char *end = memchr(text + at, '\n', len - at);
                size_t n = end ? (size_t)(end - text) - at : len - at;
                if (!take_line(&k, &has_key, text + at, n))
                        r = bad_text(number,
                                     "expected once each: key or previous with 64 hex digits, "
                                     "replaces with a fingerprint",
                                     err);
                at += n + 1;
        }
        if (r == 0 && !has_key)
                r = bad_text(0, "there is no line with the key", err);
        if (r == 0)
                r = fill_fingerprints(&k, err);
        if (r == 0)
                *ret = k;
        cluster_key_wipe(&k);
        return r;
}

void cluster_key_text(const struct cluster_key *k, struct str *out)
{
        char digits[2 * CLUSTER_KEY_BYTES + 1];
        str_adds(out, "# The key of a berth cluster. Secret. The same file on every server of the "
                      "cluster; keep a copy beside\n"
                      "# the backups, which do not hold it (docs/backup.md).\n");
        put_hex(digits, k->key, sizeof(k->key));
        str_addf(out, "key %s\n", digits);
        if (k->has_previous) {
                put_hex(digits, k->previous, sizeof(k->previous));
                str_addf(out, "previous %s\n", digits);
        } else if (k->before[0])
                str_addf(out, "replaces %s\n", k->before);
        OPENSSL_cleanse(digits, sizeof(digits));
}

/* ---- the file ---- */

static int check_mode(const char *path, struct err *err)
{
        struct stat st;
        if (stat(path, &st) < 0)
                return err_sys(err, errno, fmt("cannot look at %s", path));
        if (!S_ISREG(st.st_mode) || (st.st_mode & 077) ||
            (st.st_uid != geteuid() && st.st_uid != 0))
                return err_set(err, ERR_DENIED,
                               .msg =
                                   fmt("%s must belong to this server, and to nobody else", path),
                               .detail = fmt("mode %04o, owner %u", (unsigned)st.st_mode & 07777,
                                             (unsigned)st.st_uid),
                               .hint = fmt("chown it to uid %u and chmod 600 it; if others may "
                                           "have read it: berth key rotate",
                                           (unsigned)geteuid()));
        return 0;
}

int cluster_key_load_file(const char *path, struct cluster_key *ret, struct err *err)
{
        struct str text = STR_INIT;
        int r = file_read(path, CLUSTER_KEY_MAX_BYTES, &text, err);
        if (r == 0)
                r = check_mode(path, err);
        if (r == 0 && (r = cluster_key_parse(str_c(&text), text.len, ret, err)) < 0)
                err_prefix(err, path);
        if (text.buf)
                OPENSSL_cleanse(text.buf, text.len);
        str_fini(&text);
        return r;
}

int cluster_key_load(const char *dir, struct cluster_key *ret, struct err *err)
{
        _cleanup_(mem_freep) char *path = mem_strdup(fmt("%s/%s", dir, CLUSTER_KEY_FILE));
        return cluster_key_load_file(path, ret, err);
}

int cluster_key_save(const char *dir, const struct cluster_key *k, struct err *err)
{
        _cleanup_(mem_freep) char *path = mem_strdup(fmt("%s/%s", dir, CLUSTER_KEY_FILE));
        struct str text = STR_INIT;
        cluster_key_text(k, &text);
        int r = file_write_atomic(path, str_c(&text), text.len, 0600, err);
        OPENSSL_cleanse(text.buf, text.len);
        str_fini(&text);
        return r;
}

int cluster_key_make(const struct cluster_key *before, const char *replaces,
                     struct cluster_key *ret, struct err *err)
{
        struct cluster_key k = { 0 };
        random_bytes(k.key, sizeof(k.key));
        if (before) {
                k.has_previous = true;
                memcpy(k.previous, before->key, sizeof(k.previous));
        } else if (replaces)
                memcpy(k.before, replaces, CLUSTER_KEY_FINGERPRINT);
        int r = fill_fingerprints(&k, err);
        if (r == 0)
                *ret = k;
        cluster_key_wipe(&k);
        return r;
}

bool cluster_key_fits(const struct cluster_key *k, const char *print)
{
        return str_empty(print) || str_eq(k->fingerprint, print) ||
               (k->before[0] && str_eq(k->before, print));
}

void cluster_key_wipe(struct cluster_key *k)
{
        OPENSSL_cleanse(k, sizeof(*k));
}
