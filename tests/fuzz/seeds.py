#!/usr/bin/python3
"""Makes the committed corpora: tests/fuzz/corpus/TARGET/*, a few dozen tiny inputs each, from messages as berth's parts really send them.

    tests/fuzz/seeds.py [--berth build/berth]

Run by hand when a message changes its shape; what a fuzzer found stays as it is (files named found-*). The store's records and events are read from the
database of a server that a real agent and a real user worked with; the rest is written out here, by field number, so that it also documents the wire.
"""
import argparse
import json
import os
import sqlite3
import struct
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CORPUS = os.path.join(ROOT, "tests", "fuzz", "corpus")
sys.path.insert(0, os.path.join(ROOT, "tests", "hostile"))
from wire import entry, fixed64, grpc, h2, headers, msg, request, token  # noqa: E402
NOW = 1767225600000


def workload(name, cpu=100, memory=16, **extra):
    fields = {1: name, 2: 4, 6: msg({1: ["sleep", "1000"], 2: [entry("PORT", "80")]}), 7: msg({1: cpu, 2: memory})}
    fields.update({int(k[1:]): v for k, v in extra.items()})
    return msg(dict(sorted(fields.items())))


def unit(name, seq, state, **extra):
    fields = {1: name, 2: "rev-1", 3: token(seq), 4: state, 9: NOW + 1000, 11: 4}
    fields.update({int(k[1:]): v for k, v in extra.items()})
    return msg(dict(sorted(fields.items())))


def hello(node, units=(), applied=None, cpu=4000, labels=()):
    fields = {1: node, 3: cpu, 4: 8192, 5: 100, 6: [4, 1], 7: [entry(k, v) for k, v in labels], 8: "0.1.0", 9: "01JH", 12: list(units), 13: 1}
    if applied:
        fields[11] = token(applied)
    return msg({1: msg(dict(sorted(fields.items())))})


def beat(n=0, h=0):
    return msg({2: msg({1: msg({1: 500, 2: 100, 3: 1}), 3: n}) + fixed64(2, h)})


def report(units, complete=False, applied=None):
    return msg({3: msg({1: complete, 2: list(units), **({3: token(applied)} if applied else {})})})


def frame(kind, data=b""):
    return bytes([kind]) + struct.pack("<H", len(data)) + data


# ---- the targets ----

def agent():
    A, B = workload("a"), workload("b", cpu=2000, x12=[entry("zone", "eu")])
    apply_a, apply_b = frame(5, msg({1: A})), frame(5, msg({1: B}))
    greet = frame(0, hello("n1", labels=[("zone", "eu")]))
    wait = lambda s: frame(3, struct.pack("<H", s))
    run = frame(0, report([unit("a", 4, 2)], applied=4))
    yield "hello", greet
    yield "hello-units", frame(0, hello("n1", [unit("a", 7, 2), unit("zz", 3, 4, x5=msg({1: 1}), x7=14, x8="exit 1")], applied=2))
    yield "beats", greet + frame(0, beat()) + wait(10) + frame(0, beat(1, 77)) + wait(60) + frame(0, beat())
    yield "apply-first", apply_a + greet + run
    yield "run", greet + apply_a + run + wait(10) + frame(0, beat(1))
    yield "exit", greet + apply_a + run + frame(0, report([unit("a", 4, 4, x5=msg({1: 1}), x7=14, x10=NOW + 5000)])) + wait(6)
    yield "job", greet + frame(5, msg({1: workload("a", x13=2, x14=30)})) + run + frame(0, report([unit("a", 4, 3, x5=msg({1: 0}), x7=19)])) + wait(40)
    yield "stop", greet + apply_a + run + frame(7, msg({1: "a", 2: 2})) + frame(0, report([unit("a", 4, 3)])) + frame(7, msg({1: "a", 2: 1}))
    yield "delete", greet + apply_a + run + frame(6, msg({1: "a"})) + frame(0, report([unit("a", 4, 6)]))
    yield "two-nodes", greet + frame(1, hello("n2")) + apply_a + apply_b + frame(0, report([unit("a", 5, 2), unit("b", 7, 2)]))
    yield "lost", greet + frame(1, hello("n2")) + apply_a + run + frame(4, b"\0") + wait(20) + frame(1, beat()) + wait(20) + frame(1, beat()) + wait(70)
    yield "returns", greet + apply_a + run + frame(4, b"\0") + wait(200) + frame(1, hello("n2")) + wait(5) + frame(0, hello("n1", [unit("a", 4, 2)]))
    yield "drain", greet + frame(1, hello("n2")) + apply_a + run + frame(9, msg({1: "n1", 2: 3})) + wait(5) + frame(0, report([unit("a", 4, 6)]))
    yield "cordon", greet + frame(9, msg({1: "n1", 2: 2})) + apply_a + wait(5) + frame(9, msg({1: "n1", 2: 1})) + wait(5)
    yield "forget", greet + frame(4, b"\0") + wait(60) + frame(10, msg({1: "n1"})) + greet
    yield "takeover", greet + frame(1, hello("n1")) + frame(0, beat())
    yield "update", greet + apply_a + run + frame(5, msg({1: workload("a", cpu=300)})) + frame(0, report([unit("a", 5, 2)]))
    yield "grow", greet + frame(1, hello("n2", cpu=64000)) + apply_a + run + frame(5, msg({1: workload("a", cpu=8000)}))
    yield "complete-report", greet + apply_a + apply_b + frame(0, report([], True, 6)) + wait(20) + frame(0, report([unit("q", 1, 2)], True))
    yield "retry", greet + apply_a + frame(0, report([unit("a", 4, 4, x7=15, x8="no such file")])) + frame(8, msg({1: "a"})) + wait(130)
    yield "many-fail", greet + apply_a + (frame(0, report([unit("a", 9, 4, x7=15)])) + wait(121)) * 6
    yield "log", greet + frame(0, msg({4: msg({1: 1, 3: b"hello\n"})})) + frame(0, msg({5: msg({1: 2, 3: b"x", 4: True})}))
    held = lambda name, seq, warrant=b"w" * 32: msg({1: name, 2: token(seq), 3: 1, 4: workload(name, x3="rev-1"), 5: warrant})
    stranger = frame(0, hello("n1", [unit("s", 1, 2)]))
    yield "claim", stranger + frame(0, msg({6: msg({2: [held("s", 1), held("a", 4, b"")]})}))
    yield "claim-old", stranger + frame(0, msg({6: msg({1: [workload("s", x18=token(1))]})}))
    yield "adopt", stranger + frame(15, msg({1: "n1"})) + frame(0, msg({6: msg({2: [held("s", 1)]})})) + wait(5)
    yield "list", apply_a + frame(11, msg({1: 10, 3: "a=b", 4: "pending", 6: "a"}))


def engine():
    plan = lambda seq, units, complete=True: frame(0, msg({2: msg({1: token(seq), 2: complete, 3: True, 4: list(units)})}))
    order = lambda name, seq, wish=1, rev="rev-1": msg({1: name, 2: token(seq), 3: wish, 4: workload(name, x3=rev)})
    welcome = frame(1) + frame(0, msg({1: msg({1: True, 3: "c1", 4: 1, 5: 10000, 6: "0.1.0"})}))
    ok = frame(4, b"\x01")
    wait = lambda cs: frame(3, struct.pack("<H", cs))
    record = lambda name, seq, wish=1, **x: frame(6, msg({1: order(name, seq, wish), 2: token(seq), 3: "rev-1", **{int(k[1:]): v for k, v in x.items()}}))
    yield "welcome", welcome + wait(1000)
    yield "refused", frame(1) + frame(0, msg({1: msg({2: "no", 3: "c1", 7: "hint"})}))
    yield "start", welcome + plan(5, [order("a", 4)]) + ok + wait(1000)
    yield "two", welcome + plan(5, [order("a", 4), order("b", 5)]) + ok + ok + frame(0, msg({8: b""}))
    yield "change", welcome + plan(5, [order("a", 4)]) + ok + plan(9, [order("a", 9, 1, "rev-2")], False) + ok + ok
    yield "stop", welcome + plan(5, [order("a", 4)]) + ok + plan(6, [order("a", 4, 2)], False) + ok
    yield "delete", welcome + plan(5, [order("a", 4)]) + ok + plan(7, [order("a", 4, 3)], False) + ok + ok
    yield "exit", welcome + plan(5, [order("a", 4)]) + ok + frame(5, b"\x09") + plan(8, [order("a", 8)], False) + ok
    yield "start-fails", welcome + plan(5, [order("a", 4)]) + frame(4, b"\x04")
    yield "older-plan", welcome + plan(9, [order("a", 9)]) + plan(4, [order("a", 4)]) + ok
    yield "older-token", welcome + plan(9, [order("a", 9)]) + ok + plan(10, [order("a", 3)], False)
    yield "parts", welcome + frame(0, msg({2: msg({1: token(5), 2: True, 4: order("a", 4)})})) + frame(0, msg({2: msg({1: token(5), 3: True, 4: order("b", 5)})}))
    yield "boot", record("a", 4, x5=unit("a", 4, 2)) + frame(7, msg({1: "n1", 2: "c1", 3: token(4)})) + welcome + plan(5, [order("a", 4)])
    yield "boot-removal", record("a", 4, 3) + record("b", 5, 2) + welcome + ok + ok
    yield "suspended", record("a", 4, x4=True) + welcome + plan(5, [order("a", 4)]) + ok
    yield "other-cluster", frame(7, msg({1: "n1", 2: "c2", 3: token(4)})) + welcome + plan(5, [order("a", 4)])
    yield "away", welcome + plan(5, [order("a", 4)]) + ok + frame(2) + wait(3000) + frame(5, b"\x02") + welcome
    warranted = lambda name, seq, warrant: msg({1: name, 2: token(seq), 3: 1, 4: workload(name, x3="rev-1"), 5: warrant})
    yield "warrant", welcome + plan(5, [warranted("a", 4, b"w" * 32)]) + ok + plan(6, [warranted("a", 4, b"x" * 32)], False) + frame(0, msg({9: msg({1: ["a", "b"], 2: True})}))
    yield "beat", welcome + frame(0, msg({3: msg({1: 200})})) + wait(30)
    yield "disk", welcome + plan(5, [order("a", 4)]) + frame(8, b"\x01") + frame(8, b"\x00") + wait(600)
    yield "logs", welcome + frame(0, msg({4: msg({1: 1, 2: "a", 3: True, 4: 10})})) + frame(0, msg({5: msg({1: 2, 2: "a", 3: ["ls"]})})) + frame(0, msg({7: msg({1: 1})}))


def engine_found():
    """What crashed, or would have: kept for ever."""
    yield "was-endless-heartbeat", frame(1) + frame(0, msg({1: msg({1: True, 3: "c1", 4: 1, 5: (1 << 63) - 1})})) + frame(0, msg({3: msg({1: (1 << 63) - 1})}))
    for i, name in enumerate(["\xe4", "../x", "a..b", "_a", ".", "a/b"]):
        yield f"was-name-{i}", frame(6, msg({1: msg({1: name, 2: token(4), 3: 1, 4: workload(name)}), 4: True})) + frame(1) + frame(0, msg({1: msg({1: True, 3: "c1", 4: 1})})) + \
            frame(0, msg({2: msg({1: token(5), 2: True, 3: True, 4: [msg({1: name, 2: token(4), 3: 1, 4: workload(name)})]})}))


def key():
    one, other = "0123456789abcdef" * 4, "fedcba9876543210" * 4
    yield "key", f"# a note\n\nkey {one}\n".encode()
    yield "rotated", f"key {one}\nprevious {other}\n".encode()
    yield "replaced", f"key {one}\nreplaces {other[:32]}".encode()
    yield "twice", f"key {one}\nkey {one}\n".encode()
    yield "short", b"key 01\nprevious\n"


def packed():
    for i, (name, data) in enumerate([
            ("apply", msg({1: workload("a", x8=msg({2: 3, 4: 1, 5: 10}), x11=[entry("k", "v")], x13=2), 2: 7})), ("agent", hello("n1", [unit("a", 7, 2)])),
            ("list", msg({1: 50, 2: "abc", 3: "k=v,!x", 4: "running", 5: "n1", 6: "w"})), ("events", msg({1: 5, 2: 10, 3: "NodeLost,NodeReady", 4: "a", 6: True})),
            ("wish", msg({1: "n1", 2: 3, 3: 9})), ("nodes", msg({1: 10, 3: "zone in (a,b)", 4: "ready"})), ("ref", msg({1: "a", 2: 8})),
            ("desired", msg({1: "a", 2: 2})), ("node", msg({1: "n1"})), ("logs", msg({1: "a", 2: True, 3: 10})),
            ("exec", msg({1: msg({1: "a", 2: ["sh", "-c", "ls"], 3: True, 4: 24, 5: 80})})),
            ("server", msg({2: msg({1: token(5), 2: True, 4: [msg({1: "a", 2: token(4), 3: 1, 4: workload("a")})]})})),
            ("event", msg({1: 7, 2: 14, 3: NOW, 4: "a", 5: "n1", 14: msg({1: "n1", 3: 5}), 17: token(7)})),
            ("error", msg({1: "invalid", 2: "no", 5: "spec.command", 7: 1000})), ("nodelist", msg({1: [msg({1: "n1", 2: 1, 8: [entry("a", "b")]})], 2: "c"})),
            ("explanation", msg({1: "a", 2: 1, 3: "s", 6: [msg({1: 7, 2: 3})], 9: [msg({1: "n1", 2: True})]})), ("token", msg({1: "ann", 2: 2, 3: 60, 4: "n1"})),
            ("token-ref", msg({1: "ann", 2: 3})), ("join", msg({1: "bjoin_x.abc", 2: "n1", 3: "-----BEGIN CERTIFICATE REQUEST-----"})), ("renew", msg({1: "n1", 2: "-----BEGIN"})),
            ("certificate", msg({1: "-----BEGIN CERTIFICATE-----", 2: "x", 3: NOW}))]):
        yield name, frame(i, data)
    yield "heartbeat", frame(1, beat(3, 99))
    yield "units", frame(1, report([unit("a", 4, 4, x5=msg({1: 1}), x6=msg({1: 9}), x8="killed")], True, 9))
    yield "chunk", frame(1, msg({4: msg({1: 1, 2: True, 3: b"\x00\xff", 4: True, 5: "e", 6: NOW})}))
    yield "vm", frame(0, msg({1: msg({1: "vm", 2: 1, 6: msg({5: "img:1", 6: [msg({1: 80, 2: 8080, 3: "tcp"})], 7: [msg({1: "/a", 2: "/b", 3: True})]})})}))


def store(berth):
    os.environ["BERTH_BINARY"] = berth
    sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
    import berthtest

    class Real(berthtest.Case):
        def runTest(self):
            c = self.cluster(nodes=2)
            c.leftovers_allowed = True
            c.apply("a")
            c.apply("b", command=["false"], retry={"max_attempts": 2, "base_seconds": 1})
            c.apply("job", command=["true"], restart="never")
            c.apply("big", cpu=900)
            c.wait_phase("a", "Running")
            c.wait_phase("job", "Completed")
            c.wait_phase("b", "RetryPending", "Failed")
            c.api.call("POST", "/v1/workloads/a/stop")
            c.wait_phase("a", "Stopped")
            c.api.call("POST", "/v1/workloads/a/start")
            c.wait_phase("a", "Running")
            node = c.workload("a")["assigned_node"]
            c.api.call("POST", f"/v1/nodes/{node}/drain")
            c.wait_for("a to move", lambda: c.workload("a")["assigned_node"] != node)
            c.api.call("DELETE", "/v1/workloads/job")
            c.wait_gone("job")
            c.agents[node].kill()
            c.server.stop()
            with sqlite3.connect(os.path.join(c.data, "berth.db")) as db:
                names = [r[0] for r in db.execute("select name from sqlite_master where type='table'")]
                Real.records = [(k, bytes(v)) for k, v in db.execute("select key, data from records")] if "records" in names else []
                Real.events = [bytes(v) for (v,) in db.execute("select data from events order by seq")]
    test = Real()
    result = test.run()
    if not result.wasSuccessful():
        sys.exit("\n".join(t for _, t in result.failures + result.errors))
    # Short names, so that a mutation often hits one that exists; equal lengths are not needed, since all is packed anew.
    rename = lambda b: b
    records = [frame(0, k.encode() + b"\0" + rename(v)) for k, v in Real.records]
    events = [frame(2, e) for e in Real.events]
    for i, r in enumerate(records):
        yield f"record-{i:02}", r
    yield "records", b"".join(records)
    yield "events", b"".join(events)[:0] + b"".join(events[:60])
    for i in range(0, len(events), max(1, len(events) // 20)):
        yield f"events-{i:02}", b"".join(events[:i + 1][-60:])
    yield "both", b"".join(records) + b"".join(events[-5:])
    # And by hand, with the short names that the mutator likes.
    node = lambda n, **x: frame(0, f"/nodes/{n}".encode() + b"\0" + msg({1: n, 2: 1, 6: msg({1: 4000, 4: 8192, 7: 100}), 8: [entry("zone", "eu")], 10: [4, 1], 12: 1, 13: NOW,
                                                                        **{int(k[1:]): v for k, v in x.items()}}))
    load = lambda w, phase, where, **x: frame(0, f"/workloads/{w}".encode() + b"\0" + msg(dict(sorted({
        1: w, 2: 4, 3: "rev-1", 4: 1, 5: where, 6: msg({1: ["sleep", "9"]}), 7: msg({1: 100, 2: 16}), 8: msg({2: 5, 4: 5, 5: 120}), 9: msg({1: 2, 2: NOW, 4: phase}),
        10: msg({1: NOW, 2: "Apply", 4: NOW, 5: NOW}), 13: 1, 17: msg({1: where, 2: 21}), 18: token(7), 19: 9, **{int(k[1:]): v for k, v in x.items()}}.items()))))
    tomb = lambda n, w: frame(0, f"/tombstones/{n}/{w}".encode() + b"\0" + msg({1: n, 2: w, 3: token(5), 4: msg({1: 100, 2: 16}), 5: 17, 6: NOW}))
    cluster = frame(0, b"/meta/cluster\0" + msg({1: "c1", 2: 1, 3: 1, 4: NOW}))
    base = cluster + node("n1") + node("n2")
    for name, phase in [("pending", 1), ("scheduled", 2), ("updating", 3), ("running", 4), ("stopped", 5), ("completed", 6), ("failed", 7), ("retrying", 8), ("deleting", 9)]:
        held = phase not in (1, 6, 7)
        extra = {"x4": 3} if phase == 9 else {"x4": 2} if phase == 5 else {}
        yield f"hand-{name}", base + load("a", phase, "n1" if held else "", **extra)
    held = lambda name, role, **x: frame(0, f"/tokens/{name}".encode() + b"\0" + msg(dict(sorted({1: name, 2: role, 3: name * 64, 4: NOW, 5: "a", **{int(k[1:]): v for k, v in x.items()}}.items()))))
    yield "hand-tokens", base + held("a", 3) + held("b", 5, x9="n1", x10=NOW, x11="n1", x12="c" * 64) + held("c", 1, x6=NOW + 60000) + held("d", 2, x7=NOW, x8="a")
    yield "hand-token-twice", base + held("a", 3) + held("b", 3, x3="a" * 64)
    yield "hand-tomb", base + load("a", 4, "n1") + tomb("n2", "a") + tomb("n2", "b")
    yield "hand-lost", cluster + node("n1") + node("n2", x2=2, x5=NOW - 90000) + load("a", 4, "n2") + load("b", 8, "n2")
    yield "hand-drain", cluster + node("n1") + node("n2", x12=3) + load("a", 4, "n2")
    event = lambda kind, **x: frame(2, msg(dict(sorted({1: 1, 2: kind, 3: NOW, 4: "a", 10: 1, **{int(k[1:]): v for k, v in x.items()}}.items()))))
    applied = event(10, x12=workload("a", x3="rev-1"))
    registered = event(2, x4="", x5="n1", x13=msg({1: "n1", 6: msg({1: 4000, 4: 8192, 7: 100}), 10: [4]}))
    placed = event(14, x5="n1", x14=msg({1: "n1"}), x17=token(3))
    first = event(1, x4="", x21=msg({1: "c1", 2: 1})) + registered + applied
    for name, kind in [("desired", 11), ("deleting", 12), ("deleted", 13), ("pending", 15), ("launched", 16), ("started", 17), ("stopped", 18), ("completed", 19),
                       ("failed", 20), ("retry", 21), ("triggered", 22), ("moved", 23), ("reset", 24)]:
        yield f"fold-{name}", first + placed + event(kind, x5="n1", x15=msg({1: 1, 3: NOW + 5000}), x16=msg({1: 4, 6: msg({1: 1})}), x17=token(9), x18=2, x22=True)
    big = (1 << 63) - 1
    for name, w in [("was-time", load("a", 4, "n1", x10=msg({1: NOW, 4: big, 5: big}))), ("was-past", load("a", 8, "n1", x8=msg({1: 1, 2: 5, 3: -5}))),
                    ("was-restarts", load("a", 4, "n1", x9=msg({1: 2, 2: NOW, 4: 4, 10: 0x7fffffff}))), ("was-reason", load("a", 4, "n1", x9=msg({1: 2, 2: NOW, 4: 4, 5: 300}))),
                    ("was-token", load("a", 2, "n1", x18=token(1 << 60))), ("was-actual", load("a", 4, "n1", x9=msg({1: 999, 2: NOW, 4: 4})))]:
        yield name, base + w
    yield "was-node-time", cluster + node("n1", x2=2, x5=-big) + load("a", 4, "n1")
    yield "was-tomb-reason", base + frame(0, b"/tombstones/n2/a\0" + msg({1: "n2", 2: "a", 3: token(5), 5: 17 + 256, 6: NOW}))
    again = placed + event(16, x17=token(4))
    yield "was-retry-without-time", first + again + event(21, x5="n1", x15=msg({1: 1}))
    yield "was-retry-beyond", first + again + event(21, x5="n1", x15=msg({1: 99, 3: NOW}))
    yield "was-started-after-end", first + again + event(19) + event(17, x5="n1") + event(21, x15=msg({1: 1, 3: NOW}))
    yield "was-scheduled-while-deleting", first + event(12) + placed + event(16, x17=token(4)) + event(18) + event(11, x18=1)
    yield "was-token-to-come", first + event(14, x5="n1", x14=msg({1: "n1"}), x17=token(99999))
    yield "was-overflow", first + b"".join(event(10, x4=f"w{i}", x12=workload(f"w{i}", memory=1 << 40)) + event(14, x4=f"w{i}", x5="n1", x14=msg({1: "n1"}), x17=token(1)) for i in range(12))
    yield "was-negative-attempts", first + event(10, x12=workload("a", x8=msg({2: -3}))) + placed + event(21, x15=msg({1: 1, 3: NOW}))
    yield "was-forgotten-deleting", first + placed + event(12) + event(6, x4="", x5="n1")
    yield "fold-removed", first + placed + event(23, x5="n1") + event(30, x5="n1")
    yield "fold-node", first + event(4, x4="", x5="n1") + event(3, x4="", x5="n1") + event(5, x4="", x5="n1", x19=3) + event(4, x4="", x5="n1") + event(6, x4="", x5="n1")


def json_seeds():
    w = {"id": "web", "type": "process", "desired_state": "Running", "spec": {"command": ["sh", "-c", "sleep 1"], "env": {"A": "1"}, "workdir": "/", "log_max_kb": 10},
         "resources": {"cpu": 0.25, "memory_mb": 64, "disk_gb": 1}, "labels": {"app": "x"}, "node_selector": {"zone": "eu"}, "restart": "on-failure", "ttl_seconds": 5,
         "retry": {"max_attempts": 3, "base_seconds": 1, "cap_seconds": 9}, "stop_grace_seconds": 2, "tenant": "t"}
    status = {"status": {"phase": "Running", "actual_state": "Running", "exit_code": 0, "signal": 9, "started_at": "2026-01-01T00:00:00.5Z", "reason": "placed"}}
    things = [(0, w), (0, {**w, **status, "metadata": {"created_at": "2026-01-01T00:00:00+02:00", "last_action": "Apply"}, "token": {"epoch": 1, "seq": 18446744073709551615}}),
              (0, {"id": "c", "type": "container", "spec": {"image": "nginx:1", "ports": [{"host_port": 80, "container_port": 8080, "protocol": "tcp"}],
                                                           "volumes": [{"host_path": "/a", "container_path": "/b", "read_only": True}]}}),
              (0, {"id": "k", "type": "compose", "spec": {"compose": "services:\n  a: {image: b}\n"}}), (1, {"workload": w, "if_match": 3, "create_only": True}),
              (2, {"id": "a", "if_match": 9}), (3, {"id": "a", "desired_state": "Stopped"}), (4, {"id": "n", "wish": "draining"}),
              (5, {"limit": 10, "cursor": "x", "selector": "a=b", "status": "running"}), (6, {"since": 1, "type": "NodeLost", "newest_first": True}),
              (7, {"start": {"id": "a", "command": ["ls"], "tty": True, "rows": 24, "cols": 80}}), (8, {"id": "n1", "status": "Ready", "resources": {"cpu_total": 4, "memory_total": 8192}}),
              (9, {"seq": 4, "type": "WorkloadScheduled", "timestamp": "2026-01-01T00:00:00Z", "placement": {"node_id": "n1", "score": -3}}),
              (10, {"code": "invalid", "message": "m\u0000\u00e4\ud83d\ude00", "retry_after_ms": 5}), (11, {"items": [{"id": "a"}], "next_cursor": "b"}),
              (12, {"workload_id": "a", "reasons": [{"reason": "cpu_insufficient", "nodes": 3}], "would_fit_if": ["x"]}),
              (13, {"node_id": "n", "cpu": 4, "units": [{"unit_id": "a", "state": "Running"}], "supported_workload_types": ["process"]}),
              (14, {"cluster_id": "c", "nodes": 4}), (18, {"name": "ann", "role": "operator", "ttl_seconds": 60}), (18, {"name": "j", "role": "join", "node_id": "n1"}),
              (19, {"secret": "bjoin_x", "node_id": "n1", "request": "-----BEGIN"}), (20, {"node_id": "n1", "request": ""})]
    for i, (kind, value) in enumerate(things):
        yield f"m{i:02}", bytes([65 + kind]) + json.dumps(value, separators=(",", ":")).encode()
        yield f"m{i:02}-lenient", bytes([97 + kind]) + json.dumps(value, indent=1).encode()
    for i, text in enumerate(['{"id":"a","id":"b"}', '{"resources":{"cpu":1e2}}', '{"resources":{"cpu":0.0005}}', '{"id":null}', '[[[[', '{"spec":{"command":[1]}}',
                              '{"id":"\\u00', '{"a":{"b":[true,false,null,-0.0e-1]}}', '{"ttl_seconds":99999999999}', '{"id":"x"} x', '"\\ud800"', '{"restart":"on_failure"}']):
        yield f"odd{i:02}", b"A" + text.encode()


def manifest():
    texts = ["id: web\nspec: {command: [sh, -c, \"sleep 1\"], env: {PORT: 8080}}\nresources: {cpu: 250m, memory_mb: 64}\n",
             "kind: Workload\nid: a\n---\nid: b\nspec:\n  command:\n    - x\n", "items:\n- id: a\n- id: b\n", "- id: a\n  labels: {a: yes, b: 1.0}\n", "{}", "", "---\n...\n---\n",
             "id: &x a\nlabels: {b: *x}\n", "id: !!str a\n", "id: a\nid: b\n", "id: |\n  a\n  b\n", "id: >-\n  folded\n  text\nspec: {compose: \"a\\n\\tb\"}\n", "? id\n: a\n",
             "id: 'it''s'\n", "\"id\": \"\\u00e4\\x41\"\n", "id: a\nrestart: on-failure\nttl_seconds: 10\nretry: {max_attempts: 3}\n", "id: a\nresources: {cpu: 0.5, disk_gb: 1}\n",
             "%YAML 1.1\n---\nid: a\n", "# comment\nid: a # more\n", "id: ~\n", "id: null\nlabels: {}\n", "a: [[[[{b: c}]]]]\n", "id: a\nspec: {volumes: [{host_path: /a, container_path: /b, read_only: true}]}\n",
             "id: a\ntype: container\nspec:\n  image: nginx\n  ports:\n  - {host_port: 80, container_port: 80}\n", "id: \xe4", "\tid: a\n", "id: a\r\nlabels:\r\n  b: c\r\n", '{"id": "a", "spec": {"command": ["x"]}}']
    for i, t in enumerate(texts):
        yield f"m{i:02}", t.encode("utf-8", "surrogateescape")


def text():
    samples = ["a=b,c!=d,e,!f", "zone in (a, b)", "x notin (y)", "k==v", ""], ["90", "90s", "5m", "1h30m", "250ms", "1d", "-1", "9999999999999h"], \
        ["512M", "2Gi", "1.5G", "1073741824", "9E", "-1", "0.0001k"], ["1.5", "250m", "2", "0.001", "1e3", "-0.5", "99999999999999999999"], \
        ["2026-01-01T00:00:00Z", "2026-12-31T23:59:59.999+14:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999-23:59", "2024-02-29 00:00:00z"], \
        ["limit=50", "status=running", "selector=a=b", "since=18446744073709551615", "follow=true", "cpu=250m", "ttl_seconds=-1", "restart=never", "tail_lines=10", "nope=1"], \
        ["web-1.x", "..", "a" * 130, "-1", "18446744073709551616", "+5"], ["worklods", "node", "", "evnets" * 30]
    for kind, group in enumerate(samples):
        for i, t in enumerate(group):
            yield f"k{kind}-{i}", bytes([kind]) + t.encode()


def head():
    texts = ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "GET /v1/workloads?limit=5&selector=a%3Db HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n",
             "PUT /v1/workloads/web HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 12\r\nIf-Match: \"3\"\r\n\r\n",
             "POST /v1/workloads HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n", "DELETE /v1/workloads/a%2Fb HTTP/1.0\r\n\r\n",
             "GET /v1/events/stream HTTP/1.1\r\nHost: a\r\nLast-Event-ID: 7\r\nConnection: close\r\n\r\n", "HEAD /../etc HTTP/1.1\r\nHost: a\r\n\r\n", "GET http://a/b HTTP/1.1\r\nHost: a\r\n\r\n",
             "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/2.0\r\n\r\n", "GET / HTTP/1.1\nHost: a\n\n", "GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
             "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
             "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", "GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a//b/./c/ HTTP/1.1\r\nHost: a\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
             "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET /" + "a" * 300 + " HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
             "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: h2c\r\n\r\n"]
    for i, t in enumerate(texts):
        yield f"h{i:02}", t.encode()


def wire():
    ask = h2(1, 4, 1, request())
    both = {
        "call": ask + h2(0, 1, 1, grpc(b"abc")), "two-messages": ask + h2(0, 0, 1, grpc(b"a") + grpc(b"b")) + h2(0, 1, 1), "cut-message": ask + h2(0, 1, 1, grpc(b"abc")[:6]),
        "compressed": ask + h2(0, 1, 1, grpc(b"abc", 1)), "huge": ask + h2(0, 1, 1, b"\0\xff\xff\xff\xffx"), "reset": ask + h2(3, 0, 1, struct.pack(">I", 8)),
        "rapid-reset": b"".join(h2(1, 4, s, request()) + h2(3, 0, s, struct.pack(">I", 8)) for s in (1, 3, 5, 7)), "unknown": h2(1, 5, 1, request("/no/Such")),
        "ping": h2(6, 0, 0, b"12345678"), "settings": h2(4, 0, 0, struct.pack(">HI", 4, 0) + struct.pack(">HI", 3, 0)), "settings-ack": h2(4, 1, 0),
        "window": ask + h2(8, 0, 1, struct.pack(">I", 0)), "window-over": h2(8, 0, 0, struct.pack(">I", 0x7fffffff)), "continuation": h2(1, 0, 1, request()[:20]) + h2(9, 4, 1, request()[20:]),
        "continuation-flood": h2(1, 0, 1, request()) + h2(9, 0, 1) * 8, "padded": h2(1, 0xc, 1, b"\x02" + request() + b"\0\0") + h2(0, 9, 1, b"\x01" + grpc(b"q") + b"\0"),
        "priority": h2(2, 0, 1, struct.pack(">IB", 0, 3)), "goaway": h2(7, 0, 0, struct.pack(">II", 0, 0)), "push": h2(5, 4, 1, struct.pack(">I", 2)), "unknown-frame": h2(0xfa, 0, 0, b"x"),
        "timeout": h2(1, 5, 1, request() + headers([("grpc-timeout", "1m")])), "bad-timeout": h2(1, 5, 1, request() + headers([("grpc-timeout", "99999999999H")])),
        "binary": h2(1, 5, 1, request() + headers([("x-bin", "AAEC")])), "get": h2(1, 5, 1, headers([(":method", "GET"), (":scheme", "http"), (":path", "/")])), "table": h2(1, 5, 1, b"\x82\x86\x84\xbe"),
        "big-frame": h2(0, 0, 1, b"x" * 300)}
    for name, data in both.items():
        yield f"h2-{name}", b"\x01\x00" + data
    yield "h2-no-greeting", b"\x03\x00" + ask
    yield "h2-cut", b"\x01\x05" + both["call"]
    for name, data in list(head())[:16]:
        yield f"http-{name}", b"\x00\x00" + data
    yield "http-body", b"\x00\x07POST /e/1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: a\r\n\r\n"
    yield "http-chunks", b"\x00\x00POST /e/1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: v\r\n\r\n"
    yield "http-bad-chunk", b"\x00\x00POST /e/1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc"
    yield "http-large", b"\x00\x00POST /e/1 HTTP/1.1\r\nHost: a\r\nContent-Length: 5000\r\n\r\nabc"


def peer():
    ok = headers([(":status", "200"), ("content-type", "application/grpc")])
    end = headers([("grpc-status", "0"), ("grpc-message", "a%20b%zz")])
    refused = headers([(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "8"), ("grpc-message", "busy"), ("berth-error-bin", "CgdpbnZhbGlk")])
    server = msg({1: msg({1: True, 3: "c1", 4: 1, 5: 10000})})
    streams = {
        "answer": h2(1, 4, 1, ok) + h2(0, 0, 1, grpc(server)) + h2(1, 5, 1, end), "unary": h2(1, 4, 3, ok) + h2(0, 0, 3, grpc(b"")) + h2(1, 5, 3, end), "refused": h2(1, 5, 1, refused),
        "no-status": h2(1, 5, 1, ok), "http-503": h2(1, 5, 1, headers([(":status", "503")])), "html": h2(1, 4, 1, headers([(":status", "200"), ("content-type", "text/html")])) + h2(0, 1, 1, b"<html>"),
        "bad-status": h2(1, 5, 1, headers([(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "99999999999")])), "reset": h2(3, 0, 1, struct.pack(">I", 7)),
        "reset-all": h2(3, 0, 1, struct.pack(">I", 11)) + h2(3, 0, 3, struct.pack(">I", 8)), "goaway": h2(7, 0, 0, struct.pack(">II", 1, 0)), "goaway-rage": h2(7, 0, 0, struct.pack(">II", 0, 11) + b"too_many_pings"),
        "compressed": h2(1, 4, 1, ok) + h2(0, 0, 1, grpc(server, 1)), "huge": h2(1, 4, 1, ok) + h2(0, 0, 1, b"\0\x7f\xff\xff\xffx"), "ping": h2(6, 0, 0, b"12345678") * 3,
        "settings": h2(4, 0, 0, struct.pack(">HI", 3, 0)) + h2(4, 0, 0, struct.pack(">HI", 4, 0x7fffffff)), "push": h2(5, 4, 1, struct.pack(">I", 2) + request()),
        "window": h2(8, 0, 0, struct.pack(">I", 0x7fffffff)) * 2, "two-answers": h2(1, 4, 3, ok) + h2(0, 0, 3, grpc(b"a") + grpc(b"b")) + h2(1, 5, 3, end), "trailer-first": h2(1, 5, 3, refused) + h2(0, 1, 3, b""),
        "1xx": h2(1, 4, 1, headers([(":status", "103")])) + h2(1, 5, 1, refused), "http1": b"HTTP/1.1 400 Bad Request\r\n\r\n", "continuation": h2(1, 0, 1, ok[:9]) + h2(9, 4, 1, ok[9:])}
    streams["was-content-type"] = h2(1, 4, 3, headers([(":status", "200")]) + b"\x10\x0ccontent-type\x04a\xe1\xff/")
    for name, data in streams.items():
        yield name, b"\x00\x00" + data
    yield "cut", b"\x00\x03" + streams["answer"]
    yield "no-greeting", b"\x01\x00" + streams["answer"]


def join():
    """Made by openssl, with names that nobody may get."""
    import subprocess
    import tempfile
    with tempfile.TemporaryDirectory() as d:
        run = lambda *argv: subprocess.run(["openssl", *argv], check=True, capture_output=True, cwd=d).stdout
        for name, kind in [("ec", ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"]), ("rsa", ["rsa:2048"]), ("weak", ["rsa:1024"]), ("ed", ["ed25519"])]:
            run("req", "-new", "-newkey", *kind, "-nodes", "-keyout", "k.pem", "-subj", "/CN=admin/O=x", "-addext", "subjectAltName=URI:spiffe://berth/user/root,DNS:a,IP:10.0.0.1", "-out", "r.pem")
            with open(os.path.join(d, "r.pem"), "rb") as f:
                yield f"request-{name}", b"\0" + f.read()
            yield f"request-{name}-der", b"\1" + run("req", "-in", "r.pem", "-outform", "DER")
            run("req", "-x509", "-key", "k.pem", "-subj", "/CN=ca", "-days", "9", "-out", "c.pem", *(["-sha256"] if name != "ed" else []))
            with open(os.path.join(d, "c.pem"), "rb") as f:
                pem = f.read()
            yield f"cert-{name}", b"\2" + pem
            yield f"cert-{name}-der", b"\3" + run("x509", "-in", "c.pem", "-outform", "DER")
        yield "bundle", b"\2" + pem * 3 + b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"
    san = b"\x30\x1a\x86\x18spiffe://berth/user/root"
    for i, extension in enumerate([san, b"\x30\x03\x01\x01\xff", b"\x03\x02\x01\x06", b"\x30\x0a\x06\x08\x2b\x06\x01\x05\x05\x07\x03\x01"]):
        yield f"compose-{i}", b"\4" + bytes([4, i]) + b"root" + extension
        yield f"compose-{i}-critical", b"\4" + bytes([9, i | 0x80]) + b"spiffe://" + extension
    yield "compose-broken", b"\4" + bytes([1, 0]) + b"x" + b"\x30\x84\xff\xff\xff\xff"
    yield "no-request", b"\0hello"
    yield "cut", b"\0-----BEGIN CERTIFICATE REQUEST-----\nMIIB"


def backup():
    head = frame(0, msg({1: 1, 2: "0.1.0", 3: NOW, 5: 0, 6: "sqlite"}))
    end = frame(4, msg({4: "c1", 5: 1}))
    event = lambda kind, **x: frame(1, msg(dict(sorted({1: 1, 2: kind, 3: NOW, 10: 1, **{int(k[1:]): v for k, v in x.items()}}.items()))))
    record = lambda kind, key, m: frame(kind, key.encode() + b"\0" + m)
    cluster = lambda kind: record(kind, "/meta/cluster", msg({1: "c1", 2: 1, 3: 1, 4: NOW}))
    node = lambda kind: record(kind, "/nodes/n1", msg({1: "n1", 2: 1, 6: msg({1: 4000, 4: 8192, 7: 100}), 10: [4], 12: 1, 13: NOW}))
    tok = lambda kind: record(kind, "/tokens/a", msg({1: "a", 2: 3, 3: "a" * 64, 4: NOW}))
    events = event(1, x21=msg({1: "c1", 2: 1})) + event(2, x5="n1", x13=msg({1: "n1", 6: msg({1: 4000, 4: 8192, 7: 100}), 10: [4]}))
    yield "empty", head + end
    yield "events", head + events + cluster(3) + node(3) + end
    yield "whole", frame(0, msg({1: 1, 2: "0.1.0", 3: NOW, 5: 1, 6: "etcd"})) + events + cluster(2) + cluster(3) + node(3) + tok(3) + end
    execs = event(74, x4="w", x5="n1", x51="id") * 2
    yield "sparse", frame(0, msg({1: 1, 2: "0.1.0", 3: NOW, 5: 5, 6: "etcd", 7: 5})) + execs + events + cluster(2) + node(2) + cluster(3) + node(3) + end
    yield "unordered", head + events + node(3) + cluster(3) + end
    yield "twice", head + events + cluster(3) + cluster(3) + end
    yield "was-no-cluster", head + events + end
    yield "no-end", head + events + cluster(3)
    yield "no-head", events + cluster(3) + end
    yield "wrong-counts", head + events + cluster(3) + frame(5, msg({1: 7, 3: 9, 4: "c1", 5: 1}))
    yield "newer", frame(0, msg({1: 99})) + end
    yield "behind-the-end", head + events + cluster(3) + end + frame(6, b"x")
    yield "length", head + frame(6, b"E\xff\xff\xff\xff") + end
    yield "no-key", head + frame(3, b"/nodes/n1") + end
    yield "epoch", head + events + record(3, "/meta/cluster", msg({1: "c1", 2: (1 << 63) - 1, 3: 1, 4: NOW})) + frame(4, msg({4: "c1", 5: (1 << 63) - 1}))
    yield "last-epoch", head + events + record(3, "/meta/cluster", msg({1: "c1", 2: (1 << 64) - 1, 3: 1, 4: NOW})) + frame(4, msg({4: "c1", 5: (1 << 64) - 1}))


def door():
    for i in range(10):
        yield f"bearer-{i}", bytes([1, i]) + b"Bearer berth_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    for i, t in enumerate([b"", b"Bearer", b"bearer ", b"Bearer  x", b"Basic YTpi", b"Bearer " + b"a" * 300, b"Bearer a.b", b"Bearer \xff\xfe", b"Bearer a; b", b"Bearer a\r\nAuthorization: Bearer b"]):
        yield f"odd-{i}", bytes([1, 0]) + t
    for i, t in enumerate([b"berth_token=x", b"a=b; berth_token=x; c=d", b"xberth_token=y; berth_token=z", b"berth_token=", b"berth_token=%22", b"berth_token=" + b"q" * 300, b";;;berth_token"]):
        yield f"cookie-{i}", bytes([2, i]) + t
    yield "as-a-server", bytes([3, 2]) + b"x"
    yield "join", bytes([4, 0]) + json.dumps({"secret": "bjoin_x.abc", "node_id": "n1", "request": "-----BEGIN CERTIFICATE REQUEST-----"}).encode()
    yield "join-deep", bytes([4, 0]) + b'{"secret":' + b"[" * 50
    for name, data in head():
        yield f"raw-{name}", b"\0\0" + data
    yield "raw-twice", b"\0\0" + b"GET /v1/tokens HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\nAuthorization: Bearer y\r\n\r\n" * 2


def streams():
    fields = [b"", b"", b"", b"", b""]
    yield "all", b"\n".join(fields)
    for i, (name, text) in enumerate([("type", b"WorkloadApplied,nodelost"), ("workload", b"planted"), ("node", b"n1"), ("rule", b"hot"), ("since", b"1")]):
        yield name, b"\n".join([*fields[:i], text, *fields[i + 1:]])
        yield f"{name}-odd", b"\n".join([*fields[:i], text + b"\xc3\xa9%00&\x01" + b"a" * 300, *fields[i + 1:]])
    yield "every-field", b"WorkloadApplied\nplanted\nn1\nhot\n18446744073709551615"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--berth", default=os.path.join(ROOT, "build", "berth"))
    parser.add_argument("target", nargs="*")
    args = parser.parse_args()
    targets = {"agent": agent, "engine": lambda: [*engine(), *engine_found()], "packed": packed, "json": json_seeds, "manifest": manifest, "text": text, "key": key, "head": head, "wire": wire, "peer": peer, "join": join, "backup": backup, "door": door, "streams": streams,
               "store": lambda: store(os.path.abspath(args.berth))}
    for target in args.target or targets:
        folder = os.path.join(CORPUS, target)
        seeds = dict(targets[target]())
        os.makedirs(folder, exist_ok=True)
        for name in os.listdir(folder):
            if not name.startswith("found-"):
                os.unlink(os.path.join(folder, name))
        for name, data in seeds.items():
            with open(os.path.join(folder, name), "wb") as f:
                f.write(data)
        print(f"{target}: {len(seeds)} seeds, {sum(map(len, seeds.values()))} bytes")


if __name__ == "__main__":
    main()
