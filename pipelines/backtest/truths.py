"""Loads known incidents, whether planted by an experiment or recorded by hand.

Place in the walk: the table <lake>/experiment/ground_truth, or a file (CSV, TOML, JSON) →
`scoring`. A row: cluster, group, topic, queue_id, kind, begin, end; a topic or queue that is not
named is any. Invariant: whatever lacks a group, a kind, a begin or an end not before it is an error
that names its row.
"""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from engine.foundation.errors import ConfigError
from engine.telemetry.tables import Column, must
from pipelines.base.time_units import given_us
from pipelines.lake.lake import Lake, sql_moment
from pipelines.lake.schemas import arrow_schema
from pipelines.lake.table_writes import append
from pipelines.marts.columns import CLUSTER, GROUP, INT, STRING, TIMESTAMP

EXPERIMENT_FOLDER: Final = "experiment"
TABLE: Final = "ground_truth"
GROUND_TRUTH: Final = (
    CLUSTER,
    GROUP,
    Column("topic", STRING, "topic; null: any of the group"),
    Column("queue_id", INT, "queue number inside the topic; null: any"),
    must("kind", STRING, "what was done: FROZEN_HEAD, DEAD_CONSUMER, KILL, ..."),
    must("begin", TIMESTAMP, "when it was done"),
    must("end", TIMESTAMP, "when it was undone"),
)
"""The columns of a table of planted incidents, one row an incident."""

FILE_BYTES_MAX: Final = 16 << 20
"""A longer file of incidents is refused."""
_NAMES: Final = tuple(column.name for column in GROUND_TRUTH)
_OPTIONAL: Final = ("cluster", "topic", "queue_id")


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that a rule set should report."""

    begin_us: int
    end_us: int
    group: str
    kind: str
    cluster: str | None = None
    topic: str | None = None
    queue_id: int | None = None
    """None, of all three: whichever."""

    @property
    def place(self) -> str:
        """Where, in words."""
        words = [self.group]
        if self.topic is not None:
            words.append(f"topic {self.topic}")
        if self.queue_id is not None:
            words.append(f"queue {self.queue_id}")
        return " ".join(words)


def oldest_first(incidents: Iterable[Incident]) -> list[Incident]:
    """By begin; those of one moment in an order of their own, whatever is not named."""

    def place(one: Incident) -> tuple[int, int, str]:
        return one.begin_us, one.end_us, repr(one)

    return sorted(incidents, key=place)


def address_of(lake: Lake) -> str:
    """Where a lake's incidents lie."""
    return f"{lake.root}/{EXPERIMENT_FOLDER}/{TABLE}"


def append_incidents(lake: Lake, incidents: Sequence[Incident]) -> None:
    """Write planted incidents down. ConfigError for one without a cluster: the table names it."""
    for one in incidents:
        if one.cluster is None:
            raise ConfigError("cluster", one.cluster, f"the cluster of {one.place}")
    columns = {name: [_value(one, name) for one in incidents] for name in _NAMES}
    schema = arrow_schema(GROUND_TRUTH)
    arrays = [
        pa.array(values, pa.int64()).cast(field.type)
        if pa.types.is_timestamp(field.type)
        else pa.array(values, field.type)
        for values, field in zip(columns.values(), schema, strict=True)
    ]
    append(lake, address_of(lake), pa.table(arrays, schema=schema))


def planted(lake: Lake, begin_us: int, end_us: int) -> list[Incident] | None:
    """A lake's own incidents that have a moment in common with [begin, end], oldest first; None
    when it has no table of them.
    """
    address = address_of(lake)
    if not lake.exists(address):
        return None
    wanted = f'"begin" <= {sql_moment(end_us)} AND "end" >= {sql_moment(begin_us)}'
    rows = lake.rows(address, wanted, GROUND_TRUTH).to_pylist()
    return oldest_first(incident_of(row, f"{address} row {n}") for n, row in enumerate(rows, 1))


def from_file(file: Path) -> list[Incident]:
    """The incidents of a file, by its suffix .csv, .toml or .json, oldest first.

    ConfigError that says which file or row is wrong, and what would be right.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            "--truth", str(file), f"a file that can be read: {error.strerror}"
        ) from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError("--truth", str(file), f"at most {FILE_BYTES_MAX} bytes")
    rows = _rows(data, file)
    return oldest_first(incident_of(row, f"{file.name} row {n}") for n, row in enumerate(rows, 1))


def _rows(data: bytes, file: Path) -> list[Any]:
    try:
        text = data.decode("utf-8")
        match file.suffix.lower():
            case ".csv":
                return list(csv.DictReader(StringIO(text)))
            case ".toml":
                found = tomllib.loads(text)
            case ".json":
                found = json.loads(text)
            case _:
                raise ConfigError("--truth", str(file), "a file named *.csv, *.toml or *.json")
    except (ValueError, csv.Error, RecursionError) as error:
        raise ConfigError("--truth", str(file), f"a file of its kind: {error}") from None
    rows = found.get("incident") if isinstance(found, dict) else found
    if not isinstance(rows, list):
        raise ConfigError(
            "--truth", str(file), "a list of incidents, in TOML [[incident]], in JSON [{...}]"
        )
    return rows


def incident_of(row: Any, where: str) -> Incident:
    """One row's incident; ConfigError that names `where` and what is wrong."""
    if not isinstance(row, Mapping):
        raise ConfigError("incident", row, "an object with group, kind, begin and end", where)
    unknown = sorted(str(name) for name in row if name not in _NAMES)
    if unknown:
        raise ConfigError("incident", ", ".join(unknown), f"only {', '.join(_NAMES)}", where)
    values = {name: value for name, value in row.items() if value is not None and value != ""}
    for name in _NAMES:
        if name not in values and name not in _OPTIONAL:
            raise ConfigError(name, row.get(name), "something in each incident", where)
    for name in ("cluster", "group", "topic", "kind"):
        if not isinstance(values.get(name, ""), str):
            raise ConfigError(name, values[name], "a text", where)
    begin_us, end_us = (given_us(name, values[name], where) for name in ("begin", "end"))
    if end_us < begin_us:
        raise ConfigError(
            "end", values["end"], f"a moment not before begin {values['begin']}", where
        )
    return Incident(
        begin_us,
        end_us,
        values["group"],
        values["kind"],
        cluster=values.get("cluster"),
        topic=values.get("topic"),
        queue_id=_queue_id(values.get("queue_id"), where),
    )


def _queue_id(value: Any, where: str) -> int | None:
    if value is None:
        return None
    text = str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit()):
        raise ConfigError("queue_id", value, "a queue's number, 0 or more", where)
    return int(text)


def _value(one: Incident, name: str) -> Any:
    return getattr(one, f"{name}_us" if name in ("begin", "end") else name)
