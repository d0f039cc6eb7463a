/* agent/runtimes/container_test.c: the container runtime against an engine that is only a script:
 * what goes wrong, and what is asked for.
 *
 * The engine is a thread of this test that listens on a unix socket, takes one request per
 * connection and gives the first answer of its script that fits. Real containers are in
 * tests/e2e/test_containers.py.
 */
#include "agent/runtimes/container.h"
#include "agent/runtimes/container_api.h"
#include "agent/runtimes/container_spec.h"
#include "agent/runtimes/proc.h"
#include "agent/runtimes/unit_files.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define WAIT_MS 20000

/* ---- the engine ---- */

struct line {
        const char *match;  /* "METHOD path", the beginning of it */
        const char *answer; /* all bytes; NULL: close without one */
        int times;          /* 0: for ever */
};

static struct {
        pthread_t thread;
        pthread_mutex_t lock;
        int listener;
        char path[96];
        struct line script[32];
        size_t n_script;
        struct str asked; /* one line per request */
        _Atomic bool stop;
} fake;

static const char *answer_to(const char *request)
{
        const char *answer =
            "HTTP/1.1 404 Not Found\r\nContent-Length: 24\r\n\r\n{\"message\":\"no such one\"}";

        pthread_mutex_lock(&fake.lock);
        str_add(&fake.asked, request, strcspn(request, "\r\n"));
        str_addc(&fake.asked, '\n');
        for (size_t i = fake.n_script; i-- > 0;) { /* the last one said counts */
                struct line *l = &fake.script[i];

                if (l->times < 0 || strncmp(request, l->match, strlen(l->match)) != 0)
                        continue;
                if (l->times > 0 && --l->times == 0)
                        l->times = -1;
                answer = l->answer;
                break;
        }
        pthread_mutex_unlock(&fake.lock);
        return answer;
}

static void serve_one(int fd)
{
        struct str in = STR_INIT;
        char buf[4096];
        const char *head, *length, *answer;
        size_t want = 0;

        for (;;) {
                ssize_t n = read(fd, buf, sizeof(buf));

                if (n <= 0)
                        break;
                str_add(&in, buf, (size_t)n);
                head = strstr(str_c(&in), "\r\n\r\n");
                if (!head)
                        continue;
                length = strstr(str_c(&in), "Content-Length: ");
                want = (size_t)(head - str_c(&in)) + 4 +
                       (length && length < head ? (size_t)atoi(length + 16) : 0);
                if (in.len >= want)
                        break;
        }
        answer = in.len ? answer_to(str_c(&in)) : NULL;
        /* in small pieces: readers must not rely on packets */
        for (size_t at = 0; answer && at < strlen(answer);) {
                ssize_t n = send(fd, answer + at, strlen(answer) - at < 7 ? strlen(answer) - at : 7,
                                 MSG_NOSIGNAL);

                if (n <= 0)
                        break;
                at += (size_t)n;
        }
        str_fini(&in);
        close(fd);
}

static void *serve(void *arg)
{
        (void)arg;
        for (;;) {
                int fd = accept(fake.listener, NULL, NULL);

                if (fd < 0 || fake.stop)
                        break;
                serve_one(fd);
        }
        return NULL;
}

static void says_times(const char *match, const char *answer, int times)
{
        pthread_mutex_lock(&fake.lock);
        assert_true(fake.n_script < ARRAY_LEN(fake.script));
        fake.script[fake.n_script++] =
            (struct line){ .match = match, .answer = answer, .times = times };
        pthread_mutex_unlock(&fake.lock);
}
static void says(const char *match, const char *answer)
{
        says_times(match, answer, 0);
}
static void says_once(const char *match, const char *answer)
{
        says_times(match, answer, 1);
}

static bool was_asked(const char *text)
{
        bool found;

        pthread_mutex_lock(&fake.lock);
        found = strstr(str_c(&fake.asked), text) != NULL;
        pthread_mutex_unlock(&fake.lock);
        return found;
}

#define OK(body) "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" body
#define NO_CONTENT "HTTP/1.1 204 No Content\r\n\r\n"
#define RUNNING                                                                                    \
        OK("{\"Id\":\"0123456789abcdef\",\"State\":{\"Status\":\"running\",\"Running\":true,"      \
           "\"Pid\":1,\"ExitCode\":0,"                                                             \
           "\"StartedAt\":\"2026-01-01T00:00:00Z\",\"FinishedAt\":\"0001-01-01T00:00:00Z\"}}")
#define EXITED(code)                                                                               \
        OK("{\"Id\":\"0123456789abcdef\",\"State\":{\"Status\":\"exited\",\"Running\":false,"      \
           "\"Pid\":0,\"ExitCode\":" code                                                          \
           ",\"StartedAt\":\"2026-01-01T00:00:00Z\",\"FinishedAt\":\"2026-01-01T00:00:05Z\"}}")
#define LISTED_WITH(state, labels)                                                                 \
        OK("[{\"Id\":\"0123456789abcdef\",\"Names\":[\"/x\"],\"State\":\"" state                   \
           "\",\"Labels\":{\"berth.io/workload\":\"web\","                                         \
           "\"berth.io/token\":\"1.5\",\"berth.io/revision\":\"r1\",\"berth.io/"                   \
           "part\":\"\"," labels "\"berth.io/parts\":\"1\"}}]")
#define LISTED(state) LISTED_WITH(state, "\"berth.io/cluster\":\"c1\",")
#define LISTED_OF_C2(state) LISTED_WITH(state, "\"berth.io/cluster\":\"c2\",")

/* ---- the rig ---- */

struct seen {
        enum runtime_event_kind kind;
        struct runtime_event ev;
        char message[512];
};
static struct {
        char dir[64];
        struct event_base *base;
        struct runtime *rt;
        ARRAY(struct seen) seen;
        int64_t away_ms;
        const char *cluster;
} rig;

static const char *cluster_now(void *ctx)
{
        (void)ctx;
        return rig.cluster;
}

static void on_event(void *ctx, const struct runtime_event *ev)
{
        struct seen *s = array_push(&rig.seen);

        (void)ctx;
        s->kind = ev->kind;
        s->ev = *ev;
        snprintf(s->message, sizeof(s->message), "%s", ev->message ? ev->message : "");
}

static int open_runtime(struct err *err)
{
        struct container_options co = { .engine = "docker",
                                        .socket = fake.path,
                                        .away_ms = rig.away_ms };
        struct runtime_options opt = { .base = rig.base,
                                       .data_dir = rig.dir,
                                       .node_id = "n1",
                                       .on_event = on_event,
                                       .cluster_id = cluster_now,
                                       .extra = &co };

        return runtime_container.open(&opt, &rig.rt, err);
}

static void listen_now(void)
{
        struct sockaddr_un at = { .sun_family = AF_UNIX };

        snprintf(at.sun_path, sizeof(at.sun_path), "%s", fake.path);
        unlink(fake.path);
        fake.stop = false;
        fake.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_return_code(bind(fake.listener, (struct sockaddr *)&at, sizeof(at)), errno);
        assert_return_code(listen(fake.listener, 64), errno);
        assert_int_equal(pthread_create(&fake.thread, NULL, serve, NULL), 0);
}

static void hang_up(void)
{
        if (fake.listener < 0)
                return;
        fake.stop = true;
        shutdown(fake.listener, SHUT_RDWR);
        pthread_join(fake.thread, NULL);
        close(fake.listener);
        unlink(fake.path);
        fake.listener = -1;
}

static int setup(void **state)
{
        (void)state;
        memset(&fake, 0, sizeof(fake));
        memset(&rig, 0, sizeof(rig));
        rig.cluster = "c1";
        snprintf(rig.dir, sizeof(rig.dir), "/tmp/berth-ct-XXXXXX");
        assert_non_null(mkdtemp(rig.dir));
        snprintf(fake.path, sizeof(fake.path), "%s/engine.sock", rig.dir);
        pthread_mutex_init(&fake.lock, NULL);
        rig.base = event_base_new();
        says("GET /version",
             OK("{\"Version\":\"24.0\",\"ApiVersion\":\"1.43\",\"Something\":[{\"else\":1}]}"));
        says("GET /containers/json", "HTTP/1.1 200 OK\r\nTransfer-Encoding: "
                                     "chunked\r\n\r\n1\r\n[\r\n1;x=y\r\n]\r\n0\r\n\r\n");
        says("GET /images/", OK("{}"));
        says("POST /containers/", NO_CONTENT);
        says("POST /containers/create",
             "HTTP/1.1 201 Created\r\nContent-Length: 25\r\n\r\n{\"Id\":\"0123456789abcdef\"}");
        says("GET /containers/berth-web", RUNNING);
        says("GET /containers/0123456789abcdef", RUNNING);
        says("DELETE /containers/", NO_CONTENT);
        listen_now();
        return 0;
}

static int teardown(void **state)
{
        (void)state;
        if (rig.rt)
                runtime_container.close(rig.rt);
        hang_up();
        event_base_free(rig.base);
        array_fini(&rig.seen);
        str_fini(&fake.asked);
        dir_remove(rig.dir, NULL);
        return 0;
}

static void must_open(void)
{
        struct err err = { 0 };

        if (open_runtime(&err) < 0)
                fail_msg("%s", err_line(&err));
}

static void on_nothing(evutil_socket_t fd, short what, void *arg)
{
        (void)fd, (void)what, (void)arg;
}

/* Until an event of that kind has come. */
static const struct seen *await(enum runtime_event_kind kind)
{
        int64_t until = clock_mono_ns() / 1000000 + WAIT_MS;

        while (clock_mono_ns() / 1000000 < until) {
                struct timeval tick = { 0, 20000 };

                for (size_t i = 0; i < rig.seen.len; i++)
                        if (rig.seen.at[i].kind == kind)
                                return &rig.seen.at[i];
                event_base_once(rig.base, -1, EV_TIMEOUT, on_nothing, NULL, &tick);
                event_base_loop(rig.base, EVLOOP_ONCE);
        }
        for (size_t i = 0; i < rig.seen.len; i++)
                print_message("seen %d: %s\n", rig.seen.at[i].kind, rig.seen.at[i].message);
        fail_msg("no event %d; asked:\n%s", kind, str_c(&fake.asked));
        return NULL;
}

static void start_web(Pb__Pull__E pull)
{
        Pb__Workload w = PB__WORKLOAD__INIT;
        Pb__Spec spec = PB__SPEC__INIT;

        w.id = "web";
        w.type = PB__WORKLOAD_TYPE__E__container;
        w.revision_id = "r1";
        w.spec = &spec;
        spec.image = "registry.example/shop:7";
        spec.pull = pull;
        runtime_container.start(rig.rt, &(struct runtime_start){ .workload_id = "web",
                                                                 .token = { 1, 5 },
                                                                 .workload = &w,
                                                                 .cluster_id = rig.cluster });
}

/* ---- opening ---- */

/* R: C6 */
static void what_does_not_answer_like_an_engine_is_not_used(void **state)
{
        struct err err = { 0 };

        (void)state;
        says("GET /version", "SSH-2.0-OpenSSH\r\n\r\n");
        assert_true(open_runtime(&err) < 0);
        assert_non_null(strstr(err_line(&err), "does not speak HTTP"));
        says("GET /version", "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
        assert_true(open_runtime(&err) < 0);
        assert_non_null(strstr(err_line(&err), "no container engine"));
        says("GET /version", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{");
        assert_true(open_runtime(&err) < 0);
        assert_non_null(strstr(err_line(&err), "in the middle of its answer"));
        says("GET /version", NULL);
        assert_true(open_runtime(&err) < 0);
        hang_up();
        assert_true(open_runtime(&err) < 0);
        assert_non_null(strstr(err_line(&err), "cannot be reached"));
}

/* ---- starting ---- */

/* R: C6 */
static void a_container_is_created_started_and_reported(void **state)
{
        (void)state;
        must_open();
        start_web(PB__PULL__E__unset);
        const struct seen *s = await(RUNTIME_STARTED);
        assert_int_equal(s->ev.token.seq, 5);
        assert_true(was_asked("POST /containers/create?name=berth-web-"));
        assert_true(was_asked("GET /images/registry.example/shop:7/json"));
        assert_false(was_asked("POST /images/create"));

        /* its process is not ours to watch: the poll finds it */
        says("GET /containers/0123456789abcdef", EXITED("3"));
        says("GET /containers/json", LISTED("exited"));
        s = await(RUNTIME_EXITED);
        assert_true(s->ev.has_exit_code);
        assert_int_equal(s->ev.exit_code, 3);
        assert_false(s->ev.has_signal);
}

/* R: C6 */
static void a_pull_that_fails_has_the_registrys_sentence(void **state)
{
        (void)state;
        must_open();
        says("POST /images/create?fromImage=registry.example/shop:7",
             OK("{\"status\":\"Downloading\",\"id\":\"l1\",\"progressDetail\":{\"current\":40,"
                "\"total\":100}}\n"
                "{\"error\":\"unauthorized: authentication required\"}\n"));
        start_web(PB__PULL__E__always);
        const struct seen *s = await(RUNTIME_START_FAILED);
        assert_int_equal(s->ev.reason, PB__REASON__E__image_unavailable);
        assert_non_null(strstr(s->message, "unauthorized: authentication required"));
        s = await(RUNTIME_PROGRESS);
        assert_non_null(strstr(s->message, "pulling image registry.example/shop:7"));
        assert_false(was_asked("POST /containers/create"));
}

/* R: C6 */
static void an_image_that_must_be_here_is_not_pulled(void **state)
{
        (void)state;
        must_open();
        says("GET /images/",
             "HTTP/1.1 404 Not Found\r\nContent-Length: 27\r\n\r\n{\"message\":\"no such image\"}");
        start_web(PB__PULL__E__never);
        assert_int_equal(await(RUNTIME_START_FAILED)->ev.reason, PB__REASON__E__image_unavailable);
        assert_false(was_asked("POST /images/create"));
}

/* R: C6 */
static void what_a_failed_start_made_is_removed_before_it_is_told(void **state)
{
        (void)state;
        must_open();
        says(
            "POST /containers/berth-web",
            "HTTP/1.1 500 No\r\nContent-Length: 35\r\n\r\n{\"message\":\"exec: no such program\"}");
        /* the first removal fails as well */
        says_once("DELETE /containers/", "HTTP/1.1 500 Busy\r\nContent-Length: 0\r\n\r\n");
        start_web(PB__PULL__E__unset);
        says("GET /containers/json", LISTED("created"));
        const struct seen *s = await(RUNTIME_START_FAILED);
        assert_int_equal(s->ev.reason, PB__REASON__E__start_failed);
        assert_non_null(strstr(s->message, "exec: no such program"));
        assert_true(was_asked("DELETE /containers/0123456789abcdef?force=true"));
}

/* R: C6 C25 */
static void an_engine_that_is_away_fails_the_start_at_once(void **state)
{
        (void)state;
        must_open();
        hang_up();
        start_web(PB__PULL__E__unset);
        /* it may be back for the next try: the node is not given up for it */
        const struct seen *s = await(RUNTIME_START_FAILED);
        assert_int_equal(s->ev.reason, PB__REASON__E__start_failed);
        assert_non_null(strstr(s->message, "cannot be reached"));
}

/* R: C25 */
static void an_engine_that_stays_away_is_no_runtime_any_more(void **state)
{
        (void)state;
        rig.away_ms = 1;
        must_open();
        hang_up();
        start_web(PB__PULL__E__unset);
        assert_int_equal(await(RUNTIME_START_FAILED)->ev.reason, PB__REASON__E__start_failed);
        rig.seen.len = 0;
        usleep(5000);
        start_web(PB__PULL__E__unset);
        const struct seen *s = await(RUNTIME_START_FAILED);
        assert_int_equal(s->ev.reason, PB__REASON__E__runtime_unavailable);
        assert_non_null(strstr(s->message, "runtime not available"));
        listen_now(); /* it is back */
        rig.seen.len = 0;
        start_web(PB__PULL__E__unset);
        await(RUNTIME_STARTED);
}

/* ---- stopping ---- */

/* R: C34 */
static void a_stop_that_cannot_be_proved_is_tried_again(void **state)
{
        (void)state;
        must_open();
        start_web(PB__PULL__E__unset);
        await(RUNTIME_STARTED);
        hang_up();
        runtime_container.stop(rig.rt, "web", (struct unit_token){ 1, 5 }, 0);
        for (int64_t until = clock_mono_ns() / 1000000 + 300; clock_mono_ns() / 1000000 < until;) {
                struct timeval tick = { 0, 20000 };

                event_base_once(rig.base, -1, EV_TIMEOUT, on_nothing, NULL, &tick);
                event_base_loop(rig.base, EVLOOP_ONCE);
        }
        assert_int_equal(rig.seen.len, 1); /* nothing was said */
        says("GET /containers/0123456789abcdef", EXITED("137"));
        listen_now();
        const struct seen *s = await(RUNTIME_STOPPED);
        assert_true(s->ev.has_signal);
        assert_int_equal(s->ev.signal, SIGKILL);
}

/* R: C34 */
static void a_stop_does_not_touch_a_newer_copy(void **state)
{
        (void)state;
        must_open();
        says("GET /containers/json", LISTED("running")); /* token 1.5 */
        runtime_container.stop(rig.rt, "web", (struct unit_token){ 1, 4 }, 0);
        await(RUNTIME_STOPPED);
        assert_false(was_asked("/stop"));
}

/* ---- after a restart ---- */

/* R: C6 C34 */
static void what_runs_is_adopted_by_its_labels(void **state)
{
        struct err err = { 0 };

        (void)state;
        says("GET /containers/json", LISTED("running"));
        must_open();
        assert_int_equal(runtime_container.find(rig.rt, &err), 0);
        const struct seen *s = await(RUNTIME_FOUND_RUNNING);
        assert_int_equal(s->ev.token.seq, 5);
        assert_int_equal(rig.seen.len, 1);
        assert_false(was_asked("POST /containers"));
}

/* R: C6 */
static void what_ended_while_nobody_looked_is_found(void **state)
{
        struct err err = { 0 };

        (void)state;
        says("GET /containers/json", LISTED("exited"));
        says("GET /containers/0123456789abcdef", EXITED("9"));
        must_open();
        assert_int_equal(runtime_container.find(rig.rt, &err), 0);
        const struct seen *s = await(RUNTIME_FOUND_EXITED);
        assert_int_equal(s->ev.exit_code, 9);
}

/* Issue 5, D7: an engine that lists a container and cannot be asked how it ended. R: C6 C34 */
static void how_it_ended_is_unknown_until_the_engine_has_said_it(void **state)
{
        struct err err = { 0 };

        (void)state;
        says("GET /containers/json", LISTED("exited"));
        says("GET /containers/0123456789abcdef", EXITED("9"));
        says_once("GET /containers/0123456789abcdef",
                  "HTTP/1.1 500 Busy\r\nContent-Length: 0\r\n\r\n");
        must_open();
        assert_int_equal(runtime_container.find(rig.rt, &err), 0);
        const struct seen *s = await(RUNTIME_FOUND_RUNNING);
        assert_non_null(strstr(s->message, "presumed"));
        assert_int_equal(rig.seen.len, 1);
        s = await(RUNTIME_EXITED);
        assert_true(s->ev.has_exit_code);
        assert_int_equal(s->ev.exit_code, 9);
}

/* Issue 5, D7: nor is it known of a unit while one of its containers has not been looked at. R:
 * C6 */
static void a_unit_of_two_has_ended_when_both_were_looked_at(void **state)
{
        static const char two[] =
            OK("[{\"Id\":\"0123456789abcdef\",\"Names\":[\"/"
               "x\"],\"State\":\"exited\",\"Labels\":{\"berth.io/workload\":\"web\","
               "\"berth.io/cluster\":\"c1\",\"berth.io/token\":\"1.5\",\"berth.io/"
               "revision\":\"r1\",\"berth.io/part\":\"a\",\"berth.io/"
               "parts\":\"2\"}},"
               "{\"Id\":\"fedcba9876543210\",\"Names\":[\"/"
               "y\"],\"State\":\"exited\",\"Labels\":{\"berth.io/workload\":\"web\","
               "\"berth.io/cluster\":\"c1\",\"berth.io/token\":\"1.5\",\"berth.io/"
               "revision\":\"r1\",\"berth.io/part\":\"b\",\"berth.io/"
               "parts\":\"2\"}}]");
        struct err err = { 0 };

        (void)state;
        says("GET /containers/json", two);
        says("GET /containers/0123456789abcdef", EXITED("0"));
        says("GET /containers/fedcba9876543210", EXITED("7"));
        says_times("GET /containers/fedcba9876543210",
                   "HTTP/1.1 500 Busy\r\nContent-Length: 0\r\n\r\n", 2);
        must_open();
        assert_int_equal(runtime_container.find(rig.rt, &err), 0);
        await(RUNTIME_FOUND_RUNNING);
        assert_int_equal(await(RUNTIME_EXITED)->ev.exit_code, 7);
}

/* R: C34 */
static void without_the_engine_what_was_started_is_presumed_to_run(void **state)
{
        struct err err = { 0 };
        char mark[256];

        (void)state;
        must_open();
        start_web(PB__PULL__E__unset);
        await(RUNTIME_STARTED);
        runtime_container.close(rig.rt);
        rig.rt = NULL;
        array_clear(&rig.seen);
        hang_up();
        snprintf(mark, sizeof(mark), "%s/units/web/container.state", rig.dir);
        assert_true(file_exists(mark));
        must_open(); /* it offers nothing, but it knows that there may be something */
        assert_int_equal(runtime_container.types_now(rig.rt)[0], 0);
        assert_int_equal(runtime_container.find(rig.rt, &err), 0);
        assert_int_equal(await(RUNTIME_FOUND_RUNNING)->ev.token.seq, 5);
        says("GET /containers/json", LISTED("exited"));
        says("GET /containers/0123456789abcdef", EXITED("4"));
        listen_now();
        assert_int_equal(await(RUNTIME_EXITED)->ev.exit_code, 4);
}

/* ---- one engine, several agents ---- */

static void await_nothing_but(enum runtime_event_kind kind)
{
        await(kind);
        assert_int_equal(rig.seen.len, 1);
}

/* Issue 5, D2: an agent of another cluster with the same node id. R: C34 A13 */
static void containers_of_another_cluster_are_neither_found_nor_removed(void **state)
{
        struct err err = { 0 };

        (void)state;
        says("GET /containers/json", LISTED_OF_C2("running"));
        must_open();
        assert_int_equal(runtime_container.find(rig.rt, &err), 0);
        assert_int_equal(rig.seen.len, 0);
        runtime_container.stop(rig.rt, "web", (struct unit_token){ 1, 5 }, 0);
        await_nothing_but(RUNTIME_STOPPED);
        assert_false(was_asked("/stop"));
        rig.seen.len = 0;
        runtime_container.remove(rig.rt, "web");
        await_nothing_but(RUNTIME_REMOVED);
        rig.seen.len = 0;
        start_web(PB__PULL__E__unset);
        await(RUNTIME_STARTED);
        assert_false(was_asked("DELETE /containers/0123456789abcdef"));
}

/* Issue 5, D2. R: C34 */
static void names_of_two_clusters_differ(void **state)
{
        struct str one = STR_INIT, two = STR_INIT, before = STR_INIT;

        (void)state;
        container_name(&one, "c1", "n1", "web", NULL);
        container_name(&two, "c2", "n1", "web", NULL);
        container_name(&before, "", "n1", "web", NULL);
        assert_string_not_equal(str_c(&one), str_c(&two));
        assert_string_not_equal(str_c(&one), str_c(&before));
        str_fini(&one);
        str_fini(&two);
        str_fini(&before);
}

/* Issue 5, D2: `berth adopt` gives a node to another cluster; what it runs was made in the first
 * one's name. R: C33 C34 */
static void an_adopted_agent_keeps_the_containers_that_it_made(void **state)
{
        struct err err = { 0 };

        (void)state;
        must_open();
        rig.cluster = "c2";
        start_web(PB__PULL__E__unset);
        await(RUNTIME_STARTED);
        rig.cluster = "c1";
        runtime_container.close(rig.rt);
        rig.rt = NULL;
        array_clear(&rig.seen);
        says("GET /containers/json", LISTED_OF_C2("running"));
        must_open();
        assert_int_equal(runtime_container.find(rig.rt, &err), 0);
        assert_int_equal(await(RUNTIME_FOUND_RUNNING)->ev.token.seq, 5);
        says("GET /containers/0123456789abcdef", EXITED("0"));
        runtime_container.stop(rig.rt, "web", (struct unit_token){ 1, 5 }, 0);
        await(RUNTIME_STOPPED);
        runtime_container.remove(rig.rt, "web");
        await(RUNTIME_REMOVED);
        assert_true(was_asked("DELETE /containers/0123456789abcdef"));
}

/* Issue 5, D2: pods of a berth that gave them no label of their cluster, with a mark that names
 * none. R: A10 */
static void what_was_made_before_clusters_were_noted_is_known_by_its_mark(void **state)
{
        struct err err = { 0 };
        char mark[256];

        (void)state;
        says("GET /containers/json", LISTED_WITH("running", ""));
        must_open();
        assert_int_equal(runtime_container.find(rig.rt, &err), 0);
        assert_int_equal(rig.seen.len, 0);
        runtime_container.close(rig.rt);
        rig.rt = NULL;
        snprintf(mark, sizeof(mark), "%s/units/web", rig.dir);
        assert_int_equal(dir_make(mark, 0755, &err), 0);
        snprintf(mark, sizeof(mark), "%s/units/web/container.state", rig.dir);
        const char *text = fmt("1 5 0 1 %s r1\n", proc_boot_id());
        assert_int_equal(file_replace(mark, text, strlen(text), 0600, &err), 0);
        must_open();
        assert_int_equal(runtime_container.find(rig.rt, &err), 0);
        await_nothing_but(RUNTIME_FOUND_RUNNING);
}

/* ---- what is asked for ---- */

/* R: C6 */
static void the_definition_is_what_the_engine_is_asked_for(void **state)
{
        char *command[] = { "/bin/sh", "-c" }, *args[] = { "say \"hi\"" };
        Pb__Spec spec = PB__SPEC__INIT;
        Pb__Resources amounts = PB__RESOURCES__INIT;
        Pb__Port p1 = PB__PORT__INIT, p2 = PB__PORT__INIT, *ports[] = { &p1, &p2 };
        Pb__VolumeMount v = PB__VOLUME_MOUNT__INIT, *volumes[] = { &v };
        Pb__Spec__EnvEntry e = PB__SPEC__ENV_ENTRY__INIT, *env[] = { &e };
        struct container_def d = { .workload_id = "web",
                                   .node_id = "n1",
                                   .cluster_id = "c",
                                   .revision_id = "r",
                                   .part = "",
                                   .token = { 1, 2 },
                                   .n_parts = 1,
                                   .spec = &spec,
                                   .resources = &amounts,
                                   .log_max_kb = 100 };
        struct str out = STR_INIT;

        (void)state;
        spec.image = "i";
        spec.command = command;
        spec.n_command = 2;
        spec.args = args;
        spec.n_args = 1;
        p1.host_port = 8080;
        p2.host_port = 8081;
        p1.container_port = p2.container_port = 80;
        spec.ports = ports;
        spec.n_ports = 2;
        v.host_path = "/a";
        v.container_path = "/b";
        v.read_only = true;
        spec.volumes = volumes;
        spec.n_volumes = 1;
        e.key = "K";
        e.value = "v=1";
        spec.env = env;
        spec.n_env = 1;
        amounts.cpu = 250;
        amounts.memory_mb = 64;
        container_create_body(&out, &d);
        assert_string_equal(str_c(&out),
                            "{\"Image\":\"i\",\"Entrypoint\":[\"/bin/sh\",\"-c\"],\"Cmd\":[\"say "
                            "\\\"hi\\\"\"],\"Env\":[\"K=v=1\",\"BERTH_WORKLOAD_ID=web\","
                            "\"BERTH_NODE_ID=n1\",\"BERTH_REVISION=r\",\"BERTH_FENCING_TOKEN=1.2\"]"
                            ",\"Labels\":{\"berth.io/workload\":\"web\",\"berth.io/"
                            "node\":\"n1\",\"berth.io/token\":\"1.2\","
                            "\"berth.io/revision\":\"r\",\"berth.io/cluster\":\"c\",\"berth.io/"
                            "part\":\"\",\"berth.io/"
                            "parts\":\"1\"},\"ExposedPorts\":{\"80/"
                            "tcp\":{}},\"HostConfig\":{\"RestartPolicy\":{\"Name\":\"no\"},"
                            "\"LogConfig\":{\"Type\":\"json-file\","
                            "\"Config\":{\"max-size\":\"100k\"}},"
                            "\"NetworkMode\":\"bridge\",\"PortBindings\":{\"80/"
                            "tcp\":[{\"HostPort\":\"8080\"},{\"HostPort\":\"8081\"}]},"
                            "\"Mounts\":[{\"Type\":\"bind\",\"Source\":\"/a\",\"Target\":\"/"
                            "b\",\"ReadOnly\":true}],\"NanoCpus\":250000000,\"Memory\":67108864}}");
        str_clear(&out);
        image_query(&out, "registry:5000/shop");
        assert_string_equal(str_c(&out), "fromImage=registry:5000/shop&tag=latest");
        str_fini(&out);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(what_does_not_answer_like_an_engine_is_not_used,
                                                setup, teardown),
                cmocka_unit_test_setup_teardown(a_container_is_created_started_and_reported, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(a_pull_that_fails_has_the_registrys_sentence, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(an_image_that_must_be_here_is_not_pulled, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(
                    what_a_failed_start_made_is_removed_before_it_is_told, setup, teardown),
                cmocka_unit_test_setup_teardown(an_engine_that_is_away_fails_the_start_at_once,
                                                setup, teardown),
                cmocka_unit_test_setup_teardown(an_engine_that_stays_away_is_no_runtime_any_more,
                                                setup, teardown),
                cmocka_unit_test_setup_teardown(a_stop_that_cannot_be_proved_is_tried_again, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(a_stop_does_not_touch_a_newer_copy, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(what_runs_is_adopted_by_its_labels, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(what_ended_while_nobody_looked_is_found, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(
                    how_it_ended_is_unknown_until_the_engine_has_said_it, setup, teardown),
                cmocka_unit_test_setup_teardown(a_unit_of_two_has_ended_when_both_were_looked_at,
                                                setup, teardown),
                cmocka_unit_test_setup_teardown(
                    without_the_engine_what_was_started_is_presumed_to_run, setup, teardown),
                cmocka_unit_test_setup_teardown(
                    containers_of_another_cluster_are_neither_found_nor_removed, setup, teardown),
                cmocka_unit_test_setup_teardown(an_adopted_agent_keeps_the_containers_that_it_made,
                                                setup, teardown),
                cmocka_unit_test_setup_teardown(
                    what_was_made_before_clusters_were_noted_is_known_by_its_mark, setup, teardown),
                cmocka_unit_test(names_of_two_clusters_differ),
                cmocka_unit_test(the_definition_is_what_the_engine_is_asked_for),
        };
        signal(SIGPIPE, SIG_IGN);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
