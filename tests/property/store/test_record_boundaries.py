"""A message begins where it was put, and nowhere else, whatever bodies hold."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from engine.protocol.message import MessageExt
from engine.protocol.message_record import MAGIC_V1, encode_record
from engine.store import MessageStore
from tests.store_support import draft, open_store, small_config, turn

MAGIC, MAGIC_AT = MAGIC_V1.to_bytes(4, "big", signed=True), 4
HEAD_BYTES = 88
"""Of a record whose hosts are IPv4: its body begins behind them."""

queue_offsets = st.integers(-2, 6) | st.sampled_from([2**63 - 1, -(2**63)])
forgeries = st.tuples(st.sampled_from(["TopicA", "TopicB", "Never"]), queue_offsets)
"""(topic, queue offset) that a forged record names."""
bodies = st.one_of(st.binary(max_size=40), st.lists(forgeries, min_size=1, max_size=3))
sent = st.lists(st.tuples(st.sampled_from(["TopicA", "TopicB"]), bodies), max_size=12)


def body_at(place: int, forged: bytes | list[tuple[str, int]]) -> bytes:
    """The bytes, or forged records one behind the other, each naming the place it has."""
    if isinstance(forged, bytes):
        return forged
    body = b""
    for topic, queue_offset in forged:
        record = MessageExt(topic, b"forged", {"REAL_TOPIC": "TopicA"})
        record.queue_offset = queue_offset
        record.physical_offset = place + len(body)
        record.born_host = record.store_host = "10.0.0.5:5555"
        body += bytes(encode_record(record))
    return body


def found_in(store: MessageStore, root: str) -> list[int]:
    """Every place with the magic of a record at which a message is found."""
    places: list[int] = []
    for path in sorted(Path(root, "commitlog").iterdir()):
        log, at = path.read_bytes(), -1
        while (at := log.find(MAGIC, at + 1)) >= 0:
            places.append(int(path.name) + at - MAGIC_AT)
    return [place for place in places if store.known_record_at(place) is not None]


@given(sent)
async def test_a_record_is_found_where_it_was_put_and_nowhere_else(
    messages: list[tuple[str, bytes | list[tuple[str, int]]]],
) -> None:
    with tempfile.TemporaryDirectory() as root:
        store = await open_store(small_config(root))
        put: dict[str, list[int]] = {"TopicA": [], "TopicB": []}
        for topic, forged in messages:
            place = store.physical_max
            body = body_at(place + HEAD_BYTES, forged)
            at = store.put(draft(body, topic=topic)).physical_offset
            if at != place:  # It began the next file, so the forgery names another place.
                assert at % store._config.mapped_file_size_commit_log_bytes == 0
            put[topic].append(at)
        await turn()
        everywhere = sorted(put["TopicA"] + put["TopicB"])
        assert found_in(store, root) == everywhere
        await store.close()
        again = await open_store(small_config(root))
        assert found_in(again, root) == everywhere
        await again.delete_topic("TopicB")
        assert found_in(again, root) == put["TopicA"], "a deleted topic's messages are gone"
        await again.close()
