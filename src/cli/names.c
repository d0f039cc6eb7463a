/* cli/names.c: see names.h. */
#include "cli/names.h"
#include "cli/listing.h"
#include <string.h>

#define SUGGEST_FROM 5000 /* names that are looked at for a suggestion */

int name_pick(const char *kind, const char *word, const char *const *ids, size_t n, bool more,
              const char **ret_id, struct err *err)
{
        const char *found[NAME_AMBIGUOUS_SHOWN] = { NULL };
        size_t n_found = 0;
        for (size_t i = 0; i < n; i++) {
                if (str_eq(ids[i], word)) {
                        *ret_id = ids[i];
                        return 0;
                }
                if (!str_starts(ids[i], word))
                        continue;
                if (n_found < NAME_AMBIGUOUS_SHOWN)
                        found[n_found] = ids[i];
                n_found++;
        }
        if (n_found == 0)
                return err_set(err, ERR_NOT_FOUND, .msg = fmt("no %s '%s'", kind, word));
        if (n_found == 1 && !more) {
                *ret_id = found[0];
                return 0;
        }
        _cleanup_(str_finip) struct str list = STR_INIT;
        for (size_t i = 0; i < n_found && i < NAME_AMBIGUOUS_SHOWN; i++)
                str_addf(&list, "%s%s", i ? ", " : "", found[i]);
        if (n_found > NAME_AMBIGUOUS_SHOWN || more)
                str_adds(&list, ", ...");
        return err_set(err, ERR_INVALID, .msg = fmt("'%s' could be several %ss", word, kind),
                       .detail = str_c(&list), .hint = "give more of the name");
}

/* ---- arguments ---- */

/* "workload/hello" -> kind and rest; a word without a slash has no kind. */
static const char *split(struct arena *arena, const char *word, const char **ret_name)
{
        const char *slash = strchr(word, '/');
        *ret_name = slash ? slash + 1 : word;
        return slash ? arena_strndup(arena, word, (size_t)(slash - word)) : NULL;
}

int names_with_kind(const struct cli *cli, struct arena *arena, const char *default_kind,
                    const struct args *args, const char **ret_kind, struct text_list *ret_names,
                    struct err *err)
{
        struct text_list names = { .at = arena_new_n(arena, const char *, args->n + 1) };
        const char *kind = NULL;
        size_t i = 0;

        /* A lone word is a name, even if it is also the word for a kind. */
        if (args->n > 1 && !strchr(args->at[0], '/') && kind_of(args->at[0]))
                kind = kind_of(args->at[i++]);
        for (; i < args->n; i++) {
                const char *name, *prefix = split(arena, args->at[i], &name);
                const char *own = prefix ? kind_of(prefix) : NULL;
                if (prefix && !own)
                        return usage_error(cli, err, "'%s' is no kind of thing: workload or node",
                                           prefix);
                if (own && kind && own != kind)
                        return usage_error(cli, err, "one kind at a time: %s and %s", kind, own);
                if (own)
                        kind = own;
                if (str_empty(name))
                        return usage_error(cli, err, "'%s' names nothing", args->at[i]);
                names.at[names.n++] = name;
        }
        *ret_kind = kind ? kind : default_kind;
        *ret_names = names;
        return 0;
}

int names_of_kind(const struct cli *cli, struct arena *arena, const char *kind,
                  const struct args *args, struct text_list *ret_names, struct err *err)
{
        const char *given = NULL;
        struct text_list names = { 0 };
        int r = names_with_kind(cli, arena, kind, args, &given, &names, err);
        if (r < 0)
                return r;
        if (!str_eq(given, kind))
                return usage_error(cli, err, "%s works on %ss, not on %ss",
                                   cli->verb ? cli->verb->name : "this", kind, given);
        if (names.n == 0)
                return usage_error(cli, err, "which %s?", kind);
        *ret_names = names;
        return 0;
}

/* ---- asking the server ---- */

Pb__Workload *workload_by_id(struct cli *cli, struct arena *arena, const char *id, struct err *err)
{
        Pb__WorkloadRef ref = PB__WORKLOAD_REF__INIT;
        ref.id = (char *)id;
        return client_call(cli, arena, "GetWorkload", &ref, &pb__workload__descriptor, err);
}

Pb__Node *node_by_id(struct cli *cli, struct arena *arena, const char *id, struct err *err)
{
        Pb__NodeRef ref = PB__NODE_REF__INIT;
        ref.id = (char *)id;
        return client_call(cli, arena, "GetNode", &ref, &pb__node__descriptor, err);
}

/* Those that begin with prefix, and their ids, which end with NULL. */
static int list(struct cli *cli, struct arena *arena, bool nodes, const char *prefix, int64_t limit,
                struct listing *ret, const char ***ret_ids, struct err *err)
{
        Pb__ListNodesRequest n = PB__LIST_NODES_REQUEST__INIT;
        Pb__ListWorkloadsRequest w = PB__LIST_WORKLOADS_REQUEST__INIT;
        n.prefix = w.prefix = (char *)prefix;
        int r = nodes ? list_nodes_all(cli, arena, &n, limit, ret, err)
                      : list_workloads_all(cli, arena, &w, limit, ret, err);
        if (r < 0)
                return r;
        *ret_ids = arena_new_n(arena, const char *, ret->n + 1);
        for (size_t i = 0; i < ret->n; i++)
                (*ret_ids)[i] = nodes ? ((const Pb__Node *)ret->items[i])->id
                                      : ((const Pb__Workload *)ret->items[i])->id;
        return 0;
}

/* The exact id was not found: perhaps it is the beginning of one. */
static void *by_prefix(struct cli *cli, struct arena *arena, bool nodes, const char *word,
                       struct err *err)
{
        const char *kind = nodes ? "node" : "workload", **ids, *id = NULL;
        struct listing found;
        if (list(cli, arena, nodes, word, NAME_AMBIGUOUS_SHOWN + 1, &found, &ids, err) < 0)
                return NULL;
        int r = name_pick(kind, word, ids, found.n, found.more, &id, err);
        if (r == 0)
                for (size_t i = 0; i < found.n; i++)
                        if (ids[i] == id)
                                return found.items[i];
        if (r != -ERR_NOT_FOUND)
                return NULL;
        struct err ignored = { 0 };
        const char *near = list(cli, arena, nodes, "", SUGGEST_FROM, &found, &ids, &ignored) == 0
                               ? str_suggest(word, ids)
                               : NULL;
        err_set(err, ERR_NOT_FOUND, .msg = fmt("no %s '%s'", kind, word),
                .hint = near ? fmt("did you mean %s?", near)
                             : fmt("berth get %ss lists what there is", kind));
        return NULL;
}

/* The words that a server would refuse as an id cannot be the beginning of one either; its own
 * error says why. */
static bool is_plain(const char *word)
{
        return !str_empty(word) && strlen(word) <= 128 &&
               strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
                   strlen(word);
}

Pb__Workload *workload_named(struct cli *cli, struct arena *arena, const char *word,
                             struct err *err)
{
        Pb__Workload *w = workload_by_id(cli, arena, word, err);
        if (w || (err->code != ERR_NOT_FOUND && err->code != ERR_INVALID) || !is_plain(word))
                return w;
        return by_prefix(cli, arena, false, word, err);
}

Pb__Node *node_named(struct cli *cli, struct arena *arena, const char *word, struct err *err)
{
        Pb__Node *n = node_by_id(cli, arena, word, err);
        if (n || (err->code != ERR_NOT_FOUND && err->code != ERR_INVALID) || !is_plain(word))
                return n;
        return by_prefix(cli, arena, true, word, err);
}

int node_calls(struct cli *cli, const struct text_list *names, const char *method, const char *done,
               struct err *err)
{
        for (size_t i = 0; i < names->n; i++) {
                Pb__NodeRef ref = PB__NODE_REF__INIT;
                const Pb__Node *n = node_named(cli, &cli->arena, names->at[i], err);
                if (!n)
                        return -(int)err->code;
                ref.id = n->id;
                if (!client_call(cli, &cli->arena, method, &ref, &pb__node__descriptor, err))
                        return -(int)err->code;
                cli_out(cli, "node/%s%s\n", n->id, done);
        }
        return 0;
}
