"""A master reports how far its slaves are: what its loss would cost now."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from engine.foundation.units import HOUR_MS
from engine.protocol.codes import ResponseCode
from engine.telemetry import Telemetry
from tests.integration.broker.cluster import TOPIC, broker_config, cluster, eventually
from tests.integration.broker.master_and_slaves import replicated
from tests.integration.broker.spooled import spooled


async def test_a_master_reports_what_its_slave_has_and_when_there_is_none(tmp_path: Path) -> None:
    store = tmp_path / "master" / "store"

    def reported() -> list[tuple[bool, int, int | None]]:
        rows = spooled(store, "flush_checkpoints")
        return [
            (row["replica"] is not None, row["written"], row["flushed"])
            for row in rows
            if row["component"] == "REPLICA" and row["cause"] == "SYNC_MASTER"
        ]

    def of_queue() -> tuple[int, int | None]:
        rows = [row for row in spooled(store, "queue_watermarks") if row["topic"] == TOPIC]
        return (rows[-1]["max_offset"], rows[-1]["replicated_offset"]) if rows else (0, None)

    async with replicated(
        tmp_path, telemetry=True, slave_timeout_ms=300, sample_interval_ms=100
    ) as stage:
        client, state = stage.master.client(), stage.master.broker.state
        await stage.caught_up()
        for number in range(3):
            assert (await client.send(b"%d" % number)).code == ResponseCode.SUCCESS
        end = state.store.physical_max

        async def all_is_there() -> bool:
            return (True, end, end) in reported() and of_queue() == (3, 3)

        await eventually(all_is_there, "the slave is reported to have everything")
        await stage.stop_slave()
        assert (await client.send(b"alone")).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        alone = state.store.physical_max

        async def none_has_it() -> bool:
            return (False, alone, None) in reported() and of_queue() == (4, 3)

        await eventually(none_has_it, "it is reported that there is no slave")
        await stage.start_slave()
        await stage.caught_up()

        async def it_caught_up() -> bool:
            return (True, alone, alone) in reported() and of_queue() == (4, 4)

        await eventually(it_caught_up, "a queue that rests is reported to be on the slave")
        assert (await client.send(b"both again")).code == ResponseCode.SUCCESS
        both = state.store.physical_max

        async def again() -> bool:
            return (True, both, both) in reported() and of_queue() == (5, 5)

        await eventually(again, "the slave that came back is reported to have everything")
        kinds = [row["kind"] for row in spooled(store, "lifecycle")]
        of_replicas = [kind for kind in kinds if kind.startswith("REPLICA_")]
        assert of_replicas == ["REPLICA_JOINED", "REPLICA_LOST", "REPLICA_JOINED"]


async def test_a_queue_is_reported_as_its_messages_come_to_a_slave(tmp_path: Path) -> None:
    """Samples are taken by hand, with the ends that a slave may have."""
    hourly = broker_config(tmp_path, telemetry=True, sample_interval_ms=HOUR_MS)
    async with cluster(hourly) as stage:
        client, broker = stage.client(), stage.broker
        ends = []
        for number in range(3):
            assert (await client.send(b"%d" % number)).code == ResponseCode.SUCCESS
            ends.append(broker.state.store.physical_max)
        await broker.state.store.flush()
        for end in (ends[0], ends[0], ends[1], ends[2], ends[2], None):
            broker.state.store.replicated_end = end
            for _ in broker.services.reporters.watermarks.sample(0):
                pass
        cast(Telemetry, broker.state.observer).write_turn()
        rows = spooled(tmp_path / "store", "queue_watermarks")
        on_a_slave = [row["replicated_offset"] for row in rows if row["topic"] == TOPIC]
        assert on_a_slave == [1, 2, 3, None]
