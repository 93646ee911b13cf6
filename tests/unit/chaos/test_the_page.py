"""The page of `make chaos` says of each fault how long nobody was answered, and what was lost."""

from __future__ import annotations

from tests.chaos.page import RAFT, page
from tests.chaos.record import Record
from tests.chaos.run import Outcome, Played


def outcome(name: str, *gaps_s: float) -> Outcome:
    """Rounds of a fault, each of which begins when another one ends."""
    found = Outcome(Record())
    for number, gap_s in enumerate(gaps_s):
        found.played.append(Played(name, 10.0 * number, 10.0 * number + 9.0, gap_s, 2 * gap_s))
    return found


def written(**outcomes: Outcome) -> list[str]:
    return page(outcomes, title="A title", command="make chaos").splitlines()


def test_a_fault_has_its_times_and_what_was_lost_meanwhile() -> None:
    lossy = outcome("master killed, slave promoted", 1.0, 3.0, 2.0)
    lossy.lost = [5.0, 9.5, 12.0]
    lines = written(RAFT=outcome("leader killed", 4.0), ASYNC_MASTER=lossy)
    assert "| who leads dies | 4.00 (4.00), 0 | – | 2.00 (3.00), 2 |" in lines
    row = next(one for one in lines if one.startswith("| master killed, slave promoted"))
    assert row.endswith("| 3 | 2.00 | 3.00 | 4.00 | 6.00 | 2 |")


def test_what_broke_is_said_instead_of_what_held() -> None:
    sound, broken = outcome("leader killed", 1.0), outcome("leader killed", 1.0)
    broken.faults = ["acknowledged and lost: 0:1:"]
    assert any(one.startswith("Held in the end") for one in written(**{RAFT: sound}))
    lines = written(**{RAFT: broken})
    assert "- acknowledged and lost: 0:1:" in lines
    assert not any(one.startswith("Held in the end") for one in lines)
