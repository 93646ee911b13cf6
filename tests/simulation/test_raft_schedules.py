"""Row C11: random schedules of a group, with loss, repeats, one-way cuts, crashes and pauses.

The laws are looked at after every event; at the end all is whole again, and the group has to agree.
Every fiftieth schedule is a long one.
"""

from __future__ import annotations

from tests.seeds import seeded
from tests.unit.raft.schedules import play

LONG_STEPS = 5000


@seeded(25)
def test_the_laws_of_raft_hold_in_every_schedule(seed: int) -> None:
    group = play(seed, LONG_STEPS) if seed % 50 == 0 else play(seed)
    assert len(group.laws.committed) > 1
