"""A broker reports that a group has left a topic, judged by its members' heartbeats."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.asynchronous import run_by
from tests.simulation.cluster import BROKER
from tests.simulation.emitted_state import emitted_state, rows_in_order
from tests.simulation.raw_clients import GROUP, OTHER_TOPIC, TOPIC, RawClient, Stage, on_a_stage

BOTH, OTHER = (TOPIC, OTHER_TOPIC), (OTHER_TOPIC,)
SPOOL = "/store/spool"
KEY = (GROUP, TOPIC, 0)


def rows(stage: Stage, table: str) -> list[tuple[int, Mapping[str, Any]]]:
    """(seq, row) of a table, oldest first."""
    found = rows_in_order(stage.world.node(BROKER).runtime.disk, SPOOL)
    return [(seq, row) for seq, name, row in found if name == table]


def left(stage: Stage) -> list[tuple[str, str, str]]:
    """Group, topic and detail of each TOPIC_LEFT."""
    return [
        (row["group"], row["topic"], row["detail"])
        for _, row in rows(stage, "lifecycle")
        if row["kind"] == "TOPIC_LEFT"
    ]


def named_or_not(stage: Stage) -> list[str]:
    """Whether members name the topic, each time that turned."""
    kinds = [row["kind"] for _, row in rows(stage, "lifecycle")]
    return [kind for kind in kinds if kind in ("TOPIC_UNNAMED", "TOPIC_NAMED")]


def is_believed(stage: Stage) -> bool:
    """Does a reader of the facts believe that the group reads the topic's queue?"""
    return KEY in emitted_state(stage.world.node(BROKER).runtime.disk, SPOOL).pairs


async def read_in_part(stage: Stage) -> RawClient:
    """A member reads both topics, and has finished 7 of 10 messages of the one."""
    await stage.make()
    await stage.make(topic=OTHER_TOPIC)
    await stage.send(10)
    member = await stage.client("one")
    await member.heartbeat(BOTH)
    await member.pull(0)
    await member.commit(7)
    return member


async def goes_on(said: Mapping[RawClient, Sequence[str]], seconds: int) -> None:
    """The members say so with each heartbeat."""
    for _ in range(0, seconds, 10):
        for member, topics in said.items():
            await member.heartbeat(topics)
        await asyncio.sleep(10)


@run_by(on_a_stage, full_sample_interval_ms=30_000)
async def test_a_topic_that_no_member_names_for_a_minute_is_left_and_no_row_of_it_comes(
    stage: Stage,
) -> None:
    member = await read_in_part(stage)
    await goes_on({member: OTHER}, 10)
    assert named_or_not(stage) == ["TOPIC_UNNAMED"]
    await goes_on({member: OTHER}, 40)
    assert left(stage) == []
    assert is_believed(stage)
    await goes_on({member: OTHER}, 20)
    assert left(stage) == [(GROUP, TOPIC, "3 messages unread")]
    assert not is_believed(stage)
    await stage.send(5, "more")
    await member.commit(8)
    await goes_on({member: OTHER}, 90)
    assert not is_believed(stage), "no new message, late report or snapshot brings it back"
    assert len(left(stage)) == 1


@run_by(on_a_stage)
async def test_a_member_that_names_the_topic_again_brings_it_back(stage: Stage) -> None:
    member = await read_in_part(stage)
    await goes_on({member: OTHER}, 70)
    assert not is_believed(stage)
    await goes_on({member: BOTH}, 10)
    assert is_believed(stage)
    await goes_on({member: OTHER}, 30)
    await goes_on({member: BOTH}, 10)
    await goes_on({member: OTHER}, 70)
    assert len(left(stage)) == 2
    assert named_or_not(stage) == ["TOPIC_UNNAMED", "TOPIC_UNNAMED", "TOPIC_NAMED", "TOPIC_UNNAMED"]


@run_by(on_a_stage)
async def test_a_topic_is_not_left_while_a_deployment_rolls(stage: Stage) -> None:
    member, old = await read_in_part(stage), await stage.client("old")
    await goes_on({member: OTHER, old: BOTH}, 130)
    assert left(stage) == []
    await goes_on({member: OTHER, old: OTHER}, 70)
    assert left(stage) == [(GROUP, TOPIC, "3 messages unread")]


@run_by(on_a_stage)
async def test_a_topic_is_not_left_while_a_member_subscribes_to_nothing_as_pollers_do(
    stage: Stage,
) -> None:
    member, poller = await read_in_part(stage), await stage.client("poller")
    await goes_on({member: OTHER, poller: ()}, 130)
    assert left(stage) == []


def assigned(stage: Stage) -> int:
    """How often it was answered that somebody owns the queue."""
    queues = [row["queues"] for _, row in rows(stage, "rebalance_events") if is_assigned(row)]
    return sum(TOPIC in queue for one in queues for queue in one)


def is_assigned(row: Mapping[str, Any]) -> bool:
    return bool(row["kind"] == "ASSIGNED" and row["group"] == GROUP)


@pytest.mark.parametrize("is_member", [True, False])
@run_by(on_a_stage)
async def test_a_topic_is_not_left_while_somebody_pulls_it(
    stage: Stage, *, is_member: bool
) -> None:
    member = await read_in_part(stage)
    reader = member if is_member else await stage.client("poller")
    for _ in range(13):
        await member.heartbeat(OTHER)
        await reader.pull(7, subscription="*")
        await asyncio.sleep(10)
    assert left(stage) == []
    await goes_on({member: OTHER}, 70)
    assert len(left(stage)) == 1
    before = assigned(stage)
    await reader.pull(7, subscription="*")
    await asyncio.sleep(3)
    assert is_believed(stage), "who pulls it reads it"
    assert assigned(stage) == before + (1 if is_member else 0), "and is a new owner, if it is named"


@run_by(on_a_stage)
async def test_without_members_nothing_is_left_and_the_minute_begins_anew(stage: Stage) -> None:
    member = await read_in_part(stage)
    await goes_on({member: OTHER}, 30)
    await member.leave()
    await asyncio.sleep(60)
    await goes_on({member: OTHER}, 50)
    assert left(stage) == []
    await goes_on({member: OTHER}, 20)
    assert len(left(stage)) == 1


@run_by(on_a_stage)
async def test_a_topic_that_was_left_and_is_made_again_is_none_that_was_left(stage: Stage) -> None:
    member = await read_in_part(stage)
    await goes_on({member: OTHER}, 70)
    await stage.again(4)
    await goes_on({member: OTHER}, 20)
    assert is_believed(stage), "the group is placed in the new life"
    await goes_on({member: OTHER}, 60)
    assert [detail for _, _, detail in left(stage)] == ["3 messages unread", "4 messages unread"]


@run_by(on_a_stage)
async def test_unread_messages_of_a_topic_that_was_left_are_no_loss_of_the_group(
    stage: Stage,
) -> None:
    member = await read_in_part(stage)
    await goes_on({member: OTHER}, 70)
    assert stage.cluster.broker is not None
    state = stage.cluster.broker.state
    state.store.retention.on_purged({(TOPIC, 0): (0, 9)})
    await asyncio.sleep(1)
    assert rows(stage, "unread_deletions") == []
    assert not is_believed(stage)
