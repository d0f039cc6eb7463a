/* server/sessions_test.c: plans are put together by hand from packed units; what comes out must be
 * what protobuf would have written. */
#include "server/sessions.h"

#include "base/mem.h"
#include "base/str.h"
#include "model/pb.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* R: C40 G22 */
static void a_plan_is_what_protobuf_would_write(void **state)
{
        (void)state;
        for (size_t n = 0; n <= 300; n += 100) {
                struct arena arena = ARENA_INIT;
                struct str units = STR_INIT, ours = STR_INIT, theirs = STR_INIT;
                Pb__Plan plan = PB__PLAN__INIT;
                Pb__Cursor cursor = PB__CURSOR__INIT;
                Pb__ServerMessage m = PB__SERVER_MESSAGE__INIT;
                cursor.epoch = n;
                cursor.seq = n * 1000000007;
                plan.cursor = &cursor;
                plan.complete = n % 200 == 0;
                plan.last = n > 0;
                plan.units = arena_new_n(&arena, Pb__PlanEntry *, n + 1);
                plan.n_units = n;
                for (size_t i = 0; i < n; i++) {
                        Pb__PlanEntry *u =
                            (Pb__PlanEntry *)pb_new(&arena, &pb__plan_entry__descriptor);
                        u->unit_id = arena_printf(&arena, "w%zu", i);
                        u->desired_state =
                            i % 2 ? PB__DESIRED_STATE__E__Running : PB__DESIRED_STATE__E__Deleted;
                        plan.units[i] = u;
                        struct str packed = STR_INIT;
                        pb_pack(&packed, &u->base);
                        plan_add_unit(&units, packed.buf, packed.len);
                        str_fini(&packed);
                }
                m.plan = &plan;
                pb_pack(&theirs, &m.base);
                plan_message(&ours, cursor.epoch, cursor.seq, plan.complete, plan.last,
                             str_c(&units), units.len);
                assert_int_equal(ours.len, theirs.len);
                assert_memory_equal(ours.buf, theirs.buf, ours.len);
                str_fini(&units);
                str_fini(&ours);
                str_fini(&theirs);
                arena_fini(&arena);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(a_plan_is_what_protobuf_would_write) };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
