"""Formats alerts and silences as lines of terminal output.

Place in the walk: what `alert_queries` found → lines of commands.

Invariant: pure. A line is a line: names and labels are what others chose, and what is not printable
in them is shown as its escape. Figures have their units, moments are UTC with their date. Absent on
purpose: JSON, and what the life cycle remembers for itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import urlparse

from pipelines.alerting.alert_queries import ShownAlert
from pipelines.alerting.alerts import Alert, Figure, State
from pipelines.alerting.channels.notice_text import LINKS, is_web_address, one_line
from pipelines.alerting.rule_status import JudgedRule
from pipelines.alerting.silences import DAYS, Recurring, Silence
from pipelines.base.settings import MS_US
from pipelines.base.time_units import moment_at
from pipelines.base.wording import UNKNOWN, clock, count, duration, plural

FINGERPRINT_SHOWN: Final = 8
COLUMN_MAX: Final = 32
"""Characters of a name in a list."""
TEXT_MAX: Final = 1_000
_HEAD: Final = ("ALERT", "STATE", "SEVERITY", "SINCE (UTC)", "OWNER", "RULE", "GROUP", "WHAT")
_UNITS: Final = {"_ms": 1, "_us": 1 / MS_US, "_s": 1000}
"""Endings of spans of time, and how many ms one is."""
_BESIDE: Final = 12
"""Where values begin."""


def list_in_words(alerts: Sequence[ShownAlert], *, limit: int) -> Iterator[str]:
    """A table, a line an alert; what is beyond `limit` is counted."""
    rows = [_HEAD, *(_cells(one) for one in alerts[:limit])]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEAD) - 1)]
    for row in rows:
        *columns, what = row
        padded = (cell.ljust(width) for cell, width in zip(columns, widths, strict=True))
        yield f"{'  '.join(padded)}  {what}".rstrip()
    if len(alerts) > limit:
        yield f"and {plural(len(alerts) - limit, 'alert')} more: --limit, or ask for fewer"


def _cells(shown: ShownAlert) -> tuple[str, ...]:
    alert = shown.alert
    return (
        alert.fingerprint[:FINGERPRINT_SHOWN],
        alert.state.value,
        _cut(alert.severity),
        clock(moment_at(alert.active_at_us), day=True),
        _cut(alert.owner or "-"),
        _cut(alert.rule),
        _cut(alert.labels.get("group", "-")),
        f"{_line(alert.annotations.get('summary') or alert.rule)}{_marks(shown)}",
    )


def _marks(shown: ShownAlert) -> str:
    marks = [] if shown.ack is None else [f"acked by {_cut(shown.ack.author)}"]
    if shown.silences:
        marks.append(f"silenced by {shown.silences[0].silence_id}")
    elif shown.alert.muted:
        marks.append(_line(shown.alert.muted))
    return f" ({', '.join(marks)})" if marks else ""


def alert_in_words(shown: ShownAlert, now_us: int) -> Iterator[str]:
    """One alert whole: what is wrong, since when, whose it is, what to do first."""
    alert = shown.alert
    yield f"{_line(alert.rule)}: {_line(alert.annotations.get('summary') or alert.rule)}"
    yield _field("state", _state(alert, now_us))
    yield _field("severity", _line(alert.severity))
    yield _field("owner", _line(alert.owner) or "nobody")
    yield _field("labels", ", ".join(f"{_line(k)}={_line(v)}" for k, v in alert.labels.items()))
    for name, key in (
        ("evidence", "evidence"),
        ("observed", "observed"),
        ("more", "description"),
        ("do first", "first_step"),
    ):
        if text := alert.annotations.get(key):
            yield _field(name, _line(text))
    if alert.reason:
        yield _field("because", _line(alert.reason))
    if figures := _figures(alert.figures):
        yield _field("figures", figures)
    yield from _links(alert)
    yield from _said(shown, now_us)
    if shown.judged is not None:
        yield _field("rule", _judged(shown.judged, now_us))
    yield _field("id", alert.fingerprint)


def _links(alert: Alert) -> Iterator[str]:
    """Addresses, and paths below that of pages, lab and runbooks, which the store does not know."""
    for key, name in LINKS:
        link = alert.annotations.get(key, "")
        is_path = bool(link) and not urlparse(link).scheme
        if is_web_address(f"http://here/{link}" if is_path else link):
            yield _field(name.lower(), link)


def _state(alert: Alert, now_us: int) -> str:
    began_us = alert.active_at_us
    if alert.state is State.RESOLVED and alert.resolved_at_us is not None:
        lasted = duration(max(0, alert.resolved_at_us - began_us) / MS_US)
        return f"resolved at {_moment(alert.resolved_at_us)}, after {lasted}"
    fired = "" if alert.fired_at_us is None else f", fires since {_moment(alert.fired_at_us)}"
    ago = duration(max(0, now_us - began_us) / MS_US)
    word = alert.state.value.lower().replace("_", " ")
    seen = _moment(alert.last_true_us)
    return f"{word}: it is so since {_moment(began_us)} ({ago}){fired}; seen last at {seen}"


def _figures(figures: Mapping[str, Figure]) -> str:
    """With units; what its sentences have said in other words is left out."""
    shown = {name: value for name, value in sorted(figures.items()) if name != "reason"}
    return ", ".join(f"{_line(name)} {_figure(name, value)}" for name, value in shown.items())


def _figure(name: str, value: Figure) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return _line(value)
    ending = next((one for one in _UNITS if name.endswith(one)), None)
    if ending is not None:
        return duration(value * _UNITS[ending])
    return count(value) if isinstance(value, int) else f"{value:,.6g}"


def _said(shown: ShownAlert, now_us: int) -> Iterator[str]:
    """What people said, and who is notified."""
    if shown.ack is not None:
        comment = f": {_line(shown.ack.comment)}" if shown.ack.comment else ""
        yield _field(
            "acked", f"by {_line(shown.ack.author)} at {_moment(shown.ack.acked_us)}{comment}"
        )
    for silence in shown.silences:
        yield _field("silenced", silence_in_words(silence, now_us))
    if shown.alert.muted:
        yield _field("notified", f"nobody now: {_line(shown.alert.muted)}")


def _judged(judged: JudgedRule, now_us: int) -> str:
    return f"judged at {_moment(judged.judged_us)}: {_line(judged.came_to(now_us))}"


def silence_in_words(silence: Silence, now_us: int) -> str:
    """A silence in a line: whether it holds, when, of what, and who says so."""
    matchers = _line(" ".join(map(str, silence.matchers)))
    why = f"{_line(silence.author)}: {_line(silence.comment)}"
    return f"{silence.silence_id}  {_when(silence, now_us)}  {matchers}  {why}"


def _when(silence: Silence, now_us: int) -> str:
    state = "active" if silence.is_active(now_us) else "waits"
    left = duration(max(0, silence.end_us - now_us) / MS_US)
    until = f"until {_moment(silence.end_us)} ({left} left)"
    if silence.recurring is None:
        start = "" if silence.begin_us <= now_us else f" from {_moment(silence.begin_us)}"
        return f"{state}{start} {until}"
    return f"{state}: {recurring_in_words(silence.recurring)}{_next(silence, now_us)}, {until}"


def recurring_in_words(recurring: Recurring) -> str:
    """`sat,sun at 22:00 for 8 h (Europe/Berlin)`."""
    days = ",".join(DAYS[day] for day in sorted(recurring.days)) or "every day"
    hour, minute = divmod(recurring.begin_minute, 60)
    lasts = duration(recurring.length_us / MS_US)
    return f"{days} at {hour:02}:{minute:02} for {lasts} ({recurring.zone})"


def _next(silence: Silence, now_us: int) -> str:
    assert silence.recurring is not None
    begin_us = silence.recurring.next_begin_us(max(now_us, silence.begin_us - 1))
    return "" if begin_us >= silence.end_us else f", next {_moment(begin_us)}"


def _field(name: str, value: str) -> str:
    return f"  {name.ljust(_BESIDE)}{value}"


def _moment(moment_us: int) -> str:
    return f"{clock(moment_at(moment_us), day=True)} UTC"


def _line(text: str) -> str:
    return one_line(text, TEXT_MAX)


def _cut(text: str) -> str:
    return one_line(text, COLUMN_MAX)
