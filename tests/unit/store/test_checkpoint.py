"""Five numbers in a page: RocketMQ's layout, and what a damaged one counts for."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.runtime import SystemDisk
from engine.store.upkeep.checkpoint import Checkpoint, CheckpointFile, decode_checkpoint


def test_the_note_of_what_was_written_lies_where_rocketmq_leaves_zeros() -> None:
    encoded = Checkpoint(1, 2, 3, 4, 5, written_offset=1 << 40).encode()
    assert encoded[:40] == Checkpoint(1, 2, 3, 4, 5).encode()[:40]
    assert not encoded[40:2048].strip(b"\0")
    assert decode_checkpoint(encoded) == Checkpoint(1, 2, 3, 4, 5, 1 << 40)
    torn = encoded[:2056] + bytes(8) + encoded[2064:]
    assert decode_checkpoint(torn).written_offset == 0, "a torn note is none"


def test_notes_of_ours_count_only_beside_the_times_they_were_written_with() -> None:
    """RocketMQ writes its five numbers and leaves the rest of the page as it was."""
    ours = Checkpoint(1000, 2000, 3, 4, 5, flushed_offset=1 << 40, derived=(7, 8))
    encoded = ours.encode()
    assert decode_checkpoint(encoded) == ours
    assert encoded[:40] == Checkpoint(1000, 2000, 3, 4, 5).encode()[:40]
    later = Checkpoint(1001, 2000, 3, 4, 5)
    assert decode_checkpoint(later.encode()[:40] + encoded[40:]) == Checkpoint(
        *(1001, 2000, 3, 4, 5), derived=(7, 8)
    )
    later = Checkpoint(1000, 2001, 3, 4, 5)
    assert decode_checkpoint(later.encode()[:40] + encoded[40:]) == Checkpoint(
        *(1000, 2001, 3, 4, 5), flushed_offset=1 << 40
    )


def test_times_that_are_earlier_than_those_of_a_note_are_damaged_and_take_none_away() -> None:
    ours = Checkpoint(1000, 2000, 3, 4, 5, flushed_offset=1 << 40, log_begin=4096)
    bent = Checkpoint(8, 2000, 3, 4, 5).encode()[:40] + ours.encode()[40:]
    found = decode_checkpoint(bent)
    assert (found.flushed_offset, found.log_begin) == (1 << 40, 4096)
    negative = decode_checkpoint(b"\xff" * 8 + ours.encode()[8:])
    assert (negative.flushed_offset, negative.log_begin) == (1 << 40, 4096)


@pytest.mark.parametrize("position", [*range(256, 284), *range(320, 348), *range(384, 412)])
def test_a_note_of_ours_with_a_flipped_bit_is_none(position: int) -> None:
    ours = Checkpoint(1, 2, 3, flushed_offset=1 << 40, derived=(7, 8), log_begin=4096)
    encoded = bytearray(ours.encode())
    encoded[position] ^= 1
    found = decode_checkpoint(bytes(encoded))
    notes = [1 << 40, (7, 8), 4096]
    notes[(position - 256) // 64] = (0, None, None)[(position - 256) // 64]
    assert [found.flushed_offset, found.derived, found.log_begin] == notes


def test_the_layout_is_five_numbers_and_zeros_in_4096_bytes() -> None:
    encoded = Checkpoint(1, 2, 3, 4, 5).encode()
    assert len(encoded) == 4096
    assert encoded[:40].hex() == "".join(f"{number:016x}" for number in (1, 2, 3, 4, 5))
    assert not encoded[40:].strip(b"\0")
    assert decode_checkpoint(encoded) == Checkpoint(1, 2, 3, 4, 5)


@pytest.mark.parametrize("content", [b"", b"\0" * 39, b"\xff" * 4096])
def test_a_damaged_checkpoint_vouches_for_nothing(content: bytes) -> None:
    assert decode_checkpoint(content) == Checkpoint()


def test_recovery_begins_three_seconds_before_the_older_of_log_and_queues() -> None:
    assert Checkpoint(10_000, 8_000, 1).recover_from_ms == 5_000
    assert Checkpoint(10_000, 0, 1).recover_from_ms == 0


def test_what_was_written_and_synced_is_read_again(tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint")
    file = CheckpointFile(SystemDisk(), path)
    assert not file.changed
    file.value.physic_timestamp_ms = 77
    assert file.changed
    file.write()
    file.sync()
    assert not file.changed
    file.close()
    again = CheckpointFile(SystemDisk(), path)
    assert again.value == Checkpoint(77)
    again.close()


def test_what_was_written_in_between_is_written_over_when_the_value_is_the_synced_one_again(
    tmp_path: Path,
) -> None:
    file = CheckpointFile(SystemDisk(), str(tmp_path / "checkpoint"))
    file.value.flushed_offset = 77
    file.write()
    file.value.flushed_offset = 0
    assert file.changed, "a power cut may leave the 77 on disk"
    file.write()
    assert file.changed
    file.sync()
    assert not file.changed
    file.close()
