"""Networks that really lose packets: replicas and members of etcd in namespaces of their own, cut from each other in every way that splits a cluster."""
import os
import time

import linear
import namespaces
import rig
from load import Load
from rig import Case, note

FULL = os.environ.get("BERTH_TEST_FULL") == "1"


class Cut(Case):
    def setUp(self):
        super().setUp()
        why = namespaces.are_allowed()
        if why:
            self.skipTest(f"this machine allows no network namespaces ({why}); the proxy cuts links in test_history.py")

    def go_through(self, faults):
        """Each fault breaks something under load and returns what mends it; a write must be acknowledged while it is broken."""
        r = self.rig(members=3, replicas=3, namespaces=True)
        r.keep_alive()
        load = Load(r, keys=8, clients=6, seed=self.random.random(), rate=30).start()
        r.wait_for("first writes", lambda: load.count() > 30)
        for name, fault in faults:
            leader, member = r.wait_leader(), r.wait_for("a leader of etcd", r.etcd.leader)
            moment = time.monotonic()
            fault(r, leader, member)
            first = r.wait_for(f"a write although {name}", lambda m=moment: load.first_write_after(m + 1))
            r.wait_for("more writes", lambda m=moment: load.last_write() > max(first[0], m + rig.LEASE_SECONDS + 2))
            note(f"{name}: acknowledged again after {first[0] - moment:.1f} s; {leader} led, now {r.wait_leader()}")
            r.net.heal()
            r.etcd.wait_healthy()
        load.stop()
        load.final_reads()
        note(load.describe())
        verdict = linear.check(load.ops)
        self.assertTrue(verdict, verdict)

    # R: C33 C35
    def test_a_leader_on_the_smaller_side(self):
        self.go_through([("the leader reaches no member of etcd", lambda r, leader, member: r.net.set(r.net.of(leader.name, "e"), "cut")),
                         ("the leader is on the smaller side, with the leader of etcd",
                          lambda r, leader, member: r.net.set([*(f"{leader.name}-{m.name}" for m in r.etcd.members if m is not member), *r.net.of(member.name, "e"),
                                                               *(f"{other.name}-{member.name}" for other in r.replicas if other is not leader)], "cut"))])

    # R: C33 C35
    def test_members_of_etcd_that_do_not_hear_each_other(self):
        self.go_through([("the leader of etcd is cut from its peers", lambda r, leader, member: r.net.set(r.net.of(member.name, "e"), "cut"))]
                        + ([("the leader of etcd hears its peers and is not heard", lambda r, leader, member: r.net.set(r.net.of(member.name, "e"), "mute")),
                            ("the leader of etcd is heard and hears nobody", lambda r, leader, member: r.net.set(r.net.of(member.name, "e"), "deaf")),
                            ("nothing of etcd reaches the leader", lambda r, leader, member: r.net.set(r.net.of(leader.name, "e"), "deaf")),
                            ("nothing of the leader reaches etcd", lambda r, leader, member: r.net.set(r.net.of(leader.name, "e"), "mute"))] if FULL else []))
