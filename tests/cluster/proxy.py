#!/usr/bin/python3
"""proxy.py: the network between the processes of a test, to be broken on command.

One process stands for all links. It reads commands, one per line, and answers each with one line:

    add NAME HOST:PORT[,HOST:PORT...]   -> "NAME PORT": listens on a port of 127.0.0.1 and passes on to the first target that takes the connection
    look NAME HOST:PORT                 -> the same, and looks into what clients send (channels.py)
    set NAME MODE                       -> "ok"
    lose NAME CHANNEL[,CHANNEL...]      -> "ok": of a link that is looked into, these are lost and the others are not, until it is set to "pass"
    kinds NAME                          -> "NAME KIND...": of the connections that are there

Modes (of a link, for connections that are there and new ones):
    pass        everything goes through
    cut         nothing goes through, in either direction, and nobody is told: bytes wait, as they do in a network that loses all packets
    deaf        what the client sends arrives, what comes back does not: calls whose outcome is unknown
    mute        nothing that the client sends arrives
    refuse      connections are reset, and new ones are closed at once
    half        each connection's answers end (a FIN), requests still arrive
    delay MS    everything takes that much longer each way
"""
import asyncio
import contextlib
import socket
import struct
import sys

from channels import Sniffer

NO_LINGER = struct.pack("ii", 1, 0)  # close() sends a reset


class Link:
    def __init__(self, targets, looks=False):
        self.targets, self.mode, self.delay, self.connections, self.looks = targets, "pass", 0.0, set(), looks
        self.closed, self.lost, self.changed = (), frozenset(), asyncio.Event()
        self.set("pass")

    def tell(self):
        before, self.changed = self.changed, asyncio.Event()
        before.set()

    async def passes(self, direction, kind=None):
        """Until bytes of such a connection go through."""
        while direction in self.closed or kind in self.lost:
            await self.changed.wait()

    def lose(self, channels):
        self.lost = frozenset(channels)
        self.tell()

    def set(self, mode, value=0):
        self.mode, self.delay = mode, value / 1000 if mode == "delay" else 0.0
        self.closed = {"cut": ("there", "back"), "deaf": ("back",), "mute": ("there",)}.get(mode, ())
        if mode == "pass":
            self.lost = frozenset()
        self.tell()
        if mode in ("refuse", "half"):
            for connection in list(self.connections):
                connection.end(mode)

    async def accepted(self, reader, writer):
        if self.mode == "refuse":
            reset(writer)
            return
        await self.passes("there")
        for host, port in self.targets:
            with contextlib.suppress(OSError):
                connection = Connection(self, (reader, writer), await asyncio.open_connection(host, port, limit=1 << 18))
                await connection.run()
                return
        reset(writer)


def reset(writer):
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    writer.transport.abort()


class Connection:
    def __init__(self, link, client, server):
        self.link, self.client, self.server = link, client, server
        self.sniffer = Sniffer() if link.looks else None
        for _, writer in (client, server):
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def run(self):
        self.link.connections.add(self)
        try:
            await asyncio.gather(self.pump("there", self.client[0], self.server[1]), self.pump("back", self.server[0], self.client[1]))
        finally:
            self.link.connections.discard(self)
            reset(self.client[1])
            reset(self.server[1])

    async def pump(self, direction, reader, writer):
        try:
            while data := await reader.read(1 << 16):
                if self.sniffer and direction == "there":
                    data = self.sniffer.pass_on(data, self.link.lost)
                await self.link.passes(direction, self.kind())
                if self.link.delay:
                    await asyncio.sleep(self.link.delay)
                writer.write(data)
                await writer.drain()
            await self.link.passes(direction, self.kind())
            if writer.can_write_eof():
                writer.write_eof()
        except (OSError, RuntimeError):
            reset(self.client[1])
            reset(self.server[1])

    def kind(self):
        return self.sniffer.kind if self.sniffer else None

    def end(self, mode):
        with contextlib.suppress(OSError, RuntimeError):
            if mode == "half":
                self.client[1].write_eof()
            else:
                reset(self.client[1])
                reset(self.server[1])


async def main():
    links = {}
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := (await commands.readline()).decode().split():
        if line[0] in ("add", "look"):
            link = links[line[1]] = Link(looks=line[0] == "look", targets=[(t.rsplit(":", 1)[0], int(t.rsplit(":", 1)[1])) for t in line[2].split(",")])
            server = await asyncio.start_server(link.accepted, "127.0.0.1", 0, limit=1 << 18)
            print(line[1], server.sockets[0].getsockname()[1], flush=True)
        elif line[0] == "lose":
            links[line[1]].lose(line[2].split(","))
            print("ok", flush=True)
        elif line[0] == "kinds":
            print(line[1], *[c.kind() or "unknown" for c in links[line[1]].connections], flush=True)
        else:
            links[line[1]].set(line[2], int(line[3]) if len(line) > 3 else 0)
            print("ok", flush=True)


asyncio.run(main())
