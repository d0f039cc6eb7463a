"""The version before: its commit, and its binary, built once from the history."""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMIT = "0b7b0b1"  # moves on with every release
PLACE = os.path.join(ROOT, "build-versions", COMMIT)
BINARY = os.path.join(PLACE, "build", "berth")


def is_in_history():
    return subprocess.run(["git", "-C", ROOT, "cat-file", "-e", COMMIT + "^{commit}"], capture_output=True).returncode == 0


def why_not():
    """None: the binary is there; else the sentence with which a test is skipped."""
    if os.access(BINARY, os.X_OK):
        return None
    if not is_in_history():
        return f"the version before ({COMMIT}) is not in this clone's history; `git fetch --unshallow` brings it"
    return f"the version before ({COMMIT}) is not built; tests/versions/run.py builds it"


def build():
    if os.access(BINARY, os.X_OK) or not is_in_history():
        return
    print(f"building the version before ({COMMIT}) in {PLACE}", flush=True)
    source = os.path.join(PLACE, "src")
    os.makedirs(source, exist_ok=True)
    archive = subprocess.Popen(["git", "-C", ROOT, "archive", COMMIT], stdout=subprocess.PIPE)
    subprocess.run(["tar", "x", "-C", source], stdin=archive.stdout, check=True)
    if archive.wait() != 0:
        sys.exit("git archive failed")
    if not os.path.exists(os.path.join(PLACE, "build", "build.ninja")):
        subprocess.run(["meson", "setup", os.path.join(PLACE, "build"), source], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", os.path.join(PLACE, "build"), "berth"], check=True, stdout=subprocess.DEVNULL)
