"""Components shared by job pages, such as states, times, fields and buttons.

Invariant: what people named is text, whatever is in it, and is cut where it is long.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from dash import dcc, html

from dashboards.formatting import visible
from dashboards.pages.alert_components import worded
from dashboards.pages.components import node
from engine.foundation.errors import ConfigError
from pipelines.scheduler.run_life import RunState
from pipelines.scheduler.schedules import zone_of
from pipelines.scheduler.store.jobs import Job
from pipelines.scheduler.workflows import StepState

NAME_SHOWN_MAX: Final = 120
MESSAGE_SHOWN_MAX: Final = 300
RUN_SIGNS: Final = {
    RunState.PLANNED: ("◔", "planned", "unknown"),
    RunState.CLAIMED: ("◔", "about to be sent", "unknown"),
    RunState.SENT: ("▷", "sent", "rewound"),
    RunState.ACCEPTED: ("▷", "with its executor", "rewound"),
    RunState.RUNNING: ("▶", "running", "rewound"),
    RunState.UNKNOWN: ("?", "unknown: asked about", "slow"),
    RunState.REFUSED: ("⊘", "refused", "lost"),
    RunState.DONE: ("✓", "done", "ok"),
    RunState.FAILED: ("✖", "failed", "lost"),
    RunState.LOST: ("■", "lost", "stopped"),
    RunState.CANCELLED: ("–", "cancelled", "unknown"),
}
STEP_SIGNS: Final = {
    StepState.DONE.value: ("✓", "ok"),
    StepState.FAILED.value: ("✖", "lost"),
}
_TURNING: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)

assert set(RUN_SIGNS) == set(RunState), "each state is shown as something"


def cut(text: object, chars_max: int = NAME_SHOWN_MAX) -> str:
    """A text as it may be shown."""
    seen = visible(str(text)[: chars_max + 1])
    return seen if len(seen) <= chars_max else seen[: chars_max - 1] + "…"


def exact(text: str) -> str:
    """Lines of a source or a log, as they are but for characters that would turn what is around
    them."""
    return _TURNING.sub("\N{REPLACEMENT CHARACTER}", text)


def run_pill(state: RunState) -> html.Span:
    """Where a run stands."""
    return worded(*RUN_SIGNS[state])


def job_pill(job: Job) -> html.Span:
    """Where a job stands."""
    if job.wrong_because is not None:
        return worded("✖", "cannot be", "lost")
    if job.is_active:
        return worded("●", "active", "ok")
    if job.stopped_because is not None:
        return worded("■", "stopped", "stopped")
    return worded("‖", "paused", "unknown")


def moment(moment_ms: int | None, zone: str = "UTC") -> str:
    """A moment to the second, by the clock of a zone that is there, else by UTC."""
    if moment_ms is None:
        return "none"
    try:
        there: Any = zone_of(zone)
    except ConfigError:
        there = UTC
    return f"{datetime.fromtimestamp(moment_ms / 1000, there):%Y-%m-%d %H:%M:%S}"


def schedule_text(job: Job) -> list[Any]:
    """The schedule of a job, and its zone."""
    settings = job.settings
    if settings.schedule_kind == "NONE":
        return [html.Span("by hand, or by others", className="reason")]
    unit = " s" if settings.schedule_kind in {"FIX_RATE", "FIX_DELAY"} else ""
    return [
        html.Div(f"{cut(settings.schedule_text, 64)}{unit}", className="exact"),
        html.Div(
            f"{cut(settings.schedule_kind, 16)}, {cut(settings.zone, 40)}", className="reason"
        ),
    ]


def facts(pairs: Iterable[tuple[str, Any]]) -> html.Dl:
    """Names and values."""
    return html.Dl(
        [
            html.Div([html.Dt(name), html.Dd(value, className="wrap")])
            for name, value in pairs
            if value not in (None, "")
        ],
        className="job-facts",
    )


def text_field(
    name: str,
    label: str,
    value: str,
    *,
    wrong: str = "",
    note: str = "",
    chars_max: int = 255,
    is_secret: bool = False,
) -> dict[str, Any]:
    """One line of text."""
    element = f"field-{name}"
    shown = node(
        "input",
        id=element,
        type="password" if is_secret else "text",
        value=value,
        maxLength=chars_max,
        spellCheck="false",
        autoComplete="new-password" if is_secret else "off",
        className="search-field",
        data_field=name,
        **_described(element, wrong),
    )
    return _field(element, label, shown, wrong=wrong, note=note)


def area_field(
    name: str, label: str, value: str, *, wrong: str = "", rows: int = 3, chars_max: int = 65_535
) -> dict[str, Any]:
    """Several lines of text."""
    element = f"field-{name}"
    shown = node(
        "textarea",
        value,
        id=element,
        rows=rows,
        maxLength=chars_max,
        spellCheck="false",
        className="search-field source-field",
        data_field=name,
        **_described(element, wrong),
    )
    return _field(element, label, shown, wrong=wrong)


def choice_field(
    name: str, label: str, value: str, options: Sequence[str], *, wrong: str = ""
) -> dict[str, Any]:
    """One of several words."""
    element = f"field-{name}"
    there = list(options) if value in options else [value, *options]
    shown = node(
        "select",
        [node("option", visible(one) if one else "—", value=one, selected=one == value)
         for one in there],
        id=element,
        className="search-field",
        data_field=name,
        **_described(element, wrong),
    )  # fmt: skip
    return _field(element, label, shown, wrong=wrong)


def asking(name: str, label: str, value: str, options: Sequence[tuple[str, str]]) -> html.Label:
    """A choice that changes the address: (value, what is read)."""
    shown = node(
        "select",
        [node("option", text, value=one, selected=one == value) for one, text in options],
        className="search-field",
        data_asks=name,
    )
    return html.Label([html.Span(label), shown], className="asking")


def button(text: str, step: str, *, primary: bool = False) -> dict[str, Any]:
    """A button of the panel of a change."""
    css = "search-button primary" if primary else "search-button"
    return node("button", text, type="button", className=css, data_step=step)


def action_link(text: str, href: str) -> dcc.Link:
    """A link that opens the panel of a change."""
    return dcc.Link(text, href=href, className="search-button action")


def _described(element: str, wrong: str) -> dict[str, Any]:
    return {"aria_invalid": "true", "aria_describedby": f"{element}-wrong"} if wrong else {}


def _field(
    element: str, label: str, shown: Any, *, wrong: str = "", note: str = ""
) -> dict[str, Any]:
    below = []
    if note:
        below.append(node("small", note, className="reason"))
    if wrong:
        below.append(node("div", cut(wrong), id=f"{element}-wrong", className="field-wrong"))
    return node("div", [node("label", label, htmlFor=element), shown, *below], className="field")
