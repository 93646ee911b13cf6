"""`tidemark reports`: creates, lists, shows, opens, compares and sends reports.

Absent on purpose: work.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.foundation.errors import ConfigError
from pipelines.base.command_options import (
    AddressOption,
    ConfOption,
    DatabaseOption,
    LakeOption,
    MasterOption,
    PreviewOption,
    spark_settings_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipelines.reports.making import Plan, Wish
    from pipelines.reports.shelf import ReportRun, Shelf

app = typer.Typer(no_args_is_help=True)
reports = typer.Typer(
    no_args_is_help=True, help="Reports of past periods: run, list, show, open, compare, send."
)
app.add_typer(reports, name="reports")

FolderOption = Annotated[
    Path | None, typer.Option(help="Of the files; else the lake's own, or one in the home folder.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON.")]
NameArgument = Annotated[
    str, typer.Argument(help="As `reports list` names it: REPORT, REPORT/WINDOW or with /NUMBER.")
]
SendOption = Annotated[
    list[str] | None, typer.Option("--send", help="Receiver that is to have it; repeatable.")
]
ReceiversOption = Annotated[
    Path | None, typer.Option(help="File of receivers, as `tidemark alerts run` takes it.")
]
RunOption = Annotated[
    int | None,
    typer.Option("--for-run", hidden=True, help="The run of one of our own jobs that asks.", min=1),
]


@reports.command("run")
def run_report(
    lake: LakeOption = "var/lake",
    period: Annotated[
        str, typer.Option(help="hourly, daily or weekly: the last that is over; or custom.")
    ] = "daily",
    at: Annotated[str | None, typer.Option(help="Over at this moment, ISO 8601; else now.")] = None,
    begin: Annotated[str | None, typer.Option("--from", help="Begin of a custom period.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="Its end.")] = None,
    zone: Annotated[str, typer.Option(help="IANA zone in which days begin.")] = "UTC",
    again: Annotated[
        str | None,
        typer.Option(
            help="Make this one again, from the cut that it was made from; with --newest, the "
            "same period from what is known now."
        ),
    ] = None,
    newest: Annotated[
        bool, typer.Option("--newest", help="From what is known now, even if it was made before.")
    ] = False,
    objectives: Annotated[Path | None, typer.Option(help="TOML file of objectives.")] = None,
    pages: Annotated[str, typer.Option(help="Address of the dashboard, for links.")] = "",
    folder: FolderOption = None,
    send: SendOption = None,
    receivers: ReceiversOption = None,
    database: DatabaseOption = None,
    master: MasterOption = "local[2]",
    address: AddressOption = None,
    conf: ConfOption = None,
    preview: PreviewOption = False,
    for_run: RunOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make the report of a period, unless it is there; the same cut gives the same numbers."""
    from pipelines.reports.making import From, Wish, make, plan
    from pipelines.reports.rights import changing
    from pipelines.reports.sending import checked_receivers, post

    with changing(database, run=for_run) as by:
        shelf = _shelf(lake, folder)
        to = checked_receivers(receivers, send or ())
        named = None if again is None else shelf.named(again)
        if named is not None:
            window, cut = named.of_window, From.RECORDED
        else:
            window, cut = _window(period, at, begin=begin, end=end, zone=zone), From.NEW
        wish = Wish(
            window,
            From.NEWEST if newest else cut,
            recorded=None if named is None else named.cut,
            number=0 if named is None else named.number,
            objectives=str(objectives or ""),
            pages=pages,
            master=master,
            address=address or "",
            conf=spark_settings_of(conf),
        )
        if preview:
            _preview(plan(shelf, wish), wish, to, as_json=as_json)
            return
        run, is_new = make(shelf, wish, note=by.note)
        if to:
            post(shelf, run, to, by.change, pages=pages, database=by.database)
    if as_json:
        _echo(_as_json(shelf, run) | {"made_now": is_new})
        return
    _print_run(shelf, run, "made" if is_new else "there already:")


@reports.command("list")
def list_reports(
    lake: LakeOption = "var/lake",
    report: Annotated[str | None, typer.Option(help="Only of this name, like lag-daily.")] = None,
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """The reports that were made, the newest period first; a thousand at most."""
    shelf = _shelf(lake, folder)
    found = shelf.runs(report=report)
    if as_json:
        _echo([_as_json(shelf, run) for run in found])
        return
    for run in found:
        marks = [word for word in ("revised", "rebuilt") if getattr(run, word)]
        mark = f" ({', '.join(marks)})" if marks else ""
        typer.echo(f"{run.name}{mark}  {run.headline}")
    if not found:
        typer.echo("no report was made yet: `tidemark reports run` makes one")


@reports.command("show")
def show(
    name: NameArgument,
    lake: LakeOption = "var/lake",
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """A report in short; as JSON, with all its numbers."""
    shelf = _shelf(lake, folder)
    run = shelf.named(name)
    if as_json:
        from pipelines.reports.numbers import builtins

        _echo(_as_json(shelf, run) | {"numbers": builtins(shelf.numbers(run))})
        return
    _print_run(shelf, run, "report")


@reports.command("open")
def open_report(
    name: NameArgument,
    lake: LakeOption = "var/lake",
    folder: FolderOption = None,
    paper: Annotated[bool, typer.Option("--pdf", help="The PDF in place of the page.")] = False,
    browser: Annotated[bool, typer.Option(help="Open it in a browser.")] = True,
) -> None:
    """Say where a report's page is, and open it."""
    import webbrowser

    from pipelines.reports.shelf import PAGE_FILE, PAPER_FILE

    shelf = _shelf(lake, folder)
    run = shelf.named(name)
    if paper and run.no_paper:
        raise ConfigError("--pdf", name, f"a report that was printed; of this one {run.no_paper}")
    file = shelf.file(run, PAPER_FILE if paper else PAGE_FILE)
    typer.echo(str(file))
    if browser and sys.stdout.isatty():
        webbrowser.open(file.absolute().as_uri())


@reports.command("compare")
def compare(
    name: NameArgument,
    other: Annotated[
        str | None,
        typer.Argument(help="With this one; else with the report of the period before."),
    ] = None,
    lake: LakeOption = "var/lake",
    folder: FolderOption = None,
    as_json: JsonOption = False,
) -> None:
    """What differs between two reports, figure by figure."""
    from dataclasses import asdict

    from pipelines.reports.comparing import differences

    shelf = _shelf(lake, folder)
    run = shelf.named(name)
    before = shelf.named(other or f"{run.report}/{run.of_window.before.name}")
    found = differences(shelf.numbers(before), shelf.numbers(run))
    if as_json:
        listed = [asdict(one) for one in found]
        _echo({"before": before.name, "after": run.name, "differences": listed})
        return
    for one in found:
        typer.echo(str(one))
    if not found:
        typer.echo(f"{before.name} and {run.name} have the same numbers")


@reports.command("send")
def send_report(
    name: NameArgument,
    to: Annotated[list[str], typer.Argument(help="Receivers that are to have it.")],
    receivers: Annotated[Path, typer.Option(help="File of receivers.")],
    lake: LakeOption = "var/lake",
    folder: FolderOption = None,
    pages: Annotated[str, typer.Option(help="Address of the dashboard, for links.")] = "",
    preview: PreviewOption = False,
    database: DatabaseOption = None,
) -> None:
    """Have a report sent by `tidemark alerts run`; each receiver gets it once."""
    from pipelines.reports.rights import changing
    from pipelines.reports.sending import checked_receivers, post

    with changing(database) as by:
        shelf = _shelf(lake, folder)
        run = shelf.named(name)
        known = checked_receivers(receivers, to)
        with by.database.rehearsal() if preview else nullcontext(by.database) as outbox:
            new = post(shelf, run, known, by.change, pages=pages, database=outbox)
    waits = "would wait" if preview else "waits"
    typer.echo(f"{run.name} {waits} to be sent to {new} of {len(to)}; the others have it")
    _say_if_tried(preview)


@reports.command("tidy")
def tidy(
    lake: LakeOption = "var/lake",
    folder: FolderOption = None,
    preview: PreviewOption = False,
    database: DatabaseOption = None,
    for_run: RunOption = None,
) -> None:
    """Remove files of reports whose days are over; their rows and numbers stay."""
    from pipelines.base.wording import plural
    from pipelines.reports import making
    from pipelines.reports.rights import changing

    now = datetime.now(UTC)
    with changing(database, run=for_run) as by:
        shelf = _shelf(lake, folder)
        if not preview:
            removed = making.tidy(shelf, now, note=by.note)
            typer.echo(f"removed the files of {plural(removed, 'report')}")
            return
        outdated = shelf.outdated(now)
    for run in outdated:
        typer.echo(f"files of {run.name}, but for its numbers")
    typer.echo(f"would remove the files of {plural(len(outdated), 'report')}")
    _say_if_tried(preview)


@reports.command("digest")
def digest(
    lake: LakeOption = "var/lake",
    at: Annotated[str | None, typer.Option(help="Up to this moment; else now.")] = None,
    days: Annotated[int, typer.Option(help="So many days.", min=1, max=92)] = 1,
    send: SendOption = None,
    receivers: ReceiversOption = None,
    database: DatabaseOption = None,
    for_run: RunOption = None,
    as_json: JsonOption = False,
) -> None:
    """Which alerts there were: how many fired, for whom, what is open, what came and went."""
    from dataclasses import asdict
    from datetime import timedelta

    from pipelines.base.time_units import given_us, moment_at
    from pipelines.lake.lake import Lake
    from pipelines.reports.digest import digest_of, post_digest
    from pipelines.reports.rights import changing
    from pipelines.reports.sending import checked_receivers

    end = datetime.now(UTC) if at is None else moment_at(given_us("--at", at))
    to = checked_receivers(receivers, send or ())
    home = Lake.at(lake)
    found = digest_of(home, end - timedelta(days=days), end)
    if to:
        with changing(database, run=for_run) as by:
            post_digest(home, found, to, by.change, database=by.database)
    if as_json:
        _echo(asdict(found))
        return
    for line in found.lines:
        typer.echo(line)
    typer.echo(found.headline)


def _preview(planned: Plan, wish: Wish, to: Sequence[str], *, as_json: bool) -> None:
    name = f"{wish.report}/{wish.window.name}/{planned.number}"
    if as_json:
        plan = {"name": name, "is_done": False, "is_there": planned.is_there}
        cut = {"run_id": planned.cut.run_id, "cycle": planned.cut.cycle}
        kept = planned.kept.name if planned.is_gone and planned.kept else None
        _echo(plan | cut | {"rebuilt_from": kept, "to": list(to)})
        return
    cut_text = f"cycle {planned.cut.cycle:,} of run {planned.cut.run_id}"
    if planned.is_there:
        typer.echo(f"{name} is there already, from {cut_text}")
    elif planned.is_gone and planned.kept:
        typer.echo(f"{name} would be rebuilt from the numbers that {planned.kept.name} kept")
        typer.echo(f"gold of {cut_text} is not there any more")
    else:
        typer.echo(f"{name} would be made from {cut_text}")
    for receiver in to:
        typer.echo(f"it would be sent to {receiver}, unless he has it")
    _say_if_tried(is_trial=True)


def _say_if_tried(is_trial: bool) -> None:
    if is_trial:
        typer.echo("Nothing was changed: without --preview it is done.")


def _shelf(lake: str, folder: Path | None) -> Shelf:
    from pipelines.lake.lake import Lake
    from pipelines.reports.shelf import Shelf

    return Shelf(Lake.at(lake), folder)


def _window(period: str, at: str | None, *, begin: str | None, end: str | None, zone: str) -> Any:
    from pipelines.base.time_units import given_us, moment_at
    from pipelines.reports.windows import Period, Window, last_of

    try:
        kind = Period(period)
    except ValueError:
        raise ConfigError("--period", period, ", ".join(Period)) from None
    if begin is None and end is None and kind is not Period.CUSTOM:
        moment = datetime.now(UTC) if at is None else moment_at(given_us("--at", at))
        return last_of(kind, moment, zone=zone)
    if begin is None or end is None or at is not None:
        raise ConfigError("--from", begin, "given with --to, without --at")
    moments = [moment_at(given_us(name, one)) for name, one in (("--from", begin), ("--to", end))]
    return Window(Period.CUSTOM, moments[0], moments[1], zone)


def _as_json(shelf: Shelf, run: ReportRun) -> dict[str, Any]:
    from dataclasses import asdict

    place = shelf.place(run)
    there = sorted(file.name for file in place.iterdir()) if place.exists() else []
    values = asdict(run) | {"name": run.name, "place": str(place), "files": there}
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in values.items()
    }


def _print_run(shelf: Shelf, run: ReportRun, what: str) -> None:
    typer.echo(f"{what} {run.name}")
    typer.echo(run.headline)
    for note in (run.rebuilt, run.revised, run.no_paper):
        if note:
            typer.echo(note)
    typer.echo(str(shelf.place(run)))


def _echo(value: object) -> None:
    typer.echo(json.dumps(value))
