/* base/err.c: one table gives every code its name and its number in HTTP, gRPC and as exit status.
 *
 * Texts are cut at the end of a whole UTF-8 character, and what is no character becomes '?', since
 * they travel on in JSON and in gRPC trailers, where half a character would make the whole answer
 * unreadable.
 */
#include "base/err.h"

#include "base/str.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FMT_SLOTS 16
#define FMT_BYTES 1024

enum grpc_status {
        GRPC_OK = 0,
        GRPC_CANCELLED = 1,
        GRPC_UNKNOWN = 2,
        GRPC_INVALID_ARGUMENT = 3,
        GRPC_DEADLINE_EXCEEDED = 4,
        GRPC_NOT_FOUND = 5,
        GRPC_ALREADY_EXISTS = 6,
        GRPC_PERMISSION_DENIED = 7,
        GRPC_RESOURCE_EXHAUSTED = 8,
        GRPC_FAILED_PRECONDITION = 9,
        GRPC_ABORTED = 10,
        GRPC_OUT_OF_RANGE = 11,
        GRPC_UNIMPLEMENTED = 12,
        GRPC_INTERNAL = 13,
        GRPC_UNAVAILABLE = 14,
        GRPC_DATA_LOSS = 15,
        GRPC_UNAUTHENTICATED = 16,
};

static const struct {
        const char *name;
        int http, grpc, exit;
} codes[_ERR_MAX] = {
        [ERR_OK] = { "ok", 200, GRPC_OK, 0 },
        [ERR_INVALID] = { "invalid", 400, GRPC_INVALID_ARGUMENT, 2 },
        [ERR_AUTH] = { "auth", 401, GRPC_UNAUTHENTICATED, 3 },
        [ERR_DENIED] = { "denied", 403, GRPC_PERMISSION_DENIED, 3 },
        [ERR_NOT_FOUND] = { "not_found", 404, GRPC_NOT_FOUND, 4 },
        [ERR_CONFLICT] = { "conflict", 409, GRPC_ABORTED, 5 },
        [ERR_LIMIT] = { "limit", 429, GRPC_RESOURCE_EXHAUSTED, 6 },
        [ERR_UNAVAILABLE] = { "unavailable", 503, GRPC_UNAVAILABLE, 6 },
        [ERR_DEADLINE] = { "deadline", 504, GRPC_DEADLINE_EXCEEDED, 6 },
        [ERR_UNSUPPORTED] = { "unsupported", 501, GRPC_UNIMPLEMENTED, 1 },
        [ERR_CANCELLED] = { "cancelled", 499, GRPC_CANCELLED, 1 },
        [ERR_IO] = { "io", 500, GRPC_INTERNAL, 1 },
        [ERR_CORRUPT] = { "corrupt", 500, GRPC_DATA_LOSS, 1 },
        [ERR_NOMEM] = { "nomem", 503, GRPC_RESOURCE_EXHAUSTED, 6 },
        [ERR_INTERNAL] = { "internal", 500, GRPC_INTERNAL, 7 },
        [ERR_FAILED] = { "failed", 422, GRPC_FAILED_PRECONDITION, 1 },
        [ERR_QUOTA] = { "quota_exceeded", 409, GRPC_FAILED_PRECONDITION, 5 },
};

/* How many of the first len bytes of s to keep so that no character is cut in half. */
static size_t whole_characters(const char *s, size_t len)
{
        size_t start = len;

        while (start > 0 && len - start < 4 && ((unsigned char)s[start - 1] & 0xC0) == 0x80)
                start--;
        if (start == 0)
                return len;
        unsigned char lead = (unsigned char)s[start - 1];
        size_t need = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
        return need > len - start + 1 ? start - 1 : len;
}

static void copy_text(char *to, size_t size, const char *from)
{
        if (!from)
                from = "";
        size_t len = strnlen(from, size);
        if (len == size)
                len = whole_characters(from, size - 1);
        memcpy(to, from, len);
        to[len] = '\0';
        str_mend_utf8(to, len); /* "%.64s" cuts anywhere */
}

/* The same, but a list ("a, b, c") ends behind one of its words: half of one looks like a name. */
static void copy_list(char *to, size_t size, const char *from)
{
        static const char more[] = ", ...";
        size_t end = size - sizeof(more), least = size / 2;

        copy_text(to, size, from);
        if (!from || strnlen(from, size) < size)
                return;
        while (end > least && !(from[end] == ',' && from[end + 1] == ' '))
                end--;
        if (end > least)
                memcpy(to + end, more, sizeof(more));
}

int err_fill(struct err *err, enum err_code code, const struct err_parts *parts)
{
        must(code > ERR_OK && code < _ERR_MAX, "an error has a code that says what went wrong");
        if (!err)
                return -(int)code;
        /* Built aside: the parts may point into err itself. */
        struct err e;
        e.code = code;
        e.retry_after_ms = parts->retry_after_ms;
        e.excess = parts->excess;
        copy_text(e.msg, sizeof(e.msg), parts->msg);
        copy_list(e.detail, sizeof(e.detail), parts->detail);
        copy_list(e.hint, sizeof(e.hint), parts->hint);
        copy_text(e.path, sizeof(e.path), parts->path);
        memcpy(err, &e, sizeof(e));
        return -(int)code;
}

int err_sys(struct err *err, int errnum, const char *msg)
{
        char buf[128];

        return err_set(err, ERR_IO, .msg = msg, .detail = strerror_r(errnum, buf, sizeof(buf)));
}

int err_prefix(struct err *err, const char *context)
{
        char text[sizeof(err->msg) * 2];

        if (!err)
                return -ERR_INTERNAL;
        must(err->code > ERR_OK && err->code < _ERR_MAX,
             "context is added to an error, not to a success");
        snprintf(text, sizeof(text), "%.255s: %.253s", context ? context : "", err->msg);
        copy_text(err->msg, sizeof(err->msg), text);
        return -(int)err->code;
}

const char *err_line(const struct err *err)
{
        if (!err || err->code == ERR_OK)
                return "no error";
        const char *msg = err->msg[0] ? err->msg : err_code_name(err->code);
        return err->detail[0] ? fmt("%s: %s", msg, err->detail) : fmt("%s", msg);
}

const char *err_code_name(enum err_code code)
{
        return (unsigned)code < _ERR_MAX ? codes[code].name : "internal";
}

enum err_code err_code_from_name(const char *name)
{
        for (unsigned i = 0; name && i < _ERR_MAX; i++)
                if (strcmp(codes[i].name, name) == 0)
                        return (enum err_code)i;
        return ERR_FAILED;
}

int err_http_status(enum err_code code)
{
        return (unsigned)code < _ERR_MAX ? codes[code].http : 500;
}

int err_grpc_status(enum err_code code)
{
        return (unsigned)code < _ERR_MAX ? codes[code].grpc : GRPC_INTERNAL;
}

int err_exit_status(enum err_code code)
{
        return (unsigned)code < _ERR_MAX ? codes[code].exit : 7;
}

enum err_code err_from_grpc_status(int status)
{
        static const enum err_code from[] = {
                [GRPC_OK] = ERR_OK,
                [GRPC_CANCELLED] = ERR_CANCELLED,
                [GRPC_UNKNOWN] = ERR_FAILED, /* what a Go server gives for any plain error */
                [GRPC_INVALID_ARGUMENT] = ERR_INVALID,
                [GRPC_DEADLINE_EXCEEDED] = ERR_DEADLINE,
                [GRPC_NOT_FOUND] = ERR_NOT_FOUND,
                [GRPC_ALREADY_EXISTS] = ERR_CONFLICT,
                [GRPC_PERMISSION_DENIED] = ERR_DENIED,
                [GRPC_RESOURCE_EXHAUSTED] = ERR_LIMIT,
                [GRPC_FAILED_PRECONDITION] = ERR_CONFLICT,
                [GRPC_ABORTED] = ERR_CONFLICT,
                [GRPC_OUT_OF_RANGE] = ERR_INVALID,
                [GRPC_UNIMPLEMENTED] = ERR_UNSUPPORTED,
                [GRPC_INTERNAL] = ERR_INTERNAL,
                [GRPC_UNAVAILABLE] = ERR_UNAVAILABLE,
                [GRPC_DATA_LOSS] = ERR_CORRUPT,
                [GRPC_UNAUTHENTICATED] = ERR_AUTH,
        };
        return status >= 0 && (size_t)status < ARRAY_LEN(from) ? from[status] : ERR_INTERNAL;
}

const char *fmt(const char *format, ...)
{
        static _Thread_local char slots[FMT_SLOTS][FMT_BYTES];
        static _Thread_local unsigned next;
        char *buf = slots[next++ % FMT_SLOTS];
        va_list ap;

        va_start(ap, format);
        int n = vsnprintf(buf, FMT_BYTES, format, ap);
        va_end(ap);
        if (n < 0)
                buf[0] = '\0';
        else if (n >= FMT_BYTES)
                buf[whole_characters(buf, FMT_BYTES - 1)] = '\0';
        return buf;
}

void must_fail(const char *file, int line, const char *what)
{
        /* On the stack and by write(2): the heap or stdio may be what is broken. */
        char text[512];
        int n = snprintf(text, sizeof(text), "berth: internal error at %s:%d: must hold: %s\n",
                         file, line, what);

        if (n > 0) {
                size_t len = (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1;
                _unused_ ssize_t written = write(STDERR_FILENO, text, len);
        }
        abort();
}
