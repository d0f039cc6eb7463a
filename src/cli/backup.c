/* cli/backup.c: berth backup: a store into one file, while servers go on. */
#include "base/clock.h"
#include "cli/fsck.h"
#include "cli/verbs.h"
#include "store/store.h"
#include <inttypes.h>

#define TRIES 3 /* etcd may have compacted the revision that was being read */

struct backup_options {
        const char *data, *store;
        bool verify, quiet;
};
static const struct backup_options defaults = { .data = "./.berth" };
static const struct opt rows[] = {
        OPT(struct backup_options, OPT_TEXT, data, .name = "data", .arg = "DIR",
            .env = "BERTH_DATA", .completes = 'f',
            .help = "data directory of the server (./.berth)"),
        OPT(struct backup_options, OPT_TEXT, store, .name = "store", .arg = "URL",
            .env = "BERTH_STORE",
            .help = "the store (sqlite:DIR/berth.db); etcd://host:2379,... needs no server at all"),
        OPT(struct backup_options, OPT_FLAG, verify, .name = "verify",
            .help = "check FILE instead of making it"),
        OPT(struct backup_options, OPT_FLAG, quiet, .name = "quiet",
            .help = "say nothing but errors"),
};

static void print_facts(struct cli *cli, const struct backup_facts *f)
{
        char when[TIME_TEXT_LEN];
        cli_out(cli,
                "cluster %s, epoch %" PRIu64 ", head %" PRIu64 ", schema %d; %" PRIu64
                " events, %" PRIu64 " records, checkpoint at %" PRIu64 "; %" PRIu64
                " bytes, made %s by berth %s of a store in %s\n",
                f->cluster_id[0] ? f->cluster_id : "(none)", f->epoch, f->head, f->schema,
                f->events, f->records, f->checkpoint, f->bytes, time_format(when, f->made_at),
                f->version, f->store);
}

static void tell(void *ctx, uint64_t done)
{
        cli_out(ctx, "%" PRIu64 " events and records written\n", done);
}

static int verify(struct cli *cli, const char *file, bool quiet, struct err *err)
{
        _cleanup_(store_closep) struct store *store = NULL;
        int r = store_open_moment(arena_printf(&cli->arena, "backup:%s", file), &store, err);
        if (r < 0)
                return r;
        if (!quiet)
                print_facts(cli, store_backup_facts(store));
        return fsck_store(cli, store, err);
}

static int backup_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        const struct backup_options *o = values;
        struct backup_facts facts = { 0 };
        if (args->n != 1)
                return usage_error(cli, err, "give one file");
        if (o->verify)
                return verify(cli, args->at[0], o->quiet, err);
        const char *url =
            o->store ? o->store : arena_printf(&cli->arena, "sqlite:%s/berth.db", o->data);
        int r = -ERR_UNAVAILABLE;
        for (int i = 0; i < TRIES && (r == -ERR_UNAVAILABLE || r == -ERR_CORRUPT); i++) {
                _cleanup_(store_closep) struct store *store = NULL;
                r = store_open_moment(url, &store, err);
                if (r == 0)
                        r = store_backup(store, args->at[0], BERTH_VERSION, clock_wall_ms(),
                                         o->quiet ? NULL : tell, cli, &facts, err);
        }
        if (r == 0 && !o->quiet)
                print_facts(cli, &facts);
        return r;
}

const struct verb verb_backup = {
        .name = "backup",
        .args = "FILE",
        .summary = "copy a store into one file, while its server runs",
        .text = "Reads the store as it is at one moment; a server that uses it goes on and is not "
                "asked. The embedded store is read on its own "
                "machine (--data or --store), etcd from anywhere. FILE "
                "holds everything, with a checksum; it appears when it is whole. --verify reads "
                "such a file, checks the checksum and that "
                "records "
                "and events agree, as berth fsck does. berth "
                "restore makes a store of it.",
        .examples = "  berth backup --data /var/lib/berth monday.backup\n"
                    "  berth backup --store etcd://10.0.0.1:2379,10.0.0.2:2379 monday.backup\n"
                    "  berth backup --verify monday.backup",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .defaults = &defaults,
        .values_size = sizeof(struct backup_options),
        .run = backup_run,
        .group = VERBS_CLUSTER,
        .offline = true,
};
