"""Stores each group's consume offset for every queue (RocketMQ's offset table).

Place in the walk: `handlers/offset` and the piggyback of `handlers/pull` commit here, rebalancing
clients ask here, and the broker persists the table each 5 s (row A4).

Invariant: an offset is the NEXT message to consume. A lower commit is accepted, because a client
may rewind; while a reset waits for its reader only the reset value is answered, and commits are
refused, so that the old owner's late report cannot undo it. Nothing here goes through all offsets
in one step of the loop: the table is written, and what was deleted is forgotten, piece by piece.
From the first moment of that nothing of it is answered, written to a file, or set anew. Absent on
purpose: checking offsets against the queue (a wrong report is evidence), files, clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from engine.broker.groups.readers import QueueKey
from engine.foundation.errors import CorruptRecord, RequestRefused
from engine.foundation.limits import GROUP_QUEUES_MAX, LOOP_STEP_ENTRIES_MAX
from engine.protocol.bodies import DataVersion
from engine.protocol.codes import ResponseCode
from engine.protocol.fastjson import dumps

COMMITS_PER_VERSION = 500
"""The table's data version advances each so many commits (RocketMQ)."""

Table = dict[tuple[str, str], dict[int, int]]
"""(topic, group) → queue_id → consume offset"""


@dataclass(frozen=True, slots=True)
class Commit:
    """What a report did: the offset stored before (None: none), and whether it was stored."""

    previous_offset: int | None
    accepted: bool


@dataclass(slots=True)
class Reported:
    """How often, and when last, a queue's offset was reported since the last watermark."""

    last_commit_ms: int
    count: int = 0


Standing = tuple[int | None, int | None, Reported | None]
"""(committed, persisted, reported): all that is known of a group's offset on one queue. Reported is
None when it never was in this life of the broker."""


@dataclass(frozen=True, slots=True)
class Lowered:
    """A consume offset that was taken back to where its queue ends."""

    group: str
    topic: str
    queue_id: int
    offset: int
    instead_of: int


class ConsumerOffsets:
    """The offset table, the persisted copy of it, and the resets that wait for their reader."""

    def __init__(
        self,
        count_max: int = GROUP_QUEUES_MAX,
        *,
        on_last_forgotten: Callable[[str], None] = lambda _group: None,
    ) -> None:
        """`on_last_forgotten`: a group that is not deleted itself has lost its last offset."""
        self._count_max = count_max
        self._count = 0
        self._committed: Table = {}
        self._persisted: Table = {}
        self._groups_of: dict[str, dict[str, None]] = {}
        """topic → groups that have offsets on it."""
        self._topics_of: dict[str, dict[str, None]] = {}
        """group → topics on which it has offsets."""
        self._moved: dict[QueueKey, None] = {}
        """Queues whose offset was set, persisted or forgotten, or was refused, since `take_moved`.
        """
        self._heard: dict[QueueKey, None] = {}
        """Queues of which what was known already was reported since `take_heard`."""
        self._resets: Table = {}
        self._pushed: dict[QueueKey, int] = {}  # At most one per queue that has an offset.
        self._reported: dict[QueueKey, Reported] = {}
        self._leaving_topics: dict[str, None] = {}
        self._leaving_groups: dict[str, None] = {}
        """What is being forgotten."""
        self._setbacks: dict[str, int] = {}
        """topic → the number of its newest setback."""
        self._setbacks_count = self._setbacks_dropped = 0
        """Of all there ever were; and when the last one was dropped."""
        self._commits_count = 0
        self._on_last_forgotten = on_last_forgotten
        self.counter = 0
        """Counter of the data version."""
        self.changed = False
        """Does memory differ from what was persisted last?"""
        self.on_set: Callable[[QueueKey], None] = lambda _key: None
        """Called when the offset of a queue is set; whoever agrees with others on it is."""
        self.on_forgotten: Callable[[str, str], None] = lambda _topic, _group: None
        """Called with the topic and the group of offsets that go."""

    def commit(self, group: str, topic: str, queue_id: int, offset: int, *, now_ms: int) -> Commit:
        """Store a report, unless a reset of the queue waits for its reader.

        Raises RequestRefused when there are too many offsets, and while those of the topic or the
        group are being forgotten; so do `reset` and `place`.
        """
        self._check_stays(group, topic)
        previous = self.committed(group, topic, queue_id)
        accepted = not self.reset_pending(group, topic, queue_id)
        if accepted and previous != offset:
            self._store(group, topic, queue_id, offset)
        key = (group, topic, queue_id)
        reported = self._reported.get(key)
        if reported is None:
            reported = self._reported[key] = Reported(now_ms)
        reported.count += 1
        reported.last_commit_ms = now_ms
        if not accepted:
            self._moved[key] = None
        elif previous == offset:
            self._heard[key] = None
        if accepted:
            self._commits_count += 1
            if self._commits_count % COMMITS_PER_VERSION == 0:
                self.counter += 1
        return Commit(previous, accepted)

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """The consume offset in memory; None when there is none."""
        return self._committed.get((topic, group), {}).get(queue_id)

    def answered(self, group: str, topic: str, queue_id: int) -> int | None:
        """What a client that asks is answered: the reset value while one waits, else as
        `committed`; nothing of what is being forgotten.
        """
        if self.is_being_forgotten(topic, group):
            return None
        waiting = self._resets.get((topic, group), {}).get(queue_id)
        return self.committed(group, topic, queue_id) if waiting is None else waiting

    def persisted(self, group: str, topic: str, queue_id: int) -> int | None:
        """The consume offset in the file; None when there is none."""
        return self._persisted.get((topic, group), {}).get(queue_id)

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> int | None:
        """Set the offset and let the next pull hear of it; return what was stored before."""
        previous = self.committed(group, topic, queue_id)
        self._store(group, topic, queue_id, offset)
        self._resets.setdefault((topic, group), {})[queue_id] = offset
        return previous

    def place(self, group: str, topic: str, queue_id: int, offset: int) -> int | None:
        """Set the offset at a tool's wish; return what was stored before."""
        previous = self.committed(group, topic, queue_id)
        self._store(group, topic, queue_id, offset)
        return previous

    def expect_reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Members were sent to `offset`: the first report of it is that reset's."""
        self._check_stays(group, topic)
        self._pushed[group, topic, queue_id] = offset

    def is_expected_reset(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Is this report the one a pushed reset asked for? Asked once per reset."""
        if self._pushed.get((group, topic, queue_id)) != offset:
            return False
        del self._pushed[group, topic, queue_id]
        return True

    def reset_pending(self, group: str, topic: str, queue_id: int) -> bool:
        """Does a reset of the queue wait for its reader?"""
        return queue_id in self._resets.get((topic, group), {})

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The reset that waits for this queue's reader, erased by telling it; None without one."""
        waiting = self._resets.get((topic, group))
        if waiting is None:
            return None
        offset = waiting.pop(queue_id, None)
        if not waiting:
            del self._resets[topic, group]
        if offset is not None:
            self._note_setback(topic)
        return offset

    def queues(self, group: str, topic: str) -> Mapping[int, int]:
        """Offsets of one group on one topic by queue id."""
        return self._committed.get((topic, group), {})

    def keys(self) -> Iterator[QueueKey]:
        """Every queue that has an offset."""
        for (topic, group), queues in self._committed.items():
            for queue_id in queues:
                yield group, topic, queue_id

    def pairs(self) -> list[tuple[str, str]]:
        """Every (topic, group) with offsets."""
        return list(self._committed)

    def standing(self, key: QueueKey) -> Standing:
        """What is committed, persisted and reported of a queue. Whoever emits the reports sets
        their count back. Hot.
        """
        group, topic, queue_id = key
        pair = (topic, group)
        committed, persisted = self._committed.get(pair), self._persisted.get(pair)
        return (
            None if committed is None else committed.get(queue_id),
            None if persisted is None else persisted.get(queue_id),
            self._reported.get(key),
        )

    def take_moved(self) -> dict[QueueKey, None]:
        """Queues whose offset was set, persisted or forgotten, or refused, since the last call;
        oldest first.
        """
        moved, self._moved = self._moved, {}
        return moved

    def take_heard(self) -> dict[QueueKey, None]:
        """Queues of which what was known already was reported since the last call."""
        heard, self._heard = self._heard, {}
        return heard

    def topics_of(self, group: str) -> list[str]:
        """Topics on which the group has offsets, sorted."""
        return sorted(self._topics_of.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have offsets on the topic, sorted."""
        return sorted(self._groups_of.get(topic, ()))

    def groups_on(self, topic: str) -> list[str]:
        """As `groups_of`, in no order: to sort a hundred thousand takes long."""
        return list(self._groups_of.get(topic, ()))

    def has_any(self, group: str) -> bool:
        """Has the group an offset that is not being forgotten?"""
        topics = self._topics_of.get(group)
        if not topics or group in self._leaving_groups:
            return False
        return any(topic not in self._leaving_topics for topic in topics)

    def is_of_any_group(self, topic: str) -> bool:
        """Has any group an offset on the topic?"""
        return topic in self._groups_of

    def is_on_any_topic(self, group: str) -> bool:
        """Has the group an offset, be it one that is being forgotten?"""
        return group in self._topics_of

    def setback_of(self, topic: str) -> int:
        """Another number whenever a group may be less far on the topic than it was: it came, went
        back, was sent a reset, or was forgotten.
        """
        return self._setbacks.get(topic, self._setbacks_dropped)

    def forget_group(self, group: str) -> Iterator[None]:
        """The group was deleted with its offsets: nothing of them is reported from now on, and they
        go in the steps returned.
        """
        self._leaving_groups[group] = None
        pairs = ((topic, group) for topic in self._found(self._topics_of, group))
        return self._forget(pairs, lambda: self._leaving_groups.pop(group, None))

    def forget_topic(self, topic: str) -> Iterator[None]:
        """The topic was deleted: as `forget_group`."""
        self._leaving_topics[topic] = None
        pairs = ((topic, group) for group in self._found(self._groups_of, topic))
        return self._forget(pairs, lambda: self._leaving_topics.pop(topic, None))

    def refuse_of(self, topic: str) -> None:
        """Nothing of the topic is answered or set until it was forgotten, or `allow_of` called."""
        self._leaving_topics[topic] = None

    def allow_of(self, topic: str) -> None:
        """The topic stays after all."""
        self._leaving_topics.pop(topic, None)

    def forget_pair(self, group: str, topic: str) -> None:
        """The group's offsets on one topic were deleted; done at once, a topic has few queues."""
        self.changed = True
        for _ in self._forget([(topic, group)], lambda: None):
            pass

    def snapshot(self, table: Table) -> Iterator[None]:
        """As `copied`, into a table to be written and then handed to `mark_persisted`."""
        self.changed = False
        yield from self.copied(table)

    def copied(self, table: Table) -> Iterator[None]:
        """Copy the offsets into `table`, one (topic, group) after the other, each as it is when it
        has its turn; none of what is being forgotten.
        """
        for pair in list(self._committed):
            queues = self._committed.get(pair)
            if queues is not None and not self.is_being_forgotten(*pair):
                table[pair] = queues.copy()
            yield

    def mark_persisted(self, table: Table) -> Iterator[None]:
        """The table is on disk: note what of it is new, one (topic, group) after the other, and
        let go of the one before as it goes, which takes as long.
        """
        before, self._persisted = self._persisted, table
        for pair, now in table.items():
            self._note_moved(pair, before.pop(pair, {}), now)
            yield
        while before:
            self._note_moved(*before.popitem(), {})
            yield

    def _note_moved(self, pair: tuple[str, str], was: dict[int, int], now: dict[int, int]) -> None:
        if was == now:
            return
        topic, group = pair
        for queue_id in was | now:
            if was.get(queue_id) != now.get(queue_id):
                self._moved[group, topic, queue_id] = None

    def load(self, table: Table, counter: int) -> None:
        """Take over what the file holds."""
        self._committed = {key: dict(queues) for key, queues in table.items()}
        self._persisted = table
        for topic, group in table:
            self._note_pair(topic, group)
        self._moved = dict.fromkeys(self.keys())
        self._count = sum(map(len, table.values()))
        self.counter = counter

    def merge(self, table: Table, version: DataVersion, own: DataVersion) -> Iterator[None]:
        """Take over another node's offsets, one (topic, group) after the other, if its table is
        newer than ours, which is `own`: however often somebody reported to a former master, that of
        the greater term counts. Offsets that it lacks stay.
        """
        if not version.is_newer_than(own):
            return
        yield from self._take(table)
        self.counter = max(self.counter, version.counter)

    def copy(self, table: Table) -> Iterator[None]:
        """Hold a master's offsets and no others, one (topic, group) after the other."""
        for topic, group in self.pairs():
            if (topic, group) not in table:
                self.forget_pair(group, topic)
        yield from self._take(table)

    def _take(self, table: Table) -> Iterator[None]:
        for (topic, group), queues in table.items():
            if not self.is_being_forgotten(topic, group):
                for queue_id, offset in queues.items():
                    if self.committed(group, topic, queue_id) != offset:
                        self.place(group, topic, queue_id, offset)
            yield

    def take_back(self, end_of: Callable[[str, int], int]) -> list[Lowered]:
        """Lower every offset beyond the end of its queue to it; return which."""
        lowered = [
            one
            for (topic, group), queues in self._committed.items()
            for one in lowered_to(topic, group, queues, end_of)
        ]
        self.changed = self.changed or bool(lowered)
        for one in lowered:
            key = (one.group, one.topic, one.queue_id)
            self._moved[key] = None
            self.on_set(key)
        return lowered

    def is_being_forgotten(self, topic: str, group: str) -> bool:
        """Are the offsets of the topic, or of the group, gone for whoever asks, but not all yet?"""
        return topic in self._leaving_topics or group in self._leaving_groups

    def _check_stays(self, group: str, topic: str) -> None:
        """Raise RequestRefused while the offset would be forgotten at once. Hot."""
        for what, name, leaving in (
            ("topic", topic, self._leaving_topics),
            ("group", group, self._leaving_groups),
        ):
            if leaving and name in leaving:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    f"{what} {name} is being deleted; its offsets can be set when that has ended",
                )

    def _store(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self._check_stays(group, topic)
        before = self.committed(group, topic, queue_id)
        if before is None:
            if self._count >= self._count_max:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    f"an offset of group {group} for queue {queue_id} of {topic} is one too many: "
                    f"this broker keeps {self._count_max}; delete groups that are not used any "
                    "more",
                )
            self._count += 1
            self._note_pair(topic, group)
        if before is None or offset < before:
            self._note_setback(topic)
        self._committed.setdefault((topic, group), {})[queue_id] = offset
        self._moved[group, topic, queue_id] = None
        self.changed = True
        self.on_set((group, topic, queue_id))

    def _note_setback(self, topic: str) -> None:
        self._setbacks_count += 1
        self._setbacks[topic] = self._setbacks_count

    def _note_pair(self, topic: str, group: str) -> None:
        self._groups_of.setdefault(topic, {})[group] = None
        self._topics_of.setdefault(group, {})[topic] = None

    def _found(self, table: dict[str, dict[str, None]], name: str) -> list[str]:
        """The other half of each pair that is to be forgotten: none of them is for the file."""
        found = list(table.get(name, ()))
        self.changed = self.changed or bool(found)
        return found

    def _forget(
        self, pairs: Iterable[tuple[str, str]], ended: Callable[[], object]
    ) -> Iterator[None]:
        """Forget the offsets of each (topic, group), LOOP_STEP_ENTRIES_MAX or so in a step."""
        looked_at = 0
        for topic, group in pairs:
            queues = self._committed.pop((topic, group), None)
            if queues is None:  # Its topic and its group are forgotten at the same time.
                continue
            self._note_setback(topic)
            self.on_forgotten(topic, group)
            self._count -= len(queues)
            self._resets.pop((topic, group), None)
            for queue_id in queues:  # Only what has an offset was reported, or is to be.
                key = (group, topic, queue_id)
                self._moved[key] = None
                self._reported.pop(key, None)
                self._pushed.pop(key, None)
            self.changed = True
            for table, name, other in (
                (self._groups_of, topic, group),
                (self._topics_of, group, topic),
            ):
                others = table.get(name)
                if others is not None:
                    others.pop(other, None)
                    if not others:
                        del table[name]
                        if table is self._topics_of and group not in self._leaving_groups:
                            self._on_last_forgotten(group)
            if topic not in self._groups_of:
                self._setbacks.pop(topic, None)
                self._setbacks_dropped = self._setbacks_count
            looked_at += 1 + len(queues)
            if looked_at >= LOOP_STEP_ENTRIES_MAX:
                looked_at = 0
                yield
        ended()


def lowered_to(
    topic: str, group: str, queues: dict[int, int], end_of: Callable[[str, int], int]
) -> list[Lowered]:
    """Take offsets in `queues` beyond `end_of(topic, queue_id)` back to it; which ones."""
    lowered = []
    for queue_id, offset in queues.items():
        end = end_of(topic, queue_id)
        if offset > end:
            queues[queue_id] = end
            lowered.append(Lowered(group, topic, queue_id, end, offset))
    return lowered


def in_words(lowered: list[Lowered], listed_max: int = 20) -> str:
    """`g on queue 0 of t at 6 instead of 20`, one after the other; of many the first."""
    words = [
        f"{one.group} on queue {one.queue_id} of {one.topic} at {one.offset} "
        f"instead of {one.instead_of}"
        for one in lowered[:listed_max]
    ]
    if len(lowered) > listed_max:
        words.append(f"and {len(lowered) - listed_max} more")
    return "; ".join(words)


def encoded_table(pieces: list[bytes], table: Table, notes: Mapping[str, object]) -> Iterator[None]:
    """Write the table into `pieces` as consumerOffset.json has it, `notes` before the offsets; in
    steps of LOOP_STEP_ENTRIES_MAX offsets or so.
    """
    pieces.append(dumps(dict(notes))[:-1] + b',"offsetTable":{')
    entries: dict[str, dict[str, int]] = {}
    count, comma = 0, b""
    for (topic, group), queues in table.items():
        entries[f"{topic}@{group}"] = {str(one): offset for one, offset in queues.items()}
        count += 1 + len(queues)
        if count >= LOOP_STEP_ENTRIES_MAX:
            pieces += (comma, dumps(entries)[1:-1])
            entries, count, comma = {}, 0, b","
            yield
    if entries:
        pieces += (comma, dumps(entries)[1:-1])
    pieces.append(b"}}")


def from_document(document: Mapping[str, object]) -> Table:
    """Read consumerOffset.json as parsed. Raises CorruptRecord when it is something else.

    A negative offset is none: RocketMQ's broker keeps whatever a pull brings, and answers so.
    """
    table: Table = {}
    entries = document.get("offsetTable")
    if not isinstance(entries, Mapping):
        raise CorruptRecord("consumerOffset.json holds no offsetTable")
    for key, queues in entries.items():
        topic, separator, group = str(key).partition("@")
        if not separator or not isinstance(queues, Mapping):
            raise CorruptRecord(
                f"consumerOffset.json: entry {key!r} is not topic@group with offsets"
            )
        table[topic, group] = {}
        for queue_id, offset in queues.items():
            if type(offset) is not int or not str(queue_id).isdecimal():
                raise CorruptRecord(
                    f"consumerOffset.json: {key!r} holds {queue_id!r}: {offset!r}, not an offset"
                )
            if offset >= 0:
                table[topic, group][int(queue_id)] = offset
    return table
