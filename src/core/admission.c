/* core/admission.c: what operators have said about a node id: what it may call itself, how much of
 * it is used, and whether it may come at all (A13, C32).
 *
 * A node says of itself what it likes. Work follows labels and free capacity, so a node that was
 * taken over could draw work to itself by naming itself; and a certificate outlives the trust in
 * its machine. So there is one record per node id that only operators write, and that holds whether
 * or not the node is there:
 *
 *      labels      go before what the agent says. Keys below berth.io/ and those that the
 *                  configuration lists come from here alone
 *      taints      of a node that registers for the first time, or comes back after it was
 *                  forgotten
 *      capacity    an upper bound; what the agent says counts below it
 *      expelled    nothing may come under this name but what a later token let in: a key that
 *                  joined with it, or a token of this node alone
 *
 * Labels, taints and capacity come from the join token that the node used, or from an operator
 * later on. They outlive a node that is forgotten: its certificate does, too, and whoever comes
 * back with it is bounded as it was. A new join token begins anew: with it another machine may come
 * under that name, and it has what its token says. Of many that were forgotten the oldest are not
 * remembered.
 *
 * Invariants:
 *   (X1) A node that was expelled is on record as NotReady and disabled until a hello that was let
 *   in by a later token. (X2) A key that was revoked never becomes one that is admitted.
 *   (X3) What a node's record says of its labels and amounts never exceeds what operators allow.
 *   (X4) Only of a node that is not known it is said that it was forgotten; so many at most.
 */
#include "core/admission.h"
#include "base/mem.h"
#include "core/access.h"
#include "core/evict.h"
#include "core/feature.h"
#include "core/node.h"
#include "core/place.h"
#include "core/read.h"
#include "core/state.h"
#include "core/step.h"
#include "model/pb.h"
#include "model/validate.h"
#include <stdlib.h>
#include <string.h>

#define RESERVED_PREFIX "berth.io/"
#define EXPELLED_MAX 10000
#define FORGOTTEN_MAX 10000
#define KEYS_MAX 64 /* of one node id; the oldest go */
#define GRANTS_MAX 64
#define KEY_LEN 64

static struct map_key node_key(const void *ctx, uint32_t i)
{
        const struct core *c = ctx;
        return (struct map_key){ c->admissions.at[i].m->node_id,
                                 strlen(c->admissions.at[i].m->node_id) };
}

void admissions_init(struct core *c)
{
        map_init(&c->admission_by_node, node_key, c);
}

void admissions_fini(struct core *c)
{
        for (size_t i = 0; i < c->admissions.len; i++)
                arena_fini(&c->admissions.at[i].memory);
        array_fini(&c->admissions);
        array_fini(&c->free_admissions);
        map_fini(&c->admission_by_node);
        for (size_t i = 0; i < c->operator_labels.len; i++)
                mem_free(c->operator_labels.at[i]);
        array_fini(&c->operator_labels);
}

static uint32_t find(const struct core *c, const char *node_id)
{
        return str_empty(node_id) ? MAP_NONE
                                  : map_get(&c->admission_by_node, node_id, strlen(node_id));
}

const Pb__Admission *admission_of(const struct core *c, const char *node_id)
{
        uint32_t i = find(c, node_id);
        return i == MAP_NONE ? NULL : c->admissions.at[i].m;
}

static bool has_key(char *const *keys, size_t n, const char *key)
{
        for (size_t i = 0; i < n; i++)
                if (str_eq(keys[i], key))
                        return true;
        return false;
}

/* ---- labels and amounts ---- */

/* Only an operator may give it. */
static bool is_reserved(const struct core *c, const char *key)
{
        if (str_starts(key, RESERVED_PREFIX))
                return true;
        for (size_t i = 0; i < c->operator_labels.len; i++) {
                const char *one = c->operator_labels.at[i];
                if (str_ends(one, "/") ? str_starts(key, one) : str_eq(key, one))
                        return true;
        }
        return false;
}

static int by_label(const void *a, const void *b)
{
        return strcmp((*(Pb__Node__LabelsEntry *const *)a)->key,
                      (*(Pb__Node__LabelsEntry *const *)b)->key);
}

static bool admission_labels(const Pb__Admission *m, const char *key)
{
        for (size_t i = 0; m && i < m->n_labels; i++)
                if (str_eq(m->labels[i]->key, key))
                        return true;
        return false;
}

static void add_label(struct core *c, Pb__Node *to, const char *key, const char *value)
{
        Pb__Node__LabelsEntry *e = arena_new(&c->step, Pb__Node__LabelsEntry);
        pb__node__labels_entry__init(e);
        e->key = (char *)key;
        e->value = (char *)value;
        to->labels[to->n_labels++] = e;
}

static void take_operator_labels(struct core *c, const Pb__Admission *m, Pb__Node *to)
{
        for (size_t i = 0; m && i < m->n_labels; i++)
                add_label(c, to, m->labels[i]->key, m->labels[i]->value);
        if (!to->n_labels)
                return;
        qsort(to->labels, to->n_labels, sizeof(*to->labels), by_label);
        size_t kept = 1;
        for (size_t i = 1; i < to->n_labels; i++) /* an agent may say one twice */
                if (!str_eq(to->labels[i]->key, to->labels[kept - 1]->key))
                        to->labels[kept++] = to->labels[i];
        to->n_labels = kept;
}

static void bound(int64_t *amount, int64_t most)
{
        if (most > 0 && *amount > most)
                *amount = most;
}

static void bound_amounts(Pb__NodeResources *res, const Pb__Resources *most)
{
        if (!most)
                return;
        bound(&res->cpu_total, most->cpu);
        bound(&res->memory_total, most->memory_mb);
        bound(&res->disk_total, most->disk_gb);
}

/* (X3) */
void admission_shape(struct core *c, const char *node_id, Pb__Node *a, const char **ret_ignored)
{
        const Pb__Admission *m = admission_of(c, node_id);
        Pb__Node__LabelsEntry **said = a->labels;
        size_t n = a->n_labels;
        char *ignored = NULL;
        *ret_ignored = NULL;
        a->labels = arena_new_n(&c->step, Pb__Node__LabelsEntry *, n + (m ? m->n_labels : 0) + 1);
        a->n_labels = 0;
        for (size_t i = 0; i < n; i++) {
                if (admission_labels(m, said[i]->key))
                        continue;
                if (is_reserved(c, said[i]->key)) {
                        ignored = arena_printf(&c->step, "%s%s%s", ignored ? ignored : "",
                                               ignored ? ", " : "", said[i]->key);
                        continue;
                }
                add_label(c, a, said[i]->key, said[i]->value);
        }
        take_operator_labels(c, m, a);
        if (m)
                bound_amounts(a->resources, m->capacity);
        *ret_ignored = ignored;
}

/* A node on record, after an operator's word: what it has now, without what operators gave it
 * before, and with what they give it now. */
static void reshape(struct core *c, const struct node *n, const Pb__Admission *before,
                    const Pb__Admission *now, Pb__Node *to, Pb__NodeResources *res)
{
        pb__node__init(to);
        pb__node_resources__init(res);
        res->cpu_total = n->ledger.total.cpu_milli;
        res->memory_total = n->ledger.total.mem_bytes / MIB;
        res->disk_total = n->ledger.total.disk_bytes / GIB;
        bound_amounts(res, now->capacity);
        to->resources = res;
        to->labels =
            arena_new_n(&c->step, Pb__Node__LabelsEntry *, n->n_labels + now->n_labels + 1);
        for (uint32_t i = 0; i < n->n_labels; i++)
                if (!admission_labels(before, n->labels[i].key) &&
                    !admission_labels(now, n->labels[i].key))
                        add_label(c, to, n->labels[i].key, n->labels[i].value);
        take_operator_labels(c, now, to);
}

/* Streams of agents that have such a label from now on say hello again, without it. */
void admissions_configure(struct core *c, const Pb__ServerConfig *f)
{
        static char changed[] = "which labels are the operator's has changed: say hello again";
        bool same = f->n_operator_labels == c->operator_labels.len;
        for (size_t i = 0; same && i < f->n_operator_labels; i++)
                same = str_eq(f->operator_labels[i], c->operator_labels.at[i]);
        if (same)
                return;
        for (size_t i = 0; i < c->operator_labels.len; i++)
                mem_free(c->operator_labels.at[i]);
        array_clear(&c->operator_labels);
        for (size_t i = 0; i < f->n_operator_labels; i++)
                *array_push(&c->operator_labels) = mem_strdup(f->operator_labels[i]);
        for (uint32_t i = 0; i < c->nodes.len; i++) {
                const struct node *n = &c->nodes.at[i];
                const Pb__Admission *m =
                    n->id && n->session && !n->push ? admission_of(c, n->id) : NULL;
                bool has = false;
                for (uint32_t k = 0; n->id && n->session && !n->push && k < n->n_labels && !has;
                     k++)
                        has = is_reserved(c, n->labels[k].key) &&
                              !admission_labels(m, n->labels[k].key);
                if (has)
                        effect_add(c, EFFECT_CLOSE, n->session, 0, changed, sizeof(changed) - 1);
        }
}

/* ---- who may come ---- */

const char *admission_refuses(struct core *c, const Pb__Hello *h, const char **ret_hint)
{
        const Pb__Admission *m = admission_of(c, h->node_id);
        if (!m || !m->expelled_at)
                return NULL;
        bool in = !str_empty(h->token) ? token_lets_in(c, h->token, h->node_id)
                  : !str_empty(h->key) ? has_key(m->admitted_keys, m->n_admitted_keys, h->key)
                                       /* nobody asks for credentials here */
                                       : token_lets_in(c, NULL, h->node_id);
        if (in)
                return NULL;
        *ret_hint = arena_printf(
            &c->step, "an admin can let it come back: berth token create --join --node %s",
            h->node_id);
        return arena_printf(&c->step, "node %s was expelled by %s", h->node_id,
                            str_empty(m->expelled_by) ? "an operator" : m->expelled_by);
}

const char *admission_refuses_key(const struct core *c, const char *node_id, const char *key,
                                  int64_t token_created_at, const char **ret_hint)
{
        const Pb__Admission *m = admission_of(c, node_id);
        for (size_t i = 0; i < c->admissions.len; i++) {
                const Pb__Admission *x = c->admissions.at[i].m;
                /* (X2) */
                if (x && x->expelled_at && has_key(x->revoked_keys, x->n_revoked_keys, key)) {
                        *ret_hint = "make another one: remove the directory tls below the agent's "
                                    "--data, and join with a new token";
                        return "this key was revoked when its node was expelled";
                }
        }
        if (m && m->expelled_at && token_created_at <= m->expelled_at) {
                *ret_hint = fmt("make a new one: berth token create --join --node %s", node_id);
                return fmt("node %s was expelled after this token was made", node_id);
        }
        return NULL;
}

void core_each_expelled(const struct core *c,
                        void (*fn)(void *ctx, const struct core_expelled *one), void *ctx)
{
        for (size_t i = 0; i < c->admissions.len; i++) {
                const Pb__Admission *m = c->admissions.at[i].m;
                if (m && m->expelled_at)
                        fn(ctx, &(struct core_expelled){ .node_id = m->node_id,
                                                         .revoked = m->revoked_keys,
                                                         .n_revoked = m->n_revoked_keys,
                                                         .admitted = m->admitted_keys,
                                                         .n_admitted = m->n_admitted_keys });
        }
}

/* ---- decisions ---- */

/* What was said so far, to be changed; in the step's memory. */
static Pb__Admission *draft(struct core *c, const char *node_id)
{
        const Pb__Admission *m = admission_of(c, node_id);
        if (m)
                return (Pb__Admission *)pb_clone(&c->step, &m->base);
        Pb__Admission *fresh = (Pb__Admission *)pb_new(&c->step, &pb__admission__descriptor);
        fresh->node_id = arena_strdup(&c->step, node_id);
        return fresh;
}

/* The oldest go: they are of certificates that have long expired. */
static void add_key(struct core *c, char ***keys, size_t *n, const char *key)
{
        if (str_empty(key) || has_key(*keys, *n, key))
                return;
        char **more = arena_new_n(&c->step, char *, *n + 1);
        size_t from = *n >= KEYS_MAX ? *n - KEYS_MAX + 1 : 0, k = 0;
        for (size_t i = from; i < *n; i++)
                more[k++] = (*keys)[i];
        more[k++] = arena_strdup(&c->step, key);
        *keys = more;
        *n = k;
}

static void emit_admission(struct core *c, Pb__EventType__E type, Pb__Admission *m,
                           const char *message)
{
        struct node_ix ix = node_find(c, m->node_id);
        Pb__Node node;
        Pb__NodeResources res;
        Pb__Event e = PB__EVENT__INIT;
        e.type = type;
        e.admission = m;
        e.message = (char *)message;
        if (node_ok(ix)) { /* else its next hello is shaped by it */
                reshape(c, node_at(c, ix), admission_of(c, m->node_id), m, &node, &res);
                e.node_id = node_at(c, ix)->id;
                e.node = &node;
        }
        emit(c, &e);
}

static uint32_t count_expelled(const struct core *c)
{
        uint32_t n = 0;
        for (size_t i = 0; i < c->admissions.len; i++)
                n += c->admissions.at[i].m && c->admissions.at[i].m->expelled_at;
        return n;
}

static void cut_off(struct core *c, struct node_ix ix, const char *why, size_t len)
{
        struct node *n = node_at(c, ix);
        if (n->session)
                effect_add(c, EFFECT_CLOSE, n->session, EFFECT_CLOSE_FAULT, (void *)why, len);
        decide_gone(c, n->session);
}

void decide_node_expel(struct core *c, const Pb__NodeRef *req)
{
        static char expelled[] = "the node was expelled by an operator";
        struct node_ix ix;
        struct err err;
        if (!node_asked_for(c, req->id, req->if_match, &ix))
                return;
        if (!feature_use(c, FEATURE_ADMISSIONS))
                return;
        const Pb__Admission *before = admission_of(c, req->id);
        if ((!before || !before->expelled_at) && count_expelled(c) >= EXPELLED_MAX) {
                err_set(&err, ERR_LIMIT, .msg = "too many nodes were expelled",
                        .detail = fmt("%d", EXPELLED_MAX),
                        .hint = "a new CA ends all certificates of the old one (docs/tls.md); "
                                "until then: berth node disable");
                reply_error(c, &err);
                return;
        }
        /* Also one that a later token has let in and that has not been here yet: its new key goes,
         * too. */
        if (!node_at(c, ix)->expelled_at || (before && before->n_admitted_keys)) {
                const struct node *n = node_at(c, ix);
                Pb__Admission *m = draft(c, n->id);
                struct key_list joined;
                tokens_keys_of(c, n->id, &joined);
                for (size_t i = 0; i < m->n_admitted_keys; i++)
                        add_key(c, &m->revoked_keys, &m->n_revoked_keys, m->admitted_keys[i]);
                for (size_t i = 0; i < joined.n; i++)
                        add_key(c, &m->revoked_keys, &m->n_revoked_keys, joined.at[i]);
                add_key(c, &m->revoked_keys, &m->n_revoked_keys, n->said_key);
                m->n_admitted_keys = 0;
                m->expelled_at = c->now_ms;
                m->expelled_by = (char *)(c->in->actor ? c->in->actor : "");
                cut_off(c, ix, expelled, sizeof(expelled) - 1);
                brake_unhold(c, ix);
                emit_admission(
                    c, PB__EVENT_TYPE__E__NodeExpelled, m,
                    arena_printf(&c->step, "expelled by %s",
                                 str_empty(m->expelled_by) ? "an operator" : m->expelled_by));
                evict_hurry(c, ix); /* its units need not wait for the grace */
                brake_review(c, ix);
                fence_let_go_on(c, ix);
        }
        tokens_revoke_of(c, req->id);
        reply_node(c, ix);
}

/* A join token was used. */
void admission_join(struct core *c, uint32_t token, const char *node_id, const char *key)
{
        const Pb__AccessToken *g = token_grants(c, token);
        const Pb__Admission *before = admission_of(c, node_id);
        bool was_out = before && before->expelled_at, anew = before && before->forgotten_at;
        if (!g && !was_out && !anew)
                return;
        Pb__Admission *m = draft(c, node_id);
        m->forgotten_at = 0;
        if (g || anew) {
                /* the same shape: key, value */
                m->labels = g ? (Pb__Admission__LabelsEntry **)g->labels : NULL;
                m->n_labels = g ? g->n_labels : 0;
                m->taints = g ? g->taints : NULL;
                m->n_taints = g ? g->n_taints : 0;
                m->capacity = g ? g->capacity : NULL;
                m = (Pb__Admission *)pb_clone(&c->step, &m->base);
        }
        if (was_out)
                add_key(c, &m->admitted_keys, &m->n_admitted_keys, key);
        emit_admission(c, PB__EVENT_TYPE__E__NodeAdmitted, m,
                       arena_printf(&c->step, "node %s joined", node_id));
        struct node_ix ix = node_find(c, node_id);
        if (node_ok(ix) && g && g->n_taints)
                admission_registered(c, ix);
}

void admission_registered(struct core *c, struct node_ix ix)
{
        const Pb__Admission *m = admission_of(c, node_at(c, ix)->id);
        if (!m || !m->n_taints)
                return;
        Pb__Node taints = PB__NODE__INIT;
        taints.taints = m->taints;
        taints.n_taints = m->n_taints;
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__NodeTainted;
        e.node_id = node_at(c, ix)->id;
        e.node = &taints;
        e.message = "taints that operators gave it, or its join token";
        emit(c, &e);
}

static bool bounds_nothing(const Pb__Resources *r)
{
        return !r || (!r->cpu && !r->memory_mb && !r->disk_gb);
}

Pb__Admission *admission_kept(struct core *c, const struct node *n)
{
        if (!feature_is_used(c, FEATURE_ADMISSIONS))
                return NULL; /* a server that is there would not know it */
        Pb__Node now = PB__NODE__INIT;
        Pb__Admission *m = draft(c, n->id);
        taints_record(c, n, &now);
        m->taints = now.taints; /* as they are, and not as its token once said */
        m->n_taints = now.n_taints;
        m->forgotten_at = c->now_ms;
        return m->n_labels || m->n_taints || !bounds_nothing(m->capacity) || m->expelled_at ? m
                                                                                            : NULL;
}

/* May this operator's word be taken, and what was said so far? NULL: answered. */
static Pb__Admission *draft_of_known(struct core *c, const char *id, uint64_t if_match)
{
        return node_asked_for(c, id, if_match, &(struct node_ix){ 0 }) ? draft(c, id) : NULL;
}

/* again: what the agent itself says counts once more, so it has to say it. */
static void grant(struct core *c, Pb__Admission *m, bool again)
{
        static char changed[] =
            "an operator changed what the node may say of itself: say hello again";
        struct node_ix ix = node_find(c, m->node_id);
        emit_admission(c, PB__EVENT_TYPE__E__NodeGranted, m,
                       "what an operator allows it has changed");
        const struct node *n = node_at(c, ix);
        if (again && n->session && !n->push)
                effect_add(c, EFFECT_CLOSE, n->session, 0, changed, sizeof(changed) - 1);
        reply_node(c, ix);
}

void decide_node_labels(struct core *c, const Pb__SetNodeLabelsRequest *req)
{
        Pb__Admission *m = draft_of_known(c, req->id, req->if_match);
        if (!m)
                return;
        bool fewer = false, same = m->n_labels == req->n_labels;
        for (size_t i = 0; i < m->n_labels; i++) {
                bool kept = false;
                for (size_t k = 0; k < req->n_labels && !kept; k++)
                        kept = str_eq(req->labels[k]->key, m->labels[i]->key);
                fewer = fewer || !kept;
                same = same && str_eq(req->labels[i]->key, m->labels[i]->key) &&
                       str_eq(req->labels[i]->value, m->labels[i]->value);
        }
        if (same) {
                reply_node(c, node_find(c, req->id));
                return;
        }
        if (!feature_use(c, FEATURE_ADMISSIONS))
                return;
        m->labels = (Pb__Admission__LabelsEntry **)req->labels; /* the same shape */
        m->n_labels = req->n_labels;
        grant(c, (Pb__Admission *)pb_clone(&c->step, &m->base), fewer);
}

static bool is_raised(int64_t before, int64_t now)
{
        return before && (!now || now > before);
}

void decide_node_capacity(struct core *c, const Pb__SetNodeCapacityRequest *req)
{
        Pb__Admission *m = draft_of_known(c, req->id, req->if_match);
        if (!m)
                return;
        const Pb__Resources none = PB__RESOURCES__INIT, *was = m->capacity ? m->capacity : &none;
        const Pb__Resources *now = req->capacity ? req->capacity : &none;
        if (was->cpu == now->cpu && was->memory_mb == now->memory_mb &&
            was->disk_gb == now->disk_gb) {
                reply_node(c, node_find(c, req->id));
                return;
        }
        if (!feature_use(c, FEATURE_ADMISSIONS))
                return;
        bool raised = is_raised(was->cpu, now->cpu) || is_raised(was->memory_mb, now->memory_mb) ||
                      is_raised(was->disk_gb, now->disk_gb);
        m->capacity = now == &none ? NULL : req->capacity;
        grant(c, m, raised);
}

/* ---- events ---- */

static bool keys_are_sane(char *const *keys, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (strlen(keys[i]) != KEY_LEN || strspn(keys[i], "0123456789abcdef") != KEY_LEN)
                        return false;
        return n <= KEYS_MAX;
}

bool admission_is_sane(const Pb__Admission *m)
{
        Pb__Node taints = PB__NODE__INIT;
        if (!m || !id_is_valid(m->node_id) || !time_is_sane(m->expelled_at) ||
            !time_is_sane(m->forgotten_at) || m->n_labels > GRANTS_MAX ||
            !keys_are_sane(m->revoked_keys, m->n_revoked_keys) ||
            !keys_are_sane(m->admitted_keys, m->n_admitted_keys) ||
            (m->capacity && !resources_are_sane(m->capacity)))
                return false;
        for (size_t i = 0; i < m->n_admitted_keys; i++) /* (X2) */
                if (has_key(m->revoked_keys, m->n_revoked_keys, m->admitted_keys[i]))
                        return false;
        for (size_t i = 0; i + 1 < m->n_labels; i++)
                if (strcmp(m->labels[i]->key, m->labels[i + 1]->key) >= 0)
                        return false;
        taints.taints = m->taints;
        taints.n_taints = m->n_taints;
        return taints_are_sane(&taints);
}

const char *wrong_admission(struct core *c, const Pb__Event *e)
{
        if (!admission_is_sane(e->admission))
                return "what operators said of the node is missing or out of range";
        struct node_ix ix = node_find(c, e->admission->node_id);
        bool about = !str_empty(e->node_id);
        if (about != node_ok(ix) || (about && !str_eq(e->node_id, e->admission->node_id)) ||
            about != (e->node != NULL))
                return "it names a node that is not known, or not the one that is";
        if (e->type == PB__EVENT_TYPE__E__NodeExpelled && (!about || !e->admission->expelled_at))
                return "nobody is expelled";
        return about && !node_resources_are_sane(e->node->resources)
                   ? "the node's amounts are out of range"
                   : NULL;
}

static void save(struct core *c, uint32_t i)
{
        record_changed(c, RECORD_ADMISSION, i, 1, 0);
}

static uint32_t put(struct core *c, const Pb__Admission *m)
{
        struct arena memory = ARENA_INIT;
        /* before the old one goes: m may share its texts */
        Pb__Admission *copy = (Pb__Admission *)pb_clone(&memory, &m->base);
        uint32_t i = find(c, m->node_id);
        if (i != MAP_NONE) {
                map_remove(&c->admission_by_node, i);
                arena_fini(&c->admissions.at[i].memory);
        } else if (c->free_admissions.len)
                i = array_pop(&c->free_admissions);
        else {
                *array_push(&c->admissions) = (struct admission){ 0 };
                i = (uint32_t)c->admissions.len - 1;
        }
        c->admissions.at[i].memory = memory;
        c->admissions.at[i].m = copy;
        map_put(&c->admission_by_node, i);
        c->tokens_version++;
        return i;
}

void apply_admission_event(struct core *c, const Pb__Event *e)
{
        uint32_t i = put(c, e->admission);
        struct node_ix ix = node_find(c, e->admission->node_id);
        c->admissions.at[i].m->resource_version = e->seq;
        save(c, i);
        if (!node_ok(ix))
                return;
        node_take_shape(c, ix, e->node);
        if (e->type == PB__EVENT_TYPE__E__NodeExpelled)
                node_take_expulsion(c, ix, e);
        else if (e->type == PB__EVENT_TYPE__E__NodeAdmitted && node_at(c, ix)->expelled_at)
                /* whoever made the token wants it */
                node_at(c, ix)->wish = PB__NODE_WISH__E__schedulable;
        node_at(c, ix)->seq = e->seq;
        c->capacity_change++;
        save_node(c, ix);
        columns_update(c, ix);
}

static void drop(struct core *c, uint32_t i)
{
        record_removed(c, RECORD_ADMISSION, c->admissions.at[i].m->node_id);
        map_remove(&c->admission_by_node, i);
        arena_fini(&c->admissions.at[i].memory);
        c->admissions.at[i] = (struct admission){ 0 };
        *array_push(&c->free_admissions) = i;
}

/* (X4) Those that were expelled have a limit of their own, and stay. */
static void drop_oldest_beyond(struct core *c)
{
        uint32_t oldest = NONE, n = 0;
        for (uint32_t i = 0; i < c->admissions.len; i++) {
                const Pb__Admission *m = c->admissions.at[i].m;
                if (!m || !m->forgotten_at || m->expelled_at)
                        continue;
                n++;
                if (oldest == NONE ||
                    m->resource_version < c->admissions.at[oldest].m->resource_version)
                        oldest = i;
        }
        if (n > FORGOTTEN_MAX)
                drop(c, oldest);
}

void admission_forgotten(struct core *c, const Pb__Event *e)
{
        uint32_t i = find(c, e->node_id);
        if (e->admission) {
                i = put(c, e->admission);
                c->admissions.at[i].m->resource_version = e->seq;
                save(c, i);
                drop_oldest_beyond(c);
        } else if (i != MAP_NONE && !c->admissions.at[i].m->expelled_at)
                drop(c, i);
}

void admission_returned(struct core *c, const char *node_id)
{
        uint32_t i = find(c, node_id);
        if (i == MAP_NONE || !c->admissions.at[i].m->forgotten_at)
                return;
        c->admissions.at[i].m->forgotten_at = 0;
        save(c, i);
}

/* ---- records ---- */

static void *pack(struct core *c, uint32_t i, struct arena *a, size_t *ret_len)
{
        return pb_pack_arena(a, &c->admissions.at[i].m->base, ret_len);
}

static const char *load(struct core *c, const char *node_id, const ProtobufCMessage *msg)
{
        const Pb__Admission *m = (const Pb__Admission *)msg;
        if (!admission_is_sane(m) || !str_eq(m->node_id, node_id) || find(c, node_id) != MAP_NONE)
                return "it is not of its key's node";
        put(c, m);
        return NULL;
}

static const char *name(const struct core *c, uint32_t slot, struct arena *a)
{
        (void)a;
        return c->admissions.at[slot].m ? c->admissions.at[slot].m->node_id : NULL;
}

const struct record_kind admission_records = {
        RECORD_TABLE(admissions, struct admission),
        .name = name,
        .find = find,
        .pack = pack,
        .load = load,
};

void admission_shown(struct core *c, const struct node *n, Pb__Node *r)
{
        const Pb__Admission *m = admission_of(c, n->id);
        if (!m)
                return;
        /* the same shape: key, value */
        r->operator_labels = (Pb__Node__OperatorLabelsEntry **)m->labels;
        r->n_operator_labels = m->n_labels;
        r->capacity = m->capacity;
}

static int by_node(const void *a, const void *b)
{
        return strcmp((*(const Pb__Admission *const *)a)->node_id,
                      (*(const Pb__Admission *const *)b)->node_id);
}

void admissions_dump(const struct core *c, struct str *out)
{
        const Pb__Admission **list =
            arena_new_n((struct arena *)&c->step, const Pb__Admission *, c->admissions.len + 1);
        size_t n = 0;
        for (size_t i = 0; i < c->admissions.len; i++)
                if (c->admissions.at[i].m)
                        list[n++] = c->admissions.at[i].m;
        if (n)
                qsort(list, n, sizeof(*list), by_node);
        for (size_t i = 0; i < n; i++) {
                const Pb__Admission *m = list[i];
                str_addf(out, "admission %s expelled=%lld by=%s seq=%llu", m->node_id,
                         (long long)m->expelled_at, m->expelled_by,
                         (unsigned long long)m->resource_version);
                if (m->forgotten_at)
                        str_addf(out, " forgotten=%lld", (long long)m->forgotten_at);
                for (size_t k = 0; k < m->n_labels; k++)
                        str_addf(out, " %s=%s", m->labels[k]->key, m->labels[k]->value);
                for (size_t k = 0; k < m->n_taints; k++)
                        str_addf(out, " taint=%s=%s:%d", m->taints[k]->key, m->taints[k]->value,
                                 (int)m->taints[k]->effect);
                if (m->capacity)
                        str_addf(out, " capacity=%lld/%lld/%lld", (long long)m->capacity->cpu,
                                 (long long)m->capacity->memory_mb,
                                 (long long)m->capacity->disk_gb);
                for (size_t k = 0; k < m->n_revoked_keys; k++)
                        str_addf(out, " revoked=%s", m->revoked_keys[k]);
                for (size_t k = 0; k < m->n_admitted_keys; k++)
                        str_addf(out, " admitted=%s", m->admitted_keys[k]);
                str_addc(out, '\n');
        }
}

#define BROKEN(err, which, what, who)                                                              \
        err_set(err, ERR_INTERNAL, .msg = "invariant " which " is broken: " what, .detail = (who))

void admissions_settle(struct core *c)
{
        for (uint32_t i = 0; i < c->nodes.len; i++) {
                struct node *n = &c->nodes.at[i];
                const Pb__Admission *m = n->id && n->expelled_at ? admission_of(c, n->id) : NULL;
                if (!m || !m->expelled_at)
                        n->expelled_at = 0; /* (X1) */
                if (n->id && (m = admission_of(c, n->id)))
                        ((Pb__Admission *)m)->forgotten_at = 0; /* (X4) */
        }
}

int admissions_check(const struct core *c, struct err *err)
{
        uint32_t count = 0;
        for (uint32_t i = 0; i < c->admissions.len; i++) {
                const Pb__Admission *m = c->admissions.at[i].m;
                if (!m)
                        continue;
                count++;
                if (find(c, m->node_id) != i || !admission_is_sane(m))
                        return BROKEN(
                            err, "X2",
                            "what operators said of a node is found by its id, and makes sense",
                            m->node_id);
        }
        for (uint32_t i = 0; i < c->nodes.len; i++) {
                const struct node *n = &c->nodes.at[i];
                const Pb__Admission *m = n->id ? admission_of(c, n->id) : NULL;
                if (!n->id)
                        continue;
                if (m && m->forgotten_at)
                        return BROKEN(err, "X4", "only a node that is not known was forgotten",
                                      n->id);
                if (n->expelled_at &&
                    (!m || !m->expelled_at || n->status == PB__NODE_STATUS__E__Ready))
                        return BROKEN(err, "X1",
                                      "an expelled node is NotReady, and on record as expelled",
                                      n->id);
        }
        return count == map_len(&c->admission_by_node)
                   ? 0
                   : BROKEN(err, "X2", "admissions are counted", "");
}
