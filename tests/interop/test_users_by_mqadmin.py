"""Row C11: `mqadmin` of RocketMQ 5.5 makes users and rules in a Raft group, and they stay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine.protocol.codes import ResponseCode
from engine.remoting.signing import Credentials
from tests.integration.broker.broker_group import HERE, BrokerGroup, Member
from tests.integration.broker.cluster import RawClient
from tests.interop.java_clients import JavaChecks
from tests.interop.mqadmin import said_by_mqadmin

ROOT = Credentials("root", "secret-of-root")
SHOP = Credentials("shop", "secret-of-the-shop")


async def sent(member: Member) -> int:
    """The code of the shop's message."""
    client = RawClient(member.address, credentials=SHOP)
    try:
        return (await client.send(topic="orders")).code
    finally:
        await client.close()


async def test_users_and_rules_of_mqadmin_survive_the_leader(
    java_checks: JavaChecks, tmp_path: Path
) -> None:
    access = tmp_path / "access.toml"
    access.write_text(
        '[[accounts]]\naccessKey = "root"\nsecretKey = "secret-of-root"\nadmin = true\n'
    )
    access.chmod(0o600)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text("accessKey: root\nsecretKey: secret-of-root\n")
    place = replace(HERE, options=("--access", str(access)))
    group = BrokerGroup(
        tmp_path,
        places=(place,) * 3 + (HERE,) * 2,
        client=lambda address: RawClient(address, credentials=ROOT),
    )

    def mqadmin(member: Member, *words: str) -> str:
        return said_by_mqadmin(java_checks, tmp_path, *words, "-b", member.address)

    def answered(member: Member, *words: str) -> str:
        """What it prints to a question; it waits two seconds, which are short on a busy machine."""
        said = ""
        for _ in range(5):
            said = mqadmin(member, *words)
            if "RemotingTimeoutException" not in said:
                break
        return said

    try:
        await group.start()
        leader = await group.leader()
        words = ("-u", "shop", "-p", SHOP.secret_key, "-t", "Normal")
        assert "success" in mqadmin(leader, "createUser", *words)
        assert await sent(leader) == ResponseCode.NO_PERMISSION
        rule = ("-s", "User:shop", "-r", "Topic:orders", "-a", "Pub", "-d", "Allow")
        assert "success" in mqadmin(leader, "createAcl", *rule)
        assert await sent(leader) == ResponseCode.SUCCESS
        await leader.kill()
        heir = await group.leader()
        assert await sent(heir) == ResponseCode.SUCCESS
        listed = answered(heir, "listUser")
        assert "shop" in listed
        assert "secret" not in listed
        assert "Topic:orders" in answered(heir, "getAcl", "-s", "User:shop")
        assert "success" in mqadmin(heir, "deleteUser", "-u", "shop")
        assert await sent(heir) == ResponseCode.NO_PERMISSION
    finally:
        await group.close()
