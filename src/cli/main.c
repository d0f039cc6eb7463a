/* cli/main.c: the berth binary. */
#include "agent/runtime.h"
#include "base/mem.h"
#include "cli/cli.h"
#include <event2/event.h>
#include <signal.h>
#include <sys/prctl.h>

int main(int argc, char **argv)
{
        /* The monitor of a unit, which the agent starts by running this binary again: nothing else
         * may happen before it. */
        if (unit_main_wanted(argc, argv))
                return unit_main(argc, argv);

        /* it follows a NULL pointer in places: with a sentence instead */
        event_set_mem_functions(mem_bytes, mem_must_resize, mem_free);
        /* dev runs us as /proc/self/exe, and "exe" would tell nobody who holds a lock */
        (void)prctl(PR_SET_NAME, "berth");
        (void)signal(SIGPIPE, SIG_IGN); /* sockets; for the output see term_write() */
        struct cli cli;
        cli_init(&cli, argc > 0 ? argv[0] : "berth");
        int status = cli_main(&cli, (const char *const *)argv + 1, argc > 0 ? (size_t)argc - 1 : 0);
        cli_fini(&cli);
        return status;
}
