"""Starts a real Apache RocketMQ on 127.0.0.1: name server and broker as two JVMs.

They run from the pinned jars.

It is the peer our client library is tested against, and the reference on which the Java checks were
tried.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from demo.ports import free_broker_port, free_port_block
from demo.rocketmq import (
    BROKER,
    NAME_SERVER,
    Installation,
    Party,
    broker_properties,
    configure,
)
from provision import java
from provision.places import rocketmq_jars

START_TIMEOUT_S = 90
STOP_TIMEOUT_S = 60
POLL_S = 0.2

# A test run that is killed itself leaves no broker behind.
DIES_WITH_THE_TESTS = ("setpriv", "--pdeathsig", "KILL")

SOON_ROUTED, AS_SHIPPED = ({"registerNameServerPeriod": ms} for ms in ("10000", "30000"))
"""A topic made while a broker registers is routed at its next registration."""
RECALLING = {"recallMessageEnable": "true"}
"""Messages that wait for their time may be taken back."""
QUICK_TRANSACTIONS = {
    "transactionTimeOut": "2000",
    "transactionOpBatchInterval": "200",
    "transactionCheckInterval": "1500",
}
"""Questions sooner than after half a minute. Its op messages must be written sooner still: with
4500, 2000 and its own 3000 it asked about what had ended, and delivered thrice.
"""

SOON_UP = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""None of them lives long enough to earn what the second compiler costs."""


@dataclass(frozen=True)
class RealRocketMQ:
    """Addresses of a running cluster of one name server and one broker, `broker-a` of
    `DefaultCluster`.
    """

    name_server: str
    broker: str
    store: Path
    broker_process_id: int = 0
    """Of the broker's JVM, once it runs."""


@contextmanager
def real_rocketmq(
    work: Path,
    settings: Mapping[str, str] | None = None,
    *,
    clean_stop: bool = False,
    jars: Path | None = None,
    options: Sequence[str] = (),
) -> Iterator[RealRocketMQ]:
    """Start name server and broker below `work`, yield when the broker has registered, stop both at
    the end; with `clean_stop` the broker gets the time to close its store, `work`/store.

    `settings` are further lines of the broker's configuration, such as `{"flushDiskType":
    "SYNC_FLUSH"}`; `jars` those of another version; `options` further ones of both JVMs.
    """
    java_home = java.find(with_compiler=False)
    assert java_home is not None, java.missing(with_compiler=False)
    installation = Installation(java_home, jars or rocketmq_jars())
    name_server_port, broker_port = free_port_block(1), free_broker_port()
    cluster = RealRocketMQ(
        name_server=f"127.0.0.1:{name_server_port}",
        broker=f"127.0.0.1:{broker_port}",
        store=work / "store",
    )
    properties = broker_properties(cluster.name_server, broker_port, cluster.store)
    configure(work, NAME_SERVER, {"listenPort": str(name_server_port)})
    configure(work, BROKER, properties | SOON_ROUTED | QUICK_TRANSACTIONS | dict(settings or {}))
    with jvm(installation, work, NAME_SERVER, options) as name_server:
        wait_for_line(name_server, work / "namesrv.out", "boot success")
        with jvm(installation, work, BROKER, options) as broker:
            wait_for_line(broker, work / "broker.out", "boot success")
            yield replace(cluster, broker_process_id=broker.pid)
            if clean_stop:
                broker.terminate()
                broker.wait(STOP_TIMEOUT_S)


@contextmanager
def jvm(
    installation: Installation, work: Path, party: Party, options: Sequence[str] = ()
) -> Iterator[subprocess.Popen[bytes]]:
    """Run one party as a process whose output goes to `<party>.out`.

    It is killed at the end: a clean stop takes the broker up to 20 s, and nobody reads its store
    again.
    """
    java, *rest = installation.party_command(party, work)
    command = [*DIES_WITH_THE_TESTS, java, *SOON_UP, *options, *rest]
    with (work / f"{party.name}.out").open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for_line(process: subprocess.Popen[bytes], out: Path, words: str) -> None:
    """Wait until `words` stand in the output file; fail with that output when they do not come."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while words not in (text := out.read_text(errors="replace")):
        assert process.poll() is None, f"{out.stem} ended with {process.returncode}:\n{text}"
        assert time.monotonic() < deadline, f"{out.stem} not up in {START_TIMEOUT_S} s:\n{text}"
        time.sleep(POLL_S)
