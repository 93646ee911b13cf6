"""The engine as a process: it stops cleanly, is killed, finds its data again, and says what it
cannot do in one sentence."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.protocol.codes import RequestCode, ResponseCode
from tests.integration.broker.cluster import TOPIC, RawClient, bodies, eventually
from tests.integration.broker.processes import party
from tests.integration.broker.spooled import picked, spooled

TIDEMARK = str(Path(sys.prefix) / "bin" / "tidemark")
READY = re.compile(r"ready namesrv=(\S+:\d+) broker=(\S+:\d+)\n")
QUICK = ("--set", "mappedFileSizeCommitLog=1048576", "--set", "maxIndexNum=1000")


@contextmanager
def engine(store: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`tidemark engine` on free ports, with the broker's address; killed at the end if need be."""
    command = [TIDEMARK, "engine", "--store", str(store), "--namesrv-port", "0"]
    command += ["--broker-port", "0", *QUICK, *options]
    errors = store.parent / "engine.log"
    with (
        errors.open("a") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            ready = READY.fullmatch(line)
            assert ready, f"{line!r} is not the ready line:\n{errors.read_text()}"
            yield process, ready[2]
        finally:
            process.kill()


def talk(address: str, story: object) -> None:
    """Run `story(client)` with a client of the broker at `address`."""

    async def run() -> None:
        client = RawClient(address)
        try:
            await story(client)  # type: ignore[operator]
        finally:
            await client.close()

    asyncio.run(run())


async def send_ten(client: RawClient) -> None:
    for number in range(10):
        assert (await client.send(f"m{number}".encode())).code == ResponseCode.SUCCESS


TEN = [f"m{number}".encode() for number in range(10)]


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_messages_topics_and_offsets_survive_a_clean_stop_which_ends_with_zero(
    tmp_path: Path, flush: str
) -> None:
    async def before(client: RawClient) -> None:
        await send_ten(client)
        await client.heartbeat()
        await client.pull(0)
        await client.commit(7)

    async def after(client: RawClient) -> None:
        assert bodies(await client.pull(0)) == TEN
        assert (await client.committed()).fields["offset"] == "7"

    store = tmp_path / "store"
    with engine(store, "--flush", flush) as (process, address):
        talk(address, before)
        process.terminate()
        assert process.wait(30) == 0
    saved = json.loads((store / "config" / "consumerOffset.json").read_text())
    assert saved["offsetTable"][f"{TOPIC}@orders-group"] == {"0": 7}
    assert not (store / "abort").exists()
    with engine(store, "--flush", flush) as (process, address):
        talk(address, after)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    boots = [row for row in spooled(store, "lifecycle") if row["kind"] == "BOOT"]
    assert [row["clean"] for row in boots] == [True, True]


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_after_a_kill_answered_messages_are_there_and_what_is_delivered_again_is_reported(
    tmp_path: Path, flush: str
) -> None:
    async def before(client: RawClient) -> None:
        await send_ten(client)
        await client.heartbeat()
        assert bodies(await client.pull(0)) == TEN
        assert (await client.commit(8)).code == ResponseCode.SUCCESS

    async def after(client: RawClient) -> None:
        committed = await client.committed()
        begin = int(committed.fields.get("offset", 0))
        assert begin in (0, 8), "what was persisted before the kill, and nothing else"
        await client.heartbeat()
        assert bodies(await client.pull(begin)) == TEN[begin:]

    store = tmp_path / "store"
    with engine(store, "--flush", flush) as (process, address):
        talk(address, before)
        process.kill()
        process.wait(30)
    (reported,) = spooled(store, "consume_offsets")
    assert picked(reported, "offset", "path") == (8, "COMMIT_RPC"), (
        "reported before it was answered"
    )
    with engine(store, "--flush", flush) as (process, address):
        talk(address, after)
        process.terminate()
        assert process.wait(30) == 0
    boots = [row for row in spooled(store, "lifecycle") if row["kind"] == "BOOT"]
    assert [row["clean"] for row in boots] == [True, False]
    (again,) = spooled(store, "redeliveries")
    assert picked(again, "to_offset", "client_id", "previous_client_id") == (
        10,
        "127.0.0.1@raw",
        "127.0.0.1@raw",
    )


def test_a_damaged_offset_file_falls_back_to_the_one_before_and_is_reported(tmp_path: Path) -> None:
    async def commit(client: RawClient) -> None:
        await send_ten(client)
        await client.heartbeat()
        await client.pull(0)
        await client.commit(3)

    async def look(client: RawClient) -> None:
        assert (await client.committed()).fields["offset"] == "3"

    store = tmp_path / "store"
    with engine(store) as (process, address):
        talk(address, commit)
        process.terminate()
        assert process.wait(30) == 0
    offsets = store / "config" / "consumerOffset.json"
    offsets.with_suffix(".json.bak").write_bytes(offsets.read_bytes())
    offsets.write_bytes(b'{"offsetTable":{"orders@orders-group":{0:3')
    with engine(store) as (process, address):
        talk(address, look)
        process.terminate()
        assert process.wait(30) == 0
    (damaged,) = [row for row in spooled(store, "lifecycle") if row["kind"] == "DAMAGED_FILE"]
    assert "consumerOffset.json is damaged" in damaged["detail"]
    assert offsets.with_suffix(".json.damaged").exists(), "kept for whoever wants to look"


def refusal(*arguments: str) -> str:
    """The sentence with which a command refuses to run."""
    done = subprocess.run(
        [TIDEMARK, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr.strip().splitlines()[-1]


def test_a_store_in_use_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with engine(tmp_path / "store"):
        said = refusal("broker", "--store", str(tmp_path / "store"), "--port", "0")
    assert "another process" in said
    assert str(tmp_path / "store") in said


def test_a_port_in_use_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = refusal("broker", "--store", str(tmp_path / "store"), "--port", port, *QUICK)
        assert port in said
        assert "free port" in said
        assert port in refusal("namesrv", "--port", port)


def test_an_address_others_can_reach_needs_to_be_meant(tmp_path: Path) -> None:
    said = refusal("engine", "--store", str(tmp_path / "store"), "--host", "0.0.0.0")
    assert "--allow-remote" in said


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("noSuchKey=1", "noSuchKey"),
        ("defaultTopicQueueNums=many", "defaultTopicQueueNums='many'"),
        ("mappedFileSizeCommitLog=1", "mappedFileSizeCommitLog=1"),
        ("autoCreateTopicEnable=maybe", "'maybe' is not allowed: one of true"),
        ("nonsense", "key=value"),
        ("messageDelayLevel=1s 5x", "'5x' is not a number with"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(tmp_path: Path, setting: str, complaint: str) -> None:
    store = str(tmp_path / "store")
    assert complaint in refusal("broker", "--store", store, "--port", "0", "--set", setting)


def test_a_name_server_without_a_port_is_refused(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    said = refusal("broker", "--store", store, "--port", "0", "--namesrv", "localhost")
    assert "namesrvAddr='localhost' is not allowed: host:port" in said


def test_a_lake_nothing_could_read_is_refused_before_anything_starts(tmp_path: Path) -> None:
    for command in (("engine", "--namesrv-port", "0"), ("broker", "--port", "0")):
        said = refusal(*command, "--store", str(tmp_path / "store"), "--lake", "bogus://x")
        assert "lake='bogus://x' is not allowed: a folder, file://... or s3://..." in said
    assert not (tmp_path / "store").exists()


def test_a_broker_serves_without_its_name_server_and_registers_soon_after_it_came(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        names = f"127.0.0.1:{nobody.getsockname()[1]}"
    log = tmp_path / "log"
    options = ("broker", "--store", str(tmp_path / "store"), "--port", "0", *QUICK)

    async def known(client: RawClient) -> None:
        async def has_route() -> bool:
            asked = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=TOPIC)
            return asked.code == ResponseCode.SUCCESS

        await eventually(
            has_route, "registered before its next round, which is 30 s away", within_s=20
        )

    with party(log, *options, "--namesrv", names) as broker:
        talk(broker.address, send_ten)
        with party(log, "namesrv", "--port", names.rpartition(":")[2]):
            talk(names, known)
