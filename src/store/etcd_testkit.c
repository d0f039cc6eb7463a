/* store/etcd_testkit.c: see etcd_testkit.h. */
#include "store/etcd_testkit.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/macros.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
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
        must(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && getsockname(fd, (struct sockaddr *)&a, &len) == 0,
             "a free port");
        close(fd);
        return ntohs(a.sin_port);
}

static bool answers(int port)
{
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        static const char request[] = "GET /health HTTP/1.0\r\n\r\n";
        char reply[1024];
        size_t got = 0;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct timeval tv = { .tv_sec = 2 };
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
        bool ok = connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && write(fd, request, sizeof(request) - 1) > 0;
        for (ssize_t n; ok && got < sizeof(reply) - 1 && (n = read(fd, reply + got, sizeof(reply) - 1 - got)) > 0;)
                got += (size_t)n;
        reply[got] = 0;
        close(fd);
        return ok && strstr(reply, "\"true\"");
}

static void exec_etcd(const struct etcd_process *e)
{
        char client[64], peer[64], cluster[96], data[600];
        snprintf(client, sizeof(client), "http://127.0.0.1:%d", e->port);
        snprintf(peer, sizeof(peer), "http://127.0.0.1:%d", e->peer_port);
        snprintf(cluster, sizeof(cluster), "default=%s", peer);
        snprintf(data, sizeof(data), "%s/data", e->dir);
        int log = open(fmt("%s/log", e->dir), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (log >= 0) {
                dup2(log, 1);
                dup2(log, 2);
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl("/usr/bin/etcd", "etcd", "--data-dir", data, "--listen-client-urls", client, "--advertise-client-urls", client,
              "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster, "--heartbeat-interval", "50",
              "--election-timeout", "500", "--unsafe-no-fsync", (char *)NULL);
        _exit(127);
}

void etcd_process_start(struct etcd_process *e)
{
        if (!e->dir[0]) {
                const char *tmp = getenv("TMPDIR");
                snprintf(e->dir, sizeof(e->dir), "%s/etcd-XXXXXX", tmp ? tmp : "/tmp");
                must(mkdtemp(e->dir) != NULL, "a temporary folder");
                e->port = free_port();
                e->peer_port = free_port();
        }
        e->pid = fork();
        must(e->pid >= 0, "fork");
        if (e->pid == 0)
                exec_etcd(e);
        int64_t end_ns = clock_mono_ns() + START_MS * 1000000LL;
        while (!answers(e->port)) {
                must(clock_mono_ns() < end_ns && waitpid(e->pid, NULL, WNOHANG) == 0, "etcd does not start: see its log");
                nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
        }
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
