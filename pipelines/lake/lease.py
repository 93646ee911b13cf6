"""Grants leases so that at most one process per lake performs each role.

On a disk the kernel keeps the lease: a lock on <lake>/state/leases/<role>.json, freed with its
process; it is lost when that file is moved away. In an object store the file is the lease: made,
renewed each HEARTBEAT_S and taken over by conditional puts. A holder that seems not to have renewed
for STALE_AFTER_S is watched for two heartbeats more; clocks of other machines only make this later.
Who waits for work says so with each renewal, so that others distinguish a lake to which nothing
comes from one that nobody tends.

Invariant: at most one process has a lease whose `is_held` is true. A holder that cannot renew is no
longer sure of it before anybody may take it over; one that was replaced sees `is_lost`. Absent on
purpose: waiting for a lease, and fencing of writes, which are exactly once by their Delta
transactions.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
import socket
import threading
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from engine.foundation.errors import LakeError
from pipelines.lake.lake import Lake
from pipelines.lake.small_files import Held, SmallFiles

HEARTBEAT_S: Final = 10.0
"""How often a holder says that it is there."""

STALE_AFTER_S: Final = 30.0
"""After this long without a sign of life the lease may be taken over."""

LEASES: Final = "leases"
DRIVER: Final = "pipeline"
"""The role of the process that computes a lake's gold."""

_log = logging.getLogger(__name__)


class LeaseHeld(LakeError):
    """Another process holds the lease; the message says which and since when."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lease, as its file says."""

    role: str
    host: str
    pid: int
    since: str
    """When it was acquired, ISO 8601, UTC, by the holder's clock."""
    token: str
    """Different for each lease ever acquired."""
    renewed: str
    """The last sign of life, as `since`."""
    released: bool = False
    """Given back: anybody may have it at once."""
    looked: str = ""
    """When a holder of this role looked for work last and there was none, as `since`; empty: never.
    It is handed on from holder to holder."""

    def as_bytes(self) -> bytes:
        """The content of the lease's file."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(values, indent=1).encode()

    @staticmethod
    def parse(data: bytes) -> Holder | None:
        """The lease in a file's bytes; None when they say nothing that is understood."""
        try:
            # What follows is the end of a longer text that was there before.
            values, _ = json.JSONDecoder().raw_decode(data.decode())
            return Holder(
                role=str(values["role"]),
                host=str(values["host"]),
                pid=int(values["pid"]),
                since=str(values["since"]),
                token=str(values["token"]),
                renewed=str(values["renewed"]),
                released=bool(values["released"]),
                looked=str(values.get("looked", "")),
            )
        except (ValueError, KeyError, TypeError):
            return None

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


def acquire(
    lake: Lake,
    role: str,
    *,
    heartbeat_s: float = HEARTBEAT_S,
    stale_after_s: float = STALE_AFTER_S,
    makes_lake: bool = False,
) -> Lease:
    """The lease of a role on a lake, renewed by a thread until it is released. `makes_lake`: the
    folder of the lake may be missing yet, and is made.

    Raises LeaseHeld when another process has it, LakeError when the lake cannot be written. It
    returns or refuses at once, but for the two heartbeats for which a stale holder is watched.
    """
    assert heartbeat_s * 3 <= stale_after_s, "two renewals may fail before a lease is stale"
    if not makes_lake:
        lake.demand_folder()
    holder = _myself(role)
    address = f"{lake.state(LEASES)}/{role}.json"
    files = SmallFiles(lake)
    body: _LocalLease | _StoredLease
    if files.is_local:
        body = _LocalLease.take(address, holder, stale_after_s)
    else:
        body = _StoredLease.take(files, address, holder, (heartbeat_s, stale_after_s))
    return Lease(holder, body, heartbeat_s=heartbeat_s, stale_after_s=stale_after_s)


def holder_of(lake: Lake, role: str) -> Holder | None:
    """Who holds a role's lease as far as its file says, dead or alive; None when it was given back
    or never taken."""
    held = SmallFiles(lake).read(f"{lake.state(LEASES)}/{role}.json")
    holder = None if held is None else Holder.parse(held.data)
    return None if holder is None or holder.released else holder


def idle_at(lake: Lake, role: str) -> datetime | None:
    """When a holder of a role looked for work last and found none, by its clock, to a heartbeat;
    None when none ever reported, or nobody can say."""
    try:
        held = SmallFiles(lake).read(f"{lake.state(LEASES)}/{role}.json")
    except LakeError:
        return None
    holder = None if held is None else Holder.parse(held.data)
    try:
        return None if holder is None else datetime.fromisoformat(holder.looked)
    except ValueError:
        return None


class Lease:
    """A lease that this process has acquired. Leave its context, or `release` it."""

    def __init__(
        self,
        holder: Holder,
        body: _LocalLease | _StoredLease,
        *,
        heartbeat_s: float,
        stale_after_s: float,
    ) -> None:
        self.holder: Final = holder
        self._body = body
        self._heartbeat_s = heartbeat_s
        self._sure_s = stale_after_s - heartbeat_s
        self._renewed_s = body.asked_s
        self._lost = False
        self._looked = ""
        self._ended = threading.Event()
        self._beating = threading.Thread(
            target=self._beat, name=f"lease-{holder.role}", daemon=True
        )
        self._beating.start()

    @property
    def is_held(self) -> bool:
        """May this process act for the role now? False while it cannot renew: it may come back."""
        if self._lost or self._ended.is_set():
            return False
        if isinstance(self._body, _LocalLease):
            return self._body.is_there()
        return time.monotonic() - self._renewed_s < self._sure_s

    @property
    def is_lost(self) -> bool:
        """Another process has taken the lease over: this one does not get it back."""
        return self._lost

    def found_nothing(self) -> None:
        """Its holder has looked for work, and there is none: the next renewal says so."""
        self._looked = _now()

    def release(self) -> None:
        """Give the lease back. A store that cannot be asked leaves it to grow stale."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._beating.join()
        try:
            self._body.release()
        except LakeError as error:
            _log.warning("the lease %s is not given back (%s)", self.holder.role, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _beat(self) -> None:
        while not self._ended.wait(self._heartbeat_s):
            asked_s = time.monotonic()
            try:
                if not self._body.renew(self._looked):
                    self._lost = True
                    _log.error(
                        "the lease %s was taken over by another, or its file was moved away",
                        self.holder.role,
                    )
                    return
                self._renewed_s = asked_s
            except (LakeError, OSError) as error:
                _log.warning("the lease %s is not renewed (%s)", self.holder.role, error)


class _LocalLease:
    """A lock of the kernel on a file that shows who has it: it needs no sign, for the kernel knows
    whether the holder lives. A lock on a file that was moved away keeps nobody from the next one.
    """

    def __init__(self, address: str, descriptor: int, holder: Holder) -> None:
        self.asked_s: Final = time.monotonic()
        self._address = address
        self._descriptor = descriptor
        self._holder = holder

    @classmethod
    def take(cls, address: str, holder: Holder, stale_after_s: float) -> _LocalLease:
        try:
            Path(address).parent.mkdir(parents=True, exist_ok=True)
            # Closed on exec: a child that lives on would keep the lock.
            descriptor = os.open(address, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise LakeError(f"{address} cannot be written ({error})") from error
        try:
            cls._lock(descriptor, address, holder, stale_after_s)
            holder = _after(holder, _read_all(descriptor))
            lease = cls(address, descriptor, holder)
            lease._write(holder)
            if not lease.is_there():
                raise LakeError(f"{address} was moved away while it was being acquired; try again")
        except BaseException:
            os.close(descriptor)
            raise
        return lease

    @staticmethod
    def _lock(descriptor: int, address: str, holder: Holder, stale_after_s: float) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _refusal(address, holder.role, _read_all(descriptor)) from error
        other = Holder.parse(_read_all(descriptor))
        # Over some network file systems a lock is known to its own machine alone.
        silent_s = time.time() - os.fstat(descriptor).st_mtime
        if (
            other is not None
            and not other.released
            and other.host != holder.host
            and silent_s < stale_after_s
        ):
            raise _refusal(address, holder.role, other.as_bytes())

    def is_there(self) -> bool:
        """Is the file that is locked still the one that others ask for?"""
        try:
            return os.path.samestat(Path(self._address).stat(), os.fstat(self._descriptor))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def renew(self, looked: str = "") -> bool:
        """Report that the holder is there, and when it found nothing to do; False when somebody
        else wrote his name there, or may.
        """
        if not self.is_there():
            return False
        written = Holder.parse(_read_all(self._descriptor))
        if written is not None and written.token != self._holder.token:
            return False
        self._holder = _renewed(self._holder, looked)
        self._write(self._holder)
        return True

    def release(self) -> None:
        try:
            self._write(replace(self._holder, released=True))
        finally:
            os.close(self._descriptor)

    def _write(self, holder: Holder) -> None:
        data = holder.as_bytes()
        os.pwrite(self._descriptor, data, 0)
        os.ftruncate(self._descriptor, len(data))


class _StoredLease:
    """A file of an object store, which changes by conditional puts alone."""

    def __init__(
        self, files: SmallFiles, address: str, holder: Holder, tag: str, *, asked_s: float
    ) -> None:
        self.asked_s: Final = asked_s
        """Before the put that made the lease its holder's, by the clock of `time.monotonic`: the
        store may answer late, and others count from what the file says."""
        self._files = files
        self._address = address
        self._holder = holder
        self._tag = tag

    @classmethod
    def take(
        cls, files: SmallFiles, address: str, holder: Holder, times_s: tuple[float, float]
    ) -> _StoredLease:
        heartbeat_s, stale_after_s = times_s
        asked_s = time.monotonic()
        files.create(address, holder.as_bytes())
        there = _there(files, address)
        if cls._is_mine(holder, there):
            return cls(files, address, holder, there.tag, asked_s=asked_s)
        other = Holder.parse(there.data)
        if other is not None and not other.released:
            if _age_s(other) < stale_after_s:
                raise _refusal(address, holder.role, there.data)
            _log.info("the lease %s of %s seems stale: watching it", holder.role, other)
            time.sleep(2 * heartbeat_s)
            later = _there(files, address)
            if later.tag != there.tag:
                raise _refusal(address, holder.role, later.data)
        asked_s = time.monotonic()
        holder = _after(replace(holder, renewed=_now()), there.data)
        files.replace_if(address, holder.as_bytes(), tag=there.tag)
        there = _there(files, address)
        if cls._is_mine(holder, there):
            return cls(files, address, holder, there.tag, asked_s=asked_s)
        raise _refusal(address, holder.role, there.data)

    @staticmethod
    def _is_mine(holder: Holder, there: Held) -> bool:
        """Asked of the file itself: a put that was repeated may have been refused by its own first
        try."""
        written = Holder.parse(there.data)
        return written is not None and written.token == holder.token

    def renew(self, looked: str = "") -> bool:
        self._holder = _renewed(self._holder, looked)
        return self._write(self._holder)

    def release(self) -> None:
        self._write(replace(self._holder, released=True))

    def _write(self, holder: Holder) -> bool:
        tag = self._files.replace_if(self._address, holder.as_bytes(), tag=self._tag)
        if tag is None:
            there = _there(self._files, self._address)
            if not self._is_mine(holder, there):
                return False
            tag = there.tag
        self._tag = tag
        return True


def _there(files: SmallFiles, address: str) -> Held:
    held = files.read(address)
    if held is None:
        raise LakeError(f"{address} was removed while it was being acquired; try again")
    return held


def _myself(role: str) -> Holder:
    now = _now()
    return Holder(role, socket.gethostname(), os.getpid(), now, secrets.token_hex(16), now)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _renewed(holder: Holder, looked: str) -> Holder:
    return replace(holder, renewed=_now(), looked=looked or holder.looked)


def _after(holder: Holder, before: bytes) -> Holder:
    """The next holder of a role: what the one before it has seen is not forgotten."""
    other = Holder.parse(before)
    return holder if other is None else replace(holder, looked=other.looked)


def _age_s(holder: Holder) -> float:
    """Seconds since the holder's last sign, as far as two clocks agree."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(holder.renewed)).total_seconds()
    except (ValueError, TypeError):
        return float("inf")


def _read_all(descriptor: int) -> bytes:
    return os.pread(descriptor, 65_536, 0)


def _refusal(address: str, role: str, content: bytes) -> LeaseHeld:
    other = Holder.parse(content)
    who = "somebody who gave no name" if other is None else str(other)
    return LeaseHeld(
        f"one {role} a lake: {who}, is at work there ({address}); stop it first, or wait "
        f"{STALE_AFTER_S:.0f} s if it is gone"
    )
