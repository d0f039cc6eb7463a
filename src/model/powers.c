/* model/powers.c: see powers.h. */
#include "model/powers.h"
#include "base/array.h"
#include "base/err.h"
#include "base/str.h"
#include "model/compose.h"
#include "model/pb.h"
#include "model/yaml_tree.h"
#include <string.h>
#include <strings.h>

#define EVERYTHING "ALL" /* among the capabilities of a policy */

static const char *const names[_POWER_MAX] = {
        [POWER_PRIVILEGED] = "privileged",         [POWER_CAPABILITIES] = "capabilities",
        [POWER_HOST_NETWORK] = "host_network",     [POWER_HOST_PATHS] = "host_paths",
        [POWER_ROOT_PROCESSES] = "root_processes",
};

const char *power_name(enum power p)
{
        return names[p];
}

/* By the kernel's numbers (capabilities(7)). */
static const char *const capabilities[] = {
        "CHOWN",
        "DAC_OVERRIDE",
        "DAC_READ_SEARCH",
        "FOWNER",
        "FSETID",
        "KILL",
        "SETGID",
        "SETUID",
        "SETPCAP",
        "LINUX_IMMUTABLE",
        "NET_BIND_SERVICE",
        "NET_BROADCAST",
        "NET_ADMIN",
        "NET_RAW",
        "IPC_LOCK",
        "IPC_OWNER",
        "SYS_MODULE",
        "SYS_RAWIO",
        "SYS_CHROOT",
        "SYS_PTRACE",
        "SYS_PACCT",
        "SYS_ADMIN",
        "SYS_BOOT",
        "SYS_NICE",
        "SYS_RESOURCE",
        "SYS_TIME",
        "SYS_TTY_CONFIG",
        "MKNOD",
        "LEASE",
        "AUDIT_WRITE",
        "AUDIT_CONTROL",
        "SETFCAP",
        "MAC_OVERRIDE",
        "MAC_ADMIN",
        "SYSLOG",
        "WAKE_ALARM",
        "BLOCK_SUSPEND",
        "AUDIT_READ",
        "PERFMON",
        "BPF",
        "CHECKPOINT_RESTORE",
};

int capability_number(const char *name)
{
        for (size_t i = 0; i < ARRAY_LEN(capabilities); i++)
                if (str_eq(capabilities[i], name))
                        return (int)i;
        return -1;
}

/* ---- what is asked for ---- */

struct looking {
        struct arena *arena;
        ARRAY(struct power_asked) found;
};

static void ask(struct looking *l, enum power power, const char *what, const char *where)
{
        *array_push(&l->found) =
            (struct power_asked){ .power = power, .what = what ? what : "", .where = where };
}

/* An engine would put something in for a variable there. "$$" is none, but not worth a rule of its
 * own. */
static void ask_if_variable(struct looking *l, enum power power, const char *what,
                            const char *where)
{
        if (!str_empty(what) && strchr(what, '$'))
                *array_push(&l->found) = (struct power_asked){
                        .power = power, .what = what, .where = where, .variable = true
                };
}

static bool is_root(const char *user)
{
        return str_eq(user, "root") || (!str_empty(user) && user[strspn(user, "0")] == '\0');
}

/* host is the node's own; "container:X" and "ns:X" are somebody else's. */
static bool is_strange_network(const char *network)
{
        return str_eq(network, "host") || (!str_empty(network) && strchr(network, ':'));
}

/* One container: of the spec itself, or a service of a Compose file. */
static void look_at_spec(struct looking *l, const Pb__Spec *s, const char *prefix)
{
        if (s->privileged)
                ask(l, POWER_PRIVILEGED, NULL, arena_printf(l->arena, "%s.privileged", prefix));
        for (size_t i = 0; i < s->n_capabilities; i++)
                ask(l, POWER_CAPABILITIES, s->capabilities[i],
                    arena_printf(l->arena, "%s.capabilities[%zu]", prefix, i));
        if (is_strange_network(s->network))
                ask(l, POWER_HOST_NETWORK, NULL, arena_printf(l->arena, "%s.network", prefix));
        for (size_t i = 0; i < s->n_volumes; i++)
                ask(l, POWER_HOST_PATHS, s->volumes[i]->host_path,
                    arena_printf(l->arena, "%s.volumes[%zu]", prefix, i));
}

/* First, so that a refusal speaks of the variable. */
static void look_at_variables(struct looking *l, const Pb__Spec *s, const char *prefix)
{
        ask_if_variable(l, POWER_HOST_NETWORK, s->network,
                        arena_printf(l->arena, "%s.network_mode", prefix));
        for (size_t i = 0; i < s->n_volumes; i++) {
                const char *where = arena_printf(l->arena, "%s.volumes[%zu]", prefix, i);

                ask_if_variable(l, POWER_HOST_PATHS, s->volumes[i]->host_path, where);
                /* "/x:MODE" */
                ask_if_variable(l, POWER_HOST_PATHS, s->volumes[i]->container_path, where);
        }
}

static void look_at_compose(struct looking *l, const char *text)
{
        struct compose file;

        if (compose_read(text, strlen(text), l->arena, &file, NULL) < 0) {
                for (int p = 0; p < POWER_ROOT_PROCESSES; p++)
                        ask(l, (enum power)p, NULL, "spec.compose");
                return;
        }
        for (size_t i = 0; i < file.n_services; i++) {
                const char *prefix =
                    arena_printf(l->arena, "spec.compose: services.%s", file.services[i].name);

                look_at_variables(l, file.services[i].spec, prefix);
                look_at_spec(l, file.services[i].spec, prefix);
        }
}

static bool is_true(const struct yaml_node *n)
{
        return n && n->kind == YAML_TEXT && !str_case_eq(n->text, "false") && !yaml_is_null(n);
}

static bool is_one_of(const char *key, const char *const *list)
{
        for (; key && *list; list++)
                if (str_case_eq(key, *list))
                        return true;
        return false;
}

/* Anywhere in the pod, since there are containers, init containers and whatever a later engine
 * knows; keys without regard to case, as engines read them. */
static void look_at_pod_node(struct looking *l, const struct yaml_node *n, const char *up)
{
        static const char *const privileged[] = { "privileged", "hostPID", "hostIPC", "hostUsers",
                                                  NULL };
        static const char *const strange[] = { "procMount",      "seLinuxOptions",
                                               "seccompProfile", "appArmorProfile",
                                               "windowsOptions", "volumeDevices",
                                               "devices",        NULL };

        if (n->key && is_one_of(n->key, privileged) && is_true(n))
                ask(l, POWER_PRIVILEGED, n->key, "spec.pod");
        else if (n->key && is_one_of(n->key, strange))
                ask(l, POWER_PRIVILEGED, n->key, "spec.pod");
        else if (n->key && str_case_eq(n->key, "hostNetwork") && is_true(n))
                ask(l, POWER_HOST_NETWORK, NULL, "spec.pod");
        else if (n->key && str_case_eq(n->key, "hostPath")) {
                const struct yaml_node *path = yaml_get(n, "path");

                ask(l, POWER_HOST_PATHS, path && path->kind == YAML_TEXT ? path->text : "?",
                    "spec.pod");
        } else if (n->key && str_case_eq(n->key, "add") && str_case_eq(up, "capabilities")) {
                for (size_t i = 0; n->kind == YAML_LIST && i < n->n; i++)
                        ask(l, POWER_CAPABILITIES,
                            n->at[i]->kind == YAML_TEXT ? n->at[i]->text : "?", "spec.pod");
                if (n->kind == YAML_TEXT)
                        ask(l, POWER_CAPABILITIES, n->text, "spec.pod");
        } else if (n->key && str_case_eq(up, "annotations") &&
                   (strcasestr(n->key, "podman") || strcasestr(n->key, "seccomp") ||
                    strcasestr(n->key, "apparmor") || strcasestr(n->key, "run.oci")))
                ask(l, POWER_PRIVILEGED, n->key, "spec.pod"); /* engines take orders there */
        for (size_t i = 0; n->kind != YAML_TEXT && i < n->n; i++)
                look_at_pod_node(l, n->at[i], n->kind == YAML_MAP && n->key ? n->key : up);
}

static void look_at_pod(struct looking *l, const char *text)
{
        struct yaml_node *root;

        if (yaml_tree_read("pod", 1, text, strlen(text), l->arena, &root, NULL) == 0)
                look_at_pod_node(l, root, "");
        else
                for (int p = 0; p < POWER_ROOT_PROCESSES; p++)
                        ask(l, (enum power)p, NULL, "spec.pod");
}

void powers_of(struct arena *arena, const Pb__Workload *w, struct powers *ret)
{
        struct looking l = { .arena = arena };

        *ret = (struct powers){ 0 };
        if (!w->spec)
                return;
        look_at_spec(&l, w->spec, "spec");
        if (w->type == PB__WORKLOAD_TYPE__E__process && is_root(w->spec->user))
                ask(&l, POWER_ROOT_PROCESSES, NULL, "spec.user");
        if (!str_empty(w->spec->compose))
                look_at_compose(&l, w->spec->compose);
        if (!str_empty(w->spec->pod))
                look_at_pod(&l, w->spec->pod);
        if (l.found.len) {
                ret->n = l.found.len;
                ret->at = arena_new_n(arena, struct power_asked, l.found.len);
                memcpy(ret->at, l.found.at, l.found.len * sizeof(*ret->at));
        }
        array_fini(&l.found);
}

/* ---- what is allowed ---- */

static bool has_dots(const char *path)
{
        for (const char *p = path; (p = strstr(p, "/..")); p += 3)
                if (p[3] == '/' || p[3] == '\0')
                        return true;
        return false;
}

/* The path, or what it is below. Where links lead is only known on the node. */
static bool path_is_allowed(const Pb__Policy *p, const char *path)
{
        for (size_t i = 0; i < p->n_host_paths; i++) {
                const char *top = p->host_paths[i];
                size_t len = strlen(top);

                while (len > 0 && top[len - 1] == '/')
                        len--;
                if (len == 0)
                        return true; /* "/" */
                if (path[0] == '/' && !has_dots(path) && strncmp(path, top, len) == 0 &&
                    (path[len] == '/' || path[len] == '\0'))
                        return true;
        }
        return false;
}

static bool capability_is_allowed(const Pb__Policy *p, const char *name)
{
        if (strncasecmp(name, "CAP_", 4) == 0)
                name += 4;
        for (size_t i = 0; i < p->n_capabilities; i++)
                if (str_case_eq(p->capabilities[i], EVERYTHING) ||
                    str_case_eq(p->capabilities[i], name))
                        return true;
        return false;
}

static bool is_allowed(const Pb__Policy *p, const struct power_asked *a)
{
        switch (a->power) {
        case POWER_PRIVILEGED:
                return p->privileged;
        case POWER_CAPABILITIES:
                return capability_is_allowed(p, a->what);
        case POWER_HOST_NETWORK:
                return p->host_network;
        case POWER_HOST_PATHS:
                return path_is_allowed(p, a->variable ? "" : a->what);
        case POWER_ROOT_PROCESSES:
                return p->root_processes;
        default:
                return false;
        }
}

const struct power_asked *powers_refused(const Pb__Policy *policy, const struct powers *asked)
{
        static const Pb__Policy nothing = PB__POLICY__INIT;

        for (size_t i = 0; i < asked->n; i++)
                if (!is_allowed(policy ? policy : &nothing, &asked->at[i]))
                        return &asked->at[i];
        return NULL;
}

bool policy_confines(const Pb__Policy *policy, const Pb__Workload *w)
{
        return w->type == PB__WORKLOAD_TYPE__E__process && !(policy && policy->root_processes);
}

const Pb__Policy *policy_for(const Pb__ServerConfig *config, const char *tenant)
{
        for (size_t i = 0; i < config->n_tenant_policies; i++)
                if (!str_empty(tenant) && str_eq(config->tenant_policies[i]->tenant, tenant))
                        return config->tenant_policies[i];
        return config->policy;
}

int policy_from_words(struct arena *arena, const char *words, Pb__Policy **ret, struct err *err)
{
        static char *const every_capability[] = { (char *)(uintptr_t)EVERYTHING },
                           *const every_path[] = { (char *)(uintptr_t) "/" };
        Pb__Policy *p = (Pb__Policy *)pb_new(arena, &pb__policy__descriptor);

        for (const char *at = words; *at;) {
                size_t len = strcspn(at, ", ");
                const char *word = arena_strndup(arena, at, len);
                bool all = str_eq(word, POWERS_ALL), known = all || len == 0;

                for (int k = 0; k < _POWER_MAX; k++) {
                        if (!all && !str_eq(word, names[k]))
                                continue;
                        known = true;
                        p->privileged |= k == POWER_PRIVILEGED;
                        p->host_network |= k == POWER_HOST_NETWORK;
                        p->root_processes |= k == POWER_ROOT_PROCESSES;
                        if (k == POWER_CAPABILITIES) {
                                p->capabilities = (char **)(uintptr_t)every_capability;
                                p->n_capabilities = 1;
                        } else if (k == POWER_HOST_PATHS) {
                                p->host_paths = (char **)(uintptr_t)every_path;
                                p->n_host_paths = 1;
                        }
                }
                if (!known)
                        return err_set(err, ERR_INVALID,
                                       .msg =
                                           fmt("nothing can be allowed under the name %.40s", word),
                                       .hint = "known are all, privileged, capabilities, "
                                               "host_network, host_paths and root_processes");
                at += len + strspn(at + len, ", ");
        }
        *ret = p;
        return 0;
}
