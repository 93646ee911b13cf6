"""Converts custom headers between declared fields and the text in extFields.

Place in the walk: between a frame's `fields` and the handler or client that understands them.

Invariant: a header that was read has every required field, in the range of its Java type; one that
was not names the field. Absent on purpose: which headers there are
(headers_client, headers_admin). The conversion is
msgspec's, in one call per header.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

import msgspec

from engine.foundation.errors import RemoteProtocolError, RequestRefused
from engine.protocol.codes import ResponseCode

INT32_MAX = 2**31 - 1
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=INT32_MAX)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


def wire_name(name: str, default: Any = msgspec.NODEFAULT) -> Any:
    """A field whose name on the wire is not its own in camel case."""
    return msgspec.field(default=default, name=name)


UNREADABLE = (msgspec.ValidationError, UnicodeEncodeError)
"""What a field that does not fit ends in; the second, text that no UTF-8 can hold for a number."""


class Header(msgspec.Struct, rename="camel", kw_only=True):
    """What requests' and responses' headers share."""

    def encode(self) -> dict[str, str]:
        """As extFields: numbers and truth values as text, None left out."""
        values = zip(self.__struct_encode_fields__, msgspec.structs.astuple(self), strict=True)
        return {
            wire: value if type(value) is str else as_text(value)
            for wire, value in values
            if value is not None
        }


class RequestHeader(Header):
    """A request's header."""

    @classmethod
    def decode(cls, fields: Mapping[str, str]) -> Self:
        """Read it; unknown fields are passed over.

        Raises RequestRefused with SYSTEM_ERROR, which is what RocketMQ answers, naming the field.
        """
        try:
            return msgspec.convert(fields, cls, strict=False)
        except UNREADABLE as error:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"decode {cls.__name__} failed: {error}"
            ) from error


class ResponseHeader(Header):
    """A response's header."""

    @classmethod
    def decode(cls, fields: Mapping[str, str]) -> Self:
        """Read it; unknown fields are passed over. Raises RemoteProtocolError naming the field."""
        try:
            return msgspec.convert(fields, cls, strict=False)
        except UNREADABLE as error:
            raise RemoteProtocolError(f"decode {cls.__name__} failed: {error}") from error


def as_text(value: object) -> str:
    """A field's value as extFields have it."""
    if value is True:
        return "true"
    if value is False:
        return "false"
    return str(value)
