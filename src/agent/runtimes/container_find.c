/* agent/runtimes/container_find.c: after a restart of the agent: what of ours the engine has, by
 * label.
 *
 * Before a start makes its first container a mark is written, <units>/<id>/container.state. If the
 * engine does not answer at boot, units with a mark of this boot of the machine are presumed to
 * run: a stop then waits for the engine's word, and no second copy is started on a guess.
 */
#include "agent/runtimes/container_state.h"
#include "agent/runtimes/proc.h"
#include "agent/runtimes/unit_files.h"
#include "base/file.h"
#include "base/log.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the mark ---- */

struct mark {
        struct unit_token token;
        char revision[129], boot_id[BOOT_ID_LEN + 1];
        char cluster[257];
        bool has_cluster; /* else it is of a berth that did not note it */
        enum cunit_kind kind;
        uint64_t n_parts;
};

int mark_write(const struct cunit *u, size_t n_parts, struct err *err)
{
        _cleanup_(mem_freep) char *dir = mem_strdup(fmt("%s/%s", u->rt->units_dir, u->id));
        _cleanup_(str_finip) struct str text = STR_INIT;
        int r = dir_make(dir, 0750, err);

        if (r < 0)
                return r;
        str_addf(&text, "%" PRIu64 " %" PRIu64 " %d %zu %s %s %s\n", u->token.epoch, u->token.seq,
                 (int)u->kind, n_parts, str_empty(proc_boot_id()) ? "-" : proc_boot_id(),
                 str_empty(u->revision) ? "-" : u->revision,
                 str_empty(u->cluster) ? "-" : u->cluster);
        return file_replace(fmt("%s/container.state", dir), str_c(&text), text.len, 0600, err);
}

static bool mark_read(const struct runtime *rt, const char *id, struct mark *ret)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        int kind = 0, n;

        *ret = (struct mark){ 0 };
        if (file_read(fmt("%s/%s/container.state", rt->units_dir, id), 4096, &text, NULL) < 0)
                return false;
        n = sscanf(str_c(&text), "%" SCNu64 " %" SCNu64 " %d %" SCNu64 " %36s %128s %256s",
                   &ret->token.epoch, &ret->token.seq, &kind, &ret->n_parts, ret->boot_id,
                   ret->revision, ret->cluster);
        if (n < 6)
                return false;
        if (str_eq(ret->revision, "-"))
                ret->revision[0] = 0;
        ret->has_cluster = n == 7;
        if (str_eq(ret->cluster, "-"))
                ret->cluster[0] = 0;
        ret->kind = kind == CUNIT_POD       ? CUNIT_POD
                    : kind == CUNIT_COMPOSE ? CUNIT_COMPOSE
                                            : CUNIT_PLAIN;
        return true;
}

void mark_cluster(const struct runtime *rt, const char *workload_id, char ret[257])
{
        struct mark mark;

        snprintf(ret, 257, "%s",
                 mark_read(rt, workload_id, &mark) ? mark.cluster : container_cluster(rt));
}

/* ---- the engine's list ---- */

bool container_is_ours(const struct runtime *rt, const Ct__Listed *c)
{
        const char *label = container_label(c, LABEL_CLUSTER),
                   *id = container_label(c, LABEL_WORKLOAD);
        struct unit_token token;
        struct mark mark;

        /* anybody may label a container: no paths are made of it */
        if (str_empty(id) || strchr(id, '/'))
                return false;
        if (label && str_eq(label, container_cluster(rt)))
                return true;
        if (!mark_read(rt, id, &mark))
                return false;
        if (label && mark.has_cluster)
                return str_eq(label, mark.cluster);
        return token_parse(container_label(c, LABEL_TOKEN), &token) == 0 &&
               unit_token_cmp(token, mark.token) == 0;
}

static bool is_of(const Ct__Listed *c, const char *id)
{
        return str_eq(container_label(c, LABEL_WORKLOAD), id);
}

static bool listed_runs(const Ct__Listed *c)
{
        return !str_eq(c->state, "exited") && !str_eq(c->state, "created") &&
               !str_eq(c->state, "dead") && !str_eq(c->state, "stopped") &&
               !str_eq(c->state, "configured") && !str_eq(c->state, "initialized");
}

const char *pod_part_name(const struct runtime *rt, const char *workload_id, const char *name)
{
        _cleanup_(str_finip) struct str pod = STR_INIT;
        char cluster[257];

        mark_cluster(rt, workload_id, cluster);
        container_name(&pod, cluster, rt->node_id, workload_id, NULL);
        if (*name == '/')
                name++;
        return str_starts(name, str_c(&pod)) && name[pod.len] == '-' ? name + pod.len + 1 : name;
}

static const char *part_of(const struct cunit *u, const Ct__Listed *c)
{
        const char *part = container_label(c, LABEL_PART);

        if (!str_empty(part) || u->kind != CUNIT_POD)
                return part ? part : "";
        return pod_part_name(u->rt, u->id, c->n_names ? c->names[0] : "");
}

bool unit_take_parts(struct cunit *u, const Ct__Listing *list)
{
        struct unit_token token;

        for (size_t i = 0; i < list->n_items; i++) {
                const Ct__Listed *c = list->items[i];
                struct cpart *p;

                if (!is_of(c, u->id) || token_parse(container_label(c, LABEL_TOKEN), &token) < 0 ||
                    unit_token_cmp(token, u->token) != 0)
                        continue;
                if (!container_label(c, LABEL_PARTS))
                        u->kind = CUNIT_POD;
                p = cpart_new(u, c->id, part_of(u, c));
                mem_free(p->id);
                p->id = mem_strdup(c->id);
                p->running = listed_runs(c);
        }
        return u->parts.len > 0;
}

/* ---- boot ---- */

static void remove_now(struct runtime *rt, const char *name)
{
        _cleanup_(str_finip) struct str path = STR_INIT;
        struct err err = { 0 };
        int status = 0;

        container_path(&path, name, "?force=true&v=true");
        if (api_call_wait(rt->socket, "DELETE", str_c(&path), NULL, CALL_MS, &status, NULL, &err) <
                0 ||
            (status >= 300 && status != 404))
                log_warn("an old container could not be removed", LOG_S("container", name),
                         LOG_I("status", status), LOG_E(&err));
}

/* False: the engine has not said how it is. */
static bool look_now(struct cpart *p)
{
        _cleanup_(str_finip) struct str path = STR_INIT;
        _cleanup_(mem_freep) char *body = NULL;
        int status = 0;

        container_path(&path, p->id, "/json");
        if (api_call_wait(p->unit->rt->socket, "GET", str_c(&path), NULL, CALL_MS, &status, &body,
                          NULL) < 0)
                return false;
        if (status == 404)
                part_gone(p);
        return status == 404 || (status == 200 && part_take(p, body, strlen(body)));
}

static void emit_found(struct cunit *u, enum runtime_event_kind kind, const struct cpart *p,
                       const char *message)
{
        bool has_code = kind == RUNTIME_FOUND_EXITED && p && p->exit_code >= 0,
             by_signal = has_code && p->exit_code > 128 && p->exit_code <= 192;

        container_emit(u->rt, &(struct runtime_event){
                                  .kind = kind,
                                  .workload_id = u->id,
                                  .token = u->token,
                                  .revision_id = u->revision,
                                  .at_ms = !p                              ? 0
                                           : kind == RUNTIME_FOUND_RUNNING ? p->started_at
                                                                           : p->finished_at,
                                  .pid = p ? p->pid : 0,
                                  .has_exit_code = has_code,
                                  .exit_code = has_code ? (int32_t)p->exit_code : 0,
                                  .has_signal = by_signal,
                                  .signal = by_signal ? (int32_t)p->exit_code - 128 : 0,
                                  .oom = p && p->oom,
                                  .message = message });
}

/* Whether it runs or how it ended is not known: it may run until the engine says otherwise, which
 * the poll asks. */
static void presume_running(struct cunit *u)
{
        cunit_clear_parts(u);
        u->phase = CUNIT_UP;
        u->presumed = true;
        emit_found(u, RUNTIME_FOUND_RUNNING, NULL,
                   "the container engine does not answer; presumed to run");
}

/* The last agent ended in the middle of its start: what there is of it goes, and the launch has
 * left no trace. */
static bool is_half_started(const struct cunit *u, const Ct__Listing *list)
{
        struct mark mark;

        if (mark_read(u->rt, u->id, &mark) && unit_token_cmp(mark.token, u->token) == 0 &&
            mark.n_parts != u->parts.len)
                return true;
        /* the mark may be lost with the agent's directory; the labels are not */
        for (size_t i = 0; i < list->n_items; i++) {
                const char *text = is_of(list->items[i], u->id)
                                       ? container_label(list->items[i], LABEL_PARTS)
                                       : NULL;
                uint64_t n;

                if (text && str_parse_u64(text, &n) == 0 && n != u->parts.len)
                        return true;
        }
        for (size_t i = 0; i < u->parts.len; i++)
                if (u->parts.at[i]->ended && u->parts.at[i]->started_at == 0)
                        return true;
        return false;
}

static void find_unit(struct runtime *rt, const char *id, struct unit_token token,
                      const char *revision, const Ct__Listing *list)
{
        struct cunit *u = cunit_new(rt, id, token, revision, CUNIT_PLAIN);
        struct cpart *running = NULL, *failed = NULL, *first;
        struct mark mark;
        bool known = true;

        unit_take_parts(u, list);
        for (size_t i = 0; i < u->parts.len; i++) {
                struct cpart *p = u->parts.at[i];

                known = look_now(p) && known;
                if (p->running && !running)
                        running = p;
                if (p->ended && p->exit_code != 0 && !failed)
                        failed = p;
        }
        first = failed ? failed : u->parts.at[0];
        if (is_half_started(u, list)) {
                for (size_t i = 0; i < u->parts.len; i++)
                        remove_now(rt, u->parts.at[i]->id);
                cunit_free(u);
        } else if (!known)
                presume_running(u);
        else if (running) {
                u->phase = CUNIT_UP;
                for (size_t i = 0; i < u->parts.len; i++)
                        part_watch(u->parts.at[i]);
                emit_found(u, RUNTIME_FOUND_RUNNING, running, NULL);
                if (failed)
                        unit_judge(u); /* the others are stopped; how it ended follows */
        } else {
                bool other_boot = mark_read(rt, id, &mark) &&
                                  !str_eq(mark.boot_id, proc_boot_id()) &&
                                  !str_empty(proc_boot_id());

                emit_found(u, other_boot ? RUNTIME_FOUND_GONE : RUNTIME_FOUND_EXITED, first,
                           other_boot ? "the machine was restarted while it ran" : NULL);
                cunit_free(u);
        }
}

/* Of each unit the newest token counts; what is older was superseded, and goes. */
static void find_listed(struct runtime *rt, const Ct__Listing *list)
{
        for (size_t i = 0; i < list->n_items; i++) {
                const Ct__Listed *c = list->items[i];
                const char *id = container_label(c, LABEL_WORKLOAD),
                           *revision = container_label(c, LABEL_REVISION);
                struct unit_token token, other;
                bool newest = true, first = true;

                if (str_empty(id) || token_parse(container_label(c, LABEL_TOKEN), &token) < 0)
                        continue;
                for (size_t k = 0; k < list->n_items; k++) {
                        if (k == i || !is_of(list->items[k], id) ||
                            token_parse(container_label(list->items[k], LABEL_TOKEN), &other) < 0)
                                continue;
                        if (unit_token_cmp(other, token) > 0)
                                newest = false;
                        else if (k < i && unit_token_cmp(other, token) == 0)
                                first = false;
                }
                if (!newest)
                        remove_now(rt, c->id);
                else if (first)
                        find_unit(rt, id, token, revision ? revision : "", list);
        }
}

static void presume(struct runtime *rt, const char *id)
{
        struct mark mark;
        struct cunit *u;

        if (!mark_read(rt, id, &mark))
                return;
        u = cunit_new(rt, id, mark.token, mark.revision, mark.kind);
        if (str_eq(mark.boot_id, proc_boot_id())) {
                presume_running(u);
                return;
        }
        emit_found(u, RUNTIME_FOUND_GONE, NULL, "the machine was restarted while it ran");
        cunit_free(u);
}

int container_find_all(struct runtime *rt, struct err *err)
{
        _cleanup_(str_finip) struct str path = STR_INIT;
        _cleanup_(mem_freep) char *body = NULL;
        struct arena memory = ARENA_INIT;
        struct err why = { 0 };
        int status = 0;
        const Ct__Listing *list = NULL;

        container_list_path(rt, NULL, &path);
        if (api_call_wait(rt->socket, "GET", str_c(&path), NULL, CALL_MS, &status, &body, &why) ==
                0 &&
            status == 200)
                list = container_read_listing(rt, body, strlen(body), &memory);
        if (list)
                find_listed(rt, list);
        else {
                DIR *dir = opendir(rt->units_dir);
                struct dirent *de;

                if (!dir) {
                        arena_fini(&memory);
                        return err_sys(err, errno, fmt("cannot read %s", rt->units_dir));
                }
                while ((de = readdir(dir)))
                        if (de->d_name[0] != '.')
                                presume(rt, de->d_name);
                closedir(dir);
        }
        arena_fini(&memory);
        return 0;
}
