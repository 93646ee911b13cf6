"""Serves the job pages: authorises the reader, renders the lists and handles changes.

Lists are drawn from plain data at each tick, when they have changed. Changes go through one
callback: it shows the preview, then applies it. Strangers get the sign-in.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any, Final

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update

from dashboards.access.visitors import Standing, Visitor
from dashboards.actions.admin_changes import ADMIN_ACTIONS, AdminChanges
from dashboards.actions.job_changes import ACTIONS, JobChanges
from dashboards.actions.job_previews import Wish
from dashboards.actions.previewed_changes import PanelState, wish_of
from dashboards.formatting import visible
from dashboards.page_context import PageContext, beside
from dashboards.pages import job_lists, sign_in
from dashboards.pages.components import (
    card,
    drawn,
    notice,
    quiet,
    register_drawn,
    register_search,
    search_field,
    tree,
)
from dashboards.pages.job_page import JobPage, Logs
from dashboards.pages.job_panel import first_values, panel
from dashboards.pages.job_url_state import ROOT, JobAddress, address_of, linked, view_of
from dashboards.pages.page import Page
from engine.foundation.errors import ConfigError, RuleBroken, StorageError, TidemarkError
from pipelines.scheduler.page_queries import PageService
from pipelines.scheduler.roles import NotPermitted

LOG_EACH_MS: Final = 1_000
TITLES: Final = {
    "/jobs": "Which jobs are there?",
    "/jobs/executors": "Who runs them?",
    "/jobs/users": "Who may do what?",
    "/jobs/operations": "What takes long, and how did it end?",
    "/jobs/audit": "Who changed what?",
}
_TITLE: Final = html.Div(html.H1("Jobs"), className="page-head")
PAGE_OF: Final = {"group": "/jobs/executors", "user": "/jobs/users"}
"""Where they are changed."""
SEARCHES: Final = {
    "/jobs": "whose title, handler or group holds",
    "/jobs/audit": "of whom, or of what: ann, pause, job:7",
}


def layout(path: str) -> html.Div:
    """Places for all that is drawn."""
    address = address_of(path)
    is_job = address is not None and address.job_id is not None
    return html.Div(
        [
            dcc.Store(id="change-asked"),
            dcc.Store(id="jobs-seen"),
            *drawn("jobs-head"),
            html.Div(id="jobs-gate"),
            *drawn("change"),
            *drawn("jobs-run"),
            *([_log()] if is_job else []),
            html.Div(drawn("jobs-body"), className="jobs-body"),
        ]
    )


def _log() -> html.Div:
    log = html.Div(
        [
            html.Pre(
                id="run-log",
                className="log",
                tabIndex="0",
                role="log",
                **{"aria-label": "Log of the run"},
            ),
            html.P(id="run-log-said", className="quiet", **{"aria-live": "polite"}),
            dcc.Store(id="run-log-page"),
            dcc.Interval(id="run-log-tick", interval=LOG_EACH_MS, disabled=True),
        ]
    )
    shown = card("What does it log?", log, element="run-log-part")
    return html.Div(shown, id="run-log-card", className="hidden")


def content(context: PageContext, path: str | None, search: str | None) -> dict[str, Any]:
    """What is shown: "gate" is for strangers and what stands above, the others are trees."""
    nothing: dict[str, Any] = {"head": None, "run": None, "body": None, "gate": None}
    address = address_of(path)
    if address is None or context.visitors is None:
        return nothing | {"body": quiet("This dashboard was started without a database of jobs.")}
    try:
        visitor = context.visitor()
        if visitor.is_stranger:
            return nothing | {"gate": "stranger"}
        scheduler = context.visitors.service(visitor)
        gate = "nobody" if visitor.standing is Standing.LOOKS else f"search {address.path}"
        if scheduler is None:
            return nothing | {"gate": gate, "body": _no_database()}
        return nothing | {"gate": gate} | _shown(scheduler, address, search)
    except NotPermitted as error:
        return nothing | _refused(f"{error}.")
    except RuleBroken as error:
        return nothing | _refused(f"{error}.")
    except ConfigError as error:
        return nothing | _refused(f"{error.key} {error.value}: {error.allowed}.")
    except StorageError as error:
        return nothing | {"head": _TITLE} | {"body": _away(str(error))}


def _shown(service: PageService, address: JobAddress, search: str | None) -> dict[str, Any]:
    view = view_of(search)
    if address.job_id is not None:
        page = JobPage(service, address, view, search)
        return {"head": page.head(), "run": page.run(), "body": page.body()}
    match address.part:
        case "/jobs/executors":
            body: Any = job_lists.executors(service, search)
        case "/jobs/users":
            body = _card(address, job_lists.users(service, search))
        case "/jobs/operations":
            body = _card(address, job_lists.operations(service))
        case "/jobs/audit":
            body = _card(address, job_lists.audit(service, view))
        case _:
            body = _card(address, job_lists.jobs(service, view, search))
    return {"head": job_lists.head(address.part, service, search), "body": body}


def _card(address: JobAddress, shown: Any) -> Any:
    return card(TITLES[address.part], html.Div(shown), element="jobs-card")


def _no_database() -> Any:
    made = "tidemark jobs add --group APP title=... handler=... schedule_kind=..."
    said = [html.P("Nobody has made a job here yet. This makes the first one:"), html.Code(made)]
    return notice("There is no job yet", said, kind="first-run")


def _refused(sentence: str) -> dict[str, Any]:
    said = [html.P(visible(sentence))]
    shown = notice("Not for you to see, or not there", said, kind="refused")
    return {"head": _TITLE, "body": shown}


def _away(sentence: str) -> Any:
    said = [html.P(visible(sentence)), html.P("Tried again with each refresh.", className="quiet")]
    return notice("The database of jobs cannot be read", said, kind="error")


def only_news(path: str | None, search: str | None, found: dict[str, Any], seen: Any) -> Any:
    """What has changed since it was seen: what is the same is left alone, fields and all."""
    trees = [tree(found[part]) for part in ("head", "run", "body")]
    digests = [_digest(path, one) for one in (*trees, found["gate"])]
    known = seen if isinstance(seen, list) and len(seen) == len(digests) else [None] * len(digests)
    if known == digests:
        return (no_update,) * (len(digests) + 1)
    is_new = [one != before for one, before in zip(digests, known, strict=True)]
    shown = [one if new else no_update for one, new in zip(trees, is_new[:3], strict=True)]
    gate = gate_of(found["gate"], search) if is_new[3] else no_update
    return (*shown, gate, digests)


def gate_of(kind: str | None, search: str | None) -> Any:
    """What stands above the page."""
    if kind == "stranger":
        return html.Div([_TITLE, sign_in.fields()])
    if kind == "nobody":
        return sign_in.nobody_yet()
    part = (kind or "").removeprefix("search ")
    if part not in SEARCHES:
        return None
    query = view_of(search).query
    return search_field("jobs-search", SEARCHES[part], value=query.text)


class Panel:
    """The panel of a change, for whoever asks."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._changes = (
            None
            if context.visitors is None
            else JobChanges(context.visitors, token=context.executor_token)
        )
        self._admin = None if context.visitors is None else AdminChanges(context.visitors)

    def shown(self, path: str | None, search: str | None, request: Any) -> Any:
        """The panel that the address opens, or what came of the step that was asked for."""
        address, view = address_of(path), view_of(search)
        if address is None or self._changes is None:
            return None
        try:
            visitor = self._context.visitor()
        except (StorageError, ConfigError):
            return None  # The page says it.
        is_of_here = isinstance(request, dict) and (
            request.get("path"),
            request.get("search") or "",
        ) == (
            path,
            search or "",
        )
        if not is_of_here and not view.action:
            return None
        if visitor.standing is not Standing.SIGNED_IN:
            state = PanelState(Wish("run"), refused="Nobody has signed in: nothing is changed.")
            return tree(panel(state, (), linked(path or "", search, do=None, name=None)))
        stepped = self._stepped(visitor, request) if is_of_here else None
        state = stepped or self._opened(visitor, address, search)
        return tree(
            panel(state, self._groups(visitor), linked(path or "", search, do=None, name=None))
        )

    def _stepped(self, visitor: Visitor, request: dict[str, Any]) -> PanelState | None:
        assert self._changes is not None, "there are changes to make"
        wish = wish_of(request, (*ACTIONS, *ADMIN_ACTIONS))
        version, key = request.get("version"), request.get("key")
        if wish is None or not isinstance(version, str) or not isinstance(key, str):
            return None
        changes = self._admin if wish.action in ADMIN_ACTIONS else self._changes
        assert changes is not None, "there are changes to make"
        if request.get("step") == "do":
            return changes.do(visitor, wish, version=version, key=key)
        return changes.preview(visitor, wish)

    def _opened(self, visitor: Visitor, address: JobAddress, search: str | None) -> PanelState:
        assert self._changes is not None, "there are changes to make"
        view = view_of(search)
        if view.action in ADMIN_ACTIONS and address.part == PAGE_OF[view.action.partition("-")[0]]:
            assert self._admin is not None, "there are changes to make"
            return self._admin.opened(visitor, view.action, view.name)
        subject = address.job_id or 0
        if view.action == "kill":
            subject = view.run or 0
        if view.action not in ACTIONS or (subject == 0) != (view.action == "add"):
            return PanelState(Wish("run"), refused="There is nothing of that kind to do here.")
        given = {"glue_id": str(view.glue or 0)} if view.action == "back" else {}
        wish = Wish(view.action, subject, given)
        state = self._changes.preview(visitor, wish)
        if state.facts is None:
            return state
        # As the fields will hold it: what they hold is what is previewed.
        filled = replace(wish, values=first_values(wish.action, state) | given)
        return self._changes.preview(visitor, filled)

    def _groups(self, visitor: Visitor) -> list[str]:
        assert self._context.visitors is not None, "somebody is known"
        try:
            service = self._context.visitors.service(visitor)
            found = [] if service is None else service.groups()
        except TidemarkError:
            return []
        return [one.app_name for one in found]


def register(app: Dash, context: PageContext) -> None:
    """The callbacks of these pages."""
    panels, logs = Panel(context), Logs(context)

    @app.callback(
        *(Output(f"jobs-{part}-tree", "data") for part in ("head", "run", "body")),
        Output("jobs-gate", "children"),
        Output("jobs-seen", "data"),
        Input("tick", "n_intervals"),
        Input("url", "pathname"),
        Input("url", "search"),
        State("jobs-seen", "data"),
    )
    async def show_jobs(ticks: Any, path: str | None, search: str | None, seen: Any) -> Any:
        del ticks
        if address_of(path) is None:
            return (no_update,) * 5
        found = await beside(content, context, path, search)
        return only_news(path, search, found, seen)

    @app.callback(
        Output("change-tree", "data"),
        Input("change-asked", "data"),
        Input("url", "search"),
        Input("url", "pathname"),
    )
    async def show_change(asked: Any, search: str | None, path: str | None) -> Any:
        return await logs.beside(panels.shown, path, search, asked)

    @app.callback(
        Output("run-log-page", "data"),
        Output("run-log-card", "className"),
        Output("run-log-tick", "disabled"),
        Input("run-log-tick", "n_intervals"),
        Input("url", "search"),
        State("url", "pathname"),
        State("run-log-page", "data"),
    )
    async def follow(ticks: Any, search: str | None, path: str | None, known: Any) -> Any:
        del ticks
        page = await logs.beside(logs.page, path, search, known)
        if page is no_update:
            return no_update, no_update, False
        if page is None:
            return None, "hidden", True
        return page, "", bool(page["is_end"])

    for element in ("jobs-head", "jobs-body", "jobs-run", "change"):
        register_drawn(app, element)
    app.clientside_callback(
        ClientsideFunction("tidemark", "followLog"),
        Output("run-log-said", "children"),
        Input("run-log-page", "data"),
    )
    register_search(app, "jobs-search", is_drawn_anew=True)


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _job_page(path: str) -> str | None:
    return None if address_of(path) is None else path


PAGE: Final = Page(ROOT, "Jobs", layout, register, _job_page)
