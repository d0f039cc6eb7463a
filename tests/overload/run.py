#!/usr/bin/python3
"""Overload (A11): ten times the load that the server can sustain, for 20 seconds.

    tests/overload/run.py [--seconds N] [--build build] [--door http|grpc|bulk]...

Once for each door: single applies by HTTP, by gRPC, and a hundred in each request. First it measures what the server takes (bench/load), then offers ten times that, open loop, with more
calls under way than the server lets wait. Meanwhile: heartbeats of 200 mock nodes (every 2 s, NotReady after 6 s of silence) and reads stay within their bounds, what is too much gets 429 with Retry-After, memory is bounded.
Afterwards it recovers by itself. The last line is "N passed, N failed". R: A11
"""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "hostile"))
import rig  # noqa: E402
from rig import berthtest  # noqa: E402

READ_P99_MS = float(os.environ.get("OVERLOAD_READ_P99_MS", "500"))
RECOVERY_S = float(os.environ.get("OVERLOAD_RECOVERY_S", "10"))
GROWS_MB = 256  # beyond what the accepted workloads themselves need
PER_WORKLOAD_KB = 4
NODES = 200
# kind and workloads per request of bench/load, requests under way to find the rate, and beyond it from each of two programs; how the server counts the answers: metric, label, refused
DOORS = {
    "http": ("http", 1, 256, 5000, "berth_http_requests_total", "CreateWorkload", "429"),
    "grpc": ("grpc", 1, 256, 5000, "berth_grpc_server_requests_total", "Control/ApplyWorkload\"", "ResourceExhausted"),
    "bulk": ("http", 100, 24, 1000, "berth_http_requests_total", "ApplyWorkloads", "429"),
}


class Probe(threading.Thread):
    """One call after the other on one connection: (when it ended, seconds, status, Retry-After)."""

    def __init__(self, address, make, pause=0.02):
        super().__init__(daemon=True)
        self.api, self.make, self.pause, self.seen, self.stopped = berthtest.Api(address, timeout=30), make, pause, [], False
        self.start()

    def run(self):
        n = 0
        while not self.stopped:
            n += 1
            start = time.monotonic()
            try:
                a = self.api.call(*self.make(n))
                status, retry = a.status, a.headers.get("Retry-After")
            except berthtest.Gone as e:
                status, retry = str(e), None
            end = time.monotonic()
            self.seen.append((end, end - start, status, retry))
            time.sleep(self.pause)

    def between(self, start, end):
        return [s for s in list(self.seen) if start <= s[0] <= end]


def metric(api, name):
    text = api.get("/v1/metrics").body.decode()
    return sum(float(m) for m in re.findall(rf"^{name}(?:{{[^}}]*}})? ([0-9.e+]+)$", text, re.M))


def commit_buckets(api):
    text = api.get("/v1/metrics").body.decode()
    return [(float(le.replace("+Inf", "inf")), float(n)) for le, n in re.findall(r'^berth_commit_duration_seconds_bucket{le="([^"]+)"} ([0-9.e+]+)$', text, re.M)]


def longest_commit_ms(before, after):
    """Upper bound of the longest commit between the two, as far as the histogram can say."""
    longest, earlier = 0.0, 0.0
    for (le, old), (_, new) in zip(before, after):
        if new - old > earlier:
            longest = le
        earlier = new - old
    return min(longest, 30.0) * 1000


def applies_by_status(api, door):
    text, found = api.get("/v1/metrics").body.decode(), {}
    for labels, value in re.findall(rf"^{DOORS[door][4]}{{([^}}]*)}} ([0-9.e+]+)$", text, re.M):
        if DOORS[door][5] in labels:
            status = re.search(r'code="(\w+)"', labels).group(1)
            found[status] = found.get(status, 0) + float(value)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--door", action="append", choices=DOORS)
    args = parser.parse_args()
    berthtest.BERTH = os.path.abspath(os.path.join(args.build, "berth"))
    rig.raise_file_limit()
    results = [r for door in args.door or DOORS for r in overload(door, args)]
    print(f"{results.count(True)} passed, {results.count(False)} failed")
    return 0 if all(results) else 1


def measure(load, kind, address, few, each):
    """(what bench/load prints, the prefix of its 15,000 workloads) with as many requests under way, up to few, as are all accepted."""
    while True:
        prefix = f"base{few}"
        out = subprocess.run([load, kind, address, "15000", str(few), "0", prefix, str(each)], capture_output=True, text=True, check=False)
        if out.returncode == 0:
            return out.stdout, prefix
        too_busy = "429 Too Many Requests" in out.stderr or "RESOURCE_EXHAUSTED" in out.stderr
        if not too_busy or few == 1:
            raise RuntimeError(f"{few} requests at a time: {out.stdout}{out.stderr}")
        print(f"## {few} requests at a time are too many: {out.stdout.strip()}", flush=True)
        few //= 2


def overload(door, args):
    load = os.path.abspath(os.path.join(args.build, "bench", "load"))
    kind, each, few, many, _, _, too_many = DOORS[door]
    results = []

    def result(name, ok, text):
        results.append(bool(ok))
        print(f"{'ok' if ok else 'not ok'} {door}, {name}: {text}", flush=True)

    lag = rig.Lag()
    case = berthtest.Case()
    case.setUp()
    c = case.cluster(nodes=0, heartbeat="2s", silence=3)
    c.leftovers_allowed = True
    children = []
    try:
        c.start_agent("mock", args=["--nodes", str(NODES)], runtime="mock", cpu="4000", memory="8000G", disk="1000G")
        c.wait_nodes_ready(NODES)
        # What it takes. If it refuses a part of that already, the rate is that of fewer requests under way; new workloads each time, as known ones cost less.
        address = c.address if kind == "http" else c.grpc_address
        out, base = measure(load, kind, address, few, each)
        rate = float(re.search(r"rate=(\d+)", out).group(1))
        print(f"## sustainable: {rate:.0f} applies per second ({out.strip()})", flush=True)
        api = c.api.fork()
        reads = [Probe(c.address, lambda n: ("GET", f"/v1/workloads/{base}-{n % 15000:07}")), Probe(c.address, lambda n: ("GET", "/v1/nodes?limit=10")),
                 Probe(c.address, lambda n: ("GET", "/v1/cluster"))]
        health = Probe(c.address, lambda n: ("GET", "/v1/health"))
        writes = Probe(c.address, lambda n: ("PUT", f"/v1/workloads/probe-{n}", {"id": f"probe-{n}", "spec": {"command": ["x"]}, "resources": {"cpu": 0.1}}), pause=0.05)
        time.sleep(2)
        quiet = [s[1] for p in reads for s in p.seen]
        before_rss, before = rig.rss_mb(c.server.pid), applies_by_status(api, door)
        lost_before, refused_before, head = metric(api, "berth_node_unhealthy_total"), metric(api, "berth_inputs_refused_total"), c.head()
        # Ten times that.
        buckets, start = commit_buckets(api), time.monotonic()
        total = min(9000000, int(rate * 10 * args.seconds))
        for i in range(2):
            children.append(subprocess.Popen([load, kind, address, str(total // 2), str(many), str(int(rate * 5)), f"over{i}", str(each)], stdout=subprocess.DEVNULL,
                                             stderr=subprocess.PIPE))
        peak = 0.0
        while time.monotonic() < start + args.seconds:
            peak = max(peak, rig.rss_mb(c.server.pid))
            time.sleep(0.2)
        end = time.monotonic()
        refusal = ""  # the load prints the first answer that was none
        for child in children:
            child.kill()
            refusal += child.communicate()[1].decode(errors="replace")
        # By itself.
        recovered = None
        while time.monotonic() < end + RECOVERY_S + 5:
            good = [s for s in writes.between(end, time.monotonic()) if s[2] == 201 and s[1] < 0.25]
            if good and metric(api, "berth_queue_depth") < 100:
                recovered = good[0][0] - end
                break
            time.sleep(0.05)
        for p in [*reads, health, writes]:
            p.stopped = True
        after = applies_by_status(api, door)
        accepted = sum(after.get(s, 0) - before.get(s, 0) for s in ("200", "201", "OK"))
        answered = sum(after.values()) - sum(before.values())
        refused = after.get(too_many, 0) - before.get(too_many, 0)
        took = [s[1] for p in reads for s in p.between(start, end)]
        bad = [s[2] for p in reads for s in p.between(start, end) if s[2] != 200]
        commit_ms = longest_commit_ms(buckets, commit_buckets(api))
        p99, bound = rig.percentile(took, 0.99) * 1000, lag.bound_ms(READ_P99_MS, start, end) + 2 * commit_ms
        print(f"## the machine: a process waits {lag.p99_ms(start, end):.0f} ms (p99) for a processor, the longest commit took up to {commit_ms:.0f} ms; ten times the one and twice the "
              f"other (a read waits for two commits at most) are allowed on top of {READ_P99_MS:.0f} ms", flush=True)
        print(f"## offered 10 x {rate:.0f} per second for {args.seconds:.0f} s: {answered:.0f} answered, {accepted:.0f} accepted ({accepted * each / args.seconds:.0f} workloads per second), {refused:.0f} refused with {too_many}; "
              f"other: { {k: v - before.get(k, 0) for k, v in after.items() if k not in ('200', '201', 'OK', too_many) and v > before.get(k, 0)} }", flush=True)
        result("reads", p99 < bound and not bad, f"{len(took)} under overload, p50 {rig.percentile(took, 0.5) * 1000:.0f} ms, p99 {p99:.0f} ms (bound {bound:.0f}), max {max(took) * 1000:.0f} ms, "
               f"{len(bad)} failed {bad[:2]}; p99 before {rig.percentile(quiet, 0.99) * 1000:.0f} ms")
        h = [s[1] for s in health.between(start, end)]
        result("health", rig.percentile(h, 0.99) * 1000 < bound, f"p99 {rig.percentile(h, 0.99) * 1000:.0f} ms (bound {bound:.0f})")
        lost = [e for e in c.events(type="NodeLost") if e["seq"] > head]
        ready = c.info().get("nodes_ready", 0)
        result("heartbeats", not lost and ready == NODES, f"{len(lost)} nodes became NotReady, {ready} of {NODES} are Ready (heartbeat 2 s, limit 6 s)")
        w = writes.between(start, end)
        told = [s for s in w if s[2] == 429]
        codes = sorted({str(s[2]) for s in w})
        says_when = re.search(r"^Retry-After: (\d+)", refusal, re.M)
        in_words = "429 Too Many Requests" in refusal and says_when if kind == "http" else "RESOURCE_EXHAUSTED" in refusal
        result("refusals", refused > 0 and in_words and all(s[3] for s in told) and not [s for s in w if s[2] not in (200, 201, 429)], f"{refused:.0f} calls got {too_many} with Retry-After: {says_when.group(1) if says_when else None}; of a probe's "
               f"{len(w)} applies {len(told)} did; all its statuses: {codes}")
        most = before_rss + GROWS_MB + accepted * each * PER_WORKLOAD_KB / 1024
        result("memory", peak < most, f"{before_rss:.0f} -> {peak:.0f} MiB at most (bound {most:.0f}: {GROWS_MB} and {PER_WORKLOAD_KB} KiB for each accepted workload)")
        result("recovery", recovered is not None and recovered < RECOVERY_S, f"applies are fast again {recovered if recovered is None else round(recovered, 2)} s after the load ended (bound {RECOVERY_S:.0f} s)")
        c.agents["mock"].stop()
        c.server.stop()
        c.fsck()
        result("fsck", True, "the store is sound")
    finally:
        lag.stop()
        for child in children:
            if child.poll() is None:
                child.kill()
        c.closing = True
        c.kill_all()
        shutil.rmtree(c.dir, ignore_errors=True)
    return results


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    sys.exit(main())
