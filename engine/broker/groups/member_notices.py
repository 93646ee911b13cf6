"""Notifies the members of a group that it has changed (NOTIFY_CONSUMER_IDS_CHANGED).

Place in the walk: behind membership; a member that gets one asks for the member list and
rebalances.

A group of MEMBER_NOTICES_AT_ONCE members is notified of each change at once, and so is a larger one
that had no notice for a while. It then rests for as long as MEMBER_NOTICES_PER_SECOND allows,
MEMBER_NOTICES_EACH_MS at most, and the changes meanwhile become one notice: otherwise ten thousand
members that leave one after the other would cause fifty million notices.

Invariant: every member at the end of a round was notified after the newest change that began it.
Absent on purpose: what changed; members ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from engine.broker.bounded_work import BoundedWork
from engine.broker.groups.consumer_groups import ConsumerGroup, ConsumerGroups
from engine.broker.groups.group_configs import GroupConfigs
from engine.foundation.limits import (
    LOOP_STEP_ENTRIES_MAX,
    MEMBER_NOTICES_AT_ONCE,
    MEMBER_NOTICES_EACH_MS,
    MEMBER_NOTICES_PER_SECOND,
)
from engine.foundation.units import SECOND_MS
from engine.protocol.codes import RequestCode
from engine.protocol.command import RemotingCommand
from engine.runtime.clock import Clock


class MemberNotices:
    """The groups whose members have to hear of a change."""

    def __init__(
        self,
        *,
        group_configs: GroupConfigs,
        groups: ConsumerGroups,
        clock: Clock,
        work: BoundedWork,
    ) -> None:
        self._group_configs = group_configs
        self._groups = groups
        self._clock = clock
        self._work = work
        self._rests_until_ms: dict[str, int] = {}
        """By group, on the steady clock; groups that rest no more are forgotten by `run`."""
        self._due: dict[str, None] = {}
        """Groups that changed while they rested."""
        self._resting = asyncio.Event()

    def want(self, group: ConsumerGroup) -> None:
        """The group changed: notify its members, unless the group's settings forbid it."""
        config = self._group_configs.look(group.name)
        if config is not None and not config.notify_consumer_ids_changed_enable:
            return
        now_ms = self._clock.steady_ms()
        if self._rests_until_ms.get(group.name, now_ms) > now_ms:
            self._due[group.name] = None
            return
        count = len(group.members)
        if count > MEMBER_NOTICES_AT_ONCE:
            rest_ms = min(count * SECOND_MS // MEMBER_NOTICES_PER_SECOND, MEMBER_NOTICES_EACH_MS)
            self._rests_until_ms[group.name] = now_ms + rest_ms
            self._resting.set()
        self._work.add(self._notified(group.name, group.member_ids()))

    async def run(self) -> None:
        """Report what changed while its group rested, until cancelled."""
        clock = self._clock
        while True:
            await self._resting.wait()
            now_ms = clock.steady_ms()
            for group in [one for one, end in self._rests_until_ms.items() if end <= now_ms]:
                del self._rests_until_ms[group]
                found = self._groups.of(group)
                if group in self._due:
                    del self._due[group]
                    if found is not None:
                        self.want(found)
            if self._rests_until_ms:
                rest_ms = min(self._rests_until_ms.values()) - now_ms
                await asyncio.sleep(max(1, rest_ms) / SECOND_MS)
            else:
                self._resting.clear()

    def _notified(self, name: str, member_ids: list[str]) -> Iterator[None]:
        for number, client_id in enumerate(member_ids, 1):
            group = self._groups.of(name)
            member = None if group is None else group.members.get(client_id)
            if member is not None:
                command = RemotingCommand.request(
                    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": name}
                )
                command.mark_oneway()
                member.channel.peer.send(command)
            if not number % LOOP_STEP_ENTRIES_MAX:
                yield
