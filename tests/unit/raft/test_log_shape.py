"""Row C11: indices, offsets and terms of a log with marks, against a list of its units."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.raft.log_shape import Base, LogShape, Position
from engine.raft.members import Members
from tests.amounts import examples

STEPS = st.lists(st.sampled_from(["bytes", "term", "members"]), max_size=12)
FOUNDERS, OTHERS = Members(("a",)), Members(("a", "b"))


def built(steps: list[str]) -> tuple[LogShape, list[tuple[int, bool, bool]]]:
    """The shape, and for each index (term, is a mark, is a configuration)."""
    shape = LogShape(Base(members=FOUNDERS)).with_mark(1)
    units = [(1, True, False)]
    for step in steps:
        if step == "bytes":
            shape = shape.with_bytes(shape.end_offset + 3)
            units += [(units[-1][0], False, False)] * 3
        else:
            term = units[-1][0] + (step == "term")
            shape = shape.with_mark(term, OTHERS if step == "members" else None)
            units.append((term, True, step == "members"))
    return shape, units


@given(steps=STEPS, begin=st.integers(0, 40), cut=st.integers(0, 40))
@examples(150, in_full=5000)
def test_a_shape_says_what_a_list_says(steps: list[str], begin: int, cut: int) -> None:
    shape, units = built(steps)
    begin = min(begin, shape.end_offset)
    shape = shape.begun_at(begin)
    gone = shape.base.index
    assert sum(not is_mark for _, is_mark, _ in units[:gone]) == begin
    cut = max(gone, min(cut, len(units)))
    shape = shape.cut(cut)
    assert shape.end_index == cut
    for index in range(gone, cut + 1):
        before = units[:index]
        term = before[-1][0] if before else 0
        assert shape.position_at(index) == Position(term, index)
        assert shape.holds(Position(term, index))
        assert not shape.holds(Position(term + 1, index))
        assert shape.offset_at(index) == sum(not is_mark for _, is_mark, _ in before)
        has_changed = any(is_members for *_, is_members in before)
        assert shape.members_at(index) == (OTHERS if has_changed else FOUNDERS)
        is_mark = index < cut and units[index][1]
        assert (shape.mark_at(index) is not None) == is_mark
        end = next((at for at in range(index, cut) if units[at][1]), cut)
        assert shape.bytes_end(index) == end
    assert shape.last == shape.position_at(cut)
    assert shape.members == shape.members_at(cut)


@given(steps=STEPS, begin=st.integers(0, 40), term=st.integers(0, 14))
@examples(100, in_full=2000)
def test_the_end_of_a_term_is_the_last_entry_of_it_or_an_earlier(
    steps: list[str], begin: int, term: int
) -> None:
    shape, units = built(steps)
    shape = shape.begun_at(min(begin, shape.end_offset))
    fitting = [at + 1 for at, (one, *_) in enumerate(units) if one <= term]
    end = max(fitting, default=0)
    found = shape.end_of_term(term)
    if found is None:
        assert shape.base.term > term
    else:
        assert found.index == max(end, shape.base.index)
