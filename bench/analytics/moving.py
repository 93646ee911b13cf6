"""Puts load on a real broker by sending and committing on every queue once per second.

Place in the walk: the live parts of the analytics; one connection stands for all clients. Each
second a message goes to every queue and every group reports the next offset of every queue; the
last request of a round is waited for, so that the round's moment is that of an answered commit.

Invariant: round n reports offset n on every queue, so that a gold row with a committed offset says
which rounds it has seen. Absent on purpose: pulls and bodies worth reading.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from functools import partial

from bench.turns import Client
from engine.protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData
from engine.protocol.codes import RequestCode

QUEUES = 10
"""Of each topic; every group reads all queues of all topics."""
GROUPS = 100
BEAT_S = 20.0
AT_ONCE = 250
"""Reports between which the loop has other work."""


class Movers:
    """So many keys: queues of groups."""

    def __init__(self, keys: int, *, commits_each: int = 1) -> None:
        """`commits_each`: a group's queue reports in every so manieth round; its head moves in
        all."""
        groups = min(GROUPS, max(1, keys // QUEUES))
        self.topics = [f"topic-{number}" for number in range(keys // groups // QUEUES)]
        self.groups = [f"group-{number:03}" for number in range(groups)]
        self.commits_each = commits_each
        self.rounds: dict[int, dict[int, float]] = {}
        """Wall clock of the answered commits, by offset and by which share of the keys it was."""

    @property
    def keys(self) -> list[tuple[str, str, int]]:
        """Group, topic and queue id of each."""
        return [
            (group, topic, queue_id)
            for group in self.groups
            for topic in self.topics
            for queue_id in range(QUEUES)
        ]

    def share_of(self, number: int) -> int:
        """In which of `commits_each` rounds the key of this number reports."""
        return number % self.commits_each

    async def run(self, host: str, port: int, ended: asyncio.Event) -> None:
        """Move everything, once a second, until it is cancelled."""
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(partial(Client, 1), host, port)
        await self._make_topics(client)
        await self._beat(client)
        beating = asyncio.create_task(self._beats(client))
        self._send(client)  # Whoever reports an offset has got the messages below it before.
        try:
            began_s, number = time.monotonic(), 0
            while not ended.is_set():
                number += 1
                await self._round(client, number)
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(
                        loop.time() + began_s + number - time.monotonic()
                    ):
                        await ended.wait()
        finally:
            beating.cancel()
            client.transport.close()

    def _send(self, client: Client) -> None:
        """A message to every queue."""
        for topic in self.topics:
            for queue_id in range(QUEUES):
                client.send(
                    RequestCode.SEND_MESSAGE,
                    b"x" * 100,
                    producerGroup="movers",
                    topic=topic,
                    defaultTopic="TBW102",
                    defaultTopicQueueNums=QUEUES,
                    queueId=queue_id,
                    sysFlag=0,
                    bornTimestamp=int(time.time() * 1000),
                    flag=0,
                    properties="",
                )

    async def _round(self, client: Client, number: int) -> None:
        self._send(client)
        for place, (group, topic, queue_id) in enumerate(self.keys):
            if self.share_of(place) == number % self.commits_each:
                client.send(
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    b"",
                    consumerGroup=group,
                    topic=topic,
                    queueId=queue_id,
                    commitOffset=number,
                )
            if place % AT_ONCE == 0:
                await asyncio.sleep(0)
        await client.ask(RequestCode.GET_MAX_OFFSET, topic=self.topics[0], queueId=0)
        self.rounds.setdefault(number % self.commits_each, {})[number] = time.time()

    async def _make_topics(self, client: Client) -> None:
        configs = [
            {"topicName": name, "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6}
            for name in self.topics
        ]
        body = json.dumps({"topicConfigList": configs}).encode()
        answer = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body)
        if answer.code:
            raise SystemExit(f"the broker makes no topics: {answer.remark}")

    async def _beats(self, client: Client) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            await self._beat(client)

    async def _beat(self, client: Client) -> None:
        reads = [SubscriptionData.build(topic, "*", sub_version=1) for topic in self.topics]
        data = [
            ConsumerData(group_name=group, subscription_data_set=reads) for group in self.groups
        ]
        body = HeartbeatData(client_id=client.client_id, consumer_data_set=data).encode()
        await client.ask(RequestCode.HEART_BEAT, body)
