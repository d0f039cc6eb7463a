"""Containers for real: podman, with an image that the tests make themselves from Debian's busybox. No registry is asked for anything but an error.

Every test has its own podman storage in its temporary directory. Where the machine refuses containers altogether the agent says why, and the tests are skipped with
that sentence.
"""
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time

import berthtest

IMAGE = "localhost/berth-test:1"
FOREVER = "trap 'exit 0' TERM; while true; do sleep 0.1; done"


def free_port():
    with contextlib.closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Containers(berthtest.Case):
    def setUp(self):
        super().setUp()
        for program in ("podman", "busybox"):
            if not shutil.which(program):
                self.skipTest(f"{program} is not installed")

    def node(self):
        """A server and one agent with podman, and the image in its storage."""
        c = self.c = self.cluster()
        self.root, self.runroot = os.path.join(c.dir, "root"), os.path.join(c.dir, "run")
        self.addCleanup(self.sweep)
        tree = os.path.join(c.dir, "image")
        for name in ("bin", "tmp"):
            os.makedirs(os.path.join(tree, name))
        shutil.copy(shutil.which("busybox"), os.path.join(tree, "bin", "busybox"))
        for name in ("sh", "sleep", "echo", "cat", "httpd", "env", "id", "true", "false", "wget", "touch", "rm", "pwd"):
            os.symlink("busybox", os.path.join(tree, "bin", name))
        subprocess.run(["tar", "-C", tree, "-cf", tree + ".tar", "."], check=True)
        made = self.podman("import", "-q", tree + ".tar", IMAGE, check=False)
        if made.returncode != 0:
            self.skipTest("podman cannot import an image here: " + made.stderr.strip().splitlines()[-1])
        self.start()
        c.wait_nodes_ready(1)
        self.assertIn("container", c.node("node-1")["supported_workload_types"])
        return c

    def start(self):
        agent = self.c.start_agent("node-1", args=["--runtime", "podman", "--podman-root", self.root, "--podman-runroot", self.runroot])
        log = os.path.join(self.c.dir, "node-1.log")
        deadline = time.monotonic() + berthtest.TIMEOUT
        while time.monotonic() < deadline:
            if not agent.alive():
                why = [line for line in self.c.tail("node-1").splitlines() if line.startswith("error:")]
                self.skipTest("this machine runs no containers: " + (why[-1] if why else "the agent ended"))
            with open(log) as f:
                if f.read().count('msg="agent started"') >= self.c.tail("node-1", 100000).count("$ "):
                    return agent
            time.sleep(0.02)
        raise AssertionError("the agent did not start: " + self.c.tail("node-1"))

    def podman(self, *args, check=True):
        return subprocess.run(["podman", "--root", self.root, "--runroot", self.runroot, "--tmpdir", os.path.join(self.runroot, "libpod"), *args],
                              check=check, capture_output=True, text=True, env={**os.environ, "HOME": self.c.dir})

    def tearDown(self):
        if self._failed_now() and hasattr(self, "root"):
            with contextlib.suppress(Exception):
                self.podman("pod", "rm", "-f", "-a", "-t", "0", check=False)
                self.podman("rm", "-f", "-a", "-t", "0", check=False)
        super().tearDown()

    def sweep(self):
        """Nothing of a test stays among the machine's mounts."""
        with open("/proc/mounts") as f:
            mounts = [line.split()[1] for line in f]
        for path in reversed(mounts):
            if path.startswith(self.c.dir + "/"):
                subprocess.run(["umount", "-l", path], capture_output=True, check=False)
        shutil.rmtree(self.c.dir, ignore_errors=True)

    def apply(self, name, script=FOREVER, spec=None, resources=None, **fields):
        w = {"id": name, "type": "container", "stop_grace_seconds": 2, "retry": {"base_seconds": 1},
             "spec": {"image": IMAGE, "command": ["/bin/sh", "-c", script], "pull": "never", **(spec or {})}, **fields}
        if resources:
            w["resources"] = resources
        a = self.c.api.call("PUT", f"/v1/workloads/{name}", w)
        self.assertIn(a.status, (200, 201), a)

    def inspect(self, name):
        ids = self.podman("ps", "-a", "-q", "--no-trunc", "--filter", f"label=berth.io/workload={name}").stdout.split()
        return json.loads(self.podman("inspect", *ids).stdout) if ids else []

    def wait_output(self, c, name, lines):
        """All of it, of however many containers: that they run does not mean that they have said it."""
        c.wait_for(f"{name} to say {len(lines)} lines", lambda: len(c.ok("logs", name).out.splitlines()) >= len(lines))
        self.assertEqual(sorted(c.ok("logs", name).out.splitlines()), lines)

    def wait_message(self, name, text):
        return self.c.wait_for(f"{name} to say {text!r}", lambda: text in json.dumps(self.c.workload(name) or {}) and self.c.workload(name))

    def test_a_container_runs_is_looked_into_updated_and_removed(self):  # R: C6 C7 C40
        c = self.node()
        volume = os.path.join(c.dir, "volume")
        os.makedirs(volume)
        with open(os.path.join(volume, "greeting"), "w") as f:
            f.write("from the node\n")
        self.apply("web", "echo hello; echo trouble >&2; cat /data/greeting; pwd; env; id -u; " + FOREVER,
                   spec={"env": {"COLOUR": "blue"}, "workdir": "/bin", "user": "65534", "args": ["ignored"],
                         "volumes": [{"host_path": volume, "container_path": "/data", "read_only": True}]},
                   resources={"cpu": 0.5, "memory_mb": 64})
        w = c.wait_phase("web", "Running")
        out = c.wait_for("its output", lambda: (lambda r: r if "65534" in r.out and "trouble" in r.out else None)(c.cli("logs", "web"))).out
        for line in ("hello", "trouble", "from the node", "/bin", "COLOUR=blue", "BERTH_WORKLOAD_ID=web", "65534"):
            self.assertIn(line, out.splitlines())
        last = c.ok("logs", "web", "--tail", "1")  # output and errors come by two pipes: which is last is not known
        self.assertIn(last.out + last.err, ("65534\n", "trouble\n"))

        (box,) = self.inspect("web")
        self.assertEqual(box["HostConfig"]["Memory"], 64 << 20)
        self.assertEqual(box["HostConfig"]["NanoCpus"], 500000000)
        self.assertIn(box["HostConfig"]["RestartPolicy"]["Name"], ("", "no"))
        labels = box["Config"]["Labels"]
        self.assertEqual(labels["berth.io/token"], f"{w['token']['epoch']}.{w['token']['seq']}")
        self.assertEqual(labels["berth.io/revision"], w["revision_id"])
        self.assertEqual(labels["berth.io/cluster"], c.info()["cluster_id"])

        r = c.cli("exec", "web", "--", "/bin/sh", "-c", "echo inside; echo no >&2; exit 7")
        self.assertEqual((r.code, r.out, r.err.splitlines()[:1]), (7, "inside\n", ["no"]))
        self.assertEqual(c.ok("exec", "-i", "web", "--", "/bin/cat", stdin="through\n").out, "through\n")

        self.apply("web", "echo second; " + FOREVER)  # another revision: another container, never two
        c.wait_for("the new copy", lambda: c.workload("web")["status"].get("phase") == "Running" and "second" in c.cli("logs", "web").out)
        (second,) = self.inspect("web")
        self.assertNotEqual(second["Id"], box["Id"])

        c.ok("stop", "web", "--wait")
        self.assertEqual([b["State"]["Running"] for b in self.inspect("web")], [False])
        self.assertIn("second", c.ok("logs", "web").out)  # what it said stays until it is removed
        c.ok("delete", "web", "--wait")
        self.assertEqual(self.inspect("web"), [])

    def test_exits_jobs_and_restarts(self):  # R: C6 C28
        c = self.node()
        self.apply("job", "exit 0", restart="never")
        self.apply("bad", "exit 3", restart="never")
        self.apply("again", "echo run; exit 5", retry={"base_seconds": 1, "max_attempts": 10})
        self.apply("nothing", restart="never", spec={"command": ["/no/such/program"]})
        self.assertEqual(c.wait_phase("job", "Completed")["status"]["exit_code"], 0)
        w = c.wait_phase("bad", "Failed")["status"]
        self.assertEqual((w["exit_code"], w["reason"]), (3, "crashed"))
        c.wait_for("a restart", lambda: (c.workload("again")["status"].get("restarts") or 0) >= 1)
        w = c.wait_phase("nothing", "Failed")["status"]
        self.assertEqual(w["reason"], "start-failed")
        self.assertIn("/no/such/program", w["failure_reason"])

    def test_a_missing_image_says_so(self):  # R: C6
        c = self.node()
        self.apply("never", restart="never", spec={"image": "localhost/nobody:1"})
        w = c.wait_phase("never", "Failed")["status"]
        self.assertEqual(w["reason"], "image-unavailable")
        self.assertIn("localhost/nobody:1", w["failure_reason"])
        # a registry where nobody listens: what it is doing is shown meanwhile, without an event for it
        self.apply("pull", restart="never", spec={"image": f"127.0.0.1:{free_port()}/nobody:1", "pull": "missing"})
        self.wait_message("pull", "pulling image")
        w = c.wait_phase("pull", "Failed")["status"]
        self.assertEqual(w["reason"], "image-unavailable")
        self.assertIn("connection refused", w["failure_reason"])
        self.assertNotIn("progress", w)
        self.assertFalse([e for e in c.events_of("pull") if "pulling" in e.get("message", "") and "could not" not in e.get("message", "")])

    def test_an_agent_that_is_killed_finds_its_containers_again(self):  # R: C6 C22 C40
        c = self.node()
        self.apply("stays", "echo once; " + FOREVER)
        self.apply("ends", "while [ ! -e /tmp/end ]; do sleep 0.1; done; exit 9", restart="never", spec={"volumes": [{"host_path": c.dir, "container_path": "/tmp"}]})
        c.wait_phase("stays", "Running")
        c.wait_phase("ends", "Running")
        (before,) = self.inspect("stays")
        c.agents["node-1"].kill()
        open(os.path.join(c.dir, "end"), "w").close()  # nobody looks while it ends
        deadline = time.monotonic() + berthtest.TIMEOUT
        while self.inspect("ends")[0]["State"]["Running"]:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        self.start()
        w = c.wait_phase("ends", "Failed")["status"]
        self.assertEqual(w["exit_code"], 9)
        c.wait_phase("stays", "Running")
        (after,) = self.inspect("stays")
        self.assertEqual((after["Id"], after["State"]["Pid"]), (before["Id"], before["State"]["Pid"]))
        self.assertEqual(c.ok("logs", "stays").out, "once\n")
        os.kill(after["State"]["Pid"], signal.SIGKILL)  # and the new agent watches it
        c.wait_for("its end to be noticed", lambda: (c.workload("stays")["status"].get("restarts") or 0) >= 1)

    def test_two_clusters_share_an_engine_and_a_node_id(self):  # issue 5, D2. R: C34 A13
        c = self.node()
        other = self.cluster()
        self.apply("web")
        c.wait_phase("web", "Running")
        (before,) = self.inspect("web")
        args = ["--runtime", "podman", "--podman-root", self.root, "--podman-runroot", self.runroot]
        other.start_agent("node-1", args=args)
        other.wait_nodes_ready(1)
        w = {"id": "web", "type": "container", "stop_grace_seconds": 2, "spec": {"image": IMAGE, "command": ["/bin/sh", "-c", FOREVER], "pull": "never"}}
        self.assertEqual(other.api.call("PUT", "/v1/workloads/web", w).status, 201)
        other.wait_phase("web", "Running")
        both = self.inspect("web")
        self.assertEqual(sorted(x["State"]["Running"] for x in both), [True, True])
        self.assertEqual(len({x["Name"] for x in both}), 2)
        self.assertEqual(len({x["Config"]["Labels"]["berth.io/cluster"] for x in both}), 2)
        other.agents["node-1"].kill()  # a restart finds its own and nothing else
        other.start_agent("node-1", args=args)
        other.wait_nodes_ready(1)
        other.wait_phase("web", "Running")
        other.ok("delete", "web", "--wait")
        (after,) = self.inspect("web")
        self.assertEqual((after["Id"], after["State"]["Pid"]), (before["Id"], before["State"]["Pid"]))
        self.assertEqual(c.workload("web")["status"].get("restarts") or 0, 0)
        for p in (other.agents["node-1"], other.server):
            p.stop()

    def test_health_checks(self):  # R: C6
        c = self.node()
        port = free_port()
        health = {"interval_seconds": 1, "timeout_seconds": 5, "failures": 2}
        serve = f"cd /tmp; echo ok > ok; httpd -f -p 127.0.0.1:{port} -h /tmp & trap 'kill $!; exit 0' TERM; while true; do sleep 0.1; done"
        self.apply("http", serve, spec={"network": "host", "health": {**health, "port": port, "path": "/ok"}})
        self.apply("exec", "touch /good; " + FOREVER, spec={"health": {**health, "command": ["/bin/cat", "/good"]}})
        self.apply("tcp", spec={"network": "host", "health": {**health, "port": free_port(), "start_seconds": 1}}, retry={"base_seconds": 60})
        c.apply("plain", command=["sleep", "100000"], spec={"command": ["sleep", "100000"], "env": {berthtest.MARK: self.mark},
                                                           "health": {**health, "command": ["false"]}}, retry={"base_seconds": 60})
        for name in ("http", "exec"):
            c.wait_for(f"{name} to be healthy", lambda name=name: c.workload(name)["status"].get("health") == "healthy")
        self.assertIn("healthy", c.ok("describe", "workload", "http").out)
        for name in ("tcp", "plain"):
            w = c.wait_phase(name, "RetryPending")["status"]
            self.assertEqual(w["reason"], "unhealthy")
            self.assertIn("2 health checks in a row failed", w["failure_reason"])
        c.ok("exec", "exec", "--", "/bin/rm", "/good")
        c.wait_for("what turned unhealthy to be started anew", lambda: (c.workload("exec")["status"].get("restarts") or 0) >= 1)
        c.wait_for("and healthy", lambda: c.workload("exec")["status"].get("health") == "healthy")

    def test_ports_reach_the_container(self):  # R: C6
        c = self.node()
        port = free_port()
        self.apply("web", "cd /bin; echo served > /bin/page; httpd -f -p 80 -h /bin & trap 'kill $!; exit 0' TERM; while true; do sleep 0.1; done",
                   spec={"ports": [{"host_port": port, "container_port": 80}], "health": {"port": 80, "path": "/page", "interval_seconds": 1, "start_seconds": 30}})
        w = c.wait_phase("web", "Running", "RetryPending")
        if w["status"]["phase"] == "RetryPending":
            self.skipTest("this machine gives containers no network: " + w["status"]["failure_reason"])
        c.wait_for("a healthy one", lambda: c.workload("web")["status"].get("health") == "healthy")
        got = subprocess.run(["busybox", "wget", "-q", "-O", "-", f"http://127.0.0.1:{port}/page"], capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(got.stdout, "served\n", got.stderr)

    def test_a_pod_in_kubernetes_words(self):  # R: C6
        c = self.node()
        path = os.path.join(c.dir, "pod.yaml")
        with open(path, "w") as f:
            f.write(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pair", "labels": {"app": "pair"}},
                                "spec": {"hostNetwork": True, "restartPolicy": "Always", "containers": [
                                    {"name": n, "image": IMAGE, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", f"echo I am {n}; " + FOREVER],
                                     "resources": {"requests": {"memory": "32Mi"}}} for n in ("left", "right")]}}))
        c.ok("apply", "-f", path)
        w = c.wait_phase("pair", "Running", "RetryPending")
        if "catatonit" in w["status"].get("failure_reason", ""):
            self.skipTest("podman makes no pods here: " + w["status"]["failure_reason"])
        c.wait_phase("pair", "Running")
        self.assertEqual(w["resources"]["memory_mb"], 64)
        self.assertEqual(w["labels"], {"app": "pair"})
        self.assertEqual(len(self.inspect("pair")), 2)
        self.wait_output(c, "pair", ["left | I am left", "right | I am right"])
        c.agents["node-1"].kill()
        ids = sorted(b["Id"] for b in self.inspect("pair"))
        self.start()
        c.wait_nodes_ready(1)
        c.wait_phase("pair", "Running")
        self.assertEqual(sorted(b["Id"] for b in self.inspect("pair")), ids)
        right = [b for b in self.inspect("pair") if b["Name"].endswith("-right")][0]
        os.kill(right["State"]["Pid"], signal.SIGKILL)  # one fails: the pod does
        c.wait_for("the pod to be started anew", lambda: (c.workload("pair")["status"].get("restarts") or 0) >= 1)
        c.wait_phase("pair", "Running")
        c.ok("delete", "pair", "--wait")
        self.assertEqual(self.podman("pod", "ps", "-q").stdout, "")

    def test_a_compose_file_is_one_workload(self):  # R: C6
        c = self.node()
        text = f"""
services:
  front:
    image: {IMAGE}
    entrypoint: /bin/sh -c
    command: ["echo front; {FOREVER}"]
    environment: {{COLOUR: red}}
    network_mode: host
    depends_on: [back]
  back:
    image: {IMAGE}
    entrypoint: [/bin/sh, -c]
    command: ["echo back; {FOREVER}"]
    network_mode: host
    restart: always
"""
        a = c.api.call("PUT", "/v1/workloads/shop", {"id": "shop", "type": "compose", "stop_grace_seconds": 2, "retry": {"base_seconds": 1},
                                                     "spec": {"compose": text.replace("restart:", "deploy:")}})
        self.assertEqual((a.status, a.json["path"]), (400, "spec.compose"), a)
        self.assertIn("services.back.deploy", a.json["message"])
        a = c.api.call("PUT", "/v1/workloads/shop", {"id": "shop", "type": "compose", "stop_grace_seconds": 2, "retry": {"base_seconds": 1},
                                                     "spec": {"compose": text, "pull": "never"}, "resources": {"cpu": 0.5, "memory_mb": 64}})
        self.assertEqual(a.status, 201, a)
        c.wait_phase("shop", "Running")
        self.wait_output(c, "shop", ["back | back", "front | front"])
        boxes = {b["Config"]["Labels"]["berth.io/part"]: b for b in self.inspect("shop")}
        self.assertEqual(sorted(boxes), ["back", "front"])
        for box in boxes.values():  # issue 5, D10: each has the unit's limits
            self.assertEqual((box["HostConfig"]["Memory"], box["HostConfig"]["NanoCpus"]), (64 << 20, 500000000))
        self.assertLess(boxes["back"]["State"]["StartedAt"], boxes["front"]["State"]["StartedAt"])
        os.kill(boxes["back"]["State"]["Pid"], signal.SIGKILL)
        c.wait_for("all of it to be started anew", lambda: (c.workload("shop")["status"].get("restarts") or 0) >= 1)
        c.wait_phase("shop", "Running")
        self.assertEqual(len(self.inspect("shop")), 2)
        c.ok("delete", "shop", "--wait")
        self.assertEqual(self.inspect("shop"), [])

    def test_dockers_routes_alone_are_enough(self):  # R: C6
        c = self.node()
        # podman speaks Docker's dialect on the same socket; another node uses nothing else
        args = ["--runtime", "docker", "--podman-socket", os.path.join(c.dir, "node-1", "podman", "podman.sock")]
        c.start_agent("node-2", args=args)
        c.wait_nodes_ready(2)
        c.ok("cordon", "node-1")
        self.apply("there", "echo hello; " + FOREVER)
        self.assertEqual(c.wait_phase("there", "Running")["assigned_node"], "node-2")
        self.assertEqual(c.ok("exec", "there", "--", "/bin/echo", "inside").out, "inside\n")
        c.wait_for("its output", lambda: "hello" in c.cli("logs", "there").out)
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": IMAGE}]}}
        a = c.api.call("PUT", "/v1/workloads/pod", {"id": "pod", "type": "container", "restart": "never", "spec": {"pod": json.dumps(pod)}})
        self.assertEqual(a.status, 201, a)
        w = c.wait_phase("pod", "Failed")["status"]
        self.assertIn("pods need podman", w["failure_reason"])
        self.apply("after", "echo hello; " + FOREVER)  # the node still takes containers
        c.wait_phase("after", "Running")
        c.agents["node-2"].kill()
        c.start_agent("node-2", args=args)
        c.wait_for("both to be adopted", lambda: c.tail("node-2").count("unit adopted") >= 2)
        for name in ("there", "after"):
            c.ok("delete", name, "--wait")

    def test_an_agent_without_an_engine_says_why(self):  # R: C6 C25
        c = self.c = self.cluster()
        agent = c.start_agent("lone", args=["--runtime", "podman", "--podman-socket", os.path.join(c.dir, "nobody.sock")])
        self.assertNotEqual(agent.popen.wait(berthtest.TIMEOUT), 0)
        self.assertIn("nobody.sock", c.tail("lone"))
        self.assertIn("--runtime podman does not work here", c.tail("lone"))
        c.start_agent("lone", args=["--runtime", "process"])
        c.wait_nodes_ready(1)
        self.assertEqual(c.node("lone")["supported_workload_types"], ["process"])
