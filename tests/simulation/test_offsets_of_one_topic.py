"""A group's offsets on one topic are deleted alone, and not under a member that reads it."""

from __future__ import annotations

import asyncio

import pytest

from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.foundation.errors import RequestRefused
from engine.protocol.bodies import decode_offset_table
from engine.protocol.codes import RequestCode
from tests.asynchronous import run_by
from tests.simulation.cluster import BROKER
from tests.simulation.raw_clients import (
    GROUP,
    OTHER_TOPIC,
    QUEUE,
    TOPIC,
    RawClient,
    Stage,
    on_a_stage,
)
from tests.simulation.test_topics_that_groups_leave import OTHER, is_believed, read_in_part, rows


async def delete(client: RawClient, *, dry_run: bool = False, topic: str = TOPIC) -> dict[str, int]:
    """Queue and offset of what was deleted."""
    fields = {"group": GROUP, "topic": topic, "dryRun": str(dry_run).lower()}
    answer = await client.done(RequestCode.DELETE_CONSUMER_OFFSETS, fields)
    return {str(queue): offset for queue, offset in decode_offset_table(answer.body).items()}


def deletions(stage: Stage) -> list[tuple[str, str, str]]:
    return [
        (row["group"], row["topic"], row["detail"])
        for _, row in rows(stage, "lifecycle")
        if row["kind"] == "OFFSETS_DELETED"
    ]


async def left_alone(stage: Stage) -> None:
    """The group is at 7 of 10 of the topic, and nobody reads it."""
    member = await read_in_part(stage)
    await member.leave()
    await asyncio.sleep(70)


@run_by(on_a_stage)
async def test_offsets_of_one_topic_are_shown_and_deleted_and_a_row_says_so(stage: Stage) -> None:
    await left_alone(stage)
    assert stage.cluster.broker is not None
    offsets = stage.cluster.broker.state.offsets
    offsets.place(GROUP, OTHER_TOPIC, 0, 0)
    assert await delete(stage.tool, dry_run=True) == {str(QUEUE): 7}
    assert (is_believed(stage), deletions(stage)) == (True, []), "a preview deletes nothing"
    assert await delete(stage.tool) == {str(QUEUE): 7}
    await asyncio.sleep(2)
    assert deletions(stage) == [
        (GROUP, TOPIC, "the offsets of group readers on 1 queue of reborn were deleted")
    ]
    assert not is_believed(stage), "neither the offset nor what was pulled is left"
    assert offsets.topics_of(GROUP) == [OTHER_TOPIC]
    assert await delete(stage.tool) == {}


@run_by(on_a_stage)
async def test_deleted_offsets_stay_deleted_when_the_broker_is_killed_behind_the_answer(
    stage: Stage,
) -> None:
    await left_alone(stage)
    await delete(stage.tool)
    stage.world.node(BROKER).crash(power_cut=True)
    await stage.cluster.start_broker()
    await asyncio.sleep(2)
    assert not is_believed(stage)


@run_by(on_a_stage)
async def test_a_deleted_group_is_not_there_again_when_the_broker_is_killed_behind_the_answer(
    stage: Stage,
) -> None:
    await left_alone(stage)
    for power_cut in (False, True):
        await offsets_on_disk(stage, 7)
        await stage.delete_group()
        stage.world.node(BROKER).crash(power_cut=power_cut)
        await stage.cluster.start_broker()
        await asyncio.sleep(2)
        assert not is_believed(stage)
        assert offsets_of(stage).topics_of(GROUP) == []


@run_by(on_a_stage)
async def test_a_group_that_comes_back_keeps_its_offsets_when_the_notes_on_disk_are_old(
    stage: Stage,
) -> None:
    await left_alone(stage)
    await stage.delete_group()
    await offsets_on_disk(stage, 3)
    stage.world.node(BROKER).crash(power_cut=True)
    await stage.cluster.start_broker()
    assert offsets_of(stage).queues(GROUP, TOPIC) == {QUEUE.queue_id: 3}


@run_by(on_a_stage)
async def test_a_deletion_over_the_limit_of_noted_groups_waits_for_the_file_of_offsets(
    stage: Stage,
) -> None:
    await left_alone(stage)
    assert stage.cluster.broker is not None
    noted = stage.cluster.broker.state.deleted_groups
    noted.names_max = 1
    offsets_of(stage).place("others", TOPIC, QUEUE.queue_id, 1)
    await stage.delete_group()
    assert noted.after(0) == [GROUP]
    await stage.delete_group("others")
    assert noted.after(0) == ["others"], "the file holds nothing of the first by now"


def offsets_of(stage: Stage) -> ConsumerOffsets:
    assert stage.cluster.broker is not None
    return stage.cluster.broker.state.offsets


async def offsets_on_disk(stage: Stage, offset: int) -> None:
    """The group is at `offset` of the topic, and the file of offsets says so."""
    offsets_of(stage).place(GROUP, TOPIC, QUEUE.queue_id, offset)
    await asyncio.sleep(6)


@run_by(on_a_stage)
async def test_offsets_are_not_deleted_under_a_member_that_subscribes_to_the_topic(
    stage: Stage,
) -> None:
    member = await read_in_part(stage)
    for dry_run in (True, False):
        with pytest.raises(RequestRefused, match="member one subscribes to it"):
            await delete(stage.tool, dry_run=dry_run)
    await member.heartbeat(OTHER)
    with pytest.raises(RequestRefused, match="queue 0 was pulled 1 s ago"):
        await delete(stage.tool)
    await asyncio.sleep(60)
    await member.heartbeat(OTHER)
    assert await delete(stage.tool) == {str(QUEUE): 7}
    assert deletions(stage) != []


@run_by(on_a_stage)
async def test_offsets_are_not_deleted_under_a_member_that_does_not_say_what_it_reads(
    stage: Stage,
) -> None:
    await left_alone(stage)
    poller = await stage.client("poller")
    await poller.heartbeat(())
    with pytest.raises(RequestRefused, match="member poller does not say what it reads"):
        await delete(stage.tool)
