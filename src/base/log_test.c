/* base/log_test.c: what must hold for log lines. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

static int ends[2];

static int open_pipe(void **state _unused_)
{
        if (pipe(ends) < 0)
                return -1;
        log_setup(LOG_INFO, LOG_FORMAT_LOGFMT, ends[1]);
        return 0;
}

static int close_pipe(void **state _unused_)
{
        log_setup(LOG_INFO, LOG_FORMAT_LOGFMT, 2);
        close(ends[0]);
        close(ends[1]);
        return 0;
}

/* The line that was just written, without its time, which is checked. */
static const char *line(void)
{
        static char buf[8192];
        ssize_t n = read(ends[0], buf, sizeof(buf) - 1);
        int64_t ms;

        assert_true(n > 30);
        assert_true(n <= 4096);
        buf[n] = '\0';
        assert_ptr_equal(strchr(buf, '\n'), buf + n - 1);
        buf[n - 1] = '\0';
        char *start = buf + (buf[0] == '{' ? strlen("{\"ts\":\"") : strlen("ts="));
        assert_int_equal(time_parse(start, 24, &ms), 0);
        assert_in_range(clock_wall_ms() - ms, 0, 60000);
        return start + 24;
}

static void a_line_reads_as_the_manual_says(void **state _unused_)
{
        log_info("node lost", LOG_S("node", "n1"), LOG_I("silent_ms", 30000),
                 LOG_S("reason", "heartbeat expired"), LOG_B("known", true));
        assert_string_equal(line(), " level=info msg=\"node lost\" node=n1 silent_ms=30000 "
                                    "reason=\"heartbeat expired\" known=true");
        log_setup(LOG_INFO, LOG_FORMAT_JSON, ends[1]);
        log_warn("node lost", LOG_S("node", "n1"), LOG_I("at", INT64_MIN), LOG_B("known", false),
                 LOG_S("zone", NULL));
        assert_string_equal(line(), "\",\"level\":\"warn\",\"msg\":\"node "
                                    "lost\",\"node\":\"n1\",\"at\":-9223372036854775808,"
                                    "\"known\":false,\"zone\":null}");
        log_error("x");
        assert_string_equal(line(), "\",\"level\":\"error\",\"msg\":\"x\"}");
}

static void values_are_quoted_when_they_must_be(void **state _unused_)
{
        struct err err;

        log_info("x", LOG_S("a", ""), LOG_S("b", NULL), LOG_S("c", "k=v"), LOG_S("d", "say \"hi\""),
                 LOG_S("e", "C:\\dir"), LOG_S("f", "caf\xC3\xA9"));
        assert_string_equal(line(), " level=info msg=x a=\"\" b=\"\" c=\"k=v\" d=\"say "
                                    "\\\"hi\\\"\" e=C:\\dir f=caf\xC3\xA9");
        err_set(&err, ERR_IO, .msg = "cannot write", .detail = "disk full");
        log_error("commit", LOG_E(&err), LOG_S("bad key=\n", "v"));
        assert_string_equal(
            line(), " level=error msg=commit error=\"cannot write: disk full\" bad_key__=v");
}

/* R: A9 */
static void a_value_cannot_break_out_of_its_line(void **state _unused_)
{
        static const char evil[] = "a\nts=now level=error\r\t\x1B[2J\x7F\xC2\x9B\x80\xFFz";
        static const char safe[] =
            "\"a\\nts=now level=error\\r\\t\\u001b[2J\\u007f\\u009b\xEF\xBF\xBD\xEF\xBF\xBDz\"";

        log_info("x", LOG_S("v", evil));
        const char *l = line();
        assert_string_equal(l + strlen(" level=info msg=x v="), safe);
        log_setup(LOG_INFO, LOG_FORMAT_JSON, ends[1]);
        log_info("x", LOG_S("v", evil));
        l = line() + strlen("\",\"level\":\"info\",\"msg\":\"x\",\"v\":");
        assert_memory_equal(l, safe, sizeof(safe) - 1);
        assert_string_equal(l + sizeof(safe) - 1, "}");
}

static void a_long_line_is_cut_and_says_so(void **state _unused_)
{
        static char text[6001];

        /* Every length around the limit, with characters of one to four bytes and with ones that
         * are escaped. */
        static const char *const letters[] = {
                "x", " ", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x9A\xA2", "\"", "\x01", "\xFF"
        };
        for (size_t k = 0; k < ARRAY_LEN(letters); k++)
                for (size_t n = 600; n < 4200; n += n < 3900 ? 150 : 1)
                        for (enum log_format format = LOG_FORMAT_LOGFMT; format <= LOG_FORMAT_JSON;
                             format++) {
                                size_t len = strlen(letters[k]);
                                for (size_t i = 0; i < n; i++)
                                        text[i] = letters[k][i % len];
                                text[n - n % len] = '\0';
                                log_setup(LOG_INFO, format, ends[1]);
                                log_info("x", LOG_S("v", text), LOG_S("after", "w"));
                                const char *l = line();
                                bool cut = strstr(l, "after") == NULL;
                                assert_true(str_is_utf8(l, strlen(l)));
                                assert_true(cut == str_ends(l, format == LOG_FORMAT_JSON
                                                                   ? ",\"truncated\":true}"
                                                                   : " truncated=true"));
                                if (n == 600 && len < 6)
                                        assert_false(cut);
                                if (n > 4080)
                                        assert_true(cut);
                        }
}

static void many_fields_are_cut_too(void **state _unused_)
{
        struct log_field fields[500];

        for (size_t i = 0; i < 499; i++)
                fields[i] = LOG_I("a_number_with_a_name", i);
        fields[499] = (struct log_field){ 0 };
        log_write(LOG_INFO, "x", fields);
        assert_true(str_ends(line(), " truncated=true"));
        log_setup(LOG_INFO, LOG_FORMAT_JSON, ends[1]);
        log_write(LOG_INFO, "x", fields);
        assert_true(str_ends(line(), ",\"truncated\":true}"));
        char key[1000];
        memset(key, '\x01', sizeof(key) - 1);
        key[sizeof(key) - 1] = '\0';
        log_info("x", LOG_S(key, "v"), LOG_S("after", "w"));
        assert_string_equal(
            line(), "\",\"level\":\"info\",\"msg\":\"x\",\"after\":\"w\",\"truncated\":true}");
        log_write(LOG_INFO, NULL, NULL);
        assert_string_equal(line(), "\",\"level\":\"info\",\"msg\":\"\"}");
}

static void levels_below_are_silent_and_cost_nothing(void **state _unused_)
{
        enum log_level level;
        int evaluated = 0;

        log_debug("x", LOG_I("n", ++evaluated));
        assert_int_equal(evaluated, 0);
        assert_false(log_enabled(LOG_DEBUG));
        log_setup(LOG_DEBUG, LOG_FORMAT_LOGFMT, ends[1]);
        log_debug("x", LOG_I("n", ++evaluated));
        assert_string_equal(line(), " level=debug msg=x n=1");
        assert_int_equal(log_level_parse("WARN", &level), 0);
        assert_int_equal(level, LOG_WARN);
        assert_int_equal(log_level_parse("loud", &level), -1);
        assert_int_equal(log_level_parse(NULL, &level), -1);
        assert_int_equal(level, LOG_WARN);
}

static void it_keeps_errno(void **state _unused_)
{
        errno = EXDEV;
        log_info("x", LOG_S("v", "w"));
        assert_int_equal(errno, EXDEV);
        assert_string_equal(line(), " level=info msg=x v=w");
        log_setup(LOG_INFO, LOG_FORMAT_LOGFMT, -1);
        log_info("into the void");
        assert_int_equal(errno, EXDEV);
}

static void a_full_pipe_does_not_hold_up_the_work(void **state _unused_)
{
        static char text[3000];

        memset(text, 'x', sizeof(text) - 1);
        assert_int_equal(fd_nonblock(ends[1]), 0);
        for (int i = 0; i < 1000; i++)
                log_info("x", LOG_S("v", text));
}

static void *talk(void *arg)
{
        for (int i = 0; i < 500; i++)
                log_info("a line of a thread", LOG_S("who", arg), LOG_I("n", i),
                         LOG_S("again", arg));
        return NULL;
}

static void *talk_and_close(void *arg _unused_)
{
        static const char *const names[] = { "aaaaaaaa", "bbbbbbbb", "cccccccc" };
        pthread_t threads[3];

        for (size_t i = 0; i < ARRAY_LEN(threads); i++)
                pthread_create(&threads[i], NULL, talk, (void *)names[i]);
        for (size_t i = 0; i < ARRAY_LEN(threads); i++)
                pthread_join(threads[i], NULL);
        close(ends[1]);
        return NULL;
}

static void lines_of_threads_do_not_mix(void **state _unused_)
{
        struct str all = STR_INIT;
        char buf[4096];
        pthread_t t;
        ssize_t n;
        int lines = 0;

        assert_int_equal(pthread_create(&t, NULL, talk_and_close, NULL), 0);
        while ((n = read(ends[0], buf, sizeof(buf))) > 0)
                str_add(&all, buf, (size_t)n);
        pthread_join(t, NULL);
        for (char *l = all.buf, *end; (end = strchr(l, '\n')); l = end + 1, lines++) {
                *end = '\0';
                const char *who = strstr(l, " who="), *again = strstr(l, " again=");
                assert_true(str_starts(l, "ts=") && who && again);
                assert_memory_equal(who + 5, again + 7, 9 - 1);
                assert_int_equal(strlen(again), 15);
        }
        assert_int_equal(lines, 1500);
        str_fini(&all);
}

int main(void)
{
#define log_test(f) cmocka_unit_test_setup_teardown(f, open_pipe, close_pipe)
        const struct CMUnitTest tests[] = {
                log_test(a_line_reads_as_the_manual_says),
                log_test(values_are_quoted_when_they_must_be),
                log_test(a_value_cannot_break_out_of_its_line),
                log_test(a_long_line_is_cut_and_says_so),
                log_test(many_fields_are_cut_too),
                log_test(levels_below_are_silent_and_cost_nothing),
                log_test(it_keeps_errno),
                log_test(a_full_pipe_does_not_hold_up_the_work),
                log_test(lines_of_threads_do_not_mix),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
