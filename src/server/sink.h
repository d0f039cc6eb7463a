/* server/sink.h: the receiving end of a stream, whichever door the caller came through. The io
 * thread's. Internal. */
#ifndef BERTH_SERVER_SINK_H
#define BERTH_SERVER_SINK_H

#include "base/err.h"

struct http_request;
struct grpc_call;

/* Exactly one is set while the stream is open; neither: it has ended. */
struct sink {
        struct http_request *http;
        struct grpc_call *grpc;
};

static inline bool sink_is_open(const struct sink *s)
{
        return s->http || s->grpc;
}
size_t sink_queued_bytes(const struct sink *s);
/* One packed message (gRPC) or some bytes of a chunked body (HTTP). < 0: the stream is as good as
 * gone, its on_close follows. */
int sink_send(struct sink *s, const void *data, size_t len);
/* gRPC: data is a packed Event */
int sink_send_event(struct sink *s, uint64_t seq, const char *type, const void *data, size_t len);
/* Ends the stream after what is queued. err NULL: well. The sink is closed afterwards; an HTTP
 * request is gone. */
void sink_close(struct sink *s, const struct err *err, const char *request_id);

/* The trailer and status for a failed call. */
void grpc_finish_err(struct grpc_call *call, const struct err *err, const char *request_id);

#endif
