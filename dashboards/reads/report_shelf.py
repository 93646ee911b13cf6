"""Reads finished reports for pages from lake rows and the accompanying files.

Place in the walk: `pipelines.reports` makes them, by Spark; here they are only read.

Invariant: what a request names is looked up among the rows, and a file is found by the row, below
the folder of reports, by its real path: no address leads anywhere else. What is read into this
process is bounded. Absent on purpose: Spark, making, and sending.
"""

from __future__ import annotations

import shlex
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from engine.foundation.errors import ConfigError, LakeError
from pipelines.lake.lake import Lake, first_line
from pipelines.reading.report_names import name_of
from pipelines.reports.numbers import Numbers, read_json
from pipelines.reports.shelf import NUMBERS_FILE, ReportRun, Shelf
from pipelines.reports.windows import Period

REPORTS_PER_PAGE: Final = 20
CHOICES_MAX: Final = 24
"""Runs that are offered to compare with; any other one may be named in the address."""
FILE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Of a file that is served: some hundred times what a week of 300 groups takes."""
NUMBERS_BYTES_MAX: Final = 16 * 1024 * 1024
NUMBERS_KEPT: Final = 48


@dataclass(frozen=True, slots=True)
class Sending:
    """How reports are sent from pages."""

    receivers: Path | None = None
    """The file in which receivers are; None: none are sent from here."""
    pages: str = ""
    """Address of this dashboard, for links in what is sent; empty: none."""


class TooLarge(LakeError):
    """A file is there, and larger than what is served."""


@dataclass(frozen=True, slots=True)
class NumbersRead:
    """The numbers of a run, or why there are none."""

    numbers: Numbers | None
    trouble: str = ""


class ReportShelf:
    """The reports of one lake. Safe for use by several threads."""

    def __init__(self, lake: Lake, folder: Path | None = None) -> None:
        """folder: of the files; None: where `tidemark reports run` leaves them."""
        self.shelf = Shelf(lake, folder)
        """The same, for who has a report sent."""
        own = "" if folder is None else f" --folder {shlex.quote(str(folder))}"
        self.option = f"--lake {shlex.quote(lake.root)}{own}"
        """What a command needs to find the same reports."""
        self._lock = threading.Lock()
        self._numbers: OrderedDict[tuple[str, int, int], Numbers] = OrderedDict()

    @property
    def lake(self) -> Lake:
        """The lake of the reports."""
        return self.shelf.lake

    def page(self, period: str, text: str, number: int) -> tuple[list[ReportRun], int, int]:
        """Runs of a page of the list; how many there are on all pages; and the page that it is: the
        last one, when there are fewer than that."""
        runs, found = self.shelf.listed(
            period=period, text=text, skip=(number - 1) * REPORTS_PER_PAGE, most=REPORTS_PER_PAGE
        )
        pages = max(1, -(-found // REPORTS_PER_PAGE))
        if number <= pages:
            return runs, found, number
        return self.page(period, text, pages)

    def named(self, name: str) -> ReportRun | None:
        """The run of a name; None for what is no name, or the name of none. Raises LakeError."""
        parts = name_of(name)
        if parts is None:
            return None
        runs = self.shelf.runs(report=parts.report, window=parts.window)
        return next((one for one in runs if one.number == parts.number), None)

    def of_period(self, run: ReportRun) -> list[ReportRun]:
        """All runs about the period of one, the newest first."""
        return sound(self.shelf.runs(report=run.report, window=run.window))

    def before(self, run: ReportRun) -> ReportRun | None:
        """The newest run about the period before, if there is one."""
        try:
            window = run.of_window.before.name
        except (ConfigError, ValueError):
            return None
        return next(iter(sound(self.shelf.runs(report=run.report, window=window))), None)

    def others(self, run: ReportRun) -> list[ReportRun]:
        """The newest runs of its kind, to compare it with."""
        runs, _ = self.shelf.listed(period=run.period, most=CHOICES_MAX)
        return [one for one in sound(runs) if one.name != run.name]

    def file(self, run: ReportRun, name: str, *, bytes_max: int = FILE_BYTES_MAX) -> Path:
        """A file of a run. Raises LakeError when it is not there, TooLarge beyond `bytes_max`."""
        if not is_sound(run):
            raise LakeError("a report that is not named as one has no files here")
        self.shelf.file(run, name)  # Says for how long files stay, and how they are made again.
        try:
            home = self.shelf.folder.resolve(strict=True)
            found = (self.shelf.place(run) / name).resolve(strict=True)
            own = home / run.report / run.window / str(run.number) / name
            size = found.stat().st_size
        except (OSError, RuntimeError) as error:
            raise LakeError(f"{name} of {run.name} cannot be read ({first_line(error)})") from error
        if found != own or not found.is_file():
            raise LakeError(f"{name} of {run.name} is a link or no file: it is not followed")
        if size > bytes_max:
            raise TooLarge(
                f"{name} of {run.name} has {size:,} bytes, more than {bytes_max:,}: "
                f"`tidemark reports open {run.name} {self.option}` says where it is"
            )
        return found

    def has(self, run: ReportRun, name: str) -> bool:
        """Is a file of it there to be served?"""
        try:
            self.file(run, name)
        except LakeError:
            return False
        return True

    def numbers(self, run: ReportRun) -> NumbersRead:
        """Its numbers, as far as they are there."""
        try:
            file = self.file(run, NUMBERS_FILE, bytes_max=NUMBERS_BYTES_MAX)
            status = file.stat()
            key = (str(file), status.st_mtime_ns, status.st_size)
            return NumbersRead(self._kept(key) or self._keep(key, read_json(file.read_bytes())))
        except LakeError as error:
            return NumbersRead(None, str(error))
        except (OSError, msgspec.DecodeError) as error:
            return NumbersRead(
                None, f"the numbers of {run.name} cannot be read ({first_line(error)})"
            )

    def _kept(self, key: tuple[str, int, int]) -> Numbers | None:
        with self._lock:
            return self._numbers.get(key)

    def _keep(self, key: tuple[str, int, int], numbers: Numbers) -> Numbers:
        with self._lock:
            self._numbers[key] = numbers
            while len(self._numbers) > NUMBERS_KEPT:
                self._numbers.popitem(last=False)
        return numbers


def is_sound(run: ReportRun) -> bool:
    """Is its row one of ours: named as reports are, of a period that there is?"""
    return name_of(run.name) is not None and run.period in tuple(Period)


def sound(runs: Iterable[ReportRun]) -> list[ReportRun]:
    """Those of them."""
    return [one for one in runs if is_sound(one)]


def period_text(run: ReportRun) -> str:
    """What it is about, in the zone of its days."""
    try:
        return str(run.of_window)
    except (ConfigError, ValueError):
        return f"{run.begin:%Y-%m-%d %H:%M} to {run.end:%Y-%m-%d %H:%M} UTC"
