"""Cached alert board for pages: stored alerts, plus resolved ones from the lake.

Place in the walk: between the store and pages, as `alert_queries` for one command; it also says
whether anybody keeps the alerts up to date. What the store has dropped is read from rows of the
Delta table `alerts` that say RESOLVED, at most ROWS_MAX, the newest first. Invariant: it only
reads, and makes no database where there is none; a history that cannot be read makes the past
unknown, never empty. Absent on purpose: deciding, and the files of rules (`rule_files`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec
import polars as pl
import pyarrow as pa
import sqlalchemy as sa
from deltalake.exceptions import DeltaError

from engine.foundation.errors import ConfigError, LakeError, StorageError
from pipelines.alerting.alert_queries import urgency
from pipelines.alerting.alerts import Alert, State
from pipelines.alerting.life_cycle import KEPT_FOR_US
from pipelines.alerting.matchers import labels_of
from pipelines.alerting.rule_status import JudgedRule, clock_of
from pipelines.alerting.runner import LEASE_US
from pipelines.alerting.silence_rows import silence_of
from pipelines.alerting.silences import Silence, silenced_by
from pipelines.alerting.store import people, steps
from pipelines.alerting.store.changes import alert_of
from pipelines.alerting.store.people import Ack
from pipelines.alerting.wait_clock import Steady
from pipelines.base.settings import MINUTE_US, SECOND_US
from pipelines.base.time_units import micros
from pipelines.base.wording import duration
from pipelines.database.database import FILE_NAME, Database, home_folder, opened
from pipelines.database.tables import acks, alerts, cursors, leads, silences
from pipelines.lake.lake import Lake, first_line
from pipelines.reading.catalogue import ALERTS

JUDGES_WITHIN_US: Final = MINUTE_US
"""A process that is at work judges each cycle, and the lake itself each few seconds."""

AWAY_US: Final = 10 * SECOND_US
"""A database that did not answer is left alone for so long: to wait for it holds up every page."""
ROWS_MAX: Final = 10_000
"""Alerts of one answer; older ones than these are counted as unknown."""
_COLUMNS: Final = (
    *("fingerprint", "rule", "severity", "owner", "labels", "summary", "evidence", "reason"),
    *("active_at", "fired_at", "resolved_at", "observed_date"),
)


class Life(StrEnum):
    """What is known of the process that keeps alerts up to date."""

    NEVER = "never"
    """None has ever run for this lake."""
    AWAY = "away"
    """The database does not answer."""
    ENDED = "ended"
    """It was stopped."""
    SILENT = "silent"
    """It died, or hangs."""
    LATE = "late"
    """It is there, and has judged nothing for a while."""
    AT_WORK = "at work"


@dataclass(frozen=True, slots=True)
class Process:
    """The process that keeps alerts up to date, as the store knows it."""

    life: Life
    holder: str = ""
    """Which process, for people."""
    seen_us: int | None = None
    """Its last sign of life, by the clock of its machine; None: it ended in order."""
    judged_us: int | None = None
    """When it judged last, by the same clock."""
    data_us: int | None = None
    """The moment of data time that this was about."""
    cycle: int | None = None
    trouble: str = ""
    """Why the database does not answer."""

    @property
    def is_believed(self) -> bool:
        """Is what is stored true of now?"""
        return self.life is Life.AT_WORK

    def sentence(self, now_us: int) -> str:
        """The same in words."""
        judged = "it has judged nothing yet"
        if self.judged_us is not None:
            about = "" if self.data_us is None else f", data to {clock_of(self.data_us, now_us)}"
            judged = f"it last judged at {clock_of(self.judged_us, now_us)} UTC{about}"
        match self.life:
            case Life.NEVER:
                return "no alert process has ever run for this lake: nobody watches it"
            case Life.AWAY:
                return f"the database of alerts cannot be read: {self.trouble}"
            case Life.ENDED:
                return f"the alert process was stopped: nobody watches this lake; {judged}"
            case Life.SILENT:
                assert self.seen_us is not None
                ago = duration(max(0, now_us - self.seen_us) / 1000)
                return f"nothing is heard of the alert process ({self.holder}) for {ago}; {judged}"
            case Life.LATE:
                return f"the alert process ({self.holder}) is there and judges nothing; {judged}"
        return f"{self.holder} is at work; {judged}"


class Standing(StrEnum):
    """Whether a silence holds."""

    ACTIVE = "active"
    BETWEEN = "between"
    """It comes back; now is none of its times."""
    COMING = "coming"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class KeptSilence:
    """A silence, and whether somebody ended it."""

    silence: Silence
    ended_us: int | None
    """When somebody ended it early."""

    def standing(self, now_us: int) -> Standing:
        """Does it hold at this moment?"""
        if self.ended_us is not None or self.silence.end_us <= now_us:
            return Standing.EXPIRED
        if self.silence.begin_us > now_us:
            return Standing.COMING
        return Standing.ACTIVE if self.silence.is_active(now_us) else Standing.BETWEEN


@dataclass(frozen=True, slots=True)
class Board:
    """What was known of a lake's alerts at one look."""

    process: Process
    alerts: tuple[Alert, ...] = ()
    """Firing ones first, the worst and newest of them first; then those of rules that cannot be
    judged, pending ones, those that are for information alone, and resolved ones."""
    acks: Mapping[tuple[str, int], Ack] = field(default_factory=dict)
    """By fingerprint and begin."""
    silences: tuple[KeptSilence, ...] = ()
    version: int = 0
    """Another one when alerts, acks or silences are other ones."""

    def ack_of(self, alert: Alert) -> Ack | None:
        """The acknowledgement of an alert."""
        return self.acks.get((alert.fingerprint, alert.active_at_us))

    @property
    def over_kept_us(self) -> int:
        """How long after its end an alert that is over stays there at least."""
        return KEPT_FOR_US

    def silenced(self, now_us: int) -> list[Silence]:
        """The silences that hold."""
        kept = (one for one in self.silences if one.standing(now_us) is Standing.ACTIVE)
        return [one.silence for one in kept]

    def silence_of(self, alert: Alert, now_us: int) -> Silence | None:
        """The silence that an alert falls under now."""
        return silenced_by(labels_of(alert), self.silenced(now_us))


class AlertBoard:
    """The alerts of one lake, looked at again and again. Safe for use by several threads."""

    def __init__(self, lake: str, address: str | None = None) -> None:
        """lake: its name in the database. address: of the database; None: that of the home folder,
        when there is one."""
        self._lake = lake
        self._address = address
        self._database: Database | None = None
        self._lock = threading.Lock()
        self._away_us: int | None = None
        self._signs: Any = None
        self._bodies: dict[str, str] = {}
        self._alerts: dict[str, Alert] = {}
        self._board = Board(Process(Life.NEVER))

    def look(self, now_us: int) -> Board:
        """What is known at this moment of the clock."""
        with self._lock:
            if self._away_us is not None and 0 <= now_us - self._away_us < AWAY_US:
                return self._board
            self._away_us = None
            try:
                database = self._opened()
                if database is None:
                    return self._with(Process(Life.NEVER))
                with database.reading() as connection:
                    process = self._read(connection, now_us)
            except (StorageError, ConfigError) as error:
                self._away_us = now_us
                return self._with(Process(Life.AWAY, trouble=str(error)))
            return self._with(process)

    def judged(self, rules: Collection[str]) -> dict[str, JudgedRule]:
        """How these rules fared when they were last judged; empty while the database does not
        answer, which `look` reports.
        """
        with self._lock:
            if self._database is None or self._away_us is not None:
                return {}
            with suppress(StorageError):
                return steps.judged_of(self._database, self._lake, rules)
            return {}

    def _opened(self) -> Database | None:
        if self._database is None:
            there = self._address is not None or (home_folder() / FILE_NAME).exists()
            self._database = opened(self._address) if there else None
        return self._database

    def _with(self, process: Process) -> Board:
        kept = self._board
        is_same = kept.process.life is process.life and kept.process.holder == process.holder
        version = kept.version if is_same else kept.version + 1
        self._board = Board(process, kept.alerts, kept.acks, kept.silences, version)
        return self._board

    def _read(self, connection: sa.Connection, now_us: int) -> Process:
        # The lease first: whoever stores a step renews it, so alerts are never older than it says.
        lead = _lead(connection, self._lake)
        signs = (
            None if lead is None else (lead.token, lead.expires_us),
            _newest(connection, acks, self._lake, acks.c.acked_us),
            _newest(connection, silences, self._lake, silences.c.created_us),
            _newest(connection, silences, self._lake, silences.c.expired_us),
        )
        if signs != self._signs:
            self._read_all(connection)
            self._signs = signs
        return _watcher(lead, _cursor(connection, self._lake), now_us)

    def _read_all(self, connection: sa.Connection) -> None:
        rows = connection.execute(
            sa.select(alerts.c.fingerprint, alerts.c.body).where(alerts.c.lake == self._lake)
        )
        bodies: dict[str, str] = {row[0]: row[1] for row in rows}
        kept = self._board
        shown = kept.alerts
        if bodies != self._bodies:
            self._alerts = {
                fingerprint: self._alerts[fingerprint]
                if self._bodies.get(fingerprint) == body
                else _decoded(body)
                for fingerprint, body in bodies.items()
            }
            self._bodies = bodies
            shown = tuple(sorted(self._alerts.values(), key=urgency))
        said = {(one.fingerprint, one.active_at_us): one for one in _acks(connection, self._lake)}
        silenced = tuple(_silences(connection, self._lake))
        is_same = shown is kept.alerts and said == kept.acks and silenced == kept.silences
        version = kept.version if is_same else kept.version + 1
        self._board = Board(kept.process, shown, said, silenced, version)


def process_of(database: Database, lake: str, now_us: int) -> Process:
    """The process that keeps a lake's alerts up to date, for one look. Raises as the store does."""
    with database.reading() as connection:
        return _watcher(_lead(connection, lake), _cursor(connection, lake), now_us)


def _lead(connection: sa.Connection, lake: str) -> Any:
    query = sa.select(leads).where(leads.c.role == f"alerting of {lake}")
    return connection.execute(query).one_or_none()


def _cursor(connection: sa.Connection, lake: str) -> Any:
    return connection.execute(sa.select(cursors).where(cursors.c.lake == lake)).one_or_none()


def _newest(
    connection: sa.Connection, table: sa.Table, lake: str, moment: sa.Column[Any]
) -> tuple[Any, ...]:
    query = sa.select(sa.func.count(), sa.func.max(moment)).where(table.c.lake == lake)
    return tuple(connection.execute(query.select_from(table)).one())


def _acks(connection: sa.Connection, lake: str) -> list[Ack]:
    rows = connection.execute(sa.select(acks).where(acks.c.lake == lake))
    return [Ack(**{name: getattr(row, name) for name in Ack.__slots__}) for row in rows]


def _silences(connection: sa.Connection, lake: str) -> list[KeptSilence]:
    """All that are kept, the one that ends last first."""
    rows = connection.execute(
        sa.select(silences)
        .where(silences.c.lake == lake)
        .order_by(silences.c.to_us.desc(), silences.c.silence_id)
    )
    names: Sequence[str] = people.Silence.__slots__
    kept = [people.Silence(**{name: getattr(row, name) for name in names}) for row in rows]
    found = []
    for one in kept:
        with suppress(StorageError):  # The process says what is wrong with it, and goes on.
            found.append(KeptSilence(silence_of(one), one.expired_us))
    return found


def _decoded(body: str) -> Alert:
    try:
        return msgspec.json.decode(body, type=Alert)
    except msgspec.DecodeError:  # Half of a surrogate pair, which only the slower way takes.
        return alert_of(body)


def _watcher(lead: Any, cursor: Any, now_us: int) -> Process:
    if lead is None:
        return Process(Life.NEVER)
    judged_us = None if cursor is None else int(cursor.taken_us)
    data_us = None if cursor is None else _data_us(cursor.clock)
    cycle = None if cursor is None else int(cursor.cycle)
    if not lead.holder:
        return Process(Life.ENDED, "", None, judged_us, data_us, cycle)
    life = Life.AT_WORK
    if judged_us is None or now_us - judged_us > JUDGES_WITHIN_US:
        life = Life.LATE
    if lead.expires_us <= now_us:
        life = Life.SILENT
    seen_us = int(lead.expires_us) - LEASE_US
    return Process(life, str(lead.holder), seen_us, judged_us, data_us, cycle)


def _data_us(kept: str) -> int | None:
    try:
        return msgspec.json.decode(kept, type=Steady).data_us
    except msgspec.DecodeError:
        return None


@dataclass(frozen=True, slots=True)
class Past:
    """Alerts that were over in a range."""

    alerts: tuple[Alert, ...] = ()
    """The newest end first."""
    since: datetime | None = None
    """The moment from which it is known; None: nothing of it is."""
    trouble: str = ""
    """Why nothing is known, when the table is there."""


class PastAlerts:
    """The history of one lake, asked again and again. Safe for use by several threads."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._lock = threading.Lock()
        self._answers: dict[Any, Past] = {}
        self._version: Any = None

    def within(self, start: datetime, end: datetime) -> Past:
        """Alerts that fired in the range, or into it, and were resolved since."""
        address = self._lake.gold(ALERTS.name)
        try:
            if not self._lake.exists(address):
                return Past()
            table = self._lake.table(address)
            with self._lock:
                if self._version != table.version():
                    self._version = table.version()
                    self._answers.clear()
                key = (start, end)
                if key not in self._answers:
                    rows = pl.scan_pyarrow_dataset(table.to_pyarrow_dataset())
                    self._answers[key] = _answer(rows, start, end)
                return self._answers[key]
        except (
            DeltaError,
            LakeError,
            OSError,
            pa.ArrowException,
            pl.exceptions.PolarsError,
        ) as error:
            return Past(trouble=f"the history of alerts cannot be read: {first_line(error)}")


def _answer(rows: pl.LazyFrame, start: datetime, end: datetime) -> Past:
    began = rows.select(pl.col("observed_at").min()).collect().item()
    if began is None:
        return Past()
    is_over = (pl.col("kind") == "RESOLVED") & (pl.col("observed_date") >= start.date())
    meets = (pl.col("resolved_at") >= start) & (pl.col("fired_at") <= end)
    found = rows.filter(is_over).filter(meets).select(_COLUMNS).collect()
    newest = found.sort("resolved_at", "fingerprint", descending=[True, False])
    since = began
    if newest.height > ROWS_MAX:
        newest = newest.head(ROWS_MAX)
        since = newest["resolved_at"].min()
    alerts = newest.unique(["fingerprint", "fired_at"], keep="first", maintain_order=True)
    return Past(tuple(_alert(row) for row in alerts.iter_rows(named=True)), since)


def _alert(row: dict[str, Any]) -> Alert:
    return Alert(
        fingerprint=row["fingerprint"],
        rule=row["rule"],
        severity=row["severity"],
        owner=row["owner"],
        labels=json.loads(row["labels"]),
        annotations={"summary": row["summary"], "evidence": row["evidence"]},
        figures={},
        state=State.RESOLVED,
        reason=row["reason"],
        active_at_us=micros(row["active_at"]),
        fired_at_us=micros(row["fired_at"]),
        resolved_at_us=micros(row["resolved_at"]),
        last_true_us=micros(row["resolved_at"]),
    )
