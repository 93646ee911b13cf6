"""Finds the files that contain a batch's rows by reading the table's log.

So the cost of a run grows with what is new.

Place in the walk: between a batch and the executors. A bronze table's files hold rows by seq; gold
is committed by cycle, and each commit says by which.

Invariant: every row of the batch is in the files named here. Where the log is there, no file is
named that was judged whole before; where its entries are gone (the first look at an old lake, or a
long pause), the table's present files are taken by their statistics and days, and `is_exact` says
that rows must be chosen one by one. Absent on purpose: rows, and Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from expectations.batch import Batch
from expectations.memory import TablePosition
from pipelines.base.time_units import moment_at
from pipelines.cycles.cuts import begins_of, ends_of
from pipelines.lake.lake import Lake
from pipelines.lake.small_files import SmallFiles
from pipelines.lake.tail import (
    AddedFile,
    Commit,
    LogTruncated,
    Place,
    Tail,
    begins_by,
    entry_address,
    fingerprint,
    is_read,
    may_hold,
    parse_entry,
    read_tail,
    snapshot,
)
from pipelines.marts.mart import GoldTable

BACK_MAX: Final = 1_000
"""Newest log entries that are looked at to find the place from which a log is followed again."""

BEYOND_MAX: Final = 16
"""Newest files behind the batch in which an emitter's horizon is looked for."""


@dataclass(frozen=True, slots=True)
class NewFiles:
    """The files of one table that a batch is read from."""

    address: str
    files: tuple[AddedFile, ...]
    is_exact: bool
    """All rows of a gold table's files belong to the batch."""
    seen: int
    """Newest version of the table that was looked at."""
    fresh: tuple[AddedFile, ...] = ()
    """Of a bronze table: files that no run has seen before."""
    beyond: tuple[AddedFile, ...] = ()
    """Of a bronze table: files with rows behind the batch only."""
    after: Place | None = None
    """Where the next run goes on; None: the log was not followed, and `rejoin` finds it."""

    @property
    def paths(self) -> list[str]:
        """Of the files, in the table's folder."""
        return [file.path for file in self.files]

    @property
    def beyond_paths(self) -> list[str]:
        """Of the newest files behind the batch."""
        return [file.path for file in self.beyond[-BEYOND_MAX:]]

    def stale_paths(self, begins: Mapping[str, int]) -> list[str]:
        """Of files nobody has seen that may hold rows that were judged before."""
        return [file.path for file in self.fresh if begins_by(file, begins)]


def new_facts(
    lake: Lake, name: str, position: TablePosition, batch: Batch, *, follows: bool = True
) -> NewFiles:
    """Of a bronze table. One that does not exist has none. `follows`: along its log, where that
    can be; else its present files."""
    address = lake.bronze(name)
    if not lake.exists(address):
        return NewFiles(address, (), is_exact=True, seen=-1, after=Place.start())
    begins, ends = begins_of(batch.cuts), ends_of(batch.cuts)
    files: list[AddedFile] = []
    after, end = None, position.place
    try:
        while True:
            tail = _tail(lake, address, end, follows=follows)
            files += tail.files
            unread = next((c for c in tail.commits if _is_unread(c, ends)), None)
            if after is None and unread is not None:
                after = _before(lake, address, end, unread.version)
            if tail.end == end or (tail.files and not any(begins_by(f, ends) for f in tail.files)):
                end = tail.end
                break
            end = tail.end
    except LogTruncated:
        present, place = snapshot(lake, address, {})
        wanted = [file for file in present if may_hold(file, begins, ends)]
        return NewFiles(address, tuple(wanted), is_exact=False, seen=place.version)
    fresh = tuple(file for file in files if file.version > position.seen)
    wanted = [file for file in files if may_hold(file, begins, ends)]
    return NewFiles(
        address,
        tuple(wanted),
        is_exact=False,
        seen=max(position.seen, end.version),
        fresh=fresh,
        beyond=tuple(file for file in files if not begins_by(file, ends)),
        after=after or end,
    )


def new_answers(
    lake: Lake, table: GoldTable, position: TablePosition, batch: Batch, *, follows: bool = True
) -> NewFiles:
    """Of a gold table."""
    address, app_id = lake.gold(table.name), f"{table.name}/{batch.run_id}"
    files: list[AddedFile] = []
    end, seen = position.place, position.seen
    try:
        while True:
            tail = _tail(lake, address, end, follows=follows)
            later = next((c for c in tail.commits if _is_later(c, app_id, batch.cycle)), None)
            taken = [c for c in tail.commits if later is None or c.version < later.version]
            files += [file for commit in taken for file in commit.added]
            if later is not None:
                end = _before(lake, address, end, later.version)
                break
            if tail.end == end:
                break
            end = tail.end
    except LogTruncated:
        present, place = snapshot(lake, address, {})
        chosen = [file for file in present if _may_answer(file, table, batch)]
        return NewFiles(address, tuple(chosen), is_exact=False, seen=place.version)
    return NewFiles(address, tuple(files), is_exact=True, seen=max(seen, end.version), after=end)


def _tail(lake: Lake, address: str, after: Place, *, follows: bool) -> Tail:
    if not follows:
        raise LogTruncated(f"files that the log of {address} names are gone")
    return read_tail(lake, address, after)


def rejoin_facts(lake: Lake, name: str, batch: Batch) -> Place | None:
    """The place behind a batch from which a bronze table's log can be followed; None when
    it is not found."""
    ends = ends_of(batch.cuts)
    unread = snapshot(lake, lake.bronze(name), ends)[0]
    return _rejoin(lake, lake.bronze(name), lambda c: _is_unread(c, ends), {f.path for f in unread})


def rejoin_answers(lake: Lake, table: GoldTable, batch: Batch) -> Place | None:
    """The same for a gold table."""
    app_id = f"{table.name}/{batch.run_id}"
    return _rejoin(
        lake, lake.gold(table.name), lambda c: _is_later(c, app_id, batch.cycle), frozenset()
    )


def _rejoin(
    lake: Lake, address: str, is_open: Callable[[Commit], bool], needed: frozenset[str] | set[str]
) -> Place | None:
    """Walk back from the log's end over commits that are still open, to the first one that is not,
    if every file that is needed was met on the way."""
    files, version = SmallFiles(lake), lake.table(address).version()
    met: set[str] = set()
    for _ in range(BACK_MAX):
        entry = files.read(entry_address(address, version))
        if entry is None:
            return None
        commit = parse_entry(version, entry.data)
        if not is_open(commit) and needed <= met:
            return Place(version, fingerprint(entry.data))
        met |= {file.path for file in commit.added}
        version -= 1
    return None


def _before(lake: Lake, address: str, begin: Place, version: int) -> Place:
    """The place before the commit `version`, which lies behind `begin`."""
    entries = version - 1 - begin.version
    return read_tail(lake, address, begin, entries_max=entries).end if entries > 0 else begin


def _is_unread(commit: Commit, ends: Mapping[str, int]) -> bool:
    """Has it rows beyond the batch, as far as its statistics show?"""
    return not all(is_read(file, ends) for file in commit.added)


def _is_later(commit: Commit, app_id: str, cycle: int) -> bool:
    """Is it of a cycle behind the batch?"""
    return commit.transactions.get(app_id, 0) > cycle


def _may_answer(file: AddedFile, table: GoldTable, batch: Batch) -> bool:
    """May a present file of a gold table hold rows of the batch? By its day, where ticks count;
    else by its seqs as well."""
    days = _days(batch)
    if file.partition.get("observed_date") in days:
        return True
    if table.on_ticks == "true" or file.seqs is None or file.emitters is None:
        return table.on_ticks != "true"
    return any(
        file.emitters.least <= cut.emitter <= file.emitters.greatest
        and int(file.seqs.least) <= cut.seq_to
        and int(file.seqs.greatest) > cut.seq_from
        for cut in batch.cuts
    )


def _days(batch: Batch) -> Sequence[str]:
    begin = moment_at(batch.judged_from_us).date()
    end = moment_at(batch.judged_to_us).date()
    return [str(begin + timedelta(days=day)) for day in range((end - begin).days + 1)]
