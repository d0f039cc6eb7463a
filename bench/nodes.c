/* bench/nodes.c: many nodes that exist only on the wire.
 *
 *      nodes ADDRESS COUNT CONNECTIONS PREFIX
 *
 * Each says hello, takes every plan that the server sends it, acknowledges the newest with its
 * heartbeats, and runs nothing. What an agent does with a plan (`berth agent --runtime mock` does
 * all of it but the running) would be another machine's work; here it would compete with the server
 * for the same two cores. So the throughput of the server alone is measured with these. Streams
 * share CONNECTIONS connections, at most 100 on each.
 *
 * Ends with status 1 when the server refuses a node or ends a stream, so that nothing is measured
 * against nodes that are not there.
 */
#include "agent.pb-c.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/wire.h"
#include "model/pb.h"
#include "net/grpc.h"
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS_PER_CHANNEL 100
#define NODES_MAX 100000

struct node {
        struct grpc_call *call;
        struct event *beat;
        uint64_t epoch, seq; /* the cursor of the last plan */
        uint64_t ix;
};

static const char *prefix;

static void die(const char *what, const char *why)
{
        fprintf(stderr, "error: %s: %s\n", what, why);
        exit(1);
}

static void send_message(struct node *n, const Pb__AgentMessage *m)
{
        static struct str packed;
        str_clear(&packed);
        pb_pack(&packed, &m->base);
        if (grpc_call_send(n->call, packed.buf, packed.len) < 0)
                die("a node's stream", "takes no more");
}

static void beat_in(struct node *n, int64_t ms)
{
        struct timeval tv = { .tv_sec = (time_t)(ms / 1000),
                              .tv_usec = (suseconds_t)(ms % 1000) * 1000 };
        event_add(n->beat, &tv);
}

static void on_beat(evutil_socket_t fd, short what, void *ctx)
{
        struct node *n = ctx;
        Pb__AgentMessage m = PB__AGENT_MESSAGE__INIT;
        Pb__Heartbeat beat = PB__HEARTBEAT__INIT;
        Pb__NodeUsage usage = PB__NODE_USAGE__INIT;
        Pb__Cursor applied = PB__CURSOR__INIT;
        (void)fd, (void)what;
        applied.epoch = n->epoch;
        applied.seq = n->seq;
        beat.usage = &usage;
        beat.applied = &applied;
        m.heartbeat = &beat;
        send_message(n, &m);
}

/* A plan begins with its cursor, and no more of it is looked at: unpacking units would be an
 * agent's work. False: it is something else. */
static bool take_cursor(struct node *n, const uint8_t *at, size_t len)
{
        enum { PLAN = 2 << 3 | 2, CURSOR = 1 << 3 | 2, EPOCH = 1 << 3, SEQ = 2 << 3 };
        const uint8_t *end = at + len;
        uint64_t tag = 0, size = 0, epoch = 0, seq = 0;
        if (!varint_take(&at, end, &tag) || tag != PLAN || !varint_take(&at, end, &size) ||
            !varint_take(&at, end, &tag) || tag != CURSOR || !varint_take(&at, end, &size) ||
            !varint_take(&at, end, &tag) || tag != EPOCH || !varint_take(&at, end, &epoch) ||
            !varint_take(&at, end, &tag) || tag != SEQ || !varint_take(&at, end, &seq))
                return false;
        n->epoch = epoch;
        n->seq = seq;
        return true;
}

static void on_message(struct grpc_call *call, const void *data, size_t len)
{
        static struct arena memory;
        struct node *n = grpc_call_data(call);
        if (take_cursor(n, data, len))
                return;
        ProtobufCMessage *any = NULL;
        struct err err;
        if (pb_unpack_own(&pb__server_message__descriptor, data, len, &memory, &any, &err) < 0)
                die("a message of the server", err_line(&err));
        const Pb__ServerMessage *m = (const Pb__ServerMessage *)any;
        if (m->welcome && !m->welcome->accepted)
                die("a node is refused", m->welcome->reason);
        if (m->welcome)
                beat_in(n, m->welcome->heartbeat_ms);
        if (m->heartbeat)
                beat_in(n, m->heartbeat->next_ms);
        if (m->plan && m->plan->cursor) {
                n->epoch = m->plan->cursor->epoch;
                n->seq = m->plan->cursor->seq;
        }
        arena_reset(&memory);
}

static void on_close(struct grpc_call *call, enum grpc_status status)
{
        (void)call;
        die("the server ended a node's stream", grpc_status_name(status));
}

static void hello(struct node *n)
{
        Pb__AgentMessage m = PB__AGENT_MESSAGE__INIT;
        Pb__Hello h = PB__HELLO__INIT;
        Pb__WorkloadType__E types[] = { PB__WORKLOAD_TYPE__E__process,
                                        PB__WORKLOAD_TYPE__E__container };
        char id[64], instance[64];
        snprintf(id, sizeof(id), "%s-%05llu", prefix, (unsigned long long)n->ix);
        snprintf(instance, sizeof(instance), "wire-%llu", (unsigned long long)n->ix);
        h.node_id = id;
        h.instance = instance;
        h.cpu = 64000;
        h.memory_mb = 262144;
        h.disk_gb = 2000;
        h.supported_workload_types = types;
        h.n_supported_workload_types = ARRAY_LEN(types);
        h.agent_version = "bench";
        h.protocol = 1;
        m.hello = &h;
        send_message(n, &m);
}

int main(int argc, char **argv)
{
        static const struct grpc_callbacks on = { .on_message = on_message, .on_close = on_close };
        uint64_t count = 0, connections = 0;
        struct err err;
        if (argc != 5 || str_parse_u64(argv[2], &count) < 0 ||
            str_parse_u64(argv[3], &connections) < 0 || count == 0 || count > NODES_MAX ||
            connections == 0 || count > connections * STREAMS_PER_CHANNEL || strlen(argv[4]) > 32) {
                fprintf(stderr,
                        "usage: nodes ADDRESS COUNT CONNECTIONS PREFIX (at most %d nodes on a "
                        "connection)\n",
                        STREAMS_PER_CHANNEL);
                return 2;
        }
        prefix = argv[4];
        struct event_base *base = event_base_new();
        struct grpc_channel **channels = mem_must(connections * sizeof(struct grpc_channel *));
        struct node *nodes = mem_must(count * sizeof(*nodes));
        for (uint64_t i = 0; i < connections; i++)
                if (grpc_channel_create(base, argv[1], NULL, &channels[i], &err) < 0)
                        die(argv[1], err_line(&err));
        for (uint64_t i = 0; i < count; i++) {
                struct node *n = &nodes[i];
                n->ix = i;
                n->beat = event_new(base, -1, 0, on_beat, n);
                n->call = grpc_channel_call(channels[i % connections], "/berth.v1.Agent/Connect",
                                            NULL, &on, n);
                hello(n);
        }
        event_base_dispatch(base); /* until it is killed */
        return 1;
}
