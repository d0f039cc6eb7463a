/* core/feature.c: the store's schema grows with the first use of what older servers do not know
 * (A10).
 *
 * Which servers are there, and what they can do, is in the input: the core asks nobody.
 */
#include "core/feature.h"
#include "base/commit.h"
#include "core/state.h"
#include "core/step.h"

bool feature_is_used(const struct core *c, enum feature f)
{
        return c->schema >= feature_schema(f);
}

bool feature_try(struct core *c, enum feature f)
{
        return feature_is_used(c, f) || ((c->in->features & FEATURE_BIT(f)) && feature_use(c, f));
}

bool feature_use(struct core *c, enum feature f)
{
        int schema = feature_schema(f);
        if (feature_is_used(c, f))
                return true;
        if (!(c->in->features & FEATURE_BIT(f))) {
                struct err err;
                err_set(&err, ERR_CONFLICT, .msg = "a server of this cluster is too old for this",
                        .detail = fmt("%s does not know %s",
                                      str_empty(c->in->lacking) ? "one of them" : c->in->lacking,
                                      feature_names[f]),
                        .hint = "upgrade it or stop it, and ask again; berth cluster shows the "
                                "servers with their versions");
                reply_error(c, &err);
                return false;
        }
        Pb__Cluster cluster = PB__CLUSTER__INIT;
        cluster.cluster_id = c->cluster_id;
        cluster.schema = schema;
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__SchemaRaised;
        e.cluster = &cluster;
        e.message = arena_printf(
            &c->step, "the store has schema %d from now on, for %s: older servers refuse it",
            schema, feature_names[f]);
        emit(c, &e);
        return true;
}

void apply_schema(struct core *c, const Pb__Event *e)
{
        c->schema = c->out.schema = (int)e->cluster->schema;
        cluster_changed(c);
}

const char *wrong_schema(struct core *c, const Pb__Event *e)
{
        return e->cluster && (int)e->cluster->schema > c->schema &&
                       e->cluster->schema <= STORE_SCHEMA
                   ? NULL
                   : "the schema is unknown or not a new one";
}
