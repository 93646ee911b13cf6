"""The engine with a lake: its shipper runs beside it, comes back when it dies, and stops last."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from deltalake import DeltaTable

from engine.protocol.codes import ResponseCode
from pipelines.lake.lake import whole_table
from tests.integration.broker.cluster import GROUP, RawClient
from tests.integration.broker.test_restarts import engine, send_ten, talk

PATIENCE_S = 40


def children_of(process_id: int) -> list[int]:
    """Processes started by a process."""
    listed = Path(f"/proc/{process_id}/task/{process_id}/children").read_text()
    return [int(word) for word in listed.split()]


def shipper_of(process_id: int, *, other_than: int = 0) -> int:
    """The engine's shipper, once it runs."""
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        found = [child for child in children_of(process_id) if child != other_than]
        if found:
            return found[0]
        time.sleep(0.05)
    raise AssertionError(f"the engine started no shipper within {PATIENCE_S} s")


def test_every_fact_is_in_the_lake_after_a_clean_stop_even_when_the_shipper_was_killed(
    tmp_path: Path,
) -> None:
    async def commit_twice(client: RawClient) -> None:
        await send_ten(client)
        await client.heartbeat()
        await client.pull(0)
        assert (await client.commit(4)).code == ResponseCode.SUCCESS
        assert (await client.commit(9)).code == ResponseCode.SUCCESS

    lake = tmp_path / "lake"
    with engine(tmp_path / "store", "--lake", str(lake)) as (process, address):
        first = shipper_of(process.pid)
        os.kill(first, signal.SIGKILL)
        talk(address, commit_twice)
        assert shipper_of(process.pid, other_than=first) != first
        process.terminate()
        assert process.wait(90) == 0
    reports = whole_table(DeltaTable(str(lake / "bronze" / "consume_offsets"))).to_pylist()
    reported = sorted((row["seq"], row["group"], row["offset"]) for row in reports)
    assert [row[1:] for row in reported] == [(GROUP, 4), (GROUP, 9)]
    events = whole_table(DeltaTable(str(lake / "bronze" / "lifecycle"))).to_pylist()
    assert {"BOOT", "RECOVERY", "SHUTDOWN"} <= {row["kind"] for row in events}
