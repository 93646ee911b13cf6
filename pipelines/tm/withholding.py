"""Withholds all or part of an answer when a data-quality check has failed.

Place in the walk: between `trust` and the sentence of an answer. Invariant: a failure about groups
that are known by name takes nothing from what is said of others: these are judged without its rows,
and the named ones are listed apart. What an answer as of a moment did not know yet is shown beside
it and changes neither its sentence nor its rows. Absent on purpose: the rows of an answer, which
are shown as they were computed.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from pipelines.reading.catalogue import COMPUTED_TABLES
from pipelines.reading.check_results import found_later, trust_at
from pipelines.reading.moment import Moment
from pipelines.reading.reading import Reading
from pipelines.reading.trust import Doubts, Trust
from pipelines.sentences import checks as words
from pipelines.tm.arguments import Asked

_COMPUTED: Final = {table.name for table in COMPUTED_TABLES}

Say = Callable[[Doubts], str]
"""What is withheld → the sentence about the rest."""


def believed(
    reading: Reading,
    asked: Asked,
    table: str,
    say: Say,
    *,
    trust: Trust | None = None,
    anyway: str = "",
) -> str:
    """The sentence about all that may be believed of a table's rows, and what is withheld. `trust`:
    that of the reading, when it was read already; `anyway`: what holds even when all is withheld.
    """
    if trust is None:
        trust = trust_at(reading, since=_range(reading, asked)[0])
    doubts = _doubts(trust, reading, asked, table)
    held = doubts.whole
    if held is not None:
        return words.withheld(held.why, held.group, about=anyway)
    named = [words.some_withheld(doubts.about, _each(doubts))] if doubts.named else []
    return " ".join([say(doubts), *named])


def later_text(reading: Reading, asked: Asked, table: str) -> str:
    """What checks have found since of what such an answer rests on; nothing when they have not."""
    if reading.known_at is None or table not in _COMPUTED:
        return ""
    later = found_later(reading, since=_range(reading, asked)[0])
    doubts = _doubts(later, reading, asked, table)
    if doubts.whole is not None:
        return words.found_since(doubts.whole.why, doubts.whole.group)
    return words.some_found_since(_each(doubts)) if doubts.named else ""


def _each(doubts: Doubts) -> list[words.Named]:
    return [(whose, one.why) for whose, one in doubts.each]


def known_at(moment: Moment) -> datetime:
    """Wall clock up to which an answer as of a cycle knows what checks have found: that at which
    the cycle was planned. What was kept later may have been unknown to whoever asked when the cycle
    was the newest. Of a cycle that does not say when, no result is known.
    """
    return moment.planned_at or datetime.min.replace(tzinfo=UTC)


def _doubts(trust: Trust, reading: Reading, asked: Asked, table: str) -> Doubts:
    since, until = _range(reading, asked)
    if asked.group is not None:
        return Doubts(trust.withheld(table, until, since=since, group=asked.group))
    emitters = [one.emitter for one in reading.moment.reached]
    return trust.doubts(table, until, since=since, emitters=emitters)


def _range(reading: Reading, asked: Asked) -> tuple[datetime | None, datetime | None]:
    """The moments that an answer is about."""
    newest = reading.moment.newest
    until = newest if asked.until is None or newest is None else min(asked.until, newest)
    return asked.since if asked.since is not None else until, until
