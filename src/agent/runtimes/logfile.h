/* agent/runtimes/logfile.h: what a unit prints, kept in two files of bounded size.
 *
 * One record per line, as container runtimes write them:
 *
 *      2026-02-17T00:00:00.123Z stdout F text of the line
 *      2026-02-17T00:00:00.124Z stderr P a piece of a line longer than LOG_LINE_MAX, or not yet
 *      ended when its writer fell silent
 *
 * F: the text ended with a newline, which is not kept. P: it did not. output.log is written; when
 * it would grow beyond half of log_max_kb it becomes output.log.1 (the old one is dropped), so both
 * together never exceed log_max_kb.
 */
#ifndef BERTH_AGENT_LOGFILE_H
#define BERTH_AGENT_LOGFILE_H

#include "base/err.h"
#include "base/str.h"

#define LOG_LINE_MAX 8192
#define LOG_DEFAULT_KB 10240
#define LOG_MIN_KB 32
#define LOG_NAME "output.log"
#define LOG_OLD_NAME "output.log.1"

struct log_writer {
        char *path, *old_path;
        int fd;
        int64_t size_bytes, half_bytes;
        struct str partial[2]; /* stdout, stderr: what has come of the current line */
        uint64_t lost;         /* records that could not be written */
};

/* appends to what is there */
int log_writer_open(struct log_writer *w, const char *dir, int64_t max_kb, struct err *err);
/* with what is still partial */
void log_writer_close(struct log_writer *w);
/* Never fails and never blocks for long: what the disk does not take is dropped and counted. */
void log_writer_add(struct log_writer *w, bool is_stderr, int64_t now_ms, const void *data,
                    size_t len);
void log_writer_flush(struct log_writer *w, int64_t now_ms); /* partial lines, as P */
static inline bool log_writer_has_partial(const struct log_writer *w)
{
        return w->partial[0].len || w->partial[1].len;
}

struct log_record {
        int64_t timestamp_ms;
        bool is_stderr, full;
        const char *text;
        size_t len;
};
/* One record (without its newline). False: not in the format. */
bool log_record_parse(const char *line, size_t len, struct log_record *ret);

#endif
