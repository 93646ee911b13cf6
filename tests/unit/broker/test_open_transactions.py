"""Row D4: which transactions are open, what a check round does with each, what is settled."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.broker.transactions.transactions import (
    CheckRules,
    HalfMessage,
    Transactions,
    Verdict,
    decode_op_body,
    encode_op_body,
    first_offset_of,
    half_message,
    verdict,
)
from engine.protocol.message import MessageExt

NOW_MS = 1_700_000_000_000
RULES = CheckRules(timeout_ms=6000, check_max=15, reserved_ms=72 * 3_600_000, renews=False)


def half(queue_offset: int, *, first: int | None = None, **more: int | None) -> HalfMessage:
    """A copy stored a minute ago, born then as well."""
    fields: dict[str, int | None] = {
        "physical_offset": queue_offset * 100,
        "born_timestamp_ms": NOW_MS - 60_000,
        "store_timestamp_ms": NOW_MS - 60_000,
        "immunity_s": None,
        "check_times": 0,
    }
    name = queue_offset if first is None else first
    return HalfMessage(name, queue_offset, **(fields | more))  # type: ignore[arg-type]


def stored(*queue_offsets: int) -> Transactions:
    """Open transactions of these offsets, each record 100 bytes long."""
    transactions = Transactions()
    for offset in queue_offsets:
        transactions.note_half(half(offset), end_offset=offset * 100 + 100)
    return transactions


@pytest.mark.parametrize(
    ("what", "verdicts", "expected"),
    [
        ("older than the time-out", {}, Verdict.CHECK),
        ("younger than the time-out", {"born_timestamp_ms": NOW_MS - 6000}, Verdict.WAIT),
        ("one ms past the time-out", {"born_timestamp_ms": NOW_MS - 6001}, Verdict.CHECK),
        ("born in the future", {"born_timestamp_ms": NOW_MS + 1}, Verdict.CHECK),
        ("stored in this round", {"store_timestamp_ms": NOW_MS}, Verdict.WAIT),
        ("immune for longer", {"immunity_s": 60}, Verdict.WAIT),
        ("immune no longer", {"immunity_s": 59}, Verdict.CHECK),
        ("immune for the time-out", {"immunity_s": -1}, Verdict.CHECK),
        ("asked 14 times", {"check_times": 14}, Verdict.CHECK),
        ("asked 15 times", {"check_times": 15}, Verdict.DISCARD),
        ("older than retention", {"born_timestamp_ms": NOW_MS - 72 * 3_600_001}, Verdict.DISCARD),
    ],
)
def test_the_verdict_on_a_half_message(
    what: str, verdicts: dict[str, int], expected: Verdict
) -> None:
    decided = verdict(half(3, **verdicts), now_ms=NOW_MS, round_began_ms=NOW_MS, rules=RULES)
    assert decided is expected, what


@pytest.mark.parametrize(
    ("what", "verdicts", "expected"),
    [
        ("immune for longer", {"immunity_s": 60}, Verdict.RENEW),
        ("just stored", {"immunity_s": 60, "store_timestamp_ms": NOW_MS}, Verdict.WAIT),
        ("immune no longer", {"immunity_s": 59}, Verdict.CHECK),
        ("not immune", {}, Verdict.CHECK),
        ("within the time-out", {"born_timestamp_ms": NOW_MS - 6000}, Verdict.WAIT),
    ],
)
def test_the_verdict_while_those_with_time_are_put_again(
    what: str, verdicts: dict[str, int], expected: Verdict
) -> None:
    rules = replace(RULES, renews=True)
    decided = verdict(half(3, **verdicts), now_ms=NOW_MS, round_began_ms=NOW_MS, rules=rules)
    assert decided is expected, what


def test_those_with_time_are_put_again_when_as_many_settled_ones_wait_behind_them() -> None:
    transactions = Transactions(held_max=100, renewed_held=10)
    for offset in range(10):
        transactions.note_half(half(offset, immunity_s=3600), end_offset=0)
    assert not transactions.is_sparse, "ten are held, all of them open"
    for offset in (1, 2, 3, 4):
        transactions.end(offset, committed=True)
    assert not transactions.is_sparse, "four copies' places for six copies"
    transactions.end(5, committed=True)
    assert transactions.is_sparse, "five for five"
    transactions.note_op(0, [1, 2, 3, 4, 5], end_offset=0)
    for place, one in enumerate(transactions.open_halves(), start=10):
        again = half(place, first=one.first_offset, immunity_s=3600)
        transactions.note_half(again, end_offset=0)
    transactions.advance(0)
    assert transactions.half_offset == 10
    assert not transactions.is_sparse


def test_a_wish_for_time_is_measured_from_birth_and_read_as_rocketmq_reads_it() -> None:
    for word, seconds in (("30", 30), ("-1", -1), ("soon", -1), ("", None)):
        message = MessageExt("t", b"", {"CHECK_IMMUNITY_TIME_IN_SECONDS": word})
        assert half_message(message).immunity_s == seconds


def test_a_copy_names_the_first_one_and_never_a_later_one() -> None:
    def copy(queue_offset: int, word: str) -> MessageExt:
        properties = {"TRAN_PREPARED_QUEUE_OFFSET": word}
        return MessageExt("t", b"", properties, queue_offset=queue_offset)

    assert first_offset_of(copy(7, "3")) == 3
    assert first_offset_of(copy(7, "nonsense")) == 7
    assert first_offset_of(copy(7, "9")) == 7


def test_progress_passes_what_is_ended_written_down_and_durable_and_nothing_else() -> None:
    transactions = stored(0, 1, 2)
    transactions.end(1, committed=True)
    transactions.end(0, committed=False)
    transactions.advance(10_000)
    assert transactions.half_offset == 0, "their op message is not written"
    assert transactions.op_batch(4096) == [1, 0]
    transactions.note_op(0, [1, 0], end_offset=500)
    transactions.advance(499)
    assert transactions.half_offset == 0, "it is written, not durable"
    transactions.advance(500)
    assert (transactions.half_offset, transactions.op_offset) == (2, 1), "2 is still open"


def test_an_op_message_is_read_until_every_offset_in_it_is_passed() -> None:
    transactions = stored(0, 1, 2)
    transactions.end(2, committed=True)
    transactions.note_op(0, [2], end_offset=400)
    transactions.advance(400)
    assert (transactions.half_offset, transactions.op_offset) == (0, 0)
    for offset in (0, 1):
        transactions.end(offset, committed=True)
    transactions.note_op(1, [0, 1], end_offset=500)
    transactions.advance(500)
    assert (transactions.half_offset, transactions.op_offset) == (3, 2)


def test_a_further_copy_settles_the_one_before_and_one_end_ends_both() -> None:
    transactions = stored(0, 1)
    transactions.note_half(half(2, first=0, check_times=1), end_offset=300)
    assert [one.queue_offset for one in transactions.open_halves()] == [1, 2]
    transactions.end(0, committed=True)
    assert transactions.find(0) is None
    assert transactions.op_batch(4096) == [2], "the newest copy stands for all"
    transactions.end(1, committed=False)
    transactions.note_op(0, [2, 1], end_offset=400)
    transactions.advance(400)
    assert transactions.half_offset == 3


def test_how_a_transaction_ended_is_remembered_until_it_is_passed() -> None:
    transactions = stored(0, 1)
    transactions.end(0, committed=True)
    assert transactions.was_committed(0) is True
    assert transactions.was_committed(1) is None
    transactions.note_op(0, [0], end_offset=300)
    transactions.advance(300)
    assert transactions.was_committed(0) is None


def test_op_bodies_stay_within_their_limit_and_lose_nothing() -> None:
    transactions = stored(*range(1000))
    for offset in range(1000):
        transactions.end(offset, committed=True)
    assert transactions.pending_bytes == len(encode_op_body(range(1000)))
    written: list[int] = []
    while batch := transactions.op_batch(64):
        assert len(encode_op_body(batch)) <= 64
        transactions.note_op(len(written), batch, end_offset=1)
        written += batch
    assert written == list(range(1000))
    assert transactions.pending_bytes == 0


def test_op_bodies_are_lists_with_a_comma_behind_each_offset() -> None:
    assert encode_op_body([12, 130]) == b"12,130,"
    assert decode_op_body(b"12,130,") == [12, 130]
    assert decode_op_body(b"7") == [7], "as RocketMQ 4.x wrote them"
    assert decode_op_body(b"7,x,,-3,\xff") == [7]


def test_too_many_half_messages_behind_an_open_one_are_seen() -> None:
    transactions = Transactions(held_max=2)
    for offset in (0, 1):
        assert not transactions.is_full
        transactions.note_half(half(offset), end_offset=1)
    assert transactions.is_full
    transactions.end(0, committed=True)
    transactions.note_op(0, [0], end_offset=1)
    transactions.advance(1)
    assert not transactions.is_full


def test_a_restored_queue_has_open_what_no_op_message_lists() -> None:
    transactions = Transactions()
    transactions.restore(
        [half(10), half(11), half(12, first=10), half(14)],
        [(5, [4, 11]), (6, [10])],  # 4 is passed; 10 is ended by the name of its older copy
        half_begin=10,
        half_end=15,
        op_begin=5,
    )
    assert [one.queue_offset for one in transactions.open_halves()] == [14]
    transactions.advance(0)
    assert (transactions.half_offset, transactions.op_offset) == (14, 7), "13 is a hole"
