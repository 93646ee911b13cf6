"""Where the parties of a run are: hosts, disks, and certificates that say who they are."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from engine.remoting.signing import Credentials
from engine.runtime import ClientTls
from tests.certificates import authority
from tests.chaos.clients import Stage
from tests.chaos.member import program
from tests.chaos.network import OWN, Network
from tests.integration.broker.broker_group import BrokerGroup, Place
from tests.integration.broker.cluster import RawClient
from tests.integration.broker.small_disk import SmallDisk

ACCOUNT: Final = Credentials("chaos", "secret-of-chaos")
ACCESS: Final = """
[tls]
certificate = "{name}.pem"
key = "{name}.key"
clientAuthorities = "authority.pem"
authorities = "authority.pem"

[[accounts]]
accessKey = "{account.access_key}"
secretKey = "{account.secret_key}"
admin = true
"""
SETTINGS: Final = ("diskSpaceCleanForciblyRatio=1.0", "diskSpaceWarningLevelRatio=1.0")
"""Of brokers: on a disk that is full they let go of no message, and write until nothing fits."""
SMALL_DISK: Final = 2
"""The broker whose store lies on a disk of its own."""


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """A file system of that size, in the mount namespace of this program."""
    folder.mkdir()
    options = ("-o", f"size={size_bytes},mode=0700")
    subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", folder], check=True)
    try:
        yield SmallDisk(folder, folder, ())
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


class Site:
    """That of one run."""

    def __init__(self, folder: Path, network: Network, disk: SmallDisk) -> None:
        self.folder, self.network, self.disk = folder, network, disk
        issuer = authority(folder / "access")
        own = issuer.issue("clients", address=OWN)
        self.tls = ClientTls(str(issuer.certificate), str(own[0]), str(own[1]))
        for number, host in enumerate(network.hosts):
            issuer.issue(f"host{number}", address=host.address)
            path = self._access(number)
            path.touch(mode=0o600)
            path.write_text(ACCESS.format(name=f"host{number}", account=ACCOUNT))

    def _access(self, number: int) -> Path:
        return self.folder / "access" / f"host{number}.toml"

    def places(self, folder: Path) -> list[Place]:
        """Of three brokers and two name servers whose files are below a folder."""
        found = []
        for number, host in enumerate(self.network.hosts):
            access = ("--allow-remote", "--access", str(self._access(number)))
            store = self.disk.path / folder.name if number == SMALL_DISK else folder
            found.append(
                Place(
                    host.address,
                    host.enter,
                    ("--host", host.address, *access),
                    program(folder / f"n{number}.orders"),
                    store / f"n{number}",
                )
            )
        return found

    def group(self, name: str) -> BrokerGroup:
        """A Raft group that has not begun."""
        folder = self.folder / name
        folder.mkdir()
        return BrokerGroup(folder, *SETTINGS, places=self.places(folder), client=self.client)

    def client(self, address: str) -> RawClient:
        """A client of one party."""
        return RawClient(address, credentials=ACCOUNT, tls=self.tls)

    def stage(self, folder: Path, namesrvs: tuple[str, ...]) -> Stage:
        """What clients know."""
        return Stage(folder, namesrvs, self.tls, ACCOUNT)
