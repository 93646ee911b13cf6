"""A queue's risk of double consumption as a state machine: one step per event, told as Spark
expressions.

Place in the walk: risk events → revisions of windows. At most one window is open per queue: a later
opening takes over from an earlier one, a redelivery belongs to the window that is open, and opens
one when none is.

    (none) --OPENING--> open --REDELIVERY--> open, CONFIRMED --PROGRESS past the range--> closed
    (none) --REDELIVERY--> open, CONFIRMED          open --OPENING--> closed, and a new one is open

Invariant: the fold of a list of events equals the fold of its two halves, the open window carried
from one to the other: so revisions do not depend on where a cycle was cut. Absent on purpose:
sentences, and columns of the table.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from pipelines.frames.risk_events import WINDOW_FIELDS

REVISION_FIELDS: Final = {
    **WINDOW_FIELDS,
    "observed_us": "long",
    "seq": "long",
    "state": "string",
    "told_by": "string",
}
"""told_by: OPENED, AGAIN (redelivered), PASSED (the group went past the range) or TAKEN_OVER (by a
later opening).
"""


def _type_of(fields: dict[str, str]) -> str:
    return f"struct<{','.join(f'{name}:{kind}' for name, kind in fields.items())}>"


_WINDOW: Final = _type_of(WINDOW_FIELDS)
_REVISION: Final = _type_of(REVISION_FIELDS)


def revisions_of(carried: Column, events: Column) -> Column:
    """The array of revisions that `events`, in order, bring to a queue whose open window is
    `carried` or null.
    """
    start = F.struct(
        carried.cast(_WINDOW).alias("open"), F.array().cast(f"array<{_REVISION}>").alias("told")
    )
    return F.aggregate(events, start, _step, lambda done: done["told"])


def _step(state: Column, event: Column) -> Column:
    window = state["open"]
    is_open = window.isNotNull()
    is_opening = event["type"] == "OPENING"
    is_again = event["type"] == "REDELIVERY"
    is_past = (event["type"] == "PROGRESS") & is_open & _is_past(window, event)
    confirmed = _confirmed(window, event)
    next_open = (
        F.when(is_opening | (is_again & ~is_open), _opened(event))
        .when(is_again, confirmed)
        .when(is_past, F.lit(None).cast(_WINDOW))
        .otherwise(window)
    )
    ending = F.when(is_opening & is_open, _told(_next(window), event, "CLOSED", "TAKEN_OVER")).when(
        is_past, _told(_next(window), event, "CLOSED", "PASSED")
    )
    news = F.when(
        is_opening | (is_again & ~is_open), _told(_opened(event), event, "OPEN", "OPENED")
    ).when(is_again, _told(confirmed, event, "OPEN", "AGAIN"))
    more = F.filter(F.array(ending, news), lambda one: one.isNotNull())
    return F.struct(
        next_open.alias("open"),
        F.when(F.size(more) > 0, F.concat(state["told"], more))
        .otherwise(state["told"])
        .alias("told"),
    )


def _opened(event: Column) -> Column:
    """A window as an opening, or a redelivery that nobody expected, begins it."""
    is_again = event["type"] == "REDELIVERY"
    return _window(
        opened_us=event["event_us"],
        revision=F.lit(1),
        **{
            name: event[name]
            for name in (
                "basis",
                "cause",
                "client_id",
                "next_client_id",
                "from_offset",
                "to_offset",
                "certain",
                "uncertain",
            )
        },
        redelivered_from=F.when(is_again, event["from_offset"]),
        redelivered_to=F.when(is_again, event["to_offset"]),
        redelivered=F.coalesce(event["messages"], F.lit(0)),
    )


def _confirmed(window: Column, event: Column) -> Column:
    """The window with one more redelivery; one without a prediction grows with what it sees."""
    grows = window["basis"] == "REDELIVERY"
    kept = {name: window[name] for name in WINDOW_FIELDS}
    return _window(
        **{
            **kept,
            "revision": window["revision"] + 1,
            "next_client_id": event["next_client_id"],
            "from_offset": F.when(
                grows, F.least(window["from_offset"], event["from_offset"])
            ).otherwise(window["from_offset"]),
            "to_offset": F.when(
                grows, F.greatest(window["to_offset"], event["to_offset"])
            ).otherwise(window["to_offset"]),
            "redelivered_from": F.least(window["redelivered_from"], event["from_offset"]),
            "redelivered_to": F.greatest(window["redelivered_to"], event["to_offset"]),
            "redelivered": window["redelivered"] + event["messages"],
        }
    )


def _next(window: Column) -> Column:
    """The window under its next revision number."""
    kept = {name: window[name] for name in WINDOW_FIELDS}
    return _window(**{**kept, "revision": window["revision"] + 1})


def _is_past(window: Column, event: Column) -> Column:
    """Commits went past the range; or, after a departure, pulls did without bringing it again.

    After a restart readers pull on where they were; the range stays at risk until a commit.
    """
    end = F.greatest(window["to_offset"], window["redelivered_to"])
    by_commit = event["committed"] >= end
    expects_pull = (window["basis"] == "DEPARTURE") & (window["redelivered"] == 0)
    by_pull = expects_pull & (event["pulled"] > window["to_offset"])
    return F.coalesce(by_commit, F.lit(False)) | F.coalesce(by_pull, F.lit(False))


def _window(**fields: Column) -> Column:
    return F.struct(*(fields[name].cast(kind).alias(name) for name, kind in WINDOW_FIELDS.items()))


def _told(window: Column, event: Column, state: str, told_by: str) -> Column:
    return F.struct(
        *(window[name].alias(name) for name in WINDOW_FIELDS),
        event["event_us"].alias("observed_us"),
        event["seq"].alias("seq"),
        F.lit(state).alias("state"),
        F.lit(told_by).alias("told_by"),
    )
