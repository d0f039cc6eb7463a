/* cli/ca_test.c: berth ca as whole command lines: what it writes, with which modes, and what it
 * refuses. */
#include "base/file.h"
#include "base/mem.h"
#include "cli/verbs.h"
#include "net/tls.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64], out_text[65536], err_text[65536];

static void take(FILE *f, char *text, size_t size)
{
        rewind(f);
        text[fread(text, 1, size - 1, f)] = '\0';
        fclose(f);
}

static int run(const char *const *words)
{
        struct cli cli;
        FILE *out = tmpfile(), *errs = tmpfile();
        size_t n = 0;
        while (words[n])
                n++;
        cli_init(&cli, "berth");
        cli.out = (struct term){ .fd = fileno(out) };
        cli.errs = (struct term){ .fd = fileno(errs) };
        int status = cli_main(&cli, words, n);
        cli_fini(&cli);
        take(out, out_text, sizeof(out_text));
        take(errs, err_text, sizeof(err_text));
        return status;
}
#define CA(...) run((const char *const[]){ "ca", __VA_ARGS__, "--ca", path("ca"), NULL })

static const char *path(const char *name)
{
        static char paths[16][128];
        static unsigned at;
        char *p = paths[at++ % 16];
        snprintf(p, 128, "%s/%s", dir, name);
        return p;
}

static int setup(void **state)
{
        (void)state;
        snprintf(dir, sizeof(dir), "/tmp/berth-ca-XXXXXX");
        unsetenv("BERTH_CA");
        return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
        (void)state;
        return dir_remove(dir, NULL);
}

static unsigned mode_of(const char *name)
{
        struct stat st;
        assert_int_equal(stat(path(name), &st), 0);
        return st.st_mode & 0777;
}

static struct tls_cert cert_of(const char *name)
{
        struct str pem = STR_INIT;
        struct tls_cert c;
        struct err err = { 0 };
        assert_int_equal(file_read(path(name), 100000, &pem, &err), 0);
        assert_int_equal(tls_cert_read(str_c(&pem), pem.len, &c, &err), 0);
        str_fini(&pem);
        return c;
}

static char *text_of(const char *name)
{
        struct str text = STR_INIT;
        assert_int_equal(file_read(path(name), 100000, &text, NULL), 0);
        char *copy = mem_strdup(str_c(&text));
        str_fini(&text);
        return copy;
}

/* R: C32 */
static void a_ca_is_made_once_and_its_key_is_private(void **state)
{
        (void)state;
        mode_t old = umask(0);
        assert_int_equal(CA("init"), 0);
        umask(old);
        assert_int_equal(mode_of("ca"), 0700);
        assert_int_equal(mode_of("ca/ca-key.pem"), 0600);
        assert_int_equal(mode_of("ca/ca.pem"), 0644);
        struct tls_cert c = cert_of("ca/ca.pem");
        assert_true(c.is_ca);
        assert_non_null(strstr(out_text, c.fingerprint));
        tls_cert_fini(&c);
        char *key = text_of("ca/ca-key.pem"), *same;
        assert_int_equal(CA("init"), 5);
        assert_non_null(strstr(err_text, "ca.pem exists already"));
        same = text_of("ca/ca-key.pem");
        assert_string_equal(key, same);
        mem_free(key);
        mem_free(same);
}

/* R: C32 */
static void certificates_carry_who_they_are_for(void **state)
{
        (void)state;
        assert_int_equal(CA("init"), 0);
        assert_int_equal(
            CA("issue", "node", "n1", "--ip", "10.0.0.7", "--valid", "30d", "--out", path("n1")),
            0);
        struct tls_cert c = cert_of("n1/n1.pem");
        assert_string_equal(c.uris[0], "spiffe://berth/node/n1");
        assert_string_equal(c.ips[0], "10.0.0.7");
        assert_true(c.is_client && c.is_server);
        assert_int_equal((c.expires_at_ms - c.begins_at_ms) / 1000, 30 * 86400 + 300);
        tls_cert_fini(&c);
        assert_int_equal(mode_of("n1/n1-key.pem"), 0600);
        assert_int_equal(mode_of("n1/n1.pem"), 0644);
        char *ca = text_of("ca/ca.pem"), *copy = text_of("n1/ca.pem");
        assert_string_equal(ca, copy);
        mem_free(ca);
        mem_free(copy);

        assert_int_equal(CA("issue", "user", "ann", "--out", path("u")), 0);
        c = cert_of("u/ann.pem");
        assert_string_equal(c.uris[0], "spiffe://berth/user/ann");
        assert_true(c.is_client && !c.is_server);
        tls_cert_fini(&c);
        assert_int_equal(CA("issue", "server", "s1", "--out", path("s")), 0);
        c = cert_of("s/s1.pem");
        assert_string_equal(c.dns[0], "s1");
        assert_string_equal(c.uris[0], "spiffe://berth/server/s1");
        tls_cert_fini(&c);
        static const char longest[] =
            "n2345678901234567890123456789012345678901234567890123456789012345678901234567890";
        assert_int_equal(CA("issue", "node", longest, "--out", path("s")), 0);
        c = cert_of(fmt("s/%s.pem", longest));
        assert_string_equal(c.uris[0] + strlen("spiffe://berth/node/"), longest);
        assert_int_equal(strlen(c.cn), 64);
        tls_cert_fini(&c);
        /* the files can be used as they are */
        struct tls *tls = NULL;
        struct tls_options o = { .cert_file = path("s/s1.pem"),
                                 .key_file = path("s/s1-key.pem"),
                                 .ca_file = path("s/ca.pem"),
                                 .peer = TLS_PEER_REQUIRED };
        assert_int_equal(tls_server_create(&o, &tls, NULL), 0);
        tls_unref(tls);
}

/* R: A9 C32 */
static void bad_wishes_are_refused_and_nothing_is_written(void **state)
{
        (void)state;
        assert_int_equal(CA("issue", "node", "n1", "--out", path("x")), 4);
        assert_non_null(strstr(err_text, "there is no CA in"));
        assert_non_null(strstr(err_text, "hint: berth ca init"));
        assert_int_equal(CA("init"), 0);
        assert_int_equal(CA("issue", "robot", "n1", "--out", path("x")), 2);
        assert_int_equal(CA("issue", "node", "../n1", "--out", path("x")), 2);
        assert_int_equal(CA("issue", "node", "n1"), 2);
        assert_int_equal(CA("issue", "user", "ca", "--out", path("x")), 2);
        assert_int_equal(CA("issue", "node", "--out", path("x")), 2);
        assert_int_equal(CA("issue", "node", "n1", "--ip", "10.0.0", "--out", path("x")), 2);
        assert_int_equal(CA("issue", "node", "n1", "--dns", "a b", "--out", path("x")), 2);
        assert_int_equal(CA("issue", "node", "n1", "--valid", "0s", "--out", path("x")), 2);
        assert_int_equal(CA("sign"), 2);
        assert_int_equal(CA("renew"), 2);
        assert_int_equal(CA("renew", path("x/n1.pem")), 4);
        assert_int_equal(CA("show", path("nothing.pem")), 4);
        assert_false(file_exists(path("x")));
        assert_int_equal(CA("issue", "node", "n1", "--out", path("x")), 0);
        assert_int_equal(CA("issue", "node", "n1", "--out", path("x")), 5);
        assert_int_equal(CA("show", path("x/n1-key.pem")), 2);
        /* another CA's, and the CA itself */
        assert_int_equal(run((const char *const[]){ "ca", "init", "--ca", path("other"), NULL }),
                         0);
        assert_int_equal(run((const char *const[]){ "ca", "renew", path("x/n1.pem"), "--ca",
                                                    path("other"), NULL }),
                         3);
        assert_non_null(strstr(err_text, "was not issued by this CA"));
        assert_int_equal(CA("renew", path("ca/ca.pem")), 2);
        assert_null(strstr(err_text, "PRIVATE"));
}

/* R: C32 */
static void a_renewal_changes_the_dates_and_nothing_else(void **state)
{
        (void)state;
        assert_int_equal(CA("init", "--valid", "100d"), 0);
        assert_int_equal(
            CA("issue", "node", "n1", "--dns", "n1.example", "--valid", "1h", "--out", path("x")),
            0);
        struct tls_cert before = cert_of("x/n1.pem");
        char *key = text_of("x/n1-key.pem");
        assert_int_equal(CA("renew", path("x/n1.pem")), 0);
        struct tls_cert after = cert_of("x/n1.pem");
        char *kept = text_of("x/n1-key.pem");
        assert_string_equal(kept, key);
        assert_string_not_equal(after.serial, before.serial);
        assert_string_equal(after.uris[0], before.uris[0]);
        assert_string_equal(after.dns[0], "n1.example");
        assert_true(after.is_client && after.is_server);
        assert_int_equal(after.expires_at_ms - after.begins_at_ms,
                         before.expires_at_ms - before.begins_at_ms);
        tls_cert_fini(&before);
        tls_cert_fini(&after);

        assert_int_equal(CA("renew", path("x/n1.pem"), "--new-key", "--valid", "900d"), 0);
        assert_non_null(strstr(err_text, "it expires with its CA"));
        char *changed = text_of("x/n1-key.pem");
        assert_string_not_equal(changed, key);
        assert_int_equal(mode_of("x/n1-key.pem"), 0600);
        after = cert_of("x/n1.pem");
        before = cert_of("ca/ca.pem");
        assert_true(after.expires_at_ms <= before.expires_at_ms);
        tls_cert_fini(&before);
        tls_cert_fini(&after);
        mem_free(key);
        mem_free(kept);
        mem_free(changed);
}

/* R: C32 */
static void show_says_when_it_ends(void **state)
{
        (void)state;
        assert_int_equal(CA("init", "--name", "harbour"), 0);
        assert_int_equal(CA("issue", "node", "n1", "--valid", "30d", "--out", path("x")), 0);
        assert_int_equal(CA("show", path("x/n1.pem"), path("ca/ca.pem")), 0);
        assert_non_null(strstr(out_text, "SUBJECT"));
        assert_non_null(strstr(out_text, "spiffe://berth/node/n1"));
        assert_non_null(strstr(out_text, " 29 "));
        assert_non_null(strstr(out_text, "harbour"));
        assert_int_equal(CA("show", "-o", "json"), 0);
        assert_non_null(strstr(out_text, "\"subject\": \"harbour\""));
        assert_non_null(strstr(out_text, "\"ca\": true"));
        assert_non_null(strstr(out_text, "\"days_left\": 3649"));
}

int main(void)
{
#define T(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
        const struct CMUnitTest tests[] = {
                T(a_ca_is_made_once_and_its_key_is_private),
                T(certificates_carry_who_they_are_for),
                T(bad_wishes_are_refused_and_nothing_is_written),
                T(a_renewal_changes_the_dates_and_nothing_else),
                T(show_says_when_it_ends),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
