"""Validates the groups, topics, queues, states and times named in a question.

Invariant: a name that the lake does not have is an error that offers the nearest ones; it is never
taken as a name about which nothing is known. Upper and lower case do not matter as long as one name
is meant. Absent on purpose: answers.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, cast

from engine.foundation.errors import ConfigError, LakeError
from pipelines.base.wording import with_article
from pipelines.lake.lake import Lake, sql_text
from pipelines.marts.groups.sums import SEVERITY
from pipelines.reading.long_ranges import ROLLUPS, SPANS, span_for
from pipelines.reading.moment import sql_time
from pipelines.reading.reading import STATE_KEYS, TOLD_ALWAYS, OpenTables, Reading, equals
from pipelines.sentences.figures import queue_of

STATES: Final = SEVERITY
"""States of a group; those that a lake has besides are names too."""
STATUSES: Final = ("failed", "passed")
UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
BY_ROW: Final = "row"
NEAR_MAX: Final = 3
LISTED_MAX: Final = 20
"""Names shown when none is near."""
GROUP_TABLES: Final = (
    "group_state",
    "consumer_lag",
    "rebalances",
    "ownership",
    "stalled_windows",
    "duplicate_risk_windows",
    "dead_letters",
)
"""A group is known when one of them names it."""

When = datetime | timedelta | str
"""A moment (without a zone it is UTC), an ISO 8601 text, or how long ago: a timedelta, or a text
like "15m"."""
A_MOMENT: Final = (
    'a moment like "2026-03-01T12:05:00Z" (UTC unless it says else), a datetime, or how long ago, '
    'like "90s", "15m", "6h", "2d" or a timedelta'
)


class NoSuchName(ConfigError):
    """A question names what the lake does not have; the text says what it has instead."""

    def __str__(self) -> str:
        return self.allowed


@dataclass(frozen=True, slots=True)
class Asked:
    """What a question is about; None is everything."""

    group: str | None = None
    topic: str | None = None
    queue: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    known_from: datetime | None = None
    """The earliest moment of which something is known, when the range begins before it."""

    @property
    def place(self) -> list[str]:
        """SQL conditions on group, topic and queue."""
        named = (("group", self.group), ("topic", self.topic), ("queue_id", self.queue))
        return [equals(column, value) for column, value in named if value is not None]

    @property
    def times(self) -> list[str]:
        """SQL conditions on the end of the range; its beginning is asked for apart."""
        return [f"observed_at <= {sql_time(self.until)}"] if self.until is not None else []

    @property
    def words(self) -> str:
        """The same for a sentence: ` of shipping on queue 2 of orders`."""
        said = f" of {self.group}" if self.group is not None else ""
        if self.topic is None:
            return said
        return f"{said} on {self.topic if self.queue is None else queue_of(self.topic, self.queue)}"


def the_name(kind: str, given: str, names: Iterable[str], *, of: str = "this lake") -> str:
    """The one of `names` that is meant; ConfigError that offers the nearest ones otherwise."""
    given = the_text(kind, given)
    known = sorted(set(names))
    if given in known:
        return given
    same = [name for name in known if name.casefold() == str(given).casefold()]
    if len(same) == 1:
        return same[0]
    raise NoSuchName(kind, given, f"no {kind} {given!r} in {of}{_offer(str(given), known, same)}")


def _offer(given: str, known: Sequence[str], same: Sequence[str]) -> str:
    if not known:
        return ": it has none yet"
    folded = {name.casefold(): name for name in known}
    found = difflib.get_close_matches(given.casefold(), list(folded), n=NEAR_MAX)
    near = list(same) or [folded[name] for name in found]
    if near:
        return f"; did you mean {' or '.join(repr(name) for name in near)}?"
    more = f", and {len(known) - LISTED_MAX} more" if len(known) > LISTED_MAX else ""
    return f"; there are {', '.join(repr(name) for name in known[:LISTED_MAX])}{more}"


def the_text(kind: str, given: object) -> str:
    """What was given, if it is a text. Raises ConfigError."""
    if isinstance(given, str):
        return given
    raise ConfigError(kind, given, f"a text, not {with_article(type(given).__name__)}")


def the_cluster(reading: Reading, given: str | None) -> str | None:
    """The cluster that is meant; None asks about all of the lake."""
    return None if given is None else the_name("cluster", given, reading.moment.clusters)


def whole_name(reading: Reading) -> str:
    """What a reading is of, for the sentence that refuses a name."""
    cluster = reading.moment.cluster
    return "this lake" if cluster is None else f"cluster {cluster!r}"


def has_group(reading: Reading, name: str) -> bool:
    """Does any table name the group, exactly so?"""
    return any(reading.has(table, equals("group", name)) for table in GROUP_TABLES)


def the_group(reading: Reading, given: str) -> str:
    """The group that is meant: exactly so named at any time, or the only one but for case."""
    if has_group(reading, the_text("group", given)):
        return given
    names: set[str] = set()
    for table in GROUP_TABLES:
        # Every group with lag has a state or will have one: the largest table is not looked
        # through whole for a name that may be wrong.
        recent = table == "consumer_lag"
        names |= set(
            reading.newest(table, columns=["group"])["group"].to_list()
            if recent
            else reading.distinct(table, "group")
        )
    return the_name("group", given, names, of=whole_name(reading))


def the_topic(reading: Reading, given: str, group: str | None) -> str:
    """The topic that is meant, among those the group has read (any group's without one)."""
    of_group = [equals("group", group)] if group is not None else []
    if reading.has("consumer_lag", equals("topic", the_text("topic", given)), *of_group):
        return given
    names = reading.distinct("consumer_lag", "topic", *of_group)
    of = f"what group {group!r} reads" if group is not None else whole_name(reading)
    return the_name("topic", given, names, of=of)


def the_queue(reading: Reading, given: int, asked: Asked) -> int:
    """The queue, when the group and topic have it."""
    number = the_number("queue", given)
    if reading.has("consumer_lag", *asked.place, equals("queue_id", number)):
        return number
    rows = reading.newest("consumer_lag", *asked.place, columns=["queue_id"])
    names = sorted(set(rows["queue_id"].to_list()))
    shown = ", ".join(str(name) for name in names[:LISTED_MAX]) or "none now"
    raise NoSuchName("queue", given, f"no queue {given}{asked.words}; there are {shown}")


def the_number(kind: str, given: object, *, or_else: str = "") -> int:
    """What was given, if it is a whole number, or a text of its digits. Raises ConfigError, which
    says what may be given beside it."""
    if isinstance(given, str) and given.isascii() and given.isdigit():
        return int(given)
    try:
        number = None if isinstance(given, bool) else operator.index(cast("int", given))
    except TypeError:
        number = None
    if number is None:
        given_is = with_article(type(given).__name__)
        raise ConfigError(kind, given, f"a whole number{or_else}, not {given_is}")
    return number


def the_moment(kind: str, given: When, judged_to: datetime) -> datetime:
    """A moment as it was given; "15m" is counted back from how far the lake has been judged."""
    try:
        if isinstance(given, datetime):
            return _aware(given)
        ago = _ago(given)
        if ago is not None:
            return judged_to - ago
        return _aware(datetime.fromisoformat(given if isinstance(given, str) else ""))
    except OverflowError:
        raise ConfigError(kind, given, "a time that a calendar has") from None
    except (ValueError, TypeError):
        raise ConfigError(kind, given, A_MOMENT) from None


def _ago(given: object) -> timedelta | None:
    """How long ago it says; None when it says something else. Raises ValueError, OverflowError."""
    if isinstance(given, timedelta):
        if not given >= timedelta(0):  # Of no time at all neither holds.
            raise ValueError(given)
        return given
    if not isinstance(given, str) or given[-1:] not in UNITS_S or not given[:-1].isdigit():
        return None
    return timedelta(seconds=int(given[:-1]) * UNITS_S[given[-1]])


def _aware(moment: datetime) -> datetime:
    if moment != moment:  # noqa: PLR0124 - pandas' NaT is a datetime that equals nothing
        raise ValueError(moment)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def asked_of(
    reading: Reading,
    *,
    group: str | None = None,
    topic: str | None = None,
    queue: int | None = None,
    since: When | None = None,
    until: When | None = None,
) -> Asked:
    """A question's names and moments, all of them checked. Raises ConfigError."""
    judged_to = reading.moment.whole.judged_to
    if judged_to is None:
        raise LakeError(f"nothing has been judged in {reading.tables.lake.root} yet")
    if group is not None:
        group = the_group(reading, group)
    if topic is not None:
        topic = the_topic(reading, topic, group)
    if queue is not None:
        queue = the_queue(reading, queue, Asked(group, topic))
    begin = _since_the_epoch("since", since, judged_to)
    end = _since_the_epoch("until", until, judged_to)
    if begin is not None and end is not None and begin > end:
        raise ConfigError("since", since, f"a moment before until={until!r}")
    if begin is not None and begin > judged_to:
        raise ConfigError(
            "since", since, f"a moment up to which there is data: {judged_to:%Y-%m-%d %H:%M:%S} UTC"
        )
    known_from = _known_from(reading, begin, end)
    if known_from is not None and end is not None and end < known_from:
        first = f"a moment from which on there is data: {known_from:%Y-%m-%d %H:%M:%S} UTC"
        raise ConfigError("until", until, first)
    is_short = known_from is not None and begin is not None and begin < known_from
    return Asked(group, topic, queue, begin, end, known_from if is_short else None)


def _since_the_epoch(kind: str, given: When | None, judged_to: datetime) -> datetime | None:
    """A moment of a range; facts are of 1970 or later, so an earlier one asks for the same."""
    return None if given is None else max(EPOCH, the_moment(kind, given, judged_to))


def _known_from(reading: Reading, begin: datetime | None, end: datetime | None) -> datetime | None:
    """The earliest moment that is known, when a range may reach back beyond it."""
    oldest = reading.tables.oldest_day(TOLD_ALWAYS[0])
    asked = [moment.date() for moment in (begin, end) if moment is not None]
    is_far = oldest is not None and any(day <= oldest for day in asked)
    return reading.known_from() if is_far else None


def slots_asked(by: str | None, asked: Asked, reading: Reading) -> int | None:
    """Length, in seconds, of the slots in which lag is listed; None: row by row. ConfigError."""
    if by is None:
        end = asked.until or reading.moment.whole.newest  # The same slots of all clusters.
        if asked.since is None or end is None or not _has_slots(reading, asked.since):
            return None
        span_s = span_for(end - asked.since)
        known = end - (asked.known_from or asked.since)
        # In less than two slots none may be whole, and only what is over has a row.
        return span_s if span_s is not None and known >= timedelta(seconds=2 * span_s) else None
    if by not in (BY_ROW, *SPANS):
        raise ConfigError("by", by, f"one of {', '.join((BY_ROW, *SPANS))}")
    return SPANS.get(by)


def _has_slots(reading: Reading, since: datetime) -> bool:
    """Do the roll-ups go back so far? A lake may have been begun before it had any."""
    rolled, exact = (reading.tables.oldest_day(name) for name in (ROLLUPS, "consumer_lag"))
    return rolled is not None and (rolled < since.date() or rolled == exact)


def the_message(given: str) -> str:
    """SQL condition values of a message's id, in the two ways it is written."""
    return ", ".join(sql_text(one) for one in dict.fromkeys((given, given.upper(), given.lower())))


def require_kept(tables: OpenTables, at: datetime, end: str) -> None:
    """LakeError when the states of that day are gone: an answer would look as if there was
    nothing."""
    for name in STATE_KEYS:
        oldest = tables.oldest_day(name)
        if oldest is not None and at.date() < oldest:
            raise LakeError(not_there(tables.lake, str(oldest), end, name=name, before="before "))


def not_there(
    lake: Lake, when: str, end: str, *, name: str = "group_state", before: str = "up to "
) -> str:
    """What to do where gold has nothing."""
    return (
        f"{lake.gold(name)} has nothing {before}{when}: it was not kept, or was not computed yet; "
        f"`tidemark pipeline replay --lake {lake.root} {end} --into PLACE` computes it again from "
        "bronze"
    )


def the_judged_moment(as_of: When, judged_to: datetime) -> datetime:
    """A moment that gold has come to. Raises ConfigError."""
    at = the_moment("as_of", as_of, judged_to)
    if at > judged_to:
        raise ConfigError("as_of", as_of, f"a moment up to {judged_to:%Y-%m-%d %H:%M:%S} UTC")
    return at


def capped(reading: Reading, at: datetime) -> Reading:
    """The same up to a moment; what lies before the end of what is judged is not about now."""
    judged_to = reading.moment.judged_to
    asked_at = None if judged_to is not None and at < judged_to else reading.asked_at
    return replace(reading, moment=reading.moment.capped(at), asked_at=asked_at)
