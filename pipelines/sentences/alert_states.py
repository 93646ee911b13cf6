"""Sentences on alerts whose rule cannot be judged, or whose state nobody knows.

Place in the walk: the life cycle of alerts → their summary and reason. Pure. Absent on purpose: the
texts of rules (`alerts`).
"""

from __future__ import annotations

from typing import Final

from pipelines.base.wording import spoken
from pipelines.sentences.figures import whole

FLAPPING: Final = "It flaps: it changed 4 times within 30 min, and is held until it rests as long."

SUBJECT_GONE: Final = "What it is about is not there any more."
RULE_GONE: Final = "Its rule is not there any more."
RESTS: Final = "Its condition holds no more; it is held for a while."
ELSEWHERE: Final = "It is in another notice since its labels, or the routes, were changed."


def not_judged(rule: str, outcome: str) -> str:
    """That a rule cannot be judged: NO_DATA, EVAL_ERROR or WITHHELD."""
    return whole(f"rule {rule} cannot be judged: {spoken(outcome)}")


def unknown_now(why: str) -> str:
    """That nobody knows whether an alert still holds."""
    return whole(f"whether it still holds is unknown: {why}")


def inhibited(rule: str) -> str:
    """Why nobody is notified of an alert that another one makes needless."""
    return f"inhibited by {rule}"


def silenced(author: str, comment: str) -> str:
    """Why nobody is notified of an alert that somebody silenced."""
    return f"silenced by {author}: {comment}"
