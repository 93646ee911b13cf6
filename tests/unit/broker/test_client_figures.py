"""What members of groups say of their own speed is kept up to a limit, and ends with them."""

from __future__ import annotations

from engine.broker.stats.client_stats import ClientStats
from engine.protocol.bodies import ConsumerRunningInfo, ConsumeStatus

FAST = ConsumeStatus(pull_tps=9.0)


def test_figures_beyond_the_limit_are_counted_and_reported_when_there_is_room() -> None:
    figures = ClientStats(count_max=2)
    figures.take("g", "a", {"T": FAST})
    figures.take("g", "b", {"T": FAST, "U": FAST})
    assert (figures.of("g", "b"), figures.left_out) == ({}, 2)
    figures.take("g", "a", {"T": FAST, "U": FAST})
    assert list(figures.of("g", "a")) == ["T", "U"], "its own place is free for what it reports now"
    figures.take("g", "a", {})
    figures.take("g", "b", {"T": FAST, "U": FAST})
    assert (list(figures.of("g", "b")), figures.left_out) == (["T", "U"], 0)


def test_figures_end_with_their_member() -> None:
    figures = ClientStats(count_max=1)
    figures.take("g", "a", {"T": FAST})
    figures.take("g", "b", {"T": FAST})
    figures.forget("g", "a")
    figures.forget("g", "b")
    assert (figures.of("g", "a"), figures.left_out) == ({}, 0)
    figures.take("g", "c", {"T": FAST})
    assert figures.of("g", "c") == {"T": FAST}


def test_figures_that_are_none_do_not_hide_what_the_client_holds() -> None:
    info = ConsumerRunningInfo.decode(b'{"statusTable":{"T":{"pullTPS":"many"}},"jstack":"held"}')
    assert (info.status_table, info.jstack) == ({}, "held")
