"""Whatever a broker accepts, every later path carries: the delay, the retry, the dead letters, the
transaction and its questions, the resend, the rows, and a restart over the log that holds it.

The messages are hostile: properties with the wire's own separators in them, names and values of
the broker's, numbers that are none or at their ends, properties as long as a record allows,
bodies that claim to be compressed. A broker may refuse one, by a code of RocketMQ's and with a
sentence; it may not take one in and fail on it later.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from engine.client import Admin
from engine.client.admin.dead_letters import DeadLetterQuery
from engine.runtime import system_runtime
from tests.integration.broker.accepted_messages import (
    KNOWN,
    QUICK,
    RETRY,
    Paths,
    Sent,
    drawn,
    follow,
)
from tests.integration.broker.cluster import GROUP, broker_config, cluster, eventually
from tests.integration.broker.spooled import spooled
from tests.integration.client.cluster_users import client_config

LOG_BYTES = 16 << 20


def lives_through(folder: Path, all_sent: list[Sent], caplog: pytest.LogCaptureFixture) -> None:
    """Follow the messages, start again over what they left, follow one more."""

    async def story(every: list[Sent]) -> Paths:
        async with cluster(broker_config(folder, log_bytes=LOG_BYTES, **QUICK)) as running:
            return await follow(running.client(), every)

    with caplog.at_level(logging.ERROR):
        paths = asyncio.run(story(all_sent))
        assert len(paths.accepted) > len(all_sent), paths.refused
        asyncio.run(story([Sent("plain\x01one\x02", b"after")]))
    assert not [record for record in caplog.records if record.exc_info], caplog.text
    kinds = {row["kind"] for row in spooled(folder / "store", "lifecycle")}
    assert not kinds & {"SPOOL_LOSS", "UNDELIVERABLE_MESSAGE", "UNREADABLE_MESSAGE"}
    steps = Counter(row["step"] for row in spooled(folder / "store", "retry_dlq_flow"))
    assert steps["SENT_BACK"] == steps["SCHEDULED"] + steps["DEAD_LETTERED"]
    assert steps["DELIVERED"] == steps["SCHEDULED"] > 0, "every row could be written"


def test_whatever_is_accepted_is_carried_along_every_path_and_over_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lives_through(tmp_path, KNOWN, caplog)


async def test_an_operator_can_decide_about_every_dead_letter_and_look_at_it(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path, log_bytes=LOG_BYTES, **QUICK)) as running:
        paths = await follow(running.client(), KNOWN)
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
                told = await admin.dead_letters.find(GROUP, DeadLetterQuery(with_decided=True))
                wanted = [("DISCARDED", "REDRIVEN")[number % 2] for number in range(len(letters))]
                return [one.fate for one in told] == wanted

            await eventually(all_decided, "each letter is told as decided about")
        finally:
            await admin.close()


@pytest.mark.parametrize("seed", range(3))
def test_messages_by_chance_are_carried_as_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    chance = Random(seed)
    lives_through(tmp_path, [drawn(chance) for _ in range(40)], caplog)
