"""TLS on the remoting port: who is let in, who is not, and that nobody else is harmed."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine.foundation.errors import ConfigError, ConnectFailed, TidemarkError
from engine.protocol.command import RemotingCommand
from engine.protocol.frames import encode_frame
from engine.remoting import Peer, RpcClient, RpcServer
from engine.runtime import ClientTls, ServerTls, TlsMode, system_runtime
from engine.runtime.tls import open_tls_listener
from tests.certificates import Authority, authority

ECHO, BULK = 1, 2
MIB = 1 << 20
DEADLINE_S = 20


def echo(peer: Peer, request: RemotingCommand) -> RemotingCommand:
    return request.respond(0, None, dict(request.fields), request.body)


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom clients and servers of this module trust."""
    return authority(tmp_path_factory.mktemp("ca"))


def server_tls(ca: Authority, name: str = "server", **how: object) -> ServerTls:
    certificate, key = ca.issue(name)
    return ServerTls(str(certificate), str(key), **how)  # type: ignore[arg-type]


@asynccontextmanager
async def serving(tls: ServerTls) -> AsyncIterator[str]:
    server = RpcServer(system_runtime(), {ECHO: echo}, tls=tls)
    port = await server.start("127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop()


async def ask(address: str, tls: ClientTls | None, body: bytes = b"hello") -> bytes:
    client = RpcClient(system_runtime(), tls=tls)
    try:
        request = RemotingCommand.request(ECHO, {"a": "b"}, body)
        answer = await client.invoke(address, request, timeout_ms=DEADLINE_S * 1000)
        return bytes(answer.body)
    finally:
        await client.close()


def trust(ca: Authority) -> ClientTls:
    return ClientTls(str(ca.certificate))


async def test_large_and_small_requests_pass_encrypted(ca: Authority) -> None:
    async with serving(server_tls(ca)) as address:
        for body in (b"", b"hello", bytes(8 * MIB)):
            assert await ask(address, trust(ca), body) == body


async def test_plain_text_is_refused_by_a_strict_server(
    ca: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(server_tls(ca)) as address:
        with pytest.raises(TidemarkError):
            await ask(address, None)
        assert await ask(address, trust(ca)) == b"hello", "others are not disturbed"
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1, warnings
    assert "TLS handshake failed" in warnings[0]


async def test_plain_text_and_encryption_are_both_served_in_the_permissive_mode(
    ca: Authority,
) -> None:
    async with serving(server_tls(ca, mode=TlsMode.PERMISSIVE)) as address:
        for tls in (None, trust(ca), None):
            assert await ask(address, tls, b"either way") == b"either way"


async def test_a_silent_connection_keeps_nobody_from_being_served(ca: Authority) -> None:
    async with serving(server_tls(ca, mode=TlsMode.PERMISSIVE)) as address:
        host, port = address.split(":")
        silent = [socket.create_connection((host, int(port))) for _ in range(50)]
        assert await ask(address, trust(ca)) == b"hello"
        assert await ask(address, None) == b"hello"
        for each in silent:
            each.close()


@pytest.mark.parametrize("mode", TlsMode)
async def test_handshakes_that_never_end_are_bounded_in_number_and_time(
    ca: Authority, caplog: pytest.LogCaptureFixture, mode: TlsMode
) -> None:
    tls = server_tls(ca, mode=mode)
    limits = {"handshakes_max": 3, "handshake_ms_max": 200}
    listener = open_tls_listener("127.0.0.1", 0, asyncio.Protocol, tls, **limits)
    silent = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(5)]
    async with asyncio.timeout(DEADLINE_S):
        for reader, writer in silent:
            assert await reader.read() == b"", "closed"
            writer.close()
    await listener.close()
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert sum("are under way" in words for words in warnings) == 2, warnings
    assert sum("no handshake within" in words for words in warnings) == 3, warnings


async def test_a_server_s_certificate_must_be_the_right_one(ca: Authority, tmp_path: Path) -> None:
    async def refused(tls: ServerTls, client: ClientTls, why: str) -> None:
        async with serving(tls) as address:
            with pytest.raises(ConnectFailed, match=why):
                await ask(address, client)

    other = authority(tmp_path / "other")
    await refused(server_tls(ca), trust(other), "CERTIFICATE_VERIFY_FAILED")
    await refused(server_tls(ca), ClientTls(), "CERTIFICATE_VERIFY_FAILED")
    paths = [str(path) for path in ca.issue("expired", expired=True)]
    await refused(ServerTls(*paths), trust(ca), "expired")
    paths = [str(path) for path in ca.issue("elsewhere", address="192.0.2.7")]
    await refused(ServerTls(*paths), trust(ca), "IP address mismatch")


async def test_a_server_that_asks_for_certificates_lets_in_only_those_it_knows(
    ca: Authority, tmp_path: Path
) -> None:
    tls = server_tls(ca, client_authorities=str(ca.certificate))
    known = [str(path) for path in ca.issue("client")]
    unknown = [str(path) for path in authority(tmp_path / "other").issue("client")]
    async with serving(tls) as address:
        assert await ask(address, ClientTls(str(ca.certificate), *known)) == b"hello"
        for client in (trust(ca), ClientTls(str(ca.certificate), *unknown)):
            with pytest.raises(TidemarkError):
                await ask(address, client)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
async def test_nothing_older_than_tls_1_2_is_spoken(ca: Authority) -> None:
    async with serving(server_tls(ca)) as address:
        host, port = address.split(":")
        for version, served in (
            (ssl.TLSVersion.TLSv1_1, False),
            (ssl.TLSVersion.TLSv1_2, True),
            (ssl.TLSVersion.TLSv1_3, True),
        ):
            context = foreign_context(ca)
            context.set_ciphers("DEFAULT:@SECLEVEL=0")  # Else our own side would refuse 1.1.
            with_version(context, version)
            try:
                _, writer = await asyncio.open_connection(host, int(port), ssl=context)
            except (ssl.SSLError, ConnectionError):
                assert not served, version
                continue
            assert served, version
            writer.close()
            await writer.wait_closed()


def foreign_context(ca: Authority) -> ssl.SSLContext:
    """A peer's that is not ours; it takes home-made certificates, as Python before 3.13."""
    context = ssl.create_default_context(cafile=str(ca.certificate))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def with_version(context: ssl.SSLContext, version: ssl.TLSVersion) -> None:
    context.maximum_version = version
    context.minimum_version = version


async def test_garbage_inside_an_encrypted_connection_ends_only_it(ca: Authority) -> None:
    async with serving(server_tls(ca)) as address:
        host, port = address.split(":")
        context = foreign_context(ca)
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
        writer.write(encode_frame(RemotingCommand(ECHO)) + b"\xff" * 8)
        async with asyncio.timeout(DEADLINE_S):
            await reader.read()
        writer.close()
        assert await ask(address, trust(ca)) == b"hello"


async def test_files_that_are_no_certificates_are_refused_by_name(
    ca: Authority, tmp_path: Path
) -> None:
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    certificate, _ = ca.issue("one")
    _, other_key = ca.issue("two")

    async def refused(tls: ServerTls) -> None:
        server = RpcServer(system_runtime(), {}, tls=tls)
        with pytest.raises(ConfigError, match="tls"):
            await server.start("127.0.0.1", 0)
        await server.stop()

    await refused(ServerTls(str(nonsense), str(nonsense)))
    await refused(ServerTls("/nonexistent.pem", "/nonexistent.key"))
    await refused(ServerTls(str(certificate), str(other_key)))
    await refused(server_tls(ca, client_authorities=str(nonsense)))
    with pytest.raises(ConfigError, match="tls"):
        await ask("127.0.0.1:1", ClientTls("/nonexistent.pem"))
    with pytest.raises(ConfigError, match="together"):
        ClientTls(certificate=str(certificate))
