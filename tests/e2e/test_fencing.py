"""What must not run twice, with real processes: every copy notes when it lived, by the machine's one clock, and a checker reads the notes (docs/fencing.md)."""
import glob
import os
import signal
import socket
import threading
import unittest

from berthtest import Case, note

LEASE, GRACE = 4.0, 2.0
TIMES = ["--heartbeat", "500ms", "--silence", "3", "--grace", "100ms", "--lease", f"{int(LEASE)}s", "--lease-grace", f"{int(GRACE)}s", "--brake", "100"]


class Cut:
    """A wire between an agent and its server that can be cut: then nothing gets through, and nobody is told."""

    def __init__(self, target):
        self.target = target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.open = threading.Event()
        self.open.set()
        self.closing = False
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while not self.closing:
            try:
                a, _ = self.listener.accept()
            except OSError:
                return
            try:
                host, port = self.target.rsplit(":", 1)
                b = socket.create_connection((host, int(port)))
            except OSError:
                a.close()
                continue
            for x, y in ((a, b), (b, a)):
                threading.Thread(target=self.carry, args=(x, y), daemon=True).start()

    def carry(self, source, sink):
        try:
            while data := source.recv(65536):
                self.open.wait()  # what was sent into a cut wire arrives when it heals, as with TCP
                sink.sendall(data)
        except OSError:
            pass
        for s in (source, sink):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.closing = True
        self.open.set()
        self.listener.close()


def diary(path, stubborn=False):
    """A unit that notes by the machine's steady clock, fifty times a second, that it lives: one file per copy, named after its token."""
    trap = "trap '' TERM; " if stubborn else ""
    return ["bash", "-c", f"{trap}exec 9>>{path}.$BERTH_FENCING_TOKEN; while :; do read -r t rest < /proc/uptime; echo $t >&9; sleep 0.02; done"]


def now():
    """By the clock that the diaries have."""
    with open("/proc/uptime") as f:
        return float(f.read().split()[0])


def lives(path):
    """(first, last, token) of each copy, in the order in which they began."""
    found = []
    for name in glob.glob(path + ".*"):
        with open(name) as f:
            times = [float(line) for line in f if line.strip()]
        if times:
            found.append((times[0], times[-1], name[len(path) + 1:]))
    return sorted(found)


class Fencing(Case):
    def start(self, nodes=2, pinned=False, stubborn=False):
        c = self.cluster(server_args=TIMES)
        self.wires = {}
        for i in range(nodes):
            name = f"node-{i + 1}"
            self.wires[name] = Cut(c.grpc_address)
            self.addCleanup(self.wires[name].close)
            c.start_agent(name, args=["--server", self.wires[name].address])
            if i == 0:
                c.wait_nodes_ready(1)
                self.path = os.path.join(c.dir, "diary")
                c.apply("ledger", command=diary(self.path, stubborn), exclusive="pinned" if pinned else "movable", stop_grace_seconds=10)
                c.wait_phase("ledger", "Running")
                c.wait_for("its first note", lambda: lives(self.path))
        c.wait_nodes_ready(nodes)
        self.assertEqual(c.workload("ledger")["assigned_node"], "node-1")
        return c

    def check(self, count=None):
        """The checker: no two copies at one instant, and later ones have larger tokens."""
        found = lives(self.path)
        for (_, end, a), (begin, _, b) in zip(found, found[1:]):
            self.assertLess(end, begin, f"two copies at once: {a} until {end}, {b} from {begin}")
            self.assertLess([int(x) for x in a.split(".")], [int(x) for x in b.split(".")])
        if count is not None:
            self.assertEqual(len(found), count, found)
        return found

    def moved(self, c, timeout=90):
        c.wait_for("ledger runs on node-2", lambda: (w := c.workload("ledger")) and w["assigned_node"] == "node-2" and w["status"]["phase"] == "Running" and
                   len(lives(self.path)) == 2, timeout=timeout)
        return self.check(2)

    # R: C34 C24
    def test_a_cut_off_agent_stops_its_unit_before_another_one_starts_it(self):
        c = self.start(stubborn=True)
        self.wires["node-1"].open.clear()
        cut = now()
        c.wait_for("ledger waits", lambda: c.workload("ledger")["status"].get("reason") == "may-still-run")
        text = c.ok("explain", "ledger").out
        self.assertIn("may still run", text)
        self.assertIn("node-1", text)
        self.assertIn("exclusive", c.cli("doctor").out)
        found = self.moved(c)
        ended, began = found[0][1] - cut, found[1][0] - cut
        note(f"cut off: the old copy ended {ended:.1f} s later (lease {LEASE:.0f} s, grace {GRACE:.0f} s), the new one began after {began:.1f} s")
        self.assertGreater(began, LEASE + GRACE - 0.6)  # counted from the last heartbeat before the cut
        self.wires["node-1"].open.set()
        c.wait_for("node-1 has removed its copy", lambda: (n := c.node("node-1")) and n["status"] == "Ready" and not n.get("tombstones"))
        self.check(2)

    # R: C34 A5 A8
    def test_of_two_agents_with_one_node_id_one_is_turned_away(self):
        c = self.start(nodes=1)
        c.start_agent("twin", args=["--node-id", "node-1"])  # a copied machine: the last --node-id counts
        refused = set()

        def turned_away_again():
            refused.add(c.node("node-1").get("twin_refused_at"))
            return len(refused - {None}) >= 3
        c.wait_for("the second one is turned away, again and again", turned_away_again)
        self.assertIn("node-1", next(line for line in c.cli("doctor").out.splitlines() if "another agent" in line))
        self.assertIn("another agent with this node id", c.ok("describe", "node", "node-1").out)
        self.assertIn("another agent is connected with this node id", c.tail("server", 200))
        self.assertIn("another agent is connected with this node id", c.tail("twin", 200))
        first = self.check(1)[0]
        c.wait_for("the first one goes on", lambda: lives(self.path)[0][1] > first[1])
        self.check(1)
        self.assertEqual(c.workload("ledger")["status"].get("restarts", 0), 0)

    # R: C34 A5
    def test_the_unit_of_a_killed_agent_ends_with_its_lease(self):
        c = self.start(stubborn=True)
        c.agents["node-1"].kill()
        self.moved(c)

    # R: C34 A5
    def test_the_unit_of_an_agent_that_stands_still_ends_with_its_lease(self):
        c = self.start()
        c.agents["node-1"].signal(signal.SIGSTOP)
        self.moved(c)
        c.agents["node-1"].signal(signal.SIGCONT)
        c.wait_for("node-1 has removed its copy", lambda: (n := c.node("node-1")) and n["status"] == "Ready" and not n.get("tombstones"))
        self.check(2)

    # R: C34 A5
    def test_an_agent_that_returns_within_its_lease_goes_on(self):
        c = self.start()
        before = lives(self.path)
        c.agents["node-1"].kill()
        c.start_agent("node-1", args=["--server", self.wires["node-1"].address])
        c.wait_nodes_ready(2)
        later = before[0][1] + 2 * (LEASE + GRACE)
        c.wait_for("it runs on", lambda: lives(self.path)[0][1] > later)
        self.check(1)

    # R: C34
    def test_when_it_is_back_and_nobody_took_over_it_starts_there_again(self):
        c = self.start(nodes=1)
        self.wires["node-1"].open.clear()
        c.wait_for("it has stopped", lambda: lives(self.path)[0][1] < now() - 2)
        self.wires["node-1"].open.set()
        c.wait_for("it runs again", lambda: len(lives(self.path)) == 2 and c.workload("ledger")["status"]["phase"] == "Running")
        self.check(2)
        self.assertEqual(c.workload("ledger")["retry"].get("attempts", 0), 0)

    # R: C34
    def test_a_pinned_unit_is_neither_stopped_nor_moved_and_an_operator_releases_it(self):
        c = self.start(pinned=True)
        c.agents["node-1"].kill()
        c.wait_for("the list says why", lambda: c.workload("ledger")["status"].get("reason") == "pinned-to-node")
        until = lives(self.path)[0][1] + LEASE + GRACE + 3
        c.wait_for("it runs on", lambda: lives(self.path)[0][1] > until)
        self.assertEqual(c.workload("ledger")["assigned_node"], "node-1")
        self.assertEqual(c.cli("release", "ledger").code, 2, "not without saying so")
        for pid in glob.glob("/proc/[0-9]*/environ"):  # the machine is switched off
            try:
                with open(pid, "rb") as f:
                    text = f.read()
            except OSError:
                continue
            if b"BERTH_NODE_ID=node-1" in text and self.mark.encode() in text:
                os.kill(int(pid.split("/")[2]), signal.SIGKILL)
        c.ok("release", "ledger", "--i-know-it-is-dead")
        self.moved(c)
        self.assertEqual(len(c.events(type="UnitReleased")), 1)

    # R: C34
    def test_an_operators_word_ends_the_wait(self):
        c = self.start()
        self.assertEqual(c.cli("node", "fence", "node-1", "--i-know-it-is-dead").code, 5, "it is alive")
        c.ok("stop", "ledger")
        c.wait_phase("ledger", "Stopped")
        c.agents["node-1"].kill()
        c.wait_node("node-1", "NotReady")
        c.ok("start", "ledger")
        c.ok("node", "fence", "node-1", "--i-know-it-is-dead")
        self.moved(c)
        self.assertEqual(len(c.events(type="NodeFenced")), 1)


if __name__ == "__main__":
    unittest.main()
