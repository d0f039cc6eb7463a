/* agent/agent_join.c: how this machine becomes a node with a certificate of its own, and stays one
 * (C32).
 *
 *      <data_dir>/tls/node-key.pem   made here, 0600; it never leaves this machine
 *      <data_dir>/tls/node.pem       what the server signed
 *      <data_dir>/tls/ca.pem         whom we trust: one CA, or two while one replaces the other
 *
 * First contact: the join token carries the hash of the CA that vouches for the server. The CAs are
 * fetched without trust, the one with that hash is picked, and only over a connection that it
 * vouches for is the secret sent. Later: at half of its life the certificate is renewed with the
 * same key, by the certificate itself; what is trusted is looked at more often, so that a new CA is
 * known before anybody uses it. Files are replaced in one piece and taken up for new connections;
 * the stream that runs goes on.
 */
#include "agent/agent_state.h"
#include "api.pb-c.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/pb.h"
#include "net/grpc.h"
#include "net/tls.h"
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CONTROL "/berth.v1.Control/"
#define CALL_MS 20000
#define AGAIN_MS 2000
#define PEM_MAX_BYTES (256 * 1024)
/* certificates begin this long before they are made, for clocks that differ */
#define BACKDATE_MS (5 * 60 * INT64_C(1000))
#define LOOK_MIN_MS 1000
#define LOOK_MAX_MS (10 * 60 * INT64_C(1000))
#define TRUST_MIN_MS 2000
#define TRUST_MAX_MS (3600 * INT64_C(1000))
#define SERVERS_MAX 16

static const char *path_of(const char *data_dir, const char *name)
{
        return fmt("%s/tls/%s", data_dir, name);
}

/* ---- calls before the loop runs ---- */

static int error_of(const struct grpc_reply *r, struct err *err)
{
        struct arena arena = ARENA_INIT;
        ProtobufCMessage *m = NULL;

        if (r->error.len && pb_unpack(&pb__error__descriptor, str_c(&r->error), r->error.len,
                                      &arena, &m, NULL) == 0) {
                const Pb__Error *e = (const Pb__Error *)m;
                err_set(err, err_from_grpc_status((int)r->status), .msg = e->message,
                        .detail = e->detail, .hint = e->hint);
        } else
                err_set(err, err_from_grpc_status((int)r->status),
                        .msg = r->message[0] ? r->message : grpc_status_name(r->status));
        arena_fini(&arena);
        return -(int)err->code;
}

static int ask(const char *server, struct tls *tls, const char *server_name, const char *method,
               const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type,
               struct arena *arena, ProtobufCMessage **ret, struct err *err)
{
        struct grpc_channel_options o = { .tls = tls,
                                          .server_name = server_name,
                                          .to_server = true };
        struct grpc_reply reply = { 0 };
        struct str packed = STR_INIT;
        int r;

        pb_pack(&packed, request);
        r = grpc_call_sync(server, &o, NULL, fmt(CONTROL "%s", method), str_c(&packed), packed.len,
                           CALL_MS, &reply, err);
        if (r == 0)
                r = reply.status != GRPC_OK
                        ? error_of(&reply, err)
                        : pb_unpack(type, str_c(&reply.data), reply.data.len, arena, ret, err);
        str_fini(&packed);
        grpc_reply_fini(&reply);
        return r;
}

struct pick {
        const char *hash;
        struct str found;
};

static int pick_ca(void *ctx, const struct str *cert, const struct tls_cert *facts)
{
        struct pick *p = ctx;

        if (!p->found.len && str_eq(facts->fingerprint + strlen("sha256:"), p->hash))
                str_add(&p->found, str_c(cert), cert->len);
        return 0;
}

/* The CA that the token names, from a server that is not trusted yet, into a file. */
static int fetch_ca(const struct agent_options *opt, const char *server, const char *hash,
                    const char *path, struct err *err)
{
        _cleanup_(tls_unrefp) struct tls *tls = NULL;
        struct arena arena = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        Pb__Empty nothing = PB__EMPTY__INIT;
        struct pick p = { .hash = hash };
        int r = tls_client_create(&(struct tls_options){ .any_server = true }, &tls, err);

        if (r == 0)
                r = ask(server, tls, opt->tls_server_name, "GetTrust", &nothing.base,
                        &pb__trust__descriptor, &arena, &m, err);
        if (r == 0) {
                const char *ca = ((const Pb__Trust *)m)->ca;
                (void)tls_each_cert(ca, strlen(ca), pick_ca, &p);
                r = p.found.len ? file_write_atomic(path, str_c(&p.found), p.found.len, 0644, err)
                                : err_set(err, ERR_DENIED,
                                          .msg = "the server's CA is not the one of the join token",
                                          .detail = fmt("server %s", server),
                                          .hint = "is it the right server? If its CA has changed, "
                                                  "make a new token: berth token create --join");
        }
        str_fini(&p.found);
        arena_fini(&arena);
        return r;
}

/* Also of a renewal. The certificate last: with it a new pair is complete. */
static int keep(const char *data_dir, const Pb__Certificate *c, struct err *err)
{
        int r = str_empty(c->ca) ? 0
                                 : file_write_atomic(path_of(data_dir, "ca.pem"), c->ca,
                                                     strlen(c->ca), 0644, err);

        return r < 0 ? r
                     : file_write_atomic(path_of(data_dir, "node.pem"), c->certificate,
                                         strlen(c->certificate), 0600, err);
}

static int join_once(const struct agent_options *opt, const char *server, const char *node_id,
                     const char *secret, const char *hash, const char *request, struct err *err)
{
        char ca[512];
        _cleanup_(tls_unrefp) struct tls *tls = NULL;
        struct arena arena = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        Pb__JoinRequest q = PB__JOIN_REQUEST__INIT;
        int r;

        snprintf(ca, sizeof(ca), "%s", path_of(opt->data_dir, "join-ca.pem"));
        q.secret = (char *)secret;
        q.node_id = (char *)node_id;
        q.request = (char *)request;
        r = fetch_ca(opt, server, hash, ca, err);
        if (r == 0)
                r = tls_client_create(&(struct tls_options){ .ca_file = ca }, &tls, err);
        if (r == 0)
                r = ask(server, tls, opt->tls_server_name, "JoinNode", &q.base,
                        &pb__certificate__descriptor, &arena, &m, err);
        if (r == 0)
                r = keep(opt->data_dir, (const Pb__Certificate *)m, err);
        (void)unlink(ca);
        arena_fini(&arena);
        return r;
}

/* The key that is there, or a new one. An agent whose certificate has expired comes back with the
 * key that it had. */
static int own_key(const char *data_dir, struct str *key, struct err *err)
{
        const char *path = path_of(data_dir, "node-key.pem");
        int r = dir_make(fmt("%s/tls", data_dir), 0700, err);

        if (r == 0 && file_exists(path))
                return file_read(path, PEM_MAX_BYTES, key, err);
        if (r == 0)
                r = tls_make_key(key, err);
        return r < 0 ? r : file_write_atomic(path, str_c(key), key->len, 0600, err);
}

static bool has_valid(const char *data_dir)
{
        _cleanup_(str_finip) struct str pem = STR_INIT;
        struct tls_cert facts = { 0 };
        bool valid = file_read(path_of(data_dir, "node.pem"), PEM_MAX_BYTES, &pem, NULL) == 0 &&
                     tls_cert_read(str_c(&pem), pem.len, &facts, NULL) == 0 &&
                     facts.expires_at_ms > clock_wall_ms();

        tls_cert_fini(&facts);
        return valid;
}

static bool is_worth_another_try(int code)
{
        return code == ERR_UNAVAILABLE || code == ERR_DEADLINE || code == ERR_LIMIT ||
               code == ERR_NOMEM;
}

/* One server after the other, until one says yes or no. */
static int join(const struct agent_options *opt, const char *node_id, const char *secret,
                const char *hash, const char *request, struct err *err)
{
        char list[1024], *servers[SERVERS_MAX], *rest = list;
        size_t n = 0;

        snprintf(list, sizeof(list), "%s", opt->server);
        while (n < SERVERS_MAX && (servers[n] = strsep(&rest, ",")))
                n++;
        for (unsigned tries = 0;; tries++) {
                int r = join_once(opt, servers[tries % n], node_id, secret, hash, request, err);

                if (r == 0 || !is_worth_another_try((int)err->code))
                        return r;
                if (tries % 15 == 0)
                        log_warn("the server cannot be joined yet; trying again",
                                 LOG_S("server", servers[tries % n]), LOG_E(err));
                nanosleep(&(struct timespec){ .tv_sec = AGAIN_MS / 1000 }, NULL);
        }
}

int agent_join(struct agent_options *opt, const char *node_id, struct err *err)
{
        _cleanup_(str_finip) struct str key = STR_INIT, request = STR_INIT, token = STR_INIT;
        int r = 0;

        if (opt->join[0] == '@') {
                if ((r = file_read(opt->join + 1, 4096, &token, err)) < 0)
                        return err_prefix(err, "--join");
                token.buf[strcspn(token.buf, " \t\r\n")] = 0;
        } else
                str_adds(&token, opt->join);
        char *secret = token.buf ? token.buf : (char *)"", *dot = strchr(secret, '.');
        if (!dot || strlen(dot + 1) != 64)
                return err_set(err, ERR_INVALID,
                               .msg = "this is no join token: it has no hash of a CA",
                               .hint = "berth token create --join makes one");
        *dot = 0;
        if (has_valid(opt->data_dir)) {
                log_info("this node has joined before, and its certificate is valid: the join "
                         "token is not used",
                         LOG_S("node", node_id));
                return 0;
        }
        r = own_key(opt->data_dir, &key, err);
        if (r == 0)
                r = tls_make_request(&key, node_id, &request, err);
        if (r == 0)
                r = join(opt, node_id, secret, dot + 1, str_c(&request), err);
        if (key.len)
                memset(key.buf, 0, key.len);
        if (r == 0)
                log_info("this node has joined; its certificate is in its data directory",
                         LOG_S("node", node_id), LOG_S("cert", path_of(opt->data_dir, "node.pem")));
        return r;
}

bool agent_use_joined(struct agent_options *opt, struct arena *arena)
{
        if (opt->tls_cert_file || str_empty(opt->data_dir) ||
            !file_exists(path_of(opt->data_dir, "node.pem")))
                return false;
        opt->tls_cert_file = arena_strdup(arena, path_of(opt->data_dir, "node.pem"));
        opt->tls_key_file = arena_strdup(arena, path_of(opt->data_dir, "node-key.pem"));
        opt->tls_ca_file = arena_strdup(arena, path_of(opt->data_dir, "ca.pem"));
        /* what it is says its certificate; a token in the environment is its user's, and would
         * count instead */
        opt->token = NULL;
        return true;
}

/* ---- while the agent runs ---- */

struct renewal {
        struct fleet *fleet;
        struct event *timer;
        struct grpc_call *call; /* one at a time */
        bool is_trust;          /* of the call */
        bool done;              /* its answer was taken */
        int64_t try_at_ms, trust_at_ms;
        unsigned failures;
};

static int64_t within(int64_t ms, int64_t min, int64_t max)
{
        return ms < min ? min : ms > max ? max : ms;
}

/* The life of our certificate: from when it was made. */
static int64_t life_ms(const struct fleet *f, int64_t *ret_half_ms)
{
        int64_t begins = tls_begins_at_ms(f->tls), ends = tls_expires_at_ms(f->tls);
        int64_t made = ends - begins > 2 * BACKDATE_MS || begins + BACKDATE_MS < ends
                           ? begins + BACKDATE_MS
                           : begins;

        *ret_half_ms = made + (ends - made) / 2;
        return ends - made;
}

static void on_message(struct grpc_call *call, const void *data, size_t len)
{
        struct renewal *rn = grpc_call_data(call);
        struct fleet *f = rn->fleet;
        struct arena arena = ARENA_INIT;
        struct err err = { 0 };
        ProtobufCMessage *m = NULL;
        char when[TIME_TEXT_LEN];
        int r = pb_unpack(rn->is_trust ? &pb__trust__descriptor : &pb__certificate__descriptor,
                          data, len, &arena, &m, &err);

        if (r == 0 && rn->is_trust) {
                const char *ca = ((const Pb__Trust *)m)->ca, *path = f->opt->tls_ca_file;
                _cleanup_(str_finip) struct str old = STR_INIT;
                if (!str_empty(ca) && file_read(path, PEM_MAX_BYTES, &old, NULL) == 0 &&
                    !str_eq(str_c(&old), ca)) {
                        r = file_write_atomic(path, ca, strlen(ca), 0644, &err);
                        if (r == 0)
                                log_info("what this node trusts has changed", LOG_S("file", path));
                }
        } else if (r == 0 && (r = keep(f->opt->data_dir, (const Pb__Certificate *)m, &err)) == 0)
                log_info("the certificate was renewed",
                         LOG_S("expires_at",
                               time_format(when, ((const Pb__Certificate *)m)->expires_at)));
        if (r < 0)
                log_error("the answer about the certificate cannot be used", LOG_E(&err));
        rn->done = r == 0;
        arena_fini(&arena);
}

static void on_close(struct grpc_call *call, enum grpc_status status)
{
        struct renewal *rn = grpc_call_data(call);
        struct fleet *f = rn->fleet;
        int64_t now = clock_now_ms(&f->clock), half, life = life_ms(f, &half);

        rn->call = NULL;
        if (f->stopping)
                return;
        if (rn->is_trust)
                rn->trust_at_ms = now + within(life / 10, TRUST_MIN_MS, TRUST_MAX_MS);
        else if (rn->done && status == GRPC_OK) {
                rn->failures = 0;
                rn->try_at_ms = 0;
                agent_look_at_files(f);
        } else {
                rn->failures++;
                rn->try_at_ms = now + within(life / 20, LOOK_MIN_MS, TRUST_MAX_MS);
                if (rn->failures == 1 || rn->failures % 20 == 0)
                        log_warn("the certificate could not be renewed; trying again",
                                 LOG_S("why", grpc_call_message(call)),
                                 LOG_I("tries", rn->failures),
                                 LOG_S("expires_at", time_format((char[TIME_TEXT_LEN]){ 0 },
                                                                 tls_expires_at_ms(f->tls))));
        }
}

static void begin(struct renewal *rn, const char *method, const ProtobufCMessage *request)
{
        static const struct grpc_callbacks on = { .on_message = on_message, .on_close = on_close };
        struct str packed = STR_INIT;

        pb_pack(&packed, request);
        rn->done = false;
        rn->call =
            grpc_channel_call(rn->fleet->agents[0]->channel, fmt(CONTROL "%s", method),
                              &(struct grpc_call_options){ .deadline_ms = CALL_MS }, &on, rn);
        (void)grpc_call_send(rn->call, str_c(&packed), packed.len);
        grpc_call_half_close(rn->call);
        str_fini(&packed);
}

static void renew(struct renewal *rn)
{
        struct fleet *f = rn->fleet;
        _cleanup_(str_finip) struct str key = STR_INIT, request = STR_INIT;
        struct err err = { 0 };
        Pb__RenewRequest q = PB__RENEW_REQUEST__INIT;

        if (file_read(f->opt->tls_key_file, PEM_MAX_BYTES, &key, &err) < 0 ||
            tls_make_request(&key, f->agents[0]->node_id, &request, &err) < 0) {
                rn->try_at_ms = clock_now_ms(&f->clock) + LOOK_MAX_MS;
                log_error("the certificate cannot be renewed", LOG_E(&err));
                return;
        }
        memset(key.buf, 0, key.len);
        q.node_id = f->agents[0]->node_id;
        q.request = (char *)str_c(&request);
        rn->is_trust = false;
        begin(rn, "RenewCertificate", &q.base);
}

static void on_look(evutil_socket_t fd, short what, void *arg)
{
        struct renewal *rn = arg;
        struct fleet *f = rn->fleet;
        int64_t now = clock_now_ms(&f->clock), half, life = life_ms(f, &half),
                wait = within(life / 20, LOOK_MIN_MS, LOOK_MAX_MS);
        Pb__Empty nothing = PB__EMPTY__INIT;

        (void)fd, (void)what;
        struct timeval tv = { .tv_sec = wait / 1000, .tv_usec = wait % 1000 * 1000 };
        evtimer_add(rn->timer, &tv);
        if (rn->call || f->stopping || !f->n_agents)
                return;
        if (now >= half && now >= rn->try_at_ms)
                renew(rn);
        else if (now >= rn->trust_at_ms) {
                rn->is_trust = true;
                begin(rn, "GetTrust", &nothing.base);
        }
}

void agent_renewal_start(struct fleet *f)
{
        struct renewal *rn = f->renewal = mem_must(sizeof(*rn));

        rn->fleet = f;
        rn->timer = evtimer_new(f->base, on_look, rn);
        on_look(-1, 0, rn);
}

void agent_renewal_stop(struct fleet *f)
{
        if (!f->renewal)
                return;
        event_free(f->renewal->timer);
        mem_free(f->renewal);
        f->renewal = NULL;
}
