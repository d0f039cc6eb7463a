/* cli/complete.h: what could stand at the end of a command line. */
#ifndef BERTH_CLI_COMPLETE_H
#define BERTH_CLI_COMPLETE_H

#include "cli/cli.h"

/* Live names: appends the ids of a kind ('w' or 'n') that begin with prefix, one per line. */
typedef void (*complete_names_fn)(void *ctx, char kind, const char *prefix, struct str *out);

/* words[n - 1] is the word under the cursor (may be ""). Appends lines "WORD" or "WORD<tab>what it
 * is"; ":files" alone means: complete file names. */
void complete_words(const char *const *words, size_t n, complete_names_fn names, void *ctx,
                    struct str *out);

#endif
