"""An `Admin` from what a user typed: addresses of name servers, and a file of credentials.

Place in the walk: before the first question, on the command line and in the dashboard, which know
neither clocks nor sockets. Absent on purpose: connecting; the first question does that.
"""

from __future__ import annotations

from engine.client.admin.admin import Admin
from engine.client.config import ClientConfig
from engine.client.credentials_file import with_credentials
from engine.runtime import SystemDisk, system_runtime


def admin_at(namesrv: str, *, credentials: str | None = None) -> Admin:
    """An admin that asks the name servers `host:port;host:port`; `credentials` is a file's path.

    Raises ConfigError when the addresses or the file are none.
    """
    addresses = tuple(part.strip() for part in namesrv.split(";") if part.strip())
    config = ClientConfig(namesrv_addresses=addresses, instance_name="admin")
    return Admin(system_runtime(), with_credentials(config, SystemDisk(), credentials))
