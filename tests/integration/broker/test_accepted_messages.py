"""Whatever a broker accepts, every later path carries: the delay, the retry, the dead letters, the
transaction and its questions, the reply, the resend, the trace, the page, the rows, and a restart
over the log that holds it.

The messages are hostile: properties with the wire's own separators in them, names and values of
the broker's, numbers that are none or at their ends, properties as long as a record allows,
bodies that claim to be compressed. A broker may refuse one, by a code of RocketMQ's and with a
sentence; it may not take one in and fail on it later.
"""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from engine.admin import Admin
from engine.admin.api.dead_letters import DeadLetterQuery
from engine.client import ConsumeContext, ConsumeOrderlyStatus
from engine.client.consuming.listeners import ListenerAnswer
from engine.protocol.codes import ResponseCode
from engine.protocol.message import MessageExt
from engine.runtime import SystemDisk, system_runtime
from tests.integration.broker.accepted_messages import (
    DLQ,
    KNOWN,
    QUICK,
    RETRY,
    Paths,
    Sent,
    drawn,
    follow,
)
from tests.integration.broker.cluster import GROUP, TOPIC, broker_config, cluster, eventually
from tests.integration.broker.spooled import into_the_lake, spooled
from tests.integration.client.cluster_users import (
    LATER,
    Seen,
    client_config,
    consumer_config,
    consuming,
)

LOG_BYTES = 16 << 20


async def life(folder: Path, every: list[Sent], *, earlier: Paths | None = None) -> Paths:
    """A broker's life in which these messages are followed."""
    async with cluster(broker_config(folder, log_bytes=LOG_BYTES, **QUICK)) as running:
        return await follow(running.client(), running.name_server_address, every, earlier=earlier)


async def lives_through(
    folder: Path, all_sent: list[Sent], caplog: pytest.LogCaptureFixture
) -> None:
    """Follow the messages, start again over what they left, follow one more."""
    with caplog.at_level(logging.ERROR):
        paths = await life(folder, all_sent)
        assert len(paths.accepted) > len(all_sent), paths.refused
        await life(folder, [Sent("plain\x01one\x02", b"after")], earlier=paths)
    assert not [record for record in caplog.records if record.exc_info], caplog.text
    kinds = {row["kind"] for row in spooled(folder / "store", "lifecycle")}
    assert not kinds & {"SPOOL_LOSS", "UNDELIVERABLE_MESSAGE", "UNREADABLE_MESSAGE"}
    steps = Counter(row["step"] for row in spooled(folder / "store", "retry_dlq_flow"))
    assert steps["SENT_BACK"] == steps["SCHEDULED"] + steps["DEAD_LETTERED"]
    assert steps["DELIVERED"] == steps["SCHEDULED"] > 0, "every row could be written"
    into = into_the_lake(SystemDisk(), str(folder / "store" / "spool"))
    assert into["retry_dlq_flow"] == sum(steps.values()), "and fits the lake"


async def test_whatever_is_accepted_is_carried_along_every_path_and_over_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await lives_through(tmp_path, KNOWN, caplog)


async def test_an_operator_can_decide_about_every_dead_letter_and_look_at_it(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path, log_bytes=LOG_BYTES, **QUICK)) as running:
        paths = await follow(running.client(), running.name_server_address, KNOWN)
        admin = Admin(system_runtime(), client_config(running.name_server_address))
        try:
            letters = await admin.dead_letters.find(GROUP, DeadLetterQuery())
            bodies = paths.of_kind("failed") | paths.of_kind("spent")
            assert {letter.message.body for letter in letters} == bodies
            for number, letter in enumerate(letters):
                decide = admin.dead_letters.redrive if number % 2 else admin.dead_letters.discard
                await decide(letter, who="ada", why="why not")
                found = await admin.messages.view(letter.message.offset_message_id)
                assert found.body == letter.message.body
            again = await paths.all_of(RETRY)
            assert {one.message.body for one in letters[1::2]} <= set(again)

            async def all_decided() -> bool:
                reported = await admin.dead_letters.find(GROUP, DeadLetterQuery(with_decided=True))
                wanted = [("DISCARDED", "REDRIVEN")[number % 2] for number in range(len(letters))]
                return [one.fate for one in reported] == wanted

            await eventually(all_decided, "each letter is reported as decided about")
        finally:
            await admin.close()


def fails(message: MessageExt, context: ConsumeContext) -> ListenerAnswer:
    """The answer of a listener that takes nothing, and wants it again soon."""
    context.delay_level_when_next_consume = 1
    context.suspend_queue_ms = 10
    return LATER


def suspends(message: MessageExt, context: ConsumeContext) -> ListenerAnswer:
    """As `fails`, in order."""
    context.suspend_queue_ms = 10
    return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


@pytest.mark.parametrize("orderly", [False, True])
async def test_a_consumer_that_fails_on_all_of_them_gets_rid_of_all_of_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, orderly: bool
) -> None:
    seen = Seen(suspends if orderly else fails)
    settings = {"max_reconsume_times": 1, "orderly": orderly, "consume_batch_max": 3}
    with caplog.at_level(logging.ERROR):
        async with cluster(broker_config(tmp_path, log_bytes=LOG_BYTES, **QUICK)) as running:
            client, bodies = running.client(), set()
            await client.heartbeat()
            for number, sent in enumerate(KNOWN):
                body = b"%d " % number + sent.body
                answer = await client.send(body, properties=sent.properties, **sent.header)
                bodies |= {body} if answer.code == ResponseCode.SUCCESS else set()
            assert len(bodies) > 30
            traced = client_config(running.name_server_address, enable_trace=True)
            async with consuming(
                running.name_server_address,
                GROUP,
                {TOPIC: seen},
                config=consumer_config(**settings),
                client=traced,
            ) as consumer:
                paths = Paths(client)

                async def all_dead() -> bool:
                    return bodies <= set(await paths.all_of(DLQ))

                await eventually(all_dead, "every message is a dead letter", within_s=40)

                async def all_passed() -> bool:
                    held = [window.count for window in consumer.windows.values()]
                    return sum(held) == 0

                await eventually(all_passed, "nothing is held any more")
            dead = await paths.all_of(DLQ)
            assert set(dead) == bodies
    assert not [record for record in caplog.records if record.exc_info], caplog.text


@pytest.mark.parametrize("seed", range(3))
async def test_messages_by_chance_are_carried_as_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    chance = Random(seed)
    await lives_through(tmp_path, [drawn(chance) for _ in range(40)], caplog)
