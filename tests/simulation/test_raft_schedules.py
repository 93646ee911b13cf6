"""Row C11: random schedules of a group, with loss, repeats, one-way cuts, crashes and pauses.

The laws are looked at after every event; at the end all is whole again, and the group has to agree.
"""

from __future__ import annotations

import pytest

from tests.seeds import seeded
from tests.unit.raft.schedules import play


@seeded(25)
def test_the_laws_of_raft_hold_in_every_schedule(seed: int) -> None:
    group = play(seed)
    assert len(group.laws.committed) > 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10_000, 10_100))
def test_the_laws_of_raft_hold_in_long_schedules(seed: int) -> None:
    play(seed, 5000)
