"""A real Apache RocketMQ 5.5 accepts the signatures of our client, and no others.

What it takes from us is what it takes from its own clients.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.admin import Admin
from engine.client import ClientConfig, Producer, ProducerConfig
from engine.client.sending.send_result import SendStatus
from engine.foundation.errors import TidemarkError
from engine.protocol.message import Message
from engine.remoting.signing import Credentials
from engine.runtime import system_runtime
from tests.integration.broker.cluster import eventually
from tests.interop.real_rocketmq import RealRocketMQ, real_rocketmq

AUTHENTICATION = "org.apache.rocketmq.auth.authentication.provider"
ROOT = Credentials("root", "secret-of-root")
SETTINGS = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{AUTHENTICATION}.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{AUTHENTICATION}.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": "root", "password": ROOT.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps(
        {"accessKey": "root", "secretKey": ROOT.secret_key}
    ),
}


async def send(cluster: RealRocketMQ, credentials: Credentials | None, message: Message) -> str:
    config = ClientConfig(namesrv_addresses=(cluster.name_server,), credentials=credentials)
    producer = Producer(system_runtime(), config, "signing", producer=ProducerConfig(retry_times=0))
    await producer.start()
    try:
        return (await producer.send(message)).status.name
    except TidemarkError as error:
        return str(error)
    finally:
        await producer.stop()


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_apache_rocketmq_takes_our_signature_and_no_other(tmp_path: Path) -> None:
    with real_rocketmq(tmp_path, SETTINGS) as cluster:
        config = ClientConfig(namesrv_addresses=(cluster.name_server,), credentials=ROOT)
        async with Admin(system_runtime(), config) as admin:
            await admin.topics.create(cluster.broker, "signed")

            async def is_routed() -> bool:
                return await admin.topics.route("signed") is not None

            await eventually(is_routed, "the name server knows the topic", within_s=60)
        plain = Message("signed", b"hello")
        keyed = Message("signed", "héllo €😀".encode(), {"TAGS": "TagÄ", "KEYS": "k1 k2"})
        for message in (plain, keyed):
            assert await send(cluster, ROOT, message) == SendStatus.SEND_OK.name
        for wrong in (None, Credentials("root", "guessed"), Credentials("nobody", "x")):
            refused = await send(cluster, wrong, plain)
            assert "response code 16" in refused, refused
