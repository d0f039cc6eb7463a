/* tests/fuzz/fuzz.h: what the fuzz targets share. Each target is one function over bytes; besides
 * the sanitizers' own findings it checks a property with MUST(), whose failure is a crash with a
 * message. */
#ifndef BERTH_TESTS_FUZZ_H
#define BERTH_TESTS_FUZZ_H

#include "api.pb-c.h"
#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "model/canon.h"
#include "model/json.h"
#include "model/manifest.h"
#include "model/pb.h"
#include "model/selector.h"
#include "model/validate.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MUST(condition, ...)                                                                       \
        do {                                                                                       \
                if (!(condition)) {                                                                \
                        fprintf(stderr, "%s:%d: %s does not hold: ", __FILE__, __LINE__,           \
                                #condition);                                                       \
                        fprintf(stderr, __VA_ARGS__);                                              \
                        fputc('\n', stderr);                                                       \
                        abort();                                                                   \
                }                                                                                  \
        } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A connection to a server on this machine. Other programs may have used up its ports for a moment,
 * and libFuzzer's clock may interrupt it. */
static inline int fuzz_dial(uint16_t port)
{
        static const struct linger reset = { .l_onoff = 1 }; /* no TIME_WAIT: ports would run out */
        struct sockaddr_in sa = { .sin_family = AF_INET,
                                  .sin_addr = { htonl(INADDR_LOOPBACK) },
                                  .sin_port = htons(port) };
        for (unsigned tries = 0;; tries++) {
                int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
                if (fd >= 0 && connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0) {
                        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
                        return fd;
                }
                MUST(fd >= 0 && (errno == EADDRNOTAVAIL || errno == EINTR) && tries < 1000,
                     "the server takes connections: %s", strerror(errno));
                close(fd);
                usleep(10000);
        }
}

/* An error is never empty: a caller could not act on it. */
static inline void must_explain(const struct err *err)
{
        MUST(err->code != ERR_OK, "failed without a code");
        MUST(err->msg[0] != 0, "failed without a message");
}

#endif
