"""Retry topics of POP groups: whose they are, and when that cannot be said."""

from __future__ import annotations

import pytest

from engine.protocol.names import pop_retry_of, pop_retry_topic


@pytest.mark.parametrize("is_v2", [False, True], ids=["%RETRY%group_topic", "%RETRY%group+topic"])
def test_group_and_topic_come_back_from_the_name_that_they_make(is_v2: bool) -> None:
    name = pop_retry_topic("g-pop", "pop_t", is_v2=is_v2)
    assert pop_retry_of(name, ["g-pop"]) == ("g-pop", "pop_t")


def test_a_name_of_v2_says_it_alone() -> None:
    assert pop_retry_of("%RETRY%g_a+t_b") == ("g_a", "t_b")


@pytest.mark.parametrize(
    ("topic", "groups"),
    [
        ("%RETRY%g", ["g"]),
        ("%RETRY%g_t", ["g_t"]),
        ("%RETRY%g_t", []),
        ("%RETRY%g_a_t", ["g", "g_a"]),
        ("%RETRY%g_t", ["g", "g_t"]),
        ("%RETRY%g_", ["g"]),
        ("%RETRY%+t", ["g"]),
        ("g_t", ["g"]),
        ("%DLQ%g_t", ["g"]),
    ],
)
def test_a_name_that_is_none_or_of_several_groups_is_nobody_s(
    topic: str, groups: list[str]
) -> None:
    assert pop_retry_of(topic, groups) is None
