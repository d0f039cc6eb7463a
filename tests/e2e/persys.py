"""persys: a client and an agent of the Persys dialects, made from the .proto files at run time (python3-grpcio, python3-protobuf, protoc-c)."""
import os
import subprocess
import tempfile
import threading
from concurrent import futures

from berthtest import ROOT, TIMEOUT

try:
    import grpc
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
except ImportError:
    grpc = None

CONTROL = "persys.control.v1"
AGENT = "persys.agent.v1"


def pool_of(files):
    """A descriptor pool of FileDescriptorProtos, which may come in any order."""
    pool, left, known = descriptor_pool.DescriptorPool(), {f.name: f for f in files}, set()
    while left:
        ready = [f for f in left.values() if known.issuperset(f.dependency)]
        if not ready:
            raise AssertionError(f"imports are missing: {[(f.name, list(f.dependency)) for f in left.values()]}")
        for f in ready:
            pool.Add(left.pop(f.name))
            known.add(f.name)
    return pool


def compiled(*names):
    """The pool of these .proto files and what they import."""
    with tempfile.NamedTemporaryFile(suffix=".desc") as out:
        subprocess.run(["protoc-c", "-I" + os.path.join(ROOT, "proto"), "-I/usr/include", "--include_imports", "--descriptor_set_out=" + out.name,
                        *[os.path.join(ROOT, "proto", n) for n in names]], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read())
    return pool_of(files.file)


class Messages:
    """Classes of messages by their full name."""

    def __init__(self, pool):
        self.pool, self.factory = pool, message_factory.MessageFactory(pool)

    def of(self, full_name):
        return self.factory.GetPrototype(self.pool.FindMessageTypeByName(full_name))


class Client:
    """Every method of a service as a method of its own: client.GetNode(node_id="n") gives the response, or raises grpc.RpcError."""

    def __init__(self, address, messages, service=CONTROL + ".AgentControl", timeout=TIMEOUT, channel=None):
        self.channel = channel or grpc.insecure_channel(address)
        self.service = messages.pool.FindServiceByName(service)
        for m in self.service.methods:
            setattr(self, m.name, self._method(m, messages, timeout))

    def _method(self, m, messages, timeout):
        request, response = messages.of(m.input_type.full_name), messages.of(m.output_type.full_name)
        call = self.channel.unary_unary(f"/{self.service.full_name}/{m.name}", request_serializer=request.SerializeToString,
                                        response_deserializer=response.FromString)

        def invoke(message=None, metadata=None, **fields):
            message = message if message is not None else json_format.ParseDict(fields, request())
            return call(message, timeout=timeout, metadata=metadata, wait_for_ready=True)
        return invoke

    def close(self):
        self.channel.close()


class FakeAgent:
    """An agent that takes everything and runs nothing: it remembers what it was told, and says that it runs."""

    def __init__(self, messages, states=None):
        self.messages, self.lock = messages, threading.Lock()
        self.calls, self.workloads = [], {}
        self.changed = threading.Condition(self.lock)
        service = messages.pool.FindServiceByName(AGENT + ".AgentService")
        handlers = {}
        for m in service.methods:
            request, response = messages.of(m.input_type.full_name), messages.of(m.output_type.full_name)
            handlers[m.name] = grpc.unary_unary_rpc_method_handler(self._handler(m.name, response), request_deserializer=request.FromString,
                                                                   response_serializer=response.SerializeToString)
        self.server = grpc.server(futures.ThreadPoolExecutor(4))
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    @property
    def endpoint(self):
        return f"127.0.0.1:{self.port}"

    def _handler(self, name, response):
        def handle(request, context):
            with self.lock:
                self.calls.append((name, getattr(request, "id", "")))
                self.changed.notify_all()
                return getattr(self, "on_" + name, lambda r, c, a: a)(request, context, response())
        return handle

    def on_ApplyWorkload(self, r, context, answer):
        self.workloads[r.id] = (r.type, r.revision_id, r.desired_state, r.spec)
        answer.applied = True
        self._status(r.id, answer.status)
        return answer

    def on_DeleteWorkload(self, r, context, answer):
        self.workloads.pop(r.id, None)
        answer.success = True
        return answer

    def on_GetWorkloadStatus(self, r, context, answer):
        if r.id not in self.workloads:
            context.abort(grpc.StatusCode.UNKNOWN, "status not found: " + r.id)
        self._status(r.id, answer.status)
        return answer

    def on_ListWorkloads(self, r, context, answer):
        for i in self.workloads:
            self._status(i, answer.workloads.add())
        return answer

    def on_HealthCheck(self, r, context, answer):
        answer.healthy = True
        return answer

    def _status(self, ident, status):
        kind, revision, desired, _ = self.workloads[ident]
        status.id, status.type, status.revision_id, status.desired_state = ident, kind, revision, desired
        status.actual_state = 3 if desired == 2 else 2

    def stop(self):
        self.server.stop(0)
