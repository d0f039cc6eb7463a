/* agent/runtimes/container_start.c: from a definition to running containers, one call to the engine
 * after the other.
 *
 *      clear --> network --> for each part: image? --> pull --> create --> start --> look --> next
 *      part --> STARTED clear --> play the pod as a whole --> list its parts --> look at each -->
 *      STARTED
 *
 * Every step first asks whether the unit was told to stop meanwhile. A failure removes all that was
 * made and only then says START_FAILED, with the engine's own sentence; what the registry or the
 * network refused is image_unavailable.
 */
#include "agent/runtimes/container_state.h"
#include "base/clock.h"
#include "base/log.h"
#include "model/compose.h"
#include "model/json.h"
#include "model/kube.h"
#include <stdio.h>
#include <string.h>

#define PULL_MS (3600 * 1000)
#define PLAY_MS (3600 * 1000)
#define TELL_MS 1000 /* progress is told this often at most */

static void next_part(struct cunit *u);
static void create(struct cunit *u);
static void look_at_parts(struct cunit *u);

void start_free(struct cstart *s)
{
        if (!s)
                return;
        if (s->workload)
                pb__workload__free_unpacked(s->workload, NULL);
        arena_fini(&s->memory);
        str_fini(&s->network);
        str_fini(&s->line);
        mem_free(s);
}

static void start_fail(struct cunit *u, Pb__Reason__E reason, const char *message)
{
        _cleanup_(mem_freep) char *text = mem_strdup(message);

        unit_clear_and_end(u, RUNTIME_START_FAILED, reason, text);
}

/* What the engine says when it is the image that is missing, and not the container that is
 * wrong. */
static bool is_about_image(const char *text)
{
        static const char *const signs[] = { "image not known",
                                             "no such image",
                                             "No such image",
                                             "pinging container registry",
                                             "manifest unknown",
                                             "initializing source",
                                             "unable to pull",
                                             "unauthorized",
                                             "authentication required",
                                             "pull access denied",
                                             "reading manifest",
                                             "short-name resolution",
                                             "repository name not known" };

        for (size_t i = 0; i < ARRAY_LEN(signs); i++)
                if (strstr(text, signs[i]))
                        return true;
        return false;
}

static void fail_from_answer(struct cunit *u, const char *what, const struct api_answer *a)
{
        const char *problem = api_problem(a);

        start_fail(u,
                   is_about_image(problem) ? PB__REASON__E__image_unavailable
                   : a->status == 400      ? PB__REASON__E__invalid_spec
                                           : PB__REASON__E__start_failed,
                   fmt("%s: %s", what, problem));
}

static bool stops(struct cunit *u)
{
        if (!u->stop_asked)
                return false;
        unit_clear_and_end(u, RUNTIME_STOPPED, PB__REASON__E__none, NULL);
        return true;
}

void start_stop(struct cunit *u)
{
        if (u->start && u->start->pulling)
                stops(u); /* a pull may take an hour; the other steps end soon */
}

static void call(struct cunit *u, const char *method, const char *path, const struct str *body,
                 int64_t timeout_ms, void (*done)(void *ctx, const struct api_answer *a))
{
        u->call = api_call(u->rt->api, &(struct api_request){ .method = method,
                                                              .path = path,
                                                              .body = body ? str_c(body) : NULL,
                                                              .len = body ? body->len : 0,
                                                              .timeout_ms = timeout_ms,
                                                              .lasts = timeout_ms > CALL_MS,
                                                              .done = done,
                                                              .ctx = u });
}

/* ---- all parts are made ---- */

static void started(struct cunit *u)
{
        struct runtime *rt = u->rt;
        int64_t at = 0, pid = u->parts.len ? u->parts.at[0]->pid : 0;
        _cleanup_(mem_freep) char *id = mem_strdup(u->id);

        for (size_t i = 0; i < u->parts.len; i++)
                if (u->parts.at[i]->started_at > at)
                        at = u->parts.at[i]->started_at;
        u->phase = CUNIT_UP;
        start_free(TAKE_PTR(u->start));
        for (size_t i = 0; i < u->parts.len; i++)
                part_watch(u->parts.at[i]);
        container_emit(rt, &(struct runtime_event){ .kind = RUNTIME_STARTED,
                                                    .workload_id = id,
                                                    .token = u->token,
                                                    .at_ms = at ? at : clock_wall_ms(),
                                                    .pid = pid });
        u = container_find_unit(rt, id);
        if (!u || u->phase != CUNIT_UP)
                return; /* the receiver may have done anything */
        if (u->stop_asked) {
                u->outcome = RUNTIME_STOPPED;
                unit_halt(u);
        } else
                unit_judge(u); /* one may have ended already */
}

/* ---- pods ---- */

static void on_pod_part_seen(void *ctx, const struct api_answer *a)
{
        struct cunit *u = ctx;

        u->call = NULL;
        if (a->status != 200 || !part_take(u->parts.at[u->start->at], a->body, a->len)) {
                fail_from_answer(u, "a container of the pod could not be looked at", a);
                return;
        }
        u->start->at++;
        look_at_parts(u);
}

static void look_at_parts(struct cunit *u)
{
        _cleanup_(str_finip) struct str path = STR_INIT;

        if (u->start->at == u->parts.len) {
                started(u);
                return;
        }
        container_path(&path, u->parts.at[u->start->at]->name, "/json");
        call(u, "GET", str_c(&path), NULL, CALL_MS, on_pod_part_seen);
}

static void on_pod_listed(void *ctx, const struct api_answer *a)
{
        struct cunit *u = ctx;
        struct arena memory = ARENA_INIT;
        const Ct__Listing *list =
            a->status == 200 ? container_read_listing(u->rt, a->body, a->len, &memory) : NULL;

        u->call = NULL;
        if (!list || !unit_take_parts(u, list))
                fail_from_answer(u, "the pod's containers could not be listed", a);
        else {
                u->start->at = 0;
                look_at_parts(u);
        }
        arena_fini(&memory);
}

static void on_played(void *ctx, const struct api_answer *a)
{
        struct cunit *u = ctx;
        _cleanup_(str_finip) struct str path = STR_INIT;

        u->call = NULL;
        if (a->status != 200) {
                fail_from_answer(u, "the pod could not be started", a);
                return;
        }
        if (stops(u))
                return;
        container_list_path(u->rt, u->id, &path);
        call(u, "GET", str_c(&path), NULL, CALL_MS, on_pod_listed);
}

static void play(struct cunit *u)
{
        const Pb__Workload *w = u->start->workload;
        _cleanup_(str_finip) struct str body = STR_INIT, name = STR_INIT;
        char token[48];
        struct err err = { 0 };

        token_text(token, u->token);
        cunit_name(&name, u, NULL);
        const struct kube_label labels[] = {
                { LABEL_WORKLOAD, u->id },
                { LABEL_NODE, u->rt->node_id },
                { LABEL_CLUSTER, u->start->cluster_id },
                { LABEL_TOKEN, token },
                { LABEL_REVISION, u->revision },
        };

        struct kube_label env[CONTAINER_OWN_ENV];
        struct container_env own[CONTAINER_OWN_ENV];
        const struct container_def def = { .workload_id = u->id,
                                           .node_id = u->rt->node_id,
                                           .revision_id = u->revision,
                                           .token = u->token };

        container_own_env(&def, own);
        for (size_t i = 0; i < ARRAY_LEN(own); i++)
                env[i] = (struct kube_label){ own[i].key, own[i].value };
        if (kube_pod_write(w->spec->pod, strlen(w->spec->pod), str_c(&name), labels,
                           ARRAY_LEN(labels), env, ARRAY_LEN(env), &body, &err) < 0) {
                start_fail(u, PB__REASON__E__invalid_spec, err_line(&err));
                return;
        }
        u->call = api_call(u->rt->api,
                           &(struct api_request){ .method = "POST",
                                                  .path = "/v4.0.0/libpod/play/kube?start=true",
                                                  .content_type = "application/yaml",
                                                  .body = str_c(&body),
                                                  .len = body.len,
                                                  .timeout_ms = PLAY_MS,
                                                  .lasts = true,
                                                  .done = on_played,
                                                  .ctx = u });
}

/* ---- one part ---- */

static const struct cdef *def_of(const struct cunit *u)
{
        return &u->start->defs[u->start->at];
}

static void on_part_seen(void *ctx, const struct api_answer *a)
{
        struct cunit *u = ctx;

        u->call = NULL;
        if (a->status != 200 || !part_take(u->parts.at[u->start->at], a->body, a->len)) {
                fail_from_answer(u, "the container could not be looked at", a);
                return;
        }
        u->start->at++;
        next_part(u);
}

static void on_part_started(void *ctx, const struct api_answer *a)
{
        struct cunit *u = ctx;
        _cleanup_(str_finip) struct str path = STR_INIT;

        u->call = NULL;
        if (a->status != 204 && a->status != 304) {
                fail_from_answer(u, "the container could not be started", a);
                return;
        }
        container_path(&path, u->parts.at[u->start->at]->name, "/json");
        call(u, "GET", str_c(&path), NULL, CALL_MS, on_part_seen);
}

static void on_created(void *ctx, const struct api_answer *a)
{
        struct cunit *u = ctx;
        _cleanup_(str_finip) struct str name = STR_INIT, path = STR_INIT;

        u->call = NULL;
        if (a->status != 201) {
                if (a->status == 404)
                        start_fail(u, PB__REASON__E__image_unavailable,
                                   fmt("image %s is not on this node: %s", def_of(u)->spec->image,
                                       api_problem(a)));
                else
                        fail_from_answer(u, "the container could not be created", a);
                return;
        }
        if (stops(u))
                return;
        cunit_name(&name, u, def_of(u)->part);
        cpart_new(u, str_c(&name), def_of(u)->part);
        container_path(&path, str_c(&name), "/start");
        call(u, "POST", str_c(&path), NULL, 2 * CALL_MS, on_part_started);
}

static void create(struct cunit *u)
{
        const Pb__Workload *w = u->start->workload;
        _cleanup_(str_finip) struct str path = STR_INIT, body = STR_INIT;
        struct container_def d = { .workload_id = u->id,
                                   .node_id = u->rt->node_id,
                                   .cluster_id = u->start->cluster_id,
                                   .revision_id = u->revision,
                                   .part = def_of(u)->part,
                                   .token = u->token,
                                   .n_parts = u->start->n_defs,
                                   .spec = def_of(u)->spec,
                                   .resources = w->resources,
                                   .network =
                                       u->start->network.len ? str_c(&u->start->network) : NULL,
                                   .log_max_kb = w->spec->log_max_kb };

        struct container_host hosts[COMPOSE_MAX_SERVICES];
        for (size_t i = 0; d.network && i < u->parts.len && d.n_hosts < ARRAY_LEN(hosts); i++)
                if (u->parts.at[i]->address[0])
                        hosts[d.n_hosts++] = (struct container_host){ u->parts.at[i]->part,
                                                                      u->parts.at[i]->address };
        d.hosts = hosts;
        str_adds(&path, "/containers/create?name=");
        cunit_name(&path, u, def_of(u)->part);
        container_create_body(&body, &d);
        call(u, "POST", str_c(&path), &body, 2 * CALL_MS, on_created);
}

/* ---- the image ---- */

static void tell(struct cunit *u, const char *text)
{
        int64_t now = clock_mono_ns() / 1000000;

        if (u->start->told_ms && now - u->start->told_ms < TELL_MS)
                return;
        u->start->told_ms = now;
        container_emit(u->rt, &(struct runtime_event){ .kind = RUNTIME_PROGRESS,
                                                       .workload_id = u->id,
                                                       .token = u->token,
                                                       .message = text });
}

static void note_layer(struct cstart *s, const Ct__PullLine *line)
{
        size_t i;

        for (i = 0; i < s->n_layers &&
                    strncmp(s->layers[i].id, line->id, sizeof(s->layers[i].id) - 1) != 0;
             i++)
                ;
        if (i == s->n_layers) {
                if (i == ARRAY_LEN(s->layers))
                        return;
                snprintf(s->layers[i].id, sizeof(s->layers[i].id), "%s", line->id);
                s->n_layers++;
        }
        s->layers[i].current = line->progressdetail->current;
        s->layers[i].total = line->progressdetail->total;
}

static void on_pull_line(struct cunit *u, const char *text, size_t len)
{
        struct cstart *s = u->start;
        struct arena memory = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        int64_t current = 0, total = 0;

        if (json_read(&ct__pull_line__descriptor, text, len, API_BODY_MAX, JSON_IGNORE_UNKNOWN,
                      &memory, &m, NULL) == 0) {
                const Ct__PullLine *line = (const Ct__PullLine *)m;

                if (!str_empty(line->error))
                        snprintf(s->problem, sizeof(s->problem), "%s", line->error);
                if (line->progressdetail && line->progressdetail->total > 0 && !str_empty(line->id))
                        note_layer(s, line);
                for (size_t i = 0; i < s->n_layers; i++) {
                        current += s->layers[i].current;
                        total += s->layers[i].total;
                }
                if (total > 0)
                        tell(u, fmt("pulling image %.100s: %lld %%", def_of(u)->spec->image,
                                    (long long)(current >= total ? 100 : current * 100 / total)));
                else
                        tell(u, fmt("pulling image %.100s", def_of(u)->spec->image));
        }
        arena_fini(&memory);
}

static bool on_pull_data(void *ctx, const void *data, size_t len)
{
        struct cunit *u = ctx;
        const char *at = data, *end = at + len;

        while (at < end) {
                const char *newline = memchr(at, '\n', (size_t)(end - at));

                if (u->start->line.len + (size_t)(end - at) < 65536)
                        str_add(&u->start->line, at, (size_t)((newline ? newline : end) - at));
                if (!newline)
                        break;
                on_pull_line(u, str_c(&u->start->line), u->start->line.len);
                str_clear(&u->start->line);
                at = newline + 1;
        }
        return true;
}

static void on_pulled(void *ctx, const struct api_answer *a)
{
        struct cunit *u = ctx;
        struct cstart *s = u->start;

        u->call = NULL;
        s->pulling = false;
        if (s->line.len)
                on_pull_line(u, str_c(&s->line), s->line.len);
        str_clear(&s->line);
        if (a->status == 200 && !s->problem[0]) {
                if (!stops(u))
                        create(u);
                return;
        }
        start_fail(u,
                   a->status == 0 ? PB__REASON__E__start_failed : PB__REASON__E__image_unavailable,
                   fmt("image %.200s could not be pulled: %s", def_of(u)->spec->image,
                       s->problem[0] ? s->problem : api_problem(a)));
}

static void pull(struct cunit *u)
{
        _cleanup_(str_finip) struct str path = STR_INIT;
        struct cstart *s = u->start;

        s->pulling = true;
        s->problem[0] = 0;
        s->n_layers = 0;
        s->told_ms = 0;
        str_adds(&path, "/images/create?");
        image_query(&path, def_of(u)->spec->image);
        u->call = api_call(u->rt->api, &(struct api_request){ .method = "POST",
                                                              .path = str_c(&path),
                                                              .timeout_ms = PULL_MS,
                                                              .lasts = true,
                                                              .done = on_pulled,
                                                              .data = on_pull_data,
                                                              .ctx = u });
        tell(u, fmt("pulling image %.100s", def_of(u)->spec->image));
}

static void on_image_seen(void *ctx, const struct api_answer *a)
{
        struct cunit *u = ctx;

        u->call = NULL;
        if (a->status == 200)
                create(u);
        else if (a->status != 404)
                fail_from_answer(u, "the image could not be looked for", a);
        else if (def_of(u)->spec->pull == PB__PULL__E__never)
                start_fail(
                    u, PB__REASON__E__image_unavailable,
                    fmt("image %s is not on this node, and pull is never", def_of(u)->spec->image));
        else
                pull(u);
}

static void next_part(struct cunit *u)
{
        _cleanup_(str_finip) struct str path = STR_INIT;

        if (stops(u))
                return;
        if (u->start->at == u->start->n_defs) {
                started(u);
                return;
        }
        if (def_of(u)->spec->pull == PB__PULL__E__always) {
                pull(u);
                return;
        }
        str_adds(&path, "/images/");
        api_add_encoded(&path, def_of(u)->spec->image);
        str_adds(&path, "/json");
        call(u, "GET", str_c(&path), NULL, CALL_MS, on_image_seen);
}

/* ---- before the parts ---- */

static void on_network(void *ctx, const struct api_answer *a)
{
        struct cunit *u = ctx;

        u->call = NULL;
        if (a->status != 201 && a->status != 409 && !strstr(a->body, "already")) {
                log_warn("services of a unit share no network of their own",
                         LOG_S("workload", u->id), LOG_S("reason", api_problem(a)));
                str_clear(&u->start->network);
        }
        next_part(u);
}

static void cleared(struct cunit *u)
{
        _cleanup_(str_finip) struct str body = STR_INIT;
        struct err err = { 0 };
        bool own = true;

        if (stops(u))
                return;
        /* What was made under the last mark is gone: from here on names and mark are of the cluster
         * that the agent belongs to now. */
        mem_free(u->cluster);
        u->cluster = mem_strdup(u->start->cluster_id);
        if (mark_write(u, u->kind == CUNIT_POD ? u->start->n_pod : u->start->n_defs, &err) < 0) {
                start_fail(u, PB__REASON__E__start_failed, err_line(&err));
                return;
        }
        if (u->kind == CUNIT_POD) {
                play(u);
                return;
        }
        for (size_t i = 0; i < u->start->n_defs; i++)
                own = own && str_empty(u->start->defs[i].spec->network);
        if (u->kind != CUNIT_COMPOSE || u->start->n_defs < 2 || !own) {
                next_part(u);
                return;
        }
        cunit_name(&u->start->network, u, NULL);
        str_adds(&body, "{\"Name\":");
        json_write_string(&body, str_c(&u->start->network), u->start->network.len);
        str_adds(&body, ",\"CheckDuplicate\":true,\"Labels\":{\"" LABEL_WORKLOAD "\":");
        json_write_string(&body, u->id, strlen(u->id));
        str_adds(&body, ",\"" LABEL_CLUSTER "\":");
        json_write_string(&body, u->cluster, strlen(u->cluster));
        str_adds(&body, "}}");
        call(u, "POST", "/networks/create", &body, CALL_MS, on_network);
}

/* The unit's own variables go to every service that does not set them itself. */
static void add_variables(struct cstart *s, Pb__Spec *service)
{
        const Pb__Spec *spec = s->workload->spec;
        Pb__Spec__EnvEntry **all =
            arena_new_n(&s->memory, Pb__Spec__EnvEntry *, service->n_env + spec->n_env + 1);
        size_t own = service->n_env;

        if (own)
                memcpy(all, service->env, own * sizeof(*all));
        service->env = all;
        for (size_t i = 0; i < spec->n_env; i++) {
                bool there = false;

                for (size_t k = 0; k < own; k++)
                        there = there || str_eq(all[k]->key, spec->env[i]->key);
                if (!there)
                        all[service->n_env++] = spec->env[i];
        }
}

/* What the parts are: the spec itself, or the compose file's services. */
static int plan_parts(struct cunit *u, struct err *err)
{
        struct cstart *s = u->start;
        const Pb__Spec *spec = s->workload->spec;
        struct compose file;
        int r;

        if (u->kind == CUNIT_POD) {
                struct kube_pod pod;

                r = kube_pod_read(spec->pod, strlen(spec->pod), &s->memory, &pod, err);
                if (r == 0)
                        s->n_pod = pod.n_containers;
                return r;
        }
        if (u->kind != CUNIT_COMPOSE) {
                s->defs = arena_new(&s->memory, struct cdef);
                s->defs[0] = (struct cdef){ "", spec };
                s->n_defs = 1;
                return 0;
        }
        r = compose_read(spec->compose, strlen(spec->compose), &s->memory, &file, err);
        if (r < 0)
                return r;
        s->defs = arena_new_n(&s->memory, struct cdef, file.n_services);
        for (size_t i = 0; i < file.n_services; i++) {
                file.services[i].spec->pull = spec->pull;
                add_variables(s, file.services[i].spec);
                s->defs[i] = (struct cdef){ file.services[i].name, file.services[i].spec };
        }
        s->n_defs = file.n_services;
        return 0;
}

static void refuse(struct runtime *rt, const struct runtime_start *start, Pb__Reason__E reason,
                   const char *message)
{
        container_emit(rt, &(struct runtime_event){ .kind = RUNTIME_START_FAILED,
                                                    .workload_id = start->workload_id,
                                                    .token = start->token,
                                                    .at_ms = clock_wall_ms(),
                                                    .reason = reason,
                                                    .message = message });
}

static Pb__Workload *copy_of(const Pb__Workload *w)
{
        size_t len = pb__workload__get_packed_size(w);
        _cleanup_(mem_freep) uint8_t *data = mem_must(len ? len : 1);

        pb__workload__pack(w, data);
        return pb__workload__unpack(NULL, len, data);
}

void container_start(struct runtime *rt, const struct runtime_start *start)
{
        const Pb__Workload *w = start->workload;
        bool pod = w->spec && !str_empty(w->spec->pod);
        enum cunit_kind kind = w->type == PB__WORKLOAD_TYPE__E__compose ? CUNIT_COMPOSE
                               : pod                                    ? CUNIT_POD
                                                                        : CUNIT_PLAIN;
        struct err err = { 0 };
        struct cunit *u;

        if (!rt->usable || (pod && !rt->is_podman)) {
                refuse(rt, start,
                       rt->usable ? PB__REASON__E__invalid_spec
                                  : PB__REASON__E__runtime_unavailable,
                       rt->usable ? "pods need podman, and this node has Docker"
                                  : fmt("runtime not available: %s", rt->why_not));
                return;
        }
        if (!w->spec || container_find_unit(rt, start->workload_id)) {
                refuse(rt, start, PB__REASON__E__start_failed,
                       w->spec ? "an earlier copy of this unit still runs"
                               : "the unit has no spec");
                return;
        }
        u = cunit_new(rt, start->workload_id, start->token, w->revision_id, kind);
        u->phase = CUNIT_STARTING;
        u->grace_ms = (int64_t)w->stop_grace_seconds * 1000;
        u->start = mem_must(sizeof(*u->start));
        u->start->workload = copy_of(w);
        u->start->cluster_id =
            arena_strdup(&u->start->memory, start->cluster_id ? start->cluster_id : "");
        if (!u->start->workload || plan_parts(u, &err) < 0) {
                cunit_free(u);
                refuse(rt, start, PB__REASON__E__invalid_spec,
                       err.code ? err_line(&err) : "its definition does not parse");
                return;
        }
        unit_clear(u, cleared);
}
