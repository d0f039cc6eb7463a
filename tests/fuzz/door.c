/* What somebody without a token sends to a real server that wants one: any bytes at the HTTP port, or any text as the credentials of a request that would show or change
 * something. No answer says anything of what is in the cluster, nothing in it changes, and those who have a token are served.
 *
 * The first byte says which: 0 bytes as they are, 1 Authorization, 2 Cookie, 3 both, with the names that one server tells another for whom it asks, 4 the body of a request
 * to join; the second one which request. */
#include "base/file.h"
#include "base/log.h"
#include "fuzz.h"
#include "net/addr.h"
#include "server/access.h"
#include "server/server.h"
#include <poll.h>

#define NAME "planted"                   /* of a workload and of a token that strangers ask for */
#define HIDDEN "where-no-stranger-looks" /* in a label and as the name of a token: no answer may have it */
#define PATIENCE_MS 60000                /* the machine may be busy; libFuzzer's own limit comes first */

static struct server *server;
static uint16_t port;
static char admin[64], dir[64];

/* What comes until the peer closes, or is silent for so long. */
static void hear(int fd, int patience_ms, struct str *out)
{
        char buf[16384];
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int ready;
        while ((ready = poll(&p, 1, patience_ms)) > 0 || (ready < 0 && errno == EINTR)) { /* libFuzzer's clock interrupts it */
                ssize_t n = ready > 0 ? recv(fd, buf, sizeof(buf), 0) : -1;
                if (n > 0)
                        str_add(out, buf, (size_t)n);
                else if (ready > 0 && (n == 0 || errno != EINTR))
                        break;
        }
}

/* With a token that works. */
static void ask(const char *method, const char *path, const char *body, struct str *out)
{
        int fd = fuzz_dial(port);
        struct str q = STR_INIT;
        str_addf(&q, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\nContent-Length: %zu\r\n\r\n%s", method,
                 path, admin, strlen(body), body);
        MUST(send(fd, q.buf, q.len, MSG_NOSIGNAL) == (ssize_t)q.len, "sent");
        str_clear(out);
        hear(fd, PATIENCE_MS, out);
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
                 (const char *const[]){ "berth.db", "berth.db-wal", "berth.db-shm", "berth.db.lock", "admin.token", NULL };
             *name; name++)
                (void)unlink(fmt("%s/%s", dir, *name));
        (void)rmdir(dir);
}

static void start(void)
{
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
        MUST(addr_parse(server_http_address(server), &a, NULL) == 0, "%s", server_http_address(server));
        port = a.port;
        MUST(file_read(fmt("%s/" ADMIN_TOKEN_FILE, dir), 4096, &text, &err) == 0, "%s", err_line(&err));
        snprintf(admin, sizeof(admin), "%.*s", (int)strcspn(str_c(&text), "\n"), str_c(&text));
        ask("PUT", "/v1/workloads/" NAME, "{\"spec\":{\"command\":[\"x\"]},\"labels\":{\"a\":\"" HIDDEN "\"}}", &text);
        ask("POST", "/v1/tokens", "{\"name\":\"" HIDDEN "\",\"role\":\"viewer\"}", &text);
        ask("POST", "/v1/tokens", "{\"name\":\"" NAME "\",\"role\":\"viewer\"}", &text);
        str_fini(&text);
}

static void compose(const uint8_t *data, size_t size, struct str *out)
{
        static const char *const requests[] = { "GET /v1/workloads", "GET /v1/workloads/" NAME, "DELETE /v1/workloads/" NAME,
                                                "GET /v1/tokens",    "DELETE /v1/tokens/" NAME, "GET /v1/events?limit=10",
                                                "GET /metrics",      "GET /v1/events/stream",   "POST /v1/workloads:batch",
                                                "GET /v1/nodes" };
        const char *text = (const char *)data + 2;
        int len = (int)size - 2;
        if (data[0] % 5 == 0) {
                str_add(out, text, (size_t)len);
                return;
        }
        if (data[0] % 5 == 4) {
                str_addf(out, "POST /v1/nodes:join HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n", len);
                str_add(out, text, (size_t)len);
                return;
        }
        str_addf(out, "%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", requests[data[1] % ARRAY_LEN(requests)]);
        const char *const names[] = { "", "Authorization: ", "Cookie: ",
                                      "X-Berth-Role: admin\r\nX-Berth-Actor: root\r\nAuthorization: Bearer " };
        str_adds(out, names[data[0] % 5]);
        str_add(out, text, (size_t)len);
        str_adds(out, "\r\n\r\n");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static unsigned runs;
        struct str q = STR_INIT, answer = STR_INIT, health = STR_INIT;
        if (!server)
                start();
        if (size < 2)
                return 0;
        compose(data, size, &q);
        int fd = fuzz_dial(port);
        (void)!send(fd, q.buf, q.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        /* The server reads in order: what came before this question is done when it is answered. */
        ask("GET", "/v1/health", "", &health);
        hear(fd, 0, &answer);
        /* Who knows it already may hear it again: "unknown field". */
        if (!memmem(str_c(&q), q.len, HIDDEN, strlen(HIDDEN)))
                MUST(!memmem(str_c(&answer), answer.len, HIDDEN, strlen(HIDDEN)), "a stranger is told nothing: %s", str_c(&answer));
        close(fd);
        if (++runs % 200 == 0) {
                ask("GET", "/v1/workloads/" NAME, "", &answer);
                MUST(strstr(str_c(&answer), "\"resource_version\":"), "%s", str_c(&answer));
                ask("GET", "/v1/tokens", "", &answer);
                MUST(!strstr(str_c(&answer), "revoked"), "%s", str_c(&answer));
                ask("GET", "/v1/workloads", "", &answer);
                MUST(memmem(str_c(&answer), answer.len, "\"items\":[{\"id\":\"" NAME "\"", sizeof("\"items\":[{\"id\":\"" NAME "\"") - 1),
                     "%s", str_c(&answer));
        }
        str_fini(&q);
        str_fini(&answer);
        str_fini(&health);
        return 0;
}
