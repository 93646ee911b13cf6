"""Members of one group that are at odds, as whole clients: processes that share a client id,
consumers that read other topics or other tags than the rest; and what gold says of their queues.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from engine.admin import Admin
from engine.client.sending.queue_choice import select_by_index
from engine.protocol.message import Message
from engine.runtime import system_runtime
from tests.integration.broker.cluster import broker_config, cluster
from tests.integration.broker.spooled import spooled
from tests.integration.client.cluster_users import (
    Seen,
    client_config,
    consumer_config,
    consuming,
    eventually,
    producing,
)
from tests.integration.client.consuming_process import ConsumerProcess, Orders
from tests.pipelines.gold_lake import gold, present
from tests.pipelines.live_play import SAMPLES, shipped

pytestmark = pytest.mark.timeout(180)
REPORTS: Final = {"persist_first_ms": 500, "persist_ms": 500}


async def topics(running: Any, **queues: int) -> None:
    """Topics by name, with so many queues."""
    async with Admin(system_runtime(), client_config(running.name_server_address)) as admin:
        for topic, count in queues.items():
            await admin.topics.create(
                running.broker.address, topic, read_queues=count, write_queues=count
            )

            async def is_known(topic: str = topic) -> bool:
                return await admin.topics.route(topic) is not None

            await eventually(is_known, f"a route of {topic}")


async def send(running: Any, topic: str, each: int, queues: int, tags: Sequence[str] = ()) -> None:
    """So many messages into each queue; the n-th of all has the n-th of the tags in turn."""
    async with producing(running.name_server_address, f"p-{topic}") as producer:
        for number in range(each * queues):
            message = Message(topic, str(number).encode())
            if tags:
                message.tags = tags[number % len(tags)]
            await producer.send(message, selector=select_by_index, argument=number // each)


QUEUES: Final = 12
EACH: Final = 5
"""Messages in each queue."""


async def shared_id(folder: Path) -> list[set[tuple[int, int]]]:
    """Three processes of one group, of which two bear one client id: what each has taken, as queue
    and offset.
    """
    async with cluster(broker_config(folder, **SAMPLES)) as running:
        await topics(running, orders=QUEUES)
        names, processes = running.name_server_address, list[ConsumerProcess]()
        try:
            for instance in ("same", "same", "other"):
                orders = Orders(names, "g", "orders", instance=instance, settings=REPORTS)
                processes.append(await ConsumerProcess.start(orders))
            own, other = processes[0].client_id, processes[2].client_id

            async def is_settled() -> bool:
                reported = spooled(folder / "store", "rebalance_events")
                moved = [row for row in reported if row["kind"] == "ASSIGNED"]
                now = {queue[1]: row["client_id"] for row in moved for queue in row["queues"]}
                return Counter(now.values()) == {own: QUEUES // 2, other: QUEUES // 2}

            await eventually(is_settled, "the queues are divided between two ids")
            await asyncio.sleep(4)  # Several rebalances: the other process of that id follows.
            await send(running, "orders", EACH, QUEUES)
            for process in processes:
                await process.took(EACH * QUEUES // 2)
            await asyncio.sleep(3)  # Both processes report, too.
        finally:
            for process in processes:
                await process.kill()
        await asyncio.sleep(1)
    return [{(one["queue_id"], one["offset"]) for one in process.taken} for process in processes]


def test_two_processes_under_one_id_are_named_with_addresses_and_the_queues_that_both_read(
    tmp_path: Path,
) -> None:
    """Twelve queues among three processes: each half has readers by id, so none is without."""
    first, second, third = asyncio.run(shared_id(tmp_path))
    lake = shipped(tmp_path / "store", tmp_path / "lake")

    shared = [row for row in gold(lake, "rebalances", group="g") if "SHARED" in row["kind"]]
    assert {(row["kind"], row["client_id"]) for row in shared} == {
        ("CLIENT_ID_SHARED", "127.0.0.1@same")
    }
    for row in shared:
        addresses = re.findall(r"127\.0\.0\.1:\d+", row["reason"])
        assert len(set(addresses)) == 2, row["reason"]

    both = first & second
    doubly_read = {queue for queue, _ in both}
    assert (len(doubly_read), len(both)) == (QUEUES // 2, EACH * QUEUES // 2)
    assert doubly_read.isdisjoint(queue for queue, _ in third)
    assert len(both | third) == EACH * QUEUES, "no queue is without a reader"
    again = [
        row
        for row in present(lake, "duplicate_risk_windows", group="g", basis="REDELIVERY")
        if (row["redelivered_from"], row["redelivered_to"]) == (0, EACH)
    ]
    assert {row["queue_id"] for row in again} == doubly_read, "each of its messages came again"
    assert {(row["client_id"], row["outcome"]) for row in again} == {
        ("127.0.0.1@same", "CONFIRMED")
    }

    lag = {row["queue_id"]: row["lag_messages"] for row in gold(lake, "consumer_lag", group="g")}
    assert lag == dict.fromkeys(range(QUEUES), 0), "which is why no lag shows it"


async def members(folder: Path, reads: Mapping[str, tuple[str, str]], **sent: Any) -> list[Seen]:
    """Two members of group g, by instance name, of which each reads a topic by an expression; what
    they took of what was sent.
    """
    seen = [Seen(), Seen()]
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(cluster(broker_config(folder, **SAMPLES)))
        names = running.name_server_address
        await topics(running, **dict.fromkeys((topic for topic, _ in reads.values()), 4))
        for listener, (instance, (topic, expression)) in zip(seen, reads.items(), strict=True):
            client = client_config(names, instance_name=instance, heartbeat_ms=1000)
            config = consumer_config(**REPORTS, rebalance_ms=500)
            member = consuming(
                *(names, "g", {topic: listener}),
                expression=expression,
                config=config,
                client=client,
            )
            await stack.enter_async_context(member)
        await asyncio.sleep(2)
        for topic in dict.fromkeys(topic for topic, _ in reads.values()):
            await send(running, topic, **sent)
        await asyncio.sleep(8)
    return seen


def test_members_that_read_different_topics_are_reported_with_how_many_queues_nobody_reads(
    tmp_path: Path,
) -> None:
    """Four and four queues, each member subscribes to half of what it is given queues of."""
    reads = {"one": ("ta", "*"), "two": ("tb", "*")}
    seen = asyncio.run(members(tmp_path, reads, each=EACH, queues=4))
    lake = shipped(tmp_path / "store", tmp_path / "lake")

    conflict, agreed = conflicts(lake)
    for said in (
        "127.0.0.1@one reads %RETRY%g:*, ta:*; 127.0.0.1@two reads %RETRY%g:*, tb:*; ",
        "pulls of ta and tb are refused in turn (SUBSCRIPTION_NOT_EXIST)",
        "are not read, about 2 of 4 of ta and about 2 of 4 of tb; fix: subscribe every member to",
    ):
        assert said in conflict["reason"]
    assert agreed["kind"] == "SUBSCRIPTION_AGREED"

    given = {"ta": {0, 1}, "tb": {2, 3}}
    for listener, (topic, queues) in zip(seen, given.items(), strict=True):
        assert {(one.topic, one.queue_id) for one in listener.messages} <= {
            (topic, queue) for queue in queues
        }
    known = {
        (row["topic"], row["queue_id"])
        for row in gold(lake, "consumer_lag", group="g")
        if row["committed"] is not None
    }
    assert known <= {(topic, queue) for topic, queues in given.items() for queue in queues}


def test_members_that_read_different_tags_are_reported_and_what_is_passed_over_is_no_lag(
    tmp_path: Path,
) -> None:
    """A hundred messages, half of them of each tag: at most half are taken, and no queue waits."""
    reads = {"one": ("ta", "A"), "two": ("ta", "B")}
    seen = asyncio.run(members(tmp_path, reads, each=25, queues=4, tags=("A", "B")))
    lake = shipped(tmp_path / "store", tmp_path / "lake")

    conflict, agreed = conflicts(lake)
    for said in (
        "127.0.0.1@one reads %RETRY%g:*, ta:A; 127.0.0.1@two reads %RETRY%g:*, ta:B; ",
        "what the others want is passed over on every queue, while offsets go on; ",
        "fix: give every member the same expression",
    ):
        assert said in conflict["reason"]
    assert agreed["kind"] == "SUBSCRIPTION_AGREED"

    for listener, tag in zip(seen, ("A", "B"), strict=True):
        assert {one.tags for one in listener.messages} <= {tag}
    taken = sum(len(listener.messages) for listener in seen)
    assert 0 < taken <= 50, "of 100"
    ends = {row["queue_id"]: row for row in gold(lake, "consumer_lag", group="g", topic="ta")}
    assert [ends[queue]["max_offset"] for queue in range(4)] == [25] * 4
    assert sum(row["lag_messages"] for row in ends.values()) <= 2, "those at the very end"
    assert present(lake, "stalled_windows", group="g") == []


def conflicts(lake: Path) -> list[dict[str, Any]]:
    rows = gold(lake, "rebalances", group="g")
    return [row for row in rows if row["kind"].startswith("SUBSCRIPTION_") and row["reason"]]


async def filtered(folder: Path) -> Seen:
    """A member that wants one tag; while it is away, ten times as much comes of another one."""
    seen = Seen()
    async with cluster(broker_config(folder, **SAMPLES)) as running:
        await topics(running, ta=1)
        names = running.name_server_address
        for each, tags in ((EACH, ("A",)), (33, ("B",) * 10 + ("A",))):
            await send(running, "ta", each, 1, tags)
            wanted = len(seen.messages) + (EACH if len(tags) == 1 else 3)
            await asyncio.sleep(2)
            async with consuming(
                *(names, "g", {"ta": seen}), expression="A", config=consumer_config(**REPORTS)
            ):
                await eventually(lambda wanted=wanted: len(seen.messages) == wanted, "all A")
                await asyncio.sleep(2)
    return seen


def test_what_a_tag_filter_leaves_out_is_lag_until_it_is_passed_and_nothing_behind_it(
    tmp_path: Path,
) -> None:
    seen = asyncio.run(filtered(tmp_path))
    assert Counter(one.tags for one in seen.messages) == {"A": EACH + 3}
    lake = shipped(tmp_path / "store", tmp_path / "lake")
    lag = gold(lake, "consumer_lag", group="g", topic="ta")
    known = [row["lag_messages"] for row in lag if row["committed"] is not None]
    assert max(known) == 33, "all that waits, of which the filter wants three"
    assert (known[-1], lag[-1]["committed"]) == (0, EACH + 33)
    assert gold(lake, "offset_violations", group="g") == []
    states = {row["state"] for row in present(lake, "stalled_windows", group="g")}
    assert "OPEN" not in states
