"""A node's agent that is not berth's, with the node's real certificate (A13; issue 5, A2). Whatever it says, the honest node's unit runs on as it is, and nothing of its own making runs elsewhere."""
import concurrent.futures
import json
import os
import time
import unittest

import persys
from berthtest import alive
from test_tls import Tls

if persys.grpc:
    from rogue import AgentMessage, FAILED, MISSING, PENDING, RUNNING, STOPPED, UNKNOWN, WISH_DELETED, Rogue

FOREVER = 10 ** 6


@unittest.skipUnless(persys.grpc, "python3-grpcio is not installed")
class Node(Tls):
    def started(self, *args):
        """An honest node-1 that runs "victim", and node-2, whose certificate the rogue has."""
        c, pki = self.secure(heartbeat="1s")
        if args:
            c.kill_server()
            c.server_args += args
            c.start_server()
        self.node(c, pki, "node-1")
        c.wait_nodes_ready(1)
        self.pids = os.path.join(c.dir, "victim.pids")
        self.forged = os.path.join(c.dir, "forged")
        c.apply("victim", command=["sh", "-c", f"echo $$ >> {self.pids}; exec sleep 100000"])
        c.wait_phase("victim", "Running")
        for name in ("node-2", "node-3"):
            pki.issue("node", name)
        self.before = c.workload("victim")
        self.rogues = {}
        return c, pki

    def rogue(self, c, pki, node="node-2", cert=None):
        if node in self.rogues:  # one stream per node: of two the second waits
            self.rogues[node].close()
            c.wait_for("its stream to end", lambda: not (c.node(node) or {}).get("connected"))
        r = self.rogues[node] = Rogue(c, node, pki, cert)
        self.addCleanup(r.close)
        return r.begin()

    def lies(self):
        """What the rogue wants to have run elsewhere, as root if need be."""
        return ["sh", "-c", f"touch {self.forged}; exec sleep 100000"]

    def assert_harmless(self, c, moved=False):
        w = c.workload("victim")
        for field in ("assigned_node", "spec", "revision_id", "token", "desired_state", "labels"):
            self.assertEqual(w.get(field), self.before.get(field), field)
        self.assertEqual(w["status"]["phase"], "Running")
        self.assertEqual(w["status"].get("restarts", 0), self.before["status"].get("restarts", 0))
        with open(self.pids) as f:
            pids = f.read().split()
        self.assertEqual(len(pids), 1, "it was never started again")
        self.assertTrue(alive(int(pids[0])))
        self.assertFalse(os.path.exists(self.forged), "something of the rogue's ran")
        self.assertEqual(c.node("node-1")["status"], "Ready")

    def restored(self, c, *args):
        """The store is put back from a backup; events have passed since."""
        file = os.path.join(c.dir, "it.backup")
        c.ok("backup", "--data", c.data, file, server=False)
        for i in range(3):
            c.ok("cordon", "node-1")
            c.ok("uncordon", "node-1")
        head = c.head()
        c.kill_server()
        c.ok("restore", file, "--data", c.data, "--force", *args, server=False)
        c.start_server()
        c.wait_for("the honest node", lambda: c.node("node-1").get("connected"))
        return head

    # ---- claims and definitions ----

    # Issue 5, A2: the attack. R: A13 A5
    def test_a2_after_a_restore_a_claim_of_anothers_unit_takes_nothing(self):
        c, pki = self.started()
        epoch = c.info()["epoch"]
        behind = self.restored(c)  # the backup's head
        for i, answer in enumerate(({}, {"warrant": b"x" * 32}, {"warrant": b"x"}, {"old_form": True})):
            token = (epoch, behind + i)  # each is a claim of its own
            r = self.rogue(c, pki).hello([self.claim("victim", token)], applied=token).welcome()
            r.asked("victim")
            r.describe("victim", token, self.lies(), **answer)
            r.beat()
            self.assert_harmless(c)
        refused = c.events(type="ClaimRefused")
        self.assertEqual({e["node_id"] for e in refused}, {"node-2"})
        self.assertIn("victim", refused[-1]["message"])
        # Nor by an operator's word, while the one who has it is well.
        asked = len([m for m in r.heard if m.HasField("describe")])
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            said = pool.submit(c.cli, "adopt", "node-2", "victim")
            r.wait("the question", lambda _: len([m for m in r.heard if m.HasField("describe")]) > asked)
            r.describe("victim", token, self.lies(), warrant=b"y" * 32)
            self.assertIn("node node-1 has it", str(said.result()))
        self.assert_harmless(c)

    def claim(self, unit, token, state=None):
        return Rogue.status(None, unit, token, state or RUNNING)

    # Issue 5, A2. R: A13 C27
    def test_a2_by_the_rule_adopt_nothing_that_was_not_ordered_becomes_a_record(self):
        c, pki = self.started("--strangers", "adopt")
        token = (c.info()["epoch"], c.head())
        r = self.rogue(c, pki).hello([self.claim("ghost", token)]).welcome()
        r.asked("ghost")
        r.describe("ghost", token, self.lies(), warrant=b"\0" * 32)
        r.report(self.claim("older", token), complete=True)
        r.asked("older")
        r.describe("older", token, self.lies(), old_form=True)  # as an agent of a berth before this one
        r.beat()
        self.assertEqual([c.workload(w) for w in ("ghost", "older")], [None, None])
        self.assertEqual(len(c.events(type="ClaimRefused")), 2)
        self.assert_harmless(c)

    # R: A13 (A2): a warrant is good for its node, unit, token and definition; and for exactly these it is.
    def test_a2_a_real_warrant_is_good_for_what_it_was_made_for_and_for_nothing_else(self):
        c, pki = self.started("--strangers", "adopt")
        r = self.rogue(c, pki).hello(labels={"mine": "yes"}).welcome()
        c.api.call("PUT", "/v1/workloads/own", c.manifest("own", command=["true"], node_selector={"mine": "yes"}))
        order = r.order("own")
        self.assertEqual(len(order.warrant), 32)
        token = (order.token.epoch, order.token.seq)
        r.report(self.claim("own", token))
        c.wait_phase("own", "Running")
        c.ok("delete", "own")
        c.wait_for("the order", lambda: r.order("own").desired_state == WISH_DELETED)
        r.report(self.claim("own", token, MISSING))
        c.wait_gone("own")
        altered = bytearray(order.workload)
        altered[-1] ^= 1
        tries = [("node-2", "other", token, order.workload), ("node-2", "own", (token[0], token[1] + 1), order.workload), ("node-2", "own", token, bytes(altered)),
                 ("node-3", "own", token, order.workload)]
        for node, unit, at, definition in tries:
            x = self.rogue(c, pki, node).hello([self.claim(unit, at)]).welcome()
            x.asked(unit)
            x.describe(unit, at, [], warrant=order.warrant, definition=definition)
            x.beat()
            self.assertIsNone(c.workload(unit), (node, unit, at))
            x.report(self.claim(unit, at, MISSING))
            x.beat()
        r = self.rogue(c, pki).hello([self.claim("own", token)]).welcome()
        r.asked("own")
        r.describe("own", token, [], warrant=order.warrant, definition=order.workload)
        c.wait_for("what it once ran", lambda: c.workload("own"))  # docs/fencing.md: its own unit
        self.assert_harmless(c)
        c.ok("delete", "own")
        r.report(self.claim("own", token, MISSING))

    # R: A13 A5: an operator took the node over from another cluster, once.
    def test_a_node_that_was_taken_over_does_not_keep_that_word(self):
        c, pki = self.started()
        token, old = (7, 1), "01OTHERCLUSTER"
        def hello(*units, cluster=old):
            r = self.rogue(c, pki).hello([self.claim(u, token) for u in units], cluster=cluster, applied=(7, 9) if cluster == old else None)
            return r, r.wait("a welcome", lambda m: m.HasField("welcome")).welcome
        self.assertFalse(hello("own")[1].accepted)
        c.ok("adopt", "node-2")
        r, w = hello("own")
        self.assertTrue(w.accepted and w.adopt)
        c.restart_server()  # in the middle; and the agent had noted whose it is
        r, w = hello("own", cluster=c.info()["cluster_id"])
        r.asked("own")
        r.describe("own", token, ["sleep", "1"], warrant=b"x" * 32)
        c.wait_for("what it ran", lambda: c.workload("own"))
        self.assertEqual([e["node_id"] for e in c.wait_for("the end of it", lambda: c.events(type="NodeTakenOver"))], ["node-2"])
        # Later it is compromised.
        for restart in (False, True):
            if restart:
                c.restart_server()
            for cluster in (old, "01THIRD"):
                r, w = hello("own", "ghost", cluster=cluster)
                self.assertFalse(w.accepted or w.adopt)
            r, w = hello("own", "ghost", cluster=c.info()["cluster_id"])
            self.assertTrue(w.accepted and not w.adopt)
            for old_form in (False, True):
                r.describe("ghost", token, self.lies(), old_form=old_form)
            r.beat()
            self.assertFalse([m for m in r.heard if m.HasField("describe")])
            self.assertIsNone(c.workload("ghost"))
        self.assert_harmless(c)
        c.ok("delete", "own")
        r.report(self.claim("own", token, MISSING))

    # R: A13: an answer that nobody asked for
    def test_definitions_that_nobody_asked_for_are_nothing(self):
        c, pki = self.started("--strangers", "adopt")
        token = (self.before["token"]["epoch"], self.before["token"]["seq"])
        r = self.rogue(c, pki).hello().welcome()
        for unit in ("victim", "ghost", "", "../../etc/passwd", "x" * 500):
            r.describe(unit, token, self.lies(), warrant=b"w" * 32)
            r.describe(unit, token, self.lies(), old_form=True)
            r.describe(unit, token, [], definition=b"\xff" * 100, warrant=b"w" * 32)
        r.beat()
        self.assertIsNone(c.workload("ghost"))
        self.assert_harmless(c)

    # R: A13 C34: a claim keeps no exclusive unit of others from moving.
    def test_a_claim_holds_back_no_exclusive_workload(self):
        c, pki = self.started()
        r = self.rogue(c, pki).hello([self.claim("ledger", (c.info()["epoch"], 1))], cpu=1).welcome()
        c.api.call("PUT", "/v1/workloads/ledger", {**c.manifest("ledger"), "exclusive": "pinned"})
        r.report(self.claim("ledger", (c.info()["epoch"], 1)), complete=True)
        self.assertEqual(c.wait_phase("ledger", "Running")["assigned_node"], "node-1")
        self.assert_harmless(c)

    # ---- statuses and tokens ----

    # R: A13
    def test_statuses_of_others_units_count_for_nothing(self):
        c, pki = self.started()
        token = (self.before["token"]["epoch"], self.before["token"]["seq"])
        r = self.rogue(c, pki).hello().welcome()
        head = c.head()
        for state in (PENDING, RUNNING, STOPPED, FAILED, UNKNOWN, MISSING):
            for t in (token, (token[0], token[1] + 100), (token[0] + 1, 1), (0, 0), None):
                for complete in (False, True):
                    r.report(self.claim("victim", t, state), complete=complete, applied=(token[0], 1))
        r.report(complete=True, applied=(token[0], 1))
        r.beat()
        self.assertEqual([e for e in c.events() if e["seq"] > head and e.get("workload_id") == "victim"], [])
        self.assert_harmless(c)

    # R: A13 C34 C32
    def test_tokens_cursors_and_names_of_others_are_refused(self):
        c, pki = self.started()
        largest = 2 ** 64 - 1
        for applied in ((c.info()["epoch"], FOREVER), (largest, largest)):
            r = self.rogue(c, pki).hello(applied=applied)
            self.assertFalse(r.wait("a welcome", lambda m: m.HasField("welcome")).welcome.accepted)
        r = self.rogue(c, pki).hello(node="node-1")  # with node-2's certificate
        self.assertEqual(r.wait("the end", None).code(), persys.grpc.StatusCode.PERMISSION_DENIED)
        r = self.rogue(c, pki).hello(cluster="0123456789abcdef")
        self.assertFalse(r.wait("a welcome", lambda m: m.HasField("welcome")).welcome.accepted)
        r = self.rogue(c, pki).hello([self.claim("victim", (largest, largest)), self.claim("ghost", (largest, 0))]).welcome()
        r.beat(units_hash=largest, units_count=100000)
        self.assert_harmless(c)

    # ---- what it says of itself ----

    # R: A13 A9
    def test_labels_and_capacity_move_nothing_that_runs(self):
        c, pki = self.started()
        odd = [dict(cpu=2 ** 62, memory_mb=2 ** 62, disk_gb=2 ** 62), dict(cpu=-1, memory_mb=-1, disk_gb=-1), dict(cpu=0, memory_mb=0, disk_gb=0),
               dict(labels={f"l{i}": "x" for i in range(5000)}), dict(labels={"a" * 5000: "b"}), dict(labels={"zone\n": "\x1b[2J"}), dict(agent_endpoint="x" * 10000),
               dict(agent_version="\x1b[2J" * 100), dict(protocol=-5)]
        for fields in odd:
            r = self.rogue(c, pki).hello(**fields)
            r.answered()
            self.assert_harmless(c)
        self.rogue(c, pki).hello(cpu=FOREVER, memory_mb=FOREVER, disk_gb=FOREVER, labels={"zone": "best"}).welcome()
        self.assert_harmless(c)
        json.loads(c.api.get("/v1/nodes").body)

    # R: A13: what a hello says in the server's name counts for nothing.
    def test_it_does_not_say_who_it_is_to_the_server_nor_that_it_is_called(self):
        c, pki = self.started()
        self.rogue(c, pki).hello(push=True, ip="192.0.2.1", key="0" * 64, token="admin", agent_endpoint="192.0.2.1:1", labels={"mine": "yes"}).welcome()
        n = c.node("node-2")
        self.assertFalse(n.get("push"), "it has a stream: nobody calls it")
        self.assertTrue(n["ip"].startswith("127."))
        c.api.call("PUT", "/v1/workloads/own", c.manifest("own", command=["true"], node_selector={"mine": "yes"}))
        r = self.rogues["node-2"]
        order = r.order("own")
        self.assertEqual(len(order.warrant), 32, "and what it is given has its warrant")
        c.ok("delete", "own")
        r.report(self.claim("own", (order.token.epoch, order.token.seq), MISSING))
        self.assert_harmless(c)

    # R: A13: its certificate outlives it in the list, and so do its bounds.
    def test_what_bounds_it_outlives_that_it_was_forgotten(self):
        c, pki = self.started()
        greedy = dict(cpu=FOREVER, memory_mb=FOREVER, disk_gb=FOREVER, labels={"berth.io/pool": "payments"})
        self.rogue(c, pki).hello(**greedy).welcome()
        c.ok("capacity", "node-2", "--cpu", "1")
        c.ok("label", "node", "node-2", "berth.io/pool=web")
        c.ok("taint", "node-2", "odd:no-schedule")
        self.rogues["node-2"].close()
        c.wait_node("node-2", "NotReady")
        c.ok("node", "forget", "node-2")
        self.assertIsNone(c.node("node-2"))
        self.rogue(c, pki).hello(**greedy).welcome()
        n = c.node("node-2")
        self.assertEqual((n["resources"]["cpu_total"], n["labels"], [t["key"] for t in n["taints"]]), (1, {"berth.io/pool": "web"}, ["odd"]))
        self.assert_harmless(c)

    # R: A13 A11
    def test_floods_reach_nobody_else(self):
        c, pki = self.started()
        token = (self.before["token"]["epoch"], self.before["token"]["seq"])
        r = self.rogue(c, pki).hello([self.claim(f"s{i}", (1, i + 1)) for i in range(2000)]).welcome()
        until, n, slow = time.monotonic() + 3, 0, 0
        while time.monotonic() < until:
            for i in range(50):
                r.report(self.claim("victim", token, FAILED), self.claim(f"t{n % 3000}", token), self.claim(f"s{n % 2000}", token, MISSING), complete=n % 7 == 0)
                r.describe("victim", token, self.lies(), warrant=b"w" * 32)
                n += 1
            began = time.monotonic()
            self.assertEqual(c.api.fork().get("/health").status, 200)
            slow = max(slow, time.monotonic() - began)
        self.assertLess(slow, 5)
        self.assertEqual(c.api.call("PUT", "/v1/workloads/mine", c.manifest("mine", command=["true"], restart="never", node_selector=None)).status, 201)
        self.assert_harmless(c)


    # R: A13 A11: a node's share is one of bytes, too: long lists, and definitions, cost the server time.
    def test_large_messages_are_taken_at_a_pace(self):
        c, pki = self.started()
        share, n = 2048 * 1000, 4  # bytes per second: sessions.c
        r = self.rogue(c, pki).hello(cpu=1).welcome()
        large = AgentMessage()
        for i in range(12):
            large.definitions.held.add(unit_id=f"x{i}", definition=b"\0" * 250000, warrant=b"w" * 32).token.seq = 1
        began = time.monotonic()
        for i in range(n):
            r.send(definitions=large.definitions)
        self.assertEqual(c.api.call("PUT", "/v1/workloads/mine", c.manifest("mine", command=["true"], restart="never")).status, 201)
        c.wait_phase("mine", "Completed")  # the others are not held up
        r.beat()
        self.assertGreater(time.monotonic() - began, n * large.ByteSize() / share / 2, "it was taken as fast as it came")
        self.assert_harmless(c)


if __name__ == "__main__":
    unittest.main()
