"""What would happen, and doing just that."""
import json
import os
import signal

from berthtest import Case, processes_with


class Plan(Case):
    def write(self, c, name, *workloads):
        path = os.path.join(c.dir, name)
        with open(path, "w") as f:
            f.write("\n---\n".join(json.dumps(w) for w in workloads))
        return path

    # R: X1
    def test_what_the_plan_says_is_what_happens(self):
        c = self.cluster(nodes=3)
        for i in range(6):
            c.apply(f"w{i}", cpu=1)
        for i in range(6):
            c.wait_phase(f"w{i}", "Running")
        # a drain
        head = c.head()
        plan = json.loads(c.ok("plan", "drain", "node-2", "-o", "json").out)
        self.assertEqual(c.head(), head, "a plan changes nothing")
        self.assertEqual(plan["index"], head)
        self.assertTrue(plan["complete"])
        moves = {m["workload_id"]: m["to_node"] for m in plan["changes"]}
        self.assertEqual({m["what"] for m in plan["changes"]}, {"move"})
        self.assertEqual(set(moves), {w["id"] for w in c.workloads(node="node-2")})
        text = c.ok("plan", "drain", "node-2").out
        self.assertIn("-> ", text)
        self.assertIn("moves from node-2 to", text)
        self.assertIn("2 -> 0", text)
        self.assertIn(f"index {head}", text)
        self.assertEqual(c.cli("plan", "drain", "node-2", "--detailed-exitcode").code, 2)
        c.ok("drain", "node-2", "--check-index", str(head), "--wait")
        self.assertEqual({w: c.wait_phase(w, "Running")["assigned_node"] for w in moves}, moves)
        # a delete, an apply, new nodes
        self.assertIn("removed from", c.ok("plan", "delete", "w0").out)
        self.assertEqual(c.workload("w0")["status"]["phase"], "Running")
        big = self.write(c, "big.json", *(c.manifest(f"big{i}", cpu=4) for i in range(2)))
        text = c.ok("plan", "apply", "-f", big).out
        self.assertIn("2 would be pending", text)
        self.assertIn("cpu-insufficient", text)
        c.ok("apply", "-f", big)
        more = json.loads(c.ok("plan", "add-node", "--like", "node-1", "--count", "2", "-o", "json").out)
        self.assertEqual((more["pending_before"], more.get("pending_after", 0)), (2, 0))
        self.assertEqual({n["node_id"] for n in more["nodes"] if n["what"] == "new"}, {"node-1-new-1", "node-1-new-2"})
        c.start_agent("node-4")
        c.start_agent("node-5")
        c.wait_phase("big0", "Running")
        c.wait_phase("big1", "Running")

    # R: X1 C24
    def test_the_loss_of_a_node_is_foreseen(self):
        c = self.cluster(nodes=3, heartbeat="500ms", silence=3, grace="1s")
        for i in range(6):
            c.apply(f"w{i}", cpu=1)
        for i in range(6):
            c.wait_phase(f"w{i}", "Running")
        plan = json.loads(c.ok("plan", "lose", "node-1", "-o", "json").out)
        moves = {m["workload_id"]: m["to_node"] for m in plan["changes"]}
        self.assertEqual(len(moves), 2)
        c.agents["node-1"].kill()
        c.leftovers_allowed = True
        for w, node in moves.items():
            c.wait_for(f"{w} on {node}", lambda w=w, node=node: c.workload(w)["assigned_node"] == node)

    # R: X1
    def test_an_old_plan_is_refused(self):
        c = self.cluster(nodes=2)
        two = self.write(c, "two.json", c.manifest("a"), c.manifest("b"))
        index = json.loads(c.ok("plan", "apply", "-f", two, "-o", "json").out)["index"]
        c.apply("somebody-elses")
        r = c.cli("apply", "-f", two, "--check-index", str(index))
        self.assertEqual(r.code, 5, r)
        self.assertIn("something has changed since the plan was made", r.err)
        self.assertIsNone(c.workload("a"))
        answer = c.api.call("PUT", f"/v1/workloads/a?check_index={index}", c.manifest("a"))
        self.assertEqual(answer.status, 409, answer)
        # a plan of two changes can be carried out: what the first leads to is no surprise to the second
        r = c.cli("apply", "-f", two, "--plan", "--yes")
        self.assertEqual(r.code, 0, r)
        self.assertIn("2 created", r.out)
        self.assertIn("workload/b created", r.out)
        self.assertIn("nothing changes", c.ok("apply", "-f", two, "--plan").out)
        c.wait_phase("a", "Running")
        # nobody to ask: nothing is done
        one = self.write(c, "one.json", c.manifest("z"))
        r = c.cli("apply", "-f", one, "--plan")
        self.assertNotEqual(r.code, 0)
        self.assertIsNone(c.workload("z"))

    # R: X1 A9 A12
    def test_plans_end_with_their_caller_and_with_the_server(self):
        c = self.cluster(nodes=1)
        self.assertEqual(c.api.call("POST", "/v1/plan", {}).status, 400)
        self.assertEqual(c.api.call("POST", "/v1/plan", {"drain_node": "nobody"}).status, 404)
        self.assertEqual(c.api.call("POST", "/v1/plan", {"drain_node": "node-1", "remove": ["a"]}).status, 400)
        answers = [c.api.call("POST", "/v1/plan", {"remove": ["nobody"]}).json for _ in range(20)]
        self.assertEqual({a["changes"][0]["what"] for a in answers}, {"refused"})
        c.wait_for("no child to be left", lambda: [p for p in processes_with(c.mark) if os.getpgid(p) == c.server.pid] == [c.server.pid])
        c.server.signal(signal.SIGTERM)
        self.assertEqual(c.server.popen.wait(20), 0)
        c.start_server()
