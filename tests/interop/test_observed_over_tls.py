"""The observer watches a real Apache RocketMQ 5.5 that speaks only TLS."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine.admin import Admin
from engine.client import ClientConfig, Producer
from engine.foundation.errors import TidemarkError
from engine.protocol.message import Message
from engine.runtime import system_runtime
from engine.runtime.tls import ClientTls
from tests.certificates import Authority, authority
from tests.integration.broker.cluster import eventually
from tests.integration.broker.spooled import spooled
from tests.integration.observer.test_over_tls import running
from tests.interop.real_rocketmq import real_rocketmq

TOPIC, GROUP = "watched", "g"


def options(folder: Path, ca: Authority) -> list[str]:
    """Of JVMs that serve TLS alone, and connect by it to each other."""
    certificate, key = ca.issue("server")
    file = folder / "tls.properties"
    lines = {
        "tls.test.mode.enable": "false",
        "tls.server.certPath": str(certificate),
        "tls.server.keyPath": str(key),
        "tls.server.authClient": "false",
        "tls.client.authServer": "true",
        "tls.client.trustCertPath": str(ca.certificate),
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return ["-Dtls.server.mode=enforcing", "-Dtls.enable=true", f"-Dtls.config.file={file}"]


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_cluster_that_speaks_tls_alone_is_watched_by_who_trusts_its_certificate(
    tmp_path: Path,
) -> None:
    ca = authority(tmp_path / "ca")
    credentials = tmp_path / "credentials.toml"
    credentials.touch(mode=0o600)
    credentials.write_text(f'[tls]\nauthorities = "{ca.certificate}"\n')
    home = tmp_path / "home" / "DefaultCluster" / "broker-a" / "observer"
    with real_rocketmq(tmp_path, options=options(tmp_path, ca)) as cluster:
        client = ClientConfig(
            namesrv_addresses=(cluster.name_server,), tls=ClientTls(str(ca.certificate))
        )

        async def is_sent() -> bool:
            producer = Producer(system_runtime(), client, "p")
            try:
                await producer.start()
                await producer.send(Message(TOPIC, b"hello"))
            except TidemarkError:
                return False
            finally:
                await producer.stop()
            return True

        await eventually(is_sent, "the broker makes the topic", within_s=60)
        async with Admin(system_runtime(), client) as admin:
            await admin.groups.put(cluster.broker, {"groupName": GROUP})
            for queue in await admin.topics.queues(TOPIC):
                await admin.offsets.commit(GROUP, queue, 0)
        plain = ClientConfig(namesrv_addresses=(cluster.name_server,))
        async with Admin(system_runtime(), plain) as admin:
            with pytest.raises(TidemarkError):
                await admin.cluster.info()
        command = [str(Path(sys.executable).parent / "tidemark"), "observe"]
        command += ["-n", cluster.name_server, "--credentials", str(credentials)]
        command += ["--home", str(tmp_path / "home"), "--period", "1"]
        with running(command, tmp_path / "log"):

            async def is_reported() -> bool:
                rows = spooled(home, "group_watermarks") if (home / "spool").exists() else []
                return any(row["topic"] == TOPIC and row["store_time_at_committed"] for row in rows)

            await eventually(is_reported, "it is watched", within_s=60)
