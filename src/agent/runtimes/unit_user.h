/* agent/runtimes/unit_user.h: a user of its own for every unit (A14).
 *
 * Units that the server confines, on an agent that runs as root, get a number from the agent's
 * range (--unit-users): one shared user would let units read one another. A unit keeps its number
 * as long as its directory is there; it is noted in <dir>/user, and <dir>/home is its own. The
 * first choice follows from the names of node and unit, so that a number is seldom used again for
 * another unit, whose files may still lie about.
 *
 * Agents on one machine need ranges of their own. Everything else in the unit's directory stays the
 * agent's: a unit must not be able to change what the agent trusts.
 */
#ifndef BERTH_AGENT_UNIT_USER_H
#define BERTH_AGENT_UNIT_USER_H

#include "base/err.h"

#define UNIT_USERS_DEFAULT "200000-265535"

struct unit_users {
        uint32_t first, last; /* last < first: there are none */
        bool off;             /* because somebody said so: units are not confined at all */
        uint8_t *taken;       /* a bit per number */
};

/* "200000-265535" or "none"; NULL is none. */
int unit_users_parse(const char *text, struct unit_users *ret, struct err *err);
/* Which numbers the units below units_dir have. Not root: nothing, the range is emptied. */
void unit_users_load(struct unit_users *u, const char *units_dir);
void unit_users_fini(struct unit_users *u);
bool unit_users_has(const struct unit_users *u, uint32_t uid);

/* For a start: the unit's number, and its home. 0 with *ret 0: there are no numbers here. */
int unit_user_assign(struct unit_users *u, const char *node_id, const char *unit_id,
                     const char *dir, uint32_t *ret, struct err *err);
void unit_user_release(struct unit_users *u, const char *dir); /* before the directory goes */

/* For whoever launches: the number that is noted; 0: none. */
uint32_t unit_user_read(const char *dir);

#endif
