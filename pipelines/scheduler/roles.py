"""Decides what each role may do, for commands and pages alike, denying by default.

As in XXL-Job: an administrator may do everything; anybody else sees and changes the jobs of the
groups that are listed for him, and no groups, tokens or people.

Invariant: pure. Absent on purpose: how somebody shows who he is.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.foundation.errors import TidemarkError


class NotPermitted(TidemarkError):
    """Whoever asks has no right to it; the same request stays refused until rights change."""


class Action(StrEnum):
    """What somebody wants to do."""

    SEE_JOBS = "see the jobs"
    """Of a group: its jobs, their runs, logs and sources."""
    CHANGE_JOBS = "change the jobs"
    """Of a group: make, edit, copy, start, pause, run, stop, remove."""
    CHANGE_GROUPS = "change groups"
    """Their addresses and access tokens too."""
    CHANGE_PEOPLE = "change users"
    SEE_AUDIT = "see the audit"
    SEE_CENTRE = "see what the centre counts"
    IMPORT = "import"


OF_A_GROUP = frozenset({Action.SEE_JOBS, Action.CHANGE_JOBS})


@dataclass(frozen=True, slots=True)
class Actor:
    """Somebody who is known, and his rights."""

    name: str
    is_admin: bool = False
    group_ids: frozenset[int] = frozenset()
    """Groups whose jobs he may see and change."""
    only_looks: bool = False
    """He may see what he may see, and change nothing."""


def may(actor: Actor | None, action: Action, group_id: int | None = None) -> bool:
    """May he? None is nobody, who may nothing; without a group, what is a group's is refused."""
    if actor is None or (actor.only_looks and action is not Action.SEE_JOBS):
        return False
    if actor.is_admin:
        return True
    return action in OF_A_GROUP and group_id is not None and group_id in actor.group_ids


def demand(actor: Actor | None, action: Action, group_id: int | None = None) -> None:
    """Raise NotPermitted unless allowed; the group is not named, as that would show it exists."""
    if not may(actor, action, group_id):
        who = "nobody in particular" if actor is None else actor.name
        raise NotPermitted(f"{who} may not {action.value}")
