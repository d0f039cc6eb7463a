/* store/sqlite_lock.c: see the header for the why. */
#include "store/sqlite_lock.h"

#include "base/str.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* Every lock this process holds, for the child's side of a fork. */
static struct store_lock *held;
static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void fork_prepare(void)
{
        pthread_mutex_lock(&held_lock);
}
static void fork_parent(void)
{
        pthread_mutex_unlock(&held_lock);
}

static void fork_child(void)
{
        for (struct store_lock *l = held; l; l = l->next) {
                close(l->fd); /* not LOCK_UN: that would take the lock from the parent */
                l->fd = -1;
        }
        held = NULL;
        pthread_mutex_unlock(&held_lock);
}

static void watch_forks(void)
{
        pthread_atfork(fork_prepare, fork_parent, fork_child);
}

/* "pid 4711 (berth)", or "an unknown process" when the file does not say. */
static const char *holder(int fd)
{
        char text[32] = { 0 }, name[64] = { 0 };
        int64_t pid = 0;
        if (pread(fd, text, sizeof(text) - 1, 0) <= 0)
                return "held by an unknown process";
        text[strcspn(text, "\n")] = 0;
        if (str_parse_i64(text, &pid) < 0 || pid <= 0)
                return "held by an unknown process";
        FILE *f = fopen(fmt("/proc/%lld/comm", (long long)pid), "re");
        if (f) {
                if (!fgets(name, sizeof(name), f))
                        name[0] = 0;
                name[strcspn(name, "\n")] = 0;
                fclose(f);
        }
        return name[0] ? fmt("held by pid %lld (%s)", (long long)pid, name)
                       : fmt("held by pid %lld", (long long)pid);
}

int store_lock_take(struct store_lock *lock, const char *path, struct err *err)
{
        pthread_once(&fork_once, watch_forks);
        lock->fd = -1;
        pthread_mutex_lock(&held_lock); /* no fork between open and being on the list */
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600), r = 0;
        if (fd < 0) {
                r = err_sys(err, errno, fmt("cannot open the store's lock file %s", path));
        } else if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
                r = errno == EWOULDBLOCK
                        ? err_set(err, ERR_CONFLICT, .msg = "the store is in use",
                                  .detail = fmt("%s is %s", path, holder(fd)),
                                  .hint =
                                      "stop that process first; one server has a store at a time")
                        : err_sys(err, errno, fmt("cannot lock %s", path));
                close(fd);
        } else {
                const char *pid = fmt("%lld\n", (long long)getpid());
                ssize_t len = (ssize_t)strlen(pid);
                if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, (size_t)len, 0) != len)
                        (void)0; /* a full disk: the lock holds, only its holder stays unnamed */
                lock->fd = fd;
                lock->next = held;
                held = lock;
        }
        pthread_mutex_unlock(&held_lock);
        return r;
}

void store_lock_release(struct store_lock *lock)
{
        pthread_mutex_lock(&held_lock);
        for (struct store_lock **l = &held; *l; l = &(*l)->next) {
                if (*l == lock) {
                        *l = lock->next;
                        break;
                }
        }
        if (lock->fd >= 0) {
                flock(lock->fd,
                      /* a child that was just forked may not have closed its copy yet: closing ours
                       * would not be enough */
                      LOCK_UN);
                close(lock->fd);
        }
        lock->fd = -1;
        pthread_mutex_unlock(&held_lock);
}
