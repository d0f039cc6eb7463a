/* net/http_route.c: see http_route.h. */
#include "net/http_route.h"
#include "base/map.h"
#include <string.h>

static size_t bucket_of(const char *literal, size_t at)
{
        return hash64(literal, strlen(literal)) + at * 31;
}

int http_router_add(struct http_router *router, const char *method, const char *pattern,
                    http_route fn, void *ctx, struct err *err)
{
        struct http_route_row row = { .fn = fn, .ctx = ctx };
        const char *bad = NULL;

        if (pattern[0] != '/' || router->rows.len >= HTTP_ROUTES_MAX)
                return err_set(err, ERR_INVALID,
                               .msg = fmt("the route %s %s cannot be added", method, pattern));
        row.buf = mem_strdup(pattern + 1);
        for (char *p = row.buf, *next; p && !bad; p = next) {
                size_t len;
                next = strchr(p, '/');
                if (next)
                        *next++ = 0;
                len = strlen(p);
                if (row.n == HTTP_SEGMENTS_MAX)
                        bad = "too many segments";
                else if (p[0] != '{') {
                        row.kinds[row.n] = 'l';
                        row.segments[row.n++] = p;
                } else if (len > 5 && strcmp(p + len - 4, "...}") == 0 && !next) {
                        p[len - 4] = 0;
                        row.kinds[row.n] = 'r';
                        row.segments[row.n++] = p + 1;
                } else if (len > 2 && p[len - 1] == '}') {
                        p[len - 1] = 0;
                        row.kinds[row.n] = 'p';
                        row.segments[row.n++] = p + 1;
                } else
                        bad = "malformed parameter";
        }
        for (size_t i = 0; i < router->rows.len && !bad; i++)
                if (str_eq(router->rows.at[i].method, method) &&
                    str_eq(router->rows.at[i].pattern, pattern))
                        bad = "duplicate";
        if (bad) {
                mem_free(row.buf);
                return err_set(err, ERR_INVALID,
                               .msg = fmt("the route %s %s cannot be added", method, pattern),
                               .detail = bad);
        }
        size_t *bucket = &router->without;
        for (size_t i = 0; i < row.n; i++)
                if (row.kinds[i] == 'l')
                        bucket =
                            &router->buckets[bucket_of(row.segments[i], i) % HTTP_ROUTE_BUCKETS];
        while (*bucket) /* of two that are equally good the first one counts */
                bucket = &router->rows.at[*bucket - 1].next;
        *bucket = router->rows.len + 1;
        row.method = mem_strdup(method);
        row.pattern = mem_strdup(pattern);
        *array_push(&router->rows) = row;
        return 0;
}

void http_router_fini(struct http_router *router)
{
        for (size_t i = 0; i < router->rows.len; i++) {
                mem_free(router->rows.at[i].method);
                mem_free(router->rows.at[i].pattern);
                mem_free(router->rows.at[i].buf);
        }
        array_fini(&router->rows);
}

static bool matches(const struct http_route_row *row, char *const *segments, size_t n)
{
        if (row->n != n && row->kinds[row->n - 1] != 'r')
                return false;
        for (size_t i = 0; i < row->n; i++) {
                if (row->kinds[i] == 'r')
                        return true;
                if (i >= n || (row->kinds[i] == 'l' ? strcmp(row->segments[i], segments[i]) != 0
                                                    : segments[i][0] == 0))
                        return false;
        }
        return row->n == n;
}

/* 'l' < 'p' < 'r', from left to right. */
static bool is_better(const struct http_route_row *a, const struct http_route_row *b)
{
        return strncmp(a->kinds, b->kinds, HTTP_SEGMENTS_MAX) < 0;
}

static void list_methods(const struct http_router *router, char *const *segments, size_t n,
                         struct str *out)
{
        for (size_t i = 0; i < router->rows.len; i++) {
                const struct http_route_row *row = &router->rows.at[i];
                if (!matches(row, segments, n))
                        continue;
                str_addf(out, "%s%s", out->len ? ", " : "", row->method);
                if (str_eq(row->method, "GET"))
                        str_adds(out, ", HEAD");
        }
}

/* The best of a bucket and of what was found before. */
static const struct http_route_row *find_in(const struct http_router *router, size_t first,
                                            const char *method, char *const *segments, size_t n,
                                            const struct http_route_row *best)
{
        for (size_t i = first; i; i = router->rows.at[i - 1].next) {
                const struct http_route_row *row = &router->rows.at[i - 1];
                if (matches(row, segments, n) && str_eq(row->method, method) &&
                    (!best || is_better(row, best)))
                        best = row;
        }
        return best;
}

const struct http_route_row *http_router_find(const struct http_router *router, const char *method,
                                              char *const *segments, size_t n,
                                              struct str *ret_allow)
{
        const char *wanted = str_eq(method, "HEAD") ? "GET" : method;
        const struct http_route_row *best =
            find_in(router, router->without, wanted, segments, n, NULL);

        for (size_t i = 0; i < n; i++)
                best =
                    find_in(router, router->buckets[bucket_of(segments[i], i) % HTTP_ROUTE_BUCKETS],
                            wanted, segments, n, best);
        str_clear(ret_allow);
        if (!best)
                list_methods(router, segments, n, ret_allow);
        return best;
}
