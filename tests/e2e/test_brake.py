"""Who is silent, and what is done about it: the rule of C11 (issue 5, B4), with a real server and real agents."""
import selectors
import signal
import socket
import threading

from berthtest import Case

ZONES = "abcdef"


class Cable:
    """The server's own network cable: everything between it and the agents goes through here."""

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self.target, self.pairs, self.lock, self.cut = (host, int(port)), [], threading.Lock(), False
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                if self.cut:
                    near.close()
                    continue
                try:
                    far = socket.create_connection(self.target, 10)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                self.pairs.append((near, far))
            threading.Thread(target=self.carry, args=(near, far), daemon=True).start()

    def carry(self, near, far):
        with selectors.DefaultSelector() as s:
            s.register(near, selectors.EVENT_READ, far)
            s.register(far, selectors.EVENT_READ, near)
            try:
                while True:
                    for key, _ in s.select():
                        data = key.fileobj.recv(65536)
                        if not data:
                            return
                        key.data.sendall(data)
            except (OSError, ValueError):
                pass
            finally:
                near.close()
                far.close()

    def unplug(self):
        with self.lock:
            self.cut = True
            for pair in self.pairs:
                for end in pair:
                    try:
                        end.shutdown(socket.SHUT_RDWR)
                    except OSError:
                        pass
            self.pairs = []

    def plug(self):
        with self.lock:
            self.cut = False

    def close(self):
        self.unplug()
        self.listener.close()


class Brake(Case):
    def zones(self, sizes, units=3, rate=None, through=None, grace="4s"):
        """A cluster with zones of these sizes and that many units per node, all of them running."""
        args = ["--evict-rate", str(rate)] if rate else []
        c = self.cluster(heartbeat="1s", silence=4, grace=grace, server_args=args)
        server = c.grpc_address
        if through:
            c.grpc_address = through(c)
        for zone, size in zip(ZONES, sizes):
            for i in range(size):
                c.start_agent(f"{zone}{i}", labels={"zone": zone}, runtime="mock")
        c.grpc_address = server
        c.wait_nodes_ready(sum(sizes), timeout=120)
        for i in range(sum(sizes) * units):
            c.apply(f"w{i}")
        c.wait_for("all to run", lambda: c.info().get("workloads_running", 0) == sum(sizes) * units, timeout=120)
        return c

    def lose(self, c, *names):
        for n in names:
            c.agents[n].signal(signal.SIGSTOP)
        c.wait_for("all of them to be lost", lambda: c.info().get("nodes_ready", 0) == len(c.agents) - len(names), timeout=60)

    def find_back(self, c, *names):
        for n in names:
            c.agents[n].signal(signal.SIGCONT)

    def told(self, c, kind):
        return [e for e in c.events() if e["type"] == kind]

    def moved(self, c):
        return [e for e in self.told(c, "Rescheduled") if e.get("reason") in ("node-lost", "node_lost")]

    def assert_moves(self, c, names, units):
        c.wait_for("their units to run elsewhere", lambda: len(self.moved(c)) == units and c.info().get("workloads_running") == len(c.workloads()),
                   timeout=120)
        self.assertEqual({e["node_id"] for e in self.moved(c)}, set(names))
        self.assertEqual(self.told(c, "EvictionHeld"), [])

    def assert_held(self, c, nodes, silent):
        c.wait_for("the brake", lambda: self.told(c, "EvictionHeld"), timeout=60)
        b = self.told(c, "EvictionHeld")[0]["brake"]
        self.assertEqual((b["nodes"], b["silent"], b["limit_percent"]), (nodes, silent, 55), b)
        self.assertIn(b["zone"], ZONES)
        info = c.info()
        self.assertEqual(info["mode"], "eviction held")
        c.wait_for("its health to say so", lambda: c.api.get("/health").json.get("eviction") == "held", timeout=60)
        shown = c.ok("cluster").out
        self.assertIn(f"held: {silent} of {nodes} nodes are silent", shown)
        r = c.cli("doctor")
        self.assertEqual(r.code, 1)
        self.assertIn(f"{silent} of {nodes} nodes, beyond 55 % is held", r.out)

    # R: C11
    def test_a_zone_of_5_of_12_moves_at_full_speed(self):
        c = self.zones([5, 4, 3], rate=1)
        names = [f"a{i}" for i in range(5)]
        self.lose(c, *names)
        # B5: what is said of units whose nodes are lost
        shown = c.ok("cluster").out
        self.assertIn("attention; 5 of 12 nodes are lost", shown)
        self.assertRegex(shown, r"36: 21 running, 15 unknown \(their nodes are lost\)|36: .* running")
        self.assert_moves(c, names, 15)
        self.assertEqual(self.told(c, "EvictionPaced"), [])
        self.find_back(c, *names)
        c.wait_nodes_ready(12)

    # R: C11
    def test_the_larger_of_two_zones_of_6_and_4_moves(self):
        c = self.zones([6, 4])
        names = [f"a{i}" for i in range(6)]
        r = c.cli("plan", "lose", *names)
        self.assertNotIn("the brake would hold", r.out + r.err)
        self.assertIn("18 moved", r.out + r.err)
        self.lose(c, *names)
        self.assert_moves(c, names, 18)

    # R: C11
    def test_7_and_3_is_held_until_an_operator_says_otherwise(self):
        c = self.zones([7, 3], units=2)
        names = [f"a{i}" for i in range(7)]
        r = c.cli("plan", "lose", *names)
        self.assertIn("the brake would hold: 7 of 10 nodes would be silent at once (the limit is 55 %)", r.out + r.err)
        self.lose(c, *names)
        self.assert_held(c, 10, 7)
        self.assertEqual(self.moved(c), [])
        r = c.cli("evict")
        self.assertEqual(r.code, 2, r)
        self.assertIn("--now", r.err)
        r = c.cli("evict", "b0", "--now")
        self.assertIn("the node is alive", r.err)
        c.ok("evict", "a0", "--now")
        c.wait_for("one node's units to move", lambda: {e["node_id"] for e in self.moved(c)} == {"a0"})
        self.assertEqual(c.info()["mode"], "eviction held")
        c.restart_server()  # the word about a0, and the wave, are in the records
        c.wait_nodes_ready(3)
        c.wait_for("it to hold again", lambda: c.info()["mode"] == "eviction held", timeout=60)
        self.assertEqual({e["node_id"] for e in self.moved(c)}, {"a0"})
        self.assertIn("silent nodes move now", c.ok("evict", "--now").out)
        c.wait_for("all to move", lambda: {e["node_id"] for e in self.moved(c)} == set(names), timeout=60)
        c.wait_for("calm", lambda: c.info()["mode"] == "normal")
        by = self.told(c, "EvictionOrdered")
        self.assertEqual(len(by), 2)
        self.find_back(c, *names)
        c.wait_nodes_ready(10, timeout=60)

    # R: C11
    def test_two_of_three_zones_are_held_and_resume_when_one_is_back(self):
        c = self.zones([4, 4, 4], units=1)
        names = [f"{z}{i}" for z in "ab" for i in range(4)]
        self.lose(c, *names)
        self.assert_held(c, 12, 8)
        self.find_back(c, *names[:4])
        c.wait_for("the brake to let go", lambda: self.told(c, "EvictionResumed"), timeout=60)
        c.wait_for("the others' units to move", lambda: len(self.moved(c)) == 4, timeout=60)
        self.assertEqual({e["node_id"] for e in self.moved(c)}, set(names[4:]))

    # R: C11
    def test_4_of_12_over_all_zones_move_paced(self):
        c = self.zones([4, 4, 4], units=5, rate=2)
        names = ["a0", "a1", "b0", "c0"]
        r = c.cli("plan", "lose", *names)
        self.assertIn("paced: 4 nodes would not be a whole zone, so their units would move at most 2 a second", r.out + r.err)
        self.lose(c, *names)
        c.wait_for("it to be paced", lambda: self.told(c, "EvictionPaced"), timeout=60)
        b = self.told(c, "EvictionPaced")[0]["brake"]
        self.assertEqual((b["nodes"], b["silent"], b["units_per_second"]), (12, 4, 2), b)
        self.assertIn("its units move a few at a time", c.cli("doctor").out)
        self.assertIn("paced: 4 of 12 nodes are silent", c.ok("cluster").out)
        self.assert_moves(c, names, 20)
        stamps = sorted(e["timestamp"] for e in self.moved(c))
        first, last = (int(t[14:16]) * 60 + float(t[17:23]) for t in (stamps[0], stamps[-1]))
        self.assertGreaterEqual((last - first) % 3600, 8)  # 20 units, 2 a second, after 2 at once

    # R: C11
    def test_all_silent_is_held_and_moves_nothing(self):
        c = self.zones([4, 4, 4], units=1, grace="15s")
        names = list(c.agents)
        self.lose(c, *names)
        self.assert_held(c, 12, 12)
        self.find_back(c, *names)
        c.wait_nodes_ready(12, timeout=60)
        c.wait_for("the brake to let go", lambda: self.told(c, "EvictionResumed"), timeout=60)
        c.wait_for("all to run", lambda: c.info().get("workloads_running") == 12, timeout=60)
        self.assertEqual(self.moved(c), [])

    # R: C11
    def test_the_servers_own_cable_is_held(self):
        cables = []

        def through(c):
            cables.append(Cable(c.grpc_address))
            return cables[0].address

        # Those who are not back when the brake lets go have one more grace: longer than agents wait between two tries.
        c = self.zones([4, 4, 4], units=1, through=through, grace="15s")
        self.addCleanup(cables[0].close)
        cables[0].unplug()
        c.wait_for("silence", lambda: c.info().get("nodes_ready", 0) == 0, timeout=60)
        self.assert_held(c, 12, 12)
        cables[0].plug()
        c.wait_nodes_ready(12, timeout=60)
        c.wait_for("all to run", lambda: c.info().get("workloads_running") == 12, timeout=60)
        self.assertEqual(self.moved(c), [])
        self.assertEqual([e for e in self.told(c, "WorkloadLaunched")], [])  # nor was anything started anew
