"""Answers a question separately for each cluster in a lake and labels the results.

Place in the walk: between a question's own answer, about one cluster, and the `Result`. Names in
two clusters may be the same. Invariant: an answer is computed from rows of one cluster alone; where
a lake holds several, every sentence and row says of which one it is, and nothing is counted over
two of them. A lake with one cluster is answered without a word about clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

import polars as pl

from engine.foundation.errors import LakeError
from pipelines.base.settings import SILENCE_US
from pipelines.reading.emitters import watched_text
from pipelines.reading.moment import Moment
from pipelines.reading.reading import Reading
from pipelines.reading.revisions import Revision
from pipelines.sentences import answers
from pipelines.tm import drawing
from pipelines.tm.arguments import Asked, NoSuchName, has_group, the_group
from pipelines.tm.results import Result
from pipelines.tm.withholding import later_text

ORDERS: Final = (("opened_at", "window_id"), ("observed_at", "seq"), ("at", "source", "seq"))
"""How rows of several clusters follow each other: the first of these that they have."""


NOTHING_NAMED: Final = Asked()


@dataclass(frozen=True, slots=True)
class Answer:
    """What one cluster answers."""

    reading: Reading
    verdict: str
    rows: pl.DataFrame
    table: str
    draw: Callable[[], Any] | None = None
    first: tuple[str, ...] = ()
    asked: Asked = NOTHING_NAMED
    until: datetime | None = None
    """The moment that it is about, when that is the end of a range."""


Ask = Callable[[Reading, str | None], Answer]
"""(rows of one cluster, the group as it is written there) → its answer."""


def answered(
    reading: Reading,
    ask: Ask,
    *,
    group: str | None = None,
    order: Sequence[str] = (),
    is_sought: bool = False,
) -> Result:
    """The answer of the cluster that was asked, or of each that the lake holds and that has the
    group. `order`: columns by which rows of several are sorted, greatest first, unknown last.
    `is_sought`: clusters without a row have nothing to say.

    Raises ConfigError for a group that no cluster has, and what `ask` raises of all of them.
    """
    names = reading.moment.clusters
    if reading.moment.cluster is not None or len(names) < 2:
        answer = ask(reading, group)
        return as_result(_named(answer))
    parts = _each(reading, ask, group)
    if is_sought:
        parts = [part for part in parts if part.rows.height]
    if not parts:
        return as_result(ask(reading, group))
    rows = _in_order(pl.concat([part.rows for part in parts]), order)
    first = parts[0]
    verdict = " ".join(part.verdict for part in parts)
    until = first.until
    at_end = reading if until is None else replace(reading, moment=reading.moment.capped(until))
    draw = first.draw if len(parts) == 1 else None
    if first.draw is not None and len(parts) > 1:
        asked = replace(first.asked, group=None)
        draw = lambda: drawing.heatmap(reading, asked, lines=_lines(rows))  # noqa: E731
    return as_result(replace(first, reading=at_end, verdict=verdict, rows=rows, draw=draw))


def _each(reading: Reading, ask: Ask, group: str | None) -> list[Answer]:
    """The answers of all clusters that have the names; at least one."""
    name = None if group is None else the_group(reading, group)
    parts: list[Answer] = []
    refused: NoSuchName | None = None
    for cluster in reading.moment.clusters:
        within = reading.of_cluster(cluster)
        if name is not None and not has_group(within, name):
            continue
        try:
            parts.append(_named(ask(within, name)))
        except NoSuchName as error:
            refused = refused or error
    if parts:
        return parts
    if refused is not None:
        raise refused
    raise LakeError(f"nothing has been judged in {reading.tables.lake.root} yet")


def _named(answer: Answer) -> Answer:
    """The same, its sentence and its rows with the name of their cluster."""
    cluster = answer.reading.moment.cluster or ""
    if len(answer.reading.moment.clusters) < 2:
        return answer
    rows = answer.rows.with_columns(pl.lit(cluster).alias("cluster"))
    rows = rows.select("cluster", *(name for name in rows.columns if name != "cluster"))
    first = ("cluster", *(name for name in answer.first if name != "cluster"))
    return replace(answer, verdict=f"In {cluster}: {answer.verdict}", rows=rows, first=first)


def _in_order(rows: pl.DataFrame, order: Sequence[str]) -> pl.DataFrame:
    if order:
        return rows.sort(*order, descending=True, nulls_last=True, maintain_order=True)
    by = next((names for names in ORDERS if set(names) <= set(rows.columns)), None)
    return rows if by is None else rows.sort(*by, maintain_order=True)


def _lines(rows: pl.DataFrame) -> list[tuple[str, str]]:
    if "group" not in rows.columns:
        return []
    pairs = rows.select("cluster", "group").drop_nulls().unique(maintain_order=True)
    return [(cluster, group) for cluster, group in pairs.iter_rows()]


def as_result(answer: Answer) -> Result:
    """An answer as a reader gets it: how far was judged, and whether it was revised since."""
    reading = answer.reading
    moment, revision = reading.moment, reading.revision
    judged_to = moment.judged_to
    said = f"{answer.verdict} {judged(judged_to, moment, reading.asked_at)}"
    if answer.asked.known_from is not None:
        said += f" {answers.known_from(answer.asked.known_from)}"
    if revision is not None:
        said += f" {revised(revision, shown=moment.cycle)}"
    return Result(
        said,
        answer.rows,
        answer.table,
        reading.versions.get(answer.table),
        judged_to,
        answer.draw,
        answer.first,
        run_id=moment.run_id,
        cycle=moment.cycle,
        revised_at=None if revision is None else revision.cycle,
        found_since=later_text(reading, answer.asked, answer.table),
    )


def judged(
    judged_to: datetime | None, moment: Moment | None = None, now: datetime | None = None
) -> str:
    """To when the answer's data had been judged, who has been silent for longer, and, of an answer
    about `now`, that it is none.
    """
    if judged_to is None:
        return answers.NOT_JUDGED
    said = answers.judged(judged_to) if moment is None else _judged(judged_to, moment)
    age = timedelta(0) if now is None else now - judged_to
    allowed_us = SILENCE_US if moment is None else moment.silence_us
    if age <= timedelta(microseconds=allowed_us):
        return said
    return f"{said} {answers.nothing_since(age / timedelta(milliseconds=1))}"


def _judged(judged_to: datetime, moment: Moment) -> str:
    silent = moment.silent
    return answers.judged(
        judged_to,
        silent=[(one.emitter, one.judged_to) for one in silent],
        is_silent=bool(silent) and len(silent) == len(moment.reached),
        beside=[moment.unknown[one.emitter] for one in moment.ahead],
        watched=watched_text(moment),
    )


def revised(revision: Revision, *, shown: int) -> str:
    """Says that the moment of an answer was reported otherwise before, or is now."""
    return answers.revised(
        revision.known_at,
        revision.cycle,
        revision.emitters,
        shown=shown,
        kept_from=revision.kept_from,
    )
