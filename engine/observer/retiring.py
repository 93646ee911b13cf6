"""Retires a broker manually by reporting it as permanently gone.

Place in the walk: `tidemark observe --retire`. An observer that runs is asked to report it;
otherwise it is reported here.

Invariant: a broker that name servers list is not retired. Absent on purpose: shipping.
"""

from __future__ import annotations

from collections.abc import Collection

from engine.admin import Admin
from engine.foundation.errors import ConfigError
from engine.observer.broker_watch import BrokerWatch, Watched
from engine.observer.home_folder import (
    Known,
    Noted,
    ask_for_retirement,
    folder_of,
    known_brokers,
    note,
    take_home,
)
from engine.observer.observation import Observation
from engine.observer.question_turns import said_names
from engine.runtime import Runtime


def retired_brokers(
    runtime: Runtime, observation: Observation, names: Collection[str], listed: Collection[str]
) -> list[Known]:
    """The brokers of these names in the home. `listed`: those that name servers list, by name.

    Raises ConfigError for one that is listed, or that the home does not know.
    """
    known = list(known_brokers(runtime.disk, observation.home, observation.observer))
    found: list[Known] = []
    for name in names:
        if name in listed:
            wanted = (
                "a broker that the name servers do not list any more: stop it first; they forget "
                "it within two minutes"
            )
            raise ConfigError("retire", name, wanted)
        meant = [one for one in known if one.broker == name and _is_meant(one, observation)]
        if not meant:
            there = said_names({one.broker for one in known}) or "none"
            raise ConfigError(
                "retire", name, f"a broker of which {observation.home} has a spool: {there}"
            )
        if len(meant) > 1:
            clusters = said_names(one.cluster for one in meant)
            raise ConfigError(
                "retire", name, f"one of a cluster: choose by --cluster of {clusters}"
            )
        found += meant
    return found


async def retire(
    runtime: Runtime, admin: Admin, observation: Observation, brokers: Collection[Known]
) -> list[str] | None:
    """Report that these are gone; their folders, to be shipped. None: an observer runs, and has
    been asked to report it. Raises StorageError.
    """
    disk = runtime.disk
    folders = {
        one: folder_of(disk, observation.home, (one.cluster, one.broker, observation.observer))
        for one in brokers
    }
    lock = take_home(disk, observation.home, observation.observer)
    if lock is None:
        for folder in folders.values():
            ask_for_retirement(disk, folder)
        return None
    try:
        for one, folder in folders.items():
            watched = Watched(
                one.cluster, one.broker, observation.observer, folder, observation.period_ms
            )
            watch = BrokerWatch(runtime, admin, watched, one.noted.address)
            await watch.report_gone("it was retired by hand")
            noted = Noted(
                one.noted.address, one.noted.cluster, one.noted.name_servers, is_watched=False
            )
            note(disk, folder, noted)
    finally:
        lock.close()
    return list(folders.values())


def _is_meant(one: Known, observation: Observation) -> bool:
    """Of the clusters that were named, as the lake calls them or as their name servers do."""
    return not observation.clusters or bool(observation.clusters & {one.cluster, one.noted.cluster})
