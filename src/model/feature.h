/* model/feature.h: what servers and agents of different versions can do, so that they work together
 * (A10).
 *
 * Servers announce their features in the shared store (/meta/servers/<name>), agents in their
 * Hello.
 *
 *   A server's feature is a kind of record, or a use of one, that an older server would misread.
 *   The first use is accepted only when every server that is there has it, and raises the store's
 *   schema in the same commit; from then on older servers refuse the store with a sentence.
 *   An agent's feature is something in a definition that an older agent would ignore. A unit that
 *   needs it is placed only where the agent has it; elsewhere the reason is agent_too_old.
 *
 * Names are never reused. Names that are not known here count as not there.
 */
#ifndef BERTH_MODEL_FEATURES_H
#define BERTH_MODEL_FEATURES_H

#include "base/macros.h"
#include "records.pb-c.h"

enum feature {
        FEATURE_ADMISSIONS,           /* server: what operators say of a node id (/admissions/) */
        FEATURE_PROCESS_CAPABILITIES, /* agent: spec.capabilities of processes */
        FEATURES
};
#define FEATURE_BIT(f) (UINT32_C(1) << (f))
#define FEATURES_ALL (FEATURE_BIT(FEATURES) - 1)

extern const char *const feature_names[FEATURES];

uint32_t features_parse(char *const *names, size_t n);
size_t features_list(uint32_t bits, char *ret[FEATURES]); /* how many; the names are constant */
int feature_schema(enum feature f);                       /* of the store, from its first use on */
uint32_t features_needed(const Pb__Workload *definition); /* of the agent that runs it */

#endif
