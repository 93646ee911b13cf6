"""The texts of an alert: a summary, a first step, and an optional description.

Place in the walk: below the texts of all alerts. Pure data.
"""

from __future__ import annotations

from collections.abc import Mapping

Texts = Mapping[str, str]


def texts(summary: str, first_step: str, description: str = "") -> Texts:
    """Templates, by the names under which a rule has them."""
    made = {"summary": summary, "first_step": first_step}
    return made | ({"description": description} if description else {})
