"""Job-page panel for making a change, with fields, a preview and an apply button.

Invariant: the button is there only for what can be done and was previewed; the server checks all of
it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dash import dcc, html

from dashboards.actions.admin_changes import ADMIN_ACTIONS, RIGHTS, SECRETS
from dashboards.actions.job_previews import NOTHING_YET, SHOWN_CHARS_MAX, Preview, text_of
from dashboards.actions.previewed_changes import PanelState
from dashboards.pages.components import node, table
from dashboards.pages.job_components import (
    area_field,
    button,
    choice_field,
    cut,
    exact,
    moment,
    text_field,
)
from pipelines.scheduler.job_settings import (
    BLOCKING,
    GLUE_TYPES,
    NAME_CHARS_MAX,
    PARAMETERS_CHARS_MAX,
    JobSettings,
)
from pipelines.scheduler.passwords import PASSWORD_CHARS_MAX, PASSWORD_CHARS_MIN
from pipelines.scheduler.routing import RouteStrategy
from pipelines.scheduler.schedules import MisfirePolicy, ScheduleKind
from pipelines.scheduler.store.glue import REMARK_CHARS_MAX

SOURCE_CHARS_MAX: Final = 256 * 1024
"""What is longer is changed at the command line: a request of a page has its bound."""
LABELS: Final = {
    "title": "title",
    "group": "group",
    "author": "author",
    "schedule_kind": "schedule",
    "schedule_text": "cron rule, seconds, or moment",
    "zone": "zone",
    "misfire": "misfires",
    "route": "routing",
    "handler": "handler",
    "parameters": "parameters",
    "blocking": "while another run is at work",
    "timeout_s": "time-out, s (0: none)",
    "retries": "retries",
    "children": "children (numbers of jobs)",
    "glue_type": "kind of source",
    "glue_source": "source",
    "remark": "remark (why)",
    "app_name": "application",
    "addresses": "addresses, one a line (none: its executors register)",
    "as_name": "name of the copy",
    "user": "name",
    "rights": "rights",
    "groups": "groups, with commas between them",
    "password": f"password, {PASSWORD_CHARS_MIN} characters at least",
    "is_admin": "administrator",
    "group_ids": "groups",
}
CHOICES: Final[Mapping[str, Sequence[str]]] = {
    "schedule_kind": tuple(ScheduleKind),
    "misfire": tuple(MisfirePolicy),
    "route": tuple(RouteStrategy),
    "blocking": BLOCKING,
    "glue_type": GLUE_TYPES,
    "rights": RIGHTS,
}
SETTINGS_SHOWN: Final = (
    *("title", "group", "author", "schedule_kind", "schedule_text", "zone", "misfire", "route"),
    *("handler", "blocking", "timeout_s", "retries", "children", "glue_type", "parameters"),
)
FIELDS: Final[Mapping[str, Sequence[str]]] = {
    "run": ("parameters",),
    "copy": ("title", "group"),
    "edit": SETTINGS_SHOWN,
    "add": (*SETTINGS_SHOWN, "glue_source"),
    "source": ("glue_source", "remark"),
    "back": ("remark",),
    "group-add": ("app_name", "title", "addresses"),
    "group-edit": ("title", "addresses"),
    "group-copy": ("as_name",),
    "user-add": ("user", "rights", "groups", "password"),
    "user-edit": ("rights", "groups"),
    "user-copy": ("as_name",),
    "user-password": ("password",),
}
HIDDEN: Final[Mapping[str, str]] = {"back": "glue_id"} | {
    action: "name" for action in ADMIN_ACTIONS if not action.endswith("-add")
}
"""What the panel of an action holds besides, for nobody to change."""
CHARS_MAX: Final = {
    "parameters": PARAMETERS_CHARS_MAX,
    "glue_source": SOURCE_CHARS_MAX,
    "remark": REMARK_CHARS_MAX,
    "schedule_text": 128,
    "zone": 64,
    "addresses": 65_535,
    "groups": 4_096,
    "password": PASSWORD_CHARS_MAX,
    **dict.fromkeys(("app_name", "as_name", "user"), 64),
}
LONG: Final = ("parameters", "glue_source", "addresses")
VERBS: Final = {
    "run": "Run it now",
    "start": "Start it",
    "pause": "Pause it",
    "remove": "Remove it",
    "copy": "Copy it",
    "edit": "Change it",
    "add": "Make it",
    "source": "Change the source",
    "back": "Roll back",
    "kill": "Kill it",
    "password": "Change it",
}


def first_values(action: str, state: PanelState) -> dict[str, str]:
    """What the fields of an action hold when its panel is opened."""
    job = None if state.facts is None else state.facts.job
    settings = job.settings if job is not None else JobSettings.unchecked(title="")
    texts = {
        name: text_of(getattr(settings, name))
        for name in FIELDS.get(action, ())
        if name in JobSettings.__slots__
    }
    if "group" in FIELDS.get(action, ()):
        texts["group"] = state.facts.app_name if state.facts is not None else ""
    if action == "copy":
        texts["title"] = f"copy of {settings.title}"[:NAME_CHARS_MAX]
    return texts


def panel(state: PanelState, groups: Sequence[str], away: str) -> Any:
    """What is shown of a change. `groups`: whose jobs he may change; `away`: the page as it is
    without it."""
    if state.done:
        return _frame(state, "Done", _done(state, away))
    if state.preview is None:
        return _frame(state, "Not done", [_alert(state.refused), _close(away)])
    preview = state.preview
    shown: list[Any] = []
    if state.refused:
        shown.append(_alert(state.refused))
    fields = _fields(state, groups)
    if fields:
        shown.append(node("div", fields, className="fields"))
    shown += _preview(preview)
    actions: list[Any] = []
    if FIELDS.get(state.wish.action):
        actions.append(button("Preview", "preview"))
    if not preview.wrong:
        action = (
            state.wish.action if state.wish.action in VERBS else state.wish.action.partition("-")[2]
        )
        actions.append(button(VERBS[action], "do", primary=True))
    shown.append(node("div", [*actions, _close(away)], className="actions"))
    return _frame(state, preview.title, shown)


def _frame(state: PanelState, title: str, shown: Sequence[Any]) -> Any:
    heading = node("h2", cut(title), id="change-title", tabIndex="-1", data_focus="yes")
    return node(
        "section",
        [heading, *shown],
        className="card change",
        aria_labelledby="change-title",
        data_action=state.wish.action,
        data_subject=str(state.wish.subject),
        data_key=state.key,
        data_version=state.preview.version if state.preview is not None else "",
    )


def _done(state: PanelState, away: str) -> list[Any]:
    links: list[Any] = [_close(away)]
    if state.leads_to:
        links.insert(0, dcc.Link("Go there", href=state.leads_to, className="jump"))
    said = node("p", cut(state.done, SHOWN_CHARS_MAX), role="status", data_state="done")
    return [said, node("div", links, className="actions")]


def _close(away: str) -> Any:
    return dcc.Link("Close", href=away, className="search-button")


def _alert(sentence: str) -> Any:
    return node("p", cut(sentence, SHOWN_CHARS_MAX), className="field-wrong", role="alert")


def _fields(state: PanelState, groups: Sequence[str]) -> list[Any]:
    values = first_values(state.wish.action, state) | dict(state.wish.values)
    wrong = state.preview.wrong if state.preview is not None else {}
    shown: list[Any] = []
    hidden = HIDDEN.get(state.wish.action)
    if hidden:
        shown.append(node("input", type="hidden", value=values.get(hidden, ""), data_field=hidden))
    for name in FIELDS.get(state.wish.action, ()):
        label, value, why = LABELS[name], values.get(name, ""), wrong.get(name, "")
        if name == "glue_type" and value not in GLUE_TYPES and state.wish.action == "edit":
            continue  # A workflow stays one.
        if name == "group":
            shown.append(choice_field(name, label, value, groups, wrong=why))
        elif name in CHOICES:
            shown.append(choice_field(name, label, value, CHOICES[name], wrong=why))
        elif name in LONG:
            rows = 18 if state.wish.action == "source" else 3
            bound = CHARS_MAX[name]
            shown.append(area_field(name, label, value, wrong=why, rows=rows, chars_max=bound))
        else:
            bound = CHARS_MAX.get(name, NAME_CHARS_MAX)
            is_secret = name in SECRETS
            shown.append(
                text_field(name, label, value, wrong=why, chars_max=bound, is_secret=is_secret)
            )
    return shown


def _preview(preview: Preview) -> list[Any]:
    shown: list[Any] = []
    if preview.wrong.get("") == NOTHING_YET:
        shown.append(node("p", NOTHING_YET, className="reason"))
    elif preview.wrong.get(""):
        shown.append(_alert(preview.wrong[""]))
    elif preview.wrong:
        shown.append(node("p", "Not yet: see beside the fields.", className="reason"))
    if not preview.wrong:
        said = [node("li", cut(one, SHOWN_CHARS_MAX)) for one in preview.said]
        shown.append(node("ul", said, className="said"))
    if preview.changes and not preview.wrong:
        rows = [
            [LABELS.get(name, name), html.Span(_value(old)), html.Span(_value(new))]
            for name, old, new in preview.changes
        ]
        shown.append(table(("setting", "now", "then"), rows, label="What changes"))
    if preview.diff and not preview.wrong.get(""):
        shown.append(diff(preview.diff))
    if preview.times and not preview.wrong:
        times = ", ".join(moment(one, preview.zone) for one in preview.times)
        shown.append(
            node("p", [node("span", f"Next, by {cut(preview.zone)}: ", className="reason"),
                       node("span", times, className="exact next-times")])
        )  # fmt: skip
    return shown


def _value(text: str) -> str:
    return cut(text, SHOWN_CHARS_MAX) if text.strip() else "—"


def diff(lines: Sequence[str]) -> Any:
    """Lines that differ; a sign marks what is new and what is gone, too."""
    css = {"+": "diff-new", "-": "diff-gone", "@": "diff-at"}
    shown = [
        node("span", exact(line[:2_000]) + "\n", className=css.get(line[:1], "")) for line in lines
    ]  # fmt: skip
    return node("pre", shown, className="source", tabIndex="0", aria_label="Difference")


def source_of(text: str) -> Any:
    """A source as it is."""
    return node("pre", exact(text[:SOURCE_CHARS_MAX]), className="source", tabIndex="0")
