"""The window in which a broker recognises resends: what it remembers, for how long, and what it
refuses.

Feature rows: D2 (a).
"""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.broker.sending.deduplication import Deduplication, FirstCopy, body_digest, name_of
from engine.foundation.errors import RequestRefused
from engine.protocol.codes import ResponseCode
from engine.store import PutResult

DIGEST = body_digest(b"body")


def copy(stored_ms: int, digest: bytes = DIGEST) -> FirstCopy:
    return FirstCopy(digest, 1, PutResult(stored_ms, stored_ms, 100, stored_ms, stored_ms + 100))


def test_a_resend_finds_its_first_copy_and_is_counted() -> None:
    window = Deduplication()
    first = copy(0)
    assert window.first_copy("T", "K", DIGEST, now_ms=0) is None
    window.remember("T", "K", first)
    assert window.first_copy("T", "K", DIGEST, now_ms=5) is first
    assert window.first_copy("U", "K", DIGEST, now_ms=5) is None, "ids are per topic"
    counts = window.take_counts()
    assert (counts["T"].answered, counts["T"].refused) == (1, 0)
    assert window.take_counts() == {}


def test_the_same_id_with_another_body_is_refused_and_the_first_copy_stays() -> None:
    window = Deduplication()
    window.remember("T", "K", copy(7))
    with pytest.raises(RequestRefused, match="queue 1 offset 7, whose body is another") as refused:
        window.first_copy("T", "K", body_digest(b"other"), now_ms=8)
    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert window.first_copy("T", "K", DIGEST, now_ms=8) is not None
    assert window.take_counts()["T"].refused == 1


def test_the_window_ends_after_its_time_and_after_its_entries() -> None:
    window = Deduplication(entries_max=3, window_ms=100)
    window.remember("T", "old", copy(0))
    assert window.first_copy("T", "old", DIGEST, now_ms=100) is not None
    assert window.first_copy("T", "old", DIGEST, now_ms=101) is None
    for number in range(4):
        window.remember("T", f"{number}", copy(200 + number))
    assert len(window) == 3
    assert window.first_copy("T", "0", DIGEST, now_ms=250) is None
    assert window.first_copy("T", "1", DIGEST, now_ms=250) is not None


def test_ids_of_any_length_take_the_same_room() -> None:
    window = Deduplication()
    tracemalloc.start()
    try:
        for number in range(100):
            window.remember("T", f"{number}" + "k" * 30_000, copy(number))
        assert tracemalloc.get_traced_memory()[0] < 200_000, "of 3 MB of ids"
    finally:
        tracemalloc.stop()
    assert window.first_copy("T", "7" + "k" * 30_000, DIGEST, now_ms=99) is not None
    assert window.first_copy("T", "7" + "k" * 29_999, DIGEST, now_ms=99) is None
    assert name_of(name_of("k" * 65)) == name_of("k" * 65) != "k" * 65
    assert name_of("k" * 64) == "k" * 64


def test_a_deleted_topic_is_forgotten_and_a_known_key_keeps_its_first_copy() -> None:
    window = Deduplication()
    first = copy(1)
    window.remember("T", "K", first)
    window.remember("U", "K", first)
    window.remember("T", "K", copy(2))
    assert window.first_copy("T", "K", DIGEST, now_ms=2) is first
    list(window.forget_topic("T"))
    assert window.first_copy("T", "K", DIGEST, now_ms=2) is None
    assert window.first_copy("U", "K", DIGEST, now_ms=2) is first


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=60),
    st.integers(1, 8),
    st.integers(1, 100),
)
def test_the_window_is_what_a_plain_list_of_the_newest_would_be(
    sends: list[tuple[int, int]], entries_max: int, window_ms: int
) -> None:
    window = Deduplication(entries_max=entries_max, window_ms=window_ms)
    plain: list[tuple[str, int]] = []
    now_ms = 0
    for number, step_ms in sends:
        now_ms += step_ms
        key = str(number)
        plain = [(k, at) for k, at in plain if at >= now_ms - window_ms]
        expected = next((at for k, at in plain if k == key), None)
        found = window.first_copy("T", key, DIGEST, now_ms=now_ms)
        assert (None if found is None else found.put.queue_offset) == expected
        if found is None:
            window.remember("T", key, copy(now_ms))
            plain = [*plain, (key, now_ms)][-entries_max:]
        assert len(window) <= entries_max
