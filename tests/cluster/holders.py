"""holders.py: reads what agents wrote down about every start and stop of a unit, with their clocks, and says whether one had two holders.

Rules:
    (1) No token is started twice, on whatever node.
    (2) No unit has two copies on one node at a time.
    (3) No exclusive unit has two copies at a time, on whatever nodes. (Others may, for a while, after their node was given up.)

    python3 holders.py LOG...     checks the logs of agents, all units as if they were exclusive
"""
import datetime
import re
import sys
from dataclasses import dataclass

LINE = re.compile(r'^ts=(\S+) .*msg="(unit started|unit adopted|unit exited|unit stopped|unit removed|unit had exited|unit ended with the machine)" node=(\S+) workload=(\S+) token=(\d+)')
FAR = 1e18


@dataclass
class Copy:
    workload: str
    node: str
    token: int
    start: float
    end: float = FAR

    def __str__(self):
        return f"{self.workload} (token {self.token}) on {self.node} from {clock(self.start)} to {'now' if self.end == FAR else clock(self.end)}"


def clock(t):
    return datetime.datetime.fromtimestamp(t, datetime.timezone.utc).strftime("%H:%M:%S.%f")[:-3]


def copies(lines):
    """All copies that ran, from the lines of one or several agents."""
    running, out = {}, []
    for line in lines:
        m = LINE.match(line)
        if not m:
            continue
        at = datetime.datetime.fromisoformat(m[1].replace("Z", "+00:00")).timestamp()
        what, node, workload, token = m[2], m[3], m[4], int(m[5])
        key = (node, workload, token)
        if what == "unit started":
            running[key] = Copy(workload, node, token, at)
            out.append(running[key])
        elif what == "unit adopted":  # by a restarted agent: the same copy goes on
            if key not in running:
                running[key] = Copy(workload, node, token, at)
                out.append(running[key])
        elif key in running:
            running.pop(key).end = at
    return out


def violations(all_copies, exclusive=lambda workload: True):
    found, started, by_workload = [], {}, {}
    for c in sorted(all_copies, key=lambda c: c.start):
        if c.token in started:
            found.append(f"(1) a token was started twice: {started[c.token]}, and {c}")
        started[c.token] = c
        for other in by_workload.setdefault(c.workload, []):
            if other.end > c.start:
                if other.node == c.node:
                    found.append(f"(2) two copies on one node: {other}, and {c}")
                elif exclusive(c.workload):
                    found.append(f"(3) two holders: {other}, and {c}")
        by_workload[c.workload].append(c)
    return found


def read(paths):
    out = []
    for path in paths:
        with open(path, errors="replace") as f:
            out += copies(f)
    return out


def main():
    bad = violations(read(sys.argv[1:]))
    print("\n".join(bad) if bad else "no unit had two holders")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
