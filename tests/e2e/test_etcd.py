"""Servers on a real etcd: one leads, another takes over, a paused one can write nothing."""
import json
import os
import signal
import time
import unittest

import etcd
from berthtest import BERTH, Case, Gone, Process, alive, note


@unittest.skipUnless(etcd.is_installed(), "etcd is not installed (Debian: etcd-server, etcd-client)")
class OnEtcd(Case):
    def setUp(self):
        super().setUp()
        self.etcd = etcd.Etcd()
        self.addCleanup(self.etcd.close)

    def started(self, **kw):
        c = self.cluster(server_args=["--store", f"etcd://{self.etcd.address}"], **kw)
        c.store = f"etcd://{self.etcd.address}"
        return c

    def standby(self, c):
        """Another server on the same store, which will listen at the same addresses once it leads."""
        argv = [BERTH, "server", "--data", os.path.join(c.dir, "standby"), "--http", c.listen, "--grpc", c.grpc_listen, *c.server_args]
        return Process("standby", argv, c.env, os.path.join(c.dir, "standby.log"))

    # R: C1 A4
    def test_an_operator_reads_the_state_with_etcdctl(self):
        c = self.started(nodes=1)
        c.apply("hello", command=["sleep", "100000"])
        c.wait_phase("hello", "Running")
        keys = self.etcd.get("/")
        record = json.loads(keys["/workloads/hello"])
        self.assertEqual((record["id"], record["desired_state"], record["assigned_node"]), ("hello", "Running", "node-1"))
        self.assertEqual(record["status"]["actual_state"], "Running")
        self.assertEqual(json.loads(keys["/assignments/hello"])["node_id"], "node-1")
        self.assertEqual(keys["/nodes/node-1/status"], "Ready")
        self.assertEqual(int(keys["/meta/head"]), c.head())
        self.assertEqual(json.loads(keys["/events/" + keys["/meta/head"].zfill(20)])["seq"], c.head())

    # R: C33 A5
    def test_a_standby_takes_over_and_nothing_acknowledged_is_lost(self):
        c = self.started(nodes=2)
        for i in range(20):
            c.apply(f"w{i}", command=["sleep", "100000"])
        for i in range(20):
            c.wait_phase(f"w{i}", "Running")
        pids = {w["id"]: w["metadata"].get("last_launch_at") for w in c.workloads()}
        second = self.standby(c)
        first = c.server
        c.kill_server()
        began = time.monotonic()
        while True:
            try:
                if c.api.get("/v1/cluster").status == 200:
                    break
            except Gone:
                time.sleep(0.02)
            self.assertLess(time.monotonic() - began, 60, c.tail("standby"))
        note(f"another server answers {time.monotonic() - began:.1f} s after kill -9 of the leader (its lease: 5 s)")
        self.assertFalse(first.alive())
        c.server = second
        c.wait_nodes_ready(2)
        self.assertEqual({w["id"]: w["metadata"].get("last_launch_at") for w in c.workloads()}, pids)  # nothing was started anew
        c.apply("after", command=["sleep", "100000"])
        c.wait_phase("after", "Running")

    # R: C33
    def test_a_paused_leader_can_write_nothing_once_another_leads(self):
        c = self.started(nodes=1)
        c.apply("before", command=["sleep", "100000"])
        c.wait_phase("before", "Running")
        first = c.server
        first.signal(signal.SIGSTOP)
        c.listen = c.grpc_listen = "127.0.0.1:0"  # the stopped one still holds its ports
        second = self.standby(c)
        deadline = time.monotonic() + 60
        path = os.path.join(c.dir, "standby", "server.address")
        while not os.path.exists(path):
            self.assertLess(time.monotonic(), deadline, c.tail("standby"))
            self.assertTrue(second.alive(), c.tail("standby"))
            time.sleep(0.05)
        leader = json.loads(self.etcd.get("/meta/leader")["/meta/leader"])
        self.assertIn(f"pid {second.pid}", leader["process"])
        first.signal(signal.SIGCONT)
        with self.assertRaises((Gone, AssertionError)):
            for _ in range(50):
                a = c.api.call("PUT", "/v1/workloads/lost", c.manifest("lost", command=["sleep", "1"]))
                self.assertNotIn(a.status, (200, 201), "a leader that was replaced acknowledged a write")
                if not first.alive():
                    raise Gone("it ended, as it should")
                time.sleep(0.1)
        self.assertNotIn("/workloads/lost", self.etcd.get("/workloads/"))
        second.stop()
        c.leftovers_allowed = True
        c.server = None

    # R: C35
    def test_etcd_away_for_a_while(self):
        c = self.started(nodes=1)
        c.apply("stays", command=["sleep", "100000"])
        c.wait_phase("stays", "Running")
        self.etcd.kill()
        a = c.api.call("PUT", "/v1/workloads/new", c.manifest("new", command=["sleep", "100000"]))
        self.assertEqual(a.status, 503, a)
        self.assertEqual(c.api.get("/v1/workloads/stays").status, 200)  # reads go on
        self.etcd.start()
        deadline = time.monotonic() + 60
        while c.api.call("PUT", "/v1/workloads/new", c.manifest("new", command=["sleep", "100000"])).status not in (200, 201):
            self.assertLess(time.monotonic(), deadline, c.tail("server"))
            time.sleep(0.1)
        c.wait_phase("new", "Running")

    # R: A4 A10
    def test_a_store_moves_to_etcd_and_back(self):
        c = self.cluster(nodes=1)
        c.apply("kept", command=["sleep", "100000"])
        c.wait_phase("kept", "Running")
        launched = c.workload("kept")["metadata"]["last_launch_at"]
        c.server.stop()
        there, back = f"etcd://{self.etcd.address}/moved", os.path.join(c.dir, "back.db")
        self.assertEqual(c.cli("migrate-store", os.path.join(c.data, "berth.db"), there, server=False).code, 0)
        c.start_server(args=["--store", there])
        c.wait_nodes_ready(1)
        self.assertEqual(c.workload("kept")["metadata"]["last_launch_at"], launched)
        c.server.stop()
        self.assertEqual(c.cli("fsck", "--store", there, server=False).code, 0)
        self.assertEqual(c.cli("migrate-store", there, back, server=False).code, 0)
        self.assertNotEqual(c.cli("migrate-store", there, back, server=False).code, 0)  # not empty any more
        c.start_server(args=["--store", back])
        c.wait_nodes_ready(1)
        self.assertEqual(c.workload("kept")["metadata"]["last_launch_at"], launched)
