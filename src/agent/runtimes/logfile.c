/* agent/runtimes/logfile.c: see logfile.h. */
#include "agent/runtimes/logfile.h"
#include "base/clock.h"
#include "base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static int open_current(struct log_writer *w)
{
        struct stat st;

        w->fd = open(w->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
        if (w->fd < 0)
                return -1;
        w->size_bytes = fstat(w->fd, &st) == 0 ? st.st_size : 0;
        return 0;
}

int log_writer_open(struct log_writer *w, const char *dir, int64_t max_kb, struct err *err)
{
        *w = (struct log_writer){ .fd = -1 };
        if (max_kb <= 0)
                max_kb = LOG_DEFAULT_KB;
        if (max_kb < LOG_MIN_KB)
                max_kb = LOG_MIN_KB;
        w->half_bytes = max_kb * 1024 / 2;
        w->path = mem_strdup(fmt("%s/" LOG_NAME, dir));
        w->old_path = mem_strdup(fmt("%s/" LOG_OLD_NAME, dir));
        if (open_current(w) < 0) {
                int saved = errno;

                err_sys(err, saved, fmt("cannot open %s", w->path));
                log_writer_close(w);
                return -ERR_IO;
        }
        return 0;
}

void log_writer_close(struct log_writer *w)
{
        if (w->fd >= 0) {
                log_writer_flush(w, clock_wall_ms());
                close(w->fd);
        }
        w->fd = -1;
        mem_free(w->path);
        mem_free(w->old_path);
        str_fini(&w->partial[0]);
        str_fini(&w->partial[1]);
        w->path = w->old_path = NULL;
}

static void rotate(struct log_writer *w)
{
        if (w->fd >= 0)
                close(w->fd);
        w->fd = -1;
        if (rename(w->path, w->old_path) < 0)
                unlink(w->path); /* bounded comes before complete */
        open_current(w);
}

static void put_record(struct log_writer *w, bool is_stderr, bool full, int64_t now_ms,
                       const char *text, size_t len)
{
        char time[TIME_TEXT_LEN], head[TIME_TEXT_LEN + 16];
        int head_len = snprintf(head, sizeof(head), "%s %s %c ", time_format(time, now_ms),
                                is_stderr ? "stderr" : "stdout", full ? 'F' : 'P');
        struct iovec parts[] = { { head, (size_t)head_len },
                                 { (void *)(uintptr_t)text, len },
                                 { (void *)(uintptr_t) "\n", 1 } };
        int64_t total = head_len + (int64_t)len + 1;

        if (w->size_bytes > 0 && w->size_bytes + total > w->half_bytes)
                rotate(w);
        if (w->fd < 0 && open_current(w) < 0) {
                w->lost++;
                return;
        }
        if (writev(w->fd, parts, 3) == total) {
                w->size_bytes += total;
                return;
        }
        w->lost++;
        if (ftruncate(w->fd, w->size_bytes) < 0) /* half a record would spoil the next one */
                w->size_bytes = w->half_bytes;
}

void log_writer_add(struct log_writer *w, bool is_stderr, int64_t now_ms, const void *data,
                    size_t len)
{
        struct str *partial = &w->partial[is_stderr];
        const char *p = data, *end = p + len;

        while (p < end) {
                const char *nl = memchr(p, '\n', (size_t)(end - p));
                size_t n = (size_t)((nl ? nl : end) - p), room = LOG_LINE_MAX - partial->len;
                bool cut = n > room;

                if (cut)
                        n = room;
                if (nl && !cut && partial->len == 0)
                        put_record(w, is_stderr, true, now_ms, p, n);
                else {
                        str_add(partial, p, n);
                        if (cut || nl) {
                                put_record(w, is_stderr, !cut, now_ms, str_c(partial),
                                           partial->len);
                                str_clear(partial);
                        }
                }
                p += n + (nl && !cut ? 1 : 0);
        }
}

void log_writer_flush(struct log_writer *w, int64_t now_ms)
{
        for (int i = 0; i < 2; i++)
                if (w->partial[i].len) {
                        put_record(w, i == 1, false, now_ms, str_c(&w->partial[i]),
                                   w->partial[i].len);
                        str_clear(&w->partial[i]);
                }
}

bool log_record_parse(const char *line, size_t len, struct log_record *ret)
{
        const char *sp = memchr(line, ' ', len);
        size_t at;

        if (!sp || time_parse(line, (size_t)(sp - line), &ret->timestamp_ms) < 0)
                return false;
        at = (size_t)(sp - line) + 1;
        if (len < at + 9 || line[at + 6] != ' ' || line[at + 8] != ' ')
                return false;
        ret->is_stderr = memcmp(line + at, "stderr", 6) == 0;
        if (!ret->is_stderr && memcmp(line + at, "stdout", 6) != 0)
                return false;
        ret->full = line[at + 7] == 'F';
        ret->text = line + at + 9;
        ret->len = len - at - 9;
        return true;
}
