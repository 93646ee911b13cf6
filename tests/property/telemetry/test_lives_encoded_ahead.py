"""The first frame of a segment, encoded in any number of steps while marks and offsets move on, is
read back as what was known when it was finished.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.foundation.observing import OffsetReport
from engine.telemetry.events import row_of, stamped
from engine.telemetry.frames import Life, Mark, Row, decode_frame
from engine.telemetry.progress import NextLife, Progress

HEAD = Life("cluster-1", "broker-a", 0, 7, 100, 99, [])
KEYS = st.integers(0, 30)


def mark_of(key: int, offset: int) -> Mark:
    return f"g{key % 3}", f"t{key}", 0, offset, "client@1", 7


def row_about(key: int, offset: int, *, accepted: bool) -> Row:
    report = OffsetReport(
        f"g{key % 3}", f"t{key}", 0, offset, None, "COMMIT_RPC", "TIMER", "c", accepted, 0, 100
    )
    return stamped(row_of(report), 1_000_000)


marks = st.lists(st.builds(mark_of, KEYS, st.integers(0, 99)), max_size=12)
rows = st.lists(st.builds(row_about, KEYS, st.integers(0, 99), accepted=st.booleans()), max_size=12)


@given(
    before=st.tuples(rows, marks),
    turns=st.lists(st.tuples(rows, marks, st.booleans()), max_size=12),
    per_turn=st.integers(1, 8),
)
def test_what_moves_while_it_is_encoded_is_in_it(
    before: tuple[list[Row], list[Mark]],
    turns: list[tuple[list[Row], list[Mark], bool]],
    per_turn: int,
) -> None:
    progress = Progress()
    progress.take_rows(before[0])
    progress.take_marks(before[1])
    following = NextLife(progress, per_turn)
    for facts, moved, steps in turns:
        progress.take_rows(facts)
        progress.take_marks(moved)
        following.note(facts, moved)
        if steps:
            following.step()
    while not following.is_ready:
        following.step()
    data = following.encoded(HEAD)
    life = decode_frame(data, 0, len(data))
    assert isinstance(life, Life)
    assert (life.first_seq, life.as_of, life.broker_epoch) == (100, 99, 7)
    found = Progress.of(life)
    assert list(found.marks.items()) == list(progress.marks.items()), "in the order they moved"
    assert list(found.offsets.items()) == list(progress.offsets.items())


@given(per_turn=st.integers(1, 8), count=st.integers(0, 40), each=st.integers(0, 40))
def test_the_end_comes_nearer_with_each_step_whatever_the_turns_bring(
    per_turn: int, count: int, each: int
) -> None:
    progress = Progress()
    progress.take_marks([mark_of(key, 1) for key in range(count)])
    following, steps = NextLife(progress, per_turn), 0
    while not following.is_ready:
        following.note([], [mark_of(key, 2) for key in range(each)])
        following.step()
        steps += 1
        assert steps <= count // per_turn + 1
