/* net/grpc_test_rig.h: for the tests of gRPC in the clear: a server with the service of the tests
 * on loopback, and a channel to it. */
#ifndef BERTH_NET_GRPC_TEST_RIG_H
#define BERTH_NET_GRPC_TEST_RIG_H

#include "net/test_rig.h"

struct rig {
        struct event_base *base;
        struct grpc_server *server;
        struct grpc_channel *channel;
        struct test_service service;
        struct rng rng;
        char target[32];
};

static inline void start_server(struct rig *r, const struct grpc_server_options *options)
{
        struct grpc_server_options o = options ? *options : (struct grpc_server_options){ 0 };
        struct err err;

        if (!o.address)
                o.address = "127.0.0.1:0";
        if (grpc_server_create(r->base, &o, &r->server, &err) < 0 ||
            test_service_add(r->server, &r->service, &err) < 0)
                fail_msg("%s", err_line(&err));
        snprintf(r->target, sizeof(r->target), "127.0.0.1:%u", grpc_server_port(r->server));
}

static inline void start_channel(struct rig *r, const struct grpc_channel_options *options)
{
        struct grpc_channel_options o = options ? *options : (struct grpc_channel_options){ 0 };
        struct err err;

        o.rng = &r->rng;
        if (!o.backoff_min_ms)
                o.backoff_min_ms = 5;
        if (!o.backoff_max_ms)
                o.backoff_max_ms = 50;
        if (grpc_channel_create(r->base, r->target, &o, &r->channel, &err) < 0)
                fail_msg("%s", err_line(&err));
}

static inline void rig_start(struct rig *r, const struct grpc_server_options *so,
                             const struct grpc_channel_options *co)
{
        *r = (struct rig){ .base = event_base_new() };
        rng_seed(&r->rng, 7);
        start_server(r, so);
        start_channel(r, co);
}

static inline void rig_stop(struct rig *r)
{
        grpc_channel_destroy(r->channel);
        grpc_server_destroy(r->server);
        event_base_free(r->base);
}

#endif
