"""The store's fast packing of a record and the protocol's readable one make the same bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.foundation.errors import CorruptRecord
from engine.protocol.hashes import tags_code
from engine.protocol.message import MessageExt
from engine.protocol.message_record import decode_record, encode_record
from engine.protocol.properties import decode_properties
from engine.protocol.tag_bits import tags_word
from engine.store import MessageDraft
from engine.store.config import DELAY_LEVELS_MS_DEFAULT
from engine.store.record_reading import (
    MULTI_TAGS,
    check_record,
    glance,
    is_of_topic,
    properties_of,
    store_timestamp_of,
)
from engine.store.record_writing import DraftRecord

int32 = st.integers(-(2**31), 2**31 - 1)
times = st.integers(0, 2**45)
hosts = st.one_of(
    st.builds("{}:{}".format, st.ip_addresses(v=4), st.integers(0, 65535)),
    st.builds("[{}]:{}".format, st.ip_addresses(v=6), st.integers(0, 65535)),
)
names = st.text("abcXYZ019_", min_size=1, max_size=8)
values = st.text(
    st.characters(exclude_characters="\x00\x01\x02", exclude_categories=["Cs"]),
    min_size=1,
    max_size=20,
)
properties = st.dictionaries(names, values, max_size=5).map(
    lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())
)
topics = st.text("abcXYZ019_%|-", min_size=1, max_size=255)


@st.composite
def drafts(draw: st.DrawFn) -> MessageDraft:
    return MessageDraft(
        topic=draw(topics),
        queue_id=draw(st.integers(0, 2**31 - 1)),
        body=draw(st.binary(max_size=300)),
        properties=draw(properties),
        born_timestamp_ms=draw(times),
        born_host=draw(hosts),
        store_host=draw(hosts),
        flag=draw(int32),
        sys_flag=draw(st.integers(0, 0xFFF)),
        reconsume_times=draw(st.integers(0, 100)),
        prepared_transaction_offset=draw(times),
    )


def packed(draft: MessageDraft, queue_offset: int, physical_offset: int, stored_ms: int) -> bytes:
    return DraftRecord(draft).encode(queue_offset, physical_offset, stored_ms)


@given(drafts(), times, times, times)
def test_both_forms_are_equal_byte_for_byte(
    draft: MessageDraft, queue_offset: int, physical_offset: int, stored_ms: int
) -> None:
    message = MessageExt(
        topic=draft.topic,
        body=bytes(draft.body),
        properties=decode_properties(str(draft.properties)),
        flag=draft.flag,
        queue_id=draft.queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=draft.sys_flag,
        born_timestamp_ms=draft.born_timestamp_ms,
        born_host=draft.born_host,
        store_timestamp_ms=stored_ms,
        store_host=draft.store_host,
        reconsume_times=draft.reconsume_times,
        prepared_transaction_offset=draft.prepared_transaction_offset,
        body_crc=0,
        store_size_bytes=0,
    )
    record = packed(draft, queue_offset, physical_offset, stored_ms)
    assert record == bytes(encode_record(message))
    assert len(record) == DraftRecord(draft).size_bytes


@given(drafts(), times, times, times, st.integers(0, 20))
def test_what_dispatch_reads_is_what_the_whole_decoder_reads(
    draft: MessageDraft, queue_offset: int, physical_offset: int, stored_ms: int, before: int
) -> None:
    record = packed(draft, queue_offset, physical_offset, stored_ms)
    view = memoryview(bytes(before) + record + bytes(50))
    whole = decode_record(record)
    request = glance(view, before, DELAY_LEVELS_MS_DEFAULT)
    assert request is not None
    assert check_record(view, before, physical_offset, DELAY_LEVELS_MS_DEFAULT) == request
    place = queue_offset, physical_offset, stored_ms
    assert DraftRecord(draft).request(*place, DELAY_LEVELS_MS_DEFAULT) == request, "as a put says"
    assert (request.topic, request.queue_id) == (whole.topic, whole.queue_id)
    assert (request.queue_offset, request.physical_offset) == (queue_offset, physical_offset)
    assert (request.size_bytes, request.store_timestamp_ms) == (len(record), stored_ms)
    assert request.sys_flag == whole.sys_flag
    code = tags_word if whole.sys_flag & MULTI_TAGS else tags_code
    assert request.tags_code == code(whole.tags)
    assert decode_properties(properties_of(memoryview(record)).decode()) == whole.properties
    assert store_timestamp_of(memoryview(record)) == stored_ms


@given(drafts(), topics | st.text("ab", min_size=250, max_size=520), st.integers(0, 20))
def test_a_record_is_of_its_topic_and_of_no_other(
    draft: MessageDraft, other: str, before: int
) -> None:
    view = memoryview(bytes(before) + packed(draft, 3, 4096, 1_800_000_000_000))
    assert is_of_topic(view, before, draft.topic.encode())
    assert is_of_topic(view, before, other.encode()) == (other == draft.topic)
    assert not is_of_topic(view, before, draft.topic.encode() + b"x")


@given(drafts(), st.lists(st.tuples(st.integers(4, 600), st.integers(0, 255)), max_size=6))
def test_a_bent_record_is_of_its_topic_or_not_and_breaks_nothing(
    draft: MessageDraft, bends: list[tuple[int, int]]
) -> None:
    record = bytearray(packed(draft, 3, 4096, 1_800_000_000_000))
    for at, byte in bends:
        record[4 + at % (len(record) - 4)] = byte
    assert is_of_topic(memoryview(record), 0, draft.topic.encode()) in (True, False)


@given(drafts(), st.data())
def test_a_record_cut_short_is_never_taken_for_whole(
    draft: MessageDraft, data: st.DataObject
) -> None:
    """What a torn write leaves: the beginning of the record, then zeros."""
    record = packed(draft, 3, 4096, 1_800_000_000_000)
    kept = data.draw(st.integers(0, len(record) - 1))
    torn = record[:kept].ljust(len(record) + 100, b"\0")
    if torn[: len(record)] == record:
        return  # The bytes cut off were zeros: nothing is missing.
    with pytest.raises(CorruptRecord):
        check_record(memoryview(torn), 0, 4096, DELAY_LEVELS_MS_DEFAULT)
