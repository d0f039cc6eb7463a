/* cli/port.h: is a TCP port of this machine free, and if not, whose is it. */
#ifndef BERTH_CLI_PORT_H
#define BERTH_CLI_PORT_H

#include "base/err.h"

/* 0: 127.0.0.1:port can be listened on. -ERR_CONFLICT: it is in use, by the process in the detail
 * if that can be found out. */
int port_check(uint16_t port, const char *what, struct err *err);
/* Two neighbouring ports that are free at this moment; the first is returned. */
int port_find_pair(uint16_t *ret_port, struct err *err);
/* "pid 4711 (berth)"; "" if nobody can be named. */
const char *port_owner(uint16_t port, char *buf, size_t size);

#endif
