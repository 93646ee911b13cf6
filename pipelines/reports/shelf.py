"""Stores finished reports as files, each with a row in the Delta table `reports`.

Place in the walk: `making` adds to it, `tidemark reports` and pages ask it. A run is named
`REPORT/WINDOW/NUMBER`, as lag-daily/20260301T000000Z-86400s/1; a re-run has the next number. Files
lie in a folder of that name, below the lake on a disk, else in the home folder, for so many days as
their period deserves; rows are kept as gold is, with the numbers: gold may be recomputed, and what
it said then is known from there alone. Invariant: a row is written when its files are whole, and
never changed. Absent on purpose: Spark.
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError

from engine.foundation.errors import ConfigError, LakeError
from pipelines.base.time_units import micros
from pipelines.database.database import home_folder
from pipelines.lake.lake import Lake, first_line, sql_moment, sql_over, sql_text, with_declared
from pipelines.lake.schemas import arrow_schema
from pipelines.lake.table_writes import add_declared_columns, append, shorten_log
from pipelines.reading.catalogue import REPORTS
from pipelines.reports.cuts import Cut
from pipelines.reports.numbers import Numbers, read_json
from pipelines.reports.windows import Period, Window

FOLDER: Final = "reports"
NUMBERS_FILE: Final = "numbers.json"
PAGE_FILE: Final = "report.html"
PAPER_FILE: Final = "report.pdf"
NOTEBOOK_FILE: Final = "report.ipynb"
DAYS_KEPT: Final = {
    Period.HOURLY: 14,
    Period.DAILY: 400,
    Period.WEEKLY: 1_200,
    Period.CUSTOM: 90,
}
"""Days that files stay after they were made, but for the numbers; a row stays as long as gold keeps
its day."""
SHOWN_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class ReportRun:
    """One run of a report, as its row has it."""

    report: str
    window: str
    number: int
    period: str
    begin: datetime
    end: datetime
    zone: str
    run_id: str
    cycle: int
    told_at_us: int
    digest: str
    headline: str
    groups: int
    missed: int
    unclear: int
    revised: str
    """How it differs from the run before it; empty: it is the first one, or the same."""
    no_paper: str
    """Why there is no PDF; empty: there is one."""
    made_at: datetime
    took_ms: int
    rebuilt: str = ""
    """That its numbers were not counted anew, and why; empty: they were, or it is of a version that
    did not note it."""

    @property
    def name(self) -> str:
        """The name that people and addresses use."""
        return f"{self.report}/{self.window}/{self.number}"

    @property
    def cut(self) -> Cut:
        """What it was made from."""
        return Cut(self.run_id, self.cycle, self.told_at_us)

    @property
    def of_window(self) -> Window:
        """What it is about."""
        return Window(Period(self.period), self.begin, self.end, self.zone)


class Shelf:
    """The reports of one lake."""

    def __init__(self, lake: Lake, folder: Path | None = None) -> None:
        """folder: of files; None: the lake's own, or one in the home folder."""
        self.lake = lake
        self.folder = folder or _folder_of(lake)
        self._address = lake.gold(REPORTS.name)

    def runs(self, *, report: str | None = None, window: str | None = None) -> list[ReportRun]:
        """Runs, the newest period first, and of a period the newest run; SHOWN_MAX at most."""
        wanted = [
            f"{name} = {sql_text(value)}"
            for name, value in (("report", report), ('"window"', window))
            if value is not None
        ]
        found = self._asked(
            f"SELECT {_NAMES} FROM rows_of WHERE {' AND '.join(wanted) or 'true'} "  # noqa: S608
            f"ORDER BY {_ORDER} LIMIT {SHOWN_MAX}"
        )
        return [_run(row) for row in found]

    def _asked(self, sql: str) -> list[dict[str, Any]]:
        if not self.lake.exists(self._address):
            return []
        table = self.lake.table(self._address)
        rows = with_declared(table, "rows_of", REPORTS.columns)
        found: list[dict[str, Any]] = sql_over(
            {"rows_of": table}, sql.replace("FROM rows_of", f"FROM {rows}", 1), what=self._address
        ).to_pylist()
        return found

    def listed(
        self, *, period: str = "", text: str = "", skip: int = 0, most: int = SHOWN_MAX
    ) -> tuple[list[ReportRun], int]:
        """Runs of a kind of period whose name or sentence holds a text, in the same order from
        `skip` on; and how many there are of them."""
        wanted = [f"period = {sql_text(period)}"] if period else []
        if text:
            name = "concat(report, '/', \"window\", '/', number, ' ', headline)"
            wanted.append(f"strpos(lower({name}), lower({sql_text(text)})) > 0")
        such = f"FROM rows_of WHERE {' AND '.join(wanted) or 'true'}"
        counted = self._asked(f"SELECT count(*) AS found {such}")
        rows = self._asked(f"SELECT {_NAMES} {such} ORDER BY {_ORDER} LIMIT {most} OFFSET {skip}")
        return [_run(row) for row in rows], counted[0]["found"] if counted else 0

    def newest(self, report: str, window: str) -> ReportRun | None:
        """The newest run of a report about a window."""
        return next(iter(self.runs(report=report, window=window)), None)

    def named(self, name: str) -> ReportRun:
        """A run by its name; without a number the newest. ConfigError for none."""
        report, _, rest = name.partition("/")
        window, _, number = rest.partition("/")
        found = self.runs(report=report, window=window) if window else self.runs(report=report)
        chosen = [one for one in found if not number or str(one.number) == number]
        if not chosen:
            raise ConfigError("report", name, "one that `tidemark reports list` names")
        return chosen[0]

    def place(self, run: ReportRun) -> Path:
        """The folder of its files."""
        return self.folder / run.report / run.window / str(run.number)

    def file(self, run: ReportRun, name: str) -> Path:
        """A file of a run; LakeError when it is not there any more."""
        file = self.place(run) / name
        if not file.exists():
            days = DAYS_KEPT[Period(run.period)]
            raise LakeError(
                f"{file} is not there: files of {run.period} reports are kept for {days} days; "
                f"`tidemark reports run --lake {self.lake.root} --again {run.name}` makes them "
                "again from the same cut"
            )
        return file

    def numbers(self, run: ReportRun) -> Numbers:
        """Its numbers. LakeError when they are gone or cannot be read."""
        file = self.file(run, NUMBERS_FILE)
        try:
            return read_json(file.read_bytes())
        except (OSError, msgspec.DecodeError) as error:
            raise LakeError(f"{file} cannot be read ({first_line(error)})") from error

    def kept_numbers(self, run: ReportRun) -> Numbers | None:
        """Its numbers, if they are there and those that its row is about."""
        try:
            numbers = self.numbers(run)
        except LakeError:
            return None
        return numbers if numbers.digest == run.digest else None

    def add(self, run: ReportRun, made: Path) -> None:
        """Take the files that lie in a folder, and write the row. LakeError."""
        place = self.place(run)
        shutil.rmtree(place, ignore_errors=True)  # Of a run that was killed before its row.
        place.parent.mkdir(parents=True, exist_ok=True)
        made.rename(place)
        try:
            self._create()
            add_declared_columns(self.lake, self._address, REPORTS.columns)
            schema = arrow_schema(REPORTS.columns)
            row = _row(run)
            arrays = [pa.array([row[one.name]], one.type) for one in schema]
            append(self.lake, self._address, pa.Table.from_arrays(arrays, schema=schema))
        except (DeltaError, OSError) as error:
            raise LakeError(f"{self._address} takes no row ({first_line(error)})") from error
        shorten_log(self.lake, self._address)

    def outdated(self, now: datetime) -> list[ReportRun]:
        """Runs whose days are over and that have files still, the newest period first."""
        old = " OR ".join(
            f"(period = {sql_text(period)} AND "
            f"made_at < {sql_moment(micros(now - timedelta(days=days)))})"
            for period, days in DAYS_KEPT.items()
        )
        rows = self._asked(f"SELECT {_NAMES} FROM rows_of WHERE {old} ORDER BY {_ORDER}")  # noqa: S608
        return [run for run in map(_run, rows) if self._outlived(run)]

    def tidy(self, now: datetime) -> int:
        """Remove files whose days are over, but for the numbers; how many runs lost theirs."""
        outdated = self.outdated(now)
        for run in outdated:
            for file in self._outlived(run):
                file.unlink(missing_ok=True)
        return len(outdated)

    def _outlived(self, run: ReportRun) -> list[Path]:
        place = self.place(run)
        if not place.is_dir():
            return []
        return sorted(file for file in place.iterdir() if file.name != NUMBERS_FILE)

    def _create(self) -> None:
        DeltaTable.create(
            self._address,
            schema=Schema.from_arrow(arrow_schema(REPORTS.columns)),
            mode="ignore",
            partition_by=["observed_date"],
            name=REPORTS.name,
            description=f"One row per {REPORTS.grain}.",
            storage_options=self.lake.storage_options or None,
        )


def _folder_of(lake: Lake) -> Path:
    if "://" not in lake.root:
        return Path(lake.root) / FOLDER
    name = hashlib.sha256(lake.root.encode()).hexdigest()[:12]
    return home_folder() / FOLDER / name


_NAMES: Final = ", ".join(f'"{column.name}"' for column in REPORTS.columns)
_ORDER: Final = 'observed_at DESC, report, "window", number DESC'


def _row(run: ReportRun) -> dict[str, Any]:
    values = {field.name: getattr(run, field.name) for field in fields(run)}
    del values["end"], values["begin"]
    texts = {
        name: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for name, value in values.items()
    }
    return texts | {
        "observed_at": run.end,
        "began_at": run.begin,
        "observed_date": run.end.date(),
    }


def _run(row: dict[str, Any]) -> ReportRun:
    values = {one.name: row[one.name] for one in fields(ReportRun) if one.name in row}
    values["rebuilt"] = values["rebuilt"] or ""
    return ReportRun(**values, begin=row["began_at"], end=row["observed_at"])
