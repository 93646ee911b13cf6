"""A demo on three brokers: who is who, who dies, and what of it gold shows."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl

from demo.cast import Roles
from demo.looks import look_for_fail_over
from demo.plan import make_plan
from demo.processes import Actor
from demo.raft_cast import NODES, Ensemble, RaftCast


def roles_in(home: Path) -> Roles:
    return Roles(home=home, lake=home / "lake", namesrv_port=1, broker_port=2, dash_port=3)


def test_each_broker_names_all_three_and_itself_once(tmp_path: Path) -> None:
    cast = RaftCast(make_plan(1, 100), roles_in(tmp_path))
    commands = [actor.arguments for actor in cast.broker.actors]
    peers = {word for one in commands for word in one if word.startswith("dLegerPeers=")}
    assert len(peers) == 1
    assert [f"dLegerSelfId=n{number}" in one for number, one in enumerate(commands)] == [True] * 3
    stores = {one[one.index("--store") + 1] for one in commands}
    ports = {one[one.index("--port") + 1] for one in commands}
    assert len(stores) == len(ports) == NODES


def test_several_processes_play_one_part(tmp_path: Path) -> None:
    says = "print('ready', flush=True); import time; time.sleep(60)"
    actors = [Actor(name, [sys.executable, "-c", says], tmp_path) for name in ("a", "b")]
    part = Ensemble("part", actors, tmp_path)
    part.start_until_ready(within_s=20)
    try:
        assert part.running
        assert part.exit_code is None
        actors[1].kill()
        assert not part.running
        assert part.exit_code == -9
        part.start_until_ready(within_s=20)
        assert part.running
    finally:
        began_s = time.monotonic()
        part.ask_to_stop()
        part.finish()
    assert time.monotonic() - began_s < 10
    assert not any(actor.running for actor in actors)


def test_a_fail_over_is_a_later_epoch_of_the_broker() -> None:
    begin = datetime(2026, 11, 29, 16, 18, tzinfo=UTC)
    rows = pl.DataFrame(
        {
            "observed_at": [begin + timedelta(seconds=10 * number) for number in range(4)],
            "broker": ["broker-a"] * 4,
            "epoch": [1, 1, None, 2],
        }
    )
    found = look_for_fail_over(None, {"replication_health": rows})
    assert found == ("replication_health: epoch 2 of broker-a since 16:18:30 UTC, before it 1")
    assert not look_for_fail_over(None, {"replication_health": rows.head(3)})
    assert not look_for_fail_over(None, {"replication_health": rows.clear()})
