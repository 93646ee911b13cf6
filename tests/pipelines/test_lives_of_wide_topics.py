"""Lives of topics that are wide: a group on 10,000 queues, and a topic over three brokers.

Whatever was open when they were deleted is closed; what is made again under the same name begins
anew and is compared with nothing of before.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pytest

from pipelines.lake.lake import Lake
from pipelines.reading.catalogue import GOLD_TABLES
from pipelines.tm import connect
from tests.checked_lake import rows_of
from tests.pipelines.bronze_lake import START_US, BronzeWriter
from tests.pipelines.emitted_in_steps import Story
from tests.pipelines.in_process import SHORT, driver_of, run_to_the_end

QUEUES = 10_000
GROUP, TOPIC = "wide", "t"


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path / "lake")


def report_marks(broker: BronzeWriter, queues: Iterable[int], *, committed: int, end: int) -> None:
    """The group's marks on queues of the topic, as they are now."""
    is_at_end = committed == end
    seen_us = broker.now_us if is_at_end else START_US
    for queue_id in queues:
        broker.report(
            "group_watermarks",
            group=GROUP,
            topic=TOPIC,
            queue_id=queue_id,
            members=1,
            reports=1,
            committed=committed,
            pulled=committed,
            persisted=committed,
            min_offset=0,
            max_offset=end,
            processed=None,
            committed_state="AT_END" if is_at_end else "EXACT",
            store_time_at_committed=None if is_at_end else START_US,
            last_puller="wide-1",
            **dict.fromkeys(("last_pull_time", "last_commit_time"), seen_us),
            message_model="CLUSTERING",
        )


def assign(broker: BronzeWriter, queues: Iterable[int]) -> None:
    """One client reads all of them."""
    owned = [{"topic": TOPIC, "queue_id": number, "committed": 0, "pulled": 0} for number in queues]
    broker.report(
        "rebalance_events",
        group=GROUP,
        client_id="wide-1",
        kind="ASSIGNED",
        inferred=True,
        generation=1,
        queues=owned,
    )


def delete(broker: BronzeWriter) -> None:
    broker.report("lifecycle", kind="TOPIC_GONE", topic=TOPIC)


def judge(story: Story) -> None:
    run_to_the_end(driver_of(story.lake, evaluation=SHORT))


def gold(story: Story, name: str) -> pl.DataFrame:
    lake = Lake.at(str(story.lake))
    return rows_of(lake, lake.gold(name))


def still_open(story: Story) -> dict[str, int]:
    """Intervals of any table that are open, by table and broker."""
    found = {}
    for table in GOLD_TABLES:
        if table.revised:
            rows = gold(story, table.name).sort("revision").unique("window_id", keep="last")
            for (broker,), of_broker in rows.filter(state="OPEN").group_by("broker"):
                found[f"{table.name} on {broker}"] = of_broker.height
    return found


def lag(story: Story) -> tuple[int, int]:
    """(queues, messages) that the group has now."""
    rows = story.reading().newest("consumer_lag")
    return rows.height, int(rows["lag_messages"].sum())


@pytest.mark.timeout(240)
def test_a_group_on_ten_thousand_queues_ends_with_all_of_them(story: Story) -> None:
    a, queues = story.broker("broker-a"), range(QUEUES)
    assign(a, queues)
    for _ in story.steps(20, a):
        report_marks(a, queues, committed=500, end=900)
    judge(story)
    assert lag(story) == (QUEUES, 400 * QUEUES)
    assert still_open(story)["stalled_windows on broker-a"] == QUEUES
    assert still_open(story)["ownership on broker-a"] == QUEUES

    for at_s in story.steps(30, a):
        if at_s == 25:
            delete(a)
    judge(story)
    assert still_open(story) == {}
    assert lag(story) == (0, 0)
    assert gold(story, "ended_queues").height == QUEUES
    assert set(gold(story, "stalled_windows")["revision"]) == {1, 2}

    for _ in story.steps(40, a):
        report_marks(a, queues, committed=7, end=7)
    judge(story)
    assert still_open(story) == {}
    assert lag(story) == (QUEUES, 0)
    assert story.states() == {(GROUP, "broker-a"): "OK"}
    nothing_of_before(story)


def test_a_topic_over_three_brokers_ends_broker_by_broker(story: Story) -> None:
    brokers = [story.broker(f"broker-{name}") for name in "abc"]
    a, b, c = brokers
    for broker in brokers:
        assign(broker, range(4))
    for _ in story.steps(20, *brokers):
        for broker in brokers:
            report_marks(broker, range(4), committed=500, end=900)
    judge(story)
    assert lag(story) == (12, 12 * 400)
    whole = still_open(story)
    assert {whole[f"stalled_windows on broker-{name}"] for name in "abc"} == {4}

    for at_s in story.steps(30, *brokers):
        if at_s == 25:
            delete(b)
        for broker in (a, c):
            report_marks(broker, range(4), committed=500, end=900)
    judge(story)
    assert still_open(story) == {
        name: count for name, count in whole.items() if not name.endswith("broker-b")
    }
    assert lag(story) == (8, 8 * 400)

    for at_s in story.steps(45, *brokers):
        report_marks(b, range(4), committed=7, end=7)
        if at_s == 35:
            delete(a)
            delete(c)
    judge(story)
    assert still_open(story) == {}
    assert lag(story) == (4, 0)
    assert story.states() == {(GROUP, "broker-b"): "OK"}
    assert "none of them open" in connect(story.lake).stalls().verdict
    nothing_of_before(story)


def nothing_of_before(story: Story) -> None:
    """Offsets that are lower than those of an earlier life are no fall, and put nothing at risk."""
    assert gold(story, "offset_violations").height == 0
    risks = gold(story, "duplicate_risk_windows")
    assert set(risks["basis"]) <= {"EXPOSURE"}
    assert risks.filter(pl.col("redelivered_messages") > 0).height == 0
