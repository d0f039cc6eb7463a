/* agent/runtimes/process_find.c: what a new agent finds of the units of the one before. See
 * process.c.
 *
 * That something could not be looked at ends the search with an error: an agent that does not know
 * what runs must not start. Units run on meanwhile.
 */
#include "agent/runtimes/cgroup.h"
#include "agent/runtimes/process_state.h"
#include "base/clock.h"
#include "base/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#define FIND_WAIT_MS 5000 /* how long a monitor that was just being started may take to speak */
/* for all units together: longer takes what cannot be killed, and that is told later */
#define FIND_CLEAN_MS 5000

/* PROC_THERE: by a monitor, or one that is about to be. */
static enum proc_look lock_is_held(const char *dir)
{
        int fd = open(fmt("%s/lock", dir), O_RDWR | O_CLOEXEC);
        bool held;

        if (fd < 0)
                return errno == ENOENT ? PROC_GONE : PROC_UNKNOWN;
        held = flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
        close(fd);
        return held ? PROC_THERE : PROC_GONE;
}

/* A monitor lives but has not written run.state or exit.state: the last agent was killed while it
 * started it. It speaks within milliseconds. */
static void wait_for_monitor(const char *dir)
{
        for (int i = 0; i < FIND_WAIT_MS / 5 && lock_is_held(dir) == PROC_THERE; i++) {
                if (file_exists(fmt("%s/run.state", dir)) || file_exists(fmt("%s/exit.state", dir)))
                        return;
                usleep(5000);
        }
}

static void found(struct runtime *rt, const char *id, enum runtime_event_kind kind,
                  const struct unit_state *s, Pb__Reason__E reason)
{
        process_emit(rt, &(struct runtime_event){ .kind = kind,
                                                  .workload_id = id,
                                                  .token = s->token,
                                                  .revision_id = s->revision,
                                                  .at_ms = kind == RUNTIME_FOUND_RUNNING
                                                               ? s->started_at
                                                               : s->finished_at,
                                                  .pid = s->pid,
                                                  .has_exit_code = s->has_exit_code,
                                                  .exit_code = s->exit_code,
                                                  .has_signal = s->has_signal,
                                                  .signal = s->signal,
                                                  .oom = s->oom,
                                                  .reason = reason,
                                                  .message = s->message[0] ? s->message : NULL });
}

/* Its monitor is gone, and nobody has looked since: what was left behind is killed first. What does
 * not go within the time that a start of the agent may take is reported as running, which it is,
 * and its end when that is proved. */
static void find_ended(struct punit *p)
{
        struct runtime *rt = p->rt;
        struct unit_state s = p->has_ended ? p->ending : p->state;
        bool gone = process_kill_leftovers(p->dir, &p->state);

        while (!gone && clock_mono_ns() / 1000000 < rt->find_until_ms) {
                usleep(CLEAN_AGAIN_MS * 1000);
                gone = process_kill_leftovers(p->dir, &p->state);
        }
        if (!gone) {
                p->state.message[0] = 0;
                found(rt, p->id, RUNTIME_FOUND_RUNNING, &p->state, PB__REASON__E__none);
                punit_clean(p);
                return;
        }
        if (p->has_ended)
                cgroup_remove(s.cgroup);
        else
                process_write_killed(p->dir, &s);
        found(rt, p->id, RUNTIME_FOUND_EXITED, &s,
              p->has_ended ? process_why_ended(&s) : PB__REASON__E__killed);
        punit_free(p);
}

/* 0: there is one; -ERR_NOT_FOUND; anything else: it cannot be known now. A file that is no state
 * counts as none. */
static int state_of(const char *dir, const char *name, struct unit_state *ret, struct err *err)
{
        int r = unit_state_read(dir, name, ret, err);

        return r == 0 || r == -ERR_NOMEM ? r : -ERR_NOT_FOUND;
}

/* By the files alone: it has ended, or ended with the machine, or never ran. True: that is all
 * there is to say about it. */
static bool found_by_files(struct runtime *rt, const char *id, const char *dir,
                           const struct unit_state *run, const struct unit_state *end)
{
        bool same_boot = str_eq((end   ? end
                                 : run ? run
                                       : &(struct unit_state){ 0 })
                                    ->boot_id,
                                proc_boot_id());
        struct unit_state s;

        /* written when nothing of the unit was left */
        if (end && !(process_had_commands(dir) && same_boot)) {
                found(rt, id, RUNTIME_FOUND_EXITED, end, process_why_ended(end));
                return true;
        }
        if (end || (run && same_boot))
                return false;
        if (run) {
                s = *run;
                s.finished_at = 0;
                snprintf(s.message, sizeof(s.message), "the machine was restarted while it ran");
                found(rt, id, RUNTIME_FOUND_GONE, &s, PB__REASON__E__none);
        }
        return true; /* never started: the engine knows what that means */
}

static int find_one(struct runtime *rt, const char *id, struct err *err)
{
        _cleanup_(mem_freep) char *dir = mem_strdup(fmt("%s/%s", rt->units_dir, id));
        enum proc_look held = lock_is_held(dir);
        struct unit_state run, end;
        struct punit *p;
        int has_run, has_end;

        if (held == PROC_UNKNOWN)
                return err_sys(err, errno, fmt("cannot look at %s/lock", dir));
        if (held == PROC_THERE)
                wait_for_monitor(dir);
        if ((has_end = state_of(dir, "exit.state", &end, err)) == -ERR_NOMEM ||
            (has_run = state_of(dir, "run.state", &run, err)) == -ERR_NOMEM)
                return -ERR_NOMEM;
        if (found_by_files(rt, id, dir, has_run == 0 ? &run : NULL, has_end == 0 ? &end : NULL))
                return 0;
        p = punit_new(rt, id, has_end == 0 ? end.token : run.token);
        p->state = has_end == 0 ? end : run;
        if (has_end < 0 && punit_watch(p)) {
                run.message[0] = 0;
                found(rt, id, RUNTIME_FOUND_RUNNING, &run, PB__REASON__E__none);
                return 0;
        }
        if (has_end < 0) /* perhaps it ended between the two looks */
                has_end = state_of(dir, "exit.state", &end, err);
        if (has_end == -ERR_NOMEM) {
                punit_free(p);
                return has_end;
        }
        p->has_ended = has_end == 0;
        if (p->has_ended)
                p->ending = end;
        find_ended(p);
        return 0;
}

int process_find_all(struct runtime *rt, struct err *err)
{
        DIR *dir = opendir(rt->units_dir);
        struct dirent *de;
        int r = 0;

        if (!dir)
                return err_sys(err, errno, fmt("cannot read %s", rt->units_dir));
        rt->find_until_ms = clock_mono_ns() / 1000000 + FIND_CLEAN_MS;
        while (r == 0 && (de = readdir(dir))) {
                if (str_starts(de->d_name, ".trash-"))
                        dir_remove(fmt("%s/%s", rt->units_dir, de->d_name), NULL);
                else if (de->d_name[0] != '.')
                        r = find_one(rt, de->d_name, err);
        }
        closedir(dir);
        return r;
}
