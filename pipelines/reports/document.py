"""Builds a standalone HTML page: a head with the style sheet, the pieces, an end.

Invariant: nothing is fetched, from nowhere, and no script is run: the page forbids both to the
browser, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from html import escape
from pathlib import Path
from typing import Final

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@cache
def _sheet() -> str:
    return (Path(__file__).parent / "sheet.css").read_text(encoding="utf-8")


def document(title: str, pieces: Iterable[str]) -> str:
    """The page, whole."""
    body = "\n".join(pieces)
    return (
        "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<base target='_top'>"  # In a frame of the dashboard, a link leads the whole window there.
        f"<title>{escape(title)}</title>\n<style>\n{_sheet()}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )
