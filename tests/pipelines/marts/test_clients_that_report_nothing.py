"""Of a client that sends nothing and reports rarely, what its reports show is believed, once it was
seen to report twice; before, nobody knows what it holds.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.pipelines.marts.played_group import FIRST, Gold, Work, played_beside, states, windows

HOURS_2 = 7200


def mute(*, every_s: float, takes_s: float, commit_s: float) -> Work:
    """A message comes each so many seconds, and one is finished each so many seconds."""
    return Work(
        lambda at: FIRST + int(at // every_s) + 1,
        lambda at: FIRST + int(at // takes_s),
        stored=lambda offset: (offset - FIRST) * every_s,
        commit_s=commit_s,
        seconds=HOURS_2,
        reports=False,
        asks_again=True,
    )


def bursts(*, each_s: int, count: int, eaten_in_s: float, commit_s: float, first_s: int) -> Work:
    """So many messages at once, finished long before the next ones come."""

    def finished(at: float) -> int:
        number, into_s = divmod(max(0.0, at - first_s), each_s)
        share = min(1.0, into_s / eaten_in_s)
        return FIRST + int(number) * count + (int(count * share) if at >= first_s else 0)

    return Work(
        lambda at: FIRST + (int((at - first_s) // each_s) + 1) * count if at >= first_s else FIRST,
        finished,
        stored=lambda offset: first_s + (offset - FIRST) // count * each_s,
        commit_s=commit_s,
        seconds=HOURS_2,
        reports=False,
        asks_again=True,
    )


A_SIXTIETH_SLOWER = 1 / (1 - 60 / 3600)
BEHIND = {
    "a message each 20 s, of 40 s": mute(every_s=20, takes_s=40, commit_s=5),
    "a message each 60 s, of 70 s": mute(every_s=60, takes_s=70, commit_s=5),
    "reports each minute": mute(every_s=1, takes_s=A_SIXTIETH_SLOWER, commit_s=60),
    "reports each 20 minutes": mute(every_s=1, takes_s=A_SIXTIETH_SLOWER, commit_s=1200),
}
WELL = {
    "keeps pace, reports each minute": mute(every_s=1, takes_s=1, commit_s=60),
    "keeps pace, reports each 20 minutes": mute(every_s=1, takes_s=1, commit_s=1200),
    "a burst at each report": bursts(each_s=60, count=100, eaten_in_s=20, commit_s=60, first_s=1),
    "four bursts between two reports": bursts(
        each_s=300, count=1000, eaten_in_s=290, commit_s=1200, first_s=1
    ),
}

RECOVERED_AT_S = 5000
RECOVERED = replace(
    BEHIND["reports each minute"],
    finished=lambda at: (
        FIRST + int(at // A_SIXTIETH_SLOWER) if at < RECOVERED_AT_S else FIRST + int(at)
    ),
)
EATEN = {
    f"a burst {60 - at} s before each report": bursts(
        each_s=60, count=100, eaten_in_s=20, commit_s=60, first_s=at
    )
    for at in (50, 58)
}
REPORTED_TWICE_S = 2 * 1200
"""The rarest reports of these stories."""


def later(gold: Gold) -> list[str]:
    """The states of the group once it was seen to report twice, whatever its cadence."""
    found = states(gold)
    begun = max(at for at, _ in found if at <= REPORTED_TWICE_S + 10)
    return [state for at, state in found if at >= begun]


@pytest.fixture(scope="module")
def played() -> dict[str, Gold]:
    """All of it beside each other: a tick costs as much for twenty groups as for one."""
    works = {**BEHIND, **WELL, **EATEN, "recovered": RECOVERED}
    return dict(zip(works, played_beside(list(works.values())), strict=True))


def test_who_falls_behind_is_slow_however_rarely_it_says_how_far_it_is(
    played: dict[str, Gold],
) -> None:
    for story in BEHIND:
        gold = played[story]
        assert states(gold)[0][1] == "OK", story
        assert later(gold)[-1] == "SLOW", story
        assert windows(gold)[-1][-1] == "OPEN", story


def test_who_finishes_what_it_gets_is_well_once_it_is_known_to_report_rarely(
    played: dict[str, Gold],
) -> None:
    """However much lies behind its last report. Before, a window says that it does not say more."""
    for story in WELL:
        gold = played[story]
        assert later(gold) == ["OK"], story
        assert {kind for _, _, kind, _ in windows(gold)} <= {"UNDETERMINED"}, story
        assert all(at <= REPORTED_TWICE_S + 10 for at, *_ in windows(gold)), story


def test_who_has_caught_up_is_well_at_its_next_report(played: dict[str, Gold]) -> None:
    found = states(played["recovered"])
    assert [state for _, state in found][-2:] == ["SLOW", "OK"]
    assert RECOVERED_AT_S < found[-1][0] < RECOVERED_AT_S + 2 * 60 + 30


def test_a_burst_that_was_pulled_just_before_each_report_was_not_held_by_a_slow_one(
    played: dict[str, Gold],
) -> None:
    for story in EATEN:
        assert "SLOW" not in later(played[story]), story
