"""Writes and reads the records in which a Raft group's leader puts changes of its tables.

Place in the walk: `agreed_tables` notes what changed, puts a record of it, and applies the records
of others.

    {"forgotten": ["topic@group"], "topics": {name: settings}, "groups": {name: settings or null},
     "offsetTable": {"topic@group": {"queue": offset}}, "accounts": [account]}

Accounts are all there are, for one without the other may make no sense.

Invariant: a record says what is, never by how much it changed, so that to apply some again, in
their order, does no harm. Absent on purpose: deletions of topics, which are records of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from engine.broker.accounts import AgreedAccounts
from engine.broker.groups.group_configs import (
    GroupConfigs,
    group_from_document,
    group_to_document,
)
from engine.broker.groups.readers import QueueKey
from engine.broker.identity import BrokerNode
from engine.broker.offsets.consumer_offsets import ConsumerOffsets, from_document
from engine.broker.removing.topic_changes import is_own
from engine.broker.table_changes import TableChanges
from engine.broker.topics.topics import Topics
from engine.foundation.limits import LOOP_STEP_ENTRIES_MAX
from engine.protocol.bodies import TopicConfig

ENTRIES_MAX: Final = LOOP_STEP_ENTRIES_MAX
"""Entries of one kind in a record."""


Name = TypeVar("Name")


class TableRecords:
    """What changed in the tables of one broker, and their contents as documents."""

    def __init__(
        self,
        *,
        accounts: AgreedAccounts,
        changes: TableChanges,
        group_configs: GroupConfigs,
        node: BrokerNode,
        offsets: ConsumerOffsets,
        topics: Topics,
    ) -> None:
        self._accounts = accounts
        self._changes = changes
        self._groups = group_configs
        self._node = node
        self._offsets = offsets
        self._topics = topics
        self.forget()

    def forget(self) -> None:
        """Nothing changed that is to be recorded."""
        self._changed_topics: dict[str, None] = {}
        self._changed_groups: dict[str, None] = {}
        self._changed_offsets: dict[QueueKey, None] = {}
        self._forgotten: dict[tuple[str, str], None] = {}
        self._are_accounts_changed = False

    def __len__(self) -> int:
        """How many entries are to be recorded."""
        return (
            len(self._changed_offsets)
            + len(self._changed_topics)
            + len(self._changed_groups)
            + len(self._forgotten)
            + self._are_accounts_changed
        )

    def topic_put(self, topic: str) -> None:
        """A topic was made, or has other settings."""
        self._changed_topics[topic] = None

    def group_changed(self, group: str) -> None:
        """A group was made or removed, or has other settings."""
        self._changed_groups[group] = None

    def offset_set(self, key: QueueKey) -> None:
        """A consume offset was set. Hot."""
        self._changed_offsets[key] = None

    def offsets_forgotten(self, topic: str, group: str) -> None:
        """A group's offsets on a topic go: a record says so before it says which are set since."""
        self._forgotten[topic, group] = None

    def accounts_changed(self) -> None:
        """Accounts were made, changed or removed."""
        self._are_accounts_changed = True

    # ---- records ----------------------------------------------------------------------------

    def next_document(self) -> dict[str, Any]:
        """The next record; empty when there is none. It is until `drop_next`."""
        document: dict[str, Any] = {}
        if self._forgotten:
            document["forgotten"] = [f"{topic}@{group}" for topic, group in _next(self._forgotten)]
        if self._changed_topics:
            found = map(self._topics.find, _next(self._changed_topics))
            document["topics"] = {
                one.topic_name: msgspec.to_builtins(one) for one in found if one is not None
            }
        if self._changed_groups:
            configs = {name: self._groups.look(name) for name in _next(self._changed_groups)}
            document["groups"] = {
                name: None if config is None else group_to_document(config)
                for name, config in configs.items()
            }
        offsets: dict[str, dict[str, int]] = {}
        for group, topic, queue_id in _next(self._changed_offsets):
            offset = self._offsets.committed(group, topic, queue_id)
            if offset is not None:
                offsets.setdefault(f"{topic}@{group}", {})[str(queue_id)] = offset
        if offsets:
            document["offsetTable"] = offsets
        if self._are_accounts_changed:
            document["accounts"] = self._accounts.documents()
        return document

    def drop_next(self) -> None:
        """The next record is in the log."""
        self._drop(self._forgotten)
        self._drop(self._changed_topics)
        self._drop(self._changed_groups)
        self._drop(self._changed_offsets)
        self._are_accounts_changed = False

    def _drop(self, changed: dict[Name, None]) -> None:
        for name in _next(changed):
            del changed[name]

    def apply(self, document: Mapping[str, Any]) -> None:
        """Make these tables what a record says. Raises CorruptRecord, RequestRefused."""
        offsets = self._offsets
        for pair in document.get("forgotten", ()):
            topic, _, group = pair.partition("@")
            offsets.forget_pair(group, topic)
        for entry in document.get("topics", {}).values():
            self._topics.put(TopicConfig.from_json(entry))
            self._changes.of_topics()
        for name, entry in document.get("groups", {}).items():
            if entry is None:
                self._groups.delete(name)
            else:
                self._groups.put(group_from_document(entry))
            self._changes.of_settings()
        if "offsetTable" in document:
            for (topic, group), queues in from_document(document).items():
                for queue_id, offset in queues.items():
                    offsets.place(group, topic, queue_id, offset)
        if "accounts" in document:
            self._accounts.hold(document["accounts"])

    # ---- whole tables -----------------------------------------------------------------------

    def hold_topics(self, table: Mapping[str, Any]) -> Iterator[None]:
        """Hold these topics and no others but those that every broker has."""
        for entry in table.values():
            config = TopicConfig.from_json(entry)
            if self._topics.find(config.topic_name) != config:
                self._topics.put(config)
            yield
        for name in [one.topic_name for one in self._topics.all()]:
            if name not in table and not is_own(name, self._node.config):
                self._topics.delete(name)
            yield
        self._changes.of_topics()

    def hold_groups(self, table: Mapping[str, Any]) -> Iterator[None]:
        """Hold these groups and no others."""
        for entry in table.values():
            config = group_from_document(entry)
            if self._groups.look(config.group_name) != config:
                self._groups.put(config)
            yield
        for name in self._groups.names():
            if name not in table:
                self._groups.delete(name)
            yield
        self._changes.of_settings()


def _next(changed: dict[Name, None]) -> list[Name]:
    """The oldest ENTRIES_MAX."""
    return list(islice(changed, ENTRIES_MAX))
