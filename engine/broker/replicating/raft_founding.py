"""Decides whether a starting Raft node is a founder, the node it was, or a newcomer.

Place in the walk: before `raft_group` runs its node.

A group is founded once, by all its first members: each makes up the life of its disk, and founds
when all have named theirs. Who comes later, or lost its disk, has another life, which the founders
do not name: it is somebody new, and waits to be added.

Invariant: nobody takes the place of a disk that is gone. Absent on purpose: elections.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from engine.broker.replicating.raft_peers import Who
from engine.foundation.errors import CorruptRecord, StorageError, TidemarkError
from engine.foundation.units import SECOND_MS
from engine.raft.checked_file import read_checked, write_checked
from engine.raft.eligibility import Standing
from engine.raft.log_shape import Base, LogShape
from engine.raft.members import Members, NodeId, name_of, node_id
from engine.raft.node import Ports, begun_as_another, found_on, made_whole
from engine.raft.term_starts import StoredMarks, TermStarts
from engine.raft.vote_file import StoredVote, VoteFile
from engine.runtime import Runtime
from engine.store import MessageStore

ASK_EACH_MS: Final = SECOND_MS // 2
REPORT_EACH_MS: Final = 10 * SECOND_MS
_MARK: Final = b"TMRF"

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Founding:
    """What a node knows of the founding of its group, on disk."""

    runtime: Runtime
    folder: str
    name: str
    life: str = ""
    founders: tuple[NodeId, ...] = ()

    @property
    def _path(self) -> str:
        return f"{self.folder}/founding"

    def load(self) -> None:
        """Read it; a node that has none gets a life of its own. Raises StorageError."""
        document = read_checked(self.runtime.disk, self._path, _MARK)
        if document is None:
            self.life = self.runtime.entropy.token(8).hex()
            self._save()
            return
        try:
            self.life, self.founders = document["life"], tuple(document["founders"])
        except (KeyError, TypeError) as error:
            raise CorruptRecord(f"{self._path} is not as it was written: {error}") from error

    def found(self, founders: Sequence[NodeId]) -> None:
        """These are the founders. Raises StorageError."""
        self.founders = tuple(sorted(founders))
        self._save()

    def _save(self) -> None:
        document = {"life": self.life, "founders": list(self.founders)}
        write_checked(self.runtime.disk, self._path, _MARK, document)

    @property
    def node(self) -> NodeId:
        """Who this node would be as a founder."""
        return node_id(self.name, self.life)

    async def agree(
        self, others: Sequence[str], ask: Callable[[str], Awaitable[Who]]
    ) -> tuple[NodeId, ...]:
        """Wait until all who are to found the group have said who they are, or one of them says
        that it is founded; the founders.
        """
        if self.founders:
            return self.founders
        known: dict[str, NodeId] = {self.name: self.node}
        reported_ms: int | None = None
        while True:
            for name in others:
                try:
                    who = await ask(name)
                except TidemarkError:
                    continue
                if who.founders:
                    await self.runtime.disk.off_loop(partial(self.found, who.founders))
                    return self.founders
                if set(who.peers) != {self.name, *others}:  # Else there might be two groups.
                    known.pop(name, None)
                    _log.error("%s has other dLegerPeers: %s", name, ";".join(who.peers))
                    continue
                known[name] = who.node
            if len(known) == len(others) + 1:
                await self.runtime.disk.off_loop(partial(self.found, list(known.values())))
                return self.founders
            now_ms = self.runtime.clock.steady_ms()
            if reported_ms is None or now_ms - reported_ms >= REPORT_EACH_MS:
                reported_ms = now_ms
                missing = ", ".join(name for name in others if name not in known)
                _log.warning("the group is founded when all its nodes are there: %s", missing)
            await asyncio.sleep(ASK_EACH_MS / SECOND_MS)


async def shape_at_start(
    ports: Ports, store: MessageStore, founding: Founding, founders: Sequence[NodeId]
) -> LogShape:
    """The log with which this node goes on, its identity durable. Raises StorageError for a disk
    with which nobody can.
    """
    verdict = found_on(
        ports.runtime.disk,
        ports.folder,
        log_begin=store.physical_min,
        log_end=store.physical_max,
        has_holes=bool(store.holes.count),
    )
    is_founder = founding.node in founders
    if is_founder and (verdict.standing is Standing.NEW or _was_founding(ports, store)):
        base = Base(members=Members(tuple(founders)))
        disk = ports.runtime.disk
        vote = VoteFile(disk, ports.folder)
        await disk.off_loop(partial(TermStarts(disk, ports.folder).save, StoredMarks(base)))
        await disk.off_loop(partial(vote.save, StoredVote(founding.node)))
        return LogShape(base)
    if verdict.standing is Standing.NEW:
        _log.warning("%s is no member of the group: add it, by `replica add`", founding.name)
        return await begun_as_another(ports, founding.name, None)
    if verdict.standing is Standing.AS_IT_WAS:
        assert verdict.log is not None
        await made_whole(ports, verdict.log)
        stored = VoteFile(ports.runtime.disk, ports.folder).load()
        if stored is None or name_of(stored.node) == founding.name:
            return verdict.log
        # Others would write to where it was.
        _log.error("%s was %s: remove that one, then add this one", founding.name, stored.node)
        return await begun_as_another(ports, founding.name, verdict.log)
    if verdict.log is None:
        raise StorageError(
            f"{ports.folder}: {verdict.reason}. This node cannot go on: remove its store, start it "
            "again, take the old node out of the group and add the new one"
        )
    _log.error("%s is somebody new: %s", founding.name, verdict.reason)
    return await begun_as_another(ports, founding.name, verdict.log)


def _was_founding(ports: Ports, store: MessageStore) -> bool:
    """Did a start end between the files of a founding?"""
    disk, folder = ports.runtime.disk, ports.folder
    stored = TermStarts(disk, folder).load()
    is_begun = stored is not None and not stored.marks
    has_vote = disk.exists(VoteFile(disk, folder).path)
    return is_begun and not has_vote and store.physical_max == store.physical_min
