"""Row C11: the accounts of a group are agreed on, and hold whoever leads, from its first answer."""

from __future__ import annotations

import asyncio
import logging

import pytest

from engine.foundation.errors import RequestRefused, TidemarkError
from engine.protocol.codes import RequestCode, ResponseCode
from engine.remoting.access import Access
from engine.remoting.accounts import Account
from engine.remoting.signing import Credentials
from tests.seeds import seeded
from tests.simulation.broker_group import HOSTS, TOPIC, BrokerGroup, GroupClient, check, digest
from tests.simulation.world import World, run_world

ROOT = Credentials("root", "secret-of-root")
SHOP = Credentials("shop", "secret-of-the-shop")
NEW = "another-secret-of-the-shop"
ELSE = Credentials("else", "secret-of-another-file")
FIRST = Access(accounts=(Account(ROOT, admin=True),))
OTHER_FILE = Access(accounts=(Account(ROOT, admin=True), Account(ELSE, admin=True)))


async def reach(client: GroupClient, host: str) -> None:
    """Until its connection of before a power cut or a partition is found to be dead."""
    client.ask_only(host)
    for _ in range(20):
        try:
            await client.do(client.send())
        except RequestRefused:
            return
        except TidemarkError:
            continue
        return


async def refused(client: GroupClient, host: str) -> None:
    """It may not send there."""
    await reach(client, host)
    with pytest.raises(RequestRefused) as error:
        await client.do(client.send())
    assert error.value.code == ResponseCode.NO_PERMISSION, error.value


async def story(world: World) -> None:
    """Made, changed and removed at whoever leads, which is killed each time."""
    group = BrokerGroup(world, access=FIRST)
    await group.start(first=HOSTS[:2])
    group.boot(HOSTS[2], access=OTHER_FILE)
    root, shop = GroupClient(group), GroupClient(group)
    await root.start(ROOT)
    await shop.start(SHOP, "10.0.7.2")
    first = await group.leader()
    root.ask_only(first)
    await root.do(root.send())
    await refused(shop, first)
    words = {"password": SHOP.secret_key, "user_type": "Normal"}
    await root.do(root.put_user(RequestCode.AUTH_CREATE_USER, "shop", **words))
    await refused(shop, first)
    await root.do(root.allow("shop", f"Topic:{TOPIC}", "Pub"))
    await shop.do(shop.send())
    group.crash(first, power_cut=False)
    second = await group.leader()
    shop.ask_only(second)
    await shop.do(shop.send())
    with pytest.raises(RequestRefused):
        await shop.do(shop.report(1))
    group.boot(first)
    await world.until("all have the same log", group.is_level, within_s=30)
    root.ask_only(await group.leader())
    await root.do(root.put_user(RequestCode.AUTH_UPDATE_USER, "shop", password=NEW))
    await refused(shop, await group.leader())
    await asyncio.sleep(6)  # Snapshots are written.
    for host in HOSTS:
        group.crash(host, power_cut=True)
    for host in HOSTS:
        group.boot(host)
    await refused(shop, await group.leader())
    await world.until("all have the same log", group.is_level, within_s=30)
    found = [digest(group.brokers[host], 0)["accounts"] for host in HOSTS]
    assert found[0] == found[1] == found[2]
    names = [one.credentials.access_key for one in group.brokers[first].state.accounts.all()]
    assert names[-1] == "shop"
    await remove_while_cut_off(group, root, names)


async def remove_while_cut_off(group: BrokerGroup, root: GroupClient, names: list[str]) -> None:
    """A leader that reaches nobody removes a user, which nobody agrees on: it comes back."""
    old = await group.leader()
    others = [host for host in HOSTS if host != old]
    await reach(root, old)
    group.cut_off(old)
    with pytest.raises(TidemarkError):
        await root.do(root.delete_user("shop"))
    await group.world.until("another leads", lambda: group.newest_master() in others, within_s=20)
    group.world.network.heal()
    await group.world.until("all have the same log", group.is_level, within_s=30)
    for host in HOSTS:
        accounts = group.brokers[host].state.accounts
        assert [one.credentials.access_key for one in accounts.all()] == names, host
    await reach(root, await group.leader())
    await root.do(root.delete_user("shop"))
    await group.world.until("all have the same log", group.is_level, within_s=30)
    assert all(group.brokers[host].state.accounts.find("shop") is None for host in HOSTS)
    check(group, root, answers_min=4)


@seeded(2)
def test_accounts_hold_whoever_leads(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    run_world(seed, story)
    for secret in (ROOT.secret_key, SHOP.secret_key, ELSE.secret_key, NEW):
        assert secret not in caplog.text
