"""How a header dataclass becomes extFields and back: one rule for all of them.

A header is a slotted dataclass; each field is declared with `wire(...)`, which names it as RocketMQ
does. All values travel as text; null is left out (spec: wire, section 1).

Invariant: `decode(encode(x)) == x`. A missing or unreadable field raises RequestRefused with
SYSTEM_ERROR and names it, as the real broker does. Absent on purpose: what fields mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, field, fields
from functools import cache
from typing import Any, Self, TypeVar

from engine.foundation.errors import RequestRefused
from engine.protocol.codes import ResponseCode

H = TypeVar("H")

_INT64_MAX = (1 << 63) - 1


def wire(name: str, kind: type, *, default: Any = MISSING, short: str | None = None) -> Any:
    """A header field: its name on the wire, its type (int, bool or str), the short name of V2
    headers.

    A field without default is required.
    """
    metadata = {"wire": name, "short": short or name, "kind": kind}
    if default is MISSING:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)


def read_int(text: str) -> int:
    """A signed 64-bit number; ValueError for anything else."""
    if not text.isascii() or "_" in text or len(text) > 20:
        raise ValueError(f"{text[:40]!r} is no number")
    value = int(text)
    if not -_INT64_MAX - 1 <= value <= _INT64_MAX:
        raise ValueError(f"{text} exceeds 64 bits")
    return value


def read_bool(text: str) -> bool:
    """true or false, as Java writes them."""
    if text not in ("true", "false"):
        raise ValueError(f"{text[:40]!r} is neither true nor false")
    return text == "true"


_READERS: dict[type, Callable[[str], Any]] = {int: read_int, bool: read_bool, str: str}


@cache
def _plan(header: type, name_kind: str) -> tuple[tuple[str, str, Callable[[str], Any], bool], ...]:
    """Per field: its name here, its name there, its reader, and whether it is required."""
    return tuple(
        (
            each.name,
            each.metadata[name_kind],
            _READERS[each.metadata["kind"]],
            each.default is MISSING,
        )
        for each in fields(header)  # type: ignore[arg-type]
    )


def decode_fields(header: type[H], given: Mapping[str, str], *, short: bool = False) -> H:
    """The header from extFields; RequestRefused names a field that is missing or unreadable."""
    values: dict[str, Any] = {}
    for name, wire_name, read, required in _plan(header, "short" if short else "wire"):
        text = given.get(wire_name)
        if text is None:
            if required:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR, f"the field {wire_name} of the header is missing"
                )
            continue
        try:
            values[name] = read(text)
        except ValueError as error:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"the field {wire_name} of the header: {error}"
            ) from error
    return header(**values)


def encode_fields(header: Any, *, short: bool = False) -> dict[str, str]:
    """The extFields of a header; null fields are left out."""
    given: dict[str, str] = {}
    for name, wire_name, _, _ in _plan(type(header), "short" if short else "wire"):
        value = getattr(header, name)
        if value is None:
            continue
        if isinstance(value, bool):
            given[wire_name] = "true" if value else "false"
        else:
            given[wire_name] = str(value)
    return given


class Header:
    """Base of every header: the two directions."""

    __slots__ = ()

    @classmethod
    def decode(cls, given: Mapping[str, str]) -> Self:
        """From extFields. Raises RequestRefused naming the field that is missing or unreadable."""
        return decode_fields(cls, given)

    def encode(self) -> dict[str, str]:
        """To extFields."""
        return encode_fields(self)
