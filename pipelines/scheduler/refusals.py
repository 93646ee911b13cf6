"""Errors raised when a request about a job, group, user or run is refused.

Place in the walk: the store and the service raise them, commands print them, pages show them beside
the field that `key` names. A value that one setting cannot have stays a plain ConfigError, which
says what it may be. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.foundation.errors import RuleBroken

AS_THEY_ARE: Final = "as they are"
"""The value of a refusal of a change that changes nothing."""

SHOWN_CHARS: Final = 64
NAMED_MAX: Final = 5


def no_such(kind: str, name: object, *, key: str = "", where: str = "") -> RuleBroken:
    """What is named is not there."""
    named = f" ({where})" if where else ""
    return RuleBroken(key or kind, name, f"there is no {kind} {_shown(name)}{named}")


def exists_already(kind: str, name: str, *, key: str = "") -> RuleBroken:
    """What is to be made has the name of another."""
    return RuleBroken(key or kind, name, f"{kind} {_shown(name)} exists already")


def nothing_changed(key: str = "settings") -> RuleBroken:
    """A change by which nothing becomes another is a slip."""
    return RuleBroken(key, AS_THEY_ARE, "nothing changed: every value is as it was")


def no_setting(text: str, instead: str) -> RuleBroken:
    """What is given is no setting of a job; `instead`: what to do, as a clause."""
    return RuleBroken("setting", text, f"{_shown(text)} is no setting of a job: {instead}")


def given_twice(name: str) -> RuleBroken:
    """One setting has two values."""
    return RuleBroken(name, name, f"setting {name} is given twice: give it once")


def is_a_step(job_id: int, workflows: Sequence[int], so_it_cannot: str) -> RuleBroken:
    """A job is a step of workflows."""
    kind = "workflow" if len(workflows) == 1 else "workflows"
    named = ", ".join(map(str, workflows[:NAMED_MAX]))
    more = f" and {len(workflows) - NAMED_MAX} more" if len(workflows) > NAMED_MAX else ""
    return RuleBroken(
        "job",
        job_id,
        f"job {job_id} is a step of {kind} {named}{more}, so it cannot {so_it_cannot}; take it out "
        "of the steps first",
    )


def group_with_jobs(app_name: str, job_count: int) -> RuleBroken:
    """A group is to be removed that jobs are in."""
    jobs, them = ("1 job", "it") if job_count == 1 else (f"{job_count:,} jobs", "them")
    rule = f"group {app_name!r} has {jobs}: remove or move {them} first"
    return RuleBroken("group", app_name, rule)


def _shown(name: object) -> str:
    if isinstance(name, str):
        return repr(name if len(name) <= SHOWN_CHARS else f"{name[:SHOWN_CHARS]}…")
    return str(name)
