#!/usr/bin/python3
"""run.py: runs the end-to-end tests, each in a process of its own, several at a time.

usage: run.py [--berth FILE] [--store embedded|etcd] [--jobs N] [--full] [--few] [--tap FILE] [-l] [-v] [PATTERN...]

PATTERN picks tests whose name contains it. Tests that measure something run alone, after the others. A test's output is shown when it fails; lines
that start with "## " are results of measurements and are always shown. --tap also writes the outcome as TAP. --store etcd: one real etcd for all, a prefix of its own
for every cluster; tests that are about the embedded store are skipped and say so. --few: those that tell most about the store.
"""
import argparse
import atexit
import concurrent.futures
import importlib
import os
import signal
import subprocess
import sys
import time
import unittest

import etcd

# Kills, restarts, concurrent writers, streams and history: where one store could differ from another.
FEW = ["two_writers", "nothing_acknowledged_is_lost", "a_backoff_survives", "a_stream_is_resumed", "work_runs_elsewhere", "step_8",
       "a_server_that_lost_its_store", "racing_clients", "the_same_apply_again", "every_event_says"]


def find(directory, patterns):
    tests = []
    for name in sorted(os.listdir(directory)):
        if name.startswith("test_") and name.endswith(".py"):
            module = importlib.import_module(name[:-3])
            for suite in unittest.defaultTestLoader.loadTestsFromModule(module):
                for test in suite:
                    tests.append((test.id(), getattr(test, "exclusive", False)))
    return [t for t in tests if not patterns or any(p in t[0] for p in patterns)]


def run_one(name):
    """In the child: one test, with its outcome as the exit status (0 ok, 77 skipped, 1 failed)."""
    suite = unittest.defaultTestLoader.loadTestsFromName(name)
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=0).run(suite)
    for _, why in result.skipped:
        print("SKIP: " + why.splitlines()[0])
    sys.exit(1 if not result.wasSuccessful() else 77 if result.skipped else 0)


def start(script, name, timeout):
    began = time.monotonic()
    child = subprocess.Popen([sys.executable, script, "--one", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        out, _ = child.communicate(timeout=timeout)
        code = child.returncode
    except subprocess.TimeoutExpired:
        # First a stack of where it hangs (faulthandler), then the end.
        child.send_signal(signal.SIGABRT)
        try:
            out, _ = child.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            out, _ = child.communicate()
        out += f"\ntimed out after {timeout} s\n".encode()
        code = 1
    return name, code, out.decode(errors="replace"), time.monotonic() - began


def main(script):
    """script: the one that was called; the tests are those beside it."""
    p = argparse.ArgumentParser()
    p.add_argument("--berth")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--full", action="store_true")
    p.add_argument("--few", action="store_true")
    p.add_argument("--store", choices=("embedded", "etcd"), default="embedded")
    p.add_argument("--tap")
    p.add_argument("--one")
    p.add_argument("--timeout", type=float, default=240)
    p.add_argument("-l", "--list", action="store_true")
    p.add_argument("-v", "--verbose", action="store_true")
    p.add_argument("pattern", nargs="*")
    a = p.parse_args()
    if a.berth:
        os.environ["BERTH_BINARY"] = os.path.abspath(a.berth)
    if a.full:
        os.environ["BERTH_TEST_FULL"] = "1"
        a.timeout = max(a.timeout, 1200)
    if a.one:
        import faulthandler
        faulthandler.enable()
        run_one(a.one)
    tests = find(os.path.dirname(script), a.pattern + (FEW if a.few else []))
    if a.list:
        for name, exclusive in tests:
            print(name, "(alone)" if exclusive else "")
        return
    if a.store == "etcd":
        if not etcd.is_installed():
            print("error: etcd is not installed (Debian: etcd-server, etcd-client)", file=sys.stderr)
            sys.exit(1)
        member = etcd.Etcd()
        atexit.register(member.close)
        os.environ["BERTH_TEST_ETCD"] = member.address
    points = []

    def report(outcome):
        name, code, out, seconds = outcome
        word = {0: "ok", 77: "skip"}.get(code, "FAILED")
        why = next((line[6:] for line in out.splitlines() if line.startswith("SKIP: ")), "") if code == 77 else ""
        print(f"{word:6} {seconds:7.1f} s  {name}  {why}".rstrip(), flush=True)
        if code == 77:
            print(f"skipped: {name}: {why}")
        for line in out.splitlines():
            if line.startswith("## "):
                print("         " + line[3:], flush=True)
        if code not in (0, 77) or a.verbose:
            print("---- output of " + name + "\n" + out + "----", flush=True)
        points.append(("not ok" if word == "FAILED" else "ok") + f" {len(points) + 1} - {name}" + (f" # SKIP {why}" if code == 77 else ""))
        return code

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for f in concurrent.futures.as_completed([pool.submit(start, script, name, a.timeout) for name, exclusive in tests if not exclusive]):
            failed += report(f.result()) not in (0, 77)
    for name, exclusive in tests:
        if exclusive:
            failed += report(start(script, name, a.timeout)) not in (0, 77)
    if a.tap:
        with open(a.tap, "w") as f:
            f.write("\n".join([*points, f"1..{len(points)}", ""]))
    print(f"{len(points)} end-to-end tests, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(os.path.abspath(__file__))
