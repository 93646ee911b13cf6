"""Row B1: heartbeats that leave subscriptions out, on any cluster, ours or Apache's."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.client import ClientConfig
from tests.integration.client.cluster_users import (
    Seen,
    client_config,
    consuming,
    eventually,
    producing,
    text,
)
from tests.integration.client.stories import Cluster, Story, make_topic

SHORT, FULL = "said no subscriptions, which it knows", "said all"


class Said(logging.Handler):
    """What heartbeats said, as the client's own log has it."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def forms(self) -> list[str]:
        """SHORT or FULL, in their order."""
        beats = [line for line in self.lines if line.startswith("heartbeat to ")]
        return [form for line in beats for form in (SHORT, FULL) if line.endswith(form)]


@contextmanager
def what_heartbeats_say() -> Iterator[Said]:
    """Listen to the log of the clients of this process."""
    said, log = Said(), logging.getLogger("engine.client.connection.connection")
    level = log.level
    log.addHandler(said)
    log.setLevel(logging.DEBUG)
    try:
        yield said
    finally:
        log.removeHandler(said)
        log.setLevel(level)


def second_version(name_server: str) -> ClientConfig:
    """A client that leaves subscriptions out, several times a second."""
    return client_config(
        name_server, use_heartbeat_v2=True, heartbeat_first_ms=100, heartbeat_ms=100
    )


async def members_that_leave_subscriptions_out_stay_members(cluster: Cluster, folder: Path) -> None:
    topic, group, ns = "PyShort", "py_short_c", cluster.name_server
    await make_topic(cluster, topic)
    one, two = Seen(), Seen()
    client = second_version(ns)
    with what_heartbeats_say() as said:
        async with (
            producing(ns, "py_short") as producer,
            consuming(ns, group, {topic: one}, client=client),
        ):
            async with consuming(ns, group, {topic: two}, client=client):
                await eventually(lambda: said.forms()[-9:] == [SHORT] * 9, "nine short ones")
                for number in range(8):
                    await producer.send(text(topic, f"both {number}"))
                await eventually(lambda: len(one.bodies) + len(two.bodies) == 8, "all eight")
                assert one.bodies, "each member has queues"
                assert two.bodies, "each member has queues"
            for number in range(8):
                await producer.send(text(topic, f"alone {number}"))
            await eventually(
                lambda: sum(body.startswith("alone") for body in one.bodies) == 8,
                "the one that stays gets the rest",
            )
    assert said.forms()[0] == FULL
    everything = sorted(one.bodies + two.bodies)
    assert everything == sorted(
        [f"{who} {number}" for who in ("both", "alone") for number in range(8)]
    )


HEARTBEAT_STORIES: tuple[Story, ...] = (members_that_leave_subscriptions_out_stay_members,)
"""Every story."""
