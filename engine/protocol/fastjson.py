"""Reads and writes fastjson's JSON dialect in bodies and headers.

    {0:"127.0.0.1:10911"}                       integers as keys, without quotes
    {{"brokerName":"b","queueId":0}:12}         objects as keys
    1 → "1"   1.50 → "1.50"   1e5 → "100000.0"  fields of a header that are not text
    true → "true"   {"a": 1} → '{"a":1}'   null → left out

Place in the walk: bodies about queues, offset files, routes of older peers; behind `frames`, the
headers that its strict decoder refused: clients in other languages send numbers and truth values.

Read, an integer key is its text, so both spellings give the same table; an object as a key is a
tuple of its (name, value) pairs, sorted by name. Written, integer keys are quoted (fastjson reads
both) and such tuples become objects again. What strict JSON lacks is put right in one pass, which
looks at keys alone; then it is read as strict JSON.

Invariant: `loads(dumps(x))` is x with integer keys as text; only RemoteProtocolError comes out of
reading, whatever the bytes, and what reading costs grows as their number does. Absent on purpose:
the rest of what fastjson tolerates (comments, single quotes, type names), and NaN.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import orjson

from engine.foundation.errors import LocalProtocolError, RemoteProtocolError
from engine.foundation.limits import FRAME_BYTES_MAX, HEADER_FIELDS_MAX, LOOSE_KEYS_MAX

DEPTH_MAX: Final = 64
"""More levels than this is hostile; RocketMQ's own documents have six."""

TEXT_BYTES_MAX: Final = 4 * FRAME_BYTES_MAX
"""A longer document is refused: no frame holds it, and no table of ours grows to it."""

_INT64_MAX: Final = 2**63 - 1
_STRING: Final = r'"(?:[^"\\\x00-\x1f]|\\.)*+"'
_INTEGER: Final = r"-?[0-9]{1,20}+"
_SPACE: Final = r"[ \t\r\n]*+"
_PLAIN: Final = rf"(?:{_STRING}|[-+.0-9A-Za-z]++)"
_FIELD: Final = rf"{_SPACE}(?:{_STRING}|{_INTEGER}){_SPACE}:{_SPACE}{_PLAIN}{_SPACE}"
_OBJECT: Final = rf"\{{(?:{_FIELD}(?:,{_FIELD})*+|{_SPACE})\}}"
_KEY: Final = rf"{_SPACE}(?:{_INTEGER}|{_OBJECT}){_SPACE}:"
_NEXT_KEY = re.compile(
    rf'(?:[^"{{,]++|{_STRING}|[{{,](?!{_KEY}))*+[{{,]{_SPACE}(?:({_INTEGER})|({_OBJECT}))'
)
"""Up to the next key that strict JSON lacks. Possessive throughout: no character is looked at more
than three times."""

_LONG_NUMBER = re.compile(r"[0-9]{19}")
"""May exceed 64 bits; orjson would take it for a fraction."""
_MARKS: Final = tuple(chr(code) for code in range(0xE000, 0xE010))
"""Characters of no meaning: the first that a document does not contain begins the names of its
object keys."""
_PLAIN_KEYS: Final = frozenset({str, int})
_PLAIN_VALUES: Final = frozenset({str, int, bool, type(None)})

ObjectKey = tuple[tuple[str, Any], ...]


def object_key(fields: Mapping[str, Any]) -> ObjectKey:
    """An object in the form in which it can be a key."""
    return tuple(sorted(fields.items()))


def loads(data: bytes | bytearray | memoryview | str, *, keys_max: int = LOOSE_KEYS_MAX) -> Any:
    """The document in `data`, with `keys_max` keys at most that strict JSON lacks.

    Raises RemoteProtocolError saying where it is wrong.
    """
    if len(data) > TEXT_BYTES_MAX:
        raise RemoteProtocolError(f"{len(data)} bytes of JSON, at most {TEXT_BYTES_MAX} are read")
    try:
        text = data if isinstance(data, str) else str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"JSON is not UTF-8: {error}") from error
    try:
        value = _strict(text)
    except ValueError as error:
        made_strict, keys, mark = _made_strict(text, keys_max)
        if made_strict is text:
            raise _wrong(error, text) from error
        try:
            value = _strict(made_strict)
        except ValueError as still:
            raise _wrong(still, made_strict) from still
        if keys:
            _check_levels(value)
            return _with_object_keys(value, keys, mark)
    _check_levels(value)
    return value


def _strict(text: str) -> Any:
    """Strict JSON, its integers within 64 bits. Raises ValueError."""
    if not _LONG_NUMBER.search(text):
        return orjson.loads(text)
    try:
        value = msgspec.json.decode(text)
    except RecursionError as error:
        raise ValueError(f"more than {DEPTH_MAX} levels") from error
    except UnicodeEncodeError as error:
        raise ValueError(f"no text: {error}") from error
    except msgspec.MsgspecError as error:
        what = "a number exceeds 64 bits: " if "out of range" in str(error) else ""
        raise ValueError(f"{what}{error}") from error
    _check_levels(value)
    _check_integers(value)
    return value


def _check_levels(value: Any) -> None:
    if not _levels_within(value, DEPTH_MAX):
        raise RemoteProtocolError(f"JSON of more than {DEPTH_MAX} levels")


def _levels_within(value: Any, levels: int) -> bool:
    """Is `value` nested no deeper?"""
    if isinstance(value, dict):
        inner: Iterable[Any] = value.values()
    elif isinstance(value, list):
        inner = value
    else:
        return True
    if levels == 0:
        return False
    for one in inner:
        if isinstance(one, dict | list) and not _levels_within(one, levels - 1):
            return False
    return True


def _check_integers(value: Any) -> None:
    """Raise RemoteProtocolError for an integer beyond 64 bits, however deep."""
    inner: Iterable[Any]
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list):
        inner = value
    else:
        inner = (value,)
    for one in inner:
        if isinstance(one, int):
            if not -_INT64_MAX - 1 <= one <= _INT64_MAX:
                raise RemoteProtocolError(f"JSON with {str(one)[:24]}: it exceeds 64 bits")
        elif isinstance(one, dict | list):
            _check_integers(one)


def _made_strict(text: str, keys_max: int) -> tuple[str, list[ObjectKey], str]:
    """`text` with names for the keys that strict JSON lacks, the object keys by number, and how
    their names begin. The same text when there are none. Raises RemoteProtocolError.
    """
    match = _NEXT_KEY.match(text)
    if match is None:
        return text, [], ""
    mark = _unused_mark(text)
    parts: list[str] = []
    keys: list[ObjectKey] = []
    at = count = 0
    while match is not None:
        count += 1
        if count > keys_max:
            raise RemoteProtocolError(
                f"JSON with more than {keys_max} keys that are integers without quotes or objects"
            )
        key_at = match.start(match.lastindex or 0)
        parts.append(text[at:key_at])
        integer, fields = match.groups()
        if integer is not None:
            parts.append(f'"{integer}"')
        else:
            parts.append(f'"{mark}{len(keys)}"')
            keys.append(object_key(loads(fields)))
        at = match.end()
        match = _NEXT_KEY.match(text, at)
    parts.append(text[at:])
    return "".join(parts), keys, mark


def _unused_mark(text: str) -> str:
    """A character that no name in `text` begins with, however it is spelled."""
    spelled = text.lower() if "\\u" in text else ""
    for mark in _MARKS:
        if mark not in text and f"\\u{ord(mark):04x}" not in spelled:
            return mark
    raise RemoteProtocolError(
        f"JSON with objects as keys and with each of U+{ord(_MARKS[0]):04X} to "
        f"U+{ord(_MARKS[-1]):04X}: leave one of them out"
    )


def _with_object_keys(value: Any, keys: list[ObjectKey], mark: str) -> Any:
    """`value` with its object keys in place of their names."""
    if isinstance(value, dict):
        return {
            keys[int(name[1:])] if name[:1] == mark else name: (
                _with_object_keys(one, keys, mark) if isinstance(one, dict | list) else one
            )
            for name, one in value.items()
        }
    if isinstance(value, list):
        return [
            _with_object_keys(one, keys, mark) if isinstance(one, dict | list) else one
            for one in value
        ]
    return value


def _wrong(error: ValueError, text: str) -> RemoteProtocolError:
    if isinstance(error, orjson.JSONDecodeError):
        found = text[error.pos : error.pos + 20]
        return RemoteProtocolError(f"JSON at character {error.pos}: {error.msg}, but {found!r}")
    return RemoteProtocolError(f"JSON: {error}")


def dumps(value: Any) -> bytes:
    """The document as bytes. Raises LocalProtocolError for what JSON cannot carry."""
    parts: list[str] = []
    _write(value, parts, 0)
    try:
        return "".join(parts).encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"not text: {error}") from error


def _write(value: Any, parts: list[str], depth: int) -> None:
    if depth > DEPTH_MAX:
        raise LocalProtocolError(f"a document of more than {DEPTH_MAX} levels")
    if type(value) is dict and _is_plain(value):
        parts.append(_plain(value))
    elif isinstance(value, Mapping):
        sign = "{"
        for key, item in value.items():
            parts.append(sign)
            _write_key(key, parts, depth)
            parts.append(":")
            _write(item, parts, depth + 1)
            sign = ","
        parts.append("}" if sign == "," else "{}")
    elif isinstance(value, list | tuple):
        sign = "["
        for item in value:
            parts.append(sign)
            _write(item, parts, depth + 1)
            sign = ","
        parts.append("]" if sign == "," else "[]")
    else:
        parts.append(_scalar(value))


def _is_plain(table: dict[Any, Any]) -> bool:
    """May a table, of a queue's offsets or a topic's settings, be written in one go?"""
    return _PLAIN_KEYS.issuperset(map(type, table)) and _PLAIN_VALUES.issuperset(
        map(type, table.values())
    )


def _write_key(key: Any, parts: list[str], depth: int) -> None:
    if isinstance(key, tuple):
        _write(dict(key), parts, depth + 1)
    elif isinstance(key, str):
        parts.append(_scalar(key))
    elif isinstance(key, int) and not isinstance(key, bool):
        parts.append(f'"{key:d}"')
    else:
        raise LocalProtocolError(f"{key!r} cannot be a key: text, integer and object_key() can")


def _scalar(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        raise LocalProtocolError(f"{value} cannot be written as JSON")
    if value is not None and not isinstance(value, str | bool | int | float):
        raise LocalProtocolError(f"{value!r} cannot be written as JSON")
    return _plain(value)


def _plain(value: Any) -> str:
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError as error:  # Its encoding errors are of this type.
        raise LocalProtocolError(f"{value!r:.60} cannot be written as JSON: {error}") from error


_NULL = msgspec.Raw(b"null")


class LooseHeader(msgspec.Struct):
    """A JSON header; numbers of its own may be text, its fields anything."""

    code: int
    flag: int = 0
    language: str | int | None = None
    opaque: int = 0
    version: int = 0
    remark: msgspec.Raw = _NULL
    extFields: dict[str, msgspec.Raw] | None = None  # noqa: N815 - the name on the wire.


_decode = msgspec.json.Decoder(LooseHeader, strict=False).decode


def read_loose_header(header: bytes) -> tuple[LooseHeader, str | None, dict[str, str]]:
    """The header, its remark, and its fields that are not null.

    Raises RemoteProtocolError for what RocketMQ would refuse as well.
    """
    try:
        read = _decode(header)
        raw_fields = read.extFields or {}
        if len(raw_fields) > HEADER_FIELDS_MAX:  # Before each of them is looked into.
            raise ValueError(f"{len(raw_fields)} fields, at most {HEADER_FIELDS_MAX}")
        texts = {name: text_of(value) for name, value in raw_fields.items()}
        fields = {name: text for name, text in texts.items() if text is not None}
        return read, text_of(read.remark), fields
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise RemoteProtocolError(f"JSON header: {error}") from error


def text_of(raw: msgspec.Raw) -> str | None:
    """One JSON value as text; None for null."""
    value = bytes(raw)
    if value == b"null":
        return None
    if value[:1] == b'"':
        return msgspec.json.decode(value, type=str)
    if value[:1] in (b"{", b"["):
        return bytes(msgspec.json.format(value, indent=-1)).decode()
    text = value.decode()
    if text in ("true", "false"):
        return text
    if "e" in text or "E" in text:
        return _java_double(text)
    return "0" if text == "-0" else text


def _java_double(text: str) -> str:
    """A number with an exponent, as Java prints the double it stands for."""
    value = float(text)
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        plain = repr(value)
        return plain if "e" not in plain else f"{value:f}"
    mantissa, _, exponent = f"{value!r}".partition("e")
    if not exponent:  # Python writes up to 1e16 plainly, Java only up to 1e7.
        sign, digits = ("-", mantissa[1:]) if value < 0 else ("", mantissa)
        whole, _, part = digits.partition(".")
        exponent = str(len(whole) - 1)
        mantissa = f"{sign}{whole[0]}.{(whole[1:] + part).rstrip('0') or '0'}"
    elif "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}E{int(exponent)}"
