/* core/access_test.c: tokens: created, revoked, ended, used once (C32). */
#include "core/core_testlib.h"
#include "model/pb.h"

#define HOUR_MS INT64_C(3600000)

static char *hash(struct rig *r, int n)
{
        return arena_printf(&r->memory, "%064x", n);
}

static const struct rig_reply *create(struct rig *r, const char *name, Pb__Role__E role,
                                      int hash_number, int64_t ttl_s, const char *node)
{
        Pb__CreateTokenRequest *q = arena_new(&r->memory, Pb__CreateTokenRequest);
        pb__create_token_request__init(q);
        q->name = arena_strdup(&r->memory, name);
        q->role = role;
        q->hash = hash(r, hash_number);
        q->ttl_seconds = ttl_s;
        q->node_id = arena_strdup(&r->memory, node);
        return rig_ask(r, INPUT_TOKEN_CREATE, q);
}

static const struct rig_reply *revoke(struct rig *r, const char *name)
{
        Pb__TokenRef *q = arena_new(&r->memory, Pb__TokenRef);
        pb__token_ref__init(q);
        q->name = arena_strdup(&r->memory, name);
        return rig_ask(r, INPUT_TOKEN_REVOKE, q);
}

static const struct rig_reply *use(struct rig *r, int hash_number, const char *node,
                                   const char *key)
{
        Pb__UseTokenRequest *q = arena_new(&r->memory, Pb__UseTokenRequest);
        pb__use_token_request__init(q);
        q->hash = hash(r, hash_number);
        q->node_id = arena_strdup(&r->memory, node);
        q->key = arena_strdup(&r->memory, key);
        return rig_ask(r, INPUT_TOKEN_USE, q);
}

static Pb__ListTokensResponse *list(struct rig *r, int32_t limit, const char *cursor)
{
        Pb__ListTokensRequest *q = arena_new(&r->memory, Pb__ListTokensRequest);
        pb__list_tokens_request__init(q);
        q->limit = limit;
        q->cursor = arena_strdup(&r->memory, cursor);
        return (Pb__ListTokensResponse *)rig_ask(r, INPUT_LIST_TOKENS, q)->msg;
}

/* R: C32 */
static void a_token_is_created_listed_and_revoked_with_who_did_it(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_mark(&r);
        const struct rig_reply *made = create(&r, "ann", PB__ROLE__E__operator, 1, 0, "");
        assert_refused(made, ERR_OK);
        assert_true(made->created);
        const Pb__AccessToken *t = (const Pb__AccessToken *)made->msg;
        assert_string_equal(t->hash, ""); /* nobody is shown it */
        assert_string_equal(t->state, "active");
        assert_string_equal(t->created_by, "tester");
        assert_refused(create(&r, "ann", PB__ROLE__E__viewer, 2, 0, ""), ERR_CONFLICT);
        /* two secrets with one hash do not exist */
        assert_refused(create(&r, "bob", PB__ROLE__E__viewer, 1, 0, ""), ERR_INTERNAL);
        assert_refused(create(&r, "bob", PB__ROLE__E__viewer, 2, 0, "n1"), ERR_INVALID);
        assert_refused(create(&r, "bob", PB__ROLE__E__viewer, 2, 0, ""), ERR_OK);
        Pb__ListTokensResponse *page = list(&r, 1, "");
        assert_int_equal(page->n_items, 1);
        assert_string_equal(page->items[0]->name, "ann");
        page = list(&r, 1, page->next_cursor);
        assert_string_equal(page->items[0]->name, "bob");
        assert_string_equal(page->next_cursor, "");
        assert_refused(revoke(&r, "carl"), ERR_NOT_FOUND);
        assert_refused(revoke(&r, "ann"), ERR_OK);
        assert_refused(revoke(&r, "ann"), ERR_OK);
        assert_told(&r, "TokenCreated TokenCreated TokenRevoked");
        assert_string_equal(rig_last(&r, PB__EVENT_TYPE__E__TokenRevoked)->actor, "tester");
        rig_check_replay(&r);
        rig_restart(&r);
        t = list(&r, 10, "")->items[0];
        assert_string_equal(t->state, "revoked");
        assert_string_equal(t->revoked_by, "tester");
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C32 */
static void an_ended_name_is_free_and_ended_tokens_go_away_after_a_week(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        create(&r, "short", PB__ROLE__E__viewer, 1, 60, "");
        create(&r, "long", PB__ROLE__E__admin, 2, 0, "");
        assert_true(core_has_admin(r.core, r.now));
        revoke(&r, "long");
        assert_false(core_has_admin(r.core, r.now));
        rig_advance(&r, 61000);
        assert_string_equal(list(&r, 10, "")->items[1]->state, "expired");
        uint64_t version = core_tokens_version(r.core);
        assert_refused(create(&r, "short", PB__ROLE__E__viewer, 3, 0, ""), ERR_OK);
        assert_true(core_tokens_version(r.core) > version);
        rig_advance(&r, 8 * 24 * HOUR_MS);
        rig_mark(&r);
        create(&r, "new", PB__ROLE__E__viewer, 4, 0, "");
        assert_told(&r, "TokenRemoved TokenCreated");
        assert_int_equal(list(&r, 10, "")->n_items, 2);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C32 */
static void a_join_token_is_used_by_one_node_with_one_key_also_over_a_restart(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        create(&r, "j1", PB__ROLE__E__join, 1, 0, "");
        assert_refused(use(&r, 9, "n1", "k1"), ERR_AUTH);
        assert_refused(use(&r, 1, "n1", "k1"), ERR_OK);
        assert_refused(use(&r, 1, "n2", "k2"), ERR_AUTH); /* the race is lost */
        /* also by another key for the same node */
        assert_refused(use(&r, 1, "n1", "k2"), ERR_AUTH);
        rig_mark(&r);
        /* the answer was lost, and is asked for again */
        assert_refused(use(&r, 1, "n1", "k1"), ERR_OK);
        assert_told(&r, "");
        rig_restart(&r);
        assert_refused(use(&r, 1, "n2", "k2"), ERR_AUTH);
        assert_refused(use(&r, 1, "n1", "k1"), ERR_OK);
        rig_advance(&r, HOUR_MS + 1000);
        assert_refused(use(&r, 1, "n1", "k1"), ERR_AUTH); /* an hour is over */
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C32 */
static void a_join_token_ends_by_time_and_by_revocation_and_keeps_to_its_node(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 8000, 8192, 100, NULL);
        create(&r, "any", PB__ROLE__E__join, 1, 0, "");
        assert_refused(use(&r, 1, "n1", "k"), ERR_DENIED); /* nobody becomes a node that there is */
        create(&r, "n1", PB__ROLE__E__join, 2, 0, "n1");
        assert_refused(use(&r, 2, "n2", "k"), ERR_DENIED);
        assert_refused(use(&r, 2, "n1", "k"), ERR_OK); /* unless the token says so */
        create(&r, "late", PB__ROLE__E__join, 3, 10, "");
        create(&r, "gone", PB__ROLE__E__join, 4, 0, "");
        revoke(&r, "gone");
        rig_advance_alive(&r, 11000);
        assert_refused(use(&r, 3, "n3", "k"), ERR_AUTH);
        assert_refused(use(&r, 4, "n3", "k"), ERR_AUTH);
        create(&r, "ann", PB__ROLE__E__admin, 5, 0, "");
        assert_refused(use(&r, 5, "n3", "k"), ERR_AUTH); /* another kind of token */
        rig_check_replay(&r);
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_token_is_created_listed_and_revoked_with_who_did_it),
                cmocka_unit_test(an_ended_name_is_free_and_ended_tokens_go_away_after_a_week),
                cmocka_unit_test(a_join_token_is_used_by_one_node_with_one_key_also_over_a_restart),
                cmocka_unit_test(a_join_token_ends_by_time_and_by_revocation_and_keeps_to_its_node),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
