/* core/quota.c: what a tenant may use in all, and how often it may write (C31).
 *
 * A tenant's usage is kept as its workloads change, in two sums:
 *   asked    what its users want: every workload that is not being deleted counts as one; cpu,
 *            memory and disk count while it is to run and has not finished.
 *   placed   the part of it that holds capacity on a node and is to run.
 * The API is held to `asked`, so that two requests that race are decided one after the other and
 * never exceed a limit together. Every allocation is held to `placed` once more, since a quota may
 * have been lowered meanwhile: what runs goes on running, what has no place yet waits in its
 * tenant's queue (reason quota_exceeded) and never in a queue for capacity, until the tenant has
 * room again. A move to another node takes nothing new and is not asked.
 *
 * Invariants:
 *   (Q1) asked and placed are the exact sums over the tenant's workloads.
 *   (Q2) placed never exceeds asked.
 *   (Q3) A workload waits in its tenant's queue exactly while it is marked so; nobody waits there
 *   who has room. (Q4) No decision makes asked or placed exceed a limit in a dimension that it adds
 *   to.
 *
 * Limits of 0 mean no limit. A tenant without a quota of its own has the default one of the
 * configuration.
 */
#include "core/quota.h"
#include "base/mem.h"
#include "base/mutant.h"
#include "core/policy.h"
#include "core/read.h"
#include "core/state.h"
#include "core/step.h"
#include "core/workload.h"
#include <stdlib.h>
#include <string.h>

#define DIMENSIONS 4
#define WRITE_BUCKETS 1024
#define BUCKET_WAYS 8
/* so that a bucket is refilled by (elapsed ms * writes per minute), in whole numbers */
#define WRITE_COST 60000
#define QUOTAS_PER_PAGE 500

static const char *const dimension_names[DIMENSIONS] = { "workloads", "cpu_milli", "memory_mb",
                                                         "disk_gb" };

static struct map_key tenant_key(const void *ctx, uint32_t i)
{
        const struct core *c = ctx;
        return (struct map_key){ c->tenants.at[i].name, strlen(c->tenants.at[i].name) };
}

/* ---- tenants ---- */

void quotas_init(struct core *c)
{
        map_init(&c->tenant_by_name, tenant_key, c);
        order_init(&c->tenants_in_order, tenant_key, c);
        c->write_buckets = mem_must(WRITE_BUCKETS * sizeof(*c->write_buckets));
}

void quotas_fini(struct core *c)
{
        for (size_t i = 0; i < c->tenants.len; i++)
                mem_free(c->tenants.at[i].name);
        for (size_t i = 0; i < WRITE_BUCKETS; i++)
                mem_free(c->write_buckets[i].name);
        mem_free(c->write_buckets);
        array_fini(&c->tenants);
        array_fini(&c->free_tenants);
        array_fini(&c->tenants_with_room);
        map_fini(&c->tenant_by_name);
        order_fini(&c->tenants_in_order);
}

static const char *tenant_name(const char *name)
{
        return str_empty(name) ? "default" : name;
}

uint32_t tenant_find(const struct core *c, const char *name)
{
        name = tenant_name(name);
        return map_get(&c->tenant_by_name, name, strlen(name));
}

static uint32_t tenant_add(struct core *c, const char *name)
{
        uint32_t t = tenant_find(c, name);
        if (t != MAP_NONE)
                return t;
        if (c->free_tenants.len)
                t = array_pop(&c->free_tenants);
        else {
                array_push(&c->tenants);
                t = (uint32_t)c->tenants.len - 1;
        }
        c->tenants.at[t] =
            (struct tenant){ .name = mem_strdup(tenant_name(name)), .first = NONE, .last = NONE };
        map_put(&c->tenant_by_name, t);
        order_add(&c->tenants_in_order, t);
        return t;
}

/* Nobody uses it and it has no quota: forget it. */
static void tenant_drop_unused(struct core *c, uint32_t i)
{
        struct tenant *t = &c->tenants.at[i];
        if (t->refs || t->has_quota || t->unsaved || t->has_room)
                return;
        map_remove(&c->tenant_by_name, i);
        order_remove(&c->tenants_in_order, i);
        mem_free(t->name);
        *t = (struct tenant){ 0 };
        *array_push(&c->free_tenants) = i;
}

uint32_t tenant_ref(struct core *c, const char *name)
{
        uint32_t t = tenant_add(c, name);
        c->tenants.at[t].refs++;
        return t;
}

void tenant_unref(struct core *c, uint32_t t)
{
        c->tenants.at[t].refs--;
        tenant_drop_unused(c, t);
}

static struct tenant *tenant_of(const struct core *c, const struct unit *w)
{
        return &c->tenants.at[definition_of(c, w)->tenant];
}

static struct usage usage_of_resources(const Pb__Resources *r)
{
        struct usage u = { { 0 } };
        if (r) {
                u.of[1] = (uint64_t)r->cpu;
                u.of[2] = (uint64_t)r->memory_mb;
                u.of[3] = (uint64_t)r->disk_gb;
        }
        return u;
}

static struct usage usage_of_definition(const struct core *c, const struct unit *w)
{
        Pb__Resources r = amounts_to_resources(definition_of(c, w)->charged);
        return usage_of_resources(&r);
}

/* The limits that count for it: its own, or those of the configuration. */
static const struct quota *quota_of(const struct core *c, const struct tenant *t)
{
        return t->has_quota ? &t->quota : &c->default_quota;
}

/* ---- usage ---- */

static void add(struct usage *sum, const struct usage *u, uint64_t workloads, bool resources)
{
        sum->of[0] += workloads;
        for (int d = 1; resources && d < DIMENSIONS; d++)
                sum->of[d] += u->of[d];
}

static void take(struct usage *sum, const struct usage *u, uint64_t workloads, bool resources)
{
        must(sum->of[0] >= workloads, "Q1: a tenant's usage is the sum over its workloads");
        sum->of[0] -= workloads;
        for (int d = 1; resources && d < DIMENSIONS; d++) {
                must(sum->of[d] >= u->of[d], "Q1: a tenant's usage is the sum over its workloads");
                sum->of[d] -= u->of[d];
        }
}

/* Room may have come for those that wait. */
static void room_came(struct core *c, uint32_t i)
{
        struct tenant *t = &c->tenants.at[i];
        if (t->has_room || !t->n_waiting || !c->started)
                return;
        t->has_room = true;
        *array_push(&c->tenants_with_room) = i;
}

static void count(struct core *c, struct unit *w, bool counted, bool runs, bool placed)
{
        if (w->counted == counted && w->counted_runs == runs && w->counted_placed == placed)
                return;
        uint32_t i = definition_of(c, w)->tenant;
        struct tenant *t = &c->tenants.at[i];
        struct usage u = usage_of_definition(c, w);
        if (w->counted)
                take(&t->asked, &u, 1, w->counted_runs);
        if (counted)
                add(&t->asked, &u, 1, runs);
        if (w->counted_placed && !MUTANT(quota_not_given_back))
                take(&t->placed, &u, 1, true);
        if (placed)
                add(&t->placed, &u, 1, true);
        bool freed = w->counted_placed && !placed;
        w->counted = counted;
        w->counted_runs = runs;
        w->counted_placed = placed;
        if (freed)
                room_came(c, i);
}

void usage_update(struct core *c, struct unit *w)
{
        if (w->counted_desired)
                c->by_desired[w->counted_desired]--;
        c->by_desired[w->desired]++;
        w->counted_desired = w->desired;
        bool counted = w->desired != PB__DESIRED_STATE__E__Deleted;
        bool runs = w->desired == PB__DESIRED_STATE__E__Running && !unit_is_finished(w);
        count(c, w, counted, runs, runs && w->holds);
}

void usage_drop(struct core *c, struct unit *w)
{
        if (w->counted_desired)
                c->by_desired[w->counted_desired]--;
        w->counted_desired = 0;
        if (w->definition != NONE)
                count(c, w, false, false, false);
}

/* The first dimension in which sum + more would exceed a limit although more adds to it; -1:
 * none. */
static int exceeded(const struct quota *q, const struct usage *sum, const struct usage *more)
{
        for (int d = 0; d < DIMENSIONS; d++)
                if (q->limit.of[d] && more->of[d] && sum->of[d] + more->of[d] > q->limit.of[d])
                        return d;
        return -1;
}

/* ---- at the API ---- */

static int64_t shown(uint64_t v)
{
        return v > INT64_MAX ? INT64_MAX : (int64_t)v;
}

static int check_usage(struct core *c, const struct tenant *t, const struct usage *used,
                       const struct usage *more)
{
        const struct quota *q = quota_of(c, t);
        int d = exceeded(q, used, more);
        if (d < 0 || MUTANT(quota_ignored_at_api))
                return 0;
        struct err err;
        err_set(&err, ERR_QUOTA, .msg = fmt("the quota of tenant %s does not allow it", t->name),
                .detail = fmt("%s: limit %llu, in use %llu, %llu more asked for",
                              dimension_names[d], (unsigned long long)q->limit.of[d],
                              (unsigned long long)used->of[d], (unsigned long long)more->of[d]),
                .hint = fmt(
                    "stop or delete something of it, ask for less, or raise it: berth quota set %s",
                    t->name),
                .excess = { dimension_names[d], shown(q->limit.of[d]), shown(used->of[d]),
                            shown(more->of[d]) });
        reply_error(c, &err);
        return -1;
}

static int check_tenant(struct core *c, const char *name, const struct usage *more)
{
        uint32_t i = tenant_find(c, name);
        struct tenant nobody = { .name = (char *)tenant_name(name) };
        const struct tenant *t = i == MAP_NONE ? &nobody : &c->tenants.at[i];
        return check_usage(c, t, &t->asked, more);
}

/* A stopped workload that kept its place is not allocated anew when it is started: what is asked
 * before every allocation is asked here. */
static int check_start_in_place(struct core *c, struct unit_ix ix)
{
        const struct unit *w = unit_at(c, ix);
        if (!w->holds || w->counted_placed)
                return 0;
        struct usage more = usage_of_definition(c, w);
        more.of[0] = 1;
        return check_usage(c, tenant_of(c, w), &tenant_of(c, w)->placed, &more);
}

static uint64_t grows_by(uint64_t after, uint64_t before)
{
        return after > before ? after - before : 0;
}

int quota_allows_apply(struct core *c, struct unit_ix ix, const Pb__Workload *asked)
{
        Pb__DesiredState__E desired = asked->desired_state;
        struct usage more = usage_of_resources(asked->resources);
        if (!desired)
                desired = unit_ok(ix) ? (Pb__DesiredState__E)unit_at(c, ix)->desired
                                      : PB__DESIRED_STATE__E__Running;
        if (desired != PB__DESIRED_STATE__E__Running)
                more = (struct usage){ { 0 } };
        more.of[0] = 1;
        if (unit_ok(ix) &&
            strcmp(tenant_of(c, unit_at(c, ix))->name, tenant_name(asked->tenant)) == 0) {
                const struct unit *w = unit_at(c, ix);
                struct usage now = usage_of_definition(c, w);
                for (int d = 1; d < DIMENSIONS; d++)
                        more.of[d] = grows_by(more.of[d], w->counted_runs ? now.of[d] : 0);
                more.of[0] = 0;
                if (desired == PB__DESIRED_STATE__E__Running &&
                    w->desired != PB__DESIRED_STATE__E__Running && check_start_in_place(c, ix) < 0)
                        return -1;
        }
        return check_tenant(c, asked->tenant, &more);
}

int quota_allows_run(struct core *c, struct unit_ix ix)
{
        const struct unit *w = unit_at(c, ix);
        if (w->counted_runs)
                return 0;
        struct usage more = usage_of_definition(c, w);
        return check_start_in_place(c, ix) < 0 ? -1 : check_tenant(c, tenant_of(c, w)->name, &more);
}

/* ---- the rate of writes ---- */

/* One of the places that its name gives it; the one that was used longest ago makes way, which was
 * full again long before unless a thousand tenants write at once. */
static struct write_bucket *bucket_of(struct core *c, const char *name)
{
        struct write_bucket *way = &c->write_buckets[hash64(name, strlen(name)) %
                                                     (WRITE_BUCKETS / BUCKET_WAYS) * BUCKET_WAYS],
                            *oldest = way;
        for (size_t i = 0; i < BUCKET_WAYS; i++) {
                if (way[i].name && str_eq(way[i].name, name))
                        return &way[i];
                if (way[i].at < oldest->at)
                        oldest = &way[i];
        }
        mem_free(oldest->name);
        *oldest = (struct write_bucket){ .name = mem_strdup(name) };
        return oldest;
}

/* A bucket that holds one minute's writes: a burst of that many passes, then they pass at the rate.
 * Live: a restart fills it. */
static int64_t bucket_take(struct core *c, struct write_bucket *b, int64_t per_minute)
{
        int64_t full = per_minute * WRITE_COST, elapsed = c->steady_ms - b->at;
        if (!b->at || elapsed >= WRITE_COST || b->left > full)
                b->left = full;
        else {
                b->left += elapsed * per_minute;
                b->left = b->left > full ? full : b->left;
        }
        b->at = c->steady_ms;
        if (b->left >= WRITE_COST) {
                b->left -= WRITE_COST;
                return 0;
        }
        return (WRITE_COST - b->left + per_minute - 1) / per_minute;
}

static const char *tenant_that_writes(const struct core *c, const struct input *in)
{
        const char *id = NULL;
        if (in->kind == INPUT_APPLY) {
                const Pb__Workload *w = ((const Pb__ApplyWorkloadRequest *)in->msg)->workload;
                return tenant_name(w->tenant);
        }
        if (in->kind == INPUT_DELETE || in->kind == INPUT_RETRY)
                id = ((const Pb__WorkloadRef *)in->msg)->id;
        else if (in->kind == INPUT_DESIRED)
                id = ((const Pb__SetDesiredRequest *)in->msg)->id;
        struct unit_ix ix = workload_find(c, id);
        return unit_ok(ix) ? tenant_of(c, unit_get(c, ix))->name : NULL;
}

bool rate_refuses(struct core *c, const struct input *in)
{
        bool writes = in->kind == INPUT_APPLY || in->kind == INPUT_DELETE ||
                      in->kind == INPUT_DESIRED || in->kind == INPUT_RETRY;
        return in->reply && writes && rate_refuses_tenant(c, tenant_that_writes(c, in));
}

bool rate_refuses_tenant(struct core *c, const char *name)
{
        if (!name)
                return false;
        uint32_t i = tenant_find(c, name);
        const struct quota *quota =
            i == MAP_NONE ? &c->default_quota : quota_of(c, &c->tenants.at[i]);
        int64_t per_minute = quota->writes_per_minute;
        name = tenant_name(name);
        int64_t wait = per_minute > 0 ? bucket_take(c, bucket_of(c, name), per_minute) : 0;
        if (wait == 0)
                return false;
        struct err err;
        err_set(&err, ERR_LIMIT, .msg = fmt("tenant %s writes more often than it may", name),
                .detail = fmt("%lld writes per minute", (long long)per_minute),
                .hint = "try again after the time in Retry-After; reads are not limited",
                .retry_after_ms = wait);
        c->stats.rate_limited++;
        reply_error(c, &err);
        return true;
}

/* ---- before an allocation ---- */

static int blocked_by(const struct core *c, const struct unit *w)
{
        if (w->counted_placed)
                return -1; /* a move */
        struct usage more = usage_of_definition(c, w);
        more.of[0] = 1;
        return exceeded(quota_of(c, tenant_of(c, w)), &tenant_of(c, w)->placed, &more);
}

bool quota_blocks(const struct core *c, struct unit_ix ix)
{
        return blocked_by(c, unit_get(c, ix)) >= 0;
}

char *quota_detail(struct core *c, const struct unit *w)
{
        const struct tenant *t = tenant_of(c, w);
        int d = blocked_by(c, w);
        if (d < 0)
                return "";
        struct usage more = usage_of_definition(c, w);
        more.of[0] = 1;
        return arena_printf(
            &c->step, "the quota of tenant %s: %s: limit %llu, placed %llu, needs %llu", t->name,
            dimension_names[d], (unsigned long long)quota_of(c, t)->limit.of[d],
            (unsigned long long)t->placed.of[d], (unsigned long long)more.of[d]);
}

const char *workload_tenant(const struct core *c, const struct unit *w)
{
        return tenant_of(c, w)->name;
}

void tenant_queue_add(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        struct tenant *t = tenant_of(c, w);
        w->waiting = w->over_quota = true;
        w->wait_next = UNIT_NONE;
        w->wait_prev = (struct unit_ix){ t->last };
        if (t->last != NONE)
                c->units.at[t->last].wait_next = ix;
        else
                t->first = ix.v;
        t->last = ix.v;
        t->n_waiting++;
        c->n_over_quota++;
}

void tenant_queue_remove(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        struct tenant *t = tenant_of(c, w);
        w->waiting = w->over_quota = false;
        if (unit_ok(w->wait_prev))
                unit_at(c, w->wait_prev)->wait_next = w->wait_next;
        else
                t->first = w->wait_next.v;
        if (unit_ok(w->wait_next))
                unit_at(c, w->wait_next)->wait_prev = w->wait_prev;
        else
                t->last = w->wait_prev.v;
        w->wait_next = w->wait_prev = UNIT_NONE;
        t->n_waiting--;
        c->n_over_quota--;
}

void wait_for_quota(struct core *c, struct unit_ix ix)
{
        struct unit *w = unit_at(c, ix);
        waiting_remove(c, ix);
        tenant_queue_add(c, ix);
        if (w->reason == PB__REASON__E__quota_exceeded)
                return;
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__WorkloadPending;
        e.workload_id = w->id;
        e.reason = PB__REASON__E__quota_exceeded;
        e.message = quota_detail(c, w);
        emit(c, &e);
}

bool place_within_quotas(struct core *c)
{
        while (c->tenants_with_room.len && !step_is_full(c)) {
                uint32_t i = c->tenants_with_room.at[c->tenants_with_room.len - 1];
                struct unit_ix ix = { c->tenants.at[i].first };
                while (unit_ok(ix) && !step_is_full(c)) {
                        struct unit_ix after = unit_at(c, ix)->wait_next;
                        if (!quota_blocks(c, ix)) {
                                waiting_remove(c, ix);
                                unit_look(c, ix);
                                decision_done(c);
                        }
                        ix = after;
                }
                if (unit_ok(ix))
                        break; /* the rest with the next step */
                c->tenants.at[i].has_room = false;
                c->tenants_with_room.len--;
                tenant_drop_unused(c, i);
        }
        return c->tenants_with_room.len > 0;
}

/* ---- quotas themselves ---- */

static void quota_message(const struct tenant *t, const struct quota *q, bool live, Pb__Quota *m,
                          Pb__Resources *res, Pb__QuotaUsage *use, Pb__Resources *use_res)
{
        pb__quota__init(m);
        pb__resources__init(res);
        m->tenant = t->name;
        m->workloads = shown(q->limit.of[0]);
        res->cpu = shown(q->limit.of[1]);
        res->memory_mb = shown(q->limit.of[2]);
        res->disk_gb = shown(q->limit.of[3]);
        m->resources = res;
        m->writes_per_minute = q->writes_per_minute;
        m->resource_version = t->seq;
        if (!live)
                return;
        pb__quota_usage__init(use);
        pb__resources__init(use_res);
        use->workloads = shown(t->asked.of[0]);
        use_res->cpu = shown(t->asked.of[1]);
        use_res->memory_mb = shown(t->asked.of[2]);
        use_res->disk_gb = shown(t->asked.of[3]);
        use->resources = use_res;
        m->usage = use;
}

static void *quota_pack(const struct core *c, const struct tenant *t, bool live, struct arena *a,
                        size_t *ret_len)
{
        Pb__Quota m;
        Pb__Resources res, use_res;
        Pb__QuotaUsage use;
        quota_message(t, live ? quota_of(c, t) : &t->quota, live, &m, &res, &use, &use_res);
        *ret_len = pb__quota__get_packed_size(&m);
        void *data = arena_alloc(a, *ret_len + 1);
        pb__quota__pack(&m, data);
        return data;
}

static void *pack(struct core *c, uint32_t t, struct arena *a, size_t *ret_len)
{
        return quota_pack(c, &c->tenants.at[t], false, a, ret_len);
}

static void reply_quota(struct core *c, const struct tenant *t, bool created)
{
        size_t len;
        void *data = quota_pack(c, t, true, reply_memory(c), &len);
        reply_bytes(c, &pb__quota__descriptor, data, len, created);
}

static struct quota quota_of_message(const Pb__Quota *m)
{
        struct quota q = { .limit = usage_of_resources(m->resources),
                           .writes_per_minute = m->writes_per_minute };
        q.limit.of[0] = (uint64_t)m->workloads;
        return q;
}

struct quota quota_from(const Pb__Quota *m)
{
        return m ? quota_of_message(m) : (struct quota){ 0 };
}

bool quota_is_sane(const Pb__Quota *m)
{
        return m && !str_empty(m->tenant) && m->workloads >= 0 && m->writes_per_minute >= 0 &&
               resources_are_sane(m->resources);
}

static bool same_quota(const struct quota *a, const struct quota *b)
{
        return memcmp(&a->limit, &b->limit, sizeof(a->limit)) == 0 &&
               a->writes_per_minute == b->writes_per_minute;
}

static int check_quota_version(struct core *c, const struct tenant *t, const char *name,
                               uint64_t if_match)
{
        uint64_t at = t ? t->seq : 0;
        if (!if_match || if_match == at)
                return 0;
        struct err err;
        err_set(&err, ERR_CONFLICT, .msg = "it was changed by somebody else meanwhile",
                .detail = fmt("quota of %s: version %llu was asked for, it is at %llu", name,
                              (unsigned long long)if_match, (unsigned long long)at),
                .hint = "read it again and repeat the change");
        reply_error(c, &err);
        return -1;
}

void decide_quota_set(struct core *c, const Pb__SetQuotaRequest *req)
{
        uint32_t i = tenant_find(c, req->quota->tenant);
        const struct tenant *t = i == MAP_NONE ? NULL : &c->tenants.at[i];
        struct quota q = quota_of_message(req->quota);
        bool created = !t || !t->has_quota;
        uint64_t if_match = req->if_match ? req->if_match : req->quota->resource_version;
        if (check_quota_version(c, t, req->quota->tenant, if_match) < 0)
                return;
        if (created || !same_quota(&t->quota, &q)) {
                Pb__Quota m = PB__QUOTA__INIT;
                m.tenant = req->quota->tenant;
                m.workloads = req->quota->workloads;
                m.resources = req->quota->resources;
                m.writes_per_minute = req->quota->writes_per_minute;
                Pb__Event e = PB__EVENT__INIT;
                e.type = PB__EVENT_TYPE__E__QuotaSet;
                e.quota = &m;
                emit(c, &e);
                i = tenant_find(c, req->quota->tenant);
        }
        reply_quota(c, &c->tenants.at[i], created);
}

static int quota_lookup(struct core *c, const char *name, bool set, uint32_t *ret)
{
        uint32_t i = tenant_find(c, name);
        if (i != MAP_NONE && (c->tenants.at[i].has_quota || !set)) {
                *ret = i;
                return 0;
        }
        struct err err;
        err_set(&err, ERR_NOT_FOUND, .msg = fmt("tenant %s has no quota", tenant_name(name)),
                .hint = "berth quota ls lists them");
        reply_error(c, &err);
        return -1;
}

void decide_quota_remove(struct core *c, const Pb__TenantRef *req)
{
        uint32_t i = 0;
        if (quota_lookup(c, req->tenant, true, &i) < 0 ||
            check_quota_version(c, &c->tenants.at[i], req->tenant, req->if_match) < 0)
                return;
        reply_quota(c, &c->tenants.at[i], false);
        Pb__Quota m = PB__QUOTA__INIT;
        m.tenant = c->tenants.at[i].name;
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__QuotaRemoved;
        e.quota = &m;
        emit(c, &e);
}

static void save(struct core *c, uint32_t i)
{
        record_changed(c, RECORD_QUOTA, i, 1, 0);
}

void apply_quota_event(struct core *c, const Pb__Event *e)
{
        uint32_t i = tenant_add(c, e->quota->tenant);
        struct tenant *t = &c->tenants.at[i];
        t->has_quota = e->type == PB__EVENT_TYPE__E__QuotaSet;
        t->quota = t->has_quota ? quota_of_message(e->quota) : (struct quota){ 0 };
        t->seq = t->has_quota ? e->seq : 0;
        if (t->has_quota)
                save(c, i);
        else
                record_removed(c, RECORD_QUOTA, t->name);
        room_came(c, i);
        tenant_drop_unused(c, i);
}

const char *wrong_quota(struct core *c, const Pb__Event *e)
{
        if (e->type == PB__EVENT_TYPE__E__QuotaSet)
                return quota_is_sane(e->quota) ? NULL : "the quota is missing or out of range";
        uint32_t t =
            e->quota && !str_empty(e->quota->tenant) ? tenant_find(c, e->quota->tenant) : MAP_NONE;
        return t != MAP_NONE && c->tenants.at[t].has_quota ? NULL : "the tenant has no quota";
}

static const char *load(struct core *c, const char *tenant, const ProtobufCMessage *m)
{
        const Pb__Quota *r = (const Pb__Quota *)m;
        if (!quota_is_sane(r) || str_empty(r->tenant) || !str_eq(r->tenant, tenant))
                return "it is no quota of its key's tenant";
        uint32_t i = tenant_add(c, r->tenant);
        c->tenants.at[i].has_quota = true;
        c->tenants.at[i].quota = quota_of_message(r);
        c->tenants.at[i].seq = r->resource_version;
        return NULL;
}

static const char *name(const struct core *c, uint32_t slot, struct arena *a)
{
        (void)a;
        return c->tenants.at[slot].has_quota ? c->tenants.at[slot].name : NULL;
}

static uint32_t find(const struct core *c, const char *tenant)
{
        uint32_t i = tenant_find(c, tenant);
        return i != MAP_NONE && c->tenants.at[i].has_quota ? i : NONE;
}

const struct record_kind quota_records = {
        RECORD_TABLE(tenants, struct tenant),
        .name = name,
        .find = find,
        .pack = pack,
        .load = load,
        .saved = tenant_drop_unused,
        .put_back = save,
};

void quotas_reconsider(struct core *c)
{
        for (uint32_t i = 0; i < c->tenants.len; i++)
                if (c->tenants.at[i].name)
                        room_came(c, i);
}

void read_quota(struct core *c, const Pb__TenantRef *req)
{
        uint32_t i = 0;
        if (quota_lookup(c, req->tenant, false, &i) == 0)
                reply_quota(c, &c->tenants.at[i], false);
}

void read_list_quotas(struct core *c, const Pb__ListQuotasRequest *req)
{
        size_t limit = req->limit > 0 ? (size_t)req->limit : QUOTAS_PER_PAGE;
        struct order_place at;
        if (list_begin(c, &c->tenants_in_order, req->cursor, &at) < 0)
                return;
        Pb__ListQuotasResponse r = PB__LIST_QUOTAS_RESPONSE__INIT;
        r.items = arena_new_n(&c->step, Pb__Quota *, limit + 1);
        uint32_t i = NONE, last = NONE;
        while (r.n_items < limit && (i = order_next(&c->tenants_in_order, &at)) != MAP_NONE) {
                const struct tenant *t = &c->tenants.at[last = i];
                if (!t->has_quota)
                        continue;
                Pb__Quota *m = arena_new(&c->step, Pb__Quota);
                quota_message(t, &t->quota, true, m, arena_new(&c->step, Pb__Resources),
                              arena_new(&c->step, Pb__QuotaUsage),
                              arena_new(&c->step, Pb__Resources));
                r.items[r.n_items++] = m;
        }
        r.next_cursor = list_cursor(c, &c->tenants_in_order, at, last);
        r.resource_version = c->head;
        reply_message(c, &r.base);
}

/* ---- looking inside ---- */

static _Thread_local const struct core *sorting;

static int by_name(const void *a, const void *b)
{
        return strcmp(sorting->tenants.at[*(const uint32_t *)a].name,
                      sorting->tenants.at[*(const uint32_t *)b].name);
}

static void dump_usage(struct str *out, const char *name, const struct usage *u)
{
        str_addf(out, " %s=%llu/%llu/%llu/%llu", name, (unsigned long long)u->of[0],
                 (unsigned long long)u->of[1], (unsigned long long)u->of[2],
                 (unsigned long long)u->of[3]);
}

void quotas_dump(const struct core *c, struct str *out)
{
        ARRAY(uint32_t) list = { 0 };
        for (uint32_t i = 0; i < c->tenants.len; i++)
                if (c->tenants.at[i].name && (c->tenants.at[i].refs || c->tenants.at[i].has_quota))
                        *array_push(&list) = i;
        sorting = c;
        if (list.len)
                qsort(list.at, list.len, sizeof(uint32_t), by_name);
        for (size_t i = 0; i < list.len; i++) {
                const struct tenant *t = &c->tenants.at[list.at[i]];
                str_addf(out, "tenant %s quota=%d seq=%llu writes=%d", t->name, t->has_quota,
                         (unsigned long long)t->seq, t->quota.writes_per_minute);
                dump_usage(out, "limit", &t->quota.limit);
                dump_usage(out, "asked", &t->asked);
                dump_usage(out, "placed", &t->placed);
                str_addc(out, '\n');
        }
        array_fini(&list);
}

#define BROKEN(err, which, what, who)                                                              \
        err_set(err, ERR_INTERNAL, .msg = "invariant " which " is broken: " what, .detail = (who))

/* Counted anew from the workloads themselves. */
static void recount(const struct core *c, struct usage *asked, struct usage *placed)
{
        for (uint32_t i = 0; i < c->units.len; i++) {
                const struct unit *w = &c->units.at[i];
                if (!w->id || w->desired == PB__DESIRED_STATE__E__Deleted)
                        continue;
                uint32_t t = definition_of(c, w)->tenant;
                struct usage u = usage_of_definition(c, w);
                bool runs = w->desired == PB__DESIRED_STATE__E__Running && !unit_is_finished(w);
                add(&asked[t], &u, 1, runs);
                if (runs && w->holds)
                        add(&placed[t], &u, 1, true);
        }
}

static int check_queue(const struct core *c, uint32_t i, uint32_t *listed, struct err *err)
{
        const struct tenant *t = &c->tenants.at[i];
        uint32_t before = NONE, n = 0;
        for (uint32_t x = t->first; x != NONE && n <= t->n_waiting;
             before = x, x = c->units.at[x].wait_next.v, n++) {
                const struct unit *w = &c->units.at[x];
                if (!w->id || !w->waiting || !w->over_quota || w->wait_prev.v != before ||
                    definition_of(c, w)->tenant != i)
                        return BROKEN(err, "Q3", "what waits for a quota is in its tenant's queue",
                                      t->name);
                if (c->started && !t->has_room && blocked_by(c, w) < 0)
                        return BROKEN(err, "Q3", "nobody waits for a quota that has room", w->id);
        }
        if (n != t->n_waiting || t->last != before)
                return BROKEN(err, "Q3", "what waits for a quota is counted", t->name);
        *listed += n;
        return 0;
}

int quotas_check(const struct core *c, struct err *err)
{
        size_t n = c->tenants.len + 1;
        struct usage *asked = mem_must(n * sizeof(*asked)), *placed = mem_must(n * sizeof(*placed));
        uint32_t refs = 0, used = 0, listed = 0, desired[ARRAY_LEN(c->by_desired)] = { 0 };
        int r = 0;
        recount(c, asked, placed);
        for (uint32_t i = 0; i < c->tenants.len && r >= 0; i++) {
                const struct tenant *t = &c->tenants.at[i];
                if (!t->name)
                        continue;
                refs += t->refs;
                if (memcmp(&asked[i], &t->asked, sizeof(t->asked)) != 0 ||
                    memcmp(&placed[i], &t->placed, sizeof(t->placed)) != 0)
                        r = BROKEN(err, "Q1", "usage is the sum over the tenant's workloads",
                                   t->name);
                for (int d = 0; d < DIMENSIONS && r >= 0; d++)
                        if (t->placed.of[d] > t->asked.of[d])
                                r = BROKEN(err, "Q2", "no more is placed than was asked for",
                                           t->name);
                if (r >= 0)
                        r = check_queue(c, i, &listed, err);
        }
        for (uint32_t i = 0; i < c->definitions.len; i++)
                used += c->definitions.at[i].data != NULL;
        if (r >= 0 && refs != used)
                r = BROKEN(err, "Q1", "tenants are counted by those who use them", "");
        if (r >= 0 && listed != c->n_over_quota)
                r = BROKEN(err, "Q3", "what waits for quotas is counted", "");
        for (uint32_t i = 0; i < c->units.len; i++)
                if (c->units.at[i].id)
                        desired[c->units.at[i].desired]++;
        if (r >= 0 && memcmp(desired, c->by_desired, sizeof(desired)) != 0)
                r = BROKEN(err, "X2", "what is wanted is counted", "");
        mem_free(asked);
        mem_free(placed);
        return r;
}
