"""The observer reads a real Apache RocketMQ 4.9.7 with ACL 1.0 by non-admin accounts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.admin import Admin
from engine.client import ClientConfig
from engine.protocol.message import Message
from engine.remoting.signing import Credentials
from engine.runtime import system_runtime
from provision import jars
from provision.places import earlier_rocketmq_jars
from tests.integration.broker.cluster import eventually
from tests.integration.broker.spooled import spooled
from tests.integration.observer.played_cluster import PlayedCluster, observing
from tests.interop.real_rocketmq import real_rocketmq
from tests.interop.test_python_client_with_accounts import send

ROOT = Credentials("root-account", "secret-of-root")
SIGNS = Credentials("signing-eye", "secret-of-signing-eye")
READS = Credentials("reading-eye", "secret-of-reading-eye")
ACCOUNTS = f"""\
accounts:
- accessKey: {ROOT.access_key}
  secretKey: {ROOT.secret_key}
  admin: true
- accessKey: {SIGNS.access_key}
  secretKey: {SIGNS.secret_key}
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
- accessKey: {READS.access_key}
  secretKey: {READS.secret_key}
  admin: false
  defaultTopicPerm: SUB
  defaultGroupPerm: SUB
"""
GROUP, TOPIC = "g", "watched"


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_an_account_that_signs_sees_all_but_messages_and_one_with_sub_these_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = jars.faults(jars.read_pins(jars.EARLIER_ROCKETMQ.pins), earlier_rocketmq_jars())
    assert not wrong, f"run `make test-earlier-rocketmq`, which brings them: {wrong[0]}"
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    settings = {"aclEnable": "true"}
    with real_rocketmq(tmp_path, settings, jars=earlier_rocketmq_jars()) as cluster:

        async def is_stored() -> bool:
            return await send(cluster, ROOT, Message(TOPIC, b"hello")) == "SEND_OK"

        await eventually(is_stored, "the broker makes the topic", within_s=60)
        config = ClientConfig(namesrv_addresses=(cluster.name_server,), credentials=ROOT)
        async with Admin(system_runtime(), config) as admin:
            await admin.groups.put(cluster.broker, {"groupName": GROUP})
            for queue in await admin.topics.queues(TOPIC):
                await admin.offsets.commit(GROUP, queue, 0)
        for account in (SIGNS, READS):
            home = tmp_path / account.access_key
            store = home / "DefaultCluster" / "broker-a" / "observer"

            def is_reported(store: Path = store) -> list[dict[str, Any]]:
                rows = spooled(store, "group_watermarks") if (store / "spool").exists() else []
                return [row for row in rows if row["topic"] == TOPIC]

            def has_exact() -> bool:
                known = (row for row in is_reported() if row["store_time_at_committed"])
                return any(not row["store_time_error_ms"] for row in known)

            def lacking() -> list[str]:
                return [one.message for one in caplog.records if "lacks a right" in one.message]

            async def is_there(account: Credentials = account) -> bool:
                return has_exact() if account is READS else bool(is_reported() and lacking())

            caplog.clear()
            seen = PlayedCluster(home, [], cluster.name_server)
            async with observing(seen, period_ms=500, credentials=account):
                await eventually(is_there, f"{account.access_key} sees it", within_s=60)
            assert has_exact() is (account is READS)
            assert len(lacking()) == (account is SIGNS), lacking()
            assert all("Sub on Topic:*" in one for one in lacking())
