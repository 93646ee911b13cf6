"""Selectors: the same value goes to the same queue, as RocketMQ's own selectors send it.

Feature rows: D1.
"""

from __future__ import annotations

import pytest

from engine.client.sending.queue_choice import SelectRandomly, select_by_hash, select_by_index
from engine.foundation.errors import ConfigError
from engine.protocol.message import Message, MessageQueue
from engine.runtime import SystemEntropy

QUEUES = [MessageQueue("T", "broker-a", number) for number in range(4)]
MESSAGE = Message("T", b"x")


@pytest.mark.parametrize(
    ("argument", "queue_id"),
    [
        ("TagA", 2598919 % 4),
        (
            "order-pay",
            392735319 % 4,
        ),  # Java's hash is negative: the sign of the remainder is dropped.
        (
            "polygenelubricants",
            0,
        ),  # Java's hash is the least int, which has no positive counterpart.
        ("", 0),
    ],
)
def test_a_value_goes_where_javas_hash_sends_it(argument: str, queue_id: int) -> None:
    assert select_by_hash(QUEUES, MESSAGE, argument) == QUEUES[queue_id]


def test_an_index_goes_round() -> None:
    picked = [select_by_index(QUEUES, MESSAGE, number).queue_id for number in range(6)]
    assert picked == [0, 1, 2, 3, 0, 1]


@pytest.mark.parametrize("argument", [-1, "1", None])
def test_what_is_no_index_is_refused(argument: object) -> None:
    with pytest.raises(ConfigError, match="selector argument"):
        select_by_index(QUEUES, MESSAGE, argument)


def test_random_choice_reaches_every_queue() -> None:
    select = SelectRandomly(SystemEntropy())
    picked = {select(QUEUES, MESSAGE, None) for _ in range(500)}
    assert picked == set(QUEUES)
