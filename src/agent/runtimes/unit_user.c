/* agent/runtimes/unit_user.c: see unit_user.h. */
#include "agent/runtimes/unit_user.h"
#include "agent/runtimes/unit_files.h"
#include "base/file.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/str.h"
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RANGE_MAX (1u << 20)

int unit_users_parse(const char *text, struct unit_users *ret, struct err *err)
{
        const char *dash = text ? strchr(text, '-') : NULL;
        char first[16];
        uint64_t a, b;

        *ret = (struct unit_users){ .first = 1, .last = 0, .off = !text || str_eq(text, "none") };
        if (ret->off)
                return 0;
        if (dash && (size_t)(dash - text) < sizeof(first)) {
                memcpy(first, text, (size_t)(dash - text));
                first[dash - text] = 0;
                if (str_parse_u64(first, &a) == 0 && str_parse_u64(dash + 1, &b) == 0 &&
                    a >= 1000 && a <= b && b < UINT32_MAX && b - a < RANGE_MAX) {
                        *ret = (struct unit_users){ .first = (uint32_t)a, .last = (uint32_t)b };
                        return 0;
                }
        }
        return err_set(err, ERR_INVALID, .msg = fmt("'%.60s' is no range of users for units", text),
                       .detail = fmt("two numbers from 1000 on, at most %u apart", RANGE_MAX),
                       .hint = "such as --unit-users " UNIT_USERS_DEFAULT
                               "; none: units run as the agent does");
}

bool unit_users_has(const struct unit_users *u, uint32_t uid)
{
        return u->first <= u->last && uid >= u->first && uid <= u->last;
}

static void set(struct unit_users *u, uint32_t uid, bool taken)
{
        uint32_t i = uid - u->first;

        if (taken)
                u->taken[i / 8] |= (uint8_t)(1u << (i % 8));
        else
                u->taken[i / 8] &= (uint8_t) ~(1u << (i % 8));
}

static bool is_taken(const struct unit_users *u, uint32_t uid)
{
        uint32_t i = uid - u->first;

        return u->taken[i / 8] & (1u << (i % 8));
}

uint32_t unit_user_read(const char *dir)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        char digits[16] = "";
        uint64_t uid;

        if (file_read(fmt("%s/user", dir), 64, &text, NULL) < 0)
                return 0;
        strncpy(digits, str_c(&text), sizeof(digits) - 1);
        digits[strcspn(digits, "\n")] = 0;
        return str_parse_u64(digits, &uid) == 0 && uid < UINT32_MAX ? (uint32_t)uid : 0;
}

void unit_users_load(struct unit_users *u, const char *units_dir)
{
        DIR *dir;

        if (geteuid() != 0)
                *u = (struct unit_users){ .first = 1, .last = 0, .off = u->off };
        if (u->first > u->last)
                return;
        u->taken = mem_must((u->last - u->first) / 8 + 1);
        dir = opendir(units_dir);
        for (struct dirent *e; dir && (e = readdir(dir));) {
                uint32_t uid =
                    e->d_name[0] == '.' ? 0 : unit_user_read(fmt("%s/%s", units_dir, e->d_name));

                if (uid && unit_users_has(u, uid))
                        set(u, uid, true);
        }
        if (dir)
                closedir(dir);
}

void unit_users_fini(struct unit_users *u)
{
        mem_free(u->taken);
        u->taken = NULL;
}

static int choose(struct unit_users *u, const char *node_id, const char *unit_id, uint32_t *ret,
                  struct err *err)
{
        _cleanup_(str_finip) struct str name = STR_INIT;
        uint32_t n = u->last - u->first + 1;

        str_addf(&name, "%s/%s", node_id, unit_id);
        uint32_t at = (uint32_t)(hash64(str_c(&name), name.len) % n);
        for (uint32_t i = 0; i < n; i++) {
                uint32_t uid = u->first + (at + i) % n;

                if (!is_taken(u, uid)) {
                        *ret = uid;
                        return 0;
                }
        }
        return err_set(err, ERR_LIMIT, .msg = "there is no user left for this unit",
                       .detail = fmt("%u-%u", u->first, u->last),
                       .hint = "give the agent a wider range: --unit-users FIRST-LAST");
}

/* Others may go through, and see nothing. */
static void let_through(const char *path)
{
        struct stat st;

        if (stat(path, &st) == 0 && !(st.st_mode & S_IXOTH))
                (void)chmod(path, (st.st_mode & 07777) | S_IXOTH);
}

static int make_home(const char *dir, uint32_t uid, struct err *err)
{
        _cleanup_(mem_freep) char *home = mem_strdup(fmt("%s/home", dir)),
                                  *units = mem_strdup(fmt("%s/..", dir)),
                                  *data = mem_strdup(fmt("%s/../..", dir));
        int r = dir_make(home, 0700, err);

        if (r < 0)
                return r;
        if (lchown(home, uid, uid) < 0)
                return err_sys(err, errno, fmt("cannot give %s to user %u", home, uid));
        let_through(dir);
        let_through(units);
        let_through(data);
        return 0;
}

int unit_user_assign(struct unit_users *u, const char *node_id, const char *unit_id,
                     const char *dir, uint32_t *ret, struct err *err)
{
        uint32_t uid = unit_user_read(dir);
        const char *text;
        int r = 0;

        *ret = 0;
        if (u->first > u->last)
                return 0;
        if (!uid) {
                r = choose(u, node_id, unit_id, &uid, err);
                if (r < 0)
                        return r;
                text = fmt("%u\n", uid);
                r = file_replace(fmt("%s/user", dir), text, strlen(text), 0600, err);
                if (r < 0)
                        return r;
        }
        if (unit_users_has(u, uid)) /* it may be of an earlier range: it keeps it */
                set(u, uid, true);
        *ret = uid;
        return make_home(dir, uid, err);
}

void unit_user_release(struct unit_users *u, const char *dir)
{
        uint32_t uid = u->first > u->last ? 0 : unit_user_read(dir);

        if (uid && unit_users_has(u, uid))
                set(u, uid, false);
}
