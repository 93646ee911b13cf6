"""Database migrations, one file per change, applied in order when a database is opened."""

from __future__ import annotations

from typing import Final

NEWEST: Final = "0007"
"""The revision of the last file: a database that says it is of it is opened as it is."""

VERSIONS: Final = "tidemark_versions"
"""The table in which a database says of which revision it is."""
