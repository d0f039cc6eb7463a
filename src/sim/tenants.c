/* sim/tenants.c: quotas, as somebody sees them who knows only the committed events: no creation and
 * no placement that was not a move exceeded a limit of its time (Q4). */
#include "base/mem.h"
#include "sim/world.h"
#include <string.h>

struct tenant_quota {
        int64_t workloads, cpu; /* 0: no limit */
};
struct owned {
        uint8_t tenant; /* 1 + its number; 0: not known */
        bool running;   /* wanted so */
        bool deleting, placed;
        int64_t cpu;
        /* sequence of the event that took it off its node: a placement right after it is a move */
        uint64_t left_at;
};
struct tenants {
        struct tenant_quota quotas[SIM_TENANTS];
        ARRAY(struct owned) items;
};

const char *const sim_tenant_names[SIM_TENANTS] = { "default", "blue", "green" };

struct tenants *tenants_create(void)
{
        return mem_must(sizeof(struct tenants));
}

void tenants_destroy(struct tenants *t)
{
        array_fini(&t->items);
        mem_free(t);
}

static unsigned tenant_number(const char *name)
{
        for (unsigned i = 0; i < SIM_TENANTS; i++)
                if (str_eq(name, sim_tenant_names[i]))
                        return i;
        return 0;
}

static struct owned *item(struct tenants *t, const char *id)
{
        size_t n = number_of(id);
        while (t->items.len <= n)
                array_push(&t->items);
        return &t->items.at[n];
}

static bool too_much_cpu(const struct tenants *t, unsigned tenant)
{
        int64_t cpu = 0;
        for (size_t i = 0; i < t->items.len; i++) {
                const struct owned *o = &t->items.at[i];
                cpu +=
                    o->tenant == tenant + 1 && o->placed && o->running && !o->deleting ? o->cpu : 0;
        }
        return t->quotas[tenant].cpu && cpu > t->quotas[tenant].cpu;
}

static const char *too_much(const struct tenants *t, unsigned tenant, bool placed)
{
        int64_t n = 0, cpu = 0;
        for (size_t i = 0; i < t->items.len; i++) {
                const struct owned *o = &t->items.at[i];
                if (o->tenant != tenant + 1 || o->deleting ||
                    (placed && !(o->placed && o->running)))
                        continue;
                n++;
                cpu += o->running && placed ? o->cpu : 0;
        }
        const struct tenant_quota *q = &t->quotas[tenant];
        if ((q->workloads && n > q->workloads) || (q->cpu && cpu > q->cpu))
                return placed ? "Q4: a placement exceeds its tenant's quota"
                              : "Q4: a new workload exceeds its tenant's quota";
        return NULL;
}

bool tenants_allow(struct tenants *t, const char *id)
{
        struct owned *o = item(t, id);
        if (!o->tenant || o->placed)
                return false;
        o->placed = true;
        bool fits = !too_much(t, o->tenant - 1u, true);
        o->placed = false;
        return fits;
}

const char *tenants_event(struct tenants *t, const Pb__Event *e)
{
        if (e->type == PB__EVENT_TYPE__E__QuotaSet || e->type == PB__EVENT_TYPE__E__QuotaRemoved) {
                bool set = e->type == PB__EVENT_TYPE__E__QuotaSet;
                t->quotas[tenant_number(e->quota->tenant)] =
                    (struct tenant_quota){ set ? e->quota->workloads : 0,
                                           set && e->quota->resources ? e->quota->resources->cpu
                                                                      : 0 };
                return NULL;
        }
        if (str_empty(e->workload_id))
                return NULL;
        struct owned *o = item(t, e->workload_id);
        switch (e->type) {
        case PB__EVENT_TYPE__E__WorkloadApplied: {
                bool created = !o->tenant;
                int64_t before = o->cpu;
                o->tenant = (uint8_t)(1 + tenant_number(e->workload->tenant));
                o->cpu = e->workload->resources ? e->workload->resources->cpu : 0;
                if (created)
                        o->running = e->workload->desired_state != PB__DESIRED_STATE__E__Stopped;
                if (created)
                        return too_much(t, o->tenant - 1u, false);
                return o->placed && o->running && o->cpu > before && too_much_cpu(t, o->tenant - 1u)
                           ? "Q4: what was asked for in place exceeds its tenant's quota"
                           : NULL;
        }
        case PB__EVENT_TYPE__E__WorkloadDesired:
                o->running = e->desired_state == PB__DESIRED_STATE__E__Running;
                return o->running && o->placed ? too_much(t, o->tenant - 1u, true) : NULL;
        case PB__EVENT_TYPE__E__WorkloadDeleting:
                o->deleting = true;
                return NULL;
        case PB__EVENT_TYPE__E__WorkloadDeleted:
                *o = (struct owned){ 0 };
                return NULL;
        case PB__EVENT_TYPE__E__Rescheduled:
                o->left_at = o->placed && o->running ? e->seq : 0;
                o->placed = false;
                return NULL;
        case PB__EVENT_TYPE__E__WorkloadCompleted:
        case PB__EVENT_TYPE__E__WorkloadFailed:
                o->placed = false;
                return NULL;
        case PB__EVENT_TYPE__E__WorkloadScheduled:
                o->placed = true;
                return o->left_at && o->left_at + 1 == e->seq ? NULL
                                                              : too_much(t, o->tenant - 1u, true);
        default:
                return NULL;
        }
}
