/* agent/runtimes/container_api.h: HTTP/1.1 calls to a container engine on its unix socket, on the
 * event loop. Nothing here blocks.
 *
 * One connection per call. Plain calls are limited to API_CALLS_MAX at a time and wait their turn;
 * those that last (stop, pull, logs, exec) say so and go at once, at most API_LONG_MAX of them. An
 * answer's body is at most API_BODY_MAX bytes unless it is taken piece by piece.
 *
 *   (1) done() comes exactly once, last, never from within api_call(), and not at all after
 *       api_cancel() or api_destroy().
 *   (2) data() gets the body of a 2xx answer as it comes; other answers' bodies are kept for
 *       done(), so that errors have their text.
 *   (3) After an upgrade (raw) both directions are bytes until either side closes.
 */
#ifndef BERTH_AGENT_CONTAINER_API_H
#define BERTH_AGENT_CONTAINER_API_H

#include "base/err.h"
#include "base/macros.h"

#define API_CALLS_MAX 32
#define API_LONG_MAX 2048
#define API_HEAD_MAX (16 * 1024)
#define API_BODY_MAX (8 * 1024 * 1024)
#define API_UNSENT_MAX (1024 * 1024)

struct event_base;
struct api;
struct api_call;

/* What came back. status 0: no answer could be had, and error says why. */
struct api_answer {
        int status;
        const char *body; /* ends in a NUL */
        size_t len;
        const char *error;
};
struct api_request {
        const char *method, *path; /* path with its query, encoded */
        const char *content_type;  /* NULL: application/json if there is a body */
        const void *body;
        size_t len;
        int64_t timeout_ms; /* 0: none */
        bool lasts;         /* stop, pull, logs, exec */
        bool upgrade;       /* asks for a raw stream in both directions */
        void (*done)(void *ctx, const struct api_answer *answer);
        bool (*data)(void *ctx, const void *data, size_t len); /* false: pause; NULL: collect */
        void *ctx;
};

struct api *api_create(struct event_base *base, const char *socket_path);
void api_destroy(struct api *api); /* not from within a callback */
struct api_call *api_call(struct api *api, const struct api_request *request);
void api_cancel(struct api_call *call);
void api_resume(struct api_call *call);
/* Raw streams: false when more than API_UNSENT_MAX would wait (nothing taken). Before the upgrade
 * it waits. */
bool api_write(struct api_call *call, const void *data, size_t len);
/* bytes that were written and the engine has not taken */
size_t api_unsent(const struct api_call *c);
void api_write_eof(struct api_call *call);

/* One call, waited for, on a loop of its own: for the start of the agent, when nothing else runs
 * yet. Body in the caller's hands (mem_free). 0 with any status; -ERR_UNAVAILABLE when there was no
 * answer. */
int api_call_wait(const char *socket_path, const char *method, const char *path, const char *body,
                  int64_t timeout_ms, int *ret_status, char **ret_body, struct err *err);

/* The engine's own sentence in an error's body, or the body's beginning. Rotating buffer of
 * fmt(). */
const char *api_problem(const struct api_answer *answer);

struct str;
/* percent-encoded for a path or a query's value; / : @ stay */
void api_add_encoded(struct str *out, const char *text);

#endif
