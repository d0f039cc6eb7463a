/* core/cluster.c: what is known of the cluster as a whole: its id, the store's epoch, its key's
 * fingerprint.
 *
 * One record, /meta/cluster. Other concerns keep what they must not forget in it: the times of
 * leases (fence.c), what a restore forgot (restore.c), an operator's word on evictions (evict.c).
 */
#include "core/cluster.h"
#include "core/notice.h"
#include "core/restore.h"
#include "core/state.h"
#include "core/step.h"
#include "model/pb.h"

void cluster_changed(struct core *c)
{
        record_changed(c, RECORD_CLUSTER, 0, 1, 0);
}

void apply_cluster_event(struct core *c, const Pb__Event *e)
{
        text_set(&c->key_fingerprint, e->cluster->key_fingerprint);
        if (e->type == PB__EVENT_TYPE__E__ClusterCreated) {
                text_set(&c->cluster_id, e->cluster->cluster_id);
                c->epoch = e->cluster->epoch;
                c->cluster_created_at = e->cluster->created_at;
        }
        cluster_changed(c);
}

const char *wrong_cluster(struct core *c, const Pb__Event *e)
{
        (void)c;
        const Pb__Cluster *m = e->cluster;
        if (e->type == PB__EVENT_TYPE__E__ClusterKeyChanged)
                return m && !str_empty(m->key_fingerprint) ? NULL
                                                           : "the key's fingerprint is missing";
        return m && !str_empty(m->cluster_id) && m->epoch <= EPOCH_MAX &&
                       time_is_sane(m->created_at)
                   ? NULL
                   : "the cluster's id is missing";
}

/* ---- the record ---- */

static const char *name(const struct core *c, uint32_t slot, struct arena *a)
{
        (void)slot;
        (void)a;
        return c->cluster_id ? "cluster" : NULL;
}

static uint32_t find(const struct core *c, const char *text)
{
        return c->cluster_id && str_eq(text, "cluster") ? 0 : NONE;
}

static void *pack(struct core *c, uint32_t slot, struct arena *a, size_t *ret_len)
{
        (void)slot;
        Pb__Cluster r = PB__CLUSTER__INIT;
        r.cluster_id = c->cluster_id;
        r.epoch = c->epoch;
        r.schema = c->schema;
        r.created_at = c->cluster_created_at;
        r.key_fingerprint = c->key_fingerprint ? c->key_fingerprint : "";
        lost_record(c, &c->step, &r);
        r.restored = c->restored;
        r.evict_ordered_at = c->evict_ordered_at;
        Pb__Fencing fencing = PB__FENCING__INIT;
        if (c->fencing.lease_ms) {
                fencing_fill(c, &fencing);
                r.fencing = &fencing;
        }
        return pb_pack_arena(a, &r.base, ret_len);
}

static const char *load(struct core *c, const char *text, const ProtobufCMessage *msg)
{
        const Pb__Cluster *m = (const Pb__Cluster *)msg;
        (void)text;
        if (str_empty(m->cluster_id) || m->epoch > EPOCH_KEPT_MAX || !lost_is_sane(m) ||
            (m->fencing && !fencing_is_sane(m->fencing)))
                return "its id, its epoch or a time is missing or out of range";
        c->evict_ordered_at = sane_time(m->evict_ordered_at);
        array_clear(&c->lost);
        for (size_t i = 0; i < m->n_lost; i++)
                lost_add(c, m->lost[i]);
        text_set(&c->cluster_id, m->cluster_id);
        text_set(&c->key_fingerprint, m->key_fingerprint);
        c->epoch = m->epoch;
        c->schema = m->schema > STORE_SCHEMA_FIRST ? (int)m->schema : STORE_SCHEMA_FIRST;
        c->cluster_created_at = m->created_at;
        fencing_take(c, m);
        return NULL;
}

static void put_back(struct core *c, uint32_t slot)
{
        (void)slot;
        cluster_changed(c);
}

const struct record_kind cluster_records = {
        .unsaved = offsetof(struct core, cluster_unsaved), /* there is one */
        .name = name,
        .find = find,
        .pack = pack,
        .load = load,
        .put_back = put_back,
};
