"""Foreign consumers get every message of a topic that was deleted and recreated.

They do whether they keep running or come back, and nobody sees a negative lag.

Rows C1, B1.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interop.java_clients import JavaChecks
from tests.interop.ledger_consumers import CLIENTS, POLLERS, Consumers
from tests.interop.new_lives import (
    Cell,
    Outcome,
    matrix,
    play_at_once,
    play_over_restarts,
    table,
)
from tests.pipelines.gold_lake import gold
from tests.pipelines.live_play import shipped

LIVES = int(os.environ.get("TIDEMARK_LIVES", "10"))
"""How often the slow stories make a topic again."""
WHOLE_RUN_S = 240 + 130 * LIVES


@pytest.fixture
def consumers(java_checks: JavaChecks, tmp_path: Path) -> Consumers:
    """Every client that this machine can have."""
    return Consumers(java_checks, tmp_path / "consumers")


def at_hand(consumers: Consumers, clients: Sequence[str]) -> list[str]:
    """These of `clients`, Java's always; why one is missing is printed."""
    missing = {client: why for client in clients if (why := consumers.why_not(client))}
    print(*missing.values(), sep="\n")  # noqa: T201 - for whoever runs this with -s.
    return [client for client in clients if client not in missing]


def assert_that_all_arrived(outcomes: list[Outcome]) -> None:
    print(table(outcomes))  # noqa: T201 - the figures, for whoever runs this with -s.
    assert not sum(outcome.lost for outcome in outcomes), f"messages are lost:\n{table(outcomes)}"
    assert not any(outcome.negative for outcome in outcomes), f"negative lag:\n{table(outcomes)}"
    assert not any(outcome.unrouted for outcome in outcomes), f"no route:\n{table(outcomes)}"


def assert_that_gold_says_so(work: Path, made_again: int) -> None:
    """Of the spool of the broker whose files are in `work`: so many lives, all of each is read."""
    lake = shipped(work / "store", work / "lake")
    assert len(gold(lake, "topic_lives")) == made_again
    rows = gold(lake, "passed_over_messages")
    assert {(row["outcome"], row["messages"]) for row in rows} == {("READ", 0)}, rows
    topics = Counter((row["topic"], row["made_again_at"]) for row in rows)
    assert len(topics) == made_again, topics


@pytest.mark.timeout(120)
async def test_a_running_java_consumer_gets_every_message_of_a_topic_made_again(
    consumers: Consumers, tmp_path: Path
) -> None:
    outcomes = await play_at_once(
        [Cell("java")], consumers, tmp_path / "engine", lives=2, within_s=20
    )
    assert_that_all_arrived(outcomes)
    assert_that_gold_says_so(tmp_path / "engine", made_again=2)


@pytest.mark.slow
@pytest.mark.timeout(WHOLE_RUN_S)
@pytest.mark.parametrize("away", [False, True], ids=["running", "away"])
@pytest.mark.parametrize("auto_create", [False, True], ids=["made", "auto"])
async def test_every_client_gets_every_message_of_a_topic_made_again(
    consumers: Consumers, tmp_path: Path, *, auto_create: bool, away: bool
) -> None:
    clients = at_hand(consumers, CLIENTS)
    cells = matrix(clients, auto_create=auto_create, away=away)
    outcomes = await play_at_once(cells, consumers, tmp_path / "engine", lives=LIVES)
    assert_that_all_arrived(outcomes)
    assert_that_gold_says_so(tmp_path / "engine", made_again=LIVES * len(cells))


@pytest.mark.slow
@pytest.mark.timeout(WHOLE_RUN_S)
async def test_whoever_begins_at_the_beginning_gets_every_message_of_a_topic_made_again(
    consumers: Consumers, tmp_path: Path
) -> None:
    clients = at_hand(consumers, ("java", "java 4.9.7", "go"))
    cells = [
        Cell(client, orderly, away=away, policy="FIRST")
        for client in clients
        for orderly in (False, True)
        for away in (False, True)
    ]
    outcomes = await play_at_once(cells, consumers, tmp_path / "engine", lives=LIVES)
    assert_that_all_arrived(outcomes)


@pytest.mark.slow
@pytest.mark.timeout(WHOLE_RUN_S)
@pytest.mark.parametrize("change", ["other queues", "group made again", "queues given back"])
async def test_running_clients_miss_nothing_over_other_beginnings(
    consumers: Consumers, tmp_path: Path, change: str
) -> None:
    clients = at_hand(consumers, CLIENTS)
    if {"java", "go"} <= set(clients):
        clients.append("java and go")  # Members of one group.
    cells = [
        Cell(client, orderly, queues=4, change=change, fails=not orderly and client != "c++")
        for client in clients
        for orderly in (False, True)
    ]
    outcomes = await play_at_once(cells, consumers, tmp_path / "engine", lives=LIVES)
    assert_that_all_arrived(outcomes)


@pytest.mark.slow
@pytest.mark.timeout(WHOLE_RUN_S)
async def test_a_deleted_group_that_comes_back_begins_at_the_beginning(
    consumers: Consumers, tmp_path: Path
) -> None:
    cells = [
        Cell(client, orderly, away=True, policy="FIRST", change="group made again")
        for client in at_hand(consumers, ("java", "java 4.9.7", "go"))
        for orderly in (False, True)
    ]
    outcomes = await play_at_once(cells, consumers, tmp_path / "engine", lives=LIVES)
    assert_that_all_arrived(outcomes)


@pytest.mark.slow
@pytest.mark.timeout(WHOLE_RUN_S)
@pytest.mark.parametrize("change", ["store emptied", "restarted"])
async def test_running_clients_miss_nothing_when_the_broker_was_killed_meanwhile(
    consumers: Consumers, tmp_path: Path, change: str
) -> None:
    cells = [
        Cell(client, orderly, queues, change=change)
        for client in at_hand(consumers, CLIENTS)
        for orderly in (False, True)
        for queues in (1, 4)
    ]
    outcomes = await play_over_restarts(cells, consumers, tmp_path / "engine", lives=LIVES)
    assert_that_all_arrived(outcomes)


@pytest.mark.slow
@pytest.mark.timeout(WHOLE_RUN_S)
@pytest.mark.parametrize("away", [False, True], ids=["running", "away"])
async def test_whoever_polls_gets_every_message_of_a_topic_made_again(
    consumers: Consumers, tmp_path: Path, *, away: bool
) -> None:
    """With the offsets of its group, and with offsets that only it knows."""
    cells = [Cell(client, queues=queues, away=away) for client in POLLERS for queues in (1, 4)]
    outcomes = await play_at_once(cells, consumers, tmp_path / "engine", lives=LIVES)
    assert_that_all_arrived(outcomes)


@pytest.mark.slow
@pytest.mark.timeout(WHOLE_RUN_S)
@pytest.mark.parametrize("away", [False, True], ids=["running", "away"])
@pytest.mark.parametrize("change", ["store emptied", "restarted"])
async def test_whoever_polls_misses_nothing_when_the_broker_was_killed_meanwhile(
    consumers: Consumers, tmp_path: Path, change: str, *, away: bool
) -> None:
    cells = [
        Cell(client, queues=queues, away=away, change=change)
        for client in POLLERS
        for queues in (1, 4)
    ]
    outcomes = await play_over_restarts(cells, consumers, tmp_path / "engine", lives=LIVES)
    assert_that_all_arrived(outcomes)
