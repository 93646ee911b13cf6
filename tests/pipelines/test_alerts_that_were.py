"""`tm.alerts()`: what became of alerts, asked of the lake long after the database forgot them."""

from __future__ import annotations

import json
import runpy
from datetime import timedelta
from pathlib import Path

import pytest

from engine.foundation.errors import ConfigError
from pipelines import tm
from pipelines.alerting.alerts import Alert, State, entry_of, fingerprint_of
from pipelines.alerting.history import HistoryTable
from pipelines.base.time_units import micros
from pipelines.reading.investigations import filled, of_alert
from tests.gold_lake import END, START, write_gold_lake
from tests.lake_story import CLUSTER

MINUTE_US = 60_000_000
NOTEBOOKS = Path(__file__).parents[2] / "notebooks" / "investigate"


def change(kind: str, state: State, at_min: int, group: str, **said: str) -> tuple[str, Alert, int]:
    at_us = micros(START) + at_min * MINUTE_US
    labels = {"cluster": CLUSTER, "group": group}
    rule = "LagGrows"
    alert = Alert(
        fingerprint_of(rule, labels),
        rule,
        "warning",
        "",
        labels,
        {"summary": f"{group} is behind"},
        {},
        state,
        reason="",
        active_at_us=micros(START) + MINUTE_US,
        fired_at_us=None if state is State.PENDING else micros(START) + 2 * MINUTE_US,
        resolved_at_us=at_us if state is State.RESOLVED else None,
        last_true_us=at_us,
        muted=said.get("muted", ""),
    )
    return kind, alert, at_us


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> tm.LakeHandle:
    lake = write_gold_lake(Path(tmp_path_factory.mktemp("alerts")))
    changes = [
        change("BEGUN", State.PENDING, 1, "billing"),
        change("FIRED", State.FIRING, 2, "billing"),
        change("FIRED", State.FIRING, 2, "shipping"),
        change("MUTED", State.FIRING, 3, "shipping", muted="silenced by ann: known"),
        change("ACKED", State.FIRING, 4, "shipping", muted="silenced by ann: known"),
        change("RESOLVED", State.RESOLVED, 5, "billing"),
    ]
    entries = [
        entry_of(
            alert,
            kind,
            observed_us=at_us,
            recorded_us=at_us if kind != "RESOLVED" else at_us + MINUTE_US,
            author="ann" if kind == "ACKED" else "",
        )
        for kind, alert, at_us in changes
    ]
    table = HistoryTable(lake)
    table.taken("h")
    table.append("h", list(enumerate(entries, start=1)))
    return tm.connect(lake.root)


def test_the_sentence_says_what_is_open_and_rows_are_all_changes(asked: tm.LakeHandle) -> None:
    found = asked.alerts()
    assert found.verdict.startswith("1 alert is open: LagGrows since ")
    assert "(1 muted, 1 acked)" in found.verdict
    assert "It is judged to " in found.verdict
    assert found.rows["seq"].to_list() == [1, 2, 3, 4, 5, 6]
    assert "[alerts @ version" in repr(found)


def test_a_group_a_rule_a_state_and_a_range_are_asked_for(asked: tm.LakeHandle) -> None:
    assert asked.alerts("billing").rows["kind"].to_list() == ["BEGUN", "FIRED", "RESOLVED"]
    assert asked.alerts("billing").verdict.startswith("No alert of billing is open.")
    assert asked.alerts(rule="laggrows", state="resolved").rows["group"].to_list() == ["billing"]
    assert asked.alerts(until="11m").rows["seq"].to_list() == [1, 2, 3, 4, 5]
    assert asked.alerts(since="11m").rows["seq"].to_list() == [5, 6]  # Both ends count.
    assert len(asked.alerts(since=END)) == 0


def test_it_is_answered_as_of_an_earlier_moment(asked: tm.LakeHandle) -> None:
    then = asked.alerts(as_of=START + timedelta(minutes=3))
    assert then.rows["seq"].to_list() == [1, 2, 3, 4]
    assert then.verdict.startswith("2 alerts are open: LagGrows since ")


def test_what_was_recorded_later_changes_no_answer_as_of_a_moment(asked: tm.LakeHandle) -> None:
    """The end of it, seen at 5 min, was recorded at 6."""
    for at_min, known in ((5, [1, 2, 3, 4, 5]), (6, [1, 2, 3, 4, 5, 6])):
        then = asked.alerts(as_of=START + timedelta(minutes=at_min))
        assert then.rows["seq"].to_list() == known


def test_wrong_names_are_refused_with_the_near_ones(asked: tm.LakeHandle) -> None:
    with pytest.raises(ConfigError, match="did you mean 'LagGrows'"):
        asked.alerts(rule="LagGrow")
    with pytest.raises(ConfigError, match="did you mean 'FIRING'"):
        asked.alerts(state="FIRE")
    with pytest.raises(ConfigError, match="did you mean 'billing'"):
        asked.alerts("biling")


@pytest.mark.parametrize("notebook", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda one: one.stem)
def test_the_notebook_that_a_firing_alert_leads_to_shows_it_firing(
    tmp_path: Path, notebook: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is seen at a moment of the data is evaluated, and recorded, some seconds later."""
    lake = write_gold_lake(tmp_path / "lake")
    changes = [
        change("BEGUN", State.PENDING, 1, "billing"),
        change("FIRED", State.FIRING, 2, "billing"),
    ]
    entries = [
        entry_of(alert, kind, observed_us=at_us, recorded_us=at_us + 20_000_000)
        for kind, alert, at_us in changes
    ]
    table = HistoryTable(lake)
    table.taken("h")
    table.append("h", list(enumerate(entries, start=1)))
    _, alert, at_us = changes[-1]
    asked = of_alert(
        "group_state", alert.labels, begin_us=at_us, end_us=at_us, margin=timedelta(minutes=5)
    )
    cells = filled(json.loads(notebook.read_text()), asked)["cells"]
    code = ["".join(one["source"]) for one in cells if one["cell_type"] == "code"]
    parameters, opening, alerts = code[:3]
    script = tmp_path / "script.py"
    script.write_text("\n".join((parameters, opening, f"said = {alerts}.verdict")))
    monkeypatch.setenv(tm.LAKE_VARIABLE, lake.root)
    said = runpy.run_path(str(script))["said"]
    assert said.startswith("1 alert of billing is open: LagGrows since ")
