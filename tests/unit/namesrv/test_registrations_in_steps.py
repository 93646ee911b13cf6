"""A registration of very many topics is read in steps, in both of its forms."""

from __future__ import annotations

import pytest

from engine.foundation.limits import REGISTERED_AT_ONCE
from engine.protocol.bodies import DataVersion, RegisterBrokerBody, TopicConfig
from tests.steps import STEP_INSTRUCTIONS_MAX, instructions_by_step, outcome

PIECES = 3


@pytest.mark.parametrize("compressed", [False, True])
def test_so_many_topics_are_read_in_one_step(*, compressed: bool) -> None:
    topics = {f"T{n}": TopicConfig(f"T{n}", n, 4) for n in range(PIECES * REGISTERED_AT_ONCE + 1)}
    registration = RegisterBrokerBody(DataVersion(0, 5, 6), topics, ["f"])
    body = registration.encode(compressed=compressed)
    steps = instructions_by_step(RegisterBrokerBody.decode_in_steps(body, compressed=compressed))
    assert len(steps) >= PIECES + 1
    assert max(steps) <= STEP_INSTRUCTIONS_MAX
    assert outcome(RegisterBrokerBody.decode_in_steps(body, compressed=compressed)) == registration
