"""Chooses the range of each emitter's shipped rows that the next cycle processes.

Place in the walk: the driver reads the shipped horizons and asks `next_cuts`; a plan records the
answer. Invariant: an emitter's cuts follow each other without gap or overlap, and end where a
shipment ends; which ends they are changes no gold row. Absent on purpose: tables and files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pipelines.staging.facts import SHIPPER_SUFFIX


@dataclass(frozen=True, slots=True)
class Cut:
    """What one cycle takes of one emitter: rows in (seq_from, seq_to], shipments likewise by their
    own seq, ticks in (time_from_us, time_to_us].
    """

    emitter: str
    seq_from: int
    seq_to: int
    shipment_from: int
    shipment_to: int
    time_from_us: int
    """0: from the emitter's first row."""
    time_to_us: int
    unused_from: int = 0
    """Seqs up to `seq_from` that no row has: those before the lake's first one, and those that the
    emitter's lives have passed over."""
    unused_to: int = 0
    """The same up to `seq_to`."""

    @property
    def rows(self) -> int:
        """How many it takes."""
        return self.seq_to - self.unused_to - (self.seq_from - self.unused_from)

    @property
    def is_empty(self) -> bool:
        """Nothing new, not even time."""
        return self.shipment_from == self.shipment_to

    def rest(self) -> Cut:
        """The empty cut that begins where this one ends."""
        return Cut(
            self.emitter,
            self.seq_to,
            self.seq_to,
            self.shipment_to,
            self.shipment_to,
            self.time_to_us,
            self.time_to_us,
            self.unused_to,
            self.unused_to,
        )


def begins_of(cuts: Sequence[Cut]) -> dict[str, int]:
    """Where cuts begin: the last seq before them, per emitter and per shipper."""
    begins = {cut.emitter: cut.seq_from for cut in cuts}
    return begins | {f"{cut.emitter}{SHIPPER_SUFFIX}": cut.shipment_from for cut in cuts}


def ends_of(cuts: Sequence[Cut]) -> dict[str, int]:
    """Where cuts end: their last seq, per emitter and per shipper."""
    return begins_of([cut.rest() for cut in cuts])


@dataclass(frozen=True, slots=True)
class Shipment:
    """A shipped run of rows of an emitter, whose own number is `seq`."""

    emitter: str
    seq: int
    seq_from: int
    seq_to: int
    time_to_us: int


def next_cuts(
    marks: Sequence[Cut], shipments: Iterable[Shipment], *, rows_max: int
) -> tuple[Cut, ...]:
    """The next cuts, from where each emitter stands and shipments (any order; old ones are passed
    over).

    An emitter takes whole shipments until `rows_max` is passed, so a backlog is worked off in steps
    whose ends are the shipper's own; which ends they are changes no gold row.
    """
    by_emitter: dict[str, list[Shipment]] = {}
    for shipment in shipments:
        by_emitter.setdefault(shipment.emitter, []).append(shipment)
    known = {cut.emitter: cut.rest() for cut in marks}
    return tuple(
        _next_cut(emitter, known.get(emitter), by_emitter.get(emitter, []), rows_max)
        for emitter in sorted({*known, *by_emitter})
    )


def until(marks: Sequence[Cut], shipments: Iterable[Shipment], to_us: int) -> list[Shipment]:
    """The shipments up to the first of each emitter that reaches `to_us`."""
    reached = {cut.emitter for cut in marks if cut.time_to_us >= to_us}
    ends: dict[str, int] = {}
    left = [one for one in shipments if one.emitter not in reached]
    for one in left:
        if one.time_to_us >= to_us:
            ends[one.emitter] = min(one.seq, ends.get(one.emitter, one.seq))
    return [one for one in left if one.seq <= ends.get(one.emitter, one.seq)]


def until_cuts(shipments: Iterable[Shipment], ends: Sequence[Cut]) -> list[Shipment]:
    """The shipments up to where cuts end; none of an emitter without one."""
    last = {cut.emitter: cut.shipment_to for cut in ends}
    return [one for one in shipments if one.seq <= last.get(one.emitter, -1)]


def _next_cut(emitter: str, mark: Cut | None, shipments: list[Shipment], rows_max: int) -> Cut:
    ordered = sorted(shipments, key=lambda one: one.seq)
    if mark is None:
        seq, own = ordered[0].seq_from - 1, ordered[0].seq - 1
        mark = Cut(emitter, seq, seq, own, own, 0, 0, seq, seq)
    cut = mark
    for one in ordered:
        if one.seq <= cut.shipment_to:
            continue
        if cut.rows >= rows_max:
            break
        cut = replace(
            cut,
            seq_to=max(cut.seq_to, one.seq_to),
            shipment_to=one.seq,
            time_to_us=max(cut.time_to_us, one.time_to_us),
            unused_to=cut.unused_to + max(0, one.seq_from - 1 - cut.seq_to),
        )
    return cut


def newest_us(cuts: Sequence[Cut]) -> int:
    """No emitter is judged beyond this moment by these cuts, µs since 1970."""
    return max((cut.time_to_us for cut in cuts), default=0)
