"""A group whose members may be connected with a proxy that nobody can ask: how many there are is
unknown with the reason, and nothing is concluded from nobody being there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from dashboards.pages.group import members_text
from pipelines.base.settings import Evaluation
from tests.needed_steps import needed_for
from tests.pipelines.bronze_lake import START_US, BronzeWriter
from tests.pipelines.partition import bronze_of, run

WHY = "a proxy at 192.0.2.9 serves this cluster; give its port with --proxy"
STEPS = needed_for("consumer_lag", "group_state", "stalled_windows", "rebalances")


def gold_of(folder: Path, *, reason: str | None) -> dict[str, list[dict[str, Any]]]:
    """A group that stands for five minutes with messages waiting; nobody is with its broker."""
    writer = BronzeWriter(folder, broker="seen")
    writer.emitter = "cluster-1/seen/observer"
    writer.report("lifecycle", kind="BOOT")
    writer.report("lifecycle", kind="OBSERVED", report_each_ms=10_000)
    writer.report(
        "rebalance_events", group="g", client_id="c@1", kind="JOINED", inferred=False, generation=1,
        language="PYTHON", client_version=513, proxy="192.0.2.9:8080", subscription=["orders:*"],
    )  # fmt: skip
    for second in range(0, 300, 10):
        writer.at(second)
        for queue_id, members in ((0, None if reason else 0),):
            writer.report(
                "group_watermarks", group="g", topic="orders", queue_id=queue_id, committed=5,
                committed_state="EXACT", store_time_at_committed=START_US, min_offset=0,
                max_offset=20 + second, reports=0, members=members, members_unknown_reason=reason,
            )  # fmt: skip
        writer.ship()
    return run(STEPS, bronze_of(folder), Evaluation())


@pytest.fixture(scope="module")
def unknown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    return gold_of(tmp_path_factory.mktemp("unknown"), reason=WHY)


def test_members_are_unknown_with_the_reason_in_gold_and_on_the_page(unknown: Any) -> None:
    assert {row["members"] for row in unknown["group_state"]} == {None}
    newest = pl.DataFrame(unknown["consumer_lag"][-1:])
    assert members_text(None, newest) == f"unknown: {WHY}"


def test_a_group_that_stands_is_not_said_to_have_no_member(unknown: Any) -> None:
    reported = [row["evidence"] for row in unknown["stalled_windows"]]
    assert reported, "it stands all the same"
    assert not [one for one in reported if "no member" in one]
    assert {row["kind"] for row in unknown["stalled_windows"]} <= {"UNDETERMINED"}


def test_a_group_that_nobody_is_a_member_of_is(tmp_path: Path) -> None:
    gold = gold_of(tmp_path, reason=None)
    assert {row["members"] for row in gold["group_state"]} == {0}
    assert "DEAD_CONSUMER" in {row["kind"] for row in gold["stalled_windows"]}
    assert members_text(0, pl.DataFrame(gold["consumer_lag"][-1:])) == "0"


def test_who_joined_through_a_proxy_is_reported_with_language_version_and_subscription(
    unknown: Any,
) -> None:
    (row,) = unknown["rebalances"]
    reported = [row[name] for name in ("client_id", "language", "client_version", "proxy")]
    assert reported == ["c@1", "PYTHON", 513, "192.0.2.9:8080"]
    assert row["subscription"] == ["orders:*"]
