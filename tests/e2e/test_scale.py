"""Many nodes, many workloads: what standing still costs, and what a restart costs."""
import os
import re
import signal
import subprocess
import threading
import time

import etcd
from berthtest import ETCD, FULL, Case, note

IDLE_SECONDS = int(os.environ.get("BERTH_TEST_IDLE_SECONDS", 60 if FULL else 20))
IDLE_NODES = int(os.environ.get("BERTH_TEST_IDLE_NODES", 1000))
IDLE_WORKLOADS = int(os.environ.get("BERTH_TEST_IDLE_WORKLOADS", 10000))
RESTART_NODES = int(os.environ.get("BERTH_TEST_RESTART_NODES", 5000 if FULL else 500))
RESTART_WORKLOADS = int(os.environ.get("BERTH_TEST_RESTART_WORKLOADS", 100000 if FULL else 10000))


def load(c, count, connections=8):
    """Applies count workloads over several connections."""
    failures = []

    def client(number):
        api = c.api.fork()
        for i in range(number, count, connections):
            body = c.manifest(f"w{i:06}", command=["sleep", "100000"], cpu=0.1, memory_mb=16, labels={"app": f"app-{i % 50}"})
            while True:
                a = api.call("PUT", f"/v1/workloads/w{i:06}", body)
                if a.status == 429:
                    time.sleep(0.05)
                    continue
                break
            if a.status not in (200, 201):
                failures.append(a)
                return
        api.close()

    threads = [threading.Thread(target=client, args=(n,)) for n in range(connections)]
    began = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise AssertionError(failures[0])
    return time.monotonic() - began


def rss_mb(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]) / 1024


def sync_calls(trace):
    with open(trace) as f:
        return [line for line in f if re.search(r"\b(fdatasync|fsync|pwrite64|pwritev|msync)\(", line)]


class Scale(Case):
    exclusive = True

    def mock_cluster(self, nodes, workloads, **kw):
        c = self.cluster(**kw)
        c.leftovers_allowed = True  # mock units are no processes; deleting all of them first would only take time
        began = time.monotonic()
        c.start_agent("mock", runtime="mock", args=["--nodes", str(nodes)], cpu=None)
        c.wait_for(f"{nodes} nodes", lambda: c.info().get("nodes_ready", 0) == nodes, timeout=300)
        note(f"{nodes} mock nodes registered in {time.monotonic() - began:.1f} s")
        took = load(c, workloads)
        c.wait_for("all to run", lambda: c.info().get("workloads_running", 0) == workloads, timeout=600)
        note(f"{workloads} applies over 8 connections in {took:.1f} s ({workloads / took:.0f}/s); all Running after {time.monotonic() - began:.1f} s")
        return c

    # R: A6 C9 C19
    def test_nothing_to_do_writes_nothing(self):
        c = self.mock_cluster(IDLE_NODES, IDLE_WORKLOADS, heartbeat="10s" if FULL else "2s")
        # Quiet means: no event for two seconds.
        head = [c.head(), time.monotonic()]

        def quiet():
            h = c.head()
            if h != head[0]:
                head[:] = [h, time.monotonic()]
            return time.monotonic() - head[1] > 2
        c.wait_for("quiet", quiet)
        revision = etcd.revision(ETCD) if ETCD else 0
        trace = os.path.join(c.dir, "strace.out")
        tracer = subprocess.Popen(["strace", "-f", "-o", trace, "-e", "trace=fdatasync,fsync,pwrite64,pwritev,msync", "-p", str(c.server.pid)],
                                  stderr=subprocess.PIPE, text=True)
        attached = tracer.stderr.readline()
        before = c.info()
        usage_before = c.nodes()[0]["resources"]
        began = time.monotonic()
        time.sleep(IDLE_SECONDS)  # the measurement itself
        after = c.info()
        idle_revision = etcd.revision(ETCD) if ETCD else 0
        seconds = time.monotonic() - began
        changed = sum(a != b for a, b in ((c.nodes()[0]["resources"].get(k), usage_before.get(k)) for k in ("cpu_used", "memory_used")))
        traced = "attached" in attached
        syncs = sync_calls(trace) if traced else []
        if traced and not ETCD:
            # The trace is able to see what it should: one apply is at least one sync.
            c.apply("witness")
            c.wait_for("the sync of one apply in the trace", lambda: sync_calls(trace))
        tracer.send_signal(signal.SIGINT)
        tracer.wait(20)
        beats, passes, commits = (after.get(k, 0) - before.get(k, 0) for k in ("heartbeats", "passes", "commits"))
        note(f"idle {seconds:.0f} s: {IDLE_NODES} nodes, {IDLE_WORKLOADS} workloads, {beats} heartbeats, {passes} passes, {commits} commits, "
             + (f"{len(syncs)} syncs or writes to the store in strace" if traced else f"strace could not attach: {attached.strip()}"))
        self.assertGreater(beats, IDLE_NODES)
        self.assertGreater(passes, 1)
        self.assertEqual(commits, 0)
        self.assertEqual(after["head"], before["head"])
        self.assertEqual(syncs[:5], [])
        if ETCD:
            self.assertEqual(idle_revision, revision, "etcd was written to")
        self.assertTrue(changed, "usage changes with the heartbeats")
        if not traced:
            self.skipTest("ptrace is not permitted here; 0 commits, but no look at system calls")

    # R: A5 X6
    def test_restart_of_a_large_cluster(self):
        c = self.mock_cluster(RESTART_NODES, RESTART_WORKLOADS)
        running = c.info()["workloads_running"]
        c.kill_server()
        c.agents["mock"].kill()  # so that what is measured is the restart alone
        best = None
        for _ in range(3):
            began = time.monotonic()
            c.start_server(wait=False)
            c.wait_serving(timeout=120)
            self.assertEqual(c.api.get("/health").status, 200)
            info = c.info()
            took = time.monotonic() - began
            self.assertEqual(info["workloads"], RESTART_WORKLOADS)
            self.assertEqual(info["nodes"], RESTART_NODES)
            best = min(best or (took, rss_mb(c.server.pid)), (took, rss_mb(c.server.pid)))
            c.kill_server()
        size = sum(os.path.getsize(os.path.join(c.data, f)) for f in os.listdir(c.data)) / 1e6
        where = "in etcd, its lease of 5 s included" if ETCD else f"{size:.0f} MB on disk"
        note(f"restart with {RESTART_NODES} nodes and {RESTART_WORKLOADS} workloads ({where}): serving after {best[0]:.2f} s, {best[1]:.0f} MB "
             "resident (aim at 5,000 and 100,000: under 1 s, under 200 MB)")
        self.assertLess(best[0], (5 if FULL else 2) + (10 if ETCD else 0))
        self.assertLess(best[1], 400 if FULL else 200)
        self.assertGreater(running, 0)
