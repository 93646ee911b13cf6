"""Scores rule sets against known incidents: detections, misses, false alarms and delays.

Place in the walk: incidents (`truths`) and what a rule set reports (`verdicts`), group by group →
scores. An incident is found when something is reported of its place from its begin to its end and a
grace after it, or was already when it began; only what begins within it is timed. One that names a
queue is found by reports of that queue. A notice is the beginning of a time in which anything of a
group is reported; it is false when it begins within no incident.

Alerts come in notices of their own. What an alert's labels do not name it may mean: one about a
group finds the incident of its queue. One that names no group finds nothing, and is no false one
while its cluster has any. Invariant: found + missed are all incidents that begin in the range;
every notice is counted once. Absent on purpose: I/O, clocks, and rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from pipelines.backtest.truths import Incident, oldest_first
from pipelines.base.settings import DAY_US


@dataclass(frozen=True, slots=True)
class Told:
    """A time in which a rule set says that something is wrong."""

    begin_us: int
    end_us: int | None
    """None: to the end of the range."""
    cluster: str
    group: str
    topic: str | None = None
    broker: str | None = None
    queue_id: int | None = None
    """None, of all three: of the group."""
    is_alert: bool = False
    """What an alert does not name, its group included (an empty text), it may mean."""

    def speaks_of(self, incident: Incident) -> bool:
        """Is the incident's place named by it?"""
        return self.group == incident.group and self._may_concern(incident)

    def is_needed_at(self, incident: Incident) -> bool:
        """Whether it may be reported because of the incident."""
        if self.is_alert and not self.group:
            return self._may_concern(incident)
        return self.speaks_of(incident)

    def _may_concern(self, incident: Incident) -> bool:
        named = (
            (incident.cluster, self.cluster or None),
            (incident.topic, self.topic),
            (incident.queue_id, self.queue_id),
        )
        return all(
            wanted in (None, named_place) or (self.is_alert and named_place is None)
            for wanted, named_place in named
        )


@dataclass(slots=True)
class Heard:
    """What rules of alerts reported."""

    reported: list[Told] = field(default_factory=list)
    """From the notice that an alert fires until it fires no more."""
    notices: list[list[Told]] = field(default_factory=list)
    """Per notice the alerts that it says to fire, from its moment on; one that only says that
    something is over is left out."""


@dataclass(frozen=True, slots=True)
class Range:
    """What is tried: incidents and notices that begin in [begin, end)."""

    begin_us: int
    end_us: int
    grace_us: int
    """How long after its end an incident may still be reported: what it leaves behind lasts."""

    def holds(self, moment_us: int) -> bool:
        """Does it begin in here?"""
        return self.begin_us <= moment_us < self.end_us

    @property
    def days(self) -> float:
        """Its length."""
        return (self.end_us - self.begin_us) / DAY_US


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one incident."""

    incident: Incident
    found: bool
    detected_after_us: int | None
    """How long after its begin it was reported; None when missed, and when reported before."""


@dataclass(slots=True)
class Score:
    """A rule set over the range."""

    findings: list[Finding] = field(default_factory=list)
    notices: int = 0
    false: int = 0
    """Notices without an incident."""

    @property
    def found(self) -> int:
        """Incidents that were reported."""
        return sum(one.found for one in self.findings)

    @property
    def missed(self) -> int:
        """Incidents that were not."""
        return len(self.findings) - self.found

    @property
    def detections_us(self) -> list[int]:
        """Times to detect, shortest first."""
        return sorted(
            one.detected_after_us for one in self.findings if one.detected_after_us is not None
        )

    @property
    def detection_us_median(self) -> int | None:
        """Half of the timed incidents were reported within it; None when none was timed."""
        timed = self.detections_us
        return round(median(timed)) if timed else None

    def notices_a_day(self, over: Range) -> float:
        """How many notices would have been sent."""
        return self.notices / over.days


def add_group(
    score: Score, incidents: Sequence[Incident], findings: Sequence[Told], over: Range
) -> None:
    """Count the incidents of one group, and the findings about it, into a score."""
    for incident in oldest_first(incidents):
        if over.holds(incident.begin_us):
            score.findings.append(_finding(incident, findings, over))
    for begun in _notices(findings):
        if over.holds(begun[0].begin_us):
            score.notices += 1
            score.false += not any(_explains(one, say, over) for one in incidents for say in begun)


def add_alerts(score: Score, incidents: Sequence[Incident], heard: Heard, over: Range) -> None:
    """Count all incidents, and the notices that were made of alerts, into a score."""
    for incident in oldest_first(incidents):
        if over.holds(incident.begin_us):
            score.findings.append(_finding(incident, heard.reported, over))
    for said in heard.notices:
        if over.holds(said[0].begin_us):
            score.notices += 1
            score.false += not any(_explains(one, say, over) for one in incidents for say in said)


def _finding(incident: Incident, findings: Iterable[Told], over: Range) -> Finding:
    of_place = [one for one in findings if one.speaks_of(incident)]
    within = [one.begin_us for one in of_place if _is_within(incident, one, over)]
    if within:
        return Finding(incident, found=True, detected_after_us=min(within) - incident.begin_us)
    stood = any(
        one.begin_us < incident.begin_us and (one.end_us is None or one.end_us > incident.begin_us)
        for one in of_place
    )
    return Finding(incident, found=stood, detected_after_us=None)


def _explains(incident: Incident, one: Told, over: Range) -> bool:
    """Whether it is reported because of the incident."""
    return _is_within(incident, one, over) and one.is_needed_at(incident)


def _is_within(incident: Incident, one: Told, over: Range) -> bool:
    """Does it begin while the incident lasts, or leaves its traces?"""
    return incident.begin_us <= one.begin_us <= incident.end_us + over.grace_us


def _notices(findings: Iterable[Told]) -> Iterator[list[Told]]:
    """Per time in which anything of a group is reported, what it begins with.

    What begins at the end of another goes on with it: no notice says that it is over.
    """
    begun: list[Told] = []
    until_us: int | None = None
    for one in sorted(findings, key=lambda say: say.begin_us):
        if begun and until_us is not None and one.begin_us > until_us:
            yield begun
            begun = []
        if not begun:
            begun, until_us = [one], one.end_us
            continue
        if one.begin_us == begun[0].begin_us:
            begun.append(one)
        if until_us is not None:
            until_us = None if one.end_us is None else max(until_us, one.end_us)
    if begun:
        yield begun
