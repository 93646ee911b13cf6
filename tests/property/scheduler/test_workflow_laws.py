"""Workflows drawn at random, with shards, retries, failures and transactions that never commit:
each step begins at most once, a join only after all before it, and every run comes to its end."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from pipelines.scheduler.run_life import ENDED, UNSUCCESSFUL, RunState
from pipelines.scheduler.workflows import ShardEnd, Step, StepState, Workflow, progress

RUNS_A_DRAW = 2
ENDS = [RunState.DONE] * 6 + [*UNSUCCESSFUL, RunState.CANCELLED]


@dataclass
class Row:
    """A row of the table of runs."""

    step: str
    shard_index: int
    attempt: int
    retries_left: int
    state: RunState = RunState.PLANNED

    def shard_end(self) -> ShardEnd:
        return ShardEnd(self.step, self.shard_index, self.attempt, self.state)


class World:
    """One run of a workflow: the rows that are committed, and nothing that a crash forgets."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        names = [f"s{number}" for number in range(chance.randint(1, 9))]
        steps = []
        for at, name in enumerate(names):
            before = chance.sample(names[:at], chance.randint(0, min(at, 3)))
            steps.append(Step(name, 1, tuple(before), always=chance.random() < 0.2))
        chance.shuffle(steps)
        self.workflow = Workflow(tuple(steps))
        self.rows: list[Row] = []
        self.begun: list[str] = []

    def commit(self, changed: Row | None, to: RunState = RunState.PLANNED) -> None:
        """One transaction of the store: a row moves, with what follows; or a crash undoes all."""
        rows = [replace(row) for row in self.rows]
        if changed is not None:
            mine = rows[self.rows.index(changed)]
            mine.state = to
            if to in UNSUCCESSFUL and mine.retries_left:
                again = Row(mine.step, mine.shard_index, mine.attempt + 1, mine.retries_left - 1)
                rows.append(again)
        found = progress(self.workflow, [row.shard_end() for row in rows])
        rows += [Row(step.name, 0, 0, self.chance.randint(0, 2)) for step in found.begin]
        if self.chance.random() < 0.2:
            return  # It was killed before the commit.
        for step in found.begin:
            self.check_beginning(step)
        self.rows = rows

    def check_beginning(self, step: Step) -> None:
        assert step.name not in self.begun, f"{step.name} begins twice"
        for name in step.after:
            assert self.how_it_ended(name) is not None, f"{step.name} did not wait for {name}"
            assert step.always or self.how_it_ended(name), f"{step.name} in spite of {name}"
        self.begun.append(step.name)

    def how_it_ended(self, name: str) -> bool | None:
        """True: done; False: failed or left out; None: not over. Said again, by brute force."""
        step = next(one for one in self.workflow.steps if one.name == name)
        theirs = [row for row in self.judged if row.step == name]
        if not theirs:
            before = [self.how_it_ended(other) for other in step.after]
            is_left_out = None not in before and False in before and not step.always
            return False if is_left_out else None
        finals = []
        for shard in {row.shard_index for row in theirs}:
            last = max((row.attempt, row.state) for row in theirs if row.shard_index == shard)
            finals.append(last[1])
        if any(state not in ENDED for state in finals):
            return None
        return all(state is RunState.DONE for state in finals)

    def play(self) -> None:
        self.judged = self.rows
        for _ in range(2_000):
            waiting = [row for row in self.rows if row.state not in ENDED]
            if not waiting:
                if (
                    self.rows
                    and progress(self.workflow, [r.shard_end() for r in self.rows]).is_over
                ):
                    return
                self.play_one(None)
                continue
            row = self.chance.choice(waiting)
            is_sent = row.state is RunState.RUNNING
            is_wide = not is_sent and row.attempt == 0 and self.chance.random() < 0.3
            if is_wide and sum(one.step == row.step for one in self.rows) == 1:
                self.rows += [Row(row.step, shard, 0, row.retries_left) for shard in (1, 2)]
            self.play_one(row, self.chance.choice(ENDS) if is_sent else RunState.RUNNING)
        raise AssertionError("it never ends")

    def play_one(self, row: Row | None, to: RunState = RunState.PLANNED) -> None:
        """The judge looks at the rows as they will be, for a step may begin in the same commit."""
        self.judged = [replace(one, state=to) if one is row else one for one in self.rows]
        if row is not None and to in UNSUCCESSFUL and row.retries_left:
            self.judged.append(Row(row.step, row.shard_index, row.attempt + 1, 0))
        self.commit(row, to)
        self.judged = self.rows


@given(st.integers(0, 2**32))
def test_a_join_begins_once_and_after_all_before_it_whatever_is_killed(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(RUNS_A_DRAW):
        world = World(chance)
        world.play()
        found = progress(world.workflow, [row.shard_end() for row in world.rows])
        for step in world.workflow.steps:
            is_done = world.how_it_ended(step.name)
            assert is_done is (found.states[step.name] is StepState.DONE)
            assert (step.name in world.begun) is (found.states[step.name] is not StepState.LEFT_OUT)
        assert found.is_done is all(world.how_it_ended(one.name) for one in world.workflow.steps)
