"""Stories of topics that are deleted and recreated under foreign consumers.

A life of a topic lasts from the answer to its creation to the request for its deletion. Senders go
on all the time, over deletions too. A message is of a life when its send began within it and was
acknowledged within it; every one of those must be in the consumer's ledger before the life ends.
What was acknowledged around a deletion may be of either life, and is expected of none.

    python -m tests.interop.new_lives --clients java,go --lives 10

Place: `test_new_lives` plays few in the suite and the whole matrix among the slow tests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from demo.ports import free_broker_port, free_port_block
from engine.admin import Admin
from engine.client import Producer, ProducerConfig, SendStatus
from engine.foundation.errors import TidemarkError, Unreachable
from engine.protocol.message import Message
from engine.runtime import system_runtime
from tests.integration.client.cluster_users import client_config, eventually
from tests.interop.java_clients import compile_checks
from tests.interop.ledger_consumers import CLIENTS, Consumers, LedgerConsumer
from tests.interop.our_engine import OurEngine, our_engine

LIFE_WITHIN_S = 120
"""A client waits 3 s after a refused pull, 10 s after a moved offset, 20 s for its rebalance, and
60 s for the lock of an orderly member that was killed.
"""
TRICKLE_EVERY_S = 0.4
LARGEST_LIFE = 400
STARTS_AT_ONCE = 3
"""Of clients and tools: a start takes a second or two of a processor, and waits 3 s for answers."""
CHANGES = (
    "topic made again",
    "other queues",
    "group made again",
    "queues given back",
    "store emptied",
    "restarted",
)
"""What happens over and over; `other queues`: the topic is made again with one queue, and with all
of them, in turn; `restarted`: the broker is killed between a deletion and the next creation, and
after it, in turn.
"""
QUICK_RETRIES = ("--set", "messageDelayLevel=" + " ".join(["1s"] * 18))
TIDEMARK = str(Path(sys.prefix) / "bin" / "tidemark")


@dataclass(frozen=True)
class Cell:
    """One story: who consumes, of what, and what happens to it."""

    client: str
    """One of CLIENTS, or two of them, `java and go`, as members of one group."""
    orderly: bool = False
    queues: int = 1
    auto_create: bool = False
    """The topic is made by the next send instead of by an administrator."""
    away: bool = False
    """The consumer ends before each deletion and comes back when the new life has messages."""
    policy: str = "LAST"
    change: str = "topic made again"
    """Or another one of CHANGES."""
    fails: bool = False
    """The listener fails every fifth message the first time: it comes from the retry topic. Not for
    C++ (`native_ledger`), and not in order, where each failure holds up its queue for a second.
    """

    @property
    def name(self) -> str:
        """Short, and fit for a topic."""
        mode = "orderly" if self.orderly else "concurrent"
        made = "auto" if self.auto_create else "made"
        words = [self.client, mode, str(self.queues), made, "away" if self.away else "running"]
        words += [self.policy, self.change, *(["failing"] if self.fails else [])]
        return "-".join(words).translate(str.maketrans({" ": "_", ".": "_", "+": "p"}))


@dataclass
class Life:
    """What was acknowledged in one life, and what became of it."""

    sent: set[str] = field(default_factory=set)
    lost: int = 0
    took_s: float = 0
    """From its beginning until all had arrived."""


@dataclass
class Outcome:
    """A story's end."""

    cell: Cell
    lives: list[Life] = field(default_factory=list)
    negative: Counter[str] = field(default_factory=Counter)
    """Negative lags by what showed them."""
    refusals: Counter[str] = field(default_factory=Counter)
    """Sends that failed, by their error."""

    unrouted: int = 0
    """Lives at whose end the name server did not know the topic."""

    @property
    def lost(self) -> int:
        """Messages that did not arrive."""
        return sum(life.lost for life in self.lives)

    def row(self) -> str:
        """The outcome as a line of a table."""
        cell, sent = self.cell, sum(len(life.sent) for life in self.lives)
        by_life = " ".join(f"{life.lost}/{len(life.sent)}" for life in self.lives)
        slowest = max((life.took_s for life in self.lives if not life.lost), default=0)
        return (
            f"{cell.name:66} lost {self.lost:5} of {sent:5}  slowest {slowest:5.1f} s  "
            f"negative lags {sum(self.negative.values())} {dict(self.negative) or ''} "
            f"{f'without a route {self.unrouted} ' if self.unrouted else ''}[{by_life}]"
        )


class Senders:
    """Sends to one topic without end: a burst when one is owed, else now and then."""

    def __init__(self, producer: Producer, outcome: Outcome) -> None:
        self._producer, self._outcome = producer, outcome
        self._topic = outcome.cell.name
        self.life: Life | None = None
        """Of which life a message is that is sent and acknowledged now; None: of none."""
        self.owed = 0
        self.trickles = True
        self._number = 0
        self._under_way = False

    @property
    def are_done(self) -> bool:
        """Nothing more comes, unless asked for."""
        return not (self.owed or self.trickles or self._under_way)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if not self.owed:
                await asyncio.sleep(TRICKLE_EVERY_S)
            if self.owed or self.trickles:
                self._under_way = True
                await self._send()
                self._under_way = False

    async def _send(self) -> None:
        self._number += 1
        fails = self._outcome.cell.fails and self._number % 5 == 0
        body, life = f"{self._topic}:{self._number}{'!' if fails else ''}", self.life
        try:
            result = await self._producer.send(Message(self._topic, body.encode()))
        except TidemarkError as error:
            self._outcome.refusals[str(error)[:80]] += 1
            await asyncio.sleep(0.1)
            return
        if life is not None and life is self.life and result.status is SendStatus.SEND_OK:
            life.sent.add(body)
            self.owed = max(0, self.owed - 1)


@dataclass
class Story:
    """One cell while it is played."""

    cell: Cell
    engine: OurEngine
    admin: Admin
    senders: Senders
    members: list[LedgerConsumer]
    consumers: Consumers
    outcome: Outcome
    chance: random.Random
    within_s: float
    starts: asyncio.Semaphore
    arrived: dict[str, tuple[int, int]] = field(default_factory=dict)
    """(queue, offset) at which each body came first."""

    @property
    def topic(self) -> str:
        """Also the name of the group."""
        return self.cell.name

    def look(self) -> None:
        """Read what came since the last look."""
        for member in self.members:
            for row in member.delivered():
                self.arrived.setdefault(row["body"], (row["queue"], row["offset"]))

    async def started(self) -> None:
        """All members run."""
        for member in self.members:
            if member.has_ended():
                async with self.starts:
                    member.start()
                    await eventually(member.is_ready, "a consumer is ready", within_s=200)

    async def ended(self, *, kill: bool) -> None:
        """No member runs."""
        for member in self.members:
            if not member.has_ended():
                member.end(kill=kill)
        for member in self.members:
            await eventually(member.has_ended, "a consumer has ended", within_s=30)

    async def routed(self) -> None:
        """The name server knows the topic."""
        await eventually(
            lambda: self.admin.topics.route(self.topic), "the topic has a route", within_s=40
        )

    async def make_topic(self, queues: int | None = None) -> None:
        """By an administrator, unless the next send does it."""
        if not self.cell.auto_create:
            count = queues or self.cell.queues

            async def is_made() -> bool:
                try:
                    await self.admin.topics.create(
                        self.engine.broker, self.topic, read_queues=count, write_queues=count
                    )
                except Unreachable:  # A broker that starts again.
                    return False
                return True

            await eventually(is_made, "the topic is made", within_s=60)

    async def tidemark(self, *words: str) -> str:
        """What `tidemark admin` prints."""
        return await self._done(
            TIDEMARK, "admin", *words, "--namesrv", self.engine.name_server, expected=""
        )

    async def mqadmin(self, command: str, *words: str) -> None:
        """RocketMQ's own tool says that it has done this in the cluster."""
        checks = self.consumers.checks
        await self._done(
            *(str(checks.java_home / "bin" / "java"), "-XX:TieredStopAtLevel=1"),
            *(f"-Duser.home={self.members[0].folder}", "-cp", checks.class_path),
            *("org.apache.rocketmq.tools.command.MQAdminStartup", command),
            *("-n", self.engine.name_server, "-c", "DefaultCluster", *words),
            expected="success",
        )

    async def _done(self, *command: str, expected: str) -> str:
        """What a command prints that succeeds; on a busy machine it may need another try."""
        for one_more in (True, True, True, True, False):
            async with self.starts:
                running = await asyncio.create_subprocess_exec(
                    *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
                )
                said = (await running.communicate())[0].decode()
            if not running.returncode and expected in said:
                return said
            assert one_more, f"{command}: {said}"
            await asyncio.sleep(2)
        raise AssertionError(command)

    async def delete_topic(self, number: int) -> None:
        """By our command, by what is behind it, or by RocketMQ's, in turn. The second is so quick
        that a refused pull, tried again after 3 s, finds the next life under way. Where sends make
        topics, one may be made after it was deleted in the broker, and before it is in the name
        server, which hears of it again within 30 s.
        """
        try:
            await self.routed()
        except AssertionError:
            self.outcome.unrouted += 1
            number = 2  # RocketMQ's tool needs no route.
        if number % 3 == 0:
            await self.tidemark("topic", "delete", self.topic, "--yes")
        elif number % 3 == 2:
            await self.mqadmin("deleteTopic", "-t", self.topic)
        else:
            await eventually(self._is_deleted, "the topic is deleted", within_s=60)

    async def _is_deleted(self) -> bool:
        try:
            await self.admin.topics.delete(self.topic)
        except Unreachable:  # A busy machine.
            return False
        return True

    async def delete_group(self, *, by_mqadmin: bool) -> None:
        """With its offsets; RocketMQ's tool deletes its retry topic, too."""
        if by_mqadmin:
            await self.mqadmin("deleteSubGroup", "-g", self.topic, "-r", "true")
        else:
            await self.tidemark("group", "delete", self.topic, "--offsets", "--yes")

    async def look_for_negative_lags(self) -> None:
        """Until cancelled, as an administrator's tools show them; None lies beyond the end."""
        while True:
            await asyncio.sleep(1)
            try:
                found = await self.admin.groups.consume_stats(self.topic)
            except TidemarkError:
                continue
            for queue, progress in found.items():
                if progress.lag is None or progress.lag < 0:
                    kind = "retry topic" if queue.topic.startswith("%") else "topic"
                    self.outcome.negative[f"question, {kind}"] += 1

    async def check_the_command(self) -> None:
        """`tidemark admin group progress` shows no negative lag."""
        for row in json.loads(await self.tidemark("group", "progress", self.topic, "--json")):
            if row["lag"] is None or row["lag"] < 0:
                self.outcome.negative["tidemark admin"] += 1

    def size(self) -> int:
        """Of the next life: below the place where the last one ended, or well beyond it."""
        last = max(len(self.outcome.lives[-1].sent), self.cell.queues)
        is_long = len(self.outcome.lives) % 2 == self.chance.choice((0, 0, 0, 1))
        if is_long and last < LARGEST_LIFE:
            return int(last * 1.5) + self.chance.randint(10, 40) * self.cell.queues
        return self.chance.randint(1, max(2, last // 3))

    async def live(self, size: int) -> None:
        """A life of so many messages, and a few more, until all of them have arrived."""
        life, began = Life(), time.monotonic()
        self.outcome.lives.append(life)
        self.senders.life, self.senders.owed, self.senders.trickles = life, size, True
        within_s = self.within_s
        await eventually(lambda: not self.senders.owed, f"{size} are sent", within_s=within_s)
        if any(member.has_ended() for member in self.members):
            await self.routed()  # Go's client does not start for a topic that has no route.
            await self.started()
        ready = time.monotonic()
        await asyncio.sleep(self.chance.uniform(1, 3))
        self.senders.trickles = False
        await eventually(lambda: self.senders.are_done, "the senders rest", within_s=within_s)
        while time.monotonic() < ready + within_s:
            self.look()
            if life.sent <= self.arrived.keys():
                break
            await asyncio.sleep(0.2)
        life.took_s, life.lost = time.monotonic() - began, len(life.sent - self.arrived.keys())
        self.senders.life, self.senders.trickles = None, True

    async def first_life(self) -> None:
        """The consumer is at work on every queue, then the first messages that count are sent."""
        await self.make_topic()
        await self.routed()
        await self.started()

        def at_work() -> bool:
            self.look()
            return len({queue for queue, _ in self.arrived.values()}) == self.cell.queues

        await eventually(at_work, "the consumer has all queues", within_s=60)
        await self.live(self.chance.randint(10, 40) * self.cell.queues)

    async def change(self, number: int) -> None:
        """What the story is about, once more; a life begins with its end."""
        cell = self.cell
        if cell.away:
            await self.ended(kill=number % 2 == 1)
        await asyncio.sleep(TRICKLE_EVERY_S)
        if cell.change in ("topic made again", "other queues"):
            await self.delete_topic(number)
            if not (cell.auto_create or number % 3 == 1):  # Or so late that pulls are refused.
                await asyncio.sleep(self.chance.choice((0, 0, 0.5, 4)))
            await self.make_topic(1 if cell.change == "other queues" and number % 2 else None)
        elif cell.change == "group made again":
            await self.delete_group(by_mqadmin=number % 2 == 0)
            await asyncio.sleep(self.chance.choice((0, 1, 4)))
            await self.tidemark("group", "create", self.topic)
        elif cell.change == "queues given back":
            await self.tidemark("topic", "shrink", self.topic, "-q", "1", "--now", "--force")
            await asyncio.sleep(self.chance.choice((0, 1, 35)))
            await self.tidemark("topic", "create", self.topic, "-q", str(cell.queues))


@asynccontextmanager
async def story_of(
    cell: Cell,
    engine: OurEngine,
    consumers: Consumers,
    starts: asyncio.Semaphore,
    *,
    seed: int,
    within_s: float,
) -> AsyncIterator[Story]:
    """A story whose senders send and whose lags are watched, before its first life."""
    config, outcome = client_config(engine.name_server), Outcome(cell)
    sending = ProducerConfig(default_topic_queue_count=cell.queues)
    producer = Producer(system_runtime(), config, "senders", producer=sending)
    members = [
        consumers.made(
            *(client, engine.name_server, cell.name, cell.name),
            orderly=cell.orderly,
            policy=cell.policy,
        )
        for client in cell.client.split(" and ")
    ]
    senders, chance = Senders(producer, outcome), random.Random(f"{seed} {cell.name}")
    async with Admin(system_runtime(), config) as admin:
        await producer.start()
        story = Story(
            *(cell, engine, admin, senders, members, consumers, outcome, chance, within_s, starts)
        )
        tasks = [
            asyncio.create_task(senders.run()),
            asyncio.create_task(story.look_for_negative_lags()),
        ]
        try:
            yield story
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await producer.stop()
            await story.ended(kill=True)
    for task in tasks:
        if not task.cancelled():
            task.result()


async def play(
    cell: Cell,
    engine: OurEngine,
    consumers: Consumers,
    starts: asyncio.Semaphore,
    *,
    lives: int,
    seed: int,
    within_s: float,
) -> Outcome:
    """A first life, and `lives` more."""
    async with story_of(cell, engine, consumers, starts, seed=seed, within_s=within_s) as story:
        await story.first_life()
        for number in range(lives):
            await story.change(number)
            await story.live(story.size())
            if number % 3 == 0:
                await story.check_the_command()
        return story.outcome


async def play_at_once(
    cells: Sequence[Cell],
    consumers: Consumers,
    folder: Path,
    *,
    lives: int,
    seed: int = 1,
    within_s: float = LIFE_WITHIN_S,
) -> list[Outcome]:
    """Cells of one kind of creation, at the same time on one engine."""
    (auto_create,) = {cell.auto_create for cell in cells}
    options = ("--set", f"autoCreateTopicEnable={str(auto_create).lower()}", *QUICK_RETRIES)
    starts = asyncio.Semaphore(STARTS_AT_ONCE)
    with our_engine(folder, *options) as engine:
        return await asyncio.gather(
            *(
                play(cell, engine, consumers, starts, lives=lives, seed=seed, within_s=within_s)
                for cell in cells
            )
        )


async def play_over_restarts(
    cells: Sequence[Cell],
    consumers: Consumers,
    folder: Path,
    *,
    lives: int,
    seed: int = 1,
    within_s: float = LIFE_WITHIN_S,
) -> list[Outcome]:
    """The broker is killed and starts again where it was, `lives` times; its store is removed
    meanwhile if that is the change.
    """
    ports = (free_port_block(1), free_broker_port())
    options = ("--set", "autoCreateTopicEnable=false", *QUICK_RETRIES)
    starts = asyncio.Semaphore(STARTS_AT_ONCE)
    (change,) = {cell.change for cell in cells}
    before, after = (asyncio.Barrier(len(cells) + 1) for _ in range(2))
    with ExitStack() as broker:
        engine = broker.enter_context(our_engine(folder, *options, killed=True, ports=ports))

        async def lived(cell: Cell) -> Outcome:
            async with story_of(
                cell, engine, consumers, starts, seed=seed, within_s=within_s
            ) as story:
                await story.first_life()
                for number in range(lives):
                    if cell.away:
                        await story.ended(kill=number % 2 == 1)
                    is_early = change == "restarted" and number % 2 == 1
                    if change == "restarted":
                        await story.delete_topic(1)
                    if is_early:
                        await story.make_topic()
                    await before.wait()
                    await after.wait()
                    if not is_early:
                        await story.make_topic()
                    await story.live(story.size())
                return story.outcome

        async def restart() -> None:
            for _ in range(lives):
                await before.wait()
                broker.pop_all().close()
                if change == "store emptied":
                    shutil.rmtree(folder / "store")
                broker.enter_context(our_engine(folder, *options, killed=True, ports=ports))
                await after.wait()

        restarting = asyncio.create_task(restart())
        try:
            return await asyncio.gather(*(lived(cell) for cell in cells))
        finally:
            restarting.cancel()
            await asyncio.gather(restarting, return_exceptions=True)


def table(outcomes: Iterable[Outcome]) -> str:
    """A line for each story."""
    return "\n".join(outcome.row() for outcome in outcomes)


def matrix(clients: Sequence[str], *, auto_create: bool, away: bool) -> list[Cell]:
    """Each client in each mode, on one and on four queues."""
    return [
        Cell(client, orderly, queues, auto_create=auto_create, away=away)
        for client, orderly, queues in product(clients, (False, True), (1, 4))
    ]


def main() -> None:
    """Play what the arguments choose, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", default=",".join(CLIENTS))
    parser.add_argument("--lives", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--within", type=float, default=LIFE_WITHIN_S)
    parser.add_argument("--change", default="topic made again", choices=CHANGES)
    parser.add_argument("--fails", action="store_true")
    parser.add_argument("--creation", default="made,auto")
    parser.add_argument("--members", default="running,away")
    parser.add_argument("--policy", default="LAST")
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)  # Each refused send warns.
    work = Path(tempfile.mkdtemp(prefix="new-lives-"))  # It stays if anything is lost.
    checks, lost_any = compile_checks(work / "checks"), False
    for creation in chosen.creation.split(","):
        place = work / creation
        consumers = Consumers(checks, place)
        cells = [
            Cell(
                *(client, orderly, queues, creation == "auto", members == "away"),
                policy=chosen.policy,
                change=chosen.change,
                fails=chosen.fails and not orderly and client != "c++",
            )
            for client, members, orderly, queues in product(
                *(chosen.clients.split(","), chosen.members.split(",")), (False, True), (1, 4)
            )
            if queues > 1 or (" and " not in client and "queues" not in chosen.change)
        ]
        over_restarts = chosen.change in ("store emptied", "restarted")
        played = play_over_restarts if over_restarts else play_at_once
        outcomes = asyncio.run(
            played(
                *(cells, consumers, place / "engine"),
                lives=chosen.lives,
                seed=chosen.seed,
                within_s=chosen.within,
            )
        )
        sys.stdout.write(table(outcomes) + "\n")
        sys.stdout.flush()
        lost_any |= any(outcome.lost for outcome in outcomes)
    if not lost_any:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
