"""Sign-in page, plus the sign-in status shown on every page.

The browser sends name and password by itself, as JSON, since the policy of the pages allows no
form. Neither goes through a callback of this application.
"""

from __future__ import annotations

from typing import Any, Final

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html

from dashboards.access.visitors import Standing, Visitor
from dashboards.formatting import visible
from dashboards.page_context import PageContext, beside
from dashboards.pages.components import card, notice
from dashboards.pages.page import Page
from engine.foundation.errors import ConfigError, StorageError

NAME_SHOWN_MAX: Final = 24
FIRST_PERSON: Final = (
    "tidemark scheduler users add NAME --admin",
    "tidemark scheduler users password NAME",
)
"""What makes an administrator with a password."""


def layout() -> html.Div:
    """The page of its own."""
    return html.Div([html.Div(html.H1("Sign in"), className="page-head"), fields()])


def fields(why: str = "Jobs are seen and changed by people whom the scheduler knows.") -> Any:
    """What is asked for. It stands in place of a page that strangers do not see."""
    form = html.Div(
        [
            html.P(why, className="quiet"),
            html.Div(id="sign-in-unsafe"),
            _field("name", "name", "text", "username"),
            _field("password", "password", "password", "current-password"),
            html.Div(
                [
                    html.Button("Sign in", id="sign-in-do", className="search-button primary"),
                    html.Span(id="sign-in-said", className="field-wrong", role="alert"),
                ],
                className="actions",
            ),
        ],
        className="sign-in",
    )
    return html.Div(card("Who are you?", form, element="sign-in-card"), **{"data-state": "sign-in"})


def _field(name: str, said: str, kind: str, completes: str) -> html.Div:
    element = f"sign-in-{name}"
    return html.Div(
        [
            html.Label(said, htmlFor=element),
            dcc.Input(
                id=element,
                type=kind,
                value="",
                maxLength=1_024,
                autoComplete=completes,
                spellCheck=False,
                className="search-field",
            ),
        ],
        className="field",
    )


def nobody_yet() -> html.Div:
    """Above pages of jobs that anybody at this machine may look at: nobody can sign in yet."""
    first, second = FIRST_PERSON
    said = html.P(
        [
            "You may look; to change anything somebody has to sign in, whom ",
            html.Code(first),
            " and ",
            html.Code(second),
            " make.",
        ]
    )
    return notice("Nobody can sign in yet", [said], kind="nobody-yet")


def chip(visitor: Visitor) -> Any:
    """The signed-in user with a link to sign out; or a link to sign in."""
    if visitor.standing is not Standing.SIGNED_IN or visitor.actor is None:
        return dcc.Link("sign in", href="/sign-in", className="nav-link", id="sign-in-link")
    name = visible(visitor.actor.name)
    shown = name if len(name) <= NAME_SHOWN_MAX else name[: NAME_SHOWN_MAX - 1] + "…"
    rights = "administrator" if visitor.actor.is_admin else "jobs of the groups listed for you"
    return html.Span(
        [
            html.Span(shown, className="name", title=f"{name}: {rights}", id="signed-in-name"),
            html.Button("sign out", id="sign-out", className="link-button"),
        ],
        className="visitor",
    )


def who(context: PageContext) -> Any:
    """What the frame says of who asks."""
    if context.visitors is None:
        return None
    try:
        return chip(context.visitor())
    except (StorageError, ConfigError):
        return html.Span("users unknown", className="visitor reason")


def register(app: Dash, context: PageContext) -> None:
    """The frame's part, and what the browser does."""

    @app.callback(Output("visitor", "children"), Input("url", "pathname"))
    async def show_visitor(pathname: str | None) -> Any:
        del pathname
        return await beside(who, context)

    app.clientside_callback(
        ClientsideFunction("tidemark", "signIn"),
        Output("sign-in-said", "children"),
        Input("sign-in-do", "n_clicks"),
        Input("sign-in-name", "n_submit"),
        Input("sign-in-password", "n_submit"),
        State("sign-in-name", "value"),
        State("sign-in-password", "value"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("tidemark", "signInSafety"),
        Output("sign-in-unsafe", "children"),
        Input("sign-in-unsafe", "id"),
    )
    app.clientside_callback(
        ClientsideFunction("tidemark", "signOut"),
        Output("sign-out", "title"),
        Input("sign-out", "n_clicks"),
        prevent_initial_call=True,
    )


PAGE: Final = Page("/sign-in", "Sign in", layout, register, in_navigation=False)
