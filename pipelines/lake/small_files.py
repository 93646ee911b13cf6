"""Reads and atomically writes individual lake files, such as log entries and leases.

Place in the walk: below `tail`, `lease` and `upkeep`; delta-rs offers no way to a single file.
Invariant: a file is there whole or not at all; what is conditional is decided by the store, never
by looking first. Absent on purpose: files that do not fit into memory, and retries.
"""

from __future__ import annotations

import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import S3Store

from engine.foundation.errors import LakeError
from pipelines.lake.lake import Lake, first_line

_CLIENT_OPTIONS: Final = ("allow_http",)
"""Of the variables of an object store, those that speak of the connection."""

_STORE_OPTIONS: Final = (
    "access_key_id",
    "secret_access_key",
    "session_token",
    "region",
    "default_region",
    "endpoint",
    "endpoint_url",
    "virtual_hosted_style_request",
    "unsigned_payload",
    "skip_signature",
    "container_credentials_relative_uri",
    "web_identity_token_file",
    "role_arn",
    "role_session_name",
    "endpoint_url_sts",
)
"""Those that speak of the store. Others (AWS_CA_BUNDLE, AWS_PAGER) are for other tools."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a file held when it was read."""

    data: bytes
    tag: str
    """Names this content to the object store; empty on a disk."""


class SmallFiles:
    """The small files of one lake, by their address."""

    def __init__(self, lake: Lake) -> None:
        self.is_local: Final = "://" not in lake.root
        """On a disk: then there are file locks, and no conditional replacing."""
        self._root = lake.root
        self._store = None if self.is_local else object_store(lake)

    def read(self, address: str) -> Held | None:
        """The file at an address below the lake's root; None when there is none. LakeError when it
        cannot be read."""
        try:
            if self._store is None:
                return Held(Path(address).read_bytes(), "")
            found = obstore.get(self._store, self._key(address))
            return Held(bytes(found.bytes()), found.meta["e_tag"] or "")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (BaseError, OSError) as error:
            raise LakeError(f"{address} cannot be read ({first_line(error)})") from error

    def create(self, address: str, data: bytes) -> bool:
        """Make the file; False when it is there already."""
        try:
            if self._store is not None:
                obstore.put(self._store, self._key(address), data, mode="create")
                return True
            draft = _draft(address, data)
            try:
                os.link(draft, address)
            finally:
                draft.unlink()
        except (AlreadyExistsError, FileExistsError):
            return False
        except (BaseError, OSError) as error:
            raise LakeError(f"{address} cannot be written ({first_line(error)})") from error
        return True

    def replace(self, address: str, data: bytes) -> None:
        """Make the file, or put other content in its place."""
        try:
            if self._store is None:
                _draft(address, data).rename(address)
            else:
                obstore.put(self._store, self._key(address), data)
        except (BaseError, OSError) as error:
            raise LakeError(f"{address} cannot be written ({first_line(error)})") from error

    def replace_if(self, address: str, data: bytes, *, tag: str) -> str | None:
        """Replace the file that still has the content `tag` names, in an object store; return the
        new content's tag, None when somebody else was first."""
        assert self._store is not None, "on a disk a lock decides"
        condition: Any = {"e_tag": tag}
        try:
            done = obstore.put(self._store, self._key(address), data, mode=condition)
        except (PreconditionError, FileNotFoundError):
            return None
        except (BaseError, OSError) as error:
            raise LakeError(f"{address} cannot be written ({first_line(error)})") from error
        return done["e_tag"] or ""

    def remove(self, address: str) -> None:
        """Remove the file; one that is not there is no error."""
        try:
            if self._store is None:
                Path(address).unlink(missing_ok=True)
            else:
                obstore.delete(self._store, self._key(address))
        except FileNotFoundError:
            return
        except (BaseError, OSError) as error:
            raise LakeError(f"{address} cannot be removed ({first_line(error)})") from error

    def folders(self, address: str) -> list[str]:
        """Names of the folders in a folder, in order; none where there is no such folder."""
        try:
            if self._store is None:
                return sorted(one.name for one in Path(address).iterdir() if one.is_dir())
            found = obstore.list_with_delimiter(self._store, self._key(address))
            return sorted(prefix.rsplit("/", 1)[-1] for prefix in found["common_prefixes"])
        except (FileNotFoundError, NotADirectoryError):
            return []
        except (BaseError, OSError) as error:
            raise LakeError(f"{address} cannot be listed ({first_line(error)})") from error

    def _key(self, address: str) -> str:
        assert address.startswith(f"{self._root}/"), f"{address} is not in {self._root}"
        return address.removeprefix(f"{self._root}/")


def remove_folder(lake: Lake) -> None:
    """Remove everything below a lake's root; nothing there is no error. LakeError."""
    try:
        if "://" not in lake.root:
            shutil.rmtree(lake.root, ignore_errors=True)
            return
        store = object_store(lake)
        for listed in obstore.list(store):
            obstore.delete(store, [one["path"] for one in listed])
    except (BaseError, OSError) as error:
        raise LakeError(f"{lake.root} cannot be removed ({first_line(error)})") from error


def object_store(lake: Lake) -> S3Store:
    """The client of an object store, given what delta-rs is given."""
    options = {
        name.lower().removeprefix("aws_"): text for name, text in lake.storage_options.items()
    }
    settings: Any = {name: text for name, text in options.items() if name in _STORE_OPTIONS}
    client: Any = {name: text for name, text in options.items() if name in _CLIENT_OPTIONS}
    try:
        return S3Store.from_url(lake.root, config=settings, client_options=client)
    except (BaseError, ValueError) as error:
        raise LakeError(
            f"{lake.root} cannot be reached ({first_line(error)}): give the store's address and "
            "credentials in AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY"
        ) from error


def _draft(address: str, data: bytes) -> Path:
    """The content under a name of its own in the same folder, synced: to be linked or renamed."""
    path = Path(address)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with draft.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return draft
