"""Builds figures as plain plotly.js data for the browser to draw.

plotly's own classes would check every word while a figure is made: most of what a figure costs, and
0.13 s of CPU to load. So the tests have them check, and a page does not. Invariant: all of a figure
is what JSON holds, beside times.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from dashboards.theme import CLEAR

Trace = dict[str, Any]
"""One series of a figure: plotly's `data` has a list of them."""

Layout = dict[str, Any]

Figure = dict[str, Any]
"""`data` and `layout`, as a graph takes them."""

CIVIDIS: Final = [
    [position / 9, colour]
    for position, colour in enumerate(
        (
            *("#00224e", "#123570", "#3b496c", "#575d6d", "#707173"),
            *("#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"),
        )
    )
]
"""Matplotlib's colours of that name; plotly.js has others."""

TEMPLATE: Final = {
    "layout": {
        "autotypenumbers": "strict",
        "hovermode": "closest",
        "xaxis": {"automargin": True, "ticks": "", "title": {"standoff": 15}},
        "yaxis": {"automargin": True, "ticks": "", "title": {"standoff": 15}},
    },
    "data": {
        "scatter": [
            {"type": "scatter", "fillpattern": {"fillmode": "overlay", "size": 10, "solidity": 0.2}}
        ],
        "heatmap": [{"type": "heatmap", "colorbar": {"outlinewidth": 0, "ticks": ""}}],
    },
}
"""What every figure has unless it says otherwise."""


def scatter(**words: Any) -> Trace:
    """Points, lines or filled areas."""
    return {"type": "scatter", **words}


def bars(**words: Any) -> Trace:
    """Bars from the axis up."""
    return {"type": "bar", **words}


def heatmap(**words: Any) -> Trace:
    """Coloured cells."""
    return {"type": "heatmap", **words}


def hatched(
    since: datetime, until: datetime, ends: tuple[float, float], pattern: Layout, **words: Any
) -> Trace:
    """A span of time of which nothing is known, from one end of an axis to the other."""
    bottom, top = ends
    return scatter(
        x=[since, until, until, since],
        y=[bottom, bottom, top, top],
        fill="toself",
        mode="lines",
        line={"width": 0},
        fillcolor=CLEAR,
        fillpattern=pattern,
        hoverinfo="skip",
        **words,
    )


def figure_of(traces: list[Trace], layout: Layout) -> Figure:
    """The traces, the first one lowest, in a layout."""
    return {"data": traces, "layout": {"template": TEMPLATE, **layout}}
