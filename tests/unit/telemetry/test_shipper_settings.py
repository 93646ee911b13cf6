"""What the shipper's command makes of its surroundings before it touches anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.foundation.errors import ConfigError
from engine.telemetry.commands import lake_address, storage_options


@pytest.mark.parametrize("lake", ["s3://bucket/lake", "file:///data/lake"])
def test_a_uri_stays_as_it_is(lake: str) -> None:
    assert lake_address(lake) == lake


@pytest.mark.parametrize("lake", ["bogus://x", "hdfs://box/lake", "://", "", " "])
def test_a_lake_that_the_pipelines_could_not_read_is_refused_by_name(lake: str) -> None:
    with pytest.raises(ConfigError, match=r"file://\.\.\. or s3://") as refused:
        lake_address(lake)
    assert refused.value.value == lake


def test_a_folder_is_known_by_its_absolute_path(tmp_path: Path) -> None:
    relative = os.path.relpath(tmp_path / "lake")
    assert Path(lake_address(relative)).is_absolute()
    assert lake_address(str(tmp_path / "lake")) == str(tmp_path / "lake")


def test_object_stores_get_the_settings_of_their_own_tools_and_no_more() -> None:
    environment = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
        "PATH": "/bin",
        "DATABASE_PASSWORD": "secret",
    }
    assert storage_options(environment) == {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
    }
