"""Runs SQL over a whole lake as of one moment, with DataFusion or, on request, Spark.

Invariant: both see every gold and bronze table by its own name, cut at the moment of the last
complete cycle; neither writes. Of a table of intervals its name is the newest revision of each, so
that sums count an interval once; `NAME_revisions` has all of them. Absent on purpose: Spark until
it is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl
import pyarrow as pa
from deltalake import QueryBuilder

from engine.foundation.errors import ConfigError
from engine.telemetry.tables import TABLES, Column
from pipelines.lake.lake import first_line, with_declared
from pipelines.marts.mart import GoldTable
from pipelines.reading.catalogue import GOLD_TABLES
from pipelines.reading.moment import Moment
from pipelines.reading.reading import Reading

READING_VERBS: Final = ("select", "with", "values", "explain")
_COMMENTS: Final = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*")|/\*.*?\*/|--[^\n]*""", re.DOTALL)
"""Comments; and, as its group, texts and names, in which nothing is one."""
_TEXTS: Final = re.compile("'(?:[^']|'')*'")
_RAW: Final = "whole_"
_BY_NAME: Final = {table.name: table for table in GOLD_TABLES}
_FACTS: Final = {table.name: table for table in TABLES}
_REVISIONS: Final = "_revisions"
NAMES: Final = (*_BY_NAME, *(table.name for table in TABLES))
"""Of the tables, by which a question opens them."""


def sql_answer(reading: Reading, query: str) -> tuple[pl.DataFrame, str]:
    """(rows, the first table the query names). Raises ConfigError for what is not a reading."""
    text = _COMMENTS.sub(lambda found: found[1] or " ", query).strip().rstrip("; \n")
    words, bare = text.split(None, 1), _TEXTS.sub("''", text)
    if not words or words[0].lower() not in READING_VERBS or ";" in bare:
        raise ConfigError("query", query, "one SELECT")
    named = [name for name in NAMES if re.search(rf"\b{name}({_REVISIONS})?\b", bare)]
    opened = {name: reading.tables.at(name, reading.moment) for name in named}
    present = {name: table for name, table in opened.items() if table is not None}
    if not present:  # A name of a table that is not there may be a column's.
        there = [name for name in NAMES if reading.tables.opened(name) is not None]
        raise ConfigError("query", query, f"a SELECT from one of {', '.join(there)}")
    asked = QueryBuilder()
    for name, table in present.items():
        reading.versions[name] = table.version()
        asked = asked.register(_RAW + name, table)
    try:
        for name, table in present.items():
            seen = _seen(reading.moment, name)
            source = with_declared(table, _RAW + name, _columns(name))
            every = name + _REVISIONS if _is_revised(name) else name
            asked.execute(f"CREATE VIEW {every} AS SELECT * FROM {source} WHERE {seen}")  # noqa: S608
            if every != name:
                asked.execute(f"CREATE VIEW {name} AS {_newest(every)}")
        found = pa.table(asked.execute(text).read_all())
    except Exception as error:
        # delta-rs's reader raises a bare Exception for what goes wrong while rows are read.
        raise ConfigError(
            "query", query, f"SQL that the engine takes: {first_line(error)}"
        ) from error
    return pl.DataFrame(pl.from_arrow(found)), next(iter(present))


def _columns(name: str) -> Sequence[Column]:
    return _BY_NAME[name].columns if name in _BY_NAME else _FACTS[name].columns


def _is_revised(name: str) -> bool:
    return name in _BY_NAME and _BY_NAME[name].revised


def _newest(revisions: str) -> str:
    """SQL for the newest revision of each interval."""
    return (
        f"SELECT every.* FROM {revisions} AS every JOIN (SELECT window_id AS newest_id,"  # noqa: S608
        f" max(revision) AS newest_revision FROM {revisions} GROUP BY window_id) AS newest"
        " ON every.window_id = newest.newest_id AND every.revision = newest.newest_revision"
    )


def _seen(moment: Moment, name: str) -> str:
    return moment.condition(_BY_NAME[name]) if name in _BY_NAME else moment.fact_condition()


def views_in_spark(
    reading: Reading,
    master: str,
    *,
    names: Sequence[str] = NAMES,
    address: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> Any:
    """A Spark session with a view for every table that is there; `address` and `conf` as
    `open_session` takes them."""
    from pipelines.lake.object_store import read_table  # noqa: PLC0415
    from pipelines.lake.session import SQL, open_session  # noqa: PLC0415 - Spark takes seconds to load

    spark = open_session(master, address=address, conf={**SQL, **(conf or {})})
    for name in names:
        if reading.tables.opened(name) is None:
            continue
        table: GoldTable | None = _BY_NAME.get(name)
        moment = reading.moment
        seen = (
            moment.condition(table, time=spark_time)
            if table is not None
            else moment.fact_condition(time=spark_time)
        )
        rows = read_table(spark, reading.tables.lake, reading.tables.address(name))
        every = name + _REVISIONS if _is_revised(name) else name
        rows.where(seen).createOrReplaceTempView(every)
        if every != name:
            spark.sql(_newest(every)).createOrReplaceTempView(name)
    return spark


def spark_time(micros: int) -> str:
    """A moment as a value of Spark's SQL."""
    return f"timestamp_micros({micros})"
