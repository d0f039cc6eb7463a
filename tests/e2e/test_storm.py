"""All agents come back at once after a restart of the server, each with a TLS connection and a certificate of its own name (C32, A11)."""
import os
import re
import subprocess
import time

from berthtest import FULL, RESTART_SECONDS, Case, note
from test_scale import rss_mb
from test_tls import Pki

NODES = int(os.environ.get("BERTH_TEST_STORM_NODES", 1000 if FULL else 100))
PER_PROCESS = 50  # a server looks at 64 names of a certificate at most


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Storm(Case):
    exclusive = True

    def certificate(self, c, pki, name, nodes):
        """One that names many nodes: mock nodes of one process share it. With a connection for each, the server has as much to do as with one certificate for each."""
        base = os.path.join(c.dir, name)
        with open(base + ".ext", "w") as f:
            f.write("subjectAltName=" + ",".join("DNS:" + n for n in nodes) + "\nextendedKeyUsage=clientAuth,serverAuth\n")
        run = lambda *argv: subprocess.run(["openssl", *argv], check=True, capture_output=True)
        run("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", base + "-key.pem", "-subj", f"/CN={name}", "-out", base + ".csr")
        run("x509", "-req", "-in", base + ".csr", "-CA", os.path.join(pki.dir, "ca.pem"), "-CAkey", os.path.join(pki.dir, "ca-key.pem"), "-CAcreateserial", "-days", "30",
            "-extfile", base + ".ext", "-out", base + ".pem")
        return ["--tls-cert", base + ".pem", "--tls-key", base + "-key.pem", "--tls-ca", pki.file("ca.pem")]

    def metric(self, c, name):
        found = re.findall("^" + re.escape(name) + r"(?:\{[^}]*\})? (\S+)$", c.api.get("/metrics").body.decode(), re.M)
        return sum(float(v) for v in found)

    # R: A11 C32 A5
    def test_all_agents_come_back_at_once_with_tls(self):
        c = self.cluster(server=False, heartbeat="10s")
        c.leftovers_allowed = True  # mock units are no processes
        pki = Pki(c)
        c.server_args += pki.issue("server", "s1", "--ip", "127.0.0.1")
        pki.issue("user", "ann")
        c.env.update(pki.env("ann"))
        c.tls = pki.context("ann")
        c.start_server()
        for k in range(0, NODES, PER_PROCESS):
            count = min(PER_PROCESS, NODES - k)
            prefix = f"s{k:05}"
            args = self.certificate(c, pki, prefix, [f"{prefix}-{i:04}" for i in range(1, count + 1)])
            c.start_agent(prefix, runtime="mock", args=["--nodes", str(count), *args], cpu=None)
        began = time.monotonic()
        c.wait_for(f"{NODES} nodes", lambda: c.info().get("nodes_ready", 0) == NODES, timeout=200)
        note(f"{NODES} nodes registered with TLS in {time.monotonic() - began:.1f} s")
        for i in range(NODES):
            c.apply(f"w{i:05}")
        c.wait_for("all to run", lambda: c.info().get("workloads_running", 0) == NODES, timeout=200)
        launches = {w["id"]: w["token"] for w in c.workloads()}
        c.kill_server()
        c.start_server()
        began = time.monotonic()
        answers, late = [], 0.0  # late: how long the machine itself let us wait
        while True:  # others are served meanwhile
            asked = time.monotonic()
            c.info()
            answers.append(time.monotonic() - asked)
            if self.metric(c, "berth_agent_streams") >= NODES:
                break
            self.assertLess(time.monotonic() - began, 120 + RESTART_SECONDS, c.tail("server"))
            slept = time.monotonic()
            time.sleep(0.02)
            late = max(late, time.monotonic() - slept - 0.02)
        took = time.monotonic() - began
        refused = self.metric(c, "berth_tls_refused_total")
        note(f"{NODES} agents back {took:.1f} s after the restart, each by a TLS handshake: server used {cpu_seconds(c.server.pid):.1f} s of CPU, "
             f"{rss_mb(c.server.pid):.0f} MB resident; {len(answers)} answers to others took {sorted(answers)[len(answers) // 2] * 1000:.0f} ms in the middle, {max(answers) * 1000:.0f} ms at most; {refused:.0f} handshakes failed")
        self.assertLess(max(answers), 0.7 + 10 * late, "others get their turn between handshakes")
        self.assertEqual(refused, 0, "no handshake timed out or failed")
        self.assertEqual({w["id"]: w["token"] for w in c.workloads()}, launches, "nothing was launched anew")
        self.assertEqual(len([e for e in c.events() if e["type"] == "NodeLost"]), 0, "nobody was taken for lost")
