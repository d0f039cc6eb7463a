#!/usr/bin/python3
"""Hostile network: what strangers, broken clients and mad agents may do to a real server, while a bystander works with it.

    tests/hostile/run.py [--full] [--berth build/berth] [NAME...]      -l lists the attacks

Each attack prints the server's memory before and after, what the bystander's calls took meanwhile (p99), and how the attacker was answered. It fails if the memory
grew beyond the attack's bound, if the bystander saw an error or waited too long (HOSTILE_P99_MS, 500 by default), or if the attacker was not turned away as it
should be. The bound grows with what the machine itself makes processes wait (measured beside it). Afterwards the server is healthy, has closed what was left open, stops on SIGTERM, and its store passes fsck. The last line is "N passed, N failed".
R: A9 A11 A12
"""
import argparse
import os
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import rig  # noqa: E402
from rig import H2, berthtest, connect, drain, goaways, http, is_closed, pour, reset, statuses  # noqa: E402
from wire import (CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, WINDOW_UPDATE, entry, fixed64, frames, grpc,  # noqa: E402
                  h2, headers, msg, request, token)

FULL = False
ATTACKS = []


def attack(grows_mb=24, seconds=20):
    """grows_mb: how much larger the server may be afterwards; seconds: how long the attack may take."""
    def register(fn):
        ATTACKS.append((fn.__name__.replace("_", " "), fn, grows_mb, seconds))
        return fn
    return register


def many(small, large):
    return large if FULL else small


class Failure(Exception):
    pass


def must(condition, text):
    if not condition:
        raise Failure(text)


# ---- HTTP ----

@attack()
def garbage_bytes(c):
    for i in range(many(100, 1000)):
        for address in (c.address, c.grpc_address):
            s = connect(address)
            pour(s, rig.garbage(200 + 40 * (i % 50), i), 1)
            s.close()


@attack()
def oversize_requests(c):
    cases = [("a path of 64 KiB", http("GET", "/" + "a" * 65536), (414, 431)), ("a header of 64 KiB", http("GET", "/", ["X: " + "b" * 65536]), (431,)),
             ("5,000 headers", http("GET", "/", [f"X-{i}: 1" for i in range(5000)]), (431, 400)),
             ("a body that says 1 GB", http("PUT", "/v1/workloads/a", ["Content-Length: 1000000000"]) + b"x" * 100000, (413,)),
             ("chunks without end", http("PUT", "/v1/workloads/a", ["Transfer-Encoding: chunked"]) + b"10000\r\n" + (b"x" * 65536 + b"\r\n10000\r\n") * 100, (413,)),
             ("a huge chunk size", http("PUT", "/v1/workloads/a", ["Transfer-Encoding: chunked"]) + b"f" * 17 + b"\r\n", (400, 413)),
             ("a bare line feed", b"GET / HTTP/1.1\nHost: x\r\n\r\n", (400,)), ("two lengths", http("PUT", "/v1/workloads/a", ["Content-Length: 1", "Content-Length: 2"]), (400,)),
             ("JSON 100,000 levels deep", http("PUT", "/v1/workloads/a", body=b"[" * 100000), (400,)),
             ("a spec of 900 KB", http("PUT", "/v1/workloads/big", body=rig.apply_body("big", 900000)), (400, 413))]
    for what, data, want in cases:
        s = connect(c.address)
        pour(s, data, 3)
        got, _ = drain(s, 5, until=lambda d: statuses(d))
        must(statuses(got) and statuses(got)[0] in want, f"{what}: {got[:100]!r}, wanted {want}")
        s.close()


@attack()
def pipelined_requests(c):
    n = many(2000, 20000)
    s = connect(c.address)
    data = http("GET", "/v1/health") * n
    done = threading.Thread(target=pour, args=(s, data, 20))
    done.start()
    got, count = b"", 0
    deadline = time.monotonic() + 20

    while count < n and time.monotonic() < deadline:
        more, closed = drain(s, 1, limit=1 << 20)
        got = more
        count += got.count(b"HTTP/1.1 200")
        if closed:
            break
    done.join()
    s.close()
    must(count >= n * 0.99, f"{count} of {n} pipelined requests were answered")
    # One that never reads: the server must stop reading from it.
    s = connect(c.address, receive_buffer=4096)
    sent, _ = pour(s, http("GET", "/v1/workloads") * 200000, 2)
    s.close()
    must(sent < 8 << 20, f"the server took {sent} bytes of requests from a client that reads no answers")


@attack()
def many_connections_come_and_go(c):
    for i in range(many(1500, 20000)):
        s = connect(c.address if i % 2 else c.grpc_address)
        if i % 3 == 0:
            s.sendall(http("GET", "/v1/health")[:i % 30] if i % 2 else PREFACE[:i % 24])
        reset(s)


# ---- HTTP/2 and gRPC ----

@attack()
def rapid_reset(c):
    x = H2(c.grpc_address)
    must(x.ready(), "greeting")
    n = many(20000, 200000)
    flood = b"".join(x.call(2 * i + 1, "/berth.v1.Control/ListWorkloads", b"") + h2(RST_STREAM, 0, 2 * i + 1, struct.pack(">I", 8)) for i in range(n))
    _, gone = pour(x.s, flood, 10)
    got, closed = drain(x.s, 3)
    must(gone or closed or goaways(got), "a connection that resets its calls thousands of times is ended")


@attack()
def continuation_flood(c):
    x = H2(c.grpc_address)
    must(x.ready(), "greeting")
    _, gone = pour(x.s, h2(HEADERS, 0, 1, request("/berth.v1.Control/GetCluster")) + h2(CONTINUATION, 0, 1, headers([("x", "y" * 100)]) * 140) * 2000, 5)
    got, closed = drain(x.s, 3)
    must(gone or closed or goaways(got), "header blocks without end are cut")
    x = H2(c.grpc_address)
    must(x.ready(), "greeting")
    _, gone = pour(x.s, h2(HEADERS, 0, 1, request("/berth.v1.Control/GetCluster")) + h2(CONTINUATION, 0, 1) * many(200000, 2000000), 5)
    got, closed = drain(x.s, 3)
    x.close()
    c.note(f"empty CONTINUATION frames: {'connection ended' if gone or closed or goaways(got) else 'taken, at no memory'}")


@attack()
def settings_and_ping_floods(c):
    for what, frame in (("SETTINGS", h2(SETTINGS, 0, 0, struct.pack(">HI", 3, 100))), ("PING", h2(PING, 0, 0, b"12345678"))):
        x = H2(c.grpc_address, receive_buffer=4096)
        must(x.ready(), "greeting")
        _, gone = pour(x.s, frame * many(300000, 3000000), 6)
        got, closed = drain(x.s, 2)
        c.note(f"{what}: {'the connection was ended' if gone or closed or goaways(got) else 'taken and answered, at no memory'}")
        x.close()


@attack(grows_mb=128)  # 64 MiB of answers may wait to be read
def window_abuse(c):
    x = H2(c.grpc_address)
    must(x.ready(), "greeting")
    x.s.sendall(h2(WINDOW_UPDATE, 0, 0, struct.pack(">I", 0x7fffffff)) * 2)
    got, closed = drain(x.s, 3, until=goaways)
    must(closed or goaways(got), "a window beyond 2^31 ends the connection")
    # Answers that may never be sent: no window at all, a hundred calls, over and over.
    held = []
    for _ in range(many(10, 100)):
        x = H2(c.grpc_address, settings=struct.pack(">HI", 4, 0))
        must(x.ready(), "greeting")
        x.s.sendall(b"".join(x.call(2 * i + 1, "/berth.v1.Control/ListWorkloads", b"") for i in range(100)))
        held.append(x)
    time.sleep(0.5)
    for x in held:
        x.close()
    # One byte at a time.
    x = H2(c.grpc_address, settings=struct.pack(">HI", 4, 1))
    must(x.ready(), "greeting")
    x.s.sendall(x.call(1, "/berth.v1.Control/GetCluster", b"") + h2(WINDOW_UPDATE, 0, 1, struct.pack(">I", 1)) * 3000)
    drain(x.s, 1)
    x.close()


@attack()
def frames_that_are_too_large(c):
    x = H2(c.grpc_address)
    must(x.ready(), "greeting")
    pour(x.s, h2(HEADERS, END_HEADERS, 1, request("/berth.v1.Control/GetCluster")) + h2(DATA, 0, 1, b"\0" * 20000), 2)
    got, closed = drain(x.s, 3, until=goaways)
    must(closed or goaways(got), "a frame beyond the frame size ends the connection")
    x = H2(c.grpc_address)
    must(x.ready(), "greeting")
    x.s.sendall(h2(HEADERS, END_HEADERS, 1, request("/berth.v1.Control/ApplyWorkload")) + h2(DATA, 0, 1, b"\0\xff\xff\xff\xff" + b"x" * 1000))
    got, _ = drain(x.s, 3, until=lambda d: any(f[0] == HEADERS for f in frames(d)))
    must(any(b"grpc-status" in f[3] or f[0] == HEADERS for f in frames(got)), "a message that says 4 GiB is refused at once")
    x.s.sendall(h2(HEADERS, END_HEADERS, 3, request("/berth.v1.Control/ApplyWorkload")) + h2(DATA, END_STREAM, 3, grpc(b"abc", 1)))
    got, _ = drain(x.s, 3, until=lambda d: any(f[0] == HEADERS and f[2] == 3 for f in frames(d)))
    must(any(f[0] == HEADERS and f[2] == 3 for f in frames(got)), "a compressed message is refused")
    x.close()


# ---- streams that nobody reads ----

@attack(grows_mb=96, seconds=30)
def streams_that_nobody_reads(c):
    held = []
    for _ in range(many(30, 200)):
        s = connect(c.address, receive_buffer=4096)
        s.sendall(http("GET", "/v1/events/stream?since=0"))
        held.append(s)
        x = H2(c.grpc_address, settings=struct.pack(">HI", 4, 65535), receive_buffer=4096)
        x.s.sendall(h2(SETTINGS, 1, 0) + x.call(1, "/berth.v1.Control/WatchEvents", msg({8: True})))
        held.append(x.s)
    # Events flow meanwhile: larger ones, so that buffers fill.
    api = c.api.fork()
    for i in range(many(600, 20000)):
        api.call("PUT", f"/v1/workloads/loud-{i % 20}", raw=rig.apply_body(f"loud-{i % 20}", 2000 + i))
    c.note(f"{len(held)} streams held unread while {many(600, 20000)} large events flowed: {rig.rss_mb(c.server.pid):.0f} MiB")
    for s in held:
        s.close()


# ---- agents ----

def hello(node):
    return msg({1: msg({1: node, 3: 4000, 4: 8192, 5: 100, 6: [4], 8: "1", 9: "01JH0000000000000000000000", 13: 1})})


def open_agent(c, node):
    x = H2(c.grpc_address)
    must(x.ready(), "greeting")
    x.s.sendall(h2(HEADERS, END_HEADERS, 1, request("/berth.v1.Agent/Connect")) + h2(DATA, 0, 1, grpc(hello(node))))
    drain(x.s, 0.3)
    return x


@attack(grows_mb=96, seconds=60)
def an_agent_with_enormous_reports(c):
    units = [msg({1: f"unit-{i:06}", 2: "rev-1", 3: token(1), 4: 2}) for i in range(90000)]
    report = grpc(msg({3: msg({1: True, 2: units})}))
    taken, start = 0, time.monotonic()
    x = open_agent(c, "mad-1")
    for _ in range(many(8, 100)):
        taken += x.send(report, 5)
    x.close()
    c.note(f"reports of 90,000 units, {len(report) >> 10} KiB each: {taken / len(report):.1f} taken in {time.monotonic() - start:.1f} s")
    x = open_agent(c, "mad-1")
    x.send(grpc(b"\0" * (5 << 20)), 5)
    got, closed = drain(x.s, 150, until=lambda d: any(f[0] == HEADERS for f in frames(d)) or rig.resets(d))
    must(closed or rig.resets(got) or any(f[0] == HEADERS for f in frames(got)), "a message beyond the limit ends the stream")
    x.close()


@attack(grows_mb=48, seconds=60)
def an_agent_with_a_flood_of_reports(c):
    n = many(100000, 1000000)
    for what, one in (("tiny reports", grpc(msg({3: msg({2: [msg({1: "u", 2: "rev-1", 3: token(1), 4: 2})]})}))), ("heartbeats", grpc(msg({2: fixed64(2, 1)})))):
        x = open_agent(c, "mad-2")
        start = time.monotonic()
        taken = x.send(one * n, many(4, 60))
        took = time.monotonic() - start
        x.close()
        c.note(f"{taken // len(one)} {what} taken in {took:.1f} s ({taken / len(one) / took:.0f} per second)")


@attack()
def agents_that_never_say_hello(c):
    held = []
    for _ in range(many(10, 50)):
        x = H2(c.grpc_address)
        must(x.ready(), "greeting")
        x.s.sendall(b"".join(h2(HEADERS, END_HEADERS, 2 * i + 1, request("/berth.v1.Agent/Connect")) for i in range(100)))
        held.append(x)
    x = H2(c.grpc_address)
    must(x.ready(), "greeting")
    x.s.sendall(h2(HEADERS, END_HEADERS, 1, request("/berth.v1.Agent/Connect")) + h2(DATA, 0, 1, grpc(b"\xff" * 100)))
    got, _ = drain(x.s, 5, until=lambda d: sum(f[0] == HEADERS for f in frames(d)) >= 2 or rig.resets(d))
    must(sum(f[0] == HEADERS for f in frames(got)) >= 2 or rig.resets(got), "a stream that begins with nonsense is ended")
    for x in held:
        x.close()


# ---- crowds ----

@attack(grows_mb=260, seconds=60)
def ten_thousand_idle_connections(c):
    hard = rig.raise_file_limit()
    with open(f"/proc/{c.server.pid}/limits") as f:
        server_limit = next(int(line.split()[3]) for line in f if line.startswith("Max open files"))
    n = min(10000, hard - 500, server_limit - 500)
    if n < 10000:
        c.note(f"scaled down to {n} connections: this machine's limit of open files is {min(hard, server_limit)}")
    before = rig.rss_mb(c.server.pid)
    held = []
    start = time.monotonic()
    for i in range(n):
        if i % 2:
            s = connect(c.address)
            s.sendall(http("GET", "/v1/health"))
        else:
            s = connect(c.grpc_address)
            s.sendall(PREFACE + h2(SETTINGS, 0, 0))
        held.append(s)
    for s in held:
        s.recv(4096)
    took = time.monotonic() - start
    after = rig.rss_mb(c.server.pid)
    cpu = rig.cpu_seconds(c.server.pid)
    time.sleep(3)
    idle_cpu = (rig.cpu_seconds(c.server.pid) - cpu) / 3
    must(rig.files_open(c.server.pid) >= n, "they are all open")
    c.note(f"{n} connections in {took:.1f} s: {(after - before) * 1024 / n:.1f} KiB each; the server's processor share with them and the bystander: {idle_cpu * 100:.0f} %")
    for s in held:
        reset(s)


# ---- what takes time: begun first, looked at last ----

class Slow:
    """Clients that take their time. Each has to be gone by its limit."""

    def __init__(self, c):
        self.c, self.began, self.cases = c, time.monotonic(), []
        add = lambda name, s, limit: self.cases.append((name, s, limit))
        for name, address, data, limit in [
                ("connects and says nothing (HTTP)", c.address, b"", 12), ("connects and says nothing (gRPC)", c.grpc_address, b"", 12),
                ("half an HTTP/2 greeting", c.grpc_address, PREFACE[:10], 12), ("HTTP/2 greeting without SETTINGS", c.grpc_address, PREFACE, 12),
                ("half a request line", c.address, b"GET /v1/wor", 12), ("a TLS greeting in the clear", c.address, b"\x16\x03\x01\x02\x00\x01", 12), ("half a body", c.address, http("PUT", "/v1/workloads/a", ["Content-Length: 1000"]) + b"{", 33),
                ("half a chunk", c.address, http("PUT", "/v1/workloads/a", ["Transfer-Encoding: chunked"]) + b"400\r\nab", 33)]:
            s = connect(address)
            s.sendall(data)
            add(name, s, limit)
        self.drips = []
        greeting = PREFACE + h2(SETTINGS, 0, 0)
        for name, address, data, limit in [
                ("one byte of headers every second", c.address, b"GET / HTTP/1.1\r\nHost: x\r\n", 12),
                ("one byte of a body every second", c.address, http("PUT", "/v1/workloads/a", ["Content-Length: 100000"]), 33),
                ("one byte of a frame every second", c.grpc_address, greeting + h2(0xfe, 0, 0, b"a" * 16000)[:9], 43)]:
            s = connect(address)
            s.sendall(data)
            add(name, s, limit)
            self.drips.append(s)
        self.open = {id(s) for _, s, _ in self.cases}
        self.ended, self.stop = {}, threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        next_drip = 0.0
        while not self.stop.is_set() and len(self.ended) < len(self.cases):
            now = time.monotonic()
            if now >= next_drip:
                next_drip = now + 1
                for s in self.drips:
                    try:
                        s.send(b"a")
                    except OSError:
                        pass
            for name, s, _ in self.cases:
                if name not in self.ended:
                    s.settimeout(0.01)
                    try:
                        if not s.recv(4096):
                            self.ended[name] = time.monotonic() - self.began
                    except TimeoutError:
                        pass
                    except OSError:
                        self.ended[name] = time.monotonic() - self.began
            self.stop.wait(0.05)

    def judge(self):
        deadline = self.began + 46
        while len(self.ended) < len(self.cases) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.stop.set()
        self.thread.join()
        late = [f"{name}: {'after %.1f s' % self.ended[name] if name in self.ended else 'still open'}, limit {limit} s" for name, _, limit in self.cases
                if self.ended.get(name, 1e9) > limit]
        for _, s, _ in self.cases:
            s.close()
        self.c.note("slow clients were cut off after " + ", ".join(f"{self.ended.get(name, 0):.0f} s" for name, _, _ in self.cases))
        must(not late, "; ".join(late))
        with open(os.path.join(self.c.dir, "node-1.log")) as f:
            must(f.read().count("msg=connected") == 1, "the agent's connection, which is no stranger's, went on")


def slow_tls(directory, note):
    """A server of its own with TLS: greetings that stall, garbage, renegotiation of nothing; proper clients get through meanwhile."""
    cert, key = os.path.join(directory, "c.pem"), os.path.join(directory, "k.pem")
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj",
                           "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"], capture_output=True, check=False)
    must(made.returncode == 0, made.stderr.decode())
    case = berthtest.Case()
    case.setUp()
    c = berthtest.Cluster(case, server=False, server_args=["--tls-cert", cert, "--tls-key", key])
    c._watch = lambda: None  # the library's watcher speaks in the clear
    try:
        c.start_server()
        context = ssl.create_default_context(cafile=cert)
        good = lambda: context.wrap_socket(connect(c.address), server_hostname="127.0.0.1")
        before = rig.rss_mb(c.server.pid)
        held = []
        for i in range(many(300, 3000)):
            s = connect(c.address if i % 2 else c.grpc_address)
            s.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[:i % 12] + (b"" if i % 3 else rig.garbage(100, i)))
            held.append(s)
        took = []
        for _ in range(20):
            start = time.monotonic()
            s = good()
            s.sendall(http("GET", "/v1/health"))
            must(statuses(s.recv(4096)) == [200], "a proper TLS client is served")
            took.append(time.monotonic() - start)
            s.close()
        deadline = time.monotonic() + 13
        while rig.files_open(c.server.pid) > 60 and time.monotonic() < deadline:
            time.sleep(0.2)
        left = rig.files_open(c.server.pid)
        note(f"{len(held)} TLS greetings that stall: a proper client's p99 {rig.percentile(took, 0.99) * 1000:.0f} ms, memory +{rig.rss_mb(c.server.pid) - before:.0f} MiB, "
             f"{left} descriptors open after the limit")
        must(left <= 60, f"{left} descriptors are still open after the handshake's limit")
        must(rig.percentile(took, 0.99) * 1000 < 4 * rig.P99_MS, "a proper TLS client waited too long")
        for s in held:
            s.close()
        must(c.server.stop() == 0, "the server with TLS stops in order")
    finally:
        c.closing = True
        c.kill_all()
        shutil.rmtree(c.dir, ignore_errors=True)


# ---- the run ----

def settled(fn, seconds):
    deadline = time.monotonic() + seconds
    while not fn() and time.monotonic() < deadline:
        time.sleep(0.1)
    return fn()


class Run:
    def __init__(self):
        self.passed = self.failed = 0
        self.lag = rig.Lag()

    def result(self, name, problems, text):
        if problems:
            self.failed += 1
        else:
            self.passed += 1
        print(f"{'not ok' if problems else 'ok'} {name}: {text}", flush=True)
        for p in problems:
            print(f"#   {p}", flush=True)

    def attack(self, c, bystander, name, fn, grows_mb, seconds):
        notes, problems = [], []
        c.note = notes.append
        before, start = rig.rss_mb(c.server.pid), time.monotonic()
        try:
            fn(c)
        except Failure as e:
            problems.append(str(e))
        except (OSError, berthtest.Gone) as e:
            problems.append(f"{type(e).__name__}: {e}\n" + traceback.format_exc(limit=-2))
        end = time.monotonic()
        time.sleep(0.3)  # what the bystander began meanwhile
        after = rig.rss_mb(c.server.pid) if c.server.alive() else 0
        took, failed = bystander.between(start, time.monotonic())
        p99 = {k: rig.percentile(v, 0.99) * 1000 for k, v in took.items()}
        if not c.server.alive():
            problems.append(f"the server ended; its log:\n{c.tail('server')}")
        if after - before > grows_mb:
            problems.append(f"the server grew by {after - before:.0f} MiB, more than {grows_mb}")
        seconds *= many(1, 8)  # larger numbers take longer
        if end - start > seconds:
            problems.append(f"it took {end - start:.1f} s, more than {seconds}")
        if failed:
            problems.append(f"the bystander saw {len(failed)} failures: {failed[:3]}")
        bound = self.lag.bound_ms(rig.P99_MS, start, end)
        if any(v > bound for v in p99.values()):
            problems.append(f"the bystander waited longer than {bound:.0f} ms")
        self.result(name, problems, f"{end - start:.1f} s, memory {before:.0f} -> {after:.0f} MiB (bound +{grows_mb}), bystander p99 apply {p99['apply']:.0f} ms, read {p99['read']:.0f} ms "
                                    f"(bound {bound:.0f}; {len(took['read'])} rounds)")
        for n in notes:
            print(f"##  {n}", flush=True)
        return c.server.alive()


def main():
    global FULL
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true", help="larger numbers")
    parser.add_argument("--berth")
    parser.add_argument("-l", "--list", action="store_true")
    parser.add_argument("name", nargs="*")
    args = parser.parse_args()
    FULL = args.full
    if args.list:
        print("\n".join(a[0] for a in ATTACKS))
        return 0
    if args.berth:
        berthtest.BERTH = os.path.abspath(args.berth)
    rig.raise_file_limit()
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    run = Run()
    case = berthtest.Case()
    case.setUp()
    chosen = [a for a in ATTACKS if not args.name or any(n in a[0] for n in args.name)]
    c = case.cluster(nodes=1)
    c.leftovers_allowed = True
    idle_files = rig.files_open(c.server.pid)
    bystander = rig.Bystander(c.address)
    try:
        start = time.monotonic()
        time.sleep(1)
        took, _ = bystander.between(start, time.monotonic())
        print(f"## undisturbed: p99 apply {rig.percentile(took['apply'], 0.99) * 1000:.0f} ms, read {rig.percentile(took['read'], 0.99) * 1000:.0f} ms; "
              f"{rig.rss_mb(c.server.pid):.0f} MiB", flush=True)
        slow = Slow(c) if not args.name or "slow" in args.name else None
        tls_notes, tls_problems = [], []

        def tls():
            try:
                slow_tls(c.dir, tls_notes.append)
            except (Failure, OSError, AssertionError) as e:
                tls_problems.append(f"{type(e).__name__}: {e}")
        tls_thread = threading.Thread(target=tls)
        if slow:
            tls_thread.start()
        for name, fn, grows_mb, seconds in chosen:
            if not run.attack(c, bystander, name, fn, grows_mb, seconds):
                break
        if slow and c.server.alive():
            run.attack(c, bystander, "slow clients", lambda _: slow.judge(), 24, 50)
        if slow:
            tls_thread.join()
            run.result("slow tls", tls_problems, "; ".join(tls_notes))
        # Afterwards.
        problems = []
        if c.server.alive():
            bystander.stop()
            health = c.api.fork().get("/v1/health")
            if health.status != 200 or health.json.get("status") != "ok":
                problems.append(f"not healthy: {health}")
            if not settled(lambda: rig.files_open(c.server.pid) <= idle_files + 10, 15):
                problems.append(f"{rig.files_open(c.server.pid)} descriptors are open, {idle_files} before")
            nodes = [n for n in c.nodes() if n["id"] == "node-1"]
            if not nodes or nodes[0]["status"] != "Ready":
                problems.append(f"the agent's node suffered: {nodes}")
            run.result("healthy afterwards", problems, f"{rig.rss_mb(c.server.pid):.0f} MiB, {rig.files_open(c.server.pid)} descriptors ({idle_files} before), node-1 Ready")
            problems = []
            try:
                c.server.stop()
                c.fsck()
            except AssertionError as e:
                problems.append(str(e)[:2000])
            run.result("stops and passes fsck", problems, "")
    finally:
        run.lag.stop()
        if bystander.process.is_alive():
            bystander.process.terminate()
        c.closing = True
        c.kill_all()
        shutil.rmtree(c.dir, ignore_errors=True)
    print(f"{run.passed} passed, {run.failed} failed")
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
