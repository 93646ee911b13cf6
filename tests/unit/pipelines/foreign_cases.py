"""Where the cases of public projects are, if they are."""

from __future__ import annotations

import os
from pathlib import Path

FILES = ("burrow_cases.json",)
_BESIDE = Path(__file__).resolve().parents[4] / "shared" / "cases"


def folder() -> Path:
    """The folder they would be in."""
    return Path(os.environ.get("TIDEMARK_RULE_CASES") or _BESIDE)


def at_hand(name: str) -> Path | None:
    """The file, or null: its tests do not exist then."""
    found = folder() / name
    return found if found.exists() else None
