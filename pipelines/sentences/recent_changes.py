"""Sentences about recent changes: stalls, membership, dead letters, brokers and rollbacks.

Place in the walk: rows of windows, rebalances, dead letters, lifecycle and roll-backs → the list of
changes on the overview, marks of its figures, `tm`. Pure. Invariant: an open window is named by its
own headline; several that began together, and one that is over, by their rule. Absent on purpose:
which of them belong together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import polars as pl

from pipelines.base.wording import count, duration, plural, spoken, with_article
from pipelines.sentences.answers import NAMED_MAX, listed
from pipelines.sentences.duplicates import came_again
from pipelines.sentences.figures import client, messages, moment, was, whole
from pipelines.sentences.stalls import by_rule, verdict

Row = Mapping[str, Any]
SILENT: Final = "SILENT"
"""A broker of which nothing came for a while."""


def queues(rows: Sequence[Row]) -> str:
    """`queues 0, 1 of orders`, of rows about one topic."""
    numbers = [str(number) for number in sorted(row["queue_id"] for row in rows)]
    return f"queue{'s' if len(rows) > 1 else ''} {listed(numbers)} of {rows[0]['topic']}"


def stalls_began(rows: Sequence[Row]) -> str:
    """Stalled windows of one group, topic and rule that began together."""
    first = rows[0]
    if len(rows) == 1 and first["closed_at"] is None and first["unknown_reason"] is None:
        return verdict(first)
    return whole(by_rule(first["rule"], f"group {first['group']}", queues(rows)))


def stalls_ended(rows: Sequence[Row], lasted_ms: float) -> str:
    """The same when they ended together."""
    first = rows[0]
    return whole(
        f"group {first['group']} is no longer {spoken(first['rule'])} on {queues(rows)}, after "
        f"{duration(lasted_ms)}"
    )


def risks_began(rows: Sequence[Row]) -> str:
    """Windows of duplicate risk of one group, topic and cause that began together."""
    at_risk = sum(row["at_risk_messages"] for row in rows)
    colon = "" if rows[0]["basis"] == "EXPOSURE" else ":"
    return whole(
        f"group {rows[0]['group']} risks a second delivery of {messages(at_risk)} of "
        f"{queues(rows)}{colon} {cause(rows[0])}"
    )


def risks_ended(rows: Sequence[Row]) -> str:
    """The same when they ended together, and what came of them."""
    first, again = rows[0], came_again(rows)
    delivered = ""
    if again.deliveries:
        delivered = f", with {again.text}"
    return whole(
        f"the risk of group {first['group']} on {queues(rows)} is over, {first['outcome'].lower()} "
        f"({spoken(first['cause'])}){delivered}"
    )


def cause(row: Row) -> str:
    """CONSUMER_CRASH as `consumer crash`; one that only could happen says so."""
    said = spoken(row["cause"])
    return f"if {with_article(said)} came now" if row["basis"] == "EXPOSURE" else said


def of_members(row: Row) -> str:
    """A change of members."""
    said = f"{client(row['client_id'])} {spoken(row['kind'])}"
    after, before = row["members_after"], row["members_before"]
    if after is None:
        return f"{said}."
    return f"{said}: {plural(after, 'member')} now, {count(before)} before."


def dead_letter(row: Row) -> str:
    """That a group gave a message up."""
    named = row["message_id"]
    what = "a message without id" if not named else f"message {named}"
    tries = row["reconsume_times"]
    failed = f"{tries:,} failed {'try' if tries == 1 else 'tries'}"
    topic = row["origin_topic"] or "an unknown topic"
    return whole(f"group {row['group']} gave up {what} of {topic} after {failed}")


def broker_silent(name: str, since: datetime, until: datetime | None) -> str:
    """That nothing came of a broker."""
    if until is None:
        return whole(f"broker {name} has reported nothing since {moment(since)}")
    lasted = duration((until - since).total_seconds() * 1000)
    return whole(f"broker {name} reported nothing for {lasted}: states in that time are unknown")


def broker_booted(
    name: str,
    at: datetime,
    *,
    first_seen: bool = False,
    up_since: datetime | None = None,
    clean: bool | None = None,
    detail: str = "",
    returned: Sequence[Row] = (),
) -> str:
    """That a broker's life began. `up_since`: by itself, where an observer saw it; `clean`: how the
    life before ended, None: unknown; `returned`: changes of members that came back to it.
    """
    said = f"broker {name} restarted"
    if first_seen:
        said = f"broker {name} was first seen at {moment(at)}"
    if up_since is not None:
        said += f"; it has been up since {moment(up_since, day=True)}"
    elif clean is not None and not first_seen:
        said += " after a clean stop" if clean else " after a crash"
    said += _in_brackets(detail)
    if returned:
        groups = plural(len({row["group"] for row in returned}), "group")
        said += f"; {plural(len(returned), 'client')} of {groups} came back"
    return whole(said)


def broker_event(name: str, kind: str, detail: str = "") -> str:
    """Anything else that a broker reported of itself."""
    return whole(f"broker {name} reports a {spoken(kind)}{_in_brackets(detail)}")


def _in_brackets(detail: str) -> str:
    return f" ({detail})" if detail else ""


def rollback(row: Mapping[str, Any]) -> str:
    """Where, how many groups and queues, since when, and what came of it.

    A crash alone costs what was committed since the last persist, which may be nothing.
    """
    again = came_again([row])
    has_fallen = bool(again.deliveries) or any(one != "BROKER_CRASH" for one in row["causes"])
    came = f"it made {again.text} so far"
    if again.deliveries == 0:
        came = "none was delivered again so far"
    if again.deliveries is None:
        came = f"whether any was delivered again is {again.number}"
    causes = ", ".join(spoken(cause) for cause in row["causes"])
    went = "went" if has_fallen else "may have gone"
    at_risk = row["at_risk_messages"]
    queues, groups = plural(row["queues"], "queue"), plural(row["groups"], "group")
    return whole(
        f"broker {row['broker']} {went} back on {queues} of {groups} at "
        f"{moment(row['began_at'])} ({causes})",
        f"{plural(at_risk, 'message')} {was(at_risk)} at risk of a second delivery; {came}",
        f"the groups are {listed(row['group_names'])}",
        "see whether their listeners take a message twice without harm",
    )


def fail_over(rows: Sequence[Row], *, names_cluster: bool = False) -> str:
    """That another node leads a broker; `rows`: one a group, what may come to it again."""
    first = rows[0]
    name = f"{first['cluster']} / {first['broker']}" if names_cluster else first["broker"]
    led = f"another node leads broker {name} since {moment(first['led_at'])}"
    back = [row for row in rows if row["at_risk_messages"]]
    at_risk = sum(row["at_risk_messages"] for row in back)
    unknown = sum(row["queues_unknown"] for row in rows)
    rest = f"of {plural(unknown, 'queue')} it is unknown" if unknown else ""
    if not back:
        goes = "no group goes on before where it was"
        return whole(f"{led} (epoch {first['epoch']})", goes, rest)
    groups = listed([row["group"] for row in back])
    goes = (
        f"{plural(at_risk, 'message')} of {groups} {was(at_risk)} committed at the former one alone"
    )
    again = "whoever asks where to go on gets them again"
    return whole(f"{led} (epoch {first['epoch']})", goes, again, rest)


def of_rollbacks(rows: pl.DataFrame) -> str:
    """Every broker that went back, the newest first."""
    if rows.is_empty():
        return "No broker went back on several groups at once."
    said = [rollback(row) for row in rows.reverse().iter_rows(named=True)]
    more = len(said) - NAMED_MAX
    return " ".join([*said[:NAMED_MAX], *([f"{more:,} more before."] if more > 0 else [])])
