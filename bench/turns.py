"""Measures how long steps block the event loop with 10,000 connections and topics.

There are 100,000 queues of groups besides. Run by `python -m bench --only turns`.

The engine is the one that users start, with a watch around its loop (bench.observed_engine). Each
client has a connection, a group of its own and ten queues that it pulls and reports; then the tools
ask for everything there is, the longest batches are sent, two brokers of 20,000 topics register and
leave, the groups become 100,000, a topic of all groups and a group of all topics are deleted, all
clients join one group, and all are lost at once.
Figures are CPU time of the loop's thread: what else the machine does is not in them.

    python -m bench.turns [CONNECTIONS]     as many clients, topics and groups of clients
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.bars import LONGEST_STEP
from demo.ports import free_broker_port, free_port_block
from engine.foundation.limits import BATCH_MESSAGES_MAX, FRAME_BYTES_MAX
from engine.protocol.bodies import (
    ConsumerData,
    DataVersion,
    HeartbeatData,
    RegisterBrokerBody,
    SubscriptionData,
    TopicConfig,
)
from engine.protocol.codes import RequestCode
from engine.protocol.command import RemotingCommand
from engine.protocol.frames import FrameDecoder, encode_frame
from engine.protocol.message import Message
from engine.protocol.message_batch import encode_batch
from engine.runtime.network import allow_descriptors

CONNECTIONS = 10_000
TOPICS = 10_000
QUEUES = 4
QUEUES_READ = 10
"""By each client: 100,000 pairs of a group and a queue."""
PER_ADDRESS = 8000
"""Clients at one address of ours."""
BATCHES = 4
"""Of BATCH_MESSAGES_MAX messages each."""
FOREIGN_TOPICS = 20_000
"""Of each of two other brokers that register."""
GROUPS = 99_000
"""In the end, those of the clients among them."""
GROUPS_AT_ONCE = 1000
MOST_READ = "most-read"
"""A topic on which all groups but those of the clients have an offset; in the end it is deleted."""
READS_ALL = "reads-all"
"""A group with an offset on each queue of all topics; it is deleted with them."""
STEADY_S = 45.0
"""Longer than each timer of the broker: heartbeats, registration, snapshots of all marks."""
AT_ONCE = 200
"""Requests of ours under way: it is not the engine's queues that are measured."""
BEAT_S = 30.0
ROWS = 14

RUNNING_INFO = b'{"mqTable":{},"properties":{},"statusTable":{},"subscriptionSet":[]}'


class Client(asyncio.Protocol):
    """One connection: asks, and answers what it is asked."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.client_id = f"10.0.0.1@{number}"
        self.group = f"group-{number:05}"
        self.pushed_count = 0
        self._decoder = FrameDecoder(header_bytes_max=FRAME_BYTES_MAX)
        self._answers: dict[int, asyncio.Future[RemotingCommand]] = {}
        self._opaques = count(1)
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready to ask."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is answered any more."""
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError(f"{self.client_id} was cut off: {exc}"))

    def data_received(self, data: bytes) -> None:
        """Answers of the broker, and what it asks."""
        for command in self._decoder.feed(data):
            if command.is_response:
                waiting = self._answers.pop(command.opaque, None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(command)
            elif command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
                self.transport.write(encode_frame(command.respond(0, body=RUNNING_INFO)))
            else:
                self.pushed_count += 1

    def send(self, code: int, body: bytes, **fields: object) -> int:
        """Send a request and wait for nothing."""
        texts = {name: str(value) for name, value in fields.items()}
        command = RemotingCommand.request(code, texts, body)
        command.opaque = next(self._opaques)
        self.transport.write(encode_frame(command))
        return command.opaque

    async def ask(self, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
        """Send a request and return its answer."""
        future: asyncio.Future[RemotingCommand] = asyncio.get_running_loop().create_future()
        self._answers[self.send(code, body, **fields)] = future
        async with asyncio.timeout(120):
            return await future

    def queues(self) -> list[tuple[str, int]]:
        """What it reads."""
        return [
            (topic_name((self.number + place // QUEUES) % TOPICS), place % QUEUES)
            for place in range(QUEUES_READ)
        ]

    async def heartbeat(self, crowd: str | None = None) -> None:
        """Tell its group, and that it reads the first topic in the group of all."""
        topics = {self.group: sorted({topic for topic, _ in self.queues()})}
        if crowd is not None:
            topics[crowd] = [topic_name(0)]
        data = [
            ConsumerData(
                group_name=group,
                subscription_data_set=[
                    SubscriptionData.build(topic, "*", sub_version=1) for topic in names
                ],
            )
            for group, names in topics.items()
        ]
        body = HeartbeatData(client_id=self.client_id, consumer_data_set=data).encode()
        await self.ask(RequestCode.HEART_BEAT, body)

    async def report(self, offset: int) -> None:
        """Report an offset for each queue."""
        for topic, queue_id in self.queues():
            self.send(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                b"",
                **self._of_queue(topic, queue_id),
                commitOffset=offset,
            )
        await self.ask(RequestCode.GET_MAX_OFFSET, topic=self.queues()[0][0], queueId=0)

    def pull(self) -> None:
        """Ask for messages of each queue, and wait at the broker for them."""
        for topic, queue_id in self.queues():
            self.send(
                RequestCode.PULL_MESSAGE,
                b"",
                **self._of_queue(topic, queue_id),
                queueOffset=0,
                maxMsgNums=32,
                sysFlag=2,
                commitOffset=0,
                suspendTimeoutMillis=20_000,
                subscription="*",
                subVersion=1,
            )

    def _of_queue(self, topic: str, queue_id: int) -> dict[str, object]:
        return {"consumerGroup": self.group, "topic": topic, "queueId": queue_id}


def topic_name(number: int) -> str:
    """A topic of ours."""
    return f"topic-{number:05}"


class Load:
    """What is done to the engine, phase by phase."""

    def __init__(
        self,
        broker: str,
        namesrv: str,
        metrics: str,
        *,
        say: Callable[[str], None],
        connections: int = CONNECTIONS,
    ) -> None:
        self._broker, self._namesrv, self._metrics, self._say = broker, namesrv, metrics, say
        self._connections = connections
        self._clients: list[Client] = []
        self._joined: list[Client] = []
        self._crowd: str | None = None
        """The group that all of them are in, besides their own."""

    async def run(self) -> None:
        """All phases, with the heartbeats of those who have joined."""
        beats = asyncio.create_task(self._beat())
        try:
            await self._phases()
        finally:
            beats.cancel()

    async def _beat(self) -> None:
        """All of them, each BEAT_S."""
        while True:
            began = time.monotonic()
            await _each(self._joined, self._beat_of)
            await asyncio.sleep(max(1.0, began + BEAT_S - time.monotonic()))

    async def _beat_of(self, client: Client) -> None:
        if not client.transport.is_closing():
            await client.heartbeat(self._crowd)

    async def _phases(self) -> None:
        host, port = self._broker.split(":")
        loop = asyncio.get_running_loop()
        for number in range(self._connections):
            make, own = partial(Client, number), (f"127.0.0.{1 + number // PER_ADDRESS}", 0)
            _, client = await loop.create_connection(make, host, int(port), local_addr=own)
            self._clients.append(client)
        for name, phase in (
            ("topics made", self._make_topics),
            ("all clients join", self._join),
            ("offsets and pulls", self._consume),
            ("a message in each topic", self._send),
            ("steady", self._steady),
            ("tools and scrapes", self._ask_all),
            ("batches of 16,384", self._send_batches),
            ("name server", self._register_brokers),
            ("99,000 groups", self._make_groups),
            ("deletions", self._delete),
            ("all join one group", self._join_one_group),
            ("all are lost", self._lose),
        ):
            self._say(name)
            began = time.monotonic()
            await phase()
            print(f"{name}: {time.monotonic() - began:.1f} s", file=sys.stderr)
        self._say("stop")

    async def _make_topics(self) -> None:
        configs = [
            {
                "topicName": name,
                "readQueueNums": QUEUES,
                "writeQueueNums": QUEUES,
                "perm": 6,
            }
            for name in (MOST_READ, *map(topic_name, range(TOPICS)))
        ]
        for begin in range(0, len(configs), 1000):
            body = json.dumps({"topicConfigList": configs[begin : begin + 1000]}).encode()
            answer = await self._clients[0].ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body)
            assert answer.code == 0, answer.remark

    async def _join(self) -> None:
        await _each(self._clients, lambda client: client.heartbeat())
        self._joined = self._clients

    async def _consume(self) -> None:
        await _each(self._clients, lambda client: client.report(1))
        for client in self._clients:
            client.pull()
            if client.number % AT_ONCE == 0:
                await asyncio.sleep(0.01)
        await asyncio.sleep(5)

    async def _send(self) -> None:
        async def send(client: Client) -> None:
            await client.ask(
                RequestCode.SEND_MESSAGE,
                b"x" * 100,
                producerGroup="p",
                topic=topic_name(client.number % TOPICS),
                defaultTopic="TBW102",
                defaultTopicQueueNums=QUEUES,
                queueId=0,
                sysFlag=0,
                bornTimestamp=1_700_000_000_000,
                flag=0,
                properties="",
            )

        await _each(self._clients, send)

    async def _steady(self) -> None:
        end, offset = time.monotonic() + STEADY_S, 1
        while time.monotonic() < end:
            offset += 1
            await _each(self._clients, partial(Client.report, offset=offset))
            for client in self._clients:
                client.pull()
                if client.number % AT_ONCE == 0:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(1)

    async def _ask_all(self) -> None:
        for _ in range(2):
            await asyncio.to_thread(self._scrape)
        first = self._clients[0]
        for code in (
            RequestCode.GET_ALL_CONSUMER_OFFSET,
            RequestCode.GET_ALL_TOPIC_CONFIG,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.GET_BROKER_RUNTIME_INFO,
            RequestCode.GET_BROKER_CONSUME_STATS,
        ):
            self._say(code.name)
            answer = await first.ask(code, isOrder="false")
            if answer.code:  # As when it is longer than a frame may be; the work was done.
                print(f"{code.name}: {answer.remark}", file=sys.stderr)
        self._say("groups' offsets queried")

        async def query(client: Client) -> None:
            await client.ask(RequestCode.GET_CONSUME_STATS, consumerGroup=client.group)
            await client.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, group=client.group)
            await client.ask(
                RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic=topic_name(client.number % TOPICS)
            )
            await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, consumerGroup=client.group)

        await _each(self._clients, query)

    def _scrape(self) -> None:
        try:
            with urllib.request.urlopen(self._metrics, timeout=300) as page:  # noqa: S310 - ours
                page.read()
        except OSError as error:
            print(f"a scrape: {error}", file=sys.stderr)

    async def _send_batches(self) -> None:
        body = encode_batch(
            [
                Message(topic_name(0), b"x" * 100, {"UNIQ_KEY": f"7F00{number:028X}"})
                for number in range(BATCH_MESSAGES_MAX)
            ]
        )
        fields = {"a": "p", "b": topic_name(0), "c": "TBW102", "d": QUEUES, "e": 0, "f": 0}
        fields |= {"g": 1_700_000_000_000, "h": 0, "i": "", "j": 0, "k": "false", "m": "true"}
        for _ in range(BATCHES):
            answer = await self._clients[0].ask(RequestCode.SEND_BATCH_MESSAGE, body, **fields)
            assert answer.code == 0, answer.remark
            await asyncio.sleep(1)

    async def _register_brokers(self) -> None:
        host, port = self._namesrv.split(":")
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(partial(Client, 0), host, int(port))
        for number, name in enumerate(("other-a", "other-b")):
            topics = {
                topic: TopicConfig(topic, QUEUES, QUEUES)
                for topic in (topic_name(one) for one in range(FOREIGN_TOPICS))
            }
            version = DataVersion(0, 1_700_000_000_000 + number, 1)
            fields: dict[str, object] = {
                "brokerName": name,
                "brokerAddr": f"10.0.0.{number}:10911",
                "clusterName": "DefaultCluster",
                "brokerId": 0,
            }
            self._say("registration")
            body = RegisterBrokerBody(version, topics).encode(compressed=bool(number))
            answer = await client.ask(
                RequestCode.REGISTER_BROKER,
                body,
                haServerAddr="",
                compressed="true" if number else "false",
                **fields,
            )
            assert answer.code == 0, answer.remark
        for code, asked in (
            (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
            (RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "DefaultCluster"}),
            (RequestCode.GET_UNIT_TOPIC_LIST, {}),
            (RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic_name(0)}),
            (RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "other-a"}),
            (RequestCode.UNREGISTER_BROKER, fields),
        ):
            self._say(code.name)
            answer = await client.ask(code, **asked)
            assert answer.code == 0, answer.remark
        self._say("a broker is lost")
        client.transport.abort()
        await asyncio.sleep(1)

    async def _make_groups(self) -> None:
        first, offset = self._clients[0], self._connections

        async def make(begin: int) -> None:
            names = [f"more-{number:06}" for number in range(begin, begin + GROUPS_AT_ONCE)]
            body = json.dumps({"groupConfigList": [{"groupName": name} for name in names]})
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
            answer = await first.ask(code, body.encode())
            assert answer.code == 0, answer.remark

        begins = range(offset, GROUPS - GROUPS_AT_ONCE, GROUPS_AT_ONCE)
        await asyncio.gather(*(make(begin) for begin in begins))
        await self._report(
            (f"more-{number:06}", MOST_READ, 0) for number in range(offset, GROUPS - GROUPS_AT_ONCE)
        )
        await asyncio.sleep(12)
        for code in (
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.GET_BROKER_CONSUME_STATS,
            RequestCode.GET_ALL_CONSUMER_OFFSET,
            RequestCode.GET_ALL_PRODUCER_INFO,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        ):
            self._say(f"{code.name} of 99,000 groups")
            answer = await first.ask(code, isOrder="false", topic=MOST_READ)
            if answer.code:
                print(f"{code.name}: {answer.remark}", file=sys.stderr)
        self._say("a scrape of 99,000 groups")
        await asyncio.to_thread(self._scrape)

    async def _report(self, queues: Iterable[tuple[str, str, int]]) -> None:
        """An offset of each (group, topic, queue id)."""
        first = self._clients[0]
        for number, (group, topic, queue_id) in enumerate(queues):
            first.send(
                RequestCode.UPDATE_CONSUMER_OFFSET,
                b"",
                consumerGroup=group,
                topic=topic,
                queueId=queue_id,
                commitOffset=1,
            )
            if not number % AT_ONCE:
                await first.ask(RequestCode.GET_MAX_OFFSET, topic=topic_name(0), queueId=0)
        await first.ask(RequestCode.GET_MAX_OFFSET, topic=topic_name(0), queueId=0)

    async def _delete(self) -> None:
        await self._report(
            (READS_ALL, topic_name(number), queue_id)
            for number in range(TOPICS)
            for queue_id in range(QUEUES)
        )
        first = self._clients[0]
        self._say("a topic of all groups deleted")
        answer = await first.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=MOST_READ)
        assert answer.code == 0, answer.remark
        self._say("a group of all topics deleted")
        answer = await first.ask(
            RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName=READS_ALL, cleanOffset="true"
        )
        assert answer.code == 0, answer.remark
        await asyncio.sleep(2)

    async def _join_one_group(self) -> None:
        self._crowd = "crowd"
        await _each(self._clients, lambda client: client.heartbeat("crowd"))

    async def _lose(self) -> None:
        self._joined = []
        for client in self._clients:
            client.transport.abort()
        await asyncio.sleep(20)


async def _each(clients: Iterable[Client], work: Callable[[Client], Awaitable[None]]) -> None:
    """The work of every client, AT_ONCE at a time."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(client: Client) -> None:
        async with room:
            await work(client)

    async with asyncio.TaskGroup() as all_of_them:
        for client in clients:
            all_of_them.create_task(one(client))


async def watched_engine(work: Path, connections: int = CONNECTIONS) -> list[dict[str, Any]]:
    """Start the engine under its watch, do all that is done to it, stop it; what the watch saw."""
    broker_port, metrics_port = free_broker_port(), free_port_block(1)
    namesrv_port = free_port_block(1)
    figures = work / "figures.json"
    process = await asyncio.create_subprocess_exec(
        *("setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "bench.observed_engine"),
        *(str(figures), "engine", "--store", str(work / "store"), "--lake", "none"),
        *("--namesrv-port", str(namesrv_port), "--broker-port", str(broker_port)),
        *("--metrics-port", str(metrics_port)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin = process.stdin
    ready = (await process.stdout.readline()).decode()
    assert ready.startswith("ready"), ready
    load = Load(
        f"127.0.0.1:{broker_port}",
        f"127.0.0.1:{namesrv_port}",
        f"http://127.0.0.1:{metrics_port}/metrics",
        say=lambda phase: stdin.write(f"{phase}\n".encode()),
        connections=connections,
    )
    try:
        await load.run()
    except BaseException as error:  # noqa: BLE001 - what was measured until then is shown.
        print(f"the load ended early: {error!r}", file=sys.stderr)
    finally:
        process.terminate()
        await process.communicate()
    found = json.loads(figures.read_text())
    assert isinstance(found, list)
    return found


def measure_turns(connections: int = CONNECTIONS) -> list[Table]:
    """The longest steps of the load, and of the start and the stop."""
    allow_descriptors(connections + 1000)
    with TemporaryDirectory(prefix="tidemark-turns-") as work:
        found = asyncio.run(watched_engine(Path(work), connections))
    served = [one for one in found if one["phase"] not in ("start", "stop")]
    outside = [one for one in found if one["phase"] in ("start", "stop")]
    return [
        _table(f"Steps of the loop: {connections} clients, bar {LONGEST_STEP}", served),
        _table("Steps while nobody is served", outside),
    ]


def _table(title: str, figures: list[dict[str, Any]]) -> Table:
    table = Table(title=title)
    for column in ("phase", "kind"):
        table.add_column(column)
    for column in ("steps", "longest, ms", "without collector", "all, ms"):
        table.add_column(column, justify="right")
    longest = sorted(figures, key=lambda one: -one["longest_ms"])[:ROWS]
    for one in longest:
        table.add_row(
            *(one["phase"], one["kind"], f"{one['count']:,}", f"{one['longest_ms']:.1f}"),
            *(f"{one['longest_own_ms']:.1f}", f"{one['total_ms']:,.0f}"),
        )
    return table


if __name__ == "__main__":
    for measured in measure_turns(int(sys.argv[1]) if sys.argv[1:] else CONNECTIONS):
        Console(width=140).print(measured)
