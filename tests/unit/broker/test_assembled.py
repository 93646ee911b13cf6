"""That what services are given by name is what they declare."""

from __future__ import annotations

from inspect import isclass, signature
from typing import get_type_hints

import pytest

from engine.broker import handler_table, service_groups, services
from engine.broker.offsets.consumer_offsets import ConsumerOffsets
from engine.broker.service_groups import (
    OffsetServices,
    PullServices,
    Reporters,
    SendServices,
)
from engine.broker.services import Services
from engine.broker.state import BrokerState, assembled

GIVEN_BY_HAND = {
    ("PullChecks", "filters"),
    ("BrokerHandlers", "delay"),
    ("BrokerMetrics", "runtime"),
    ("Drafts", "timers"),
    ("OffsetHandlers", "answers"),
    ("RecallHandlers", "timers"),
    ("SendHandlers", "questions"),
    ("TopicHandlers", "changes"),
}
"""Where a name of a table stands for something else, which the caller gives."""

HOLDERS = (BrokerState, OffsetServices, SendServices, PullServices, Reporters, Services)
ROOMS = (handler_table, service_groups, services)
KINDS: set[type] = {
    kind
    for room in ROOMS
    for kind in vars(room).values()
    if isclass(kind) and kind.__module__.startswith("engine.") and "__init__" in vars(kind)
} - {*HOLDERS}


class Counted:
    def __init__(self, *, offsets: ConsumerOffsets, count: int, unit: str = "ms") -> None:
        self.given = (offsets, count, unit)


class Holder:
    offsets = ConsumerOffsets()
    count = 1


class Behind:
    count = 2
    unit = "s"


def test_the_first_holder_of_a_name_gives_it_and_what_is_given_comes_before_all() -> None:
    assert assembled(Counted, Holder, Behind).given == (Holder.offsets, 1, "s")
    assert assembled(Counted, Holder, count=3).given == (Holder.offsets, 3, "ms")


def test_a_name_that_nobody_has_is_refused() -> None:
    with pytest.raises(TypeError, match="offsets"):
        assembled(Counted, Behind)


@pytest.mark.parametrize("kind", sorted(KINDS, key=str))
def test_a_service_means_by_a_name_what_the_holder_of_it_has(kind: type) -> None:
    declared = get_type_hints(vars(kind)["__init__"])
    for name in set(signature(kind).parameters) & set(declared):
        held = [hints[name] for hints in map(get_type_hints, HOLDERS) if name in hints]
        if held and (kind.__name__, name) not in GIVEN_BY_HAND:
            assert declared[name] in held, f"{kind.__name__}.{name}"
