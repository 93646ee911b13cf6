"""Row C11: who reaches the port of a Raft group off loopback has to prove who it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.broker.replicating.raft_peers import RaftPeers, Who
from engine.foundation.errors import ConfigError
from engine.remoting.access import Access
from engine.runtime import ServerTls, TlsMode, system_runtime
from tests.certificates import authority


async def no_tables() -> bytes:
    return b""


@pytest.mark.parametrize("asks_clients", [True, False])
@pytest.mark.parametrize("mode", [None, *TlsMode])
async def test_a_port_that_takes_strangers_does_not_open(
    tmp_path: Path, mode: TlsMode | None, *, asks_clients: bool
) -> None:
    issuer, access = authority(tmp_path), Access()
    certificate, key = map(str, issuer.issue("own", address="192.0.2.1"))
    authorities = str(issuer.certificate) if asks_clients else None
    if mode is not None:
        access = Access(server_tls=ServerTls(certificate, key, authorities, mode))
    peers = RaftPeers(
        system_runtime(), access, receive=lambda _: None, who=lambda: Who("n0"), tables=no_tables
    )
    expected = "loopback addresses"
    if asks_clients and mode is TlsMode.STRICT:
        expected = "192.0.2.1"  # It would open, were the address this machine's.
    with pytest.raises(ConfigError, match=expected):
        await peers.start("n0-192.0.2.1:40911")
