"""How soon a Go client whose listener never returns is found, on RocketMQ and on ours.

The Apache RocketMQ is observed each ten seconds.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from dashboards.page_context import PageContext
from dashboards.pages import group as group_page
from dashboards.reads.lake_data import LakeData
from engine.client import Producer
from engine.protocol.message import Message
from pipelines import tm
from pipelines.base.settings import Evaluation
from pipelines.lake.lake import Lake
from tests.integration.client.cluster_users import eventually, producing
from tests.interop.java_clients import JavaChecks
from tests.interop.ledger_consumers import Consumers, LedgerConsumer
from tests.interop.our_engine import our_engine
from tests.interop.real_rocketmq import RealRocketMQ
from tests.interop.test_observed_rocketmq import _sent, observer
from tests.pipelines.gold_lake import compute
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
async def test_a_go_member_that_broadcasts_is_noted_once_and_no_warning_is_logged(
    apache_rocketmq: RealRocketMQ, java_checks: JavaChecks, tmp_path: Path
) -> None:
    """Go's client answers the question for its windows with an empty body where it broadcasts."""
    consumers, group, topic = at_hand(java_checks, tmp_path), "go-all", "go-news"
    if consumers is None:
        return
    server, lake = apache_rocketmq.name_server, tmp_path / "lake"
    async with AsyncExitStack() as stack:
        stack.enter_context(observer(apache_rocketmq, tmp_path))
        producer = await stack.enter_async_context(producing(server, "go-news-producer"))
        await eventually(lambda: _sent(producer, topic), "the topic is made", within_s=60)
        made = consumers.made("go", server, group, topic, orderly=False, policy="FIRST")
        made.command[made.command.index("concurrently")] = "broadcasting"
        member = stack.enter_context(go_member(made))
        await eventually(member.is_ready, f"{group} is there", within_s=60)
        for _ in range(20):
            await producer.send(Message(topic, b"news"))
            await asyncio.sleep(1)
        assert list(made.delivered())
    noted = [row for row in bronze_of(lake)["lifecycle"].to_pylist() if row["group"] == group]
    said = [row["detail"] for row in noted if row["kind"] == "SAYS_NOTHING"]
    assert len(said) == 1
    assert said[0].startswith("a client in GO "), said
    assert "says nothing of what it holds" in said[0]
    log = (tmp_path / "observer.log").read_text()
    assert "Traceback" not in log
    assert "what a member holds" not in log
    states = run(JUDGES, bronze_of(lake), Evaluation())["group_state"]
    assert {row["state"] for row in states if row["group"] == group} <= {"BROADCAST", "UNKNOWN"}
    compute(lake)
    check_shown(lake, group)


def check_shown(lake: Path, group: str) -> None:
    """The emitters' table and the group's page say it."""
    said = tm.connect(str(lake)).emitters()
    assert "says nothing of what it holds" in said.rows.write_json()
    context = PageContext(LakeData(Lake.at(str(lake))), lambda: datetime.now(UTC))
    shown = group_page.content(context, group, "", "light")
    assert "says nothing of what it holds" in json.dumps(shown, default=as_json)


def as_json(one: object) -> object:
    """A component of a page, or what has no other form than its text."""
    made = getattr(one, "to_plotly_json", None)
    return made() if made is not None else str(one)


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
