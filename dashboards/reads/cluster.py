"""Queries a running cluster for topic permissions, message locations and message traces.

Place in the walk: beside the lake. Invariant: no query is sent unless a name server was named at
the start. A query ends within ASK_WITHIN_S, its answer is kept for KEEP_S; while a cluster is out
of reach no other query is tried. What cannot be queried is a sentence in the answer, never an
error. The engine's client does not run on the server's loop (uvloop), so each query has a loop and
a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from engine.admin import Admin, TracedStep, admin_at
from engine.foundation.errors import TidemarkError, Unreachable

Answer = TypeVar("Answer")
ASK_WITHIN_S: Final = 5.0
KEEP_S: Final = 10.0
KEPT_MAX: Final = 64
THREADS: Final = 2
PERM_WRITE: Final = 2
SILENT: Final = "silent"
"""Under this key it is kept that the cluster did not answer, and why."""
NO_NAME_SERVER: Final = "no name server is asked"
NO_ANSWER: Final = "the cluster did not answer"
WAY: Final = "start this dashboard with `--namesrv HOST:PORT`"


@dataclass(frozen=True, slots=True)
class WriteQueues:
    """What a name server says of a topic on one broker."""

    broker: str
    write_queues: int
    may_write: bool
    cluster: str = ""
    """The broker's."""


@dataclass(frozen=True, slots=True)
class Route:
    """The brokers that take writes of a topic."""

    brokers: list[WriteQueues] | None
    reason: str = ""
    """Why nothing is known, in a few words; empty when somebody answered."""
    remedy: str = ""
    """The same in a sentence, with what to do."""

    def of_cluster(self, cluster: str) -> list[WriteQueues] | None:
        """What is known of one cluster's brokers; of all with an empty name."""
        if self.brokers is None or not cluster:
            return self.brokers
        return [one for one in self.brokers if one.cluster == cluster]


@dataclass(frozen=True, slots=True)
class StoredCopy:
    """A message as a broker stores it, without its body."""

    message_id: str
    keys: str | None
    topic: str
    broker: str | None
    queue_id: int
    offset: int
    stored_at: datetime | None
    born_at: datetime | None
    born_host: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ClusterStory:
    """What a cluster says of a text that somebody searched for."""

    asked: bool = False
    fault: str = ""
    """Why the cluster did not answer."""
    copies: tuple[StoredCopy, ...] = ()
    traces: tuple[TracedStep, ...] = ()
    has_trace_topic: bool = False

    @property
    def message_ids(self) -> list[str]:
        """The messages the text names, each once, oldest first."""
        return list(dict.fromkeys(copy.message_id for copy in self.copies))


class Cluster:
    """The cluster behind a name server, or none. Safe for use by several threads."""

    def __init__(self, namesrv: str | None = None, *, credentials: str | None = None) -> None:
        """Raises ConfigError for addresses or a file that are none."""
        self._namesrv = namesrv
        self._credentials = credentials
        self._threads = ThreadPoolExecutor(THREADS, "cluster")
        self._lock = threading.Lock()
        self._kept: dict[Any, tuple[float, Any]] = {}
        if namesrv is not None:
            admin_at(namesrv, credentials=credentials)

    async def route(self, topic: str) -> Route:
        """The brokers that take writes of a topic, as far as a name server can be asked."""
        if self._namesrv is None:
            return Route(
                None,
                NO_NAME_SERVER,
                f"Who may write is not in the lake; to ask the cluster, {WAY}.",
            )

        async def ask(admin: Admin) -> Route:
            route = await admin.topics.route(topic)
            found = route.queue_datas if route is not None else []
            brokers = route.broker_datas if route is not None else []
            clusters = {one.broker_name: one.cluster for one in brokers}
            return Route(
                [
                    WriteQueues(
                        one.broker_name,
                        one.write_queue_nums,
                        bool(one.perm & PERM_WRITE),
                        clusters.get(one.broker_name, ""),
                    )
                    for one in found
                ]
            )

        return await self._ask(
            ("route", topic),
            ask,
            lambda fault: Route(None, NO_ANSWER, f"Who may write is unknown: {fault}."),
        )

    async def story(self, topic: str, text: str) -> ClusterStory:
        """The messages of a topic that `text` names, and when it is one, its trace."""
        if self._namesrv is None:
            return ClusterStory()

        async def ask(admin: Admin) -> ClusterStory:
            return await story_of(admin, topic, text)

        return await self._ask(
            ("story", topic, text), ask, lambda fault: ClusterStory(asked=True, fault=fault)
        )

    async def _ask(
        self,
        key: Any,
        ask: Callable[[Admin], Awaitable[Answer]],
        otherwise: Callable[[str], Answer],
    ) -> Answer:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._answer, key, ask, otherwise)

    def _answer(
        self,
        key: Any,
        ask: Callable[[Admin], Awaitable[Answer]],
        otherwise: Callable[[str], Answer],
    ) -> Answer:
        silence = self._recall(SILENT)
        if silence is not None:
            return otherwise(silence)
        kept: Answer | None = self._recall(key)
        if kept is not None:
            return kept
        try:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                answer = runner.run(self._run(ask))
        except (Unreachable, TimeoutError) as error:
            fault = str(error) or f"no answer within {ASK_WITHIN_S:g} s"
            self._keep(SILENT, fault)
            return otherwise(fault)
        except TidemarkError as error:
            answer = otherwise(str(error))
        self._keep(key, answer)
        return answer

    async def _run(self, ask: Callable[[Admin], Awaitable[Answer]]) -> Answer:
        assert self._namesrv is not None
        async with (
            asyncio.timeout(ASK_WITHIN_S),
            admin_at(self._namesrv, credentials=self._credentials) as admin,
        ):
            return await ask(admin)

    def _recall(self, key: Any) -> Any:
        with self._lock:
            until, answer = self._kept.get(key, (0.0, None))
        return answer if time.monotonic() < until else None

    def _keep(self, key: Any, answer: Any) -> None:
        with self._lock:
            self._kept.pop(key, None)
            while len(self._kept) >= KEPT_MAX:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = (time.monotonic() + KEEP_S, answer)


async def story_of(admin: Admin, topic: str, text: str) -> ClusterStory:
    """What the cluster behind an admin client says. Raises TidemarkError."""
    names = {address: name for name, address in (await admin.cluster.masters()).items()}
    found = await admin.messages.find(topic, text)
    copies = tuple(_copy(one, names.get(one.store_host)) for one in found)
    ids = {copy.message_id for copy in copies} or {text}
    traces = await admin.messages.traced_steps(ids.pop()) if len(ids) == 1 else []
    return ClusterStory(
        asked=True,
        copies=copies,
        traces=tuple(traces),
        has_trace_topic=bool(traces) or await admin.messages.may_be_traced(),
    )


def _copy(message: Any, broker: str | None) -> StoredCopy:
    return StoredCopy(
        message_id=message.message_id,
        keys=message.keys,
        topic=message.topic,
        broker=broker,
        queue_id=message.queue_id,
        offset=message.queue_offset,
        stored_at=moment_of(message.store_timestamp_ms),
        born_at=moment_of(message.born_timestamp_ms),
        born_host=message.born_host,
        size_bytes=message.store_size_bytes,
    )


def moment_of(milliseconds: int | None) -> datetime | None:
    """A moment from a wire; None for one that no calendar has."""
    try:
        return datetime.fromtimestamp((milliseconds or 0) / 1000, UTC) if milliseconds else None
    except (OverflowError, OSError, ValueError):
        return None
