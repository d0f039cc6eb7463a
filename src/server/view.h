/* server/view.h: what is committed, to be read while the store takes no commits. The ring thread's.
 * Internal.
 *
 * docs/decisions/reads-while-the-store-is-away.md says why it is loaded from the store.
 */
#ifndef BERTH_SERVER_VIEW_H
#define BERTH_SERVER_VIEW_H

#include "server/shared.h"

struct view;
/* Reads the store. Never fails: a store that cannot be read either makes a view that answers so,
 * and tries again now and then. */
struct view *view_open(struct server *s, const struct core *live);
void view_close(struct view *v); /* NULL is fine */
/* Answers reads; the messages stay the caller's. */
void view_answer(struct view *v, struct server *s, struct ring_msg *const *msgs, size_t n,
                 int64_t now_ms);

#endif
