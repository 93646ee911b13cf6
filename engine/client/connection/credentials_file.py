"""A client's credentials file: the account it signs with and its TLS settings.

Place in the walk: named on a command line or by TIDEMARK_CREDENTIALS, read once, before the client
connects. Absent on purpose: what the words in it mean (remoting/access).
"""

from __future__ import annotations

from dataclasses import replace

from engine.client.config import ClientConfig
from engine.foundation.errors import ConfigError, StorageError
from engine.remoting.access import read_credentials
from engine.runtime import Disk


def with_credentials(config: ClientConfig, disk: Disk, path: str | None) -> ClientConfig:
    """The configuration with what the file says; unchanged without a file. Raises ConfigError."""
    if path is None:
        return config
    try:
        text = disk.read(path).decode()
    except (StorageError, UnicodeDecodeError) as error:
        raise ConfigError("credentials", path, f"a file that can be read ({error})") from error
    credentials, tls = read_credentials(text, path)
    return replace(config, credentials=credentials, tls=tls)
