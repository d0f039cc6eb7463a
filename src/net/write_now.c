/* net/write_now.c: see write_now.h. */
#include "net/write_now.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <sys/socket.h>

void write_now_init(struct bufferevent *bev, bool is_tls)
{
        if (is_tls) {
                bufferevent_enable(bev, EV_READ | EV_WRITE);
                return;
        }
        bufferevent_disable(bev, EV_WRITE); /* on by default */
        bufferevent_enable(bev, EV_READ);
}

bool write_now(struct bufferevent *bev)
{
        struct evbuffer *out = bufferevent_get_output(bev);
        if (bufferevent_get_enabled(bev) & EV_WRITE)
                return evbuffer_get_length(out) == 0; /* TLS, or the loop is at it already */
        if (evbuffer_get_length(out) > 0) {
                /* A bufferevent keeps its output's front frozen except while it writes itself. */
                evbuffer_unfreeze(out, 1);
                evbuffer_write(out, bufferevent_getfd(bev));
                evbuffer_freeze(out, 1);
        }
        if (evbuffer_get_length(out) == 0)
                return true;
        bufferevent_enable(bev, EV_WRITE);
        return false;
}

bool write_bytes_now(struct bufferevent *bev, bool is_tls, const void *data, size_t len)
{
        bool direct = !is_tls && !(bufferevent_get_enabled(bev) & EV_WRITE) &&
                      evbuffer_get_length(bufferevent_get_output(bev)) == 0;
        ssize_t sent =
            direct ? send(bufferevent_getfd(bev), data, len, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
        if (sent == (ssize_t)len)
                return true;
        if (sent < 0)
                sent = 0; /* what is wrong comes out when the loop tries it */
        bufferevent_write(bev, (const char *)data + sent, len - (size_t)sent);
        return write_now(bev);
}

void write_later(struct bufferevent *bev)
{
        if (!(bufferevent_get_enabled(bev) & EV_WRITE) &&
            evbuffer_get_length(bufferevent_get_output(bev)) > 0)
                bufferevent_enable(bev, EV_WRITE);
}

void write_now_drained(struct bufferevent *bev, bool is_tls)
{
        if (!is_tls && evbuffer_get_length(bufferevent_get_output(bev)) == 0)
                bufferevent_disable(bev, EV_WRITE);
}
