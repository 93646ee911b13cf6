"""Finds cycles of jobs that trigger one another, before a job is stored and at run time.

A success begins a job's children, and a workflow's run its steps; a job that comes back to itself
in this way would run without end:

    1 ─child→ 2 ─step→ 3 ─child→ 1        refused, with its path: 1 → 2 → 3 → 1

Place in the walk: `store/jobs` and `importing` ask before they take a job, `store/run_rows` before
a success begins children. Invariant: a path is the shortest that there is. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeAlias

Begins: TypeAlias = Callable[[Collection[int]], Mapping[int, Collection[int]]]
"""Which jobs these begin; one that begins none may be left out."""

PATH_SHOWN: Final = 12
"""Jobs of a path that a sentence names."""


def circle_by(job_id: int, begun: Collection[int], begins: Begins) -> tuple[int, ...]:
    """The way by which a job that begins these comes back to itself, both ends included; empty
    when it does not.
    """
    came_from = dict.fromkeys(begun, job_id)
    front = list(came_from)
    if job_id in came_from:
        return (job_id, job_id)
    while front:
        further = begins(front)
        new: list[int] = []
        for one in front:
            for child in further.get(one, ()):
                if child == job_id:
                    return _way(job_id, one, came_from)
                if child not in came_from:
                    came_from[child] = one
                    new.append(child)
        front = new
    return ()


def _way(job_id: int, last: int, came_from: Mapping[int, int]) -> tuple[int, ...]:
    back = [job_id, last]
    while back[-1] != job_id:
        back.append(came_from[back[-1]])
    return tuple(reversed(back))


def without_circles(
    children: Mapping[int, Sequence[int]],
) -> tuple[dict[int, tuple[int, ...]], list[tuple[int, ...]]]:
    """The children of each job without those that close a circle, in the order in which they are
    given; and the circles, each beginning with the job and the child that it has to do without.
    """
    kept: dict[int, tuple[int, ...]] = {}
    circles: list[tuple[int, ...]] = []

    def begins(job_ids: Collection[int]) -> Mapping[int, Collection[int]]:
        return {one: kept[one] for one in job_ids if one in kept}

    for job_id, named in children.items():
        kept[job_id] = ()
        for child in named:
            if circle := circle_by(job_id, (child,), begins):
                circles.append(circle)
            else:
                kept[job_id] += (child,)
    return kept, circles


def path_in_words(path: Sequence[int]) -> str:
    """A way, for a sentence."""
    shown = [str(one) for one in path]
    if len(shown) > PATH_SHOWN:
        shown = [*shown[: PATH_SHOWN - 2], f"… {len(shown) - PATH_SHOWN + 1} more …", shown[-1]]
    return " → ".join(shown)
