/* core/webhook.c: the outbox: webhooks that are not yet delivered (C30).
 *
 * A webhook is queued in the same commit as the alert that it tells of, so it is sent at least once
 * whatever happens afterwards: after that commit as EFFECT_WEBHOOK, and again after a restart or a
 * failure, always with the same id, by which the receiver recognises what it already has. The
 * server posts it and says how that went (INPUT_WEBHOOK_DONE). Failures are tried again with
 * backoff; when the attempts are used up it is given up, with an event that says so.
 *
 * Invariants:
 *   (H1) An entry leaves the outbox only with WebhookDelivered, or with a WebhookFailed that has no
 *   next time. (H2) At most WEBHOOKS_IN_FLIGHT are with the server at once; each of the others has
 *   a deadline.
 */
#include "core/webhook.h"
#include "base/clock.h"
#include "base/mem.h"
#include "core/retry.h"
#include "core/state.h"
#include "core/step.h"
#include "model/json.h"
#include <stdlib.h>
#include <string.h>

#define WEBHOOKS_IN_FLIGHT 64
/* the server always says how it went; if not, it counts as failed after this long */
#define WEBHOOK_ANSWER_MS (10 * 60 * 1000)
#define WEBHOOK_ATTEMPTS 10
#define WEBHOOK_BASE_SECONDS 5
#define WEBHOOK_CAP_SECONDS 300
#define OUTBOX_MAX 10000

static struct map_key outgoing_key(const void *ctx, uint32_t i)
{
        const struct core *c = ctx;
        return (struct map_key){ c->outbox.at[i].id, strlen(c->outbox.at[i].id) };
}

void outbox_init(struct core *c)
{
        map_init(&c->outgoing_by_id, outgoing_key, c);
}

static void outgoing_fini(struct outgoing *o)
{
        mem_free(o->id);
        mem_free(o->rule);
        mem_free(o->webhook);
        mem_free(o->url);
        mem_free(o->body);
        mem_free(o->event);
        *o = (struct outgoing){ 0 };
}

void outbox_fini(struct core *c)
{
        for (size_t i = 0; i < c->outbox.len; i++)
                outgoing_fini(&c->outbox.at[i]);
        array_fini(&c->outbox);
        array_fini(&c->free_outgoing);
        map_fini(&c->outgoing_by_id);
        heap_fini(&c->outbox_deadlines);
}

uint32_t outgoing_find(const struct core *c, const char *id)
{
        return str_empty(id) ? MAP_NONE : map_get(&c->outgoing_by_id, id, strlen(id));
}

static void save(struct core *c, uint32_t i)
{
        const struct outgoing *o = &c->outbox.at[i];
        record_changed(c, RECORD_OUTGOING, i, 1, text_bytes(o->body) + text_bytes(o->url));
}

static void outgoing_add(struct core *c, const Pb__Outgoing *m)
{
        uint32_t i;
        if (c->free_outgoing.len)
                i = array_pop(&c->free_outgoing);
        else {
                array_push(&c->outbox);
                i = (uint32_t)c->outbox.len - 1;
        }
        c->outbox.at[i] = (struct outgoing){ .id = mem_strdup(m->id),
                                             .rule = mem_strdup(m->rule),
                                             .webhook = mem_strdup(m->webhook),
                                             .url = mem_strdup(m->url),
                                             .body = mem_strdup(m->body),
                                             .event = mem_strdup(m->event),
                                             .created_at = m->created_at,
                                             .next_at = m->next_at,
                                             .attempts = m->attempts };
        map_put(&c->outgoing_by_id, i);
        heap_set(&c->outbox_deadlines, i, m->next_at);
        save(c, i);
}

static void outgoing_remove(struct core *c, uint32_t i)
{
        struct outgoing *o = &c->outbox.at[i];
        record_removed(c, RECORD_OUTGOING, o->id);
        heap_unset(&c->outbox_deadlines, i);
        map_remove(&c->outgoing_by_id, i);
        c->webhooks_in_flight -= o->in_flight;
        outgoing_fini(o); /* what was to be saved has no id any more */
        *array_push(&c->free_outgoing) = i;
}

static void *pack(struct core *c, uint32_t i, struct arena *a, size_t *ret_len);

/* ---- deciding ---- */

static const Pb__Webhook *webhook_named(const struct core *c, const char *name)
{
        for (size_t i = 0; c->config && i < c->config->n_webhooks; i++)
                if (str_eq(c->config->webhooks[i]->name, name))
                        return c->config->webhooks[i];
        return NULL;
}

static void add_member(struct str *out, const char *name, const char *text)
{
        if (str_empty(text))
                return;
        str_addf(out, "%s\"%s\":", out->len > 1 ? "," : "", name);
        json_write_string(out, text, strlen(text));
}

static char *body_of(struct core *c, const struct rule *r, const Pb__Event *e, const char *id,
                     const char *type)
{
        struct str body = STR_INIT;
        char at[TIME_TEXT_LEN];
        str_addc(&body, '{');
        add_member(&body, "id", id);
        add_member(&body, "event", type);
        add_member(&body, "rule", r->name);
        add_member(&body, "condition", r->when);
        add_member(&body, "node", e->node_id);
        add_member(&body, "workload", e->workload_id);
        add_member(&body, "message", e->message);
        add_member(&body, "at", time_format(at, e->timestamp));
        add_member(&body, "cluster_id", c->cluster_id);
        str_addf(&body, ",\"sequence\":%llu}", (unsigned long long)e->seq);
        char *text = arena_strdup(&c->step, str_c(&body));
        str_fini(&body);
        return text;
}

void queue_webhook(struct core *c, const struct rule *r, const Pb__Event *e)
{
        const Pb__Webhook *w = webhook_named(c, r->webhook);
        if (!w)
                return;
        Pb__Outgoing o = PB__OUTGOING__INIT;
        Pb__Event q = PB__EVENT__INIT;
        const ProtobufCEnumValue *type =
            protobuf_c_enum_descriptor_get_value(&pb__event_type__e__descriptor, (int)e->type);
        o.id = arena_printf(&c->step, "%s-%llu", c->cluster_id, (unsigned long long)c->head + 1);
        o.rule = r->name;
        o.webhook = w->name;
        q.rule = r->name;
        q.outgoing = &o;
        if (c->outbox.len - c->free_outgoing.len >= OUTBOX_MAX) {
                q.type = PB__EVENT_TYPE__E__WebhookFailed;
                q.message =
                    arena_printf(&c->step, "not queued: %d are waiting already", OUTBOX_MAX);
                o.id = "";
                emit(c, &q);
                return;
        }
        o.url = w->url;
        o.event = (char *)type->name;
        o.body = body_of(c, r, e, o.id, o.event);
        o.created_at = o.next_at = c->now_ms;
        q.type = PB__EVENT_TYPE__E__WebhookQueued;
        emit(c, &q);
}

static void send(struct core *c, uint32_t i)
{
        struct outgoing *o = &c->outbox.at[i];
        size_t len;
        void *data = pack(c, i, reply_memory(c), &len);
        o->in_flight = true;
        c->webhooks_in_flight++;
        heap_set(&c->outbox_deadlines, i, c->now_ms + WEBHOOK_ANSWER_MS);
        effect_add(c, EFFECT_WEBHOOK, 0, 0, data, len);
}

static void emit_result(struct core *c, uint32_t i, bool delivered, const char *detail)
{
        const struct outgoing *o = &c->outbox.at[i];
        const Pb__Webhook *w = webhook_named(c, o->webhook);
        const Pb__Retry *policy = w ? w->retry : NULL;
        int32_t max = policy && policy->max_attempts > 0 ? policy->max_attempts : WEBHOOK_ATTEMPTS;
        int32_t base =
            policy && policy->base_seconds > 0 ? policy->base_seconds : WEBHOOK_BASE_SECONDS;
        int32_t cap = policy && policy->cap_seconds > 0 ? policy->cap_seconds : WEBHOOK_CAP_SECONDS;
        Pb__Outgoing m = PB__OUTGOING__INIT;
        m.id = arena_strdup(&c->step, o->id);
        m.rule = arena_strdup(&c->step, o->rule);
        m.attempts = o->attempts + 1;
        Pb__Event e = PB__EVENT__INIT;
        e.type = delivered ? PB__EVENT_TYPE__E__WebhookDelivered : PB__EVENT_TYPE__E__WebhookFailed;
        e.rule = m.rule;
        e.outgoing = &m;
        if (delivered)
                e.message = arena_printf(&c->step, "attempt %d: %s", m.attempts, detail);
        else if (m.attempts >= max)
                e.message =
                    arena_printf(&c->step, "given up after %d attempts: %s", m.attempts, detail);
        else {
                m.next_at = c->now_ms + retry_backoff_ms(base, cap, m.attempts);
                e.message = arena_printf(&c->step, "attempt %d of %d: %s", m.attempts, max, detail);
        }
        c->stats.webhooks_delivered += delivered;
        c->stats.webhooks_failed += !delivered;
        emit(c, &e);
}

void decide_webhook_done(struct core *c, const Pb__WebhookResult *m)
{
        uint32_t i = outgoing_find(c, m->id);
        if (i == MAP_NONE || !c->outbox.at[i].in_flight)
                return; /* of a life before this one, or too late */
        emit_result(c, i, m->delivered, m->detail);
}

int64_t outbox_next_ms(const struct core *c)
{
        return c->webhooks_in_flight < WEBHOOKS_IN_FLIGHT && c->configured
                   ? heap_next_ms(&c->outbox_deadlines)
                   : HEAP_NEVER;
}

void run_outbox(struct core *c)
{
        while (outbox_next_ms(c) <= c->now_ms && !step_is_full(c)) {
                uint32_t i = heap_pop(&c->outbox_deadlines);
                if (c->outbox.at[i].in_flight)
                        emit_result(c, i, false, "the server did not say how it went");
                else
                        send(c, i);
                decision_done(c);
        }
}

/* ---- state ---- */

static bool outgoing_is_sane(const Pb__Outgoing *m)
{
        return m && !str_empty(m->id) && !strchr(m->id, '/') && m->attempts >= 0 &&
               m->attempts < INT32_MAX / 2 && time_is_sane(m->created_at) &&
               time_is_sane(m->next_at);
}

const char *wrong_webhook(struct core *c, const Pb__Event *e)
{
        if (e->type == PB__EVENT_TYPE__E__WebhookFailed && e->outgoing &&
            str_empty(e->outgoing->id))
                return NULL; /* it was never queued */
        if (!outgoing_is_sane(e->outgoing))
                return "the webhook is missing or out of range";
        bool known = outgoing_find(c, e->outgoing->id) != MAP_NONE;
        return known == (e->type == PB__EVENT_TYPE__E__WebhookQueued)
                   ? "the webhook is queued already, or was never queued"
                   : NULL;
}

void apply_webhook_event(struct core *c, const Pb__Event *e)
{
        uint32_t i = outgoing_find(c, e->outgoing->id);
        if (e->type == PB__EVENT_TYPE__E__WebhookQueued)
                outgoing_add(c, e->outgoing);
        else if (i != MAP_NONE && e->type == PB__EVENT_TYPE__E__WebhookFailed &&
                 e->outgoing->next_at) {
                struct outgoing *o = &c->outbox.at[i];
                o->attempts = e->outgoing->attempts;
                o->next_at = e->outgoing->next_at;
                c->webhooks_in_flight -= o->in_flight;
                o->in_flight = false;
                heap_set(&c->outbox_deadlines, i, o->next_at);
                save(c, i);
        } else if (i != MAP_NONE)
                outgoing_remove(c, i);
}

static void *pack(struct core *c, uint32_t i, struct arena *a, size_t *ret_len)
{
        const struct outgoing *o = &c->outbox.at[i];
        Pb__Outgoing m = PB__OUTGOING__INIT;
        m.id = o->id;
        m.rule = o->rule;
        m.webhook = o->webhook;
        m.url = o->url;
        m.body = o->body;
        m.event = o->event;
        m.created_at = o->created_at;
        m.next_at = o->next_at;
        m.attempts = o->attempts;
        *ret_len = pb__outgoing__get_packed_size(&m);
        void *data = arena_alloc(a, *ret_len + 1);
        pb__outgoing__pack(&m, data);
        return data;
}

static const char *load(struct core *c, const char *key, const ProtobufCMessage *msg)
{
        const Pb__Outgoing *m = (const Pb__Outgoing *)msg;
        if (!outgoing_is_sane(m) || !str_eq(key, m->id) || outgoing_find(c, m->id) != MAP_NONE)
                return "it is no webhook of its key";
        outgoing_add(c, m);
        return NULL;
}

static const char *name(const struct core *c, uint32_t slot, struct arena *a)
{
        (void)a;
        return c->outbox.at[slot].id;
}

const struct record_kind outgoing_records = {
        RECORD_TABLE(outbox, struct outgoing),
        .name = name,
        .find = outgoing_find,
        .pack = pack,
        .load = load,
};

static _Thread_local const struct core *sorting;

static int by_id(const void *a, const void *b)
{
        return strcmp(sorting->outbox.at[*(const uint32_t *)a].id,
                      sorting->outbox.at[*(const uint32_t *)b].id);
}

void outbox_dump(const struct core *c, struct str *out)
{
        ARRAY(uint32_t) list = { 0 };
        for (uint32_t i = 0; i < c->outbox.len; i++)
                if (c->outbox.at[i].id)
                        *array_push(&list) = i;
        sorting = c;
        if (list.len)
                qsort(list.at, list.len, sizeof(uint32_t), by_id);
        for (size_t i = 0; i < list.len; i++) {
                const struct outgoing *o = &c->outbox.at[list.at[i]];
                str_addf(out,
                         "outgoing %s rule=%s webhook=%s url=%s event=%s created=%lld next=%lld "
                         "attempts=%d body=%s\n",
                         o->id, o->rule, o->webhook, o->url, o->event, (long long)o->created_at,
                         (long long)o->next_at, o->attempts, o->body);
        }
        array_fini(&list);
}

#define BROKEN(err, which, what, who)                                                              \
        err_set(err, ERR_INTERNAL, .msg = "invariant " which " is broken: " what, .detail = (who))

int outbox_check(const struct core *c, struct err *err)
{
        uint32_t n = 0, in_flight = 0;
        for (uint32_t i = 0; i < c->outbox.len; i++) {
                const struct outgoing *o = &c->outbox.at[i];
                if (!o->id)
                        continue;
                n++;
                in_flight += o->in_flight;
                if (heap_get(&c->outbox_deadlines, i) == HEAP_NEVER)
                        return BROKEN(err, "H2", "what waits to be sent has a deadline", o->id);
        }
        if (n != map_len(&c->outgoing_by_id) || in_flight != c->webhooks_in_flight ||
            in_flight > WEBHOOKS_IN_FLIGHT)
                return BROKEN(err, "H2", "webhooks are counted, and few are under way at once", "");
        return 0;
}
