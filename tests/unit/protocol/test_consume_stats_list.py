"""How far all groups are: read in slices, it says what the whole answer says, and no answer holds
the event loop.
"""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.foundation.errors import RemoteProtocolError
from engine.foundation.limits import FRAME_BYTES_MAX, LOOSE_KEYS_MAX
from engine.protocol import fastjson
from engine.protocol.bodies import ConsumeStats, OffsetWrapper
from engine.protocol.consume_stats_list import Entry, consume_stats_in_slices
from engine.protocol.message import MessageQueue

AS_5_5 = (
    b'{"brokerAddr":"127.0.0.1:10911","consumeStatsList":[{"quick":[{"consumeTps":0.0,"offsetTable":'
    b'{{"brokerName":"broker-a","queueId":1,"topic":"orders"}:{"brokerOffset":9,"consumerOffset":7,'
    b'"lastTimestamp":1700000000000,"pullOffset":8},{"brokerName":"broker-a","queueId":0,"topic":'
    b'"orders"}:{"brokerOffset":5,"consumerOffset":5,"lastTimestamp":0,"pullOffset":5}}}]},'
    b'{"idle":[]}],"totalDiff":2,"totalInflightDiff":1}'
)


def entries_of(body: bytes) -> dict[str, list[Entry]]:
    """What an answer says."""
    found: dict[str, list[Entry]] = {}
    for slice_ in consume_stats_in_slices(body):
        for group, entry in slice_:
            found.setdefault(group, []).extend([] if entry is None else [entry])
    return found


def queue(queue_id: int) -> MessageQueue:
    return MessageQueue("orders", "broker-a", queue_id)


def test_an_answer_says_how_far_each_group_is_in_each_queue() -> None:
    assert entries_of(AS_5_5) == {
        "quick": [
            (queue(1), OffsetWrapper(9, 7, 8, 1_700_000_000_000)),
            (queue(0), OffsetWrapper(5, 5, 5, 0)),
        ],
        "idle": [],
    }


names = st.text(max_size=8)
offsets = st.integers(-(2**63), 2**63 - 1)
tables = st.dictionaries(
    st.builds(MessageQueue, names, names, offsets),
    st.builds(OffsetWrapper, offsets, offsets, offsets, offsets),
    max_size=3,
)


@given(st.dictionaries(names, st.lists(tables, max_size=2), max_size=3), st.booleans())
def test_whatever_a_broker_writes_is_read_back(
    groups: dict[str, list[dict[MessageQueue, OffsetWrapper]]], one_by_one: bool
) -> None:
    each = [
        fastjson.dumps(group)
        + b":["
        + b" , ".join(ConsumeStats(table).encode() for table in of)
        + b"]"
        for group, of in groups.items()
    ]
    between = b"},{" if one_by_one else b","
    listed = b"[{" + between.join(each) + b"}]" if each else b"[]"
    assert entries_of(b'{"totalDiff":0,"consumeStatsList":' + listed + b',"brokerAddr":null}') == {
        group: [entry for table in of for entry in table.items()] for group, of in groups.items()
    }


@pytest.mark.parametrize(
    ("key", "figures"),
    [
        ('{"topic":"orders","queueId":"1","brokerName":"broker-a"}', '{"consumerOffset":"7"}'),
        ('{"topic" : "\\u006frders",\n"queueId":1,"brokerName":"broker-a","more":null}', '{1:2}'),
        ('{"queueId":1,"topic":"orders","brokerName":"broker-a"}', '{"consumerOffset":7,"x":[1]}'),
    ],
)  # fmt: skip
def test_other_spellings_are_read_as_any_table_is(key: str, figures: str) -> None:
    table = f'{{"offsetTable":{{{key}:{figures}}}}}'
    body = f'{{"consumeStatsList":[{{"g":[{table}]}}]}}'.encode()
    assert dict(entries_of(body)["g"]) == ConsumeStats.decode(table.encode()).offset_table


@pytest.mark.parametrize("body", [b"{}", b'{"consumeStatsList":null}', b'{"consumeStatsList":[]}'])
def test_an_answer_may_name_no_group(body: bytes) -> None:
    assert entries_of(body) == {}


@pytest.mark.parametrize(
    "inner",
    [
        *(
            "{}",
            "[[]]",
            "[{}]",
            '["g"]',
            '[{"g":1}]',
            '[{"g":[1]}]',
            '[{"g":[{"offsetTable":[]}]}]',
        ),
        *('[{"g":[{"offsetTable":{1:{}}}]}]', '[{"g":[{"offsetTable":{{"topic":"t"}:{}}}]}]'),
        *("[", "[{", '[{"g":[]}', '[{"g":[]},', '[{"g":[{"a":{"b":1}}]}]', '[{"g":[]}]]', '"\\'),
        '[{"g":[{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"pullOffset":[]}}}]}]',
        '[{"g":[{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{},}}]}]',
    ],
)
def test_what_has_another_form_is_refused_with_where_it_is_wrong(inner: str) -> None:
    with pytest.raises(RemoteProtocolError):
        entries_of(b'{"consumeStatsList":' + inner.encode() + b"}")


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"0", b'{"a"', b"\xff\xfe", b"{" * 5000])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        entries_of(body)


def test_more_entries_than_may_be_are_refused() -> None:
    row = b'{"brokerName":"b","queueId":0,"topic":"t"}:{}'
    rows = b",".join([row] * (LOOSE_KEYS_MAX + 1))
    with pytest.raises(RemoteProtocolError, match=str(LOOSE_KEYS_MAX)):
        entries_of(b'{"consumeStatsList":[{"g":[{"offsetTable":{' + rows + b"}}]}]}")


GROUP = '{"consumeStatsList":[{"g":['
TABLE = GROUP + '{"offsetTable":{'
KEY = '{"brokerName":"b","queueId":0,"topic":"t"}'
HOSTILE = {
    "entries": (TABLE, KEY + ":{},"),
    "entries that are not strict": (TABLE, KEY[:-1] + ",1:1}:{1:1},"),
    "long names": (TABLE, KEY.replace('"t"', f'"{"t" * 16_000}"') + ":{},"),
    "many fields": (TABLE, KEY + ":{" + '"a":1,' * 2000 + '"b":1},'),
    "many loose fields": (TABLE, KEY + ":{" + "1:1," * 3000 + "1:1},"),
    "empty figures": (GROUP, "{},"),
    "empty groups": ('{"consumeStatsList":[', '{"g":[]},'),
    "groups in one object": ('{"consumeStatsList":[{', '"g":[],'),
    "no groups": ('{"consumeStatsList":[', "{},"),
    "figures without end": (GROUP + "{", '"a":1,'),
    "space": (GROUP, " "),
    "a string without end": (TABLE + '{"topic":"', "t"),
    "nothing else": ("", "{"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_answer_does_not_hold_the_loop(kind: str) -> None:
    """Of a part of a frame: each slice's work does not depend on how much follows."""
    begin, piece = HOSTILE[kind]
    body = (begin + piece * (FRAME_BYTES_MAX // 16 // len(piece))).encode()
    longest_s, begun_s = 0.0, time.thread_time()
    with contextlib.suppress(RemoteProtocolError):
        for _ in consume_stats_in_slices(body):
            longest_s, begun_s = max(longest_s, time.thread_time() - begun_s), time.thread_time()
    assert max(longest_s, time.thread_time() - begun_s) <= 0.05
