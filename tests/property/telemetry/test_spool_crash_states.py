"""Crash states of a spool: any subset of the writes that were not synced may have reached the disk.

A write that did not leaves zeros where a later one made the file longer. Recovery must keep exactly
the run of turns up to the first one that is missing, whatever lies behind it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from engine.foundation.observing import LifecycleEvent
from engine.runtime import system_runtime
from engine.telemetry import EmitterIdentity, Telemetry
from engine.telemetry.frames import Life, Turn, decode_frames, encode_frame
from engine.telemetry.segments import segment_name
from engine.telemetry.tables import LIFECYCLE, TABLES
from tests.unit.telemetry.lives import missing_in

MASTER = EmitterIdentity("cluster-1", "broker-a", 0)
NUMBER = TABLES.index(LIFECYCLE)


def turn(first_seq: int, row_count: int) -> Turn:
    rows = [
        (NUMBER, 1000 + seq, ("BOOT", True, None, None, None, f"fact {seq}"))
        for seq in range(first_seq, first_seq + row_count)
    ]
    return Turn(first_seq, 1000 + first_seq + row_count, rows, [("g", "t", 0, first_seq, "c", 1)])


def segments_of(row_counts: list[int], per_segment: int) -> list[list[Turn | Life]]:
    """Turns spread over segments, each of which begins with a Life."""
    segments: list[list[Turn | Life]] = []
    next_seq = 1
    for at, row_count in enumerate(row_counts):
        if at % per_segment == 0:
            segments.append([Life("cluster-1", "broker-a", 0, 1, next_seq, 999 + next_seq, [])])
        segments[-1].append(turn(next_seq, row_count))
        next_seq += row_count
    return segments


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=12),
    st.integers(2, 5),
    st.data(),
)
def test_recovery_keeps_the_turns_up_to_the_first_missing_write(
    row_counts: list[int], per_segment: int, data: st.DataObject
) -> None:
    segments = segments_of(row_counts, per_segment)
    last = len(segments) - 1
    # Segments before the last two were synced; of the last two any write may be missing.
    reached = [
        [number < last - 1 or data.draw(st.booleans()) for _ in segment]
        for number, segment in enumerate(segments)
    ]
    kept: list[int] = []
    alive = True
    for segment, there in zip(segments, reached, strict=True):
        for frame, present in zip(segment, there, strict=True):
            alive = alive and present
            if alive and isinstance(frame, Turn):
                kept += range(frame.first_seq, frame.next_seq)

    with tempfile.TemporaryDirectory() as folder:
        spool = Path(folder)
        for segment, there in zip(segments, reached, strict=True):
            parts = [
                encode_frame(frame) if present else bytes(len(encode_frame(frame)))
                for frame, present in zip(segment, there, strict=True)
            ]
            assert isinstance(segment[0], Life)
            path = spool / segment_name(segment[0].first_seq)
            path.write_bytes(b"".join(parts).rstrip(b"\0"))
        telemetry = Telemetry.open(system_runtime(), folder, MASTER)
        assert telemetry.next_seq > len(kept)
        telemetry.observe(LifecycleEvent("BOOT", "next life"))
        telemetry.tick()
        frames = [
            placed.frame
            for path in sorted(spool.glob("*.seg"))
            for placed in decode_frames(path.read_bytes())[0]
        ]
        turns = [frame for frame in frames if isinstance(frame, Turn)]
        found = [seq for one in turns for seq in range(one.first_seq, one.next_seq)]
        assert found[: len(kept)] == kept
        assert found[len(kept)] >= telemetry.broker_epoch
        assert missing_in(frames) == [], "the next life names the last row that is left"
