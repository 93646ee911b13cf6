"""Ledger in which consumers record each message that a listener starts to process.

Place in the walk: beside it. Nothing of it reaches the broker or the lake, so it is an independent
witness of messages delivered twice.

Invariant: a line is written by one call before the listener works, so it survives SIGKILL. Absent
on purpose: what was pulled and never begun; no listener saw it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.protocol.message import MessageExt


@dataclass(frozen=True, slots=True)
class Delivery:
    """A listener began with a message."""

    at_us: int
    """The machine's wall clock, µs since 1970 UTC."""
    group: str
    topic: str
    queue_id: int
    offset: int
    message_id: str
    client_id: str
    stored_us: int

    @property
    def queue(self) -> tuple[str, str, int]:
        """(group, topic, queue id)"""
        return self.group, self.topic, self.queue_id


class LedgerWriter:
    """Appends deliveries to a file."""

    def __init__(self, path: Path, group: str, client_id: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._group, self._client_id = group, client_id

    def note(self, messages: list[MessageExt]) -> None:
        """A listener begins with these."""
        at_us = time.time_ns() // 1000
        lines = [
            json.dumps(
                [
                    *(at_us, self._group, one.topic, one.queue_id, one.queue_offset),
                    *(one.message_id, self._client_id, one.store_timestamp_ms * 1000),
                ]
            )
            for one in messages
        ]
        os.write(self._file, ("\n".join(lines) + "\n").encode())


class Ledgers:
    """All ledgers of a folder, read on as they grow."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read_bytes: dict[Path, int] = {}
        self.deliveries: list[Delivery] = []

    def read_on(self) -> list[Delivery]:
        """What was written since the last look; a line that is not whole yet is left for later."""
        new = sorted(
            (one for path in sorted(self._folder.glob("*.jsonl")) for one in self._lines_of(path)),
            key=lambda one: one.at_us,
        )
        self.deliveries.extend(new)
        return new

    def _lines_of(self, path: Path) -> Iterator[Delivery]:
        begin = self._read_bytes.get(path, 0)
        with path.open("rb") as file:
            file.seek(begin)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes[path] = begin + len(whole)
        for line in whole.splitlines():
            yield Delivery(*json.loads(line))
