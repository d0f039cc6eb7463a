/* model/event_test.c */
#include "base/file.h"
#include "base/str.h"
#include "events.pb-c.h"
#include "model/event.h"
#include "model/pb.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void make(struct str *out, uint64_t seq, Pb__EventType__E type, const char *workload,
                 const char *node, uint64_t prev)
{
        Pb__Event e = PB__EVENT__INIT;
        Pb__Workload w = PB__WORKLOAD__INIT;
        w.id = (char *)"inner"; /* field 1 of a nested message must not be taken for the event's */
        w.assigned_node = (char *)"inner-node";
        e.seq = seq;
        e.type = type;
        e.timestamp = 1771286400000;
        e.workload_id = (char *)workload;
        e.node_id = (char *)node;
        e.prev = prev;
        e.workload = &w;
        e.message = (char *)"text";
        str_clear(out);
        pb_pack(out, &e.base);
}

/* R: C29 */
static void peek_sees_what_unpacking_sees(void **state)
{
        struct str s = STR_INIT;
        struct event_peek p;
        (void)state;
        make(&s, 70000000000, PB__EVENT_TYPE__E__WorkloadScheduled, "web", "n1", 300);
        assert_true(event_peek(s.buf, s.len, &p));
        assert_int_equal(p.seq, 70000000000);
        assert_int_equal(p.type, PB__EVENT_TYPE__E__WorkloadScheduled);
        assert_int_equal(p.prev, 300);
        assert_int_equal(p.workload_len, 3);
        assert_memory_equal(p.workload, "web", 3);
        assert_int_equal(p.node_len, 2);
        assert_memory_equal(p.node, "n1", 2);
        assert_int_equal(p.at_ms, 1771286400000);
        assert_int_equal(event_type(s.buf, s.len), p.type);
        uint32_t type = 0;
        int64_t at_ms = 0;
        assert_true(event_front(s.buf, s.len, &type, &at_ms));
        assert_int_equal(type, p.type);
        assert_int_equal(at_ms, p.at_ms);
        assert_int_equal(event_type(s.buf, 7), 0);               /* ends within it */
        assert_int_equal(event_type("\x22\x01w\x10\x05", 5), 5); /* not in our order */
        assert_int_equal(event_type("", 0), 0);
        str_fini(&s);
}

/* R: A9 */
static void peek_refuses_what_is_cut_short(void **state)
{
        struct str s = STR_INIT;
        struct event_peek p;
        size_t refused = 0;
        (void)state;
        make(&s, 5, PB__EVENT_TYPE__E__NodeLost, "", "n1", 1);
        for (size_t n = 0; n < s.len; n++)
                refused += !event_peek(s.buf, n, &p);
        assert_true(refused > s.len / 2);
        const unsigned char junk[] = { 0x0f, 0xff, 0xff };
        assert_false(event_peek(junk, sizeof(junk), &p));
        str_fini(&s);
}

/* R: C29 A14 */
static void every_type_has_a_class_and_deeds_are_audited(void **state)
{
        const ProtobufCEnumDescriptor *d = &pb__event_type__e__descriptor;
        (void)state;
        for (unsigned i = 0; i < d->n_values; i++) {
                assert_in_range(d->values[i].value, 0, EVENT_TYPES_MAX - 1);
                assert_in_range(event_class_of((uint32_t)d->values[i].value), 0, EVENT_CLASSES - 1);
        }
        for (int i = 0; i < EVENT_CLASSES; i++)
                assert_true(event_class_name((enum event_class)i)[0]);
        assert_int_equal(event_class_of(PB__EVENT_TYPE__E__WorkloadExec), EVENT_AUDIT);
        assert_int_equal(event_class_of(PB__EVENT_TYPE__E__WorkloadLogsRead), EVENT_AUDIT);
        assert_int_equal(event_class_of(PB__EVENT_TYPE__E__TokenCreated), EVENT_AUDIT);
        assert_int_equal(event_class_of(PB__EVENT_TYPE__E__WorkloadScheduled), EVENT_LIFECYCLE);
        /* strangers and nodes cause these as often as they like */
        assert_int_equal(event_class_of(PB__EVENT_TYPE__E__AccessRefused), EVENT_LIFECYCLE);
        assert_int_equal(event_class_of(PB__EVENT_TYPE__E__CertificateIssued), EVENT_LIFECYCLE);
        assert_int_equal(event_class_of(PB__EVENT_TYPE__E__NoticesSummed), EVENT_LIFECYCLE);
        assert_int_equal(event_class_of(UINT32_MAX), EVENT_LIFECYCLE); /* of a newer berth */
}

/* R: A14 */
static void the_documents_name_what_is_audited(void **state)
{
        const ProtobufCEnumDescriptor *d = &pb__event_type__e__descriptor;
        _cleanup_(str_finip) struct str page = STR_INIT;
        (void)state;
        assert_true(file_read(CONFIGURATION_PAGE, 1 << 20, &page, NULL) >= 0);
        const char *row = strstr(str_c(&page), "| `audit` | 100000 |"),
                   *end = row ? strchr(row, '\n') : NULL;
        assert_non_null(end);
        for (unsigned i = 0; i < d->n_values; i++) {
                const char *name = strstr(row, fmt("`%s`", d->values[i].name));
                bool named = name && name < end;
                if (named != (event_class_of((uint32_t)d->values[i].value) == EVENT_AUDIT))
                        fail_msg("docs/configuration.md, row of the class audit: %s",
                                 d->values[i].name);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(peek_sees_what_unpacking_sees),
                cmocka_unit_test(peek_refuses_what_is_cut_short),
                cmocka_unit_test(every_type_has_a_class_and_deeds_are_audited),
                cmocka_unit_test(the_documents_name_what_is_audited),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
