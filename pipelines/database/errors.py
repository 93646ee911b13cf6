"""Errors of the database, grouped by what the caller can do about them."""

from __future__ import annotations

from engine.foundation.errors import ClusterError, StorageError


class StoreUnavailable(StorageError):
    """The database is locked, gone or full. Nothing is half done; whether a transaction that was
    just being committed is there is unknown: load again, decide again, and store what is new.
    """


class StoreTooNew(StorageError):
    """The database was changed by a later version of Tidemark, which this one does not know."""


class LeadHeld(ClusterError):
    """Another process leads; the message says which. `sight` is what was seen of its lease."""

    def __init__(self, message: str, sight: tuple[int, int, int]) -> None:
        super().__init__(message)
        self.sight = sight


class LeadLost(ClusterError):
    """Another process took the lead over: what this one decided is not stored."""
