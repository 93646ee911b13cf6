"""Two clusters whose group, topic, broker, clients and messages are called the same: in "east" all
is well, in "west" a listener hangs, a client dies, a message fails for good and the broker crashes.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.once_a_run import once_a_run
from tests.pipelines.bronze_lake import SECOND, START_US
from tests.pipelines.cluster_story import ClusterStory
from tests.pipelines.gold_lake import compute

EAST, WEST = "east", "west"
LENGTH_S = 130
START = datetime.fromtimestamp(START_US / SECOND, UTC)
END = START + timedelta(seconds=LENGTH_S)
GROUP, TOPIC, ONLY_WEST = "orders", "topic-orders", "ledger"


BOTH = "both"


def lakes_of_two_clusters(factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A lake of both, and one of each alone: to read."""
    clusters = {BOTH: (EAST, WEST), EAST: (EAST,), WEST: (WEST,)}

    def make(folder: Path) -> None:
        for name, of_lake in clusters.items():
            write_clusters(folder / name, of_lake)

    folder = once_a_run(factory, "two-clusters", make)
    return {name: folder / name for name in clusters}


def write_clusters(lake: Path, clusters: Iterable[str]) -> Path:
    """A lake of these clusters, with its gold."""
    for cluster in clusters:
        story = ClusterStory(lake, cluster=cluster)
        story.group(GROUP, [f"{GROUP}-1", f"{GROUP}-2"])
        (_goes_well if cluster == EAST else _goes_wrong)(story)
        assert story.second <= LENGTH_S
        story.run(LENGTH_S - story.second, ship_every=5)
        story.writer.ship()
    compute(lake)
    return lake


def _goes_well(story: ClusterStory) -> None:
    story.run(50)
    story.join(GROUP, f"{GROUP}-3")


def _goes_wrong(story: ClusterStory) -> None:
    story.group(ONLY_WEST, [f"{ONLY_WEST}-1"], queues=1)
    story.run(20)
    story.freeze(story.queue(GROUP, 0))
    story.run(10)
    for queue in story.lose(GROUP, f"{GROUP}-2", reason="CONNECTION_LOST"):
        story.run(2)
        story.assign(queue, f"{GROUP}-1")
    story.fail(story.queue(GROUP, 1), message_id="POISON", times=2)
    story.run(20)
    story.crash_broker(down_s=3)
