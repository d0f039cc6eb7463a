/* server/web.c: see web.h. */
#include "server/web.h"

#include "base/str.h"
#include "net/http.h"
#include <string.h>

/* Nothing but our own files runs, nothing but this server is asked, nobody frames the page. Data
 * can therefore never become script, even if a line of the page were wrong. */
#define POLICY                                                                                     \
        "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src "     \
        "'self'; connect-src 'self'; base-uri "                                                    \
        "'none'; "                                                                                 \
        "form-action 'none'; frame-ancestors 'none'"

static const struct web_file *find(const char *name)
{
        for (size_t i = 0; i < n_web_files; i++)
                if (str_eq(web_files[i].name, name))
                        return &web_files[i];
        return NULL;
}

static void reply_file(struct http_request *req, const struct web_file *f, bool forever)
{
        const char *seen = http_header(req, "If-None-Match");
        struct http_field fields[] = { HTTP_FIELD("Content-Type", f->type),
                                       HTTP_FIELD("ETag", f->etag),
                                       HTTP_FIELD("Cache-Control",
                                                  forever ? "public, max-age=31536000, immutable"
                                                          : "no-cache"),
                                       HTTP_FIELD("Content-Security-Policy", POLICY),
                                       HTTP_FIELD("X-Content-Type-Options", "nosniff"),
                                       HTTP_FIELD("Referrer-Policy", "no-referrer"),
                                       HTTP_FIELD_END };
        bool same = seen && (str_eq(seen, "*") || strstr(seen, f->etag));
        http_reply(req, same ? 304 : 200, fields, f->data, same ? 0 : f->len);
}

/* /ui/<version>/<name>, or /ui/<name> for people. A page of an older binary still gets today's
 * file, but must not keep it under the old name. */
static void serve_file(struct http_request *req, void *ctx)
{
        const char *path = http_param(req, "path");
        const char *slash = strchr(path, '/');
        const struct web_file *f = find(slash ? slash + 1 : path);
        struct err err = { 0 };
        (void)ctx;
        if (!f) {
                err_set(&err, ERR_NOT_FOUND, .msg = "the dashboard has no such file",
                        .detail = fmt("\"%.100s\"", path), .hint = "it begins at /");
                http_reply_err(req, 0, &err);
                return;
        }
        size_t n = strlen(web_version);
        reply_file(req, f,
                   slash && (size_t)(slash - path) == n && memcmp(path, web_version, n) == 0);
}

void web_page(struct http_request *req)
{
        reply_file(req, find("index.html"), false);
}

int web_open(struct http_server *server, struct err *err)
{
        return http_server_add(server, "GET", "/ui/{path...}", serve_file, NULL, err);
}
