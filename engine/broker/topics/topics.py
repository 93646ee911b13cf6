"""The broker's topic table: queues, permissions and attributes (topics.json).

Place in the walk: a send finds its topic here, or makes it after the template TBW102; every change
goes to the name servers. UPDATE_AND_CREATE_TOPIC carries changes of attributes as
`+key=value,-key`; the code that obeys an attribute defines its meaning.

Invariant: a topic's read and write queue counts are at least 1 and at most QUEUES_PER_TOPIC_MAX; it
holds known attributes with legal values only; the data version's counter grows with every change;
from the begin of a topic's deletion to its end nobody makes or changes it. Absent on purpose:
messages, offsets, files, what a deletion does, attributes that this engine could not keep a promise
about: they are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from engine.foundation.chunked_work import sorted_in_steps
from engine.foundation.errors import CorruptRecord, RequestRefused
from engine.foundation.limits import LOOP_STEP_ENTRIES_MAX, QUEUES_PER_TOPIC_MAX, TOPICS_MAX
from engine.protocol.bodies import DataVersion, TopicConfig, TopicConfigTable
from engine.protocol.codes import ResponseCode
from engine.protocol.names import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    TIMER_TOPIC,
    Perm,
    reply_topic,
)

DEDUPLICATION: Final = "message.deduplication"
"""Ours: store a message once, however often its producer sends it (see `sending/deduplication`)."""

TAG_FILTER: Final = "message.tag.filter"
"""Ours: what a consume queue keeps of a message's tags (see `engine.protocol.tag_bits`)."""

HASH, BITMAP = "HASH", "BITMAP"

FORCED_SHRINK: Final = "+queue.shrink=forced"
"""Ours: a word of a change and not kept: take the change although it strands messages."""


@dataclass(frozen=True, slots=True)
class _Attribute:
    allowed: tuple[str, ...]
    changeable: bool = True
    """May it change once the topic exists?"""


ATTRIBUTES: Final[Mapping[str, _Attribute]] = {
    DEDUPLICATION: _Attribute(("true", "false")),
    TAG_FILTER: _Attribute((HASH, BITMAP)),
    "message.type": _Attribute(("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")),
    "queue.type": _Attribute(("SimpleCQ",), changeable=False),
    "cleanup.policy": _Attribute(("DELETE",), changeable=False),
}
"""Every attribute a topic may have."""


def changed_attributes(current: Mapping[str, str] | None, change: str | None) -> dict[str, str]:
    """The attributes after `change`; `current` is None for a topic that is being made.

    Raises RequestRefused for a change that is no such text, or that the rules do not allow.
    """
    changed = dict(current or {})
    touched: list[str] = []
    for word in (change or "").split(","):
        if not word:
            continue
        key, value = _parsed(word)
        if key in touched:
            raise _refused(f"alter duplication key. key: {key}")
        touched.append(key)
        if value is None:
            if current is None:
                raise _refused(f"only add attribute is supported while creating topic. key: {key}")
            if key not in current:
                raise _refused(f"attempt to delete a nonexistent key: {key}")
        _check(key, value, is_new=current is None)
        if value is None:
            del changed[key]
        else:
            changed[key] = value
    return changed


def without_force(change: str | None) -> tuple[str, bool]:
    """The change less FORCED_SHRINK; was it in it?"""
    words = (change or "").split(",")
    rest = [word for word in words if word != FORCED_SHRINK]
    return ",".join(rest), len(rest) < len(words)


def tag_filter(attributes: Mapping[str, str]) -> str:
    """HASH: one tag a message, as in RocketMQ. BITMAP: several, as bits."""
    return attributes.get(TAG_FILTER, HASH)


def is_on(attributes: Mapping[str, str], key: str) -> bool:
    """Is an attribute of the kind yes or no set to yes?"""
    return attributes.get(key) == "true"


def _parsed(word: str) -> tuple[str, str | None]:
    """`+key=value` as both, `-key` as the key alone."""
    key, separator, value = word.partition("=")
    if separator and not key.startswith("+"):
        raise _refused(f"add/alter attribute format is wrong: {key}; write +key=value")
    if not separator and not key.startswith("-"):
        raise _refused(f"delete attribute format is wrong: {key}; write -key")
    return key[1:], value if separator else None


def _check(key: str, value: str | None, *, is_new: bool) -> None:
    attribute = ATTRIBUTES.get(key)
    if attribute is None:
        raise _refused(f"unsupported key: {key}; there are {', '.join(sorted(ATTRIBUTES))}")
    if not is_new and not attribute.changeable:
        raise _refused(f"attempt to update an unchangeable attribute. key: {key}")
    if value is not None and value not in attribute.allowed:
        raise _refused(f"attribute {key}={value}: value is not in set: {list(attribute.allowed)}")


def _refused(remark: str) -> RequestRefused:
    return RequestRefused(ResponseCode.SYSTEM_ERROR, remark)


TOPICS_PER_STEP = 8 * LOOP_STEP_ENTRIES_MAX
"""Topics that one step of the event loop writes: that is C."""

READ_WRITE = int(Perm.READ | Perm.WRITE)


class Topics:
    """The table of one broker."""

    def __init__(
        self, count_max: int = TOPICS_MAX, *, on_made: Callable[[str], None] = lambda _topic: None
    ) -> None:
        """`on_made` hears of each topic that is here and was not; not of those that are loaded."""
        self._count_max = count_max
        self._topics: dict[str, TopicConfig] = {}
        self.being_deleted: dict[str, None] = {}
        """Topics whose deletion has begun and not ended; `removing/deletion` keeps it."""
        self.counter = 0
        """Counter of the data version."""
        self._untold: dict[str, None] | None = None
        """Topics made or changed since `take_untold`; None: count all as such."""
        self._moved: dict[str, None] = {}
        """Topics made, changed or deleted since `take_moved`."""
        self._on_made = on_made
        self.on_put: Callable[[str], None] = lambda _topic: None
        """Called with a topic that was made or changed; whoever agrees with others on it is."""

    def add_system_topics(
        self,
        *,
        cluster_name: str,
        broker_name: str,
        delay_levels_count: int,
        template_queue_nums: int | None,
    ) -> None:
        """Make the topics every broker has; `template_queue_nums` None: no topics on demand."""
        for name, queue_nums, perm in (
            (SELF_TEST_TOPIC, 1, READ_WRITE),
            (SCHEDULE_TOPIC, delay_levels_count, READ_WRITE),
            (TIMER_TOPIC, 1, READ_WRITE),
            (HALF_TOPIC, 1, READ_WRITE),
            (OP_HALF_TOPIC, 1, READ_WRITE),
            (OFFSET_MOVED_TOPIC, 1, READ_WRITE),
            (BENCHMARK_TOPIC, 1024, READ_WRITE),
            (reply_topic(cluster_name), 1, READ_WRITE),
            (cluster_name, 16, READ_WRITE | Perm.INHERIT),
            (broker_name, 1, READ_WRITE | Perm.INHERIT),
        ):
            if name not in self._topics or name == SCHEDULE_TOPIC:
                self._topics[name] = _topic(name, queue_nums, perm)
        self.set_template(template_queue_nums)

    def set_template(self, queue_nums: int | None) -> None:
        """How many queues a topic made on demand may have; None: none is made."""
        if queue_nums is None:
            self._topics.pop(AUTO_CREATE_TOPIC, None)
        else:
            self._topics[AUTO_CREATE_TOPIC] = _topic(
                AUTO_CREATE_TOPIC, queue_nums, READ_WRITE | Perm.INHERIT
            )

    def touch(self) -> None:
        """Let the whole table count as changed: name servers take it over again."""
        self.counter += 1
        self._untold = None

    def take_untold(self) -> list[TopicConfig] | None:
        """The topics made or changed since the last call; None: the whole table counts as such."""
        untold, self._untold = self._untold, {}
        return None if untold is None else [self._topics[name] for name in untold]

    def take_moved(self) -> dict[str, None]:
        """Topics made, changed or deleted since the last call."""
        moved, self._moved = self._moved, {}
        return moved

    def find(self, topic: str) -> TopicConfig | None:
        """The topic's settings; None when it does not exist."""
        return self._topics.get(topic)

    def require(self, topic: str) -> TopicConfig:
        """As `find`, but a missing topic is refused with TOPIC_NOT_EXIST."""
        config = self._topics.get(topic)
        if config is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic}] not exist, apply first please! "
                "Create it, or let the broker do so (autoCreateTopicEnable)",
            )
        return config

    def __len__(self) -> int:
        """How many topics there are."""
        return len(self._topics)

    def queue_there(self, topic: str, queue_id: int) -> int:
        """Where a message for that queue goes now: one that was delayed, or half of a transaction,
        while its queue was taken away, goes where it can be read.
        """
        config = self._topics.get(topic)
        if config is None or queue_id < config.read_queue_nums:
            return queue_id
        return queue_id % min(config.read_queue_nums, config.write_queue_nums)

    def all(self) -> list[TopicConfig]:
        """Every topic, by name."""
        return [self._topics[name] for name in sorted(self._topics)]

    def create_like_template(
        self, topic: str, template: str, wanted_queue_nums: int
    ) -> TopicConfig | None:
        """Make a topic as its template allows; None when the template is no such thing.

        The producer's wish counts up to the template's queues.
        """
        model = self._topics.get(template)
        if model is None or not model.perm & Perm.INHERIT:
            return None
        queue_nums = max(1, min(wanted_queue_nums, model.write_queue_nums))
        return self.put(_topic(topic, queue_nums, model.perm & ~int(Perm.INHERIT)))

    def ensure(self, topic: str, queue_nums: int) -> tuple[TopicConfig, bool]:
        """The topic, made with read and write permission when missing; was it made?"""
        config = self._topics.get(topic)
        if config is not None:
            return config, False
        return self.put(_topic(topic, queue_nums, READ_WRITE)), True

    def put(self, config: TopicConfig) -> TopicConfig:
        """Create or replace a topic. Raises RequestRefused as `check` does, or for too many."""
        name = config.topic_name
        self.check(config)
        self.check_room([name])
        is_new = name not in self._topics
        self._topics[name] = config
        self._moved[name] = None
        self.counter += 1
        if self._untold is not None:
            self._untold[name] = None
        if is_new:
            self._on_made(name)
        self.on_put(name)
        return config

    def check_room(self, names: Iterable[str]) -> None:
        """Raise RequestRefused when topics with these names are too many more."""
        new = {name for name in names if name not in self._topics}
        if new and len(self._topics) + len(new) > self._count_max:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"topic {min(new)} is one too many: this broker holds {self._count_max} topics",
            )

    def check(self, config: TopicConfig) -> None:
        """Raise RequestRefused for queue counts or permissions out of range, or amid a deletion."""
        name = config.topic_name
        if name in self.being_deleted:
            raise RequestRefused(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"topic {name} is being deleted; it can be made again when that has ended",
            )
        for key, queue_nums in (
            ("readQueueNums", config.read_queue_nums),
            ("writeQueueNums", config.write_queue_nums),
        ):
            if not 1 <= queue_nums <= QUEUES_PER_TOPIC_MAX:
                raise RequestRefused(
                    ResponseCode.INVALID_PARAMETER,
                    f"topic {name}: {key}={queue_nums} is not in 1 to {QUEUES_PER_TOPIC_MAX}",
                )
        if not 0 <= config.perm <= READ_WRITE | Perm.INHERIT:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"topic {name}: perm={config.perm} is no sum of 4 (read), 2 (write) and "
                "1 (inherit)",
            )

    def delete(self, topic: str) -> bool:
        """Remove a topic; was it there?"""
        if self._topics.pop(topic, None) is None:
            return False
        self._moved[topic] = None
        self.counter += 1
        if self._untold is not None:
            self._untold.pop(topic, None)
        return True

    def table(self) -> dict[str, TopicConfig]:
        """name → settings, by name."""
        return {config.topic_name: config for config in self.all()}

    def encoded(self, pieces: list[bytes], version: DataVersion) -> Iterator[None]:
        """Write the table into `pieces` as topics.json, and the answer to code 21, have it; in
        steps of TOPICS_PER_STEP, of which each is reported as it is when it has its turn.
        """
        pieces.append(TopicConfigTable(version, {}).encode()[:-2])
        entries: dict[str, TopicConfig] = {}
        comma = b""
        for name in (yield from sorted_in_steps(self._topics)):
            config = self._topics.get(name)
            if config is not None:  # Else it was deleted meanwhile.
                entries[name] = config
            if len(entries) >= TOPICS_PER_STEP:
                pieces += (comma, msgspec.json.encode(entries)[1:-1])
                entries, comma = {}, b","
                yield
        if entries:
            pieces += (comma, msgspec.json.encode(entries)[1:-1])
        pieces.append(b"}}")

    def load(self, document: Mapping[str, Any]) -> None:
        """Take over topics.json as parsed. Raises CorruptRecord."""
        table = document.get("topicConfigTable")
        if not isinstance(table, Mapping):
            raise CorruptRecord("topics.json holds no topicConfigTable")
        self._topics = {str(name): TopicConfig.from_json(entry) for name, entry in table.items()}
        version = document.get("dataVersion")
        if isinstance(version, Mapping) and isinstance(version.get("counter"), int):
            self.counter = version["counter"]


def _topic(name: str, queue_nums: int, perm: int) -> TopicConfig:
    return TopicConfig(
        topic_name=name, read_queue_nums=queue_nums, write_queue_nums=queue_nums, perm=int(perm)
    )
