"""Signals table changes to the services that persist and register them.

Place in the walk: whoever changes a topic or a setting says so here; `persistence` and
`registration` wait here for work.

Invariant: a change that is noted while the one before is being written is not lost. Absent on
purpose: consume offsets, which are written on a timer, and what changed (the tables count it).
"""

from __future__ import annotations

import asyncio


class TableChanges:
    """What changed in the tables of one broker and is not written or registered yet."""

    def __init__(self) -> None:
        self.topics_unsaved = False
        """Were topics changed that are not on disk yet?"""
        self.to_save = asyncio.Event()
        """Tables wait to be written."""
        self.to_register = asyncio.Event()
        """Topics wait to be registered at the name servers."""
        self.role_to_register = asyncio.Event()
        """So does another role."""

    def of_topics(self) -> None:
        """Topics changed: they are written and registered soon."""
        self.topics_unsaved = True
        self.to_save.set()
        self.to_register.set()

    def of_role(self) -> None:
        """The broker has another role, or leads in another term: it is registered soon."""
        self.role_to_register.set()
        self.to_register.set()

    def of_settings(self) -> None:
        """Settings or selectors of groups, or kept settings of the broker, changed."""
        self.to_save.set()
