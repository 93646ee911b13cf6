"""A log that is cut and copied equals one that only ever got what is left.

What the copy holds is visible up to an entry's end that only a cut or a start moves back.

The model is the list of entries (a message, a half message or a batch), each with the time of its
put. A store takes puts and cuts, a copy of it gets the bytes of its log and is cut where they
differ; both are flushed, stopped and killed. Held against them is a fresh store that gets the
surviving entries at their times: same files of log and queues, same index, same answers.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from engine.foundation.errors import OffsetOutOfRange
from engine.store import MessageDraft, MessageStore
from engine.store.commit_log import NO_END, written_end
from engine.store.record_reading import DispatchRequest, property_value
from tests.store_support import (
    HandClock,
    abandon,
    draft,
    messages_of,
    open_store,
    runtime_on,
    small_config,
    turn,
)

TOPICS = ["TopicA", "TopicB"]
QUEUES = [(topic, queue_id) for topic in TOPICS for queue_id in (0, 1)]
FILE_BYTES = 4096


@dataclass(frozen=True)
class Entry:
    """One put."""

    now_ms: int
    drafts: tuple[MessageDraft, ...]
    end: int


def put(store: MessageStore, drafts: tuple[MessageDraft, ...]) -> int:
    """Where the entry ends."""
    if len(drafts) == 1:
        return store.put(drafts[0]).end_offset
    return store.put_batch(drafts)[-1].end_offset


class Keys:
    """A state that follows the log: the keys of all entries, in their order."""

    def __init__(self, snapshots: list[tuple[int, tuple[bytes, ...]]]) -> None:
        """Begins with the newest snapshot."""
        self.snapshots = snapshots
        self.applied_offset, keys = snapshots[-1]
        self.keys = list(keys)

    def apply(self, entries: Sequence[DispatchRequest], end_offset: int) -> None:
        self.keys += [property_value(entry.properties, b"UNIQ_KEY\x01") for entry in entries]
        self.applied_offset = end_offset

    def cut(self, end_offset: int) -> None:
        while self.snapshots[-1][0] > end_offset:
            self.snapshots.pop()
        self.applied_offset, keys = self.snapshots[-1]
        self.keys = list(keys)

    def save(self) -> None:
        if self.applied_offset > self.snapshots[-1][0]:
            self.snapshots.append((self.applied_offset, tuple(self.keys)))


class CutMachine(RuleBasedStateMachine):
    """A store and its copy, over many lives of both."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="cuts-"))
        self.loop = asyncio.new_event_loop()
        self.clock = HandClock()
        self.entries: list[Entry] = []
        self.keys: dict[str, str] = {}
        """Of all messages ever put, with their topics."""
        self.store: MessageStore = self.run(self.opened("store"))
        self.copy: MessageStore = self.run(self.opened("copy"))
        self.state = Keys([(0, ())])
        self.run(self.copy.follow(self.state))
        self.copied: list[Entry] = []
        """What the copy has, as far as it is whole."""
        self.seen = NO_END
        """The copy's visible end."""

    def teardown(self) -> None:
        self.run(self.compared(self.store, self.entries))
        self.catch_up(1 << 20)
        self.see(len(self.copied))
        self.run(self.compared(self.copy, self.entries))
        self.run(self.store.close())
        self.run(self.copy.close())
        self.loop.close()
        shutil.rmtree(self.root)

    def run(self, work: object) -> MessageStore:
        return self.loop.run_until_complete(work)  # type: ignore[arg-type]

    async def opened(self, name: str, **how: int) -> MessageStore:
        runtime = runtime_on(clock=self.clock)
        return await open_store(small_config(self.root / name), runtime=runtime, **how)

    # ---- what can happen --------------------------------------------------------------------

    @rule(
        queue=st.sampled_from(QUEUES),
        sizes=st.lists(st.integers(0, 700), min_size=1, max_size=4),
        sys_flag=st.sampled_from([0, 0, 0, 0x4, 0xC]),
    )
    def put(self, queue: tuple[str, int], sizes: list[int], sys_flag: int) -> None:
        drafts = []
        for size in sizes[: 4 if sys_flag == 0 else 1]:
            key = f"k{len(self.keys)}"
            self.keys[key] = queue[0]
            properties = f"UNIQ_KEY\x01{key}\x02TAGS\x01T{size % 3}\x02"
            drafts.append(
                draft(
                    key.encode().ljust(size, b"."),
                    topic=queue[0],
                    queue_id=queue[1],
                    properties=properties,
                    sys_flag=sys_flag,
                )
            )
        self.run(self.putting(tuple(drafts)))

    async def putting(self, drafts: tuple[MessageDraft, ...]) -> None:
        self.entries.append(Entry(self.clock.value_ms, drafts, put(self.store, drafts)))
        await turn()

    @rule(milliseconds=st.integers(1, 9000))
    def time_passes(self, milliseconds: int) -> None:
        self.clock.value_ms += milliseconds

    @rule(back=st.integers(0, 12))
    def cut(self, back: int) -> None:
        del self.entries[max(0, len(self.entries) - back) :]
        self.run(self.store.truncate(self.entries[-1].end if self.entries else 0))

    @rule(data=st.data())
    def a_cut_amid_an_entry_is_refused(self, data: st.DataObject) -> None:
        ends = {0, *(entry.end for entry in self.entries)}
        ends |= set(range(0, self.store.physical_max, FILE_BYTES))
        place = data.draw(st.integers(1, self.store.physical_max + 1))
        if place not in ends:
            with pytest.raises(OffsetOutOfRange):
                self.run(self.store.truncate(place))

    @rule(chunk_bytes=st.integers(1, 3000))
    def catch_up(self, chunk_bytes: int) -> None:
        """As a replica: cut what the other has not, then copy some of it."""
        common = 0
        for entry, own in zip(self.entries, self.copied, strict=False):
            if entry is not own:
                break
            common = entry.end
        if common < (self.copied[-1].end if self.copied else 0):
            self.cut_copy(common)
        self.run(self.copying(chunk_bytes))
        end = self.copy.physical_max
        self.copied = [entry for entry in self.entries if entry.end <= end]
        whole = self.copied[-1].end if self.copied else 0
        if whole < end:  # It took part of a batch, or a blank.
            self.cut_copy(whole)

    def cut_copy(self, end: int) -> None:
        self.run(self.copy.truncate(end))
        if self.seen != NO_END:
            self.seen = min(self.seen, end)

    async def copying(self, chunk_bytes: int) -> None:
        source, begin = log_bytes(self.store), self.copy.physical_max
        self.copy.append_at(begin, source[begin : begin + chunk_bytes])
        await turn()

    @rule(count=st.integers(0, 30))
    def see(self, count: int) -> None:
        """So many entries of the copy are visible, or as many as are."""
        self.seen = max(self.copy._dispatcher.position, self.end_of(count))
        self.run(self.seeing())

    def end_of(self, count: int) -> int:
        """Where that many entries of the copy end."""
        ends = [0, *(entry.end for entry in self.copied)]
        return ends[min(count, len(ends) - 1)]

    async def seeing(self) -> None:
        self.copy.visible_end = self.seen
        await turn()

    @rule(which=st.sampled_from(["store", "copy"]), derived=st.booleans())
    def flush(self, which: str, derived: bool) -> None:
        store: MessageStore = getattr(self, which)
        self.run(store._flusher.flush_log("TIMER"))
        if derived:
            self.run(store._flusher.flush_derived("TIMER"))

    @rule(kill=st.booleans())
    def restart(self, kill: bool) -> None:
        self.run(abandon(self.store) if kill else self.store.close())
        self.store = self.run(self.opened("store"))

    @rule(kill=st.booleans(), count=st.one_of(st.none(), st.integers(0, 30)))
    def restart_copy(self, kill: bool, count: int | None) -> None:
        """None: all of it is visible."""
        self.run(abandon(self.copy) if kill else self.copy.close())
        self.seen = NO_END if count is None else self.end_of(count)
        self.copy = self.run(self.opened("copy", visible_end=self.seen))
        self.state = Keys(self.state.snapshots)
        self.run(self.copy.follow(self.state))

    @rule()
    def save_the_state(self) -> None:
        self.state.save()

    # ---- what must hold ---------------------------------------------------------------------

    @invariant()
    def queues_hold_what_is_left(self) -> None:
        for store, entries, seen in (
            (self.store, self.entries, NO_END),
            (self.copy, self.copied, self.seen),
        ):
            wanted: dict[tuple[str, int], list[bytes]] = {key: [] for key in QUEUES}
            given = dict.fromkeys(QUEUES, 0)
            for entry in entries:
                for each in entry.drafts:
                    if not each.sys_flag:
                        given[each.topic, each.queue_id] += 1
                        if entry.end <= seen:
                            wanted[each.topic, each.queue_id].append(each.body)
            assert store.physical_max == (entries[-1].end if entries else 0)
            for (topic, queue_id), bodies in wanted.items():
                found = [each.body for each in messages_of(store, topic, queue_id)]
                assert found == bodies
                assert store.max_offset(topic, queue_id) == len(bodies)
                assert store._queues.next_offset(topic, queue_id) == given[topic, queue_id]

    @invariant()
    def the_state_is_what_visible_entries_make_of_it(self) -> None:
        seen = [entry for entry in self.copied if entry.end <= self.seen]
        wanted = [each.properties.split("\x01")[1] for entry in seen for each in entry.drafts]
        assert [key.decode() for key in self.state.keys] == [
            key.partition("\x02")[0] for key in wanted
        ]

    async def compared(self, store: MessageStore, entries: list[Entry]) -> None:
        """With a store that got these entries only."""
        clock, root = HandClock(), self.root / "fresh"
        fresh = await open_store(small_config(root), runtime=runtime_on(clock=clock))
        for entry in entries:
            clock.value_ms = entry.now_ms
            assert put(fresh, entry.drafts) == entry.end
            await turn()
        for each in (fresh, store):
            await each._flusher.flush_log("TIMER")
            await each._flusher.flush_derived("SHUTDOWN")
        assert log_bytes(store) == log_bytes(fresh)
        assert all(not any(rest) for rest in rests(store)), "bytes behind the log's end"
        assert queue_files(store) == queue_files(fresh)
        assert index_entries(store) == index_entries(fresh)
        for key, topic in self.keys.items():
            answers = [
                each.query_by_key(topic, key, max_count=99, begin_ms=0, end_ms=1 << 60)
                for each in (store, fresh)
            ]
            assert answers[0].physical_offsets == answers[1].physical_offsets
        await fresh.close()
        shutil.rmtree(root)


def log_bytes(store: MessageStore) -> bytes:
    """The log, with the blanks between its files."""
    starts = range(0, store.physical_max, FILE_BYTES)
    return b"".join(bytes(store._log.file_view(start)) for start in starts)[: store.physical_max]


def rests(store: MessageStore) -> list[bytes]:
    """What stands in files behind the log's end."""
    end = store.physical_max
    return [
        bytes(store._log.file_view(start)[max(0, end - start) :])
        for start in store._log.files.starts
        if start + FILE_BYTES > end
    ]


def queue_files(store: MessageStore) -> dict[str, bytes]:
    """What stands in the files of queues that hold something."""
    found = {}
    root = Path(store._queues.directory)
    for path in sorted(root.glob("*/*/*")):
        data = path.read_bytes()
        if written_end(memoryview(data)):
            found[str(path.relative_to(root))] = data
    return found


def index_entries(store: MessageStore) -> list[tuple[int, int]]:
    """Hash and place of each key, in order."""
    assert store._index is not None
    return [
        file.entry(number) for file in store._index.files for number in range(1, file.index_count)
    ]


CutMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
TestCutsAndCopies = CutMachine.TestCase
