/* model/canon.c: see canon.h. */
#include "model/canon.h"
#include "model/json.h"
/* The plain functions need no memory, so that a hash cannot fail when there is none; EVP allocates
 * its context, and looks the algorithm up each time. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>
#include <string.h>

void canon_json(struct str *out, const ProtobufCMessage *m)
{
        json_write(out, m, JSON_SORTED);
}

const char *canon_hash_bytes(const void *data, size_t len, char ret[CANON_HASH_LEN + 1])
{
        static const char hex[] = "0123456789abcdef";
        unsigned char digest[SHA256_DIGEST_LENGTH];
        SHA256_CTX sha;
        char *p = ret;

        must(SHA256_Init(&sha) == 1 && SHA256_Update(&sha, len ? data : "", len) == 1 &&
                 SHA256_Final(digest, &sha) == 1,
             "SHA-256 works");
        memcpy(p, "sha256:", 7);
        p += 7;
        for (size_t i = 0; i < sizeof(digest); i++) {
                *p++ = hex[digest[i] >> 4];
                *p++ = hex[digest[i] & 15];
        }
        *p = '\0';
        return ret;
}

const char *canon_hash(const ProtobufCMessage *m, char ret[CANON_HASH_LEN + 1])
{
        _cleanup_(str_finip) struct str text = STR_INIT;

        str_reserve(&text, 1024); /* at once, and not by doubling: most specs are shorter */
        canon_json(&text, m);
        return canon_hash_bytes(text.buf, text.len, ret);
}

const char *workload_revision(const Pb__Workload *w, char ret[REVISION_LEN + 1])
{
        Pb__Workload own = PB__WORKLOAD__INIT;
        Pb__Retry policy = PB__RETRY__INIT;
        char hash[CANON_HASH_LEN + 1];

        own.type = w->type;
        own.spec = w->spec;
        own.resources = w->resources;
        own.n_labels = w->n_labels;
        own.labels = w->labels;
        own.n_node_selector = w->n_node_selector;
        own.node_selector = w->node_selector;
        own.restart = w->restart;
        own.ttl_seconds = w->ttl_seconds;
        own.stop_grace_seconds = w->stop_grace_seconds;
        own.tenant = w->tenant;
        if (w->retry) {
                /* A service that names no limit had 5 once: the same definition keeps its
                 * revision. */
                policy.max_attempts = w->retry->max_attempts ? w->retry->max_attempts : 5;
                policy.base_seconds = w->retry->base_seconds;
                policy.cap_seconds = w->retry->cap_seconds;
                own.retry = &policy;
        }
        canon_hash(&own.base, hash);
        memcpy(ret, "rev-", 4);
        memcpy(ret + 4, hash + 7, 12);
        ret[REVISION_LEN] = '\0';
        return ret;
}
