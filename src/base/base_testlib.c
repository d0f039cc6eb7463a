/* base/base_testlib.c: see base_testlib.h. */
#include "base/base_testlib.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define SAID_MAX 512
#define RETURNED 255 /* no program of berth ends with this */

/* What waitpid() says of it. */
static int run(void (*fn)(void), char *ret_said, size_t size)
{
        char rest[256];
        int ends[2], status;
        size_t len = 0;
        ssize_t n;

        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
                signal(SIGABRT, SIG_DFL);
                dup2(ends[1], STDERR_FILENO);
                fn();
                _exit(RETURNED);
        }
        close(ends[1]);
        while (len < size - 1 && (n = read(ends[0], ret_said + len, size - 1 - len)) > 0)
                len += (size_t)n;
        ret_said[len] = '\0';
        /* a full pipe would hold it up, and a closed one kill it */
        while (read(ends[0], rest, sizeof(rest)) > 0)
                ;
        close(ends[0]);
        assert_int_equal(waitpid(child, &status, 0), child);
        return status;
}

void assert_aborts(void (*fn)(void), const char *text)
{
        char said[SAID_MAX];
        int status = run(fn, said, sizeof(said));

        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !strstr(said, text))
                fail_msg("wait status %#x instead of an abort with \"%s\"; it said: %s",
                         (unsigned)status, text, said);
}

int exit_status_of(void (*fn)(void), char *ret_said, size_t size)
{
        int status = run(fn, ret_said, size);

        if (!WIFEXITED(status) || WEXITSTATUS(status) == RETURNED)
                fail_msg("wait status %#x instead of an exit; it said: %s", (unsigned)status,
                         ret_said);
        return WEXITSTATUS(status);
}
