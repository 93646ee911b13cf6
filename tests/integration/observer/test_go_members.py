"""The answers of rocketmq-client-go, recorded from the real client and played over real sockets:
what an observer makes of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from engine.protocol.bodies import TopicOffset
from engine.protocol.codes import RequestCode as Code
from engine.protocol.command import RemotingCommand
from engine.remoting import Peer
from tests.integration.broker.cluster import eventually
from tests.integration.observer.played_cluster import (
    BORN_MS,
    PlayedBroker,
    observing,
    ok,
    played_cluster,
)

ANSWERS: Final[dict[str, str]] = json.loads(
    (Path(__file__).parent / "go_answers.json").read_text(encoding="utf-8")
)
"""By when they were given: joined, idle, stuck, stuck_for_26_s."""
STUCK: Final = ("orders", 1)
Row = dict[str, Any]


class GoMember:
    """Says what the real client said last."""

    def __init__(self) -> None:
        self.says = "idle"

    def __call__(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        return ok(request, ANSWERS[self.says].encode())


async def test_a_go_member_says_which_message_it_holds_and_that_follows_the_mark(
    tmp_path: Path,
) -> None:
    """Its first commit comes when the message is stuck already: only then the queue is known."""
    broker, member = PlayedBroker("broker-a"), GoMember()
    broker.queues = {("orders", queue_id): TopicOffset(0, 1, BORN_MS) for queue_id in range(4)}
    broker.groups = {"g": {("orders", 0): 1}}
    broker.members = {"g": {"go": {}}}
    broker.answers[Code.GET_CONSUMER_RUNNING_INFO] = member
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):

        def rows(table: str) -> list[Row]:
            reported = cluster.reported(broker, table)
            return [row for row in reported if (row["topic"], row["queue_id"]) == STUCK]

        async def holds() -> bool:
            return any(row["held_count"] for row in rows("client_windows"))

        member.says = "stuck"
        await eventually(holds, "what it holds is reported")
        assert rows("group_watermarks") == [], "the broker knows no offset of it yet"
        broker.groups["g"][STUCK] = 0

        async def is_placed() -> bool:
            return bool(rows("group_watermarks")) and len(rows("client_windows")) == 2

        await eventually(is_placed, "what it holds is reported again, behind the first mark")
        first, window = rows("client_windows")
        assert first["held_count"] == 1
        assert (window["first_held"], window["last_held"], window["held_count"]) == (0, 0, 1)
        assert (window["client_id"], window["client_committed"]) == ("go", 0)
        assert (rows("group_watermarks")[-1]["committed"], window["dropped"]) == (0, False)


async def test_a_go_member_s_mean_time_of_pulls_is_not_taken_for_that_of_its_calls(
    tmp_path: Path,
) -> None:
    broker, member = PlayedBroker("broker-a"), GoMember()
    broker.members = {"g": {"go": {}}}
    broker.answers[Code.GET_CONSUMER_RUNNING_INFO] = member
    status = json.loads(ANSWERS["stuck_for_26_s"].split('"statusTable":')[1].split(',"subs')[0])
    assert status["orders"]["consumeRT"] == status["orders"]["pullRT"] == 9099
    member.says = "stuck_for_26_s"
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):

        async def is_reported() -> bool:
            return bool(cluster.reported(broker, "consume_stats"))

        await eventually(is_reported, "how it works")
        rows = cluster.reported(broker, "consume_stats")
    assert {row["consume_us_mean"] for row in rows} == {None}


async def test_a_go_member_that_broadcasts_answers_with_nothing_and_no_warning_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = PlayedBroker("broker-a")
    broker.members = {"g": {"go": {}}}
    broker.answers[Code.GET_CONSUMER_RUNNING_INFO] = lambda _peer, request: ok(request)
    async with played_cluster(tmp_path, broker) as cluster, observing(cluster):

        def said() -> list[Row]:
            reported = cluster.reported(broker, "lifecycle")
            return [row for row in reported if row["kind"] == "SAYS_NOTHING"]

        async def is_noted() -> bool:
            return bool(said())

        await eventually(is_noted, "that it says nothing is reported")
        asked = broker.asked[Code.GET_CONSUMER_RUNNING_INFO]

        async def is_asked_again() -> bool:
            return broker.asked[Code.GET_CONSUMER_RUNNING_INFO] > asked + 1

        await eventually(is_asked_again, "it goes on being asked")
        [row] = said()
    assert (row["group"], row["detail"]) == (
        "g",
        "a client in JAVA 1 says nothing of what it holds",
    )
    assert "what a member holds" not in caplog.text
