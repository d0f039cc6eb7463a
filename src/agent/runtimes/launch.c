/* agent/runtimes/launch.c: see launch.h. */
#include "agent/runtimes/launch.h"
#include "agent/runtimes/cgroup.h"
#include "agent/runtimes/unit_user.h"
#include "base/array.h"
#include "model/powers.h"
#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum stage {
        STAGE_FILES = 1,
        STAGE_PROCESSES,
        STAGE_USER,
        STAGE_CAPABILITIES,
        STAGE_WORKDIR,
        STAGE_COMMAND
};
struct failure {
        int stage, errnum;
};

typedef ARRAY(char *) strings;

static void add_env(strings *env, const char *key, const char *value)
{
        size_t len = strlen(key);
        char *pair = mem_must(len + strlen(value) + 2);

        sprintf(pair, "%s=%s", key, value);
        for (size_t i = 0; i < env->len; i++)
                if (strncmp(env->at[i], key, len) == 0 && env->at[i][len] == '=') {
                        mem_free(env->at[i]);
                        env->at[i] = pair;
                        return;
                }
        *array_push(env) = pair;
}

static bool has_env(const strings *env, const char *key)
{
        size_t len = strlen(key);

        for (size_t i = 0; i < env->len; i++)
                if (strncmp(env->at[i], key, len) == 0 && env->at[i][len] == '=')
                        return true;
        return false;
}

static int find_user(const char *text, struct launch *l, struct passwd **ret_pw, struct err *err)
{
        int64_t number;
        struct passwd *pw;

        if (text[strspn(text, "0123456789")] == '\0') {
                if (str_parse_i64(text, &number) < 0 || number >= UINT32_MAX)
                        return err_set(err, ERR_FAILED,
                                       .msg = fmt("user %s is no user's number", text),
                                       .path = "spec.user", .detail = "the largest is 4294967294");
                pw = getpwuid((uid_t)number);
                l->uid = (uint32_t)number;
                l->gid = pw ? pw->pw_gid : (uint32_t)number;
        } else {
                pw = getpwnam(text);
                if (!pw)
                        return err_set(err, ERR_FAILED,
                                       .msg = fmt("user %s does not exist on this node", text),
                                       .path = "spec.user");
                l->uid = pw->pw_uid;
                l->gid = pw->pw_gid;
        }
        l->user_name = mem_strdup(text);
        l->login = pw ? mem_strdup(pw->pw_name) : NULL;
        *ret_pw = pw;
        return 0;
}

/* What the server and the agent have settled for a unit that is confined. ret_own: its number; 0:
 * it runs as whom it was told, or as the agent. */
static int find_own_user(const Pb__Spec *spec, const char *dir, struct launch *l, uint32_t *ret_own,
                         struct err *err)
{
        uint32_t own = str_empty(spec->user) ? unit_user_read(dir) : 0;

        *ret_own = 0;
        if (!str_empty(spec->user))
                return l->uid == 0 ? err_set(err, ERR_FAILED,
                                             .msg = fmt("user %s is root on this node", spec->user),
                                             .path = "spec.user",
                                             .hint = "the policy allows no root processes: "
                                                     "policy.root_processes in the server's "
                                                     "configuration")
                                   : 0;
        if (geteuid() != 0)
                return 0; /* it cannot be anybody else */
        if (!own)
                return err_set(err, ERR_FAILED, .msg = "the unit has no user of its own",
                               .detail = dir);
        l->uid = l->gid = *ret_own = own;
        l->user_name = mem_strdup(fmt("%u", own));
        return 0;
}

static int find_capabilities(const Pb__Spec *spec, struct launch *l, struct err *err)
{
        for (size_t i = 0; i < spec->n_capabilities; i++) {
                int number = capability_number(spec->capabilities[i]);

                if (number < 0)
                        return err_set(err, ERR_FAILED,
                                       .msg =
                                           fmt("there is no capability %s", spec->capabilities[i]),
                                       .path = "spec.capabilities",
                                       .hint = "name them one by one, without CAP_: NET_ADMIN");
                l->capabilities |= UINT64_C(1) << number;
        }
        return 0;
}

int launch_prepare(const Pb__PlanUnit *unit, const char *node_id, const char *dir,
                   const char *const *argv, struct launch *ret, struct err *err)
{
        const Pb__Spec *spec = unit->workload->spec;
        struct launch l = { 0 };
        strings args = { 0 }, env = { 0 };
        _cleanup_(str_finip) struct str mark = STR_INIT;
        struct passwd *pw = NULL;
        uint32_t own = 0;
        int r = 0;

        if (!argv && spec->n_command == 0)
                return err_set(err, ERR_FAILED, .msg = "the unit has no command",
                               .path = "spec.command");
        if (!str_empty(spec->user))
                r = find_user(spec->user, &l, &pw, err);
        else
                pw = getpwuid(geteuid());
        l.confine = unit->workload->confine;
        if (r == 0 && l.confine)
                r = find_own_user(spec, dir, &l, &own, err);
        if (r == 0)
                r = find_capabilities(spec, &l, err);
        if (r < 0) {
                launch_fini(&l);
                return r;
        }
        add_env(&env, "PATH", LAUNCH_PATH);
        add_env(&env, "HOME", own ? fmt("%s/home", dir) : pw && pw->pw_dir ? pw->pw_dir : "/");
        add_env(&env, "USER", own ? l.user_name : pw ? pw->pw_name : "");
        add_env(&env, "LOGNAME", own ? l.user_name : pw ? pw->pw_name : "");
        for (size_t i = 0; i < spec->n_env; i++)
                add_env(&env, spec->env[i]->key, spec->env[i]->value ? spec->env[i]->value : "");
        add_env(&env, "BERTH_WORKLOAD_ID", unit->unit_id);
        add_env(&env, "BERTH_NODE_ID", node_id);
        add_env(&env, "BERTH_REVISION",
                unit->workload->revision_id ? unit->workload->revision_id : "");
        /* For a resource that can refuse smaller ones than it has seen: the one protection that
         * needs no clock. */
        /* a definition from before the name was berth's: the user's own stays */
        if (!has_env(&env, "BERTH_FENCING_TOKEN"))
                add_env(&env, "BERTH_FENCING_TOKEN",
                        fmt("%llu.%llu", (unsigned long long)unit->token->epoch,
                            (unsigned long long)unit->token->seq));
        unit_mark(dir, (struct unit_token){ unit->token->epoch, unit->token->seq }, &mark);
        add_env(&env, "BERTH_UNIT", strchr(str_c(&mark), '=') + 1);
        for (size_t i = 0; i < env.len; i++)
                if (strncmp(env.at[i], "PATH=", 5) == 0)
                        l.path = env.at[i] + 5;
        *array_push(&env) = NULL;
        for (size_t i = 0; argv && argv[i]; i++)
                *array_push(&args) = mem_strdup(argv[i]);
        for (size_t i = 0; !argv && i < spec->n_command; i++)
                *array_push(&args) = mem_strdup(spec->command[i]);
        *array_push(&args) = NULL;
        l.argv = args.at;
        l.env = env.at;
        l.workdir = mem_strdup(str_empty(spec->workdir) ? "/" : spec->workdir);
        l.max_open_files = spec->max_open_files;
        l.max_processes = spec->max_processes;
        *ret = l;
        return 0;
}

const char *launch_env(const struct launch *l, const char *key)
{
        size_t len = strlen(key);

        for (char **p = l->env; p && *p; p++)
                if (strncmp(*p, key, len) == 0 && (*p)[len] == '=')
                        return *p + len + 1;
        return NULL;
}

void launch_set_env(struct launch *l, const char *key, const char *value)
{
        strings env = { 0 };

        for (char **p = l->env; p && *p; p++)
                *array_push(&env) = *p;
        mem_free(l->env);
        add_env(&env, key, value);
        *array_push(&env) = NULL;
        l->env = env.at;
}

void launch_fini(struct launch *l)
{
        for (char **p = l->argv; p && *p; p++)
                mem_free(*p);
        for (char **p = l->env; p && *p; p++)
                mem_free(*p);
        mem_free(l->argv);
        mem_free(l->env);
        mem_free(l->workdir);
        mem_free(l->user_name);
        mem_free(l->login);
        *l = (struct launch){ 0 };
}

static _noreturn_ void fail(int fd, enum stage stage)
{
        struct failure f = { stage, errno };
        ssize_t n = write(fd, &f, sizeof(f));

        (void)n;
        _exit(stage == STAGE_COMMAND && f.errnum == ENOENT ? 127 : 126);
}

static void become_user(const struct launch *l, int error_fd)
{
        if (!l->user_name)
                return;
        if (geteuid() == l->uid && getegid() == l->gid)
                return; /* already that one: no rights needed */
        if ((l->login ? initgroups(l->login, l->gid) : setgroups(0, NULL)) < 0 ||
            setgid(l->gid) < 0 || setuid(l->uid) < 0)
                fail(error_fd, STAGE_USER);
}

/* Before the user changes: what nobody below can get back. Without the right to do so there is
 * nothing to drop either. */
static void drop_capabilities(const struct launch *l)
{
        for (int cap = 0; cap < 64; cap++)
                if (!(l->capabilities & (UINT64_C(1) << cap)) &&
                    prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno == EINVAL)
                        break; /* the kernel knows no more */
}

/* After it: those of the spec stay across the exec of a plain program, as ambient ones. */
static void keep_capabilities(const struct launch *l, int error_fd)
{
        struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
        struct __user_cap_data_struct sets[2];

        for (int i = 0; i < 2; i++) {
                uint32_t bits = (uint32_t)(l->capabilities >> (32 * i));

                sets[i] = (struct __user_cap_data_struct){ bits, bits, bits };
        }
        if (syscall(SYS_capset, &head, sets) < 0)
                fail(error_fd, STAGE_CAPABILITIES);
        for (int cap = 0; cap < 64; cap++)
                if ((l->capabilities & (UINT64_C(1) << cap)) &&
                    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap, 0, 0) < 0)
                        fail(error_fd, STAGE_CAPABILITIES);
}

static void take_role(const struct launch *l, int error_fd)
{
        bool needs = l->capabilities && !(l->uid == 0 && !l->confine);

        if (l->confine)
                drop_capabilities(l);
        if (needs)
                (void)prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
        become_user(l, error_fd);
        if (needs)
                keep_capabilities(l, error_fd);
        if (l->confine && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                fail(error_fd, STAGE_CAPABILITIES);
}

void launch_exec(const struct launch *l, int error_fd)
{
        struct rlimit none = { 0, 0 };
        sigset_t empty;

        sigemptyset(&empty);
        for (int s = 1; s < NSIG; s++)
                if (s != SIGKILL && s != SIGSTOP)
                        signal(s, SIG_DFL);
        sigprocmask(SIG_SETMASK, &empty, NULL);
        if (l->cgroup[0])
                cgroup_enter(l->cgroup);
        setrlimit(RLIMIT_CORE, &none);
        if (l->max_open_files > 0) {
                struct rlimit files = { (rlim_t)l->max_open_files, (rlim_t)l->max_open_files };

                if (setrlimit(RLIMIT_NOFILE, &files) < 0)
                        fail(error_fd, STAGE_FILES);
        }
        if (l->max_processes > 0) {
                struct rlimit processes = { (rlim_t)l->max_processes, (rlim_t)l->max_processes };

                if (setrlimit(RLIMIT_NPROC, &processes) < 0)
                        fail(error_fd, STAGE_PROCESSES);
        }
        umask(022);
        take_role(l, error_fd);
        if (chdir(l->workdir) < 0)
                fail(error_fd, STAGE_WORKDIR);
        /* If whoever started this is killed, the kernel takes the command along. Credentials were
         * changed before: that clears it. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setenv("PATH", l->path ? l->path : LAUNCH_PATH, 1); /* where execvpe looks */
        execvpe(l->argv[0], l->argv, l->env);
        fail(error_fd, STAGE_COMMAND);
}

int launch_result(const struct launch *l, int error_fd, struct err *err)
{
        struct failure f;
        ssize_t n;

        do
                n = read(error_fd, &f, sizeof(f));
        while (n < 0 && errno == EINTR);
        if (n == 0)
                return 0; /* closed by a successful exec */
        if (n != (ssize_t)sizeof(f))
                return err_set(err, ERR_FAILED,
                               .msg =
                                   "the command's process ended before it could start the command");
        switch (f.stage) {
        case STAGE_FILES:
                return err_set(
                    err, ERR_FAILED,
                    .msg = fmt("cannot allow %lld open files", (long long)l->max_open_files),
                    .detail = strerror(f.errnum), .path = "spec.max_open_files");
        case STAGE_PROCESSES:
                return err_set(err, ERR_FAILED,
                               .msg =
                                   fmt("cannot allow %lld processes", (long long)l->max_processes),
                               .detail = strerror(f.errnum), .path = "spec.max_processes");
        case STAGE_USER:
                return err_set(
                    err, ERR_FAILED, .msg = fmt("cannot run as user %s", l->user_name),
                    .detail = strerror(f.errnum), .path = "spec.user",
                    .hint = "only an agent that runs as root can start units as other users");
        case STAGE_CAPABILITIES:
                return err_set(err, ERR_FAILED, .msg = "cannot have the capabilities of the spec",
                               .detail = strerror(f.errnum), .path = "spec.capabilities",
                               .hint = "only an agent that runs as root can give them");
        case STAGE_WORKDIR:
                return err_set(err, ERR_FAILED,
                               .msg = fmt("cannot use working directory %s", l->workdir),
                               .detail = strerror(f.errnum), .path = "spec.workdir");
        default:
                if (f.errnum == ENOENT)
                        return err_set(
                            err, ERR_FAILED, .msg = fmt("command not found: %s", l->argv[0]),
                            .detail = strchr(l->argv[0], '/')
                                          ? strerror(f.errnum)
                                          : fmt("looked in %s", l->path ? l->path : LAUNCH_PATH),
                            .path = "spec.command[0]");
                return err_set(err, ERR_FAILED, .msg = fmt("cannot run command %s", l->argv[0]),
                               .detail = strerror(f.errnum), .path = "spec.command[0]");
        }
}
