"""Known incidents, played with a live broker over sockets, and what gold calls each of them.

Every group has an incident of its own, or is a control that must stay silent; docs/incidents.md
lists all of them with where each is found.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.client import ConsumeConcurrentlyStatus, ConsumeContext
from engine.protocol.codes import RequestCode
from engine.protocol.message import MessageExt
from pipelines import tm
from tests.integration.broker.cluster import RawClient, broker_config, cluster, eventually, messages
from tests.integration.broker.power_cut import after_the_cut, before_the_cut
from tests.integration.broker.spooled import spooled
from tests.integration.client.cluster_users import consuming
from tests.pipelines.gold_lake import gold, present
from tests.pipelines.live_play import SAMPLES, shipped

pytestmark = pytest.mark.timeout(120)
SENT = 30
"""Messages of each topic, in its one queue."""
PLAY_S = 12.0
"""Beyond the ten seconds by which retries are counted, whenever the play begins."""


class Stuck:
    """A listener that never returns from one message, and takes all others."""

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.let_go = asyncio.Event()

    async def __call__(
        self, taken: Sequence[MessageExt], _context: ConsumeContext
    ) -> ConsumeConcurrentlyStatus:
        """See `MessageListener`."""
        if taken[0].queue_offset == self.offset:
            await self.let_go.wait()
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


class Play:
    """The clients of one run, each named after its part."""

    def __init__(self, running: Any) -> None:
        self.running = running

    async def member(self, name: str, *, client_id: str | None = None) -> RawClient:
        """A member of group g-NAME that reads topic t-NAME."""
        client: RawClient = self.running.client(client_id or f"{name}@1")
        await client.heartbeat(f"g-{name}", (f"t-{name}",))
        return client

    async def topic(self, name: str, count: int = SENT) -> None:
        """t-NAME with one queue and so many messages."""
        client = self.running.client(f"p-{name}")
        await client.make_topic(f"t-{name}")
        for _ in range(count):
            await client.send(topic=f"t-{name}")


def place(name: str) -> dict[str, Any]:
    """Topic and group of a part."""
    return {"topic": f"t-{name}", "group": f"g-{name}"}


async def dead_queue(play: Play) -> None:
    """Five are consumed, then nobody asks for more, though the client lives."""
    client = await play.member("dead")
    await client.pull(0, **place("dead"), maxMsgNums=5)
    await client.commit(5, **place("dead"))


async def ghost(play: Play) -> None:
    """Two clients commit to one queue, each where it is."""
    owner = await play.member("ghost")
    dead = await play.member("ghost", client_id="ghost@0")
    for owners, old in ((20, 4), (22, 5), (24, 6)):
        await owner.commit(owners, **place("ghost"))
        await dead.commit(old, **place("ghost"))


async def one_id(play: Play) -> None:
    """Two processes, one client id."""
    first = await play.member("oneid")
    second = await play.member("oneid")
    for client in (first, second, first):
        await client.heartbeat("g-oneid", ("t-oneid",))


async def reconnected(play: Play) -> None:
    """Control: one process that connects anew."""
    first = await play.member("anew")
    await first.close()
    again = await play.member("anew")
    await again.heartbeat("g-anew", ("t-anew",))
    await again.commit(SENT, **place("anew"))


async def two_minds(play: Play) -> None:
    """Members of one group subscribe to different topics."""
    await play.member("minds")
    other = play.running.client("minds@2")
    await other.heartbeat("g-minds", ("t-else",))


async def overflow(play: Play) -> None:
    """A consume offset beyond the end of the queue: no report gets there, but a table of a broker
    of RocketMQ may have it, which stores what it hears.
    """
    client = await play.member("over")
    await client.commit(SENT, **place("over"))
    state, key = play.running.broker.state, ("g-over", "t-over", 0)
    previous = state.offsets.place(*key, SENT + 70)
    play.running.broker.services.offsets.facts.emit(key, SENT + 70, previous, path="COMMIT_RPC")


async def to_the_beginning(play: Play) -> None:
    """A client goes back to 0, and nobody has reset it."""
    client = await play.member("begin")
    await client.commit(25, **place("begin"))
    await asyncio.sleep(1)
    await client.commit(0, **place("begin"))


async def never_read(play: Play) -> None:
    """A failed message comes to a queue of the retry topic that nobody reads any more."""
    client = await play.member("leak")
    await client.heartbeat("g-leak", ("t-leak", "%RETRY%g-leak"))
    (message, *_) = messages(await client.pull(0, **place("leak"), maxMsgNums=1))
    await client.commit(SENT, **place("leak"))
    await client.ask(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        offset=message.physical_offset,
        group="g-leak",
        delayLevel=1,
        originTopic="t-leak",
        originMsgId=message.message_id,
    )
    await client.commit(0, topic="%RETRY%g-leak", group="g-leak")


async def in_batches(play: Play) -> None:
    """Control: three messages each second, of thirty that wait."""
    client = await play.member("batch")
    for offset in range(0, 28, 3):
        await client.pull(offset, **place("batch"), maxMsgNums=3)
        await client.commit(offset + 3, **place("batch"))
        await asyncio.sleep(0.8)


async def nothing_there(play: Play) -> None:
    """Control: a member of a topic without messages."""
    client = await play.member("empty")
    await client.commit(0, **place("empty"))
    await client.pull(0, **place("empty"))


PARTS = (
    *(dead_queue, ghost, one_id, reconnected, two_minds, overflow, to_the_beginning),
    *(never_read, in_batches, nothing_there),
)
TOPICS = ("frozen", "dead", "ghost", "oneid", "anew", "minds", "over", "begin", "leak", "batch")


async def everything(folder: Path) -> None:
    """All parts at the same time, and a real consumer whose listener hangs."""
    stuck = Stuck(3)
    async with cluster(broker_config(folder, **SAMPLES)) as running:
        play = Play(running)
        ends_s = time.monotonic() + PLAY_S
        for name in TOPICS:
            await play.topic(name)
        await play.topic("empty", 0)
        async with consuming(running.name_server_address, "g-frozen", {"t-frozen": stuck}):
            async with asyncio.TaskGroup() as state:
                for part in PARTS:
                    state.create_task(part(play))
            await asyncio.sleep(max(0.0, ends_s - time.monotonic()))
            stuck.let_go.set()


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake of the play."""
    folder = tmp_path_factory.mktemp("incidents")
    asyncio.run(everything(folder))
    return shipped(folder / "store", folder / "lake")


def test_a_frozen_head_is_named_with_its_risk_while_later_messages_go_on(played: Path) -> None:
    [window] = present(played, "stalled_windows", group="g-frozen")
    assert (window["topic"], window["queue_id"], window["kind"]) == ("t-frozen", 0, "FROZEN_HEAD")
    assert window["head_message_id"] is not None
    risks = [
        row
        for row in gold(played, "duplicate_risk_windows", group="g-frozen", basis="EXPOSURE")
        if row["at_risk_messages"]
    ]
    assert risks, "the exposure is shown"
    assert {(row["from_offset"], row["to_offset"]) for row in risks} == {(3, SENT)}
    assert {row["at_risk_messages"] for row in risks} == {SENT - 3}


def test_a_queue_that_nobody_pulls_though_its_client_lives_is_dead(played: Path) -> None:
    kinds = {row["kind"] for row in gold(played, "stalled_windows", group="g-dead")}
    assert "DEAD_QUEUE" in kinds
    [lag] = {row["lag_messages"] for row in gold(played, "consumer_lag", group="g-dead")[-1:]}
    assert lag == SENT - 5


def test_a_ghost_that_commits_old_offsets_is_reported_with_both_names_and_the_range(
    played: Path,
) -> None:
    rows = gold(played, "offset_violations", group="g-ghost", cause="TWO_WRITERS")
    assert [(row["client_id"], row["other_client_id"]) for row in rows] == [
        ("ghost@0", "ghost@1")
    ] * 3
    assert [row["delta"] for row in rows] == [20 - 4, 22 - 5, 24 - 6]
    assert not any(row["explained"] for row in rows)


def test_one_client_id_of_two_processes_is_reported_with_both_addresses(played: Path) -> None:
    [row] = gold(played, "rebalances", group="g-oneid", kind="CLIENT_ID_SHARED")
    assert row["client_id"] == "oneid@1"
    assert row["reason"].count("127.0.0.1:") == 2
    assert gold(played, "rebalances", group="g-anew", kind="CLIENT_ID_SHARED") == []


def test_members_that_subscribe_differently_are_reported_with_their_topics(played: Path) -> None:
    row = gold(played, "rebalances", group="g-minds", kind="SUBSCRIPTION_CONFLICT")[0]
    assert "t-minds" in row["reason"]
    assert "t-else" in row["reason"]


def test_an_offset_beyond_the_end_is_a_broken_law_and_no_lag_of_zero(played: Path) -> None:
    [row] = gold(played, "offset_violations", group="g-over")
    assert (row["law"], row["delta"], row["max_offset"]) == ("AT_MOST_MAX", 70, SENT)
    last = gold(played, "consumer_lag", group="g-over")[-1]
    assert (last["lag_messages"], last["unknown_reason"]) == (None, "BEYOND_END")
    assert last["committed"] - last["max_offset"] == 70
    assert "DATA_LOST" in {row["state"] for row in gold(played, "group_state", group="g-over")}


def test_a_fall_to_the_beginning_without_a_reset_is_unexplained(played: Path) -> None:
    [row] = gold(played, "offset_violations", group="g-begin")
    assert (row["law"], row["offset"], row["previous_offset"]) == ("MONOTONIC", 0, 25)
    assert (row["cause"], row["explained"], row["client_id"]) == ("UNEXPLAINED", False, "begin@1")
    [risk] = present(played, "duplicate_risk_windows", group="g-begin", basis="OFFSET_FALL")
    assert (risk["cause"], risk["from_offset"], risk["to_offset"]) == ("REWIND", 0, 25)


def test_a_retried_message_that_nobody_reads_is_found_in_its_retry_queue(played: Path) -> None:
    rows = gold(played, "consumer_lag", group="g-leak", topic="%RETRY%g-leak")
    assert (rows[-1]["max_offset"], rows[-1]["lag_messages"]) == (1, 1)
    assert (rows[-1]["queue_id"], rows[-1]["last_puller"]) == (0, None)
    [*_, level] = gold(played, "delayed_retries", group="g-leak")
    assert (level["scheduled"], level["released"], level["overdue"]) == (1, 1, 0)


@pytest.mark.parametrize("group", ["g-batch", "g-empty", "g-anew"])
def test_what_is_no_incident_stays_silent(played: Path, group: str) -> None:
    assert present(played, "stalled_windows", group=group) == []
    assert gold(played, "offset_violations", group=group) == []
    assert {row["kind"] for row in gold(played, "rebalances", group=group)} <= {
        *("JOINED", "LEFT", "SUBSCRIPTION_CHANGED"),
    }


async def consumed(running: Any, name: str, offset: int) -> None:
    """The group has pulled and committed up to an offset."""
    client = await Play(running).member(name)
    found = await client.committed(**place(name))
    begin = int(found.fields.get("offset", 0)) if found.code == 0 else 0
    await client.pull(begin, **place(name))
    await client.commit(offset, **place(name))


NAMES = ("a", "b")
"""Two groups, to distinguish what befalls a whole broker from what befalls a queue."""


async def lives(folder: Path) -> None:
    """Four lives: offsets 10, then 25; the file of 10 comes back; then it is gone."""
    config, offsets = broker_config(folder, **SAMPLES), folder / "store" / "config"
    async with cluster(config) as running:
        for name in NAMES:
            await Play(running).topic(name)
            await consumed(running, name, 10)
    shutil.copytree(offsets, folder / "kept")
    async with cluster(config) as running:
        for name in NAMES:
            await consumed(running, name, 25)
    for kept in (folder / "kept").glob("consumerOffset.json*"):
        shutil.copy(kept, offsets / kept.name)
    async with cluster(config) as running:
        for name in NAMES:
            await consumed(running, name, 26)
        await asyncio.sleep(1)
    for file in offsets.glob("consumerOffset.json*"):
        file.unlink()
    async with cluster(config) as running:
        for name in NAMES:
            await consumed(running, name, 27)
        await asyncio.sleep(1)


@pytest.fixture(scope="module")
def outlived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake of the four lives."""
    folder = tmp_path_factory.mktemp("lives")
    asyncio.run(lives(folder))
    return shipped(folder / "store", folder / "lake")


def test_an_old_offset_table_takes_every_group_of_the_broker_back(outlived: Path) -> None:
    """Pulled again is exactly what lies above the offsets of the old table, in every group."""
    for name in NAMES:
        windows = present(outlived, "duplicate_risk_windows", group=f"g-{name}")
        last = [row for row in windows if row["redelivered_from"] == 10][-1]
        assert (last["outcome"], last["redelivered_to"]) == ("CONFIRMED", SENT)
        assert last["redelivered_messages"] == SENT - 10


def test_what_takes_all_groups_back_is_one_finding_of_the_broker(outlived: Path) -> None:
    """Not a window a queue: one row, from which every group is reached."""
    lake = tm.connect(outlived)
    old, lost = lake.rollbacks().rows.to_dicts()
    assert [one["group_names"] for one in (old, lost)] == [["g-a", "g-b"]] * 2
    assert [one["redelivered_messages"] for one in (old, lost)] == [2 * (SENT - 10), 2 * SENT]
    assert lost["causes"] == ["OFFSET_STORE_LOST"]
    said = "Broker broker-a went back on 2 queues of 2 groups at"
    assert lake.rollbacks().verdict.count(said) == 2
    assert lake.duplicates().verdict.startswith(said)


def test_a_lost_offsets_file_is_named_as_the_cause_in_every_group(outlived: Path) -> None:
    for name in NAMES:
        windows = present(outlived, "duplicate_risk_windows", group=f"g-{name}")
        [lost] = [row for row in windows if row["cause"] == "OFFSET_STORE_LOST"]
        assert (lost["basis"], lost["outcome"]) == ("RESTART", "CONFIRMED")
        assert (lost["redelivered_from"], lost["redelivered_to"]) == (0, SENT)
        assert "offsets file" in lost["evidence"]


async def offsets_twice(folder: Path) -> None:
    """Two messages are pulled that a power cut takes, and others get their offsets. A commit would
    have had the log synced before it was on disk.
    """
    config = broker_config(folder, **SAMPLES)
    async with before_the_cut(config) as (running, cut):
        member = await Play(running).member("twice")
        await Play(running).topic("twice", 3)
        await member.pull(0, **place("twice"))
        cut.log_is_synced_up_to_here()
        for name in ("OLD-3", "OLD-4"):
            await member.send(topic="t-twice", UNIQ_KEY=name)
        await member.pull(3, **place("twice"))
        await cut.spool_is_synced_up_to_here(("t-twice", 4))
    left = after_the_cut(config)
    async with cluster(left) as running:
        member = await Play(running).member("twice")
        for name in ("NEW-3", "NEW-4"):
            await member.send(topic="t-twice", UNIQ_KEY=name)
        await member.pull(3, **place("twice"))

        async def is_reported() -> bool:
            return bool(spooled(folder / "left", "reused_offsets"))

        await eventually(is_reported, "the reused offset is reported")


def test_both_messages_of_an_offset_that_is_used_again_are_named(tmp_path: Path) -> None:
    asyncio.run(offsets_twice(tmp_path))
    lake = shipped(tmp_path / "left", tmp_path / "lake")

    [row] = gold(lake, "replaced_messages", group="g-twice")
    assert (row["message_id_before"], row["message_id"]) == ("OLD-4", "NEW-4")
    assert (row["offset"], row["reused_offsets"], row["outcome"]) == (4, 2, "LOST")
    said = "Group g-twice had pulled message OLD-4 at offset 4 of queue 0 of t-twice on"
    asked = tm.connect(lake)
    assert asked.replaced("g-twice").verdict.startswith(said)
    for name in ("OLD-4", "NEW-4"):
        assert f"lost: {said}" in asked.message(name).rows["what"][-1]
