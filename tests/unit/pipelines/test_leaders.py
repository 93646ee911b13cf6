"""Row C9: of the nodes of a broker the one of the greatest epoch is seen, from its own row on."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.lake.lake import Lake
from pipelines.marts.ended_queues import ENDED_QUEUES
from pipelines.reading.emitters import emitters_at
from pipelines.reading.leaders import ends_of
from pipelines.reading.moment import Moment, Reached, with_own_silences
from pipelines.reading.reading import OpenTables, Reading
from tests.lake_story import append_rows
from tests.pipelines.bronze_lake import BronzeWriter

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
A, B, C = "cluster-1/broker-a/0", "cluster-1/broker-a/77", "cluster-1/broker-a/99"


def at(second: float) -> datetime:
    return NOON + timedelta(seconds=second)


def said(second: float, role: str, term: int) -> dict[str, Any]:
    return {"event_time": at(second), "role": role, "term": term}


def test_who_was_passed_over_has_ended_when_the_other_began() -> None:
    assert ends_of({A: [said(0, "MASTER", 1)], B: [said(1, "SLAVE", 1), said(9, "MASTER", 5)]}) == {
        A: at(9)
    }


def test_who_stepped_down_has_ended_then_and_the_next_leads_from_its_own_row_on() -> None:
    first = [said(0, "MASTER", 1), said(6, "NONE", 1), said(8, "SLAVE", 5)]
    second = [said(1, "SLAVE", 1), said(7, "MASTER", 5)]
    assert ends_of({A: first, B: second}) == {A: at(6)}
    first.append(said(20, "MASTER", 9))
    assert ends_of({A: first, B: second}) == {B: at(20)}, "and back"


def test_who_only_followed_has_ended_when_it_said_so_and_who_never_said_leads_in_epoch_0() -> None:
    assert ends_of({A: [], B: [said(3, "SLAVE", 0)]}) == {B: at(3)}
    assert ends_of({A: [], B: [said(3, "SLAVE", 0), said(7, "MASTER", 1)]}) == {A: at(7)}
    assert ends_of({A: [], B: []}) == {}


@given(
    st.lists(
        st.tuples(st.sampled_from([A, B, C]), st.sampled_from(["MASTER", "SLAVE", "NONE"])),
        max_size=14,
    )
)
def test_at_most_one_node_leads_and_the_greatest_epoch_does(steps: list[tuple[str, str]]) -> None:
    """However roles change, as long as no epoch is taken twice."""
    rows: dict[str, list[dict[str, Any]]] = {A: [], B: [], C: []}
    for number, (node, role) in enumerate(steps, 1):
        rows[node].append(said(number, role, number))
    begun = {node: own for node, own in rows.items() if own}
    leading = [node for node in begun if node not in ends_of(begun)]
    assert len(leading) <= 1
    masters = [row["term"] for own in begun.values() for row in own if row["role"] == "MASTER"]
    for node in leading:
        assert begun[node][-1]["role"] == "MASTER"
        assert begun[node][-1]["term"] == max(masters)


def reported(lake: Path, emitter: str, *events: tuple[float, dict[str, Any]]) -> Reached:
    """These lifecycle rows are in the lake, and all of them were judged."""
    writer = BronzeWriter(lake)
    writer.emitter = emitter
    for second, values in events:
        writer.at(second)
        writer.report("lifecycle", **values)
    writer.ship()
    return Reached(writer.emitter, at(events[-1][0]), writer.seq)


def role(name: str, term: int) -> dict[str, Any]:
    return {"kind": "ROLE_CHANGE", "role": name, "term": term}


def test_nothing_is_seen_of_a_former_master_beyond_the_takeover(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    unaware = reported(tmp_path, A, (0, role("MASTER", 1)), (600, {"kind": "BOOT"}))
    leads = reported(
        tmp_path, B, (1, role("SLAVE", 1)), (90, role("MASTER", 7)), (610, role("MASTER", 7))
    )
    moment = with_own_silences(lake, Moment("run", 1, (unaware, leads)))
    assert [(one.emitter, one.ended_at, one.judged_to) for one in moment.ended] == [
        (A, at(90), at(90))
    ]
    assert moment.silent == ()
    assert moment.unknown == {}
    assert moment.judged_to == moment.least == at(610)
    assert moment.capped(at(80)).ended == (), "it led then"
    reading = Reading(OpenTables(lake), moment)
    kinds = reading.facts("lifecycle")["kind"].to_list()
    assert "BOOT" not in kinds, "what it says later is of no broker"
    rows = {row["emitter"]: row for row in emitters_at(reading).to_dicts()}
    assert rows[A]["state"] == "ENDED"
    assert rows[A]["reason"] == "another node of its broker leads since 12:01:30 UTC"
    assert rows[B]["state"] == "OK"


def test_a_broker_with_one_node_is_not_looked_at(tmp_path: Path) -> None:
    lake = Lake.at(str(tmp_path))
    alone = reported(tmp_path, A, (0, role("MASTER", 1)), (5, role("NONE", 1)))
    assert with_own_silences(lake, Moment("run", 1, (alone,))).ended == ()


def test_what_a_former_master_reported_holds_until_the_new_one_reports_it(tmp_path: Path) -> None:
    ended = Reached(A, at(90), 5, ended_at=at(90), follows=True)
    moment = Moment("run", 1, (ended, Reached(B, at(120), 9)))
    reading = Reading(OpenTables(Lake.at(str(tmp_path))), moment)
    last = pl.DataFrame({"emitter": [A], "state": ["OK"], "group": ["g"]})
    assert reading.present("group_state", last).height == 1
    taken_out = replace(moment, reached=(replace(ended, follows=False), moment.reached[1]))
    gone = Reading(OpenTables(Lake.at(str(tmp_path))), taken_out)
    assert gone.present("group_state", last).is_empty()


def queue_rows(*rows: tuple[str, int, float]) -> pl.DataFrame:
    """Of one queue, as (emitter, seq, second)."""
    queue = {"cluster": "c", "broker": "b", "group": "g", "topic": "t", "queue_id": 0}
    return pl.DataFrame(
        [
            {**queue, "emitter": emitter, "seq": seq, "observed_at": at(second)}
            for emitter, seq, second in rows
        ]
    )


@pytest.mark.parametrize(
    ("last", "ends", "is_there"),
    [
        ((B, 5, 90), [(A, 900, 80)], True),  # A ended when B began to lead; its seqs are higher.
        ((B, 900, 70), [(A, 5, 80)], False),
        ((B, 5, 90), [(B, 5, 80)], False),
        ((B, 6, 90), [(B, 5, 90)], True),
        ((B, 5, 90), [(B, 5, 90), (A, 900, 90)], False),
    ],
)
def test_a_queue_has_ended_by_the_seq_of_its_emitter_and_by_the_time_of_another(
    tmp_path: Path, last: tuple[str, int, float], ends: list[tuple[str, int, float]], is_there: bool
) -> None:
    lake = Lake.at(str(tmp_path))
    date = {"observed_date": NOON.date()}
    rows = [row | date for row in queue_rows(*ends).to_dicts()]
    append_rows(lake.gold(ENDED_QUEUES.name), ENDED_QUEUES.columns, rows, "observed_date")
    moment = Moment("run", 1, (Reached(A, at(120), 900), Reached(B, at(120), 900)))
    found = Reading(OpenTables(lake), moment).present("consumer_lag", queue_rows(last))
    assert found.height == int(is_there)
