/* server/sink.c: see sink.h. */
#include "server/sink.h"

#include "api.pb-c.h"
#include "base/arena.h"
#include "model/pb.h"
#include "net/grpc.h"
#include "net/http.h"
#include <stdio.h>
#include <string.h>

size_t sink_queued_bytes(const struct sink *s)
{
        return s->http   ? http_stream_queued_bytes(s->http)
               : s->grpc ? grpc_call_queued_bytes(s->grpc)
                         : 0;
}

int sink_send(struct sink *s, const void *data, size_t len)
{
        if (s->http)
                return http_stream_send(s->http, data, len);
        return s->grpc ? grpc_call_send(s->grpc, data, len) : -ERR_CANCELLED;
}

int sink_send_event(struct sink *s, uint64_t seq, const char *type, const void *data, size_t len)
{
        if (!s->http)
                return sink_send(s, data, len);
        char id[24];
        snprintf(id, sizeof(id), "%llu", (unsigned long long)seq);
        return http_sse_send(s->http, id, type, data, len);
}

void grpc_finish_err(struct grpc_call *call, const struct err *err, const char *request_id)
{
        struct arena arena = ARENA_INIT;
        Pb__Error e = PB__ERROR__INIT;
        e.code = (char *)err_code_name(err->code);
        e.message = (char *)err->msg;
        e.detail = (char *)err->detail;
        e.hint = (char *)err->hint;
        e.path = (char *)err->path;
        e.request_id = (char *)(request_id ? request_id : "");
        e.retry_after_ms = err->retry_after_ms;
        e.dimension = (char *)(err->excess.dimension ? err->excess.dimension : "");
        e.limit = err->excess.limit;
        e.current_usage = err->excess.current_usage;
        e.requested_delta = err->excess.requested_delta;
        size_t len = 0;
        void *packed = pb_pack_arena(&arena, &e.base, &len);
        struct grpc_metadata trailers[] = { GRPC_META(GRPC_ERROR_TRAILER, packed, len),
                                            GRPC_META_END };
        grpc_call_finish(call, (enum grpc_status)err_grpc_status(err->code), err->msg, trailers);
        arena_fini(&arena);
}

void sink_close(struct sink *s, const struct err *err, const char *request_id)
{
        if (s->http) {
                http_stream_close(s->http);
        } else if (s->grpc) {
                if (err && err->code != ERR_OK)
                        grpc_finish_err(s->grpc, err, request_id);
                else
                        grpc_call_finish(s->grpc, GRPC_OK, NULL, NULL);
        }
        *s = (struct sink){ 0 };
}
