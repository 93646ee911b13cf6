"""Maintains a lake's tables in periodic rounds and reports outstanding work.

Place in the walk: `tidemark lake maintain` and `status`, and the process beside `tidemark pipeline
run`. Invariant: one a lake, by its lease; a table that fails is reported and passed over. What a
round did is noted beside the lake. Absent on purpose: decisions (`plan`), reading of data files.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from rich.table import Table

from engine.foundation.errors import LakeError
from pipelines.lake.lake import Lake, first_line
from pipelines.lake.small_files import SmallFiles
from pipelines.lake.table_writes import shorten_log
from pipelines.upkeep.plan import TableFacts, Work, plan
from pipelines.upkeep.settings import TIERS_BYTES, Upkeep
from pipelines.upkeep.table_facts import LakeTable, look, tables_of
from pipelines.upkeep.work import FULL_VACUUM_EACH, Step, carry_out, tidy_log, vacuum

ROLE: Final = "maintainer"
"""The lease a maintainer holds."""

VACUUM_EACH_S: Final = 3600.0
"""Replaced files are looked for so often in each table."""

_FOLDER: Final = "upkeep"
_COLUMNS: Final = (
    "table",
    "writer",
    "version",
    "files",
    "today",
    "small",
    "bytes",
    "rows",
    "days",
    "last upkeep",
    "next",
)
_KIB: Final = 1024.0


@dataclass(frozen=True, slots=True)
class Note:
    """What is remembered of a table's upkeep."""

    at: datetime | None = None
    """When something was last done to it."""
    did: str = ""
    vacuumed: datetime | None = None
    """When replaced files were last looked for."""
    vacuums: int = 0


class Maintainer:
    """Tends the tables of one lake. Whoever runs it holds the lease."""

    def __init__(self, lake: Lake, upkeep: Upkeep, say: Callable[[str], None]) -> None:
        self._lake = lake
        self._upkeep = upkeep
        self._say = say
        self._fruitless: dict[str, tuple[int, Work]] = {}
        """Table -> files and work of a round that made no file fewer: the same is not tried again.
        A file that fits beside no neighbour would be."""

    def round(self, now: datetime, wanted: Callable[[], bool] = lambda: True) -> int:
        """Tend every table once; return how many steps were done. LakeError without a lake."""
        done = 0
        for table in tables_of(self._lake):
            if not wanted():
                break
            try:
                done += self._tend(table, now)
            except LakeError as error:
                self._say(f"{table.name}: {first_line(error)}")
        return done

    def _tend(self, table: LakeTable, now: datetime) -> int:
        handle, facts = look(self._lake, table)
        work = plan(facts, self._upkeep, now)
        if work.refused or work.vacuum_hours is None:
            return 0
        if said := str(shorten_log(self._lake, table.address)):
            self._say(f"{table.name}: {said}")
        note = noted(self._lake, table.name)
        steps: list[Step] = []
        if not work.is_empty and self._fruitless.get(table.name) != (facts.files, work):
            steps = list(carry_out(self._lake, facts, work, self._upkeep))
            handle = self._lake.table(table.address)
            went_well = not any(step.failed for step in steps)
            if went_well and len(handle.file_uris()) >= facts.files and not work.drops:
                self._fruitless[table.name] = (facts.files, work)
        is_due = note.vacuumed is None or (now - note.vacuumed).total_seconds() >= VACUUM_EACH_S
        if is_due:
            full = note.vacuums % FULL_VACUUM_EACH == FULL_VACUUM_EACH - 1
            found = [vacuum(handle, work.vacuum_hours, full=full)]
            if steps or found[0] is not None:
                found.append(tidy_log(self._lake.table(table.address)))
            steps += [step for step in found if step is not None]
        self._remember(table, note, steps, now if is_due else None)
        return sum(not step.failed for step in steps)

    def _remember(
        self, table: LakeTable, note: Note, steps: list[Step], vacuumed: datetime | None
    ) -> None:
        for step in steps:
            self._say(f"{table.name}: {step.text}")
        if not steps and vacuumed is None:
            return
        done = [step.text for step in steps]
        values: dict[str, Any] = {
            "at": datetime.now(UTC).isoformat() if done else _text(note.at),
            "did": "; ".join(done) if done else note.did,
            "vacuumed": _text(vacuumed or note.vacuumed),
            "vacuums": note.vacuums + (vacuumed is not None),
        }
        SmallFiles(self._lake).replace(
            _address(self._lake, table.name), json.dumps(values).encode()
        )


def preview(lake: Lake, upkeep: Upkeep, now: datetime) -> list[tuple[TableFacts | str, Work]]:
    """Every table and what would be done about it; a table that cannot be read, by its sentence."""
    found: list[tuple[TableFacts | str, Work]] = []
    for table in tables_of(lake):
        try:
            _handle, facts = look(lake, table)
        except LakeError as error:
            found.append((table.name, Work(refused=str(error))))
        else:
            found.append((facts, plan(facts, upkeep, now)))
    return found


def noted(lake: Lake, table: str) -> Note:
    """What is remembered of a table's upkeep; a damaged note is none."""
    held = SmallFiles(lake).read(_address(lake, table))
    if held is None:
        return Note()
    try:
        values = json.loads(held.data)
        return Note(
            _moment(values["at"]),
            str(values["did"]),
            _moment(values["vacuumed"]),
            int(values["vacuums"]),
        )
    except (ValueError, KeyError, TypeError):
        return Note()


def _address(lake: Lake, table: str) -> str:
    return f"{lake.state(_FOLDER)}/{table.replace('/', '-')}.json"


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def status_table(lake: Lake, upkeep: Upkeep, now: datetime) -> Table:
    """One row a table. LakeError when there is no lake."""
    table = Table(title=f"lake {lake.root}")
    for column in _COLUMNS:
        is_number = column in ("version", "files", "today", "small", "bytes", "rows")
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for facts, work in preview(lake, upkeep, now):
        if isinstance(facts, str):
            table.add_row(facts, *[""] * (len(_COLUMNS) - 2), str(work))
            continue
        note = noted(lake, facts.name)
        last = "never" if note.at is None else f"{note.at:%Y-%m-%d %H:%M:%S} {note.did}"
        table.add_row(facts.name, *_figures(facts, now), last, str(work))
    return table


def _figures(facts: TableFacts, now: datetime) -> list[str]:
    sizes = [size for one in facts.partitions for size in one.sizes]
    today = [len(one.sizes) for one in facts.partitions if one.day == now.date()]
    rows = [one.rows for one in facts.partitions]
    known = [count for count in rows if count is not None]
    days = sorted(one.day for one in facts.partitions if one.day is not None)
    return [
        facts.writer.value,
        str(facts.version),
        str(len(sizes)),
        str(sum(today)),
        str(sum(size < TIERS_BYTES[0] for size in sizes)),
        readable_bytes(sum(sizes)),
        f"{sum(known):,}" if len(known) == len(rows) else "unknown",
        f"{days[0]} to {days[-1]}" if days else "",
    ]


def readable_bytes(count: int) -> str:
    """1536 as 1.5 KiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < _KIB:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= _KIB
    return f"{size:.1f} TiB"
