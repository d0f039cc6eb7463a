/* net/http_parse.c: see http_parse.h.
 *
 * Strict on purpose: two parties that read the same bytes differently is how requests are smuggled.
 * A request with a bare LF, a space before a colon, a folded line, two lengths, or a length and
 * chunks is refused, not guessed at.
 */
#include "net/http_parse.h"
#include "base/mem.h"
#include "base/str.h"
#include <string.h>

static bool is_token_char(unsigned char c)
{
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_token(const char *s, size_t len)
{
        for (size_t i = 0; i < len; i++)
                if (!is_token_char((unsigned char)s[i]))
                        return false;
        return len > 0;
}

/* Without control characters: a line end that only one of two parties sees is among them. */
static bool is_printable(const char *s, size_t len)
{
        for (size_t i = 0; i < len; i++)
                if (((unsigned char)s[i] < ' ' && s[i] != '\t') || s[i] == 0x7f)
                        return false;
        return true;
}

static int hex_digit(char c)
{
        if (c >= '0' && c <= '9')
                return c - '0';
        if ((c | 32) >= 'a' && (c | 32) <= 'f')
                return (c | 32) - 'a' + 10;
        return -1;
}

int http_percent_decode(char *text, bool plus_is_space)
{
        char *to = text;

        for (const char *p = text; *p; p++) {
                unsigned char c = (unsigned char)*p;
                if (c == '%') {
                        int hi = hex_digit(p[1]), lo = hi < 0 ? -1 : hex_digit(p[2]);
                        if (lo < 0)
                                return -1;
                        c = (unsigned char)(hi << 4 | lo);
                        p += 2;
                } else if (c == '+' && plus_is_space)
                        c = ' ';
                if (c == 0)
                        return -1;
                *to++ = (char)c;
        }
        *to = 0;
        return str_is_utf8(text, (size_t)(to - text)) ? 0 : -1;
}

/* Splits at '/', then decodes each part. "." and ".." are refused: nobody who serves files should
 * have to think of them. */
static int parse_path(struct http_head *h, char *raw, const char **ret_why)
{
        static const char bad[] = "the path is malformed";
        size_t len = strlen(raw);

        h->path = raw + len + 1; /* buf has room for three copies: see http_head_parse */
        memcpy(h->path, raw, len + 1);
        for (const char *p = raw; *p; p++)
                if ((unsigned char)*p <= ' ' || *p == 0x7f) {
                        *ret_why = bad;
                        return 400;
                }
        if (http_percent_decode(h->path, false) < 0) {
                *ret_why = "the path has a malformed escape, or is not UTF-8";
                return 400;
        }
        char *p = raw + 1;
        while (true) {
                char *slash = strchr(p, '/');
                if (h->n_segments == HTTP_SEGMENTS_MAX) {
                        *ret_why = "the path has too many parts";
                        return 414;
                }
                if (slash)
                        *slash = 0;
                if (http_percent_decode(p, false) < 0 || str_eq(p, ".") || str_eq(p, "..")) {
                        *ret_why = bad;
                        return 400;
                }
                h->segments[h->n_segments++] = p;
                if (!slash)
                        return 0;
                p = slash + 1;
        }
}

static int parse_query(struct http_head *h, char *raw, const char **ret_why)
{
        h->query = mem_must(sizeof(*h->query) * HTTP_QUERY_MAX);
        for (char *p = raw, *next; p; p = next) {
                next = strchr(p, '&');
                if (next)
                        *next++ = 0;
                if (!*p)
                        continue;
                if (h->n_query == HTTP_QUERY_MAX) {
                        *ret_why = "the query has too many parameters";
                        return 414;
                }
                char *eq = strchr(p, '='), *value = p + strlen(p);
                if (eq) {
                        *eq = 0;
                        value = eq + 1;
                }
                if (http_percent_decode(p, true) < 0 || http_percent_decode(value, true) < 0) {
                        *ret_why = "the query has a malformed escape, or is not UTF-8";
                        return 400;
                }
                h->query[h->n_query++] = (struct http_pair){ p, value };
        }
        return 0;
}

/* "http://host:1/path", as proxies send it: returns the path, "/" if there is none, and sets
 * h->authority. NULL: malformed. */
static char *split_absolute(struct http_head *h, char *target)
{
        size_t scheme = strncasecmp(target, "http://", 7) == 0    ? 7
                        : strncasecmp(target, "https://", 8) == 0 ? 8
                                                                  : 0;
        char *authority = target + scheme;
        size_t len = strcspn(authority, "/?#");

        if (scheme == 0 || len == 0 || memchr(authority, '@', len) || !is_printable(authority, len))
                return NULL;
        /* Over the two slashes before it: that leaves room for its end, and for a slash behind
         * it. */
        h->authority = memmove(authority - 2, authority, len);
        h->authority[len] = 0;
        char *path = authority + len;
        if (*path != '/')
                *--path = '/';
        return path;
}

static int parse_target(struct http_head *h, char *target, const char **ret_why)
{
        if (target[0] != '/' && !(target = split_absolute(h, target))) {
                *ret_why = "the request target is not a path";
                return 400;
        }
        char *query = strchr(target, '?');
        if (query)
                *query++ = 0;
        if (strchr(target, '#') || (query && strchr(query, '#'))) {
                *ret_why = "the request target has a fragment";
                return 400;
        }
        if (query) {
                int r = parse_query(h, query, ret_why);
                if (r)
                        return r;
        }
        /* The raw path moves to where there is room for its copy behind it. */
        size_t len = strlen(target);
        char *raw = h->buf + h->room_at;
        memcpy(raw, target, len + 1);
        return parse_path(h, raw, ret_why);
}

static int parse_request_line(struct http_head *h, char *line, const char **ret_why)
{
        char *space = strchr(line, ' '), *last = strrchr(line, ' ');

        *ret_why = "the request line is malformed";
        if (!space || last == space || !is_token(line, (size_t)(space - line)) ||
            strlen(line) != h->line_len)
                return 400;
        *space = *last = 0;
        h->method = line;
        if (str_eq(last + 1, "HTTP/1.1"))
                h->minor = 1;
        else if (str_eq(last + 1, "HTTP/1.0"))
                h->minor = 0;
        else {
                *ret_why = "only HTTP/1.1 and HTTP/1.0 are spoken here";
                return str_starts(last + 1, "HTTP/") ? 505 : 400;
        }
        if (strchr(space + 1, ' '))
                return 400;
        return parse_target(h, space + 1, ret_why);
}

static int parse_field(struct http_head *h, char *line, size_t len, const char **ret_why)
{
        char *colon = memchr(line, ':', len);

        *ret_why = "a header is malformed";
        if (!colon || !is_token(line, (size_t)(colon - line)) || memchr(line, 0, len))
                return 400;
        if (h->n_fields == HTTP_FIELDS_MAX) {
                *ret_why = "there are too many headers";
                return 431;
        }
        *colon = 0;
        for (char *p = line; *p; p++)
                if (*p >= 'A' && *p <= 'Z')
                        *p = (char)(*p | 32);
        char *value = colon + 1, *end = line + len;
        while (*value == ' ' || *value == '\t')
                value++;
        while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
                *--end = 0;
        for (char *p = value; *p; p++)
                if (((unsigned char)*p < ' ' && *p != '\t') || *p == 0x7f)
                        return 400;
        h->fields[h->n_fields++] = (struct http_pair){ line, value };
        return 0;
}

const char *http_head_field(const struct http_head *h, const char *lower_name)
{
        for (size_t i = 0; i < h->n_fields; i++)
                if (strcmp(h->fields[i].name, lower_name) == 0)
                        return h->fields[i].value;
        return NULL;
}

/* Is word one of a comma-separated list? */
static bool list_has(const char *list, const char *word)
{
        size_t len = strlen(word);

        for (const char *p = list; p && *p; p = strchr(p, ',')) {
                p += strspn(p, ", \t");
                size_t n = strcspn(p, ", \t");
                if (n == len && strncasecmp(p, word, n) == 0)
                        return true;
                if (n == 0)
                        break;
                p += n;
        }
        return false;
}

/* A target that names a host overrules the header (RFC 9112, 3.2.2). */
static int settle_host(struct http_head *h, const char **ret_why)
{
        static char name[] = "host";

        for (size_t i = 0; i < h->n_fields; i++)
                if (strcmp(h->fields[i].name, name) == 0) {
                        h->fields[i].value = h->authority;
                        return 0;
                }
        if (h->n_fields == HTTP_FIELDS_MAX) {
                *ret_why = "there are too many headers";
                return 431;
        }
        /* there is room: the request line counted as one, too */
        h->fields[h->n_fields++] = (struct http_pair){ name, h->authority };
        return 0;
}

/* What the headers say about the body and the connection. */
static int settle(struct http_head *h, const char **ret_why)
{
        unsigned lengths = 0, encodings = 0, hosts = 0, closes = 0;

        h->content_length = -1;
        h->keep_alive = h->minor == 1;
        for (size_t i = 0; i < h->n_fields; i++) {
                const char *name = h->fields[i].name, *value = h->fields[i].value;
                if (strcmp(name, "content-length") == 0) {
                        int64_t n;
                        if (lengths++ > 0 || strspn(value, "0123456789") != strlen(value) ||
                            str_parse_i64(value, &n) < 0) {
                                *ret_why = "Content-Length is malformed";
                                return 400;
                        }
                        h->content_length = n;
                } else if (strcmp(name, "transfer-encoding") == 0) {
                        if (encodings++ > 0 || !str_case_eq(value, "chunked")) {
                                *ret_why = "the only transfer encoding known here is chunked";
                                return 501;
                        }
                        h->is_chunked = true;
                } else if (strcmp(name, "connection") == 0) {
                        closes += list_has(value, "close");
                        h->keep_alive = !closes && (h->keep_alive || list_has(value, "keep-alive"));
                } else if (strcmp(name, "expect") == 0)
                        h->expects_continue = h->minor == 1 && str_case_eq(value, "100-continue");
                else if (strcmp(name, "host") == 0)
                        hosts++;
        }
        if ((lengths > 0 && encodings > 0) || (encodings > 0 && h->minor == 0)) {
                *ret_why = "Content-Length and Transfer-Encoding exclude each other";
                return 400;
        }
        if (hosts > 1 || (hosts == 0 && h->minor == 1)) {
                *ret_why = "there must be exactly one Host header";
                return 400;
        }
        return h->authority ? settle_host(h, ret_why) : 0;
}

int http_head_parse(struct http_head *h, const char *text, size_t len, const char **ret_why)
{
        size_t lines = 0;
        for (const char *p = text; (p = memchr(p, '\n', (size_t)(text + len - p))); p++)
                lines++;
        if (lines > HTTP_FIELDS_MAX)
                lines = HTTP_FIELDS_MAX;
        /* The fields, the text, and behind it room for the raw path and its decoded copy. */
        size_t need = sizeof(*h->fields) * lines + len * 3 + 8;
        h->fields = mem_bytes(need);
        h->buf = (char *)(h->fields + lines);
        memcpy(h->buf, text, len);
        h->buf[len] = 0;
        h->room_at = len + 1;
        char *line = h->buf, *end = h->buf + len;

        for (bool is_first = true; line < end; is_first = false) {
                char *lf = memchr(line, '\n', (size_t)(end - line));
                if (!lf || lf == line || lf[-1] != '\r') {
                        *ret_why = "a line does not end in CR LF";
                        return 400;
                }
                size_t n = (size_t)(lf - 1 - line);
                lf[-1] = 0;
                if (!is_first && n == 0)
                        break;
                h->line_len = n;
                int r = is_first ? parse_request_line(h, line, ret_why)
                                 : parse_field(h, line, n, ret_why);
                if (r)
                        return r;
                line = lf + 1;
        }
        return settle(h, ret_why);
}

void http_head_fini(struct http_head *h)
{
        mem_free(h->fields);
        mem_free(h->query);
        *h = (struct http_head){ 0 };
}

int64_t http_chunk_size(const char *line, size_t len)
{
        int64_t size = 0;
        size_t i = 0;

        for (; i < len && hex_digit(line[i]) >= 0; i++) {
                if (i == 8)
                        return -1;
                size = size << 4 | hex_digit(line[i]);
        }
        if (i == 0)
                return -1;
        while (i < len && (line[i] == ' ' || line[i] == '\t'))
                i++;
        return i == len || (line[i] == ';' && is_printable(line + i, len - i)) ? size : -1;
}

bool http_is_trailer_line(const char *line, size_t len)
{
        const char *colon = memchr(line, ':', len);

        return colon && is_token(line, (size_t)(colon - line)) &&
               is_printable(colon, len - (size_t)(colon - line));
}

const char *http_status_text(int status)
{
        static const struct {
                int status;
                const char *text;
        } known[] = {
                { 200, "OK" },
                { 201, "Created" },
                { 202, "Accepted" },
                { 204, "No Content" },
                { 301, "Moved Permanently" },
                { 302, "Found" },
                { 303, "See Other" },
                { 304, "Not Modified" },
                { 307, "Temporary Redirect" },
                { 308, "Permanent Redirect" },
                { 400, "Bad Request" },
                { 401, "Unauthorized" },
                { 403, "Forbidden" },
                { 404, "Not Found" },
                { 405, "Method Not Allowed" },
                { 406, "Not Acceptable" },
                { 408, "Request Timeout" },
                { 409, "Conflict" },
                { 410, "Gone" },
                { 412, "Precondition Failed" },
                { 413, "Content Too Large" },
                { 414, "URI Too Long" },
                { 415, "Unsupported Media Type" },
                { 422, "Unprocessable Content" },
                { 429, "Too Many Requests" },
                { 431, "Request Header Fields Too Large" },
                { 499, "Client Closed Request" },
                { 500, "Internal Server Error" },
                { 501, "Not Implemented" },
                { 502, "Bad Gateway" },
                { 503, "Service Unavailable" },
                { 504, "Gateway Timeout" },
                { 505, "HTTP Version Not Supported" },
        };

        for (size_t i = 0; i < ARRAY_LEN(known); i++)
                if (known[i].status == status)
                        return known[i].text;
        return status < 400 ? "OK" : "Error";
}
