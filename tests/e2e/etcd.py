"""A real etcd: one member on loopback, in a temporary directory, on ports that the kernel chose."""
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


class Etcd:
    def __init__(self, env=None):
        self.dir = tempfile.mkdtemp(prefix="berth-etcd-")
        self.port, self.peer = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.env = env
        self.process = None
        self.start()

    def start(self, timeout=60):
        client, peer = f"http://{self.address}", f"http://127.0.0.1:{self.peer}"
        with open(os.path.join(self.dir, "log"), "a") as log:
            self.process = subprocess.Popen(
                [BINARY, "--data-dir", os.path.join(self.dir, "data"), "--listen-client-urls", client, "--advertise-client-urls", client,
                 "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self.env)
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
        """{key: value} below a prefix, by etcdctl, as an operator would."""
        out = subprocess.run(["etcdctl", "--endpoints", self.address, "get", "--prefix", prefix], env={**os.environ, "ETCDCTL_API": "3"},
                             capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
        return dict(zip(out[::2], out[1::2]))

    def close(self):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)
