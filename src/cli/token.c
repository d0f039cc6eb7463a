/* cli/token.c: berth token create|ls|revoke: who may call, and who may become a node.
 *
 * create prints the secret, and nothing else, to stdout: it is shown once and kept nowhere.
 */
#include "base/clock.h"
#include "cli/client.h"
#include "cli/listing.h"
#include "cli/output.h"
#include "cli/taint.h"
#include "cli/verbs.h"
#include "model/json.h"
#include "model/pb.h"
#include <inttypes.h>
#include <string.h>

struct token_options {
        const char *role, *node;
        int64_t ttl_ms, cpu, memory, disk;
        struct text_list labels, taints;
        bool join;
        struct output_options output;
};

#define T struct token_options
static const struct opt rows[] = {
        OPT(T, OPT_TEXT, role, .name = "role", .arg = "ROLE",
            .choices = "viewer|operator|admin|node",
            .help = "create: look (viewer), run things (operator), everything (admin), be an agent "
                    "(node)"),
        OPT(T, OPT_DURATION, ttl_ms, .name = "ttl", .arg = "DURATION",
            .help = "create: it ends after this long (never; --join: 1h)"),
        OPT(T, OPT_FLAG, join, .name = "join",
            .help = "create: for berth agent --join, once: a certificate for a node"),
        OPT(T, OPT_TEXT, node, .name = "node", .arg = "ID", .completes = 'n',
            .help = "create: of this node only (--join, --role node); a node that exists needs it"),
        OPT(T, OPT_LIST, labels, .name = "label", .arg = "K=V",
            .help = "create --join: a label of the node; may be repeated"),
        OPT(T, OPT_LIST, taints, .name = "taint", .arg = "K[=V]:EFFECT",
            .help = "create --join: a taint of the node; may be repeated"),
        OPT(T, OPT_MILLI, cpu, .name = "cpu", .arg = "CORES",
            .help = "create --join: at most this much cpu of the node is used"),
        OPT(T, OPT_BYTES, memory, .name = "memory", .arg = "SIZE",
            .help = "create --join: at most this much of its memory"),
        OPT(T, OPT_BYTES, disk, .name = "disk", .arg = "SIZE",
            .help = "create --join: at most this much of its disk"),
        OUTPUT_ROWS(T, output),
};
#undef T

/* What a join token says of the node that uses it. */
static int add_grants(struct cli *cli, const struct token_options *o, Pb__CreateTokenRequest *q,
                      struct err *err)
{
        for (size_t i = 0; i < o->labels.n; i++) {
                const char *text = o->labels.at[i], *equals = strchr(text, '=');
                if (!equals || equals == text)
                        return usage_error(cli, err, "--label %s: a label is KEY=VALUE", text);
                pb_map_set(&cli->arena, &q->base, "labels",
                           arena_strndup(&cli->arena, text, (size_t)(equals - text)), equals + 1);
        }
        q->taints = arena_new_n(&cli->arena, Pb__Taint *, o->taints.n + 1);
        for (size_t i = 0; i < o->taints.n; i++) {
                Pb__Taint *t = q->taints[q->n_taints++] = arena_new(&cli->arena, Pb__Taint);
                int r = taint_parse(cli, o->taints.at[i], t, err);
                if (r < 0)
                        return r;
        }
        if (o->cpu || o->memory || o->disk) {
                q->capacity = arena_new(&cli->arena, Pb__Resources);
                pb__resources__init(q->capacity);
                q->capacity->cpu = o->cpu;
                q->capacity->memory_mb = o->memory >> 20;
                q->capacity->disk_gb = o->disk >> 30;
        }
        if (!o->join && (q->n_labels || q->n_taints || q->capacity))
                return usage_error(cli, err,
                                   "--label, --taint, --cpu, --memory and --disk are for --join");
        return 0;
}

static int create(struct cli *cli, const struct token_options *o, const struct args *args,
                  struct err *err)
{
        Pb__CreateTokenRequest q = PB__CREATE_TOKEN_REQUEST__INIT;
        if (args->n > 2 || (args->n < 2 && !o->join))
                return usage_error(
                    cli, err,
                    "berth token create NAME --role ROLE, or berth token create --join [NAME]");
        if (o->join == (o->role != NULL))
                return usage_error(
                    cli, err, "say what it is for: --role viewer|operator|admin|node, or --join");
        if (o->node && !o->join && !str_eq(o->role, "node"))
                return usage_error(cli, err, "--node is for --join and --role node");
        if (o->ttl_ms && o->ttl_ms < 1000)
                return usage_error(cli, err, "--ttl must be at least 1s");
        struct rng rng;
        rng_seed_system(&rng);
        q.name = (char *)(args->n == 2
                              ? args->at[1]
                              : arena_printf(&cli->arena, "join-%s%s%08x", o->node ? o->node : "",
                                             o->node ? "-" : "", (unsigned)rng_next(&rng)));
        int role = PB__ROLE__E__join;
        if (!o->join)
                (void)json_enum_value(&pb__role__e__descriptor, o->role, true, &role);
        q.role = (Pb__Role__E)role;
        q.ttl_seconds = o->ttl_ms / 1000;
        q.node_id = (char *)(o->node ? o->node : "");
        int bad = add_grants(cli, o, &q, err);
        if (bad < 0)
                return bad;
        const Pb__CreateTokenResponse *r = client_call(cli, &cli->arena, "CreateToken", &q,
                                                       &pb__create_token_response__descriptor, err);
        if (!r)
                return -(int)err->code;
        if (str_case_eq(o->output.format, "json") || str_case_eq(o->output.format, "yaml")) {
                _cleanup_(str_finip) struct str out = STR_INIT;
                json_write(&out, &r->base, JSON_PRETTY);
                cli_out(cli, "%s\n", str_c(&out));
                return 0;
        }
        char when[TIME_TEXT_LEN];
        cli_say(cli, "token/%s created%s%s; this is shown once:\n", q.name,
                r->token && r->token->expires_at ? ", good until " : "",
                r->token && r->token->expires_at ? time_format(when, r->token->expires_at) : "");
        cli_out(cli, "%s\n", r->secret);
        return 0;
}

static int list(struct cli *cli, const struct token_options *o, struct err *err)
{
        Pb__ListTokensRequest q = PB__LIST_TOKENS_REQUEST__INIT;
        struct listing all;
        int r = list_all(cli, &cli->arena, "ListTokens", &q.base,
                         &pb__list_tokens_response__descriptor, 0, &all, err);
        return r < 0 ? r : output_all(cli, &kind_token, &o->output, all.items, all.n);
}

static int revoke(struct cli *cli, const struct args *args, struct err *err)
{
        for (size_t i = 1; i < args->n; i++) {
                Pb__TokenRef ref = PB__TOKEN_REF__INIT;
                ref.name = (char *)args->at[i];
                if (!client_call(cli, &cli->arena, "RevokeToken", &ref,
                                 &pb__access_token__descriptor, err))
                        return -(int)err->code;
                cli_out(cli, "token/%s revoked\n", ref.name);
        }
        return 0;
}

static int token_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        const struct token_options *o = values;
        const char *verb = args->n ? args->at[0] : "";
        if (str_eq(verb, "create"))
                return create(cli, o, args, err);
        if ((str_eq(verb, "ls") || str_eq(verb, "list")) && args->n == 1)
                return list(cli, o, err);
        if (str_eq(verb, "revoke") && args->n > 1)
                return revoke(cli, args, err);
        return usage_error(cli, err,
                           "berth token create NAME --role ROLE, berth token create --join, berth "
                           "token ls, or berth token revoke NAME...");
}

const struct verb verb_token = {
        .name = "token",
        .args = "create [NAME] | ls | revoke NAME...",
        .summary = "who may call, and who may become a node",
        .text = "A token says who calls; its name is the actor in events. Its secret is printed "
                "once, alone on stdout, and kept nowhere: "
                "only its "
                "hash is stored. "
                "Commands take it from --token-file, BERTH_TOKEN_FILE or BERTH_TOKEN.",
        .examples = "  berth token create ann --role operator > ann.token\n"
                    "  berth token create ci --role viewer --ttl 30d\n"
                    "  berth token create --join --node n7 --ttl 10m\n"
                    "  berth token create --join --label berth.io/pool=gpu --taint gpu:no-schedule "
                    "--cpu 32\n"
                    "  berth token revoke ann",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .values_size = sizeof(struct token_options),
        .run = token_run,
        .group = VERBS_CLUSTER,
        .words = "create|ls|revoke",
};
