"""Row C9: what a group gets again when another node leads its broker, as windows of risk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.lake.lake import Lake
from pipelines.marts import duplicate_risk_windows, offset_violations
from pipelines.marts.declared import in_order
from pipelines.marts.risks import fail_overs
from pipelines.reading.moment import last_complete
from pipelines.reading.reading import OpenTables, Reading
from tests.amounts import examples
from tests.pipelines import partition
from tests.pipelines.bronze_lake import BronzeWriter
from tests.pipelines.gold_lake import SHORT, compute, gold
from tests.pipelines.in_process import driver_of, run_to_the_end
from tests.pipelines.marts.literal_facts import EXPOSURES

FORMER, LEADER = "cluster-1/broker-a/0", "cluster-1/broker-a/77"
QUEUE = {"group": "g", "topic": "t", "queue_id": 0}
TABLE = duplicate_risk_windows.MART.name
STEPS = in_order([EXPOSURES, fail_overs.STEP, offset_violations.MART, duplicate_risk_windows.MART])
LED_S = 55
LATE_S = 200
SHIPPED_S = (60, 80, 101, 140, 180, 210)


class Pair:
    """Two nodes of a broker; the first dies at 52 s, and the second leads from LED_S on."""

    def __init__(self, lake: Path) -> None:
        self.former, self.leader = BronzeWriter(lake), BronzeWriter(lake)
        self.former.emitter, self.leader.emitter = FORMER, LEADER

    def mark(self, node: BronzeWriter, second: float, committed: int | None, **given: Any) -> None:
        node.at(second)
        row = {"committed": committed, "pulled": committed, "last_puller": "c1", **QUEUE, **given}
        ends = {"committed_state": "EXACT", "min_offset": 0, "max_offset": 1000, "reports": 1}
        node.report("group_watermarks", **{**ends, **row})

    def role(self, node: BronzeWriter, second: float, role: str, epoch: int) -> None:
        node.at(second)
        node.report("lifecycle", kind="ROLE_CHANGE", role=role, term=epoch)

    def window(self, node: BronzeWriter, second: float, client_committed: int, **own: Any) -> None:
        node.at(second)
        row = {"client_id": "c1", "client_committed": client_committed, "takes_all": True, **own}
        held = {"held_count": 3, "held_bytes": 9, "locked": False, "dropped": False}
        node.report("client_windows", **held, **QUEUE, **row)

    def follows(self, until: int) -> None:
        """What the later leader ships while it follows: that it is there."""
        for second in range(0, until, 20):
            self.leader.at(second)
            self.leader.ship(shipped_s=second)

    def before(self, **last: Any) -> None:
        """Up to the death: committed 100, pulled 130, and its client had finished up to 110."""
        self.role(self.former, 0, "MASTER", 1)
        self.role(self.leader, 0, "SLAVE", 1)
        self.mark(self.former, 10, 40)
        self.former.ship(shipped_s=10)
        self.follows(50)
        self.window(self.former, 48, 110)
        self.mark(self.former, 50, 100, **{"pulled": 130, **last})
        self.former.ship(shipped_s=50.5)

    def after(self, *found: tuple[float, int | None]) -> None:
        """What the new leader reports: (second, committed)."""
        self.role(self.leader, LED_S, "MASTER", 2)
        left = list(found)
        for end in SHIPPED_S:
            while left and left[0][0] < end:
                self.mark(self.leader, *left.pop(0), pulled=None)
            self.leader.at(end)
            self.leader.ship(shipped_s=end)


def windows(lake: Path) -> list[tuple[Any, ...]]:
    names = ("revision", "state", "from_offset", "to_offset", "certain_messages", "outcome")
    rows = [row for row in gold(lake, TABLE) if row["basis"] == "FAIL_OVER"]
    return [tuple(row[name] for name in names) for row in rows]


def test_what_the_former_leader_had_delivered_beyond_the_new_ones_offset(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.before()
    pair.after((56, 80), (110, 120), (130, 140))
    compute(tmp_path)
    assert windows(tmp_path) == [
        (1, "OPEN", 80, 130, 30, "POSSIBLE"),
        (2, "CLOSED", 80, 130, 30, "POSSIBLE"),
    ]
    first, last = (row for row in gold(tmp_path, TABLE) if row["cause"] == "FAIL_OVER")
    assert (first["emitter"], first["uncertain_messages"]) == (LEADER, 20)
    assert (first["opened_at"].minute, first["opened_at"].second) == (0, LED_S)
    assert (last["closed_at"].minute, last["closed_at"].second) == (2, 10)
    assert (last["redelivered_messages"], last["redelivered_unknown_reason"]) == (None, "FAIL_OVER")
    assert first["evidence"] == (
        "Group g risks a second delivery of 50 messages of queue 0 of t on broker-a, [80, 130), "
        "since 12:00:55 UTC: another node leads the broker, readers are given 80, and the group "
        "was at 130. See whether its listeners take a message twice without harm."
    )
    moment = last_complete(Lake.at(str(tmp_path)))
    assert moment is not None
    seen = Reading(OpenTables(Lake.at(str(tmp_path))), moment).windows(TABLE)
    assert seen.filter(seen["cause"] == "FAIL_OVER")["state"].to_list() == ["CLOSED"]


@pytest.mark.parametrize(
    ("last", "found"),
    [
        pytest.param({}, ((56, 130),), id="the new leader has it all"),
        pytest.param({}, ((56, 200),), id="and more"),
        pytest.param({}, ((56, None),), id="the offset is unknown"),
        pytest.param({"message_model": "BROADCASTING"}, ((56, 80),), id="a group that broadcasts"),
        pytest.param({}, ((150, 80),), id="a queue that is reported later"),
    ],
)
def test_no_window_where_nothing_comes_again_or_nobody_knows(
    tmp_path: Path, last: dict[str, Any], found: tuple[tuple[float, int | None], ...]
) -> None:
    pair = Pair(tmp_path)
    pair.before(**last)
    pair.after(*found)
    compute(tmp_path)
    assert windows(tmp_path) == []


def test_a_leader_that_is_elected_again_takes_over_from_itself(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.before()
    pair.after((56, 80), (110, 140))
    pair.role(pair.leader, 250, "NONE", 2)
    pair.role(pair.leader, 251, "MASTER", 3)
    pair.mark(pair.leader, 252, 90, pulled=None)
    pair.mark(pair.leader, 254, 95, pulled=120)
    for second in (255, 300, 330):
        pair.leader.at(second)
        pair.leader.ship(shipped_s=second)
    compute(tmp_path)
    assert [row[0] for row in windows(tmp_path)] == [1, 2]


@pytest.mark.parametrize(
    "end",
    [
        {"kind": "TOPIC_GONE", "topic": "t"},
        {"kind": "GROUP_GONE", "group": "g"},
        {"kind": "ROLE_CHANGE", "role": "SLAVE", "term": 5},
    ],
    ids=lambda end: str(end["kind"]),
)
def test_a_window_ends_with_its_queue_and_with_the_leader(
    tmp_path: Path, end: dict[str, Any]
) -> None:
    pair = Pair(tmp_path)
    pair.before()
    pair.after((56, 80))
    pair.leader.at(250)
    pair.leader.report("lifecycle", **end)
    pair.leader.ship(shipped_s=251)
    compute(tmp_path)
    assert [row[:2] for row in windows(tmp_path)] == [(1, "OPEN"), (2, "CLOSED")]


def test_a_replay_makes_the_rows_of_the_live_run_though_facts_of_the_dead_come_late(
    tmp_path: Path,
) -> None:
    """What it had reported and not shipped comes when its host is back."""
    pair = Pair(tmp_path / "live")
    pair.before()
    pair.after((56, 80), (110, 120), (190, 300))
    made = replayed_alike(tmp_path)
    pair.mark(pair.former, 51.5, 140, pulled=170)
    pair.former.ship(shipped_s=LATE_S)
    assert replayed_alike(tmp_path) == made


def test_a_former_leader_that_lives_on_counts_until_the_change_is_judged(tmp_path: Path) -> None:
    """It goes on for clients that still reach it; cycles take both nodes as they ship."""
    pair = Pair(tmp_path / "live")
    driver = driver_of(tmp_path / "live", evaluation=SHORT)
    pair.before()
    pair.role(pair.leader, LED_S, "MASTER", 2)
    pair.mark(pair.leader, 56, 80, pulled=None)
    for second in range(58, 148, 6):
        pair.mark(pair.former, second, 100 + second)
        pair.former.ship(shipped_s=second + 0.5)
        pair.leader.at(second + 1)
        pair.leader.ship(shipped_s=second + 1.5)
        driver.next_cycle()
    replayed_alike(tmp_path)
    assert windows(tmp_path / "live") == [(1, "OPEN", 80, 194, 114, "POSSIBLE")]


def test_a_node_that_leads_again_is_held_against_who_led_in_between(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "live")
    pair.before()
    pair.role(pair.leader, 55, "MASTER", 2)
    pair.mark(pair.leader, 56, 80)
    pair.mark(pair.leader, 65, 160)
    pair.role(pair.former, 70, "MASTER", 3)
    pair.mark(pair.former, 72, 150)
    pair.mark(pair.former, 74, 700)
    for second in (75, 101, 116, 140):
        for node in (pair.former, pair.leader):
            node.at(second)
            node.ship(shipped_s=second)
    replayed_alike(tmp_path)
    opened = [row[2:4] for row in windows(tmp_path / "live") if row[0] == 1]
    assert opened == [(80, 130), (150, 160)]


def replayed_alike(folder: Path) -> list[dict[str, Any]]:
    """The windows of the live run, which a replay makes as well, in few cycles and in many."""
    live = folder / "live"
    run_to_the_end(driver_of(live, evaluation=SHORT))
    made = gold(live, TABLE)
    for rows_per_cycle in (1_000_000, 8):
        target = folder / f"{rows_per_cycle}-{len(list(folder.iterdir()))}"
        run_to_the_end(
            driver_of(live, evaluation=SHORT, target=target, rows_per_cycle=rows_per_cycle)
        )
        assert gold(target, TABLE) == made
    return made


@pytest.fixture(scope="module")
def bronze(tmp_path_factory: pytest.TempPathFactory) -> partition.Bronze:
    folder = tmp_path_factory.mktemp("lake")
    pair = Pair(folder)
    pair.before()
    pair.after((56, 80), (79, 90), (100.5, 120), (190, 300))
    return partition.bronze_of(folder)


@examples(25, in_full=100)
@given(st.data())
def test_any_cut_of_the_shipments_gives_the_same_windows(
    bronze: partition.Bronze, data: st.DataObject
) -> None:
    ends = data.draw(st.sets(st.integers(0, len(partition.horizons_of(bronze)) - 1)))
    whole = partition.run(STEPS, bronze, SHORT)[TABLE]
    assert partition.run(STEPS, bronze, SHORT, ends=ends)[TABLE] == whole
    assert [row["revision"] for row in whole if row["cause"] == "FAIL_OVER"] == [1, 2]
