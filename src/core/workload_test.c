/* core/workload_test.c: what users ask, in every phase, and what becomes of it. */
#include "core/core_testlib.h"
#include "model/validate.h"

static void one_node(struct rig *r)
{
        rig_init(r, NULL);
        rig_hello(r, "n1", 4000, 4096, 100, NULL);
        rig_mark(r);
}

static void running(struct rig *r, const char *id)
{
        rig_apply(r, rig_workload(r, id, 1000, 1024));
        rig_runs(r, id);
        rig_mark(r);
}

/* R: C5 C6 C18 C19 C29 A3 */
static void an_apply_is_placed_sent_and_started(void **state)
{
        (void)state;
        struct rig r;
        one_node(&r);
        const struct rig_reply *reply = rig_apply(&r, rig_workload(&r, "a", 1000, 1024));
        assert_told(&r, "WorkloadApplied WorkloadScheduled");
        assert_true(reply->created);
        Pb__Event *e = rig_last(&r, PB__EVENT_TYPE__E__WorkloadScheduled);
        assert_string_equal(e->node_id, "n1");
        assert_string_equal(e->request_id, "req-1");
        assert_string_equal(e->actor, "tester");
        assert_int_equal(e->token->seq, e->seq);
        struct rig_effect *order = rig_sent(&r, "n1", "a");
        assert_int_equal(order->unit->token->seq, e->seq);
        assert_int_equal(order->unit->desired_state, PB__DESIRED_STATE__E__Running);
        assert_string_equal(order->unit->workload->spec->command[0], "sleep");
        assert_string_equal(order->unit->workload->id, "a");
        assert_true(order->seq >= e->seq);
        assert_int_equal(order->events, r.events.len); /* it left after the commit */
        assert_phase(&r, "a", Scheduled);
        assert_int_equal(rig_node(&r, "n1")->resources->cpu_allocated, 1000);
        rig_mark(&r);
        rig_runs(&r, "a");
        assert_told(&r, "WorkloadStarted");
        /* nobody asked for it */
        assert_string_equal(rig_last(&r, PB__EVENT_TYPE__E__WorkloadStarted)->request_id, "");
        assert_phase(&r, "a", Running);
        rig_runs(&r, "a");
        assert_told(&r, "WorkloadStarted"); /* the same again says nothing new */
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C7 A6 */
static void the_same_apply_twice_changes_nothing(void **state)
{
        (void)state;
        struct rig r;
        one_node(&r);
        running(&r, "a");
        uint64_t version = rig_get(&r, "a")->resource_version;
        for (int i = 0; i < 3; i++) {
                const struct rig_reply *reply = rig_apply(&r, rig_workload(&r, "a", 1000, 1024));
                assert_refused(reply, ERR_OK);
                assert_false(reply->created);
                assert_int_equal(((Pb__Workload *)reply->msg)->resource_version, version);
        }
        assert_told(&r, "");
        assert_int_equal(rig_sent_count(&r, EFFECT_PLAN_UNIT), 0);
        rig_fini(&r);
}

/* As a store from before there were default resources has it: none. */
static Pb__Workload *without_resources(struct rig *r, const char *id, bool stored_then)
{
        Pb__Workload *w = rig_workload(r, id, 0, 0);
        if (!stored_then)
                w->resources = NULL;
        return w;
}

/* R: A10 C7. A manifest that says nothing of resources, applied again after an upgrade: the default
 * is not the user's change. */
static void what_a_default_has_since_filled_in_is_no_change(void **state)
{
        (void)state;
        struct rig r;
        one_node(&r);
        rig_apply(&r, without_resources(&r, "service", true));
        rig_runs(&r, "service");
        Pb__Workload *job = without_resources(&r, "job", true);
        job->restart = PB__RESTART__E__never;
        rig_apply(&r, job);
        rig_runs(&r, "job");
        rig_exits(&r, "job", 0);
        assert_phase(&r, "job", Completed);
        /* from before there was a policy, too */
        Pb__Workload *root = without_resources(&r, "root", true);
        root->spec->user = "root";
        rig_apply(&r, root);
        rig_runs(&r, "root");
        rig_config(&r, "heartbeat: 10s\n");
        const char *revision = rig_get(&r, "service")->revision_id;
        rig_mark(&r);
        assert_refused(rig_apply(&r, without_resources(&r, "service", false)), ERR_OK);
        job = without_resources(&r, "job", false);
        job->restart = PB__RESTART__E__never;
        assert_refused(rig_apply(&r, job), ERR_OK);
        root = without_resources(&r, "root", false);
        root->spec->user = "root";
        assert_refused(rig_apply(&r, root), ERR_OK);
        assert_told(&r, "");
        assert_phase(&r, "job", Completed);
        assert_string_equal(rig_get(&r, "service")->revision_id, revision);
        assert_int_equal(rig_get(&r, "service")->resources->cpu, 0);
        /* Labels restart nothing either. */
        Pb__Workload *w = without_resources(&r, "service", false);
        rig_label(&r, w, "app", "web");
        rig_apply(&r, w);
        assert_told(&r, "WorkloadRelabelled");
        assert_int_equal(rig_get(&r, "service")->resources->cpu, 0);
        rig_mark(&r);
        rig_apply(&r, w);
        assert_told(&r, "");
        /* A change that starts it anew brings the default; then it is as it was asked for. */
        w->spec->max_open_files = 10;
        rig_apply(&r, w);
        assert_told(&r, "WorkloadApplied WorkloadLaunched");
        assert_int_equal(rig_get(&r, "service")->resources->cpu, WORKLOAD_DEFAULT_CPU_MILLI);
        assert_int_equal(rig_get(&r, "service")->resources->memory_mb, WORKLOAD_DEFAULT_MEMORY_MB);
        rig_mark(&r);
        rig_apply(&r, w);
        assert_told(&r, "");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C7. The same amounts, but the user's own words. */
static void resources_that_were_asked_for_are_a_change(void **state)
{
        (void)state;
        struct rig r;
        one_node(&r);
        rig_apply(&r, without_resources(&r, "a", true));
        rig_runs(&r, "a");
        rig_mark(&r);
        rig_apply(&r,
                  rig_workload(&r, "a", WORKLOAD_DEFAULT_CPU_MILLI, WORKLOAD_DEFAULT_MEMORY_MB));
        assert_told(&r, "WorkloadApplied WorkloadLaunched");
        assert_int_equal(rig_get(&r, "a")->resources->cpu, WORKLOAD_DEFAULT_CPU_MILLI);
        rig_apply(&r, without_resources(&r, "a", false)); /* what is there is the default already */
        assert_told(&r, "WorkloadApplied WorkloadLaunched");
        rig_fini(&r);
}

/* R: C7 A10. A caller who names revisions, or who only creates, sends the same once more. */
static void a_default_is_no_conflict(void **state)
{
        (void)state;
        struct rig r;
        struct err err;
        one_node(&r);
        Pb__ApplyWorkloadRequest req = PB__APPLY_WORKLOAD_REQUEST__INIT;
        req.revision_fixes = true;
        for (int i = 0; i < 2; i++) {
                req.workload = without_resources(&r, "named", i == 0);
                req.workload->revision_id = "v1";
                assert_int_equal(workload_normalise(&r.memory, req.workload, &err), 0);
                assert_refused(rig_ask(&r, INPUT_APPLY, &req), ERR_OK);
        }
        req.revision_fixes = false;
        req.create_only = true;
        for (int i = 0; i < 2; i++) {
                req.workload = without_resources(&r, "created", i == 0);
                assert_int_equal(workload_normalise(&r.memory, req.workload, &err), 0);
                assert_refused(rig_ask(&r, INPUT_APPLY, &req), ERR_OK);
        }
        rig_fini(&r);
}

/* R: A10 */
static void the_loser_of_two_writers_is_told(void **state)
{
        (void)state;
        struct rig r;
        struct err err;
        one_node(&r);
        running(&r, "a");
        Pb__ApplyWorkloadRequest req = PB__APPLY_WORKLOAD_REQUEST__INIT;
        req.workload = rig_workload(&r, "a", 2000, 1024);
        assert_int_equal(workload_normalise(&r.memory, req.workload, &err), 0);
        req.if_match = rig_get(&r, "a")->resource_version;
        assert_refused(rig_ask(&r, INPUT_APPLY, &req), ERR_OK);
        rig_mark(&r);
        req.workload = rig_workload(&r, "a", 3000, 1024);
        assert_int_equal(workload_normalise(&r.memory, req.workload, &err), 0);
        const struct rig_reply *lost = rig_ask(&r, INPUT_APPLY, &req);
        assert_refused(lost, ERR_CONFLICT);
        assert_true(lost->err.detail[0] && lost->err.hint[0]);
        req.if_match = 0;
        req.workload->resource_version = 1; /* what an edited copy carries counts as well */
        assert_refused(rig_ask(&r, INPUT_APPLY, &req), ERR_CONFLICT);
        Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
        ref.id = "a";
        ref.if_match = 1;
        assert_refused(rig_ask(&r, INPUT_DELETE, &ref), ERR_CONFLICT);
        assert_refused(rig_ask(&r, INPUT_RETRY, &ref), ERR_CONFLICT);
        Pb__SetDesiredRequest stop = PB__SET_DESIRED_REQUEST__INIT;
        stop.id = "a";
        stop.desired_state = PB__DESIRED_STATE__E__Stopped;
        stop.if_match = 1;
        assert_refused(rig_ask(&r, INPUT_DESIRED, &stop), ERR_CONFLICT);
        assert_told(&r, "");
        assert_int_equal(rig_get(&r, "a")->resources->cpu, 2000);
        rig_fini(&r);
}

/* R: C7 */
static void a_revision_that_the_caller_names_is_one_definition(void **state)
{
        (void)state;
        struct rig r;
        struct err err;
        one_node(&r);
        Pb__ApplyWorkloadRequest req = PB__APPLY_WORKLOAD_REQUEST__INIT;
        req.revision_fixes = true;
        req.workload = rig_workload(&r, "a", 1000, 1024);
        req.workload->revision_id = "v1";
        assert_int_equal(workload_normalise(&r.memory, req.workload, &err), 0);
        assert_true(rig_ask(&r, INPUT_APPLY, &req)->created);
        rig_mark(&r);
        assert_refused(rig_ask(&r, INPUT_APPLY, &req), ERR_OK);
        assert_told(&r, ""); /* sent again: nothing happens */
        req.workload = rig_workload(&r, "a", 1500, 1024);
        req.workload->revision_id = "v1";
        assert_int_equal(workload_normalise(&r.memory, req.workload, &err), 0);
        /* an agent that has v1 would not look at it */
        assert_refused(rig_ask(&r, INPUT_APPLY, &req), ERR_CONFLICT);
        assert_told(&r, "");
        req.workload->revision_id = "v2";
        assert_refused(rig_ask(&r, INPUT_APPLY, &req), ERR_OK);
        assert_string_equal(rig_get(&r, "a")->revision_id, "v2");
        assert_int_equal(rig_get(&r, "a")->resources->cpu, 1500);
        rig_fini(&r);
}

/* R: C2 A9 */
static void create_only_and_update_only_are_kept_apart(void **state)
{
        (void)state;
        struct rig r;
        struct err err;
        one_node(&r);
        Pb__ApplyWorkloadRequest req = PB__APPLY_WORKLOAD_REQUEST__INIT;
        req.workload = rig_workload(&r, "a", 1000, 1024);
        assert_int_equal(workload_normalise(&r.memory, req.workload, &err), 0);
        req.update_only = true;
        assert_refused(rig_ask(&r, INPUT_APPLY, &req), ERR_NOT_FOUND);
        req.update_only = false;
        req.if_match = 7;
        assert_refused(rig_ask(&r, INPUT_APPLY, &req), ERR_NOT_FOUND);
        req.if_match = 0;
        req.create_only = true;
        assert_told(&r, "");
        assert_true(rig_ask(&r, INPUT_APPLY, &req)->created);
        rig_mark(&r);
        const struct rig_reply *again = rig_ask(&r, INPUT_APPLY, &req);
        assert_refused(again, ERR_OK); /* a caller that tried again */
        assert_false(again->created);
        req.workload = rig_workload(&r, "a", 1500, 1024);
        assert_int_equal(workload_normalise(&r.memory, req.workload, &err), 0);
        assert_refused(rig_ask(&r, INPUT_APPLY, &req), ERR_CONFLICT);
        assert_told(&r, "");
        req.create_only = false;
        req.update_only = true;
        assert_refused(rig_ask(&r, INPUT_APPLY, &req), ERR_OK);
        assert_told(&r, "WorkloadApplied WorkloadLaunched");
        rig_fini(&r);
}

/* R: C7 C6 */
static void a_new_revision_updates_in_place_where_it_fits(void **state)
{
        (void)state;
        struct rig r;
        one_node(&r);
        rig_hello(&r, "n2", 4000, 4096, 100, NULL);
        running(&r, "a");
        uint64_t token = rig_get(&r, "a")->token->seq;
        /* all of the node, its own part included */
        rig_apply(&r, rig_workload(&r, "a", 4000, 4096));
        assert_told(&r, "WorkloadApplied WorkloadLaunched");
        Pb__Workload *w = rig_get(&r, "a");
        assert_int_equal(w->status->phase, PB__PHASE__E__Updating);
        assert_string_equal(w->assigned_node, "n1");
        assert_true(w->token->seq > token);
        assert_int_equal(rig_node(&r, "n1")->resources->cpu_allocated, 4000);
        assert_int_equal(rig_sent(&r, "n1", "a")->unit->workload->resources->cpu, 4000);
        rig_mark(&r);
        /* of the copy before */
        rig_report(&r, "n1", rig_unit(&r, "a", 1, token, PB__ACTUAL_STATE__E__Running));
        assert_told(&r, "");
        rig_runs(&r, "a");
        assert_told(&r, "WorkloadStarted");
        assert_phase(&r, "a", Running);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C24 C27 C7 */
static void a_new_revision_that_does_not_fit_moves(void **state)
{
        (void)state;
        struct rig r;
        one_node(&r);
        rig_hello(&r, "n2", 8000, 8192, 100, NULL);
        running(&r, "a");
        assert_string_equal(rig_get(&r, "a")->assigned_node, "n1");
        rig_apply(&r, rig_workload(&r, "a", 6000, 1024));
        assert_told(&r, "Rescheduled WorkloadApplied WorkloadScheduled");
        assert_int_equal(rig_last(&r, PB__EVENT_TYPE__E__Rescheduled)->reason,
                         PB__REASON__E__spec_changed);
        assert_string_equal(rig_get(&r, "a")->assigned_node, "n2");
        assert_int_equal(rig_sent(&r, "n1", "a")->unit->desired_state,
                         PB__DESIRED_STATE__E__Deleted);
        Pb__Node *n1 = rig_node(&r, "n1");
        assert_int_equal(n1->tombstones, 1);
        assert_int_equal(n1->resources->cpu_allocated, 1000); /* as much as the old one had */
        assert_non_null(rig_record(&r, "/tombstones/n1/a"));
        rig_apply(&r, rig_workload(&r, "b", 3000, 1024)); /* others may use the node meanwhile */
        assert_string_equal(rig_get(&r, "b")->assigned_node, "n1");
        rig_mark(&r);
        rig_is_gone(&r, "a", "n1");
        assert_told(&r, "UnitRemoved");
        assert_int_equal(rig_node(&r, "n1")->resources->cpu_allocated, 3000);
        assert_null(rig_record(&r, "/tombstones/n1/a"));
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C24 C27 */
static void it_does_not_come_back_to_a_node_with_its_old_copy(void **state)
{
        (void)state;
        struct rig r;
        one_node(&r);
        running(&r, "a");
        rig_apply(&r, rig_workload(&r, "a", 6000, 1024)); /* fits nowhere */
        assert_told(&r, "Rescheduled WorkloadApplied WorkloadPending");
        rig_mark(&r);
        rig_apply(&r, rig_workload(&r, "a", 500, 512)); /* would fit, were it not for the old one */
        assert_told(&r, "WorkloadApplied WorkloadPending");
        assert_int_equal(rig_explain(&r, "a")->nearest_miss->reason,
                         PB__REASON__E__old_copy_present);
        rig_mark(&r);
        rig_is_gone(&r, "a", "n1");
        assert_told(&r, "UnitRemoved WorkloadScheduled");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C6 C21 */
static void stop_and_start(void **state)
{
        (void)state;
        struct rig r;
        one_node(&r);
        running(&r, "a");
        uint64_t token = rig_get(&r, "a")->token->seq;
        rig_stop(&r, "a");
        assert_told(&r, "WorkloadDesired");
        assert_int_equal(rig_sent(&r, "n1", "a")->unit->desired_state,
                         PB__DESIRED_STATE__E__Stopped);
        assert_int_equal(rig_sent(&r, "n1", "a")->unit->token->seq, token);
        rig_stop(&r, "a");
        assert_told(&r, "WorkloadDesired");
        rig_report(&r, "n1", rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Stopped));
        assert_told(&r, "WorkloadDesired WorkloadStopped");
        assert_phase(&r, "a", Stopped);
        /* its place is kept */
        assert_int_equal(rig_node(&r, "n1")->resources->cpu_allocated, 1000);
        rig_mark(&r);
        rig_advance_alive(&r, 600000);
        assert_told(&r, "");
        rig_start(&r, "a");
        assert_told(&r, "WorkloadDesired WorkloadLaunched");
        assert_true(rig_sent(&r, "n1", "a")->unit->token->seq > token);
        rig_runs(&r, "a");
        assert_phase(&r, "a", Running);
        rig_check_replay(&r);
        rig_fini(&r);
}

static struct rig *phase_pending(struct rig *r)
{
        rig_init(r, NULL);
        rig_apply(r, rig_workload(r, "a", 1000, 1024));
        return r;
}

static void phase_scheduled(struct rig *r)
{
        one_node(r);
        rig_apply(r, rig_workload(r, "a", 1000, 1024));
}

static void phase_updating(struct rig *r)
{
        one_node(r);
        running(r, "a");
        rig_apply(r, rig_workload(r, "a", 1500, 1024));
}

static void phase_retry(struct rig *r)
{
        one_node(r);
        running(r, "a");
        rig_exits(r, "a", 1);
}

static void phase_failed(struct rig *r)
{
        one_node(r);
        Pb__Workload *w = rig_workload(r, "a", 1000, 1024);
        w->restart = PB__RESTART__E__never;
        rig_apply(r, w);
        rig_runs(r, "a");
        rig_exits(r, "a", 1);
}

static void phase_completed(struct rig *r)
{
        one_node(r);
        Pb__Workload *w = rig_workload(r, "a", 1000, 1024);
        w->restart = PB__RESTART__E__on_failure;
        rig_apply(r, w);
        rig_runs(r, "a");
        rig_exits(r, "a", 0);
}

static void phase_stopping(struct rig *r)
{
        one_node(r);
        running(r, "a");
        rig_stop(r, "a");
}

static void phase_stopped(struct rig *r)
{
        phase_stopping(r);
        rig_report(r, "n1", rig_unit_now(r, "a", PB__ACTUAL_STATE__E__Stopped));
}

static void phase_running(struct rig *r)
{
        one_node(r);
        running(r, "a");
}

static void phase_waiting(struct rig *r)
{
        phase_pending(r);
}

static const struct {
        void (*make)(struct rig *r);
        const char *phase;
        bool placed;
} phases[] = {
        { phase_waiting, "Pending", false },  { phase_scheduled, "Scheduled", true },
        { phase_updating, "Updating", true }, { phase_retry, "RetryPending", true },
        { phase_failed, "Failed", true },     { phase_completed, "Completed", true },
        { phase_stopping, "Running", true },  { phase_stopped, "Stopped", true },
        { phase_running, "Running", true },
};

static const char *phase_of(struct rig *r, const char *id)
{
        return protobuf_c_enum_descriptor_get_value(&pb__phase__e__descriptor,
                                                    (int)rig_get(r, id)->status->phase)
            ->name;
}

/* R: C6 C20 C21 C27 */
static void delete_works_in_every_phase(void **state)
{
        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(phases); i++) {
                struct rig r;
                phases[i].make(&r);
                assert_string_equal(phase_of(&r, "a"), phases[i].phase);
                rig_mark(&r);
                assert_refused(rig_delete(&r, "a"), ERR_OK);
                if (phases[i].placed) {
                        assert_told(&r, "WorkloadDeleting");
                        assert_phase(&r, "a", Deleting);
                        assert_int_equal(rig_sent(&r, "n1", "a")->unit->desired_state,
                                         PB__DESIRED_STATE__E__Deleted);
                        assert_refused(rig_delete(&r, "a"), ERR_OK); /* again: nothing new */
                        assert_refused(rig_apply(&r, rig_workload(&r, "a", 1, 1)), ERR_CONFLICT);
                        assert_refused(rig_stop(&r, "a"), ERR_CONFLICT);
                        assert_refused(rig_retry(&r, "a"), ERR_CONFLICT);
                        /* stopped is not gone */
                        rig_report(&r, "n1", rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Stopped));
                        rig_advance_alive(&r, 200000);
                        assert_told(&r, "WorkloadDeleting");
                        rig_check_replay(&r);
                        rig_is_gone(&r, "a", "n1");
                }
                assert_told(&r, "WorkloadDeleting WorkloadDeleted");
                assert_null(rig_get(&r, "a"));
                assert_null(rig_record(&r, "/workloads/a"));
                assert_refused(rig_delete(&r, "a"), ERR_NOT_FOUND);
                if (phases[i].placed)
                        assert_int_equal(rig_node(&r, "n1")->resources->cpu_allocated, 0);
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

/* R: C6 C20 */
static void stop_works_in_every_phase(void **state)
{
        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(phases); i++) {
                struct rig r;
                phases[i].make(&r);
                const struct rig_reply *reply = rig_stop(&r, "a");
                if (strcmp(phases[i].phase, "Completed") == 0) {
                        assert_refused(reply, ERR_CONFLICT);
                        rig_fini(&r);
                        continue;
                }
                assert_refused(reply, ERR_OK);
                if (phases[i].placed)
                        rig_report(&r, "n1", rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Stopped));
                assert_phase(&r, "a", Stopped);
                rig_mark(&r);
                rig_advance_alive(&r, 600000); /* no retry, no launch, no nothing */
                assert_told(&r, "");
                rig_check_replay(&r);
                rig_restart(&r);
                rig_hello(&r, "n1", 4000, 4096, 100, NULL);
                assert_refused(rig_start(&r, "a"), ERR_OK);
                assert_phase(&r, "a", Scheduled);
                rig_runs(&r, "a");
                assert_phase(&r, "a", Running);
                assert_int_equal(rig_node(&r, "n1")->resources->cpu_allocated,
                                 rig_get(&r, "a")->resources->cpu);
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

/* R: C7 C20 */
static void a_new_spec_is_taken_in_every_phase(void **state)
{
        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(phases); i++) {
                struct rig r;
                phases[i].make(&r);
                Pb__Workload *w = rig_workload(&r, "a", 2000, 2048);
                bool stop = rig_get(&r, "a")->desired_state == PB__DESIRED_STATE__E__Stopped;
                w->desired_state =
                    stop ? PB__DESIRED_STATE__E__Stopped : PB__DESIRED_STATE__E__Running;
                rig_mark(&r);
                assert_refused(rig_apply(&r, w), ERR_OK);
                assert_true(rig_count(&r, PB__EVENT_TYPE__E__WorkloadApplied) == 1);
                Pb__Workload *now = rig_get(&r, "a");
                assert_int_equal(now->resources->cpu, 2000);
                assert_int_equal(now->retry->attempts, 0);
                if (phases[i].placed && !stop) {
                        assert_int_equal(rig_sent(&r, "n1", "a")->unit->workload->resources->cpu,
                                         2000);
                        assert_int_equal(rig_node(&r, "n1")->resources->cpu_allocated, 2000);
                        rig_runs(&r, "a");
                        assert_phase(&r, "a", Running);
                }
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

/* R: C6 C7 */
static void a_stopped_workload_whose_new_spec_does_not_fit_stays_stopped(void **state)
{
        (void)state;
        struct rig r;
        phase_stopped(&r);
        Pb__Workload *w = rig_workload(&r, "a", 6000, 2048);
        w->desired_state = PB__DESIRED_STATE__E__Stopped;
        rig_apply(&r, w);
        assert_phase(&r, "a", Stopped);
        assert_string_equal(rig_get(&r, "a")->assigned_node, "");
        rig_check_replay(&r);
        rig_hello(&r, "n2", 8000, 8192, 100, NULL);
        rig_advance_alive(&r, 60000);
        assert_phase(&r, "a", Stopped);
        rig_start(&r, "a");
        assert_string_equal(rig_get(&r, "a")->assigned_node, "n2");
        rig_fini(&r);
}

/* R: C6 */
static void a_stop_that_the_agent_does_not_answer_never_becomes_a_failure(void **state)
{
        (void)state;
        struct rig r;
        phase_scheduled(&r);
        rig_stop(&r, "a");
        rig_mark(&r);
        rig_advance_alive(&r, 300000);
        assert_told(&r, "");
        assert_true(rig_sent_count(&r, EFFECT_PLAN_UNIT) > 0); /* told again */
        assert_int_equal(rig_sent(&r, "n1", "a")->unit->desired_state,
                         PB__DESIRED_STATE__E__Stopped);
        rig_is_gone(&r, "a", "n1"); /* of another token: says nothing about this one */
        rig_report(&r, "n1", rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Missing));
        assert_phase(&r, "a", Stopped);
        rig_fini(&r);
}

/* R: C6 C27 C10 */
static void a_delete_on_a_dead_node_ends_after_the_grace(void **state)
{
        (void)state;
        struct rig r;
        one_node(&r);
        running(&r, "a");
        uint64_t token = rig_get(&r, "a")->token->seq;
        rig_gone(&r, "n1");
        rig_advance(&r, 31000);
        rig_delete(&r, "a");
        assert_phase(&r, "a", Deleting);
        rig_mark(&r);
        rig_advance(&r, 58000);
        assert_told(&r, "");
        rig_advance(&r, 2000);
        assert_told(&r, "WorkloadDeleted");
        assert_true(rig_last(&r, PB__EVENT_TYPE__E__WorkloadDeleted)->tombstone);
        assert_null(rig_get(&r, "a"));
        rig_check_replay(&r);
        /* a new one of that name does not run beside it */
        rig_hello(&r, "n2", 4000, 4096, 100, NULL);
        rig_apply(&r, rig_workload(&r, "a", 1000, 1024));
        assert_string_equal(rig_get(&r, "a")->assigned_node, "n2");
        rig_runs(&r, "a");
        rig_mark(&r);
        Pb__Hello *h = rig_hello_message(&r, "n1", 4000, 4096, 100, NULL);
        rig_hello_add(&r, h, rig_unit(&r, "a", 1, token, PB__ACTUAL_STATE__E__Running));
        rig_say_hello(&r, h);
        assert_told(&r, "NodeReady");
        assert_int_equal(rig_sent(&r, "n1", "a")->unit->desired_state,
                         PB__DESIRED_STATE__E__Deleted);
        rig_is_gone(&r, "a", "n1");
        assert_told(&r, "NodeReady UnitRemoved");
        assert_string_equal(rig_get(&r, "a")->assigned_node, "n2");
        assert_phase(&r, "a", Running);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C6 */
static void a_job_completes_and_stays_so(void **state)
{
        (void)state;
        struct rig r;
        one_node(&r);
        Pb__Workload *w = rig_workload(&r, "a", 1000, 1024);
        w->restart = PB__RESTART__E__on_failure;
        rig_apply(&r, w);
        rig_runs(&r, "a");
        rig_mark(&r);
        rig_exits(&r, "a", 0);
        assert_told(&r, "WorkloadCompleted");
        Pb__Workload *now = rig_get(&r, "a");
        assert_int_equal(now->status->phase, PB__PHASE__E__Completed);
        assert_int_equal(now->status->exit_code->value, 0);
        assert_int_equal(now->status->finished_at, r.now);
        assert_int_equal(rig_node(&r, "n1")->resources->cpu_allocated, 0);
        rig_mark(&r);
        rig_exits(&r, "a", 0);
        Pb__UnitStatus *all[] = { rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Stopped) };
        rig_report_all(&r, "n1", true, rig_agent(&r, "n1")->applied, 1, all);
        /* even if the agent has forgotten it */
        rig_report_all(&r, "n1", true, rig_agent(&r, "n1")->applied, 0, NULL);
        rig_advance_alive(&r, 3600000);
        rig_restart(&r);
        rig_hello(&r, "n1", 4000, 4096, 100, NULL);
        rig_advance_alive(&r, 600000);
        assert_told(&r, "");
        assert_null(rig_sent(&r, "n1", "a"));
        assert_phase(&r, "a", Completed);
        rig_apply(&r, w); /* the same apply is no new run */
        assert_told(&r, "");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C6 */
static void a_job_that_ends_so_fast_that_nobody_saw_it_run_has_completed(void **state)
{
        (void)state;
        struct rig r;
        one_node(&r);
        Pb__Workload *w = rig_workload(&r, "a", 1000, 1024);
        w->restart = PB__RESTART__E__never;
        rig_apply(&r, w);
        rig_mark(&r);
        rig_exits(&r, "a", 0);
        assert_told(&r, "WorkloadCompleted");
        rig_fini(&r);
}

/* R: C6 */
static void a_service_that_exits_with_0_is_started_again(void **state)
{
        (void)state;
        struct rig r;
        one_node(&r);
        running(&r, "a");
        rig_exits(&r, "a", 0);
        assert_told(&r, "RetryScheduled");
        rig_advance_alive(&r, 5000);
        assert_phase(&r, "a", Scheduled);
        assert_int_equal(rig_get(&r, "a")->status->restarts, 1);
        rig_fini(&r);
}

/* R: C6 */
static void a_finished_job_goes_after_its_ttl(void **state)
{
        (void)state;
        for (int skewed = 0; skewed < 2; skewed++) {
                struct rig r;
                one_node(&r);
                Pb__Workload *w = rig_workload(&r, "a", 1000, 1024);
                w->restart = PB__RESTART__E__on_failure;
                w->ttl_seconds = 60;
                rig_apply(&r, w);
                rig_runs(&r, "a");
                Pb__UnitStatus *u = rig_unit_now(&r, "a", PB__ACTUAL_STATE__E__Stopped);
                Pb__IntValue zero = PB__INT_VALUE__INIT;
                u->exit_code = &zero;
                /* by a clock that is a day ahead */
                u->finished_at = skewed ? r.now + INT64_C(86400000) : r.now;
                rig_report(&r, "n1", u);
                rig_mark(&r);
                rig_advance_alive(&r, 59000);
                assert_told(&r, "");
                rig_advance_alive(&r, 1000);
                assert_told(&r, "WorkloadDeleting");
                assert_int_equal(rig_sent(&r, "n1", "a")->unit->desired_state,
                                 PB__DESIRED_STATE__E__Deleted);
                rig_is_gone(&r, "a", "n1");
                assert_null(rig_get(&r, "a"));
                rig_check_replay(&r);
                rig_fini(&r);
        }
}

/* R: C6 */
static void a_failed_service_is_kept_whatever_its_ttl(void **state)
{
        (void)state;
        struct rig r;
        one_node(&r);
        Pb__Workload *w = rig_workload(&r, "a", 1000, 1024);
        w->ttl_seconds = 60;
        w->retry = arena_new(&r.memory, Pb__Retry);
        pb__retry__init(w->retry);
        w->retry->max_attempts = 1;
        rig_apply(&r, w);
        rig_exits(&r, "a", 1);
        assert_phase(&r, "a", Failed);
        rig_advance_alive(&r, 3600000);
        assert_phase(&r, "a", Failed);
        rig_fini(&r);
}

/* R: C14 C16 A8 */
static void each_rejection_names_its_reason(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_apply(&r, rig_workload(&r, "a", 1000, 1024));
        assert_int_equal(rig_get(&r, "a")->status->reason, PB__REASON__E__no_nodes);
        rig_delete(&r, "a");
        rig_hello(&r, "n1", 4000, 4096, 10, "zone=a");
        struct {
                int64_t cpu, mem, disk;
                const char *zone;
                Pb__WorkloadType__E type;
                Pb__Reason__E want;
        } cases[] = {
                { 5000, 1, 0, NULL, PB__WORKLOAD_TYPE__E__process,
                  PB__REASON__E__cpu_insufficient },
                { 1, 5000, 0, NULL, PB__WORKLOAD_TYPE__E__process,
                  PB__REASON__E__memory_insufficient },
                { 1, 1, 11, NULL, PB__WORKLOAD_TYPE__E__process, PB__REASON__E__disk_insufficient },
                { 1, 1, 0, "b", PB__WORKLOAD_TYPE__E__process, PB__REASON__E__label_mismatch },
                { 1, 1, 0, NULL, PB__WORKLOAD_TYPE__E__vm, PB__REASON__E__type_unsupported },
                /* the first in the order of C14 */
                { 5000, 5000, 11, "b", PB__WORKLOAD_TYPE__E__process,
                  PB__REASON__E__label_mismatch },
        };
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                char *id = arena_printf(&r.memory, "case-%zu", i);
                Pb__Workload *w = rig_workload(&r, id, cases[i].cpu, cases[i].mem);
                w->resources->disk_gb = cases[i].disk;
                w->type = cases[i].type;
                w->spec->image = w->type == PB__WORKLOAD_TYPE__E__vm ? "disk.img" : "";
                if (cases[i].zone)
                        rig_select(&r, w, "zone", cases[i].zone);
                rig_mark(&r);
                rig_apply(&r, w);
                assert_told(&r, "WorkloadApplied WorkloadPending");
                assert_int_equal(rig_get(&r, id)->status->reason, cases[i].want);
                assert_int_equal(rig_last(&r, PB__EVENT_TYPE__E__WorkloadPending)->reason,
                                 cases[i].want);
                assert_non_null(strstr(rig_last(&r, PB__EVENT_TYPE__E__WorkloadPending)->message,
                                       "no suitable node"));
        }
        rig_mark(&r);
        rig_advance_alive(&r, 600000); /* waiting costs nothing */
        assert_told(&r, "");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C19 C26 */
static void those_that_wait_are_placed_in_the_order_in_which_they_came(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        for (unsigned i = 0; i < 20; i++)
                rig_apply(&r, rig_workload(&r, arena_printf(&r.memory, "w%u", i), 1000, 100));
        rig_hello(&r, "n1", 5000, 4096, 10, NULL);
        for (unsigned i = 0; i < 20; i++)
                assert_int_equal(rig_get(&r, arena_printf(&r.memory, "w%u", i))->status->phase,
                                 i < 5 ? PB__PHASE__E__Scheduled : PB__PHASE__E__Pending);
        struct core_stats st;
        core_stats(r.core, &st);
        assert_int_equal(st.pending, 15);
        rig_mark(&r);
        rig_delete(&r, "w3");
        rig_is_gone(&r, "w3", "n1");
        assert_told(&r, "WorkloadDeleting WorkloadDeleted WorkloadScheduled");
        assert_phase(&r, "w5", Scheduled);
        assert_phase(&r, "w6", Pending);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A11 A9 */
static void there_is_a_limit_on_workloads(void **state)
{
        (void)state;
        struct rig r;
        struct core_options opt;
        core_options_default(&opt);
        opt.max_workloads = 2;
        rig_init(&r, &opt);
        rig_apply(&r, rig_workload(&r, "a", 1, 1));
        rig_apply(&r, rig_workload(&r, "b", 1, 1));
        rig_mark(&r);
        assert_refused(rig_apply(&r, rig_workload(&r, "c", 1, 1)), ERR_LIMIT);
        assert_told(&r, "");
        assert_refused(rig_apply(&r, rig_workload(&r, "b", 2, 1)), ERR_OK);
        rig_fini(&r);
}

/* R: C6 */
static void it_can_be_made_stopped_and_is_placed_when_started(void **state)
{
        (void)state;
        struct rig r;
        one_node(&r);
        Pb__Workload *w = rig_workload(&r, "a", 1000, 1024);
        w->desired_state = PB__DESIRED_STATE__E__Stopped;
        rig_apply(&r, w);
        assert_told(&r, "WorkloadApplied");
        assert_phase(&r, "a", Stopped);
        rig_mark(&r);
        rig_start(&r, "a");
        assert_told(&r, "WorkloadDesired WorkloadScheduled");
        rig_fini(&r);
}

/* R: C12 C24 */
static void a_stopped_workload_leaves_a_drained_node_and_takes_none(void **state)
{
        (void)state;
        struct rig r;
        phase_stopped(&r);
        rig_hello(&r, "n2", 4000, 4096, 100, NULL);
        rig_wish(&r, "n1", PB__NODE_WISH__E__draining);
        assert_phase(&r, "a", Stopped);
        assert_string_equal(rig_get(&r, "a")->assigned_node, "");
        assert_int_equal(rig_node(&r, "n1")->tombstones, 1);
        rig_is_gone(&r, "a", "n1");
        rig_start(&r, "a");
        assert_string_equal(rig_get(&r, "a")->assigned_node, "n2");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C2 A9 */
static void what_does_not_exist_is_not_found(void **state)
{
        (void)state;
        struct rig r;
        one_node(&r);
        assert_refused(rig_delete(&r, "nobody"), ERR_NOT_FOUND);
        assert_refused(rig_stop(&r, "nobody"), ERR_NOT_FOUND);
        assert_refused(rig_retry(&r, "nobody"), ERR_NOT_FOUND);
        assert_null(rig_get(&r, "nobody"));
        assert_null(rig_explain(&r, "nobody"));
        assert_told(&r, "");
        rig_fini(&r);
}

/* R: A2 */
static void time_that_goes_backwards_is_harmless(void **state)
{
        (void)state;
        struct rig r;
        one_node(&r);
        running(&r, "a");
        rig_advance_alive(&r, 100000);
        int64_t now = r.now;
        r.now -= 50000;
        rig_tick(&r);
        rig_beat(&r, "n1");
        rig_exits(&r, "a", 1);
        assert_told(&r, "RetryScheduled");
        assert_int_equal(rig_last(&r, PB__EVENT_TYPE__E__RetryScheduled)->timestamp, now);
        assert_int_equal(rig_get(&r, "a")->retry->next_retry_at, now + 5000);
        r.now = now + 4999;
        rig_tick(&r);
        assert_phase(&r, "a", RetryPending);
        r.now = now + 5000;
        rig_tick(&r);
        assert_phase(&r, "a", Scheduled);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A6 C9 C19 */
static void a_settled_cluster_writes_nothing(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        for (unsigned i = 0; i < 5; i++)
                rig_hello(&r, arena_printf(&r.memory, "n%u", i), 4000, 4096, 10, NULL);
        for (unsigned i = 0; i < 30; i++) {
                char *id = arena_printf(&r.memory, "w%u", i);
                /* some fit nowhere */
                rig_apply(&r, rig_workload(&r, id, i % 7 == 0 ? 9000 : 300, 100));
                if (i % 7)
                        rig_runs(&r, id);
        }
        rig_stop(&r, "w1");
        rig_report(&r, rig_get(&r, "w1")->assigned_node,
                   rig_unit_now(&r, "w1", PB__ACTUAL_STATE__E__Stopped));
        rig_mark(&r);
        struct core_stats before, after;
        core_stats(r.core, &before);
        uint64_t head = core_head(r.core);
        rig_advance_alive(&r, 3600000);
        core_stats(r.core, &after);
        assert_told(&r, "");
        assert_int_equal(core_head(r.core), head);
        assert_true(after.passes - before.passes >= 700);
        assert_true(after.heartbeats - before.heartbeats >= 5 * 359);
        assert_int_equal(rig_sent_count(&r, EFFECT_PLAN_UNIT), 0);
        rig_fini(&r);
}

/* R: C1 C29 */
static void a_read_changes_nothing(void **state)
{
        (void)state;
        struct rig r;
        one_node(&r);
        running(&r, "a");
        struct str before = STR_INIT, after = STR_INIT;
        core_dump(r.core, &before);
        rig_get(&r, "a");
        rig_node(&r, "n1");
        rig_explain(&r, "a");
        Pb__ClusterInfo *info = (Pb__ClusterInfo *)rig_ask(&r, INPUT_CLUSTER, NULL)->msg;
        assert_int_equal(info->workloads_running, 1);
        assert_int_equal(info->nodes_ready, 1);
        Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
        ref.id = "a";
        assert_int_equal(rig_ask(&r, INPUT_LOCATE, &ref)->session, rig_agent(&r, "n1")->session);
        rig_gone(&r, "n1");
        assert_refused(rig_ask(&r, INPUT_LOCATE, &ref), ERR_UNAVAILABLE);
        core_dump(r.core, &after);
        assert_string_equal(str_c(&before), str_c(&after));
        assert_told(&r, "");
        str_fini(&before);
        str_fini(&after);
        rig_fini(&r);
}

/* R: C15 A8 */
static void what_had_finished_on_its_node_is_not_said_to_leave_a_drained_one(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 1000, 4096, 10, NULL);
        Pb__Workload *job = rig_workload(&r, "job", 1000, 64);
        job->restart = PB__RESTART__E__on_failure;
        rig_apply(&r, job);
        rig_runs(&r, "job");
        rig_exits(&r, "job", 0);
        rig_apply(&r, rig_workload(&r, "other", 1000, 64));
        rig_retry(&r, "job");
        assert_phase(&r, "job", Pending);
        rig_mark(&r);
        rig_hello(&r, "n2", 1000, 4096, 10, NULL);
        assert_string_equal(rig_get(&r, "job")->assigned_node, "n2");
        assert_int_equal(rig_last(&r, PB__EVENT_TYPE__E__Rescheduled)->reason, PB__REASON__E__none);
        rig_check_replay(&r);
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(an_apply_is_placed_sent_and_started),
                cmocka_unit_test(the_same_apply_twice_changes_nothing),
                cmocka_unit_test(what_a_default_has_since_filled_in_is_no_change),
                cmocka_unit_test(resources_that_were_asked_for_are_a_change),
                cmocka_unit_test(a_default_is_no_conflict),
                cmocka_unit_test(the_loser_of_two_writers_is_told),
                cmocka_unit_test(a_revision_that_the_caller_names_is_one_definition),
                cmocka_unit_test(create_only_and_update_only_are_kept_apart),
                cmocka_unit_test(a_new_revision_updates_in_place_where_it_fits),
                cmocka_unit_test(a_new_revision_that_does_not_fit_moves),
                cmocka_unit_test(it_does_not_come_back_to_a_node_with_its_old_copy),
                cmocka_unit_test(stop_and_start),
                cmocka_unit_test(delete_works_in_every_phase),
                cmocka_unit_test(stop_works_in_every_phase),
                cmocka_unit_test(a_new_spec_is_taken_in_every_phase),
                cmocka_unit_test(a_stopped_workload_whose_new_spec_does_not_fit_stays_stopped),
                cmocka_unit_test(a_stop_that_the_agent_does_not_answer_never_becomes_a_failure),
                cmocka_unit_test(a_delete_on_a_dead_node_ends_after_the_grace),
                cmocka_unit_test(a_job_completes_and_stays_so),
                cmocka_unit_test(a_job_that_ends_so_fast_that_nobody_saw_it_run_has_completed),
                cmocka_unit_test(a_service_that_exits_with_0_is_started_again),
                cmocka_unit_test(a_finished_job_goes_after_its_ttl),
                cmocka_unit_test(a_failed_service_is_kept_whatever_its_ttl),
                cmocka_unit_test(each_rejection_names_its_reason),
                cmocka_unit_test(those_that_wait_are_placed_in_the_order_in_which_they_came),
                cmocka_unit_test(there_is_a_limit_on_workloads),
                cmocka_unit_test(it_can_be_made_stopped_and_is_placed_when_started),
                cmocka_unit_test(a_stopped_workload_leaves_a_drained_node_and_takes_none),
                cmocka_unit_test(what_does_not_exist_is_not_found),
                cmocka_unit_test(time_that_goes_backwards_is_harmless),
                cmocka_unit_test(a_settled_cluster_writes_nothing),
                cmocka_unit_test(a_read_changes_nothing),
                cmocka_unit_test(what_had_finished_on_its_node_is_not_said_to_leave_a_drained_one),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
