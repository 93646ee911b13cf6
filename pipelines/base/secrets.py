"""Reads secrets from the environment or a file and keeps them out of logs and errors.

They are never in the settings themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from engine.foundation.errors import ConfigError

SHORTEST_PART = 6
"""Parts of a secret that are shorter stand for too much else to be looked for."""

FILE_BYTES_MAX = 8_192


class Secret:
    """What it holds leaves by `reveal` alone; printed, it says where it came from."""

    __slots__ = ("_value", "origin")

    def __init__(self, value: str, origin: str) -> None:
        self._value = value
        self.origin = origin

    def reveal(self) -> str:
        """The text itself, for whoever sends it."""
        return self._value

    def __repr__(self) -> str:
        return f"<secret from {self.origin}>"


def secret_from(
    variable: str | None, file: str | None, environment: Mapping[str, str], *, key: str
) -> Secret | None:
    """The secret that a receiver names by `KEY_env` or `KEY_file`; None when it names none.

    Raises ConfigError, which names variable or file and not what is in it.
    """
    if variable is not None and file is not None:
        raise ConfigError(f"{key}_env", variable, f"left out where {key}_file is given")
    if variable is not None:
        value, origin = environment.get(variable, ""), f"environment variable {variable}"
        if not value.strip():
            raise ConfigError(f"{key}_env", variable, "a variable of the environment that is set")
    elif file is not None:
        origin = f"file {file}"
        try:
            with Path(file).expanduser().open("rb") as opened:
                value = opened.read(FILE_BYTES_MAX).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{key}_file", file, "a text file that can be read") from error
        if not value.strip():
            raise ConfigError(f"{key}_file", file, "a file with the secret in its first line")
        value = value.strip().splitlines()[0]
    else:
        return None
    return Secret(value.strip(), origin)


def without_secrets(text: str, secrets: Iterable[Secret | None]) -> str:
    """The text with each secret, and each part of one that is an address, replaced by stars."""
    parts = {part for secret in secrets if secret is not None for part in _parts(secret.reveal())}
    for part in sorted(parts, key=lambda part: (-len(part), part)):
        text = text.replace(part, "***")
    return text


def _parts(value: str) -> set[str]:
    parts = {value, unquote(value)}
    try:
        address = urlsplit(value)
    except ValueError:
        return parts
    if address.scheme:
        pieces = [address.path, address.query, *address.path.split("/"), *address.query.split("&")]
        pieces += [address.password or "", address.username or "", address.netloc.split("@")[0]]
        pieces += [piece.partition("=")[2] for piece in address.query.split("&")]
        parts |= {shown for piece in pieces for shown in (piece, unquote(piece))}
    return {part for part in parts if len(part) >= SHORTEST_PART}
