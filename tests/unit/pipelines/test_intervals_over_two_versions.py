"""What follows the newest revisions of an earlier version, where present rules say otherwise."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from pipelines.cycles.taking_over import continued

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
END = NOON + timedelta(minutes=5)
ENDS = {"c/b/0": (END, 90)}
BEHIND = END + timedelta(microseconds=1)


def interval(revision: int, state: str = "OPEN", **values: Any) -> dict[str, Any]:
    revised_at = NOON + timedelta(minutes=revision)
    return {
        "window_id": "w",
        "revision": revision,
        "state": state,
        "observed_at": revised_at,
        "valid_from": revised_at,
        "observed_date": revised_at.date(),
        "opened_at": NOON,
        "closed_at": revised_at if state == "CLOSED" else None,
        "emitter": "c/b/0",
        "seq": 10 * revision,
        "rule": "old",
        **values,
    }


def rows(*given: dict[str, Any]) -> pl.DataFrame:
    empty = pl.DataFrame([interval(1, "CLOSED")]).clear()
    return pl.DataFrame(list(given), schema=empty.schema) if given else empty


def new(revision: int, state: str = "OPEN", **values: Any) -> dict[str, Any]:
    return interval(revision, state, rule="new", **values)


@pytest.mark.parametrize(
    ("before", "now", "follows"),
    [
        pytest.param(interval(2), new(2), None, id="open to both: the next revision is to come"),
        pytest.param(interval(2), new(3), (3, "OPEN", "new", None), id="revised since"),
        pytest.param(interval(2), None, (3, "CLOSED", "old", END), id="unknown to these rules"),
        pytest.param(
            interval(4), new(2), (5, "CLOSED", "old", END), id="revised more often than now"
        ),
        pytest.param(
            interval(2),
            new(2, "CLOSED"),
            (3, "CLOSED", "new", NOON + timedelta(minutes=2)),
            id="over to these rules",
        ),
        pytest.param(None, new(3), (3, "OPEN", "new", None), id="unknown before"),
        pytest.param(None, new(3, "CLOSED"), None, id="unknown before, and over"),
        pytest.param(interval(2, "CLOSED"), None, None, id="over before"),
        pytest.param(interval(2, "CLOSED"), new(2, "CLOSED"), None, id="over to both"),
        pytest.param(
            interval(2, observed_at=BEHIND),
            new(2, "CLOSED"),
            None,
            id="reported by the cycle under way",
        ),
        pytest.param(
            interval(2, emitter="c/d/0"), None, None, id="of an emitter that is not known"
        ),
    ],
)
def test_an_interval_is_continued_or_closed_behind_the_last_cycle(
    before: dict[str, Any] | None,
    now: dict[str, Any] | None,
    follows: tuple[int, str, str, datetime | None] | None,
) -> None:
    old, anew = (rows(*([] if one is None else [one])) for one in (before, now))

    found = continued(old, anew, ENDS)

    shown = found.select("revision", "state", "rule", "closed_at").rows()
    assert shown == ([] if follows is None else [follows])
    for row in found.iter_rows(named=True):
        assert (row["observed_at"], row["valid_from"], row["seq"]) == (BEHIND, BEHIND, 90)
        assert row["opened_at"] == NOON
