/* store/etcd_testkit.h: a real etcd for tests: one member on loopback, in a temporary folder, on ports that the kernel chose. */
#ifndef BERTH_STORE_ETCD_TESTKIT_H
#define BERTH_STORE_ETCD_TESTKIT_H

#include <stdbool.h>
#include <sys/types.h>

struct etcd_process {
        pid_t pid;
        int port, peer_port;
        char dir[512];
};

bool etcd_is_installed(void);
void etcd_process_start(struct etcd_process *e); /* until it answers; dir is made on the first start and kept over later ones */
void etcd_process_kill(struct etcd_process *e);  /* -9 */
void etcd_process_clean(struct etcd_process *e); /* and its data */

#endif
