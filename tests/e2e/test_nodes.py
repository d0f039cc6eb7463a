"""The life of nodes as an operator sees it: registration, silence, drain, forget (C8-C13)."""
import os
import time

from berthtest import Case, alive


def lines(path):
    try:
        with open(path) as f:
            return f.read().split()
    except FileNotFoundError:
        return []


def traced(c, name):
    """Notes when each of its copies begins and ends."""
    p = os.path.join(c.dir, name)
    return ["sh", "-c", f"trap 'date +%s%N >> {p}.ended; exit 0' TERM; date +%s%N >> {p}.began; while :; do sleep 0.05; done"]


class Drain(Case):
    # R: C12 A8
    def test_nodes_that_are_drained_together_do_not_take_each_others_work(self):
        c = self.cluster(nodes=3)
        c.ok("cordon", "node-3")
        for i in range(6):
            c.apply(f"w{i}")
        for i in range(6):
            c.wait_phase(f"w{i}", "Running")
        c.ok("uncordon", "node-3")
        before = c.head()
        c.ok("drain", "node-1", "node-2", "--wait")
        placed = [e for e in c.events() if e["seq"] > before and e["type"] == "WorkloadScheduled"]
        self.assertEqual({e["node_id"] for e in placed}, {"node-3"}, placed)
        self.assertIn("wish changed to draining", c.ok("events", "--type", "NodeWishChanged").out)
        r = c.cli("drain", "node-3", "--deadline", "99999999999h")
        self.assertEqual(r.code, 2)
        self.assertIn("168h", r.err)

    # R: C12
    def test_a_drain_moves_what_fits_and_names_what_does_not_until_its_deadline(self):
        c = self.cluster(heartbeat="300ms")
        c.start_agent("node-1", cpu="4")
        c.wait_nodes_ready(1)
        c.apply("small", cpu=0.5, command=traced(c, "small"))
        c.apply("large", cpu=2)
        c.wait_phase("small", "Running")
        large = c.wait_phase("large", "Running")
        c.wait_for("its process", lambda: lines(os.path.join(c.dir, "small.began")))
        c.start_agent("node-2", cpu="1")
        c.wait_nodes_ready(2)
        self.assertEqual(c.cli("drain", "node-1", "--deadline", "0").code, 2)
        self.assertEqual(c.node("node-1")["status"], "Ready")
        r = c.cli("node", "drain", "node-1", "--deadline", "1h", "--wait", "--timeout", "3s")
        self.assertEqual(r.code, 6, r)
        self.assertIn("1 of 2 moved, 1 left; 1 cannot move: large (no suitable node available (cpu-insufficient: 1))", r.err)
        self.assertEqual(c.wait_phase("small", "Running")["assigned_node"], "node-2")
        began, ended = lines(os.path.join(c.dir, "small.began")), lines(os.path.join(c.dir, "small.ended"))
        c.wait_for("the new copy", lambda: len(lines(os.path.join(c.dir, "small.began"))) == 2)
        began = lines(os.path.join(c.dir, "small.began"))
        self.assertLess(int(ended[0]), int(began[1]), "the new copy starts when the old one is gone")
        n = c.node("node-1")
        self.assertEqual(n["status"], "Draining")
        self.assertEqual([b["workload_id"] for b in n["drain"]["blockers"]], ["large"])
        self.assertEqual(n["drain"]["blockers"][0]["reason"], "cpu-insufficient")
        self.assertEqual(c.workload("large")["token"], large["token"], "what fits nowhere runs on")
        told = c.ok("node", "describe", "node-1").out
        self.assertIn("Cannot move", told)
        self.assertRegex(told, r"Deadline: .* \(in \d+m\)")

        # Heartbeats and a restart of the server undo nothing.
        c.restart_server()
        c.wait_node("node-1", "Draining")
        self.assertEqual(c.node("node-1")["drain"]["deadline_at"], n["drain"]["deadline_at"])

        # A nearer deadline: what is left is stopped, and waits for a node like anything else.
        a = c.api.call("POST", "/v1/nodes/node-1/drain", {"deadline_seconds": 1})
        self.assertEqual(a.status, 200)
        self.assertEqual(c.wait_phase("large", "Pending")["assigned_node"], "")
        c.wait_for("the end of the drain", lambda: c.node("node-1")["drain"].get("finished_at"))
        self.assertEqual(len([e for e in c.events() if e["type"] == "NodeDrained"]), 1)
        c.ok("drain", "node-1", "--wait")
        c.ok("uncordon", "node-1")
        self.assertNotIn("drain", c.node("node-1"))
        self.assertEqual(c.wait_phase("large", "Running")["assigned_node"], "node-1")

    # R: C12
    def test_uncordon_calls_a_drain_off(self):
        c = self.cluster(nodes=1, heartbeat="300ms")
        c.apply("w")
        w = c.wait_phase("w", "Running")
        c.ok("drain", "node-1", "--deadline", "2s")
        c.wait_node("node-1", "Draining")
        c.ok("uncordon", "node-1")
        time.sleep(3)  # longer than the deadline that no longer counts
        self.assertEqual(c.workload("w")["token"], w["token"])
        self.assertEqual(c.node("node-1")["status"], "Ready")

    # R: C12
    def test_a_drained_node_is_forgotten_when_its_agent_has_gone(self):
        c = self.cluster(nodes=2, heartbeat="300ms", silence=3)
        c.apply("job", command=["true"], restart="never")
        c.wait_phase("job", "Completed")
        node = c.workload("job")["assigned_node"]
        c.ok("node", "drain", node, "--wait")
        self.assertEqual(c.cli("node", "forget", node).code, 5, "it is alive")
        c.agents[node].stop()
        c.wait_node(node, "NotReady")
        c.ok("node", "forget", node)
        self.assertEqual(c.api.get(f"/v1/nodes/{node}").status, 404)
        self.assertEqual(c.workload("job")["assigned_node"], node, "its name stays, for people")

    # R: C12
    def test_a_disabled_node_takes_nothing_and_keeps_what_it_has(self):
        c = self.cluster(nodes=1, heartbeat="300ms")
        c.apply("w")
        w = c.wait_phase("w", "Running")
        c.ok("node", "disable", "node-1")
        c.wait_node("node-1", "Disabled")
        c.apply("late")
        c.wait_phase("late", "Pending")
        self.assertEqual(c.workload("w")["token"], w["token"])
        c.ok("node", "uncordon", "node-1")
        c.wait_phase("late", "Running")


class EmptyStore(Case):
    # R: A5 C27
    def test_a_server_that_lost_its_store_destroys_nothing_and_takes_everything_over(self):
        c = self.cluster(nodes=2, heartbeat="300ms")
        pids = {}
        for i in range(5):
            c.apply(f"w{i}", command=["sh", "-c", f"echo $$ >> {c.dir}/w{i}.pids; exec sleep 1000"], labels={"app": "kept"})
        for i in range(5):
            c.wait_phase(f"w{i}", "Running")
            c.wait_for("its process", lambda: lines(os.path.join(c.dir, f"w{i}.pids")))
            pids[f"w{i}"] = lines(os.path.join(c.dir, f"w{i}.pids"))
        before = {w["id"]: w for w in c.workloads()}
        c.kill_server()
        c.new_store()
        c.start_server()

        # It offers, and touches nothing.
        c.wait_for("both nodes to come by", lambda: len([n for n in c.nodes() if n.get("foreign")]) == 2)
        self.assertEqual(c.workloads(), [])
        n = c.node("node-1")
        self.assertIn("belongs to cluster", n["status_reason"])
        self.assertIn("berth adopt node-1 takes it over", n["status_reason"])
        self.assertIn("2 nodes belong to another cluster", c.ok("cluster").out)
        self.assertTrue(all(alive(int(p[0])) for p in pids.values()))

        for name in ("node-1", "node-2"):
            self.assertEqual(c.api.call("POST", f"/v1/nodes/{name}/adopt").status, 200)
        c.wait_for("all to be adopted", lambda: len(c.workloads()) == 5)
        c.wait_nodes_ready(2)
        for i in range(5):
            w = c.wait_phase(f"w{i}", "Running")
            old = before[f"w{i}"]
            for field in ("spec", "labels", "revision_id", "assigned_node", "token", "resources"):
                self.assertEqual(w.get(field), old.get(field), field)
        self.assertEqual(len([e for e in c.events() if e["type"] == "NodeAdopted"]), 2)
        self.assertEqual(len([e for e in c.events() if e["type"] == "WorkloadAdopted"]), 5)
        self.assertEqual({f"w{i}": lines(os.path.join(c.dir, f"w{i}.pids")) for i in range(5)}, pids, "every process is the one it was")
        self.assertTrue(all(alive(int(p[0])) for p in pids.values()))

        # From now on they are workloads like any others.
        c.apply("w0", command=["sh", "-c", f"echo $$ >> {c.dir}/w0.pids; exec sleep 1001"])
        c.wait_for("the new revision", lambda: len(lines(os.path.join(c.dir, "w0.pids"))) == 2)
        c.ok("delete", "w1", "--wait")
        c.wait_for("its end", lambda: not alive(int(pids["w1"][0])))
        c.restart_server()
        c.wait_nodes_ready(2)
        self.assertTrue(all(alive(int(pids[f"w{i}"][0])) for i in (2, 3, 4)))


class Drift(Case):
    def forgotten(self, *args):
        """A node that was lost and forgotten comes back with a unit whose workload has been deleted meanwhile; and the unit's pid."""
        c = self.cluster(nodes=4, heartbeat="300ms", silence=3, grace="1s", server_args=args)
        c.apply("kept", command=["sh", "-c", f"echo $$ >> {c.dir}/kept.pids; exec sleep 1000"])
        node = c.wait_phase("kept", "Running")["assigned_node"]
        c.wait_for("its process", lambda: lines(os.path.join(c.dir, "kept.pids")))
        pid = int(lines(os.path.join(c.dir, "kept.pids"))[0])
        c.agents[node].kill()
        c.wait_for("failover", lambda: c.workload("kept")["assigned_node"] != node)
        c.ok("node", "forget", node)
        c.ok("delete", "kept", "--wait")
        self.assertTrue(alive(pid))
        c.start_agent(node)
        c.wait_node(node, "Ready")
        return c, node, pid

    # R: C27 A5
    def test_a_unit_that_the_records_do_not_know_is_offered_and_adopted_as_it_runs(self):
        c, node, pid = self.forgotten()
        c.wait_for("it to be told of", lambda: c.node(node).get("strangers") == ["kept"])
        self.assertEqual(len([e for e in c.events() if e["type"] == "UnitUnknown"]), 1)
        self.assertIn("Unknown:      kept\n              berth adopt", c.ok("describe", "node", node).out)
        self.assertTrue(alive(pid))
        self.assertEqual(c.ok("node", "adopt", node).out, "workload/kept adopted\n")
        w = c.wait_phase("kept", "Running")
        self.assertEqual((w["assigned_node"], w["metadata"]["last_action"]), (node, "Adopt"))
        self.assertNotIn("strangers", c.node(node))
        self.assertIn("where it ran already: it was adopted", c.ok("explain", "kept").out)
        self.assertTrue(alive(pid), "it runs on as it was")
        c.ok("delete", "kept", "--wait")
        c.wait_for("its end", lambda: not alive(pid))

    # R: C27
    def test_a_unit_that_this_store_surely_forgot_is_removed_if_the_operator_wants_that(self):
        c, node, pid = self.forgotten("--strangers", "remove")
        c.wait_for("its end", lambda: not alive(pid))
        self.assertEqual(len([e for e in c.events() if e["type"] == "DriftDetected"]), 1)
        c.wait_for("it to be gone", lambda: not c.node(node).get("strangers"))
