"""Signs requests and verifies signatures as RocketMQ's AclClientRPCHook does.

Place in the walk: the last thing a client does to a request, the first thing a guarded server looks
at. The signature is HMAC-SHA1, in Base64, over the values of all header fields in the order of
their names (the signature itself left out), followed by the body.

    AccessKey      who asks
    SecurityToken  a further word of theirs, when they were given one; signed like every field
    Signature      the proof that they know the secret key

Invariant: signing the same request again gives the same fields. Known weakness, RocketMQ's own: the
names are not signed, nor the request code, and a recorded request may be sent again; TLS closes
that. Absent on purpose: who may do what (accounts).
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from engine.foundation.errors import ConfigError
from engine.foundation.units import Buffer
from engine.protocol.command import RemotingCommand

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105 - the name of a field.
SIGNATURE: Final = "Signature"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
VERSION_4_9_3: Final = 399
"""MQVersion ordinal; clients up to it add `_UNIQUE_KEY_QUERY` after they have signed."""


class Signer(Protocol):
    """Whoever can sign requests."""

    def sign(self, request: RemotingCommand) -> None:
        """Add the fields that show who asks, and the proof."""
        ...


@dataclass(frozen=True, slots=True)
class Credentials:
    """A client's access key and secret. Raises ConfigError for an empty one."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.access_key:
            raise ConfigError("accessKey", self.access_key, "a word that is not empty")
        if not self.secret_key:
            raise ConfigError("secretKey", "", "a word that is not empty")

    def sign(self, request: RemotingCommand) -> None:
        """Add the fields that show who asks, and the proof."""
        request.fields[ACCESS_KEY] = self.access_key
        if self.security_token is not None:
            request.fields[SECURITY_TOKEN] = self.security_token
        secret = self.secret_key.encode()
        request.fields[SIGNATURE] = signature_of(request.fields, request.body, secret)


def signature_of(fields: Mapping[str, str], body: Buffer, secret: bytes, *, but: str = "") -> str:
    """The signature of a request with these fields; a field named `but` is left out."""
    names = sorted(fields, key=_java_order)
    values = "".join(fields[name] for name in names if name not in (SIGNATURE, but))
    proof = hmac.new(secret, values.encode("utf-8", "replace"), "sha1")
    proof.update(body)
    return b64encode(proof.digest()).decode()


def is_genuine(request: RemotingCommand, secret: bytes) -> bool:
    """Was the request signed with `secret`? Takes as long for a wrong signature as for a right
    one.
    """
    signature = request.fields.get(SIGNATURE, "")
    but = UNIQUE_KEY_QUERY if request.version <= VERSION_4_9_3 else ""
    right = signature_of(request.fields, request.body, secret, but=but)
    return hmac.compare_digest(signature.encode("utf-8", "replace"), right.encode())


def _java_order(name: str) -> bytes:
    """Java compares texts by their UTF-16 units."""
    return name.encode("utf-16-be", "surrogatepass")
