"""Stores each alerting step in a single transaction.

Place in the walk: the last thing that deciding does. Invariant: alerts, groups, notices, history,
the outcome of each rule and the cursor change together, for the leader alone. A notice whose id is
there already is not stored again. When too many wait for a receiver, newer ones of a group replace
older ones and say what these would have said. Absent on purpose: deciding.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import sqlalchemy as sa

from pipelines.alerting.alerts import Alert, Entry, Notice
from pipelines.alerting.rule_status import JudgedRule
from pipelines.alerting.store import changes
from pipelines.alerting.store.changes import alert_of, alert_text, notice_of, notice_text
from pipelines.alerting.store.crowds import QueuedNotice, merged, replacements
from pipelines.database import leads
from pipelines.database.database import Database
from pipelines.database.leads import Lead
from pipelines.database.limits import ALERTS_PER_NOTICE_MAX, WAITING_MAX
from pipelines.database.tables import Kept, alert_groups, alerts, cursors, judged_rules, notices

_log = logging.getLogger(__name__)

_ROWS_AT_ONCE: Final = 500
"""Of one statement: SQLite takes a bounded number of parameters."""
"""Of one statement: SQLite takes a bounded number of parameters."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """A cycle of a run of gold, and the clock by which alerts wait, as it stood then."""

    run: str
    cycle: int
    clock: str = ""
    """Opaque JSON."""


@dataclass(frozen=True, slots=True)
class GroupAt:
    """A group of alerts at one receiver."""

    receiver: str
    group_key: str


@dataclass(frozen=True, slots=True)
class Step:
    """What changed."""

    alerts: Sequence[Alert] = ()
    """New ones, and those that are not as they were."""
    forgotten: Collection[str] = ()
    """Fingerprints of alerts that are no more, and that no notice ever named."""
    groups: Mapping[GroupAt, str] = field(default_factory=dict)
    """New states of groups, opaque JSON."""
    ended_groups: Collection[GroupAt] = ()
    notices: Sequence[Notice] = ()
    """In the order in which they are to be sent."""
    cursor: Cursor | None = None
    """Decided up to here; None leaves it where it is."""
    entries: Sequence[Entry] = ()
    """What history says of it."""
    judged: Sequence[JudgedRule] = ()
    """How the rules fared that were judged."""
    rules_gone: Collection[str] = ()
    """Rules that are no longer in force."""


@dataclass(frozen=True, slots=True)
class Held:
    """Everything that the next step is decided from."""

    cursor: Cursor | None
    alerts: tuple[Alert, ...]
    """Resolved ones as well, as long as they are kept."""
    groups: Mapping[GroupAt, str]


def load(database: Database, lake: str) -> Held:
    """What is known of a lake."""
    with database.reading() as connection:
        at = connection.execute(sa.select(cursors).where(cursors.c.lake == lake)).one_or_none()
        bodies = connection.scalars(
            sa.select(alerts.c.body).where(alerts.c.lake == lake).order_by(alerts.c.fingerprint)
        ).all()
        states = connection.execute(
            sa.select(alert_groups)
            .where(alert_groups.c.lake == lake)
            .order_by(alert_groups.c.receiver, alert_groups.c.group_id)
        ).all()
    return Held(
        None if at is None else Cursor(at.run, at.cycle, at.clock),
        tuple(alert_of(body) for body in bodies),
        {GroupAt(row.receiver, row.group_key): row.state for row in states},
    )


def take(database: Database, lake: str, step: Step, *, lead: Lead, now_us: int) -> None:
    """Store a step, and renew the lead.

    Raises LeadLost when somebody else leads, StoreUnavailable when the database does not do it: in
    both cases nothing of the step is stored, but see StoreUnavailable for a commit that broke off.
    """
    with database.writing() as connection:
        leads.fence(connection, lead, now_us=now_us)
        _take_alerts(connection, lake, step)
        _take_groups(connection, lake, step)
        add_notices(connection, lake, step.notices, now_us=now_us)
        changes.record(connection, lake, step.entries)
        record_judged(connection, lake, step.judged, step.rules_gone)
        if step.cursor is not None:
            values = {name: getattr(step.cursor, name) for name in Cursor.__slots__}
            connection.execute(sa.delete(cursors).where(cursors.c.lake == lake))
            connection.execute(sa.insert(cursors).values(lake=lake, taken_us=now_us, **values))


def digest_of(group_key: str) -> str:
    """What stands for a group's key where rows are looked up."""
    return hashlib.sha256(group_key.encode("utf-8", "surrogatepass")).hexdigest()


def _take_alerts(connection: sa.Connection, lake: str, step: Step) -> None:
    gone = [*step.forgotten, *(alert.fingerprint for alert in step.alerts)]
    for some in _in_parts(gone):
        connection.execute(
            sa.delete(alerts).where(alerts.c.lake == lake, alerts.c.fingerprint.in_(some))
        )
    rows = [
        {
            "lake": lake,
            "fingerprint": alert.fingerprint,
            "state": alert.state.value,
            "resolved_at_us": alert.resolved_at_us,
            "body": alert_text(alert),
        }
        for alert in step.alerts
    ]
    if rows:
        connection.execute(sa.insert(alerts), rows)


def _take_groups(connection: sa.Connection, lake: str, step: Step) -> None:
    for group in [*step.ended_groups, *step.groups]:
        connection.execute(
            sa.delete(alert_groups).where(
                alert_groups.c.lake == lake,
                alert_groups.c.receiver == group.receiver,
                alert_groups.c.group_id == digest_of(group.group_key),
            )
        )
    rows = [
        {
            "lake": lake,
            "receiver": group.receiver,
            "group_id": digest_of(group.group_key),
            "group_key": group.group_key,
            "state": state,
        }
        for group, state in step.groups.items()
    ]
    if rows:
        connection.execute(sa.insert(alert_groups), rows)


def add_notices(
    connection: sa.Connection, lake: str, given: Sequence[Notice], *, now_us: int
) -> int:
    """Put notices into the outbox, but those that were put there before; how many are new."""
    there: set[str] = set()
    for some in _in_parts([notice.notice_id for notice in given]):
        there |= set(
            connection.scalars(
                sa.select(notices.c.notice_id).where(
                    notices.c.lake == lake, notices.c.notice_id.in_(some)
                )
            )
        )
    new = [notice for notice in given if notice.notice_id not in there]
    rows = [
        {
            "lake": lake,
            "notice_id": notice.notice_id,
            "receiver": notice.receiver,
            "group_id": digest_of(notice.group_key),
            "state": Kept.WAITING.value,
            "tries": 0,
            "due_us": now_us,
            "created_us": now_us,
            "body": notice_text(notice),
        }
        for notice in new
    ]
    if rows:
        connection.execute(sa.insert(notices), rows)
    for receiver in sorted({notice.receiver for notice in new}):
        _make_room(connection, lake, receiver, now_us=now_us)
    return len(new)


def _make_room(connection: sa.Connection, lake: str, receiver: str, *, now_us: int) -> None:
    rows = connection.execute(
        sa.select(notices.c.seq, notices.c.group_id, notices.c.state)
        .where(
            notices.c.lake == lake,
            notices.c.receiver == receiver,
            notices.c.state.in_((Kept.WAITING.value, Kept.SENDING.value)),
        )
        .order_by(notices.c.seq)
    ).all()
    queue = [QueuedNotice(row.seq, row.group_id, row.state == Kept.SENDING.value) for row in rows]
    pairs = replacements(queue, WAITING_MAX)
    for older, newer in pairs:
        bodies: dict[int, str] = {
            row.seq: row.body
            for row in connection.execute(
                sa.select(notices.c.seq, notices.c.body).where(notices.c.seq.in_((older, newer)))
            )
        }
        both = merged(notice_of(bodies[older]), notice_of(bodies[newer]), ALERTS_PER_NOTICE_MAX)
        connection.execute(
            sa.update(notices).where(notices.c.seq == newer).values(body=notice_text(both))
        )
        connection.execute(
            sa.update(notices)
            .where(notices.c.seq == older)
            .values(
                state=Kept.REPLACED.value,
                ended_us=now_us,
                last_error=f"{WAITING_MAX} waited: {both.notice_id} says what this one would have",
            )
        )
    if pairs:
        _log.warning(
            "more than %d notices wait for receiver %s: %d were replaced by newer ones of their "
            "groups",
            WAITING_MAX,
            receiver,
            len(pairs),
        )


def _in_parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), _ROWS_AT_ONCE):
        yield names[start : start + _ROWS_AT_ONCE]


def record_judged(
    connection: sa.Connection, lake: str, judged: Sequence[JudgedRule], gone: Collection[str]
) -> None:
    """Store how rules fared, and forget those that are gone, in an open transaction."""
    names = [*gone, *(one.rule for one in judged)]
    for start in range(0, len(names), _ROWS_AT_ONCE):
        some = names[start : start + _ROWS_AT_ONCE]
        is_one = (judged_rules.c.lake == lake) & judged_rules.c.rule.in_(some)
        connection.execute(sa.delete(judged_rules).where(is_one))
    rows = [
        {"lake": lake, **{name: getattr(one, name) for name in JudgedRule.__slots__}}
        for one in judged
    ]
    if rows:
        connection.execute(sa.insert(judged_rules), rows)


def judged_of(
    database: Database, lake: str, rules: Collection[str] | None = None
) -> dict[str, JudgedRule]:
    """By name, how the rules of a lake fared: these, or all that were ever judged."""
    query = sa.select(judged_rules).where(judged_rules.c.lake == lake)
    if rules is not None:
        query = query.where(judged_rules.c.rule.in_(rules))
    with database.reading() as connection:
        rows = connection.execute(query.order_by(judged_rules.c.rule)).all()
    names: Sequence[str] = JudgedRule.__slots__
    return {row.rule: JudgedRule(**{name: getattr(row, name) for name in names}) for row in rows}
