/* server/push_delete.c: when a deletion that an agent was asked for is over. See push_node.h.
 *
 *      DELETE --taken--> ACTIONS, again and again --it has ended--> LOOK --nothing, or what is left
 *      of it--> gone
 *
 * Agents in the field write down what a look has just found, also when their own deletion has ended
 * meanwhile: what stays behind is a ghost, a status of the same revision that nothing refreshes and
 * no further deletion removes. So nobody looks while a deletion is under way: the agent's list of
 * actions says when it has ended. Where there is no such list, a status that does not run and stays
 * as it is over several looks is a ghost as well.
 *
 * A deletion is sent again only if it was lost: the agent has restarted, or an apply has overtaken
 * it, and what is there is alive. That backs off too.
 */
#include "base/log.h"
#include "base/mem.h"
#include "server/push_calls.h"
#include <string.h>

#define GHOST_LOOKS 4
#define GHOST_MS 5000
#define GHOSTS_MAX 1024
/* what was taken is given this long before it is sent again; then twice as long, ... */
#define AGAIN_MS 10000
#define AGAIN_MAX_MS 600000

static uint64_t mix(uint64_t h, const void *data, size_t len)
{
        for (size_t i = 0; i < len; i++)
                h = (h ^ ((const unsigned char *)data)[i]) * UINT64_C(1099511628211);
        return h;
}

/* An agent refreshes what it still has with every look. */
static uint64_t mark_of(const Pa__WorkloadStatus *s)
{
        uint64_t h = mix(UINT64_C(14695981039346656037), s->revision_id, strlen(s->revision_id));
        h = mix(h, &s->updated_at, sizeof(s->updated_at));
        return mix(h, &s->actual_state, sizeof(s->actual_state));
}

static bool runs(const Pa__WorkloadStatus *s)
{
        return s->actual_state == PA__ACTUAL_STATE__ACTUAL_STATE_RUNNING ||
               s->actual_state == PA__ACTUAL_STATE__ACTUAL_STATE_PENDING ||
               s->actual_state == PA__ACTUAL_STATE__ACTUAL_STATE_UNSPECIFIED;
}

/* ---- ghosts in lists: they are in every list from now on, and nobody's */

static struct push_ghost *ghost_find(struct push_node *n, const char *id)
{
        for (size_t i = 0; i < n->ghosts.len; i++)
                if (str_eq(n->ghosts.at[i].id, id))
                        return &n->ghosts.at[i];
        return NULL;
}

static void ghost_note(struct push_node *n, const Pa__WorkloadStatus *s)
{
        struct push_ghost *g = ghost_find(n, s->id);
        if (!g && n->ghosts.len >= GHOSTS_MAX)
                return; /* it is told of as a stranger */
        if (!g) {
                g = array_push(&n->ghosts);
                *g = (struct push_ghost){ .id = mem_strdup(s->id) };
        }
        g->mark = mark_of(s);
        g->seen = true;
}

bool push_is_ghost(struct push_node *n, const Pa__WorkloadStatus *s)
{
        struct push_ghost *g = n->ghosts.len ? ghost_find(n, s->id) : NULL;
        bool same = g && g->mark == mark_of(s);
        if (g)
                g->seen = same;
        return same;
}

void push_ghosts_sweep(struct push_node *n)
{
        for (size_t i = n->ghosts.len; i > 0; i--) {
                struct push_ghost *g = &n->ghosts.at[i - 1];
                if (!g->seen) {
                        mem_free(g->id);
                        *g = n->ghosts.at[--n->ghosts.len];
                } else
                        g->seen = false;
        }
}

void push_ghosts_free(struct push_node *n)
{
        for (size_t i = 0; i < n->ghosts.len; i++)
                mem_free(n->ghosts.at[i].id);
        array_fini(&n->ghosts);
}

/* ---- one deletion */

static void ask_later(struct push_node *n, struct push_unit *u)
{
        push_look_later(n, u);
        if (!n->no_actions)
                u->next = STEP_ACTIONS;
}

void push_deletion_taken(struct push_node *n, struct push_unit *u)
{
        int64_t wait = u->again_ms ? u->again_ms * 2 : AGAIN_MS;
        u->again_ms = wait > AGAIN_MAX_MS ? AGAIN_MAX_MS : wait;
        u->asked_ms = mono_ms();
        u->ended = false;
        u->same_looks = 0;
        u->order_seq = 0;
        u->wait_ms = 0;
        ask_later(n, u);
}

/* Another one than at the look before: then the agent has it still. */
static bool note_look(struct push_unit *u, const Pa__WorkloadStatus *s)
{
        uint64_t mark = mark_of(s);
        bool first = u->same_looks == 0, changed = !first && u->mark != mark;
        if (first || changed) {
                u->mark = mark;
                u->same_looks = 0;
                u->same_since_ms = mono_ms();
        }
        u->same_looks++;
        return changed;
}

static bool stays_as_it_is(const struct push_unit *u)
{
        return u->same_looks >= GHOST_LOOKS && mono_ms() - u->same_since_ms >= GHOST_MS;
}

void push_deletion_found(struct push_node *n, struct push_unit *u, const Pa__WorkloadStatus *s)
{
        if (!u->asked_ms) {
                push_go(n, u, STEP_DELETE, 0);
                return;
        }
        bool alive = note_look(u, s) || s->actual_state == PA__ACTUAL_STATE__ACTUAL_STATE_RUNNING;
        u->order_seq = 0;
        if (!runs(s) && (u->ended || stays_as_it_is(u))) {
                log_info("an agent keeps a status of what it has deleted", LOG_S("node", n->id),
                         LOG_S("workload", u->id), LOG_S("revision", s->revision_id),
                         LOG_B("said_so", u->ended));
                ghost_note(n, s);
                push_is_gone(n, u);
                return;
        }
        if (alive && mono_ms() - u->asked_ms >= u->again_ms &&
            s->actual_state != PA__ACTUAL_STATE__ACTUAL_STATE_PENDING)
                push_go(n, u, STEP_DELETE, 0);
        else
                ask_later(n, u);
}

static bool is_kind(const Pa__AgentAction *a, const char *kind)
{
        /* "delete_workload", or "delete" */
        return a->action_type && str_starts(a->action_type, kind);
}

void push_told_actions(struct push_node *n, struct push_unit *u, const Pa__ListActionsResponse *r)
{
        /* the newest that concerns it; some say nothing about the order */
        const Pa__AgentAction *last = NULL;
        for (size_t i = 0; i < r->n_actions; i++) {
                const Pa__AgentAction *a = r->actions[i];
                if (str_eq(a->workload_id, u->id) &&
                    (is_kind(a, "delete") || is_kind(a, "apply")) &&
                    (!last || a->created_at > last->created_at))
                        last = a;
        }
        bool deletion = last && is_kind(last, "delete");
        if (deletion && (str_eq(last->status, "pending") || str_eq(last->status, "running"))) {
                ask_later(n, u);
                return;
        }
        u->ended = deletion && (str_eq(last->status, "completed") ||
                                (str_eq(last->status, "failed") && last->error &&
                                 strstr(last->error, "workload not found")));
        push_go(n, u, STEP_LOOK, 0);
}

/* It has no such list, or not now: looks have to do. */
void push_told_no_actions(struct push_node *n, struct push_unit *u, bool never)
{
        if (never && !n->no_actions)
                u->wait_ms = 0;
        n->no_actions |= never;
        push_go(n, u, STEP_LOOK, 0);
}
