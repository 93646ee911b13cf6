"""Circles of jobs that begin each other: found with their path, whatever the graph is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pipelines.scheduler.trigger_cycles import Begins, circle_by, path_in_words, without_circles
from tests.amounts import examples

numbers = st.integers(1, 7)
graphs = st.dictionaries(numbers, st.lists(numbers, max_size=3, unique=True).map(tuple))


def of(graph: Mapping[int, Collection[int]]) -> Begins:
    return lambda job_ids: {one: graph[one] for one in job_ids if one in graph}


def test_the_path_is_the_shortest_and_begins_and_ends_with_the_job() -> None:
    graph = {2: (3, 4), 3: (5,), 4: (1,), 5: (1,)}
    assert circle_by(1, (2,), of(graph)) == (1, 2, 4, 1)
    assert circle_by(1, (1, 2), of(graph)) == (1, 1), "a circle of one"
    assert circle_by(2, (3, 4), of(graph)) == (), "1 begins nothing yet"
    assert circle_by(6, (2,), of({2: (3,), 3: (2,)})) == (), "a circle beyond it is another's"


def test_a_long_path_is_shown_by_its_ends() -> None:
    assert path_in_words((1, 2, 1)) == "1 → 2 → 1"
    assert path_in_words([*range(1, 31), 1]) == (
        "1 → 2 → 3 → 4 → 5 → 6 → 7 → 8 → 9 → 10 → … 20 more … → 1"
    )


@given(graphs)
@examples(80, in_full=3000)
def test_what_is_left_has_no_circle_and_each_child_that_goes_would_close_one(
    graph: dict[int, tuple[int, ...]],
) -> None:
    kept, circles = without_circles(graph)
    assert all(not circle_by(job, begun, of(kept)) for job, begun in kept.items())
    gone = {(job, child) for job in graph for child in graph[job] if child not in kept[job]}
    assert gone == {(circle[0], circle[1]) for circle in circles}
    assert all(circle_by(job, (child,), of(kept)) for job, child in gone)
    for circle in circles:
        assert all(child in graph[job] for job, child in pairwise(circle))
