"""Row D4, the producer's side: what it says of a transaction, and when it does not run one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from engine.client.config import ProducerConfig
from engine.client.sending.send_result import SendStatus
from engine.client.transaction_producer import TransactionEnd, TransactionProducer, TransactionState
from engine.foundation.errors import LocalProtocolError, RequestRefused
from engine.foundation.limits import CLIENT_CHECKS_MAX
from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.message import Message, MessageExt
from engine.protocol.message_record import encode_record
from engine.protocol.properties import decode_properties
from engine.runtime import Runtime
from tests.asynchronous import run_by
from tests.unit.client.scripted_cluster import ScriptedBroker, ScriptedCluster, with_cluster

ONE_BROKER = {"T": {"broker-a": 4}}
COMMIT, ROLLBACK, UNKNOWN = TransactionState
ACCEPTED, CONTRADICTED, GONE, OPEN = TransactionEnd


@dataclass
class Business:
    """A local transaction that answers by a script, and a checker that does."""

    says: object = COMMIT
    knows: object = COMMIT
    executed: list[tuple[Message, object]] = field(default_factory=list)
    checked: list[MessageExt] = field(default_factory=list)

    def execute(self, message: Message, argument: object) -> TransactionState:
        self.executed.append((message, argument))
        return _say(self.says)

    async def check(self, message: MessageExt) -> TransactionState:
        self.checked.append(message)
        return _say(self.knows)


def _say(what: object) -> TransactionState:
    if isinstance(what, Exception):
        raise what
    return what  # type: ignore[return-value]


Story = Callable[[TransactionProducer, ScriptedBroker, Business], Awaitable[None]]


def with_producer(story: Story, *, of: Callable[[], Business] = Business) -> None:
    """Run `story` with a running producer of one scripted broker, and its business."""
    business = of()

    async def lived(cluster: ScriptedCluster, runtime: Runtime) -> None:
        producer = TransactionProducer(
            runtime,
            cluster.config(),
            "g",
            execute=business.execute,
            check=business.check,
            topics=["T"],
            producer=ProducerConfig(retry_times=0, compress_over_bytes=100),
        )
        await producer.start()
        await story(producer, cluster.brokers["broker-a"], business)
        await producer.stop()

    with_cluster(lived, topics=ONE_BROKER, names=["broker-a"])


def said(end: RemotingCommand) -> tuple[TransactionState, str, str]:
    """What an END_TRANSACTION says: state, queue offset, physical offset."""
    fields = end.fields
    assert (fields["producerGroup"], fields["bname"]) == ("g", "broker-a")
    state = TransactionState(int(fields["commitOrRollback"]))
    return state, fields["tranStateTableOffset"], fields["commitLogOffset"]


@pytest.mark.parametrize(
    ("answer", "expected", "oneway"),
    [
        (COMMIT, COMMIT, False),
        (ROLLBACK, ROLLBACK, False),
        (UNKNOWN, UNKNOWN, True),
        (OSError("planted"), UNKNOWN, True),
        (None, UNKNOWN, True),
    ],
)
@run_by(with_producer)
async def test_the_broker_hears_how_the_local_transaction_ended(
    producer: TransactionProducer,
    broker: ScriptedBroker,
    business: Business,
    *,
    answer: object,
    expected: TransactionState,
    oneway: bool,
) -> None:
    business.says = answer
    sent = await producer.send_in_transaction(Message("T", b"y" * 200), "argument")
    await asyncio.sleep(0.1)
    assert sent.state is expected
    assert (sent.end is OPEN) == oneway
    assert ("planted" in str(sent.reason)) == isinstance(answer, OSError)
    (half,) = broker.received
    properties = decode_properties(half.fields["i"])
    assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "g")
    assert int(half.fields["f"]) & 0xC == 4, "prepared, whatever else it is"
    assert int(half.fields["f"]) & 1, "compressed as well"
    (end,) = broker.ends
    assert (said(end), end.is_oneway) == ((expected, "0", "1"), oneway)
    assert end.fields["transactionId"] == sent.half.message_id
    assert [argument for _, argument in business.executed] == ["argument"]


@run_by(with_producer)
async def test_what_is_not_stored_as_safely_as_promised_is_rolled_back_and_not_executed(
    producer: TransactionProducer, broker: ScriptedBroker, business: Business
) -> None:
    broker.script = [ResponseCode.FLUSH_DISK_TIMEOUT]
    sent = await producer.send_in_transaction(Message("T", b"x"))
    assert (sent.half.status, sent.state) == (SendStatus.FLUSH_DISK_TIMEOUT, ROLLBACK)
    assert "nothing was executed" in str(sent.reason)
    assert [said(end)[0] for end in broker.ends] == [ROLLBACK]
    assert business.executed == []


@run_by(with_producer)
async def test_a_half_message_that_is_refused_ends_nothing_and_runs_nothing(
    producer: TransactionProducer, broker: ScriptedBroker, business: Business
) -> None:
    broker.script = [ResponseCode.NO_PERMISSION]
    with pytest.raises(RequestRefused):
        await producer.send_in_transaction(Message("T", b"x"))
    with pytest.raises(LocalProtocolError, match="cannot be delayed"):
        await producer.send_in_transaction(Message("T", b"x", {"DELAY": "3"}))
    half = Message("T", b"x", {"TRAN_MSG": "true"})
    with pytest.raises(LocalProtocolError, match="TRAN_MSG"):
        await producer.send_batch([half, half])
    assert (broker.ends, business.executed) == ([], [])


@pytest.mark.parametrize(
    ("said_locally", "code", "remark", "end", "state"),
    [
        (COMMIT, ResponseCode.SUCCESS, "", ACCEPTED, COMMIT),
        (ROLLBACK, ResponseCode.SUCCESS, "", ACCEPTED, ROLLBACK),
        (COMMIT, ResponseCode.FLUSH_DISK_TIMEOUT, "not synced", ACCEPTED, COMMIT),
        (COMMIT, ResponseCode.FLUSH_SLAVE_TIMEOUT, "not copied", ACCEPTED, COMMIT),
        (COMMIT, ResponseCode.TRANSACTION_FAILED, "was rolled back", CONTRADICTED, ROLLBACK),
        (ROLLBACK, ResponseCode.TRANSACTION_FAILED, "was committed", CONTRADICTED, COMMIT),
        (
            COMMIT,
            ResponseCode.SYSTEM_ERROR,
            "Find prepared transaction message failed",
            GONE,
            UNKNOWN,
        ),
        (COMMIT, ResponseCode.SYSTEM_ERROR, "The producer group wrong", GONE, UNKNOWN),
        (
            COMMIT,
            ResponseCode.SYSTEM_ERROR,
            "The transaction state table offset wrong",
            GONE,
            UNKNOWN,
        ),
        (
            COMMIT,
            ResponseCode.SYSTEM_ERROR,
            "no message begins at physical offset 7",
            GONE,
            UNKNOWN,
        ),
        (COMMIT, ResponseCode.SYSTEM_ERROR, "store putMessage return null", OPEN, UNKNOWN),
        (COMMIT, ResponseCode.ILLEGAL_OPERATION, "its time is over", OPEN, UNKNOWN),
        (COMMIT, ResponseCode.SYSTEM_BUSY, "busy", OPEN, UNKNOWN),
        (COMMIT, ResponseCode.NO_PERMISSION, "no", OPEN, UNKNOWN),
        (COMMIT, ResponseCode.SLAVE_NOT_AVAILABLE, "store is slave mode", OPEN, UNKNOWN),
        (COMMIT, None, "", OPEN, UNKNOWN),
    ],
)
@run_by(with_producer)
async def test_the_result_is_what_the_broker_made_of_the_end(
    producer: TransactionProducer,
    broker: ScriptedBroker,
    business: Business,
    *,
    said_locally: TransactionState,
    code: int | None,
    remark: str,
    end: TransactionEnd,
    state: TransactionState,
) -> None:
    business.says, broker.end_code, broker.end_remark = said_locally, code, remark
    result = await producer.send_in_transaction(Message("T", b"x"))
    assert (result.end, result.state) == (end, state)
    assert result.local_state is said_locally
    assert result.is_final == (end is not OPEN)
    if code == ResponseCode.SUCCESS:
        assert result.reason is None
    elif code in (ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT):
        assert ResponseCode(code).name in str(result.reason)
    else:
        assert remark in str(result.reason), "the broker's words, or why there are none"


@run_by(with_producer)
async def test_an_end_that_is_refused_raises_the_brokers_words_to_who_repeats_it(
    producer: TransactionProducer, broker: ScriptedBroker, business: Business
) -> None:
    sent = await producer.send_in_transaction(Message("T", b"x"))
    broker.end_code = ResponseCode.TRANSACTION_FAILED
    with pytest.raises(RequestRefused, match="by script"):
        await producer.end_transaction(sent.half, ROLLBACK)
    broker.end_code = ResponseCode.FLUSH_DISK_TIMEOUT
    assert await producer.end_transaction(sent.half, COMMIT) is SendStatus.FLUSH_DISK_TIMEOUT


async def ask(
    producer: TransactionProducer, broker: ScriptedBroker, *, group: str = "g", count: int = 1
) -> None:
    """Push questions to the producer, before it has sent anything."""
    await asyncio.sleep(2)  # Virtual: its first heartbeat has come.
    half = MessageExt("T", b"half", {"PGROUP": group, "UNIQ_KEY": "U"}, queue_offset=7)
    fields = {"tranStateTableOffset": "7", "commitLogOffset": "700", "transactionId": "U"}
    for _ in range(count):
        request = RemotingCommand.request(
            RequestCode.CHECK_TRANSACTION_STATE,
            fields | {"topic": "HALF", "bname": "broker-a"},
            bytes(encode_record(half)),
        )
        broker.clients[-1].send(request)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(COMMIT, COMMIT), (ROLLBACK, ROLLBACK), (UNKNOWN, UNKNOWN), (KeyError("x"), UNKNOWN)],
)
@run_by(with_producer)
async def test_a_question_is_answered_by_the_checker_on_its_own_connection(
    producer: TransactionProducer,
    broker: ScriptedBroker,
    business: Business,
    *,
    answer: object,
    expected: TransactionState,
) -> None:
    business.knows = answer
    await ask(producer, broker)
    await asyncio.sleep(1)
    (end,) = broker.ends
    assert said(end) == (expected, "7", "700")
    assert end.is_oneway
    assert end.fields["fromTransactionCheck"] == "true"
    assert (end.fields["topic"], end.fields["msgId"]) == ("HALF", "U")
    assert ("KeyError" in (end.remark or "")) == isinstance(answer, KeyError)
    assert [message.body for message in business.checked] == [b"half"]


class Slow(Business):
    """A checker that ends when it is asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.done = asyncio.Event()

    async def check(self, message: MessageExt) -> TransactionState:
        self.checked.append(message)
        await self.done.wait()
        return COMMIT


@run_by(with_producer, of=Slow)
async def test_questions_are_worked_on_up_to_a_limit_and_those_of_another_group_never(
    producer: TransactionProducer, broker: ScriptedBroker, business: Slow
) -> None:
    await ask(producer, broker, group="another", count=10)
    await ask(producer, broker, count=CLIENT_CHECKS_MAX + 10)
    await asyncio.sleep(1)
    assert len(business.checked) == CLIENT_CHECKS_MAX
    business.done.set()
    await asyncio.sleep(1)
    assert len(broker.ends) == CLIENT_CHECKS_MAX
