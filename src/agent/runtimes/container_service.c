/* agent/runtimes/container_service.c: finding a container engine, starting podman's service if
 * there is none, and proving that it can run a container here.
 *
 * That a socket answers says little: on machines with tight limits (no CAP_SYS_RESOURCE, cgroups of
 * version 1, no network devices) podman creates containers and cannot start them. So a tiny
 * container is really run at the start of the agent, from a directory with this machine's own /usr.
 * If that fails with podman's own settings, settings for such machines are written below the
 * agent's data directory and tried; what was tried and what came of it is logged, word for word.
 *
 * All of this happens before the agent's loop begins; a service that ends later is started again
 * without waiting (service_watch).
 */
#include "agent/runtimes/container_state.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "model/json.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define SERVICE_MS 20000 /* how long podman's service may take to listen */
#define PROBE_MS 60000
#define SERVICE_AGAIN_MS 5000

/* ---- podman's service ---- */

static bool on_path(const char *program)
{
        const char *path = getenv("PATH");
        char *copy = mem_strdup(path && *path ? path : "/usr/sbin:/usr/bin:/sbin:/bin"),
             *save = NULL;
        bool found = false;

        for (char *dir = strtok_r(copy, ":", &save); dir && !found;
             dir = strtok_r(NULL, ":", &save))
                found = access(fmt("%s/%s", dir, program), X_OK) == 0;
        mem_free(copy);
        return found;
}

static _noreturn_ void become_service(const struct runtime *rt, const char *url, pid_t parent)
{
        const char *argv[16];
        int n = 0, null = open("/dev/null", O_RDWR),
            log = open(fmt("%s/podman/service.log", rt->data_dir), O_WRONLY | O_CREAT | O_TRUNC,
                       0600);
        sigset_t none;

        argv[n++] = "podman";
        if (rt->root) {
                argv[n++] = "--root";
                argv[n++] = rt->root;
        }
        if (rt->runroot) {
                argv[n++] = "--runroot";
                argv[n++] = rt->runroot;
                argv[n++] = "--tmpdir";
                argv[n++] = fmt("%s/libpod", rt->runroot);
        }
        argv[n++] = "system";
        argv[n++] = "service";
        argv[n++] = "--time=0";
        argv[n++] = url;
        argv[n] = NULL;
        if (rt->conf)
                setenv("CONTAINERS_CONF", rt->conf, 1);
        setsid();
        /* it serves this agent only; containers have their own monitors and live on */
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent)
                _exit(1);
        dup2(null, 0);
        dup2(log >= 0 ? log : null, 1);
        dup2(log >= 0 ? log : null, 2);
        syscall(SYS_close_range, 3, ~0U, 0);
        sigemptyset(&none);
        for (int s = 1; s < NSIG; s++)
                if (s != SIGKILL && s != SIGSTOP)
                        signal(s, SIG_DFL);
        sigprocmask(SIG_SETMASK, &none, NULL);
        execvp("podman", (char *const *)(uintptr_t)argv);
        _exit(127);
}

static int spawn_service(struct runtime *rt, struct err *err)
{
        _cleanup_(mem_freep) char *url = mem_strdup(fmt("unix://%s", rt->socket));
        pid_t parent = getpid();

        unlink(rt->socket);
        rt->service_tried_ms = clock_mono_ns() / 1000000;
        rt->service = fork();
        if (rt->service < 0) {
                rt->service = 0;
                return err_sys(err, errno, "cannot fork");
        }
        if (rt->service == 0)
                become_service(rt, url, parent);
        return 0;
}

static void end_service(struct runtime *rt)
{
        if (rt->service <= 0)
                return;
        kill(rt->service, SIGTERM);
        for (int i = 0; i < 500 && waitpid(rt->service, NULL, WNOHANG) == 0; i++) {
                if (i == 400)
                        kill(rt->service, SIGKILL);
                usleep(10000);
        }
        rt->service = 0;
}

static void add_service_log(const struct runtime *rt, struct err *err)
{
        _cleanup_(str_finip) struct str text = STR_INIT;

        if (file_read(fmt("%s/podman/service.log", rt->data_dir), 65536, &text, NULL) == 0 &&
            text.len) {
                const char *from = text.len > 300 ? str_c(&text) + text.len - 300 : str_c(&text);

                snprintf(err->detail, sizeof(err->detail), "podman says: %s", from);
        }
}

/* Waits until it listens; only at the start of the agent. */
static int start_service(struct runtime *rt, struct err *err)
{
        int64_t until = clock_mono_ns() / 1000000 + SERVICE_MS;
        int status = 0, r = spawn_service(rt, err);

        while (r == 0) {
                if (file_exists(rt->socket) && api_call_wait(rt->socket, "GET", "/_ping", NULL,
                                                             5000, &status, NULL, NULL) == 0)
                        return status == 200
                                   ? 0
                                   : err_set(err, ERR_UNAVAILABLE,
                                             .msg = fmt("podman's service answered %d to a ping",
                                                        status));
                if (waitpid(rt->service, NULL, WNOHANG) == rt->service) {
                        rt->service = 0;
                        r = err_set(err, ERR_UNAVAILABLE, .msg = "podman's service ended at once");
                } else if (clock_mono_ns() / 1000000 > until)
                        r = err_set(err, ERR_UNAVAILABLE,
                                    .msg = fmt("podman's service did not listen within %d s",
                                               SERVICE_MS / 1000));
                else
                        usleep(10000);
        }
        add_service_log(rt, err);
        end_service(rt);
        return r;
}

void service_watch(struct runtime *rt)
{
        struct err err = { 0 };
        int64_t now = clock_mono_ns() / 1000000;

        if (rt->service <= 0 || now - rt->service_tried_ms < SERVICE_AGAIN_MS ||
            waitpid(rt->service, NULL, WNOHANG) != rt->service)
                return;
        log_warn("podman's service has ended, starting it again");
        if (spawn_service(rt, &err) < 0)
                log_error("podman's service could not be started", LOG_E(&err));
}

void service_close(struct runtime *rt)
{
        end_service(rt);
}

/* ---- the probe ---- */

/* This machine's own files, read-only, as the container's. */
static void add_probe_mounts(struct str *body)
{
        static const char *const dirs[] = { "/usr", "/bin", "/lib", "/lib64" };
        bool first = true;

        for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
                if (!file_exists(dirs[i]))
                        continue;
                str_addf(body,
                         "%s{\"destination\":\"%s\",\"source\":\"%s\",\"type\":\"bind\","
                         "\"options\":[\"rbind\",\"ro\"]}",
                         first ? "" : ",", dirs[i], dirs[i]);
                first = false;
        }
}

static int ask(const struct runtime *rt, const char *method, const char *path, const char *body,
               int expected, struct err *err)
{
        _cleanup_(mem_freep) char *text = NULL;
        int status = 0,
            r = api_call_wait(rt->socket, method, path, body, PROBE_MS, &status, &text, err);

        if (r < 0 || status == expected)
                return r;
        return err_set(err, ERR_UNAVAILABLE,
                       .msg = api_problem(&(struct api_answer){
                           .status = status, .body = text, .len = strlen(text) }));
}

/* Runs true in a container of its own. */
static int probe_podman(struct runtime *rt, struct err *err)
{
        _cleanup_(mem_freep) char *dir = mem_strdup(fmt("%s/podman/probe", rt->data_dir)),
                                  *real = NULL, *answer = NULL;
        _cleanup_(str_finip) struct str body = STR_INIT, name = STR_INIT, path = STR_INIT;
        int status = 0, r = dir_make(dir, 0755, err);

        if (r < 0)
                return r;
        char *absolute = realpath(dir, NULL);
        real = mem_strdup(absolute ? absolute : dir);
        free(absolute);
        str_addf(&name, "berth-probe-%d", (int)getpid());
        str_addf(&body, "{\"name\":\"%s\",\"rootfs\":", str_c(&name));
        json_write_string(&body, real, strlen(real));
        str_adds(&body, ",\"command\":[\"/usr/bin/true\"],\"mounts\":[");
        add_probe_mounts(&body);
        str_adds(&body, "]}");
        r = ask(rt, "POST", "/v4.0.0/libpod/containers/create", str_c(&body), 201, err);
        if (r == 0) {
                str_addf(&path, "/v4.0.0/libpod/containers/%s/start", str_c(&name));
                r = ask(rt, "POST", str_c(&path), NULL, 204, err);
                str_clear(&path);
                str_addf(&path, "/v4.0.0/libpod/containers/%s/wait", str_c(&name));
                if (r == 0)
                        r = api_call_wait(rt->socket, "POST", str_c(&path), NULL, PROBE_MS, &status,
                                          &answer, err);
                if (r == 0 && (status != 200 || atoi(answer) != 0))
                        r = err_set(err, ERR_UNAVAILABLE,
                                    .msg = fmt("a test container ended with %s", answer));
                str_clear(&path);
                str_addf(&path, "/v4.0.0/libpod/containers/%s?force=true", str_c(&name));
                api_call_wait(rt->socket, "DELETE", str_c(&path), NULL, PROBE_MS, &status, NULL,
                              NULL);
        }
        dir_remove(dir, NULL);
        return r;
}

static int probe(struct runtime *rt, struct err *err)
{
        _cleanup_(mem_freep) char *body = NULL;
        struct arena memory = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        int status = 0, r;

        if (strlen(rt->socket) >= sizeof(((struct sockaddr_un *)0)->sun_path))
                return err_set(err, ERR_INVALID,
                               .msg = "the path of the container engine's socket is too long",
                               .detail = rt->socket);
        r = api_call_wait(rt->socket, "GET", "/version", NULL, PROBE_MS, &status, &body, err);
        if (r < 0)
                return r;
        if (status != 200 || json_read(&ct__version__descriptor, body, strlen(body), API_BODY_MAX,
                                       JSON_IGNORE_UNKNOWN, &memory, &m, NULL) < 0)
                r = err_set(err, ERR_UNAVAILABLE,
                            .msg = fmt("what listens at %s is no container engine", rt->socket),
                            .detail = fmt("it answered %d", status));
        else {
                mem_free(rt->version);
                rt->version = mem_strdup(((Ct__Version *)m)->version);
        }
        arena_fini(&memory);
        if (r == 0 && rt->is_podman)
                r = probe_podman(rt, err);
        return r;
}

/* ---- settings for restricted machines ---- */

static int write_conf(struct runtime *rt, struct err *err)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        struct rlimit files = { 1024, 1024 }, processes = { 4096, 4096 };
        unsigned long long n, p;

        getrlimit(RLIMIT_NOFILE, &files);
        getrlimit(RLIMIT_NPROC, &processes);
        n = files.rlim_max > 1048576 ? 1048576 : files.rlim_max;
        /* more is refused on some machines even below the limit */
        p = processes.rlim_max > 4096 ? 4096 : processes.rlim_max;
        str_adds(&text, "# Written by berth agent: podman's own settings did not work on this "
                        "machine.\n[containers]\n");
        str_addf(&text,
                 "default_ulimits = [\"nofile=%llu:%llu\",\"nproc=%llu:%llu\"]\nnetns = \"host\"\n",
                 n, n, p, p);
        str_addf(&text,
                 "[engine]\n%scgroup_manager = \"cgroupfs\"\nevents_logger = "
                 "\"file\"\nexit_command_delay = 10\n",
                 on_path("runc") ? "runtime = \"runc\"\n" : "");
        mem_free(rt->conf);
        rt->conf = mem_strdup(fmt("%s/podman/containers.conf", rt->data_dir));
        if (rt->conf[0] != '/') {
                char *absolute = realpath(rt->data_dir, NULL);

                mem_free(rt->conf);
                rt->conf = mem_strdup(fmt("%s/podman/containers.conf", absolute ? absolute : "."));
                free(absolute);
        }
        return file_write_atomic(rt->conf, str_c(&text), text.len, 0644, err);
}

/* Where our own service listens. A socket's path is short by nature. */
static void choose_socket(struct runtime *rt, const char *dir)
{
        char *absolute = realpath(dir, NULL);

        mem_free(rt->socket);
        rt->socket = mem_strdup(fmt("%s/podman.sock", absolute ? absolute : dir));
        free(absolute);
        if (strlen(rt->socket) < sizeof(((struct sockaddr_un *)0)->sun_path))
                return;
        mem_free(rt->socket);
        rt->socket = mem_strdup(
            fmt("/run/berth-%06x.sock", (unsigned)(hash64(dir, strlen(dir)) & 0xffffff)));
}

static int try_own(struct runtime *rt, struct err *err)
{
        int r = start_service(rt, err);

        if (r == 0 && (r = probe(rt, err)) < 0)
                end_service(rt);
        return r;
}

/* Our own service: with the settings that an earlier agent had to write here, or with podman's and
 * then with those for restricted machines. */
static int open_own(struct runtime *rt, struct err *err)
{
        _cleanup_(mem_freep) char *dir = mem_strdup(fmt("%s/podman", rt->data_dir));
        struct err first = { 0 }, second = { 0 };
        int r = dir_make(dir, 0700, err);

        if (r < 0)
                return r;
        if (!on_path("podman"))
                return err_set(err, ERR_NOT_FOUND, .msg = "podman is not installed",
                               .hint = "install podman, or name another engine with --runtime");
        choose_socket(rt, dir);
        /* somebody has chosen the settings: they are not ours to replace */
        if (getenv("CONTAINERS_CONF"))
                return try_own(rt, err);
        if (file_exists(fmt("%s/containers.conf", dir)) && write_conf(rt, err) == 0 &&
            try_own(rt, &second) == 0)
                return 0;
        mem_free(TAKE_PTR(rt->conf));
        if ((r = try_own(rt, &first)) == 0)
                return 0;
        log_warn("podman cannot run a container with its own settings, trying with settings for "
                 "restricted machines",
                 LOG_E(&first));
        if ((r = write_conf(rt, err)) < 0)
                return r;
        if ((r = try_own(rt, &second)) < 0) {
                unlink(rt->conf);
                return err_set(
                    err, ERR_UNAVAILABLE, .msg = first.msg,
                    .detail = fmt("with settings for restricted machines: %s", err_line(&second)));
        }
        log_info("containers work with settings for restricted machines: host network by default",
                 LOG_S("settings", rt->conf));
        return 0;
}

/* ---- which engine ---- */

static const char *docker_socket(void)
{
        const char *host = getenv("DOCKER_HOST");

        return host && str_starts(host, "unix://") ? host + strlen("unix://")
                                                   : "/var/run/docker.sock";
}

static int open_docker(struct runtime *rt, const struct container_options *opt, struct err *err)
{
        const char *host = getenv("DOCKER_HOST");

        if (str_empty(opt->socket) && host && !str_starts(host, "unix://"))
                return err_set(err, ERR_UNSUPPORTED,
                               .msg = "Docker is used by its unix socket only",
                               .detail = fmt("DOCKER_HOST is %s", host));
        mem_free(rt->socket);
        rt->socket = mem_strdup(!str_empty(opt->socket) ? opt->socket : docker_socket());
        return probe(rt, err);
}

static int open_podman(struct runtime *rt, const struct container_options *opt, struct err *err)
{
        static const char usual[] = "/run/podman/podman.sock";
        const char *given = str_starts(opt->socket ? opt->socket : "", "unix://")
                                ? opt->socket + strlen("unix://")
                                : opt->socket;
        struct err why = { 0 };

        rt->is_podman = true;
        if (!str_empty(given)) {
                mem_free(rt->socket);
                rt->socket = mem_strdup(given);
                return probe(rt, err);
        }
        if (!opt->root && !opt->runroot && access(usual, R_OK | W_OK) == 0) {
                mem_free(rt->socket);
                rt->socket = mem_strdup(usual);
                if (probe(rt, &why) == 0)
                        return 0;
                log_warn("podman's service does not work as it is, starting one of our own",
                         LOG_S("socket", usual), LOG_E(&why));
        }
        return open_own(rt, err);
}

static bool has_marks(const struct runtime *rt)
{
        DIR *dir = opendir(rt->units_dir);
        struct dirent *de;
        bool any = false;

        while (dir && !any && (de = readdir(dir)))
                any = de->d_name[0] != '.' &&
                      file_exists(fmt("%s/%s/container.state", rt->units_dir, de->d_name));
        if (dir)
                closedir(dir);
        return any;
}

/* 0 when an engine can be used, or when it cannot and units of an earlier agent may still be there:
 * then usable stays false. */
int service_open(struct runtime *rt, const struct container_options *opt, struct err *err)
{
        static const struct container_options none = { 0 };
        struct err why = { 0 };
        int r;

        if (!opt)
                opt = &none;
        if (!str_empty(opt->root))
                rt->root = mem_strdup(opt->root);
        if (!str_empty(opt->runroot))
                rt->runroot = mem_strdup(opt->runroot);
        rt->socket = mem_strdup("/run/podman/podman.sock");
        if (str_eq(opt->engine, "docker") || (str_empty(opt->engine) && str_empty(opt->socket) &&
                                              !on_path("podman") && file_exists(docker_socket())))
                r = open_docker(rt, opt, &why);
        else
                r = open_podman(rt, opt, &why);
        if (r == 0) {
                rt->usable = true;
                log_info("containers can be run",
                         LOG_S("engine", rt->is_podman ? "podman" : "docker"),
                         LOG_S("version", rt->version), LOG_S("socket", rt->socket));
                return 0;
        }
        snprintf(rt->why_not, sizeof(rt->why_not), "%s", err_line(&why));
        if (has_marks(rt)) {
                log_error("containers that an earlier agent started are presumed to run, but the "
                          "engine cannot be used",
                          LOG_E(&why));
                return 0;
        }
        if (err)
                *err = why;
        return r;
}
