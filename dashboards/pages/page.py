"""Type that declares a dashboard page: its address, title, layout and callbacks.

Place in the walk: each module of a page has a `PAGE`; the frame lists them in `shell.PAGES`, and
the server and the navigation follow that list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dash import Dash

from dashboards.page_context import PageContext


@dataclass(frozen=True, slots=True)
class Page:
    """One page, or the pages of one kind."""

    path: str
    """Its address; with `subject_of`, what the addresses of its kind begin with."""
    title: str
    layout: Callable[..., Any]
    """Its skeleton, which callbacks fill; with `subject_of`, a function of that subject."""
    register: Callable[[Dash, PageContext], None]
    subject_of: Callable[[str], str | None] | None = None
    """What an address of its kind is about; None for an address of another page."""
    in_navigation: bool = True
    part_of: str = ""
    """The address that the navigation marks meanwhile, when it is not its own."""

    def skeleton(self, path: str) -> Any | None:
        """Its layout at an address; None when that is another page's."""
        if self.subject_of is None:
            return self.layout() if path == self.path else None
        subject = self.subject_of(path)
        return None if subject is None else self.layout(subject)

    def is_at(self, path: str) -> bool:
        """Is this the page of an address?"""
        return path == self.path if self.subject_of is None else self.subject_of(path) is not None

    @property
    def marked(self) -> str:
        """The address that the navigation marks while this page is open."""
        return self.part_of or self.path
