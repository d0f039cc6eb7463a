/* core/apply_many.c: many workloads in one input.
 *
 * Each workload is a decision of its own: batches are cut between them as between any two
 * decisions, and one that is refused says nothing about the others. While the input is being
 * decided, c->many collects what would have been said to a caller who had sent them one by one; all
 * of it is one reply, which is given last and so leaves with the last of their commits or after it.
 */
#include "core/policy.h"
#include "core/read.h"
#include "core/state.h"
#include "core/step.h"
#include "core/workload.h"

struct many {
        Pb__ApplyResult **results; /* in c->step */
        size_t n;
        int32_t failed;
        uint64_t seq_before; /* of the workload that is being decided; 0: there was none */
        const char *id;
};

size_t input_items(const struct input *in)
{
        return in->kind == INPUT_APPLY_MANY ? ((const Pb__ApplyWorkloadsRequest *)in->msg)->n_items
                                            : 1;
}

static Pb__ApplyResult *add_result(struct core *c)
{
        Pb__ApplyResult *r = arena_new_n(&c->step, Pb__ApplyResult, 1);
        pb__apply_result__init(r);
        r->id = (char *)c->many->id;
        c->many->results[c->many->n++] = r;
        return r;
}

void many_failed(struct core *c, const struct err *err)
{
        const struct err *kept = arena_dup(&c->step, err, sizeof(*err));
        Pb__ApplyResult *r = add_result(c);
        Pb__Error *e = arena_new_n(&c->step, Pb__Error, 1);
        pb__error__init(e);
        e->code = (char *)err_code_name(kept->code);
        e->message = (char *)kept->msg;
        e->detail = (char *)kept->detail;
        e->hint = (char *)kept->hint;
        e->path = arena_printf(&c->step, "items[%zu]", c->many->n - 1);
        e->request_id = (char *)c->in->request_id;
        e->retry_after_ms = kept->retry_after_ms;
        e->dimension = (char *)kept->excess.dimension;
        e->limit = kept->excess.limit;
        e->current_usage = kept->excess.current_usage;
        e->requested_delta = kept->excess.requested_delta;
        r->outcome = "failed";
        r->error = e;
        c->many->failed++;
}

void many_applied(struct core *c, const struct unit *w, bool created)
{
        Pb__ApplyResult *r = add_result(c);
        r->outcome = created ? "created" : w->seq == c->many->seq_before ? "unchanged" : "updated";
        r->resource_version = w->seq;
        r->phase = phase_shown(c, w);
        r->reason = w->over_quota                          ? PB__REASON__E__quota_exceeded
                    : w->waiting && class_of(c, w)->reason ? class_of(c, w)->reason
                                                           : w->reason;
        r->assigned_node = node_ok(w->node) ? node_at(c, w->node)->id : NULL;
}

void decide_apply_many(struct core *c, const Pb__ApplyWorkloadsRequest *req)
{
        struct many many = { .results =
                                 arena_new_n(&c->step, Pb__ApplyResult *, req->n_items + 1) };
        if (check_index(c, req->check_index) < 0)
                return;
        c->many = &many;
        for (size_t i = 0; i < req->n_items; i++) {
                Pb__ApplyWorkloadRequest one = PB__APPLY_WORKLOAD_REQUEST__INIT;
                struct unit_ix w = workload_find(c, req->items[i]->id);
                one.workload = req->items[i];
                one.create_only = req->create_only;
                one.update_only = req->update_only;
                many.id = req->items[i]->id;
                many.seq_before = unit_ok(w) ? unit_at(c, w)->seq : 0;
                if (!rate_refuses_tenant(c, req->items[i]->tenant))
                        decide_apply(c, &one);
                must(many.n == i + 1, "each item has one result");
                decision_done(c);
        }
        c->many = NULL;
        Pb__ApplyWorkloadsResponse answer = PB__APPLY_WORKLOADS_RESPONSE__INIT;
        answer.results = many.results;
        answer.n_results = many.n;
        answer.failed = many.failed;
        if (c->in->reply)
                reply_message(c, &answer.base);
}
