"""Nobody can block the doors for others with calls that never come to anything (issue line E2)."""
import os
import sys

from berthtest import ROOT, Api
from test_access import Access

sys.path.insert(0, os.path.join(ROOT, "tests", "hostile"))
from rig import H2, frames, raise_file_limit  # noqa: E402
from wire import ACK, DATA, END_HEADERS, HEADERS, PING, grpc, h2, headers  # noqa: E402

STREAMS = 100  # that a server takes on one connection


def begun(stream, path, token=None, message=None):
    """A call without its end: headers, and perhaps a message."""
    fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "a"), ("te", "trailers"), ("content-type", "application/grpc")]
    if token:
        fields.append(("authorization", "Bearer " + token))
    return h2(HEADERS, END_HEADERS, stream, headers(fields)) + (h2(DATA, 0, stream, grpc(message)) if message is not None else b"")


class Doors(Access):
    def setUp(self):
        super().setUp()
        self.open = []

    def tearDown(self):
        for h in self.open:
            h.close()
        super().tearDown()

    def crowd(self, c, calls, path, token=None, message=None):
        """So many calls that never end, on as many connections as that takes."""
        raise_file_limit()
        connections = []
        for at in range(0, calls, STREAMS):
            h = H2(c.grpc_address)
            self.open.append(h)
            h.s.sendall(b"".join(begun(2 * i + 1, path, token, message) for i in range(min(STREAMS, calls - at))) + h2(PING, 0, 0, b"12345678"))
            h.data = b""
            connections.append(h)
        for h in connections:  # its answer to the PING: it has seen them all
            self.read_until(h, lambda seen: any(f[0] == PING and f[1] & ACK for f in seen))
        return connections

    def read_until(self, h, enough):
        h.s.settimeout(120)
        while not enough(list(frames(h.data))):
            got = h.s.recv(65536)
            self.assertTrue(got, "the server has ended the connection")
            h.data += got

    def served(self, c):
        """Everybody else is served, at both doors."""
        self.assertEqual(Api(c.address, token=c.token).get("/v1/nodes").status, 200)
        self.assertEqual(c.ok("get", "nodes").code, 0)
        c.apply("w")
        self.assertEqual(c.api.call("DELETE", "/v1/workloads/w").status, 200)

    def places(self, c):
        return c.info()["server"].get("calls", 0)

    # R: A11 A13
    def test_strangers_with_headers_alone_block_nobody(self):
        c = self.safe()
        crowd = self.crowd(c, 20500, "/berth.v1.Control/JoinNode")
        self.assertLess(self.places(c), 100)
        self.served(c)
        # and they are not there for ever
        self.read_until(crowd[0], lambda seen: sum(f[0] == HEADERS for f in seen) == STREAMS)

    # R: A11 A13
    def test_strangers_with_a_message_and_no_end_block_nobody(self):
        c = self.safe()
        self.crowd(c, 20500, "/berth.v1.Control/GetTrust", message=b"")
        self.assertLess(self.places(c), 100)
        self.served(c)

    # R: A11 A13
    def test_a_viewer_with_requests_that_never_end_blocks_nobody(self):
        c = self.safe()
        vic = self.token(c, "vic", "--role", "viewer")
        self.crowd(c, 20500, "/berth.v1.Control/GetCluster", vic, message=b"")
        self.assertLess(self.places(c), 100)
        self.served(c)

    # R: A11 A13
    def test_relays_are_made_for_messages_only(self):
        c = self.safe()
        node = os.path.join(c.dir, "node.token")
        with open(node, "w") as f:
            f.write(self.token(c, "n1", "--role", "node"))
        c.start_agent("node-1", args=["--token-file", node])
        c.wait_nodes_ready(1)
        c.apply("w", command=["sh", "-c", "echo ahoy; exec sleep 100000"])
        c.wait_phase("w", "Running")
        vic, ola = self.token(c, "vic", "--role", "viewer"), self.token(c, "ola", "--role", "operator")
        self.crowd(c, 1100, "/berth.v1.Control/Logs", vic)
        self.crowd(c, 1100, "/berth.v1.Control/Exec", ola)
        self.assertEqual(self.metric(c, "berth_relays"), 0)
        self.assertIn("ahoy", c.ok("logs", "w").out)
        self.assertEqual(c.ok("exec", "w", "--", "echo", "aye").out, "aye\n")
