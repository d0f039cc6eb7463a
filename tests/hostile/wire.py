"""wire: protobuf messages and HTTP/2 frames written by hand, for tests that send what no proper client would."""
import struct


def varint(v):
    v &= (1 << 64) - 1
    out = b""
    while v >= 0x80:
        out += bytes([v & 0x7f | 0x80])
        v >>= 7
    return out + bytes([v])


def msg(fields):
    """{field number: int, text, bytes (a message), bool or a list of these}"""
    out = bytearray()
    for number, value in fields.items():
        for v in value if isinstance(value, list) else [value]:
            if isinstance(v, (bool, int)):
                out += varint(number << 3) + varint(int(v))
            else:
                data = v.encode() if isinstance(v, str) else v
                out += varint(number << 3 | 2) + varint(len(data)) + data
    return bytes(out)


def entry(k, v):
    return msg({1: k, 2: v})


def token(seq, epoch=1):
    return msg({1: epoch, 2: seq})


def fixed64(number, value):
    return varint(number << 3 | 1) + struct.pack("<Q", value)


# ---- HTTP/2 ----

def h2(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def headers(pairs):
    """HPACK without tables or Huffman: literal, never indexed."""
    out = b""
    for name, value in pairs:
        out += b"\x10" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
    return out


def request(path="/t/C"):
    return headers([(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "a"), ("te", "trailers"), ("content-type", "application/grpc")])


def grpc(data, compressed=0):
    return bytes([compressed]) + struct.pack(">I", len(data)) + data


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frames(data):
    """(kind, flags, stream, payload) of each whole frame in data."""
    at = 0
    while at + 9 <= len(data):
        size = int.from_bytes(data[at:at + 3], "big")
        if at + 9 + size > len(data):
            return
        yield data[at + 3], data[at + 4], int.from_bytes(data[at + 5:at + 9], "big") & 0x7fffffff, data[at + 9:at + 9 + size]
        at += 9 + size
