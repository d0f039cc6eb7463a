/* agent/runtimes/process_test.c: the process runtime with real processes. This binary is also its
 * own monitor ("__unit"). */
#include "agent/runtimes/cgroup.h"
#include "agent/runtimes/logfile.h"
#include "agent/runtimes/process_state.h"
#include "base/clock.h"
#include "base/file.h"
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_MS 20000

struct seen {
        enum runtime_event_kind kind;
        char id[32], message[512], revision[32];
        struct runtime_event ev;
};
struct rig {
        char dir[512];
        struct event_base *base;
        struct runtime *rt;
        ARRAY(struct seen) seen;
        uint64_t seq;
};

static void on_event(void *ctx, const struct runtime_event *ev)
{
        struct rig *r = ctx;
        struct seen *s = array_push(&r->seen);

        s->kind = ev->kind;
        s->ev = *ev;
        snprintf(s->id, sizeof(s->id), "%s", ev->workload_id);
        snprintf(s->message, sizeof(s->message), "%s", ev->message ? ev->message : "");
        snprintf(s->revision, sizeof(s->revision), "%s", ev->revision_id ? ev->revision_id : "");
}

static void rt_open(struct rig *r)
{
        struct runtime_options opt = { .base = r->base,
                                       .data_dir = r->dir,
                                       .node_id = "node-1",
                                       .on_event = on_event,
                                       .ctx = r };
        struct err err = { 0 };

        if (runtime_process.open(&opt, &r->rt, &err) < 0)
                fail_msg("%s", err_line(&err));
}

/* of the test that runs: what a failed one leaves is cleaned up at the end */
static char left_dir[512];

static void setup(struct rig *r)
{
        const char *tmp = getenv("TMPDIR");

        *r = (struct rig){ .seq = 1 };
        snprintf(r->dir, sizeof(r->dir), "%s/berth-process-XXXXXX", tmp && tmp[0] ? tmp : "/tmp");
        assert_non_null(mkdtemp(r->dir));
        snprintf(left_dir, sizeof(left_dir), "%s", r->dir);
        r->base = event_base_new();
        rt_open(r);
}

static bool turn(struct rig *r, int64_t deadline_ms)
{
        int64_t left = deadline_ms - clock_mono_ns() / 1000000;
        struct timeval tv = { left > 0 ? left / 1000 : 0, left > 0 ? (left % 1000) * 1000 : 0 };

        if (left <= 0)
                return false;
        event_base_loopexit(r->base, &tv);
        event_base_loop(r->base, EVLOOP_ONCE);
        return true;
}

/* The next event of this kind about this unit; those before it are dropped. */
static struct seen await(struct rig *r, enum runtime_event_kind kind, const char *id)
{
        int64_t deadline = clock_mono_ns() / 1000000 + WAIT_MS;

        for (;;) {
                for (size_t i = 0; i < r->seen.len; i++)
                        if (r->seen.at[i].kind == kind && str_eq(r->seen.at[i].id, id)) {
                                struct seen s = r->seen.at[i];

                                memmove(r->seen.at, r->seen.at + i + 1,
                                        (r->seen.len - i - 1) * sizeof(s));
                                r->seen.len -= i + 1;
                                return s;
                        }
                if (!turn(r, deadline))
                        fail_msg("event %d of %s did not come; seen %zu, first %d %s", (int)kind,
                                 id, r->seen.len, r->seen.len ? (int)r->seen.at[0].kind : 0,
                                 r->seen.len ? r->seen.at[0].message : "");
        }
}

struct def {
        Pb__Workload w;
        Pb__Spec spec;
        Pb__Resources res;
        Pb__Spec__EnvEntry env, *envs[1];
        char *argv[8];
};

static void def_init(struct def *d, const char *script)
{
        pb__workload__init(&d->w);
        pb__spec__init(&d->spec);
        pb__resources__init(&d->res);
        d->w.type = PB__WORKLOAD_TYPE__E__process;
        d->w.revision_id = (char *)(uintptr_t) "rev-1";
        d->w.stop_grace_seconds = 5;
        d->w.spec = &d->spec;
        d->argv[0] = (char *)(uintptr_t) "sh";
        d->argv[1] = (char *)(uintptr_t) "-c";
        d->argv[2] = (char *)(uintptr_t)script;
        d->spec.command = d->argv;
        d->spec.n_command = 3;
}

static struct unit_token launch_def(struct rig *r, const char *id, struct def *d)
{
        struct unit_token token = { 1, ++r->seq };

        d->w.id = (char *)(uintptr_t)id;
        runtime_process.start(
            r->rt, &(struct runtime_start){ .workload_id = id, .token = token, .workload = &d->w });
        return token;
}

static struct unit_token launch_script(struct rig *r, const char *id, const char *script)
{
        struct def d;

        def_init(&d, script);
        return launch_def(r, id, &d);
}

static const char *unit_dir(struct rig *r, const char *id)
{
        return fmt("%s/units/%s", r->dir, id);
}

/* Processes that carry a unit's mark. */
static size_t left_of(struct rig *r, const char *id, struct unit_token token)
{
        struct str mark = STR_INIT;
        pid_list list = { 0 };
        char *real = realpath(unit_dir(r, id), NULL);
        size_t n;

        unit_mark(real ? real : "", token, &mark);
        assert_true(proc_marked(&(struct proc_session){ 0 }, str_c(&mark), &list));
        n = list.len;
        array_fini(&list);
        str_fini(&mark);
        free(real);
        return n;
}

static void teardown(struct rig *r)
{
        for (size_t i = 0; r->rt && i < r->rt->units.len; i++)
                if (r->rt->units.at[i]) {
                        char id[32];
                        struct unit_token token = r->rt->units.at[i]->token;

                        snprintf(id, sizeof(id), "%s", r->rt->units.at[i]->id);
                        runtime_process.stop(r->rt, id, token, 0);
                        await(r, RUNTIME_STOPPED, id);
                }
        if (r->rt)
                runtime_process.close(r->rt);
        event_base_free(r->base);
        array_fini(&r->seen);
        dir_remove(r->dir, NULL);
}

/* ---- streams ---- */

struct taker {
        struct str out, err;
        bool ended, has_code, refuse_more;
        int code, calls;
        char error[256];
};

static bool take_data(void *ctx, bool is_stderr, int64_t ts, const void *data, size_t len)
{
        struct taker *t = ctx;

        assert_true(ts > 1600000000000);
        t->calls++;
        str_add(is_stderr ? &t->err : &t->out, data, len);
        return !t->refuse_more;
}

static void take_end(void *ctx, bool has_code, int32_t code, const char *error)
{
        struct taker *t = ctx;

        assert_false(t->ended);
        t->ended = true;
        t->has_code = has_code;
        t->code = code;
        snprintf(t->error, sizeof(t->error), "%s", error ? error : "");
}

static void taker_fini(struct taker *t)
{
        str_fini(&t->out);
        str_fini(&t->err);
        *t = (struct taker){ 0 };
}

static void await_end(struct rig *r, struct taker *t)
{
        int64_t deadline = clock_mono_ns() / 1000000 + WAIT_MS;

        while (!t->ended)
                assert_true(turn(r, deadline));
}

static void await_text(struct rig *r, struct taker *t, const char *text)
{
        int64_t deadline = clock_mono_ns() / 1000000 + WAIT_MS;

        while (!strstr(str_c(&t->out), text))
                if (!turn(r, deadline))
                        fail_msg("\"%s\" did not come; got \"%s\"", text, str_c(&t->out));
}

static struct stream *open_logs(struct rig *r, const char *id, bool follow, int64_t tail,
                                struct taker *t)
{
        struct stream_sink sink = { take_data, take_end, t };
        struct stream *s = NULL;
        struct err err = { 0 };

        if (runtime_process.logs(r->rt, id, &(struct log_options){ follow, tail }, &sink, &s,
                                 &err) < 0)
                fail_msg("%s", err_line(&err));
        return s;
}

static void read_logs(struct rig *r, const char *id, struct taker *t)
{
        open_logs(r, id, false, -1, t);
        await_end(r, t);
}

static struct stream *open_exec(struct rig *r, const char *id, bool tty, const char *const *argv,
                                struct taker *t)
{
        struct stream_sink sink = { take_data, take_end, t };
        struct stream *s = NULL;
        struct err err = { 0 };

        if (runtime_process.exec(
                r->rt, id,
                &(struct exec_options){ .argv = argv, .tty = tty, .rows = 33, .cols = 77 }, &sink,
                &s, &err) < 0)
                fail_msg("%s", err_line(&err));
        return s;
}

/* cmocka leaves a failed test where it stands. */
static int after_each(void **state)
{
        const char *const ids[] = { "a", "b", "web" };
        struct unit_state s;

        (void)state;
        for (size_t i = 0; left_dir[0] && i < ARRAY_LEN(ids); i++)
                if (unit_state_read(fmt("%s/units/%s", left_dir, ids[i]), "run.state", &s, NULL) ==
                        0 &&
                    str_eq(s.boot_id, proc_boot_id()) &&
                    proc_start_time((pid_t)s.monitor) == (uint64_t)s.monitor_start)
                        kill((pid_t)s.monitor, SIGTERM);
        left_dir[0] = 0;
        return 0;
}

/* ---- tests ---- */

/* R: C40 */
static void command_has_its_environment_directory_limits_and_exit_code(void **state)
{
        struct rig r;
        struct def d;
        struct taker t = { 0 };
        struct seen s;
        struct unit_token token;

        (void)state;
        setup(&r);
        def_init(&d, "echo $BERTH_WORKLOAD_ID $BERTH_NODE_ID $BERTH_REVISION $FOO; pwd; ulimit -n; "
                     "ulimit -c; echo \"${HOME:+home}\" "
                     "\"${SECRET_OF_AGENT:-none}\"; echo oops >&2; exit 7");
        pb__spec__env_entry__init(&d.env);
        d.env.key = (char *)(uintptr_t) "FOO";
        d.env.value = (char *)(uintptr_t) "bar baz";
        d.envs[0] = &d.env;
        d.spec.env = d.envs;
        d.spec.n_env = 1;
        d.spec.workdir = (char *)(uintptr_t) "/usr";
        d.spec.max_open_files = 321;
        setenv("SECRET_OF_AGENT", "x", 1);
        token = launch_def(&r, "web", &d);
        s = await(&r, RUNTIME_STARTED, "web");
        assert_true(s.ev.pid > 1 && s.ev.at_ms > 0);
        s = await(&r, RUNTIME_EXITED, "web");
        assert_true(s.ev.has_exit_code && s.ev.exit_code == 7 && !s.ev.has_signal);
        assert_int_equal(unit_token_cmp(s.ev.token, token), 0);
        read_logs(&r, "web", &t);
        assert_string_equal(str_c(&t.out), "web node-1 rev-1 bar baz\n/usr\n321\n0\nhome none\n");
        assert_string_equal(str_c(&t.err), "oops\n");
        taker_fini(&t);
        teardown(&r);
}

/* Issue 5, D9: BERTH_TOKEN is where the command line looks for its access token. R: C34 */
static void the_fencing_token_has_a_name_of_its_own(void **state)
{
        struct rig r;
        struct def d;
        struct taker t = { 0 };
        struct unit_token token;

        (void)state;
        setup(&r);
        def_init(&d, "echo $BERTH_TOKEN $BERTH_FENCING_TOKEN");
        pb__spec__env_entry__init(&d.env);
        d.env.key = (char *)(uintptr_t) "BERTH_TOKEN";
        d.env.value = (char *)(uintptr_t) "mine";
        d.envs[0] = &d.env;
        d.spec.env = d.envs;
        d.spec.n_env = 1;
        token = launch_def(&r, "web", &d);
        await(&r, RUNTIME_EXITED, "web");
        read_logs(&r, "web", &t);
        assert_string_equal(str_c(&t.out), fmt("mine %llu.%llu\n", (unsigned long long)token.epoch,
                                               (unsigned long long)token.seq));
        taker_fini(&t);
        teardown(&r);
}

/* Issue 5, D10: a number beyond the kernel's wrapped around to root. R: A14 */
static void a_user_beyond_all_numbers_is_nobody(void **state)
{
        struct rig r;
        struct def d;

        (void)state;
        setup(&r);
        def_init(&d, "id -u");
        d.spec.user = (char *)(uintptr_t) "4294967296";
        launch_def(&r, "web", &d);
        assert_non_null(strstr(await(&r, RUNTIME_START_FAILED, "web").message, "4294967296"));
        teardown(&r);
}

/* R: C6 */
static void signals_are_reported(void **state)
{
        struct rig r;
        struct seen s;

        (void)state;
        setup(&r);
        launch_script(&r, "a", "kill -SEGV $$");
        s = await(&r, RUNTIME_EXITED, "a");
        assert_true(s.ev.has_signal && s.ev.signal == SIGSEGV && !s.ev.has_exit_code);
        launch_script(&r, "b", "exit 0");
        s = await(&r, RUNTIME_EXITED, "b");
        assert_true(s.ev.has_exit_code && s.ev.exit_code == 0);
        teardown(&r);
}

/* R: C40 C25 */
static void starts_that_fail_say_why(void **state)
{
        struct rig r;
        struct def d;
        struct seen s;

        (void)state;
        setup(&r);
        def_init(&d, "true");
        d.argv[0] = (char *)(uintptr_t) "no-such-command";
        launch_def(&r, "a", &d);
        s = await(&r, RUNTIME_START_FAILED, "a");
        assert_non_null(strstr(s.message, "command not found: no-such-command"));
        d.argv[0] = (char *)(uintptr_t) "/etc/passwd";
        launch_def(&r, "a", &d);
        s = await(&r, RUNTIME_START_FAILED, "a");
        assert_string_equal(s.message, "cannot run command /etc/passwd: Permission denied");
        def_init(&d, "true");
        d.spec.workdir = (char *)(uintptr_t) "/no/such/dir";
        launch_def(&r, "a", &d);
        s = await(&r, RUNTIME_START_FAILED, "a");
        assert_non_null(
            strstr(s.message, "cannot use working directory /no/such/dir: No such file"));
        def_init(&d, "true");
        d.spec.user = (char *)(uintptr_t) "nobody-of-that-name";
        launch_def(&r, "a", &d);
        s = await(&r, RUNTIME_START_FAILED, "a");
        assert_non_null(strstr(s.message, "user nobody-of-that-name does not exist"));
        def_init(&d, "true");
        /* never in silence without what it asks for. R: A14 */
        char *capabilities[] = { (char *)(uintptr_t) "ALL" };
        d.spec.capabilities = capabilities;
        d.spec.n_capabilities = 1;
        launch_def(&r, "a", &d);
        s = await(&r, RUNTIME_START_FAILED, "a");
        assert_non_null(strstr(s.message, "there is no capability ALL"));
        def_init(&d, "true");
        d.w.type = PB__WORKLOAD_TYPE__E__vm;
        launch_def(&r, "b", &d);
        s = await(&r, RUNTIME_START_FAILED, "b");
        assert_int_equal(s.ev.reason, PB__REASON__E__runtime_unavailable);
        /* a failed start is known after a restart as well */
        runtime_process.close(r.rt);
        rt_open(&r);
        assert_int_equal(runtime_process.find(r.rt, NULL), 0);
        s = await(&r, RUNTIME_FOUND_EXITED, "a");
        assert_int_equal(s.ev.reason, PB__REASON__E__start_failed);
        teardown(&r);
}

/* R: C40 */
static void other_user_is_used(void **state)
{
        struct rig r;
        struct def d;
        struct taker t = { 0 };

        (void)state;
        if (geteuid() != 0)
                skip();
        setup(&r);
        def_init(&d, "id -un; id -Gn; echo $HOME");
        d.spec.user = (char *)(uintptr_t) "daemon";
        launch_def(&r, "a", &d);
        await(&r, RUNTIME_EXITED, "a");
        read_logs(&r, "a", &t);
        assert_string_equal(str_c(&t.out), "daemon\ndaemon\n/usr/sbin\n");
        taker_fini(&t);
        teardown(&r);
}

/* R: C21 A12 */
static void stop_is_polite_first(void **state)
{
        struct rig r;
        struct unit_token token;
        struct taker t = { 0 };
        struct seen s;

        (void)state;
        setup(&r);
        token = launch_script(
            &r, "a", "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done");
        await(&r, RUNTIME_STARTED, "a");
        open_logs(&r, "a", true, -1, &t);
        await_text(&r, &t, "up\n");
        runtime_process.stop(r.rt, "a", token, 15000);
        s = await(&r, RUNTIME_STOPPED, "a");
        assert_true(s.ev.has_exit_code && s.ev.exit_code == 3);
        await_end(&r, &t); /* a follower ends with its unit, after the last line */
        assert_string_equal(str_c(&t.out), "up\nbye\n");
        /* again: nothing runs, and that is said at once */
        runtime_process.stop(r.rt, "a", token, 0);
        await(&r, RUNTIME_STOPPED, "a");
        taker_fini(&t);
        teardown(&r);
}

/* R: C21 C24 */
static void stop_kills_what_ignores_it_and_what_ran_away(void **state)
{
        struct rig r;
        struct unit_token token;
        struct taker t = { 0 };
        struct seen s;

        (void)state;
        setup(&r);
        token = launch_script(&r, "a",
                              "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo one; while :; do "
                              "sleep 0.05; done' & (setsid setsid sleep "
                              "1000 &) ; echo two; while :; do sleep 0.05; done");
        await(&r, RUNTIME_STARTED, "a");
        open_logs(&r, "a", true, -1, &t);
        await_text(&r, &t, "one\n");
        await_text(&r, &t, "two\n");
        assert_true(left_of(&r, "a", token) >= 3);
        runtime_process.stop(r.rt, "a", token, 200);
        s = await(&r, RUNTIME_STOPPED, "a");
        assert_true(s.ev.has_signal && s.ev.signal == SIGKILL);
        assert_int_equal(left_of(&r, "a", token), 0);
        await_end(&r, &t);
        taker_fini(&t);
        teardown(&r);
}

/* R: C24 */
static void nothing_outlives_the_command(void **state)
{
        struct rig r;
        struct unit_token token;
        struct seen s;

        (void)state;
        setup(&r);
        token = launch_script(&r, "a", "setsid sleep 1000 & exit 5");
        s = await(&r, RUNTIME_EXITED, "a");
        assert_int_equal(s.ev.exit_code, 5);
        assert_int_equal(left_of(&r, "a", token), 0);
        teardown(&r);
}

/* R: A5 C34 */
static void units_outlive_the_agent_and_are_adopted(void **state)
{
        struct rig r;
        struct unit_token token;
        struct seen s;
        int64_t pid;

        (void)state;
        setup(&r);
        token = launch_script(&r, "a", "while [ ! -e go ]; do sleep 0.05; done; exit 9");
        pid = await(&r, RUNTIME_STARTED, "a").ev.pid;
        launch_script(&r, "b", "exit 4");
        await(&r, RUNTIME_STARTED, "b");
        runtime_process.close(r.rt);
        assert_true(proc_start_time((pid_t)pid) != 0);
        while (!file_exists(fmt("%s/exit.state", unit_dir(&r, "b"))))
                usleep(5000);
        array_clear(&r.seen);
        rt_open(&r);
        assert_int_equal(runtime_process.find(r.rt, NULL), 0);
        for (size_t i = 0; i < r.seen.len; i++)
                if (str_eq(r.seen.at[i].id, "a")) {
                        assert_int_equal(r.seen.at[i].kind, RUNTIME_FOUND_RUNNING);
                        assert_int_equal(r.seen.at[i].ev.pid, pid);
                        assert_int_equal(unit_token_cmp(r.seen.at[i].ev.token, token), 0);
                        assert_string_equal(r.seen.at[i].revision, "rev-1");
                } else {
                        assert_int_equal(r.seen.at[i].kind, RUNTIME_FOUND_EXITED);
                        assert_int_equal(r.seen.at[i].ev.exit_code, 4);
                }
        assert_int_equal(r.seen.len, 2);
        runtime_process.stop(r.rt, "a", token, 5000);
        s = await(&r, RUNTIME_STOPPED, "a");
        assert_int_equal(s.ev.signal, SIGTERM);
        teardown(&r);
}

/* R: A5 C34 */
static void a_start_cut_short_by_the_agents_death_is_found(void **state)
{
        struct rig r;
        struct unit_token token;

        (void)state;
        setup(&r);
        for (int i = 0; i < 5; i++) {
                token = launch_script(&r, "a", "sleep 1000");
                runtime_process.close(r.rt); /* before the monitor has said anything */
                rt_open(&r);
                assert_int_equal(runtime_process.find(r.rt, NULL), 0);
                await(&r, RUNTIME_FOUND_RUNNING, "a");
                runtime_process.stop(r.rt, "a", token, 5000);
                await(&r, RUNTIME_STOPPED, "a");
                assert_int_equal(left_of(&r, "a", token), 0);
        }
        teardown(&r);
}

/* R: A5 */
static void a_killed_monitor_takes_its_unit_along(void **state)
{
        struct rig r;
        struct unit_state st;
        struct unit_token token;
        struct taker t = { 0 };
        struct seen s;

        (void)state;
        setup(&r);
        for (int agent_away = 0; agent_away < 2; agent_away++) {
                token = launch_script(
                    &r, "a", "setsid sleep 1000 & setsid sleep 1000 & echo up; sleep 1000");
                await(&r, RUNTIME_STARTED, "a");
                open_logs(&r, "a", true, 1, &t);
                await_text(&r, &t, "up\n");
                assert_int_equal(unit_state_read(unit_dir(&r, "a"), "run.state", &st, NULL), 0);
                if (agent_away) {
                        runtime_process.close(r.rt);
                        kill((pid_t)st.monitor, SIGKILL);
                        while (proc_start_time((pid_t)st.monitor))
                                usleep(1000);
                        rt_open(&r);
                        assert_int_equal(runtime_process.find(r.rt, NULL), 0);
                        s = await(&r, RUNTIME_FOUND_EXITED, "a");
                } else {
                        kill((pid_t)st.monitor, SIGKILL);
                        s = await(&r, RUNTIME_EXITED, "a");
                        await_end(&r, &t);
                }
                assert_int_equal(s.ev.reason, PB__REASON__E__killed);
                assert_non_null(strstr(s.message, "monitor"));
                assert_int_equal(left_of(&r, "a", token), 0);
                taker_fini(&t);
        }
        teardown(&r);
}

/* R: A5 C34 */
static void another_boot_or_a_strangers_pid_is_never_touched(void **state)
{
        struct rig r;
        struct unit_state st = { .token = { 1, 1 }, .revision = "rev-1" };
        pid_t stranger = fork();

        (void)state;
        if (stranger == 0) {
                setsid();
                execlp("sleep", "sleep", "1000", NULL);
                _exit(1);
        }
        setup(&r);
        st.monitor = st.pid = stranger;
        while (!(st.monitor_start = st.pid_start = (int64_t)proc_start_time(stranger)))
                usleep(1000);
        /* the right pid and start time, but of another boot */
        dir_make(unit_dir(&r, "a"), 0700, NULL);
        snprintf(st.boot_id, sizeof(st.boot_id), "00000000-0000-0000-0000-000000000000");
        assert_int_equal(unit_state_write(unit_dir(&r, "a"), "run.state", &st, NULL), 0);
        /* the right boot, but somebody else has the pid now */
        dir_make(unit_dir(&r, "b"), 0700, NULL);
        snprintf(st.boot_id, sizeof(st.boot_id), "%s", proc_boot_id());
        st.monitor_start = st.pid_start = st.pid_start - 1;
        assert_int_equal(unit_state_write(unit_dir(&r, "b"), "run.state", &st, NULL), 0);
        assert_int_equal(runtime_process.find(r.rt, NULL), 0);
        assert_int_equal(r.seen.len, 2);
        for (size_t i = 0; i < 2; i++)
                assert_int_equal(r.seen.at[i].kind, str_eq(r.seen.at[i].id, "a")
                                                        ? RUNTIME_FOUND_GONE
                                                        : RUNTIME_FOUND_EXITED);
        assert_true(proc_start_time(stranger) != 0);
        kill(stranger, SIGKILL);
        waitpid(stranger, NULL, 0);
        teardown(&r);
}

/* R: A9 A11 */
static void output_is_bounded_and_the_newest_is_kept(void **state)
{
        struct rig r;
        struct def d;
        struct stat a = { 0 }, b = { 0 };
        struct taker t = { 0 };

        (void)state;
        setup(&r);
        def_init(&d, "i=0; while [ $i -lt 20000 ]; do echo line $i of a long story; i=$((i+1)); "
                     "done; head -c 20000 /dev/zero | tr '\\0' "
                     "x; echo; printf end");
        d.spec.log_max_kb = 64;
        launch_def(&r, "a", &d);
        await(&r, RUNTIME_EXITED, "a");
        stat(fmt("%s/" LOG_NAME, unit_dir(&r, "a")), &a);
        stat(fmt("%s/" LOG_OLD_NAME, unit_dir(&r, "a")), &b);
        assert_true(a.st_size > 0 && b.st_size > 0 && a.st_size + b.st_size <= 64 * 1024);
        read_logs(&r, "a", &t);
        assert_non_null(strstr(str_c(&t.out), "line 19999 of a long story\nxxxx"));
        assert_null(strstr(str_c(&t.out), "line 1 of"));
        assert_true(str_ends(str_c(&t.out), "x\nend"));
        { /* a line longer than a record is whole again for the reader */
                const char *x = strstr(str_c(&t.out), "xxxx");

                assert_int_equal(strspn(x, "x"), 20000);
        }
        taker_fini(&t);
        open_logs(&r, "a", false, 2, &t);
        await_end(&r, &t);
        assert_true(t.out.len < 20100 && str_ends(str_c(&t.out), "end"));
        taker_fini(&t);
        teardown(&r);
}

/* R: C40 */
static void logs_are_followed_over_rotation_and_pauses(void **state)
{
        struct rig r;
        struct def d;
        struct taker t = { 0 };
        struct stream *s;
        struct err err = { 0 };
        struct stream_sink sink = { take_data, take_end, &t };
        struct unit_token token;
        int64_t until;

        (void)state;
        setup(&r);
        def_init(&d, "i=0; while :; do i=$((i+1)); echo line $i; if [ $((i % 500)) = 0 ]; then "
                     "sleep 0.02; fi; done");
        d.spec.log_max_kb = 64;
        token = launch_def(&r, "a", &d);
        await(&r, RUNTIME_STARTED, "a");
        s = open_logs(&r, "a", true, 1, &t);
        await_text(&r, &t, "line 20000\n");
        t.refuse_more = true;
        await_text(&r, &t, "line 20001\n");
        until = clock_mono_ns() / 1000000 + 300;
        t.calls = 0;
        while (turn(&r, until))
                ;
        assert_true(t.calls <= 1); /* asked to wait, it waits */
        t.refuse_more = false;
        str_clear(&t.out);
        s->ops->resume(s);
        await_text(&r, &t, "line 3");
        s->ops->close(s);
        runtime_process.stop(r.rt, "a", token, 1000);
        await(&r, RUNTIME_STOPPED, "a");
        assert_int_equal(
            runtime_process.logs(r.rt, "nobody", &(struct log_options){ 0 }, &sink, &s, &err),
            -ERR_NOT_FOUND);
        assert_int_equal(
            runtime_process.logs(r.rt, "..", &(struct log_options){ 0 }, &sink, &s, &err),
            -ERR_NOT_FOUND);
        taker_fini(&t);
        teardown(&r);
}

/* R: C40 */
static void a_follower_may_come_before_the_start(void **state)
{
        struct rig r;
        struct taker t = { 0 };

        (void)state;
        setup(&r);
        dir_make(unit_dir(&r, "a"), 0700, NULL); /* the agent has its record, nothing more yet */
        open_logs(&r, "a", true, -1, &t);
        assert_true(turn(&r, clock_mono_ns() / 1000000 + 1000));
        assert_false(t.ended);
        launch_script(&r, "a", "echo here; exit 0");
        await_end(&r, &t);
        assert_string_equal(str_c(&t.out), "here\n");
        taker_fini(&t);
        launch_script(&r, "b", "exec no-such-command");
        await(&r, RUNTIME_EXITED, "b");
        open_logs(&r, "b", true, -1, &t);
        await_end(&r, &t);
        assert_non_null(strstr(str_c(&t.err), "no-such-command"));
        taker_fini(&t);
        teardown(&r);
}

/* R: C40, D10: two rotations while a reader was held up: the file in between is still there, and is
 * read. */
static void a_reader_skips_no_file_after_two_rotations(void **state)
{
        struct rig r;
        struct def d;
        struct taker t = { .refuse_more = true };
        struct stream *s;
        const char *at;

        (void)state;
        setup(&r);
        def_init(&d, fmt("echo first; while [ ! -e %s/go ]; do sleep 0.01; done; "
                         "i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo line $i %s; done; echo "
                         "end; sleep 1000",
                         r.dir,
                         "0123456789012345678901234567890123456789012345678901234567890123456789012"
                         "345678901234567890123456789"));
        d.spec.log_max_kb = 32; /* half of it in each file: about 115 lines */
        launch_def(&r, "a", &d);
        await(&r, RUNTIME_STARTED, "a");
        s = open_logs(&r, "a", true, -1, &t);
        await_text(&r, &t, "first\n");
        close(open(fmt("%s/go", r.dir), O_CREAT | O_WRONLY, 0600));
        for (int64_t until = clock_mono_ns() / 1000000 + WAIT_MS;;) {
                struct str text = STR_INIT;
                bool whole =
                    file_read(fmt("%s/" LOG_NAME, unit_dir(&r, "a")), 1 << 20, &text, NULL) == 0 &&
                    strstr(str_c(&text), "end\n");

                str_fini(&text);
                if (whole)
                        break;
                assert_true(clock_mono_ns() / 1000000 < until);
                usleep(10000);
        }
        t.refuse_more = false;
        s->ops->resume(s);
        await_text(&r, &t, "end\n");
        at = str_c(&t.out);
        for (int i = 1; i <= 300; i++) {
                at = strstr(at, fmt("line %d ", i));
                if (!at)
                        fail_msg("line %d is not there", i);
        }
        s->ops->close(s);
        taker_fini(&t);
        teardown(&r);
}

/* R: C40 */
static void exec_runs_inside_the_unit(void **state)
{
        struct rig r;
        struct def d;
        struct taker t = { 0 };
        struct stream *s;
        struct err err = { 0 };
        struct stream_sink sink = { take_data, take_end, &t };
        const char *where[] = { "sh", "-c",
                                "echo $BERTH_WORKLOAD_ID; pwd; cat; echo done >&2; exit 11", NULL };
        const char *tty[] = { "sh", "-c",
                              "test -t 0 && test -t 1 && stty size; read x; echo got $x; stty size",
                              NULL };
        const char *forever[] = { "sleep", "1000", NULL };
        const char *missing[] = { "no-such-command", NULL },
                   *no_program[] = { "/etc/passwd", NULL };

        (void)state;
        setup(&r);
        def_init(&d, "sleep 1000");
        d.spec.workdir = (char *)(uintptr_t) "/usr";
        launch_def(&r, "a", &d);
        await(&r, RUNTIME_STARTED, "a");
        s = open_exec(&r, "a", false, where, &t);
        await_text(&r, &t, "/usr\n");
        assert_true(s->ops->write(s, "hello\n", 6));
        s->ops->write_eof(s);
        await_end(&r, &t);
        assert_string_equal(str_c(&t.out), "a\n/usr\nhello\n");
        assert_string_equal(str_c(&t.err), "done\n");
        assert_true(t.has_code && t.code == 11);
        taker_fini(&t);
        s = open_exec(&r, "a", true, tty, &t);
        await_text(&r, &t, "33 77");
        s->ops->resize(s, 40, 100);
        s->ops->write(s, "typed\n", 6);
        await_end(&r, &t);
        assert_non_null(strstr(str_c(&t.out), "got typed"));
        assert_non_null(strstr(str_c(&t.out), "40 100"));
        assert_int_equal(t.code, 0);
        taker_fini(&t);
        open_exec(&r, "a", false, missing, &t); /* B8: as a shell says it */
        await_end(&r, &t);
        assert_true(t.has_code && t.code == 127);
        assert_non_null(strstr(t.error, "command not found"));
        taker_fini(&t);
        open_exec(&r, "a", false, no_program, &t);
        await_end(&r, &t);
        assert_true(t.has_code && t.code == 126);
        assert_non_null(strstr(t.error, "/etc/passwd"));
        taker_fini(&t);
        assert_int_equal(runtime_process.exec(r.rt, "b", &(struct exec_options){ .argv = forever },
                                              &sink, &s, &err),
                         -ERR_CONFLICT);
        s = open_exec(&r, "a", false, forever, &t); /* closed by its taker: killed, no end() */
        s->ops->close(s);
        assert_false(t.ended);
        s = open_exec(&r, "a", false, forever, &t); /* ends with its unit */
        runtime_process.stop(r.rt, "a", (struct unit_token){ 1, r.seq }, 1000);
        await(&r, RUNTIME_STOPPED, "a");
        await_end(&r, &t);
        assert_int_equal(t.code, 128 + SIGKILL);
        taker_fini(&t);
        teardown(&r);
}

/* R: C24 C27 */
static void remove_leaves_nothing(void **state)
{
        struct rig r;

        (void)state;
        setup(&r);
        launch_script(&r, "a", "echo x");
        await(&r, RUNTIME_EXITED, "a");
        assert_true(file_exists(unit_dir(&r, "a")));
        runtime_process.remove(r.rt, "a");
        await(&r, RUNTIME_REMOVED, "a");
        assert_false(file_exists(unit_dir(&r, "a")));
        runtime_process.remove(r.rt, "a");
        await(&r, RUNTIME_REMOVED, "a");
        dir_make(fmt("%s/units/.trash-x-1-1/y", r.dir), 0700, NULL);
        assert_int_equal(runtime_process.find(r.rt, NULL), 0);
        assert_false(file_exists(fmt("%s/units/.trash-x-1-1", r.dir)));
        teardown(&r);
}

/* R: C34 */
static void a_second_copy_is_refused(void **state)
{
        struct rig r;
        struct unit_token token;
        struct seen s;

        (void)state;
        setup(&r);
        token = launch_script(&r, "a", "sleep 1000");
        await(&r, RUNTIME_STARTED, "a");
        launch_script(&r, "a", "sleep 1000");
        s = await(&r, RUNTIME_START_FAILED, "a");
        assert_true(s.ev.token.seq == token.seq + 1);
        runtime_process.close(r.rt);
        rt_open(&r); /* even one that has not looked around yet */
        launch_script(&r, "a", "sleep 1000");
        await(&r, RUNTIME_START_FAILED, "a");
        assert_int_equal(runtime_process.find(r.rt, NULL), 0);
        await(&r, RUNTIME_FOUND_RUNNING, "a");
        teardown(&r);
}

/* R: C40 */
static void memory_limit_is_enforced_where_it_can_be(void **state)
{
        struct rig r;
        struct def d;
        struct seen s;
        struct cgroup_limits limits = { .memory_bytes = 64 << 20 };
        char missing[CGROUP_MISSING_LEN];

        (void)state;
        if (!cgroup_make("berth-test-probe", &limits, missing) || missing[0]) {
                cgroup_remove("berth-test-probe");
                skip();
        }
        cgroup_remove("berth-test-probe");
        setup(&r);
        def_init(&d, "head -c 200000000 /dev/zero | tail");
        d.w.resources = &d.res;
        d.res.memory_mb = 32;
        d.res.cpu = 100;
        launch_def(&r, "a", &d);
        s = await(&r, RUNTIME_EXITED, "a");
        if (!s.ev.oom)
                fail_msg("exit code %d signal %d", s.ev.exit_code, s.ev.signal);
        assert_non_null(strstr(s.message, "32 MiB"));
        teardown(&r);
}

/* R: C40 */
static void usage_is_measured(void **state)
{
        struct rig r;
        struct runtime_usage u;

        (void)state;
        setup(&r);
        runtime_process.usage(r.rt, &u);
        assert_true(u.memory_used_mb > 0 && u.disk_used_gb >= 0);
        teardown(&r);
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(
                    command_has_its_environment_directory_limits_and_exit_code, after_each),
                cmocka_unit_test_teardown(the_fencing_token_has_a_name_of_its_own, after_each),
                cmocka_unit_test_teardown(a_user_beyond_all_numbers_is_nobody, after_each),
                cmocka_unit_test_teardown(signals_are_reported, after_each),
                cmocka_unit_test_teardown(starts_that_fail_say_why, after_each),
                cmocka_unit_test_teardown(other_user_is_used, after_each),
                cmocka_unit_test_teardown(stop_is_polite_first, after_each),
                cmocka_unit_test_teardown(stop_kills_what_ignores_it_and_what_ran_away, after_each),
                cmocka_unit_test_teardown(nothing_outlives_the_command, after_each),
                cmocka_unit_test_teardown(units_outlive_the_agent_and_are_adopted, after_each),
                cmocka_unit_test_teardown(a_start_cut_short_by_the_agents_death_is_found,
                                          after_each),
                cmocka_unit_test_teardown(a_killed_monitor_takes_its_unit_along, after_each),
                cmocka_unit_test_teardown(another_boot_or_a_strangers_pid_is_never_touched,
                                          after_each),
                cmocka_unit_test_teardown(output_is_bounded_and_the_newest_is_kept, after_each),
                cmocka_unit_test_teardown(logs_are_followed_over_rotation_and_pauses, after_each),
                cmocka_unit_test_teardown(a_follower_may_come_before_the_start, after_each),
                cmocka_unit_test_teardown(a_reader_skips_no_file_after_two_rotations, after_each),
                cmocka_unit_test_teardown(exec_runs_inside_the_unit, after_each),
                cmocka_unit_test_teardown(remove_leaves_nothing, after_each),
                cmocka_unit_test_teardown(a_second_copy_is_refused, after_each),
                cmocka_unit_test_teardown(memory_limit_is_enforced_where_it_can_be, after_each),
                cmocka_unit_test_teardown(usage_is_measured, after_each),
        };

        if (unit_main_wanted(argc, argv))
                return unit_main(argc, argv);
        signal(SIGPIPE, SIG_IGN);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
