"""The disk is full: nothing can be written, everything can be looked at."""
import contextlib
import gzip
import os
import resource
import shutil
import subprocess
import sys
import time

from berthtest import BERTH, ROOT, Api, Case, Process, only_embedded


@only_embedded("it is about the disk below berth.db; test_etcd.py stops etcd instead")
class StoreAway(Case):
    # R: C35 A11
    def test_a_full_disk_refuses_changes_fast_and_answers_reads(self):
        c = self.cluster(nodes=2)
        for i in range(4):
            c.apply(f"w{i}")
        for i in range(4):
            c.wait_phase(f"w{i}", "Running")
        head = c.head()
        _, hard = resource.prlimit(c.server.pid, resource.RLIMIT_FSIZE, (1, -1))
        try:
            for name in ("first", "second"):  # the first one finds out, the second one is refused at once
                began = time.monotonic()
                answer = c.api.call("PUT", f"/v1/workloads/{name}", c.manifest(name))
                took = time.monotonic() - began
                self.assertEqual(answer.status, 503, answer)
                self.assertTrue(answer.headers.get("Retry-After"), answer)
                self.assertLess(took, 8, "long before the deadline of 10 s, on a slow machine too")
            self.assertEqual(c.api.get("/v1/health").json["status"], "degraded")
            self.assertEqual(len(c.workloads()), 4)
            self.assertEqual(len(c.nodes()), 2)
            self.assertEqual(c.workload("w0")["status"]["phase"], "Running")
            self.assertIsNone(c.workload("second"))
            self.assertEqual(c.api.get("/v1/workloads").json["resource_version"], head)
            self.assertIn("least utilised", c.api.get("/v1/workloads/w0/explain").json["summary"])
            self.assertIn("w3", c.ok("get", "workloads").out)
            self.assertIn("w1 is Running", c.ok("explain", "w1").out)
            r = c.cli("stop", "w0")
            self.assertEqual(r.code, 6, r)
        finally:
            resource.prlimit(c.server.pid, resource.RLIMIT_FSIZE, (hard, hard))
        c.wait_for("the store to be back", lambda: c.api.get("/v1/health").json["status"] == "ok")
        c.apply("after")
        c.wait_phase("after", "Running")
        self.assertIsNone(c.workload("second"), "what was refused does not happen later")

    # R: C35 A5 (B2: it did not start again, for want of room for server.address)
    def test_a_server_killed_on_a_full_disk_starts_and_serves_reads(self):
        if os.geteuid() != 0:
            self.skipTest("a file system of a few megabytes needs root")
        c = self.cluster(server=False)
        os.mkdir(c.data)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", c.data], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", c.data])
        c.start_server()
        c.apply("before")
        full = os.path.join(c.data, "fill")
        address = os.path.join(c.data, "server.address")
        c.kill_server()
        os.unlink(address)
        with open(full, "wb", buffering=0) as f, contextlib.suppress(OSError):
            while True:
                f.write(bytes(4096))
        c.server = Process("server", [BERTH, "server", "--data", c.data, "--http", c.listen, "--grpc", c.grpc_listen, *c.server_args], c.env,
                           os.path.join(c.dir, "server.log"))
        c.api.close()

        def health():
            self.assertTrue(c.server.alive(), c.tail("server"))
            with contextlib.suppress(OSError):
                return c.api.get("/v1/health").json
        said = c.wait_for("a server that answers", health)
        self.assertIn("server.address", said["warning"])
        self.assertIn("No space left", said["warning"])
        self.assertFalse(os.path.exists(address))
        self.assertEqual([w["id"] for w in c.workloads()], ["before"])
        self.assertEqual(c.api.call("PUT", "/v1/workloads/after", c.manifest("after")).status, 503)
        self.assertEqual(c.api.get("/v1/health").json["status"], "degraded")
        os.unlink(full)
        c.wait_for("the address", lambda: os.path.exists(address))
        c.wait_for("room again", lambda: c.api.get("/v1/health").json["status"] == "ok")
        self.assertNotIn("warning", c.api.get("/v1/health").json)
        c.apply("after")
        c.server.stop()

    # A killed program leaves its log, with something in it.
    KILLED = "import os, sqlite3, sys; db = sqlite3.connect(sys.argv[1], isolation_level=None); db.execute('pragma user_version = 1'); os._exit(0)"

    # The version before made no key; there is no room for one until there is room for anything. R: C35 A5 A13
    def test_an_upgrade_on_a_full_disk_serves_reads_and_makes_the_key_when_there_is_room(self):
        if os.geteuid() != 0:
            self.skipTest("a file system of a few megabytes needs root")
        c = self.cluster(server=False)
        os.mkdir(c.data)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", c.data], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", c.data])
        store, key, full = (os.path.join(c.data, n) for n in ("berth.db", "cluster.key", "fill"))
        with gzip.open(os.path.join(ROOT, "tests", "fixtures", "schema-1", "berth.db.gz")) as f, open(store, "wb") as out:
            shutil.copyfileobj(f, out)
        subprocess.run([sys.executable, "-c", self.KILLED, store], check=True)
        self.assertGreater(os.path.getsize(store + "-wal"), 0)
        with open(full, "wb", buffering=0) as f, contextlib.suppress(OSError):
            while True:
                f.write(bytes(4096))
        c.listen = c.grpc_listen = "127.0.0.1:0"
        log = os.path.join(c.dir, "server.log")

        def start():
            c.server = Process("server", [BERTH, "server", "--data", c.data, "--http", c.listen, "--grpc", c.grpc_listen, *c.server_args], c.env, log)
        start()

        def serving():
            self.assertTrue(c.server.alive(), c.tail("server"))
            lines = [line for line in c.tail("server", 100).splitlines() if "msg=serving" in line]
            return lines and dict(word.split("=", 1) for word in lines[-1].split() if "=" in word)["http"]
        c.address = c.wait_for("a server that serves", serving)
        c.api = Api(c.address)

        def degraded():
            said = c.api.get("/v1/health").json
            return said if said["status"] == "degraded" and "cluster.key" in said.get("reason", "") else None
        self.assertIn("No space left", c.wait_for("the reason", degraded)["reason"])
        self.assertFalse(os.path.exists(key))
        self.assertIn("service", [w["id"] for w in c.workloads()])
        self.assertEqual(c.api.call("PUT", "/v1/workloads/after", c.manifest("after")).status, 503)
        # nothing of it is on record: another start finds the same
        c.kill_server()
        c.want_tokens()  # nor is there room for the first one
        start()
        c.wait_for("a server that serves", lambda: serving() if c.tail("server", 100).count("msg=serving") > 1 else None)
        c.address = serving()
        c.api = Api(c.address)
        c.wait_for("the reason", degraded)
        token = os.path.join(c.data, "admin.token")
        self.assertFalse(os.path.exists(token))
        os.unlink(full)
        c.wait_for("room again", lambda: c.api.get("/v1/health").json["status"] == "ok")
        c.wait_for("the first token", lambda: os.path.exists(token))
        with open(token) as f:
            c.api.token = c.token = f.read().strip()
        c.wait_for("it to be on record", lambda: c.api.get("/v1/nodes").status == 200)
        self.assertEqual(os.stat(key).st_mode & 0o777, 0o600)
        self.assertIn(f"fingerprint {c.info()['key_fingerprint']}", c.ok("key", "show", "--data", c.data, server=False).out)
        self.assertEqual(len(c.events(type="ClusterKeyChanged")), 1)
        c.apply("after")
        c.server.stop()

    # R: C29 (B3: the file stayed at its peak)
    def test_space_of_what_is_gone_is_given_back(self):
        c = self.cluster(server_args=["--keep-events", "100"])
        big = {"FILL": "x" * 60000}
        for i in range(300):
            c.apply(f"w{i}", env=big)
        database = os.path.join(c.data, "berth.db")

        def size():
            return sum(os.path.getsize(p) for p in (database, database + "-wal") if os.path.exists(p))
        peak = size()
        self.assertGreater(peak, 30 << 20)
        for i in range(300):
            self.assertEqual(c.api.call("DELETE", f"/v1/workloads/w{i}").status, 200)
        c.wait_for("a file without the records that are gone", lambda: os.path.getsize(database) < peak // 3, timeout=120)
        c.apply("after")
        self.assertEqual([w["id"] for w in c.workloads()], ["after"])
        c.server.stop()
        c.fsck()
