"""Row C9: leadership goes from one node of a broker to another while a group consumes. In gold it
is one broker all the time, and each moment has one report of a queue.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.protocol.codes import ResponseCode
from engine.runtime import system_runtime
from engine.telemetry.shipper.shipper import Shipper
from expectations.checkpoints import look
from expectations.memory import Memory
from pipelines.lake.lake import Lake, whole_table
from pipelines.reading.fail_overs import fail_overs_in
from pipelines.reading.moment import last_complete
from pipelines.reading.reading import OpenTables, Reading
from tests.checked_lake import broken, in_this_process
from tests.integration.broker.master_and_slaves import Replicated, replicated
from tests.integration.broker.spooled import spooled, spooled_in_order
from tests.integration.broker.test_promotion import EPOCH, order, promote
from tests.integration.client.cluster_users import Seen, consuming, eventually, producing, text
from tests.integration.telemetry.bronze_rows import assert_exactly_once, read_all
from tests.pipelines.in_process import driver_of, run_to_the_end
from tests.pipelines.live_play import QUICK, SAMPLES

pytestmark = pytest.mark.timeout(180)
TOPIC, GROUP = "orders", "billing"


async def hand_over(stage: Replicated) -> None:
    """The slave leads, and the former master follows it."""
    assert stage.slave is not None
    master = stage.master.broker.address
    assert await order(master, "HOLD") == (ResponseCode.SUCCESS, "")
    await stage.caught_up()
    assert await promote(stage.slave.address) == (ResponseCode.SUCCESS, "")
    demoted = await order(master, "DEMOTE", epoch=EPOCH, brokerId=5)
    assert demoted == (ResponseCode.SUCCESS, "")


async def play(folder: Path) -> int:
    """How many messages were sent and consumed before and after a change of the leader."""
    seen = Seen()
    async with replicated(
        folder, telemetry=True, auto_create_topic_enable=True, **SAMPLES
    ) as stage:
        names = stage.master.name_server_address
        async with (
            producing(names, "makers") as producer,
            consuming(names, GROUP, {TOPIC: seen}),
        ):
            for part in range(2):
                for number in range(30):
                    await producer.send(text(TOPIC, f"{part}/{number}"))
                await eventually(partial(has_all, seen, 30 * (part + 1)), "all are consumed")
                await asyncio.sleep(3)  # Offsets are reported, and marks sampled.
                if part == 0:
                    await hand_over(stage)
                    await asyncio.sleep(2.5)  # Routes are polled each second.
        await asyncio.sleep(1.5)
    return len({message.body for message in seen.messages})


def has_all(seen: Seen, count: int) -> bool:
    return len({message.body for message in seen.messages}) >= count


def role_rows(store: Path) -> list[tuple[str, int]]:
    return [
        (row["role"], row["term"])
        for row in spooled(store, "lifecycle")
        if row["kind"] == "ROLE_CHANGE"
    ]


def kinds_after(store: Path, role: str) -> set[str]:
    """Tables of what a node reported behind its last change to a role."""
    rows = spooled_in_order(store)
    last = max(seq for seq, _, row in rows if row.get("role") == role)
    return {table for seq, table, _ in rows if seq > last}


async def test_gold_has_one_broker_over_a_change_of_its_leader(tmp_path: Path) -> None:
    sent = await play(tmp_path)
    first, second = tmp_path / "master" / "store", tmp_path / "slave" / "store"
    assert role_rows(first) == [("MASTER", 1), ("NONE", 1), ("SLAVE", EPOCH)]
    assert role_rows(second)[0][0] == "SLAVE"
    assert role_rows(second)[-1] == ("MASTER", EPOCH)
    assert kinds_after(first, "NONE") <= {"lifecycle"}, "who follows reports on itself alone"
    assert {"group_watermarks", "queue_watermarks"} <= kinds_after(second, "MASTER")

    for store in (first, second):
        Shipper(system_runtime(), str(store / "spool"), str(tmp_path / "lake"), {}).ship_all()
    await asyncio.to_thread(run_to_the_end, driver_of(tmp_path / "lake", evaluation=QUICK))
    lake = Lake.at(str(tmp_path / "lake"))
    bronze = read_all(tmp_path / "lake")
    emitters = {row["emitter"] for row in bronze["lifecycle"]}
    assert len(emitters) == 2
    for emitter in emitters:
        assert_exactly_once(bronze, emitter)

    moment = last_complete(lake)
    assert moment is not None
    (leader,) = moment.there
    (former,) = moment.ended
    assert former.follows
    reading = Reading(OpenTables(lake), moment)
    lag = reading.newest("consumer_lag", f"topic = '{TOPIC}'")
    assert set(lag["emitter"]) == {leader.emitter}
    assert int(lag["max_offset"].sum()) == int(lag["committed"].sum()) == sent
    states = reading.newest("group_state", f"\"group\" = '{GROUP}'")
    assert states["state"].to_list() == ["OK"], "one broker has it, all the time"
    moments: dict[str, list[datetime]] = {former.emitter: [], leader.emitter: []}
    for row in reading.rows("consumer_lag", f"topic = '{TOPIC}'").iter_rows(named=True):
        moments[row["emitter"]].append(row["observed_at"])
    assert max(moments[former.emitter]) < min(moments[leader.emitter]), "none is reported twice"
    assert gold(lake, "duplicate_risk_windows") == []
    (change,) = fail_overs_in(reading, former.judged_to, moment.newest or former.judged_to).rows(
        named=True
    )
    assert (change["emitter"], change["epoch"]) == (leader.emitter, EPOCH)
    assert change["queues"] >= lag.height
    costs = (change["at_risk_messages"], change["queues_unknown"])
    assert costs == (0, 0), "tables were copied"
    assert reading.windows("stalled_windows", "state = 'OPEN'").is_empty()
    now = max(row["observed_at"] for row in gold(lake, "consumer_lag"))
    checked = await asyncio.to_thread(look, lake, in_this_process, Memory(), now=now)
    assert broken(checked) == {}


def gold(lake: Lake, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = whole_table(lake.table(lake.gold(table))).to_pylist()
    return rows
