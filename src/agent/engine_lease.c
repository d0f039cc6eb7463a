/* agent/engine_lease.c: the lease that lets a node run exclusive units (C34). Rule (12) of
 * engine.h; docs/fencing.md has the whole argument.
 *
 * A lease counts from the moment at which the heartbeat was made that a server answered, by this
 * machine's steady clock. However long the answer took, and whoever sent it: when the lease holds,
 * some leader has heard this agent since. When it has run out, nothing that came from any server
 * prolongs it but the answer to a newer heartbeat.
 *
 * The driver writes it down (ORDER_LEASE) before it starts anything under it, so that whoever
 * watches a unit (its monitor) can stop it when this process is dead, or stopped.
 */
#include "agent/engine.h"
#include "agent/engine_state.h"
#include "base/mutant.h"

#define LEASE_MAX_MS (24 * 60 * 60 * 1000) /* whatever a server grants */

void engine_set_steady(struct engine *e, int64_t now_ms, int64_t steady_ms)
{
        e->steady_ahead_ms = steady_ms - now_ms;
}

int64_t engine_steady_ms(const struct engine *e, int64_t now_ms)
{
        return now_ms + e->steady_ahead_ms;
}

bool engine_lease_holds(const struct engine *e, int64_t now_ms)
{
        return engine_steady_ms(e, now_ms) < e->lease_until_ms;
}

void engine_load_lease(struct engine *e, int64_t until_ms, int64_t kill_ms)
{
        must(!e->booted, "a lease is loaded before the boot");
        e->lease_until_ms = until_ms;
        e->lease_stop_ms = kill_ms > until_ms ? kill_ms - until_ms : 0;
}

/* Its definition has changed, or it goes. */
void engine_lease_count(struct engine *e, struct unit *u, bool leased)
{
        if (u->leased == leased)
                return;
        u->leased = leased;
        e->n_leased += leased ? 1 : -1u;
        e->lease_dirty = e->lease_dirty || (leased && e->lease_until_ms != INT64_MIN);
}

/* The lease that its answer brings counts from here. A start that waits for a lease does not wait
 * for the heartbeat's time. */
void engine_beat(struct engine *e, int64_t now_ms)
{
        if (!e->welcome || e->beat_due)
                return;
        e->beat_due = true;
        e->beat_clock_ms = engine_steady_ms(e, now_ms);
}

void engine_on_ack(struct engine *e, const Pb__HeartbeatAck *ack, int64_t now_ms)
{
        int64_t steady = engine_steady_ms(e, now_ms);
        int64_t lease = ack->lease_ms < LEASE_MAX_MS ? ack->lease_ms : LEASE_MAX_MS;
        int64_t from = MUTANT(lease_counts_from_answer) ? steady : ack->clock_ms;

        if (lease <= 0 || from <= 0 || from > steady || from < e->lease_from_ms ||
            from + lease <= steady)
                return; /* not renewed, or too late */
        bool held = engine_lease_holds(e, now_ms);
        e->lease_from_ms = from;
        e->lease_until_ms = from + lease;
        e->lease_stop_ms = ack->stop_ms > 0 && ack->stop_ms < LEASE_MAX_MS ? ack->stop_ms : 0;
        e->lease_dirty = e->n_leased > 0;
        if (held || !e->n_leased)
                return;
        for (size_t i = 0; i < e->units.len; i++)
                if (e->units.at[i] && e->units.at[i]->leased)
                        engine_settle(e, e->units.at[i], now_ms);
        engine_pump_starts(e, now_ms);
}

/* Level, not edge: also after a boot, and again for what was being stopped with a longer grace than
 * there is. */
void engine_lease_enforce(struct engine *e, int64_t now_ms)
{
        if (!e->n_leased || !e->booted || engine_lease_holds(e, now_ms) ||
            MUTANT(lease_end_ignored))
                return;
        for (size_t i = 0; i < e->units.len; i++) {
                struct unit *u = e->units.at[i];

                if (!u || !u->run_leased || !unit_in_runtime(u) || u->expired)
                        continue;
                u->expired = true;
                engine_stop_within(
                    e, u, u->grace_ms < e->lease_stop_ms ? u->grace_ms : e->lease_stop_ms, now_ms);
                unit_set_text(&u->message, "the agent's lease has run out", MESSAGE_MAX);
                engine_mark_report(e, u);
        }
}

int64_t engine_lease_next_ms(const struct engine *e)
{
        if (!e->n_leased || e->lease_until_ms == INT64_MIN || MUTANT(lease_end_ignored))
                return HEAP_NEVER;
        for (size_t i = 0; i < e->units.len; i++) {
                const struct unit *u = e->units.at[i];

                if (u && u->run_leased && unit_in_runtime(u) && !u->expired)
                        return e->lease_until_ms - e->steady_ahead_ms;
        }
        return HEAP_NEVER;
}
