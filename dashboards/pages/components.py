"""Components shared by all pages, such as pills, tiles, tables and notices."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component

from dashboards.formatting import UNKNOWN, clock, visible
from dashboards.models.lag_overview import Quality, origin_text
from dashboards.theme import StateSign, state_sign
from dashboards.url_state import QUERY_MAX, Span, View, around, parse, topic_path
from pipelines.reading.moment import Moment
from pipelines.reading.trust import Doubts, Trust
from pipelines.sentences.pop_groups import PopGroup

WITHHELD_SHOWN: Final = 5
"""Lines of a notice that say what is withheld; further ones are counted."""
TREND_SIGNS = {"GROWING": "↗ growing", "STEADY": "→ steady", "SHRINKING": "↘ shrinking"}


def state_pill(state: str | None) -> html.Span:
    """A state as sign and word."""
    return sign_pill(state_sign(state))


def sign_pill(sign: StateSign) -> html.Span:
    """The same of a state whose sign is at hand."""
    return html.Span(
        [html.Span(sign.sign, className="pill-sign", **{"aria-hidden": "true"}), sign.word],
        className=f"pill pill-state pill-{sign.css}",
    )


def search_field(name: str, label: str, *beside: Component, value: str = "") -> html.Div:
    """The field of that name by which a list is searched while one types, and what stands beside
    it."""
    field = dcc.Input(
        id=name,
        type="text",
        value=value,
        maxLength=QUERY_MAX,
        autoComplete="off",
        spellCheck=False,
        debounce=True,
        className="search-field",
    )
    found = [html.Label(label, htmlFor=name), field, *beside]
    return html.Div(found, className="search", role="search")


def register_search(app: Dash, name: str, *, is_drawn_anew: bool = False) -> None:
    """Search while one types into the field of that name, and have it say what the address asks
    for; one that `is_drawn_anew` with its list is made with that value.
    """
    app.clientside_callback(
        ClientsideFunction("tidemark", "findGroups"),
        Output(name, "n_submit"),
        Input(name, "value"),
        prevent_initial_call=True,
    )
    if is_drawn_anew:
        return

    @app.callback(Output(name, "value"), Input("url", "search"))
    def show_query(search: str | None) -> str:
        return parse(search).query


def tile(label: str, value: Any, note: Any, *, href: str, tone: str = "calm") -> dcc.Link:
    """One number of the strip, a link to what it counts."""
    return dcc.Link(
        [
            html.Div(label, className="tile-label"),
            html.Div(value, className="tile-value"),
            html.Div(note, className="tile-note"),
        ],
        href=href,
        className=f"tile tile-{tone}",
    )


def quality_badge(found: Quality, *, href: str) -> dcc.Link:
    """The checks that govern a number, beside that number."""
    signs = {"healthy": "✓", "warning": "▲", "degraded": "✖", "unknown": "?"}
    return dcc.Link(
        [
            html.Span(signs[found.level], className="pill-sign", **{"aria-hidden": "true"}),
            f"checks {found.level}",
        ],
        href=href,
        title=found.sentence,
        className=f"pill pill-quality-{found.level}",
    )


def withheld_notice(
    trust: Trust,
    tables: Sequence[str],
    moment: Moment,
    *,
    since: datetime,
    group: str | None = None,
) -> html.Div | None:
    """Which verdicts of a page are withheld, and why: of a page about all groups everybody's, or
    those of some, each with its own reason; None when all may be believed."""
    found: dict[str, None] = {}
    for table in tables if trust.failures else ():
        found |= dict.fromkeys(_withheld_lines(trust, table, moment, since=since, group=group))
    if not found:
        return None
    more = len(found) - WITHHELD_SHOWN
    lines = [html.P(visible(line)) for line in list(found)[:WITHHELD_SHOWN]]
    lines += [html.P(f"and {more:,} more")] if more > 0 else []
    lines.append(html.P(dcc.Link("What the checks found", href="/checks")))
    return notice("Verdicts are withheld", lines, kind="withheld")


def _withheld_lines(
    trust: Trust, table: str, moment: Moment, *, since: datetime, group: str | None
) -> list[str]:
    if group is not None:
        held = trust.withheld(table, moment.newest, since=since, group=group)
        return [] if held is None else [str(held)]
    doubts = doubts_at(trust, table, moment, since=since)
    if doubts.whole is not None:
        return [str(doubts.whole)]
    return [f"{whose}: {one}" for whose, one in doubts.each]


def doubts_at(trust: Trust, table: str, moment: Moment, *, since: datetime) -> Doubts:
    """What is withheld of verdicts about all groups, in a range that ends at the moment."""
    emitters = [one.emitter for one in moment.reached]
    return trust.doubts(table, moment.newest, since=since, emitters=emitters)


def known(text: str | None, reason: str) -> html.Span:
    """A value, or the word for none with its reason below it."""
    if text is not None:
        return html.Span(text, className="exact")
    return html.Span([UNKNOWN, html.Small(reason, className="because")], className="unknown")


def table(headings: Sequence[str], rows: Sequence[Sequence[Any]], *, label: str) -> html.Div:
    """A plain table with a name for screen readers; wide ones scroll in themselves."""
    head = html.Thead(html.Tr([html.Th(heading, scope="col") for heading in headings]))
    body = html.Tbody([html.Tr([html.Td(cell) for cell in row]) for row in rows])
    return html.Div(
        html.Table([head, body], **{"aria-label": label}), className="table-scroll", tabIndex="0"
    )


def card(title: Any, children: Any, *, element: str, note: Any = None) -> html.Section:
    """A framed part of a page with its heading."""
    heading = [html.H2(title, id=f"{element}-title")]
    if note is not None:
        heading.append(html.Span(note, className="card-note"))
    return html.Section(
        [html.Header(heading, className="card-head"), children],
        className="card",
        id=element,
        **{"aria-labelledby": f"{element}-title"},
    )


def topic_link(topic: str | None, view: View) -> Any:
    """A topic's name, leading to its page in the same range."""
    if not topic:
        return UNKNOWN
    return dcc.Link(
        visible(topic), href=topic_path(topic) + view.around_page.search(), className="topic"
    )


def origin(row: dict[str, Any], view: View) -> Any:
    """Where a failed message came from, the same on every page; its topic leads to its page."""
    said, topic = origin_text(row), row["origin_topic"]
    if not topic:
        return html.Span(said, className="exact")
    rest = said.removeprefix(visible(topic))
    return html.Span([topic_link(topic, view), rest], className="exact")


def drawn(element: str) -> list[Any]:
    """A place whose content the browser draws by itself, from a tree of plain data.

    Each component costs the renderer of Dash a subscription of its own: a table of some hundred of
    them holds up a browser for a second. What is only read needs none.
    """
    return [dcc.Store(id=f"{element}-tree"), html.Div(id=element)]


def register_drawn(app: Dash, element: str) -> None:
    """Draw a place whenever its tree changes."""
    app.clientside_callback(
        ClientsideFunction("tidemark", "draw"),
        Input(f"{element}-tree", "data"),
        State(element, "id"),
    )


def tree(shown: Any) -> Any:
    """Components as plain data: a text, a list, or {tag, props, children}."""
    if shown is None or isinstance(shown, str):
        return shown
    if isinstance(shown, list | tuple):
        return [tree(one) for one in shown]
    if isinstance(shown, dict):
        return {**shown, "children": tree(shown.get("children"))}
    if not hasattr(shown, "to_plotly_json"):
        return str(shown)
    described = shown.to_plotly_json()
    props = dict(described["props"])
    children = tree(props.pop("children", None))
    tag = "a" if described["type"] == "Link" else described["type"].lower()
    return {"tag": tag, "props": props, "children": children}


def node(tag: str, children: Any = None, **props: Any) -> dict[str, Any]:
    """An element that Dash has none of, for a tree; `data_field` is `data-field`."""
    named = {name.rstrip("_").replace("_", "-"): value for name, value in props.items()}
    return {"tag": tag, "props": named, "children": children}


def sent(shown: Any) -> Any:
    """Components as the plain data that a browser is sent.

    A page's content is kept so: each further reader costs no more than to write it out. Otherwise
    Dash would look through all of it, figures too, for whatever is no plain data, each time.
    """
    if isinstance(shown, list | tuple):
        return [sent(one) for one in shown]
    if not isinstance(shown, Component):
        return shown
    described = shown.to_plotly_json()
    props = {name: sent(value) for name, value in described["props"].items()}
    return {**described, "props": props}


def pager(path: str, view: View, found: int, *, size: int, of: str) -> Any:
    """Links to the pages of a list; nothing when one page has it all."""
    pages = max(1, -(-found // size))
    if pages == 1:
        return None
    here = min(view.page, pages)
    begin = (here - 1) * size + 1
    end = min(found, here * size)

    def to(page: int, text: str) -> Any:
        if not 1 <= page <= pages or page == here:
            return html.Span(text, className="choice")
        return dcc.Link(text, href=path + view.search(page=str(page)), className="choice")

    return html.Nav(
        [
            to(1, "first"),
            to(here - 1, "previous"),
            html.Span(f"{begin:,} to {end:,} of {found:,}", className="choice here"),
            to(here + 1, "next"),
            to(pages, "last"),
        ],
        className="choices pager",
        **{"aria-label": f"Pages of {of}"},
    )


def reason_of(reason: str, pop: PopGroup | None) -> html.Div:
    """Why a group is in its state; of one that reads by POP what is out, and what nobody knows."""
    said = [html.Div(visible(reason))]
    if pop is not None:
        said.append(html.Div(visible(pop.words), className="quiet"))
    return html.Div(said, className="reason")


def quiet(sentence: Any) -> html.P:
    """What stands where a list would be empty."""
    return html.P(sentence, className="quiet")


def coded(sentence: str) -> list[Any]:
    """A sentence whose words between backticks are commands or settings, to copy as they are."""
    parts = sentence.split("`")
    return [html.Code(part) if at % 2 else part for at, part in enumerate(parts)]


def first_run(lake: str) -> html.Div:
    """No gold yet: the three steps, with this lake's address in them."""
    steps = (
        ("Play a whole cluster with incidents, lake and pipeline included:", "make demo"),
        ("Or run your own engine, which ships its facts here:", f"tidemark engine --lake {lake}"),
        ("and compute gold from them, live:", f"tidemark pipeline run --lake {lake}"),
    )
    listed = [html.Li([html.Span(text), html.Code(command)]) for text, command in steps]
    return notice(
        "Nothing has been computed here yet",
        [
            html.P(
                [
                    "No gold tables at ",
                    html.Code(lake),
                    ". This page fills by itself as soon as there are some.",
                ]
            ),
            html.Ol(listed, className="steps"),
        ],
        kind="first-run",
    )


def empty_range(span: Span, view: View, *, what: str) -> html.Div:
    """Tables are there, the range holds nothing: say so, and offer the way to data."""
    said = f"{clock(span.start, day=True)} and {clock(span.end, day=True)} UTC"
    children: list[Any] = [html.P(f"{what} between {said}.")]
    if span.data_end is not None:
        children.append(
            html.P(
                [
                    f"The newest data is of {clock(span.data_end, day=True)} UTC. ",
                    dcc.Link("Go there", href=around(span.data_end), className="jump"),
                    " or ",
                    dcc.Link(f"follow the last {view.range_name}", href="?", className="jump"),
                ]
            )
        )
    return notice("Nothing in this range", children, kind="empty")


def choice_of_cluster(what: str, path: str, clusters: Sequence[str], view: View) -> html.Div:
    """Several clusters have what a page is about: the reader says which one is meant."""
    links = [
        html.Li(dcc.Link(visible(name), href=path + view.of_cluster(name).search()))
        for name in clusters
    ]
    said = html.P(
        f"{what} is in {len(clusters)} clusters, which have nothing to do with each other."
    )
    return notice("Which cluster?", [said, html.Ul(links)], kind="clusters")


def failure(sentence: str, moment: datetime) -> html.Div:
    """Something cannot be read: what, since when, and that we go on trying."""
    return notice(
        "The lake cannot be read",
        [
            html.P(sentence),
            html.P(
                f"Seen at {clock(moment)} UTC; tried again with each refresh.", className="quiet"
            ),
        ],
        kind="error",
    )


def notice(title: str, children: Any, *, kind: str) -> html.Div:
    """A block that stands for a page, or above it."""
    role = "alert" if kind == "error" else "status"
    return html.Div(
        [html.H2(title), *children],
        className=f"notice notice-{kind}",
        role=role,
        **{"data-state": kind},
    )
