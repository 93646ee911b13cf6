"""Row D3, the second way: the broker's test by bits never loses what a client would take.

A message goes the way it goes in a broker: a record in the log, its glance for the consume queue,
the test of a pull; then the client's exact test of the same record.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.client.consuming.pulling import carries_one
from engine.protocol.bodies import SubscriptionData
from engine.protocol.message_record import decode_record
from engine.protocol.names import SysFlag
from engine.protocol.tag_bits import split_tags, tag_test
from engine.store import MessageDraft
from engine.store.record_reading import glance
from engine.store.record_writing import DraftRecord

tags = st.sampled_from(("red", "big", "rot", "TagA", "AaAa", "BBBB")) | st.text(
    min_size=1, max_size=8
).filter(lambda tag: tag == tag.strip() and not set("|\x01\x02\x00") & set(tag))


def stored(tags: str, *, bits: bool) -> bytes:
    """The record of a message with these TAGS."""
    draft = MessageDraft(
        topic="paint",
        queue_id=0,
        body=b"",
        properties=f"a\x01b\x02TAGS\x01{tags}\x02" if tags else "",
        born_timestamp_ms=1,
        born_host="127.0.0.1:1",
        store_host="127.0.0.1:10911",
        sys_flag=SysFlag.MULTI_TAGS if bits else 0,
    )
    return DraftRecord(draft).encode(0, 0, 2)


@given(
    st.lists(tags, max_size=8),
    st.lists(tags, min_size=1, max_size=4),
    st.sampled_from(("||", " || ", "||||")),
    st.booleans(),
)
def test_what_the_client_takes_has_passed_the_broker(
    carried: list[str], wanted: list[str], separator: str, bits: bool
) -> None:
    text = separator.join(carried if bits else carried[:1])
    record = stored(text, bits=bits)
    request = glance(memoryview(record), 0, ())
    assert request is not None
    subscription = SubscriptionData.build("paint", separator.join(wanted))
    passes = tag_test(subscription.tags_set, subscription.code_set)(request.tags_code)
    takes = carries_one(decode_record(record), subscription.tags_set)
    assert passes or not takes
    assert takes == any(tag in wanted for tag in split_tags(text))
