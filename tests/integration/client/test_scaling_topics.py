"""Row C1: queues of a topic are taken away in two steps, added at once, and nothing is lost sight
of; through processes and a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from typer.testing import CliRunner

from engine.admin import Admin
from engine.admin.api.topic_scaling import Stranded, stranded_of
from engine.protocol.codes import ResponseCode
from engine.protocol.message import MessageExt, MessageQueue
from engine.runtime import system_runtime
from engine.store import FlushDiskType
from tests.integration.broker.cluster import RawClient, broker_config, cluster
from tests.integration.broker.processes import TIDEMARK, party, talk
from tests.integration.broker.spooled import spooled
from tests.integration.client.cluster_users import (
    SUCCESS,
    client_config,
    consuming,
    eventually,
    producing,
    text,
)
from tidemark import app

TOPIC = "Scaled"
SMALL = ("--set", "mappedFileSizeCommitLog=1048576", "--set", "maxIndexNum=1000")


@dataclass
class Listener:
    """Remembers where each message came from."""

    seen: list[tuple[int, bytes]] = field(default_factory=list)

    def __call__(self, messages: list[MessageExt], context: object) -> object:
        self.seen += [(message.queue_id, message.body) for message in messages]
        return SUCCESS


@dataclass
class Command:
    """`tidemark admin ...` under way."""

    process: asyncio.subprocess.Process

    async def ended(self) -> tuple[int | None, str, str]:
        said, complained = await self.process.communicate()
        return self.process.returncode, said.decode(), complained.decode()


@asynccontextmanager
async def begun(names: str, *words: str) -> AsyncIterator[Command]:
    command = [TIDEMARK, "admin", *words, "--namesrv", names]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield Command(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def run(names: str, *words: str) -> tuple[int, str, str]:
    """The command in a thread of this process, which is quicker than in a process of its own."""
    invoke = partial(CliRunner().invoke, app, ["admin", *words, "--namesrv", names])
    done = await asyncio.to_thread(invoke)
    return done.exit_code, done.stdout, done.stderr


async def make_topic(admin: Admin, broker: str, queues: int) -> None:
    await admin.topics.create(broker, TOPIC, read_queues=queues, write_queues=queues)

    async def known() -> bool:
        return await admin.topics.route(TOPIC) is not None

    await eventually(known, "a route")


async def numbers(admin: Admin) -> tuple[int, int]:
    """(read, write) queues of the topic."""
    config = (await admin.topics.configs(TOPIC))["broker-a"]
    return config.read_queue_nums, config.write_queue_nums


async def scale_and_drain(names: str, broker: str) -> None:
    """One group has drained the queues that go, the other one has not yet."""
    client, ready, late = RawClient(broker), Listener(), Listener()
    async with Admin(system_runtime(), client_config(names)) as admin:
        await make_topic(admin, broker, 4)
        for queue_id in range(4):
            for number in range(2):
                await client.send(f"{queue_id}.{number}".encode(), topic=TOPIC, queue_id=queue_id)
            await client.commit(1, topic=TOPIC, group="late_c", queue_id=queue_id)
        async with consuming(names, "ready_c", {TOPIC: ready}):

            async def drained() -> bool:
                progress = await admin.groups.consume_stats("ready_c", TOPIC)
                return len(ready.seen) == 8 and {one.lag for one in progress.values()} == {0}

            await eventually(drained, "one group has read and reported all")
            code, said, complained = await run(
                names, "topic", "shrink", TOPIC, "--queues", "2", "--now"
            )
            assert (code, said) == (1, "")
            assert "group late_c: 1 messages of broker-a queue 2" in complained
            assert "ready_c" not in complained
            assert await numbers(admin) == (4, 4)
            async with begun(
                *(names, "topic", "shrink", TOPIC, "--queues", "2"), "--settle", "0"
            ) as shrinking:

                async def first_step() -> bool:
                    route = await admin.topics.route(TOPIC)
                    assert route is not None
                    (queues,) = route.queue_datas
                    return (queues.read_queue_nums, queues.write_queue_nums) == (4, 2)

                await eventually(first_step, "fewer queues to write, all still readable")
                async with producing(names, "scaled_p") as producer:
                    sent = [await producer.send(text(TOPIC, f"new {n}")) for n in range(4)]
                assert {one.queue.queue_id for one in sent} == {0, 1}
                waits = shrinking.process.returncode is None and await numbers(admin) == (4, 2)
                assert waits, "for the late group"
                async with consuming(names, "late_c", {TOPIC: late}):
                    ended, said, complained = await shrinking.ended()
                    assert (ended, complained) == (0, "")
                    assert "broker-a: 4 → 2 queues" in said

                    async def all_seen() -> bool:
                        return len(ready.seen) == 12 and len(late.seen) == 8

                    await eventually(all_seen, "both groups have read every message they had to")
    assert max(late.seen) == (3, b"3.1"), "the last of the queues that went"
    await client.close()


def test_queues_go_only_when_every_group_has_drained_them(tmp_path: Path) -> None:
    async def after(client: RawClient) -> None:
        refused = await client.send(topic=TOPIC, queue_id=2)
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert (await client.send(topic=TOPIC, queue_id=1)).code == ResponseCode.SUCCESS
        pulled = await client.pull(0, topic=TOPIC, queue_id=2)
        assert pulled.code == ResponseCode.INVALID_PARAMETER

    log = tmp_path / "log"
    with party(log, "namesrv", "--port", "0") as names:
        options = ("broker", "--store", str(tmp_path / "store"), "--port", "0", *SMALL)
        with party(log, *options, "--namesrv", names.address) as broker:
            asyncio.run(scale_and_drain(names.address, broker.address))
            broker.kill()
        with party(log, *options, "--namesrv", names.address) as broker:
            talk(broker.address, after)


async def test_forced_it_says_what_it_strands_and_the_lag_is_reported_as_unreadable(
    tmp_path: Path,
) -> None:
    def is_reported(column: str) -> list[object]:
        """What the watermarks of the queue that goes said, each once."""
        rows = spooled(tmp_path / "store", "queue_watermarks")
        place = (TOPIC, 2)
        said = [row[column] for row in rows if (row["topic"], row["queue_id"]) == place]
        return list(dict.fromkeys(said))

    config = broker_config(tmp_path, flush=FlushDiskType.SYNC_FLUSH)
    async with cluster(config) as running:
        names, client = running.name_server_address, running.client()
        async with Admin(system_runtime(), client_config(names)) as admin:
            await make_topic(admin, running.broker.address, 3)
            await client.send(topic=TOPIC, queue_id=2)
            alone = await run(names, "topic", "shrink", TOPIC, "-q", "2")
            assert alone[0] == 1
            assert "no group reads topic Scaled" in alone[2]
            await client.commit(0, topic=TOPIC, group="c", queue_id=2)
            await eventually(lambda: 1 in is_reported("flushed_offset"), "the queue stands still")
            assert is_reported("readable") == [True]
            forced = ("topic", "shrink", TOPIC, "-q", "2", "--now", "--force")
            code, said, _ = await run(names, *forced)
            assert code == 0
            assert "stranded: group c: 1 messages of broker-a queue 2" in said
            assert await numbers(admin) == (2, 2)
            await eventually(  # Those that stand still have their turn after 30 s at most.
                lambda: is_reported("readable") == [True, False], "at once", within_s=12
            )
            for words, complaint in (
                (("shrink", TOPIC, "-q", "2"), "fewer than broker broker-a has"),
                (("shrink", TOPIC, "-q", "1", "--force"), "given with --now"),
                (("shrink", "Nowhere", "-q", "1"), "no broker has the topic Nowhere"),
                (("grow", TOPIC, "-q", "1"), "to take queues away use shrink"),
                (("shrink", TOPIC, "-q", "1", "--wait", "9"), "at least the 35 s of --settle"),
            ):
                code, said, complained = await run(names, "topic", *words)
                assert (code, said, complaint in complained) == (1, "", True), complained
            code, _, _ = await run(names, "topic", "shrink", TOPIC, "-q", "1", "--settle", "-1")
            assert code == 2, "it would strand what is on its way"
            assert await numbers(admin) == (2, 2)
    groups = [
        row["committed_state"]
        for row in spooled(tmp_path / "store", "group_watermarks")
        if (row["topic"], row["queue_id"], row["group"]) == (TOPIC, 2, "c")
    ]
    assert groups[-1] == "UNREADABLE"


async def test_what_nobody_can_read_already_is_not_waited_for_and_other_settings_stay(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        names, client = running.name_server_address, running.client()
        async with Admin(system_runtime(), client_config(names)) as admin:
            queues = {"read_queues": 2, "write_queues": 4}
            await admin.topics.create(
                running.broker.address, TOPIC, **queues, order=True, sys_flag=2
            )
            await client.send(topic=TOPIC, queue_id=3)
            await client.commit(0, topic=TOPIC, group="c", queue_id=0)
            code, _, complained = await run(names, "topic", "shrink", TOPIC, "-q", "2")
            assert code == 1
            assert "never be drained: group c: 1 messages of broker-a queue 3" in complained
            assert await numbers(admin) == (2, 4)
            assert (await run(names, "topic", "grow", TOPIC, "-q", "4"))[0] == 0
            assert (await run(names, "topic", "perm", TOPIC, "r"))[0] == 0
            config = (await admin.topics.configs(TOPIC))["broker-a"]
            assert (config.perm, config.order, config.topic_sys_flag) == (4, True, 2)


async def test_more_queues_are_read_by_whoever_reads_already_and_idle_consumers_are_listed(
    tmp_path: Path,
) -> None:
    async with cluster(broker_config(tmp_path)) as running:
        names, client, seen = running.name_server_address, running.client(), Listener()
        async with Admin(system_runtime(), client_config(names)) as admin:
            await make_topic(admin, running.broker.address, 1)
            await client.send(b"0", topic=TOPIC, queue_id=0)
            async with (
                consuming(names, "c", {TOPIC: seen}),
                consuming(names, "c", {TOPIC: seen}),
            ):

                async def idle() -> str:
                    code, said, _ = await run(names, "topic", "idle", TOPIC)
                    assert code == 0
                    return said

                async def one_without() -> bool:
                    return (await idle()).count("it holds no queue") == 1

                await eventually(one_without, "one of two members of a single queue is idle")
                assert (await run(names, "topic", "grow", TOPIC, "-q", "4"))[0] == 0
                assert await numbers(admin) == (4, 4)

                async def one_unwritten() -> bool:
                    return (await idle()).count("its queues were never written to") == 1

                await eventually(one_unwritten, "one member holds only queues without messages")
                for queue_id in range(1, 4):
                    await client.send(str(queue_id).encode(), topic=TOPIC, queue_id=queue_id)

                async def all_seen() -> bool:  # The first one twice when its queue changed hands.
                    return sorted(set(seen.seen)) == [(n, str(n).encode()) for n in range(4)]

                await eventually(all_seen, "messages of the new queues are read")
                assert "no idle consumers" in await idle()
                await client.heartbeat("c", (TOPIC,))
                client.running_info = {"nonsense": 0}
                assert "unknown: " in await idle(), "whoever talks nonsense says nothing"


def test_what_is_stranded_begins_at_the_first_message_kept() -> None:
    queues = [MessageQueue(TOPIC, "b", queue_id) for queue_id in range(4)]
    ends = {queues[0]: (0, 5), queues[1]: (3, 5), queues[2]: (5, 5), queues[3]: (0, 0)}
    assert stranded_of("g", ends, {queues[0]: 4, queues[1]: 1}) == [
        Stranded("g", queues[0], 1),
        Stranded("g", queues[1], 2),
    ]
    assert stranded_of("g", ends, dict.fromkeys(queues, 9)) == []
