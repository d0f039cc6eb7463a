/* agent/runtimes/logread.c: reading a unit's output, with tail and follow.
 *
 * The stream reads old file, then current file, a piece per turn of the loop; when the taker wants
 * no more it waits for resume() with nothing but one piece in memory. A follower at the end of the
 * file waits for inotify (one instance for all streams), moves on to the next file after a
 * rotation, and ends when the unit has ended and everything is read.
 */
#include "agent/runtimes/logfile.h"
#include "agent/runtimes/process_state.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE_BYTES 32768
#define POLL_MS 500 /* only where inotify has no room for us */

struct log_stream {
        struct stream stream; /* first: see the casts */
        struct runtime *rt;
        char *id, *dir;
        struct stream_sink sink;
        bool follow, paused, in_turn, closed;
        bool reading_old; /* output.log.1 first */
        int fd, wd;
        struct event *turn;
        struct str buf; /* read and not yet handed over */
        size_t at;
};

static struct log_stream *log_of(struct stream *s)
{
        return (struct log_stream *)s;
}

static void schedule(struct log_stream *s, int64_t ms)
{
        struct timeval tv = { ms / 1000, (ms % 1000) * 1000 };

        evtimer_add(s->turn, &tv);
}

/* ---- tail ---- */

/* Where the last want records of a file begin; ret_found: how many there are from there. */
static off_t tail_offset(int fd, int64_t want, int64_t *ret_found)
{
        char buf[PIECE_BYTES];
        struct stat st;
        off_t end;
        int64_t found = 0;

        *ret_found = 0;
        if (fstat(fd, &st) < 0 || want <= 0)
                return st.st_size;
        for (end = st.st_size; end > 0;) {
                size_t len = end < (off_t)sizeof(buf) ? (size_t)end : sizeof(buf);
                ssize_t n = pread(fd, buf, len, end - (off_t)len);

                if (n != (ssize_t)len)
                        return 0;
                for (size_t i = len; i > 0; i--) {
                        if (buf[i - 1] != '\n')
                                continue;
                        if (found == want) {
                                *ret_found = found;
                                return end - (off_t)len + (off_t)i;
                        }
                        found++;
                }
                end -= (off_t)len;
        }
        *ret_found = found;
        return 0;
}

static int open_log(const struct log_stream *s, const char *name)
{
        return open(fmt("%s/%s", s->dir, name), O_RDONLY | O_CLOEXEC);
}

static void open_at_tail(struct log_stream *s, int64_t tail)
{
        int64_t found = 0;
        off_t at = 0;
        int old;

        s->fd = open_log(s, LOG_NAME);
        if (tail >= 0 && s->fd >= 0)
                at = tail_offset(s->fd, tail, &found);
        if (tail < 0 || found < tail) {
                old = open_log(s, LOG_OLD_NAME);
                if (old >= 0) {
                        int64_t more = 0;
                        off_t old_at = tail < 0 ? 0 : tail_offset(old, tail - found, &more);

                        lseek(old, old_at, SEEK_SET);
                        if (s->fd >= 0)
                                /* opened again when the old one is read; its beginning is wanted
                                 * then */
                                close(s->fd);
                        s->fd = old;
                        s->reading_old = true;
                        return;
                }
        }
        if (s->fd >= 0)
                lseek(s->fd, at, SEEK_SET);
}

/* ---- the turn ---- */

static void unlink_stream(struct log_stream *s)
{
        struct runtime *rt = s->rt;
        bool shared = false;

        for (size_t i = 0; i < rt->logs.len; i++)
                if (rt->logs.at[i] == s) {
                        rt->logs.at[i] = rt->logs.at[--rt->logs.len];
                        break;
                }
        for (size_t i = 0; i < rt->logs.len; i++)
                shared = shared || rt->logs.at[i]->wd == s->wd;
        if (s->wd >= 0 && !shared)
                inotify_rm_watch(rt->inotify_fd, s->wd);
}

static void free_stream(struct log_stream *s)
{
        unlink_stream(s);
        event_free(s->turn);
        if (s->fd >= 0)
                close(s->fd);
        str_fini(&s->buf);
        mem_free(s->id);
        mem_free(s->dir);
        mem_free(s);
}

static void end_stream(struct log_stream *s, const char *error)
{
        struct stream_sink sink = s->sink;

        free_stream(s);
        sink.end(sink.ctx, false, 0, error);
}

/* Hands over whole records until the taker has enough. */
static void hand_over(struct log_stream *s)
{
        while (!s->paused && !s->closed && s->at < s->buf.len) {
                char *line = s->buf.buf + s->at, *nl = memchr(line, '\n', s->buf.len - s->at);
                struct log_record rec;
                bool more = true;

                if (!nl)
                        break;
                s->at += (size_t)(nl - line) + 1;
                if (log_record_parse(line, (size_t)(nl - line), &rec)) {
                        size_t len = rec.len;

                        /* its newline: in place of the record's own, right behind the text */
                        if (rec.full) {
                                *nl = '\n';
                                len++;
                        }
                        more = s->sink.data(s->sink.ctx, rec.is_stderr, rec.timestamp_ms, rec.text,
                                            len);
                }
                if (!more)
                        s->paused = true;
        }
        if (s->at > 0) {
                memmove(s->buf.buf, s->buf.buf + s->at, s->buf.len - s->at);
                s->buf.len -= s->at;
                s->at = 0;
        }
}

/* > 0: read something; 0: at the end of this file. */
static ssize_t read_piece(struct log_stream *s)
{
        char piece[PIECE_BYTES];
        ssize_t n = s->fd >= 0 ? read(s->fd, piece, sizeof(piece)) : 0;

        if (n > 0)
                str_add(&s->buf, piece, (size_t)n);
        return n;
}

static bool is_same_file(int a, int b)
{
        struct stat one, other;

        return a >= 0 && b >= 0 && fstat(a, &one) == 0 && fstat(b, &other) == 0 &&
               one.st_ino == other.st_ino && one.st_dev == other.st_dev;
}

/* At the end of what is open: is there a file after it? If what is open was rotated twice, it is
 * neither of the two that are there, and the older one of them comes next. What was dropped while
 * nobody read it is lost: the size of what is kept is bounded. */
static bool next_file(struct log_stream *s)
{
        _cleanup_(fd_closep) int current = open_log(s, LOG_NAME);
        _cleanup_(fd_closep) int old = -1;

        if (current < 0 || is_same_file(s->fd, current))
                return false;
        if (s->fd >= 0 && read_piece(s) > 0) /* written between our last read and the rotation */
                return true;
        old = open_log(s, LOG_OLD_NAME);
        s->reading_old = old >= 0 && !is_same_file(s->fd, old);
        fd_closep(&s->fd);
        s->fd = s->reading_old ? old : current;
        if (s->reading_old)
                old = -1;
        else
                current = -1;
        str_clear(&s->buf); /* a piece without an end, from a disk that was full */
        return true;
}

/* More may come: it runs, or it has been accepted and not been started yet. */
static bool is_live(const struct log_stream *s)
{
        if (process_find(s->rt, s->id))
                return true;
        return file_exists(s->dir) && !file_exists(fmt("%s/run.state", s->dir)) &&
               !file_exists(fmt("%s/exit.state", s->dir));
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
        struct log_stream *s = arg;
        bool live;

        (void)fd, (void)what;
        s->in_turn = true;
        hand_over(s);
        if (!s->closed && !s->paused) {
                live = is_live(s); /* asked before reading: what it wrote before its end is read */
                if (read_piece(s) > 0 || next_file(s))
                        schedule(s, 0);
                else if (!s->follow || !live) {
                        s->in_turn = false;
                        end_stream(s, NULL);
                        return;
                } else if (s->wd < 0)
                        schedule(s, POLL_MS);
        }
        s->in_turn = false;
        if (s->closed)
                free_stream(s);
}

/* ---- inotify ---- */

static void on_inotify(evutil_socket_t fd, short what, void *arg)
{
        struct runtime *rt = arg;
        char buf[8192] __attribute__((aligned(__alignof__(struct inotify_event))));
        ssize_t n;

        (void)what;
        while ((n = read(fd, buf, sizeof(buf))) > 0)
                for (char *p = buf; p < buf + n;) {
                        const struct inotify_event *ev = (const struct inotify_event *)p;

                        for (size_t i = 0; i < rt->logs.len; i++)
                                if (rt->logs.at[i]->wd == ev->wd && !rt->logs.at[i]->paused)
                                        schedule(rt->logs.at[i], 0);
                        p += sizeof(*ev) + ev->len;
                }
}

static void watch_dir(struct log_stream *s)
{
        struct runtime *rt = s->rt;

        if (rt->inotify_fd < 0) {
                rt->inotify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
                if (rt->inotify_fd < 0)
                        return;
                rt->inotify_event =
                    event_new(rt->base, rt->inotify_fd, EV_READ | EV_PERSIST, on_inotify, rt);
                event_add(rt->inotify_event, NULL);
        }
        s->wd =
            inotify_add_watch(rt->inotify_fd, s->dir,
                              IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_MOVE_SELF | IN_DELETE_SELF);
}

/* ---- the stream's operations ---- */

static void log_resume(struct stream *st)
{
        struct log_stream *s = log_of(st);

        if (!s->paused)
                return;
        s->paused = false;
        schedule(s, 0);
}

static bool log_write_nothing(struct stream *st, const void *data, size_t len)
{
        (void)st, (void)data, (void)len;
        return true;
}
static void log_eof_nothing(struct stream *st)
{
        (void)st;
}
static void log_resize_nothing(struct stream *st, int rows, int cols)
{
        (void)st, (void)rows, (void)cols;
}

static void log_close(struct stream *st)
{
        struct log_stream *s = log_of(st);

        if (s->in_turn)
                s->closed = true;
        else
                free_stream(s);
}

static const struct stream_ops log_ops = { log_resume,         log_write_nothing, log_eof_nothing,
                                           log_resize_nothing, log_close,         NULL };

int logread_open(struct runtime *rt, const char *workload_id, const struct log_options *opt,
                 const struct stream_sink *sink, struct stream **ret, struct err *err)
{
        const char *dir = fmt("%s/%s", rt->units_dir, workload_id);
        struct log_stream *s;

        if (workload_id[0] == '.' || strchr(workload_id, '/') || !file_exists(dir))
                return err_set(err, ERR_NOT_FOUND,
                               .msg = fmt("this node has no unit %s", workload_id));
        if (rt->logs.len >= LOG_STREAMS_MAX)
                return err_set(err, ERR_LIMIT, .msg = "too many log streams are open on this node",
                               .detail = fmt("the limit is %d", LOG_STREAMS_MAX));
        s = mem_must(sizeof(*s));
        s->stream.ops = &log_ops;
        s->rt = rt;
        s->id = mem_strdup(workload_id);
        s->dir = mem_strdup(dir);
        s->sink = *sink;
        s->follow = opt->follow;
        s->fd = s->wd = -1;
        s->turn = evtimer_new(rt->base, on_turn, s);
        *array_push(&rt->logs) = s;
        if (opt->follow)
                watch_dir(s);
        open_at_tail(s, opt->tail_lines);
        schedule(s, 0);
        *ret = &s->stream;
        return 0;
}

void logread_unit_ended(struct runtime *rt, const char *workload_id)
{
        for (size_t i = 0; i < rt->logs.len; i++)
                if (str_eq(rt->logs.at[i]->id, workload_id) && !rt->logs.at[i]->paused)
                        schedule(rt->logs.at[i], 0);
}

void logread_close_all(struct runtime *rt)
{
        while (rt->logs.len)
                free_stream(rt->logs.at[0]);
}
