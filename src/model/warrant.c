/* model/warrant.c: see warrant.h. */
#include "model/warrant.h"
#include "base/mem.h"
#include "base/mutant.h"
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <string.h>

static const char version_word[] = "berth warrant 1";

struct warrants {
        EVP_MAC_CTX *now, *before; /* with their keys; before: NULL if there was none */
};

static EVP_MAC_CTX *context(const uint8_t key[WARRANT_KEY_BYTES])
{
        char digest[] = "SHA256";
        OSSL_PARAM params[] = { OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                OSSL_PARAM_construct_end() };
        EVP_MAC *hmac = EVP_MAC_fetch(NULL, "HMAC", NULL);
        EVP_MAC_CTX *c = hmac ? EVP_MAC_CTX_new(hmac) : NULL;
        EVP_MAC_free(hmac);
        if (c && EVP_MAC_init(c, key, WARRANT_KEY_BYTES, params) == 1)
                return c;
        EVP_MAC_CTX_free(c);
        return NULL;
}

struct warrants *warrants_create(const struct warrant_keys *keys)
{
        if (!keys->has)
                return NULL;
        struct warrants *w = mem_must(sizeof(*w));
        w->now = context(keys->key);
        w->before = keys->has_previous ? context(keys->previous) : NULL;
        if (w->now)
                return w;
        warrants_destroy(w);
        return NULL;
}

void warrants_destroy(struct warrants *w)
{
        if (!w)
                return;
        EVP_MAC_CTX_free(w->now);
        EVP_MAC_CTX_free(w->before);
        mem_free(w);
}

static void put_number(uint8_t *p, uint64_t v)
{
        for (int i = 0; i < 8; i++)
                p[i] = (uint8_t)(v >> (56 - 8 * i));
}

/* Each part with its length before it: no two lists of facts give the same bytes. */
static bool add(EVP_MAC_CTX *c, const void *data, size_t len)
{
        uint8_t head[8];
        put_number(head, len);
        return EVP_MAC_update(c, head, sizeof(head)) == 1 &&
               (len == 0 || EVP_MAC_update(c, data, len) == 1);
}

static bool add_text(EVP_MAC_CTX *c, const char *text)
{
        return add(c, text ? text : "", text ? strlen(text) : 0);
}

static bool mac(EVP_MAC_CTX *c, const struct warrant_facts *f, uint8_t ret[WARRANT_BYTES])
{
        uint8_t token[16];
        size_t len = 0;
        put_number(token, f->epoch);
        put_number(token + 8, f->seq);
        return c && EVP_MAC_init(c, NULL, 0, NULL) == 1 && add_text(c, version_word) &&
               add_text(c, f->cluster_id) && add_text(c, f->unit_id) &&
               add_text(c, MUTANT(warrant_for_any_node) ? "" : f->node_id) &&
               add(c, token, sizeof(token)) && add(c, f->definition, f->definition_len) &&
               EVP_MAC_final(c, ret, &len, WARRANT_BYTES) == 1 && len == WARRANT_BYTES;
}

bool warrant_make(struct warrants *w, const struct warrant_facts *facts, uint8_t ret[WARRANT_BYTES])
{
        uint8_t made[WARRANT_BYTES];
        if (!w || !mac(w->now, facts, made))
                return false;
        memcpy(ret, made, sizeof(made));
        return true;
}

bool warrant_is_valid(struct warrants *w, const struct warrant_facts *facts, const void *warrant,
                      size_t len)
{
        uint8_t made[WARRANT_BYTES];
        if (MUTANT(warrant_not_checked))
                return true;
        if (!w || len != WARRANT_BYTES)
                return false;
        if (mac(w->now, facts, made) && CRYPTO_memcmp(made, warrant, len) == 0)
                return true;
        return w->before && mac(w->before, facts, made) && CRYPTO_memcmp(made, warrant, len) == 0;
}
