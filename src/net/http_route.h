/* net/http_route.h: finding the route of a request. Internal to src/net.
 *
 * A literal segment beats a parameter, a parameter beats "{rest...}", compared from left to right;
 * so the order in which routes were added never matters.
 */
#ifndef BERTH_NET_HTTP_ROUTE_H
#define BERTH_NET_HTTP_ROUTE_H

#include "base/array.h"
#include "net/http.h"
#include "net/http_parse.h"

enum { HTTP_ROUTES_MAX = 256 };

struct http_route_row {
        char *method, *pattern;
        char *buf; /* the segments' text */
        char *segments[HTTP_SEGMENTS_MAX];
        char kinds[HTTP_SEGMENTS_MAX]; /* 'l' literal, 'p' parameter, 'r' rest */
        size_t n;
        size_t next; /* in its bucket: position + 1 */
        http_route fn;
        void *ctx;
};
enum { HTTP_ROUTE_BUCKETS = 256 };

struct http_router {
        ARRAY(struct http_route_row) rows;
        /* of the rows with the same last literal in the same place: position + 1 */
        size_t buckets[HTTP_ROUTE_BUCKETS];
        size_t without; /* of those that have none */
};

int http_router_add(struct http_router *router, const char *method, const char *pattern,
                    http_route fn, void *ctx, struct err *err);
void http_router_fini(struct http_router *router);
/* NULL: ret_allow is empty when no pattern matches (404), else the methods for Allow (405). */
const struct http_route_row *http_router_find(const struct http_router *router, const char *method,
                                              char *const *segments, size_t n,
                                              struct str *ret_allow);

#endif
