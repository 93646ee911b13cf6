"""The store against a dictionary: put, read, flush, stop, kill, power failure of a prefix kind.

The model is a list of bodies per queue and one flat list in log order. After a clean stop or a kill
everything written is there; the machine also deletes topics and reads by offset, key and time.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.protocol.message_record import decode_record, decode_records
from engine.store import GetStatus, MessageStore
from tests.store_support import (
    BIG,
    START_MS,
    HandClock,
    abandon,
    draft,
    open_store,
    runtime_on,
    small_config,
    turn,
)

TOPICS = ["TopicA", "TopicB", "%RETRY%group"]
QUEUE_IDS = [0, 1]
QUEUES = [(topic, queue_id) for topic in TOPICS for queue_id in QUEUE_IDS]

bodies = st.binary(min_size=0, max_size=600)
queues = st.sampled_from(QUEUES)


class StoreMachine(RuleBasedStateMachine):
    """One store folder over many openings."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="store-model-"))
        self.loop = asyncio.new_event_loop()
        self.clock = HandClock()
        self.model: dict[tuple[str, int], list[tuple[bytes, int]]] = {key: [] for key in QUEUES}
        self.keys: dict[str, int] = {}
        self.keys_made = 0
        self.deleted: list[str] = []
        """Keys of messages whose topic was deleted."""
        self.store: MessageStore = self.run(self.opened())

    def teardown(self) -> None:
        self.run(self.store.close())
        self.loop.close()
        shutil.rmtree(self.root)

    def run(self, work: object) -> MessageStore:
        return self.loop.run_until_complete(work)  # type: ignore[arg-type]

    async def opened(self) -> MessageStore:
        return await open_store(small_config(self.root), runtime=runtime_on(clock=self.clock))

    # ---- what can happen --------------------------------------------------------------------

    @rule(queue=queues, content=st.lists(bodies, min_size=1, max_size=12))
    def put(self, queue: tuple[str, int], content: list[bytes]) -> None:
        self.run(self.putting(queue, content))

    async def putting(self, queue: tuple[str, int], content: list[bytes]) -> None:
        for body in content:
            self.put_one(queue, body)
        await turn()

    @rule(queue=queues, content=st.lists(bodies, min_size=2, max_size=5))
    def put_batch(self, queue: tuple[str, int], content: list[bytes]) -> None:
        self.run(self.putting_batch(queue, content))

    async def putting_batch(self, queue: tuple[str, int], content: list[bytes]) -> None:
        first = len(self.model[queue])
        results = self.store.put_batch(
            [draft(body, topic=queue[0], queue_id=queue[1]) for body in content]
        )
        assert [result.queue_offset for result in results] == list(
            range(first, first + len(content))
        )
        self.model[queue] += [(body, self.clock.value_ms) for body in content]
        await turn()

    def put_one(self, queue: tuple[str, int], body: bytes) -> None:
        self.keys_made += 1
        key = f"k{self.keys_made}"
        result = self.store.put(
            draft(body, topic=queue[0], queue_id=queue[1], properties=f"UNIQ_KEY\x01{key}\x02")
        )
        assert result.queue_offset == len(self.model[queue])
        self.model[queue].append((body, self.clock.value_ms))
        self.keys[f"{queue[0]}#{key}"] = result.physical_offset

    @rule(queue=queues, prepared=st.booleans())
    def put_without_queue_entry(self, queue: tuple[str, int], prepared: bool) -> None:
        self.run(self.putting_without_queue_entry(queue, 0x4 if prepared else 0xC))

    async def putting_without_queue_entry(self, queue: tuple[str, int], sys_flag: int) -> None:
        half = draft(b"half", topic=queue[0], queue_id=queue[1], sys_flag=sys_flag)
        assert self.store.put(half).queue_offset == 0
        await turn()

    @rule(milliseconds=st.integers(1, 5000))
    def time_passes(self, milliseconds: int) -> None:
        self.clock.value_ms += milliseconds

    @rule()
    def flush(self) -> None:
        self.run(self.store._flusher.flush_log("TIMER"))
        self.run(self.store._flusher.flush_derived("TIMER"))
        assert self.store.physical_flushed == self.store.physical_max

    @rule()
    def stop_and_start(self) -> None:
        self.run(self.store.close())
        self.store = self.run(self.opened())

    @rule()
    def kill_and_start(self) -> None:
        self.run(abandon(self.store))
        self.store = self.run(self.opened())

    @rule()
    def kill_lose_queues_and_start(self) -> None:
        self.run(abandon(self.store))
        shutil.rmtree(self.root / "consumequeue")
        self.store = self.run(self.opened())

    @precondition(lambda self: any(self.model.values()))
    @rule(topic=st.sampled_from(TOPICS))
    def delete_topic(self, topic: str) -> None:
        self.run(self.store.delete_topic(topic))
        for queue_id in QUEUE_IDS:
            self.model[topic, queue_id] = []
        self.deleted += [name for name in self.keys if name.startswith(f"{topic}#")]
        for name in self.deleted:
            self.keys.pop(name, None)

    # ---- what must hold ---------------------------------------------------------------------

    @invariant()
    def every_queue_reads_as_the_model_says(self) -> None:
        for (topic, queue_id), expected in self.model.items():
            assert self.store.max_offset(topic, queue_id) == len(expected)
            found: list[bytes] = []
            while len(found) < len(expected):
                result = self.store.get(topic, queue_id, len(found), max_count=32, max_bytes=BIG)
                assert result.status is GetStatus.FOUND
                found += [message.body for message in decode_records(result.body())]
                assert result.next_begin_offset == len(found)
            assert found == [body for body, _ in expected]

    @invariant()
    def no_key_leads_to_a_deleted_message(self) -> None:
        for name in self.deleted[-20:]:
            topic, _, key = name.partition("#")
            found = self.store.query_by_key(
                topic, key, max_count=100, begin_ms=0, end_ms=START_MS * 2
            ).physical_offsets
            assert not found, f"{name} is found though its topic was deleted"

    @invariant()
    def every_key_leads_to_its_message(self) -> None:
        for name, physical_offset in list(self.keys.items())[-20:]:
            topic, _, key = name.partition("#")
            found = self.store.query_by_key(
                topic, key, max_count=100, begin_ms=0, end_ms=START_MS * 2
            ).physical_offsets
            assert found.count(physical_offset) == 1
            record = self.store.record_at(physical_offset)
            assert record is not None
            assert decode_record(record).properties["UNIQ_KEY"] == key

    @invariant()
    def times_lead_to_the_first_message_not_older(self) -> None:
        now_ms = self.clock.value_ms
        for (topic, queue_id), expected in self.model.items():
            for timestamp_ms in (START_MS, now_ms - 1, now_ms, now_ms + 1):
                older = sum(stored_ms < timestamp_ms for _, stored_ms in expected)
                assert self.store.offset_at_time(topic, queue_id, timestamp_ms) == older


StoreMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
TestStoreAgainstAModel = StoreMachine.TestCase
