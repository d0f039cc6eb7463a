"""Exclusive workloads while agents are cut off, stopped and killed, and leaders too: they move, and never have two holders (docs/fencing.md)."""
import os
import signal
import time

import holders
from rig import Case, note
from test_history import guarded

FULL = os.environ.get("BERTH_TEST_FULL") == "1"
UNITS = 6
# Short times, so that a test sees several moves: a new holder waits 5 s (leadership) + 3 s (lease) + 2 s (grace) and 1 %.
TIMES = ["--heartbeat", "500ms", "--silence", "3", "--grace", "2s", "--lease", "3s", "--lease-grace", "2s"]


class Exclusive(Case):
    def begin(self, agents):
        r = self.rig(members=3, replicas=3, agents=agents, server_args=TIMES)
        make = guarded(r)
        for i in range(UNITS):
            a = r.call("PUT", f"/v1/workloads/x{i}", {**make(f"x{i}", i), "exclusive": "movable"})
            self.assertIn(a.status, (200, 201), a)
        r.wait_for("all to run", lambda: len(self.running(r)) == UNITS)
        return r

    def running(self, r):
        return {w["id"]: w["assigned_node"] for w in r.all_pages("/v1/workloads") if w["status"].get("phase") == "Running"}

    def moved(self, r, name, node, break_it, mend):
        """Breaks a node until all that it held runs elsewhere, mends it, and waits until it is as good as before."""
        before = [w for w, n in self.running(r).items() if n == node]
        began = time.monotonic()
        break_it()
        r.wait_for(f"all of {node} to run elsewhere", lambda: (now := self.running(r)) and len(now) == UNITS and all(now[w] != node for w in before), timeout=120)
        note(f"{name}: {len(before)} exclusive units of {node} ran elsewhere after {time.monotonic() - began:.1f} s")
        mend()
        r.wait_for(f"{node} to be back", lambda: r.get(f"/v1/nodes/{node}").json["status"] == "Ready", timeout=120)
        self.witnesses(r)
        return before

    def witnesses(self, r):
        self.assertEqual([f for f in os.listdir(r.dir) if f.endswith(".double")], [], "a unit had two holders: the lock that only one can hold was held")

    def busiest(self, r):
        held = list(self.running(r).values())
        return max(set(held), key=held.count)

    # R: C34 C33
    def test_an_agent_that_is_cut_off(self):
        r = self.begin(agents=4)
        for name in ["cut from all servers"] * (3 if FULL else 1):
            node = self.busiest(r)
            self.moved(r, name, node, lambda n=node: r.net.set(r.net.of(n, "r"), "cut"), r.net.heal)
        # Everybody could write down what it did, so what they wrote must agree as well.
        self.assertEqual(holders.violations(holders.read(os.path.join(r.dir, n + ".log") for n in r.agents)), [])

    # R: C34 C33
    def test_a_leader_that_is_cut_from_etcd_while_its_agents_still_reach_it(self):
        r = self.begin(agents=3)
        leader = r.wait_leader()
        leader.cut_from_etcd("cut")
        new = r.wait_leader(other_than=leader)
        time.sleep(12 if FULL else 6)  # as long as a new holder would wait
        self.witnesses(r)
        leader.cut_from_etcd("pass")
        r.wait_for("all to run", lambda: len(self.running(r)) == UNITS, timeout=120)
        note(f"{leader} led and was cut from etcd; {new} led then, and all {UNITS} exclusive units run")
        self.assertEqual(holders.violations(holders.read(os.path.join(r.dir, n + ".log") for n in r.agents)), [])

    # R: C34 C33
    def test_agents_and_leaders_that_stand_still_or_die(self):
        if not FULL:
            self.skipTest("takes minutes: part of ./check full")
        r = self.begin(agents=4)
        r.keep_alive()
        node = self.busiest(r)
        self.moved(r, "the agent stands still", node, lambda: r.agents[node].signal(signal.SIGSTOP), lambda: r.agents[node].signal(signal.SIGCONT))
        node = self.busiest(r)
        self.moved(r, "the agent was killed", node, r.agents[node].kill, lambda: r.start_agent(node))
        node, leader = self.busiest(r), r.wait_leader()

        def both():
            r.net.set(r.net.of(node, "r"), "cut")
            leader.pause()

        def mend():
            leader.resume()
            r.net.heal()
        self.moved(r, "the agent is cut off and the leader stands still", node, both, mend)
        for _ in range(4):
            node, leader = self.busiest(r), r.wait_leader()
            r.net.set(r.net.of(node, "r"), "cut")
            time.sleep(self.random.random() * 8)
            leader.kill()
            time.sleep(self.random.random() * 8)
            r.net.heal()
            r.wait_for("all to run", lambda: len(self.running(r)) == UNITS, timeout=120)
            self.witnesses(r)
