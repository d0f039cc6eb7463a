/* agent/push_spec.c: see push_spec.h. */
#include "agent/push_spec.h"

#include "base/str.h"
#include "model/pb.h"
#include <string.h>

/* ---- revisions ---- */

static bool digits(const char **at, uint64_t *ret)
{
        char text[21];
        size_t n = strspn(*at, "0123456789");

        if (n == 0 || n >= sizeof(text))
                return false;
        memcpy(text, *at, n);
        text[n] = 0;
        *at += n;
        return str_parse_u64(text, ret) == 0;
}

bool push_revision_token(const char *revision, struct unit_token *ret_token)
{
        const char *p = revision ? strrchr(revision, '@') : NULL;
        struct unit_token t;

        if (!p)
                return false;
        p++;
        if (!digits(&p, &t.epoch) || *p++ != '.' || !digits(&p, &t.seq) || *p)
                return false;
        *ret_token = t;
        return true;
}

/* ---- to berth ---- */

static char **texts(struct arena *arena, char *const *a, size_t n_a, char *const *b, size_t n_b)
{
        char **to = arena_new_n(arena, char *, n_a + n_b + 1);

        for (size_t i = 0; i < n_a; i++)
                to[i] = arena_strdup(arena, a[i]);
        for (size_t i = 0; i < n_b; i++)
                to[n_a + i] = arena_strdup(arena, b[i]);
        return to;
}

static void env(struct arena *arena, Pb__Spec *spec, const void *entries, size_t n)
{
        struct pb_entry *const *e = entries;

        for (size_t i = 0; i < n; i++)
                pb_map_set(arena, &spec->base, "env", e[i]->key, e[i]->value);
}

static Pb__Restart__E restart_of(const Pa__RestartPolicy *p)
{
        if (!p || str_empty(p->policy) || str_eq(p->policy, "always") ||
            str_eq(p->policy, "unless-stopped"))
                return PB__RESTART__E__always;
        return str_starts(p->policy, "on-failure") ? PB__RESTART__E__on_failure
                                                   : PB__RESTART__E__never;
}

static int process(struct arena *arena, const Pa__ContainerSpec *c, Pb__Workload *w,
                   struct err *err)
{
        if (c->n_command + c->n_args == 0)
                return err_set(err, ERR_INVALID, .msg = "a process needs a command");
        if (c->n_volumes || c->n_managed_volumes)
                return err_set(err, ERR_INVALID,
                               .msg =
                                   "a process sees the machine's own files: it takes no volumes");
        w->type = PB__WORKLOAD_TYPE__E__process;
        /* nobody here has asked a policy; --unit-users none is the operator's word */
        w->confine = true;
        w->spec->command = texts(arena, c->command, c->n_command, c->args, c->n_args);
        w->spec->n_command = c->n_command + c->n_args;
        return 0;
}

static void mounts(struct arena *arena, const Pa__ContainerSpec *c, Pb__Spec *s)
{
        s->volumes = arena_new_n(arena, Pb__VolumeMount *, c->n_volumes + 1);
        s->n_volumes = c->n_volumes;
        for (size_t i = 0; i < c->n_volumes; i++) {
                s->volumes[i] = (Pb__VolumeMount *)pb_new(arena, &pb__volume_mount__descriptor);
                s->volumes[i]->host_path = arena_strdup(arena, c->volumes[i]->host_path);
                s->volumes[i]->container_path = arena_strdup(arena, c->volumes[i]->container_path);
                s->volumes[i]->read_only = c->volumes[i]->read_only;
        }
        s->ports = arena_new_n(arena, Pb__Port *, c->n_ports + 1);
        s->n_ports = c->n_ports;
        for (size_t i = 0; i < c->n_ports; i++) {
                s->ports[i] = (Pb__Port *)pb_new(arena, &pb__port__descriptor);
                s->ports[i]->host_port = c->ports[i]->host_port;
                s->ports[i]->container_port = c->ports[i]->container_port;
                s->ports[i]->protocol = arena_strdup(arena, c->ports[i]->protocol);
        }
}

static int container(struct arena *arena, const Pa__ContainerSpec *c, Pb__Workload *w,
                     struct err *err)
{
        if (str_empty(c->image))
                return err_set(err, ERR_INVALID, .msg = "a container needs an image");
        env(arena, w->spec, c->env, c->n_env);
        w->restart = restart_of(c->restart_policy);
        if (c->resources && (c->resources->cpu_shares > 0 || c->resources->memory_bytes > 0)) {
                w->resources = (Pb__Resources *)pb_new(arena, &pb__resources__descriptor);
                w->resources->cpu = c->resources->cpu_shares;
                w->resources->memory_mb = c->resources->memory_bytes >> 20;
        }
        for (size_t i = 0; i < c->n_labels; i++)
                pb_map_set(arena, &w->base, "labels", c->labels[i]->key, c->labels[i]->value);
        if (str_eq(c->image, PUSH_PROCESS_IMAGE))
                return process(arena, c, w, err);
        if (c->n_managed_volumes)
                return err_set(err, ERR_INVALID, .msg = "managed volumes are not known here",
                               .hint = "mount a path of the machine");
        w->type = PB__WORKLOAD_TYPE__E__container;
        w->spec->image = arena_strdup(arena, c->image);
        w->spec->command = texts(arena, c->command, c->n_command, NULL, 0);
        w->spec->n_command = c->n_command;
        w->spec->args = texts(arena, c->args, c->n_args, NULL, 0);
        w->spec->n_args = c->n_args;
        mounts(arena, c, w->spec);
        return 0;
}

/* The text, whether it came as it is or as base64: a compose file holds a ':' somewhere, which
 * base64 does not know. */
static char *compose_text(struct arena *arena, const char *text)
{
        static const char alphabet[] =
            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        size_t n = 0;
        uint32_t v = 0, bits = 0;
        char *out = arena_alloc(arena, strlen(text) + 1);

        for (const char *p = text; *p; p++) {
                const char *c = strchr(alphabet, *p);

                if (*p == '=' || *p == '\n' || *p == '\r')
                        continue;
                if (!c)
                        return arena_strdup(arena, text);
                v = v << 6 | (uint32_t)(c - alphabet);
                bits += 6;
                if (bits >= 8) {
                        bits -= 8;
                        out[n++] = (char)(v >> bits & 255);
                }
        }
        out[n] = 0;
        return str_is_utf8(out, n) ? out : NULL;
}

static int compose(struct arena *arena, const Pa__ComposeSpec *c, Pb__Workload *w, struct err *err)
{
        if (str_empty(c->compose_yaml))
                return err_set(err, ERR_INVALID,
                               .msg = "compose_yaml is required for compose workloads");
        w->type = PB__WORKLOAD_TYPE__E__compose;
        w->spec->compose = compose_text(arena, c->compose_yaml);
        if (!w->spec->compose)
                return err_set(err, ERR_INVALID,
                               .msg = "compose_yaml is neither text nor base64 of text");
        env(arena, w->spec, c->env, c->n_env);
        return 0;
}

static int vm(struct arena *arena, const Pa__VMSpec *v, Pb__Workload *w)
{
        w->type = PB__WORKLOAD_TYPE__E__vm;
        w->spec->vm = (Pb__Vm *)pb_new(arena, &pb__vm__descriptor);
        w->spec->vm->vcpus = v->vcpus;
        w->spec->vm->memory_mb = v->memory_mb;
        w->resources = (Pb__Resources *)pb_new(arena, &pb__resources__descriptor);
        w->resources->cpu = v->vcpus * INT64_C(1000);
        w->resources->memory_mb = v->memory_mb;
        return 0;
}

int push_to_workload(struct arena *arena, const Pa__ApplyWorkloadRequest *q,
                     Pb__Workload **ret_workload, struct err *err)
{
        Pb__Workload *w = (Pb__Workload *)pb_new(arena, &pb__workload__descriptor);
        int r;

        w->id = arena_strdup(arena, q->id);
        w->revision_id = arena_strdup(arena, q->revision_id);
        w->spec = (Pb__Spec *)pb_new(arena, &pb__spec__descriptor);
        switch (q->spec ? q->spec->spec_case : PA__WORKLOAD_SPEC__SPEC__NOT_SET) {
        case PA__WORKLOAD_SPEC__SPEC_CONTAINER:
                r = container(arena, q->spec->container, w, err);
                break;
        case PA__WORKLOAD_SPEC__SPEC_COMPOSE:
                r = compose(arena, q->spec->compose, w, err);
                break;
        case PA__WORKLOAD_SPEC__SPEC_VM:
                r = vm(arena, q->spec->vm, w);
                break;
        default:
                r = err_set(err, ERR_INVALID, .msg = "the workload has no spec");
                break;
        }
        if (r < 0)
                return r;
        *ret_workload = w;
        return 0;
}

/* ---- from berth ---- */

static const char *failure_code(Pb__Reason__E reason)
{
        switch (reason) {
        case PB__REASON__E__image_unavailable:
                return "IMAGE_PULL_FAILED";
        case PB__REASON__E__invalid_spec:
                return "INVALID_SPECIFICATION";
        case PB__REASON__E__port_taken:
                return "PORT_BIND_CONFLICT";
        case PB__REASON__E__runtime_unavailable:
                return "RUNTIME_NOT_AVAILABLE";
        case PB__REASON__E__killed:
                return "KILLED";
        case PB__REASON__E__unhealthy:
                return "UNHEALTHY";
        case PB__REASON__E__start_failed:
                return "RUNTIME_UNHEALTHY";
        default:
                return "RUNTIME_ERROR";
        }
}

static Pa__ActualState state_of(const Pb__UnitStatus *u, const struct engine_unit_view *view)
{
        if (view->desired == PB__DESIRED_STATE__E__Deleted)
                return PA__ACTUAL_STATE__ACTUAL_STATE_PENDING; /* being deleted */
        switch (u->state) {
        case PB__ACTUAL_STATE__E__Running:
                return PA__ACTUAL_STATE__ACTUAL_STATE_RUNNING;
        case PB__ACTUAL_STATE__E__Stopped:
                return PA__ACTUAL_STATE__ACTUAL_STATE_STOPPED;
        case PB__ACTUAL_STATE__E__Failed:
                return PA__ACTUAL_STATE__ACTUAL_STATE_FAILED;
        /* after a restart of the agent it waits for its caller's word: that must not look like work
         * under way */
        case PB__ACTUAL_STATE__E__Pending:
                return view->confirmed || view->in_runtime ? PA__ACTUAL_STATE__ACTUAL_STATE_PENDING
                                                           : PA__ACTUAL_STATE__ACTUAL_STATE_UNKNOWN;
        default:
                return PA__ACTUAL_STATE__ACTUAL_STATE_UNKNOWN;
        }
}

static Pa__WorkloadType type_of(Pb__WorkloadType__E type)
{
        return type == PB__WORKLOAD_TYPE__E__compose ? PA__WORKLOAD_TYPE__WORKLOAD_TYPE_COMPOSE
               : type == PB__WORKLOAD_TYPE__E__vm    ? PA__WORKLOAD_TYPE__WORKLOAD_TYPE_VM
                                                     : PA__WORKLOAD_TYPE__WORKLOAD_TYPE_CONTAINER;
}

static void note(struct arena *arena, Pa__WorkloadStatus *s, const char *key, int64_t value)
{
        pb_map_set(arena, &s->base, "metadata", key, arena_printf(arena, "%lld", (long long)value));
}

Pa__WorkloadStatus *push_from_status(struct arena *arena, const Pb__UnitStatus *u,
                                     const struct engine_unit_view *view)
{
        Pa__WorkloadStatus *s =
            (Pa__WorkloadStatus *)pb_new(arena, &pa__workload_status__descriptor);

        s->id = arena_strdup(arena, u->unit_id);
        s->type = type_of(u->type);
        s->revision_id = arena_strdup(arena, u->revision_id);
        s->desired_state = view->desired == PB__DESIRED_STATE__E__Running
                               ? PA__DESIRED_STATE__DESIRED_STATE_RUNNING
                               : PA__DESIRED_STATE__DESIRED_STATE_STOPPED;
        s->actual_state = state_of(u, view);
        s->message = arena_strdup(arena, u->message);
        s->created_at = u->started_at / 1000;
        s->updated_at = (u->finished_at ? u->finished_at : u->started_at) / 1000;
        if (s->actual_state == PA__ACTUAL_STATE__ACTUAL_STATE_PENDING)
                pb_map_set(arena, &s->base, "metadata", "task_status",
                           view->in_runtime ? "running" : "pending");
        if (s->actual_state == PA__ACTUAL_STATE__ACTUAL_STATE_PENDING && str_empty(s->message))
                s->message = view->in_runtime ? "task running" : "task pending execution";
        if (s->actual_state == PA__ACTUAL_STATE__ACTUAL_STATE_FAILED)
                pb_map_set(arena, &s->base, "metadata", "failure_reason", failure_code(u->reason));
        if (u->exit_code)
                note(arena, s, "exit_code", u->exit_code->value);
        if (u->signal)
                note(arena, s, "signal", u->signal->value);
        if (u->started_at)
                note(arena, s, "started_at", u->started_at / 1000);
        if (u->finished_at)
                note(arena, s, "finished_at", u->finished_at / 1000);
        return s;
}
