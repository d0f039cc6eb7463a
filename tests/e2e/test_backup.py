"""Backups: made while the server works, checked, restored into either store; whatever agents run meanwhile is never touched (A5, C34)."""
import hashlib
import json
import os
import re
import subprocess
import threading
import unittest

import etcd
from berthtest import BERTH, Case, Gone, alive, note, only_embedded


def lines(path):
    try:
        with open(path) as f:
            return f.read().split()
    except FileNotFoundError:
        return []


class Backups:
    """What holds on both kinds of store; store() and elsewhere() name two of a kind."""

    def started(self, nodes=0, server_args=()):
        c = self.cluster(server=False, heartbeat="300ms", server_args=server_args)
        self.start_on(c, self.store(c))
        for i in range(nodes):
            c.start_agent(f"node-{i + 1}")
        c.wait_nodes_ready(nodes)
        return c

    def key(self, c):
        """The cluster's key, which no backup has."""
        return ["--key", os.path.join(c.data, "cluster.key")]

    def start_on(self, c, store):
        c.store = store
        c.start_server()

    def run_unit(self, c, name, **kw):
        """A workload whose process writes its pid; each start adds one."""
        path = os.path.join(c.dir, name + ".pids")
        before = len(lines(path))
        c.apply(name, command=["sh", "-c", f"echo $$ >> {path}; exec sleep 100000"], **kw)
        c.wait_for(f"{name} to start", lambda: len(lines(path)) > before)
        c.wait_phase(name, "Running")
        return [int(p) for p in lines(path)]

    def pids(self, c, *names):
        return {n: [int(p) for p in lines(os.path.join(c.dir, n + ".pids"))] for n in names}

    def backup(self, c, name="it.backup"):
        path = os.path.join(c.dir, name)
        r = c.ok("backup", "--store", self.store(c), path, server=False)
        self.assertRegex(r.out, r"cluster [0-9a-f]{16}, epoch \d+, head \d+, schema 1; ")
        return path

    # R: A5 C34 C27
    def test_what_came_after_the_backup_runs_on_and_is_offered(self):
        c = self.started(nodes=2)
        for i in range(4):
            self.run_unit(c, f"before{i}")
        file = self.backup(c)  # the server runs
        for i in range(3):
            self.run_unit(c, f"after{i}")
        names = [f"before{i}" for i in range(4)] + [f"after{i}" for i in range(3)]
        pids = self.pids(c, *names)
        old = {w["id"]: w for w in c.workloads()}
        epoch = c.info()["epoch"]
        c.kill_server()

        refused = c.cli("restore", file, "--store", self.store(c), *self.key(c), server=False)
        self.assertNotEqual(refused.code, 0)
        self.assertIn("--force", refused.err)
        r = c.ok("restore", file, "--store", self.elsewhere(c), *self.key(c), server=False)
        self.assertIn("nothing that they run is stopped", r.out)
        self.start_on(c, self.elsewhere(c))
        c.wait_nodes_ready(2)
        self.assertGreater(c.info()["epoch"], epoch)
        c.wait_for("all three to be told of", lambda: sorted(sum((n.get("strangers", []) for n in c.nodes()), [])) == names[4:])
        self.assertEqual(sorted(w["id"] for w in c.workloads()), names[:4])
        self.assertEqual(self.pids(c, *names), pids, "nothing was started or stopped")
        self.assertTrue(all(alive(p[-1]) for p in pids.values()))

        for node in ("node-1", "node-2"):
            c.ok("adopt", node)
        c.wait_for("all to be adopted", lambda: len(c.workloads()) == 7)
        for name in names:
            w = c.wait_phase(name, "Running")
            for field in ("spec", "revision_id", "assigned_node", "token"):
                self.assertEqual(w.get(field), old[name].get(field), (name, field))
        self.assertEqual(self.pids(c, *names), pids)
        # Tokens stay monotonic: a new launch beats whatever an agent has seen.
        again = self.run_unit(c, "after0", labels={"again": "yes"}, env={"again": "1"})
        self.assertEqual(len(again), 2)
        self.assertGreater(c.workload("after0")["token"]["epoch"], old["after0"]["token"]["epoch"])
        c.ok("delete", "before0", "--wait")
        c.wait_for("its end", lambda: not alive(pids["before0"][-1]))
        self.assertEqual(c.events()[-1]["seq"], c.head())
        self.assertEqual([e["type"] for e in c.events()].count("StoreRestored"), 1)

    # R: A5 C34
    def test_records_follow_what_changed_moved_or_was_started_since(self):
        c = self.started(nodes=2)
        names = ["changed", "moved", "stopped", "same", "deleted"]
        for name in names:
            self.run_unit(c, name)
        c.ok("stop", "stopped")
        c.wait_phase("stopped", "Stopped")
        file = self.backup(c)
        self.run_unit(c, "changed", env={"REVISION": "2"})
        c.ok("start", "stopped")
        c.wait_phase("stopped", "Running")
        was_on = c.workload("moved")["assigned_node"]
        c.ok("drain", was_on, "--wait")
        c.ok("uncordon", was_on)
        c.ok("delete", "deleted", "--wait")
        for name in names[:4]:
            c.wait_phase(name, "Running")
        self.assertNotEqual(c.workload("moved")["assigned_node"], was_on)
        old = {w["id"]: w for w in c.workloads()}
        pids = self.pids(c, *names)
        c.kill_server()
        c.ok("restore", file, "--store", self.store(c), "--force", *self.key(c), server=False)
        self.start_on(c, self.store(c))
        c.wait_nodes_ready(2)
        for name in names[:4]:
            w = c.wait_for(f"{name} to be as it runs", lambda n=name: (lambda w: w if w["token"] == old[n]["token"] else None)(c.workload(n)))
            for field in ("spec", "revision_id", "assigned_node", "desired_state"):
                self.assertEqual(w.get(field), old[name].get(field), (name, field))
            c.wait_phase(name, "Running")
        self.assertEqual(self.pids(c, *names[:4]), {n: pids[n] for n in names[:4]}, "nothing was started or stopped")
        self.assertTrue(all(alive(pids[n][-1]) for n in names[:4]))
        c.wait_for("what was deleted to be back", lambda: len(self.pids(c, "deleted")["deleted"]) == 2)  # the backup knows it
        c.ok("delete", "moved", "changed", "--wait")
        c.wait_for("their end", lambda: not alive(pids["moved"][-1]) and not alive(pids["changed"][-1]))

    # R: A5
    def test_a_restored_server_goes_on_where_nothing_happened_since(self):
        c = self.started(nodes=1)
        pids = self.run_unit(c, "kept")
        file = self.backup(c)
        c.kill_server()
        r = c.ok("restore", file, "--store", self.store(c), "--force", *self.key(c), server=False)
        self.assertRegex(r.out, r"what was there is kept as \S*before-")
        self.start_on(c, self.store(c))
        c.wait_nodes_ready(1)
        c.wait_phase("kept", "Running")
        self.assertEqual(self.pids(c, "kept"), {"kept": pids})
        c.restart_server("stop")
        c.wait_nodes_ready(1)
        self.assertEqual(self.pids(c, "kept"), {"kept": pids})

    # R: A5 C29
    def test_who_follows_events_is_told_that_the_store_was_put_back(self):
        c = self.started(nodes=1)
        c.apply("kept")
        file = self.backup(c)
        for i in range(5):
            c.apply(f"lost{i}", node_selector={"no": "where"})
        p = subprocess.Popen([BERTH, "events", "--follow", "--since", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={**c.env, "BERTH_SERVER": c.grpc_address})
        self.addCleanup(p.kill)
        next(line for line in p.stdout if "lost4" in line)
        c.kill_server()
        c.ok("restore", file, "--store", self.store(c), "--force", *self.key(c), server=False)
        self.start_on(c, self.store(c))
        next(line for line in p.stderr if "the store was put back to an earlier state" in line)
        c.apply("new")
        next(line for line in p.stdout if "new" in line)
        p.kill()
        p.communicate()

    # R: A5 A3
    def test_backups_under_load_are_consistent(self):
        c = self.started(nodes=1, server_args=["--keep-events", "200"])
        stop = threading.Event()

        def load(k):
            api = c.api.fork()
            i = 0
            while not stop.is_set():
                i += 1
                try:
                    api.call("PUT", f"/v1/workloads/load{k}-{i % 40}", c.manifest(f"load{k}-{i % 40}", env={"N": str(i)}, node_selector={"no": "node"}))
                    if i % 7 == 0:
                        api.call("DELETE", f"/v1/workloads/load{k}-{(i + 20) % 40}")
                except Gone:
                    pass
        threads = [threading.Thread(target=load, args=(k,)) for k in range(3)]
        for t in threads:
            t.start()
        heads = []
        try:
            c.wait_for("some events", lambda: c.head() > 300)
            for i in range(4):
                file = self.backup(c, f"{i}.backup")
                out = c.ok("backup", "--verify", file, server=False).out
                self.assertIn("no problems", out)
                self.assertIn("no problems", c.ok("fsck", "--store", "backup:" + file, server=False).out)
                heads.append(int(re.search(r"head (\d+)", out).group(1)))
                c.wait_for("more events", lambda: c.head() > heads[-1] + 20)
        finally:
            stop.set()
            for t in threads:
                t.join()
        self.assertEqual(heads, sorted(set(heads)))
        note(f"4 backups under load, heads {heads}; each one is what its events say")
        with open(file, "r+b") as f:
            f.truncate(os.path.getsize(file) - 1000)
        r = c.cli("backup", "--verify", file, server=False)
        self.assertNotEqual(r.code, 0)
        self.assertIn("hint", r.err)


@only_embedded("it names the file berth.db; OnEtcd does the same there")
class OnEmbedded(Backups, Case):
    def store(self, c):
        return os.path.join(c.data, "berth.db")

    def elsewhere(self, c):
        return os.path.join(c.dir, "elsewhere", "berth.db")

    # R: A9 C35
    def test_a_backup_without_its_clusters_record_is_refused_and_changes_nothing(self):
        c = self.cluster(server=False)
        self.start_on(c, self.store(c))
        self.assertEqual(c.server.stop(), 0)
        with open(self.store(c), "rb") as f:
            before = f.read()
        part = lambda kind, data: kind + len(data).to_bytes(4, "little") + data
        whole = b"berth backup 1\n" + part(b"H", b"\x08\x01\x32\x06sqlite") + part(b"Z", b"\x22\x10" + b"c" * 16)  # schema, store; cluster
        path = os.path.join(c.dir, "odd.backup")
        with open(path, "wb") as f:
            f.write(whole + hashlib.sha256(whole).digest())
        for args in ([], ["--force"]):
            r = c.cli("restore", path, "--store", self.store(c) if args else self.elsewhere(c), *args, *self.key(c), server=False)
            self.assertNotEqual(r.code, 0, r.out)
            self.assertIn("no record of its cluster", r.err)
            self.assertIn("hint", r.err)
        with open(self.store(c), "rb") as f:
            self.assertEqual(f.read(), before)
        c.start_server()


@unittest.skipUnless(etcd.is_installed(), "etcd is not installed (Debian: etcd-server, etcd-client)")
class OnEtcd(Backups, Case):
    def setUp(self):
        super().setUp()
        self.etcd = etcd.Etcd()
        self.addCleanup(self.etcd.close)

    def store(self, c):
        return f"etcd://{self.etcd.address}/one"

    def elsewhere(self, c):
        return f"etcd://{self.etcd.address}/two"

    # R: A5
    def test_a_backup_of_one_kind_goes_into_a_store_of_the_other(self):
        c = self.started(nodes=1)
        pids = self.run_unit(c, "kept")
        file = self.backup(c)
        c.kill_server()
        c.ok("restore", file, "--store", os.path.join(c.data, "berth.db"), *self.key(c), server=False)
        self.start_on(c, os.path.join(c.data, "berth.db"))
        c.wait_nodes_ready(1)
        c.wait_phase("kept", "Running")
        self.assertEqual(self.pids(c, "kept"), {"kept": pids})
        r = c.ok("backup", "--data", c.data, file, server=False)
        self.assertIn("of a store in sqlite", r.out)
        events = c.events()
        c.kill_server()
        c.ok("restore", file, "--store", self.store(c), "--force", *self.key(c), server=False)
        self.start_on(c, self.store(c))
        c.wait_nodes_ready(1)
        self.assertEqual(c.events()[:len(events)], events)
        self.assertEqual(self.pids(c, "kept"), {"kept": pids})
        self.assertTrue(json.loads(self.etcd.get("/one/meta/cluster")["/one/meta/cluster"])["epoch"])
