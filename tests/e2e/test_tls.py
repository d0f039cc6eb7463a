"""Certificates: who gets in, as whom, and how they are replaced under running streams (C32)."""
import calendar
import json
import os
import re
import socket
import ssl
import subprocess
import threading
import time
import unittest

import persys
from berthtest import BERTH, Api, Case, Gone, note

REASONS = ("no-certificate", "unknown-ca", "expired", "bad-certificate", "wrong-node", "protocol")


class Pki:
    """`berth ca` in the cluster's directory."""

    def __init__(self, cluster, name="ca"):
        self.c, self.dir = cluster, os.path.join(cluster.dir, name)
        self.out = os.path.join(cluster.dir, name + "-out")
        self.c.ok("ca", "init", "--ca", self.dir, "--name", name, server=False)

    def issue(self, kind, name, *args):
        self.c.ok("ca", "issue", kind, name, "--ca", self.dir, "--out", self.out, *args, server=False)
        return self.args(name)

    def file(self, name):
        return os.path.join(self.out, name)

    def args(self, name):
        """The options of a program that uses this certificate."""
        return ["--tls-cert", self.file(name + ".pem"), "--tls-key", self.file(name + "-key.pem"), "--tls-ca", self.file("ca.pem")]

    def env(self, name):
        return {"BERTH_TLS_CERT": self.file(name + ".pem"), "BERTH_TLS_KEY": self.file(name + "-key.pem"),
                "BERTH_TLS_CA": self.file("ca.pem")}

    def context(self, name):
        context = ssl.create_default_context(cafile=self.file("ca.pem"))
        context.load_cert_chain(self.file(name + ".pem"), self.file(name + "-key.pem"))
        return context

    def renew(self, name, *args):
        return self.c.ok("ca", "renew", self.file(name + ".pem"), "--ca", self.dir, *args, server=False)

    def show(self, name):
        return json.loads(self.c.ok("ca", "show", self.file(name + ".pem"), "-o", "json", server=False).out)["items"][0]


class Tls(Case):
    def secure(self, heartbeat=None):
        """A server that wants certificates; this test is user ann. Returns the cluster and its CA."""
        c = self.cluster(server=False, heartbeat=heartbeat)
        pki = Pki(c)
        c.server_args += pki.issue("server", "s1", "--ip", "127.0.0.1")
        pki.issue("user", "ann")
        c.env.update(pki.env("ann"))
        c.tls = pki.context("ann")
        c.start_server()
        return c, pki

    def node(self, c, pki, name, *args):
        return c.start_agent(name, args=[*pki.issue("node", name, "--ip", "127.0.0.1"), *args])

    def metric(self, c, name):
        """A sample by its name with labels; 0 if there is none."""
        found = re.search("^" + re.escape(name) + r" (\S+)$", c.api.get("/metrics").body.decode(), re.M)
        return float(found.group(1)) if found else 0

    def refused(self, c, reason):
        return self.metric(c, f'berth_tls_refused_total{{reason="{reason}"}}')

    def log(self, c, name):
        with open(os.path.join(c.dir, name + ".log"), errors="replace") as f:
            return f.read()


class Right(Tls):
    # R: C32
    def test_with_the_right_certificates_everything_works_both_ways(self):
        c, pki = self.secure(heartbeat="1s")
        self.node(c, pki, "node-1", "--label", "way=stream")
        self.node(c, pki, "node-2", "--label", "way=calls", "--push", "--listen", "127.0.0.1:0")  # the server calls this one
        c.wait_nodes_ready(2)
        manifest = os.path.join(c.dir, "hello.json")
        with open(manifest, "w") as f:
            json.dump(c.manifest("hello", command=["sh", "-c", "echo ahoy; exec sleep 100000"], node_selector={"way": "stream"}), f)
        c.ok("apply", "-f", manifest, "--wait")
        c.wait_for("its output", lambda: "ahoy" in c.cli("logs", "hello").out)
        self.assertEqual(c.ok("exec", "hello", "--", "echo", "aye").out, "aye\n")
        called = c.manifest("called", node_selector={"way": "calls"})
        called["type"], called["spec"]["image"] = "container", "process"
        self.assertEqual(c.api.call("PUT", "/v1/workloads/called", called).status, 201)
        self.assertEqual(c.wait_phase("called", "Running")["assigned_node"], "node-2")
        actors = {e.get("actor") for e in c.events_of("hello", "WorkloadApplied")}
        self.assertEqual(actors, {"ann"}, "the actor is the certificate's")

        for label, name in (("server", "s1"), ("ca", "ca")):
            at = calendar.timegm(time.strptime(pki.show(name)["expires_at"], "%Y-%m-%dT%H:%M:%SZ"))
            self.assertEqual(self.metric(c, f'berth_certificate_expiry_timestamp_seconds{{certificate="{label}"}}'), at)
        self.assertEqual([self.refused(c, r) for r in REASONS], [0] * len(REASONS))


class Refused(Tls):
    def expect(self, c, reason, act):
        """After act() one more refusal for this reason was counted, and logged with the reason."""
        before, lines = self.refused(c, reason), self.log(c, "server").count(f"reason={reason}")
        act()
        c.wait_for(f"a refusal: {reason}", lambda: self.refused(c, reason) > before)
        c.wait_for("a line in the log", lambda: self.log(c, "server").count(f"reason={reason}") > lines)

    def command(self, c, env):
        """A command that must not get in."""
        clean = {k: "" for k in ("BERTH_TLS_CERT", "BERTH_TLS_KEY", "BERTH_TLS_CA")}
        full = {k: v for k, v in {**clean, **env}.items()}
        r = c.cli("get", "nodes", env=full, timeout=60)
        self.assertEqual(r.code, 6, r)
        self.assertIn("error: ", r.err)
        return r

    # R: C32 A9
    def test_strangers_are_refused_counted_and_logged_without_secrets(self):
        c, pki = self.secure()
        foreign = Pki(c, "foreign")
        self.node(c, pki, "node-1")
        c.wait_nodes_ready(1)
        head = c.head()

        # a foreign CA: one that says that it is the same node, and trusts the right server
        foreign.issue("node", "node-2")
        foreign.issue("user", "ann")
        mixed = [*foreign.args("node-2")[:4], "--tls-ca", pki.file("ca.pem")]
        self.expect(c, "unknown-ca", lambda: c.start_agent("node-2", args=mixed))
        self.expect(c, "unknown-ca", lambda: self.command(c, {**foreign.env("ann"), "BERTH_TLS_CA": pki.file("ca.pem")}))
        # and by HTTP
        context = ssl.create_default_context(cafile=pki.file("ca.pem"))
        context.load_cert_chain(foreign.file("ann.pem"), foreign.file("ann-key.pem"))
        self.expect(c, "unknown-ca", lambda: self.assertRaises(Gone, Api(c.address, tls=context).get, "/v1/nodes"))

        # expired
        pki.issue("node", "node-3", "--valid", "1s")
        pki.issue("user", "late", "--valid", "1s")
        c.wait_for("them to expire", lambda: pki.show("node-3")["expired"] and pki.show("late")["expired"])
        self.expect(c, "expired", lambda: c.start_agent("node-3", args=pki.args("node-3")))
        self.expect(c, "expired", lambda: self.command(c, pki.env("late")))
        self.assertIn("the certificate has expired", self.log(c, "node-3"))

        # another node's, and a user's
        self.expect(c, "wrong-node", lambda: c.start_agent("node-4", args=pki.args("node-1")))
        self.expect(c, "wrong-node", lambda: c.start_agent("node-5", args=pki.args("ann")))
        self.expect(c, "wrong-node", lambda: c.start_agent("node-6", args=["--push", "--listen", "127.0.0.1:0", *pki.args("node-1")]))
        for name in ("node-4", "node-6"):
            c.wait_for("the agent to say why", lambda name=name: f"the certificate is that of node node-1, not of node {name}" in self.log(c, name))

        # none at all; and no TLS
        self.expect(c, "no-certificate", lambda: c.start_agent("node-7", args=["--tls-ca", pki.file("ca.pem"), "--tls-cert", "", "--tls-key", ""]))
        self.expect(c, "no-certificate", lambda: self.command(c, {"BERTH_TLS_CA": pki.file("ca.pem")}))
        self.expect(c, "protocol", lambda: self.command(c, {}))
        self.expect(c, "protocol", lambda: self.assertRaises(Gone, Api(c.address).get, "/v1/nodes"))

        # Nothing of all this reached the state, and no key a log.
        self.assertEqual([n["id"] for n in c.nodes()], ["node-1"])
        self.assertEqual(c.node("node-1")["status"], "Ready")
        self.assertEqual(c.head(), head)
        keys = []
        for d in (pki.dir, pki.out, foreign.dir, foreign.out):
            for name in os.listdir(d):
                if name.endswith("-key.pem"):
                    self.assertEqual(os.stat(os.path.join(d, name)).st_mode & 0o777, 0o600, name)
                    with open(os.path.join(d, name)) as f:
                        keys.append(f.read().splitlines()[1])
        for name in ["server", *c.agents]:
            text = self.log(c, name)
            self.assertNotIn("PRIVATE KEY", text)
            for key in keys:
                self.assertNotIn(key, text)

    # R: C32
    @unittest.skipUnless(persys.grpc, "needs python3-grpcio")
    def test_an_agent_that_is_called_takes_orders_of_servers_only(self):
        c, pki = self.secure(heartbeat="1s")
        self.node(c, pki, "node-1", "--push", "--listen", "127.0.0.1:0")
        c.wait_nodes_ready(1)
        pki.issue("node", "node-2")
        endpoint = re.search(r"endpoint=(\S+)", self.log(c, "node-1")).group(1)

        def call(name):
            parts = []
            for path in ("ca.pem", name + "-key.pem", name + ".pem"):
                with open(pki.file(path), "rb") as f:
                    parts.append(f.read())
            with persys.grpc.secure_channel(endpoint, persys.grpc.ssl_channel_credentials(*parts)) as channel:
                method = channel.unary_unary("/persys.agent.v1.AgentService/HealthCheck")
                try:
                    method(b"", timeout=30)
                    return "OK"
                except persys.grpc.RpcError as e:
                    return e.code().name
        self.assertEqual([call(n) for n in ("s1", "node-2", "ann")], ["OK", "PERMISSION_DENIED", "PERMISSION_DENIED"])
        self.assertIn('certificate="node node-2"', self.log(c, "node-1"))

    # R: C32
    def test_a_server_of_a_foreign_ca_is_not_believed(self):
        c, pki = self.secure()
        foreign = Pki(c, "foreign")
        foreign.issue("user", "ann")
        r = self.command(c, {**pki.env("ann"), "BERTH_TLS_CA": foreign.file("ca.pem")})
        self.assertIn("certificate verify failed", r.err)
        c.start_agent("node-1", args=[*pki.issue("node", "node-1")[:4], "--tls-ca", foreign.file("ca.pem")])
        c.wait_for("the agent to say so", lambda: "certificate verify failed" in self.log(c, "node-1"))
        self.assertEqual(c.nodes(), [])


class Rotation(Tls):
    def serial(self, c, pki):
        """Of the certificate that the server shows to a new connection."""
        host, port = c.grpc_address.rsplit(":", 1)
        context = pki.context("ann")
        context.set_alpn_protocols(["h2"])
        with socket.create_connection((host, int(port)), timeout=30) as raw, context.wrap_socket(raw, server_hostname=host) as s:
            return s.getpeercert()["serialNumber"].lower()

    # R: C32
    def test_new_certificates_are_taken_up_and_no_call_is_dropped(self):
        c, pki = self.secure(heartbeat="500ms")
        self.node(c, pki, "node-1")
        self.node(c, pki, "node-2", "--label", "way=calls", "--push", "--listen", "127.0.0.1:0")
        c.wait_nodes_ready(2)
        c.apply("ticks", command=["sh", "-c", "i=0; while :; do i=$((i+1)); echo tick $i; sleep 0.1; done"])
        c.wait_phase("ticks", "Running")
        out = os.path.join(c.dir, "ticks.out")
        with open(out, "wb") as f:
            follow = subprocess.Popen([BERTH, "logs", "-f", "ticks"], stdout=f, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                      env={**c.env, "BERTH_SERVER": c.grpc_address})
        self.addCleanup(follow.wait)
        self.addCleanup(follow.kill)

        def lines():
            with open(out) as f:
                return f.read().splitlines()
        c.wait_for("output", lambda: len(lines()) > 3)

        # Calls by new and by kept connections all the while.
        failures, done, calls = [], threading.Event(), [0]

        def load():
            kept = c.api.fork()
            while not done.is_set():
                for api in (kept, c.api.fork()):
                    try:
                        if api.get("/v1/cluster").status != 200:
                            failures.append("status")
                    except Gone as e:
                        failures.append(str(e))
                    calls[0] += 1
                    if api is not kept:
                        api.close()
                time.sleep(0.01)
            kept.close()
        thread = threading.Thread(target=load, daemon=True)
        thread.start()
        self.addCleanup(done.set)

        taken = "new certificate files are in use"
        for turn, extra in enumerate(([], ["--new-key"], []), 1):
            for name in ("s1", "node-1", "node-2"):
                pki.renew(name, *extra)
            for name in ("server", "node-1", "node-2"):
                c.wait_for(f"{name} to take it up", lambda name=name, turn=turn: self.log(c, name).count(taken) >= turn)
            c.wait_for("the new certificate to be shown", lambda: self.serial(c, pki) == pki.show("s1")["serial"])
            seen = len(lines())
            c.wait_for("the stream to go on", lambda seen=seen: len(lines()) > seen + 3)

        # Files that do not fit together are not used, and nothing else happens; then they are put right.
        shown = self.serial(c, pki)
        with open(pki.file("s1-key.pem")) as f:
            key = f.read()
        with open(pki.file("ann-key.pem")) as f, open(pki.file("s1-key.pem"), "w") as g:
            g.write(f.read())
        c.wait_for("the server to say so", lambda: "new certificate files are not used" in self.log(c, "server"))
        self.assertEqual(self.serial(c, pki), shown)
        with open(pki.file("s1-key.pem"), "w") as g:
            g.write(key)
        c.wait_for("the server to take them up", lambda: self.log(c, "server").count(taken) >= 4)

        done.set()
        thread.join(60)
        self.assertEqual(failures, [])
        self.assertIsNone(follow.poll(), "the stream runs on")
        got = lines()
        self.assertEqual(got, [f"tick {i + 1}" for i in range(len(got))], "no line is missing or there twice")
        self.assertNotIn("the stream to the server ended", self.log(c, "node-1"))
        self.assertEqual(self.log(c, "node-1").count("msg=connected"), 1)
        note(f"{calls[0]} calls during four rotations, none failed")

        # The agents' new certificates are good for new connections, too.
        c.restart_server()
        c.wait_nodes_ready(2)
        called = c.manifest("called", node_selector={"way": "calls"})
        called["type"], called["spec"]["image"] = "container", "process"
        self.assertEqual(c.api.call("PUT", "/v1/workloads/called", called).status, 201)
        c.wait_phase("called", "Running")

    # R: C32
    def test_an_agent_that_is_renewed_in_time_says_so_and_goes_on(self):
        c, pki = self.secure()
        pki.issue("node", "node-1", "--valid", "1m")  # it begins five minutes ago: less than a third is left
        c.start_agent("node-1", args=pki.args("node-1"))
        c.wait_nodes_ready(1)
        self.assertIn("the certificate expires soon", self.log(c, "node-1"))
        pki.renew("node-1", "--valid", "30d")
        c.wait_for("it to be taken up", lambda: "new certificate files are in use" in self.log(c, "node-1"))
        self.assertEqual(self.log(c, "node-1").count("the certificate expires soon"), 1)

    # R: C32
    def test_another_ca_takes_over_while_both_are_trusted(self):
        c, old = self.secure(heartbeat="500ms")
        self.node(c, old, "node-1")
        c.wait_nodes_ready(1)
        new = Pki(c, "new")
        new.issue("server", "s1", "--ip", "127.0.0.1")
        new.issue("node", "node-1")
        new.issue("user", "ann")
        with open(old.file("ca.pem")) as f, open(new.file("ca.pem")) as g:
            both = f.read() + g.read()

        def put(path, text):
            with open(path + ".new", "w") as f:
                f.write(text)
            os.rename(path + ".new", path)

        def swap(name):
            for suffix in ("-key.pem", ".pem"):
                with open(new.file(name + suffix)) as f:
                    put(old.file(name + suffix), f.read())
        put(old.file("ca.pem"), both)  # first everybody trusts both: here they share the file
        for name in ("server", "node-1"):
            c.wait_for("both to be trusted", lambda name=name: "new certificate files are in use" in self.log(c, name))
        c.ok("get", "nodes")
        c.ok("get", "nodes", env={**new.env("ann"), "BERTH_TLS_CA": old.file("ca.pem")})
        for name in ("s1", "node-1"):
            swap(name)
        serial = new.show("s1")["serial"]
        context = ssl.create_default_context(cafile=old.file("ca.pem"))
        context.load_cert_chain(new.file("ann.pem"), new.file("ann-key.pem"))
        c.tls = context
        c.wait_for("the new server's certificate", lambda: self.serial(c, old) == serial)
        put(old.file("ca.pem"), open(new.file("ca.pem")).read())  # the old one is trusted no more
        c.api.close()
        c.api.tls = context

        def refused():
            r = c.cli("get", "nodes", env={**old.env("ann"), "BERTH_TLS_CA": new.file("ca.pem")})
            return r.code == 6
        c.wait_for("certificates of the old CA to be refused", refused)
        self.assertNotIn("the stream to the server ended", self.log(c, "node-1"))
        c.restart_server()
        c.wait_nodes_ready(1)
