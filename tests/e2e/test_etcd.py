"""Servers on a real etcd: one leads, another takes over, a paused one can write nothing."""
import json
import os
import subprocess
import time
import unittest

import etcd
import persys
from berthtest import BERTH, Api, Case, Process, note, only_embedded


@only_embedded("starts its own etcd whatever the others run on: part of the ordinary run")
@unittest.skipUnless(etcd.is_installed(), "etcd is not installed (Debian: etcd-server, etcd-client)")
class OnEtcd(Case):
    def setUp(self):
        super().setUp()
        self.etcd = etcd.Etcd()
        self.addCleanup(self.etcd.close)

    def started(self, **kw):
        c = self.cluster(server_args=["--store", f"etcd://{self.etcd.address}"], **kw)
        return c

    def standby(self, c):
        """Another server on the same store; it follows."""
        data = os.path.join(c.dir, "standby")
        c.give_key("standby")
        argv = [BERTH, "server", "--data", data, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", *c.server_args]
        p = Process("standby", argv, c.env, os.path.join(c.dir, "standby.log"))
        path = os.path.join(data, "server.address")
        deadline = time.monotonic() + 60
        while not os.path.exists(path):
            self.assertLess(time.monotonic(), deadline, c.tail("standby"))
            self.assertTrue(p.alive(), c.tail("standby"))
            time.sleep(0.02)
        with open(path) as f:
            p.address = dict(line.strip().split("=", 1) for line in f)
        return p

    # R: C35 C3. Issue 5, C5: an idle leader notices, and agents are not sent away for it.
    @unittest.skipUnless(persys.grpc, "python3-grpcio is not installed")
    def test_c5_while_etcd_is_away_heartbeats_are_acknowledged_and_health_says_degraded(self):
        c = self.started()
        messages = persys.Messages(persys.compiled("persys_control.proto", "persys_agent.proto"))
        agent = persys.FakeAgent(messages)
        self.addCleanup(agent.stop)
        p = persys.Client(c.grpc_address, messages)
        self.addCleanup(p.close)
        capable = {"cpu_total_millicores": 4000, "memory_total_mb": 8192, "supported_workload_types": ["container"]}
        self.assertTrue(p.RegisterNode(node_id="n", grpc_endpoint=agent.endpoint, capabilities=capable).accepted)
        self.etcd.kill()
        began = time.monotonic()
        c.wait_for("health to say so", lambda: c.api.get("/health").json["status"] == "degraded", timeout=60)
        noticed = time.monotonic() - began
        self.assertEqual(c.api.get("/persys/health").json["status"], "degraded")
        # beyond the lease of the leadership: the server leads no more, and the agent's session is gone
        said = {"/health": set(), "role": set()}
        while "follower" not in said["role"] or time.monotonic() - began < 8:
            self.assertLess(time.monotonic() - began, 120)
            beat = p.Heartbeat(node_id="n")
            self.assertEqual((beat.acknowledged, beat.drain_node), (True, False))
            health = c.api.get("/health").json
            said["/health"].add(health["status"])
            said["role"].add(health["role"])
        self.assertEqual(said["/health"], {"degraded"}, "from then on until etcd is back")
        self.assertFalse(p.RegisterNode(node_id="n", grpc_endpoint=agent.endpoint, capabilities=capable).accepted)
        self.etcd.start()
        c.wait_for("the store to be back", lambda: c.api.get("/health").json["status"] == "ok", timeout=120)
        c.wait_for("it to lead", lambda: c.api.get("/health").json["role"] == "leader", timeout=120)
        with self.assertRaises(persys.grpc.RpcError) as e:
            p.Heartbeat(node_id="n")
        self.assertEqual(e.exception.code(), persys.grpc.StatusCode.NOT_FOUND, "now it can register again, and shall")
        self.assertTrue(p.RegisterNode(node_id="n", grpc_endpoint=agent.endpoint, capabilities=capable).accepted)
        note(f"health said degraded {noticed:.1f} s after etcd was gone")

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
        self.assertEqual(record["retry"]["attempts"], 0)
        self.assertIs(json.loads(keys["/reconciliation/hello"])["success"], True)
        self.assertEqual(keys["/nodes/node-1/status"], "Ready")
        self.assertEqual(int(keys["/meta/head"]), c.head())
        self.assertEqual(json.loads(keys["/events/" + keys["/meta/head"].zfill(20)])["seq"], c.head())
        c.apply("lost", command=["sleep", "1"], node_selector={"no": "where"})  # issue 5, C6: what did not succeed says so
        c.wait_for("its record", lambda: "no suitable node" in self.etcd.get("/reconciliation/").get("/reconciliation/lost", ""))
        self.assertIs(json.loads(self.etcd.get("/reconciliation/")["/reconciliation/lost"])["success"], False)

    # An etcd is often somebody else's as well. R: C1 A4
    def test_keys_of_others_are_neither_told_nor_backed_up_nor_touched_by_a_restore(self):
        c = self.started()
        foreign = {"/registry/secrets/a": "not-for-berth", "/berth2/workloads/a": "neither", "zzz": "nor-this"}
        for key, value in foreign.items():
            etcd.ctl(self.etcd.address, "put", key, value)
        etcd.ctl(self.etcd.address, "put", "/quotas/q", "{}")  # this one is ours, and is told
        c.wait_for("what was done to berth's own key", lambda: c.events(type="RecordTouched"))
        self.assertEqual([e["message"].split()[0] for e in c.events(type="RecordTouched")], ["/quotas/q"])
        backup = os.path.join(c.dir, "it.backup")
        c.ok("backup", "--store", c.server_args[-1], backup, server=False)
        with open(backup, "rb") as f:
            self.assertNotIn(b"for-berth", f.read())
        c.server.stop()
        etcd.ctl(self.etcd.address, "put", "/registry/secrets/a", "newer")
        c.ok("restore", backup, "--store", c.server_args[-1], "--force", "--key", os.path.join(c.data, "cluster.key"), server=False)
        for key, value in {**foreign, "/registry/secrets/a": "newer"}.items():
            self.assertEqual(etcd.get(self.etcd.address, key), {key: value})
        c.start_server()

    # One caller's large workloads may not stop the others: etcd takes 1.5 MiB at a time. R: A11 C35
    def test_what_is_large_or_larger_as_json_is_stored_or_refused_and_stops_nobody(self):
        c = self.started(nodes=1)
        quoted = ('"xxx' * 24 + "xxxx") * 327

        def workload(name, env, **more):
            return {"id": name, "spec": {"command": ["sleep", "100000"], "env": env}, "resources": {"cpu": 0.001, "memory_mb": 1}, **more}

        def ask(path, body):
            a = c.api.call("POST", path, body)
            return a.status, a.json

        items = [workload(f"c{i}", {"E": "\x01" * 16180}) for i in range(5)] + [workload("big", {f"E{i}": quoted for i in range(8)})]
        many = {f"berth.io/{i}": "x" * 4096 for i in range(64)}
        status, answer = ask("/v1/workloads:batch", {"items": items})
        self.assertEqual((status, [r["outcome"] for r in answer.get("results", [])]), (200, ["created"] * 6), str(answer)[:1000])
        status, answer = ask("/v1/workloads", workload("huge", {f"E{i}": "x" * 32700 for i in range(8)}, annotations=many))
        self.assertEqual((status, answer["code"]), (400, "invalid"), answer)
        self.assertIn("at most 524288", answer["message"])
        items = [workload(f"p{i}", {"E": "x" * 3000}) for i in range(22)] + [workload("large", {f"E{i}": "x" * 30000 for i in range(8)}, annotations={k: v[:3800] for k, v in many.items()})]
        status, answer = ask("/v1/workloads:batch", {"items": items})
        self.assertEqual((status, answer.get("failed", 0)), (200, 0), str(answer)[:1000])
        c.apply("after", command=["sleep", "100000"])
        c.wait_phase("after", "Running")
        self.assertEqual(c.api.get("/health").json["status"], "ok")

    # R: C1 A4
    def test_two_clusters_whose_prefixes_begin_alike_do_not_see_each_other(self):
        one = self.cluster(server_args=["--store", f"etcd://{self.etcd.address}/team"])
        two = self.cluster(server_args=["--store", f"etcd://{self.etcd.address}/team2"], mark=self.mark + "-two")
        two.apply("theirs", command=["sleep", "100000"])
        one.apply("ours", command=["sleep", "100000"])
        one.server.stop()
        one.start_server()
        self.assertEqual([w["id"] for w in one.workloads()], ["ours"])
        with open(os.path.join(one.dir, "server.log")) as f:
            self.assertIn("records=3 bad_records=0", [line for line in f if 'msg="store loaded"' in line][-1])
        etcd.ctl(self.etcd.address, "put", "/team/quotas/q", "{}")
        one.wait_for("what was done to its own key", lambda: one.events(type="RecordTouched"))
        self.assertEqual([e["message"].split()[0] for e in one.events(type="RecordTouched")], ["/quotas/q"])

    # R: C33 A5
    def test_a_standby_takes_over_and_nothing_acknowledged_is_lost(self):
        c = self.started()
        second = self.standby(c)
        c.grpc_address += "," + second.address["grpc"]  # agents and commands know both
        for n in ("node-1", "node-2"):
            c.start_agent(n)
        c.wait_nodes_ready(2)
        for i in range(20):
            c.apply(f"w{i}", command=["sleep", "100000"])
        for i in range(20):
            c.wait_phase(f"w{i}", "Running")
        launches = {w["id"]: w["metadata"].get("last_launch_at") for w in c.workloads()}
        first = c.server
        c.kill_server()
        began = time.monotonic()
        c.server, c.address = second, second.address["http"]
        c.api = Api(c.address)
        while c.api.call("PUT", "/v1/workloads/after", c.manifest("after", command=["sleep", "100000"])).status not in (200, 201):
            self.assertLess(time.monotonic() - began, 60, c.tail("standby"))
            time.sleep(0.02)
        note(f"another server takes writes {time.monotonic() - began:.1f} s after kill -9 of the leader (its lease: 5 s)")
        self.assertFalse(first.alive())
        c.wait_nodes_ready(2)
        c.wait_phase("after", "Running")
        note(f"and a new workload runs after {time.monotonic() - began:.1f} s")
        self.assertEqual({w["id"]: w["metadata"].get("last_launch_at") for w in c.workloads() if w["id"] != "after"}, launches)  # nothing was started anew
        self.assertEqual(c.cli("get", "workloads").code, 0)  # by the address that is left

    # R: C1. Issue 6, A2
    def test_a_follower_of_a_newer_leader_does_not_load_everything_for_each_new_event(self):
        c = self.started()
        c.apply("web", command=["sleep", "100000"])
        c.server.stop()
        # a leader of a newer version: what it would write, written by hand
        self.etcd.put("/meta/leader", json.dumps({"name": "newer", "http_address": "127.0.0.1:1", "grpc_address": "127.0.0.1:1"}))
        p = self.standby(c)
        api = Api(p.address["http"])

        def metric(name):
            return int(next(line.split()[1] for line in api.get("/metrics").body.decode().splitlines() if line.startswith(name + " ")))
        c.wait_for("it to follow", lambda: api.get("/health").json["role"] == "follower")
        head, loads, began = metric("berth_head"), metric("berth_follower_loads_total"), time.monotonic()
        for i in range(1, 16):
            self.etcd.put(f"/events/{head + i:020d}", json.dumps({"seq": str(head + i), "timestamp": "2030-01-01T00:00:00Z", "type": "OfTomorrow"}))
            self.etcd.put("/meta/head", str(head + i))
            time.sleep(0.3)  # so that each is seen on its own
        c.wait_for("all to be followed", lambda: metric("berth_head") == head + 15, timeout=60)
        most = 2 + (time.monotonic() - began) // 5
        self.assertLessEqual(metric("berth_follower_loads_total") - loads, most)
        self.assertEqual(api.get("/workloads/web").json["id"], "web")
        p.stop()

    # R: A5
    def test_a_leader_that_starts_again_does_not_wait_for_its_own_lease(self):
        c = self.started(nodes=1)
        c.apply("before", command=["sleep", "100000"])
        c.wait_phase("before", "Running")
        c.kill_server()
        began = time.monotonic()
        c.start_server()
        c.apply("after", command=["sleep", "100000"])
        took = time.monotonic() - began
        note(f"a leader that was killed takes writes {took:.1f} s after its next start began")
        c.wait_phase("after", "Running")

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

    # R: C1
    def test_a_record_changed_by_hand_is_noticed_and_taken_over_or_refused(self):
        c = self.started(nodes=1)
        c.apply("web", command=["sleep", "100000"])
        c.apply("other", command=["sleep", "100000"])
        c.wait_phase("web", "Running")
        c.wait_phase("other", "Running")

        def touched(key):
            return [e for e in c.events() if e["type"] == "RecordTouched" and e.get("record") == key]

        def noticed(key, action, count=1):
            c.wait_for(f"{key} to be noticed", lambda: len(touched(key)) >= count, timeout=60)
            self.assertEqual(touched(key)[-1]["action"], action)

        # a valid definition: taken over, as if it had been applied
        record = json.loads(self.etcd.get("/workloads/web")["/workloads/web"])
        record["spec"]["command"] = ["sleep", "200000"]
        self.etcd.put("/workloads/web", json.dumps(record))
        noticed("/workloads/web", "taken-over")
        c.wait_for("the new definition runs", lambda: c.workload("web")["spec"]["command"] == ["sleep", "200000"] and c.workload("web")["status"]["actual_state"] == "Running")
        # what makes no sense is refused: the record is put back
        before = self.etcd.get("/workloads/other")["/workloads/other"]
        self.etcd.put("/workloads/other", '{"id":"other","type":"nonsense"}')
        noticed("/workloads/other", "put-back")
        self.assertEqual(self.etcd.get("/workloads/other")["/workloads/other"], before)
        # removed by hand: put back, and what it stands for was never touched
        self.etcd.delete("/workloads/other")
        noticed("/workloads/other", "put-back", 2)
        self.assertEqual(self.etcd.get("/workloads/other")["/workloads/other"], before)
        # a view, and a record that nobody asked for
        self.etcd.put("/nodes/node-1/status", "NotReady")
        noticed("/nodes/node-1/status", "put-back")
        self.assertEqual(self.etcd.get("/nodes/node-1/status")["/nodes/node-1/status"], "Ready")
        self.etcd.put("/workloads/garbage", "not even JSON")
        noticed("/workloads/garbage", "removed")
        self.assertEqual(self.etcd.get("/workloads/garbage"), {})
        self.assertIn("berth_records_touched_total 5", c.api.get("/metrics").body.decode())
        self.assertIn("5 records were changed in the store by hand", c.cli("doctor").out)
        # berth's own writes are not taken for somebody else's
        for i in range(30):
            c.apply(f"w{i}", command=["sleep", "100000"], cpu=0.01)
        self.etcd.put("/tokens/else", "1")  # of a kind that nobody edits with sense
        c.wait_for("it to be seen", lambda: touched("/tokens/else"), timeout=60)
        self.assertEqual(len([e for e in c.events() if e["type"] == "RecordTouched"]), 6)

    # R: C1
    def test_a_leader_whom_nobody_disturbs_does_not_watch_its_own_writes(self):
        c = self.started(nodes=1)  # it has announced itself meanwhile, which is a write as well
        before = self.etcd.metric("etcd_debugging_mvcc_events_total")
        for i in range(20):
            c.apply(f"w{i}", command=["sleep", "100000"], cpu=0.01)
        seen = self.etcd.metric("etcd_debugging_mvcc_events_total")
        self.assertLess(seen - before, 20, "each apply writes several keys; what it sees is its own name under the key of the leader, at most")
        self.etcd.put("/somebody/else", "1")
        c.wait_for("it to be seen", lambda: self.etcd.metric("etcd_debugging_mvcc_events_total") > seen, timeout=60)

    # R: C35 A11
    def test_etcd_without_space(self):
        quota = etcd.Etcd(env={**os.environ, "ETCD_QUOTA_BACKEND_BYTES": str(8 << 20)})
        self.addCleanup(quota.close)
        c = self.cluster(server_args=["--store", f"etcd://{quota.address}/berth"], nodes=1)
        c.apply("stays", command=["sleep", "100000"])
        c.wait_phase("stays", "Running")
        with self.assertRaises(subprocess.CalledProcessError):  # somebody else fills it
            for i in range(100):
                etcd.ctl(quota.address, "put", f"/other/{i}", "x" * 100000)
        self.assertIn("NOSPACE", etcd.ctl(quota.address, "alarm", "list"))
        a = c.api.call("PUT", "/v1/workloads/new", c.manifest("new", command=["sleep", "100000"]))
        self.assertEqual(a.status, 503, a)
        self.assertTrue(a.headers.get("Retry-After"), a)
        self.assertEqual(c.api.get("/v1/workloads/stays").status, 200)  # reads go on
        doctor = c.cli("doctor")
        self.assertNotEqual(doctor.code, 0)
        self.assertIn("NOSPACE", doctor.out)
        self.assertIn("etcdctl alarm disarm", doctor.out)
        # the operator does so, and nothing at the server
        etcd.ctl(quota.address, "del", "--prefix", "/other/")
        etcd.ctl(quota.address, "compact", str(etcd.revision(quota.address)))
        etcd.ctl(quota.address, "defrag")
        etcd.ctl(quota.address, "alarm", "disarm")
        began = time.monotonic()
        while c.api.call("PUT", "/v1/workloads/new", c.manifest("new", command=["sleep", "100000"])).status not in (200, 201):
            self.assertLess(time.monotonic(), began + 60, c.tail("server"))
            time.sleep(0.1)
        note(f"a change goes through {time.monotonic() - began:.1f} s after the alarm was disarmed")
        c.wait_phase("new", "Running")
        with open(os.path.join(c.dir, "server.log")) as f:
            self.assertEqual(sum("the store does not take commits" in line for line in f), 1)  # one alarm, not one for each try

    # R: A4 A10
    def test_a_store_moves_to_etcd_and_back(self):
        c = self.cluster(nodes=1)
        c.apply("kept", command=["sleep", "100000"])
        c.wait_phase("kept", "Running")
        launched = c.workload("kept")["metadata"]["last_launch_at"]
        records, events = c.workloads(), c.events()
        c.server.stop()
        there, back = f"etcd://{self.etcd.address}/moved", os.path.join(c.dir, "back.db")
        self.assertEqual(c.cli("migrate-store", os.path.join(c.data, "berth.db"), there, server=False).code, 0)
        c.start_server(args=["--store", there])
        c.wait_nodes_ready(1)
        self.assertEqual(c.workload("kept")["metadata"]["last_launch_at"], launched)
        self.assertEqual((c.workloads(), c.events()[:len(events)]), (records, events), "the same records, the same events")
        c.server.stop()
        self.assertEqual(c.cli("fsck", "--store", there, server=False).code, 0)
        self.assertEqual(c.cli("migrate-store", there, back, server=False).code, 0)
        self.assertNotEqual(c.cli("migrate-store", there, back, server=False).code, 0)  # not empty any more
        c.start_server(args=["--store", back])
        c.wait_nodes_ready(1)
        self.assertEqual(c.workload("kept")["metadata"]["last_launch_at"], launched)
        self.assertEqual((c.workloads(), c.events()[:len(events)]), (records, events), "the same records, the same events")
