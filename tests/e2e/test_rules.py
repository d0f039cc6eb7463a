"""The configuration file, automation rules and webhooks, with real processes and a real receiver."""
import contextlib
import hashlib
import hmac
import http.server
import json
import os
import signal
import subprocess
import threading
import time
import unittest

import berthtest

SECRET = "a secret of some length"


class Receiver:
    """Takes webhooks on a port that stays the same when it goes away and comes back."""

    def __init__(self, port=0, status=200, tls=None):
        self.deliveries, self.status, self.port, self.server, self.tls = [], status, port, None, tls
        self.start()

    def start(self):
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.deliveries.append((dict(self.headers), body))
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass

        http.server.ThreadingHTTPServer.allow_reuse_address = True
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        if self.tls:
            self.server.socket = self.tls.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def check_signature(case, headers, body):
    parts = dict(p.split("=", 1) for p in headers["Berth-Signature"].split(","))
    want = hmac.new(SECRET.encode(), parts["t"].encode() + b"." + body, hashlib.sha256).hexdigest()
    case.assertEqual(parts["v1"], want)
    case.assertLess(abs(time.time() - int(parts["t"])), 300)


class Rules(berthtest.Case):
    def config(self, c, text):
        path = os.path.join(c.dir, "berth.yaml")
        with open(path + ".new", "w") as f:
            f.write(text)
        os.rename(path + ".new", path)
        return path

    def configured(self, text, nodes=1, **kw):
        c = self.cluster(nodes=0, server=False, **kw)
        c.server_args += ["--config", self.config(c, text)]
        c.start_server()
        for i in range(nodes):
            c.start_agent(f"node-{i + 1}")
        if nodes:
            c.wait_nodes_ready(nodes)
        return c

    def alerts(self, c, **query):
        return c.api.get("/v1/alerts", **query).json.get("items", [])

    def test_an_alert_after_three_failures_once(self):  # R: C30 C28
        c = self.configured("rules:\n- {name: failing, when: workload.failures >= 3, cooldown: 1s, message: look at it}\n")
        c.apply("bad", command=["false"], retry={"max_attempts": 4, "base_seconds": 1, "cap_seconds": 1})
        c.wait_phase("bad", "Failed")
        raised = c.events(type="AlertRaised")
        self.assertEqual([(e["rule"], e["workload_id"]) for e in raised], [("failing", "bad")])
        self.assertIn("look at it", raised[0]["message"])
        third = [e for e in c.events_of("bad", "RetryScheduled") if e["retry"]["attempts"] == 3]
        self.assertEqual(raised[0]["seq"], third[0]["seq"] + 1, "raised with the third failure, not later")
        self.assertEqual([a["rule"] for a in self.alerts(c)], ["failing"])
        c.restart_server()
        c.wait_nodes_ready(1)
        self.assertEqual(len(c.events(type="AlertRaised")), 1, "a restart does not raise it again")
        self.assertEqual(len(c.events(rule="failing")), 1)
        self.assertIn("AlertRaised", c.ok("events", "--rule", "failing").out)
        self.assertNotIn("AlertRaised", c.ok("events", "--rule", "other").out)
        c.api.call("DELETE", "/v1/workloads/bad")
        c.wait_for("the alert to be cleared", lambda: c.events(type="AlertCleared"))
        self.assertEqual(self.alerts(c), [])

    def test_a_node_figure_must_hold_for_its_duration(self):  # R: C30
        # What the agent says is in use of what it offers: a figure that is there once the agent was heard.
        c = self.configured("heartbeat: 200ms\nrules:\n- {name: used, when: node.memory >= 0% for 2s, selector: zone=a, cooldown: 1s}\n"
                            "- {name: never, when: node.memory > 100%}\n", nodes=0)
        c.start_agent("node-1", labels={"zone": "a"})
        c.start_agent("node-2", labels={"zone": "b"})
        c.wait_nodes_ready(2)
        registered = [e for e in c.events(type="NodeRegistered") if e["node_id"] == "node-1"][0]
        raised = c.wait_for("the alert", lambda: c.events(type="AlertRaised"))
        self.assertEqual([(e["rule"], e["node_id"]) for e in raised], [("used", "node-1")])

        def ms(e):
            import datetime
            return datetime.datetime.fromisoformat(e["timestamp"].replace("Z", "+00:00")).timestamp()

        self.assertGreaterEqual(ms(raised[0]) - ms(registered), 2)
        time.sleep(1.5)  # heartbeats go on: nothing more may be written
        self.assertEqual(len(c.events(type="AlertRaised")), 1)
        self.assertEqual(c.events(type="AlertCleared"), [])

    def test_webhooks_are_signed_and_survive_everything(self):  # R: C30
        receiver = Receiver()
        self.addCleanup(receiver.stop)
        port = receiver.port
        text = (f"rules:\n- {{name: stuck, when: workload.phase == Pending, webhook: ops, cooldown: 0s}}\n"
                f"webhooks:\n- name: ops\n  url: http://127.0.0.1:{port}/hook?x=1\n  secret: {SECRET}\n  timeout: 5s\n"
                f"  retry: {{max_attempts: 50, base_seconds: 1, cap_seconds: 1}}\n")
        c = self.configured(text, nodes=0)
        c.apply("a")
        c.wait_for("a delivery", lambda: c.events(type="WebhookDelivered"))
        self.assertEqual(len(receiver.deliveries), 1)
        headers, body = receiver.deliveries[0]
        check_signature(self, headers, body)
        value = json.loads(body)
        self.assertEqual((value["event"], value["rule"], value["workload"]), ("AlertRaised", "stuck", "a"))
        self.assertEqual(headers["Berth-Event"], "AlertRaised")
        self.assertEqual(headers["Berth-Delivery"], value["id"])
        self.assertEqual(headers["Content-Type"], "application/json")

        # the receiver goes away: it is tried again and again, and the server is killed meanwhile
        receiver.stop()
        c.apply("b")
        c.wait_for("a failed attempt", lambda: c.events(type="WebhookFailed"))
        c.restart_server("kill")
        before = len(c.events(type="WebhookFailed"))
        c.wait_for("another failed attempt, after the restart", lambda: len(c.events(type="WebhookFailed")) > before)
        receiver.start()
        c.wait_for("the delivery", lambda: len(c.events(type="WebhookDelivered")) == 2)
        headers, body = receiver.deliveries[-1]
        check_signature(self, headers, body)
        queued = [e["outgoing"]["id"] for e in c.events(type="WebhookQueued")]
        self.assertEqual(headers["Berth-Delivery"], queued[1])
        # each was delivered at least once, and what came twice carries the id that it had
        self.assertEqual({h["Berth-Delivery"] for h, _ in receiver.deliveries}, set(queued))

        # an answer that is no success counts as a failure; the same id comes again
        receiver.status = 500
        c.apply("c")
        c.wait_for("an attempt that the receiver refuses", lambda: [e for e in c.events(type="WebhookFailed") if "500" in e["message"]])
        receiver.status = 204
        c.wait_for("the delivery", lambda: len(c.events(type="WebhookDelivered")) == 3)
        third = c.events(type="WebhookQueued")[2]["outgoing"]["id"]
        self.assertGreaterEqual([h["Berth-Delivery"] for h, _ in receiver.deliveries].count(third), 2)

    def test_webhooks_are_given_up_and_servers_that_hang_hold_up_nothing(self):  # R: C30
        import socket
        deaf = socket.socket()
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(16)  # takes connections, never answers
        self.addCleanup(deaf.close)
        c = self.configured("rules:\n- {name: stuck, when: workload.phase == Pending, webhook: deaf, cooldown: 0s}\n"
                            f"webhooks:\n- name: deaf\n  url: http://127.0.0.1:{deaf.getsockname()[1]}/\n  timeout: 500ms\n"
                            "  retry: {max_attempts: 2, base_seconds: 1, cap_seconds: 1}\n", nodes=0)
        c.apply("a")
        self.assertEqual(c.api.get("/v1/cluster").status, 200)
        given_up = c.wait_for("it to be given up", lambda: [e for e in c.events(type="WebhookFailed") if "given up" in e["message"]])
        self.assertIn("in time", given_up[0]["message"])
        self.assertEqual(given_up[0]["outgoing"]["attempts"], 2)
        self.assertEqual(len(c.events(type="WebhookFailed")), 2)

    def test_https_receivers_are_verified(self):  # R: C30 C32
        import ssl
        c = self.cluster(nodes=0, server=False)
        cert, key = os.path.join(c.dir, "cert.pem"), os.path.join(c.dir, "key.pem")
        try:
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj",
                            "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        except FileNotFoundError:
            self.skipTest("there is no openssl command")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        receiver = Receiver(tls=context)
        self.addCleanup(receiver.stop)
        rules = "rules:\n- {name: stuck, when: workload.phase == Pending, webhook: ops, cooldown: 0s}\n"
        hook = (f"webhooks:\n- name: ops\n  url: https://127.0.0.1:{receiver.port}/\n  secret_file: {c.dir}/secret\n"
                "  retry: {max_attempts: 100, base_seconds: 1, cap_seconds: 1}\n")
        with open(os.path.join(c.dir, "secret"), "w") as f:
            f.write(SECRET + "\n")
        c.server_args += ["--config", self.config(c, rules + hook)]
        c.start_server()
        c.apply("a")
        c.wait_for("an attempt that is not trusted", lambda: c.events(type="WebhookFailed"))
        self.assertEqual(receiver.deliveries, [])
        self.config(c, rules + hook + f"  ca_file: {cert}\n")
        c.server.signal(signal.SIGHUP)
        c.wait_for("the delivery", lambda: c.events(type="WebhookDelivered"))
        check_signature(self, *receiver.deliveries[0])

    def test_the_configuration_is_read_again_on_sighup(self):  # R: C10 C30
        c = self.configured("heartbeat: 5s\nlog_level: info\n", nodes=1)
        c.apply("a", cpu=100)  # fits nowhere
        self.assertEqual(c.events(type="AlertRaised"), [])
        self.config(c, "heartbeat: 300ms\nsilence: 3\nmax_nodes: 7\nrules:\n- {name: stuck, when: workload.phase == Pending}\n"
                       "default_quota: {workloads: 2}\n")
        c.server.signal(signal.SIGHUP)
        c.wait_for("the alert of the new rule", lambda: c.events(type="AlertRaised"))
        self.assertIn("key=max_nodes", c.tail("server"))  # what needs a restart is said
        c.apply("b")
        self.assertEqual(c.api.call("PUT", "/v1/workloads/c", c.manifest("c")).status, 409)
        # a file with mistakes changes nothing
        self.config(c, "heartbeat: soon\nrules:\n- {name: x, when: node.cpu is high}\n")
        c.server.signal(signal.SIGHUP)
        c.wait_for("the complaint", lambda: "the one before it stays in force" in c.tail("server"))
        self.assertIn("berth.yaml:1: heartbeat", c.tail("server"))
        self.assertEqual(len(self.alerts(c)), 1)
        # the new pace counts: a killed agent is noticed within about a second
        c.agents["node-1"].kill()
        c.wait_node("node-1", "NotReady", timeout=20)
        c.leftovers_allowed = True

    def test_config_check_names_every_mistake(self):  # R: C30 A9
        c = self.cluster(nodes=0, server=False)
        path = self.config(c, "heartbeat: soon\nrules:\n- name: hot\n  when: node.cpu > 85\n- name: hot\n  when: workload.failures >= 3\n  webhook: nobody\n")
        r = c.cli("config", "check", path, server=False)
        self.assertEqual(r.code, 2, r)
        for want in (":1: heartbeat", ":4: rules[0].when", ":5: rules[1].name", ":7: rules[1].webhook", "4 problems"):
            self.assertIn(want, r.err + r.out)
        refused = c.cli("server", "--config", path, "--data", c.data, server=False)
        self.assertEqual(refused.code, 2, refused)
        self.config(c, "heartbeat: 10s\n")
        self.assertIn("is fine", c.ok("config", "check", path, server=False).out)
        self.assertEqual(c.cli("config", "check", "/nowhere.yaml", server=False).code, 2)

    def test_flags_and_the_environment_go_before_the_file(self):  # R: C10
        c = self.cluster(nodes=0, server=False)
        c.env["BERTH_GRACE"] = "7s"
        c.server_args += ["--config", self.config(c, "heartbeat: 5s\ngrace: 9s\nhttp: 127.0.0.1:1\ndata: /nowhere\n"), "--heartbeat", "300ms"]
        c.start_server()  # --data and --http of the test go before the file's
        agent = c.start_agent("node-1")
        c.wait_nodes_ready(1)
        agent.kill()
        c.wait_node("node-1", "NotReady", timeout=20)  # 900 ms, not 15 s
        c.leftovers_allowed = True


if __name__ == "__main__":
    unittest.main()
