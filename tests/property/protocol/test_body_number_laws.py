"""Every number of every body has a range that JSON's writers and Java's readers have: what a peer
sends is stored, written and passed on, and a number without an end would end whoever writes it.

Row: Wire.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import inspect

import engine.broker.groups.consumer_filters
import engine.protocol.bodies_admin
import engine.protocol.bodies_broker
import engine.protocol.bodies_client  # noqa: F401 - all kinds of bodies are known.
from engine.protocol.body_codec import Part


def kinds(base: type[Part]) -> Iterator[type[Part]]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


def endless_numbers(info: Any) -> bool:
    """May there be an integer of any size in it?"""
    if isinstance(info, inspect.IntType):
        return info.ge is None or info.le is None
    inner = [
        getattr(info, name)
        for name in ("item_type", "key_type", "value_type")
        if hasattr(info, name)
    ]
    inner += [*getattr(info, "types", ()), *getattr(info, "item_types", ())]
    return any(endless_numbers(one) for one in inner)


@pytest.mark.parametrize("kind", sorted(set(kinds(Part)), key=repr), ids=lambda one: one.__name__)
def test_every_number_of_a_body_has_a_range(kind: type[Part]) -> None:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    endless = [field.name for field in info.fields if endless_numbers(field.type)]
    assert not endless, f"{kind.__name__}: {endless} may be of any size; use Int64"


def test_the_bodies_are_all_there() -> None:
    assert len(set(kinds(Part))) > 30
