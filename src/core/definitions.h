/* core/definitions.h: the user's part of a workload, kept once; placement classes and label bits.
 * See definitions.c. */
#ifndef BERTH_CORE_DEFINITIONS_H
#define BERTH_CORE_DEFINITIONS_H

#include "core/state.h"

uint32_t definition_intern(struct core *c, const Pb__Workload *w); /* takes a reference */
void definition_unref(struct core *c, uint32_t d);
void definitions_fini(struct core *c);
void definitions_init(struct core *c);
/* The user's fields of w, nothing else (strings shared with w). */
void definition_view(const Pb__Workload *w, Pb__Workload *ret);
uint64_t node_label_bits(const struct core *c, const struct node *n);
/* The bit of this pair in the nodes' label masks, for as long as somebody needs it; -1: all are in
 * use, and whoever asks compares label by label. */
int8_t label_bit_ref(struct core *c, const char *key, const char *value);
void label_bit_unref(struct core *c, int8_t bit);
/* A workload's definition, whose reference it takes over; the one before is given back. */
void unit_set_definition(struct core *c, struct unit_ix w, uint32_t d);
const char *label_get(const struct label *labels, uint32_t n, const char *key);

#endif
