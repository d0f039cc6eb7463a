/* store/etcd_testkit.h: a real etcd for tests: one member or three on loopback, in temporary
 * folders, on ports that the kernel chose. */
#ifndef BERTH_STORE_ETCD_TESTKIT_H
#define BERTH_STORE_ETCD_TESTKIT_H

#include <stdbool.h>
#include <sys/types.h>

struct etcd_process {
        pid_t pid;
        int port, peer_port, health_port;
        char dir[512];
        /* set before the first start: */
        const char *extra[16]; /* more arguments */
        bool tls;              /* clients come by TLS; the arguments say with what */
        char cluster[256];     /* --initial-cluster; empty: alone */
};

#define ETCD_MEMBERS 3

bool etcd_is_installed(void);
/* until it answers; dir is made on the first start and kept over later ones */
void etcd_process_start(struct etcd_process *e);
void etcd_process_kill(struct etcd_process *e);  /* -9 */
void etcd_process_clean(struct etcd_process *e); /* and its data */
void etcd_process_pause(struct etcd_process *e); /* it holds its connections and says nothing */
void etcd_process_resume(struct etcd_process *e);
void etcd_cluster_start(struct etcd_process members[ETCD_MEMBERS]);
void etcd_cluster_clean(struct etcd_process members[ETCD_MEMBERS]);

/* A TCP proxy before a member, for faults on command. Its thread forwards until
 * etcd_proxy_stop(). */
struct etcd_proxy;
struct etcd_proxy *etcd_proxy_start(int to_port);
int etcd_proxy_port(const struct etcd_proxy *p);
/* what is held back is kept, and goes on later */
void etcd_proxy_hold(struct etcd_proxy *p, bool requests, bool answers);
/* all connections, with what is held back */
void etcd_proxy_cut(struct etcd_proxy *p);
void etcd_proxy_stop(struct etcd_proxy *p);

#endif
