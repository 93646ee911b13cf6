"""Our client library produces to and consumes from a real Apache RocketMQ.

The real broker is the reference for correct behaviour.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.integration.client.filter_stories import FILTER_STORIES
from tests.integration.client.heartbeat_stories import HEARTBEAT_STORIES
from tests.integration.client.pull_stories import PULL_STORIES
from tests.integration.client.stories import STORIES, Story
from tests.interop.real_rocketmq import RealRocketMQ


@pytest.mark.timeout(180)  # The first one also waits for two JVMs to start.
@pytest.mark.parametrize(
    "story",
    [*STORIES, *FILTER_STORIES, *PULL_STORIES, *HEARTBEAT_STORIES],
    ids=lambda story: story.__name__,
)
def test_on_apache_rocketmq(story: Story, apache_rocketmq: RealRocketMQ, tmp_path: Path) -> None:
    asyncio.run(story(apache_rocketmq, tmp_path))
