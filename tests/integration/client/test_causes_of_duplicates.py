"""Row A10: each cause of a message consumed twice, or passed over, played with
processes that are really killed, and found in the table that fits.

    redelivery of a range      redeliveries
    a failed message           retry_dlq_flow
    a lost answer to a send    a second message of the same UNIQ_KEY, named in retry_dlq_flow
    a broadcast consumer       its own file; the broker reports nothing
    a raised offsets file      consume_offsets, path RESTORE, with the count of the skipped range

What was consumed is the consumers' own record; what is reported is read from the spool.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from engine.admin import Admin
from engine.runtime import system_runtime
from tests.integration.broker.spooled import spooled
from tests.integration.client.cluster_users import (
    Seen,
    client_config,
    consumer_config,
    consuming,
    eventually,
    producing,
    text,
)
from tests.integration.client.duplicate_scenes import (
    COUNT,
    Scene,
    Story,
    change_offset,
    key_of,
    next_life,
    stopped_with_offset,
)
from tests.integration.client.lossy_link import lossy_link
from tests.integration.telemetry.killable_engine import SMALL, KillableEngine
from tests.interop.our_engine import OurEngine

# Causes in one life of the broker.

REPORTS_SOON = {"persist_first_ms": 100, "persist_ms": 100}


async def a_consumer_dies_before_it_reported(scene: Scene) -> None:
    first = await scene.consumer()
    await first.took(COUNT)
    await first.kill()
    second = await scene.consumer()
    await second.took(COUNT)
    rows = scene.assert_redelivered(*range(COUNT))
    assert {row["previous_client_id"] for row in rows} == {first.client_id}
    assert {row["client_id"] for row in rows} == {second.client_id}


async def a_consumer_is_restarted_while_one_message_is_stuck(scene: Scene) -> None:
    """Finished work is not a prefix: what lies behind the stuck message comes again."""
    first = await scene.consumer(stuck_on="3")
    await first.took(COUNT - 1)
    await first.leave()
    await (await scene.consumer()).took(COUNT - 3)
    scene.assert_redelivered(*range(4, COUNT))


async def a_member_joins_and_takes_a_queue_over(scene: Scene) -> None:
    """Scale-out: the one whose id sorts first gets queue 0, at the offset that was handed over.

    When it asks before the hand-over arrives, all of the queue comes again; both are found.
    """
    first = await scene.consumer(instance="b", stuck_on="3")
    await first.took(COUNT - 1)
    second = await scene.consumer(instance="a")
    last = lambda: any(one["offset"] == COUNT - 1 for one in second.taken)  # noqa: E731
    await eventually(last, "it has read to the end")
    begin = min(one["offset"] for one in second.taken)
    assert begin in (0, 3)
    rows = scene.assert_redelivered(*(n for n in range(begin, COUNT) if n != 3))
    assert {row["previous_client_id"] for row in rows} == {first.client_id}

    def handed_over() -> bool:
        reported = [row for row in scene.rows("consume_offsets") if row["trigger"] == "HAND_OVER"]
        return (scene.name, 0, 3) in {(r["topic"], r["queue_id"], r["offset"]) for r in reported}

    await eventually(handed_over, "the hand-over is reported")


async def a_member_leaves_and_another_takes_its_queue(scene: Scene) -> None:
    """Scale-in."""
    first = await scene.consumer(instance="a", stuck_on="3")
    other = await scene.consumer(instance="b")
    await first.took(COUNT - 1)
    assert other.taken == []
    await first.leave()
    await other.took(COUNT - 3)
    rows = scene.assert_redelivered(*range(4, COUNT))
    assert {row["client_id"] for row in rows} == {other.client_id}
    left = [row for row in scene.rows("rebalance_events") if row["kind"] == "LEFT"]
    assert [row["reason"] for row in left] == ["UNREGISTERED"]


async def a_listener_says_later_though_its_work_is_done(scene: Scene) -> None:
    """Wrong ACK by business code: each message comes again through the retry topic."""
    consumer = await scene.consumer(later_once=True)
    await consumer.took(2 * COUNT)
    tries = Counter(one["id"] for one in consumer.taken)
    assert set(tries.values()) == {2}, "each twice, under the same UNIQ_KEY"
    steps = Counter((row["step"], row["message_id"]) for row in scene.rows("retry_dlq_flow"))
    for message_id in tries:
        for step in ("SENT_BACK", "SCHEDULED", "DELIVERED"):
            assert steps[step, message_id] == 1
    assert scene.rows("redeliveries") == [], "nothing of it is a redelivery"


async def the_answer_to_a_send_is_lost(scene: Scene) -> None:
    async with (
        lossy_link(scene.broker) as link,
        producing(scene.namesrv, "p", retry_times=0) as producer,
    ):
        await producer.send(text(scene.name, "warm-up"))
        routes = producer._connection.routes
        routes._addresses["broker-a"][0] = link.address
        link.losing = True
        message = text(scene.name, "once")
        sending = asyncio.create_task(producer.send(message, timeout_ms=1000))
        await asyncio.gather(sending, return_exceptions=True)
        assert sending.exception() is not None
        assert link.lost_bytes, "the broker stored it and said so"
        routes._addresses["broker-a"][0] = scene.broker
        await producer.send(message)
    consumer = await scene.consumer()
    await consumer.took(COUNT + 3)
    again = [one for one in consumer.taken if one["body"] == "once"]
    assert len({(one["queue_id"], one["offset"]) for one in again}) == 2, "two messages"
    key = message.properties["UNIQ_KEY"]
    assert {one["id"] for one in again} == {key}
    async with Admin(system_runtime(), client_config(scene.namesrv)) as admin:
        stored = await admin.messages.query(scene.name, key, is_unique_key=True)
    assert len(stored) == 2, "both are found by the one key"
    [reported] = [row for row in scene.rows("retry_dlq_flow") if row["step"] == "SENT_AGAIN"]
    last = max(stored, key=lambda copy: copy.physical_offset)
    second = (key, last.queue_id, last.queue_offset)
    assert (
        reported["message_id"],
        reported["origin_queue_id"],
        reported["origin_offset"],
    ) == second
    assert scene.rows("redeliveries") == [], "no message was delivered twice"


async def the_last_report_of_a_consumer_is_lost(scene: Scene) -> None:
    """Consume ACK lost: the one-way report falls into the gap, and nobody hears of it."""
    seen = Seen()
    async with (
        lossy_link(scene.broker) as link,
        consuming(
            scene.namesrv,
            f"{scene.name}-group",
            {scene.name: seen},
            config=consumer_config(persist_first_ms=60_000, piggyback_commit=False),
            client=client_config(scene.namesrv, stop_timeout_ms=300, route_poll_ms=60_000),
        ) as consumer,
    ):
        await eventually(lambda: len(seen.messages) == COUNT, "all consumed")
        consumer._connection.routes._addresses["broker-a"][0] = link.address
        link.losing_requests = True
        client_id = consumer.client_id
    second = await scene.consumer()
    await second.took(COUNT)
    rows = scene.rows("redeliveries")
    assert sorted(scene.reported_again()) == list(range(COUNT))
    assert {row["previous_client_id"] for row in rows} == {client_id}


async def a_broadcast_consumer_dies_before_it_wrote_its_file(scene: Scene) -> None:
    folder = scene.folder / "offsets"
    first = await scene.consumer(broadcast_folder=str(folder), settings=REPORTS_SOON)
    await first.took(COUNT)

    def written() -> bool:
        """Between the two renames by which the file is replaced there is none of that name."""
        for file in folder.rglob("offsets.json"):
            with contextlib.suppress(FileNotFoundError):
                return f":{COUNT}" in file.read_text().replace(" ", "")
        return False

    await eventually(written, "the file says what was consumed")
    await first.leave()
    second = await scene.consumer(broadcast_folder=str(folder))
    await scene.send(COUNT, COUNT + 1)
    await second.took(2)
    await second.kill()
    assert written(), "its file does not know of the last two"
    third = await scene.consumer(broadcast_folder=str(folder))
    await third.took(2)
    assert sorted(scene.twice()) == [COUNT, COUNT + 1]
    assert scene.rows("redeliveries") == []
    assert scene.rows("consume_offsets") == [], "the broker knows no offsets of broadcasting"


ONE_LIFE: tuple[Story, ...] = (
    a_consumer_dies_before_it_reported,
    a_consumer_is_restarted_while_one_message_is_stuck,
    a_member_joins_and_takes_a_queue_over,
    a_member_leaves_and_another_takes_its_queue,
    a_listener_says_later_though_its_work_is_done,
    the_answer_to_a_send_is_lost,
    the_last_report_of_a_consumer_is_lost,
    a_broadcast_consumer_dies_before_it_wrote_its_file,
)


@pytest.mark.parametrize("story", ONE_LIFE, ids=lambda story: story.__name__)
async def test_a_duplicate_is_found_where_it_belongs(
    engine: OurEngine, tmp_path: Path, story: Story
) -> None:
    name = story.__name__[:40]
    scene = Scene(name, engine.name_server, engine.broker, engine.store, tmp_path)
    await scene.begin()
    try:
        await story(scene)
    finally:
        await scene.end()


# Causes that need another life of the broker.


async def a_broker_dies_before_it_persisted(scene: Scene) -> None:
    assert scene.engine is not None
    first = await scene.consumer(settings=REPORTS_SOON)
    await first.took(COUNT)
    full = lambda: any(row["offset"] == COUNT for row in scene.rows("consume_offsets"))  # noqa: E731
    await eventually(full, "reported, and not persisted yet")
    await first.kill()
    await scene.engine.end(signal.SIGKILL)
    await scene.engine.start()
    await (await scene.consumer()).took(COUNT)
    rows = scene.assert_redelivered(*range(COUNT))
    boots = [row for row in spooled(scene.store, "lifecycle") if row["kind"] == "BOOT"]
    assert [row["clean"] for row in boots] == [True, False]
    assert len({row["broker_epoch_before"] for row in rows}) == 1


async def the_offsets_file_is_deleted(scene: Scene) -> None:
    path = await stopped_with_offset(scene)
    path.unlink()
    path.with_suffix(".json.bak").unlink(missing_ok=True)
    (damage,) = await next_life(scene)
    assert "consumerOffset.json and its .bak are gone" in damage
    await (await scene.consumer()).took(COUNT)
    scene.assert_redelivered(*range(COUNT))


async def the_offsets_file_is_truncated(scene: Scene) -> None:
    path = await stopped_with_offset(scene)
    older = json.loads(path.read_text())
    older["offsetTable"][key_of(scene)]["0"] = 5
    path.with_suffix(".json.bak").write_text(json.dumps(older))
    path.write_bytes(path.read_bytes()[:20])
    (damage,) = await next_life(scene)
    assert "consumerOffset.json is damaged" in damage
    await (await scene.consumer()).took(COUNT - 5)
    scene.assert_redelivered(*range(5, COUNT))


async def the_offsets_file_is_lowered(scene: Scene) -> None:
    path = await stopped_with_offset(scene)
    change_offset(path, scene, 2)
    assert await next_life(scene) == []
    await (await scene.consumer()).took(COUNT - 2)
    scene.assert_redelivered(*range(2, COUNT))


async def the_offsets_file_is_raised_beyond_the_queue(scene: Scene) -> None:
    """What has not been stored yet is not passed over: it is delivered when it comes."""
    path = await stopped_with_offset(scene)
    change_offset(path, scene, COUNT + 3)
    assert await next_life(scene) == []
    (taken_back,) = [
        row["detail"]
        for row in spooled(scene.store, "lifecycle")
        if row["kind"] == "OFFSETS_TAKEN_BACK"
    ]
    assert f"at {COUNT} instead of {COUNT + 3}" in taken_back
    await scene.send(*range(COUNT, COUNT + 5))
    last = await scene.consumer()
    await last.took(5)
    assert [one["offset"] for one in last.taken] == list(range(COUNT, COUNT + 5))
    assert scene.twice() == Counter()
    assert [row for row in scene.rows("consume_offsets") if row["path"] == "RESTORE"] == []


async def the_offsets_file_is_raised_after_a_kill(scene: Scene) -> None:
    """What was pulled is not consumed, so it counts as passed over."""
    assert scene.engine is not None
    first = await scene.consumer(stuck_on="3", settings=REPORTS_SOON)
    await first.took(COUNT - 1)
    reports = lambda: [row["offset"] for row in scene.rows("consume_offsets")]  # noqa: E731
    await eventually(lambda: reports()[-1:] == [3], "all before the stuck one is reported")
    await first.kill()
    await scene.engine.end(signal.SIGKILL)
    path = scene.store / "config" / "consumerOffset.json"
    path.write_text(json.dumps({"offsetTable": {key_of(scene): {"0": 6}}}))
    assert await next_life(scene) == []
    second = await scene.consumer()
    await second.took(COUNT - 6)
    (reported,) = [row for row in scene.rows("consume_offsets") if row["path"] == "RESTORE"]
    assert (reported["previous_offset"], reported["offset"]) == (3, 6)


async def the_log_loses_what_was_read(scene: Scene) -> None:
    """A power cut takes the log's tail; its producer sends it again, and it is consumed again."""
    assert scene.engine is not None
    first = await scene.consumer()
    await first.took(COUNT)
    await first.kill()
    await scene.engine.end(signal.SIGKILL)
    (log,) = (scene.store / "commitlog").iterdir()
    with log.open("r+b") as file:
        file.seek(scene.places[5])
        file.write(bytes(100))  # The first page that did not reach the disk; later ones did.
    assert await next_life(scene) == []
    (recovery,) = [r for r in spooled(scene.store, "lifecycle") if r["truncated_to"] is not None]
    assert recovery["truncated_from"] == scene.places[5] < recovery["truncated_to"]
    cut = [row for row in scene.rows("group_watermarks") if row["max_offset"] == 5]
    assert (cut[0]["queue_id"], cut[0]["pulled"]) == (0, 5), "reported before anybody pulls again"
    await scene.send(*range(5, COUNT))
    second = await scene.consumer()
    await second.took(COUNT)
    assert sorted(one["body"] for one in second.taken) == [f"{n}" for n in range(COUNT)]
    assert set(scene.reported_again()) == set(range(5)), (
        "the others are other messages to the broker"
    )


PERSISTS_AT_STOPS = (
    *("--set", "flushConsumerOffsetInterval=600000"),
    *("--set", "flushIntervalCommitLog=60000"),
)
"""The offsets on disk are those of the last stop, however long a story takes; so is, for a minute,
how far the log is synced: a power cut takes only what was never synced.
"""

ACROSS_LIVES: tuple[Story, ...] = (
    a_broker_dies_before_it_persisted,
    the_offsets_file_is_deleted,
    the_offsets_file_is_truncated,
    the_offsets_file_is_lowered,
    the_offsets_file_is_raised_beyond_the_queue,
    the_offsets_file_is_raised_after_a_kill,
    the_log_loses_what_was_read,
)


@pytest.mark.parametrize("story", ACROSS_LIVES, ids=lambda story: story.__name__)
async def test_what_a_lost_or_changed_offset_does_is_found_where_it_belongs(
    tmp_path: Path, story: Story
) -> None:
    engine = KillableEngine(tmp_path, *SMALL, *PERSISTS_AT_STOPS)
    await engine.start()
    scene = Scene("tide", engine.namesrv, engine.broker, engine.store, tmp_path, engine)
    try:
        await scene.begin()
        await story(scene)
    finally:
        await scene.end()
        await engine.end(signal.SIGKILL)


async def test_with_both_offset_files_damaged_the_start_is_refused_in_one_sentence(
    tmp_path: Path,
) -> None:
    engine = KillableEngine(tmp_path, *SMALL)
    await engine.start()
    scene = Scene("tide", engine.namesrv, engine.broker, engine.store, tmp_path, engine)
    try:
        await scene.begin()
        path = await stopped_with_offset(scene)
        good = path.read_bytes()
        backup = path.with_suffix(".json.bak")
        for damaged in (path, backup):
            damaged.write_bytes(b'{"offsetTable":{"tide@')
        with pytest.raises(AssertionError) as refused:
            await engine.start()
        said = str(refused.value).strip().splitlines()[-1]
        assert said.startswith("tidemark engine: ")
        assert str(path) in said
        assert str(backup) in said
        assert "remove the damaged files to begin with an empty table" in said
        assert path.exists(), "nothing is thrown away before somebody decides"
        path.write_bytes(good)
        await engine.start()
        await (await scene.consumer()).took(0)
        assert scene.rows("redeliveries") == []
    finally:
        await scene.end()
        await engine.end(signal.SIGKILL)
