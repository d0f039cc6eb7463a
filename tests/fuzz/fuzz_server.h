/* tests/fuzz/fuzz_server.h: a real server that wants a token, for targets that send it
 * something. */
#ifndef BERTH_TESTS_FUZZ_SERVER_H
#define BERTH_TESTS_FUZZ_SERVER_H

#include "fuzz.h"

/* Starts it; false: it runs already. It stops when the process ends. */
bool fuzz_server_start(void);
uint16_t fuzz_server_port(void);     /* of HTTP, on loopback */
const char *fuzz_server_grpc(void);  /* host:port */
const char *fuzz_server_admin(void); /* a token that may do everything */

/* A request with that token, which must succeed. */
void fuzz_ask(const char *method, const char *path, const char *body, struct str *out);
/* Adds what comes until the peer closes, is silent for so long, or has said `until` (NULL:
 * never). */
void fuzz_hear(int fd, int patience_ms, const char *until, struct str *out);

#endif
