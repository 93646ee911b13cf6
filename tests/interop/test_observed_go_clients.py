"""How soon a Go client whose listener never returns is found, on RocketMQ and on ours.

The Apache RocketMQ is observed each ten seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import pytest

from engine.client import Producer
from engine.protocol.message import Message
from pipelines.base.settings import Evaluation
from tests.integration.client.cluster_users import eventually, producing
from tests.interop.java_clients import JavaChecks
from tests.interop.ledger_consumers import Consumers, LedgerConsumer
from tests.interop.our_engine import our_engine
from tests.interop.real_rocketmq import RealRocketMQ
from tests.interop.test_observed_rocketmq import _sent, observer
from tests.pipelines.marts.judges import JUDGES
from tests.pipelines.partition import bronze_of, run

TOPIC: Final = "go-orders"
QUIET, LATEST = "go-quiet", "go-latest"
"""One was there for a minute before the message came; of the other it is the first look."""
OBSERVED_WITHIN_S, OURS_WITHIN_S = 60, 45
STUCK: Final = b"its listener never returns#"


@contextmanager
def go_member(made: LedgerConsumer) -> Iterator[LedgerConsumer]:
    """A member of a group, killed at the end."""
    made.start()
    try:
        yield made
    finally:
        made.end(kill=True)
        if made.process is not None:
            made.process.wait()


@asynccontextmanager
async def stuck(
    name_server: str, consumers: Consumers, *, wait_s: float
) -> AsyncIterator[tuple[Producer, float]]:
    """Two Go members of groups of their own, and when a message came that both hold for ever."""
    async with AsyncExitStack() as stack:
        producer = await stack.enter_async_context(producing(name_server, "go-producer"))
        await eventually(lambda: _sent(producer, TOPIC), "the topic is made", within_s=60)
        for group, before_s in ((QUIET, wait_s), (LATEST, 24)):
            made = consumers.made("go", name_server, group, TOPIC, orderly=False, policy="FIRST")
            member = stack.enter_context(go_member(made))
            await eventually(member.is_ready, f"{group} is there", within_s=60)
            await asyncio.sleep(before_s)
        await producer.send(Message(TOPIC, STUCK))
        yield producer, time.time()


def found(lake: Path, came_at: float) -> dict[str, tuple[float, str]]:
    """Of each group: how long after the message its window opened, and the kind of it."""
    rows = run(JUDGES, bronze_of(lake), Evaluation())["stalled_windows"]
    opened: dict[str, tuple[float, str]] = {}
    for row in sorted(rows, key=lambda one: one["observed_at"]):
        if row["topic"] == TOPIC:
            waited_s = row["observed_at"].timestamp() - came_at
            opened.setdefault(row["group"], (waited_s, row["kind"]))
    return opened


def check(lake: Path, came_at: float, within_s: float) -> None:
    """Both are found in time, and as what their clients say."""
    opened = found(lake, came_at)
    assert opened.keys() == {QUIET, LATEST}
    for group, (waited_s, kind) in opened.items():
        assert 30 <= waited_s <= within_s, (group, opened)
        assert kind in ("FROZEN_HEAD", "UNDETERMINED")


def at_hand(checks: JavaChecks, folder: Path) -> Consumers | None:
    """Makes members; without a Go toolchain there is nothing to try, and why is printed."""
    made = Consumers(checks, folder)
    why_not = made.why_not("go")
    if why_not is None:
        return made
    print(why_not)  # noqa: T201 - for whoever runs this with -s.
    return None


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_stuck_go_member_of_an_observed_cluster_is_found_within_a_minute(
    apache_rocketmq: RealRocketMQ, java_checks: JavaChecks, tmp_path: Path
) -> None:
    consumers = at_hand(java_checks, tmp_path)
    if consumers is None:
        return
    with observer(apache_rocketmq, tmp_path, period_s=10):
        async with stuck(apache_rocketmq.name_server, consumers, wait_s=45) as (_, came_at):
            await asyncio.sleep(OBSERVED_WITHIN_S + 15)
    check(tmp_path / "lake", came_at, OBSERVED_WITHIN_S)


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_stuck_go_member_of_our_broker_is_found_within_45_s(
    java_checks: JavaChecks, tmp_path: Path
) -> None:
    consumers = at_hand(java_checks, tmp_path)
    if consumers is None:
        return
    lake = tmp_path / "lake"
    with our_engine(tmp_path / "engine", "--lake", str(lake)) as engine:
        async with stuck(engine.name_server, consumers, wait_s=45) as (_, came_at):
            await asyncio.sleep(OURS_WITHIN_S + 15)
    check(lake, came_at, OURS_WITHIN_S)
