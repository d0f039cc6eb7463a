/* agent/runtimes/cgroup.c: see cgroup.h.
 *
 * Where things are is read once per process from /proc/self/mountinfo and /proc/self/cgroup. After
 * that every operation is a loop over the places found; all of it is best effort, and what failed
 * is named.
 */
#include "agent/runtimes/cgroup.h"
#include "base/err.h"
#include "base/str.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 8 /* of groups that a unit makes below its own */

enum place { CPU, MEMORY, PIDS, FREEZER, UNIFIED, _PLACES };
static const char *const controllers[] = { "cpu", "memory", "pids", "freezer" };

static struct {
        bool known;
        char parent[_PLACES][1024]; /* the directory in which units get theirs; "": not usable */
} places;

static bool write_text(const char *path, const char *text)
{
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        bool ok;

        if (fd < 0)
                return false;
        ok = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
        close(fd);
        return ok;
}

static bool read_text(const char *path, char *buf, size_t size)
{
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n;

        if (fd < 0)
                return false;
        n = read(fd, buf, size - 1);
        close(fd);
        if (n < 0)
                return false;
        buf[n] = 0;
        return true;
}

static bool make_dir(const char *path)
{
        return mkdir(path, 0755) == 0 || errno == EEXIST;
}

/* The path of this process in the hierarchy of a controller; controller NULL: version 2. */
static bool own_path(const char *controller, char *ret, size_t size)
{
        char line[1024];
        FILE *f = fopen("/proc/self/cgroup", "re");
        bool found = false;

        if (!f)
                return false;
        while (!found && fgets(line, sizeof(line), f)) {
                char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL,
                     *save = NULL;

                if (!path)
                        continue;
                *path++ = 0;
                path[strcspn(path, "\n")] = 0;
                names++;
                if (!controller)
                        found = names[0] == 0;
                else
                        for (char *c = strtok_r(names, ",", &save); c && !found;
                             c = strtok_r(NULL, ",", &save))
                                found = str_eq(c, controller);
                if (found)
                        snprintf(ret, size, "%s", str_eq(path, "/") ? "" : path);
        }
        fclose(f);
        return found;
}

/* A version 2 parent with the controllers switched on for what is below it. */
static void use_unified(const char *mount)
{
        char own[400], path[1024], have[256] = "";

        if (!own_path(NULL, own, sizeof(own)))
                return;
        for (int tries = 0; tries < 2; tries++) {
                const char *below = tries == 0 ? "" : own;

                snprintf(path, sizeof(path), "%s%s/berth", mount, below);
                (void)write_text(fmt("%s%s/cgroup.subtree_control", mount, below),
                                 "+cpu +memory +pids");
                if (!make_dir(path))
                        continue;
                (void)write_text(fmt("%s/cgroup.subtree_control", path), "+cpu +memory +pids");
                snprintf(places.parent[UNIFIED], sizeof(places.parent[UNIFIED]), "%s", path);
                break;
        }
        if (!places.parent[UNIFIED][0] ||
            !read_text(fmt("%s/cgroup.subtree_control", places.parent[UNIFIED]), have,
                       sizeof(have)))
                return;
        for (int c = CPU; c <= PIDS; c++)
                if (strstr(have, controllers[c]))
                        snprintf(places.parent[c], sizeof(places.parent[c]), "%s",
                                 places.parent[UNIFIED]);
}

static void use_v1(enum place c, const char *mount)
{
        char own[400], path[1024];

        if (places.parent[c][0] || !own_path(controllers[c], own, sizeof(own)))
                return;
        snprintf(path, sizeof(path), "%s%s/berth", mount, own);
        if (make_dir(path) && access(path, W_OK) == 0)
                snprintf(places.parent[c], sizeof(places.parent[c]), "%s", path);
}

static void find_places(void)
{
        char line[2048];
        FILE *f;

        if (places.known)
                return;
        places.known = true;
        f = fopen("/proc/self/mountinfo", "re");
        if (!f)
                return;
        while (fgets(line, sizeof(line), f)) {
                char mount[512], *dash = strstr(line, " - "), type[64], options[512];

                if (!dash || sscanf(line, "%*d %*d %*s %*s %511s", mount) != 1 ||
                    sscanf(dash + 3, "%63s %*s %511s", type, options) != 2)
                        continue;
                if (str_eq(type, "cgroup2"))
                        use_unified(mount);
                else if (str_eq(type, "cgroup")) {
                        char *save = NULL;

                        for (char *o = strtok_r(options, ",", &save); o;
                             o = strtok_r(NULL, ",", &save))
                                for (int c = CPU; c <= FREEZER; c++)
                                        if (str_eq(o, controllers[c]))
                                                use_v1((enum place)c, mount);
                }
        }
        fclose(f);
}

static bool is_unified(enum place c)
{
        return places.parent[UNIFIED][0] && str_eq(places.parent[c], places.parent[UNIFIED]);
}

static bool set_cpu(const char *dir, int64_t milli, bool unified)
{
        int64_t shares = milli * 1024 / 1000;

        if (unified) { /* 1 core = weight 100, the default */
                int64_t weight = milli / 10;

                return write_text(fmt("%s/cpu.weight", dir),
                                  fmt("%" PRIi64, weight < 1       ? 1
                                                  : weight > 10000 ? 10000
                                                                   : weight));
        }
        return write_text(fmt("%s/cpu.shares", dir), fmt("%" PRIi64, shares < 2        ? 2
                                                                     : shares > 262144 ? 262144
                                                                                       : shares));
}

static bool set_memory(const char *dir, int64_t bytes, bool unified)
{
        const char *text = fmt("%" PRIi64, bytes);

        if (unified) {
                (void)write_text(fmt("%s/memory.swap.max", dir), "0");
                (void)write_text(fmt("%s/memory.oom.group", dir), "1");
                return write_text(fmt("%s/memory.max", dir), text);
        }
        if (!write_text(fmt("%s/memory.limit_in_bytes", dir), text))
                return false;
        (void)write_text(fmt("%s/memory.memsw.limit_in_bytes", dir), text);
        return true;
}

bool cgroup_make(const char *name, const struct cgroup_limits *limits,
                 char ret_missing[CGROUP_MISSING_LEN])
{
        const int64_t wanted[] = { limits->cpu_milli, limits->memory_bytes, limits->max_processes };
        bool any = false;

        ret_missing[0] = 0;
        find_places();
        for (int c = CPU; c < _PLACES; c++) {
                const char *dir = fmt("%s/%s", places.parent[c], name);
                bool made = places.parent[c][0] && make_dir(dir), ok = made;

                any = any || made;
                if (c > PIDS || !wanted[c])
                        continue;
                if (made && c == CPU)
                        ok = set_cpu(dir, wanted[c], is_unified(CPU));
                else if (made && c == MEMORY)
                        ok = set_memory(dir, wanted[c], is_unified(MEMORY));
                else if (made)
                        ok = write_text(fmt("%s/pids.max", dir), fmt("%" PRIi64, wanted[c]));
                if (!ok)
                        snprintf(ret_missing + strlen(ret_missing),
                                 CGROUP_MISSING_LEN - strlen(ret_missing), "%s%s",
                                 ret_missing[0] ? " " : "", controllers[c]);
        }
        return any;
}

void cgroup_enter(const char *name)
{
        find_places();
        for (int c = CPU; c < _PLACES; c++)
                if (places.parent[c][0])
                        (void)write_text(fmt("%s/%s/cgroup.procs", places.parent[c], name), "0");
}

bool cgroup_oom(const char *name)
{
        char text[1024], *at;

        find_places();
        if (!places.parent[MEMORY][0] ||
            !read_text(fmt("%s/%s/%s", places.parent[MEMORY], name,
                           is_unified(MEMORY) ? "memory.events" : "memory.oom_control"),
                       text, sizeof(text)))
                return false;
        at = strstr(text, "oom_kill ");
        return at && strtol(at + strlen("oom_kill "), NULL, 10) > 0;
}

/* The groups below one, depth first, then itself: visit() is called for each with its path. */
static bool walk(const char *path, int depth, bool (*visit)(const char *path, void *ctx), void *ctx)
{
        DIR *dir = opendir(path);
        bool whole = true;
        struct dirent *de;

        if (!dir)
                return errno == ENOENT;
        while (depth > 0 && (de = readdir(dir)))
                if (de->d_type == DT_DIR && de->d_name[0] != '.') {
                        _cleanup_(mem_freep) char *below =
                            mem_strdup(fmt("%s/%s", path, de->d_name));

                        whole = walk(below, depth - 1, visit, ctx) && whole;
                }
        closedir(dir);
        return visit(path, ctx) && whole;
}

/* The path is a copy: fmt() has few places, and a unit may have many groups. */
static bool walk_unit(int c, const char *name, bool (*visit)(const char *path, void *ctx),
                      void *ctx)
{
        _cleanup_(mem_freep) char *path = mem_strdup(fmt("%s/%s", places.parent[c], name));
        return walk(path, DEPTH_MAX, visit, ctx);
}

static bool add_processes(const char *path, void *ctx)
{
        pid_list *out = ctx;
        FILE *f = fopen(fmt("%s/cgroup.procs", path), "re");
        int pid;

        if (!f)
                return errno == ENOENT || errno == ENODEV;
        while (fscanf(f, "%d", &pid) == 1)
                if (pid > 0 && proc_start_time(pid))
                        *array_push(out) = pid;
        fclose(f);
        return true;
}

bool cgroup_processes(const char *name, pid_list *out)
{
        bool whole = true;

        if (!name[0])
                return true;
        find_places();
        for (int c = CPU; c < _PLACES; c++)
                if (places.parent[c][0] && (c == UNIFIED || !is_unified((enum place)c)))
                        whole = walk_unit(c, name, add_processes, out) && whole;
        return whole;
}

static bool remove_dir(const char *path, void *ctx)
{
        (void)ctx;
        /* the kernel lets go of the last process a moment after it was reaped */
        for (int tries = 0; tries < 50; tries++) {
                if (rmdir(path) == 0 || errno != EBUSY)
                        break;
                usleep(2000);
        }
        return true;
}

void cgroup_remove(const char *name)
{
        if (!name[0])
                return;
        find_places();
        for (int c = CPU; c < _PLACES; c++)
                if (places.parent[c][0] && (c == UNIFIED || !is_unified((enum place)c)))
                        (void)walk_unit(c, name, remove_dir, NULL);
}
