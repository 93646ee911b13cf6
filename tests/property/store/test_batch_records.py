"""Messages that are encoded first and placed later have the records they would have had at once."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from engine.store.record_reading import SCHEDULE_TOPIC
from engine.store.record_writing import BatchDraft, DraftRecord, MessageDraft

LEVELS_MS = (1000, 5000)


@dataclass(frozen=True)
class Place:
    queue_offset: int
    physical_offset: int
    stored_ms: int


places = st.builds(Place, st.integers(0, 2**40), st.integers(0, 2**50), st.integers(1, 2**42))
contents = st.lists(
    st.tuples(st.binary(max_size=40), st.sampled_from(["", "TAGS\x01a\x02", "DELAY\x011\x02"])),
    min_size=1,
    max_size=8,
)


@given(
    contents,
    places,
    st.sampled_from(["T", SCHEDULE_TOPIC]),
    st.sampled_from(["10.0.0.1:5", "[::1]:5"]),
    st.sampled_from([0, 4, 8]),
)
def test_a_batch_is_its_records_one_behind_the_other(
    messages: list[tuple[bytes, str]], place: Place, topic: str, born_host: str, sys_flag: int
) -> None:
    batch, drafts = BatchDraft(LEVELS_MS), []
    for body, properties in messages:
        drafts.append(
            MessageDraft(topic, 3, body, properties, 7, born_host, "10.0.0.9:9", sys_flag=sys_flag)
        )
        batch.add(drafts[-1])
    placed = batch.place(place.queue_offset, place.physical_offset, place.stored_ms)
    queue_offset, end, expected = place.queue_offset, place.physical_offset, b""
    for draft, request, result in zip(drafts, placed.requests, placed.results, strict=True):
        record = DraftRecord(draft)
        placed_at = queue_offset if record.takes_queue_offset else 0
        expected += record.encode(placed_at, end, place.stored_ms)
        assert request == record.request(placed_at, end, place.stored_ms, LEVELS_MS)
        assert (result.queue_offset, result.physical_offset) == (placed_at, end)
        assert result.store_timestamp_ms == place.stored_ms
        end += record.size_bytes
        assert result.end_offset == end
        queue_offset += record.takes_queue_offset
    assert bytes(placed.encoded) == expected
    assert placed.next_queue_offset == queue_offset
    assert batch.drafts == drafts
