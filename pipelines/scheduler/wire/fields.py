"""Reads and validates untrusted JSON field by field, without I/O.

Unknown fields are left alone: each version of XXL-Job adds some. What is known must have its type
and fit its bounds; the error names the field and never repeats a value at length. A field that is
null counts as absent, for that is how the Java side writes what it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from engine.foundation.errors import RemoteProtocolError

BODY_BYTES_MAX: Final = 5 * 1024 * 1024
"""The Java side's bound of a body, in both directions."""

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
TIME_MS_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, UTC."""


class Malformed(RemoteProtocolError):
    """What came is not what the wire allows: `field` names the part, or is empty for the whole."""

    def __init__(self, field: str, rule: str) -> None:
        super().__init__(f"{field}: {rule}" if field else rule)
        self.field = field


class Fields:
    """One JSON object. Where several names are given, the first that is there counts."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    @classmethod
    def of(cls, value: object, field: str = "") -> Fields:
        """Raises Malformed for what is no object."""
        if not isinstance(value, dict):
            raise Malformed(field, "not a JSON object")
        return cls(value)

    def integer(
        self, *names: str, low: int = 0, high: int = INT_MAX, default: int | None = None
    ) -> int:
        """A whole number within bounds; without `default` it must be there."""
        name, value = self._found(names)
        if value is None:
            if default is None:
                raise Malformed(names[0], "missing")
            return default
        if type(value) is not int:  # A bool is an int to isinstance.
            raise Malformed(name, "not a whole number")
        if not low <= value <= high:
            raise Malformed(name, f"not between {low} and {high}")
        return value

    def text(self, *names: str, chars_max: int, default: str | None = None) -> str:
        """A text of bounded length; without `default` it must be there."""
        name, value = self._found(names)
        if value is None:
            if default is None:
                raise Malformed(names[0], "missing")
            return default
        if not isinstance(value, str):
            raise Malformed(name, "not a text")
        if len(value) > chars_max:
            raise Malformed(name, f"{len(value):,} characters; {chars_max:,} are the most")
        return value

    def flag(self, *names: str, default: bool) -> bool:
        """True or false."""
        name, value = self._found(names)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise Malformed(name, "not true or false")
        return value

    def value(self, *names: str) -> object:
        """Whatever is there; None when nothing is."""
        return self._found(names)[1]

    def _found(self, names: tuple[str, ...]) -> tuple[str, Any]:
        for name in names:
            if (value := self._values.get(name)) is not None:
                return name, value
        return names[0], None


def parsed(body: bytes) -> object:
    """The JSON value of a body. Raises Malformed for what is none, too long or nested too deep."""
    if len(body) > BODY_BYTES_MAX:
        raise Malformed("", f"a body of {len(body):,} bytes; {BODY_BYTES_MAX:,} are the most")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Malformed("", f"not JSON ({error})") from error


def written(value: object) -> bytes:
    """JSON as Gson writes it: compact, UTF-8, and no character that means something in HTML."""
    body = orjson.dumps(value)
    for character, escape in _OF_HTML:
        body = body.replace(character, escape)
    return body


def plain(text: str, chars_max: int) -> str:
    """The text as JSON can carry it: without lone surrogates, no longer than allowed."""
    return text[:chars_max].encode("utf-8", "replace").decode()


# These stand in texts alone, never in the JSON around them.
_OF_HTML: Final = (
    (b"<", rb"\u003c"),
    (b">", rb"\u003e"),
    (b"&", rb"\u0026"),
    (b"=", rb"\u003d"),
    (b"'", rb"\u0027"),
    ("\u2028".encode(), rb"\u2028"),
    ("\u2029".encode(), rb"\u2029"),
)
