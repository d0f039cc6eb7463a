"""How a machine becomes a node: join tokens, renewal, a change of CA, and CFSSL as the one who signs (C32)."""
import calendar
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import unittest

from berthtest import BERTH, Api, Gone, Process
from test_access import Access
from test_tls import Pki


class Join(Access):
    def signing(self, *args, heartbeat="1s", valid=None):
        """A server with TLS that signs certificates of nodes with its own CA."""
        c = self.cluster(server=False, heartbeat=heartbeat)
        c.want_tokens()
        pki = Pki(c)
        c.server_args += [*pki.issue("server", "s1", "--ip", "127.0.0.1"), "--ca", pki.dir, "--log-level", "debug", *args]
        if valid:
            c.server_args += ["--cert-valid", valid]
        c.tls = ssl.create_default_context(cafile=pki.file("ca.pem"))
        c.env["BERTH_TLS_CA"] = pki.file("ca.pem")
        c.start_server()
        return c, pki

    def join_token(self, c, *args):
        return c.ok("token", "create", "--join", *args).out.strip()

    def agent(self, c, name, *args):
        """Without anything of TLS but what it brings itself."""
        env = c.env.pop("BERTH_TLS_CA", None)
        try:
            return c.start_agent(name, args=args)
        finally:
            if env:
                c.env["BERTH_TLS_CA"] = env

    def cert(self, c, name, file="node.pem"):
        path = os.path.join(c.dir, name, "tls", file)
        return json.loads(c.ok("ca", "show", path, "-o", "json", server=False).out)["items"]

    def failed(self, c, name, words):
        agent = c.agents[name]
        c.wait_for(f"{name} to give up", lambda: not agent.alive())
        self.assertIn(words, self.log(c, name))

    def names(self, c):
        return sorted(n["id"] for n in c.api.get("/v1/nodes").json.get("items", []))


class Tokens(Join):
    # Whoever sets up the first node on the server's own machine has it there. R: C32
    def test_an_admins_token_in_the_environment_keeps_no_node_from_joining(self):
        c, _ = self.signing()
        c.env["BERTH_TOKEN_FILE"] = os.path.join(c.data, "admin.token")
        self.agent(c, "node-1", "--join", self.join_token(c))
        c.wait_nodes_ready(1)
        r = c.cli("get", "nodes", env={"BERTH_TLS_CA": ""})
        self.assertEqual(r.code, 6)
        self.assertIn("a server with TLS wants --tls-ca FILE", r.err)

    # R: C32
    def test_a_node_joins_with_a_token_and_lives_by_its_certificate_from_then_on(self):
        c, pki = self.signing()
        token = self.join_token(c, "--node", "node-1")
        secret, ca = token.split(".")
        self.assertEqual(pki.show("ca")["hash"], "sha256:" + ca, "the token says which CA to trust")
        self.agent(c, "node-1", "--join", token)
        c.wait_nodes_ready(1)
        tls = os.path.join(c.dir, "node-1", "tls")
        self.assertEqual({f: os.stat(os.path.join(tls, f)).st_mode & 0o777 for f in os.listdir(tls)},
                         {"node.pem": 0o600, "node-key.pem": 0o600, "ca.pem": 0o644})
        shown = self.cert(c, "node-1")[0]
        self.assertEqual(shown["uris"], ["spiffe://berth/node/node-1"])
        c.apply("w")
        c.wait_phase("w", "Running")
        # again, without the token, and with it: it has what it needs
        c.agents["node-1"].stop()
        self.agent(c, "node-1")
        c.wait_for("the node", lambda: c.node("node-1").get("connected"))
        c.agents["node-1"].stop()
        self.agent(c, "node-1", "--join", token)
        c.wait_for("the node", lambda: c.node("node-1").get("connected"))
        self.assertEqual([e["message"] for e in c.events(type="TokenUsed")], [e["message"] for e in c.events(type="TokenUsed")][:1])
        self.assertIn("node node-1 until", c.events(type="CertificateIssued")[0]["message"])
        with open(os.path.join(tls, "node-key.pem")) as f:
            key = "".join(f.read().splitlines()[1:-1])
        self.assert_nowhere(c, secret, "x_" + key[:40])
        # its certificate is good for its node and for nothing else
        context = ssl.create_default_context(cafile=pki.file("ca.pem"))
        context.load_cert_chain(os.path.join(tls, "node.pem"), os.path.join(tls, "node-key.pem"))
        self.assertEqual(Api(c.address, tls=context).get("/v1/nodes").status, 403)

    # A token ends and can be revoked; a certificate renews itself. R: C32
    def test_a_token_of_any_node_makes_no_certificate_of_another(self):
        c, pki = self.signing()
        for name in ("node-1", "node-2"):
            self.agent(c, name, "--join", self.join_token(c, "--node", name))
        c.wait_nodes_ready(2)
        tls = ssl.create_default_context(cafile=pki.file("ca.pem"))
        tls.load_cert_chain(*(os.path.join(c.dir, "node-1", "tls", f) for f in ("node.pem", "node-key.pem")))
        request = subprocess.run(["openssl", "req", "-new", "-key", os.path.join(c.dir, "node-1", "tls", "node-key.pem"), "-subj", "/CN=x"], check=True, capture_output=True, text=True).stdout
        api = Api(c.address, tls=tls, token=self.token(c, "any", "--role", "node"))
        self.assertEqual([api.call("POST", "/v1/nodes:renew", {"node_id": n, "request": request}).status for n in ("node-1", "node-2")], [200, 403])

    # Issue 5, E3: looking at a request costs, so what comes of nothing is charged to its address. R: C32 A11
    def test_bad_certificate_requests_are_charged_to_their_address(self):
        c, _ = self.signing()
        key = os.path.join(c.dir, "slow.key")
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        request = subprocess.run(["openssl", "req", "-new", "-key", key, "-subj", "/CN=x"], check=True, capture_output=True, text=True).stdout
        answers = [Api(c.address, tls=c.tls).call("POST", "/v1/nodes:join", {"secret": "bjoin_x", "node_id": "n9", "request": request}) for _ in range(40)]
        self.assertEqual(answers[0].status, 400)
        self.assertIn("P-256, Ed25519", answers[0].json["hint"])
        self.assertIn(429, [a.status for a in answers])
        self.assertGreaterEqual(self.refused(c, "bad-request"), 10)

    # R: C32 A9
    def test_used_expired_revoked_foreign_and_made_up_join_tokens_are_refused(self):
        c, pki = self.signing()
        used = self.join_token(c)
        self.agent(c, "node-1", "--join", used)
        c.wait_nodes_ready(1)
        brief, revoked, other = self.join_token(c, "--ttl", "1s"), self.join_token(c, "gone"), self.join_token(c, "--node", "node-9")
        c.ok("token", "revoke", "gone")
        ca = used.split(".")[1]
        c.wait_for("the end of a token", lambda: "expired" in c.ok("token", "ls").out)
        cases = [("node-2", used, "was used already", "used-token"), ("node-3", brief, "has expired", "expired-token"),
                 ("node-4", revoked, "was revoked", "revoked-token"), ("node-5", other, "is for another node", "wrong-node"),
                 ("node-6", "bjoin_" + "x" * 43 + "." + ca, "not known", "unknown-token"), ("node-7", c.token + "." + ca, "not known", "unknown-token")]
        for name, token, words, reason in cases:
            before = self.refused(c, reason)
            self.agent(c, name, "--join", token)
            self.failed(c, name, words)
            self.assertEqual(self.refused(c, reason), before + 1, reason)
            self.assertIn(f"reason={reason}", self.log(c, "server"))
        # a token whose CA is another one: the secret is not even sent
        self.agent(c, "node-8", "--join", self.join_token(c).split(".")[0] + "." + "0" * 64)
        self.failed(c, "node-8", "the server's CA is not the one of the join token")
        # nobody becomes a node that is there
        c.agents["node-1"].stop()
        stolen = self.join_token(c)
        os.makedirs(os.path.join(c.dir, "thief"))
        self.agent(c, "thief", "--node-id", "node-1", "--join", stolen)
        self.failed(c, "thief", "there is a node node-1 already")
        self.assertEqual(self.names(c), ["node-1"])
        self.assertEqual(Api(c.address, tls=c.tls, token=stolen.split(".")[0]).get("/v1/nodes").status, 401, "and it is no API token")
        self.assert_nowhere(c, used, brief, revoked, other, stolen)

    # R: C32
    def test_of_many_who_race_for_one_token_one_wins_also_over_a_restart(self):
        c, _ = self.signing()
        token = self.join_token(c)
        names = [f"node-{i}" for i in range(1, 7)]
        for name in names:
            self.agent(c, name, "--join", token)
        c.kill_server()
        c.start_server()
        c.wait_for("all but one to give up", lambda: sum(c.agents[n].alive() for n in names) == 1)
        c.wait_nodes_ready(1)
        self.assertEqual(len(self.names(c)), 1)
        self.assertEqual(len(c.events(type="TokenUsed")), 1)

    # R: C32
    def test_a_server_without_a_ca_says_so(self):
        c = self.safe()
        r = c.cli("token", "create", "--join")
        self.assertEqual(r.code, 1, r)
        self.assertIn("--ca DIR", r.err)


class Renewal(Join):
    # R: C32
    def test_certificates_are_renewed_at_half_of_their_life_and_no_stream_drops(self):
        c, _ = self.signing(valid="10s")
        self.agent(c, "node-1", "--join", self.join_token(c))
        c.wait_nodes_ready(1)
        c.apply("w", command=["sh", "-c", "while :; do echo tick; sleep 0.2; done"])
        c.wait_phase("w", "Running")
        first, session = self.cert(c, "node-1")[0]["serial"], self.log(c, "server").count('msg="agent connected"')
        ended = threading.Event()
        logs = subprocess.Popen([BERTH, "logs", "-f", "w"], env={**c.env, "BERTH_SERVER": c.grpc_address, "BERTH_TOKEN": c.token}, stdout=subprocess.PIPE)
        self.addCleanup(logs.kill)
        threading.Thread(target=lambda: ([None for _ in logs.stdout], ended.set()), daemon=True).start()
        seen = {first}

        def three():
            seen.add(self.cert(c, "node-1")[0]["serial"])
            return len(seen) >= 4
        c.wait_for("three renewals", three, timeout=90)
        self.assertFalse(ended.is_set(), "the stream of logs runs on")
        self.assertEqual(self.log(c, "server").count('msg="agent connected"'), session, "and so does the agent's")
        self.assertNotIn("NodeLost", {e["type"] for e in c.events()})
        logs.kill()

        def reported():
            at = calendar.timegm(time.strptime(self.cert(c, "node-1")[0]["expires_at"], "%Y-%m-%dT%H:%M:%SZ"))
            return self.metric(c, 'berth_certificate_expiry_timestamp_seconds{certificate="node",node="node-1"}') == at
        c.wait_for("the server to know when it ends", reported)

    # R: C32
    def test_an_expired_agent_comes_back_with_its_key_and_a_new_token(self):
        c, _ = self.signing(valid="5s")
        self.agent(c, "node-1", "--join", self.join_token(c))
        c.wait_nodes_ready(1)
        key = open(os.path.join(c.dir, "node-1", "tls", "node-key.pem")).read()
        c.agents["node-1"].kill()
        end = self.cert(c, "node-1")[0]["expires_at"]
        c.wait_for("the end of its certificate", lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 1)) > end)
        self.agent(c, "node-1")
        c.wait_for("a refusal", lambda: self.metric(c, 'berth_tls_refused_total{reason="expired"}') >= 1)
        self.assertIn("the certificate has expired", self.log(c, "node-1"))
        c.agents["node-1"].stop()
        self.agent(c, "node-1", "--join", self.join_token(c, "--node", "node-1"))
        c.wait_for("the node", lambda: c.node("node-1").get("connected"))
        self.assertEqual(open(os.path.join(c.dir, "node-1", "tls", "node-key.pem")).read(), key)

    # R: C32
    def test_a_forgotten_node_gets_no_new_certificate(self):
        c, _ = self.signing(valid="10s")
        self.agent(c, "node-1", "--join", self.join_token(c))
        c.wait_nodes_ready(1)
        c.agents["node-1"].signal(signal.SIGSTOP)
        c.wait_for("it to be forgotten", lambda: c.cli("node", "forget", "node-1").code == 0 or None, timeout=60)
        tls = os.path.join(c.dir, "node-1", "tls")
        context = ssl.create_default_context(cafile=os.path.join(tls, "ca.pem"))
        context.load_cert_chain(os.path.join(tls, "node.pem"), os.path.join(tls, "node-key.pem"))
        request = subprocess.run(["openssl", "req", "-new", "-key", os.path.join(tls, "node-key.pem"), "-subj", "/CN=x"], capture_output=True, text=True, check=True).stdout
        api = Api(c.address, tls=context)
        a = api.call("POST", "/v1/nodes:renew", {"node_id": "node-1", "request": request})
        self.assertEqual(a.status, 403, a)
        self.assertIn("there is no node node-1", a.json["message"])
        self.assertEqual(api.call("POST", "/v1/nodes:renew", {"node_id": "node-2", "request": request}).status, 403, "nor for another one")
        c.agents["node-1"].kill()

    # R: C32
    def test_another_ca_takes_over_while_everything_runs(self):
        c, pki = self.signing(valid="20s")
        # what vouches for clients and for newcomers is the CA's own file, as `berth ca rotate` writes it
        c.server_args[c.server_args.index("--tls-ca") + 1] = os.path.join(pki.dir, "ca.pem")
        c.restart_server("stop")
        self.agent(c, "node-1", "--join", self.join_token(c))
        c.wait_nodes_ready(1)
        connected = self.log(c, "server").count('msg="agent connected"')
        old = pki.show("s1")["issuer"]
        c.ok("ca", "rotate", "--ca", pki.dir, "--name", "second", server=False)
        c.wait_for("the agent to trust both", lambda: len(self.cert(c, "node-1", "ca.pem")) == 2, timeout=90)
        c.wait_for("its certificate to be of the new CA", lambda: self.cert(c, "node-1")[0]["issuer"] == "second", timeout=90)
        pki.renew("s1")
        self.assertEqual((old, pki.show("s1")["issuer"]), ("ca", "second"))
        c.tls = ssl.create_default_context(cafile=os.path.join(pki.dir, "ca.pem"))
        c.env["BERTH_TLS_CA"] = os.path.join(pki.dir, "ca.pem")
        c.wait_for("the server to use it", lambda: self.log(c, "server").count("new certificate files are in use") >= 1)
        c.ok("ca", "rotate", "--finish", "--ca", pki.dir, server=False)
        c.api = Api(c.address, tls=ssl.create_default_context(cafile=os.path.join(pki.dir, "ca.pem")), token=c.token)
        c.wait_for("the agent to trust the new one only", lambda: [x["subject"] for x in self.cert(c, "node-1", "ca.pem")] == ["second"], timeout=90)
        self.assertEqual(self.log(c, "server").count('msg="agent connected"'), connected, "and its stream never ended")
        c.agents["node-1"].stop()
        self.agent(c, "node-1")
        c.wait_for("the node, with new connections", lambda: c.node("node-1").get("connected"))
        self.agent(c, "node-2", "--join", self.join_token(c))
        c.wait_nodes_ready(2)


CFSSL = shutil.which("cfssl")


@unittest.skipUnless(CFSSL, "cfssl is not installed (packaging/packages.sh)")
class Cfssl(Join):
    """`cfssl serve` with an authenticated profile signs instead of berth."""
    KEY = "0123456789abcdef" * 2
    service = None

    def tearDown(self):
        if self.service:
            self.service.kill()
        super().tearDown()

    def cfssl(self, c, *args, stdin=None):
        p = subprocess.run([CFSSL, *args], input=stdin, capture_output=True, text=True, timeout=60, cwd=c.dir)
        self.assertEqual(p.returncode, 0, p.stderr)
        return json.loads(p.stdout)

    def write(self, c, name, text):
        path = os.path.join(c.dir, name)
        with open(path, "w") as f:
            f.write(text if isinstance(text, str) else json.dumps(text))
        return path

    def serve(self, c, usages=("client auth", "digital signature"), expiry="6m"):  # CFSSL counts from five minutes ago, to the minute
        """Its CA, the server's certificate, and the service. Returns its URL and its process."""
        request = {"CN": "cfssl CA", "key": {"algo": "ecdsa", "size": 256}}
        ca = self.cfssl(c, "gencert", "-initca", self.write(c, "ca.json", request))
        ca_file, key_file = self.write(c, "ca.pem", ca["cert"]), self.write(c, "ca-key.pem", ca["key"])
        config = self.write(c, "cfssl.json", {
            "signing": {"default": {"expiry": "1h", "usages": ["server auth", "client auth", "digital signature"]},
                        "profiles": {"node": {"expiry": expiry, "usages": list(usages), "auth_key": "berth"}}},
            "auth_keys": {"berth": {"type": "standard", "key": self.KEY}}})
        own = self.cfssl(c, "gencert", "-ca", ca_file, "-ca-key", key_file, "-config", config, "-hostname", "127.0.0.1",
                         self.write(c, "s1.json", {"CN": "s1", "key": {"algo": "ecdsa", "size": 256}}))
        c.server_args += ["--tls-cert", self.write(c, "s1.pem", own["cert"]), "--tls-key", self.write(c, "s1-key.pem", own["key"]), "--tls-ca", ca_file,
                          "--cfssl-key", self.write(c, "cfssl.key", self.KEY + "\n"), "--cfssl-profile", "node"]
        c.tls = ssl.create_default_context(cafile=ca_file)
        c.env["BERTH_TLS_CA"] = ca_file
        port = free_port()
        self.start_cfssl(c, ca_file, key_file, config, port)
        c.server_args += ["--cfssl", f"http://127.0.0.1:{port}"]
        c.start_server()
        return port, (ca_file, key_file, config)

    def start_cfssl(self, c, ca_file, key_file, config, port):
        argv = [CFSSL, "serve", "-address", "127.0.0.1", "-port", str(port), "-ca", ca_file, "-ca-key", key_file, "-config", config]
        process = Process("cfssl", argv, c.env, os.path.join(c.dir, "cfssl.log"))
        self.service = process

        def answers():
            try:
                return Api(f"127.0.0.1:{port}", timeout=5).call("POST", "/api/v1/cfssl/info", {}).status == 200
            except Gone:
                return False
        deadline = time.monotonic() + 60
        while not answers():
            self.assertLess(time.monotonic(), deadline, self.log(c, "cfssl"))
            time.sleep(0.05)
        return process

    def fresh(self):
        c = self.cluster(server=False, heartbeat="1s")
        c.want_tokens()
        return c

    # R: C32
    def test_nodes_get_and_renew_their_certificates_from_cfssl(self):
        c = self.fresh()
        self.serve(c)
        self.agent(c, "node-1", "--join", self.join_token(c))
        c.wait_nodes_ready(1)
        first = self.cert(c, "node-1")[0]
        self.assertEqual((first["issuer"], first["dns"], first["uris"]), ("cfssl CA", ["node-1"], []))
        connected = self.log(c, "server").count('msg="agent connected"')
        c.wait_for("a renewal", lambda: self.cert(c, "node-1")[0]["serial"] != first["serial"], timeout=150)
        self.assertEqual(self.log(c, "server").count('msg="agent connected"'), connected, "without an end of its stream")
        # such a certificate is its node's, and nothing else
        tls = os.path.join(c.dir, "node-1", "tls")
        self.agent(c, "node-2", "--tls-cert", os.path.join(tls, "node.pem"), "--tls-key", os.path.join(tls, "node-key.pem"), "--tls-ca", os.path.join(tls, "ca.pem"))
        c.wait_for("a refusal", lambda: self.metric(c, 'berth_tls_refused_total{reason="wrong-node"}') >= 1)
        self.assertEqual(self.names(c), ["node-1"])
        self.assertNotIn(self.KEY, self.log(c, "server"))

    # R: C32 C35
    def test_a_wrong_key_a_generous_profile_and_an_absent_cfssl_are_told(self):
        c = self.fresh()
        self.serve(c, usages=("server auth", "client auth"))
        token = self.join_token(c)
        self.agent(c, "node-1", "--join", token)
        self.failed(c, "node-1", "is not for clients only")
        self.write(c, "cfssl.key", "00" * 16)
        self.agent(c, "node-2", "--join", self.join_token(c))
        self.failed(c, "node-2", "CFSSL did not sign the certificate")

    # R: C32 C35
    def test_a_join_waits_for_an_absent_cfssl_and_goes_on_when_it_is_back(self):
        c = self.fresh()
        port, files = self.serve(c)
        self.service.kill()
        self.agent(c, "node-1", "--join", self.join_token(c))
        c.wait_for("the agent to say so", lambda: "CFSSL cannot be reached" in self.log(c, "node-1"))
        self.start_cfssl(c, *files, port)
        c.wait_nodes_ready(1)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
