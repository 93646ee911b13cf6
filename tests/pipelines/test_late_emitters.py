"""A broker that is cut off from the lake, and reports later: what it changes is a revision, what
was known before can be read for ever, and both can be computed again from bronze.
"""

from __future__ import annotations

import random
import shlex
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

from engine.foundation.errors import ConfigError, LakeError
from pipelines import commands, tm
from pipelines.base.settings import Pace
from pipelines.cycles.plan import last_done
from pipelines.cycles.replaying import (
    cuts_of_cycle,
    differences,
    evaluation_of,
    judged_part,
    replay,
)
from pipelines.lake.lake import Lake
from pipelines.reading.catalogue import COMPUTED_TABLES
from pipelines.tm import LakeHandle, Result
from tests.pipelines.cluster_story import ClusterStory, moment
from tests.pipelines.gold_lake import SHORT, everything
from tests.pipelines.in_process import driver_of, in_process, run_to_the_end

pytestmark = pytest.mark.timeout(900)

CUT_OFF, BACK, END = 40, 120, 140
"""Seconds in which broker-b reaches the lake until, and again from."""
SHIP_EVERY, NEVER = 10, 10**9
"""Seconds from shipment to shipment."""
B = "cluster-1/broker-b/0"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two brokers with the same groups. A listener on broker-b hangs while nobody hears of it."""
    return write_story(tmp_path_factory.mktemp("late") / "lake", comes_late=True)


def write_story(
    lake: Path, *, comes_late: bool, kills: random.Random | None = None, judges: bool = True
) -> Path:
    """The story, judged as it goes, or left to be; with `kills` runs are killed at random moments
    first.
    """
    a, b = (ClusterStory(lake, seed=n, broker=f"broker-{x}") for n, x in enumerate("ab", 1))
    for story in (a, b):
        story.group("orders", ["orders-1", "orders-2"])
        story.group("mails", ["mails-1"], queues=1)

    def both(seconds: int, *, b_ships: bool = True) -> None:
        for _ in range(0, seconds, 20):
            a.run(20, ship_every=SHIP_EVERY)
            b.run(20, ship_every=SHIP_EVERY if b_ships else NEVER)
            if kills is not None and kills.random() < 0.5:
                killed(lake, after_s=kills.random() * 0.4)
            if judges:
                run_to_the_end(driver_of(lake, evaluation=SHORT, rows_per_cycle=300))

    both(CUT_OFF)
    b.freeze(b.queue("orders", 0))
    both(BACK - CUT_OFF, b_ships=not comes_late)
    both(END - BACK)
    return lake


def killed(lake: Path, *, after_s: float) -> None:
    """A run that ends by SIGKILL."""
    command = [sys.executable, "-m", "tests.pipelines.in_process", str(lake), "300"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        run.stdout.readline()  # It has begun.
        time.sleep(after_s)
        run.kill()


def at(second: int) -> datetime:
    """A moment of the story."""
    return datetime.fromtimestamp(moment(second) / 1_000_000, UTC)


def questions(handle: LakeHandle, as_of: datetime | int | None) -> dict[str, Result]:
    """Every question about the state of things."""
    return {
        "groups": handle.groups(as_of=as_of),
        "lag": handle.lag("orders", as_of=as_of),
        "stalls": handle.stalls(as_of=as_of),
        "duplicates": handle.duplicates(as_of=as_of),
        "ownership": handle.ownership(as_of=as_of),
        "rebalances": handle.rebalances(as_of=as_of),
        "sql": handle.sql("SELECT count(*) AS rows FROM consumer_lag", as_of=as_of),
    }


def digests(handle: LakeHandle, as_of: datetime | int | None) -> dict[str, str]:
    """What the answers are, to the byte."""
    return {name: one.digest for name, one in questions(handle, as_of).items()}


def the_cycle_that_knew(handle: LakeHandle, second: int) -> int:
    """The cycle at which a moment was first reported."""
    answer = handle.stalls(as_of=at(second))
    return int(answer.verdict.split("as_of=")[1].split(" ")[0])


def test_what_an_emitter_reports_late_are_the_rows_it_would_have_reported_in_time(
    lake: Path, tmp_path: Path
) -> None:
    reported = write_story(tmp_path / "in-time", comes_late=False, judges=False)
    run_to_the_end(driver_of(reported, evaluation=SHORT))
    in_time = everything(reported)
    late = everything(lake)
    # Of each shipment emitter_health has a row; a backlog is fewer, longer ones.
    del late["emitter_health"], in_time["emitter_health"]
    assert late == in_time


def test_a_moment_that_a_late_emitter_reported_is_revised_and_says_so(lake: Path) -> None:
    handle = tm.connect(lake)
    now = handle.stalls(as_of=at(100))
    assert now.df["broker"].to_list() == ["broker-b"]
    assert now.revised_at is not None
    said = f"This was revised at cycle {now.revised_at}: {B} has reported late; as_of="
    assert said in now.verdict
    assert the_cycle_that_knew(handle, 100) < now.revised_at


def test_what_was_known_before_is_read_by_its_cycle(lake: Path) -> None:
    handle = tm.connect(lake)
    cycle = the_cycle_that_knew(handle, 100)
    then = handle.stalls(as_of=cycle)
    assert len(then) == 0, "nobody could know"
    assert f"{B} only to" in then.verdict
    revised_at = handle.stalls(as_of=at(100)).revised_at
    assert f"This was revised since, at cycle {revised_at}: {B}" in then.verdict
    assert (then.cycle, then.run_id) == (cycle, handle.groups().run_id)


def test_a_moment_before_the_emitter_was_cut_off_was_never_revised(lake: Path) -> None:
    handle = tm.connect(lake)
    for as_of in (at(CUT_OFF - 20), at(END), None):
        answer = handle.stalls(as_of=as_of)
        assert answer.revised_at is None
        assert "evised" not in answer.verdict


def test_a_cycle_that_has_half_of_the_backlog_is_not_the_one_that_revised(lake: Path) -> None:
    """The backlog is worked off in several cycles: the last that brought rows of the moment."""
    handle = tm.connect(lake)
    revised_at = handle.stalls(as_of=at(100)).revised_at
    assert revised_at is not None
    assert digests(handle, at(100)) != digests(handle, revised_at - 1)
    b_judged_to = {
        cycle: next(cut.time_to_us for cut in cuts_of_cycle(handle.lake, cycle) if cut.emitter == B)
        for cycle in (revised_at - 1, revised_at)
    }
    assert b_judged_to[revised_at - 1] < moment(100) <= b_judged_to[revised_at]


def test_an_answer_is_the_same_to_the_byte_whatever_upkeep_has_done(
    lake: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "lake"
    shutil.copytree(lake, kept)
    handle = tm.connect(kept)
    cycle = the_cycle_that_knew(handle, 100)
    before = {as_of: digests(handle, as_of) for as_of in (cycle, at(100))}
    for table in (*COMPUTED_TABLES,):
        gold = DeltaTable(str(kept / "gold" / table.name))
        gold.optimize.compact()
        gold.vacuum(0, enforce_retention_duration=False, dry_run=False)
        gold.create_checkpoint()
        gold.cleanup_metadata()
    DeltaTable(str(kept / "state" / "plans")).optimize.compact()
    again = tm.connect(kept)
    assert {as_of: digests(again, as_of) for as_of in (cycle, at(100))} == before


def test_what_gold_no_longer_keeps_is_computed_again_up_to_the_cycle_and_is_the_same_to_the_byte(
    lake: Path, tmp_path: Path
) -> None:
    handle = tm.connect(lake)
    cycle = the_cycle_that_knew(handle, 100)
    side = Lake.at(str(tmp_path / "side"))
    computed = recomputed(handle.lake, side, cycle)
    there = last_done(side)
    assert there is not None
    assert {(one.emitter, one.seq_to) for one in there.cuts} == {
        (one.emitter, one.seq_to) for one in cuts_of_cycle(handle.lake, cycle)
    }
    assert digests(tm.connect(side.root), None) == digests(handle, cycle)
    found = list(differences(handle.lake, side, judged_part(computed, handle.lake)))
    assert all(one.is_none for one in found), "\n".join(map(str, found))


def recomputed(live: Lake, side: Lake, cycle: int) -> tuple[object, ...]:
    """What was known at a cycle, from bronze."""
    return replay(
        in_process,
        live,
        side,
        from_us=0,
        to=cuts_of_cycle(live, cycle),
        evaluation=evaluation_of(live),
        pace=Pace(rows_per_cycle=1_000),
        say=print,
    )


def test_a_day_that_gold_no_longer_keeps_is_no_answer_about_nothing(
    lake: Path, tmp_path: Path
) -> None:
    aged = tmp_path / "lake"
    shutil.copytree(lake, aged)
    handle = tm.connect(aged)
    for name in ("consumer_lag", "group_state"):
        table = DeltaTable(str(aged / "gold" / name))
        rows = table.to_pyarrow_table()
        table.delete()
        moved = rows.set_column(
            rows.schema.get_field_index("observed_date"),
            rows.schema.field("observed_date"),
            [[day + timedelta(days=1) for day in rows["observed_date"].to_pylist()]],
        )
        write_deltalake(table, moved, mode="append")
    with pytest.raises(LakeError, match=r"nothing before 2026-03-02.*--cycle 3 --into PLACE"):
        handle.groups(as_of=3)
    with pytest.raises(LakeError, match=r"pipeline replay .*--to 2026-03-01T12:00:30") as refused:
        handle.groups(as_of=at(30))
    _, advised, _ = str(refused.value).split("`")
    place = tmp_path / "place"
    words = [str(place) if word == "PLACE" else word for word in shlex.split(advised)]
    done = CliRunner().invoke(commands.app, words[1:])
    assert done.exit_code == 0, done.output
    computed, live = (tm.connect(one).groups(as_of=at(30)) for one in (place, lake))
    assert computed.rows.equals(live.rows)


def test_a_cycle_that_there_never_was_is_refused(lake: Path) -> None:
    with pytest.raises(ConfigError, match="a complete cycle, 1 to"):
        cuts_of_cycle(Lake.at(str(lake)), 10_000)


def test_a_range_of_the_past_with_a_late_emitter_in_it_is_equal_in_all_columns(
    lake: Path, tmp_path: Path
) -> None:
    live, side = Lake.at(str(lake)), Lake.at(str(tmp_path / "side"))
    computed = replay(
        in_process,
        live,
        side,
        from_us=moment(60),
        to=moment(END - 10),
        evaluation=evaluation_of(live),
        pace=Pace(rows_per_cycle=700),
        say=print,
    )
    found = list(differences(live, side, judged_part(computed, live)))
    assert all(one.is_none for one in found), "\n".join(map(str, found))
    assert {one.table for one in found if one.rows} >= {"consumer_lag", "stalled_windows"}


@pytest.mark.slow
def test_a_live_run_that_was_killed_again_and_again_beside_a_late_emitter_equals_its_replay(
    lake: Path, tmp_path: Path
) -> None:
    fought = write_story(tmp_path / "lake", comes_late=True, kills=random.Random(7))
    assert everything(fought) == everything(lake)
    done = CliRunner().invoke(
        commands.app,
        [
            *("pipeline", "replay", "--lake", str(fought), "--into", str(tmp_path / "side")),
            *("--from", "2026-03-01T12:01:00Z", "--to", "2026-03-01T12:02:10Z", "--compare"),
        ],
    )
    assert done.exit_code == 0, done.output
    equal = [line for line in done.output.splitlines() if line.endswith(", equal")]
    assert len(equal) == len(COMPUTED_TABLES)


def test_the_command_computes_what_was_known_at_a_cycle(lake: Path, tmp_path: Path) -> None:
    handle = tm.connect(lake)
    cycle, side = the_cycle_that_knew(handle, 100), tmp_path / "side"
    words = ["pipeline", "replay", "--lake", str(lake), "--into", str(side)]
    done = CliRunner().invoke(commands.app, [*words, "--cycle", str(cycle), "--compare"])
    assert done.exit_code == 0, done.output
    assert digests(tm.connect(side), None) == digests(handle, cycle)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--cycle", "3", "--to", "2026-03-01T13:00"], "or --cycle in its place"),
        ([], "or --cycle in its place"),
        (["--from", "2026-03-01T12:00"], "or --cycle in its place"),
        (["--cycle", "10000"], "a complete cycle, 1 to"),
    ],
)
def test_a_replay_has_one_end(lake: Path, tmp_path: Path, words: list[str], said: str) -> None:
    whole = ["pipeline", "replay", "--lake", str(lake), "--into", str(tmp_path / "side"), *words]
    done = CliRunner().invoke(commands.app, whole)
    assert isinstance(done.exception, ConfigError)
    assert said in str(done.exception)
