"""Sentences on how far an answer goes: up to when it was judged, and what was revised since.

Place in the walk: a moment of gold → the last sentences of each answer of `tm`. Pure. Invariant: an
answer about now says so when nothing was judged lately. Absent on purpose: what was asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pipelines.base.wording import duration
from pipelines.sentences.figures import moment
from pipelines.sentences.questions import listed

NOT_JUDGED = "Nothing has been judged yet."


def judged(
    to: datetime,
    *,
    silent: Sequence[tuple[str, datetime]] = (),
    is_silent: bool = False,
    beside: Sequence[str] = (),
    watched: str | None = None,
) -> str:
    """Up to when an answer was judged. `silent`: emitters that were judged less far; `is_silent`:
    all of them are; `beside`: what else is wrong with an emitter; `watched`: how it was polled.
    """
    said = f"Judged to {moment(to, day=True)}"
    if is_silent:
        return f"{said}; no emitter has reported anything since."
    each = [f"{emitter} only to {moment(end, day=True)}" for emitter, end in silent]
    each += beside
    end = "." if watched is None else f". It is {watched}."
    return f"{said}; {listed(each)}{end}" if each else f"{said}{end}"


def nothing_since(age_ms: float) -> str:
    """That nothing was judged since, for so long: an answer about now."""
    return f"Nothing has been judged since, for {duration(age_ms)}: what is now is unknown."


def known_from(begin: datetime) -> str:
    """That a range begins before anything that the lake knows of."""
    return f"Nothing is known from before {moment(begin, day=True)}."


def revised(
    known_at: int | None,
    cycle: int | None,
    emitters: Sequence[str],
    *,
    shown: int,
    kept_from: int | None = None,
) -> str:
    """That a moment was reported otherwise before, or is now; by whom, and how to ask for the
    other. `known_at`: the cycle at which it was reported first, `cycle`: that which revised it,
    `shown`: whose answer this is, `kept_from`: the oldest that is kept.
    """
    if known_at is None:
        return (
            f"What was known of it first is not kept any more: cycles are kept from {kept_from} on."
        )
    late = f"{listed(emitters)} {'has' if len(emitters) == 1 else 'have'} reported late"
    if shown == known_at:
        return f"Revised since, at cycle {cycle}: {late}."
    return f"Revised at cycle {cycle}: {late}; as_of={known_at} is what was known before."
