/* base/map.c: linear probing over a power of two of slots.
 *
 * A removal moves the slots behind it forward instead of leaving a tombstone, so a table that lives
 * through millions of puts and removals is as fast as a new one and never needs to be cleaned. The
 * stored half of the hash gives a slot's home, so neither growing nor removing reads a key.
 *
 * Invariants:
 *   (1) cap is 0 or a power of two, and len <= cap * 3 / 4: every probe meets an empty slot.
 *   (2) Between the home of a slot's hash and the slot itself no slot is empty.
 */
#include "base/map.h"

#include "base/mem.h"

#include <endian.h>
#include <string.h>

#define FIRST_CAP 16u
#define MAX_CAP (1u << 31)

static uint32_t hash_of(const void *key, size_t len)
{
        return (uint32_t)(hash64(key, len) >> 32);
}

static struct map_slot *slots_create(uint32_t cap)
{
        size_t bytes = (size_t)cap * sizeof(struct map_slot);
        struct map_slot *slots = mem_bytes(bytes);

        memset(slots, 0xFF, bytes); /* index MAP_NONE: empty */
        return slots;
}

/* The slot of the key, or the empty one where it would be put. */
static uint32_t find(const struct map *m, uint32_t hash, const void *key, size_t len)
{
        uint32_t mask = m->cap - 1;

        for (uint32_t i = hash & mask;; i = (i + 1) & mask) {
                const struct map_slot *s = &m->slots[i];
                if (s->index == MAP_NONE)
                        return i;
                if (s->hash != hash)
                        continue;
                struct map_key k = m->key_of(m->ctx, s->index);
                if (k.len == len && (len == 0 || memcmp(k.data, key, len) == 0))
                        return i;
        }
}

static void grow(struct map *m)
{
        must(m->cap < MAX_CAP, "a map has at most 3/4 of 2^31 entries");
        uint32_t cap = m->cap ? m->cap * 2 : FIRST_CAP;
        struct map_slot *slots = slots_create(cap);

        for (uint32_t i = 0; i < m->cap; i++) {
                if (m->slots[i].index == MAP_NONE)
                        continue;
                uint32_t j = m->slots[i].hash & (cap - 1);
                while (slots[j].index != MAP_NONE)
                        j = (j + 1) & (cap - 1);
                slots[j] = m->slots[i];
        }
        mem_free(m->slots);
        m->slots = slots;
        m->cap = cap;
}

void map_init(struct map *m, struct map_key (*key_of)(const void *ctx, uint32_t index),
              const void *ctx)
{
        *m = (struct map){ .key_of = key_of, .ctx = ctx };
}

void map_fini(struct map *m)
{
        mem_free(m->slots);
        m->slots = NULL;
        m->cap = m->len = 0;
}

void map_clear(struct map *m)
{
        if (m->slots)
                memset(m->slots, 0xFF, (size_t)m->cap * sizeof(*m->slots));
        m->len = 0;
}

uint32_t map_get(const struct map *m, const void *key, size_t len)
{
        if (m->len == 0)
                return MAP_NONE;
        return m->slots[find(m, hash_of(key, len), key, len)].index;
}

void map_put(struct map *m, uint32_t index)
{
        must(index != MAP_NONE, "MAP_NONE is no index");
        if (m->len >= m->cap / 4 * 3)
                grow(m);
        struct map_key k = m->key_of(m->ctx, index);
        uint32_t hash = hash_of(k.data, k.len);
        uint32_t i = find(m, hash, k.data, k.len);
        must(m->slots[i].index == MAP_NONE, "a key is put once");
        m->slots[i] = (struct map_slot){ .hash = hash, .index = index };
        m->len++;
}

void map_remove(struct map *m, uint32_t index)
{
        if (m->len == 0)
                return;
        struct map_key k = m->key_of(m->ctx, index);
        uint32_t mask = m->cap - 1;
        uint32_t hole = find(m, hash_of(k.data, k.len), k.data, k.len);

        if (m->slots[hole].index == MAP_NONE)
                return;
        must(m->slots[hole].index == index, "a key belongs to the index that it was put with");
        /* Fill the hole with the next slot that may stand there, i.e. whose home is not behind the
         * hole, until (2) holds. */
        for (uint32_t i = (hole + 1) & mask; m->slots[i].index != MAP_NONE; i = (i + 1) & mask) {
                uint32_t home = m->slots[i].hash & mask;
                if (((i - home) & mask) < ((i - hole) & mask))
                        continue;
                m->slots[hole] = m->slots[i];
                hole = i;
        }
        m->slots[hole].index = MAP_NONE;
        m->len--;
}

/* Two 64-bit words multiplied to 128 bits and folded: each bit of the result depends on all bits of
 * both (unless one is 0, which the constants make as unlikely as any collision). */
static uint64_t fold(uint64_t a, uint64_t b)
{
        unsigned __int128 product = (unsigned __int128)a * b;

        return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t read64(const unsigned char *p)
{
        uint64_t v;

        memcpy(&v, p, sizeof(v));
        return le64toh(v);
}

static uint64_t read32(const unsigned char *p)
{
        uint32_t v;

        memcpy(&v, p, sizeof(v));
        return le32toh(v);
}

/* Fractional parts of the square roots of 2, 3, 5 and 7, made odd: nothing up the sleeve. */
#define K0 0x6A09E667F3BCC909u
#define K1 0xBB67AE8584CAA73Bu
#define K2 0x3C6EF372FE94F82Bu
#define K3 0xA54FF53A5F1D36F1u

uint64_t hash64(const void *data, size_t len)
{
        const unsigned char *p = data;
        uint64_t state = fold(len ^ K0, K1);
        uint64_t a, b;
        size_t left = len;

        if (left > 32) {
                uint64_t other = state ^ K3;
                do {
                        state = fold(read64(p) ^ K1, read64(p + 8) ^ state);
                        other = fold(read64(p + 16) ^ K2, read64(p + 24) ^ other);
                        p += 32;
                        left -= 32;
                } while (left > 32);
                state ^= other;
        }
        if (left > 16) {
                state = fold(read64(p) ^ K2, read64(p + 8) ^ state);
                p += 16;
                left -= 16;
        }
        /* The last 0 to 16 bytes, as two words that overlap where there are fewer than 16. */
        if (left >= 8) {
                a = read64(p);
                b = read64(p + left - 8);
        } else if (left >= 4) {
                a = read32(p);
                b = read32(p + left - 4);
        } else if (left > 0) {
                a = (uint64_t)p[0] << 16 | (uint64_t)p[left / 2] << 8 | p[left - 1];
                b = 0;
        } else {
                a = b = 0;
        }
        return fold(fold(a ^ K1, b ^ state) ^ K3, state ^ K0);
}

uint64_t hash64_mix(uint64_t a, uint64_t b)
{
        return fold(fold(a ^ K0, b ^ K1) ^ K2, K3);
}
