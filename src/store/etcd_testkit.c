/* store/etcd_testkit.c: see etcd_testkit.h. */
#include "store/etcd_testkit.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/macros.h"
#include "base/mem.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_MS 60000

bool etcd_is_installed(void)
{
        return access("/usr/bin/etcd", X_OK) == 0;
}

static int free_port(void)
{
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t len = sizeof(a);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        must(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 &&
                 getsockname(fd, (struct sockaddr *)&a, &len) == 0,
             "a free port");
        close(fd);
        return ntohs(a.sin_port);
}

static bool answers(int port)
{
        struct sockaddr_in a = { .sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        static const char request[] = "GET /health HTTP/1.0\r\n\r\n";
        char reply[1024];
        size_t got = 0;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct timeval tv = { .tv_sec = 2 };
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
        bool ok = connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 &&
                  write(fd, request, sizeof(request) - 1) > 0;
        for (ssize_t n; ok && got < sizeof(reply) - 1 &&
                        (n = read(fd, reply + got, sizeof(reply) - 1 - got)) > 0;)
                got += (size_t)n;
        reply[got] = 0;
        close(fd);
        return ok && strstr(reply, "\"true\"");
}

static const char *name_of(const struct etcd_process *e)
{
        return e->cluster[0] ? fmt("m%d", e->peer_port) : "default";
}

static void exec_etcd(const struct etcd_process *e)
{
        char client[64], peer[64], cluster[320], data[600], health[64];
        snprintf(client, sizeof(client), "%s://127.0.0.1:%d", e->tls ? "https" : "http", e->port);
        snprintf(peer, sizeof(peer), "http://127.0.0.1:%d", e->peer_port);
        snprintf(health, sizeof(health), "http://127.0.0.1:%d", e->health_port);
        snprintf(cluster, sizeof(cluster), "%s",
                 e->cluster[0] ? e->cluster : fmt("default=%s", peer));
        snprintf(data, sizeof(data), "%s/data", e->dir);
        int log = open(fmt("%s/log", e->dir), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (log >= 0) {
                dup2(log, 1);
                dup2(log, 2);
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        const char *argv[48] = { "etcd",     "--name",
                                 name_of(e), "--data-dir",
                                 data,       "--listen-client-urls",
                                 client,     "--advertise-client-urls",
                                 client,     "--listen-peer-urls",
                                 peer,       "--initial-advertise-peer-urls",
                                 peer,       "--initial-cluster",
                                 cluster,    "--listen-metrics-urls",
                                 health,     "--heartbeat-interval",
                                 "50",       "--election-timeout",
                                 "500",      "--unsafe-no-fsync" };
        size_t n = 0;
        while (argv[n])
                n++;
        for (size_t i = 0; i < ARRAY_LEN(e->extra) && e->extra[i]; i++)
                argv[n++] = e->extra[i];
        execv("/usr/bin/etcd", (char **)(uintptr_t)argv);
        _exit(127);
}

static void choose_ports(struct etcd_process *e)
{
        e->port = free_port();
        e->peer_port = free_port();
        e->health_port = free_port();
}

static void make_dir(struct etcd_process *e)
{
        const char *tmp = getenv("TMPDIR");
        if (e->dir[0])
                return;
        snprintf(e->dir, sizeof(e->dir), "%s/etcd-XXXXXX", tmp ? tmp : "/tmp");
        must(mkdtemp(e->dir) != NULL, "a temporary folder");
        choose_ports(e);
}

static void spawn(struct etcd_process *e)
{
        e->pid = fork();
        must(e->pid >= 0, "fork");
        if (e->pid == 0)
                exec_etcd(e);
}

/* false: it has ended. */
static bool comes_up(struct etcd_process *e)
{
        int64_t end_ns = clock_mono_ns() + START_MS * 1000000LL;
        while (!answers(e->health_port)) {
                must(clock_mono_ns() < end_ns, "etcd does not start: see its log");
                if (waitpid(e->pid, NULL, WNOHANG) != 0)
                        return false;
                nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
        }
        return true;
}

/* Between the moment at which a port is found free and the one at which etcd listens there somebody
 * else may have taken it. */
#define START_TRIES 5

void etcd_process_start(struct etcd_process *e)
{
        bool is_new = !e->dir[0];
        make_dir(e);
        spawn(e);
        for (int i = 1; !comes_up(e); i++) {
                must(is_new && i < START_TRIES, "etcd does not start: see its log");
                choose_ports(e);
                spawn(e);
        }
}

void etcd_process_pause(struct etcd_process *e)
{
        must(kill(e->pid, SIGSTOP) == 0, "etcd can be paused");
}

void etcd_process_resume(struct etcd_process *e)
{
        must(kill(e->pid, SIGCONT) == 0, "etcd can be resumed");
}

void etcd_cluster_start(struct etcd_process members[ETCD_MEMBERS])
{
        char cluster[256] = "";
        for (int i = 0; i < ETCD_MEMBERS; i++) {
                make_dir(&members[i]);
                size_t n = strlen(cluster);
                snprintf(cluster + n, sizeof(cluster) - n, "%sm%d=http://127.0.0.1:%d",
                         i ? "," : "", members[i].peer_port, members[i].peer_port);
        }
        for (int i = 0; i < ETCD_MEMBERS; i++) {
                snprintf(members[i].cluster, sizeof(members[i].cluster), "%s", cluster);
                spawn(&members[i]);
        }
        for (int i = 0; i < ETCD_MEMBERS; i++)
                must(comes_up(&members[i]), "a member of etcd does not start: see its log");
}

void etcd_cluster_clean(struct etcd_process members[ETCD_MEMBERS])
{
        for (int i = 0; i < ETCD_MEMBERS; i++)
                etcd_process_clean(&members[i]);
}

void etcd_process_kill(struct etcd_process *e)
{
        if (e->pid > 0) {
                kill(e->pid, SIGKILL);
                waitpid(e->pid, NULL, 0);
        }
        e->pid = 0;
}

void etcd_process_clean(struct etcd_process *e)
{
        etcd_process_kill(e);
        if (e->dir[0])
                (void)dir_remove(e->dir, NULL);
        e->dir[0] = 0;
}

/* ---- the proxy ---- */

#define PROXY_PAIRS 32

struct etcd_proxy {
        pthread_t thread;
        int listen_fd, port, to_port;
        _Atomic bool hold[2]; /* of requests, of answers */
        _Atomic bool cut, stop;
        struct {
                int fd[2]; /* to the client, to etcd; -1: free */
        } pairs[PROXY_PAIRS];
};

static void pair_close(struct etcd_proxy *p, size_t i)
{
        close(p->pairs[i].fd[0]);
        close(p->pairs[i].fd[1]);
        p->pairs[i].fd[0] = p->pairs[i].fd[1] = -1;
}

static void proxy_accept(struct etcd_proxy *p)
{
        struct sockaddr_in to = { .sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)p->to_port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        int client = accept4(p->listen_fd, NULL, NULL, SOCK_CLOEXEC),
            server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        for (size_t i = 0; client >= 0 && i < PROXY_PAIRS; i++)
                if (p->pairs[i].fd[0] < 0 &&
                    connect(server, (struct sockaddr *)&to, sizeof(to)) == 0) {
                        p->pairs[i].fd[0] = client;
                        p->pairs[i].fd[1] = server;
                        return;
                }
        if (client >= 0)
                close(client);
        close(server);
}

static bool forward(int from, int to)
{
        char buf[65536];
        ssize_t n = read(from, buf, sizeof(buf));
        for (ssize_t done = 0, m; done < n; done += m)
                if ((m = send(to, buf + done, (size_t)(n - done), MSG_NOSIGNAL)) < 0)
                        return false;
        return n > 0;
}

static void *proxy_run(void *ctx)
{
        struct etcd_proxy *p = ctx;
        while (!atomic_load(&p->stop)) {
                struct pollfd fds[1 + 2 * PROXY_PAIRS] = { { .fd = p->listen_fd,
                                                             .events = POLLIN } };
                bool cut = atomic_exchange(&p->cut, false);
                for (size_t i = 0; i < PROXY_PAIRS; i++) {
                        if (cut && p->pairs[i].fd[0] >= 0)
                                pair_close(p, i);
                        for (size_t side = 0; side < 2; side++)
                                fds[1 + 2 * i + side] =
                                    (struct pollfd){ .fd = atomic_load(&p->hold[side])
                                                               ? -1
                                                               : p->pairs[i].fd[side],
                                                     .events = POLLIN };
                }
                if (poll(fds, ARRAY_LEN(fds), 5) <= 0)
                        continue;
                for (size_t i = 0; i < PROXY_PAIRS; i++)
                        for (size_t side = 0; side < 2 && p->pairs[i].fd[0] >= 0; side++)
                                if (fds[1 + 2 * i + side].revents &&
                                    !forward(p->pairs[i].fd[side], p->pairs[i].fd[!side]))
                                        pair_close(p, i);
                if (fds[0].revents)
                        proxy_accept(p);
        }
        return NULL;
}

struct etcd_proxy *etcd_proxy_start(int to_port)
{
        struct etcd_proxy *p = mem_must(sizeof(*p));
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t len = sizeof(a);
        p->to_port = to_port;
        p->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        must(p->listen_fd >= 0 && bind(p->listen_fd, (struct sockaddr *)&a, sizeof(a)) == 0 &&
                 listen(p->listen_fd, 16) == 0 &&
                 getsockname(p->listen_fd, (struct sockaddr *)&a, &len) == 0,
             "a port for the proxy");
        p->port = ntohs(a.sin_port);
        for (size_t i = 0; i < PROXY_PAIRS; i++)
                p->pairs[i].fd[0] = p->pairs[i].fd[1] = -1;
        must(pthread_create(&p->thread, NULL, proxy_run, p) == 0, "a thread for the proxy");
        return p;
}

int etcd_proxy_port(const struct etcd_proxy *p)
{
        return p->port;
}

void etcd_proxy_hold(struct etcd_proxy *p, bool requests, bool answers)
{
        atomic_store(&p->hold[0], requests);
        atomic_store(&p->hold[1], answers);
}

void etcd_proxy_cut(struct etcd_proxy *p)
{
        atomic_store(&p->cut, true);
        while (atomic_load(&p->cut))
                nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

void etcd_proxy_stop(struct etcd_proxy *p)
{
        atomic_store(&p->stop, true);
        pthread_join(p->thread, NULL);
        for (size_t i = 0; i < PROXY_PAIRS; i++)
                if (p->pairs[i].fd[0] >= 0)
                        pair_close(p, i);
        close(p->listen_fd);
        mem_free(p);
}
