"""The set-up's only exception, raised when something missing cannot be provided."""

from __future__ import annotations


class ProvisionError(Exception):
    """Something is missing that cannot be brought from here; the message says what to do."""
