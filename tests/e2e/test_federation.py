"""A whole cluster as one node of another: a parent server, a child server with process agents, and the agent between them (C37)."""
import os
import subprocess
import uuid

from berthtest import BERTH, Case, Process, alive, kill_marked


def lines(path):
    try:
        with open(path) as f:
            return f.read().split()
    except FileNotFoundError:
        return []


def counted(c, name):
    """A service that notes the pid of every copy that was ever started."""
    return ["sh", "-c", f"echo $$ >> {os.path.join(c.dir, name)}.pids; echo says {name}; exec sleep 100000"]


class Federation(Case):
    def between(self, parent, child, name="west", args=()):
        """Starts the agent that stands for the child at the parent."""
        argv = [BERTH, "agent", "--server", parent.grpc_address, "--runtime", "cluster", "--cluster", child.grpc_address,
                "--data", os.path.join(parent.dir, name), "--node-id", name, *args]
        parent.agents[name] = Process(name, argv, parent.env, os.path.join(parent.dir, name + ".log"))
        return parent.agents[name]

    def both(self):
        parent = self.cluster(heartbeat="300ms")
        mark = uuid.uuid4().hex
        self.addCleanup(kill_marked, mark)
        child = self.cluster(nodes=2, heartbeat="300ms", mark=mark)
        self.between(parent, child)
        parent.wait_nodes_ready(1)
        return parent, child

    # R: C37
    def test_what_is_placed_on_it_runs_in_the_child_and_nothing_is_lost(self):
        parent, child = self.both()
        n = parent.node("west")
        self.assertEqual((n["resources"]["cpu_total"], n["resources"]["memory_total"], n["resources"]["disk_total"]), (8, 16384, 200))
        self.assertEqual(n["supported_workload_types"], ["process"])

        # Runs there, with marks that lead back.
        parent.apply("api", command=counted(parent, "api"), labels={"app": "api"}, revision_id="first")
        up = parent.wait_phase("api", "Running")
        self.assertEqual(up["assigned_node"], "west")
        there = child.workload("west.api")
        self.assertEqual(there["status"]["phase"], "Running")
        self.assertEqual(there["labels"], {"app": "api", "berth.io/parent-node": "west", "berth.io/parent-cluster": parent.info()["cluster_id"]})
        self.assertEqual(there["annotations"]["berth.io/parent-workload"], "api")
        self.assertEqual(there["annotations"]["berth.io/parent-token"], f"{up['token']['epoch']}.{up['token']['seq']}")
        self.assertEqual((there["revision_id"], there["annotations"]["berth.io/parent-revision"]), ("first", "first"))
        pids = parent.wait_for("its process", lambda: lines(os.path.join(parent.dir, "api.pids")))

        # What must not run twice is not moved by the clock there either (issue 5, D1). R: C34
        parent.apply("db", exclusive="pinned")
        parent.wait_phase("db", "Running")
        self.assertEqual(child.workload("west.db")["exclusive"], "pinned")
        parent.ok("delete", "db", "--wait")

        # Logs and exec, through both servers.
        parent.wait_for("its output", lambda: "says api" in parent.ok("logs", "api").out)
        r = parent.cli("exec", "-i", "api", "--", "sh", "-c", "cat; exit 7", stdin="through both\n")
        self.assertEqual((r.code, r.out), (7, "through both\n"), r)

        # The child away, the agent away, the child restarted: nothing is started again, nothing is reported that is not so.
        child.kill_server()
        parent.agents["west"].kill()
        self.between(parent, child)
        child.start_server()
        parent.wait_for("the agent's return", lambda: parent.node("west").get("connected"))
        child.restart_server()
        parent.apply("after", command=counted(parent, "after"))
        parent.wait_phase("after", "Running")
        again = parent.wait_phase("api", "Running")
        self.assertEqual(again["token"], up["token"])
        self.assertEqual(lines(os.path.join(parent.dir, "api.pids")), pids)
        self.assertTrue(alive(int(pids[0])))

        # What was wished while the child was away is done when it is back.
        child.kill_server()
        for _ in range(3):
            heard = parent.node("west")["last_heartbeat"]
            parent.wait_for("a heartbeat", lambda: parent.node("west")["last_heartbeat"] != heard)
        self.assertEqual(parent.node("west")["status"], "Ready")
        self.assertEqual([w["status"]["phase"] for w in parent.workloads()], ["Running", "Running"])
        self.assertEqual(parent.api.call("POST", "/v1/workloads/after/stop").status, 200)
        child.start_server()
        parent.wait_phase("after", "Stopped")
        self.assertEqual(child.workload("west.after")["status"]["phase"], "Stopped")
        self.assertFalse(alive(int(lines(os.path.join(parent.dir, "after.pids"))[0])))

        # Started again, changed, deleted: never two copies, and gone when the child says so.
        self.assertEqual(parent.api.call("POST", "/v1/workloads/after/start").status, 200)
        parent.wait_phase("after", "Running")
        self.assertEqual(len(parent.wait_for("the second", lambda: lines(os.path.join(parent.dir, "after.pids"))[1:])), 1)
        parent.apply("api", command=counted(parent, "api2"), labels={"app": "api"})
        new = parent.wait_for("the update", lambda: lines(os.path.join(parent.dir, "api2.pids")))
        parent.wait_phase("api", "Running")
        self.assertFalse(alive(int(pids[0])))
        parent.ok("delete", "api", "after")
        parent.wait_gone("api")
        parent.wait_gone("after")
        self.assertIsNone(child.workload("west.api"))
        self.assertFalse(alive(int(new[0])))
        self.assertEqual(child.workloads(), [])

    # R: C37
    def test_ends_and_failures_come_back_as_the_child_has_them(self):
        parent, child = self.both()
        parent.apply("good", command=["true"], restart="never")
        parent.apply("bad", command=["sh", "-c", "exit 3"], restart="never")
        w = parent.wait_phase("good", "Completed")
        self.assertEqual(w["status"]["exit_code"], 0)
        w = parent.wait_phase("bad", "Failed")
        self.assertEqual(w["status"]["exit_code"], 3)
        self.assertEqual(child.workload("west.bad")["status"]["exit_code"], 3)
        parent.apply("none", command=["/no/such/command"], restart="never")
        w = parent.wait_phase("none", "Failed")
        self.assertEqual(w["status"]["failure_reason"], child.workload("west.none")["status"]["failure_reason"])

        # The sum promises what no single node has: the child's own words come back, and nothing stays there.
        parent.apply("wide", cpu=6, restart="never")
        w = parent.wait_for("the refusal", lambda: (lambda x: x if "no place" in x["status"].get("failure_reason", "") else None)(
            parent.workload("wide")))
        self.assertIn("cpu", w["status"]["failure_reason"])
        self.assertEqual(w["status"]["reason"], "start-failed")
        self.assertIsNone(child.workload("west.wide"))

        # A name that is taken there by somebody else is left alone.
        child.apply("west.mine", command=["sleep", "100000"])
        mine = child.wait_phase("west.mine", "Running")
        parent.apply("mine", restart="never")
        w = parent.wait_for("the refusal", lambda: (lambda x: x if "is taken" in x["status"].get("failure_reason", "") else None)(
            parent.workload("mine")))
        parent.ok("delete", "mine")
        parent.wait_gone("mine")
        self.assertEqual(child.workload("west.mine")["token"], mine["token"])

        # What the child has is followed: a third node counts at once.
        child.start_agent("node-3", cpu="2")
        parent.wait_for("the larger sum", lambda: parent.node("west")["resources"]["cpu_total"] == 10)
        self.assertEqual(subprocess.run([BERTH, "agent", "--runtime", "cluster"], capture_output=True, env=parent.env, timeout=30).returncode, 2)
