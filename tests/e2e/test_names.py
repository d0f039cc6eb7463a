"""Who is called, under which name a server answers, who may pose as one, and what reaches a terminal (issue 5, A9)."""
import os
import pty
import select
import subprocess
import time
import unittest

from berthtest import BERTH, Api
from test_access import Access
from test_tls import Pki


class Names(Access):
    # The dashboard's token is in a cookie that the server sets and scripts cannot read. R: A9 C32
    def test_the_server_sets_the_dashboards_cookie(self):
        c = self.safe()
        viewer = self.token(c, "eve", "--role", "viewer")
        self.assertEqual(Api(c.address).call("POST", "/v1/session").status, 401)
        self.assertEqual(Api(c.address, token="berth_" + "x" * 43).call("POST", "/v1/session").status, 401)
        self.assertEqual(Api(c.address, token=self.token(c, "machine", "--role", "node")).call("POST", "/v1/session").status, 403)
        a = Api(c.address, token=viewer).call("POST", "/v1/session")
        self.assertEqual(a.status, 200)
        cookie = a.headers["Set-Cookie"]
        for part in ("HttpOnly", "SameSite=Strict", "Path=/"):
            self.assertIn(part, cookie)
        pair = cookie.split(";")[0]
        self.assertEqual(Api(c.address).call("GET", "/v1/nodes", headers={"Cookie": pair}).status, 200)
        self.assertEqual(Api(c.address, token=viewer).call("POST", "/v1/session", headers={"Origin": "http://evil.example"}).status, 403)
        gone = Api(c.address).call("DELETE", "/v1/session", headers={"Cookie": pair})
        self.assertEqual(gone.status, 200)
        self.assertIn("Max-Age=0", gone.headers["Set-Cookie"])
        page = c.api.get("/").body.decode()
        self.assertIn("<html", page)

    # Also where everybody is asked who they are: a certificate in a browser is shown to any name. R: A9
    def test_only_listed_host_names_are_answered(self):
        c = self.safe()
        evil = {"Host": "evil.example:8084"}
        a = c.api.call("GET", "/v1/nodes", headers=evil)
        self.assertEqual(a.status, 403)
        self.assertIn("allowed_hosts", a.json["hint"])
        self.assertEqual(c.api.call("GET", "/v1/nodes", headers={"Host": "localhost:1"}).status, 200)
        with open(os.path.join(c.dir, "server.yaml"), "w") as f:
            f.write("allowed_hosts: [good.example]\n")
        c.kill_server()
        c.server_args += ["--config", os.path.join(c.dir, "server.yaml")]
        c.start_server()
        self.assertEqual(c.api.call("GET", "/v1/nodes", headers={"Host": "good.example"}).status, 200)
        self.assertEqual(c.api.call("GET", "/v1/nodes", headers=evil).status, 403)

    # A node whose certificate has a host name cannot pose as a server, for commands and agents. R: A13 C32
    def test_a_node_cannot_pose_as_a_server(self):
        c = self.cluster(server=False)
        pki = Pki(c)
        pki.issue("node", "n1", "--ip", "127.0.0.1", "--dns", "localhost")
        with open(os.path.join(c.dir, "rogue.log"), "wb") as log:
            rogue = subprocess.Popen(["openssl", "s_server", "-accept", "127.0.0.1:0", "-naccept", "20", "-alpn", "h2", "-cert", pki.file("n1.pem"), "-key", pki.file("n1-key.pem")],
                                     stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT)
        self.addCleanup(rogue.wait)
        self.addCleanup(rogue.kill)

        def port():
            with open(os.path.join(c.dir, "rogue.log")) as f:
                lines = [line for line in f if line.startswith("ACCEPT ")]
            return lines[0].split(":")[-1].strip() if lines else None
        c.wait_for("the rogue to listen", port)
        address = f"127.0.0.1:{port()}"
        env = {**os.environ, "BERTH_TLS_CA": pki.file("ca.pem")}
        r = subprocess.run([BERTH, "get", "nodes", "--server", address, "--token", "berth_x"], env=env, capture_output=True, text=True, timeout=120)
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("no server", r.stderr)
        agent = subprocess.Popen([BERTH, "agent", "--server", address, "--data", os.path.join(c.dir, "a"), "--node-id", "n2", "--tls-ca", pki.file("ca.pem")],
                                 stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self.addCleanup(agent.wait)
        self.addCleanup(agent.kill)
        said = ""
        deadline = time.monotonic() + 60
        while "no server" not in said and time.monotonic() < deadline:
            ready, _, _ = select.select([agent.stderr], [], [], 1)
            if ready:
                said += agent.stderr.readline()
        self.assertIn("no server", said)

    def on_a_terminal(self, c, *args):
        """What a command writes when its output is a terminal."""
        master, slave = pty.openpty()
        try:
            p = subprocess.Popen([BERTH, *args, "--server", c.grpc_address], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env={**os.environ, **c.env, "TERM": "xterm"})
        finally:
            os.close(slave)
        said = b""
        while True:
            try:
                data = os.read(master, 65536)
            except OSError:
                break
            if not data:
                break
            said += data
        os.close(master)
        self.assertEqual(p.wait(60), 0, said)
        return said

    # R: A9
    def test_what_a_workload_writes_does_not_steer_the_terminal(self):
        c = self.cluster()
        c.start_agent("node-1")
        c.wait_nodes_ready(1)
        evil = "\033]0;owned\007\x1b[2J" + "\u0085\u202e\u2066"
        c.apply("w", restart="never", spec={"command": ["printf", "%s", "a" + evil + "b\n"]})
        c.wait_phase("w", "Completed")
        raw = c.ok("logs", "w").out
        self.assertIn(evil, raw, "a pipe gets what was written")
        shown = self.on_a_terminal(c, "logs", "w")
        self.assertIn(b"a?]0;owned??[2J", shown)
        for bad in (b"\x1b", b"\x07", b"\xc2\x85", "\u202e".encode(), "\u2066".encode()):
            self.assertNotIn(bad, shown)
        self.assertIn(b"\x1b]0;owned", self.on_a_terminal(c, "logs", "w", "--raw"))
        c.apply("x", annotations={"note": "n\u009b\u202ez"}, node_selector={"no": "where"})
        for form in ("json", "yaml"):
            shown = self.on_a_terminal(c, "get", "workload", "x", "-o", form)
            self.assertIn(b"note", shown)
            for bad in (b"\xc2\x9b", "\u202e".encode()):
                self.assertNotIn(bad, shown)


if __name__ == "__main__":
    unittest.main()
