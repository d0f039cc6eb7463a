/* base/err.h: how a function says what went wrong.
 *
 * Every function that can fail takes `struct err *err` last and returns a negative number (or
 * NULL). The message is built where the fault is; callers may add context with err_prefix(). err
 * may be NULL: the caller does not want to know.
 *
 *      return err_set(err, ERR_CONFLICT,
 *                     .msg = "the store was written by a newer berth",
 *                     .detail = fmt("schema %d, this binary knows %d", version, STORE_SCHEMA),
 *                     .hint = "upgrade this server, or restore a backup");
 */
#ifndef BERTH_BASE_ERR_H
#define BERTH_BASE_ERR_H

#include "base/macros.h"

enum err_code {
        ERR_OK = 0,
        ERR_INVALID,   /* the caller's input is wrong: 400, INVALID_ARGUMENT, exit 2 */
        ERR_AUTH,      /* who are you: 401, UNAUTHENTICATED, exit 3 */
        ERR_DENIED,    /* you may not: 403, PERMISSION_DENIED, exit 3 */
        ERR_NOT_FOUND, /* 404, NOT_FOUND, exit 4 */
        /* 409, ABORTED (FAILED_PRECONDITION from gRPC peers maps here too), exit 5 */
        ERR_CONFLICT,
        ERR_LIMIT,       /* 429, RESOURCE_EXHAUSTED, exit 6 */
        ERR_UNAVAILABLE, /* 503, UNAVAILABLE, exit 6 */
        ERR_DEADLINE,    /* 504, DEADLINE_EXCEEDED, exit 6 */
        ERR_UNSUPPORTED, /* 501, UNIMPLEMENTED, exit 1 */
        ERR_CANCELLED,   /* 499, CANCELLED, exit 1 */
        ERR_IO,          /* a system call failed: 500, INTERNAL, exit 1 */
        ERR_CORRUPT,     /* stored data does not make sense: 500, DATA_LOSS, exit 1 */
        ERR_NOMEM,       /* 503, RESOURCE_EXHAUSTED, exit 6 */
        ERR_INTERNAL,    /* a bug of ours: 500, INTERNAL, exit 7 */
        ERR_FAILED,      /* what was asked was done and failed: 422, FAILED_PRECONDITION, exit 1 */
        /* the tenant's quota, never the cluster's capacity: 409, FAILED_PRECONDITION, exit 5; see
         * struct excess */
        ERR_QUOTA,
        _ERR_MAX
};

/* What a quota was asked for beyond its limit (ERR_QUOTA). The dimension's name carries the unit:
 * workloads, cpu_milli, memory_mb, disk_gb. */
struct excess {
        const char *dimension; /* lives for ever; NULL: not about a quota */
        int64_t limit, current_usage, requested_delta;
};

struct err {
        enum err_code code;
        char msg[256];    /* one sentence, no trailing dot */
        char detail[512]; /* facts: values, limits, errno text */
        char hint[256];   /* what to do next */
        char path[128];   /* of the bad field in the caller's input, e.g. "spec.command[0]" */
        int64_t retry_after_ms;
        struct excess excess;
};

struct err_parts {
        const char *msg, *detail, *hint, *path;
        int64_t retry_after_ms;
        struct excess excess;
};

/* Fills err (truncating; lists in detail and hint behind a whole word, with ", ...") and returns
 * -code. */
int err_fill(struct err *err, enum err_code code, const struct err_parts *parts);
#define err_set(err, code, ...) err_fill((err), (code), &(const struct err_parts){ __VA_ARGS__ })

/* Shorthand for a failed system call: msg and ": strerror(errnum)" as detail. Returns -ERR_IO. */
int err_sys(struct err *err, int errnum, const char *msg);

/* Puts "context: " before the message that is already there. Returns -err->code (-ERR_INTERNAL if
 * err is NULL). */
int err_prefix(struct err *err, const char *context);

/* "message: detail" in one line, for logs. The pointer is valid until the 16th fmt() after it on
 * this thread. */
const char *err_line(const struct err *err);

const char *err_code_name(enum err_code code); /* "not_found" */
/* ERR_FAILED for a name that a newer peer may know */
enum err_code err_code_from_name(const char *name);
int err_http_status(enum err_code code);
int err_grpc_status(enum err_code code);
enum err_code err_from_grpc_status(int status);
int err_exit_status(enum err_code code);

/* printf into one of 16 rotating buffers of this thread (1 KiB each, truncating). For building
 * messages, never for data. */
const char *fmt(const char *format, ...) _printf_(1, 2);

#endif
