"""Asks a cluster's proxies, in one look, for the members of a group connected to them.

Place in the walk: under `asking`, which makes one for each look.

Invariant: a proxy that does not answer is asked no more in that look, so it costs one question and
not the time of the others. Absent on purpose: what the answers mean (`proxies`).
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.admin import Admin
from engine.foundation.errors import RequestRefused, TidemarkError
from engine.observer.questions import PROXIES, Questions
from engine.protocol.bodies import ConsumerConnection
from engine.protocol.codes import ResponseCode


class ProxiesAsked:
    """The proxies, as they answer in this look."""

    def __init__(self, admin: Admin, questions: Questions, addresses: Sequence[str]) -> None:
        self._admin = admin
        self._questions = questions
        self._addresses = addresses
        self._silent: dict[str, None] = {}
        self._answered: dict[str, None] = {}

    @property
    def is_answered(self) -> bool:
        """Has one of them answered, and is it still not silent?"""
        return any(one not in self._silent for one in self._answered)

    async def connected(self, group: str) -> list[tuple[str, ConsumerConnection]]:
        """By proxy, who is connected of the group."""
        found: list[tuple[str, ConsumerConnection]] = []
        for address in self._addresses:
            if address in self._silent:
                continue
            try:
                connections = await self._admin.groups.connections(address, group)
            except RequestRefused as error:
                if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                    self._fail(address, error)
                    continue
            except TidemarkError as error:
                self._fail(address, error)
                continue
            else:
                found.append((address, connections))
            self._answered[address] = None
        return found

    def _fail(self, address: str, error: TidemarkError) -> None:
        self._silent[address] = None
        self._questions.failed(PROXIES, address, error)
