"""namespaces.py: the network between the processes of a test as real network namespaces on a bridge, where the machine allows it (root, `ip netns`).

A cut between two hosts gives each a wrong hardware address for the other: packets leave and reach nobody, and no error comes back, as on a broken switch. Unlike the proxy it also cuts
members of etcd from each other.
"""
import os
import subprocess
import uuid

NOBODY = "02:00:00:00:00:01"  # no interface has it


def ip(*args, check=True):
    return subprocess.run(["ip", *args], check=check, capture_output=True, text=True)


def are_allowed():
    """Whether this machine lets us make them; and why not."""
    name = f"bt{uuid.uuid4().hex[:6]}"
    try:
        ip("netns", "add", name)
        try:
            ip("link", "add", name, "type", "veth", "peer", "name", name + "p")
            ip("link", "del", name)
        finally:
            ip("netns", "del", name)
        return None
    except (OSError, subprocess.CalledProcessError) as e:
        return (getattr(e, "stderr", None) or str(e)).strip().splitlines()[0]


class Namespaces:
    """Hosts with an address each. Link names are "a-b"; modes pass, cut (both ways), deaf (what b sends is lost on its way to a), mute (what a sends)."""

    def __init__(self):
        self.tag = "bt" + uuid.uuid4().hex[:6]
        self.subnet = f"10.{64 + os.getpid() % 128}.{int(self.tag[-4:], 16) % 250 + 1}"
        self.hosts = {}
        ip("link", "add", self.tag, "type", "bridge")
        ip("addr", "add", f"{self.subnet}.254/24", "dev", self.tag)
        ip("link", "set", self.tag, "up")

    def add_host(self, name):
        """Its address."""
        number = len(self.hosts) + 1
        ns, veth, address = f"{self.tag}-{name}", f"{self.tag}v{number}", f"{self.subnet}.{number}"
        self.hosts[name] = (ns, address)
        ip("netns", "add", ns)
        ip("link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", ns)
        ip("link", "set", veth, "master", self.tag, "up")
        for args in (["link", "set", "lo", "up"], ["addr", "add", f"{address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"]):
            ip("-n", ns, *args)
        return address

    def inside(self, name):
        """What to put before a command so that it runs there."""
        return ["ip", "netns", "exec", self.hosts[name][0]]

    def lose(self, sender, receiver, lost):
        ns, address = self.hosts[sender][0], self.hosts[receiver][1]
        if lost:
            ip("-n", ns, "neigh", "replace", address, "lladdr", NOBODY, "dev", "eth0", "nud", "permanent")
        else:
            ip("-n", ns, "neigh", "del", address, "dev", "eth0", check=False)

    def set(self, names, mode, ms=0):
        if mode not in ("pass", "cut", "deaf", "mute"):
            raise ValueError(f"{mode} needs the proxy")
        for name in [names] if isinstance(names, str) else names:
            a, b = self.ends(name)
            self.lose(a, b, mode in ("cut", "mute"))
            self.lose(b, a, mode in ("cut", "deaf"))

    def ends(self, name):
        for a in self.hosts:
            if name.startswith(a + "-") and name[len(a) + 1:] in self.hosts:
                return a, name[len(a) + 1:]
        raise KeyError(name)

    def of(self, name, kind=""):
        """Names of the links of a host to those whose names begin with kind."""
        return [f"{name}-{other}" for other in self.hosts if other != name and other.startswith(kind)]

    def heal(self):
        for a in self.hosts:
            for b in self.hosts:
                if a != b:
                    self.lose(a, b, False)

    def close(self):
        for i, (ns, _) in enumerate(self.hosts.values()):
            ip("link", "del", f"{self.tag}v{i + 1}", check=False)  # a namespace itself goes only with its last process
            ip("netns", "del", ns, check=False)
        ip("link", "del", self.tag, check=False)
