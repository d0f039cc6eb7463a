/* model/spec_check.c: see spec_check.h. */
#include "model/spec_check.h"
#include "base/str.h"
#include "model/compose.h"
#include "model/kube.h"
#include <stdio.h>
#include <string.h>

static int fail(struct err *err, const struct path_step *spec, const char *field, const char *what,
                const char *hint)
{
        struct path_step step = { .up = spec, .name = field, .name_len = strlen(field) };
        char path[PATH_TEXT_LEN];

        path_text(field[0] ? &step : spec, path);
        return err_set(err, ERR_INVALID, .msg = fmt("%s: %s", path, what), .hint = hint,
                       .path = path);
}

/* Fields that only some types have. */
static int check_strangers(const Pb__Workload *w, const struct path_step *spec, struct err *err)
{
        const Pb__Spec *s = w->spec;
        bool pod = !str_empty(s->pod);
        const struct {
                const char *field;
                bool given;
        } only_image[] = { { "args", s->n_args > 0 },
                           { "privileged", s->privileged },
                           { "network", !str_empty(s->network) } },
          not_pod[] = { { "image", !str_empty(s->image) },
                        { "command", s->n_command > 0 },
                        { "env", s->n_env > 0 },
                        { "workdir", !str_empty(s->workdir) },
                        { "user", !str_empty(s->user) },
                        { "volumes", s->n_volumes > 0 },
                        { "max_open_files", s->max_open_files > 0 },
                        { "max_processes", s->max_processes > 0 },
                        { "capabilities", s->n_capabilities > 0 },
                        { "pull", s->pull != PB__PULL__E__unset } };
        bool container = w->type == PB__WORKLOAD_TYPE__E__container,
             compose = w->type == PB__WORKLOAD_TYPE__E__compose;

        if (pod && !container)
                return fail(err, spec, "pod", "is for containers", "leave it out, or change type");
        for (size_t i = 0; i < ARRAY_LEN(only_image); i++)
                if (only_image[i].given && (!container || pod))
                        return fail(err, spec, only_image[i].field, "is for containers",
                                    "leave it out, or change type");
        if (s->pull != PB__PULL__E__unset && !container && !compose)
                return fail(err, spec, "pull", "is for containers", "leave it out, or change type");
        if (s->n_capabilities && w->type == PB__WORKLOAD_TYPE__E__vm)
                return fail(err, spec, "capabilities", "are for processes and containers", NULL);
        for (size_t i = 0; i < s->n_capabilities; i++) {
                struct path_step list = { .up = spec, .name = "capabilities", .name_len = 12 },
                                 one = { .up = &list, .index = i };
                if (str_eq(s->capabilities[i], "ALL"))
                        return fail(err, &one, "",
                                    "ALL is not taken here: capabilities are named one by one",
                                    container ? "all of them, and more: privileged"
                                              : "a process has all of them as root, where the "
                                                "policy allows root_processes");
        }
        for (size_t i = 0; pod && i < ARRAY_LEN(not_pod); i++)
                if (not_pod[i].given)
                        return fail(err, spec, not_pod[i].field, "excludes pod",
                                    "say it in the pod itself");
        for (size_t i = 0; compose && i < ARRAY_LEN(not_pod); i++)
                /* env: for all services */
                if (not_pod[i].given && !str_eq(not_pod[i].field, "pull") &&
                    !str_eq(not_pod[i].field, "env"))
                        return fail(err, spec, not_pod[i].field, "is not for compose",
                                    "say it in the compose file");
        return 0;
}

/* What an agent puts there itself: one of the two would be lost. */
static int check_env(const Pb__Spec *s, const struct path_step *spec, const char *service,
                     struct err *err)
{
        static const char *const own[] = { "BERTH_WORKLOAD_ID", "BERTH_NODE_ID", "BERTH_REVISION",
                                           "BERTH_FENCING_TOKEN", "BERTH_UNIT" };
        const struct path_step env = { .up = spec, .name = "env", .name_len = 3 };

        for (size_t i = 0; i < s->n_env; i++)
                for (size_t k = 0; k < ARRAY_LEN(own); k++)
                        if (str_eq(s->env[i]->key, own[k]))
                                return service
                                           ? fail(err, spec, "compose",
                                                  fmt("service %s sets %s, which berth sets itself",
                                                      service, own[k]),
                                                  "give the variable another name")
                                           : fail(err, &env, own[k],
                                                  "berth sets this variable itself",
                                                  "give the variable another name");
        return 0;
}

static int check_health(const Pb__Workload *w, const struct path_step *spec, struct err *err)
{
        const Pb__Health *h = w->spec->health;
        const struct path_step at = { .up = spec, .name = "health", .name_len = 6 };

        if (!h)
                return 0;
        if (w->type == PB__WORKLOAD_TYPE__E__vm)
                return fail(err, spec, "health", "is not for vms", NULL);
        if (h->port && h->n_command)
                return fail(err, &at, "command", "excludes port",
                            "a check is either tcp (port), http (port and path) or a command");
        if (!h->port && !h->n_command)
                return fail(err, spec, "health", "needs a port or a command", NULL);
        if (!str_empty(h->path) && !h->port)
                return fail(err, &at, "path", "needs a port", NULL);
        if (h->n_command && str_empty(h->command[0]))
                return fail(err, &at, "command", "must not begin with an empty word", NULL);
        return 0;
}

/* What a file within the manifest says is wrong, with the place in the file. */
static int fail_inside(struct err *err, const struct path_step *spec, const char *field,
                       const struct err *inside)
{
        struct path_step step = { .up = spec, .name = field, .name_len = strlen(field) };
        char path[PATH_TEXT_LEN];
        const char *text = inside->msg;

        path_text(&step, path);
        if (str_starts(text, field) && text[strlen(field)] == ':')
                text += strlen(field) + 1;
        return err_set(err, ERR_INVALID, .msg = fmt("%s: line %s", path, text),
                       .detail = inside->detail, .hint = inside->hint, .path = path);
}

static int check_compose(struct arena *arena, Pb__Workload *w, const struct path_step *spec,
                         struct err *err)
{
        struct err inside = { 0 };
        struct compose file;
        size_t n = 0;

        if (compose_read(w->spec->compose, strlen(w->spec->compose), arena, &file, &inside) < 0)
                return fail_inside(err, spec, "compose", &inside);
        for (size_t i = 0; i < file.n_services; i++)
                n += file.services[i].spec->n_ports;
        for (size_t i = 0; i < file.n_services; i++)
                if (check_env(file.services[i].spec, spec, file.services[i].name, err) < 0)
                        return -ERR_INVALID;
        w->spec->ports = arena_new_n(arena, Pb__Port *, n + 1);
        w->spec->n_ports = 0;
        for (size_t i = 0; i < file.n_services; i++)
                for (size_t k = 0; k < file.services[i].spec->n_ports; k++)
                        w->spec->ports[w->spec->n_ports++] = file.services[i].spec->ports[k];
        return w->spec->n_ports > 256
                   ? fail(err, spec, "compose", "has more than 256 host ports", NULL)
                   : 0;
}

static int check_pod(struct arena *arena, Pb__Workload *w, const struct path_step *spec,
                     struct err *err)
{
        struct err inside = { 0 };
        struct kube_pod pod;

        if (kube_pod_read(w->spec->pod, strlen(w->spec->pod), arena, &pod, &inside) < 0)
                return fail_inside(err, spec, "pod", &inside);
        w->spec->ports = pod.ports;
        w->spec->n_ports = pod.n_ports;
        return 0;
}

static int check_network(const Pb__Workload *w, const struct path_step *spec, struct err *err)
{
        const Pb__Spec *s = w->spec;

        for (size_t i = 0; i < s->n_ports; i++) {
                if (str_eq(s->network, "none"))
                        return fail(err, spec, "ports", "need a network, and network is none",
                                    NULL);
                if (str_eq(s->network, "host") && s->ports[i]->host_port &&
                    s->ports[i]->host_port != s->ports[i]->container_port)
                        return fail(err, spec, "ports",
                                    "with network host a port is the node's own: host_port and "
                                    "container_port must be the same",
                                    NULL);
        }
        return 0;
}

int spec_check(struct arena *arena, Pb__Workload *w, const struct path_step *spec, struct err *err)
{
        int rc = check_strangers(w, spec, err);

        if (rc == 0)
                rc = check_env(w->spec, spec, NULL, err);
        if (rc == 0)
                rc = check_health(w, spec, err);
        if (rc < 0)
                return rc;
        if (w->type == PB__WORKLOAD_TYPE__E__compose)
                return check_compose(arena, w, spec, err);
        if (!str_empty(w->spec->pod))
                return check_pod(arena, w, spec, err);
        return check_network(w, spec, err);
}
