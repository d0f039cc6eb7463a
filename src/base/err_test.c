/* base/err_test.c: what must hold for errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base_testlib.h"
#include "base/err.h"
#include "base/str.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* R: A9 */
static void the_parts_arrive_and_the_code_is_returned(void **state _unused_)
{
        struct err err = { .hint = "left over" };

        int r = err_set(&err, ERR_CONFLICT, .msg = "no", .detail = fmt("%d of %d", 1, 2),
                        .path = "spec.cpu", .retry_after_ms = 5);
        assert_int_equal(r, -ERR_CONFLICT);
        assert_int_equal(err.code, ERR_CONFLICT);
        assert_string_equal(err.msg, "no");
        assert_string_equal(err.detail, "1 of 2");
        assert_string_equal(err.hint, "");
        assert_string_equal(err.path, "spec.cpu");
        assert_int_equal(err.retry_after_ms, 5);
        assert_int_equal(err_set(NULL, ERR_LIMIT, .msg = "nobody asks"), -ERR_LIMIT);
}

/* R: A9 */
static void a_text_that_a_precision_cut_is_still_text(void **state _unused_)
{
        struct err err = { 0 };
        char word[130] = "x";
        for (size_t i = 1; i + 2 < sizeof(word); i += 2)
                memcpy(word + i, "\xC3\xA9", 2);
        err_set(&err, ERR_INVALID, .msg = fmt("unknown value \"%.64s\", and more", word),
                .detail = fmt("%.12s", word), .hint = fmt("%.4s|", word),
                .path = fmt("%.2s", word));
        assert_true(str_is_utf8(err.msg, strlen(err.msg)));
        assert_non_null(strstr(err.msg, "?\", and more"));
        assert_string_equal(err.detail, "x\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9?");
        assert_string_equal(err.hint, "x\xC3\xA9?|");
        assert_string_equal(err.path, "x?");
}

static void texts_are_cut_at_whole_characters(void **state _unused_)
{
        struct err err;
        char text[700];

        for (size_t shift = 0; shift < 4; shift++) {
                memset(text, 'x', sizeof(text));
                for (size_t i = shift; i + 4 < sizeof(text); i += 4)
                        memcpy(text + i, "\xF0\x9F\x9A\xA2", 4); /* a ship */
                text[sizeof(text) - 1] = '\0';
                err_set(&err, ERR_INVALID, .msg = text, .detail = text, .path = text);
                assert_true(str_is_utf8(err.msg, strlen(err.msg)));
                assert_in_range(strlen(err.msg), 252, 255);
                assert_true(str_is_utf8(err.detail, strlen(err.detail)));
                assert_in_range(strlen(err.path), 124, 127);
                assert_true(str_is_utf8(fmt("%s%s", text, text), strlen(fmt("%s%s", text, text))));
                err_prefix(&err, "here");
                assert_true(str_is_utf8(err.msg, strlen(err.msg)));
        }
}

static void parts_may_point_into_the_error_itself(void **state _unused_)
{
        struct err err;

        err_set(&err, ERR_IO, .msg = "first", .detail = "why");
        assert_int_equal(err_set(&err, ERR_FAILED, .msg = err.detail, .detail = err.msg),
                         -ERR_FAILED);
        assert_string_equal(err.msg, "why");
        assert_string_equal(err.detail, "first");
}

static void context_goes_in_front(void **state _unused_)
{
        struct err err;
        char text[300];

        assert_int_equal(err_sys(&err, ENOSPC, "cannot write"), -ERR_IO);
        assert_string_equal(err.detail, "No space left on device");
        assert_int_equal(err_prefix(&err, "store"), -ERR_IO);
        assert_string_equal(err.msg, "store: cannot write");
        assert_string_equal(err_line(&err), "store: cannot write: No space left on device");
        memset(text, 'x', sizeof(text));
        text[sizeof(text) - 1] = '\0';
        err_prefix(&err, text);
        assert_int_equal(strlen(err.msg), 255);
        assert_int_equal(err_prefix(NULL, "x"), -ERR_INTERNAL);
        assert_string_equal(err_line(NULL), "no error");
        assert_string_equal(err_line(&(struct err){ 0 }), "no error");
        assert_string_equal(err_line(&(struct err){ .code = ERR_NOMEM }), "nomem");
}

static void a_list_that_is_too_long_ends_behind_a_whole_word(void **state _unused_)
{
        struct err err;
        char list[600] = "";

        for (int i = 0; i < 60; i++)
                snprintf(list + strlen(list), sizeof(list) - strlen(list), "%sfield%02d",
                         i ? ", " : "fields here: ", i);
        err_set(&err, ERR_INVALID, .msg = "m", .detail = list, .hint = list);
        assert_string_equal(err.hint + strlen(err.hint) - strlen("field25, ..."), "field25, ...");
        assert_true(strlen(err.detail) < sizeof(err.detail) &&
                    strcmp(err.detail + strlen(err.detail) - 5, ", ...") == 0);
        list[255] = '\0'; /* fits just so */
        err_set(&err, ERR_INVALID, .msg = "m", .hint = list);
        assert_string_equal(err.hint, list);
}

static void every_code_has_its_numbers(void **state _unused_)
{
        for (enum err_code c = ERR_OK; c < _ERR_MAX; c++) {
                assert_true(strlen(err_code_name(c)) > 0);
                assert_int_equal(err_code_from_name(err_code_name(c)), c);
                assert_in_range(err_http_status(c), 200, 599);
                assert_in_range(err_grpc_status(c), 0, 16);
                assert_in_range(err_exit_status(c), 0, 7);
                assert_int_equal(err_exit_status(c) == 0, c == ERR_OK);
                assert_int_equal(err_grpc_status(c) == 0, c == ERR_OK);
        }
        assert_int_equal(err_http_status(ERR_NOT_FOUND), 404);
        assert_int_equal(err_grpc_status(ERR_CONFLICT), 10);
        assert_int_equal(err_from_grpc_status(9), ERR_CONFLICT);
        assert_int_equal(err_from_grpc_status(99), ERR_INTERNAL);
        assert_int_equal(err_from_grpc_status(-1), ERR_INTERNAL);
        assert_int_equal(err_code_from_name("of_tomorrow"), ERR_FAILED);
        assert_string_equal(err_code_name((enum err_code)999), "internal");
        /* What goes over gRPC and back keeps the way in which the user should take it. */
        for (enum err_code c = ERR_OK; c < _ERR_MAX; c++)
                if (c != ERR_IO && c != ERR_FAILED)
                        assert_int_equal(err_exit_status(err_from_grpc_status(err_grpc_status(c))),
                                         err_exit_status(c));
}

static void the_last_sixteen_texts_stay(void **state _unused_)
{
        const char *texts[16];

        for (int i = 0; i < 16; i++)
                texts[i] = fmt("text %d", i);
        for (int i = 0; i < 16; i++)
                assert_true(texts[i][5] - '0' == (i < 10 ? i : 1));
        assert_ptr_equal(fmt("again"), texts[0]);
        assert_string_equal(texts[1], "text 1");
}

static void *other_thread(void *arg _unused_)
{
        for (int i = 0; i < 100; i++)
                fmt("noise %d", i);
        return NULL;
}

static void threads_have_their_own_texts(void **state _unused_)
{
        const char *mine = fmt("mine");
        pthread_t t;

        assert_int_equal(pthread_create(&t, NULL, other_thread, NULL), 0);
        pthread_join(t, NULL);
        assert_string_equal(mine, "mine");
}

static void break_an_invariant(void)
{
        must(1 + 1 == 3, "(1) sums add up");
}

static void a_broken_invariant_ends_the_process_with_its_text(void **state _unused_)
{
        assert_aborts(break_an_invariant, "(1) sums add up");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_parts_arrive_and_the_code_is_returned),
                cmocka_unit_test(texts_are_cut_at_whole_characters),
                cmocka_unit_test(a_text_that_a_precision_cut_is_still_text),
                cmocka_unit_test(parts_may_point_into_the_error_itself),
                cmocka_unit_test(context_goes_in_front),
                cmocka_unit_test(a_list_that_is_too_long_ends_behind_a_whole_word),
                cmocka_unit_test(every_code_has_its_numbers),
                cmocka_unit_test(the_last_sixteen_texts_stay),
                cmocka_unit_test(threads_have_their_own_texts),
                cmocka_unit_test(a_broken_invariant_ends_the_process_with_its_text),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
