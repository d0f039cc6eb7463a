/* net/http_parse.h: the head of an HTTP/1.x request, strictly. Pure functions on bytes. Internal to
 * src/net. */
#ifndef BERTH_NET_HTTP_PARSE_H
#define BERTH_NET_HTTP_PARSE_H

#include "base/err.h"

enum { HTTP_FIELDS_MAX = 100, HTTP_QUERY_MAX = 64, HTTP_SEGMENTS_MAX = 32 };

struct http_pair {
        char *name, *value;
};

/* All pointers point into buf, or to constants. */
struct http_head {
        char *buf; /* in the block of fields */
        char *method;
        /* "host:port" of a target in absolute form, else NULL; it is the field "host", too */
        char *authority;
        char *path;                        /* decoded as a whole */
        char *segments[HTTP_SEGMENTS_MAX]; /* decoded one by one: "%2F" stays inside its segment */
        size_t n_segments;
        struct http_pair *fields; /* names in lower case */
        size_t n_fields;
        struct http_pair *query;
        size_t n_query;
        int minor; /* HTTP/1.minor: 0 or 1 */
        bool keep_alive, expects_continue, is_chunked;
        int64_t content_length;   /* -1: none given */
        size_t line_len, room_at; /* while parsing */
};

/* text: from the first byte of the request line through the empty line. 0, or the HTTP status to
 * refuse it with (400, 414, 501, 505) and a sentence in ret_why. head must be zeroed;
 * http_head_fini() in both cases. */
int http_head_parse(struct http_head *head, const char *text, size_t len, const char **ret_why);
void http_head_fini(struct http_head *head);
/* NULL if absent */
const char *http_head_field(const struct http_head *head, const char *lower_name);

/* Decodes in place; '+' is a space if plus_is_space. The result is valid UTF-8 without control
 * characters, else -1. */
int http_percent_decode(char *text, bool plus_is_space);

/* A chunk's first line ("1a;ext=1") without its line end. Returns its size or -1. */
int64_t http_chunk_size(const char *line, size_t len);
/* Whether a line behind the last chunk, without its line end, is a header. */
bool http_is_trailer_line(const char *line, size_t len);

const char *http_status_text(int status);

#endif
