"""State of a version that knew fewer columns and tables is carried on: what it lacks is unknown."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from engine.foundation.errors import LakeError
from pipelines.base.settings import Evaluation
from pipelines.marts.computing import Computed, beginning, compute, means_the_same
from pipelines.marts.duplicate_risk_windows import MART
from pipelines.marts.judging.rules import RULES
from pipelines.marts.mart import coded, words_of
from tests.pipelines.gold_lake import SHORT
from tests.pipelines.marts.judges import JUDGES
from tests.pipelines.marts.literal_facts import EXPOSURES, facts
from tests.pipelines.marts.literal_facts import _nothing as nothing
from tests.pipelines.marts.reported_story import Emitter, Rows, bronze
from tests.pipelines.partition import facts_between, horizons_of

LOST = {
    "at": 1,
    "client_id": "a",
    "kind": "LEFT",
    "reason": "CONNECTION_LOST",
    "inferred": False,
    "generation": 4,
    "queues": [{"topic": "t", "queue_id": 0, "committed": 80, "pulled": 90}],
}
MARK = {
    "at": 2,
    "seq": 2,
    "pulled": 90,
    "committed": 90,
    "min_offset": 0,
    "max_offset": 100,
    "committed_state": "EXACT",
    "reports": 1,
    "message_model": "CLUSTERING",
    "members": 1,
}


def test_windows_and_marks_of_an_earlier_version_go_on() -> None:
    given = {name: nothing(name) for name in MART.reads if name != EXPOSURES.name}
    first = compute(
        [EXPOSURES, MART],
        {**given, "rebalance_events": facts("rebalance_events", LOST)},
        {},
        Evaluation(),
    )
    carried = {**beginning(MART), **first.state[MART.name]}
    earlier = {
        **carried,
        "windows": carried["windows"].drop_columns(
            ["all_from_offset", "finished", "first_from_offset"]
        ),
        "marks": carried["marks"].drop_columns(["members"]),
    }
    del earlier["cuts"]
    fields = {**given, "group_watermarks": facts("group_watermarks", MARK)}

    second = compute([EXPOSURES, MART], fields, {MART.name: earlier}, Evaluation())

    (closed,) = second.rows[MART.name].to_pylist()
    assert (closed["state"], closed["outcome"]) == ("CLOSED", "PASSED")
    assert second.state[MART.name]["marks"]["members"].to_pylist() == [1]
    assert second.state[MART.name]["cuts"].num_rows == 0


EARLIER_RULES = ("OK", "BROADCAST", *RULES[3:], "GONE_OUT_OF_USE")
"""Without the third of today's, so that all behind it had other numbers."""


class OfAGroupThatStopped:
    """What the judges made of its first minutes, with a queue that is not OK in what they carry."""

    def __init__(self) -> None:
        reported: Rows = {}
        broker = Emitter(reported)
        broker.boot()
        for second in range(10, 90, 5):
            broker.at(second)
            last = {"last_commit_time": broker.epoch_us, "last_pull_time": broker.epoch_us}
            broker.watermark(committed=20, pulled=20, max_offset=3 * second, **last)
            broker.ship()
        facts = bronze(reported)
        middle, end = horizons_of(facts)[-2:]
        self.first = compute(JUDGES, facts_between(facts, {}, middle), {}, SHORT)
        self.rest = facts_between(facts, middle, end)
        self.queues = self.first.state["judged_queues"]["queues"]

    def gone_on(self, queues: pa.Table) -> Computed:
        """The rest, from other carried queues."""
        judged = {**self.first.state["judged_queues"], "queues": queues}
        return compute(JUDGES, self.rest, {**self.first.state, "judged_queues": judged}, SHORT)

    def rule(self) -> str:
        """The one that holds."""
        (code,) = self.queues["rule"].to_pylist()
        return RULES[code]

    def with_rule(self, code: int, rules: Sequence[str] | None) -> pa.Table:
        """The carried queues as a version with these rules would have written them; None: one that
        wrote its numbers alone."""
        field = pa.field("rule", pa.int8()) if rules is None else coded("rule", rules)
        place = self.queues.schema.get_field_index("rule")
        return self.queues.set_column(place, field, pa.array([code], pa.int8()))


def test_rules_that_had_other_numbers_are_read_as_what_they_meant() -> None:
    story = OfAGroupThatStopped()
    assert story.rule() == "STOPPED"
    carried = story.with_rule(EARLIER_RULES.index("STOPPED"), EARLIER_RULES)
    assert carried["rule"].to_pylist() != story.queues["rule"].to_pylist()
    expected, made = story.gone_on(story.queues), story.gone_on(carried)
    assert {name: rows.to_pylist() for name, rows in made.rows.items()} == {
        name: rows.to_pylist() for name, rows in expected.rows.items()
    }
    assert made.state["judged_queues"]["queues"].equals(expected.state["judged_queues"]["queues"])


@pytest.mark.parametrize(
    ("code", "rules", "named"),
    [
        (EARLIER_RULES.index("GONE_OUT_OF_USE"), EARLIER_RULES, "GONE_OUT_OF_USE"),
        (len(EARLIER_RULES), EARLIER_RULES, f"the number {len(EARLIER_RULES)}"),
        (RULES.index("STOPPED"), None, f"the number {RULES.index('STOPPED')}"),
    ],
)
def test_rules_that_nobody_knows_any_more_are_refused_by_their_name(
    code: int, rules: Sequence[str] | None, named: str
) -> None:
    story = OfAGroupThatStopped()
    with pytest.raises(LakeError) as refused:
        story.gone_on(story.with_rule(code, rules))
    assert f"the state of judged_queues/queues is of another version: its rule has {named}, " in (
        str(refused.value)
    )
    assert "computed anew from bronze" in str(refused.value)


def test_what_the_judges_carry_names_the_words_of_its_numbers() -> None:
    carried = OfAGroupThatStopped().first.state
    sentences = []
    for step in JUDGES:
        for name, schema in step.carries.items():
            if step.name not in carried:
                continue  # It has nothing to remember yet.
            assert means_the_same(carried[step.name][name], schema.empty_table())
            sentences += [f"{step.name}/{name}/{one.name}" for one in schema if words_of(one)]
    assert sentences == [
        "judged_queues/queues/state",
        "judged_queues/queues/rule",
        "judged_queues/queues/kind",
        "judged_queues/queues/fires",
        "judged_queues/waiting/state",
        "group_state/figures/severity",
    ]
