/* agent/runtimes/container_spec.c: see container_spec.h. */
#include "agent/runtimes/container_spec.h"
#include "agent/runtimes/container_api.h"
#include "base/map.h"
#include "model/json.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void container_name(struct str *out, const char *cluster_id, const char *node_id,
                    const char *workload_id, const char *part)
{
        _cleanup_(str_finip) struct str whose = STR_INIT;
        uint64_t h;

        if (!str_empty(cluster_id))
                str_addf(&whose, "%s/", cluster_id);
        str_adds(&whose, node_id);
        h = hash64(str_c(&whose), whose.len);

        str_addf(out, "berth-%s-%06x", workload_id, (unsigned)(h & 0xffffff));
        if (!str_empty(part))
                str_addf(out, "-%s", part);
}

void token_text(char buf[48], struct unit_token token)
{
        snprintf(buf, 48, "%" PRIu64 ".%" PRIu64, token.epoch, token.seq);
}

int token_parse(const char *text, struct unit_token *ret)
{
        struct unit_token t;
        char epoch[24];
        const char *dot = text ? strchr(text, '.') : NULL;

        if (!dot || (size_t)(dot - text) >= sizeof(epoch))
                return -1;
        memcpy(epoch, text, (size_t)(dot - text));
        epoch[dot - text] = 0;
        if (str_parse_u64(epoch, &t.epoch) < 0 || str_parse_u64(dot + 1, &t.seq) < 0)
                return -1;
        *ret = t;
        return 0;
}

void image_query(struct str *out, const char *image)
{
        const char *slash = strrchr(image, '/'), *last = slash ? slash + 1 : image;

        str_adds(out, "fromImage=");
        api_add_encoded(out, image);
        if (!strchr(last, ':') && !strchr(last, '@'))
                str_adds(out, "&tag=latest");
}

/* ---- JSON, one member after the other; every object begins with a member that is always there
 * ---- */

static void add_key(struct str *out, const char *key)
{
        if (out->len && !strchr("{[", out->buf[out->len - 1]))
                str_addc(out, ',');
        json_write_string(out, key, strlen(key));
        str_addc(out, ':');
}

static void add_text(struct str *out, const char *key, const char *value)
{
        add_key(out, key);
        json_write_string(out, value, strlen(value));
}

static void add_number(struct str *out, const char *key, int64_t value)
{
        add_key(out, key);
        str_add_i64(out, value);
}

static void add_list(struct str *out, const char *key, char *const *at, size_t n)
{
        if (n == 0)
                return;
        add_key(out, key);
        str_addc(out, '[');
        for (size_t i = 0; i < n; i++) {
                if (i)
                        str_addc(out, ',');
                json_write_string(out, at[i], strlen(at[i]));
        }
        str_addc(out, ']');
}

void container_own_env(const struct container_def *d, struct container_env ret[CONTAINER_OWN_ENV])
{
        ret[0] = (struct container_env){ .key = "BERTH_WORKLOAD_ID" };
        ret[1] = (struct container_env){ .key = "BERTH_NODE_ID" };
        ret[2] = (struct container_env){ .key = "BERTH_REVISION" };
        ret[3] = (struct container_env){ .key = "BERTH_FENCING_TOKEN" };
        snprintf(ret[0].value, sizeof(ret[0].value), "%s", d->workload_id);
        snprintf(ret[1].value, sizeof(ret[1].value), "%s", d->node_id);
        snprintf(ret[2].value, sizeof(ret[2].value), "%s", d->revision_id ? d->revision_id : "");
        token_text(ret[3].value, d->token);
}

static bool has_env(const Pb__Spec *spec, const char *key)
{
        for (size_t i = 0; i < spec->n_env; i++)
                if (str_eq(spec->env[i]->key, key))
                        return true;
        return false;
}

static void add_variable(struct str *out, const char *key, const char *value)
{
        _cleanup_(str_finip) struct str one = STR_INIT;

        if (out->buf[out->len - 1] != '[')
                str_addc(out, ',');
        str_addf(&one, "%s=%s", key, value);
        json_write_string(out, str_c(&one), one.len);
}

static void add_env(struct str *out, const struct container_def *d)
{
        struct container_env own[CONTAINER_OWN_ENV];

        container_own_env(d, own);
        add_key(out, "Env");
        str_addc(out, '[');
        for (size_t i = 0; i < d->spec->n_env; i++)
                add_variable(out, d->spec->env[i]->key, d->spec->env[i]->value);
        for (size_t i = 0; i < ARRAY_LEN(own); i++)
                if (!has_env(d->spec,
                             /* those are refused when they are applied; in definitions from before
                              * the user's own stays */
                             own[i].key))
                        add_variable(out, own[i].key, own[i].value);
        str_addc(out, ']');
}

static void add_labels(struct str *out, const struct container_def *d)
{
        char token[48];

        token_text(token, d->token);
        add_key(out, "Labels");
        str_addc(out, '{');
        add_text(out, LABEL_WORKLOAD, d->workload_id);
        add_text(out, LABEL_NODE, d->node_id);
        add_text(out, LABEL_TOKEN, token);
        add_text(out, LABEL_REVISION, d->revision_id ? d->revision_id : "");
        add_text(out, LABEL_CLUSTER, d->cluster_id ? d->cluster_id : "");
        add_text(out, LABEL_PART, d->part ? d->part : "");
        add_text(out, LABEL_PARTS, fmt("%zu", d->n_parts));
        str_addc(out, '}');
}

static const char *protocol_of(const Pb__Port *p)
{
        return str_empty(p->protocol) ? "tcp" : p->protocol;
}

/* The port of the container was there before: an object has each key once. */
static bool is_repeated(const Pb__Spec *spec, size_t i)
{
        for (size_t k = 0; k < i; k++)
                if (spec->ports[k]->container_port == spec->ports[i]->container_port &&
                    str_eq(protocol_of(spec->ports[k]), protocol_of(spec->ports[i])))
                        return true;
        return false;
}

static void add_exposed(struct str *out, const Pb__Spec *spec)
{
        if (spec->n_ports == 0)
                return;
        add_key(out, "ExposedPorts");
        str_addc(out, '{');
        for (size_t i = 0; i < spec->n_ports; i++) {
                if (is_repeated(spec, i))
                        continue;
                add_key(out,
                        fmt("%d/%s", spec->ports[i]->container_port, protocol_of(spec->ports[i])));
                str_adds(out, "{}");
        }
        str_addc(out, '}');
}

/* A port of the container can be there several times: all host ports of it stand in one list. */
static void add_bindings(struct str *out, const Pb__Spec *spec)
{
        add_key(out, "PortBindings");
        str_addc(out, '{');
        for (size_t i = 0; i < spec->n_ports; i++) {
                const Pb__Port *p = spec->ports[i];
                bool first = true;

                if (is_repeated(spec, i))
                        continue;
                add_key(out, fmt("%d/%s", p->container_port, protocol_of(p)));
                str_addc(out, '[');
                for (size_t k = i; k < spec->n_ports; k++) {
                        const Pb__Port *q = spec->ports[k];

                        if (q->container_port != p->container_port ||
                            !str_eq(protocol_of(q), protocol_of(p)))
                                continue;
                        str_addf(out, "%s{\"HostPort\":\"%d\"}", first ? "" : ",", q->host_port);
                        first = false;
                }
                str_addc(out, ']');
        }
        str_addc(out, '}');
}

static void add_mounts(struct str *out, const Pb__Spec *spec)
{
        if (spec->n_volumes == 0)
                return;
        add_key(out, "Mounts");
        str_addc(out, '[');
        for (size_t i = 0; i < spec->n_volumes; i++) {
                if (i)
                        str_addc(out, ',');
                str_addc(out, '{');
                add_text(out, "Type", "bind");
                add_text(out, "Source", spec->volumes[i]->host_path);
                add_text(out, "Target", spec->volumes[i]->container_path);
                if (spec->volumes[i]->read_only)
                        str_adds(out, ",\"ReadOnly\":true");
                str_addc(out, '}');
        }
        str_addc(out, ']');
}

static void add_limits(struct str *out, const struct container_def *d)
{
        const Pb__Spec *s = d->spec;
        int64_t files = s->max_open_files, processes = s->max_processes;

        if (d->resources && d->resources->cpu > 0)
                add_number(out, "NanoCpus", d->resources->cpu * 1000000);
        if (d->resources && d->resources->memory_mb > 0)
                add_number(out, "Memory", d->resources->memory_mb << 20);
        if (files <= 0 && processes <= 0)
                return;
        add_key(out, "Ulimits");
        str_addc(out, '[');
        if (files > 0)
                str_addf(out, "{\"Name\":\"nofile\",\"Soft\":%" PRId64 ",\"Hard\":%" PRId64 "}",
                         files, files);
        if (processes > 0)
                str_addf(out, "%s{\"Name\":\"nproc\",\"Soft\":%" PRId64 ",\"Hard\":%" PRId64 "}",
                         files > 0 ? "," : "", processes, processes);
        str_addc(out, ']');
}

/* A published port needs a network of the container's own, whatever the engine's default is. */
static const char *network_of(const struct container_def *d)
{
        if (!str_empty(d->spec->network))
                return d->spec->network;
        if (d->network)
                return d->network;
        return d->spec->n_ports ? "bridge" : NULL;
}

static void add_hosts(struct str *out, const struct container_def *d)
{
        bool first = true;

        if (d->n_hosts == 0)
                return;
        add_key(out, "ExtraHosts");
        str_addc(out, '[');
        for (size_t i = 0; i < d->n_hosts; i++, first = false) {
                const char *text = fmt("%s:%s", d->hosts[i].name, d->hosts[i].address);

                if (!first)
                        str_addc(out, ',');
                json_write_string(out, text, strlen(text));
        }
        str_addc(out, ']');
}

static void add_host_config(struct str *out, const struct container_def *d)
{
        const char *network = network_of(d);

        add_key(out, "HostConfig");
        str_addc(out, '{');
        str_adds(out, "\"RestartPolicy\":{\"Name\":\"no\"}"); /* restarts are the server's */
        if (d->log_max_kb > 0)
                str_addf(
                    out,
                    ",\"LogConfig\":{\"Type\":\"json-file\",\"Config\":{\"max-size\":\"%" PRId64
                    "k\"}}",
                    d->log_max_kb);
        if (network)
                add_text(out, "NetworkMode", network);
        if (d->spec->n_ports && !str_eq(network, "host"))
                add_bindings(out, d->spec);
        add_hosts(out, d);
        add_mounts(out, d->spec);
        add_limits(out, d);
        add_list(out, "CapAdd", d->spec->capabilities, d->spec->n_capabilities);
        if (d->spec->privileged)
                str_adds(out, ",\"Privileged\":true");
        str_addc(out, '}');
}

void container_create_body(struct str *out, const struct container_def *d)
{
        const char *network = network_of(d);

        str_addc(out, '{');
        add_text(out, "Image", d->spec->image);
        add_list(out, "Entrypoint", d->spec->command, d->spec->n_command);
        add_list(out, "Cmd", d->spec->args, d->spec->n_args);
        add_env(out, d);
        if (!str_empty(d->spec->workdir))
                add_text(out, "WorkingDir", d->spec->workdir);
        if (!str_empty(d->spec->user))
                add_text(out, "User", d->spec->user);
        add_labels(out, d);
        if (!str_eq(network, "host"))
                add_exposed(out, d->spec);
        add_host_config(out, d);
        /* services find one another by name */
        if (d->network && str_eq(network, d->network) && !str_empty(d->part)) {
                add_key(out, "NetworkingConfig");
                str_adds(out, "{\"EndpointsConfig\":{");
                json_write_string(out, network, strlen(network));
                str_adds(out, ":{\"Aliases\":[");
                json_write_string(out, d->part, strlen(d->part));
                str_adds(out, "]}}}");
        }
        str_addc(out, '}');
}
