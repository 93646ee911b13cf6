"""A broker that does not flush, a delay level that stands, and a slave that hangs: reported from
outside, and in gold.
"""

from __future__ import annotations

from pathlib import Path

from engine.protocol.bodies_admin import HaConnectionInfo, HaRuntimeInfo
from engine.protocol.codes import RequestCode as Code
from engine.runtime import system_runtime
from engine.telemetry.shipper.shipper import Shipper
from pipelines.base.settings import Evaluation
from tests.integration.broker.cluster import eventually
from tests.integration.observer.played_cluster import PlayedBroker, observing, ok, played_cluster
from tests.needed_steps import needed_for
from tests.pipelines.partition import bronze_of, run


async def test_a_log_that_is_not_flushed_and_a_level_that_stands_are_in_gold(
    tmp_path: Path,
) -> None:
    broker = PlayedBroker("broker-a")
    home = tmp_path / "home"
    broker.figures = {
        "commitLogMaxOffset": "1000000",
        "remainHowManyDataToFlush": "0 B",
        "scheduleMessageOffset_1": "7,9",
    }
    async with played_cluster(home, broker) as cluster, observing(cluster):

        async def is_late() -> bool:
            levels = cluster.reported(broker, "delay_levels")
            return bool(levels) and levels[-1]["overdue"] == 2

        await eventually(is_late, "what is overdue is reported", within_s=20)
        broker.figures["commitLogMaxOffset"] = "2000000"
        broker.figures["remainHowManyDataToFlush"] = "976.6 KiB"

        async def is_reported() -> bool:
            return len(cluster.reported(broker, "flush_checkpoints")) > 2

        await eventually(is_reported, "what is not flushed is reported")

        until_us = cluster.horizon_us(broker) + 21_000_000

        async def is_past() -> bool:
            return cluster.horizon_us(broker) > until_us

        await eventually(is_past, "ten seconds are over", within_s=60)
    spool = home / "c1" / "broker-a" / "observer" / "spool"
    Shipper(system_runtime(), str(spool), str(tmp_path / "lake"), {}).ship_all()
    steps = needed_for("flush_health", "delayed_retries")
    gold = run(steps, bronze_of(tmp_path / "lake"), Evaluation())
    delayed = gold["delayed_retries"][-1]
    assert [delayed[name] for name in ("group", "delay_ms", "waiting", "overdue")] == [
        *("*", 1000),
        *(2, 2),
    ]
    health = gold["flush_health"][-1]
    assert (health["flushes"], health["power_cut_messages"]) == (0, 1)
    assert 970 * 1024 < health["power_cut_bytes"] < 980 * 1024
    assert (health["flush_us_max"], health["provenance"]) == (None, "OBSERVED")


async def test_a_slave_that_hangs_under_a_watched_master_is_in_gold(
    tmp_path: Path,
) -> None:
    broker = PlayedBroker("broker-a")
    home = tmp_path / "home"
    broker.figures = {"commitLogMaxOffset": "5000", "remainHowManyDataToFlush": "0 B"}
    slave = HaConnectionInfo(addr="192.0.2.3:40000", slave_ack_offset=4000)
    status = HaRuntimeInfo(master_commit_log_max_offset=5000, ha_connection_info=[slave])
    settings = b"messageDelayLevel=1s\nbrokerRole=SYNC_MASTER\n"
    broker.usual |= {
        Code.GET_BROKER_CONFIG: lambda _, ask: ok(ask, settings),
        Code.GET_BROKER_HA_STATUS: lambda _, ask: ok(ask, status.encode()),
    }
    async with played_cluster(home, broker) as cluster, observing(cluster):

        async def is_reported() -> bool:
            marks = cluster.reported(broker, "flush_checkpoints")
            return any(row["replica"] == slave.addr for row in marks)

        await eventually(is_reported, "what the slave has is reported", within_s=20)
        until_us = cluster.horizon_us(broker) + 11_000_000

        async def is_past() -> bool:
            return cluster.horizon_us(broker) > until_us

        await eventually(is_past, "ten seconds are over", within_s=60)
    spool = home / "c1" / "broker-a" / "observer" / "spool"
    Shipper(system_runtime(), str(spool), str(tmp_path / "lake"), {}).ship_all()
    gold = run(needed_for("replication_health"), bronze_of(tmp_path / "lake"), Evaluation())
    health = gold["replication_health"][0]
    shown = ("mode", "replicas", "loss_bytes", "loss_messages", "unknown_reason", "provenance")
    assert [health[name] for name in shown] == ["SYNC_MASTER", 1, 1000, None, None, "OBSERVED"]
