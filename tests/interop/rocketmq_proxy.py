"""Starts the proxy of a real RocketMQ, and a gRPC client that reads through it.

They are a JVM and a program in an environment of its own, as `make test-slow` brings them.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.ports import free_port_block
from demo.rocketmq import OPENS, configure_log
from provision import java
from provision.places import grpc_client, rocketmq_jars, rocketmq_proxy_jars
from tests.interop.real_rocketmq import (
    DIES_WITH_THE_TESTS,
    POLL_S,
    START_TIMEOUT_S,
    RealRocketMQ,
)

CLIENT = Path(__file__).parent / "pop_client.py"


@dataclass(frozen=True)
class Proxy:
    """Where a running one is."""

    grpc: str
    remoting: str


@contextmanager
def rocketmq_proxy(work: Path, cluster: RealRocketMQ) -> Iterator[Proxy]:
    """Start a proxy of the cluster below `work`, yield when it answers, kill it at the end."""
    java_home = java.find(with_compiler=False)
    assert java_home is not None, java.missing(with_compiler=False)
    first = free_port_block(2)
    proxy = Proxy(f"127.0.0.1:{first}", f"127.0.0.1:{first + 1}")
    home = work / "proxy"
    (home / "conf").mkdir(parents=True)
    configure_log(home, "proxy")
    settings = {
        "rocketMQClusterName": "DefaultCluster",
        "namesrvAddr": cluster.name_server,
        "proxyMode": "CLUSTER",
        "grpcServerPort": first,
        "remotingListenPort": first + 1,
        "localServeAddr": "127.0.0.1",
    }
    (home / "conf" / "rmq-proxy.json").write_text(json.dumps(settings))
    command = [
        *(*DIES_WITH_THE_TESTS, str(java_home / "bin" / "java"), *OPENS, "-Xms128m", "-Xmx384m"),
        *(f"-Drocketmq.home.dir={home}", f"-Duser.home={home}", "-Djava.net.preferIPv4Stack=true"),
        *("-cp", f"{home / 'conf'}:{rocketmq_jars()}/*:{rocketmq_proxy_jars()}/*"),
        *("org.apache.rocketmq.proxy.ProxyStartup", "-pc", str(home / "conf" / "rmq-proxy.json")),
    ]
    with (work / "proxy.out").open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        _wait_for(process, proxy, work / "proxy.out")
        yield proxy
    finally:
        process.kill()
        process.wait()


def _wait_for(process: subprocess.Popen[bytes], proxy: Proxy, out: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    for address in (proxy.grpc, proxy.remoting):
        host, _, port = address.rpartition(":")
        while True:
            assert process.poll() is None, f"the proxy ended:\n{out.read_text()}"
            assert time.monotonic() < deadline, f"not up in {START_TIMEOUT_S} s"
            try:
                socket.create_connection((host, int(port)), 1).close()
                break
            except OSError:
                time.sleep(POLL_S)


@dataclass
class PopClient:
    """A running gRPC client."""

    process: subprocess.Popen[bytes]
    out: Path

    def taken(self) -> list[dict[str, Any]]:
        """Whatever it was handed so far."""
        lines = (json.loads(line) for line in self.out.read_text().splitlines() if line[:1] == "{")
        return [line for line in lines if "i" in line]


@contextmanager
def pop_client(
    work: Path, proxy: Proxy, topic: str, group: str, *rest: object
) -> Iterator[PopClient]:
    """One that sends and takes, with the further arguments of the program; killed at the end."""
    python = grpc_client() / "bin" / "python"
    assert python.exists(), "run `make setup-slow`: the gRPC client is not there"
    out = work / f"{group}.out"
    command = [*DIES_WITH_THE_TESTS, str(python), str(CLIENT), proxy.grpc, topic, group]
    with out.open("wb") as file, (work / f"{group}.err").open("wb") as errors:
        process = subprocess.Popen([*command, *map(str, rest)], stdout=file, stderr=errors)
    try:
        yield PopClient(process, out)
    finally:
        process.kill()
        process.wait()
