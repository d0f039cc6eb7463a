/* cli/port.c: see port.h. */
#include "cli/port.h"
#include "base/file.h"
#include "base/str.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A bound socket, or -errno. */
static int bind_to(uint16_t port)
{
        struct sockaddr_in a = { .sin_family = AF_INET,
                                 .sin_port = htons(port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
        if (fd < 0)
                return -errno;
        /* connections in TIME_WAIT do not count */
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 1) < 0) {
                int errnum = errno;
                close(fd);
                return -errnum;
        }
        return fd;
}

/* The inode of a listening socket on this port, by the kernel's table. */
static unsigned long listening_inode(const char *table, uint16_t port)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        if (file_read(table, 16 << 20, &text, NULL) < 0)
                return 0;
        for (const char *line = str_c(&text); *line;) {
                unsigned local = 0, state = 0;
                unsigned long inode = 0;
                if (sscanf(line,
                           " %*u: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*x:%*x %*x:%*x %*x %*u "
                           "%*u %lu",
                           &local, &state, &inode) == 3 &&
                    local == port && state == 0x0a)
                        return inode;
                size_t len = strcspn(line, "\n");
                line += len + (line[len] == '\n');
        }
        return 0;
}

static bool holds_socket(const char *pid, unsigned long inode)
{
        char path[300], target[64], wanted[64];
        (void)snprintf(path, sizeof(path), "/proc/%s/fd", pid);
        (void)snprintf(wanted, sizeof(wanted), "socket:[%lu]", inode);
        DIR *dir = opendir(path);
        bool found = false;
        for (struct dirent *e; dir && !found && (e = readdir(dir));) {
                char link[600];
                (void)snprintf(link, sizeof(link), "%s/%s", path, e->d_name);
                ssize_t n = readlink(link, target, sizeof(target) - 1);
                if (n > 0) {
                        target[n] = '\0';
                        found = str_eq(target, wanted);
                }
        }
        if (dir)
                closedir(dir);
        return found;
}

const char *port_owner(uint16_t port, char *buf, size_t size)
{
        unsigned long inode = listening_inode("/proc/net/tcp", port);
        buf[0] = '\0';
        if (!inode)
                inode = listening_inode("/proc/net/tcp6", port);
        DIR *proc = inode ? opendir("/proc") : NULL;
        for (struct dirent *e; proc && (e = readdir(proc));) {
                if (!isdigit((unsigned char)e->d_name[0]) || !holds_socket(e->d_name, inode))
                        continue;
                _cleanup_(str_finip) struct str name = STR_INIT;
                (void)file_read(fmt("/proc/%s/comm", e->d_name), 64, &name, NULL);
                (void)snprintf(buf, size, "pid %s (%.*s)", e->d_name,
                               (int)strcspn(str_c(&name), "\n"), str_c(&name));
                break;
        }
        if (proc)
                closedir(proc);
        return buf;
}

int port_check(uint16_t port, const char *what, struct err *err)
{
        char owner[80];
        int fd = bind_to(port);
        if (fd >= 0) {
                close(fd);
                return 0;
        }
        if (fd == -EADDRINUSE)
                return err_set(err, ERR_CONFLICT, .msg = fmt("port %u (%s) is in use", port, what),
                               .detail = fmt("by %s", *port_owner(port, owner, sizeof(owner))
                                                          ? owner
                                                          : "another process"),
                               .hint = "--port picks another one, or end the process that has it");
        return err_sys(err, -fd, fmt("cannot listen on port %u", port));
}

int port_find_pair(uint16_t *ret_port, struct err *err)
{
        for (int tries = 0; tries < 100; tries++) {
                struct sockaddr_in a;
                socklen_t len = sizeof(a);
                int first = bind_to(0);
                if (first < 0)
                        return err_sys(err, -first, "cannot listen on any port");
                uint16_t port =
                    getsockname(first, (struct sockaddr *)&a, &len) == 0 ? ntohs(a.sin_port) : 0;
                int second = port && port < 65535 ? bind_to((uint16_t)(port + 1)) : -1;
                close(first);
                if (second < 0)
                        continue;
                close(second);
                *ret_port = port;
                return 0;
        }
        return err_set(err, ERR_UNAVAILABLE, .msg = "found no two neighbouring free ports");
}
