/* agent/engine_unit.c: the units that the engine holds, its life, and looking inside. */
#include "agent/engine.h"
#include "agent/engine_state.h"
#include "base/mutant.h"
#include "base/str.h"
#include "base/unit_hash.h"
#include <stdlib.h>
#include <string.h>

/* ---- units ---- */

static struct map_key key_of_unit(const void *ctx, uint32_t ix)
{
        const struct engine *e = ctx;

        return (struct map_key){ e->units.at[ix]->id, strlen(e->units.at[ix]->id) };
}

struct unit *engine_find(const struct engine *e, const char *id)
{
        uint32_t ix = map_get(&e->by_id, id, strlen(id));

        return ix == MAP_NONE ? NULL : e->units.at[ix];
}

struct unit *engine_unit_new(struct engine *e, const char *id)
{
        struct unit *u = mem_must(sizeof(*u));

        u->id = mem_strdup(id);
        u->revision = mem_strdup("");
        u->grace_ms = DEFAULT_GRACE_SECONDS * 1000;
        u->state = PB__ACTUAL_STATE__E__Unknown;
        if (e->free_ix.len)
                u->ix = array_pop(&e->free_ix);
        else {
                u->ix = (uint32_t)e->units.len;
                array_push(&e->units);
        }
        e->units.at[u->ix] = u;
        map_put(&e->by_id, u->ix);
        e->n_units++;
        return u;
}

/* Entries of dirty, reports and start_queue that still name this index are skipped later: a new
 * unit in the same place has its own flags. */
void engine_unit_free(struct engine *e, struct unit *u)
{
        engine_lease_count(e, u, false);
        map_remove(&e->by_id, u->ix);
        heap_unset(&e->stop_again, u->ix);
        e->units.at[u->ix] = NULL;
        *array_push(&e->free_ix) = u->ix;
        e->n_units--;
        mem_free(u->id);
        mem_free(u->revision);
        mem_free(u->workload);
        mem_free(u->launched_revision);
        mem_free(u->run_revision);
        mem_free(u->message);
        mem_free(u);
}

/* Copies at most max bytes, cut between UTF-8 characters. */
void unit_set_text(char **at, const char *text, size_t max)
{
        size_t len = text ? strlen(text) : 0;

        if (len > max) {
                len = max;
                while (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80)
                        len--;
        }
        mem_free(*at);
        *at = len ? mem_strndup(text, len) : NULL;
}

void unit_set_string(char **at, const char *text)
{
        char *copy = mem_strdup(text ? text : "");

        mem_free(*at);
        *at = copy;
}

void engine_mark_dirty(struct engine *e, struct unit *u)
{
        if (u->dirty)
                return;
        u->dirty = true;
        *array_push(&e->dirty) = u->ix;
}

static void report_later(struct engine *e, struct unit *u)
{
        if (u->report || e->suspending)
                return;
        u->report = true;
        *array_push(&e->reports) = u->ix;
}

void engine_mark_report(struct engine *e, struct unit *u)
{
        report_later(e, u);
        e->reports_due = e->reports.len > 0;
}

void unit_set_state(struct engine *e, struct unit *u, Pb__ActualState__E state,
                    Pb__Reason__E reason, const char *message)
{
        u->state = state;
        u->reason = reason;
        unit_set_text(&u->message, message, MESSAGE_MAX);
        if (state == PB__ACTUAL_STATE__E__Pending)
                /* nothing is decided on it; mostly it runs before anybody asks */
                report_later(e, u);
        else
                engine_mark_report(e, u);
}

void unit_clear_exit(struct unit *u)
{
        u->has_exit_code = u->has_signal = false;
        u->exit_code = u->signal = 0;
        u->started_at = u->finished_at = 0;
}

void engine_notice(struct engine *e, const char *id, struct unit_token token, const char *revision,
                   Pb__ActualState__E state, Pb__Reason__E reason, const char *message)
{
        struct notice *n;

        if (!e->connected || e->suspending)
                return;
        n = array_push(&e->notices);
        n->id = mem_strdup(id);
        n->revision = mem_strdup(revision ? revision : "");
        n->token = token;
        n->state = state;
        n->reason = reason;
        unit_set_text(&n->message, message, MESSAGE_MAX);
}

static bool same_launch(struct unit_token a, const char *ra, struct unit_token b, const char *rb)
{
        return ra && rb && unit_token_cmp(a, b) == 0 && strcmp(ra, rb) == 0;
}

/* The wish was launched already (it may have ended since). */
bool unit_was_launched(const struct unit *u)
{
        return same_launch(u->token, u->revision, u->launched, u->launched_revision);
}

/* The copy in the runtime is the one that is wished for. */
bool unit_runs_wish(const struct unit *u)
{
        return same_launch(u->token, u->revision, u->run_token, u->run_revision);
}

bool unit_in_runtime(const struct unit *u)
{
        return u->run == RUN_STARTING || u->run == RUN_UP || u->run == RUN_STOPPING;
}

bool unit_wants_start(const struct unit *u)
{
        return u->desired == PB__DESIRED_STATE__E__Running && u->run == RUN_NONE && u->workload &&
               (u->confirmed || MUTANT(start_without_confirmation)) &&
               (!unit_was_launched(u) || u->resumable);
}

/* ---- life ---- */

static int label_cmp(const void *a, const void *b)
{
        return strcmp(((const struct engine_label *)a)->key, ((const struct engine_label *)b)->key);
}

struct engine *engine_create(const struct engine_options *opt)
{
        struct engine *e = mem_must(sizeof(*e));

        e->node_id = mem_strdup(opt->node_id ? opt->node_id : "");
        e->instance = mem_strdup(opt->instance ? opt->instance : "");
        e->version = mem_strdup(opt->agent_version ? opt->agent_version : "");
        e->endpoint = mem_strdup(opt->agent_endpoint ? opt->agent_endpoint : "");
        e->boot_id = mem_strdup(opt->boot_id ? opt->boot_id : "");
        e->cluster_id = mem_strdup("");
        e->cpu = opt->cpu;
        e->memory_mb = opt->memory_mb;
        e->disk_gb = opt->disk_gb;
        for (const Pb__WorkloadType__E *t = opt->types; t && *t && e->n_types < ARRAY_LEN(e->types);
             t++)
                e->types[e->n_types++] = *t;
        for (const Pb__WorkloadType__E *t = opt->exclusive_types;
             t && *t && e->n_exclusive_types < ARRAY_LEN(e->exclusive_types); t++)
                e->exclusive_types[e->n_exclusive_types++] = *t;
        e->lease_until_ms = INT64_MIN;
        for (size_t i = 0; i < opt->n_labels; i++)
                *array_push(&e->labels) = (struct engine_label){
                        mem_strdup(opt->labels[i].key),
                        mem_strdup(opt->labels[i].value ? opt->labels[i].value : "")
                };
        if (e->labels.len > 1)
                qsort(e->labels.at, e->labels.len, sizeof(e->labels.at[0]), label_cmp);
        e->max_units = opt->max_units ? opt->max_units : ENGINE_MAX_UNITS;
        e->max_starting = opt->max_starting ? opt->max_starting : ENGINE_MAX_STARTING;
        e->heartbeat_ms = ENGINE_HEARTBEAT_MS;
        e->away_since_ms = INT64_MIN;
        e->save_again_ms = HEAP_NEVER;
        map_init(&e->by_id, key_of_unit, e);
        return e;
}

void engine_set_certificate(struct engine *e, int64_t begins_at_ms, int64_t expires_at_ms)
{
        e->certificate_begins_at = begins_at_ms;
        e->certificate_expires_at = expires_at_ms;
}

bool engine_set_capacity(struct engine *e, const struct runtime_capacity *capacity)
{
        bool same = e->cpu == capacity->cpu && e->memory_mb == capacity->memory_mb &&
                    e->disk_gb == capacity->disk_gb;
        size_t n = 0;

        while (n < ARRAY_LEN(capacity->types) && capacity->types[n])
                n++;
        same = same && n == e->n_types;
        for (size_t i = 0; same && i < n; i++)
                same = engine_runs(e, capacity->types[i]); /* their order says nothing */
        if (same)
                return false;
        e->cpu = capacity->cpu;
        e->memory_mb = capacity->memory_mb;
        e->disk_gb = capacity->disk_gb;
        memcpy(e->types, capacity->types, n * sizeof(e->types[0]));
        e->n_types = n;
        return true;
}

void engine_destroy(struct engine *e)
{
        for (size_t i = 0; i < e->units.len; i++)
                if (e->units.at[i])
                        engine_unit_free(e, e->units.at[i]);
        for (size_t i = 0; i < e->labels.len; i++) {
                mem_free((char *)e->labels.at[i].key);
                mem_free((char *)e->labels.at[i].value);
        }
        for (size_t i = 0; i < e->forgets.len; i++)
                mem_free(e->forgets.at[i]);
        for (size_t i = 0; i < e->orders.len; i++) {
                mem_free(e->orders.at[i].id);
                mem_free(e->orders.at[i].data);
        }
        engine_drop_collected(e);
        engine_forget_notices(e);
        engine_forget_questions(e);
        array_fini(&e->units);
        array_fini(&e->free_ix);
        array_fini(&e->labels);
        array_fini(&e->collected);
        array_fini(&e->start_queue);
        array_fini(&e->dirty);
        array_fini(&e->reports);
        array_fini(&e->forgets);
        array_fini(&e->orders);
        array_fini(&e->notices);
        array_fini(&e->describe);
        map_fini(&e->by_id);
        heap_fini(&e->stop_again);
        mem_free(e->node_id);
        mem_free(e->instance);
        mem_free(e->version);
        mem_free(e->endpoint);
        mem_free(e->boot_id);
        mem_free(e->cluster_id);
        mem_free(e->close_reason);
        mem_free(e);
}

/* ---- looking inside ---- */

uint64_t engine_plans_ignored(const struct engine *e)
{
        return e->plans_ignored;
}
bool engine_is_welcome(const struct engine *e)
{
        return e->welcome;
}
uint32_t engine_unit_count(const struct engine *e)
{
        return e->n_units;
}
bool engine_runs(const struct engine *e, Pb__WorkloadType__E type)
{
        for (size_t i = 0; i < e->n_types; i++)
                if (e->types[i] == type)
                        return true;
        return false;
}
const char *engine_cluster_id(const struct engine *e)
{
        return e->cluster_id;
}
struct unit_token engine_cursor(const struct engine *e)
{
        return e->cursor;
}

bool engine_is_idle(const struct engine *e)
{
        for (size_t i = 0; i < e->units.len; i++)
                if (e->units.at[i] && unit_in_runtime(e->units.at[i]))
                        return false;
        return true;
}

int64_t engine_max_grace_ms(const struct engine *e)
{
        int64_t max = 0;

        for (size_t i = 0; i < e->units.len; i++)
                if (e->units.at[i] && unit_in_runtime(e->units.at[i]) &&
                    e->units.at[i]->grace_ms > max)
                        max = e->units.at[i]->grace_ms;
        return max;
}

uint64_t engine_units_hash(const struct engine *e)
{
        uint64_t sum = 0;

        for (size_t i = 0; i < e->units.len; i++) {
                const struct unit *u = e->units.at[i];

                if (u)
                        sum =
                            units_hash_add(sum, u->id, u->token.epoch, u->token.seq, (int)u->state);
        }
        return sum;
}

Pb__Workload *engine_definition(const struct engine *e, const char *workload_id)
{
        const struct unit *u = engine_find(e, workload_id);

        return u && u->workload ? pb__workload__unpack(NULL, u->workload_len, u->workload) : NULL;
}

bool engine_unit(const struct engine *e, const char *workload_id, struct engine_unit_view *ret)
{
        const struct unit *u = engine_find(e, workload_id);

        if (!u)
                return false;
        *ret = (struct engine_unit_view){
                .workload_id = u->id,
                .revision_id = u->revision,
                .token = u->token,
                .running_token = unit_in_runtime(u) ? u->run_token : (struct unit_token){ 0, 0 },
                .desired = u->desired,
                .state = u->state,
                .in_runtime = unit_in_runtime(u),
                .confirmed = u->confirmed,
        };
        return true;
}
