"""The versions before: their commits, and their binaries, built once from the history."""
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RELEASE = "0b7b0b1"  # moves on with every release
UNITS = "b9684b4"    # the last one before features were announced and units had kinds


def binary(commit):
    return os.path.join(ROOT, "build-versions", commit, "build", "berth")


def is_in_history(commit):
    return subprocess.run(["git", "-C", ROOT, "cat-file", "-e", commit + "^{commit}"], capture_output=True).returncode == 0


def why_not(commit):
    """None: the binary is there; else the sentence with which a test is skipped."""
    if os.access(binary(commit), os.X_OK):
        return None
    if not is_in_history(commit):
        return f"the version before ({commit}) is not in this clone's history; `git fetch --unshallow` brings it"
    return f"the version before ({commit}) is not built; tests/versions/run.py builds it"


def build():
    for commit in (RELEASE, UNITS):
        build_one(commit)


def build_one(commit):
    place = os.path.join(ROOT, "build-versions", commit)
    if os.access(binary(commit), os.X_OK) or not is_in_history(commit):
        return
    print(f"building the version before ({commit}) in {place}", flush=True)
    source = os.path.join(place, "src")
    os.makedirs(source, exist_ok=True)
    archive = subprocess.Popen(["git", "-C", ROOT, "archive", commit], stdout=subprocess.PIPE)
    subprocess.run(["tar", "x", "-C", source], stdin=archive.stdout, check=True)
    if archive.wait() != 0:
        sys.exit("git archive failed")
    if not os.path.exists(os.path.join(place, "build", "build.ninja")):
        subprocess.run(["meson", "setup", os.path.join(place, "build"), source], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", os.path.join(place, "build"), "berth"], check=True, stdout=subprocess.DEVNULL)
