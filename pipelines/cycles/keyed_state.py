"""Persists step state between cycles as full copies and incremental differences.

Place in the walk: an executor loads the state of its bucket, computes, and saves what changed; the
driver records the files' names with the cycle. A cycle that is repeated starts from the files of
the one before, which are never changed. A file holds the carried tables of one bucket: whole, or
only the rows that differ, with their numbers; a chain begins with a full one. It is recorded as
NAME#SUM, and other bytes are damage; one of an earlier version has a name alone.

Invariant: what is loaded equals what was saved. Absent on purpose: deletion of old files, and keys:
rows are known by their numbers.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from pipelines.lake.data_files import DataFiles, understood
from pipelines.lake.schemas import read_stream, write_stream
from pipelines.marts.computing import Computed, means_the_same
from pipelines.marts.keys import overlaid
from pipelines.marts.mart import Positions, is_fleeting

CHAIN_MAX: Final = 20
"""Files of a chain at most: a longer one would cost more to load than a full copy to write."""

COMPRESSION: Final = "lz4"
"""Of fleeting tables: the figures of windows shrink to a tenth in the time that copying takes."""

Tables = dict[str, dict[str, pa.Table]]
"""Per step, its carried tables by name."""

_SUM: Final = "#"
"""Between name and sum of a file that is recorded."""

_Part = tuple[str, str, Positions | None, pa.Table]
"""Step, table, and its rows: all of them, or those in the places named."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A table of a file: its rows, and their places where they are only those that differ."""

    address: str
    rows: pa.Buffer
    positions: pa.Buffer


class StateFiles:
    """The state's files of one bucket."""

    def __init__(self, files: DataFiles, folder: str) -> None:
        self._files = files
        self._folder = folder

    def load(self, chain: Sequence[str]) -> Tables:
        """The state, from the files of a chain, oldest first; none: the beginning."""
        parts: dict[tuple[str, str], list[_Held]] = {}
        for recorded in chain:
            data = read_recorded(self._files, self._folder, recorded)
            address = f"{self._folder}/{file_of(recorded)}"
            with understood(address):
                for step, table, start, middle, end in _index(data):
                    held = parts.setdefault((step, table), [])
                    if middle == end:
                        held.clear()  # All of it: what came before is not even unpacked.
                    elif not held:
                        raise LookupError(f"changes of {table} to nothing")
                    held.append(_Held(address, data[start:middle], data[middle:end]))
        state: Tables = {}
        for (step, table), (whole, *changes) in parts.items():
            with understood(whole.address):
                rows = read_stream(whole.rows)
            for change in changes:
                with understood(change.address):
                    rows = overlaid(rows, _positions(change.positions), read_stream(change.rows))
            state.setdefault(step, {})[table] = rows
        return state

    def save(
        self, chain: Sequence[str], state: Tables, done: Computed, *, cycle: int
    ) -> tuple[str, ...]:
        """Write what a cycle has changed of the `state` that was loaded from `chain`; returns the
        chain that stands for the new one. Nothing changed, nothing written. A table whose columns
        are others than before, or have other words, is written as a whole.
        """
        is_full = not chain or len(chain) >= CHAIN_MAX
        parts: list[_Part] = []
        for step, carried in ({**state, **done.state} if is_full else done.state).items():
            for table, rows in carried.items():
                before = state.get(step, {}).get(table)
                if is_full or before is None or not means_the_same(before, rows):
                    parts.append((step, table, None, rows))
                elif before is not rows:
                    positions = done.touched.get(step, {}).get(table)
                    parts.append(_smallest(step, table, positions, rows))
        if not parts or not done.state:
            return tuple(chain)
        name = f"{cycle:012d}-{uuid.uuid4().hex[:12]}.state"
        its_sum = self._files.write_by(f"{self._folder}/{name}", partial(_pack, parts))
        recorded = f"{name}{_SUM}{its_sum:08x}"
        return (recorded,) if is_full else (*chain, recorded)


def file_of(recorded: str) -> str:
    """The name of a file of the state, as it is recorded in a chain."""
    return recorded.partition(_SUM)[0]


def read_recorded(files: DataFiles, folder: str, recorded: str) -> pa.Buffer:
    """The bytes of a file of the state. LakeError when they are not those that were written."""
    address = f"{folder}/{file_of(recorded)}"
    data, digest = files.read(address), recorded.partition(_SUM)[2]
    with understood(address):
        if digest:
            files.require_sum(address, data, digest)
    return data


def _smallest(step: str, table: str, positions: Positions | None, rows: pa.Table) -> _Part:
    """The whole table, or its rows that differ where these are fewer than half."""
    if positions is None or 2 * len(positions) > rows.num_rows:
        return step, table, None, rows
    return step, table, positions, rows.take(pa.array(positions))


def _pack(parts: Sequence[_Part], sink: pa.NativeFile) -> None:
    """One file of several tables: Arrow streams behind each other, and an index of them."""
    index = []
    for step, table, positions, rows in parts:
        start = sink.tell()
        write_stream(sink, rows, compression=COMPRESSION if is_fleeting(rows.schema) else None)
        middle = sink.tell()
        if positions is not None:
            write_stream(sink, pa.table({"position": positions}))
        index.append([step, table, start, middle, sink.tell()])
    listed = json.dumps(index).encode()
    sink.write(listed)
    sink.write(len(listed).to_bytes(8, "big"))


def _index(data: pa.Buffer) -> list[tuple[str, str, int, int, int]]:
    """Of each table in a file: step and name, where its rows begin, where they end and the places
    of those that differ begin, and where these end.
    """
    length = int.from_bytes(bytes(data[-8:]), "big")
    return [tuple(one) for one in json.loads(bytes(data[-8 - length : -8]))]


def _positions(data: pa.Buffer) -> Positions:
    return np.asarray(read_stream(data)["position"])
