"""rig.py: several berth servers on a real etcd cluster, agents, and a network between them that can be broken (proxy.py). Built on tests/e2e/berthtest.py.

    class Some(rig.Case):
        def test_it(self):
            r = self.rig(members=3, replicas=3, agents=3)
            old = r.wait_leader()
            old.kill()
            r.wait_leader(other_than=old)

Each replica reaches each member of etcd by a link of its own ("r1-e2"), each agent the servers: `r.net.set("r1-e2", "cut")`. The network is the proxy's links on loopback or, with
namespaces=True, real namespaces (namespaces.py), where members of etcd can be cut from each other as well ("e1-e2").
"""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))

import berthtest  # noqa: E402
import etcd  # noqa: E402
from namespaces import Namespaces  # noqa: E402
from berthtest import BERTH, MARK, TIMEOUT, Api, Gone, Process, kill_marked, note, processes_with  # noqa: E402,F401

LEASE_SECONDS = 5  # of leadership: LEAD_TTL_SECONDS of src/server/commits.c


class Net:
    """The proxy process and its links. Everybody listens on loopback, and is reached through links."""

    def __init__(self, env):
        self.process = subprocess.Popen([sys.executable, os.path.join(HERE, "proxy.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.ports, self.lock = {}, threading.Lock()

    def command(self, *words):
        with self.lock:
            self.process.stdin.write(" ".join(words) + "\n")
            self.process.stdin.flush()
            return self.process.stdout.readline().split()

    def add(self, name, targets, look=False):
        self.ports[name] = int(self.command("look" if look else "add", name, targets)[1])
        return f"127.0.0.1:{self.ports[name]}"

    def set(self, names, mode, ms=0):
        for name in [names] if isinstance(names, str) else names:
            self.command("set", name, mode, str(ms))

    def lose(self, names, *channels):
        """Of links that are looked into (channels.py): these channels, and only these."""
        for name in [names] if isinstance(names, str) else names:
            self.command("lose", name, ",".join(channels))

    def kinds(self, name):
        return self.command("kinds", name)[1:]

    def of(self, *parts):
        """Names of the links between these: of("r1", "e") are all links of r1 to etcd."""
        return [n for n in self.ports if n.startswith(parts[0] + "-") and (len(parts) == 1 or n[len(parts[0]) + 1:].startswith(parts[1]))]

    def heal(self):
        for name in self.ports:
            self.set(name, "pass")

    def add_host(self, _):
        return "127.0.0.1"

    def inside(self, _):
        return []

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Member:
    """One member of etcd."""

    def __init__(self, cluster, number):
        self.cluster, self.name = cluster, f"e{number}"
        self.client, self.peer, self.host = etcd.free_port(), etcd.free_port(), cluster.net.add_host(self.name)
        self.address = f"{self.host}:{self.client}"
        # Where the others reach it: there, or by a link.
        self.known_as = cluster.net.add(f"peer-{self.name}", f"{self.host}:{self.peer}", look=True) if cluster.look else f"{self.host}:{self.peer}"
        self.process = None

    def start(self):
        c = self.cluster
        scheme = "https" if c.tls else "http"
        client, peer, known_as = f"{scheme}://{self.address}", f"{scheme}://{self.host}:{self.peer}", f"{scheme}://{self.known_as}"
        argv = [*c.net.inside(self.name), etcd.BINARY, "--name", self.name, "--data-dir", os.path.join(c.dir, self.name), "--listen-client-urls", client, "--advertise-client-urls", client,
                "--listen-peer-urls", peer, "--initial-advertise-peer-urls", known_as, "--initial-cluster-token", "berth-test", "--initial-cluster",
                ",".join(f"{m.name}={scheme}://{m.known_as}" for m in c.members)]
        if c.tls:
            pair = [os.path.join(c.tls, self.name + ".pem"), os.path.join(c.tls, self.name + "-key.pem")]
            argv += ["--cert-file", pair[0], "--key-file", pair[1], "--trusted-ca-file", c.ca, "--client-cert-auth"]
            argv += ["--peer-cert-file", pair[0], "--peer-key-file", pair[1], "--peer-trusted-ca-file", c.ca, "--peer-client-cert-auth"]
        self.process = Process(self.name, argv, c.env, os.path.join(c.dir, self.name + ".log"))

    def alive(self):
        return self.process is not None and self.process.alive()

    def kill(self):
        self.process.kill()

    def signal(self, number):
        self.process.signal(number)


class EtcdCluster:
    """Members on loopback, in the clear or with certificates of a CA of their own that everybody must show."""

    def __init__(self, directory, env, net, members=3, tls=False, look=False):
        self.dir, self.env, self.net, self.tls, self.look = directory, env, net, None, look
        if tls:
            self.tls = os.path.join(directory, "tls")
            self.berth("ca", "init", "--ca", os.path.join(directory, "ca"))
            for name in [*(f"e{i + 1}" for i in range(members)), "client"]:
                self.berth("ca", "issue", "server", name, "--ip", "127.0.0.1", "--ca", os.path.join(directory, "ca"), "--out", self.tls)
            self.ca = os.path.join(self.tls, "ca.pem")
        self.members = [Member(self, i + 1) for i in range(members)]

    def berth(self, *args):
        subprocess.run([BERTH, *args], env=self.env, check=True, capture_output=True, timeout=TIMEOUT)

    def start(self):
        for m in self.members:
            if not m.alive():
                m.start()
        self.wait_healthy()

    def wait_healthy(self, timeout=TIMEOUT):
        deadline = time.monotonic() + timeout
        while True:
            try:
                self.ctl("endpoint", "health", "--dial-timeout=2s", "--command-timeout=3s")
                return
            except subprocess.SubprocessError:
                if time.monotonic() > deadline:
                    raise AssertionError("etcd does not come up:\n" + self.tails()) from None
                time.sleep(0.1)

    def tails(self):
        return "\n".join(f"---- {m.name} ----\n" + "".join(open(os.path.join(self.dir, m.name + ".log"), errors="replace").readlines()[-8:]) for m in self.members)

    def ctl(self, *args, members=None):
        argv = ["etcdctl", "--endpoints", ",".join(m.address for m in members or self.members), *args]
        if self.tls:
            argv += ["--cacert", self.ca, "--cert", os.path.join(self.tls, "client.pem"), "--key", os.path.join(self.tls, "client-key.pem")]
        return subprocess.run(argv, env={**self.env, "ETCDCTL_API": "3"}, capture_output=True, text=True, check=True, timeout=30).stdout

    def get(self, key):
        """The value of one key, read through a quorum; None if it is not there or nobody can say."""
        with contextlib.suppress(subprocess.SubprocessError):
            lines = self.ctl("get", key, "--command-timeout=4s", members=[m for m in self.members if m.alive()]).split("\n", 1)
            return lines[1].rstrip("\n") if len(lines) > 1 else None
        return None

    def url(self, addresses=None):
        url = "etcd://" + ",".join(addresses or [m.address for m in self.members])
        if self.tls:
            url += f"?ca={self.ca}&cert={self.tls}/client.pem&key={self.tls}/client-key.pem"
        return url

    def blind(self, member):
        """Cuts a member from all others: it is alive, keeps its clients, and hears nothing. Needs look."""
        ids = {line.split(", ")[2]: line.split(", ")[0] for line in self.ctl("member", "list").splitlines()}
        self.net.set(f"peer-{member.name}", "cut")
        for other in self.members:
            if other is not member:
                self.net.lose(f"peer-{other.name}", ids[member.name])

    def leader(self):
        """The member that leads etcd."""
        status = json.loads(self.ctl("endpoint", "status", "-w", "json", members=[m for m in self.members if m.alive()]))
        for s in status:
            if s["Status"]["header"]["member_id"] == s["Status"]["leader"]:
                return next(m for m in self.members if m.address == s["Endpoint"].split("//")[-1])
        return None

    def close(self):
        for m in getattr(self, "members", []):
            if m.alive():
                m.signal(signal.SIGCONT)
                m.kill()


class Replica:
    """One berth server of several."""

    def __init__(self, rig, number):
        self.rig, self.name, self.number = rig, f"r{number}", number
        host = rig.net.add_host(self.name)
        self.http, self.grpc = (f"{host}:{etcd.free_port()}" for _ in range(2))
        # With links that are looked into each has a member of its own that it asks first.
        first = number if rig.look else 0
        members = [rig.etcd.members[(first + i) % len(rig.etcd.members)] for i in range(len(rig.etcd.members))]
        self.store = rig.etcd.url([rig.link(self.name, m.name, m.address, rig.look) for m in members])
        # What the others are told is the way in by the proxy, so that replicas can be cut from each other.
        self.advertised = ["--advertise-http", rig.link(self.name, "http", self.http), "--advertise-grpc", rig.link(self.name, "grpc", self.grpc)]
        self.process, self.paused, self.ended_at = None, False, 0

    def start(self):
        argv = [*self.rig.net.inside(self.name), BERTH, "server", "--data", os.path.join(self.rig.dir, self.name), "--http", self.http, "--grpc", self.grpc, "--store", self.store, *self.advertised,
                *self.rig.server_args]
        self.process = Process(self.name, argv, self.rig.env, os.path.join(self.rig.dir, self.name + ".log"))
        self.paused = False
        return self

    def alive(self):
        return self.process is not None and self.process.alive()

    def kill(self):
        self.process.kill()

    def pause(self):
        self.paused = True
        self.process.signal(signal.SIGSTOP)

    def resume(self):
        self.process.signal(signal.SIGCONT)
        self.paused = False

    def api(self, timeout=TIMEOUT):
        return Api(self.http, timeout)

    def cut_from_etcd(self, mode="cut", ms=0):
        self.rig.net.set(self.rig.net.of(self.name, "e"), mode, ms)

    def __repr__(self):
        return self.name


class Rig:
    def __init__(self, case, members=3, replicas=3, agents=0, tls=False, namespaces=False, look=False, mark=None, server_args=(), agent_args=()):
        self.case, self.look = case, look
        self.mark = mark or case.mark  # of its own for one of several that are closed one after the other
        self.etcd = self.net = self.keeper = None
        self.restart_after = 0
        self.replicas = []
        case.rigs.append(self)  # whatever goes wrong from here on: it is closed
        self.dir = tempfile.mkdtemp(prefix="berth-cluster-")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("BERTH_")}
        self.env.update({MARK: self.mark, "TMPDIR": self.dir, "HOME": self.dir, "BERTH_RUNTIME": "process", "BERTH_AUTH": "none",
                         "BERTH_ALLOW": "all", "BERTH_UNIT_USERS": "none",  # units write into the test's directory, as root
                         "BERTH_CHECK_TAKEOVER": "1"})  # the last: a new leader compares what it has folded with what a load gives
        self.server_args, self.agent_args, self.agents, self.servers, self.closing = list(server_args), list(agent_args), {}, {}, False
        self.net = Namespaces() if namespaces else Net(self.env)
        self.etcd = EtcdCluster(self.dir, self.env, self.net, members, tls, look)
        self.etcd.start()
        for i in range(replicas):
            self.replicas.append(Replica(self, i + 1))
        self.give_key()
        for r in self.replicas:
            r.start()
        for i in range(agents):
            self.start_agent(f"node-{i + 1}")
        if agents:
            self.wait_for(f"{agents} ready nodes", lambda: self.get("/v1/cluster").json.get("nodes_ready", 0) >= agents)

    def give_key(self):
        """Every server of a cluster has its key, and leads only with it."""
        first = os.path.join(self.dir, self.replicas[0].name)
        subprocess.run([BERTH, "key", "new", "--data", first], env=self.env, check=True, capture_output=True)
        for r in self.replicas[1:]:
            os.makedirs(os.path.join(self.dir, r.name), exist_ok=True)
            shutil.copy(os.path.join(first, "cluster.key"), os.path.join(self.dir, r.name))

    def link(self, a, b, address, look=False):
        """Where a reaches b: there itself, or by the proxy."""
        return address if isinstance(self.net, Namespaces) else self.net.add(f"{a}-{b}", address, look)

    def add_agent(self, name):
        """Its links, so that they can be cut before it is started."""
        self.net.add_host(name)
        self.servers[name] = ",".join(self.link(name, r.name, r.grpc) for r in self.replicas)

    def start_agent(self, name):
        """Also again: at the same place, by the same links."""
        if name not in self.servers:
            self.add_agent(name)
        servers = self.servers[name]
        argv = [*self.net.inside(name), BERTH, "agent", "--server", servers, "--data", os.path.join(self.dir, name), "--node-id", name, "--cpu", "8", "--memory", "16G", "--disk", "100G"]
        self.agents[name] = Process(name, [*argv, *self.agent_args], self.env, os.path.join(self.dir, name + ".log"))

    def keep_alive(self):
        """As systemd would: a replica that ended is started again, after self.restart_after seconds."""
        def keep():
            while not self.closing:
                for r in self.replicas:
                    if r.alive():
                        r.ended_at = time.monotonic()
                    elif not self.closing and time.monotonic() > r.ended_at + self.restart_after:
                        r.start()
                time.sleep(0.05)
        self.keeper = threading.Thread(target=keep, daemon=True)
        self.keeper.start()

    # ---- who leads ----

    def leader(self):
        value = self.etcd.get("/meta/leader")
        if value:
            pid = int(json.loads(value)["process"].split()[1])
            return next((r for r in self.replicas if r.process and r.process.pid == pid), None)
        return None

    def wait_leader(self, other_than=None, timeout=TIMEOUT):
        return self.wait_for(f"a leader{f' other than {other_than}' if other_than else ''}", lambda: (r := self.leader()) and r is not other_than and r, timeout)

    def wait_for(self, what, condition, timeout=TIMEOUT):
        deadline, last = time.monotonic() + timeout, None
        while True:
            try:
                last = condition()
                if last:
                    return last
            except Gone as e:
                last = e
            if time.monotonic() > deadline:
                raise AssertionError(f"waited {timeout:g} s for {what}; last: {last!r}\n{self.tails()}")
            time.sleep(0.05)

    # ---- calls, to whichever replica answers ----

    def call(self, method, path, body=None, headers=None, timeout=TIMEOUT):
        """Until some replica answers with something else than "not now". For calls that may be repeated."""
        deadline, last = time.monotonic() + timeout, None
        while time.monotonic() < deadline:
            for r in self.replicas:
                if r.paused:
                    continue
                api = r.api(10)
                try:
                    last = api.call(method, path, body, headers)
                    if last.status not in (429, 503, 504):
                        return last
                except Gone as e:
                    last = e
                finally:
                    api.close()
            time.sleep(0.05)
        raise AssertionError(f"{method} {path}: no replica answers; last: {last!r}\n{self.tails()}")

    def get(self, path):
        return self.call("GET", path)

    def all_pages(self, path):
        items, cursor = [], None
        while True:
            page = self.get(f"{path}?limit=1000" + (f"&cursor={cursor}" if cursor else "")).json
            items += page.get("items", [])
            cursor = page.get("next_cursor")
            if not cursor:
                return items

    def manifest(self, name, command=None, env=None, **fields):
        return {"id": name, "type": "process", "spec": {"command": command or ["sleep", "100000"], "env": {MARK: self.mark, **(env or {})}},
                "resources": {"cpu": 0.1, "memory_mb": 16}, **fields}

    # ---- the end ----

    def tail(self, name, lines=25):
        with contextlib.suppress(FileNotFoundError), open(os.path.join(self.dir, name + ".log"), errors="replace") as f:
            return "".join(f.readlines()[-lines:])
        return ""

    def tails(self):
        return "\n".join(f"---- {n} ----\n{self.tail(n)}" for n in [*(r.name for r in self.replicas), *self.agents])

    def close(self, failed):
        """Ends everything. After a good test: politely, and the store must be sound and nothing left running."""
        self.closing = True
        try:
            if self.keeper:
                self.keeper.join()
            if self.net:
                self.net.heal()
            for p in [*self.agents.values(), *(r.process for r in self.replicas)]:
                if p and p.alive():
                    p.signal(signal.SIGCONT)
                    if failed:
                        p.kill()
                    else:
                        self.case.assertEqual(p.stop(60), 0, f"{p.name} after SIGTERM:\n{self.tail(p.name)}")
            if not failed:
                r = subprocess.run([BERTH, "fsck", "--store", self.etcd.url()], env=self.env, capture_output=True, text=True, timeout=300)
                self.case.assertEqual(r.returncode, 0, f"fsck: {r.stdout}\n{r.stderr}")
        finally:
            if self.etcd:
                self.etcd.close()
            kill_marked(self.mark)
            if self.net:
                self.net.close()
            if not failed or os.environ.get("BERTH_TEST_KEEP") != "1":
                shutil.rmtree(self.dir, ignore_errors=True)


class Case(berthtest.Case):
    exclusive = os.environ.get("BERTH_TEST_FULL") == "1"  # the long form measures

    def setUp(self):
        super().setUp()
        if not etcd.is_installed():
            self.skipTest("etcd is not installed (Debian: etcd-server, etcd-client)")
        self.rigs = []

    def rig(self, **kw):
        return Rig(self, **kw)

    def tearDown(self):
        failed = self._failed_now()
        for r in self.rigs:
            if failed:
                print(r.tails())
            r.close(failed)
