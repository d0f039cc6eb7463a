/* cli/migrate.c: berth migrate-store: everything from one store into another, of whatever kind. */
#include "base/clock.h"
#include "cli/verbs.h"
#include "store/store.h"
#include <inttypes.h>
#include <string.h>

#define LEAD_TTL_SECONDS 5
#define LEAD_WAIT_MS 10000

struct migrate_options {
        bool quiet;
};
static const struct migrate_options defaults = { 0 };
static const struct opt rows[] = {
        OPT(struct migrate_options, OPT_FLAG, quiet, .name = "quiet",
            .help = "say nothing but errors"),
};

static void tell(void *ctx, uint64_t copied)
{
        cli_out(ctx, "%" PRIu64 " events and records copied\n", copied);
}

/* A store that others reach too is written by whoever leads; while this runs no server may. */
static int open_led(const char *url, bool create, struct store **ret, struct err *err)
{
        int r = store_open(url, create, ret, err);
        return r < 0 ? r
                     : store_lead(*ret, "berth migrate-store", LEAD_TTL_SECONDS, LEAD_WAIT_MS, err);
}

static int migrate_run(struct cli *cli, const void *values, const struct args *args,
                       struct err *err)
{
        const struct migrate_options *o = values;
        _cleanup_(store_closep) struct store *from = NULL, *to = NULL;
        if (args->n != 2)
                return usage_error(cli, err, "give two stores: where from and where to");
        if (str_eq(args->at[0], args->at[1]))
                return usage_error(cli, err, "the two stores are the same");
        int r = open_led(args->at[0], false, &from, err);
        if (r == 0)
                r = open_led(args->at[1], true, &to, err);
        if (r == 0 && store_head(to) != 0)
                r = err_set(err, ERR_CONFLICT, .msg = "the target already holds a store",
                            .detail = fmt("%s: its head is %" PRIu64, args->at[1], store_head(to)),
                            .hint = "choose another file or prefix, or remove it first");
        if (r == 0)
                r = store_copy(from, to, o->quiet ? NULL : tell, cli, err);
        if (r == 0)
                r = store_integrity(to, err);
        if (r == 0 && !o->quiet)
                cli_out(cli,
                        "done: head %" PRIu64
                        ". Start servers with --store %s; keep the old store until they run.\n",
                        store_head(to), args->at[1]);
        return r;
}

const struct verb verb_migrate_store = {
        .name = "migrate-store",
        .args = "FROM TO",
        .summary = "copy a store into another one, of whatever kind",
        .text = "Works on stores that no server uses: the embedded one (a path) and etcd "
                "(etcd://host:2379,...). Events, records, "
                "checkpoint and head are the same "
                "afterwards, so that agents notice nothing. The target must be empty; the source "
                "is not changed.",
        .examples = "  berth migrate-store /var/lib/berth/berth.db "
                    "etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379\n"
                    "  berth migrate-store etcd://127.0.0.1:2379 backup.db",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .defaults = &defaults,
        .values_size = sizeof(struct migrate_options),
        .run = migrate_run,
        .group = VERBS_CLUSTER,
        .offline = true,
};
