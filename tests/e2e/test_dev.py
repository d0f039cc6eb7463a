"""berth dev: a whole cluster on one machine."""
import contextlib
import datetime
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from berthtest import BERTH, MARK, TIMEOUT, Api, Case, kill_marked, only_embedded, processes_with


def free_port():
    """Two neighbouring free ports; the first of them. The kernel gives them to nobody who asks for any port, so they stay free until they are used."""
    while True:
        port = random.randrange(10000, 32000)
        with socket.socket() as a, socket.socket() as b, contextlib.suppress(OSError):
            a.bind(("127.0.0.1", port))
            b.bind(("127.0.0.1", port + 1))
            return port


@only_embedded("berth dev has its own embedded store")
class Dev(Case):
    def setUp(self):
        super().setUp()
        self.dir = tempfile.mkdtemp(prefix="berth-dev-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.addCleanup(kill_marked, self.mark)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("BERTH_")}
        self.env.update({MARK: self.mark, "BERTH_DATA": os.path.join(self.dir, "data"), "HOME": self.dir})
        self.port = free_port()

    def start(self, *args):
        self.out = open(os.path.join(self.dir, "out"), "ab")
        self.addCleanup(self.out.close)
        p = subprocess.Popen([BERTH, "dev", "--port", str(self.port), *args], stdin=subprocess.DEVNULL, stdout=self.out, stderr=subprocess.STDOUT,
                             env=self.env, start_new_session=True, cwd=self.dir)
        return p

    def text(self):
        return open(os.path.join(self.dir, "out"), errors="replace").read()

    def until(self, what, condition):
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            self.assertLess(time.monotonic(), deadline, f"{what}; output:\n{self.text()}")
            time.sleep(0.05)

    def berth(self, *args, code=0):
        p = subprocess.run([BERTH, *args], capture_output=True, text=True, env=self.env, timeout=TIMEOUT, stdin=subprocess.DEVNULL, cwd=self.dir)
        if code is not None:
            self.assertEqual(p.returncode, code, f"{args}: {p.stdout}{p.stderr}")
        return p.stdout + ("" if code == 0 else p.stderr)

    def ready(self, count=3):
        self.until(f"{count} ready nodes", lambda: self.berth("get", "nodes", code=None).count(" Ready") == count)

    def hello(self):
        return Api(f"127.0.0.1:{self.port}").get("/v1/workloads/hello").json

    # Issue 5, D10. R: A1 A12
    def test_fresh_leaves_nothing_of_before_running(self):
        p = self.start("--nodes", "1")
        self.ready(1)
        self.berth("run", "old", "--env", f"{MARK}={self.mark}", "--", "sh", "-c", "sleep 100000 & wait")
        self.until("old to run", lambda: "Running" in self.berth("get", "workloads", code=None))
        old = [pid for pid, line in processes_with(self.mark).items() if "sleep 100000" in line]
        self.assertTrue(old)
        programs = [pid for pid, line in processes_with(self.mark).items() if " agent " in line or " server " in line]
        for pid in [p.pid, *programs]:  # the power goes; the unit and its monitor stay
            os.kill(pid, signal.SIGSTOP)
        for pid in [*programs, p.pid]:
            os.kill(pid, signal.SIGKILL)
        p.wait(30)
        self.assertTrue(set(old) <= set(processes_with(self.mark)), "units outlive their agent")
        p = self.start("--nodes", "1", "--fresh")
        self.ready(1)
        self.assertEqual([pid for pid in old if pid in processes_with(self.mark)], [])
        self.assertIn("removed", self.text())
        self.assertNotIn("old", self.berth("get", "workloads"))
        p.send_signal(signal.SIGINT)
        self.assertEqual(p.wait(30), 0, self.text())
        self.assertEqual(processes_with(self.mark), {})

    # R: A1 A5 A12, B5
    def test_start_stop_and_start_again(self):
        p = self.start()
        self.ready()
        self.until("the addresses", lambda: f":{self.port}" in self.text())
        self.assertGreaterEqual(self.text().count("berth "), 3, "commands to try next")
        if os.geteuid() == 0:  # issue 5, A8
            self.assertIn("It runs as root", "\n".join(self.text().splitlines()[:6]))
        self.berth("run", "hello", "--env", f"{MARK}={self.mark}", "--", "sh", "-c", "while :; do date; sleep 1; done")
        self.berth("run", "once", "--job", "--", "true")
        self.until("hello to run", lambda: "Running" in self.berth("get", "workloads", code=None) and "Completed" in self.berth("get", "workloads"))
        self.until("output", lambda: self.berth("logs", "hello").strip())
        before = self.hello()
        self.assertEqual(before["status"].get("restarts", 0), 0)
        # Ctrl-C: the terminal sends it to the whole group.
        os.killpg(p.pid, signal.SIGINT)
        self.assertEqual(p.wait(30), 0, self.text())
        self.assertEqual(processes_with(self.mark), {}, "nothing is left running")
        stopped_at = datetime.datetime.now(datetime.timezone.utc).isoformat()
        p = self.start()
        self.ready()
        self.until("everything as it was", lambda: "Running" in self.berth("get", "workloads", code=None) and "Completed" in self.berth("get", "workloads"))
        self.assertEqual(len(self.berth("get", "nodes", "-o", "name").split()), 3)
        # B5: another process runs, so its start is another one, counted, with an event that says why.
        self.until("its own start", lambda: self.hello()["status"].get("restarts", 0) == 1 and self.hello()["status"]["phase"] == "Running")
        after = self.hello()
        self.assertGreaterEqual(after["status"]["started_at"], stopped_at)
        self.assertGreater(after["token"]["seq"], before["token"]["seq"])
        launched = [e for e in Api(f"127.0.0.1:{self.port}").get("/v1/events", workload="hello", limit=1000).json["items"] if e["type"] == "WorkloadLaunched"]
        self.assertEqual(launched[-1]["reason"], "agent-stopped")
        p.send_signal(signal.SIGTERM)  # only the parent is told
        self.assertEqual(p.wait(30), 0, self.text())
        self.assertEqual(processes_with(self.mark), {})
        self.berth("fsck", "--data", os.path.join(self.env["BERTH_DATA"], "server") if os.path.isdir(os.path.join(self.env["BERTH_DATA"], "server"))
                   else self.env["BERTH_DATA"])

    # R: A1
    def test_nodes_and_port(self):
        p = self.start("--nodes", "5")
        self.ready(5)
        self.assertEqual(Api(f"127.0.0.1:{self.port}").get("/health").status, 200)
        os.killpg(p.pid, signal.SIGINT)
        self.assertEqual(p.wait(30), 0, self.text())
        self.assertEqual(processes_with(self.mark), {})

    # R: A9
    def test_a_port_in_use_gives_a_clear_error(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", self.port))
            s.listen()
            p = self.start()
            self.assertNotEqual(p.wait(30), 0)
            self.assertIn("error:", self.text())
            self.assertIn(str(self.port), self.text())
            self.assertIn("hint:", self.text())
        self.assertEqual(processes_with(self.mark), {})

    # The last line of the server's log is the reason, and is shown whole. R: A9
    def test_a_server_that_cannot_start_gives_its_reason(self):
        data = self.env["BERTH_DATA"]
        os.makedirs(data)
        with open(os.path.join(data, "server.log"), "w") as log:
            log.write("level=info msg=\"%s\"\n" % ("long " * 200))
        with open(os.path.join(data, "berth.db"), "wb") as store:
            store.write(b"no database " * 1000)
        p = self.start("--nodes", "1")
        self.assertNotEqual(p.wait(TIMEOUT), 0)
        reason = [line for line in open(os.path.join(data, "server.log")).read().splitlines() if line.startswith(("error:", "hint:"))]
        self.assertTrue(reason)
        for line in reason:
            self.assertIn(line, self.text())

    # R: A5
    def test_killed_hard_and_started_again(self):
        p = self.start()
        self.ready()
        self.berth("run", "hello", "--env", f"{MARK}={self.mark}", "--", "sleep", "100000")
        self.until("hello to run", lambda: "Running" in self.berth("get", "workloads", code=None))
        p.kill()
        p.wait()
        p = self.start()
        self.ready()
        self.until("hello to run once", lambda: "Running" in self.berth("get", "workloads", code=None)
                   and len([c for c in processes_with(self.mark).values() if c.startswith("sleep 100000")]) == 1)
        os.killpg(p.pid, signal.SIGINT)
        self.assertEqual(p.wait(30), 0, self.text())
        self.assertEqual(processes_with(self.mark), {})
