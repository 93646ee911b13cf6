"""Plans of kills: drawn from a seed, all victims in turn, each moment its own."""

from __future__ import annotations

import pytest

from engine.foundation.errors import ConfigError
from experiment.plan import KILLS_MAX, PAUSE_S_MAX, Flush, Listener, Plan, Victim, make_plan


def plan_of(kills: int, seed: int) -> Plan:
    return make_plan(kills, seed, tuple(Listener), tuple(Flush))


def test_a_seed_gives_the_same_kills_and_another_one_others() -> None:
    assert plan_of(30, 4) == plan_of(30, 4)
    assert plan_of(30, 4).kills != plan_of(30, 5).kills


def test_kills_take_the_consumers_the_broker_and_both_in_turn() -> None:
    kills = plan_of(60, 1).kills
    assert [kill.victim for kill in kills[:4]] == [*Victim, Victim.CONSUMER]
    assert all(bool(kill.hosts) == (kill.victim is not Victim.BROKER) for kill in kills)
    assert {len(kill.hosts) for kill in kills} == {0, 1, 2}
    assert {kill.flush for kill in kills} == set(Flush)
    pauses = {kill.wait_s for kill in kills}
    assert len(pauses) == 60
    assert 0 <= min(pauses) < 1 < PAUSE_S_MAX - 1 < max(pauses) <= PAUSE_S_MAX


@pytest.mark.parametrize("kills", [0, -1, KILLS_MAX + 1])
def test_a_number_of_kills_that_cannot_be_played_is_refused_with_the_rule(kills: int) -> None:
    with pytest.raises(ConfigError, match=f"kills={kills} .*1 to {KILLS_MAX}"):
        plan_of(kills, 1)
