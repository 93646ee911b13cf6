"""A trace of any kind, as the step of its message that a page or a command shows."""

from __future__ import annotations

from engine.admin.api.messages import step_of
from tests.unit.protocol.test_traces import TRACES


def test_every_kind_of_trace_is_a_step_that_shows_what_it_knows() -> None:
    steps = [step_of(trace) for trace, _ in TRACES]

    assert {step.step for step in steps} == {"sent", "consuming", "consumed", "transaction ended"}
    for step, (trace, _) in zip(steps, TRACES, strict=True):
        assert step.time_ms == trace.time_ms
        assert step.group == trace.group
        assert (step.retry_times is not None) == (step.step == "consuming")
        assert (step.success is not None) == (step.step in ("sent", "consumed"))
        assert (step.outcome is not None) == (step.step in ("consumed", "transaction ended"))
        assert (step.topic is not None) == (step.step in ("sent", "transaction ended"))
