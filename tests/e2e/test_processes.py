"""What becomes of processes when an agent, its machine, or its limits give way."""
import contextlib
import fcntl
import glob
import http.client
import os
import pty
import shutil
import signal
import subprocess
import time
import unittest

from berthtest import TIMEOUT, Case, alive
from test_faults import guarded, lines

CAN_UNSHARE = os.geteuid() == 0 and shutil.which("unshare")


class PowerLoss(Case):
    def in_boot(self, c, name):
        """What starts an agent in another boot of the machine, as far as the kernel tells."""
        path = os.path.join(c.dir, name)
        with open(path, "w") as f:
            f.write(f"{name:0>36}\n")
        return ["unshare", "-m", "sh", "-c", f"mount --bind {path} /proc/sys/kernel/random/boot_id && exec \"$@\"", "sh"]

    def lose_power(self, c, name, workload):
        """The agent, the monitor and the command end at once, and what was not synced is gone."""
        unit = os.path.join(c.dir, name, "units", workload)
        state = dict(line.split("=", 1) for line in lines(os.path.join(unit, "run.state")))
        c.agents[name].kill()
        for pid in (int(state["monitor"]), int(state["pid"])):
            os.kill(pid, signal.SIGKILL)
            c.wait_for("its end", lambda: not alive(pid))
        os.unlink(os.path.join(unit, "run.state"))

    # R: W3 A5 C6, D5
    @unittest.skipUnless(CAN_UNSHARE, "needs root: the agent gets another boot id in a mount namespace")
    def test_a_job_that_runs_once_at_most_is_not_run_again(self):
        c = self.cluster(heartbeat="500ms")
        c.start_agent("node-1", wrapper=self.in_boot(c, "first"))
        c.wait_nodes_ready(1)
        for restart in ("never", "always"):
            c.apply(restart, command=guarded(os.path.join(c.dir, restart)), restart=restart)
            c.wait_phase(restart, "Running")
            c.wait_for("its start", lambda: lines(os.path.join(c.dir, restart + ".starts")))
        token = c.workload("always")["token"]["seq"]
        c.agents["node-1"].signal(signal.SIGSTOP)
        for restart in ("never", "always"):
            self.lose_power(c, "node-1", restart)
        c.wait_for("the server to notice", lambda: not c.node("node-1").get("connected"))
        c.start_agent("node-1", wrapper=self.in_boot(c, "second"))
        c.wait_for("the service to run again", lambda: len(lines(os.path.join(c.dir, "always.starts"))) == 2)
        w = c.wait_phase("always", "Running")
        self.assertGreater(w["token"]["seq"], token, "under a token of its own")
        w = c.wait_phase("never", "Failed")
        self.assertIn("restarted", w["status"]["failure_reason"])
        self.assertEqual(len(lines(os.path.join(c.dir, "never.starts"))), 1)


def unit_state(c, node, workload):
    """What the unit's monitor wrote down when it started."""
    return dict(line.split("=", 1) for line in lines(os.path.join(c.dir, node, "units", workload, "run.state")))


def cgroups_of(name):
    """The directories of one unit, in whatever hierarchies the machine has."""
    return glob.glob(f"/sys/fs/cgroup/**/berth/{glob.escape(name)}", recursive=True)


class FewFileDescriptors(Case):
    # R: A5 C40, D3
    @unittest.skipUnless(shutil.which("prlimit"), "needs prlimit")
    def test_an_agent_short_of_them_kills_nothing(self):
        c = self.cluster(nodes=1, heartbeat="500ms")
        names = [f"w{i}" for i in range(60)]
        for name in names:
            c.apply(name, command=guarded(os.path.join(c.dir, name)), cpu=0.05)
        for name in names:
            c.wait_phase(name, "Running")
            c.wait_for("its pid", lambda: lines(os.path.join(c.dir, name + ".starts")))
        before = {name: (c.workload(name)["token"], int(lines(os.path.join(c.dir, name + ".starts"))[0])) for name in names}
        c.agents["node-1"].kill()
        c.wait_for("the server to notice", lambda: not c.node("node-1").get("connected"))
        c.start_agent("node-1", wrapper=["prlimit", "--nofile=48:48"])
        c.wait_for("the agent to be back", lambda: c.node("node-1").get("connected"))
        for name in names:
            w = c.wait_phase(name, "Running")
            self.assertEqual(w["token"], before[name][0])
            self.assertTrue(alive(before[name][1]), name)
        # And all of them are looked after: an end is noticed, and a stop is obeyed, whether there was a descriptor for it or not.
        for name in names[:30]:
            os.kill(before[name][1], signal.SIGKILL)
        for name in names[30:]:
            c.api.call("POST", f"/v1/workloads/{name}/stop")
        for name in names[:30]:
            c.wait_for("a second start", lambda: len(lines(os.path.join(c.dir, name + ".starts"))) == 2)
        for name in names[30:]:
            c.wait_phase(name, "Stopped")
            self.assertFalse(alive(before[name][1]), name)
        for name in names:
            self.assertEqual(lines(os.path.join(c.dir, name + ".double")), [])


class Frozen(Case):
    def freeze(self, c, workload):
        """Freezes the unit's cgroup; the cleanup thaws it."""
        for path in cgroups_of(unit_state(c, "node-1", workload).get("cgroup", "none")):
            for name, on, off in (("freezer.state", "FROZEN", "THAWED"), ("cgroup.freeze", "1", "0")):
                file = os.path.join(path, name)
                if os.path.exists(file):
                    def write(text, file=file):
                        with contextlib.suppress(OSError), open(file, "w") as f:
                            f.write(text)
                    self.addCleanup(write, off)
                    write(on)
                    return lambda: write(off)
        self.skipTest("needs a cgroup that can be frozen")
        return None

    # R: A5 C10, D4
    @unittest.skipUnless(os.geteuid() == 0, "needs root: a cgroup is frozen")
    def test_a_stuck_command_blocks_nobody_else(self):
        c = self.cluster(nodes=1, heartbeat="500ms", silence=6)
        c.apply("stuck")
        c.apply("fine")
        c.wait_phase("stuck", "Running")
        c.wait_phase("fine", "Running")
        thaw = self.freeze(c, "stuck")
        session = [e["seq"] for e in c.events() if e["type"] == "NodeLost"]
        calls = [subprocess.Popen([c.cli_binary, "exec", "stuck", "--", "true"], env={**c.env, "BERTH_SERVER": c.grpc_address}, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(3)]
        self.addCleanup(lambda: [p.kill() for p in calls])
        for _ in range(3):
            self.assertEqual(c.ok("exec", "fine", "--", "echo", "here", timeout=20).out, "here\n")
        for p in calls:
            self.assertIsNone(p.poll(), "it is frozen with its unit")
            p.terminate()  # its caller goes, and it cannot be killed
            p.wait()
        self.assertEqual(c.ok("exec", "fine", "--", "echo", "here", timeout=20).out, "here\n")
        self.assertTrue(c.node("node-1").get("connected"))
        thaw()
        self.assertEqual(c.ok("exec", "stuck", "--", "echo", "awake", timeout=20).out, "awake\n")
        self.assertEqual([e["seq"] for e in c.events() if e["type"] == "NodeLost"], session)

    # R: A5 C10, D4
    @unittest.skipUnless(os.geteuid() == 0, "needs root: a cgroup is frozen")
    def test_a_stuck_health_check_blocks_nobody_else(self):
        c = self.cluster(nodes=1, heartbeat="500ms", silence=6)
        w = c.manifest("stuck")
        w["spec"]["health"] = {"command": ["true"], "interval_seconds": 1, "timeout_seconds": 1, "failures": 3}
        self.assertIn(c.api.call("PUT", "/v1/workloads/stuck", w).status, (200, 201))
        c.apply("fine")
        c.wait_for("a first answer", lambda: c.workload("stuck")["status"].get("health") == "healthy")
        c.wait_phase("fine", "Running")
        thaw = self.freeze(c, "stuck")
        # It is given up after three checks, and cannot be stopped: the others do not notice.
        c.wait_for("the checks to fail", lambda: c.workload("stuck")["status"].get("health") == "unhealthy")
        self.assertEqual(c.ok("exec", "fine", "--", "echo", "here", timeout=20).out, "here\n")
        self.assertTrue(c.node("node-1").get("connected"))
        thaw()
        c.wait_for("a restart", lambda: c.workload("stuck")["status"].get("restarts", 0) >= 1 and c.workload("stuck")["status"]["phase"] == "Running")


# A program as nginx or sshd: its worker writes a title over its arguments and its environment.
WITH_TITLE = """
my $pid = fork();
if ($pid == 0) { $0 = "worker " . "x" x 20000; open(my $f, ">>", $ENV{PATH_OF_PIDS}); print $f "$$\\n"; close($f); sleep 100000; }
sleep 100000;
"""


class Strays(Case):
    # R: A5 C34, D6: the worker has no mark, its session's leader is gone, and there is no cgroup.
    @unittest.skipUnless(CAN_UNSHARE and shutil.which("perl"), "needs root: the agent gets a mount namespace without cgroups")
    def test_a_killed_monitor_leaves_no_worker_beside_the_new_copy(self):
        c = self.cluster(heartbeat="500ms")
        c.start_agent("node-1", wrapper=["unshare", "-m", "sh", "-c", "umount -R -l /sys/fs/cgroup; exec \"$@\"", "sh"])
        c.wait_nodes_ready(1)
        pids = os.path.join(c.dir, "pids")
        c.apply("w", command=["perl", "-e", WITH_TITLE], env={"PATH_OF_PIDS": pids}, retry={"base_seconds": 1})
        c.wait_phase("w", "Running")
        for agent_away in (False, True):
            c.wait_for("its worker", lambda: lines(pids))
            count = len(lines(pids))
            worker = int(lines(pids)[-1])
            self.assertEqual(unit_state(c, "node-1", "w").get("cgroup", ""), "")
            if agent_away:
                c.agents["node-1"].kill()
            os.kill(int(unit_state(c, "node-1", "w")["monitor"]), signal.SIGKILL)
            if agent_away:
                c.start_agent("node-1", wrapper=["unshare", "-m", "sh", "-c", "umount -R -l /sys/fs/cgroup; exec \"$@\"", "sh"])
            c.wait_for("a new copy", lambda: len(lines(pids)) > count)
            self.assertFalse(alive(worker), "the old worker runs beside the new copy")
            c.wait_phase("w", "Running")

    # R: C24 C34, D6
    def test_what_was_daemonised_through_exec_ends_with_its_unit(self):
        c = self.cluster(nodes=1)
        for end in ("stop", "delete"):
            c.apply("w")
            c.wait_phase("w", "Running")
            name = unit_state(c, "node-1", "w").get("cgroup", "none")
            pid = int(c.ok("exec", "w", "--", "sh", "-c", "setsid sleep 100000 </dev/null >/dev/null 2>&1 & echo $!").out)
            c.wait_for("it to run", lambda: alive(pid))
            c.ok(end, "w")
            if end == "stop":
                c.wait_phase("w", "Stopped")
            else:
                c.wait_gone("w")
            self.assertFalse(alive(pid), f"it outlived {end}")
            self.assertEqual(cgroups_of(name), [], "nothing is left of its cgroup")
            c.cli("delete", "w")
            c.wait_gone("w")

    # R: C6, B8: somebody kills a monitor, politely; a program that ends with 0 then has not completed.
    def test_a_signal_to_a_monitor_is_told_as_what_it_is(self):
        c = self.cluster(nodes=1)
        path = os.path.join(c.dir, "w")
        c.apply("w", command=guarded(path, then="trap 'exit 0' TERM; while :; do sleep 0.1; done"), restart="on-failure", retry={"base_seconds": 1})
        c.wait_phase("w", "Running")
        for signum, words in ((signal.SIGTERM, "signal 15 to its monitor"), (signal.SIGKILL, "monitor was killed")):
            starts = len(lines(path + ".starts"))
            os.kill(int(unit_state(c, "node-1", "w")["monitor"]), signum)
            c.wait_for("another start", lambda: len(lines(path + ".starts")) > starts)
            c.wait_phase("w", "Running")
            told = c.events_of("w", "RetryScheduled")[-1]
            self.assertEqual(told["reason"], "killed")
            self.assertIn(words, told["message"])
        self.assertEqual(lines(path + ".double"), [])
        self.assertEqual(c.events_of("w", "WorkloadCompleted"), [])


class SlowMonitor(Case):
    # R: A5 C28, D10
    def test_a_start_waits_for_the_lock_of_the_copy_before(self):
        c = self.cluster(nodes=1, heartbeat="500ms")
        path = os.path.join(c.dir, "w")
        c.apply("w", command=guarded(path), retry={"base_seconds": 1})
        c.wait_phase("w", "Running")
        c.wait_for("its pid", lambda: lines(path + ".starts"))
        unit = os.path.join(c.dir, "node-1", "units", "w")
        c.agents["node-1"].kill()
        os.kill(int(lines(path + ".starts")[0]), signal.SIGKILL)
        c.wait_for("its end on record", lambda: os.path.exists(os.path.join(unit, "exit.state")))
        with open(os.path.join(unit, "lock")) as lock:
            c.wait_for("its monitor's end", lambda: not alive(int(unit_state(c, "node-1", "w")["monitor"])))
            fcntl.flock(lock, fcntl.LOCK_EX)  # as a monitor that has written down the end and has not gone yet
            c.start_agent("node-1")
            c.wait_phase("w", "RetryPending")
            launched = c.wait_phase("w", "Scheduled")["token"]
            time.sleep(3)  # longer than any start that waits inside the agent's loop
            self.assertEqual(c.workload("w")["token"], launched, "it is still the same start")
        c.wait_phase("w", "Running")
        self.assertEqual(c.workload("w")["token"], launched)
        self.assertEqual([e for e in c.events_of("w") if e.get("reason") == "start-failed"], [])


class Exec(Case):
    # R: C40 A9, B8
    def test_a_command_that_cannot_be_run_ends_as_in_a_shell(self):
        c = self.cluster(nodes=1)
        c.apply("w")
        c.wait_phase("w", "Running")
        r = c.cli("exec", "w", "--", "no-such-command")
        self.assertEqual(r.code, 127, r)
        self.assertIn("command not found: no-such-command", r.err)
        r = c.cli("exec", "w", "--", "/etc/passwd")
        self.assertEqual(r.code, 126, r)
        self.assertIn("/etc/passwd", r.err)
        self.assertEqual(c.cli("exec", "w", "--", "sh", "-c", "exit 127").code, 127)

    # R: C40, B8
    def test_the_terminal_is_named_to_the_command(self):
        c = self.cluster(nodes=1)
        c.apply("w", env={"TERM": "of-the-unit"})
        c.wait_phase("w", "Running")

        def in_a_terminal(term):
            env = {**c.env, "BERTH_SERVER": c.grpc_address, **({"TERM": term} if term else {})}
            if not term:
                env.pop("TERM", None)
            out, (mine, theirs) = b"", pty.openpty()
            p = subprocess.Popen([c.cli_binary, "exec", "-it", "w", "--", "sh", "-c", "echo [$TERM]"], env=env, stdin=theirs, stdout=theirs, stderr=theirs,
                                 start_new_session=True)
            os.close(theirs)
            with contextlib.suppress(OSError):  # EIO: the other side is closed
                while piece := os.read(mine, 4096):
                    out += piece
            os.close(mine)
            self.assertEqual(p.wait(), 0, out)
            return out.decode().strip()
        self.assertEqual(in_a_terminal("vt220"), "[vt220]")
        for unknown in ("no terminal;", None):
            self.assertEqual(in_a_terminal(unknown), "[of-the-unit]")
        self.assertEqual(c.ok("exec", "w", "--", "sh", "-c", "echo $TERM").out, "of-the-unit\n")
        c.apply("w")
        c.wait_for("the new one", lambda: c.workload("w")["status"]["phase"] == "Running" and c.cli("exec", "w", "--", "sh", "-c", "exit ${TERM:+1}").code == 0)
        self.assertEqual(in_a_terminal(None), "[xterm]")


class Told(Case):
    # R: C6 C29, B5
    def test_a_kill_after_the_grace_is_told(self):
        c = self.cluster(nodes=1)
        c.apply("w", command=["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done"], stop_grace_seconds=1)
        c.wait_phase("w", "Running")
        c.wait_for("its trap", lambda: "up" in c.cli("logs", "w").out)
        c.ok("stop", "w")
        c.wait_phase("w", "Stopped")
        self.assertIn("killed: it had not ended within its grace of 1 s", c.events_of("w", "WorkloadStopped")[-1]["message"])
        self.assertIn("grace of 1 s", c.ok("describe", "w").out)
        c.ok("start", "w")
        c.wait_phase("w", "Running")
        c.wait_for("its trap", lambda: c.cli("logs", "w").out.count("up") == 2)
        c.ok("delete", "w")
        c.wait_gone("w")
        self.assertIn("grace of 1 s", c.events_of("w", "WorkloadDeleted")[-1]["message"])

    # R: C29, B5: nothing is said where there is nothing to say.
    def test_an_end_within_the_grace_is_not_worth_a_word(self):
        c = self.cluster(nodes=1)
        c.apply("w")
        c.wait_phase("w", "Running")
        c.ok("stop", "w")
        c.wait_phase("w", "Stopped")
        self.assertNotIn("message", c.events_of("w", "WorkloadStopped")[-1])

    # R: C38, B8
    def test_a_manifest_without_resources_gets_what_run_gives(self):
        c = self.cluster(nodes=1)
        c.ok("run", "by-run", "--", "sleep", "100000")
        bare = c.manifest("by-api")
        del bare["resources"]
        self.assertEqual(c.api.call("PUT", "/v1/workloads/by-api", bare).status, 201)
        with open(os.path.join(c.dir, "w.yaml"), "w") as f:
            f.write("id: by-file\ntype: process\nspec: {command: [sleep, '100000']}\n")
        c.ok("apply", "-f", os.path.join(c.dir, "w.yaml"))
        wanted = c.workload("by-run")["resources"]
        self.assertEqual(wanted, {"cpu": 0.1, "memory_mb": 128, "disk_gb": 0})
        for name in ("by-api", "by-file"):
            self.assertEqual(c.workload(name)["resources"], wanted, name)
        none = c.manifest("none")
        none["resources"] = {"cpu": 0, "memory_mb": 0}  # said: then that is what it gets
        self.assertEqual(c.api.call("PUT", "/v1/workloads/none", none).status, 201)
        self.assertEqual(c.workload("none")["resources"], {"cpu": 0, "memory_mb": 0, "disk_gb": 0})


class Windows(Case):
    # R: C40, D8
    def test_a_command_that_reads_slowly_makes_its_writer_wait(self):
        c = self.cluster(nodes=1)
        c.apply("w")
        c.wait_phase("w", "Running")
        go, data = os.path.join(c.dir, "go"), os.path.join(c.dir, "data")
        with open(data, "wb") as f:
            f.write(os.urandom(1 << 20) * 24)
        with open(data, "rb") as f:
            p = subprocess.Popen([c.cli_binary, "exec", "-i", "w", "--", "sh", "-c", f"echo ready; while [ ! -e {go} ]; do sleep 0.05; done; cksum"],
                                 env={**c.env, "BERTH_SERVER": c.grpc_address}, stdin=f, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.addCleanup(p.kill)
            self.assertEqual(p.stdout.readline(), b"ready\n")
            # While it does not read, others do what they want, and the writer stands still: no more is taken from the file.
            for _ in range(20):
                self.assertEqual(c.ok("exec", "-i", "w", "--", "cat", stdin="hello").out, "hello")
                self.assertIsNone(p.poll())
            before = os.lseek(f.fileno(), 0, os.SEEK_CUR)
            self.assertLess(before, 16 << 20)
            open(go, "w").close()
            out, err = p.communicate(timeout=TIMEOUT)
        self.assertEqual(p.returncode, 0, err)
        self.assertEqual(out.split()[:2], subprocess.run(["cksum", data], capture_output=True, check=True).stdout.split()[:2])

    # R: C40 A11, D8
    def test_a_slow_reader_of_logs_loses_nothing_and_holds_up_nobody(self):
        c = self.cluster(nodes=1)
        w = c.manifest("w", command=["sh", "-c", "i=0; seq -f '%.0f 0123456789012345678901234567890123456789012345678901234567890123456789' 1 300000; echo end; exec sleep 100000"])
        w["spec"]["log_max_kb"] = 200000
        self.assertEqual(c.api.call("PUT", "/v1/workloads/w", w).status, 201)
        c.wait_phase("w", "Running")
        c.wait_for("all of it", lambda: c.ok("logs", "w", "--tail", "1").out == "end\n")
        p = subprocess.Popen([c.cli_binary, "logs", "w"], env={**c.env, "BERTH_SERVER": c.grpc_address}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        self.addCleanup(p.kill)
        first = p.stdout.readline()
        host, port = c.address.rsplit(":", 1)
        slow = http.client.HTTPConnection(host, int(port), timeout=TIMEOUT)
        self.addCleanup(slow.close)
        slow.request("GET", "/v1/workloads/w/logs")
        answer = slow.getresponse()
        for _ in range(20):  # neither is read meanwhile
            self.assertEqual(c.ok("exec", "w", "--", "echo", "here").out, "here\n")
        lines_read = 1 + sum(1 for _ in p.stdout)
        self.assertEqual((first.split()[0], lines_read, p.wait()), (b"1", 300001, 0), p.stderr.read())
        self.assertEqual(answer.read().count(b"\n"), 300001)


class Usage(Case):
    @unittest.skipUnless(shutil.which("perl"), "needs perl")
    # R: C13 C9, B8: two nodes on one machine, each with a part of it: what one uses is not the other's.
    def test_used_is_the_nodes_own_part_of_the_machine(self):
        c = self.cluster(heartbeat="500ms")
        for name in ("busy", "idle"):
            c.start_agent(name, cpu="0.5", memory="1G", disk="1G", labels={"name": name})
        c.wait_nodes_ready(2)
        hog = "my $x = 'x' x 314572800; while (1) { $x =~ tr/x/x/; }"
        c.apply("w", command=["perl", "-e", hog], cpu=0.1, memory_mb=700, node_selector={"name": "busy"})
        c.wait_phase("w", "Running")
        used = c.wait_for("its use", lambda: (r := c.node("busy")["resources"]).get("memory_used", 0) >= 290 and r.get("cpu_used", 0) > 0.05 and r)
        self.assertTrue(used["used_known"])
        idle = c.wait_for("the other's", lambda: (r := c.node("idle")["resources"]).get("used_known") and r)
        self.assertLess(idle.get("memory_used", 0), 100)
        self.assertEqual(idle.get("cpu_used", 0), 0)
        self.assertRegex(c.ok("describe", "node", "idle").out, r"cpu +0\.5 +0 +0\.5 +0\n")

    # R: C13, B8
    def test_what_nobody_has_said_is_not_zero(self):
        c = self.cluster()
        c.start_agent("n1", runtime="mock")
        c.wait_nodes_ready(1)
        c.agents["n1"].kill()
        c.restart_server()
        self.assertNotIn("used_known", c.node("n1")["resources"])
        self.assertRegex(c.ok("describe", "node", "n1").out, r"cpu +4 +0 +4 +-\n")
