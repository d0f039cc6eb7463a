/* cli/kinds_test.c: small words about workloads and nodes. */
#include "cli/kinds.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void cores_and_sizes_are_short(void **state)
{
        char b[32];
        (void)state;
        assert_string_equal(cores_words(b, sizeof(b), 250), "0.25");
        assert_string_equal(cores_words(b, sizeof(b), 2000), "2");
        assert_string_equal(cores_words(b, sizeof(b), 0), "0");
        assert_string_equal(cores_words(b, sizeof(b), 10500), "10.5");
        assert_string_equal(mib_words(b, sizeof(b), 64), "64Mi");
        assert_string_equal(mib_words(b, sizeof(b), 1024), "1Gi");
        assert_string_equal(mib_words(b, sizeof(b), 1536), "1.5Gi");
        assert_string_equal(age_words(b, sizeof(b), 5000, 0), "-");
        assert_string_equal(age_words(b, sizeof(b), 5000, 2000), "3s");
        assert_string_equal(age_words(b, sizeof(b), 5000, 6000), "0s"); /* clocks differ */
}

static void commands_can_be_pasted_into_a_shell(void **state)
{
        struct str out = STR_INIT;
        char *command[] = { (char *)"sh", (char *)"-c", (char *)"echo 'a b'; exit", (char *)"" };
        (void)state;
        command_words(&out, command, 4);
        assert_string_equal(str_c(&out), "sh -c 'echo '\\''a b'\\''; exit' ''");
        str_fini(&out);
}

/* R: C28 */
static void a_retry_says_when(void **state)
{
        char b[WORDS_LEN];
        Pb__Workload w = PB__WORKLOAD__INIT;
        Pb__WorkloadStatus s = PB__WORKLOAD_STATUS__INIT;
        Pb__Retry r = PB__RETRY__INIT;
        Pb__IntValue code = PB__INT_VALUE__INIT;
        (void)state;
        assert_string_equal(workload_info(&w, 0, b), "");
        w.status = &s;
        w.retry = &r;
        s.phase = PB__PHASE__E__RetryPending;
        s.failure_reason = (char *)"exited with code 1";
        r.attempts = 2;
        r.max_attempts = 5;
        r.next_retry_at = 13000;
        assert_string_equal(workload_info(&w, 1000, b), "exited with code 1; retry 2 of 5 in 12s");
        assert_string_equal(workload_info(&w, 0, b), "exited with code 1; retry 2 of 5");
        s.phase = PB__PHASE__E__Completed;
        s.exit_code = &code;
        assert_string_equal(workload_info(&w, 1000, b), "exit code 0");
        s.phase = PB__PHASE__E__Running;
        assert_string_equal(workload_info(&w, 1000, b), "");
        s.phase = PB__PHASE__E__Scheduled;
        assert_string_equal(workload_info(&w, 1000, b), "exited with code 1");
        r.attempts = 0;
        s.failure_reason = (char *)"";
        s.reason = PB__REASON__E__placed;
        assert_string_equal(workload_info(&w, 1000, b), "");
        /* it waited, and that is over */
        s.failure_reason = (char *)"no suitable node available (no nodes)";
        assert_string_equal(workload_info(&w, 1000, b), "");
        s.phase = PB__PHASE__E__Pending;
        assert_string_equal(workload_info(&w, 1000, b), s.failure_reason);
        s.failure_reason = (char *)"";
        s.reason = PB__REASON__E__cpu_insufficient;
        assert_string_equal(workload_info(&w, 1000, b), "cpu-insufficient");
}

static void a_node_shows_what_the_operator_wants(void **state)
{
        Pb__Node n = PB__NODE__INIT;
        (void)state;
        n.status = PB__NODE_STATUS__E__Ready;
        n.wish = PB__NODE_WISH__E__schedulable;
        assert_string_equal(node_status_name(&n), "Ready");
        n.wish = PB__NODE_WISH__E__cordoned;
        assert_string_equal(node_status_name(&n), "Ready,cordoned");
        n.status = PB__NODE_STATUS__E__Draining;
        n.wish = PB__NODE_WISH__E__draining;
        assert_string_equal(node_status_name(&n), "Draining");
}

static void every_row_has_as_many_cells_as_columns(void **state)
{
        Pb__Workload w = PB__WORKLOAD__INIT;
        Pb__Node n = PB__NODE__INIT;
        Pb__Event e = PB__EVENT__INIT;
        const struct {
                const struct kind *kind;
                const ProtobufCMessage *m;
        } all[] = { { &kind_workload, &w.base },
                    { &kind_node, &n.base },
                    { &kind_event, &e.base } };
        (void)state;
        w.id = n.id = (char *)"x";
        for (size_t i = 0; i < ARRAY_LEN(all); i++) {
                struct table *t = table_create(all[i].kind->columns, all[i].kind->n_columns);
                struct str out = STR_INIT;
                all[i].kind->row(t, all[i].m, 1000);
                assert_int_equal(table_rows(t), 1);
                /* asserts that rows are whole */
                table_print(t, &(struct table_style){ .wide = true }, &out);
                assert_int_equal(strchr(str_c(&out), '\n') - str_c(&out) > 10, 1);
                str_fini(&out);
                table_destroy(t);
        }
}

static void a_changed_wish_says_to_what(void **state)
{
        Pb__Event e = PB__EVENT__INIT;
        struct table *t = table_create(kind_event.columns, kind_event.n_columns);
        struct str out = STR_INIT;
        (void)state;
        e.type = PB__EVENT_TYPE__E__NodeWishChanged;
        e.wish = PB__NODE_WISH__E__draining;
        e.message = (char *)"wish changed";
        kind_event.row(t, &e.base, 1000);
        table_print(t, &(struct table_style){ .wide = true }, &out);
        assert_non_null(strstr(str_c(&out), "wish changed to draining"));
        str_fini(&out);
        table_destroy(t);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(cores_and_sizes_are_short),
                cmocka_unit_test(commands_can_be_pasted_into_a_shell),
                cmocka_unit_test(a_retry_says_when),
                cmocka_unit_test(a_node_shows_what_the_operator_wants),
                cmocka_unit_test(every_row_has_as_many_cells_as_columns),
                cmocka_unit_test(a_changed_wish_says_to_what),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
