"""Row C5: folders of a broker's store may be volumes of their own, and each of them is measured."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from engine.broker.config import BrokerConfig
from engine.protocol.codes import ResponseCode
from tests.failing_disk import FailingDisk
from tests.integration.broker.cluster import bodies, broker_config, cluster, eventually
from tests.integration.broker.spooled import spooled
from tests.store_support import runtime_on


def measuring_often(folder: Path) -> BrokerConfig:
    config = broker_config(folder)
    store = replace(
        config.store,
        clean_resource_interval_ms=20,
        disk_max_used_ratio=0.75,
        disk_clean_forcibly_ratio=0.85,
        disk_warning_ratio=0.9,
    )
    return replace(config, store=store)


def full_disks_reported(config: BrokerConfig) -> list[str]:
    rows = spooled(Path(config.store.root), "lifecycle")
    return [str(row["detail"]) for row in rows if row["kind"] == "DISK_FULL"]


@pytest.mark.parametrize("folder", ["spool", "config", "store"])
async def test_a_full_volume_without_messages_is_reported_and_the_broker_goes_on(
    tmp_path: Path, folder: str
) -> None:
    disk, config = FailingDisk(), measuring_often(tmp_path)
    disk.ratio = 0.5
    async with cluster(config, runtime_on(disk)) as running:
        client = running.client()
        assert (await client.send(b"before")).code == ResponseCode.SUCCESS
        disk.ratios = {folder: 0.99}

        async def is_reported() -> bool:
            return bool(full_disks_reported(config))

        await eventually(is_reported, f"the full volume of {folder} is reported")
        await asyncio.sleep(0.2)  # More rounds, which find what is known.
        assert (await client.send(b"after")).code == ResponseCode.SUCCESS
        assert bodies(await client.pull(0)) == [b"before", b"after"]
    root = Path(config.store.root)
    path = root if folder == "store" else root / folder
    assert full_disks_reported(config) == [f"disk of {path} 99.0% full; no message goes for it"]


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue", "index"])
async def test_a_full_volume_with_messages_refuses_writes_until_there_is_room(
    tmp_path: Path, folder: str
) -> None:
    disk, config = FailingDisk(), measuring_often(tmp_path)
    disk.ratio = 0.5
    async with cluster(config, runtime_on(disk)) as running:
        client = running.client()
        assert (await client.send(b"before", UNIQ_KEY="k")).code == ResponseCode.SUCCESS

        async def sends_end_with(code: int) -> bool:
            return (await client.send(b"more", queue_id=1, UNIQ_KEY="k")).code == code

        async def is_refused() -> bool:
            return not await sends_end_with(ResponseCode.SUCCESS)

        disk.ratios = {folder: 0.99}
        await eventually(is_refused, f"sends are refused for the volume of {folder}")
        assert bodies(await client.pull(0)) == [b"before"], "reads go on"
        disk.ratios = {}
        await eventually(lambda: sends_end_with(ResponseCode.SUCCESS), "there is room again")
    (reported,) = full_disks_reported(config)[:1]
    assert str(Path(config.store.root) / folder) in reported
