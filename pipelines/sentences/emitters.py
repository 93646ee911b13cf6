"""Sentences about silent emitters, inaccurate clocks and imprecise polling.

Place in the walk: `pipelines/reading/moment` and `reading/emitters` → header of pages, `tm`. Pure.
Absent on purpose: who is silent, and whose clock is trusted.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import polars as pl

from pipelines.base.settings import CLOCK_SKEW_ALLOWED_US, MS_US
from pipelines.base.wording import duration, plural
from pipelines.sentences.answers import listed
from pipelines.sentences.figures import moment, whole

SAYS_NOTHING: Final = "a client says nothing of what it holds"
"""Of a client whose observer did not note which."""


def silent_since(emitter: str, since: datetime) -> str:
    """Why nothing is known of an emitter that reports no more."""
    return f"{emitter} has reported nothing since {moment(since)}"


def clock_ahead(emitter: str, seconds: int) -> str:
    """Why nothing is known of an emitter whose times have not come yet."""
    return f"the clock of {emitter} is {duration(seconds * 1000)} ahead of the lake's"


def ahead_of_machine(emitter: str, ahead_ms: float) -> str:
    """That an emitter's clock is ahead of that of the machine which shows it."""
    return f"the clock of {emitter} is ahead of this machine's by {duration(ahead_ms)}"


def rows_lost(at: datetime) -> str:
    """Why nothing is known of an emitter that lost rows."""
    return f"rows were lost at {moment(at)}, and no snapshot came since"


def clock_set_back(by_ms: int, at: datetime) -> str:
    """Why nothing is known of an emitter whose clock is not the time."""
    return f"its clock was set back by {duration(by_ms)} at {moment(at)}"


def taken_out(at: datetime) -> str:
    """Since when an emitter's broker is gone."""
    return f"its broker was taken out for good at {moment(at)}"


def follows_since(at: datetime) -> str:
    """Since when another node of its broker reports in an emitter's place."""
    return f"another node of its broker leads since {moment(at)}"


def polled(each_ms: Iterable[int | None]) -> str:
    """How far what observers report may be off, who poll so often; None: one has not said."""
    periods = [one for one in each_ms if one is not None]
    if not periods:
        return "watched from outside"
    each, most = duration(min(periods)), duration(max(periods))
    often = each if each == most else f"{each} to {most}"
    return f"watched from outside each {often}: times are right to ± {most}"


def skews(rows: pl.DataFrame) -> list[str]:
    """Of each emitter whose clock is too far from that of the lake."""
    limit_ms = CLOCK_SKEW_ALLOWED_US // MS_US
    far = rows.filter(pl.col("clock_skew_ms").abs() > limit_ms)
    return [_skew(*row) for row in far.select("emitter", "clock_skew_ms").iter_rows()]


def _skew(emitter: str, skew_ms: int) -> str:
    if skew_ms > 0:
        return f"the clock of {emitter} is {duration(skew_ms)} ahead of its shipper's"
    by = duration(-skew_ms)
    return f"the clock of {emitter} is behind its shipper's, or its rows come late, by {by}"


def of_emitters(rows: pl.DataFrame) -> str:
    """How many emitters there are, of which nothing is known and why, and whose clock is off."""
    unknown = rows.filter(pl.col("state") == "UNKNOWN")
    verb = "are" if unknown.height > 1 else "is"
    said = f"{unknown.height} of {plural(rows.height, 'emitter')} {verb} unknown"
    if unknown.is_empty():
        one = rows.height == 1
        said = "the one emitter is known" if one else f"no emitter of {rows.height} is unknown"
    each = [
        why if emitter in why else f"{emitter} ({why})"
        for emitter, why in unknown.select("emitter", "reason").iter_rows()
    ]
    if each:
        said += f": {listed(each)}"
    skewed = skews(rows)
    return whole(f"{said}; {listed(skewed)}" if skewed else said)
