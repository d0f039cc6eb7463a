/* core/restore.h: what a restore forgot. See restore.c. */
#ifndef BERTH_CORE_RESTORE_H
#define BERTH_CORE_RESTORE_H

#include "core/state.h"

/* Given out by a state that a restore forgot: newer than whatever the records say. */
bool token_is_lost(const struct core *c, uint64_t epoch, uint64_t seq);
void lost_add(struct core *c, const Pb__LostSpan *span);
void lost_record(const struct core *c, struct arena *a, Pb__Cluster *r);
/* Epochs only grow (E1), by one or to the time in ms. Whoever names a larger one makes it up, and
 * it could not grow any more. */
#define EPOCH_MAX (UINT64_C(1) << 62)
#define EPOCH_KEPT_MAX (EPOCH_MAX + UINT32_MAX) /* in records: it grew since */
bool lost_is_sane(const Pb__Cluster *m);
/* Has the server ordered a newer start of it than this copy? */
bool order_is_newer(const struct unit *w, uint64_t epoch, uint64_t seq);
bool unit_is_ahead(const struct core *c, const struct unit *w, const Pb__UnitStatus *u);
void decide_ahead(struct core *c, struct unit_ix ix, const Pb__UnitStatus *u);
bool order_is_doubtful(const struct core *c, const struct unit *w);
bool still_listening(const struct core *c, const struct unit *w);
void decide_restored(struct core *c, const struct input *in);
const char *wrong_restore(struct core *c, const Pb__Event *e);
void apply_restored(struct core *c, const Pb__Event *e);

#endif
