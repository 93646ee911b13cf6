"""Replication with real peers: a real slave under our master, and ours under a real master.

RocketMQ's slave never finds out that its log is longer than its master's: it is played only where
it was never ahead.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from demo.ports import free_broker_port
from demo.rocketmq import BROKER, OPENS, Installation, broker_properties, configure
from engine.protocol.bodies_admin import HaRuntimeInfo
from engine.protocol.codes import RequestCode, ResponseCode
from provision import java
from provision.places import rocketmq_jars
from tests.integration.broker.cluster import RawClient
from tests.integration.broker.spooled import spooled
from tests.interop.our_engine import our_engine
from tests.interop.real_rocketmq import jvm, real_rocketmq, wait_for_line
from tests.interop.test_observed_rocketmq import observer

TOPIC = "replicated"
FILE_BYTES = 1 << 24
MESSAGES = 200


async def send_all(address: str, first: int) -> list[int]:
    """Codes of the answers to MESSAGES sends."""
    client = RawClient(address)
    made = await client.make_topic(TOPIC)
    assert made.code == ResponseCode.SUCCESS
    codes = [
        (await client.send(b"message %d" % number * 20, topic=TOPIC)).code
        for number in range(first, first + MESSAGES)
    ]
    await client.rpc.close()
    return codes


async def ha_status(address: str) -> HaRuntimeInfo:
    client = RawClient(address)
    answer = await client.ask(RequestCode.GET_BROKER_HA_STATUS)
    await client.rpc.close()
    return HaRuntimeInfo.decode(answer.body)


def log_bytes(store: Path, size: int) -> bytes:
    """The first bytes of a commit log, over its files."""
    files = sorted((store / "commitlog").iterdir())
    return b"".join(file.read_bytes() for file in files if file.name.isdigit())[:size]


def wait_until_equal(master: Path, slave: Path, size: int, *, within_s: float = 30) -> None:
    deadline = time.monotonic() + within_s
    while log_bytes(slave, size) != log_bytes(master, size):
        assert time.monotonic() < deadline, f"the logs are not equal within {within_s} s"
        time.sleep(0.2)


@contextmanager
def real_slave(work: Path, name_server: str) -> Iterator[Path]:
    """A real broker that copies the master of `broker-a`; its store."""
    java_home = java.find(with_compiler=False)
    assert java_home is not None, java.missing(with_compiler=False)
    store = work / "store"
    properties = broker_properties(name_server, free_broker_port(), store)
    properties |= {"brokerRole": "SLAVE", "brokerId": "1"}
    properties |= {"mappedFileSizeCommitLog": str(FILE_BYTES)}
    configure(work, BROKER, properties)
    with jvm(Installation(java_home, rocketmq_jars()), work, BROKER) as broker:
        wait_for_line(broker, work / "broker.out", "boot success")
        yield store


@contextmanager
def our_slave(work: Path, name_server: str) -> Iterator[Path]:
    """A broker of ours that copies the master of `broker-a`; its store."""
    work.mkdir(parents=True)
    command = [
        *("setpriv", "--pdeathsig", "KILL", str(Path(sys.prefix) / "bin" / "tidemark"), "broker"),
        *("--store", str(work / "store"), "--namesrv", name_server, "--lake", "none"),
        *("--port", str(free_broker_port()), "--set", "brokerRole=SLAVE", "--set", "brokerId=1"),
        *("--set", f"mappedFileSizeCommitLog={FILE_BYTES}"),
    ]
    with (
        (work / "broker.log").open("w") as log,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process,
    ):
        try:
            yield work / "store"
        finally:
            process.kill()


def test_a_real_slave_copies_our_master_and_its_acknowledgement_counts(tmp_path: Path) -> None:
    options = ("--set", "brokerRole=SYNC_MASTER", "--set", f"mappedFileSizeCommitLog={FILE_BYTES}")
    with our_engine(tmp_path / "ours", *options) as engine:
        codes = asyncio.run(send_some(engine.broker))
        assert codes == {ResponseCode.FLUSH_SLAVE_TIMEOUT}, "no slave has it"
        with real_slave(tmp_path / "slave", engine.name_server) as store:
            deadline = time.monotonic() + 60
            while asyncio.run(ha_status(engine.broker)).in_sync_slave_nums == 0:
                assert time.monotonic() < deadline, "the real slave does not follow"
                time.sleep(0.5)
            assert set(asyncio.run(send_all(engine.broker, 0))) == {ResponseCode.SUCCESS}
            end = asyncio.run(ha_status(engine.broker)).master_commit_log_max_offset
            wait_until_equal(engine.store, store, end)


async def send_some(address: str) -> set[int]:
    client = RawClient(address)
    await client.make_topic(TOPIC)
    answer = await client.send(b"alone", topic=TOPIC)
    await client.rpc.close()
    return {answer.code}


def test_our_slave_copies_a_real_master(tmp_path: Path) -> None:
    settings = {"brokerRole": "ASYNC_MASTER", "mappedFileSizeCommitLog": str(FILE_BYTES)}
    with real_rocketmq(tmp_path / "real", settings) as master:
        assert set(asyncio.run(send_all(master.broker, 0))) == {ResponseCode.SUCCESS}
        with our_slave(tmp_path / "slave", master.name_server) as store:
            deadline = time.monotonic() + 60
            while not asyncio.run(ha_status(master.broker)).ha_connection_info:
                assert time.monotonic() < deadline, (tmp_path / "slave/broker.log").read_text()
                time.sleep(0.5)
            assert set(asyncio.run(send_all(master.broker, MESSAGES))) == {ResponseCode.SUCCESS}
            end = asyncio.run(ha_status(master.broker)).master_commit_log_max_offset
            wait_until_equal(master.store, store, end)


def test_mqadmin_shows_the_epochs_of_our_broker(tmp_path: Path) -> None:
    java_home = java.find(with_compiler=False)
    assert java_home is not None, java.missing(with_compiler=False)
    with our_engine(tmp_path / "ours", "--set", "brokerRole=SYNC_MASTER") as engine:
        command = [
            *(str(java_home / "bin" / "java"), "-XX:TieredStopAtLevel=1", *OPENS),
            *(f"-Duser.home={tmp_path}", "-cp", f"{rocketmq_jars()}/*"),
            *("org.apache.rocketmq.tools.command.MQAdminStartup", "getBrokerEpoch"),
            *("-n", engine.name_server, "-b", "broker-a"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    said = " ".join(done.stdout.split())
    assert "#brokerName broker-a" in said, done.stdout + done.stderr
    assert "epoch:1" in said.replace(" ", "").replace("=", ":"), said


# A third real cluster. The answer that an observer reads is decoded above, and what it reports of
# slaves is held by tests/integration/observer on brokers of ours.
@pytest.mark.slow
def test_an_observer_reports_how_far_the_slave_of_a_real_master_is(tmp_path: Path) -> None:
    settings = {"brokerRole": "SYNC_MASTER", "mappedFileSizeCommitLog": str(FILE_BYTES)}
    watched = tmp_path / "home" / "DefaultCluster" / "broker-a" / "observer"

    def reported() -> list[tuple[str, bool, bool]]:
        """(role of the master, is there a slave, has it everything) of each look."""
        rows = spooled(watched, "flush_checkpoints") if watched.exists() else []
        return [
            (row["cause"], row["replica"] is not None, row["written"] == row["flushed"])
            for row in rows
            if row["component"] == "REPLICA"
        ]

    def wait_for(what: tuple[str, bool, bool]) -> None:
        deadline = time.monotonic() + 60
        while what not in reported():
            assert time.monotonic() < deadline, f"{what} is not reported: {reported()}"
            time.sleep(0.5)

    with (
        real_rocketmq(tmp_path / "real", settings) as master,
        observer(master, tmp_path, ships=False, period_s=1),
    ):
        wait_for(("SYNC_MASTER", False, False))
        with real_slave(tmp_path / "slave", master.name_server):
            assert set(asyncio.run(send_all(master.broker, 0))) == {ResponseCode.SUCCESS}
            wait_for(("SYNC_MASTER", True, True))
    kinds = [row["kind"] for row in spooled(watched, "lifecycle")]
    assert "REPLICA_JOINED" in kinds
