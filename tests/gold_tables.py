"""Generates docs/gold-tables.md from what the marts declare.

It has tables, columns, what wakes them and what they carry.

    python -m tests.gold_tables        # write the page anew

Invariant: the page has what the code declares, no more and no less; an architecture test compares
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from engine.telemetry.tables import BY_NAME as BRONZE
from engine.telemetry.tables import Column
from pipelines.marts.declared import marts, steps
from pipelines.marts.mart import ROW_NUMBERS, GoldTable, Mart, Step
from pipelines.reading.catalogue import ALERTS, CHECK_TABLES, DELTA_RS_TABLES, REPORTS

PAGE = Path(__file__).parents[1] / "docs" / "gold-tables.md"
HEAD = """# Gold tables

Written by `python -m tests.gold_tables` from what the marts declare. A time is a moment in UTC,
to the microsecond; the unit of a number is the end of its name (`_ms`, `_us`, `_bytes`,
`_percent`), or it is a count. A column that may be null is null where nothing is known. Every row
names the newest fact that it rests on (`emitter`, `seq`), and lies in the partition of its day
(`observed_date`).
"""
WRITERS = {
    **{table.name: "`tidemark check`, once a run" for table in CHECK_TABLES},
    ALERTS.name: "`tidemark alerts run`, once a change",
    REPORTS.name: "`tidemark reports run`, once a report",
}


def page() -> str:
    """The whole document."""
    computed = marts()
    lines = [HEAD, "## Tables that cycles compute", "", *_listed(one.table for one in computed)]
    lines += ["", "## Tables that others write", "", *_listed(DELTA_RS_TABLES), ""]
    for mart in computed:
        lines += _of_mart(mart)
    for table in DELTA_RS_TABLES:
        lines += [f"## {table.name}", "", *_what(table), f"Written by {WRITERS[table.name]}.", ""]
        lines += [*_columns(table), ""]
    lines += ["## Steps", "", "What several tables start from; none of them is stored.", ""]
    for step in steps():
        if not isinstance(step, Mart):
            lines += [f"### {step.name}", "", *_work(step), ""]
    return "\n".join(lines).rstrip() + "\n"


def _listed(tables: Iterable[GoldTable | None]) -> Iterator[str]:
    yield "| Table | One row |"
    yield "|---|---|"
    for table in tables:
        assert table is not None
        yield f"| [{table.name}](#{table.name}) | {_cell(table.grain)} |"


def _of_mart(mart: Mart) -> Iterator[str]:
    assert mart.table is not None
    yield from (f"## {mart.name}", "", *_what(mart.table), *_work(mart), "", *_columns(mart.table))
    yield ""


def _what(table: GoldTable) -> Iterator[str]:
    key = ", ".join(f"`{name}`" for name in table.key)
    yield f"One row: {table.grain}. Key: {key}."
    if table.revised:
        yield "Rows are revisions of intervals: the highest of a `window_id` is the present truth."
    yield ""


def _work(step: Step) -> Iterator[str]:
    yield f"- Reads {_named(step.reads)}."
    if set(step.woken_by) != set(step.reads):
        yield f"- Is woken by rows of {_named(step.woken_by)}; without any it has nothing to do."
    for name, schema in step.carries.items():
        carried = ", ".join(f"`{column}`" for column in schema.names)
        yield f"- Carries `{name}` from cycle to cycle: {carried}."
    if not step.carries:
        yield "- Carries nothing."


def _named(names: Iterable[str]) -> str:
    tables = {mart.name for mart in marts()}
    said = []
    for name in sorted(names):
        if name == ROW_NUMBERS:
            said.append("the numbers of all facts")
        elif name in tables:
            said.append(f"[{name}](#{name})")
        else:
            said.append(f"bronze `{name}`" if name in BRONZE else f"the step [{name}](#{name})")
    return ", ".join(said)


def _columns(table: GoldTable) -> Iterator[str]:
    yield "| Column | Type | Meaning |"
    yield "|---|---|---|"
    for column in table.columns:
        yield f"| `{column.name}` | {_type(column)} | {_cell(column.meaning)} |"


def _type(column: Column) -> str:
    return f"{column.type.name.lower()}{' or null' if column.nullable else ''}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
