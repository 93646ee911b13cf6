"""Reads RocketMQ's enumerations in bodies, by name or by their declared position.

Place in the walk: while a body is read. Java clients write names; clients built on the C++ library
write numbers, which RocketMQ's JSON library reads as places.

Invariant: what comes out is a name of the list, or RemoteProtocolError. Absent on purpose: what a
name means, and numbers on the way out: every client reads names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from engine.protocol.command import LANGUAGES
from engine.protocol.header_fields import Int64

if TYPE_CHECKING:
    EnumName = str
else:
    EnumName = str | Int64
    """A name once the structure is made; on the wire a number as well."""

CONSUME_TYPES: Final = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS: Final = ("BROADCASTING", "CLUSTERING", "LITE_SELECTIVE")
CONSUME_FROM_WHERE: Final = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
TOPIC_FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")
CONSUME_RESULTS: Final = (
    *("CR_SUCCESS", "CR_LATER", "CR_ROLLBACK", "CR_COMMIT", "CR_THROW_EXCEPTION"),
    "CR_RETURN_NULL",
)
REQUEST_MODES: Final = ("PULL", "POP")


def enum_name(value: str | int | None, names: Sequence[str], field: str) -> str:
    """The name in `names` that was given, or that has the place given.

    Raises ValueError, which decoders turn into RemoteProtocolError.
    """
    if isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    if isinstance(value, str) and value in names:
        return value
    raise ValueError(
        f"{field} {str(value)[:40]!r} is none of {', '.join(names)}, nor a place in that order"
    )


def language_name(value: str | int) -> str:
    """As `enum_name`; peers of a later release may have a language that is not known here."""
    if isinstance(value, int):
        return LANGUAGES[value] if 0 <= value < len(LANGUAGES) else "OTHER"
    return value
