"""Every limit of the engine is named in docs/memory.md, with the figure that the code has.

A row of a table, or a paragraph, names a limit in backticks and says its figure beside it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from engine.foundation import limits
from engine.foundation.units import GIB, KIB, MIB
from tests.architecture.source_tree import ROOT, read_once

PAGE = ROOT / "docs" / "memory.md"
CODE = "engine/foundation/limits.py"
NAME = re.compile(r"`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)`")
TIME = re.compile(r"_(?:MS|US)(?:_|$)")
"""Of a limit that is a time: nothing becomes longer or larger by it."""

A_STEP = "how much one step of work does before others have their turn; what waits has a limit"
ELSEWHERE = {
    "TURN_WRITES_MAX": A_STEP,
    "LOOP_STEP_ANSWERS_MAX": A_STEP,
    "FILTER_COST_MAX": A_STEP,
    "DISPATCH_BATCH_MAX": A_STEP,
    "INDEX_FILL_RECORDS": A_STEP,
    "INDEX_FILL_BYTES": A_STEP,
    "QUEUE_SCRUB_BYTES": A_STEP,
    "QUEUE_SCRUB_SHARE": A_STEP,
    "WATERMARKS_PER_SAMPLE_MAX": A_STEP,
    "LIFE_ENTRIES_PER_TURN": A_STEP,
    "GUARD_KEYS_PER_CLEANING": A_STEP,
    "SENDS_READ_BACK_MAX": A_STEP,
    "SECOND_COPIES_LOOKED_UP_MAX": A_STEP,
    "SECOND_COPIES_LOOKED_UP_A_SECOND": A_STEP,
    "TRANSACTIONS_RENEWED_HELD": "when waiting half messages are put again; how many is limited",
    "COMMIT_LOG_FILE_BYTES_DEFAULT": "a setting's default: the log keeps what retention leaves",
    "STORE_FILE_BYTES_MAX": "what RocketMQ's formats can say; a mapped file is the kernel's",
}
"""Limit -> why the page does not name it. An entry that the page names must go."""


def limits_of_the_engine() -> dict[str, int | float]:
    """Name -> value, of what limits.py itself says, not of the units it uses."""
    assigned = [
        node.target.id
        for node in read_once(CODE).tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    return {name: getattr(limits, name) for name in assigned}


def pieces(page: str) -> Iterator[str]:
    """Rows of tables, and paragraphs."""
    for paragraph in page.split("\n\n"):
        if paragraph.startswith("|"):
            yield from paragraph.splitlines()
        else:
            yield paragraph


def as_written(value: float) -> set[str]:
    """The ways in which a page may say a figure."""
    sizes = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"))
    return {f"{value:,}"} | {
        f"{value / unit:,.0f} {word}" for unit, word in sizes if value >= unit and not value % unit
    }


def says(piece: str, value: float) -> bool:
    """Does the piece say this figure, and not only one that begins or ends like it?"""
    return any(
        re.search(rf"(?<![\d.,]){re.escape(figure)}(?!\w|[.,]\d)", piece)
        for figure in as_written(value)
    )


def unlike(page: str, known: dict[str, int | float]) -> list[str]:
    """What a page says otherwise than the code: names that are no limits, and other figures."""
    named = [(name, piece) for piece in pieces(page) for name in NAME.findall(piece)]
    return [f"{name} is no limit" for name, _ in named if name not in known] + [
        f"{name} is {known[name]:,}: {piece[:60]}"
        for name, piece in named
        if name in known and not says(piece, known[name])
    ]


def test_every_limit_has_its_line_in_the_page_about_memory() -> None:
    named = set(NAME.findall(PAGE.read_text(encoding="utf-8")))
    known = limits_of_the_engine()
    assert len(known) > 100
    grown = {name for name in known if not TIME.search(name)}
    lacking = sorted(grown - named - ELSEWHERE.keys())
    assert not lacking, f"docs/memory.md has no line for {lacking}: what grows, and what happens?"
    assert not ELSEWHERE.keys() & named, "named in the page, so no exception"
    assert ELSEWHERE.keys() <= grown, "an exception that is no limit any more"


def test_the_figures_beside_the_names_are_those_of_the_code() -> None:
    assert not unlike(PAGE.read_text(encoding="utf-8"), limits_of_the_engine())


@pytest.mark.parametrize(
    ("piece", "wrong"),
    [
        ("| held polls | 100,000 | `HELD_MAX` |", 0),
        ("| held polls | 10,000 | `HELD_MAX` |", 1),
        ("| held polls | 1,100,000 | `HELD_MAX` |", 1),
        ("| held polls | 100,000,000 | `HELD_MAX` |", 1),
        ("| frames | 512 KiB in all; 64 in one | `FRAME_BYTES_MAX` |", 0),
        ("| frames | 512 MiB in all | `FRAME_BYTES_MAX` |", 1),
        ("at most 524,288 bytes (`FRAME_BYTES_MAX`)", 0),
        ("| 512 KiB |\n| `FRAME_BYTES_MAX` |", 1),
        ("512 KiB\nis `FRAME_BYTES_MAX`", 0),
        ("`GONE_MAX` is 4", 1),
    ],
)
def test_a_figure_that_the_code_does_not_have_is_seen(piece: str, wrong: int) -> None:
    assert len(unlike(piece, {"HELD_MAX": 100_000, "FRAME_BYTES_MAX": 512 * KIB})) == wrong
