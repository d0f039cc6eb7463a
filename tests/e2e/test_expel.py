"""A hostile node can be thrown out, and cannot name itself into work (A13; issue 5, A4)."""
import os
import shutil
import ssl
import subprocess
import unittest

from berthtest import Api
from test_join import Join


class Expel(Join):
    def with_its_certificate(self, c, pki, name):
        tls = ssl.create_default_context(cafile=pki.file("ca.pem"))
        tls.load_cert_chain(*(os.path.join(c.dir, name, "tls", f) for f in ("node.pem", "node-key.pem")))
        return tls

    def renewal(self, c, name):
        key = os.path.join(c.dir, name, "tls", "node-key.pem")
        request = subprocess.run(["openssl", "req", "-new", "-key", key, "-subj", "/CN=x"], check=True, capture_output=True, text=True).stdout
        return {"node_id": name, "request": request}

    # A4: fence, disable, revoke; forget works although it knocks on; coming back needs a new join token. R: A13 C32
    def test_a_node_that_was_thrown_out_stays_out_until_a_new_join_token(self):
        c, pki = self.signing()
        for name in ("node-1", "node-2"):
            self.agent(c, name, "--join", self.join_token(c, "--node", name))
        c.wait_nodes_ready(2)
        c.apply("w", node_selector={"host": "none"})
        c.cli("label", "node", "node-1", "host=none")
        c.wait_phase("w", "Running")
        self.assertEqual(c.workload("w")["assigned_node"], "node-1")
        tls = self.with_its_certificate(c, pki, "node-1")
        self.assertEqual(Api(c.address, tls=tls).call("POST", "/v1/nodes:renew", self.renewal(c, "node-1")).status, 200)
        token = self.token(c, "of-node-1", "--role", "node", "--node", "node-1")
        r = c.ok("node", "expel", "node-1")
        self.assertIn("node/node-1 expelled", r.out)
        node = c.node("node-1")
        self.assertEqual((node["status"], node["wish"], node.get("connected", False)), ("Disabled", "disabled", False))
        # from the moment on at which that was answered
        refused = Api(c.address, tls=tls).call("POST", "/v1/nodes:renew", self.renewal(c, "node-1"))
        self.assertEqual(refused.status, 403)
        self.assertIn("was expelled", refused.json["message"])
        self.assertEqual(Api(c.address, tls=c.tls, token=token).get("/v1/nodes").status, 401)
        c.ok("label", "node", "node-2", "host=none")
        c.wait_for("its work to move", lambda: c.workload("w")["assigned_node"] == "node-2")
        c.wait_for("it to knock", lambda: any("expelled" in e["message"] for e in c.events(type="AccessRefused")))
        self.assertEqual(c.events(type="NodeExpelled")[0]["actor"], "admin")
        c.ok("node", "forget", "node-1")
        self.assertEqual(self.names(c), ["node-2"])
        # over a restart of the server, and with a certificate that the CA makes for it by hand
        c.kill_server()
        c.start_server()
        c.wait_for("the other one", lambda: c.node("node-2").get("connected"))
        before = self.metric(c, 'berth_auth_refused_total{reason="expelled"}')
        c.wait_for("it to knock again", lambda: self.metric(c, 'berth_auth_refused_total{reason="expelled"}') > before)
        self.assertEqual(self.names(c), ["node-2"])
        c.agents["node-1"].stop()
        options = pki.issue("node", "node-1", "--ip", "127.0.0.1")
        self.assertTrue(options)
        by_hand = pki.context("node-1")
        self.assertEqual(Api(c.address, tls=by_hand).call("POST", "/v1/nodes:renew", self.renewal(c, "node-1")).status, 403)
        # a new token, and the old key: no; and a new key: yes
        self.agent(c, "node-1", "--join", self.join_token(c, "--node", "node-1"))
        self.assertEqual(self.names(c), ["node-2"])
        c.agents["node-1"].stop()
        shutil.rmtree(os.path.join(c.dir, "node-1", "tls"))
        self.agent(c, "node-1", "--join", self.join_token(c, "--node", "node-1"))
        c.wait_nodes_ready(2)
        self.assertEqual(Api(c.address, tls=tls).call("POST", "/v1/nodes:renew", self.renewal(c, "node-1")).status, 403, "the old one stays out")

    # A4: labels, taints and capacity are what the token says, not what the node says. R: A13
    def test_a_node_is_what_its_join_token_says(self):
        c, _ = self.signing()
        with open(os.path.join(c.dir, "server.yaml"), "w") as f:
            f.write("operator_labels: [tier]\n")
        c.kill_server()
        c.server_args += ["--config", os.path.join(c.dir, "server.yaml")]
        c.start_server()
        token = self.join_token(c, "--label", "berth.io/pool=gpu", "--taint", "gpu:no-schedule", "--cpu", "1.5", "--memory", "512M")
        self.agent(c, "node-1", "--join", token, "--cpu", "64", "--memory", "64G", "--label", "tier=gold", "--label", "berth.io/pool=web", "--label", "disk=ssd")
        c.wait_nodes_ready(1)
        n = c.node("node-1")
        self.assertEqual(n["labels"], {"berth.io/pool": "gpu", "disk": "ssd"})
        self.assertEqual((n["resources"]["cpu_total"], n["resources"]["memory_total"]), (1.5, 512))
        self.assertEqual([t["key"] for t in n["taints"]], ["gpu"])
        self.assertIn("tier", c.events(type="NodeRegistered")[-1]["message"])
        c.ok("label", "node", "node-1", "tier=bronze")
        self.assertEqual(c.node("node-1")["labels"]["tier"], "bronze")
        c.ok("capacity", "node-1", "--cpu", "3")
        c.wait_for("the new bound", lambda: c.node("node-1")["resources"]["cpu_total"] == 3)
        c.agents["node-1"].stop()
        self.agent(c, "node-1", "--cpu", "64", "--memory", "64G", "--label", "tier=gold")
        c.wait_for("it to be back", lambda: "disk" not in c.node("node-1")["labels"])
        self.assertEqual(c.node("node-1")["labels"], {"berth.io/pool": "gpu", "tier": "bronze"})
        self.assertEqual(c.cli("token", "create", "x", "--role", "viewer", "--label", "a=b").code, 2)
        self.assertEqual(c.api.call("POST", "/v1/tokens", {"name": "x", "role": "viewer", "labels": {"a": "b"}}).status, 400)


if __name__ == "__main__":
    unittest.main()
