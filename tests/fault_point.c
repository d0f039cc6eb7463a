/* tests/fault_point.c: see fault_point.h. */
#undef _FILE_OFFSET_BITS /* open and open64 are two functions here */
#undef _FORTIFY_SOURCE
#include "fault_point.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define PUBLIC __attribute__((visibility("default")))

static _Atomic uint64_t left[_FAULT_KINDS];
static _Atomic(const char *) fired;
static _Thread_local bool spared;

void fault_spare_this_thread(void)
{
        spared = true;
}

void fault_arm(enum fault_kind kind, uint64_t nth)
{
        atomic_store(&fired, NULL);
        atomic_store(&left[kind], nth);
}

const char *fault_disarm(void)
{
        for (int k = 0; k < _FAULT_KINDS; k++)
                atomic_store(&left[k], 0);
        return atomic_load(&fired);
}

static bool fails(enum fault_kind kind, const char *name)
{
        uint64_t n = atomic_load_explicit(&left[kind], memory_order_relaxed);
        if (spared)
                return false;
        while (n > 0)
                if (atomic_compare_exchange_weak(&left[kind], &n, n - 1)) {
                        if (n == 1)
                                atomic_store(&fired, name);
                        return n == 1;
                }
        return false;
}

/* ---- calls ---- */

enum what { READS, WRITES };

static bool is_real(int fd, bool *ret_socket)
{
        struct stat st;
        int saved = errno;
        bool ok = fd > 2 && fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISSOCK(st.st_mode));
        *ret_socket = ok && S_ISSOCK(st.st_mode);
        errno = saved;
        return ok;
}

/* True, with errno: this call fails. */
static bool call_fails(int fd, enum what what, const char *name)
{
        bool on_socket;
        if (spared ||
            (!atomic_load_explicit(&left[FAULT_CALL], memory_order_relaxed) &&
             !atomic_load_explicit(&left[FAULT_INTERRUPT], memory_order_relaxed)) ||
            !is_real(fd, &on_socket))
                return false;
        if (fails(FAULT_INTERRUPT, name)) {
                errno = EINTR;
                return true;
        }
        if (!fails(FAULT_CALL, name))
                return false;
        errno = on_socket ? (what == READS ? ECONNRESET : EPIPE) : what == READS ? EIO : ENOSPC;
        return true;
}

static bool path_fails(const char *name, int error)
{
        if (fails(FAULT_INTERRUPT, name))
                errno = EINTR;
        else if (fails(FAULT_CALL, name))
                errno = error;
        else
                return false;
        return true;
}

#define NEXT(name)                                                                                 \
        static __typeof__(name) *real;                                                             \
        if (!real)                                                                                 \
        real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define DATA_CALL(type, name, what, params, args)                                                  \
        PUBLIC type name params                                                                    \
        {                                                                                          \
                NEXT(name);                                                                        \
                return call_fails(fd, what, #name) ? -1 : real args;                               \
        }

DATA_CALL(ssize_t, read, READS, (int fd, void *buf, size_t n), (fd, buf, n))
DATA_CALL(ssize_t, pread64, READS, (int fd, void *buf, size_t n, off64_t at), (fd, buf, n, at))
DATA_CALL(ssize_t, readv, READS, (int fd, const struct iovec *v, int n), (fd, v, n))
DATA_CALL(ssize_t, recv, READS, (int fd, void *buf, size_t n, int flags), (fd, buf, n, flags))
DATA_CALL(ssize_t, write, WRITES, (int fd, const void *buf, size_t n), (fd, buf, n))
DATA_CALL(ssize_t, pwrite64, WRITES, (int fd, const void *buf, size_t n, off64_t at),
          (fd, buf, n, at))
DATA_CALL(ssize_t, writev, WRITES, (int fd, const struct iovec *v, int n), (fd, v, n))
DATA_CALL(ssize_t, send, WRITES, (int fd, const void *buf, size_t n, int flags),
          (fd, buf, n, flags))
DATA_CALL(int, ftruncate64, WRITES, (int fd, off64_t size), (fd, size))

PUBLIC int fdatasync(int fd)
{
        NEXT(fdatasync);
        if (!fails(FAULT_CALL, "fdatasync"))
                return real(fd);
        errno = EIO;
        return -1;
}

PUBLIC int fsync(int fd)
{
        NEXT(fsync);
        if (!fails(FAULT_CALL, "fsync"))
                return real(fd);
        errno = EIO;
        return -1;
}

PUBLIC int syncfs(int fd)
{
        NEXT(syncfs);
        if (!fails(FAULT_CALL, "syncfs"))
                return real(fd);
        errno = EIO;
        return -1;
}

PUBLIC int accept4(int fd, __SOCKADDR_ARG addr, socklen_t *restrict len, int flags)
{
        NEXT(accept4);
        return path_fails("accept4", EMFILE) ? -1 : real(fd, addr, len, flags);
}

PUBLIC int rename(const char *from, const char *to)
{
        static int (*real)(const char *, const char *);
        if (!real)
                real = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
        return path_fails("rename", ENOSPC) ? -1 : real(from, to);
}

PUBLIC int link(const char *from, const char *to)
{
        NEXT(link);
        return path_fails("link", ENOSPC) ? -1 : real(from, to);
}

#define OPEN_CALL(name)                                                                            \
        PUBLIC int name(const char *path, int flags, ...)                                          \
        {                                                                                          \
                NEXT(name);                                                                        \
                va_list ap;                                                                        \
                va_start(ap, flags);                                                               \
                mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(ap, mode_t) : 0;            \
                va_end(ap);                                                                        \
                return path_fails(#name, EMFILE) ? -1 : real(path, flags, mode);                   \
        }
OPEN_CALL(open)
OPEN_CALL(open64)
