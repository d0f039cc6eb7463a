"""load.py: clients that write and read through all replicas at once, and write down what they asked and what they were told.

Each key is a workload that is meant to be stopped: only clients change it, so it is a register (linear.py). Its value is an environment variable that no two writes
share; its version is the ETag. Beside them, Live applies and deletes workloads that really run on agents, and remembers what was acknowledged.
"""
import http.client
import json
import random
import socket
import threading
import time

from linear import INF, Op

CLIENT_SECONDS = (1, 2, 4, 15)  # how long clients wait for an answer: some less than the servers' own deadline, some more


class NotSent(Exception):
    """The replica could not be connected to: nothing happened."""


class Lost(Exception):
    """The request may have arrived; there was no answer."""


class Connection:
    """HTTP to one replica; says whether a request that was not answered was sent."""

    def __init__(self, address, timeout):
        self.address, self.timeout, self.http = address, timeout, None

    def call(self, method, path, body=None, headers=None):
        fresh = self.http is None
        try:
            if fresh:
                host, port = self.address.rsplit(":", 1)
                self.http = http.client.HTTPConnection(host, int(port), timeout=self.timeout)
                self.http.connect()
                self.http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as e:
            self.close()
            raise NotSent(str(e)) from e
        try:
            data = None if body is None else json.dumps(body).encode()
            self.http.request(method, path, data, {**(headers or {}), **({"Content-Type": "application/json"} if data else {})})
            response = self.http.getresponse()
            text = response.read()
            if response.will_close:
                self.close()
            return response.status, response.headers, text
        except (OSError, http.client.HTTPException) as e:
            self.close()
            raise Lost(f"{type(e).__name__}: {e}") from e

    def close(self):
        if self.http:
            self.http.close()
            self.http = None


def error_of(text):
    """The words of an error: message and detail."""
    try:
        e = json.loads(text)
        e = e.get("error", e)
        return " ".join(str(e.get(k, "")) for k in ("message", "detail", "hint")) if isinstance(e, dict) else str(e)
    except ValueError:
        return text.decode(errors="replace")


def outcome_of(op, status, text):
    """The word of linear.py for an answer; None: certainly nothing happened, and nothing can be learnt from it."""
    if status in (200, 201):
        return "ok"
    words = error_of(text)
    if op.kind == "read":
        return "absent" if status == 404 else None
    if status == 404:
        return "absent"
    if status == 409 and "being deleted" in words:
        return "absent"
    if status == 409 and "exists already" in words:
        return "exists"
    if status == 409 and "changed by somebody else" in words:
        return "conflict"
    if status in (400, 401, 403, 405, 422, 409):
        raise AssertionError(f"an answer that cannot be: {op}: {status} {text[:500]!r}")
    if status == 429 or any(w in words for w in ("nothing was changed", " cannot connect to ")):
        return None  # turned away at the door
    return "unknown"  # 503 and 504 say "may still happen"


class Load:
    """Clients in threads. `pause()` holds them between two operations."""

    def __init__(self, rig, keys=12, clients=8, seed=1, rate=None):
        self.rig, self.keys, self.seed, self.rate = rig, [f"key-{i}" for i in range(keys)], seed, rate
        self.lock, self.ops, self.ended, self.errors = threading.Lock(), [], False, []
        self.latest = {}  # key -> (value, version), as somebody was told last: what If-Match is tried with
        self.go = threading.Event()
        self.go.set()
        self.serial = 0
        self.threads = [threading.Thread(target=self.client, args=(i,), daemon=True) for i in range(clients)]

    def start(self):
        for t in self.threads:
            t.start()
        return self

    def stop(self):
        self.ended = True
        self.go.set()
        for t in self.threads:
            t.join()
        if self.errors:
            raise self.errors[0]

    def count(self):
        with self.lock:
            return len(self.ops)

    def last_write(self):
        """When the last acknowledged write began."""
        with self.lock:
            return max((o.start for o in self.ops if o.outcome == "ok" and o.kind != "read"), default=0)

    def first_write_after(self, moment, other_than=None):
        """The first acknowledged write that was asked for after a moment: (when it was answered, by whom); None: not yet."""
        with self.lock:
            done = [o for o in self.ops if o.outcome == "ok" and o.kind != "read" and o.start >= moment and o.where != other_than]
        return min(((o.end, o.where) for o in done), default=None)

    # ---- one client ----

    def client(self, number):
        rng = random.Random(f"{self.seed}-{number}")
        connections = [Connection(r.http, CLIENT_SECONDS[number % len(CLIENT_SECONDS)]) for r in self.rig.replicas]
        at = number % len(connections)
        try:
            while not self.ended:
                self.go.wait()
                if self.rate:
                    time.sleep(rng.expovariate(self.rate))
                if rng.random() < 0.1:
                    at = rng.randrange(len(connections))
                at = self.one(rng, number, connections, at)
        except Exception as e:  # pylint: disable=broad-except
            self.errors.append(e)
        finally:
            for c in connections:
                c.close()

    def choose(self, rng, number):
        key = rng.choice(self.keys)
        with self.lock:
            self.serial += 1
            value, latest = f"v{number}-{self.serial}", self.latest.get(key)
        kind = rng.choices(["read", "cas", "write", "create", "delete", "delete_if"], [35, 35, 12, 8, 6, 4])[0]
        if kind in ("cas", "delete_if") and not latest:
            kind = "create"
        op = Op(key, kind, 0, client=f"c{number}", value=value if kind in ("cas", "write", "create") else None)
        version = None
        if kind in ("cas", "delete_if"):
            op.expected, version = latest
        return op, version

    def request(self, op, version):
        path = f"/v1/workloads/{op.key}"
        headers = {"If-Match": f'"{version}"'} if version else {}
        body = self.rig.manifest(op.key, env={"V": op.value}, desired_state="Stopped") if op.value else None
        if op.kind == "read":
            return "GET", path + "?consistent=true", None, {}
        if op.kind == "create":
            return "POST", "/v1/workloads", body, {}
        return ("DELETE" if op.kind.startswith("delete") else "PUT"), path, body, headers

    def one(self, rng, number, connections, at):
        """One operation at one replica; returns which replica to ask next."""
        op, version = self.choose(rng, number)
        request = self.request(op, version)
        op.where = self.rig.replicas[at].name
        other = (at + 1) % len(connections)
        op.start = time.monotonic()
        try:
            status, headers, text = connections[at].call(*request)
        except NotSent:
            time.sleep(0.02)
            return other
        except Lost:
            if op.kind != "read":
                self.add(op)
            return other
        op.end = time.monotonic()
        op.outcome = outcome_of(op, status, text)
        if op.outcome is None:
            time.sleep(0.05)
            return other
        if op.outcome == "unknown":
            op.end = INF
        self.learn(op, headers, text)
        self.add(op)
        if op.outcome == "unknown":
            time.sleep(0.1)
            return other
        return at

    def learn(self, op, headers, text):
        """Completes an operation with what its answer tells."""
        if op.kind == "read":
            w = json.loads(text) if op.outcome == "ok" else {"desired_state": "Deleted"}
            # A workload that is being deleted is gone as far as its users are concerned.
            op.outcome, op.value = "ok", None if w.get("desired_state") == "Deleted" else w["spec"]["env"]["V"]
        etag = (headers.get("ETag") or "").strip('"')
        if op.outcome == "ok" and op.value is not None and etag:
            op.version = int(etag)
            with self.lock:
                if op.version > self.latest.get(op.key, ("", 0))[1]:
                    self.latest[op.key] = (op.value, op.version)

    def add(self, op):
        with self.lock:
            self.ops.append(op)

    def final_reads(self, where=None):
        """What is there now is part of the history: for when nothing is broken any more."""
        for key in self.keys:
            op = Op(key, "read", time.monotonic(), client="last", where=where.name if where else "any")
            path = f"/v1/workloads/{key}?consistent=true"
            a = where.api().get(path) if where else self.rig.get(path)
            op.end = time.monotonic()
            op.outcome = outcome_of(op, a.status, a.body)
            if op.outcome is None:
                raise AssertionError(f"{op}: {a}")
            self.learn(op, a.headers, a.body)
            self.ops.append(op)

    def describe(self):
        unknown = sum(o.outcome == "unknown" for o in self.ops)
        refused = sum(o.outcome in ("conflict", "exists", "absent") for o in self.ops)
        reads = sum(o.kind == "read" for o in self.ops)
        return f"{len(self.ops)} operations on {len(self.keys)} keys by {len(self.threads)} clients: {reads} reads, {refused} refused, {unknown} of unknown outcome"


class Live:
    """Workloads that run: applied and deleted all the time; what was acknowledged must be so in the end."""

    def __init__(self, rig, make, slots=12, seed=1, every=0.25):
        self.rig, self.make, self.slots, self.every, self.rng = rig, make, slots, every, random.Random(f"live-{seed}")
        self.wanted, self.ended, self.error, self.acknowledged = {}, False, None, 0
        self.thread = threading.Thread(target=self.run, daemon=True)

    def start(self):
        self.thread.start()
        return self

    def stop(self):
        self.ended = True
        self.thread.join()
        if self.error:
            raise self.error

    def ask(self, method, path, body=None):
        """Until it is acknowledged: an apply and a delete may be repeated."""
        while not self.ended:
            for r in self.rig.replicas:
                c = Connection(r.http, timeout=3)
                try:
                    status, _, text = c.call(method, path, body)
                    if status in (200, 201, 404):
                        return True
                    if status == 409 and "being deleted" not in error_of(text):
                        raise AssertionError(f"{method} {path}: {status} {text[:300]!r}")
                except (NotSent, Lost):
                    pass
                finally:
                    c.close()
            time.sleep(0.1)
        return False

    def run(self):
        try:
            for i in range(1_000_000):
                if self.ended:
                    return
                name = f"live-{self.rng.randrange(self.slots)}"
                if name in self.wanted and self.rng.random() < 0.3:
                    if self.ask("DELETE", f"/v1/workloads/{name}"):
                        self.wanted.pop(name)
                        self.acknowledged += 1
                elif self.ask("PUT", f"/v1/workloads/{name}", self.make(name, i)):
                    self.wanted[name] = i
                    self.acknowledged += 1
                time.sleep(self.every)
        except Exception as e:  # pylint: disable=broad-except
            self.error = e
