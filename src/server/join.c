/* server/join.c: see join.h. */
#include "server/join.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/pb.h"
#include "net/grpc.h"
#include "net/http.h"
#include "net/tls.h"
#include "server/access.h"
#include "server/cfssl.h"
#include "server/io.h"
#include <stdio.h>
#include <string.h>

#define PEM_MAX_BYTES (256 * 1024)
#define MIN_LEFT_MS 1000

struct join {
        struct io *io;
        struct cfssl *cfssl; /* NULL: berth's own CA, or none */
};

/* What is asked for, while the core and then CFSSL think about it. */
struct joining {
        char node_id[129], hash[65], by[65];
        char *request;
        char peer[64];
};

static bool can_sign(const struct join *j)
{
        return j->cfssl || j->io->s->opt.ca_dir;
}

/* ---- the CA ---- */

static int read_ca(const struct join *j, struct tls_pair *ca, struct tls_cert *facts,
                   struct err *err)
{
        const char *dir = j->io->s->opt.ca_dir;
        int r = file_read(fmt("%s/ca.pem", dir), PEM_MAX_BYTES, &ca->cert, err);
        if (r >= 0)
                r = file_read(fmt("%s/ca-key.pem", dir), PEM_MAX_BYTES, &ca->key, err);
        if (r >= 0)
                r = tls_cert_read(str_c(&ca->cert), ca->cert.len, facts, err);
        if (r >= 0 && facts->expires_at_ms <= clock_wall_ms() + MIN_LEFT_MS)
                r = err_set(err, ERR_FAILED, .msg = "the CA has expired",
                            .hint = "berth ca rotate makes a new one");
        return r < 0 ? err_prefix(err, "the CA cannot be used") : 0;
}

int join_create(struct io *io, struct join **ret, struct err *err)
{
        const struct server_options *opt = &io->s->opt;
        struct join *j = mem_must(sizeof(*j));
        struct tls_pair ca = { 0 };
        struct tls_cert facts = { 0 };
        int r = 0;
        j->io = io;
        if (opt->cfssl_url && opt->ca_dir)
                r = err_set(err, ERR_INVALID,
                            .msg = "certificates are signed by --ca or by --cfssl, not by both");
        else if (can_sign(j) && !opt->tls_ca)
                r = err_set(
                    err, ERR_INVALID,
                    .msg = "nodes with certificates need a server with TLS that knows their CA",
                    .hint = "give --tls-cert, --tls-key and --tls-ca as well (docs/tls.md)");
        else if (opt->cfssl_url)
                r = cfssl_create(io->base, opt->cfssl_url, opt->cfssl_key_file, opt->cfssl_profile,
                                 &j->cfssl, err);
        else if (opt->ca_dir)
                r = read_ca(j, &ca, &facts, err);
        tls_pair_fini(&ca);
        tls_cert_fini(&facts);
        if (r < 0) {
                mem_free(j);
                return r;
        }
        *ret = j;
        return 0;
}

void join_destroy(struct join *j)
{
        if (!j)
                return;
        cfssl_destroy(j->cfssl);
        mem_free(j);
}

static int add_ca(void *ctx, const struct str *cert, const struct tls_cert *facts)
{
        (void)facts;
        str_add(ctx, str_c(cert), cert->len);
        return 0;
}

/* Certificates only, whatever else lies in the file. */
static int read_trust(const struct join *j, struct str *out, struct err *err)
{
        _cleanup_(str_finip) struct str pem = STR_INIT;
        const char *path = j->io->s->opt.tls_ca;
        if (!path)
                return err_set(err, ERR_FAILED, .msg = "this server has no CA",
                               .hint = "start it with --tls-ca (docs/tls.md)");
        int r = file_read(path, PEM_MAX_BYTES, &pem, err);
        return r < 0 ? r : tls_each_cert(str_c(&pem), pem.len, add_ca, out);
}

struct issuer_search {
        struct str own;
        char hash[65];
};

static int match_issuer(void *ctx, const struct str *cert, const struct tls_cert *facts)
{
        struct issuer_search *s = ctx;
        if (!s->hash[0] && tls_cert_check_signed(&s->own, cert, NULL) == 0)
                snprintf(s->hash, sizeof(s->hash), "%s", facts->fingerprint + strlen("sha256:"));
        return 0;
}

int join_ca_hash(struct join *j, char ret_hash[static 65], struct err *err)
{
        const struct server_options *opt = &j->io->s->opt;
        struct issuer_search s = { 0 };
        _cleanup_(str_finip) struct str trust = STR_INIT;
        if (!can_sign(j))
                return err_set(
                    err, ERR_FAILED,
                    .msg = "this server signs no certificates, so nobody can join it with a token",
                    .hint = "start it with --ca DIR or --cfssl URL, or make a token of the role "
                            "node (docs/tls.md)");
        int r = read_trust(j, &trust, err);
        if (r >= 0)
                r = file_read(opt->tls_cert, PEM_MAX_BYTES, &s.own, err);
        if (r >= 0)
                (void)tls_each_cert(str_c(&trust), trust.len, match_issuer, &s);
        if (r >= 0 && !s.hash[0])
                r = err_set(err, ERR_FAILED,
                            .msg = "this server's certificate is not of a CA in --tls-ca: "
                                   "newcomers could not trust it",
                            .hint = "put its CA into the --tls-ca file");
        str_fini(&s.own);
        memcpy(ret_hash, s.hash, sizeof(s.hash));
        return r < 0 ? r : 0;
}

/* ---- answers ---- */

static void answer(struct call *call, const ProtobufCMessage *m)
{
        struct str packed = STR_INIT;
        pb_pack(&packed, m);
        call_answer(call, m->descriptor, packed.buf, packed.len);
        str_fini(&packed);
}

void join_trust(struct join *j, struct call *call)
{
        struct str ca = STR_INIT;
        struct err err = { 0 };
        Pb__Trust m = PB__TRUST__INIT;
        if (read_trust(j, &ca, &err) < 0)
                call_fail(call, &err);
        else {
                m.ca = (char *)str_c(&ca);
                answer(call, &m.base);
        }
        str_fini(&ca);
}

/* ---- what is asked ---- */

static struct credentials shown_by(const struct call *call)
{
        return call->http   ? access_of_http(call->http)
               : call->grpc ? access_of_grpc(call->grpc)
                            : (struct credentials){ 0 };
}

/* Looking at a request costs: what comes of nothing is charged to its address. */
static int look_at_request(struct call *call, const char *node_id, const char *request,
                           char ret_key[static 65], struct err *err)
{
        struct access *a = call->io->access;
        struct credentials shown = shown_by(call);
        int r = access_check_address(a, shown.peer, err);
        if (r < 0 || (r = tls_request_key(request, ret_key, err)) >= 0)
                return r;
        access_bad_request(a, node_id, &shown, err);
        return -(int)err->code;
}

static int begin_join(struct call *call, struct joining *g, struct err *err)
{
        const Pb__JoinRequest *q = (const Pb__JoinRequest *)call->msg->in.msg;
        struct arena *a = &call->msg->memory;
        char key[65];
        int r = look_at_request(call, q->node_id, q->request, key, err);
        if (r < 0)
                return r;
        snprintf(g->node_id, sizeof(g->node_id), "%s", q->node_id);
        g->request = mem_strdup(q->request);
        token_hash(q->secret, g->hash);
        Pb__UseTokenRequest *use =
            (Pb__UseTokenRequest *)pb_new(a, &pb__use_token_request__descriptor);
        use->hash = arena_strdup(a, g->hash);
        use->node_id = q->node_id;
        use->key = arena_strdup(a, key);
        call->msg->in.kind = INPUT_TOKEN_USE;
        call->msg->in.msg = &use->base;
        snprintf(call->actor, sizeof(call->actor), "node:%.59s", q->node_id);
        return 0;
}

/* Whoever asks by a certificate is the node of that certificate; one that was forgotten gets no new
 * one. */
static int begin_renewal(struct join *j, struct call *call, struct joining *g, struct err *err)
{
        const Pb__RenewRequest *q = (const Pb__RenewRequest *)call->msg->in.msg;
        struct arena *a = &call->msg->memory;
        struct credentials shown = shown_by(call);
        char key[65];
        if (!shown.who)
                return err_set(err, ERR_AUTH,
                               .msg = "a certificate is renewed with the one before it",
                               .hint = "connect with the node's certificate, or join anew: berth "
                                       "token create --join --node ID");
        int r = look_at_request(call, q->node_id, q->request, key, err);
        if (r < 0 || (r = access_check_renewal(j->io->access, &shown, q->node_id, key, err)) < 0)
                return r;
        snprintf(g->node_id, sizeof(g->node_id), "%s", q->node_id);
        snprintf(g->by, sizeof(g->by), "renewal");
        g->request = mem_strdup(q->request);
        Pb__NodeRef *ref = (Pb__NodeRef *)pb_new(a, &pb__node_ref__descriptor);
        ref->id = q->node_id;
        call->msg->in.kind = INPUT_GET_NODE;
        call->msg->in.msg = &ref->base;
        return 0;
}

int join_begin(struct join *j, struct call *call, struct err *err)
{
        if (!can_sign(j))
                return err_set(err, ERR_UNSUPPORTED, .msg = "this server signs no certificates",
                               .hint = "start it with --ca DIR or --cfssl URL");
        struct joining *g = call->joining = mem_must(sizeof(*g));
        const char *peer = shown_by(call).peer;
        snprintf(g->peer, sizeof(g->peer), "%s", peer ? peer : "");
        return call->op->kind == OP_JOIN ? begin_join(call, g, err)
                                         : begin_renewal(j, call, g, err);
}

/* ---- signed ---- */

static void note_issued(struct io *io, const struct joining *g, const struct tls_cert *facts)
{
        char when[TIME_TEXT_LEN];
        struct ring_msg *msg = ring_msg_new(INPUT_ACCESS_NOTE);
        Pb__AccessNote *n = (Pb__AccessNote *)pb_new(&msg->memory, &pb__access_note__descriptor);
        n->type = PB__EVENT_TYPE__E__CertificateIssued;
        n->message = arena_printf(&msg->memory, "node %s until %s, serial %s, by %s", g->node_id,
                                  time_format(when, facts->expires_at_ms), facts->serial, g->by);
        n->actor = arena_printf(&msg->memory, "node:%.59s", g->node_id);
        msg->in.msg = &n->base;
        if (!io_to_ring(io, msg, false)) {
                log_warn("an event about a certificate could not be kept",
                         LOG_S("node", g->node_id), LOG_S("serial", facts->serial));
                ring_msg_free(msg);
        }
}

/* CFSSL's profile has the last word on what is in it. One that is good for servers could be used to
 * be taken for one, by the name of the node. */
static int check_names(const struct joining *g, const struct tls_cert *facts, struct err *err)
{
        struct tls_identity who = { .uris = facts->uris, .dns = facts->dns };
        while (who.uris && who.uris[who.n_uris])
                who.n_uris++;
        while (who.dns && who.dns[who.n_dns])
                who.n_dns++;
        if (!tls_identity_is_node(&who, g->node_id))
                return err_set(err, ERR_FAILED,
                               .msg = "the certificate that was signed is not one of the node",
                               .detail = fmt("node %s", g->node_id),
                               .hint = "does CFSSL's profile allow the hosts that are asked for?");
        if (facts->expires_at_ms <= clock_wall_ms() + MIN_LEFT_MS)
                return err_set(err, ERR_FAILED,
                               .msg = "the certificate that was signed has expired already",
                               .hint = "CFSSL counts a profile's expiry from five minutes ago: is "
                                       "it longer than that, and are the clocks right?");
        if (facts->is_ca || facts->is_server || !facts->is_client)
                return err_set(err, ERR_FAILED,
                               .msg = "the certificate that was signed is not for clients only",
                               .hint = "CFSSL's profile for nodes must have the usage \"client "
                                       "auth\", and not \"server auth\" (docs/tls.md)");
        return 0;
}

static void finish(struct join *j, struct call *call, const char *cert)
{
        struct tls_cert facts = { 0 };
        struct str ca = STR_INIT;
        struct err err = { 0 };
        Pb__Certificate m = PB__CERTIFICATE__INIT;
        int r = tls_cert_read(cert, strlen(cert), &facts, &err);
        if (r >= 0)
                r = check_names(call->joining, &facts, &err);
        if (r >= 0)
                r = read_trust(j, &ca, &err);
        if (r < 0)
                call_fail(call, &err);
        else {
                note_issued(j->io, call->joining, &facts);
                log_info("a certificate was issued", LOG_S("node", call->joining->node_id),
                         LOG_S("serial", facts.serial), LOG_S("by", call->joining->by),
                         LOG_S("peer", call->joining->peer));
                m.certificate = (char *)cert;
                m.ca = (char *)str_c(&ca);
                m.expires_at = facts.expires_at_ms;
                answer(call, &m.base);
        }
        tls_cert_fini(&facts);
        str_fini(&ca);
}

static int sign(const struct join *j, const struct joining *g, struct str *ret_cert,
                struct err *err)
{
        struct tls_pair ca = { 0 };
        struct tls_cert facts = { 0 };
        int r = read_ca(j, &ca, &facts, err);
        if (r >= 0) {
                int64_t left_ms = facts.expires_at_ms - clock_wall_ms(),
                        valid_ms = j->io->s->opt.cert_valid_ms;
                const char *const uris[] = { fmt(TLS_URI_PREFIX "node/%s", g->node_id), NULL };
                struct tls_issue_options o = { .cn = fmt("%.64s", g->node_id),
                                               .uris = uris,
                                               /* or a newcomer could choose the name of a server
                                                * and be taken for it */
                                               .is_client = true,
                                               .valid_ms =
                                                   valid_ms < left_ms ? valid_ms : left_ms };
                r = tls_sign_request(&ca, g->request, &o, ret_cert, err);
        }
        tls_pair_fini(&ca);
        tls_cert_fini(&facts);
        return r;
}

static void on_cfssl(void *ctx, uint64_t ticket, const char *cert, const struct err *err)
{
        struct io *io = ctx;
        struct call *call = calls_find(io->calls, ticket);
        if (!call)
                return; /* its deadline has come, or the caller has gone; it may ask again */
        if (!cert) {
                log_warn("a certificate could not be had", LOG_S("node", call->joining->node_id),
                         LOG_E(err));
                call_fail(call, err);
        } else
                finish(io->join, call, cert);
}

static void refuse(struct join *j, struct call *call, const struct err *why)
{
        struct credentials shown = shown_by(call);
        struct err err = *why;
        if (call->op->kind == OP_JOIN && (why->code == ERR_AUTH || why->code == ERR_DENIED))
                access_join_refused(j->io->access, call->joining->hash, call->joining->node_id,
                                    &shown, &err);
        else if (call->op->kind == OP_RENEW && why->code == ERR_NOT_FOUND)
                err_set(&err, ERR_DENIED,
                        .msg = fmt("there is no node %s: it gets no new certificate",
                                   call->joining->node_id),
                        .hint = "was it forgotten? berth token create --join lets it come anew");
        call_fail(call, &err);
}

void join_reply(struct join *j, struct call *call, const struct reply *reply)
{
        struct joining *g = call->joining;
        struct str cert = STR_INIT;
        struct err err = { 0 };
        if (reply->err) {
                refuse(j, call, reply->err);
                return;
        }
        if (!g->by[0])
                snprintf(g->by, sizeof(g->by), "join token");
        if (j->cfssl) {
                if (cfssl_sign(j->cfssl, g->request, (const char *const[]){ g->node_id }, 1,
                               call->ticket, on_cfssl, j->io, &err) < 0)
                        call_fail(call, &err);
                return; /* its deadline stands */
        }
        if (sign(j, g, &cert, &err) < 0)
                call_fail(call, &err);
        else
                finish(j, call, str_c(&cert));
        str_fini(&cert);
}

void joining_free(struct joining *g)
{
        if (!g)
                return;
        mem_free(g->request);
        mem_free(g);
}
