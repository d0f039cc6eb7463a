/* server/web.h: the dashboard's files, which are part of the binary, over HTTP.
 *
 * web/embed.py turns the files of web/ into web_files.c. The page names everything below
 * ui/<web_version>/, a hash over all files: what was fetched under it never changes and may be kept
 * for ever, and a new binary has new names. The page itself is asked for anew each time (304 while
 * it is the same).
 *
 * Everything here belongs to the io thread.
 */
#ifndef BERTH_SERVER_WEB_H
#define BERTH_SERVER_WEB_H

#include "base/err.h"
#include <stddef.h>

struct http_server;
struct http_request;

struct web_file {
        const char *name, *type, *etag;
        const unsigned char *data;
        size_t len;
};
extern const struct web_file web_files[];
extern const size_t n_web_files;
extern const char web_version[];

int web_open(struct http_server *server, struct err *err); /* adds /ui/... */
void web_page(struct http_request *req);                   /* answers with the page */

#endif
