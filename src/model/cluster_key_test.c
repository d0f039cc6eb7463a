/* model/cluster_key_test.c: the key's file: what is read, what is refused, what is derived
 * (A13). */
#include "base/file.h"
#include "model/cluster_key.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define KEY "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define PREVIOUS "1f1e1d1c1b1a191817161514131211100f0e0d0c0b0a09080706050403020100"

static int parse(const char *text, struct cluster_key *k)
{
        struct err err = { 0 };
        int r = cluster_key_parse(text, strlen(text), k, &err);
        assert_null(strstr(err_line(&err), "0001")); /* never the key */
        return r;
}

/* R: A13: derived as for ever: HKDF-SHA256, no salt, what it is for as the info. */
static void what_is_derived_is_the_same_for_ever(void **state)
{
        (void)state;
        struct cluster_key k;
        struct warrant_keys w;
        struct err err = { 0 };
        static const uint8_t warrant[] = { 0x6b, 0x8a, 0xf9, 0x7f, 0x3c, 0xea, 0x0c, 0xb2 };
        assert_int_equal(parse("key " KEY "\nprevious " PREVIOUS "\n", &k), 0);
        assert_string_equal(k.fingerprint, "83e20b63782c38055aa52cebda762eb7");
        assert_string_equal(k.before, "a5644bf8404dc23784fa3ace8f7b1716");
        assert_int_equal(cluster_key_warrants(&k, &w, &err), 0);
        assert_true(w.has && w.has_previous);
        assert_memory_equal(w.key, warrant, sizeof(warrant));
        assert_memory_not_equal(w.key, w.previous, sizeof(w.key));
}

/* R: A13 A9 */
static void a_file_with_mistakes_is_refused(void **state)
{
        (void)state;
        static const char *const bad[] = {
                "",
                "\n",
                "key",
                "key \n",
                "key " KEY "00\n",
                "key 0\n",
                "key G00102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n",
                "key " KEY "\nkey " KEY "\n",
                "previous " KEY "\n",
                "key " KEY "\nprevious " KEY "\nprevious " KEY "\n",
                "key " KEY "\nwhat 1\n",
                "key " KEY "\nreplaces 12\n",
                "key " KEY "\nreplaces 0123456789abcdef0123456789abcdeg\n",
                "key " KEY "\nprevious " KEY "\nreplaces 0123456789abcdef0123456789abcdef\n"
        };
        struct cluster_key k = { .fingerprint = "as it was" };
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                assert_int_equal(parse(bad[i], &k), -ERR_INVALID);
                assert_string_equal(k.fingerprint, "as it was");
        }
        char *large = malloc(CLUSTER_KEY_MAX_BYTES + 2);
        memset(large, '\n', CLUSTER_KEY_MAX_BYTES + 1);
        large[CLUSTER_KEY_MAX_BYTES + 1] = 0;
        assert_int_equal(parse(large, &k), -ERR_INVALID);
        free(large);
        assert_int_equal(parse("# a note\n\nkey " KEY, &k), 0);
}

/* R: A13 */
static void what_was_made_is_read_back_and_fits_its_cluster_and_the_one_before(void **state)
{
        (void)state;
        struct cluster_key first, next, lost, read;
        struct err err = { 0 };
        assert_int_equal(cluster_key_make(NULL, NULL, &first, &err), 0);
        assert_int_equal(cluster_key_make(&first, NULL, &next, &err), 0);
        assert_int_equal(cluster_key_make(NULL, first.fingerprint, &lost, &err), 0);
        assert_true(cluster_key_fits(&first, "") && cluster_key_fits(&first, first.fingerprint));
        /* a server that was not given the next one */
        assert_false(cluster_key_fits(&first, next.fingerprint));
        assert_true(cluster_key_fits(&next, first.fingerprint) &&
                    cluster_key_fits(&next, next.fingerprint));
        assert_true(cluster_key_fits(&lost, first.fingerprint));
        assert_false(cluster_key_fits(&lost, next.fingerprint));
        struct cluster_key *all[] = { &first, &next, &lost };
        for (size_t i = 0; i < ARRAY_LEN(all); i++) {
                struct str text = STR_INIT;
                cluster_key_text(all[i], &text);
                assert_int_equal(cluster_key_parse(str_c(&text), text.len, &read, &err), 0);
                assert_memory_equal(&read, all[i], sizeof(read));
                str_fini(&text);
        }
}

/* R: A13 */
static void a_file_that_others_can_read_is_refused(void **state)
{
        (void)state;
        char dir[] = "/tmp/cluster-key-XXXXXX";
        char path[64];
        struct cluster_key made, read;
        struct err err = { 0 };
        struct stat st;
        assert_non_null(mkdtemp(dir));
        snprintf(path, sizeof(path), "%s/%s", dir, CLUSTER_KEY_FILE);
        assert_int_equal(cluster_key_load(dir, &read, &err), -ERR_NOT_FOUND);
        assert_int_equal(cluster_key_make(NULL, NULL, &made, &err), 0);
        assert_int_equal(cluster_key_save(dir, &made, &err), 0);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        assert_int_equal(cluster_key_load(dir, &read, &err), 0);
        assert_memory_equal(&made, &read, sizeof(made));
        assert_int_equal(chmod(path, 0640), 0);
        assert_int_equal(cluster_key_load(dir, &read, &err), -ERR_DENIED);
        assert_non_null(strstr(err.hint, "chmod 600"));
        assert_int_equal(dir_remove(dir, &err), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_is_derived_is_the_same_for_ever),
                cmocka_unit_test(a_file_with_mistakes_is_refused),
                cmocka_unit_test(
                    what_was_made_is_read_back_and_fits_its_cluster_and_the_one_before),
                cmocka_unit_test(a_file_that_others_can_read_is_refused),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
