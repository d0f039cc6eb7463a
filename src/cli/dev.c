/* cli/dev.c: berth dev: a whole cluster on this machine: a server on an embedded store and N
 * agents, each a process of its own.
 *
 * Order: look (ports, an earlier dev), server, wait until it is healthy, agents, wait until all
 * nodes are Ready, say what to try. Ctrl-C: first the agents, which stop their units, then the
 * server, so that it has seen everything before it ends. Starting again finds everything as it was.
 */
#include "agent/agent_clear.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/children.h"
#include "cli/client.h"
#include "cli/port.h"
#include "cli/verbs.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define NODES_MAX 100
#define PORT_DEFAULT 8084
#define READY_PATIENCE_MS 60000
#define AGENT_PATIENCE_MS 120000 /* units may take their grace */
#define SERVER_PATIENCE_MS 30000
#define HURRY_MS 3000
#define UNITS_PATIENCE_MS 60000

struct dev_options {
        int64_t nodes, port;
        const char *data, *runtime, *heartbeat, *grace, *log_level;
        bool fresh;
};

static const struct dev_options defaults = {
        .nodes = 3, .port = PORT_DEFAULT, .data = "./.berth", .runtime = "process"
};

static const struct opt rows[] = {
        OPT(struct dev_options, OPT_INT, nodes, .letter = 'n', .name = "nodes", .arg = "N",
            .max = NODES_MAX, .help = "how many nodes (3)"),
        OPT(struct dev_options, OPT_INT, port, .letter = 'p', .name = "port", .arg = "PORT",
            .max = 65534, .help = "HTTP port; gRPC gets the next one (8084; 0: any)"),
        OPT(struct dev_options, OPT_TEXT, data, .name = "data", .arg = "DIR", .env = "BERTH_DATA",
            .completes = 'f', .help = "where everything is kept (./.berth)"),
        OPT(struct dev_options, OPT_TEXT, runtime, .name = "runtime", .arg = "NAME",
            .choices = "process|podman|docker|mock",
            .help = "process (default); podman or docker: containers too; mock: nodes that run "
                    "nothing"),
        OPT(struct dev_options, OPT_TEXT, heartbeat, .name = "heartbeat", .arg = "DURATION",
            .help = "as for berth server"),
        OPT(struct dev_options, OPT_TEXT, grace, .name = "grace", .arg = "DURATION",
            .help = "as for berth server"),
        OPT(struct dev_options, OPT_TEXT, log_level, .name = "log-level", .arg = "LEVEL",
            .choices = "debug|info|warn|error", .help = "of server and agents"),
        OPT(struct dev_options, OPT_FLAG, fresh, .name = "fresh",
            .help = "end and forget what an earlier dev left in the directory"),
};

struct dev {
        struct cli *cli;
        const struct dev_options *opt;
        char dir[PATH_MAX]; /* absolute: it is part of what units are known by */
        char http[64], grpc[64];
        int lock_fd;
        struct progress progress;
        struct children children; /* 0 is the server */
};

/* ---- before anything starts ---- */

static int lock_dir(struct dev *d, struct err *err)
{
        const char *path = fmt("%s/dev.lock", d->dir);
        d->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (d->lock_fd < 0)
                return err_sys(err, errno, fmt("cannot open %s", path));
        if (flock(d->lock_fd, LOCK_EX | LOCK_NB) < 0) {
                char pid[32] = "";
                ssize_t n = read(d->lock_fd, pid, sizeof(pid) - 1);
                return err_set(
                    err, ERR_CONFLICT, .msg = fmt("another berth dev uses %s", d->opt->data),
                    .detail = n > 0 ? fmt("pid %.*s", (int)strcspn(pid, "\n"), pid) : NULL,
                    .hint = "end that one, or choose other places: --data DIR --port PORT");
        }
        const char *pid = fmt("%d\n", (int)getpid());
        if (ftruncate(d->lock_fd, 0) < 0 || write(d->lock_fd, pid, strlen(pid)) < 0)
                return err_sys(err, errno, fmt("cannot write %s", path));
        return 0;
}

/* Only what a dev makes is removed: somebody may have said --data $HOME. */
static bool is_ours(const char *name)
{
        if (str_starts(name, "berth.db") || str_eq(name, "server.address") ||
            str_eq(name, "server.log"))
                return true;
        if (!str_starts(name, "node-") || !isdigit((unsigned char)name[5]))
                return false;
        const char *p = name + 5;
        while (isdigit((unsigned char)*p))
                p++;
        return *p == '\0' || str_eq(p, ".log");
}

/* What a dev that was killed has left running is found by its directory, and never again without
 * it. */
static int end_units(struct dev *d, struct err *err)
{
        unsigned ended = 0, more;
        int r = 0;
        for (int i = 1; r == 0 && i <= NODES_MAX; i++) {
                const char *path = fmt("%s/node-%d", d->dir, i);
                if (!file_exists(path))
                        continue;
                r = agent_clear(path, UNITS_PATIENCE_MS, &more, err);
                ended += more;
        }
        ended += units_kill(d->dir);
        if (r == 0 && ended)
                progress_note(&d->progress, "%u unit%s of an earlier berth dev removed", ended,
                              ended == 1 ? " was" : "s were");
        return r;
}

static int make_fresh(struct dev *d, struct err *err)
{
        int r = end_units(d, err);
        if (r < 0)
                return r;
        DIR *dir = opendir(d->dir);
        r = dir ? 0 : err_sys(err, errno, fmt("cannot read %s", d->dir));
        for (struct dirent *e; r == 0 && (e = readdir(dir));) {
                if (!is_ours(e->d_name))
                        continue;
                const char *path = fmt("%s/%s", d->dir, e->d_name);
                if (unlink(path) < 0 && errno != ENOENT)
                        r = dir_remove(path, err);
        }
        if (dir)
                closedir(dir);
        return r;
}

static int prepare(struct dev *d, struct err *err)
{
        uint16_t port = (uint16_t)d->opt->port;
        int r = dir_make(d->opt->data, 0755, err);
        if (r < 0)
                return r;
        if (!realpath(d->opt->data, d->dir))
                return err_sys(err, errno, fmt("cannot find %s", d->opt->data));
        if ((r = lock_dir(d, err)) < 0 ||
            (r = children_clear_leftovers(d->dir, &d->progress, err)) < 0)
                return r;
        if (port == 0 && (r = port_find_pair(&port, err)) < 0)
                return r;
        if (d->opt->port && ((r = port_check(port, "HTTP", err)) < 0 ||
                             (r = port_check((uint16_t)(port + 1), "gRPC", err)) < 0))
                return r;
        (void)__builtin_snprintf(d->http, sizeof(d->http), "127.0.0.1:%u", port);
        (void)__builtin_snprintf(d->grpc, sizeof(d->grpc), "127.0.0.1:%u", port + 1u);
        return d->opt->fresh ? make_fresh(d, err) : 0;
}

/* ---- starting ---- */

struct share {
        int64_t cpu_milli, memory_mb, disk_gb;
};

/* Each node offers its part of the machine, so that together they do not offer more than there
 * is. */
static struct share share_of_machine(const char *dir, int64_t nodes)
{
        struct statvfs fs;
        int64_t n = nodes > 0 ? nodes : 1;
        int64_t memory = sysconf(_SC_PHYS_PAGES) * (sysconf(_SC_PAGESIZE) / 1024) / 1024;
        int64_t disk =
            statvfs(dir, &fs) == 0 ? (int64_t)((uint64_t)fs.f_bavail * fs.f_frsize >> 30) : n;
        struct share s = { .cpu_milli = sysconf(_SC_NPROCESSORS_ONLN) * 1000 / n,
                           .memory_mb = memory / n,
                           .disk_gb = disk / n };
        s.cpu_milli = s.cpu_milli > 0 ? s.cpu_milli : 1;
        s.memory_mb = s.memory_mb > 0 ? s.memory_mb : 1;
        s.disk_gb = s.disk_gb > 0 ? s.disk_gb : 1;
        return s;
}

static void add_children(struct dev *d)
{
        struct arena *a = &d->cli->arena;
        const struct dev_options *o = d->opt;
        const char *server[20] = { "berth",  "server", "--data", d->dir, "--http",  d->http,
                                   "--grpc", d->grpc,  "--auth", "none", "--allow", "all" };
        size_t n = 12;
        if (o->heartbeat)
                server[n++] = "--heartbeat", server[n++] = o->heartbeat;
        if (o->grace)
                server[n++] = "--grace", server[n++] = o->grace;
        if (o->log_level)
                server[n++] = "--log-level", server[n++] = o->log_level;
        children_add(&d->children, a, "server", server);

        struct share s = share_of_machine(d->dir, o->nodes);
        for (int64_t i = 1; i <= o->nodes; i++) {
                const char *id = arena_printf(a, "node-%" PRId64, i);
                const char *agent[32] = {
                        "berth",
                        "agent",
                        "--server",
                        d->grpc,
                        "--data",
                        arena_printf(a, "%s/%s", d->dir, id),
                        "--node-id",
                        id,
                        "--runtime",
                        o->runtime,
                        "--stop-on-exit",
                        "--label",
                        arena_printf(a, "zone=%c", (char)('a' + (i - 1) % 3)),
                        "--cpu",
                        arena_printf(a, "%" PRId64 "m", s.cpu_milli),
                        "--memory",
                        arena_printf(a, "%" PRId64 "M", s.memory_mb),
                        "--disk",
                        arena_printf(a, "%" PRId64 "G", s.disk_gb),
                        "--seed",
                        arena_printf(a, "%" PRId64, i),
                };
                size_t k = 21;
                if (o->log_level)
                        agent[k++] = "--log-level", agent[k++] = o->log_level;
                children_add(&d->children, a, id, agent);
        }
}

#define DETAIL_MAX (sizeof(((struct err *)0)->detail) - 1)

/* The last lines of a child's log, as many as the detail of an error holds: the last one says why it
 * ended. */
static void log_tail(const struct dev *d, const char *name, struct str *out)
{
        _cleanup_(str_finip) struct str text = STR_INIT;
        const char *path = fmt("%s/%s.log", d->dir, name);
        if (file_read(path, 64 << 20, &text, NULL) < 0 || text.len == 0)
                return;
        const char *start = str_c(&text), *p = start + text.len;
        const char *oldest = text.len > DETAIL_MAX ? p - DETAIL_MAX : start;
        for (int lines = 0; p > oldest && lines < 5;) {
                const char *line = p - 1;
                while (line > start && line[-1] != '\n')
                        line--;
                if (line < oldest && lines)
                        break;
                p = line < oldest ? oldest : line; /* of a line that is too long, its end */
                lines++;
        }
        str_adds(out, p);
}

static int child_failed(const struct dev *d, const struct child *c, struct err *err)
{
        _cleanup_(str_finip) struct str tail = STR_INIT;
        log_tail(d, c->name, &tail);
        return err_set(err, ERR_FAILED,
                       .msg = fmt("%s did not start (%s)", c->name, child_end_words(c->status)),
                       .detail = str_c(&tail),
                       .hint = fmt("all of it is in %s/%s.log", d->opt->data, c->name));
}

/* How many of our nodes are Ready; < 0: the server does not answer yet. */
static int nodes_ready(struct dev *d, struct cli *probe)
{
        struct arena arena = ARENA_INIT;
        struct err ignored = { 0 };
        Pb__ListNodesRequest q = PB__LIST_NODES_REQUEST__INIT;
        q.limit = 5000;
        q.prefix = (char *)"node-";
        Pb__ListNodesResponse *list = client_call(probe, &arena, "ListNodes", &q,
                                                  &pb__list_nodes_response__descriptor, &ignored);
        int n = list ? 0 : -1;
        for (size_t i = 0; list && i < list->n_items; i++)
                for (size_t k = 1; k < d->children.n; k++)
                        n += str_eq(list->items[i]->id, d->children.at[k].name) &&
                             list->items[i]->connected &&
                             list->items[i]->status != PB__NODE_STATUS__E__NotReady;
        arena_fini(&arena);
        return n;
}

/* 0: up; 1: the user pressed Ctrl-C meanwhile; < 0: it cannot come up. */
static int wait_ready(struct dev *d, struct cli *probe, int wanted, struct err *err)
{
        int64_t until = clock_mono_ns() + READY_PATIENCE_MS * INT64_C(1000000);
        for (;;) {
                int n = nodes_ready(d, probe);
                if (n >= wanted)
                        return 0;
                if (wanted == 0)
                        progress_show(&d->progress, "starting the server");
                else
                        progress_show(&d->progress, "%d of %d nodes ready", n < 0 ? 0 : n, wanted);
                children_wait(&d->children, 50);
                if (d->children.interrupts)
                        return 1;
                for (size_t i = 0; i < d->children.n; i++)
                        if (d->children.at[i].ends)
                                return child_failed(d, &d->children.at[i], err);
                if (clock_mono_ns() > until)
                        return err_set(err, ERR_DEADLINE,
                                       .msg = wanted ? fmt("only %d of %d nodes are ready",
                                                           n < 0 ? 0 : n, wanted)
                                                     : "the server does not answer",
                                       .hint = fmt("look into %s/*.log", d->opt->data));
        }
}

static int bring_up(struct dev *d, struct err *err)
{
        struct cli probe;
        cli_init(&probe, d->cli->program);
        probe.quiet = true; /* short deadlines */
        probe.common.server = d->grpc;
        add_children(d);
        int r = child_start(&d->children, &d->children.at[0], err);
        if (r == 0)
                r = wait_ready(d, &probe, 0, err);
        for (size_t i = 1; r == 0 && i < d->children.n; i++)
                r = child_start(&d->children, &d->children.at[i], err);
        if (r == 0 && d->opt->nodes)
                r = wait_ready(d, &probe, (int)d->opt->nodes, err);
        progress_clear(&d->progress);
        cli_fini(&probe);
        return r;
}

static void say_hello(const struct dev *d)
{
        const struct term *t = &d->cli->out;
        const char *program = d->cli->program, *on = tint_on(t, TINT_BOLD),
                   *off = tint_off(t, TINT_BOLD);
        bool usual = str_eq(d->grpc, SERVER_DEFAULT);
        cli_out(d->cli, "%sberth dev is up%s: %" PRId64 " node%s ready\n", on, off, d->opt->nodes,
                d->opt->nodes == 1 ? "" : "s");
        if (geteuid() == 0)
                cli_out(d->cli,
                        "%sIt runs as root, and so do its workloads%s: whoever reaches it may ask "
                        "for anything on this machine.\n",
                        on, off);
        cli_out(d->cli,
                "  HTTP  http://%s\n  gRPC  %s\n  data  %s\n\nTry next, in a second shell:\n",
                d->http, d->grpc, d->opt->data);
        if (!usual)
                cli_out(d->cli, "  export BERTH_SERVER=%s\n", d->grpc);
        cli_out(d->cli,
                "  %s run hello -- sh -c 'while :; do date; sleep 1; done'\n  %s get workloads\n  "
                "%s logs -f hello\n\nCtrl-C stops all of "
                "it.\n",
                program, program, program);
}

static void bring_down(struct dev *d)
{
        progress_note(&d->progress,
                      "stopping: first the nodes, then the server; Ctrl-C again to hurry");
        unsigned killed =
            children_stop(&d->children, 1, d->children.n, AGENT_PATIENCE_MS, HURRY_MS);
        /* An agent that was hurried or killed may have left units behind; nothing is to run on
         * without us. */
        unsigned units = units_kill(d->dir);
        if (killed)
                progress_note(&d->progress, "%u node%s had to be killed", killed,
                              killed == 1 ? "" : "s");
        if (units)
                progress_note(&d->progress, "%u unit%s killed", units,
                              units == 1 ? " was" : "s were");
        children_stop(&d->children, 0, 1, SERVER_PATIENCE_MS, HURRY_MS);
        (void)unlink(fmt("%s/dev.children", d->dir));
        progress_note(&d->progress, "all stopped");
}

static int dev_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        struct dev *d = arena_new(&cli->arena, struct dev);
        d->cli = cli;
        d->opt = values;
        d->lock_fd = -1;
        progress_init(&d->progress, cli);
        if (args->n)
                return usage_error(cli, err, "unexpected argument '%s'", args->at[0]);
        int r = prepare(d, err);
        if (r == 0) {
                children_init(&d->children, d->dir, &d->progress);
                r = bring_up(d, err);
                if (r == 0) {
                        say_hello(d);
                        while (!d->children.interrupts)
                                children_wait(&d->children, 60000);
                }
                bring_down(d);
        }
        fd_closep(&d->lock_fd);
        return r < 0 ? r : 0;
}

const struct verb verb_dev = {
        .name = "dev",
        .summary = "a whole cluster on this machine: server and nodes",
        .text = "Starts a server on an embedded store and some nodes, each a process of its own, "
                "with its share of the machine. Ctrl-C "
                "stops all\n"
                "of it, workloads too; starting again finds everything as it was and starts the "
                "workloads again. Logs are in DIR/*.log.",
        .examples = "  berth dev\n"
                    "  berth dev --nodes 5 --port 9000 --data /tmp/trial\n"
                    "  berth dev --fresh",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .defaults = &defaults,
        .values_size = sizeof(struct dev_options),
        .run = dev_run,
        .group = VERBS_PROGRAMS,
        .offline = true,
};
