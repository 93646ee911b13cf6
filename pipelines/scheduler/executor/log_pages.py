"""Pure functions that extract a page from a log, starting at a given line.

A line that has no end yet is left for the next page while its run is at work, so that a reader who
goes on after the last line that he has sees each line once and whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from pipelines.scheduler.wire.messages import LogPage

PAGE_BYTES_MAX: Final = 512 * 1024
"""A page ends with the line that reaches it; the reader asks for what follows."""
LINE_BYTES_MAX: Final = 64 * 1024
"""What a longer line has beyond is not shown."""
NOT_THERE: Final = "readLog fail, logFile not exists"


def page_of(chunks: Iterable[bytes], *, from_line: int, is_finished: bool) -> LogPage:
    """The page that begins at a line; the first is 1. Beyond the end it is empty and names the last
    line that there is.
    """
    begin = max(1, from_line)
    shown: list[bytes] = []
    shown_bytes = 0
    is_cut = False
    rest = iter(chunks)
    last, first = _passed(rest, begin - 1)
    for line, is_whole in _lines(chain((first,), rest)):
        if not is_whole and not is_finished:
            break
        if shown_bytes >= PAGE_BYTES_MAX:
            is_cut = True
            break
        last += 1
        if last >= begin:
            shown.append(line)
            shown_bytes += len(line)
    return LogPage(
        from_line,
        last,
        b"".join(shown).decode("utf-8", "replace"),
        is_end=is_finished and not is_cut,
    )


def not_there(from_line: int) -> LogPage:
    """The page of a log that is not there, or not any more."""
    return LogPage(from_line, 0, NOT_THERE, is_end=True)


def _passed(chunks: Iterator[bytes], lines: int) -> tuple[int, bytes]:
    """Pass over chunks in which none but the first `lines` lines begin, counting alone: a log may
    have millions of them. How many lines those had, and with which bytes to go on."""
    passed, begun = 0, b""
    for chunk in chunks:
        count = chunk.count(b"\n")
        if passed + count >= lines:
            return passed, chunk
        passed += count
        begun = chunk.rpartition(b"\n")[2] if count else begun or chunk
    return passed, begun  # Of a line that has no end: that it is there is what counts.


def _lines(chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Each line with its end, and whether it has one."""
    held = b""
    is_cut = False
    for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            whole = held if is_cut else held + part
            yield whole[:LINE_BYTES_MAX] + b"\n", True
            held, is_cut = b"", False
        if not is_cut:
            held = (held + rest)[:LINE_BYTES_MAX]
            is_cut = len(held) == LINE_BYTES_MAX
    if held:
        yield held, False
