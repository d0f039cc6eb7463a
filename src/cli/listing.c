/* cli/listing.c: see listing.h. */
#include "cli/listing.h"
#include "base/array.h"
#include "base/clock.h"
#include <stdlib.h>
#include <string.h>

struct pages {
        ProtobufCMessage **at;
        size_t len, cap;
};

/* node-9 before node-10: the order that people expect. */
static int by_node_id(const void *a, const void *b)
{
        return strverscmp((*(Pb__Node *const *)a)->id, (*(Pb__Node *const *)b)->id);
}

static int by_workload_id(const void *a, const void *b)
{
        return strverscmp((*(Pb__Workload *const *)a)->id, (*(Pb__Workload *const *)b)->id);
}

static void sort(struct listing *list, int (*order)(const void *a, const void *b))
{
        if (list->n)
                qsort(list->items, list->n, sizeof(*list->items), order);
}

static void finish(struct arena *arena, struct pages *p, struct listing *ret)
{
        ret->n = p->len;
        ret->items = arena_new_n(arena, ProtobufCMessage *, p->len + 1);
        if (p->len)
                memcpy(ret->items, p->at, p->len * sizeof(*p->at));
        array_fini(p);
}

static void add_page(struct pages *p, void *items, size_t n)
{
        ProtobufCMessage **all = items;
        for (size_t i = 0; i < n; i++)
                *array_push(p) = all[i];
}

static int32_t page_size(int64_t limit, size_t have)
{
        return limit > 0 && limit - (int64_t)have < LISTING_PAGE ? (int32_t)(limit - (int64_t)have)
                                                                 : LISTING_PAGE;
}

/* A field of a message by its name; NULL: it has none. */
static void *field_of(void *message, const char *name, size_t **ret_n)
{
        const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(
            ((ProtobufCMessage *)message)->descriptor, name);
        if (f && ret_n)
                *ret_n = (size_t *)((char *)message + f->quantifier_offset);
        return f ? (char *)message + f->offset : NULL;
}

int list_all(struct cli *cli, struct arena *arena, const char *method, ProtobufCMessage *q,
             const ProtobufCMessageDescriptor *answer, int64_t limit, struct listing *ret,
             struct err *err)
{
        struct pages pages = { 0 };
        struct listing list = { 0 };
        int32_t *size = field_of(q, "limit", NULL);
        const char **cursor = field_of(q, "cursor", NULL);
        must(size && cursor, "a list is asked for in pages, with limit and cursor");
        for (bool first = true;; first = false) {
                *size = page_size(limit, pages.len);
                void *page = client_call(cli, arena, method, q, answer, err);
                if (!page) {
                        array_fini(&pages);
                        return -(int)err->code;
                }
                size_t *n = NULL;
                void **items = field_of(page, "items", &n);
                char **next = field_of(page, "next_cursor", NULL);
                const uint64_t *version = field_of(page, "resource_version", NULL);
                must(items && n && next, "a page has items and next_cursor");
                if (first && version)
                        /* later pages are newer: their news come again, which does no harm */
                        list.version = *version;
                add_page(&pages, *items, *n);
                *cursor = *next;
                list.more = !str_empty(*cursor);
                if (!list.more || *n == 0 || (limit > 0 && (int64_t)pages.len >= limit))
                        break;
        }
        finish(arena, &pages, &list);
        *ret = list;
        return 0;
}

int list_workloads_all(struct cli *cli, struct arena *arena, Pb__ListWorkloadsRequest *q,
                       int64_t limit, struct listing *ret, struct err *err)
{
        int r = list_all(cli, arena, "ListWorkloads", &q->base,
                         &pb__list_workloads_response__descriptor, limit, ret, err);
        if (r == 0)
                sort(ret, by_workload_id);
        return r;
}

int list_nodes_all(struct cli *cli, struct arena *arena, Pb__ListNodesRequest *q, int64_t limit,
                   struct listing *ret, struct err *err)
{
        int r = list_all(cli, arena, "ListNodes", &q->base, &pb__list_nodes_response__descriptor,
                         limit, ret, err);
        if (r == 0)
                sort(ret, by_node_id);
        return r;
}

int list_events(struct cli *cli, struct arena *arena, Pb__ListEventsRequest *q, int64_t limit,
                struct listing *ret, struct err *err)
{
        struct pages pages = { 0 };
        struct listing list = { .version = q->since };
        q->newest_first = q->since == 0;
        q->follow = false;
        for (;;) {
                q->limit = page_size(limit, pages.len);
                Pb__ListEventsResponse *page = client_call(
                    cli, arena, "ListEvents", q, &pb__list_events_response__descriptor, err);
                if (!page) {
                        array_fini(&pages);
                        return -(int)err->code;
                }
                if (page->n_items == 0)
                        break;
                add_page(&pages, page->items, page->n_items);
                uint64_t last = page->items[page->n_items - 1]->seq;
                if (q->newest_first)
                        q->before = last;
                else
                        q->since = last;
                if (page->n_items < (size_t)q->limit || last <= 1)
                        break;
                if (limit > 0 && (int64_t)pages.len >= limit) {
                        list.more = true;
                        break;
                }
        }
        finish(arena, &pages, &list);
        if (q->newest_first)
                for (size_t i = 0; i < list.n / 2; i++) {
                        ProtobufCMessage *m = list.items[i];
                        list.items[i] = list.items[list.n - 1 - i];
                        list.items[list.n - 1 - i] = m;
                }
        if (list.n)
                list.version = ((Pb__Event *)list.items[list.n - 1])->seq;
        *ret = list;
        return 0;
}

/* The first event after since: 1 and *ret_at, 0 if there is none, < 0 on failure. */
static int first_after(struct cli *cli, uint64_t since, int64_t *ret_at, uint64_t *ret_head,
                       struct err *err)
{
        struct arena arena = ARENA_INIT;
        Pb__ListEventsRequest q = PB__LIST_EVENTS_REQUEST__INIT;
        q.since = since;
        q.limit = 1;
        Pb__ListEventsResponse *page =
            client_call(cli, &arena, "ListEvents", &q, &pb__list_events_response__descriptor, err);
        int r = !page ? -(int)err->code : page->n_items > 0;
        if (r == 1)
                *ret_at = page->items[0]->timestamp;
        if (page)
                *ret_head = page->head;
        arena_fini(&arena);
        return r;
}

int events_since(struct cli *cli, const char *text, uint64_t *ret_seq, struct err *err)
{
        int64_t ago_ms = 0, at_ms = 0;
        uint64_t head = 0;
        if (str_parse_u64(text, ret_seq) == 0)
                return 0;
        if (str_parse_duration_ms(text, &ago_ms) < 0)
                return err_set(err, ERR_INVALID, .msg = fmt("bad value '%s' for --since", text),
                               .detail = "expected a duration like 10m, or an event's number");
        int64_t from_ms = clock_wall_ms() - ago_ms;
        int r = first_after(cli, 0, &at_ms, &head, err);
        if (r <= 0 || at_ms >= from_ms) {
                *ret_seq = 0;
                return r < 0 ? r : 0;
        }
        /* the first event after low is too old; after high there is none */
        uint64_t low = 0, high = head;
        while (high - low > 1) {
                uint64_t middle = low + (high - low) / 2;
                r = first_after(cli, middle, &at_ms, &(uint64_t){ 0 }, err);
                if (r < 0)
                        return r;
                if (r == 1 && at_ms < from_ms)
                        low = middle;
                else
                        high = middle;
        }
        *ret_seq = high;
        return 0;
}
