/* cli/term.h: where output goes: is it a terminal, how wide, with colour or not; and writing to it.
 *
 * Colour only on a terminal, and not when NO_COLOR is set or TERM is "dumb". Text that comes from
 * elsewhere (messages of agents, labels) is made harmless before it is printed: control characters
 * could otherwise move the cursor or rename the user's window.
 */
#ifndef BERTH_CLI_TERM_H
#define BERTH_CLI_TERM_H

#include "base/err.h"
#include "base/str.h"

struct term {
        int fd;
        bool is_tty, colour;
        unsigned columns; /* 0: not a terminal, no limit */
};

enum tint { TINT_NONE, TINT_GOOD, TINT_BUSY, TINT_BAD, TINT_DIM, TINT_BOLD };

void term_init(struct term *t, int fd);
const char *tint_on(const struct term *t, enum tint tint); /* "" without colour */
const char *tint_off(const struct term *t, enum tint tint);

/* Text of our own, which may hold colours and what the server said: on a terminal, characters of
 * U+0080 to U+009F, those that turn the direction of writing and broken UTF-8 become '?'. Elsewhere
 * it is written as it is. */
int term_write(const struct term *t, const void *data, size_t len, struct err *err);
/* What a workload wrote: on a terminal all control characters but line breaks and tabs become '?'.
 * It comes in pieces that may end within a character: tail is kept between them, {0} at first.
 * Elsewhere it is written as it is: whoever asks for bytes gets them. */
struct term_tail {
        char bytes[4];
        unsigned n;
};
int term_write_foreign(const struct term *t, struct term_tail *tail, const void *data, size_t len,
                       struct err *err);
/* The same, in memory. last: nothing follows. */
void term_clean(struct str *out, struct term_tail *tail, const void *data, size_t len, bool last);
/* As it is, whatever it does: a terminal that somebody asked for. */
int term_write_raw(const struct term *t, const void *data, size_t len, struct err *err);
/* All of them: when the reader has gone (a closed pipe) the process ends quietly with status 0; any
 * other fault is an error. */
int term_print(const struct term *t, const struct str *text, struct err *err);

/* Columns that UTF-8 text takes on a terminal; a byte that is not UTF-8 counts as one. */
size_t text_width(const char *text);
/* Bytes of the longest beginning of text that fits into width columns. */
size_t text_fit(const char *text, size_t width);
/* Appends text with control characters and broken UTF-8 replaced by '?' and line breaks by a
 * space. */
void text_clean(struct str *out, const char *text);

#endif
