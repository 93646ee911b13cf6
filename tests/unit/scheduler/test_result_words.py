"""What a run's end says: its beginning, its end, and the type of an exception stay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.scheduler.result_words import failure_of, head_and_tail, line_of


@given(st.text(max_size=400), st.integers(0, 200))
def test_a_text_keeps_its_two_ends_within_its_bound(text: str, chars_max: int) -> None:
    kept = head_and_tail(text, chars_max)
    assert len(kept) <= chars_max or kept == text
    assert head_and_tail(kept, chars_max) == kept, "whoever cuts it again cuts nothing"
    if len(text) > chars_max >= 100:
        assert (kept[:20], kept[-20:]) == (text[:20], text[-20:])
    if len(text) <= chars_max:
        assert kept == text


def test_what_is_left_out_is_counted() -> None:
    kept = head_and_tail("a" * 9000 + "b" * 9000, 10_048)
    assert kept == "a" * 5000 + "\n… 8,000 characters are left out …\n" + "b" * 5000


def deep(levels: int, error: Exception) -> None:
    if levels:
        deeper(levels - 1, error)
    raise error


def deeper(levels: int, error: Exception) -> None:
    deep(levels, error)  # A frame alone that repeats is shown three times.


@pytest.mark.parametrize("levels", [0, 120])
def test_the_type_of_an_exception_stays_however_long_its_text_and_its_traceback_are(
    levels: int,
) -> None:
    class OrderIsWrong(Exception):
        pass

    for text in ("short", "first " + "x" * 40_000 + " last"):
        try:
            deep(levels, OrderIsWrong(text))
        except OrderIsWrong as error:
            failure = failure_of(error)
        assert len(failure) <= 15_000
        assert failure.startswith("Traceback (most recent call last):")
        assert f"OrderIsWrong: {text[:5]}" in failure
        assert failure.rstrip().endswith(text[-4:])
        assert line_of(failure).endswith("…" if text != "short" else "OrderIsWrong: short")
        assert "OrderIsWrong: " in line_of(failure)


def test_the_line_of_a_run_is_what_was_raised_last_or_the_first_that_is_said() -> None:
    first, last = KeyError("a"), ValueError("one\ntwo")
    with pytest.raises(ValueError, match="one") as raised:
        raise last from first
    assert line_of(failure_of(raised.value)) == "ValueError: one"
    assert line_of("\n  3 orders\n2 more\n") == "3 orders"
    assert line_of("") == ""
    assert line_of("y" * 500) == "y" * 159 + "…"
    assert line_of("Traceback (most recent call last):\n  nothing more") == (
        "Traceback (most recent call last):"
    )


@pytest.mark.parametrize("text", ["short", "y" * 40_000])
def test_a_group_of_exceptions_keeps_what_each_of_them_was(text: str) -> None:
    with pytest.raises(ExceptionGroup) as raised:
        raise ExceptionGroup("2 tasks", [ValueError(text), KeyError("order")])
    said = failure_of(raised.value)
    assert len(said) <= 15_000
    for one in ("ExceptionGroup: 2 tasks", "ValueError: ", "KeyError: 'order'"):
        assert one in said
    assert line_of(said) == "ExceptionGroup: 2 tasks (2 sub-exceptions)"
