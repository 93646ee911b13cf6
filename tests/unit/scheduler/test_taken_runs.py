"""Row F2: the book of an executor: no run is taken twice; what it cannot know it does not say."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from pipelines.scheduler.executor.run_files import CLOCKS_APART_MS, TakenRuns
from pipelines.scheduler.wire.messages import Taken

NOW_MS = 1_780_000_000_000
SENT_MS = NOW_MS + CLOCKS_APART_MS
FIRE_MS = SENT_MS - 20


def opened(home: Path, **given: object) -> TakenRuns:
    return TakenRuns(home, **{"now_ms": NOW_MS, "boot": "one"} | given)  # type: ignore[arg-type]


def test_a_run_is_known_whenever_it_is_sent_again(tmp_path: Path) -> None:
    book = opened(tmp_path)
    assert book.says(7, SENT_MS, FIRE_MS) is Taken.NO
    book.take(7, SENT_MS, FIRE_MS)
    for reopened in (book, opened(tmp_path), opened(tmp_path, boot="two")):
        assert reopened.has(7, SENT_MS, FIRE_MS)
        assert reopened.has(7, SENT_MS + 60_000, FIRE_MS), "sent again"
        assert not reopened.has(8, SENT_MS, FIRE_MS)
        assert reopened.says(7, SENT_MS + 60_000, FIRE_MS) is Taken.YES


def test_another_centre_gives_the_same_number_for_another_moment(tmp_path: Path) -> None:
    book = opened(tmp_path)
    book.take(7, SENT_MS, FIRE_MS)
    assert not book.has(7, SENT_MS + 86_400_000, FIRE_MS + 86_400_000)
    book.take(7, SENT_MS + 86_400_000, FIRE_MS + 86_400_000)
    assert book.has(7, SENT_MS, FIRE_MS), "the first is not forgotten for it"


def test_of_a_centre_that_does_not_say_what_a_run_is_for_the_time_of_its_sending_counts(
    tmp_path: Path,
) -> None:
    book = opened(tmp_path)
    book.take(7, SENT_MS, None)
    assert book.has(7, SENT_MS, None)
    assert not book.has(7, SENT_MS + 1, None)


def test_what_was_refused_after_all_was_not_taken(tmp_path: Path) -> None:
    book = opened(tmp_path)
    book.take(7, SENT_MS, FIRE_MS)
    book.give_back(7, SENT_MS, FIRE_MS)
    for reopened in (book, opened(tmp_path)):
        assert reopened.says(7, SENT_MS, FIRE_MS) is Taken.NO


def test_what_it_has_denied_is_not_taken_any_more_but_when_it_is_sent_again(
    tmp_path: Path,
) -> None:
    book = opened(tmp_path)
    assert not book.is_too_late(7, SENT_MS, FIRE_MS)
    assert book.says(7, SENT_MS, FIRE_MS) is Taken.NO
    for reopened in (book, opened(tmp_path), opened(tmp_path, boot="two")):
        assert reopened.is_too_late(7, SENT_MS, FIRE_MS)
        assert not reopened.is_too_late(7, SENT_MS + 20_000, FIRE_MS)
        assert not reopened.is_too_late(8, SENT_MS, FIRE_MS)


def test_of_what_was_sent_before_the_book_begins_it_is_not_sure(tmp_path: Path) -> None:
    book = opened(tmp_path)
    assert book.says(7, SENT_MS - 1, FIRE_MS) is Taken.UNSURE
    later = opened(tmp_path, now_ms=NOW_MS + 60_000)
    assert later.says(7, SENT_MS, FIRE_MS) is Taken.NO, "it goes on after a restart"
    after_a_power_cut = opened(tmp_path, now_ms=NOW_MS + 60_000, boot="two")
    assert after_a_power_cut.says(7, SENT_MS, FIRE_MS) is Taken.UNSURE
    assert after_a_power_cut.says(7, SENT_MS + 60_000, FIRE_MS) is Taken.NO
    (tmp_path / "taken").unlink()
    assert opened(tmp_path, now_ms=NOW_MS + 60_000).says(7, SENT_MS, FIRE_MS) is Taken.UNSURE


def test_a_book_is_bounded_and_is_not_sure_of_what_it_has_forgotten(tmp_path: Path) -> None:
    book = opened(tmp_path, taken_max=10)
    for number in range(100):
        book.take(number, SENT_MS + number, FIRE_MS + number)
        assert len(book) <= 10
    for reopened in (book, opened(tmp_path, taken_max=10)):
        assert reopened.says(99, SENT_MS + 99, FIRE_MS + 99) is Taken.YES
        assert reopened.says(5, SENT_MS + 5, FIRE_MS + 5) is Taken.UNSURE
        assert reopened.says(500, SENT_MS + 99, FIRE_MS + 99) is Taken.NO
    assert len((tmp_path / "taken").read_text().splitlines()) <= 42


@given(st.integers(0, 2**32), st.integers(0, 400))
def test_wherever_the_file_is_cut_off_or_damaged_it_opens(seed: int, cut: int) -> None:
    chance = random.Random(seed)
    with TemporaryDirectory() as home:
        book = opened(Path(home))
        for number in range(10):
            book.take(number, SENT_MS + number, FIRE_MS + number)
        book.close()
        file = Path(home) / "taken"
        whole = file.read_bytes()
        kept = bytearray(whole[: min(cut, len(whole))])
        if kept and chance.random() < 0.5:
            kept[chance.randrange(len(kept))] = chance.randrange(256)
        file.write_bytes(bytes(kept))
        again = opened(Path(home))
        again.take(100, SENT_MS, FIRE_MS)
        assert opened(Path(home)).has(100, SENT_MS, FIRE_MS)
        again.close()
