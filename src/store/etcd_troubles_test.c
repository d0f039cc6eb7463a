/* store/etcd_troubles_test.c: etcd's troubles, with real members: some die, some hang, users and
 * certificates, no space, compaction, requests that are too large. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/etcd_store.h"
#include "store/etcd_testkit.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENCE_NS (120 * 1000000000LL)
#define TTL_SECONDS 60

static struct err err;

/* ---- words ---- */

static int run_quietly(const char *line)
{
        return system(fmt("%s >/dev/null 2>&1", line));
}

static int ctl(const struct etcd_process *e, const char *words)
{
        return run_quietly(
            fmt("ETCDCTL_API=3 etcdctl --endpoints 127.0.0.1:%d %s", e->port, words));
}

static struct store *lead(const char *url)
{
        struct store *s = NULL;
        int64_t end_ns = clock_mono_ns() + PATIENCE_NS;
        err = (struct err){ 0 };
        if (store_open(url, true, &s, &err) < 0)
                fail_msg("open: %s", err_line(&err));
        while (store_lead(s, "test", TTL_SECONDS, 1000, &err) < 0)
                if (clock_mono_ns() > end_ns)
                        fail_msg("lead: %s", err_line(&err));
        return s;
}

static int commit_once(struct store *s, uint64_t expected, const char *key, const char *value,
                       size_t len)
{
        struct store_event event = { expected + 1, "event", 5 };
        struct store_record record = { key, value, len };
        struct store_batch batch = { expected, expected + 1, &event, 1, &record, 1, 0 };
        err = (struct err){ 0 };
        return store_commit(s, &batch, &err);
}

/* As a server does: the same again while the outcome is unknown. */
static void commits(struct store *s, uint64_t expected)
{
        int64_t end_ns = clock_mono_ns() + PATIENCE_NS;
        int r;
        while ((r = commit_once(s, expected, "/a", "1", 1)) == -ERR_UNAVAILABLE &&
               clock_mono_ns() < end_ns)
                ;
        if (r < 0)
                fail_msg("commit %llu: %s", (unsigned long long)expected, err_line(&err));
        assert_int_equal(store_head(s), expected + 1);
}

static int count_one(void *ctx, const struct store_record *r _unused_, struct err *e _unused_)
{
        ++*(size_t *)ctx;
        return 0;
}

/* ---- members ---- */

/* R: A4 A5 */
static void members_that_die_or_hang_are_left_for_others(void **state)
{
        struct etcd_process m[ETCD_MEMBERS] = { 0 };
        (void)state;
        etcd_cluster_start(m);
        struct store *s = lead(
            fmt("etcd://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", m[0].port, m[1].port, m[2].port));
        uint64_t head = 0;
        commits(s, head++);
        for (int i = 0; i < ETCD_MEMBERS; i++) {
                etcd_process_pause(&m[i]); /* its connections stay, and nothing comes */
                for (int n = 0; n < 3; n++)
                        commits(s, head++);
                etcd_process_resume(&m[i]);
                etcd_process_kill(&m[i]);
                for (int n = 0; n < 3; n++)
                        commits(s, head++);
                etcd_process_start(&m[i]);
        }
        assert_true(store_leads_until_ns(s) > clock_mono_ns());
        assert_int_equal(store_integrity(s, &err), 0);
        /* no majority: it says so, and goes on when there is one */
        etcd_process_kill(&m[0]);
        etcd_process_kill(&m[1]);
        int r = commit_once(s, head, "/a", "2", 1);
        if (r != -ERR_UNAVAILABLE || !err.hint[0])
                fail_msg("%d: %s", r, err_line(&err));
        etcd_process_start(&m[0]);
        commits(s, head++);
        store_close(s);
        etcd_cluster_clean(m);
}

/* ---- who is let in ---- */

static void make_temp(char dir[static 64])
{
        const char *tmp = getenv("TMPDIR");
        snprintf(dir, 64, "%s/etcd-XXXXXX", tmp ? tmp : "/tmp");
        assert_non_null(mkdtemp(dir));
}

static void remove_temp(const char *dir)
{
        assert_int_equal(run_quietly(fmt("rm -r %s", dir)), 0);
}

static void shell(const char *dir, const char *lines)
{
        if (system(fmt("cd %s && { %s; } >log 2>&1", dir, lines)) != 0)
                fail_msg("failed, see %s/log: %s", dir, lines);
}

static void add_users(const struct etcd_process *e, const char *dir)
{
        shell(dir, fmt("export ETCDCTL_API=3; e='etcdctl --endpoints 127.0.0.1:%d'; $e user add "
                       "root:r && $e user grant-role root root && "
                       "$e user add berth:b && $e role add berth && "
                       "$e role grant-permission berth --prefix=true readwrite /mine/ && $e user "
                       "grant-role berth berth && $e auth enable "
                       "&& echo b >right && echo x >wrong",
                       e->port));
}

/* R: A4 C32 */
static void a_token_that_has_expired_is_renewed(void **state)
{
        struct etcd_process e = { 0 };
        char dir[64], jwt[256];
        (void)state;
        make_temp(dir);
        shell(dir, "openssl genrsa -out key 2048 && openssl rsa -in key -pubout -out pub");
        snprintf(jwt, sizeof(jwt), "jwt,pub-key=%s/pub,priv-key=%s/key,sign-method=RS256,ttl=1s",
                 dir, dir);
        e.extra[0] = "--auth-token";
        e.extra[1] = jwt;
        etcd_process_start(&e);
        add_users(&e, dir);
        const char *at = fmt("etcd://127.0.0.1:%d/mine?user=berth&password-file=%s", e.port, dir);
        struct store *s = NULL;
        assert_int_equal(store_open(fmt("%s/wrong", at), true, &s, &err), -ERR_AUTH);
        assert_true(err.msg[0] && err.hint[0]);
        /* nobody at all */
        assert_int_equal(store_open(fmt("etcd://127.0.0.1:%d/mine", e.port), true, &s, &err),
                         -ERR_AUTH);
        at = fmt("etcd://127.0.0.1:%d/others?user=berth&password-file=%s/right", e.port, dir);
        assert_int_equal(store_open(at, true, &s, &err), -ERR_DENIED);
        assert_true(err.hint[0]);
        s = lead(fmt("etcd://127.0.0.1:%d/mine?user=berth&password-file=%s/right", e.port, dir));
        uint64_t head = 0;
        /* several lives of a token */
        for (int64_t end_ns = clock_mono_ns() + 3500000000LL; clock_mono_ns() < end_ns;)
                assert_int_equal(commit_once(s, head++, "/a", "1", 1), 0);
        assert_true(store_leads_until_ns(s) > clock_mono_ns());
        assert_int_equal(store_integrity(s, &err), 0);
        store_close(s);
        etcd_process_clean(&e);
        remove_temp(dir);
}

/* R: A4 A5 */
static void tokens_that_etcd_forgot_are_renewed(void **state)
{
        struct etcd_process e = { 0 };
        char dir[64];
        (void)state;
        make_temp(dir);
        etcd_process_start(&e);
        add_users(&e, dir);
        struct store *s =
            lead(fmt("etcd://127.0.0.1:%d/mine?user=berth&password-file=%s/right", e.port, dir));
        commits(s, 0);
        etcd_process_kill(&e); /* simple tokens are in its memory */
        etcd_process_start(&e);
        commits(s, 1);
        assert_int_equal(store_integrity(s, &err), 0);
        store_close(s);
        etcd_process_clean(&e);
        remove_temp(dir);
}

/* R: A4 C32 */
static void certificates_let_in_who_has_one(void **state)
{
        struct etcd_process e = { .tls = true };
        char dir[64], ca[96], cert[96], key[96];
        struct store *s = NULL;
        (void)state;
        make_temp(dir);
        shell(dir, "openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 "
                   "-subj /CN=ca && "
                   "for n in server client; do openssl req -newkey rsa:2048 -nodes -keyout $n.key "
                   "-out $n.csr -subj /CN=$n && "
                   "printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n' "
                   ">ext && "
                   "openssl x509 -req -in $n.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 "
                   "-out $n.pem -extfile ext; done && "
                   "openssl req -x509 -newkey rsa:2048 -nodes -keyout other.key -out other.pem "
                   "-days 2 -subj /CN=other");
        snprintf(ca, sizeof(ca), "%s/ca.pem", dir);
        snprintf(cert, sizeof(cert), "%s/server.pem", dir);
        snprintf(key, sizeof(key), "%s/server.key", dir);
        const char *const args[] = { "--client-cert-auth",
                                     "--trusted-ca-file",
                                     ca,
                                     "--cert-file",
                                     cert,
                                     "--key-file",
                                     key };
        memcpy(e.extra, args, sizeof(args));
        etcd_process_start(&e);
        s = lead(fmt("etcd://127.0.0.1:%d?ca=%s/ca.pem&cert=%s/client.pem&key=%s/client.key",
                     e.port, dir, dir, dir));
        commits(s, 0);
        commits(s, 1);
        assert_int_equal(store_integrity(s, &err), 0);
        store_close(TAKE_PTR(s));
        /* without one, with one of somebody else's, and an etcd that is not ours: refused with a
         * reason */
        const char *const bad[] = { "ca=%s/ca.pem",
                                    "ca=%s/ca.pem&cert=%s/other.pem&key=%s/other.key",
                                    "ca=%s/other.pem&cert=%s/client.pem&key=%s/client.key" };
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                _cleanup_(str_finip) struct str query = STR_INIT;
                for (const char *c = bad[i]; *c; c++)
                        if (*c == '%' && c[1] == 's') {
                                str_adds(&query, dir);
                                c++;
                        } else
                                str_addc(&query, *c);
                err = (struct err){ 0 };
                assert_true(store_open(fmt("etcd://127.0.0.1:%d?%s", e.port, str_c(&query)), true,
                                       &s, &err) < 0);
                assert_true(err.msg[0] && err.detail[0] && err.hint[0]);
                print_message("# %s\n", err_line(&err));
        }
        etcd_process_clean(&e);
        remove_temp(dir);
}

/* ---- space ---- */

/* R: C35 A11 */
static void without_space_reads_go_on_and_the_same_batch_goes_through_later(void **state)
{
        struct etcd_process e = { .extra = { "--quota-backend-bytes", "8388608" } };
        _cleanup_(mem_freep) char *large = mem_must(500000);
        char dir[64];
        (void)state;
        make_temp(dir);
        etcd_process_start(&e);
        struct store *s = lead(fmt("etcd://127.0.0.1:%d", e.port));
        uint64_t head = 0, found;
        size_t n = 0;
        int r = 0;
        while (head < 100 && (r = commit_once(s, head, "/workloads/large", large, 500000)) == 0)
                head++;
        assert_int_equal(r, -ERR_UNAVAILABLE);
        assert_non_null(strstr(err.msg, "no space"));
        assert_non_null(strstr(err.hint, "alarm disarm"));
        /* reads, and the lease */
        assert_int_equal(store_load(s, count_one, &n, &found, &err), 0);
        assert_int_equal(n, 1);
        /* etcd may have taken it, and say all the same that it has no space */
        assert_true(found == head || found == head + 1);
        _cleanup_(store_reader_closep) struct store_reader *reader = NULL;
        assert_int_equal(store_reader_open(s, &reader, &err), 0);
        assert_int_equal(store_reader_first(reader), 1);
        assert_true(store_leads_until_ns(s) > clock_mono_ns());
        assert_int_equal(commit_once(s, head, "/workloads/large", large, 500000), -ERR_UNAVAILABLE);
        /* what the hint says */
        shell(dir, fmt("export ETCDCTL_API=3; e='etcdctl --endpoints 127.0.0.1:%d'; $e compact "
                       "$($e endpoint status -w json | grep -o "
                       "'\"revision\":[0-9]*' | grep -o '[0-9]*') && "
                       "$e defrag && $e alarm disarm",
                       e.port));
        assert_int_equal(commit_once(s, head, "/workloads/large", large, 500000), 0);
        assert_int_equal(store_head(s), head + 1);
        store_reader_close(TAKE_PTR(reader));
        assert_int_equal(store_integrity(s, &err), 0);
        store_close(s);
        etcd_process_clean(&e);
        remove_temp(dir);
}

/* R: A4 */
static void old_values_are_compacted_though_nobody_asks(void **state)
{
        struct etcd_process e = { 0 };
        (void)state;
        etcd_process_start(&e);
        struct store *s = lead(fmt("etcd://127.0.0.1:%d", e.port));
        struct etcd_store *inside = etcd_self(s);
        for (uint64_t i = 0; i < 5; i++)
                commits(s, i);
        assert_int_equal(ctl(&e, "get /a --rev=2"), 0);
        inside->next_compact_ns = 0; /* a minute later */
        commits(s, 5);
        assert_non_null(inside->compaction);
        assert_true(etcd_request_wait(inside->compaction, 60000));
        assert_int_not_equal(ctl(&e, "get /a --rev=2"), 0);
        assert_int_equal(ctl(&e, "get /a"), 0);
        commits(s, 6);
        assert_int_equal(store_integrity(s, &err), 0);
        store_close(s);
        etcd_process_clean(&e);
}

/* R: A9 A11 */
static void a_request_that_is_too_large_is_refused_and_changes_nothing(void **state)
{
        struct etcd_process e = { .extra = { "--max-request-bytes", "100000" } };
        _cleanup_(mem_freep) char *large = mem_must(200000);
        (void)state;
        etcd_process_start(&e);
        struct store *s = lead(fmt("etcd://127.0.0.1:%d", e.port));
        commits(s, 0);
        assert_int_equal(commit_once(s, 1, "/workloads/large", large, 200000), -ERR_LIMIT);
        assert_non_null(strstr(err.hint, "--max-request-bytes"));
        assert_int_equal(store_head(s), 1);
        etcd_process_kill(&e); /* the operator does what the hint says */
        e.extra[1] = "1000000";
        etcd_process_start(&e);
        int r;
        while ((r = commit_once(s, 1, "/workloads/large", large, 200000)) == -ERR_UNAVAILABLE)
                ;
        assert_int_equal(r, 0);
        assert_int_equal(store_integrity(s, &err), 0);
        store_close(s);
        etcd_process_clean(&e);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(members_that_die_or_hang_are_left_for_others),
                cmocka_unit_test(a_token_that_has_expired_is_renewed),
                cmocka_unit_test(tokens_that_etcd_forgot_are_renewed),
                cmocka_unit_test(certificates_let_in_who_has_one),
                cmocka_unit_test(without_space_reads_go_on_and_the_same_batch_goes_through_later),
                cmocka_unit_test(old_values_are_compacted_though_nobody_asks),
                cmocka_unit_test(a_request_that_is_too_large_is_refused_and_changes_nothing),
        };
        if (!etcd_is_installed()) {
                print_message("# etcd is not installed: not tested on it\n");
                return 77;
        }
        return cmocka_run_group_tests(tests, NULL, NULL);
}
