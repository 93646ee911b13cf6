"""Parses case files into typed fields, with errors that name the exact location.

Place in the walk: the commands read the bytes, this module makes checked values of them, and the
cases of each rule set read their fields through `Fields`.

Invariant: nothing of the file is used unchecked, and no error repeats more of it than fits a line.
Absent on purpose: files. Numbers are whole and of 64 bits; NaN, infinities and a name that comes
twice in one object are no values.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from engine.foundation.errors import TidemarkError

CASE_FILE_BYTES_MAX: Final = 64 * 1024 * 1024
"""A longer file of cases is refused before it is read."""
_WHOLE_MAX: Final = 2**63 - 1
_WHOLE_MIN: Final = -(2**63)


class CaseFileError(TidemarkError):
    """A file of cases is not one: says where, what is there, the rule, and what to do."""

    def __init__(self, place: str, problem: str, remedy: str) -> None:
        super().__init__(f"{place}: {problem}; {remedy}")


_JSON: Final = "write strict JSON, one object whose keys are kinds of cases"


def parse(text: bytes, *, name: str) -> Fields:
    """The object that the file holds."""
    if len(text) > CASE_FILE_BYTES_MAX:
        raise CaseFileError(
            name,
            f"is longer than the {CASE_FILE_BYTES_MAX} bytes that are read",
            "split it into several files",
        )
    try:
        found = json.loads(
            text.decode("utf-8"), parse_constant=_no_constant, object_pairs_hook=_unique
        )
    except RecursionError:
        raise CaseFileError(name, "is nested too deep to be read", _JSON) from None
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError, numbers of 4,300 digits
        raise CaseFileError(name, f"is not JSON: {_short(error)}", _JSON) from None
    if not isinstance(found, dict):
        raise CaseFileError(name, f"holds {shown(found)}, not an object", _JSON)
    return Fields(found, name)


def shown(value: object) -> str:
    """A value as an error may repeat it: short, printable, on one line."""
    short = reprlib.Repr()
    short.maxlevel, short.maxstring, short.maxother = 2, 60, 60
    try:
        return ascii(short.repr(value))[1:-1]
    except ValueError:  # A number of more digits than may be written.
        return "a number of thousands of digits"


@dataclass(frozen=True, slots=True)
class Fields:
    """One object of the file, and where it stands."""

    values: dict[str, Any]
    place: str

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def get(self, name: str) -> Any:
        """The value of a field that must be there; may be null."""
        if name not in self.values:
            raise CaseFileError(self.place, f"{name!r} is missing", "add the field")
        return self.values[name]

    def whole(
        self,
        name: str,
        *,
        default: int | None = None,
        least: int = _WHOLE_MIN,
        most: int = _WHOLE_MAX,
    ) -> int:
        """A whole number from `least` to `most`."""
        if name not in self.values and default is not None:
            return default
        value = self.get(name)
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or not least <= value <= most:
            self._refuse(name, value, f"a whole number from {least} to {most}")
        return int(value)

    def whole_or_null(self, name: str) -> int | None:
        """A whole number of 64 bits, or null."""
        return None if self.get(name) is None else self.whole(name)

    def share(self, name: str, *, default: float | None = None) -> float:
        """A number from 0 to 1."""
        if name not in self.values and default is not None:
            return default
        value = self.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= 1:
            self._refuse(name, value, "a number from 0 to 1")
        return float(value)

    def flag(self, name: str, *, default: bool | None = None) -> bool:
        """True or false."""
        if name not in self.values and default is not None:
            return default
        value = self.get(name)
        if not isinstance(value, bool):
            self._refuse(name, value, "true or false")
        return bool(value)

    def word(self, name: str, *, default: str | None = None) -> str:
        """A text."""
        if name not in self.values and default is not None:
            return default
        value = self.get(name)
        if not isinstance(value, str):
            self._refuse(name, value, "a text")
        return str(value)

    def number_or_name(self, name: str) -> str:
        """An id: a whole number or a text, as a printable text without line breaks."""
        value = self.get(name)
        if isinstance(value, bool) or not isinstance(value, int | str):
            self._refuse(name, value, "a whole number or a text")
        return value if isinstance(value, str) and value.isprintable() else shown(value)

    def member(self, name: str) -> Fields:
        """A member that is an object itself."""
        value = self.get(name)
        if not isinstance(value, dict):
            self._refuse(name, value, "an object")
        return Fields(value, f"{self.place}.{name}")

    def items(self, name: str) -> list[Any]:
        """A list, of whatever."""
        value = self.get(name)
        if not isinstance(value, list):
            self._refuse(name, value, "a list")
        return list(value)

    def objects(self, name: str) -> Iterator[Fields]:
        """A list of objects."""
        for index, value in enumerate(self.items(name)):
            place = f"{self.place}.{name}[{index}]"
            if not isinstance(value, dict):
                raise CaseFileError(place, f"is {shown(value)}", "it must be an object")
            yield Fields(value, place)

    def wholes(self, name: str) -> list[int]:
        """A list of whole numbers of 64 bits."""
        values = dict(enumerate(self.items(name)))
        members = Fields({str(i): v for i, v in values.items()}, f"{self.place}.{name}")
        return [members.whole(str(i)) for i in values]

    def only(self, *known: str) -> None:
        """Refuse fields that nobody would look at: they would pass for compared."""
        for name in self.values:
            if name not in known:
                raise CaseFileError(
                    self.place,
                    f"{shown(name)} is not a field that is known here",
                    f"known are {', '.join(known)}",
                )

    def _refuse(self, name: str, value: object, allowed: str) -> NoReturn:
        raise CaseFileError(f"{self.place}.{name}", f"is {shown(value)}", f"it must be {allowed}")


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a value of JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the name {shown(name)} comes twice in one object")
        found[name] = value
    return found


def _short(error: ValueError) -> str:
    return ascii(str(error)[:120])[1:-1]
