"""Table of consumer-group settings and deleted groups (subscriptionGroup.json).

Place in the walk: pulls and send-backs look their group up; RocketMQ's command line creates,
changes and lists them. `removing/deletion` notes a group before its deletion is answered;
consumerOffset.json says after how many deletions it was written, and what it holds of a group
deleted later is void.

Invariant: a group that may not be created on demand has to be created first; those of the system
always may; nobody makes one while it is being deleted. A deleted group is noted until the file of
offsets and the version before it were both begun after its deletion. Absent on purpose: members,
offsets, deletions of topics (`store/tombstones`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.foundation.chunked_work import sorted_in_steps
from engine.foundation.errors import CorruptRecord, RequestRefused
from engine.foundation.limits import (
    DELETED_GROUPS_NOTED_MAX,
    GROUP_ATTRIBUTES_CHARS_MAX,
    GROUPS_MAX,
    LOOP_STEP_ENTRIES_MAX,
    QUEUES_PER_TOPIC_MAX,
)
from engine.protocol.codes import ResponseCode
from engine.protocol.fastjson import dumps
from engine.protocol.names import check_group

DELETED_GROUPS = "deletedGroups"
GROUP_DELETIONS = "groupDeletions"


class DeletedGroups:
    """The notes of one broker."""

    def __init__(self, names_max: int = DELETED_GROUPS_NOTED_MAX) -> None:
        self.names_max = names_max
        self.deletions = 0
        """How many deletions of groups were noted, ever."""
        self._numbers: dict[str, int] = {}
        """Group → number of its latest deletion, in ascending order."""
        self._deletions_in_file = 0
        """After how many of them the file of offsets was begun."""

    @property
    def is_full(self) -> bool:
        """Must the file of offsets be written before another group is noted?"""
        return len(self._numbers) >= self.names_max

    def note(self, group: str) -> None:
        """The group was deleted just now."""
        self.deletions += 1
        self._numbers.pop(group, None)
        self._numbers[group] = self.deletions

    def after(self, deletions: int) -> list[str]:
        """Groups deleted later than so many deletions ago."""
        return [group for group, number in self._numbers.items() if number > deletions]

    def written(self, deletions: int) -> None:
        """A file of offsets that was begun after so many deletions is on disk, beside the version
        before it."""
        over, self._deletions_in_file = self._deletions_in_file, deletions
        self._numbers = {group: number for group, number in self._numbers.items() if number > over}

    def expect(self, deletions: int) -> None:
        """The file of offsets was written after so many deletions: numbers go on behind them."""
        self.deletions = max(self.deletions, deletions)
        self._deletions_in_file = deletions

    def to_document(self) -> dict[str, object]:
        """Fields of our own in subscriptionGroup.json; none before the first deletion."""
        if not self.deletions:
            return {}
        return {GROUP_DELETIONS: self.deletions, DELETED_GROUPS: dict(self._numbers)}

    def load(self, document: Mapping[str, object]) -> None:
        """Take over the fields of subscriptionGroup.json, if it has any. Raises CorruptRecord."""
        deletions, numbers = document.get(GROUP_DELETIONS, 0), document.get(DELETED_GROUPS, {})
        if type(deletions) is not int or not isinstance(numbers, Mapping):
            raise CorruptRecord(
                f"subscriptionGroup.json: {GROUP_DELETIONS} is {deletions!r}, not a number, or "
                f"{DELETED_GROUPS} is not a table; remove both fields to do without them"
            )
        self._numbers = {
            str(group): number for group, number in numbers.items() if type(number) is int
        }
        self.deletions = max([deletions, *self._numbers.values()])


TOOLS_GROUP = "TOOLS_CONSUMER"
"""Tools look at messages in its name: nobody's progress, and nothing delivered again."""

SYSTEM_GROUPS = (TOOLS_GROUP, "SELF_TEST_C_GROUP", "CID_RMQ_SYS_TRANS")
"""Groups that tools and the broker itself use."""

GROUPS_PER_STEP = LOOP_STEP_ENTRIES_MAX // 4
"""Groups that one step of the event loop writes: each has eighteen settings."""

RETRY_TIMES_MAX_DEFAULT = 16
_INT_MAX, _LONG_MAX = 2**31 - 1, 2**63 - 1


@dataclass(slots=True)
class SubscriptionGroupConfig:
    """One group's permissions and retry policy; defaults are RocketMQ's."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = RETRY_TIMES_MAX_DEFAULT
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    attributes: dict[str, str] = field(default_factory=dict)


_WIRE_NAMES = {
    "group_name": "groupName",
    "consume_enable": "consumeEnable",
    "consume_from_min_enable": "consumeFromMinEnable",
    "consume_broadcast_enable": "consumeBroadcastEnable",
    "consume_message_orderly": "consumeMessageOrderly",
    "retry_queue_nums": "retryQueueNums",
    "retry_max_times": "retryMaxTimes",
    "broker_id": "brokerId",
    "which_broker_when_consume_slowly": "whichBrokerWhenConsumeSlowly",
    "notify_consumer_ids_changed_enable": "notifyConsumerIdsChangedEnable",
    "group_sys_flag": "groupSysFlag",
    "consume_timeout_minute": "consumeTimeoutMinute",
    "attributes": "attributes",
}


def group_to_document(config: SubscriptionGroupConfig) -> dict[str, Any]:
    """The group as RocketMQ's JSON has it."""
    return {wire: getattr(config, name) for name, wire in _WIRE_NAMES.items()}


def group_from_document(document: object) -> SubscriptionGroupConfig:
    """Read RocketMQ's JSON; fields left out keep their defaults. Raises CorruptRecord."""
    if not isinstance(document, Mapping):
        raise CorruptRecord("a subscription group that is no object, so without groupName")
    name = document.get("groupName")
    if not isinstance(name, str) or not name:
        raise CorruptRecord("a subscription group without groupName")
    config = SubscriptionGroupConfig(name)
    for attribute, wire in _WIRE_NAMES.items():
        value, default = document.get(wire), getattr(config, attribute)
        if value is None:
            continue
        if type(value) is not type(default):
            raise CorruptRecord(f"group {name}: {wire}={value!r} is no {type(default).__name__}")
        setattr(config, attribute, value)
    return config


def check_numbers(config: SubscriptionGroupConfig) -> None:
    """Raise RequestRefused for a number that RocketMQ could not read, or of so many retry queues
    that no heartbeat of the group would be answered any more.
    """
    for name, least, most in (
        ("retry_queue_nums", 0, QUEUES_PER_TOPIC_MAX),
        ("retry_max_times", -1, _INT_MAX),
        ("broker_id", -_LONG_MAX, _LONG_MAX),
        ("which_broker_when_consume_slowly", -_LONG_MAX, _LONG_MAX),
        ("group_sys_flag", -_INT_MAX, _INT_MAX),
        ("consume_timeout_minute", 0, _INT_MAX),
    ):
        value = getattr(config, name)
        if not least <= value <= most:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"group {config.group_name}: {_WIRE_NAMES[name]}={value} is not in {least} to "
                f"{most}",
            )


def check_attributes(config: SubscriptionGroupConfig) -> None:
    """Raise RequestRefused for attributes that are no texts, or more than are kept of a group."""
    chars = 0
    for name, value in config.attributes.items():
        if not isinstance(value, str):
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"group {config.group_name}: attribute {name[:40]}={str(value)[:40]} is no text",
            )
        chars += len(name) + len(value)
    if chars > GROUP_ATTRIBUTES_CHARS_MAX:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"group {config.group_name}: its attributes have {chars} characters: "
            f"{GROUP_ATTRIBUTES_CHARS_MAX} at most",
        )


class GroupConfigs:
    """The table of one broker."""

    def __init__(self, *, auto_create: bool, count_max: int = GROUPS_MAX) -> None:
        self.auto_create = auto_create
        """Are unknown groups made on demand?"""
        self._count_max = count_max
        self._configs: dict[str, SubscriptionGroupConfig] = {}
        self.being_deleted: dict[str, None] = {}
        """Groups whose deletion with their offsets has begun and not ended;
        `removing/deletion` keeps it.
        """
        self.counter = 0
        """Counter of the data version."""
        self.on_changed: Callable[[str], None] = lambda _group: None
        """Called with a group whose settings were set or removed."""

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's settings, made now when that is allowed; None when it must be created.

        Raises RequestRefused when the name is illegal, that of one group too many, or of one that
        is being deleted.
        """
        config = self._configs.get(group)
        if config is not None:
            return config
        if not self.is_to_be_found(group):
            return None
        check_group(group)
        return self.put(SubscriptionGroupConfig(group))

    def is_to_be_found(self, group: str) -> bool:
        """Would `find` give its settings?"""
        return group in self._configs or self.auto_create or group in SYSTEM_GROUPS

    def retry_queue_nums(self, group: str) -> int:
        """Queues of the group's retry topic, which it has or would be made with; 0: it has none."""
        config = self._configs.get(group) or SubscriptionGroupConfig(group)
        return config.retry_queue_nums

    def known(self, group: str) -> bool:
        """Does the group exist, without making it?"""
        return group in self._configs

    def put(self, config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        """Create or replace a group's settings. Raises RequestRefused for one group too many."""
        self.check_stays(config.group_name)
        self.check_room([config.group_name])
        self._configs[config.group_name] = config
        self.counter += 1
        self.on_changed(config.group_name)
        return config

    def check_stays(self, group: str) -> None:
        """Raise RequestRefused while the group is being deleted."""
        if group in self.being_deleted:
            raise RequestRefused(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"group {group} is being deleted; it can be made again when that has ended",
            )

    def look(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's settings, if it has any now; none are made."""
        return self._configs.get(group)

    def check_room(self, names: Iterable[str]) -> None:
        """Raise RequestRefused when groups with these names are too many more."""
        new = {name for name in names if name not in self._configs}
        if new and len(self._configs) + len(new) > self._count_max:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"group {min(new)} is one too many: this broker holds {self._count_max} groups",
            )

    def delete(self, group: str) -> bool:
        """Remove a group; was it there?"""
        if self._configs.pop(group, None) is None:
            return False
        self.counter += 1
        self.on_changed(group)
        return True

    def names(self) -> list[str]:
        """Every group, in no order."""
        return list(self._configs)

    def all(self) -> list[SubscriptionGroupConfig]:
        """Every group's settings, by name."""
        return [self._configs[name] for name in sorted(self._configs)]

    def encoded(self, pieces: list[bytes], notes: Mapping[str, object]) -> Iterator[None]:
        """Write the table into `pieces` as subscriptionGroup.json, and the answer to code 201, have
        it, behind `notes`; in steps of GROUPS_PER_STEP, of which each is reported as it is when it
        has its turn.
        """
        pieces.append(dumps(dict(notes))[:-1] + b',"subscriptionGroupTable":{')
        entries: dict[str, dict[str, Any]] = {}
        comma = b""
        for name in (yield from sorted_in_steps(self._configs)):
            config = self._configs.get(name)
            if config is not None:  # Else it was deleted meanwhile.
                entries[name] = group_to_document(config)
            if len(entries) >= GROUPS_PER_STEP:
                pieces += (comma, dumps(entries)[1:-1])
                entries, comma = {}, b","
                yield
        if entries:
            pieces += (comma, dumps(entries)[1:-1])
        pieces.append(b"}}")

    def __len__(self) -> int:
        """How many groups there are."""
        return len(self._configs)

    def load(self, document: Mapping[str, Any]) -> None:
        """Take over subscriptionGroup.json as parsed. Raises CorruptRecord."""
        table = document.get("subscriptionGroupTable")
        if not isinstance(table, Mapping):
            raise CorruptRecord("subscriptionGroup.json holds no subscriptionGroupTable")
        self._configs = {str(name): group_from_document(entry) for name, entry in table.items()}
        version = document.get("dataVersion")
        if isinstance(version, Mapping) and isinstance(version.get("counter"), int):
            self.counter = version["counter"]
