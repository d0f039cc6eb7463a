"""stalls: when the machine itself stood still, so that a test that holds a program to a time does not take that for the program's fault.

    with stalls.Witness(folder) as machine:
        began = time.monotonic()
        ...
        took = time.monotonic() - began - machine.stood_still(began, time.monotonic())

A process of its own does next to nothing, over and over: it sleeps for 5 ms, then writes a byte to a file in that folder and waits until the disk has it. While that takes much
longer than it should, anybody's write does.
"""
import os
import select
import subprocess
import sys
import threading
import time

SLEEP_SECONDS = 0.005
STALL_SECONDS = 0.1  # a round that takes so much longer than it should is a stall; a disk that is always slow has none
WAIT_SECONDS = 60


class Witness:
    def __init__(self, folder):
        self.folder, self.stalls, self.until, self.changed = folder, [], 0.0, threading.Condition()

    def __enter__(self):
        self.process = subprocess.Popen([sys.executable, __file__, self.folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(WAIT_SECONDS)
        self.reader.join()
        self.process.stdout.close()

    def read(self):
        for line in self.process.stdout:
            began, ended = map(float, line.split())
            with self.changed:
                if ended - began > SLEEP_SECONDS + STALL_SECONDS:
                    self.stalls.append((began + SLEEP_SECONDS, ended))
                self.until = ended
                self.changed.notify_all()

    def stood_still(self, since, until):
        """Seconds between these two moments (of time.monotonic)."""
        with self.changed:
            if not self.changed.wait_for(lambda: self.until >= until, WAIT_SECONDS):
                raise AssertionError("the witness of the machine's stalls is gone")
            return sum(max(0.0, min(b, until) - max(a, since)) for a, b in self.stalls)


def main(folder):
    fd = os.open(os.path.join(folder, "witness"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    began = time.monotonic()
    while not select.select([sys.stdin], [], [], SLEEP_SECONDS)[0]:
        os.pwrite(fd, b"x", 0)
        os.fdatasync(fd)
        ended = time.monotonic()
        print(f"{began:.6f} {ended:.6f}", flush=True)
        began = ended


if __name__ == "__main__":
    main(sys.argv[1])
