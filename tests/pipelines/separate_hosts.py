"""Hosts on one machine: network namespaces, joined by a bridge and by nothing else.

A process inside one reaches the others by their addresses only; its loopback ends at itself. No
root is needed: everything lies in a user namespace, and goes when the test ends, however it ends.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

MAY_NOT = (
    "this test makes network namespaces of its own by `unshare -Urn`: run it as root, or allow "
    "user namespaces (sysctl kernel.unprivileged_userns_clone=1 "
    "kernel.apparmor_restrict_unprivileged_userns=0)"
)
BRIDGE = "ip link add bridge type bridge && ip link set bridge up && echo ready && exec cat"
INSIDE = "ip link set lo up && echo ready && exec cat"
NETWORK = "10.77.0."


@dataclass(frozen=True)
class Host:
    """One of them."""

    address: str
    enter: tuple[str, ...]
    """Words before a command that let it run there; it is killed when who started it dies."""


@contextmanager
def separate_hosts(count: int) -> Iterator[list[Host]]:
    """So many hosts, with addresses of one network."""
    with ExitStack() as stack:
        network = stack.enter_context(_namespace((), "-Urn", BRIDGE))
        hosts = []
        for number in range(1, count + 1):
            inside = stack.enter_context(_namespace(_enter(network), "-n", INSIDE))
            address, port = f"{NETWORK}{number}", f"port{number}"
            peer = ("type", "veth", "peer", "name", "eth0", "netns", str(inside.pid))
            _do(network, "link", "add", port, *peer)
            _do(network, "link", "set", port, "master", "bridge", "up")
            _do(inside, "addr", "add", f"{address}/24", "dev", "eth0")
            _do(inside, "link", "set", "eth0", "up")
            hosts.append(Host(address, (*_enter(inside), "setpriv", "--pdeathsig", "KILL")))
        yield hosts


def _enter(holder: subprocess.Popen[str]) -> tuple[str, ...]:
    return ("nsenter", f"--target={holder.pid}", "-U", "-n", "--preserve-credentials")


def _do(holder: subprocess.Popen[str], *words: str) -> None:
    subprocess.run([*_enter(holder), "ip", *words], check=True)


@contextmanager
def _namespace(around: Sequence[str], kind: str, script: str) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a namespace, until its standard input ends."""
    with subprocess.Popen(
        [*around, "unshare", kind, "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stderr is not None
            if holder.stdout.readline() != "ready\n":
                raise AssertionError(f"{MAY_NOT}: {holder.stderr.read()}")
            yield holder
        finally:
            holder.kill()
