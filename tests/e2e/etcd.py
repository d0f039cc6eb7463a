"""A real etcd: one member on loopback, in a temporary directory, on ports that the kernel chose."""
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request

BINARY = "/usr/bin/etcd"


def is_installed():
    return os.access(BINARY, os.X_OK)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ctl(address, *args):
    """What etcdctl prints: an operator's view."""
    return subprocess.run(["etcdctl", "--endpoints", address, *args], env={**os.environ, "ETCDCTL_API": "3"}, capture_output=True, text=True, check=True,
                          timeout=60).stdout


def get(address, prefix):
    """{key: value} below a prefix."""
    lines = ctl(address, "get", "--prefix", prefix).splitlines()
    return dict(zip(lines[::2], lines[1::2]))


def revision(address):
    """Grows with every write of anybody."""
    return json.loads(ctl(address, "endpoint", "status", "-w", "json"))[0]["Status"]["header"]["revision"]


class Etcd:
    def __init__(self, env=None, cores=None):
        self.dir = tempfile.mkdtemp(prefix="berth-etcd-")
        self.env = env
        self.cores = cores  # which it may use; None: those of its parent
        self.process = None
        for again in range(4, -1, -1):
            self.port, self.peer = free_port(), free_port()
            self.address = f"127.0.0.1:{self.port}"
            try:
                return self.start()
            except AssertionError:  # perhaps somebody took a port between the moment at which it was found free and now
                if not again or self.process.poll() is None:
                    raise

    def start(self, timeout=60):
        client, peer = f"http://{self.address}", f"http://127.0.0.1:{self.peer}"
        with open(os.path.join(self.dir, "log"), "a") as log:
            self.process = subprocess.Popen(
                [BINARY, "--data-dir", os.path.join(self.dir, "data"), "--listen-client-urls", client, "--advertise-client-urls", client,
                 "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.env,
                preexec_fn=self.cores and (lambda: os.sched_setaffinity(0, self.cores)))
        deadline = time.monotonic() + timeout
        while True:
            try:
                with urllib.request.urlopen(client + "/health", timeout=5) as r:
                    if b'"true"' in r.read():
                        return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                with open(os.path.join(self.dir, "log")) as f:
                    raise AssertionError("etcd does not start; its log:\n" + f.read()[-3000:])
            time.sleep(0.05)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def get(self, prefix):
        return get(self.address, prefix)

    def put(self, key, value):
        ctl(self.address, "put", "--", key, value)

    def delete(self, key):
        ctl(self.address, "del", key)

    def metric(self, name):
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=20) as r:
            return next(float(line.split()[1]) for line in r.read().decode().splitlines() if line.startswith(name + " "))

    def close(self):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)
