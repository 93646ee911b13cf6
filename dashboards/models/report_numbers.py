"""Formats a report's numbers, and the differences between two reports, as text.

Invariant: pure. Unknown is a word, never 0; of one cluster only what names it is shown, and what is
counted over all clusters is labelled so. A difference is marked only where `comparing` marks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from dashboards.formatting import clock, count, duration, plural, spoken, visible
from pipelines.base.time_units import moment_at
from pipelines.base.wording import AtLeast
from pipelines.reports.comparing import Judged, Tendency, judged, name_in
from pipelines.reports.numbers import GroupFigures, Numbers, Verdict, all_again

THINGS_MAX: Final = 60
"""Things with differences that a page lists; `tidemark reports compare` prints all."""
TEXT_MAX: Final = 160
OF_EACH_PERIOD: Final = frozenset(
    {
        "within_s", "worst_at_us", "judged_to_us", "retained_until_us", "was_there",
        "share_before_percent", "windows_before", "redelivered_before", "letters_before",
        "longest_of", "longest_evidence", "evidence", "observed", "runs",
    }
)  # fmt: skip
"""Figures that differ from period to period by what they are, and say nothing by it."""
PARTS: Final = {
    "groups": "group",
    "stalls": "stalls",
    "duplicates": "duplicates",
    "dead_letters": "dead letters",
    "retention": "retention",
    "emitters": "broker",
    "checks": "check",
    "offsets": "offsets",
}
OF_CLUSTERS: Final = ("groups", "dead_letters", "retention")
"""Parts whose rows are of a cluster and a group; of emitters the name begins with the cluster."""
WORDS: Final = {
    "row": "in the report", "verdict": "objective", "objective_ms": "objective is",
    "target_percent": "for a share of", "within_s": "within", "behind_s": "behind",
    "unknown_s": "time unknown", "share_percent": "share within", "share_before_percent":
    "share before", "was_there": "there before", "worst_ms": "worst lag", "worst_at_us": "worst at",
    "lag_max": "most messages behind", "end_ms": "lag at the end", "state": "state at the end",
    "stalls": "stalls", "stood_s": "stood still", "redelivered": "repeated deliveries",
    "at_risk": "at risk of it", "dead_letters": "given up", "withheld": "withheld",
    "windows": "times", "groups": "groups", "open_at_end": "open at the end",
    "longest_s": "the longest", "longest_of": "the longest of", "longest_evidence": "its evidence",
    "predicted": "predicted at most", "certain": "certain to come", "confirmed": "confirmed",
    "passed": "passed", "possible": "undecided", "open_at_most": "open at most",
    "exceeded": "more than predicted", "letters": "given up", "topics": "topics",
    "reason": "mostly because", "redriven": "sent again", "discarded": "discarded",
    "expired": "expired", "waiting": "waiting", "retained_until_us": "the first go",
    "missing_rows": "reports missing", "doubled_rows": "reports there twice",
    "judged_to_us": "known up to", "reaches_end": "known to the end", "failed_runs": "runs failed",
    "violations": "broken laws", "unaccounted": "of these unexplained",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of one report."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Changed:
    """A figure that differs."""

    name: str
    before: str
    after: str
    arrow: str
    """Which way, of a number; else empty."""
    tendency: Tendency


@dataclass(frozen=True, slots=True)
class Thing:
    """A group, a cause, a broker …, and what differs of it."""

    part: str
    about: str
    place: tuple[str, str] | None
    """Cluster and group, where it is one."""
    changed: tuple[Changed, ...]

    @property
    def worse(self) -> int:
        """Figures that are worse."""
        return sum(one.tendency is Tendency.WORSE for one in self.changed)

    @property
    def better(self) -> int:
        """Figures that are better."""
        return sum(one.tendency is Tendency.BETTER for one in self.changed)


def groups_of(numbers: Numbers, cluster: str) -> tuple[GroupFigures, ...]:
    """The groups of a report, or of one cluster in it, the worst first."""
    return tuple(one for one in numbers.groups if not cluster or one.cluster == cluster)


def summary(numbers: Numbers, cluster: str = "") -> list[Figure]:
    """The report in a few figures."""
    groups = groups_of(numbers, cluster)
    counts = {one: sum(group.verdict is one for group in groups) for one in Verdict}
    known = sum(one.within_s + one.behind_s for one in groups)
    whole = known + sum(one.unknown_s for one in groups)
    stood_s = sum(one.stood_s for one in (groups if cluster else numbers.stalls))
    again = all_again(groups if cluster else numbers.duplicates)
    letters = sum(one.letters for one in numbers.dead_letters if cluster in ("", one.cluster))
    return [
        Figure("missed", count(counts[Verdict.MISSED]), f"of {plural(len(groups), 'group')}"),
        Figure("kept", count(counts[Verdict.KEPT])),
        Figure("unclear", count(counts[Verdict.UNCLEAR]), "too little is known"),
        Figure("stood still", duration(1000 * stood_s), "queues, summed"),
        Figure("repeated deliveries", again),
        Figure("given up", count(letters), "messages"),
        Figure("known", _share(known, whole), "of their time"),
    ]


def _share(known: int, whole: int) -> str:
    if not whole:
        return "nothing"
    return "all" if known == whole else f"{min(100 * known / whole, 99.9):.1f} %"


def news_counts(numbers: Numbers) -> tuple[int, int] | None:
    """What is new for the worse and for the better; None: the period before is not known."""
    if not numbers.before_is_known:
        return None
    better = sum(one.is_better for one in numbers.news)
    return len(numbers.news) - better, better


def differing(before: Numbers, after: Numbers, cluster: str = "") -> list[Thing]:
    """What differs between two reports, a line a thing: what became worse first, then what became
    better; within these in the order of the parts."""
    is_same_period = (before.begin_us, before.end_us) == (after.begin_us, after.end_us)
    places = {
        name_in((one.cluster, one.group)): (one.cluster, one.group)
        for numbers in (before, after)
        for part in OF_CLUSTERS
        for one in getattr(numbers, part)
    }
    found: dict[tuple[str, str], list[Judged]] = {}
    for one in judged(before, after):
        change = one.difference
        if is_same_period or change.figure not in OF_EACH_PERIOD:
            found.setdefault((change.part, change.about), []).append(one)
    things = [
        Thing(
            part,
            about,
            places.get(about) if part in OF_CLUSTERS else None,
            tuple(_changed(one) for one in sorted(changed, key=_by_weight)),
        )
        for (part, about), changed in found.items()
    ]
    own = [one for one in things if _is_of(one, cluster)]
    return sorted(own, key=_rank)


def _is_of(thing: Thing, cluster: str) -> bool:
    if not cluster:
        return True
    if thing.place is not None:
        return thing.place[0] == cluster
    return thing.part != "emitters" or thing.about.startswith(f"{cluster}/")


def _rank(thing: Thing) -> tuple[int, int, int]:
    kind = 0 if thing.worse else 1 if thing.better else 2
    return kind, list(PARTS).index(thing.part), -thing.worse - thing.better


def _by_weight(one: Judged) -> tuple[int, int]:
    order = (Tendency.WORSE, Tendency.BETTER, Tendency.OPEN)
    first = ("verdict", "share_percent", "behind_s")
    figure = one.difference.figure
    return order.index(one.tendency), first.index(figure) if figure in first else len(first)


def _changed(one: Judged) -> Changed:
    change = one.difference
    before, after = change.before, change.after
    if change.figure == "row":
        shown = ("no", "yes") if before is None else ("yes", "no")
        return Changed(WORDS["row"], *shown, "", one.tendency)
    numbers = [isinstance(value, int | float) for value in (before, after)]
    is_counted = all(numbers) and not isinstance(before, bool) and not change.figure.endswith("_us")
    arrow = ("↑" if after > before else "↓") if is_counted else ""
    name = WORDS.get(change.figure, spoken(change.figure))
    said = figure_text(change.figure, before), figure_text(change.figure, after)
    return Changed(name, *said, arrow, one.tendency)


def figure_text(figure: str, value: Any) -> str:
    """A figure with its unit, which its name ends with."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, AtLeast):
        return f"at least {figure_text(figure, int(value))}"
    if isinstance(value, str):
        said = visible(spoken(value) if figure in ("verdict", "state") else value or "no")
        return said if len(said) <= TEXT_MAX else f"{said[: TEXT_MAX - 1]}…"
    for ending, worded in _UNITS:
        if figure.endswith(ending):
            return worded(value)
    return count(value)


def percent(share: float | None) -> str:
    """A share, never rounded to all or nothing; None is unknown."""
    if share is None:
        return "unknown"
    return f"{share:.0f} %" if share in (0.0, 100.0) else f"{min(max(share, 0.1), 99.9):.1f} %"


def _moment(value: int) -> str:
    moment: datetime = moment_at(value)
    return f"{clock(moment, day=True)} UTC"


_UNITS: Final[Sequence[tuple[str, Callable[[Any], str]]]] = (
    ("_us", _moment),
    ("_ms", duration),
    ("_s", lambda value: duration(1000 * value)),
    ("_percent", percent),
)


def tally(things: Iterable[Thing]) -> str:
    """How many figures differ, and how many of them for the worse and for the better."""
    listed = list(things)
    worse, better = (sum(getattr(one, name) for one in listed) for name in ("worse", "better"))
    whole = sum(len(one.changed) for one in listed)
    if not whole:
        return "the same"
    return f"{plural(whole, 'figure')} of {len(listed):,}: {worse} worse, {better} better"
