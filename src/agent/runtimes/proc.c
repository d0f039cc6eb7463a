/* agent/runtimes/proc.c: see proc.h. */
#include "agent/runtimes/proc.h"
#include "base/str.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ENVIRON_MAX (512 * 1024)
#define TREE_DEPTH_MAX 64
#define PID_RESERVE 1024 /* the kernel starts again at 300, and may skip a few */

const char *proc_boot_id(void)
{
        static char id[BOOT_ID_LEN + 1];
        int fd;

        if (id[0])
                return id;
        fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return "";
        if (read(fd, id, BOOT_ID_LEN) != BOOT_ID_LEN)
                id[0] = 0;
        close(fd);
        return id;
}

struct stat_line {
        char state;
        pid_t ppid, session;
        uint64_t start, ticks, rss_pages;
};

/* -1 with errno; ENOENT and ESRCH: no such process. */
static int read_stat(pid_t pid, struct stat_line *ret)
{
        char path[64], buf[1024], *p;
        long ppid = 0, session = 0;
        unsigned long long start = 0, cpu[4] = { 0 };
        long long rss = 0;
        ssize_t n;
        int fd;

        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return -1;
        n = read(fd, buf, sizeof(buf) - 1);
        int saved = n < 0 ? errno : EIO;
        close(fd);
        errno = saved;
        if (n <= 0)
                return -1;
        buf[n] = 0;
        p = strrchr(buf, ')'); /* the name may hold anything, also blanks and brackets */
        if (!p || sscanf(p + 1,
                         " %c %ld %*d %ld %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu %llu %*d %*d "
                         "%*d %*d %llu %*u %lld",
                         &ret->state, &ppid, &session, &cpu[0], &cpu[1], &cpu[2], &cpu[3], &start,
                         &rss) != 9)
                return -1;
        /* its own, and that of the children that it has reaped */
        ret->ticks = cpu[0] + cpu[1] + cpu[2] + cpu[3];
        ret->rss_pages = rss > 0 ? (uint64_t)rss : 0;
        ret->ppid = (pid_t)ppid;
        ret->session = (pid_t)session;
        ret->start = start;
        return 0;
}

static bool no_such_process(int errnum)
{
        return errnum == ENOENT || errnum == ESRCH;
}

enum proc_look proc_look(pid_t pid, uint64_t start)
{
        struct stat_line s;

        if (pid <= 0)
                return PROC_GONE;
        if (read_stat(pid, &s) < 0)
                return no_such_process(errno) ? PROC_GONE : PROC_UNKNOWN;
        return s.state == 'Z' || s.state == 'X' || s.start != start ? PROC_GONE : PROC_THERE;
}

/* A number behind a name at the beginning of a line; 0: none. */
static uint64_t number_in(const char *path, const char *name)
{
        char line[256];
        unsigned long long n = 0;
        FILE *f = fopen(path, "re");
        size_t len = strlen(name);

        while (f && fgets(line, sizeof(line), f))
                if (strncmp(line, name, len) == 0 && sscanf(line + len, " %llu", &n) == 1)
                        break;
        if (f)
                fclose(f);
        return n;
}

uint64_t proc_forks(void)
{
        return number_in("/proc/stat", "processes");
}

uint64_t proc_start_time(pid_t pid)
{
        struct stat_line s;

        if (pid <= 0 || read_stat(pid, &s) < 0 || s.state == 'Z' || s.state == 'X')
                return 0;
        return s.start;
}

/* Appends the numeric entries of /proc. */
static bool all_pids(pid_list *out)
{
        DIR *dir = opendir("/proc");
        struct dirent *de;

        if (!dir)
                return false;
        while ((de = readdir(dir)))
                if (isdigit((unsigned char)de->d_name[0]))
                        *array_push(out) = (pid_t)strtol(de->d_name, NULL, 10);
        closedir(dir);
        return true;
}

/* Direct children by the kernel's own list. -1: it has none (not configured), or could not be read.
 * Only the main thread's children: units fork from wherever they like, so every thread is asked. */
static int children_of(pid_t pid, pid_list *out)
{
        char path[96];
        DIR *tasks;
        struct dirent *de;
        int asked = 0;

        snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
        tasks = opendir(path);
        if (!tasks)
                return no_such_process(errno) ? 0 : -1; /* ended meanwhile */
        while ((de = readdir(tasks))) {
                FILE *f;
                int child;

                if (!isdigit((unsigned char)de->d_name[0]))
                        continue;
                snprintf(path, sizeof(path), "/proc/%d/task/%.16s/children", (int)pid, de->d_name);
                f = fopen(path, "re");
                if (!f)
                        continue;
                asked++;
                while (fscanf(f, "%d", &child) == 1)
                        *array_push(out) = child;
                fclose(f);
        }
        closedir(tasks);
        return asked ? 0 : -1;
}

static bool has_pid(const pid_list *list, pid_t pid)
{
        for (size_t i = 0; i < list->len; i++)
                if (list->at[i] == pid)
                        return true;
        return false;
}

static bool descendants_by_scan(pid_t pid, pid_list *out)
{
        pid_list all = { 0 }, found = { 0 };
        bool whole = all_pids(&all), more = true;

        *array_push(&found) = pid;
        while (more) { /* ends: found only grows, and is no larger than all */
                more = false;
                for (size_t i = 0; i < all.len; i++) {
                        struct stat_line s;

                        if (has_pid(&found, all.at[i]))
                                continue;
                        if (read_stat(all.at[i], &s) < 0) {
                                whole = whole && no_such_process(errno);
                                continue;
                        }
                        if (!has_pid(&found, s.ppid))
                                continue;
                        *array_push(&found) = all.at[i];
                        more = true;
                }
        }
        for (size_t i = 1; i < found.len; i++)
                *array_push(out) = found.at[i];
        array_fini(&all);
        array_fini(&found);
        return whole;
}

bool proc_descendants(pid_t pid, pid_list *out)
{
        size_t at = out->len, kept = out->len;
        bool whole = true;

        if (access("/proc/self/task", R_OK) < 0 || children_of(pid, out) < 0) {
                out->len = at;
                whole = descendants_by_scan(pid, out);
        } else {
                for (size_t i = at; i < out->len; i++)
                        whole = children_of(out->at[i], out) == 0 && whole;
        }
        for (size_t i = at; i < out->len; i++)
                if (proc_start_time(out->at[i]) != 0)
                        out->at[kept++] = out->at[i];
        out->len = kept;
        return whole;
}

/* What belongs to another user can be hidden: that is not one of ours then. */
static enum proc_look has_mark(pid_t pid, const char *mark, char *env)
{
        char path[64];
        size_t len = strlen(mark), n = 0;
        int fd;

        snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return no_such_process(errno) || errno == EACCES || errno == EPERM ? PROC_GONE
                                                                                   : PROC_UNKNOWN;
        while (n < ENVIRON_MAX) {
                ssize_t got = read(fd, env + n, ENVIRON_MAX - n);

                if (got <= 0)
                        break;
                n += (size_t)got;
        }
        close(fd);
        env[n] = 0;
        for (size_t i = 0; i + len <= n; i += strlen(env + i) + 1)
                if (strcmp(env + i, mark) == 0)
                        return PROC_THERE;
        return PROC_GONE;
}

/* Is the number of this session still, or only, ours? */
static bool session_is_ours(const struct proc_session *session)
{
        uint64_t numbers = number_in("/proc/sys/kernel/pid_max", ""), forks = proc_forks();
        struct stat_line s;

        if (session->leader <= 0 || session->start == 0)
                return false;
        if (read_stat(session->leader, &s) == 0)
                return s.start == session->start;
        return numbers > PID_RESERVE && forks > 0 && forks - session->forks < numbers - PID_RESERVE;
}

bool proc_marked(const struct proc_session *session, const char *mark, pid_list *out)
{
        pid_list all = { 0 };
        char *env = mem_must(ENVIRON_MAX + 1);
        bool ours = session_is_ours(session), whole = all_pids(&all);

        for (size_t i = 0; i < all.len; i++) {
                enum proc_look marked = PROC_THERE;
                struct stat_line s;

                if (all.at[i] == getpid())
                        continue;
                if (read_stat(all.at[i], &s) < 0) {
                        whole = whole && no_such_process(errno);
                        continue;
                }
                if (s.state == 'Z' || s.state == 'X')
                        continue;
                if (!ours || s.session != session->leader)
                        marked = has_mark(all.at[i], mark, env);
                whole = whole && marked != PROC_UNKNOWN;
                if (marked == PROC_THERE)
                        *array_push(out) = all.at[i];
        }
        mem_free(env);
        array_fini(&all);
        return whole;
}

/* ---- what is used ---- */

struct using
{
        pid_t pid, ppid;
        uint64_t ticks, rss_pages;
};

static int by_pid(const void *a, const void *b)
{
        pid_t x = ((const struct using *)a)->pid, y = ((const struct using *)b)->pid;

        return x < y ? -1 : x > y;
}

static int root_by_pid(const void *a, const void *b)
{
        pid_t x = ((const struct proc_use *)a)->pid, y = ((const struct proc_use *)b)->pid;

        return x < y ? -1 : x > y;
}

/* The root that a process is, or is below. */
static struct proc_use *root_of(struct proc_use *roots, size_t n, const struct using *all,
                                size_t n_all, const struct using *u)
{
        for (int depth = 0; u && depth < TREE_DEPTH_MAX; depth++) {
                struct proc_use key = { .pid = u->pid },
                                *root = bsearch(&key, roots, n, sizeof(*roots), root_by_pid);
                struct using parent = { .pid = u->ppid };

                if (root)
                        return root;
                u = bsearch(&parent, all, n_all, sizeof(*all), by_pid);
        }
        return NULL;
}

bool proc_use(struct proc_use *roots, size_t n)
{
        pid_list pids = { 0 };
        ARRAY(struct using) all = { 0 };
        uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
        bool whole = all_pids(&pids);

        for (size_t i = 0; i < pids.len; i++) {
                struct stat_line s;

                if (read_stat(pids.at[i], &s) == 0)
                        *array_push(&all) =
                            (struct using){ pids.at[i], s.ppid, s.ticks, s.rss_pages };
                else
                        whole = whole && no_such_process(errno);
        }
        if (all.len > 1)
                qsort(all.at, all.len, sizeof(all.at[0]), by_pid);
        for (size_t i = 0; i < all.len && n > 0; i++) {
                struct proc_use *root = root_of(roots, n, all.at, all.len, &all.at[i]);

                if (!root)
                        continue;
                root->ticks += all.at[i].ticks;
                if (all.at[i].pid != root->pid || !root->without_memory)
                        root->rss_bytes += all.at[i].rss_pages * page;
        }
        array_fini(&pids);
        array_fini(&all);
        return whole;
}

int pidfd_open_for(pid_t pid)
{
        return (int)syscall(SYS_pidfd_open, pid, 0);
}

int pidfd_signal(int pidfd, int signal, int value)
{
        siginfo_t info = { 0 };

        info.si_signo = signal;
        info.si_code = SI_QUEUE;
        info.si_pid = getpid();
        info.si_uid = getuid();
        info.si_value.sival_int = value;
        return (int)syscall(SYS_pidfd_send_signal, pidfd, signal, &info, 0);
}
