/* store/etcd_restore.c: a store in etcd that is filled from a backup.
 *
 * etcd cannot take a whole store in one transaction. So <prefix>/meta/restoring is put first and
 * removed last, with the leadership compared each time: while it is there no server opens the
 * store, and a restore that was interrupted leaves one that says so.
 */
#include "base/mem.h"
#include "store/etcd_store.h"
#include <string.h>

#define LEAD_TTL_SECONDS 10
#define LEAD_WAIT_MS 15000 /* longer than the lease of a server that has just died */

int etcd_check_restoring(struct etcd_store *s, struct err *err)
{
        struct arena a = ARENA_INIT;
        const Etcd__KeyValue *kv = NULL;
        int r = etcd_get(s, etcd_key(s, &a, "/meta/restoring"), NULL, &a, &kv, err);
        if (r == 0 && kv)
                r = err_set(err, ERR_CONFLICT,
                            .msg = "a backup is being restored into this store, or was and did not "
                                   "come to its end",
                            .detail = fmt("the key %s/meta/restoring is there", s->prefix),
                            .hint = "let it end, or restore again with --force");
        arena_fini(&a);
        return r;
}

static int led(struct etcd_store *s, struct etcd_ops *o, struct arena *a, struct err *err)
{
        Etcd__TxnResponse *t;
        int r = etcd_txn(s, o, NULL, a, &t, err);
        return r < 0 ? r : t->succeeded ? 0 : etcd_err_not_leading(err, NULL);
}

/* The range without these keys in it, which are in order. */
static void delete_around(struct etcd_store *s, struct etcd_ops *o, const char *from,
                          const char *end, const char *const *kept)
{
        for (; *kept; kept++) {
                char *key = etcd_key(s, o->arena, *kept);
                if (strcmp(key, from) < 0 || strcmp(key, end) >= 0)
                        continue;
                etcd_ops_delete(o, from, key);
                from = arena_printf(o->arena, "%s0", key);
        }
        etcd_ops_delete(o, from, end);
}

/* Everything of ours but the leadership, the schema and the mark; the head becomes 0. One
 * transaction: a range counts once. */
static int mark_and_empty(struct etcd_store *s, struct err *err)
{
        static const char *const kept[] = { "/meta/head", "/meta/leader", "/meta/restoring",
                                            "/meta/schema", NULL };
        struct arena a = ARENA_INIT;
        struct etcd_ops o = { .arena = &a,
                              .cap = 64,
                              .ops = arena_new_n(&a, Etcd__RequestOp *, 64) };
        const char *mark = "a backup is being restored";
        etcd_ops_put(&o, etcd_key(s, &a, "/meta/restoring"), mark, strlen(mark));
        etcd_ops_put(&o, etcd_key(s, &a, "/meta/head"), "0", 1);
        for (size_t i = 0; i < etcd_n_ranges(s); i++) {
                const char *from, *end;
                etcd_range_at(s, i, &a, &from, &end);
                delete_around(s, &o, from, end, kept);
        }
        etcd_ops_delete(&o, etcd_key(s, &a, "/events/"), etcd_key(s, &a, "/events0"));
        int r = led(s, &o, &a, err);
        etcd_ops_fini(&o);
        arena_fini(&a);
        if (r == 0) {
                s->base.head = 0;
                s->checkpoint_known = false;
                s->checkpoint_seq = 0;
                etcd_cache_reset(&s->cache);
        }
        return r;
}

int etcd_restore_open(const char *rest, bool force, struct store **ret_store, struct err *err)
{
        struct store *store = NULL;
        int r = etcd_open(rest, true, true, &store, err);
        if (r < 0)
                return r;
        struct etcd_store *s = etcd_self(store);
        if (!force)
                r = etcd_check_restoring(s, err);
        if (r == 0 && !force && store->head)
                r = store_err_not_empty(err, fmt("etcd:%s", rest), store->head);
        if (r == 0)
                r = store_lead(store, "berth restore", LEAD_TTL_SECONDS, LEAD_WAIT_MS, err);
        if (r == 0)
                r = mark_and_empty(s, err);
        if (r < 0) {
                store_close(store);
                return r;
        }
        *ret_store = store;
        return 0;
}

int etcd_restore_done(struct store *base, char **ret_aside, struct err *err)
{
        struct etcd_store *s = etcd_self(base);
        struct arena a = ARENA_INIT;
        struct etcd_ops o = { .arena = &a, .cap = 1, .ops = arena_new_n(&a, Etcd__RequestOp *, 1) };
        if (ret_aside)
                *ret_aside = NULL;
        etcd_ops_delete(&o, etcd_key(s, &a, "/meta/restoring"), NULL);
        int r = led(s, &o, &a, err);
        etcd_ops_fini(&o);
        arena_fini(&a);
        base->ops->close(base);
        return r;
}
