"""Rows C6, C7, A5 on a disk that is full: a real broker on a real file system of a few mebibytes.

Sends are refused and say why, reads and commits go on, space given back is used without a restart,
and over a kill and a restart nothing acknowledged is lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.foundation.limits import QUEUE_UNITS_WAITING_MAX
from engine.protocol.codes import RequestCode, ResponseCode
from tests.integration.broker.cluster import TOPIC, RawClient, eventually, messages
from tests.integration.broker.processes import TIDEMARK, Started, party, refusal, talk
from tests.integration.broker.small_disk import SmallDisk, small_disk
from tests.integration.broker.spooled import spooled

MIB = 1 << 20
QUEUES = 3
REFUSALS = 20
"""Refused sends after which a producer gives up."""
SMALL = (
    *("--set", f"mappedFileSizeCommitLog={MIB}", "--set", "maxIndexNum=2000"),
    *("--set", "maxHashSlotNum=500", "--set", "flushConsumerOffsetInterval=300"),
)
Place = tuple[int, int]
"""(queue id, queue offset)"""


@contextmanager
def broker(disk: SmallDisk, *options: str) -> Iterator[Started]:
    """A broker whose store lies on the small disk; its log does not."""
    with party(log_of(disk), *words(disk, *options), program=(*disk.enter, TIDEMARK)) as started:
        yield started


def words(disk: SmallDisk, *options: str) -> tuple[str, ...]:
    store = str(disk.path / "store")
    return ("broker", "--store", store, "--port", "0", "--namesrv", "127.0.0.1:1", *SMALL, *options)


def log_of(disk: SmallDisk) -> Path:
    return disk.path.parent / "broker.log"


def details_of(disk: SmallDisk, kind: str) -> list[str]:
    """Details of the lifecycle rows of a kind, oldest first."""
    rows = spooled(disk.outside / "store", "lifecycle")
    return [row["detail"] for row in rows if row["kind"] == kind]


async def fill_by_sends(client: RawClient) -> tuple[dict[Place, bytes], Counter[tuple[int, str]]]:
    """One producer a queue, each until it was refused often enough: what was acknowledged, and how
    often each refusal was given.
    """
    acked: dict[Place, bytes] = {}
    refused: Counter[tuple[int, str]] = Counter()

    async def produce(queue_id: int) -> None:
        number = given_up = 0
        while given_up < REFUSALS:
            body = (b"%d:%d:" % (queue_id, number)).ljust(20_000, b".")
            number += 1
            answer = await client.send(body, queue_id=queue_id)
            if answer.code == ResponseCode.SUCCESS:
                acked[queue_id, int(answer.fields["queueOffset"])] = body
            else:
                given_up += 1
                refused[answer.code, answer.remark or ""] += 1

    await asyncio.gather(*(produce(queue_id) for queue_id in range(QUEUES)))
    return acked, refused


async def stored(client: RawClient) -> dict[Place, bytes]:
    """Every queue from its beginning, as a consumer reads it."""
    found: dict[Place, bytes] = {}
    for queue_id in range(QUEUES):
        offset = 0
        while (answer := await client.pull(offset, queue_id=queue_id)).code == ResponseCode.SUCCESS:
            for message in messages(answer):
                assert (message.topic, message.queue_offset) == (TOPIC, offset)
                found[queue_id, offset] = message.body
                offset += 1
    return found


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_a_broker_lives_through_a_full_disk_and_loses_nothing_acknowledged(
    tmp_path: Path, flush: str
) -> None:
    acked: dict[Place, bytes] = {}

    async def fills(client: RawClient) -> None:
        more, refused = await fill_by_sends(client)
        acked.update(more)
        assert len(acked) > 100, "there was load"
        [(code, remark)] = refused
        assert code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "no space left on the device; free some, writes resume by themselves" in remark
        assert refused[code, remark] == QUEUES * REFUSALS
        assert await stored(client) == acked, "reads go on, and find what was acknowledged alone"

    async def refuses(client: RawClient) -> None:
        answer = await client.send(bytes(20_000))
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE

    async def reads_and_commits(client: RawClient) -> None:
        assert await stored(client) == acked
        answer = await client.commit(7)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert (await client.committed()).fields["offset"] == "7"

    async def resumes(client: RawClient) -> None:
        body = b"there is room again".ljust(20_000, b".")
        answer = await client.send(body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        acked[0, int(answer.fields["queueOffset"])] = body

    async def has_all(client: RawClient) -> None:
        assert await stored(client) == acked

    async def has_the_offset(client: RawClient) -> None:
        assert (await client.committed()).fields["offset"] == "7"

    with small_disk(tmp_path / "disk", 10 * MIB) as disk:
        (disk.outside / "ballast").write_bytes(bytes(4 * MIB))
        with broker(disk, "--flush", flush) as first:
            talk(first.address, fills)
            disk.fill()
            talk(first.address, refuses)
            talk(first.address, reads_and_commits)
            disk.free()
            talk(first.address, resumes)
            first.kill()
        assert len(details_of(disk, "DISK_FULL")) == 1, "reported once, not with every refusal"
        with broker(disk, "--flush", flush) as second:
            disk.fill()
            talk(second.address, reads_and_commits)
            disk.free()
            second.stop()
        with broker(disk, "--flush", flush) as third:
            talk(third.address, has_all)
            talk(third.address, has_the_offset)
            third.stop()
        assert "Traceback" not in log_of(disk).read_text()


def test_a_broker_killed_on_a_full_disk_starts_on_it_and_has_everything(tmp_path: Path) -> None:
    acked: dict[Place, bytes] = {}

    async def fills(client: RawClient) -> None:
        acked.update((await fill_by_sends(client))[0])

    async def has_all(client: RawClient) -> None:
        assert await stored(client) == acked

    with small_disk(tmp_path / "disk", 10 * MIB) as disk:
        (disk.outside / "ballast").write_bytes(bytes(4 * MIB))
        with broker(disk) as first:
            talk(first.address, fills)
            disk.fill()
            first.kill()
        with broker(disk) as second:
            talk(second.address, has_all)
            second.kill()
        disk.free()
        with broker(disk) as third:
            talk(third.address, has_all)
            third.stop()


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_a_broker_starts_on_a_full_disk_serves_reads_and_reports_later(
    tmp_path: Path, is_killed: bool
) -> None:
    """All that it writes at a start can wait: its spool's next segment, its tables, its notes."""
    acked: dict[Place, bytes] = {}

    async def sends(client: RawClient) -> None:
        for number in range(30):
            body = b"%d" % number
            answer = await client.send(body, queue_id=0)
            acked[0, int(answer.fields["queueOffset"])] = body
        assert (await client.commit(3)).code == ResponseCode.SUCCESS

    async def has_all(client: RawClient) -> None:
        assert await stored(client) == acked
        assert (await client.commit(5)).code == ResponseCode.SUCCESS

    with small_disk(tmp_path / "disk", 8 * MIB) as disk:
        with broker(disk) as first:
            talk(first.address, sends)
            first.kill() if is_killed else first.stop()
        boots = len(details_of(disk, "BOOT"))
        disk.fill()
        with broker(disk) as second:
            talk(second.address, has_all)
            assert len(details_of(disk, "BOOT")) == boots, "there is no room to report it"
            assert (disk.outside / "store" / "abort").exists()
            disk.free()

            async def is_reported() -> bool:
                lost = [
                    words for words in details_of(disk, "SPOOL_LOSS") if "no space left" in words
                ]
                return len(details_of(disk, "BOOT")) == boots + 1 and bool(lost)

            asyncio.run(eventually(is_reported, "the start and what was lost are reported"))
            talk(second.address, has_all)
            second.stop()
        assert "Traceback" not in log_of(disk).read_text()
        with broker(disk) as third:
            talk(third.address, has_all)
            third.stop()


def test_a_spool_that_cannot_be_for_another_reason_is_one_sentence(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "spool").write_text("not a folder")
    said = refusal("broker", "--store", str(store), "--port", "0", "--namesrv", "127.0.0.1:1")
    [sentence] = said.splitlines()
    assert sentence.startswith("tidemark broker: ")
    assert str(store / "spool") in sentence


def test_what_fits_the_log_is_kept_though_queues_and_telemetry_find_no_room(tmp_path: Path) -> None:
    """The log has its room since its file was made; consume queues and spool take theirs late."""
    acked: dict[Place, bytes] = {}

    async def begins(client: RawClient) -> None:
        answer = await client.send(b"makes the topic", queue_id=0)
        acked[0, int(answer.fields["queueOffset"])] = b"makes the topic"

    async def fills(client: RawClient) -> None:
        acked.update((await fill_by_sends(client))[0])

    async def has_all(client: RawClient) -> None:
        assert await stored(client) == acked

    with small_disk(tmp_path / "disk", 8 * MIB) as disk:
        with broker(disk) as first:
            talk(first.address, begins)
            disk.fill()
            talk(first.address, fills)
            disk.free()

            async def is_reported() -> bool:
                return bool(details_of(disk, "DISK_FULL"))

            asyncio.run(
                eventually(is_reported, "the full disk is reported when there is room for it")
            )
            first.kill()
        assert len(acked) > 20
        with broker(disk) as second:
            talk(second.address, has_all)
            second.stop()


def test_keys_are_indexed_though_the_disk_fills_and_the_broker_stops_while_it_is_full(
    tmp_path: Path,
) -> None:
    """Slots of the index lie all over its file; entries of the queue wait until memory is full."""
    count = 3 * QUEUE_UNITS_WAITING_MAX

    async def sends(client: RawClient) -> None:
        for number in range(count):
            answer = await client.send(b"%d" % number, KEYS=f"key-{number}")
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            if number == 0:
                disk.fill()

        async def is_dispatched() -> bool:
            answer = await client.pull(0)
            return int(answer.fields["maxOffset"]) >= QUEUE_UNITS_WAITING_MAX

        await eventually(is_dispatched, "what fits into memory can be read")

    async def has_all(client: RawClient) -> None:
        assert [body for _, body in sorted((await stored(client)).items())] == [
            b"%d" % number for number in range(count)
        ]
        span = {"maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 60}
        for number in range(count):
            key = f"key-{number}"
            answer = await client.ask(RequestCode.QUERY_MESSAGE, topic=TOPIC, key=key, **span)
            assert [message.body for message in messages(answer)] == [b"%d" % number]

    with small_disk(tmp_path / "disk", 8 * MIB) as disk:
        wide = ("--set", "maxHashSlotNum=100000")
        with broker(disk, *wide) as first:
            talk(first.address, sends)
            first.stop()
        assert "Traceback" not in log_of(disk).read_text()
        disk.free()
        with broker(disk, *wide) as second:
            talk(second.address, has_all)
            second.stop()


def test_a_disk_over_its_warning_ratio_refuses_sends_until_it_is_emptier(tmp_path: Path) -> None:
    quick = ("--set", "cleanResourceInterval=100", "--set", f"mappedFileSizeCommitLog={2 * MIB}")

    async def sends(client: RawClient, code: ResponseCode) -> str:
        remarks: list[str] = []

        async def answered() -> bool:
            answer = await client.send(b"hello")
            remarks.append(answer.remark or "")
            return answer.code == code

        await eventually(answered, f"a send is answered {code.name}")
        return remarks[-1]

    with small_disk(tmp_path / "disk", 16 * MIB) as disk, broker(disk, *quick) as running:
        talk(running.address, lambda client: sends(client, ResponseCode.SUCCESS))
        (disk.outside / "ballast").write_bytes(bytes(13 * MIB))
        code = ResponseCode.SERVICE_NOT_AVAILABLE
        remark = talk(running.address, lambda client: sends(client, code))
        assert "is fuller than 90%; writes resume when there is room" in remark
        assert talk(running.address, stored), "reads go on"
        disk.free()
        talk(running.address, lambda client: sends(client, ResponseCode.SUCCESS))
        running.stop()
        [detail] = details_of(disk, "DISK_FULL")
        assert detail.endswith("full, writes are refused")
