/* base/mutant.h: bugs that are planted on purpose, to show that the tests would find them.
 *
 * A normal build has none: MUTANT(x) is the constant 0, and the compiler leaves nothing of it.
 * `meson setup -Dmutant=NAME` plants that one; `-Dmutant=any` plants the one that $MUTANT names
 * when the program starts, so that one build serves them all. tests/mutants runs the simulator and
 * the tests on each, and says who found it; one that nobody finds is a missing check.
 */
#ifndef BERTH_BASE_MUTANT_H
#define BERTH_BASE_MUTANT_H

#include "base/macros.h"

/* name, what is wrong with it */
#define MUTANTS(X)                                                                                 \
        X(reply_before_commit, "callers are answered although the store did not take the commit")  \
        X(effects_before_commit,                                                                   \
          "the simulated server sends what a batch says before it is on disk")                     \
        X(event_reordered, "two events of a batch change places")                                  \
        X(record_not_written, "a unit's start is an event without its record")                     \
        X(retry_counter_not_stored, "records leave out how often a unit failed")                   \
        X(commit_resent_refused,                                                                   \
          "a commit that went through is not recognised when it is sent again")                    \
        X(commit_applied_twice, "a commit that is sent again appends its events again")            \
        X(synchronous_off, "commits are not synced to the disk")                                   \
        X(audit_not_kept, "an audit event that leaves the log is gone")                            \
        X(read_log_not_synced,                                                                     \
          "a restarted server tells what a power failure may still take back")                     \
        X(etcd_leader_not_compared, "a commit to etcd does not compare who leads")                 \
        X(etcd_commit_not_fenced, "a commit to etcd compares neither who leads nor the head")      \
        X(lead_not_proved, "a leader believes its lease and its watch, and asks nobody whether "   \
                           "the key is still its own")                                             \
        X(lead_by_lease_alone,                                                                     \
          "a leader renews leases although nothing has proved lately that it leads")               \
        X(answer_not_proved,                                                                       \
          "a leader says what is so now without having asked whether it still leads")              \
        X(store_lock_skipped, "two servers may open one store")                                    \
        X(expired_input_applied, "what its caller was told had timed out is applied all the same") \
        X(if_match_ignored, "the version that a writer saw is not compared")                       \
        X(sse_seam, "an event stream loses an event where history ends and live begins")           \
        X(join_token_used_twice, "a join token that was used is taken from another node")          \
        X(warrant_not_checked, "whatever a node says that it runs is taken for ordered")           \
        X(word_is_kept, "an operator's word to take a node over counts again and again")           \
        X(warrant_for_any_node, "a warrant of one node is good for another")                       \
        X(ledger_not_released, "a finished unit's capacity is not given back")                     \
        X(ledger_without_disk, "placement does not look at disk space")                            \
        X(utilisation_overflow, "utilisation is computed in 64 bits")                              \
        X(anti_affinity_one_way, "a unit's anti-affinity does not keep others away from it")       \
        X(skew_off_by_one, "one more than max_skew allows")                                        \
        X(port_ignored, "placement does not look at host ports")                                   \
        X(taint_ignored, "placement does not look at taints")                                      \
        X(preempt_equals, "a unit makes room for one of the same priority")                        \
        X(preempt_without_grace, "a unit has to make room again and again")                        \
        X(ports_not_kept, "the ports of those who made room are for anybody")                      \
        X(mismatch_forgotten, "a node whose runtime does not work is tried again at once")         \
        X(drain_deadline_lost, "records leave out the deadline of a drain")                        \
        X(drain_stops_blockers, "a drain stops what fits nowhere else before its deadline")        \
        X(tie_by_slot, "of equal nodes the first in memory wins, not the smallest id")             \
        X(class_queue_skipped, "a queue counts as tried although it was not")                      \
        X(dirty_set_forgotten, "what changed is not looked at again")                              \
        X(deadline_lost_on_restart, "deadlines are not armed when the state is loaded")            \
        X(backoff_forgotten, "a failed unit is tried again at once")                               \
        X(job_restarted, "a job that exited 0 is run again")                                       \
        X(launch_twice_after_timeout,                                                              \
          "an overdue launch gets a new token instead of being sent again")                        \
        X(stale_report_accepted, "a report about an older copy counts for the current one")        \
        X(old_list_is_whole_truth, "a list made before the last order proves things gone")         \
        X(tombstone_dropped, "a moved unit leaves no tombstone")                                   \
        X(tombstone_not_planned, "a returning node is not told what must go")                      \
        X(returning_node_takes_units,                                                              \
          "a node takes new units while old copies may still run there")                           \
        X(delete_forgets_copy, "a deleted workload is forgotten while its copy runs")              \
        X(heartbeat_revives_cordoned, "a heartbeat makes a cordoned node schedulable")             \
        X(twins_take_turns, "of two agents with one node id each takes the stream of the other")   \
        X(heartbeat_writes, "every heartbeat is an event")                                         \
        X(eviction_without_grace, "units of a lost node move at once")                             \
        X(drift_not_seen, "a heartbeat that differs from what was reported is not looked into")    \
        X(new_copy_before_old_is_gone,                                                             \
          "a unit that moves starts before its old copy is proved gone")                           \
        X(brake_ignored, "units move although most nodes fell silent together")                    \
        X(spread_loss_moves,                                                                       \
          "units move although every zone lost nodes and fewer than half are heard")               \
        X(burnt_zone_held, "a zone that is lost as a whole is held like a server that is cut off") \
        X(pace_ignored, "units of a part of a zone move as fast as those of a whole one")          \
        X(verdict_after_start, "a restarted server judges silence that it did not listen to")      \
        X(fencing_removed, "the agent takes a smaller token")                                      \
        X(stale_plan_accepted, "the agent takes a plan older than one that it has seen")           \
        X(start_before_persist, "the agent starts a unit before its record is on disk")            \
        X(launch_forgotten, "the agent's record does not say what was launched")                   \
        X(resumed_after_power_loss,                                                                \
          "a launch that may have run before a power loss is made up for")                         \
        X(second_copy_started, "the agent starts the new copy beside the old one")                 \
        X(removal_does_not_gate, "the agent starts new units before old copies are gone")          \
        X(start_without_confirmation, "a restarted agent starts units that no plan has confirmed") \
        X(new_holder_at_once,                                                                      \
          "an exclusive unit starts elsewhere before its old holder's lease is over")              \
        X(lease_shortened_at_once,                                                                 \
          "a shorter lease counts at once for leases that were given for longer")                  \
        X(restore_forgets_holders,                                                                 \
          "after a restore exclusive units do not wait for holders that the records do not know")  \
        X(foreign_agent_holds, "an exclusive unit goes to an agent that holds no leases")          \
        X(lease_counts_from_answer,                                                                \
          "an agent's lease counts from the answer, however old the heartbeat is")                 \
        X(lease_end_ignored, "an agent whose lease has run out stops nothing")                     \
        X(starts_without_lease, "an agent without a lease starts exclusive units")                 \
        X(monitor_ignores_lease, "a unit whose agent is dead runs on when the lease is over")      \
        X(renewed_without_leadership, "a server that may not lead any more renews leases")         \
        X(leadership_not_compared, "a commit does not compare who leads")                          \
        X(head_not_compared, "a commit does not compare the head")                                 \
        X(quota_ignored_at_api, "what exceeds a quota is taken all the same")                      \
        X(quota_not_given_back, "what leaves its node goes on counting for the quota")

enum mutant {
        MUTANT_none,
#define X(name, what) MUTANT_##name,
        MUTANTS(X)
#undef X
};

#if defined(BERTH_MUTANT_ANY)
extern enum mutant mutant_chosen;
#define MUTANT(name) (mutant_chosen == MUTANT_##name)
#elif defined(BERTH_MUTANT)
#define MUTANT(name) (BERTH_MUTANT == MUTANT_##name)
#else
#define MUTANT(name) (MUTANT_none == MUTANT_##name)
#endif

#endif
