/* cli/exec.c: berth exec: a command beside a running workload, with its input, output and exit
 * status.
 *
 * The terminal's state is changed only with -t, and given back however we leave. Input is read only
 * while the call takes more, so a fast writer waits instead of filling memory. A regular file as
 * standard input cannot be polled: it is read chunk by chunk from the loop instead.
 */
#include "cli/names.h"
#include "cli/verbs.h"
#include "model/pb.h"
#include "net/grpc.h"
#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

struct exec_options_cli {
        bool interactive, tty;
};

static const struct opt rows[] = {
        OPT(struct exec_options_cli, OPT_FLAG, interactive, .letter = 'i', .name = "stdin",
            .help = "pass standard input on"),
        OPT(struct exec_options_cli, OPT_FLAG, tty, .letter = 't', .name = "tty",
            .help = "give the command a terminal"),
};

#define CHUNK 16384

struct session {
        struct cli *cli;
        struct event_base *base;
        struct grpc_call *call; /* NULL: ended */
        struct event *input, *resize;
        struct str unsent; /* a packed message that the call did not take yet */
        struct err *err;
        const char *id;
        int result, exit_code;
        bool has_exit_code, ended, input_is_file, input_done, failed, tty;
        struct term_tail tails[2]; /* of stdout and stderr */
};

/* ---- the terminal ---- */

static struct termios saved;
static volatile sig_atomic_t is_raw;

static void give_back(void)
{
        if (is_raw) {
                is_raw = 0;
                (void)tcsetattr(0, TCSADRAIN, &saved);
        }
}

static void on_fatal_signal(int signum)
{
        give_back(); /* tcsetattr is async-signal-safe */
        (void)signal(signum, SIG_DFL);
        (void)raise(signum);
}

static void make_raw(void)
{
        struct termios raw;
        if (!isatty(0) || tcgetattr(0, &saved) < 0)
                return;
        raw = saved;
        cfmakeraw(&raw);
        is_raw = 1;
        static const int signals[] = { SIGTERM, SIGHUP, SIGQUIT, SIGABRT };
        for (size_t i = 0; i < ARRAY_LEN(signals); i++)
                (void)signal(signals[i], on_fatal_signal);
        (void)tcsetattr(0, TCSADRAIN, &raw);
}

static void window_size(int32_t *ret_rows, int32_t *ret_cols)
{
        struct winsize size;
        if (ioctl(1, TIOCGWINSZ, &size) == 0 || ioctl(0, TIOCGWINSZ, &size) == 0) {
                *ret_rows = size.ws_row;
                *ret_cols = size.ws_col;
        }
}

/* ---- sending ---- */

static void send_message(struct session *s, const Pb__ExecMessage *m)
{
        _cleanup_(str_finip) struct str packed = STR_INIT;
        pb_pack(&packed, &m->base);
        if (s->call && grpc_call_send(s->call, str_c(&packed), packed.len) == -ERR_LIMIT) {
                str_clear(&s->unsent);
                str_add(&s->unsent, str_c(&packed), packed.len);
                if (s->input)
                        event_del(s->input);
        }
}

static void send_input(struct session *s, const void *data, size_t len, bool eof)
{
        Pb__ExecMessage m = PB__EXEC_MESSAGE__INIT;
        Pb__ExecInput in = PB__EXEC_INPUT__INIT;
        in.data = (ProtobufCBinaryData){ .len = len, .data = (uint8_t *)data };
        in.eof = eof;
        m.input = &in;
        send_message(s, &m);
        if (eof)
                s->input_done = true;
}

static void want_input(struct session *s)
{
        static const struct timeval now = { 0, 0 };
        if (!s->input_done && s->input)
                event_add(s->input, s->input_is_file ? &now : NULL);
}

/* epoll takes pipes, sockets and terminals; files, /dev/null and the like it refuses, and they
 * never block for long. */
static bool can_poll(int fd)
{
        struct stat st;
        return fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) || isatty(fd));
}

static void on_input(evutil_socket_t fd _unused_, short what _unused_, void *ctx)
{
        struct session *s = ctx;
        char buf[CHUNK];
        if (s->ended || s->unsent.len)
                return;
        ssize_t n = read(0, buf, sizeof(buf));
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
                want_input(s);
                return;
        }
        send_input(s, buf, n > 0 ? (size_t)n : 0, n <= 0);
        if (!s->unsent.len)
                want_input(s);
}

static void on_drain(struct grpc_call *call)
{
        struct session *s = grpc_call_data(call);
        if (s->unsent.len && grpc_call_send(call, str_c(&s->unsent), s->unsent.len) == -ERR_LIMIT)
                return;
        str_clear(&s->unsent);
        want_input(s);
}

static void on_resize(evutil_socket_t fd _unused_, short what _unused_, void *ctx)
{
        struct session *s = ctx;
        Pb__ExecMessage m = PB__EXEC_MESSAGE__INIT;
        Pb__ExecInput in = PB__EXEC_INPUT__INIT;
        window_size(&in.rows, &in.cols);
        m.input = &in;
        if (!s->unsent.len)
                send_message(s, &m);
}

/* ---- receiving ---- */

static void fail(struct session *s, int result)
{
        if (!s->failed) {
                s->failed = true;
                s->result = result;
        }
        if (s->call)
                grpc_call_cancel(s->call);
}

/* With -t somebody asked for a terminal, and gets one. */
static int write_output(struct session *s, const Pb__ExecOutput *o)
{
        const struct term *t = o->is_stderr ? &s->cli->errs : &s->cli->out;
        return s->tty ? term_write_raw(t, o->data.data, o->data.len, s->err)
                      : term_write_foreign(t, &s->tails[o->is_stderr], o->data.data, o->data.len,
                                           s->err);
}

static void on_message(struct grpc_call *call, const void *data, size_t len)
{
        struct session *s = grpc_call_data(call);
        struct arena arena = ARENA_INIT;
        ProtobufCMessage *m = NULL;
        int r =
            s->failed ? -1 : pb_unpack(&pb__exec_output__descriptor, data, len, &arena, &m, s->err);
        const Pb__ExecOutput *o = (const Pb__ExecOutput *)m;
        if (r == 0 && o->data.len)
                r = write_output(s, o);
        if (r == 0 && o->exit_code) {
                s->has_exit_code = true;
                s->exit_code = (int)o->exit_code->value;
        }
        /* it could not be started: 127 or 126, as a shell would */
        if (r == 0 && !str_empty(o->error) && o->exit_code) {
                const char *line =
                    fmt("error: cannot run the command in %s: %s\n", s->id, o->error);
                r = term_write(&s->cli->errs, line, strlen(line), s->err);
        } else if (r == 0 && !str_empty(o->error))
                r = err_set(s->err, ERR_FAILED, .msg = fmt("cannot run the command in %s", s->id),
                            .detail = o->error);
        if (r < 0)
                fail(s, r);
        else if (s->has_exit_code && o->eof)
                grpc_call_half_close(call);
        arena_fini(&arena);
}

static void on_close(struct grpc_call *call, enum grpc_status status)
{
        struct session *s = grpc_call_data(call);
        s->ended = true;
        s->call = NULL;
        if (!s->failed && status != GRPC_OK && !s->has_exit_code)
                s->result = client_failure(s->cli, call, "Exec", status, s->err);
        event_base_loopbreak(s->base);
}

static int begin(struct session *s, const struct exec_options_cli *o, const struct args *args,
                 struct err *err)
{
        static const struct grpc_callbacks callbacks = { .on_message = on_message,
                                                         .on_drain = on_drain,
                                                         .on_close = on_close };
        struct grpc_channel *channel = NULL;
        Pb__ExecMessage m = PB__EXEC_MESSAGE__INIT;
        Pb__ExecStart start = PB__EXEC_START__INIT;
        int r = client_open(s->cli, &s->base, &channel, err);
        if (r < 0)
                return r;
        start.id = (char *)s->id;
        start.command = (char **)args->command;
        start.n_command = args->n_command;
        start.tty = o->tty;
        if (o->tty) {
                const char *term = getenv("TERM");
                window_size(&start.rows, &start.cols);
                /* what is no name of a terminal is not worth a refusal */
                if (term && strlen(term) <= 64 &&
                    strspn(term,
                           "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.+-_") ==
                        strlen(term))
                        start.term = (char *)term;
        }
        m.start = &start;
        s->call = grpc_channel_call(channel, "/berth.v1.Control/Exec", NULL, &callbacks, s);
        send_message(s, &m);
        if (o->interactive) {
                s->input_is_file = !can_poll(0);
                s->input = event_new(s->base, s->input_is_file ? -1 : 0,
                                     s->input_is_file ? 0 : EV_READ, on_input, s);
                want_input(s);
        } else {
                send_input(s, NULL, 0, true);
        }
        if (o->tty) {
                s->resize = evsignal_new(s->base, SIGWINCH, on_resize, s);
                event_add(s->resize, NULL);
        }
        return 0;
}

static int exec_run(struct cli *cli, const void *values, const struct args *args, struct err *err)
{
        const struct exec_options_cli *o = values;
        struct session s = { .cli = cli, .err = err, .tty = o->tty };
        struct args all = *args;
        struct text_list names;

        if (!all.has_command && all.n > 1) {
                all.command = all.at + 1;
                all.n_command = all.n - 1;
                all.n = 1;
        }
        int r = names_of_kind(cli, &cli->arena, "workload", &all, &names, err);
        if (r < 0)
                return r;
        if (names.n != 1 || all.n_command == 0)
                return usage_error(cli, err,
                                   names.n != 1 ? "one workload at a time"
                                                : "which command? Put it after --");
        if (o->tty && o->interactive && !isatty(0))
                return usage_error(cli, err, "-t needs a terminal as standard input");
        Pb__Workload *w = workload_named(cli, &cli->arena, names.at[0], err);
        if (!w)
                return -(int)err->code;
        s.id = w->id;
        r = begin(&s, o, &all, err);
        if (r == 0) {
                if (o->tty && o->interactive)
                        make_raw();
                while (!s.ended && event_base_loop(s.base, 0) == 0)
                        ;
                give_back();
                r = s.result;
        }
        if (s.input)
                event_free(s.input);
        if (s.resize)
                event_free(s.resize);
        str_fini(&s.unsent);
        if (r == 0 && !s.has_exit_code)
                return err_set(err, ERR_UNAVAILABLE,
                               .msg = fmt("the command in %s was cut off", w->id),
                               .detail = "its node or the server went away before it ended");
        return r < 0 ? r : s.exit_code & 0xff;
}

const struct verb verb_exec = {
        .name = "exec",
        .args = "NAME -- COMMAND...",
        .summary = "run a command beside a running workload",
        .text = "The command runs on the workload's node, in its directory and environment. Its "
                "exit status becomes that of berth exec; as "
                "in a shell that is 127 if there is no such "
                "command and 126 if it cannot be run.",
        .examples = "  berth exec hello -- ps\n"
                    "  berth exec -it hello -- sh",
        .options = rows,
        .n_options = ARRAY_LEN(rows),
        .values_size = sizeof(struct exec_options_cli),
        .run = exec_run,
        .group = VERBS_WORKLOADS,
        .takes_command = true,
        .completes = 'w',
};
