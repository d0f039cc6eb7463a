"""What happens when things are killed."""
import os
import random
import re
import resource
import signal
import threading
import time

from berthtest import FULL, Case, Gone, alive, note, only_embedded, processes_with


# Notes each start, and takes a lock that only one live copy can hold, for as long as it lives: a second copy at the same time leaves a trace.
def guarded(path, then="exec sleep 100000"):
    return ["sh", "-c", f"exec 9>>{path}.lock; flock -n 9 || echo $$ >> {path}.double; echo $$ >> {path}.starts; {then}"]


def lines(path):
    try:
        with open(path) as f:
            return f.read().splitlines()
    except FileNotFoundError:
        return []


class ServerKilled(Case):
    # R: A5 A3 C5 C7 C26
    def test_nothing_acknowledged_is_lost_and_nothing_starts_twice(self):
        c = self.cluster(nodes=3, agent_args=[])
        work = os.path.join(c.dir, "work")
        os.mkdir(work)
        stop, enough = threading.Event(), threading.Event()
        expected = {}  # id -> version that was acknowledged last, or None when its deletion was
        failures = []
        kills = 25 if FULL else 8
        per_client = 60

        def persist(call):
            """Sends until the server acknowledges; what got no answer may or may not have happened, and is sent again."""
            while not stop.is_set():
                try:
                    a = call()
                    if a.status in (429, 503, 504):
                        time.sleep(0.02)
                        continue
                    return a
                except Gone:
                    time.sleep(0.01)
            raise Gone("stopped")

        def client(number):
            api = c.api.fork()
            rng = random.Random(number)
            count = 0
            try:
                while not enough.is_set():
                    # New ones at first; later also new versions of what is there, and deletions.
                    name = f"w{number}-{count if count < per_client else rng.randrange(per_client)}"
                    count += 1
                    if expected.get(name) and rng.random() < 0.1:
                        a = persist(lambda: api.call("DELETE", f"/v1/workloads/{name}"))
                        if a.status not in (200, 202, 204, 404):
                            failures.append(f"delete {name}: {a}")
                            return
                        expected[name] = None
                    elif name not in expected or expected[name]:
                        version = expected.get(name, 0) + 1
                        body = c.manifest(name, command=guarded(os.path.join(work, name)), env={"V": str(version)}, cpu=0.01)
                        a = persist(lambda: api.call("PUT", f"/v1/workloads/{name}", body))
                        if a.status not in (200, 201):
                            failures.append(f"{name}: {a}")
                            return
                        expected[name] = version
            except Gone:
                failures.append(f"client {number} stopped early")
            except Exception as e:  # noqa: BLE001
                failures.append(f"client {number}: {e!r}")

        clients = [threading.Thread(target=client, args=(n,)) for n in range(4)]
        for t in clients:
            t.start()
        for _ in range(kills):
            time.sleep(self.random.uniform(0.02, 0.5))
            c.kill_server()
            c.start_server()
        enough.set()
        for t in clients:
            t.join(60)
        stop.set()
        self.assertEqual(failures, [])
        note(f"{kills} times kill -9: {len(expected)} workloads acknowledged, {sum(v or 1 for v in expected.values())} versions, "
             f"{sum(v is None for v in expected.values())} deletions")

        for name, version in expected.items():
            if version is None:
                c.wait_gone(name)
            else:
                w = c.wait_phase(name, "Running", timeout=120)
                self.assertEqual(w["spec"]["env"]["V"], str(version), f"{name}: what was acknowledged is there")
        known = {w["id"] for w in c.workloads()}
        self.assertEqual(known, {n for n, v in expected.items() if v is not None})

        launches = {}
        for e in c.events():
            if e["type"] in ("WorkloadScheduled", "WorkloadLaunched"):
                launches[e["workload_id"]] = launches.get(e["workload_id"], 0) + 1
        for name, version in expected.items():
            path = os.path.join(work, name)
            self.assertEqual(lines(path + ".double"), [], f"{name}: two copies at the same time")
            starts = lines(path + ".starts")
            self.assertEqual(len(starts), len(set(starts)))
            self.assertLessEqual(len(starts), launches.get(name, 0), f"{name}: a start without an event that ordered it")
            if version == 1:
                c.wait_for(f"{name} to note its start", lambda: lines(path + ".starts"))
                self.assertEqual(len(lines(path + ".starts")), 1, f"{name}: never changed, so started once")
        # One live copy of each that is wanted.
        live = [p for p in processes_with(c.mark).values() if p.startswith("sleep 100000")]
        self.assertEqual(len(live), len(known))

    # R: A5 A9 (docs/decisions/out-of-memory-ends-the-process.md)
    def test_a_server_without_memory_ends_and_nothing_acknowledged_is_lost(self):
        c = self.cluster()
        c.apply("first")
        with open(f"/proc/{c.server.pid}/status") as f:
            used = int(re.search(r"VmData:\s+(\d+) kB", f.read()).group(1)) * 1024
        resource.prlimit(c.server.pid, resource.RLIMIT_DATA, (used + 16 * 1048576, -1))
        acknowledged, deadline = ["first"], time.monotonic() + 120
        for i in range(10000):
            try:
                a = c.api.call("PUT", f"/v1/workloads/w{i}", c.manifest(f"w{i}", env={"LARGE": "x" * 100000}))
            except Gone:  # it has ended, or it had no memory for this connection
                if c.server.popen.poll() is not None:
                    break
                self.assertLess(time.monotonic(), deadline, "it goes on without memory")
                continue
            self.assertIn(a.status, (201, 503), a)
            if a.status == 201:
                acknowledged.append(f"w{i}")
            self.assertLess(time.monotonic(), deadline, "it goes on without memory")
        self.assertEqual(c.server.popen.wait(20), 6)
        self.assertIn("berth: out of memory: ", c.tail("server"))
        c.api.close()
        c.start_server()
        note(f"out of memory after {len(acknowledged)} workloads")
        self.assertLessEqual(set(acknowledged), {w["id"] for w in c.workloads()})

    # R: A5 C9 C11
    def test_agents_come_back_by_themselves_and_nothing_moves(self):
        c = self.cluster(nodes=3, heartbeat="500ms", grace="12s")
        for i in range(6):
            c.apply(f"w{i}", command=guarded(os.path.join(c.dir, f"w{i}")))
        for i in range(6):
            c.wait_phase(f"w{i}", "Running")
        where = {w["id"]: w["assigned_node"] for w in c.workloads()}
        c.kill_server()
        time.sleep(14)  # longer than silence and grace together: the server's own absence must not count against the nodes
        c.start_server()
        c.wait_for("all nodes connected", lambda: all(n.get("connected") for n in c.nodes()))
        self.assertEqual({w["id"]: w["assigned_node"] for w in c.workloads()}, where)
        for i in range(6):
            self.assertEqual(len(lines(os.path.join(c.dir, f"w{i}.starts"))), 1)
        self.assertEqual([e for e in c.events() if e["type"] == "Rescheduled"], [])

    # R: A4 A5
    @only_embedded("several servers may share a store in etcd; test_etcd.py says what the second one does")
    def test_a_second_server_on_the_same_data_is_refused(self):
        c = self.cluster()
        r = c.cli("server", "--data", c.data, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", server=False, timeout=20)
        self.assertNotEqual(r.code, 0)
        self.assertIn("error:", r.err)
        self.assertEqual(c.api.get("/health").status, 200)


class AgentKilled(Case):
    # R: C40 C24 A5
    def test_its_processes_run_on_and_are_adopted(self):
        c = self.cluster(nodes=1, heartbeat="500ms")
        path = os.path.join(c.dir, "w")
        c.apply("w", command=guarded(path, then="i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.2; done"))
        before = c.wait_phase("w", "Running")
        c.wait_for("its pid", lambda: lines(path + ".starts"))
        pid = int(lines(path + ".starts")[0])
        c.agents["node-1"].kill()
        self.assertTrue(alive(pid))
        c.wait_for("the server to notice", lambda: not c.node("node-1").get("connected"))
        c.start_agent("node-1")
        c.wait_for("the agent to be back", lambda: c.node("node-1").get("connected"))
        after = c.wait_phase("w", "Running")
        self.assertTrue(alive(pid), "the same process")
        self.assertEqual(lines(path + ".starts"), [str(pid)])
        self.assertEqual(after["token"], before["token"])
        self.assertEqual(after["status"].get("restarts", 0), before["status"].get("restarts", 0))
        # It is really watched again: its end is noticed, its output is still there.
        self.assertIn("tick 1\n", c.ok("logs", "w").out)
        c.ok("stop", "w")
        c.wait_phase("w", "Stopped")
        self.assertFalse(alive(pid))

    # R: C40 C6
    def test_an_exit_while_the_agent_was_away_is_reported_with_its_code(self):
        c = self.cluster(nodes=1)
        go, path = os.path.join(c.dir, "go"), os.path.join(c.dir, "w")
        c.apply("w", command=guarded(path, then=f"while [ ! -e {go} ]; do sleep 0.05; done; exit 7"), restart="never", retry={"max_attempts": 1})
        c.wait_phase("w", "Running")
        c.wait_for("its pid", lambda: lines(path + ".starts"))
        pid = int(lines(path + ".starts")[0])
        c.agents["node-1"].kill()
        open(go, "w").close()
        c.wait_for("its end", lambda: not alive(pid))
        c.start_agent("node-1")
        self.assertEqual(c.wait_phase("w", "Failed")["status"]["exit_code"], 7)
        self.assertEqual(len(lines(path + ".starts")), 1)

    # R: C40
    def test_killed_again_and_again_under_load(self):
        c = self.cluster(nodes=1, heartbeat="500ms")
        for i in range(30):
            c.apply(f"w{i}", command=guarded(os.path.join(c.dir, f"w{i}")), cpu=0.05)
            if i % 5 == 4:
                c.agents["node-1"].kill()
                c.start_agent("node-1")
        for i in range(30):
            c.wait_phase(f"w{i}", "Running")
            c.wait_for("its start", lambda: lines(os.path.join(c.dir, f"w{i}.starts")))
        for i in range(30):
            path = os.path.join(c.dir, f"w{i}")
            self.assertEqual(lines(path + ".double"), [])
            starts = lines(path + ".starts")
            self.assertEqual(sum(alive(int(p)) for p in starts), 1, f"w{i}: {starts}")

    # R: C21 C40
    def test_a_process_killed_from_outside_is_noticed_and_started_again(self):
        c = self.cluster(nodes=1)
        path = os.path.join(c.dir, "w")
        c.apply("w", command=guarded(path), retry={"base_seconds": 1})
        c.wait_phase("w", "Running")
        c.wait_for("its pid", lambda: lines(path + ".starts"))
        os.kill(int(lines(path + ".starts")[0]), signal.SIGKILL)
        c.wait_for("a second start", lambda: len(lines(path + ".starts")) == 2)
        c.wait_phase("w", "Running")
        self.assertEqual(c.workload("w")["status"]["restarts"], 1)
        self.assertEqual(lines(path + ".double"), [])


class NodeLost(Case):
    # R: C10 C23 C24 C29 C22
    def test_work_runs_elsewhere_and_the_old_copies_stop_before_anything_new_starts(self):
        c = self.cluster(heartbeat="300ms", silence=3, grace="1s")
        for i in range(4):
            c.start_agent(f"node-{i + 1}", labels={"name": f"node-{i + 1}"})
        c.wait_nodes_ready(4)

        def traced(name):
            p = os.path.join(c.dir, name)
            return ["sh", "-c", f"echo $$ >> {p}.starts; trap 'date +%s%N >> {p}.ended; exit 0' TERM; date +%s%N >> {p}.began; while :; do sleep 0.05; done"]

        for i in range(8):
            c.apply(f"w{i}", command=traced(f"w{i}"))
        for i in range(8):
            c.wait_phase(f"w{i}", "Running")
        c.wait_for("all processes", lambda: all(lines(os.path.join(c.dir, f"w{i}.began")) for i in range(8)))
        moved = [w["id"] for w in c.workloads() if w["assigned_node"] == "node-1"]
        stayed = {w["id"]: w["token"] for w in c.workloads() if w["assigned_node"] != "node-1"}
        self.assertEqual(len(moved), 2)
        began = time.monotonic()
        c.agents["node-1"].kill()
        old = {name: int(lines(os.path.join(c.dir, name + ".starts"))[0]) for name in moved}
        n = c.wait_node("node-1", "NotReady")
        self.assertIn("heartbeat expired: last heartbeat ", n["status_reason"])
        self.assertEqual(n["status_updated_by"], "monitor")
        c.wait_for("failover", lambda: all(c.workload(m).get("assigned_node") not in (None, "", "node-1")
                                           and c.workload(m)["status"]["phase"] == "Running" for m in moved))
        took = time.monotonic() - began
        note(f"node lost: work of 2 ran elsewhere after {took:.2f} s (silence 0.9 s, grace 1 s)")
        self.assertGreater(took, 1.5, "not before silence and grace are over, counted from its last heartbeat")
        self.assertTrue(all(alive(p) for p in old.values()), "nobody could stop the copies on the lost node")
        self.assertEqual(len([e for e in c.events() if e["type"] == "NodeLost"]), 1, "one event per transition")
        self.assertTrue(all(c.events_of(m, "Rescheduled") for m in moved))
        self.assertEqual({w["id"]: w["token"] for w in c.workloads() if w["id"] in stayed}, stayed, "the others are left alone")

        # Meanwhile somebody wants something on that node only.
        c.apply("pinned", command=traced("pinned"), node_selector={"name": "node-1"})
        c.wait_phase("pinned", "Pending")
        reasons = {r["reason"]: r["nodes"] for r in c.api.get("/v1/workloads/pinned/explain").json["reasons"]}
        self.assertEqual(reasons, {"label-mismatch": 3, "node-not-ready": 1})
        c.start_agent("node-1", labels={"name": "node-1"})
        c.wait_phase("pinned", "Running")
        c.wait_for("its process", lambda: lines(os.path.join(c.dir, "pinned.began")))
        new = int(lines(os.path.join(c.dir, "pinned.began"))[0])
        for name, pid in old.items():
            self.assertFalse(alive(pid), f"{name}: the old copy still runs")
            ended = [int(t) for t in lines(os.path.join(c.dir, name + ".ended"))]
            self.assertEqual(len(ended), 1)
            self.assertLess(ended[0], new, "old copies stop before anything new starts")
        removed = [e["seq"] for e in c.events() if e["type"] == "UnitRemoved"]
        started = c.events_of("pinned", "WorkloadStarted")[0]["seq"]
        self.assertEqual(len(removed), 2)
        self.assertTrue(all(s < started for s in removed))
        for m in moved:
            self.assertEqual(c.workload(m)["status"]["phase"], "Running")
            self.assertNotEqual(c.workload(m)["assigned_node"], "node-1")
            self.assertEqual(len(lines(os.path.join(c.dir, m + ".starts"))), 2)

    # R: C9 C10 C12
    def test_a_stopped_agent_that_goes_on_is_ready_again(self):
        c = self.cluster(nodes=4, heartbeat="300ms", silence=3, grace="30s")
        c.apply("w")
        w = c.wait_phase("w", "Running")
        agent = c.agents[w["assigned_node"]]
        agent.signal(signal.SIGSTOP)
        c.wait_node(agent.name, "NotReady")
        c.wait_phase("w", "Unknown", "Running")
        agent.signal(signal.SIGCONT)
        c.wait_node(agent.name, "Ready")
        after = c.wait_phase("w", "Running")
        self.assertEqual(after["token"], w["token"], "within the grace nothing moves and nothing restarts")

    # R: C11
    def test_when_most_nodes_fall_silent_nothing_is_moved(self):
        c = self.cluster(nodes=4, heartbeat="300ms", silence=3, grace="1s")
        for i in range(8):
            c.apply(f"w{i}")
        for i in range(8):
            c.wait_phase(f"w{i}", "Running")
        where = {w["id"]: w["assigned_node"] for w in c.workloads()}
        for name in ("node-1", "node-2", "node-3"):
            c.agents[name].signal(signal.SIGSTOP)
        for name in ("node-1", "node-2", "node-3"):
            c.wait_node(name, "NotReady")
        time.sleep(3)  # three graces
        self.assertEqual({w["id"]: w["assigned_node"] for w in c.workloads()}, where)
        for name in ("node-1", "node-2", "node-3"):
            c.agents[name].signal(signal.SIGCONT)
        for name in ("node-1", "node-2", "node-3"):
            c.wait_node(name, "Ready")
        for i in range(8):
            c.wait_phase(f"w{i}", "Running")
        self.assertEqual([e for e in c.events() if e["type"] == "Rescheduled"], [])
