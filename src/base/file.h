/* base/file.h: files, whole and safe. */
#ifndef BERTH_BASE_FILE_H
#define BERTH_BASE_FILE_H

#include "base/err.h"
#include "base/str.h"

/* Appends, or leaves ret as it was. ERR_NOT_FOUND, ERR_LIMIT (more than max_bytes), ERR_NOMEM (no
 * memory or no file descriptor is left: that says nothing about the file), ERR_IO. */
int file_read(const char *path, size_t max_bytes, struct str *ret, struct err *err);
/* Written beside (path.XXXXXX, which a crash may leave behind), synced, renamed, directory synced:
 * old or new, never half. mode is exact, whatever the umask. */
int file_write_atomic(const char *path, const void *data, size_t len, unsigned mode,
                      struct err *err);
int dir_make(const char *path, unsigned mode, struct err *err); /* with parents; existing is fine */
/* with everything in it; missing is fine */
int dir_remove(const char *path, struct err *err);
bool file_exists(const char *path);
static inline void fd_closep(int *fd)
{
        extern int close(int);
        if (*fd >= 0)
                close(*fd);
        *fd = -1;
}
int fd_nonblock(int fd); /* 0 or -1 */

#endif
