"""Counts which faults hit a simulated Raft group of brokers: class × role of the node × phase.

A cell is counted where a fault begins (`broker_group`). MUST names the cells that the suite has to
meet (`test_faults_by_role_and_phase`), and ELSEWHERE says why others may stay empty. `make sim`
adds up the cells of all its processes, which leave them in the folder that CELLS_FOLDER names.
"""

from __future__ import annotations

import atexit
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

CELLS_FOLDER: Final = "TIDEMARK_CELLS_FOLDER"


class Fault(Enum):
    """What happens to a node."""

    KILL = "kill -9"
    POWER_CUT = "power cut"
    CUT_OFF = "cut off"
    HUNG_DISK = "disk hangs"
    CLOCK_AHEAD = "clock ahead"


class Role(Enum):
    """What the node is then."""

    LEADER = "leader"
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEARNER = "learner"
    NEWCOMER = "newcomer"
    """It belongs to no group yet."""


class Phase(Enum):
    """What the group is at then."""

    FOUNDING = "founding"
    ELECTION = "election"
    """No majority hears from a leader."""
    STEADY = "steady"
    CATCH_UP = "catch-up by files"
    MEMBERS = "membership change"
    HAND_OVER = "hand-over"


class Cell(NamedTuple):
    """A fault, whom it hit, and when."""

    fault: Fault
    role: Role
    phase: Phase


ROLES: Final[Mapping[Phase, tuple[Role, ...]]] = {
    Phase.FOUNDING: (Role.NEWCOMER,),
    Phase.ELECTION: (Role.FOLLOWER, Role.CANDIDATE),
    Phase.STEADY: (Role.LEADER, Role.FOLLOWER),
    Phase.CATCH_UP: (Role.LEADER, Role.FOLLOWER),
    Phase.MEMBERS: (Role.LEADER, Role.FOLLOWER, Role.LEARNER),
    Phase.HAND_OVER: (Role.LEADER, Role.FOLLOWER),
}
"""Whom every fault has to hit in each phase."""
MUST: Final = [
    Cell(fault, role, phase) for phase, roles in ROLES.items() for role in roles for fault in Fault
]
ELSEWHERE: Final[Mapping[tuple[Phase, Role | None], str]] = {
    **{(phase, Role.NEWCOMER): "who belongs to no group is hit at its founding" for phase in Phase},
    (Phase.STEADY, Role.NEWCOMER): "who was taken out, or has a new disk, waits: by chance",
    (Phase.FOUNDING, None): "a group that is not founded has no roles",
    (Phase.ELECTION, Role.LEADER): "a leader nobody hears from: by chance, as the faults are drawn",
    (Phase.STEADY, Role.CANDIDATE): "who is cut off while the others have a leader: by chance",
    (Phase.STEADY, Role.LEARNER): "a learner is there while members change, and becomes a voter",
    (Phase.CATCH_UP, None): "who catches up is counted as the follower that it becomes",
    (Phase.MEMBERS, Role.CANDIDATE): "the leader of the change is gone: that is an election",
    (Phase.HAND_OVER, None): "the successor asks for votes at once: by chance",
    (Phase.ELECTION, None): "members change only while somebody leads",
}
"""Why nobody demands the other cells; None: of all other roles of the phase."""

CELLS: Counter[Cell] = Counter()
"""What this process met."""


def why_not(phase: Phase, role: Role) -> str:
    """Why a cell that is not demanded may stay empty; empty: it is, or nobody says."""
    if role in ROLES[phase]:
        return ""
    return ELSEWHERE.get((phase, role)) or ELSEWHERE.get((phase, None), "")


def unmet(cells: Mapping[Cell, int], phases: Iterable[Phase] = Phase) -> list[Cell]:
    """The demanded cells of these phases that no fault hit."""
    wanted = set(phases)
    return [cell for cell in MUST if cell.phase in wanted and not cells.get(cell)]


def table(cells: Mapping[Cell, int]) -> str:
    """How often each was met, a line for each role in a phase; `!`: it had to be, `-`: no need."""
    lines = [f"{'phase':18} {'role':10}" + "".join(f"{fault.value:>13}" for fault in Fault)]
    for phase in Phase:
        for role in Role:
            counts = [cells.get(Cell(fault, role, phase), 0) for fault in Fault]
            empty = "!" if role in ROLES[phase] else "-"
            if any(counts) or role in ROLES[phase]:
                words = "".join(f"{count or empty:>13}" for count in counts)
                lines.append(f"{phase.value:18} {role.value:10}{words}")
    return "\n".join(lines)


def written_in(folder: Path) -> Counter[Cell]:
    """What all processes met that left their cells there."""
    cells: Counter[Cell] = Counter()
    for path in folder.iterdir():
        for fault, role, phase, count in json.loads(path.read_text()):
            cells[Cell(Fault[fault], Role[role], Phase[phase])] += count
    return cells


def _write(folder: str) -> None:
    if CELLS:
        rows = [(*(one.name for one in cell), count) for cell, count in CELLS.items()]
        Path(folder, f"{os.getpid()}.json").write_text(json.dumps(rows))


if CELLS_FOLDER in os.environ:
    atexit.register(_write, os.environ[CELLS_FOLDER])
