"""The table of users, and links to what administrators can do with users and groups."""

from __future__ import annotations

from typing import Any, Final

from dash import dcc, html

from dashboards.job_url_state import linked
from dashboards.pages.alert_components import worded
from dashboards.pages.components import table
from dashboards.pages.job_components import cut
from pipelines.scheduler.page_queries import PageService
from pipelines.scheduler.store.people import User

USER_ACTIONS: Final = ("edit", "copy", "password", "remove")


def users(service: PageService, search: str | None) -> Any:
    """Users and their rights. Raises NotPermitted for who is no administrator."""
    names = {one.group_id: one.app_name for one in service.groups()}
    rows = [_user(one, names, search) for one in service.users()]
    return table(("user", "may", "signs in", ""), rows, label="Users")


def _user(user: User, names: dict[int, str], search: str | None) -> list[Any]:
    apps = ", ".join(cut(names.get(one, one), 64) for one in user.group_ids)
    may = "everything" if user.is_admin else f"see and change the jobs of {apps or 'no group'}"
    signs_in = worded("✓", "by password", "ok") if user.has_password else "no password"
    return [
        html.Span(cut(user.name), className="name"),
        html.Span(may, className="wrap"),
        signs_in,
        actions("/jobs/users", search, "user", user.name, words=USER_ACTIONS),
    ]


def actions(
    path: str, search: str | None, kind: str, name: str, *, words: tuple[str, ...]
) -> html.Div:
    """Links to what can be done with one of them."""
    links = [
        dcc.Link(word, href=linked(path, search, do=f"{kind}-{word}", name=name), className="jump")
        for word in words
    ]
    return html.Div(links, className="links")
