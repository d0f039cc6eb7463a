/* cli/taint.c: berth taint: keep work away from a node, or drive it out. */
#include "cli/taint.h"
#include "cli/client.h"
#include "cli/names.h"
#include "cli/verbs.h"
#include "model/json.h"
#include <string.h>

#define TAINTS_MAX 64

/* key[=value]:effect */
int taint_parse(struct cli *cli, const char *text, Pb__Taint *t, struct err *err)
{
        const char *colon = strrchr(text, ':'), *equals = strchr(text, '=');
        int effect;
        pb__taint__init(t);
        if (!colon || colon == text)
                return usage_error(cli, err,
                                   "%s: a taint is KEY=VALUE:EFFECT or KEY:EFFECT; KEY- removes it",
                                   text);
        char *name = arena_strdup(&cli->arena, colon + 1);
        for (char *p = name; *p; p++) /* no_schedule is understood as well */
                if (*p == '_')
                        *p = '-';
        if (json_enum_value(&pb__taint_effect__e__descriptor, name, true, &effect) < 0)
                return usage_error(cli, err, "%s: the effect must be one of %s", text,
                                   json_enum_list(&pb__taint_effect__e__descriptor));
        t->effect = (Pb__TaintEffect__E)effect;
        if (equals && equals < colon)
                t->value = arena_strndup(&cli->arena, equals + 1, (size_t)(colon - equals - 1));
        t->key = arena_strndup(&cli->arena, text,
                               (size_t)((equals && equals < colon ? equals : colon) - text));
        return 0;
}

static void remove_key(Pb__SetTaintsRequest *q, const char *key, Pb__TaintEffect__E effect)
{
        size_t kept = 0;
        for (size_t i = 0; i < q->n_taints; i++)
                if (!str_eq(q->taints[i]->key, key) || (effect && q->taints[i]->effect != effect))
                        q->taints[kept++] = q->taints[i];
        q->n_taints = kept;
}

static int taint_run(struct cli *cli, const void *values _unused_, const struct args *args,
                     struct err *err)
{
        if (args->n < 2)
                return usage_error(cli, err, "berth taint needs a node and at least one taint");
        Pb__Node *n = node_named(cli, &cli->arena, args->at[0], err);
        if (!n)
                return -(int)err->code;
        Pb__SetTaintsRequest q = PB__SET_TAINTS_REQUEST__INIT;
        if (n->n_taints + args->n > TAINTS_MAX)
                return usage_error(cli, err, "a node can have 32 taints at most");
        q.id = n->id;
        q.if_match = n->resource_version; /* we change what we saw */
        q.taints = arena_new_n(&cli->arena, Pb__Taint *, TAINTS_MAX);
        for (size_t i = 0; i < n->n_taints; i++)
                q.taints[q.n_taints++] = n->taints[i];
        for (size_t i = 1; i < args->n; i++) {
                const char *text = args->at[i];
                size_t len = strlen(text);
                if (len > 1 && text[len - 1] == '-') {
                        remove_key(&q, arena_strndup(&cli->arena, text, len - 1),
                                   PB__TAINT_EFFECT__E__unset);
                        continue;
                }
                Pb__Taint *t = arena_new(&cli->arena, Pb__Taint);
                int r = taint_parse(cli, text, t, err);
                if (r < 0)
                        return r;
                remove_key(&q, t->key, t->effect);
                q.taints[q.n_taints++] = t;
        }
        n = client_call(cli, &cli->arena, "SetTaints", &q, &pb__node__descriptor, err);
        if (!n)
                return -(int)err->code;
        cli_out(cli, "node/%s %s\n", n->id,
                n->n_taints ? fmt("has %zu taint%s", n->n_taints, n->n_taints == 1 ? "" : "s")
                            : "has no taints");
        return 0;
}

const struct verb verb_taint = {
        .name = "taint",
        .args = "NODE KEY[=VALUE]:EFFECT...|KEY-...",
        .summary = "keep work away from a node that does not tolerate it",
        .text = "The effect is no-schedule (nothing new), prefer-no-schedule (only when nothing "
                "else is left) or no-execute (what is there "
                "moves away as well). "
                "KEY- removes every taint of that key. Workloads with a matching entry in "
                "tolerations do not mind.",
        .examples = "  berth taint node-7 gpu=yes:no-schedule\n"
                    "  berth taint node-7 broken:no-execute\n"
                    "  berth taint node-7 gpu-",
        .run = taint_run,
        .group = VERBS_NODES,
        .completes = 'n',
};
