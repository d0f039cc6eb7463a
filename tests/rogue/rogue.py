"""rogue: an agent that speaks the agents' protocol with a node's own certificate, and says whatever a test wants it to say."""
import queue
import threading
import time

import grpc
import persys
from berthtest import TIMEOUT

MESSAGES = persys.Messages(persys.compiled("agent.proto"))
AgentMessage, ServerMessage, Workload = (MESSAGES.of("berth.v1." + n) for n in ("AgentMessage", "ServerMessage", "Workload"))
PENDING, RUNNING, STOPPED, FAILED, UNKNOWN, MISSING = 1, 2, 3, 4, 5, 6
WISH_RUNNING, WISH_STOPPED, WISH_DELETED = 1, 2, 3


class Rogue:
    """One node. Every stream is a new call; what the server says is kept in `heard`."""

    def __init__(self, c, node, pki=None, cert=None):
        self.c, self.node = c, node
        if pki:
            parts = [open(pki.file(f), "rb").read() for f in ("ca.pem", (cert or node) + "-key.pem", (cert or node) + ".pem")]
            self.channel = grpc.secure_channel(c.grpc_address, grpc.ssl_channel_credentials(*parts))
        else:
            self.channel = grpc.insecure_channel(c.grpc_address)
        self.connect = self.channel.stream_stream("/berth.v1.Agent/Connect", request_serializer=AgentMessage.SerializeToString, response_deserializer=ServerMessage.FromString)
        self.cluster_id = c.info()["cluster_id"]
        self.changed = threading.Condition()
        self.call = None

    # ---- the stream ----

    def begin(self):
        self.end()
        with self.changed:
            self.heard, self.error, self.outbox = [], None, queue.Queue()
        self.call = self.connect(iter(self.outbox.get, None))
        threading.Thread(target=self._listen, args=(self.call,), daemon=True).start()
        return self

    def _listen(self, call):
        try:
            for m in call:
                with self.changed:
                    self.heard.append(m)
                    self.changed.notify_all()
        except grpc.RpcError as e:
            with self.changed:
                if call is self.call:
                    self.error = e
                self.changed.notify_all()

    def end(self):
        if self.call:
            self.outbox.put(None)
            self.call.cancel()
            self.call = None

    def close(self):
        self.end()
        self.channel.close()

    def send(self, **fields):
        m = AgentMessage()
        for name, value in fields.items():
            getattr(m, name).CopyFrom(value)
        self.outbox.put(m)

    def wait(self, what, condition, timeout=TIMEOUT):
        """The first thing heard for which condition(message) is true; or the error with which the stream ended, for condition None."""
        deadline = time.monotonic() + timeout
        with self.changed:
            while True:
                for m in self.heard:
                    if condition and condition(m):
                        return m
                if self.error is not None:
                    if condition is None:
                        return self.error
                    raise AssertionError(f"{self.node} waited for {what}, and its stream ended: {self.error}")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise AssertionError(f"{self.node} waited in vain for {what}; heard: {self.heard}")
                self.changed.wait(left)

    # ---- what an agent says ----

    def status(self, unit, token, state=RUNNING, revision="forged", **fields):
        s = MESSAGES.of("berth.v1.UnitStatus")(unit_id=unit, revision_id=revision, state=state, type=4, **fields)
        if token:
            s.token.epoch, s.token.seq = token
        return s

    def hello(self, units=(), applied=None, cpu=4000, memory_mb=8192, disk_gb=100, labels=None, node=None, cluster=None, protocol=1, **fields):
        m = AgentMessage()
        h = m.hello
        h.node_id, h.cluster_id, h.instance, h.protocol = node or self.node, self.cluster_id if cluster is None else cluster, "rogue", protocol
        h.cpu, h.memory_mb, h.disk_gb = cpu, memory_mb, disk_gb
        h.supported_workload_types.append(4)
        h.exclusive_types.append(4)
        h.labels.update(labels or {})
        h.units.extend(units)
        if applied:
            h.applied.epoch, h.applied.seq = applied
        for name, value in fields.items():
            setattr(h, name, value)
        self.outbox.put(m)
        return self

    def answered(self, timeout=TIMEOUT):
        """Until it is let in, turned away, or its stream is ended."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.error is not None or any(m.HasField("welcome") for m in self.heard), timeout)

    def welcome(self):
        w = self.wait("a welcome", lambda m: m.HasField("welcome")).welcome
        assert w.accepted, w.reason
        return self

    def report(self, *units, complete=False, applied=None):
        m = AgentMessage()
        m.units.complete = complete
        m.units.units.extend(units)
        if applied:
            m.units.applied.epoch, m.units.applied.seq = applied
        self.outbox.put(m)

    def beat(self, **fields):
        """A heartbeat and its answer: all that was sent before has been decided."""
        n = sum(m.HasField("heartbeat") for m in self.heard)
        m = AgentMessage()
        m.heartbeat.clock_ms = 1
        for name, value in fields.items():
            setattr(m.heartbeat, name, value)
        self.outbox.put(m)
        self.wait("an answer to a heartbeat", lambda _: sum(m.HasField("heartbeat") for m in self.heard) > n)

    def definition(self, unit, command, **fields):
        w = Workload(id=unit, type=4, revision_id="forged", restart=1, **fields)
        w.spec.command.extend(command)
        w.resources.cpu, w.resources.memory_mb = 100, 16
        return w

    def describe(self, unit, token, command, warrant=b"", definition=None, old_form=False):
        """Answers the question what a unit was started from."""
        m = AgentMessage()
        w = self.definition(unit, command)
        if old_form:
            w.token.epoch, w.token.seq, w.desired_state = *token, WISH_RUNNING
            m.definitions.units.add().CopyFrom(w)
        else:
            h = m.definitions.held.add(unit_id=unit, desired_state=WISH_RUNNING, definition=definition or w.SerializeToString(), warrant=warrant)
            h.token.epoch, h.token.seq = token
        self.outbox.put(m)

    def asked(self, unit):
        """Waits until the server asks what this unit was started from."""
        return self.wait(f"a question about {unit}", lambda m: m.HasField("describe") and unit in m.describe.unit_ids)

    def order(self, unit):
        """The last order of a plan about this unit."""
        self.wait(f"an order about {unit}", lambda m: any(u.unit_id == unit for u in m.plan.units))
        return [u for m in self.heard for u in m.plan.units if u.unit_id == unit][-1]
