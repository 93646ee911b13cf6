"""Each handler works with the few things that it names, without a broker, sockets or a client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.broker.config import BrokerConfig
from engine.broker.groups.membership import Membership
from engine.broker.groups.open_requests import QuestionNotes
from engine.broker.handlers.heartbeat import HeartbeatHandlers
from engine.broker.handlers.offset import OffsetHandlers
from engine.broker.handlers.pull import PullHandlers
from engine.broker.handlers.send import SendHandlers
from engine.broker.handlers.send_back import SendBackHandlers
from engine.broker.handlers.transaction import TransactionHandlers
from engine.broker.offsets.commit_reports import CommitReports
from engine.broker.service_groups import (
    OffsetServices,
    Reporters,
    SendServices,
    offset_services,
    pull_services,
    reporters,
    send_services,
)
from engine.broker.services import membership_of
from engine.broker.state import BrokerState, Signals, state_of
from engine.foundation.observing import SilentObserver
from engine.protocol.bodies import TopicConfig
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.headers import SendMessageRequestHeader
from engine.protocol.message_record import decode_record
from tests.connection_end import End
from tests.store_support import open_store, runtime_on, small_config

TOPIC, GROUP = "orders", "billing"


@dataclass
class Room:
    """The tables of a broker, and what handlers are given of it."""

    state: BrokerState
    offsets: OffsetServices
    reporters: Reporters
    sending: SendServices
    membership: Membership


async def saved() -> None:
    """Nothing is to be written here."""


@asynccontextmanager
async def room(folder: Path) -> AsyncIterator[Room]:
    config = BrokerConfig(store=small_config(folder), host="127.0.0.1")
    runtime = runtime_on()
    store = await open_store(config.store, runtime=runtime)
    store.start()
    signals = Signals(lambda _: None, lambda _: None, lambda *_: None)
    state = state_of(
        runtime,
        config,
        store=store,
        observer=SilentObserver(),
        signals=signals,
        broker_epoch=1,
    )
    state.node.address = "127.0.0.1:10911"
    state.topics.put(TopicConfig(TOPIC, 1, 1))
    offsets = offset_services(state, None)
    reporting = reporters(state, offsets)
    try:
        yield Room(
            state,
            offsets,
            reporting,
            send_services(state, offsets, saved),
            membership_of(state, offsets, reporting.watermarks),
        )
    finally:
        await store.close()


def sending(room: Room) -> SendHandlers:
    services = room.sending
    return SendHandlers(
        node=room.state.node,
        queues=services.queues,
        drafts=services.drafts,
        placement=services.placement,
        durability=services.durability,
        half_queue=services.half_queue,
        retry_copies=services.retry_copies,
        stats=room.state.stats,
        questions=QuestionNotes(gate=room.state.gate, questions=room.state.questions),
    )


async def asked(answer: Any) -> RemotingCommand:
    """What a handler answers, at once or later."""
    found = answer if answer is None or isinstance(answer, RemotingCommand) else await answer
    assert isinstance(found, RemotingCommand)
    return found


async def send(
    room: Room, body: bytes, *, properties: str = "", sys_flag: int = 0
) -> dict[str, str]:
    header = SendMessageRequestHeader(
        producer_group="sellers",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=sys_flag,
        born_timestamp_ms=1,
        flag=0,
        properties=properties,
        reconsume_times=0,
    )
    request = RemotingCommand.request(RequestCode.SEND_MESSAGE, header.encode(), body)
    answer = await asked(sending(room).handlers()[RequestCode.SEND_MESSAGE](End(), request))  # type: ignore[arg-type]
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    await room.state.store.flush()
    return answer.fields


async def ask(handlers: Any, code: RequestCode, end: End, body: bytes = b"", **fields: Any) -> Any:
    """A request's answer; None when it is held."""
    words = {name: str(value) for name, value in fields.items()}
    answer = handlers.handlers()[code](end, RemotingCommand.request(code, words, body))
    return answer if answer is None or isinstance(answer, RemotingCommand) else await answer


def pull_fields(offset: int) -> dict[str, Any]:
    return {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": 2 | 4,  # It may be held, and brings its subscription.
        "commitOffset": 0,
        "suspendTimeoutMillis": 20_000,
        "subscription": "*",
        "subVersion": 0,
    }


async def test_a_send_is_answered_with_its_place_in_the_log(tmp_path: Path) -> None:
    async with room(tmp_path) as there:
        first, second = await send(there, b"one"), await send(there, b"two")
        assert (first["queueOffset"], second["queueOffset"]) == ("0", "1")
        assert there.state.store.max_offset(TOPIC, 0) == 2


async def test_a_pull_gets_what_is_there_and_waits_for_what_comes(tmp_path: Path) -> None:
    async with room(tmp_path) as there:
        await send(there, b"one")
        services = pull_services(
            there.state, there.offsets, there.membership, handed=lambda *_: None
        )
        pulls = PullHandlers(
            node=there.state.node,
            clock=there.state.clock,
            checks=services.checks,
            positions=services.positions,
            answers=services.answers,
            holds=there.state.holds,
        )
        found = await ask(pulls, RequestCode.PULL_MESSAGE, End(), **pull_fields(0))
        assert (found.code, found.fields["nextBeginOffset"]) == (ResponseCode.SUCCESS, "1")
        held = await ask(pulls, RequestCode.PULL_MESSAGE, end := End(), **pull_fields(1))
        assert (held, there.state.holds.count) == (None, 1)
        await send(there, b"two")
        for pull in there.state.holds.take_all():
            pull.resume()
        assert end.sent[0].fields["nextBeginOffset"] == "2"


async def test_an_offset_is_stored_and_given_back_and_none_beyond_the_end(tmp_path: Path) -> None:
    async with room(tmp_path) as there:
        await send(there, b"one")
        services = there.offsets
        assert isinstance(services.reports, CommitReports)
        offsets = OffsetHandlers(
            store=there.state.store,
            topics=there.state.topics,
            group_configs=there.state.group_configs,
            offsets=there.state.offsets,
            starting_points=services.starting_points,
            answers=there.reporters.offset_answers,
            remembered=services.remembered,
            reports=services.reports,
        )
        place = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0}
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        assert (await ask(offsets, code, End(), commitOffset=1, **place)).remark is None
        answer = await ask(offsets, RequestCode.QUERY_CONSUMER_OFFSET, End(), **place)
        assert answer.fields["offset"] == "1"
        beyond = RemotingCommand.request(code, {k: str(v) for k, v in place.items()})
        beyond.fields["commitOffset"] = "9"
        beyond.mark_oneway()
        offsets.update_consumer_offset(End(), beyond)  # type: ignore[arg-type]
        assert there.state.offsets.committed(GROUP, TOPIC, 0) == 1


async def test_a_heartbeat_makes_a_member_and_a_farewell_ends_it(tmp_path: Path) -> None:
    async with room(tmp_path) as there:
        heartbeats = HeartbeatHandlers(
            client_ids=there.state.client_ids,
            clock=there.state.clock,
            gate=there.state.gate,
            groups=there.state.groups,
            node=there.state.node,
            producers=there.state.producers,
            membership=there.membership,
        )
        subscription = {"topic": TOPIC, "subString": "*", "subVersion": 1}
        data = {
            "clientID": "c1",
            "consumerDataSet": [{"groupName": GROUP, "subscriptionDataSet": [subscription]}],
        }
        end = End()
        await ask(heartbeats, RequestCode.HEART_BEAT, end, json.dumps(data).encode())
        group = there.state.groups.of(GROUP)
        assert group is not None
        assert list(group.members) == ["c1"]
        leaving = {"clientID": "c1", "consumerGroup": GROUP}
        await ask(heartbeats, RequestCode.UNREGISTER_CLIENT, end, **leaving)
        assert there.state.groups.of(GROUP) is None


async def test_a_transaction_shows_its_message_when_it_is_committed(tmp_path: Path) -> None:
    async with room(tmp_path) as there:
        there.state.topics.put(TopicConfig("RMQ_SYS_TRANS_HALF_TOPIC", 1, 1))
        there.state.topics.put(TopicConfig("RMQ_SYS_TRANS_OP_HALF_TOPIC", 1, 1))
        half = await send(
            there, b"paid", properties="TRAN_MSG\x01true\x02PGROUP\x01sellers\x02", sys_flag=4
        )
        assert there.state.store.max_offset(TOPIC, 0) == 0
        transactions = TransactionHandlers(
            clock=there.state.clock,
            durability=there.sending.durability,
            node=there.state.node,
            store=there.state.store,
            half_queue=there.sending.half_queue,
        )
        ended = await ask(
            transactions,
            RequestCode.END_TRANSACTION,
            End(),
            producerGroup="sellers",
            tranStateTableOffset=half["queueOffset"],
            commitLogOffset=int(half["msgId"][16:], 16),
            commitOrRollback=8,
            fromTransactionCheck="false",
            msgId=half["transactionId"],
            transactionId=half["transactionId"],
        )
        assert ended.code == ResponseCode.SUCCESS, ended.remark
        await there.state.store.flush()
        assert there.state.store.max_offset(TOPIC, 0) == 1


async def test_a_message_that_is_sent_back_waits_in_a_delay_level(tmp_path: Path) -> None:
    async with room(tmp_path) as there:
        there.state.topics.put(TopicConfig("SCHEDULE_TOPIC_XXXX", 18, 18))
        sent = await send(there, b"one")
        backs = SendBackHandlers(
            node=there.state.node,
            group_configs=there.state.group_configs,
            queues=there.sending.queues,
            origins=there.sending.origins,
            dead_letters=there.sending.dead_letters,
            delays=there.state.delay_levels,
            durability=there.sending.durability,
            stats=there.state.stats,
            observer=there.state.observer,
        )
        place = int(sent["msgId"][16:], 16)
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        back = await ask(backs, code, End(), group=GROUP, offset=place, delayLevel=0)
        assert back.code == ResponseCode.SUCCESS, back.remark
        await there.state.store.flush()
        store = there.state.store
        (waits,) = [queue for queue in store.queues() if queue[0] == "SCHEDULE_TOPIC_XXXX"]
        (unit,) = store.queue_units(*waits, 0, 9) or []
        record = store.record_at(unit[0])
        assert record is not None
        assert decode_record(record).properties["REAL_TOPIC"] == f"%RETRY%{GROUP}"
