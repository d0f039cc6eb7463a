"""rig: a real server under attack: its memory, a bystander who must not notice, and what attackers share."""
import json
import multiprocessing
import os
import random
import resource
import signal
import socket
import struct
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
import berthtest  # noqa: E402
from wire import ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PREFACE, RST_STREAM, SETTINGS, WINDOW_UPDATE, frames, grpc, h2, request  # noqa: E402

P99_MS = float(os.environ.get("HOSTILE_P99_MS", "500"))  # what a bystander may see; the machine of a test is shared


def raise_file_limit():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def rss_mb(pid):
    with open(f"/proc/{pid}/status") as f:
        for line in f:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    return 0.0


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", "rb") as f:
        fields = f.read().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def files_open(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else float("nan")


def _lag(pipe):
    """How late this machine lets a process run: sleeps 2 ms and computes for about 1 ms, over and over, and tells how much longer that took than it does at best."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    best = 1e9
    while not pipe.poll(0):
        start = time.monotonic()
        time.sleep(0.002)
        sum(range(20000))
        took = time.monotonic() - start
        best = min(best, took)
        pipe.send((time.monotonic(), took - best))
    pipe.send(None)


class Told:
    """A process that measures, and the thread that takes down what it tells."""

    def __init__(self, target, *args):
        self.pipe, child = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=target, args=(*args, child), daemon=True)
        self.process.start()
        self.seen = []
        self.thread = threading.Thread(target=self._collect, daemon=True)
        self.thread.start()

    def _collect(self):
        try:
            while (item := self.pipe.recv()) is not None:
                self.seen.append(item)
        except (EOFError, OSError):
            pass

    def stop(self):
        if self.process.is_alive():
            self.pipe.send("stop")
        self.process.join(30)
        self.thread.join(5)


class Lag(Told):
    """A bound on a server's answers says nothing about a machine that lets nobody run. What is measured here beside it is allowed on top: a call waits for a processor
    about ten times (client, io, ring, store, io, client, and their system calls)."""

    def __init__(self):
        super().__init__(_lag)

    def p99_ms(self, start, end):
        late = [seconds for when, seconds in list(self.seen) if start <= when <= end]
        return percentile(late, 0.99) * 1000 if late else 0.0

    def bound_ms(self, bound, start, end):
        return bound + 10 * self.p99_ms(start, end)


def _bystander(address, pipe):
    """A proper client with one kept connection: applies a workload and reads it, over and over. Tells (when it ended, kind, how long, status) of each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    api = berthtest.Api(address, timeout=20)
    round_number = 0
    while not pipe.poll(0):
        round_number += 1
        name = f"bystander-{round_number % 50}"
        body = {"id": name, "spec": {"command": ["sleep", "1"], "env": {"ROUND": str(round_number)}}, "resources": {"cpu": 0.1, "memory_mb": 1}}
        for kind, args in (("apply", ("PUT", f"/v1/workloads/{name}", body)), ("read", ("GET", f"/v1/workloads/{name}"))):
            start = time.monotonic()
            try:
                status = api.call(*args).status
            except berthtest.Gone as e:
                status = str(e)
            end = time.monotonic()
            pipe.send((end, kind, end - start, status))
        time.sleep(0.01)
    pipe.send(None)


class Bystander(Told):
    def __init__(self, address):
        super().__init__(_bystander, address)

    def between(self, start, end):
        """{kind: [seconds]} and what failed, of what ended in this time."""
        took, failed = {"apply": [], "read": []}, []
        for when, kind, seconds, status in list(self.seen):
            if start <= when <= end:
                took[kind].append(seconds)
                if status not in (200, 201):
                    failed.append(status)
        return took, failed


# ---- attackers' tools ----

def connect(address, timeout=10, receive_buffer=None):
    host, port = address.rsplit(":", 1)
    s = socket.socket()
    s.settimeout(timeout)
    if receive_buffer:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    s.connect((host, int(port)))
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


def pour(s, data, seconds=3.0):
    """Sends as much as the peer takes within this time. (bytes taken, True if the peer ended the connection)"""
    s.settimeout(0.2)
    view, sent, deadline = memoryview(data), 0, time.monotonic() + seconds
    while sent < len(view) and time.monotonic() < deadline:
        try:
            sent += s.send(view[sent:sent + 262144])
        except (TimeoutError, BlockingIOError):
            continue
        except OSError:
            return sent, True
    return sent, False


def drain(s, seconds=2.0, limit=1 << 22, until=None):
    """What the peer sends until it closes, the time is over, or until(bytes) is true. (bytes, True if it closed)"""
    out, deadline = b"", time.monotonic() + seconds
    s.settimeout(0.1)
    while time.monotonic() < deadline and len(out) < limit:
        try:
            got = s.recv(65536)
        except (TimeoutError, BlockingIOError):
            if until and until(out):
                return out, False
            continue
        except OSError:
            return out, True
        if not got:
            return out, True
        out += got
        if until and until(out):
            return out, False
    return out, False


def is_closed(s, seconds=0.0):
    """Has the peer ended the connection? What it still sends is read and dropped."""
    return drain(s, seconds if seconds else 0.15)[1]


def reset(s):
    """Away without a goodbye."""
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


class H2:
    """A gRPC connection whose every frame we write ourselves."""

    def __init__(self, address, settings=b"", **kw):
        self.s = connect(address, **kw)
        self.s.sendall(PREFACE + h2(SETTINGS, 0, 0, settings))

    def ready(self):
        """Waits for the server's greeting; how much may be sent is known then."""
        data, closed = drain(self.s, 5, until=lambda d: any(f[0] == SETTINGS for f in frames(d)))
        data += drain(self.s, 0.1, limit=1)[0]
        self.stream_window = self.connection_window = 65535
        for kind, flags, stream, payload in frames(data):
            if kind == SETTINGS and not flags & ACK:
                for at in range(0, len(payload), 6):
                    if int.from_bytes(payload[at:at + 2], "big") == 4:
                        self.stream_window = int.from_bytes(payload[at + 2:at + 6], "big")
            elif kind == WINDOW_UPDATE and stream == 0:
                self.connection_window += int.from_bytes(payload, "big")
        self.s.settimeout(10)
        self.s.sendall(h2(SETTINGS, ACK, 0))
        return not closed

    def send(self, packed, seconds):
        """Bytes of stream 1, as fast as flow control lets them. Returns how many were taken."""
        at, rest, deadline = 0, b"", time.monotonic() + seconds
        while at < len(packed) and time.monotonic() < deadline:
            size = min(16000, self.stream_window, self.connection_window, len(packed) - at)
            try:
                if size > 0:
                    self.s.settimeout(5)
                    self.s.sendall(h2(DATA, 0, 1, packed[at:at + size]))
                    at += size
                    self.stream_window -= size
                    self.connection_window -= size
                self.s.settimeout(0.0 if min(self.stream_window, self.connection_window) > 16000 else 0.05)
                got = self.s.recv(65536)
                if not got:
                    return at
                rest += got
            except (TimeoutError, BlockingIOError):
                continue
            except OSError:
                return at
            used = 0
            for kind, _, stream, payload in frames(rest):
                used += 9 + len(payload)
                if kind == WINDOW_UPDATE and stream == 0:
                    self.connection_window += int.from_bytes(payload, "big")
                elif kind == WINDOW_UPDATE:
                    self.stream_window += int.from_bytes(payload, "big")
            rest = rest[used:]
        return at

    def call(self, stream, path, message=None, end=True):
        data = h2(HEADERS, END_HEADERS, stream, request(path))
        if message is not None:
            data += h2(DATA, END_STREAM if end else 0, stream, grpc(message))
        return data

    def close(self):
        self.s.close()


def goaways(data):
    return [int.from_bytes(p[4:8], "big") for kind, _, _, p in frames(data) if kind == GOAWAY]


def resets(data):
    return [s for kind, _, s, _ in frames(data) if kind == RST_STREAM]


def http(method, path, headers=(), body=b""):
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def statuses(data):
    """Of HTTP answers, in order."""
    return [int(part[:3]) for part in data.split(b"HTTP/1.1 ")[1:] if part[:3].isdigit()]


def garbage(n, seed):
    return random.Random(seed).randbytes(n)


def apply_body(name, size=0):
    body = {"id": name, "spec": {"command": ["sleep", "1"]}, "resources": {"cpu": 0.1, "memory_mb": 1}}
    if size:
        body["labels"] = {"filler": "x" * 60}
        body["spec"]["env"] = {"FILL": "y" * size}
    return json.dumps(body).encode()
