/* model/compose.h: the part of the Compose file format that berth runs: one container per service,
 * started in the order of depends_on.
 *
 *      services:
 *        db:  {image: "postgres:15", environment: {POSTGRES_PASSWORD: x}, volumes:
 *             ["/srv/db:/var/lib/postgresql/data"]}
 *        web: {image: "shop:7", command: ["serve", "--port", "80"], ports: ["8080:80"], depends_on:
 *        [db]}
 *
 * Known: services.<name>.{image, command, entrypoint, environment, ports, volumes, depends_on,
 * working_dir, user, privileged, network_mode, restart}, version and name. restart is read and not
 * used: berth restarts the whole unit. Everything else is refused with its path: nothing is dropped
 * in silence. Pure; thread-safe; the caps of manifest.h, and COMPOSE_MAX_SERVICES.
 */
#ifndef BERTH_MODEL_COMPOSE_H
#define BERTH_MODEL_COMPOSE_H

#include "base/arena.h"
#include "base/err.h"
#include "records.pb-c.h"

#define COMPOSE_MAX_SERVICES 64

struct compose_service {
        const char *name;
        /* image, command (entrypoint), args (command), env, ports, volumes, workdir, user,
         * privileged, network */
        Pb__Spec *spec;
};
struct compose {
        struct compose_service *services; /* in the order in which they start */
        size_t n_services;
};

/* Everything is in the arena. Errors: "line:column: path: what", ERR_INVALID, the path in
 * err->path. */
int compose_read(const char *text, size_t len, struct arena *arena, struct compose *ret,
                 struct err *err);

#endif
