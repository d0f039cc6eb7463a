"""What definitions may ask for (docs/configuration.md, "What may be asked for"), by default and by the configuration. R: A14"""
import contextlib
import os
import stat
import subprocess

from berthtest import Case

FIRST, LAST = 200000, 265535


def status_of(pid):
    with open(f"/proc/{pid}/status") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


class Policy(Case):
    def server(self, *args, config=None, **kw):
        c = self.cluster(server=False, heartbeat="300ms", **kw)
        c.want_policy()
        if config is not None:
            path = os.path.join(c.dir, "berth.yaml")
            with open(path, "w") as f:
                f.write(config)
            c.server_args += ["--config", path]
        c.server_args += args
        c.start_server()
        return c

    def put(self, c, name, w):
        return c.api.call("PUT", f"/v1/workloads/{name}", {"id": name, **w})

    def container(self, **spec):
        return {"type": "container", "spec": {"image": "i", **spec}}

    def asks(self):
        """Each power, asked for in every way that there is, and the key that allows it."""
        pod = "{apiVersion: v1, kind: Pod, metadata: {name: p%s}, spec: {%s containers: [{name: c, image: i%s}]}}"
        compose = "services: {a: {image: i, %s}}"
        return [
            ("privileged", self.container(privileged=True)),
            ("privileged", {"type": "compose", "spec": {"compose": compose % "privileged: true"}}),
            ("privileged", self.container_pod(pod % ("", "", ", securityContext: {privileged: true}"))),
            ("privileged", self.container_pod(pod % ("", "hostPID: true,", ""))),
            ("privileged", self.container_pod(pod % (", annotations: {io.podman.annotations.userns: host}", "", ""))),
            ("privileged", self.container_pod(pod % ("", "initContainers: [{name: d, image: i, securityContext: {Privileged: true}}],", ""))),
            ("capabilities", self.container(capabilities=["NET_ADMIN"])),
            ("capabilities", {"type": "process", "spec": {"command": ["x"], "capabilities": ["SYS_ADMIN"]}}),
            ("capabilities", self.container_pod(pod % ("", "", ", securityContext: {capabilities: {add: [CAP_SYS_ADMIN]}}"))),
            ("host_network", self.container(network="host")),
            ("host_network", self.container(network="container:other")),
            ("host_network", {"type": "compose", "spec": {"compose": compose % "network_mode: host"}}),
            ("host_network", self.container_pod(pod % ("", "hostNetwork: true,", ""))),
            ("host_paths", self.container(volumes=[{"host_path": "/etc", "container_path": "/x"}])),
            ("host_paths", {"type": "compose", "spec": {"compose": compose % 'volumes: ["/etc:/x"]'}}),
            ("host_paths", self.container_pod(pod % ("", "volumes: [{name: v, hostPath: {path: /etc}}],", ""))),
            ("root_processes", {"type": "process", "spec": {"command": ["x"], "user": "root"}}),
            ("root_processes", {"type": "process", "spec": {"command": ["x"], "user": "00"}}),
        ]

    def container_pod(self, text):
        return {"type": "container", "spec": {"pod": text}}

    def test_a8_all_is_refused_by_default_with_the_key_to_change(self):  # R: A14
        c = self.server()
        for i, (key, w) in enumerate(self.asks()):
            a = self.put(c, f"w{i}", w)
            self.assertEqual(a.status, 403, (key, w, a))
            self.assertIn(f"policy.{key}", a.json["hint"], a)
        self.assertEqual(c.workloads(), [])
        ordinary = [self.container(), self.container(network="bridge", user="root"), {"type": "process", "spec": {"command": ["x"], "user": "nobody"}},
                    {"type": "compose", "spec": {"compose": "services: {a: {image: i, user: root}}"}}]
        for i, w in enumerate(ordinary):
            self.assertEqual(self.put(c, f"o{i}", w).status, 201, w)
        r = c.cli("run", "--user", "root", "again", "--", "true")
        self.assertEqual(r.code, 3, r)
        self.assertIn("policy.root_processes", r.err)

    def test_a8_the_configuration_allows_for_all_or_for_a_tenant(self):  # R: A14
        c = self.server(config="""
policy: {host_paths: [/srv], capabilities: [NET_ADMIN]}
tenant_policies:
- {tenant: infra, privileged: true, host_network: true, root_processes: true, host_paths: [/], capabilities: [ALL]}
""")
        volume = lambda path: self.container(volumes=[{"host_path": path, "container_path": "/x"}])
        for path, status in (("/srv", 201), ("/srv/a/b", 201), ("/srvx", 403), ("/srv/../etc", 403), ("/srv/a/..", 403), ("/", 403)):
            self.assertEqual(self.put(c, "v", volume(path)).status, status, path)
            if status == 201:
                c.ok("delete", "v", "--wait")
        self.assertEqual(self.put(c, "cap", self.container(capabilities=["NET_ADMIN"])).status, 201)
        self.assertEqual(self.put(c, "cap", self.container(capabilities=["NET_ADMIN", "SYS_TIME"])).status, 403)
        for i, (key, w) in enumerate(self.asks()):
            self.assertEqual(self.put(c, f"i{i}", {**w, "tenant": "infra"}).status, 201, (key, w))
        a = self.put(c, "i0", {**self.container(privileged=True), "tenant": "other"})
        self.assertEqual(a.status, 403, a)
        self.assertTrue(c.workload("i0")["spec"]["privileged"], "a refusal changes nothing")

    def test_a8_what_is_on_record_goes_on_and_doctor_lists_it(self):  # R: A14
        c = self.server("--allow", "all", nodes=0)
        c.start_agent("node-1")
        c.wait_nodes_ready(1)
        c.apply("old", command=["sleep", "100000"])
        pid = self.running(c, "old")
        self.assertEqual(status_of(pid)["NoNewPrivs"], "0")
        self.assertEqual(self.put(c, "root", {"type": "process", "spec": {"command": ["sleep", "100000"], "user": "root"}}).status, 201)
        c.wait_phase("root", "Running")
        c.server.stop()
        c.server_args = [a for a in c.server_args if a not in ("--allow", "all")]
        c.start_server()
        c.wait_nodes_ready(1)
        found = c.cli("doctor").out
        self.assertIn("old (root_processes)", found)
        self.assertIn("root (root_processes)", found)
        self.assertEqual(c.apply("old", command=["sleep", "100000"])["token"], c.workload("old")["token"])
        self.assertEqual(self.pid(c, "old"), pid, "the same once more changes nothing")
        os.kill(pid, 9)
        c.wait_for("a restart", lambda: (c.workload("old")["status"].get("restarts") or 0) >= 1 and self.pid(c, "old") not in (None, pid))
        self.assertEqual(os.stat(f"/proc/{self.pid(c, 'old')}").st_uid, os.geteuid(), "as the user it had")
        a = c.apply("old", command=["sleep", "100001"])  # a new definition is asked
        c.wait_for("the new one", lambda: c.workload("old")["status"]["phase"] == "Running" and self.pid(c, "old", "100001"))
        self.assertEqual(status_of(self.pid(c, "old", "100001"))["NoNewPrivs"], "1")
        self.assertNotIn("old (", c.cli("doctor").out)

    def pid(self, c, name, argument="100000"):
        """Of the unit's own process, found by the agent's mark; None: there is none."""
        c.wait_phase(name, "Running")
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{entry}/environ", "rb") as f:
                    if f"{c.dir}/node-1/units/{name}@".encode() not in f.read():
                        continue
                with open(f"/proc/{entry}/cmdline", "rb") as f:
                    if f.read() == f"sleep\0{argument}\0".encode():
                        return int(entry)
        return None

    def running(self, c, name, argument="100000"):
        return c.wait_for(f"{name} to be a process", lambda: self.pid(c, name, argument))

    def test_a8_processes_of_a_root_agent_have_a_user_of_their_own(self):  # R: A14
        if os.geteuid() != 0:
            self.skipTest("needs root")
        c = self.server(nodes=0)
        os.chmod(c.dir, 0o755)
        agent = c.start_agent("node-1")
        c.wait_nodes_ready(1)
        script = "umask 077; echo secret > $HOME/mine; id -u; id -G; cd; exec sleep 100000"
        pids = {}
        for name in ("a", "b"):
            c.apply(name, command=["sh", "-c", script])
            pids[name] = self.running(c, name)
        uids = {name: os.stat(f"/proc/{pid}").st_uid for name, pid in pids.items()}
        self.assertEqual(len(set(uids.values())), 2, uids)
        for name, pid in pids.items():
            s = status_of(pid)
            self.assertTrue(FIRST <= uids[name] <= LAST, uids)
            self.assertEqual(s["NoNewPrivs"], "1")
            for field in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
                self.assertEqual(int(s[field], 16), 0, (field, s[field]))
            self.assertEqual(s["Groups"].strip(), "")
            home = os.path.join(c.dir, "node-1", "units", name, "home")
            self.assertEqual((os.stat(home).st_uid, stat.S_IMODE(os.stat(home).st_mode)), (uids[name], 0o700))
            self.assertEqual(c.ok("logs", name).out.split(), [str(uids[name])] * 2)
        # What is the agent's stays the agent's, and a unit sees nothing of another one.
        unit = os.path.join(c.dir, "node-1", "units")
        for path in (os.path.join(unit, "b", "home", "mine"), f"{unit}/a/launch.pb", f"{unit}/a/record.pb", f"{unit}/b/output.log", os.path.join(c.dir, "node-1", "agent.pb")):
            r = c.cli("exec", "a", "--", "cat", path)
            self.assertNotEqual(r.code, 0, path)
            self.assertNotIn("secret", r.out)
        r = c.cli("exec", "a", "--", "sh", "-c", f"echo x > {unit}/a/user || rm -f {unit}/a/user || mv {unit}/a/home {unit}/a/house")
        self.assertNotEqual(r.code, 0)
        self.assertEqual(c.ok("exec", "a", "--", "sh", "-c", "cat $HOME/mine; id -u").out.split(), ["secret", str(uids["a"])])
        self.assertEqual(c.ok("exec", "a", "--", "sh", "-c", "grep NoNewPrivs /proc/self/status").out.split()[-1], "1")
        # The number stays: over a restart of the agent, and of the unit.
        agent.kill()
        c.start_agent("node-1")
        c.wait_nodes_ready(1)
        os.kill(pids["a"], 9)
        c.wait_for("a restart", lambda: (c.workload("a")["status"].get("restarts") or 0) >= 1 and self.pid(c, "a") not in (None, pids["a"]))
        self.assertEqual(os.stat(f"/proc/{self.pid(c, 'a')}").st_uid, uids["a"])
        # Nobody can ask for another unit's number, nor for root under another name.
        self.assertEqual(self.put(c, "thief", {"type": "process", "retry": {"max_attempts": 1}, "spec": {"command": ["sleep", "1"], "user": str(uids["b"])}}).status, 201)
        w = c.wait_for("the thief to be refused", lambda: "belongs to another unit" in str(c.workload("thief")["status"].get("failure_reason")))
        # Capabilities: those that the policy allows, and no others.
        c.ok("delete", "thief", "--wait")

    def test_a8_a_process_has_the_capabilities_that_the_policy_allows(self):  # R: A14
        if os.geteuid() != 0:
            self.skipTest("needs root")
        c = self.server(config="policy: {capabilities: [NET_BIND_SERVICE, SYS_TIME]}", nodes=0)
        os.chmod(c.dir, 0o755)
        c.start_agent("node-1")
        c.wait_nodes_ready(1)
        a = self.put(c, "low", {"type": "process", "spec": {"command": ["sleep", "100000"], "capabilities": ["NET_BIND_SERVICE"]}})
        self.assertEqual(a.status, 201, a)
        s = status_of(self.running(c, "low"))
        for field in ("CapPrm", "CapEff", "CapBnd", "CapAmb"):
            self.assertEqual(int(s[field], 16), 1 << 10, (field, s[field]))
        self.assertNotEqual(os.stat(f"/proc/{self.pid(c, 'low')}").st_uid, 0)

    def test_a8_an_agent_that_is_called_confines_processes(self):  # R: A13 A14
        if os.geteuid() != 0:
            self.skipTest("needs root")
        c = self.server(nodes=0)
        c.start_agent("node-1", args=["--push", "--listen", "127.0.0.1:0"])
        c.wait_nodes_ready(1)
        w = {"type": "container", "spec": {"image": "process", "command": ["sleep", "100000"]}}
        self.assertEqual(self.put(c, "web", w).status, 201)
        self.assertTrue(FIRST <= os.stat(f"/proc/{self.running(c, 'web')}").st_uid <= LAST)

    def test_a8_a_wrong_policy_is_refused_with_its_place(self):  # R: A9 A14
        c = self.cluster(server=False)
        path = os.path.join(c.dir, "berth.yaml")
        for text, words in (("policy: {capabilities: [FLY]}", "policy.capabilities"), ("policy: {host_paths: [srv]}", "policy.host_paths"),
                            ("policy: {tenant: x}", "policy.tenant"), ("tenant_policies: [{privileged: true}]", "tenant_policies[0].tenant"),
                            ("tenant_policies: [{tenant: a}, {tenant: a}]", "there twice"), ("policy: {magic: true}", "magic")):
            with open(path, "w") as f:
                f.write(text + "\n")
            r = c.cli("config", "check", path, server=False)
            self.assertEqual(r.code, 2, (text, r))
            self.assertIn(words, r.out + r.err)
        r = subprocess.run([c.server_binary, "server", "--data", c.data, "--allow", "magic"], capture_output=True, text=True, env=c.env, check=False)
        self.assertEqual(r.returncode, 2)
        self.assertIn("root_processes", r.stderr)
