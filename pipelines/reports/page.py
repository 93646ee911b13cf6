"""Renders a lag report as HTML: headline, news, group table and figures.

Place in the walk: numbers → pieces of HTML, which the notebook shows; `making` puts them into a
page that fetches nothing and runs no script. Groups that kept their objective and have no news are
named in columns, not in rows, for pages of 300 groups. Invariant: pure; names of others are
escaped; what is unknown is called so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from html import escape
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from pipelines.base.settings import HOUR_US
from pipelines.base.time_units import moment_at, utc_text
from pipelines.base.wording import count, duration, plural, spoken
from pipelines.reading.moment import cluster_of, is_observer
from pipelines.reports.drawing import (
    BEHIND_COLOUR,
    HATCH,
    SECOND_COLOUR,
    WITHIN_COLOUR,
    overview,
    part_bar,
    predicted_bar,
    sparkline,
)
from pipelines.reports.numbers import (
    DuplicateCause,
    GroupFigures,
    News,
    Numbers,
    Verdict,
    all_again,
)
from pipelines.reports.windows import zone_of
from pipelines.sentences import periods
from pipelines.sentences.emitters import polled

ROWS_MAX: Final = 80
"""Groups with a row of their own; of the others the page has the names."""
QUIET_ROWS: Final = 10
"""Groups with a row when none has anything to show: those that came nearest to it."""
NEWS_SHOWN: Final = 6
"""Of a kind; the others are in the numbers."""
_MARKS: Final = {Verdict.MISSED: "■", Verdict.UNCLEAR: "?", Verdict.KEPT: "✓"}
POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def top(numbers: Numbers, *, revised: str = "", rebuilt: str = "") -> str:
    """Title, headline, what must be known before it is believed, and the figures in tiles."""
    tiles = [
        (_missed(numbers), "groups missed their objective"),
        (duration(1000 * sum(one.stood_s for one in numbers.stalls)), "queues stood still, summed"),
        (all_again(numbers.duplicates), "repeated deliveries"),
        (count(sum(one.letters for one in numbers.dead_letters)), "messages given up"),
        (_known(numbers), "of the groups' time is known"),
    ]
    shown = "".join(
        f"<div class='tile'><b>{escape(figure)}</b><span>{escape(what)}</span></div>"
        for figure, what in tiles
    )
    notes = [one for one in (rebuilt, revised) if one]
    notes += [*observed_clusters(numbers), *_cautions(numbers)]
    cautions = "".join(f"<p class='caution'>{escape(note)}</p>" for note in notes)
    return (
        f"{HATCH}<header><p class='kind'>Lag report · {escape(numbers.period)}</p>"
        f"<h1>{escape(numbers.title)}</h1>"
        f"<p class='headline'>{_unbroken(numbers.headline)}</p></header>{cautions}"
        f"<div class='tiles'>{shown}</div>{_overview(numbers)}"
    )


def _unbroken(sentence: str) -> str:
    """With numbers that stay on the line of their units."""
    return re.sub(r"(?<=\d) (?=(?:ms|s|min|h|d|%)\b|%)", "\u00a0", escape(sentence))


def _missed(numbers: Numbers) -> str:
    if not numbers.groups:
        return "unknown"
    unclear = numbers.count(Verdict.UNCLEAR)
    more = f" (+{unclear}?)" if unclear else ""
    return f"{numbers.count(Verdict.MISSED)} of {len(numbers.groups)}{more}"


def _known(numbers: Numbers) -> str:
    known = sum(one.within_s + one.behind_s for one in numbers.groups)
    whole = known + sum(one.unknown_s for one in numbers.groups)
    if not whole:
        return "nothing"
    share = 100 * known / whole
    return "all" if known == whole else f"{min(share, 99.9):.1f} %"


def observed_clusters(numbers: Numbers) -> Iterable[str]:
    """A sentence for each cluster that is watched from outside: its figures were polled."""
    periods: dict[str, list[int | None]] = {}
    for one in numbers.emitters:
        if is_observer(one.emitter):
            periods.setdefault(cluster_of(one.emitter), []).append(one.polled_each_ms)
    for cluster, each_ms in sorted(periods.items()):
        yield f"{cluster} is {polled(each_ms)}."


def _cautions(numbers: Numbers) -> Iterable[str]:
    late = [one for one in numbers.emitters if not one.reaches_end]
    for one in late[:5]:
        to = _moment(numbers, one.judged_to_us)
        yield periods.known_up_to(one.emitter, f"{to} {numbers.zone}")
    if len(late) > 5:
        yield periods.more_not_known(len(late) - 5)
    lost = [one for one in numbers.emitters if one.missing_rows or one.doubled_rows]
    for one in lost[:5]:
        yield periods.reports_wrong(one.emitter, one.missing_rows, one.doubled_rows)
    known_from = numbers.known_from_us
    if known_from is not None and known_from > numbers.begin_us:
        yield periods.lag_known_from(f"{_moment(numbers, known_from)} {numbers.zone}")
    withheld: dict[str, list[str]] = {}
    for figures in numbers.groups:
        if figures.withheld:
            withheld.setdefault(figures.withheld, []).append(figures.group)
    for why, groups in list(withheld.items())[:5]:
        yield periods.not_believed(groups, why)
    if len(withheld) > 5:
        more = sum(len(groups) for groups in list(withheld.values())[5:])
        yield periods.more_not_believed(more)


def _overview(numbers: Numbers) -> str:
    """How many groups were behind, or unknown, at each moment."""
    if not numbers.groups:
        return ""
    courses = [one.course for one in numbers.groups]
    counts = [
        (sum(one[at] == "b" for one in courses), sum(one[at] == "?" for one in courses))
        for at in range(len(courses[0]))
    ]
    if not any(map(any, counts)):
        return "<p class='legend'>No group was behind its objective at any moment.</p>"
    steps = [numbers.begin_us + (numbers.end_us - numbers.begin_us) * n // 6 for n in range(7)]
    is_long = numbers.end_us - numbers.begin_us > 36 * HOUR_US
    labels = [f"{_local(numbers, at):{'%a %d %b' if is_long else '%H:%M'}}" for at in steps]
    return (
        f"<figure><figcaption>How many of the {plural(len(courses), 'group')} were "
        "<b style='color:#b34700'>behind</b> their objective, or <b>unknown</b> (hatched), at each "
        f"moment ({escape(numbers.zone)})</figcaption>{overview(counts, labels)}</figure>"
    )


def news(numbers: Numbers) -> str:
    """What was not so in the period before: groups by name in one line a kind."""
    title = "<section><h2>New against the period before</h2>"
    if not numbers.before_is_known:
        return f"{title}<p>Nothing is known of the period before.</p></section>"
    if not numbers.news:
        return f"{title}<p>Nothing that was not so before.</p></section>"
    of_groups = {one.group: one for one in numbers.groups}
    by_kind: dict[str, list[News]] = {}
    for one in numbers.news:
        by_kind.setdefault(one.kind, []).append(one)
    items = []
    for kind, of_kind in by_kind.items():
        shown = [_new(one, of_groups.get(one.about)) for one in of_kind[:NEWS_SHOWN]]
        rest = f", and {len(of_kind) - NEWS_SHOWN} more" if len(of_kind) > NEWS_SHOWN else ""
        mark = "<b class='better'>▲</b>" if of_kind[0].is_better else "<b class='worse'>▼</b>"
        separator = ", " if kind in _IN_A_ROW else "; "
        items.append(f"<li>{mark} {_KINDS[kind]}: {separator.join(shown)}{rest}</li>")
    return f"{title}<ul class='news'>{''.join(items)}</ul></section>"


_KINDS: Final = {
    "WORSE": "less within their objective",
    "BETTER": "more within their objective",
    "NEW_GROUP": "not there before",
    "GONE_GROUP": "not there any more",
    "STALLS": "stalls of a kind that was rare",
    "DUPLICATES": "more delivered again",
    "DEAD_LETTERS": "more given up",
}
_IN_A_ROW: Final = ("WORSE", "BETTER", "NEW_GROUP", "GONE_GROUP")


def _new(one: News, figures: GroupFigures | None) -> str:
    about = f"<b>{escape(one.about)}</b>"
    if one.kind in ("WORSE", "BETTER") and figures is not None:
        before, now = figures.share_before_percent, figures.share_percent
        return f"{about} {_percent(before)} → {_percent(now)}"
    return about if one.kind in _IN_A_ROW else f"{about} {escape(_shortened(one.text))}"


def groups(numbers: Numbers, *, pages: str = "") -> str:
    """The groups, the worst first. pages: address of the dashboard, for links; empty: none."""
    listed = _with_rows(numbers)
    ratios = [(one.worst_ms or 0) / one.objective_ms for one in listed]
    rows = "".join(_row(numbers, one, max(ratios, default=1.0), pages) for one in listed)
    head = "".join(
        f"<th{side}>{name}</th>"
        for name, side in (
            ("", ""), ("group", ""), ("time lag through the period", ""), ("within", " class='n'"),
            ("before", " class='n'"), ("worst", " class='n'"), ("stood", " class='n'"),
            ("again", " class='n'"), ("dead", " class='n'"),
        )
    )  # fmt: skip
    return (
        "<section><h2>Groups, the worst first</h2><p class='legend'>Bars: time lag, logarithmic "
        "above the dashed line of each group's objective; hatched: unknown. <i>Within</i>: share "
        "of the known time within the objective. <i>Again</i>: repeated deliveries.</p>"
        f"<table class='groups'><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        "</section>"
    )


def others(numbers: Numbers, *, pages: str = "") -> str:
    """The groups without a row, by name."""
    shown = {(one.cluster, one.group) for one in _with_rows(numbers)}
    rest = [one for one in numbers.groups if (one.cluster, one.group) not in shown]
    if not rest:
        return ""
    is_well = all(one.verdict is Verdict.KEPT and one.share_percent == 100 for one in rest)
    title = (
        f"{plural(len(rest), 'more group')}, never behind"
        if is_well
        else (f"{plural(len(rest), 'more group')}")
    )
    named = "".join(
        f"<li>{_MARKS[one.verdict]} {_name(numbers, one, pages)} "
        f"<i>{'' if is_well else _share(one)}</i></li>"
        for one in sorted(rest, key=lambda one: (one.group, one.cluster))
    )
    return f"<section><h2>{title}</h2><ul class='columns'>{named}</ul></section>"


def _with_rows(numbers: Numbers) -> list[GroupFigures]:
    """The groups that have something to show; when none has, the first few."""
    listed = [one for one in numbers.groups if _has_something(one)]
    return listed[:ROWS_MAX] or list(numbers.groups)[:QUIET_ROWS]


def _has_something(one: GroupFigures) -> bool:
    happened = one.stalls or one.redelivered or one.dead_letters or one.withheld
    return one.verdict is not Verdict.KEPT or bool(happened or one.behind_s)


def _row(numbers: Numbers, one: GroupFigures, greatest: float, pages: str) -> str:
    spark = sparkline(one.course_ms, one.course, one.objective_ms, greatest)
    before = "new" if not one.was_there else _percent(one.share_before_percent)
    if not numbers.before_is_known:
        before = "unknown"
    note = f"objective {duration(one.objective_ms)} for {one.target_percent:g} %"
    state = "" if one.state in ("OK", "GONE") else f" · {spoken(one.state)} at the end"
    withheld = " · <b>withheld</b>" if one.withheld else ""
    cells = (
        _share(one),
        before,
        one.worst,
        duration(1000 * one.stood_s) if one.stalls else "–",
        one.again if one.again != "0" else "–",
        count(one.dead_letters) if one.dead_letters else "–",
    )
    figures = "".join(f"<td class='n'>{escape(cell)}</td>" for cell in cells)
    return (
        f"<tr class='{one.verdict.value.lower()}'><td class='mark' title='{one.verdict.value}'>"
        f"{_MARKS[one.verdict]}</td><td class='name'>{_name(numbers, one, pages)}"
        f"<small>{escape(note)}{escape(state)}{withheld}</small></td>"
        f"<td class='course'>{spark}</td>{figures}</tr>"
    )


def _name(numbers: Numbers, one: GroupFigures, pages: str) -> str:
    clusters = {other.cluster for other in numbers.groups}
    shown = escape(one.group) + (f" <i>{escape(one.cluster)}</i>" if len(clusters) > 1 else "")
    if not pages or one.group.encode("utf-8", "replace").decode() != one.group:
        return f"<span>{shown}</span>"
    asked = {
        "from": utc_text(moment_at(numbers.begin_us)),
        "to": utc_text(moment_at(numbers.end_us)),
        "cluster": one.cluster,
    }
    link = f"{pages.rstrip('/')}/group/{quote(one.group, safe='')}?{urlencode(asked)}"
    return f"<a href='{escape(link)}'>{shown}</a>"


def _share(one: GroupFigures) -> str:
    percent = _percent(one.share_percent)
    return f"{percent} ?" if one.unknown_s and one.share_percent is not None else percent


def _percent(share: float | None) -> str:
    if share is None:
        return "unknown"
    return f"{share:.0f} %" if share in (0.0, 100.0) else f"{min(max(share, 0.1), 99.9):.1f} %"


def stalls(numbers: Numbers) -> str:
    """What stood still, by cause."""
    if not numbers.stalls:
        return _nothing("Stalls, by cause", "No queue stood still.")
    most = max(one.stood_s for one in numbers.stalls)
    rows = [
        (
            (
                f"<b>{escape(spoken(one.kind))}</b><small>longest: {escape(one.longest_of)}, "
                f"{duration(1000 * one.longest_s)}: "
                f"{escape(_shortened(one.longest_evidence))}</small>"
            ),
            part_bar([(one.stood_s, BEHIND_COLOUR)], most),
            duration(1000 * one.stood_s),
            _with_before(one.windows, one.windows_before),
            f"{one.groups}",
            _still_open(one.open_at_end, one.unknown),
        )
        for one in numbers.stalls
    ]
    heads = ("cause", "", "stood", "stalls (before)", "groups", "at the end")
    return _table("Stalls, by cause", heads, rows)


def _still_open(open_at_end: int, unknown: int) -> str:
    state = f"{open_at_end} open" if open_at_end else "over"
    return f"{state}, {unknown} unknown" if unknown else state


def duplicates(numbers: Numbers) -> str:
    """Re-deliveries by cause: what was predicted when the risk began, and what was observed."""
    if not numbers.duplicates:
        return _nothing("Duplicates: predicted and observed", "No risk of duplicates began.")
    most = max(max(one.predicted, one.redelivered) for one in numbers.duplicates)
    rows = [
        (
            (
                f"<b>{escape(spoken(one.cause))}</b><small>{plural(one.windows, 'risk')} of "
                f"{plural(one.groups, 'group')}: {one.confirmed} confirmed, {one.passed} passed, "
                f"{one.possible} open{_at_most(one)}</small>"
            ),
            predicted_bar(one.certain, one.predicted, one.redelivered, most),
            "unknown" if one.certain is None else count(one.certain),
            count(one.predicted),
            one.again,
            "–" if not one.exceeded else plural(one.exceeded, "time"),
        )
        for one in numbers.duplicates
    ]
    heads = ("cause", "predicted ▮ observed", "certain", "at most", "deliveries", "exceeded")
    return _table("Duplicates: predicted and observed", heads, rows)


def _at_most(one: DuplicateCause) -> str:
    return f" ({plural(one.open_at_most, 'message')} at most)" if one.open_at_most else ""


def dead_letters(numbers: Numbers) -> str:
    """Messages given up, and what became of dead letters."""
    if not numbers.dead_letters:
        return _nothing("Dead letters", "No message was given up, and none waits for a decision.")
    rows = []
    for one in numbers.dead_letters[:ROWS_MAX]:
        fates = [one.redriven or 0, one.discarded or 0, one.expired or 0, one.waiting or 0]
        fills = (SECOND_COLOUR, "#90a0ab", BEHIND_COLOUR, WITHIN_COLOUR)
        why = escape(_shortened(one.reason)) if one.letters else "none new"
        rows.append(
            (
                f"<b>{escape(one.group)}</b><small>{why}</small>",
                part_bar(zip(fates, fills, strict=True), sum(fates)),
                _with_before(one.letters, one.letters_before),
                count(one.redriven),
                count(one.discarded),
                count(one.expired),
                count(one.waiting),
            )
        )
    heads = ("group", "", "given up (before)", "sent again", "discarded", "expired", "waiting")
    return _table("Dead letters, and what became of them", heads, rows)


def retention(numbers: Numbers) -> str:
    """Unread messages that are deleted, or will be."""
    if not numbers.retention:
        return _nothing("Retention", "No group is known to lose unread messages to retention.")
    rows = []
    for one in numbers.retention[:ROWS_MAX]:
        when = "gone"
        if one.retained_until_us is not None:
            when = _moment(numbers, one.retained_until_us)
        what = f"<b>{escape(one.group)}</b><small>{escape(_shortened(one.evidence))}</small>"
        rows.append((what, when))
    return _table("Unread messages that retention takes", ("group", "the first go"), rows)


def quality(numbers: Numbers) -> str:
    """Whether the data is whole, and what checks found."""
    failing = [one for one in numbers.checks if one.failed_runs]
    known = [one for one in numbers.emitters if one.missing_rows is not None]
    whole = [one for one in known if not one.missing_rows and not one.doubled_rows]
    sentences = [periods.reports_whole(len(whole), len(numbers.emitters))]
    if not numbers.checks:
        sentences.append(periods.NOT_CHECKED)
    elif not failing:
        sentences.append(periods.checks_held(len(numbers.checks)))
    if numbers.violations is None:
        sentences.append(periods.LAWS_UNKNOWN)
    else:
        sentences.append(periods.laws(numbers.violations, numbers.unaccounted))
    text = f"<p>{escape(' '.join(sentences))}</p>"
    if not failing:
        return f"<section><h2>Data quality</h2>{text}</section>"
    rows = [
        (
            f"<b>{escape(one.expectation)}</b><small>{escape(_shortened(one.observed))}</small>",
            one.severity.lower(),
            f"{one.failed_runs} of {one.runs}",
        )
        for one in failing
    ]
    return _table("Data quality", ("check that failed", "severity", "runs"), rows, before=text)


def origin(numbers: Numbers) -> str:
    """What it was made from, so that it can be made again."""
    taken = utc_text(moment_at(numbers.told_at_us), timespec="seconds")
    return (
        f"<footer>From gold of {escape(numbers.lake)} as it was known at cycle {numbers.cycle} of "
        f"run {escape(numbers.run_id)}, taken {taken}. Lag by slots of "
        f"{duration(1000 * numbers.slot_s)}: one counts as behind when the group was, at any moment"
        f" of it. Numbers {numbers.digest}.</footer>"
    )


def _with_before(now: int, before: int | None) -> str:
    return f"{count(now)} ({'unknown' if before is None else count(before)})"


def _nothing(title: str, sentence: str) -> str:
    return f"<section><h2>{escape(title)}</h2><p>{escape(sentence)}</p></section>"


def _table(
    title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, before: str = ""
) -> str:
    """The first two cells of a row are HTML; the others are figures. Their texts are ours."""
    head = "".join(
        f"<th{' class=n' if number > 1 else ''}>{escape(name)}</th>"
        for number, name in enumerate(heads)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td class='{'what' if number == 0 else 'n' if number > 1 else 'figure'}'>{cell}</td>"
            for number, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f"<section><h2>{escape(title)}</h2>{before}<table><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></section>"
    )


def _shortened(text: str) -> str:
    return text if len(text) <= 160 else f"{text[:159]}…"


def _moment(numbers: Numbers, moment_us: int) -> str:
    return f"{_local(numbers, moment_us):%d %b %Y %H:%M}"


def _local(numbers: Numbers, moment_us: int) -> datetime:
    return moment_at(moment_us).astimezone(zone_of(numbers.zone))


@cache
def _sheet() -> str:
    return (Path(__file__).parent / "sheet.css").read_text(encoding="utf-8")


def document(title: str, pieces: Iterable[str]) -> str:
    """The page, whole."""
    body = "\n".join(pieces)
    return (
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<base target='_top'>"  # In a frame of the dashboard, a link leads the whole window there.
        f"<title>{escape(title)}</title>\n<style>\n{_sheet()}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )
