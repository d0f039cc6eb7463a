"""Metrics as Prometheus scrapes them from a real server, and the dashboard and alerts that are shipped for them."""
import json
import os
import re
import unittest

import berthtest

PERSYS = ["grpc_server_requests_total", "grpc_server_request_duration_seconds", "agent_rpc_requests_total", "agent_rpc_duration_seconds",
          "reconciliation_results_total", "reconciliation_cycle_duration_seconds", "reconciliation_cycles_total", "nodes_status", "workloads_status",
          "workloads_desired_state", "state_store_writes_total"]
BERTH = ["scheduling_attempts_total", "scheduling_failures_total", "reconciliation_actions_total", "retry_total", "node_unhealthy_total",
         "placement_duration_seconds", "commit_duration_seconds", "reconcile_duration_seconds", "rpc_duration_seconds"]


def scrape(c):
    text = c.api.get("/metrics").body.decode()
    families = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    samples = {m[0]: float(m[1]) for m in re.findall(r"^([a-z_]+(?:\{[^}]*\})?) (\S+)$", text, re.M)}
    return families, samples


class Metrics(berthtest.Case):
    def test_every_family_is_there_and_counts(self):  # R: C36
        c = self.cluster(nodes=2)
        families, before = scrape(c)
        for name in ["persys_scheduler_" + n for n in PERSYS] + ["berth_" + n for n in BERTH]:
            self.assertIn(name, families)
        for status in ("ready", "active", "notready", "unknown"):
            self.assertIn(f'persys_scheduler_nodes_status{{status="{status}"}}', before)
        c.apply("a")
        c.apply("bad", command=["false"], retry={"max_attempts": 3, "base_seconds": 1, "cap_seconds": 1})
        c.wait_phase("a", "Running")
        c.wait_phase("bad", "RetryPending", "Failed")
        c.ok("get", "nodes")  # over gRPC

        def counted():
            _, now = scrape(c)
            grown = lambda name: now.get(name, 0) > before.get(name, 0)
            return now if all(map(grown, [
                "berth_scheduling_attempts_total", "berth_placement_duration_seconds_count", "berth_commit_duration_seconds_count",
                "berth_reconcile_duration_seconds_count", "berth_rpc_duration_seconds_count",
                'persys_scheduler_reconciliation_cycles_total{result="success"}', 'persys_scheduler_workloads_desired_state{desired_state="running"}',
                'persys_scheduler_workloads_status{status="running"}', 'persys_scheduler_state_store_writes_total{category="spec"}',
                'persys_scheduler_state_store_writes_total{category="event"}', 'persys_scheduler_state_store_writes_total{category="assignment"}',
                'persys_scheduler_state_store_writes_total{category="retry"}',
                'persys_scheduler_reconciliation_results_total{action="Apply",success="false"}',
                'persys_scheduler_grpc_server_requests_total{method="/berth.v1.Control/ListNodes",code="OK"}',
                'persys_scheduler_grpc_server_request_duration_seconds_count{method="/berth.v1.Control/ListNodes",code="OK"}'])) else None
        now = c.wait_for("all of them to have grown", counted)
        self.assertEqual(now['persys_scheduler_nodes_status{status="ready"}'], 2)

    def test_the_dashboard_and_the_alerts_name_metrics_that_exist(self):  # R: C36
        c = self.cluster(nodes=0)
        families, _ = scrape(c)
        packaging = os.path.join(berthtest.ROOT, "packaging")
        with open(os.path.join(packaging, "grafana", "berth.json")) as f:
            dashboard = json.load(f)
        exprs = [t["expr"] for p in dashboard["panels"] for t in p["targets"]]
        with open(os.path.join(packaging, "prometheus", "berth.rules.yml")) as f:
            exprs += re.findall(r"^ +expr: (.*)$", f.read(), re.M)
        self.assertGreater(len(exprs), 25)
        for expr in exprs:
            for name in re.findall(r"\b((?:berth|process)_[a-z_]+)\b", expr):
                self.assertIn(re.sub(r"_(bucket|sum|count)$", "", name), families, expr)


if __name__ == "__main__":
    unittest.main()
