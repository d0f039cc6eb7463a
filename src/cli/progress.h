/* cli/progress.h: what is going on, on stderr: one line that is rewritten on a terminal, plain
 * lines (only when the text changes) elsewhere. */
#ifndef BERTH_CLI_PROGRESS_H
#define BERTH_CLI_PROGRESS_H

#include "cli/cli.h"

struct progress {
        const struct term *term;
        char last[256];
        bool open; /* the terminal's cursor is on the progress line */
        bool silent;
};

void progress_init(struct progress *p, const struct cli *cli);
void progress_show(struct progress *p, const char *format, ...) _printf_(2, 3);
void progress_clear(struct progress *p); /* the line disappears: other output follows */
/* Prints a line that stays, above the progress line. */
void progress_note(struct progress *p, const char *format, ...) _printf_(2, 3);

#endif
