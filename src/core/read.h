/* core/read.h: gets and lists. See read.c. */
#ifndef BERTH_CORE_READ_H
#define BERTH_CORE_READ_H

#include "core/state.h"

void read_get_workload(struct core *c, const Pb__WorkloadRef *req);
void read_list_workloads(struct core *c, const Pb__ListWorkloadsRequest *req);
void read_get_node(struct core *c, const Pb__NodeRef *req);
void read_list_nodes(struct core *c, const Pb__ListNodesRequest *req);
void read_cluster(struct core *c);
void read_locate(struct core *c, const Pb__WorkloadRef *req);
void decide_exec(struct core *c, const Pb__ExecNote *note);
Pb__Phase__E phase_shown(const struct core *c, const struct unit *w);
int workload_lookup(struct core *c, const char *id, struct unit_ix *ret, struct err *err);
int node_lookup(struct core *c, const char *id, struct node_ix *ret, struct err *err);
/* A list goes on behind the last key that it looked at. < 0: this is no such key, and the caller
 * was told. */
int list_begin(struct core *c, const struct order *o, const char *cursor, struct order_place *ret);
/* "": that was all */
char *list_cursor(struct core *c, const struct order *o, struct order_place at, uint32_t last);

#endif
