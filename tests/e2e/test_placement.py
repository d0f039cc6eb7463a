"""Where things go, with real agents: spread, affinity, taints, host ports, priority (C14-C18, C38)."""
import collections

from berthtest import Case


def counts(c, ids, label=None):
    nodes = {n["id"]: n for n in c.nodes()}
    where = [c.workload(i).get("assigned_node", "") for i in ids]
    return collections.Counter(nodes[w]["labels"][label] if label and w else w for w in where)


class Placement(Case):
    # R: C15
    def test_a_hundred_applied_at_once_are_ten_on_each_of_ten_nodes(self):
        c = self.cluster(nodes=0, agent_args=("--runtime", "mock"))
        for i in range(10):
            c.start_agent(f"node-{i}")
        c.wait_nodes_ready(10)
        ids = [f"w-{i:03}" for i in range(100)]
        a = c.api.call("POST", "/v1/workloads:batch", {"items": [c.manifest(i) for i in ids]})
        self.assertEqual(a.status, 200, a)
        for i in ids:
            c.wait_phase(i, "Running")
        self.assertEqual(sorted(counts(c, ids).values()), [10] * 10)

    # R: C17 A8
    def test_spread_keeps_the_skew_and_affinity_brings_together(self):
        c = self.cluster(nodes=0, agent_args=("--runtime", "mock"))
        for i in range(4):
            c.start_agent(f"node-{i}", labels={"zone": "ab"[i % 2]}, cpu="8" if i % 2 else "2")
        c.wait_nodes_ready(4)
        web = [f"web-{i}" for i in range(6)]
        for i in web:
            c.apply(i, labels={"app": "web"}, spread=[{"over": "zone", "max_skew": 1}])
        for i in web:
            c.wait_phase(i, "Running")
        self.assertEqual(counts(c, web, "zone"), {"a": 3, "b": 3})
        c.apply("db", labels={"app": "db"}, node_selector={"zone": "a"})
        c.wait_phase("db", "Running")
        near = [f"near-{i}" for i in range(3)]
        for i in near:
            c.apply(i, affinity=[{"match": {"app": "db"}, "over": "zone"}])
            c.wait_phase(i, "Running")
        self.assertEqual(counts(c, near, "zone"), {"a": 3})
        c.apply("apart", anti_affinity=[{"match": {"app": "db"}, "over": "zone"}])
        c.wait_phase("apart", "Running")
        self.assertEqual(counts(c, ["apart"], "zone"), {"b": 1})
        c.apply("lost", affinity=[{"match": {"app": "nobody"}}])
        w = c.wait_phase("lost", "Pending")
        self.assertEqual(w["status"]["reason"], "affinity-unmet")
        x = c.api.get("/v1/workloads/lost/explain").json
        self.assertEqual(sum(r["nodes"] for r in x["reasons"]), x["nodes"])
        self.assertIn("app=nobody", c.ok("explain", "lost").out)

    # R: C38
    def test_taints_keep_away_and_drive_out(self):
        c = self.cluster(nodes=0, agent_args=("--runtime", "mock"))
        c.start_agent("node-1")
        c.wait_nodes_ready(1)
        c.ok("node", "taint", "node-1", "gpu=yes:no-schedule")
        self.assertIn("gpu=yes:no-schedule", c.ok("node", "describe", "node-1").out)
        c.apply("plain")
        self.assertEqual(c.wait_phase("plain", "Pending")["status"]["reason"], "taint-not-tolerated")
        c.apply("tolerant", tolerations=[{"key": "gpu"}])
        c.wait_phase("tolerant", "Running")
        self.assertIn("remove the taint gpu=yes:no-schedule from node node-1", c.ok("explain", "plain").out)
        c.ok("taint", "node-1", "gpu-")
        c.wait_phase("plain", "Running")
        c.start_agent("node-2")
        c.wait_nodes_ready(2)
        a = c.api.call("PUT", "/v1/nodes/node-1/taints", {"taints": [{"key": "gpu", "effect": "no-execute"}]})
        self.assertEqual(a.status, 200, a)
        c.wait_for("plain on the other node", lambda: c.workload("plain").get("assigned_node") == "node-2" and c.workload("plain")["status"]["phase"] == "Running")
        self.assertEqual(c.workload("tolerant")["assigned_node"], "node-1")
        self.assertEqual(c.events_of("plain", "Rescheduled")[-1]["reason"], "taint-not-tolerated")
        c.restart_server()
        self.assertEqual(c.node("node-1")["taints"], [{"key": "gpu", "effect": "no-execute"}])
        bad = c.api.call("PUT", "/v1/nodes/node-1/taints", {"taints": [{"key": "gpu", "effect": "sometimes"}]})
        self.assertEqual(bad.status, 400)

    # R: C38 A8
    def test_a_host_port_is_given_once_per_node(self):
        c = self.cluster(nodes=0, agent_args=("--runtime", "mock"))
        c.start_agent("node-1")
        c.wait_nodes_ready(1)
        ports = {"ports": [{"host_port": 18080, "container_port": 80}], "command": ["true"]}
        c.apply("a", spec=ports)
        c.wait_phase("a", "Running")
        c.apply("b", spec=ports)
        self.assertEqual(c.wait_phase("b", "Pending")["status"]["reason"], "port-taken")
        self.assertIn("free port 18080 on node-1 (held by workload a)", c.ok("explain", "b").out)
        c.ok("delete", "a")
        c.wait_phase("b", "Running")

    # R: C38
    def test_a_higher_priority_takes_the_place_of_a_lower_one(self):
        c = self.cluster(nodes=0)
        c.start_agent("node-1", cpu="1")
        c.wait_nodes_ready(1)
        c.apply("low", cpu=1)
        c.wait_phase("low", "Running")
        c.apply("high", cpu=1, priority=10)
        c.wait_phase("high", "Running")
        low = c.wait_phase("low", "Pending")
        self.assertEqual(low["assigned_node"], "")
        moved = c.events_of("low", "Rescheduled")[-1]
        self.assertEqual(moved["reason"], "preempted")
        self.assertIn("made room for high (priority 10", moved["message"])
        self.assertTrue(any("low" in e.get("message", "") for e in c.events_of("high", "WorkloadPending")))
        c.start_agent("node-2", cpu="1")
        self.assertEqual(c.wait_phase("low", "Running")["assigned_node"], "node-2")

    # R: C7
    def test_labels_change_without_a_restart(self):
        c = self.cluster(nodes=1)
        c.wait_nodes_ready(1)
        c.apply("w", labels={"app": "a"})
        before = c.wait_phase("w", "Running")
        c.apply("w", labels={"app": "b"}, priority=3, node_selector={"zone": "elsewhere"})
        after = c.workload("w")
        self.assertEqual(after["token"], before["token"])
        self.assertEqual(after["revision_id"], before["revision_id"])
        self.assertEqual(after["labels"], {"app": "b"})
        self.assertEqual(after["status"]["phase"], "Running")
        self.assertEqual([e["type"] for e in c.events_of("w")][-1], "WorkloadRelabelled")
        self.assertIn("it stays there although", c.ok("explain", "w").out)
