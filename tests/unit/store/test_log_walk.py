"""Walking the log: which of two records that claim one place of a queue is the damaged one."""

from __future__ import annotations

from pathlib import Path

from engine.store import MessageStore
from engine.store.commit_log import NO_DELAYS
from engine.store.log_walk import LogWalk
from tests.store_support import draft, open_store, small_config, turn

QUEUE_ID_AT = 12 + 3
QUEUE_OFFSET_AT = 20


async def test_a_record_whose_queue_id_has_flipped_displaces_no_message(tmp_path: Path) -> None:
    """It names another queue, at an offset that one has had before and that the next record of that
    queue would follow as well: only the queue's own unit says whose the place is.
    """
    store = await open_store(small_config(tmp_path))
    for body, queue_id in ((b"0", 0), (b"1", 0), *[(b"of one", 1)] * 3):
        store.put(draft(body, queue_id=queue_id))
    hit = store.put(draft(b"of none", queue_id=0))
    store.put(draft(b"the fourth of one", queue_id=1))
    await turn()
    assert (hit.queue_offset, store.max_offset("TopicA", 1)) == (2, 4)
    path = tmp_path / "commitlog" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(hit.physical_offset + QUEUE_ID_AT)
        file.write(b"\x01")
    walked = [(each.queue_id, each.queue_offset) for each in walk(store).records()]
    assert walked == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (1, 3)]
    (hole,) = store.holes
    assert (hole.start, hole.end) == (hit.physical_offset, hit.end_offset)
    await store.close()


async def test_a_queue_offset_below_zero_is_damage_though_nothing_follows(tmp_path: Path) -> None:
    store = await open_store(small_config(tmp_path))
    for body in (b"0", b"1"):
        store.put(draft(body))
    hit = store.put(draft(b"2"))
    await turn()
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(hit.physical_offset + QUEUE_OFFSET_AT)
        file.write(b"\x80")
    assert [each.queue_offset for each in walk(store).records()] == [0, 1]
    await store.close()


async def test_a_topic_made_again_twice_makes_no_hole(tmp_path: Path) -> None:
    """With one message in between, two of them in a row are the first of their queue."""
    store = await open_store(small_config(tmp_path))
    store.start()
    for count in (3, 1, 2):
        for number in range(count):
            assert store.put(draft(b"%d" % number)).queue_offset == number
        if count != 2:
            await store.delete_topic("TopicA")
    await turn()
    assert [each.queue_offset for each in walk(store).records()] == [0, 1, 2, 0, 0, 1]
    assert not list(store.holes)
    await store.close()


def walk(store: MessageStore) -> LogWalk:
    return LogWalk(
        store._log,
        store._queues,
        0,
        synced_to=store.physical_max,
        delay_levels_ms=NO_DELAYS,
    )
