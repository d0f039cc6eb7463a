/* net/handshakes_test.c: a crowd of newcomers, turn by turn. R: A11 */
#include "net/crowd.h"
#include "net/handshakes.h"
#include <errno.h>
#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

enum { CROWD = 30 };

struct rig {
        struct event_base *base;
        struct handshakes *h;
        struct crowd crowd;
        int ours[CROWD], theirs[CROWD]; /* our end is what was accepted */
        int begun[CROWD], n_begun;
        int64_t left_ms;
};

static void begin(int fd, const struct sockaddr *peer, int64_t left_ms, void *ctx)
{
        struct rig *r = ctx;
        assert_int_equal(peer->sa_family, AF_UNIX);
        r->begun[r->n_begun++] = fd;
        r->left_ms = left_ms;
}

static void rig_start(struct rig *r, int64_t timeout_ms, int crowd)
{
        *r = (struct rig){ .base = event_base_new() };
        r->h = handshakes_create(r->base, timeout_ms, begin, r);
        assert_non_null(r->h);
        crowd_init(&r->crowd, CROWD);
        handshakes_count(r->h, &r->crowd);
        for (int i = 0; i < crowd; i++) {
                int pair[2];
                struct sockaddr peer = { .sa_family = AF_UNIX };
                assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
                r->ours[i] = pair[0];
                r->theirs[i] = pair[1];
                assert_true(crowd_enter(&r->crowd, crowd_place(&r->crowd, &peer)));
                handshakes_add(r->h, pair[0], &peer, sizeof(peer));
        }
        assert_int_equal(handshakes_waiting(r->h), crowd);
}

static void rig_stop(struct rig *r, int crowd)
{
        handshakes_destroy(r->h);
        /* who has begun is counted by others from then on; nobody else is left */
        assert_int_equal(
            r->crowd.n[crowd_place(&r->crowd, &(struct sockaddr){ .sa_family = AF_UNIX })],
            r->n_begun);
        for (int i = 0; i < r->n_begun; i++)
                close(r->begun[i]);
        for (int i = 0; i < crowd; i++)
                close(r->theirs[i]);
        event_base_free(r->base);
}

static void speak(struct rig *r, int i)
{
        assert_int_equal(write(r->theirs[i], "x", 1), 1);
}

static int turn(struct rig *r)
{
        int before = r->n_begun;
        event_base_loop(r->base, EVLOOP_NONBLOCK | EVLOOP_ONCE);
        return r->n_begun - before;
}

/* True when our end was closed, by whoever had it. */
static bool is_closed(const struct rig *r, int i)
{
        char c;
        ssize_t n = recv(r->theirs[i], &c, 1, MSG_DONTWAIT);
        return n == 0 || (n < 0 && errno == ECONNRESET);
}

static void a_turn_begins_few_and_all_have_theirs_in_the_order_in_which_they_spoke(void **state)
{
        struct rig r;
        (void)state;
        rig_start(&r, 10000, CROWD);
        speak(&r, 17);
        turn(&r);
        for (int i = 0; i < CROWD; i++)
                if (i != 17)
                        speak(&r, i);
        int turns = 0;
        for (; r.n_begun < CROWD && turns < 100; turns++)
                assert_in_range(turn(&r), 0, HANDSHAKES_PER_TURN);
        assert_int_equal(r.n_begun, CROWD);
        assert_int_equal(r.begun[0], r.ours[17]);
        assert_true(turns >= (CROWD - 1) / HANDSHAKES_PER_TURN);
        assert_int_equal(handshakes_waiting(r.h), 0);
        rig_stop(&r, CROWD);
}

static void who_says_nothing_holds_up_nobody_and_is_gone_when_its_time_is_over(void **state)
{
        struct rig r;
        (void)state;
        rig_start(&r, 30, CROWD);
        speak(&r, CROWD - 1);
        for (int i = 0; i < 2; i++)
                turn(&r);
        assert_int_equal(r.n_begun, 1);
        assert_in_range(r.left_ms, 1, 30);
        while (handshakes_waiting(r.h) > 0)
                event_base_loop(r.base, EVLOOP_ONCE);
        assert_int_equal(r.n_begun, 1);
        for (int i = 0; i < CROWD - 1; i++)
                assert_true(is_closed(&r, i));
        assert_false(is_closed(&r, CROWD - 1));
        rig_stop(&r, CROWD);
}

static void who_left_while_it_waited_costs_no_handshake(void **state)
{
        struct rig r;
        (void)state;
        rig_start(&r, 10000, 2);
        speak(&r, 0);
        shutdown(r.theirs[0], SHUT_WR);
        speak(&r, 1);
        for (int i = 0; i < 3; i++)
                turn(&r);
        assert_int_equal(r.n_begun, 1);
        assert_int_equal(r.begun[0], r.ours[1]);
        assert_true(is_closed(&r, 0));
        rig_stop(&r, 2);
}

static void a_server_that_ends_closes_all_that_wait(void **state)
{
        struct rig r;
        (void)state;
        rig_start(&r, 10000, CROWD);
        for (int i = 0; i < CROWD; i += 2)
                speak(&r, i);
        turn(&r); /* some are in the line now, others have said nothing */
        handshakes_close_all(r.h);
        assert_int_equal(handshakes_waiting(r.h), 0);
        int begun = r.n_begun;
        turn(&r);
        assert_int_equal(r.n_begun, begun);
        for (int i = 1; i < CROWD; i += 2)
                assert_true(is_closed(&r, i));
        rig_stop(&r, CROWD);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(
                    a_turn_begins_few_and_all_have_theirs_in_the_order_in_which_they_spoke),
                cmocka_unit_test(
                    who_says_nothing_holds_up_nobody_and_is_gone_when_its_time_is_over),
                cmocka_unit_test(who_left_while_it_waited_costs_no_handshake),
                cmocka_unit_test(a_server_that_ends_closes_all_that_wait),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
