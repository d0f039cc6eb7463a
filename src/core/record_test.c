/* core/record_test.c: batches, records, and getting the state back from them. */
#include "base/mem.h"
#include "core/core_testlib.h"
#include "model/pb.h"
#include "model/validate.h"

static char *name(struct rig *r, const char *prefix, unsigned i)
{
        return arena_printf(&r->memory, "%s%u", prefix, i);
}

/* A small cluster with something of everything. */
static void busy(struct rig *r, const struct core_options *opt)
{
        rig_init(r, opt);
        for (unsigned i = 0; i < 4; i++)
                rig_hello(r, name(r, "n", i), 4000, 4096, 100,
                          i % 2 ? "zone=a" : "zone=b,disk=ssd");
        for (unsigned i = 0; i < 12; i++) {
                Pb__Workload *w = rig_workload(r, name(r, "w", i), 300 + 100 * (i % 3), 100);
                w->restart = i % 4 == 3 ? PB__RESTART__E__on_failure : PB__RESTART__E__always;
                w->ttl_seconds = i % 4 == 3 ? 600 : 0;
                rig_apply(r, w);
                rig_runs(r, w->id);
        }
        rig_exits(r, "w3", 0);
        rig_exits(r, "w4", 2);
        rig_exits(r, "w7", 3);
        rig_stop(r, "w5");
        rig_apply(r, rig_workload(r, "nowhere", 9000, 100));
        rig_apply(r, rig_workload(r, "w6", 3900, 100)); /* moves, or waits */
        rig_wish(r, "n3", PB__NODE_WISH__E__cordoned);
        rig_gone(r, "n0");
        rig_advance_alive(r, 95000);
        rig_delete(r, "w1");
}

/* R: A2 A3 A5 */
static void events_records_and_the_live_state_say_the_same(void **state)
{
        (void)state;
        struct rig r;
        busy(&r, NULL);
        rig_check_replay(&r);
        rig_restart(&r);
        rig_check_replay(&r);
        rig_advance(&r, 200000);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: C1 */
static void views_for_people_are_written_where_wanted_and_never_read(void **state)
{
        (void)state;
        struct core_options opt;
        core_options_default(&opt);
        opt.index_records = true;
        struct rig r;
        busy(&r, &opt);
        const struct rig_record *status = rig_record(&r, "/nodes/n0/status");
        assert_non_null(status);
        assert_memory_equal(status->data, "NotReady", 8);
        assert_non_null(rig_record(&r, "/assignments/w2"));
        assert_null(rig_record(&r, "/assignments/nowhere"));
        assert_non_null(rig_record(&r, "/retries/w4"));
        assert_null(rig_record(&r, "/retries/w2"));
        assert_non_null(rig_record(&r, "/reconciliation/w2"));
        Pb__Assignment *a = pb__assignment__unpack(NULL, rig_record(&r, "/assignments/w2")->len,
                                                   rig_record(&r, "/assignments/w2")->data);
        assert_string_equal(a->node_id, rig_get(&r, "w2")->assigned_node);
        pb__assignment__free_unpacked(a, NULL);
        const struct rig_record *later = rig_record(&r, "/assignments/w10");
        long long score = (long long)rig_get(&r, "w10")->placement->score;
        assert_true(score > 0);
        a = pb__assignment__unpack(NULL, later->len, later->data);
        assert_string_equal(a->reason, fmt("selected by lowest utilization score %lld.%06lld",
                                           score / 1000000, score % 1000000));
        pb__assignment__free_unpacked(a, NULL);
        rig_check_replay(&r); /* loads them all */
        char *node = rig_get(&r, "w2")->assigned_node;
        rig_delete(&r, "w2");
        rig_is_gone(&r, "w2", node);
        assert_null(rig_record(&r, "/assignments/w2"));
        assert_null(rig_record(&r, "/reconciliation/w2"));
        rig_fini(&r);
}

/* R: A3 A4 */
static void batches_are_cut_between_decisions(void **state)
{
        (void)state;
        struct core_options opt;
        core_options_default(&opt);
        opt.max_batch_ops = 128;
        opt.evict_per_second = 0;
        struct rig r;
        rig_init(&r, &opt);
        for (unsigned i = 0; i < 300; i++)
                rig_apply(&r, rig_workload(&r, name(&r, "w", i), 10, 10));
        size_t before = r.batches;
        rig_hello(&r, "n1", 64000, 65536, 100, NULL); /* 300 placements at once */
        assert_true(r.batches - before >= 5);
        assert_true(r.largest_batch_ops <= 128);
        for (unsigned i = 0; i < 300; i++)
                assert_phase(&r, name(&r, "w", i), Scheduled);
        rig_hello(&r, "n2", 64000, 65536, 100, NULL);
        rig_gone(&r, "n1");
        /* 300 moves at once, each an event here and there, two records and a tombstone */
        rig_advance_alive(&r, 100000);
        assert_int_equal(rig_node(&r, "n1")->tombstones, 300);
        assert_true(r.largest_batch_ops <= 128);
        rig_mark(&r);
        rig_hello(&r, "n1", 64000, 65536, 100, NULL); /* 300 proofs at once */
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__UnitRemoved), 300);
        assert_true(r.largest_batch_ops <= 128);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A3 A4 */
static void batches_are_cut_at_the_size_that_was_asked_for(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 64000, 65536, 100, NULL);
        size_t before = r.batches;
        r.largest_batch_ops = 0;
        r.by_hand = true;
        core_set_batch_ops(r.core, 60);
        for (unsigned i = 0; i < 100; i++)
                rig_apply(&r, rig_workload(&r, name(&r, "w", i), 10, 10));
        size_t waiting = core_waiting_ops(r.core);
        assert_true(waiting >= 100 * 2); /* an event and a record each, at least */
        assert_true(core_ready_batches(r.core) >= waiting / 80);
        rig_take(&r);
        assert_int_equal(core_waiting_ops(r.core), 0);
        assert_true(r.batches - before >= waiting / 80);
        assert_in_range(r.largest_batch_ops, 60, 79); /* a decision is never cut in two */
        r.by_hand = false;
        for (unsigned i = 0; i < 100; i++)
                assert_phase(&r, name(&r, "w", i), Scheduled);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A11 */
static void batches_are_cut_when_they_have_many_bytes(void **state)
{
        (void)state;
        struct core_options opt;
        core_options_default(&opt);
        opt.max_batch_bytes = 100000;
        struct rig r;
        rig_init(&r, &opt);
        char *large = arena_alloc(&r.memory, 30001);
        memset(large, 'x', 30000);
        for (unsigned i = 0; i < 20; i++) {
                Pb__Workload *w = rig_workload(&r, name(&r, "w", i), 10, 10);
                w->spec->command[1] = large;
                rig_apply(&r, w);
        }
        size_t before = r.batches;
        rig_hello(&r, "n1", 64000, 65536, 100, NULL); /* 20 records of 30 kB at once */
        assert_true(r.batches - before >= 5);
        for (unsigned i = 0; i < 20; i++)
                assert_phase(&r, name(&r, "w", i), Scheduled);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* How many batches 40 moves at once are, each to another node with these labels. */
static size_t batches_of_moves(const char *labels)
{
        struct core_options opt;
        core_options_default(&opt);
        opt.max_batch_bytes = 20000;
        opt.evict_per_second = 0;
        struct rig r;
        rig_init(&r, &opt);
        rig_hello(&r, "n1", 64000, 65536, 100, NULL);
        for (unsigned i = 0; i < 40; i++)
                rig_apply(&r, rig_workload(&r, name(&r, "w", i), 10, 10));
        for (unsigned i = 0; i < 40; i++)
                rig_hello(&r, name(&r, "other-", i), 64000, 65536, 100, labels);
        size_t before = r.batches;
        rig_gone(&r, "n1");
        rig_advance_alive(&r, 100000);
        assert_int_equal(rig_node(&r, "n1")->tombstones, 40);
        size_t n = r.batches - before;
        rig_check_replay(&r);
        rig_fini(&r);
        return n;
}

/* R: A11 */
static void long_texts_of_records_count_for_the_size_of_a_batch(void **state)
{
        (void)state;
        _cleanup_(str_finip) struct str labels = STR_INIT;
        for (unsigned i = 0; i < 50; i++)
                str_addf(&labels, "%slabel-%u=%063u", i ? "," : "", i, i);
        /* 40 records of 3.5 kB */
        assert_true(batches_of_moves(str_c(&labels)) >= batches_of_moves(NULL) + 5);
}

/* While a batch waits for the store, inputs are decided and ticks make no noise.  R: A3 C26 */
static void nothing_spins_while_a_full_batch_waits(void **state)
{
        (void)state;
        struct core_options opt;
        core_options_default(&opt);
        opt.max_batch_ops = 128;
        struct rig r;
        rig_init(&r, &opt);
        for (unsigned i = 0; i < 300; i++)
                rig_apply(&r, rig_workload(&r, name(&r, "w", i), 10, 10));
        r.by_hand = true;
        rig_hello(&r, "n1", 64000, 65536, 100, NULL);
        assert_true(core_next_ms(r.core) == INT64_MAX);
        uint64_t head = core_head(r.core);
        for (int i = 0; i < 10; i++) {
                r.now += 1000;
                rig_tick(&r);
                assert_int_equal(core_head(r.core), head);
        }
        /* what users ask is decided all the same */
        rig_apply(&r, rig_workload(&r, "more", 10, 10));
        assert_true(core_head(r.core) > head);
        rig_take(&r);
        assert_true(core_next_ms(r.core) <= r.now); /* and now it goes on */
        r.by_hand = false;
        rig_advance_alive(&r, 1000);
        for (unsigned i = 0; i < 300; i++)
                assert_phase(&r, name(&r, "w", i), Scheduled);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* Whoever asks without a pause fills every step: what is due gets its turn all the same, a little
 * at a time. */
/* R: C10 A11 */
static void a_lost_node_is_noticed_however_much_is_asked_for(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 64000, 65536, 100, NULL);
        for (unsigned i = 0; i < 20; i++)
                rig_apply(&r, rig_workload(&r, name(&r, "old", i), 10, 10));
        rig_hello(&r, "n2", 640000, 655360, 1000, NULL);
        r.by_hand = true;
        rig_mark(&r);
        for (unsigned i = 0; i < 300; i++) /* nothing is committed meanwhile */
                rig_apply(&r, rig_workload(&r, name(&r, "w", i), 10, 10));
        assert_true(core_next_ms(r.core) == INT64_MAX);
        struct core_stats before, stats;
        core_stats(r.core, &before);
        r.now += 31000; /* n1 and n2 are silent */
        rig_apply(&r, rig_workload(&r, "more", 10, 10));
        core_stats(r.core, &stats);
        assert_int_equal(stats.nodes_lost - before.nodes_lost, 2);
        rig_take(&r);
        r.by_hand = false;
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A3 A4 */
static void what_goes_and_comes_back_within_a_batch_is_written_once(void **state)
{
        (void)state;
        struct core_options opt;
        core_options_default(&opt);
        opt.index_records = true;
        struct rig r;
        rig_init(&r, &opt);
        rig_apply(&r, rig_workload(&r, "old", 9000, 10));
        rig_hello(&r, "n1", 4000, 4096, 100, NULL);
        rig_hello(&r, "n2", 4000, 4096, 100, NULL);
        rig_advance(&r, 40000); /* both lost */
        r.by_hand = true;
        /* deleted and made again, with another definition; and once more, so that slots are reused
         * crosswise */
        for (int round = 0; round < 3; round++) {
                rig_delete(&r, "old");
                rig_tick(&r);
                rig_apply(&r, rig_workload(&r, "other", 9000, 20));
                rig_apply(&r, rig_workload(&r, "old", 9000, 30 + round));
                rig_delete(&r, "other");
                rig_tick(&r);
        }
        rig_forget(&r, "n1");
        rig_forget(&r, "n2");
        rig_hello(&r, "n2", 2000, 4096, 100, NULL);
        r.by_hand = false;
        size_t batches = r.batches;
        rig_take(&r);
        assert_int_equal(r.batches, batches + 1); /* no key comes twice: the rig has checked it */
        assert_null(rig_get(&r, "other"));
        assert_null(rig_node(&r, "n1"));
        assert_int_equal(rig_get(&r, "old")->resources->memory_mb, 32);
        assert_int_equal(rig_node(&r, "n2")->resources->cpu_total, 2000);
        assert_null(rig_record(&r, "/nodes/n1"));
        assert_null(rig_record(&r, "/nodes/n1/status"));
        assert_non_null(rig_record(&r, "/nodes/n2/status"));
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A3 */
static void a_tombstone_confirmed_and_left_again_within_a_batch_is_there(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 100, NULL);
        rig_apply(&r, rig_workload(&r, "a", 1000, 10));
        rig_apply(&r, rig_workload(&r, "a", 9000, 10));
        assert_non_null(rig_record(&r, "/tombstones/n1/a"));
        rig_apply(&r, rig_workload(&r, "a", 2000, 10)); /* waits for the old copy to go */
        r.by_hand = true;
        rig_is_gone(&r, "a", "n1");
        rig_tick(&r);                                   /* placed there again */
        rig_apply(&r, rig_workload(&r, "a", 9000, 10)); /* and away again */
        r.by_hand = false;
        rig_take(&r);
        assert_true(rig_count(&r, PB__EVENT_TYPE__E__UnitRemoved) == 1 &&
                    rig_count(&r, PB__EVENT_TYPE__E__Rescheduled) == 2);
        assert_non_null(rig_record(&r, "/tombstones/n1/a"));
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A3 A5 */
static void replies_and_orders_leave_with_the_commit_that_they_saw(void **state)
{
        (void)state;
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 100, NULL);
        r.by_hand = true;
        rig_apply(&r, rig_workload(&r, "a", 1000, 10));
        Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
        ref.id = "a";
        rig_ask(&r, INPUT_GET_WORKLOAD, &ref); /* a read of what is not yet committed */
        struct core_batch *b = core_cut(r.core);
        assert_non_null(b);
        assert_int_equal(b->commit.n_events, 2);
        assert_int_equal(b->n_replies, 2);
        assert_true(b->n_effects >= 1);
        for (size_t i = 0; i < b->n_effects; i++)
                assert_true(b->effects[i].seq <= b->commit.new_head);
        core_batch_free(b);
        assert_null(core_cut(r.core));
        rig_ask(&r, INPUT_GET_WORKLOAD, &ref);
        b = core_cut(r.core);
        /* nothing to commit, only to release in order */
        assert_int_equal(b->commit.expected_head, b->commit.new_head);
        assert_int_equal(b->n_replies, 1);
        core_batch_free(b);
        rig_fini(&r);
}

/* ---- bad records ---- */

static int try_load(struct core *c, const char *key, const ProtobufCMessage *m, struct err *err)
{
        size_t len = protobuf_c_message_get_packed_size(m);
        unsigned char *data = mem_must(len + 1);
        protobuf_c_message_pack(m, data);
        int r = core_load_record(c, key, data, len, err);
        mem_free(data);
        return r;
}

static Pb__Workload *stored_workload(struct rig *r, const char *id)
{
        struct err err;
        ProtobufCMessage *m;
        const struct rig_record *rec = rig_record(r, arena_printf(&r->memory, "/workloads/%s", id));
        assert_int_equal(
            pb_unpack_own(&pb__workload__descriptor, rec->data, rec->len, &r->memory, &m, &err), 0);
        return (Pb__Workload *)m;
}

static void break_workload(Pb__Workload *w, unsigned how)
{
        switch (how) {
        case 0:
                w->id = "";
                break;
        case 1:
                w->id = "other";
                break;
        case 2:
                w->status = NULL;
                break;
        case 3:
                w->metadata = NULL;
                break;
        case 4:
                w->type = 0;
                break;
        case 5:
                w->type = 77;
                break;
        case 6:
                w->desired_state = 0;
                break;
        case 7:
                w->desired_state = 9;
                break;
        case 8:
                w->status->phase = 0;
                break;
        case 9:
                w->status->phase = 55;
                break;
        case 10:
                w->status->phase = PB__PHASE__E__Deleting;
                break;
        case 11:
                w->assigned_node = "";
                break; /* runs nowhere */
        case 12:
                w->resources->cpu = -5;
                break;
        case 13:
                w->resources->memory_mb = INT64_MAX;
                break;
        case 14:
                w->resources->disk_gb = INT64_MAX / 2;
                break;
        case 15:
                w->placement->released = true;
                break;
        case 16:
                w->status->phase = PB__PHASE__E__Completed;
                break; /* and still holds */
        case 17:
                w->status->phase = PB__PHASE__E__Unknown;
                w->placement->released = true;
                break; /* which is only shown */
        default:
                fail();
        }
}

/* Starts a core with what was loaded into it and lets so many ticks pass. The state is sound all
 * the while; which: the case, for who reads a failure. */
static void live_on(struct core *c, int64_t now_ms, uint64_t head, unsigned ticks, int64_t tick_ms,
                    unsigned which)
{
        struct input in = { .kind = INPUT_START, .now_ms = now_ms, .head = head };
        for (unsigned i = 0; i <= ticks; i++) {
                struct err err = { 0 };
                struct core_batch *b;
                core_step(c, &in);
                if (core_check(c, &err) < 0)
                        fail_msg("case %u: %s %s", which, err.msg, err.detail);
                while ((b = core_cut(c)))
                        core_batch_free(b);
                in = (struct input){ .kind = INPUT_TICK, .now_ms = now_ms + i * tick_ms };
        }
}

/* R: C35 A9 */
static void a_bad_record_is_left_out_and_the_others_are_not(void **state)
{
        (void)state;
        struct rig r;
        busy(&r, NULL);
        for (unsigned how = 0; how <= 17; how++) {
                struct core *c = core_create(&r.opt);
                struct err err = { 0 };
                unsigned bad = 0;
                for (size_t i = 0; i < r.records.len; i++) {
                        struct rig_record *rec = &r.records.at[i];
                        int res;
                        if (strcmp(rec->key, "/workloads/w2") == 0) {
                                Pb__Workload *w = stored_workload(&r, "w2");
                                break_workload(w, how);
                                res = try_load(c, rec->key, &w->base, &err);
                        } else
                                res = core_load_record(c, rec->key, rec->data, rec->len, &err);
                        bad += res < 0;
                }
                if (bad != 1)
                        fail_msg("case %u: %u bad", how, bad);
                assert_int_equal(err.code, ERR_CORRUPT);
                assert_non_null(strstr(err.detail, "/workloads/w2"));
                live_on(c, r.now, r.head, 50, 10000, how); /* it can be lived with */
                core_destroy(c);
        }
        rig_fini(&r);
}

/* A draining node whose record or event does not say when that began, or says that it ended while a
 * unit is there: it drains, and the state is sound. */
/* R: C12 C35 */
static void a_drain_that_contradicts_its_node_goes_on(void **state)
{
        (void)state;
        struct rig r;
        struct err err = { 0 };
        ProtobufCMessage *m = NULL;
        busy(&r, NULL);
        const char *node = stored_workload(&r, "w2")->assigned_node;
        const char *key = arena_printf(&r.memory, "/nodes/%s", node);
        const struct rig_record *rec = rig_record(&r, key);
        assert_int_equal(
            pb_unpack_own(&pb__node__descriptor, rec->data, rec->len, &r.memory, &m, &err), 0);
        Pb__Node *record = (Pb__Node *)m;
        Pb__Drain drain = PB__DRAIN__INIT;
        Pb__Event e = PB__EVENT__INIT;
        e.type = PB__EVENT_TYPE__E__NodeWishChanged;
        e.node_id = record->id;
        e.wish = record->wish = PB__NODE_WISH__E__draining;
        e.drain = record->drain = &drain;
        record->status_updated_at = 0;
        for (unsigned how = 0; how < 6; how++) {
                struct core *c = core_create(&r.opt);
                bool event = how % 3 == 2;
                drain.finished_at = how < 3 ? r.now : 0;
                if (how % 3 == 0)
                        assert_int_equal(try_load(c, key, &record->base, &err), 0);
                for (size_t i = 0; i < r.records.len; i++)
                        if (strcmp(r.records.at[i].key, key) != 0 || event)
                                assert_int_equal(core_load_record(c, r.records.at[i].key,
                                                                  r.records.at[i].data,
                                                                  r.records.at[i].len, &err),
                                                 0);
                if (how % 3 == 1)
                        assert_int_equal(try_load(c, key, &record->base, &err), 0);
                if (event) {
                        size_t len;
                        core_loaded(c, r.head);
                        e.seq = r.head + 1;
                        void *data = pb_pack_arena(&r.memory, &e.base, &len);
                        assert_true(core_fold(c, data, len, &err) >= 0);
                }
                live_on(c, r.now, r.head + event, 0, 0, how);
                core_destroy(c);
        }
        rig_fini(&r);
}

/* R: C35 A9 */
static void garbage_under_any_key_is_left_out(void **state)
{
        (void)state;
        static const char *const keys[] = { "/meta/cluster",
                                            "/nodes/n1",
                                            "/workloads/a",
                                            "/tombstones/n1/a",
                                            "/tombstones/n1",
                                            "/tombstones/",
                                            "/nodes/",
                                            "/workloads/",
                                            "/future/thing",
                                            "/nodes/n1/status",
                                            "/assignments/a",
                                            "",
                                            "x" };
        struct rng g;
        rng_seed(&g, 3);
        struct core_options opt;
        core_options_default(&opt);
        struct core *c = core_create(&opt);
        for (int i = 0; i < 20000; i++) {
                unsigned char data[64];
                size_t len = rng_below(&g, sizeof(data));
                for (size_t k = 0; k < len; k++)
                        data[k] = (unsigned char)(rng_chance(&g, 300000) ? rng_below(&g, 20)
                                                                         : rng_next(&g));
                struct err err;
                core_load_record(c, keys[rng_below(&g, ARRAY_LEN(keys))], data, len, &err);
        }
        struct input in = { .kind = INPUT_START, .now_ms = RIG_START_MS, .head = 5 };
        core_step(c, &in);
        struct err err;
        if (core_check(c, &err) < 0)
                fail_msg("%s %s", err.msg, err.detail);
        core_destroy(c);
}

/* Real records with bytes changed: each either loads or is left out, and the state stays sound.  R:
 * C35 */
static void damaged_records_never_break_the_state(void **state)
{
        (void)state;
        struct rig r;
        busy(&r, NULL);
        struct rng g;
        rng_seed(&g, 4);
        for (unsigned round = 0; round < 300; round++) {
                struct core *c = core_create(&r.opt);
                struct err err;
                for (size_t i = 0; i < r.records.len; i++) {
                        struct rig_record *rec = &r.records.at[i];
                        unsigned char *data = mem_dup(rec->data, rec->len + !rec->len);
                        for (uint64_t hits = rng_below(&g, 3); hits && rec->len; hits--)
                                data[rng_below(&g, rec->len)] = (unsigned char)rng_next(&g);
                        core_load_record(c, rec->key, data, rec->len, &err);
                        mem_free(data);
                }
                live_on(c, r.now, r.head + 1000000, 30, 7000, round);
                core_destroy(c);
        }
        rig_fini(&r);
}

/* The same for events: a damaged one is an error, never a crash.  R: A9 C35 */
static void damaged_events_are_refused(void **state)
{
        (void)state;
        struct rig r;
        busy(&r, NULL);
        struct rng g;
        rng_seed(&g, 5);
        unsigned refused = 0;
        for (int round = 0; round < 300; round++) {
                struct core *c = core_create(&r.opt);
                struct err err = { 0 };
                int res = 0;
                for (size_t i = 0; i < r.events.len && res == 0; i++) {
                        unsigned char *data = mem_dup(r.events.at[i].data, r.events.at[i].len);
                        if (rng_chance(&g, 20000))
                                data[rng_below(&g, r.events.at[i].len)] =
                                    (unsigned char)rng_next(&g);
                        res = core_fold(c, data, r.events.at[i].len, &err);
                        mem_free(data);
                }
                refused += res < 0;
                if (res < 0)
                        assert_true(err.code == ERR_CORRUPT || err.code == ERR_CONFLICT);
                core_destroy(c);
        }
        assert_true(refused > 20);
        rig_fini(&r);
}

/* R: A4 */
static void events_fold_on_top_of_a_checkpoint(void **state)
{
        (void)state;
        struct rig r;
        busy(&r, NULL);
        uint64_t at = r.head;
        struct rig_record *copy = mem_must((r.records.len + 1) * sizeof(*copy));
        size_t n = r.records.len;
        for (size_t i = 0; i < n; i++)
                copy[i] =
                    (struct rig_record){ mem_strdup(r.records.at[i].key),
                                         mem_dup(r.records.at[i].data, r.records.at[i].len + 1 - 1),
                                         r.records.at[i].len };
        rig_advance(&r, 300000);
        rig_hello(&r, "n9", 8000, 8192, 10, NULL);
        assert_true(r.head > at);
        struct core *c = core_create(&r.opt);
        struct err err = { 0 };
        for (size_t i = 0; i < n; i++)
                assert_true(core_load_record(c, copy[i].key, copy[i].data, copy[i].len, &err) >= 0);
        core_loaded(c, at);
        /* a gap */
        assert_true(core_fold(c, r.events.at[at + 1].data, r.events.at[at + 1].len, &err) < 0);
        for (size_t i = at; i < r.events.len; i++)
                if (core_fold(c, r.events.at[i].data, r.events.at[i].len, &err) < 0)
                        fail_msg("%s %s", err.msg, err.detail);
        struct str a = STR_INIT, b = STR_INIT;
        core_dump(c, &a);
        core_dump(r.core, &b);
        assert_string_equal(str_c(&a), str_c(&b));
        str_fini(&a);
        str_fini(&b);
        core_destroy(c);
        for (size_t i = 0; i < n; i++) {
                mem_free(copy[i].key);
                mem_free(copy[i].data);
        }
        mem_free(copy);
        rig_fini(&r);
}

/* R: C1 */
static void a_node_may_be_called_status(void **state)
{
        (void)state;
        struct core_options opt;
        core_options_default(&opt);
        opt.index_records = true;
        struct rig r;
        rig_init(&r, &opt);
        rig_hello(&r, "status", 4000, 4096, 100, NULL);
        rig_apply(&r, rig_workload(&r, "status", 1000, 10));
        rig_restart(&r);
        assert_int_equal(rig_node(&r, "status")->resources->cpu_total, 4000);
        rig_check_replay(&r);
        rig_fini(&r);
}

/* R: A2 */
static void the_same_inputs_give_the_same_events_byte_for_byte(void **state)
{
        (void)state;
        struct rig a, b;
        busy(&a, NULL);
        busy(&b, NULL);
        assert_int_equal(a.events.len, b.events.len);
        for (size_t i = 0; i < a.events.len; i++) {
                assert_int_equal(a.events.at[i].len, b.events.at[i].len);
                assert_memory_equal(a.events.at[i].data, b.events.at[i].data, a.events.at[i].len);
        }
        rig_fini(&a);
        rig_fini(&b);
}

/* R: A10 */
static void fields_of_a_newer_berth_survive_where_records_pass_through(void **state)
{
        (void)state;
        /* field 2000: text */
        static const unsigned char extra[] = { 0x82, 0x7d, 5, 'n', 'e', 'w', 'e', 'r' };
        static const char *const keys[] = { "/workloads/a", "/nodes/n1", "/meta/cluster",
                                            "/quotas/t" };
        struct rig r;
        rig_init(&r, NULL);
        rig_hello(&r, "n1", 4000, 4096, 10, NULL);
        rig_apply(&r, rig_workload(&r, "a", 1000, 100));
        rig_runs(&r, "a");
        Pb__SetQuotaRequest q = PB__SET_QUOTA_REQUEST__INIT;
        Pb__Quota quota = PB__QUOTA__INIT;
        quota.tenant = "t";
        quota.workloads = 5;
        q.quota = &quota;
        rig_ask(&r, INPUT_QUOTA_SET, &q);
        for (size_t i = 0; i < ARRAY_LEN(keys); i++) { /* as a newer leader wrote them */
                struct rig_record *stored = (struct rig_record *)rig_record(&r, keys[i]);
                stored->data = mem_must_resize(stored->data, stored->len + sizeof(extra));
                memcpy((char *)stored->data + stored->len, extra, sizeof(extra));
                stored->len += sizeof(extra);
        }
        rig_restart(&r);
        rig_hello(&r, "n1", 5000, 4096, 10, "zone=a"); /* every one of them is written anew */
        rig_runs(&r, "a");
        rig_stop(&r, "a");
        quota.workloads = 6;
        rig_ask(&r, INPUT_QUOTA_SET, &q);
        rig_restored(&r);
        for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
                const struct rig_record *stored = rig_record(&r, keys[i]);
                if (!memmem(stored->data, stored->len, extra, sizeof(extra)))
                        fail_msg("%s lost a field", keys[i]);
        }
        rig_hello(&r, "n1", 5000, 4096, 10, "zone=a");
        rig_delete(&r, "a");
        rig_is_gone(&r, "a", "n1");
        rig_apply(&r, rig_workload(&r, "a", 1000, 100));
        const struct rig_record *anew = rig_record(&r, "/workloads/a");
        assert_null(memmem(anew->data, anew->len, extra, sizeof(extra)));
        rig_fini(&r);
}

/* R: C1 */
static void a_record_changed_by_hand_is_taken_over_put_back_or_removed(void **state)
{
        (void)state;
        struct rig r;
        busy(&r, NULL);
        rig_mark(&r);
        Pb__TouchedRecord t = PB__TOUCHED_RECORD__INIT;
        const struct {
                const char *key, *action;
        } cases[] = { { "/workloads/w0", "put-back" },    { "/workloads/nobody", "removed" },
                      { "/nodes/n2/status", "put-back" }, { "/nodes/nobody", "removed" },
                      { "/quotas/nobody", "removed" },    { "/tombstones/n2/nobody", "removed" },
                      { "/tombstones/nobody", "left" },   { "/meta/cluster", "put-back" },
                      { "/assignments/w0", "put-back" },  { "/somebody/elses", "left" },
                      { "/workloads/", "left" } };
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                t.key = (char *)cases[i].key;
                t.removed = i % 2;
                rig_say(&r, INPUT_TOUCHED, 0, &t, NULL);
                assert_string_equal(rig_last(&r, PB__EVENT_TYPE__E__RecordTouched)->record,
                                    cases[i].key);
                assert_string_equal(rig_last(&r, PB__EVENT_TYPE__E__RecordTouched)->action,
                                    cases[i].action);
        }
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__RecordTouched), ARRAY_LEN(cases));
        Pb__ApplyWorkloadRequest q = PB__APPLY_WORKLOAD_REQUEST__INIT;
        q.workload = rig_workload(&r, "w0", 500, 100);
        struct err err = { 0 };
        assert_int_equal(request_normalise(&r.memory, &q.base, &err), 0);
        t.key = "/workloads/w0";
        t.removed = false;
        t.apply = &q;
        rig_say(&r, INPUT_TOUCHED, 0, &t, NULL);
        assert_string_equal(rig_last(&r, PB__EVENT_TYPE__E__RecordTouched)->action, "taken-over");
        assert_int_equal(rig_count(&r, PB__EVENT_TYPE__E__WorkloadApplied), 1);
        rig_check_replay(&r);
        rig_fini(&r);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_record_changed_by_hand_is_taken_over_put_back_or_removed),
                cmocka_unit_test(fields_of_a_newer_berth_survive_where_records_pass_through),
                cmocka_unit_test(events_records_and_the_live_state_say_the_same),
                cmocka_unit_test(views_for_people_are_written_where_wanted_and_never_read),
                cmocka_unit_test(batches_are_cut_between_decisions),
                cmocka_unit_test(batches_are_cut_at_the_size_that_was_asked_for),
                cmocka_unit_test(batches_are_cut_when_they_have_many_bytes),
                cmocka_unit_test(long_texts_of_records_count_for_the_size_of_a_batch),
                cmocka_unit_test(nothing_spins_while_a_full_batch_waits),
                cmocka_unit_test(a_lost_node_is_noticed_however_much_is_asked_for),
                cmocka_unit_test(what_goes_and_comes_back_within_a_batch_is_written_once),
                cmocka_unit_test(a_tombstone_confirmed_and_left_again_within_a_batch_is_there),
                cmocka_unit_test(replies_and_orders_leave_with_the_commit_that_they_saw),
                cmocka_unit_test(a_bad_record_is_left_out_and_the_others_are_not),
                cmocka_unit_test(a_drain_that_contradicts_its_node_goes_on),
                cmocka_unit_test(garbage_under_any_key_is_left_out),
                cmocka_unit_test(damaged_records_never_break_the_state),
                cmocka_unit_test(damaged_events_are_refused),
                cmocka_unit_test(events_fold_on_top_of_a_checkpoint),
                cmocka_unit_test(a_node_may_be_called_status),
                cmocka_unit_test(the_same_inputs_give_the_same_events_byte_for_byte),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
