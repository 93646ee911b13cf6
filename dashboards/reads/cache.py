"""Bounded cache of query results that runs identical concurrent queries only once.

Invariant: a key names everything its answer depends on (table, version, question), so nothing here
ever expires; the least recently used goes first when room is needed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, Final

import polars as pl

CACHE_BYTES_MAX: Final = 256 * 1024 * 1024
PAGES_MAX: Final = 64
"""Finished contents of pages that are kept: one a range, group and theme that is looked at."""


class PageCache:
    """Finished contents of pages, for all readers who look at the same thing in the same cycle."""

    def __init__(self, pages_max: int = PAGES_MAX) -> None:
        self._pages_max = pages_max
        self._lock = threading.Lock()
        self._pages: OrderedDict[Hashable, tuple[Any, ...]] = OrderedDict()

    def get(self, key: Hashable, compute: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """The content of `key`, kept or made; an error of `compute` is not kept."""
        with self._lock:
            if key in self._pages:
                self._pages.move_to_end(key)
                return self._pages[key]
        made = compute()
        with self._lock:
            self._pages[key] = made
            while len(self._pages) > self._pages_max:
                self._pages.popitem(last=False)
        return made


class FrameCache:
    """Frames by key. Safe for use by several threads."""

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._lock = threading.Lock()
        self._frames: OrderedDict[Hashable, pl.DataFrame] = OrderedDict()
        self._under_way: dict[Hashable, Future[pl.DataFrame]] = {}

    @property
    def size_bytes(self) -> int:
        """What the kept frames take."""
        return self._bytes

    def get(self, key: Hashable, compute: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        """The frame of `key`: kept, awaited from whoever computes it now, or computed.

        An error of `compute` reaches everyone who waited for it; nothing of it is kept.
        """
        with self._lock:
            if key in self._frames:
                self._frames.move_to_end(key)
                return self._frames[key]
            waiting = self._under_way.get(key)
            if waiting is None:
                mine = self._under_way[key] = Future()
        if waiting is not None:
            return waiting.result()
        try:
            frame = compute()
        except BaseException as error:
            self._finish(key)
            mine.set_exception(error)
            raise
        self._keep(key, frame)
        self._finish(key)
        mine.set_result(frame)
        return frame

    def _finish(self, key: Hashable) -> None:
        with self._lock:
            del self._under_way[key]

    def _keep(self, key: Hashable, frame: pl.DataFrame) -> None:
        size = int(frame.estimated_size())
        if size > self._bytes_max:
            return
        with self._lock:
            self._frames[key] = frame
            self._bytes += size
            while self._bytes > self._bytes_max:
                _, oldest = self._frames.popitem(last=False)
                self._bytes -= int(oldest.estimated_size())
