"""What a viewer may not see, on every route and method of the matrix (docs/access.md); and that no caller can take all streams (issue line A7)."""
import contextlib
import hashlib
import http.client
import json
import os
import re
import threading
import unittest

import etcd
import persys
import test_access_replicas  # the module: a class that is imported by its name would be tested twice
from berthtest import ROOT, Api, EventStream, Gone, only_embedded
from persys import grpc
from test_access import Access

CANARY = "canary-7f3a9c"
COMPOSE = f"services:\n  web:\n    image: nginx\n    environment:\n      SECRET: {CANARY}\n"
POD = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{{name: c, image: nginx, env: [{{name: SECRET, value: {CANARY}}}]}}]}}\n"


def matrix():
    """The rows of docs/access.md: (operation, HTTP or "", gRPC or "", {credential: cell})."""
    with open(os.path.join(ROOT, "docs", "access.md")) as f:
        lines = f.read().split("<!-- the matrix")[1].splitlines()
    cells = [[c.strip().strip("`") for c in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    names = cells[0][3:]
    return [(row[0], row[1], row[2], dict(zip(names, row[3:]))) for row in cells[2:]]


class Sweep:
    """Calls every row of the matrix at one server, and gives everything that came back: {row and door: text}."""

    def __init__(self, case, http, channel, metadata=()):
        self.case, self.http, self.channel, self.metadata = case, http, channel, metadata
        self.pool = persys.compiled("api.proto", "persys_control.proto", "agent.proto")
        self.messages = persys.Messages(self.pool)
        self.cluster = http.get("/v1/cluster").json.get("cluster_id", "default")

    def path(self, pattern):
        return re.sub(r"{[^}]*}", lambda m: {"{tenant}": "default", "{name}": "admin", "{cluster_id}": self.cluster}.get(
            m.group(), "node-1" if "/nodes/" in pattern else "canary"), pattern)

    def watch_http(self, path):
        stream, seen = EventStream(self.http.address, since=0, tls=self.http.tls, token=self.http.token), []
        for _, _, data in stream:
            seen.append(json.dumps(data))
            if data.get("workload_id") == "zz-last":
                break
        stream.close()
        return "\n".join(seen)

    def by_http(self, operation, route):
        method, pattern = route.split()
        if operation == "WatchEvents":
            return self.watch_http(pattern)
        query = "?pretty=true" if operation == "GetWorkload" else ""
        body = {"drain_node": "node-1"} if operation == "Plan" else {} if method in ("PUT", "POST") else None
        prefixes = [""] if pattern.startswith("/persys") else ["", "/v1"]
        answers = [self.http.call(method, prefix + self.path(pattern) + query, body) for prefix in prefixes]
        if pattern.startswith("/persys") and "clusters" not in pattern:
            answers.append(self.http.call(method, self.path("/persys/clusters/{cluster_id}" + pattern[len("/persys"):]), body))
        return "\n".join(str(a.headers) + a.body.decode() for a in answers)

    def request(self, service, method):
        with contextlib.suppress(KeyError):
            m = self.pool.FindServiceByName(service).FindMethodByName(method)
            q = self.messages.of(m.input_type.full_name)()
            for name, value in (("id", "node-1" if "Node" in method else "canary"), ("workload_id", "canary"), ("node_id", "node-1"), ("tenant", "default"),
                                ("drain_node", "node-1")):
                if name in q.DESCRIPTOR.fields_by_name:
                    setattr(q, name, value)
            return q.SerializeToString()
        return b""

    def by_grpc(self, operation, path):
        service, method = path.split("/")
        call = self.channel.stream_stream("/" + path, request_serializer=lambda b: b, response_deserializer=lambda b: b)
        got, endless = [], operation in ("WatchEvents", "AgentConnect")
        answer = call(iter([self.request(service, method)]), metadata=self.metadata, timeout=60)
        try:
            for data in answer:
                got.append(data.decode("latin-1"))
                if endless and "zz-last" in got[-1]:
                    answer.cancel()
        except grpc.RpcError as e:
            got += [str(e.code()), str(e.details()), str(e.trailing_metadata())]
        return "\n".join(got)

    def run(self, changes=True):
        """changes: also what a viewer may not do."""
        said = {}
        for operation, http, rpc, cells in matrix():
            if not changes and cells["viewer"] != "yes":
                continue
            if http:
                said[f"{operation} by HTTP"] = self.by_http(operation, http)
            if rpc:
                said[f"{operation} by gRPC"] = self.by_grpc(operation, rpc)
        return said


def with_canaries(case, c):
    """Workloads of every kind that can hold a value, and a token."""
    for name, more in (("canary", {}), ("canary-2", {})):
        c.apply(name, env={"SECRET": CANARY}, **more)
    for name, kind, spec in (("canary-compose", "compose", {"compose": COMPOSE}), ("canary-pod", "container", {"pod": POD})):
        a = c.api.call("PUT", f"/v1/workloads/{name}", {"id": name, "type": kind, "spec": spec, "resources": {"cpu": 0.1, "memory_mb": 16}})
        case.assertIn(a.status, (200, 201), a)
    a = c.api.call("POST", "/persys/workloads/schedule", {"workload_id": "canary-persys", "revision_id": "r1", "spec": {
        "type": "container", "container": {"image": "nginx", "env": {"SECRET": CANARY}}, "resources": {"cpu_millicores": 100, "memory_mb": 64}}})
    case.assertEqual((a.status, a.json.get("success")), (200, True), a)
    c.apply("zz-last")


SEES = ("GetWorkload by HTTP", "GetWorkload by gRPC", "ListWorkloads by HTTP", "ListWorkloads by gRPC", "ListEvents by HTTP", "ListEvents by gRPC",
        "WatchEvents by HTTP", "WatchEvents by gRPC", "PersysGetWorkload by HTTP", "PersysGetWorkload by gRPC", "PersysListWorkloads by HTTP")


@unittest.skipUnless(grpc, "python3-grpcio is not installed")
class Canary(Access):
    def check(self, operator, viewer, hashes):
        """operator and viewer: what both got from the same calls."""
        for where in SEES:  # the test would find it
            if not where.startswith("Persys"):
                self.assertIn(CANARY, operator[where], where)
        for where, text in viewer.items():
            self.assertNotIn(CANARY, text, where)
        self.assertIn("SECRET", viewer["GetWorkload by HTTP"], "names are seen")
        for said in (operator, viewer):
            for where, text in said.items():
                for h in hashes:
                    self.assertNotIn(h, text, where)

    # R: A14 C32
    def test_a_viewer_sees_no_value_on_any_route_and_only_admins_see_hashes(self):
        c = self.safe()
        node = os.path.join(c.dir, "node.token")
        with open(node, "w") as f:
            f.write(self.token(c, "n1", "--role", "node"))
        c.start_agent("node-1", args=["--token-file", node])
        c.wait_nodes_ready(1)
        secrets = {role: self.token(c, "of-" + role, "--role", role) for role in ("viewer", "operator")}
        hashes = [hashlib.sha256(s.encode()).hexdigest() for s in (*secrets.values(), c.token)]
        with_canaries(self, c)
        c.wait_phase("canary", "Running")

        def sweep(token, changes=True):
            with grpc.insecure_channel(c.grpc_address) as channel:
                return Sweep(self, Api(c.address, token=token), channel, (("authorization", "Bearer " + token),)).run(changes)
        viewer = sweep(secrets["viewer"])
        self.assertGreaterEqual(len(viewer), 100, "every row, by each of its doors")
        for where in SEES:
            self.assertTrue(viewer[where], where)
        operator = sweep(secrets["operator"], changes=False)
        self.check(operator, viewer, hashes)
        # the same by commands, streams of what happens now, and while the store is read for what was
        env = {"BERTH_TOKEN": secrets["viewer"]}
        c.apply("canary-3", env={"SECRET": CANARY})
        for args in (["get", "workloads", "-o", "json"], ["get", "workloads", "-o", "yaml"], ["describe", "canary-3"], ["explain", "canary-3"],
                     ["events", "--since", "0", "-o", "json"], ["events", "--workload", "canary-3", "-o", "json"]):
            r = c.cli(*args, env=env)
            self.assertEqual(r.code, 0, (args, r))
            self.assertNotIn(CANARY, r.out + r.err, args)
        self.assertIn(hashes[0], c.ok("events", "--since", "0", "-o", "json").out, "an admin sees them")
        self.assertEqual(Api(c.address, token=secrets["operator"]).get("/v1/workloads/canary-3").json["spec"]["env"]["SECRET"], CANARY)

    # R: A14
    def test_live_events_of_several_roles_at_once_show_each_what_it_may_see(self):
        c = self.safe()
        tokens = {role: self.token(c, "of-" + role, "--role", role) for role in ("viewer", "operator")}
        tokens["admin"] = c.token
        seen, threads = {}, []

        def read(role, stream):
            for _, _, data in stream:
                if data.get("workload_id") == "live":
                    seen[role] = json.dumps(data)
                if role in seen:
                    return
        streams = {role: EventStream(c.address, token=token, since=c.head()) for role, token in tokens.items()}
        for role, stream in streams.items():
            threads.append(threading.Thread(target=read, args=(role, stream)))
            threads[-1].start()
        c.apply("live", env={"SECRET": CANARY})
        for t in threads:
            t.join(60)
        for stream in streams.values():
            stream.close()
        self.assertEqual({role: CANARY in text for role, text in seen.items()}, {"viewer": False, "operator": True, "admin": True})

    # A definition that a viewer saved must not wipe out the values when an operator applies it. R: A14
    def test_what_a_viewer_saved_is_refused_by_name(self):
        c = self.safe()
        viewer = self.token(c, "vic", "--role", "viewer")
        c.apply("w", env={"SECRET": CANARY})
        saved = Api(c.address, token=viewer).get("/v1/workloads/w").json
        a = c.api.call("PUT", "/v1/workloads/w", {"id": "w", "spec": saved["spec"], "resources": saved["resources"]})
        self.assertEqual(a.status, 400, a)
        self.assertTrue(a.json["path"].startswith("spec.env."), a)
        self.assertIn("viewers", a.json["message"])
        self.assertEqual(c.api.get("/v1/workloads/w").json["spec"]["env"]["SECRET"], CANARY)


@only_embedded("starts its own etcd whatever the others run on: part of the ordinary run")
@unittest.skipUnless(etcd.is_installed() and grpc, "etcd or python3-grpcio is not installed")
class AtAFollower(test_access_replicas.Replicas):
    # Only the one test of this class: the base class has run its own.
    for name in [n for n in dir(test_access_replicas.Replicas) if n.startswith("test_")]:
        locals()[name] = None
    del name

    # R: A14 C33
    def test_a_viewer_sees_no_value_at_a_follower_either(self):
        c, pki, second = self.two()
        tokens = {role: self.token(c, "of-" + role, "--role", role) for role in ("viewer", "operator")}
        with_canaries(self, c)
        with open(pki.file("ca.pem"), "rb") as f:
            trust = grpc.ssl_channel_credentials(f.read())

        def sweep(token, changes=True):
            api = Api(second.address["http"], tls=c.tls, token=token)
            c.wait_for("the follower to know the token", lambda: api.get("/v1/workloads/zz-last").status == 200)
            with grpc.secure_channel(second.address["grpc"], trust) as channel:
                return Sweep(self, api, channel, (("authorization", "Bearer " + token),)).run(changes)
        viewer, operator = sweep(tokens["viewer"]), sweep(tokens["operator"], changes=False)
        for where in SEES:
            if not where.startswith("Persys"):
                self.assertIn(CANARY, operator[where], where)
        for where, text in viewer.items():
            self.assertNotIn(CANARY, text, where)
        api = Api(second.address["http"], tls=c.tls, token=tokens["viewer"])
        c.apply("canary-9", env={"SECRET": CANARY})
        a = api.get("/v1/workloads/canary-9", consistent=True)  # what the leader answers
        self.assertEqual(a.status, 200, a)
        self.assertNotIn(CANARY, a.body.decode())

    # The line E6: another cookie's name may end as ours does. R: C32 C33
    def test_a_follower_passes_on_the_cookie_that_is_the_dashboards(self):
        c, _, second = self.two()
        token = self.token(c, "ann", "--role", "operator")
        api = Api(second.address["http"], tls=c.tls)
        c.wait_for("the follower to know the token", lambda: Api(second.address["http"], tls=c.tls, token=token).get("/v1/nodes").status == 200)
        a = api.call("PUT", "/v1/workloads/w", c.manifest("w"), headers={"Cookie": f"other_berth_token=berth_{'x' * 43}; berth_token={token}; more=1"})
        self.assertEqual(a.status, 201, a)
        self.assertEqual({e["actor"] for e in c.events_of("w", "WorkloadApplied")}, {"ann"})


class Shares(Access):
    # R: A13
    def test_one_viewer_cannot_take_all_event_streams(self):
        c = self.safe()
        vic, val = (Api(c.address, token=self.token(c, n, "--role", "viewer")) for n in ("vic", "val"))
        streams = []
        try:
            with self.assertRaises(Gone) as refused:
                for _ in range(400):
                    streams.append(EventStream(c.address, token=vic.token))
            self.assertEqual(len(streams), 250, "an eighth of 2,000")
            self.assertIn("429", str(refused.exception))
            self.assertIn("vic has too many event streams open", str(refused.exception))
            EventStream(c.address, token=val.token).close()
            streams.pop().close()
            c.wait_for("one more", lambda: self.opens(c, vic.token))
        finally:
            for s in streams:
                s.close()

    def opens(self, c, token):
        with contextlib.suppress(Gone):
            EventStream(c.address, token=token).close()
            return True
        return False

    # R: A13
    def test_one_viewer_cannot_take_all_log_streams_of_a_node(self):
        c = self.safe()
        node = os.path.join(c.dir, "node.token")
        with open(node, "w") as f:
            f.write(self.token(c, "n1", "--role", "node"))
        c.start_agent("node-1", args=["--token-file", node])
        c.wait_nodes_ready(1)
        vic, ola = self.token(c, "vic", "--role", "viewer"), self.token(c, "ola", "--role", "operator")
        c.apply("w", command=["sh", "-c", "echo ahoy; exec sleep 100000"])
        c.wait_phase("w", "Running")
        open_ones, path = [], "/v1/workloads/w/logs?follow=true"
        try:
            statuses = []
            for _ in range(12):

                host, port = c.address.rsplit(":", 1)
                connection = http.client.HTTPConnection(host, int(port), timeout=60)
                connection.request("GET", path, headers={"Authorization": "Bearer " + vic})
                response = connection.getresponse()
                statuses.append(response.status)
                open_ones.append(connection)
            self.assertEqual(statuses, [200] * 8 + [429] * 4)
            env = {"BERTH_TOKEN": ola}
            self.assertIn("ahoy", c.ok("logs", "w", env=env).out)
            self.assertEqual(c.ok("exec", "w", "--", "echo", "aye", env=env).out, "aye\n")
        finally:
            for connection in open_ones:
                connection.close()
