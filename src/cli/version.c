/* cli/version.c: berth version. */
#include "cli/client.h"
#include "cli/verbs.h"

struct version_options {
        bool client;
};

static const struct opt rows[] = {
        OPT(struct version_options, OPT_FLAG, client, .name = "client",
            .help = "only this command's own version"),
};

static int version_run(struct cli *cli, const void *values, const struct args *args _unused_,
                       struct err *err _unused_)
{
        const struct version_options *o = values;
        cli_out(cli, "berth %s\n", BERTH_VERSION);
        if (o->client)
                return 0;
        /* A version command that fails because no server runs would be of little use. */
        struct err away = { 0 };
        Pb__Empty empty = PB__EMPTY__INIT;
        Pb__ClusterInfo *info = client_call(cli, &cli->arena, "GetCluster", &empty,
                                            &pb__cluster_info__descriptor, &away);
        if (info)
                cli_out(cli, "server %s at %s\n", info->version, client_address(cli, NULL));
        else
                cli_out(cli, "server: %s\n", away.msg);
        return 0;
}

const struct verb verb_version = {
        .name = "version",
        .summary = "versions of this command and of the server",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .values_size = sizeof(struct version_options),
        .run = version_run,
        .group = VERBS_OTHER,
};
