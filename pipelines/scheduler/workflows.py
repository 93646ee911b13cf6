"""Workflows: acyclic graphs of jobs in which each step waits for all its predecessors.

Place in the walk: a workflow is a job whose source is the graph (`glue_type` WORKFLOW) and whose
executor is the centre: schedule, misfires, history, retries and versions are those of any job. When
its run is due it begins instead of being sent; `progress` says then, and at each end of a step,
what begins next.

    [steps.load]                        TOML; a table a step
    job = 5                             what runs
    after = ["extract", "clean"]        begins once these are done, all of them
    always = true                       begins once they are over, however they ended
    parameters = "x"                    instead of the job's

A step is done when all shards of its run are; it has failed when the last attempt at a shard has,
by whatever name: failed, refused, lost, cancelled. What comes after it is left out, and what comes
after that, but for steps that begin always. The workflow is done when all its steps are.

Invariant: pure. What begins follows from the steps' rows and from nothing that is remembered, so
that a caller who asks again, after any crash, gets what is missing and no more.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from engine.foundation.errors import MustBe, RuleBroken
from pipelines.scheduler.refusals import no_such
from pipelines.scheduler.run_life import ENDED, RunState

WORKFLOW: Final = "WORKFLOW"
"""The glue type of a job that is one; no executor is ever sent it."""

STEPS_MAX: Final = 500
NAME_CHARS_MAX: Final = 32
PARAMETERS_CHARS_MAX: Final = 65_535
WORKFLOWS_KEPT: Final = 500
"""Read ones: each end of a step asks."""
NAMED_MAX: Final = 5
"""Steps that a result names of each kind."""

_WORDS: Final = frozenset({"job", "after", "always", "parameters"})


@dataclass(frozen=True, slots=True)
class Step:
    """One job of a workflow."""

    name: str
    job_id: int
    after: tuple[str, ...] = ()
    always: bool = False
    """Begin however those ended that it comes after."""
    parameters: str | None = None
    """Instead of the job's; None: those of the workflow's run, or else the job's."""


@dataclass(frozen=True, slots=True)
class Workflow:
    """Steps, each after all that it comes after; raises ConfigError when there is no such order."""

    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.steps) <= STEPS_MAX:
            raise MustBe("steps", len(self.steps), f"1 to {STEPS_MAX}")
        names = {step.name for step in self.steps}
        assert len(names) == len(self.steps), "a table has each name once"
        for step in self.steps:
            _check(step, names)
        try:
            order = TopologicalSorter({step.name: step.after for step in self.steps}).static_order()
            place = {name: at for at, name in enumerate(order)}
        except CycleError as error:
            path = " → ".join(error.args[1])
            rule = f"these steps wait for each other in a circle: {path}"
            raise RuleBroken("after", path, rule) from error
        ordered = tuple(sorted(self.steps, key=lambda step: place[step.name]))
        object.__setattr__(self, "steps", ordered)

    @classmethod
    def parse(cls, text: str) -> Workflow:
        """Raises ConfigError that says what is wrong with the text."""
        try:
            fields = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise RuleBroken("workflow", str(error), f"the workflow is no TOML: {error}") from error
        steps = fields.pop("steps", {})
        if fields or not isinstance(steps, dict):
            raise MustBe("workflow", next(iter(fields), "steps"), "tables [steps.NAME] alone")
        return cls(tuple(_step(name, words) for name, words in steps.items()))

    def check_jobs(self, is_workflow: Mapping[int, bool]) -> None:
        """Raise ConfigError for a step whose job is not among these, or is a workflow itself."""
        for step in self.steps:
            if step.job_id not in is_workflow:
                raise no_such(
                    "job", step.job_id, key=f"steps.{step.name}.job", where=f"step {step.name}"
                )
            if is_workflow[step.job_id]:
                rule = f"step {step.name}: job {step.job_id} is a workflow, and a step is a job"
                raise RuleBroken(f"steps.{step.name}.job", step.job_id, rule)


@lru_cache(maxsize=WORKFLOWS_KEPT)
def workflow_of(text: str) -> Workflow:
    """The workflow that a text gives, read once; raises ConfigError."""
    return Workflow.parse(text)


class StepState(StrEnum):
    """Where a step of one run stands."""

    WAITING = "WAITING"
    BEGUN = "BEGUN"
    DONE = "DONE"
    FAILED = "FAILED"
    LEFT_OUT = "LEFT_OUT"
    """Something that it comes after was not done."""


@dataclass(frozen=True, slots=True)
class ShardEnd:
    """What the row of one attempt at one shard of a step says. A retry is there as soon as it is
    due: an attempt that failed and has none after it was the last."""

    step: str
    shard_index: int
    attempt: int
    state: RunState


@dataclass(frozen=True, slots=True)
class Progress:
    """What a run of a workflow comes to by now."""

    states: Mapping[str, StepState]
    """Of each step, those included that begin now."""
    begin: tuple[Step, ...]
    """Steps of which there is no row yet, and should be."""

    @property
    def is_over(self) -> bool:
        """Is there nothing more to come?"""
        return not {StepState.BEGUN, StepState.WAITING} & set(self.states.values())

    @property
    def is_done(self) -> bool:
        """Are all steps done?"""
        return set(self.states.values()) == {StepState.DONE}

    @property
    def message(self) -> str:
        """The result in a sentence."""
        done = [name for name, state in self.states.items() if state is StepState.DONE]
        parts = [f"{len(done)} of {len(self.states)} steps done"]
        for state, word in ((StepState.FAILED, "failed"), (StepState.LEFT_OUT, "left out")):
            names = [name for name, one in self.states.items() if one is state]
            more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
            if names:
                parts.append(f"{word}: {', '.join(names[:NAMED_MAX])}{more}")
        return "; ".join(parts)


def progress(workflow: Workflow, rows: Iterable[ShardEnd]) -> Progress:
    """What begins now, by the rows of those steps that have begun."""
    begun = _states(rows)
    states: dict[str, StepState] = {}
    begin: list[Step] = []
    for step in workflow.steps:
        before = [states[name] for name in step.after]
        if step.name in begun:
            states[step.name] = begun[step.name]
        elif any(state in {StepState.BEGUN, StepState.WAITING} for state in before):
            states[step.name] = StepState.WAITING
        elif step.always or all(state is StepState.DONE for state in before):
            states[step.name] = StepState.BEGUN
            begin.append(step)
        else:
            states[step.name] = StepState.LEFT_OUT
    return Progress(states, tuple(begin))


def _states(rows: Iterable[ShardEnd]) -> dict[str, StepState]:
    """Where the steps stand that have rows: by the last attempt at each of their shards."""
    last: dict[str, dict[int, ShardEnd]] = {}
    for row in rows:
        shards = last.setdefault(row.step, {})
        if row.shard_index not in shards or row.attempt > shards[row.shard_index].attempt:
            shards[row.shard_index] = row
    return {name: _state(shards.values()) for name, shards in last.items()}


def _state(shards: Iterable[ShardEnd]) -> StepState:
    ends = list(shards)
    if any(end.state not in ENDED for end in ends):
        return StepState.BEGUN
    is_done = all(end.state is RunState.DONE for end in ends)
    return StepState.DONE if is_done else StepState.FAILED


def _check(step: Step, names: set[str]) -> None:
    where = f"steps.{step.name[:NAME_CHARS_MAX]}"
    is_plain = step.name.isascii() and step.name.replace("-", "").replace("_", "").isalnum()
    if not is_plain or len(step.name) > NAME_CHARS_MAX:
        raise MustBe("steps", step.name[:64], "names of letters, digits, - and _, 32 at most")
    if step.job_id < 1:
        raise MustBe(f"{where}.job", step.job_id, "the number of a job")
    unknown = [name for name in step.after if name not in names]
    if unknown or len(set(step.after)) < len(step.after):
        raise MustBe(f"{where}.after", (unknown or step.after)[0], "names of steps, each once")
    if step.parameters is not None and len(step.parameters) > PARAMETERS_CHARS_MAX:
        raise MustBe(f"{where}.parameters", "…", f"at most {PARAMETERS_CHARS_MAX:,}")


def _step(name: str, words: Any) -> Step:
    if not isinstance(words, dict) or not set(words) <= _WORDS:
        raise MustBe(f"steps.{name}", str(words)[:64], f"a table with {', '.join(sorted(_WORDS))}")
    job_id, after = words.get("job"), words.get("after", [])
    always, parameters = words.get("always", False), words.get("parameters")
    if not isinstance(job_id, int) or isinstance(job_id, bool):
        raise MustBe(f"steps.{name}.job", str(job_id)[:64], "the number of a job")
    if not isinstance(after, list) or not all(isinstance(one, str) for one in after):
        raise MustBe(f"steps.{name}.after", str(after)[:64], "a list of steps")
    if not isinstance(always, bool):
        raise MustBe(f"steps.{name}.always", str(always)[:64], "true or false")
    if parameters is not None and not isinstance(parameters, str):
        raise MustBe(f"steps.{name}.parameters", str(parameters)[:64], "a text")
    return Step(name, job_id, tuple(after), always, parameters)
