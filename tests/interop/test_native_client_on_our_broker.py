"""A client on RocketMQ's C++ library sends to and consumes from our name server and broker.

It is the native Python package, whose heartbeats name enumerations by number.

Rows: Wire, B1.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.admin import Admin
from engine.protocol.message import MessageQueue
from engine.runtime import system_runtime
from tests.integration.client.cluster_users import client_config
from tests.interop.our_engine import OurEngine, our_engine

TOPIC = "native"
MESSAGES = 12


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the native client says came, and what the broker knows of it."""
    folder = tmp_path_factory.mktemp("native")
    with our_engine(folder, "--set", "messageDelayLevel=1s 1s 1s 1s") as engine:
        done = subprocess.run(
            [sys.executable, "-m", "tests.interop.native_client", engine.name_server, TOPIC],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "HOME": str(folder)},
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1]), asyncio.run(known_of(engine))


async def known_of(engine: OurEngine) -> dict[str, Any]:
    """The end of each queue, and the offsets of each group."""
    async with Admin(system_runtime(), client_config(engine.name_server)) as admin:
        ends: dict[MessageQueue, int] = {
            queue: await admin.offsets.max_offset(queue)
            for queue in await admin.topics.queues(TOPIC)
        }
        offsets = {
            group: {queue: await admin.offsets.consume_offset(group, queue) for queue in ends}
            for group in ("native-shared", "native-orderly", "native-even", "native-all")
        }
        return {"ends": ends, "offsets": offsets}


def bodies(played: tuple[dict[str, Any], dict[str, Any]], group: str) -> list[str]:
    return [message["body"] for message in played[0]["groups"][group]]


@pytest.mark.timeout(180)
def test_what_it_sends_is_stored_in_every_way_of_sending(
    played: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    said, known = played
    assert {status for status, _, _ in said["sent"]} == {0}
    assert sum(known["ends"].values()) == MESSAGES
    orderly = [offset for _, _, offset in said["sent"][-3:]]
    assert orderly == list(range(orderly[0], orderly[0] + 3)), "one queue, one after the other"


@pytest.mark.timeout(180)
def test_its_consumers_get_every_message_and_a_failed_one_again(
    played: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    said, known = played
    everything = {f"body-{number}" for number in range(MESSAGES)}
    assert set(bodies(played, "native-shared")) == everything
    tries = [one["tries"] for one in said["groups"]["native-shared"] if one["body"] == "body-3"]
    assert tries == [0, 1]
    assert everything - {"body-0"} <= set(bodies(played, "native-all"))
    assert len(bodies(played, "native-all")) <= MESSAGES
    assert known["offsets"]["native-shared"] == known["ends"], "its offsets have arrived"
    assert set(known["offsets"]["native-all"].values()) == {None}, "broadcasting keeps its own"


@pytest.mark.timeout(180)
def test_its_orderly_consumer_gets_each_queue_in_order(
    played: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    queues: dict[int, list[int]] = {}
    for message in played[0]["groups"]["native-orderly"]:
        queues.setdefault(message["queue"], []).append(message["offset"])
    assert sum(map(len, queues.values())) == MESSAGES
    assert all(offsets == list(range(len(offsets))) for offsets in queues.values())


@pytest.mark.timeout(180)
def test_its_tags_select(played: tuple[dict[str, Any], dict[str, Any]]) -> None:
    assert {one["tags"] for one in played[0]["groups"]["native-even"]} == {"even"}
    assert sorted(bodies(played, "native-even")) == sorted(
        f"body-{number}" for number in range(0, MESSAGES, 2)
    )
