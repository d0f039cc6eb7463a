/* base/file.c: whole files.
 *
 * A file is replaced by writing a new one beside it, syncing it, renaming it over the old one and
 * syncing the directory: without the first sync a crash may leave an empty file under the right
 * name, without the second the old one may come back.
 */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_STEP_BYTES ((size_t)64 * 1024)
#define DEPTH_MAX 128 /* directories within directories: one descriptor each */
#define PASSES_MAX 8  /* over a directory that others still write to */

static int path_error(struct err *err, int errnum, const char *doing, const char *path)
{
        const char *msg = fmt("cannot %s %s", doing, path);

        if (errnum == ENOENT)
                return err_set(err, ERR_NOT_FOUND, .msg = msg,
                               .detail = "no such file or directory");
        /* says nothing about the file */
        if (errnum == EMFILE || errnum == ENFILE || errnum == ENOMEM)
                return err_set(err, ERR_NOMEM, .msg = msg, .detail = strerror(errnum),
                               .hint =
                                   "allow the process more open files (ulimit -n, LimitNOFILE)");
        return err_sys(err, errnum, msg);
}

static int too_large(const char *path, size_t max_bytes, struct err *err)
{
        return err_set(err, ERR_LIMIT, .msg = fmt("%s is too large", path),
                       .detail = fmt("the limit is %zu bytes", max_bytes));
}

/* Reads to the end or to max_bytes + 1 bytes, whichever comes first. Sizes are not trusted: /proc
 * says 0, and files grow. */
static int read_all(int fd, const char *path, size_t max_bytes, struct str *s, struct err *err)
{
        size_t start = s->len;

        for (;;) {
                size_t have = s->len - start;
                size_t step = READ_STEP_BYTES;
                if (step > max_bytes - have)
                        step = max_bytes - have + 1;
                str_reserve(s, step);
                ssize_t n = read(fd, s->buf + s->len, step);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return path_error(err, errno, "read", path);
                if (n == 0)
                        return 0;
                if ((size_t)n > max_bytes - have)
                        return too_large(path, max_bytes, err);
                s->len += (size_t)n;
                s->buf[s->len] = '\0';
        }
}

int file_read(const char *path, size_t max_bytes, struct str *ret, struct err *err)
{
        _cleanup_(fd_closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
        struct stat st;
        size_t start = ret->len;

        if (fd < 0)
                return path_error(err, errno, "open", path);
        if (max_bytes >= PTRDIFF_MAX)
                max_bytes = PTRDIFF_MAX - 1;
        /* Only a hint, to be quick with large files and to refuse too large ones before reading
         * them. */
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
                if ((uint64_t)st.st_size > max_bytes)
                        return too_large(path, max_bytes, err);
                str_reserve(ret, (size_t)st.st_size + 1);
        }
        int r = read_all(fd, path, max_bytes, ret, err);
        if (r < 0) {
                ret->len = start;
                if (ret->buf)
                        ret->buf[start] = '\0';
        }
        return r;
}

static int write_all(int fd, const char *data, size_t len)
{
        while (len > 0) {
                ssize_t n = write(fd, data, len);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -1;
                data += n;
                len -= (size_t)n;
        }
        return 0;
}

static int sync_parent(const char *path, struct err *err)
{
        const char *slash = strrchr(path, '/');
        char dir[PATH_MAX];

        /* The caller has opened a longer name beside path, so this one fits. */
        if (slash)
                snprintf(dir, sizeof(dir), "%.*s", slash == path ? 1 : (int)(slash - path), path);
        else
                strcpy(dir, ".");
        _cleanup_(fd_closep) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || fsync(fd) < 0)
                return path_error(err, errno, "sync the directory", dir);
        return 0;
}

int file_write_atomic(const char *path, const void *data, size_t len, unsigned mode,
                      struct err *err)
{
        char beside[PATH_MAX];

        if (snprintf(beside, sizeof(beside), "%s.XXXXXX", path) >= (int)sizeof(beside))
                return path_error(err, ENAMETOOLONG, "write", path);
        _cleanup_(fd_closep) int fd = mkostemp(beside, O_CLOEXEC);
        if (fd < 0)
                return path_error(err, errno, "create a file beside", path);
        if (write_all(fd, data, len) < 0 || fchmod(fd, (mode_t)mode) < 0 || fsync(fd) < 0 ||
            rename(beside, path) < 0) {
                int errnum = errno;
                unlink(beside);
                return path_error(err, errnum, "write", path);
        }
        return sync_parent(path, err);
}

int dir_make(const char *path, unsigned mode, struct err *err)
{
        char part[PATH_MAX];
        size_t len = strlen(path);
        struct stat st;

        if (len == 0 || len >= sizeof(part))
                return path_error(err, len ? ENAMETOOLONG : ENOENT, "create the directory", path);
        memcpy(part, path, len + 1);
        for (size_t i = 1; i <= len; i++) {
                if (part[i] != '/' && part[i] != '\0')
                        continue;
                part[i] = '\0';
                /* Some systems say EACCES or EROFS of a directory that exists: what counts is that
                 * it is there at the end. */
                int errnum = mkdir(part, (mode_t)mode) < 0 ? errno : 0;
                if (errnum && (stat(part, &st) < 0 || !S_ISDIR(st.st_mode)))
                        return path_error(err, errnum == EEXIST ? ENOTDIR : errnum,
                                          "create the directory", part);
                part[i] = i < len ? '/' : '\0';
        }
        return 0;
}

static int remove_entries(int parent_fd, const char *name, unsigned depth);

/* Removes one entry of the directory, whatever it is. A link is removed, never followed. */
static int remove_entry(int dir_fd, const char *name, unsigned depth)
{
        if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
                return 0;
        if (errno != EISDIR && errno != EPERM)
                return -1;
        int unlink_errno = errno;
        if (remove_entries(dir_fd, name, depth) == 0)
                return 0;
        /* not a directory after all: what unlink said is the reason */
        if (errno == ENOTDIR || errno == ELOOP)
                errno = unlink_errno;
        return -1;
}

static int remove_pass(DIR *dir, unsigned depth)
{
        struct dirent *e;

        while ((errno = 0, e = readdir(dir)))
                if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
                    remove_entry(dirfd(dir), e->d_name, depth + 1) < 0)
                        return -1;
        return errno ? -1 : 0;
}

static int remove_entries(int parent_fd, const char *name, unsigned depth)
{
        if (depth > DEPTH_MAX) {
                errno = ELOOP;
                return -1;
        }
        int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return errno == ENOENT ? 0 : -1;
        DIR *dir = fdopendir(fd);
        if (!dir) {
                int errnum = errno;
                close(fd);
                errno = errnum;
                return -1;
        }
        int r = -1, errnum = 0;
        /* Entries may be missed while others are removed, so the directory is read again while it
         * says that it is not empty. */
        for (unsigned pass = 0; pass < PASSES_MAX && r < 0; pass++) {
                rewinddir(dir);
                if (remove_pass(dir, depth) < 0) {
                        errnum = errno;
                        break;
                }
                if (unlinkat(parent_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
                        r = 0;
                else if ((errnum = errno) != ENOTEMPTY && errnum != EEXIST)
                        break;
        }
        closedir(dir);
        errno = errnum;
        return r;
}

int dir_remove(const char *path, struct err *err)
{
        if (remove_entry(AT_FDCWD, path, 0) < 0)
                return path_error(err, errno, "remove", path);
        return 0;
}

bool file_exists(const char *path)
{
        return access(path, F_OK) == 0;
}

int fd_nonblock(int fd)
{
        int flags = fcntl(fd, F_GETFL);

        return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -1 : 0;
}
