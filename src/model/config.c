/* model/config.c: see config.h. The table of rules (rules.c) is asked part by part, so that a file
 * with three mistakes is told three times. */
#include "model/config.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "model/event.h"
#include "model/manifest.h"
#include "model/rules.h"
#include "model/validate.h"
#include <stdio.h>
#include <string.h>

struct check {
        const char *name, *text;
        size_t len;
        config_problem fn;
        void *ctx;
        struct err *first;
        unsigned problems;
};

static void problem(struct check *k, const char *path, const char *what, const char *hint)
{
        struct err err;
        unsigned line = yaml_line(k->text, k->len, path);
        /* the table's words begin with the path inside the part; ours is that in the file */
        err_set(&err, ERR_INVALID,
                .msg = fmt("%.100s:%u: %s%s%s", k->name, line, path, *path ? ": " : "", what),
                .hint = hint, .path = path);
        if (k->problems++ == 0 && k->first)
                *k->first = err;
        if (k->fn)
                k->fn(k->ctx, &err);
}

/* One message by the table; at: its own path in the file, "" for the whole. */
static void check_part(struct check *k, const ProtobufCMessage *m, const char *at)
{
        struct err err = { 0 };
        if (validate_request(m, &err) >= 0)
                return;
        const char *what = err.msg;
        size_t n = strlen(err.path);
        if (n && strncmp(what, err.path, n) == 0 && what[n] == ':')
                what += n + 2;
        char path[300];
        (void)snprintf(path, sizeof(path), "%s%s%s", at, *at && n ? "." : "", err.path);
        problem(k, path, what, err.hint[0] ? err.hint : NULL);
}

static void check_rules(struct check *k, const Pb__ServerConfig *c)
{
        for (size_t i = 0; i < c->n_rules; i++) {
                const Pb__AutomationRule *r = c->rules[i];
                char at[32];
                (void)snprintf(at, sizeof(at), "rules[%zu]", i);
                check_part(k, &r->base, at);
                for (size_t j = 0; j < i; j++)
                        if (str_eq(c->rules[j]->name, r->name) && !str_empty(r->name))
                                problem(k, fmt("%s.name", at), fmt("'%s' is there twice", r->name),
                                        NULL);
                bool known = str_empty(r->webhook);
                for (size_t j = 0; j < c->n_webhooks; j++)
                        known |= str_eq(c->webhooks[j]->name, r->webhook);
                if (!known)
                        problem(k, fmt("%s.webhook", at),
                                fmt("there is no webhook '%s'", r->webhook),
                                "name it below webhooks");
        }
}

static void check_webhooks(struct check *k, const Pb__ServerConfig *c)
{
        for (size_t i = 0; i < c->n_webhooks; i++) {
                const Pb__Webhook *w = c->webhooks[i];
                char at[32];
                (void)snprintf(at, sizeof(at), "webhooks[%zu]", i);
                check_part(k, &w->base, at);
                for (size_t j = 0; j < i; j++)
                        if (str_eq(c->webhooks[j]->name, w->name) && !str_empty(w->name))
                                problem(k, fmt("%s.name", at), fmt("'%s' is there twice", w->name),
                                        NULL);
                if (!str_empty(w->secret) && !str_empty(w->secret_file))
                        problem(k, fmt("%s.secret_file", at), "is given beside secret",
                                "one of the two");
        }
}

static void check_policies(struct check *k, const Pb__ServerConfig *c)
{
        if (c->policy && !str_empty(c->policy->tenant))
                problem(k, "policy.tenant", "is for tenant_policies",
                        "this one is for all that have none of their own");
        if (c->n_tenant_policies > CONFIG_MAX_POLICIES)
                problem(k, "tenant_policies",
                        fmt("has %zu entries, at most %d are allowed", c->n_tenant_policies,
                            CONFIG_MAX_POLICIES),
                        NULL);
        for (size_t i = 0; i < c->n_tenant_policies; i++) {
                const Pb__Policy *p = c->tenant_policies[i];
                char at[40];
                (void)snprintf(at, sizeof(at), "tenant_policies[%zu]", i);
                check_part(k, &p->base, at);
                if (str_empty(p->tenant))
                        problem(k, fmt("%s.tenant", at), "is missing", NULL);
                for (size_t j = 0; j < i; j++)
                        if (str_eq(c->tenant_policies[j]->tenant, p->tenant) &&
                            !str_empty(p->tenant))
                                problem(k, fmt("%s.tenant", at),
                                        fmt("'%s' is there twice", p->tenant), NULL);
        }
}

static void check_range(struct check *k, const char *path, const char *text, int64_t min_ms,
                        int64_t max_ms, const char *what)
{
        int64_t ms = config_duration_ms(text, min_ms);
        if (ms < min_ms || ms > max_ms)
                problem(k, path, what, NULL);
}

#define EVENTS_MAX INT64_C(1000000000000)
#define AGE_MAX_MS (36500 * INT64_C(86400000))

static void check_events(struct check *k, const char *path, const Pb__IntValue *n)
{
        if (n && (n->value < 0 || n->value > EVENTS_MAX))
                problem(k, path, fmt("must be between 0 and %lld", (long long)EVENTS_MAX),
                        "0: any number");
}

static void check_retention(struct check *k, const Pb__ServerConfig *c)
{
        const Pb__EventRetention *r = c->retention;
        check_events(k, "keep_events", c->keep_events);
        for (int i = 0; r && i < EVENT_CLASSES; i++) {
                const char *name = event_class_name((enum event_class)i);
                const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(
                    &pb__event_retention__descriptor, name);
                const Pb__EventKeep *keep =
                    f ? *(Pb__EventKeep *const *)((const char *)r + f->offset) : NULL;
                int64_t age_ms = keep ? config_duration_ms(keep->age, 0) : 0;
                if (keep)
                        check_events(k, fmt("retention.%s.events", name), keep->events);
                if (age_ms != 0 && (age_ms < 1000 || age_ms > AGE_MAX_MS))
                        problem(k, fmt("retention.%s.age", name), "must be between 1s and 36500d",
                                "0s: of any age");
        }
        if (c->keep_events && r && r->lifecycle && r->lifecycle->events)
                problem(k, "retention.lifecycle.events", "is given beside keep_events",
                        "they are the same: give one of the two");
}

static void check_all(struct check *k, Pb__ServerConfig *c)
{
        Pb__ServerConfig top = *c;
        top.n_rules = top.n_webhooks = top.n_tenant_policies = 0;
        if (c->n_rules > CONFIG_MAX_RULES)
                problem(
                    k, "rules",
                    fmt("has %zu entries, at most %d are allowed", c->n_rules, CONFIG_MAX_RULES),
                    NULL);
        if (c->n_webhooks > CONFIG_MAX_WEBHOOKS)
                problem(k, "webhooks",
                        fmt("has %zu entries, at most %d are allowed", c->n_webhooks,
                            CONFIG_MAX_WEBHOOKS),
                        NULL);
        if (c->default_quota)
                c->default_quota->tenant = (char *)"default"; /* of nobody in particular */
        unsigned before = k->problems;
        check_part(k, &top.base, "");
        if (k->problems == before) {
                check_range(k, "heartbeat", c->heartbeat, 100, 3600 * 1000,
                            "must be between 100ms and 1h");
                check_range(k, "lease", c->lease, 1000, 3600 * 1000, "must be between 1s and 1h");
                check_range(k, "lease_grace", c->lease_grace, 1000, 3600 * 1000,
                            "must be between 1s and 1h");
                int64_t beat = config_duration_ms(c->heartbeat, 10000);
                if (!str_empty(c->lease) && config_duration_ms(c->lease, 0) < 2 * beat)
                        problem(k, "lease",
                                fmt("must be at least two heartbeats (%lld ms each): else one that "
                                    "is late stops exclusive units",
                                    (long long)beat),
                                "heartbeat times silence is the default");
                if (c->clock_drift_percent &&
                    (c->clock_drift_percent->value < 0 || c->clock_drift_percent->value > 50))
                        problem(k, "clock_drift_percent", "must be between 0 and 50", NULL);
                check_range(k, "pass", c->pass, 100, INT64_MAX, "must be at least 100ms");
        }
        check_retention(k, c);
        if (c->tls && str_empty(c->tls->cert) != str_empty(c->tls->key))
                problem(k, "tls", "needs both cert and key", NULL);
        if (!str_empty(c->auth) && !str_eq(c->auth, "token") && !str_eq(c->auth, "none"))
                problem(k, "auth", "must be token or none", NULL);
        if (c->signing && !str_empty(c->signing->ca) && !str_empty(c->signing->cfssl))
                problem(k, "signing.cfssl", "is given beside ca", "one of the two signs");
        if (c->signing && k->problems == before)
                check_range(k, "signing.valid", c->signing->valid, 5000, 3650ll * 86400 * 1000,
                            "must be between 5s and 3650d");
        if (!str_empty(c->profile) && !str_eq(c->profile, "berth") && !str_eq(c->profile, "persys"))
                problem(k, "profile", "must be berth or persys", NULL);
        if (!str_empty(c->strangers) && !str_eq(c->strangers, "keep") &&
            !str_eq(c->strangers, "adopt") && !str_eq(c->strangers, "remove"))
                problem(k, "strangers", "must be keep, adopt or remove", NULL);
        for (size_t i = 0; i < c->n_operator_labels; i++) {
                const char *key = c->operator_labels[i];
                size_t len = strlen(key);
                if (rule_text_check(RULE_LABEL_KEY, key, len) &&
                    (!str_ends(key, "/") ||
                     rule_text_check(RULE_LABEL_KEY, fmt("%sx", key), len + 1)))
                        problem(k, fmt("operator_labels[%zu]", i),
                                "must be a label's key, or a prefix that ends in /", NULL);
        }
        enum log_level level;
        if (!str_empty(c->log_level) && log_level_parse(c->log_level, &level) < 0)
                problem(k, "log_level", "must be debug, info, warn or error", NULL);
        if (!str_empty(c->log_format) && !str_eq(c->log_format, "logfmt") &&
            !str_eq(c->log_format, "json"))
                problem(k, "log_format", "must be logfmt or json", NULL);
        check_rules(k, c);
        check_webhooks(k, c);
        check_policies(k, c);
}

static bool is_empty(const char *text, size_t len)
{
        for (size_t i = 0; i < len;) {
                size_t n = strcspn(text + i, "\n");
                const char *line = text + i + strspn(text + i, " \t\r");
                if (*line != '#' && *line != '\n' && *line != '\0' && strncmp(line, "---", 3) != 0)
                        return false;
                i += n + 1;
        }
        return true;
}

int config_read(const char *name, const char *text, size_t len, struct arena *arena,
                Pb__ServerConfig **ret, config_problem fn, void *ctx, struct err *err)
{
        struct err own = { 0 };
        struct check k = { .name = name,
                           .text = text,
                           .len = len,
                           .fn = fn,
                           .ctx = ctx,
                           .first = err ? err : &own };
        ProtobufCMessage *m = NULL;
        if (is_empty(text, len)) {
                Pb__ServerConfig *c = arena_new(arena, Pb__ServerConfig);
                pb__server_config__init(c);
                *ret = c;
                return 0;
        }
        int r = yaml_read(&pb__server_config__descriptor, name, text, len, arena, &m, k.first);
        if (r < 0) {
                if (fn)
                        fn(ctx, k.first);
                return r;
        }
        check_all(&k, (Pb__ServerConfig *)m);
        if (k.problems)
                return -ERR_INVALID;
        *ret = (Pb__ServerConfig *)m;
        return 0;
}

int config_load(const char *path, struct arena *arena, Pb__ServerConfig **ret, config_problem fn,
                void *ctx, struct err *err)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        int r = file_read(path, CONFIG_MAX_BYTES, &text, err);
        if (r < 0) {
                if (err)
                        err_prefix(err, "the configuration cannot be read");
                if (fn && err)
                        fn(ctx, err);
                return r;
        }
        return config_read(path, str_c(&text), text.len, arena, ret, fn, ctx, err);
}

int64_t config_duration_ms(const char *text, int64_t otherwise)
{
        int64_t ms;
        return str_empty(text) || str_parse_duration_ms(text, &ms) < 0 ? otherwise : ms;
}

int url_parse(struct arena *arena, const char *text, struct url *ret, struct err *err)
{
        struct url u = { .tls = str_starts(text, "https://"), .port = 80 };
        if (!u.tls && !str_starts(text, "http://"))
                return err_set(err, ERR_INVALID, .msg = "must begin with http:// or https://");
        if (u.tls)
                u.port = 443;
        const char *p = strstr(text, "://") + 3;
        size_t n = strcspn(p, "/?#");
        for (const char *c = text; *c; c++)
                if (*c <= ' ' || *c >= 0x7f)
                        return err_set(err, ERR_INVALID,
                                       .msg = "must be printable characters without spaces");
        if (memchr(p, '@', n))
                return err_set(err, ERR_INVALID, .msg = "must not carry a user or password",
                               .hint = "what is sent is signed with the secret");
        u.authority = arena_strndup(arena, p, n);
        u.path = p[n] == '\0' || p[n] == '#' ? "/"
                 : p[n] == '?'               ? arena_printf(arena, "/%s", p + n)
                                             : arena_strdup(arena, p + n);
        const char *close = p[0] == '[' ? memchr(p, ']', n) : NULL,
                   *colon = close ? close + 1 : memchr(p, ':', n);
        const char *end = close ? close : colon ? colon : p + n, *begin = close ? p + 1 : p;
        u.host = arena_strndup(arena, begin, (size_t)(end - begin));
        if (colon && colon < p + n) {
                uint64_t port;
                if (*colon != ':' ||
                    str_parse_u64(arena_strndup(arena, colon + 1, (size_t)(p + n - colon - 1)),
                                  &port) < 0 ||
                    port < 1 || port > 65535)
                        return err_set(err, ERR_INVALID, .msg = "has a port that is none");
                u.port = (uint16_t)port;
        }
        if (str_empty(u.host))
                return err_set(err, ERR_INVALID, .msg = "names no host");
        *ret = u;
        return 0;
}
