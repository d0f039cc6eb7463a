"""berthtest: real berth processes in a temporary place, and what a test needs to watch them.

    class Hello(berthtest.Case):
        def test_runs(self):                       # R: C6
            c = self.cluster(nodes=2)              # a server and two agents, ports chosen by the kernel
            c.apply("hello", command=["sleep", "1000"])
            c.wait_phase("hello", "Running")

Nothing here sleeps where an event can be awaited: wait_for() looks again whenever the server's event stream says that something happened (and four
times a second for what has no event, such as a process that ends). Every process carries a mark in its environment, so that after a test it can be
proved that nothing is left running. After every test each data directory is put through `berth fsck`: its records are the fold of its events.
"""
import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse
import uuid

import etcd

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BERTH = os.path.abspath(os.environ.get("BERTH_BINARY", os.path.join(ROOT, "build", "berth")))
FULL = os.environ.get("BERTH_TEST_FULL") == "1"
MARK = "BERTH_TEST_MARK"
TIMEOUT = float(os.environ.get("BERTH_TEST_TIMEOUT", "60"))  # generous: a busy machine must not fail a test
ETCD = os.environ.get("BERTH_TEST_ETCD")  # host:port of an etcd: every cluster keeps its state there, below a prefix of its own (run.py --store etcd)
RESTART_SECONDS = 10 if ETCD else 0  # beyond what a restart takes anyway, after kill -9: the lease of the dead leader has to run out


def only_embedded(why):
    """For a test, or a class of tests, that cannot be about a store in etcd: skipped there, with a sentence."""
    return unittest.skipIf(ETCD, why)


def note(text):
    """A measured number: shown in the report even when the test passes."""
    print("## " + text, flush=True)


class Gone(Exception):
    """The server did not answer: not reachable, or it went away during the call."""


class Answer:
    """What the server said: status, headers, body and, if it is JSON, the value."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def etag(self):
        return self.headers.get("ETag")

    def __repr__(self):
        return f"<{self.status} {self.body[:600]!r}>"


def http_connection(address, timeout, tls):
    """tls: an ssl.SSLContext, or None for the clear."""
    host, port = address.rsplit(":", 1)
    if tls:
        return http.client.HTTPSConnection(host, int(port), timeout=timeout, context=tls)
    return http.client.HTTPConnection(host, int(port), timeout=timeout)


class Api:
    """REST over one kept connection. Not for two threads at once: each takes its own with fork()."""

    def __init__(self, address, timeout=TIMEOUT, tls=None, token=None):
        self.address, self.timeout, self.tls, self.token, self.connection = address, timeout, tls, token, None

    def fork(self):
        return Api(self.address, self.timeout, self.tls, self.token)

    def call(self, method, path, body=None, headers=None, raw=None):
        headers = dict(headers or {})
        if self.token:
            headers.setdefault("Authorization", "Bearer " + self.token)
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        if data is not None:
            headers.setdefault("Content-Type", "application/json")
        for attempt in (1, 2):
            fresh = self.connection is None
            try:
                if fresh:
                    self.connection = http_connection(self.address, self.timeout, self.tls)
                    self.connection.connect()
                    self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.connection.request(method, path, data, headers)
                response = self.connection.getresponse()
                body_read = response.read()
                if response.will_close:
                    self.close()
                return Answer(response.status, response.headers, body_read)
            except (OSError, http.client.HTTPException) as e:
                self.close()
                # A kept connection may have been closed meanwhile; only what is harmless to repeat is sent again.
                if fresh or method != "GET" or attempt == 2:
                    raise Gone(f"{method} {path}: {type(e).__name__}: {e}") from e

    def close(self):
        if self.connection:
            self.connection.close()
            self.connection = None

    def get(self, path, **query):
        query = {k: ("true" if v is True else v) for k, v in query.items() if v is not None}
        return self.call("GET", path + ("?" + urllib.parse.urlencode(query) if query else ""))


class EventStream:
    """Server-sent events: iterate to get (id, event name, data)."""

    def __init__(self, address, since=None, timeout=TIMEOUT, tls=None, token=None, **query):
        self.connection = http_connection(address, timeout, tls)
        headers = {"Accept": "text/event-stream"}
        if token:
            headers["Authorization"] = "Bearer " + token
        if since is not None:
            headers["Last-Event-ID"] = str(since)
        path = "/v1/events/stream" + ("?" + urllib.parse.urlencode(query) if query else "")
        try:
            self.connection.request("GET", path, headers=headers)
            # Kept apart from the connection, so that another thread can close it under a blocked reader.
            self.socket = self.connection.sock
            self.response = self.connection.getresponse()
        except (OSError, http.client.HTTPException) as e:
            raise Gone(str(e)) from e
        if self.response.status != 200:
            raise Gone(f"events: {self.response.status} {self.response.read(500)!r}")

    def __iter__(self):
        ident, name, data = None, None, []
        while True:
            try:
                line = self.response.readline()
            except (OSError, http.client.HTTPException, ValueError, AttributeError):
                return
            if not line:
                return
            line = line.decode().rstrip("\r\n")
            if not line:
                if data:
                    yield ident, name, json.loads("\n".join(data))
                name, data = None, []
            elif line.startswith("id:"):
                ident = line[3:].strip()
            elif line.startswith("event:"):
                name = line[6:].strip()
            elif line.startswith("data:"):
                data.append(line[5:].lstrip())

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.connection.close()


class Process:
    """One berth process with its log in a file."""

    def __init__(self, name, argv, env, log):
        self.name, self.argv, self.log = name, argv, log
        with open(log, "ab") as out:
            out.write((f"$ {' '.join(argv)}\n").encode())
            out.flush()
            self.popen = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True)

    @property
    def pid(self):
        return self.popen.pid

    def alive(self):
        return self.popen.poll() is None

    def signal(self, number):
        with contextlib.suppress(ProcessLookupError):
            self.popen.send_signal(number)

    def kill(self):
        """kill -9, and wait until the kernel has taken it."""
        self.popen.kill()
        self.popen.wait()

    def stop(self, timeout=20):
        """SIGTERM; returns the exit status."""
        self.signal(signal.SIGTERM)
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not end within {timeout} s of SIGTERM") from None


class Result:
    """What a command printed and how it ended."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __repr__(self):
        return f"<exit {self.code}\nstdout: {self.out[:2000]}\nstderr: {self.err[:2000]}>"


def processes_with(mark):
    """{pid: command line} of all live processes that carry the mark in their environment."""
    found = {}
    needle = f"{MARK}={mark}".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as f:
                if needle not in f.read().split(b"\0"):
                    continue
            with open(f"/proc/{entry}/stat", "rb") as f:
                if f.read().rpartition(b")")[2].split()[0] in (b"Z", b"X"):
                    continue
            with open(f"/proc/{entry}/cmdline", "rb") as f:
                found[int(entry)] = f.read().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
    return found


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


class Cluster:
    """A server and its agents, each a process of its own, below one temporary directory."""

    def __init__(self, case, nodes=0, server=True, server_args=(), agent_args=(), heartbeat=None, silence=None, grace=None, fast=True, mark=None):
        self.case = case
        self.mark = mark or case.mark  # of its own for one of several clusters that are closed one after the other
        self.dir = tempfile.mkdtemp(prefix="berth-e2e-")
        self.data = os.path.join(self.dir, "server")
        self.store = None  # as in --store; None: the embedded one, in the data directory
        if ETCD and "--store" not in server_args:
            self.new_store()
        self.server_args = list(server_args)
        self.agent_args = list(agent_args)
        if heartbeat:
            self.server_args += ["--heartbeat", heartbeat]
        if silence:
            self.server_args += ["--silence", str(silence)]
        if grace:
            self.server_args += ["--grace", grace]
        self.server = None
        self.server_binary = self.agent_binary = self.cli_binary = BERTH  # tests of two versions give others
        self.agents = {}
        self.address = self.grpc_address = None
        self.tls = None  # an ssl.SSLContext: how the test itself talks to the server
        self.token = None  # and as whom; want_tokens() makes it the first admin's
        self.listen = "127.0.0.1:0"
        self.grpc_listen = "127.0.0.1:0"
        self.changed = threading.Condition()
        self.changes = 0
        self.watcher = None
        self.closing = False
        self.leftovers_allowed = False
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("BERTH_")}
        # Tests of containers say so themselves: everybody else must not depend on what engine the machine has.
        self.env.update({MARK: self.mark, "TMPDIR": self.dir, "HOME": self.dir, "BERTH_RUNTIME": "process", "BERTH_AUTH": "none"})
        # Units write into the test's own directory and are sent signals by it, so they run as the agent does, usually root: that is what these two allow.
        # A test of what is refused by default calls want_policy().
        self.env.update({"BERTH_ALLOW": "all", "BERTH_UNIT_USERS": "none"})
        if server:
            self.start_server()
        for i in range(nodes):
            self.start_agent(f"node-{i + 1}")
        if nodes:
            self.wait_nodes_ready(nodes)

    def new_store(self):
        """An empty store for the next start of the server, as if the old one had been lost with its disk."""
        if ETCD:
            self.store = f"etcd://{ETCD}/{uuid.uuid4().hex}"
        else:
            shutil.rmtree(self.data, ignore_errors=True)

    def give_key(self, name):
        """Another server of this cluster, with its data in a directory of this name, gets the cluster's key: all have the same."""
        keys = [os.path.join(self.dir, d, "cluster.key") for d in sorted(os.listdir(self.dir))]
        keys = [k for k in keys if os.path.exists(k)]
        data = os.path.join(self.dir, name)
        if keys:
            os.makedirs(data, exist_ok=True)
            shutil.copy(keys[0], data)
        else:
            self.ok("key", "new", "--data", data, server=False)

    def store_args(self):
        return ["--store", self.store] if self.store else []

    def stored_keys(self):
        """The keys of all records, read as an operator would: with the store's own tool."""
        if self.store:
            return {k[len("/" + self.store.rpartition("/")[2]):] for k in etcd.get(ETCD, "/" + self.store.rpartition("/")[2] + "/")}
        with contextlib.closing(sqlite3.connect(f"file:{self.data}/berth.db?mode=ro", uri=True)) as db:
            return {r[0] if isinstance(r[0], str) else r[0].decode() for r in db.execute("select key from records")}

    # ---- processes ----

    def want_tokens(self):
        """Before the start: the server is as safe as it is by default."""
        self.env.pop("BERTH_AUTH", None)

    def want_policy(self):
        """Before the start: units may ask for nothing, as it is by default."""
        self.env.pop("BERTH_ALLOW", None)
        self.env.pop("BERTH_UNIT_USERS", None)

    def start_server(self, wrapper=(), args=(), wait=True):
        """Starts it and waits until it serves. After the first start it keeps its addresses, as a real one would."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.data, "server.address"))
        argv = [*wrapper, self.server_binary, "server", "--data", self.data, "--http", self.listen, "--grpc", self.grpc_listen, *self.server_args,
                *(self.store_args() if "--store" not in args else []), *args]
        self.server = Process("server", argv, self.env, os.path.join(self.dir, "server.log"))
        if wait:
            self.wait_serving()
        return self.server

    def wait_serving(self, timeout=TIMEOUT):
        path = os.path.join(self.data, "server.address")
        deadline = time.monotonic() + timeout
        while True:
            try:
                with open(path) as f:
                    lines = dict(line.strip().split("=", 1) for line in f if "=" in line)
                if "http" in lines and "grpc" in lines and self.server.alive():
                    break
            except FileNotFoundError:
                pass
            if not self.server.alive():
                raise AssertionError(f"the server ended with {self.server.popen.returncode}; its log:\n{self.tail('server')}")
            if time.monotonic() > deadline:
                raise AssertionError(f"the server did not serve within {timeout} s; its log:\n{self.tail('server')}")
            time.sleep(0.005)
        self.address, self.grpc_address = lines["http"], lines["grpc"]
        self.listen, self.grpc_listen = self.address, self.grpc_address
        if "BERTH_AUTH" not in self.env:
            with open(os.path.join(self.data, "admin.token")) as f:
                self.token = f.read().strip()
        self.api = Api(self.address, tls=self.tls, token=self.token)
        if not self.watcher:
            self.watcher = threading.Thread(target=self._watch, daemon=True)
            self.watcher.start()

    def start_agent(self, name, args=(), runtime=None, labels=None, cpu="4", memory="8G", disk="100G", wrapper=()):
        data = os.path.join(self.dir, name)
        argv = [*wrapper, self.agent_binary, "agent", "--server", self.grpc_address, "--data", data, "--node-id", name]
        if cpu:
            argv += ["--cpu", cpu, "--memory", memory, "--disk", disk]
        if runtime:
            argv += ["--runtime", runtime]
        for k, v in (labels or {}).items():
            argv += ["--label", f"{k}={v}"]
        self.agents[name] = Process(name, [*argv, *self.agent_args, *args], self.env, os.path.join(self.dir, name + ".log"))
        return self.agents[name]

    def kill_server(self):
        self.server.kill()
        self.api.close()

    def restart_server(self, how="kill"):
        if how == "kill":
            self.kill_server()
        else:
            self.server.stop()
        self.start_server()

    def cli(self, *args, stdin=None, env=None, timeout=TIMEOUT, server=True, cwd=None):
        argv = [self.cli_binary, *args]
        full = dict(self.env)
        if server:
            full["BERTH_SERVER"] = self.grpc_address
        if self.token:
            full["BERTH_TOKEN"] = self.token
        full.update(env or {})
        p = subprocess.run(argv, input=stdin, capture_output=True, text=True, env=full, timeout=timeout, cwd=cwd or self.dir,
                           stdin=subprocess.DEVNULL if stdin is None else None)
        return Result(p.returncode, p.stdout, p.stderr)

    def ok(self, *args, **kw):
        r = self.cli(*args, **kw)
        if r.code != 0:
            raise AssertionError(f"berth {' '.join(args)}: {r}")
        return r

    # ---- waiting ----

    def _watch(self):
        since = 0
        while not self.closing:
            try:
                stream = EventStream(self.address, since=since, timeout=5, tls=self.tls, token=self.token)
                self.stream = stream
                for ident, _, _ in stream:
                    since = int(ident or since)
                    with self.changed:
                        self.changes += 1
                        self.changed.notify_all()
            except (Gone, ValueError):
                pass
            time.sleep(0.05)

    def wait_for(self, what, condition, timeout=TIMEOUT):
        """Until condition() is true; looks again when an event arrives. Returns what it gave."""
        deadline = time.monotonic() + timeout
        last = None
        while True:
            with self.changed:
                seen = self.changes
            try:
                value = condition()
                if value:
                    return value
                last = value
            except Gone as e:
                last = e
            left = deadline - time.monotonic()
            if left <= 0:
                raise AssertionError(f"waited {timeout:g} s for {what}; last: {last!r}\n{self.describe()}")
            with self.changed:
                if self.changes == seen:
                    self.changed.wait(min(left, 0.25))

    def wait_phase(self, name, *phases, timeout=TIMEOUT):
        def look():
            w = self.workload(name)
            return w if w and w["status"].get("phase") in phases else None
        return self.wait_for(f"{name} to be {' or '.join(phases)}", look, timeout)

    def wait_gone(self, name, timeout=TIMEOUT):
        self.wait_for(f"{name} to be gone", lambda: self.api.get(f"/v1/workloads/{name}").status == 404, timeout)

    def wait_nodes_ready(self, count, timeout=TIMEOUT):
        self.wait_for(f"{count} ready nodes", lambda: self.info()["nodes_ready"] >= count if "nodes_ready" in self.info() else False, timeout)

    def wait_node(self, name, status, timeout=TIMEOUT):
        def look():
            n = self.node(name)
            return n if n and n["status"] == status else None
        return self.wait_for(f"{name} to be {status}", look, timeout)

    # ---- the API in words ----

    def info(self):
        a = self.api.get("/v1/cluster")
        if a.status != 200:
            raise Gone(repr(a))
        return a.json

    def head(self):
        return self.info().get("head", 0)

    def manifest(self, name, command=None, cpu=0.1, memory_mb=16, disk_gb=0, env=None, **fields):
        w = {"id": name, "type": "process",
             "spec": {"command": command or ["sleep", "100000"], "env": {MARK: self.mark, **(env or {})}},
             "resources": {"cpu": cpu, "memory_mb": memory_mb}}
        if disk_gb:
            w["resources"]["disk_gb"] = disk_gb
        w.update(fields)
        return w

    def apply(self, name, api=None, **fields):
        """PUT /v1/workloads/NAME; fails unless it is accepted."""
        a = (api or self.api).call("PUT", f"/v1/workloads/{name}", self.manifest(name, **fields))
        if a.status not in (200, 201):
            raise AssertionError(f"apply {name}: {a}")
        return a.json

    def workload(self, name):
        a = self.api.get(f"/v1/workloads/{name}")
        if a.status == 404:
            return None
        if a.status != 200:
            raise Gone(repr(a))
        return a.json

    def node(self, name):
        a = self.api.get(f"/v1/nodes/{name}")
        return a.json if a.status == 200 else None

    def all_pages(self, path, **query):
        items, cursor = [], None
        while True:
            a = self.api.get(path, limit=1000, cursor=cursor, **query)
            if a.status != 200:
                raise Gone(repr(a))
            items += a.json.get("items", [])
            cursor = a.json.get("next_cursor")
            if not cursor:
                return items

    def workloads(self, **query):
        return self.all_pages("/v1/workloads", **query)

    def nodes(self, **query):
        return self.all_pages("/v1/nodes", **query)

    def events(self, **query):
        """All stored events that match, oldest first."""
        items, since = [], 0
        while True:
            a = self.api.get("/v1/events", since=since, limit=1000, **query)
            if a.status != 200:
                raise Gone(repr(a))
            page = a.json
            items += page.get("items", [])
            if page.get("next_since", since) <= since or not page.get("items"):
                return items
            since = page["next_since"]

    def events_of(self, name, *types):
        return [e for e in self.events(workload=name) if not types or e["type"] in types]

    # ---- the end ----

    def tail(self, name, lines=40):
        try:
            with open(os.path.join(self.dir, name + ".log"), errors="replace") as f:
                return "".join(f.readlines()[-lines:])
        except FileNotFoundError:
            return ""

    def describe(self):
        """What a failed test shows: states, events, the ends of the logs."""
        out = []
        with contextlib.suppress(Exception):
            out += [json.dumps(w)[:1500] for w in self.workloads()[:10]]
            out += [json.dumps(n)[:600] for n in self.nodes()[:10]]
            out += [json.dumps(e)[:300] for e in self.events()[-30:]]
        for name in ["server", *list(self.agents)[:6]]:
            out.append(f"---- {name} ----\n{self.tail(name)}")
        return "\n".join(out)

    def fsck(self):
        """Replays the events: R: A3"""
        self.cli_binary = BERTH
        r = self.cli("fsck", "--data", self.data, *self.store_args(), server=False)
        self.case.assertEqual(r.code, 0, f"fsck: {r}")

    def close(self):
        """Ends everything politely, then proves that nothing is left and that the store is sound."""
        try:
            if self.server and self.server.alive() and not self.leftovers_allowed and self.agents:
                for w in self.workloads():
                    self.api.call("DELETE", f"/v1/workloads/{w['id']}")
                self.wait_for("all workloads to be gone", lambda: not self.workloads())
            self.closing = True
            for p in [*self.agents.values(), self.server]:
                if p and p.alive():
                    p.signal(signal.SIGCONT)
                    code = p.stop()
                    self.case.assertEqual(code, 0, f"{p.name} ended with {code} after SIGTERM; its log:\n{self.tail(p.name)}")
            if self.server and (self.store or os.path.exists(os.path.join(self.data, "berth.db"))):
                self.fsck()
            left = processes_with(self.mark)
            deadline = time.monotonic() + 5
            while left and not self.leftovers_allowed and time.monotonic() < deadline:
                time.sleep(0.02)
                left = processes_with(self.mark)
            if not self.leftovers_allowed:
                self.case.assertEqual(left, {}, "processes are left running")
        finally:
            self.closing = True
            self.kill_all()
            shutil.rmtree(self.dir, ignore_errors=True)

    def kill_all(self):
        for p in [*self.agents.values(), self.server]:
            if p and p.alive():
                p.kill()
        kill_marked(self.mark)


def kill_marked(mark):
    for _ in range(50):
        left = processes_with(mark)
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


class Case(unittest.TestCase):
    """Base of all tests. Seeded: the seed is printed, and BERTH_TEST_SEED repeats it."""

    maxDiff = None
    exclusive = False  # run with nothing beside it: it measures

    def setUp(self):
        self.mark = uuid.uuid4().hex
        seed = int(os.environ.get("BERTH_TEST_SEED", random.randrange(1 << 32)))
        self.random = random.Random(seed)
        print(f"BERTH_TEST_SEED={seed}")
        self.clusters = []
        self.addCleanup(kill_marked, self.mark)

    def cluster(self, *args, **kw):
        c = Cluster(self, *args, **kw)
        self.clusters.append(c)
        return c

    def tearDown(self):
        # What a failed test needs is printed before its processes go.
        if sys.exc_info()[0] is None and not self._failed_now():
            for c in self.clusters:
                c.close()
            return
        for c in self.clusters:
            print(c.describe())
            c.closing = True
            c.kill_all()
            if os.environ.get("BERTH_TEST_KEEP") != "1":
                shutil.rmtree(c.dir, ignore_errors=True)

    def _failed_now(self):
        result = getattr(self._outcome, "result", None)
        if result and any(t is self for t, _ in [*result.failures, *result.errors]):
            return True
        errors = getattr(self._outcome, "errors", None)  # Python 3.10
        if errors and any(e for _, e in errors):
            return True
        return not getattr(self._outcome, "success", True)
