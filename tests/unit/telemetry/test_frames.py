"""The spool's bytes: pinned by a golden frame, whole or not at all, never trusted beyond their
checksum."""

from __future__ import annotations

import struct
import zlib

import msgspec
import pytest

from engine.foundation.errors import CorruptRecord
from engine.telemetry.frames import Life, Turn, decode_frames, encode_frame
from engine.telemetry.tables import TABLES

LIFE = Life("cluster-1", "broker-a", 0, 1_000, 1, 999, [])
TURN = Turn(1, 1_005, [(8, 1_005, ("BOOT", True, None, None, None, "hello"))], [])
HEARTBEAT = Turn(2, 2_000, [], [])


def framed(payload: bytes) -> bytes:
    return struct.pack("<II", len(payload), zlib.crc32(payload)) + payload


def test_a_frame_is_length_checksum_and_a_msgpack_array() -> None:
    data = encode_frame(Turn(7, 9, [], [("g", "t", 1, 5, None, 3)]))
    payload = b"\x96\x02\x07\x09\x90\x91\x96\xa1g\xa1t\x01\x05\xc0\x03\x90"
    assert data == struct.pack("<II", len(payload), zlib.crc32(payload)) + payload


def test_frames_of_a_version_that_knew_no_tails_are_read() -> None:
    turn = b"\x95\x02\x07\x09\x90\x91\x96\xa1g\xa1t\x01\x05\xc0\x03"
    life = b"\x99\x01\xa1c\xa1b\x00\x01\x01\x00\x90\x90"
    (first, second), _ = decode_frames(framed(life) + framed(turn))
    assert first.frame == Life("c", "b", 0, 1, 1, 0, [])
    assert second.frame == Turn(7, 9, [], [("g", "t", 1, 5, None, 3)])


def test_a_frame_of_nothing_but_tails_is_no_heartbeat() -> None:
    turn = Turn(7, 9, [], [], [("t", 1, 5, 700, "ID", "g", None)])
    assert not turn.is_heartbeat
    (placed,), _ = decode_frames(encode_frame(turn))
    assert placed.frame == turn


def test_what_was_written_is_read_back_in_order() -> None:
    data = b"".join(map(encode_frame, (LIFE, TURN, HEARTBEAT)))
    placed, end = decode_frames(data)
    assert [found.frame.as_of for found in placed] == [999, 1_005, 2_000]
    assert isinstance(placed[0].frame, Life)
    assert placed[1].frame == TURN
    assert end == len(data)
    assert [found.start for found in placed[1:]] == [found.end for found in placed[:-1]]


def test_a_tail_torn_at_any_byte_costs_the_last_frame_and_nothing_else() -> None:
    whole = encode_frame(LIFE) + encode_frame(TURN)
    data = whole + encode_frame(HEARTBEAT)
    for length in range(len(whole), len(data)):
        placed, end = decode_frames(data[:length])
        assert (len(placed), end) == (2, len(whole)), f"cut at byte {length}"


def test_a_flipped_bit_anywhere_in_the_last_frame_is_noticed() -> None:
    whole = encode_frame(LIFE)
    data = whole + encode_frame(TURN)
    for bit in range(len(whole) * 8, len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        placed, end = decode_frames(bytes(damaged))
        assert (len(placed), end) == (1, len(whole)), f"bit {bit}"


def test_zero_bytes_are_no_frame() -> None:
    data = encode_frame(TURN)
    assert decode_frames(data + bytes(4096))[1] == len(data)


def test_an_impossible_length_is_not_followed() -> None:
    assert decode_frames(struct.pack("<II", 2**32 - 1, 0) + bytes(64)) == ([], 0)


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([(len(TABLES), 1, ())], f"table number {len(TABLES)}"),
        ([(8, 1, (None,) * 20)], "20 values for lifecycle"),
    ],
)
def test_rows_of_a_newer_version_are_refused_by_name(rows: list[object], complaint: str) -> None:
    data = framed(msgspec.msgpack.encode([2, 1, 1, rows, []]))
    with pytest.raises(CorruptRecord, match=complaint):
        decode_frames(data)


def test_a_sound_checksum_over_nonsense_is_refused() -> None:
    with pytest.raises(CorruptRecord, match="content does not"):
        decode_frames(framed(b"\xc1"))


def test_rows_of_an_older_version_with_fewer_columns_are_read() -> None:
    data = framed(msgspec.msgpack.encode([2, 1, 1, [(8, 1, ("BOOT",))], []]))
    frame = decode_frames(data)[0][0].frame
    assert isinstance(frame, Turn)
    assert frame.rows == [(8, 1, ("BOOT",))]
