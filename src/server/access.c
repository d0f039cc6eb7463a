/* server/access.c: see access.h. */
#include "server/access.h"

#include "base/array.h"
#include "base/file.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "model/canon.h"
#include "model/pb.h"
#include "net/grpc.h"
#include "net/http.h"
#include "net/tls.h"
#include "server/io.h"
#include <event2/event.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

#define ADDRESSES 4096     /* buckets of failures; addresses that share one share its limit */
#define FAILURES_PER_S 2   /* per address, beyond what may come at once */
#define LINES_PER_S 10     /* in the log */
#define NOTES_PER_S 50     /* refusals that the core is told of; the others are counted */
#define LOOK_MS 500        /* at streams that tokens opened, when the table has changed ... */
#define LOOKS_PER_SWEEP 20 /* ... and at the latest after so many, for those whose time is over */
#define GUARDED_MANY 4096
#define SHARES 8 /* one caller's part of the streams that there can be is one of so many */

struct access_token {
        char *name, *node_id;
        char hash[65];
        int role;
        int64_t expires_at, revoked_at, used_at;
};

/* "NODE ": it was expelled; "NODE KEY": that key was let in since; " KEY": that key was revoked. */
struct expelled {
        char *text;
};

struct access_table {
        struct access_token *at;
        size_t n;
        struct map by_hash;
        ARRAY(struct expelled) expelled;
        struct map by_expelled;
};

/* A call that goes on. */
struct guarded {
        uint64_t id; /* of the HTTP request or the gRPC call */
        bool http;
        char hash[65];
};

/* A bucket of failures: full again after a while. */
struct bucket {
        int64_t at_ms;
        int32_t left_x1000;
};

struct access {
        struct io *io;
        struct access_table *table; /* NULL: none was published yet */
        struct bucket addresses[ADDRESSES];
        struct bucket lines, notes;
        uint64_t untold; /* refusals that the core was not told of */
        /* that tokens opened; those that ended are swept now and then */
        ARRAY(struct guarded) streams;
        struct event *look; /* at them; set while there are any */
        unsigned looks;
        bool changed; /* another table since the last look */
};

/* ---- the table ---- */

static struct map_key hash_key(const void *ctx, uint32_t i)
{
        const struct access_table *t = ctx;
        return (struct map_key){ t->at[i].hash, strlen(t->at[i].hash) };
}

static void count_token(void *ctx, const struct core_token *token)
{
        (void)token;
        ++*(size_t *)ctx;
}

static void copy_token(void *ctx, const struct core_token *from)
{
        struct access_table *t = ctx;
        struct access_token *to = &t->at[t->n];
        *to = (struct access_token){ .name = mem_strdup(from->name),
                                     .node_id = mem_strdup(from->node_id),
                                     .role = from->role,
                                     .expires_at = from->expires_at,
                                     .revoked_at = from->revoked_at,
                                     .used_at = from->used_at };
        snprintf(to->hash, sizeof(to->hash), "%s", from->hash);
        map_put(&t->by_hash, (uint32_t)t->n++);
}

static struct map_key expelled_key(const void *ctx, uint32_t i)
{
        const struct access_table *t = ctx;
        return (struct map_key){ t->expelled.at[i].text, strlen(t->expelled.at[i].text) };
}

static void add_expelled(struct access_table *t, const char *node_id, const char *key)
{
        struct expelled row = { .text = mem_strdup(fmt("%s %s", node_id, key)) };
        *array_push(&t->expelled) = row;
        if (map_get(&t->by_expelled, row.text, strlen(row.text)) == MAP_NONE)
                map_put(&t->by_expelled, (uint32_t)t->expelled.len - 1);
}

static void copy_expelled(void *ctx, const struct core_expelled *from)
{
        struct access_table *t = ctx;
        add_expelled(t, from->node_id, "");
        for (size_t i = 0; i < from->n_admitted; i++)
                add_expelled(t, from->node_id, from->admitted[i]);
        for (size_t i = 0; i < from->n_revoked; i++)
                add_expelled(t, "", from->revoked[i]);
}

static bool has_expelled(const struct access *a, const char *node_id, const char *key)
{
        const char *text = fmt("%s %s", node_id, key);
        return a->table && map_get(&a->table->by_expelled, text, strlen(text)) != MAP_NONE;
}

void access_table_free(struct access_table *t)
{
        if (!t)
                return;
        for (size_t i = 0; i < t->expelled.len; i++)
                mem_free(t->expelled.at[i].text);
        array_fini(&t->expelled);
        map_fini(&t->by_expelled);
        for (size_t i = 0; i < t->n; i++) {
                mem_free(t->at[i].name);
                mem_free(t->at[i].node_id);
        }
        mem_free(t->at);
        map_fini(&t->by_hash);
        mem_free(t);
}

void access_publish(struct server *s, const struct core *core, uint64_t *version)
{
        uint64_t now = core_tokens_version(core) + 1; /* 0: never published */
        if (now == *version)
                return;
        *version = now;
        struct access_table *t = mem_must(sizeof(*t));
        size_t n = 0;
        core_each_token(core, count_token, &n);
        t->at = mem_must((n + 1) * sizeof(*t->at));
        map_init(&t->by_hash, hash_key, t);
        map_init(&t->by_expelled, expelled_key, t);
        core_each_token(core, copy_token, t);
        core_each_expelled(core, copy_expelled, t);
        access_table_free(atomic_exchange(&s->tokens, t));
}

/* What was published since the last look. */
static void refresh(struct access *a)
{
        struct server *s = a->io->s;
        if (!atomic_load_explicit(&s->tokens, memory_order_relaxed))
                return;
        struct access_table *t = atomic_exchange(&s->tokens, NULL);
        if (!t)
                return;
        access_table_free(a->table);
        a->table = t;
        a->changed = true;
}

static void on_look(evutil_socket_t fd, short what, void *ctx);

struct access *access_create(struct io *io)
{
        struct access *a = mem_must(sizeof(*a));
        a->io = io;
        a->look = event_new(io->base, -1, EV_PERSIST, on_look, a);
        return a;
}

void access_destroy(struct access *a)
{
        if (!a)
                return;
        access_table_free(a->table);
        event_free(a->look);
        array_fini(&a->streams);
        mem_free(a);
}

/* ---- secrets ---- */

void token_make(const char *prefix, char ret_text[static TOKEN_TEXT_LEN + 1],
                char ret_hash[static 65])
{
        static const char digits[] =
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789AB";
        unsigned char random[TOKEN_TEXT_LEN - 6];
        must(RAND_bytes(random, sizeof(random)) == 1, "the system gives random bytes");
        memcpy(ret_text, prefix, 6);
        for (size_t i = 0; i < sizeof(random); i++)
                /* 43 digits, at least 5.9 bits each: more than 250 bits */
                ret_text[6 + i] = digits[random[i] & 63];
        ret_text[TOKEN_TEXT_LEN] = 0;
        OPENSSL_cleanse(random, sizeof(random));
        token_hash(ret_text, ret_hash);
}

void token_hash(const char *text, char ret_hash[static 65])
{
        char hash[CANON_HASH_LEN + 1];
        canon_hash_bytes(text, strcspn(text, "."), hash);
        memcpy(ret_hash, hash + strlen("sha256:"), 65);
}

int access_first_token(struct server *s, char ret_hash[static 65], struct err *err)
{
        char text[TOKEN_TEXT_LEN + 2];
        if (!s->opt.data_dir)
                return err_set(err, ERR_FAILED,
                               .msg = "there is no admin's token, and no data directory to put the "
                                      "first one into",
                               .hint = "start with --data DIR");
        token_make(TOKEN_PREFIX, text, ret_hash);
        text[TOKEN_TEXT_LEN] = '\n';
        const char *path = fmt("%s/" ADMIN_TOKEN_FILE, s->opt.data_dir);
        int r = file_write_atomic(path, text, TOKEN_TEXT_LEN + 1, 0600,
                                  /* before the hash is kept: a file without a record can be made
                                   * again */
                                  err);
        OPENSSL_cleanse(text, sizeof(text));
        if (r >= 0)
                log_info("the first admin's token is in a file; keep it safe, and make tokens for "
                         "everybody else with it",
                         LOG_S("file", path));
        return r;
}

/* ---- who ---- */

struct credentials access_of_http(const struct http_request *req)
{
        return (struct credentials){ .who = http_identity(req),
                                     .authorization = http_header(req, "Authorization"),
                                     .cookie = http_header(req, "Cookie"),
                                     .actor = http_header(req, "X-Berth-Actor"),
                                     .role = http_header(req, "X-Berth-Role"),
                                     .peer = http_peer(req) };
}

struct credentials access_of_grpc(const struct grpc_call *call)
{
        const struct tls_identity *who = grpc_call_identity(call);
        const char *passed_on = who && tls_identity_name(who, "server")
                                    ? grpc_call_header(call, PEER_HEADER, NULL)
                                    : NULL;
        return (struct credentials){ .who = who,
                                     .authorization = grpc_call_header(call, "authorization", NULL),
                                     .actor = grpc_call_header(call, "x-berth-actor", NULL),
                                     .role = grpc_call_header(call, "x-berth-role", NULL),
                                     .peer = passed_on ? passed_on : grpc_call_peer(call) };
}

const char *access_refusal_name(enum access_refusal reason)
{
        static const char *const names[] = {
                [ACCESS_NO_CREDENTIALS] = "no-credentials",
                [ACCESS_UNKNOWN_TOKEN] = "unknown-token",
                [ACCESS_REVOKED_TOKEN] = "revoked-token",
                [ACCESS_EXPIRED_TOKEN] = "expired-token",
                [ACCESS_USED_TOKEN] = "used-token",
                [ACCESS_WRONG_ROLE] = "wrong-role",
                [ACCESS_WRONG_NODE] = "wrong-node",
                [ACCESS_RATE_LIMITED] = "rate-limited",
                [ACCESS_EXPELLED] = "expelled",
                [ACCESS_BAD_REQUEST] = "bad-request",
        };
        return names[reason];
}

const char *access_role_name(int role)
{
        const ProtobufCEnumValue *v =
            role ? protobuf_c_enum_descriptor_get_value(&pb__role__e__descriptor, role) : NULL;
        return v ? v->name : "";
}

static int role_from(const char *name)
{
        const ProtobufCEnumValue *v =
            str_empty(name)
                ? NULL
                : protobuf_c_enum_descriptor_get_value_by_name(&pb__role__e__descriptor, name);
        return v && v->value >= PB__ROLE__E__viewer && v->value <= PB__ROLE__E__admin
                   ? v->value
                   : PB__ROLE__E__unset;
}

/* Other servers of the same host share our cookies, and may have one whose name ends as ours. */
const char *access_cookie(const char *cookie)
{
        for (const char *at = cookie; at && (at = strstr(at, TOKEN_COOKIE)); at++)
                if (at == cookie || at[-1] == ' ' || at[-1] == ';')
                        return at + strlen(TOKEN_COOKIE);
        return NULL;
}

/* The token in the headers, in buf; NULL: none was sent; "": what was sent is none. */
static const char *token_text(const struct credentials *c, char buf[static 256])
{
        const char *text = NULL;
        if (c->authorization) {
                text = strncasecmp(c->authorization, "Bearer ", 7) == 0 ? c->authorization + 7 : "";
                text += strspn(text, " ");
        } else if (c->cookie) {
                text = access_cookie(c->cookie);
        }
        if (!text)
                return NULL;
        size_t len = strcspn(text, "; ");
        if (len >= 256)
                return "";
        memcpy(buf, text, len);
        buf[len] = 0;
        return buf;
}

const char *access_token_of(const struct credentials *c, char buf[static 256])
{
        const char *text = token_text(c, buf);
        return text ? text : "";
}

#define PASSES (-1)

static int by_token(const struct access *a, const char *text, struct caller *ret)
{
        char hash[65];
        token_hash(text, hash);
        uint32_t i = a->table ? map_get(&a->table->by_hash, hash, strlen(hash)) : MAP_NONE;
        if (i == MAP_NONE)
                return ACCESS_UNKNOWN_TOKEN;
        const struct access_token *t = &a->table->at[i];
        snprintf(ret->actor, sizeof(ret->actor), "%s", t->name);
        if (t->revoked_at)
                return ACCESS_REVOKED_TOKEN;
        if (t->expires_at && t->expires_at <= clock_wall_ms())
                return ACCESS_EXPIRED_TOKEN;
        if (t->role == PB__ROLE__E__join)
                /* good for one thing only, and that is not asked for here */
                return ACCESS_UNKNOWN_TOKEN;
        ret->role = t->role;
        ret->by_token = true;
        snprintf(ret->node_id, sizeof(ret->node_id), "%s", t->node_id);
        return PASSES;
}

static void by_certificate(const struct credentials *c, struct caller *ret)
{
        const char *role = tls_identity_name(c->who, "role");
        io_actor(c->who, NULL, ret->actor);
        if (tls_identity_name(c->who, "server")) {
                ret->role = role_from(c->role);
                if (ret->role)
                        io_actor(NULL, c->actor, ret->actor);
        } else if (tls_identity_name(c->who, "user"))
                ret->role = role ? role_from(role) : PB__ROLE__E__viewer;
        else
                ret->role = PB__ROLE__E__node;
}

/* Nothing may come under this name but keys that were let in since. */
static bool is_out(const struct access *a, const char *node_id, const char *key)
{
        return has_expelled(a, node_id, "") && (str_empty(key) || !has_expelled(a, node_id, key));
}

static bool certificate_is_out(const struct access *a, const struct tls_identity *who)
{
        const char *node = tls_identity_name(who, "node");
        if (who->key[0] && has_expelled(a, "", who->key))
                return true;
        if (node)
                return is_out(a, node, who->key);
        for (size_t i = 0;
             i < who->n_dns && !tls_identity_name(who, "user") && !tls_identity_name(who, "server");
             i++)
                /* one made by another tool is that of the nodes in its DNS names */
                if (is_out(a, who->dns[i], who->key))
                        return true;
        return false;
}

/* PASSES: the caller is known. */
static int find_caller(struct access *a, const struct credentials *c, struct caller *ret)
{
        char buf[256];
        *ret = (struct caller){ .actor = "anonymous" };
        if (!a->io->s->opt.auth) {
                io_actor(c->who, c->actor, ret->actor);
                ret->role = PB__ROLE__E__admin;
                return PASSES;
        }
        refresh(a);
        const char *text = token_text(c, buf);
        int r = ACCESS_NO_CREDENTIALS;
        if (text)
                r = by_token(a, text, ret);
        else if (c->who) {
                by_certificate(c, ret);
                r = ret->role == PB__ROLE__E__node && certificate_is_out(a, c->who)
                        ? (int)ACCESS_EXPELLED
                        : PASSES;
        }
        OPENSSL_cleanse(buf, sizeof(buf));
        return r;
}

void access_caller(struct access *a, const struct credentials *c, struct caller *ret)
{
        (void)find_caller(a, c, ret);
}

/* ---- calls that go on ---- */

static bool still_good(const struct access *a, const char *hash)
{
        uint32_t i = a->table ? map_get(&a->table->by_hash, hash, strlen(hash)) : MAP_NONE;
        const struct access_token *t = i == MAP_NONE ? NULL : &a->table->at[i];
        return t && !t->revoked_at && (!t->expires_at || t->expires_at > clock_wall_ms());
}

/* False: it has ended by itself. */
static bool look_at(struct access *a, const struct guarded *g)
{
        struct http_request *http = g->http ? http_server_request(a->io->http, g->id) : NULL;
        struct grpc_call *grpc = g->http ? NULL : grpc_server_call(a->io->grpc, g->id);
        if (!http && !grpc)
                return false;
        if (still_good(a, g->hash))
                return true;
        struct err err;
        err_set(&err, ERR_AUTH, .msg = "the token that opened this was revoked, or has expired",
                .hint = "come again with another one");
        log_info("a stream was ended: its token is no longer good",
                 LOG_S("peer", http ? http_peer(http) : grpc_call_peer(grpc)));
        if (http)
                http_abort(http);
        else
                grpc_finish_err(grpc, &err, NULL);
        return false;
}

static void on_look(evutil_socket_t fd, short what, void *ctx)
{
        struct access *a = ctx;
        (void)fd;
        (void)what;
        refresh(a);
        if (!a->changed && ++a->looks % LOOKS_PER_SWEEP != 0)
                return;
        a->changed = false;
        for (size_t i = 0; i < a->streams.len;)
                if (look_at(a, &a->streams.at[i]))
                        i++;
                else
                        a->streams.at[i] = a->streams.at[--a->streams.len];
        if (a->streams.len == 0)
                event_del(a->look);
}

static void guard(struct access *a, uint64_t id, bool http, const struct credentials *c)
{
        char buf[256];
        const char *text = a->io->s->opt.auth ? token_text(c, buf) : NULL;
        if (str_empty(text))
                return;
        struct guarded *g = array_push(&a->streams);
        *g = (struct guarded){ .id = id, .http = http };
        token_hash(text, g->hash);
        OPENSSL_cleanse(buf, sizeof(buf));
        if (a->streams.len > GUARDED_MANY)
                a->changed = true; /* most of them have ended already */
        if (!event_pending(a->look, EV_TIMEOUT, NULL))
                event_add(a->look, &(struct timeval){ .tv_usec = LOOK_MS * 1000 });
}

void access_guard_http(struct access *a, const struct http_request *req,
                       const struct credentials *c)
{
        guard(a, http_id(req), true, c);
}

void access_guard_grpc(struct access *a, const struct grpc_call *call, const struct credentials *c)
{
        guard(a, grpc_call_id(call), false, c);
}

/* ---- refusals ---- */

static bool bucket_has(struct bucket *b, int32_t burst, int64_t per_s_x1000)
{
        int64_t now = mono_ms(),
                gained = b->at_ms ? (now - b->at_ms) * per_s_x1000 / 1000 : burst * 1000ll;
        /* else the time counts on: whoever asks often must not keep it from filling */
        if (gained > 0) {
                int64_t left = b->left_x1000 + gained;
                b->left_x1000 = (int32_t)(left > burst * 1000ll ? burst * 1000ll : left);
                b->at_ms = now;
        }
        return b->left_x1000 >= 1000;
}

static bool bucket_take(struct bucket *b, int32_t burst, int64_t per_s_x1000)
{
        bool has = bucket_has(b, burst, per_s_x1000);
        if (has)
                b->left_x1000 -= 1000;
        return has;
}

static struct bucket *bucket_of(struct access *a, const char *peer)
{
        const char *colon = peer ? strrchr(peer, ':') : NULL;
        return &a->addresses[hash64(peer ? peer : "", colon ? (size_t)(colon - peer) : 0) %
                             ADDRESSES];
}

/* For those who look after the cluster, in the events. The core limits how many of one caller are
 * told one by one; here is only a bound on what the ring is asked to look at. */
static void note(struct access *a, const char *text, const char *actor)
{
        if (!bucket_take(&a->notes, NOTES_PER_S, NOTES_PER_S * 1000)) {
                a->untold++;
                return;
        }
        struct ring_msg *msg = ring_msg_new(INPUT_ACCESS_NOTE);
        Pb__AccessNote *n = (Pb__AccessNote *)pb_new(&msg->memory, &pb__access_note__descriptor);
        n->type = PB__EVENT_TYPE__E__AccessRefused;
        n->message = arena_strdup(&msg->memory, text);
        n->actor = arena_strdup(&msg->memory, actor);
        n->more = a->untold;
        msg->in.msg = &n->base;
        if (server_store_is_away(a->io->s) || !io_to_ring(a->io, msg, false)) {
                a->untold++;
                ring_msg_free(msg);
        } else
                a->untold = 0;
}

void access_refused(struct access *a, enum access_refusal reason, const char *actor,
                    const char *what, const char *peer)
{
        count(&a->io->s->metrics.access_refused[reason]);
        if (reason == ACCESS_RATE_LIMITED)
                return;
        if (bucket_take(&a->lines, LINES_PER_S, LINES_PER_S * 1000))
                log_warn("a call was refused", LOG_S("reason", access_refusal_name(reason)),
                         LOG_S("op", what), LOG_S("actor", actor), LOG_S("peer", peer));
        const char *colon = peer ? strrchr(peer, ':') : NULL;
        note(a,
             fmt("%s was refused to %.64s at %.*s: %s", what, actor,
                 colon ? (int)(colon - peer) : 0, peer ? peer : "", access_refusal_name(reason)),
             actor);
}

static int err_expelled(const char *who, struct err *err)
{
        return err_set(err, ERR_DENIED,
                       .msg =
                           fmt("%.100s was expelled: its certificates and tokens are refused", who),
                       .hint = "an admin can let it come back: berth token create --join --node "
                               "ID, and on its machine a new key");
}

static int err_unknown(enum access_refusal reason, const struct caller *c, struct err *err)
{
        if (reason == ACCESS_EXPELLED)
                return err_expelled(c->actor, err);
        const char *msg =
            reason == ACCESS_NO_CREDENTIALS  ? "this call needs a token or a certificate"
            : reason == ACCESS_REVOKED_TOKEN ? fmt("the token %s was revoked", c->actor)
            : reason == ACCESS_EXPIRED_TOKEN ? fmt("the token %s has expired", c->actor)
                                             : "the token is not known here";
        const char *hint = reason == ACCESS_NO_CREDENTIALS
                               ? "send Authorization: Bearer TOKEN; commands take --token-file or "
                                 "BERTH_TOKEN. The first token is in the server's data "
                                 "directory: " ADMIN_TOKEN_FILE
                               : "ask an admin for another one: berth token create NAME --role "
                                 "viewer|operator|admin";
        return err_set(err, ERR_AUTH, .msg = msg, .hint = hint);
}

static int err_too_many(struct err *err)
{
        return err_set(err, ERR_LIMIT, .msg = "too many calls from this address were refused",
                       .hint = "wait a little, and use a token that works", .retry_after_ms = 1000);
}

size_t access_share(const struct server *s, size_t of)
{
        return !s->opt.auth ? of : of >= SHARES ? of / SHARES : 1;
}

int access_share_used(const struct caller *who, const char *what, size_t share, struct err *err)
{
        return err_set(err, ERR_LIMIT, .msg = fmt("%s has too many %s open", who->actor, what),
                       .detail = fmt("at most %zu of one caller", share),
                       .hint = "close some of them, or use a token for each program",
                       .retry_after_ms = 5000);
}

int access_check_address(struct access *a, const char *peer, struct err *err)
{
        if (bucket_has(bucket_of(a, peer), (int32_t)a->io->s->opt.max_refusals,
                       FAILURES_PER_S * 1000))
                return 0;
        count(&a->io->s->metrics.access_refused[ACCESS_RATE_LIMITED]);
        return err_too_many(err);
}

static int fail(struct access *a, enum access_refusal reason, const char *what,
                const struct credentials *c, const struct caller *who, struct err *err)
{
        if (!bucket_take(bucket_of(a, c->peer), (int32_t)a->io->s->opt.max_refusals,
                         FAILURES_PER_S * 1000)) {
                access_refused(a, ACCESS_RATE_LIMITED, who->actor, what, c->peer);
                return err_too_many(err);
        }
        access_refused(a, reason, who->actor, what, c->peer);
        return -1;
}

bool access_may(enum op_needs needs, int role)
{
        switch (needs) {
        case NEEDS_NOTHING:
                return true;
        case NEEDS_VIEWER:
                return role >= PB__ROLE__E__viewer && role <= PB__ROLE__E__admin;
        case NEEDS_OPERATOR:
                return role == PB__ROLE__E__operator || role == PB__ROLE__E__admin;
        case NEEDS_NODE:
                return role == PB__ROLE__E__node;
        case NEEDS_UNSAID:
        case NEEDS_ADMIN:
                break;
        }
        return role == PB__ROLE__E__admin;
}

const char *access_needs_name(enum op_needs needs)
{
        return needs == NEEDS_VIEWER     ? "viewer"
               : needs == NEEDS_OPERATOR ? "operator"
               : needs == NEEDS_NODE     ? "node"
                                         : "admin";
}

int access_check(struct access *a, const struct op *op, const struct credentials *c,
                 struct caller *ret, struct err *err)
{
        int r = find_caller(a, c, ret);
        if (!a->io->s->opt.auth || op->needs == NEEDS_NOTHING)
                return 0;
        if (r != PASSES) {
                int told = fail(a, (enum access_refusal)r, op->name, c, ret, err);
                return told != -1 ? told : err_unknown((enum access_refusal)r, ret, err);
        }
        if (access_may(op->needs, ret->role))
                return 0;
        int told = fail(a, ACCESS_WRONG_ROLE, op->name, c, ret, err);
        if (told != -1)
                return told;
        const char *role = access_role_name(ret->role);
        return err_set(err, ERR_DENIED,
                       .msg = fmt("%s needs the role %s, and %s has %s%s", op->name,
                                  access_needs_name(op->needs), ret->actor,
                                  role[0] ? "only the role " : "none", role),
                       .hint = op->needs == NEEDS_NODE
                                   ? "agents come with a node's certificate (berth token create "
                                     "--join) or a token of the role node"
                                   : fmt("ask an admin: berth token create NAME --role %s",
                                         access_needs_name(op->needs)));
}

static int refuse_expelled(struct access *a, const struct credentials *c, const char *actor,
                           const char *node_id, struct err *err)
{
        access_refused(a, ACCESS_EXPELLED, actor, fmt("being node %.100s", node_id), c->peer);
        return err_expelled(fmt("node %.100s", node_id), err);
}

int access_check_node(struct access *a, const struct credentials *c, const char *node_id,
                      struct err *err)
{
        struct io *io = a->io;
        struct caller who;
        int r = find_caller(a, c, &who);
        if (!io->s->opt.auth) {
                refresh(a);
                if (c->who && io->tls && io->s->opt.tls_ca && certificate_is_out(a, c->who))
                        return refuse_expelled(a, c, who.actor, node_id, err);
                return io_check_node(io, c->who, node_id, c->peer, err);
        }
        if (r == PASSES && who.by_token && who.role == PB__ROLE__E__node &&
            (!who.node_id[0] || str_eq(who.node_id, node_id)))
                /* a token of that node alone was made after it was expelled: the others were
                 * revoked */
                return !who.node_id[0] && is_out(a, node_id, NULL)
                           ? refuse_expelled(a, c, who.actor, node_id, err)
                           : 0;
        if (r == PASSES && !who.by_token && c->who && io->tls)
                return io_check_node(io, c->who, node_id, c->peer, err);
        if (r == ACCESS_EXPELLED)
                return refuse_expelled(a, c, who.actor, node_id, err);
        access_refused(a, r == PASSES ? ACCESS_WRONG_NODE : (enum access_refusal)r, who.actor,
                       fmt("being node %.100s", node_id), c->peer);
        return err_set(
            err, ERR_DENIED, .msg = fmt("%s is not node %.100s", who.actor, node_id),
            .hint = fmt("berth token create NAME --role node --node %.100s makes a token for it",
                        node_id));
}

void access_fill_hello(struct access *a, const struct credentials *c, struct arena *memory,
                       Pb__Hello *hello)
{
        struct caller who;
        (void)find_caller(a, c, &who);
        hello->token = who.by_token ? arena_strdup(memory, who.actor) : (char *)"";
        hello->key = c->who && a->io->tls && a->io->s->opt.tls_ca
                         ? arena_strdup(memory, c->who->key)
                         : (char *)"";
}

int access_check_renewal(struct access *a, const struct credentials *c, const char *node_id,
                         const char *key, struct err *err)
{
        refresh(a);
        if (certificate_is_out(a, c->who) || is_out(a, node_id, key) || has_expelled(a, "", key))
                return refuse_expelled(a, c, tls_identity_actor(c->who), node_id, err);
        return io_check_node(a->io, c->who, node_id, c->peer, err);
}

void access_join_refused(struct access *a, const char *hash, const char *node_id,
                         const struct credentials *c, struct err *err)
{
        struct caller who = { .actor = "anonymous" };
        refresh(a);
        uint32_t i = a->table ? map_get(&a->table->by_hash, hash, strlen(hash)) : MAP_NONE;
        const struct access_token *t = i == MAP_NONE ? NULL : &a->table->at[i];
        enum access_refusal reason = !t || t->role != PB__ROLE__E__join ? ACCESS_UNKNOWN_TOKEN
                                     : err->code == ERR_DENIED          ? ACCESS_WRONG_NODE
                                     : t->revoked_at                    ? ACCESS_REVOKED_TOKEN
                                     : t->used_at                       ? ACCESS_USED_TOKEN
                                                                        : ACCESS_EXPIRED_TOKEN;
        if (t)
                snprintf(who.actor, sizeof(who.actor), "%s", t->name);
        (void)fail(a, reason, fmt("joining as node %.100s", node_id), c, &who, err);
}

void access_bad_request(struct access *a, const char *node_id, const struct credentials *c,
                        struct err *err)
{
        struct caller who = { .actor = "anonymous" };
        (void)fail(a, ACCESS_BAD_REQUEST, fmt("a certificate for node %.100s", node_id), c, &who,
                   err);
}
