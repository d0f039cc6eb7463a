/* What somebody without a token sends to a real server that wants one: any bytes at the HTTP port,
 * or any text as the credentials of a request that would show or change something. No answer says
 * anything of what is in the cluster, nothing in it changes, and those who have a token are served.
 *
 * The first byte says which: 0 bytes as they are, 1 Authorization, 2 Cookie, 3 both, with the names
 * that one server tells another for whom it asks, 4 the body of a request to join; the second one
 * which request. */
#include "fuzz_server.h"

#define NAME "planted" /* of a workload and of a token that strangers ask for */
/* in a label and as the name of a token: no answer may have it */
#define HIDDEN "where-no-stranger-looks"

static void plant(void)
{
        struct str text = STR_INIT;
        fuzz_ask("PUT", "/v1/workloads/" NAME,
                 "{\"spec\":{\"command\":[\"x\"]},\"labels\":{\"a\":\"" HIDDEN "\"}}", &text);
        fuzz_ask("POST", "/v1/tokens", "{\"name\":\"" HIDDEN "\",\"role\":\"viewer\"}", &text);
        fuzz_ask("POST", "/v1/tokens", "{\"name\":\"" NAME "\",\"role\":\"viewer\"}", &text);
        str_fini(&text);
}

static void compose(const uint8_t *data, size_t size, struct str *out)
{
        static const char *const requests[] = {
                "GET /v1/workloads", "GET /v1/workloads/" NAME, "DELETE /v1/workloads/" NAME,
                "GET /v1/tokens",    "DELETE /v1/tokens/" NAME, "GET /v1/events?limit=10",
                "GET /metrics",      "GET /v1/events/stream",   "POST /v1/workloads:batch",
                "GET /v1/nodes"
        };
        const char *text = (const char *)data + 2;
        int len = (int)size - 2;
        if (data[0] % 5 == 0) {
                str_add(out, text, (size_t)len);
                return;
        }
        if (data[0] % 5 == 4) {
                str_addf(out,
                         "POST /v1/nodes:join HTTP/1.1\r\nHost: x\r\nConnection: "
                         "close\r\nContent-Length: %d\r\n\r\n",
                         len);
                str_add(out, text, (size_t)len);
                return;
        }
        str_addf(out, "%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n",
                 requests[data[1] % ARRAY_LEN(requests)]);
        const char *const names[] = {
                "", "Authorization: ", "Cookie: ",
                "X-Berth-Role: admin\r\nX-Berth-Actor: root\r\nAuthorization: Bearer "
        };
        str_adds(out, names[data[0] % 5]);
        str_add(out, text, (size_t)len);
        str_adds(out, "\r\n\r\n");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static unsigned runs;
        struct str q = STR_INIT, answer = STR_INIT, health = STR_INIT;
        if (fuzz_server_start())
                plant();
        if (size < 2)
                return 0;
        compose(data, size, &q);
        int fd = fuzz_dial(fuzz_server_port());
        (void)!send(fd, q.buf, q.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        /* The server reads in order: what came before this question is done when it is answered. */
        fuzz_ask("GET", "/v1/health", "", &health);
        fuzz_hear(fd, 0, NULL, &answer);
        /* Who knows it already may hear it again: "unknown field". */
        if (!memmem(str_c(&q), q.len, HIDDEN, strlen(HIDDEN)))
                MUST(!memmem(str_c(&answer), answer.len, HIDDEN, strlen(HIDDEN)),
                     "a stranger is told nothing: %s", str_c(&answer));
        close(fd);
        if (++runs % 200 == 0) {
                fuzz_ask("GET", "/v1/workloads/" NAME, "", &answer);
                MUST(strstr(str_c(&answer), "\"resource_version\":"), "%s", str_c(&answer));
                fuzz_ask("GET", "/v1/tokens", "", &answer);
                MUST(!strstr(str_c(&answer), "revoked"), "%s", str_c(&answer));
                fuzz_ask("GET", "/v1/workloads", "", &answer);
                MUST(memmem(str_c(&answer), answer.len, "\"items\":[{\"id\":\"" NAME "\"",
                            sizeof("\"items\":[{\"id\":\"" NAME "\"") - 1),
                     "%s", str_c(&answer));
        }
        str_fini(&q);
        str_fini(&answer);
        str_fini(&health);
        return 0;
}
