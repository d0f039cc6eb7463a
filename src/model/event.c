/* model/event.c: see event.h. The top level is read field by field; nested messages are skipped
 * by their length. */
#include "model/event.h"
#include "base/wire.h"
#include "events.pb-c.h"

/* What somebody with a name of his own did or read, and what lets machines and people in. What
 * strangers and nodes can cause as often as they like (AccessRefused, CertificateIssued,
 * UnitUnknown, ClaimRefused, NoticesSummed) is none of it: it could push out what they did. */
static const enum event_class classes[EVENT_TYPES_MAX] = {
        [PB__EVENT_TYPE__E__WorkloadExec] = EVENT_AUDIT,
        [PB__EVENT_TYPE__E__WorkloadLogsRead] = EVENT_AUDIT,
        [PB__EVENT_TYPE__E__TokenCreated] = EVENT_AUDIT,
        [PB__EVENT_TYPE__E__TokenRevoked] = EVENT_AUDIT,
        [PB__EVENT_TYPE__E__TokenUsed] = EVENT_AUDIT,
        [PB__EVENT_TYPE__E__TokenRemoved] = EVENT_AUDIT,
        [PB__EVENT_TYPE__E__NodeExpelled] = EVENT_AUDIT,
        [PB__EVENT_TYPE__E__NodeAdmitted] = EVENT_AUDIT,
        [PB__EVENT_TYPE__E__NodeGranted] = EVENT_AUDIT,
        [PB__EVENT_TYPE__E__NodeFenced] = EVENT_AUDIT,
        [PB__EVENT_TYPE__E__NodeAdopted] = EVENT_AUDIT,
        [PB__EVENT_TYPE__E__NodeTakenOver] = EVENT_AUDIT,
        [PB__EVENT_TYPE__E__UnitReleased] = EVENT_AUDIT,
        [PB__EVENT_TYPE__E__EvictionOrdered] = EVENT_AUDIT,
        [PB__EVENT_TYPE__E__RecordTouched] = EVENT_AUDIT,
        [PB__EVENT_TYPE__E__ClusterKeyChanged] = EVENT_AUDIT,
        [PB__EVENT_TYPE__E__StoreRestored] = EVENT_AUDIT,
};

static const char *const names[EVENT_CLASSES] = {
        [EVENT_LIFECYCLE] = "lifecycle", [EVENT_AUDIT] = "audit"
};

enum event_class event_class_of(uint32_t type)
{
        return type < EVENT_TYPES_MAX ? classes[type] : EVENT_LIFECYCLE;
}

const char *event_class_name(enum event_class class)
{
        return names[class];
}

enum {
        FIELD_SEQ = 1,
        FIELD_TYPE = 2,
        FIELD_TIMESTAMP = 3,
        FIELD_WORKLOAD_ID = 4,
        FIELD_NODE_ID = 5,
        FIELD_PREV = 11,
        FIELD_RULE = 25
};

static void take_text(struct event_peek *ret, uint64_t field, const uint8_t *p, size_t n)
{
        if (field == FIELD_WORKLOAD_ID) {
                ret->workload = (const char *)p;
                ret->workload_len = n;
        } else if (field == FIELD_NODE_ID) {
                ret->node = (const char *)p;
                ret->node_len = n;
        } else if (field == FIELD_RULE) {
                ret->rule = (const char *)p;
                ret->rule_len = n;
        }
}

static void take_number(struct event_peek *ret, uint64_t field, uint64_t v)
{
        if (field == FIELD_SEQ)
                ret->seq = v;
        else if (field == FIELD_TYPE)
                ret->type = (uint32_t)v;
        else if (field == FIELD_TIMESTAMP)
                ret->at_ms = (int64_t)v;
        else if (field == FIELD_PREV)
                ret->prev = v;
}

bool event_peek(const void *data, size_t len, struct event_peek *ret)
{
        const uint8_t *p = data, *end = p + len;
        *ret = (struct event_peek){ 0 };
        while (p < end) {
                uint64_t tag;
                struct wire_value v;
                if (!varint_take(&p, end, &tag) || !wire_take(&p, end, tag & 7, &v))
                        return false;
                if ((tag & 7) == WIRE_TYPE_VARINT)
                        take_number(ret, tag >> 3, v.n);
                else if ((tag & 7) == WIRE_TYPE_BYTES)
                        take_text(ret, tag >> 3, v.at, (size_t)v.n);
        }
        return true;
}

bool event_front(const void *data, size_t len, uint32_t *ret_type, int64_t *ret_at_ms)
{
        const uint8_t *p = data, *end = p + len;
        uint64_t tag, v;
        struct event_peek peek = { 0 };
        while (varint_take(&p, end, &tag) && (tag & 7) == WIRE_TYPE_VARINT &&
               varint_take(&p, end, &v)) {
                take_number(&peek, tag >> 3, v);
                if (tag >> 3 == FIELD_TIMESTAMP)
                        break;
        }
        bool whole = peek.type && peek.at_ms;
        if (!whole && !event_peek(data, len, &peek)) /* not as we write it */
                return false;
        *ret_type = peek.type;
        *ret_at_ms = peek.at_ms;
        return true;
}

uint32_t event_type(const void *data, size_t len)
{
        uint32_t type;
        int64_t at_ms;
        return event_front(data, len, &type, &at_ms) ? type : 0;
}
