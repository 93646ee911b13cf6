"""Sentences that answer questions about members, losses, alerts, checks and windows.

Place in the walk: rows of an answer of `tm` → its verdict. Pure. Invariant: of a lake that nobody
watches no sentence says that all is well.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, cast

import polars as pl

from pipelines.base.wording import clock, count, duration, plural, spoken
from pipelines.sentences.answers import NAMED_MAX, Question, at, is_or_are, listed, range_of
from pipelines.sentences.figures import moment as moment_of
from pipelines.sentences.figures import was, whole
from pipelines.sentences.losses import lost_unread
from pipelines.sentences.new_lives import new_lives
from pipelines.sentences.stalls import stands_now

NO_ALERTS: Final = "No alert is known in this lake: `tidemark alerts run` watches it."
"""Of a lake that perhaps nobody watches: that none is open would reassure falsely."""


def of_ownership(asked: Question, rows: pl.DataFrame) -> str:
    """How many queues have how many readers now, or had them; of a range, at any moment of it."""
    if rows.is_empty():
        return f"No reader{asked.words}{range_of(asked)}."
    if asked.since is not None or asked.until is not None:
        queues = rows.select("cluster", "broker", "group", "topic", "queue_id").n_unique()
        readers = plural(rows["client_id"].n_unique(), "client")
        said = f"{plural(queues, 'queue')}{asked.words} {was(queues)} read by {readers}"
        return f"{said} in this range."
    held = rows.filter(pl.col("state") == "OPEN")
    if held.is_empty():
        queues = rows.select("cluster", "broker", "group", "topic", "queue_id").n_unique()
        ended = moment_of(cast("datetime", rows["closed_at"].max()), day=True)
        return (
            f"No queue{asked.words} has a reader now: {plural(queues, 'queue')} had "
            f"{plural(rows['client_id'].n_unique(), 'client')}, until {ended}."
        )
    clients = held["client_id"].n_unique()
    read = "is" if held.height == 1 else "are"
    return (
        f"{plural(held.height, 'queue')}{asked.words} {read} read by {plural(clients, 'client')}."
    )


_CHANGES: Final = {
    "SUBSCRIPTION_CHANGED": "changed subscription",
    "SUBSCRIPTION_CONFLICT": "subscription conflict",
    "SUBSCRIPTION_AGREED": "settled subscription conflict",
    "QUEUES_CHANGED": "changed number of queues",
    "CLIENT_ID_SHARED": "shared client id",
}
"""Kinds of which something is counted that has another plural than `joined`."""


def of_rebalances(asked: Question, rows: pl.DataFrame) -> str:
    """How many changes, by kind."""
    if rows.is_empty():
        return f"No change of members{asked.words}{range_of(asked)}."
    kinds = rows["kind"].value_counts(sort=True).iter_rows()
    changes = ", ".join(_changes(kind, number) for kind, number in kinds)
    known = f"{is_or_are(rows.height)} known"
    return f"{plural(rows.height, 'change')} of members{asked.words} {known}: {changes}."


def _changes(kind: str, number: int) -> str:
    """`13 joined`, `2 changed subscriptions`."""
    noun = _CHANGES.get(kind)
    return f"{number:,} {spoken(kind)}" if noun is None else plural(number, noun)


def of_dead_letters(asked: Question, rows: pl.DataFrame) -> str:
    """How many, of which topics."""
    if rows.is_empty():
        return f"No dead letter{asked.words}{range_of(asked)}."
    topics = rows["origin_topic"].fill_null("an unknown topic").unique(maintain_order=True)
    letters = f"{plural(rows.height, 'dead letter')}{asked.words}"
    return f"{letters} {is_or_are(rows.height)} known, from {listed(topics.to_list())}."


def of_replaced(asked: Question, rows: pl.DataFrame) -> str:
    """How many, and each in its own words, the newest first."""
    if rows.is_empty():
        return f"No loss of a pulled message{asked.words}{range_of(asked)}."
    return _newest_first(rows["evidence"].to_list())


def _newest_first(said: Sequence[str]) -> str:
    """Sentences, the last one first; further ones are counted."""
    more = len(said) - NAMED_MAX
    return whole(*said[::-1][:NAMED_MAX], f"{more:,} more before" if more > 0 else "")


def of_lost(asked: Question, rows: pl.DataFrame) -> str:
    """What each group lost unread, the one that lost most first."""
    if rows.is_empty():
        return f"No message{asked.words} that was deleted unread{range_of(asked)}."
    groups = rows.group_by("group").agg(pl.col("messages").sum())
    names = groups.sort("messages", "group", descending=[True, False])["group"].to_list()
    each = {key[0]: of.to_dicts() for key, of in rows.group_by("group")}
    said = [lost_unread(name, each[name]) for name in names[:NAMED_MAX]]
    more = len(names) - len(said)
    return " ".join([*said, *([f"{plural(more, 'more group')}."] if more > 0 else [])])


def of_passed_over(asked: Question, rows: pl.DataFrame, *, lives: pl.DataFrame) -> str:
    """Which topics were made again, and what was passed over of each, the newest first; of a group,
    those whose new life it was seen in."""
    if asked.group is not None:
        lives = lives.join(rows, on=["cluster", "topic"], how="semi")
    found = new_lives(lives.iter_rows(named=True), rows.iter_rows(named=True))
    if not found:
        return f"No topic{asked.words} that was made again{range_of(asked)}."
    return _newest_first([one.text for one in found])


def of_checks(rows: pl.DataFrame, *, by_then: bool = False) -> str:
    """How many checks fail, how many had nothing new to check, and when the newest run was; of the
    runs that were kept `by_then`, or of all."""
    if rows.is_empty() and by_then:
        return "No check had run by then."
    if rows.is_empty():
        return "No check has run: `tidemark check` runs them."
    idle = rows.filter(pl.col("checked_rows") == 0).height
    failed = rows.filter(~pl.col("success") & (pl.col("checked_rows") > 0))
    started = cast("datetime | None", rows["started_at"].max())
    said = f"{failed.height} of {plural(rows.height - idle, 'check')} failed"
    if failed.height:
        said += f": {listed(failed['expectation'].to_list())}"
    if idle:
        said += f"; {idle} had nothing to check"
    return f"{said}; run of {clock(started, day=True)} UTC."


def of_alerts(asked: Question, alerts: pl.DataFrame, rule: str | None = None) -> str:
    """Which alerts are open after the changes that were seen, the longest first."""
    about = asked.words + (f" of rule {rule}" if rule is not None else "")
    if alerts.is_empty():
        return f"No alert{about} is open."
    waits = alerts.filter(pl.col("state") == "PENDING")
    fires = alerts.filter(pl.col("state") != "PENDING").sort("active_at", "fingerprint")
    said = f"{plural(fires.height, 'alert')}{about} {is_or_are(fires.height)} open"
    names = [f"{row['rule']} since {at(row['active_at'])}" for row in fires.to_dicts()]
    if names:
        said += f": {listed(names)}"
    muted = fires.filter(pl.col("muted").is_not_null()).height
    acked = fires.filter(pl.col("acked_by").is_not_null()).height
    beside = [f"{number} {what}" for number, what in ((muted, "muted"), (acked, "acked")) if number]
    if beside:
        said += f" ({', '.join(beside)})"
    return (
        f"{said}; {waits.height} {is_or_are(waits.height)} pending." if waits.height else f"{said}."
    )


def of_message(message_id: str, rows: pl.DataFrame) -> str:
    """What became of a message, as far as the lake knows."""
    if rows.is_empty():
        return (
            f"The lake knows nothing of message {message_id!r}. It knows messages that failed, "
            "were at risk of a second delivery or held up a queue; `tidemark admin` asks the "
            "cluster where others are stored."
        )
    last = rows.row(-1, named=True)
    twice = rows.filter(pl.col("what").str.contains("again", literal=True)).height
    facts = plural(rows.height, "fact")
    said = f"Message {message_id} is named by {facts}; the newest: {last['what']}"
    return f"{said}. It was handed out again {plural(twice, 'time')}." if twice else f"{said}."


def of_window(name: str, window: dict[str, Any], rows: pl.DataFrame) -> str:
    """What a window is, an open stall as it is now, and what the evidence consists of."""
    counts = rows["source"].value_counts(sort=True).iter_rows()
    parts = ", ".join(f"{plural(number, 'row')} of {source}" for source, number in counts)
    cause = window.get("cause")
    what = "" if cause is None else f" ({spoken(cause)})"
    end = "is open" if window["closed_at"] is None else f"ended at {at(window['closed_at'])}"
    said = [str(window.get("evidence") or "")]
    if window["closed_at"] is None and name == "stalled_windows":  # Revisions keep old figures.
        is_known = window["unknown_reason"] is None
        last = said[0].removeprefix(str(window.get("headline") or "")).strip()
        said = [stands_now(window), f"reported last: {last}" if is_known and last else ""]
    kind = spoken(name).removesuffix("s").capitalize()
    return whole(
        f"{kind} {window['window_id']} of group {window['group']} on queue {window['queue_id']} of "
        f"{window['topic']}{what} began at {moment_of(window['began_at'], day=True)} and {end}",
        *said,
        f"its evidence is {parts}" if parts else "",
    )


def lag_text(row: dict[str, Any]) -> str:
    """One row of lag in words."""
    if row["lag_messages"] is None:
        return f"lag {count(None, reason=row['unknown_reason'])}"
    return (
        f"committed {row['committed']}, pulled {row['pulled']}, end {row['max_offset']}: "
        f"{plural(row['lag_messages'], 'message')} behind, {duration(row['time_lag_ms'])}"
    )
