"""Two clusters in one lake, everything in them called the same: no answer of one has anything of
the other in it. What is asked of one is what would be answered if the other did not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from engine.foundation.errors import LakeError
from pipelines import tm
from pipelines.reading.trust import Trust, Withheld
from pipelines.tm.arguments import NoSuchName
from tests.pipelines.two_clusters import (
    BOTH,
    EAST,
    END,
    GROUP,
    ONLY_WEST,
    START,
    TOPIC,
    WEST,
    lakes_of_two_clusters,
)

Ask = Callable[..., tm.Result]
QUESTIONS: dict[str, Ask] = {
    "groups": lambda lake, **of: lake.groups(**of),
    "groups that stand": lambda lake, **of: lake.groups("stopped", **of),
    "lag": lambda lake, **of: lake.lag(GROUP, **of),
    "lag of a queue": lambda lake, **of: lake.lag(GROUP, topic=TOPIC, queue=0, **of),
    "lag in a range": lambda lake, **of: lake.lag(
        GROUP, since=timedelta(seconds=90), until="30s", **of
    ),
    "lag by slots": lambda lake, **of: lake.lag(GROUP, by="1m", **of),
    "stalls": lambda lake, **of: lake.stalls(**of),
    "stalls of a group": lambda lake, **of: lake.stalls(GROUP, **of),
    "stalls of a topic": lambda lake, **of: lake.stalls(topic=TOPIC, **of),
    "why": lambda lake, **of: lake.why(**of),
    "why a group": lambda lake, **of: lake.why(GROUP, **of),
    "duplicates": lambda lake, **of: lake.duplicates(GROUP, **of),
    "ownership": lambda lake, **of: lake.ownership(GROUP, **of),
    "rebalances": lambda lake, **of: lake.rebalances(GROUP, **of),
    "dead letters": lambda lake, **of: lake.dead_letters(GROUP, **of),
    "emitters": lambda lake, **of: lake.emitters(**of),
    "in the past": lambda lake, **of: lake.stalls(as_of=timedelta(seconds=40), **of),
    "at a cycle": lambda lake, **of: lake.groups(as_of=1, **of),
}


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return lakes_of_two_clusters(tmp_path_factory)


@pytest.fixture(scope="module")
def both(lakes: dict[str, Path]) -> tm.LakeHandle:
    return asked(lakes[BOTH])


@pytest.fixture(scope="module")
def alone(lakes: dict[str, Path]) -> dict[str, tm.LakeHandle]:
    return {name: asked(lakes[name]) for name in (EAST, WEST)}


def asked(lake: Path) -> tm.LakeHandle:
    return replace(tm.connect(lake), clock=lambda: END + timedelta(seconds=5))


def rows_of(answer: tm.Result, columns: list[str]) -> list[dict[str, Any]]:
    """Rows in an order that does not depend on who else is in the lake."""
    rows = answer.rows.select(columns)
    return sorted(rows.to_dicts(), key=lambda row: str(sorted(row.items(), key=str)))


@pytest.mark.parametrize("cluster", [EAST, WEST])
@pytest.mark.parametrize("question", QUESTIONS)
class TestEveryQuestion:
    def test_asked_of_one_cluster_it_answers_as_if_there_were_no_other(
        self,
        both: tm.LakeHandle,
        alone: dict[str, tm.LakeHandle],
        question: str,
        cluster: str,
    ) -> None:
        ask = QUESTIONS[question]
        there, here = ask(both, cluster=cluster), ask(alone[cluster])
        assert there.verdict == f"In {cluster}: {here.verdict}"
        assert rows_of(there, here.rows.columns) == rows_of(here, here.rows.columns)
        assert "cluster" in there.first

    def test_asked_of_the_lake_each_cluster_answers_for_itself(
        self,
        both: tm.LakeHandle,
        alone: dict[str, tm.LakeHandle],
        question: str,
        cluster: str,
    ) -> None:
        ask = QUESTIONS[question]
        there, here = ask(both), ask(alone[cluster])
        own = there.rows.filter(pl.col("cluster") == cluster)
        assert rows_of(replace(there, rows=own), here.rows.columns) == rows_of(
            here, here.rows.columns
        )
        said = here.verdict.partition(" It is judged to ")[0]
        assert f"In {cluster}: {said}" in there.verdict


def test_one_cluster_alone_is_not_named(alone: dict[str, tm.LakeHandle]) -> None:
    for name, ask in QUESTIONS.items():
        answer = ask(alone[EAST])
        assert "In east" not in answer.verdict, name
        assert "cluster" not in answer.first, name


def test_the_two_are_distinguished_in_a_sentence(both: tm.LakeHandle) -> None:
    said = both.lag(GROUP).verdict
    assert said.startswith(f"In east: Group {GROUP} is ")
    assert f"In west: Group {GROUP} is " in said
    assert "on 4 of 4" not in said
    stalls = both.stalls(GROUP)
    assert set(stalls.rows["cluster"]) == {WEST}
    assert stalls.verdict.startswith(f"In east: No stalled window of {GROUP} is known.")


class TestNames:
    def test_a_group_of_one_cluster_is_answered_by_that_one(self, both: tm.LakeHandle) -> None:
        assert both.lag(ONLY_WEST).verdict.startswith(f"In west: Group {ONLY_WEST} is ")
        assert "In east" not in both.lag(ONLY_WEST).verdict

    def test_asked_of_the_other_one_it_is_no_name_there(self, both: tm.LakeHandle) -> None:
        with pytest.raises(NoSuchName) as refused:
            both.lag(ONLY_WEST, cluster=EAST)
        assert str(refused.value) == (
            f"no group '{ONLY_WEST}' in cluster 'east'; there are '{GROUP}'"
        )

    def test_a_cluster_that_is_not_there_is_refused_with_the_near_one(
        self, both: tm.LakeHandle
    ) -> None:
        for name, ask in QUESTIONS.items():
            with pytest.raises(NoSuchName) as refused:
                ask(both, cluster="wset")
            assert str(refused.value) == ("no cluster 'wset' in this lake; did you mean 'west'?"), (
                name
            )

    def test_a_topic_that_no_cluster_has_is_refused(self, both: tm.LakeHandle) -> None:
        with pytest.raises(NoSuchName, match="did you mean 'topic-orders'"):
            both.lag(GROUP, topic="topic-order")


class TestStories:
    def test_a_message_is_shown_by_the_cluster_that_knows_it(
        self, both: tm.LakeHandle, alone: dict[str, tm.LakeHandle]
    ) -> None:
        there, here = both.message("POISON"), alone[WEST].message("POISON")
        assert here.rows.height > 1
        assert there.verdict == f"In west: {here.verdict}"
        assert rows_of(there, here.rows.columns) == rows_of(here, here.rows.columns)
        assert both.message("POISON", cluster=EAST).rows.is_empty()
        assert "In " not in both.message("no such message").verdict

    def test_the_evidence_of_a_window_is_of_its_cluster(
        self, both: tm.LakeHandle, alone: dict[str, tm.LakeHandle]
    ) -> None:
        window = alone[WEST].stalls(GROUP).rows["window_id"][-1]
        there, here = both.explain(window), alone[WEST].explain(window)
        assert there.verdict == f"In west: {here.verdict}"
        assert rows_of(there, here.rows.columns) == rows_of(here, here.rows.columns)

    def test_sql_may_ask_one_cluster(self, both: tm.LakeHandle) -> None:
        query = "SELECT DISTINCT cluster FROM consumer_lag ORDER BY cluster"
        assert both.sql(query).df["cluster"].to_list() == [EAST, WEST]
        assert both.sql(query, cluster=WEST).df["cluster"].to_list() == [WEST]
        facts = "SELECT DISTINCT cluster FROM shipments"
        assert both.sql(facts, cluster=WEST).df["cluster"].to_list() == [WEST]


class TestFigures:
    def test_lines_of_a_figure_say_their_cluster(self, both: tm.LakeHandle) -> None:
        for figure in (both.groups().plot(), both.overview()):
            names = set(figure.layout.yaxis.ticktext)
            assert names == {f"east / {GROUP}", f"west / {GROUP}", f"west / {ONLY_WEST}"}
        assert set(both.lag(GROUP).plot().layout.yaxis.ticktext) == {
            f"east / {GROUP}",
            f"west / {GROUP}",
        }

    @pytest.mark.parametrize("cluster", [EAST, WEST])
    def test_the_figure_of_one_is_the_figure_of_a_lake_of_its_own(
        self, both: tm.LakeHandle, alone: dict[str, tm.LakeHandle], cluster: str
    ) -> None:
        there, here = both.timeline(GROUP, cluster=cluster), alone[cluster].timeline(GROUP)
        assert there.to_dict() == here.to_dict()


def test_a_failure_about_one_cluster_withholds_nothing_of_the_other(both: tm.LakeHandle) -> None:
    failure = Withheld(
        "lag_is_known", "consumer_lag", START, END, END, "4 rows", f"{WEST}/broker-a/0", GROUP
    )
    trust = Trust((failure,))
    assert trust.within(WEST).withheld("consumer_lag", END, group=GROUP) == failure
    assert trust.within(EAST).withheld("consumer_lag", END, group=GROUP) is None


class TestBeforeAnythingWasJudged:
    @pytest.mark.parametrize(
        "ask",
        [
            lambda lake: lake.stalls(as_of="2h"),
            lambda lake: lake.duplicates(as_of=timedelta(hours=2)),
            lambda lake: lake.stalls(GROUP, as_of=START - timedelta(seconds=1)),
            lambda lake: lake.groups(as_of="2026-03-01", cluster=EAST),
        ],
        ids=["stalls", "duplicates", "of a group", "of a cluster"],
    )
    def test_nothing_is_claimed(self, both: tm.LakeHandle, ask: Any) -> None:
        with pytest.raises(LakeError, match=r"has nothing up to 2026-03-01 .*pipeline replay"):
            ask(both)

    def test_from_the_first_row_on_it_is_an_answer(self, both: tm.LakeHandle) -> None:
        assert both.groups(as_of=START + timedelta(seconds=30)).rows.height >= 2
