/* cli/table_test.c: the table printer and the text functions below it. */
#include "cli/table.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const struct table_column columns[] = {
        { .title = "NAME", .weight = 9 }, { .title = "STATUS" },
        { .title = "N", .right = true },  { .title = "TYPE", .wide_only = true },
        { .title = "INFO", .weight = 1 },
};

static struct table *fill(void)
{
        struct table *t = table_create(columns, ARRAY_LEN(columns));
        table_add(t, "hello", TINT_BOLD);
        table_add(t, "Running", TINT_GOOD);
        table_addf(t, TINT_NONE, "%d", 3);
        table_add(t, "process", TINT_NONE);
        table_add(t, "", TINT_NONE);
        table_add(t, "a-longer-name", TINT_BOLD);
        table_add(t, "Failed", TINT_BAD);
        table_addf(t, TINT_NONE, "%d", 12345);
        table_add(t, "vm", TINT_NONE);
        table_add(t, "exit code 1; retry 2 of 5 in 12s", TINT_NONE);
        return t;
}

static void assert_prints(struct table *t, const struct table_style *style, const char *expected)
{
        struct str out = STR_INIT;
        table_print(t, style, &out);
        assert_string_equal(str_c(&out), expected);
        str_fini(&out);
}

static void columns_are_as_wide_as_their_content_and_the_last_is_not_padded(void **state)
{
        (void)state;
        struct table *t = fill();
        assert_prints(t, &(struct table_style){ 0 },
                      "NAME            STATUS        N   INFO\n"
                      "hello           Running       3   -\n"
                      "a-longer-name   Failed    12345   exit code 1; retry 2 of 5 in 12s\n");
        table_destroy(t);
}

static void wide_columns_show_only_when_asked_for(void **state)
{
        (void)state;
        struct table *t = fill();
        assert_prints(
            t, &(struct table_style){ .wide = true, .no_headers = true },
            "hello           Running       3   process   -\n"
            "a-longer-name   Failed    12345   vm        exit code 1; retry 2 of 5 in 12s\n");
        table_destroy(t);
}

static void a_narrow_terminal_cuts_the_least_important_column(void **state)
{
        (void)state;
        struct table *t = fill();
        struct term narrow = { .is_tty = true, .columns = 50 };
        assert_prints(t, &(struct table_style){ .term = &narrow },
                      "NAME            STATUS        N   INFO\n"
                      "hello           Running       3   -\n"
                      "a-longer-name   Failed    12345   exit code 1; re\u2026\n");
        table_destroy(t);
}

static void an_even_narrower_one_cuts_the_next_but_never_what_must_stay(void **state)
{
        (void)state;
        struct table *t = fill();
        struct term narrow = { .is_tty = true, .columns = 20 };
        assert_prints(t, &(struct table_style){ .term = &narrow },
                      "NAME       STATUS        N   INFO\n"
                      "hello      Running       3   -\n"
                      "a-longe\u2026   Failed    12345   exit co\u2026\n");
        table_destroy(t);
}

static void nothing_is_cut_when_the_output_is_no_terminal(void **state)
{
        (void)state;
        struct table *t = fill();
        struct term pipe = { .is_tty = false, .columns = 0 };
        struct str out = STR_INIT;
        table_print(t, &(struct table_style){ .term = &pipe }, &out);
        assert_non_null(strstr(str_c(&out), "exit code 1; retry 2 of 5 in 12s\n"));
        assert_null(strchr(str_c(&out), '\033'));
        str_fini(&out);
        table_destroy(t);
}

static void colour_goes_around_the_text_and_not_into_the_widths(void **state)
{
        (void)state;
        static const struct table_column two[] = { { .title = "A" }, { .title = "B" } };
        struct table *t = table_create(two, 2);
        struct term tty = { .is_tty = true, .colour = true, .columns = 80 };
        table_add(t, "ok", TINT_GOOD);
        table_add(t, "x", TINT_NONE);
        assert_prints(t, &(struct table_style){ .term = &tty, .no_headers = true },
                      "\033[32mok\033[0m   x\n");
        table_destroy(t);
}

static void utf8_counts_by_columns_not_bytes(void **state)
{
        (void)state;
        static const struct table_column two[] = { { .title = "A" }, { .title = "B" } };
        struct table *t = table_create(two, 2);
        table_add(t, "caf\u00e9", TINT_NONE);
        table_add(t, "1", TINT_NONE);
        table_add(t, "\u65e5\u672c", TINT_NONE);
        table_add(t, "2", TINT_NONE);
        table_add(t, "e\u0301a", TINT_NONE);
        table_add(t, "3", TINT_NONE);
        assert_prints(t, &(struct table_style){ .no_headers = true },
                      "caf\u00e9   1\n"
                      "\u65e5\u672c   2\n"
                      "e\u0301a     3\n");
        table_destroy(t);
}

static void rows_that_come_later_line_up_and_have_no_second_header(void **state)
{
        (void)state;
        static const struct table_column two[] = { { .title = "NAME" }, { .title = "STATUS" } };
        struct table *t = table_create(two, 2);
        struct table_style style = { 0 };
        table_add(t, "long-name", TINT_NONE);
        table_add(t, "Pending", TINT_NONE);
        assert_prints(t, &style, "NAME        STATUS\nlong-name   Pending\n");
        table_add(t, "b", TINT_NONE);
        table_add(t, "Running", TINT_NONE);
        assert_prints(t, &style, "b           Running\n");
        assert_prints(t, &style, "");
        table_destroy(t);
}

/* R: A9 */
static void text_from_elsewhere_cannot_steer_the_terminal(void **state)
{
        (void)state;
        struct str out = STR_INIT;
        text_clean(&out, "a\033[31mb\nc\rd\x7f\xc2\x9b"
                         "e\xff\u202ef");
        assert_string_equal(str_c(&out), "a?[31mb c d??e??f");
        str_fini(&out);
}

/* Issue 5, A9: bidi controls as well, and what workloads write, in whatever pieces it comes.  R:
 * A9 */
static void what_a_workload_wrote_cannot_steer_the_terminal(void **state)
{
        static const char wrote[] = "a\033]0;x\a\r\nb\tc\xc2\x9b"
                                    "31m\u200e\u061c\u2066d\xff\u00e9\u65e5\r.";
        (void)state;
        for (size_t cut = 0; cut < sizeof(wrote); cut++) {
                struct str out = STR_INIT;
                struct term_tail tail = { 0 };
                term_clean(&out, &tail, wrote, cut, false);
                term_clean(&out, &tail, wrote + cut, sizeof(wrote) - 1 - cut, true);
                assert_string_equal(str_c(&out), "a?]0;x?\nb\tc?31m???d?\u00e9\u65e5?.");
                str_fini(&out);
        }
        struct str out = STR_INIT;
        text_clean(&out, "a\u200f\u2069\u061cb");
        assert_string_equal(str_c(&out), "a???b");
        str_fini(&out);
}

static void widths_and_fits(void **state)
{
        (void)state;
        assert_int_equal(text_width(""), 0);
        assert_int_equal(text_width("abc"), 3);
        assert_int_equal(text_width("\u65e5"), 2);
        assert_int_equal(text_width("\xff\xfe"), 2);
        assert_int_equal(text_fit("\u65e5\u672c", 3), 3); /* half of a wide letter does not fit */
        assert_int_equal(text_fit("abc", 10), 3);
        /* cut off in the middle: never reads past the end */
        assert_int_equal(text_fit("\xe6\x97", 1), 1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(columns_are_as_wide_as_their_content_and_the_last_is_not_padded),
                cmocka_unit_test(wide_columns_show_only_when_asked_for),
                cmocka_unit_test(a_narrow_terminal_cuts_the_least_important_column),
                cmocka_unit_test(an_even_narrower_one_cuts_the_next_but_never_what_must_stay),
                cmocka_unit_test(nothing_is_cut_when_the_output_is_no_terminal),
                cmocka_unit_test(colour_goes_around_the_text_and_not_into_the_widths),
                cmocka_unit_test(utf8_counts_by_columns_not_bytes),
                cmocka_unit_test(rows_that_come_later_line_up_and_have_no_second_header),
                cmocka_unit_test(text_from_elsewhere_cannot_steer_the_terminal),
                cmocka_unit_test(what_a_workload_wrote_cannot_steer_the_terminal),
                cmocka_unit_test(widths_and_fits),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
