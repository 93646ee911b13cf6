"""An account that lacks a right hears which, and for which question; what it may ask goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.protocol.codes import RequestCode as Code
from engine.protocol.codes import ResponseCode
from engine.remoting.signing import Credentials
from tests.integration.broker.cluster import broker_config, cluster, eventually
from tests.integration.broker.guarded import ACCESS, BARE, ROOT, SHOP
from tests.integration.broker.spooled import spooled
from tests.integration.observer.played_cluster import (
    PlayedBroker,
    PlayedCluster,
    observing,
    played_cluster,
)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the observer had to say, but for how long looks took."""
    messages = [one.message for one in caplog.records if one.name.startswith("engine.observer")]
    return [message for message in messages if "a look took" not in message]


async def test_an_account_that_may_read_all_is_enough(tmp_path: Path) -> None:
    guarded = broker_config(tmp_path, access=ACCESS)
    async with cluster(guarded, access=ACCESS) as running:
        seen = PlayedCluster(tmp_path / "home", [], running.name_server_address)
        async with observing(seen, credentials=ROOT):
            home = tmp_path / "home" / "DefaultCluster" / "broker-a" / "observer"

            async def is_told() -> bool:
                return (home / "spool").exists() and bool(spooled(home, "queue_watermarks"))

            await eventually(is_told, "it is watched")


@pytest.mark.parametrize("account", [BARE, SHOP])
async def test_what_an_account_lacks_is_told_once_with_the_question_that_was_refused(
    tmp_path: Path, account: Credentials, caplog: pytest.LogCaptureFixture
) -> None:
    guarded = broker_config(tmp_path, access=ACCESS)
    async with cluster(guarded, access=ACCESS) as running:
        seen = PlayedCluster(tmp_path / "home", [], running.name_server_address)
        async with observing(seen, credentials=account):

            async def is_told() -> bool:
                return bool(told(caplog))

            await eventually(is_told, "it was refused")
    (sentence,) = told(caplog)
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

        async def is_told() -> bool:
            return broker.asked[code] > 2 and bool(playing.told(broker, "group_watermarks"))

        await eventually(is_told, "what may be asked is told")
    (sentence,) = told(caplog)
    assert words in sentence
    assert "the account lacks a right" in sentence
