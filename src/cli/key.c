/* cli/key.c: berth key: the cluster's key, a file in a server's data directory
 * (model/cluster_key.h). Talks to no server. */
#include "base/file.h"
#include "base/mem.h"
#include "cli/verbs.h"
#include "model/cluster_key.h"

struct key_options {
        const char *data, *replaces;
};
static const struct key_options defaults = { .data = "./.berth" };
static const struct opt rows[] = {
        OPT(struct key_options, OPT_TEXT, data, .name = "data", .arg = "DIR", .env = "BERTH_DATA",
            .completes = 'f', .help = "data directory of the server (./.berth)"),
        OPT(struct key_options, OPT_TEXT, replaces, .name = "replaces", .arg = "FINGERPRINT",
            .help = "new: the key of this fingerprint is lost. What it proved is proved no more"),
};

static void tell(struct cli *cli, const struct key_options *o, const struct cluster_key *k)
{
        cli_out(cli, "%s/%s\nfingerprint %s\n", o->data, CLUSTER_KEY_FILE, k->fingerprint);
        if (k->before[0])
                cli_out(cli, "%s %s\n", k->has_previous ? "previous" : "replaces", k->before);
}

static int show(struct cli *cli, const struct key_options *o, struct err *err)
{
        struct cluster_key k;
        int r = cluster_key_load(o->data, &k, err);
        if (r < 0)
                return r;
        tell(cli, o, &k);
        cluster_key_wipe(&k);
        return 0;
}

static int make(struct cli *cli, const struct key_options *o, struct err *err)
{
        struct cluster_key k;
        const char *path = arena_printf(&cli->arena, "%s/%s", o->data, CLUSTER_KEY_FILE);
        if (o->replaces && !cluster_key_fingerprint_is_sane(o->replaces))
                return usage_error(cli, err,
                                   "--replaces wants a fingerprint: 32 hex digits, as the server "
                                   "and berth cluster show it");
        if (file_exists(path))
                return err_set(err, ERR_CONFLICT, .msg = fmt("%s exists already", path),
                               .hint = "berth key rotate makes the next one; move the file away if "
                                       "it is not this cluster's");
        int r = cluster_key_make(NULL, o->replaces, &k, err);
        if (r == 0 && (r = dir_make(o->data, 0755, err)) == 0)
                r = cluster_key_save(o->data, &k, err);
        if (r < 0)
                return r;
        tell(cli, o, &k);
        cli_out(cli, "copy it to the other servers of the cluster and beside the backups; whoever "
                     "leads next takes it up\n");
        cluster_key_wipe(&k);
        return 0;
}

static int rotate(struct cli *cli, const struct key_options *o, struct err *err)
{
        struct cluster_key before, k;
        int r = cluster_key_load(o->data, &before, err);
        if (r < 0)
                return r;
        r = cluster_key_make(&before, NULL, &k, err);
        if (r == 0)
                r = cluster_key_save(o->data, &k, err);
        cluster_key_wipe(&before);
        if (r < 0)
                return r;
        tell(cli, o, &k);
        cli_out(cli, "copy it to the other servers of the cluster and beside the backups, then "
                     "restart the servers one after another; what the key "
                     "before has proved is still accepted\n");
        cluster_key_wipe(&k);
        return 0;
}

static int key_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        const struct key_options *o = values;
        const char *verb = args->n == 1 ? args->at[0] : "";
        if (o->replaces && !str_eq(verb, "new"))
                return usage_error(cli, err, "--replaces goes with berth key new");
        if (str_eq(verb, "show"))
                return show(cli, o, err);
        if (str_eq(verb, "new"))
                return make(cli, o, err);
        if (str_eq(verb, "rotate"))
                return rotate(cli, o, err);
        return usage_error(cli, err, "berth key show|new|rotate");
}

const struct verb verb_key = {
        .name = "key",
        .args = "show | new [--replaces FINGERPRINT] | rotate",
        .summary = "the cluster's key on this server",
        .text = "DIR/cluster.key proves which units this cluster ordered on which node, so that a "
                "restored store can adopt them and a node "
                "cannot make any up. The "
                "first leader makes it. Every server of a cluster has the same one, and leads only "
                "with it; no backup, event or record has it. "
                "show prints its fingerprint, never the key.",
        .examples =
            "  berth key show --data /var/lib/berth\n"
            "  berth key rotate --data /var/lib/berth\n"
            "  berth key new --data /var/lib/berth --replaces 0123456789abcdef0123456789abcdef",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .defaults = &defaults,
        .values_size = sizeof(struct key_options),
        .run = key_run,
        .group = VERBS_CLUSTER,
        .words = "show|new|rotate",
        .offline = true,
};
