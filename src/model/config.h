/* model/config.h: the server's configuration file. YAML becomes a ServerConfig
 * (proto/config.proto); what is wrong in it is said with file, line and path.
 *
 * Nothing is filled in here: what the file leaves out stays unset, so that whoever merges it with
 * flags can tell. Thread-safe.
 */
#ifndef BERTH_MODEL_CONFIG_H
#define BERTH_MODEL_CONFIG_H

#include "base/arena.h"
#include "base/err.h"
#include "config.pb-c.h"

#define CONFIG_MAX_BYTES (1024 * 1024)
#define CONFIG_MAX_RULES 200
#define CONFIG_MAX_WEBHOOKS 50
#define CONFIG_MAX_POLICIES 1000

/* One problem: err->msg is "file:line: path: what". */
typedef void (*config_problem)(void *ctx, const struct err *err);

/* name is for messages: the file's name. Every problem that can be told is told to fn (NULL:
 * nobody); err has the first. < 0 if there was any. A file with nothing in it is an empty
 * configuration. */
int config_read(const char *name, const char *text, size_t len, struct arena *arena,
                Pb__ServerConfig **ret, config_problem fn, void *ctx, struct err *err);
/* The same from a file. -ERR_IO: it cannot be read. */
int config_load(const char *path, struct arena *arena, Pb__ServerConfig **ret, config_problem fn,
                void *ctx, struct err *err);

/* Of a text that was checked; "" gives `otherwise`. */
int64_t config_duration_ms(const char *text, int64_t otherwise);

/* A webhook's URL in its parts, which live in the arena. */
struct url {
        bool tls;
        /* without the brackets of an IPv6 address; path with the query, at least "/" */
        const char *host, *path;
        uint16_t port;
        const char *authority; /* for the Host header */
};
int url_parse(struct arena *arena, const char *text, struct url *ret, struct err *err);

#endif
