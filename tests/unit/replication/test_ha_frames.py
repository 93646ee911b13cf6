"""The bytes of the HA port, in whatever parts they arrive."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.foundation.errors import ProtocolError
from engine.foundation.limits import HA_PIECE_BYTES_MAX
from engine.replication.ha_frames import PIECE, REPORT, Pieces, Reports

OFFSETS = st.integers(0, 2**63 - 1)


def parts_of(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[begin:end] for begin, end in pairwise(edges)]


@given(st.lists(OFFSETS, min_size=1, max_size=5), st.lists(st.integers(0, 99)))
def test_the_newest_report_counts_however_they_are_cut(offsets: list[int], cuts: list[int]) -> None:
    reports, heard = Reports(), []
    for part in parts_of(b"".join(map(REPORT.pack, offsets)), cuts):
        newest = reports.feed(part)
        heard += [] if newest is None else [newest]
    assert heard[-1] == offsets[-1]
    assert set(heard) <= set(offsets)


@given(st.lists(st.tuples(OFFSETS, st.binary(max_size=40)), max_size=6), st.lists(st.integers(0)))
def test_pieces_arrive_whole_and_in_order(pieces: list[tuple[int, bytes]], cuts: list[int]) -> None:
    reading, found = Pieces(), []
    sent = b"".join(PIECE.pack(offset, len(data)) + data for offset, data in pieces)
    for part in parts_of(sent, cuts):
        found += [(offset, bytes(data)) for offset, data in reading.feed(part)]
    assert found == pieces


@pytest.mark.parametrize(
    "header", [PIECE.pack(-1, 5), PIECE.pack(0, -1), PIECE.pack(0, HA_PIECE_BYTES_MAX + 1)]
)
def test_a_piece_that_no_log_has_is_refused(header: bytes) -> None:
    with pytest.raises(ProtocolError, match="at most"):
        Pieces().feed(header)


def test_a_slave_before_the_begin_of_a_log_is_refused() -> None:
    with pytest.raises(ProtocolError, match="a log begins at 0"):
        Reports().feed(REPORT.pack(-1))
