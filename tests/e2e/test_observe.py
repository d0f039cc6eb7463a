"""What people see when something is wrong: explanations, the doctor, the log."""
import json
import os

from berthtest import Case


class Observe(Case):
    # R: C29 A8
    def test_a_nodes_history_is_its_own_and_is_found_without_looking_at_the_rest(self):
        c = self.cluster(nodes=2)
        for i in range(5):
            c.apply(f"w{i}", command=["sleep", "1000"])
            c.wait_phase(f"w{i}", "Running")
        c.ok("cordon", "node-1")
        c.ok("uncordon", "node-1")
        history = c.api.get("/v1/events?subject=node/node-1&newest_first=true").json["items"]
        self.assertEqual([e["type"] for e in history][:2], ["NodeWishChanged", "NodeWishChanged"])
        self.assertTrue(all(e["node_id"] == "node-1" and not e.get("workload_id") for e in history), history)
        # it is a chain: each event names the one before it, down to the first
        self.assertEqual([e.get("prev", 0) for e in history], [e["seq"] for e in history[1:]] + [0])
        scanned = [e for e in c.api.get("/v1/events?node=node-1&limit=1000").json["items"] if not e.get("workload_id")]
        self.assertEqual([e["seq"] for e in history], [e["seq"] for e in reversed(scanned)])
        self.assertNotIn("WorkloadScheduled", c.ok("describe", "node", "node-1").out)
        self.assertEqual(c.api.get("/v1/events?subject=planet/mars").status, 400)

    # R: A8 X2 C28
    def test_a_failed_and_moved_workload_is_explained_with_what_led_here(self):
        c = self.cluster(nodes=2)
        c.apply("crashes", command=["sh", "-c", "exit 3"], retry={"max_attempts": 3, "base_seconds": 1})
        x = c.wait_for("an explained failure", lambda: (lambda x: x if x.get("attempts") and x.get("last_failure", {}).get("node_id") else None)(
            c.api.get("/v1/workloads/crashes/explain").json))
        self.assertEqual(x["last_failure"]["exit_code"], 3)
        self.assertEqual(x["max_attempts"], 3)
        self.assertIn(x["last_failure"]["node_id"], ("node-1", "node-2"))
        self.assertIn("created", x["history"][0])
        self.assertTrue(any("failed on node-" in line and "failure 1" in line for line in x["history"]), x)
        text = c.ok("explain", "crashes").out
        self.assertIn("exit code 3", text)
        self.assertIn("What led here", text)
        # moved
        c.apply("moves")
        node = c.wait_phase("moves", "Running")["assigned_node"]
        c.ok("drain", node, "--wait")
        c.wait_for("it to run elsewhere", lambda: c.workload("moves")["assigned_node"] != node and c.workload("moves")["status"]["phase"] == "Running")
        x = c.api.get("/v1/workloads/moves/explain").json
        self.assertEqual(x["came_from"], node)
        self.assertIn(x["moved_because"], ("node-drained", "node-cordoned", "node_drained", "node_cordoned"))
        self.assertTrue(any(f"moved away from {node}" in line for line in x["history"]), x)
        self.assertEqual(sorted(x["history"]), x["history"], "newest last")
        self.assertIn(f"away from {node}", c.ok("explain", "moves").out)
        # by gRPC the same
        again = json.loads(c.ok("explain", "moves", "-o", "json").out)
        self.assertEqual(again["history"], x["history"])

    # R: C36
    def test_the_doctor_finds_what_was_broken_and_says_what_to_do(self):
        c = self.cluster(nodes=2, heartbeat="300ms", silence=3)
        checks = lambda r: {f["check"]: f for f in json.loads(r.out)["findings"] if f["level"] == "problem"}  # noqa: E731
        # a small disk or another version of time on the test's machine is not what is looked for here
        machine = {"store-disk", "clock-skew", "store-slow", "node-disk"}
        self.assertEqual(set(checks(c.cli("doctor", "-o", "json"))) - machine, set())
        c.apply("huge", cpu=1000)
        c.apply("crashes", command=["false"], retry={"max_attempts": 1})
        c.wait_phase("crashes", "Failed", "RetryPending")
        c.agents["node-2"].kill()
        c.wait_node("node-2", "NotReady")
        r = c.cli("doctor", "-o", "json")
        self.assertEqual(r.code, 1, r)
        found = checks(r)
        self.assertIn("huge", found["workloads-pending"]["what"])
        self.assertIn("cpu-insufficient", found["workloads-pending"]["what"])
        self.assertIn("node-2", found["node-lost"]["what"])
        self.assertTrue("workloads-failed" in found or "crash-loop" in found, found)
        self.assertTrue(all(f["advice"] for f in found.values()))
        text = c.cli("doctor").out
        self.assertIn("-> ", text)
        self.assertIn("node-2", text)
        c.server.stop()
        r = c.cli("doctor", "-o", "json")
        self.assertEqual((r.code, set(checks(r))), (1, {"server-unreachable"}), r)
        c.start_server()

    # R: C36
    def test_each_action_is_one_line_of_the_log_and_idle_writes_none(self):
        c = self.cluster(nodes=1, server_args=["--log-format", "json"], heartbeat="200ms")
        secret = "s3cr3t-in-the-environment"
        c.apply("hello", env={"PASSWORD": secret})
        c.wait_phase("hello", "Running")
        c.api.call("DELETE", "/v1/workloads/hello", headers={"X-Request-Id": "req-42", "X-Berth-Actor": "alice"})
        c.wait_gone("hello")

        def lines():
            with open(os.path.join(c.dir, "server.log")) as f:
                return [json.loads(line) for line in f if line.startswith("{")]
        got = {e["msg"]: e for e in lines() if e.get("workload") == "hello"}
        for msg in ("WorkloadApplied", "WorkloadScheduled", "WorkloadStarted", "WorkloadDeleting", "WorkloadDeleted"):
            self.assertIn(msg, got)
        self.assertEqual((got["WorkloadDeleting"]["request_id"], got["WorkloadDeleting"]["actor"]), ("req-42", "alice"))
        self.assertEqual(got["WorkloadScheduled"]["node"], "node-1")
        events = {e["seq"] for e in c.events()}
        self.assertEqual({e["seq"] for e in lines() if "seq" in e}, events, "every event, once")
        for name in ("server.log", "node-1.log"):
            with open(os.path.join(c.dir, name)) as f:
                self.assertNotIn(secret, f.read())
        # heartbeats go on, and nothing is written about them
        before = len(lines())
        beats = c.info().get("heartbeats", 0)
        c.wait_for("some heartbeats", lambda: c.info().get("heartbeats", 0) > beats + 5)
        self.assertEqual(len(lines()), before)
