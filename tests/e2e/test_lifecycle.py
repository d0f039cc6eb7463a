"""From apply to running, and all the ways on from there."""
import json
import os
import re
import signal
import socket
import time

from berthtest import RESTART_SECONDS, Case, note, processes_with


class Lifecycle(Case):
    # R: A1 C6 C18 C19 C40
    def test_a_workload_runs_and_its_process_is_really_there(self):
        c = self.cluster(nodes=3)
        out = os.path.join(c.dir, "out")
        c.apply("hello", command=["sh", "-c", f"echo started $GREETING > {out}; exec sleep 100000"], env={"GREETING": "hi"})
        w = c.wait_phase("hello", "Running")
        c.wait_for("output", lambda: os.path.exists(out) and open(out).read() == "started hi\n")
        self.assertIn(w["assigned_node"], ["node-1", "node-2", "node-3"])
        self.assertEqual(w["status"]["actual_state"], "Running")
        self.assertEqual(w["placement"]["node_id"], w["assigned_node"])
        self.assertEqual(w["placement"]["candidates"], 3, "the decision is stored (C16)")
        types = [e["type"] for e in c.events_of("hello")]
        self.assertEqual([t for t in types if t in ("WorkloadApplied", "WorkloadScheduled", "WorkloadStarted")],
                         ["WorkloadApplied", "WorkloadScheduled", "WorkloadStarted"])

    # R: A3
    def test_every_event_says_who_when_and_why(self):
        c = self.cluster(nodes=1)
        c.api.call("PUT", "/v1/workloads/audited", c.manifest("audited"), headers={"X-Request-Id": "req-7"})
        c.wait_phase("audited", "Running")
        events = c.events()
        self.assertEqual([e["seq"] for e in events], list(range(1, len(events) + 1)), "one total order without gaps")
        for e in events:
            self.assertIn("type", e)
            self.assertRegex(e["timestamp"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")
        applied = c.events_of("audited", "WorkloadApplied")[0]
        self.assertEqual(applied["request_id"], "req-7")
        self.assertTrue(applied.get("actor"))
        self.assertFalse([e for e in events if "eartbeat" in e["type"]], "heartbeats are no events")

    # R: C6
    def test_a_job_that_exits_0_is_completed_and_stays_so(self):
        c = self.cluster(nodes=1)
        runs = os.path.join(c.dir, "runs")
        c.apply("once", command=["sh", "-c", f"echo run >> {runs}"], restart="never")
        w = c.wait_phase("once", "Completed")
        self.assertEqual(w["status"]["exit_code"], 0)
        c.restart_server("kill")
        c.agents["node-1"].kill()
        c.start_agent("node-1")
        c.wait_for("the agent to be back", lambda: (c.node("node-1") or {}).get("connected"))
        # Something that comes later shows that the agent's plan has been worked through.
        c.apply("later", command=["true"], restart="never")
        c.wait_phase("later", "Completed")
        w = c.workload("once")
        self.assertEqual((w["status"]["phase"], w["status"]["exit_code"]), ("Completed", 0))
        self.assertEqual(open(runs).read(), "run\n", "a completed job never runs again")
        self.assertEqual(c.node("node-1")["resources"].get("cpu_allocated", 0), 0, "a finished job holds no capacity")

    # R: C6
    def test_a_finished_job_with_a_ttl_is_removed(self):
        c = self.cluster(nodes=1)
        c.apply("brief", command=["true"], restart="never", ttl_seconds=1)
        c.wait_phase("brief", "Completed")
        c.wait_gone("brief")

    # R: C28 C29 C19
    def test_a_failing_job_is_tried_again_with_backoff_then_failed(self):
        c = self.cluster(nodes=1)
        runs = os.path.join(c.dir, "runs")
        c.apply("bad", command=["sh", "-c", f"date +%s%N >> {runs}; exit 3"], restart="on-failure",
                retry={"max_attempts": 3, "base_seconds": 1, "cap_seconds": 2})
        w = c.wait_phase("bad", "RetryPending", "Failed")
        w = c.wait_phase("bad", "Failed")
        self.assertEqual(w["status"]["exit_code"], 3)
        starts = [int(line) / 1e9 for line in open(runs)]
        self.assertEqual(len(starts), 3, "as many runs as max_attempts allows")
        gaps = [b - a for a, b in zip(starts, starts[1:])]
        self.assertGreaterEqual(gaps[0], 0.95)
        self.assertGreaterEqual(gaps[1], 1.9, "the wait doubles up to the cap")
        self.assertTrue(c.events_of("bad", "WorkloadFailed"))
        self.assertEqual(len(c.events_of("bad", "RetryTriggered")), 2)
        # By hand: due now, attempts start again.
        c.ok("retry", "bad")
        c.wait_for("a fourth run", lambda: len(open(runs).readlines()) >= 4)
        c.wait_phase("bad", "Failed")
        self.assertEqual(len(open(runs).readlines()), 6)

    # R: C28 A5
    def test_a_backoff_survives_a_restart_of_the_server(self):
        c = self.cluster(nodes=1)
        runs = os.path.join(c.dir, "runs")
        wait = 3 + RESTART_SECONDS
        c.apply("bad", command=["sh", "-c", f"date +%s%N >> {runs}; exit 1"], restart="on-failure", retry={"max_attempts": 2, "base_seconds": wait})
        before = c.wait_phase("bad", "RetryPending")["retry"]["next_retry_at"]
        c.restart_server("kill")
        self.assertEqual(c.wait_phase("bad", "RetryPending")["retry"]["next_retry_at"], before)
        c.wait_phase("bad", "Failed")
        starts = [int(line) / 1e9 for line in open(runs)]
        self.assertEqual(len(starts), 2)
        self.assertGreaterEqual(starts[1] - starts[0], wait - 0.1)

    # R: C28
    def test_a_service_that_crashes_is_started_again(self):
        c = self.cluster(nodes=1)
        flag = os.path.join(c.dir, "flag")
        c.apply("flaky", command=["sh", "-c", f"[ -e {flag} ] && exec sleep 100000; touch {flag}; exit 1"], retry={"base_seconds": 1})
        c.wait_for("a restart", lambda: (c.workload("flaky") or {}).get("status", {}).get("restarts", 0) >= 1
                   and c.workload("flaky")["status"]["phase"] == "Running")

    # R: C6 C21
    def test_stop_start_delete(self):
        c = self.cluster(nodes=1)
        pids = os.path.join(c.dir, "pids")
        c.apply("web", command=["sh", "-c", f"echo $$ >> {pids}; exec sleep 100000"])
        c.wait_phase("web", "Running")
        c.wait_for("a pid", lambda: os.path.exists(pids) and open(pids).read().endswith("\n"))
        first = int(open(pids).read())
        c.ok("stop", "web")
        c.wait_phase("web", "Stopped")
        self.assertFalse(os.path.exists(f"/proc/{first}"), "Stopped means that no process is left")
        self.assertEqual(c.workload("web")["desired_state"], "Stopped")
        c.ok("start", "web")
        c.wait_phase("web", "Running")
        c.wait_for("a second pid", lambda: open(pids).read().count("\n") == 2)
        second = int(open(pids).readlines()[1])
        self.assertNotEqual(first, second)
        c.ok("delete", "web")
        c.wait_gone("web")
        self.assertFalse(os.path.exists(f"/proc/{second}"), "the record goes only when the process has gone")
        self.assertTrue(c.events_of("web", "WorkloadDeleted"))

    # R: C21
    def test_a_process_that_ignores_sigterm_is_killed_after_its_grace(self):
        c = self.cluster(nodes=1)
        ready = os.path.join(c.dir, "ready")
        c.apply("stubborn", command=["sh", "-c", f"trap '' TERM; touch {ready}; while :; do sleep 0.1; done"], stop_grace_seconds=1)
        c.wait_phase("stubborn", "Running")
        c.wait_for("its trap", lambda: os.path.exists(ready))
        began = time.monotonic()
        c.ok("delete", "stubborn")
        c.wait_gone("stubborn", timeout=20)
        self.assertGreaterEqual(time.monotonic() - began, 0.9, "it had its grace")

    # R: C21
    def test_a_workload_takes_its_children_with_it(self):
        c = self.cluster(nodes=1)
        ready = os.path.join(c.dir, "ready")
        c.apply("family", command=["sh", "-c", f"sleep 100001 & (sleep 100002 & wait) & touch {ready}; wait"])
        c.wait_phase("family", "Running")
        c.wait_for("its children", lambda: os.path.exists(ready) and len([p for p in processes_with(c.mark).values() if "sleep 10000" in p]) >= 2)
        c.ok("delete", "family")
        c.wait_gone("family")
        self.assertEqual([p for p in processes_with(c.mark).values() if "sleep 10000" in p and "-c" not in p], [])

    # R: C7
    def test_a_new_spec_updates_at_once_and_the_old_process_has_gone(self):
        c = self.cluster(nodes=1)
        log = os.path.join(c.dir, "log")
        script = f"exec 9>{log}.lock; flock -n 9 || echo double >> {log}.double; echo $V $$ >> {log}; exec sleep 100000"
        first = c.apply("app", command=["sh", "-c", script], env={"V": "1"})
        c.wait_phase("app", "Running")
        c.wait_for("its first line", lambda: os.path.exists(log) and open(log).read().count("\n") == 1)
        second = c.apply("app", command=["sh", "-c", script], env={"V": "2"})
        self.assertNotEqual(first["revision_id"], second["revision_id"])
        self.assertEqual(second["status"]["phase"], "Updating")
        w = c.wait_for("the new revision to run", lambda: (lambda w: w["status"]["phase"] == "Running"
                       and w["status"].get("observed_revision") == second["revision_id"] and w)(c.workload("app")))
        self.assertEqual(w["revision_id"], second["revision_id"])
        c.wait_for("the new process", lambda: open(log).read().count("\n") == 2)
        lines = [line.split() for line in open(log)]
        self.assertEqual([v for v, _ in lines], ["1", "2"])
        self.assertFalse(os.path.exists(f"/proc/{lines[0][1]}"))
        self.assertTrue(os.path.exists(f"/proc/{lines[1][1]}"))
        self.assertFalse(os.path.exists(log + ".double"), "never two copies at a time")

    # R: C7 A9
    def test_the_same_apply_again_changes_nothing(self):
        c = self.cluster(nodes=1)
        c.apply("same")
        w = c.wait_phase("same", "Running")
        head = c.head()
        for _ in range(5):
            again = c.api.call("PUT", "/v1/workloads/same", c.manifest("same"))
            self.assertEqual(again.status, 200)
            self.assertEqual(again.json["revision_id"], w["revision_id"])
        self.assertEqual(c.head(), head)

    # R: C14 C15
    def test_work_spreads_over_the_nodes_and_obeys_selectors(self):
        c = self.cluster()
        for i in (1, 2, 3):
            c.start_agent(f"node-{i}", labels={"zone": "ab"[i % 2]})
        c.wait_nodes_ready(3)
        for i in range(6):
            c.apply(f"w{i}", cpu=0.5)
            c.wait_phase(f"w{i}", "Running")
        self.assertEqual(sorted(w["assigned_node"] for w in c.workloads()), ["node-1", "node-1", "node-2", "node-2", "node-3", "node-3"])
        for i in range(3):
            c.apply(f"zoned{i}", node_selector={"zone": "a"})
            self.assertEqual(c.wait_phase(f"zoned{i}", "Running")["assigned_node"], "node-2")

    # R: C13 C8 C18
    def test_nodes_show_total_allocated_and_used(self):
        c = self.cluster(nodes=1)
        c.apply("half", cpu=2, memory_mb=1024, disk_gb=10)
        c.wait_phase("half", "Running")
        n = c.node("node-1")
        r = n["resources"]
        self.assertEqual((r["cpu_total"], r["memory_total"], r["disk_total"]), (4, 8192, 100))
        self.assertEqual((r["cpu_allocated"], r["memory_allocated"], r["disk_allocated"]), (2, 1024, 10))
        self.assertEqual((n["status"], n["status_updated_by"]), ("Ready", "register"))
        self.assertEqual(n["status_reason"], "registered")
        self.assertIn("process", n["supported_workload_types"])
        self.assertIn("status_updated_at", n)

    # R: C5 C26
    def test_a_workload_that_cannot_run_waits_and_runs_when_it_can(self):
        c = self.cluster(nodes=1)
        a = c.api.call("PUT", "/v1/workloads/big", c.manifest("big", cpu=6))
        self.assertEqual(a.status, 201, "the wish is accepted; acting on it is somebody else's work")
        self.assertEqual(c.wait_phase("big", "Pending")["status"]["reason"], "cpu-insufficient")
        head = c.head()
        passes = c.info().get("passes", 0)
        c.wait_for("two more passes", lambda: c.info().get("passes", 0) >= passes + 2)
        self.assertEqual(c.head(), head, "waiting writes nothing")
        c.start_agent("node-2", cpu="8")
        self.assertEqual(c.wait_phase("big", "Running")["assigned_node"], "node-2")

    # R: C21 C28
    def test_a_command_that_does_not_exist_fails_with_a_reason(self):
        c = self.cluster(nodes=1)
        c.apply("nowhere", command=["/no/such/program"], restart="never", retry={"max_attempts": 1})
        w = c.wait_phase("nowhere", "Failed")
        self.assertIn("/no/such/program", json.dumps(w["status"]))

    # R: A12
    def test_sigterm_ends_the_server_soon_even_with_open_streams(self):
        c = self.cluster(nodes=1)
        c.apply("hello")
        c.wait_phase("hello", "Running")
        began = time.monotonic()
        self.assertEqual(c.server.stop(), 0)
        self.assertLess(time.monotonic() - began, 5)
        self.assertFalse(os.path.exists(os.path.join(c.data, "server.address")))
        c.start_server()
        c.wait_phase("hello", "Running")

    # R: A12
    def test_sigterm_lets_answers_on_their_way_arrive(self):
        c = self.cluster(server_args=["--shutdown-timeout", "60s"])
        size = len(c.api.get("/v1/openapi.json").body)
        host, port = c.address.split(":")
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect((host, int(port)))
            asked = 16 * 2**20 // size  # more than the sockets and the server hold
            s.sendall(b"GET /v1/openapi.json HTTP/1.1\r\nHost: h\r\n\r\n" * asked)
            self.assertTrue(s.recv(1, socket.MSG_PEEK))
            c.server.signal(signal.SIGTERM)
            c.wait_for("the server to stop listening", lambda: self.refuses(host, port))
            s.settimeout(60)
            got = b"".join(iter(lambda: s.recv(1 << 20), b""))
        self.assertEqual(c.server.popen.wait(60), 0)
        heads = re.findall(rb"HTTP/1.1 200 OK\r\n.*?\r\n\r\n", got, re.DOTALL)
        self.assertEqual(len(got), sum(map(len, heads)) + len(heads) * size, "the last answer is whole")
        self.assertTrue(0 < len(heads) < asked, "what was not begun is not begun")
        c.start_server()

    def refuses(self, host, port):
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            return False
        except ConnectionRefusedError:
            return True


class Speed(Case):
    exclusive = True

    # R: A1 C19
    def test_running_within_two_seconds_of_the_apply(self):
        c = self.cluster(nodes=3)
        slowest = 0
        for i in range(10):
            began = time.monotonic()
            c.ok("run", f"hello{i}", "--env", f"BERTH_TEST_MARK={c.mark}", "--", "sh", "-c", "while :; do date; sleep 1; done")
            c.wait_phase(f"hello{i}", "Running")
            slowest = max(slowest, time.monotonic() - began)
        note(f"from `berth run` to Running: slowest of 10 {slowest * 1000:.0f} ms")
        self.assertLess(slowest, 2)
        logs = c.wait_for("output", lambda: c.ok("logs", "hello0").out)
        self.assertRegex(logs, r"\d\d:\d\d:\d\d")
        table = c.ok("get", "workloads").out
        self.assertIn("hello0", table)
        self.assertIn("Running", table)


class Retries(Case):
    """Issue 5, B6."""

    # R: C28
    def test_b6_a_service_is_tried_for_ever_and_zero_is_never_again(self):
        c = self.cluster(nodes=1)
        c.apply("once", command=["sh", "-c", "exit 7"], retry={"max_attempts": 0})
        w = c.wait_phase("once", "Failed")
        self.assertEqual((w["retry"]["attempts"], w["status"]["exit_code"]), (1, 7))
        c.ok("run", "never", "--retries", "0", "--", "sh", "-c", "exit 7")
        self.assertEqual(c.wait_phase("never", "Failed")["retry"]["attempts"], 1)
        c.apply("job", command=["sh", "-c", "exit 7"], restart="on-failure", retry={"base_seconds": 1, "cap_seconds": 1})
        c.apply("web", command=["sh", "-c", "exit 7"], retry={"base_seconds": 1, "cap_seconds": 1})
        c.wait_for("nine attempts", lambda: (c.workload("web")["retry"]["attempts"] >= 9) and c.workload("web"), timeout=120)
        self.assertEqual(c.wait_phase("job", "Failed")["retry"]["attempts"], 5, "jobs have the seed's rule")
        w = c.wait_phase("web", "RetryPending")
        self.assertNotIn("max_attempts", w["retry"])
        self.assertTrue(w["retry"]["next_retry_at"])
        self.assertEqual(c.events_of("web", "WorkloadFailed"), [])
        self.assertEqual(len(c.events_of("web", "WorkloadKeepsFailing")), 1)
        # At the cap (here from the first failure on) an attempt is two events: its launch and its failure.
        events = [e["type"] for e in c.events_of("web")]
        tail = events[events.index("WorkloadKeepsFailing") + 1:]
        self.assertLessEqual(set(tail), {"WorkloadLaunched", "RetryScheduled"})
        self.assertIn("retry", c.ok("get", "workloads").out)
        c.wait_phase("web", "RetryPending")
        self.assertIn("without end", c.ok("describe", "workload", "web").out)
        said = c.wait_for("explain while it waits", lambda: "keeps its place on node-1" in (out := c.ok("explain", "web").out) and out)
        self.assertIn("quota", said)
