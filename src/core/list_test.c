/* core/list_test.c: lists: pages, filters, and what their cursors promise. */
#include "core/core_testlib.h"

#define NODES 7
#define WORKLOADS 120

static char *name(struct rig *r, const char *prefix, unsigned i)
{
        return arena_printf(&r->memory, "%s%03u", prefix, i);
}

static void fill(struct rig *r)
{
        rig_init(r, NULL);
        for (unsigned i = 0; i < NODES; i++)
                rig_hello(r, name(r, "n", i), 64000, 65536, 100, i % 2 ? "zone=a" : "zone=b");
        for (unsigned i = 0; i < WORKLOADS; i++) {
                Pb__Workload *w = rig_workload(r, name(r, i % 3 ? "web-" : "db-", i), 10, 10);
                rig_label(r, w, "tier", i % 2 ? "front" : "back");
                if (i % 5 == 0)
                        rig_label(r, w, "canary", "yes");
                rig_apply(r, w);
                if (i % 4 == 0)
                        rig_runs(r, w->id);
        }
}

static const Pb__ListWorkloadsResponse *list(struct rig *r, Pb__ListWorkloadsRequest *req)
{
        const struct rig_reply *reply = rig_ask(r, INPUT_LIST_WORKLOADS, req);
        assert_refused(reply, ERR_OK);
        return (const Pb__ListWorkloadsResponse *)reply->msg;
}

static size_t count(struct rig *r, const char *selector, const char *status, const char *node,
                    const char *prefix)
{
        Pb__ListWorkloadsRequest req = PB__LIST_WORKLOADS_REQUEST__INIT;
        req.selector = (char *)selector;
        req.status = (char *)status;
        req.node = (char *)node;
        req.prefix = (char *)prefix;
        const Pb__ListWorkloadsResponse *res = list(r, &req);
        assert_string_equal(res->next_cursor, "");
        assert_int_equal(res->total, WORKLOADS);
        assert_int_equal(res->resource_version, r->head);
        return res->n_items;
}

/* R: A11 C2 */
static void pages_cover_everything_exactly_once(void **state)
{
        (void)state;
        struct rig r;
        fill(&r);
        for (int32_t limit = 1; limit < 200; limit = limit * 3 + 1) {
                unsigned seen[WORKLOADS] = { 0 };
                Pb__ListWorkloadsRequest req = PB__LIST_WORKLOADS_REQUEST__INIT;
                req.limit = limit;
                size_t pages = 0;
                do {
                        const Pb__ListWorkloadsResponse *res = list(&r, &req);
                        assert_true(res->n_items <= (size_t)limit);
                        for (size_t i = 0; i < res->n_items; i++)
                                seen[atoi(strchr(res->items[i]->id, '-') + 1)]++;
                        req.cursor = res->next_cursor;
                        assert_true(++pages <= WORKLOADS + 1);
                } while (req.cursor[0]);
                for (unsigned i = 0; i < WORKLOADS; i++)
                        assert_int_equal(seen[i], 1);
        }
        rig_fini(&r);
}

/* R: A11 */
static void whoever_exists_throughout_is_seen_once_while_others_come_and_go(void **state)
{
        (void)state;
        struct rig r;
        fill(&r);
        unsigned seen[WORKLOADS] = { 0 };
        Pb__ListWorkloadsRequest req = PB__LIST_WORKLOADS_REQUEST__INIT;
        req.limit = 10;
        for (unsigned page = 0;; page++) {
                const Pb__ListWorkloadsResponse *res = list(&r, &req);
                for (size_t i = 0; i < res->n_items; i++)
                        if (!str_starts(res->items[i]->id, "new"))
                                seen[atoi(strchr(res->items[i]->id, '-') + 1)]++;
                req.cursor = res->next_cursor;
                if (!req.cursor[0])
                        break;
                char *gone = name(&r, page % 3 ? "web-" : "db-", page);
                if (page < 8 && rig_get(&r, gone)) {
                        char *node = rig_get(&r, gone)->assigned_node;
                        rig_delete(&r, gone);
                        rig_is_gone(&r, gone, node);
                        rig_apply(&r, rig_workload(&r, name(&r, "new", page), 10, 10));
                }
        }
        for (unsigned i = 8; i < WORKLOADS; i++)
                assert_int_equal(seen[i], 1);
        rig_fini(&r);
}

/* A cursor is an id, so it means the same to a server that has loaded everything anew. R: A11 A5 */
static void a_list_goes_on_after_a_restart(void **state)
{
        (void)state;
        struct rig r;
        fill(&r);
        for (unsigned i = 0; i < 9; i += 3) { /* what comes now takes the places of what has gone */
                char *gone = name(&r, "db-", i), *node = rig_get(&r, gone)->assigned_node;
                rig_delete(&r, gone);
                rig_is_gone(&r, gone, node);
                rig_apply(&r, rig_workload(&r, name(&r, "zz", i), 10, 10));
        }
        Pb__ListWorkloadsRequest req = PB__LIST_WORKLOADS_REQUEST__INIT;
        req.limit = 7;
        size_t n = 0;
        char *last = "";
        do {
                const Pb__ListWorkloadsResponse *res = list(&r, &req);
                for (size_t i = 0; i < res->n_items; i++, n++) {
                        assert_true(strcmp(last, res->items[i]->id) < 0);
                        last = arena_strdup(&r.memory, res->items[i]->id);
                }
                req.cursor = arena_strdup(&r.memory, res->next_cursor);
                rig_restart(&r);
        } while (req.cursor[0]);
        assert_int_equal(n, WORKLOADS);
        rig_fini(&r);
}

/* A state that is added later is counted by itself, and not as another one. R: C6 */
static void every_state_is_counted_by_itself(void **state)
{
        (void)state;
        struct core_stats st;
        assert_int_equal(ARRAY_LEN(st.by_phase), pb__phase__e__descriptor.n_values);
        assert_int_equal(ARRAY_LEN(st.by_desired), pb__desired_state__e__descriptor.n_values);
        assert_int_equal(ARRAY_LEN(st.nodes_by_status), pb__node_status__e__descriptor.n_values);
}

/* R: A11 C2 */
static void filters_are_exact(void **state)
{
        (void)state;
        struct rig r;
        fill(&r);
        assert_int_equal(count(&r, "", "", "", ""), WORKLOADS);
        assert_int_equal(count(&r, "", "", "", "db-"), WORKLOADS / 3);
        assert_int_equal(count(&r, "", "running", "", ""), WORKLOADS / 4); /* any case */
        assert_int_equal(count(&r, "", "Scheduled", "", ""), WORKLOADS - WORKLOADS / 4);
        assert_int_equal(count(&r, "tier=front", "", "", ""), WORKLOADS / 2);
        assert_int_equal(count(&r, "tier!=front,canary", "", "", ""), WORKLOADS / 10);
        assert_int_equal(count(&r, "!canary", "", "", ""), WORKLOADS - WORKLOADS / 5);
        assert_int_equal(count(&r, "tier=back", "Running", "", "db-"), WORKLOADS / 12);
        size_t sum = 0;
        for (unsigned i = 0; i < NODES; i++)
                sum += count(&r, "", "", name(&r, "n", i), "");
        assert_int_equal(sum, WORKLOADS);
        rig_fini(&r);
}

/* R: A9 */
static void nonsense_is_refused(void **state)
{
        (void)state;
        struct rig r;
        fill(&r);
        Pb__ListWorkloadsRequest req = PB__LIST_WORKLOADS_REQUEST__INIT;
        req.cursor = "not a cursor";
        assert_refused(rig_ask(&r, INPUT_LIST_WORKLOADS, &req), ERR_INVALID);
        req.cursor = arena_printf(&r.memory, "%01100d", 7);
        assert_refused(rig_ask(&r, INPUT_LIST_WORKLOADS, &req), ERR_INVALID);
        req.cursor = "zzz"; /* beyond the end: an empty page, and the last */
        assert_int_equal(list(&r, &req)->n_items, 0);
        req.cursor = "";
        req.selector = "==";
        assert_refused(rig_ask(&r, INPUT_LIST_WORKLOADS, &req), ERR_INVALID);
        req.selector = "";
        req.status = "Sideways";
        assert_refused(rig_ask(&r, INPUT_LIST_WORKLOADS, &req), ERR_INVALID);
        req.status = "";
        req.node = "nobody";
        assert_refused(rig_ask(&r, INPUT_LIST_WORKLOADS, &req), ERR_NOT_FOUND);
        rig_fini(&r);
}

static size_t count_nodes(struct rig *r, const char *selector, const char *status,
                          const char *prefix)
{
        Pb__ListNodesRequest req = PB__LIST_NODES_REQUEST__INIT;
        req.selector = (char *)selector;
        req.status = (char *)status;
        req.prefix = (char *)prefix;
        req.limit = 2;
        size_t n = 0;
        do {
                const struct rig_reply *reply = rig_ask(r, INPUT_LIST_NODES, &req);
                assert_refused(reply, ERR_OK);
                const Pb__ListNodesResponse *res = (const Pb__ListNodesResponse *)reply->msg;
                assert_int_equal(res->total, NODES);
                n += res->n_items;
                req.cursor = res->next_cursor;
        } while (req.cursor[0]);
        return n;
}

/* R: C2 A11 C12 */
static void nodes_are_listed_by_what_users_see(void **state)
{
        (void)state;
        struct rig r;
        fill(&r);
        assert_int_equal(count_nodes(&r, "", "", ""), NODES);
        assert_int_equal(count_nodes(&r, "zone=a", "", ""), NODES / 2);
        assert_int_equal(count_nodes(&r, "zone=a", "", "n00"), NODES / 2);
        assert_int_equal(count_nodes(&r, "", "", "n003"), 1);
        rig_wish(&r, "n000", PB__NODE_WISH__E__draining);
        rig_wish(&r, "n001", PB__NODE_WISH__E__disabled);
        rig_wish(&r, "n002", PB__NODE_WISH__E__cordoned);
        rig_gone(&r, "n003");
        rig_gone(&r, "n000");
        rig_advance_alive(&r, 31000);
        assert_int_equal(count_nodes(&r, "", "Draining", ""), 0);
        assert_int_equal(count_nodes(&r, "", "disabled", ""), 1);
        assert_int_equal(count_nodes(&r, "", "NotReady", ""), 2);
        assert_int_equal(count_nodes(&r, "", "Ready", ""), NODES - 3);
        struct core_stats st;
        core_stats(r.core, &st);
        /* the metrics say the same */
        assert_int_equal(st.nodes_by_status[PB__NODE_STATUS__E__NotReady], 2);
        assert_int_equal(st.nodes_by_status[PB__NODE_STATUS__E__Disabled], 1);
        rig_fini(&r);
}

/* R: C2 */
static void nodes_come_by_id_however_they_came(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        static const char *const ids[] = { "delta", "alpha", "echo", "bravo", "charlie" };
        for (size_t i = 0; i < ARRAY_LEN(ids); i++)
                rig_hello(&r, ids[i], 1000, 1024, 1, NULL);
        struct str seen = STR_INIT;
        Pb__ListNodesRequest req = PB__LIST_NODES_REQUEST__INIT;
        req.limit = 2;
        do {
                const Pb__ListNodesResponse *res =
                    (const Pb__ListNodesResponse *)rig_ask(&r, INPUT_LIST_NODES, &req)->msg;
                for (size_t i = 0; i < res->n_items; i++)
                        str_addf(&seen, "%s ", res->items[i]->id);
                req.cursor = res->next_cursor;
                /* comes while somebody reads: once if at all */
                rig_hello(&r, "bandit", 1000, 1024, 1, NULL);
        } while (req.cursor[0]);
        assert_string_equal(str_c(&seen), "alpha bravo charlie delta echo ");
        req.cursor = "not a cursor";
        assert_refused(rig_ask(&r, INPUT_LIST_NODES, &req), ERR_INVALID);
        str_fini(&seen);
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(pages_cover_everything_exactly_once),
                cmocka_unit_test(whoever_exists_throughout_is_seen_once_while_others_come_and_go),
                cmocka_unit_test(a_list_goes_on_after_a_restart),
                cmocka_unit_test(every_state_is_counted_by_itself),
                cmocka_unit_test(filters_are_exact),
                cmocka_unit_test(nonsense_is_refused),
                cmocka_unit_test(nodes_are_listed_by_what_users_see),
                cmocka_unit_test(nodes_come_by_id_however_they_came),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
