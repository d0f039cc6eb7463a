/* core/definitions.c: the user's part of a workload, kept once however many workloads carry it; and
 * its placement class.
 *
 * 100,000 workloads of one app share one definition. A record is packed as "state fields" followed
 * by the definition's bytes: a packed protobuf message may be written in pieces, so nothing is
 * unpacked to write a record.
 */
#include "core/definitions.h"
#include "base/mem.h"
#include "core/place.h"
#include "core/policy.h"
#include "core/quota.h"
#include "core/state.h"
#include "model/feature.h"
#include "model/pb.h"
#include <string.h>

static struct map_key definition_key(const void *ctx, uint32_t i)
{
        const struct core *c = ctx;
        return (struct map_key){ c->definitions.at[i].data, c->definitions.at[i].len };
}

static struct map_key class_key(const void *ctx, uint32_t i)
{
        const struct core *c = ctx;
        return (struct map_key){ str_c(&c->classes.at[i].key), c->classes.at[i].key.len };
}

void definitions_init(struct core *c)
{
        map_init(&c->definition_by_data, definition_key, c);
        map_init(&c->class_by_key, class_key, c);
}

void definition_view(const Pb__Workload *w, Pb__Workload *ret)
{
        pb__workload__init(ret);
        ret->type = w->type;
        ret->spec = w->spec;
        ret->resources = w->resources;
        ret->labels = w->labels;
        ret->n_labels = w->n_labels;
        ret->node_selector = w->node_selector;
        ret->n_node_selector = w->n_node_selector;
        ret->restart = w->restart;
        ret->ttl_seconds = w->ttl_seconds;
        ret->stop_grace_seconds = w->stop_grace_seconds;
        ret->tenant = w->tenant;
        ret->priority = w->priority;
        ret->strategy = w->strategy;
        ret->tolerations = w->tolerations;
        ret->n_tolerations = w->n_tolerations;
        ret->spread = w->spread;
        ret->n_spread = w->n_spread;
        ret->affinity = w->affinity;
        ret->n_affinity = w->n_affinity;
        ret->anti_affinity = w->anti_affinity;
        ret->n_anti_affinity = w->n_anti_affinity;
        ret->annotations = w->annotations;
        ret->n_annotations = w->n_annotations;
        ret->exclusive = w->exclusive;
        ret->confine = w->confine;
}

const char *label_get(const struct label *labels, uint32_t n, const char *key)
{
        for (uint32_t i = 0; i < n; i++)
                if (strcmp(labels[i].key, key) == 0)
                        return labels[i].value;
        return NULL;
}

uint64_t node_label_bits(const struct core *c, const struct node *n)
{
        uint64_t bits = 0;
        for (size_t b = 0; b < c->bits.len; b++) {
                const char *v = label_get(n->labels, n->n_labels, c->bits.at[b].key);
                if (v && strcmp(v, c->bits.at[b].value) == 0)
                        bits |= UINT64_C(1) << b;
        }
        return bits;
}

int8_t label_bit_ref(struct core *c, const char *key, const char *value)
{
        size_t unused = c->bits.len;
        for (size_t b = 0; b < c->bits.len; b++) {
                struct label_bit *bit = &c->bits.at[b];
                if (strcmp(bit->key, key) == 0 && strcmp(bit->value, value) == 0) {
                        bit->refs++;
                        return (int8_t)b;
                }
                if (!bit->refs && unused == c->bits.len)
                        unused = b;
        }
        /* a pair that comes back keeps its bit while there are others */
        if (c->bits.len < LABEL_BITS) {
                unused = c->bits.len;
                array_push(&c->bits);
        } else if (unused == c->bits.len)
                return -1;
        mem_free(c->bits.at[unused].key);
        mem_free(c->bits.at[unused].value);
        c->bits.at[unused] = (struct label_bit){ mem_strdup(key), mem_strdup(value), 1 };
        for (uint32_t i = 0; i < c->nodes.len; i++) {
                uint64_t bits = c->nodes.at[i].id ? node_label_bits(c, &c->nodes.at[i]) : 0;
                if (bits != c->nodes.at[i].label_bits) {
                        c->nodes.at[i].label_bits = bits;
                        columns_update(c, (struct node_ix){ i });
                }
        }
        return (int8_t)unused;
}

void label_bit_unref(struct core *c, int8_t bit)
{
        must(c->bits.at[bit].refs > 0, "a label's bit is given back once");
        c->bits.at[bit].refs--;
}

static uint32_t class_intern(struct core *c, const Pb__Workload *w)
{
        struct str key = STR_INIT;
        struct amounts need = amounts_of(w->resources);
        /* without printf: once for each new definition */
        const int64_t numbers[] = { (int64_t)w->type, need.cpu_milli, need.mem_bytes,
                                    need.disk_bytes };
        for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
                str_add_i64(&key, numbers[i]);
                str_addc(&key, ' ');
        }
        for (size_t i = 0; i < w->n_node_selector; i++)
                str_addf(&key, "\n%s=%s", w->node_selector[i]->key, w->node_selector[i]->value);
        constraints_key(w, &key);
        if (w->exclusive)
                str_addf(&key, "\nexclusive %d", (int)w->exclusive);
        if (features_needed(w))
                str_addf(&key, "\nneeds %x", (unsigned)features_needed(w));
        uint32_t k = map_get(&c->class_by_key, str_c(&key), key.len);
        if (k != MAP_NONE) {
                str_fini(&key);
                c->classes.at[k].refs++;
                return k;
        }
        if (c->free_classes.len)
                k = array_pop(&c->free_classes);
        else {
                array_push(&c->classes);
                k = (uint32_t)c->classes.len - 1;
        }
        struct class *n = &c->classes.at[k];
        *n = (struct class){ .need = need,
                             .type_bit = 1u << w->type,
                             .exclusive = (uint8_t)w->exclusive,
                             .needs = features_needed(w),
                             .refs = 1,
                             .key = key,
                             .first = NONE,
                             .last = NONE,
                             .next_waiting = NONE,
                             .prev_waiting = NONE,
                             .selector_exact = true,
                             .tried_at = UINT64_MAX,
                             .shown_at = UINT64_MAX,
                             .none_at = UINT64_MAX };
        n->n_selector = (uint32_t)w->n_node_selector;
        if (n->n_selector)
                n->selector = mem_must(n->n_selector * sizeof(struct label));
        for (uint32_t i = 0; i < n->n_selector; i++) {
                n->selector[i] = (struct label){ mem_strdup(w->node_selector[i]->key),
                                                 mem_strdup(w->node_selector[i]->value) };
                int8_t bit = label_bit_ref(c, n->selector[i].key, n->selector[i].value);
                if (bit < 0)
                        n->selector_exact = false;
                else
                        n->selector_bits |= UINT64_C(1) << bit;
        }
        map_put(&c->class_by_key, k);
        constraints_init(c, k, w);
        return k;
}

static void class_unref(struct core *c, uint32_t k)
{
        struct class *n = &c->classes.at[k];
        if (--n->refs)
                return;
        must(n->n_waiting == 0, "P1: nobody waits in a class that no workload has");
        map_remove(&c->class_by_key, k);
        constraints_fini(c, k);
        for (uint64_t bits = n->selector_bits; bits; bits &= bits - 1)
                label_bit_unref(c, (int8_t)__builtin_ctzll(bits));
        for (uint32_t i = 0; i < n->n_selector; i++) {
                mem_free(n->selector[i].key);
                mem_free(n->selector[i].value);
        }
        mem_free(n->selector);
        str_fini(&n->key);
        *n = (struct class){ 0 };
        *array_push(&c->free_classes) = k;
}

uint32_t definition_intern(struct core *c, const Pb__Workload *w)
{
        Pb__Workload view;
        definition_view(w, &view);
        size_t len;
        void *data = pb_pack_arena(&c->step, &view.base, &len);
        uint32_t d = map_get(&c->definition_by_data, data, len);
        if (d != MAP_NONE) {
                c->definitions.at[d].refs++;
                policy_count(c, d, 1);
                return d;
        }
        uint32_t class = class_intern(c, w);
        if (c->free_definitions.len)
                d = array_pop(&c->free_definitions);
        else {
                array_push(&c->definitions);
                d = (uint32_t)c->definitions.len - 1;
        }
        c->definitions.at[d] = (struct definition){
                .refs = 1,
                .class = class,
                .tenant = tenant_ref(c, w->tenant),
                .type = (uint8_t)w->type,
                .exclusive = (uint8_t)w->exclusive,
                .asks = policy_asks(w),
                .charged = amounts_of(w->resources),
                .confine = w->confine,
                .restart = (uint8_t)(w->restart ? w->restart : PB__RESTART__E__always),
                .ttl_seconds = w->ttl_seconds,
                .stop_grace_seconds = w->stop_grace_seconds,
                .len = (uint32_t)len,
                .data = mem_dup(data, len ? len : 1),
                .users = UNIT_NONE,
        };
        map_put(&c->definition_by_data, d);
        counts_definition(c, d, w);
        policy_judge(c, d, w);
        return d;
}

void definition_unref(struct core *c, uint32_t d)
{
        struct definition *def = &c->definitions.at[d];
        policy_count(c, d, -1);
        if (--def->refs)
                return;
        policy_forget(c, d);
        map_remove(&c->definition_by_data, d);
        counts_definition_gone(c, d);
        class_unref(c, def->class);
        tenant_unref(c, def->tenant);
        mem_free(def->data);
        *def = (struct definition){ 0 };
        *array_push(&c->free_definitions) = d;
}

void unit_set_definition(struct core *c, struct unit_ix ix, uint32_t d)
{
        struct unit *w = unit_at(c, ix);
        uint32_t before = w->definition;
        if (before != NONE) {
                if (unit_ok(w->same_prev))
                        unit_at(c, w->same_prev)->same_next = w->same_next;
                else
                        c->definitions.at[before].users = w->same_next;
                if (unit_ok(w->same_next))
                        unit_at(c, w->same_next)->same_prev = w->same_prev;
        }
        w->definition = d;
        w->same_prev = w->same_next = UNIT_NONE;
        if (d != NONE) {
                w->same_next = c->definitions.at[d].users;
                if (unit_ok(w->same_next))
                        unit_at(c, w->same_next)->same_prev = ix;
                c->definitions.at[d].users = ix;
        }
        if (before != NONE)
                definition_unref(c, before);
}

void definitions_fini(struct core *c)
{
        for (size_t i = 0; i < c->bits.len; i++) {
                mem_free(c->bits.at[i].key);
                mem_free(c->bits.at[i].value);
        }
        array_fini(&c->bits);
        array_fini(&c->definitions);
        array_fini(&c->beyond.list);
        array_fini(&c->classes);
        array_fini(&c->free_definitions);
        array_fini(&c->free_classes);
        map_fini(&c->definition_by_data);
        map_fini(&c->class_by_key);
}
