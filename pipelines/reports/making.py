"""Produces a report's page and PDF from its notebook, using papermill and Chromium.

Place in the walk: a job or a command → files and a row on the `Shelf`. The notebook runs in a
process of its own, and is kept beside the page, so that whoever doubts a figure can run it again.
Without a Chromium there is no PDF, and that is said: any browser prints the page.

Invariant: a report about a window is made once, unless somebody asks for it again. From the
recorded cut it has the same numbers: counted anew, or, where gold of that cut is gone, the recorded
ones, and the page says so. From a newer cut it says what has changed. One process at a time makes a
report of one name.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.foundation.errors import LakeError
from pipelines.base.time_units import utc_text
from pipelines.lab.lab import KERNEL, lab_environment, write_jupyter
from pipelines.lake.lease import acquire
from pipelines.reading.reading import OpenTables
from pipelines.reports.comparing import revised
from pipelines.reports.cuts import Cut, covers, moment_of_cut, newest_cut
from pipelines.reports.notebook import Wanted, rebuilt_from
from pipelines.reports.numbers import Numbers, Verdict, read_json
from pipelines.reports.page import document
from pipelines.reports.shelf import (
    NOTEBOOK_FILE,
    NUMBERS_FILE,
    PAGE_FILE,
    PAPER_FILE,
    ReportRun,
    Shelf,
)
from pipelines.reports.windows import Window
from provision.places import NOTEBOOKS

NOTEBOOK: Final = NOTEBOOKS / "reports" / "lag.ipynb"
BROWSER: Final = "TIDEMARK_CHROMIUM"
"""The variable that names a browser that is not on PATH."""
_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_DRAFT: Final = ".making-"
PRINT_S: Final = 120
NAMED_MAX: Final = 20
"""How many runs the audit names; the others are counted."""
_SAID_CHARS_MAX: Final = 600
_PIECES: Final = """{%- for cell in nb.cells if cell.cell_type == "code" -%}
{%- for output in cell.outputs if "data" in output and "text/html" in output.data -%}
{{ output.data["text/html"] }}
{% endfor -%}{%- endfor -%}"""


class From(StrEnum):
    """The cut it is made from."""

    NEW = "new"
    """What is known now; a report that is there is not made again."""
    RECORDED = "recorded"
    """The cut of the run that is named, else of the newest run about the window."""
    NEWEST = "newest"
    """What is known now, whether a report is there or not."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A report that somebody wants."""

    window: Window
    cut: From = From.NEW
    recorded: Cut | None = None
    """With RECORDED, that of a run which is not the newest one about the window."""
    number: int = 0
    """Of that run; 0: none is named."""
    objectives: str = ""
    pages: str = ""
    """Address of the dashboard, for links."""
    master: str = "local[2]"
    address: str = ""
    conf: dict[str, str] = field(default_factory=dict)

    @property
    def report(self) -> str:
        """Its name."""
        return f"lag-{self.window.period.value}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What making a report comes to."""

    last: ReportRun | None
    """The newest run about the window."""
    is_there: bool
    """Then `last` is the answer, and nothing is made."""
    cut: Cut
    earlier: Sequence[ReportRun] = ()
    """The runs from this cut: the one that is named first, then the newest."""
    kept: ReportRun | None = None
    """The first of them whose numbers are kept."""
    is_gone: bool = False
    """Gold of the cut is not there any more: the numbers are those of `kept`."""

    @property
    def number(self) -> int:
        """Of the run that is made, or there."""
        return (self.last.number if self.last else 0) + (not self.is_there)


Noting = Callable[[str, str, str], object]
"""Told of a change before it is there: what is done, to what, and in detail."""


def plan(shelf: Shelf, wish: Wish) -> Plan:
    """What `make` would do now. Raises LakeError when the report cannot be made."""
    last = shelf.newest(wish.report, wish.window.name)
    if last is not None and wish.cut is From.NEW and (shelf.place(last) / PAGE_FILE).exists():
        return Plan(last, is_there=True, cut=last.cut)
    cut = _cut(shelf, wish, last)
    earlier = _earlier(shelf, wish, cut)
    kept = next((one for one in earlier if shelf.kept_numbers(one) is not None), None)
    is_gone = False
    try:
        moment_of_cut(shelf.lake, cut)  # Told at once when it is gone, not after a minute.
    except LakeError as error:
        if kept is None:
            raise LakeError(f"{error}; and no numbers of this cut are kept") from error
        is_gone = True
    return Plan(last, is_there=False, cut=cut, earlier=earlier, kept=kept, is_gone=is_gone)


def make(shelf: Shelf, wish: Wish, *, note: Noting | None = None) -> tuple[ReportRun, bool]:
    """The report, and whether it was made now. Raises LakeError, LeaseHeld, ConfigError."""
    if shelf.newest(wish.report, wish.window.name) is None:
        newest_cut(shelf.lake, time.time_ns() // 1_000)  # Told before anything is written there.
    with acquire(shelf.lake, f"report-{wish.report}"):
        planned = plan(shelf, wish)
        if planned.is_there and planned.last is not None:
            return planned.last, False
        home = shelf.folder / wish.report
        home.mkdir(parents=True, exist_ok=True)
        for left in home.glob(f"{_DRAFT}*"):  # By one who was killed: the lease is ours now.
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=_DRAFT, dir=home) as folder:
            made = Path(folder) / "made"
            made.mkdir()
            run = _made(shelf, wish, planned, folder=made)
            if note is not None:
                note("make", f"report:{run.name}", _detail(shelf, run, planned))
            shelf.add(run, made)
        tidy(shelf, datetime.now(UTC), note=note)
    return run, True


def tidy(shelf: Shelf, now: datetime, *, note: Noting | None = None) -> int:
    """Remove files whose days are over; how many runs lost theirs."""
    outdated = [run.name for run in shelf.outdated(now)]
    if outdated and note is not None:
        more = f" and {len(outdated) - NAMED_MAX:,} more" if len(outdated) > NAMED_MAX else ""
        named = f"{', '.join(outdated[:NAMED_MAX])}{more}"
        note("tidy", "reports", f"files of {named}, of {shelf.lake.root}")
    return shelf.tidy(now)


def _detail(shelf: Shelf, run: ReportRun, planned: Plan) -> str:
    way = (
        f", from the numbers of run {planned.kept.number}"
        if planned.is_gone and planned.kept
        else ""
    )
    return f"of {shelf.lake.root}, cycle {run.cycle} of run {run.run_id}{way}; numbers {run.digest}"


def _cut(shelf: Shelf, wish: Wish, last: ReportRun | None) -> Cut:
    if wish.cut is From.RECORDED and wish.recorded is not None:
        return wish.recorded
    if last is not None and wish.cut is not From.NEWEST:
        return last.cut
    return newest_cut(shelf.lake, time.time_ns() // 1_000)


def _earlier(shelf: Shelf, wish: Wish, cut: Cut) -> list[ReportRun]:
    found = shelf.runs(report=wish.report, window=wish.window.name)
    return sorted(
        (one for one in found if one.cut == cut), key=lambda one: one.number != wish.number
    )


def _made(shelf: Shelf, wish: Wish, planned: Plan, *, folder: Path) -> ReportRun:
    began_s = time.monotonic()
    cut, last, kept = planned.cut, planned.last, planned.kept
    number = planned.number
    before = None if last is None else shelf.place(last) / NUMBERS_FILE
    wanted = Wanted(
        lake=shelf.lake.root,
        period=wish.window.period.value,
        begin=utc_text(wish.window.begin),
        end=utc_text(wish.window.end),
        zone=wish.window.zone,
        run_id=cut.run_id,
        cycle=cut.cycle,
        told_at_us=cut.told_at_us,
        objectives=wish.objectives and str(Path(wish.objectives).absolute()),
        numbers=str(folder / NUMBERS_FILE),
        before=str(before) if before is not None and before.exists() else "",
        recorded="" if kept is None else str(shelf.place(kept) / NUMBERS_FILE),
        recorded_at="" if kept is None else utc_text(kept.made_at),
        is_gone=planned.is_gone,
        number=number,
        pages=wish.pages,
        master=wish.master,
        address=wish.address,
        conf=json.dumps(wish.conf),
    )
    run_notebook(shelf, wanted, folder)
    numbers = read_json((folder / NUMBERS_FILE).read_bytes())
    if kept is None and planned.earlier:
        _check_same(shelf, planned.earlier[0], numbers)
    page = document(f"Lag report: {numbers.title}", [pieces_of(folder / NOTEBOOK_FILE)])
    (folder / PAGE_FILE).write_text(page, encoding="utf-8", errors="replace")
    return ReportRun(
        report=wish.report,
        window=wish.window.name,
        number=number,
        period=wish.window.period.value,
        begin=wish.window.begin,
        end=wish.window.end,
        zone=wish.window.zone,
        run_id=cut.run_id,
        cycle=cut.cycle,
        told_at_us=cut.told_at_us,
        digest=numbers.digest,
        headline=numbers.headline,
        groups=len(numbers.groups),
        missed=numbers.count(Verdict.MISSED),
        unclear=numbers.count(Verdict.UNCLEAR),
        revised=_changed(wanted.before, last, numbers, number),
        no_paper=printed(folder / PAGE_FILE, folder / PAPER_FILE),
        made_at=datetime.now(UTC),
        took_ms=round(1000 * (time.monotonic() - began_s)),
        rebuilt=rebuilt_from(wanted.recorded_at) if planned.is_gone else "",
    )


def _check_same(shelf: Shelf, earlier: ReportRun, numbers: Numbers) -> None:
    """Refuse numbers that lack what was dropped, where no file has it."""
    checks_from = OpenTables(shelf.lake).oldest_day("dq_results")
    if numbers.digest != earlier.digest and not covers(checks_from, numbers):
        raise LakeError(
            f"the numbers of {earlier.name} cannot be made again: outcomes of checks of "
            f"{numbers.title} are not kept any more, and its files are gone; --newest makes the "
            "report from what is known now"
        )


def _changed(before: str, last: ReportRun | None, numbers: Numbers, number: int) -> str:
    if before:
        return revised(read_json(Path(before).read_bytes()), numbers, number)
    if last is None or last.digest == numbers.digest:
        return ""
    return "Revised: the numbers are not those of the run before, whose files are gone."


_ERROR: Final = re.compile(r"(?:\w+\.)*(?P<name>\w+(?:Error|Exception)): (?P<text>.+)")
_OURS: Final = ("LakeError", "ConfigError")
"""Errors whose text is a sentence already."""


def run_notebook(shelf: Shelf, wanted: Wanted, folder: Path) -> None:
    """Run the notebook into `folder`; LakeError with what its failing cell said."""
    jupyter = folder.parent / "jupyter"
    write_jupyter(jupyter)
    parameters = folder.parent / "parameters.yaml"
    document = {"PARAMETERS": msgspec.to_builtins(wanted)}
    parameters.write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML.
    command = [
        *(sys.executable, "-m", "papermill", str(NOTEBOOK), str(folder / NOTEBOOK_FILE)),
        *("-f", str(parameters), "-k", KERNEL, "--no-progress-bar", "--cwd", str(folder.parent)),
    ]
    done = subprocess.run(
        command,
        env=lab_environment(jupyter, shelf.lake),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        said = said_by(done.stderr)[:_SAID_CHARS_MAX]
        raise LakeError(f"the notebook of the report failed: {said or 'it said nothing'}")


def said_by(output: str) -> str:
    """What a notebook's report of a failing cell says: the last error in it, ours without its
    class; without any, its last line. Frames of Java may stand behind it.
    """
    lines = [line.strip() for line in _plain(output).splitlines() if line.strip()]
    errors = [found for line in lines if (found := _ERROR.match(line))]
    if not errors:
        return lines[-1] if lines else ""
    last = errors[-1]
    return last["text"] if last["name"] in _OURS else last[0]


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def pieces_of(notebook: Path) -> str:
    """What the cells of a notebook that was run have shown, as HTML."""
    import nbformat  # noqa: PLC0415 - half a second, in a process that mostly waits
    from nbconvert.exporters import TemplateExporter  # noqa: PLC0415

    exporter: Any = TemplateExporter(raw_template=_PIECES)  # type: ignore[no-untyped-call]
    executed: Any = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    body, _ = exporter.from_notebook_node(executed)
    return str(body)


def printed(page: Path, paper: Path) -> str:
    """Print a page as PDF; why that was not done, or empty."""
    browser = os.environ.get(BROWSER) or next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        return (
            "no PDF: there is no Chromium here (Debian: `apt install chromium`, or name one in "
            f"{BROWSER}); any browser prints {PAGE_FILE}"
        )
    with tempfile.TemporaryDirectory(prefix="tidemark-print-") as profile:
        command = [
            *(browser, "--headless", "--disable-gpu", "--no-first-run", "--disable-sync"),
            *("--disable-background-networking", "--disable-component-update"),
            *(f"--user-data-dir={profile}", "--no-pdf-header-footer", f"--print-to-pdf={paper}"),
            # In a container everybody is root, whom Chromium's sandbox refuses; the page is ours.
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            page.as_uri(),
        ]
        try:
            subprocess.run(command, capture_output=True, timeout=PRINT_S, check=True)
        except (OSError, subprocess.SubprocessError) as error:
            paper.unlink(missing_ok=True)
            return f"no PDF: {browser} did not print ({type(error).__name__})"
    if not paper.exists():
        return f"no PDF: {browser} wrote none"
    return ""
