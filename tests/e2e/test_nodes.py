"""The life of nodes as an operator sees it: registration, silence, drain, forget (C8-C13)."""
import os
import time

from berthtest import Case


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
        self.assertIn("Cannot move", c.ok("node", "describe", "node-1").out)

        # Heartbeats and a restart of the server undo nothing.
        c.restart_server()
        c.wait_node("node-1", "Draining")
        self.assertEqual(c.node("node-1")["drain"]["deadline_at"], n["drain"]["deadline_at"])

        # A nearer deadline: what is left is stopped, and waits for a node like anything else.
        a = c.api.call("POST", "/v1/nodes/node-1/drain", {"deadline_seconds": 1})
        self.assertEqual(a.status, 200)
        self.assertNotIn("assigned_node", c.wait_phase("large", "Pending"))
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
