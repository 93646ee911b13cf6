"""The stories that hold on Apache RocketMQ hold on our engine, over TCP."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.integration.client.filter_stories import FILTER_STORIES
from tests.integration.client.heartbeat_stories import HEARTBEAT_STORIES
from tests.integration.client.pull_stories import PULL_STORIES
from tests.integration.client.stories import STORIES, Story
from tests.interop.our_engine import OurEngine


@pytest.mark.parametrize(
    "story",
    [*STORIES, *FILTER_STORIES, *PULL_STORIES, *HEARTBEAT_STORIES],
    ids=lambda story: story.__name__,
)
def test_on_our_engine(story: Story, engine: OurEngine, tmp_path: Path) -> None:
    asyncio.run(story(engine, tmp_path))
