/* model/compose.c: see compose.h. A tree first (yaml_tree.h), then every key of it is known or
 * refused. */
#include "model/compose.h"
#include "base/str.h"
#include "model/pb.h"
#include "model/rules.h"
#include "model/validate.h"
#include "model/yaml_tree.h"
#include <string.h>

#define NAME "compose"
#define LIST_MAX 1024

struct reader {
        struct arena *arena;
        struct err *err;
};

static int fail(struct reader *r, const struct yaml_node *at, const char *what, const char *hint)
{
        return yaml_fail(NAME, at, what, hint, r->err);
}

static int read_text(struct reader *r, const struct yaml_node *n, char **ret)
{
        if (n->kind != YAML_TEXT || yaml_is_null(n))
                return fail(r, n, "expected a text", NULL);
        *ret = (char *)(uintptr_t)n->text;
        return 0;
}

/* A command as the format has it: a list of words, or one text that is split like a shell's,
 * without variables. */
static int split_words(struct reader *r, const struct yaml_node *n, char ***ret, size_t *ret_n)
{
        const char *s = n->text;
        char **words = arena_new_n(r->arena, char *, strlen(s) / 2 + 2);
        size_t count = 0;
        struct str word = STR_INIT;
        char quote = 0;
        bool open = false;

        for (;; s++) {
                if (*s == 0 || (!quote && (*s == ' ' || *s == '\t' || *s == '\n'))) {
                        if (open)
                                words[count++] = arena_strndup(r->arena, str_c(&word), word.len);
                        open = false;
                        str_clear(&word);
                        if (*s == 0)
                                break;
                } else if (quote ? *s == quote : *s == '\'' || *s == '"') {
                        quote = quote ? 0 : *s;
                        open = true;
                } else {
                        if (*s == '\\' && quote != '\'' && s[1])
                                s++;
                        str_addc(&word, *s);
                        open = true;
                }
        }
        str_fini(&word);
        if (quote)
                return fail(r, n, "a quote is not closed", NULL);
        *ret = words;
        *ret_n = count;
        return 0;
}

static int read_words(struct reader *r, const struct yaml_node *n, char ***ret, size_t *ret_n)
{
        char **words;

        if (n->kind == YAML_TEXT && !yaml_is_null(n))
                return split_words(r, n, ret, ret_n);
        if (n->kind != YAML_LIST)
                return fail(r, n, "expected a list of words or a text", NULL);
        if (n->n > LIST_MAX)
                return fail(r, n, fmt("has %zu entries, at most %d are allowed", n->n, LIST_MAX),
                            NULL);
        words = arena_new_n(r->arena, char *, n->n + 1);
        for (size_t i = 0; i < n->n; i++) {
                int rc = read_text(r, n->at[i], &words[i]);

                if (rc < 0)
                        return rc;
        }
        *ret = words;
        *ret_n = n->n;
        return 0;
}

static int add_variable(struct reader *r, const struct yaml_node *at, Pb__Spec *spec,
                        const char *key, size_t key_len, const char *value)
{
        Pb__Spec__EnvEntry *e =
            (Pb__Spec__EnvEntry *)pb_new(r->arena, &pb__spec__env_entry__descriptor);
        const char *bad;

        e->key = arena_strndup(r->arena, key, key_len);
        e->value = (char *)(uintptr_t)value;
        bad = rule_text_check(RULE_ENV_NAME, e->key, key_len);
        if (bad)
                return fail(r, at, bad, NULL);
        for (size_t i = 0; i < spec->n_env; i++)
                if (str_eq(spec->env[i]->key, e->key))
                        return fail(r, at, "the variable is there twice", NULL);
        spec->env[spec->n_env++] = e;
        return 0;
}

static int read_environment(struct reader *r, const struct yaml_node *n, Pb__Spec *spec)
{
        int rc = 0;

        if (n->kind == YAML_TEXT)
                return fail(r, n, "expected an object or a list of NAME=value", NULL);
        if (n->n > LIST_MAX)
                return fail(r, n, fmt("has %zu entries, at most %d are allowed", n->n, LIST_MAX),
                            NULL);
        spec->env = arena_new_n(r->arena, Pb__Spec__EnvEntry *, n->n + 1);
        for (size_t i = 0; i < n->n && rc == 0; i++) {
                const struct yaml_node *v = n->at[i];

                if (v->kind != YAML_TEXT)
                        return fail(r, v, "expected a text", NULL);
                if (n->kind == YAML_MAP)
                        rc = yaml_is_null(v)
                                 ? fail(r, v, "has no value",
                                        "berth takes no variables from the machine where apply "
                                        "runs: write the value out")
                                 : add_variable(r, v, spec, v->key, strlen(v->key), v->text);
                else {
                        const char *equals = strchr(v->text, '=');

                        rc = !equals ? fail(r, v, "has no value", "write NAME=value")
                                     : add_variable(r, v, spec, v->text, (size_t)(equals - v->text),
                                                    equals + 1);
                }
        }
        return rc;
}

static int parse_port(const char *text, size_t len, int32_t *ret)
{
        char buf[8];
        uint64_t v;

        if (len == 0 || len >= sizeof(buf))
                return -1;
        memcpy(buf, text, len);
        buf[len] = 0;
        if (str_parse_u64(buf, &v) < 0 || v < 1 || v > 65535)
                return -1;
        *ret = (int32_t)v;
        return 0;
}

/* "8080:80", "8080:80/udp". Ranges, addresses and ports that the engine chooses are refused: berth
 * places by host port. */
static int read_port(struct reader *r, const struct yaml_node *n, Pb__Port **ret)
{
        Pb__Port *p = (Pb__Port *)pb_new(r->arena, &pb__port__descriptor);
        const char *text = n->kind == YAML_TEXT ? n->text : "", *colon = strchr(text, ':'),
                   *slash = strchr(text, '/');
        size_t len = slash ? (size_t)(slash - text) : strlen(text);

        p->protocol = (char *)(uintptr_t)(slash ? slash + 1 : "tcp");
        if (!colon || parse_port(text, (size_t)(colon - text), &p->host_port) < 0 ||
            parse_port(colon + 1, len - (size_t)(colon + 1 - text), &p->container_port) < 0 ||
            rule_text_check(RULE_PROTOCOL, p->protocol, strlen(p->protocol)))
                return fail(r, n, "expected HOST:CONTAINER or HOST:CONTAINER/udp",
                            "one port each, as text: \"8080:80\"");
        *ret = p;
        return 0;
}

static int read_volume(struct reader *r, const struct yaml_node *n, Pb__VolumeMount **ret)
{
        Pb__VolumeMount *v = (Pb__VolumeMount *)pb_new(r->arena, &pb__volume_mount__descriptor);
        const char *text = n->kind == YAML_TEXT ? n->text : "", *colon = strchr(text, ':'),
                   *mode = colon ? strchr(colon + 1, ':') : NULL;

        if (!colon)
                return fail(r, n, "expected /host/path:/container/path, perhaps with :ro", NULL);
        v->host_path = arena_strndup(r->arena, text, (size_t)(colon - text));
        v->container_path = mode ? arena_strndup(r->arena, colon + 1, (size_t)(mode - colon - 1))
                                 : (char *)(uintptr_t)(colon + 1);
        v->read_only = mode && str_eq(mode + 1, "ro");
        if (v->host_path[0] != '/')
                return fail(r, n, "named volumes and relative paths are not known here",
                            "write an absolute path of the node: /srv/data:/data");
        if (v->container_path[0] != '/' ||
            (mode && !str_eq(mode + 1, "ro") && !str_eq(mode + 1, "rw")))
                return fail(r, n, "expected /host/path:/container/path, perhaps with :ro or :rw",
                            NULL);
        *ret = v;
        return 0;
}

static int check_list(struct reader *r, const struct yaml_node *n, size_t max)
{
        if (n->kind != YAML_LIST)
                return fail(r, n, "expected a list", NULL);
        return n->n > max
                   ? fail(r, n, fmt("has %zu entries, at most %zu are allowed", n->n, max), NULL)
                   : 0;
}

static int read_ports(struct reader *r, const struct yaml_node *n, Pb__Spec *spec)
{
        int rc = check_list(r, n, 256);

        spec->ports = arena_new_n(r->arena, Pb__Port *, n->n + 1);
        for (size_t i = 0; i < n->n && rc == 0; i++, spec->n_ports += rc == 0)
                rc = read_port(r, n->at[i], &spec->ports[i]);
        return rc;
}

static int read_volumes(struct reader *r, const struct yaml_node *n, Pb__Spec *spec)
{
        int rc = check_list(r, n, 256);

        spec->volumes = arena_new_n(r->arena, Pb__VolumeMount *, n->n + 1);
        for (size_t i = 0; i < n->n && rc == 0; i++, spec->n_volumes += rc == 0)
                rc = read_volume(r, n->at[i], &spec->volumes[i]);
        return rc;
}

static int read_member(struct reader *r, const struct yaml_node *n, Pb__Spec *spec)
{
        static const char *const known[] = { "image", "command",    "entrypoint",   "environment",
                                             "ports", "volumes",    "depends_on",   "working_dir",
                                             "user",  "privileged", "network_mode", "restart",
                                             NULL };
        const char *key = n->key, *near;

        if (str_eq(key, "restart") || str_eq(key, "depends_on"))
                return 0; /* restarts are berth's; the order is read by itself */
        if (yaml_is_null(n))
                return fail(r, n, "has no value", NULL);
        if (str_eq(key, "image"))
                return read_text(r, n, &spec->image);
        if (str_eq(key, "command"))
                return read_words(r, n, &spec->args, &spec->n_args);
        if (str_eq(key, "entrypoint"))
                return read_words(r, n, &spec->command, &spec->n_command);
        if (str_eq(key, "environment"))
                return read_environment(r, n, spec);
        if (str_eq(key, "ports"))
                return read_ports(r, n, spec);
        if (str_eq(key, "volumes"))
                return read_volumes(r, n, spec);
        if (str_eq(key, "working_dir"))
                return read_text(r, n, &spec->workdir);
        if (str_eq(key, "user"))
                return read_text(r, n, &spec->user);
        if (str_eq(key, "network_mode"))
                return read_text(r, n, &spec->network);
        if (str_eq(key, "privileged")) {
                spec->privileged = n->kind == YAML_TEXT && str_eq(n->text, "true");
                return spec->privileged || (n->kind == YAML_TEXT && str_eq(n->text, "false"))
                           ? 0
                           : fail(r, n, "expected true or false",
                                  "berth puts in no variables: write the value out");
        }
        near = str_suggest(key, known);
        return fail(r, n,
                    near ? fmt("berth does not know this key, did you mean %s", near)
                         : "berth does not know this key",
                    "known in a service: image, command, entrypoint, environment, ports, volumes, "
                    "depends_on, working_dir, user, "
                    "privileged, network_mode, restart");
}

static int read_service(struct reader *r, const struct yaml_node *n, struct compose_service *ret)
{
        const char *bad;
        int rc = 0;

        if (n->kind != YAML_MAP)
                return fail(r, n, "expected a service",
                            "a service looks like: {image: \"nginx:1\", ports: [\"8080:80\"]}");
        if (!id_is_valid(n->key) || strlen(n->key) > 63)
                return fail(r, n,
                            "a service's name must be 1 to 63 letters, digits, '.', '_' or '-', "
                            "beginning with a letter or digit",
                            NULL);
        ret->name = n->key;
        ret->spec = (Pb__Spec *)pb_new(r->arena, &pb__spec__descriptor);
        for (size_t i = 0; i < n->n && rc == 0; i++)
                rc = read_member(r, n->at[i], ret->spec);
        if (rc < 0)
                return rc;
        if (str_empty(ret->spec->image))
                return fail(r, n, "has no image",
                            "berth builds no images: push it to a registry and name it here");
        bad = rule_text_check(RULE_TOKEN, ret->spec->image, strlen(ret->spec->image));
        if (!bad && !str_empty(ret->spec->workdir))
                bad = rule_text_check(RULE_PATH, ret->spec->workdir, strlen(ret->spec->workdir));
        if (!bad && !str_empty(ret->spec->user))
                bad = rule_text_check(RULE_USER, ret->spec->user, strlen(ret->spec->user));
        return bad ? fail(r, n, bad, NULL) : 0;
}

/* ---- order ---- */

static size_t find_service(const struct yaml_node *services, const char *name)
{
        for (size_t i = 0; i < services->n; i++)
                if (str_eq(services->at[i]->key, name))
                        return i;
        return SIZE_MAX;
}

/* What a service waits for, as bits. depends_on is a list of names, or an object whose keys are
 * names (and whose conditions berth does not know). */
static int read_needs(struct reader *r, const struct yaml_node *services, size_t i, uint64_t *ret)
{
        const struct yaml_node *d = yaml_get(services->at[i], "depends_on");

        *ret = 0;
        if (!d || yaml_is_null(d))
                return 0;
        if (d->kind == YAML_TEXT)
                return fail(r, d, "expected a list of services", NULL);
        for (size_t k = 0; k < d->n; k++) {
                const struct yaml_node *one = d->at[k], *condition = yaml_get(one, "condition");
                const char *name = d->kind == YAML_MAP      ? one->key
                                   : one->kind == YAML_TEXT ? one->text
                                                            : "";
                size_t at = find_service(services, name);

                if (condition && !str_eq(condition->text, "service_started"))
                        return fail(r, condition, "berth knows only service_started", NULL);
                if (at == SIZE_MAX)
                        return fail(r, one, "there is no such service", NULL);
                *ret |= 1ull << at;
        }
        return 0;
}

static int order(struct reader *r, const struct yaml_node *services,
                 const struct compose_service *all, struct compose *ret)
{
        uint64_t needs[COMPOSE_MAX_SERVICES] = { 0 }, done = 0;

        for (size_t i = 0; i < services->n; i++) {
                int rc = read_needs(r, services, i, &needs[i]);

                if (rc < 0)
                        return rc;
        }
        while (ret->n_services < services->n) {
                size_t before = ret->n_services;

                for (size_t i = 0; i < services->n; i++)
                        if (!(done >> i & 1) && (needs[i] & ~done) == 0) {
                                done |= 1ull << i;
                                ret->services[ret->n_services++] = all[i];
                        }
                if (ret->n_services == before)
                        return fail(r, services, "depends_on goes in a circle", NULL);
        }
        return 0;
}

/* Host ports must differ over all services: they are one unit on one node. */
static int check_host_ports(struct reader *r, const struct yaml_node *services,
                            const struct compose *c)
{
        for (size_t i = 0; i < c->n_services; i++)
                for (size_t a = 0; a < c->services[i].spec->n_ports; a++)
                        for (size_t k = 0; k <= i; k++)
                                for (size_t b = 0; b < (k == i ? a : c->services[k].spec->n_ports);
                                     b++) {
                                        const Pb__Port *p = c->services[i].spec->ports[a],
                                                       *q = c->services[k].spec->ports[b];

                                        if (p->host_port == q->host_port &&
                                            str_eq(p->protocol, q->protocol))
                                                return fail(r,
                                                            yaml_get(services, c->services[i].name),
                                                            fmt("host port %d is there twice",
                                                                p->host_port),
                                                            NULL);
                                }
        return 0;
}

int compose_read(const char *text, size_t len, struct arena *arena, struct compose *ret,
                 struct err *err)
{
        struct reader r = { arena, err };
        struct yaml_node *root = NULL, *services;
        struct compose_service all[COMPOSE_MAX_SERVICES];
        struct compose c = { 0 };
        int rc = yaml_tree_read(NAME, 1, text, len, arena, &root, err);

        if (rc < 0)
                return rc;
        if (root->kind != YAML_MAP)
                return fail(&r, root, "expected an object with services", NULL);
        for (size_t i = 0; i < root->n; i++)
                if (!str_eq(root->at[i]->key, "services") && !str_eq(root->at[i]->key, "version") &&
                    !str_eq(root->at[i]->key, "name"))
                        return fail(&r, root->at[i], "berth does not know this key",
                                    "known at the top: services, version, name");
        services = yaml_get(root, "services");
        if (!services || services->kind != YAML_MAP || services->n == 0)
                return fail(&r, services ? services : root, "there are no services", NULL);
        if (services->n > COMPOSE_MAX_SERVICES)
                return fail(&r, services,
                            fmt("has %zu services, at most %d are allowed", services->n,
                                COMPOSE_MAX_SERVICES),
                            NULL);
        for (size_t i = 0; i < services->n; i++)
                if ((rc = read_service(&r, services->at[i], &all[i])) < 0)
                        return rc;
        c.services = arena_new_n(arena, struct compose_service, services->n);
        if ((rc = order(&r, services, all, &c)) < 0 ||
            (rc = check_host_ports(&r, services, &c)) < 0)
                return rc;
        *ret = c;
        return 0;
}
