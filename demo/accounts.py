"""Writes account files that only their owner can read, for a demo with access control.

Place in the walk: written before the curtain rises. Name server and broker get the access file,
each client the file with its own account; `tidemark admin --credentials .../admin.toml` is how a
visitor asks.

Invariant: no client has more rights than its part needs. Absent on purpose: certificates; on
loopback, whoever could listen could read the files as well.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from demo.plan import GROUPS, ORDERS, PAYMENTS

SECRET_BYTES = 24
ADMIN, PRODUCER, CONSUMER = "demo-admin", "demo-producer", "demo-consumer"


@dataclass(frozen=True, slots=True)
class AccountFiles:
    """Where the files are."""

    access: Path
    admin: Path
    producer: Path
    consumer: Path


def write_accounts(folder: Path) -> AccountFiles:
    """Make up accounts with new secrets and write them to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    names = {ADMIN: "admin", PRODUCER: "producer", CONSUMER: "consumer"}
    keys = {name: secrets.token_urlsafe(SECRET_BYTES) for name in names}
    paths = {name: folder / f"{file}.toml" for name, file in names.items()}
    for name, path in paths.items():
        _write(path, f'accessKey = "{name}"\nsecretKey = "{keys[name]}"\n')
    access = folder / "access.toml"
    _write(access, access_text(keys))
    return AccountFiles(access, paths[ADMIN], paths[PRODUCER], paths[CONSUMER])


def access_text(keys: dict[str, str]) -> str:
    """The access file of name server and broker, for accounts with these secret keys."""
    topics = (ORDERS, PAYMENTS)
    rights = {
        ADMIN: "admin = true",
        PRODUCER: f"topicPerms = {_list(topics, 'PUB')}",
        CONSUMER: f"topicPerms = {_list(topics, 'SUB')}\n"
        f"groupPerms = {_list([group.name for group in GROUPS], 'SUB')}",
    }
    return "\n".join(
        f'[[accounts]]\naccessKey = "{name}"\nsecretKey = "{key}"\n{rights[name]}\n'
        for name, key in keys.items()
    )


def _list(names: list[str] | tuple[str, ...], permission: str) -> str:
    return "[" + ", ".join(f'"{name}={permission}"' for name in names) + "]"


def _write(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
