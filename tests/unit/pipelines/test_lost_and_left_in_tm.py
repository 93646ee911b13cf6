"""`tm` says what a group lost unread, and which topics it has left."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import polars as pl
import pytest

from engine.telemetry.tables import BY_NAME as BRONZE
from pipelines import tm
from pipelines.lake.lake import Lake
from pipelines.marts.lost_unread_messages import LOST_UNREAD_MESSAGES
from pipelines.reading.known import summed_up
from pipelines.sentences.answers_on_groups import of_lag
from pipelines.sentences.losses import lost_unread
from pipelines.tm.arguments import Asked
from tests.gold_lake import END, write_gold_lake
from tests.lake_story import BROKER, CLUSTER, EMITTER, append_rows

AT = END - timedelta(minutes=5)


def lost(number: int, **row: Any) -> dict[str, Any]:
    """A range of the group shipping on orders that was deleted unread, so many seconds later."""
    fields = {
        "observed_at": AT + timedelta(seconds=number),
        "observed_date": AT.date(),
        "cluster": CLUSTER,
        "broker": BROKER,
        "emitter": EMITTER,
        "seq": 1 + number,
        "group": "shipping",
        "topic": "orders",
        "error_messages": 0,
        **row,
    }
    fields["messages"] = fields["to_offset"] - fields["from_offset"]
    return {**fields, "evidence": lost_unread(fields["group"], [fields])}


def left(topic: str) -> dict[str, Any]:
    return {
        "cluster": CLUSTER,
        "broker": BROKER,
        "broker_epoch": 1,
        "emitter": EMITTER,
        "seq": 1,
        "event_time": AT,
        "event_date": AT.date(),
        "kind": "TOPIC_LEFT",
        "group": "shipping",
        "topic": topic,
        "detail": "2,410 messages unread",
    }


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    found = write_gold_lake(tmp_path_factory.mktemp("lost") / "lake")
    rows = [
        lost(0, queue_id=0, from_offset=24_950, to_offset=36_000),
        lost(9, queue_id=1, from_offset=10, to_offset=30, error_messages=5),
    ]
    address = found.gold(LOST_UNREAD_MESSAGES.name)
    append_rows(address, LOST_UNREAD_MESSAGES.columns, rows, "observed_date")
    events = [left("invoices"), left("orders")]
    append_rows(found.bronze("lifecycle"), BRONZE["lifecycle"].columns, events, "event_date")
    return found


def test_what_a_group_lost_unread_is_said_with_ranges_since_when_and_how_many(lake: Lake) -> None:
    answer = tm.connect(lake.root).lost("shipping")
    assert answer.verdict.startswith(
        f"Group shipping lost 11,065 to 11,070 messages unread since {AT:%H:%M:%S} UTC: offsets "
        "[24950, 36000) of queue 0 of orders on broker-a and [10, 30) of queue 1 of orders on "
        "broker-a were deleted before it had read them. See whether the producers can "
        "send them again."
    )
    assert answer.rows["messages"].to_list() == [11_050, 20]
    assert answer.table == "lost_unread_messages"
    one = tm.connect(lake.root).lost("shipping", queue=1)
    assert "lost 15 to 20 messages unread" in one.verdict
    none = tm.connect(lake.root).lost("billing")
    assert none.verdict.startswith("No message of billing that was deleted unread is known.")


def test_how_far_a_group_is_behind_is_said_with_on_how_many_queues(lake: Lake) -> None:
    handle = tm.connect(lake.root)
    one = handle.lag("shipping").rows.group_by("queue_id", maintain_order=True).last()
    late = one.with_columns(
        lag_messages=pl.when(pl.col("queue_id") == 0).then(585).otherwise(0), time_lag_ms=1_000
    )
    said = of_lag(Asked("shipping"), summed_up(late), END)
    assert said == (
        "Group shipping is 585 messages behind on 1 of 4 queues; the oldest has waited for 1.0 s."
    )


def test_a_topic_that_a_group_has_left_is_said_in_the_words_of_its_page(lake: Lake) -> None:
    handle = tm.connect(lake.root)
    words = f"shipping left invoices at {AT:%H:%M} UTC; 2,410 messages unread."
    assert words in handle.lag("shipping").verdict
    assert "left orders" not in handle.lag("shipping").verdict, "it reads orders again"
    for answer in (handle.lag("billing"), handle.lag("shipping", topic="orders")):
        assert "left" not in answer.verdict
    assert words not in handle.lag("shipping", until=AT - timedelta(minutes=1)).verdict
