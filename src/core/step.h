/* core/step.h: what deciding code has of a step: events, replies, effects, batches. */
#ifndef BERTH_CORE_STEP_H
#define BERTH_CORE_STEP_H

#include "core/state.h"

void emit(struct core *c, Pb__Event *e); /* stamps, packs, applies */
void apply_event(struct core *c, const Pb__Event *e);
void out_reset(struct core *c);
void reply_error(struct core *c, const struct err *err);
void reply_bytes(struct core *c, const ProtobufCMessageDescriptor *type, void *data, size_t len,
                 bool created);
void reply_message(struct core *c, const ProtobufCMessage *msg);
struct arena *reply_memory(struct core *c); /* of the batch that is being made */
void effect_add(struct core *c, enum effect_kind kind, uint64_t session, int64_t value, void *data,
                size_t len);
void decision_done(struct core *c);
/* A whole list says nothing about orders that its agent had not seen. */
bool has_seen_orders(const struct core *c, const struct node *n, const Pb__Cursor *applied);
bool step_is_full(const struct core *c); /* enough for one step: leave the rest for the next */
int check_index(struct core *c,
                /* of a plan; < 0: something was decided since, and the caller has been told; 0:
                 * none was given */
                uint64_t index);
void text_set(char **field, const char *text); /* owned copy; "" and NULL become NULL */

#endif
