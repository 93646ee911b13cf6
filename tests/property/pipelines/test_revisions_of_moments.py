"""Which cycle reported a moment first, which changed it last: by halving, as by looking at all."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.base.settings import SECOND_US, SILENCE_US
from pipelines.cycles.cuts import Cut
from pipelines.cycles.plan import DONE, PLANNED, PLANS
from pipelines.lake.lake import Lake
from pipelines.reading.moment import Moment, cycle_moment, last_complete
from pipelines.reading.revisions import Revision, revision_after, revision_of

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOON_US = int(NOON.timestamp()) * 1_000_000

steps = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from([0, 0, 0, 1, 40, 90])), min_size=1, max_size=80
)
"""Per cycle, by how many seconds a and b are judged further; b now and then by very many."""


def written(root: Path, moves: Sequence[tuple[int, int]]) -> list[dict[str, int]]:
    """A lake's plans; per cycle, to which second each emitter is judged. b begins when it moves."""
    marks = []
    records = [{"cycle": 0, "phase": DONE, "body": '{"settings": "{}", "buckets": 1}'}]
    sums = zip(
        accumulate(move[0] for move in moves), accumulate(move[1] for move in moves), strict=True
    )
    for cycle, (a, b) in enumerate(sums, 1):
        reached = {"a": a} | ({"b": b} if b else {})
        marks.append(reached)
        cuts = [
            asdict(Cut(name, 0, to, 0, to, 0, NOON_US + to * 1_000_000))
            for name, to in reached.items()
        ]
        body = json.dumps({"cuts": cuts, "places": {}, "chains": {}})
        records.append({"cycle": cycle, "phase": PLANNED, "body": body})
        records.append({"cycle": cycle, "phase": DONE, "body": '{"chains": {}}'})
    later = NOON + timedelta(days=1)  # No clock is ahead of the lake's.
    rows = [{"run_id": "run", "recorded_at": later, **record} for record in records]
    write_deltalake(Lake.at(str(root)).state(PLANS), pa.Table.from_pylist(rows))
    return marks


def speaks_to(reached: dict[str, int]) -> int:
    """How far those are judged who are not silent."""
    newest = max(reached.values())
    return min(to for to in reached.values() if newest - to <= SILENCE_US // SECOND_US)


def expected(marks: Sequence[dict[str, int]], known: int, second: int) -> Revision | None:
    """By looking at every cycle."""
    last = marks[-1]
    ends = {name: min(to, second) for name, to in last.items()}
    late = {name: to for name, to in ends.items() if marks[known - 1].get(name, -1) < to}
    if not late:
        return None
    cycle = next(
        number
        for number, reached in enumerate(marks, 1)
        if all(reached.get(name, -1) >= to for name, to in late.items())
    )
    return Revision(known, cycle, tuple(sorted(late)))


@settings(max_examples=60, deadline=None)
@given(steps, st.integers(0, 400))
def test_halving_finds_what_looking_at_every_cycle_finds(
    moves: list[tuple[int, int]], second: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        marks = written(Path(folder), moves)
        lake, at = Lake.at(folder), NOON + timedelta(seconds=second)
        last = last_complete(lake)
        assert last is not None
        first = next(
            (number for number, reached in enumerate(marks, 1) if speaks_to(reached) >= second),
            None,
        )
        found = revision_of(lake, last, at)
        if first is None or len(marks[-1]) < 2:
            assert found is None
        else:
            assert found == expected(marks, first, second)
        for cycle in {1, len(marks) // 2 + 1, len(marks)}:
            known = cycle_moment(lake, cycle)
            assert isinstance(known, Moment)
            assert revision_after(lake, last, known, at) == expected(marks, cycle, second)
