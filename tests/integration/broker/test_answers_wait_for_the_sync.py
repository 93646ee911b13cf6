"""Every request that stores something, asked of a broker whose syncs, or whose replica's answers,
are withheld: none of them is answered success before what it stored is safe.

`STORING` below says of each code how it comes to store. A handler that stores under a code that is
not there fails the last tests of this file, so that none is added without its request.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import engine.broker
from engine.broker.handler_table import handler_table
from engine.broker.sending.timers import Handle
from engine.broker.transactions.half_records import given_up
from engine.foundation.units import HOUR_MS
from engine.protocol.codes import RequestCode as Code
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.message_ids import offset_message_id
from engine.protocol.message_record import decode_record
from engine.remoting import Handler, Peer, RpcClient
from engine.runtime import system_runtime
from engine.store import FlushDiskType
from tests.failing_disk import FailingDisk
from tests.integration.broker.cluster import GROUP, TOPIC, Cluster, broker_config, cluster
from tests.integration.broker.test_access_by_code import batch_of_one, request_body, request_fields
from tests.integration.broker.test_timers import now_ms
from tests.integration.broker.transactor import COMMIT, ROLLBACK, Half, Transactor
from tests.unit.broker.fake_replica import FakeReplica

ONCE = "stored-once"
"""A topic with deduplication."""
REPLIES = "DefaultCluster_REPLY_TOPIC"
EARLY_S = 0.3
"""An answer that does not wait for the sync is here long before."""

Ask = Callable[[], Awaitable[RemotingCommand]]


@dataclass
class Scene:
    """A broker with something of everything, and its disk."""

    running: Cluster
    disk: FailingDisk
    first_offset: int
    """Where the first message of TOPIC is."""
    halves: list[Half]
    given_up_id: str

    def requests(self) -> Iterator[tuple[Code, str, Ask]]:
        """Each request that stores: its code, what it is, and how it is sent."""
        client = self.running.client()
        transactor = Transactor(client)
        fields: dict[str, Any] = request_fields(TOPIC, GROUP, self.first_offset)

        def sends(name: str, **more: Any) -> tuple[Code, str, Ask]:
            code = Code(more.pop("code", Code.SEND_MESSAGE))
            return code, name, lambda: client.send(code=code, **more)

        def ends(half: Half, how: int, name: str) -> tuple[Code, str, Ask]:
            return Code.END_TRANSACTION, name, lambda: transactor.end(half, how)

        yield sends("plain")
        yield sends("to be delayed", DELAY=1)
        in_an_hour = now_ms() + HOUR_MS
        yield sends("to appear in an hour", TIMER_DELIVER_MS=in_an_hour, UNIQ_KEY="T")
        handle = Handle(TOPIC, self.running.broker.state.node.config.broker_name, in_an_hour, "T")
        recall: dict[str, Any] = {"topic": TOPIC, "recallHandle": handle.to_text()}
        yield Code.RECALL_MESSAGE, "a recall", lambda: client.ask(Code.RECALL_MESSAGE, **recall)
        yield sends("half", TRAN_MSG="true", PGROUP="p", sysFlag=4)
        yield sends("a consumer's own copy", topic=f"%RETRY%{GROUP}", WAIT="false")
        yield sends("once", topic=ONCE, UNIQ_KEY="A")
        yield sends("the same once more", topic=ONCE, UNIQ_KEY="A")
        yield Code.SEND_MESSAGE_V2, "v2", lambda: client.ask(Code.SEND_MESSAGE_V2, b"x", **fields)
        batch = batch_of_one()
        yield (
            Code.SEND_BATCH_MESSAGE,
            "batch",
            lambda: client.ask(Code.SEND_BATCH_MESSAGE, batch, **fields),
        )
        yield sends("reply", code=Code.SEND_REPLY_MESSAGE, topic=REPLIES, REPLY_TO_CLIENT="asker")
        reply: dict[str, Any] = request_fields(REPLIES, GROUP) | {
            "i": "REPLY_TO_CLIENT\x01asker\x02"
        }
        yield (
            Code.SEND_REPLY_MESSAGE_V2,
            "reply v2",
            lambda: client.ask(Code.SEND_REPLY_MESSAGE_V2, b"x", **reply),
        )
        back: dict[str, Any] = {"group": GROUP, "offset": self.first_offset, "delayLevel": 0}
        yield (
            Code.CONSUMER_SEND_MSG_BACK,
            "sent back",
            lambda: client.ask(Code.CONSUMER_SEND_MSG_BACK, **back),
        )
        yield (
            Code.CONSUMER_SEND_MSG_BACK,
            "a dead letter",
            lambda: client.ask(Code.CONSUMER_SEND_MSG_BACK, **back | {"delayLevel": -1}),
        )
        first, second = self.halves
        yield ends(first, COMMIT, "commit")
        yield ends(first, COMMIT, "the same commit again")
        yield ends(second, ROLLBACK, "rollback")
        yield ends(second, ROLLBACK, "the same rollback again")
        yield (
            Code.RESUME_CHECK_HALF_MESSAGE,
            "begun anew",
            lambda: client.ask(Code.RESUME_CHECK_HALF_MESSAGE, msgId=self.given_up_id),
        )


STORING = {
    *(Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE),
    *(Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2, Code.CONSUMER_SEND_MSG_BACK),
    *(Code.END_TRANSACTION, Code.RESUME_CHECK_HALF_MESSAGE, Code.RECALL_MESSAGE),
}


@asynccontextmanager
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    disk = FailingDisk()
    config = broker_config(
        tmp_path,
        flush=FlushDiskType.SYNC_FLUSH,
        sync_flush_timeout_ms=60_000,
        telemetry=False,
        transaction_check_interval_ms=600_000,
        transaction_op_batch_interval_ms=3_000,
        recall_message_enable=True,
    )
    async with cluster(config, replace(system_runtime(), disk=disk)) as running:
        client, asker = running.client(), running.client("asker")

        def take(_peer: Peer, request: RemotingCommand) -> RemotingCommand:
            return request.respond(ResponseCode.SUCCESS)

        asker.rpc = RpcClient(system_runtime(), {Code.PUSH_REPLY_MESSAGE_TO_CLIENT: take})
        await Transactor(asker).register("askers")
        await client.heartbeat()
        once: dict[str, Any] = request_fields(ONCE, GROUP) | {
            "readQueueNums": 1,
            "writeQueueNums": 1,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
            "attributes": "+message.deduplication=true",
        }
        made = await client.ask(Code.UPDATE_AND_CREATE_TOPIC, **once)
        assert made.code == ResponseCode.SUCCESS, made.remark
        sent = await client.send(b"first")
        first_offset = int(sent.fields["msgId"][16:], 16)
        for level in (0, -1):  # Makes the topics of failed messages.
            back = await client.ask(
                Code.CONSUMER_SEND_MSG_BACK, group=GROUP, offset=first_offset, delayLevel=level
            )
            assert back.code == ResponseCode.SUCCESS, back.remark
        transactor, state = Transactor(client), running.broker.state
        halves = [await transactor.begin(key) for key in ("committed", "rolled back", "given up")]
        record = state.store.record_at(halves[-1].physical_offset)
        assert record is not None
        kept = state.store.put(given_up(decode_record(record)))
        given_up_id = offset_message_id(state.node.address, kept.physical_offset)
        assert (await client.send(b"all before is synced")).code == ResponseCode.SUCCESS
        await running.broker.services.persistence.save_settings()
        try:
            yield Scene(running, disk, first_offset, halves[:2], given_up_id)
        finally:
            if disk.hold_syncs is not None:
                disk.hold_syncs.set()


@pytest.mark.parametrize("withheld", ["sync", "replica"])
async def test_no_request_that_stores_is_answered_success_before_it_is_safe(
    tmp_path: Path, withheld: str
) -> None:
    async with scene(tmp_path) as held:
        state, replica = held.running.broker.state, FakeReplica()
        held.disk.hold_syncs = asyncio.Event()
        if withheld == "replica":
            held.disk.hold_syncs.set()
            state.safety.conditions = (*state.safety.conditions, replica.condition())
        held.running.broker.state.store.put(  # Its sync is under way, and held.
            given_up(decode_record(await record_of(held)))
        )
        waiting: dict[str, asyncio.Task[RemotingCommand]] = {}
        asked = set()
        for code, name, ask in held.requests():
            asked.add(code)
            waiting[name] = asyncio.ensure_future(ask())
            await asyncio.wait([waiting[name]], timeout=EARLY_S)
        early = {name: task.result() for name, task in waiting.items() if task.done()}
        answered = [f"{name}: {answer.code} {answer.remark}" for name, answer in early.items()]
        assert not answered, f"answered before it is safe: {answered}"
        held.disk.hold_syncs.set()
        replica.acknowledge(state.node.term, state.store.physical_max)
        for name, task in waiting.items():
            answer = await task
            assert answer.code == ResponseCode.SUCCESS, (name, answer.remark)
        assert asked == STORING


async def record_of(held: Scene) -> bytes:
    record = held.running.broker.state.store.record_at(held.halves[0].physical_offset)
    assert record is not None
    return bytes(record)


async def test_no_other_request_stores_anything(tmp_path: Path) -> None:
    async with scene(tmp_path) as open_scene:
        client, store = open_scene.running.client(), open_scene.running.broker.state.store
        fields: dict[str, Any] = request_fields(TOPIC, GROUP, open_scene.first_offset)
        storing = []
        for code in sorted(set(Code) - STORING):
            before = store.physical_max
            await client.ask(code, request_body(code, TOPIC, GROUP), **fields)
            if store.physical_max != before:
                storing.append(code.name)
        assert not storing, f"{storing} store messages: say in STORING how"


def whole_table(running: Cluster) -> dict[int, Handler]:
    """The handlers of a broker, made once more."""
    return handler_table(running.broker.state, running.broker.services)


PUTTING = re.compile(r"(store|placement|durability)\.put(_batch)?|half_queue\.\w+")
"""Calls that may bring something into the log."""


def puts_in(source: str) -> set[str]:
    """The calls in it that may put."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    names = [ast.unparse(call.func) for call in calls]
    return {name for name in names if PUTTING.search(name)}


async def test_every_handler_of_a_module_that_puts_is_asked_above(tmp_path: Path) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        table = whole_table(running)
    found = {
        Code(code)
        for code, handler in table.items()
        if puts_in(inspect.getsource(sys.modules[handler.__module__]))
    }
    assert {code.name for code in found} == {code.name for code in STORING}


@pytest.mark.parametrize(
    ("call", "only_in"),
    [(".when_flushed", "state"), ("_when_flushed(", "safety"), (".when_safe(", "durability")],
)
def test_one_module_alone_decides_how_long_an_answer_waits(call: str, only_in: str) -> None:
    sources = Path(str(engine.broker.__file__)).parent.rglob("*.py")
    assert [path.stem for path in sources if call in path.read_text()] == [only_in]
