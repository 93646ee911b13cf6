"""Decides how many kills and examples of a law the suite tries.

The suite takes a few of those that prove a law; `make test-slow` and `make explore` take them all.
Absent on purpose: laws that the suite leaves out altogether.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

EXPLORING = "explore"
"""The profile of `make explore`."""


def kills(in_the_suite: int, *, in_full: int) -> pytest.MarkDecorator:
    """Play a story with so many kills, its parameter `kills`; the full number is marked slow, and
    is what TIDEMARK_KILLS says, if it says so.
    """
    in_full = int(os.environ.get("TIDEMARK_KILLS", in_full))
    few = pytest.param(in_the_suite, id=f"{in_the_suite} kills")
    many = pytest.param(in_full, id=f"{in_full} kills", marks=pytest.mark.slow)
    return pytest.mark.parametrize("kills", [few, many])


def examples(in_the_suite: int, *, in_full: int) -> settings:
    """Draw so many examples of a property; the full number where others than always are drawn."""
    is_exploring = settings.get_current_profile_name() == EXPLORING
    return settings(max_examples=in_full if is_exploring else in_the_suite)
