"""The disk is full: nothing can be written, everything can be looked at."""
import resource
import time

from berthtest import Case, only_embedded


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
