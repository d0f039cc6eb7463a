"""Who gets in where several servers answer: what one knows all know, and what one passes on is still the caller's (C32, C33)."""
import http.client
import json
import os
import ssl
import subprocess
import time
import unittest

import etcd
from berthtest import BERTH, Api, Process, only_embedded
from persys import grpc
from test_join import Join
from test_tls import Pki


@only_embedded("starts its own etcd whatever the others run on: part of the ordinary run")
@unittest.skipUnless(etcd.is_installed(), "etcd is not installed (Debian: etcd-server, etcd-client)")
class Replicas(Join):
    def two(self):
        """A leader and a follower, each with a certificate of its own, on a real etcd."""
        self.etcd = etcd.Etcd()
        self.addCleanup(self.etcd.close)
        c = self.cluster(server=False, heartbeat="1s")
        c.want_tokens()
        pki = Pki(c)
        common = ["--store", f"etcd://{self.etcd.address}", "--ca", pki.dir]
        c.server_args += [*pki.issue("server", "s1", "--ip", "127.0.0.1"), *common]
        c.tls = ssl.create_default_context(cafile=pki.file("ca.pem"))
        c.env["BERTH_TLS_CA"] = pki.file("ca.pem")
        c.start_server()
        return c, pki, self.second(c, *pki.issue("server", "s2", "--ip", "127.0.0.1"), *common, "--heartbeat", "1s")

    def second(self, c, *args):
        data = os.path.join(c.dir, "second")
        c.give_key("second")
        argv = [BERTH, "server", "--data", data, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", *args]
        second = Process("second", argv, c.env, os.path.join(c.dir, "second.log"))
        c.agents["second"] = second  # ends with the cluster
        path, deadline = os.path.join(data, "server.address"), time.monotonic() + 60
        while not os.path.exists(path):
            self.assertTrue(second.alive() and time.monotonic() < deadline, self.log(c, "second"))
            time.sleep(0.02)
        with open(path) as f:
            second.address = dict(line.strip().split("=", 1) for line in f)
        self.assertFalse(os.path.exists(os.path.join(data, "admin.token")), "there is one first admin")
        return second

    def two_in_the_clear(self, *args):
        """A leader, with these options, and a follower, both without certificates."""
        self.etcd = etcd.Etcd()
        self.addCleanup(self.etcd.close)
        c = self.cluster(server=False, server_args=["--store", f"etcd://{self.etcd.address}", *args])
        c.want_tokens()
        c.start_server()
        return c, self.second(c, "--store", f"etcd://{self.etcd.address}")

    # R: C32 C33
    def test_a_follower_sends_no_token_to_another_machine_in_the_clear(self):
        elsewhere = "192.0.2.1:8085"  # kept for documentation: nobody is there
        c, second = self.two_in_the_clear("--advertise-grpc", elsewhere)
        follower = Api(second.address["http"], token=c.token)
        self.assertEqual(follower.get("/v1/workloads").status, 200, "what it answers itself")
        for method, path, body in (("PUT", "/v1/workloads/w", c.manifest("w")), ("GET", "/v1/workloads?consistent=true", None)):
            refused = follower.call(method, path, body)
            self.assertEqual((refused.status, refused.json["code"]), (403, "denied"), refused)
            self.assertIn(f"a token is not passed on to the leader at {elsewhere} in the clear", refused.json["message"])
            self.assertIn("--tls-cert", refused.json["hint"])
        cookie = Api(second.address["http"]).call("DELETE", "/v1/workloads/w", headers={"Cookie": "berth_token=" + c.token})
        self.assertEqual((cookie.status, cookie.json["code"]), (403, "denied"), cookie)
        self.assertIn("in the clear", cookie.json["message"])
        join = Api(second.address["http"]).call("POST", "/v1/nodes:join", {"node_id": "n", "secret": "bjoin_" + "x" * 43, "request": "-"})
        self.assertEqual((join.status, "in the clear" in join.json["message"]), (403, True), join)
        c.apply("w")
        c.wait_for("the follower to know it", lambda: follower.get("/v1/workloads/w").status == 200)
        piped = c.cli("logs", "w", env={"BERTH_SERVER": second.address["grpc"]})
        self.assertNotEqual(piped.code, 0, piped)
        self.assertIn(f"a token is not passed on to the leader at {elsewhere} in the clear", piped.err)
        self.assertIn("calls with a token are not passed on to the leader", self.log(c, "second"))
        # without a token it is who nobody asks for, and the answer is about that
        self.assertEqual(Api(second.address["http"]).call("DELETE", "/v1/workloads/w").status, 401)

    # R: C32 C33
    def test_on_one_machine_a_follower_passes_tokens_on(self):
        c, second = self.two_in_the_clear()
        follower = Api(second.address["http"], token=c.token)
        self.assertEqual(follower.call("PUT", "/v1/workloads/w", c.manifest("w")).status, 201)
        self.assertEqual({e["actor"] for e in c.events_of("w", "WorkloadApplied")}, {"admin"})

    # R: C32 C33
    def test_what_a_follower_passes_on_is_the_callers(self):
        c, pki, second = self.two()
        pki.issue("user", "ola")
        pki.issue("user", "vic", "--role", "viewer")
        pki.issue("node", "node-9", "--ip", "127.0.0.1")

        def at_follower(name, **kw):
            return Api(second.address["http"], tls=pki.context(name), **kw)
        self.assertEqual(at_follower("ola").call("PUT", "/v1/workloads/w", c.manifest("w")).status, 201)
        self.assertEqual({e["actor"] for e in c.events_of("w", "WorkloadApplied")}, {"ola"})
        for name in ("vic", "node-9"):
            headers = {"X-Berth-Actor": "root", "X-Berth-Role": "admin"}
            self.assertEqual(at_follower(name).call("DELETE", "/v1/workloads/w", headers=headers).status, 403)
        # tokens: made through the follower, known to both, and revoked for both
        follower = Api(second.address["http"], tls=c.tls, token=c.token)
        made = follower.call("POST", "/v1/tokens", {"name": "ann", "role": "operator"})
        self.assertEqual(made.status, 201, made)
        secret = made.json["secret"]
        self.assertEqual([e["actor"] for e in c.events(type="TokenCreated")][-1], "admin")
        for address in (c.address, second.address["http"]):
            c.wait_for("the token to work", lambda address=address: Api(address, tls=c.tls, token=secret).get("/v1/nodes").status == 200)
        ann = Api(second.address["http"], tls=c.tls, token=secret)
        self.assertEqual(ann.call("POST", "/v1/workloads/w/stop").status, 200)
        self.assertEqual({e["actor"] for e in c.events_of("w", "WorkloadDesired")}, {"ann"})
        c.ok("token", "revoke", "ann")
        c.wait_for("it to be refused by the follower", lambda: ann.get("/v1/nodes").status == 401)
        self.assertEqual(Api(c.address, tls=c.tls, token=secret).get("/v1/nodes").status, 401)
        self.assertEqual(Api(second.address["http"], tls=c.tls).get("/v1/nodes").status, 401, "nor does it take strangers")
        self.assert_nowhere(c, secret, c.token)
        self.assertNotIn(secret.split("_")[1], self.log(c, "second"))

    # R: C32 C33
    def test_a_node_joins_by_a_follower_and_the_token_is_used_once_for_all(self):
        c, _, second = self.two()
        leader, c.grpc_address = c.grpc_address, second.address["grpc"]
        token = self.join_token(c)
        c.grpc_address = f"{second.address['grpc']},{leader}"  # the follower first
        self.agent(c, "node-1", "--join", token)
        c.wait_nodes_ready(1)
        c.grpc_address = leader
        self.agent(c, "node-2", "--join", token)
        self.failed(c, "node-2", "was used already")
        # the leader dies; what was used stays used
        c.kill_server()
        c.address = second.address["http"]
        c.api = Api(c.address, tls=c.tls, token=c.token)
        c.grpc_address = second.address["grpc"]
        c.wait_for("the other to lead", lambda: c.cli("token", "create", "after", "--role", "viewer").code == 0)
        self.agent(c, "node-3", "--join", token)
        self.failed(c, "node-3", "was used already")
        c.wait_nodes_ready(1)

    # A4: on every replica at once. R: A13 C33
    def test_a_node_that_was_thrown_out_is_refused_by_every_server(self):
        c, pki, second = self.two()
        self.agent(c, "node-1", "--join", self.join_token(c))
        c.wait_nodes_ready(1)
        tls = ssl.create_default_context(cafile=pki.file("ca.pem"))
        tls.load_cert_chain(*(os.path.join(c.dir, "node-1", "tls", f) for f in ("node.pem", "node-key.pem")))
        key = os.path.join(c.dir, "node-1", "tls", "node-key.pem")
        request = subprocess.run(["openssl", "req", "-new", "-key", key, "-subj", "/CN=x"], check=True, capture_output=True, text=True).stdout

        def says(address):
            answer = Api(address, tls=tls).call("POST", "/v1/nodes:renew", {"node_id": "node-1", "request": request})
            return answer.json.get("message", "")
        c.ok("node", "expel", "node-1")
        self.assertIn("was expelled", says(c.address))
        c.wait_for("the follower to know", lambda: "was expelled" in says(second.address["http"]))
        c.kill_server()
        c.address = second.address["http"]
        c.api = Api(c.address, tls=c.tls, token=c.token)
        c.wait_for("the other to lead", lambda: c.cli("token", "create", "after", "--role", "viewer", env={"BERTH_SERVER": second.address["grpc"]}).code == 0)
        self.assertIn("was expelled", says(second.address["http"]))
        self.assertEqual(c.api.get("/v1/nodes/node-1").json["status"], "Disabled")

    def request(self, c, name):
        key = os.path.join(c.dir, name + ".key")
        subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key], check=True, capture_output=True)
        return subprocess.run(["openssl", "req", "-new", "-key", key, "-subj", "/CN=x"], check=True, capture_output=True, text=True).stdout

    # Otherwise one who guesses, at any follower, keeps everybody behind that follower from joining. R: C32 C33 A11
    def test_refusals_that_a_follower_passes_on_count_for_the_address_that_they_came_from(self):
        c, _, second = self.two()
        host, port = second.address["http"].rsplit(":", 1)
        request = self.request(c, "some")

        def join(source, secret):
            connection = http.client.HTTPSConnection(host, int(port), context=c.tls, source_address=(source, 0), timeout=60)
            connection.request("POST", "/v1/nodes:join", json.dumps({"node_id": "node-9", "secret": secret, "request": request}), {"Content-Type": "application/json"})
            status = connection.getresponse().status
            connection.close()
            return status
        guesses = [join("127.0.0.2", "bjoin_" + "x" * 43) for _ in range(40)]
        self.assertIn(401, guesses)
        self.assertIn(429, guesses)
        self.assertEqual(join("127.0.0.1", self.join_token(c).split(".")[0]), 200)
        self.assertIn("at 127.0.0.2: unknown-token", c.events(type="AccessRefused")[-1]["message"])

    # R: C32 C33
    def test_a_follower_renews_no_certificates_of_which_no_event_would_tell(self):
        c, pki, second = self.two()
        self.agent(c, "node-1", "--join", self.join_token(c))
        c.wait_nodes_ready(1)
        tls = ssl.create_default_context(cafile=pki.file("ca.pem"))
        tls.load_cert_chain(*(os.path.join(c.dir, "node-1", "tls", f) for f in ("node.pem", "node-key.pem")))
        body = {"node_id": "node-1", "request": self.request(c, "again")}
        refused = Api(second.address["http"], tls=tls).call("POST", "/v1/nodes:renew", body)
        self.assertEqual((refused.status, refused.json["code"]), (503, "unavailable"), refused)
        self.assertIn(c.grpc_address, refused.json["message"])
        self.assertEqual(Api(c.address, tls=tls).call("POST", "/v1/nodes:renew", body).status, 200)
        c.wait_for("the event", lambda: any("by renewal" in e["message"] for e in c.events(type="CertificateIssued")))

    # R: C32 C33
    def test_the_persys_dialect_at_a_follower_is_the_callers_too(self):
        c, pki, second = self.two()
        pki.issue("user", "ola")
        pki.issue("user", "vic", "--role", "viewer")
        body = {"revision_id": "r1", "spec": {"type": "container", "container": {"image": "nginx"}, "resources": {"cpu_millicores": 100, "memory_mb": 64}}}
        by_token, by_cert, viewer = Api(second.address["http"], tls=c.tls, token=c.token), *(Api(second.address["http"], tls=pki.context(n)) for n in ("ola", "vic"))
        for api, name, actor in ((by_token, "one", "admin"), (by_cert, "two", "ola")):
            a = api.call("POST", "/persys/workloads/schedule", {"workload_id": name, **body})
            self.assertEqual((a.status, a.json.get("success")), (200, True), a)
            self.assertEqual({e["actor"] for e in c.events_of(name, "WorkloadApplied")}, {actor})
        self.assertEqual(viewer.call("POST", "/persys/workloads/schedule", {"workload_id": "three", **body}).status, 403)

    # R: A13 C33
    @unittest.skipUnless(grpc, "python3-grpcio is not installed")
    def test_one_caller_has_a_share_of_the_streams_that_go_through_a_follower(self):
        c, pki, second = self.two()
        with open(pki.file("ca.pem"), "rb") as f:
            trust = grpc.ssl_channel_credentials(f.read())
        nodes, share = 7, 50  # of 400; an agent serves 8 of one caller
        for i in range(nodes):
            c.start_agent(f"node-{i}", args=pki.issue("node", f"node-{i}", "--ip", "127.0.0.1"))
        c.wait_nodes_ready(nodes)
        for i in range(nodes):
            c.apply(f"w{i}", cpu=3)  # one fits on a node
        for i in range(nodes):
            c.wait_phase(f"w{i}", "Running")

        tokens = {name: self.token(c, name, "--role", "operator") for name in ("ann", "bob")}

        channels = []

        def follow(name, each):
            channels.append(grpc.secure_channel(second.address["grpc"], trust, options=[("berth.caller", name)]))
            self.addCleanup(channels[-1].close)
            logs = channels[-1].unary_stream("/berth.v1.Control/Logs")
            head = [("authorization", "Bearer " + tokens[name])]
            requests = [b"\x0a\x02" + f"w{i}".encode() + b"\x10\x01" for i in range(nodes)]  # id, follow
            return [logs(r, metadata=head) for r in requests for _ in range(each)]

        def relays():
            lines = c.api.get("/metrics").body.decode().splitlines()
            return int(next(line.split()[1] for line in lines if line.startswith("berth_relays ")))
        ann = follow("ann", 8)
        c.wait_for("those that are let through", lambda: relays() == share)
        c.wait_for("the others to be refused", lambda: sum(call.done() for call in ann) == len(ann) - share)
        for call in ann:
            if call.done():
                self.assertEqual(call.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
                self.assertIn("ann has too many logs and exec streams through this server open", call.details())
        bob = follow("bob", 1)
        c.wait_for("those of another", lambda: relays() == share + len(bob))
        for call in ann:
            call.cancel()
        c.wait_for("those to be over", lambda: relays() == len(bob))
        again = follow("ann", 1)  # what has ended holds no place
        c.wait_for("new ones", lambda: relays() == len(bob) + len(again))
        for channel in channels:
            channel.close()
