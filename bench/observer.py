"""Measures the cost of observing a cluster of 3,500 topics and 1,500 groups from outside.

Run by `python -m bench --only observer`.

Three processes: a name server and two brokers that are played over real sockets (this module, with
`play`), `tidemark observe` with a lake, and so a shipper for each broker, and this one, which
measures what the observer takes and emits. Each broker has all topics with four queues, each group
reads four topics and its retry topic and has one member; a tenth of the groups moves between two
polls. Figures: from its start to the moment when every topic and group has been polled, CPU time
beside wall time in the span that this may take and in the polls after that, with the shippers and
of the observer alone, largest memory, and the requests to a broker. After it, the cost of being
observed to a real broker (`observed_rocketmq`).

    python -m bench.observer [SECONDS]     how long it is watched
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console
from rich.table import Table

from bench.analytics.cost import cpu_seconds, own_seconds, resident_bytes
from bench.bars import OBSERVER_COLLECTED, OBSERVER_CPU, OBSERVER_MEMORY, Bar
from bench.observed_rocketmq import SECONDS, table_of_sends
from engine.protocol import fastjson
from engine.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    ConsumerConnection,
    ConsumeStats,
    DataVersion,
    KVTable,
    OffsetWrapper,
    TopicConfig,
    TopicConfigTable,
    TopicOffset,
    TopicStatsTable,
    encode_running_info,
)
from engine.protocol.bodies_admin import ClientConnection
from engine.protocol.codes import RequestCode as Code
from engine.protocol.codes import ResponseCode
from engine.protocol.command import RemotingCommand
from engine.protocol.message import MessageQueue
from engine.remoting import Handler, Peer, RpcServer
from engine.runtime import system_runtime

TOPICS: Final = 3_500
GROUPS: Final = 1_500
BROKERS: Final = 2
QUEUES: Final = 4
"""Of a topic, on each broker."""
TOPICS_A_GROUP: Final = 4
END: Final = 1_000
MOVING: Final = 10
"""Each so many groups move between two looks."""
PERIOD_S: Final = 10
WATCHED_S: Final = 100.0
COLLECTED_WITHIN_S: Final = OBSERVER_COLLECTED.limit
"""The bars are on this span: what is done sooner uses more of a core, and then rests."""
BORN_MS: Final = 1_700_000_000_000
ALL_GROUPS: Final = "was asked who is connected of each group"


class Played:
    """A broker that answers an observer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: Counter[int] = Counter()
        self._looks = 0
        self._groups_asked: set[str] = set()
        self._topics = [f"topic-{number:04}" for number in range(TOPICS)]
        self._groups = [f"group-{number:04}" for number in range(GROUPS)]
        self._still = [self._group_as_reported(number) for number in range(GROUPS)]
        handlers: dict[int, Handler] = {
            Code.GET_BROKER_RUNTIME_INFO: self._figures,
            Code.GET_BROKER_CONFIG: lambda _, ask: self._ok(ask, b"messageDelayLevel=1s 5s\n"),
            Code.GET_BROKER_CONSUME_STATS: self._progress,
            Code.GET_ALL_TOPIC_CONFIG: self._list_topics,
            Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._list_groups,
            Code.GET_TOPIC_STATS_INFO: self._ends,
            Code.GET_CONSUMER_CONNECTION_LIST: self._members,
            Code.GET_CONSUMER_RUNNING_INFO: self._held,
            Code.PULL_MESSAGE: self._nothing,
        }
        self.server = RpcServer(system_runtime(), handlers)

    def _ok(self, request: RemotingCommand, body: bytes) -> RemotingCommand:
        self.asked[request.code] += 1
        return request.respond(ResponseCode.SUCCESS, body=body)

    def _figures(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        self._looks += 1
        asked = " ".join(f"{code}={count}" for code, count in sorted(self.asked.items()))
        print(f"{self.name} {self._looks} {asked}", flush=True)
        return self._ok(request, KVTable({"bootTimestamp": str(BORN_MS)}).encode())

    def _progress(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        parts = []
        for number, still in enumerate(self._still):
            has_moved = (number + self._looks) % MOVING == 0
            offset = b'"consumerOffset":%d' % (500 + self._looks)
            parts.append(still.replace(b'"consumerOffset":500', offset) if has_moved else still)
        return self._ok(request, b'{"consumeStatsList":[{' + b"},{".join(parts) + b"}]}")

    def _group_as_reported(self, number: int) -> bytes:
        """How far a group is that has never moved."""
        queues = [queue for topic in self._read_by(number) for queue in self._queues(topic)]
        rows = ConsumeStats(dict.fromkeys(queues, OffsetWrapper(END, 500))).encode()
        return fastjson.dumps(self._groups[number]) + b":[" + rows + b"]"

    def _read_by(self, number: int) -> list[str]:
        first = number * TOPICS_A_GROUP
        return [self._topics[(first + at) % TOPICS] for at in range(TOPICS_A_GROUP)]

    def _queues(self, topic: str) -> list[MessageQueue]:
        return [MessageQueue(topic, self.name, queue_id) for queue_id in range(QUEUES)]

    def _list_topics(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        names = [*self._topics, *(f"%RETRY%{group}" for group in self._groups)]
        table = {name: TopicConfig(name, QUEUES, QUEUES) for name in names}
        return self._ok(request, TopicConfigTable(DataVersion(), table).encode())

    def _list_groups(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        table = {group: {"groupName": group} for group in self._groups}
        return self._ok(request, fastjson.dumps({"subscriptionGroupTable": table}))

    def _ends(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        ends = TopicOffset(0, END, BORN_MS)
        queues = dict.fromkeys(self._queues(request.fields["topic"]), ends)
        return self._ok(request, TopicStatsTable(queues).encode())

    def _members(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        group = request.fields["consumerGroup"]
        if group not in self._groups_asked:
            self._groups_asked.add(group)
            if len(self._groups_asked) == GROUPS:
                print(f"{self.name} {ALL_GROUPS}", flush=True)
        client = ClientConnection(group, "127.0.0.1:1", "JAVA", 1)
        members = ConsumerConnection([client], message_model="CLUSTERING")
        return self._ok(request, members.encode())

    def _held(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        number = int(request.fields["consumerGroup"].rpartition("-")[2])
        window = {"commitOffset": 500, "cachedMsgCount": 1, "lastPullTimestamp": BORN_MS}
        held = {q: window for topic in self._read_by(number) for q in self._queues(topic)}
        return self._ok(request, encode_running_info({}, [], held, {}))

    def _nothing(self, _peer: Peer, request: RemotingCommand) -> RemotingCommand:
        self.asked[request.code] += 1
        return request.respond(ResponseCode.PULL_NOT_FOUND, "nothing is kept here")


async def play() -> None:
    """The cluster, until it is killed; the address of its name server is its first line."""
    brokers = [Played(f"broker-{number}") for number in range(BROKERS)]
    table = {}
    for broker in brokers:
        port = await broker.server.start("127.0.0.1", 0)
        table[broker.name] = BrokerData("large", broker.name, {0: f"127.0.0.1:{port}"})
    info = ClusterInfo(table, {"large": list(table)}).encode()
    name_server = RpcServer(
        system_runtime(),
        {Code.GET_BROKER_CLUSTER_INFO: lambda _, ask: ask.respond(0, body=info)},
    )
    print(f"127.0.0.1:{await name_server.start('127.0.0.1', 0)}", flush=True)
    await asyncio.Event().wait()


def watched(folder: Path, seconds: float) -> list[tuple[str, str, Bar | None, float | None]]:
    """(what, figure, bar, value) after the observer has looked for so long."""
    command = [sys.executable, "-m", "bench.observer", "play"]
    with (
        (folder / "played.log").open("w") as played,
        subprocess.Popen(command, stdout=played) as cluster,
    ):
        try:
            namesrv = _first_line(folder / "played.log")
            words = ["observe", "-n", namesrv, "--home", str(folder), "--period", str(PERIOD_S)]
            words += ["--lake", str(folder / "lake")]
            tidemark = str(Path(sys.executable).parent / "tidemark")
            with (folder / "observer.log").open("w") as log:
                process = subprocess.Popen([tidemark, *words], stdout=log, stderr=log)
            try:
                return _figures(process.pid, folder, seconds)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(60)
        finally:
            cluster.kill()


def _first_line(path: Path) -> str:
    while "\n" not in (text := path.read_text()):
        time.sleep(0.05)
    return text.partition("\n")[0]


def _figures(
    pid: int, folder: Path, seconds: float
) -> list[tuple[str, str, Bar | None, float | None]]:
    begun_s, collected_s = time.monotonic(), None
    while collected_s is None and time.monotonic() - begun_s < seconds:
        time.sleep(0.1)
        if _snapshots(folder) >= BROKERS and _asked_about_groups(folder) >= BROKERS:
            collected_s = time.monotonic() - begun_s
    done_s, own_done_s = time.monotonic() - begun_s, own_seconds(pid)
    time.sleep(max(0.0, COLLECTED_WITHIN_S - done_s))
    steady_s, cpu_s, own_s = time.monotonic(), cpu_seconds(pid), own_seconds(pid)
    own_first = 100 * own_s / (steady_s - begun_s)
    share_first = 100 * cpu_s / (steady_s - begun_s)
    questions = _questions(folder)
    time.sleep(max(3 * PERIOD_S, seconds - (steady_s - begun_s)))
    wall_s = time.monotonic() - steady_s
    share = 100 * (cpu_seconds(pid) - cpu_s) / wall_s
    own_share = 100 * (own_seconds(pid) - own_s) / wall_s
    shippers = {one: size for one, size in resident_bytes(pid).items() if one != pid}
    shippers_mib = sum(size for _, size in shippers.values()) / (1 << 20)
    memory_mib = _largest_mib(pid)
    asked = _questions(folder)
    rates = (asked - questions) / wall_s / BROKERS
    shown = "not within the time" if collected_s is None else f"{collected_s:.1f} s"
    return [
        ("every topic and group asked after", shown, OBSERVER_COLLECTED, collected_s),
        ("CPU until then, of the observer alone", f"{own_done_s:.1f} s", None, None),
        (
            f"of one core in the {COLLECTED_WITHIN_S:g} s that it may take, with shippers",
            f"{share_first:.0f} %",
            *(OBSERVER_CPU, share_first),
        ),
        ("of it the observer alone", f"{own_first:.0f} %", None, None),
        ("of one core, afterwards, with shippers", f"{share:.0f} %", OBSERVER_CPU, share),
        ("of it the observer alone", f"{own_share:.0f} %", None, None),
        ("memory of shippers at the end", f"{len(shippers)}: {shippers_mib:.0f} MiB", None, None),
        ("largest memory of the observer", f"{memory_mib:.0f} MiB", OBSERVER_MEMORY, memory_mib),
        ("questions a second to each broker", f"{rates:.0f}", None, None),
    ]


def _snapshots(folder: Path) -> int:
    """Brokers of which a snapshot is complete: every topic was asked since it began."""
    found = 0
    for number in range(BROKERS):
        spool = folder / "large" / f"broker-{number}" / "observer" / "spool"
        found += any(b"each asked since" in path.read_bytes() for path in spool.glob("*.seg"))
    return found


def _asked_about_groups(folder: Path) -> int:
    """Brokers that were asked about every group."""
    return (folder / "played.log").read_text().count(ALL_GROUPS)


def _questions(folder: Path) -> int:
    """That were asked, over all brokers, as the newest looks show."""
    newest = {}
    for line in (folder / "played.log").read_text().splitlines()[1:]:
        name, _, counts = line.partition(" ")
        if "=" not in counts:
            continue
        newest[name] = sum(int(count) for count in re.findall(r"=(\d+)", counts))
    return sum(newest.values())


def _largest_mib(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None, os.strerror(0)
    return int(found[1]) / 1024


def main() -> None:
    """Print the table, or play the cluster."""
    if sys.argv[1:] == ["play"]:
        asyncio.run(play())
        return
    seconds = float(sys.argv[1]) if sys.argv[1:] else WATCHED_S
    title = f"{TOPICS:,} topics × {GROUPS:,} groups on {BROKERS} brokers, each {PERIOD_S} s"
    table = Table("", "figure", "bar", title=title)
    with TemporaryDirectory(prefix="tidemark-bench-") as folder:
        for what, figure, bar, value in watched(Path(folder), seconds):
            is_missed = bar is not None and (value is None or not bar.is_held(value))
            table.add_row(what, figure, f"{bar or ''}{' (missed)' if is_missed else ''}")
    console = Console(width=110)
    console.print(table)
    with TemporaryDirectory(prefix="tidemark-bench-") as folder:
        console.print(table_of_sends(Path(folder), min(seconds, SECONDS)))


if __name__ == "__main__":
    main()
