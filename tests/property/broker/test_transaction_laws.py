"""Row D4, any order of events: reading from the progress offsets finds every open transaction.

The model is the whole log since the first record. After a kill all of it is there, after a power
cut only what was durable; the offsets on disk are older than both. What a broker then reads from
those offsets on must show the same open transactions as the whole log does.

Rounds that put waiting ones again bring at most one copy for each half message that came.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.broker.transactions.transactions import HalfMessage, Transactions

RENEWED_HELD = 4
choices = st.integers(min_value=0, max_value=1_000_000)


@dataclass(frozen=True)
class Record:
    """A half message (its place, the first copy's) or an op message (its place, what it lists)."""

    kind: str
    place: int
    listed: tuple[int, ...]
    is_renewed: bool = False
    """Was it put again because its producer has asked for time?"""


class TransactionMachine(RuleBasedStateMachine):
    """One half queue over many lives; a record is as long as 1 byte."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Record] = []
        self.durable = 0
        self.on_disk = (0, 0)
        self.transactions = Transactions(renewed_held=RENEWED_HELD)

    # What happens.

    @rule()
    def begin(self) -> None:
        place = self._next("half")
        self._put_half(place, place)

    @precondition(lambda self: self.transactions.open_halves())
    @rule(choice=choices)
    def put_again(self, choice: int) -> None:
        half = self._pick(choice)
        self._put_half(self._next("half"), half.first_offset)

    @rule()
    def round_in_which_all_have_time(self) -> None:
        if self.transactions.is_sparse:
            for half in self.transactions.open_halves():
                self._put_half(self._next("half"), half.first_offset, renewed=True)

    @precondition(lambda self: self.transactions.open_halves())
    @rule(choice=choices, committed=st.booleans())
    def end(self, choice: int, committed: bool) -> None:
        self.transactions.end(self._pick(choice).first_offset, committed=committed)

    @rule(bytes_max=st.sampled_from([4, 8, 4096]))
    def write_an_op_message(self, bytes_max: int) -> None:
        batch = self.transactions.op_batch(bytes_max)
        if batch:
            place = self._next("op")
            self.log.append(Record("op", place, tuple(batch)))
            self.transactions.note_op(place, batch, end_offset=len(self.log))

    @rule(choice=choices)
    def flush(self, choice: int) -> None:
        self.durable += choice % (len(self.log) - self.durable + 1)

    @rule()
    def advance(self) -> None:
        before = (self.transactions.half_offset, self.transactions.op_offset)
        self.transactions.advance(self.durable)
        after = (self.transactions.half_offset, self.transactions.op_offset)
        assert before[0] <= after[0]
        assert before[1] <= after[1]

    @rule()
    def persist(self) -> None:
        self.on_disk = (self.transactions.half_offset, self.transactions.op_offset)

    @rule(power_cut=st.booleans())
    def crash(self, power_cut: bool) -> None:
        if power_cut:
            del self.log[self.durable :]
        else:
            self.durable = len(self.log)
        self.transactions = Transactions(renewed_held=RENEWED_HELD)
        half_from, op_from = self.on_disk
        halves = [one for one in self.log if one.kind == "half" and one.place >= half_from]
        ops = [one for one in self.log if one.kind == "op" and one.place >= op_from]
        self.transactions.restore(
            [self._half(one.place, one.listed[0]) for one in halves],
            [(one.place, one.listed) for one in ops],
            half_begin=half_from,
            half_end=self._next("half"),
            op_begin=op_from,
        )
        assert self._open() == self._open_by_the_log()

    # What always holds.

    @invariant()
    def offsets_on_disk_name_records_that_are_durable(self) -> None:
        halves = [one for one in self.log[: self.durable] if one.kind == "half"]
        assert self.on_disk[0] <= len(halves)

    @invariant()
    def progress_passes_no_open_transaction(self) -> None:
        for place in self._open().values():
            assert self.transactions.half_offset <= place

    @invariant()
    def waiting_costs_at_most_a_copy_for_each_half_message_that_came(self) -> None:
        renewed = [one.is_renewed for one in self.log if one.kind == "half"]
        assert 2 * sum(renewed) <= len(renewed)

    # The model.

    def _open_by_the_log(self) -> dict[int, int]:
        names = {one.place: one.listed[0] for one in self.log if one.kind == "half"}
        listed = [place for one in self.log if one.kind == "op" for place in one.listed]
        ended = [names[place] for place in listed]
        newest = {first: place for place, first in sorted(names.items())}
        return {first: place for first, place in newest.items() if first not in ended}

    def _open(self) -> dict[int, int]:
        return {half.first_offset: half.queue_offset for half in self.transactions.open_halves()}

    def _pick(self, choice: int) -> HalfMessage:
        halves = self.transactions.open_halves()
        return halves[choice % len(halves)]

    def _next(self, kind: str) -> int:
        return len([one for one in self.log if one.kind == kind])

    def _put_half(self, place: int, first: int, *, renewed: bool = False) -> None:
        self.log.append(Record("half", place, (first,), renewed))
        self.transactions.note_half(self._half(place, first), end_offset=len(self.log))

    @staticmethod
    def _half(place: int, first: int) -> HalfMessage:
        return HalfMessage(first, place, place, 0, 0, None, 0)


TestTransactions = TransactionMachine.TestCase
TestTransactions.settings = settings(max_examples=150, stateful_step_count=40)
