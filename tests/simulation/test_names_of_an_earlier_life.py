"""Offsets, locks, transactions and ids of an earlier life of a topic have no effect.

Nor have those of an earlier store.

One story for each; all of them at once, by seed: `test_a_topic_made_again`.
"""

from __future__ import annotations

import asyncio

import pytest

from engine.protocol.codes import RequestCode, ResponseCode
from engine.protocol.headers import ResetOffsetRequestHeader
from engine.protocol.names import retry_topic
from tests.asynchronous import run_by
from tests.simulation.raw_clients import (
    GROUP,
    OTHER_TOPIC,
    TOPIC,
    RawClient,
    Stage,
    on_a_stage,
    remove_store,
)

OLD, NEW = 40, 5
"""Messages of the earlier life, and of the present one when it is the shorter."""
LONGER = 60
MOVED, FOUND = ResponseCode.PULL_OFFSET_MOVED, ResponseCode.SUCCESS


async def earlier_life(stage: Stage, client_id: str = "old", at: int = OLD) -> RawClient:
    """A member has read the topic up to here."""
    await stage.make()
    await stage.send(OLD, "old")
    return await stage.member(client_id, at=at)


# Pulls.


@pytest.mark.parametrize("count", [0, NEW, LONGER])
@run_by(on_a_stage)
async def test_a_pull_that_goes_on_in_a_new_life_is_sent_to_its_beginning(
    stage: Stage, *, count: int
) -> None:
    member = await earlier_life(stage)
    await stage.again(count)
    code, begin, _ = await member.pull(OLD)
    assert (code, begin) == (MOVED, 0)


@run_by(on_a_stage)
async def test_a_new_life_begins_at_its_beginning_when_the_broker_restarted_meanwhile(
    stage: Stage,
) -> None:
    member = await earlier_life(stage)
    await stage.again(LONGER)
    await stage.restart()
    await member.heartbeat()
    code, begin, _ = await member.pull(OLD)
    assert (code, begin) == (MOVED, 0)


@pytest.mark.parametrize("is_restarted", [True, False])
@pytest.mark.parametrize("keeps_settings", [True, False])
@pytest.mark.parametrize("count", [NEW, LONGER])
@run_by(on_a_stage)
async def test_a_pull_that_goes_on_in_an_emptied_store_is_sent_to_its_beginning(
    stage: Stage, *, count: int, keeps_settings: bool, is_restarted: bool
) -> None:
    member = await earlier_life(stage)
    await stage.restart(before=lambda node: remove_store(node, keeps_settings=keeps_settings))
    if not keeps_settings:
        await stage.make()
    await stage.send(count, "new")
    if is_restarted:
        await stage.restart()
    await member.heartbeat()
    code, begin, _ = await member.pull(OLD)
    assert (code, begin) == (MOVED, 0)


@pytest.mark.parametrize("is_restarted", [False, True])
@run_by(on_a_stage)
async def test_who_was_away_when_a_store_was_emptied_is_sent_where_its_group_is(
    stage: Stage, *, is_restarted: bool
) -> None:
    away = await earlier_life(stage, "away")
    await stage.restart(before=lambda node: remove_store(node, keeps_settings=False))
    await stage.make()
    await stage.send(LONGER, "new")
    heir = await stage.member("heir", at=7)
    await heir.pull(32)
    if is_restarted:
        await stage.restart()
        await heir.heartbeat()
    await away.heartbeat()
    code, begin, _ = await away.pull(OLD)
    assert (code, begin) == (MOVED, 7)
    await away.commit(OLD)
    assert await heir.first_offset() == 7


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("is_known", [False, True])
@run_by(on_a_stage)
async def test_who_was_away_at_the_deletion_is_sent_where_its_group_is(
    stage: Stage, *, is_known: bool, is_restarted: bool
) -> None:
    """RocketMQ's clients send no heartbeat at once when the broker is back: none of them is a
    member when the topic is deleted.
    """
    away = await earlier_life(stage, "away")
    await stage.restart()
    await stage.again(LONGER)
    heir = await stage.member("heir", at=7)
    _, pulled, _ = await heir.pull(32)
    assert pulled > OLD
    if is_restarted:
        await stage.restart()
        await heir.heartbeat()
    if is_known:
        await away.heartbeat()
    code, begin, messages = await away.pull(OLD)
    assert messages == []
    assert code != MOVED or begin == 7
    await away.commit(OLD)
    assert await heir.first_offset() == 7


@run_by(on_a_stage)
async def test_who_does_as_advised_reads_the_new_life_and_is_reported_once(stage: Stage) -> None:
    member = await earlier_life(stage)
    await stage.again(LONGER)
    _, begin, _ = await member.pull(OLD)
    await member.commit(OLD)  # As clients of RocketMQ 4 do for ten seconds.
    await member.commit(begin)
    assert await member.first_offset() == begin
    code, following, messages = await member.pull(begin)
    assert (code, messages[0].body) == (FOUND, b"new-0")
    await member.commit(following)
    code, _, messages = await member.pull(following)
    assert (code, messages[0].queue_offset) == (FOUND, following)
    assert await member.first_offset() == following


@run_by(on_a_stage)
async def test_who_begins_at_once_where_it_was_sent_is_answered(stage: Stage) -> None:
    """The C++ client changes its place and asks nothing; what it reports, it remembers."""
    member = await earlier_life(stage)
    await stage.again(LONGER)
    heir = await stage.member("heir", at=7)
    _, pulled, _ = await heir.pull(32)
    assert pulled > OLD
    _, begin, _ = await member.pull(OLD)
    code, _, messages = await member.pull(begin, commit=OLD)
    assert (code, messages[0].queue_offset) == (FOUND, 7)
    assert await member.first_offset() == 7


@pytest.mark.parametrize("is_emptied", [False, True])
@run_by(on_a_stage)
async def test_the_deletion_of_its_group_makes_nobody_believed(
    stage: Stage, *, is_emptied: bool
) -> None:
    """Members of a deleted group go on where they are, but not where they were in another life."""
    member = await earlier_life(stage)
    if is_emptied:
        await stage.restart(before=lambda node: remove_store(node, keeps_settings=False))
        await stage.make()
        await stage.send(LONGER, "new")
    else:
        await stage.restart()
        await stage.again(LONGER)
    await member.heartbeat()
    await stage.delete_group()
    code, begin, _ = await member.pull(OLD)
    assert (code, begin) == (MOVED, 0)


# Held pulls.


@pytest.mark.parametrize("is_made_again", [False, True])
@run_by(on_a_stage)
async def test_a_deletion_ends_held_pulls(stage: Stage, *, is_made_again: bool) -> None:
    member = await earlier_life(stage)
    held = asyncio.ensure_future(member.pull(OLD, suspend_ms=15_000))
    await asyncio.sleep(1.0)
    await stage.delete()
    if is_made_again:
        await stage.make()
    async with asyncio.timeout(1.0):
        code, _, _ = await held
    assert code in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.PULL_NOT_FOUND)


@run_by(on_a_stage)
async def test_the_deletion_of_a_group_ends_its_held_pulls(stage: Stage) -> None:
    member = await earlier_life(stage)
    held = asyncio.ensure_future(member.pull(OLD, suspend_ms=15_000))
    await asyncio.sleep(1.0)
    await stage.delete_group()
    async with asyncio.timeout(1.0):
        code, _, _ = await held
    assert code != MOVED


# Commits.


@pytest.mark.parametrize("is_piggybacked", [False, True])
@pytest.mark.parametrize("count", [0, NEW, LONGER])
@run_by(on_a_stage)
async def test_an_offset_of_the_earlier_life_is_no_offset_of_the_new_one(
    stage: Stage, *, count: int, is_piggybacked: bool
) -> None:
    member = await earlier_life(stage)
    await stage.again(count)
    if is_piggybacked:
        await member.pull(OLD, commit=OLD)
    else:
        await member.commit(OLD)
    heir = await stage.member("heir")
    assert await heir.first_offset() == 0
    if not is_piggybacked:  # A pull that is sent back says enough.
        assert stage.refused_offsets() == [OLD]


@run_by(on_a_stage)
async def test_an_offset_reported_while_the_topic_is_away_is_none_of_its_next_life(
    stage: Stage,
) -> None:
    member = await earlier_life(stage)
    await stage.delete()
    await member.commit(OLD)
    await stage.make()
    await stage.send(LONGER, "new")
    heir = await stage.member("heir")
    assert await heir.first_offset() == 0


@pytest.mark.parametrize("keeps_settings", [True, False])
@pytest.mark.parametrize("count", [NEW, LONGER])
@run_by(on_a_stage)
async def test_an_offset_of_an_emptied_store_is_none_of_its_next_life(
    stage: Stage, *, count: int, keeps_settings: bool
) -> None:
    member = await earlier_life(stage)
    await stage.restart(before=lambda node: remove_store(node, keeps_settings=keeps_settings))
    if not keeps_settings:
        await stage.make()
    await stage.send(count, "new")
    await member.commit(OLD)  # Before its first heartbeat, as RocketMQ's clients do.
    await member.heartbeat()
    await member.commit(OLD)
    heir = await stage.member("heir")
    assert await heir.first_offset() == 0


@run_by(on_a_stage)
async def test_members_that_read_a_new_life_from_an_offset_they_asked_for_move_it(
    stage: Stage,
) -> None:
    await earlier_life(stage)
    await stage.again(LONGER)
    heir = await stage.member("heir")
    begin = await heir.first_offset()
    _, following, _ = await heir.pull(begin)
    await heir.commit(following)
    assert await heir.first_offset() == following


@run_by(on_a_stage)
async def test_a_member_that_was_here_before_an_empty_life_begins_at_its_beginning(
    stage: Stage,
) -> None:
    """It asks while the queue is empty, and a message comes before it asks for the end."""
    member = await earlier_life(stage)
    await stage.again(0)
    begin = await member.first_offset()
    assert begin == 0
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
    answer = await member.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS


# Locks.


@run_by(on_a_stage)
async def test_a_lock_of_the_earlier_life_holds_nobody_up(stage: Stage) -> None:
    dead = await earlier_life(stage, "dead")
    assert await dead.lock()
    stage.world.node(dead.host).crash(power_cut=False)
    await stage.again(NEW)
    heir = await stage.member("heir")
    assert await heir.lock()


# Resets.


@run_by(on_a_stage)
async def test_a_reset_of_the_earlier_life_moves_nobody_in_the_new_one(stage: Stage) -> None:
    member = await earlier_life(stage)
    await reset(stage, to=7)
    await stage.again(LONGER)
    code, begin, _ = await member.pull(OLD)
    assert (code, begin) == (MOVED, 0)
    code, _, messages = await member.pull(0)
    assert (code, messages[0].body) == (FOUND, b"new-0")


@run_by(on_a_stage, use_server_side_reset_offset=False)
async def test_a_reset_that_members_were_sent_is_none_of_the_new_life(stage: Stage) -> None:
    member = await earlier_life(stage)
    await reset(stage, to=7)
    await stage.again(LONGER)
    await member.commit(7)
    assert [row["path"] for row in stage.reports() if row["offset"] == 7] == ["COMMIT_RPC"]
    heir = await stage.member("heir")
    assert await heir.first_offset() == 0


async def reset(stage: Stage, *, to: int) -> None:
    fields = ResetOffsetRequestHeader(
        topic=TOPIC, group=GROUP, timestamp_ms=-1, queue_id=0, offset=to
    ).encode()
    await stage.tool.done(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)


# Transactions.


@run_by(on_a_stage)
async def test_the_end_of_a_transaction_whose_topic_has_a_new_life_says_what_it_does(
    stage: Stage,
) -> None:
    await stage.make()
    half = await stage.tool.send(b"half", key="KH", half_of="payers")
    await stage.again(NEW)
    code = await stage.tool.end(half, "payers", "KH")
    assert (code == FOUND) == (b"half" in stage.bodies())


@run_by(on_a_stage)
async def test_the_end_of_a_transaction_never_commits_another_message(stage: Stage) -> None:
    await stage.make()
    half = await stage.tool.send(b"half-a", key="KA", half_of="payers")
    await stage.restart(before=lambda node: remove_store(node, keeps_settings=False))
    await stage.make()
    other = await stage.tool.send(b"half-b", key="KB", half_of="payers")
    same = (other.queue_offset, other.msg_id) == (half.queue_offset, half.msg_id)
    assert same, "the story is of two half messages in one place"
    assert await stage.tool.end(half, "payers", "KA") != FOUND
    assert stage.bodies() == []
    assert await stage.tool.end(other, "payers", "KB") == FOUND
    assert stage.bodies() == [b"half-b"]


# Deduplication.


@pytest.mark.parametrize("is_restarted", [False, True])
@run_by(on_a_stage)
async def test_a_message_of_the_earlier_life_is_stored_again(
    stage: Stage, *, is_restarted: bool
) -> None:
    await stage.make("+message.deduplication=true")
    await stage.tool.send(b"once", key="K1")
    await stage.delete()
    await stage.make("+message.deduplication=true")
    if is_restarted:
        await stage.restart()
    await stage.tool.send(b"once", key="K1")
    await stage.tool.send(b"once", key="K1")
    assert stage.bodies() == [b"once"]


# Send-backs.


@run_by(on_a_stage)
async def test_a_send_back_never_brings_another_message(stage: Stage) -> None:
    await stage.make()
    await stage.send(1, "old")
    member = await stage.member("old")
    _, _, (failed,) = await member.pull(0)
    await stage.restart(before=lambda node: remove_store(node, keeps_settings=False))
    await stage.make(topic=OTHER_TOPIC)
    await stage.make()
    await stage.send(1, "new", topic=TOPIC)
    await member.heartbeat()
    await member.send_back(failed)
    await asyncio.sleep(5.0)
    assert b"new-0" not in stage.bodies(retry_topic(GROUP))
    _, _, (present,) = await member.pull(0)
    assert await member.send_back(present) == FOUND
    await asyncio.sleep(5.0)
    assert stage.bodies(retry_topic(GROUP)) == [b"new-0"]
