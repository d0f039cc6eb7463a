"""The cluster's key (A13; issue 5, A2): who has it, who leads without it (nobody), what it proves after a restore, and that it is nowhere but in its file."""
import json
import os
import shutil
import time
import unittest

import etcd
from berthtest import Case, alive, only_embedded
from test_backup import lines
from test_replicas import Replica


class Key(Case):
    def fingerprint(self, c, data=None):
        out = c.ok("key", "show", "--data", data or c.data, server=False).out
        return out.split("fingerprint ")[1].split()[0]

    def file(self, c):
        return os.path.join(c.data, "cluster.key")

    def secret(self, c):
        with open(self.file(c)) as f:
            return [line.split()[1] for line in f if line.startswith("key ")][0]

    def run_unit(self, c, name):
        path = os.path.join(c.dir, name + ".pids")
        c.apply(name, command=["sh", "-c", f"echo $$ >> {path}; exec sleep 100000"])
        c.wait_phase(name, "Running")
        return path


@only_embedded("the files of one server")
class File(Key):
    # R: A13
    def test_a2_the_first_start_makes_the_key_and_it_is_nowhere_else(self):
        c = self.cluster(nodes=1)
        self.assertEqual(os.stat(self.file(c)).st_mode & 0o777, 0o600)
        self.assertEqual(c.info()["key_fingerprint"], self.fingerprint(c))
        self.run_unit(c, "w")
        backup = os.path.join(c.dir, "it.backup")
        c.ok("backup", "--data", c.data, backup, server=False)
        c.kill_server()
        secret = self.secret(c)
        for directory, _, names in os.walk(c.dir):
            for name in names:
                path = os.path.join(directory, name)
                if path != self.file(c) and os.path.isfile(path):
                    with open(path, "rb") as f:
                        data = f.read()
                    self.assertNotIn(secret.encode(), data, path)
                    self.assertNotIn(bytes.fromhex(secret), data, path)
        c.start_server()
        self.assertEqual(len(lines(os.path.join(c.dir, "w.pids"))), 1)

    # R: A13
    def test_a2_a_server_without_the_clusters_key_does_not_start_and_says_why(self):
        c = self.cluster()
        mine, kept = self.fingerprint(c), os.path.join(c.dir, "kept.key")
        c.kill_server()
        os.rename(self.file(c), kept)

        def refused(*words):
            r = c.cli("server", "--data", c.data, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", server=False)
            self.assertNotEqual(r.code, 0)
            for w in words:
                self.assertIn(w, r.err)
        refused("cluster.key is missing", mine, "berth key new --replaces")
        self.assertFalse(os.path.exists(self.file(c)), "no other key is made for a cluster that has one")
        c.ok("key", "new", "--data", c.data, server=False)
        refused("is not the key of this cluster", mine, self.fingerprint(c))
        os.unlink(self.file(c))
        shutil.copy(kept, self.file(c))
        os.chmod(self.file(c), 0o644)
        refused("must belong to this server", "chmod 600")
        os.chmod(self.file(c), 0o600)
        c.start_server()
        # It is lost for good: an operator says so, by its fingerprint.
        c.kill_server()
        os.unlink(self.file(c))
        c.ok("key", "new", "--data", c.data, "--replaces", mine, server=False)
        c.start_server()
        self.assertEqual(c.info()["key_fingerprint"], self.fingerprint(c))
        self.assertNotEqual(self.fingerprint(c), mine)
        self.assertEqual(len(c.events(type="ClusterKeyChanged")), 1)

    def behind(self, c, *args):
        """A backup; then a unit is changed; then the backup is restored with these arguments. What the agent runs is newer than the record."""
        c.start_agent("node-1")
        c.wait_nodes_ready(1)
        pids = self.run_unit(c, "w")
        file = os.path.join(c.dir, "it.backup")
        c.ok("backup", "--data", c.data, file, server=False)
        if "rotated" in args:
            c.kill_server()
            c.ok("key", "rotate", "--data", c.data, server=False)
            c.start_server()
            c.wait_for("the node", lambda: c.node("node-1").get("connected"))
        self.apply_again(c, pids)
        self.newer = c.workload("w")
        c.kill_server()
        return file, pids

    def apply_again(self, c, pids):
        n = len(lines(pids))
        c.apply("w", command=["sh", "-c", f"echo $$ >> {pids}; exec sleep 100000"], env={"REVISION": "2"})
        c.wait_for("the new one", lambda: len(lines(pids)) > n)
        c.wait_phase("w", "Running")

    # R: A13 A5
    def test_a2_restore_asks_for_the_key_and_what_it_proves_is_adopted_by_itself(self):
        c = self.cluster()
        file, pids = self.behind(c)
        there = os.path.join(c.dir, "there")
        r = c.cli("restore", file, "--data", there, server=False)
        self.assertNotEqual(r.code, 0)
        self.assertIn("the cluster's key is needed", r.err)
        self.assertIn("--without-key", r.err)
        self.assertFalse(os.path.exists(os.path.join(there, "berth.db")))
        other = os.path.join(c.dir, "other")
        c.ok("key", "new", "--data", other, server=False)
        r = c.cli("restore", file, "--data", there, "--key", os.path.join(other, "cluster.key"), server=False)
        self.assertIn("not the key of the cluster in the backup", r.err)
        c.ok("restore", file, "--data", there, "--key", self.file(c), server=False)
        self.assertEqual(os.stat(os.path.join(there, "cluster.key")).st_mode & 0o777, 0o600)
        c.data = there
        c.start_server()
        c.wait_for("the record to follow", lambda: c.workload("w")["token"] == self.newer["token"])
        self.assertEqual(c.workload("w")["revision_id"], self.newer["revision_id"])
        self.assertEqual(len(lines(pids)), 2, "nothing was restarted")
        self.assertEqual(c.events(type="ClaimRefused"), [])

    # R: A13
    def test_a2_without_the_key_only_an_operators_word_adopts(self):
        c = self.cluster()
        file, pids = self.behind(c)
        os.unlink(self.file(c))
        r = c.ok("restore", file, "--data", c.data, "--force", "--without-key", server=False)
        self.assertIn("berth adopt", r.out)
        c.start_server()
        c.wait_for("the claim to be told", lambda: c.events(type="ClaimRefused"))
        self.assertNotEqual(c.workload("w")["revision_id"], self.newer["revision_id"])
        self.assertEqual(c.node("node-1")["strangers"], ["w"])
        c.ok("adopt", "node-1")
        self.assertEqual(c.workload("w")["revision_id"], self.newer["revision_id"])
        self.assertEqual(len(lines(pids)), 2, "nothing was restarted")
        self.assertTrue(alive(int(lines(pids)[-1])))
        # From then on it has a warrant of the new key, by a plan that brought nothing else: the next restore adopts it by itself.
        self.assertEqual(c.info()["key_fingerprint"], self.fingerprint(c))
        told = len(c.events(type="ClaimRefused"))
        self.assertEqual(told, 1)
        c.kill_server()
        c.ok("restore", file, "--data", c.data, "--force", "--without-key", server=False)
        c.start_server()
        c.wait_for("the record to follow", lambda: c.workload("w")["token"] == self.newer["token"])
        self.assertEqual(c.events(type="ClaimRefused"), [])
        self.assertEqual(len(lines(pids)), 2, "nothing was restarted")

    # R: A13: a unit with a warrant of the key before a rotation
    def test_a2_the_key_before_is_still_accepted_after_a_rotation(self):
        c = self.cluster()
        before = self.fingerprint(c)
        file, pids = self.behind(c)
        c.ok("key", "rotate", "--data", c.data, server=False)
        self.assertNotEqual(self.fingerprint(c), before)
        c.ok("restore", file, "--data", c.data, "--force", server=False)
        c.start_server()
        c.wait_for("the record to follow", lambda: c.workload("w")["token"] == self.newer["token"])
        self.assertEqual(len(lines(pids)), 2, "nothing was restarted")
        self.assertEqual(c.info()["key_fingerprint"], self.fingerprint(c))


@unittest.skipUnless(etcd.is_installed(), "etcd is not installed (Debian: etcd-server, etcd-client)")
class Servers(Key):
    # R: A13 C33
    def test_a2_a_replica_without_the_key_does_not_lead_says_so_and_leads_once_it_has_it(self):
        member = etcd.Etcd()
        self.addCleanup(member.close)
        c = self.cluster(server=False)
        c.store = f"etcd://{member.address}"
        first = Replica(c, 1, c.store)
        self.assertTrue(first.leads())
        second = Replica(c, 2, c.store)
        c.address, c.grpc_address = second.http, second.grpc
        c.agents.update(first=first.process, second=second.process)  # they end with the cluster
        said = lambda: second.health().get("cannot_lead", "")
        c.wait_for("it to say so", lambda: "cluster.key is missing" in said())
        c.wait_for("doctor's line", lambda: "cluster-key" in c.cli("doctor", "-o", "json").out)
        self.assertFalse(os.path.exists(os.path.join(second.data, "cluster.key")))
        first.process.kill()
        c.wait_for("nobody to lead", lambda: second.health().get("last_leader"))
        time.sleep(7)  # longer than the lease: whoever may lead does by now
        self.assertFalse(second.leads())
        r = second.api.call("PUT", "/v1/workloads/w", c.manifest("w"))
        self.assertEqual(r.status, 503)
        self.assertIn("cluster's key", r.body.decode())
        shutil.copy(os.path.join(first.data, "cluster.key"), second.data)
        c.wait_for("it to lead", second.leads)
        self.assertEqual(said(), "")
        self.assertNotIn(self.secret_of(first), json.dumps(member.get("/")))
        second.process.kill()

    def secret_of(self, replica):
        with open(os.path.join(replica.data, "cluster.key")) as f:
            return [line.split()[1] for line in f if line.startswith("key ")][0]
