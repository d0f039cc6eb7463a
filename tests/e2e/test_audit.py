"""Who ran what and who read what is an event; and nobody can flood the events (issue line A6)."""
import os
import resource
import signal
import threading
import unittest

import persys
from berthtest import Api, only_embedded
from persys import grpc
from test_access import Access


class Audit(Access):
    def with_node(self, **kw):
        c = self.safe(**kw)
        node = os.path.join(c.dir, "node.token")
        with open(node, "w") as f:
            f.write(self.token(c, "n1", "--role", "node"))
        c.start_agent("node-1", args=["--token-file", node])
        c.wait_nodes_ready(1)
        c.apply("w", command=["sh", "-c", "printf 'the-%s\\n' output; exec sleep 100000"])
        c.wait_phase("w", "Running")
        return c

    # R: A14
    def test_exec_is_told_with_who_what_and_where_and_never_the_output(self):
        c = self.with_node()
        ola, vic = self.token(c, "ola", "--role", "operator"), self.token(c, "vic", "--role", "viewer")
        self.assertEqual(c.ok("exec", "w", "--", "sh", "-c", "echo quiet | tr a-z A-Z", env={"BERTH_TOKEN": ola}).out, "QUIET\n")
        events = c.events(type="WorkloadExec")  # at once: it was durable before the command was run
        self.assertEqual([(e["actor"], e["workload_id"], e["node_id"], e["command"]) for e in events],
                         [("ola", "w", "node-1", "sh -c echo quiet | tr a-z A-Z")])
        said = c.ok("events", "--since", "0", "-o", "json").out
        self.assertNotIn("QUIET", said)
        seen = Api(c.address, token=vic).get("/v1/events", type="WorkloadExec").body.decode()
        self.assertIn("ola", seen)
        self.assertNotIn("tr a-z", seen, "a command may hold secrets")
        version = c.workload("w")["resource_version"]
        c.ok("exec", "w", "--", "true", env={"BERTH_TOKEN": ola})
        self.assertEqual(c.workload("w")["resource_version"], version, "nothing was changed")
        self.assertNotEqual(c.cli("exec", "nowhere", "--", "true", env={"BERTH_TOKEN": ola}).code, 0)
        self.assertEqual(len(c.events(type="WorkloadExec")), 2, "what was not run is not told")

    # R: A14
    def test_reading_logs_is_told_once_for_a_caller_and_a_workload(self):
        c = self.with_node()
        ola, vic = self.token(c, "ola", "--role", "operator"), self.token(c, "vic", "--role", "viewer")
        for token in (ola, vic, ola, vic, vic):
            self.assertIn("the-output", c.ok("logs", "w", env={"BERTH_TOKEN": token}).out)
        self.assertEqual(Api(c.address, token=vic).get("/v1/workloads/w/logs").status, 200)
        c.wait_for("the events", lambda: len(c.events(type="WorkloadLogsRead")) >= 2)
        self.assertEqual(sorted((e["actor"], e["workload_id"], e.get("node_id")) for e in c.events(type="WorkloadLogsRead")),
                         [("ola", "w", "node-1"), ("vic", "w", "node-1")])
        self.assertNotIn("the-output", c.ok("events", "--since", "0", "-o", "json").out)

    # R: A14 C29
    def test_a_workloads_history_has_its_audits_in_their_place(self):
        c = self.with_node()
        c.apply("other")
        c.wait_phase("other", "Running")
        c.ok("logs", "w")
        c.wait_for("the read to be told", lambda: c.events(type="WorkloadLogsRead"))
        c.ok("exec", "w", "--", "true")

        def types(workload="w"):
            rows = [line.split() for line in c.ok("events", "--workload", workload).out.splitlines()[1:]]
            return [r[2] for r in rows]
        started = ["WorkloadApplied", "WorkloadScheduled", "WorkloadStarted"]
        self.assertEqual(types(), [*started, "WorkloadLogsRead", "WorkloadExec"])
        self.assertEqual(types("other"), started, "and nothing of another one")
        c.ok("stop", "w")
        c.wait_phase("w", "Stopped")
        after = types()
        self.assertEqual(after[:6], [*started, "WorkloadLogsRead", "WorkloadExec", "WorkloadDesired"])
        self.assertIn("WorkloadExec", c.ok("describe", "workload", "w").out)
        c.restart_server()
        self.assertEqual(types(), after)
        self.assertIn("WorkloadExec", [e["type"] for e in c.events(node="node-1")])

    # R: A14
    def test_an_exec_beyond_the_limit_is_refused_and_not_run(self):
        c = self.with_node()
        ola = self.token(c, "ola", "--role", "operator")
        marks = os.path.join(c.dir, "marks")
        lock, results = threading.Lock(), []

        def run():
            while len(results) < 150 and not any(r.code for r in results):
                r = c.cli("exec", "w", "--", "sh", "-c", f"echo x >> {marks}", env={"BERTH_TOKEN": ola})
                with lock:
                    results.append(r)
        threads = [threading.Thread(target=run) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        refused = [r for r in results if r.code]
        self.assertTrue(refused, "60 at once, and then one in two seconds")
        for r in refused:
            self.assertIn("too many commands in too short a time: nothing was run", r.err)
            self.assertIn("hint: try again in", r.err)
        with open(marks) as f:
            ran = len(f.readlines())
        self.assertGreaterEqual(ran, 60)
        self.assertEqual(ran, len(results) - len(refused))
        self.assertEqual(len(c.events(type="WorkloadExec")), ran, "each that was run is told, and no other")
        self.assertEqual(c.events(type="NoticesSummed"), [])
        self.assertIn("the-output", c.ok("logs", "w", env={"BERTH_TOKEN": ola}).out)
        c.wait_for("the read to be told", lambda: [e for e in c.events(type="WorkloadLogsRead") if e["actor"] == "ola"])
        c.ok("exec", "w", "--", "true")  # another caller has a limit of its own

    # R: A14 C29 A5
    def test_an_exec_outlives_a_flood_of_events_a_restart_and_a_restore(self):
        c = self.with_node(server_args=["--keep-events", "60"])
        ola = self.token(c, "ola", "--role", "operator")
        c.ok("exec", "w", "--", "echo", "hidden", env={"BERTH_TOKEN": ola})

        def told():
            return [(e["actor"], e["workload_id"], e["node_id"], e["command"]) for e in c.events(type="WorkloadExec")]
        was = [("ola", "w", "node-1", "echo hidden")]
        self.assertEqual(told(), was)

        def flood():
            head = c.head()
            for i in range(100):
                c.apply("flood", node_selector={"no": "node"}, env={"N": str(head + i)})
            c.wait_for("what is old to be gone", lambda: c.events(type="WorkloadApplied")[0]["seq"] > head)
        flood()
        self.assertEqual(told(), was)
        self.assertTrue(0 < self.metric(c, "berth_log_events") < 150)
        self.assertGreaterEqual(self.metric(c, 'berth_kept_events{class="audit"}'), 3)  # two tokens and it
        self.assertEqual([e["command"] for e in c.events(node="node-1", type="WorkloadExec")], ["echo hidden"])
        c.restart_server()
        self.assertEqual(told(), was)
        place = c.store_args() or ["--data", c.data]
        file = os.path.join(c.dir, "it.backup")
        c.ok("backup", *place, file, server=False)
        self.assertIn("no problems", c.ok("backup", "--verify", file, server=False).out)
        flood()
        c.kill_server()
        self.assertIn("no problems", c.ok("fsck", *place, server=False).out)
        c.ok("restore", file, *place, "--force", "--key", os.path.join(c.data, "cluster.key"), server=False)
        c.start_server()
        self.assertEqual(told(), was)
        flood()
        self.assertEqual(told(), was)
        self.assertEqual(len(c.events(type="TokenCreated")), 3, "what made the tokens of the first admin, the node and ola")

    # R: A14 C29
    def test_a_class_has_a_bound_of_its_own(self):
        c = self.cluster(server=False)
        config = os.path.join(c.dir, "berth.yaml")
        with open(config, "w") as f:
            f.write("retention:\n  lifecycle: {events: 60}\n  audit: {events: 5, age: 100d}\n")
        self.assertEqual(c.cli("config", "check", config, server=False).code, 0)
        c.want_tokens()
        c.server_args += ["--config", config]
        c.start_server()
        for i in range(20):
            self.token(c, f"t{i}", "--role", "viewer")
        for i in range(100):
            c.apply("flood", node_selector={"no": "node"}, env={"N": str(i)})
        c.wait_for("the surplus to be gone", lambda: [e["access"]["name"] for e in c.events(type="TokenCreated")] == [f"t{i}" for i in range(15, 20)])
        self.assertEqual(self.metric(c, 'berth_kept_events{class="audit"}'), 5)
        with open(config, "w") as f:
            f.write("keep_events: 60\nretention: {lifecycle: {events: 60}, audit: {events: -1, age: 10ms}}\n")
        r = c.cli("config", "check", config, server=False)
        self.assertNotEqual(r.code, 0)
        for path in ("retention.lifecycle.events", "retention.audit.events", "retention.audit.age"):
            self.assertIn(path, r.out + r.err)
        with open(config, "w") as f:
            f.write("retention: {audit: {events: 2}, lifecycle: {events: 60}}\n")
        c.server.signal(signal.SIGHUP)
        c.wait_for("the new bound", lambda: [e["access"]["name"] for e in c.events(type="TokenCreated")] == ["t18", "t19"])
        self.assertNotIn("restart the server to use it", self.log(c, "server"))

    # R: A14 C35
    @only_embedded("it is about the disk below berth.db")
    def test_while_the_store_is_away_logs_are_read_and_nothing_is_run(self):
        c = self.with_node()
        _, hard = resource.prlimit(c.server.pid, resource.RLIMIT_FSIZE, (1, -1))
        marker = os.path.join(c.dir, "was-run")
        try:
            self.assertEqual(c.api.call("PUT", "/v1/workloads/x", c.manifest("x")).status, 503)
            self.assertIn("the-output", c.ok("logs", "w").out)
            r = c.cli("exec", "w", "--", "touch", marker)
            self.assertNotEqual(r.code, 0, r)
            self.assertFalse(os.path.exists(marker), "it must not run before the event is durable")
        finally:
            resource.prlimit(c.server.pid, resource.RLIMIT_FSIZE, (hard, hard))
        c.wait_for("the store to be back", lambda: c.api.get("/v1/health").json["status"] == "ok")
        c.ok("exec", "w", "--", "touch", marker)
        self.assertTrue(os.path.exists(marker))

    # R: A13
    def test_refusals_of_one_caller_are_told_one_by_one_up_to_a_limit(self):
        c = self.safe()
        vic = Api(c.address, token=self.token(c, "vic", "--role", "viewer"))
        for _ in range(60):
            self.assertIn(vic.call("DELETE", "/v1/workloads/w").status, (403, 429))
        self.assertLessEqual(len(c.events(type="AccessRefused")), 21)


@unittest.skipUnless(grpc, "python3-grpcio is not installed")
class Flood(Access):
    # R: A13
    def test_a_node_that_says_something_else_all_the_time_floods_no_events(self):
        c = self.safe()
        token = self.token(c, "n1", "--role", "node", "--node", "rogue")
        messages = persys.Messages(persys.compiled("agent.proto"))
        message = messages.of("berth.v1.AgentMessage")
        welcome = threading.Event()
        head = c.head()

        def talk():
            m = message()
            m.hello.node_id, m.hello.cpu, m.hello.memory_mb, m.hello.protocol, m.hello.instance = "rogue", 1000, 1000, 1, "i"
            m.hello.supported_workload_types.append(4)
            yield m
            welcome.wait(60)
            for i in range(3000):
                m = message()
                m.units.complete = True
                u = m.units.units.add()
                u.unit_id, u.state, u.type = f"stranger-{i}", 2, 4
                yield m
            welcome.clear()
            welcome.wait(60)
        with grpc.insecure_channel(c.grpc_address) as channel:
            connect = channel.stream_stream("/berth.v1.Agent/Connect", request_serializer=message.SerializeToString, response_deserializer=lambda b: b)
            answers = connect(talk(), metadata=(("authorization", "Bearer " + token),))
            next(answers)
            welcome.set()
            c.wait_for("the reports to be counted", lambda: self.metric(c, "berth_notices_summed_total") > 1000)
            self.assertLess(c.head() - head, 200)
            told = len(c.events(type="UnitUnknown"))
            self.assertTrue(20 <= told <= 40, told)
            welcome.set()
            answers.cancel()
