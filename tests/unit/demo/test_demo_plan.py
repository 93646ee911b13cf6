"""The plan of a demo run: decided by its seed alone, and by nothing that is left out."""

from __future__ import annotations

import itertools

import pytest

from demo.plan import LEDGER, OWN_INCIDENTS, QUEUES_PER_TOPIC, Incident, make_plan
from engine.foundation.errors import ConfigError


def test_the_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    assert make_plan(7, 120) == make_plan(7, 120)
    assert make_plan(7, 120).scenes != make_plan(8, 120).scenes


@pytest.mark.parametrize("left_out", OWN_INCIDENTS)
def test_leaving_an_incident_out_changes_nothing_about_the_others(left_out: Incident) -> None:
    whole, part = make_plan(3, 120), make_plan(3, 120, [left_out])
    assert [scene for scene in whole.scenes if scene.incident is not left_out] == list(part.scenes)
    assert part.skipped == (left_out,)
    assert part.scene(left_out) is None


@pytest.mark.parametrize("incidents", [OWN_INCIDENTS, tuple(Incident)], ids=["ours", "observed"])
@pytest.mark.parametrize("seed", range(50))
def test_incidents_follow_each_other_within_the_run(
    seed: int, incidents: tuple[Incident, ...]
) -> None:
    plan = make_plan(seed, 120, incidents=incidents)
    assert [scene.incident for scene in plan.scenes] == list(incidents)
    times_s = [scene.at_s for scene in plan.scenes]
    assert times_s == sorted(times_s)
    assert times_s[0] > 5
    assert times_s[-1] < 120 * 0.75, "the last one leaves time to be found"
    assert min(b - a for a, b in itertools.pairwise(times_s)) > 5


@pytest.mark.parametrize("seed", range(20))
def test_the_consumer_that_dies_owns_the_queue_of_the_message_that_kills_it(seed: int) -> None:
    scene = make_plan(seed, 120).scene(Incident.CONSUMER_KILL)
    assert scene is not None
    first_half = range(QUEUES_PER_TOPIC // 2)
    owner = LEDGER.members[0] if scene.queue_id in first_half else LEDGER.members[1]
    assert scene.victim == owner


def test_a_run_too_short_for_its_incidents_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="for=20 is not allowed: at least 90 seconds"):
        make_plan(1, 20)
