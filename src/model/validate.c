/* model/validate.c: see validate.h. First the table's rules over the whole message, then what one
 * field says about another. */
#include "model/validate.h"
#include "base/str.h"
#include "model/canon.h"
#include "model/json.h"
#include "model/json_private.h"
#include "model/path.h"
#include "model/pb.h"
#include "model/redact.h"
#include "model/rules.h"
#include "model/shape.h"
#include "model/spec_check.h"
#include <string.h>

static int fail(struct err *err, const struct path_step *at, const char *what, const char *hint)
{
        char path[PATH_TEXT_LEN];

        path_text(at, path);
        return err_set(err, ERR_INVALID, .msg = path[0] ? fmt("%s: %s", path, what) : what,
                       .hint = hint, .path = path);
}

/* ---- the table's rules ---- */

static int check_message(const ProtobufCMessage *m, const struct path_step *at, unsigned depth,
                         struct err *err);

static int check_text(const struct rule *rule, const char *s, size_t len,
                      const struct path_step *at, struct err *err)
{
        size_t max = rule->max_len ? rule->max_len : RULE_TEXT_MAX;
        const char *bad;

        if (len > max)
                return fail(err, at, fmt("is %zu bytes long, at most %zu are allowed", len, max),
                            NULL);
        if (!str_is_utf8(s, len))
                return fail(err, at, "must be UTF-8", NULL);
        if (rule->hidden && str_eq(s, REDACTED_TEXT))
                return fail(err, at, "is what viewers are shown instead of it",
                            "take the definition from somebody who sees it all");
        bad = rule_text_check(rule->text, s, len);
        return bad ? fail(err, at, bad, NULL) : 0;
}

static const char *number_text(const struct shape_field *f, int64_t v)
{
        char cores[SCALAR_ROOM];

        if (f->kind != SHAPE_CPU)
                return fmt("%lld", (long long)v);
        shape_cpu_text(v, cores);
        return fmt("%s", cores);
}

static int check_number(const struct shape_field *f, int64_t v, const struct path_step *at,
                        struct err *err)
{
        const struct rule *rule = f->rule;
        bool any = rule->min == 0 && rule->max == 0;

        if (f->kind == SHAPE_TIME && any)
                return v < 0 || v > RULE_TIME_MAX
                           ? fail(err, at, "must be a time from 1970 to 9999", NULL)
                           : 0;
        if (!any && (v < rule->min || v > rule->max))
                return fail(err, at,
                            fmt("must be from %s to %s, got %s", number_text(f, rule->min),
                                number_text(f, rule->max), number_text(f, v)),
                            NULL);
        return 0;
}

static int check_enum(const struct shape_field *f, int v, const struct path_step *at,
                      struct err *err)
{
        for (unsigned i = 0; i < f->names->type->n_values; i++)
                if (f->names->type->values[i].value == v && (v != 0 || !f->repeated))
                        return 0;
        return fail(err, at, fmt("unknown value %d, must be one of %s", v, f->names->list), NULL);
}

static int check_value(const struct shape_field *f, const void *slot, const struct path_step *at,
                       unsigned depth, struct err *err)
{
        const ProtobufCBinaryData *b;
        const char *s;

        switch (f->kind) {
        case SHAPE_INT32:
                return check_number(f, *(const int32_t *)slot, at, err);
        case SHAPE_INT64:
        case SHAPE_TIME:
        case SHAPE_CPU:
                return check_number(f, *(const int64_t *)slot, at, err);
        case SHAPE_ENUM:
                return check_enum(f, *(const int *)slot, at, err);
        case SHAPE_STRING:
                s = *(char *const *)slot;
                return check_text(f->rule, s ? s : "", s ? strlen(s) : 0, at, err);
        case SHAPE_BYTES:
                b = slot;
                return b->len > (f->rule->max_len ? f->rule->max_len : RULE_TEXT_MAX)
                           ? fail(err, at, "is too long", NULL)
                           : 0;
        case SHAPE_MESSAGE:
                return check_message(*(ProtobufCMessage *const *)slot, at, depth + 1, err);
        case SHAPE_MAP: {
                const struct pb_entry *e = *(struct pb_entry *const *)slot;
                const char *bad = rule_text_check(f->rule->key, e->key, strlen(e->key));
                return bad ? fail(err, at, bad, NULL)
                           : check_text(f->rule, e->value, strlen(e->value), at, err);
        }
        default:
                return 0;
        }
}

static int check_field(const struct shape_field *f, const ProtobufCMessage *m,
                       const struct path_step *at, unsigned depth, struct err *err)
{
        struct path_step step = { .up = at, .name = f->field->name, .name_len = f->name_len },
                         element = { .up = &step };
        size_t n = shape_count(f, m),
               max = f->rule->max_items ? f->rule->max_items : RULE_ITEMS_MAX;

        if (f->rule->required && n == 0)
                return fail(err, &step, "is missing",
                            f->kind == SHAPE_ENUM ? fmt("one of %s", f->names->list) : NULL);
        if (f->field->label != PROTOBUF_C_LABEL_REPEATED)
                return n ? check_value(f, shape_slot(f, m), &step, depth, err) : 0;
        if (n > max)
                return fail(err, &step, fmt("has %zu entries, at most %zu are allowed", n, max),
                            NULL);
        for (size_t i = 0; i < n; i++) {
                const void *slot = shape_at(f, m, i);
                element.index = i;
                if (f->kind == SHAPE_MAP) {
                        element.name = (*(struct pb_entry *const *)slot)->key;
                        element.name_len = strlen(element.name);
                }
                int rc = check_value(f, slot, &element, depth, err);
                if (rc < 0)
                        return rc;
        }
        return 0;
}

static int check_message(const ProtobufCMessage *m, const struct path_step *at, unsigned depth,
                         struct err *err)
{
        const struct shape *s = shape_of(m->descriptor);

        if (depth > PB_MAX_DEPTH)
                return fail(err, at, "nested too deep", NULL);
        for (unsigned i = 0; i < s->n_fields; i++) {
                if (s->fields[i].rule->server ||
                    (!s->fields[i].rule->required && shape_is_unset(&s->wire[i], m)))
                        continue;
                int rc = check_field(&s->fields[i], m, at, depth, err);
                if (rc < 0)
                        return rc;
        }
        return 0;
}

/* ---- workloads ---- */

#define STEP(up_, name_)                                                                           \
        (&(const struct path_step){ .up = (up_), .name = (name_), .name_len = strlen(name_) })

static void drop_server_fields(Pb__Workload *w)
{
        w->assigned_node = (char *)protobuf_c_empty_string;
        w->status = NULL;
        w->metadata = NULL;
        w->placement = NULL;
        w->token = NULL;
        w->confine = false;
        if (w->retry) {
                w->retry->attempts = 0;
                w->retry->next_retry_at = 0;
        }
}

static int choose_type(Pb__Workload *w, const struct path_step *at, struct err *err)
{
        bool command = w->spec && w->spec->n_command > 0,
             image = w->spec && !str_empty(w->spec->image);
        bool pod = w->spec && !str_empty(w->spec->pod),
             compose = w->spec && !str_empty(w->spec->compose);

        if (w->type != PB__WORKLOAD_TYPE__E__unset)
                return 0;
        if ((pod || compose) && !command && !image && !(pod && compose)) {
                w->type = pod ? PB__WORKLOAD_TYPE__E__container : PB__WORKLOAD_TYPE__E__compose;
                return 0;
        }
        if (!command || image)
                return fail(err, STEP(at, "type"), "is missing",
                            fmt("one of %s", json_enum_list(&pb__workload_type__e__descriptor)));
        w->type = PB__WORKLOAD_TYPE__E__process;
        return 0;
}

struct spec_needs {
        /* "!" must, "" may, else the reason why not */
        const char *command, *image, *compose, *volumes;
};

static const struct spec_needs *needs_of(Pb__WorkloadType__E type)
{
        static const struct spec_needs process = { "!", "is not for processes",
                                                   "is not for processes", "is not for processes" };
        static const struct spec_needs container = { "", "!", "is not for containers", "" };
        static const struct spec_needs compose = { "is not for compose", "is not for compose", "!",
                                                   "is not for compose" };
        static const struct spec_needs vm = { "", "", "is not for vms", "" };

        switch (type) {
        case PB__WORKLOAD_TYPE__E__container:
                return &container;
        case PB__WORKLOAD_TYPE__E__compose:
                return &compose;
        case PB__WORKLOAD_TYPE__E__vm:
                return &vm;
        default:
                return &process;
        }
}

static int check_need(const char *need, bool given, const char *type, const char *field,
                      const struct path_step *spec, struct err *err)
{
        if (need[0] == '!')
                return given ? 0
                             : fail(err, STEP(spec, field), "is missing",
                                    fmt("a workload of type %s needs it", type));
        if (need[0] && given)
                return fail(err, STEP(spec, field), need, "leave it out, or change type");
        return 0;
}

static int check_ports(const Pb__Spec *spec, const struct path_step *at, struct err *err)
{
        struct path_step ports = { .up = at, .name = "ports", .name_len = 5 };

        for (size_t i = 0; i < spec->n_ports; i++) {
                Pb__Port *p = spec->ports[i];
                struct path_step element = { .up = &ports, .index = i };
                if (str_empty(p->protocol))
                        p->protocol = (char *)"tcp";
                for (size_t k = 0; k < i; k++)
                        if (p->host_port && spec->ports[k]->host_port == p->host_port &&
                            str_eq(spec->ports[k]->protocol, p->protocol))
                                return fail(err, STEP(&element, "host_port"), "is there twice",
                                            NULL);
        }
        return 0;
}

/* A machine is an image, or parts put together in spec.vm. */
static int check_vm(const Pb__Workload *w, const struct path_step *here, struct err *err)
{
        const Pb__Spec *spec = w->spec;

        if (w->type != PB__WORKLOAD_TYPE__E__vm)
                return spec->vm ? fail(err, STEP(here, "vm"), "is for vms only",
                                       "leave it out, or change type")
                                : 0;
        if (str_empty(spec->image) && !spec->vm)
                return fail(err, STEP(here, "image"), "is missing",
                            "a workload of type vm needs it, or spec.vm");
        return 0;
}

static int check_spec(Pb__Workload *w, const struct path_step *at, struct err *err)
{
        const struct spec_needs *needs = needs_of(w->type);
        const char *type = json_enum_name(&pb__workload_type__e__descriptor, (int)w->type);
        const Pb__Spec *spec = w->spec;
        const struct path_step *here = STEP(at, "spec");
        size_t packed;
        int rc;

        rc = check_need(needs->command, spec->n_command > 0, type, "command", here, err);
        if (rc == 0)
                rc = check_need(needs->image,
                                !str_empty(spec->image) ||
                                    (needs->image[0] == '!' && !str_empty(spec->pod)),
                                type, "image", here, err);
        if (rc == 0)
                rc = check_need(needs->compose, !str_empty(spec->compose), type, "compose", here,
                                err);
        if (rc == 0)
                rc = check_need(needs->volumes, spec->n_volumes > 0, type, "volumes", here, err);
        if (rc == 0)
                rc = check_vm(w, here, err);
        if (rc < 0)
                return rc;
        if (spec->n_command > 0 && str_empty(spec->command[0])) {
                struct path_step command = { .up = here, .name = "command", .name_len = 7 };
                return fail(err, &(struct path_step){ .up = &command }, "must not be empty",
                            "the first word is the program to run");
        }
        packed = protobuf_c_message_get_packed_size(&spec->base);
        if (packed > WORKLOAD_SPEC_MAX_BYTES)
                return fail(
                    err, here,
                    fmt("is %zu bytes, at most %d are allowed", packed, WORKLOAD_SPEC_MAX_BYTES),
                    "keep large data in files or images, not in env or command");
        return check_ports(spec, here, err);
}

/* The spec has a limit of its own, and so have a few labels; only many of them need to be
 * counted. */
static int check_size(const Pb__Workload *w, const struct path_step *at, struct err *err)
{
        if (w->n_labels + w->n_node_selector + w->n_annotations + w->n_tolerations + w->n_spread <=
                16 &&
            w->n_affinity + w->n_anti_affinity == 0)
                return 0;
        size_t packed = protobuf_c_message_get_packed_size(&w->base);
        if (packed > WORKLOAD_MAX_BYTES)
                return fail(err, at,
                            fmt("the workload is %zu bytes, at most %d are allowed", packed,
                                WORKLOAD_MAX_BYTES),
                            "keep large data in files or images, not in annotations and labels");
        return 0;
}

/* A machine says what it has in its spec. */
static void fill_resources(struct arena *arena, Pb__Workload *w)
{
        const Pb__Resources *r = w->resources;
        bool left_out = !r && w->type != PB__WORKLOAD_TYPE__E__vm;

        /* A follower has normalised what it passes on: its word is kept as far as it can be
         * true. */
        w->default_resources =
            left_out || (w->default_resources && r && r->cpu == WORKLOAD_DEFAULT_CPU_MILLI &&
                         r->memory_mb == WORKLOAD_DEFAULT_MEMORY_MB && r->disk_gb == 0);
        if (r)
                return;
        w->resources = (Pb__Resources *)pb_new(arena, &pb__resources__descriptor);
        if (left_out) {
                w->resources->cpu = WORKLOAD_DEFAULT_CPU_MILLI;
                w->resources->memory_mb = WORKLOAD_DEFAULT_MEMORY_MB;
        }
}

static int fill_defaults(struct arena *arena, Pb__Workload *w, const struct path_step *at,
                         struct err *err)
{
        fill_resources(arena, w);
        if (!w->retry)
                w->retry = (Pb__Retry *)pb_new(arena, &pb__retry__descriptor);
        if (w->desired_state == PB__DESIRED_STATE__E__unset)
                w->desired_state = PB__DESIRED_STATE__E__Running;
        if (w->restart == PB__RESTART__E__unset)
                w->restart = PB__RESTART__E__always;
        /* a service that names none has none */
        if (w->retry->max_attempts == 0 && w->restart != PB__RESTART__E__always)
                w->retry->max_attempts = 5;
        if (w->retry->base_seconds == 0)
                w->retry->base_seconds =
                    w->retry->cap_seconds && w->retry->cap_seconds < 5 ? w->retry->cap_seconds : 5;
        if (w->retry->cap_seconds == 0)
                w->retry->cap_seconds = w->retry->base_seconds > 120 ? w->retry->base_seconds : 120;
        if (w->retry->cap_seconds < w->retry->base_seconds)
                return fail(err, STEP(STEP(at, "retry"), "cap_seconds"),
                            "must not be less than base_seconds", NULL);
        if (w->stop_grace_seconds == 0)
                w->stop_grace_seconds = 10;
        if (w->spec->log_max_kb == 0)
                w->spec->log_max_kb = 10240;
        return 0;
}

/* Defaults of what placement is asked for, and what makes no sense. */
static int check_placement(Pb__Workload *w, const struct path_step *at, struct err *err)
{
        struct path_step spread = { .up = at, .name = "spread", .name_len = 6 };

        for (size_t i = 0; i < w->n_spread; i++) {
                struct path_step element = { .up = &spread, .index = i };
                if (!w->spread[i]->n_match && !w->n_labels)
                        return fail(err, STEP(&element, "match"),
                                    "is missing, and the workload has no labels of its own",
                                    "give the workload a label such as app, or say whom to count");
                if (w->spread[i]->max_skew == 0)
                        w->spread[i]->max_skew = 1;
        }
        for (size_t i = 0; i < w->n_affinity + w->n_anti_affinity; i++) {
                Pb__Affinity *a =
                    i < w->n_affinity ? w->affinity[i] : w->anti_affinity[i - w->n_affinity];
                if (a->preferred && a->weight == 0)
                        a->weight = 100;
        }
        return 0;
}

static int check_taints(Pb__Taint *const *list, size_t n, struct err *err)
{
        struct path_step taints = { .name = "taints", .name_len = 6 };

        for (size_t i = 0; i < n; i++)
                for (size_t k = 0; k < i; k++)
                        if (str_eq(list[i]->key, list[k]->key) &&
                            list[i]->effect == list[k]->effect)
                                return fail(err, &(struct path_step){ .up = &taints, .index = i },
                                            "the same key and effect are there twice", NULL);
        return 0;
}

/* "rev-" and 12 hex digits: computed by us, of this content or of an earlier one. */
bool revision_is_computed(const char *s)
{
        return str_empty(s) || (str_starts(s, "rev-") && strlen(s) == REVISION_LEN &&
                                strspn(s + 4, "0123456789abcdef") == REVISION_LEN - 4);
}

static int normalise_workload(struct arena *arena, Pb__Workload *w, const struct path_step *at,
                              struct err *err)
{
        char revision[REVISION_LEN + 1];
        int rc;

        drop_server_fields(w);
        rc = check_message(&w->base, at, 0, err);
        if (rc < 0)
                return rc;
        if (w->desired_state == PB__DESIRED_STATE__E__Deleted)
                return fail(err, STEP(at, "desired_state"),
                            "a workload cannot be applied as Deleted",
                            "to remove it: berth delete, or DELETE /v1/workloads/{id}");
        rc = choose_type(w, at, err);
        if (rc < 0)
                return rc;
        if (!w->spec)
                w->spec = (Pb__Spec *)pb_new(arena, &pb__spec__descriptor);
        rc = check_spec(w, at, err);
        if (rc == 0)
                rc = check_size(w, at, err);
        if (rc == 0)
                rc = spec_check(arena, w, STEP(at, "spec"), err);
        if (rc == 0)
                rc = fill_defaults(arena, w, at, err);
        if (rc == 0)
                rc = check_placement(w, at, err);
        if (rc == 0)
                rc = pb_normalise_maps_at(&w->base, at, err);
        if (rc < 0)
                return rc;
        if (revision_is_computed(w->revision_id))
                w->revision_id = arena_strdup(arena, workload_revision(w, revision));
        return 0;
}

int workload_normalise(struct arena *arena, Pb__Workload *w, struct err *err)
{
        return normalise_workload(arena, w, NULL, err);
}

/* ---- requests ---- */

static int check_apply(struct arena *arena, Pb__ApplyWorkloadRequest *r, struct err *err)
{
        if (!r->workload)
                return fail(err, STEP(NULL, "workload"), "is missing", NULL);
        if (r->create_only && r->update_only)
                return fail(err, STEP(NULL, "update_only"),
                            "create_only and update_only exclude each other", NULL);
        /* A wish like the others (seed 001): whatever else is said of it is of no consequence. */
        if (r->workload->desired_state == PB__DESIRED_STATE__E__Deleted && !r->create_only) {
                drop_server_fields(r->workload);
                return check_message(&r->workload->base, STEP(NULL, "workload"), 0, err);
        }
        return normalise_workload(arena, r->workload, STEP(NULL, "workload"), err);
}

static int check_apply_many(struct arena *arena, Pb__ApplyWorkloadsRequest *r, struct err *err)
{
        struct path_step items = { .name = "items", .name_len = 5 };

        if (r->n_items == 0)
                return fail(err, &items, "is missing", NULL);
        if (r->n_items > APPLY_ITEMS_MAX)
                return fail(
                    err, &items,
                    fmt("has %zu entries, at most %d are allowed", r->n_items, APPLY_ITEMS_MAX),
                    "send them in several requests");
        if (r->create_only && r->update_only)
                return fail(err, STEP(NULL, "update_only"),
                            "create_only and update_only exclude each other", NULL);
        for (size_t i = 0; i < r->n_items; i++) {
                int rc = normalise_workload(arena, r->items[i],
                                            &(struct path_step){ .up = &items, .index = i }, err);
                if (rc < 0)
                        return rc;
        }
        return 0;
}

static int check_exec(const Pb__ExecMessage *m, struct err *err)
{
        if (!m->start == !m->input)
                return fail(err, STEP(NULL, "start"), "exactly one of start and input must be set",
                            NULL);
        return check_message(&m->base, NULL, 0, err);
}

static int check_plan(struct arena *arena, Pb__PlanRequest *r, struct err *err)
{
        int questions = (r->n_apply > 0) + (r->n_remove > 0) + !str_empty(r->drain_node) +
                        (r->n_lose_nodes > 0) + (!str_empty(r->add_nodes_like) || r->add_nodes > 0);
        struct path_step apply = { .name = "apply", .name_len = 5 };
        int rc = check_message(&r->base, NULL, 0, err);
        if (rc < 0)
                return rc;
        if (questions != 1)
                return fail(
                    err, NULL,
                    questions ? "a plan answers one question at a time" : "there is no question",
                    "exactly one of apply, remove, drain_node, lose_nodes and add_nodes_like");
        if (r->add_nodes > 0 && str_empty(r->add_nodes_like))
                return fail(err, STEP(NULL, "add_nodes_like"), "is missing",
                            "the node that new ones are to be like");
        for (size_t i = 0; i < r->n_apply; i++) {
                rc = normalise_workload(arena, r->apply[i],
                                        &(struct path_step){ .up = &apply, .index = i }, err);
                if (rc < 0)
                        return rc;
                for (size_t k = 0; k < i; k++)
                        if (str_eq(r->apply[i]->id, r->apply[k]->id))
                                return fail(err, &(struct path_step){ .up = &apply, .index = i },
                                            "this workload is there twice", NULL);
        }
        return 0;
}

int request_normalise(struct arena *arena, ProtobufCMessage *request, struct err *err)
{
        const ProtobufCMessageDescriptor *type = request->descriptor;
        int rc;

        if (type == &pb__apply_workload_request__descriptor)
                return check_apply(arena, (Pb__ApplyWorkloadRequest *)request, err);
        if (type == &pb__apply_workloads_request__descriptor)
                return check_apply_many(arena, (Pb__ApplyWorkloadsRequest *)request, err);
        if (type == &pb__plan_request__descriptor)
                return check_plan(arena, (Pb__PlanRequest *)request, err);
        if (type == &pb__workload__descriptor)
                return workload_normalise(arena, (Pb__Workload *)request, err);
        if (type == &pb__exec_message__descriptor)
                return check_exec((const Pb__ExecMessage *)request, err);
        if (type == &pb__hello__descriptor)
                return validate_hello((const Pb__Hello *)request, err);
        rc = check_message(request, NULL, 0, err);
        if (rc >= 0 && (type == &pb__set_node_labels_request__descriptor ||
                        type == &pb__create_token_request__descriptor))
                rc = pb_normalise_maps(request, err); /* they are kept as they come */
        if (rc < 0)
                return rc;
        if (type == &pb__set_taints_request__descriptor)
                return check_taints(((const Pb__SetTaintsRequest *)request)->taints,
                                    ((const Pb__SetTaintsRequest *)request)->n_taints, err);
        if (type == &pb__create_token_request__descriptor) {
                const Pb__CreateTokenRequest *q = (const Pb__CreateTokenRequest *)request;
                return check_taints(q->taints, q->n_taints, err);
        }
        if (type == &pb__set_desired_request__descriptor &&
            ((const Pb__SetDesiredRequest *)request)->desired_state ==
                PB__DESIRED_STATE__E__Deleted)
                return fail(err, STEP(NULL, "desired_state"), "must be Running or Stopped",
                            "to remove a workload: berth delete, or DELETE /v1/workloads/{id}");
        if (type == &pb__exec_start__descriptor &&
            str_empty(((const Pb__ExecStart *)request)->command[0])) {
                struct path_step command = { .name = "command", .name_len = 7 };
                return fail(err, &(struct path_step){ .up = &command }, "must not be empty", NULL);
        }
        return 0;
}

int validate_request(const ProtobufCMessage *request, struct err *err)
{
        const ProtobufCMessageDescriptor *type = request->descriptor;
        struct arena arena = ARENA_INIT;
        int rc;

        if (type != &pb__apply_workload_request__descriptor &&
            type != &pb__apply_workloads_request__descriptor && type != &pb__workload__descriptor &&
            type != &pb__plan_request__descriptor)
                /* only these are changed */
                return request_normalise(NULL, (ProtobufCMessage *)request, err);
        rc = request_normalise(&arena, pb_clone(&arena, request), err);
        arena_fini(&arena);
        return rc;
}

/* ---- agents ---- */

static int check_hello(const Pb__Hello *hello, const struct path_step *at, struct err *err)
{
        int rc = check_message(&hello->base, at, 0, err);
        struct path_step units = { .up = at, .name = "labels", .name_len = 6 };

        for (size_t i = 0; rc == 0 && i < hello->n_labels; i++)
                for (size_t k = 0; k < i; k++)
                        if (str_eq(hello->labels[i]->key, hello->labels[k]->key))
                                return fail(err, STEP(&units, hello->labels[i]->key),
                                            "the key is there twice", NULL);
        return rc;
}

int validate_hello(const Pb__Hello *hello, struct err *err)
{
        return check_hello(hello, NULL, err);
}

int validate_heartbeat(const Pb__Heartbeat *heartbeat, struct err *err)
{
        return check_message(&heartbeat->base, NULL, 0, err);
}

int validate_unit_report(const Pb__UnitReport *report, struct err *err)
{
        return check_message(&report->base, NULL, 0, err);
}

int validate_agent_message(const Pb__AgentMessage *m, struct err *err)
{
        int set = !!m->hello + !!m->heartbeat + !!m->units + !!m->log + !!m->exec +
                  !!m->definitions + !!m->credit;

        if (set != 1)
                return fail(err, NULL, "exactly one field of an agent's message must be set", NULL);
        if (m->hello)
                return check_hello(m->hello, STEP(NULL, "hello"), err);
        /* each is checked by whoever takes it: one that is wrong must not end the stream */
        if (m->definitions)
                return m->definitions->n_units + m->definitions->n_held > DEFINITIONS_MAX
                           ? fail(err, NULL, "too many definitions in one message", NULL)
                           : 0;
        return check_message(&m->base, NULL, 0, err);
}
