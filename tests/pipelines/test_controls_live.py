"""What operators do every day, on a live broker with live clients: none of it is a finding.

Consumers are added and taken away, a topic's queues become fewer, all consumers are restarted one
after the other, and the broker is stopped and started, all of it cleanly and under load.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from engine.broker.broker import Broker
from engine.broker.config import BrokerConfig
from engine.client import PushConsumer
from engine.foundation.errors import TidemarkError
from engine.namesrv import NameServer, NameServerConfig
from engine.protocol.codes import RequestCode
from engine.runtime import system_runtime
from pipelines.lake.lake import whole_table
from tests.integration.broker.cluster import RawClient, broker_config
from tests.integration.client.cluster_users import eventually, producing, text
from tests.pipelines.gold_lake import gold, present
from tests.pipelines.live_play import SAMPLES, Stage, Working, shipped

pytestmark = pytest.mark.timeout(120)
NAMES = ("scaled", "shrunk", "rolled", "kept")
FIRST_LIFE_S = 8.0
SECOND_LIFE_S = 4.0
LONG_S = 60.0
"""To the end of the play."""


class Controls(Stage):
    """One name server, a broker in two lives at one address, and everybody's clients."""

    def __init__(self, names: str, address: str) -> None:
        super().__init__(names)
        self.address = address
        self.listeners = {name: Working(0.005) for name in NAMES}
        self.sent: Counter[str] = Counter()

    def joined(self, name: str) -> AbstractAsyncContextManager[PushConsumer]:
        """One more member of group g-NAME."""
        return self.member(name, self.listeners[name])

    def taken(self, name: str) -> Counter[str]:
        """What the members of a group took, all together."""
        return Counter(bytes(message.body).decode() for message in self.listeners[name].taken)

    async def resize(self, topic: str, *, writes: int, reads: int) -> None:
        """Let the topic have so many queues."""
        client = RawClient(self.address, "127.0.0.1@admin")
        await client.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic=topic,
            defaultTopic="TBW102",
            readQueueNums=reads,
            writeQueueNums=writes,
            perm=6,
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order=False,
            attributes="",
        )
        await client.close()

    def is_consumed(self) -> bool:
        """Has every message that was sent been taken?"""
        return not self.sent.keys() - set().union(*map(self.taken, NAMES))

    async def send(self) -> None:
        """Forty messages a second to each topic, until cancelled; what is refused is not sent."""
        async with producing(self.names, "p") as producer:
            number = 0
            while True:
                for topic in NAMES:
                    number += 1
                    try:
                        await producer.send(text(topic, f"{number}"), timeout_ms=1000)
                    except TidemarkError:
                        continue
                    self.sent[f"{number}"] += 1
                await asyncio.sleep(0.025)


async def scaled(stage: Controls) -> None:
    """One member, then three, then one."""
    async with stage.joined("scaled"):
        await asyncio.sleep(1.5)
        async with stage.joined("scaled"), stage.joined("scaled"):
            await asyncio.sleep(2.5)
        await asyncio.sleep(LONG_S)


async def shrunk(stage: Controls) -> None:
    """Four queues, then two: first nothing more is sent to the others, then nobody reads them.

    One member: two that hear of it at different moments do read a queue in turn until both have.
    """
    async with stage.joined("shrunk"):
        await asyncio.sleep(2.5)
        await stage.resize("shrunk", writes=2, reads=4)
        await asyncio.sleep(2.5)
        await stage.resize("shrunk", writes=2, reads=2)
        await asyncio.sleep(LONG_S)


async def rolled(stage: Controls) -> None:
    """Two members, each of which is stopped and started anew in its turn."""
    async with AsyncExitStack() as first, AsyncExitStack() as second:
        await first.enter_async_context(stage.joined("rolled"))
        await second.enter_async_context(stage.joined("rolled"))
        for members in (first, second):
            await asyncio.sleep(1.5)
            await members.aclose()
            await asyncio.sleep(0.3)
            await members.enter_async_context(stage.joined("rolled"))
        await asyncio.sleep(LONG_S)


async def kept(stage: Controls) -> None:
    """Two members that see the broker go and come."""
    async with stage.joined("kept"), stage.joined("kept"):
        await asyncio.sleep(LONG_S)


@asynccontextmanager
async def started(config: BrokerConfig) -> AsyncIterator[Broker]:
    """A broker, stopped cleanly."""
    broker = Broker(system_runtime(), config)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


async def ended(*tasks: asyncio.Task[None]) -> None:
    """Cancel them, and let them end; what went wrong in one goes wrong here."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(outcome, asyncio.CancelledError), outcome


async def play(folder: Path) -> Controls:
    """Two lives of the broker, a second apart."""
    name_server = NameServer(system_runtime(), NameServerConfig(port=0))
    names = f"127.0.0.1:{await name_server.start()}"
    config = replace(broker_config(folder, **SAMPLES), namesrv_addresses=(names,))
    async with started(config) as broker:
        port = int(broker.address.rpartition(":")[2])
        stage = Controls(names, broker.address)
        for name in NAMES:
            await stage.resize(name, writes=4, reads=4)
        sending = asyncio.create_task(stage.send())
        parts = [asyncio.create_task(part(stage)) for part in (scaled, shrunk, rolled, kept)]
        await asyncio.sleep(FIRST_LIFE_S)
    await asyncio.sleep(1)
    async with started(replace(config, port=port)):
        await asyncio.sleep(SECOND_LIFE_S)
        await ended(sending)
        await eventually(stage.is_consumed, "all that was sent is consumed")
        await asyncio.sleep(1)
        await ended(*parts)
    await name_server.stop()
    return stage


@dataclass(frozen=True)
class Played:
    """What came of it."""

    stage: Controls
    lake: Path


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The lake of the play, and what the clients themselves know."""
    folder = tmp_path_factory.mktemp("controls")
    stage = asyncio.run(play(folder))
    return Played(stage, shipped(folder / "store", folder / "lake"))


def test_the_broker_was_used_in_both_lives(played: Played) -> None:
    lives = {row["broker_epoch"] for row in bronze_rows(played.lake, "consume_offsets", "g-kept")}
    assert len(lives) == 2
    assert len(played.stage.sent) >= 400


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("table", ["stalled_windows", "offset_violations", "lag_causes"])
def test_what_operators_do_every_day_is_no_finding(played: Played, name: str, table: str) -> None:
    assert gold(played.lake, table, group=f"g-{name}") == []


@pytest.mark.parametrize("name", NAMES)
def test_a_group_is_never_reported_to_be_in_trouble(played: Played, name: str) -> None:
    """Unknown only until the group has an offset on its empty retry queue: its first pull of it is
    answered when the broker has held it for long enough.
    """
    for row in gold(played.lake, "group_state", group=f"g-{name}"):
        said = f"Group g-{name} has no offset on queue 0 of %RETRY%"
        assert row["state"] == "OK" or row["reason"].startswith(said), row
    kinds = {row["kind"] for row in gold(played.lake, "rebalances", group=f"g-{name}")}
    assert kinds <= {"JOINED", "LEFT", "SUBSCRIPTION_CHANGED", "QUEUES_CHANGED"}


@pytest.mark.parametrize("name", NAMES)
def test_no_duplicate_is_predicted_that_did_not_come_again(played: Played, name: str) -> None:
    """A hand-over may bring the message on its way to the former reader again. That is reported, of
    the hand-over, as what was delivered twice; none is predicted as certain to be processed twice,
    and no consumer is reported to have crashed. A member that is given its queue back asks where to
    begin, as a restarted one does: that is reported as the loss of what it held.
    """
    taken = played.stage.taken(name)
    windows = present(played.lake, "duplicate_risk_windows", group=f"g-{name}")
    opened = [row for row in windows if row["basis"] != "EXPOSURE"]
    of_others = [row for row in opened if row["client_id"] != row["next_client_id"]]
    assert {row["cause"] for row in of_others} <= {"HAND_OVER"}, [one["evidence"] for one in opened]
    confirmed = [row for row in opened if row["outcome"] == "CONFIRMED"]
    redelivered = sum(row["redelivered_messages"] for row in confirmed)
    again = bronze_rows(played.lake, "redeliveries", f"g-{name}")
    assert redelivered <= sum(row["to_offset"] - row["from_offset"] for row in again)
    assert taken.total() - len(taken) <= redelivered
    if taken.total() == len(taken):
        assert not sum(row["certain_messages"] or 0 for row in confirmed)


def bronze_rows(lake: Path, table: str, group: str) -> list[dict[str, Any]]:
    """What the broker reported of a group."""
    rows = whole_table(DeltaTable(str(lake / "bronze" / table))).to_pylist()
    return [row for row in rows if row["group"] == group]
