"""An observer's home folder, which holds a spool and saved state for each broker.

Place in the walk: `cluster_watch` asks here for a broker's folder, and for brokers of earlier runs.

    HOME/.OBSERVER.lock                        one process a home and observer
    HOME/CLUSTER/BROKER/OBSERVER/spool         the facts
    HOME/CLUSTER/BROKER/OBSERVER/watched.json  where the broker was, and whether it is watched
    HOME/CLUSTER/BROKER/OBSERVER/retire        somebody says that the broker is gone
    HOME/CLUSTER/BROKER/spool                  as earlier versions had it: used on

Invariant: a folder has the spool of one emitter. Absent on purpose: facts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from engine.foundation.errors import CorruptRecord, StorageError
from engine.runtime import Disk, File
from engine.runtime.durable import make_durable, replace_durably
from engine.telemetry.segments import emitter_of
from engine.telemetry.telemetry import SPOOL_DIRECTORY

WATCHED_NAME: Final = "watched.json"
RETIRED_NAME: Final = "retire"

_log = logging.getLogger(__name__)


class Noted(msgspec.Struct, frozen=True):
    """What was known of a broker."""

    address: str
    cluster: str
    """As its own name servers call it."""
    name_servers: str = ""
    """Those that reported it."""
    is_watched: bool = True
    """False: it was reported to be gone."""


@dataclass(frozen=True, slots=True)
class Known:
    """A broker of an earlier run."""

    cluster: str
    """As the lake calls it."""
    broker: str
    noted: Noted


def take_home(disk: Disk, home: str, observer: str) -> File | None:
    """Lock the home for this process; closing the file lets it go. None: another process has it.
    Raises StorageError when it cannot be written.
    """
    make_durable(disk, home)
    lock_file = disk.open(lock_path(home, observer), create=True)
    if not lock_file.lock():
        lock_file.close()
        return None
    return lock_file


def lock_path(home: str, observer: str) -> str:
    """The file that one process has."""
    return f"{home}/.{observer}.lock"


def folder_of(disk: Disk, home: str, emitter: tuple[str, str, str]) -> str:
    """The folder of the spool of an emitter (cluster, broker, observer). Raises StorageError."""
    cluster, broker, observer = emitter
    older = f"{home}/{cluster}/{broker}"
    spool = f"{older}/{SPOOL_DIRECTORY}"
    is_older = disk.is_directory(spool) and emitter_of(disk, spool) == "/".join(emitter)
    return older if is_older else f"{older}/{observer}"


def note(disk: Disk, folder: str, noted: Noted) -> None:
    """Write what is known of a broker. Raises StorageError."""
    make_durable(disk, folder)
    if noted_in(disk, folder) != noted:
        replace_durably(disk, f"{folder}/{WATCHED_NAME}", msgspec.json.encode(noted))


def ask_for_retirement(disk: Disk, folder: str) -> None:
    """Notify the process that observes that the broker is gone for good. Raises StorageError."""
    replace_durably(disk, f"{folder}/{RETIRED_NAME}", b"")


def take_retirement(disk: Disk, folder: str) -> bool:
    """Has somebody said that the broker is gone? It is said once."""
    path = f"{folder}/{RETIRED_NAME}"
    if not disk.exists(path):
        return False
    try:
        disk.remove(path)
    except StorageError as error:
        _log.error("%s: %s", path, error)
    return True


def noted_in(disk: Disk, folder: str) -> Noted | None:
    """What an earlier run knew; None when it wrote nothing, or nothing that can be read."""
    path = f"{folder}/{WATCHED_NAME}"
    if not disk.exists(path):
        return None
    try:
        return msgspec.json.decode(disk.read(path), type=Noted)
    except (msgspec.MsgspecError, StorageError) as error:
        _log.warning("%s is passed over: %s", path, error)
        return None


def known_brokers(disk: Disk, home: str, observer: str) -> Iterator[Known]:
    """The brokers that this observer has a folder of. Raises StorageError."""
    for cluster in _folders(disk, home):
        for broker in _folders(disk, f"{home}/{cluster}"):
            try:
                folder = folder_of(disk, home, (cluster, broker, observer))
            except CorruptRecord as error:
                _log.warning("%s/%s/%s is passed over: %s", home, cluster, broker, error)
                continue
            noted = noted_in(disk, folder)
            if noted is None and disk.is_directory(f"{folder}/{SPOOL_DIRECTORY}"):
                noted = Noted("", cluster)  # An earlier version noted nothing.
            if noted is not None:
                yield Known(cluster, broker, noted)


def _folders(disk: Disk, path: str) -> list[str]:
    if not disk.is_directory(path):
        return []
    return [name for name in disk.names(path) if disk.is_directory(f"{path}/{name}")]
