/* The JSON reader and writer beside another implementation (jansson): what one takes as JSON the
 * other takes, and they read the same values.
 *
 * The reader knows types and jansson does not, so the texts are made to fit a type: the value in
 * question stands where its kind belongs, or, with JSON_IGNORE_UNKNOWN, where nobody looks at it.
 */
#include "agent.pb-c.h"
#include "api.pb-c.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/mem.h"
#include "model/json.h"
#include "model/json_oracle.h"
#include "model/random_message.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

struct text {
        const char *s;
        size_t len; /* 0: strlen */
};
#define T(s)                                                                                       \
        {                                                                                          \
                s, sizeof(s) - 1                                                                   \
        }

/* Any JSON value, or none. (A NUL behind a number is left out: jansson passes over it, RFC 8259
 * does not.) */
static const struct text nasty[] = {
        T("0"),
        T("-0"),
        T("-"),
        T("+1"),
        T("01"),
        T("-01"),
        T("1."),
        T(".5"),
        T("1.5"),
        T("1e"),
        T("1e+"),
        T("1e5"),
        T("1E-5"),
        T("1e+05"),
        T("0x10"),
        T("1_000"),
        T("1 2"),
        T("NaN"),
        T("Infinity"),
        T("-Infinity"),
        T("true"),
        T("True"),
        T("tru"),
        T("truex"),
        T("false"),
        T("null"),
        T("nul"),
        T("nullnull"),
        T("undefined"),
        T("\"\""),
        T("\"a"),
        T("a\""),
        T("'a'"),
        T("\"a\\\""),
        T("\"\\a\""),
        T("\"\\u12\""),
        T("\"\\u12g4\""),
        T("\"\\u0041\""),
        T("\"\\uD83D\\uDE00\""),
        T("\"\\uD83D\""),
        T("\"\\uDE00\""),
        T("\"\\uD83D\\u0041\""),
        T("\"\\uD83Dx\""),
        T("\"\\ud83d\\ud83d\""),
        T("\"\\u0000\""),
        T("\"\0\""),
        T("\"\t\""),
        T("\"\n\""),
        T("\"\x7f\""),
        T("\"\x1f\""),
        T("\"\xc3\xa9\""),
        T("\"\xc3\""),
        T("\"\xc3(\""),
        T("\"\xa9\""),
        T("\"\xc0\xaf\""),
        T("\"\xc1\xbf\""),
        T("\"\xe0\x80\xaf\""),
        T("\"\xe0\x9f\xbf\""),
        T("\"\xe2\x82\xac\""),
        T("\"\xed\xa0\x80\""),
        T("\"\xed\x9f\xbf\""),
        T("\"\xef\xbf\xbf\""),
        T("\"\xf0\x9f\x98\x80\""),
        T("\"\xf0\x8f\xbf\xbf\""),
        T("\"\xf4\x8f\xbf\xbf\""),
        T("\"\xf4\x90\x80\x80\""),
        T("\"\xf5\x80\x80\x80\""),
        T("\"\xfe\""),
        T("\"\xff\""),
        T("\"\xf0\x9f\x98\""),
        T("[]"),
        T("[ ]"),
        T("[1]"),
        T("[1,]"),
        T("[,1]"),
        T("[1 2]"),
        T("[1,2"),
        T("[1,2]]"),
        T("[[[[]]]]"),
        T("{}"),
        T("{ }"),
        T("{\"a\":1}"),
        T("{\"a\":1,}"),
        T("{,}"),
        T("{\"a\"}"),
        T("{\"a\":}"),
        T("{a:1}"),
        T("{1:1}"),
        T("{\"a\":1 \"b\":2}"),
        T("{\"a\":1,\"b\":2}"),
        T("{\"a\":{\"b\":[{}]}}"),
        T("{\"a\":1"),
        T("{\"\":1}"),
        T("{\"a\" : 1}"),
        T("{\"a\":1}}"),
        T("[\"a\",\n1\t,\r{ }]"),
        T("/**/1"),
        T("1//"),
        T("[1,#\n2]"),
        T("\xef\xbb\xbf{}"),
        T("\x0b{}"),
        T("\xc2\xa0{}"),
        T("\"a\"\"b\""),
        T("{\"a\":1,\"\\u0061\":2}"),
        T(""),
        T(" "),
        T("\0"),
        T("[1]\0"),
        T("{\"a\\u0000b\":1}"),
        T("{\"\\ud800\":1}"),
        T("-1"),
        T("- 1"),
        T("--1"),
        T("1e1.5"),
        T("[-]"),
};

/* Where nobody looks: {"x": <text>}. Duplicate keys inside what is skipped are not seen
 * (documented), so those are left out. */
static void both_agree_on_what_is_json(void **state)
{
        struct arena arena = ARENA_INIT;
        struct str text = STR_INIT, other = STR_INIT;

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(nasty); i++) {
                ProtobufCMessage *m;
                struct err err = { 0 };
                bool ours, theirs;
                str_clear(&text);
                str_adds(&text, "{\"x\":");
                str_add(&text, nasty[i].s, nasty[i].len);
                str_adds(&text, "}");
                if (memmem(text.buf, text.len, "\\u0061", 6))
                        continue;
                char *exact = mem_dup(text.buf, text.len);
                ours = json_read(&pb__workload__descriptor, exact, text.len, SIZE_MAX,
                                 JSON_IGNORE_UNKNOWN, &arena, &m, &err) == 0;
                theirs = oracle_read(exact, text.len, &other);
                mem_free(exact);
                if (ours != theirs)
                        fail_msg("%s: we say %d, jansson says %d (%s)", str_c(&text), ours, theirs,
                                 err.msg);
        }
        str_fini(&text);
        str_fini(&other);
        arena_fini(&arena);
}

/* As the value of a text, and as the whole text. */
static void both_read_the_same_texts(void **state)
{
        struct arena arena = ARENA_INIT;
        struct str text = STR_INIT, ours = STR_INIT, theirs = STR_INIT;

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(nasty) * 2; i++) {
                bool whole = i >= ARRAY_LEN(nasty);
                const struct text *t = &nasty[i % ARRAY_LEN(nasty)];
                ProtobufCMessage *m;
                bool good, other;
                if (!whole && t->s[0] != '"')
                        continue;
                str_clear(&text);
                str_clear(&ours);
                str_clear(&theirs);
                str_adds(&text, whole ? "" : "{\"id\":");
                str_add(&text, t->s, t->len);
                str_adds(&text, whole ? "" : "}");
                good = json_read(&pb__workload__descriptor, str_c(&text), text.len, SIZE_MAX,
                                 JSON_IGNORE_UNKNOWN, &arena, &m, NULL) == 0;
                /* a message is an object */
                other = oracle_read(str_c(&text), text.len, &theirs) && theirs.buf[0] == '{';
                if (memmem(text.buf, text.len, "\\u0061", 6))
                        continue;
                if (good != other)
                        fail_msg("%s: we say %d, jansson says %d", str_c(&text), good, other);
                if (!good || whole)
                        continue;
                json_write(&ours, m, JSON_SORTED);
                if (str_eq(str_c(&ours), "{}")) /* an empty text is left out */
                        assert_string_equal(str_c(&theirs), "{\"id\":\"\"}");
                else
                        assert_string_equal(str_c(&ours), str_c(&theirs));
        }
        str_fini(&text);
        str_fini(&ours);
        str_fini(&theirs);
        arena_fini(&arena);
}

static void both_read_the_same_numbers(void **state)
{
        static const char *const numbers[] = { "1",
                                               "-1",
                                               "2147483647",
                                               "9223372036854775807",
                                               "-9223372036854775808",
                                               "1234567890123456789",
                                               "7" };
        struct arena arena = ARENA_INIT;

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
                struct str ours = STR_INIT, theirs = STR_INIT;
                ProtobufCMessage *m;
                const char *text = fmt("{\"resources\":{\"memory_mb\":%s}}", numbers[i]);
                assert_int_equal(json_read(&pb__workload__descriptor, text, strlen(text), SIZE_MAX,
                                           0, &arena, &m, NULL),
                                 0);
                json_write(&ours, m, JSON_SORTED);
                assert_true(oracle_read(text, strlen(text), &theirs));
                assert_string_equal(str_c(&ours), str_c(&theirs));
                str_fini(&ours);
                str_fini(&theirs);
        }
        arena_fini(&arena);
}

/* What we write is JSON to others, and our sorted form is theirs. */
static void what_we_write_others_read(void **state)
{
        static const ProtobufCMessageDescriptor *const types[] = {
                &pb__workload__descriptor, &pb__hello__descriptor, &pb__explanation__descriptor,
                &pb__list_events_response__descriptor
        };
        struct arena arena = ARENA_INIT;
        struct rng rng;

        (void)state;
        rng_seed(&rng, 9);
        for (int round = 0; round < 1000; round++) {
                struct str sorted = STR_INIT, pretty = STR_INIT, theirs = STR_INIT;
                /* jansson keeps integers in 64 signed bits: uint64 as strings, so that all of them
                 * fit */
                ProtobufCMessage *m =
                    random_message(&arena, &rng, types[rng_below(&rng, ARRAY_LEN(types))], 500000);
                json_write(&sorted, m, JSON_SORTED | JSON_INT64_AS_STRING);
                json_write(&pretty, m, JSON_PRETTY | JSON_INT64_AS_STRING);
                if (!oracle_read(str_c(&pretty), pretty.len, &theirs))
                        fail_msg("round %d: jansson refuses %s", round, str_c(&pretty));
                /* cores are numbers with a point; jansson prints them its own way, and may round
                 * large ones */
                if (!strstr(str_c(&sorted), "\"cpu"))
                        /* \u001b or \u001B */
                        assert_true(str_case_eq(str_c(&sorted), str_c(&theirs)));
                str_fini(&sorted);
                str_fini(&pretty);
                str_fini(&theirs);
                arena_reset(&arena);
        }
        arena_fini(&arena);
}

/* Random damage: both take it or both refuse it. */
static void both_agree_on_damaged_texts(void **state)
{
        struct arena arena = ARENA_INIT;
        struct str text = STR_INIT, wrapped = STR_INIT, other = STR_INIT;
        struct rng rng;

        (void)state;
        rng_seed(&rng, 10);
        for (int round = 0; round < 20000; round++) {
                static const char letters[] = "\"\"\\{}[],,::0123-.eEtfnul \n\xc3\xa9\xe2\x82\xac";
                ProtobufCMessage *m;
                str_clear(&text);
                str_clear(&wrapped);
                str_clear(&other);
                json_write(&text,
                           random_message(&arena, &rng, &pb__workload_status__descriptor, 400000),
                           JSON_INT64_AS_STRING);
                for (uint64_t n = rng_below(&rng, 3); n > 0; n--)
                        text.buf[rng_below(&rng, text.len)] =
                            letters[rng_below(&rng, sizeof(letters) - 1)];
                str_addf(&wrapped, "{\"x\":%s}", str_c(&text));
                bool ours = json_read(&pb__workload__descriptor, wrapped.buf, wrapped.len, SIZE_MAX,
                                      JSON_IGNORE_UNKNOWN, &arena, &m, NULL) == 0;
                bool theirs = oracle_read(wrapped.buf, wrapped.len, &other);
                /* numbers beyond its range are errors to jansson, and keys that damage made equal
                 * are not ours to see in what is skipped */
                if (ours != theirs && !(ours && !theirs))
                        fail_msg("round %d: we say %d, jansson says %d: %s", round, ours, theirs,
                                 str_c(&wrapped));
                arena_reset(&arena);
        }
        str_fini(&text);
        str_fini(&wrapped);
        str_fini(&other);
        arena_fini(&arena);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(both_agree_on_what_is_json),
                cmocka_unit_test(both_read_the_same_texts),
                cmocka_unit_test(both_read_the_same_numbers),
                cmocka_unit_test(what_we_write_others_read),
                cmocka_unit_test(both_agree_on_damaged_texts),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
