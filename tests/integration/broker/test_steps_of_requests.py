"""No step of the loop is longer for what the tables hold: each work that goes through one is done
with some entries and with four times as many, and its longest step must stay what it was.

Counted in Python's instructions, of every step of the process while the work is under way.
"""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from engine.broker.groups.members import ClientChannel
from engine.broker.sending.deduplication import FirstCopy
from engine.broker.service_groups import offset_services, reporters
from engine.foundation.limits import (
    DISPATCH_BATCH_MAX,
    LOOP_STEP_ANSWERS_MAX,
    LOOP_STEP_ENTRIES_MAX,
    QUEUES_PER_TOPIC_MAX,
    REGISTRATION_TOPICS_MAX,
)
from engine.namesrv.routes import TOPICS_LOOKED_AT, Registration
from engine.protocol.bodies import (
    ConsumerData,
    DataVersion,
    RegisterBrokerBody,
    SubscriptionData,
    TopicConfig,
)
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.fastjson import dumps
from engine.protocol.message import Message
from engine.protocol.message_batch import encode_batch
from engine.remoting.rpc_server import RpcServer
from engine.runtime import system_runtime
from engine.store import PutResult
from engine.store.table_file import TableFile
from tests.integration.broker.cluster import (
    GROUP,
    TOPIC,
    Cluster,
    broker_config,
    cluster,
    eventually,
)
from tests.integration.broker.scraping import scraped, with_metrics
from tests.steps import (
    STEP_INSTRUCTIONS_MAX,
    heard,
    instructions_by_step,
    longest_step,
    passes_counted,
)
from tests.store_support import draft, until

HOUR_MS = 3_600_000
SLACK = 1.25
"""What else has a step meanwhile, and a longer number, may cost some instructions more."""


@dataclass(eq=False)
class End:
    """A connection of a member that is sent nothing."""

    closed: bool = False
    address: str = "10.0.0.1:1"


def channel(number: int) -> ClientChannel:
    return ClientChannel(f"c{number:05}", End(), "JAVA", 513)  # type: ignore[arg-type]


async def asked(running: Cluster, code: int, *, directory: bool = False, **fields: object) -> None:
    client = running.of_name_server() if directory else running.client()
    answer = await client.ask(code, timeout_ms=60_000, **fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def with_offsets(running: Cluster, count: int, offset: int = 0) -> None:
    state = running.broker.state
    for number in range(count):
        state.group_configs.find(f"g{number}")
        state.offsets.commit(f"g{number}", TOPIC, 0, offset, now_ms=state.clock.steady_ms())


async def consume_statistics(running: Cluster, count: int) -> Awaitable[object]:
    with_offsets(running, count)
    return asked(running, RequestCode.GET_BROKER_CONSUME_STATS, isOrder=False)


async def lowest_offsets(running: Cluster, count: int) -> Awaitable[object]:
    with_offsets(running, count)
    code = RequestCode.QUERY_CORRECTION_OFFSET
    return asked(running, code, topic=TOPIC, compareGroup="g1", filterGroups="g2")


async def groups_of_a_topic(running: Cluster, count: int) -> Awaitable[object]:
    groups = running.broker.state.groups
    for number in range(10 * count):
        data = ConsumerData(
            group_name=f"g{number}",
            subscription_data_set=[SubscriptionData.build(TOPIC, "*", sub_version=1)],
        )
        groups.register(data, channel(number), now_ms=0)
    return asked(running, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic=TOPIC)


async def all_producers(running: Cluster, count: int) -> Awaitable[object]:
    for number in range(count):
        running.broker.state.producers.register(f"p{number}", channel(number), now_ms=0)
    return asked(running, RequestCode.GET_ALL_PRODUCER_INFO)


async def offsets_held_back(running: Cluster, count: int) -> Awaitable[object]:
    """Beyond what the log holds: each is lowered on disk, and noted as that."""
    with_offsets(running, 8 * count, offset=1_000_000)
    assert running.broker._running is not None
    return running.broker._running.services.persistence.save_offsets("TIMER")


async def repeated_messages(running: Cluster, count: int) -> Awaitable[object]:
    """One by one they are compared with the first of them, some at once."""
    same = Message(TOPIC, b"again", {"UNIQ_KEY": "7F00" * 8})
    body = bytes(encode_batch([same] * (1 + count)))
    fields = {"a": "p", "b": TOPIC, "c": "TBW102", "d": 4, "e": 0, "f": 0, "h": 0, "i": ""}
    fields |= {"g": 1_700_000_000_000, "j": 0, "k": "false", "m": "true"}
    store = running.broker.state.store

    async def all_can_be_pulled() -> bool:
        return store.max_offset(TOPIC, 0) == 2 + count

    async def stored() -> None:
        answer = await running.client().ask(RequestCode.SEND_BATCH_MESSAGE, body, **fields)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        await eventually(all_can_be_pulled, "they are dispatched")

    return stored()


async def shrinking_topic(running: Cluster, count: int) -> Awaitable[object]:
    with_offsets(running, count)
    fields = {"topic": TOPIC, "defaultTopic": "TBW102", "perm": 6, "topicSysFlag": 0}
    fields |= {"readQueueNums": 2, "writeQueueNums": 2, "topicFilterType": "SINGLE_TAG"}
    return asked(running, RequestCode.UPDATE_AND_CREATE_TOPIC, **fields, order=False)


def with_readers(running: Cluster, keys: list[tuple[str, str, int]]) -> None:
    state = running.broker.state
    for key in keys:
        state.group_configs.find(key[0])
        state.offsets.commit(*key, 0, now_ms=state.clock.steady_ms())
        state.readers.arrived(key, f"c-{key[0]}", now_ms=1)
        state.stats.got(*key[:2], 1, 100)


async def deleted_topic(running: Cluster, count: int) -> Awaitable[object]:
    """Read by many groups; and another one, that stays, by as many."""
    with_readers(running, [(f"g{one}", topic, 0) for one in range(count) for topic in (TOPIC, "T")])
    copy = FirstCopy(b"", 0, PutResult(0, 0, 0, running.broker.state.clock.now_ms(), 0))
    for number in range(count):
        running.broker.state.deduplication.remember(TOPIC, f"{number}", copy)
    return asked(running, RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)


async def deleted_dead_letters(running: Cluster, count: int) -> Awaitable[object]:
    """Each is reported, when nobody has decided about it."""
    store, topic = running.broker.state.store, f"%DLQ%{GROUP}"
    running.broker.state.topics.put(TopicConfig(topic, read_queue_nums=1, write_queue_nums=1))
    for number in range(count):
        store.put(draft(b"%d is dead" % number, topic=topic, properties=""))
    await until(lambda: store.max_offset(topic, 0) == count)
    return asked(running, RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)


async def statistics_of_a_group(running: Cluster, count: int) -> Awaitable[object]:
    with_readers(running, [("g", f"T{number}", 0) for number in range(count)])
    for number in range(count):
        running.broker.state.topics.put(
            TopicConfig(f"T{number}", read_queue_nums=1, write_queue_nums=1)
        )
    return asked(running, RequestCode.GET_CONSUME_STATS, consumerGroup="g")


async def deleted_group(running: Cluster, count: int) -> Awaitable[object]:
    with_readers(running, [(group, f"T{one}", 0) for one in range(count) for group in ("g", "h")])
    return asked(running, RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="g", cleanOffset=True)


async def test_queues_that_were_pulled_are_noted_some_at_a_time(tmp_path: Path) -> None:
    pulled = 4 * LOOP_STEP_ENTRIES_MAX
    async with cluster(broker_config(tmp_path)) as running:
        readers = running.broker.state.readers
        for number in range(pulled):
            readers.arrived((f"g{number}", TOPIC, 0), f"c{number}", now_ms=1)
        state = running.broker.state
        windows = reporters(state, offset_services(state, None)).client_windows
        steps = instructions_by_step(windows.due(HOUR_MS))
        assert len(steps) == 1 + 1 + 2 * pulled // LOOP_STEP_ENTRIES_MAX, "noted, then looked at"
        assert max(steps) <= STEP_INSTRUCTIONS_MAX


@pytest.mark.parametrize(
    "work",
    [
        *(consume_statistics, lowest_offsets, groups_of_a_topic, all_producers),
        *(offsets_held_back, shrinking_topic, deleted_topic, deleted_group),
        *(deleted_dead_letters, statistics_of_a_group),
    ],
)
async def test_what_goes_through_a_table_of_a_broker_has_steps_of_one_length(
    tmp_path: Path, work: Callable[[Cluster, int], Awaitable[Awaitable[object]]]
) -> None:
    longest = []
    for count in (500, 2000):
        quiet = broker_config(
            tmp_path / f"{count}",
            sample_interval_ms=HOUR_MS,
            full_sample_interval_ms=100_000 * HOUR_MS,
            flush_consumer_offset_interval_ms=HOUR_MS,
        )
        async with cluster(quiet) as running:
            await running.client().send()
            longest.append(await longest_step(await work(running, count)))
    assert longest[1] <= SLACK * longest[0] + 4000, longest
    assert max(longest) <= STEP_INSTRUCTIONS_MAX


async def test_a_topic_of_many_queues_is_deleted_some_of_them_at_a_time(tmp_path: Path) -> None:
    queues = 1024
    config = broker_config(tmp_path, sample_interval_ms=HOUR_MS)
    store = replace(config.store, flush_consume_queues_at_once=queues)
    async with cluster(replace(config, store=store)) as running:
        folder = Path(store.root) / "consumequeue" / TOPIC
        for queue_id in range(queues):
            running.broker.state.store.put(draft(b"x", topic=TOPIC, queue_id=queue_id))

        async def all_are_written() -> bool:
            return folder.exists() and len(list(folder.glob("*/*"))) == queues

        await eventually(all_are_written, "each queue has its file")
        work = asked(running, RequestCode.DELETE_TOPIC_IN_BROKER, topic=TOPIC)
        longest = await longest_step(work)
        assert not folder.exists()
    assert longest <= STEP_INSTRUCTIONS_MAX * queues // QUEUES_PER_TOPIC_MAX


async def test_messages_that_come_again_are_compared_some_at_once(tmp_path: Path) -> None:
    longest = []
    for count in (DISPATCH_BATCH_MAX, 4 * DISPATCH_BATCH_MAX):
        config = broker_config(tmp_path / f"{count}", log_bytes=8 << 20)
        store = replace(config.store, max_hash_slot_count=100_000, max_index_count=100_000)
        async with cluster(replace(config, store=store)) as running:
            await running.client().send()
            longest.append(await longest_step(await repeated_messages(running, count)))
    assert longest[1] <= SLACK * longest[0] + 4000, longest
    assert max(longest) <= 2 * STEP_INSTRUCTIONS_MAX


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
        (RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "c"}),
        (RequestCode.GET_UNIT_TOPIC_LIST, {}),
    ],
)
async def test_a_name_server_lists_topics_in_steps_of_one_length(
    tmp_path: Path, code: RequestCode, fields: dict[str, object]
) -> None:
    longest = []
    for count in (TOPICS_LOOKED_AT, 4 * TOPICS_LOOKED_AT):
        async with cluster(broker_config(tmp_path / f"{count}")) as running:
            topics = {f"T{one}": TopicConfig(f"T{one}", 1, 1, 6) for one in range(count)}
            running.name_server.routes.register(
                Registration("c", "other", 0, "10.0.0.1:1", ""),
                topics,
                DataVersion(0, 1, 1),
                connection=None,
                now_ms=system_runtime().clock.steady_ms(),
            )
            work = asked(running, code, directory=True, **fields)
            longest.append(await longest_step(work))
    assert longest[1] <= SLACK * longest[0] + 4000, longest
    assert max(longest) <= STEP_INSTRUCTIONS_MAX


async def test_a_broker_of_many_topics_encodes_them_part_by_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded_in: list[int] = []
    async with cluster(broker_config(tmp_path)) as running, passes_counted() as passes:
        for number in range(2 * REGISTRATION_TOPICS_MAX):
            running.broker.state.topics.put(TopicConfig(f"T{number}"))
        assert running.broker._running is not None
        heard(monkeypatch, RegisterBrokerBody, "encode", lambda body: encoded_in.append(passes()))
        await running.broker._running.services.registration.register()
        served = running.name_server.routes.route(f"T{2 * REGISTRATION_TOPICS_MAX - 1}")
        assert served is not None, "all of them are reported"
    assert len(encoded_in) == len(set(encoded_in)) == 3


async def all_open(server: RpcServer, count: int) -> None:
    await until(lambda: len(server._connections) == count)


async def test_connections_that_fell_silent_are_closed_some_at_a_time() -> None:
    longest = []
    for count in (2 * LOOP_STEP_ANSWERS_MAX, 6 * LOOP_STEP_ANSWERS_MAX):
        server = RpcServer(system_runtime(), {}, idle_ms_max=0, idle_check_ms=HOUR_MS)
        port = await server.start("127.0.0.1", 0)
        ends = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
        await all_open(server, count)
        await asyncio.sleep(0.01)  # Longer than may pass without a word.
        longest.append(await longest_step(asyncio.create_task(server._close_silent())))
        for reader, writer in ends:
            assert await reader.read() == b""
            writer.close()
        await server.stop()
    assert longest[1] <= SLACK * longest[0] + 4000, longest
    assert max(longest) <= STEP_INSTRUCTIONS_MAX


async def test_no_checksum_of_a_table_is_made_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = bytes(dumps({f"{number}": "x" * 100 for number in range(1000)}))
    made_by = []

    def noted(data: bytes, value: int = 0) -> None:
        if len(data) >= len(table) // 2:
            made_by.append(threading.current_thread())

    file = TableFile(system_runtime(), f"{tmp_path}/table.json", "store")
    heard(monkeypatch, zlib, "crc32", noted)
    await file.write_sealed(table)
    assert len(made_by) >= 2, "the seal's, and the one that is reported"
    assert threading.main_thread() not in made_by


async def test_a_page_of_metrics_is_written_some_pieces_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    transport = asyncio.selector_events._SelectorSocketTransport  # type: ignore[attr-defined]
    async with cluster(with_metrics(tmp_path)) as running:
        await running.client().send()
        with_offsets(running, 4000)
        address = running.broker.metrics_address
        assert address is not None
        heard(monkeypatch, transport, "write", lambda to, data: written.append(len(data)))
        page = await scraped(address)
        monkeypatch.undo()
    assert "g3999" in page
    assert max(written) <= 1 << 20
    assert max(written) < len(page) / 2
