"""Nouns have their articles wherever the noun is a variable."""

from __future__ import annotations

import pytest

from pipelines.base.wording import spoken, with_article
from pipelines.sentences import recent_changes


@pytest.mark.parametrize(
    ("constant", "words"),
    [
        ("INVISIBLE_TIME_EXPIRED", "an invisible time expired"),
        ("OFFSET_STORE_LOST", "an offset store lost"),
        ("CONSUMER_CRASH", "a consumer crash"),
    ],
)
def test_a_noun_has_the_article_of_its_first_sound(constant: str, words: str) -> None:
    assert with_article(spoken(constant)) == words


def test_what_only_could_happen_is_said_with_its_article() -> None:
    exposed = {"basis": "EXPOSURE", "cause": "OFFSET_STORE_LOST"}
    assert recent_changes.cause(exposed) == "if an offset store lost came now"
