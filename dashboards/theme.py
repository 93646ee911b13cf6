"""Colours, state labels and figure layout for the light and dark themes.

Categories are Okabe and Ito's colours, lag is Cividis: readers who see colour differently can
distinguish both. A state is a word and a sign first, a colour last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dot")
"""Beside the colour: the eighth line still differs from the first."""
CLEAR: Final = "rgba(0,0,0,0)"
FONT: Final = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


@dataclass(frozen=True, slots=True)
class Palette:
    """What differs between the two themes."""

    name: str
    ink: str
    muted: str
    grid: str
    surface: str
    stall: str
    risk: str
    event: str
    dead: str
    hatch: str
    series: tuple[str, ...]
    """Okabe and Ito's order, lighter on a dark ground."""


LIGHT: Final = Palette(
    name="light",
    ink="#1b2430",
    muted="#5a6675",
    grid="#e3e8ee",
    surface="#ffffff",
    stall="#C44601",
    risk="#9A6A00",
    event="#0072B2",
    dead="#A3386F",
    hatch="#8a96a3",
    series=(
        *("#0072B2", "#E69F00", "#009E73", "#CC79A7"),
        *("#56B4E9", "#D55E00", "#8C6D31", "#7A7A7A"),
    ),
)
DARK: Final = Palette(
    name="dark",
    ink="#e6ebf2",
    muted="#9aa7b8",
    grid="#2a3442",
    surface="#151c26",
    stall="#FF8A4C",
    risk="#F2B83B",
    event="#6CC0F5",
    dead="#EE9CC8",
    hatch="#6b7889",
    series=(
        *("#5AB4F0", "#F0B429", "#3FCF9F", "#E79BC6"),
        *("#B3E3FF", "#FF8A4C", "#CDB27A", "#B4BFCC"),
    ),
)


def palette(name: str | None) -> Palette:
    """The palette of a theme's name; anything unknown is light."""
    return DARK if name == "dark" else LIGHT


@dataclass(frozen=True, slots=True)
class StateSign:
    """How a group's or queue's state is shown."""

    word: str
    sign: str
    css: str
    rank: int
    """0 is worst."""


STATES: Final = {
    "DATA_LOST": StateSign("data lost", "✖", "lost", 0),
    "STALLED": StateSign("stalled", "■", "stalled", 1),
    "STOPPED": StateSign("stopped", "●", "stopped", 2),
    "REWOUND": StateSign("rewound", "◀", "rewound", 3),
    "SLOW": StateSign("slow", "▲", "slow", 4),
    "NO_OFFSET": StateSign("no offset", "○", "unknown", 5),
    "WITHHELD": StateSign("withheld", "⊘", "unknown", 6),
    "PAUSED": StateSign("paused", "‖", "unknown", 7),
    "UNKNOWN": StateSign("unknown", "?", "unknown", 8),
    "CATCHING_UP": StateSign("catching up", "△", "slow", 9),
    "BROADCAST": StateSign("broadcast", "◇", "unknown", 10),
    "OK": StateSign("OK", "✓", "ok", 11),
}


def state_sign(state: str | None) -> StateSign:
    """The sign of a state; one we have never heard of is unknown."""
    return STATES.get(state or "UNKNOWN", STATES["UNKNOWN"])


def frame(colours: Palette, *, height: int) -> dict[str, Any]:
    """Layout settings every figure shares."""
    return {
        "height": height,
        "font": {"family": FONT, "size": 12, "color": colours.ink},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "hoverlabel": {
            "bgcolor": colours.surface,
            "bordercolor": colours.muted,
            "font": {"color": colours.ink, "family": FONT, "size": 12},
            "align": "left",
        },
        "uirevision": "keep",
        "showlegend": False,
    }


def legend_above(colours: Palette) -> dict[str, Any]:
    """A legend in one line above the panels."""
    return {
        "orientation": "h",
        "x": 0,
        "y": 1,
        "yanchor": "bottom",
        "font": {"size": 11, "color": colours.muted},
    }


def time_axis(colours: Palette) -> dict[str, Any]:
    """A UTC time axis."""
    return {
        "type": "date",
        "gridcolor": colours.grid,
        "linecolor": colours.grid,
        "zeroline": False,
        "tickfont": {"color": colours.muted},
        "hoverformat": "%H:%M:%S",
    }


def unknown_pattern(colours: Palette) -> dict[str, Any]:
    """What fills a stretch of time of which nothing is known: hatched, not only coloured."""
    return {
        "shape": "/",
        "fgcolor": colours.hatch,
        "bgcolor": CLEAR,
        "size": 7,
        "solidity": 0.15,
    }
