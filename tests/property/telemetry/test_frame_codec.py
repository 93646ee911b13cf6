"""Any frames, written one after the other and cut or damaged anywhere, read back as a prefix."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.telemetry.frames import (
    Frame,
    Life,
    Mark,
    Offset,
    Row,
    Turn,
    decode_frames,
    encode_frame,
)
from engine.telemetry.tables import TABLES

numbers = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
values = st.none() | st.booleans() | numbers | texts | st.lists(texts, max_size=3)
marks: st.SearchStrategy[Mark] = st.tuples(
    texts, texts, st.integers(0, 4095), numbers, st.none() | texts, numbers
)
offsets: st.SearchStrategy[Offset] = st.tuples(texts, texts, st.integers(0, 4095), numbers)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    """A row of any table with at most as many values as it has columns."""
    number = draw(st.integers(0, len(TABLES) - 1))
    own = draw(st.lists(values, max_size=len(TABLES[number].own)))
    return number, draw(numbers), tuple(own)


frames: st.SearchStrategy[Frame] = st.one_of(
    st.builds(
        Life,
        cluster=texts,
        broker=texts,
        broker_id=st.integers(0, 9),
        broker_epoch=numbers,
        first_seq=numbers,
        as_of=numbers,
        marks=st.lists(marks, max_size=4),
        offsets=st.lists(offsets, max_size=4),
    ),
    st.builds(
        Turn,
        first_seq=numbers,
        as_of=numbers,
        rows=st.lists(rows(), max_size=5),
        marks=st.lists(marks, max_size=4),
    ),
)


@given(st.lists(frames, max_size=6))
def test_frames_survive_the_round_trip(written: list[Frame]) -> None:
    data = b"".join(map(encode_frame, written))
    placed, end = decode_frames(data)
    assert [found.frame for found in placed] == written
    assert end == len(data)


@given(st.lists(frames, min_size=1, max_size=5), st.data())
def test_a_cut_anywhere_leaves_a_prefix(written: list[Frame], data: st.DataObject) -> None:
    parts = list(map(encode_frame, written))
    whole = b"".join(parts)
    cut = data.draw(st.integers(0, len(whole)))
    placed, end = decode_frames(whole[:cut])
    kept = [found.frame for found in placed]
    assert kept == written[: len(kept)]
    assert end == sum(map(len, parts[: len(kept)])) <= cut
    assert len(kept) == len(written) or cut < end + len(parts[len(kept)])


@given(st.lists(frames, min_size=1, max_size=5), st.data())
def test_a_damaged_byte_costs_its_frame_and_what_follows(
    written: list[Frame], data: st.DataObject
) -> None:
    parts = list(map(encode_frame, written))
    whole = bytearray(b"".join(parts))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    placed, _ = decode_frames(bytes(whole))
    undamaged = 0
    while sum(map(len, parts[: undamaged + 1])) <= at:
        undamaged += 1
    assert [found.frame for found in placed] == written[:undamaged]
