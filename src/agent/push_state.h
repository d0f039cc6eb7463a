/* agent/push_state.h: the inside of push.c (calls in) and push_register.c (calls out). */
#ifndef BERTH_AGENT_PUSH_STATE_H
#define BERTH_AGENT_PUSH_STATE_H

#include "agent/push.h"
#include "agent/push_spec.h"

#define ACTIONS_MAX 256

/* What was asked of this agent, for ListActions. */
struct action {
        char task_id[ULID_LEN + 1];
        char *workload_id;
        const char *type;   /* apply, delete */
        const char *status; /* pending, completed, failed */
        char *error;
        struct unit_token token; /* of the launch that it asked for */
        int64_t created_at, ended_at;
};

struct agent_push {
        struct agent *agent;
        struct grpc_server *server;
        struct tls *tls; /* of the server; NULL: in the clear */
        struct push_method *methods;
        char *endpoint;
        /* says every hour that anybody may call; NULL: not so */
        struct event *open_to_all;
        /* a ring: the newest is at (n_actions - 1) % ACTIONS_MAX */
        struct action actions[ACTIONS_MAX];
        uint64_t n_actions;

        /* registration */
        struct grpc_call *call; /* under way; NULL: none */
        bool registered, accepted, welcomed;
        int64_t beat_ms;    /* what the server asked for */
        uint64_t told_hash; /* of the units in the last heartbeat that was taken */
        uint64_t sent_hash;
        int64_t beat_at_ms; /* when the last one was sent */
};

/* push_register.c */
void push_dial(struct agent_push *p);

#endif
