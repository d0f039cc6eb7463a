/* server/key.c: see key.h. */
#include "server/key.h"

#include "base/log.h"
#include "base/mem.h"
#include "model/cluster_key.h"
#include "server/shared.h"
#include "store/store.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void note(struct server *s, const char *own, const char *trouble)
{
        pthread_mutex_lock(&s->lock);
        bool news = !str_eq(s->key_trouble, trouble);
        snprintf(s->key_trouble, sizeof(s->key_trouble), "%s", trouble);
        snprintf(s->key_fingerprint, sizeof(s->key_fingerprint), "%s", own);
        pthread_mutex_unlock(&s->lock);
        if (news && trouble[0])
                log_error("this server cannot lead: it does not have the cluster's key",
                          LOG_S("reason", trouble));
        else if (news)
                log_info("this server has the cluster's key", LOG_S("fingerprint", own));
}

/* The key of the cluster with this fingerprint. ERR_NOT_FOUND: there is no file. */
static int load(struct server *s, const char *fingerprint, struct cluster_key *ret, struct err *err)
{
        int r = cluster_key_load(s->opt.data_dir, ret, err);
        if (r == -ERR_NOT_FOUND)
                return err_set(err, ERR_NOT_FOUND,
                               .msg = fmt("%s/" CLUSTER_KEY_FILE " is missing", s->opt.data_dir),
                               .detail =
                                   fmt("the cluster's key has the fingerprint %s", fingerprint),
                               .hint = "copy it from another server of the cluster, or from where "
                                       "it is kept; if it is lost: berth key new --replaces, "
                                       "docs/backup.md");
        if (r < 0 || cluster_key_fits(ret, fingerprint))
                return r;
        err_set(
            err, ERR_CONFLICT,
            .msg = fmt("%s/" CLUSTER_KEY_FILE " is not the key of this cluster", s->opt.data_dir),
            .detail =
                fmt("its fingerprint is %s, the cluster's is %s", ret->fingerprint, fingerprint),
            .hint = "copy it from another server of the cluster, or from where it is kept; if it "
                    "is lost: berth key new --replaces, "
                    "docs/backup.md");
        cluster_key_wipe(ret);
        return -ERR_CONFLICT;
}

static int save(struct server *s, const struct cluster_key *k, struct err *err)
{
        int r = cluster_key_save(s->opt.data_dir, k, err);
        if (r == 0)
                log_info("made the cluster's key; keep a copy beside the backups, and give it to "
                         "the other servers of this cluster",
                         LOG_S("file", fmt("%s/" CLUSTER_KEY_FILE, s->opt.data_dir)),
                         LOG_S("fingerprint", k->fingerprint));
        return r;
}

/* A disk without room is no reason not to serve, where nobody else can: everything can be looked
 * at, and what is decided waits. */
static bool can_wait(struct server *s)
{
        return !store_is_shared(s->store) && access(s->opt.data_dir, W_OK) == 0;
}

static int make(struct server *s, struct cluster_key *ret, struct err *err)
{
        int r = cluster_key_make(NULL, NULL, ret, err);
        if (r == 0)
                r = save(s, ret, err);
        if (r == -ERR_IO && can_wait(s)) {
                log_error("the cluster's key cannot be written; nothing is changed until it is",
                          LOG_E(err));
                s->unsaved_key = mem_dup(ret, sizeof(*ret));
                r = 0;
        }
        return r;
}

int key_save(struct server *s, struct err *err)
{
        struct cluster_key there;
        if (!s->unsaved_key)
                return 0;
        int r = cluster_key_load(s->opt.data_dir, &there, &(struct err){ 0 });
        if (r != -ERR_NOT_FOUND) {
                cluster_key_wipe(&there);
                return err_set(
                    err, ERR_INVALID,
                    .msg = fmt("somebody else has made %s/" CLUSTER_KEY_FILE, s->opt.data_dir),
                    .hint = "start the server again: it takes that one");
        }
        if ((r = save(s, s->unsaved_key, err)) == 0)
                key_forget_unsaved(s);
        return r;
}

void key_forget_unsaved(struct server *s)
{
        if (s->unsaved_key)
                cluster_key_wipe(s->unsaved_key);
        mem_free(TAKE_PTR(s->unsaved_key));
}

int key_take(struct server *s, const char *fingerprint, struct err *err)
{
        struct cluster_key k;
        if (!s->opt.data_dir && str_empty(fingerprint))
                /* nowhere to keep one: nothing has a warrant, and nothing is adopted by itself */
                return 0;
        if (!s->opt.data_dir)
                return err_set(
                    err, ERR_CONFLICT,
                    .msg = "the cluster's key is needed, and this server has no data directory",
                    .hint = "start it with --data, and " CLUSTER_KEY_FILE " there");
        int r = load(s, fingerprint, &k, err);
        if (r == -ERR_NOT_FOUND && str_empty(fingerprint))
                r = make(s, &k, err);
        if (r == 0)
                r = cluster_key_warrants(&k, &s->opt.core.warrants, err);
        if (r < 0) {
                note(s, "", err_line(err));
                return r;
        }
        note(s, k.fingerprint, "");
        s->opt.core.key_fingerprint = s->key_fingerprint;
        cluster_key_wipe(&k);
        return 0;
}

bool key_lets_lead(struct server *s)
{
        char cluster[sizeof(s->cluster_fingerprint)];
        struct cluster_key k = { 0 };
        struct err err = { 0 };
        pthread_mutex_lock(&s->lock);
        memcpy(cluster, s->cluster_fingerprint, sizeof(cluster));
        pthread_mutex_unlock(&s->lock);
        if (!s->opt.data_dir)
                return str_empty(cluster);
        int r = load(s, cluster, &k, &err);
        if (r == -ERR_NOT_FOUND && str_empty(cluster))
                return true; /* it is made with the first lead */
        note(s, r == 0 ? k.fingerprint : "", r == 0 ? "" : err_line(&err));
        cluster_key_wipe(&k);
        return r == 0;
}

void key_publish(struct server *s, const char *fingerprint)
{
        if (str_eq(s->cluster_fingerprint, fingerprint)) /* only the ring writes it */
                return;
        pthread_mutex_lock(&s->lock);
        snprintf(s->cluster_fingerprint, sizeof(s->cluster_fingerprint), "%s", fingerprint);
        pthread_mutex_unlock(&s->lock);
}

static const char *copied(struct server *s, const char *from, char *buf, size_t size)
{
        pthread_mutex_lock(&s->lock);
        snprintf(buf, size, "%s", from);
        pthread_mutex_unlock(&s->lock);
        return buf;
}

const char *key_trouble(struct server *s, char *buf, size_t size)
{
        return copied(s, s->key_trouble, buf, size);
}

const char *key_own_fingerprint(struct server *s, char *buf, size_t size)
{
        return copied(s, s->key_fingerprint, buf, size);
}
