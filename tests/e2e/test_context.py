"""Which server a command means, and where its token goes (issue 5, A5)."""
import json
import os
import subprocess
import unittest

from berthtest import BERTH
from test_access import Access


class Context(Access):
    def run_in(self, directory, *args, env=None, stdin=""):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("BERTH_") and k not in ("XDG_CONFIG_HOME", "HOME")}
        clean.update({"XDG_CONFIG_HOME": os.path.join(self.c.dir, "config"), "HOME": self.c.dir, **(env or {})})
        return subprocess.run([BERTH, *args], cwd=directory, env=clean, input=stdin, capture_output=True, text=True, timeout=120)

    # A5: profiles. R: A9 C32
    def test_a_user_logs_in_once_and_is_known_from_then_on(self):
        c = self.c = self.safe()
        viewer = self.token(c, "eve", "--role", "viewer")
        r = self.run_in(c.dir, "login", c.grpc_address, "--name", "bad", stdin="berth_" + "x" * 43 + "\n")
        self.assertNotEqual(r.returncode, 0)
        path = os.path.join(c.dir, "config", "berth", "config")
        self.assertFalse(os.path.exists(path), "what does not work is not kept")
        r = self.run_in(c.dir, "login", c.grpc_address, "--name", "lab", stdin=viewer + "\n")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        r = self.run_in(c.dir, "get", "nodes")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertNotEqual(self.run_in(c.dir, "run", "w", "--", "true").returncode, 0, "as a viewer")
        r = self.run_in(c.dir, "login", c.grpc_address, "--token", c.token, "--name", "admin")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual(self.run_in(c.dir, "token", "ls").returncode, 0)
        self.assertEqual(self.run_in(c.dir, "context", "use", "lab").returncode, 0)
        self.assertNotEqual(self.run_in(c.dir, "token", "ls").returncode, 0)
        shown = self.run_in(c.dir, "context", "ls").stdout
        self.assertIn("* lab", shown)
        self.assertIn("  admin", shown)
        self.assertNotIn(viewer, shown)
        self.assertEqual(self.run_in(c.dir, "context", "use", "nowhere").returncode, 4)
        # its token is for its own server
        r = self.run_in(c.dir, "get", "nodes", "--server", c.grpc_address)
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("needs a token", r.stderr)
        # others can read it: not used
        os.chmod(path, 0o644)
        r = self.run_in(c.dir, "get", "nodes")
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("not yours alone", r.stderr)
        with open(path) as f:
            self.assertEqual(json.load(f)["current"], "lab")

    # A5: what lies in a directory that others can write to is not the user's word. R: A9 C32
    def test_an_address_that_somebody_else_put_there_is_not_used(self):
        c = self.c = self.safe()
        here = os.path.join(c.dir, "shared")
        os.makedirs(os.path.join(here, ".berth"))
        place = os.path.join(here, ".berth", "server.address")
        with open(place, "w") as f:
            f.write(f"http={c.address}\ngrpc={c.grpc_address}\n")
        os.chmod(os.path.join(here, ".berth"), 0o755)
        os.chmod(place, 0o644)
        token = {"BERTH_TOKEN": c.token}
        self.assertEqual(self.run_in(here, "get", "nodes", env=token).returncode, 0, "the user's own")
        os.chmod(os.path.join(here, ".berth"), 0o777)
        r = self.run_in(here, "get", "nodes", env=token)
        self.assertNotEqual(r.returncode, 0)
        self.assertIn("others can write to ./.berth", r.stderr)
        os.chmod(os.path.join(here, ".berth"), 0o755)
        os.chmod(place, 0o666)
        self.assertIn("others can write to", self.run_in(here, "get", "nodes", env=token).stderr)
        os.chmod(place, 0o644)
        if os.geteuid() == 0:
            os.chown(place, 4711, 4711)
            self.assertIn("belongs to another user", self.run_in(here, "get", "nodes", env=token).stderr)
            os.chown(place, 0, 0)
            os.chown(os.path.join(here, ".berth"), 4711, 4711)
            self.assertIn("belongs to another user", self.run_in(here, "get", "nodes", env=token).stderr)
        self.assertEqual(self.run_in(here, "get", "nodes", "--server", c.grpc_address, env=token).returncode, 0, "who says so is believed")

    # A5: a token never travels without TLS but to loopback. R: C32
    def test_a_token_is_not_sent_in_the_clear_to_another_machine(self):
        c = self.c = self.safe()
        for address in ("192.0.2.1:8085", "berth.example:8085", "127.0.0.1.evil.example:1", "[2001:db8::1]:8085", c.grpc_address + ",192.0.2.1:8085"):
            r = self.run_in(c.dir, "get", "nodes", "--server", address, "--token", c.token)
            self.assertNotEqual(r.returncode, 0)
            self.assertIn("in the clear", r.stderr, address)
        agent = self.run_in(c.dir, "agent", "--server", "192.0.2.1:8085", "--data", os.path.join(c.dir, "a"), "--node-id", "n", "--token", c.token)
        self.assertNotEqual(agent.returncode, 0)
        self.assertIn("in the clear", agent.stderr)


if __name__ == "__main__":
    unittest.main()
