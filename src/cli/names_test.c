/* cli/names_test.c: what users call things. */
#include "cli/names.h"
#include "cli/verbs.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const char *const ids[] = { "web", "web-1", "web-2", "hello", "help", "db-primary" };

static const char *pick(const char *word, struct err *err)
{
        const char *id = NULL;
        memset(err, 0, sizeof(*err));
        return name_pick("workload", word, ids, ARRAY_LEN(ids), false, &id, err) == 0 ? id : NULL;
}

static void an_exact_name_wins_over_longer_ones(void **state)
{
        struct err err;
        (void)state;
        assert_string_equal(pick("web", &err), "web");
}

static void a_unique_beginning_is_enough(void **state)
{
        struct err err;
        (void)state;
        assert_string_equal(pick("db", &err), "db-primary");
        assert_string_equal(pick("hell", &err), "hello");
}

static void an_ambiguous_beginning_lists_what_it_could_be(void **state)
{
        struct err err;
        (void)state;
        assert_null(pick("hel", &err));
        assert_int_equal(err.code, ERR_INVALID);
        assert_string_equal(err.detail, "hello, help");
        assert_null(pick("web-", &err));
        assert_string_equal(err.detail, "web-1, web-2");
}

static void at_most_five_are_listed(void **state)
{
        (void)state;
        static const char *const many[] = { "a1", "a2", "a3", "a4", "a5", "a6", "a7" };
        struct err err = { 0 };
        const char *id = NULL;
        assert_int_equal(name_pick("node", "a", many, ARRAY_LEN(many), false, &id, &err),
                         -ERR_INVALID);
        assert_string_equal(err.detail, "a1, a2, a3, a4, a5, ...");
        assert_null(id);
        /* The list itself was cut: what looks unique may not be. */
        assert_int_equal(
            name_pick("node", "a1", (const char *const[]){ "a10" }, 1, true, &id, &err),
            -ERR_INVALID);
}

static void an_unknown_name_is_not_found(void **state)
{
        struct err err;
        (void)state;
        assert_null(pick("nothing", &err));
        assert_int_equal(err.code, ERR_NOT_FOUND);
        assert_int_equal(err_exit_status(err.code), 4);
}

static int names(const char *kind, struct arena *arena, const char *const *words,
                 struct text_list *ret, struct err *err)
{
        struct cli cli = { .verb = &verb_stop };
        struct args args = { .at = (const char **)words };
        while (words[args.n])
                args.n++;
        return names_of_kind(&cli, arena, kind, &args, ret, err);
}
#define NAMES(kind, ...)                                                                           \
        names(kind, &arena, (const char *const[]){ __VA_ARGS__, NULL }, &list, &err)

static void a_leading_kind_is_accepted_as_in_kubectl(void **state)
{
        (void)state;
        struct arena arena = ARENA_INIT;
        struct text_list list = { 0 };
        struct err err = { 0 };
        assert_int_equal(NAMES("workload", "workload", "hello", "web"), 0);
        assert_int_equal(list.n, 2);
        assert_string_equal(list.at[0], "hello");
        assert_int_equal(NAMES("workload", "wl/hello", "workload/web"), 0);
        assert_string_equal(list.at[1], "web");
        assert_int_equal(NAMES("node", "no", "n1"), 0);
        assert_string_equal(list.at[0], "n1");
        assert_int_equal(NAMES("workload", "workload"), 0); /* alone it is a name */
        assert_string_equal(list.at[0], "workload");
        assert_int_equal(NAMES("workload", "w/node"), 0);
        assert_string_equal(list.at[0], "node");
        arena_fini(&arena);
}

static void the_wrong_kind_is_a_usage_error(void **state)
{
        (void)state;
        struct arena arena = ARENA_INIT;
        struct text_list list = { 0 };
        struct err err = { 0 };
        assert_int_equal(NAMES("workload", "node", "n1"), -ERR_INVALID);
        assert_string_equal(err.msg, "stop works on workloads, not on nodes");
        assert_int_equal(NAMES("workload", "pod/x"), -ERR_INVALID);
        assert_int_equal(NAMES("workload", "workload/"), -ERR_INVALID);
        assert_int_equal(NAMES("workload", "workload/a", "node/b"), -ERR_INVALID);
        assert_int_equal(names("workload", &arena, (const char *const[]){ NULL }, &list, &err),
                         -ERR_INVALID);
        assert_non_null(strstr(err.detail, "usage: berth stop NAME..."));
        arena_fini(&arena);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(an_exact_name_wins_over_longer_ones),
                cmocka_unit_test(a_unique_beginning_is_enough),
                cmocka_unit_test(an_ambiguous_beginning_lists_what_it_could_be),
                cmocka_unit_test(at_most_five_are_listed),
                cmocka_unit_test(an_unknown_name_is_not_found),
                cmocka_unit_test(a_leading_kind_is_accepted_as_in_kubectl),
                cmocka_unit_test(the_wrong_kind_is_a_usage_error),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
