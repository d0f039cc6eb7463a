/* sim/replay.h: one run as a text file: an option per line, and the numbers of the faults that are
 * left out.
 *
 *      # C24: a running workload has not exactly one copy, the right one: w-00003: 2 copies, 1
 *      right seed 7
 *      nodes 3
 *      faults crash,restart
 *      mask 0-4
 *      mask 9
 */
#ifndef BERTH_SIM_REPLAY_H
#define BERTH_SIM_REPLAY_H

#include "sim/sim.h"

/* "0-4,9" to numbers, added to *list (mem_free), ascending. 0, or -1: not a list of numbers. */
int replay_mask_parse(const char *text, uint32_t **list, size_t *n);
void replay_mask_print(const uint32_t *list, size_t n, struct str *out);
int replay_write(const char *path, const struct sim_options *opt, const char *what);

#endif
