"""Message traces as RocketMQ 5.5's own encoder writes them (the golden text is its output).

Feature rows: D6.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.foundation.errors import RemoteProtocolError
from engine.protocol.trace import (
    ConsumedTrace,
    ConsumeEnd,
    ConsumingTrace,
    EndTransactionTrace,
    SentTrace,
    Trace,
    TracedKind,
    TransactionState,
    decode_traces,
    encode_trace,
    trace_keys,
)

AT = 1_700_000_000_000
TRACES: tuple[tuple[Trace, str], ...] = (
    (
        SentTrace(
            time_ms=AT,
            region="DefaultRegion",
            group="group",
            topic="topic",
            message_id="ID1",
            tags="tag",
            keys="k1 k2",
            store_host="127.0.0.1:10911",
            body_bytes=12,
            cost_ms=7,
            kind=TracedKind.TRANSACTION_HALF,
            offset_message_id="OFFSETID1",
            success=True,
        ),
        f"Pub|{AT}|DefaultRegion|group|topic|ID1|tag|k1 k2|127.0.0.1:10911|12|7|1|OFFSETID1|true\n",
    ),
    (
        ConsumingTrace(
            time_ms=AT,
            region="DefaultRegion",
            group="group",
            request_id="REQUEST",
            message_id="ID2",
            retry_times=2,
            keys=None,
        ),
        f"SubBefore|{AT}|DefaultRegion|group|REQUEST|ID2|2|null\n",
    ),
    (
        ConsumedTrace(
            request_id="REQUEST",
            message_id="ID1",
            cost_ms=7,
            success=False,
            keys="k1 k2",
            end=ConsumeEnd.FAILED,
            time_ms=AT,
            group="group",
        ),
        f"SubAfter|REQUEST|ID1|7|false|k1 k2|4|{AT}|group\n",
    ),
    (
        EndTransactionTrace(
            time_ms=AT,
            region="DefaultRegion",
            group="group",
            topic="topic",
            message_id="ID1",
            tags="tag",
            keys="k1 k2",
            store_host="127.0.0.1:10911",
            kind=TracedKind.TRANSACTION_HALF,
            transaction_id="TX",
            state=TransactionState.ROLLBACK_MESSAGE,
            from_check=True,
        ),
        (
            f"EndTransaction|{AT}|DefaultRegion|group|topic|ID1|tag|k1 k2|127.0.0.1:10911|1|TX|"
            "ROLLBACK_MESSAGE|true\n"
        ),
    ),
)


def wire(readable: str) -> str:
    """The text with its real separators."""
    return readable.replace("|", "\x01").replace("\n", "\x02")


@pytest.mark.parametrize(("trace", "text"), TRACES, ids=lambda value: type(value).__name__)
def test_a_trace_is_written_and_read_as_rocketmq_does(trace: Trace, text: str) -> None:
    assert encode_trace(trace) == wire(text)
    assert decode_traces(wire(text)) == [trace]


def test_a_record_holds_many_and_unknown_kinds_are_left_out() -> None:
    texts = [text for _, text in TRACES]
    record = wire("".join([*texts[:2], "Recall|1|r|g|t|m|true\n", *texts[2:]]))
    assert decode_traces(record) == [trace for trace, _ in TRACES]
    assert decode_traces("") == []


def test_shorter_forms_of_older_clients_are_read() -> None:
    (sent,) = decode_traces(wire(f"Pub|{AT}|r|g|t|ID|tag|k|h|12|7|0|true\n"))
    assert isinstance(sent, SentTrace)
    assert (sent.offset_message_id, sent.success) == (None, True)
    (consumed,) = decode_traces(wire("SubAfter|REQUEST|ID|7|true|k\n"))
    assert isinstance(consumed, ConsumedTrace)
    assert (consumed.end, consumed.time_ms, consumed.group) == (ConsumeEnd.SUCCESS, None, None)


@pytest.mark.parametrize(
    "text",
    [
        *("Pub|x|\n", "SubBefore|1\n", "SubAfter|r|m|seven|true|k|9\n"),
        f"SubAfter|r|m|{'9' * 400}|true|k|0\n",
        f"SubBefore|{2**63}|r|g|rq|m|0|k\n",
        f"SubBefore|1|r|g|rq|m|{2**31}|k\n",
        *("SubBefore|1_0|r|g|rq|m|0|k\n", "SubBefore| 1|r|g|rq|m|0|k\n"),
    ],
)
def test_what_is_no_trace_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="no trace"):
        decode_traces(wire(text))


def test_a_trace_is_found_by_its_message_and_each_key() -> None:
    assert trace_keys(TRACES[0][0]) == ["ID1", "k1", "k2"]
    assert trace_keys(TRACES[1][0]) == ["ID2"]


def test_keys_with_the_separators_in_them_spoil_no_other_trace_of_the_record() -> None:
    strange, plain = (
        ConsumingTrace(
            time_ms=1,
            region=None,
            group="g",
            request_id="R",
            message_id=f"ID{keys}",
            retry_times=0,
            keys=keys,
        )
        for keys in ("a\x01b\x01c\x02Pub\x01", "plain")
    )
    first, second = decode_traces(encode_trace(strange) + encode_trace(plain))
    assert (first.keys, second) == ("a b c Pub ", plain)


words = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1).filter(
    lambda word: word != "null"
)


@given(
    st.builds(
        ConsumingTrace,
        time_ms=st.integers(0, 2**50),
        region=st.none() | words,
        group=words,
        request_id=words,
        message_id=words,
        retry_times=st.integers(0, 99),
        keys=st.none() | words,
    )
)
def test_what_is_written_is_read_back(trace: ConsumingTrace) -> None:
    assert decode_traces(encode_trace(trace)) == [trace]
