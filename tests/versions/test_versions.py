"""Two versions together (N-1, N): whatever is upgraded first, workloads run on, with the same processes (A10)."""
import json
import os
import re
import subprocess
import sys
import time
import unittest

sys.path.insert(1, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "e2e"))
import before  # noqa: E402
import etcd  # noqa: E402
from berthtest import BERTH, Api, Case, Gone, Process, alive, note  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
NEW = BERTH


def lines(path):
    try:
        with open(path) as f:
            return f.read().split()
    except FileNotFoundError:
        return []


def without_new_zeros(new, old):
    """new without the zeros and empty values that old does not have: a newer version may show more of them."""
    if isinstance(new, dict) and isinstance(old, dict):
        return {k: without_new_zeros(v, old.get(k)) for k, v in new.items() if k in old or v not in (0, "", False, [], {})}
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return [without_new_zeros(n, o) for n, o in zip(new, old)]
    return new


class Together:
    """What holds with each of the versions before."""

    version = None

    @property
    def old(self):
        return before.binary(self.version)

    def started(self, server, agent, nodes=2, store=None, listen=None, front=None):
        """A cluster with these binaries and a few units; returns it with their pids."""
        c = self.cluster(server=False, heartbeat="300ms")
        c.server_binary, c.agent_binary = server, agent
        if store:
            c.store = store
        if listen:
            c.listen, c.grpc_listen = (f"127.0.0.1:{p}" for p in listen)
        c.start_server()
        if front:
            c.address, c.grpc_address = front
            c.api = Api(c.address)
        for i in range(nodes):
            c.start_agent(f"node-{i + 1}")
        c.wait_nodes_ready(nodes)
        self.names = [f"w{i}" for i in range(4)]
        for n in self.names:
            self.run_unit(c, n)
        self.pids = self.running(c)
        return c

    def front(self, http, grpc):
        """Two addresses that lead to whichever server is up, as a balancer gives to agents that know one address only."""
        proxy = subprocess.Popen([sys.executable, os.path.join(os.path.dirname(HERE), "cluster", "proxy.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 text=True)
        self.addCleanup(proxy.wait)
        self.addCleanup(proxy.kill)
        found = []
        for name, ports in (("http", http), ("grpc", grpc)):
            proxy.stdin.write(f"add {name} " + ",".join(f"127.0.0.1:{p}" for p in ports) + "\n")
            proxy.stdin.flush()
            found.append("127.0.0.1:" + proxy.stdout.readline().split()[1])
        return found

    def leader(self, member):
        """The pid of the server that leads."""
        found = re.search(r"pid (\d+)", etcd.get(member.address, "/v/meta/leader").get("/v/meta/leader", ""))
        return int(found.group(1)) if found else None

    def answers(self, c):
        try:
            return c.api.get("/v1/cluster").status == 200
        except Gone:
            return False

    def run_unit(self, c, name, **kw):
        path = os.path.join(c.dir, name + ".pids")
        before_it = len(lines(path))
        c.apply(name, command=["sh", "-c", f"echo $$ >> {path}; echo says {name}; exec sleep 100000"], **kw)
        c.wait_for(f"{name} to start", lambda: len(lines(path)) > before_it)
        c.wait_phase(name, "Running")

    def running(self, c):
        return {n: [int(p) for p in lines(os.path.join(c.dir, n + ".pids"))] for n in self.names}

    def assert_untouched(self, c):
        for n in self.names:
            c.wait_phase(n, "Running")
        self.assertEqual(self.running(c), self.pids, "every process is the one it was")
        self.assertTrue(all(alive(p[-1]) for p in self.pids.values()))

    def use(self, c, name="extra"):
        """Everything that goes between server and agent: start, change, logs, exec, stop, start, delete, a failing job, a lost list."""
        self.run_unit(c, name)
        self.run_unit(c, name, env={"CHANGED": "1"})
        c.wait_for("its output", lambda: f"says {name}" in c.cli("logs", name).out)
        self.assertEqual(c.ok("exec", name, "--", "echo", "inside").out.strip(), "inside")
        c.ok("stop", name)
        c.wait_phase(name, "Stopped")
        c.ok("start", name)
        c.wait_phase(name, "Running")
        c.apply(name + "-job", command=["sh", "-c", "exit 3"], restart="never")
        self.assertEqual(c.wait_phase(name + "-job", "Failed")["status"]["exit_code"], 3)
        c.ok("delete", name, name + "-job", "--wait")
        self.assert_untouched(c)

    def replace_agents(self, c, binary):
        c.agent_binary = binary
        for name in list(c.agents):
            c.agents[name].stop()
            c.start_agent(name)
            c.wait_for("it to be back", lambda n=name: c.node(n)["status"] == "Ready" and "connected" in c.tail(n, 3))
        self.assert_untouched(c)

    def replace_server(self, c, binary):
        c.server.stop()
        c.server_binary = binary
        c.start_server()
        c.wait_nodes_ready(len(c.agents))
        self.assert_untouched(c)

    # R: A10 A5
    def test_the_server_is_upgraded_first_then_the_agents(self):
        c = self.started(self.old, self.old)
        events = c.events()
        self.replace_server(c, NEW)
        self.assertEqual(without_new_zeros(c.events()[:len(events)], events), events)
        self.use(c)
        self.replace_agents(c, NEW)
        self.use(c)

    # R: A10 A5
    def test_the_agents_are_upgraded_first_then_the_server(self):
        c = self.started(self.old, self.old)
        self.replace_agents(c, NEW)
        self.use(c)
        self.replace_server(c, NEW)
        self.use(c)

    # R: A10
    def test_an_upgrade_can_be_taken_back(self):
        c = self.started(NEW, NEW)
        self.replace_agents(c, self.old)
        self.use(c)
        self.replace_server(c, self.old)
        self.use(c)
        self.replace_server(c, NEW)
        self.use(c)

    def ask_everything(self, server, cli):
        c = self.started(server, NEW, nodes=1)
        c.cli_binary = cli
        self.assertIn("w0", c.ok("get", "workloads").out)
        self.assertEqual(json.loads(c.ok("get", "workload", "w0", "-o", "json").out)["id"], "w0")
        self.assertIn("node-1", c.ok("describe", "node", "node-1").out)
        self.assertIn("node-1", c.ok("explain", "w0").out)
        self.assertIn("WorkloadStarted", c.ok("events").out)
        c.ok("cluster")
        manifest = os.path.join(c.dir, "m.json")
        with open(manifest, "w") as f:
            json.dump(c.manifest("applied"), f)
        c.ok("plan", "apply", "-f", manifest)
        c.ok("apply", "-f", manifest, "--wait")
        c.ok("cordon", "node-1")
        c.ok("uncordon", "node-1")
        self.use(c)

    # R: A10
    def test_the_old_command_line_with_the_new_server(self):
        self.ask_everything(NEW, self.old)

    # R: A10
    def test_the_new_command_line_with_the_old_server(self):
        self.ask_everything(self.old, NEW)

    # R: A10 C33 A5
    @unittest.skipUnless(etcd.is_installed(), "etcd is not installed (Debian: etcd-server, etcd-client)")
    def test_two_servers_on_etcd_are_upgraded_one_after_the_other_and_back(self):
        member = etcd.Etcd()
        self.addCleanup(member.close)
        ports = [(etcd.free_port(), etcd.free_port()) for _ in range(4)]
        front = self.front(*([p[k] for p in ports] for k in (0, 1)))
        c = self.started(self.old, self.old, store=f"etcd://{member.address}/v", listen=ports[0], front=front)
        acknowledged = list(self.names)
        for step, binary in enumerate((NEW, self.old, NEW)):  # who takes over; the one before leads until it is killed
            http, grpc = (f"127.0.0.1:{p}" for p in ports[step + 1])
            if step or self.version != before.RELEASE:  # whoever knows of the cluster's key has made it; a release of before does not look for it
                c.give_key(f"standby-{step}")
            standby = Process("server", [binary, "server", "--data", os.path.join(c.dir, f"standby-{step}"), "--http", http, "--grpc", grpc,
                                         *c.server_args, *c.store_args()], c.env, os.path.join(c.dir, "server.log"))
            self.run_unit(c, f"during{step}")
            acknowledged.append(f"during{step}")
            c.kill_server()
            c.server, c.server_binary = standby, binary
            deadline = time.monotonic() + 60
            while self.leader(member) != standby.pid or not self.answers(c):
                self.assertTrue(standby.alive(), c.tail("server"))
                self.assertLess(time.monotonic(), deadline, c.tail("server"))
                time.sleep(0.05)
            c.wait_nodes_ready(2)
            for n in acknowledged:
                c.wait_phase(n, "Running")
            self.assert_untouched(c)
            self.use(c)
        self.replace_agents(c, NEW)
        self.use(c)
        note("old -> new -> old -> new led one store in etcd: nothing acknowledged was lost, no process was touched")


@unittest.skipIf(before.why_not(before.RELEASE), before.why_not(before.RELEASE))
class Versions(Together, Case):
    version = before.RELEASE

    # R: A10
    def test_a_manifest_without_resources_is_the_same_after_the_upgrade(self):
        c = self.started(self.old, self.old, nodes=1)
        service, job = c.manifest("service"), c.manifest("job", command=["true"], restart="never")
        paths = []
        for m in (service, job):
            del m["resources"]
            paths += ["-f", os.path.join(c.dir, m["id"] + ".json")]
            with open(paths[-1], "w") as f:
                json.dump(m, f)
        c.ok("apply", *paths)
        c.wait_phase("service", "Running")
        c.wait_phase("job", "Completed")
        old = {m: c.workload(m) for m in ("service", "job")}
        self.replace_server(c, NEW)
        c.wait_phase("service", "Running")
        self.assertIn("workload/job unchanged", c.ok("apply", *paths).out)
        self.assertIn("workload/service unchanged", c.ok("apply", *paths).out)  # the first may bring its new retry policy
        for name, was in old.items():
            for field in ("revision_id", "token"):
                self.assertEqual(c.workload(name)[field], was[field], (name, field))


@unittest.skipIf(before.why_not(before.UNITS), before.why_not(before.UNITS))
class Units(Together, Case):
    version = before.UNITS

    # R: A10 A13
    @unittest.skipUnless(etcd.is_installed(), "etcd is not installed (Debian: etcd-server, etcd-client)")
    def test_a_record_of_a_new_kind_waits_for_the_last_old_server_which_then_refuses_the_store(self):
        """What an older server would misread (who was expelled) is refused while one is there, and then raises the schema."""
        member = etcd.Etcd()
        self.addCleanup(member.close)
        c = self.started(NEW, NEW, store=f"etcd://{member.address}/v")
        schema = lambda: etcd.get(member.address, "/v/meta/schema").get("/v/meta/schema")
        old = Process("server", [self.old, "server", "--data", os.path.join(c.dir, "old"), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
                                 *c.server_args, *c.store_args()], c.env, os.path.join(c.dir, "old.log"))
        self.addCleanup(old.kill)
        c.wait_for("both servers to be there", lambda: len(c.api.get("/v1/cluster").json.get("replicas", [])) == 2)
        node = sorted(c.agents)[0]
        refused = c.cli("label", "node", node, "berth.io/pool=a")
        self.assertNotEqual(refused.code, 0)
        self.assertIn("a server of this cluster is too old for this", refused.err)
        self.assertIn("does not know admissions", refused.err)
        self.assertEqual(schema(), "1")
        self.assertEqual(etcd.get(member.address, "/v/admissions/"), {})
        old.kill()
        c.wait_for("the old one to be gone", lambda: len(c.api.get("/v1/cluster").json.get("replicas", [])) == 1)
        c.ok("label", "node", node, "berth.io/pool=a")
        self.assertEqual(schema(), "2")
        self.assertIn("SchemaRaised", c.ok("events", "--type", "SchemaRaised").out)
        again = subprocess.run([self.old, "server", "--data", os.path.join(c.dir, "old"), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0",
                                *c.server_args, *c.store_args()], env=c.env, capture_output=True, text=True, timeout=60)
        self.assertNotEqual(again.returncode, 0)
        self.assertIn("newer berth", again.stderr + again.stdout)
        self.assert_untouched(c)
