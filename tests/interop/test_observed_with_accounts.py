"""The rights that the observer needs on a real Apache RocketMQ 5.5 with accounts.

Its account may only read; a right that is missing is reported by name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.admin import Admin
from engine.admin.api.requests import AdminRequests
from engine.client import ClientConfig
from engine.foundation.errors import TidemarkError
from engine.protocol.codes import RequestCode as Code
from engine.protocol.message import Message, MessageQueue
from engine.remoting.signing import Credentials
from engine.runtime import system_runtime
from tests.integration.broker.cluster import eventually
from tests.integration.broker.spooled import spooled
from tests.integration.observer.played_cluster import PlayedCluster, observing
from tests.interop.real_rocketmq import RealRocketMQ, real_rocketmq
from tests.interop.test_python_client_with_accounts import ROOT, SETTINGS, send

AUTHORIZATION = "org.apache.rocketmq.auth.authorization.provider"
EYE = Credentials("eye", "secret-of-eye")
WITH_RIGHTS = {
    **SETTINGS,
    "authorizationEnabled": "true",
    "authorizationProvider": f"{AUTHORIZATION}.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{AUTHORIZATION}.LocalAuthorizationMetadataProvider",
}
GROUP, TOPIC = "g", "watched"


def config(cluster: RealRocketMQ, account: Credentials) -> ClientConfig:
    return ClientConfig(namesrv_addresses=(cluster.name_server,), credentials=account)


async def allow(cluster: RealRocketMQ, rights: dict[str, list[str]], *, anew: bool = False) -> None:
    """Give the account that watches these rights, and no others."""
    asking = AdminRequests(system_runtime(), config(cluster, ROOT))
    user = {"username": EYE.access_key, "password": EYE.secret_key, "userType": "Normal"}
    entries = [
        {"resource": name, "actions": actions, "sourceIps": [], "decision": "Allow"}
        for name, actions in rights.items()
    ]
    subject = f"User:{EYE.access_key}"
    acl = {"subject": subject, "policies": [{"policyType": "Custom", "entries": entries}]}
    if anew:
        fields = {"username": EYE.access_key}
        await asking.ask(cluster.broker, Code.AUTH_CREATE_USER, fields, json.dumps(user).encode())
    code = Code.AUTH_CREATE_ACL if anew else Code.AUTH_UPDATE_ACL
    await asking.ask(cluster.broker, code, {"subject": subject}, json.dumps(acl).encode())
    await asking.connection.stop()


async def with_a_group_behind(cluster: RealRocketMQ) -> None:
    """One message, of which the group has consumed none."""
    async with Admin(system_runtime(), config(cluster, ROOT)) as admin:

        async def is_stored() -> bool:
            return await send(cluster, ROOT, Message(TOPIC, b"hello")) == "SEND_OK"

        await eventually(is_stored, "the broker makes the topic", within_s=60)
        await admin.groups.put(cluster.broker, {"groupName": GROUP})
        for queue in await admin.topics.queues(TOPIC):
            await admin.offsets.commit(GROUP, queue, 0)


async def may_ask_for_ends(cluster: RealRocketMQ) -> bool:
    async with Admin(system_runtime(), config(cluster, EYE)) as admin:
        try:
            await admin.topics.status_at(cluster.broker, TOPIC)
        except TidemarkError:
            return False
        return True


async def may_read(cluster: RealRocketMQ) -> bool:
    async with Admin(system_runtime(), config(cluster, EYE)) as admin:
        try:
            queue = MessageQueue(TOPIC, "broker-a", 0)
            await admin.messages.read(queue, 0, count_max=1, address=cluster.broker)
        except TidemarkError:
            return False
        return True


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_three_rights_to_read_are_enough_and_a_missing_one_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "home"
    store = home / "DefaultCluster" / "broker-a" / "observer"

    def is_reported() -> list[dict[str, Any]]:
        rows = spooled(store, "group_watermarks") if (store / "spool").exists() else []
        return [row for row in rows if row["topic"] == TOPIC]

    def exact() -> list[dict[str, Any]]:
        known = (row for row in is_reported() if row["store_time_at_committed"])
        return [row for row in known if not row["store_time_error_ms"]]

    def lacking() -> list[str]:
        return [one.message for one in caplog.records if "lacks a right" in one.message]

    with real_rocketmq(tmp_path, WITH_RIGHTS) as cluster:
        read = {"Cluster:*": ["Get"], "Topic:*": ["Get"], "Group:*": ["Get"]}
        await allow(cluster, read, anew=True)
        await with_a_group_behind(cluster)
        await eventually(lambda: may_ask_for_ends(cluster), "rights reach the broker", within_s=60)
        seen = PlayedCluster(home, [], cluster.name_server)
        async with observing(seen, period_ms=500, credentials=EYE):

            async def is_there() -> bool:
                return bool(is_reported() and lacking())

            await eventually(is_there, "what may be asked is reported, and what not", within_s=30)
            assert not exact()
            (sentence,) = lacking()
            assert "Sub on Topic:* and on Group:TOOLS_CONSUMER" in sentence
            await allow(cluster, read | {"Topic:*": ["Get", "Sub"], "Group:*": ["Get", "Sub"]})
            await eventually(lambda: may_read(cluster), "rights reach the broker", within_s=60)

            async def is_known() -> bool:
                return bool(exact())

            await eventually(is_known, "the store time of what waits is known", within_s=30)
        assert lacking() == [sentence]
