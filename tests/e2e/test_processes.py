"""What becomes of processes when an agent, its machine, or its limits give way."""
import os
import shutil
import signal
import unittest

from berthtest import Case, alive
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
