"""What a broker says of its life, as text from outside."""

from __future__ import annotations

import pytest

from engine.foundation.errors import RemoteProtocolError
from engine.observer.polling import age_ms, boot_ms


def test_a_life_begins_at_milliseconds() -> None:
    assert boot_ms("1795450255732") == 1_795_450_255_732


@pytest.mark.parametrize("text", ["", "yesterday", "-1", "1" * 400, "1.5"])
def test_what_is_no_moment_is_refused_with_its_words(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="bootTimestamp"):
        boot_ms(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("[ 0 days, 0 hours, 1 minutes, 3 seconds ]", 63_000),
        ("[ 2 days, 1 hours, 0 minutes, 0 seconds ]", 176_400_000),
        ("", None),
        ("[ some days ]", None),
        ("[ 99999999999 days ]", None),
    ],
)
def test_how_long_it_runs_is_read_or_unknown(text: str, ms: int | None) -> None:
    assert age_ms(text) == ms
