"""One Spark session and one story for every test that asks for them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.lake.session import open_session
from tests.pipelines.gold_lake import compute
from tests.pipelines.incident_story import write_incidents


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of the pipelines, with their own settings."""
    session = open_session()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def incident_bronze(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake that has only its bronze: read it, copy it, leave it as it is."""
    lake = tmp_path_factory.mktemp("story") / "lake"
    write_incidents(lake)
    return lake


@pytest.fixture(scope="session")
def computed_lake(fresh_lake: Callable[[], Path]) -> Path:
    """The same lake with its gold, computed in one cycle."""
    lake = fresh_lake()
    compute(lake)
    return lake


@pytest.fixture(scope="session")
def fresh_lake(
    incident_bronze: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], Path]:
    """Makes copies of the lake without gold."""

    def copy() -> Path:
        lake = tmp_path_factory.mktemp("copy") / "lake"
        shutil.copytree(incident_bronze, lake)
        return lake

    return copy
