/* server/testkit.h: for tests of the running server: a small blocking HTTP client, and an agent
 * that does what the test says. */
#ifndef BERTH_SERVER_TESTKIT_H
#define BERTH_SERVER_TESTKIT_H

#include "agent.pb-c.h"
#include "base/arena.h"
#include "base/array.h"
#include "base/str.h"
#include "net/tls.h"
#include "server/server.h"

/* ---- HTTP ---- */
struct http_answer {
        int status;
        struct str head, body; /* body is de-chunked */
};
void http_answer_fini(struct http_answer *a);
/* One request on its own connection. headers: "Name: value\r\n..." or "". Fails the test when the
 * connection does. */
struct http_answer http_do(const char *address, const char *method, const char *path,
                           const char *headers, const char *body);
/* The value of a header, in a static buffer; "" if absent. */
const char *http_header_of(const struct http_answer *a, const char *name);

/* A stream that stays open. */
int http_open(const char *address, const char *path, const char *headers);
/* Reads (appending) until the text holds `until` or timeout_ms have passed or the peer closes. */
bool http_read_until(int fd, struct str *text, const char *until, int timeout_ms);

/* ---- an agent ---- */
struct agent;
struct tls;
struct agent *agent_connect(const char *grpc_address);
/* tls: NULL is in the clear */
struct agent *agent_connect_tls(const char *grpc_address, struct tls *tls);
void agent_close(struct agent *a);
void agent_send(struct agent *a, const Pb__AgentMessage *m);
void agent_hello(struct agent *a, const char *node_id);
/* Runs the agent's loop until a message fits (returned; lives until agent_close) or timeout_ms have
 * passed (NULL). Messages are seen once, in order. */
const Pb__ServerMessage *agent_wait(struct agent *a, bool (*fits)(const Pb__ServerMessage *m),
                                    int timeout_ms);
void agent_turn(struct agent *a, int ms); /* just runs the loop */
bool agent_is_closed(struct agent *a, int timeout_ms, int *ret_status);
void agent_report(struct agent *a, const char *workload_id, const Pb__PlanEntry *unit,
                  Pb__ActualState__E state);

bool is_welcome(const Pb__ServerMessage *m);
bool is_plan(const Pb__ServerMessage *m);
bool is_plan_with_units(const Pb__ServerMessage *m);
bool is_beat(const Pb__ServerMessage *m);
bool is_log(const Pb__ServerMessage *m);
bool is_exec(const Pb__ServerMessage *m);
bool is_exec_input(const Pb__ServerMessage *m);
bool is_cancel(const Pb__ServerMessage *m);

/* ---- one server per test, on an embedded store in a directory of its own ---- */
struct fixture {
        char dir[128];
        struct server_options opt;
        struct server *server;
        const char *http, *grpc;
};
int server_setup(void **state); /* *state: struct fixture */
int server_teardown(void **state);
void server_begin(struct fixture *f); /* starts with f->opt */
void server_end(struct fixture *f);   /* in good order */
struct http_answer expect_http(struct fixture *f, const char *method, const char *path,
                               const char *headers, const char *body, int want);
void expect_status(struct fixture *f, const char *method, const char *path, const char *body,
                   int want);
uint64_t head_of(struct fixture *f);
/* Asks again and again (the agent's loop runs meanwhile) until the answer holds the text. */
void wait_for(struct fixture *f, struct agent *a, const char *path, const char *text);
/* An agent on node n1 that runs the workload "hello". */
struct agent *agent_with_hello(struct fixture *f);

/* ---- certificates ---- */
struct pki {
        char ca[200], cert[200], key[200];
        struct tls_pair pair;
};
/* The server again, with TLS by a new CA; ca: clients need a certificate. tls_pair_fini(&pki->pair)
 * at the end. */
void pki_restart(struct fixture *f, struct pki *pki, bool ca);
/* A client with a certificate of that CA: uri (or two, with a space between) and dns are names in
 * it, NULL: none. tls_unref() it. */
struct tls *pki_client(struct pki *pki, const struct fixture *f, const char *name, const char *uri,
                       const char *dns);

#define HELLO                                                                                      \
        "{\"id\":\"hello\",\"spec\":{\"command\":[\"sleep\",\"1000\"]},\"resources\":{\"cpu\":0."  \
        "5,\"memory_mb\":64}}"
#define OTHER                                                                                      \
        "{\"id\":\"hello\",\"spec\":{\"command\":[\"sleep\",\"2000\"]},\"resources\":{\"cpu\":0."  \
        "5,\"memory_mb\":64}}"

#endif
