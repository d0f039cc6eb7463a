/* core/access.c: tokens: who may call, and who may become a node (C32).
 *
 *      created --> active --revoked--> ended --a week later--> gone
 *                     |--- expired --------^
 *                     '--- used (join) ----^
 *
 * Only the hash of a secret ever comes here. What an ended token was stays known for a while, so
 * that whoever still uses it is told why it does not work; then the next creation takes the record
 * away. An ended token's name is free for a new one. Whether a call may pass is asked of a copy of
 * this table (core_each_token()); that a join token works once is decided here, where two uses at
 * the same time come one after the other.
 *
 * Invariants:
 *   (K1) A token is found by its name and by its hash, and no two have the same.
 *   (K2) A join token has been used by at most one node with one key, and a used one stays used
 *   over restarts.
 */
#include "core/access.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "core/admission.h"
#include "core/feature.h"
#include "core/node.h"
#include "core/notice.h"
#include "core/state.h"
#include "core/step.h"
#include "core/workload.h"
#include "model/pb.h"
#include "model/validate.h"
#include <stdlib.h>
#include <string.h>

#define TOKENS_MAX 10000
#define TOKENS_PER_PAGE 500
#define ENDED_KEPT_MS (7 * 24 * 3600 * INT64_C(1000))
#define REMOVED_AT_ONCE 20
#define JOIN_TTL_S 3600
#define HASH_LEN 64

static struct map_key name_key(const void *ctx, uint32_t i)
{
        const struct core *c = ctx;
        return (struct map_key){ c->tokens.at[i].name, strlen(c->tokens.at[i].name) };
}

static struct map_key hash_key(const void *ctx, uint32_t i)
{
        const struct core *c = ctx;
        return (struct map_key){ c->tokens.at[i].hash, strlen(c->tokens.at[i].hash) };
}

void tokens_init(struct core *c)
{
        map_init(&c->token_by_name, name_key, c);
        map_init(&c->token_by_hash, hash_key, c);
}

static void token_fini(struct access *t)
{
        mem_free(t->name);
        mem_free(t->hash);
        mem_free(t->created_by);
        mem_free(t->revoked_by);
        mem_free(t->node_id);
        mem_free(t->used_by);
        mem_free(t->used_key);
        arena_fini(&t->memory);
        *t = (struct access){ 0 };
}

void tokens_fini(struct core *c)
{
        for (size_t i = 0; i < c->tokens.len; i++)
                token_fini(&c->tokens.at[i]);
        array_fini(&c->tokens);
        array_fini(&c->free_tokens);
        map_fini(&c->token_by_name);
        map_fini(&c->token_by_hash);
}

static uint32_t find(const struct core *c, const char *name)
{
        return str_empty(name) ? MAP_NONE : map_get(&c->token_by_name, name, strlen(name));
}

/* When it stopped to work; 0: it works. */
static int64_t ended_at(const struct access *t, int64_t now_ms)
{
        if (t->revoked_at)
                return t->revoked_at;
        if (t->used_at)
                return t->used_at;
        return t->expires_at && t->expires_at <= now_ms ? t->expires_at : 0;
}

static const char *state_of(const struct access *t, int64_t now_ms)
{
        return t->revoked_at         ? "revoked"
               : t->used_at          ? "used"
               : ended_at(t, now_ms) ? "expired"
                                     : "active";
}

/* ---- what others see ---- */

uint64_t core_tokens_version(const struct core *c)
{
        return c->tokens_version;
}

void core_each_token(const struct core *c, void (*fn)(void *ctx, const struct core_token *token),
                     void *ctx)
{
        for (size_t i = 0; i < c->tokens.len; i++) {
                const struct access *t = &c->tokens.at[i];
                if (t->name)
                        fn(ctx, &(struct core_token){ .name = t->name,
                                                      .hash = t->hash,
                                                      .node_id = t->node_id ? t->node_id : "",
                                                      .role = t->role,
                                                      .expires_at = t->expires_at,
                                                      .revoked_at = t->revoked_at,
                                                      .used_at = t->used_at });
        }
}

bool core_has_admin(const struct core *c, int64_t now_ms)
{
        for (size_t i = 0; i < c->tokens.len; i++)
                if (c->tokens.at[i].name && c->tokens.at[i].role == PB__ROLE__E__admin &&
                    !ended_at(&c->tokens.at[i], now_ms))
                        return true;
        return false;
}

/* As a record (with the hash), or as callers see it (with its state). */
static void message(const struct access *t, Pb__AccessToken *m)
{
        pb__access_token__init(m);
        m->name = t->name;
        m->role = (Pb__Role__E)t->role;
        m->hash = t->hash;
        m->created_at = t->created_at;
        m->created_by = t->created_by;
        m->expires_at = t->expires_at;
        m->revoked_at = t->revoked_at;
        m->revoked_by = t->revoked_by;
        m->node_id = t->node_id;
        m->used_at = t->used_at;
        m->used_by = t->used_by;
        m->used_key = t->used_key;
        m->resource_version = t->seq;
        if (t->grants) {
                m->labels = t->grants->labels;
                m->n_labels = t->grants->n_labels;
                m->taints = t->grants->taints;
                m->n_taints = t->grants->n_taints;
                m->capacity = t->grants->capacity;
        }
}

static void shown(const struct core *c, uint32_t i, Pb__AccessToken *m)
{
        message(&c->tokens.at[i], m);
        m->hash = (char *)"";
        m->state = (char *)state_of(&c->tokens.at[i], c->now_ms);
}

static void reply_token(struct core *c, uint32_t i, bool created)
{
        Pb__AccessToken m;
        size_t len;
        shown(c, i, &m);
        void *data = pb_pack_arena(reply_memory(c), &m.base, &len);
        reply_bytes(c, m.base.descriptor, data, len, created);
}

static int by_name(const void *a, const void *b)
{
        return strcmp((*(const struct access *const *)a)->name,
                      (*(const struct access *const *)b)->name);
}

/* All of them by name, in the step's memory. */
static const struct access **sorted(const struct core *c, size_t *ret_n)
{
        const struct access **list =
            arena_new_n((struct arena *)&c->step, const struct access *, c->tokens.len + 1);
        size_t n = 0;
        for (size_t i = 0; i < c->tokens.len; i++)
                if (c->tokens.at[i].name)
                        list[n++] = &c->tokens.at[i];
        if (n)
                qsort(list, n, sizeof(*list), by_name);
        *ret_n = n;
        return list;
}

void read_list_tokens(struct core *c, const Pb__ListTokensRequest *req)
{
        size_t limit = req->limit > 0 ? (size_t)req->limit : TOKENS_PER_PAGE, n, at = 0;
        const struct access **list = sorted(c, &n);
        while (at < n && !str_empty(req->cursor) && strcmp(list[at]->name, req->cursor) <= 0)
                at++;
        Pb__ListTokensResponse r = PB__LIST_TOKENS_RESPONSE__INIT;
        r.items = arena_new_n(&c->step, Pb__AccessToken *, limit + 1);
        for (; at < n && r.n_items < limit; at++) {
                r.items[r.n_items] = arena_new(&c->step, Pb__AccessToken);
                shown(c, (uint32_t)(list[at] - c->tokens.at), r.items[r.n_items++]);
        }
        r.next_cursor = at < n && at > 0 ? list[at - 1]->name : (char *)"";
        r.resource_version = c->head;
        reply_message(c, &r.base);
}

/* ---- decisions ---- */

static void told(struct core *c, Pb__EventType__E type, Pb__AccessToken *m, const char *text)
{
        Pb__Event e = PB__EVENT__INIT;
        e.type = type;
        e.access = m;
        e.message = (char *)text;
        e.actor = (char *)"server"; /* unless somebody asked for it */
        emit(c, &e);
}

/* A few of those that ended long ago. */
static void remove_old(struct core *c)
{
        unsigned left = REMOVED_AT_ONCE;
        for (size_t i = 0; i < c->tokens.len && left > 0; i++) {
                const struct access *t = &c->tokens.at[i];
                int64_t ended = t->name ? ended_at(t, c->now_ms) : 0;
                if (!ended || c->now_ms - ended < ENDED_KEPT_MS)
                        continue;
                Pb__AccessToken m = PB__ACCESS_TOKEN__INIT;
                m.name = arena_strdup(&c->step, t->name);
                told(c, PB__EVENT_TYPE__E__TokenRemoved, &m,
                     arena_printf(&c->step, "token %s, which ended a week ago or more", m.name));
                left--;
        }
}

static int may_create(struct core *c, const Pb__CreateTokenRequest *req)
{
        struct err err;
        uint32_t i = find(c, req->name);
        if (req->if_no_admin && core_has_admin(c, c->now_ms))
                err_set(&err, ERR_CONFLICT, .msg = "there is an admin's token already");
        else if (strlen(req->hash) != HASH_LEN ||
                 map_get(&c->token_by_hash, req->hash, HASH_LEN) != MAP_NONE)
                err_set(&err, ERR_INTERNAL, .msg = "the token's hash is missing or taken");
        else if (!str_empty(req->node_id) && req->role != PB__ROLE__E__node &&
                 req->role != PB__ROLE__E__join)
                err_set(&err, ERR_INVALID,
                        .msg = "only tokens of the roles node and join are of a node",
                        .path = "node_id",
                        .hint = "leave node_id out, or choose one of these roles");
        else if ((req->n_labels || req->n_taints || req->capacity) &&
                 req->role != PB__ROLE__E__join)
                err_set(&err, ERR_INVALID, .msg = "only a join token says something of its node",
                        .path = req->n_labels   ? "labels"
                                : req->n_taints ? "taints"
                                                : "capacity",
                        .hint = "leave labels, taints and capacity out, or choose the role join; "
                                "berth label node gives a node labels later");
        else if (i != MAP_NONE && !ended_at(&c->tokens.at[i], c->now_ms))
                err_set(&err, ERR_CONFLICT, .msg = fmt("there is a token %s already", req->name),
                        .path = "name",
                        .hint =
                            fmt("choose another name, or revoke it first: berth token revoke %s",
                                req->name));
        else if (i == MAP_NONE && map_len(&c->token_by_name) >= TOKENS_MAX)
                err_set(&err, ERR_LIMIT, .msg = "there are too many tokens",
                        .detail = fmt("%d", TOKENS_MAX),
                        .hint = "those that ended go away a week later; let them end: --ttl, berth "
                                "token revoke");
        else
                return 0;
        reply_error(c, &err);
        return -1;
}

void decide_token_create(struct core *c, const Pb__CreateTokenRequest *req)
{
        remove_old(c);
        if (may_create(c, req) < 0)
                return;
        if ((req->n_labels || req->n_taints || req->capacity) &&
            !feature_use(c, FEATURE_ADMISSIONS))
                return;
        Pb__AccessToken m = PB__ACCESS_TOKEN__INIT;
        int64_t ttl_s = req->ttl_seconds                 ? req->ttl_seconds
                        : req->role == PB__ROLE__E__join ? JOIN_TTL_S
                                                         : 0;
        m.name = req->name;
        m.role = req->role;
        m.hash = req->hash;
        m.node_id = req->node_id;
        m.labels = (Pb__AccessToken__LabelsEntry **)req->labels; /* the same shape: key, value */
        m.n_labels = req->n_labels;
        m.taints = req->taints;
        m.n_taints = req->n_taints;
        m.capacity = req->capacity;
        m.created_by = (char *)(str_empty(c->in->actor) ? "server" : c->in->actor);
        m.expires_at = ttl_s ? c->now_ms + ttl_s * 1000 : 0;
        /* values are 0, 1, 2... */
        const char *role = pb__role__e__descriptor.values[req->role].name;
        told(c, PB__EVENT_TYPE__E__TokenCreated, &m,
             arena_printf(&c->step, "token %s, %s%s%s", req->name, role,
                          str_empty(req->node_id) ? "" : " of node ", req->node_id));
        reply_token(c, find(c, req->name), true);
}

void decide_token_revoke(struct core *c, const Pb__TokenRef *req)
{
        struct err err;
        uint32_t i = find(c, req->name);
        if (i == MAP_NONE) {
                err_set(&err, ERR_NOT_FOUND, .msg = fmt("there is no token %s", req->name),
                        .hint = "berth token ls shows those that there are");
                reply_error(c, &err);
                return;
        }
        if (req->if_match && req->if_match != c->tokens.at[i].seq) {
                err_set(&err, ERR_CONFLICT, .msg = "the token has changed since you looked at it",
                        .hint = "look again: berth token ls");
                reply_error(c, &err);
                return;
        }
        if (!c->tokens.at[i].revoked_at) { /* twice is as good as once */
                Pb__AccessToken m = PB__ACCESS_TOKEN__INIT;
                m.name = req->name;
                m.revoked_by = (char *)(str_empty(c->in->actor) ? "server" : c->in->actor);
                told(c, PB__EVENT_TYPE__E__TokenRevoked, &m,
                     arena_printf(&c->step, "token %s", req->name));
        }
        reply_token(c, i, false);
}

static int may_use(struct core *c, const struct access *t, const Pb__UseTokenRequest *req)
{
        struct err err;
        const char *again = "make another one: berth token create --join", *key_hint = NULL,
                   *bad_key;
        bool same =
            t && t->used_at && str_eq(t->used_by, req->node_id) && str_eq(t->used_key, req->key);
        if (!t || t->role != PB__ROLE__E__join)
                err_set(&err, ERR_AUTH, .msg = "the join token is not known here", .hint = again);
        else if (t->revoked_at)
                err_set(&err, ERR_AUTH, .msg = fmt("the join token %s was revoked", t->name),
                        .hint = again);
        else if (t->used_at && !same && !MUTANT(join_token_used_twice))
                err_set(&err, ERR_AUTH, .msg = fmt("the join token %s was used already", t->name),
                        .detail = fmt("by node %s", t->used_by), .hint = again);
        else if (t->expires_at && t->expires_at <= c->now_ms)
                err_set(&err, ERR_AUTH, .msg = fmt("the join token %s has expired", t->name),
                        .hint = again);
        else if (t->node_id && !str_eq(t->node_id, req->node_id))
                err_set(
                    &err, ERR_DENIED, .msg = fmt("the join token %s is for another node", t->name),
                    .detail = fmt("for %s, used by %s", t->node_id, req->node_id), .hint = again);
        else if (!t->node_id && !same && node_ok(node_find(c, req->node_id)))
                err_set(&err, ERR_DENIED,
                        .msg = fmt("there is a node %s already: this token is for new ones",
                                   req->node_id),
                        .hint = fmt("berth token create --join --node %s makes one for it",
                                    req->node_id));
        else if ((bad_key =
                      admission_refuses_key(c, req->node_id, req->key, t->created_at, &key_hint)))
                err_set(&err, ERR_DENIED, .msg = bad_key, .hint = key_hint);
        else
                return 0;
        reply_error(c, &err);
        return -1;
}

/* A node whose answer was lost asks again with the same key, and is told the same. */
void decide_token_use(struct core *c, const Pb__UseTokenRequest *req)
{
        uint32_t i = map_get(&c->token_by_hash, req->hash, strlen(req->hash));
        const struct access *t = i == MAP_NONE ? NULL : &c->tokens.at[i];
        if (may_use(c, t, req) < 0)
                return;
        if (!t->used_at || MUTANT(join_token_used_twice)) {
                Pb__AccessToken m = PB__ACCESS_TOKEN__INIT;
                m.name = arena_strdup(&c->step, t->name);
                m.used_by = req->node_id;
                m.used_key = req->key;
                told(c, PB__EVENT_TYPE__E__TokenUsed, &m,
                     arena_printf(&c->step, "join token %s by node %s", m.name, req->node_id));
                admission_join(c, i, req->node_id, req->key);
        }
        reply_token(c, i, false);
}

/* ---- for admission.c ---- */

const Pb__AccessToken *token_grants(const struct core *c, uint32_t i)
{
        return c->tokens.at[i].grants;
}

void tokens_revoke_of(struct core *c, const char *node_id)
{
        for (size_t i = 0; i < c->tokens.len; i++) {
                const struct access *t = &c->tokens.at[i];
                if (!t->name || !str_eq(t->node_id, node_id) || ended_at(t, c->now_ms))
                        continue;
                Pb__AccessToken m = PB__ACCESS_TOKEN__INIT;
                m.name = arena_strdup(&c->step, t->name);
                m.revoked_by = (char *)(str_empty(c->in->actor) ? "server" : c->in->actor);
                told(c, PB__EVENT_TYPE__E__TokenRevoked, &m,
                     arena_printf(&c->step, "token %s: its node was expelled", m.name));
        }
}

void tokens_keys_of(struct core *c, const char *node_id, struct key_list *ret)
{
        *ret = (struct key_list){ .at = arena_new_n(&c->step, char *, c->tokens.len + 1) };
        for (size_t i = 0; i < c->tokens.len; i++)
                if (c->tokens.at[i].name && str_eq(c->tokens.at[i].used_by, node_id) &&
                    !str_empty(c->tokens.at[i].used_key))
                        ret->at[ret->n++] = c->tokens.at[i].used_key;
}

bool token_lets_in(const struct core *c, const char *name, const char *node_id)
{
        for (size_t i = 0; i < c->tokens.len; i++) {
                const struct access *t = &c->tokens.at[i];
                if (t->name && t->role == PB__ROLE__E__node && str_eq(t->node_id, node_id) &&
                    !ended_at(t, c->now_ms) && (!name || str_eq(t->name, name)))
                        return true;
        }
        return false;
}

void decide_access_note(struct core *c, const Pb__AccessNote *note)
{
        Pb__Event e = PB__EVENT__INIT;
        e.type = note->type;
        e.message = note->message;
        e.actor = note->actor;
        if (note->type == PB__EVENT_TYPE__E__WorkloadLogsRead) {
                struct unit_ix w = workload_find(c, note->workload_id);
                e.workload_id = note->workload_id;
                e.node_id = unit_ok(w) && node_ok(unit_at(c, w)->node)
                                ? node_at(c, unit_at(c, w)->node)->id
                                : (char *)"";
        }
        notice(c, note->type == PB__EVENT_TYPE__E__WorkloadLogsRead ? NOTICE_AUDIT : NOTICE,
               note->actor, note->more, &e);
}

/* ---- events ---- */

static bool is_hash(const char *s)
{
        return s && strlen(s) == HASH_LEN && strspn(s, "0123456789abcdef") == HASH_LEN;
}

static bool grants_are_sane(const Pb__AccessToken *m);

const char *wrong_token(struct core *c, const Pb__Event *e)
{
        const Pb__AccessToken *m = e->access;
        if (!m || !id_is_valid(m->name))
                return "it names no token";
        uint32_t i = find(c, m->name);
        if (e->type != PB__EVENT_TYPE__E__TokenCreated && i == MAP_NONE)
                return "there is no such token";
        switch (e->type) {
        case PB__EVENT_TYPE__E__TokenCreated:
                if (!is_hash(m->hash) || map_get(&c->token_by_hash, m->hash, HASH_LEN) != MAP_NONE)
                        return "its hash is missing or taken";
                if (m->role < PB__ROLE__E__viewer || m->role > PB__ROLE__E__join ||
                    !time_is_sane(m->expires_at))
                        return "its role or its end is out of range";
                if (!grants_are_sane(m))
                        return "what it says of its node is out of range";
                return i != MAP_NONE && !ended_at(&c->tokens.at[i], e->timestamp)
                           ? "there is such a token"
                           : NULL;
        case PB__EVENT_TYPE__E__TokenUsed:
                return c->tokens.at[i].role != PB__ROLE__E__join || c->tokens.at[i].used_at ||
                               str_empty(m->used_by)
                           ? "it cannot be used"
                           : NULL;
        case PB__EVENT_TYPE__E__TokenRevoked:
                return c->tokens.at[i].revoked_at ? "it was revoked before" : NULL;
        default:
                return NULL;
        }
}

/* A place in the table, with no name and no hash yet. */
static uint32_t place_for(struct core *c, const char *name)
{
        uint32_t i = find(c, name);
        if (i != MAP_NONE) { /* an ended one of that name makes room */
                bool unsaved = c->tokens.at[i].unsaved;
                map_remove(&c->token_by_name, i);
                map_remove(&c->token_by_hash, i);
                token_fini(&c->tokens.at[i]);
                c->tokens.at[i].unsaved = unsaved;
        } else if (c->free_tokens.len)
                i = array_pop(&c->free_tokens);
        else {
                *array_push(&c->tokens) = (struct access){ 0 };
                i = (uint32_t)c->tokens.len - 1;
        }
        return i;
}

static char *text(const char *s)
{
        return str_empty(s) ? NULL : mem_strdup(s);
}

static void put(struct core *c, uint32_t i, const Pb__AccessToken *m)
{
        struct access *t = &c->tokens.at[i];
        t->name = mem_strdup(m->name);
        t->hash = mem_strdup(m->hash);
        t->role = (int32_t)m->role;
        t->created_by = text(m->created_by);
        t->node_id = text(m->node_id);
        t->created_at = m->created_at;
        t->expires_at = m->expires_at;
        t->revoked_at = m->revoked_at;
        t->revoked_by = text(m->revoked_by);
        t->used_at = m->used_at;
        t->used_by = text(m->used_by);
        t->used_key = text(m->used_key);
        if (m->n_labels || m->n_taints || m->capacity) {
                Pb__AccessToken g = PB__ACCESS_TOKEN__INIT;
                g.labels = m->labels;
                g.n_labels = m->n_labels;
                g.taints = m->taints;
                g.n_taints = m->n_taints;
                g.capacity = m->capacity;
                t->grants = (Pb__AccessToken *)pb_clone(&t->memory, &g.base);
        }
        map_put(&c->token_by_name, i);
        map_put(&c->token_by_hash, i);
}

/* What it says of its node makes sense. */
static bool grants_are_sane(const Pb__AccessToken *m)
{
        Pb__Node taints = PB__NODE__INIT;
        taints.taints = m->taints;
        taints.n_taints = m->n_taints;
        return m->n_labels <= 64 && taints_are_sane(&taints) &&
               (!m->capacity || resources_are_sane(m->capacity));
}

void apply_token_event(struct core *c, const Pb__Event *e)
{
        const Pb__AccessToken *m = e->access;
        uint32_t i =
            e->type == PB__EVENT_TYPE__E__TokenCreated ? place_for(c, m->name) : find(c, m->name);
        struct access *t = &c->tokens.at[i];
        c->tokens_version++;
        switch (e->type) {
        case PB__EVENT_TYPE__E__TokenCreated:
                put(c, i, m);
                t->created_at = e->timestamp;
                break;
        case PB__EVENT_TYPE__E__TokenRevoked:
                t->revoked_at = e->timestamp;
                text_set(&t->revoked_by, m->revoked_by);
                break;
        case PB__EVENT_TYPE__E__TokenUsed:
                t->used_at = e->timestamp;
                text_set(&t->used_by, m->used_by);
                text_set(&t->used_key, m->used_key);
                break;
        default: /* TokenRemoved */
                record_removed(c, RECORD_TOKEN, t->name);
                map_remove(&c->token_by_name, i);
                map_remove(&c->token_by_hash, i);
                token_fini(t);
                *array_push(&c->free_tokens) = i;
                return;
        }
        t->seq = e->seq;
        record_changed(c, RECORD_TOKEN, i, 1, 0);
}

/* ---- records ---- */

static void *pack(struct core *c, uint32_t i, struct arena *a, size_t *ret_len)
{
        Pb__AccessToken m;
        message(&c->tokens.at[i], &m);
        return pb_pack_arena(a, &m.base, ret_len);
}

static const char *load(struct core *c, const char *text, const ProtobufCMessage *msg)
{
        const Pb__AccessToken *m = (const Pb__AccessToken *)msg;
        if (!id_is_valid(m->name) || !str_eq(m->name, text) || !is_hash(m->hash) ||
            find(c, text) != MAP_NONE ||
            map_get(&c->token_by_hash, m->hash, HASH_LEN) != MAP_NONE ||
            m->role < PB__ROLE__E__viewer || m->role > PB__ROLE__E__join ||
            !time_is_sane(m->created_at) || !time_is_sane(m->expires_at) ||
            !time_is_sane(m->revoked_at) || !time_is_sane(m->used_at) ||
            !m->used_at != str_empty(m->used_by) || !grants_are_sane(m)) /* (K2) */
                return "it is no token of its key";
        uint32_t i = place_for(c, text);
        put(c, i, m);
        c->tokens.at[i].seq = m->resource_version;
        c->tokens_version++;
        return NULL;
}

static const char *name(const struct core *c, uint32_t slot, struct arena *a)
{
        (void)a;
        return c->tokens.at[slot].name;
}

const struct record_kind token_records = {
        RECORD_TABLE(tokens, struct access), .name = name, .find = find, .pack = pack, .load = load,
};

void tokens_dump(const struct core *c, struct str *out)
{
        size_t n;
        const struct access **list = sorted(c, &n);
        for (size_t i = 0; i < n; i++) {
                const struct access *t = list[i];
                str_addf(out,
                         "token %s role=%d hash=%s at=%lld by=%s until=%lld revoked=%lld by=%s "
                         "node=%s used=%lld by=%s key=%s seq=%llu "
                         "grants=%zu/%zu/%d\n",
                         t->name, t->role, t->hash, (long long)t->created_at,
                         t->created_by ? t->created_by : "-", (long long)t->expires_at,
                         (long long)t->revoked_at, t->revoked_by ? t->revoked_by : "-",
                         t->node_id ? t->node_id : "-", (long long)t->used_at,
                         t->used_by ? t->used_by : "-", t->used_key ? t->used_key : "-",
                         (unsigned long long)t->seq, t->grants ? t->grants->n_labels : 0,
                         t->grants ? t->grants->n_taints : 0, t->grants && t->grants->capacity);
        }
}

#define BROKEN(err, which, what, who)                                                              \
        err_set(err, ERR_INTERNAL, .msg = "invariant " which " is broken: " what, .detail = (who))

int tokens_check(const struct core *c, struct err *err)
{
        uint32_t n = 0;
        for (uint32_t i = 0; i < c->tokens.len; i++) {
                const struct access *t = &c->tokens.at[i];
                if (!t->name)
                        continue;
                n++;
                if (find(c, t->name) != i ||
                    map_get(&c->token_by_hash, t->hash, strlen(t->hash)) != i)
                        return BROKEN(err, "K1", "a token is found by its name and its hash",
                                      t->name);
                if (!t->used_at != !t->used_by)
                        return BROKEN(err, "K2", "a used token was used by a node", t->name);
        }
        return n == map_len(&c->token_by_name) && n == map_len(&c->token_by_hash)
                   ? 0
                   : BROKEN(err, "K1", "tokens are counted", "");
}
