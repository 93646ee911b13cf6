"""Prints the result of a job change, or its preview, as text or JSON.

Absent on purpose: work. `store.jobs` says what was done; on a trial of the database, what would be.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

import typer

from pipelines.base.command_options import echo_json
from pipelines.scheduler.diffs import brief, changes, in_zone
from pipelines.scheduler.store.jobs import Changed, Job

NEXT_TIMES: Final = 5
"""How many coming times a change shows."""

NOTHING_DONE: Final = "Nothing was changed: without --preview it is done."


def change_as_json(done: Changed, *, is_done: bool, now_ms: int) -> dict[str, Any]:
    """A change as JSON has it."""
    return {
        "job_id": done.job_id,
        "action": done.action,
        "is_done": is_done,
        "changes": {name: list(pair) for name, pair in done.changes.items()},
        "cancelled_runs": list(done.cancelled),
        "next": next_of(done.job, now_ms),
        "job": None if done.job is None else asdict(done.job),
    }


def next_of(job: Job | None, now_ms: int) -> list[str]:
    """The next times of a job in its zone; of one that is paused, those it would have."""
    if job is None or job.wrong_because is not None:
        return []
    schedule = job.settings.schedule
    times = schedule.upcoming_ms(job.next_ms or schedule.next_ms(now_ms), count=NEXT_TIMES)
    return [in_zone(one, job.settings.zone) for one in times]


def answer(
    done: Changed,
    *,
    now_ms: int,
    is_preview: bool,
    as_json: bool,
    plain: str = "",
    source_lines: Iterable[str] = (),
) -> None:
    """Say what was done (`plain`, if given), or what would be."""
    if as_json:
        echo_json(change_as_json(done, is_done=not is_preview, now_ms=now_ms))
        return
    if plain and not is_preview:
        typer.echo(plain)
        return
    for line in (*_lines(done, now_ms, is_preview=is_preview), *source_lines):
        typer.echo(line)
    if is_preview:
        typer.echo(NOTHING_DONE)


def answer_new(job: Job, *, as_json: bool) -> None:
    """Say the number of a job that was made."""
    if as_json:
        echo_json({"job_id": job.job_id, "job": asdict(job)})
    else:
        typer.echo(str(job.job_id))


def answer_run(job: Job, log_id: int | None, parameters: str | None, *, as_json: bool) -> None:
    """Say the number of a run that was asked for; None: it is only tried."""
    own = job.settings.parameters
    given = own if parameters is None else parameters
    if as_json:
        made = changes({"parameters": own}, {"parameters": given})
        outcome = {"job_id": job.job_id, "action": "run", "is_done": log_id is not None}
        echo_json({**outcome, "log_id": log_id, "changes": {k: list(v) for k, v in made.items()}})
    elif log_id is not None:
        typer.echo(str(log_id))
    else:
        what = "its steps" if job.settings.is_workflow else job.settings.handler or "its source"
        typer.echo(f"job {job.job_id} ({job.settings.title}) would run {what} once, now")
        typer.echo(f"parameters: {own!r}" + (f" → {given!r}" if given != own else ""))
        typer.echo(NOTHING_DONE)


def _lines(done: Changed, now_ms: int, *, is_preview: bool) -> list[str]:
    lines = [
        f"{name}: {shown(old)} → {shown(new)}" for name, (old, new) in done.changes.items()
    ] or ["nothing becomes another" if is_preview else f"job {done.job_id}: as it was"]
    runs = ", ".join(map(str, done.cancelled))
    if is_preview:
        lines.append(f"runs that would be cancelled: {runs or 'none'}")
    elif runs:
        lines.append(f"cancelled runs: {runs}")
    if done.job is not None:
        when = "next" if done.job.is_active else "next, once it is started"
        zone = done.job.settings.zone
        lines.append(f"{when} ({zone}): {', '.join(next_of(done.job, now_ms)) or 'none'}")
    return lines


def shown(value: object) -> str:
    """A value in words."""
    if value is None:
        return "nothing"
    if isinstance(value, dict) and "chars" in value:
        return f"{value['chars']:,} characters ({str(value['sha256'])[:12]})"
    return str(brief("", value)) if not isinstance(value, str) else repr(value)
