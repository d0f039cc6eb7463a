"""Several servers on three members of etcd, with everything killed, paused and cut: they behave as one server that never forgets.

The history of all clients is checked for linearizability (linear.py), what agents wrote down about starts and stops for double holders (holders.py).
"""
import itertools
import json
import os
import statistics
import subprocess
import threading
import time
import unittest

import holders
import linear
import rig
from linear import Op
from load import Connection, Live, Load, Lost, NotSent, outcome_of
from rig import BERTH, Case, note, processes_with

FULL = os.environ.get("BERTH_TEST_FULL") == "1"
OPERATIONS = int(os.environ.get("BERTH_TEST_OPERATIONS", 12000 if FULL else 800))
CHANGES = int(os.environ.get("BERTH_TEST_CHANGES", 34 if FULL else 3))  # in the long form 20 of them are kill -9


def guarded(r):
    """A command that leaves a trace if another copy of it, on whatever node, is alive at the same time: what the kernel knows, not what somebody wrote down."""
    def make(name, version):
        path = os.path.join(r.dir, name)
        script = f"exec 9>>{path}.lock; flock -n 9 || echo $$ >> {path}.double; echo {version} $$ >> {path}.starts; exec sleep 100000"
        return r.manifest(name, command=["sh", "-c", script], env={"VERSION": str(version)})
    return make


class Faults:
    """What can happen to a leader. Each has a name, breaks something, and mends it again."""

    def __init__(self, r):
        self.r = r

    def kill(self, leader):
        """kill -9; it stays away until another one leads."""
        self.r.restart_after = 3600
        leader.kill()
        return lambda: setattr(self.r, "restart_after", 0)

    def restart(self, leader):
        """kill -9, and started again at once: it may take its own place."""
        leader.kill()
        return lambda: None

    def pause(self, leader):
        leader.pause()
        return leader.resume

    def cut(self, leader):
        leader.cut_from_etcd("cut")
        return lambda: leader.cut_from_etcd("pass")

    def deaf(self, leader):
        """etcd hears it, its answers are lost: every commit under way is of unknown outcome."""
        leader.cut_from_etcd("deaf")
        return lambda: leader.cut_from_etcd("pass")

    def reset(self, leader):
        leader.cut_from_etcd("refuse")
        return lambda: leader.cut_from_etcd("pass")

    # ---- lesser ones, which must cost nobody the lead; they last until the next write ----

    def member(self, turn):
        self.r.etcd.members[turn % len(self.r.etcd.members)].kill()

    def slow(self, _):
        self.r.net.set([n for r in self.r.replicas for n in self.r.net.of(r.name, "e")], "delay", 150)

    def half(self, _):
        self.r.net.set([n for r in self.r.replicas for n in self.r.net.of(r.name, "e")], "half")

    def agent(self, turn):
        self.r.net.set(self.r.net.of(f"node-{turn % len(self.r.agents) + 1}"), "cut")


class Replicas(Case):
    def finish(self, r, load, live):
        """All faults are over: what was promised must be so."""
        live.stop()
        load.stop()
        load.final_reads()
        path = os.environ.get("BERTH_TEST_HISTORY")
        if path:
            linear.save(load.ops, path)
        began = time.monotonic()
        verdict = linear.check(load.ops)
        if not verdict:
            kept = path or os.path.join("/tmp", f"berth-history-{self.mark[:8]}.jsonl")
            linear.save(load.ops, kept)
            self.fail(f"not linearizable (the history is in {kept}; tests/cluster/linear.py checks it again)\n{verdict}")
        note(load.describe())
        note(f"linearizable: checked in {time.monotonic() - began:.1f} s, {verdict.configurations} configurations")
        r.wait_for("what was acknowledged to be so", lambda: {w["id"]: w["status"].get("phase") for w in r.all_pages("/v1/workloads") if w["id"].startswith("live-")}
                   == {name: "Running" for name in live.wanted})
        self.check_allocations(r, live)

    def check_allocations(self, r, live):
        workloads = r.all_pages("/v1/workloads")
        for node in r.all_pages("/v1/nodes"):
            here = [w for w in workloads if w.get("assigned_node") == node["id"] and not w.get("placement", {}).get("released")]
            self.assertAlmostEqual(node["resources"].get("cpu_allocated", 0), sum(w["resources"]["cpu"] for w in here), 3, "what a node's ledger holds is what is placed there")
            self.assertLessEqual(node["resources"].get("cpu_allocated", 0), node["resources"]["cpu_total"])
        copies = holders.read(os.path.join(r.dir, name + ".log") for name in r.agents)
        self.assertEqual(holders.violations(copies), [])
        self.assertEqual([f for f in os.listdir(r.dir) if f.endswith(".double")], [], "two copies held a unit's lock at once")
        # A unit runs before its shell has become what it runs: on a busy machine that takes a while.
        r.wait_for("one process for each workload that is meant to run",
                   lambda: len([c for c in processes_with(self.mark).values() if c == "sleep 100000"]) == len(live.wanted))
        note(f"{live.acknowledged} applies and deletions of workloads that run were acknowledged, {len(copies)} starts by agents, none twice, {len(live.wanted)} run now")

    def lead_revision(self, r):
        out = r.etcd.ctl("get", "/meta/leader", "-w", "json")
        return json.loads(out).get("kvs", [{}])[0].get("create_revision")

    # R: C33 A4 A5 C35
    def test_whatever_happens_to_leaders_the_history_is_that_of_one_server(self):
        r = self.rig(members=3, replicas=3, agents=3)
        r.keep_alive()
        per_change = OPERATIONS / CHANGES
        load = Load(r, keys=24 if FULL else 8, clients=8, seed=self.random.random(), rate=25 if FULL else 60).start()
        live = Live(r, guarded(r), seed=self.random.random()).start()
        faults, changes, times = Faults(r), 0, {}
        kinds = itertools.cycle([faults.kill, faults.pause, faults.kill, faults.cut, faults.kill, faults.restart, faults.kill, faults.deaf, faults.kill, faults.reset] if FULL
                                else [faults.kill, faults.pause, faults.cut])
        lesser = itertools.cycle([faults.member, faults.slow, faults.half, faults.agent])
        r.wait_for("first writes", lambda: load.count() > 50)
        while changes < CHANGES:
            r.wait_for("operations", lambda: load.errors or load.count() >= changes * per_change)
            self.assertEqual(load.errors, [])
            fault = next(kinds)
            old, revision = r.wait_leader(), self.lead_revision(r)
            mend = fault(old)
            moment = time.monotonic()
            first = r.wait_for(f"a write after {fault.__name__} of {old}", lambda: load.first_write_after(moment))
            r.wait_for("another leader", lambda: self.lead_revision(r) not in (None, revision))
            mend()
            times.setdefault(fault.__name__, []).append(first[0] - moment)
            changes += 1
            if FULL:
                next(lesser)(changes)
                r.wait_for("a write beside a lesser fault", lambda t=time.monotonic(): load.first_write_after(t))
                r.net.heal()
                r.etcd.start()
        r.wait_for("the last operations", lambda: load.errors or load.count() >= OPERATIONS)
        for name, t in times.items():
            note(f"leader {name}: {len(t)} times, the next acknowledged write after {', '.join(f'{x:.1f}' for x in t)} s (lease {rig.LEASE_SECONDS} s)")
        if FULL:  # C33; one of them may fall together with an election in etcd
            self.assertLess(statistics.median(times["kill"]), rig.LEASE_SECONDS + 1)
        self.finish(r, load, live)

    def put(self, r, where, key, value, ops, seconds=20):
        """One write, in the history whatever becomes of it."""
        load = Load(r, keys=0, clients=0)
        op = Op(key, "write", time.monotonic(), client="test", where=where.name, value=value)
        try:
            status, headers, text = Connection(where.http, seconds).call(*load.request(op, None))
            op.end, op.outcome = time.monotonic(), outcome_of(op, status, text)
        except NotSent:
            return None
        except Lost:
            op.outcome = "unknown"
        if op.outcome == "unknown":
            op.end = linear.INF
        if op.outcome:
            ops.append(op)
        return op.outcome

    def get(self, where, key, ops, seconds=20):
        """One consistent read, in the history if it is answered."""
        op = Op(key, "read", time.monotonic(), client="test", where=where.name)
        reader = Load(None, keys=0, clients=0)
        try:
            status, headers, text = Connection(where.http, seconds).call(*reader.request(op, None))
        except (NotSent, Lost):
            return
        op.end, op.outcome = time.monotonic(), outcome_of(op, status, text)
        if op.outcome:
            reader.learn(op, headers, text)
            ops.append(op)

    # R: C33
    def test_a_leader_that_was_paused_does_not_answer_from_the_past(self):
        r = self.rig(members=1, replicas=2)
        ops = []
        for turn in range(5 if FULL else 2):
            old = r.wait_leader()
            r.wait_for("a write", lambda: self.put(r, old, "key", f"old-{turn}-{time.monotonic()}", ops) == "ok")
            old.pause()
            new = r.wait_leader(other_than=old)
            r.wait_for("a write", lambda: self.put(r, new, "key", f"new-{turn}-{time.monotonic()}", ops) == "ok")
            readers = [threading.Thread(target=self.get, args=(old, "key", ops)) for _ in range(20)]
            for t in readers:
                t.start()
            time.sleep(0.2)  # they are in its sockets: the first thing that it sees when it goes on
            old.resume()
            for t in readers:
                t.join()
            if not old.alive():
                old.start()
        verdict = linear.check(ops)
        self.assertTrue(verdict, verdict)
        note(f"{sum(o.kind == 'read' for o in ops)} of {20 * (turn + 1)} reads that a leader found when it went on were answered, none from the past")

    # R: C33
    def test_what_a_paused_leader_had_in_its_hands_is_not_done_behind_the_back_of_the_next(self):
        r = self.rig(members=1, replicas=2)
        ops = []
        for turn in range(3 if FULL else 1):
            old = r.wait_leader()
            r.wait_for("a write", lambda: self.put(r, old, "key", f"before-{turn}-{time.monotonic()}", ops) == "ok")
            old.pause()
            writer = threading.Thread(target=self.put, args=(r, old, "key", f"in-its-hands-{turn}", ops))
            writer.start()
            new = r.wait_leader(other_than=old)
            reader = Load(r, keys=0, clients=0)
            reader.keys = ["key"]
            reader.final_reads()  # by the new one: the old one stands still. Nothing has been written since, so heads are equal
            old.resume()
            writer.join()
            time.sleep(0.2)
            reader.final_reads(new)
            ops += reader.ops
            if not old.alive():
                old.start()
        verdict = linear.check(ops)
        self.assertTrue(verdict, verdict)


class WithoutEtcd(Case):
    # R: C35 A4
    def test_with_one_member_of_three_killed_nothing_stops(self):
        r = self.rig(members=3, replicas=2, agents=1)
        load = Load(r, keys=8, clients=4, seed=self.random.random(), rate=30).start()
        r.wait_for("writes", lambda: load.count() > 50)
        leader = r.wait_leader()
        gaps = []
        for member in [r.etcd.leader(), *[m for m in r.etcd.members if m is not r.etcd.leader()][:2 if FULL else 0]]:
            began = time.monotonic()
            member.kill()
            r.wait_for("five seconds of writes", lambda began=began: load.last_write() > began + 5)
            times = sorted(o.end for o in load.ops if o.outcome == "ok" and o.kind != "read" and o.end > began - 1)
            gaps.append(max(b - a for a, b in zip(times, times[1:])))
            self.assertIs(r.leader(), leader, "the leader stays")
            member.start()
            r.etcd.wait_healthy()
        load.stop()
        load.final_reads()
        verdict = linear.check(load.ops)
        self.assertTrue(verdict, verdict)
        note(f"a member of etcd killed: the longest time without an acknowledged write was {', '.join(f'{g:.2f}' for g in gaps)} s (the first one led etcd)")
        self.assertLess(max(gaps), rig.LEASE_SECONDS)

    # R: C35 A5
    def test_without_etcd_reads_answer_and_writes_are_refused_and_all_goes_on_by_itself(self):
        r = self.rig(members=3, replicas=2, agents=2)
        r.keep_alive()
        make = guarded(r)
        for i in range(4):
            self.assertIn(r.call("PUT", f"/v1/workloads/w{i}", make(f"w{i}", i)).status, (200, 201))
        r.wait_for("all to run", lambda: len([w for w in r.all_pages("/v1/workloads") if w["status"].get("phase") == "Running"]) == 4)
        leader = r.wait_leader()
        for seconds in (3, 20) if FULL else (9,):  # shorter and longer than every lease
            for m in r.etcd.members:
                m.kill()
            gone = time.monotonic()
            api, refused, reads = leader.api(30), 0, 0
            while time.monotonic() < gone + seconds or not refused:
                began = time.monotonic()
                a = api.call("PUT", f"/v1/workloads/new-{seconds}-{refused}", r.manifest(f"new-{seconds}-{refused}", desired_state="Stopped"))
                self.assertEqual(a.status, 503, a)
                self.assertTrue(a.headers.get("Retry-After"), a)
                self.assertLess(time.monotonic() - began, 10, "the deadline of a request")
                a = api.get("/v1/workloads/w1")
                self.assertEqual((a.status, a.json["status"]["phase"]), (200, "Running"))
                refused, reads = refused + 1, reads + 1
                time.sleep(0.2)
            api.close()
            self.assertEqual(len([c for c in processes_with(self.mark).values() if c == "sleep 100000"]), 4, "agents keep running what they run")
            r.etcd.start()
            back = time.monotonic()
            r.wait_for("a write", lambda: r.call("PUT", "/v1/workloads/after", r.manifest("after", desired_state="Stopped", env={"V": str(back)})).status in (200, 201))
            took = time.monotonic() - back
            note(f"etcd away for {seconds} s: {refused} writes refused, {reads} reads answered; the first write {took:.1f} s after etcd was back")
            self.assertLess(took, 5 + (2 if os.getloadavg()[0] > 2 * os.cpu_count() else 0))
            leader = r.wait_leader()
        r.wait_for("all agents", lambda: r.get("/v1/cluster").json.get("nodes_ready", 0) == 2)
        self.assertEqual([f for f in os.listdir(r.dir) if f.endswith(".double")], [])
        for i in range(4):
            with open(os.path.join(r.dir, f"w{i}.starts")) as f:
                self.assertEqual(len(f.readlines()), 1, "nothing was started anew")


class Certificates(Case):
    # R: C32 C33
    def test_three_members_that_ask_for_certificates(self):
        r = self.rig(members=3, replicas=2, tls=True)
        old = r.wait_leader()
        self.assertIn(r.call("PUT", "/v1/workloads/w", r.manifest("w", desired_state="Stopped")).status, (200, 201))
        old.kill()
        r.wait_leader(other_than=old)
        self.assertEqual(r.get("/v1/workloads/w").status, 200)
        plain = subprocess.run([BERTH, "fsck", "--store", "etcd://" + r.etcd.members[0].address], env=r.env, capture_output=True, text=True, timeout=60)
        self.assertNotEqual(plain.returncode, 0, "nobody gets in without a certificate")


if __name__ == "__main__":
    unittest.main()
