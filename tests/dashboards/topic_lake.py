"""A small lake about one topic: two groups, four queues of which less and less is known, and the
way of one message from its queue to the dead letters.

    queue 0  all is reported; the message lies here, is pulled twice, fails three times
    queue 1  stands still for one group
    queue 2  its watermarks were reported once
    queue 3  only the lag of its readers was reported
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from pipelines.lake.lake import Lake
from tests.lake_story import END, Cast, Fact, Story, write_story

TOPIC: Final = "orders"
OFFSET: Final = 2**53 + 301
"""Of the message in queue 0, which gets one message a second from BASE on."""
BASE: Final = 2**53 + 1
PULLED, AGAIN, FAILED, DEAD = 310, 320, 322, 370
NOW: Final = END + timedelta(seconds=8)
UNTRACED: Final = "7F0000010A2B18B4AAC2166C0D4E0999"


def write_topic_lake(root: Path, cast: Cast | None = None) -> Lake:
    """Tell the story and write it below `root`."""
    story = Story(cast or Cast())
    for second in range(30, 901, 30):
        _reports(story, second)
    _message(story)
    _stall(story)
    return write_story(story, Lake.at(str(root)))


def _reports(story: Story, second: int) -> None:
    for queue_id, per_second in ((0, 1), (1, 2), (2, 1)):
        if queue_id < 2 or second == 900:
            story.fact(
                second,
                "queue_watermarks",
                topic=TOPIC,
                queue_id=queue_id,
                min_offset=BASE,
                max_offset=BASE + per_second * second,
                last_store_time=END if second == 900 else None,
                readable=queue_id != 1,
            )
    for group, queue_id in _readers(story.cast):
        stuck = group == story.cast.shipping and queue_id == 1
        newest = BASE + (2 if queue_id == 1 else 1) * second
        behind = newest - BASE - 100 if stuck else 5
        unknown = group == story.cast.shipping and queue_id == 3
        mark = story.fact(second, "group_watermarks", **_mark(group, queue_id, newest))
        story.answer(
            "consumer_lag",
            second,
            mark,
            group=group,
            topic=TOPIC,
            queue_id=queue_id,
            lag_messages=None if unknown else behind,
            time_lag_ms=None if unknown else behind * 500,
            provenance="UNKNOWN" if unknown else "EXACT",
            unknown_reason="NO_OFFSET" if unknown else None,
            committed=None if unknown else newest - behind,
            pulled=None if unknown else newest,
            min_offset=BASE,
            max_offset=newest,
            trend="GROWING" if stuck else "STEADY",
            last_puller=f"{group}-1@10.0.0.9",
        )


def _readers(cast: Cast) -> list[tuple[str, int]]:
    return [(group, queue_id) for group in (cast.billing, cast.shipping) for queue_id in range(4)]


def _mark(group: str, queue_id: int, newest: int) -> dict[str, Any]:
    return {
        "group": group,
        "topic": TOPIC,
        "queue_id": queue_id,
        "committed_state": "EXACT",
        "min_offset": BASE,
        "max_offset": newest,
        "reports": 1,
    }


def _message(story: Story) -> None:
    cast = story.cast
    story.fact(
        AGAIN,
        "redeliveries",
        group=cast.billing,
        topic=TOPIC,
        queue_id=0,
        from_offset=OFFSET - 3,
        to_offset=OFFSET + 4,
        client_id="billing-2@10.0.0.11",
        previous_client_id="billing-1@10.0.0.11",
        broker_epoch_before=0,
    )
    for at_s, step, tries, delay_ms, reason in (
        (FAILED, "SENT_BACK", 1, 10_000, None),
        (FAILED + 10, "DELIVERED", 1, None, None),
        (FAILED + 11, "SENT_BACK", 2, 30_000, None),
        (FAILED + 41, "DELIVERED", 2, None, None),
        (DEAD, "DEAD_LETTERED", 3, None, cast.reason),
    ):
        fact = _step(story, at_s, step, reconsume_times=tries, delay_ms=delay_ms, reason=reason)
    story.answer(
        "dead_letters",
        DEAD,
        fact,
        group=cast.billing,
        message_id=cast.message_id,
        origin_topic=TOPIC,
        reconsume_times=3,
        reason=cast.reason,
    )
    story.fact(
        400,
        "retry_dlq_flow",
        group=cast.shipping,
        origin_topic="payments",
        message_id="of another topic",
        reconsume_times=1,
        step="SENT_BACK",
    )


def _step(story: Story, at_s: float, step: str, **values: Any) -> Fact:
    first = at_s == FAILED
    return story.fact(
        at_s,
        "retry_dlq_flow",
        message_id=story.cast.message_id,
        origin_topic=TOPIC,
        origin_queue_id=0 if first else None,
        origin_offset=OFFSET if first else None,
        group=story.cast.billing,
        step=step,
        **values,
    )


def _stall(story: Story) -> None:
    fact = story.fact(200, "client_windows", **_held(story.cast.shipping))
    story.window(
        "stalled_windows",
        "stuck",
        (200.0, None),
        fact=fact,
        group=story.cast.shipping,
        topic=TOPIC,
        queue_id=1,
        rule="STALLED",
        kind="FROZEN_HEAD",
        window_ms=30_000,
        slide_ms=5_000,
        reports=7,
        evidence="7 commits in 30 s, offset unchanged",
    )


def _held(group: str) -> dict[str, Any]:
    return {
        "client_id": f"{group}-1",
        "group": group,
        "topic": TOPIC,
        "queue_id": 1,
        "held_count": 1,
        "held_bytes": 1,
        "locked": False,
        "dropped": False,
    }
