"""Schedules requests to one broker within count and time limits, and reports failures.

Place in the walk: under `polling`.

Invariant: at most QUESTIONS_AT_ONCE of one broker are under way; a question without a usable answer
costs no other. Of `Turns`, what is urgent comes first, then what was asked longest ago; what there
was no time for is due again. Each kind of failure of a kind of question is reported once in the
life of an observer. Absent on purpose: which questions there are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from engine.foundation.errors import RequestRefused, TidemarkError
from engine.foundation.units import SECOND_MS
from engine.protocol.codes import ResponseCode
from engine.runtime.clock import Clock

Name = TypeVar("Name", bound=Hashable)


class Turns(Generic[Name]):
    """One kind of question, about each of many."""

    def __init__(self, count_max: int, *, first_max: int | None = None) -> None:
        """At most `count_max` a look; `first_max`, if more, while somebody was never asked."""
        self._usual_max = count_max
        self._first_max = count_max if first_max is None else first_max
        self._asked: dict[Name, int] = {}
        self._known_count = 0
        self.look = 0
        """Number of the newest look."""

    def due(
        self,
        everyone: Collection[Name],
        urgent: Iterable[Name] = (),
        *,
        of: Iterable[Name] | None = None,
    ) -> list[Name]:
        """Whom to ask in this look: of everyone, or `of` those alone, if given; when the others
        were asked is not forgotten.
        """
        self.look += 1
        known = set(everyone)
        self._known_count = len(known)
        self._asked = {name: at for name, at in self._asked.items() if name in known}
        if of is not None:
            known &= set(of)
        first = [name for name in dict.fromkeys(urgent) if name in known]
        count_max = self._usual_max if len(self._asked) == self._known_count else self._first_max
        room = count_max if len(known) <= count_max else count_max // 2
        first.sort(key=self._last_asked)
        chosen = dict.fromkeys(first[: max(room, count_max - (len(known) - len(first)))])
        for name in sorted(known - chosen.keys(), key=self._last_asked):
            if len(chosen) >= count_max:
                break
            chosen[name] = None
        return list(chosen)

    def begin(self, name: Name) -> None:
        """It is asked now."""
        self._asked[name] = self.look

    def were_all_asked_since(self, look: int, everyone: Collection[Name]) -> bool:
        """Was each of them asked in a look after this one?"""
        return all(self._asked.get(name, 0) > look for name in everyone)

    @property
    def has_new(self) -> bool:
        """Is there somebody, as of the newest look, who was never asked?"""
        return len(self._asked) < self._known_count

    def _last_asked(self, name: Name) -> tuple[int, str]:
        return self._asked.get(name, 0), str(name)


QUESTIONS_AT_ONCE: Final = 8
FAILURES_REPORTED_MAX: Final = 256
"""Kinds of failures that are reported of one broker; a broker may answer with any code."""
WORDS_CHARS_MAX: Final = 300
"""Characters of a broker's answer in one line of the log."""
NAMES_SAID_MAX: Final = 32

_log = logging.getLogger(__name__)
Asked = TypeVar("Asked")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of question."""

    words: str
    """What is asked for."""
    right: str
    """What the account needs, as RocketMQ's access lists (ACL 2.0) name it."""


BROKERS: Final = Kind("which brokers there are", "Get on Cluster:*")
FIGURES: Final = Kind("the broker's own figures", "Get on Cluster:*")
PROGRESS: Final = Kind("how far all groups are", "Get on Cluster:*")
TOPICS: Final = Kind("the list of topics", "Get on Topic:*")
GROUPS: Final = Kind("the list of groups", "Get on Group:*")
SETTINGS: Final = Kind("its settings", "Get on Cluster:*")
REPLICAS: Final = Kind("how far its slaves are", "Get on Cluster:*")
ENDS: Final = Kind("where the queues of a topic begin and end", "Get on Topic:*")
LIVES: Final = Kind("whether topics were made again", "Get on Topic:*")
CONNECTIONS: Final = Kind("who is connected of a group", "Get on Group:*")
PROXIES: Final = Kind("who is connected of a group with a proxy", "Get on Group:*")
MEMBERS: Final = Kind("what a member holds", "Get on Group:*")
MESSAGES: Final = Kind("a message", "Sub on Topic:* and on Group:TOOLS_CONSUMER")
TIME_SPANS: Final = Kind("how long messages wait", "Get on Topic:* and on Group:*")
FAILED: Final = Kind("messages that failed", MESSAGES.right)
CHECKPOINTS: Final = Kind("checkpoints of POP", MESSAGES.right)
ORIGINALS: Final = Kind("where messages that came back were first", MESSAGES.right)
_ACL_1_REFUSES: Final = "AclException"
_ASKS: Final = "ACL 1.0: any account that signs; Tidemark's accounts: a watcher"
_READS_MESSAGES: Final = "ACL 1.0 and Tidemark's accounts: SUB as default for topics and groups"
"""How other access lists name these rights."""


class Questions:
    """To one broker."""

    def __init__(self, broker_name: str, clock: Clock) -> None:
        self._broker_name = broker_name
        self._clock = clock
        self._reported: dict[tuple[Kind, str], None] = {}

    async def each(
        self,
        kind: Kind,
        turns: Turns[Asked],
        wanted: Iterable[Asked],
        ask: Callable[[Asked], Awaitable[None]],
        *,
        until_ms: int,
    ) -> None:
        """Ask about each, until that moment of steady time."""
        due = list(wanted)
        waiting = iter(due)

        async def ask_on() -> None:
            for about in waiting:
                turns.begin(about)
                try:
                    await ask(about)
                except TidemarkError as error:
                    self.failed(kind, str(about), error)

        try:
            async with (
                asyncio.timeout(max(0, until_ms - self._clock.steady_ms()) / SECOND_MS),
                asyncio.TaskGroup() as questions,
            ):
                for _ in due[:QUESTIONS_AT_ONCE]:
                    questions.create_task(ask_on())
        except TimeoutError:
            self.doubted(kind, "slow", f"there was no time to ask for all {len(due)}")

    def failed(self, kind: Kind, about: str, error: TidemarkError) -> None:
        """A question had no answer that counts."""
        code = f" {error.code}" if isinstance(error, RequestRefused) else ""
        words = f"{about}: {why(kind, error)}" if about else why(kind, error)
        self.doubted(kind, f"{type(error).__name__}{code}", words)

    def doubted(self, kind: Kind, reason: str, words: str) -> None:
        """Something is wrong with a kind of question: reported once for each reason."""
        if (kind, reason) in self._reported or len(self._reported) >= FAILURES_REPORTED_MAX:
            return
        self._reported[kind, reason] = None
        _log.warning("%s, asked for %s: %s", self._broker_name, kind.words, words)


def lacks_a_right(error: BaseException) -> bool:
    """Was it refused for want of a right? Brokers with ACL 1.0 say so in words alone."""
    if not isinstance(error, RequestRefused):
        return False
    is_acl_1 = error.code == ResponseCode.SYSTEM_ERROR and _ACL_1_REFUSES in error.remark
    return is_acl_1 or error.code == ResponseCode.NO_PERMISSION


def why(kind: Kind, error: BaseException) -> str:
    """Why a question of this kind has no answer; with the right that the account lacks."""
    if lacks_a_right(error):
        elsewhere = _READS_MESSAGES if kind.right == MESSAGES.right else _ASKS
        return f"{said(error)}; the account lacks a right: {kind.right} ({elsewhere})"
    return said(error)


def said_names(names: Iterable[str]) -> str:
    """Names from outside, sorted, as one line; of many the first."""
    listed = ", ".join(sorted(names)[:NAMES_SAID_MAX])
    return "".join(char if char.isprintable() else " " for char in listed)[: 2 * WORDS_CHARS_MAX]


def said(error: BaseException) -> str:
    """An error as one line: what a broker says may have any length and any character."""
    words = str(error)[: 2 * WORDS_CHARS_MAX] or type(error).__name__
    line = "".join(char if char.isprintable() else " " for char in words)
    return " ".join(line.split())[:WORDS_CHARS_MAX]
