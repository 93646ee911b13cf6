"""Functions called by a lag report's notebook.

Place in the walk: papermill → the notebook, which calls `told` with its parameters and shows the
pieces of the page → `making`, which finds numbers and page.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from engine.foundation.errors import ConfigError
from pipelines.alerting.objectives import read_objectives
from pipelines.lake.lake import Lake
from pipelines.reports.comparing import revised
from pipelines.reports.cuts import Cut, as_recorded
from pipelines.reports.gathering import gather
from pipelines.reports.lag_report import lag_report
from pipelines.reports.numbers import Numbers, as_json, read_json
from pipelines.reports.windows import Period, Window


@dataclass(frozen=True, slots=True)
class Report:
    """The numbers, and what is to be said of them."""

    numbers: Numbers
    revised: str
    """How they differ from the run before; empty: they do not."""
    rebuilt: str = ""
    """Says that they are not counted from gold; empty: they are."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The notebook's parameters, as JSON carries them; empty texts: not given."""

    lake: str
    period: str
    begin: str
    """ISO 8601, as `end`."""
    end: str
    zone: str
    run_id: str
    cycle: int
    told_at_us: int
    objectives: str = ""
    """A file."""
    numbers: str = ""
    """Where the numbers are written."""
    before: str = ""
    """The numbers of the run before, of the same window."""
    recorded: str = ""
    """The numbers of an earlier run from the same cut."""
    recorded_at: str = ""
    """When they were kept, ISO 8601."""
    is_gone: bool = False
    """Gold of the cut is not there any more: the numbers are the recorded ones."""
    number: int = 1
    pages: str = ""
    master: str = "local[2]"
    address: str = ""
    conf: str = "{}"
    """Settings of Spark, a JSON object."""

    @property
    def window(self) -> Window:
        """What is reported on."""
        begin, end = (datetime.fromisoformat(one) for one in (self.begin, self.end))
        return Window(Period(self.period), begin, end, self.zone)


def told(parameters: dict[str, object]) -> Report:
    """Gather, count, compare and write. ConfigError for parameters that are none."""
    try:
        wanted = msgspec.convert(parameters, Wanted)
    except msgspec.ValidationError as error:
        raise ConfigError("parameters", "***", str(error)) from None
    recorded = read_json(Path(wanted.recorded).read_bytes()) if wanted.recorded else None
    numbers = recorded if wanted.is_gone and recorded else _counted(wanted, recorded)
    if wanted.numbers:
        Path(wanted.numbers).write_bytes(as_json(numbers))
    rebuilt = rebuilt_from(wanted.recorded_at) if numbers is recorded else ""
    return Report(numbers, _revised(wanted, numbers), rebuilt)


def rebuilt_from(kept_at: str) -> str:
    """The sentence that says that numbers are not counted anew."""
    moment = datetime.fromisoformat(kept_at).astimezone(UTC)
    return (
        f"Rebuilt from the numbers kept on {moment:%d %B %Y %H:%M} UTC: gold no longer holds what "
        "it held at this cut. Objectives are those of then."
    )


def _counted(wanted: Wanted, recorded: Numbers | None) -> Numbers:
    gathered = gather(
        Lake.at(wanted.lake),
        wanted.window,
        Cut(wanted.run_id, wanted.cycle, wanted.told_at_us),
        master=wanted.master,
        address=wanted.address or None,
        conf=json.loads(wanted.conf),
    )
    objectives = read_objectives(Path(wanted.objectives) if wanted.objectives else None)
    numbers = lag_report(gathered, objectives, lake=wanted.lake)
    if recorded is None:
        return numbers
    return as_recorded(numbers, recorded, checks_from=gathered.checks_from)


def _revised(wanted: Wanted, numbers: Numbers) -> str:
    if not wanted.before:
        return ""
    return revised(read_json(Path(wanted.before).read_bytes()), numbers, wanted.number)
