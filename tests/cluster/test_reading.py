"""Event history on an etcd that is not next door: one caller cannot keep it from the others (line E5)."""
import threading
import time

from berthtest import Api
from rig import Case, Gone, note

EVENTS = 400     # of one workload: a chain that takes this many reads, one after the other
DELAY_MS = 5     # each way
FLOOD = 120      # questions at a time
PATIENCE = 20    # seconds; alone it takes less than three, behind all the others ten minutes and more


class Reading(Case):
    def begin(self):
        r = self.rig(members=1, replicas=1)
        server = r.wait_leader()
        api = server.api()
        for i in range(EVENTS):
            a = r.call("PUT", "/v1/workloads/often", r.manifest("often", labels={"version": str(i)}, desired_state="Stopped")) if i == 0 else \
                api.call("PUT", "/v1/workloads/often", r.manifest("often", labels={"version": str(i)}, desired_state="Stopped"))
            self.assertIn(a.status, (200, 201), a)
        r.net.set(r.net.of(server.name, "e"), "delay", DELAY_MS)
        return r, server

    def ask(self, server, actor, timeout=120):
        api = Api(server.http, timeout)
        try:
            return api.call("GET", "/v1/events?workload=often&limit=100", headers={"X-Berth-Actor": actor})
        except Gone as e:
            return e
        finally:
            api.close()

    # R: A11 C29. Line E5.
    def test_one_caller_does_not_keep_event_history_from_others(self):
        r, server = self.begin()
        answers, lock = [], threading.Lock()

        def one():
            a = self.ask(server, "viewer")
            with lock:
                answers.append(a)
        flood = [threading.Thread(target=one, daemon=True) for _ in range(FLOOD)]
        for t in flood:
            t.start()
        r.wait_for("questions that wait", lambda: self.waiting(server) >= 40)
        began = time.monotonic()
        a = self.ask(server, "operator")
        took = time.monotonic() - began
        self.assertEqual(a.status, 200, a)
        self.assertTrue(a.json["items"])
        self.assertLess(took, PATIENCE)
        refused = [x for x in answers if getattr(x, "status", 0) == 429]
        self.assertTrue(refused, "more than a caller's share is refused at once")
        self.assertIn("under way", refused[0].body.decode())
        note(f"{FLOOD} questions of one caller, {len(refused)} refused at once: another one was answered after {took:.1f} s")
        r.net.heal()
        for t in flood:
            t.join()

    # R: A11 C29. Line E5.
    def test_nothing_is_read_for_long_for_callers_who_have_left(self):
        # A client of HTTP/1 that closes its side may still wait for the answer: its question ends at its deadline (10 s). One of gRPC has left at once (reader_test.c).
        r, server = self.begin()
        for _ in range(2):
            flood = [threading.Thread(target=self.ask, args=(server, "viewer", 0.5), daemon=True) for _ in range(60)]
            for t in flood:
                t.start()
            for t in flood:
                t.join()
        began = time.monotonic()
        r.wait_for("the reader to be done", lambda: self.waiting(server) == 0, timeout=PATIENCE)
        note(f"60 questions whose callers had left were put away after {time.monotonic() - began:.1f} s")
        r.net.heal()

    def waiting(self, server):
        api = server.api()
        try:
            text = api.get("/metrics").body.decode()
            return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith('berth_queue_depth{queue="reader"}'))
        finally:
            api.close()
