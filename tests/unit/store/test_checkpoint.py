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
