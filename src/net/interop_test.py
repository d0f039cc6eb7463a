#!/usr/bin/env python3
"""Our gRPC against python3-grpcio, both ways round, in the clear and with mutual TLS.

usage: interop_test.py PATH/TO/net_interop        exit 77: python3-grpcio is not installed
"""
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent import futures

try:
    import grpc
except ImportError:
    print("python3-grpcio is not installed: skipped")
    sys.exit(77)

INTEROP = sys.argv[1]
SERVICE = "/berth.test.Test/"
checks = 0


def check(name, got, want):
    global checks
    if got != want:
        print(f"not ok - {name}: {got!r}, expected {want!r}")
        sys.exit(1)
    checks += 1


def raw(channel, kind, method):
    return getattr(channel, kind)(SERVICE + method, request_serializer=None, response_deserializer=None)


def code_of(call):
    try:
        call()
    except grpc.RpcError as e:
        return e.code()
    return grpc.StatusCode.OK


def python_calls_us(channel):
    echo = raw(channel, "unary_unary", "Echo")
    check("unary", echo(b"hello", timeout=5), b"hello")
    check("empty", echo(b"", timeout=5), b"")
    big = os.urandom(3 * 1024 * 1024)
    check("big", echo(big, timeout=20), big)
    check("too big", code_of(lambda: echo(b"x" * (5 * 1024 * 1024), timeout=20)), grpc.StatusCode.RESOURCE_EXHAUSTED)
    check("unknown", code_of(lambda: raw(channel, "unary_unary", "Nothing")(b"", timeout=5)), grpc.StatusCode.UNIMPLEMENTED)
    started = time.monotonic()
    check("deadline", code_of(lambda: raw(channel, "unary_unary", "Hang")(b"", timeout=0.2)), grpc.StatusCode.DEADLINE_EXCEEDED)
    check("deadline in time", time.monotonic() - started < 3, True)
    messages = list(raw(channel, "unary_stream", "Count")(b"5000 100", timeout=30))
    check("server stream", (len(messages), sum(map(len, messages))), (5000, 500000))
    check("client stream", raw(channel, "stream_unary", "Sum")(iter([b"0123456789"] * 1000), timeout=20), b"1000 10000")
    answers = list(raw(channel, "stream_stream", "Chat")(iter([b"m%d" % i for i in range(500)]), timeout=20))
    check("bidi", answers, [b"m%d" % i for i in range(500)])
    call = raw(channel, "unary_stream", "Count")(b"1000000 100", timeout=30)
    next(call)
    call.cancel()
    check("cancel", call.code(), grpc.StatusCode.CANCELLED)
    check("after cancel", echo(b"x", timeout=5), b"x")
    try:
        raw(channel, "unary_unary", "Fail")("5 it is 100% gone \u2603\n".encode(), timeout=5)
        check("fail", "no error", "an error")
    except grpc.RpcError as e:
        check("status", e.code(), grpc.StatusCode.NOT_FOUND)
        check("message", e.details(), "it is 100% gone \u2603\n")
        check("trailer", dict(e.trailing_metadata())["berth-error-bin"], b"\x0a\x07\x00\xff\x80\x7f\x00")
    response, call = raw(channel, "unary_unary", "Meta").with_call(b"", timeout=5, metadata=[("x-in", "text"), ("x-in-bin", b"\x00\x01\xff")])
    check("binary metadata in", response, b"\x00\x01\xff")
    check("headers", dict(call.initial_metadata())["x-out"], "text")
    check("binary headers", dict(call.initial_metadata())["x-out-bin"], b"\x00\x01\xff")
    check("trailers", dict(call.trailing_metadata())["x-out-trailer"], "text")
    check("compressed", code_of(lambda: echo(b"z" * 10000, timeout=5, compression=grpc.Compression.Gzip)), grpc.StatusCode.UNIMPLEMENTED)
    many = [echo.future(b"%d" % i, timeout=20) for i in range(500)]  # more than the streams of one connection
    check("many at once", [f.result() for f in many], [b"%d" % i for i in range(500)])


class Service(grpc.GenericRpcHandler):
    """The same service as test_service.c."""

    def service(self, details):
        name = details.method.rsplit("/", 1)[1]
        return {
            "Echo": grpc.unary_unary_rpc_method_handler(lambda request, context: request),
            "Sum": grpc.stream_unary_rpc_method_handler(self.sum),
            "Count": grpc.unary_stream_rpc_method_handler(self.count),
            "Chat": grpc.stream_stream_rpc_method_handler(lambda requests, context: requests),
            "Hang": grpc.unary_unary_rpc_method_handler(self.hang),
            "Fail": grpc.unary_unary_rpc_method_handler(self.fail),
            "Meta": grpc.unary_unary_rpc_method_handler(self.meta),
        }.get(name)

    @staticmethod
    def sum(requests, context):
        sizes = [len(r) for r in requests]
        return b"%d %d" % (len(sizes), sum(sizes))

    @staticmethod
    def count(request, context):
        n, size = map(int, request.split())
        for i in range(n):
            yield (b"%d" % i).ljust(size)

    @staticmethod
    def hang(request, context):
        done = threading.Event()
        context.add_callback(done.set)
        done.wait(10)
        return b""

    @staticmethod
    def fail(request, context):
        status, text = request.decode().split(" ", 1)
        context.set_trailing_metadata([("berth-error-bin", b"\x00\xff\x01")])
        code = {c.value[0]: c for c in grpc.StatusCode}[int(status)]
        context.abort(code, text)

    @staticmethod
    def meta(request, context):
        metadata = dict(context.invocation_metadata())
        context.send_initial_metadata([("x-out", metadata["x-in"])])
        context.set_trailing_metadata([("x-out-trailer", metadata["x-in"])])
        return metadata["x-in-bin"]


def we_call_python(target, env):
    out = subprocess.run([INTEROP, "call", target], env=env, capture_output=True, text=True, timeout=60)
    check("exit", (out.returncode, out.stderr), (0, ""))
    want = [
        "Echo status=0 messages=1 bytes=5 error=0 header= trailer= message=",
        "Count status=0 messages=1000 bytes=50000 error=0 header= trailer= message=",
        "Nothing status=12 messages=0 bytes=0 error=0 header= trailer= message=Method not found!",
        "Hang status=4 messages=0 bytes=0 error=0 header= trailer= message=",
        "Fail status=5 messages=0 bytes=0 error=3 header= trailer= message=it is 100% gone \u2603",
        "Meta status=0 messages=1 bytes=2 error=0 header=text trailer=text message=",
        "Big status=0 bytes=3145728",
        "Chat status=0 messages=100",
        "Sum status=0 answer=100 1000",
    ]
    for got, line in zip(out.stdout.splitlines(), want):
        if line.startswith("Hang"):  # either side may be the first to notice
            got = got.split("message=")[0] + "message="
        check("our client", got, line)
    check("lines", len(out.stdout.splitlines()), len(want))


def read(path):
    with open(path, "rb") as f:
        return f.read()


def run(tls_dir):
    env = dict(os.environ)
    if tls_dir:
        env["BERTH_TEST_TLS"] = tls_dir
        ca = read(tls_dir + "/ca.crt")
    server = subprocess.Popen([INTEROP, "serve"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        target = "127.0.0.1:" + server.stdout.readline().strip()
        if tls_dir:
            credentials = grpc.ssl_channel_credentials(ca, read(tls_dir + "/client.key"), read(tls_dir + "/client.crt"))
            channel = grpc.secure_channel(target, credentials)
        else:
            channel = grpc.insecure_channel(target)
        with channel:
            python_calls_us(channel)
    finally:
        server.stdin.close()
        check("our server ends", server.wait(10), 0)

    python = grpc.server(futures.ThreadPoolExecutor(8), handlers=[Service()])
    if tls_dir:
        pair = (read(tls_dir + "/server.key"), read(tls_dir + "/server.crt"))
        port = python.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair], ca, True))
    else:
        port = python.add_insecure_port("127.0.0.1:0")
    python.start()
    try:
        we_call_python(f"127.0.0.1:{port}", env)
    finally:
        python.stop(None)


run(None)
with tempfile.TemporaryDirectory() as certs:
    subprocess.run([INTEROP, "certs", certs], check=True)
    run(certs)
print(f"ok: {checks} checks with grpcio {grpc.__version__}")
