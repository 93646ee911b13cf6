"""Parses a page's URL into its state, resolves the time range and builds links.

Invariant: the URL is the whole state of the question (theme, a habit of the reader, is not in
it). Anything may stand in a URL: what does not parse counts as not given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import parse_qs, quote, unquote, urlencode

from pipelines.base.time_units import utc_text
from pipelines.reading.report_names import name_of
from pipelines.reports.windows import Period

RANGES: Final = {
    "5m": timedelta(minutes=5),
    "15m": timedelta(minutes=15),
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
}
REFRESH_S: Final = {"off": None, "2": 2, "5": 5, "15": 15, "60": 60}
DEFAULT_RANGE: Final = "15m"
DEFAULT_REFRESH: Final = "2"
SORTS: Final = ("worst", "name", "time", "messages", "members")
DEFAULT_SORT: Final = "worst"
PAGE_DIGITS: Final = 6
SPAN_MAX: Final = timedelta(days=31)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATE_AFTER: Final = timedelta(seconds=20)
"""Emitters that have nothing to report ship that, too, every few seconds."""
STALE_AFTER: Final = timedelta(seconds=30)
"""From then on what a page shows is not what is: its states are unknown."""
CHECKS_OLD_AFTER: Final = timedelta(minutes=15)
"""A run of the checks says nothing about now any more."""
SILENCE_STEP_S: Final = 15
"""While nothing comes, ranges move on in such steps: between two, pages stay as they are."""
GROUP_PREFIX: Final = "/group/"
TOPIC_PREFIX: Final = "/topic/"
REPORTS_PATH: Final = "/reports"
DOCS_PATH: Final = "/data-docs/"
REPORT_FILES_PREFIX: Final = "/report-files/"
QUERY_MAX: Final = 256
"""Characters of what is searched for; one more is kept, so that a page can say it is too long."""


@dataclass(frozen=True, slots=True)
class View:
    """The question of a URL."""

    range_name: str = DEFAULT_RANGE
    refresh: str = DEFAULT_REFRESH
    start: datetime | None = None
    end: datetime | None = None
    query: str = ""
    """What is searched for: a message on a topic's page, groups on the overview."""
    sort: str = DEFAULT_SORT
    """Column by which groups are sorted."""
    page: int = 1
    """Page of the groups."""
    cluster: str = ""
    """The one cluster that is looked at; empty: all that the lake holds."""
    period: str = ""
    """Of reports, the kind of period; empty: all kinds."""
    against: str = ""
    """The report that one is compared with; empty: the one of the period before."""

    @property
    def closed(self) -> bool:
        """A range that was named by its ends."""
        return self.start is not None and self.end is not None

    @property
    def around_page(self) -> View:
        """The same range, refresh and cluster, for a link to another page."""
        kept = (self.range_name, self.refresh, self.start, self.end)
        return View(*kept, cluster=self.cluster)

    def of_cluster(self, cluster: str) -> View:
        """The same of one cluster; of all with an empty name."""
        return replace(self, cluster=cluster)

    def search(self, **changes: str) -> str:
        """The URL's query with some values changed; defaults are left out."""
        query = {
            "range": self.range_name,
            "live": self.refresh,
            "q": self.query,
            "sort": self.sort,
            "page": str(self.page),
            "cluster": self.cluster,
            "period": self.period,
            "against": self.against,
            **changes,
        }
        if self.closed and "range" not in changes:
            assert self.start is not None
            assert self.end is not None
            del query["range"]
            query |= {"from": utc_text(self.start), "to": utc_text(self.end)}
        standard = {
            "range": DEFAULT_RANGE,
            "live": DEFAULT_REFRESH,
            "q": "",
            "sort": DEFAULT_SORT,
            "page": "1",
            "cluster": "",
            "period": "",
            "against": "",
        }
        kept = {name: value for name, value in query.items() if standard.get(name) != value}
        return f"?{urlencode(kept)}" if kept else ""


@dataclass(frozen=True, slots=True)
class Span:
    """A view's range at one moment."""

    start: datetime
    end: datetime
    data_end: datetime | None
    """Newest moment the lake speaks of, at any time."""
    now: datetime

    @property
    def silent_from(self) -> datetime | None:
        """From when the range is empty because nothing came; None while data is fresh."""
        if self.data_end is None or self.now - self.data_end < LATE_AFTER:
            return None
        return self.data_end if self.start <= self.data_end < self.end else None

    @property
    def is_ahead(self) -> bool:
        """Does it begin behind all that the lake speaks of? What is true now is not true then."""
        return self.data_end is not None and self.start > self.data_end

    @property
    def length(self) -> timedelta:
        """From start to end."""
        return self.end - self.start


def parse(search: str | None) -> View:
    """The view of a URL's query."""
    given = {name: values[-1] for name, values in parse_qs((search or "").lstrip("?")).items()}
    start, end = _moment(given.get("from")), _moment(given.get("to"))
    sound = start is not None and end is not None and timedelta(0) < end - start <= SPAN_MAX
    return View(
        range_name=_one_of(given, "range", RANGES) or DEFAULT_RANGE,
        refresh=_one_of(given, "live", REFRESH_S) or DEFAULT_REFRESH,
        start=start if sound else None,
        end=end if sound else None,
        query=given.get("q", "").strip()[: QUERY_MAX + 1],
        sort=_one_of(given, "sort", dict.fromkeys(SORTS)) or DEFAULT_SORT,
        page=_number(given.get("page")),
        cluster=given.get("cluster", "").strip()[:QUERY_MAX],
        period=_one_of(given, "period", dict.fromkeys(Period)) or "",
        against=str(name_of(given.get("against", "")) or ""),
    )


def resolve(view: View, *, now: datetime, data_end: datetime | None) -> Span:
    """The range at this moment.

    A relative range ends with the data while that is fresh: the same for everybody who looks at one
    cycle, so answers are shared. Once nothing came for a while it ends now, so that silence is seen
    as silence. Only when data ended before the range would begin, it ends with the data again: an
    old lake opens on its last minutes.
    """
    if view.start is not None and view.end is not None:
        return Span(view.start, view.end, data_end, now)
    length = RANGES[view.range_name]
    end = now - timedelta(seconds=now.timestamp() % SILENCE_STEP_S)
    if data_end is not None and now - data_end > length:
        end = data_end + length / 25
    elif data_end is not None and now - data_end < LATE_AFTER:
        end = data_end
    return Span(end - length, end, data_end, now)


def group_path(group: str, *, cluster: str = "") -> str:
    """The page of a group; any name is a safe path. With a cluster, the address asks for it."""
    path = GROUP_PREFIX + quote(group, safe="")
    return f"{path}?{urlencode({'cluster': cluster})}" if cluster else path


def group_of(pathname: str) -> str | None:
    """The group of a path, None when it is another page."""
    return _name_in(pathname, GROUP_PREFIX)


def topic_path(topic: str) -> str:
    """The page of a topic; any name is a safe path."""
    return TOPIC_PREFIX + quote(topic, safe="")


def topic_of(pathname: str) -> str | None:
    """The topic of a path, None when it is another page."""
    return _name_in(pathname, TOPIC_PREFIX)


def report_path(name: str) -> str:
    """The page of a report, by the name of a run: three parts of letters, digits and dashes."""
    return f"{REPORTS_PATH}/{name}"


def report_of(pathname: str) -> str | None:
    """The report of a path; None when it is another page, or names none."""
    begin = f"{REPORTS_PATH}/"
    name = name_of(pathname[len(begin) :]) if pathname.startswith(begin) else None
    return None if name is None else str(name)


def report_file_path(name: str, file: str) -> str:
    """Where a file of a report is served."""
    return f"{REPORT_FILES_PREFIX}{name}/{file}"


def _name_in(pathname: str, prefix: str) -> str | None:
    return unquote(pathname[len(prefix) :]) or None if pathname.startswith(prefix) else None


def within(start: datetime, end: datetime, *, cluster: str = "") -> str:
    """The query of a closed range, the last SPAN_MAX of a longer one."""
    query = {"from": utc_text(max(start, end - SPAN_MAX)), "to": utc_text(end)}
    return f"?{urlencode(query | ({'cluster': cluster} if cluster else {}))}"


def around(moment: datetime, *, minutes: int = 5, cluster: str = "") -> str:
    """The query of a closed range around a moment, of one cluster where that is named."""
    half = timedelta(minutes=minutes)
    query = {"from": utc_text(moment - half), "to": utc_text(moment + half)}
    return f"?{urlencode(query | ({'cluster': cluster} if cluster else {}))}"


def _one_of(given: Mapping[str, str], name: str, allowed: Mapping[str, object]) -> str | None:
    value = given.get(name)
    return value if value in allowed else None


def _number(text: str | None) -> int:
    sound = text is not None and text.isascii() and text.isdigit() and len(text) <= PAGE_DIGITS
    return max(1, int(text)) if sound and text is not None else 1


def _moment(text: str | None) -> datetime | None:
    """A moment of a URL; None for what is none, or lies before every fact."""
    try:
        moment = datetime.fromisoformat(text or "")
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment if moment >= EPOCH else None
