"""Reads kernel I/O statistics: unwritten pages and bytes fetched from storage.

Invariant: a figure that cannot be read is None, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_MEMORY = Path("/proc/meminfo")
_OWN_INPUT = Path("/proc/self/io")


@dataclass(frozen=True, slots=True)
class UnwrittenPages:
    """What the kernel holds of all files of the machine and a power cut would take."""

    dirty_bytes: int
    """Changed, and not yet on their way."""
    writeback_bytes: int
    """Being written to the device now."""


def unwritten_pages() -> UnwrittenPages | None:
    """Dirty and Writeback as the kernel counts them; None where it does not report."""
    try:
        text = _MEMORY.read_text(encoding="ascii")
    except OSError:
        return None
    return parse_memory(text)


def parse_memory(text: str) -> UnwrittenPages | None:
    """The two figures from the text of /proc/meminfo; None when one is missing."""
    kilobytes: dict[str, int] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        number = rest.removesuffix("kB").strip()
        if name in {"Dirty", "Writeback"} and number.isdecimal():
            kilobytes[name] = int(number)
    if len(kilobytes) != 2:
        return None
    return UnwrittenPages(kilobytes["Dirty"] * 1024, kilobytes["Writeback"] * 1024)


def fetched_bytes() -> int | None:
    """Bytes that this process has made the kernel read from storage since it began, ahead of what
    it asked for included; None where the kernel does not report.
    """
    try:
        text = _OWN_INPUT.read_text(encoding="ascii")
    except OSError:
        return None
    return parse_input(text)


def parse_input(text: str) -> int | None:
    """The figure from the text of /proc/self/io; None when it is missing."""
    for line in text.splitlines():
        name, _, number = line.partition(":")
        if name == "read_bytes" and number.strip().isdecimal():
            return int(number)
    return None
