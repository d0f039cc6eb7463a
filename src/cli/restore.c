/* cli/restore.c: berth restore: a backup file into a store that is empty, with a new epoch.
 *
 * The last thing that is committed is the core's own decision that a backup was restored
 * (core/restore.c): from then on nothing that agents have seen since the backup can be taken for
 * something that this store ordered.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "cli/verbs.h"
#include "core/core.h"
#include "model/cluster_key.h"
#include "store/store.h"
#include <inttypes.h>
#include <string.h>
#include <time.h>

struct restore_options {
        const char *data, *store, *key;
        int64_t epoch_above;
        bool force, quiet, without_key;
};
static const struct restore_options defaults = { .data = "./.berth" };
static const struct opt rows[] = {
        OPT(struct restore_options, OPT_TEXT, data, .name = "data", .arg = "DIR",
            .env = "BERTH_DATA", .completes = 'f',
            .help = "data directory of the server (./.berth)"),
        OPT(struct restore_options, OPT_TEXT, store, .name = "store", .arg = "URL",
            .env = "BERTH_STORE",
            .help = "the store (sqlite:DIR/berth.db), or etcd://host:2379,..."),
        OPT(struct restore_options, OPT_FLAG, force, .name = "force",
            .help = "although there is a store: the old one is kept aside, and its name is told"),
        OPT(struct restore_options, OPT_INT, epoch_above, .name = "epoch-above", .arg = "N",
            .min = 0, .max = INT64_C(1) << 61,
            .help = "if an agent says that it has seen a newer epoch: that one"),
        OPT(struct restore_options, OPT_TEXT, key, .name = "key", .arg = "FILE", .completes = 'f',
            .help = "the cluster's key, which no backup has (DIR/cluster.key)"),
        OPT(struct restore_options, OPT_FLAG, without_key, .name = "without-key",
            .help = "it is lost: a new one is made, and what agents run is adopted by an "
                    "operator's word only"),
        OPT(struct restore_options, OPT_FLAG, quiet, .name = "quiet",
            .help = "say nothing but errors"),
};

static void tell(void *ctx, uint64_t copied)
{
        cli_out(ctx, "%" PRIu64 " events and records restored\n", copied);
}

struct loading {
        struct core *core;
        bool has_cluster;
};

static int load_one(void *ctx, const struct store_record *r, struct err *err _unused_)
{
        struct loading *l = ctx;
        /* a bad one stays as bad as it was */
        int bad = core_load_record(l->core, r->key, r->data, r->len, NULL);
        l->has_cluster |= !bad && str_eq(r->key, "/meta/cluster");
        return 0;
}

/* The core decides; what it decided is committed. */
static int raise_epoch(struct store *store, uint64_t above, const char *fingerprint,
                       uint64_t *ret_epoch, struct err *err)
{
        struct core_options options;
        core_options_default(&options);
        options.index_records = store_limits(store).wants_index_records;
        options.key_fingerprint = fingerprint;
        _cleanup_(core_destroyp) struct core *core = core_create(&options);
        struct loading loading = { core, false };
        uint64_t head = 0;
        int r = store_load(store, load_one, &loading, &head, err);
        if (r < 0)
                return r;
        if (!loading.has_cluster)
                return err_set(err, ERR_CORRUPT,
                               .msg = "the backup has no record of its cluster that can be read",
                               .detail = "/meta/cluster",
                               .hint = "restore another backup; what was there is as it was");
        core_step(core, &(struct input){ .kind = INPUT_RESTORED,
                                         .now_ms = clock_wall_ms(),
                                         .head = head,
                                         .epoch = above });
        struct core_batch *b = core_cut(core);
        r = b ? store_commit(store, &b->commit, err)
              : err_set(err, ERR_INTERNAL, .msg = "the restore decided nothing");
        *ret_epoch = b ? b->epoch : 0;
        if (b)
                core_batch_free(b);
        return r;
}

static int find_fingerprint(void *ctx, const struct store_record *r, struct err *err _unused_)
{
        char *ret = ctx;
        Pb__Cluster *c =
            str_eq(r->key, "/meta/cluster") ? pb__cluster__unpack(NULL, r->len, r->data) : NULL;
        if (c && cluster_key_fingerprint_is_sane(c->key_fingerprint))
                memcpy(ret, c->key_fingerprint, CLUSTER_KEY_FINGERPRINT + 1);
        if (c)
                pb__cluster__free_unpacked(c, NULL);
        return 0;
}

/* The key is in no backup: it is asked for, since without it nobody can tell what this cluster
 * ordered from what a node made up. */
static int take_key(const struct restore_options *o, struct store *from, struct cluster_key *ret,
                    struct err *err)
{
        char wanted[CLUSTER_KEY_FINGERPRINT + 1] = "";
        uint64_t head;
        int r = store_load(from, find_fingerprint, wanted, &head, err);
        if (r < 0 || (!wanted[0] && !o->key) || o->without_key)
                return r;
        r = o->key ? cluster_key_load_file(o->key, ret, err) : cluster_key_load(o->data, ret, err);
        if (r == -ERR_NOT_FOUND)
                return err_set(
                    err, ERR_NOT_FOUND, .msg = "the cluster's key is needed, and no backup has it",
                    .detail = fmt("%s is not there; the key's fingerprint is %s",
                                  o->key ? o->key : fmt("%s/" CLUSTER_KEY_FILE, o->data), wanted),
                    .hint = "--key FILE: cluster.key of a server of this cluster, or the copy that "
                            "was kept; if it is lost: --without-key");
        if (r < 0 || cluster_key_fits(ret, wanted))
                return r;
        err_set(err, ERR_CONFLICT, .msg = "this is not the key of the cluster in the backup",
                .detail =
                    fmt("its fingerprint is %s, the cluster's is %s", ret->fingerprint, wanted),
                .hint = "--key FILE names another one; if the right one is lost: --without-key");
        cluster_key_wipe(ret);
        return -ERR_CONFLICT;
}

/* Of what is there, before it goes: only etcd needs it, an embedded store is renamed. */
static int keep_aside(struct cli *cli, const char *url, char **ret_aside, struct err *err)
{
        _cleanup_(store_closep) struct store *old = NULL;
        char when[32];
        time_t now = (time_t)(clock_wall_ms() / 1000);
        struct tm tm;
        if (!str_starts(url, "etcd:"))
                return 0;
        int r = store_open_moment(url, &old, err);
        if (r == -ERR_NOT_FOUND || r == -ERR_CONFLICT || (r == 0 && store_head(old) == 0))
                return 0; /* nothing there, or what an interrupted restore left */
        (void)strftime(when, sizeof(when), "%Y%m%d-%H%M%S", gmtime_r(&now, &tm));
        *ret_aside = arena_printf(&cli->arena, "before-restore-%s.backup", when);
        if (r == 0)
                r = store_backup(old, *ret_aside, BERTH_VERSION, clock_wall_ms(), NULL, NULL, NULL,
                                 err);
        return r < 0 ? err_prefix(err,
                                  "what is in etcd cannot be kept aside; restore to another prefix")
                     : 0;
}

static int restore_run(struct cli *cli, const void *values, const struct args *args,
                       struct err *err)
{
        const struct restore_options *o = values;
        _cleanup_(store_closep) struct store *from = NULL;
        struct store *to = NULL;
        char *aside = NULL, *renamed = NULL;
        struct cluster_key key = { 0 };
        uint64_t epoch = 0;
        if (args->n != 1)
                return usage_error(cli, err, "give one file");
        if (o->key && o->without_key)
                return usage_error(cli, err, "--key or --without-key, not both");
        const char *url =
            o->store ? o->store : arena_printf(&cli->arena, "sqlite:%s/berth.db", o->data);
        int r = store_open_moment(arena_printf(&cli->arena, "backup:%s", args->at[0]), &from, err);
        if (r == 0 && !store_backup_facts(from)->cluster_id[0])
                r = err_set(err, ERR_INVALID,
                            .msg = "the backup is of a store that no server has used yet",
                            .detail = args->at[0],
                            .hint = "there is nothing to restore; start a server on a new store");
        if (r == 0)
                r = take_key(o, from, &key, err);
        if (r == 0 && o->force)
                r = keep_aside(cli, url, &aside, err);
        if (r == 0)
                r = store_restore_open(url, o->force, &to, err);
        if (r < 0)
                return r;
        r = store_copy(from, to, o->quiet ? NULL : tell, cli, err);
        if (r == 0)
                r = raise_epoch(to, (uint64_t)o->epoch_above,
                                key.fingerprint[0] ? key.fingerprint : NULL, &epoch, err);
        if (r == 0 && o->key && !o->store) /* beside the store, where its server looks for it */
                r = cluster_key_save(o->data, &key, err);
        if (r == 0)
                r = store_integrity(to, err);
        if (r < 0) {
                store_close(to);
                return r;
        }
        bool has_key = key.fingerprint[0];
        cluster_key_wipe(&key);
        uint64_t head = store_head(to);
        r = store_restore_done(to, &renamed, err);
        if (r == 0 && !o->quiet) {
                const char *kept = renamed ? renamed : aside;
                cli_out(cli, "restored: cluster %s, head %" PRIu64 ", epoch %" PRIu64 "%s%s\n",
                        store_backup_facts(from)->cluster_id, head, epoch,
                        kept ? "; what was there is kept as " : "", kept ? kept : "");
                cli_out(
                    cli,
                    "start the server (--store %s); agents come back by themselves, and nothing "
                    "that they run is stopped. Then: berth "
                    "events, berth get nodes, berth adopt NODE for what came after the backup\n",
                    url);
                if (!has_key)
                        cli_out(cli, "without the cluster's key: nothing that agents run and the "
                                     "records do not know is adopted by itself; "
                                     "berth adopt "
                                     "NODE takes it over, one node at a time, if you trust it\n");
                else if (o->store)
                        cli_out(cli, "every server of the store needs this " CLUSTER_KEY_FILE
                                     " in its data directory, and leads only with it\n");
        }
        mem_free(renamed);
        return r;
}

const struct verb verb_restore = {
        .name = "restore",
        .args = "FILE",
        .summary = "make a store of a backup",
        .text = "With all servers of the store stopped. Into an empty place only, unless --force, "
                "which keeps the old store aside. The "
                "file is checked "
                "as a whole first; if something fails the "
                "old store is as it was (in etcd: refused by servers until a restore has come to "
                "its end). The store's epoch grows, so "
                "agents that "
                "have seen more than the backup knows are told to stop nothing: what they run and "
                "the records do not know is reported and "
                "can be "
                "adopted. The cluster's key is in no backup: it is taken from the data directory "
                "or from --key, and proves which of that this "
                "cluster ordered; that is adopted by itself.",
        .examples = "  berth restore monday.backup --data /var/lib/berth --key cluster.key\n"
                    "  berth restore monday.backup --store "
                    "etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379 --force --key cluster.key",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .defaults = &defaults,
        .values_size = sizeof(struct restore_options),
        .run = restore_run,
        .group = VERBS_CLUSTER,
        .offline = true,
};
