"""Workflows as a text: what is read, in which order, and what is refused with a reason."""

from __future__ import annotations

import pytest

from engine.foundation.errors import ConfigError
from pipelines.scheduler.run_life import RunState
from pipelines.scheduler.workflows import ShardEnd, Step, StepState, Workflow, progress

DIAMOND = """
[steps.report]
job = 4
after = ["clean", "count"]
[steps.extract]
job = 1
parameters = "all"
[steps.clean]
job = 2
after = ["extract"]
[steps.count]
job = 3
after = ["extract"]
[steps.tidy]
job = 5
after = ["report"]
always = true
"""


def ends(**states: RunState) -> list[ShardEnd]:
    return [ShardEnd(name, 0, 0, state) for name, state in states.items()]


def beginning(*rows: ShardEnd) -> list[str]:
    return [step.name for step in progress(Workflow.parse(DIAMOND), rows).begin]


def test_a_text_gives_steps_each_after_all_that_it_comes_after() -> None:
    steps = Workflow.parse(DIAMOND).steps
    names = [step.name for step in steps]
    assert sorted(names) == ["clean", "count", "extract", "report", "tidy"]
    assert all(names.index(before) < names.index(one.name) for one in steps for before in one.after)
    assert steps[0] == Step("extract", 1, parameters="all")


def test_a_join_begins_when_all_before_it_are_done() -> None:
    done, running = RunState.DONE, RunState.RUNNING
    assert beginning() == ["extract"]
    assert beginning(*ends(extract=running)) == []
    assert beginning(*ends(extract=done)) == ["clean", "count"]
    assert beginning(*ends(extract=done, clean=done, count=running)) == []
    assert beginning(*ends(extract=done, clean=done, count=done)) == ["report"]


@pytest.mark.parametrize("how", ["FAILED", "REFUSED", "LOST", "CANCELLED"])
def test_what_comes_after_a_failure_is_left_out_but_for_what_begins_always(how: str) -> None:
    done = RunState.DONE
    rows = ends(extract=done, clean=done, count=RunState(how))
    found = progress(Workflow.parse(DIAMOND), rows)
    assert [step.name for step in found.begin] == ["tidy"]
    assert found.states["report"] is StepState.LEFT_OUT
    over = progress(Workflow.parse(DIAMOND), [*rows, ShardEnd("tidy", 0, 0, done)])
    assert (over.is_over, over.is_done) == (True, False)
    assert over.message == "3 of 5 steps done; failed: count; left out: report"


def test_a_broadcast_is_done_when_the_last_attempt_at_each_of_its_shards_is() -> None:
    first = ShardEnd("extract", 0, 0, RunState.DONE)
    failed = ShardEnd("extract", 1, 0, RunState.FAILED)
    again = ShardEnd("extract", 1, 1, RunState.PLANNED)
    assert beginning(first, again, failed) == []
    assert beginning(first, failed, ShardEnd("extract", 1, 1, RunState.DONE)) == ["clean", "count"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "1 to 500"),
        ("[steps.a]\njob = 1\nafter = ['a']", "wait for each other in a circle"),
        ("[steps.a]\njob=1\nafter=['b']\n[steps.b]\njob=1\nafter=['a']", "a → b → a|b → a → b"),
        ("[steps.a]\njob = 1\nafter = ['b']", "names of steps"),
        ("[steps.a]\njob=1\n[steps.b]\njob=1\nafter=['a','a']", "names of steps, each once"),
        ("[steps.a]\njob = 0", "the number of a job"),
        ("[steps.a]\njob = true", "the number of a job"),
        ("[steps.a]\nafter = []", "the number of a job"),
        ("[steps.a]\njob = 1\nafter = 'b'", "a list of steps"),
        ("[steps.a]\njob = 1\nalways = 1", "true or false"),
        ("[steps.a]\njob = 1\nparameters = 1", "a text"),
        ("[steps.a]\njob = 1\nafterwards = []", "after, always, job, parameters"),
        ("[steps.'a b']\njob = 1", "names of letters"),
        ("steps = 1", "tables"),
        ("[step.a]\njob = 1", "tables"),
        ("[steps.a", "TOML"),
    ],
)
def test_what_is_no_workflow_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        Workflow.parse(text)
    assert any(one in str(refusal.value) for one in why.split("|"))


def test_a_step_is_a_job_that_there_is_and_no_workflow() -> None:
    found = Workflow.parse("[steps.a]\njob = 1\n[steps.b]\njob = 2")
    found.check_jobs({1: False, 2: False})
    with pytest.raises(ConfigError, match="there is no job"):
        found.check_jobs({1: False})
    with pytest.raises(ConfigError, match="is a workflow, and a step is a job"):
        found.check_jobs({1: False, 2: True})
