/* cli/plan.c: berth plan: what would happen, before it does.
 *
 * The server answers with its real core on a copy of its state. The index that comes with the
 * answer makes "do what I saw" safe: apply, delete and drain with --check-index refuse if anything
 * was decided since.
 */
#include "cli/plan.h"

#include "cli/client.h"
#include "cli/kinds.h"
#include "cli/names.h"
#include "cli/output.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define EXIT_CHANGES 2

struct plan_options {
        struct output_options output;
        struct text_list files;
        const char *like;
        int64_t count;
        bool detailed;
};

static const struct plan_options defaults = { .count = 1 };

static const struct opt rows[] = {
        OPT(struct plan_options, OPT_LIST, files, .letter = 'f', .name = "file", .arg = "FILE",
            .completes = 'f', .help = "apply: YAML or JSON, - for standard input; may be repeated"),
        OPT(struct plan_options, OPT_TEXT, like, .name = "like", .arg = "NODE", .completes = 'n',
            .help = "add-node: new nodes have what this one has"),
        OPT(struct plan_options, OPT_INT, count, .name = "count", .arg = "N", .min = 1,
            .max = 10000, .help = "add-node: how many (1)"),
        OPT(struct plan_options, OPT_FLAG, detailed, .name = "detailed-exitcode",
            .help = "exit with 2 if anything would change, 0 if nothing would"),
        OUTPUT_ROWS(struct plan_options, output),
};

/* ---- showing ---- */

static const struct look {
        const char *what, *mark;
        enum tint tint;
} looks[] = {
        { "create", "+", TINT_GOOD }, { "start", "+", TINT_GOOD },  { "update", "~", TINT_BUSY },
        { "move", "->", TINT_BUSY },  { "pending", "!", TINT_BAD }, { "preempt", "!", TINT_BAD },
        { "blocked", "!", TINT_BAD }, { "refused", "!", TINT_BAD }, { "stop", "-", TINT_DIM },
        { "delete", "-", TINT_BAD },
};

static const struct look *look_of(const char *what)
{
        static const struct look other = { "", "*", TINT_NONE };
        for (size_t i = 0; i < ARRAY_LEN(looks); i++)
                if (str_eq(looks[i].what, what))
                        return &looks[i];
        return &other;
}

static const char *with_reason(const Pb__PlanChange *c)
{
        return c->reason && c->reason != PB__REASON__E__placed &&
                       c->reason != PB__REASON__E__deleted
                   ? fmt(" (%s)", reason_name(c->reason))
                   : "";
}

static const char *words(const Pb__PlanChange *c)
{
        const char *from = str_empty(c->from_node) ? "nowhere" : c->from_node,
                   *to = str_empty(c->to_node) ? "nowhere" : c->to_node;
        if (str_eq(c->what, "create"))
                return str_empty(c->to_node) ? "created" : fmt("created on %s", to);
        if (str_eq(c->what, "start"))
                return fmt("starts on %s; it waited", to);
        if (str_eq(c->what, "update"))
                return fmt("updated on %s", to);
        if (str_eq(c->what, "move"))
                return fmt("moves from %s to %s%s", from, to, with_reason(c));
        if (str_eq(c->what, "pending"))
                return fmt("would be pending%s%s%s%s", with_reason(c),
                           str_empty(c->from_node) ? "" : fmt(", now on %s", from),
                           str_empty(c->detail) ? "" : ": ", c->detail);
        if (str_eq(c->what, "blocked"))
                return fmt("runs on there, on %s: no other node can take it%s%s", from,
                           str_empty(c->detail) ? "" : "; ", c->detail);
        if (str_eq(c->what, "preempt"))
                return fmt("makes room on %s for a higher priority, and would be pending%s%s", from,
                           str_empty(c->detail) ? "" : ": ", c->detail);
        if (str_eq(c->what, "delete"))
                return str_empty(c->from_node) ? "removed" : fmt("removed from %s", from);
        if (str_eq(c->what, "stop"))
                return fmt("stopped on %s%s", from, with_reason(c));
        return fmt("%s%s%s", c->what, str_empty(c->detail) ? "" : ": ", c->detail);
}

static void print_changes(const struct cli *cli, const Pb__PlanResponse *p, struct str *out)
{
        for (size_t i = 0; i < p->n_changes; i++) {
                const Pb__PlanChange *c = p->changes[i];
                const struct look *l = look_of(c->what);
                str_addf(out, "%s%2s%s ", tint_on(&cli->out, l->tint), l->mark,
                         tint_off(&cli->out, l->tint));
                text_clean(out, c->workload_id);
                str_addc(out, ' ');
                text_clean(out, words(c));
                str_addc(out, '\n');
        }
        if ((size_t)p->changes_in_all > p->n_changes)
                str_addf(out, "   ... and %zu more\n", (size_t)p->changes_in_all - p->n_changes);
}

static const char *share(const Pb__NodeResources *before, const Pb__NodeResources *after,
                         size_t total, size_t allocated)
{
        const Pb__NodeResources *both[] = { before, after };
        const char *texts[2];
        for (int i = 0; i < 2; i++) {
                int64_t all = both[i] ? *(const int64_t *)((const char *)both[i] + total) : 0;
                int64_t used = both[i] ? *(const int64_t *)((const char *)both[i] + allocated) : 0;
                texts[i] = all > 0 ? fmt("%" PRId64 "%%", used * 100 / all) : "-";
        }
        return str_eq(texts[0], texts[1]) ? texts[0] : fmt("%s -> %s", texts[0], texts[1]);
}

#define SHARE(n, what)                                                                             \
        share((n)->before, (n)->after, offsetof(Pb__NodeResources, what##_total),                  \
              offsetof(Pb__NodeResources, what##_allocated))

static void print_nodes(const struct cli *cli, const Pb__PlanResponse *p, struct str *out)
{
        static const struct table_column columns[] = {
                { .title = "NODE", .weight = 9 },
                { .title = "WHAT" },
                { .title = "UNITS" },
                { .title = "CPU" },
                { .title = "MEMORY" },
                { .title = "DISK" },
        };
        if (!p->n_nodes)
                return;
        _cleanup_(table_destroyp) struct table *t = table_create(columns, ARRAY_LEN(columns));
        for (size_t i = 0; i < p->n_nodes; i++) {
                const Pb__PlanNode *n = p->nodes[i];
                table_add(t, n->node_id, TINT_NONE);
                table_add(t, n->what, str_eq(n->what, "lost") ? TINT_BAD : TINT_BUSY);
                if (n->units_before == n->units_after)
                        table_addf(t, TINT_NONE, "%d", n->units_after);
                else
                        table_addf(t, TINT_NONE, "%d -> %d", n->units_before, n->units_after);
                table_add(t, SHARE(n, cpu), TINT_NONE);
                table_add(t, SHARE(n, memory), TINT_NONE);
                table_add(t, SHARE(n, disk), TINT_NONE);
        }
        str_addc(out, '\n');
        table_print(t, &(struct table_style){ .term = &cli->out }, out);
}

void plan_print(const struct cli *cli, const Pb__PlanResponse *p, struct str *out)
{
        print_changes(cli, p, out);
        print_nodes(cli, p, out);
        if (out->len)
                str_addc(out, '\n');
        text_clean(out, p->summary);
        str_addc(out, '\n');
        for (size_t i = 0; i < p->n_warnings; i++) {
                str_addf(out, "%swarning:%s ", tint_on(&cli->out, TINT_BUSY),
                         tint_off(&cli->out, TINT_BUSY));
                text_clean(out, p->warnings[i]);
                str_addc(out, '\n');
        }
}

int plan_confirm(struct cli *cli, const char *question, struct err *err)
{
        int fd = open("/dev/tty", O_RDWR | O_CLOEXEC);
        char answer[16] = { 0 };
        (void)cli;
        if (fd < 0)
                return err_set(err, ERR_INVALID, .msg = "there is no terminal to ask on",
                               .hint = "--yes goes on without asking; or look with berth plan, "
                                       "then use --check-index");
        struct str text = STR_INIT;
        str_addf(&text, "%s [y/N] ", question);
        bool asked = write(fd, str_c(&text), text.len) == (ssize_t)text.len;
        ssize_t n = asked ? read(fd, answer, sizeof(answer) - 1) : 0;
        str_fini(&text);
        close(fd);
        return n > 0 && (answer[0] == 'y' || answer[0] == 'Y');
}

/* ---- asking ---- */

Pb__PlanResponse *plan_ask(struct cli *cli, const Pb__PlanRequest *request, struct err *err)
{
        return client_call(cli, &cli->arena, "Plan", request, &pb__plan_response__descriptor, err);
}

Pb__PlanResponse *plan_ask_apply(struct cli *cli, const struct manifests *items, struct err *err)
{
        Pb__PlanRequest q = PB__PLAN_REQUEST__INIT;
        q.apply = arena_new_n(&cli->arena, Pb__Workload *, items->len + 1);
        for (size_t i = 0; i < items->len; i++)
                q.apply[q.n_apply++] = items->at[i].workload;
        return plan_ask(cli, &q, err);
}

static int resolve(struct cli *cli, const struct args *args, bool nodes, char ***ret, size_t *ret_n,
                   struct err *err)
{
        char **ids = arena_new_n(&cli->arena, char *, args->n);
        size_t n = 0;
        for (size_t i = 1; i < args->n; i++) {
                Pb__Node *node = nodes ? node_named(cli, &cli->arena, args->at[i], err) : NULL;
                Pb__Workload *w = nodes ? NULL : workload_named(cli, &cli->arena, args->at[i], err);
                if (!node && !w)
                        return -(int)err->code;
                ids[n++] = node ? node->id : w->id;
        }
        *ret = ids;
        *ret_n = n;
        return 0;
}

/* The question in words -> the request. */
static int question(struct cli *cli, const struct plan_options *o, const struct args *args,
                    struct manifests *items, Pb__PlanRequest *q, struct err *err)
{
        const char *verb = args->n ? args->at[0] : "";
        char **ids = NULL;
        size_t n = 0;
        int r;
        if (str_eq(verb, "apply")) {
                if ((r = manifests_read(cli, &o->files, args, 1, items, err)) < 0)
                        return r;
                q->apply = arena_new_n(&cli->arena, Pb__Workload *, items->len + 1);
                for (size_t i = 0; i < items->len; i++)
                        q->apply[q->n_apply++] = items->at[i].workload;
                return 0;
        }
        if (o->files.n)
                return usage_error(cli, err, "-f goes with apply");
        if (str_eq(verb, "add-node")) {
                if (str_empty(o->like) || args->n > 1)
                        return usage_error(cli, err, "like which node? --like NODE");
                Pb__Node *like = node_named(cli, &cli->arena, o->like, err);
                if (!like)
                        return -(int)err->code;
                q->add_nodes_like = like->id;
                q->add_nodes = (int32_t)o->count;
                return 0;
        }
        bool is_delete = str_eq(verb, "delete"), is_lose = str_eq(verb, "lose"),
             is_drain = str_eq(verb, "drain");
        if (!is_delete && !is_lose && !is_drain)
                return usage_error(cli, err, "plan what? apply, delete, drain, lose or add-node");
        if (args->n < 2 || (is_drain && args->n > 2))
                return usage_error(cli, err,
                                   is_drain ? "drain which node? one at a time" : "%s what?", verb);
        if ((r = resolve(cli, args, !is_delete, &ids, &n, err)) < 0)
                return r;
        if (is_drain)
                q->drain_node = ids[0];
        else if (is_delete)
                q->remove = ids, q->n_remove = n;
        else
                q->lose_nodes = ids, q->n_lose_nodes = n;
        return 0;
}

static int plan_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        const struct plan_options *o = values;
        enum output_format format = output_format(&o->output);
        struct manifests items = { 0 };
        Pb__PlanRequest q = PB__PLAN_REQUEST__INIT;
        int r = question(cli, o, args, &items, &q, err);
        Pb__PlanResponse *p = r == 0 ? plan_ask(cli, &q, err) : NULL;
        manifests_fini(&items);
        if (!p)
                return -(int)err->code;
        if (format >= OUTPUT_JSON)
                output_object(cli, format, "plan", fmt("%" PRIu64, p->index), &p->base);
        else {
                _cleanup_(str_finip) struct str out = STR_INIT;
                plan_print(cli, p, &out);
                str_addf(&out, "index %" PRIu64 "%s\n", p->index,
                         q.n_apply || q.n_remove || !str_empty(q.drain_node)
                             ? "; with --check-index it happens only while this is true"
                             : "");
                cli_out_str(cli, &out);
        }
        return o->detailed && p->changes_in_all > 0 ? EXIT_CHANGES : 0;
}

const struct verb verb_plan = {
        .name = "plan",
        .args = "apply -f FILE | delete NAME... | drain NODE | lose NODE... | add-node --like NODE",
        .summary = "show what would happen, and change nothing",
        .text =
            "The server answers with its real decisions on a copy of its state: what would be "
            "created (+), updated (~), moved (->),\n"
            "removed (-) and what would find no place (!), and how full each node would be. The "
            "index of the answer goes with\n"
            "--check-index of apply, delete and drain: they refuse if anything was decided since.\n"
            "Exit status 0, whether or not something would change; with --detailed-exitcode 2 if "
            "it would.",
        .examples = "  berth plan apply -f web.yaml\n"
                    "  berth plan drain node-2\n"
                    "  berth plan lose node-1 node-2\n"
                    "  berth plan add-node --like node-1 --count 3",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .defaults = &defaults,
        .values_size = sizeof(struct plan_options),
        .run = plan_run,
        .group = VERBS_WORKLOADS,
        .words = "apply|delete|drain|lose|add-node",
};
