"""Hashes and verifies passwords with scrypt, storing a salt and cost with each hash.

A guess costs 32 MiB and about 0.2 s. An empty hash is nobody's: who has it cannot sign in.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from typing import Final

from engine.foundation.errors import MustBe

PASSWORD_CHARS_MIN: Final = 12
PASSWORD_CHARS_MAX: Final = 1_024
NO_PASSWORD: Final = ""

_COSTS: Final = (2**15, 8, 3)
"""N, r and p, as OWASP advises for 32 MiB."""
_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32
_MEMORY_BYTES_MAX: Final = 64 * 1024 * 1024


def password_hash(password: str) -> str:
    """What is kept of a password; raises ConfigError for one that is too short, or too long."""
    if not PASSWORD_CHARS_MIN <= len(password) <= PASSWORD_CHARS_MAX:
        allowed = f"{PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters"
        raise MustBe("password", "***", allowed)
    salt = secrets.token_bytes(_SALT_BYTES)
    costs = "$".join(str(cost) for cost in _COSTS)
    return f"scrypt${costs}${_text(salt)}${_text(_scrypt(password, salt, _COSTS))}"


def is_password(password: str, kept: str) -> bool:
    """Is it the one? It takes as long for somebody who has none, or whom nobody knows."""
    if not kept.startswith("scrypt$"):
        _scrypt(password, b"nobody's", _COSTS)
        return False
    _, cost_n, cost_r, cost_p, salt, digest = kept.split("$")
    costs = (int(cost_n), int(cost_r), int(cost_p))
    derived = _scrypt(password, base64.b64decode(salt), costs)
    return hmac.compare_digest(derived, base64.b64decode(digest))


def _scrypt(password: str, salt: bytes, costs: tuple[int, int, int]) -> bytes:
    secret = password[: PASSWORD_CHARS_MAX + 1].encode("utf-8", "surrogatepass")
    cost_n, cost_r, cost_p = costs
    return hashlib.scrypt(
        secret, salt=salt, n=cost_n, r=cost_r, p=cost_p, dklen=_HASH_BYTES, maxmem=_MEMORY_BYTES_MAX
    )


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
