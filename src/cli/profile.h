/* cli/profile.h: which server this user means, and as whom:
 * ${XDG_CONFIG_HOME:-~/.config}/berth/config, written by berth login.
 *
 * One JSON object: the contexts by name, and which of them is in use. It holds tokens, so it is
 * 0600, and one that others can read or write, or that is somebody else's, is refused. A context's
 * token and certificate go to its own server and to no other.
 *
 * The other place where an address comes from without being asked for is ./.berth/server.address,
 * below whatever directory the user stands in: profile_trusts() says whether that was put there by
 * the user (or root), and not by somebody who shares the directory.
 */
#ifndef BERTH_CLI_PROFILE_H
#define BERTH_CLI_PROFILE_H

#include "base/arena.h"
#include "base/err.h"
#include "config.pb-c.h"

/* Where it is; NULL: neither XDG_CONFIG_HOME nor HOME is set. */
const char *profile_path(struct arena *arena);
/* An empty one if there is no file. ERR_DENIED: others can read or write it. */
int profile_read(struct arena *arena, Pb__Profile **ret, struct err *err);
int profile_write(struct arena *arena, const Pb__Profile *p, struct err *err);
/* name NULL: the one in use. NULL: there is none. */
Pb__ProfileContext *profile_find(const Pb__Profile *p, const char *name);

/* dir/name is a file of this user's or root's, in a directory of theirs that nobody else can write
 * to. False: why, in the arena; NULL if there is no such file at all. */
bool profile_trusts(struct arena *arena, const char *dir, const char *name, const char **ret_why);

#endif
