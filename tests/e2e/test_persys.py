"""A client written for persys.control.v1, or for its HTTP gateway, with berth as its endpoint (docs/compat-persys.md)."""
import os
import threading
import time
import unittest

import persys
from berthtest import Case

CAPABLE = {"cpu_total_millicores": 4000, "memory_total_mb": 8192, "supported_workload_types": ["container", "compose", "vm"],
           "storage_pools": [{"name": "root", "type": "local", "total_gb": 100}]}


def container(image="registry/app:1", **fields):
    spec = {"type": "container", "resources": {"cpu_millicores": 100, "memory_mb": 64}, "container": {"image": image}}
    spec["container"].update(fields)
    return spec


@unittest.skipUnless(persys.grpc, "python3-grpcio or python3-protobuf is not installed")
class Persys(Case):
    def setUp(self):
        super().setUp()
        self.messages = persys.Messages(persys.compiled("persys_control.proto", "persys_agent.proto"))
        self.agents = []

    def start(self, *nodes, **kw):
        """A server, and foreign agents that are registered with it."""
        self.c = self.cluster(**kw)
        self.connect()
        for n in nodes:
            self.register(n)
        return self.c, self.p

    def connect(self):
        self.p = persys.Client(self.c.grpc_address, self.messages)
        return self.p

    def restart(self):
        """kill -9 and start again; the client's connection is a new one, as clients of this dialect have it for each call."""
        self.p.close()
        self.c.restart_server("kill")
        return self.connect()

    def tearDown(self):
        if getattr(self, "p", None):
            self.p.close()
        super().tearDown()

    def register(self, node, capabilities=None, **fields):
        agent = persys.FakeAgent(self.messages)
        self.addCleanup(agent.stop)
        r = self.p.RegisterNode(node_id=node, grpc_endpoint=agent.endpoint, capabilities=capabilities or CAPABLE, **fields)
        self.assertTrue(r.accepted, r.reason)
        return agent

    def fails(self, code, details, call, *args, **kw):
        with self.assertRaises(persys.grpc.RpcError) as e:
            call(*args, **kw)
        self.assertEqual(e.exception.code().name, code, e.exception.details())
        if details is not None:
            self.assertEqual(e.exception.details(), details)
        return e.exception.details()


class Nodes(Persys):
    # R: C3 C8
    def test_registration_answers_as_the_table_says(self):
        c, p = self.start()
        self.fails("INVALID_ARGUMENT", "node_id is required", p.RegisterNode, grpc_endpoint="h:1", capabilities=CAPABLE)
        self.fails("INVALID_ARGUMENT", "node_id is required", p.RegisterNode, node_id="  ", grpc_endpoint="h:1", capabilities=CAPABLE)
        self.fails("INVALID_ARGUMENT", "grpc_endpoint is required", p.RegisterNode, node_id="n", capabilities=CAPABLE)
        said = self.fails("INVALID_ARGUMENT", None, p.RegisterNode, node_id="n", grpc_endpoint="nowhere", capabilities=CAPABLE)
        self.assertTrue(said.startswith('invalid grpc_endpoint "nowhere": '), said)
        for poor in ({}, {"cpu_total_millicores": 0, "memory_total_mb": 5}, {"cpu_total_millicores": 5, "memory_total_mb": -1}):
            r = p.RegisterNode(node_id="n", grpc_endpoint="h:1", capabilities=poor)
            self.assertEqual((r.accepted, r.reason), (False, "totalCPU and totalMemory must be positive"))
        r = p.RegisterNode(node_id="n", grpc_endpoint="h:1", capabilities=CAPABLE, labels={"zone": "not a label value!"})
        self.assertFalse(r.accepted)
        self.assertIn("labels.zone", r.reason)
        self.assertEqual(c.nodes(), [], "nothing of this changed anything")

        before = time.time()
        agent = self.register("n", labels={"zone": "a"}, agent_version="v1")
        n = p.GetNode(node_id="n").node
        self.assertEqual((n.status, n.status_reason, n.status_updated_by), ("Ready", "registered", "register"))
        self.assertGreaterEqual(n.status_updated_at.seconds, int(before))
        self.assertEqual((n.grpc_endpoint, dict(n.labels)), (agent.endpoint, {"zone": "a"}))
        self.assertEqual((n.total_cpu_cores, n.available_cpu_cores, n.total_memory_mb), (4.0, 4.0, 8192))
        self.assertEqual(sorted(n.supported_workload_types), ["compose", "container", "vm"])

    # R: C3 C8. Issue 5, C1: the stock smoke client sends "default" as its cluster; and what was refused is no node.
    def test_c1_default_is_this_cluster_and_a_refused_node_is_none(self):
        c, p = self.start()
        self.register("stock", cluster_id="default")
        self.register("named", cluster_id=c.info()["cluster_id"])
        r = p.RegisterNode(node_id="stranger", grpc_endpoint="127.0.0.1:1", capabilities=CAPABLE, cluster_id="another")
        self.assertFalse(r.accepted)
        self.assertIn("another", r.reason)
        self.assertEqual([n.node_id for n in p.ListNodes().nodes], ["named", "stock"])
        self.fails("NOT_FOUND", 'node "stranger" not found', p.GetNode, node_id="stranger")
        self.assertEqual(p.GetClusterSummary().total_nodes, 2)
        self.assertEqual([n["node_id"] for n in c.api.get("/persys/nodes").json["nodes"]], ["named", "stock"])
        self.assertTrue(p.Heartbeat(node_id="stock").acknowledged)
        self.assertIn("stranger", [n["id"] for n in c.nodes()], "berth's own list offers it for adoption")

    # R: C3 C8. The interval is the server's own; the lease is what the server waits before a node counts as silent.
    def test_the_server_sets_the_pace(self):
        c, p = self.start(heartbeat="7s", silence=4)
        r = p.RegisterNode(node_id="n", grpc_endpoint=":0", capabilities=CAPABLE)
        self.assertEqual((r.accepted, r.reason, r.heartbeat_interval_seconds), (True, "registered", 7))
        self.assertAlmostEqual(r.lease_expires_at.seconds, time.time() + 28, delta=10)
        self.assertEqual(p.GetNode(node_id="n").node.grpc_endpoint, "127.0.0.1:50051", "no host: where the call came from; port 0: the usual one")

    # Issue 5, A9: a registration makes the server call an address; not any. R: A9 C39
    def test_only_the_callers_own_address_or_allowed_networks_are_called(self):
        _, p = self.start()
        for endpoint in ("10.9.9.9:50051", "169.254.169.254:80", "[fe80::1]:80", "0.0.0.0:50051"):
            r = p.RegisterNode(node_id="n", grpc_endpoint=endpoint, capabilities=CAPABLE)
            self.assertFalse(r.accepted, endpoint)
            self.assertIn("is not called from here", r.reason)
        self.assertEqual(len(p.ListNodes().nodes), 0)
        with open(os.path.join(self.c.dir, "networks.yaml"), "w") as f:
            f.write("agent_networks: [10.9.0.0/16, 0.0.0.0/0]\n")
        self.c.server_args += ["--config", os.path.join(self.c.dir, "networks.yaml")]
        p = self.restart()
        self.assertTrue(p.RegisterNode(node_id="n", grpc_endpoint="10.9.9.9:50051", capabilities=CAPABLE).accepted)
        self.assertFalse(p.RegisterNode(node_id="m", grpc_endpoint="169.254.169.254:80", capabilities=CAPABLE).accepted, "whatever is configured")

    # R: C3 C9 A6
    def test_heartbeats(self):
        c, p = self.start("n")
        self.fails("NOT_FOUND", 'node "who" not registered', p.Heartbeat, node_id="who")
        self.fails("INVALID_ARGUMENT", "node_id is required", p.Heartbeat)
        head = c.head()
        for _ in range(5):
            r = p.Heartbeat(node_id="n", usage={"cpu_used_millicores": 700, "memory_used_mb": 100, "cpu_allocated_millicores": 9999})
            self.assertEqual((r.acknowledged, r.drain_node), (True, False))
            self.assertGreater(r.lease_expires_at.seconds, time.time())
        n = c.wait_for("the usage", lambda: (c.node("n") or {}).get("resources", {}).get("cpu_used") and c.node("n"))
        self.assertEqual(n["resources"]["cpu_used"], 0.7)
        self.assertEqual(p.GetNode(node_id="n").node.available_cpu_cores, 4.0, "available is what is not reserved, not what is idle just now (B-15)")
        self.assertEqual(c.head(), head, "heartbeats write nothing")
        # A server that has started anew does not know the session: the agent registers again, as such agents do on any error.
        p = self.restart()
        self.fails("NOT_FOUND", 'node "n" not registered', p.Heartbeat, node_id="n")
        self.register("n")
        self.assertTrue(p.Heartbeat(node_id="n").acknowledged)

    # R: C3 C9
    def test_b12_a_heartbeat_says_nothing_about_what_the_node_does_not_own(self):
        c, p = self.start("n1", "n2")
        self.assertTrue(p.ApplyWorkload(workload_id="w", spec=container()).success)
        owner = c.wait_for("a place", lambda: p.GetWorkload(workload_id="w").workload.assigned_node_id)
        other = "n2" if owner == "n1" else "n1"
        c.wait_for("the agents to have been heard", lambda: p.GetWorkload(workload_id="w").workload.status)
        before = len(c.events_of("w", "RetryScheduled", "WorkloadFailed", "Rescheduled", "WorkloadDeleted"))
        lies = [{"workload_id": "w", "state": s, "failure_reason": "RUNTIME_ERROR"} for s in ("Failed", "Stopped", "Deleted")]
        lies.append({"workload_id": "nobody-knows-this", "state": "Running"})
        for lie in lies:
            self.assertTrue(p.Heartbeat(node_id=other, workload_statuses=[lie]).acknowledged)
        p.GetClusterSummary()  # behind the heartbeats in the ring's queue
        w = p.GetWorkload(workload_id="w").workload
        self.assertEqual(w.assigned_node_id, owner)
        self.assertNotIn(w.status, ("Failed", "RetryPending", "Stopped"))
        self.assertEqual(len(c.events_of("w", "RetryScheduled", "WorkloadFailed", "Rescheduled", "WorkloadDeleted")), before)
        self.fails("NOT_FOUND", None, p.GetWorkload, workload_id="nobody-knows-this")

    # R: C3 C8
    def test_b12_registering_again_loses_nothing(self):
        c, p = self.start("n")
        self.assertTrue(p.ApplyWorkload(workload_id="w", spec=container()).success)
        c.wait_for("a place", lambda: p.GetWorkload(workload_id="w").workload.assigned_node_id)
        c.api.call("POST", "/v1/nodes/n/cordon")
        self.register("n")
        n = c.node("n")
        self.assertEqual(n["wish"], "cordoned", "the operator's wish outlives the agent")
        self.assertEqual(n["resources"]["cpu_allocated"], 0.1, "and so does what is reserved")
        self.assertEqual(p.GetNode(node_id="n").node.available_cpu_cores, 3.9)

    # R: C3
    def test_b18_ids_that_could_break_out_of_a_key_are_refused(self):
        c, p = self.start()
        for bad in ("a/b", "../x", "a b", "/", "ä"):
            r = p.RegisterNode(node_id=bad, grpc_endpoint="h:1", capabilities=CAPABLE)
            self.assertEqual((r.accepted, "node_id" in r.reason), (False, True), r)
            a = p.ApplyWorkload(workload_id=bad, spec=container())
            self.assertEqual((a.success, a.failure_reason), (False, 4), a)
            self.fails("NOT_FOUND", f'workload "{bad}" not found', p.GetWorkload, workload_id=bad)
            self.fails("NOT_FOUND", f'node "{bad}" not found', p.GetNode, node_id=bad)
            self.assertEqual(p.DeleteWorkload(workload_id=bad).error_message, f"workload {bad} not found")
        self.assertEqual((c.nodes(), c.workloads()), ([], []))
        r = self.register("status")
        self.assertEqual([n.node_id for n in p.ListNodes().nodes], ["status"], "a node may be called status and is seen")
        self.assertTrue(r)


class Workloads(Persys):
    # R: C3 C5 C7
    def test_apply_answers_as_the_table_says(self):
        c, p = self.start("n")
        self.fails("INVALID_ARGUMENT", "workload_id is required", p.ApplyWorkload, spec=container())
        a = p.ApplyWorkload(workload_id="w", spec={"type": "container", "container": {}})
        self.assertEqual((a.success, a.failure_reason), (False, 4))
        self.assertIn("image", a.error_message)
        a = p.ApplyWorkload(workload_id="w", spec={"type": "compose", "compose": {"source_type": "git", "git_repo": "https://x/y"}})
        self.assertEqual((a.success, a.failure_reason), (False, 4), "what cannot be done is refused, not dropped")
        a = p.ApplyWorkload(workload_id="w", desired_state="stopped")
        self.assertEqual((a.success, a.failure_reason, a.error_message), (False, 5, "workload w not found"))
        self.assertEqual(c.workloads(), [])

        self.assertTrue(p.ApplyWorkload(workload_id="w", spec=container(), revision_id="r1").success)
        w = p.GetWorkload(workload_id="w").workload
        self.assertEqual((w.type, w.desired_state, w.revision_id, w.retry_max_attempts), ("container", "Running", "r1", 5))
        # without a spec: the wish alone
        self.assertTrue(p.ApplyWorkload(workload_id="w", desired_state="stop").success)
        self.assertEqual(p.GetWorkload(workload_id="w").workload.desired_state, "Stopped")
        self.assertTrue(p.ApplyWorkload(workload_id="w").success)
        self.assertEqual(p.GetWorkload(workload_id="w").workload.desired_state, "Running")
        self.assertTrue(p.ApplyWorkload(workload_id="w", desired_state="Deleted").success)
        self.assertTrue(c.events_of("w", "WorkloadDeleting", "WorkloadDeleted"))

    # R: C3 C5. Its wish is committed; that there is no room yet is its status, not the answer.
    def test_what_has_no_place_yet_is_accepted_and_says_why_it_waits(self):
        c, p = self.start()
        self.assertTrue(p.ApplyWorkload(workload_id="w", spec=container()).success)
        w = p.GetWorkload(workload_id="w").workload
        self.assertEqual((w.status, w.assigned_node_id, w.reason.code), ("Pending", "", "NO_NODES"))
        self.register("n")
        c.wait_for("a place", lambda: p.GetWorkload(workload_id="w").workload.assigned_node_id == "n")

    # R: C3 C7
    def test_a_revision_is_one_spec(self):
        c, p = self.start("n")
        self.assertTrue(p.ApplyWorkload(workload_id="w", spec=container(), revision_id="r1").success)
        head = c.head()
        for _ in range(3):
            self.assertTrue(p.ApplyWorkload(workload_id="w", spec=container(), revision_id="r1").success)
        self.assertEqual(len(c.events_of("w", "WorkloadApplied")), 1, "sent again: nothing changes")
        a = p.ApplyWorkload(workload_id="w", spec=container(image="registry/app:2"), revision_id="r1")
        self.assertEqual((a.success, a.failure_reason), (False, 5))
        self.assertIn("revision r1", a.error_message)
        self.assertEqual(c.workload("w")["spec"]["image"], "registry/app:1")
        self.assertTrue(p.ApplyWorkload(workload_id="w", spec=container(image="registry/app:2"), revision_id="r2").success)
        w = c.workload("w")
        self.assertEqual((w["revision_id"], w["spec"]["image"]), ("r2", "registry/app:2"))
        self.assertGreater(c.head(), head)
        # without a name of its own the spec names itself
        self.assertTrue(p.ApplyWorkload(workload_id="x", spec=container()).success)
        first = p.GetWorkload(workload_id="x").workload.revision_id
        self.assertTrue(p.ApplyWorkload(workload_id="x", spec=container()).success)
        self.assertEqual(p.GetWorkload(workload_id="x").workload.revision_id, first)
        self.assertTrue(p.ApplyWorkload(workload_id="x", spec=container(image="other")).success)
        self.assertNotEqual(p.GetWorkload(workload_id="x").workload.revision_id, first)

    # R: C3
    def test_b2_b6_nothing_of_a_spec_is_lost_by_reading_restarting_or_changing(self):
        c, p = self.start()
        volume = {"name": "data", "driver": "local", "size_gb": "5", "mount_path": "/data", "retain_policy": "Retain"}
        spec = container(command=["run", "-v"], env={"A": "1"}, managed_volumes=[volume], restart_policy="on-failure", privileged=True,
                         ports=[{"host_port": 8080, "container_port": 80, "protocol": "tcp"}],
                         volumes=[{"host_path": "/h", "container_path": "/c", "read_only": True}])
        spec["metadata"] = {"owner": "me"}
        self.assertTrue(p.ApplyWorkload(workload_id="w", spec=spec).success)
        w = c.workload("w")
        self.assertEqual(w["spec"]["managed_volumes"], [{**volume, "size_gb": 5}])
        self.assertEqual((w["annotations"], w.get("labels")), ({"owner": "me"}, None))
        self.assertEqual((w["restart"], w["spec"]["privileged"], w["resources"]["cpu"]), ("on-failure", True, 0.1))
        self.assertTrue(p.RetryWorkload(workload_id="w").accepted)
        p = self.restart()
        again = c.workload("w")
        for part in ("spec", "annotations", "resources", "restart"):
            self.assertEqual(again[part], w[part])
        self.assertEqual(again["metadata"]["created_at"], w["metadata"]["created_at"])
        # what a new spec leaves out is gone, and what it changes is changed: resources too
        small = container()
        small["resources"] = {"cpu_millicores": 50}
        self.assertTrue(p.ApplyWorkload(workload_id="w", spec=small).success)
        w = c.workload("w")
        self.assertEqual((w["spec"].get("env"), w["spec"].get("managed_volumes"), w.get("annotations"), w["resources"]),
                         (None, None, None, {"cpu": 0.05, "memory_mb": 0, "disk_gb": 0}))

    # R: C3
    def test_delete_and_retry_answer_as_the_table_says(self):
        c, p = self.start()
        self.fails("INVALID_ARGUMENT", "workload_id is required", p.DeleteWorkload)
        r = p.DeleteWorkload(workload_id="w")
        self.assertEqual((r.success, r.error_message), (False, "workload w not found"))
        self.assertFalse(p.RetryWorkload(workload_id="w").accepted)
        self.assertTrue(p.ApplyWorkload(workload_id="w", spec=container()).success)
        self.assertTrue(p.RetryWorkload(workload_id="w").accepted)
        self.assertTrue(p.DeleteWorkload(workload_id="w").success)
        c.wait_gone("w")

    # R: C3
    def test_b1_a_delete_is_never_taken_back(self):
        c, p = self.start("n")
        self.assertTrue(p.ApplyWorkload(workload_id="w", spec=container()).success)
        c.wait_for("a place", lambda: p.GetWorkload(workload_id="w").workload.assigned_node_id)
        stop = threading.Event()

        def claim():
            while not stop.is_set():
                p.Heartbeat(node_id="n", workload_statuses=[{"workload_id": "w", "state": "Running"}])
        claims = threading.Thread(target=claim)
        claims.start()
        try:
            self.assertTrue(p.DeleteWorkload(workload_id="w").success)
            seen, gone = set(), 0

            def look():
                nonlocal gone
                w = c.workload("w")
                if w:
                    seen.add((w["desired_state"], w["status"]["phase"]))
                gone = 0 if w else gone + 1
                return gone >= 20  # and it does not come back while its node goes on claiming it
            c.wait_for("it to be gone, and to stay so", look)
            self.assertLessEqual(seen, {("Deleted", "Deleting")})
        finally:
            stop.set()
            claims.join()

    # R: C3 C17
    def test_b15_a_burst_spreads_over_the_nodes(self):
        c, p = self.start(*[f"n{i}" for i in range(5)])
        with_threads = [threading.Thread(target=lambda i=i: p.ApplyWorkload(workload_id=f"w{i}", spec=container())) for i in range(50)]
        for t in with_threads:
            t.start()
        for t in with_threads:
            t.join()
        c.wait_for("all to have a place", lambda: all(w.assigned_node_id for w in p.ListWorkloads().workloads))
        counts = [len(p.ListWorkloads(node_id=f"n{i}").workloads) for i in range(5)]
        self.assertEqual(counts, [10] * 5, "reservations count at once, not only when usage is next reported")

    # R: C3 A11
    def test_b10_what_is_too_large_is_refused_alone(self):
        c, p = self.start()
        a = p.ApplyWorkload(workload_id="big", spec=container(env={"A": "x" * 300_000}))
        self.assertEqual((a.success, a.failure_reason), (False, 4))
        self.assertTrue(p.ApplyWorkload(workload_id="small", spec=container()).success)
        self.assertEqual(c.api.get("/persys/health").json["mode"], "normal")


class SmallThings(Persys):
    """Issue 5, C6."""

    # R: C3
    def test_c6_lists_come_in_the_order_of_keys(self):
        c, p = self.start()
        for name in ("w5", "w1", "w9", "w3"):
            self.assertTrue(p.ApplyWorkload(workload_id=name, spec=container()).success)
        self.assertEqual([w.workload_id for w in p.ListWorkloads().workloads], ["w1", "w3", "w5", "w9"])
        a = c.api.get("/persys/list")
        self.assertEqual((a.status, list(a.json)), (200, ["workloads"]), a)
        self.assertEqual([w["workload_id"] for w in a.json["workloads"]], ["w1", "w3", "w5", "w9"])

    # R: C3 C6
    def test_c6_what_is_stopped_while_it_waits_drops_its_old_text(self):
        c, p = self.start()
        self.assertTrue(p.ApplyWorkload(workload_id="w", spec=container()).success)
        c.wait_for("the reason", lambda: "no suitable node" in p.GetWorkload(workload_id="w").workload.failure_reason)
        self.assertTrue(p.ApplyWorkload(workload_id="w", desired_state="stopped").success)
        w = p.GetWorkload(workload_id="w").workload
        self.assertEqual((w.status, w.failure_reason), ("Stopped", ""))
        p = self.restart()
        self.assertEqual(p.GetWorkload(workload_id="w").workload.failure_reason, "", "the record says so too")

    # R: C3 C28. A definition that its runtime refuses is refused again: no attempts are made.
    def test_c6_a_machine_with_an_image_that_no_node_takes_is_failed_and_not_retried(self):
        c, p = self.start("n")
        spec = {"type": "vm", "vm": {"vcpus": 1, "memory_mb": "64", "os_image": "debian-12"}}
        self.assertTrue(p.ApplyWorkload(workload_id="vm", spec=spec).success)
        c.wait_phase("vm", "Failed")
        w = p.GetWorkload(workload_id="vm").workload
        self.assertEqual((w.status, w.retry_attempts, w.reason.code), ("Failed", 1, "INVALID_SPEC"))
        self.assertIn("os_image", w.failure_reason)
        self.assertEqual(c.events_of("vm", "RetryScheduled"), [])

    # R: C1 C2
    def test_c6_zeros_of_the_canonical_shapes_are_there(self):
        c, p = self.start()
        for path in ("/workloads", "/v1/workloads", "/nodes", "/v1/events"):
            items = c.api.get(path).json.get("items")
            self.assertIsInstance(items, list, path)
        self.assertEqual(c.api.get("/workloads").json["items"], [])
        self.register("n")
        n = c.node("n")
        self.assertEqual((n["labels"], n["resources"]["cpu_allocated"], n["resources"]["memory_allocated"], n["resources"]["disk_allocated"]), ({}, 0, 0, 0))
        a = c.api.call("PUT", "/workloads/w", {"id": "w", "type": "container", "spec": {"image": "x"}, "desired_state": "Stopped"})
        self.assertIn(a.status, (200, 201))
        for w in (a.json, c.workload("w"), c.api.get("/workloads").json["items"][0], c.api.get("/workloads/w", pretty="true").json):
            self.assertEqual((w["retry"]["attempts"], w["assigned_node"], w["status"]["failure_reason"], w["metadata"]["last_error"], w["resources"]),
                             (0, "", "", "", {"cpu": 0.1, "memory_mb": 128, "disk_gb": 0}))

    # R: C2 C6
    def test_c6_desired_state_deleted_by_put_is_a_delete(self):
        c, p = self.start()
        self.assertEqual(c.api.call("PUT", "/workloads/w", {"desired_state": "Deleted"}).status, 404)
        c.api.call("PUT", "/workloads/w", {"type": "container", "spec": {"image": "x"}})
        version = c.workload("w")["resource_version"]
        self.assertEqual(c.api.call("PUT", "/workloads/w", {"desired_state": "Deleted"}, headers={"If-Match": f'"{version - 1}"'}).status, 409)
        a = c.api.call("PUT", "/workloads/w", {"type": "container", "spec": {"image": "y"}, "desired_state": "Deleted"})
        self.assertEqual((a.status, a.json["desired_state"]), (200, "Deleted"))
        c.wait_gone("w")
        self.assertEqual(c.api.call("POST", "/workloads", {"id": "w", "spec": {"image": "x"}, "desired_state": "Deleted"}).status, 400)

    # R: C36
    def test_c6_the_metrics_of_the_seed_are_served_bare(self):
        c, p = self.start()
        text = c.api.call("GET", "/metrics").body.decode()
        for name in ("scheduling_attempts_total", "scheduling_failures_total", "reconciliation_actions_total", "retry_total", "node_unhealthy_total"):
            self.assertRegex(text, rf"(?m)^# TYPE {name} counter$")
            self.assertRegex(text, rf"(?m)^{name}(\{{[^}}]*\}})? \d+$")
            self.assertRegex(text, rf"(?m)^berth_{name}(\{{[^}}]*\}})? \d+$")


class Reading(Persys):
    # R: C3
    def test_lists_and_filters(self):
        c, p = self.start("n1", "n2")
        for i in range(4):
            self.assertTrue(p.ApplyWorkload(workload_id=f"w{i}", spec=container()).success)
        self.assertTrue(p.ApplyWorkload(workload_id="w9", spec=container(), desired_state="stopped").success)
        self.assertEqual([n.node_id for n in p.ListNodes().nodes], ["n1", "n2"], "in the order of their keys")
        self.assertEqual(len(p.ListNodes(status="READY").nodes), 2)
        self.assertEqual(len(p.ListNodes(status="NotReady").nodes), 0)
        self.assertEqual(len(p.ListNodes(status="Active").nodes), 0, "a status that nothing has gives nothing")
        self.assertEqual([w.workload_id for w in p.ListWorkloads().workloads], ["w0", "w1", "w2", "w3", "w9"])
        of = {n: {w.workload_id for w in p.ListWorkloads(node_id=n).workloads} for n in ("n1", "n2")}
        self.assertEqual(of["n1"] | of["n2"], {"w0", "w1", "w2", "w3"})
        self.assertEqual([w.workload_id for w in p.ListWorkloads(status="stopped").workloads], ["w9"])
        self.assertEqual(len(p.ListWorkloads(status="nonsense").workloads), 0)
        self.fails("NOT_FOUND", 'node "x" not found', p.GetNode, node_id="x")
        self.fails("NOT_FOUND", 'workload "x" not found', p.GetWorkload, workload_id="x")
        self.fails("INVALID_ARGUMENT", "node_id is required", p.GetNode)
        self.fails("INVALID_ARGUMENT", "workload_id is required", p.GetWorkload)

    # R: C3
    def test_long_lists_come_whole(self):
        c, p = self.start()
        items = [{"id": f"w{i:05d}", "type": "container", "spec": {"image": "x"}} for i in range(2500)]
        for at in range(0, len(items), 500):
            a = c.api.call("POST", "/v1/workloads:batch", {"items": items[at:at + 500]})
            self.assertEqual((a.status, a.json.get("failed")), (200, None), a)
        self.assertEqual([w.workload_id for w in p.ListWorkloads().workloads], [w["id"] for w in items])

    # R: C3
    def test_the_summary_counts_every_phase(self):
        c, p = self.start("n")
        self.assertTrue(p.ApplyWorkload(workload_id="placed", spec=container()).success)
        self.assertTrue(p.ApplyWorkload(workload_id="halted", spec=container(), desired_state="stopped").success)
        big = container()
        big["resources"]["cpu_millicores"] = 64000
        self.assertTrue(p.ApplyWorkload(workload_id="big", spec=big).success)
        s = p.GetClusterSummary()
        self.assertEqual((s.total_nodes, s.ready_nodes, s.not_ready_nodes, s.total_workloads), (1, 1, 0, 3))
        self.assertEqual(s.running_workloads + s.pending_workloads, 2)
        self.assertEqual((s.failed_workloads, s.deleted_workloads), (0, 0))
        self.assertAlmostEqual(s.generated_at.seconds, time.time(), delta=30)

    # R: C3
    def test_the_stream_that_nobody_serves(self):
        c, p = self.start()
        message = self.messages.of("persys.control.v1.ControlMessage")
        call = p.channel.stream_stream("/persys.control.v1.AgentControl/ControlStream", request_serializer=message.SerializeToString,
                                       response_deserializer=message.FromString)
        self.fails("UNIMPLEMENTED", "ControlStream is not implemented yet", lambda: list(call(iter([message()]), timeout=30)))

    # R: C3 C30
    def test_suggestions(self):
        c, p = self.start()
        kinds = {"set": 1, "retry": 2, "delete": 3, "scale": 4}

        def suggest(target, kind, **fields):
            return p.SubmitAutomationSuggestion(suggestion={"target_workload": target, "action_type": kinds.get(kind, 0), "policy_id": "p7", **fields})
        r = suggest("", "set")
        self.assertEqual((r.accepted, r.decision, r.reason), (False, "rejected", "target_workload is required"))
        r = suggest("w", "retry")
        self.assertEqual((r.decision, r.reason), ("rejected", "workload w not found"))
        self.assertTrue(p.ApplyWorkload(workload_id="w", spec=container()).success)
        r = suggest("w", "scale", desired_replicas=3)
        self.assertEqual((r.decision, r.reason), ("rejected", "replica updates are not supported by scheduler contract yet"))
        self.assertEqual(suggest("w", "").decision, "rejected")
        r = suggest("w", "set", desired_state="stopped")
        self.assertEqual((r.accepted, r.decision, r.applied_action), (True, "accepted", "set_desired_state"))
        self.assertAlmostEqual(r.decided_at.seconds, time.time(), delta=30)
        self.assertEqual(c.workload("w")["desired_state"], "Stopped")
        self.assertEqual(c.events_of("w", "WorkloadDesired")[-1]["actor"], "automation:p7", "the record says on whose advice")
        self.assertEqual(suggest("w", "retry").decision, "rejected", "what is stopped is not tried again")
        self.assertEqual(suggest("w", "set", desired_state="running").decision, "accepted")
        self.assertEqual(suggest("w", "retry").applied_action, "retry_workload")
        self.assertEqual(suggest("w", "delete").applied_action, "delete_workload")
        c.wait_gone("w")

    # R: C3. Clients of this dialect open a connection per call and send trace context.
    def test_a_connection_per_call_with_foreign_metadata(self):
        c, p = self.start("n")
        for i in range(30):
            q = persys.Client(c.grpc_address, self.messages)
            trace = (("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("tracestate", "a=b"), ("baggage", "k=v"))
            self.assertEqual(len(q.ListNodes(metadata=trace).nodes), 1)
            q.close()


class Gateway(Persys):
    # R: C2 C3
    def test_the_paths_of_the_gateway(self):
        c, p = self.start("n")

        def get(path, **query):
            return c.api.get("/persys" + path, **query)
        a = c.api.call("POST", "/persys/workloads/schedule", {"workloadId": "w", "unknown": [1], "spec": {
            "type": "container", "resources": {"cpu_millicores": "250", "memoryMb": 64}, "container": {"image": "x"}}})
        self.assertEqual((a.status, a.json), (200, {"success": True}))
        self.assertEqual(a.headers["Content-Type"], "application/json")
        w = get("/workloads/w").json["workload"]
        self.assertEqual((w["workload_id"], w["desired_state"], w["retry_max_attempts"]), ("w", "Running", 5))
        self.assertNotIn("retry_attempts", w, "zero values are left out")
        self.assertRegex(w["last_updated"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")
        self.assertEqual([x["workload_id"] for x in get("/workloads").json["workloads"]], ["w"])
        self.assertEqual(get("/workloads", node_id="other").json, {})
        self.assertEqual(get("/workloads", status="Failed").json, {})
        n = get("/nodes/n").json["node"]
        self.assertEqual((n["total_memory_mb"], n["total_cpu_cores"]), ("8192", 4), "64 bits are strings")
        self.assertEqual(len(get("/nodes").json["nodes"]), 1)
        self.assertEqual(get("/cluster/metrics").json["total_workloads"], 1)
        self.assertEqual(c.api.call("POST", "/persys/workloads/w/retry").json, {"accepted": True})
        self.assertEqual(c.api.call("POST", "/persys/workloads/none/retry").json, {})
        health = get("/health").json
        self.assertEqual((health["status"], health["service"]), ("healthy", "persys-gateway"))
        self.assertEqual(get("/list").json, get("/workloads").json)
        self.assertEqual(c.api.call("DELETE", "/persys/workloads/w").json, {"success": True})
        c.wait_gone("w")
        self.assertEqual(c.api.call("DELETE", "/persys/workloads/w").json, {"error_message": "workload w not found"})

    # R: C2 C3 A9
    def test_errors_of_the_gateway(self):
        c, p = self.start()

        def refused(status, method, path, body=None, raw=None, headers=None):
            a = c.api.call(method, path, body, raw=raw, headers=headers)
            self.assertEqual((a.status, list(a.json)), (status, ["error"]), a)
            return a.json["error"]
        self.assertEqual(refused(404, "GET", "/persys/workloads/x"), 'workload "x" not found')
        self.assertEqual(refused(404, "GET", "/persys/nodes/x"), 'node "x" not found')
        self.assertEqual(refused(400, "POST", "/persys/workloads/schedule", {}), "workload_id is required")
        self.assertIn("expected", refused(400, "POST", "/persys/workloads/schedule", raw=b"[]"))
        self.assertIn("spec.container.image", refused(400, "POST", "/persys/workloads/schedule", {"workload_id": "w", "spec": {"container": {"image": 5}}}))
        self.assertEqual(refused(404, "GET", "/persys/clusters/other/nodes"), 'cluster "other" not found')
        self.assertEqual(refused(404, "GET", "/persys/nodes", headers={"X-Persys-Cluster-ID": "other"}), 'cluster "other" not found')
        self.assertEqual(refused(404, "GET", "/persys/nodes?cluster_id=other"), 'cluster "other" not found')
        a = c.api.call("POST", "/persys/workloads/schedule", {"workload_id": "w", "spec": {"container": {}}})
        self.assertEqual((a.status, a.json["failure_reason"]), (200, "INVALID_SPEC"), "a domain failure is an answer; enums by name")
        self.assertEqual(c.api.call("POST", "/persys/workloads/schedule", {"workload_id": "w", "spec": {"container": {"image": "x"}}},
                                    headers={"Origin": "http://evil.example"}).status, 403)
        self.assertEqual(c.workloads(), [])

    # R: C2 C3. Issue 5, C2: in the shapes of the gateway.
    def test_c2_the_same_below_the_clusters_path(self):
        c, p = self.start("n")
        ident = c.info()["cluster_id"]
        listed = c.api.get("/persys/clusters").json
        self.assertEqual((set(listed), listed["default_cluster_id"]), ({"default_cluster_id", "clusters"}, ident))
        (cluster,) = listed["clusters"]
        (scheduler,) = cluster.pop("schedulers")
        self.assertEqual(cluster, {"id": ident, "name": ident, "routing_strategy": "leader-only", "total_schedulers": 1, "healthy_schedulers": 1})
        self.assertRegex(scheduler.pop("last_seen"), r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")
        self.assertEqual(scheduler.pop("id"), scheduler["address"])
        self.assertEqual(scheduler, {"address": c.grpc_address, "is_leader": True, "healthy": True})
        for name in (ident, "default"):
            base = f"/persys/clusters/{name}"
            one = c.api.get(base).json
            self.assertEqual((set(one), one["default_cluster_id"], one["cluster"]["id"]), ({"default_cluster_id", "cluster"}, ident, ident))
            self.assertEqual(one["cluster"]["schedulers"][0]["address"], c.grpc_address)
            self.assertEqual(c.api.get(base + "/health").json["status"], "healthy")
            self.assertEqual(c.api.get(base + "/list").status, 200)
            self.assertEqual(c.api.call("POST", base + "/workloads/schedule", {"workload_id": "w-" + name, "spec": {"container": {"image": "x"}}}).json,
                             {"success": True})
            self.assertEqual(c.api.get(base + "/workloads/w-" + name).json["workload"]["workload_id"], "w-" + name)
            self.assertEqual(len(c.api.get(base + "/nodes").json["nodes"]), 1)
        self.assertEqual(c.api.get("/persys/workloads", cluster_id=ident).status, 200)
        self.assertNotIn("/persys", str(list(c.api.get("/openapi.json").json["paths"])), "a dialect of others, described elsewhere")


class Reflection(Persys):
    def ask(self, version, **fields):
        request = self.reflection.of(f"grpc.reflection.{version}.ServerReflectionRequest")
        response = self.reflection.of(f"grpc.reflection.{version}.ServerReflectionResponse")
        call = self.p.channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
                                            request_serializer=request.SerializeToString, response_deserializer=response.FromString)
        return list(call(iter([request(**{k: v}) for k, v in fields.items()]), timeout=60, wait_for_ready=True))

    # R: C3. As a tool without any .proto file does it: list, resolve, build a message, call.
    def test_a_tool_without_proto_files_can_call_everything(self):
        c, p = self.start("n")
        self.reflection = persys.Messages(self.pool_by_reflection())
        for version in ("v1", "v1alpha"):
            services = [s.name for s in self.ask(version, list_services="*")[0].list_services_response.service]
            self.assertEqual(sorted(services), sorted({"berth.v1.Control", "berth.v1.Agent", "persys.control.v1.AgentControl",
                                                       "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}))
            for s in services:
                files = self.files(version, s)
                pool = persys.pool_of(files)
                service = pool.FindServiceByName(s)
                self.assertTrue(service.methods)
                for m in service.methods:
                    self.assertTrue(self.files(version, m.full_name))
                    self.assertTrue(self.files(version, m.input_type.full_name))
        tool = persys.Client(c.grpc_address, persys.Messages(persys.pool_of(self.files("v1", "persys.control.v1.AgentControl"))), channel=p.channel)
        self.assertEqual(tool.GetNode(node_id="n").node.node_id, "n")
        own = persys.Client(c.grpc_address, persys.Messages(persys.pool_of(self.files("v1alpha", "berth.v1.Control"))), service="berth.v1.Control",
                            channel=p.channel)
        self.assertEqual(own.GetNode(id="n").id, "n")
        # several questions on one stream, and questions without an answer
        answers = self.ask("v1", file_by_filename="persys_control.proto", file_containing_symbol="no.such.Thing",
                           all_extension_numbers_of_type="berth.v1.Workload", list_services="")
        self.assertEqual(len(answers), 4)
        self.assertTrue(answers[0].file_descriptor_response.file_descriptor_proto)
        self.assertEqual(answers[1].error_response.error_code, 5)
        self.assertEqual(answers[1].original_request.file_containing_symbol, "no.such.Thing")
        self.assertEqual(answers[2].all_extension_numbers_response.base_type_name, "berth.v1.Workload")
        self.assertTrue(answers[3].list_services_response.service)
        for symbol in ("berth.v1.Restart.E", "berth.v1.Workload.id", "persys.control.v1.INVALID_SPEC", "berth.v1.Restart.always"):
            self.assertTrue(self.files("v1", symbol))
        for symbol in ("berth.v1", "berth", "", "berth.v1.Restart.E.always", "berth.v1.Workloa"):
            self.assertEqual(self.ask("v1", file_containing_symbol=symbol)[0].error_response.error_code, 5, symbol)

    def files(self, version, symbol):
        r = self.ask(version, file_containing_symbol=symbol)[0]
        self.assertFalse(r.HasField("error_response"), (symbol, r.error_response))
        return [persys.descriptor_pb2.FileDescriptorProto.FromString(f) for f in r.file_descriptor_response.file_descriptor_proto]

    def pool_by_reflection(self):
        """The reflection service describes itself; to ask it the first time, its answer is cut out by hand: field 4 holds fields 1, the files."""
        files = {}
        for version in ("v1", "v1alpha"):
            name = f"grpc.reflection.{version}.ServerReflection".encode()
            request = b"\x22" + bytes([len(name)]) + name
            call = self.p.channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")
            answer = list(call(iter([request]), timeout=60, wait_for_ready=True))[0]
            for data in fields(dict(fields(answer))[4]):
                f = persys.descriptor_pb2.FileDescriptorProto.FromString(data[1])
                files[f.name] = f
        return persys.pool_of(files.values())


def fields(data):
    """(number, bytes) of the length-delimited fields of a packed message."""
    at, found = 0, []

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        tag = varint()
        assert tag & 7 == 2, tag
        length = varint()
        found.append((tag >> 3, data[at:at + length]))
        at += length
    return found
