"""channels.py: which of its ways to etcd a server uses, told from the bytes that it sends, so that each can fail by itself.

A server watches by one connection, keeps its lease alive by another, and commits and reads by a third (src/store/etcd_client.h). What the first message of a stream is says which:

    watch     WatchRequest{create_request}
    lease     LeaseKeepAliveRequest{id}
    commit    TxnRequest{compare, ...}
    read      RangeRequest{key, ...}

Of a connection for commits and reads only the messages that are lost are left out: their streams stay open, and no answer comes. Between members of etcd (HTTP/1) the kind of a connection
is the id of the member that opened it. In the clear only: nothing is seen of TLS.
"""
import re

PREFACE = 24
FRAME = 9
DATA = 0


def kind_of(message):
    """Of the first message of a stream, as far as it is there."""
    if message[:1] == b"\x08":  # a number: of a lease, which is a large one; of seconds, or of a revision, which are not
        return "lease" if len(message) > 7 else "other"
    if message[:1] != b"\x0a" or len(message) < 4:
        return "other"
    inner = message[2 if message[1] < 0x80 else 3:]
    if inner[:1] == b"/":
        return "read"
    return "watch" if inner[:1] == b"\x0a" else "commit"


class Sniffer:
    def __init__(self):
        self.kind = None  # of the connection: "watch", "lease", "calls", or the member that opened it
        self.rest, self.seen_preface, self.streams = b"", False, {}

    def pass_on(self, data, lost):
        """What of it goes on. Bytes of a frame that is not complete wait for the rest of it."""
        self.rest += data
        if not self.seen_preface:
            if not self.rest.startswith(b"PRI * HTTP/2.0"[:len(self.rest)]):
                return self.pass_on_peer()
            if len(self.rest) < PREFACE:
                return b""
        out = b""
        if not self.seen_preface:
            out, self.rest, self.seen_preface = self.rest[:PREFACE], self.rest[PREFACE:], True
        while len(self.rest) >= FRAME:
            length = FRAME + int.from_bytes(self.rest[:3], "big")
            if len(self.rest) < length:
                break
            frame, self.rest = self.rest[:length], self.rest[length:]
            out += b"" if self.is_lost(frame, lost) else frame
        return out

    def is_lost(self, frame, lost):
        stream = int.from_bytes(frame[5:9], "big")
        if frame[3] != DATA:
            return False
        if stream not in self.streams:
            kind = kind_of(frame[FRAME + 5:])
            self.streams[stream] = kind in lost
            if self.kind is None:
                self.kind = kind if kind in ("watch", "lease") else "calls"
        return self.streams[stream] and self.kind == "calls"

    def pass_on_peer(self):
        if self.kind is None and (found := re.search(rb"X-Server-From: ([0-9a-f]+)", self.rest)):
            self.kind = found[1].decode()
        out, self.rest = self.rest, b""
        return out
