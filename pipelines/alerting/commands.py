"""`tidemark alerts`: checks rules, runs alerting and lists, acknowledges or silences alerts.

Absent on purpose: work.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.foundation.errors import MustBe

if TYPE_CHECKING:
    from pipelines.alerting.rules import Fault
    from pipelines.database.database import Database

app = typer.Typer(no_args_is_help=True)
alerts = typer.Typer(
    no_args_is_help=True, help="Alerts: run, list, show, ack, silence; check and test rules."
)
app.add_typer(alerts, name="alerts")

JsonOption = Annotated[bool, typer.Option("--json", help="As JSON.")]


@alerts.command("check")
def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files of rules, or folders of them, of receivers with routes and owners, or of "
            "routes; none: those that are shipped."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what is wrong with files of rules: file, rule, key, value, and what to do."""
    from pipelines.alerting.notification_settings import faults_of_receivers
    from pipelines.alerting.rule_files import ROUTING, faults_of_routing, read_rules, rule_files
    from pipelines.base.wording import plural

    named = rule_files(files or ()) + ([] if files else [ROUTING])
    routing = {
        file: faults
        for file in named
        for faults in (faults_of_receivers(file), faults_of_routing(file))
        if faults is not None
    }
    checked = read_rules(file for file in named if file not in routing)
    faults = (*checked.faults, *chain(*routing.values()))
    if as_json:
        summary = {"rules": len(checked.rules), "files": [str(file) for file in named]}
        _print_json({**summary, "faults": [asdict(fault) for fault in faults]})
    _end_at_faults(faults, "alerts check")
    if as_json:
        return
    typer.echo(f"{plural(len(checked.rules), 'rule')} in {plural(len(named), 'file')}, no faults")


@alerts.command("test")
def try_out(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files of tests; none: those of shipped rules.")
    ] = None,
) -> None:
    """Try rules on rows of gold that are written down: which alerts there are, and when."""
    from pipelines.alerting.rule_files import SHIPPED, read_document, read_rules
    from pipelines.alerting.rule_tests import cases_of, run
    from pipelines.alerting.rules import Fault
    from pipelines.base.wording import plural

    named = files or sorted((SHIPPED / "tests").glob("*.toml"))
    passed = failed = 0
    for file in named:
        document = read_document(file)
        if isinstance(document, Fault):
            _end_at_faults([document], "alerts test")
            continue
        cases = cases_of(str(file), document)
        _end_at_faults(cases.faults, "alerts test")
        rules = read_rules(file.parent / str(name) for name in document.get("rules", []))
        _end_at_faults(rules.faults, "alerts test")
        for case in cases.cases:
            wrong = run(case, rules.rules)
            passed, failed = passed + (not wrong), failed + bool(wrong)
            for what in wrong:
                typer.echo(f"FAILED {file.name}: {case.name}: {what}")
    typer.echo(f"{plural(passed, 'test')} passed, {failed} failed")
    if failed:
        typer.echo(f"tidemark alerts test: {plural(failed, 'test')} failed", err=True)
        raise typer.Exit(1)


def _end_at_faults(faults: Iterable[Fault], command: str) -> None:
    """Tell all faults, one a line, and end; without any, go on."""
    found = list(faults)
    for fault in found:
        typer.echo(f"tidemark {command}: {fault}", err=True)
    if found:
        raise typer.Exit(1)


LakeOption = Annotated[str, typer.Option("--lake", help="Path or URI of the lake.")]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        envvar="TIDEMARK_DATABASE",
        help="sqlite:///PATH or postgresql://USER@HOST/NAME; else a file in ~/.tidemark, "
        "or in the folder that TIDEMARK_HOME names.",
    ),
]
AuthorOption = Annotated[str, typer.Option(envvar="USER", help="Who says so.")]
CommentOption = Annotated[str, typer.Option(help="Why.")]
LISTED = 50
"""Alerts of a list, unless somebody asks for more."""
FingerprintArgument = Annotated[str, typer.Argument(help="Of the alert, or its beginning.")]


@alerts.command("run")
def run_process(
    lake: LakeOption,
    rules: Annotated[
        list[Path] | None, typer.Option(help="File or folder of rules; else those shipped.")
    ] = None,
    receivers: Annotated[
        Path | None,
        typer.Option(help="File of receivers and routes; without it nobody is notified."),
    ] = None,
    database: DatabaseOption = None,
    objectives: Annotated[
        Path | None, typer.Option(help="TOML file of what groups should keep, as of reports.")
    ] = None,
    for_s: Annotated[float, typer.Option("--for", help="Stop after so many seconds.", min=0)] = 0,
    metrics_port: Annotated[
        int | None, typer.Option(help="Serve /metrics there; 0 picks a free port.")
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="Address to serve it on.")] = "127.0.0.1",
    metrics_allow_host: Annotated[
        list[str] | None, typer.Option(help="Host name it may be asked by; repeat for more.")
    ] = None,
    metrics_queues: Annotated[
        bool, typer.Option("--metrics-queues", help="Tell the lag of each queue, too.")
    ] = False,
) -> None:
    """Watch the gold of a lake and notify people, until stopped. Of several processes one leads."""
    import asyncio
    import logging

    from pipelines.alerting.serving import Metrics, watch
    from pipelines.database.database import opened
    from pipelines.lake.lake import Lake

    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.WARNING)
    home = Lake.at(lake)
    state = opened(database)
    try:
        metrics = None
        if metrics_port is not None:
            names = tuple(metrics_allow_host or ())
            metrics = Metrics(metrics_port, metrics_host, names, metrics_queues)

        def ready(address: str) -> None:
            typer.echo(f"ready lake={home.root}" + (f" metrics={address}" if address else ""))
            sys.stdout.flush()

        watching = watch(
            *(home, rules or (), receivers, state),
            for_s=for_s,
            metrics=metrics,
            objectives=objectives,
            ready=ready,
        )
        asyncio.run(watching)
    finally:
        state.close()


@alerts.command("list")
def list_alerts(
    lake: LakeOption,
    matchers: Annotated[
        list[str] | None, typer.Argument(help='label="value", or !=, =~, !~; all must hold.')
    ] = None,
    rule: Annotated[str, typer.Option(help="Of this rule.")] = "",
    group: Annotated[str, typer.Option(help="About this consumer group.")] = "",
    severity: Annotated[str, typer.Option(help="critical, error, warning or info.")] = "",
    owner: Annotated[str, typer.Option(help="Whose they are.")] = "",
    state: Annotated[str, typer.Option(help="FIRING, PENDING, RESOLVED, NO_DATA, ...")] = "",
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="So many at most; others are counted. Else 50, all as JSON."),
    ] = None,
    database: DatabaseOption = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="Resolved ones, too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """The open alerts, the worst first."""
    from pipelines.alerting.alert_queries import listed, wanted_of
    from pipelines.alerting.terminal import list_in_words
    from pipelines.database.database import now_us

    at_us = now_us()
    named = {"rule": rule, "group": group, "severity": severity, "owner": owner}
    wanted = wanted_of(matchers or (), state=state, all_of_them=all_of_them, **named)
    with _state(lake, database) as (state_there, name):
        found = listed(state_there, name, now_us=at_us, wanted=wanted)
        is_watched = _print_who_watches(state_there, name, at_us)
    if as_json:
        _print_json([one.as_json() for one in found[:limit]])
        return
    for line in list_in_words(found, limit=limit or LISTED) if found else ():
        typer.echo(line)
    if not found:
        none = "no alert is open" if is_watched else "no alert is known to be open"
        typer.echo(none if wanted == wanted_of(()) else "no alert is as asked")


@alerts.command("show")
def show(
    fingerprint: FingerprintArgument,
    lake: LakeOption,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """One alert whole: what, since when, whose, what to do first, and what people said of it."""
    import msgspec

    from pipelines.alerting.alert_queries import one_shown
    from pipelines.alerting.terminal import alert_in_words
    from pipelines.database.database import now_us

    at_us = now_us()
    with _state(lake, database) as (state, name):
        alert = one_shown(state, name, fingerprint, now_us=at_us)
        _print_who_watches(state, name, at_us)
    if as_json:
        whole = {**alert.as_json(), "rule_judged": msgspec.to_builtins(alert.judged)}
        _print_json(whole)
        return
    for line in alert_in_words(alert, at_us):
        typer.echo(line)


@alerts.command("rules")
def list_rules(
    lake: LakeOption, database: DatabaseOption = None, as_json: JsonOption = False
) -> None:
    """The rules in force: when each was judged last, and what came of it."""
    import msgspec

    from pipelines.alerting.store import steps
    from pipelines.database.database import now_us

    with _state(lake, database) as (state, name):
        found = steps.judged_of(state, name).values()
        _print_who_watches(state, name, now_us())
    if as_json:
        _print_json(msgspec.to_builtins(list(found)))
        return
    for one in found:
        typer.echo(one.in_words(now_us()))
    if not found:
        typer.echo("no rule was ever judged: `tidemark alerts run` does it")


@alerts.command("ack")
def ack(
    fingerprint: FingerprintArgument,
    lake: LakeOption,
    author: AuthorOption,
    comment: CommentOption = "",
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say that somebody has seen an alert and looks after it."""
    from pipelines.alerting.alert_queries import one_alert
    from pipelines.alerting.store import people
    from pipelines.database.database import now_us

    with _state(lake, database) as (state, name):
        alert = one_alert(state, name, fingerprint)
        said = people.Ack(alert.fingerprint, alert.active_at_us, author, comment, now_us())
        people.acknowledge(state, name, said)
    if as_json:
        _print_json(asdict(said))
        return
    typer.echo(f"acked {alert.fingerprint}")


@alerts.command("silence")
def silence(
    matchers: Annotated[list[str], typer.Argument(help='label="value", or !=, =~, !~')],
    lake: LakeOption,
    author: AuthorOption,
    comment: CommentOption,
    lasts: Annotated[
        str, typer.Option("--for", help="How long: 30m, 7d; else 2h, and with --at a year.")
    ] = "",
    days: Annotated[str, typer.Option(help="Only on these days: sat,sun.")] = "",
    at: Annotated[str, typer.Option(help="Comes back at this time of day: 22:00.")] = "",
    length: Annotated[str, typer.Option(help="For so long each time.")] = "1h",
    zone: Annotated[str, typer.Option(help="Time zone of days and time of day.")] = "UTC",
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell nobody of alerts that match, for a time or again and again."""
    import secrets

    import msgspec

    from pipelines.alerting.alert_queries import new_silence, recurring_of
    from pipelines.alerting.silence_rows import kept_silence
    from pipelines.alerting.store import people
    from pipelines.database.database import now_us

    begin_us = now_us()
    recurring = recurring_of(days, at, _span_us("length", length), zone)
    lasts = lasts or ("365d" if recurring else "2h")
    made = new_silence(
        secrets.token_hex(4),
        matchers,
        begin_us=begin_us,
        end_us=begin_us + _span_us("for", lasts),
        author=author,
        comment=comment,
        recurring=recurring,
    )
    kept = kept_silence(made, created_us=begin_us)
    with _state(lake, database) as (state, name):
        people.add_silence(state, name, kept)
        _print_who_watches(state, name, begin_us)
    if as_json:
        _print_json(msgspec.to_builtins(kept))
        return
    typer.echo(f"silenced {made.silence_id}")


@alerts.command("silences")
def list_silences(
    lake: LakeOption, database: DatabaseOption = None, as_json: JsonOption = False
) -> None:
    """The silences that have not ended."""
    import msgspec

    from pipelines.alerting.silence_rows import silences_of
    from pipelines.alerting.store import people
    from pipelines.alerting.terminal import silence_in_words
    from pipelines.database.database import now_us

    at_us = now_us()
    with _state(lake, database) as (state, name):
        kept = people.silences_of(state, name, ending_after_us=at_us)
        _print_who_watches(state, name, at_us)
    found, faults = silences_of(kept)
    for fault in faults:
        typer.echo(f"tidemark alerts silences: {fault}; end it, and write it anew", err=True)
    if as_json:
        _print_json(msgspec.to_builtins(kept))
        return
    for one in found:
        typer.echo(silence_in_words(one, at_us))
    if not found and not faults:
        typer.echo("nothing is silenced")


@alerts.command("unsilence")
def unsilence(
    silence_id: Annotated[str, typer.Argument(help="Of `tidemark alerts silences`.")],
    lake: LakeOption,
    database: DatabaseOption = None,
    as_json: JsonOption = False,
) -> None:
    """End a silence now."""
    from pipelines.alerting.store import people
    from pipelines.database.database import now_us

    ended_us = now_us()
    with _state(lake, database) as (state, name):
        if not people.expire_silence(state, name, silence_id, now_us=ended_us):
            raise MustBe("silence", silence_id, "one of `tidemark alerts silences`")
    if as_json:
        _print_json({"silence_id": silence_id, "ended_us": ended_us})
        return
    typer.echo(f"ended {silence_id}")


@alerts.command("test-channel")
def try_channel(
    receiver: Annotated[str, typer.Argument(help="Name of the receiver.")],
    receivers: Annotated[Path, typer.Option(help="File of receivers.")],
    as_json: JsonOption = False,
) -> None:
    """Send a receiver an alert that says that it is a test."""
    import asyncio

    from pipelines.alerting.outbox.outcomes import Failed
    from pipelines.alerting.serving import tried

    outcome = asyncio.run(tried(receivers, receiver))
    failed = outcome if isinstance(outcome, Failed) else None
    if as_json:
        summary = {"receiver": receiver, "delivered": failed is None}
        why = ("", "") if failed is None else (failed.trouble.value, failed.error)
        _print_json({**summary, "trouble": why[0], "error": why[1]})
    if failed is not None:
        typer.echo(f"tidemark alerts: {receiver} does not have it: {failed.error}", err=True)
        raise typer.Exit(1)
    if not as_json:
        typer.echo(f"{receiver} has it")


def _print_json(value: Any) -> None:
    """For machines; what is wrong stands on stderr all the same, and in the exit code."""
    typer.echo(json.dumps(value, indent=2))


@contextmanager
def _state(lake: str, database: str | None) -> Iterator[tuple[Database, str]]:
    """The database, and the lake's name in it."""
    from pipelines.database.database import opened
    from pipelines.lake.lake import Lake

    state = opened(database)
    try:
        yield state, Lake.at(lake).root
    finally:
        state.close()


def _print_who_watches(state: Database, lake: str, now_us: int) -> bool:
    """Does somebody keep the alerts up to date? Else it is said, beside what is known: what is
    stored of a lake that nobody watches, or that is named wrongly, is no answer."""
    from pipelines.alerting.board import process_of

    process = process_of(state, lake, now_us)
    if not process.is_believed:
        typer.echo(f"tidemark alerts: {process.sentence(now_us)} ({lake})", err=True)
    return process.is_believed


def _span_us(name: str, text: str) -> int:
    from pipelines.alerting.conditions import span_us

    span = span_us(text)
    if not span:
        raise MustBe(name, text, "a span of time like 30m, 2h or 7d")
    return span
