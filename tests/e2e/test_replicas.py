"""Three servers on one etcd: one leads, the others follow, answer reads, pass writes on and take over (C33)."""
import os
import shutil
import signal
import threading
import time
import unittest

import etcd
from berthtest import BERTH, Api, Case, EventStream, Gone, Process, note
from persys import grpc

LEASE = 5  # seconds


class Replica:
    def __init__(self, c, index, store, args=()):
        self.c, self.name, self.store, self.args = c, f"replica-{index}", store, list(args)
        self.data = os.path.join(c.dir, self.name)
        self.http = self.grpc = "127.0.0.1:0"
        self.process = None
        self.start()

    def start(self):
        path = os.path.join(self.data, "server.address")
        if os.path.exists(path):
            os.unlink(path)
        argv = [BERTH, "server", "--data", self.data, "--http", self.http, "--grpc", self.grpc, "--store", self.store, *self.args]
        # every takeover compares what was folded with what a load gives, and ends the process if they differ
        self.process = Process(self.name, argv, {**self.c.env, "BERTH_CHECK_TAKEOVER": "1"}, os.path.join(self.c.dir, self.name + ".log"))
        deadline = time.monotonic() + 60
        while not os.path.exists(path):
            assert self.process.alive() and time.monotonic() < deadline, self.c.tail(self.name)
            time.sleep(0.005)
        with open(path) as f:
            lines = dict(line.strip().split("=", 1) for line in f)
        self.http, self.grpc = lines["http"], lines["grpc"]
        self.api = Api(self.http, timeout=30)

    def health(self):
        return self.api.fork().get("/health").json

    def leads(self):
        try:
            return self.process.alive() and self.health()["role"] == "leader"
        except Gone:
            return False


@unittest.skipUnless(etcd.is_installed(), "etcd is not installed (Debian: etcd-server, etcd-client)")
class Replicas(Case):
    def setUp(self):
        super().setUp()
        self.etcd = etcd.Etcd()
        self.addCleanup(self.etcd.close)

    def three(self, args=()):
        self.c = c = self.cluster(server=False)
        c.store = f"etcd://{self.etcd.address}"
        for i in range(3):  # every server of a cluster has its key
            c.give_key(f"replica-{i + 1}")
        self.servers = [Replica(c, i + 1, c.store, args) for i in range(3)]
        return self.servers

    def agent(self, name):
        c = self.c
        argv = [BERTH, "agent", "--server", ",".join(s.grpc for s in self.servers), "--data", os.path.join(c.dir, name), "--node-id", name,
                "--cpu", "4", "--memory", "8G", "--disk", "100G"]
        c.agents[name] = Process(name, argv, c.env, os.path.join(c.dir, name + ".log"))

    def until(self, what, condition, timeout=60):
        deadline = time.monotonic() + timeout
        while True:
            try:
                got = condition()
                if got:
                    return got
            except Gone:
                pass
            self.assertLess(time.monotonic(), deadline, f"{what}\n" + "\n".join(self.c.tail(s.name, 15) for s in self.servers))
            time.sleep(0.02)

    def done(self):
        """Ends everything politely; then the events must give the records."""
        c = self.c
        if c.agents:
            leader = self.leader()
            for w in self.all(leader):
                leader.api.call("DELETE", f"/v1/workloads/{w['id']}")
            self.until("all workloads are gone", lambda: not self.all(leader))
        for p in [*c.agents.values(), *(s.process for s in self.servers)]:
            if p.alive():
                self.assertEqual(p.stop(), 0, c.tail(p.name))
        self.assertEqual(c.cli("fsck", "--store", c.store, server=False).code, 0)
        for s in self.servers:
            self.assertNotIn("is not what the records say", c.tail(s.name, 10000))

    def leader(self, among=None):
        return self.until("nobody leads", lambda: next((s for s in among or self.servers if s.leads()), None))

    def put(self, server, name, **fields):
        return server.api.fork().call("PUT", f"/v1/workloads/{name}", self.c.manifest(name, command=["sleep", "100000"], **fields))

    def has(self, server, name):
        return server.api.fork().get(f"/v1/workloads/{name}").status == 200

    # Its lease goes on, and it need not commit anything: it must notice all the same, or two lead and renew leases of agents. R: C33 C34
    def test_a_leader_whose_key_somebody_removes_leads_no_more(self):
        servers = self.three()
        old = self.leader()
        term = etcd.get(self.etcd.address, "/meta/leader")
        self.assertEqual(etcd.ctl(self.etcd.address, "del", "/meta/leader").strip(), "1")
        self.until("another term", lambda: etcd.get(self.etcd.address, "/meta/leader") not in ({}, term))
        self.until("the one before steps down", lambda: "this server leads no more" in self.c.tail(old.name, 1000), timeout=20)
        self.until("one leads", lambda: sum(s.leads() for s in servers) == 1, timeout=20)
        self.until("it passes changes on", lambda: self.put(old, "one").status == 201)
        self.done()

    def stop(self, server):
        """Until all of its threads stand still."""
        server.process.signal(signal.SIGSTOP)
        tasks = f"/proc/{server.process.pid}/task"

        def state(task):
            with open(f"{tasks}/{task}/stat") as f:
                return f.read().rsplit(")", 1)[1].split()[0]
        self.until("it stands still", lambda: all(state(t) == "T" for t in os.listdir(tasks)))

    # "It is so already" and "it cannot be" need no commit, so nothing compares who leads: a server that slept must not say so from what was. R: C33
    def test_a_leader_that_slept_says_nothing_about_changes_from_what_was(self):
        servers = self.three()
        for i in range(3):
            leader, name = self.leader(), f"w{i}"
            others = [s for s in servers if s is not leader]
            self.assertEqual(self.put(leader, name).status, 201)
            self.until("all have it", lambda s=servers, n=name: all(self.has(x, n) for x in s))
            answers, asked = [], []
            for method in ("PUT", "PUT", "DELETE"):
                api = leader.api.fork()
                api.get("/health")  # connected
                body, headers = (self.c.manifest(name, command=["sleep", "100000"]), {}) if method == "PUT" else (None, {"If-Match": '"1"'})
                asked.append(threading.Thread(target=lambda a=api, m=method, b=body, h=headers, n=name: answers.append((m, a.call(m, f"/v1/workloads/{n}", b, headers=h).status))))
            self.stop(leader)
            for t in asked:
                t.start()
            new = self.leader(others)
            self.assertEqual(new.api.fork().call("DELETE", f"/v1/workloads/{name}").status, 200)
            self.until("it is gone", lambda n=name, s=new: not self.has(s, n))
            leader.process.signal(signal.SIGCONT)
            for t in asked:
                t.join()
            # those that were passed on to the new leader: made anew; and the removal finds nothing, or another version
            self.assertEqual([a for a in answers if a[1] not in ((503, 201, 200) if ("PUT", 201) in answers and a[0] == "PUT" else (503, 201, 404, 409))], [], answers)
            self.until("it follows", lambda s=leader: not s.leads())
            new.api.fork().call("DELETE", f"/v1/workloads/{name}")
        self.done()

    # Whoever does so should have stopped the servers; they must not go on from what is no longer so. R: C33 C35
    def test_followers_of_an_etcd_that_was_put_back_from_a_snapshot_hold_what_it_holds(self):
        servers = self.three()
        leader = self.leader()
        others = [s for s in servers if s is not leader]
        self.assertEqual(self.put(leader, "kept").status, 201)
        snapshot = os.path.join(self.etcd.dir, "snapshot")
        etcd.ctl(self.etcd.address, "snapshot", "save", snapshot)
        for i in range(10):
            self.assertEqual(self.put(leader, f"lost{i}").status, 201)
        for s in others:
            self.until("all is seen", lambda s=s: self.has(s, "lost9"))
        peer = f"http://127.0.0.1:{self.etcd.peer}"
        self.etcd.kill()
        data = os.path.join(self.etcd.dir, "data")
        shutil.rmtree(data)
        etcd.ctl(self.etcd.address, "snapshot", "restore", snapshot, "--data-dir", data, "--initial-cluster", f"default={peer}", "--initial-advertise-peer-urls", peer)
        self.etcd.start()
        for s in others:
            self.until("what was lost is gone", lambda s=s: s.health()["status"] == "ok" and not self.has(s, "lost9"))
            self.assertTrue(self.has(s, "kept"))
            self.assertIn("the store is older than it was", self.c.tail(s.name, 1000))
        self.until("a change", lambda: self.put(others[0], "after").status == 201)
        for s in servers:
            self.until("all have the same", lambda s=s: {w["id"] for w in self.all(s)} == {"after", "kept"})
        self.done()

    # R: C33
    def test_followers_answer_reads_and_pass_writes_on(self):
        servers = self.three()
        leader = self.leader()
        others = [s for s in servers if s is not leader]
        for s in others:
            health = s.health()
            self.assertEqual((health["role"], health["leader"], health["leader_http"]), ("follower", leader.grpc, leader.http))
        a = self.put(others[0], "one")
        self.assertEqual((a.status, a.headers.get("Location")), (201, "/v1/workloads/one"), a)
        version = a.json["resource_version"]
        for s in servers:
            self.until("a write is seen everywhere", lambda s=s: self.has(s, "one"))
            self.assertEqual(s.api.get("/v1/workloads/one").json, leader.api.get("/v1/workloads/one").json)
        # what the caller says travels with the write: the precondition, its name, its request id
        loser = others[1].api.fork().call("PUT", "/v1/workloads/one", self.c.manifest("one", command=["sleep", "2"]), headers={"If-Match": '"999"'})
        self.assertEqual(loser.status, 409, loser)
        winner = others[1].api.fork().call("PUT", "/v1/workloads/one", self.c.manifest("one", command=["sleep", "2"]),
                                           headers={"If-Match": f'"{version}"', "X-Request-ID": "r-4711", "X-Berth-Actor": "ann"})
        self.assertEqual((winner.status, winner.headers.get("X-Request-Id")), (200, "r-4711"), winner)
        events = leader.api.get("/v1/events", workload="one").json["items"]
        self.assertIn(("r-4711", "ann"), [(e.get("request_id"), e.get("actor")) for e in events])
        # read your own write, through a server that does not lead
        for i in range(20):
            self.assertEqual(self.put(others[i % 2], f"mine{i}").status, 201)
            self.assertEqual(others[(i + 1) % 2].api.fork().get(f"/v1/workloads/mine{i}", consistent="true").status, 200)
        # and the rest of the doors
        self.assertEqual(others[0].api.fork().call("POST", "/v1/workloads/one/stop").status, 200)
        self.assertEqual(others[0].api.fork().call("DELETE", "/v1/workloads/none").status, 404)
        self.assertEqual(others[0].api.fork().call("POST", "/v1/plan", {"remove": {"workload_ids": ["one"]}}).status in (200, 400), True)
        self.assertEqual(others[0].api.fork().get("/v1/workloads/one/explain").status, 200)
        self.assertIn("berth_leader 0", others[0].api.fork().get("/metrics").body.decode())
        self.assertIn("berth_leader 1", leader.api.fork().get("/metrics").body.decode())
        self.done()

    # R: C33
    def test_operators_see_who_leads_and_who_is_there(self):
        servers = self.three()
        leader = self.leader()
        names = sorted(s.grpc for s in servers)
        for s in servers:
            def sees_all(s=s):
                info = s.api.fork().get("/v1/cluster").json
                return sorted(r["name"] for r in info.get("replicas", [])) == names and [r["name"] for r in info["replicas"] if r.get("leads")] == [leader.grpc]
            self.until("each server knows all", sees_all)
            out = self.c.ok("cluster", env={"BERTH_SERVER": s.grpc}, server=False).out
            self.assertIn(f"{leader.grpc} (leads)", out)
            self.assertIn("leader" if s is leader else f"follower of {leader.grpc}", out)
            self.assertIn(f"{leader.grpc} leads, of 3 servers", self.c.cli("doctor", env={"BERTH_SERVER": s.grpc}, server=False).out)
        gone = next(s for s in servers if s is not leader)
        gone.process.stop()
        self.until("one that stopped is no longer there", lambda: len(leader.api.fork().get("/v1/cluster").json["replicas"]) == 2)
        # a command goes on to the next of its addresses
        self.c.ok("get", "nodes", env={"BERTH_SERVER": f"{gone.grpc},{leader.grpc}"}, server=False)
        self.done()

    # R: C33 A5
    def test_kill_9_of_the_leader_under_load(self):
        servers = self.three()
        self.agent("node-1")
        self.until("the agent finds the leader", lambda: (self.leader().api.fork().get("/v1/nodes").json.get("items") or [{}])[0].get("status") == "Ready")
        done, failed, stop = [], [], threading.Event()

        def load(k):
            i = 0
            while not stop.is_set():
                name, s = f"w{k}-{i}", servers[(k + i) % 3]
                try:
                    a = s.api.fork().call("PUT", f"/v1/workloads/{name}", self.c.manifest(name, command=["sleep", "100000"], cpu=0.001, memory_mb=1))
                    if a.status in (200, 201):
                        done.append((time.monotonic(), name))
                        i += 1
                    elif a.status in (503, 504, 429):
                        self.assertTrue(a.headers.get("Retry-After"), a)
                    else:
                        failed.append(a)
                        i += 1
                except Gone:
                    i += 1  # that server is down; its outcome is unknown
                time.sleep(0.01)

        threads = [threading.Thread(target=load, args=(k,)) for k in range(3)]
        for t in threads:
            t.start()
        times = []
        try:
            for _ in range(3):
                leader = self.leader()
                n = len(done)
                self.until("writes go through", lambda n=n: len(done) > n + 30)
                killed = time.monotonic()
                leader.process.kill()
                leader.api.close()
                self.until("writes go through again", lambda: done and done[-1][0] > killed + 0.5)
                first = next(t for t, _ in done if t > killed + 0.3)
                times.append(first - killed)
                leader.start()
        finally:
            stop.set()
            for t in threads:
                t.join()
        note(f"{len(done)} writes; after kill -9 of the leader the next one is acknowledged after " + ", ".join(f"{t:.1f}" for t in times) + f" s (lease: {LEASE} s)")
        self.assertEqual(failed, [])
        self.assertLess(max(times), LEASE + 1 + 4)  # the requirement is lease + 1 s; the rest is for a machine that is busy with other tests
        for s in servers:
            self.until("all servers agree", lambda s=s: s.health()["head"] == self.leader().health()["head"])
            ids = {w["id"] for w in self.all(s)}
            self.assertEqual([n for _, n in done if n not in ids], [], "acknowledged and lost")
        self.done()

    def all(self, server):
        out, cursor = [], ""
        while True:
            page = server.api.fork().get("/v1/workloads", limit="1000", **({"cursor": cursor} if cursor else {})).json
            out += page.get("items", [])
            cursor = page.get("next_cursor", "")
            if not cursor:
                return out

    # R: C33
    def test_a_paused_leader_follows_when_it_goes_on(self):
        servers = self.three()
        first = self.leader()
        self.assertEqual(self.put(first, "before").status, 201)
        others = [s for s in servers if s is not first]
        first.process.signal(signal.SIGSTOP)
        began = time.monotonic()
        second = self.leader(others)
        note(f"another server leads {time.monotonic() - began:.1f} s after SIGSTOP of the leader")
        self.assertEqual(self.put(second, "meanwhile").status, 201)
        first.process.signal(signal.SIGCONT)
        a = self.put(first, "after")  # it may be refused, or passed on; never acknowledged and lost
        self.until("it follows", lambda: first.health().get("leader") == second.grpc)
        self.assertEqual(first.health()["role"], "follower")
        self.until("and has what was written meanwhile", lambda: self.has(first, "meanwhile") and self.has(first, "before"))
        if a.status in (200, 201):
            self.until("what it acknowledged is there", lambda: self.has(second, "after"))
        self.assertEqual(self.put(first, "later").status, 201)
        self.assertTrue(self.has(second, "later"))
        self.assertTrue(first.process.alive())
        # and it may lead again
        for s in others:
            s.process.stop()
        self.until("it leads again", first.leads)
        self.assertEqual(self.put(first, "again").status, 201)
        self.done()

    # R: C33 C35
    def test_etcd_away_for_longer_than_the_lease(self):
        servers = self.three()
        leader = self.leader()
        self.assertEqual(self.put(leader, "stays").status, 201)
        for s in servers:
            self.until("seen everywhere", lambda s=s: self.has(s, "stays"))
        self.etcd.kill()
        self.until("the leader gives up its lead", lambda: not leader.leads())
        for s in servers:
            self.assertTrue(self.has(s, "stays"))  # reads go on
            a = self.put(s, "new")
            self.assertEqual((a.status, bool(a.headers.get("Retry-After"))), (503, True), a)
            # no other server can take over: it is the store that somebody has to look at
            self.until("the store is named", lambda s=s: "the store is away" in self.put(s, "new").json["message"])
            self.assertIn("/health", self.put(s, "new").json["hint"])
        self.etcd.start()
        began = time.monotonic()
        self.until("writes go on", lambda: self.put(servers[0], "new").status in (200, 201))
        note(f"writes go through {time.monotonic() - began:.1f} s after etcd is back")
        self.assertTrue(all(s.process.alive() for s in servers))
        self.done()

    def follow_logs(self, server, ids, each):
        """That many calls of Logs for each of these workloads, which nobody reads from, and their connections."""
        calls, channels = [], []
        for i in range(each):
            channels.append(grpc.insecure_channel(server.grpc, options=[("berth.number", i)]))  # each of its own
            self.addCleanup(channels[-1].close)
            logs = channels[-1].unary_stream("/berth.v1.Control/Logs")
            calls += [logs(b"\x0a" + bytes([len(w)]) + w.encode() + b"\x10\x01") for w in ids]  # id, follow
        return calls, channels

    # They last for as long as somebody looks on, so what shares a connection with them may never have its turn. R: A13 C33
    @unittest.skipUnless(grpc, "python3-grpcio is not installed")
    def test_many_log_streams_through_a_follower_leave_room_for_what_it_passes_on(self):
        servers = self.three()
        leader = self.leader()
        follower = next(s for s in servers if s is not leader)
        nodes, each = 8, 15  # an agent serves 16; a server takes 100 streams on one connection
        for i in range(nodes):
            self.agent(f"node-{i}")
        self.until("all nodes are ready", lambda: leader.api.fork().get("/v1/cluster").json.get("nodes_ready") == nodes)
        ids = [f"w{i}" for i in range(nodes)]
        for w in ids:
            self.assertEqual(self.put(leader, w, cpu=3).status, 201)  # one fits on a node
        for w in ids:
            self.until(f"{w} runs", lambda w=w: leader.api.fork().get(f"/v1/workloads/{w}").json["status"].get("phase") == "Running")
        calls, channels = self.follow_logs(follower, ids, each)

        def relays():
            lines = leader.api.fork().get("/metrics").body.decode().splitlines()
            return int(next(line.split()[1] for line in lines if line.startswith("berth_relays ")))
        self.until("the leader has as many as fit on one connection", lambda: relays() >= 100)
        answer = self.put(follower, "another")
        self.assertEqual(answer.status, 201, answer)
        self.until("all streams are open", lambda: relays() == len(calls))
        for channel in channels:
            channel.close()
        self.until("all streams are over", lambda: relays() == 0)
        self.done()

    # R: A12 C33
    @unittest.skipUnless(grpc, "python3-grpcio is not installed")
    def test_a_follower_that_stops_ends_the_streams_that_go_through_it(self):
        servers = self.three()
        leader = self.leader()
        follower = next(s for s in servers if s is not leader)
        self.agent("node-1")
        self.until("a node", lambda: leader.api.fork().get("/v1/cluster").json.get("nodes_ready") == 1)
        c = self.c.manifest("talks", command=["sh", "-c", "echo hello; sleep 100000"])
        self.assertEqual(leader.api.fork().call("PUT", "/v1/workloads/talks", c).status, 201)
        self.until("it runs", lambda: leader.api.fork().get("/v1/workloads/talks").json["status"].get("phase") == "Running")
        calls, _ = self.follow_logs(follower, ["talks"], 1)
        self.assertIn(b"hello", next(calls[0]))
        follower.process.signal(signal.SIGTERM)
        self.assertEqual(calls[0].code(), grpc.StatusCode.UNAVAILABLE)
        self.assertIn("the server is stopping", calls[0].details())
        self.assertEqual(follower.process.popen.wait(60), 0)
        self.done()

    # R: C33
    def test_event_streams_of_followers(self):
        servers = self.three()
        leader = self.leader()
        follower = next(s for s in servers if s is not leader)
        stream = EventStream(follower.http, since=0, timeout=30)
        seen = []

        def read():
            for ident, kind, data in stream:
                seen.append((int(ident), kind))
                if kind == "WorkloadApplied" and data.get("workload_id") == "last":
                    return

        t = threading.Thread(target=read)
        t.start()
        for i in range(10):
            self.assertEqual(self.put(servers[i % 3], f"e{i}").status, 201)
        self.assertEqual(self.put(leader, "last").status, 201)
        t.join(30)
        self.assertFalse(t.is_alive())
        self.assertEqual([s for s, _ in seen], list(range(1, len(seen) + 1)))  # all of them, in order, each once
        stream.close()
        self.done()
