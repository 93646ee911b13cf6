"""Finds the Data Docs files that Great Expectations generates.

Place in the walk: the checks write them into the lake's folder; the page of checks leads there.

Invariant: only files below that folder are served, found by their real path, so that neither `..`
nor a link leads out of it; and no script of theirs runs: they come in a sandbox. Absent on purpose:
lakes in object stores, whose folder is not on this machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pipelines.lake.lake import DATA_DOCS_FOLDER, Lake

TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css",
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".svg": "image/svg+xml",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
    ".ttf": "font/ttf",
}
"""What pages are made of; nothing else is served."""


def docs_folder(lake: Lake) -> Path | None:
    """Where a lake's Data Docs lie; None for a lake that is not on this machine."""
    return None if "://" in lake.root else Path(lake.root) / DATA_DOCS_FOLDER


def docs_index(lake: Lake) -> Path | None:
    """Their first page; None when there are none."""
    return docs_file(lake, "index.html")


def docs_file(lake: Lake, name: str) -> Path | None:
    """The file of that name among the Data Docs; None for anything else, wherever it leads."""
    folder = docs_folder(lake)
    if folder is None or "\0" in name:
        return None
    try:
        home = folder.resolve(strict=True)
        found = (home / name).resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    is_inside = found.is_relative_to(home) and home == folder.parent.resolve() / folder.name
    return found if is_inside and found.is_file() and found.suffix in TYPES else None
