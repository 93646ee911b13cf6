"""An account that lacks a right hears which, and for which question; what it may ask goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.protocol.codes import RequestCode as Code
from engine.protocol.codes import ResponseCode
from engine.remoting.access import Access
from engine.remoting.accounts import Account, Permission
from engine.remoting.signing import Credentials
from tests.integration.broker.cluster import broker_config, cluster, eventually
from tests.integration.broker.every_request import request_fields
from tests.integration.broker.guarded import ACCESS, BARE, ROOT, SHOP, WATCHER, Caller
from tests.integration.broker.spooled import spooled
from tests.integration.observer.played_cluster import (
    PlayedBroker,
    PlayedCluster,
    observing,
    played_cluster,
)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the observer had to say, but for how long looks took."""
    messages = [one.message for one in caplog.records if one.name.startswith("engine.observer")]
    return [message for message in messages if "a look took" not in message]


READER = Credentials("reader-of-all", "canary-secret-of-reader-of-all")
READS_MESSAGES = Account(
    READER,
    watcher=True,
    default_topic_perm=Permission.SUB,
    default_group_perm=Permission.SUB,
    group_perms={"TOOLS_CONSUMER": Permission.SUB},
)


async def test_an_account_that_may_watch_is_enough_and_times_need_one_that_may_read_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    access = Access((*ACCESS.accounts, READS_MESSAGES))
    async with cluster(broker_config(tmp_path, access=access), access=access) as running:
        root = Caller(running.broker.address, ROOT)
        for number in range(3):
            fields = request_fields("orders", "p")
            assert (await root.ask(Code.SEND_MESSAGE, b"%d" % number, **fields)).code == 0
        commit = request_fields("orders", "orders-group") | {"commitOffset": 1}
        assert (await root.ask(Code.UPDATE_CONSUMER_OFFSET, **commit)).code == 0
        await root.close()
        for account, reads in ((WATCHER, False), (READER, True)):
            folder = tmp_path / account.access_key
            home = folder / "DefaultCluster" / "broker-a" / "observer"

            def rows(table: str, home: Path = home) -> list[dict[str, Any]]:
                return spooled(home, table) if (home / "spool").exists() else []

            async def is_reported(reads: bool = reads) -> bool:
                seen = [row for row in rows("group_watermarks") if row["topic"] == "orders"]
                times = [row["store_time_at_committed"] for row in seen]
                return bool(seen) and (any(times) or not reads) and bool(rows("queue_watermarks"))

            caplog.clear()
            async with observing(
                PlayedCluster(folder, [], running.name_server_address), credentials=account
            ):
                await eventually(is_reported, f"{account.access_key} sees it")

                async def has_asked(reads: bool = reads) -> bool:
                    return reads or bool(logged(caplog))

                await eventually(has_asked, "it has asked for messages")
            lacking = [one for one in logged(caplog) if "lacks a right" in one]
            assert len(lacking) == (not reads), logged(caplog)
            assert all("Sub on Topic:*" in one for one in lacking)


@pytest.mark.parametrize("account", [BARE, SHOP])
async def test_what_an_account_lacks_is_logged_once_with_the_question_that_was_refused(
    tmp_path: Path, account: Credentials, caplog: pytest.LogCaptureFixture
) -> None:
    guarded = broker_config(tmp_path, access=ACCESS)
    async with cluster(guarded, access=ACCESS) as running:
        seen = PlayedCluster(tmp_path / "home", [], running.name_server_address)
        async with observing(seen, credentials=account):

            async def is_reported() -> bool:
                return bool(logged(caplog))

            await eventually(is_reported, "it was refused")
    (sentence,) = logged(caplog)
    assert "the account lacks a right: Get on Cluster:*" in sentence


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (Code.GET_ALL_TOPIC_CONFIG, "the list of topics: response code 16: no; the account lacks"),
        (Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "the list of groups"),
        (Code.GET_CONSUMER_CONNECTION_LIST, "who is connected of a group: g: "),
        (Code.GET_CONSUMER_RUNNING_INFO, "what a member holds"),
        (Code.PULL_MESSAGE, "Sub on Topic:* and on Group:TOOLS_CONSUMER"),
    ],
)
async def test_other_questions_go_on(
    tmp_path: Path, code: Code, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = PlayedBroker("broker-a")
    broker.members = {"g": {"client": {}}}
    broker.answers[code] = lambda _, ask: ask.respond(ResponseCode.NO_PERMISSION, "no")
    async with played_cluster(tmp_path, broker) as playing, observing(playing):

        async def is_reported() -> bool:
            return broker.asked[code] > 2 and bool(playing.reported(broker, "group_watermarks"))

        await eventually(is_reported, "what may be asked is reported")
    (sentence,) = logged(caplog)
    assert words in sentence
    assert "the account lacks a right" in sentence
