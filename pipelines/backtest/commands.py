"""Implements the `tidemark backtest` command, which compares rule sets over past lake data.

Absent on purpose: work. Spark is started only when ours are asked for with figures that the lake's
gold was not computed with: then that gold is computed by a replay, into a place of its own.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.foundation.errors import ConfigError
from pipelines.base.command_options import (
    AddressOption,
    ConfOption,
    LakeOption,
    MasterOption,
    spark_settings_of,
)
from pipelines.base.time_units import given_us

if TYPE_CHECKING:
    from pipelines.backtest.run import Outcome
    from pipelines.backtest.scoring import Range
    from pipelines.cycles.driver import Job

app = typer.Typer(no_args_is_help=True)

REPORT_WIDTH = 110
"""Columns of the table where the output is no terminal."""


RULES_HELP = (
    "ours, burrow, thresholds, alerts (the shipped rules), or TOML files of rule sets or of alert "
    "rules; commas between."
)


@app.command("backtest")
def backtest(
    rules: Annotated[str, typer.Argument(help=RULES_HELP)],
    begin: Annotated[str, typer.Option("--from", help="Begin, ISO 8601; UTC unless it says else.")],
    end: Annotated[str, typer.Option("--to", help="End, ISO 8601.")],
    lake: LakeOption = "var/lake",
    truth: Annotated[
        Path | None,
        typer.Option(help="Incidents as CSV, TOML or JSON; else those an experiment has planted."),
    ] = None,
    grace_s: Annotated[
        int, typer.Option(help="So long after its end an incident may still be reported.")
    ] = 60,
    warm_up_s: Annotated[int, typer.Option(help="Facts from so long before are read too.")] = 3600,
    into: Annotated[
        str | None, typer.Option(help="Where gold with other figures is computed; else for once.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    master: MasterOption = "local[2]",
    address: AddressOption = None,
    conf: ConfOption = None,
) -> None:
    """Try rules on the past: incidents found, missed and false, how soon, and how many notices."""
    from rich.console import Console

    from pipelines.backtest import report, truths
    from pipelines.backtest.rule_sets import tried_of
    from pipelines.backtest.run import backtest as tried_on
    from pipelines.backtest.run import golds_of
    from pipelines.base.settings import MS_US, SECOND_US
    from pipelines.cycles.replaying import evaluation_of
    from pipelines.lake.lake import Lake

    home = Lake.at(lake)
    over = _range(begin, end, grace_s)
    if warm_up_s < 0:
        raise ConfigError("--warm-up-s", warm_up_s, "seconds, 0 or more")
    own = evaluation_of(home)
    tried = tried_of(rules, own)
    home.table(home.bronze("shipments"))  # A lake without facts is refused before anything else.
    given = None if truth is None else truths.from_file(truth)
    incidents = truths.planted(home, over.begin_us, over.end_us) if given is None else given

    def job() -> Job:
        from pipelines.cycles.driver import on_spark
        from pipelines.lake.session import open_session

        return on_spark(open_session(master, address=address, conf=spark_settings_of(conf)))

    with tempfile.TemporaryDirectory(prefix="tidemark-backtest-") as folder:
        outcome = tried_on(
            home,
            tried,
            incidents,
            over,
            golds=golds_of(home, tried, over, into=into or folder, job=job, say=_say),
            every_us=own.slide_ms * MS_US,
            warm_up_us=warm_up_s * SECOND_US,
            say=_say,
        )
    if not outcome.groups:
        _say(f"no facts of any group between {begin} and {end} in {home.root}")
    if given is not None and not given:
        _say(f"no incident is named in {truth}: nothing can be found or missed")
    _say_limits(outcome, over)
    if as_json:
        typer.echo(report.as_json(outcome))
        return
    Console(width=None if sys.stdout.isatty() else REPORT_WIDTH).print(report.as_table(outcome))


def _say_limits(outcome: Outcome, over: Range) -> None:
    """What a reader of the figures has to know of the range."""
    if outcome.silent:
        _say(f"no facts in this range of groups with incidents: {', '.join(outcome.silent)}")
    if outcome.over != over:
        _say("tried up to where gold ends")


def _range(begin: str, end: str, grace_s: int) -> Range:
    from pipelines.backtest.scoring import Range
    from pipelines.base.settings import SECOND_US

    from_us, to_us = given_us("--from", begin), given_us("--to", end)
    if from_us >= to_us:
        raise ConfigError("--to", end, f"a moment after --from {begin}")
    if grace_s < 0:
        raise ConfigError("--grace-s", grace_s, "seconds, 0 or more")
    return Range(from_us, to_us, grace_s * SECOND_US)


def _say(line: str) -> None:
    """Beside the answer, which a program may read."""
    typer.echo(line, err=True)
