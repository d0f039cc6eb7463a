"""Bad input by every door: a clear error with the field's path, and nothing changed. R: A9

The variants come from berth-badinput, which makes them from the message descriptors and the table of rules: each field missing, of the wrong type,
out of range, too long, unknown.
"""
import base64
import json
import os
import subprocess
import tempfile
import unittest
import urllib.parse

from berthtest import BERTH, FULL, MARK, ROOT, Case, note

try:
    import grpc
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
except ImportError:  # the Debian packages python3-grpcio and python3-protobuf
    grpc = None


def find_generator():
    for base, _, files in os.walk(os.path.dirname(BERTH)):
        if "berth-badinput" in files:
            return os.path.join(base, "berth-badinput")
    return None


def variants(kind):
    program = find_generator()
    if not program:
        raise unittest.SkipTest("berth-badinput is not built")
    out = subprocess.run([program, kind], capture_output=True, text=True, check=True).stdout
    found = [json.loads(line) for line in out.splitlines()]
    assert found, f"no variants of {kind}"
    return found


def messages():
    """{short name: class} of berth's messages, from the .proto files themselves."""
    with tempfile.NamedTemporaryFile() as f:
        subprocess.run(["protoc-c", "--descriptor_set_out=" + f.name, "--include_imports", "-I" + os.path.join(ROOT, "proto"), "-I/usr/include",
                        os.path.join(ROOT, "proto", "api.proto")], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(f.read())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    factory = message_factory.MessageFactory(pool)
    return lambda name: factory.GetPrototype(pool.FindMessageTypeByName("berth.v1." + name))


class BadInput(Case):
    def check(self, wrong, total, door):
        note(f"{total} bad inputs by {door}, {total - len(wrong)} answered as they should be")
        self.assertEqual(wrong[:20], [], f"{len(wrong)} of {total}")

    # R: A9 C2
    def test_by_rest(self):
        c = self.cluster(nodes=1)
        c.apply("good")
        c.wait_phase("good", "Running")
        head, wrong = c.head(), []
        all_variants = variants("Workload")
        self.assertGreater(len(all_variants), 50)
        for v in all_variants:
            text = v["body"]
            a = c.api.call("POST", "/v1/workloads", raw=text.encode())
            ok = 400 <= a.status < 500
            if ok:
                e = a.json
                ok = bool(e.get("message") and e.get("request_id")) and v["path"] in (e.get("path"), "")
            if not ok:
                wrong.append((v["what"], v["path"], a, text[:300]))
        self.check(wrong, len(all_variants), "REST")
        self.assertEqual(c.head(), head, "nothing changed")
        self.assertEqual(len(c.workloads()), 1)

    # R: A9
    def test_by_grpc(self):
        if not grpc:
            self.skipTest("python3-grpcio is not installed")
        c = self.cluster(nodes=1)
        c.apply("good")
        c.wait_phase("good", "Running")
        message = messages()
        error_type = message("Error")
        head, wrong, total = c.head(), [], 0
        channel = grpc.insecure_channel(c.grpc_address)

        def raw_call(method):
            return channel.unary_unary("/berth.v1.Control/" + method, request_serializer=lambda b: b, response_deserializer=lambda b: b)
        methods = {"ApplyWorkloadRequest": "ApplyWorkload", "ApplyWorkloadsRequest": "ApplyWorkloads", "WorkloadRef": "DeleteWorkload", "NodeRef": "ForgetNode", "SetDesiredRequest": "SetDesired",
                   "SetNodeWishRequest": "SetNodeWish", "ListWorkloadsRequest": "ListWorkloads", "ListNodesRequest": "ListNodes",
                   "ListEventsRequest": "ListEvents"}
        for kind, method in methods.items():
            call = raw_call(method)
            for v in variants(kind):
                if not v.get("packed"):
                    continue  # a fault that the packed form cannot have, such as a number where text belongs
                total += 1
                try:
                    call(base64.b64decode(v["packed"]), timeout=20)
                    wrong.append((method, v["what"], v["path"], "accepted", v["body"][:300]))
                except grpc.RpcError as e:
                    trailers = dict(e.trailing_metadata() or ())
                    path = error_type.FromString(trailers["berth-error-bin"]).path if "berth-error-bin" in trailers else None
                    if e.code() not in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED) or path != v["path"]:
                        wrong.append((method, v["what"], v["path"], e.code(), e.details(), path, v["body"][:200]))
        self.assertGreater(total, 50)
        self.check(wrong, total, "gRPC")
        apply = raw_call("ApplyWorkload")
        # What is no message at all, and what no message may be.
        for raw in (b"\xff", b"\x0a\xff\xff\xff\xff\x0f", os.urandom(200), b"\x0a" * 1000):
            with self.assertRaises(grpc.RpcError) as caught:
                apply(raw, timeout=20)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
        with self.assertRaises(grpc.RpcError) as caught:
            apply(b"\x0a" + b"\x00" * (6 << 20), timeout=20)
        self.assertIn(caught.exception.code(), (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT))
        unknown = channel.unary_unary("/berth.v1.Control/Nonsense", request_serializer=lambda b: b, response_deserializer=lambda b: b)
        with self.assertRaises(grpc.RpcError) as caught:
            unknown(b"", timeout=20)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
        channel.close()
        self.assertEqual(c.head(), head, "nothing changed")

    # R: A9 (B1: texts were cut inside a character)
    def test_no_answer_is_invalid_utf8(self):
        c = self.cluster()
        for text in ("\u00e9", "\u4e2d", "\U0001f600"):
            for shift in range(4):
                bad = "x" * shift + text * 200
                asked = [("POST", "/v1/workloads", {"id": "a", "spec": {"command": ["x"]}, field: bad})
                         for field in ("strategy", "type", "restart", "desired_state", "revision", bad)]
                asked += [("POST", "/v1/workloads", {"id": bad}), ("POST", "/v1/workloads", {"id": "a", "spec": {"command": bad}}),
                          ("POST", "/persys/workloads", {"id": "a", "type": bad})]
                asked += [("GET", path + urllib.parse.quote(bad[:60]), None)
                          for path in ("/v1/events?type=", "/v1/workloads/", "/v1/nodes/", "/v1/workloads?selector=", "/v1/events?since=", "/v1/workloads?x", "/")]
                for method, path, body in asked:
                    a = c.api.call(method, path, raw=None if body is None else json.dumps(body, ensure_ascii=False).encode())
                    self.assertGreaterEqual(a.status, 400, (method, path, body))
                    if b"{" in a.body[:1]:
                        json.loads(a.body.decode("utf-8"))
                    else:
                        a.body.decode("utf-8")

    # R: A9 C2
    def test_a_foreign_client_can_use_the_grpc_api(self):
        if not grpc:
            self.skipTest("python3-grpcio is not installed")
        c = self.cluster(nodes=1)
        message = messages()
        with grpc.insecure_channel(c.grpc_address) as channel:
            def unary(method, request, reply):
                call = channel.unary_unary("/berth.v1.Control/" + method, request_serializer=request.SerializeToString, response_deserializer=reply.FromString)
                return call
            request = message("ApplyWorkloadRequest")
            r = request()
            json_format.ParseDict({"workload": {"id": "web", "spec": {"command": ["sleep", "100000"], "env": {MARK: c.mark}}}}, r)
            w = unary("ApplyWorkload", request, message("Workload"))(r, timeout=20)
            self.assertEqual(w.id, "web")
            c.wait_phase("web", "Running")
            listed = unary("ListWorkloads", message("ListWorkloadsRequest"), message("ListWorkloadsResponse"))(message("ListWorkloadsRequest")(), timeout=20)
            self.assertEqual([x.id for x in listed.items], ["web"])
            watch = channel.unary_stream("/berth.v1.Control/WatchEvents", request_serializer=message("ListEventsRequest").SerializeToString,
                                         response_deserializer=message("Event").FromString)
            stream = watch(message("ListEventsRequest")(follow=True), timeout=30)
            self.assertEqual([next(stream).seq for _ in range(3)], [1, 2, 3])
            stream.cancel()
            with self.assertRaises(grpc.RpcError) as caught:
                unary("GetWorkload", message("WorkloadRef"), message("Workload"))(message("WorkloadRef")(id="nobody"), timeout=20)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)

    # R: A9
    def test_by_yaml_file(self):
        c = self.cluster(nodes=1)
        head, wrong = c.head(), []
        # In YAML a scalar means what its field makes of it, so some wrong types are none there. A process per variant is slow: every third one.
        some = [v for v in variants("Workload") if v["yaml"]][::1 if FULL else 3]
        path = os.path.join(c.dir, "bad.yaml")
        for v in some:
            with open(path, "w") as f:
                f.write(v["body"])  # JSON is YAML
            r = c.cli("apply", "-f", path)
            if r.code != 2 or not r.err.startswith("error:") or v["path"] not in r.err:
                wrong.append((v["what"], v["path"], r, v["body"][:300]))
        self.check(wrong, len(some), "YAML")
        self.assertEqual(c.head(), head, "nothing changed")

    # R: A9
    def test_yaml_that_is_hostile_or_broken(self):
        c = self.cluster()
        head = c.head()
        cases = {
            "laughs": "a: &a [x, x]\nb: &b [*a, *a]\nid: *b\n",
            "deep": "[" * 5000,
            "tag": "id: !!python/object:os.system x\n",
            "duplicate": "id: a\nid: b\n",
            "tab": "id:\n\t- a\n",
            "unknown": "id: a\nspec: {command: [x], comand: [y]}\n",
            "big": "id: a\nspec: {command: [x], env: {A: " + "x" * 2_000_000 + "}}\n",
            "empty": "",
            "scalar": "just text\n",
            "wrong kind": "kind: Deployment\nid: a\n",
            "not utf-8": None,
        }
        for name, text in cases.items():
            path = os.path.join(c.dir, "bad.yaml")
            with open(path, "wb") as f:
                f.write(b"id: \xff\xfe\n" if text is None else text.encode())
            r = c.cli("apply", "-f", path)
            self.assertEqual(r.code, 2, f"{name}: {r}")
            self.assertTrue(r.err.startswith("error:"), f"{name}: {r}")
        r = c.cli("apply", "-f", os.path.join(c.dir, "nowhere.yaml"))
        self.assertNotEqual(r.code, 0)
        # The first document is good, the second is not: nothing is applied.
        r = c.cli("apply", "-f", "-", stdin="id: good\nspec: {command: [x]}\n---\nid: ''\nspec: {command: [x]}\n")
        self.assertEqual(r.code, 2)
        self.assertEqual(c.head(), head)

