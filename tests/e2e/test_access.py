"""Who gets in and what they may do: tokens, roles, and the names in certificates (C32)."""
import json
import os
import re
import ssl
import subprocess
import threading

from berthtest import BERTH, Api, Case, EventStream, Gone
from test_tls import Pki


class Access(Case):
    def safe(self, **kw):
        """A server as it is by default: tokens or certificates, in the clear on loopback."""
        c = self.cluster(server=False, **kw)
        c.want_tokens()
        c.server_args += ["--log-level", "debug"]  # what is said to nobody at any level is not said
        c.start_server()
        return c

    def metric(self, c, name):
        found = re.search("^" + re.escape(name) + r" (\S+)$", c.api.get("/metrics").body.decode(), re.M)
        return float(found.group(1)) if found else 0

    def refused(self, c, reason):
        return self.metric(c, f'berth_auth_refused_total{{reason="{reason}"}}')

    def token(self, c, *args):
        return c.ok("token", "create", *args).out.strip()

    def log(self, c, name):
        with open(os.path.join(c.dir, name + ".log"), errors="replace") as f:
            return f.read()

    def assert_nowhere(self, c, *secrets):
        """No secret in any log, event, metric, listing or file of the store."""
        said = [c.ok("events", "--since", "0", "-o", "json").out, c.api.get("/metrics").body.decode(), c.ok("token", "ls", "-o", "json").out,
                *["\n".join(line for line in self.log(c, name).splitlines() if not line.startswith("$ ")) for name in ("server", *c.agents)]]
        for entry in os.listdir(c.data):
            if entry.startswith("berth.db"):
                with open(os.path.join(c.data, entry), "rb") as f:
                    said.append(f.read().decode("latin-1"))
        for secret in secrets:
            body = secret.split("_", 1)[1].split(".")[0]
            for text in said:
                self.assertNotIn(body, text)


class Tokens(Access):
    # R: C32
    def test_without_a_token_nothing_but_health_and_with_the_first_one_everything(self):
        c = self.safe()
        path = os.path.join(c.data, "admin.token")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertIn(path, self.log(c, "server"), "where the first token lies is said")
        stranger = Api(c.address)
        self.assertEqual(stranger.get("/health").status, 200)
        self.assertEqual(stranger.get("/openapi.json").status, 200)
        a = stranger.get("/v1/workloads")
        self.assertEqual((a.status, a.json["code"]), (401, "auth"))
        self.assertIn("Bearer", a.headers["WWW-Authenticate"])
        self.assertIn("hint", a.json)
        r = c.cli("get", "nodes", env={"BERTH_TOKEN": ""})
        self.assertEqual(r.code, 3, r)
        self.assertIn("hint: ", r.err)
        with self.assertRaises(Gone):
            EventStream(c.address)
        # beside server.address the owner's commands find the token by themselves
        out = subprocess.run([BERTH, "token", "ls"], env={**c.env, "BERTH_DATA": c.data}, capture_output=True, text=True, timeout=60)
        self.assertEqual(out.returncode, 0, out.stderr)
        self.assertRegex(out.stdout, r"(?m)^admin +admin +active")
        self.assertEqual(c.ok("get", "nodes", env={"BERTH_TOKEN": "", "BERTH_TOKEN_FILE": path}).code, 0)

    # R: C32
    def test_roles_hold_for_commands_and_the_actor_is_the_tokens_name(self):
        c = self.safe()
        viewer, operator = self.token(c, "vic", "--role", "viewer"), self.token(c, "ola", "--role", "operator")
        as_vic, as_ola = {"BERTH_TOKEN": viewer}, {"BERTH_TOKEN": operator}
        manifest = os.path.join(c.dir, "w.json")
        with open(manifest, "w") as f:
            json.dump(c.manifest("w"), f)
        self.assertEqual(c.cli("apply", "-f", manifest, env=as_vic).code, 3)
        self.assertEqual(c.ok("apply", "-f", manifest, env=as_ola).code, 0)
        self.assertEqual({e["actor"] for e in c.events_of("w", "WorkloadApplied")}, {"ola"})
        spoofed = Api(c.address, token=operator).call("POST", "/v1/workloads/w/stop", headers={"X-Berth-Actor": "root", "X-Berth-Role": "admin"})
        self.assertEqual(spoofed.status, 200)
        self.assertEqual({e["actor"] for e in c.events_of("w", "WorkloadDesired")}, {"ola"}, "nobody names himself")
        self.assertEqual(c.ok("get", "workloads", env=as_vic).code, 0)
        for who in (as_vic, as_ola):
            r = c.cli("token", "create", "mine", "--role", "admin", env=who)
            self.assertEqual(r.code, 3, r)
            self.assertIn("needs the role admin", r.err)
        self.assertNotIn("mine", c.ok("token", "ls").out)
        refusals = [e for e in c.events(type="AccessRefused")]
        self.assertTrue(any(e["actor"] == "ola" and "CreateToken" in e["message"] for e in refusals), refusals)
        self.assertGreaterEqual(self.refused(c, "wrong-role"), 3)
        self.assert_nowhere(c, viewer, operator, c.token)

    # R: C32 A9
    def test_a_revoked_an_expired_and_a_made_up_token_are_refused_counted_and_logged_without_secrets(self):
        c = self.safe()
        ann, brief = self.token(c, "ann", "--role", "admin"), self.token(c, "brief", "--role", "viewer", "--ttl", "1s")
        made_up = "berth_" + "x" * 43
        c.ok("token", "revoke", "ann")
        for secret, reason in ((ann, "revoked-token"), (made_up, "unknown-token"), (brief, "expired-token")):
            api = Api(c.address, token=secret)
            c.wait_for("a refusal", lambda api=api: api.get("/v1/nodes").status in (401, 429), timeout=30)
            c.wait_for(reason, lambda reason=reason: self.refused(c, reason) >= 1)
            self.assertIn(f"reason={reason}", self.log(c, "server"))
        c.restart_server()
        self.assertEqual(Api(c.address, token=ann).get("/v1/nodes").status, 401)
        self.assertEqual([(e["type"], e["actor"]) for e in c.events(type="TokenRevoked")], [("TokenRevoked", "admin")])
        self.assert_nowhere(c, ann, brief, made_up, c.token)

    # R: C32
    def test_streams_end_with_the_token_that_opened_them(self):
        c = self.safe()
        ann, bob = self.token(c, "ann", "--role", "viewer"), self.token(c, "bob", "--role", "viewer")
        streams = {name: EventStream(c.address, token=token) for name, token in (("ann", ann), ("bob", bob))}
        follow = subprocess.Popen([BERTH, "events", "--follow"], env={**c.env, "BERTH_SERVER": c.grpc_address, "BERTH_TOKEN": ann}, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        self.addCleanup(follow.kill)
        ended = {}

        def read(name):
            for _ in streams[name]:
                pass
            ended[name] = True
        for name in streams:
            threading.Thread(target=read, args=(name,), daemon=True).start()
        self.assertTrue(follow.stdout.readline())
        c.ok("token", "revoke", "ann")
        c.wait_for("ann's stream to end", lambda: "ann" in ended)
        _, err = follow.communicate(timeout=60)
        self.assertEqual(follow.returncode, 3, err)
        self.assertIn("was revoked", err)
        self.assertNotIn("bob", ended)
        streams["bob"].close()

    # R: C32
    def test_an_agent_without_a_certificate_comes_with_a_token_of_its_node(self):
        c = self.safe()
        secret = os.path.join(c.dir, "n1.token")
        with open(secret, "w") as f:
            f.write(self.token(c, "n1", "--role", "node", "--node", "node-1"))
        c.start_agent("node-1", args=["--token-file", secret])
        c.wait_nodes_ready(1)
        c.start_agent("node-2", args=["--token-file", secret])  # another one's
        c.wait_for("a refusal", lambda: self.refused(c, "wrong-node") >= 1)
        c.start_agent("node-3")  # nobody's
        c.wait_for("a refusal", lambda: self.refused(c, "no-credentials") >= 1)
        self.assertEqual([n["id"] for n in c.api.get("/v1/nodes").json["items"]], ["node-1"])
        with open(secret) as f:
            self.assertEqual(Api(c.address, token=f.read()).get("/v1/nodes").status, 403, "an agent is no user")
        c.ok("token", "revoke", "n1")
        c.wait_for("its stream to end", lambda: not c.node("node-1").get("connected"))

    # R: C32
    def test_none_is_for_labs_and_says_so_where_others_can_reach_it(self):
        c = self.cluster(server=False)
        c.listen = "0.0.0.0:0"
        c.start_server()
        self.assertEqual(c.api.get("/v1/nodes").status, 200)
        self.assertIn("anybody who reaches this server may do anything", self.log(c, "server"))

    # A page's owner can let its name point to 127.0.0.1, and is of one origin with the server then. R: A9
    def test_a_page_of_another_name_gets_nothing_of_a_server_that_asks_nobody(self):
        c = self.cluster()
        evil = {"Host": "evil.example:8084", "Origin": "http://evil.example:8084"}
        self.assertEqual(c.api.call("PUT", "/v1/workloads/w", c.manifest("w"), headers=evil).status, 403)
        self.assertEqual(c.api.call("GET", "/v1/workloads", headers=evil).status, 403)
        # What a request is for is in its target, if that says so, not in Host.
        self.assertEqual(c.api.call("GET", "http://evil.example/v1/workloads", headers={"Host": "127.0.0.1"}).status, 403)
        self.assertEqual(c.api.call("GET", "HTTP://127.0.0.1/v1/workloads", headers={"Host": "evil.example"}).status, 200)
        for host in ("localhost:8084", "127.0.0.1", "[::1]:8084", "dev.localhost", "box"):
            self.assertEqual(c.api.call("GET", "/v1/workloads", headers={"Host": host}).status, 200, host)


class Certificates(Access):
    def secure(self):
        """TLS with certificates, and authentication on; the test itself uses the first admin's token."""
        c = self.cluster(server=False)
        c.want_tokens()
        pki = Pki(c)
        c.server_args += pki.issue("server", "s1", "--ip", "127.0.0.1")
        c.tls = ssl.create_default_context(cafile=pki.file("ca.pem"))
        c.env["BERTH_TLS_CA"] = pki.file("ca.pem")
        c.start_server()
        return c, pki

    def as_cert(self, c, pki, name):
        return Api(c.address, tls=pki.context(name))

    # R: C32
    def test_a_users_certificate_has_a_role_and_a_nodes_is_for_its_node_only(self):
        c, pki = self.secure()
        pki.issue("user", "ada", "--role", "admin")
        pki.issue("user", "ola")
        pki.issue("user", "vic", "--role", "viewer")
        pki.issue("node", "node-1", "--ip", "127.0.0.1")
        pki.issue("server", "s2", "--ip", "127.0.0.1")
        w = c.manifest("w")
        want = {"ada": (200, 201, 200), "ola": (200, 200, 403), "vic": (200, 403, 403), "node-1": (403, 403, 403), "s2": (403, 403, 403)}
        for name, statuses in want.items():
            api = self.as_cert(c, pki, name)
            got = (api.get("/v1/nodes").status, api.call("PUT", "/v1/workloads/w", w).status, api.get("/v1/tokens").status)
            self.assertEqual(got, statuses, name)
        self.assertEqual({e["actor"] for e in c.events_of("w", "WorkloadApplied")}, {"ada"})
        c.start_agent("node-1", args=pki.args("node-1"))
        c.wait_nodes_ready(1)
        c.start_agent("node-2", args=pki.args("node-1"))
        c.wait_for("a refusal", lambda: self.metric(c, 'berth_tls_refused_total{reason="wrong-node"}') >= 1)
        # neither a certificate nor a token
        self.assertEqual(Api(c.address, tls=c.tls).get("/v1/nodes").status, 401)

    # R: C32 C33
    def test_a_servers_certificate_vouches_for_whom_it_speaks(self):
        c, pki = self.secure()
        pki.issue("server", "s2", "--ip", "127.0.0.1")
        pki.issue("user", "vic", "--role", "viewer")
        word = {"X-Berth-Actor": "ola", "X-Berth-Role": "operator"}
        self.assertEqual(self.as_cert(c, pki, "s2").call("PUT", "/v1/workloads/w", c.manifest("w"), headers=word).status, 201)
        self.assertEqual({e["actor"] for e in c.events_of("w", "WorkloadApplied")}, {"ola"})
        self.assertEqual(self.as_cert(c, pki, "s2").call("GET", "/v1/tokens", headers=word).status, 403, "for what ola may do, and no more")
        self.assertEqual(self.as_cert(c, pki, "vic").call("DELETE", "/v1/workloads/w", headers=word).status, 403, "others' word counts nothing")

    # R: C32 A9
    def test_foreign_and_expired_certificates_are_refused_also_where_tokens_are_taken(self):
        c, pki = self.secure()
        foreign = Pki(c, "foreign")
        foreign.issue("user", "eve", "--role", "admin")
        pki.issue("user", "old", "--valid", "1s")

        def attempt(pair):
            context = ssl.create_default_context(cafile=pki.file("ca.pem"))
            context.load_cert_chain(*pair)
            try:
                return Api(c.address, tls=context).get("/v1/nodes").status
            except Gone:
                return None

        self.assertIsNone(attempt((foreign.file("eve.pem"), foreign.file("eve-key.pem"))))
        c.wait_for("it to be counted", lambda: self.metric(c, 'berth_tls_refused_total{reason="unknown-ca"}') >= 1)
        c.wait_for("the end of its life", lambda: attempt((pki.file("old.pem"), pki.file("old-key.pem"))) is None, timeout=30)
        c.wait_for("it to be counted", lambda: self.metric(c, 'berth_tls_refused_total{reason="expired"}') >= 1)
