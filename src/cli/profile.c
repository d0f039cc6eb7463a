/* cli/profile.c: see profile.h. */
#include "cli/profile.h"

#include "base/file.h"
#include "base/str.h"
#include "model/json.h"
#include "model/pb.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROFILE_MAX_BYTES (1024 * 1024)

static const char *config_dir(struct arena *arena)
{
        const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
        /* as the specification has it: a relative one counts for nothing */
        if (!str_empty(xdg) && xdg[0] == '/')
                return arena_printf(arena, "%s/berth", xdg);
        return str_empty(home) ? NULL : arena_printf(arena, "%s/.config/berth", home);
}

const char *profile_path(struct arena *arena)
{
        const char *dir = config_dir(arena);
        return dir ? arena_printf(arena, "%s/config", dir) : NULL;
}

static bool is_ours(const struct stat *st)
{
        return st->st_uid == geteuid() || st->st_uid == 0;
}

int profile_read(struct arena *arena, Pb__Profile **ret, struct err *err)
{
        const char *path = profile_path(arena);
        _cleanup_(str_finip) struct str text = STR_INIT;
        struct stat st;
        ProtobufCMessage *m = pb_new(arena, &pb__profile__descriptor);
        if (path && stat(path, &st) == 0) {
                if (!S_ISREG(st.st_mode) || !is_ours(&st) || (st.st_mode & 077))
                        return err_set(
                            err, ERR_DENIED,
                            .msg = fmt("%s is not used: it holds tokens, and is not yours alone",
                                       path),
                            .hint = fmt("look into it; then: chown \"$USER\" %s; chmod 600 %s",
                                        path, path));
                int r = file_read(path, PROFILE_MAX_BYTES, &text, err);
                if (r >= 0)
                        r = json_read(&pb__profile__descriptor, str_c(&text), text.len,
                                      PROFILE_MAX_BYTES, 0, arena, &m, err);
                if (r < 0)
                        return err_prefix(err, fmt("%s cannot be read", path));
        }
        *ret = (Pb__Profile *)m;
        return 0;
}

int profile_write(struct arena *arena, const Pb__Profile *p, struct err *err)
{
        const char *dir = config_dir(arena), *path = profile_path(arena);
        _cleanup_(str_finip) struct str text = STR_INIT;
        if (!dir)
                return err_set(err, ERR_FAILED, .msg = "there is no place for the profile",
                               .hint = "set HOME or XDG_CONFIG_HOME");
        char *up = arena_strdup(arena, dir);
        *strrchr(up, '/') = 0;
        if ((mkdir(up, 0700) < 0 && errno != EEXIST) || (mkdir(dir, 0700) < 0 && errno != EEXIST))
                return err_sys(err, errno, fmt("cannot make %s", dir));
        json_write(&text, &p->base, JSON_PRETTY);
        str_addc(&text, '\n');
        return file_write_atomic(path, str_c(&text), text.len, 0600, err);
}

Pb__ProfileContext *profile_find(const Pb__Profile *p, const char *name)
{
        const char *wanted = name ? name : p->current;
        for (size_t i = 0; i < p->n_contexts && !str_empty(wanted); i++)
                if (str_eq(p->contexts[i]->name, wanted))
                        return p->contexts[i];
        return NULL;
}

/* A link must be ours as well: somebody who shares the directory could let it point to another of
 * our own. */
static const char *wrong_with(const struct stat *link, const struct stat *st, mode_t kind,
                              const char *what)
{
        if (!is_ours(link) || !is_ours(st))
                return fmt("%s belongs to another user", what);
        if ((st->st_mode & S_IFMT) != kind)
                return fmt("%s is of another kind", what);
        return st->st_mode & 022 ? fmt("others can write to %s", what) : NULL;
}

bool profile_trusts(struct arena *arena, const char *dir, const char *name, const char **ret_why)
{
        const char *path = arena_printf(arena, "%s/%s", dir, name), *why = NULL;
        struct stat link, st;
        *ret_why = NULL;
        if (lstat(path, &link) < 0 || stat(path, &st) < 0)
                return false;
        why = wrong_with(&link, &st, S_IFREG, path);
        if (!why && (lstat(dir, &link) < 0 || stat(dir, &st) < 0))
                return false;
        if (!why)
                why = wrong_with(&link, &st, S_IFDIR, dir);
        *ret_why = why ? arena_strdup(arena, why) : NULL;
        return !why;
}
