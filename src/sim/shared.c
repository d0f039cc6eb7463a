/* sim/shared.c: a store that several servers share, and how each of them reaches it.
 *
 * Who leads has the key. The key goes with its lease, and a lease stays when its key is removed.
 * Commits, reads, keep-alives and the watch are ways of their own (each has a connection, or a
 * member of the store, of its own), so each can fail while the others work. Asks and answers take
 * their time, and what is on the wire arrives, whatever becomes of who sent it. Every step of a
 * server here may have to wait because its process stands still: server.c.
 */
#include "base/mem.h"
#include "base/mutant.h"
#include "sim/world.h"
#include <string.h>

/* whoever asked for the leadership or the records and got no answer asks again after this */
#define AGAIN_MS 1000

struct ask {
        enum ask_kind kind;
        /* the leadership that it is asked under; of an answer to ASK_LEAD: the one given */
        uint64_t rev;
        int64_t sent_ms;     /* by the server's steady clock */
        bool ok, proof;      /* proof: the key was compared, and was this one's */
        struct sent *commit; /* ASK_COMMIT */
        struct core *loaded; /* the answer to ASK_LOAD */
        uint64_t head;
};

static int64_t steady(const struct sim *s, const struct server *v)
{
        return sim_steady(&v->steady, s->now);
}

void sim_ask_free(struct ask *a)
{
        if (!a)
                return;
        sim_sent_unref(a->commit);
        if (a->loaded)
                core_destroy(a->loaded);
        mem_free(a);
}

/* ---- the wire ---- */

static bool is_cut(const struct sim *s, const struct server *v, enum ask_kind kind)
{
        enum channel by = kind == ASK_KEEP                        ? BY_LEASE
                          : kind == ASK_LOAD || kind == ASK_PROVE ? BY_READ
                                                                  : BY_COMMIT;
        return s->now < v->cut_until[by] || s->away;
}

static int64_t wire_delay(struct sim *s, bool commit)
{
        if (commit && s->now < s->slow_until)
                return sim_between(s, CHANCE_SERVER, 20, 2000);
        return sim_hit(s, SIM_DELAY, 20000) ? sim_between(s, CHANCE_SERVER, 100, 4000)
                                            : sim_between(s, CHANCE_SERVER, 1, 15);
}

void sim_ask_store(struct sim *s, struct server *v, enum ask_kind kind)
{
        if (is_cut(s, v, kind))
                return;
        struct ask *a = mem_must(sizeof(*a));
        *a = (struct ask){ .kind = kind, .rev = v->rev, .sent_ms = steady(s, v) };
        if (kind == ASK_COMMIT) {
                a->commit = v->committing;
                a->commit->refs++;
        }
        sim_at(s, s->now + wire_delay(s, kind == ASK_COMMIT),
               (struct sim_event){
                   .kind = EV_STORE, .server = v->number, .life = v->life, .data = a });
}

/* Whose key it is has changed: those who watch it hear so. One that is blind hears of it when it
 * sees again. */
static void tell_watchers(struct sim *s)
{
        for (uint32_t i = 0; i < s->opt.servers; i++) {
                struct server *v = &s->servers[i];
                int64_t at = s->now + wire_delay(s, false);
                sim_at(s, at > v->cut_until[BY_WATCH] ? at : v->cut_until[BY_WATCH] + 1,
                       (struct sim_event){ .kind = EV_HEARD,
                                           .server = i,
                                           .life = v->life,
                                           .value = s->leader,
                                           .conn = s->revs });
        }
}

/* ---- the store ---- */

void sim_store_remove_key(struct sim *s)
{
        s->leader = 0;
        tell_watchers(s);
}

static void end_leases(struct sim *s)
{
        for (uint32_t i = 0; i < s->opt.servers; i++)
                if (s->leases[i].rev && s->now >= s->leases[i].until) {
                        if (s->leases[i].rev == s->leader)
                                sim_store_remove_key(s);
                        s->leases[i].rev = 0;
                }
}

/* As etcd: who leads, and the head, are compared; a batch that had gone through is taken for what
 * it is. */
static bool take_commit(struct sim *s, struct server *v, const struct ask *a)
{
        struct err err = { 0 };
        bool leads = s->leader && a->rev == s->leader;
        if (!leads && !MUTANT(leadership_not_compared)) {
                sim_saw(s, SAW_REFUSED);
                return false;
        }
        uint64_t head = store_head(s->store);
        int r = sim_server_write(s, v, &a->commit->batch->commit, &err);
        if (!leads && store_head(s->store) != head)
                sim_fail(s, "C33: a server that does not lead has written",
                         fmt("after %lld ms", (long long)(s->now - START_MS)));
        return r == 0;
}

static bool take_ask(struct sim *s, struct server *v, struct ask *a)
{
        int64_t until = s->now + sim_true_wait(&s->store_clock, LEAD_MS);
        bool leads = s->leader && a->rev == s->leader;
        switch (a->kind) {
        case ASK_LEAD:
                if (s->leader)
                        return false;
                a->rev = s->leader = s->leases[v->number].rev = ++s->revs;
                s->leases[v->number].until = until;
                tell_watchers(s);
                return true;
        case ASK_KEEP: /* the lease: of the key it says nothing */
                if (!a->rev || a->rev != s->leases[v->number].rev)
                        return false;
                s->leases[v->number].until = until;
                return true;
        case ASK_PROVE:
                return a->proof = leads;
        case ASK_LOAD:
                if (leads)
                        a->loaded = sim_server_load(s, &a->head);
                return leads;
        case ASK_COMMIT:
                a->ok = take_commit(s, v, a);
                a->proof = leads && a->ok;
                return a->ok;
        }
        return false;
}

void sim_store_happens(struct sim *s, struct sim_event *ev)
{
        struct ask *a = ev->data;
        struct server *v = &s->servers[ev->server];
        if (s->away)
                return;
        end_leases(s);
        a->ok = take_ask(s, v, a);
        if (is_cut(s, v, a->kind))
                return; /* its answer is lost; whoever asked does not know what came of it */
        sim_at(s, s->now + wire_delay(s, false),
               (struct sim_event){
                   .kind = EV_ANSWER, .server = v->number, .life = ev->life, .data = a });
        ev->data = NULL;
}

/* ---- leading ---- */

void sim_keep_leading(struct sim *s, struct server *v)
{
        sim_at(s, s->now + LEAD_MS / 4,
               (struct sim_event){ .kind = EV_KEEP, .server = v->number, .life = v->life });
        int64_t unproved = steady(s, v) - v->proved_ms;
        if (v->rev && unproved > 2 * LEAD_MS && !MUTANT(lead_not_proved) &&
            !MUTANT(lead_by_lease_alone)) {
                sim_server_stop(s, v);
                return;
        }
        if (v->rev)
                sim_ask_store(s, v, ASK_KEEP);
        if (v->rev && (unproved >= LEAD_MS / 8 || v->unproved.len) && !MUTANT(lead_not_proved))
                sim_ask_store(s, v, ASK_PROVE);
        if (v->core || (v->asked_ms && steady(s, v) - v->asked_ms < AGAIN_MS))
                return;
        v->asked_ms = steady(s, v);
        sim_ask_store(s, v, v->rev ? ASK_LOAD : ASK_LEAD);
}

/* The lease of its key holds, and a proof that the key is its own is younger than a term: whoever
 * leads by now began less than a term ago. */
bool sim_surely_leads(const struct sim *s, const struct server *v)
{
        bool proved = steady(s, v) < v->proved_ms + LEAD_MS || MUTANT(lead_not_proved) ||
                      MUTANT(lead_by_lease_alone);
        return steady(s, v) < v->leads_until && proved;
}

void sim_heard_of_leader(struct sim *s, struct server *v, uint64_t leader, uint64_t revs)
{
        if (v->rev && revs >= v->rev && leader != v->rev)
                sim_server_stop(s, v);
}

void sim_answered(struct sim *s, struct server *v, struct ask *a)
{
        if (a->kind == ASK_LEAD || a->kind == ASK_LOAD)
                v->asked_ms = 0;
        if (a->kind == ASK_LEAD) {
                if (!a->ok || v->rev)
                        return;
                v->rev = a->rev;
                v->leads_until = a->sent_ms + LEAD_MS;
                v->proved_ms = a->sent_ms;
                v->asked_ms = steady(s, v);
                sim_ask_store(s, v, ASK_LOAD);
                return;
        }
        if (a->rev != v->rev || (a->kind == ASK_COMMIT && a->commit != v->committing) ||
            (a->kind == ASK_LOAD && v->core))
                return; /* of an earlier term, or answered before */
        if (!a->ok) {
                sim_server_stop(s, v);
                return;
        }
        if (a->proof && a->sent_ms > v->proved_ms)
                v->proved_ms = a->sent_ms;
        if (a->kind == ASK_KEEP && a->sent_ms + LEAD_MS > v->leads_until)
                v->leads_until = a->sent_ms + LEAD_MS;
        else if (a->kind == ASK_LOAD)
                sim_server_begin(s, v, TAKE_PTR(a->loaded), a->head);
        else if (a->kind == ASK_COMMIT)
                sim_server_committed(s, v);
        sim_server_proved(s, v);
}

/* ---- restore ---- */

static struct store *copy_of(struct sim *s, struct store *from, struct memory_disk **ret_disk)
{
        struct store *to = NULL;
        struct err err = { 0 };
        *ret_disk = memory_disk_create();
        if (memory_open(*ret_disk, &to, &err) < 0 || store_copy(from, to, NULL, NULL, &err) < 0)
                sim_fail(s, "the store cannot be copied", err_line(&err));
        return to;
}

void sim_backup(struct sim *s)
{
        if (!s->backup && !s->away && store_head(s->store))
                s->backup = copy_of(s, s->store, &s->backup_disk);
}

static int note_node(void *ctx, const struct store_record *r, struct err *err)
{
        struct sim *s = ctx;
        (void)err;
        for (size_t i = 0; i < s->machines.len && str_starts(r->key, "/nodes/"); i++)
                s->machines.at[i].on_record |=
                    strcmp(r->key + strlen("/nodes/"), s->machines.at[i].id) == 0;
        return 0;
}

/* Of what is pinned to a node that the copy does not know nothing is promised: nobody waits for it
 * (docs/fencing.md). */
static void doubt_unknown_nodes(struct sim *s)
{
        struct err err = { 0 };
        for (size_t i = 0; i < s->machines.len; i++)
                s->machines.at[i].on_record = false;
        if (store_load(s->store, note_node, s, NULL, &err) < 0)
                sim_fail(s, "the restored store cannot be read", err_line(&err));
        for (size_t i = 0; i < s->machines.len; i++)
                for (size_t k = 0; !s->machines.at[i].on_record && k < s->machines.at[i].copies.len;
                     k++)
                        s->machines.at[i].copies.at[k].doubtful |=
                            s->machines.at[i].copies.at[k].exclusive == PB__EXCLUSIVE__E__pinned;
}

/* The store is lost, and a copy from before is put back. The servers are stopped for it, as
 * docs/backup.md asks. What was acknowledged since then is gone, and nothing is said any more about
 * how things came to be. */
void sim_restore(struct sim *s)
{
        struct err err = { 0 };
        struct core_batch *b;
        for (uint32_t i = 0; i < s->opt.servers; i++)
                sim_server_stop(s, &s->servers[i]);
        store_close(s->store);
        memory_disk_destroy(s->disk);
        s->store = copy_of(s, s->backup, &s->disk);
        s->leader = 0;
        memset(s->leases, 0, sizeof(s->leases));
        s->revs++;
        s->restored = true;
        sim_watch_restart(s);
        sim_client_forget(s);
        doubt_unknown_nodes(s);
        struct input in = { .kind = INPUT_RESTORED, .now_ms = s->now };
        struct core *c = sim_server_load(s, &in.head);
        core_step(c, &in);
        while ((b = core_cut(c))) {
                if (b->commit.n_events && store_commit(s->store, &b->commit, &err) < 0)
                        sim_fail(s, "a restore is not taken", err_line(&err));
                core_batch_free(b);
        }
        core_destroy(c);
        sim_watch_catch_up(s);
        sim_saw(s, SAW_RESTORED);
}
