"""An answer of `tm` whose rows failed a critical check is withheld: check, moment and reason."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from pipelines import tm
from pipelines.lake import Lake
from tests.failed_check import WORDS, fail
from tests.gold_lake import END, START, write_gold_lake
from tests.lake_story import EMITTER

SAID = WORDS[0].upper() + WORDS[1:]
QUESTIONS = ("lag", "stalls", "why", "duplicates", "ownership", "rebalances", "dead_letters")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return write_gold_lake(tmp_path / "lake")


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_answer_reassures_over_rows_that_failed_a_check(lake: Lake, question: str) -> None:
    before = getattr(tm.connect(lake.root), question)("billing")
    assert "ithheld" not in before.verdict

    fail(lake, about_emitter=EMITTER)
    after = getattr(tm.connect(lake.root), question)("billing")

    assert after.verdict.startswith(f"{SAID}. The rows are as they were computed.")
    assert after.rows.equals(before.rows)


def test_the_states_of_groups_are_withheld_and_counted(lake: Lake) -> None:
    fail(lake, about_emitter=EMITTER, about_group="billing")

    groups = tm.connect(lake.root).groups()

    states = dict(groups.rows.select("group", "state").iter_rows())
    assert states == {"billing": "WITHHELD", "shipping": "STALLED", "ledger": "OK"}
    assert groups.verdict.startswith(f"{SAID} (about group billing). 2 of 3 groups are not OK")
    assert "(1 withheld)" in groups.verdict
    assert tm.connect(lake.root).groups(state="withheld").rows["group"].to_list() == ["billing"]


def test_a_failure_about_one_group_leaves_the_answers_about_others(lake: Lake) -> None:
    fail(lake, about_emitter=EMITTER, about_group="billing")

    assert "ithheld" not in tm.connect(lake.root).stalls("shipping").verdict
    assert tm.connect(lake.root).stalls().verdict.startswith(SAID)


def test_an_answer_about_a_time_before_the_failing_rows_stands(lake: Lake) -> None:
    fail(lake)

    asked = tm.connect(lake.root)
    early = START + timedelta(minutes=5)
    assert "ithheld" not in asked.stalls("billing", until=early).verdict
    assert "ithheld" not in asked.groups(as_of=END - timedelta(minutes=2)).verdict
    assert asked.groups(as_of=END - timedelta(seconds=30)).verdict.startswith(SAID)
