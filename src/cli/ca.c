/* cli/ca.c: berth ca init|issue|renew|rotate|show: a small certificate authority in a directory.
 *
 *      DIR/ca.pem       the CA's certificate, for everybody
 *      DIR/ca-key.pem   its key (0600): who has it can be any node and any user
 *
 * What is issued is NAME.pem and NAME-key.pem (0600) with a copy of ca.pem beside them. The key is
 * written before its certificate, each in one piece, so that a program that looks at any moment
 * finds the old pair or the new one, or a pair that does not fit and that it refuses. Nothing that
 * exists is overwritten but by renew.
 */
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/facts.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "model/json.h"
#include "model/validate.h"
#include "net/tls.h"
#include <string.h>
#include <unistd.h>

#define PEM_MAX_BYTES (256 * 1024)
#define DAY_MS (24 * 3600 * INT64_C(1000))
#define BACKDATE_MS (5 * 60 * INT64_C(1000)) /* tls_issue() begins this long ago */
#define VALID_MAX_MS (100 * 365 * DAY_MS)
#define UNSET (-1)

struct ca_options {
        const char *dir, *out, *key, *name, *format, *role;
        struct text_list dns, ips;
        int64_t valid_ms;
        bool new_key, finish;
};

static const struct ca_options defaults = { .dir = "./.berth/ca",
                                            .name = "berth CA",
                                            .valid_ms = UNSET };

#define T struct ca_options
static const struct opt rows[] = {
        OPT(T, OPT_TEXT, dir, .name = "ca", .arg = "DIR", .env = "BERTH_CA", .completes = 'f',
            .help = "the CA's directory (./.berth/ca)"),
        OPT(T, OPT_TEXT, out, .name = "out", .arg = "DIR", .completes = 'f',
            .help = "issue: where the certificate and its key go"),
        OPT(T, OPT_LIST, dns, .name = "dns", .arg = "NAME",
            .help = "issue: a name that it is reached by; may be repeated"),
        OPT(T, OPT_LIST, ips, .name = "ip", .arg = "ADDR",
            .help = "issue: an address that it is reached by; may be repeated"),
        OPT(T, OPT_DURATION, valid_ms, .name = "valid", .arg = "DURATION",
            .help = "how long it is valid (90d; a CA 3650d; renew: as long as before)"),
        OPT(T, OPT_TEXT, role, .name = "role", .arg = "ROLE", .choices = "viewer|operator|admin",
            .help = "issue user: what its holder may do (operator)"),
        OPT(T, OPT_FLAG, new_key, .name = "new-key", .help = "renew: make a new key as well"),
        OPT(T, OPT_FLAG, finish, .name = "finish",
            .help = "rotate: nobody needs the old CA any more: trust only the new one"),
        OPT(T, OPT_TEXT, key, .name = "key", .arg = "FILE", .completes = 'f',
            .help = "renew: the key, if it is not FILE-key.pem"),
        OPT(T, OPT_TEXT, name, .name = "name", .arg = "NAME",
            .help = "init: what the CA is called (berth CA)"),
        OPT(T, OPT_TEXT, format, .letter = 'o', .name = "output", .arg = "FORMAT",
            .choices = "table|json", .help = "show: table or json"),
};
#undef T

/* ---- files ---- */

static const char *in_dir(struct cli *cli, const char *dir, const char *name)
{
        return arena_printf(&cli->arena, "%s/%s", dir, name);
}

static int read_pem(const char *path, struct str *ret, struct err *err)
{
        int r = file_read(path, PEM_MAX_BYTES, ret, err);
        if (r == -ERR_NOT_FOUND)
                return err_set(err, ERR_NOT_FOUND, .msg = fmt("%s does not exist", path));
        return r;
}

static int read_cert(const char *path, struct str *pem, struct tls_cert *ret_cert, struct err *err)
{
        struct err why = { 0 };
        int r = read_pem(path, pem, err);
        if (r == 0 && (r = tls_cert_read(str_c(pem), pem->len, ret_cert, &why)) < 0)
                return err_set(err, ERR_INVALID, .msg = fmt("%s holds no certificate", path),
                               .hint = why.hint);
        return r;
}

/* What exists stays. */
static int check_absent(const char *path, const char *hint, struct err *err)
{
        return file_exists(path)
                   ? err_set(err, ERR_CONFLICT, .msg = fmt("%s exists already", path), .hint = hint)
                   : 0;
}

/* The key first: see above. */
static int write_pair(const char *cert_path, const char *key_path, const struct tls_pair *pair,
                      struct err *err)
{
        int r =
            key_path ? file_write_atomic(key_path, str_c(&pair->key), pair->key.len, 0600, err) : 0;
        return r < 0 ? r
                     : file_write_atomic(cert_path, str_c(&pair->cert), pair->cert.len, 0644, err);
}

struct ca {
        struct tls_pair pair;
        struct tls_cert cert;
};

static void ca_fini(struct ca *ca)
{
        tls_pair_fini(&ca->pair);
        tls_cert_fini(&ca->cert);
}

static int ca_load(struct cli *cli, const char *dir, struct ca *ca, struct err *err)
{
        const char *cert = in_dir(cli, dir, "ca.pem"), *key = in_dir(cli, dir, "ca-key.pem");
        if (!file_exists(cert))
                return err_set(err, ERR_NOT_FOUND, .msg = fmt("there is no CA in %s", dir),
                               .hint = "berth ca init makes one; --ca DIR names another directory");
        int r = read_cert(cert, &ca->pair.cert, &ca->cert, err);
        if (r == 0)
                r = read_pem(key, &ca->pair.key, err);
        if (r == 0 && ca->cert.expires_at_ms <= clock_wall_ms())
                r = err_set(err, ERR_FAILED, .msg = "the CA has expired", .detail = cert,
                            .hint = "make a new one, and let everybody trust both until all "
                                    "certificates are of the new one");
        return r;
}

/* Nothing outlives its CA: verification would fail then, and the expiry that people look at would
 * be a lie. */
static int64_t cap_life(struct cli *cli, const struct ca *ca, int64_t valid_ms)
{
        int64_t left_ms = ca->cert.expires_at_ms - clock_wall_ms();
        if (valid_ms <= left_ms)
                return valid_ms;
        cli_say(cli, "note: it expires with its CA, in %lld days\n", (long long)(left_ms / DAY_MS));
        return left_ms;
}

static int check_valid(const struct cli *cli, int64_t valid_ms, struct err *err)
{
        if (valid_ms != UNSET && (valid_ms < 1000 || valid_ms > VALID_MAX_MS))
                return usage_error(cli, err, "--valid must be between 1s and 36500d");
        return 0;
}

/* ---- init ---- */

static int init(struct cli *cli, const struct ca_options *o, const struct args *args,
                struct err *err)
{
        const char *cert = in_dir(cli, o->dir, "ca.pem"), *key = in_dir(cli, o->dir, "ca-key.pem");
        struct tls_pair pair = { 0 };
        struct tls_cert facts = { 0 };
        int r;
        if (args->n != 1)
                return usage_error(cli, err, "berth ca init takes no arguments");
        if (str_empty(o->name) || strlen(o->name) > 64)
                return usage_error(cli, err, "--name must have 1 to 64 bytes");
        if ((r = check_absent(cert, "a CA is made once: every certificate depends on it", err)) <
                0 ||
            (r = check_absent(key, "a CA is made once: every certificate depends on it", err)) <
                0 ||
            (r = dir_make(o->dir, 0700, err)) < 0)
                return r;
        struct tls_issue_options options = { .cn = o->name,
                                             .valid_ms = o->valid_ms == UNSET ? 0 : o->valid_ms };
        r = tls_make_ca(&options, &pair, err);
        if (r == 0)
                r = write_pair(cert, key, &pair, err);
        if (r == 0)
                r = tls_cert_read(str_c(&pair.cert), pair.cert.len, &facts, err);
        if (r == 0)
                cli_out(cli, "%s\n%s\nhash %s\n", cert, key, facts.fingerprint);
        tls_pair_fini(&pair);
        tls_cert_fini(&facts);
        return r;
}

/* ---- issue ---- */

static const char *const *with_end(struct cli *cli, const struct text_list *list, const char *more)
{
        const char **names = arena_new_n(&cli->arena, const char *, list->n + 2);
        for (size_t i = 0; i < list->n; i++)
                names[i] = list->at[i];
        names[list->n] = more;
        return names;
}

static int check_names(const struct cli *cli, const struct ca_options *o, struct err *err)
{
        for (size_t i = 0; i < o->dns.n; i++) {
                const char *name = o->dns.at[i];
                if (!name[0] || strlen(name) > 253 ||
                    strspn(name,
                           "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_*") !=
                        strlen(name))
                        return usage_error(cli, err,
                                           "bad value '%s' for --dns: expected a host name", name);
        }
        for (size_t i = 0; i < o->ips.n; i++)
                if (!tls_is_address(o->ips.at[i]))
                        return usage_error(
                            cli, err, "bad value '%s' for --ip: expected an IPv4 or IPv6 address",
                            o->ips.at[i]);
        return 0;
}

/* People copy DIR to the machine that needs it: what vouches for its peers goes along. A bundle
 * that is there already (two CAs, during a change of CA) is the operator's. */
static int put_ca(struct cli *cli, const struct ca *ca, const char *path, struct err *err)
{
        _cleanup_(str_finip) struct str old = STR_INIT;
        if (!file_exists(path))
                return file_write_atomic(path, str_c(&ca->pair.cert), ca->pair.cert.len, 0644, err);
        int r = read_pem(path, &old, err);
        if (r == 0 && !strstr(str_c(&old), str_c(&ca->pair.cert)))
                cli_say(cli, "note: %s exists and is not this CA's: it was left alone\n", path);
        return r;
}

static int issue(struct cli *cli, const struct ca_options *o, const struct args *args,
                 struct err *err)
{
        struct ca ca = { 0 };
        struct tls_pair pair = { 0 };
        if (args->n != 3)
                return usage_error(cli, err, "berth ca issue server|node|user NAME --out DIR");
        const char *kind = args->at[1], *name = args->at[2];
        bool is_server = str_eq(kind, "server"), is_node = str_eq(kind, "node"),
             is_user = str_eq(kind, "user");
        if (!is_server && !is_node && !is_user)
                return usage_error(
                    cli, err, "certificates are for a server, a node or a user, not for a '%s'",
                    kind);
        if (!id_is_valid(name))
                return usage_error(cli, err,
                                   "bad name '%s': 1 to 128 letters, digits and .-_ are allowed, "
                                   "beginning with a letter or digit",
                                   name);
        if (str_eq(name, "ca") || str_eq(name, "ca-key"))
                return usage_error(
                    cli, err, "the name '%s' is taken: its files would be those of the CA", name);
        if (o->role && !is_user)
                return usage_error(cli, err, "only users have a --role");
        if (str_empty(o->out))
                return usage_error(cli, err, "say where the files go: --out DIR");
        int r = check_names(cli, o, err);
        if (r < 0)
                return r;
        const char *cert = in_dir(cli, o->out, fmt("%s.pem", name)),
                   *key = in_dir(cli, o->out, fmt("%s-key.pem", name));
        const char *const uris[] = { arena_printf(&cli->arena, TLS_URI_PREFIX "%s/%s", kind, name),
                                     is_user ? arena_printf(&cli->arena, TLS_URI_PREFIX "role/%s",
                                                            o->role ? o->role : "operator")
                                             : NULL,
                                     NULL };
        bool nameless = is_server && o->dns.n == 0 && o->ips.n == 0;
        if ((r = check_absent(cert, "berth ca renew makes it anew", err)) < 0 ||
            (r = check_absent(key, "berth ca renew makes it anew", err)) < 0 ||
            (r = ca_load(cli, o->dir, &ca, err)) < 0 || (r = dir_make(o->out, 0700, err)) < 0)
                goto end;
        /* Servers call agents and each other, and agents may be called: both are servers and
         * clients. */
        /* more does not fit; the URI has it whole */
        struct tls_issue_options options = {
                .cn = arena_printf(&cli->arena, "%.64s", name),
                .dns = with_end(cli, &o->dns, nameless ? name : NULL),
                .ips = with_end(cli, &o->ips, NULL),
                .uris = uris,
                .is_client = is_user,
                .valid_ms = cap_life(cli, &ca, o->valid_ms == UNSET ? 90 * DAY_MS : o->valid_ms)
        };
        if ((r = tls_issue(&ca.pair, &options, &pair, err)) < 0 ||
            (r = put_ca(cli, &ca, in_dir(cli, o->out, "ca.pem"), err)) < 0 ||
            (r = write_pair(cert, key, &pair, err)) < 0)
                goto end;
        cli_out(cli, "%s\n%s\n", cert, key);
end:
        ca_fini(&ca);
        tls_pair_fini(&pair);
        return r;
}

/* ---- renew ---- */

/* "n1.pem" -> "n1-key.pem" */
static const char *key_of(struct cli *cli, const char *cert)
{
        size_t len = strlen(cert);
        size_t stem = len > 4 && str_eq(cert + len - 4, ".pem") ? len - 4 : len;
        return arena_printf(&cli->arena, "%.*s-key.pem", (int)stem, cert);
}

/* While one CA replaces another, both have issued what there is. */
struct issuer_search {
        const struct str *cert;
        bool found;
};

static int match_issuer(void *ctx, const struct str *ca, const struct tls_cert *facts _unused_)
{
        struct issuer_search *s = ctx;
        s->found |= tls_cert_check_signed(s->cert, ca, NULL) == 0;
        return 0;
}

static int renew_one(struct cli *cli, const struct ca_options *o, const struct ca *ca,
                     const char *path, struct err *err)
{
        const char *key_path = o->key ? o->key : key_of(cli, path);
        struct tls_pair old = { 0 }, fresh = { 0 };
        struct tls_cert facts = { 0 };
        char when[TIME_TEXT_LEN];
        int r = read_cert(path, &old.cert, &facts, err);
        if (r < 0)
                goto end;
        if (facts.is_ca) {
                r = err_set(err, ERR_INVALID, .msg = fmt("%s is a CA's certificate", path),
                            .hint = "a CA is not renewed: make a new one, and let everybody trust "
                                    "both until all certificates are of the new one");
                goto end;
        }
        struct issuer_search search = { .cert = &old.cert };
        (void)tls_each_cert(str_c(&ca->pair.cert), ca->pair.cert.len, match_issuer, &search);
        if (!search.found) {
                r = -ERR_DENIED;
                err_set(err, ERR_DENIED, .msg = fmt("%s was not issued by this CA", path),
                        .detail = fmt("issuer \"%s\"", facts.issuer),
                        .hint = "--ca DIR names another CA");
                goto end;
        }
        if (!o->new_key && (r = read_pem(key_path, &old.key, err)) < 0) {
                r = err_set(err, err->code, .msg = fmt("the key of %s cannot be read", path),
                            .detail = fmt("%s", err->msg),
                            .hint = "--key FILE names it, --new-key makes another one");
                goto end;
        }
        int64_t life_ms = o->valid_ms == UNSET
                              ? facts.expires_at_ms - facts.begins_at_ms - BACKDATE_MS
                              : o->valid_ms;
        struct tls_issue_options options = { .cn = facts.cn,
                                             .dns = (const char *const *)facts.dns,
                                             .ips = (const char *const *)facts.ips,
                                             .uris = (const char *const *)facts.uris,
                                             .is_client = facts.is_client,
                                             .is_server = facts.is_server,
                                             .key = o->new_key ? NULL : &old.key,
                                             .valid_ms = cap_life(
                                                 cli, ca, life_ms < 1000 ? 1000 : life_ms) };
        if ((r = tls_issue(&ca->pair, &options, &fresh, err)) < 0 ||
            (r = write_pair(path, o->new_key ? key_path : NULL, &fresh, err)) < 0)
                goto end;
        cli_out(cli, "%s renewed until %s\n", path,
                time_format(when, (clock_wall_ms() + options.valid_ms) / 1000 * 1000));
end:
        tls_pair_fini(&old);
        tls_pair_fini(&fresh);
        tls_cert_fini(&facts);
        return r;
}

static int renew(struct cli *cli, const struct ca_options *o, const struct args *args,
                 struct err *err)
{
        struct ca ca = { 0 };
        if (args->n < 2)
                return usage_error(cli, err, "say which: berth ca renew FILE...");
        if (o->key && args->n > 2)
                return usage_error(cli, err, "--key goes with one FILE");
        int r = ca_load(cli, o->dir, &ca, err);
        for (size_t i = 1; i < args->n && r == 0; i++)
                r = renew_one(cli, o, &ca, args->at[i], err);
        ca_fini(&ca);
        return r;
}

/* ---- rotate ---- */

struct bundle {
        struct str first;
        size_t n;
};

static int count_cert(void *ctx, const struct str *cert, const struct tls_cert *facts _unused_)
{
        struct bundle *b = ctx;
        if (b->n++ == 0)
                str_add(&b->first, str_c(cert), cert->len);
        return 0;
}

/* "berth CA" -> "berth CA 2" -> "berth CA 3": two CAs of one name could be mistaken for each other
 * by people. */
static const char *next_name(struct cli *cli, const char *name)
{
        const char *space = strrchr(name, ' ');
        uint64_t n = 1;
        bool numbered = space && str_parse_u64(space + 1, &n) == 0 && n < 1000000;
        return arena_printf(&cli->arena, "%.*s %llu", (int)(numbered ? space - name : 56), name,
                            (unsigned long long)(numbered ? n + 1 : 2));
}

static int rotate_begin(struct cli *cli, const struct ca_options *o, const struct ca *old,
                        struct err *err)
{
        const char *cert = in_dir(cli, o->dir, "ca.pem"), *key = in_dir(cli, o->dir, "ca-key.pem"),
                   *kept = in_dir(cli, o->dir, "ca-key-old.pem");
        const char *name = str_eq(o->name, defaults.name) ? next_name(cli, old->cert.cn) : o->name;
        struct tls_pair pair = { 0 };
        struct tls_issue_options options = { .cn = name,
                                             .valid_ms = o->valid_ms == UNSET ? 0 : o->valid_ms };
        int r = tls_make_ca(&options, &pair, err);
        if (r == 0)
                r = file_write_atomic(kept, str_c(&old->pair.key), old->pair.key.len, 0600, err);
        if (r == 0) {
                /* the new one first: it signs */
                str_add(&pair.cert, str_c(&old->pair.cert), old->pair.cert.len);
                r = write_pair(cert, key, &pair, err);
        }
        tls_pair_fini(&pair);
        if (r == 0)
                cli_out(cli,
                        "%s now signs; %s and all that it signed stay good.\n"
                        "Next: let everybody trust %s (servers with --tls-ca on it do so by "
                        "themselves, and the agents that joined them "
                        "within an hour);\n"
                        "then renew the certificates of servers and users (berth ca renew); when "
                        "nothing of the old CA is left: berth ca "
                        "rotate --finish\n",
                        name, old->cert.cn, cert);
        return r;
}

static int rotate(struct cli *cli, const struct ca_options *o, const struct args *args,
                  struct err *err)
{
        struct ca ca = { 0 };
        struct bundle b = { 0 };
        const char *cert = in_dir(cli, o->dir, "ca.pem");
        if (args->n != 1)
                return usage_error(cli, err, "berth ca rotate takes no arguments");
        int r = ca_load(cli, o->dir, &ca, err);
        if (r == 0)
                (void)tls_each_cert(str_c(&ca.pair.cert), ca.pair.cert.len, count_cert, &b);
        if (r == 0 && !o->finish && b.n > 1)
                r = err_set(err, ERR_CONFLICT, .msg = "a change of CA is under way",
                            .detail = fmt("%s holds %zu certificates", cert, b.n),
                            .hint = "end it first: berth ca rotate --finish");
        else if (r == 0 && !o->finish)
                r = rotate_begin(cli, o, &ca, err);
        else if (r == 0 && b.n < 2)
                r = err_set(err, ERR_CONFLICT, .msg = "no change of CA is under way",
                            .hint = "berth ca rotate begins one");
        else if (r == 0 &&
                 (r = file_write_atomic(cert, str_c(&b.first), b.first.len, 0644, err)) == 0) {
                (void)unlink(in_dir(cli, o->dir, "ca-key-old.pem"));
                cli_out(cli, "%s holds %s only\n", cert, ca.cert.cn);
        }
        str_fini(&b.first);
        ca_fini(&ca);
        return r;
}

/* ---- show ---- */

static const struct table_column columns[] = {
        { "SUBJECT", .weight = 5 }, { "NAMES", .weight = 2 },  { "ISSUER", .weight = 3 },
        { "EXPIRES", .weight = 0 }, { "DAYS", .right = true }, { "FILE", .weight = 4 },
};

static void add_names(struct str *out, const char *prefix, char *const *list)
{
        for (; list && *list; list++)
                str_addf(out, "%s%s%s", out->len ? "," : "", prefix, *list);
}

static void json_list(struct str *out, const char *name, char *const *list)
{
        str_addf(out, ",\n      \"%s\": [", name);
        for (size_t i = 0; list && list[i]; i++) {
                str_adds(out, i ? ", " : "");
                json_write_string(out, list[i], strlen(list[i]));
        }
        str_addc(out, ']');
}

static void json_text(struct str *out, const char *name, const char *value)
{
        str_addf(out, ",\n      \"%s\": ", name);
        json_write_string(out, value ? value : "", value ? strlen(value) : 0);
}

static void add_json(struct str *out, const char *path, const struct tls_cert *c, int64_t now_ms)
{
        char when[TIME_TEXT_LEN];
        str_adds(out, out->len ? ",\n    {\n      \"file\": " : "    {\n      \"file\": ");
        json_write_string(out, path, strlen(path));
        json_text(out, "subject", c->cn);
        json_text(out, "issuer", c->issuer);
        json_text(out, "serial", c->serial);
        json_text(out, "hash", c->fingerprint);
        json_list(out, "uris", c->uris);
        json_list(out, "dns", c->dns);
        json_list(out, "ips", c->ips);
        str_addf(out, ",\n      \"ca\": %s", c->is_ca ? "true" : "false");
        json_text(out, "begins_at", time_format(when, c->begins_at_ms));
        json_text(out, "expires_at", time_format(when, c->expires_at_ms));
        str_addf(out, ",\n      \"expired\": %s,\n      \"days_left\": %lld\n    }",
                 c->expires_at_ms <= now_ms ? "true" : "false",
                 (long long)((c->expires_at_ms - now_ms) / DAY_MS));
}

static void add_row(struct table *t, const char *path, const struct tls_cert *c, int64_t now_ms)
{
        _cleanup_(str_finip) struct str names = STR_INIT;
        char when[TIME_TEXT_LEN];
        int64_t left_ms = c->expires_at_ms - now_ms,
                third_ms = (c->expires_at_ms - c->begins_at_ms) / 3;
        enum tint tint = left_ms <= 0 ? TINT_BAD : left_ms < third_ms ? TINT_BUSY : TINT_NONE;
        add_names(&names, "", c->uris);
        add_names(&names, "DNS:", c->dns);
        add_names(&names, "IP:", c->ips);
        table_add(t, c->cn, TINT_NONE);
        table_add(t, c->is_ca ? "CA" : str_c(&names), TINT_NONE);
        table_add(t, c->issuer, TINT_NONE);
        table_add(t, time_format(when, c->expires_at_ms), tint);
        table_add(t, left_ms <= 0 ? "expired" : fmt("%lld", (long long)(left_ms / DAY_MS)), tint);
        table_add(t, path, TINT_NONE);
}

struct listing {
        const char *path;
        int64_t now_ms;
        struct str *items; /* as JSON; NULL: as rows of the table */
        struct table *table;
};

static int add_cert(void *ctx, const struct str *cert _unused_, const struct tls_cert *facts)
{
        struct listing *l = ctx;
        if (l->items)
                add_json(l->items, l->path, facts, l->now_ms);
        else
                add_row(l->table, l->path, facts, l->now_ms);
        return 0;
}

static int show(struct cli *cli, const struct ca_options *o, const struct args *args,
                struct err *err)
{
        _cleanup_(table_destroyp) struct table *t = table_create(columns, ARRAY_LEN(columns));
        _cleanup_(str_finip) struct str items = STR_INIT, out = STR_INIT;
        bool json = str_eq(o->format, "json");
        const char *own = in_dir(cli, o->dir, "ca.pem");
        int64_t now_ms = clock_wall_ms();
        if (args->n == 1 && !file_exists(own))
                return err_set(err, ERR_NOT_FOUND, .msg = fmt("there is no CA in %s", o->dir),
                               .hint = "berth ca init makes one; --ca DIR names another directory");
        for (size_t i = 1; i < args->n || i == 1; i++) {
                const char *path = args->n == 1 ? own : args->at[i];
                _cleanup_(str_finip) struct str pem = STR_INIT;
                struct tls_cert cert = { 0 };
                struct listing list = {
                        .path = path, .now_ms = now_ms, .items = json ? &items : NULL, .table = t
                };
                int r = read_cert(path, &pem, &cert, err);
                tls_cert_fini(&cert);
                if (r < 0)
                        return r;
                (void)tls_each_cert(str_c(&pem), pem.len, add_cert, &list);
        }
        if (json)
                str_addf(&out, "{\n  \"items\": [\n%s\n  ]\n}\n", str_c(&items));
        else
                table_print(t, &(struct table_style){ .term = &cli->out }, &out);
        cli_out_str(cli, &out);
        return 0;
}

static int ca_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        const struct ca_options *o = values;
        const char *verb = args->n ? args->at[0] : "";
        int r = check_valid(cli, o->valid_ms, err);
        if (r < 0)
                return r;
        if (str_eq(verb, "init"))
                return init(cli, o, args, err);
        if (str_eq(verb, "issue"))
                return issue(cli, o, args, err);
        if (str_eq(verb, "renew"))
                return renew(cli, o, args, err);
        if (str_eq(verb, "rotate"))
                return rotate(cli, o, args, err);
        if (str_eq(verb, "show"))
                return show(cli, o, args, err);
        return usage_error(cli, err,
                           verb[0] ? "berth ca knows init, issue, renew, rotate and show, not '%s'"
                                   : "berth ca init|issue|renew|rotate|show%s",
                           verb);
}

const struct verb verb_ca = {
        .name = "ca",
        .args = "init | issue server|node|user NAME | renew FILE... | rotate [--finish] | show "
                "[FILE...]",
        .summary = "certificates for servers, nodes and users",
        .text = "Keeps a small certificate authority in a directory, and talks to no server. A "
                "node's certificate is good for the node of "
                "that name only. "
                "Programs take up renewed files within seconds, without dropping a call.",
        .examples = "  berth ca init --ca /etc/berth/ca\n"
                    "  berth ca issue server s1 --dns berth.example --ip 10.0.0.1 --ca "
                    "/etc/berth/ca --out /etc/berth/tls\n"
                    "  berth ca issue node n7 --ca /etc/berth/ca --out ./n7\n"
                    "  berth ca renew /etc/berth/tls/s1.pem --ca /etc/berth/ca\n"
                    "  berth ca rotate --ca /etc/berth/ca\n"
                    "  berth ca show -o json",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .defaults = &defaults,
        .values_size = sizeof(struct ca_options),
        .run = ca_run,
        .group = VERBS_CLUSTER,
        .words = "init|issue|renew|rotate|show",
        .offline = true,
};
