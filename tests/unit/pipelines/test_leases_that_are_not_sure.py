"""A holder is sure of its lease for less long than others wait before they take it over."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Final, cast

from pipelines.lake.lake import Lake
from pipelines.lake.lease import Holder, Lease, _StoredLease
from pipelines.lake.small_files import SmallFiles

HEARTBEAT_S: Final = 0.1
STALE_AFTER_S: Final = 0.6
SURE_S: Final = STALE_AFTER_S - HEARTBEAT_S
HOLDER: Final = Holder("pipeline", "here", 7, "2026-03-01", "token", "2026-03-01")


class SlowStore:
    """A lease in a store that answers each renewal when it is allowed to."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.answers = threading.Semaphore(0)
        self.asked_s = time.monotonic()
        self.renewing_s = 0.0
        self.looked = ""

    def renew(self, looked: str = "") -> bool:
        self.looked = looked
        self.renewing_s = time.monotonic()
        self.asked.release()
        assert self.answers.acquire(timeout=30)
        return True

    def release(self) -> None:
        pass


def held_by(store: SlowStore) -> Lease:
    body = cast("_StoredLease", store)
    return Lease(HOLDER, body, heartbeat_s=HEARTBEAT_S, stale_after_s=STALE_AFTER_S)


def test_a_holder_that_cannot_renew_doubts_it_before_anybody_may_take_it_over() -> None:
    store = SlowStore()
    lease = held_by(store)
    begun_s = time.monotonic()
    while True:
        at_s = time.monotonic()
        if not lease.is_held:
            break
        assert at_s - begun_s < SURE_S
        time.sleep(0.001)
    assert not lease.is_lost, "the store may answer yet"
    store.answers.release(100)
    lease.release()


class LateFiles(SmallFiles):
    """A store that has written a file some time before it says so."""

    written_s = 0.0

    def create(self, address: str, data: bytes) -> bool:
        is_new = super().create(address, data)
        self.written_s = time.monotonic()
        return is_new


def test_a_lease_that_the_store_granted_late_counts_from_when_it_was_asked_for(
    tmp_path: Path,
) -> None:
    files, address = LateFiles(Lake.at(str(tmp_path))), str(tmp_path / "pipeline.json")
    body = _StoredLease.take(files, address, HOLDER, (HEARTBEAT_S, STALE_AFTER_S))
    assert body.asked_s < files.written_s
    store = SlowStore()
    store.asked_s -= SURE_S
    lease = held_by(store)
    assert not lease.is_held
    store.answers.release(100)
    lease.release()


def test_a_late_answer_of_the_store_does_not_make_a_holder_sure_of_what_may_be_taken() -> None:
    """Others count from when the renewal was asked for; the next one is asked for in time."""
    store = SlowStore()
    lease = held_by(store)
    assert store.asked.acquire(timeout=30)
    while time.monotonic() <= store.renewing_s + SURE_S:
        time.sleep(0.01)
    store.answers.release()
    assert store.asked.acquire(timeout=30), "the answer has come, and the next renewal is asked for"
    assert not lease.is_held
    store.answers.release(1000)
    deadline_s = time.monotonic() + 30
    while not lease.is_held:
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    lease.release()
