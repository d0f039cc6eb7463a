"""Quotas and rates of tenants, with real processes."""
import concurrent.futures
import os
import unittest

import berthtest


def quota(c, tenant, **fields):
    a = c.api.call("PUT", f"/v1/quotas/{tenant}", fields)
    if a.status not in (200, 201):
        raise AssertionError(f"quota {tenant}: {a}")
    return a.json


class Quotas(berthtest.Case):
    def test_what_exceeds_a_quota_is_refused_at_the_api(self):  # R: C31 G28 A9
        c = self.cluster(nodes=1)
        quota(c, "team-a", workloads=3, resources={"cpu": 1, "memory_mb": 256})
        c.apply("a", cpu=0.8, tenant="team-a")
        a = c.api.call("PUT", "/v1/workloads/b", c.manifest("b", cpu=0.3, tenant="team-a"))
        self.assertEqual(a.status, 409, a)
        e = a.json
        self.assertEqual((e["code"], e["dimension"], e["limit"], e["current_usage"], e["requested_delta"]),
                         ("quota_exceeded", "cpu_milli", 1000, 800, 300), e)
        self.assertTrue(e["message"] and e["detail"] and e["hint"] and e["request_id"], e)
        self.assertIsNone(c.workload("b"))
        c.apply("free", cpu=0.3, tenant="team-b")  # others have no limit
        c.wait_phase("a", "Running")
        got = c.api.get("/v1/quotas/team-a").json
        self.assertEqual(got["usage"], {"workloads": 1, "resources": {"cpu": 0.8, "memory_mb": 16, "disk_gb": 0}})
        # by the command line as well: the words, the exit status of a conflict, and what it lists
        refused = c.cli("run", "--name", "b", "--cpu", "300m", "--tenant", "team-a", "--", "sleep", "1000")
        if "unknown option" not in refused.err:
            self.assertEqual(refused.code, 5, refused)
        self.assertIn("0.8/1", c.ok("quota", "ls").out)
        c.ok("quota", "set", "team-a", "--cpu", "2")
        self.assertIn("0.8/2", c.ok("quota", "get", "team-a").out)
        self.assertEqual(c.api.get("/v1/quotas/team-a").json["workloads"], 3, "what was not given stays")
        c.apply("b", cpu=0.3, tenant="team-a")
        c.ok("quota", "rm", "team-a")
        self.assertEqual(c.cli("quota", "rm", "team-a").code, 4)

    def test_racing_clients_never_exceed_a_quota(self):  # R: C31 G28
        c = self.cluster(nodes=1)
        quota(c, "team-a", workloads=7, resources={"cpu": 1})

        def one(i):
            api = c.api.fork()
            try:
                return api.call("POST", "/v1/workloads", c.manifest(f"w{i}", cpu=0.13, tenant="team-a")).status
            finally:
                api.close()

        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            statuses = list(pool.map(one, range(60)))
        self.assertEqual(sorted(set(statuses)), [201, 409], statuses)
        self.assertEqual(statuses.count(201), 7)
        self.assertEqual(len(c.workloads()), 7)
        usage = c.api.get("/v1/quotas/team-a").json["usage"]
        self.assertEqual(usage["workloads"], 7)
        self.assertLessEqual(usage["resources"]["cpu"], 1)
        c.restart_server()
        self.assertEqual(c.api.get("/v1/quotas/team-a").json["usage"], usage, "the same after a restart")

    def test_a_lowered_quota_holds_up_what_has_no_place(self):  # R: C31 A8
        c = self.cluster(nodes=0)
        quota(c, "team-a", resources={"cpu": 0.3})
        for name in "abc":
            c.apply(name, cpu=0.1, tenant="team-a")
        quota(c, "team-a", resources={"cpu": 0.2})
        c.start_agent("node-1")
        c.wait_phase("a", "Running")
        c.wait_phase("b", "Running")
        w = c.wait_for("c to wait for the quota", lambda: (lambda w: w if w["status"].get("reason") == "quota-exceeded"
                                                           or w["status"].get("reason") == "quota_exceeded" else None)(c.workload("c")))
        self.assertEqual(w["status"]["phase"], "Pending")
        x = c.api.get("/v1/workloads/c/explain").json
        self.assertIn("quota of tenant team-a", x["summary"])
        self.assertEqual(x["feasible"], 1, "capacity is not the reason")
        self.assertIn("quota", x["would_fit_if"][0])
        self.assertIn("quota", c.ok("explain", "c").out)
        c.restart_server()
        c.wait_nodes_ready(1)
        self.assertEqual(c.workload("c")["status"]["phase"], "Pending")
        c.api.call("DELETE", "/v1/workloads/a")
        c.wait_phase("c", "Running")

    def test_writes_beyond_the_rate_are_told_when_to_come_back(self):  # R: C31
        c = self.cluster(nodes=0)
        quota(c, "team-a", writes_per_minute=5)
        answers = [c.api.call("PUT", f"/v1/workloads/w{i}", c.manifest(f"w{i}", tenant="team-a")) for i in range(12)]
        self.assertEqual([a.status for a in answers[:5]], [201] * 5)
        late = [a for a in answers if a.status == 429]
        self.assertGreaterEqual(len(late), 5, [a.status for a in answers])
        for a in late:
            self.assertTrue(1 <= int(a.headers["Retry-After"]) <= 12, a.headers)
            self.assertEqual(a.json["code"], "limit")
        self.assertEqual(c.api.get("/v1/workloads").status, 200)  # reads are not limited
        c.apply("other", tenant="team-b")
        # over gRPC it is RESOURCE_EXHAUSTED, which the command line shows as "try again later"
        refused = [c.cli("delete", f"w{i}") for i in range(3)]
        self.assertIn(6, [r.code for r in refused], refused)
        self.assertIn("writes more often than it may", "".join(r.err for r in refused))

    # R: C31 A13 (E6: the rate was forgotten with the tenant's last workload)
    def test_the_rate_is_not_forgotten_with_its_last_workload(self):
        c = self.cluster(server=False)
        config = os.path.join(c.dir, "server.yaml")
        with open(config, "w") as f:
            f.write("default_quota: {writes_per_minute: 3}\n")
        c.start_server(args=["--config", config])
        passed = 0
        for i in range(40):
            passed += c.api.call("PUT", "/v1/workloads/w", c.manifest("w", tenant="team-a")).status < 300
            passed += c.api.call("DELETE", "/v1/workloads/w").status < 300
        self.assertLessEqual(passed, 3 + 3, "a minute's writes at once, and what a slow machine adds")
        self.assertLess(c.api.call("PUT", "/v1/workloads/v", c.manifest("v", tenant="team-b")).status, 300, "others are not held up")


if __name__ == "__main__":
    unittest.main()
