"""fakes: foreign agents that behave, misbehave, or do nothing, for tests of the server's calls to them."""
import collections
import contextlib
import queue
import socket
import threading
import time
from concurrent import futures

import persys
from persys import AGENT, grpc

PENDING, RUNNING, STOPPED, FAILED, UNKNOWN = 1, 2, 3, 4, 5


class Registered:
    """Registers with the server and beats, as foreign agents do: on any failure it registers anew."""

    def __init__(self, c, messages, node_id, endpoint, labels=None, cpu=64000, memory_mb=262144, every=None):
        self.node_id, self.every = node_id, every
        self.control = persys.Client(c.grpc_address, messages, timeout=5)
        self.request = dict(node_id=node_id, grpc_endpoint=endpoint, labels=labels or {}, agent_version="fake",
                            capabilities=dict(cpu_total_millicores=cpu, memory_total_mb=memory_mb, supported_workload_types=["container", "compose", "vm"],
                                              storage_pools=[dict(name="root", type="local", total_gb=100000)]))
        self.ended = threading.Event()
        self.again = threading.Event()  # set: it registers anew, as after a fault
        self.registrations = 0
        self.thread = threading.Thread(target=self._loop, daemon=True)
        self.thread.start()

    def _loop(self):
        registered = False
        interval = 1
        while not self.ended.is_set():
            try:
                if not registered or self.again.is_set():
                    self.again.clear()
                    answer = self.control.RegisterNode(**self.request)
                    registered, interval = answer.accepted, answer.heartbeat_interval_seconds or 10
                    self.registrations += 1
                self.control.Heartbeat(node_id=self.node_id, usage={})
            except grpc.RpcError:
                registered = False
                interval = 0.2
            if self.every and self.ended.wait(min(interval, self.every)):
                return
            if self.every:
                registered = False
            elif self.ended.wait(interval):
                return

    def stop(self):
        self.ended.set()
        self.thread.join(10)
        self.control.close()


class Service:
    """A gRPC server of AgentService; on_<Method>(request, context, response) answers. Calls are counted."""

    threads = 8

    def __init__(self, messages):
        self.calls = []
        self.lock = threading.RLock()
        service = messages.pool.FindServiceByName(AGENT + ".AgentService")
        handlers = {}
        for m in service.methods:
            request, response = messages.of(m.input_type.full_name), messages.of(m.output_type.full_name)
            handlers[m.name] = grpc.unary_unary_rpc_method_handler(self._handler(m.name, response), request_deserializer=request.FromString,
                                                                   response_serializer=response.SerializeToString)
        self.server = grpc.server(futures.ThreadPoolExecutor(self.threads))
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))
        self.endpoint = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def _handler(self, name, response):
        def handle(request, context):
            with self.lock:
                self.calls.append((time.monotonic(), name, getattr(request, "id", "")))
            return self.answer(name, request, context, response())
        return handle

    def answer(self, name, request, context, response):
        return getattr(self, "on_" + name)(request, context, response)

    def on_HealthCheck(self, r, context, a):
        a.healthy = True
        return a

    def count(self, name, ident=None):
        with self.lock:
            return sum(1 for _, n, i in self.calls if n == name and ident in (None, i))

    def stop(self):
        self.server.stop(0)


class Quick(Service):
    """Takes everything at once and says that it runs; remembers when each workload first arrived."""

    def __init__(self, messages):
        self.workloads, self.arrived = {}, {}
        super().__init__(messages)

    def status(self, ident, s):
        kind, revision, desired = self.workloads[ident]
        s.id, s.type, s.revision_id, s.desired_state, s.actual_state = ident, kind, revision, desired, STOPPED if desired == 2 else RUNNING

    def on_ApplyWorkload(self, r, context, a):
        with self.lock:
            self.arrived.setdefault((r.id, r.revision_id), time.monotonic())
            self.workloads[r.id] = (r.type, r.revision_id, r.desired_state)
            a.applied = True
            self.status(r.id, a.status)
        return a

    def on_DeleteWorkload(self, r, context, a):
        with self.lock:
            self.workloads.pop(r.id, None)
        a.success = True
        return a

    def on_GetWorkloadStatus(self, r, context, a):
        with self.lock:
            if r.id in self.workloads:
                self.status(r.id, a.status)
                return a
        context.abort(grpc.StatusCode.UNKNOWN, "status not found: " + r.id)

    def on_ListWorkloads(self, r, context, a):
        with self.lock:
            for ident in self.workloads:
                self.status(ident, a.workloads.add())
        return a


class Slow(Quick):
    """Answers every call after so many seconds."""

    threads = 16

    def __init__(self, messages, seconds):
        self.seconds, self.awake = seconds, threading.Event()
        super().__init__(messages)

    def answer(self, name, request, context, response):
        self.awake.wait(self.seconds)
        return super().answer(name, request, context, response)

    def stop(self):
        self.awake.set()
        super().stop()


class Mute:
    """Accepts connections and never says a word."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self.socket.getsockname()[1]}"
        self.accepted = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                self.accepted.append(self.socket.accept()[0])

    def stop(self):
        self.socket.close()
        for s in self.accepted:
            s.close()


Task = collections.namedtuple("Task", "kind ident request action")


class Foreign(Service):
    """An agent as it is in the field:
    apply and delete are only queued (1); an unknown workload is UNKNOWN with "status not found:" (2); a task in flight covers the status with PENDING, and the second
    deletion of a workload leaves FAILED "workload not found" behind for ever (3); the same revision is skipped, started or stopped in place, a new one is deleted and created
    (4); admission failures, image failures are found in the status only (5, 7). What it still has a record of it looks at in its engine whenever it is asked, and writes that
    down; where nothing is, the status becomes UNKNOWN, and why it could not be started is in last_error only. ListActions tells of the tasks since it was started.

    ghost: the state of the status that is written down again after a deletion, by somebody who looked meanwhile (None: nobody did)."""

    def __init__(self, messages, task_seconds=0.3, ghost=None, actions=True):
        self.task_seconds, self.ghost, self.actions = task_seconds, ghost, actions
        self.known = set()  # ids of which it has a record; a status without one is a ghost
        self.log = []       # of actions, oldest first
        self.loses = 0      # so many deletions are taken and forgotten, as by a restart of the agent
        self.stored = {}   # id: dict of the status
        self.tasks = []    # in flight, oldest first
        self.errors = {}   # id: error of the newest failed task
        self.history = []  # (kind, id, revision) of what was done in the runtime
        self.jobs = queue.Queue(20)
        for _ in range(10):
            threading.Thread(target=self._work, daemon=True).start()
        super().__init__(messages)

    def _work(self):
        while True:
            task = self.jobs.get()
            if task is None:
                return
            time.sleep(self.task_seconds)
            with self.lock:
                self.errors.pop(task.ident, None)
                (self._create if task.kind == "apply" else self._delete)(task)
                self.tasks.remove(task)
                task.action.update(status="failed" if task.ident in self.errors else "completed", error=self.errors.get(task.ident, ""),
                                   ended_at=int(time.time()))

    def _submit(self, kind, request):
        action = dict(task_id=f"{kind}-{request.id}-{len(self.log)}", workload_id=request.id, action_type=kind + "_workload", status="running",
                      created_at=int(time.time()))
        task = Task(kind, request.id, request, action)
        self.log.append(action)
        self.tasks.append(task)
        self.jobs.put(task)

    def _create(self, task):
        r, old = task.request, self.stored.get(task.ident)
        if old and old["revision_id"] != r.revision_id:
            self.history.append(("delete", task.ident, old["revision_id"]))
            old = None
        running = r.desired_state == 1
        state, message, metadata = RUNNING if running else STOPPED, "", {}
        if r.spec.container.image == "broken":
            state, message, metadata = FAILED, "pull access denied", {"failure_reason": "IMAGE_PULL_AUTH_FAILED"}
        elif r.spec.container.image == "huge":
            state, message = FAILED, "admission rejected due to resource constraints: memory usage 91.0%"
        elif r.spec.container.image == "nowhere":
            state, message = UNKNOWN, "container not found"
            metadata = {"last_error": "failed to create container: Error response from daemon: No such image: nowhere:latest"}
        elif running and (not old or old["actual_state"] != RUNNING):
            self.history.append(("create", task.ident, r.revision_id))
        self.known.add(task.ident)
        self.stored[task.ident] = dict(id=task.ident, type=r.type, revision_id=r.revision_id, desired_state=r.desired_state, actual_state=state, message=message,
                                       metadata=metadata)

    def _delete(self, task):
        if task.ident not in self.known:
            self.errors[task.ident] = f"workload not found: workload not found: {task.ident}"
            return
        self.known.discard(task.ident)
        old = self.stored.pop(task.ident, None)
        if old:
            self.history.append(("delete", task.ident, old["revision_id"]))
        if old and self.ghost:
            self.stored[task.ident] = {**old, "actual_state": self.ghost, "message": "exited", "updated_at": int(time.time())}

    def status(self, ident):
        """What GetWorkloadStatus says; None: not found."""
        stored = self.stored.get(ident)
        flying = [t for t in self.tasks if t.ident == ident]
        if flying:
            base = dict(stored or dict(id=ident, revision_id=getattr(flying[-1].request, "revision_id", "")))
            return {**base, "actual_state": PENDING, "message": "task running"}
        if stored and ident in self.known:
            stored["updated_at"] = int(time.time())
        if stored:
            return stored
        if ident in self.errors:
            return dict(id=ident, actual_state=FAILED, message=self.errors[ident])
        return None

    @staticmethod
    def fill(s, fields):
        for k, v in fields.items():
            if k == "metadata":
                s.metadata.update(v)
            else:
                setattr(s, k, v)

    def on_ApplyWorkload(self, r, context, a):
        with self.lock:
            old = self.stored.get(r.id)
            if old and old["revision_id"] == r.revision_id and old["desired_state"] == r.desired_state and old["actual_state"] != FAILED:
                a.skipped = True
                self.fill(a.status, old)
                return a
            self._submit("apply", r)
            a.applied = True
            self.fill(a.status, dict(id=r.id, type=r.type, revision_id=r.revision_id, desired_state=r.desired_state, actual_state=PENDING,
                                     metadata={"task_id": "t", "task_status": "pending"}))
        return a

    def on_DeleteWorkload(self, r, context, a):
        with self.lock:
            if self.loses:
                self.loses -= 1
            else:
                self._submit("delete", r)
        a.success = True
        return a

    def on_GetWorkloadStatus(self, r, context, a):
        with self.lock:
            s = self.status(r.id)
            if s:
                self.fill(a.status, s)
                return a
        context.abort(grpc.StatusCode.UNKNOWN, "status not found: " + r.id)

    def on_ListActions(self, r, context, a):
        if not self.actions:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method ListActions")
        with self.lock:
            found = [x for x in self.log if r.workload_id in ("", x["workload_id"]) and r.action_type in ("", x["action_type"])]
            for action in (found[::-1] if r.newest_first else found)[:r.limit or None]:
                self.fill(a.actions.add(), action)
        return a

    def on_ListWorkloads(self, r, context, a):
        with self.lock:
            for ident in list(self.stored):
                self.fill(a.workloads.add(), self.status(ident))
        return a

    def stop(self):
        super().stop()
        for _ in range(10):
            self.jobs.put(None)


class Moody(Foreign):
    """A foreign agent on a bad day, until calm is set: calls fail before or after they were carried out, with all sorts of codes, and answers come late."""

    CODES = [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.ABORTED,
             grpc.StatusCode.DEADLINE_EXCEEDED] if grpc else []

    def __init__(self, messages, rng, task_seconds=0.05):
        self.rng, self.calm = rng, threading.Event()
        super().__init__(messages, task_seconds)

    def answer(self, name, request, context, response):
        with self.lock:
            mood, code, late = self.rng.random(), self.rng.choice(self.CODES), self.rng.random() * 0.5
        if self.calm.is_set() or mood < 0.6:
            return super().answer(name, request, context, response)
        if mood < 0.75:
            context.abort(code, "not today")
        if mood < 0.9:
            self.calm.wait(late)
            return super().answer(name, request, context, response)
        super().answer(name, request, context, response)  # it was done, and nobody hears of it
        context.abort(code, "what was done was done")
