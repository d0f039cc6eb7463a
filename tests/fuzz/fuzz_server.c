/* tests/fuzz/fuzz_server.c: one server for the life of the process, below a directory of its
 * own. */
#include "fuzz_server.h"

#include "base/file.h"
#include "base/log.h"
#include "net/addr.h"
#include "server/access.h"
#include "server/server.h"
#include <poll.h>

#define PATIENCE_MS 60000 /* the machine may be busy; libFuzzer's own limit comes first */

static struct server *server;
static uint16_t port;
static char admin[64], dir[64];

uint16_t fuzz_server_port(void)
{
        return port;
}

const char *fuzz_server_grpc(void)
{
        return server_grpc_address(server);
}

const char *fuzz_server_admin(void)
{
        return admin;
}

void fuzz_hear(int fd, int patience_ms, const char *until, struct str *out)
{
        char buf[16384];
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int ready;
        /* libFuzzer's clock interrupts it */
        while ((ready = poll(&p, 1, patience_ms)) > 0 || (ready < 0 && errno == EINTR)) {
                ssize_t n = ready > 0 ? recv(fd, buf, sizeof(buf), 0) : -1;
                if (n > 0)
                        str_add(out, buf, (size_t)n);
                else if (ready > 0 && (n == 0 || errno != EINTR))
                        break;
                if (until && memmem(str_c(out), out->len, until, strlen(until)))
                        break;
        }
}

void fuzz_ask(const char *method, const char *path, const char *body, struct str *out)
{
        int fd = fuzz_dial(port);
        struct str q = STR_INIT;
        str_addf(&q,
                 "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer "
                 "%s\r\nContent-Length: %zu\r\n\r\n%s",
                 method, path, admin, strlen(body), body);
        MUST(send(fd, q.buf, q.len, MSG_NOSIGNAL) == (ssize_t)q.len, "sent");
        str_clear(out);
        fuzz_hear(fd, PATIENCE_MS, NULL, out);
        MUST(str_starts(str_c(out), "HTTP/1.1 2"), "%s %s: %s", method, path, str_c(out));
        str_fini(&q);
        close(fd);
}

static void stop(void)
{
        server_stop(server);
        (void)server_wait(server, NULL);
        server_free(server);
        for (const char *const *name =
                 (const char *const[]){ "berth.db", "berth.db-wal", "berth.db-shm", "berth.db.lock",
                                        "admin.token", NULL };
             *name; name++)
                (void)unlink(fmt("%s/%s", dir, *name));
        (void)rmdir(dir);
}

bool fuzz_server_start(void)
{
        if (server)
                return false;
        struct server_options opt;
        struct err err = { 0 };
        struct addr a;
        struct str text = STR_INIT;
        const char *tmp = getenv("TMPDIR");
        log_setup(LOG_ERROR, LOG_FORMAT_LOGFMT, 2);
        snprintf(dir, sizeof(dir), "%.40s/berth-fuzz-XXXXXX", tmp ? tmp : "/tmp");
        MUST(mkdtemp(dir), "a directory");
        server_options_default(&opt);
        opt.data_dir = dir;
        opt.http_address = opt.grpc_address = "127.0.0.1:0";
        opt.auth = true;
        MUST(server_start(&opt, &server, &err) == 0, "%s", err_line(&err));
        atexit(stop);
        MUST(addr_parse(server_http_address(server), &a, NULL) == 0, "%s",
             server_http_address(server));
        port = a.port;
        MUST(file_read(fmt("%s/" ADMIN_TOKEN_FILE, dir), 4096, &text, &err) == 0, "%s",
             err_line(&err));
        snprintf(admin, sizeof(admin), "%.*s", (int)strcspn(str_c(&text), "\n"), str_c(&text));
        str_fini(&text);
        return true;
}
