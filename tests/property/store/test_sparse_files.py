"""What a file says was written holds everything in it that is not zero: on the machine's disk, and
on the one that keeps every change.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from engine.runtime import SystemDisk
from engine.runtime.disk import File
from tests.simulation.crash_states.recording import RecordingDisk

SIZE_BYTES = 100_000

writes = st.lists(
    st.tuples(st.integers(0, SIZE_BYTES - 1), st.binary(min_size=1, max_size=9000)), max_size=5
)


def read_by_stretches(file: File, position: int) -> bytes:
    """The file from `position` on, as one who reads nothing but what was written sees it."""
    found = bytearray(SIZE_BYTES)
    at = position
    while (written := file.written_from(at)) is not None:
        begin, end = written
        assert at <= begin < end <= SIZE_BYTES
        found[begin:end] = file.pread(end - begin, begin)
        at = end
    return bytes(found[position:])


@given(writes, st.integers(0, SIZE_BYTES))
def test_between_what_was_written_there_are_zeros(
    parts: list[tuple[int, bytes]], position: int
) -> None:
    with TemporaryDirectory() as folder:
        files = [
            SystemDisk().open(str(Path(folder) / "sparse"), create=True),
            RecordingDisk().open("/sparse", create=True),
        ]
        for file in files:
            file.truncate(SIZE_BYTES)
            for place, data in parts:
                file.pwrite(data[: SIZE_BYTES - place], place)
            assert read_by_stretches(file, position) == file.pread(SIZE_BYTES, position)
            file.close()
