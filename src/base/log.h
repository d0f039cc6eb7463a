/* base/log.h: structured logs, one line per fact, logfmt or JSON, to stderr.
 *
 *      log_info("node lost", LOG_S("node", id), LOG_I("silent_ms", ms), LOG_S("reason", why));
 *  gives   ts=2026-02-17T00:00:00.123Z level=info msg="node lost" node=n1 silent_ms=30000
 *          reason="heartbeat expired"
 *
 * Thread-safe; one write(2) per line, no heap. Values are escaped; secrets never go in. A line has
 * at most 4 KiB: what is beyond is cut and the line ends in truncated=true. errno is kept.
 */
#ifndef BERTH_BASE_LOG_H
#define BERTH_BASE_LOG_H

#include "base/err.h"
#include "base/macros.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_FORMAT_LOGFMT, LOG_FORMAT_JSON };

struct log_field {
        const char *key;
        const char *s;
        int64_t i;
        char kind; /* 's', 'i', 'b', 0: end */
};
#define LOG_S(k, v) ((struct log_field){ .key = (k), .s = (v), .kind = 's' })
#define LOG_I(k, v) ((struct log_field){ .key = (k), .i = (int64_t)(v), .kind = 'i' })
#define LOG_B(k, v) ((struct log_field){ .key = (k), .i = (v), .kind = 'b' })
#define LOG_E(e) ((struct log_field){ .key = "error", .s = err_line(e), .kind = 's' })

void log_setup(enum log_level min, enum log_format format, int fd); /* default: info, logfmt, 2 */
void log_set_level(enum log_level min);
int log_level_parse(const char *name, enum log_level *ret);
bool log_enabled(enum log_level level);
void log_write(enum log_level level, const char *msg, const struct log_field *fields);
#define log_at(level, msg, ...)                                                                    \
        do {                                                                                       \
                if (log_enabled(level))                                                            \
                        log_write(level, msg,                                                      \
                                  (const struct log_field[]){ __VA_ARGS__ __VA_OPT__(, ){ 0 } });  \
        } while (0)
#define log_debug(msg, ...) log_at(LOG_DEBUG, msg __VA_OPT__(, ) __VA_ARGS__)
#define log_info(msg, ...) log_at(LOG_INFO, msg __VA_OPT__(, ) __VA_ARGS__)
#define log_warn(msg, ...) log_at(LOG_WARN, msg __VA_OPT__(, ) __VA_ARGS__)
#define log_error(msg, ...) log_at(LOG_ERROR, msg __VA_OPT__(, ) __VA_ARGS__)

#endif
