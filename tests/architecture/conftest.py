"""The trees of all files are kept while these tests run, and no longer: they take much memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.architecture.source_tree import read_once


@pytest.fixture(scope="package", autouse=True)
def _trees() -> Iterator[None]:
    yield
    read_once.cache_clear()
