"""What callers of the REST API are promised."""
import http.client
import json
import re
import socket
import threading
import urllib.parse

from berthtest import Case, EventStream, Gone


class Objects(Case):
    # R: C2 A10
    def test_create_read_update_delete(self):
        c = self.cluster(nodes=1)
        body = c.manifest("web", labels={"app": "web"})
        made = c.api.call("POST", "/v1/workloads", body)
        self.assertEqual(made.status, 201, made)
        self.assertTrue(made.etag)
        self.assertEqual(c.api.call("POST", "/v1/workloads", body).status in (200, 201, 409), True)
        other = c.manifest("web", cpu=0.2)
        refused = c.api.call("POST", "/v1/workloads", other)
        self.assertEqual(refused.status, 409, "what exists is not changed by POST")
        self.assertEqual(refused.json["code"], "conflict")
        self.assertEqual(c.api.call("PUT", "/v1/workloads/web", other).status, 200)
        self.assertEqual(c.api.get("/v1/workloads/web").json["resources"]["cpu"], 0.2)
        self.assertEqual(c.api.call("PUT", "/v1/workloads/web", c.manifest("another")).status, 400, "the id of the path and of the body differ")
        c.wait_phase("web", "Running")
        self.assertIn(c.api.call("DELETE", "/v1/workloads/web").status, (200, 202, 204))
        c.wait_gone("web")
        self.assertEqual(c.api.call("DELETE", "/v1/workloads/web").status, 404)
        missing = c.api.get("/v1/workloads/web")
        self.assertEqual((missing.status, missing.json["code"]), (404, "not_found"))
        self.assertTrue(missing.json["request_id"])

    # R: C2
    def test_the_same_paths_without_v1(self):
        c = self.cluster(nodes=1)
        c.apply("web")
        for path in ("/workloads", "/workloads/web", "/nodes", "/health", "/metrics"):
            self.assertEqual(c.api.get(path).status, 200, path)
        self.assertEqual(c.api.get("/workloads/web").json["id"], c.api.get("/v1/workloads/web").json["id"])

    # R: A10
    def test_of_two_writers_one_loses_with_409(self):
        c = self.cluster(nodes=1)
        c.apply("web")
        c.wait_phase("web", "Running")
        etag = c.api.get("/v1/workloads/web").etag
        first = c.api.call("PUT", "/v1/workloads/web", c.manifest("web", cpu=0.3), headers={"If-Match": etag})
        self.assertEqual(first.status, 200, first)
        second = c.api.call("PUT", "/v1/workloads/web", c.manifest("web", cpu=0.4), headers={"If-Match": etag})
        self.assertIn(second.status, (409, 412))
        self.assertEqual(c.api.get("/v1/workloads/web").json["resources"]["cpu"], 0.3)
        self.assertEqual(c.api.call("DELETE", "/v1/workloads/web", headers={"If-Match": etag}).status in (409, 412), True)
        self.assertEqual(c.api.call("PUT", "/v1/workloads/web", c.manifest("web"), headers={"If-Match": "rubbish"}).status, 400)

    # R: A10
    def test_of_many_writers_at_once_exactly_one_wins_each_round(self):
        c = self.cluster(nodes=1)
        c.apply("race")
        c.wait_phase("race", "Running")
        for round_number in range(5):
            etag = c.wait_phase("race", "Running") and c.api.get("/v1/workloads/race").etag
            results = []

            def write(number):
                api = c.api.fork()
                body = c.manifest("race", env={"WINNER": f"{round_number}.{number}"})
                results.append(api.call("PUT", "/v1/workloads/race", body, headers={"If-Match": etag}).status)
                api.close()

            threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(results.count(200), 1, results)
            c.wait_for("the winner to run", lambda: (lambda w: w["status"]["phase"] == "Running"
                       and w["status"].get("observed_revision") == w["revision_id"])(c.workload("race")))

    # R: A11 C2
    def test_lists_have_cursors_and_selectors(self):
        c = self.cluster(nodes=1)
        for i in range(25):
            c.apply(f"w{i:02}", labels={"odd": "yes" if i % 2 else "no"}, cpu=0.01)
        seen, cursor = [], None
        while True:
            page = c.api.get("/v1/workloads", limit=10, cursor=cursor).json
            self.assertLessEqual(len(page["items"]), 10)
            seen += [w["id"] for w in page["items"]]
            cursor = page.get("next_cursor")
            if not cursor:
                break
        self.assertEqual(seen, [f"w{i:02}" for i in range(25)], "each once, in order")
        self.assertEqual(len(c.workloads(selector="odd=yes")), 12)
        self.assertEqual(len(c.workloads(selector="odd!=yes")), 13)
        self.assertEqual(len(c.workloads(prefix="w1")), 10)
        self.assertEqual(len(c.workloads(node="node-1", selector="odd")), len([w for w in c.workloads() if w.get("assigned_node")]))
        c.wait_for("all to run", lambda: len(c.workloads(status="running")) == 25)
        for query in ("limit=0x", "limit=-1", "limit=1000000", "cursor=%00", "selector=a%3D%3D%3Db", "status=nonsense", "nonsense=1"):
            a = c.api.call("GET", "/v1/workloads?" + query)
            self.assertEqual(a.status, 400, f"{query}: {a}")

    # R: A9 A11
    def test_hostile_requests_get_an_answer_and_change_nothing(self):
        c = self.cluster()
        head = c.head()
        big = json.dumps(c.manifest("big", env={"X": "x" * 300_000})).encode()
        a = c.api.call("PUT", "/v1/workloads/big", raw=big)
        self.assertIn(a.status, (400, 413, 429), "a spec is at most 256 KiB")
        a = c.api.fork().call("PUT", "/v1/workloads/big", raw=b"[" * 500_000)
        self.assertEqual(a.status, 400)
        for raw in (b"", b"{", b"null", b"[]", b'"x"', b'{"id":"a"}trailing', b'{"id":"a","id":"b"}', b'{"id":"\xff"}', b"\x00", b'{"id":1e999}'):
            a = c.api.call("PUT", "/v1/workloads/a", raw=raw)
            self.assertEqual(a.status, 400, f"{raw!r}: {a}")
            self.assertTrue(a.json["message"])
        for path in ("/v1/workloads/..%2f..%2fetc", "/v1/workloads/" + "a" * 200, "/v1/workloads/%00", "/v1/nowhere", "/", "/v1//"):
            self.assertIn(c.api.call("GET", path).status, (200, 400, 404), path)
        self.assertEqual(c.api.call("PATCH", "/v1/workloads/a", {}).status, 405)
        # A body beyond every limit: refused without being read to its end.
        a = None
        try:
            a = c.api.fork().call("PUT", "/v1/workloads/huge", raw=b" " * (8 << 20))
        except Gone:
            pass
        self.assertTrue(a is None or a.status == 413, a)
        for raw in (b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00", b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
                    b"POST /v1/workloads HTTP/1.1\r\nContent-Length: -5\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
            host, port = c.address.split(":")
            s = socket.create_connection((host, int(port)), timeout=15)
            s.sendall(raw)
            s.shutdown(socket.SHUT_WR)
            try:
                while s.recv(65536):
                    pass
            except OSError:
                pass
            s.close()
        self.assertEqual(c.head(), head)
        self.assertEqual(c.api.get("/health").status, 200)


class Events(Case):
    # R: C2 C29 X4
    def test_filters_and_cursor(self):
        c = self.cluster(nodes=2)
        for name in ("a", "b", "c"):
            c.apply(name)
            c.wait_phase(name, "Running")
        everything = c.events()
        self.assertEqual(c.events(workload="b"), [e for e in everything if e.get("workload_id") == "b"])
        self.assertEqual(c.events(type="WorkloadStarted,NodeRegistered"), [e for e in everything if e["type"] in ("WorkloadStarted", "NodeRegistered")])
        self.assertEqual(c.events(node="node-1"), [e for e in everything if e.get("node_id") == "node-1"])
        page = c.api.get("/v1/events", limit=3).json
        self.assertEqual([e["seq"] for e in page["items"]], [1, 2, 3])
        page = c.api.get("/v1/events", since=page["next_since"], limit=3).json
        self.assertEqual([e["seq"] for e in page["items"]], [4, 5, 6])
        newest = c.api.get("/v1/events", newest_first=True, limit=2).json["items"]
        self.assertEqual([e["seq"] for e in newest], [everything[-1]["seq"], everything[-2]["seq"]])
        earlier = c.api.get("/v1/events", newest_first=True, before=newest[-1]["seq"], limit=2).json["items"]
        self.assertEqual(earlier[0]["seq"], newest[-1]["seq"] - 1)
        self.assertEqual(c.api.get("/v1/events", type="Nonsense").status, 400)

    # R: X4 C2
    def test_a_stream_is_resumed_over_a_restart_without_gap_or_duplicate(self):
        c = self.cluster(nodes=2)
        got, done = [], threading.Event()

        def follow():
            since = 0
            while not done.is_set():
                try:
                    for ident, name, event in EventStream(c.address, since=since, timeout=10):
                        got.append((int(ident), name, event["seq"], event["type"]))
                        since = int(ident)
                        if done.is_set():
                            return
                except Gone:
                    done.wait(0.02)

        t = threading.Thread(target=follow, daemon=True)
        t.start()
        for i in range(20):
            c.apply(f"w{i}", cpu=0.01)
            if i % 7 == 6:
                c.restart_server("kill" if i % 2 else "term")
        for i in range(20):
            c.wait_phase(f"w{i}", "Running")
        head = c.head()
        c.wait_for("the stream to catch up", lambda: got and got[-1][0] >= head)
        done.set()
        self.assertEqual([g[0] for g in got], list(range(1, got[-1][0] + 1)), "without gap or duplicate")
        self.assertTrue(all(ident == seq and name in (None, kind) for ident, name, seq, kind in got))

    # R: A3
    def test_a_stream_shows_only_what_is_durable(self):
        c = self.cluster(nodes=1)
        stream = EventStream(c.address, timeout=20)
        seen = iter(stream)
        c.apply("w")
        for ident, _, _ in seen:
            self.assertLessEqual(int(ident), c.info()["committed"])
            if int(ident) >= c.head():
                break
        stream.close()


class Explain(Case):
    # R: A8 C16
    def test_counts_add_up_and_the_nearest_miss_is_named(self):
        c = self.cluster()
        c.start_agent("small", cpu="1", memory="1G", labels={"zone": "a"})
        c.start_agent("large", cpu="8", memory="16G", labels={"zone": "a"})
        c.start_agent("other", cpu="16", memory="32G", labels={"zone": "b"})
        c.start_agent("vast", cpu="64", memory="2G", labels={"zone": "a"})
        c.wait_nodes_ready(4)
        c.apply("huge", cpu=10, memory_mb=4096, node_selector={"zone": "a"})
        c.wait_phase("huge", "Pending")
        e = c.api.get("/v1/workloads/huge/explain").json
        self.assertEqual(e["nodes"], 4)
        self.assertEqual(e.get("feasible", 0), 0)
        self.assertEqual(sum(r["nodes"] for r in e["reasons"]), 4, e["reasons"])
        self.assertEqual({r["reason"].replace("-", "_"): r["nodes"] for r in e["reasons"]},
                         {"label_mismatch": 1, "cpu_insufficient": 2, "memory_insufficient": 1})
        self.assertIn(e["nearest_miss"]["node_id"], ("small", "large", "other", "vast"))
        self.assertTrue(e["would_fit_if"])
        self.assertTrue(e["summary"])
        text = c.ok("explain", "huge").out
        self.assertIn(e["nearest_miss"]["node_id"], text)
        self.assertIn("cpu", text)

    # R: A8 C16 C15
    def test_a_placed_one_shows_the_scores_of_all_candidates(self):
        c = self.cluster(nodes=3)
        c.apply("w")
        w = c.wait_phase("w", "Running")
        e = c.api.get("/v1/workloads/w/explain").json
        self.assertEqual((e["nodes"], e["feasible"]), (3, 3))
        self.assertEqual(len(e["candidates"]), 3)
        self.assertEqual([x["node_id"] for x in e["candidates"] if x.get("chosen")], [w["assigned_node"]])
        self.assertEqual(e["placement"]["node_id"], w["assigned_node"])
        scores = [x.get("score", 0) for x in e["candidates"]]
        self.assertEqual(scores, sorted(scores), "best first")
        self.assertIn(w["assigned_node"], c.ok("explain", "w").out)

    # R: A8
    def test_without_any_node_it_says_so(self):
        c = self.cluster()
        c.apply("alone")
        e = c.api.get("/v1/workloads/alone/explain").json
        self.assertEqual(e.get("nodes", 0), 0)
        self.assertEqual(c.workload("alone")["status"]["reason"].replace("-", "_"), "no_nodes")
        self.assertEqual(c.api.get("/v1/workloads/nobody/explain").status, 404)


class Operations(Case):
    # R: C2
    def test_openapi_is_served_and_every_path_in_it_answers(self):
        c = self.cluster(nodes=1)
        c.apply("web")
        c.wait_phase("web", "Running")
        self.assertIn(c.api.call("PUT", "/v1/quotas/web", {"workloads": 10}).status, (200, 201))
        doc = c.api.get("/v1/openapi.json")
        self.assertEqual(doc.status, 200)
        doc = doc.json
        self.assertRegex(doc["openapi"], r"^3\.[01]\.")
        self.assertTrue(doc["info"]["title"] and doc["info"]["version"])
        text = json.dumps(doc)
        for ref in set(re.findall(r'"\$ref": "([^"]+)"', text)):
            node = doc
            for part in ref.lstrip("#/").split("/"):
                self.assertIn(part, node, ref)
                node = node[part]
        asked, prefix = 0, doc["servers"][0]["url"].rstrip("/")
        for path, operations in doc["paths"].items():
            for method, operation in operations.items():
                if method == "parameters":
                    continue
                names = re.findall(r"\{(\w+)", path)
                declared = {p.get("name") for p in operations.get("parameters", []) + operation.get("parameters", []) if p.get("in") == "path"}
                self.assertTrue(set(names) <= declared, f"{method} {path}: {names} {declared}")
                self.assertTrue(operation["responses"])
                real = prefix + re.sub(r"\{\w+(\.\.\.)?\}", "node-1" if "/nodes/" in path else "web", path)
                if method != "get":
                    # With a body that cannot be right, so that nothing happens; DELETE and the like of something that does not exist.
                    real = prefix + re.sub(r"\{\w+(\.\.\.)?\}", "nobody", path)
                if "stream" in path or "logs" in path or "follow" in path:
                    connection = http.client.HTTPConnection(*c.address.split(":"), timeout=20)
                    connection.request(method.upper(), real)
                    self.assertNotIn(connection.getresponse().status, (404, 405, 501), f"{method} {real}")
                    connection.close()
                    continue
                a = c.api.call(method.upper(), real, None if method in ("get", "delete") else {"nonsense": True})
                self.assertNotIn(a.status, (405, 500, 501), f"{method} {real}: {a}")
                if method == "get":
                    # This server has no CA, and says so.
                    self.assertEqual(a.status, 422 if path == "/trust" else 200, f"{method} {real}: {a}")
                elif (method, path) != ("delete", "/session"):  # who has no session may end it all the same
                    self.assertIn(a.status, (400, 404), f"{method} {real}: {a}")
                asked += 1
        self.assertGreater(asked, 10)
        for wanted in ("/workloads", "/workloads/{id}", "/nodes", "/events"):
            self.assertTrue(any(p.endswith(wanted) for p in doc["paths"]), wanted)

    # R: C36 C2
    def test_metrics_are_well_formed(self):
        c = self.cluster(nodes=1)
        c.apply("w")
        c.wait_phase("w", "Running")
        a = c.api.get("/metrics")
        self.assertEqual(a.status, 200)
        self.assertIn("text/plain", a.headers["Content-Type"])
        kinds, values = {}, {}
        for line in a.body.decode().splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split()
                self.assertNotIn(name, kinds, "one TYPE per family")
                kinds[name] = kind
            elif line and not line.startswith("#"):
                m = re.fullmatch(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{([a-zA-Z_]\w*="(?:[^"\\\n]|\\.)*",?)*\})? (-?[0-9.eE+-]+|\+Inf|NaN)', line)
                self.assertTrue(m, line)
                family = re.sub(r"_(bucket|sum|count)$", "", m[1])
                self.assertTrue(m[1] in kinds or kinds.get(family) in ("histogram", "summary"), f"{line}: no TYPE")
                self.assertNotIn(m[1] + (m[2] or ""), values, "no sample twice")
                values[m[1] + (m[2] or "")] = float(m[4])
        for name in ("berth_scheduling_attempts_total", "berth_scheduling_failures_total", "berth_reconciliation_actions_total", "berth_retry_total",
                     "berth_node_unhealthy_total"):
            self.assertIn(name, kinds)
        for name, kind in kinds.items():
            if kind == "counter":
                self.assertTrue(name.endswith("_total"), name)
        for name, kind in kinds.items():
            if kind == "histogram":
                buckets = [(k, v) for k, v in values.items() if k.startswith(name + "_bucket{")]
                if not buckets and name.startswith("persys_scheduler_"):
                    continue  # by method and code: nothing has called yet
                infinite = [v for k, v in buckets if 'le="+Inf"' in k]
                self.assertTrue(infinite, name)
                self.assertEqual(sum(infinite), sum(v for k, v in values.items() if k.startswith(name + "_count")), name)

    # R: C2
    def test_health_and_cluster(self):
        c = self.cluster(nodes=1)
        a = c.api.get("/health")
        self.assertEqual(a.status, 200)
        info = c.info()
        self.assertTrue(info["cluster_id"])
        self.assertEqual(info["nodes_ready"], 1)
        self.assertEqual(info["head"], info["committed"])
        c.restart_server("kill")
        self.assertEqual(c.info()["cluster_id"], info["cluster_id"])

    # R: C12
    def test_nodes_are_cordoned_drained_and_forgotten(self):
        c = self.cluster(nodes=2)
        c.ok("cordon", "node-1")
        for i in range(3):
            c.apply(f"w{i}")
            self.assertEqual(c.wait_phase(f"w{i}", "Running")["assigned_node"], "node-2")
        n = c.node("node-1")
        self.assertEqual((n["status"], n["wish"]), ("Ready", "cordoned"), "the wish and liveness are kept apart")
        c.ok("uncordon", "node-1")
        c.apply("after")
        self.assertEqual(c.wait_phase("after", "Running")["assigned_node"], "node-1")

    # R: A11
    def test_many_connections_at_once(self):
        c = self.cluster(nodes=1)
        connections = []
        for _ in range(300):
            k = http.client.HTTPConnection(*c.address.split(":"), timeout=30)
            k.request("GET", "/v1/cluster")
            connections.append(k)
        self.assertEqual({k.getresponse().status for k in connections}, {200})
        for k in connections:
            k.close()
        streams = [EventStream(c.address, timeout=20) for _ in range(100)]
        c.apply("w")
        for s in streams:
            self.assertTrue(next(iter(s)))
            s.close()
        self.assertEqual(urllib.parse.urlsplit("http://" + c.address).hostname, "127.0.0.1")
