/* base/file_test.c: what must hold for files and directories. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char top[256]; /* a directory for each test, removed after it */

static int make_top(void **state _unused_)
{
        const char *tmp = getenv("TMPDIR");

        snprintf(top, sizeof(top), "%s/berth-file-XXXXXX", tmp && *tmp ? tmp : "/tmp");
        return mkdtemp(top) ? 0 : -1;
}

static int remove_top(void **state _unused_)
{
        return dir_remove(top, NULL);
}

static const char *in_top(const char *name)
{
        return fmt("%s/%s", top, name);
}

static int entries(const char *path)
{
        DIR *d = opendir(path);
        int n = 0;

        assert_non_null(d);
        while (readdir(d))
                n++;
        closedir(d);
        return n - 2;
}

static void what_is_written_is_read(void **state _unused_)
{
        _cleanup_(str_finip) struct str s = STR_INIT;
        struct stat st;
        struct err err;

        umask(077); /* must not matter */
        assert_int_equal(file_write_atomic(in_top("a"), "one\0two", 7, 0640, &err), 0);
        assert_int_equal(stat(in_top("a"), &st), 0);
        assert_int_equal(st.st_mode & 07777, 0640);
        str_adds(&s, "before ");
        assert_int_equal(file_read(in_top("a"), 7, &s, &err), 0);
        assert_int_equal(s.len, 14);
        assert_memory_equal(s.buf, "before one\0two", 15);
        assert_int_equal(file_write_atomic(in_top("a"), NULL, 0, 0600, &err), 0);
        str_clear(&s);
        assert_int_equal(file_read(in_top("a"), 0, &s, &err), 0);
        assert_string_equal(str_c(&s), "");
        assert_int_equal(entries(top), 1);
        assert_true(file_exists(in_top("a")) && !file_exists(in_top("b")));
}

static void large_files_come_whole(void **state _unused_)
{
        size_t len = 3 * 1000 * 1000 + 7;
        _cleanup_(mem_freep) char *data = mem_must(len);
        _cleanup_(str_finip) struct str s = STR_INIT;
        struct err err;

        for (size_t i = 0; i < len; i++)
                data[i] = (char)(i * 31 >> 5);
        assert_int_equal(file_write_atomic(in_top("a"), data, len, 0600, &err), 0);
        assert_int_equal(file_read(in_top("a"), SIZE_MAX, &s, &err), 0);
        assert_int_equal(s.len, len);
        assert_memory_equal(s.buf, data, len);
}

/* R: A9 A11 */
static void a_file_beyond_the_limit_is_refused(void **state _unused_)
{
        _cleanup_(str_finip) struct str s = STR_INIT;
        struct err err;

        assert_int_equal(file_write_atomic(in_top("a"), "12345678", 8, 0600, &err), 0);
        str_adds(&s, "kept");
        assert_int_equal(file_read(in_top("a"), 7, &s, &err), -ERR_LIMIT);
        assert_non_null(strstr(err.detail, "7 bytes"));
        assert_string_equal(s.buf, "kept");
        /* One that does not tell its size. */
        assert_int_equal(file_read("/proc/self/status", 10, &s, &err), -ERR_LIMIT);
        assert_string_equal(s.buf, "kept");
        assert_int_equal(file_read("/proc/self/status", 1 << 20, &s, &err), 0);
        assert_true(str_starts(s.buf, "keptName:"));
        assert_int_equal(file_read("/dev/zero", 100000, &s, &err), -ERR_LIMIT);
}

static void faults_are_named(void **state _unused_)
{
        _cleanup_(str_finip) struct str s = STR_INIT;
        struct err err;
        char long_name[5000];

        assert_int_equal(file_read(in_top("none"), 10, &s, &err), -ERR_NOT_FOUND);
        assert_non_null(strstr(err.msg, in_top("none")));
        assert_int_equal(file_read(top, 10, &s, &err), -ERR_IO);
        assert_string_equal(err.detail, "Is a directory");
        assert_int_equal(file_write_atomic(in_top("no/dir"), "x", 1, 0600, &err), -ERR_NOT_FOUND);
        memset(long_name, 'x', sizeof(long_name) - 1);
        long_name[sizeof(long_name) - 1] = '\0';
        assert_int_equal(file_write_atomic(long_name, "x", 1, 0600, &err), -ERR_IO);
        assert_int_equal(dir_make(long_name, 0700, &err), -ERR_IO);
        assert_int_equal(dir_make("", 0700, &err), -ERR_NOT_FOUND);
        assert_int_equal(file_read(in_top("none"), 10, &s, NULL), -ERR_NOT_FOUND);
}

static void a_write_that_fails_leaves_the_old_and_nothing_else(void **state _unused_)
{
        struct err err;

        assert_int_equal(dir_make(in_top("d/full"), 0700, &err), 0);
        assert_int_equal(file_write_atomic(in_top("d"), "x", 1, 0600, &err), -ERR_IO);
        assert_int_equal(entries(top), 1);
        assert_int_equal(entries(in_top("d")), 1);
}

static void a_name_without_a_directory_works(void **state _unused_)
{
        char *before = getcwd(NULL, 0);
        struct err err;

        assert_int_equal(chdir(top), 0);
        assert_int_equal(file_write_atomic("here", "x", 1, 0600, &err), 0);
        assert_int_equal(dir_make("a/b//c/", 0755, &err), 0);
        assert_int_equal(chdir(before), 0);
        free(before);
        assert_true(file_exists(in_top("here")) && file_exists(in_top("a/b/c")));
}

static void directories_are_made_with_parents_and_once(void **state _unused_)
{
        struct err err;

        assert_int_equal(dir_make(in_top("a/b/c"), 0700, &err), 0);
        assert_int_equal(dir_make(in_top("a/b/c"), 0700, &err), 0);
        assert_int_equal(dir_make(in_top("a/b/c/"), 0700, &err), 0);
        assert_int_equal(dir_make("/", 0700, &err), 0);
        assert_int_equal(file_write_atomic(in_top("f"), "x", 1, 0600, &err), 0);
        assert_int_equal(dir_make(in_top("f"), 0700, &err), -ERR_IO);
        assert_int_equal(dir_make(in_top("f/g"), 0700, &err), -ERR_IO);
        assert_string_equal(err.detail, "Not a directory");
}

static void a_tree_is_removed_and_links_are_not_followed(void **state _unused_)
{
        struct err err;

        assert_int_equal(dir_make(in_top("keep"), 0700, &err), 0);
        assert_int_equal(file_write_atomic(in_top("keep/me"), "x", 1, 0600, &err), 0);
        assert_int_equal(dir_make(in_top("t/a/b"), 0700, &err), 0);
        for (int i = 0; i < 500; i++)
                assert_int_equal(close(open(fmt("%s/t/a/%d", top, i), O_CREAT | O_WRONLY, 0600)),
                                 0);
        assert_int_equal(symlink(in_top("keep"), in_top("t/link")), 0);
        assert_int_equal(symlink(in_top("keep"), in_top("link")), 0);
        assert_int_equal(dir_remove(in_top("t"), &err), 0);
        assert_int_equal(dir_remove(in_top("link"), &err), 0);
        assert_int_equal(dir_remove(in_top("t"), &err), 0);
        assert_int_equal(dir_remove(in_top("t/of/nothing"), &err), 0);
        assert_int_equal(entries(top), 1);
        assert_true(file_exists(in_top("keep/me")));
        assert_int_equal(dir_remove(in_top("keep/me"), &err), 0);
        assert_int_equal(entries(in_top("keep")), 0);
}

static void a_bottomless_tree_is_refused(void **state _unused_)
{
        struct str path = STR_INIT;
        struct err err;

        str_addf(&path, "%s/deep", top);
        for (int i = 0; i < 140; i++)
                str_adds(&path, "/d");
        assert_int_equal(dir_make(path.buf, 0700, &err), 0);
        assert_int_equal(dir_remove(in_top("deep"), &err), -ERR_IO);
        /* From nearer to the bottom it works. */
        assert_int_equal(dir_remove(in_top("deep/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d"), &err),
                         0);
        assert_int_equal(dir_remove(in_top("deep"), &err), 0);
        str_fini(&path);
}

static void a_descriptor_is_closed_once(void **state _unused_)
{
        int fd = open("/dev/null", O_RDONLY), copy = fd;

        assert_int_equal(fd_nonblock(fd), 0);
        assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
        fd_closep(&fd);
        assert_int_equal(fd, -1);
        fd_closep(&fd);
        assert_int_equal(fd_nonblock(copy), -1);
}

int main(void)
{
#define file_test(f) cmocka_unit_test_setup_teardown(f, make_top, remove_top)
        const struct CMUnitTest tests[] = {
                file_test(what_is_written_is_read),
                file_test(large_files_come_whole),
                file_test(a_file_beyond_the_limit_is_refused),
                file_test(faults_are_named),
                file_test(a_write_that_fails_leaves_the_old_and_nothing_else),
                file_test(a_name_without_a_directory_works),
                file_test(directories_are_made_with_parents_and_once),
                file_test(a_tree_is_removed_and_links_are_not_followed),
                file_test(a_bottomless_tree_is_refused),
                file_test(a_descriptor_is_closed_once),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
