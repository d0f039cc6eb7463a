/* agent/agent_clear.c: see agent_clear.h. */
#include "agent/agent_clear.h"
#include "agent/agent_state.h"
#include "agent/runtimes/node.h"
#include "base/file.h"
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

struct unit_left {
        char *id;
        struct unit_token token;
        bool runs, removing, gone;
};

struct clearing {
        struct event_base *base;
        struct runtime *rt;
        const char *cluster_id;
        ARRAY(struct unit_left) units;
        bool containers; /* one of them may be a container */
        bool late;
};

static struct unit_left *find_left(struct clearing *c, const char *id)
{
        for (size_t i = 0; i < c->units.len; i++)
                if (str_eq(c->units.at[i].id, id))
                        return &c->units.at[i];
        return NULL;
}

static struct unit_left *note_unit(struct clearing *c, const char *id)
{
        struct unit_left *u = find_left(c, id);

        if (!u) {
                u = array_push(&c->units);
                *u = (struct unit_left){ .id = mem_strdup(id) };
        }
        return u;
}

static const char *cluster_of(void *ctx)
{
        return ((struct clearing *)ctx)->cluster_id;
}

static void on_event(void *ctx, const struct runtime_event *ev)
{
        struct clearing *c = ctx;
        struct unit_left *u = ev->kind == RUNTIME_PROGRESS ? NULL : note_unit(c, ev->workload_id);

        if (!u)
                return;
        if (ev->kind == RUNTIME_FOUND_RUNNING) {
                u->runs = true;
                u->token = ev->token;
        } else if (ev->kind == RUNTIME_STOPPED || ev->kind == RUNTIME_EXITED)
                u->runs = false;
        else if (ev->kind == RUNTIME_REMOVED)
                u->gone = true;
}

static int list_units(struct clearing *c, const char *data_dir, struct err *err)
{
        DIR *dir = opendir(fmt("%s/units", data_dir));

        if (!dir)
                return errno == ENOENT ? 0
                                       : err_sys(err, errno, fmt("cannot read %s/units", data_dir));
        for (struct dirent *e; (e = readdir(dir));)
                if (e->d_name[0] != '.') {
                        note_unit(c, e->d_name);
                        c->containers =
                            c->containers ||
                            file_exists(fmt("%s/units/%s/container.state", data_dir, e->d_name));
                }
        closedir(dir);
        return 0;
}

static void on_late(evutil_socket_t fd, short what, void *arg)
{
        (void)fd, (void)what;
        ((struct clearing *)arg)->late = true;
}

/* What runs is stopped, what does not run is removed; false: something is left to be waited for. */
static bool step(struct clearing *c)
{
        bool done = true;

        for (size_t i = 0; i < c->units.len; i++) {
                struct unit_left *u = &c->units.at[i];

                if (!u->runs && !u->removing) {
                        u->removing = true;
                        runtime_node.remove(c->rt, c->units.at[i].id);
                }
                done = done && c->units.at[i].gone;
        }
        return done;
}

static int end_all(struct clearing *c, int64_t patience_ms, struct err *err)
{
        struct event *late = evtimer_new(c->base, on_late, c);
        struct timeval patience = { patience_ms / 1000, (patience_ms % 1000) * 1000 };
        const char *left = NULL;
        int r = runtime_node.find(c->rt, err);

        evtimer_add(late, &patience);
        for (size_t i = 0; r == 0 && i < c->units.len; i++)
                if (c->units.at[i].runs)
                        runtime_node.stop(c->rt, c->units.at[i].id, c->units.at[i].token, 0);
        while (r == 0 && !step(c) && !c->late)
                event_base_loop(c->base, EVLOOP_ONCE);
        for (size_t i = 0; r == 0 && i < c->units.len; i++)
                if (!c->units.at[i].gone)
                        left = c->units.at[i].id;
        if (left)
                r = err_set(err, ERR_DEADLINE, .msg = fmt("unit %s does not end", left),
                            .hint = "end it by hand, and try again");
        event_free(late);
        return r;
}

static int clear_node(struct clearing *c, const char *data_dir, const Pb__AgentRecord *record,
                      int64_t patience_ms, struct err *err)
{
        struct node_options node = { .container.engine = c->containers ? NULL : "none" };
        struct runtime_options opt = { .base = c->base,
                                       .data_dir = data_dir,
                                       .node_id = record->node_id,
                                       .on_event = on_event,
                                       .cluster_id = cluster_of,
                                       .ctx = c,
                                       .extra = &node };
        int r;

        c->cluster_id = record->cluster_id;
        r = runtime_node.open(&opt, &c->rt, err);
        if (r == 0)
                r = end_all(c, patience_ms, err);
        if (c->rt)
                runtime_node.close(c->rt);
        return r;
}

int agent_clear(const char *data_dir, int64_t patience_ms, unsigned *ret_ended, struct err *err)
{
        _cleanup_(str_finip) struct str data = STR_INIT;
        struct clearing c = { 0 };
        Pb__AgentRecord *record = NULL;
        int lock_fd = -1, r;

        *ret_ended = 0;
        if (agent_disk_read(data_dir, &data, NULL) < 0 ||
            !(record = pb__agent_record__unpack(NULL, data.len, (const uint8_t *)str_c(&data))))
                return 0;
        r = agent_disk_lock(data_dir, &lock_fd, err);
        if (r == 0)
                r = list_units(&c, data_dir, err);
        if (r == 0 && c.units.len) {
                c.base = event_base_new();
                r = clear_node(&c, data_dir, record, patience_ms, err);
                event_base_free(c.base);
        }
        *ret_ended = (unsigned)c.units.len;
        for (size_t i = 0; i < c.units.len; i++)
                mem_free(c.units.at[i].id);
        array_fini(&c.units);
        if (lock_fd >= 0)
                close(lock_fd);
        pb__agent_record__free_unpacked(record, NULL);
        return r;
}
