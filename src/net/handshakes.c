/* net/handshakes.c: see handshakes.h.
 *
 * Invariants:
 *   (1) Every socket here is in `silent` (its event waits for the first bytes, or for the end of
 *       its time) or in `line`, never in both.
 *   (2) The turn's timer is armed exactly while the line is not empty.
 */
#include "net/handshakes.h"
#include "base/clock.h"
#include "base/mem.h"
#include "net/crowd.h"
#include <event2/event.h>
#include <event2/event_struct.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

struct greeter {
        struct handshakes *h;
        struct greeter *next, *prev;
        struct event event;
        struct sockaddr_storage peer;
        int64_t came_ns, spoke_ns;
        int fd;
};

struct list {
        struct greeter *first, *last;
};

struct handshakes {
        struct event_base *base;
        struct event *turn;
        struct crowd *crowd; /* may be NULL */
        int64_t timeout_ms;
        uint32_t n;
        struct list silent, line;
        void (*begin)(int fd, const struct sockaddr *peer, int64_t left_ms, void *ctx);
        void *ctx;
};

static void append(struct list *l, struct greeter *g)
{
        g->next = NULL;
        g->prev = l->last;
        if (l->last)
                l->last->next = g;
        else
                l->first = g;
        l->last = g;
}

static void take_out(struct list *l, struct greeter *g)
{
        if (g->prev)
                g->prev->next = g->next;
        else
                l->first = g->next;
        if (g->next)
                g->next->prev = g->prev;
        else
                l->last = g->prev;
}

/* Its socket, which is the caller's then. */
static int release(struct list *l, struct greeter *g)
{
        int fd = g->fd;
        take_out(l, g);
        event_del(&g->event);
        g->h->n--;
        mem_free(g);
        return fd;
}

static void close_one(struct list *l, struct greeter *g)
{
        struct crowd *crowd = g->h->crowd;
        if (crowd)
                crowd_leave(crowd, crowd_place(crowd, (struct sockaddr *)&g->peer));
        close(release(l, g));
}

static void close_list(struct list *l)
{
        while (l->first)
                close_one(l, l->first);
}

static void arm_turn(struct handshakes *h)
{
        struct timeval next_turn = { 0 };
        event_add(h->turn, &next_turn);
}

static void on_first_bytes(evutil_socket_t fd, short what, void *arg)
{
        struct greeter *g = arg;
        struct handshakes *h = g->h;

        if (what & EV_TIMEOUT) {
                (void)fd;
                close_one(&h->silent, g);
                return;
        }
        g->spoke_ns = clock_mono_ns();
        take_out(&h->silent, g);
        if (!h->line.first)
                arm_turn(h); /* (2) */
        append(&h->line, g);
}

/* Has the peer closed its side? Whoever waited too long for its turn did. */
static bool has_left(int fd)
{
        struct pollfd p = { .fd = fd, .events = POLLRDHUP };
        return poll(&p, 1, 0) > 0 && p.revents & (POLLRDHUP | POLLHUP | POLLERR);
}

static void on_turn(evutil_socket_t unused_fd, short what, void *arg)
{
        struct handshakes *h = arg;
        (void)unused_fd;
        (void)what;

        for (unsigned n = 0; n < HANDSHAKES_PER_TURN && h->line.first; n++) {
                struct greeter *g = h->line.first;
                struct sockaddr_storage peer = g->peer;
                int64_t left_ms = h->timeout_ms - (g->spoke_ns - g->came_ns) / 1000000;
                if (has_left(g->fd))
                        close_one(&h->line, g);
                else
                        h->begin(release(&h->line, g), (struct sockaddr *)&peer,
                                 left_ms > 1 ? left_ms : 1, h->ctx);
        }
        if (h->line.first)
                arm_turn(h);
}

struct handshakes *handshakes_create(struct event_base *base, int64_t timeout_ms,
                                     void (*begin)(int fd, const struct sockaddr *peer,
                                                   int64_t left_ms, void *ctx),
                                     void *ctx)
{
        struct handshakes *h = mem_must(sizeof(*h));

        *h = (struct handshakes){
                .base = base, .timeout_ms = timeout_ms, .begin = begin, .ctx = ctx
        };
        h->turn = evtimer_new(base, on_turn, h);
        if (!h->turn) {
                mem_free(h);
                return NULL;
        }
        return h;
}

void handshakes_count(struct handshakes *h, struct crowd *crowd)
{
        h->crowd = crowd;
}

void handshakes_close_all(struct handshakes *h)
{
        if (!h)
                return;
        close_list(&h->silent);
        close_list(&h->line);
        event_del(h->turn);
}

void handshakes_destroy(struct handshakes *h)
{
        if (!h)
                return;
        handshakes_close_all(h);
        event_free(h->turn);
        mem_free(h);
}

void handshakes_add(struct handshakes *h, int fd, const struct sockaddr *peer, int len)
{
        struct greeter *g = mem_must(sizeof(*g));
        struct timeval patience = { .tv_sec = (time_t)(h->timeout_ms / 1000),
                                    .tv_usec = (suseconds_t)(h->timeout_ms % 1000 * 1000) };

        *g = (struct greeter){ .h = h, .fd = fd, .came_ns = clock_mono_ns() };
        memcpy(&g->peer, peer, (size_t)len < sizeof(g->peer) ? (size_t)len : sizeof(g->peer));
        append(&h->silent, g);
        h->n++;
        if (event_assign(&g->event, h->base, fd, EV_READ, on_first_bytes, g) < 0 ||
            event_add(&g->event, &patience) < 0)
                close_one(&h->silent, g);
}

uint32_t handshakes_waiting(const struct handshakes *h)
{
        return h ? h->n : 0;
}
