"""Stores and agents' directories that earlier versions wrote (tests/fixtures) open with the berth of today; newer ones are refused with a sentence (A10)."""
import base64
import contextlib
import gzip
import json
import os
import shutil
import sqlite3
import unittest
import urllib.request

import etcd
from berthtest import ROOT, Case, only_embedded

FIXTURES = os.path.join(ROOT, "tests", "fixtures")
SCHEMAS = sorted(d for d in os.listdir(FIXTURES) if d.startswith("schema-"))


def path(schema, *names):
    return os.path.join(FIXTURES, schema, *names)


class Fixtures:
    def check(self, c, schema, kind):
        """What is in it, and that a server, an agent of that time and users go on with it."""
        with open(path(schema, "expected.json")) as f:
            expected = json.load(f)[kind]
        fsck = c.ok("fsck", "--store", c.store, server=False)
        self.assertIn("no problems", fsck.out)
        c.start_server()
        self.assertEqual(c.info()["cluster_id"], expected["cluster_id"])
        self.assertGreaterEqual(c.head(), expected["head"])
        shown = {w["id"]: w for w in c.workloads()}
        self.assertEqual(sorted(shown), sorted(expected["workloads"]))
        for name, want in expected["workloads"].items():
            for field in ("revision_id", "desired_state", "assigned_node"):
                self.assertEqual(shown[name].get(field, ""), want[field], (name, field))
            if want["phase"] not in ("Running",):  # its node is silent until its agent comes
                self.assertEqual(shown[name]["status"]["phase"], want["phase"], name)
        self.assertEqual(sorted(n["id"] for n in c.nodes()), expected["nodes"])
        self.assertEqual(c.api.get("/v1/quotas/a").json["workloads"], 10)
        self.assertTrue(any(t["key"] == "dedicated" for t in c.node("node-2")["taints"]))

    def go_on(self, c):
        c.start_agent("node-1")
        c.start_agent("node-2")
        c.wait_nodes_ready(2)
        c.wait_phase("service", "Running")
        c.wait_phase("busy", "Running")
        c.apply("service", env={"CHANGED": "1"})
        c.wait_phase("service", "Running")
        c.apply("new")
        c.wait_phase("new", "Running")
        c.server.stop()
        self.assertIn("no problems", c.ok("fsck", "--store", c.store, server=False).out)
        c.start_server()
        c.wait_phase("new", "Running")

    def assert_refused(self, c):
        for argv in (["fsck", "--store", c.store], ["server", "--data", c.data, "--store", c.store, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"]):
            r = c.cli(*argv, server=False)
            self.assertEqual(r.code, 5, r)
            said = r.out + r.err
            self.assertIn("the store was written by a newer berth", said)
            self.assertIn("upgrade this server, or restore a backup", said)


@only_embedded("it is about the file berth.db; OnEtcd has the other one")
class OnEmbedded(Fixtures, Case):
    def unpacked(self, schema):
        c = self.cluster(server=False, heartbeat="300ms")
        os.makedirs(c.data)
        c.store = os.path.join(c.data, "berth.db")
        with gzip.open(path(schema, "berth.db.gz")) as f, open(c.store, "wb") as out:
            shutil.copyfileobj(f, out)
        return c

    # R: A10
    def test_an_embedded_store_and_an_agent_of_each_released_schema(self):
        for schema in SCHEMAS:
            c = self.unpacked(schema)
            self.check(c, schema, "sqlite")
            shutil.copytree(path(schema, "agent"), os.path.join(c.dir, "node-1"))  # it belongs to this store's cluster
            self.go_on(c)
            self.assertIn("units=3", c.tail("node-1"))

    # R: A10
    def test_a_newer_embedded_store_is_refused_with_a_sentence(self):
        c = self.unpacked(SCHEMAS[-1])
        with contextlib.closing(sqlite3.connect(c.store)) as db:
            db.execute("pragma user_version = 1000")
            db.commit()
        self.assert_refused(c)
        c.store = None


@unittest.skipUnless(etcd.is_installed(), "etcd is not installed (Debian: etcd-server, etcd-client)")
class OnEtcd(Fixtures, Case):
    def put(self, key, value):
        body = json.dumps({"key": key, "value": value}).encode()
        urllib.request.urlopen(urllib.request.Request(f"http://{self.etcd.address}/v3/kv/put", data=body), timeout=60).read()

    def unpacked(self, schema):
        self.etcd = etcd.Etcd()
        self.addCleanup(self.etcd.close)
        with gzip.open(path(schema, "etcd.json.gz")) as f:
            for key, value in json.load(f):
                self.put(key, value)
        c = self.cluster(server=False, heartbeat="300ms")
        c.store = f"etcd://{self.etcd.address}"
        return c

    # R: A10
    def test_a_store_in_etcd_of_each_released_schema(self):
        for schema in SCHEMAS:
            c = self.unpacked(schema)
            self.check(c, schema, "etcd")
            self.go_on(c)

    # R: A10
    def test_a_newer_store_in_etcd_is_refused_with_a_sentence(self):
        c = self.unpacked(SCHEMAS[-1])
        self.put(base64.b64encode(b"/meta/schema").decode(), base64.b64encode(b"1000").decode())
        self.assert_refused(c)
        c.store = None
