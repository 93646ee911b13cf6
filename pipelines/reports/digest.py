"""Builds an alert digest: alerts that fired in a period, resolved quickly or are still open.

Place in the walk: the lake's history of alerts → a few lines → the outbox. The history is read as
it is: a change that alerting has not brought into the lake yet is in the next digest.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from pipelines.alerting.alerts import Alert, Notice, State, fingerprint_of
from pipelines.alerting.store.steps import add_notices
from pipelines.base.time_units import micros, utc_text
from pipelines.database.database import Database
from pipelines.database.limits import TEXT_CHARS_MAX
from pipelines.lake.lake import Lake, sql_over
from pipelines.reading.catalogue import ALERTS
from pipelines.reading.moment import sql_time
from pipelines.scheduler.store.audit import Change, note
from pipelines.sentences import periods

RULE: Final = "AlertDigest"
LINES_MAX: Final = 20
BRIEF: Final = timedelta(minutes=2)
"""What was resolved within it was perhaps worth nobody's time."""
_WANTED: Final = (
    '"kind", "fingerprint", "rule", "severity", "group", "summary", "state", "observed_at", '
    '"fired_at", "history", "seq"'
)


@dataclass(frozen=True, slots=True)
class Digest:
    """The period in words."""

    begin: str
    end: str
    fired: int
    resolved: int
    brief: int
    """Of these, resolved within BRIEF of firing."""
    open_at_end: int
    is_known: bool
    """Is there a history at all?"""
    lines: tuple[str, ...]
    """A rule each, the one that fired most first; then what is open."""

    @property
    def headline(self) -> str:
        """In a sentence."""
        if not self.is_known:
            return periods.NO_HISTORY
        return periods.alerts(self.fired, self.resolved, self.brief, self.open_at_end)


def digest_of(lake: Lake, begin: datetime, end: datetime) -> Digest:
    """The alerts of a period, from their history. Raises LakeError."""
    address = lake.gold(ALERTS.name)
    if not lake.exists(address):
        return counted([], [], begin, end, is_known=False)
    tables = {"rows_of": lake.table(address)}
    newest = (
        f"SELECT {_WANTED} FROM (SELECT *, row_number() OVER (PARTITION BY fingerprint ORDER BY "  # noqa: S608
        f"observed_at DESC, seq DESC) AS nth FROM rows_of WHERE observed_at <= {sql_time(end)}) "
        "WHERE nth = 1 AND state = 'FIRING'"
    )
    within = (
        f"SELECT {_WANTED} FROM rows_of WHERE observed_at > {sql_time(begin)} "  # noqa: S608
        f"AND observed_at <= {sql_time(end)}"
    )
    rows = sql_over(tables, within, what=address).to_pylist()
    still = sql_over(tables, newest, what=address).to_pylist()
    return counted(rows, still, begin, end, is_known=True)


def counted(
    rows: Sequence[dict[str, Any]], still: Sequence[dict[str, Any]], begin: datetime, end: datetime,
    *, is_known: bool,
) -> Digest:  # fmt: skip
    """The same from rows: changes within the period, and what is open at its end."""
    fired = Counter(row["rule"] for row in rows if row["kind"] == "FIRED")
    resolved = [row for row in rows if row["kind"] == "RESOLVED"]
    brief = [
        row for row in resolved
        if row["fired_at"] is not None and row["observed_at"] - row["fired_at"] <= BRIEF
    ]  # fmt: skip
    noise = Counter(row["rule"] for row in brief)
    lines = [
        periods.alerts_of(rule, count, noise[rule])
        for rule, count in sorted(fired.items(), key=lambda one: (-one[1], one[0]))
    ]
    opened_first = sorted(still, key=lambda row: (row["fired_at"] or end, row["fingerprint"]))
    lines += [
        periods.alert_open(
            f"{row['fired_at'] or row['observed_at']:%Y-%m-%d %H:%M} UTC",
            row["summary"] or row["rule"],
        )
        for row in opened_first
        if row["rule"] != "Watchdog"
    ]
    shown = lines[:LINES_MAX]
    shown += [f"and {len(lines) - LINES_MAX:,} lines more"] if len(lines) > LINES_MAX else []
    open_count = sum(row["rule"] != "Watchdog" for row in still)
    return Digest(
        begin=utc_text(begin, timespec="seconds"),
        end=utc_text(end, timespec="seconds"),
        fired=fired.total(),
        resolved=len(resolved),
        brief=len(brief),
        open_at_end=open_count,
        is_known=is_known,
        lines=tuple(shown),
    )


def post_digest(
    lake: Lake, found: Digest, to: Sequence[str], change: Change, *, database: Database
) -> int:
    """Post it in somebody's name; returns how many receivers had not been sent it yet. The audit
    has it in the same transaction."""
    labels = {"from": found.begin, "to": found.end}
    end_us = micros(datetime.fromisoformat(found.end))
    alert = Alert(
        fingerprint=fingerprint_of(RULE, labels),
        rule=RULE,
        severity="info",
        owner="",
        labels=labels,
        annotations={
            "summary": found.headline,
            "description": "; ".join(found.lines)[:TEXT_CHARS_MAX],
        },
        figures={"fired": found.fired, "resolved": found.resolved, "open": found.open_at_end},
        state=State.FIRING,
        reason="",
        active_at_us=micros(datetime.fromisoformat(found.begin)),
        fired_at_us=end_us,
        resolved_at_us=None,
        last_true_us=end_us,
    )
    notices = []
    for receiver in to:
        key = f"{lake.root}/{found.begin}/{found.end}/{receiver}"
        digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        notices.append(
            Notice(
                notice_id=f"digest-{digest}",
                receiver=receiver,
                group_key=f"digest/{found.end}",
                group_labels=labels,
                alerts=(alert,),
                truncated_alerts=0,
                created_us=end_us,
                subject=f"Alerts of {found.begin} to {found.end}: {found.headline}",
            )
        )
    with database.writing() as connection:
        new = add_notices(connection, lake.root, notices, now_us=change.now_ms * 1_000)
        detail = f"to {', '.join(to)}; {new} of {len(to)} had not been sent it"
        note(connection, change, "send", f"digest:{found.begin}/{found.end}", detail=detail)
    return new
