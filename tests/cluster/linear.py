#!/usr/bin/python3
"""linear.py: is there one order of all operations, each between its call and its answer, in which one register per key would have answered just so?

An operation is an Op. Its outcome is one of
    ok          it was done (a read: `value` is what it gave, None for "not there")
    conflict    refused: the key holds another value than the expected one
    exists      refused: the key holds a value
    absent      refused, or nothing to do: the key holds nothing
    unknown     no answer, or one that leaves it open: it happens at some moment after the call, or never
What certainly was not done (never sent, turned away at the door) is left out of a history.

Values are unique: no two writes of a history write the same. That keeps the search small, and makes every read say which write it saw.

The search is that of Wing and Gong with a memory of configurations (which operations are in, what the key holds): take an operation that no unfinished one must come
before, apply it, go on; go back when stuck. Operations of unknown outcome are tried last, and those that nobody could tell apart (deletions, writes
whose value nobody ever saw) are only counted, so that many of them do not multiply the configurations.

    python3 linear.py FILE...     checks histories (JSON, one operation per line) and says why not
"""
import json
import sys
from dataclasses import asdict, dataclass
from typing import Optional

INF = float("inf")
MAX_CONFIGURATIONS = 3_000_000  # of one key; a verdict that needs more is "too hard", which counts as a failure
UNSEEN = "(a value that nobody saw)"


@dataclass
class Op:
    key: str
    kind: str  # read, write, cas (expected -> value), create (only if absent), delete, delete_if (only if it holds expected)
    start: float
    end: float = INF  # of an unknown outcome: INF
    outcome: str = "unknown"
    value: Optional[str] = None
    expected: Optional[str] = None
    version: int = 0  # of what was written or read, if the answer said so
    client: str = ""
    where: str = ""  # which replica was asked

    def __str__(self):
        what = {"read": f"read -> {self.value}", "write": f"write {self.value}", "cas": f"{self.expected} -> {self.value}", "create": f"create {self.value}",
                "delete": "delete", "delete_if": f"delete if {self.expected}"}[self.kind]
        end = "?" if self.end == INF else f"{self.end:.3f}"
        return f"[{self.start:.3f} {end}] {self.client:>5} {self.where:>8}  {what}: {self.outcome}" + (f" (version {self.version})" if self.version else "")


def step(op, state):
    """(whether the key may hold `state` when op takes effect, what it holds afterwards)"""
    if op.kind == "read":
        return state == op.value, state
    if op.outcome == "conflict":
        return state is not None and state != op.expected, state
    if op.outcome == "exists":
        return state is not None, state
    if op.outcome == "absent":
        return state is None, state
    if op.kind == "write":
        return True, op.value
    if op.kind == "create":
        return state is None, op.value
    if op.kind == "cas":
        return state == op.expected, op.value
    if op.kind == "delete":
        return True, None  # also of what is being deleted already
    if op.kind == "delete_if":
        return state == op.expected, None
    raise ValueError(op.kind)


class Verdict:
    def __init__(self, ok, why="", configurations=0):
        self.ok, self.why, self.configurations = ok, why, configurations

    def __bool__(self):
        return self.ok

    def __repr__(self):
        return "linearizable" if self.ok else self.why


class _Search:
    """One key. A configuration is (low, mask, counts, used, state): known operations below `low` and those of `mask` above it are in."""

    def __init__(self, ops, limit):
        self.known = sorted((o for o in ops if o.outcome != "unknown"), key=lambda o: (o.start, o.end))
        open_ended = sorted((o for o in ops if o.outcome == "unknown" and o.kind != "read"), key=lambda o: o.start)
        seen = {o.value for o in self.known if o.kind == "read"} | {o.expected for o in ops if o.expected is not None}
        self.deletes = [o for o in open_ended if o.kind == "delete"]
        self.blind = [o for o in open_ended if o.kind == "write" and o.value not in seen]  # whoever takes effect: a value that nobody saw
        self.others = [o for o in open_ended if o.kind != "delete" and not (o.kind == "write" and o.value not in seen)]
        self.limit, self.visited, self.deepest, self.stuck = limit, set(), -1, None

    def run(self):
        n = len(self.known)
        stack = [(0, 0, 0, 0, 0, None)]  # low, mask, deletes used, blind writes used, mask of the others, state
        while stack:
            config = stack.pop()
            if config in self.visited:
                continue
            self.visited.add(config)
            if len(self.visited) > self.limit:
                return Verdict(False, f"too hard: more than {self.limit} configurations", len(self.visited))
            if config[0] == n:
                return Verdict(True, configurations=len(self.visited))
            depth = config[0] + bin(config[1]).count("1")
            if depth > self.deepest:
                self.deepest, self.stuck = depth, config
            stack += self.successors(config)  # the last one is tried first
        return Verdict(False, self.explain(), len(self.visited))

    def candidates(self, low, mask):
        """Indexes of known operations that may come next, and the latest moment at which the next one must have begun."""
        out, soonest_end, i = [], INF, low
        while i < len(self.known) and self.known[i].start <= soonest_end:
            if not mask >> (i - low) & 1:
                out.append(i)
                soonest_end = min(soonest_end, self.known[i].end)
            i += 1
        return [i for i in out if self.known[i].start <= soonest_end], soonest_end

    def successors(self, config):
        low, mask, deletes, blind, others, state = config
        candidates, by = self.candidates(low, mask)
        out = []
        if deletes < len(self.deletes) and self.deletes[deletes].start <= by and state is not None:
            out.append((low, mask, deletes + 1, blind, others, None))
        if blind < len(self.blind) and self.blind[blind].start <= by and state != UNSEEN:
            out.append((low, mask, deletes, blind + 1, others, UNSEEN))
        for j, op in enumerate(self.others):
            if op.start > by:
                break
            if not others >> j & 1:
                fits, after = step(op, state)
                if fits:
                    out.append((low, mask, deletes, blind, others | 1 << j, after))
        for i in reversed(candidates):
            fits, after = step(self.known[i], state)
            if fits:
                new_low, new_mask = low, mask | 1 << (i - low)
                while new_mask & 1:
                    new_mask >>= 1
                    new_low += 1
                out.append((new_low, new_mask, deletes, blind, others, after))
        return out

    def explain(self):
        low, mask, deletes, blind, others, state = self.stuck
        candidates, _ = self.candidates(low, mask)
        lines = [f"no order explains the answers: {self.deepest} of {len(self.known)} operations can be put in order, then the key holds {state or 'nothing'} and none of these fits:"]
        lines += [f"    {self.known[i]}" for i in candidates]
        before = [self.known[i] for i in range(max(0, low - 12), low)]
        lines += ["  before them:"] + [f"    {o}" for o in before]
        left = [o for j, o in enumerate(self.others) if not others >> j & 1] + self.deletes[deletes:] + self.blind[blind:]
        lines += ["  of unknown outcome, not used:"] + [f"    {o}" for o in left[:12]]
        return "\n".join(lines)


def check_versions(ops):
    """What the versions (ETags) alone must tell: one version per value, and never an older one after a newer one was told."""
    version_of = {}
    for o in ops:
        if o.outcome == "ok" and o.version and o.value is not None:
            if version_of.setdefault(o.value, o.version) != o.version:
                return f"{o.value} was told with version {version_of[o.value]} and with {o.version}: {o}"
    told = [o for o in ops if o.outcome == "ok" and o.version and o.value is not None]
    newest, by_end, i = None, sorted(told, key=lambda o: o.end), 0
    for o in sorted(told, key=lambda o: o.start):
        while i < len(by_end) and by_end[i].end < o.start:
            if newest is None or by_end[i].version > newest.version:
                newest = by_end[i]
            i += 1
        if newest and o.version < newest.version:
            return f"an older version after a newer one:\n    {newest}\n    {o}"
    return None


def check(ops, limit=MAX_CONFIGURATIONS):
    """All keys. The first one that fails is told."""
    keys, total = {}, 0
    for o in ops:
        keys.setdefault(o.key, []).append(o)
    for key in sorted(keys):
        why = check_versions(keys[key])
        if why:
            return Verdict(False, f"{key}: {why}", total)
        verdict = _Search(keys[key], limit).run()
        total += verdict.configurations
        if not verdict:
            return Verdict(False, f"{key}: {verdict.why}", total)
    return Verdict(True, configurations=total)


def save(ops, path):
    with open(path, "w") as f:
        for o in ops:
            row = asdict(o)
            row["end"] = None if o.end == INF else o.end
            f.write(json.dumps(row) + "\n")


def load(path):
    with open(path) as f:
        rows = [json.loads(line) for line in f if line.strip()]
    return [Op(**{**r, "end": INF if r["end"] is None else r["end"]}) for r in rows]


def main():
    bad = 0
    for path in sys.argv[1:]:
        ops = load(path)
        verdict = check(ops)
        bad += not verdict
        print(f"{path}: {len(ops)} operations: {verdict!r}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
