"""Finds each table's new bronze files, which no finished cycle has processed yet.

Place in the walk: the driver, before a plan: it reads the tables' logs and the small rows of
`shipments`, and hands executors names of files. Invariant: every row at or below a shipped horizon
lies in a file known here when that horizon is: a shipment is committed behind its rows, and
shipments are looked at first. Absent on purpose: rows of other tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.cycles.cuts import Cut, Shipment, begins_of, ends_of
from pipelines.lake.data_files import DataFiles, FileGone, understood
from pipelines.lake.lake import Lake
from pipelines.lake.tail import (
    AddedFile,
    LogTruncated,
    Place,
    is_read,
    may_hold,
    read_tail,
    snapshot,
)
from pipelines.staging.facts import FACT_TABLES, SHIPPER_SUFFIX
from pipelines.staging.soundness import sound

SHIPMENTS: Final = "shipments"
SHIPMENTS_AT_ONCE: Final = 10_000
"""When so many wait, no further file of them is read: a backlog is seen in pieces."""

_OF_SHIPMENT: Final = ("emitter", "seq", "seq_from", "seq_to", "event_time_to")


@dataclass(slots=True)
class _Unread:
    """One call's worth of files that are not finished, and the place before them."""

    begin: Place
    files: list[AddedFile]


@dataclass(slots=True)
class _Table:
    """How far the log of one bronze table was read."""

    end: Place
    unread: list[_Unread] = field(default_factory=list)

    @property
    def place(self) -> Place:
        """A place before every file that is not finished."""
        return self.unread[0].begin if self.unread else self.end


class BronzeTail:
    """The unfinished files of a lake's bronze tables."""

    def __init__(self, lake: Lake, places: Mapping[str, Place], *, follows: bool = True) -> None:
        """`follows`: go on along the logs from these places; else take the tables as they are now,
        once, which a range of the past is read from.
        """
        self._lake = lake
        self._follows = follows
        self._files = DataFiles(lake)
        self._tables = {name: _Table(places.get(name, Place.start())) for name in FACT_TABLES}
        self._shipments: dict[tuple[str, int], Shipment] = {}
        """Those that no cycle has taken yet, by emitter and seq: files report some of them again.
        """
        self._unseen: list[AddedFile] = []
        """Files of shipments that were not looked into yet."""

    @property
    def places(self) -> dict[str, Place]:
        """Per table, a place before everything unfinished."""
        return {name: table.place for name, table in self._tables.items()}

    def shipments(self, marks: Sequence[Cut]) -> list[Shipment]:
        """Shipments beyond the marks that are in the lake now: all, or those of the oldest files
        where very many wait.
        """
        known = {cut.emitter: cut.shipment_to for cut in marks}
        read = ends_of(marks)
        self._look_for_shipments(read)
        self._shipments = {
            key: one for key, one in self._shipments.items() if one.seq > known.get(one.emitter, -1)
        }
        is_taken_anew = False
        while self._unseen and len(self._shipments) < SHIPMENTS_AT_ONCE:
            try:
                rows = self._rows(self._unseen[0])
            except FileGone:
                if is_taken_anew:
                    raise
                self._unseen, is_taken_anew = [*self._take(SHIPMENTS, read)], True
                continue
            del self._unseen[0]
            for one in rows:
                if one.seq > known.get(one.emitter, -1):
                    self._shipments.setdefault((one.emitter, one.seq), one)
        return list(self._shipments.values())

    def files(self, cuts: Sequence[Cut]) -> dict[str, list[AddedFile]]:
        """Per table, the files that may hold rows of the cuts."""
        read, wanted = begins_of(cuts), ends_of(cuts)
        found = {}
        for name, table in self._tables.items():
            if name == SHIPMENTS:
                self._look_for_shipments(read)  # Behind a restart nobody has done so.
            else:
                self._look(name, read)
            files = [file for unread in table.unread for file in unread.files]
            found[name] = [file for file in files if may_hold(file, read, wanted)]
        return found

    def replace_gone(self, cuts: Sequence[Cut]) -> bool:
        """Where files of these cuts are not there any more, take what their tables hold now: merged
        files hold the same rows. Was one gone?
        """
        read, is_one_gone = begins_of(cuts), False
        for name, files in self.files(cuts).items():
            address = self._lake.bronze(name)
            if not all(self._files.is_there(f"{address}/{file.path}") for file in files):
                self._take(name, read)
                is_one_gone = True
        return is_one_gone

    def finish(self, cuts: Sequence[Cut]) -> None:
        """Forget the files whose rows all lie at or below the ends of these cuts."""
        read = ends_of(cuts)
        for table in self._tables.values():
            for unread in table.unread:
                unread.files = [file for file in unread.files if not is_read(file, read)]
            table.unread = [unread for unread in table.unread if unread.files]

    def _look_for_shipments(self, read: Mapping[str, int]) -> None:
        self._unseen.extend(self._look(SHIPMENTS, read))

    def _look(self, name: str, read: Mapping[str, int]) -> list[AddedFile]:
        """Read the table's log to its end; returns the files that are new."""
        table, address = self._tables[name], self._lake.bronze(name)
        if table.end == Place.start() and not self._lake.exists(address):
            return []
        if not self._follows:
            return self._take(name, read) if table.end == Place.start() else []
        fresh: list[AddedFile] = []
        while True:
            begin = table.end
            try:
                tail = read_tail(self._lake, address, begin)
            except LogTruncated:
                return self._take(name, read)
            table.end = tail.end
            files = [file for file in tail.files if not is_read(file, read)]
            if files:
                table.unread.append(_Unread(begin, files))
                fresh.extend(files)
            if tail.end == begin:
                return fresh

    def _take(self, name: str, read: Mapping[str, int]) -> list[AddedFile]:
        """All present files of the table that may hold rows which were not read."""
        table, begin = self._tables[name], self._tables[name].place
        present, table.end = snapshot(self._lake, self._lake.bronze(name), read)
        in_order = sorted(present, key=lambda one: -1 if one.seqs is None else one.seqs.least)
        table.unread = [_Unread(begin, in_order)] if in_order else []
        return in_order

    def _rows(self, file: AddedFile) -> list[Shipment]:
        address = f"{self._lake.bronze(SHIPMENTS)}/{file.path}"
        data = self._files.read(address)
        with understood(address):
            rows = pq.read_table(pa.BufferReader(data), columns=list(_OF_SHIPMENT))
        rows, _ = sound(SHIPMENTS, rows)  # Readers of the cut report on the others.
        moments = rows["event_time_to"].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        plain = rows.drop_columns(["event_time_to"]).append_column("time_to_us", moments)
        return [
            Shipment(**{**row, "emitter": row["emitter"].removesuffix(SHIPPER_SUFFIX)})
            for row in plain.to_pylist()
        ]
