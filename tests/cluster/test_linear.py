"""The checker itself: histories that are known to be right, and known to be wrong."""
import itertools
import os
import random
import sys
import tempfile
import time
import unittest

import linear
from linear import INF, Op, check

FULL = os.environ.get("BERTH_TEST_FULL") == "1"


def write(value, start, end, outcome="ok", **kw):
    return Op("k", "write", start, end, outcome, value, **kw)


def read(value, start, end, **kw):
    return Op("k", "read", start, end, "ok", value, **kw)


def cas(expected, value, start, end, outcome="ok", **kw):
    return Op("k", "cas", start, end, outcome, value, expected, **kw)


class Known(unittest.TestCase):
    def good(self, *ops):
        self.assertTrue(check(list(ops)), check(list(ops)))

    def bad(self, *ops):
        self.assertFalse(check(list(ops)))

    # R: C33
    def test_one_after_the_other(self):
        self.good(write("a", 0, 1), read("a", 2, 3), cas("a", "b", 4, 5), read("b", 6, 7))

    def test_at_the_same_time_either_order_will_do(self):
        self.good(write("a", 0, 10), write("b", 0, 10), read("a", 11, 12), read("a", 13, 14))
        self.good(write("a", 0, 10), write("b", 0, 10), read("b", 11, 12))
        self.good(write("a", 0, 10), read(None, 1, 2), read("a", 3, 4))

    def test_a_read_may_not_go_back(self):
        self.bad(write("a", 0, 10), read("a", 1, 2), read(None, 3, 4))
        self.bad(write("a", 0, 1), write("b", 2, 3), read("a", 4, 5))
        self.bad(write("a", 0, 10), write("b", 0, 10), read("a", 11, 12), read("b", 13, 14))

    def test_an_acknowledged_write_that_is_lost(self):
        self.bad(write("a", 0, 1), cas("a", "b", 2, 3), read("a", 4, 5))
        self.bad(write("a", 0, 1), read(None, 2, 3))

    def test_of_two_that_saw_the_same_one_wins(self):
        self.good(write("a", 0, 1), cas("a", "b", 2, 5), cas("a", "c", 2, 5, "conflict"), read("b", 6, 7))
        self.bad(write("a", 0, 1), cas("a", "b", 2, 5), cas("a", "c", 2, 5))

    def test_a_refusal_needs_a_reason(self):
        self.bad(write("a", 0, 1), cas("a", "b", 2, 3, "conflict"))
        self.bad(write("a", 0, 1), Op("k", "cas", 2, 3, "absent", "b", "a"))
        self.bad(Op("k", "create", 2, 3, "exists", "b"))
        self.good(write("a", 0, 1), Op("k", "create", 2, 3, "exists", "b"), Op("k", "delete", 4, 5, "ok"), Op("k", "create", 6, 7, "ok", "c"), read("c", 8, 9))

    def test_an_unknown_one_may_happen_once_at_any_time_or_never(self):
        self.good(write("a", 0, 1), write("b", 2, INF, "unknown"), read("a", 3, 4), read("a", 50, 51))
        self.good(write("a", 0, 1), write("b", 2, INF, "unknown"), read("a", 3, 4), read("b", 50, 51))
        self.bad(write("a", 0, 1), write("b", 2, INF, "unknown"), read("b", 3, 4), read("a", 50, 51))
        self.bad(write("a", 0, 1), read("b", 1.1, 1.2), write("b", 2, INF, "unknown"))  # not before it was asked for
        self.bad(write("a", 0, 1), write("b", 2, INF, "unknown"), read("b", 3, 4), write("c", 5, 6), read("b", 7, 8))  # and not twice
        self.good(write("a", 0, 1), write("b", 2, INF, "unknown"), cas("a", "c", 3, 4, "conflict"))  # nobody saw b, but it explains the conflict
        self.good(write("a", 0, 1), Op("k", "delete", 2), read(None, 3, 4), write("c", 5, 6), read("c", 7, 8))
        self.bad(write("a", 0, 1), Op("k", "delete", 2), read(None, 3, 4), write("c", 5, 6), read(None, 7, 8))
        self.good(write("a", 0, 1), Op("k", "delete", 2), Op("k", "delete", 2), read(None, 3, 4), write("c", 5, 6), read(None, 7, 8))
        self.good(write("a", 0, 1), cas("a", "b", 2, INF, "unknown"), cas("b", "c", 3, INF, "unknown"), read("c", 4, 5))
        self.bad(write("a", 0, 1), cas("x", "b", 2, INF, "unknown"), read("b", 4, 5))

    def test_versions(self):
        self.bad(write("a", 0, 1, version=5), read("a", 2, 3, version=6))
        self.bad(write("a", 0, 1, version=9), write("b", 2, 3, version=7))
        self.good(write("a", 0, 1, version=5), write("b", 2, 3, version=7), read("b", 4, 5, version=7))

    def test_other_keys_do_not_matter(self):
        self.good(write("a", 0, 1), Op("other", "read", 2, 3, "ok", None), read("a", 2, 3))

    def test_a_history_is_kept_in_a_file(self):
        ops = [write("a", 0, 1, version=3), cas("a", "b", 2, INF, "unknown")]
        with tempfile.NamedTemporaryFile() as f:
            linear.save(ops, f.name)
            self.assertEqual(linear.load(f.name), ops)


def invented(rng, clients, count, keys=1, unknown=0.05):
    """A history of a real register: every operation takes effect at some moment between its call and its answer."""
    ops, states, serial = [], {}, itertools.count()
    free = [(0.0, c) for c in range(clients)]
    pending = []
    for _ in range(count):
        free.sort()
        t, client = free.pop(0)
        start = t + rng.random()
        pending.append((start + rng.random() * 3, start, client))
        free.append((pending[-1][0] + rng.random() * 0.2, client))
    for moment, start, client in sorted(pending):
        key = f"k{rng.randrange(keys)}"
        state = states.get(key)
        kind = rng.choice(["read", "read", "write", "cas", "cas", "create", "delete", "delete_if"])
        op = Op(key, kind, start, moment + rng.random() * 0.2, "ok", client=str(client))
        if kind != "read" and not kind.startswith("delete"):
            op.value = f"v{next(serial)}"
        if kind in ("cas", "delete_if"):
            op.expected = state if state is not None and rng.random() < 0.7 else "v0"
        if kind == "read":
            op.value = state
        elif kind == "create" and state is not None:
            op.outcome = "exists"
        elif kind in ("cas", "delete_if") and state is None:
            op.outcome = "absent"
        elif kind in ("cas", "delete_if") and state != op.expected:
            op.outcome = "conflict"
        done = op.outcome == "ok"
        if kind != "read" and rng.random() < unknown:
            op.outcome, op.end = "unknown", INF
            done &= rng.random() < 0.5
        if done:
            states[key] = linear.step(op, state)[1]
        ops.append(op)
    return ops


def by_force(ops):
    """All orders; for very small histories."""
    known = [o for o in ops if o.outcome != "unknown"]
    maybe = [o for o in ops if o.outcome == "unknown" and o.kind != "read"]
    for n in range(len(maybe) + 1):
        for chosen in itertools.combinations(maybe, n):
            for order in itertools.permutations(known + list(chosen)):
                if any(order[j].end < order[i].start for i in range(len(order)) for j in range(i + 1, len(order))):
                    continue
                state = None
                for o in order:
                    fits, state = linear.step(o, state)
                    if not fits:
                        break
                else:
                    return True
    return False


class Invented(unittest.TestCase):
    def setUp(self):
        seed = int(os.environ.get("BERTH_TEST_SEED", random.randrange(1 << 32)))
        print(f"BERTH_TEST_SEED={seed}")
        self.rng = random.Random(seed)

    def test_what_a_register_did_is_accepted(self):
        for _ in range(30):
            ops = invented(self.rng, clients=8, count=300, keys=2)
            self.assertTrue(check(ops), check(ops))

    def test_the_verdict_is_that_of_trying_all_orders(self):
        right = wrong = 0
        for _ in range(1500 if FULL else 300):
            ops = invented(self.rng, clients=3, count=6, unknown=0.25)
            for o in ops:  # lies: a read of another value, a refusal that was none
                if o.kind == "read" and self.rng.random() < 0.3:
                    o.value = self.rng.choice([None, *(p.value for p in ops if p.value)])
                elif o.outcome == "conflict" and self.rng.random() < 0.3:
                    o.outcome = "ok"
            expected = by_force(ops)
            self.assertEqual(bool(check(ops)), expected, "\n".join(map(str, ops)))
            right, wrong = right + expected, wrong + (not expected)
        self.assertGreater(min(right, wrong), 10)

    def test_one_lie_among_many_operations_is_found(self):
        found = tried = 0
        for _ in range(40 if FULL else 15):
            ops = invented(self.rng, clients=6, count=300, unknown=0.02)
            reads = [i for i, o in enumerate(ops) if o.kind == "read" and i > 50]
            o = ops[self.rng.choice(reads)]
            long_ago = [p.value for p in ops if p.kind == "write" and p.outcome == "ok" and p.end < o.start - 20 and p.value != o.value]
            if not long_ago:
                continue
            o.value = long_ago[0]
            tried += 1
            found += not check(ops)
        self.assertEqual(found, tried)
        self.assertGreater(tried, 7)

    def test_it_is_quick_enough(self):
        ops = invented(self.rng, clients=12, count=20000, keys=20, unknown=0.05)
        began = time.monotonic()
        verdict = check(ops)
        self.assertTrue(verdict, verdict)
        unknown = sum(o.outcome == "unknown" for o in ops)
        print(f"## {len(ops)} operations on 20 keys, {unknown} of unknown outcome: {time.monotonic() - began:.1f} s, {verdict.configurations} configurations")


if __name__ == "__main__":
    sys.exit(unittest.main())
