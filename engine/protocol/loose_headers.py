"""Reads JSON headers whose fields are not all text, as RocketMQ's JSON library does.

Place in the walk: behind `frames`, only for headers that the strict decoder refused; clients in
other languages send numbers and truth values where the protocol has text.

    1 → "1"   1.50 → "1.50"   1e5 → "100000.0"   true → "true"   {"a": 1} → '{"a":1}'
    null → left out

Invariant: what comes out is text, or RemoteProtocolError.
Absent on purpose: NaN, names without quotes and other things that RocketMQ refuses as well.
"""

from __future__ import annotations

import math

import msgspec

from engine.foundation.errors import RemoteProtocolError
from engine.foundation.limits import HEADER_FIELDS_MAX

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
