"""An answer of `tm` whose rows failed a critical check is withheld: check, moment and reason."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from pipelines import tm
from pipelines.lake.lake import Lake
from tests.failed_check import WORDS, fail
from tests.gold_lake import END, START, write_gold_lake
from tests.lake_story import EMITTER

SAID = f"This is {WORDS}"
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


WITHHELD_OF_GHOST = f"1 group is withheld: ghost, because {WORDS.removeprefix('withheld: ')}."


def test_the_states_of_groups_are_withheld_and_counted(lake: Lake) -> None:
    fail(lake, about_emitter=EMITTER, about_group="billing")

    groups = tm.connect(lake.root).groups()

    states = dict(groups.rows.select("group", "state").iter_rows())
    assert states == {"billing": "WITHHELD", "shipping": "STALLED", "ledger": "OK"}
    assert groups.verdict.startswith("2 of 3 groups are not OK (1 withheld); the furthest behind")
    assert WITHHELD_OF_GHOST.replace("ghost", "billing") in groups.verdict
    assert tm.connect(lake.root).groups(state="withheld").rows["group"].to_list() == ["billing"]


@pytest.mark.parametrize("question", [*QUESTIONS[1:], "groups", "rollbacks", "replaced"])
def test_a_group_that_is_not_to_be_believed_hides_no_other(lake: Lake, question: str) -> None:
    before = getattr(tm.connect(lake.root), question)()

    fail(lake, about_emitter=EMITTER, about_group="ghost")
    after = getattr(tm.connect(lake.root), question)()

    judged = before.verdict.partition(" It is judged to")
    assert after.verdict.startswith(f"{judged[0]} {WITHHELD_OF_GHOST}{judged[1]}")
    assert after.rows.equals(before.rows)


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("stalls", "1 stalled window is known; it is over. 1 group is withheld: shipping, because"),
        ("why", "No group is behind: 2 groups are judged OK. 1 group is withheld: shipping,"),
        (
            "duplicates",
            (
                "6 windows of duplicate risk are known; 2 are confirmed, with 14 "
                "repeated deliveries. 1 "
            ),
        ),
    ],
)
def test_what_is_said_of_the_rest_is_without_the_group(
    lake: Lake, question: str, said: str
) -> None:
    fail(lake, about_emitter=EMITTER, about_group="shipping")

    assert getattr(tm.connect(lake.root), question)().verdict.startswith(said)


def test_each_group_is_withheld_for_its_own_reason(lake: Lake) -> None:
    fail(
        lake,
        observed_value="2 of 100 break it: group=ghost (lag=7); group=billing (lag=9)",
        failures=[
            {"about_emitter": EMITTER, "about_group": group, "row_key": f"group={group}", **of}
            for group, of in (("ghost", {"detail": "lag=7"}), ("billing", {"detail": "lag=9"}))
        ],
    )

    asked = tm.connect(lake.root)
    assert "1 of 100 break it: group=billing (lag=9) (about group billing)." in (
        asked.stalls("billing").verdict
    )
    assert "ghost" not in asked.stalls("billing").verdict
    assert "2 groups are withheld: billing, because " in asked.stalls().verdict
    assert "group=billing (lag=9); ghost, because " in asked.stalls().verdict
    reasons = dict(asked.groups().rows.select("group", "reason").iter_rows())
    assert reasons["billing"].endswith("1 of 100 break it: group=billing (lag=9)")


def test_a_failure_about_one_group_leaves_the_answers_about_others(lake: Lake) -> None:
    fail(lake, about_emitter=EMITTER, about_group="billing")

    assert "ithheld" not in tm.connect(lake.root).stalls("shipping").verdict
    assert tm.connect(lake.root).stalls("billing").verdict.startswith(SAID)


def test_an_answer_about_a_time_before_the_failing_rows_stands(lake: Lake) -> None:
    fail(lake)

    asked = tm.connect(lake.root)
    early = START + timedelta(minutes=5)
    assert "ithheld" not in asked.stalls("billing", until=early).verdict
    assert asked.stalls("billing", until=END - timedelta(seconds=30)).verdict.startswith(SAID)
    at_work = asked.groups(as_of=END - timedelta(seconds=1))
    assert at_work.verdict.startswith(SAID)
    assert at_work.found_since == ""


@pytest.mark.parametrize("kept_s", [None, 3])
def test_an_answer_as_of_a_moment_knows_what_was_kept_by_then(
    lake: Lake, kept_s: int | None
) -> None:
    kept_at = None if kept_s is None else END - timedelta(seconds=2) + timedelta(seconds=kept_s)
    fail(lake, kept_at=kept_at)
    asked, soon = tm.connect(lake.root), END - timedelta(seconds=1)

    early = asked.groups(as_of=END - timedelta(seconds=30))
    assert "ithheld" not in early.verdict
    assert early.found_since == f"A check that ran since withholds this: {WORDS[10:]}."
    assert asked.groups(as_of=soon).verdict.startswith(SAID) is (kept_s is None)
    assert asked.groups(as_of=END - timedelta(minutes=2)).found_since == ""
