/* store/etcd_proof.c: that this process still leads, as proved by etcd.
 *
 * Three things look like a proof and are none. The lease goes on although its key is gone: somebody
 * removed the key, or put the store back. The watch that would tell is silent: it is on a member
 * that is alive and hears no other. No commit was refused: there was none. A proof is the answer of
 * a quorum: a linearizable read that shows our key, or a transaction that compared it. It is true
 * of some moment after its request left, and says nothing of any later one; so whoever relies on it
 * says how old it may be: the renewal of an agent's lease a term (docs/fencing.md), an answer about
 * what is so now no older than its question.
 *
 * It is asked for with every beat of the keep-alive, unless a commit has proved it since the last
 * one, and whenever somebody wants a younger one. One read is under way at a time; all who want one
 * meanwhile share the next.
 *
 * Invariants:
 *   (P1) proved_ns is never later than the moment at which a request left whose answer shows the
 *   key of led_revision. (P2) After etcd_prove() a read leaves that was not under way before.
 */
#include "base/clock.h"
#include "base/mutant.h"
#include "store/etcd_store.h"

void etcd_proof_init(struct etcd_proof *p)
{
        pthread_mutex_init(&p->lock, NULL);
}

void etcd_proof_fini(struct etcd_proof *p)
{
        pthread_mutex_destroy(&p->lock);
}

void etcd_proof_end(struct etcd_store *s)
{
        struct etcd_proof *p = &s->proof;
        pthread_mutex_lock(&p->lock);
        p->closed = true;
        etcd_request_free(TAKE_PTR(p->request));
        pthread_mutex_unlock(&p->lock);
}

void etcd_proof_note(struct etcd_store *s, int64_t sent_ns)
{
        int64_t before = atomic_load(&s->proof.proved_ns);
        while (sent_ns > before &&
               !atomic_compare_exchange_weak(&s->proof.proved_ns, &before, sent_ns))
                ;
}

/* What an answer shows: our key, or that it is gone. true: it is ours. */
static bool is_ours(struct etcd_store *s, const Etcd__RangeResponse *answer)
{
        int64_t led = s->led_revision;
        if (led && answer->n_kvs && answer->kvs[0]->create_revision == led)
                return true;
        etcd_lost_key(s, answer->header ? answer->header->revision : 0);
        return false;
}

static void answered(void *ctx);

/* With the lock held. */
static void ask(struct etcd_store *s)
{
        struct arena a = ARENA_INIT;
        struct str packed = STR_INIT;
        Etcd__RangeRequest range = ETCD__RANGE_REQUEST__INIT;
        range.key = etcd_bytes(etcd_key(s, &a, "/meta/leader"));
        str_reserve(&packed, etcd__range_request__get_packed_size(&range));
        packed.len = etcd__range_request__pack(&range, (uint8_t *)packed.buf);
        s->proof.request = etcd_request_send(s->client, "/etcdserverpb.KV/Range", &packed,
                                             ETCD_CALL_MS, ETCD_ANY_TIME, answered, s);
        arena_fini(&a);
}

/* From the client's thread. */
static void answered(void *ctx)
{
        struct etcd_store *s = ctx;
        struct etcd_proof *p = &s->proof;
        struct arena a = ARENA_INIT;
        ProtobufCMessage *m;
        pthread_mutex_lock(&p->lock);
        struct etcd_request *r = TAKE_PTR(p->request);
        bool again = p->again;
        if (r && etcd_request_answer(r, &etcd__range_response__descriptor, &a, &m, NULL) == 0 &&
            is_ours(s, (const Etcd__RangeResponse *)m))
                etcd_proof_note(s, etcd_request_sent_ns(r));
        etcd_request_free(r);
        p->again = false;
        if (r && again && s->led_revision && !p->closed)
                ask(s);
        pthread_mutex_unlock(&p->lock);
        arena_fini(&a);
        void (*on_proved)(void *) = atomic_load(&s->base.on_proved);
        if (r && on_proved)
                on_proved(s->base.on_proved_ctx);
}

void etcd_prove(struct store *base)
{
        struct etcd_store *s = etcd_self(base);
        struct etcd_proof *p = &s->proof;
        if (MUTANT(lead_not_proved))
                return;
        pthread_mutex_lock(&p->lock);
        if (p->request)
                p->again = true;
        else if (s->led_revision && !p->closed)
                ask(s);
        pthread_mutex_unlock(&p->lock);
}

/* From the client's thread, with every keep-alive. */
void etcd_proof_beat(void *ctx, int64_t every_ms)
{
        struct etcd_store *s = ctx;
        if (s->led_revision &&
            clock_steady_ns() - atomic_load(&s->proof.proved_ns) >= every_ms * 1000000 / 2)
                etcd_prove(&s->base);
}

int64_t etcd_proved_ns(struct store *base)
{
        struct etcd_store *s = etcd_self(base);
        if (MUTANT(answer_not_proved) || MUTANT(lead_not_proved))
                return s->led_revision ? INT64_MAX : 0;
        return s->led_revision ? atomic_load(&s->proof.proved_ns) : 0;
}

int64_t etcd_leads_until_ns(struct store *base)
{
        struct etcd_store *s = etcd_self(base);
        if (MUTANT(etcd_leader_not_compared) ||
            /* its own clock would hide for a while what is not compared */
            MUTANT(etcd_commit_not_fenced))
                return s->led_revision ? INT64_MAX : 0;
        int64_t lease = s->led_revision ? etcd_lease_valid_until_ns(s->client) : 0;
        int64_t proof = atomic_load(&s->proof.proved_ns) + s->proof.term_ns;
        int64_t until =
            lease < proof || MUTANT(lead_not_proved) || MUTANT(lead_by_lease_alone) ? lease : proof;
        return until > clock_steady_ns() ? until : 0;
}

bool etcd_lead_is_over(struct store *base)
{
        struct etcd_store *s = etcd_self(base);
        if (MUTANT(etcd_leader_not_compared) || MUTANT(etcd_commit_not_fenced))
                return !s->led_revision;
        if (!s->led_revision || !etcd_lease_valid_until_ns(s->client))
                return true;
        if (MUTANT(lead_not_proved) || MUTANT(lead_by_lease_alone))
                return false;
        return clock_steady_ns() - atomic_load(&s->proof.proved_ns) >
               ETCD_UNPROVED_TERMS * s->proof.term_ns;
}
