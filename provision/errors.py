"""The set-up's only error: a sentence for the person at the terminal."""

from __future__ import annotations


class ProvisionError(Exception):
    """Something is missing that cannot be brought from here; the message says what to do."""
