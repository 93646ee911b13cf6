"""Row D4: when the broker ends a transaction the other way, result and trace say so.

Real broker and producer in virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pytest

from engine.broker.broker import Broker
from engine.client.config import ProducerConfig
from engine.client.transaction_producer import (
    TransactionEnd,
    TransactionProducer,
    TransactionSendResult,
    TransactionState,
)
from engine.protocol.message import Message, MessageExt
from engine.protocol.message_record import decode_records
from engine.protocol.names import TRACE_TOPIC
from engine.protocol.trace import EndTransactionTrace, decode_traces
from engine.runtime import Runtime
from tests.simulation.cluster import PRODUCER, QUEUES, TOPIC, SimCluster
from tests.simulation.world import World, run_world

COMMIT, ROLLBACK, UNKNOWN = TransactionState
ACCEPTED, CONTRADICTED, GONE, OPEN = TransactionEnd
SLOW_S = 5.5
"""Longer than all questions a broker of these tests asks of one transaction."""


@dataclass
class Case:
    """One transaction: what both halves of the business say, and when."""

    executed: TransactionState
    executor_s: float
    answers: Sequence[TransactionState]
    """The checker's, one question after the other; the last one repeats."""
    immunity_s: int | None = None
    asked: list[bytes] = field(default_factory=list)

    async def execute(self, _message: Message, _argument: object) -> TransactionState:
        await asyncio.sleep(self.executor_s)
        return self.executed

    def check(self, message: MessageExt) -> TransactionState:
        self.asked.append(message.body)
        return self.answers[min(len(self.asked), len(self.answers)) - 1]


@dataclass
class Outcome:
    """What was seen of it."""

    result: TransactionSendResult
    appeared: list[bytes]
    """In the topic, once the broker has asked for the last time."""
    traced: list[str]
    """The states of the producer's own ends in the message trace."""


def outcome_of(case: Case) -> Outcome:
    seen: list[Outcome] = []

    async def scenario(world: World) -> None:
        cluster = SimCluster(
            world,
            transaction_timeout_ms=1_000,
            transaction_op_batch_interval_ms=900,
            transaction_check_interval_ms=1_000,
            transaction_check_max=2,
        )
        await cluster.start_name_server()
        await cluster.start_broker()

        async def live(runtime: Runtime) -> None:
            producer = TransactionProducer(
                *(runtime, replace(cluster._client("p"), enable_trace=True), "producers"),
                execute=case.execute,
                check=case.check,
                producer=ProducerConfig(default_topic_queue_count=QUEUES),
            )
            await producer.start()
            result = await producer.send_in_transaction(
                Message(TOPIC, b"paid"), immunity_s=case.immunity_s
            )
            await asyncio.sleep(SLOW_S)
            await producer.stop()
            assert cluster.broker is not None
            appeared = list(cluster.stored().values())
            seen.append(Outcome(result, appeared, traced_ends(cluster.broker)))

        await world.node(PRODUCER).boot(live)

    run_world(7, scenario)
    return seen[0]


def traced_ends(broker: Broker) -> list[str]:
    read = partial(broker.state.store.get, TRACE_TOPIC, max_count=32, max_bytes=1 << 20)
    bodies = [
        record.body.decode()
        for queue_id in range(QUEUES)
        for record in decode_records(b"".join(map(bytes, read(queue_id, 0, wanted=None).records)))
    ]
    return [
        trace.state.value
        for body in bodies
        for trace in decode_traces(body)
        if isinstance(trace, EndTransactionTrace) and not trace.from_check
    ]


@pytest.mark.parametrize("immunity_s", [None, 1])
@pytest.mark.parametrize(
    ("executed", "answers", "state", "why"),
    [
        (COMMIT, [ROLLBACK], ROLLBACK, "it was rolled back"),
        (COMMIT, [UNKNOWN], ROLLBACK, "it was rolled back"),
        (ROLLBACK, [COMMIT], COMMIT, "it was committed"),
    ],
    ids=["a checker rolled back", "the questions ran out", "a checker committed"],
)
def test_who_is_slower_than_the_checker_learns_how_the_transaction_ended(
    executed: TransactionState,
    answers: list[TransactionState],
    state: TransactionState,
    why: str,
    immunity_s: int | None,
) -> None:
    outcome = outcome_of(Case(executed, SLOW_S, answers, immunity_s))
    result = outcome.result
    assert (result.state, result.end) == (state, CONTRADICTED)
    assert (result.local_state, result.is_final) == (executed, True)
    assert why in str(result.reason)
    assert outcome.appeared == ([b"paid"] if state is COMMIT else [])
    assert outcome.traced == [f"{state.name}_MESSAGE"]


def test_an_end_that_the_checker_gave_before_is_accepted() -> None:
    outcome = outcome_of(Case(COMMIT, SLOW_S, [COMMIT]))
    assert (outcome.result.state, outcome.result.end) == (COMMIT, ACCEPTED)
    assert (outcome.appeared, outcome.traced) == ([b"paid"], ["COMMIT_MESSAGE"])


def test_who_is_too_late_for_an_open_transaction_leaves_it_to_the_checker() -> None:
    outcome = outcome_of(Case(COMMIT, 1.6, [UNKNOWN, COMMIT], immunity_s=1))
    assert (outcome.result.state, outcome.result.end) == (UNKNOWN, OPEN)
    assert "CHECK_IMMUNITY_TIME_IN_SECONDS=1 is over" in str(outcome.result.reason)
    assert outcome.appeared == [b"paid"], "the checker said so in the end"
    assert outcome.traced == ["UNKNOW"]
