/* cli/client.h: the server as the verbs see it: blocking calls of berth.v1.Control by gRPC.
 *
 * Where the server is: --server, else BERTH_SERVER, else the grpc= line of
 * $BERTH_DATA/server.address, else the context in use (profile.h), else ./.berth/server.address if
 * it is the user's own, else 127.0.0.1:8085. A context brings its token and certificates, for that
 * server only. Who asks: --token, else BERTH_TOKEN, else the file of --token-file or
 * BERTH_TOKEN_FILE, else, if the address came from server.address, the file admin.token beside it,
 * which a server writes at its first start and only its owner can read. A failed call gives the
 * server's own message, detail and hint. Replies live in the arena that the caller gave.
 */
#ifndef BERTH_CLI_CLIENT_H
#define BERTH_CLI_CLIENT_H

#include "api.pb-c.h"
#include "cli/cli.h"

#define SERVER_DEFAULT "127.0.0.1:8085"

/* Which address, and in ret_source (may be NULL) where that came from, for messages. Both live in
 * the cli's arena. */
const char *client_address(struct cli *cli, const char **ret_source);
/* The same for an agent, which has no contexts. */
const char *client_address_of_agent(struct cli *cli);
/* The token of --token, --token-file and the environment, in the cli's arena; NULL: none. */
int client_token(struct cli *cli, const char **ret_token, struct err *err);
/* Like client_address(), for a given data directory and without the cli's options. NULL if no
 * server wrote its address there. */
const char *client_address_file(struct arena *arena, const char *data_dir);

/* One unary call. request is a message of the method's input type. NULL: failed, see err. */
void *client_call(struct cli *cli, struct arena *arena, const char *method, const void *request,
                  const ProtobufCMessageDescriptor *reply_type, struct err *err);
#define CALL_TIMEOUT_MS 30000

/* Up to CALLS_AT_ONCE_MAX unary calls at once: the server commits together what comes together.
 * Each has its own outcome: reply, or NULL and err. */
struct client_request {
        const char *method;
        const void *request;
        const ProtobufCMessageDescriptor *reply_type;
        void *reply;
        struct err err;
};
#define CALLS_AT_ONCE_MAX 1000
void client_call_many(struct cli *cli, struct arena *arena, struct client_request *requests,
                      size_t n);

/* Called for each message of a stream, which is valid during the call, and with NULL whenever
 * tick_ms passed without one (tick_ms 0: never). Returns 0 to go on, > 0 to end the stream well, <
 * 0 to end it as a failure. */
typedef int (*client_message_fn)(void *ctx, const ProtobufCMessage *message, struct err *err);

/* A stream from the server, until it ends (0), fn ends it (what fn gave), it fails (< 0), or the
 * user presses Ctrl-C (CLIENT_INTERRUPTED). */
#define CLIENT_INTERRUPTED 1000
int client_stream(struct cli *cli, const char *method, const void *request,
                  const ProtobufCMessageDescriptor *reply_type, int64_t tick_ms,
                  client_message_fn fn, void *ctx, struct err *err);

/* A failure that the next try may not meet: the server is away, restarts or is busy. */
bool client_may_pass(const struct err *err);

void client_close(struct cli *cli);

/* For exec, which sends and receives at the same time: the parts. */
struct event_base;
struct grpc_channel;
struct grpc_call;
int client_open(struct cli *cli, struct event_base **ret_base, struct grpc_channel **ret_channel,
                struct err *err);
/* In on_close of a call that did not end well: fills err, returns its negative code. */
int client_failure(struct cli *cli, struct grpc_call *call, const char *method, int grpc_status,
                   struct err *err);

#endif
