"""Sends a report's headline and link through alerting's channels, and its page by email.

Place in the walk: a run of a report → the outbox → `tidemark alerts run`, which sends it with the
same retries as alerts. Mail carries the page as an attachment, when the machine that sends has it.

Invariant: a run is sent to a receiver once, however often it is posted. Absent on purpose:
receivers that wake people or keep alerts (PagerDuty, Alertmanager): a report is none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

import sqlalchemy as sa

from engine.foundation.errors import ConfigError, LakeError
from pipelines.alerting.alerts import OBSERVED, Alert, Notice, State, fingerprint_of
from pipelines.alerting.channels.receivers import Alertmanager, PagerDuty, read_receivers
from pipelines.alerting.store.steps import add_notices
from pipelines.base.time_units import micros
from pipelines.database.database import Database
from pipelines.database.limits import TEXT_CHARS_MAX
from pipelines.database.tables import notices
from pipelines.reports.numbers import Numbers
from pipelines.reports.page import observed_clusters
from pipelines.reports.shelf import PAGE_FILE, ReportRun, Shelf
from pipelines.scheduler.store.audit import Change, note

RULE: Final = "LagReport"
NEWS_TOLD: Final = 5


def checked_receivers(file: Path | None, names: Iterable[str]) -> tuple[str, ...]:
    """Names of receivers that a report may go to. ConfigError for others."""
    wanted = tuple(names)
    if not wanted:
        return ()
    if file is None:
        raise ConfigError("--receivers", None, "the file in which the receivers are")
    known = {one.name: one for one in read_receivers(file).receivers}
    for name in wanted:
        if name not in known:
            raise ConfigError("receiver", name, f"one of {', '.join(sorted(known))}", str(file))
        if isinstance(known[name], PagerDuty | Alertmanager):
            allowed = "one for mail, chat or a webhook: a report is no alert, and wakes nobody"
            raise ConfigError("receiver", name, allowed, str(file))
    return wanted


def receivers_for(file: Path) -> tuple[str, ...]:
    """Those in a file that a report may go to, in its order. Raises ConfigError."""
    return tuple(
        one.name
        for one in read_receivers(file).receivers
        if not isinstance(one, PagerDuty | Alertmanager)
    )


def post(
    shelf: Shelf,
    run: ReportRun,
    to: Sequence[str],
    change: Change,
    *,
    pages: str = "",
    database: Database,
) -> int:
    """Post a run in somebody's name; returns how many receivers had not been sent it yet. The audit
    has it in the same transaction."""
    notices = _notices(shelf, run, to, pages)
    with database.writing() as connection:
        new = add_notices(connection, shelf.lake.root, notices, now_us=change.now_ms * 1_000)
        detail = f"to {', '.join(to)}; {new} of {len(to)} had not been sent it"
        note(connection, change, "send", f"report:{run.name}", detail=detail)
    return new


def was_posted(shelf: Shelf, run: ReportRun, receiver: str, *, database: Database) -> bool:
    """Whether a receiver was sent this run, or is about to be. Old notices are forgotten, so a no
    does not hold for ever."""
    wanted = sa.select(notices.c.seq).where(
        notices.c.lake == shelf.lake.root, notices.c.notice_id == _notice_id(run, receiver)
    )
    with database.reading() as connection:
        return connection.scalar(wanted.limit(1)) is not None


def _notices(shelf: Shelf, run: ReportRun, to: Sequence[str], pages: str) -> list[Notice]:
    try:
        numbers: Numbers | None = shelf.numbers(run)
    except LakeError:
        numbers = None  # Its files are gone: the sentence is there still.
    page = shelf.place(run) / PAGE_FILE
    return [notice_of(run, numbers, one, page=page, pages=pages) for one in to]


def _notice_id(run: ReportRun, receiver: str) -> str:
    digest = hashlib.sha256(f"{run.name}/{run.digest}/{receiver}".encode()).hexdigest()[:32]
    return f"report-{digest}"


def notice_of(
    run: ReportRun, numbers: Numbers | None, receiver: str, *, page: Path, pages: str = ""
) -> Notice:
    """What a receiver is sent of a run."""
    labels = {"report": run.name}
    texts = {"summary": run.headline, "description": _news(run, numbers)}
    if numbers is not None and (observed := " ".join(observed_clusters(numbers))):
        texts[OBSERVED] = observed
    if pages:
        texts["page_url"] = f"{pages.rstrip('/')}/reports/{quote(run.name)}"
    alert = Alert(
        fingerprint=fingerprint_of(RULE, labels),
        rule=RULE,
        severity="info",
        owner="",
        labels=labels,
        annotations={name: text[:TEXT_CHARS_MAX] for name, text in texts.items()},
        figures={"groups": run.groups, "missed": run.missed, "unclear": run.unclear},
        state=State.FIRING,
        reason="",
        active_at_us=micros(run.begin),
        fired_at_us=micros(run.begin),
        resolved_at_us=None,
        last_true_us=micros(run.end),
    )
    return Notice(
        notice_id=_notice_id(run, receiver),
        receiver=receiver,
        group_key=f"report/{run.name}",
        group_labels=labels,
        alerts=(alert,),
        truncated_alerts=0,
        created_us=micros(run.made_at),
        subject=f"Lag report, {run.of_window}: {run.headline}",
        attachment=str(page.absolute()),
    )


def _news(run: ReportRun, numbers: Numbers | None) -> str:
    texts = [run.revised] if run.revised else []
    if numbers is not None:
        worse = [one for one in numbers.news if not one.is_better]
        texts += [f"{one.about}: {one.text}." for one in worse[:NEWS_TOLD]]
    return " ".join(texts) or "Nothing that was not so before."
