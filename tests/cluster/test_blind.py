"""A leader whose ways to etcd fail one by one, and whose key is taken away meanwhile: it never leads beside the next one (docs/fencing.md).

A server watches its key, keeps its lease alive, commits and reads by connections of their own, perhaps to different members. Here its watch is on a member that is alive and hears no other
one, or some of these channels are lost while the others work; then the key is removed, and another server leads. The first one is idle: it has nothing to commit that could be refused. It
must neither renew the lease of an agent for longer than the next one waits, nor say what is so now.
"""
import os
import threading
import time
import uuid

import holders
from rig import Case, Gone, note
from test_exclusive import TIMES
from test_history import guarded

FULL = os.environ.get("BERTH_TEST_FULL") == "1"
ROUNDS = int(os.environ.get("BERTH_TEST_ROUNDS", 20))  # of the long form, with the default times
SIDE_BY_SIDE = 5
UNITS = 3


class Reader(threading.Thread):
    """Asks one server again and again what is so now, while others write: an answer to a question that was asked after a write was acknowledged must show that write, or a later one."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.ends, self.acknowledged, self.stale, self.answers = server, False, 0, [], 0
        self.start()

    def run(self):
        api = self.server.api(5)
        while not self.ends:
            known = self.acknowledged
            try:
                a = api.get("/v1/workloads/marker", consistent=True)
                if a.status == 200:
                    shown = int(a.json["labels"]["version"])
                    self.answers += 1
                    if shown < known:
                        self.stale.append(f"version {shown} although {known} was acknowledged before the question")
            except Gone:
                pass
            time.sleep(0.02)
        api.close()


class Blind(Case):
    def marker(self, r, version, server=None):
        """A change of something that runs nowhere."""
        body = r.manifest("marker", labels={"version": str(version)}, desired_state="Stopped")
        if server is None:
            return r.call("PUT", "/v1/workloads/marker", body)
        api = server.api(10)
        try:
            return api.call("PUT", "/v1/workloads/marker", body)
        finally:
            api.close()

    def begin(self, times):
        """One agent that reaches the leader only and holds all that is exclusive; one that does not reach it, and that it has never heard of."""
        r = self.rig(members=3, replicas=2, look=True, mark=uuid.uuid4().hex, server_args=times)
        old = r.wait_leader()
        new = next(x for x in r.replicas if x is not old)
        for name, server in (("near", new), ("far", old)):
            r.add_agent(name)
            r.net.set(f"{name}-{server.name}", "cut")
            r.start_agent(name)
        make = guarded(r)
        r.wait_for("the near agent", lambda: r.get("/v1/cluster").json.get("nodes_ready", 0) >= 1)
        for i in range(UNITS):
            self.assertIn(r.call("PUT", f"/v1/workloads/x{i}", {**make(f"x{i}", i), "exclusive": "movable"}).status, (200, 201))
        self.marker(r, 0)
        r.wait_for("all to run", lambda: len(self.running(r)) == UNITS)
        self.assertEqual(set(self.running(r).values()), {"near"})
        return r, old, new

    def running(self, r, server=None):
        api = (server or r.wait_leader()).api(10)
        try:
            a = api.get("/v1/workloads", limit=1000)
            return {w["id"]: w["assigned_node"] for w in a.json.get("items", []) if w["status"].get("phase") == "Running"}
        finally:
            api.close()

    def watched_member(self, r, server):
        return r.wait_for(f"{server}'s watch", lambda: next((m for m in r.etcd.members if "watch" in r.net.kinds(f"{server.name}-{m.name}")), None))

    def lose(self, r, old, new, channels):
        """Breaks it, and removes the key: the next one leads."""
        others = r.etcd.members
        if channels == "member":
            member = self.watched_member(r, old)
            others = [m for m in r.etcd.members if m is not member]
            r.etcd.blind(member)
            r.wait_for("a leader of the others", lambda: r.etcd.ctl("endpoint", "health", members=others) or True)
        else:
            r.net.lose(r.net.of(old.name, "e"), *channels)
        pid = new.process.pid
        # Whoever is faster takes it; it is the other one's turn.
        r.wait_for(f"{new} to lead", lambda: f'"pid {pid}"' in r.etcd.ctl("get", "/meta/leader", members=others) or r.etcd.ctl("del", "/meta/leader", members=others) and time.sleep(0.3))

    def round(self, times, channels, moves=True):
        r, old, new = self.begin(times)
        reader = Reader(old)
        began = time.monotonic()
        try:
            self.lose(r, old, new, channels)
            led = time.monotonic()

            def write(version=[0]):
                version[0] += 1
                a = self.marker(r, version[0], new)
                if a.status in (200, 201):
                    reader.acknowledged = version[0]
                return a.status in (200, 201)
            r.wait_for(f"{new} to take changes", write)
            deadline = time.monotonic() + 240
            while moves and self.running(r, new) != {f"x{i}": "far" for i in range(UNITS)} or time.monotonic() < led + 12:
                self.assertLess(time.monotonic(), deadline, f"nothing moved:\n{r.tails()}")
                write()
                self.witnesses(r, channels)
                time.sleep(0.2)
            time.sleep(1)
            self.witnesses(r, channels)
        finally:
            reader.ends = True
            reader.join()
        self.assertEqual(reader.stale[:3], [], f"stale answers ({channels} lost)")
        note(f"{'a blind member' if channels == 'member' else ' and '.join(channels) + ' lost'}: {new} led after {led - began:.1f} s, all as it was to be after "
             f"{time.monotonic() - began:.1f} s; {reader.answers} answers of {old}")
        r.net.heal()
        r.etcd.wait_healthy()
        return r

    def witnesses(self, r, channels):
        self.assertEqual([f for f in os.listdir(r.dir) if f.endswith(".double")], [], f"two holders: the lock that only one can hold was held ({channels} lost)")
        self.assertEqual(holders.violations(holders.read(os.path.join(r.dir, n + ".log") for n in r.agents)), [])

    def side_by_side(self, rounds):
        """Each with servers of its own, so many at a time."""
        failures, todo, lock = [], list(rounds), threading.Lock()

        def work():
            while True:
                with lock:
                    if not todo or failures:
                        return
                    one = todo.pop(0)
                try:
                    one()
                except BaseException as e:  # told by the test, not by its thread
                    failures.append(e)
        threads = [threading.Thread(target=work) for _ in range(SIDE_BY_SIDE)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if failures:
            raise failures[0]

    # R: C33 C34. Line E1.
    def test_a_member_of_etcd_that_is_alive_and_blind(self):
        if FULL:
            self.side_by_side([lambda: self.close_rig(self.round([], "member"))] * ROUNDS)
        else:
            self.round(TIMES, "member")

    # R: C33 C34. Line E1: only the age of the last proof ends this one's renewals.
    def test_a_lease_that_goes_on_while_nothing_else_is_heard(self):
        self.round(TIMES, ["watch", "read"])

    # R: C33 C34. Line E1.
    def test_each_way_to_etcd_fails_by_itself(self):
        ways = ["watch", "lease", "commit", "read"]
        sets = [[w for i, w in enumerate(ways) if n & 1 << i] for n in range(1, 16)] if FULL else [[w] for w in ways]
        self.side_by_side([lambda s=s: self.close_rig(self.round(TIMES, s, moves=FULL)) for s in sets])

    def close_rig(self, r):
        self.rigs.remove(r)
        r.close(False)
